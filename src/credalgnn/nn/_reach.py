"""How many nodes of each class are how many edges away: breadth-first search from many nodes at once, a bit each."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from ..runtime.compiling import kernel

M1, M2, M4 = np.uint64(0x5555555555555555), np.uint64(0x3333333333333333), np.uint64(0x0F0F0F0F0F0F0F0F)
SUM = np.uint64(0x0101010101010101)
ONE, TWO, FOUR, TOP = np.uint64(1), np.uint64(2), np.uint64(4), np.uint64(56)


@njit(inline="always")
def bits(word: Any) -> Any:
    """How many bits of a 64-bit word are set."""
    word = word - ((word >> ONE) & M1)
    word = (word & M2) + ((word >> TWO) & M2)
    word = (word + (word >> FOUR)) & M4
    return (word * SUM) >> TOP


@kernel()
def reach(
    starts: NDArray[Any],
    columns: NDArray[Any],
    front: NDArray[Any],
    classes: NDArray[Any],
    weights: NDArray[Any],
    found: NDArray[Any],
) -> None:
    """Add ``weights[d]`` to ``found[v, c]`` for every start of class c that is d edges from v, d < ``len(weights)``.

    ``front[v, w]`` has a bit for each start that v is; all starts of a word are of one class, ``classes[w]``. The
    matrix is symmetric.
    """
    nodes, words = front.shape
    reached = front.copy()
    coming = np.zeros_like(front)
    for distance in range(len(weights)):
        for node in range(nodes):
            for word in range(words):
                if front[node, word]:
                    found[node, classes[word]] += weights[distance] * bits(front[node, word])
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
