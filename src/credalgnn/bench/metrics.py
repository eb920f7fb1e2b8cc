"""What a prediction is worth: strangers found, classes right, doubt honest. Exact, over all nodes of a part."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..graphs import Part, Task
from ..methods import Prediction
from ..sets import CredalSet, e_admissibility, interval_dominance, maximality, u65, u80
from .marks import MARKS, diagnose

Numbers: TypeAlias = dict[str, float | None]
Array: TypeAlias = NDArray[Any]

ROC_GRID = np.linspace(0.0, 1.0, 101)
REJECTION_STEPS = 50
BINS = 30
RULES: dict[str, Callable[[CredalSet], Tensor]] = {
    "interval_dominance": interval_dominance,
    "maximality": maximality,
    "e_admissibility": e_admissibility,
}


@dataclass(frozen=True)
class Evaluation:
    """Metrics of a prediction (``metrics``) and of each of its scores (``scores``); undefined ones are None.

    ``curves`` holds what a page draws; ``marks`` what the diagnostics find (``bench.marks`` explains them).
    """

    headline: str
    metrics: Numbers
    scores: dict[str, Numbers]
    curves: dict[str, dict[str, Any]]
    marks: tuple[str, ...]

    def __str__(self) -> str:
        lines = []
        for name, values in self.scores.items():
            found = (f"{key} {value:.3f}" for key, value in values.items() if value is not None)
            lines.append(f"{name:10s} {'  '.join(found)}")
        known = [f"{key} {value:.3f}" for key, value in self.metrics.items() if value is not None]
        marks = (f"! {mark}: {MARKS[mark].meaning}; {MARKS[mark].advice}" for mark in self.marks)
        return "\n".join([*lines, *(["  ".join(known)] if known else []), *marks])


def evaluate(prediction: Prediction, task: Task, part: Literal["test", "validation"] = "test") -> Evaluation:
    """Judge a prediction on the nodes of a part, all of which it must hold.

    How well each score finds OOD nodes (the positives) and wrong ones; how well classes, probabilities and credal sets
    fit the ID nodes.
    """
    if part not in ("test", "validation"):
        raise ValueError(f"unknown part {part!r}: choose 'test' or 'validation'")
    truth = getattr(task, part)
    if bool(truth.is_ood.all()) or not bool(truth.is_ood.any()):
        raise ValueError(f"the {part} part has only {'OOD' if truth.is_ood.any() else 'ID'} nodes; both are needed")
    return _judged(prediction, task, truth, part)


def evaluate_known(prediction: Prediction, task: Task) -> Evaluation:
    """Judge a prediction on the ID validation nodes alone, as the sealed protocol may; nothing is said of OOD nodes."""
    part = task.validation
    known = ~part.is_ood
    truth = Part(part.nodes[known], part.labels[known], part.is_ood[known])
    return _judged(prediction, task, truth, "validation")


def _judged(prediction: Prediction, task: Task, truth: Part, part: str) -> Evaluation:
    rows = rows_of_part(prediction, truth, part)
    is_ood, known = truth.is_ood.numpy(), ~truth.is_ood
    labels, chosen = truth.labels[known], rows[known]
    wrong: Array | None = None
    metrics: Numbers = dict.fromkeys(("accuracy", "macro_f1", "nll", "brier", "ece"))
    if prediction.probabilities is not None:
        metrics.update(_classification(prediction.probabilities[chosen], labels))
        wrong = (prediction.classes[chosen] != labels).numpy()
    credal = prediction.credal
    if credal is not None:
        metrics.update(_credal(prediction, credal, rows, known, labels))
    scores, curves = {}, {"roc": {}, "rejection": {}, "histogram": {}}  # type: ignore[var-annotated]
    for name, values in prediction.scores.items():
        score = values[rows].numpy()
        scores[name], curves["roc"][name] = _detection(score, is_ood)
        curves["histogram"][name] = _histogram(score, is_ood)
        if wrong is not None:
            found, curves["rejection"][name] = _rejection(score[known.numpy()], wrong)
            scores[name].update(found)
    marks = diagnose(prediction, rows, metrics, labels, task)
    return Evaluation(prediction.headline, metrics, scores, curves, marks)


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


def _detection(score: Array, is_ood: Array) -> tuple[Numbers, list[float]]:
    from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

    if not is_ood.any():
        return dict.fromkeys(("auroc", "aupr", "fpr95", "misclassification_auroc", "aurc")), []
    false, true, _ = roc_curve(is_ood, score, drop_intermediate=False)
    numbers: Numbers = {
        "auroc": float(roc_auc_score(is_ood, score)),
        "aupr": float(average_precision_score(is_ood, score)),
        "fpr95": float(false[np.argmax(true >= 0.95)]),
        "misclassification_auroc": None,
        "aurc": None,
    }
    return numbers, _short(np.interp(ROC_GRID, false, true))


def _classification(probabilities: Tensor, labels: Tensor) -> Numbers:
    from sklearn.metrics import f1_score

    p, count = probabilities.double(), probabilities.shape[-1]
    confidence, predicted = p.max(-1)
    right = (predicted == labels).double()
    bins = (confidence * 15).long().clamp_max(14)
    gaps = torch.zeros(15, dtype=torch.float64).index_add_(0, bins, right - confidence).abs()
    one_hot = torch.nn.functional.one_hot(labels, count)
    return {
        "accuracy": right.mean().item(),
        "macro_f1": float(
            f1_score(labels.numpy(), predicted.numpy(), labels=range(count), average="macro", zero_division=0)
        ),
        "nll": -p.gather(-1, labels[:, None]).clamp_min(torch.finfo(p.dtype).tiny).log().mean().item(),
        "brier": (p - one_hot).square().sum(-1).mean().item(),
        "ece": (gaps.sum() / len(labels)).item(),
    }


def _credal(prediction: Prediction, credal: CredalSet, rows: Tensor, known: Tensor, labels: Tensor) -> Numbers:
    """Widths over all nodes of the part, and of a typical ID and OOD node; all else over its ID nodes."""
    chosen, width = rows[known], credal.width[rows]
    widest = width.amax(-1)
    numbers: Numbers = {
        **{f"accuracy_{by}": _share(prediction.classify(by)[chosen] == labels) for by in ("lower", "upper")},
        "width": width.mean().item(),
        "widest": _median(widest),
        "widest_id": _median(widest[known]),
        "widest_ood": _median(widest[~known]),
    }
    sets = credal.take(chosen)
    kept = {name: rule(sets) for name, rule in RULES.items()}
    for name, classes in kept.items():
        numbers[f"size_{name}"] = classes.sum(-1).double().mean().item()
        numbers[f"coverage_{name}"] = _share(classes.gather(-1, labels[:, None]))
    admissible = kept["e_admissibility"]
    numbers["u65"], numbers["u80"] = u65(admissible, labels).mean().item(), u80(admissible, labels).mean().item()
    return numbers


def _median(values: Tensor) -> float | None:
    return float(np.median(values.numpy())) if len(values) else None


def _share(yes: Tensor) -> float:
    return yes.double().mean().item()


def _rejection(score: Array, wrong: Array) -> tuple[Numbers, list[float]]:
    """Error and accuracy when the most uncertain are rejected; nodes with the same score share their mean error."""
    from sklearn.metrics import roc_auc_score

    _, group, sizes = np.unique(score, return_inverse=True, return_counts=True)
    shared = np.bincount(group, weights=wrong) / sizes
    risk = np.cumsum(shared[np.sort(group)]) / np.arange(1, len(wrong) + 1)
    steps = np.arange(REJECTION_STEPS, 0, -1)  # in whole numbers, so that halves are rounded up everywhere
    kept = np.maximum((steps * len(wrong) + REJECTION_STEPS // 2) // REJECTION_STEPS, 1)
    both = 0 < wrong.sum() < len(wrong)
    numbers: Numbers = {
        "misclassification_auroc": float(roc_auc_score(wrong, score)) if both else None,
        "aurc": float(risk.mean()),
    }
    return numbers, _short(1.0 - risk[kept - 1])


def _histogram(score: Array, is_ood: Array) -> dict[str, list[float]]:
    edges = np.linspace(score.min(), score.max(), BINS + 1)
    if not bool((np.diff(edges) > 0).all()):  # all the same, or nearly
        edges = score[0] + np.linspace(-0.5, 0.5, BINS + 1)
    known, strange = (np.histogram(score[which], edges)[0] for which in (~is_ood, is_ood))
    return {"edges": edges.tolist(), "id": known.tolist(), "ood": strange.tolist()}


def _short(values: Array) -> list[float]:
    """Enough digits to draw."""
    return [round(float(value), 5) for value in values]
