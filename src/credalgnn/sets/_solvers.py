"""Entropy solvers for batches of rows: threads, gradients and certificates around the numba and torch kernels.

The mathematics is in ``docs/entropy.md``. Float64 throughout; entropies in bits; gaps leave out rounding of the
entropies. The torch kernels treat many rows and tree nodes at once and serve other devices than the CPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from .base import Backend, Optimum, SolverOptions, bits, onto_simplex, rounding, slack

RESERVE = 2_500  # times the budget: bound evaluations shared by rows that stay open after the first search,
RESERVE_PER_ROW = 8  # and as many more for every row of the batch
PROVED = 5e-10  # bits: a smaller gap is not worth a second search
SLICE = 1024  # rows handed to a thread at a time, at most
FEW = 64  # fewer rows are not worth a thread
PRUNE = 1e-10  # bits: a branch that cannot gain more is closed; part of the reported gap
CLOSE = 1e-11  # bits: a hull's gap that is good enough to stop
STEPS = 100
CHUNK = 2**19  # numbers in a batch of tree nodes


class _Raw(NamedTuple):
    """Result of a kernel, detached: entropy [N], gap [N], distribution or weights (empty where not requested)."""

    entropy: Tensor
    gap: Tensor
    point: Tensor


def _rows(tensor: Tensor) -> Tensor:
    """[..., C] as float64 [N, C]."""
    return tensor.double().reshape(-1, tensor.shape[-1])


def interval_optima(lower: Tensor, upper: Tensor, high: bool, low: bool, options: SolverOptions) -> list[Optimum]:
    """Largest (``high``) and smallest (``low``) entropy of all distributions between bounds, in one pass."""
    _, budget, backend = options
    graph = torch.is_grad_enabled() and (lower.requires_grad or upper.requires_grad)
    lower, upper = _rows(lower), _rows(upper)
    l, u = lower.detach(), upper.detach()
    points = options.certify or graph
    if backend == "numba":
        raw_high, raw_low = _numba_intervals(l, u, high, low, points, budget)
    else:
        l, u = onto_simplex(l, u)
        raw_high = _Raw(*_torch_interval_upper(l, u)) if high else None
        raw_low = _Raw(*_torch_interval_lower(l, u, budget)) if low else None
    if raw_low is not None:
        raw_low = _retry_open_rows(l, u, raw_low, budget, backend)
    if graph:
        lower, upper = onto_simplex(lower, upper)
    results = (raw_high, _water_filled), (raw_low, _vertex)
    return [_finish(raw, rebuild, lower, upper, graph) for raw, rebuild in results if raw is not None]


def _finish(
    raw: _Raw, rebuild: Callable[[Tensor, Tensor, Tensor], Tensor], lower: Tensor, upper: Tensor, graph: bool
) -> Optimum:
    """Add rounding to the gap, and rebuild the result as a function of the bounds where gradients are needed."""
    gap = raw.gap + rounding(lower.shape[-1])
    if not graph:
        return Optimum(raw.entropy, raw.point, gap)
    p = rebuild(lower, upper, raw.point)
    return Optimum(bits(p).sum(-1), p, gap)


def _water_filled(lower: Tensor, upper: Tensor, point: Tensor) -> Tensor:
    """Rebuild the optimum clip(t, l, u) from the bounds; by the envelope theorem its entropy has the right gradient."""
    near = slack(point.shape[-1])  # the solver may have scaled the bounds by an ulp more
    at_lower, at_upper = point <= lower + near, point >= upper - near
    fixed = torch.where(at_lower, lower, torch.where(at_upper, upper, 0.0))
    inside = ~(at_lower | at_upper)
    level = (1.0 - fixed.sum(-1, keepdim=True)) / inside.sum(-1, keepdim=True).clamp_min(1)
    return torch.where(inside, level, fixed)


def _vertex(lower: Tensor, upper: Tensor, point: Tensor) -> Tensor:
    """Rebuild the optimal vertex from the bounds: each class at one of them, one class taking the rest."""
    above, below = point - lower, upper - point
    p = torch.where(above <= below, lower, upper)
    free = torch.minimum(above, below).argmax(-1, keepdim=True)
    p = p.scatter(-1, free, 0.0)
    return p.scatter(-1, free, 1.0 - p.sum(-1, keepdim=True))


def _retry_open_rows(l: Tensor, u: Tensor, raw: _Raw, budget: int, backend: Backend) -> _Raw:
    """Search rows that the budget left open with four times as much, repeatedly, while a shared reserve lasts."""
    share, reserve = budget, (RESERVE + RESERVE_PER_ROW * len(l)) * budget
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
            again = _Raw(*_torch_interval_lower(l[left], u[left], share))
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
    from ._numba import interval_entropies  # numba takes a moment to load

    rows, classes = l.shape
    lower, upper = l.contiguous().numpy(), u.contiguous().numpy()
    none, none2 = np.empty(0), np.empty((0, 0))
    outs = [np.empty(rows) if requested else none for requested in (high, low, high, low)]
    outs += [np.empty((rows, classes)) if requested and points else none2 for requested in (high, low)]

    def work(part: slice) -> None:
        interval_entropies(lower[part], upper[part], budget, *(out[part] for out in outs))

    _spread(work, rows)
    tensors = [torch.from_numpy(out) for out in outs]
    return _Raw(*tensors[0::2]) if high else None, _Raw(*tensors[1::2]) if low else None


def hull_upper(members: Tensor, backend: Backend) -> Optimum:
    """Largest entropy over the hulls of normalised members ``[M, N, C]``."""
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
            again = _Raw(*_torch_hull_upper(flat[:, hard]))
            better = again.gap < raw.gap[hard]
            for old, new in zip(raw, again, strict=True):
                old[hard[better]] = new[better]
    else:
        raw = _Raw(*_torch_hull_upper(flat))
    mixture = torch.einsum("nm,mnc->nc", raw.point, members)
    return Optimum(bits(mixture).sum(-1), mixture, raw.gap + rounding(classes))


def hull_lower(members: Tensor) -> Optimum:
    """Smallest entropy over the hulls; entropy is concave, so a member attains it."""
    entropies = bits(members).sum(-1)
    best = entropies.argmin(0)
    node = torch.arange(members.shape[1], device=members.device)
    gap = torch.full_like(entropies[0], rounding(members.shape[-1]))
    return Optimum(entropies[best, node], members[best, node], gap)


def normalised(members: Tensor) -> Tensor:
    """Members [M, ..., C] as float64 [M, N, C] that sum to 1."""
    members = _rows(members).reshape(members.shape[0], -1, members.shape[-1])
    return members / members.sum(-1, keepdim=True)


def _spread(work: Callable[[slice], Any], rows: int) -> None:
    """Process slices of the rows on as many threads as torch uses; the kernels release the GIL."""
    threads = torch.get_num_threads()
    size = max(1, min(SLICE, -(-rows // (4 * threads))))
    if threads == 1 or rows < FEW:
        work(slice(0, rows))
        return
    with ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(work, (slice(begin, begin + size) for begin in range(0, rows, size))):
            pass


def _water_level(lower: Tensor, upper: Tensor) -> Tensor:
    """Level t [N, 1] with sum clip(t, l, u) = 1, from the sorted break points of that piecewise linear function."""
    points = torch.cat([lower, upper], -1)
    points, order = points.sort(-1)
    slope = torch.where(order < lower.shape[-1], 1.0, -1.0).to(lower.dtype).cumsum(-1)
    filled = lower.sum(-1, keepdim=True) + torch.cat(
        [torch.zeros_like(points[:, :1]), (slope[:, :-1] * points.diff(dim=-1)).cumsum(-1)], -1
    )
    k = ((filled <= 1.0).sum(-1, keepdim=True) - 1).clamp_min(0)
    t = points.gather(-1, k)
    for _ in range(3):  # the last steps of Newton's method, free of the rounding of the long sums above
        inside = ((lower <= t) & (t < upper)).sum(-1, keepdim=True)
        short = 1.0 - t.clamp(lower, upper).sum(-1, keepdim=True)
        t = t + short / inside.clamp_min(1)
    return t


def _torch_interval_upper(lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Upper entropy, certified gap and optimal distribution."""
    t = _water_level(lower, upper)
    p = t.clamp(lower, upper)
    short = (1.0 - p.sum(-1)).abs()
    gap = short * (2.0 + t.squeeze(-1).clamp_min(1e-300).log2().abs())
    return bits(p).sum(-1), gap, p


class _TreeNodes(NamedTuple):
    """Batch of tree nodes: boxes inside the rows' intervals, classes in the rows' slope order.

    A decided class has low = high. The free class, once decided, is the only one whose box is a proper part of its
    interval. ``bound`` is inherited from the parent.
    """

    row: Tensor  # [K]
    low: Tensor  # [K, C]
    high: Tensor
    free: Tensor  # [K], -1 if undecided
    bound: Tensor  # [K]

    def pick(self, which: Tensor) -> _TreeNodes:
        return _TreeNodes(*(field[which] for field in self))


class _Poured(NamedTuple):
    """Chord relaxation of a batch of boxes: all before ``position`` raised, the class there by ``amount``."""

    position: Tensor  # [K, 1]
    amount: Tensor
    cost: Tensor  # without the class at position
    slope: Tensor
    feasible: Tensor


def _pour(width: Tensor, rise: Tensor, slope: Tensor, mass: Tensor, cost: Tensor) -> _Poured:
    filled = width.cumsum(-1)
    total = filled[:, -1:]
    tolerance = slack(width.shape[-1])
    spent = mass.clamp_min(0.0).minimum(total)
    position = (filled <= spent).sum(-1, keepdim=True)
    inside = position.clamp_max(width.shape[-1] - 1)
    before = torch.where(position > 0, filled.gather(-1, (position - 1).clamp_min(0)), 0.0)
    raised = torch.where(position > 0, rise.cumsum(-1).gather(-1, (position - 1).clamp_min(0)), 0.0)
    feasible = (mass >= -tolerance) & (mass <= total + tolerance)
    amount = torch.where(position < width.shape[-1], spent - before, 0.0)
    return _Poured(position, amount, cost + raised, slope.gather(-1, inside), feasible)


def _sorted_bound(nodes: _TreeNodes) -> Tensor:
    """Order-statistics bound: the k-th largest p lies between the k-th largest bounds, and sorted boxes are easy."""
    low, high = nodes.low.sort(-1, descending=True).values, nodes.high.sort(-1, descending=True).values
    h_low = bits(low)
    width, rise = high - low, bits(high) - h_low
    poured = _pour(width, rise, width, 1.0 - low.sum(-1, keepdim=True), h_low.sum(-1, keepdim=True))
    at = poured.position.clamp_max(low.shape[-1] - 1)
    part = bits(low.gather(-1, at) + poured.amount) - h_low.gather(-1, at)
    value = poured.cost + torch.where(poured.position < low.shape[-1], part, 0.0)
    return torch.where(poured.feasible, value, math.inf).squeeze(-1)


class _Search:
    """Branch and bound over all rows at once; nodes are taken from the end of a stack, a batch at a time."""

    def __init__(self, lower: Tensor, upper: Tensor, budget: int) -> None:
        h_lower, h_upper = bits(lower), bits(upper)
        width = upper - lower
        slope = torch.where(width > 0, (h_upper - h_lower) / width, -upper.clamp_min(1e-300).log2())
        self.slope, self.order = slope.sort(dim=-1, stable=True)
        self.lower, self.upper = lower.gather(-1, self.order), upper.gather(-1, self.order)
        self.budget = budget
        rows, classes = lower.shape
        self.best = lower.new_full((rows,), math.inf)
        self.point = torch.zeros_like(lower)
        self.proved = self.best.clone()
        self.visits = torch.zeros(rows, dtype=torch.long, device=lower.device)
        self.position = torch.arange(classes, device=lower.device)

    def run(self) -> tuple[Tensor, Tensor, Tensor]:
        rows, classes = self.lower.shape
        everything = torch.arange(rows, device=self.lower.device)
        start = _TreeNodes(
            everything, self.lower, self.upper, torch.full_like(everything, -1), torch.full_like(self.best, -math.inf)
        )
        stack = [start]
        size = max(1, CHUNK // classes)
        while stack:
            batch = [stack.pop()]
            while stack and sum(len(part.row) for part in batch) < size:
                batch.append(stack.pop())
            nodes = _TreeNodes(*map(torch.cat, zip(*batch, strict=True)))
            if len(nodes.row) > size:
                stack.append(_TreeNodes(*(field[size:] for field in nodes)))
                nodes = _TreeNodes(*(field[:size] for field in nodes))
            keep = (nodes.bound < self.best[nodes.row] - PRUNE) & (self.visits[nodes.row] < self.budget)
            self._close(nodes.row, nodes.bound, ~keep)
            nodes = nodes.pick(keep)
            if len(nodes.row):
                stack.extend(child for child in self._expand(nodes) if len(child.row))
        gap = (self.best - self.proved).clamp_min(0.0)
        return self.best, gap, torch.zeros_like(self.point).scatter(-1, self.order, self.point)

    def _close(self, row: Tensor, bound: Tensor, which: Tensor) -> None:
        self.proved.scatter_reduce_(0, row[which], bound[which], "amin")

    def _offer(self, row: Tensor, value: Tensor, point: Tensor) -> None:
        """Keep the best vertex of each row; among equals the first, so that the result is deterministic."""
        self.best.scatter_reduce_(0, row, value, "amin")
        node = torch.arange(len(row), device=row.device)
        first = torch.full_like(self.visits, len(row))
        won = (value == self.best[row]) & (value < math.inf)
        first.scatter_reduce_(0, row[won], node[won], "amin")
        chosen = first[first < len(row)]
        self.point[row[chosen]] = point[chosen]

    def _expand(self, nodes: _TreeNodes) -> list[_TreeNodes]:
        """Bound a batch, offer its vertices, close hopeless nodes, and return the children of the rest."""
        self.visits.scatter_add_(0, nodes.row, torch.ones_like(nodes.row))
        decided = nodes.free >= 0
        children: list[_TreeNodes] = []
        for which, bound_of in ((~decided, self._bound_any), (decided, self._bound_free)):
            part = nodes.pick(which)
            if not len(part.row):
                continue
            bound, pick, part = bound_of(part)
            hopeless = self.best[part.row] - PRUNE
            unsure = (bound < hopeless) & (pick >= 0)
            if bool(unsure.any()):
                bound = bound.clone()
                bound[unsure] = bound[unsure].maximum(_sorted_bound(part.pick(unsure)))
            grow = (bound < hopeless) & (pick >= 0)
            self._close(part.row, bound, ~grow)
            part, pick = part._replace(bound=bound).pick(grow), pick[grow]
            if len(part.row):
                children += (
                    self._children_free(part, pick) if bound_of == self._bound_free else self._children_any(part, pick)
                )
        return children

    def _bound_any(self, nodes: _TreeNodes) -> tuple[Tensor, Tensor, _TreeNodes]:
        h_low = bits(nodes.low)
        width, rise = nodes.high - nodes.low, bits(nodes.high) - h_low
        slope = self.slope[nodes.row]
        mass = 1.0 - nodes.low.sum(-1, keepdim=True)
        poured = _pour(width, rise, slope, mass, h_low.sum(-1, keepdim=True))
        at = poured.position.clamp_max(width.shape[-1] - 1)
        exact = bits(nodes.low.gather(-1, at) + poured.amount) - h_low.gather(-1, at)
        partial = poured.position < width.shape[-1]
        value = torch.where(poured.feasible, poured.cost + torch.where(partial, exact, 0.0), math.inf)
        point = torch.where(self.position < poured.position, nodes.high, nodes.low)
        point = point.scatter_add(-1, at, torch.where(partial, poured.amount, 0.0))
        self._offer(nodes.row, value.squeeze(-1), point)
        bound = torch.where(poured.feasible, poured.cost + poured.slope * poured.amount, math.inf)
        pick = torch.where(partial & poured.feasible, poured.position, -1)
        return bound.squeeze(-1), pick.squeeze(-1), nodes

    def _bound_free(self, nodes: _TreeNodes) -> tuple[Tensor, Tensor, _TreeNodes]:
        """See ``docs/entropy.md``: break points are vertices, and otherwise the minimum is at an end of the window."""
        f = nodes.free[:, None]
        is_free = self.position == f
        start, stop = nodes.low.gather(-1, f), nodes.high.gather(-1, f)
        low, high = nodes.low.masked_fill(is_free, 0.0), nodes.high.masked_fill(is_free, 0.0)
        h_low = bits(low)
        width, rise, slope = high - low, bits(high) - h_low, self.slope[nodes.row]
        mass, cost = 1.0 - low.sum(-1, keepdim=True), h_low.sum(-1, keepdim=True)
        zero, tolerance = torch.zeros_like(mass), slack(width.shape[-1])
        t = mass - torch.cat([zero, width.cumsum(-1)], -1)
        legal = (t >= start - tolerance) & (t <= stop + tolerance)
        value = cost + torch.cat([zero, rise.cumsum(-1)], -1) + bits(t.clamp(start, stop))
        vertex, k = torch.where(legal, value, math.inf).min(-1, keepdim=True)
        point = torch.where(self.position < k, high, low).scatter(-1, f, t.gather(-1, k).clamp(start, stop))
        self._offer(nodes.row, vertex.squeeze(-1), point)
        ends = []
        for end in (stop, start):
            poured = _pour(width, rise, slope, mass - end, cost)
            partial = poured.feasible & (poured.amount > 0)  # else the end is a break point, counted above
            bound = poured.cost + poured.slope * poured.amount + bits(end)
            ends.append((torch.where(partial, bound, math.inf), poured.position, poured.slope))
        (at_stop, first, stop_slope), (at_start, last, start_slope) = ends
        bound = at_stop.minimum(at_start).minimum(vertex)
        pick = torch.where(at_stop <= at_start, first, last)
        pick = torch.where(bound == vertex, -1, pick)
        # With f free every other class is at a bound; fix those whose change alone would cost too much.
        turned = (at_stop + width * (slope - stop_slope).abs()).minimum(at_start + width * (slope - start_slope).abs())
        settled = (width > 0) & (turned >= self.best[nodes.row, None] - PRUNE) & (stop > start)
        settled &= (self.position < first) & (at_stop < math.inf) | (self.position > last) & (at_start < math.inf)
        self._close(nodes.row, torch.where(settled, turned, math.inf).min(-1).values, settled.any(-1))
        up = settled & (self.position < first)
        nodes = nodes._replace(
            low=torch.where(up, nodes.high, nodes.low), high=torch.where(settled & ~up, nodes.low, nodes.high)
        )
        return bound.squeeze(-1), pick.squeeze(-1), nodes

    def _children_any(self, nodes: _TreeNodes, pick: Tensor) -> list[_TreeNodes]:
        """Raise, lower or free the picked class, and apply the exchange rules."""
        lower, upper = self.lower[nodes.row], self.upper[nodes.row]
        k = pick[:, None]
        l_k, u_k = lower.gather(-1, k), upper.gather(-1, k)
        undecided = nodes.high > nodes.low
        is_k = self.position == k
        above = (
            undecided & (lower >= l_k) & (upper >= u_k) & (self.position < k)
        )  # dominate k: full when k is not empty
        below = undecided & (lower <= l_k) & (upper <= u_k) & (self.position > k)  # dominated: empty when k is not full
        raised = torch.where(above, nodes.high, nodes.low)
        lowered = torch.where(below, nodes.low, nodes.high)
        inside = ~undecided & (lower > l_k) & (upper < u_k) & (lower < upper)
        full = nodes.low >= upper
        start = torch.where(inside & ~full, upper, l_k).amax(-1, keepdim=True)
        stop = torch.where(inside & full, lower, u_k).amin(-1, keepdim=True)
        window = (start <= stop).squeeze(-1)
        return [
            _TreeNodes(
                nodes.row, torch.where(is_k, start, raised), torch.where(is_k, stop, lowered), pick, nodes.bound
            ).pick(window),
            nodes._replace(high=torch.where(is_k, nodes.low, lowered)),
            nodes._replace(low=torch.where(is_k, nodes.high, raised)),
        ]

    def _children_free(self, nodes: _TreeNodes, pick: Tensor) -> list[_TreeNodes]:
        """Raise or lower the picked class; strictly inside the free interval, it narrows the window by that."""
        lower, upper = self.lower[nodes.row], self.upper[nodes.row]
        f, k = nodes.free[:, None], pick[:, None]
        is_free, is_k = self.position == f, self.position == k
        l_f, u_f = lower.gather(-1, f), upper.gather(-1, f)
        inside = (lower > l_f) & (upper < u_f) & (nodes.high > nodes.low) & ~is_free
        k_inside = inside.gather(-1, k)
        children = []
        for raising in (False, True):
            start, stop = nodes.low.gather(-1, f), nodes.high.gather(-1, f)
            if raising:
                stop = torch.where(k_inside, stop.minimum(lower.gather(-1, k)), stop)
            else:
                start = torch.where(k_inside, start.maximum(upper.gather(-1, k)), start)
            up = inside & k_inside & (stop < upper)
            down = inside & k_inside & ~up & (start > lower)
            up, down = (up | is_k, down & ~is_k) if raising else (up & ~is_k, down | is_k)
            low = torch.where(is_free, start, torch.where(up, nodes.high, nodes.low))
            high = torch.where(is_free, stop, torch.where(down, nodes.low, nodes.high))
            children.append(nodes._replace(low=low, high=high).pick((start <= stop).squeeze(-1)))
        return children


def _torch_interval_lower(lower: Tensor, upper: Tensor, budget: int) -> tuple[Tensor, Tensor, Tensor]:
    """Lower entropy, certified gap and optimal distribution (a vertex)."""
    return _Search(lower, upper, budget).run()


def _torch_hull_upper(members: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Upper entropy, certified gap and optimal weights [N, M] of hulls [M, N, C]: a primal-dual interior point method.

    Conditions at the optimum: CE(p_m, q) + z_m equal for all m, w_m z_m = 0, w and z not negative.
    """
    p = members.transpose(0, 1)  # [N, M, C]
    rows, m = p.shape[:2]
    w = p.new_full((rows, m), 1.0 / m)
    z = torch.ones_like(w)
    value, gap, weights = p.new_full((rows,), -math.inf), p.new_full((rows,), math.inf), w.clone()
    left = torch.arange(rows, device=p.device)  # rows not yet solved; the others would run into singular matrices
    for _ in range(STEPS):
        q = (w[:, None] @ p).squeeze(1).clamp_min(1e-300)
        slope = -(p @ q.log2()[..., None]).squeeze(-1)
        entropy = (w * slope).sum(-1)
        excess = (slope.amax(-1) - entropy).clamp_min(0.0)
        better = excess < gap[left]
        won = left[better]
        value[won], gap[won], weights[won] = entropy[better], excess[better], w[better]
        go = gap[left] > CLOSE
        if not bool(go.any()):
            break
        left, p, q, slope, w, z = (each[go] for each in (left, p, q, slope, w, z))
        target = 0.1 * (w * z).mean(-1, keepdim=True)
        curvature = (p / q[:, None]) @ p.mT / math.log(2.0) + torch.diag_embed(z / w)
        sides = torch.stack([slope + target / w, torch.ones_like(w)], -1)
        solved = torch.linalg.solve(curvature, sides)
        level = solved[..., 0].sum(-1, keepdim=True) / solved[..., 1].sum(-1, keepdim=True)
        move = solved[..., 0] - level * solved[..., 1]
        dual = target / w - z - z / w * move
        w, z = _positive_step(w, move), _positive_step(z, dual)
        w = w / w.sum(-1, keepdim=True)
    return value, gap, weights


def _positive_step(value: Tensor, change: Tensor) -> Tensor:
    """Take the longest part of a step, at most all of it, that keeps all numbers positive."""
    reach = torch.where(change < 0, -value / change, math.inf).amin(-1, keepdim=True)
    return value + (0.99 * reach).clamp_max(1.0) * change
