"""Whether credal sets say anything. Closed and saturated sets are told by the rules here, and by no others.

Methods warn of them (``CredalWarning``), and a benchmark marks them, on the nodes of its test part.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from .prediction import Prediction

OPEN = 0.05  # an interval wider than this is open
FEW = 0.05  # at most this share of the nodes has an open interval, if the sets are closed,
LITTLE = 0.1  # and EU is at most this share of TU: a model may be sure of all its nodes, but not close where it doubts
TOP = 1e-3  # bits; TU this near to log2 C is at it
NEARLY_ALL = 0.9  # a larger share of the nodes has TU there, if the sets are saturated
ENOUGH = 20  # fewer nodes are no reason to warn
SAMPLE = 2_000  # nodes at most that a method looks at when it has been fitted


class CredalWarning(UserWarning):
    """The credal sets of a method say nothing; the message names what is wrong and what to do."""


class Finding(NamedTuple):
    """What is wrong, and what to do about it."""

    meaning: str
    advice: str


FINDINGS = {
    "narrow": Finding(
        f"closed intervals: at most {100 * FEW:g} % of the nodes have one wider than {OPEN}, and EU is at most "
        f"{100 * LITTLE:g} % of TU",
        "EU is the order of tiny numbers: use credal-coverage, whose widths come from where labels are, or go by TU",
    ),
    "saturated": Finding(
        f"TU is within {TOP} bits of log2 C on over {100 * NEARLY_ALL:g} % of the nodes",
        "TU says nothing, and EU is log2 C - AU: read the two as one score, or narrow the intervals by longer "
        "training, a larger delta or a lower half_length_decay",
    ),
}


def findings(prediction: Prediction, rows: Tensor | None = None) -> tuple[str, ...]:
    """Which of ``FINDINGS`` hold for a prediction.

    Args:
        prediction: The prediction.
        rows: Those of its rows that count; by default all.
    """
    chosen = slice(None) if rows is None else rows
    scores = {name: values[chosen] for name, values in prediction.scores.items()}
    names = []
    if prediction.credal is not None:
        widest = prediction.credal.width.amax(-1)[chosen]
        sure = not {"EU", "TU"} <= set(scores) or bool(scores["EU"].sum() <= LITTLE * scores["TU"].sum())
        if sure and _share(widest > OPEN) <= FEW:
            names.append("narrow")
    if "TU" in scores and _share((scores["TU"] - math.log2(len(prediction.class_names))).abs() <= TOP) > NEARLY_ALL:
        names.append("saturated")
    return tuple(names)


def complaint_about(prediction: Prediction) -> str:
    """What to warn of, in a line; nothing where the credal sets say something, or nodes are too few to tell.

    Args:
        prediction: The prediction.
    """
    if prediction.credal is None or len(prediction.nodes) < ENOUGH:
        return ""
    return "; ".join(f"{FINDINGS[name].meaning}; {FINDINGS[name].advice}" for name in findings(prediction))


def sample(count: int, trained: Tensor) -> Tensor:
    """Some nodes, evenly spread: of those that were not trained on, unless they are too few.

    Args:
        count: How many nodes there are.
        trained: The nodes trained on.
    """
    known = torch.zeros(count, dtype=torch.bool)
    known[trained] = True
    others = (~known).nonzero().squeeze(1)
    nodes = others if len(others) >= ENOUGH else torch.arange(count)
    return nodes[:: max(1, -(-len(nodes) // SAMPLE))]


def _share(yes: Tensor) -> float:
    return yes.double().mean().item()
