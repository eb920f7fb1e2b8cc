"""Prediction sets: the classes that stay in question, so that the true one is among them as often as promised."""

from __future__ import annotations

import math

import torch
from torch import Tensor

ROUNDING = 1e-9  # (n + 1) * coverage may be off by so much where it should be an integer


def nonconformity(upper: Tensor) -> Tensor:
    """How badly each class fits each node: one minus the upper probability of the class, ``[N, C]``, float64.

    A wider credal set has higher upper probabilities, so at one threshold it never has fewer classes in its prediction
    set. For a method that is not credal the upper probability is the probability itself: the score of Sadinle, Lei and
    Wasserman (2019), LAC or THR in other libraries. What was weighed against it is in docs/guarantee.md.

    Args:
        upper: Upper probabilities of the classes ``[N, C]``; of a method that is not credal, its probabilities.
    """
    return 1.0 - _rows("upper", upper)


def threshold(calibration: Tensor, coverage: float) -> float:
    """The nonconformity up to which classes are kept: the ceil((n + 1) coverage)-th smallest of n calibration nodes.

    A node that is exchangeable with the calibration nodes then keeps its true class with probability at least
    ``coverage``, over the draw of calibration nodes and node together, whatever the model is worth. With too few
    calibration nodes (``needed(1 - coverage)`` says how many are needed) it is infinite: all classes are kept.

    Args:
        calibration: Nonconformity of the *true* class of each calibration node ``[n]``.
        coverage: How often the true class is to be among those kept, above 0 and below 1.
    """
    if not 0.0 < coverage < 1.0:
        raise ValueError(f"coverage must be above 0 and below 1, not {coverage}")
    scores = torch.as_tensor(calibration).double()
    if scores.dim() != 1 or bool(scores.isnan().any()):
        raise ValueError(f"calibration must be one number a node, none of them NaN; its shape is {list(scores.shape)}")
    rank = max(1, math.ceil((len(scores) + 1) * coverage - ROUNDING))
    return float(scores.kthvalue(rank).values) if rank <= len(scores) else math.inf


def prediction_sets(nonconformity: Tensor, threshold: float, probabilities: Tensor) -> Tensor:
    """The classes that stay in question, boolean ``[N, C]``; the most probable class is always one of them.

    An empty set would be valid as well, and confusing: to keep the most probable class only raises the coverage.

    Args:
        nonconformity: Of each class of each node ``[N, C]``.
        threshold: Up to which classes are kept.
        probabilities: Of the classes ``[N, C]``.
    """
    scores, point = _rows("nonconformity", nonconformity), _rows("probabilities", probabilities)
    if scores.shape != point.shape:
        raise ValueError(f"nonconformity is {list(scores.shape)} and probabilities {list(point.shape)}: not the same")
    return (scores <= threshold).scatter(-1, point.argmax(-1, keepdim=True), True)


def _rows(name: str, values: Tensor) -> Tensor:
    values = torch.as_tensor(values).double()
    if values.dim() != 2 or not values.shape[1]:
        raise ValueError(f"{name} must be [N, C], one number a node and class, not of shape {list(values.shape)}")
    bad = values.isnan().nonzero()
    if len(bad):
        raise ValueError(f"{name}: NaN at row {int(bad[0, 0])}, class {int(bad[0, 1])}")
    return values
