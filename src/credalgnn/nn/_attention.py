"""Attention along edges on the CPU, forth and back: what belongs to a row is computed in one fixed order, by anybody.

Entries are those of a CSR matrix, whose rows are the nodes that attend; the transpose serves for gradients of sources.
"""

from __future__ import annotations

from math import exp, inf
from typing import Any

from numpy.typing import NDArray

from ..runtime.compiling import kernel
from .attention import SLOPE


@kernel(error_model="numpy", fastmath={"contract", "reassoc"})
def weigh_rows(
    starts: NDArray[Any],
    columns: NDArray[Any],
    counts: NDArray[Any],
    own: NDArray[Any],
    others: NDArray[Any],
    att: NDArray[Any],
    weights: NDArray[Any],
    first: int,
    last: int,
) -> None:
    """``weights`` of the entries of each row: the softmax of ``att . leaky(own + other)``; entries count ``counts``."""
    width, slope = len(att), att.dtype.type(SLOPE)
    for row in range(first, last):
        begin, end = starts[row], starts[row + 1]
        mine, most = own[row], att.dtype.type(-inf)
        for entry in range(begin, end):
            other = others[columns[entry]]
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
    starts: NDArray[Any],
    columns: NDArray[Any],
    gradient: NDArray[Any],
    sent: NDArray[Any],
    weights: NDArray[Any],
    kept: NDArray[Any],
    pulls: NDArray[Any],
    first: int,
    last: int,
) -> None:
    """``pulls`` on the scores: what the gradient of ``kept @ sent`` is for them, where ``weights`` is their softmax."""
    width = gradient.shape[1]
    for row in range(first, last):
        pull = gradient[row]
        total = gradient.dtype.type(0.0)
        for entry in range(starts[row], starts[row + 1]):
            x = sent[columns[entry]]
            dot = gradient.dtype.type(0.0)
            for k in range(width):
                dot += pull[k] * x[k]
            pulls[entry] = kept[entry] * dot
            total += pulls[entry]
        for entry in range(starts[row], starts[row + 1]):
            pulls[entry] -= weights[entry] * total


@kernel(error_model="numpy", fastmath={"contract"})
def slope_rows(
    starts: NDArray[Any],
    columns: NDArray[Any],
    pulls: NDArray[Any],
    own: NDArray[Any],
    others: NDArray[Any],
    out: NDArray[Any],
    first: int,
    last: int,
) -> None:
    """Rows of ``out``: the sums of ``pull * leaky'(own + other)`` over the entries of each."""
    width, slope = out.shape[1], out.dtype.type(SLOPE)
    for row in range(first, last):
        sums, mine = out[row], own[row]
        sums[:] = 0.0
        for entry in range(starts[row], starts[row + 1]):
            other, whole = others[columns[entry]], pulls[entry]
            part = slope * whole
            for k in range(width):
                sums[k] += whole if mine[k] + other[k] > 0.0 else part
