"""The paper's experiment as its appendix "Model selection" describes it.

The paper's 30 trials for the vanilla GNN are the first of the 100 that make its pool ("an extended Bayesian search").
Where the paper is silent: ensembles have the size with which the classical one has the best validation F1, and a run of
an ensemble trains the best M points of the pool with seeds of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..graphs import Task
from ..methods import METHODS
from ..methods.parameters import Space
from .best import Best
from .plan import Run, plan
from .search import Search, Studies, size, space_of

ENSEMBLES = ("classical-ensemble", "credal-ensemble")
TRAINED = ("vanilla", "credal-lj", "credal-final")
POST_HOC = ("energy", "odin", "mahalanobis", "knn", "gnnsafe", "knn-lj")
UNTUNED = ("credal-coverage", "feature-sum", "degree")  # not in the paper
EXPERIMENT = tuple(name for name in METHODS if name in {*TRAINED, *ENSEMBLES, *POST_HOC, *UNTUNED})


@dataclass(frozen=True)
class Budget:
    """Budget of the experiment.

    Attributes:
        trials: Trials for each model.
        pool: Vanilla GNNs in the pool.
        largest: Members of the largest ensemble.
        runs: Runs of each method, with seeds of their own.
        settings: Fixed hyper-parameters of every network.
    """

    trials: int = 30
    pool: int = 100
    largest: int = 15
    runs: int = 5
    settings: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def quick(cls) -> Budget:
        """A budget of minutes, whose figures mean nothing."""
        return cls(trials=4, pool=6, largest=4, runs=2, settings={"epochs": 20})


class Variant:
    """Differences from the paper's text; none here."""

    methods: Sequence[str] = EXPERIMENT
    one_seed = False  # run k is made with the k-th best point of the search, and all training has one seed

    def path(self, method: str) -> str:
        """Import path of a method."""
        return method

    def fixed(self, method: str) -> dict[str, Any]:
        """Hyper-parameters of a method that no search touches."""
        return {}

    def below(self) -> dict[str, Any]:
        """Hyper-parameters of a vanilla GNN below another method."""
        return self.fixed("vanilla")

    def identity(self, method: str, below: Sequence[Mapping[str, Any]]) -> list[Any]:
        """Dependencies of the trials of a search besides task, points and budget."""
        return []


@dataclass
class Reproduction:
    """The paper's experiment on one data set: searches that train, searches on what they chose, then the runs."""

    dataset: str
    task: Task
    studies: Studies
    budget: Budget
    methods: Sequence[str] = ()
    variant: Variant = field(default_factory=Variant)

    def __post_init__(self) -> None:
        self.methods = self.methods or self.variant.methods

    @property
    def total(self) -> int:
        """Number of trials."""
        above = [self._space(name) for name in POST_HOC if name in self.methods]
        networks = sum(self.budget.pool if name == "vanilla" else self.budget.trials for name in self._trained)
        sizes = self.budget.largest - 1 if {*ENSEMBLES} & {*self.methods} else 0
        return networks + sizes + sum(int(min(self.budget.trials, size(space))) for space in above)

    @property
    def _trained(self) -> list[str]:
        """The networks to search; all but credal models and baselines need vanilla GNNs."""
        others = [name for name in self.methods if METHODS[name].components is not None]
        return [name for name in TRAINED if name in self.methods or (name == "vanilla" and others)]

    def _space(self, name: str) -> Space:
        return space_of(name, len(self.task.split.train), self.studies.scale)

    def stage(self, number: int) -> list[Search]:
        """Return the searches that train networks (0), or those for post-hoc methods and ensembles (1)."""
        if number == 0:
            self.pool: list[Best] = []
            self.above: dict[str, Search] = {}
            self.networks = {name: self._search(name, self._space(name), self._maker(name)) for name in self._trained}
            return list(self.networks.values())
        if "vanilla" not in self.networks:
            return []
        self.vanilla = self.networks["vanilla"].top(1, among=self.budget.trials)[0]
        self.pool = self.networks["vanilla"].top(self.budget.largest)
        post_hoc = [name for name in POST_HOC if name in self.methods]
        self.above = {name: self._search(name, self._space(name), self._maker(name)) for name in post_hoc}
        if {*ENSEMBLES} & {*self.methods}:
            sizes = {"size": tuple(range(2, len(self.pool) + 1))}
            self.above[ENSEMBLES[0]] = self._search(ENSEMBLES[0], sizes, self._ensemble)
        return list(self.above.values())

    def _search(self, name: str, space: Space, make: Callable[[dict[str, Any], int], Run]) -> Search:
        members = [] if name in TRAINED else self.pool
        below = [self._below(member.config) for member in members]
        base = [dict(self.budget.settings), [member.seed for member in members], *self.variant.identity(name, below)]
        trials = self.budget.pool if name == "vanilla" else self.budget.trials
        return self.studies.search(self.task, name, space, trials, make, base)

    def _maker(self, name: str) -> Callable[[dict[str, Any], int], Run]:
        """Function that makes the run of a point and a seed: of a network, or on the vanilla GNN of the best trial."""
        if name in TRAINED:
            return lambda point, seed: self._plan(name, seed, {**point, **self.budget.settings})
        below, seed = self._below(self.vanilla.config), self.vanilla.seed
        return lambda point, _: self._plan(name, seed, point, [below])

    def _ensemble(self, point: dict[str, Any], seed: int) -> Run:
        """The best M of the pool, each with the seed of its trial."""
        members = self.pool[: point["size"]]
        run = self._plan(ENSEMBLES[0], seed, point, [self._below(member.config) for member in members])
        seeded = ({**config, "seed": member.seed} for config, member in zip(run.components, members, strict=True))
        return replace(run, components=tuple(seeded))

    def _below(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """A vanilla GNN below another method."""
        return {**config, **self.budget.settings, **self.variant.below()}

    def _plan(self, name: str, seed: int, config: Mapping[str, Any], below: Sequence[Mapping[str, Any]] = ()) -> Run:
        settings = {**config, **self.variant.fixed(name)}
        return plan(self.dataset, self.variant.path(name), seed, self.studies.protocol, 0, settings, below or [{}])

    def results(self) -> dict[str, dict[str, Any]]:
        """Return the best points, for people."""
        return {name: {"config": best.config, "value": best.value} for name, best in self.best().items()}

    def best(self) -> dict[str, Best]:
        """Return the best point of each method; ensembles of both kinds have the same members."""
        best = {name: search.top(1)[0] for name, search in (self.networks | self.above).items()}
        if "vanilla" in best and self.pool:
            best["vanilla"] = self.vanilla
        if ENSEMBLES[0] in best:
            best[ENSEMBLES[1]] = best[ENSEMBLES[0]]
        return best

    def runs(self) -> list[Run]:
        """Return the reported runs, with seeds that no search has used."""
        best = self.best()
        return [self._run(best, name, number) for name in self.methods for number in range(self.budget.runs)]

    def _run(self, best: Mapping[str, Best], name: str, number: int) -> Run:
        """Run `number`, which is also its seed, of a method."""
        config: Mapping[str, Any] = self._reported(best, name, number).config if name in best else {}
        below: list[Mapping[str, Any]] = []
        if name in TRAINED:
            config = {**config, **self.budget.settings}
        elif name in ENSEMBLES:
            below = [self._below(member.config) for member in self.pool[: config["size"]]]
        elif METHODS[name].components is not None:
            below = [self._below(self._reported(best, "vanilla", number).config)]
        return self._plan(name, number, config, below)

    def _reported(self, best: Mapping[str, Best], name: str, number: int) -> Best:
        """The point of a reported run: the best one or, with one seed, the k-th best of trained networks and sizes."""
        if not self.variant.one_seed:
            return best[name]
        search = {**self.networks, **self.above}[ENSEMBLES[0] if name in ENSEMBLES else name]
        among = self.budget.trials if name == "vanilla" else None
        ranked = search.top(self.budget.runs if name in (*TRAINED, *ENSEMBLES) else 1, among)
        return ranked[min(number, len(ranked) - 1)]
