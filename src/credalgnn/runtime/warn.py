"""Warnings that name the caller's own line, however deep in this package they come from."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path

PACKAGE = f"{Path(__file__).parents[1]}{os.sep}"  # another package's name may begin with this one's


def warn_caller(message: str, kind: type[Warning]) -> None:
    """Warn where this package was called.

    Args:
        message: What is to be said.
        kind: The warning's class.
    """
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(PACKAGE):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, kind, stacklevel=level)
