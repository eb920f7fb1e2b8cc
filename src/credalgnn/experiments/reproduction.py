"""The paper's experiment, as its text or as its published runs have it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..methods import MethodError
from ..methods.training_data import EvalProtocol
from ..report.results import Results
from ..report.summary import read_runs
from .paper_plan import Budget, Reproduction, Variant
from .published import AsPublished, choices_named, with_rows_of_sum_one
from .runner import EngineName, Place, Work, listed
from .search import Scale, Studies, search_all


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
    progress: bool | None = None,
) -> Results | None:
    """Repeat the paper's experiment, and show its figures beside the paper's.

    30 trials for vanilla and credal models, a pool of 100 vanilla GNNs, ensembles of its best, post-hoc methods on the
    best vanilla GNN, then five runs of each. The same call goes on where it was stopped.

    Args:
        tasks: Names of data sets.
        out: Folder for trials, records, tables and the page.
        protocol: ``"paper"``, or ``"sealed"``: only ID validation nodes decide anything.
        scale: ``"uniform"``: draw learning rate and weight decay evenly, as the paper does; ``"log"``: evenly in their
            logarithms.
        quick: Follow the same path with small budgets, in minutes.
        as_published: Names of choices of the published runs that the paper does not tell, to be repeated; none: all
            that its authors have told since. Such runs explain the paper's figures; they are not ranked.
        jobs: Processes on this machine; None: one per core.
        engine: ``"local"`` processes, or an existing ``"ray"`` cluster.
        address: Address of the Ray cluster; None: the one that Ray finds.
        time_limit: Seconds (in the shell also 30m or 1h30m) after which nothing is begun or waited for.
        mirror: Folder with raw files in PyG's layout, searched first.
        data_root: Cache folder of graphs.
        progress: False hides progress on stderr.

    Returns:
        The results, or None if there was no time for all trials; the same call goes on.

    Example:
        >>> cg.reproduce("chameleon", out="runs/paper", quick=True)
    """
    work = Work(jobs, engine, address, time_limit, mirror, data_root, progress)
    choices = None if as_published is None else choices_named(listed(as_published))
    if choices is not None and protocol != "paper":
        raise MethodError("`as_published` needs protocol='paper': the published runs read OOD validation nodes")
    source, loaded = work.load(tasks, [0])
    if choices is not None and "row-normalised" in choices:
        loaded = {key: with_rows_of_sum_one(task) for key, task in loaded.items()}
        source = replace(source, loaded=loaded)
    identity: dict[str, Any] = {"kind": "reproduce", "protocol": protocol, "scale": scale, "quick": quick}
    if choices is not None:
        identity["as_published"] = list(choices)
    with work.session(out, identity, source) as session:
        folder = session.folder.path
        studies, budget = Studies(folder, protocol, scale), Budget.quick() if quick else Budget()
        parts = [
            Reproduction(
                name, task, studies, budget, variant=Variant() if choices is None else AsPublished(task, choices)
            )
            for (name, _), task in loaded.items()
        ]
        if not search_all(parts, studies, session):
            session.is_finished = False
            return None
        runs = sorted((run for part in parts for run in part.runs()), key=lambda run: run.seed)
        outcome = session.run(runs, loaded, keep_nodes=lambda run: run.seed == 0)
        results = Results(read_runs([folder]), (folder,), len(runs), outcome.failed, outcome.left)
        if not outcome.left:
            results.write(folder, "credalgnn reproduce")
    return results
