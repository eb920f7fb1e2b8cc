"""Many searches that share a storage, and ``tune``: several methods on a data set, those below others first."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias

from ..graphs import Task
from ..methods import METHODS
from ..methods.base import Protocol as Rules
from .engines import Engine
from .runs import Run, plan, stands_on_vanillas
from .spaces import Scale, Space, size, space_of
from .tuning import TRIAL_SEED, Best, Owners, Search, carry_out, found_before, open_storage, write_best

Settings: TypeAlias = Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any]]]


@dataclass
class Studies:
    """Makes searches that share one storage."""

    folder: Path
    protocol: Rules
    scale: Scale
    url: str | None = None

    def __post_init__(self) -> None:
        self.storage, self.owners = open_storage(self.folder, self.url), Owners(self.folder / ".owners")

    def search(self, task: Task, method: str, space: Space, trials: int, make: Callable[..., Run], base: Any) -> Search:
        """A search whose name holds all that its trials depend on, ``base`` among it: none is taken for another.

        Hopeless trials are given up where monitors can be compared. Under the sealed protocol they cannot: the loss of
        credal models depends on delta. Vanilla GNNs, which fill the pool, are always trained to the end.
        """
        depends = [task.fingerprint, self.protocol, self.scale, sorted(space), base]
        digest = hashlib.blake2b(json.dumps(depends, sort_keys=True).encode(), digest_size=6).hexdigest()
        prune = self.protocol == "paper" and method in ("credal-lj", "credal-final")
        return Search(f"{task.name} {method}", digest, space, trials, make, self.storage, self.owners, prune)


@dataclass
class Tuning:
    """Methods tuned on one data set. Vanilla comes first: others stand on what is found for it.

    ``settings`` are hyper-parameters that stay as they are, of a method and of the vanilla GNNs below it.
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
        return {name: one for name, one in space.items() if name not in own}

    @property
    def total(self) -> int:
        """How many trials there will be."""
        return sum(int(min(self.trials, size(space))) for space in self.spaces.values())

    def stage(self, number: int) -> list[Search]:
        """The searches of a stage: 0 for vanilla, 1 for the others."""
        names = [name for name in self.methods if (name == "vanilla") == (number == 0)]
        for name in names:
            base = [self.settings.get(name), self._below(name)]
            make = self._plan(name)
            self.searches[name] = self.studies.search(self.task, name, self.spaces[name], self.trials, make, base)
        return [self.searches[name] for name in names]

    def best(self) -> dict[str, Best]:
        return {name: search.top(1)[0] for name, search in self.searches.items()}

    def found(self) -> dict[str, dict[str, Any]]:
        """What ``bench --tuned`` needs: all that was set or chosen for a method, and for the networks below it."""
        table: dict[str, dict[str, Any]] = {}
        for name, best in self.best().items():
            own, _ = self.settings.get(name, ({}, {}))
            table[name] = {"config": {**best.config, **own}, "vanilla": self._below(name), "value": best.value}
        return table

    def _below(self, method: str) -> dict[str, Any]:
        """Hyper-parameters of the vanilla GNNs that a method stands on: what was found for vanilla, and what is set."""
        if not stands_on_vanillas(METHODS[method]):
            return {}
        _, below = self.settings.get(method, ({}, {}))
        return {**self._vanilla(), **below}

    def _vanilla(self) -> dict[str, Any]:
        """What was found for vanilla, by this command or by an earlier one in the same folder."""
        if "vanilla" in self.searches:
            own, _ = self.settings.get("vanilla", ({}, {}))
            return {**self.searches["vanilla"].top(1)[0].config, **own}
        return found_before(self.studies.folder, self.task, "vanilla")

    def _plan(self, method: str) -> Callable[[dict[str, Any], int], Run]:
        own, _ = self.settings.get(method, ({}, {}))
        shared = stands_on_vanillas(METHODS[method])  # then trials differ in what they make of the same networks
        under = [self._below(method)]

        def make(point: dict[str, Any], seed: int) -> Run:
            seed = TRIAL_SEED if shared else seed
            run = plan(
                self.dataset, method, seed, self.studies.protocol, self.split_seed, {**point, **own}, under,
                self.task.inductive,
            )  # fmt: skip
            if not shared:
                return run
            return replace(run, vanillas=tuple({**one, "seed": TRIAL_SEED + k} for k, one in enumerate(run.vanillas)))

        return make


class Ended(NamedTuple):
    """What to tell the person who waits: a trial has ended."""

    search: str
    found: Mapping[str, Any]
    done: int
    total: int


class Experiment(Protocol):
    """Searches on one data set, in two stages: the second stands on what the first has found."""

    @property
    def task(self) -> Task: ...

    @property
    def total(self) -> int: ...

    def stage(self, number: int) -> list[Search]: ...

    def found(self) -> dict[str, dict[str, Any]]: ...


def search_all(
    parts: Sequence[Experiment],
    studies: Studies,
    engine: Engine,
    deadline: float | None,
    tell: Callable[[Ended], None],
) -> bool:
    """Carry out the searches of all data sets side by side, and write down what is best; whether time was enough."""
    total, before = sum(part.total for part in parts), 0

    def told(done: int, search: Search, found: Mapping[str, Any]) -> None:
        tell(Ended(search.name, found, before + done, total))

    for number in (0, 1):
        searches = [search for part in parts for search in part.stage(number)]
        if not carry_out(searches, engine, deadline, told):
            return False
        before += sum(search.trials for search in searches)
    for part in parts:
        write_best(studies.folder, studies.protocol, part.task, part.found())
    return True
