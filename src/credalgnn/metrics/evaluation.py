"""What a prediction is worth: OOD nodes found, classes right, doubt honest. Exact, over all nodes of a part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor

from ..graphs import Part, Task
from ..methods import Prediction
from .marks import MARKS, diagnose
from .registry import (
    OF_CLASSES,
    OF_CREDAL_SETS,
    OF_SCORES,
    Array,
    ClassifiedNodes,
    CredalNodes,
    ScoredNodes,
)

Numbers: TypeAlias = dict[str, float | None]

ROC_GRID = np.linspace(0.0, 1.0, 101)
REJECTION_STEPS = 50
BINS = 30


@dataclass(frozen=True)
class Evaluation:
    """What a prediction is worth; metrics that are undefined are None.

    Attributes:
        headline: The score that was fixed beforehand to be judged by.
        metrics: Of classes, probabilities and credal sets, by key (``METRICS``).
        scores: Metrics of each score.
        curves: What a page draws.
        marks: What the diagnostics find (``MARKS`` explains them).
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
        known = [f"{key} {value:.3f}" for key, value in self.metrics.items() if value is not None]
        marks = (f"! {mark}: {MARKS[mark].meaning}; {MARKS[mark].advice}" for mark in self.marks)
        return "\n".join([*lines, *(["  ".join(known)] if known else []), *marks])


def evaluate(prediction: Prediction, task: Task, part: Literal["test", "validation"] = "test") -> Evaluation:
    """Judge a prediction on the nodes of a part.

    How well each score finds OOD nodes (the positives) and wrong ones; how well classes, probabilities and credal sets
    fit the ID nodes. Of a task without OOD nodes it says what can be said.

    Args:
        prediction: Of all nodes of the part, made for this task: one for other classes, or by a method that was trained
            on nodes of the part, is refused.
        task: What it is judged by.
        part: ``"test"`` or ``"validation"``.
    """
    if part not in ("test", "validation"):
        raise ValueError(f"unknown part {part!r}: choose 'test' or 'validation'")
    truth = getattr(task, part)
    if bool(truth.is_ood.all()) or (task.ood_classes and not bool(truth.is_ood.any())):
        raise ValueError(f"the {part} part has only {'OOD' if truth.is_ood.any() else 'ID'} nodes; both are needed")
    return _judged(prediction, task, truth, part)


def evaluate_known(prediction: Prediction, task: Task) -> Evaluation:
    """Judge a prediction on the ID validation nodes alone, as the sealed protocol may; nothing is said of OOD nodes.

    Args:
        prediction: Of these nodes at least.
        task: What it is judged by.
    """
    part = task.validation
    known = ~part.is_ood
    truth = Part(part.nodes[known], part.labels[known], part.is_ood[known])
    return _judged(prediction, task, truth, "validation")


def evaluate_nodes(prediction: Prediction, truth: Part) -> Evaluation:
    """Judge a prediction on nodes of one's own graph whose classes are known; strangers may be among them, or not.

    Args:
        prediction: Of all these nodes.
        truth: The nodes, their classes, and which of them are of none of the prediction's classes.
    """
    known = truth.labels[~truth.is_ood]
    frequent = int(torch.bincount(known).argmax()) if len(known) else 0
    return _measured(prediction, truth, rows_of_part(prediction, truth, "labelled"), frequent)


def _check_task(prediction: Prediction, task: Task, truth: Part, part: str) -> None:
    """Refuse what was predicted for other classes, or by a method that knows the answers."""
    if prediction.class_names != task.class_names:
        raise ValueError(
            f"the prediction is of another task: its classes are {_listed(prediction.class_names)}, and those of this "
            f"task {_listed(task.class_names)}"
        )
    if prediction.train_nodes is not None:
        seen = truth.nodes[torch.isin(truth.nodes, prediction.train_nodes)]
        if len(seen):
            raise ValueError(
                f"the prediction is of another task or split: {len(seen)} nodes of the {part} part, node "
                f"{int(seen[0])} first, were training nodes of the method; fit it on this task"
            )


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names[:6]) + (f", ... ({len(names)})" if len(names) > 6 else "")


def _judged(prediction: Prediction, task: Task, truth: Part, part: str) -> Evaluation:
    _check_task(prediction, task, truth, part)
    frequent = int(torch.bincount(task.train_labels, minlength=task.num_classes).argmax())
    is_shifted = torch.isin(truth.nodes, task.shifted_nodes)
    return _measured(prediction, truth, rows_of_part(prediction, truth, part), frequent, is_shifted)


def _measured(
    prediction: Prediction, truth: Part, rows: Tensor, frequent: int, is_shifted: Tensor | None = None
) -> Evaluation:
    is_ood, known = truth.is_ood.numpy(), ~truth.is_ood
    labels, chosen = truth.labels[known], rows[known]
    wrong: Array | None = None
    metrics: Numbers = {metric.key: None for metric in OF_CLASSES}
    if prediction.probabilities is not None:
        classified = ClassifiedNodes(prediction.probabilities[chosen].double(), labels)
        metrics.update({metric.key: metric.compute(classified) for metric in OF_CLASSES})
        wrong = (prediction.classes[chosen] != labels).numpy()
    if prediction.credal is not None:
        credal = CredalNodes(prediction, rows, known, labels)
        metrics.update({metric.key: metric.compute(credal) for metric in OF_CREDAL_SETS})
    shifted = None if is_shifted is None else is_shifted.numpy()
    scores: dict[str, Numbers] = {}
    curves: dict[str, dict[str, Any]] = {"roc": {}, "rejection": {}, "histogram": {}}
    for name, values in prediction.scores.items():
        scored = ScoredNodes(values[rows].numpy(), is_ood, wrong, shifted)
        scores[name] = {metric.key: metric.compute(scored) for metric in OF_SCORES}
        curves["roc"][name] = _short(np.interp(ROC_GRID, *scored.roc)) if is_ood.any() else []
        curves["histogram"][name] = _histogram(scored.score, is_ood)
        if wrong is not None:
            curves["rejection"][name] = _short(1.0 - scored.risk[_kept(len(wrong)) - 1])
    marks = diagnose(prediction, rows, metrics, labels, frequent)
    return Evaluation(prediction.headline, metrics, scores, curves, marks)


def _kept(count: int) -> Array:
    """How many of so many nodes are kept at each step of rejection."""
    steps = np.arange(REJECTION_STEPS, 0, -1)  # in whole numbers, so that halves are rounded up everywhere
    kept: Array = np.maximum((steps * count + REJECTION_STEPS // 2) // REJECTION_STEPS, 1)
    return kept


def rows_of_part(prediction: Prediction, truth: Part, part: str) -> Tensor:
    """The prediction's row of every node of the part."""
    order = prediction.nodes.argsort()
    nodes = prediction.nodes[order]
    place = torch.searchsorted(nodes, truth.nodes).clamp_max(max(len(nodes) - 1, 0))
    missing = torch.ones(len(truth.nodes), dtype=torch.bool) if not len(nodes) else nodes[place] != truth.nodes
    if bool(missing.any()):
        raise ValueError(
            f"the prediction lacks {int(missing.sum())} nodes of the {part} part, node {int(truth.nodes[missing][0])} "
            "first: predict() predicts all nodes"
        )
    return order[place]


def _histogram(score: Array, is_ood: Array) -> dict[str, list[float]]:
    edges = np.linspace(score.min(), score.max(), BINS + 1)
    if not bool((np.diff(edges) > 0).all()):  # all the same, or nearly
        edges = score[0] + np.linspace(-0.5, 0.5, BINS + 1)
    known, unknown = (np.histogram(score[which], edges)[0] for which in (~is_ood, is_ood))
    return {"edges": edges.tolist(), "id": known.tolist(), "ood": unknown.tolist()}


def _short(values: Array) -> list[float]:
    """Enough digits to draw."""
    return [round(float(value), 5) for value in values]
