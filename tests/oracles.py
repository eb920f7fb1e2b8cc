"""Slow but certain references for credal sets, in float64, from the definitions alone.

Nothing here shares code or an algorithm with the package: entropies of interval sets come from
enumerating vertices and from bisection, those of hulls from an interior-point method with a
certificate, decisions from linear programs. Entropies are in bits.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linprog

Array = NDArray[np.float64]
Bounds = tuple[Array, Array]

FEASIBLE = 5e-15  # how far a candidate vertex may lie outside its bounds by rounding


def entropy(p: ArrayLike) -> Array:
    """Shannon entropy in bits over the last axis, with 0 log 0 = 0."""
    p = np.asarray(p, dtype=np.float64)
    return _h(p).sum(axis=-1)


def _h(x: Array) -> Array:
    """-x log2 x, and 0 at x <= 0."""
    return -x * np.log2(np.where(x > 0, x, 1.0))


# Interval sets {p : lower <= p <= upper, sum p = 1}


def interval_vertices(lower: ArrayLike, upper: ArrayLike) -> Array:
    """Every vertex of one interval set, [V, C], by plain loops.

    C - 1 active constraints besides sum p = 1 define a vertex: all classes but one are at a bound.
    """
    low = np.asarray(lower, dtype=np.float64)
    up = np.asarray(upper, dtype=np.float64)
    results = []
    for free in range(len(low)):
        others = [c for c in range(len(low)) if c != free]
        for at_upper in itertools.product((False, True), repeat=len(others)):
            p = np.empty_like(low)
            for c, raised in zip(others, at_upper, strict=True):
                p[c] = up[c] if raised else low[c]
            p[free] = 1.0 - p[others].sum()
            if low[free] - FEASIBLE <= p[free] <= up[free] + FEASIBLE:
                p[free] = min(max(p[free], low[free]), up[free])
                results.append(p)
    return np.array(results)


def brute_lower_entropy(lower: ArrayLike, upper: ArrayLike, chunk: int = 4096) -> Array:
    """The smallest entropy of each interval set [N, C] -> [N].

    Entropy is concave, so its minimum over a polytope is at a vertex: all C 2^(C-1) candidates
    are tried. The entropy and the mass of the classes at a bound are linear in the 0/1 choices,
    which makes a row's candidates a matrix product.
    """
    low = np.asarray(lower, dtype=np.float64)
    up = np.asarray(upper, dtype=np.float64)
    n, c = low.shape
    choices = np.array(list(itertools.product((0.0, 1.0), repeat=c - 1))).reshape(-1, c - 1).T
    best = np.full(n, np.inf)
    for start in range(0, n, chunk):
        rows = slice(start, start + chunk)
        l_, u_ = low[rows], up[rows]
        for free in range(c):
            rest = [k for k in range(c) if k != free]
            l_rest, u_rest = l_[:, rest], u_[:, rest]
            mass = l_rest.sum(axis=1, keepdims=True) + (u_rest - l_rest) @ choices
            bits = _h(l_rest).sum(axis=1, keepdims=True) + (_h(u_rest) - _h(l_rest)) @ choices
            l_free, u_free = l_[:, free, None], u_[:, free, None]
            p = 1.0 - mass
            feasible = (p >= l_free - FEASIBLE) & (p <= u_free + FEASIBLE)
            value = np.where(feasible, bits + _h(np.clip(p, l_free, u_free)), np.inf)
            best[rows] = np.minimum(best[rows], value.min(axis=1))
    if np.isinf(best).any():
        raise ValueError(f"row {int(np.isinf(best).argmax())} has no vertex: the set is empty")
    return best


def water_level(lower: ArrayLike, upper: ArrayLike) -> Array:
    """The most even member of each interval set, clip(t, lower, upper) with sum 1, by bisection.

    KKT of max H: log2 p_i is one constant for every class strictly between its bounds, classes at
    the upper bound lie below that level, classes at the lower bound above it.
    """
    low = np.asarray(lower, dtype=np.float64)
    up = np.asarray(upper, dtype=np.float64)
    below, above = np.zeros((len(low), 1)), np.ones((len(low), 1))
    for _ in range(64):
        t = (below + above) / 2
        short = np.clip(t, low, up).sum(axis=1, keepdims=True) < 1.0
        below, above = np.where(short, t, below), np.where(short, above, t)
    return np.clip((below + above) / 2, low, up)


def brute_upper_entropy(lower: ArrayLike, upper: ArrayLike) -> Array:
    """The largest entropy of each interval set [N, C] -> [N]: that of its `water_level`."""
    return entropy(water_level(lower, upper))


def naive_interval_softmax(lower_logits: ArrayLike, upper_logits: ArrayLike) -> Bounds:
    """Equation 3 as it is printed, [N, C]: the other classes enter by their opposite bounds.

    Good for logits within about +-700, where exp neither overflows nor vanishes altogether.
    """
    a_low = np.exp(np.asarray(lower_logits, dtype=np.float64))
    a_up = np.exp(np.asarray(upper_logits, dtype=np.float64))
    q_low, q_up = np.empty_like(a_low), np.empty_like(a_up)
    for i in range(a_low.shape[-1]):
        others_up, others_low = np.zeros(a_low.shape[:-1]), np.zeros(a_low.shape[:-1])
        for k in range(a_low.shape[-1]):
            if k != i:
                others_up = others_up + a_up[..., k]
                others_low = others_low + a_low[..., k]
        q_low[..., i] = a_low[..., i] / (a_low[..., i] + others_up)
        q_up[..., i] = a_up[..., i] / (a_up[..., i] + others_low)
    return q_low, q_up


# Hulls conv{p_1, ..., p_M}


@dataclass(frozen=True)
class HullOptimum:
    """The true upper entropy lies in [value, value + gap]."""

    value: float
    gap: float
    distribution: Array


def hull_upper_entropy(members: ArrayLike) -> HullOptimum:
    """The largest entropy in the hull of one row's members [M, C], with its certificate.

    Log-barrier Newton on the weights: max H(w A) + mu sum log w for mu -> 0, whose duality gap is
    M mu. The certificate does not trust the solver: H is concave with gradient -log q - const, so
    H(p) <= H(q) + grad H(q) (p - q) = CE(p, q) for any p, and the linear CE(., q) is largest over
    a hull at a member.
    """
    a = np.asarray(members, dtype=np.float64)
    a = a[:, (a > 0).any(axis=0)]  # a class that is zero in every member is zero in the hull
    w = np.full(len(a), 1.0 / len(a))
    best = HullOptimum(-np.inf, np.inf, np.zeros(0))
    for mu in 10.0 ** -np.arange(0, 15.5, 0.5):
        for _ in range(50):
            decrement = _barrier_step(a, w, mu)
            q = w @ a
            value = float(entropy(q))
            gap = float((a @ -np.log2(q)).max() - value)
            if gap < best.gap:
                best = HullOptimum(value, max(gap, 0.0), w @ np.asarray(members, dtype=np.float64))
            if decrement < 1e-3 * mu:
                break
        if best.gap < 1e-13:
            break
    return best


def _barrier_step(a: Array, w: Array, mu: float) -> float:
    """One damped Newton step on w (in place) in the scaled variable s = dw / w; its decrement."""
    q = w @ a
    scaled = a * w[:, None]
    gradient = -(scaled @ (np.log(q) + 1.0)) + mu
    hessian = (scaled / q) @ scaled.T + mu * np.eye(len(w))  # of the negated objective
    both = np.linalg.solve(hessian, np.stack([gradient, w], axis=1))
    step = both[:, 0] - both[:, 1] * (w @ both[:, 0]) / (w @ both[:, 1])  # keeps sum w = 1
    decrement = float(gradient @ step)

    def objective(v: Array) -> float:
        mix = v @ a
        return float(-(mix * np.log(mix)).sum() + mu * np.log(v).sum())

    size = min(1.0, 0.99 / max(float(-step.min()), 1e-300))
    before = objective(w)
    while size > 1e-12:
        trial = w * (1.0 + size * step)
        trial /= trial.sum()
        if objective(trial) >= before - 1e-14:
            w[:] = trial
            return decrement
        size /= 2
    return 0.0


def hull_lower_entropy(members: ArrayLike) -> Array:
    """The smallest entropy in the hull of [M, ..., C]: H is concave, so a member attains it."""
    return entropy(members).min(axis=0)


def hull_distance(members: ArrayLike, p: ArrayLike) -> float:
    """How far p is from the hull of [M, C] in the largest coordinate, by a linear program."""
    a = np.asarray(members, dtype=np.float64)
    target = np.asarray(p, dtype=np.float64)
    m, c = a.shape
    slack = np.full((c, 1), -1.0)
    rows = np.block([[a.T, slack], [-a.T, slack]])  # |A'w - p| <= s
    solved = _linprog(
        np.append(np.zeros(m), 1.0),
        A_ub=rows,
        b_ub=np.concatenate([target, -target]),
        A_eq=np.append(np.ones(m), 0.0)[None],
        b_eq=[1.0],
        bounds=[(0, None)] * (m + 1),
    )
    return float(np.abs(solved[:m] @ a / solved[:m].sum() - target).max())


# Decisions under 0/1 loss, by linear programs


@dataclass(frozen=True)
class Polytope:
    """{x A : lower <= x <= upper, sum x = 1}: a credal set as the image of a box-cut simplex."""

    generators: Array  # A, [K, C]
    lower: Array
    upper: Array

    @classmethod
    def intervals(cls, lower: ArrayLike, upper: ArrayLike) -> Polytope:
        """One interval set: x is the distribution itself."""
        low = np.asarray(lower, dtype=np.float64)
        return cls(np.eye(len(low)), low, np.asarray(upper, dtype=np.float64))

    @classmethod
    def hull(cls, members: ArrayLike) -> Polytope:
        """One hull: x are the weights of the members [M, C]."""
        a = np.asarray(members, dtype=np.float64)
        return cls(a, np.zeros(len(a)), np.ones(len(a)))

    @property
    def classes(self) -> int:
        return self.generators.shape[1]

    def minimum(self, cost: Array) -> float:
        """min over p in the set of cost . p"""
        x = _linprog(
            self.generators @ cost,
            A_eq=np.ones((1, len(self.lower))),
            b_eq=[1.0],
            bounds=np.stack([self.lower, self.upper], axis=1),
        )
        return float(x @ self.generators @ cost)


def _linprog(cost: Array, **problem: object) -> Array:
    """The solution of a linear program by HiGHS at its tightest tolerances."""
    tight = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    result = linprog(cost, method="highs", options=tight, **problem)
    if result.status != 0:
        raise RuntimeError(f"linear program not solved: {result.message}")
    return np.asarray(result.x)


# Each of the three returns a margin per class, [C]: the class is kept iff its margin is >= 0. The
# margin says how far the decision is from a tie, so that a test can leave out rounding.


def lp_interval_dominance(credal: Polytope) -> Array:
    """Class i is ruled out iff some j has min p_j > max p_i: margin max p_i - max_j min p_j."""
    unit = np.eye(credal.classes)
    low = np.array([credal.minimum(e) for e in unit])
    up = np.array([-credal.minimum(-e) for e in unit])
    margin = [up[i] - max(np.delete(low, i), default=-np.inf) for i in range(credal.classes)]
    return np.array(margin)


def lp_maximality(credal: Polytope) -> Array:
    """Class i is ruled out iff some j has min (p_j - p_i) > 0: margin -max_j min (p_j - p_i)."""
    unit = np.eye(credal.classes)
    margin = np.full(credal.classes, np.inf)
    for i, j in itertools.permutations(range(credal.classes), 2):
        margin[i] = min(margin[i], -credal.minimum(unit[j] - unit[i]))
    return margin


def lp_e_admissibility(credal: Polytope) -> Array:
    """Class i is kept iff some p in the set has p_i >= p_j for all j: margin max_p min_j p_i - p_j.

    Variables x and t: maximise t subject to p_i - p_j >= t for every other class j.
    """
    a = credal.generators
    k, c = a.shape
    margin = np.full(c, np.inf)
    if c == 1:
        return margin
    for i in range(c):
        others = [j for j in range(c) if j != i]
        behind = (a[:, others] - a[:, [i]]).T  # rows: p_j - p_i as a function of x
        x = _linprog(
            np.append(np.zeros(k), -1.0),
            A_ub=np.hstack([behind, np.ones((c - 1, 1))]),
            b_ub=np.zeros(c - 1),
            A_eq=np.append(np.ones(k), 0.0)[None],
            b_eq=[1.0],
            bounds=[*zip(credal.lower, credal.upper, strict=True), (-1.0, 1.0)],
        )
        margin[i] = -(behind @ x[:k]).max()
    return margin


# Random instances


def regimes(rng: np.random.Generator, n: int, classes: int) -> dict[str, Bounds]:
    """n random interval sets [n, C] of each regime: half by interval softmax, half direct.

    The direct half puts random widths around a random distribution: never empty, but its bounds
    need not be reachable. The regime "two classes" is there for C = 2 only.
    """
    soft, direct = n // 2, n - n // 2
    made = {
        "narrow": (
            _soft(_logits(rng, soft, classes), rng.uniform(0, 0.05, (soft, classes))),
            _around(rng, _simplex(rng, direct, classes), 0.02),
        ),
        "wide": (
            _soft(_logits(rng, soft, classes), rng.uniform(0.5, 3, (soft, classes))),
            _around(rng, _simplex(rng, direct, classes), 0.8),
        ),
        "near-uniform": (
            _soft(
                _logits(rng, soft, classes, rng.uniform(0, 0.1, (soft, 1))),
                rng.uniform(0, 0.5, (soft, classes)),
            ),
            _around(rng, _simplex(rng, direct, classes, 1000.0), 0.2),
        ),
        "dominant": (
            _soft(
                _lift(rng, _logits(rng, soft, classes), rng.uniform(4, 12, soft)),
                rng.uniform(0, 2, (soft, classes)),
            ),
            _around(rng, _dominated(rng, direct, classes), 0.1),
        ),
        "collapsed": (
            _soft(_logits(rng, soft, classes), np.zeros((soft, classes))),
            _around(rng, _simplex(rng, direct, classes), 0.0),
        ),
        "vacuous": (
            _soft(_logits(rng, soft, classes), np.full((soft, classes), 60.0)),
            (np.zeros((direct, classes)), np.ones((direct, classes))),
        ),
        "mixed": (
            _soft(
                _logits(rng, soft, classes),
                rng.choice([0.0, 1e-3, 0.3, 4.0], size=(soft, classes)),
            ),
            _around(
                rng,
                _simplex(rng, direct, classes),
                rng.choice([0.0, 1e-3, 0.2, 1.0], size=(direct, classes)),
            ),
        ),
        "zero lower": _zero_lower(rng, soft, direct, classes),
        "duplicated": _duplicated(rng, soft, direct, classes),
    }
    if classes == 2:
        made["two classes"] = _two_classes(rng, soft, direct)
    return {name: (np.concatenate([a[0], b[0]]), np.concatenate([a[1], b[1]])) for name, (a, b) in made.items()}


def _logits(rng: np.random.Generator, n: int, c: int, std: ArrayLike = 1.0) -> Array:
    """Random logits; with std 1 the scale itself varies by row, to 3."""
    scale = rng.uniform(0.1, 3.0, (n, 1)) if np.ndim(std) == 0 else np.asarray(std)
    return rng.normal(size=(n, c)) * scale


def _simplex(rng: np.random.Generator, n: int, c: int, concentration: float = 1.0) -> Array:
    return rng.dirichlet(np.full(c, concentration), size=n)


def _soft(logits: Array, half_width: Array) -> Bounds:
    low, up = naive_interval_softmax(logits - half_width, logits + half_width)
    return low, np.maximum(low, up)  # equal bounds may cross by rounding


def _around(rng: np.random.Generator, p: Array, width: ArrayLike) -> Bounds:
    below, above = rng.uniform(size=p.shape) * width, rng.uniform(size=p.shape) * width
    return np.maximum(p - below, 0.0), np.minimum(p + above, 1.0)


def _lift(rng: np.random.Generator, x: Array, by: Array) -> Array:
    """x with one random class of each row raised."""
    x = x.copy()
    x[np.arange(len(x)), rng.integers(x.shape[1], size=len(x))] += by
    return x


def _dominated(rng: np.random.Generator, n: int, c: int) -> Array:
    p = _lift(rng, _simplex(rng, n, c), rng.uniform(5, 50, n))
    return p / p.sum(axis=1, keepdims=True)


def _zero_lower(rng: np.random.Generator, soft: int, direct: int, c: int) -> tuple[Bounds, Bounds]:
    """Lower bounds of exactly 0 for a random part of the classes (exp(-800) is 0 in float64)."""
    logits, half = _logits(rng, soft, c), rng.uniform(0, 2, (soft, c))
    vanishing = rng.uniform(size=(soft, c)) < 0.5
    vanishing[np.arange(soft), rng.integers(c, size=soft)] = False
    by_softmax = naive_interval_softmax(np.where(vanishing, -800.0, logits - half), logits + half)
    low, up = _around(rng, _simplex(rng, direct, c), 0.4)
    low[rng.uniform(size=low.shape) < 0.6] = 0.0
    return by_softmax, (low, up)


def _duplicated(rng: np.random.Generator, soft: int, direct: int, c: int) -> tuple[Bounds, Bounds]:
    """Several classes share one interval: a palette of about C / 2 intervals, dealt at random."""
    palette = max(1, c // 2)
    stratified_split = rng.integers(palette, size=(soft, c))
    logits = np.take_along_axis(_logits(rng, soft, palette), stratified_split, axis=1)
    half = np.take_along_axis(rng.uniform(0, 1.5, (soft, palette)), stratified_split, axis=1)
    stratified_split = rng.integers(palette, size=(direct, c))
    p = np.take_along_axis(rng.exponential(size=(direct, palette)), stratified_split, axis=1)
    p /= p.sum(axis=1, keepdims=True)
    below = np.take_along_axis(rng.uniform(0, 0.3, (direct, palette)), stratified_split, axis=1)
    above = np.take_along_axis(rng.uniform(0, 0.3, (direct, palette)), stratified_split, axis=1)
    return _soft(logits, half), (np.maximum(p - below, 0.0), np.minimum(p + above, 1.0))


def _two_classes(rng: np.random.Generator, soft: int, direct: int) -> tuple[Bounds, Bounds]:
    """p_1 in [a, b] and so p_2 in [1 - b, 1 - a], also with a = 0, b = 1 and a = b."""
    a, b = np.sort(rng.uniform(size=(2, direct)), axis=0)
    a = np.where(rng.uniform(size=direct) < 0.1, 0.0, a)
    b = np.where(rng.uniform(size=direct) < 0.1, 1.0, b)
    a = np.where(rng.uniform(size=direct) < 0.1, b, a)
    by_softmax = _soft(_logits(rng, soft, 2), rng.uniform(0, 3, (soft, 2)))
    return by_softmax, (np.stack([a, 1 - b], axis=1), np.stack([b, 1 - a], axis=1))
