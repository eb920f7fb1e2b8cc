"""Search spaces: what a method declares, on a task; their points, and how Optuna draws one."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ..methods import METHODS, MethodError, find_method
from ..methods.base import search_space_of
from ..methods.parameters import Space, Uniform

if TYPE_CHECKING:
    import optuna

Scale: TypeAlias = Literal["uniform", "log"]
ORDERS_OF_MAGNITUDE = 1000.0  # a range whose ends differ by this factor is one that ``log`` draws in logarithms


def space_of(method: str, training_nodes: int, scale: Scale) -> Space:
    """The search space of a method on a task.

    The paper draws learning rate and weight decay evenly (``uniform``), so that hardly any point has a weight decay
    below a hundredth; ``log`` draws whatever ranges over orders of magnitude evenly in its logarithm, from the same
    range.

    Args:
        method: A name or an import path.
        training_nodes: How many the task has.
        scale: How to draw.
    """
    kind = find_method(method)
    if not kind.search_space:
        tunable = ", ".join(name for name, kind in METHODS.items() if kind.search_space)
        raise MethodError(f"{kind.name} has nothing to tune; choose from {tunable}")
    return {name: _scaled(values, scale) for name, values in search_space_of(kind, training_nodes).items()}


def _scaled(values: Uniform | tuple[Any, ...], scale: Scale) -> Uniform | tuple[Any, ...]:
    if scale == "log" and isinstance(values, Uniform) and values.low * ORDERS_OF_MAGNITUDE <= values.high:
        return replace(values, log=values.low > 0.0)
    return values


def size(space: Space) -> float:
    """How many points a space has.

    Args:
        space: The space.
    """
    return math.prod(math.inf if isinstance(values, Uniform) else len(values) for values in space.values())


def points(space: Space) -> Iterator[dict[str, Any]]:
    """All points of a finite space.

    Args:
        space: The space.
    """
    for values in itertools.product(*space.values()):  # type: ignore[arg-type]
        yield dict(zip(space, values, strict=True))


def draw(space: Space, trial: optuna.Trial) -> dict[str, Any]:
    """A point of the space, as the trial's sampler likes it.

    Args:
        space: The space.
        trial: Optuna's.
    """
    point: dict[str, Any] = {}
    for name, values in space.items():
        if isinstance(values, Uniform):
            point[name] = trial.suggest_float(name, values.low, values.high, log=values.log)
        else:
            point[name] = trial.suggest_categorical(name, values)
    return point
