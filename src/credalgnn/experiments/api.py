"""The benchmark and tuning from Python. The shell commands are a thin layer over these functions."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

from ..graphs import Task
from ..methods import MethodError
from ..methods.training_data import EvalProtocol
from ..records.folder import Folder
from ..report.results import Results
from ..report.summary import read_runs
from .best import Best, tuned_alike
from .choices import Choice, MethodLike, choose
from .plan import Run, plan
from .progress import Bar
from .published import PUBLISHED, AsPublished, chosen, with_rows_of_sum_one
from .reproduction import Budget, Reproduction
from .runner import run_all
from .search import Studies
from .searches import search_all
from .space import Scale
from .tasks import load_tasks
from .tuning import Tuning
from .work import EngineName, Place, as_texts, check_engine, deadline_of, listed, make_engine, source_of

TaskLike: TypeAlias = str | os.PathLike[str] | Task
Setting: TypeAlias = Literal["transductive", "inductive"]


@dataclass(frozen=True, eq=False)
class TuningResults:
    """What a search has chosen.

    Attributes:
        best: By data set and method the best point, its value on the validation nodes, and the seed it was found with.
        folder: Where the trials are; ``benchmark(.., tuned=folder)`` uses what was chosen.
        finished: Whether all trials are done: if not, the same call goes on, and ``best`` is empty.
    """

    best: dict[str, dict[str, Best]]
    folder: Path
    finished: bool


def benchmark(
    tasks: TaskLike | Sequence[TaskLike],
    methods: MethodLike | Sequence[MethodLike] = "all",
    *,
    seeds: int = 10,
    out: Place | None = None,
    protocol: EvalProtocol = "sealed",
    setting: Setting = "transductive",
    ood_classes: Sequence[int | str] | None = None,
    split_seed: int = 0,
    vary_split: bool = False,
    settings: Mapping[str, Any] | None = None,
    tuned: Place | None = None,
    predictions: Literal["none", "first", "all"] = "first",
    jobs: int | None = None,
    engine: EngineName = "local",
    address: str | None = None,
    time_limit: float | None = None,
    mirror: Place | None = None,
    data_root: Place | None = None,
    progress: bool = True,
) -> Results:
    """Fit methods on leave-out-class tasks and judge them on the test nodes, with several seeds.

    Baselines that need no model are added. What is finished is kept in ``out``: the same call goes on where it was
    stopped, and runs that failed are tried again.

    Args:
        tasks: Tasks, or whatever ``load_task`` finds one by: names, files, folders, import paths.
        methods: Names, import paths, classes, or templates whose hyper-parameters are used; ``"all"`` for the built-in.
        seeds: Seeds 0..n-1.
        out: The folder for records, tables and the page; None: they are kept nowhere.
        protocol: ``"sealed"``: nothing but ID validation nodes decides anything; ``"paper"``: what the paper does.
        setting: ``"inductive"``: training sees the training nodes alone. Tasks that are given have their own.
        ood_classes: The classes to leave out, by number or name, of data sets that make no task of their own.
        split_seed: Public split, or seed of a random one.
        vary_split: Seed k takes split k, too.
        settings: Hyper-parameters: ``{"lr": 0.01}``, or ``{"credal-lj.delta": 0.5}`` for one method.
        tuned: A folder of ``tune`` whose choices are used.
        predictions: Keep what is predicted for each node, of no seed, the first, or all.
        jobs: Processes on this machine; None: one a core.
        engine: ``"local"`` processes, or an existing ``"ray"`` cluster.
        address: Of the Ray cluster; None: the one that Ray finds.
        time_limit: Seconds after which nothing is begun or waited for.
        mirror: A folder with raw files, looked at first.
        data_root: Where graphs are kept once read.
        progress: Show how far it is, on stderr.
    """
    check_engine(engine, address, jobs)
    if seeds < 1:
        raise ValueError(f"seeds must be at least 1, not {seeds}")
    if predictions not in ("none", "first", "all"):
        raise ValueError(f"unknown predictions {predictions!r}: choose 'none', 'first' or 'all'")
    if vary_split and split_seed:
        raise ValueError("vary_split gives every seed a split of its own: leave out split_seed")
    if vary_split and tuned is not None:
        raise ValueError("tuned is for the split that was tuned on: leave out vary_split")
    deadline = deadline_of(time_limit)
    chosen = choose(listed(methods), settings or {}, with_baselines=True)
    splits = list(range(seeds)) if vary_split else [split_seed]
    source, loaded = load_tasks(
        source_of(mirror, data_root, ood_classes), listed(tasks), splits, _inductive(setting, protocol)
    )
    runs = _runs(chosen, loaded, seeds, protocol, split_seed, vary_split, tuned)
    # Seeds whose predictions are kept; none where nothing is.
    kept = 0 if out is None else {"none": 0, "first": 1, "all": seeds}[predictions]
    identity = {
        "kind": "bench", "protocol": protocol, "setting": setting, "split": "seed" if vary_split else split_seed,
        "set": as_texts(settings), "tuned": tuned is not None,
    }  # fmt: skip
    with ExitStack() as stack:
        place = Path(out) if out is not None else Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder = Folder.open(place, identity)
        tidy = stack.enter_context(folder.occupied())
        worker = stack.enter_context(make_engine(engine, address, jobs, source, folder.models))
        with Bar(len(runs), silent=not progress) as bar:
            outcome = run_all(folder, runs, loaded, worker, lambda run: run.seed < kept, deadline, bar.tell)
        places = (place,) if out is not None else ()
        records = read_runs([place]) if outcome.done else []
        results = Results(records, places, len(runs), outcome.failed, outcome.left)
        if records and out is not None:
            results.write(place, f"credalgnn bench: {', '.join(dict.fromkeys(name for name, _ in loaded))}")
        if not outcome.left:
            tidy()  # last: whoever else works here does not tidy away what is being written
    return results


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
    progress: bool = True,
) -> TuningResults:
    """Search hyper-parameters with Optuna's TPE, by what the protocol allows to look at.

    Several processes and machines may work on the same ``out``; what is finished is kept, and the same call goes on.

    Args:
        tasks: Tasks, or whatever ``load_task`` finds one by.
        methods: Names, import paths, classes or templates; ``"all"`` for the built-in ones that can be tuned.
        out: The folder for trials and choices.
        trials: Trials for each method.
        protocol: What may be looked at.
        setting: ``"inductive"``: training sees the training nodes alone.
        scale: Draw what ranges over orders of magnitude evenly (``"uniform"``, the paper's way) or in its logarithm.
        ood_classes: The classes to leave out of data sets that make no task of their own.
        split_seed: Public split, or seed of a random one.
        settings: Hyper-parameters that stay as they are; see ``benchmark``.
        storage: An Optuna database instead of a journal in ``out``.
        jobs: Processes on this machine; None: one a core.
        engine: ``"local"`` processes, or an existing ``"ray"`` cluster.
        address: Of the Ray cluster.
        time_limit: Seconds after which nothing is begun or waited for.
        mirror: A folder with raw files, looked at first.
        data_root: Where graphs are kept once read.
        progress: Show how far it is, on stderr.
    """
    check_engine(engine, address, jobs)
    deadline = deadline_of(time_limit)
    chosen = choose(listed(methods), settings or {}, with_baselines=False)
    if "all" in listed(methods):
        chosen = [each for each in chosen if each.kind.search_space]
    source, loaded = load_tasks(
        source_of(mirror, data_root, ood_classes), listed(tasks), [split_seed], _inductive(setting, protocol)
    )
    identity = {
        "kind": "tune", "protocol": protocol, "setting": setting, "scale": scale, "split": split_seed,
        "set": as_texts(settings),
    }  # fmt: skip
    folder = Folder.open(Path(out), identity)
    with folder.occupied() as tidy:
        studies = Studies(folder.path, protocol, scale, storage)
        own = {each.path: (each.config, each.components) for each in chosen}
        parts = [
            Tuning(dataset, task, studies, list(own), trials, split_seed, own) for (dataset, _), task in loaded.items()
        ]
        empty = [name for part in parts for name, space in part.spaces.items() if not space]
        if empty:
            raise MethodError(f"the settings leave nothing of {empty[0]} to tune")
        total = sum(part.total for part in parts)
        with (
            make_engine(engine, address, jobs, source, folder.models) as worker,
            Bar(total, silent=not progress) as bar,
        ):
            finished = search_all(parts, studies, worker, deadline, bar.trial, bar.note)
        if finished:
            tidy()
    best = {part.dataset: part.best() for part in parts} if finished else {}
    return TuningResults(best, folder.path, finished)


def reproduce(
    tasks: str | Sequence[str],
    *,
    out: Place,
    protocol: EvalProtocol = "paper",
    scale: Scale = "uniform",
    quick: bool = False,
    as_published: str | Sequence[str] | None = None,
    jobs: int | None = None,
    engine: EngineName = "local",
    address: str | None = None,
    time_limit: float | None = None,
    mirror: Place | None = None,
    data_root: Place | None = None,
    progress: bool = True,
) -> Results | None:
    """The paper's experiment: searches, a pool of vanilla GNNs, ensembles of its best, and runs with other seeds.

    Args:
        tasks: Names of data sets.
        out: The folder for trials, records, tables and the page.
        protocol: The paper's, by default.
        scale: How learning rate and weight decay are drawn.
        quick: The same path with small budgets, in minutes.
        as_published: Repeat choices of the paper's published runs that the paper does not tell, by name
            (``credalgnn.experiments.published.CHOICES``), or with ``()`` all that its authors have told since. The
            figures explain the paper's; they are no benchmark, and no leaderboard takes them.
        jobs: Processes on this machine; None: one a core.
        engine: ``"local"`` processes, or an existing ``"ray"`` cluster.
        address: Of the Ray cluster.
        time_limit: Seconds after which nothing is begun or waited for.
        mirror: A folder with raw files, looked at first.
        data_root: Where graphs are kept once read.
        progress: Show how far it is, on stderr.

    Returns:
        The results, or None if there was no time for all trials; the same call goes on.
    """
    check_engine(engine, address, jobs)
    deadline = deadline_of(time_limit)
    choices = None if as_published is None else chosen(listed(as_published))
    if choices is not None and protocol != "paper":
        raise MethodError("the published runs looked at OOD validation nodes: as_published needs the paper's protocol")
    source, loaded = load_tasks(source_of(mirror, data_root, None), listed(tasks), [0], False)
    if choices is not None and "row-normalised" in choices:
        loaded = {key: with_rows_of_sum_one(task) for key, task in loaded.items()}
        source = replace(source, given=loaded)
    identity: dict[str, Any] = {"kind": "reproduce", "protocol": protocol, "scale": scale, "quick": quick}
    folder = Folder.open(Path(out), identity if choices is None else {**identity, "as_published": list(choices)})
    with folder.occupied() as tidy, make_engine(engine, address, jobs, source, folder.models) as worker:
        studies = Studies(folder.path, protocol, scale)
        budget = Budget.quick() if quick else Budget()
        parts = [
            Reproduction(dataset, task, studies, budget)
            if choices is None
            else AsPublished(dataset, task, studies, budget, tuple(PUBLISHED), choices)
            for (dataset, _), task in loaded.items()
        ]
        with Bar(sum(part.total for part in parts), silent=not progress) as bar:
            if not search_all(parts, studies, worker, deadline, bar.trial, bar.note):
                return None
        runs = sorted((run for part in parts for run in part.runs()), key=lambda run: run.seed)
        with Bar(len(runs), silent=not progress) as bar:
            outcome = run_all(folder, runs, loaded, worker, lambda run: run.seed == 0, deadline, bar.tell)
        results = Results(read_runs([folder.path]), (folder.path,), len(runs), outcome.failed, outcome.left)
        if not outcome.left:
            results.write(folder.path, "credalgnn reproduce")
            tidy()
    return results


def _runs(
    chosen: Sequence[Choice],
    tasks: Mapping[tuple[str, int], Task],
    seeds: int,
    protocol: EvalProtocol,
    split_seed: int,
    vary_split: bool,
    folder: Place | None,
) -> list[Run]:
    """Everything to do, seed by seed, so that a benchmark that is stopped has compared what it has done."""
    datasets = list(dict.fromkeys(name for name, _ in tasks))
    kinds = [each.kind for each in chosen]
    tables: dict[str, dict[str, dict[str, Any]]] = {name: {} for name in datasets}
    if folder is not None:
        tables = {name: tuned_alike(Path(folder), kinds, tasks[name, split_seed], protocol) for name in datasets}
    runs = []
    for seed in range(seeds):
        split = seed if vary_split else split_seed
        for dataset in datasets:
            for each in chosen:
                best = tables[dataset].get(each.kind.name, {})
                config = {**best.get("config", {}), **each.config}
                components = {**best.get("components", {}), **each.components}
                inductive = tasks[dataset, split].inductive
                runs.append(plan(dataset, each.path, seed, protocol, split, config, [components], inductive))
    return runs


def _inductive(setting: str, protocol: str) -> bool:
    if setting not in ("transductive", "inductive"):
        raise ValueError(f"unknown setting {setting!r}: choose 'transductive' or 'inductive'")
    if setting == "inductive" and protocol == "paper":
        raise MethodError("the paper's protocol is transductive: choose the sealed one for the inductive setting")
    return setting == "inductive"
