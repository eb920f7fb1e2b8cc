"""The interface of credal sets: what every kind has, and what a new kind adds (docs/uncertainty.md shows how)."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor

from ._check import TensorLike, check_finite, first, float_tensor, located, place, tolerance
from ._torch import bits, slack

Backend: TypeAlias = Literal["numba", "torch"]


class Optimum(NamedTuple):
    """An extreme entropy of a credal set, with a certificate.

    Args:
        entropy: The entropy in bits.
        distribution: A distribution of the set that has it.
        gap: A bound of the distance to the optimum in bits, float64. It is that of the float64 solution; storing the
            entropy in a narrower dtype rounds it once more.
    """

    entropy: Tensor
    distribution: Tensor
    gap: Tensor

    @classmethod
    def at(cls, distribution: Tensor) -> Optimum:
        """The optimum at a distribution known to be optimal, by a closed form say: the gap is that of rounding.

        Args:
            distribution: The optimal distributions ``[..., C]``, float64.
        """
        entropy = bits(distribution).sum(-1)
        return cls(entropy, distribution, torch.full_like(entropy, rounding(distribution.shape[-1])))


class SolverOptions(NamedTuple):
    """What a caller asks of a solver; closed forms need none of it.

    Args:
        certify: Whether the optimal distribution is wanted too.
        budget: Bound evaluations a row before the first search for its lower entropy gives up.
        backend: ``"numba"`` or ``"torch"``.
    """

    certify: bool
    budget: int
    backend: Backend


@dataclass(frozen=True, init=False, eq=False, repr=False)
class CredalSet(ABC):
    """A convex set of class distributions for every row of a batch, between a lower and an upper probability a class.

    The base of all kinds. It checks and holds the bounds; a kind adds which of the distributions between them belong to
    the set, by its solvers (``solve_upper``, ``solve_lower``) and decisions (``maximal``, ``e_admissible``). A set that
    is all distributions between its bounds inherits from ``IntervalSet``, which has them.

    What makes a set empty or not a set of probabilities raises a ``ValueError`` that names the first offending row.
    Violations of the size of rounding (bounds crossed, or sums beyond 1, by a few float32 epsilons) are projected.

    Args:
        lower: The smallest probability of each class over the set ``[..., C]``, usually ``[N, C]``.
        upper: The largest.
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
        """``[..., C]``: a batch of sets, and the classes."""
        return self.lower.shape

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the bounds, and of the entropies that are returned."""
        return self.lower.dtype

    @property
    def device(self) -> torch.device:
        """Where the bounds are, and where entropies are computed."""
        return self.lower.device

    @property
    def width(self) -> Tensor:
        """Upper minus lower probability of each class."""
        return self.upper - self.lower

    def intersection_probability(self) -> Tensor:
        """The point prediction: ``l + beta (u - l)`` with the unique beta for which it sums to 1 (Cuzzolin).

        It spends the same share of every interval, and stays defined where all intervals are points. It depends on the
        bounds alone, so that all kinds of set are classified alike; of a set that is smaller than its intervals, such
        as a hull, it need not be a member.
        """
        low, up = self._exact_bounds()
        width = up - low
        slack = width.sum(-1, keepdim=True)
        beta = (1.0 - low.sum(-1, keepdim=True)) / torch.where(slack > 0, slack, 1.0)
        return (low + beta.clamp(0.0, 1.0) * width).to(self.dtype)

    def _exact_bounds(self) -> tuple[Tensor, Tensor]:
        """The bounds in float64, free of what rounding to the set's dtype did to their sums."""
        return onto_simplex(self.lower.double(), self.upper.double())

    @abstractmethod
    def take(self, rows: Tensor) -> CredalSet:
        """The sets of some rows of a batch ``[N, C]``.

        Args:
            rows: Their numbers, or a boolean mask ``[N]``.
        """

    @abstractmethod
    def solve_upper(self, options: SolverOptions) -> Optimum:
        """The largest entropy of each set, in float64, flattened to ``[N]`` or in the shape of the batch.

        Args:
            options: What the caller asks for; a closed form needs none of it.
        """

    @abstractmethod
    def solve_lower(self, options: SolverOptions) -> Optimum:
        """The smallest entropy of each set; see ``solve_upper``.

        Args:
            options: What the caller asks for.
        """

    def solve(self, options: SolverOptions) -> tuple[Optimum, Optimum]:
        """Both optima, upper and lower; to be overridden where a single pass finds both.

        Args:
            options: What the caller asks for.
        """
        return self.solve_upper(options), self.solve_lower(options)

    def undominated(self) -> Tensor:
        """Classes kept by interval dominance, boolean ``[..., C]``: a matter of the bounds, if they are attained."""
        return undominated(self.lower.double(), self.upper.double())

    @abstractmethod
    def maximal(self) -> Tensor:
        """Classes that no other class beats under every distribution of the set; boolean ``[..., C]``."""

    @abstractmethod
    def e_admissible(self) -> Tensor:
        """Classes that are a most probable class under some distribution of the set; boolean ``[..., C]``."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(shape={list(self.shape)}, dtype={self.dtype}, device={self.device})"


def check_credal(credal: object) -> None:
    """Refuse what is no credal set.

    Args:
        credal: What a caller gave for it.
    """
    if not isinstance(credal, CredalSet):
        raise TypeError(f"expected a credal set, such as an IntervalSet or a HullSet, not {type(credal).__name__}")


def undominated(lower: Tensor, upper: Tensor) -> Tensor:
    """Classes whose upper probability reaches every lower probability; boolean ``[..., C]``.

    Args:
        lower: Lower probabilities ``[..., C]`` that some distribution of the set attains, float64.
        upper: Upper probabilities, likewise.
    """
    return upper >= lower.amax(-1, keepdim=True) - tie(lower.shape[-1])


def tie(classes: int) -> float:
    """A difference of float64 probabilities that rounding explains: a tie, which keeps the class.

    Args:
        classes: The number of classes.
    """
    return 4.0 * classes * torch.finfo(torch.float64).eps


def rounding(classes: int) -> float:
    """What float64 may cost an entropy: in the terms and their sum, and through mass lost to the rounding of sums.

    Args:
        classes: The number of classes.
    """
    eps = torch.finfo(torch.float64).eps
    return classes * (math.log2(classes) + 3.0) * eps + 50.0 * slack(classes)


def onto_simplex(lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    """Scale rows whose bounds miss the simplex by rounding so that they touch it.

    Args:
        lower: Lower probabilities ``[..., C]``.
        upper: Upper probabilities ``[..., C]``.
    """
    floor, ceiling = lower.sum(-1, keepdim=True), upper.sum(-1, keepdim=True)
    if bool((floor > 1.0).any()):
        lower = lower / floor.clamp_min(1.0)
    if bool((ceiling < 1.0).any()):
        upper = upper / ceiling.clamp_max(1.0)
    return lower, upper


def _checked(lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    """The bounds, if they admit a distribution; projected where rounding alone keeps them from it."""
    check_finite(lower.detach(), "lower")
    check_finite(upper.detach(), "upper")
    if lower.numel() == 0:
        return lower, upper
    slack = tolerance(lower)
    low, up = lower.detach().double(), upper.detach().double()
    for bad, message in (
        (low < -slack, "lower {l:.6g} is below 0"),
        (up > 1.0 + slack, "upper {u:.6g} is above 1"),
        (low > up + slack, "lower {l:.6g} > upper {u:.6g}"),
    ):
        if bool(bad.any()):
            index, where = located(bad)
            raise ValueError(f"{where}: " + message.format(l=low[index].item(), u=up[index].item()))
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
