"""Fitted models on disk that several runs stand on: each is trained once."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from .._version import __version__
from ..graphs import Task
from ..methods import Method, MethodError, load_method
from ..methods.training_data import EvalProtocol
from ..records.schema import read_json
from ..runtime.files import locked, to_json, write
from .plan import Run

SECONDS = "seconds.json"  # what the fit of a model took


class Fitted(NamedTuple):
    """A fitted method, and the seconds it took with all that it stands on."""

    method: Method
    seconds: float


@dataclass(frozen=True)
class ModelCache:
    """Fitted models in a folder: methods, processes and resumed benchmarks share them."""

    folder: Path

    def components(self, run: Run, task: Task) -> list[Fitted]:
        """The models that a run stands on. While another process trains one of them, this one turns to the next.

        Args:
            run: What to run.
            task: Its task.
        """
        kind = run.kind.components.kind if run.kind.components else run.kind
        ready: dict[int, Fitted] = {}
        for wait in (False, True):
            for number, config in enumerate(run.components):
                if number not in ready and (fitted := self._get(kind, config, run.protocol, task, wait)) is not None:
                    ready[number] = fitted
        return [ready[number] for number in range(len(run.components))]

    def _get(
        self, kind: type[Method], config: Mapping[str, Any], protocol: EvalProtocol, task: Task, wait: bool
    ) -> Fitted | None:
        what = json.dumps([kind.name, config, protocol, task.fingerprint, __version__], sort_keys=True)
        path = self.folder / hashlib.blake2b(what.encode(), digest_size=12).hexdigest()
        with locked(path / "lock", wait) as held:
            if not held:
                return None
            try:
                kept = load_method(path, task, method=kind, device=config.get("device", "cpu"))
                return Fitted(kept, float(read_json(path / SECONDS, "a time")["seconds"]))
            except (MethodError, OSError, ValueError, LookupError, TypeError):  # not there yet, or not whole
                begin = time.perf_counter()
                made = kind(**config).fit(task, protocol=protocol, progress=False)
                seconds = time.perf_counter() - begin
                made.save(path)
                write(path / SECONDS, to_json({"seconds": seconds}))
                return Fitted(made, seconds)
