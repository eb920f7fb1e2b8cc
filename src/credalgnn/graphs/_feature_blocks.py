"""A feature matrix made column by column, in the form that takes less memory."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._checks import sparse_is_smaller


class Blocks:
    """Columns of a float32 matrix, each kept dense or by its numbers that are not zero.

    Args:
        rows: How many rows the matrix has.
    """

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._active = 0
        self._columns: list[NDArray[np.float32] | tuple[NDArray[np.int32], NDArray[np.float32]]] = []

    def add(self, column: NDArray[np.float32]) -> None:
        """Add one column.

        Args:
            column: Its numbers.
        """
        active = int(np.count_nonzero(column))
        self._active += active
        if 2 * active < self._rows:
            at = np.flatnonzero(column).astype(np.int32)
            self._columns.append((at, column[at]))
        else:
            self._columns.append(column)

    def add_one_hot(self, codes: NDArray[np.int16], count: int) -> None:
        """Add ``count`` columns: each row has a one in the column of its code.

        Args:
            codes: The columns of the rows, below 0 for none.
            count: How many columns there are.
        """
        order = np.argsort(codes, kind="stable").astype(np.int32)  # a radix sort, as codes are short
        starts = np.searchsorted(codes[order], np.arange(count + 1))
        for start, end in pairwise(starts.tolist()):
            self._columns.append((order[start:end], np.ones(end - start, np.float32)))
        self._active += int(starts[-1] - starts[0])

    def matrix(self) -> Any:
        """All columns, dense or as a scipy CSR matrix; to be called once, as memory is freed on the way."""
        shape = (self._rows, len(self._columns))
        if sparse_is_smaller(self._active, shape):
            return self._sparse(shape)
        matrix = np.zeros(shape, np.float32)
        for at in reversed(range(shape[1])):
            column = self._columns.pop()
            if isinstance(column, tuple):
                matrix[column[0], at] = column[1]
            else:
                matrix[:, at] = column
        return matrix

    def _sparse(self, shape: tuple[int, int]) -> Any:
        from scipy.sparse import csc_array

        wide = np.int64 if self._active > np.iinfo(np.int32).max else np.int32
        starts, rows, values = np.zeros(shape[1] + 1, wide), np.empty(self._active, wide), np.empty(self._active, "f4")
        for at, column in enumerate(self._columns):
            here, numbers = column if isinstance(column, tuple) else (np.flatnonzero(column), column[column != 0])
            starts[at + 1] = starts[at] + len(here)
            rows[starts[at] : starts[at + 1]], values[starts[at] : starts[at + 1]] = here, numbers
        self._columns.clear()
        return csc_array((values, rows, starts), shape=shape).tocsr()
