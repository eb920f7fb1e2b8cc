"""Benchmark: methods × tasks × seeds, evaluated on the test nodes."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from typing import Any, Literal

from ..methods.registry import MethodLike, choose
from ..methods.training_data import EvalProtocol
from ..report.results import Results
from ..report.summary import read_runs
from ..runtime.errors import ArgumentError
from .best import comparable_best
from .plan import Run, check_setting, plan
from .runner import EngineName, Place, Setting, TaskLike, Work, as_texts, listed


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
    progress: bool | None = None,
) -> Results:
    """Compare methods on leave-out-class tasks: records, tables and a page.

    Every method is fitted on every task with several seeds and evaluated on the test nodes; baselines without a model
    are added. The same call goes on where it was stopped, and tries failed runs again.

    Args:
        tasks: Tasks: names, files, folders, import paths, each with changes such as ``cora+label_noise=0.2``.
        methods: Names, import paths, classes, or templates with hyper-parameters; ``"all"``: the built-in ones.
        seeds: Number of seeds, 0 to n-1.
        out: Folder for records, tables and the page; None: nothing is kept.
        protocol: ``"sealed"``: only ID validation nodes decide anything; ``"paper"``: as in the paper.
        setting: ``"inductive"``: training reads the training nodes alone. ``Task`` objects have their own.
        ood_classes: Classes to leave out, by number or name, of data sets that define no task of their own.
        split_seed: Public split, or seed of a random one.
        vary_split: Seed k uses split k.
        settings: Hyper-parameters, as in ``lr=0.01``, or ``credal-lj.delta=0.5`` for one method.
        tuned: Folder of a hyper-parameter search (tune) whose results are used.
        predictions: Seeds whose predictions per node are kept.
        jobs: Processes on this machine; None: one per core.
        engine: ``"local"`` processes, or an existing ``"ray"`` cluster.
        address: Address of the Ray cluster; None: the one that Ray finds.
        time_limit: Seconds (in the shell also 30m or 1h30m) after which nothing is begun or waited for.
        mirror: Folder with raw files in PyG's layout, searched first.
        data_root: Cache folder of graphs.
        progress: False hides progress on stderr.

    Example:
        >>> results = cg.benchmark("chameleon", ["vanilla", "credal-lj"], seeds=3)
        >>> print(results)
    """
    work = Work(jobs, engine, address, time_limit, mirror, data_root, progress)
    check_setting(setting, protocol)
    if seeds < 1:
        raise ArgumentError(f"`seeds` must be at least 1, not {seeds}")
    if predictions not in ("none", "first", "all"):
        raise ArgumentError(f"unknown `predictions` {predictions!r}: choose 'none', 'first' or 'all'")
    if vary_split and split_seed:
        raise ArgumentError("`vary_split` gives every seed its own split: leave out `split_seed`")
    if vary_split and tuned is not None:
        raise ArgumentError("`tuned` is valid for the split of the search: leave out `vary_split`")
    choices = choose(listed(methods), settings or {}, with_baselines=True)
    splits = list(range(seeds)) if vary_split else [split_seed]
    source, loaded = work.load(tasks, splits, setting == "inductive", ood_classes)
    datasets = list(dict.fromkeys(name for name, _ in loaded))
    kinds = [choice.kind for choice in choices]
    best: dict[str, dict[str, dict[str, Any]]] = {
        name: {} if tuned is None else comparable_best(Path(tuned), kinds, loaded[name, split_seed], protocol)
        for name in datasets
    }

    def run_of(seed: int, dataset: str, number: int) -> Run:
        choice, split = choices[number], seed if vary_split else split_seed
        chosen = best[dataset].get(kinds[number].name, {})
        config = {**chosen.get("config", {}), **choice.config}
        components = {**chosen.get("components", {}), **choice.components}
        inductive = loaded[dataset, split].inductive
        return plan(dataset, choice.path, seed, protocol, split, config, [components], inductive)

    # Seed by seed: a benchmark that is stopped has compared what it has done.
    runs = [run_of(*each) for each in product(range(seeds), datasets, range(len(choices)))]
    kept_seeds = 0 if out is None else {"none": 0, "first": 1, "all": seeds}[predictions]
    identity = {
        "kind": "bench", "protocol": protocol, "setting": setting, "split": "seed" if vary_split else split_seed,
        "set": as_texts(settings), "tuned": tuned is not None,
    }  # fmt: skip
    with ExitStack() as stack:
        place = Path(out) if out is not None else Path(stack.enter_context(tempfile.TemporaryDirectory()))
        session = stack.enter_context(work.session(place, identity, source))
        outcome = session.run(runs, loaded, keep_nodes=lambda run: run.seed < kept_seeds)
        records = read_runs([place]) if outcome.done else []
        results = Results(records, () if out is None else (place,), len(runs), outcome.failed, outcome.left)
        if records and out is not None:
            results.write(place, f"credalgnn bench: {', '.join(datasets)}")
    return results
