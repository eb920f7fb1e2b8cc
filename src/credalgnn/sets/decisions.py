"""Which classes a credal set leaves in question under 0/1 loss, and what such a set-valued answer is worth.

Three rules, from the most to the least cautious. A class is kept unless

- ``interval_dominance``: another class is certainly more probable than this one can ever be,
- ``maximality``: another class is more probable under *every* distribution of the set,
- ``e_admissibility``: under *no* distribution of the set it is a most probable class.

Each keeps a part of what the one above it keeps, and never nothing. Ties keep the class.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ._check import first, place
from .hull import HullSet
from .intervals import IntervalSet

LP_BLOCKS = 256  # linear programs solved in one call
LP_TOLERANCE = 1e-9


def interval_dominance(credal: IntervalSet | HullSet) -> Tensor:
    """Classes whose upper probability reaches every other class's lower probability; boolean ``[..., C]``."""
    if not isinstance(credal, IntervalSet | HullSet):
        raise TypeError(f"expected an IntervalSet or a HullSet, not {type(credal).__name__}")
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
        members = credal.to(torch.float64).members
        for j in range(members.shape[-1]):
            margin = (members[..., j, None] - members).amin(0)  # how far j is ahead, at least
            kept &= margin <= _rounding(credal)
    return kept


def e_admissibility(credal: IntervalSet | HullSet) -> Tensor:
    """Classes that are a most probable one under some distribution of the set; boolean ``[..., C]``.

    For intervals: give class i all it can have, u_i. It is then a most probable class of some distribution exactly if
    no other class must exceed it (l_j <= u_i) and the others, held at u_i or below, can take the rest:
    sum_j min(u_j, u_i) >= 1. For a hull it takes a linear program in the weights of the members (to 1e-9), which is
    only set up for classes that no member and no mixture of two puts first and that maximality does not rule out.
    """
    kept = maximality(credal)
    if isinstance(credal, IntervalSet):
        _, upper = _probability_range(credal)
        level, order = upper.sort(-1)
        below = level.cumsum(-1) - level  # sum of the smaller ones
        above = torch.arange(upper.shape[-1], 0, -1, device=upper.device)  # how many are at least as large
        room = torch.empty_like(upper).scatter(-1, order, below + above * level)
        return kept & (room >= 1.0 - _rounding(credal))
    members = credal.to(torch.float64).members
    top = members >= members.amax(-1, keepdim=True) - _rounding(credal)
    sure = top.any(0)
    doubtful = (kept & ~sure).reshape(-1, kept.shape[-1])
    if members.shape[0] > 1 and bool(doubtful.any()):
        rows = members.reshape(members.shape[0], -1, members.shape[-1])
        node, label = doubtful.nonzero(as_tuple=True)
        leads = _lead_of_two(rows.detach(), node, label)
        left = ~leads
        arrays = (rows.detach(), node[left], label[left])
        leads[left] = _lead_of_many(*(each.cpu().numpy() for each in arrays)).to(leads.device)
        doubtful[node, label] = leads
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
        members = credal.to(torch.float64).members
        return members.amin(0), members.amax(0)
    if credal.shape.numel() == 0:
        return credal.lower.double(), credal.upper.double()
    tight = credal.to(torch.float64).reachable()
    return tight.lower, tight.upper


def _lead_of_two(rows: Tensor, node: Tensor, label: Tensor) -> Tensor:
    """Whether some mixture of two of the members [M, N, C] makes class ``label[k]`` of ``node[k]`` a most probable one.

    w a + (1 - w) b >= 0 for all other classes leaves an interval of w for each pair of members.
    """
    found = torch.zeros_like(node, dtype=torch.bool)
    for pair in combinations(range(rows.shape[0]), 2):
        a, b = (rows[m, node].gather(-1, label[:, None]) - rows[m, node] for m in pair)
        turn = torch.where(a == b, 1.0, -b / torch.where(a == b, 1.0, a - b))
        low = torch.where(a > b, turn, 0.0).amax(-1).clamp_min(0.0)
        high = torch.where(a < b, turn, 1.0).amin(-1).clamp_max(1.0)
        found |= (low <= high) & ((a != b) | (b >= 0)).all(-1)
    return found


def _lead_of_many(rows: NDArray[np.float64], node: NDArray[np.int64], label: NDArray[np.int64]) -> Tensor:
    """The same for mixtures of all members: many small linear programs in one sparse one.

    Maximise z subject to z <= sum_m w_m (p_m[label] - p_m[j]) for all other j.
    """
    from scipy.optimize import linprog
    from scipy.sparse import block_diag

    m, _, classes = rows.shape
    leads = np.empty(len(node), dtype=bool)
    for begin in range(0, len(node), LP_BLOCKS):
        part = range(begin, min(begin + LP_BLOCKS, len(node)))
        blocks = []
        for k in part:
            ahead = rows[:, node[k], label[k], None] - rows[:, node[k]]
            others = np.delete(-ahead.T, label[k], axis=0)
            blocks.append(np.hstack([others, np.ones((classes - 1, 1))]))
        solved = linprog(
            np.tile(np.r_[np.zeros(m), -1.0], len(part)),
            A_ub=block_diag(blocks, format="csr"),
            b_ub=np.zeros(len(part) * (classes - 1)),
            A_eq=block_diag([np.r_[np.ones(m), 0.0][None]] * len(part), format="csr"),
            b_eq=np.ones(len(part)),
            bounds=([(0, None)] * m + [(None, None)]) * len(part),
            method="highs",
            options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
        )
        if not solved.success:
            raise RuntimeError(f"the linear program for E-admissibility failed: {solved.message}")
        leads[part.start : part.stop] = solved.x.reshape(len(part), m + 1)[:, -1] >= -LP_TOLERANCE
    return torch.from_numpy(leads)


def _discounted_accuracy(kept: Tensor, labels: Tensor) -> Tensor:
    """1/size of each kept set that has the true class, else 0."""
    kept, labels = torch.as_tensor(kept), torch.as_tensor(labels)
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
