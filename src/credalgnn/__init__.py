"""Graph neural networks that know what they do not know.

Names are imported when they are first used, so that the command line answers without waiting for torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._version import __version__

if TYPE_CHECKING:
    from .bench import Evaluation, evaluate
    from .graphs import Graph, Task, load_graph, load_task
    from .methods import (
        KNN,
        KNNLJ,
        METHODS,
        ClassicalEnsemble,
        CredalCoverage,
        CredalEnsemble,
        CredalFinal,
        CredalLJ,
        CredalWarning,
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
        CredalSet,
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
        widen,
    )


__all__ = [
    "KNN",
    "KNNLJ",
    "METHODS",
    "ClassicalEnsemble",
    "CredalCoverage",
    "CredalEnsemble",
    "CredalFinal",
    "CredalLJ",
    "CredalSet",
    "CredalWarning",
    "Degree",
    "Energy",
    "Evaluation",
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
    "evaluate",
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
    "widen",
]

_IN_BENCH = {"Evaluation", "evaluate"}
_IN_GRAPHS = {"Graph", "Task", "load_graph", "load_task"}
_IN_METHODS = {
    "KNN", "KNNLJ", "METHODS", "ClassicalEnsemble", "CredalCoverage", "CredalEnsemble", "CredalFinal", "CredalLJ",
    "CredalWarning",
    "Degree", "Energy", "FeatureSum", "GNNSafe", "MethodError", "Mahalanobis", "Odin", "Prediction", "Vanilla",
    "load_method",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in __all__:
        rooms = {"bench": _IN_BENCH, "graphs": _IN_GRAPHS, "methods": _IN_METHODS}
        room = next((room for room, names in rooms.items() if name in names), "sets")
        return getattr(import_module(f".{room}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
