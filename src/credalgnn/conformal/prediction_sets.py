"""Conformal prediction sets with guaranteed coverage."""

from __future__ import annotations

import math

import torch
from torch import Tensor

ROUNDING = 1e-9  # error of (n + 1) * coverage where it should be an integer


def nonconformity(upper: Tensor) -> Tensor:
    """Return the nonconformity of each class, one minus its upper probability, ``[N, C]``, float64.

    A wider credal set has higher upper probabilities, so at one threshold its prediction set never has fewer classes.
    For a method that is not credal the upper probability is the probability itself: the score of Sadinle, Lei and
    Wasserman (2019), LAC or THR in other libraries. docs/guarantee.md compares alternatives.

    Args:
        upper: Upper probabilities of the classes ``[N, C]``, or the probabilities of a method that is not credal.
    """
    return 1.0 - _rows("upper", upper)


def threshold(calibration: Tensor, coverage: float) -> float:
    """Return the nonconformity up to which classes are kept: the ceil((n + 1) coverage)-th smallest of n.

    A node that is exchangeable with the calibration nodes then keeps its true class with probability at least
    ``coverage``, over the draw of calibration nodes and node together, whatever the quality of the model. With fewer
    than ``needed(1 - coverage)`` calibration nodes it is infinite: all classes are kept.

    Args:
        calibration: Nonconformity of the *true* class of each calibration node ``[n]``.
        coverage: Probability with which the true class is kept, above 0 and below 1.
    """
    if not 0.0 < coverage < 1.0:
        raise ValueError(f"coverage must be above 0 and below 1, not {coverage}")
    scores = torch.as_tensor(calibration).double()
    if scores.dim() != 1 or bool(scores.isnan().any()):
        raise ValueError(f"calibration must hold one number per node and no NaN; its shape is {list(scores.shape)}")
    rank = max(1, math.ceil((len(scores) + 1) * coverage - ROUNDING))
    return float(scores.kthvalue(rank).values) if rank <= len(scores) else math.inf


def prediction_sets(nonconformity: Tensor, threshold: float, probabilities: Tensor) -> Tensor:
    """Return the classes in each prediction set, boolean ``[N, C]``; the most probable class is always one of them.

    An empty set would be valid but confusing, and keeping the most probable class only raises the coverage.

    Args:
        nonconformity: Nonconformity of each class of each node ``[N, C]``.
        threshold: Nonconformity up to which classes are kept.
        probabilities: Probabilities of the classes ``[N, C]``.
    """
    scores, point = _rows("nonconformity", nonconformity), _rows("probabilities", probabilities)
    if scores.shape != point.shape:
        raise ValueError(f"nonconformity is {list(scores.shape)} and probabilities {list(point.shape)}: not the same")
    return (scores <= threshold).scatter(-1, point.argmax(-1, keepdim=True), True)


def _rows(name: str, values: Tensor) -> Tensor:
    values = torch.as_tensor(values).double()
    if values.dim() != 2 or not values.shape[1]:
        raise ValueError(f"{name} must have shape [N, C], one number per node and class, not {list(values.shape)}")
    bad = values.isnan().nonzero()
    if len(bad):
        raise ValueError(f"{name}: NaN at row {int(bad[0, 0])}, class {int(bad[0, 1])}")
    return values
