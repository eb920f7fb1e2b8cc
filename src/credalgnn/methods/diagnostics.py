"""Whether credal sets say anything. Closed and saturated ones are found by the rules here, and by no others."""

from __future__ import annotations

import math
from typing import NamedTuple

from torch import Tensor

from .prediction import Prediction, intervals_of

OPEN = 0.05  # an interval wider than this is open
FEW = 0.05  # at most this share of the nodes has an open interval, if the sets are closed,
LITTLE = 0.1  # and EU is at most this share of TU: a model may be sure of all its nodes, but not close where it doubts
TOP = 1e-3  # bits; TU this near to log2 C is at it
NEARLY_ALL = 0.9  # a larger share of the nodes has TU there, if the sets are saturated


class Finding(NamedTuple):
    """What is wrong, and what to do about it."""

    meaning: str
    advice: str


FINDINGS = {
    "narrow": Finding(
        f"closed intervals: at most {100 * FEW:g} % of the nodes have one wider than {OPEN}, and EU is at most "
        f"{100 * LITTLE:g} % of TU",
        "EU is the order of tiny numbers; go by TU, or use credal-ensemble, whose intervals stay open",
    ),
    "saturated": Finding(
        f"TU is within {TOP} bits of log2 C on over {100 * NEARLY_ALL:g} % of the nodes",
        "TU tells nothing, and EU is log2 C - AU, so read the two as one score; a lower weight_decay or a larger delta "
        "narrows the intervals",
    ),
}


def findings(prediction: Prediction, rows: Tensor | None = None) -> tuple[str, ...]:
    """Which of ``FINDINGS`` hold for a prediction, or for some rows of it."""
    chosen = slice(None) if rows is None else rows
    scores = {name: values[chosen] for name, values in prediction.scores.items()}
    found = []
    if prediction.credal is not None:
        widest = intervals_of(prediction.credal).width.amax(-1)[chosen]
        sure = not {"EU", "TU"} <= set(scores) or bool(scores["EU"].sum() <= LITTLE * scores["TU"].sum())
        if sure and _share(widest > OPEN) <= FEW:
            found.append("narrow")
    if "TU" in scores and _share((scores["TU"] - math.log2(len(prediction.class_names))).abs() <= TOP) > NEARLY_ALL:
        found.append("saturated")
    return tuple(found)


def _share(yes: Tensor) -> float:
    return yes.double().mean().item()
