"""Evaluation of a prediction, exact over all nodes of a part: OOD detection, classification and credal sets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor

from ..graphs import Part, Task
from ..methods import Prediction
from .registry import (
    MARKS,
    OF_CLASSES,
    OF_CREDAL_SETS,
    OF_SCORES,
    Array,
    ClassifiedNodes,
    CredalNodes,
    ScoredNodes,
    diagnose,
)

Numbers: TypeAlias = dict[str, float | None]

ROC_GRID = np.linspace(0.0, 1.0, 101)
REJECTION_STEPS = 50
BINS = 30


@dataclass(frozen=True)
class Evaluation:
    """Metrics of a prediction; undefined metrics are None.

    Attributes:
        headline: Score by which the method is ranked, fixed beforehand.
        metrics: Metrics of classes, probabilities and credal sets, by key (``METRICS``).
        scores: Metrics of each score.
        curves: ROC and rejection curves and histograms of each score.
        marks: Names of diagnostic marks (``MARKS`` explains them).

    Example:
        >>> result = cg.evaluate(cg.Vanilla().fit(task).predict(), task)
        >>> result.metrics["accuracy"], result.scores[result.headline]["auroc"]
    """

    headline: str
    metrics: Numbers
    scores: dict[str, Numbers]
    curves: dict[str, dict[str, Any]]
    marks: tuple[str, ...]

    def __str__(self) -> str:
        lines = []
        for name, values in self.scores.items():
            shown = (f"{key} {value:.3f}" for key, value in values.items() if value is not None)
            lines.append(f"{name:10s} {'  '.join(shown)}")
        metrics = [f"{key} {value:.3f}" for key, value in self.metrics.items() if value is not None]
        marks = (f"! {mark}: {MARKS[mark].meaning}; {MARKS[mark].advice}" for mark in self.marks)
        return "\n".join([*lines, *(["  ".join(metrics)] if metrics else []), *marks])


def evaluate(prediction: Prediction, task: Task, part: Literal["test", "validation"] = "test") -> Evaluation:
    """Evaluate a prediction on the nodes of a part.

    Scores are judged by how well they detect OOD nodes (the positives) and misclassified nodes; classes, probabilities
    and credal sets by the ID nodes. Without OOD nodes in the task, metrics that need them are None.

    Args:
        prediction: Prediction of all nodes of the part, made for this task. One for other classes, or by a method
            trained on nodes of the part, is refused.
        task: Task with the true classes.
        part: ``"test"`` (default) or ``"validation"``.

    Raises:
        ValueError: If the prediction does not fit the task or the part lacks ID or OOD nodes.
    """
    if part not in ("test", "validation"):
        raise ValueError(f"unknown part {part!r}: choose 'test' or 'validation'")
    truth = getattr(task, part)
    if bool(truth.is_ood.all()) or (task.ood_classes and not bool(truth.is_ood.any())):
        raise ValueError(f"the {part} part has only {'OOD' if truth.is_ood.any() else 'ID'} nodes; both are needed")
    return _evaluate_part(prediction, task, truth, part)


def evaluate_known(prediction: Prediction, task: Task) -> Evaluation:
    """Evaluate a prediction on the ID validation nodes alone, as the sealed protocol allows.

    Args:
        prediction: Prediction of at least these nodes.
        task: Task with the true classes.
    """
    part = task.validation
    is_id = ~part.is_ood
    truth = Part(part.nodes[is_id], part.labels[is_id], part.is_ood[is_id])
    return _evaluate_part(prediction, task, truth, "validation")


def evaluate_nodes(prediction: Prediction, truth: Part) -> Evaluation:
    """Evaluate a prediction on the nodes of any graph whose classes are known, with or without OOD nodes.

    Args:
        prediction: Prediction of all these nodes.
        truth: The nodes, their classes, and which of them belong to none of the prediction's classes.
    """
    labels = truth.labels[~truth.is_ood]
    frequent = int(torch.bincount(labels).argmax()) if len(labels) else 0
    return _measure(prediction, truth, rows_of_part(prediction, truth, "labelled"), frequent)


def _check_task(prediction: Prediction, task: Task, truth: Part, part: str) -> None:
    """Refuse predictions for other classes, or by a method that was trained on nodes of the part."""
    if prediction.class_names != task.class_names:
        raise ValueError(
            f"the prediction belongs to another task: its classes are {_listed(prediction.class_names)}, those of this "
            f"task {_listed(task.class_names)}"
        )
    if prediction.train_nodes is not None:
        seen = truth.nodes[torch.isin(truth.nodes, prediction.train_nodes)]
        if len(seen):
            raise ValueError(
                f"the prediction belongs to another task or split: {len(seen)} nodes of the {part} part, node "
                f"{int(seen[0])} first, were training nodes of the method; fit it on this task"
            )


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names[:6]) + (f", ... ({len(names)})" if len(names) > 6 else "")


def _evaluate_part(prediction: Prediction, task: Task, truth: Part, part: str) -> Evaluation:
    _check_task(prediction, task, truth, part)
    frequent = int(torch.bincount(task.train_labels, minlength=task.num_classes).argmax())
    is_shifted = torch.isin(truth.nodes, task.shifted_nodes)
    return _measure(prediction, truth, rows_of_part(prediction, truth, part), frequent, is_shifted)


def _measure(
    prediction: Prediction, truth: Part, rows: Tensor, frequent: int, is_shifted: Tensor | None = None
) -> Evaluation:
    is_ood, is_id = truth.is_ood.numpy(), ~truth.is_ood
    labels, id_rows = truth.labels[is_id], rows[is_id]
    wrong: Array | None = None
    metrics: Numbers = {metric.key: None for metric in OF_CLASSES}
    if prediction.probabilities is not None:
        classified = ClassifiedNodes(prediction.probabilities[id_rows].double(), labels)
        metrics.update({metric.key: metric.compute(classified) for metric in OF_CLASSES})
        wrong = (prediction.classes[id_rows] != labels).numpy()
    if prediction.credal is not None:
        credal = CredalNodes(prediction, rows, is_id, labels)
        metrics.update({metric.key: metric.compute(credal) for metric in OF_CREDAL_SETS})
    shifted = None if is_shifted is None else is_shifted.numpy()
    scores: dict[str, Numbers] = {}
    curves: dict[str, dict[str, Any]] = {"roc": {}, "rejection": {}, "histogram": {}}
    for name, values in prediction.scores.items():
        scored = ScoredNodes(values[rows].numpy(), is_ood, wrong, shifted)
        scores[name] = {metric.key: metric.compute(scored) for metric in OF_SCORES}
        curves["roc"][name] = _rounded(np.interp(ROC_GRID, *scored.roc)) if is_ood.any() else []
        curves["histogram"][name] = _histogram(scored.score, is_ood)
        if wrong is not None:
            curves["rejection"][name] = _rounded(1.0 - scored.risk[_counts_kept(len(wrong)) - 1])
    marks = diagnose(prediction, rows, metrics, labels, frequent)
    return Evaluation(prediction.headline, metrics, scores, curves, marks)


def _counts_kept(count: int) -> Array:
    """Number of nodes kept at each step of rejection."""
    steps = np.arange(REJECTION_STEPS, 0, -1)  # in whole numbers, so that halves are rounded up everywhere
    counts: Array = np.maximum((steps * count + REJECTION_STEPS // 2) // REJECTION_STEPS, 1)
    return counts


def rows_of_part(prediction: Prediction, truth: Part, part: str) -> Tensor:
    """Row of the prediction for every node of the part."""
    order = prediction.nodes.argsort()
    nodes = prediction.nodes[order]
    place = torch.searchsorted(nodes, truth.nodes).clamp_max(max(len(nodes) - 1, 0))
    missing = torch.ones(len(truth.nodes), dtype=torch.bool) if not len(nodes) else nodes[place] != truth.nodes
    if bool(missing.any()):
        raise ValueError(
            f"the prediction lacks {int(missing.sum())} nodes of the {part} part, node {int(truth.nodes[missing][0])} "
            "first: use predict() without nodes to predict all"
        )
    return order[place]


def _histogram(score: Array, is_ood: Array) -> dict[str, list[float]]:
    edges = np.linspace(score.min(), score.max(), BINS + 1)
    if not bool((np.diff(edges) > 0).all()):  # all scores equal, or nearly
        edges = score[0] + np.linspace(-0.5, 0.5, BINS + 1)
    id_counts, ood_counts = (np.histogram(score[which], edges)[0] for which in (~is_ood, is_ood))
    return {"edges": edges.tolist(), "id": id_counts.tolist(), "ood": ood_counts.tolist()}


def _rounded(values: Array) -> list[float]:
    """Round to the digits needed to draw."""
    return [round(float(value), 5) for value in values]
