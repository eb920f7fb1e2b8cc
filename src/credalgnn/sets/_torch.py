"""The same solvers in plain torch, many rows and many tree nodes at a time: for other devices, and without numba.

The mathematics is in ``docs/entropy.md``. Float64 throughout; entropies in bits; rows are [N, C] with sums that
admit a distribution. Gaps leave rounding of the entropies out.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

EPS = 2.0**-52
PRUNE = 1e-10  # bits: a branch that cannot gain more is closed; part of the reported gap
CLOSE = 1e-11  # bits: a hull's gap that is good enough to stop
STEPS = 100
CHUNK = 2**19  # numbers in a batch of tree nodes


def bits(p: Tensor) -> Tensor:
    """-p log2 p, and 0 at 0."""
    return -p * p.clamp_min(1e-300).log2()


def slack(classes: int) -> float:
    """The mass that rounding may leave over or short in a sum over so many classes."""
    return 4.0 * classes * EPS


def water_level(lower: Tensor, upper: Tensor) -> Tensor:
    """The t [N, 1] with sum clip(t, l, u) = 1, from the sorted break points of that piecewise linear function."""
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


def interval_upper(lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Upper entropy, certified gap and optimal distribution."""
    t = water_level(lower, upper)
    p = t.clamp(lower, upper)
    short = (1.0 - p.sum(-1)).abs()
    gap = short * (2.0 + t.squeeze(-1).clamp_min(1e-300).log2().abs())
    return bits(p).sum(-1), gap, p


class Nodes(NamedTuple):
    """A batch of tree nodes: boxes inside the rows' intervals, classes in the rows' slope order.

    A decided class has low = high. The free class, when known, is the only one whose box is a proper part of its
    interval. ``bound`` is inherited from the parent.
    """

    row: Tensor  # [K]
    low: Tensor  # [K, C]
    high: Tensor
    free: Tensor  # [K], -1 if not known
    bound: Tensor  # [K]

    def pick(self, which: Tensor) -> Nodes:
        return Nodes(*(field[which] for field in self))


class Poured(NamedTuple):
    """The chord relaxation of a batch of boxes: all before ``position`` raised, the class there by ``amount``."""

    position: Tensor  # [K, 1]
    amount: Tensor
    cost: Tensor  # without the class at position
    slope: Tensor
    feasible: Tensor


def _pour(width: Tensor, rise: Tensor, slope: Tensor, mass: Tensor, cost: Tensor) -> Poured:
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
    return Poured(position, amount, cost + raised, slope.gather(-1, inside), feasible)


def _sorted_bound(nodes: Nodes) -> Tensor:
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
        start = Nodes(
            everything, self.lower, self.upper, torch.full_like(everything, -1), torch.full_like(self.best, -math.inf)
        )
        stack = [start]
        size = max(1, CHUNK // classes)
        while stack:
            batch = [stack.pop()]
            while stack and sum(len(part.row) for part in batch) < size:
                batch.append(stack.pop())
            nodes = Nodes(*map(torch.cat, zip(*batch, strict=True)))
            if len(nodes.row) > size:
                stack.append(Nodes(*(field[size:] for field in nodes)))
                nodes = Nodes(*(field[:size] for field in nodes))
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
        """Keep the best vertex of each row; among equals the first, so that the result is the same every time."""
        self.best.scatter_reduce_(0, row, value, "amin")
        node = torch.arange(len(row), device=row.device)
        first = torch.full_like(self.visits, len(row))
        won = (value == self.best[row]) & (value < math.inf)
        first.scatter_reduce_(0, row[won], node[won], "amin")
        chosen = first[first < len(row)]
        self.point[row[chosen]] = point[chosen]

    def _expand(self, nodes: Nodes) -> list[Nodes]:
        """Bound a batch, offer the vertices met, close what is hopeless, and return the children of the rest."""
        self.visits.scatter_add_(0, nodes.row, torch.ones_like(nodes.row))
        known = nodes.free >= 0
        children: list[Nodes] = []
        for which, bound_of in ((~known, self._bound_any), (known, self._bound_free)):
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

    def _bound_any(self, nodes: Nodes) -> tuple[Tensor, Tensor, Nodes]:
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

    def _bound_free(self, nodes: Nodes) -> tuple[Tensor, Tensor, Nodes]:
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

    def _children_any(self, nodes: Nodes, pick: Tensor) -> list[Nodes]:
        """Raise, lower or free the picked class, with what the exchange rules decide along."""
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
            Nodes(
                nodes.row, torch.where(is_k, start, raised), torch.where(is_k, stop, lowered), pick, nodes.bound
            ).pick(window),
            nodes._replace(high=torch.where(is_k, nodes.low, lowered)),
            nodes._replace(low=torch.where(is_k, nodes.high, raised)),
        ]

    def _children_free(self, nodes: Nodes, pick: Tensor) -> list[Nodes]:
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


def interval_lower(lower: Tensor, upper: Tensor, budget: int) -> tuple[Tensor, Tensor, Tensor]:
    """Lower entropy, certified gap and optimal distribution (a vertex)."""
    return _Search(lower, upper, budget).run()


def hull_upper(members: Tensor) -> tuple[Tensor, Tensor, Tensor]:
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
        w, z = _inside(w, move), _inside(z, dual)
        w = w / w.sum(-1, keepdim=True)
    return value, gap, weights


def _inside(value: Tensor, change: Tensor) -> Tensor:
    """A step that keeps all numbers positive."""
    reach = torch.where(change < 0, -value / change, math.inf).amin(-1, keepdim=True)
    return value + (0.99 * reach).clamp_max(1.0) * change
