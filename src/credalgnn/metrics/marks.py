"""Marks: what the diagnostics find in a run although its AUROC may be high, and what follows from it.

``MARKS`` is the one table of them; records hold names, and whatever is shown or ranked is looked up here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from ..methods import Prediction
from ..methods.diagnostics import FINDINGS, findings
from ..methods.given import EvalProtocol


@dataclass(frozen=True)
class Mark:
    """One mark.

    Attributes:
        letter: In tables.
        meaning: What the run does.
        advice: What to do about it.
        disqualifies: The protocols under which it takes a row out of the ranking.
    """

    letter: str
    meaning: str
    advice: str
    disqualifies: tuple[EvalProtocol, ...] = ("sealed", "paper")


# A model that does not classify, or whose headline score is the order of numbers that are nothing, is not ranked. One
# whose scores are each other's image has one honest score, as long as nobody who saw OOD nodes chose its sign.
MARKS = {
    "few-classes": Mark(
        "F",
        "predicts fewer than half of the ID classes",
        "it is no classifier: look at its training curve, and train it longer or with a lower weight_decay",
    ),
    "majority": Mark(
        "M",
        "is not better than always saying the most frequent class",
        "it is no classifier: look at its training curve, and train it longer or with a lower weight_decay",
    ),
    "narrow": Mark("N", *FINDINGS["narrow"]),
    "saturated": Mark("S", *FINDINGS["saturated"], disqualifies=("paper",)),
    "mirror": Mark(
        "A",
        "AU and EU order the nodes alike, or exactly the other way round (|Spearman| above 0.95)",
        "they are one score, perhaps with its sign changed; ask who chose the sign before taking the better of the two",
        disqualifies=("paper",),
    ),
    "edited": Mark(
        "E",
        "was measured otherwise: a person has changed its record",
        "the record says why (`edited`); delete it, and the benchmark measures the run again",
    ),
}


def disqualifies(mark: str, protocol: str) -> bool:
    """Whether a mark takes a row out of the ranking; one that is not known here does."""
    return mark not in MARKS or protocol in MARKS[mark].disqualifies


def diagnose(
    prediction: Prediction, rows: Tensor, metrics: Mapping[str, float | None], labels: Tensor, frequent: int
) -> tuple[str, ...]:
    """The marks of a prediction on some nodes.

    Args:
        prediction: The prediction.
        rows: Its rows of these nodes.
        metrics: Of these nodes.
        labels: Of those of known classes.
        frequent: The class that one would always say who knows nothing of a node.
    """
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
