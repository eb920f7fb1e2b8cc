"""What all functions that do runs have in common: on which machines, how long, and where data come from."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

from ..graphs import Task
from ..methods import Method
from ..runtime.memory import processors
from .engines import Engine, Processes, Ray
from .tasks import Source

Place: TypeAlias = str | os.PathLike[str]
EngineName: TypeAlias = Literal["local", "ray"]


def listed(values: Any) -> list[Any]:
    """A sequence as a list; a single value as a list of one.

    Args:
        values: What a user gave.
    """
    single = isinstance(values, str | os.PathLike | Task | Method | type)
    return [values] if single else list(values)


def as_texts(settings: Mapping[str, Any] | None) -> list[str]:
    """Hyper-parameters as the description of an experiment has them.

    Args:
        settings: By name.
    """
    return sorted(f"{name}={value}" for name, value in (settings or {}).items())


def deadline_of(time_limit: float | None) -> float | None:
    """When the time is over, as ``time.monotonic`` counts.

    Args:
        time_limit: Seconds from now.
    """
    return None if time_limit is None else time.monotonic() + time_limit


def source_of(mirror: Place | None, data_root: Place | None, ood_classes: Sequence[int | str] | None) -> Source:
    """Where tasks come from.

    Args:
        mirror: A folder with raw files, looked at first.
        data_root: Where graphs are kept once read.
        ood_classes: The classes to leave out.
    """
    return Source(
        None if mirror is None else Path(mirror),
        None if data_root is None else Path(data_root),
        None if ood_classes is None else tuple(ood_classes),
    )


def check_engine(name: str, address: str | None, jobs: int | None) -> None:
    """Refuse options that contradict each other, before any work is done.

    Args:
        name: Of the engine.
        address: Of the Ray cluster.
        jobs: Processes on this machine.
    """
    if name not in ("local", "ray"):
        raise ValueError(f"unknown engine {name!r}: choose 'local' or 'ray'")
    if name == "ray" and jobs is not None:
        raise ValueError("jobs is for this machine; a Ray cluster has its own number of processors")
    if name == "local" and address is not None:
        raise ValueError("address is of a Ray cluster: choose engine='ray'")


def make_engine(name: str, address: str | None, jobs: int | None, source: Source, models: Path) -> Engine:
    """Where work is done.

    Args:
        name: Of the engine.
        address: Of the Ray cluster.
        jobs: Processes on this machine; None: one a core.
        source: Where tasks come from.
        models: The folder of fitted models that runs share.
    """
    return Ray(address, source, models) if name == "ray" else Processes(jobs or processors(), source, models)
