"""Hyper-parameter search for several methods: those that others build on first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..graphs import Task
from ..methods import Method, MethodError, find_method, method_path
from ..methods.parameters import Space
from ..methods.registry import Choice, MethodLike, choose
from ..methods.training_data import EvalProtocol
from .best import Best, earlier_config
from .plan import Run, check_setting, plan
from .runner import EngineName, Place, Setting, TaskLike, Work, as_texts, listed
from .search import TRIAL_SEED, Scale, Search, Studies, search_all, size, space_of


@dataclass(frozen=True, eq=False)
class TuningResults:
    """Results of a hyper-parameter search.

    Attributes:
        best: Best point by data set and method, with its value on the validation nodes and the seed of its trial.
        folder: Folder of the trials; ``benchmark(..., tuned=folder)`` uses the results.
        finished: Whether all trials are done; if not, ``best`` is empty and the same call goes on.
    """

    best: dict[str, dict[str, Best]]
    folder: Path
    finished: bool


def tune(
    tasks: TaskLike | Sequence[TaskLike],
    methods: MethodLike | Sequence[MethodLike],
    *,
    out: Place,
    trials: int = 30,
    protocol: EvalProtocol = "sealed",
    setting: Setting = "transductive",
    scale: Scale = "log",
    ood_classes: Sequence[int | str] | None = None,
    split_seed: int = 0,
    settings: Mapping[str, Any] | None = None,
    storage: str | None = None,
    jobs: int | None = None,
    engine: EngineName = "local",
    address: str | None = None,
    time_limit: float | None = None,
    mirror: Place | None = None,
    data_root: Place | None = None,
    progress: bool | None = None,
) -> TuningResults:
    """Search hyper-parameters with Optuna's TPE on the validation nodes.

    Spaces are the paper's, for baselines those of their original papers. Several processes and machines may work on the
    same folder; the same call goes on where it was stopped. A benchmark uses the results with ``tuned``.

    Args:
        tasks: Tasks: names, files, folders, import paths, each with changes such as ``cora+label_noise=0.2``.
        methods: Names, import paths, classes or templates; ``"all"``: the built-in ones that can be tuned.
        out: Folder for trials and results.
        trials: Trials per method.
        protocol: ``"sealed"``: only ID validation nodes decide anything; ``"paper"``: as in the paper.
        setting: ``"inductive"``: training reads the training nodes alone.
        scale: ``"uniform"``: draw learning rate and weight decay evenly, as the paper does; ``"log"``: evenly in their
            logarithms.
        ood_classes: Classes to leave out, by number or name, of data sets that define no task of their own.
        split_seed: Public split, or seed of a random one.
        settings: Hyper-parameters that stay fixed, as in ``lr=0.01``, or ``credal-lj.delta=0.5`` for one method.
        storage: URL of an Optuna database; None: a journal file in the folder.
        jobs: Processes on this machine; None: one per core.
        engine: ``"local"`` processes, or an existing ``"ray"`` cluster.
        address: Address of the Ray cluster; None: the one that Ray finds.
        time_limit: Seconds (in the shell also 30m or 1h30m) after which nothing is begun or waited for.
        mirror: Folder with raw files in PyG's layout, searched first.
        data_root: Cache folder of graphs.
        progress: False hides progress on stderr.

    Example:
        >>> cg.tune("chameleon", ["vanilla", "credal-lj"], out="runs/tuned", trials=30)
        >>> cg.benchmark("chameleon", ["vanilla", "credal-lj"], tuned="runs/tuned")
    """
    work = Work(jobs, engine, address, time_limit, mirror, data_root, progress)
    check_setting(setting, protocol)
    choices = choose(listed(methods), settings or {}, with_baselines=False)
    if "all" in listed(methods):
        choices = [choice for choice in choices if choice.kind.search_space]
    source, loaded = work.load(tasks, [split_seed], setting == "inductive", ood_classes)
    identity = {
        "kind": "tune", "protocol": protocol, "setting": setting, "scale": scale, "split": split_seed,
        "set": as_texts(settings),
    }  # fmt: skip
    with work.session(out, identity, source) as session:
        studies = Studies(session.folder.path, protocol, scale, storage)
        parts = [Tuning(name, task, studies, choices, trials, split_seed) for (name, _), task in loaded.items()]
        empty = [path for part in parts for path, space in part.spaces.items() if not space]
        if empty:
            raise MethodError(f"`settings` leave nothing of {empty[0]} to tune")
        finished = search_all(parts, studies, session)
    best = {part.dataset: part.best() for part in parts} if finished else {}
    return TuningResults(best, session.folder.path, finished)


@dataclass
class Tuning:
    """Searches for several methods on one data set; methods that others build on come first."""

    dataset: str
    task: Task
    studies: Studies
    choices: Sequence[Choice]
    trials: int
    split_seed: int = 0
    searches: dict[str, Search] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.spaces = {choice.path: self._space(choice) for choice in self.choices}

    def _space(self, choice: Choice) -> Space:
        space = space_of(choice.path, len(self.task.split.train), self.studies.scale)
        return {name: values for name, values in space.items() if name not in choice.config}

    @property
    def total(self) -> int:
        """Number of trials."""
        return sum(int(min(self.trials, size(space))) for space in self.spaces.values())

    def stage(self, number: int) -> list[Search]:
        """Return the searches of methods that others build on (0), or of the others (1)."""
        choices = [choice for choice in self.choices if choice.kind.is_shared == (number == 0)]
        for choice in choices:
            base = [[choice.config, choice.components], self._components(choice)]
            space, make = self.spaces[choice.path], self._plan(choice)
            self.searches[choice.path] = self.studies.search(self.task, choice.path, space, self.trials, make, base)
        return [self.searches[choice.path] for choice in choices]

    def best(self) -> dict[str, Best]:
        """Return the best point of each method, by name."""
        return {find_method(path).name: search.top(1)[0] for path, search in self.searches.items()}

    def results(self) -> dict[str, dict[str, Any]]:
        """Return everything set or chosen for each method and its components, for `benchmark(tuned=)`."""
        best = self.best()
        return {
            choice.kind.name: {
                "config": {**best[choice.kind.name].config, **choice.config},
                "components": self._components(choice),
                "value": best[choice.kind.name].value,
            }
            for choice in sorted(self.choices, key=lambda choice: list(self.searches).index(choice.path))
        }

    def _components(self, choice: Choice) -> dict[str, Any]:
        """Hyper-parameters of a method's components: those chosen by a search, and those set."""
        declared = choice.kind.components
        return {} if declared is None else {**self._chosen(declared.kind), **choice.components}

    def _chosen(self, kind: type[Method]) -> dict[str, Any]:
        """Hyper-parameters chosen for a method by this call, or by an earlier one in the same folder."""
        path = method_path(kind)
        if path not in self.searches:
            return earlier_config(self.studies.folder, self.task, kind.name)
        choice = next(choice for choice in self.choices if choice.path == path)
        return {**self.searches[path].top(1)[0].config, **choice.config}

    def _plan(self, choice: Choice) -> Callable[[dict[str, Any], int], Run]:
        shared = choice.kind.components is not None  # then all trials use the same models
        components = [self._components(choice)]

        def make(point: Mapping[str, Any], seed: int) -> Run:
            seed = TRIAL_SEED if shared else seed
            run = plan(
                self.dataset, choice.path, seed, self.studies.protocol, self.split_seed, {**point, **choice.config},
                components, self.task.inductive,
            )  # fmt: skip
            if not shared:
                return run
            members = ({**config, "seed": TRIAL_SEED + k} for k, config in enumerate(run.components))
            return replace(run, components=tuple(members))

        return make
