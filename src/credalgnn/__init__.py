"""Graph neural networks that know what they do not know.

Names are imported when they are first used, so that the command line answers without waiting for torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .graphs import Graph, Task, load_graph, load_task
    from .sets import (
        HullSet,
        IntervalSet,
        e_admissibility,
        interval_dominance,
        interval_softmax,
        log_interval_softmax,
        lower_entropy,
        maximality,
        u65,
        u80,
        uncertainty,
        upper_entropy,
    )

__version__ = "0.1.0"

__all__ = [
    "Graph",
    "HullSet",
    "IntervalSet",
    "Task",
    "__version__",
    "e_admissibility",
    "interval_dominance",
    "interval_softmax",
    "load_graph",
    "load_task",
    "log_interval_softmax",
    "lower_entropy",
    "maximality",
    "u65",
    "u80",
    "uncertainty",
    "upper_entropy",
]


_IN_GRAPHS = {"Graph", "Task", "load_graph", "load_task"}


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module(".graphs" if name in _IN_GRAPHS else ".sets", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
