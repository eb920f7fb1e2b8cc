"""The paper's experiment as its appendix "Model selection" describes it.

The paper's 30 trials for the vanilla GNN are the first of the 100 that make its pool ("an extended Bayesian search").
Where it is silent: the size of the ensembles is that with which the classical one has the best validation F1, and a
run of an ensemble trains the best M points of the pool with seeds of its own.
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
from .search import Search, Studies
from .space import size, space_of

ENSEMBLES = ("classical-ensemble", "credal-ensemble")
TRAINED = ("vanilla", "credal-lj", "credal-final")
POST_HOC = ("energy", "odin", "mahalanobis", "knn", "gnnsafe", "knn-lj")
BESIDE = ("credal-coverage", "feature-sum", "degree")  # the paper has none of these; they are not tuned
EXPERIMENT = tuple(name for name in METHODS if name in {*TRAINED, *ENSEMBLES, *POST_HOC, *BESIDE})


@dataclass(frozen=True)
class Budget:
    """How much is tried.

    Args:
        trials: Trials for each model.
        pool: Vanilla GNNs in the pool.
        largest: Members of the largest ensemble.
        runs: Runs of each method, with seeds of their own.
        settings: Hyper-parameters of every network that stay as they are.
    """

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
    """The paper's experiment on one data set: searches that train, searches on what they chose, then the runs.

    Args:
        dataset: The name of the data set.
        task: Its task.
        studies: Where trials are kept.
        budget: How much is tried.
        methods: Which of the methods; vanilla GNNs are searched where others stand on them.
    """

    dataset: str
    task: Task
    studies: Studies
    budget: Budget
    methods: Sequence[str] = EXPERIMENT

    @property
    def total(self) -> int:
        """How many trials there will be."""
        above = [self._space(name) for name in POST_HOC if name in self.methods]
        networks = sum(self.budget.pool if name == "vanilla" else self.budget.trials for name in self._trained)
        sizes = self.budget.largest - 1 if self._with_ensembles else 0
        return networks + sizes + sum(int(min(self.budget.trials, size(space))) for space in above)

    def stage(self, number: int) -> list[Search]:
        """Stage 0 trains networks, the vanilla ones until the pool is full; stage 1 tunes what stands on them.

        Args:
            number: Of the stage.
        """
        return self._networks() if number == 0 else self._above()

    @property
    def _trained(self) -> list[str]:
        """The networks to search; all but credal ones and baselines stand on vanilla GNNs."""
        others = [name for name in self.methods if METHODS[name].components is not None]
        return [name for name in TRAINED if name in self.methods or (name == "vanilla" and others)]

    @property
    def _with_ensembles(self) -> bool:
        return any(name in self.methods for name in ENSEMBLES)

    def _networks(self) -> list[Search]:
        self.networks = {name: self._search(name, self._space(name), self._network(name)) for name in self._trained}
        return list(self.networks.values())

    def _above(self) -> list[Search]:
        self.above: dict[str, Search] = {}
        if "vanilla" not in self.networks:
            return []
        self.vanilla = self.networks["vanilla"].top(1, among=self.budget.trials)[0]
        self.pool = self.networks["vanilla"].top(self.budget.largest)
        names = [name for name in POST_HOC if name in self.methods]
        self.above = {name: self._search(name, self._space(name), self._post_hoc(name)) for name in names}
        if self._with_ensembles:
            sizes = {"size": tuple(range(2, len(self.pool) + 1))}
            self.above[ENSEMBLES[0]] = self._search(ENSEMBLES[0], sizes, self._ensemble)
        return list(self.above.values())

    def best(self) -> dict[str, Best]:
        """The best point of each method; ensembles of both kinds have the same members."""
        best = {name: search.top(1)[0] for name, search in (self.networks | self.above).items()}
        if "vanilla" in best:
            best["vanilla"] = self.vanilla
        if ENSEMBLES[0] in best:
            best[ENSEMBLES[1]] = best[ENSEMBLES[0]]
        return best

    def runs(self) -> list[Run]:
        """The runs whose figures are reported, with seeds that no search has seen; what is not tuned beside them."""
        best = self.best()
        return [self._run(best, name, number) for name in self.methods for number in range(self.budget.runs)]

    def _run(self, best: Mapping[str, Best], name: str, number: int) -> Run:
        """A run of a method; its number is its seed."""
        config = self._reported(best, name, number).config if name in best else {}
        if name in TRAINED:
            config, below = self._whole(config), []
        elif name in ENSEMBLES:
            below = [self._below(member.config) for member in self.pool[: config["size"]]]
        elif METHODS[name].components is not None:
            below = [self._below(self._reported(best, "vanilla", number).config)]
        else:
            below = []
        return self._plan(name, number, config, below)

    def _reported(self, best: Mapping[str, Best], name: str, number: int) -> Best:
        """The point that a run is made with."""
        return best[name]

    def _space(self, name: str) -> Space:
        return space_of(name, len(self.task.split.train), self.studies.scale)

    def _whole(self, config: Mapping[str, Any]) -> dict[str, Any]:
        return {**config, **self.budget.settings}

    def _below(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """A vanilla GNN below another method."""
        return {**self._whole(config), **self._fixed("vanilla")}

    def _path(self, name: str) -> str:
        """What ``find_method`` finds a method by."""
        return name

    def _fixed(self, name: str) -> dict[str, Any]:
        """Hyper-parameters of a method that no search touches."""
        return {}

    def _plan(self, name: str, seed: int, config: Mapping[str, Any], below: Sequence[Mapping[str, Any]]) -> Run:
        settings = {**config, **self._fixed(name)}
        return plan(self.dataset, self._path(name), seed, self.studies.protocol, 0, settings, below or [{}])

    def results(self) -> dict[str, dict[str, Any]]:
        """What was chosen, for people; its runs are made by ``runs``."""
        return {name: {"config": best.config, "value": best.value} for name, best in self.best().items()}

    def _search(self, name: str, space: Space, make: Callable[[dict[str, Any], int], Run]) -> Search:
        trials = self.budget.pool if name == "vanilla" else self.budget.trials
        return self.studies.search(self.task, name, space, trials, make, self._base(name))

    def _base(self, name: str) -> list[Any]:
        """What the trials of a search depend on, besides the task and their points."""
        return [dict(self.budget.settings), [] if name in TRAINED else [member.seed for member in self.pool]]

    def _network(self, name: str) -> Callable[[dict[str, Any], int], Run]:
        return lambda point, seed: self._plan(name, seed, self._whole(point), [])

    def _post_hoc(self, name: str) -> Callable[[dict[str, Any], int], Run]:
        """On the vanilla GNN of the trial that was best."""
        below, seed = self._below(self.vanilla.config), self.vanilla.seed
        return lambda point, _: self._plan(name, seed, point, [below])

    def _ensemble(self, point: dict[str, Any], seed: int) -> Run:
        """The best M of the pool, each with the seed of its trial."""
        members = self.pool[: point["size"]]
        run = self._plan(ENSEMBLES[0], seed, point, [self._below(member.config) for member in members])
        seeded = ({**config, "seed": member.seed} for config, member in zip(run.components, members, strict=True))
        return replace(run, components=tuple(seeded))
