"""Methods: node classifiers and scores by the name a user types, and the base classes of others."""

from .base import Components, Method, Outputs
from .baselines import Baseline, Degree, FeatureSum
from .coverage import CredalCoverage
from .credal import CredalDual, CredalFinal, CredalFrozen, CredalLJ
from .density import GEBM, JLDE, KNN, KNNLJ, Mahalanobis
from .diagnostics import CredalWarning, InputWarning
from .ensembles import ClassicalEnsemble, CredalEnsemble, DropEdge, MCDropout
from .evidential import GPN, Evidential
from .large import MemoryWarning
from .network import Network, Vanilla
from .parameters import Interval, Options, Uniform
from .posthoc import GRASP, Energy, GNNSafe, Odin, PostHoc
from .prediction import MethodError, NotFittedError, Prediction, SplitPredictor
from .random_set import RandomSet
from .registry import METHODS, check_declared, find_method, method_path
from .storage import load_method
from .temperature import CaGCN, Temperature
from .training_data import TrainingData

__all__ = [
    "GEBM",
    "GPN",
    "GRASP",
    "JLDE",
    "KNN",
    "KNNLJ",
    "METHODS",
    "Baseline",
    "CaGCN",
    "ClassicalEnsemble",
    "Components",
    "CredalCoverage",
    "CredalDual",
    "CredalEnsemble",
    "CredalFinal",
    "CredalFrozen",
    "CredalLJ",
    "CredalWarning",
    "Degree",
    "DropEdge",
    "Energy",
    "Evidential",
    "FeatureSum",
    "GNNSafe",
    "InputWarning",
    "Interval",
    "MCDropout",
    "Mahalanobis",
    "MemoryWarning",
    "Method",
    "MethodError",
    "Network",
    "NotFittedError",
    "Odin",
    "Options",
    "Outputs",
    "PostHoc",
    "Prediction",
    "RandomSet",
    "SplitPredictor",
    "Temperature",
    "TrainingData",
    "Uniform",
    "Vanilla",
    "check_declared",
    "find_method",
    "load_method",
    "method_path",
]
