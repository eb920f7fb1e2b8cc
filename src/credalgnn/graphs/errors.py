"""What goes wrong with graphs and tasks, as one line that says what, where and what to do."""


class GraphError(ValueError):
    """Something is wrong with a graph, a split, a task or a data set; the message says what, where and what to do."""


class GraphWarning(UserWarning):
    """Something given with a graph is not used; the message says what and why."""


class OwnTaskError(GraphError):
    """A data set that makes a task of its own cannot leave out other classes, or split its nodes otherwise."""
