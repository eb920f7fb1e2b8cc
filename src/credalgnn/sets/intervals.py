"""Interval sets and the interval softmax."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ._solvers import interval_optima
from .base import CredalSet, Optimum, SolverOptions, TensorLike, float_tensor, located, tie, tolerance, undominated


@dataclass(frozen=True, init=False, eq=False, repr=False)
class IntervalSet(CredalSet):
    """All distributions between two bounds, ``{p : lower <= p <= upper, sum p = 1}``, for a batch of nodes.

    The bounds need not be reachable. Empty sets and values that are not probabilities raise a ``ValueError`` that names
    the first offending row; violations within rounding are projected.

    Example:
        >>> credal = IntervalSet(torch.tensor([[0.5, 0.1, 0.0]]), torch.tensor([[0.8, 0.4, 0.2]]))
        >>> credal.intersection_probability().argmax(-1)
        tensor([0])

    Args:
        lower: Lower probabilities ``[..., C]``, usually ``[N, C]``; numpy arrays are accepted and share their memory.
        upper: Upper probabilities of the same shape.
    """

    @property
    def midpoint(self) -> Tensor:
        """Middle of each interval; it need not sum to 1 (``intersection_probability`` does)."""
        return (self.lower + self.upper) / 2

    def to(self, target: torch.dtype | torch.device | str) -> IntervalSet:
        """Return the set in another dtype or on another device.

        Args:
            target: Dtype or device.
        """
        low, up = self._exact_bounds()
        keep = self.dtype if not isinstance(target, torch.dtype) else target
        return IntervalSet(low.to(target).to(keep), up.to(target).to(keep))

    def take(self, rows: Tensor) -> IntervalSet:
        """Return the sets of some rows of a batch ``[N, C]``.

        Args:
            rows: Row numbers, or a boolean mask ``[N]``.
        """
        return IntervalSet(self.lower[rows], self.upper[rows])

    def reachable(self) -> IntervalSet:
        """Return the tightest intervals of the same set, whose bounds are all attained.

        A class holds at least what the others cannot (1 - sum of their upper bounds), and at most what they leave.
        """
        low, up = self._exact_bounds()
        others_up = up.sum(-1, keepdim=True) - up
        others_low = low.sum(-1, keepdim=True) - low
        tight_low = torch.maximum(low, 1.0 - others_up)
        tight_up = torch.minimum(up, 1.0 - others_low)
        return IntervalSet(tight_low.to(self.dtype), torch.maximum(tight_up, tight_low).to(self.dtype))

    def is_reachable(self) -> Tensor:
        """Test whether all bounds of a row are attained, up to rounding; boolean ``[...]``."""
        tight = self.reachable()
        moved = (tight.lower - self.lower).abs().maximum((tight.upper - self.upper).abs())
        return moved.amax(-1) <= tolerance(self.lower)

    def contains(self, p: TensorLike, slack: float = 0.0) -> Tensor:
        """Test whether distributions lie in the sets, up to rounding; boolean ``[...]``.

        Args:
            p: Distributions ``[..., C]``.
            slack: Largest distance of a class's probability from its interval, default 0.
        """
        point = float_tensor(p, "p").to(self.device)
        if point.shape[-1] != self.shape[-1]:
            raise ValueError(f"p has {point.shape[-1]} classes but the set has {self.shape[-1]}")
        rounding = max(tolerance(self.lower), tolerance(point))
        point, allowed = point.double(), slack + rounding
        inside = (point >= self.lower.double() - allowed) & (point <= self.upper.double() + allowed)
        return inside.all(-1) & ((point.sum(-1) - 1.0).abs() <= rounding)

    def solve_upper(self, options: SolverOptions) -> Optimum:
        """Return the largest entropy, by water filling.

        Args:
            options: Solver options.
        """
        (upper,) = interval_optima(self.lower, self.upper, True, False, options)
        return upper

    def solve_lower(self, options: SolverOptions) -> Optimum:
        """Return the smallest entropy, by branch and bound.

        Args:
            options: Solver options.
        """
        (lower,) = interval_optima(self.lower, self.upper, False, True, options)
        return lower

    def solve(self, options: SolverOptions) -> tuple[Optimum, Optimum]:
        """Return both in one pass over the rows.

        Args:
            options: Solver options.
        """
        upper, lower = interval_optima(self.lower, self.upper, True, True, options)
        return upper, lower

    def undominated(self) -> Tensor:
        """Classes kept by interval dominance, by the reachable bounds."""
        return undominated(*self._range())

    def maximal(self) -> Tensor:
        """As ``undominated``: reachable bounds l_j and u_i of two classes are attained by the same distribution.

        So p_j - p_i is positive everywhere exactly if l_j > u_i.
        """
        return self.undominated()

    def e_admissible(self) -> Tensor:
        """Classes that are a most probable class under some distribution of the set.

        Set class i to u_i. It is a most probable class of some distribution exactly if no other class must exceed it
        (l_j <= u_i) and the others, held at u_i or below, can take the rest: sum_j min(u_j, u_i) >= 1.
        """
        lower, upper = self._range()
        level, order = upper.sort(-1)
        below = level.cumsum(-1) - level  # sum of the smaller ones
        above = torch.arange(upper.shape[-1], 0, -1, device=upper.device)  # how many are at least as large
        capacity = torch.empty_like(upper).scatter(-1, order, below + above * level)
        return undominated(lower, upper) & (capacity >= 1.0 - tie(upper.shape[-1]))

    def _range(self) -> tuple[Tensor, Tensor]:
        """Reachable bounds in float64."""
        if self.shape.numel() == 0:
            return self.lower.double(), self.upper.double()
        tight = self.to(torch.float64).reachable()
        return tight.lower, tight.upper


def log_interval_softmax(lower_logits: TensorLike, upper_logits: TensorLike) -> tuple[Tensor, Tensor]:
    """Return natural logarithms of the lower and upper probabilities of Equation 3, for losses.

    Class i competes at its lower logit with the *upper* logits of all others for its lower probability, and the other
    way round for its upper probability: the exact range of softmax over the box of logits. Finite, with finite
    gradients, as long as differences of logits are finite numbers of the dtype.

    Args:
        lower_logits: Lower logits ``[..., C]``, two classes or more.
        upper_logits: Upper logits of the same shape.
    """
    lower_logits, upper_logits = _checked_logits(lower_logits, upper_logits)
    log_lower = torch.nn.functional.logsigmoid(-_lead_of_others(upper_logits, lower_logits))
    log_upper = torch.nn.functional.logsigmoid(-_lead_of_others(lower_logits, upper_logits))
    return log_lower, log_upper


def interval_softmax(lower_logits: TensorLike, upper_logits: TensorLike) -> IntervalSet:
    """Return the credal set of Equation 3; each bound is attained inside the box of logits, so it is reachable.

    Args:
        lower_logits: Lower logits ``[..., C]``, two classes or more; finite.
        upper_logits: Upper logits of the same shape, nowhere below the lower ones.

    Example:
        >>> interval_softmax(torch.tensor([[1.0, 0.0]]), torch.tensor([[2.0, 0.5]]))
        IntervalSet(shape=[1, 2], dtype=torch.float32, device=cpu)
    """
    lower_logits, upper_logits = _checked_logits(lower_logits, upper_logits)
    with torch.no_grad():
        for name, logits in (("lower_logits", lower_logits), ("upper_logits", upper_logits)):
            bad = ~torch.isfinite(logits)
            if bool(bad.any()):
                index, where = located(bad)
                raise ValueError(f"{where}: {name} is {logits[index].item()}")
        crossed = lower_logits > upper_logits
        if bool(crossed.any()):
            index, where = located(crossed)
            low, up = lower_logits[index].item(), upper_logits[index].item()
            raise ValueError(f"{where}: lower logit {low:.6g} > upper logit {up:.6g}")
    log_lower, log_upper = log_interval_softmax(lower_logits, upper_logits)
    return IntervalSet(log_lower.exp(), log_upper.exp())


def _checked_logits(lower_logits: TensorLike, upper_logits: TensorLike) -> tuple[Tensor, Tensor]:
    lower, upper = float_tensor(lower_logits, "lower_logits"), float_tensor(upper_logits, "upper_logits")
    if lower.shape != upper.shape:
        raise ValueError(f"lower_logits has shape {list(lower.shape)} but upper_logits has {list(upper.shape)}")
    if lower.shape[-1] < 2:
        raise ValueError(f"logits of shape {list(lower.shape)}: the last dimension must hold two classes or more")
    return lower, upper


def _lead_of_others(logits: Tensor, rival: Tensor) -> Tensor:
    """log sum_{k != i} exp(a_k) - rival_i for every i, without cancellation.

    For all but the largest logit the sum over all classes, less the class itself, keeps the largest; the largest is
    summed separately, shifted by the second largest. Differences of logits are taken first, so that a common offset
    costs no digits.
    """
    with torch.no_grad():
        largest, at = logits.max(-1, keepdim=True)
        second = logits.scatter(-1, at, -torch.inf).amax(-1, keepdim=True)
    shifted = (logits - largest).exp()
    rest = (shifted.sum(-1, keepdim=True) - shifted).scatter(-1, at, 1.0)
    beside_largest = (logits - second).scatter(-1, at, -torch.inf).exp().sum(-1, keepdim=True)
    lead = rest.log() + (largest - rival)
    return lead.scatter(-1, at, beside_largest.log() + (second - rival.gather(-1, at)))
