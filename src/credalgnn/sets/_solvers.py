"""Solvers for rows of tensors: threads, gradients and certificates around the kernels of numba and torch."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from . import _torch
from ._torch import bits, slack
from .base import Backend, Optimum, SolverOptions, onto_simplex, rounding

RESERVE = 2_500  # times the budget, what rows still open after the first search share,
RESERVE_A_ROW = 8  # and as much more for every row of the batch
PROVED = 5e-10  # bits: a smaller gap is not worth a second search
SLICE = 1024  # rows handed to a thread at a time, at most
FEW = 64  # rows that are not worth a thread


class _Raw(NamedTuple):
    """A kernel's result in float64, without a graph: entropy [N], gap [N], distribution or weights (maybe empty)."""

    entropy: Tensor
    gap: Tensor
    point: Tensor


def _rows(tensor: Tensor) -> Tensor:
    """[..., C] as float64 [N, C]."""
    return tensor.double().reshape(-1, tensor.shape[-1])


def interval_optima(lower: Tensor, upper: Tensor, high: bool, low: bool, options: SolverOptions) -> list[Optimum]:
    """Largest (``high``) and smallest (``low``) entropy of all distributions between bounds ``[..., C]``, in a pass."""
    _, budget, backend = options
    graph = torch.is_grad_enabled() and (lower.requires_grad or upper.requires_grad)
    lower, upper = _rows(lower), _rows(upper)
    l, u = lower.detach(), upper.detach()
    points = options.certify or graph
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
    results = (raw_high, _water_filled), (raw_low, _vertex)
    return [_finish(raw, rebuild, lower, upper, graph) for raw, rebuild in results if raw is not None]


def _finish(
    raw: _Raw, rebuild: Callable[[Tensor, Tensor, Tensor], Tensor], lower: Tensor, upper: Tensor, graph: bool
) -> Optimum:
    """The kernel's result with what rounding may have cost it, and, if asked for, as a function of the bounds."""
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


def hull_upper(members: Tensor, backend: Backend) -> Optimum:
    """Largest entropy over the hulls of members ``[M, N, C]``, as ``normalised`` gives them."""
    count, rows, classes = members.shape
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
    return Optimum(bits(mixture).sum(-1), mixture, raw.gap + rounding(classes))


def hull_lower(members: Tensor) -> Optimum:
    """Smallest entropy over the hulls: entropy is concave, so it is that of a member."""
    entropies = bits(members).sum(-1)
    best = entropies.argmin(0)
    node = torch.arange(members.shape[1], device=members.device)
    gap = torch.full_like(entropies[0], rounding(members.shape[-1]))
    return Optimum(entropies[best, node], members[best, node], gap)


def normalised(members: Tensor) -> Tensor:
    """[M, ..., C] as float64 [M, N, C], free of what rounding to a dtype did to the sums."""
    members = _rows(members).reshape(members.shape[0], -1, members.shape[-1])
    return members / members.sum(-1, keepdim=True)


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
