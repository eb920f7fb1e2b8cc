"""Probe: fit methods on graphs changed in known ways, and measure what AU and EU respond to."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..graphs import GraphError, Task, among_classes, csbm_graph_posterior, dataset_name, local_homophily
from ..methods import InputWarning, Method, MethodError, Prediction
from ..methods.base import decomposition_of
from ..methods.registry import MethodLike, choose
from ..metrics import evaluate
from ..metrics.evaluation import rows_of_part
from ..records.schema import PROBED
from ..runtime.errors import ArgumentError
from ..sets import HullSet, IntervalSet
from .conditions import BASE, BINS, Condition, changed_tasks, conditions
from .engines import Unit
from .execute import ModelCache, evaluated_run
from .plan import Run, plan
from .probe_results import KIND, ProbeResults, read_probes
from .runner import EngineName, Place, Work, as_texts, listed

Array = NDArray[Any]
GRID = np.linspace(0.0, 1.0, PROBED)  # quantiles by which two runs are compared
FEWEST = 10  # nodes of either kind for an AUROC
TOLERANCE = 0.02  # by which a set may miss the true distribution: the latter's Monte Carlo error, and as much again
SEEDS = 3


def probe(
    tasks: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
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
    progress: bool | None = None,
) -> ProbeResults:
    """Test whether epistemic and aleatoric uncertainty respond to their causes.

    Labels are removed or made wrong, features removed or blurred, edges rewired, classes left out: EU must respond to
    missing knowledge, AU to noise; on csbm both are compared with the true posterior. One number per method and test:
    1 is right, 0 no response, below 0 the wrong direction. Every seed has its own split. The same call goes on where it
    was stopped, and tries failed runs again.

    Args:
        tasks: Data sets: names, files, folders, import paths; not ``Task`` objects, whose graphs cannot be changed.
        methods: Names, import paths, classes, or templates with hyper-parameters; ``"all"``: the built-in ones.
        out: Folder for records, tables, plots and the page.
        seeds: Number of seeds, 0 to n-1; None: 3, or 1 with ``quick``.
        quick: Only the strongest level of each change, in minutes.
        ood_classes: Classes to leave out, by number or name, of data sets that define no task of their own.
        settings: Hyper-parameters, as in ``lr=0.01``, or ``credal-lj.delta=0.5`` for one method.
        jobs: Processes on this machine; None: one per core.
        engine: ``"local"`` processes, or an existing ``"ray"`` cluster.
        address: Address of the Ray cluster; None: the one that Ray finds.
        time_limit: Seconds (in the shell also 30m or 1h30m) after which nothing is begun or waited for.
        mirror: Folder with raw files in PyG's layout, searched first.
        data_root: Cache folder of graphs.
        progress: False hides progress on stderr.

    Example:
        >>> print(cg.probe(["chameleon", "csbm"], ["credal-lj"], out="runs/probe", quick=True))
    """
    work = Work(jobs, engine, address, time_limit, mirror, data_root, progress)
    if seeds is not None and seeds < 1:
        raise ArgumentError(f"`seeds` must be at least 1, not {seeds}")
    seeds = seeds or (1 if quick else SEEDS)
    choices = choose(listed(methods), settings or {}, with_baselines=False)
    by_name: dict[str, Condition] = {}
    for spec in _specs(tasks):
        for each in conditions(spec, dataset_name(spec), quick):
            other = by_name.setdefault(dataset_name(each.spec), each)
            if other != each:
                raise GraphError(f"{other.spec} is a change of {other.graph}, which is probed anyway: leave {spec} out")
    source, loaded = work.load([each.spec for each in by_name.values()], range(seeds), ood_classes=ood_classes)
    runs = [
        plan(dataset, choice.path, seed, "sealed", seed, choice.config, [choice.components])
        for seed in range(seeds)
        for dataset in by_name
        for choice in choices
    ]
    identity = {"kind": KIND, "changed": "after the fit", "quick": quick, "set": as_texts(settings)}
    with work.session(out, identity, source) as session:
        outcome = session.run(runs, loaded, lambda run: Unit(measure, run, (by_name[run.dataset],)))
        results = ProbeResults([], len(runs), outcome.failed, outcome.left)
        if outcome.done:
            results = read_probes([session.folder.path], len(runs), outcome.failed, outcome.left)
            results.write(session.folder.path)
    return results


def _specs(tasks: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[str]:
    for each in listed(tasks):
        if isinstance(each, Task):
            raise GraphError(
                "a probe changes graphs itself: `tasks` must be names, files of Graph.save, folders with tables or "
                "import paths (package.module:name), not Task objects"
            )
    return [os.fspath(each) for each in listed(tasks)]


def measure(run: Run, task: Task, models: ModelCache, condition: Condition) -> tuple[dict[str, Any], None]:
    """Fit, predict and evaluate as a benchmark does, and add the measurements of a condition to the record."""
    fitted_on = with_ids(task) if condition.test == BASE else task
    record, method, prediction = evaluated_run(run, fitted_on, models, task.test.nodes)
    record["fingerprint"] = task.fingerprint
    epistemic, aleatoric = decomposition_of(run.kind)
    for name in {epistemic, aleatoric} - {None, *prediction.scores}:
        raise MethodError(f"{run.method}: decomposition names {name!r}, which its predictions do not have")
    rows = rows_of_part(prediction, task.test, "test")
    id_rows = rows[~task.test.is_ood]
    measured: dict[str, Any] = {
        "graph": condition.graph,
        "test": condition.test,
        "level": condition.level,
        "epistemic": epistemic,
        "aleatoric": aleatoric,
        "mean": {name: float(values[id_rows].mean()) for name, values in prediction.scores.items()},
        "quantiles": {
            name: [float(f"{q:.6g}") for q in np.quantile(values[id_rows].numpy(), GRID)]
            for name, values in prediction.scores.items()
        },
    }
    if condition.test == BASE:
        measured["homophily"] = by_homophily(prediction, task, rows)
        measured["changed"] = shift_aurocs(method, fitted_on, run.split_seed)
    if condition.homophily is not None:
        truth = true_distribution(condition.homophily, task)
        measured["truth"] = against_truth(prediction, id_rows, truth)
    return {**record, "probe": measured}, None


@lru_cache(maxsize=1)
def with_ids(task: Task) -> Task:
    """Give nodes ids, by which training nodes are recognised after the graph has changed."""
    graph = task.graph
    return (
        task if graph.node_ids is not None else replace(task, graph=graph.replace(node_ids=np.arange(graph.num_nodes)))
    )


def shift_aurocs(method: Method, task: Task, seed: int) -> dict[str, dict[str, float | None]]:
    """AUROC for test nodes changed after the fit, by test and score; `seed` draws the changes."""
    result = {}
    for name, changed in changed_tasks(task, seed).items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", InputWarning)  # features outside their range are intended
            prediction = method.predict(changed.prediction_graph, changed.test.nodes)
        scores = evaluate(prediction, changed).scores
        result[name] = {score: metrics["shifted_auroc"] for score, metrics in scores.items()}
    return result


def by_homophily(prediction: Prediction, task: Task, rows: Tensor) -> dict[str, Any]:
    """Accuracy and AUROC of test nodes by local homophily."""
    from sklearn.metrics import roc_auc_score

    share = local_homophily(task.graph)[task.test.nodes].numpy()
    count = len(BINS) - 1
    place = np.full(len(share), -1)  # a node without neighbours is in no bin
    defined = ~np.isnan(share)
    place[defined] = np.minimum((share[defined] * count + 1e-9).astype(int), count - 1)  # 3 of 5 neighbours are 0.6
    is_ood = task.test.is_ood.numpy()
    right = None
    if prediction.probabilities is not None:
        right = (prediction.classes[rows] == task.test.labels).numpy()
    result: dict[str, Any] = {"known": [], "ood": [], "accuracy": [], "auroc": {n: [] for n in prediction.scores}}
    for k in range(count):
        inside = place == k
        counts = int((inside & ~is_ood).sum()), int((inside & is_ood).sum())
        result["known"].append(counts[0])
        result["ood"].append(counts[1])
        enough = counts[0] >= FEWEST and right is not None
        result["accuracy"].append(float(right[inside & ~is_ood].mean()) if enough and right is not None else None)
        for name, values in prediction.scores.items():
            score = values[rows].numpy()[inside]
            auroc = float(roc_auc_score(is_ood[inside], score)) if min(counts) >= FEWEST else None
            result["auroc"][name].append(auroc)
    return result


def true_distribution(homophily: float, task: Task) -> Tensor:
    """True probabilities of the ID classes for the ID test nodes of csbm `[N, C]`.

    Given all features, all edges, the labels of the training nodes, and that the node is of an ID class.
    """
    unknown = 1.0 - len(task.split.train) / int(torch.isin(task.graph.labels, torch.tensor(task.id_classes)).sum())
    shares = tuple(1.0 if k in task.ood_classes else round(unknown, 6) for k in range(task.graph.num_classes))
    posterior = _posterior(homophily, tuple(task.split.train.tolist()), shares)
    return among_classes(posterior, task.id_classes)[task.test.nodes[~task.test.is_ood]]


@lru_cache(maxsize=8)
def _posterior(homophily: float, known: tuple[int, ...], shares: tuple[float, ...]) -> Tensor:
    """Posterior of csbm, shared by the methods of a condition."""
    result = csbm_graph_posterior(homophily=homophily, known=torch.tensor(known), unknown_share=shares)
    return result.probabilities


def against_truth(prediction: Prediction, rows: Tensor, truth: Tensor) -> dict[str, Any]:
    """Compare a prediction with the true distributions of the nodes in its `rows`."""
    entropy = (-torch.xlogy(truth, truth).sum(-1) / np.log(2.0)).numpy()
    scores = {name: values[rows].double().numpy() for name, values in prediction.scores.items()}
    result: dict[str, Any] = {
        "entropy": float(entropy.mean()),
        "spearman": {name: spearman(values, entropy) for name, values in scores.items()},
        "bits": {name: float(np.abs(values - entropy).mean()) for name, values in scores.items()},
    }
    if prediction.probabilities is not None:
        error = (0.5 * (prediction.probabilities[rows].double() - truth).abs().sum(-1)).numpy()
        result["error"] = float(error.mean())
        result["error_spearman"] = {name: spearman(values, error) for name, values in scores.items()}
        if prediction.credal is not None:
            sets = prediction.credal.take(rows)
            if isinstance(sets, IntervalSet | HullSet):  # other kinds need not have `contains`
                result["inside"] = float(sets.contains(truth, TOLERANCE).double().mean())
            result["width"] = float(sets.width.amax(-1).double().mean())
            result["width_spearman"] = spearman(sets.width.amax(-1).double().numpy(), error) or 0.0
    return result


def spearman(one: Array, other: Array) -> float | None:
    """Spearman's rank correlation; None if one side is constant."""
    from scipy.stats import rankdata

    ranks = [rankdata(values) for values in (one, other)]
    if any(np.ptp(rank) == 0 for rank in ranks):
        return None
    return float(np.corrcoef(ranks)[0, 1])
