"""What a probe measures of a run beside its record: how scores are spread, where they fail, and how near the truth."""

from __future__ import annotations

import warnings
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..graphs import Task, among_classes, csbm_graph_posterior, local_homophily
from ..methods import InputWarning, Method, MethodError, Prediction
from ..methods.base import decomposition_of
from ..metrics import evaluate
from ..metrics.evaluation import rows_of_part
from ..records.schema import PROBED
from ..sets import HullSet, IntervalSet
from .conditions import BASE, Condition, changed_tasks
from .execute import judged_run
from .model_cache import ModelCache
from .plan import Run

Array = NDArray[Any]
GRID = np.linspace(0.0, 1.0, PROBED)  # the quantiles by which two runs are compared
BINS = np.linspace(0.0, 1.0, 6)  # of local homophily
FEWEST = 10  # nodes of either kind that an AUROC is worth a number for
TOLERANCE = 0.02  # by which a set may miss the true distribution: the latter's Monte Carlo error, and as much again


def examine(run: Run, task: Task, models: ModelCache, condition: Condition) -> tuple[dict[str, Any], None]:
    """Fit, predict and judge as a benchmark does, and measure what the probe asks for: the record.

    Args:
        run: What to fit.
        task: On what.
        models: Where models that several runs stand on are kept.
        condition: What the task is of a probe.
    """
    fitted_on = with_ids(task) if condition.test == BASE else task
    record, method, prediction = judged_run(run, fitted_on, models, task.test.nodes)
    record["fingerprint"] = task.fingerprint
    epistemic, aleatoric = decomposition_of(run.kind)
    for name in {epistemic, aleatoric} - {None, *prediction.scores}:
        raise MethodError(f"{run.method}: decomposition names {name!r}, which its predictions do not have")
    rows = rows_of_part(prediction, task.test, "test")
    known = rows[~task.test.is_ood]
    measured: dict[str, Any] = {
        "graph": condition.graph,
        "test": condition.test,
        "level": condition.level,
        "epistemic": epistemic,
        "aleatoric": aleatoric,
        "mean": {name: float(values[known].mean()) for name, values in prediction.scores.items()},
        "quantiles": {
            name: [float(f"{q:.6g}") for q in np.quantile(values[known].numpy(), GRID)]
            for name, values in prediction.scores.items()
        },
    }
    if condition.test == BASE:
        measured["homophily"] = by_homophily(prediction, task, rows)
        measured["changed"] = told_apart(method, fitted_on, run.split_seed)
    if condition.homophily is not None:
        truth = true_distribution(condition.homophily, task)
        measured["truth"] = against_truth(prediction, known, truth)
    return {**record, "probe": measured}, None


@lru_cache(maxsize=1)
def with_ids(task: Task) -> Task:
    """The task whose nodes have ids: by these the nodes of training are known again after the graph has changed.

    Args:
        task: Any.
    """
    graph = task.graph
    return (
        task if graph.node_ids is not None else replace(task, graph=graph.replace(node_ids=np.arange(graph.num_nodes)))
    )


def told_apart(method: Method, task: Task, seed: int) -> dict[str, dict[str, float | None]]:
    """How well the scores of a fitted method tell test nodes that have changed since, by test and score: AUROC.

    Args:
        method: Fitted on the unchanged graph.
        task: On the unchanged graph.
        seed: Of what the changes draw.
    """
    result = {}
    for name, changed in changed_tasks(task, seed).items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", InputWarning)  # features outside their range are what is asked about
            prediction = method.predict(changed.prediction_graph, changed.test.nodes)
        scores = evaluate(prediction, changed).scores
        result[name] = {score: metrics["shifted_auroc"] for score, metrics in scores.items()}
    return result


def by_homophily(prediction: Prediction, task: Task, rows: Tensor) -> dict[str, Any]:
    """How well classes and scores do on test nodes whose neighbours are alike, and on those whose are not.

    Args:
        prediction: Of the test nodes.
        task: On what.
        rows: The prediction's rows of the test nodes.
    """
    from sklearn.metrics import roc_auc_score

    share = local_homophily(task.graph)[task.test.nodes].numpy()
    count = len(BINS) - 1
    place = np.full(len(share), -1)  # a node without neighbours is in no bin
    there = ~np.isnan(share)
    place[there] = np.minimum((share[there] * count + 1e-9).astype(int), count - 1)  # 3 of 5 neighbours are 0.6
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
    """The true probabilities of the ID classes for the ID test nodes of csbm ``[N, C]``.

    Given all features, all edges, the labels of the training nodes, and that the node is of an ID class.

    Args:
        homophily: Of the graph.
        task: On it.
    """
    unknown = 1.0 - len(task.split.train) / int(torch.isin(task.graph.labels, torch.tensor(task.id_classes)).sum())
    shares = tuple(1.0 if k in task.ood_classes else round(unknown, 6) for k in range(task.graph.num_classes))
    posterior = _posterior(homophily, tuple(task.split.train.tolist()), shares)
    return among_classes(posterior, task.id_classes)[task.test.nodes[~task.test.is_ood]]


@lru_cache(maxsize=8)
def _posterior(homophily: float, known: tuple[int, ...], shares: tuple[float, ...]) -> Tensor:
    """The posterior of csbm; the methods of a condition share it."""
    result = csbm_graph_posterior(homophily=homophily, known=torch.tensor(known), unknown_share=shares)
    return result.probabilities


def against_truth(prediction: Prediction, rows: Tensor, truth: Tensor) -> dict[str, Any]:
    """A prediction beside the true distributions of some nodes.

    Args:
        prediction: The prediction.
        rows: Its rows of these nodes.
        truth: Their true distributions ``[N, C]``.
    """
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
            if isinstance(sets, IntervalSet | HullSet):  # a kind from outside need not know what it contains
                result["inside"] = float(sets.contains(truth, TOLERANCE).double().mean())
            result["width"] = float(sets.width.amax(-1).double().mean())
            result["width_spearman"] = spearman(sets.width.amax(-1).double().numpy(), error) or 0.0
    return result


def spearman(one: Array, other: Array) -> float | None:
    """Spearman's rank correlation; None where one side is constant.

    Args:
        one: Values.
        other: As many.
    """
    from scipy.stats import rankdata

    ranks = [rankdata(values) for values in (one, other)]
    if any(np.ptp(rank) == 0 for rank in ranks):
        return None
    return float(np.corrcoef(ranks)[0, 1])
