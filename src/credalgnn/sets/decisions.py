"""Which classes a credal set leaves in question under 0/1 loss, and what such a set-valued answer is worth.

Three rules, from the most to the least cautious. A class is kept unless

- ``interval_dominance``: another class is certainly at least as probable as this one can ever be,
- ``maximality``: another class is more probable under *every* distribution of the set,
- ``e_admissibility``: under *no* distribution of the set it is a most probable class.

Each keeps a part of what the one above it keeps, and never nothing. Ties keep the class.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ._check import first, place
from .hull import HullSet
from .intervals import IntervalSet

LP_BLOCKS = 256  # linear programs solved in one call
LP_TOLERANCE = 1e-9


def interval_dominance(credal: IntervalSet | HullSet) -> Tensor:
    """Classes whose upper probability reaches every other class's lower probability; boolean ``[..., C]``."""
    lower, upper = _probability_range(credal)
    return upper >= lower.amax(-1, keepdim=True) - _rounding(credal)


def maximality(credal: IntervalSet | HullSet) -> Tensor:
    """Classes that no other class beats under every distribution of the set; boolean ``[..., C]``.

    For intervals this is interval dominance: reachable bounds l_j and u_i of two classes are attained by one and the
    same distribution, so p_j - p_i is positive everywhere exactly if l_j > u_i. For a hull the difference is linear, so
    the members decide.
    """
    kept = interval_dominance(credal)
    if isinstance(credal, HullSet):
        members = credal.members.double()
        for j in range(members.shape[-1]):
            margin = (members[..., j, None] - members).amin(0)  # how far j is ahead, at least
            kept &= margin <= _rounding(credal)
    return kept


def e_admissibility(credal: IntervalSet | HullSet) -> Tensor:
    """Classes that are a most probable one under some distribution of the set; boolean ``[..., C]``.

    For intervals: give class i all it can have, u_i. It is then a most probable class of some distribution exactly if
    no other class must exceed it (l_j <= u_i) and the others, held at u_i or below, can take the rest:
    sum_j min(u_j, u_i) >= 1. For a hull it takes a linear program in the weights of the members, which is only set up
    for classes that no member puts first and that maximality does not rule out.
    """
    kept = maximality(credal)
    if isinstance(credal, IntervalSet):
        _, upper = _probability_range(credal)
        level, order = upper.sort(-1)
        below = level.cumsum(-1) - level  # sum of the smaller ones
        above = torch.arange(upper.shape[-1], 0, -1, device=upper.device)  # how many are at least as large
        room = torch.empty_like(upper).scatter(-1, order, below + above * level)
        return kept & (room >= 1.0 - _rounding(credal))
    members = credal.members.double()
    top = members >= members.amax(-1, keepdim=True) - _rounding(credal)
    sure = top.any(0)
    doubtful = (kept & ~sure).reshape(-1, kept.shape[-1])
    if members.shape[0] > 1 and bool(doubtful.any()):
        rows = members.reshape(members.shape[0], -1, members.shape[-1])
        node, label = doubtful.nonzero(as_tuple=True)
        doubtful[node, label] = _can_lead(rows[:, node].detach().cpu().numpy(), label.cpu().numpy()).to(doubtful.device)
    else:
        doubtful[:] = False
    return sure & kept | doubtful.reshape(kept.shape)


def u65(kept: Tensor, labels: Tensor) -> Tensor:
    """Utility of each set-valued answer: 1 if it is the true class alone, 0 if that is missing, 0.65 for two classes.

    A discount of the accuracy x = 1/size that rewards honest doubt: 1.6 x - 0.6 x^2 (Zaffalon, Corani and Maua, 2012).
    """
    x = _discounted_accuracy(kept, labels)
    return 1.6 * x - 0.6 * x**2


def u80(kept: Tensor, labels: Tensor) -> Tensor:
    """As ``u65`` for somebody more averse to risk, to whom two classes are worth 0.8: 2.2 x - 1.2 x^2."""
    x = _discounted_accuracy(kept, labels)
    return 2.2 * x - 1.2 * x**2


def _rounding(credal: IntervalSet | HullSet) -> float:
    return 4.0 * credal.shape[-1] * torch.finfo(torch.float64).eps


def _probability_range(credal: IntervalSet | HullSet) -> tuple[Tensor, Tensor]:
    """Lower and upper probability of each class over the set, in float64."""
    if isinstance(credal, HullSet):
        members = credal.members.double()
        return members.amin(0), members.amax(0)
    if credal.shape.numel() == 0:
        return credal.lower.double(), credal.upper.double()
    tight = credal.to(torch.float64).reachable()
    return tight.lower, tight.upper


def _can_lead(members: np.ndarray, label: np.ndarray) -> Tensor:
    """Whether some mixture of members [M, K, C] makes class ``label[k]`` a most probable one, for each k.

    Maximise z subject to z <= sum_m w_m (p_m[label] - p_m[j]) for all other j: many small programs in one sparse one.
    """
    from scipy.optimize import linprog
    from scipy.sparse import block_diag

    m, count, classes = members.shape
    leads = np.empty(count, dtype=bool)
    for begin in range(0, count, LP_BLOCKS):
        part = slice(begin, min(begin + LP_BLOCKS, count))
        size = part.stop - begin
        blocks = []
        for k in range(begin, part.stop):
            ahead = members[:, k, label[k], None] - members[:, k]
            others = np.delete(-ahead.T, label[k], axis=0)
            blocks.append(np.hstack([others, np.ones((classes - 1, 1))]))
        solved = linprog(
            np.tile(np.r_[np.zeros(m), -1.0], size),
            A_ub=block_diag(blocks, format="csr"),
            b_ub=np.zeros(size * (classes - 1)),
            A_eq=block_diag([np.r_[np.ones(m), 0.0][None]] * size, format="csr"),
            b_eq=np.ones(size),
            bounds=([(0, None)] * m + [(None, None)]) * size,
            method="highs",
            options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
        )
        if not solved.success:
            raise RuntimeError(f"the linear program for E-admissibility failed: {solved.message}")
        leads[part] = solved.x.reshape(size, m + 1)[:, -1] >= -LP_TOLERANCE
    return torch.from_numpy(leads)


def _discounted_accuracy(kept: Tensor, labels: Tensor) -> Tensor:
    """1/size of each kept set that has the true class, else 0."""
    if kept.dtype != torch.bool:
        raise TypeError(f"kept must be boolean [..., C], the classes not ruled out; it is {kept.dtype}")
    if labels.is_floating_point() or labels.dtype == torch.bool:
        raise TypeError(f"labels must be integers, not {labels.dtype}")
    if kept.dim() == 0 or labels.shape != kept.shape[:-1]:
        raise ValueError(f"labels of shape {list(labels.shape)} do not fit kept of shape {list(kept.shape)}: one a row")
    bad = (labels < 0) | (labels >= kept.shape[-1])
    if bool(bad.any()):
        index = first(bad)
        raise ValueError(
            f"{place(index) or 'labels'}: label {int(labels[index])} is not one of 0..{kept.shape[-1] - 1}"
        )
    hit = kept.gather(-1, labels.long()[..., None]).squeeze(-1)
    return hit / kept.sum(-1).clamp_min(1)
