"""Arrays that may not fit in memory: a large one is a mapped temporary file, which goes when the array does."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from .._memory import let_go as let_go
from .._memory import on_disk
from .prediction import MethodError

IN_MEMORY = 1 << 29  # bytes: what is larger becomes a file


def scratch(shape: tuple[int, ...], dtype: DTypeLike = np.float32) -> NDArray[Any]:
    """An array to be filled: in memory, or, above ``IN_MEMORY`` bytes, on the disk.

    Args:
        shape: Its shape.
        dtype: Its type.
    """
    if int(np.prod(shape)) * np.dtype(dtype).itemsize <= IN_MEMORY:
        return np.empty(shape, dtype)
    try:
        return on_disk(shape, dtype)
    except OSError as error:
        raise MethodError(error.strerror or str(error)) from None
