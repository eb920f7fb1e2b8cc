"""Base class of credal sets, validation of their bounds and float64 tolerances (docs/uncertainty.md adds a kind)."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Backend: TypeAlias = Literal["numba", "torch"]
TensorLike: TypeAlias = Tensor | NDArray[np.floating]

EPS = 2.0**-52


def bits(p: Tensor) -> Tensor:
    """-p log2 p, and 0 at 0."""
    return -p * p.clamp_min(1e-300).log2()


def slack(classes: int) -> float:
    """Mass that rounding may leave over or short in a sum over this many classes."""
    return 4.0 * classes * EPS


def tie(classes: int) -> float:
    """Difference of float64 probabilities that rounding explains; such a tie keeps the class."""
    return 4.0 * classes * EPS


def rounding(classes: int) -> float:
    """Error of a float64 entropy: of its terms and their sum, and of mass lost to the rounding of sums."""
    return classes * (math.log2(classes) + 3.0) * EPS + 50.0 * slack(classes)


class Optimum(NamedTuple):
    """Extreme entropy of a credal set, with a certificate.

    Args:
        entropy: Entropy in bits.
        distribution: Distribution of the set that attains it.
        gap: Upper bound of the distance to the optimum in bits, float64. It refers to the float64 solution; storing the
            entropy in a narrower dtype rounds it once more.
    """

    entropy: Tensor
    distribution: Tensor
    gap: Tensor

    @classmethod
    def at(cls, distribution: Tensor) -> Optimum:
        """Optimum at a distribution known to be optimal, e.g. from a closed form; the gap is that of rounding.

        Args:
            distribution: Optimal distributions ``[..., C]``, float64.
        """
        entropy = bits(distribution).sum(-1)
        return cls(entropy, distribution, torch.full_like(entropy, rounding(distribution.shape[-1])))


class SolverOptions(NamedTuple):
    """Options of an entropy solver; closed forms ignore them.

    Args:
        certify: Return the optimal distribution as well.
        budget: Bound evaluations per row before the first search for the lower entropy stops.
        backend: ``"numba"`` or ``"torch"``.
    """

    certify: bool
    budget: int
    backend: Backend


@dataclass(frozen=True, init=False, eq=False, repr=False)
class CredalSet(ABC):
    """Batch of convex sets of class distributions, each with a lower and an upper probability per class.

    Base class of all kinds: it validates and holds the bounds. A subclass defines which of the distributions between
    them belong to the set, by its solvers (``solve_upper``, ``solve_lower``) and decisions (``maximal``,
    ``e_admissible``). A kind that contains all distributions between its bounds inherits these from ``IntervalSet``.

    Empty sets and values that are not probabilities raise a ``ValueError`` that names the first offending row.
    Violations within rounding (bounds crossed, or sums beyond 1, by a few float32 epsilons) are projected.

    Args:
        lower: Smallest probability of each class over the set ``[..., C]``, usually ``[N, C]``.
        upper: Largest probability of each class, same shape.
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
        """Shape ``[..., C]`` of the bounds: the batch, then the classes."""
        return self.lower.shape

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the bounds and of the entropies returned for the set."""
        return self.lower.dtype

    @property
    def device(self) -> torch.device:
        """Device of the bounds, on which entropies are computed."""
        return self.lower.device

    @property
    def width(self) -> Tensor:
        """Upper minus lower probability of each class."""
        return self.upper - self.lower

    def intersection_probability(self) -> Tensor:
        """Point prediction ``l + beta (u - l)`` with the unique beta for which it sums to 1 (Cuzzolin).

        It takes the same share of every interval and stays defined where all intervals are points. It depends on the
        bounds alone, so all kinds of set are classified alike; for a set smaller than its intervals, such as a hull, it
        need not be a member.
        """
        low, up = self._exact_bounds()
        width = up - low
        total = width.sum(-1, keepdim=True)
        beta = (1.0 - low.sum(-1, keepdim=True)) / torch.where(total > 0, total, 1.0)
        return (low + beta.clamp(0.0, 1.0) * width).to(self.dtype)

    def _exact_bounds(self) -> tuple[Tensor, Tensor]:
        """Bounds in float64, without what rounding to the set's dtype did to their sums."""
        return onto_simplex(self.lower.double(), self.upper.double())

    @abstractmethod
    def take(self, rows: Tensor) -> CredalSet:
        """Return the sets of some rows of a batch ``[N, C]``.

        Args:
            rows: Row numbers, or a boolean mask ``[N]``.
        """

    @abstractmethod
    def solve_upper(self, options: SolverOptions) -> Optimum:
        """Return the largest entropy of each set, in float64, flattened to ``[N]`` or in the shape of the batch.

        Args:
            options: Solver options; a closed form ignores them.
        """

    @abstractmethod
    def solve_lower(self, options: SolverOptions) -> Optimum:
        """Return the smallest entropy of each set; see ``solve_upper``.

        Args:
            options: Solver options.
        """

    def solve(self, options: SolverOptions) -> tuple[Optimum, Optimum]:
        """Return the upper and the lower optimum; override where one pass computes both.

        Args:
            options: Solver options.
        """
        return self.solve_upper(options), self.solve_lower(options)

    def undominated(self) -> Tensor:
        """Classes kept by interval dominance, boolean ``[..., C]``, assuming that the bounds are attained."""
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
    """Raise a ``TypeError`` unless the argument is a credal set."""
    if not isinstance(credal, CredalSet):
        raise TypeError(f"expected a credal set, such as an IntervalSet or a HullSet, not {type(credal).__name__}")


def undominated(lower: Tensor, upper: Tensor) -> Tensor:
    """Classes whose upper probability reaches every lower probability, for attained float64 bounds."""
    return upper >= lower.amax(-1, keepdim=True) - tie(lower.shape[-1])


def onto_simplex(lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    """Scale rows whose bounds miss the simplex by rounding so that they touch it."""
    floor, ceiling = lower.sum(-1, keepdim=True), upper.sum(-1, keepdim=True)
    if bool((floor > 1.0).any()):
        lower = lower / floor.clamp_min(1.0)
    if bool((ceiling < 1.0).any()):
        upper = upper / ceiling.clamp_max(1.0)
    return lower, upper


def float_tensor(value: TensorLike, name: str) -> Tensor:
    """Convert to a floating-point tensor, without a copy where possible."""
    if isinstance(value, np.ndarray) and not (value.flags.writeable and min(value.strides, default=0) >= 0):
        value = value.copy()  # torch cannot share memory that is read-only or has negative strides
    tensor = value if isinstance(value, Tensor) else torch.as_tensor(value)
    if not tensor.is_floating_point():
        raise TypeError(f"{name} must hold floating-point numbers, not {tensor.dtype}: convert it, e.g. with .double()")
    if tensor.dim() == 0 or tensor.shape[-1] == 0:
        raise ValueError(f"{name} has shape {list(tensor.shape)}: the last dimension must be the classes, at least one")
    return tensor


def tolerance(tensor: Tensor) -> float:
    """Largest violation that rounding explains.

    A distribution rounded to a dtype misses 1 by up to its epsilon; one computed in float32 over C classes and widened
    later misses it by a few epsilons of float32 per class.
    """
    single = torch.finfo(torch.float32).eps
    return max(8.0 * torch.finfo(tensor.dtype).eps, (8.0 + tensor.shape[-1]) * single)


def place(index: tuple[int, ...]) -> str:
    """Position in the batch for a message: ``row 3`` for [N, C] bounds, empty for a single set."""
    return "" if not index else f"row {index[0]}" if len(index) == 1 else f"row {index}"


def first(bad: Tensor) -> tuple[int, ...]:
    """First index at which ``bad`` holds."""
    return tuple(int(i) for i in bad.nonzero()[0])


def located(bad: Tensor) -> tuple[tuple[int, ...], str]:
    """First bad [..., class] entry: its index, and its place for a message."""
    index = first(bad)
    return index, ", ".join(part for part in (place(index[:-1]), f"class {index[-1]}") if part)


def check_finite(tensor: Tensor, name: str) -> None:
    """Refuse infinities and NaN; the message names the first."""
    bad = ~torch.isfinite(tensor)
    if bool(bad.any()):
        index, where = located(bad)
        raise ValueError(f"{where}: {name} is {tensor[index].item()}; probabilities must be finite numbers")


def _checked(lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    """Validate the bounds, and project those that only rounding keeps from admitting a distribution."""
    check_finite(lower.detach(), "lower")
    check_finite(upper.detach(), "upper")
    if lower.numel() == 0:
        return lower, upper
    margin = tolerance(lower)
    low, up = lower.detach().double(), upper.detach().double()
    for bad, message in (
        (low < -margin, "lower {l:.6g} is below 0"),
        (up > 1.0 + margin, "upper {u:.6g} is above 1"),
        (low > up + margin, "lower {l:.6g} > upper {u:.6g}"),
    ):
        if bool(bad.any()):
            index, where = located(bad)
            raise ValueError(f"{where}: " + message.format(l=low[index].item(), u=up[index].item()))
    floor, ceiling = low.sum(-1), up.sum(-1)
    for bad, name, side, extreme, bound in (
        (floor > 1.0 + margin, "lower", "more", "largest", low),
        (ceiling < 1.0 - margin, "upper", "less", "smallest", up),
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
