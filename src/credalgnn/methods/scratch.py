"""Arrays that may not fit in memory: a large one is a mapped temporary file, which goes when the array does."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ..runtime.memory import let_go, on_disk
from .prediction import MethodError

IN_MEMORY = 1 << 29  # bytes: what is larger becomes a file ...
SHARE = 16  # ... and so does what is larger than this part of the memory that may be used
APART = 1 << 10  # rows of a file that are read between two times that its pages are given back


def scratch(shape: tuple[int, ...], dtype: DTypeLike = np.float32, memory: int | None = None) -> NDArray[Any]:
    """An array to be filled: in memory if it is small, on the disk if it is not.

    Args:
        shape: Its shape.
        dtype: Its type.
        memory: Bytes that may be used; None: what is available.
    """
    most = IN_MEMORY if memory is None else min(IN_MEMORY, memory // SHARE)
    if int(np.prod(shape)) * np.dtype(dtype).itemsize <= most:
        return np.empty(shape, dtype)
    try:
        return on_disk(shape, dtype)
    except OSError as error:
        raise MethodError(error.strerror or str(error)) from None


def rows_at(array: NDArray[Any], numbers: NDArray[Any]) -> NDArray[Any]:
    """Rows of an array, in memory; those of a mapped file are read few at a time, as each may map half a MiB around it.

    Args:
        array: What ``scratch`` has made.
        numbers: Of the rows.
    """
    if not isinstance(array, np.memmap):
        rows: NDArray[Any] = array[numbers]
        return rows
    found = np.empty((len(numbers), *array.shape[1:]), array.dtype)
    for first in range(0, len(numbers), APART):
        found[first : first + APART] = array[numbers[first : first + APART]]
        let_go(array)
    return found
