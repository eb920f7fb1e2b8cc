"""What tuning chooses from: the paper's search spaces, and for the baselines the values of their original papers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ..methods import METHODS, MethodError

if TYPE_CHECKING:
    import optuna


@dataclass(frozen=True)
class Uniform:
    """Any number between two; drawn evenly, or evenly in its logarithm."""

    low: float
    high: float
    log: bool = False

    def __str__(self) -> str:
        return f"{'log ' if self.log else ''}U({self.low:g}, {self.high:g})"


Scale: TypeAlias = Literal["uniform", "log"]
Choices: TypeAlias = tuple[Any, ...]
Space: TypeAlias = Mapping[str, Uniform | Choices]

_NETWORK: Space = {
    "lr": Uniform(1e-5, 1e-1),
    "hidden": (64, 128, 256),
    "layers": (2, 3),
    "weight_decay": Uniform(1e-7, 1e-1),
    "backbone": ("gcn", "sage"),
}
_TEMPERATURES = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)

SPACES: dict[str, Space] = {
    "vanilla": _NETWORK,
    "credal-lj": {**_NETWORK, "delta": Uniform(0.5, 1.0)},
    "credal-final": {**_NETWORK, "delta": Uniform(0.5, 1.0)},
    "classical-ensemble": {"size": tuple(range(2, 16))},
    "credal-ensemble": {"size": tuple(range(2, 16))},
    "knn-lj": {"k": (5, 10, 20, 50, 100, 200)},
    "energy": {"temperature": (1.0, 10.0, 100.0, 1000.0)},
    "odin": {"temperature": _TEMPERATURES, "epsilon": tuple(round(0.0002 * step, 4) for step in range(21))},
    "mahalanobis": {"epsilon": (0.0, 0.0005, 0.001, 0.0014, 0.002, 0.005, 0.01)},
    "knn": {"k": (1, 10, 20, 50, 100, 200, 500, 1000, 3000, 5000)},
    "gnnsafe": {"steps": (1, 2, 4, 8, 16), "alpha": (0.1, 0.3, 0.5, 0.7, 0.9)},
}


def space_of(method: str, training_nodes: int, scale: Scale) -> Space:
    """The search space of a method on a task: more neighbours than training nodes cannot be asked for.

    The paper draws learning rate and weight decay evenly (``uniform``), so that hardly any point has a weight decay
    below a hundredth; ``log`` draws them evenly in their logarithms from the same ranges.
    """
    if method not in SPACES:
        raise MethodError(f"{METHODS[method].name} has nothing to tune; choose from {', '.join(SPACES)}")
    space = dict(SPACES[method])
    if not isinstance(space.get("k", Uniform(0, 0)), Uniform):
        space["k"] = tuple(k for k in space["k"] if k <= training_nodes)  # type: ignore[union-attr]
    for name in ("lr", "weight_decay"):
        if scale == "log" and name in space:
            space[name] = replace(space[name], log=True)  # type: ignore[type-var]
    return space


def size(space: Space) -> float:
    """How many points a space has."""
    return math.prod(math.inf if isinstance(one, Uniform) else len(one) for one in space.values())


def points(space: Space) -> Iterator[dict[str, Any]]:
    """All points of a finite space."""
    for values in itertools.product(*space.values()):  # type: ignore[arg-type]
        yield dict(zip(space, values, strict=True))


def draw(space: Space, trial: optuna.Trial) -> dict[str, Any]:
    """A point of the space, as the trial's sampler likes it."""
    point: dict[str, Any] = {}
    for name, one in space.items():
        if isinstance(one, Uniform):
            point[name] = trial.suggest_float(name, one.low, one.high, log=one.log)
        else:
            point[name] = trial.suggest_categorical(name, one)
    return point
