"""Upper and lower entropy of credal sets, exact and with a certificate (Equation 1 of the paper).

Total uncertainty is the largest entropy of any distribution in the set, aleatoric uncertainty the smallest, epistemic
uncertainty their difference; all in bits. The solvers work in float64 whatever the dtype of the set.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from typing import Any, Literal, NamedTuple, TypeAlias, overload

import numpy as np
import torch
from torch import Tensor

from . import _torch
from ._torch import bits, slack
from .hull import HullSet
from .intervals import IntervalSet, onto_simplex

CredalSet: TypeAlias = IntervalSet | HullSet
Backend: TypeAlias = Literal["numba", "torch"]

BUDGET = 20_000  # bound evaluations a row before the first try at its lower entropy gives up
RESERVE = 2_500  # times the budget, what rows still open then share,
RESERVE_A_ROW = 8  # and as much more for every row of the batch
PROVED = 5e-10  # bits: a smaller gap is not worth a second try
SLICE = 1024  # rows handed to a thread at a time, at most
FEW = 64  # rows that are not worth a thread


class Optimum(NamedTuple):
    """An entropy in bits, a distribution of the set that has it, and a bound (float64) of the distance to the optimum.

    The gap is that of the float64 solution; storing the entropy in a narrower dtype rounds it once more.
    """

    entropy: Tensor
    distribution: Tensor
    gap: Tensor


class Uncertainty(NamedTuple):
    """Total, aleatoric and epistemic uncertainty in bits."""

    total: Tensor
    aleatoric: Tensor
    epistemic: Tensor


class CertifiedUncertainty(NamedTuple):
    """The three uncertainties, and the optima behind the first two."""

    total: Tensor
    aleatoric: Tensor
    epistemic: Tensor
    upper: Optimum
    lower: Optimum


@overload
def upper_entropy(credal: CredalSet, *, certify: Literal[False] = False, backend: Backend | None = None) -> Tensor: ...
@overload
def upper_entropy(credal: CredalSet, *, certify: Literal[True], backend: Backend | None = None) -> Optimum: ...
def upper_entropy(credal: CredalSet, *, certify: bool = False, backend: Backend | None = None) -> Tensor | Optimum:
    """The largest entropy of any distribution in the set: TU of Equation 1.

    With ``certify`` the optimal distribution and the certified gap come along. Differentiable with respect to the
    bounds or members. ``backend`` is for tests and comparisons; by default numba serves the CPU and torch the rest.
    """
    upper, _ = _solve(credal, True, False, certify, BUDGET, backend)
    assert upper is not None
    found = _restore(credal, upper)
    return found if certify else found.entropy


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

    For intervals this is a concave problem, solved by branch and bound. ``budget`` limits the bound evaluations a row;
    rows still open share a reserve of up to 100 times that a row. Whatever is left open shows in the certified gap.
    """
    _, lower = _solve(credal, False, True, certify, budget, backend)
    assert lower is not None
    found = _restore(credal, lower)
    return found if certify else found.entropy


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
    """Total, aleatoric and epistemic uncertainty (Equation 1) in one pass; see ``upper_entropy``, ``lower_entropy``."""
    upper, lower = _solve(credal, True, True, certify, budget, backend)
    assert upper is not None
    assert lower is not None
    difference = (upper.entropy - lower.entropy).clamp_min(0.0)  # in float64: rounding first would leave little of it
    epistemic = difference.to(credal.dtype).reshape(credal.shape[:-1])
    upper, lower = _restore(credal, upper), _restore(credal, lower)
    if certify:
        return CertifiedUncertainty(upper.entropy, lower.entropy, epistemic, upper, lower)
    return Uncertainty(upper.entropy, lower.entropy, epistemic)


class _Raw(NamedTuple):
    """A solver's answer in float64, without a graph: entropy [N], gap [N], distribution or weights (maybe empty)."""

    entropy: Tensor
    gap: Tensor
    point: Tensor


def _solve(
    credal: CredalSet, high: bool, low: bool, certify: bool, budget: int, backend: Backend | None
) -> tuple[Optimum | None, Optimum | None]:
    if not isinstance(credal, IntervalSet | HullSet):
        raise TypeError(f"expected an IntervalSet or a HullSet, not {type(credal).__name__}")
    try:
        budget = operator.index(budget)
    except TypeError:
        raise TypeError(f"budget must be a whole number, not {budget!r}") from None
    if not 1 <= budget <= 2**40:
        raise ValueError(f"budget must be at least 1 and at most 2**40, not {budget}")
    chosen = _choose(backend, credal.device)
    if isinstance(credal, HullSet):
        return _solve_hulls(credal, high, low, chosen)
    return _solve_intervals(credal, high, low, certify, budget, chosen)


def _restore(credal: CredalSet, found: Optimum) -> Optimum:
    """Back to the set's dtype and batch shape; the gap stays float64."""
    batch, point = credal.shape[:-1], found.distribution.to(credal.dtype)
    return Optimum(
        found.entropy.to(credal.dtype).reshape(batch),
        point.reshape(credal.shape) if point.shape[-1] == credal.shape[-1] else point,  # or empty, not asked for
        found.gap.reshape(batch),
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


def rounding(classes: int) -> float:
    """What float64 may cost an entropy: in the terms and their sum, and through mass lost to the rounding of sums."""
    eps = torch.finfo(torch.float64).eps
    return classes * (math.log2(classes) + 3.0) * eps + 50.0 * slack(classes)


def _rows(tensor: Tensor) -> Tensor:
    """[..., C] as float64 [N, C]."""
    return tensor.double().reshape(-1, tensor.shape[-1])


def _solve_intervals(
    credal: IntervalSet, high: bool, low: bool, certify: bool, budget: int, backend: Backend
) -> tuple[Optimum | None, Optimum | None]:
    graph = torch.is_grad_enabled() and (credal.lower.requires_grad or credal.upper.requires_grad)
    lower, upper = _rows(credal.lower), _rows(credal.upper)
    l, u = lower.detach(), upper.detach()
    points = certify or graph
    if backend == "numba":
        raw_high, raw_low = _numba_intervals(l, u, high, low, points, budget)
    else:
        l, u = onto_simplex(l, u)
        raw_high = _Raw(*_torch.interval_upper(l, u)) if high else None
        raw_low = _Raw(*_torch.interval_lower(l, u, budget)) if low else None
    if raw_low is not None:
        raw_low = _more_tries(l, u, raw_low, budget, backend)
    if graph:
        lower, upper = onto_simplex(lower, upper)
    return _finish(raw_high, _water_filled, lower, upper, graph), _finish(raw_low, _vertex, lower, upper, graph)


def _finish(
    raw: _Raw | None, rebuild: Callable[[Tensor, Tensor, Tensor], Tensor], lower: Tensor, upper: Tensor, graph: bool
) -> Optimum | None:
    """The solver's answer with what rounding may have cost it, and, if asked for, as a function of the bounds."""
    if raw is None:
        return None
    gap = raw.gap + rounding(lower.shape[-1])
    if not graph:
        return Optimum(raw.entropy, raw.point, gap)
    p = rebuild(lower, upper, raw.point)
    return Optimum(bits(p).sum(-1), p, gap)


def _water_filled(lower: Tensor, upper: Tensor, point: Tensor) -> Tensor:
    """The optimum clip(t, l, u) as a function of the bounds, t included: by the envelope theorem its entropy has the
    gradient of the upper entropy."""
    near = slack(point.shape[-1])  # the solver may have scaled the bounds by an ulp more
    at_lower, at_upper = point <= lower + near, point >= upper - near
    fixed = torch.where(at_lower, lower, torch.where(at_upper, upper, 0.0))
    inside = ~(at_lower | at_upper)
    level = (1.0 - fixed.sum(-1, keepdim=True)) / inside.sum(-1, keepdim=True).clamp_min(1)
    return torch.where(inside, level, fixed)


def _vertex(lower: Tensor, upper: Tensor, point: Tensor) -> Tensor:
    """The optimal vertex as a function of the bounds: each class at one of them, one class taking what is left."""
    above, below = point - lower, upper - point
    p = torch.where(above <= below, lower, upper)
    free = torch.minimum(above, below).argmax(-1, keepdim=True)
    p = p.scatter(-1, free, 0.0)
    return p.scatter(-1, free, 1.0 - p.sum(-1, keepdim=True))


def _more_tries(l: Tensor, u: Tensor, raw: _Raw, budget: int, backend: Backend) -> _Raw:
    """Rows that the budget left open get four times as much, and again, while a reserve lasts: time stays bounded."""
    share, reserve = budget, (RESERVE + RESERVE_A_ROW * len(l)) * budget
    while share < 100 * budget:
        left = (raw.gap > PROVED).nonzero().squeeze(-1)
        share = min(4 * share, 100 * budget)
        reserve -= share * len(left)
        if not len(left) or reserve < 0:
            break
        if backend == "numba":
            _, again = _numba_intervals(l[left], u[left], False, True, raw.point.numel() > 0, share)
            assert again is not None
        else:
            again = _Raw(*_torch.interval_lower(l[left], u[left], share))
        bound = torch.maximum(raw.entropy[left] - raw.gap[left], again.entropy - again.gap)
        lower = again.entropy < raw.entropy[left]
        raw.entropy[left] = torch.where(lower, again.entropy, raw.entropy[left])
        raw.gap[left] = (raw.entropy[left] - bound).clamp_min(0.0)
        if raw.point.numel():
            raw.point[left] = torch.where(lower[:, None], again.point, raw.point[left])
    return raw


def _numba_intervals(
    l: Tensor, u: Tensor, high: bool, low: bool, points: bool, budget: int
) -> tuple[_Raw | None, _Raw | None]:
    from ._numba import interval_entropies

    rows, classes = l.shape
    lower, upper = l.contiguous().numpy(), u.contiguous().numpy()
    none, none2 = np.empty(0), np.empty((0, 0))
    outs = [np.empty(rows) if wanted else none for wanted in (high, low, high, low)]
    outs += [np.empty((rows, classes)) if wanted and points else none2 for wanted in (high, low)]

    def work(part: slice) -> None:
        interval_entropies(lower[part], upper[part], budget, *(out[part] for out in outs))

    _spread(work, rows)
    tensors = [torch.from_numpy(out) for out in outs]
    return _Raw(*tensors[0::2]) if high else None, _Raw(*tensors[1::2]) if low else None


def _solve_hulls(credal: HullSet, high: bool, low: bool, backend: Backend) -> tuple[Optimum | None, Optimum | None]:
    count = credal.members.shape[0]
    members = _rows(credal.members).reshape(count, -1, credal.shape[-1])
    members = members / members.sum(-1, keepdim=True)
    rows, classes = members.shape[1:]
    upper = lower = None
    if high:
        flat = members.detach()
        if backend == "numba":
            from ._numba_hull import hull_entropies

            array = flat.transpose(0, 1).contiguous().numpy()
            outs = np.empty(rows), np.empty(rows), np.empty((rows, count))
            _spread(lambda part: hull_entropies(array[part], *(out[part] for out in outs)), rows)
            raw = _Raw(*map(torch.from_numpy, outs))
            hard = (raw.gap > PROVED).nonzero().squeeze(-1)  # rare, with members peaked to 1e-8 and beyond
            if len(hard):
                again = _Raw(*_torch.hull_upper(flat[:, hard]))
                better = again.gap < raw.gap[hard]
                for old, new in zip(raw, again, strict=True):
                    old[hard[better]] = new[better]
        else:
            raw = _Raw(*_torch.hull_upper(flat))
        mixture = torch.einsum("nm,mnc->nc", raw.point, members)
        upper = Optimum(bits(mixture).sum(-1), mixture, raw.gap + rounding(classes))
    if low:  # entropy is concave, so its minimum over a hull is at a member
        entropies = bits(members).sum(-1)
        best = entropies.argmin(0)
        node = torch.arange(rows, device=members.device)
        gap = torch.full_like(entropies[0], rounding(classes))
        lower = Optimum(entropies[best, node], members[best, node], gap)
    return upper, lower


def _spread(work: Callable[[slice], Any], rows: int) -> None:
    """Do slices of the rows on as many threads as torch uses; the kernels release the GIL."""
    threads = torch.get_num_threads()
    size = max(1, min(SLICE, -(-rows // (4 * threads))))
    if threads == 1 or rows < FEW:
        work(slice(0, rows))
        return
    with ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(work, (slice(begin, begin + size) for begin in range(0, rows, size))):
            pass
