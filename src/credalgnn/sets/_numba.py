"""Numba kernels for interval sets: entropies row by row, with hardly any allocation per row.

The mathematics is in ``docs/entropy.md``; names here follow it. Entropies are in bits. The entry point releases the
GIL, so that threads can process slices of the rows. Records are plain arrays with named rows: numba passes every field
of a tuple of arrays by value, which made each call three times slower. The module is one file because numba's cache on
disk only notices changes in the file of the function called from Python.

The first use on a machine waits for the compiler, so everything is compiled once, for one set of types. numba gives
each literal Python integer (a 0, the name of a row) a type of its own and compiles callees once more for it; NumPy
integers share one type, so the constants below are NumPy integers.
"""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np
from numba import njit
from numpy.typing import NDArray

from ..runtime.compiling import INNER, announce, kernel

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Bytes: TypeAlias = NDArray[np.int8]

EPS = 2.0**-52
TINY = 1e-300
PRUNE = 1e-10  # bits: a branch that cannot gain more is closed; part of the reported gap
PATIENCE = 1.0  # bound evaluations per class before the order-statistics bound is tried
SMALL = 5  # up to this many classes all vertices are tried
RUN = 64  # classes sorted by insertion; longer lists are merged from such runs

entry = kernel(error_model="numpy")
jit = njit(error_model="numpy", **INNER)  # inlined into the entry point's cached code


def _numbers(count: int) -> Ints:
    """0, 1, 2, ... as NumPy integers."""
    return np.arange(count, dtype=np.int64)


NONE, ZERO = _numbers(2) - 1

# A class in a node of the tree: undecided, at its upper bound, at its lower bound, or (one class) strictly between.
OPEN, RAISED, LOWERED, FREE = _numbers(4)

# item[., i]: class i of a row, classes sorted by chord slope (the first is the first to be raised).
LOWER, UPPER, WIDTH, RISE, SLOPE, H_LOWER, H_UPPER = _numbers(7)  # RISE = h(u) - h(l), SLOPE = RISE / WIDTH

# rank[., i]: the class at a sorted position; positions by falling lower and upper bound.
ORDER, BY_LOWER, BY_UPPER = _numbers(3)

# book[., depth] and path[., depth]: the path from the root of the tree to the current node. MASS is left to pour when
# the classes before the root's break are raised and the decisions of the node hold; COST is the entropy so far. In a
# node with a FREE class, that class is raised by an amount between START and STOP.
MASS, COST, START, STOP, BOUND = _numbers(5)
FREE_CLASS, PICK, CHILD = _numbers(3)  # the FREE class or NONE, the class to branch on, the next child to visit

# best[.]: the incumbent vertex, with its classes in best_state; POSITION is the class that carries AMOUNT, or NONE.
VALUE, AMOUNT, POSITION = _numbers(3)


@jit
def _h(x: float) -> float:
    return -x * math.log2(x) if x > 0.0 else 0.0


@jit
def slack(n: int) -> float:
    """Mass that rounding may leave over or short in a sum over n classes."""
    return 4.0 * n * EPS


@jit
def _sort(order: Ints, key: Floats) -> None:
    """Sort ``order`` by falling ``key[order]``, stable: by insertion, and longer lists by merging.

    NumPy's sort would take three seconds to compile.
    """
    n = order.shape[0]
    for start in range(0, n, RUN):
        run = order[start : start + RUN]
        for i in range(1, run.shape[0]):
            current = run[i]
            value = key[current]
            j = i - 1
            while j >= 0 and key[run[j]] < value:
                run[j + 1] = run[j]
                j -= 1
            run[j + 1] = current
    size = RUN
    while size < n:
        first = order.copy()
        for start in range(0, n, 2 * size):
            middle, stop = min(start + size, n), min(start + 2 * size, n)
            a, b = start, middle
            for i in range(start, stop):
                if b == stop or (a < middle and key[first[a]] >= key[first[b]]):
                    order[i] = first[a]
                    a += 1
                else:
                    order[i] = first[b]
                    b += 1
        size *= 2


@jit
def _water_level(lower: Floats, upper: Floats) -> float:
    """Level t with sum clip(t, l, u) = 1: Newton on a piecewise linear function, kept inside a bracket."""
    n = lower.shape[0]
    low, high = lower[0], upper[0]
    for i in range(1, n):
        low = min(low, lower[i])
        high = max(high, upper[i])
    t = min(max(1.0 / n, low), high)
    for _ in range(200):
        total = 0.0
        inside = 0
        for i in range(n):
            total += min(max(t, lower[i]), upper[i])
            if lower[i] < t < upper[i]:
                inside += 1
        short = 1.0 - total
        if abs(short) <= 2.0 * EPS:
            break
        if short > 0.0:
            low = t
        else:
            high = t
        step = t + short / inside if inside > 0 else high + 1.0
        if not low < step < high:
            step = 0.5 * (low + high)
            if step <= low or step >= high:
                break
        t = step
    return t


@jit
def _try_all(item: Floats, best: Floats, best_state: Bytes, mass_of: Floats, cost_of: Floats) -> float:
    """Try every vertex of a row with few classes: a set of raised classes, and one that takes the rest."""
    n = item.shape[1]
    mass_of[0], cost_of[0] = 1.0, 0.0
    for i in range(n):
        mass_of[0] -= item[LOWER, i]
        cost_of[0] += item[H_LOWER, i]
    best[VALUE] = np.inf
    raised = 0
    for i in range(n):
        for part in range(1 << i):
            mass_of[part | 1 << i] = mass_of[part] - item[WIDTH, i]
            cost_of[part | 1 << i] = cost_of[part] + item[RISE, i]
    for part in range(1 << n):
        left = mass_of[part]
        if left < -slack(n):
            continue
        for i in range(n):
            if part >> i & 1 or left > item[WIDTH, i] + slack(n):
                continue
            if cost_of[part] + item[SLOPE, i] * left >= best[VALUE]:
                continue  # even the chord, which lies below h, is no better
            amount = min(max(left, 0.0), item[WIDTH, i])
            value = cost_of[part] + _h(item[LOWER, i] + amount) - item[H_LOWER, i]
            if value < best[VALUE]:
                best[VALUE], best[AMOUNT], best[POSITION] = value, amount, i
                raised = part
    for i in range(n):
        best_state[i] = RAISED if raised >> i & 1 else LOWERED
    return best[VALUE]


@jit
def _decide(item: Floats, state: Bytes, book: Floats, depth: int, root: int, i: int, choice: int) -> None:
    """Fix class i at a bound. The books hold the root's choice, so only a departure from it changes them."""
    state[depth, i] = choice
    if choice == RAISED:
        if i >= root:
            book[MASS, depth] -= item[WIDTH, i]
            book[COST, depth] += item[RISE, i]
    elif i < root:
        book[MASS, depth] += item[WIDTH, i]
        book[COST, depth] -= item[RISE, i]


@jit
def _pour(item: Floats, state: Bytes, depth: int, root: int, mass: float, cost: float) -> tuple[int, float, float]:
    """Chord relaxation: raise (or lower) undecided classes in slope order from the root's break until mass is spent.

    Returns the fractional class, what it is raised by, and the entropy of the rest. The class is n or -1 when all
    undecided classes are raised or lowered; the amount is then what none of them could take.
    """
    n = item.shape[1]
    if mass >= 0.0:
        i = root
        while i < n and (state[depth, i] != OPEN or item[WIDTH, i] <= mass):
            if state[depth, i] == OPEN:
                mass -= item[WIDTH, i]
                cost += item[RISE, i]
            i += 1
    else:
        i = root - 1
        while i >= 0:
            if state[depth, i] == OPEN:
                mass += item[WIDTH, i]
                cost -= item[RISE, i]
                if mass >= 0.0:
                    break
            i -= 1
    return i, mass, cost


@jit
def _offer(
    state: Bytes, depth: int, position: int, carrier: int, amount: float, value: float, best: Floats, best_state: Bytes
) -> None:
    """Keep a vertex better than the best: undecided classes before ``position`` raised, ``carrier`` by ``amount``.

    The carrier is NONE where all classes are at bounds.
    """
    if value < best[VALUE]:
        best[VALUE], best[AMOUNT], best[POSITION] = value, amount, carrier
        for i in range(best_state.shape[0]):
            s = state[depth, i]
            best_state[i] = s if s != OPEN else (RAISED if i < position else LOWERED)


@jit
def _bound_any(
    item: Floats, state: Bytes, book: Floats, depth: int, root: int, best: Floats, best_state: Bytes
) -> tuple[float, int]:
    """Bound of a node whose free class is undecided, and the class to branch on (-1: the bound is attained)."""
    n = item.shape[1]
    i, rest, cost = _pour(item, state, depth, root, book[MASS, depth], book[COST, depth])
    if i < 0 or i == n:
        if abs(rest) > slack(n):
            return np.inf, -1
        _offer(state, depth, i, NONE, 0.0, cost, best, best_state)
        return cost, -1
    value = cost + _h(item[LOWER, i] + rest) - item[H_LOWER, i]
    _offer(state, depth, i, i, rest, value, best, best_state)
    return cost + item[SLOPE, i] * rest, i


@jit
def _bound_free(
    item: Floats, state: Bytes, book: Floats, depth: int, root: int, f: int, best: Floats, best_state: Bytes
) -> tuple[float, int, float]:
    """Bound of a node whose free class is f: the least over x of h(l_f + x) plus the relaxation of the others.

    Between two break points of the relaxation the sum is concave, so the minimum is at a break point (a true vertex,
    offered as such) or at an end of the window of x; the sweep goes from x = STOP down to x = START. Returns the bound,
    the class to branch on (-1: the bound is attained), and the smallest bound that ``_settle`` closed.
    """
    n = item.shape[1]
    base = item[LOWER, f]
    x, start = book[STOP, depth], book[START, depth]
    if x < start:
        return np.inf, -1, np.inf
    i, rest, cost = _pour(item, state, depth, root, book[MASS, depth] - x, book[COST, depth])
    cost -= item[H_LOWER, f]
    if i == n and rest > slack(n):
        return np.inf, -1, np.inf
    if i < 0:  # the others cannot give that much: x is smaller
        x += rest
        rest = 0.0
        i = 0
        if x < start - slack(n):
            return np.inf, -1, np.inf
    while i < n and state[depth, i] != OPEN:
        i += 1
    at_stop = at_start = vertex = np.inf
    first, last = i, n
    if i < n and rest > 0.0:
        at_stop = cost + item[SLOPE, i] * rest + _h(base + x)
    else:
        vertex = cost + _h(base + x)
        _offer(state, depth, i, f, x, vertex, best, best_state)
    while i < n:
        step = item[WIDTH, i] - rest
        if x - step < start:
            at_start = cost + item[SLOPE, i] * (rest + x - start) + _h(base + start)
            last = i
            break
        x -= step
        rest = 0.0
        cost += item[RISE, i]
        i += 1
        while i < n and state[depth, i] != OPEN:
            i += 1
        value = cost + _h(base + x)
        vertex = min(vertex, value)
        _offer(state, depth, i, f, x, value, best, best_state)
    bound = min(at_stop, at_start)
    if bound >= best[VALUE] - PRUNE:
        return min(bound, vertex), -1, np.inf
    closed = _settle(item, state, book, depth, root, at_stop, first, at_start, last, best[VALUE] - PRUNE)
    return bound, first if at_stop <= at_start else last, closed


@jit
def _settle(
    item: Floats,
    state: Bytes,
    book: Floats,
    depth: int,
    root: int,
    at_stop: float,
    first: int,
    at_start: float,
    last: int,
    hopeless: float,
) -> float:
    """Fix classes whose change alone would cost too much: with f free, every other class is at one of its bounds.

    Turning class j over costs width * |slope - slope of the break| on top of the bound, at either end of the window.
    Returns the smallest closed bound.
    """
    n = item.shape[1]
    closed = np.inf
    stop_slope = item[SLOPE, first] if first < n else 0.0
    start_slope = item[SLOPE, last] if last < n else 0.0
    for j in range(n):
        if state[depth, j] == OPEN and (j < first or j > last):
            turned = min(
                at_stop + item[WIDTH, j] * abs(item[SLOPE, j] - stop_slope),
                at_start + item[WIDTH, j] * abs(item[SLOPE, j] - start_slope),
            )
            if turned >= hopeless:
                closed = min(closed, turned)
                _decide(item, state, book, depth, root, j, RAISED if j < first else LOWERED)
    return closed


@jit
def _next_largest(
    item: Floats,
    rank: Ints,
    state: Bytes,
    depth: int,
    at: Ints,
    main_order: int,
    other_order: int,
    main: int,
    other: int,
    h_main: int,
    h_other: int,
    away: int,
) -> tuple[float, float, int]:
    """One step of the merge in ``_bound_sorted``: the largest end left, its entropy, and which list it comes from.

    An end is a class's main bound unless the class was decided ``away`` from it, in which case it is the other bound.
    """
    n = item.shape[1]
    a, b = at[0], at[1]
    while a < n and (state[depth, rank[main_order, a]] == away or state[depth, rank[main_order, a]] == FREE):
        a += 1
    while b < n and state[depth, rank[other_order, b]] != away:
        b += 1
    at[0], at[1] = a, b
    if a < n and (b == n or item[main, rank[main_order, a]] >= item[other, rank[other_order, b]]):
        return item[main, rank[main_order, a]], item[h_main, rank[main_order, a]], 0
    if b < n:
        return item[other, rank[other_order, b]], item[h_other, rank[other_order, b]], 1
    return -1.0, 0.0, 2


@jit
def _bound_sorted(item: Floats, rank: Ints, state: Bytes, book: Floats, depth: int, f: int, at: Ints) -> float:
    """Order-statistics bound: the k-th largest p lies between the k-th largest bounds, and sorted intervals are easy.

    The node is a box. Its lower ends, largest first, merge two sorted lists (classes at u in the order of u, the others
    in the order of l); likewise its upper ends. The free class has the ends of its window.
    """
    n = item.shape[1]
    rest, cost = 1.0, 0.0
    for i in range(n):
        if state[depth, i] == RAISED:
            rest -= item[UPPER, i]
            cost += item[H_UPPER, i]
        else:
            rest -= item[LOWER, i]
            cost += item[H_LOWER, i]
    floor = ceiling = -2.0
    h_floor = h_ceiling = 0.0
    if f >= 0:
        floor, ceiling = item[LOWER, f] + book[START, depth], item[LOWER, f] + book[STOP, depth]
        h_floor, h_ceiling = _h(floor), _h(ceiling)
        rest -= book[START, depth]
        cost += h_floor - item[H_LOWER, f]
    at[:] = 0
    for _ in range(n):
        low, h_low, source = _next_largest(
            item, rank, state, depth, at[0], BY_LOWER, BY_UPPER, LOWER, UPPER, H_LOWER, H_UPPER, RAISED
        )
        if floor > low:
            low, h_low, floor = floor, h_floor, -2.0
        else:
            at[0, source] += 1
        high, h_high, source = _next_largest(
            item, rank, state, depth, at[1], BY_UPPER, BY_LOWER, UPPER, LOWER, H_UPPER, H_LOWER, LOWERED
        )
        if ceiling > high:
            high, h_high, ceiling = ceiling, h_ceiling, -2.0
        else:
            at[1, source] += 1
        if high - low > rest:
            return cost + _h(low + max(rest, 0.0)) - h_low if rest > -slack(n) else np.inf
        rest -= high - low
        cost += h_high - h_low
    return cost if rest <= slack(n) else np.inf


@jit
def _narrow(item: Floats, state: Bytes, book: Floats, d: int, f: int, j: int) -> bool:
    """With f free at t, a class strictly inside f's interval is full if t is below it and empty if t is above it."""
    inside = item[LOWER, j] > item[LOWER, f] and item[UPPER, j] < item[UPPER, f] and item[WIDTH, j] > 0.0
    if inside and state[d, j] == RAISED:
        book[STOP, d] = min(book[STOP, d], item[LOWER, j] - item[LOWER, f])
    elif inside:
        book[START, d] = max(book[START, d], item[UPPER, j] - item[LOWER, f])
    return inside


@jit
def _branch(item: Floats, state: Bytes, book: Floats, path: Ints, depth: int, root: int) -> None:
    """Write the next child of the node at ``depth`` one level below, and apply the exchange rules.

    A class that dominates another (both bounds at least as large) has the smaller slope and comes before it; a
    rule hidden by rounding of the slopes is merely not used.
    """
    n = item.shape[1]
    k, f = path[PICK, depth], path[FREE_CLASS, depth]
    choice = RAISED + path[CHILD, depth]
    path[CHILD, depth] += 1
    d = depth + 1
    for j in range(n):
        state[d, j] = state[depth, j]
    for j in range(BOUND):
        book[j, d] = book[j, depth]
    path[FREE_CLASS, d] = f
    low, high = item[LOWER, k], item[UPPER, k]
    _decide(item, state, book, d, root, k, LOWERED if choice == FREE else choice)
    if f < 0:
        if choice != LOWERED:  # k holds mass above its lower bound, so whatever dominates k is full
            for j in range(k):
                if state[d, j] == OPEN and item[LOWER, j] >= low and item[UPPER, j] >= high:
                    _decide(item, state, book, d, root, j, RAISED)
        if choice != RAISED:  # k is not full, so whatever k dominates is empty
            for j in range(k + 1, n):
                if state[d, j] == OPEN and item[LOWER, j] <= low and item[UPPER, j] <= high:
                    _decide(item, state, book, d, root, j, LOWERED)
        if choice == FREE:
            state[d, k] = FREE
            path[FREE_CLASS, d] = k
            book[START, d], book[STOP, d] = 0.0, item[WIDTH, k]
            for j in range(n):
                if state[d, j] != OPEN:
                    _narrow(item, state, book, d, k, j)
    elif _narrow(item, state, book, d, f, k):
        base, top = item[LOWER, f], item[UPPER, f]
        for j in range(n):
            if state[d, j] == OPEN and item[LOWER, j] > base and item[UPPER, j] < top:
                if base + book[STOP, d] < item[UPPER, j]:
                    _decide(item, state, book, d, root, j, RAISED)
                elif base + book[START, d] > item[LOWER, j]:
                    _decide(item, state, book, d, root, j, LOWERED)


@jit
def _search(
    item: Floats,
    rank: Ints,
    state: Bytes,
    book: Floats,
    path: Ints,
    at: Ints,
    best: Floats,
    best_state: Bytes,
    budget: int,
) -> float:
    """Depth-first branch and bound; returns a proved lower bound of the lower entropy; ``best`` is an upper bound."""
    n = item.shape[1]
    mass, cost, root = 1.0, 0.0, 0
    for i in range(n):
        mass -= item[LOWER, i]
        cost += item[H_LOWER, i]
    while root < n and item[WIDTH, root] <= mass:
        mass -= item[WIDTH, root]
        cost += item[RISE, root]
        root += 1
    for i in range(n):
        state[0, i] = OPEN
    book[MASS, 0], book[COST, 0] = mass, cost
    path[FREE_CLASS, 0] = NONE
    best[VALUE] = np.inf
    proved = np.inf  # the smallest bound of any closed node
    visits = tries = wins = depth = ZERO
    while depth >= 0:
        visits += 1
        f = path[FREE_CLASS, depth]
        if f < 0:
            bound, pick = _bound_any(item, state, book, depth, root, best, best_state)
        else:
            bound, pick, closed = _bound_free(item, state, book, depth, root, f, best, best_state)
            proved = min(proved, closed)
        hopeless = best[VALUE] - PRUNE
        if pick >= 0 and bound < hopeless:
            if visits == 1:
                i = 1
                while i < n and item[LOWER, i] <= item[LOWER, i - 1] and item[UPPER, i] <= item[UPPER, i - 1]:
                    i += 1
                if i == n:  # every pair of classes is comparable: the exchange rules alone prove the first vertex
                    return best[VALUE]
            if visits >= PATIENCE * n:
                if tries == 0:
                    for i in range(n):
                        rank[BY_LOWER, i] = rank[BY_UPPER, i] = i
                    _sort(rank[BY_LOWER], item[LOWER])
                    _sort(rank[BY_UPPER], item[UPPER])
                if 4 * wins >= tries or visits % 16 == 0:
                    tries += 1
                    bound = max(bound, _bound_sorted(item, rank, state, book, depth, f, at))
                    if bound >= hopeless:
                        wins += 1
        if pick < 0 or bound >= hopeless:
            proved = min(proved, bound)
            depth -= 1
        else:
            book[BOUND, depth] = bound
            path[PICK, depth] = pick
            path[CHILD, depth] = 0
            if visits >= budget:
                for level in range(depth + 1):
                    proved = min(proved, book[BOUND, level])
                break
        while depth >= 0:
            if book[BOUND, depth] >= best[VALUE] - PRUNE:
                proved = min(proved, book[BOUND, depth])
            elif path[CHILD, depth] < (3 if path[FREE_CLASS, depth] < 0 else 2):
                _branch(item, state, book, path, depth, root)
                depth += 1
                break
            depth -= 1
    return min(proved, best[VALUE])


@entry
def interval_entropies(
    lower: Floats,
    upper: Floats,
    budget: int,
    high: Floats,
    low: Floats,
    high_gap: Floats,
    low_gap: Floats,
    high_point: Floats,
    low_point: Floats,
) -> None:
    """Upper and lower entropy of each row of [N, C] bounds, written to the output arrays; empty ones are skipped.

    Rows whose sums miss 1 by rounding are scaled onto it first. Gaps leave rounding of the entropies out.
    """
    rows, n = lower.shape
    item, rank = np.empty((7, n)), np.empty((3, n), np.int64)
    state, book, path = np.empty((n + 3, n), np.int8), np.empty((5, n + 3)), np.empty((3, n + 3), np.int64)
    at, best, best_state = np.empty((2, 3), np.int64), np.empty(3), np.empty(n, np.int8)
    parts = 1 << n if n <= SMALL else 0
    mass_of, cost_of = np.empty(parts), np.empty(parts)
    l, u, h_l, h_u, slope = np.empty(n), np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    for r in range(rows):
        floor = ceiling = 0.0
        for i in range(n):
            l[i], u[i] = lower[r, i], upper[r, i]
            floor += l[i]
            ceiling += u[i]
        for i in range(n):
            if floor > 1.0:
                l[i] /= floor
            if ceiling < 1.0:
                u[i] /= ceiling
            h_l[i], h_u[i] = _h(l[i]), _h(u[i])
        if high.shape[0] > 0:
            t = _water_level(l, u)
            h_t = _h(t)
            total = value = 0.0
            for i in range(n):
                if l[i] >= t:
                    total += l[i]
                    value += h_l[i]
                elif u[i] <= t:
                    total += u[i]
                    value += h_u[i]
                else:
                    total += t
                    value += h_t
                if high_point.shape[0] > 0:
                    high_point[r, i] = min(max(t, l[i]), u[i])
            high[r] = value
            high_gap[r] = abs(1.0 - total) * (2.0 + h_t / max(t, TINY))  # mass astray times the slope of h
        if low.shape[0] == 0:
            continue
        for i in range(n):
            rank[ORDER, i] = i
            width = u[i] - l[i]
            slope[i] = (h_l[i] - h_u[i]) / width if width > 0.0 else math.log2(max(u[i], TINY))
        _sort(rank[ORDER], slope)
        for i in range(n):
            k = rank[ORDER, i]
            item[LOWER, i], item[UPPER, i], item[WIDTH, i] = l[k], u[k], u[k] - l[k]
            item[H_LOWER, i], item[H_UPPER, i], item[RISE, i] = h_l[k], h_u[k], h_u[k] - h_l[k]
            item[SLOPE, i] = -slope[k]
        if n <= SMALL:
            proved = _try_all(item, best, best_state, mass_of, cost_of)
        else:
            proved = _search(item, rank, state, book, path, at, best, best_state, budget)
        low[r] = best[VALUE]
        low_gap[r] = max(0.0, best[VALUE] - proved)
        if low_point.shape[0] > 0:
            for i in range(n):
                p = item[UPPER, i] if best_state[i] == RAISED else item[LOWER, i]
                low_point[r, rank[ORDER, i]] = item[LOWER, i] + best[AMOUNT] if i == best[POSITION] else p


announce(interval_entropies, "the solver for intervals (about 5 s)")
