"""Compiled kernels on the CPU: CSR products and rows, attention, neighbour sampling, breadth-first search.

Imported at first use, because numba takes longer to load than a small graph to train. Each row is computed in one
fixed order, so that results do not depend on the number of threads.
"""

from __future__ import annotations

from math import exp, inf
from typing import Any, TypeAlias

import numpy as np
from numba import njit
from numpy.typing import NDArray

from ..runtime.compiling import INNER, kernel

Array: TypeAlias = NDArray[Any]

SLOPE = 0.2  # of the leaky ReLU of attention: that of PyG's layers
TOGETHER = 32  # rows whose memory is requested at the same time
ODD = np.uint64(0x9E3779B97F4A7C15)  # increment of splitmix64's state
FIRST = np.uint64(0xBF58476D1CE4E5B9)
SECOND = np.uint64(0x94D049BB133111EB)
UNIT = 2.0**-53
M1, M2, M4 = np.uint64(0x5555555555555555), np.uint64(0x3333333333333333), np.uint64(0x0F0F0F0F0F0F0F0F)
SUM = np.uint64(0x0101010101010101)
ONE, TWO, FOUR, TOP = np.uint64(1), np.uint64(2), np.uint64(4), np.uint64(56)


@kernel(error_model="numpy", fastmath={"contract"})
def multiply_rows(
    starts: Array, columns: Array, values: Array, dense: Array, out: Array, first: int, last: int
) -> None:
    """Rows `first` to `last` of `out` = CSR matrix @ `dense`; four entries at a time spare loads of the sums."""
    width = dense.shape[1]
    for row in range(first, last):
        sums = out[row]
        sums[:] = 0.0
        entry, end = starts[row], starts[row + 1]
        while entry + 3 < end:
            v0, v1, v2, v3 = values[entry], values[entry + 1], values[entry + 2], values[entry + 3]
            x0, x1 = dense[columns[entry]], dense[columns[entry + 1]]
            x2, x3 = dense[columns[entry + 2]], dense[columns[entry + 3]]
            for k in range(width):
                sums[k] += (v0 * x0[k] + v1 * x1[k]) + (v2 * x2[k] + v3 * x3[k])
            entry += 4
        while entry < end:
            value, x = values[entry], dense[columns[entry]]
            for k in range(width):
                sums[k] += value * x[k]
            entry += 1


@kernel(error_model="numpy", fastmath={"contract"})
def add_rows(starts: Array, columns: Array, values: Array, dense: Array, out: Array, first: int, last: int) -> None:
    """Add CSR matrix^T @ `dense` to columns `first` to `last` of `out`, without the transpose."""
    for row in range(len(starts) - 1):
        x = dense[row, first:last]
        for entry in range(starts[row], starts[row + 1]):
            value, sums = values[entry], out[columns[entry], first:last]
            for k in range(last - first):
                sums[k] += value * x[k]


@kernel()
def scale_rows(
    starts: Array,
    columns: Array,
    values: Array,
    of_starts: Array,
    of_columns: Array,
    of_values: Array,
    out_columns: Array,
    out_values: Array,
) -> None:
    """Product with another CSR matrix; entries at the same place are not summed."""
    place = 0
    for entry in range(starts[0], starts[-1]):
        value, row = values[entry], columns[entry]
        for at in range(of_starts[row], of_starts[row + 1]):
            out_columns[place] = of_columns[at]
            out_values[place] = value * of_values[at]
            place += 1


@kernel()
def find_rows(starts: Array, nodes: Array, begins: Array, ends: Array, count: int) -> bool:
    """Set where rows begin in a matrix of `count` entries, and where they end when put together (after a zero).

    Returns False if a row begins or ends outside of the matrix.
    """
    total = 0
    ends[0] = 0
    for row in range(len(nodes)):
        node = nodes[row]
        if node < 0 or node >= len(starts) - 1:
            return False
        begin, end = starts[node], starts[node + 1]
        if not 0 <= begin <= end <= count:
            return False
        total += end - begin
        begins[row], ends[row + 1] = begin, total
    return True


@kernel()
def gather_rows(
    begins: Array, columns: Array, values: Array, starts: Array, out_columns: Array, out_values: Array
) -> None:
    """Copy the entries from `begins[row]` on to `starts[row]` .. `starts[row + 1]`.

    The first entries of several rows are copied before the others, so that their memory is requested at the same time.
    """
    for first in range(0, len(begins), TOGETHER):
        last = min(first + TOGETHER, len(begins))
        for row in range(first, last):
            place, entry = starts[row], begins[row]
            if place < starts[row + 1]:
                out_columns[place], out_values[place] = columns[entry], values[entry]
        for row in range(first, last):
            entry = begins[row]
            for place in range(starts[row] + 1, starts[row + 1]):
                entry += 1
                out_columns[place], out_values[place] = columns[entry], values[entry]


@kernel(error_model="numpy", fastmath={"contract", "reassoc"})
def weigh_rows(
    starts: Array,
    columns: Array,
    counts: Array,
    targets: Array,
    sources: Array,
    att: Array,
    weights: Array,
    first: int,
    last: int,
) -> None:
    """Softmax of `att . leaky(targets + other)` over the entries of each row, which count `counts` times."""
    width, slope = len(att), att.dtype.type(SLOPE)
    for row in range(first, last):
        begin, end = starts[row], starts[row + 1]
        mine, most = targets[row], att.dtype.type(-inf)
        for entry in range(begin, end):
            other = sources[columns[entry]]
            score = att.dtype.type(0.0)
            for k in range(width):
                z = mine[k] + other[k]
                score += att[k] * (z if z > 0.0 else slope * z)
            weights[entry] = score
            most = max(most, score)
        total = att.dtype.type(0.0)
        for entry in range(begin, end):
            weights[entry] = counts[entry] * exp(weights[entry] - most)
            total += weights[entry]
        for entry in range(begin, end):
            weights[entry] /= total


@kernel(error_model="numpy", fastmath={"contract", "reassoc"})
def pull_rows(
    starts: Array,
    columns: Array,
    gradient: Array,
    sent: Array,
    weights: Array,
    factored: Array,
    pulls: Array,
    first: int,
    last: int,
) -> None:
    """Gradient of the scores whose softmax is `weights`, from the gradient of `factored @ sent`."""
    width = gradient.shape[1]
    for row in range(first, last):
        pull = gradient[row]
        total = gradient.dtype.type(0.0)
        for entry in range(starts[row], starts[row + 1]):
            x = sent[columns[entry]]
            dot = gradient.dtype.type(0.0)
            for k in range(width):
                dot += pull[k] * x[k]
            pulls[entry] = factored[entry] * dot
            total += pulls[entry]
        for entry in range(starts[row], starts[row + 1]):
            pulls[entry] -= weights[entry] * total


@kernel(error_model="numpy", fastmath={"contract"})
def slope_rows(
    starts: Array, columns: Array, pulls: Array, targets: Array, sources: Array, out: Array, first: int, last: int
) -> None:
    """Sum of `pull * leaky'(targets + other)` over the entries of each row."""
    width, slope = out.shape[1], out.dtype.type(SLOPE)
    for row in range(first, last):
        sums, mine = out[row], targets[row]
        sums[:] = 0.0
        for entry in range(starts[row], starts[row + 1]):
            other, whole = sources[columns[entry]], pulls[entry]
            part = slope * whole
            for k in range(width):
                sums[k] += whole if mine[k] + other[k] > 0.0 else part


@kernel(**INNER)
def _mixed(state: Any) -> Any:
    """Output of splitmix64 (Steele et al. 2014) at a state."""
    z = (state ^ (state >> np.uint64(30))) * FIRST
    z = (z ^ (z >> np.uint64(27))) * SECOND
    return z ^ (z >> np.uint64(31))


@kernel()
def draw_in_edges(
    starts: Array,
    sources: Array,
    fanout: int,
    key: Any,
    number: Array,
    nodes: Array,
    first: int,
    last: int,
    places: Array,
    ends: Array,
    drawn: Array,
) -> int:
    """Draw in-edges of `nodes[first:last]`, and append the nodes they come from to `nodes` where they are new.

    A node with at most `fanout` in-edges gets all of them, others draw `fanout` with replacement; the draw depends on
    the key and the node alone. `number` holds the position in `nodes` of each node of the graph, -1 for none. Filled:
    `places` (position of each edge in `sources`), `ends` (position in `nodes` of its source), `drawn` (edges per node).
    Returns the new number of nodes, or -1 if an edge comes from a node that does not exist.
    """
    count, at = last, 0
    for row in range(first, last):
        node = nodes[row]
        begin = starts[node]
        degree = starts[node + 1] - begin
        taken = min(degree, fanout)
        state = _mixed(key + np.uint64(node) * ODD)
        for k in range(taken):
            place = begin + k
            if degree > fanout:
                state += ODD
                unit = np.float64(_mixed(state) >> np.uint64(11)) * UNIT
                place = begin + min(np.int64(unit * degree), degree - 1)
            source = sources[place]
            if source < 0 or source >= len(number):
                return -1
            if number[source] < 0:
                number[source] = count
                nodes[count] = source
                count += 1
            places[at], ends[at] = place, number[source]
            at += 1
        drawn[row - first] = taken
    return count


@njit(inline="always")
def bits(word: Any) -> Any:
    """Number of set bits of a 64-bit word."""
    word = word - ((word >> ONE) & M1)
    word = (word & M2) + ((word >> TWO) & M2)
    word = (word + (word >> FOUR)) & M4
    return (word * SUM) >> TOP


@kernel()
def reach(starts: Array, columns: Array, front: Array, classes: Array, weights: Array, total: Array) -> None:
    """Add `weights[d]` to `total[v, c]` for each start of class c that is d edges from v, d < `len(weights)`.

    Breadth-first search from many starts at once, a bit each: `front[v, w]` has a bit for each start at node v; all
    starts of a word are of one class, `classes[w]`. The matrix is symmetric.
    """
    nodes, words = front.shape
    reached = front.copy()
    coming = np.zeros_like(front)
    for distance in range(len(weights)):
        for node in range(nodes):
            for word in range(words):
                if front[node, word]:
                    total[node, classes[word]] += weights[distance] * bits(front[node, word])
        if distance + 1 == len(weights):
            return
        coming[:] = 0
        for node in range(nodes):
            seen = np.uint64(0)
            for word in range(words):
                seen |= front[node, word]
            if seen:
                for entry in range(starts[node], starts[node + 1]):
                    other = columns[entry]
                    for word in range(words):
                        coming[other, word] |= front[node, word]
        alive = np.uint64(0)
        for node in range(nodes):
            for word in range(words):
                new = coming[node, word] & ~reached[node, word]
                front[node, word] = new
                reached[node, word] |= new
                alive |= new
        if not alive:
            return
