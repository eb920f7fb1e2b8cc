"""Graph neural networks that know what they do not know.

Names are imported when they are first used, so that the command line answers without waiting for torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .graphs import Graph, Task, load_graph, load_task
    from .methods import (
        KNN,
        KNNLJ,
        METHODS,
        ClassicalEnsemble,
        CredalEnsemble,
        CredalFinal,
        CredalLJ,
        Degree,
        Energy,
        FeatureSum,
        GNNSafe,
        Mahalanobis,
        MethodError,
        Odin,
        Prediction,
        Vanilla,
        load_method,
    )
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
    "KNN",
    "KNNLJ",
    "METHODS",
    "ClassicalEnsemble",
    "CredalEnsemble",
    "CredalFinal",
    "CredalLJ",
    "Degree",
    "Energy",
    "FeatureSum",
    "GNNSafe",
    "Graph",
    "HullSet",
    "IntervalSet",
    "Mahalanobis",
    "MethodError",
    "Odin",
    "Prediction",
    "Task",
    "Vanilla",
    "__version__",
    "e_admissibility",
    "interval_dominance",
    "interval_softmax",
    "load_graph",
    "load_method",
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
_IN_METHODS = {
    "KNN", "KNNLJ", "METHODS", "ClassicalEnsemble", "CredalEnsemble", "CredalFinal", "CredalLJ", "Degree", "Energy",
    "FeatureSum", "GNNSafe", "MethodError", "Mahalanobis", "Odin", "Prediction", "Vanilla", "load_method",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in __all__:
        room = "graphs" if name in _IN_GRAPHS else "methods" if name in _IN_METHODS else "sets"
        return getattr(import_module(f".{room}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
