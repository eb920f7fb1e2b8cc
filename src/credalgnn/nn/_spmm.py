"""Rows of CSR matrices on the CPU: times dense, each one fixed sum whoever computes it, and put together anew."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from ..runtime.compiling import kernel

TOGETHER = 32  # rows whose memory is asked for at the same time


@kernel(error_model="numpy", fastmath={"contract"})
def multiply_rows(
    starts: NDArray[Any],
    columns: NDArray[Any],
    values: NDArray[Any],
    dense: NDArray[Any],
    out: NDArray[Any],
    first: int,
    last: int,
) -> None:
    """Rows ``first`` to ``last`` of ``out`` = CSR matrix @ ``dense``; four entries at a time spare the sums' loads."""
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
def add_rows(
    starts: NDArray[Any],
    columns: NDArray[Any],
    values: NDArray[Any],
    dense: NDArray[Any],
    out: NDArray[Any],
    first: int,
    last: int,
) -> None:
    """Add CSR matrix^T @ ``dense`` to columns ``first`` to ``last`` of ``out``, row of the matrix by row."""
    for row in range(len(starts) - 1):
        x = dense[row, first:last]
        for entry in range(starts[row], starts[row + 1]):
            value, sums = values[entry], out[columns[entry], first:last]
            for k in range(last - first):
                sums[k] += value * x[k]


@kernel()
def scale_rows(
    starts: NDArray[Any],
    columns: NDArray[Any],
    values: NDArray[Any],
    of_starts: NDArray[Any],
    of_columns: NDArray[Any],
    of_values: NDArray[Any],
    out_columns: NDArray[Any],
    out_values: NDArray[Any],
) -> None:
    """The rows of another CSR matrix that each entry of this one stands for, times the entry, one behind the other."""
    place = 0
    for entry in range(starts[0], starts[-1]):
        value, row = values[entry], columns[entry]
        for at in range(of_starts[row], of_starts[row + 1]):
            out_columns[place] = of_columns[at]
            out_values[place] = value * of_values[at]
            place += 1


@kernel()
def find_rows(starts: NDArray[Any], nodes: NDArray[Any], begins: NDArray[Any], ends: NDArray[Any], count: int) -> bool:
    """Where some rows begin, and behind how many entries of all rows together each ends; False: not in a matrix.

    ``count`` is how many entries the matrix has; ``ends`` has a zero in front.
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
    begins: NDArray[Any],
    columns: NDArray[Any],
    values: NDArray[Any],
    starts: NDArray[Any],
    out_columns: NDArray[Any],
    out_values: NDArray[Any],
) -> None:
    """Copy the entries from ``begins[row]`` on to the place of each row, ``starts[row]`` to ``starts[row + 1]``.

    The first entries of some rows are copied before their others: so their memory is asked for at the same time, and
    not waited for row by row.
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
