"""Conformal p-values and flags, and prediction sets with guaranteed coverage."""

from __future__ import annotations

import math

import torch
from torch import Tensor

ROUNDING = 1e-12  # relative error of fdr * k / m where p equals it exactly


def p_values(calibration: Tensor, scores: Tensor, groups: tuple[Tensor, Tensor] | None = None) -> Tensor:
    """Return p-values (1 + number of calibration scores as high or higher) / (1 + number of calibration scores).

    If a node is exchangeable with the calibration nodes, its p-value is at most alpha with probability at most alpha,
    for every alpha and any number of calibration nodes, over the draw of calibration nodes and node together. Ties
    count as higher, so they make p-values larger and never void the guarantee. Nodes are exchangeable if they played
    the same part in computing the scores and differ by chance alone.

    With groups (Mondrian), every node is compared with the calibration nodes of its group, and the guarantee holds in
    each group separately. A group must be known for a node of unknown class as well, and mean the same for both: use
    the *predicted* class of both. The true class of calibration nodes with the predicted class of the others guarantees
    nothing. In a group without calibration nodes all p-values are 1.

    Args:
        calibration: Scores of the calibration nodes ``[n]``, higher where a node is less familiar.
        scores: Scores of the nodes to test ``[m]``.
        groups: Integer groups of the calibration nodes ``[n]`` and of the nodes to test ``[m]``; default None.
    """
    calibration, scores = _numbers("calibration", calibration), _numbers("scores", scores)
    if not len(calibration):
        raise ValueError("calibration is empty: pass the scores of at least one calibration node")
    if groups is None:
        return _compared(calibration, scores)
    calibration_groups, node_groups = (torch.as_tensor(group) for group in groups)
    for name, group, values in (
        ("calibration", calibration_groups, calibration),
        ("scores", node_groups, scores),
    ):
        if group.shape != values.shape:
            raise ValueError(f"groups of shape {list(group.shape)} do not fit {name} of shape {list(values.shape)}")
    result = torch.ones_like(scores)
    for group in torch.unique(node_groups):
        members = node_groups == group
        result[members] = _compared(calibration[calibration_groups == group], scores[members])
    return result


def needed(alpha: float) -> int:
    """Return the least number of calibration nodes with which a p-value can reach alpha: one over alpha, less one.

    Args:
        alpha: False-alarm rate, above 0 and below 1.
    """
    _check_share("alpha", alpha)
    count = max(1, math.floor(1.0 / alpha) - 2)  # below the right one, however 1 / alpha is rounded
    while 1.0 / (count + 1) > alpha:
        count += 1
    return count


def flags(p: Tensor, alpha: float) -> Tensor:
    """Flag the nodes whose p-value is at most alpha; a known node is flagged with probability at most alpha.

    Args:
        p: P-values.
        alpha: False-alarm rate, above 0 and below 1.
    """
    _check_share("alpha", alpha)
    return p <= alpha


def benjamini_hochberg(p: Tensor, fdr: float) -> Tensor:
    """Flag nodes so that the expected share of false alarms among all flags is at most ``fdr``; boolean ``[m]``.

    Flags the k smallest p-values, k being the largest number for which the k-th smallest is at most fdr k / m
    (Benjamini and Hochberg, 1995).

    Conformal p-values share their calibration scores and so are not independent. The guarantee still holds where
    they depend positively on each other (PRDS): for scores by a model that saw neither calibration nodes nor the tested
    nodes (Bates et al., 2023), and for scores by a model that saw both but could not tell known nodes of the one kind
    from those of the other (Marandon et al., 2024), as coverage does, for which both are unlabelled. It does not hold
    for nodes selected by their scores beforehand. Pass all tested nodes at once: the share of false alarms among the
    flags of several calls together is not controlled.

    Few flags need many calibration nodes: no p-value of n of them is below 1 / (n + 1), so that k flags among m nodes
    are possible only if n + 1 is at least m / (fdr k).

    Args:
        p: P-values ``[m]`` of all tested nodes.
        fdr: Allowed share of false alarms among the flags, above 0 and below 1.
    """
    _check_share("fdr", fdr)
    p = _numbers("p", p)
    ordered = p.sort().values
    line = fdr * torch.arange(1, len(p) + 1, dtype=p.dtype, device=p.device) / max(1, len(p))
    below = (ordered <= line * (1.0 + ROUNDING)).nonzero().squeeze(-1)
    if not len(below):
        return torch.zeros(len(p), dtype=torch.bool, device=p.device)
    return p <= ordered[below[-1]]


def _compared(calibration: Tensor, scores: Tensor) -> Tensor:
    lower = torch.searchsorted(calibration.sort().values, scores)  # number of lower ones
    return (len(calibration) - lower + 1).double() / (len(calibration) + 1)


def _numbers(name: str, values: Tensor) -> Tensor:
    """Convert to float64 ``[n]`` without NaN."""
    values = torch.as_tensor(values).double()
    if values.dim() != 1:
        raise ValueError(f"{name} must hold one number per node, not shape {list(values.shape)}")
    bad = values.isnan().nonzero()
    if len(bad):
        raise ValueError(f"{name}: number {int(bad[0])} is NaN")
    return values.contiguous()


def _check_share(name: str, value: float) -> None:
    if not 0.0 < value < 1.0:
        raise ValueError(f"{name} must be above 0 and below 1, not {value}")


COUNT_ROUNDING = 1e-9  # error of (n + 1) * coverage where it should be an integer


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
    rank = max(1, math.ceil((len(scores) + 1) * coverage - COUNT_ROUNDING))
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
