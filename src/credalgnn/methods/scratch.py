"""Arrays that may not fit in memory: a large one is a mapped temporary file, which goes when the array does."""

from __future__ import annotations

import mmap
import tempfile
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from .prediction import MethodError

IN_MEMORY = 1 << 29  # bytes: what is larger becomes a file


def scratch(shape: tuple[int, ...], dtype: DTypeLike = np.float32) -> NDArray[Any]:
    """An array to be filled: in memory, or, above ``IN_MEMORY`` bytes, in a temporary file without a name.

    The file is in the system's folder for temporary files (``TMPDIR``), and is removed however the process ends.

    Args:
        shape: Its shape.
        dtype: Its type.
    """
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    if size <= IN_MEMORY:
        return np.empty(shape, dtype)
    try:
        with tempfile.TemporaryFile(prefix="credalgnn-") as file:
            reserve(file.fileno(), size)
            return np.memmap(file, dtype, "r+", shape=shape)
    except OSError as error:
        raise MethodError(
            f"{tempfile.gettempdir()}: {size / 2**30:.1f} GiB of temporary files cannot be written "
            f"({error.strerror}); make room, or set TMPDIR to another folder"
        ) from None


def reserve(handle: int, size: int) -> None:
    """Take room on the disk for a file: a full disk is an error now, and not the end of the process later.

    Args:
        handle: Of the open file.
        size: In bytes.
    """
    import os

    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(handle, 0, size)
    else:
        os.ftruncate(handle, size)


def let_go(array: NDArray[Any]) -> None:
    """Give the pages of a mapped array back to the system; they are read again when they are wanted.

    Args:
        array: What ``scratch`` has made; nothing happens to one in memory.
    """
    mapped = getattr(array, "_mmap", None)
    if isinstance(mapped, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        mapped.madvise(mmap.MADV_DONTNEED)
