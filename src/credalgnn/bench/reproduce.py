"""Tuning many methods at once, and the paper's experiment as its appendix "Model selection" describes it.

The paper's 30 trials for the vanilla GNN are the first of the 100 that make its pool ("an extended Bayesian search").
Where it is silent: the size of the ensembles is the one with the best validation F1, and a run of an ensemble trains
the best M points of the pool with seeds of its own.
"""

from __future__ import annotations

import csv
import hashlib
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from ..graphs import Task
from ..methods import METHODS
from ..methods.base import Protocol
from ..methods.detectors import PostHoc
from ..methods.trivial import Trivial
from .engines import Engine
from .runs import Run, plan, stands_on_vanillas
from .spaces import SPACES, Scale, Space, Uniform, size, space_of
from .tuning import TRIAL_SEED, Best, Owners, Search, carry_out, open_storage, write_best

ENSEMBLES = ("classical-ensemble", "credal-ensemble")
TRAINED = ("vanilla", "credal-lj", "credal-final")
POST_HOC = tuple(name for name, kind in METHODS.items() if issubclass(kind, PostHoc))
Settings: TypeAlias = Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any]]]


@dataclass
class Studies:
    """Makes searches that share one storage."""

    folder: Path
    protocol: Protocol
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
        """Hyper-parameters of the vanilla GNNs that a method stands on; those found for vanilla, if it was tuned."""
        if not stands_on_vanillas(METHODS[method]):
            return {}
        _, below = self.settings.get(method, ({}, {}))
        if "vanilla" not in self.searches:
            return dict(below)
        own, _ = self.settings.get("vanilla", ({}, {}))
        return {**self.searches["vanilla"].top(1)[0].config, **own, **below}

    def _plan(self, method: str) -> Callable[[dict[str, Any], int], Run]:
        own, _ = self.settings.get(method, ({}, {}))
        shared = stands_on_vanillas(METHODS[method])  # then trials differ in what they make of the same networks
        under = [self._below(method)]

        def make(point: dict[str, Any], seed: int) -> Run:
            seed = TRIAL_SEED if shared else seed
            run = plan(
                self.dataset, method, seed, self.studies.protocol, self.split_seed, {**point, **own}, under
            )  # fmt: skip
            if not shared:
                return run
            return replace(run, vanillas=tuple({**one, "seed": TRIAL_SEED + k} for k, one in enumerate(run.vanillas)))

        return make


@dataclass(frozen=True)
class Budget:
    """How much is tried: trials for each model, size of the pool, largest ensemble, runs, settings of every network."""

    trials: int = 30
    pool: int = 100
    largest: int = 15
    runs: int = 5
    settings: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def quick(cls) -> Budget:
        """The same path within minutes, to see that it works; its figures mean nothing."""
        return cls(trials=4, pool=6, largest=4, runs=2, settings={"epochs": 20})


@dataclass
class Reproduction:
    """The paper's experiment on one data set: searches that train, searches on what they found, then the runs."""

    dataset: str
    task: Task
    studies: Studies
    budget: Budget

    @property
    def total(self) -> int:
        """How many trials there will be."""
        above = [self._space(name) for name in POST_HOC]
        return (
            self.budget.pool + (len(TRAINED) - 1) * self.budget.trials + self.budget.largest - 1
            + sum(int(min(self.budget.trials, size(space))) for space in above)
        )  # fmt: skip

    def stage(self, number: int) -> list[Search]:
        """Stage 0 trains networks, the vanilla ones until the pool is full; stage 1 tunes what stands on them."""
        return self._networks() if number == 0 else self._above()

    def _networks(self) -> list[Search]:
        self.networks = {name: self._search(name, self._space(name), self._network(name)) for name in TRAINED}
        return list(self.networks.values())

    def _above(self) -> list[Search]:
        self.vanilla = self.networks["vanilla"].top(1, among=self.budget.trials)[0]
        self.pool = self.networks["vanilla"].top(self.budget.largest)
        self.above = {name: self._search(name, self._space(name), self._post_hoc(name)) for name in POST_HOC}
        sizes = {"size": tuple(range(2, len(self.pool) + 1))}
        self.above[ENSEMBLES[0]] = self._search(ENSEMBLES[0], sizes, self._ensemble)
        return list(self.above.values())

    def best(self) -> dict[str, Best]:
        """What the searches have found; ensembles of both kinds have the same members."""
        found = {name: search.top(1)[0] for name, search in (self.networks | self.above).items()}
        return {**found, "vanilla": self.vanilla, ENSEMBLES[1]: found[ENSEMBLES[0]]}

    def runs(self) -> list[Run]:
        """The runs whose figures are reported, with seeds that no search has seen; trivial baselines beside them."""
        best, runs = self.best(), []
        for name, kind in METHODS.items():
            config = {} if issubclass(kind, Trivial) else best[name].config
            below = [self._whole(best["vanilla"].config)]
            if name in ENSEMBLES:
                below = [self._whole(one.config) for one in self.pool[: config["size"]]]
            elif name in TRAINED:
                config = self._whole(config)
            runs += [plan(self.dataset, name, seed, self.studies.protocol, 0, config, below)
                     for seed in range(self.budget.runs)]  # fmt: skip
        return runs

    def _space(self, name: str) -> Space:
        return space_of(name, len(self.task.split.train), self.studies.scale)

    def _whole(self, config: Mapping[str, Any]) -> dict[str, Any]:
        return {**config, **self.budget.settings}

    def found(self) -> dict[str, dict[str, Any]]:
        """What was chosen, for people; its runs are made by ``runs``."""
        return {name: {"config": best.config, "value": best.value} for name, best in self.best().items()}

    def _search(self, name: str, space: Space, make: Callable[[dict[str, Any], int], Run]) -> Search:
        trials = self.budget.pool if name == "vanilla" else self.budget.trials
        base = [dict(self.budget.settings), [] if name in TRAINED else [one.seed for one in self.pool]]
        return self.studies.search(self.task, name, space, trials, make, base)

    def _network(self, name: str) -> Callable[[dict[str, Any], int], Run]:
        return lambda point, seed: plan(self.dataset, name, seed, self.studies.protocol, 0, self._whole(point))

    def _post_hoc(self, name: str) -> Callable[[dict[str, Any], int], Run]:
        """On the vanilla GNN of the trial that was best."""
        below, seed = self._whole(self.vanilla.config), self.vanilla.seed
        return lambda point, _: plan(self.dataset, name, seed, self.studies.protocol, 0, point, [below])

    def _ensemble(self, point: dict[str, Any], seed: int) -> Run:
        """The best M of the pool, each with the seed that made it one of them."""
        members = self.pool[: point["size"]]
        below = [self._whole(one.config) for one in members]
        run = plan(self.dataset, ENSEMBLES[0], seed, self.studies.protocol, 0, point, below)
        seeded = ({**config, "seed": one.seed} for config, one in zip(run.vanillas, members, strict=True))
        return replace(run, vanillas=tuple(seeded))


class Ended(NamedTuple):
    """What to tell the person who waits: a trial has ended."""

    search: str
    found: Mapping[str, Any]
    done: int
    total: int


def search_all(
    parts: Sequence[Tuning] | Sequence[Reproduction],
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


def paper_results() -> list[dict[str, Any]]:
    """The paper's tables of results: table, method, score, data set, mean and standard deviation in per cent."""
    rows = csv.DictReader((files(__package__) / "paper_results.csv").read_text(encoding="utf-8").splitlines())
    return [{**row, "mean": float(row["mean"]), "std": float(row["std"]) if row["std"] else None} for row in rows]


def search_spaces(scale: Scale) -> list[list[str]]:
    """The search spaces as a table."""
    lines = [["method", "hyper-parameters"]]
    for name in SPACES:
        words = (f"{key} {_words(one)}" for key, one in space_of(name, sys.maxsize, scale).items())
        lines.append([name, ", ".join(words)])
    return lines


def _words(one: Uniform | tuple[Any, ...]) -> str:
    if isinstance(one, Uniform):
        return str(one)
    texts = [f"{value:g}" if isinstance(value, float) else str(value) for value in one]
    return "{" + (", ".join(texts) if len(texts) <= 10 else f"{texts[0]}, {texts[1]} .. {texts[-1]}") + "}"
