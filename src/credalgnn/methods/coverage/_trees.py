"""Numba kernel for forests."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from ...runtime.compiling import kernel

BLOCK = 256  # rows that go down a tree together, so that both stay in the CPU cache


@kernel()
def leaf_sums(
    rows: NDArray[Any],
    roots: NDArray[Any],
    feature: NDArray[Any],
    threshold: NDArray[Any],
    left: NDArray[Any],
    right: NDArray[Any],
    value: NDArray[Any],
    out: NDArray[Any],
) -> None:
    """Sum the values of the leaves that each row reaches, tree after tree, into ``out``; see ``Forest``."""
    out[:] = 0.0
    for first in range(0, len(rows), BLOCK):
        last = min(first + BLOCK, len(rows))
        for root in roots:
            for row in range(first, last):
                at = root
                while left[at] != at:
                    at = left[at] if rows[row, feature[at]] <= threshold[at] else right[at]
                out[row] += value[at]
