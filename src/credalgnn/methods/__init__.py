"""Methods: node classifiers and scores by the name a user types, and the base classes of others."""

from ..nn import TrainingError
from .base import Components, Method, Outputs
from .baselines import Baseline, Degree, FeatureSum
from .coverage import CredalCoverage
from .credal import CredalDual, CredalFinal, CredalLJ
from .credal_frozen import CredalFrozen
from .density import GEBM, JLDE
from .diagnostics import CredalWarning, InputWarning
from .ensembles import ClassicalEnsemble, CredalEnsemble
from .evidential import Evidential
from .grasp import GRASP
from .knn import KNN, KNNLJ
from .large import MemoryWarning
from .network import Network, Vanilla
from .parameters import Interval, Options, Uniform
from .posterior import GPN
from .posthoc import Energy, GNNSafe, Mahalanobis, Odin, PostHoc
from .prediction import MethodError, NotFittedError, Prediction, SplitPredictor
from .random_set import RandomSet
from .registry import METHODS, check_declared, find_method, method_path
from .sampling import DropEdge, MCDropout
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
    "TrainingError",
    "Uniform",
    "Vanilla",
    "check_declared",
    "find_method",
    "load_method",
    "method_path",
]
