"""Graph neural networks that know what they do not know.

Names are imported when they are first used, so that the command line answers without waiting for torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._version import __version__

if TYPE_CHECKING:
    from .experiments import ProbeResults, TuningResults, benchmark, probe, reproduce, tune
    from .graphs import (
        Columns,
        Dataset,
        FeatureEncoder,
        Graph,
        GraphError,
        GraphWarning,
        Split,
        Task,
        csbm,
        load_graph,
        load_task,
        pack,
        read_tables,
    )
    from .methods import (
        GEBM,
        GPN,
        GRASP,
        JLDE,
        KNN,
        KNNLJ,
        METHODS,
        CaGCN,
        ClassicalEnsemble,
        CredalCoverage,
        CredalDual,
        CredalEnsemble,
        CredalFinal,
        CredalFrozen,
        CredalLJ,
        CredalWarning,
        Degree,
        DropEdge,
        Energy,
        Evidential,
        FeatureSum,
        GNNSafe,
        InputWarning,
        Mahalanobis,
        MCDropout,
        MemoryWarning,
        Method,
        MethodError,
        Network,
        Odin,
        PostHoc,
        Prediction,
        RandomSet,
        Temperature,
        TrainingData,
        Vanilla,
        load_method,
    )
    from .metrics import Evaluation, evaluate
    from .model import Model, ModelEvaluation, WatchReport, fit, load_model, watch
    from .nn import TrainingError
    from .report import Leaderboard, Results, leaderboard, load_results, plot_ternary, write_report
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

# Where the public names are; what is not public to users stays in its package.
_NAMES = {
    "graphs": "Columns Dataset FeatureEncoder Graph GraphError GraphWarning Split Task csbm load_graph load_task pack "
    "read_tables",
    "sets": "CredalSet HullSet IntervalSet e_admissibility interval_dominance interval_softmax log_interval_softmax "
    "lower_entropy maximality u65 u80 uncertainty upper_entropy widen",
    "methods": "CaGCN ClassicalEnsemble CredalCoverage CredalDual CredalEnsemble CredalFinal CredalFrozen CredalLJ "
    "CredalWarning Degree DropEdge Energy Evidential FeatureSum GEBM GNNSafe GPN GRASP InputWarning JLDE KNN "
    "KNNLJ MCDropout METHODS Mahalanobis MemoryWarning Method MethodError Network Odin PostHoc Prediction "
    "RandomSet Temperature TrainingData Vanilla load_method",
    "nn": "TrainingError",
    "metrics": "Evaluation evaluate",
    "model": "Model ModelEvaluation WatchReport fit load_model watch",
    "report": "Leaderboard Results leaderboard load_results plot_ternary write_report",
    "experiments": "ProbeResults TuningResults benchmark probe reproduce tune",
}
_PACKAGE = {name: package for package, names in _NAMES.items() for name in names.split()}

__all__ = [
    "GEBM",
    "GPN",
    "GRASP",
    "JLDE",
    "KNN",
    "KNNLJ",
    "METHODS",
    "CaGCN",
    "ClassicalEnsemble",
    "Columns",
    "CredalCoverage",
    "CredalDual",
    "CredalEnsemble",
    "CredalFinal",
    "CredalFrozen",
    "CredalLJ",
    "CredalSet",
    "CredalWarning",
    "Dataset",
    "Degree",
    "DropEdge",
    "Energy",
    "Evaluation",
    "Evidential",
    "FeatureEncoder",
    "FeatureSum",
    "GNNSafe",
    "Graph",
    "GraphError",
    "GraphWarning",
    "HullSet",
    "InputWarning",
    "IntervalSet",
    "Leaderboard",
    "MCDropout",
    "Mahalanobis",
    "MemoryWarning",
    "Method",
    "MethodError",
    "Model",
    "ModelEvaluation",
    "Network",
    "Odin",
    "PostHoc",
    "Prediction",
    "ProbeResults",
    "RandomSet",
    "Results",
    "Split",
    "Task",
    "Temperature",
    "TrainingData",
    "TrainingError",
    "TuningResults",
    "Vanilla",
    "WatchReport",
    "__version__",
    "benchmark",
    "csbm",
    "e_admissibility",
    "evaluate",
    "fit",
    "interval_dominance",
    "interval_softmax",
    "leaderboard",
    "load_graph",
    "load_method",
    "load_model",
    "load_results",
    "load_task",
    "log_interval_softmax",
    "lower_entropy",
    "maximality",
    "pack",
    "plot_ternary",
    "probe",
    "read_tables",
    "reproduce",
    "tune",
    "u65",
    "u80",
    "uncertainty",
    "upper_entropy",
    "watch",
    "widen",
    "write_report",
]


def __getattr__(name: str) -> Any:
    if name in _PACKAGE:
        return getattr(import_module(f".{_PACKAGE[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
