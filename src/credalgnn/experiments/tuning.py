"""Several methods tuned on one data set: those that others stand on first, then these others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from ..graphs import Task
from ..methods import Method, find_method, method_path
from ..methods.parameters import Space
from .best import Best, earlier_config
from .plan import Run, plan
from .search import TRIAL_SEED, Search, Studies
from .space import size, space_of

Settings: TypeAlias = Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any]]]


@dataclass
class Tuning:
    """Methods tuned on one data set. Those that others stand on come first, with what is then chosen for them.

    Args:
        dataset: The name of the data set.
        task: Its task.
        studies: Where trials are kept.
        methods: What ``find_method`` finds the methods by.
        trials: How many trials each has.
        split_seed: The split of the task.
        settings: Hyper-parameters that stay as they are, of a method and of the models it stands on.
        searches: The searches that were begun, by method.
    """

    dataset: str
    task: Task
    studies: Studies
    methods: Sequence[str]
    trials: int
    split_seed: int = 0
    settings: Settings = field(default_factory=dict)
    searches: dict[str, Search] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.spaces = {name: self._space(name) for name in self.methods}

    def _space(self, method: str) -> Space:
        own, _ = self.settings.get(method, ({}, {}))
        space = space_of(method, len(self.task.split.train), self.studies.scale)
        return {name: values for name, values in space.items() if name not in own}

    @property
    def total(self) -> int:
        """How many trials there will be."""
        return sum(int(min(self.trials, size(space))) for space in self.spaces.values())

    def stage(self, number: int) -> list[Search]:
        """The searches of a stage.

        Args:
            number: 0 for methods that others stand on, 1 for the others.
        """
        names = [name for name in self.methods if find_method(name).is_shared == (number == 0)]
        for name in names:
            base = [self.settings.get(name), self._components(name)]
            make = self._plan(name)
            self.searches[name] = self.studies.search(self.task, name, self.spaces[name], self.trials, make, base)
        return [self.searches[name] for name in names]

    def best(self) -> dict[str, Best]:
        """The best point of each method, by its name."""
        return {find_method(path).name: search.top(1)[0] for path, search in self.searches.items()}

    def results(self) -> dict[str, dict[str, Any]]:
        """What ``bench --tuned`` needs: all that was set or chosen for a method, and for the networks below it."""
        table: dict[str, dict[str, Any]] = {}
        for path, best in zip(self.searches, self.best().values(), strict=True):
            own, _ = self.settings.get(path, ({}, {}))
            table[find_method(path).name] = {
                "config": {**best.config, **own},
                "components": self._components(path),
                "value": best.value,
            }
        return table

    def _components(self, method: str) -> dict[str, Any]:
        """Hyper-parameters of the models that a method stands on: what was chosen for them, and what is set."""
        declared = find_method(method).components
        if declared is None:
            return {}
        _, settings = self.settings.get(method, ({}, {}))
        return {**self._chosen(declared.kind), **settings}

    def _chosen(self, kind: type[Method]) -> dict[str, Any]:
        """What was chosen for a method, by this command or by an earlier one in the same folder."""
        path = method_path(kind)
        if path in self.searches:
            own, _ = self.settings.get(path, ({}, {}))
            return {**self.searches[path].top(1)[0].config, **own}
        return earlier_config(self.studies.folder, self.task, kind.name)

    def _plan(self, method: str) -> Callable[[dict[str, Any], int], Run]:
        own, _ = self.settings.get(method, ({}, {}))
        shared = find_method(method).components is not None  # then trials differ in what they make of the same models
        components = [self._components(method)]

        def make(point: dict[str, Any], seed: int) -> Run:
            seed = TRIAL_SEED if shared else seed
            run = plan(
                self.dataset, method, seed, self.studies.protocol, self.split_seed, {**point, **own}, components,
                self.task.inductive,
            )  # fmt: skip
            if not shared:
                return run
            members = ({**config, "seed": TRIAL_SEED + k} for k, config in enumerate(run.components))
            return replace(run, components=tuple(members))

        return make
