"""Linear algebra on one thread, so that it gives the same bits on every number of cores."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_LOCK = threading.RLock()


@contextmanager
def one_thread() -> Iterator[None]:
    """Inside, the libraries of NumPy, SciPy and scikit-learn use one thread each.

    BLAS has one limit for the process: who comes while another thread is inside waits, or it would be lifted too early.
    """
    from threadpoolctl import threadpool_limits

    with _LOCK, threadpool_limits(1):
        yield
