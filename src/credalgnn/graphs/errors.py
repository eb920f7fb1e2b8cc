"""Errors and warnings of graphs, tasks and data sets."""

from __future__ import annotations

from ..runtime.errors import CredalError
from ..runtime.warn import warn_caller


class GraphError(CredalError, ValueError):
    """Invalid graph, split, task or data set; the message says what is wrong, where, and what to do."""


class GraphWarning(UserWarning):
    """Part of the input is not used; the message says what and why."""


class OwnTaskError(GraphError):
    """A data set that makes its own task cannot leave out other classes or use another split."""


def warn(message: str) -> None:
    """Issue a ``GraphWarning`` at the line that called this package."""
    warn_caller(message, GraphWarning)
