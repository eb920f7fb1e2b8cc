"""Exact upper and lower entropy of credal sets with certificates (Equation 1 of the paper), and their inverse.

Total uncertainty is the largest entropy of any distribution in the set, aleatoric uncertainty the smallest, epistemic
uncertainty their difference; all in bits. Solvers work in float64 whatever the dtype of the set.
"""

from __future__ import annotations

import math
import operator
from typing import Literal, NamedTuple, overload

import torch
from torch import Tensor

from ..runtime.errors import translated
from .base import Backend, CredalSet, Optimum, SolverOptions, check_credal
from .intervals import IntervalSet, interval_softmax

BUDGET = 20_000  # bound evaluations per row before the first search for the lower entropy stops
WIDEN_TOLERANCE = 1e-9  # bits
WIDEN_STEPS = 120  # every other step halves the bracket: 60 halvings leave nothing of any


class Uncertainty(NamedTuple):
    """Total, aleatoric and epistemic uncertainty in bits.

    Args:
        total: Upper entropy.
        aleatoric: Lower entropy.
        epistemic: Their difference.
    """

    total: Tensor
    aleatoric: Tensor
    epistemic: Tensor


class CertifiedUncertainty(NamedTuple):
    """Total, aleatoric and epistemic uncertainty in bits, with the optima they were computed from.

    Args:
        total: Upper entropy.
        aleatoric: Lower entropy.
        epistemic: Their difference.
        upper: Optimum of the total uncertainty.
        lower: Optimum of the aleatoric uncertainty.
    """

    total: Tensor
    aleatoric: Tensor
    epistemic: Tensor
    upper: Optimum
    lower: Optimum

    @property
    def gap(self) -> Tensor:
        """Bound of the error of either entropy, total or aleatoric, in bits; float64.

        It is the larger of the two optima's gaps. The epistemic uncertainty is a difference of the two, so its error is
        bounded by their sum, ``upper.gap + lower.gap``, and so by twice this.
        """
        return torch.maximum(self.upper.gap, self.lower.gap)


@overload
def upper_entropy(credal: CredalSet, *, certify: Literal[False] = False, backend: Backend | None = None) -> Tensor: ...
@overload
def upper_entropy(credal: CredalSet, *, certify: Literal[True], backend: Backend | None = None) -> Optimum: ...
def upper_entropy(credal: CredalSet, *, certify: bool = False, backend: Backend | None = None) -> Tensor | Optimum:
    """Return the largest entropy of any distribution in the set: TU of Equation 1.

    Differentiable with respect to the bounds or members.

    Args:
        credal: Credal sets.
        certify: Return an ``Optimum``, with the optimal distribution and the certified gap; default False.
        backend: For tests and comparisons; by default numba on the CPU and torch elsewhere.
    """
    options = _options(credal, certify, BUDGET, backend)
    result = _restore(credal, credal.solve_upper(options))
    return result if certify else result.entropy


@overload
def lower_entropy(
    credal: CredalSet, *, certify: Literal[False] = False, budget: int = BUDGET, backend: Backend | None = None
) -> Tensor: ...
@overload
def lower_entropy(
    credal: CredalSet, *, certify: Literal[True], budget: int = BUDGET, backend: Backend | None = None
) -> Optimum: ...
def lower_entropy(
    credal: CredalSet, *, certify: bool = False, budget: int = BUDGET, backend: Backend | None = None
) -> Tensor | Optimum:
    """Return the smallest entropy of any distribution in the set: AU of Equation 1.

    For intervals this is a concave problem, solved by branch and bound. Differentiable with respect to the bounds or
    members.

    Args:
        credal: Credal sets.
        certify: Return an ``Optimum``, with the optimal distribution and the certified gap; default False.
        budget: Bound evaluations per row, default 20,000; rows that stay open share a reserve of up to 100 times that
            per row. Whatever is left open shows in the certified gap.
        backend: For tests and comparisons; by default numba on the CPU and torch elsewhere.
    """
    options = _options(credal, certify, budget, backend)
    result = _restore(credal, credal.solve_lower(options))
    return result if certify else result.entropy


@overload
def uncertainty(
    credal: CredalSet, *, certify: Literal[False] = False, budget: int = BUDGET, backend: Backend | None = None
) -> Uncertainty: ...
@overload
def uncertainty(
    credal: CredalSet, *, certify: Literal[True], budget: int = BUDGET, backend: Backend | None = None
) -> CertifiedUncertainty: ...
def uncertainty(
    credal: CredalSet, *, certify: bool = False, budget: int = BUDGET, backend: Backend | None = None
) -> Uncertainty | CertifiedUncertainty:
    """Return total, aleatoric and epistemic uncertainty (Equation 1), computed in one pass.

    Args:
        credal: Credal sets.
        certify: Return a ``CertifiedUncertainty``, with the optima of both entropies and ``gap``; default False.
        budget: Bound evaluations per row, see ``lower_entropy``.
        backend: For tests and comparisons; by default numba on the CPU and torch elsewhere.
    """
    options = _options(credal, certify, budget, backend)
    upper, lower = credal.solve(options)
    difference = (upper.entropy - lower.entropy).clamp_min(0.0)  # in float64: rounding first would leave little of it
    epistemic = difference.to(credal.dtype).reshape(credal.shape[:-1])
    upper, lower = _restore(credal, upper), _restore(credal, lower)
    if certify:
        return CertifiedUncertainty(upper.entropy, lower.entropy, epistemic, upper, lower)
    return Uncertainty(upper.entropy, lower.entropy, epistemic)


def widen(midpoints: Tensor, epistemic: Tensor) -> IntervalSet:
    """Return the interval softmax (Equation 3) around midpoints that has a requested epistemic uncertainty.

    All classes get the same half-length. A larger half-length gives a superset, so the epistemic uncertainty grows with
    it: from 0 at half-length 0 to log2 C, which no finite half-length reaches. The half-length is bracketed (Illinois
    variant of regula falsi) to 1e-9 bits.

    Args:
        midpoints: Logits ``[N, C]``.
        epistemic: Epistemic uncertainty in bits ``[N]``, at least 0 and below log2 C.
    """
    m, target = midpoints.double(), epistemic.double()
    if m.dim() != 2 or target.shape != m.shape[:1]:
        raise ValueError(f"midpoints must be [N, C] and epistemic [N], not {list(m.shape)}, {list(target.shape)}")
    if m.shape[1] < 2:
        raise ValueError(f"midpoints of shape {list(m.shape)}: it must have two classes or more")
    most = math.log2(m.shape[1])
    if len(m) and not bool(((target >= 0.0) & (target < most)).all()):
        raise ValueError(f"epistemic uncertainty must be at least 0 bits and below log2 C = {most:.4g}")
    low, low_error = torch.zeros_like(target), -target
    high = (m.amax(-1) - m.amin(-1)) / 2.0 + 1.0
    high_error = _epistemic_error(m, high, target)
    while bool((high_error < 0.0).any()):  # a few times at most: the rest to log2 C halves with every step or faster
        short = high_error < 0.0
        high = torch.where(short, 2.0 * high, high)
        high_error[short] = _epistemic_error(m[short], high[short], target[short])
    half = low.clone()  # good enough for what is within the tolerance of 0
    open_rows = (target > WIDEN_TOLERANCE).nonzero().squeeze(-1)
    weight = torch.zeros_like(target)  # which end stayed last time: -1 low, 1 high
    for step in range(WIDEN_STEPS):
        if not len(open_rows):
            break
        lo, hi, f_lo, f_hi = (x[open_rows] for x in (low, high, low_error, high_error))
        cut = (f_lo * hi - f_hi * lo) / (f_lo - f_hi)
        middle = (lo + hi) / 2.0
        at = torch.where((cut > lo) & (cut < hi) & (step % 2 == 0), cut, middle)
        error = _epistemic_error(m[open_rows], at, target[open_rows])
        half[open_rows] = at
        below, stayed = error < 0.0, weight[open_rows]
        low[open_rows], high[open_rows] = torch.where(below, at, lo), torch.where(below, hi, at)
        low_error[open_rows] = torch.where(below, error, torch.where(stayed < 0, f_lo / 2.0, f_lo))
        high_error[open_rows] = torch.where(below, torch.where(stayed > 0, f_hi / 2.0, f_hi), error)
        weight[open_rows] = 2.0 * below.double() - 1.0
        open_rows = open_rows[error.abs() > WIDEN_TOLERANCE]
    return interval_softmax(m - half[:, None], m + half[:, None])


def _epistemic_error(midpoints: Tensor, half: Tensor, target: Tensor) -> Tensor:
    return uncertainty(interval_softmax(midpoints - half[:, None], midpoints + half[:, None])).epistemic - target


def _options(credal: CredalSet, certify: bool, budget: int, backend: Backend | None) -> SolverOptions:
    check_credal(credal)
    with translated(TypeError, lambda _: TypeError(f"budget must be a whole number, not {budget!r}")):
        budget = operator.index(budget)
    if not 1 <= budget <= 2**40:
        raise ValueError(f"budget must be at least 1 and at most 2**40, not {budget}")
    on_cpu = credal.device.type == "cpu"
    if backend is None:
        backend = "numba" if on_cpu else "torch"
    if backend not in ("numba", "torch"):
        raise ValueError(f"unknown backend {backend!r}: choose 'numba' or 'torch', or leave it out")
    if backend == "numba" and not on_cpu:
        raise ValueError("backend='numba' works on the CPU only: leave it out, or move the set with .to('cpu')")
    return SolverOptions(certify, budget, backend)


def _restore(credal: CredalSet, result: Optimum) -> Optimum:
    """Convert a result to the set's dtype and batch shape; the gap stays float64."""
    batch, point = credal.shape[:-1], result.distribution.to(credal.dtype)
    return Optimum(
        result.entropy.to(credal.dtype).reshape(batch),
        point.reshape(credal.shape) if point.shape[-1] == credal.shape[-1] else point,  # empty where not requested
        result.gap.reshape(batch),
    )
