"""The probe: every method on every graph, unchanged and changed, and what its AU and EU answer."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..graphs import GraphError, Task, dataset_name
from ..records.folder import Folder
from .choices import MethodLike, choose
from .conditions import Condition, conditions
from .engines import Unit
from .measure import examine
from .plan import plan
from .probe_results import KIND, ProbeResults, read_probes
from .progress import Bar
from .runner import run_all
from .tasks import load_tasks
from .work import EngineName, Place, as_texts, check_engine, deadline_of, listed, make_engine, source_of

SEEDS = 3


def probe(
    datasets: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    methods: MethodLike | Sequence[MethodLike] = "all",
    *,
    out: Place,
    seeds: int | None = None,
    quick: bool = False,
    ood_classes: Sequence[int | str] | None = None,
    settings: Mapping[str, Any] | None = None,
    jobs: int | None = None,
    engine: EngineName = "local",
    address: str | None = None,
    time_limit: float | None = None,
    mirror: Place | None = None,
    data_root: Place | None = None,
    progress: bool = True,
) -> ProbeResults:
    """Change graphs in known ways, and see whether AU answers to noise and EU to missing knowledge.

    Every seed has a split and draws of its own. What is finished is kept in ``out``: the same call goes on where it was
    stopped, and runs that failed are tried again. docs/probe.md says what is asked and how answers become numbers.

    Args:
        datasets: Whatever ``load_task`` finds one by: names, files, folders, import paths.
        methods: Names, import paths, classes, or templates whose hyper-parameters are used; ``"all"`` for the built-in.
        out: The folder for records, tables, plots and the page.
        seeds: Seeds 0..n-1; None: 3, or 1 of a quick probe.
        quick: Only the strongest level of each change.
        ood_classes: The classes to leave out, by number or name, of data sets that make no task of their own.
        settings: Hyper-parameters: ``{"lr": 0.01}``, or ``{"credal-lj.delta": 0.5}`` for one method.
        jobs: Processes on this machine; None: one a core.
        engine: ``"local"`` processes, or an existing ``"ray"`` cluster.
        address: Of the Ray cluster; None: the one that Ray finds.
        time_limit: Seconds after which nothing is begun or waited for.
        mirror: A folder with raw files, looked at first.
        data_root: Where graphs are kept once read.
        progress: Show how far it is, on stderr.
    """
    check_engine(engine, address, jobs)
    if seeds is not None and seeds < 1:
        raise ValueError(f"seeds must be at least 1, not {seeds}")
    seeds = seeds or (1 if quick else SEEDS)
    deadline = deadline_of(time_limit)
    chosen = choose(listed(methods), settings or {}, with_baselines=False)
    asked: dict[str, Condition] = {}
    for spec in specs_of(datasets):
        name = dataset_name(spec)
        for each in conditions(spec, name, quick):
            other = asked.setdefault(dataset_name(each.spec), each)
            if other != each:
                raise GraphError(f"{other.spec} is a change of {other.graph} that is asked anyway: leave {spec} out")
    source, tasks = load_tasks(
        source_of(mirror, data_root, ood_classes), [each.spec for each in asked.values()], range(seeds), False
    )
    runs = [
        plan(dataset, each.path, seed, "sealed", seed, each.config, [each.components])
        for seed in range(seeds)
        for dataset in asked
        for each in chosen
    ]
    identity = {"kind": KIND, "changed": "after the fit", "quick": quick, "set": as_texts(settings)}
    folder = Folder.open(Path(out), identity)
    with folder.occupied() as tidy, make_engine(engine, address, jobs, source, folder.models) as worker:
        with Bar(len(runs), silent=not progress) as bar:
            outcome = run_all(
                folder,
                runs,
                tasks,
                worker,
                deadline=deadline,
                tell=bar.tell,
                examine=lambda run: Unit(examine, run, (asked[run.dataset],)),
            )
        results = ProbeResults([], len(runs), outcome.failed, outcome.left)
        if outcome.done:
            results = read_probes([folder.path], len(runs), outcome.failed, outcome.left)
            results.write(folder.path)
        if not outcome.left:
            tidy()
    return results


def specs_of(datasets: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[str]:
    """Data sets as texts.

    Args:
        datasets: One, or several.
    """
    for each in listed(datasets):
        if isinstance(each, Task):
            raise GraphError(
                "a probe changes graphs itself: give what load_task finds the data set by, not the task (a file of "
                "Graph.save, a folder with tables, package.module:name)"
            )
    return [os.fspath(each) for each in listed(datasets)]
