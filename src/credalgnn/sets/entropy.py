"""Upper and lower entropy of credal sets, exact and with a certificate (Equation 1 of the paper).

Total uncertainty is the largest entropy of any distribution in the set, aleatoric uncertainty the smallest, epistemic
uncertainty their difference; all in bits. The solvers work in float64 whatever the dtype of the set; which one serves a
set is a matter of its kind (``CredalSet.solve_upper``, ``CredalSet.solve_lower``).
"""

from __future__ import annotations

import operator
from importlib.util import find_spec
from typing import Literal, NamedTuple, overload

import torch
from torch import Tensor

from .base import Backend, CredalSet, Optimum, SolverOptions, check_credal

BUDGET = 20_000  # bound evaluations a row before the first search for its lower entropy gives up


class Uncertainty(NamedTuple):
    """Total, aleatoric and epistemic uncertainty.

    Args:
        total: The upper entropy, in bits.
        aleatoric: The lower entropy, in bits.
        epistemic: Their difference.
    """

    total: Tensor
    aleatoric: Tensor
    epistemic: Tensor


class CertifiedUncertainty(NamedTuple):
    """The three uncertainties, and the optima behind the first two.

    Args:
        total: The upper entropy, in bits.
        aleatoric: The lower entropy, in bits.
        epistemic: Their difference.
        upper: The optimum behind the total uncertainty.
        lower: The optimum behind the aleatoric uncertainty.
    """

    total: Tensor
    aleatoric: Tensor
    epistemic: Tensor
    upper: Optimum
    lower: Optimum

    @property
    def gap(self) -> Tensor:
        """A bound of the error of either entropy, total or aleatoric, in bits; float64.

        It is the larger of the two optima's gaps. The epistemic uncertainty is a difference of the two, so its error is
        bounded by their sum, ``upper.gap + lower.gap``, and so by twice this.
        """
        return torch.maximum(self.upper.gap, self.lower.gap)


@overload
def upper_entropy(credal: CredalSet, *, certify: Literal[False] = False, backend: Backend | None = None) -> Tensor: ...
@overload
def upper_entropy(credal: CredalSet, *, certify: Literal[True], backend: Backend | None = None) -> Optimum: ...
def upper_entropy(credal: CredalSet, *, certify: bool = False, backend: Backend | None = None) -> Tensor | Optimum:
    """The largest entropy of any distribution in the set: TU of Equation 1.

    Differentiable with respect to the bounds or members.

    Args:
        credal: The credal sets.
        certify: Return an ``Optimum``: with the entropy the optimal distribution and the certified gap.
        backend: For tests and comparisons; by default numba serves the CPU and torch the rest.
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
    """The smallest entropy of any distribution in the set: AU of Equation 1.

    For intervals this is a concave problem, solved by branch and bound. Differentiable with respect to the bounds or
    members.

    Args:
        credal: The credal sets.
        certify: Return an ``Optimum``: with the entropy the optimal distribution and the certified gap.
        budget: Bound evaluations a row; rows still open share a reserve of up to 100 times that a row. Whatever is left
            open shows in the certified gap.
        backend: For tests and comparisons; by default numba serves the CPU and torch the rest.
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
    """Total, aleatoric and epistemic uncertainty (Equation 1) in a single pass.

    Args:
        credal: The credal sets.
        certify: Return a ``CertifiedUncertainty``: with the optima of both entropies, and ``gap``.
        budget: Bound evaluations a row, see ``lower_entropy``.
        backend: For tests and comparisons; by default numba serves the CPU and torch the rest.
    """
    options = _options(credal, certify, budget, backend)
    upper, lower = credal.solve(options)
    difference = (upper.entropy - lower.entropy).clamp_min(0.0)  # in float64: rounding first would leave little of it
    epistemic = difference.to(credal.dtype).reshape(credal.shape[:-1])
    upper, lower = _restore(credal, upper), _restore(credal, lower)
    if certify:
        return CertifiedUncertainty(upper.entropy, lower.entropy, epistemic, upper, lower)
    return Uncertainty(upper.entropy, lower.entropy, epistemic)


def _options(credal: CredalSet, certify: bool, budget: int, backend: Backend | None) -> SolverOptions:
    """What the solvers are asked for, checked."""
    check_credal(credal)
    try:
        budget = operator.index(budget)
    except TypeError:
        raise TypeError(f"budget must be a whole number, not {budget!r}") from None
    if not 1 <= budget <= 2**40:
        raise ValueError(f"budget must be at least 1 and at most 2**40, not {budget}")
    return SolverOptions(certify, budget, _choose(backend, credal.device))


def _restore(credal: CredalSet, result: Optimum) -> Optimum:
    """Back to the set's dtype and batch shape; the gap stays float64."""
    batch, point = credal.shape[:-1], result.distribution.to(credal.dtype)
    return Optimum(
        result.entropy.to(credal.dtype).reshape(batch),
        point.reshape(credal.shape) if point.shape[-1] == credal.shape[-1] else point,  # or empty, not asked for
        result.gap.reshape(batch),
    )


def _choose(backend: Backend | None, device: torch.device) -> Backend:
    if backend is None:
        return "numba" if device.type == "cpu" and find_spec("numba") is not None else "torch"
    if backend not in ("numba", "torch"):
        raise ValueError(f"unknown backend {backend!r}: choose 'numba' or 'torch', or leave it out")
    if backend == "numba" and find_spec("numba") is None:
        raise ImportError("backend 'numba' is not installed: pip install numba, or leave the backend out")
    if backend == "numba" and device.type != "cpu":
        raise ValueError(
            "backend 'numba' works on the CPU only: leave the backend out, or move the set with .to('cpu')"
        )
    return backend
