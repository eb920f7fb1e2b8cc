"""The features of streamed tables on the disk: dense, or as a CSR matrix where most numbers are zero."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._checks import sparse_is_smaller
from ._mapped import Chunks, Writer
from .in_edges import INT32

SAMPLE = 64  # first rows that decide
CHUNK = 1 << 18  # numbers that are copied at a time


class FeatureWriter:
    """Adds rows of features to the files of a graph.

    Args:
        folder: Where the arrays of the graph go.
        work: Where what is needed on the way goes.
        dtype: The type of the numbers.
        width: How many features there are.
        rows: Rows that are there already, of a writer that was interrupted.
        stored: Numbers of a sparse matrix that are there already; None: the matrix is dense.
    """

    def __init__(
        self, folder: Path, work: Path, dtype: str, width: int, rows: int = 0, stored: int | None = None
    ) -> None:
        self._folder, self._work, self._dtype, self._width = folder, work, dtype, width
        self._waiting: list[NDArray[Any]] = []  # the first rows, until there are enough to decide
        self.files: list[Writer] = []
        if rows:
            self._open(rows, stored)

    def _open(self, rows: int, stored: int | None) -> None:
        if stored is None:
            self.files = [Writer(self._folder / "features.npy", self._dtype, self._width, rows)]
            return
        self.files = [
            Writer(self._folder / "feature_values.npy", self._dtype, None, stored),
            Writer(self._folder / "feature_columns.npy", np.int32, None, stored),
            Writer(self._work / "feature_ends.npy", np.int64, None, rows),
        ]

    @property
    def stored(self) -> int | None:
        """How many numbers of a sparse matrix there are; None if it is dense."""
        return self.files[0].rows if len(self.files) > 1 else None

    def add(self, numbers: NDArray[Any]) -> None:
        """Add rows.

        Args:
            numbers: The rows, dense.
        """
        if not self.files:
            self._waiting.append(numbers)
            if sum(map(len, self._waiting)) >= SAMPLE:
                self.decide()
        elif self.stored is None:
            self.files[0].add(numbers)
        else:
            values, columns, ends = self.files
            ends.add(self.stored + np.cumsum(np.count_nonzero(numbers, axis=1)))
            places = np.nonzero(numbers)
            values.add(numbers[places])
            columns.add(places[1])

    def decide(self) -> None:
        """Write what waits: no more rows come for now. How many are read at a time makes no difference."""
        if self._waiting:
            numbers = np.concatenate(self._waiting)
            first = numbers[:SAMPLE]
            self._waiting = []
            self._open(0, 0 if sparse_is_smaller(int(np.count_nonzero(first)), first.shape) else None)
            self.add(numbers)


def finish_features(folder: Path, work: Path, rows: int, stored: int) -> None:
    """The indices of a sparse matrix as a graph has them: all of one type, as small as it may be.

    Args:
        folder: Where the arrays of the graph are.
        work: Where what was streamed is.
        rows: How many rows.
        stored: How many numbers.
    """
    kind = np.dtype(np.int32 if stored <= INT32 else np.int64)
    with Writer(folder / "feature_starts.npy", kind) as file, Chunks(work / "feature_ends.npy", np.int64, rows) as ends:
        file.add(np.zeros(1))
        for first in range(0, rows, CHUNK):
            file.add(ends.read(first, CHUNK))
    columns, wide = folder / "feature_columns.npy", work / "feature_columns.npy"
    if np.load(columns, mmap_mode="r").dtype != kind:
        with Writer(wide, kind) as file, Chunks(columns, np.int32, stored) as given:
            for first in range(0, stored, CHUNK):
                file.add(given.read(first, CHUNK))
        os.replace(wide, columns)
