"""Runs of an experiment as plain values, and the tasks that they are fitted on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..graphs import GraphError, OwnTaskError, Task, dataset_name, load_task
from ..methods import Method, MethodError, find_method, method_path
from ..methods.parameters import IF_SET
from ..methods.registry import complete
from ..methods.training_data import EvalProtocol
from ..records.schema import SETTINGS


@dataclass(frozen=True)
class Run:
    """A method, a task, a seed and every hyper-parameter: the same in every process and on every machine.

    Attributes:
        dataset: Name of the task.
        method: Name of the method.
        seed: Seed of the run.
        protocol: Evaluation protocol.
        split_seed: Seed of the task's split.
        config: The method's hyper-parameters without its seed.
        components: Hyper-parameters, with seeds, of the models below the method, or of the method itself if others can
            use it: what is shared between runs.
        inductive: Whether the task is inductive.
        path: Import path of the method, where its name is not enough.
    """

    dataset: str
    method: str
    seed: int
    protocol: EvalProtocol
    split_seed: int = 0
    config: dict[str, Any] = field(default_factory=dict)
    components: tuple[dict[str, Any], ...] = ()
    inductive: bool = False
    path: str | None = None

    @property
    def kind(self) -> type[Method]:
        """The method's class."""
        return find_method(self.path or self.method)

    @property
    def key(self) -> tuple[str, str, int]:
        """Data set, method and seed: what a folder finds the run by."""
        return self.dataset, self.method, self.seed

    @property
    def setting(self) -> str:
        return SETTINGS[self.inductive]

    @property
    def label(self) -> str:
        return f"{self.dataset} {self.method} seed {self.seed}"

    @property
    def described(self) -> dict[str, Any]:
        """The configuration as recorded; components that differ in seeds only are written once."""
        declared, config = self.kind.components, _recorded(self.kind, self.config)
        if declared is None:
            return config
        components = [_recorded(declared.kind, each) for each in self.components]
        same = all(each == components[0] for each in components)
        return {**config, **({declared.kind.name: components[0]} if same else {declared.parameter: components})}


def plan(
    dataset: str,
    method: str,
    seed: int,
    protocol: EvalProtocol = "sealed",
    split_seed: int = 0,
    settings: Mapping[str, Any] | None = None,
    components: Sequence[Mapping[str, Any]] = ({},),
    inductive: bool = False,
) -> Run:
    """Return a run with every hyper-parameter spelled out, checked; what is not set follows the protocol's defaults.

    `components` are the settings of the models below the method: one serves all members of an ensemble, several are a
    member each.
    """
    check_setting(SETTINGS[inductive], protocol)
    kind = find_method(method)
    config = complete(kind, settings or {}, protocol)
    shared: tuple[dict[str, Any], ...] = ()
    declared = kind.components
    if declared is not None:
        models = [complete(declared.kind, each, protocol) for each in components]
        if len(models) > 1 and declared.size:
            config[declared.size] = len(models)
        seeds = declared.seeds(config, seed)
        models = models if len(models) > 1 else models * len(seeds)
        shared = tuple({**model, "seed": number} for model, number in zip(models, seeds, strict=True))
    elif kind.is_shared:
        shared = ({**config, "seed": seed},)
    path = method_path(kind)
    return Run(
        dataset, kind.name, seed, protocol, split_seed, config, shared, inductive,
        None if path == kind.name else path,
    )  # fmt: skip


def check_setting(setting: str, protocol: str) -> None:
    """Refuse an inductive experiment under the paper's protocol."""
    if setting not in SETTINGS:
        raise MethodError(f"unknown `setting` {setting!r}: choose 'transductive' or 'inductive'")
    if setting == "inductive" and protocol == "paper":
        raise MethodError("setting='inductive' needs protocol='sealed': the paper's protocol is transductive")


def _recorded(kind: type[Method], config: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out the seed, and parameters that are recorded only where set: older records stay comparable."""
    if_set = {each.name for each in fields(kind) if each.metadata.get(IF_SET)}
    return {name: value for name, value in config.items() if name != "seed" and not (name in if_set and value is None)}


@dataclass(frozen=True)
class Source:
    """Source of tasks; each is read once per process.

    Attributes:
        mirror: Folder with raw files, searched first.
        data_root: Cache folder of graphs.
        ood_classes: Classes to leave out of data sets that define no task of their own.
        specs: What `load_task` finds a data set by, by name, if it is not the name.
        loaded: Tasks in memory, by name and split.
    """

    mirror: Path | None = None
    data_root: Path | None = None
    ood_classes: tuple[int | str, ...] | None = None
    specs: Mapping[str, str] = field(default_factory=dict)
    loaded: Mapping[tuple[str, int], Task] = field(default_factory=dict)

    def task(self, run: Run) -> Task:
        """The task of a run."""
        return self.load(run.dataset, run.split_seed, run.inductive)

    def load(self, dataset: str, split_seed: int, inductive: bool) -> Task:
        """Return a task by the name of its data set."""
        if (dataset, split_seed) in self.loaded:
            return self.loaded[dataset, split_seed]
        spec = self.specs.get(dataset, dataset)
        return _load(spec, split_seed, self.ood_classes, inductive, self.mirror, self.data_root)


@lru_cache(maxsize=4)
def _load(
    spec: str,
    split_seed: int,
    ood_classes: tuple[int | str, ...] | None,
    inductive: bool,
    mirror: Path | None,
    data_root: Path | None,
) -> Task:
    try:
        return load_task(spec, split_seed, ood_classes, inductive=inductive, mirror=mirror, data_root=data_root)
    except OwnTaskError:
        if ood_classes is None:
            raise
        return load_task(spec, split_seed, inductive=inductive, mirror=mirror, data_root=data_root)


def load_tasks(
    source: Source, specs: Sequence[str | Task], splits: Sequence[int], inductive: bool
) -> tuple[Source, dict[tuple[str, int], Task]]:
    """Load every task before any work, by name and split, and return the source that knows them.

    Splits of a data set share its graph.
    """
    named: dict[str, str | Task] = {}
    for each in specs:
        name = each.name if isinstance(each, Task) else dataset_name(each)
        if named.setdefault(name, each) is not each and named[name] != each:
            raise GraphError(f"two data sets are called {name!r}: rename one of them")
    source = replace(
        source,
        specs={name: each for name, each in named.items() if isinstance(each, str) and each != name},
        loaded={(name, split): each for name, each in named.items() if isinstance(each, Task) for split in splits},
    )
    tasks: dict[tuple[str, int], Task] = {}
    for name in named:
        for split in splits:
            task = source.load(name, split, inductive)
            same = (other.graph for other in tasks.values() if other.graph.fingerprint == task.graph.fingerprint)
            graph = next(same, task.graph)
            tasks[name, split] = task if graph is task.graph else replace(task, graph=graph)
    return source, tasks
