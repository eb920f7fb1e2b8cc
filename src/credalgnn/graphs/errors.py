"""What goes wrong with graphs and tasks, as one line that says what, where and what to do."""

from __future__ import annotations

import sys
import warnings


class GraphError(ValueError):
    """Something is wrong with a graph, a split, a task or a data set; the message says what, where and what to do."""


class GraphWarning(UserWarning):
    """Something given with a graph is not used; the message says what and why."""


class OwnTaskError(GraphError):
    """A data set that makes a task of its own cannot leave out other classes, or split its nodes otherwise."""


def warn(message: str) -> None:
    """A ``GraphWarning`` that points to the line outside of this package from which all this was called.

    Args:
        message: What is not used, and why.
    """
    level, frame = 1, sys._getframe().f_back
    while frame is not None and frame.f_globals.get("__name__", "").split(".")[0] == __package__.split(".")[0]:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, GraphWarning, stacklevel=level + 1)
