"""The paper's experiment as it was run: the same searches and runs, with some choices of the published ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...methods import method_path
from ..best import Best
from ..reproduction import ENSEMBLES, TRAINED, Reproduction
from .choices import concerning, has_random_split
from .methods import PUBLISHED, PublishedVanillaByOOD


@dataclass
class AsPublished(Reproduction):
    """The paper's experiment on one data set, with choices of its published runs.

    With ``one-seed`` run number k is the k-th best of the search: of trained networks the k-th best trial; a post-hoc
    method stands on the k-th best vanilla GNN; an ensemble has the k-th best size.

    Args:
        choices: Their names; those that do not apply to the task or a method change nothing there.
    """

    choices: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if "fresh-split" in self.choices and not has_random_split(self.task):
            self.choices = tuple(name for name in self.choices if name != "fresh-split")

    def _path(self, name: str) -> str:
        if name == "vanilla" and "ood-stopping" in self.choices:
            return method_path(PublishedVanillaByOOD)
        return method_path(PUBLISHED[name]) if name in PUBLISHED else name

    def _fixed(self, name: str) -> dict[str, Any]:
        return {"choices": concerning(name, self.choices)} if name in PUBLISHED else {}

    def _below(self, config: Mapping[str, Any]) -> dict[str, Any]:
        return {**super()._below(config), "fresh_split": "fresh-split" in self.choices}

    def _base(self, name: str) -> list[Any]:
        below = [] if name in TRAINED else [self._below(member.config) for member in self.pool]
        return [*super()._base(name), self._fixed(name), below]

    def _reported(self, best: Mapping[str, Best], name: str, number: int) -> Best:
        if "one-seed" not in self.choices:
            return super()._reported(best, name, number)
        search = {**self.networks, **self.above}[ENSEMBLES[0] if name in ENSEMBLES else name]
        among = self.budget.trials if name == "vanilla" else None
        ranked = search.top(self.budget.runs if name in (*TRAINED, *ENSEMBLES) else 1, among)
        return ranked[min(number, len(ranked) - 1)]
