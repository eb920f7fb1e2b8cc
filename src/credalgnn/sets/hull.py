"""Hull sets: convex hulls of several distributions, as from the members of an ensemble."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ._solvers import hull_lower, hull_upper, normalised
from .base import (
    CredalSet,
    Optimum,
    SolverOptions,
    TensorLike,
    check_finite,
    first,
    float_tensor,
    located,
    place,
    tie,
    tolerance,
    undominated,
)
from .intervals import IntervalSet

LP_BLOCKS = 256  # linear programs solved in a call
LP_TOLERANCE = 1e-9


@dataclass(frozen=True, init=False, eq=False, repr=False)
class HullSet(CredalSet):
    """Convex hull of M distributions for each node of a batch.

    Members that miss 1 by rounding are normalised; a member that is no distribution raises a ``ValueError`` that names
    it.

    Args:
        members: Distributions ``[M, ..., C]``, usually ``[M, N, C]``.

    Example:
        >>> HullSet(torch.tensor([[[0.9, 0.1]], [[0.4, 0.6]]])).width
        tensor([[0.5000, 0.5000]])
    """

    members: Tensor

    def __init__(self, members: TensorLike) -> None:
        tensor = float_tensor(members, "members")
        if tensor.dim() < 2 or tensor.shape[0] == 0:
            raise ValueError(f"members has shape {list(tensor.shape)}: it must be [M, ..., C] with at least one member")
        tensor = _checked(tensor)
        object.__setattr__(self, "members", tensor)
        super().__init__(tensor.amin(0), tensor.amax(0))

    def to(self, target: torch.dtype | torch.device | str) -> HullSet:
        """Return the set in another dtype or on another device.

        Args:
            target: Dtype or device.
        """
        members = self.members.double()
        keep = self.dtype if not isinstance(target, torch.dtype) else target
        return HullSet((members / members.sum(-1, keepdim=True)).to(target).to(keep))

    def take(self, rows: Tensor) -> HullSet:
        """Return the sets of some rows of a batch ``[M, N, C]``.

        Args:
            rows: Row numbers, or a boolean mask ``[N]``.
        """
        return HullSet(self.members[:, rows])

    def mean(self) -> Tensor:
        """Return the mean of the members, the prediction of a classical ensemble."""
        return self.members.mean(0)

    def to_intervals(self) -> IntervalSet:
        """Return the smallest interval set around the hull, each class's range over the members."""
        return IntervalSet(self.members.amin(0), self.members.amax(0))

    def solve_upper(self, options: SolverOptions) -> Optimum:
        """Return the largest entropy, a concave problem in the members' weights.

        Args:
            options: Solver options.
        """
        return hull_upper(normalised(self.members), options.backend)

    def solve_lower(self, options: SolverOptions) -> Optimum:
        """Return the smallest entropy, that of a member.

        Args:
            options: Ignored.
        """
        return hull_lower(normalised(self.members))

    def solve(self, options: SolverOptions) -> tuple[Optimum, Optimum]:
        """Return both, normalising the members once.

        Args:
            options: Solver options.
        """
        members = normalised(self.members)
        return hull_upper(members, options.backend), hull_lower(members)

    def undominated(self) -> Tensor:
        """Classes kept by interval dominance, by the members' range in float64."""
        members = self._exact()
        return undominated(members.amin(0), members.amax(0))

    def maximal(self) -> Tensor:
        """Classes that no other class beats under every distribution: the difference is linear, so members decide."""
        maximal, members = self.undominated(), self._exact()
        for j in range(members.shape[-1]):
            margin = (members[..., j, None] - members).amin(0)  # least lead of j
            maximal &= margin <= tie(members.shape[-1])
        return maximal

    def e_admissible(self) -> Tensor:
        """Classes that are a most probable class of some mixture of the members: a linear program in its weights.

        Solved to 1e-9, for the maximal classes that no member and no mixture of two members puts first.
        """
        maximal, members = self.maximal(), self._exact()
        top = members >= members.amax(-1, keepdim=True) - tie(members.shape[-1])
        sure = top.any(0)
        doubtful = (maximal & ~sure).reshape(-1, maximal.shape[-1])
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
        return sure & maximal | doubtful.reshape(maximal.shape)

    def contains(self, p: TensorLike, slack: float = 0.0) -> Tensor:
        """Test whether distributions lie in the hulls, up to rounding, by a linear program in the members' weights.

        Args:
            p: Distributions ``[..., C]``.
            slack: Largest distance of a class's probability from the hull, default 0.
        """
        point = float_tensor(p, "p").to(self.device)
        inside = self.to_intervals().contains(point, slack)
        members = self._exact()
        rows = members.reshape(members.shape[0], -1, members.shape[-1]).detach().cpu().numpy()
        points = point.double().expand(members.shape[1:]).reshape(-1, members.shape[-1]).cpu().numpy()
        allowed = slack + max(tolerance(self.members), tolerance(point))
        flat = inside.reshape(-1)
        for node in flat.nonzero().squeeze(-1).tolist():
            flat[node] = _distance(rows[:, node], points[node]) <= allowed
        return flat.reshape(inside.shape)

    def _exact(self) -> Tensor:
        """Members in float64, without what rounding to the set's dtype did to their sums."""
        members = self.members.double()
        members = members / members.sum(-1, keepdim=True)
        return members / members.sum(-1, keepdim=True)  # as ``to`` does: the first quotients miss 1 by rounding, too

    def __repr__(self) -> str:
        size = f"members={self.members.shape[0]}, shape={list(self.shape)}"
        return f"HullSet({size}, dtype={self.dtype}, device={self.device})"


def _checked(members: Tensor) -> Tensor:
    """Validate the members, and normalise those that only rounding keeps from being distributions."""
    for k, member in enumerate(members.detach()):
        try:
            check_finite(member, "probability")
        except ValueError as error:
            raise ValueError(f"member {k}, {error}") from None
    if members.numel() == 0:
        return members
    slack = tolerance(members)
    p = members.detach().double()
    bad = (p < -slack) | (p > 1.0 + slack)
    if bool(bad.any()):
        index = first(bad)
        _, where = located(bad[index[0]])
        raise ValueError(f"member {index[0]}, {where}: {p[index].item():.6g} is not a probability")
    off = (p.sum(-1) - 1.0).abs() > slack
    if bool(off.any()):
        index = first(off)
        where = ", ".join(part for part in (f"member {index[0]}", place(index[1:])) if part)
        raise ValueError(f"{where}: the probabilities sum to {p[index].sum().item():.6g}, not to 1")
    if bool((p < 0).any()):
        members = members.clamp_min(0.0)
    return members / members.sum(-1, keepdim=True)


def _distance(members: NDArray[np.float64], point: NDArray[np.float64]) -> float:
    """Largest difference in a class between a point [C] and the nearest mixture of members [M, C]."""
    from scipy.optimize import linprog

    count, classes = members.shape
    miss = np.full((classes, 1), -1.0)
    solved = linprog(
        np.r_[np.zeros(count), 1.0],
        A_ub=np.vstack([np.hstack([members.T, miss]), np.hstack([-members.T, miss])]),
        b_ub=np.r_[point, -point],
        A_eq=np.r_[np.ones(count), 0.0][None],
        b_eq=[1.0],
        method="highs",
    )
    if not solved.success:
        raise RuntimeError(f"the linear program for membership failed: {solved.message}")
    return float(solved.fun)


def _lead_of_two(rows: Tensor, node: Tensor, label: Tensor) -> Tensor:
    """Test whether some mixture of two members [M, N, C] puts class ``label[k]`` of ``node[k]`` first, or level.

    w a + (1 - w) b >= 0 for all other classes leaves an interval of w for each pair of members.
    """
    leads = torch.zeros_like(node, dtype=torch.bool)
    for pair in combinations(range(rows.shape[0]), 2):
        a, b = (rows[m, node].gather(-1, label[:, None]) - rows[m, node] for m in pair)
        turn = torch.where(a == b, 1.0, -b / torch.where(a == b, 1.0, a - b))
        low = torch.where(a > b, turn, 0.0).amax(-1).clamp_min(0.0)
        high = torch.where(a < b, turn, 1.0).amin(-1).clamp_max(1.0)
        leads |= (low <= high) & ((a != b) | (b >= 0)).all(-1)
    return leads


def _lead_of_many(rows: NDArray[np.float64], node: NDArray[np.int64], label: NDArray[np.int64]) -> Tensor:
    """Test the same for mixtures of all members: many small linear programs in one sparse program.

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
