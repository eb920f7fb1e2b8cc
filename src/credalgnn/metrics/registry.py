"""Registry of metrics and of diagnostic marks: computation, label, direction and meaning.

Records store metrics by key; tables, pages and docs/benchmark.md take everything else from here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, Literal, TypeAlias, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..methods import Prediction
from ..methods.diagnostics import FINDINGS, findings
from ..methods.training_data import EvalProtocol
from ..sets import CredalSet, e_admissibility, interval_dominance, maximality, u65, u80

Array: TypeAlias = NDArray[Any]
CALIBRATION_BINS = 15
ROUNDING = 1e-9  # rounding error of means over many nodes
RULES: dict[str, Callable[[CredalSet], Tensor]] = {
    "interval_dominance": interval_dominance,
    "maximality": maximality,
    "e_admissibility": e_admissibility,
}


@dataclass(frozen=True, eq=False)
class ScoredNodes:
    """One score of the nodes of a part, higher = more uncertain.

    ``wrong`` marks the misclassified of the ID nodes, ``is_shifted`` the nodes that a shift of the task has changed.
    """

    score: Array
    is_ood: Array
    wrong: Array | None
    is_shifted: Array | None = None

    @cached_property
    def roc(self) -> tuple[Array, Array]:
        """False and true positive rates at all thresholds, OOD nodes being the positives."""
        from sklearn.metrics import roc_curve

        false, true, _ = roc_curve(self.is_ood, self.score, drop_intermediate=False)
        return false, true

    @cached_property
    def risk(self) -> Array:
        """Error rate of the i + 1 most certain ID nodes; tied nodes share their mean error."""
        assert self.wrong is not None
        _, group, sizes = np.unique(self.score[~self.is_ood], return_inverse=True, return_counts=True)
        shared = np.bincount(group, weights=self.wrong) / sizes
        risk: Array = np.cumsum(shared[np.sort(group)]) / np.arange(1, len(self.wrong) + 1)
        return risk


@dataclass(frozen=True, eq=False)
class ClassifiedNodes:
    """Probabilities ``[N, C]`` and labels of the ID nodes of a part."""

    probabilities: Tensor
    labels: Tensor

    @cached_property
    def predicted(self) -> Tensor:
        return self.probabilities.max(-1).indices

    @cached_property
    def right(self) -> Tensor:
        return (self.predicted == self.labels).double()


@dataclass(frozen=True, eq=False)
class CredalNodes:
    """Credal sets of the nodes of a part: ``rows`` of the prediction, a mask of the ID nodes, and their labels."""

    prediction: Prediction
    rows: Tensor
    is_id: Tensor
    labels: Tensor

    @cached_property
    def credal(self) -> CredalSet:
        assert self.prediction.credal is not None
        return self.prediction.credal

    @cached_property
    def width(self) -> Tensor:
        return self.credal.width[self.rows]

    @cached_property
    def widest(self) -> Tensor:
        return self.width.amax(-1)

    @cached_property
    def kept(self) -> dict[str, Tensor]:
        """Classes of ID nodes that each decision rule keeps."""
        sets = self.credal.take(self.rows[self.is_id])
        return {name: rule(sets) for name, rule in RULES.items()}

    def accuracy(self, by: Literal["lower", "upper"]) -> float:
        return _share(self.prediction.classify(by)[self.rows[self.is_id]] == self.labels)


Nodes = TypeVar("Nodes", ScoredNodes, ClassifiedNodes, CredalNodes)


@dataclass(frozen=True)
class Metric(Generic[Nodes]):
    """Metric of one kind of input (``ScoredNodes``, ``ClassifiedNodes`` or ``CredalNodes``).

    Attributes:
        key: Key in records and tables of all metrics.
        label: Column header.
        meaning: Meaning in a few words.
        compute: Function of the nodes of a part; None where the metric is undefined.
        better: 1 if larger is better, -1 if smaller is, 0 if neither; default 1.
        percent: Show in per cent; default True.
        shown: Give it a column in tables and pages; default True.
        highest: Largest possible value; the smallest is 0; default 1.

    Example:
        >>> METRICS["auroc"].label
        'AUROC'
    """

    key: str
    label: str
    meaning: str
    compute: Callable[[Nodes], float | None]
    better: Literal[-1, 0, 1] = 1
    percent: bool = True
    shown: bool = True
    highest: float = 1.0

    def can_be(self, value: float) -> bool:
        """Test whether a value is possible for the metric, up to rounding.

        Args:
            value: Value to test.
        """
        return -ROUNDING <= value <= self.highest + ROUNDING


def _share(yes: Tensor) -> float:
    return yes.double().mean().item()


def _median(values: Tensor) -> float | None:
    return float(np.median(values.numpy())) if len(values) else None


def _auroc_of(positive: Array, score: Array) -> float | None:
    """AUROC of a score for positives; None without both kinds."""
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(positive, score)) if 0 < positive.sum() < len(positive) else None


def _auroc(nodes: ScoredNodes) -> float | None:
    return _auroc_of(nodes.is_ood, nodes.score)


def _aupr(nodes: ScoredNodes) -> float | None:
    from sklearn.metrics import average_precision_score

    return float(average_precision_score(nodes.is_ood, nodes.score)) if nodes.is_ood.any() else None


def _fpr95(nodes: ScoredNodes) -> float | None:
    if not nodes.is_ood.any():
        return None
    false, true = nodes.roc
    return float(false[np.argmax(true >= 0.95)])


def _misclassification_auroc(nodes: ScoredNodes) -> float | None:
    return None if nodes.wrong is None else _auroc_of(nodes.wrong, nodes.score[~nodes.is_ood])


def _shifted_auroc(nodes: ScoredNodes) -> float | None:
    is_id = ~nodes.is_ood
    return None if nodes.is_shifted is None else _auroc_of(nodes.is_shifted[is_id], nodes.score[is_id])


def _aurc(nodes: ScoredNodes) -> float | None:
    return None if nodes.wrong is None else float(nodes.risk.mean())


def _macro_f1(nodes: ClassifiedNodes) -> float:
    from sklearn.metrics import f1_score

    labels, predicted, classes = nodes.labels.numpy(), nodes.predicted.numpy(), range(nodes.probabilities.shape[-1])
    return float(f1_score(labels, predicted, labels=classes, average="macro", zero_division=0))


def _nll(nodes: ClassifiedNodes) -> float:
    p = nodes.probabilities
    return -p.gather(-1, nodes.labels[:, None]).clamp_min(torch.finfo(p.dtype).tiny).log().mean().item()


def _brier(nodes: ClassifiedNodes) -> float:
    one_hot = torch.nn.functional.one_hot(nodes.labels, nodes.probabilities.shape[-1])
    return (nodes.probabilities - one_hot).square().sum(-1).mean().item()


def _ece(nodes: ClassifiedNodes) -> float:
    confidence = nodes.probabilities.amax(-1)
    bins = (confidence * CALIBRATION_BINS).long().clamp_max(CALIBRATION_BINS - 1)
    gaps = torch.zeros(CALIBRATION_BINS, dtype=torch.float64).index_add_(0, bins, nodes.right - confidence).abs()
    return (gaps.sum() / len(nodes.labels)).item()


def _size(rule: str) -> Callable[[CredalNodes], float]:
    return lambda nodes: nodes.kept[rule].sum(-1).double().mean().item()


def _coverage(rule: str) -> Callable[[CredalNodes], float]:
    return lambda nodes: _share(nodes.kept[rule].gather(-1, nodes.labels[:, None]))


OF_SCORES: tuple[Metric[ScoredNodes], ...] = (
    Metric(
        "auroc", "AUROC",
        "how well the score tells OOD from ID nodes: the chance that an OOD node scores higher; 50 is guessing", _auroc,
    ),
    Metric(
        "aupr", "AUPR",
        "area under precision and recall, OOD nodes being positive; the share of OOD nodes is guessing", _aupr,
    ),
    Metric(
        "fpr95", "FPR95",
        "share of ID nodes raised as OOD when 95 % of the OOD nodes are caught: the least FPR at which they are",
        _fpr95, better=-1,
    ),
    Metric(
        "misclassification_auroc", "wrong AUROC",
        "how well the score tells misclassified ID nodes from the others", _misclassification_auroc,
    ),
    Metric(
        "aurc", "AURC",
        "mean error rate of the i most certain ID nodes over all i; tied nodes share their mean error", _aurc,
        better=-1,
    ),
    Metric(
        "shifted_auroc", "shifted AUROC",
        "how well the score tells ID nodes that a shift has changed (`Task.shifted_nodes`) from the others",
        _shifted_auroc, shown=False,
    ),
)  # fmt: skip

OF_CLASSES: tuple[Metric[ClassifiedNodes], ...] = (
    Metric("accuracy", "accuracy", "of ID nodes; equals the paper's micro F1", lambda nodes: nodes.right.mean().item()),
    Metric("macro_f1", "macro F1", "mean over the classes of F1, ID nodes", _macro_f1),
    Metric(
        "nll", "NLL", "negative log-likelihood of the true class in nats, ID nodes", _nll,
        better=-1, percent=False, highest=math.inf,
    ),
    Metric(
        "brier", "Brier", "squared error of the probabilities, ID nodes", _brier,
        better=-1, percent=False, highest=2.0,
    ),
    Metric("ece", "ECE", f"expected calibration error, {CALIBRATION_BINS} bins, ID nodes", _ece, better=-1),
)  # fmt: skip

OF_CREDAL_SETS: tuple[Metric[CredalNodes], ...] = (
    *(
        Metric(
            f"accuracy_{by}", f"accuracy ({by})", f"of ID nodes, when the class is the largest {by} probability",
            lambda nodes, by=by: nodes.accuracy(by), shown=False,  # type: ignore[misc]
        )
        for by in ("lower", "upper")
    ),
    Metric(
        "width", "width", "mean width of all probability intervals of the nodes",
        lambda nodes: nodes.width.mean().item(), better=0, percent=False,
    ),
    Metric(
        "widest", "widest", "widest interval of a typical (median) node", lambda nodes: _median(nodes.widest),
        better=0, percent=False, shown=False,
    ),
    Metric(
        "widest_id", "widest ID", "widest interval of a typical (median) node of a known class",
        lambda nodes: _median(nodes.widest[nodes.is_id]), better=0, percent=False,
    ),
    Metric(
        "widest_ood", "widest OOD", "widest interval of a typical (median) node of a class never seen: wide is honest",
        lambda nodes: _median(nodes.widest[~nodes.is_id]), better=0, percent=False,
    ),
    *(
        metric
        for rule in RULES
        for metric in (
            Metric(
                f"size_{rule}", f"classes ({rule})",
                "mean number of classes that the rule keeps, ID nodes",
                _size(rule), better=-1, percent=False, shown=False, highest=math.inf,
            ),
            Metric(
                f"coverage_{rule}", f"coverage ({rule})", "share of ID nodes whose class the rule keeps",
                _coverage(rule), shown=False,
            ),
        )
    ),
    Metric(
        "u65", "u65", "utility of the E-admissible classes, discounted: 0.65 for the right one of two, ID nodes",
        lambda nodes: u65(nodes.kept["e_admissibility"], nodes.labels).mean().item(), percent=False, shown=False,
    ),
    Metric(
        "u80", "u80", "utility of the E-admissible classes, discounted: 0.80 for the right one of two, ID nodes",
        lambda nodes: u80(nodes.kept["e_admissibility"], nodes.labels).mean().item(), percent=False, shown=False,
    ),
)  # fmt: skip

_COLUMNS: tuple[Metric[Any], ...] = (*OF_SCORES[:3], *OF_CLASSES, *OF_SCORES[3:], *OF_CREDAL_SETS)  # in their order
METRICS: dict[str, Metric[Any]] = {metric.key: metric for metric in _COLUMNS}


@dataclass(frozen=True)
class Mark:
    """Diagnostic mark.

    Attributes:
        letter: Letter in tables.
        meaning: Finding, as a predicate of the run.
        advice: Remedy.
        disqualifies: Protocols under which the mark takes a row out of the ranking.
    """

    letter: str
    meaning: str
    advice: str
    disqualifies: tuple[EvalProtocol, ...] = ("sealed", "paper")


# A model that does not classify, or whose headline score orders numerical noise, is not ranked. Mirrored scores are one
# honest score, as long as its sign was not chosen by looking at OOD nodes.
MARKS = {
    "few-classes": Mark(
        "F",
        "predicts fewer than half of the ID classes",
        "it does not classify: look at its training curve, and train it longer or with a lower weight_decay",
    ),
    "majority": Mark(
        "M",
        "is not better than always predicting the most frequent class",
        "it does not classify: look at its training curve, and train it longer or with a lower weight_decay",
    ),
    "narrow": Mark("N", *FINDINGS["narrow"]),
    "saturated": Mark("S", *FINDINGS["saturated"], disqualifies=("paper",)),
    "mirror": Mark(
        "A",
        "AU and EU order the nodes alike, or exactly the other way round (|Spearman| above 0.95)",
        "they are one score, up to its sign; check that the sign was fixed before OOD nodes were seen",
        disqualifies=("paper",),
    ),
    "edited": Mark(
        "E",
        "was edited: its record was changed by hand",
        "the field `edited` of the record gives the reason; delete the record to measure the run again",
    ),
}


def disqualifies(mark: str, protocol: str) -> bool:
    """Test whether a mark takes a row out of the ranking; an unknown mark does."""
    return mark not in MARKS or protocol in MARKS[mark].disqualifies


def diagnose(
    prediction: Prediction, rows: Tensor, metrics: Mapping[str, float | None], labels: Tensor, frequent: int
) -> tuple[str, ...]:
    """Return the marks of some rows of a prediction; ``frequent`` is the majority class of the training nodes."""
    result = set(findings(prediction, rows))
    if prediction.probabilities is not None:
        if 2 * len(set(prediction.classes[rows].tolist())) < len(prediction.class_names):
            result.add("few-classes")
        if (metrics["accuracy"] or 0.0) <= (labels == frequent).double().mean().item():
            result.add("majority")
    if {"AU", "EU"} <= set(prediction.scores) and _mirrored(*(prediction.scores[name][rows] for name in ("AU", "EU"))):
        result.add("mirror")
    return tuple(name for name in MARKS if name in result)


def _mirrored(one: Tensor, other: Tensor) -> bool:
    from scipy.stats import rankdata

    ranks = [rankdata(score.numpy()) for score in (one, other)]
    return all(np.ptp(rank) > 0 for rank in ranks) and bool(abs(np.corrcoef(ranks)[0, 1]) > 0.95)
