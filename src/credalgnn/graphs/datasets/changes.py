"""Data sets with something changed, by name: ``chameleon+label_noise=0.2``, ``csbm+homophily=0.5``."""

from __future__ import annotations

import inspect
import math
import os
import re
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from ...runtime.names import suggestion
from ..errors import GraphError
from ..task import Task
from .base import Dataset

# The shifts of a task that a name can ask for; each takes a share, and some an option beside it.
SHIFTS: dict[str, tuple[str, ...]] = {
    "fewer_labels": (),
    "fewer_ood": (),
    "label_noise": (),
    "feature_noise": ("std",),
    "feature_removal": (),
    "rewired": (),
}


class Change(NamedTuple):
    """One change of a data set.

    Args:
        name: Of a shift of the task, or of a parameter of a graph that is generated.
        value: The share of a shift, or the parameter's value.
        options: What else a shift is told.
    """

    name: str
    value: float
    options: dict[str, float]


def split_changes(text: str) -> tuple[str, list[Change]]:
    """What a data set is found by without its changes, and the changes.

    Args:
        text: As a user writes it: ``name``, ``name+shift=share`` or ``name+shift=share,option=value``; several changes
            follow each other.
    """
    found = re.fullmatch(r"(.+?)((?:\+\w+=[^+]*)+)", text, re.DOTALL)
    if found is None or os.path.exists(text):  # a file or a folder may be called so
        return text, []
    return found[1], [_change(part, text) for part in found[2].removeprefix("+").split("+")]


def _change(part: str, text: str) -> Change:
    pairs = [item.partition("=") for item in part.split(",")]
    values: dict[str, float] = {}
    for name, equals, text_value in pairs:
        if name in values:
            raise GraphError(f"{text:.100}: {name} stands there twice")
        try:
            values[name] = int(text_value) if re.fullmatch(r"-?\d{1,15}", text_value) else float(text_value)
        except ValueError:
            values[name] = math.nan
        if not equals or not math.isfinite(values[name]):
            raise GraphError(
                f"{text:.100}: {name}={text_value} is no number; write it as in +label_noise=0.2"
            ) from None
    (name, value), *options = values.items()
    return Change(name, value, dict(options))


def with_parameters(dataset: Dataset, changes: list[Change]) -> Dataset:
    """The data set with those changes that are parameters of its graph; the shifts among them are left to ``shifted``.

    Args:
        dataset: Without the changes.
        changes: All of them.
    """
    known = {} if dataset.files else inspect.signature(dataset.make).parameters
    numbers = [name for name, each in known.items() if type(each.default) in (int, float) and name != "split_seed"]
    parameters = {}
    for name, value, options in changes:
        allowed = SHIFTS.get(name, ())
        if name not in SHIFTS and name not in numbers:
            raise GraphError(f"{dataset.name}+{name}: no such change; {suggestion(name, [*SHIFTS, *numbers])}")
        for option in options:
            if option not in allowed:
                hint = f"it takes {', '.join(allowed)}" if allowed else "it takes none"
                raise GraphError(f"{dataset.name}+{name}: no option {option!r}; {hint}")
        if name not in SHIFTS:
            parameters[name] = value
    return replace(dataset, make=partial(dataset.make, **parameters)) if parameters else dataset


def shifted(task: Task, changes: list[Change], seed: int) -> Task:
    """The task with those changes that are shifts, one after the other.

    Args:
        task: Without them.
        changes: All of them.
        seed: Of what the shifts draw.
    """
    for name, share, options in changes:
        if name in SHIFTS:
            task = getattr(task, name)(share, seed=seed, **options)
    return task
