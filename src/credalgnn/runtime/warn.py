"""Warnings of this package: they name the caller's line, or go to a collector of the running call."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

PACKAGE = f"{Path(__file__).parents[1]}{os.sep}"  # another package's name may begin with this one's
_collector: ContextVar[Callable[[str], None] | None] = ContextVar("_collector", default=None)


def warn_caller(message: str, kind: type[Warning]) -> None:
    """Warn at the line that called this package, unless a call collects its warnings."""
    if (collect := _collector.get()) is not None:
        collect(message)
        return
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(PACKAGE):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, kind, stacklevel=level)


@contextmanager
def collected_warnings(show: Callable[[str], None]) -> Iterator[list[str]]:
    """Yield a list of this package's warnings, each once and as one line, and show them as they come.

    It collects those of this call alone: other threads, and warnings of other packages, are left as they are.
    """
    messages: list[str] = []

    def collect(message: str) -> None:
        if (line := " ".join(message.split())) not in messages:
            messages.append(line)
            show(line)

    token = _collector.set(collect)
    try:
        yield messages
    finally:
        _collector.reset(token)
