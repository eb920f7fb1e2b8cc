"""Credal sets given by a lower and an upper probability for each class, and the interval softmax that makes them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ._check import TensorLike, check_finite, first, float_tensor, located, place, tolerance


@dataclass(frozen=True, init=False, eq=False, repr=False)
class IntervalSet:
    """The distributions between two bounds, ``{p : lower <= p <= upper, sum p = 1}``, for a batch of nodes.

    ``lower`` and ``upper`` are ``[..., C]``, usually ``[N, C]``; numpy arrays are accepted and share their memory.
    Whatever makes a set empty or not a set of probabilities raises a ``ValueError`` that names the first offending row.
    Violations of the size of rounding (bounds crossed, or sums beyond 1, by a few float32 epsilons) are projected.
    """

    lower: Tensor
    upper: Tensor

    def __init__(self, lower: TensorLike, upper: TensorLike) -> None:
        low, up = float_tensor(lower, "lower"), float_tensor(upper, "upper")
        if low.shape != up.shape:
            raise ValueError(f"lower has shape {list(low.shape)} but upper has {list(up.shape)}: they must be equal")
        if low.device != up.device:
            raise ValueError(f"lower is on {low.device} but upper on {up.device}: move one with .to()")
        dtype = torch.promote_types(low.dtype, up.dtype)
        low, up = _checked(low.to(dtype), up.to(dtype))
        object.__setattr__(self, "lower", low)
        object.__setattr__(self, "upper", up)

    @property
    def shape(self) -> torch.Size:
        return self.lower.shape

    @property
    def dtype(self) -> torch.dtype:
        return self.lower.dtype

    @property
    def device(self) -> torch.device:
        return self.lower.device

    @property
    def width(self) -> Tensor:
        """Upper minus lower probability of each class."""
        return self.upper - self.lower

    @property
    def midpoint(self) -> Tensor:
        """The middle of each interval; it need not sum to 1 (``intersection_probability`` does)."""
        return (self.lower + self.upper) / 2

    def to(self, target: torch.dtype | torch.device | str) -> IntervalSet:
        """The set in another dtype or on another device."""
        low, up = self._exact()
        keep = self.dtype if not isinstance(target, torch.dtype) else target
        return IntervalSet(low.to(target).to(keep), up.to(target).to(keep))

    def _exact(self) -> tuple[Tensor, Tensor]:
        """The bounds in float64, free of what rounding to the set's dtype did to their sums."""
        return onto_simplex(self.lower.double(), self.upper.double())

    def reachable(self) -> IntervalSet:
        """The tightest intervals of the same set: every bound is attained by some distribution in it.

        A class holds at least what the others cannot (1 - sum of their upper bounds), and at most what they leave.
        """
        low, up = self._exact()
        others_up = up.sum(-1, keepdim=True) - up
        others_low = low.sum(-1, keepdim=True) - low
        tight_low = torch.maximum(low, 1.0 - others_up)
        tight_up = torch.minimum(up, 1.0 - others_low)
        return IntervalSet(tight_low.to(self.dtype), torch.maximum(tight_up, tight_low).to(self.dtype))

    def is_reachable(self) -> Tensor:
        """Whether each row's bounds are all attained, up to rounding."""
        tight = self.reachable()
        moved = (tight.lower - self.lower).abs().maximum((tight.upper - self.upper).abs())
        return moved.amax(-1) <= tolerance(self.lower)

    def contains(self, p: TensorLike) -> Tensor:
        """Whether distributions p ``[..., C]`` lie in the sets, up to rounding."""
        point = float_tensor(p, "p").to(self.device)
        if point.shape[-1] != self.shape[-1]:
            raise ValueError(f"p has {point.shape[-1]} classes but the set has {self.shape[-1]}")
        slack = max(tolerance(self.lower), tolerance(point))
        point = point.double()
        inside = (point >= self.lower.double() - slack) & (point <= self.upper.double() + slack)
        return inside.all(-1) & ((point.sum(-1) - 1.0).abs() <= slack)

    def intersection_probability(self) -> Tensor:
        """The point prediction ``l + beta (u - l)`` with the one beta that sums to 1 (Cuzzolin).

        It spends the same share of every interval, and stays defined where all intervals are points.
        """
        low, up = self._exact()
        width = up - low
        slack = width.sum(-1, keepdim=True)
        beta = (1.0 - low.sum(-1, keepdim=True)) / torch.where(slack > 0, slack, 1.0)
        return (low + beta.clamp(0.0, 1.0) * width).to(self.dtype)

    def __repr__(self) -> str:
        return f"IntervalSet(shape={list(self.shape)}, dtype={self.dtype}, device={self.device})"


def _checked(lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    """The bounds, if they admit a distribution; projected where rounding alone keeps them from it."""
    check_finite(lower.detach(), "lower")
    check_finite(upper.detach(), "upper")
    if lower.numel() == 0:
        return lower, upper
    slack = tolerance(lower)
    low, up = lower.detach().double(), upper.detach().double()
    for bad, words in (
        (low < -slack, "lower {l:.6g} is below 0"),
        (up > 1.0 + slack, "upper {u:.6g} is above 1"),
        (low > up + slack, "lower {l:.6g} > upper {u:.6g}"),
    ):
        if bool(bad.any()):
            index, where = located(bad)
            raise ValueError(f"{where}: " + words.format(l=low[index].item(), u=up[index].item()))
    floor, ceiling = low.sum(-1), up.sum(-1)
    for bad, name, side, extreme, bound in (
        (floor > 1.0 + slack, "lower", "more", "largest", low),
        (ceiling < 1.0 - slack, "upper", "less", "smallest", up),
    ):
        if bool(bad.any()):
            index = first(bad)
            values = bound[index]
            which = int(values.argmax() if name == "lower" else values.argmin())
            raise ValueError(
                f"{place(index) or 'the set'}: the {name} bounds sum to {values.sum().item():.6g}, {side} than 1, "
                f"so no distribution fits (the {extreme} is {values[which].item():.6g}, class {which})"
            )
    if bool(((low < 0) | (up > 1) | (low > up)).any()):
        lower, upper = lower.clamp(0.0, 1.0), upper.clamp(0.0, 1.0)
        crossed, middle = lower > upper, (lower + upper) / 2
        lower, upper = torch.where(crossed, middle, lower), torch.where(crossed, middle, upper)
    return onto_simplex(lower, upper)


def onto_simplex(lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    """Scale rows whose bounds miss the simplex by rounding so that they touch it."""
    floor, ceiling = lower.sum(-1, keepdim=True), upper.sum(-1, keepdim=True)
    if bool((floor > 1.0).any()):
        lower = lower / floor.clamp_min(1.0)
    if bool((ceiling < 1.0).any()):
        upper = upper / ceiling.clamp_max(1.0)
    return lower, upper


def log_interval_softmax(lower_logits: TensorLike, upper_logits: TensorLike) -> tuple[Tensor, Tensor]:
    """Logarithms of the lower and upper probabilities of Equation 3, for losses; natural logarithm.

    Class i competes at its lower logit with the *upper* logits of all others for its lower probability, and the other
    way round for its upper one: the exact range of softmax over the box of logits. Finite, with finite gradients, as
    long as differences of logits are finite numbers of the dtype.
    """
    lower_logits, upper_logits = _checked_logits(lower_logits, upper_logits)
    log_lower = torch.nn.functional.logsigmoid(-_lead_of_others(upper_logits, lower_logits))
    log_upper = torch.nn.functional.logsigmoid(-_lead_of_others(lower_logits, upper_logits))
    return log_lower, log_upper


def interval_softmax(lower_logits: TensorLike, upper_logits: TensorLike) -> IntervalSet:
    """The credal set of Equation 3: reachable by construction, as each bound is attained inside the box of logits."""
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


def _lead_of_others(logits: Tensor, own: Tensor) -> Tensor:
    """log sum_{k != i} exp(a_k) - own_i for every i, without cancellation.

    For all but the largest logit the sum over everybody, less oneself, keeps the largest; the largest has a sum of its
    own, shifted by the second largest. Differences of logits are taken first, so that a common offset costs no digits.
    """
    with torch.no_grad():
        largest, at = logits.max(-1, keepdim=True)
        second = logits.scatter(-1, at, -torch.inf).amax(-1, keepdim=True)
    shifted = (logits - largest).exp()
    rest = (shifted.sum(-1, keepdim=True) - shifted).scatter(-1, at, 1.0)
    beside_largest = (logits - second).scatter(-1, at, -torch.inf).exp().sum(-1, keepdim=True)
    lead = rest.log() + (largest - own)
    return lead.scatter(-1, at, beside_largest.log() + (second - own.gather(-1, at)))
