"""Errors and warnings of graphs, tasks and data sets."""

from __future__ import annotations

import sys
import warnings

from ..runtime.errors import CredalError


class GraphError(CredalError, ValueError):
    """Invalid graph, split, task or data set; the message says what is wrong, where, and what to do."""


class GraphWarning(UserWarning):
    """Part of the input is not used; the message says what and why."""


class OwnTaskError(GraphError):
    """A data set that makes its own task cannot leave out other classes or use another split."""


def warn(message: str) -> None:
    """Issue a ``GraphWarning`` that points to the first caller outside of this package."""
    level, frame = 1, sys._getframe().f_back
    while frame is not None and frame.f_globals.get("__name__", "").split(".")[0] == __package__.split(".")[0]:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, GraphWarning, stacklevel=level + 1)
