"""What the authors' runs computed in place of the paper's equations: softmax, lower entropy, hull and scores."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ...sets import IntervalSet


def log_midpoint_softmax(lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    """Logarithms of lower and upper probabilities, the other classes at their midpoints.

    Args:
        lower: Lower logits ``[N, C]``.
        upper: Upper logits.
    """
    middle = (lower + upper) / 2
    own = torch.eye(middle.shape[-1], dtype=torch.bool, device=middle.device)
    others = middle[..., None, :].masked_fill(own, -torch.inf).logsumexp(-1)
    logs = [torch.nn.functional.logsigmoid(logits - others) for logits in (lower, upper)]
    return logs[0], logs[1]


def midpoint_softmax(lower: Tensor, upper: Tensor) -> IntervalSet:
    """The credal sets of these bounds, tightened.

    Args:
        lower: Lower logits ``[N, C]``.
        upper: Upper logits.
    """
    low, up = log_midpoint_softmax(lower, upper)
    return IntervalSet(low.exp(), up.exp()).reachable()


def greedy_lower_entropy(credal: IntervalSet) -> Tensor:
    """The entropy, in bits, after one pour: what lower bounds leave goes to the classes with the largest upper bounds.

    That is a distribution of the set, and so no smaller than the lower entropy.

    Args:
        credal: The credal sets ``[N, C]``.
    """
    upper, order = credal.upper.double().sort(-1, descending=True)
    lower = credal.lower.double().gather(-1, order)
    room = upper - lower
    left = 1.0 - lower.sum(-1, keepdim=True) - (room.cumsum(-1) - room)
    p = lower + left.clamp_min(0.0).minimum(room)
    return -torch.xlogy(p, p).sum(-1) / math.log(2.0)


def box(members: Tensor) -> IntervalSet:
    """All distributions between the least and the largest probability that members give a class.

    Args:
        members: The members' class probabilities ``[M, N, C]``.
    """
    return IntervalSet(members.amin(0), members.amax(0))


def saturated(score: Tensor) -> Tensor:
    """Scores as an AUROC sees them that takes whatever is outside of [0, 1] for logits, in float32.

    Args:
        score: The scores ``[N]``.
    """
    single = score.float()
    if bool(((single >= 0.0) & (single <= 1.0)).all()):
        return score
    return single.sigmoid()
