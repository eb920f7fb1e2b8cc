"""Rows of CSR matrices on the CPU: times dense, each one fixed sum whoever computes it, and put together anew."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from .._compiling import kernel


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


@kernel()
def gather_rows(
    begins: NDArray[Any],
    columns: NDArray[Any],
    values: NDArray[Any],
    starts: NDArray[Any],
    out_columns: NDArray[Any],
    out_values: NDArray[Any],
) -> None:
    """Copy the entries from ``begins[row]`` on to the place of each row, ``starts[row]`` to ``starts[row + 1]``."""
    for row in range(len(begins)):
        entry = begins[row]
        for place in range(starts[row], starts[row + 1]):
            out_columns[place] = columns[entry]
            out_values[place] = values[entry]
            entry += 1
