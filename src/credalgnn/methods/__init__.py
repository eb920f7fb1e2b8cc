"""Every method of the paper, by the name a user types, and whatever else is derived from ``Method``.

Knows nothing of how results are stored or shown.
"""

from .base import Method
from .baselines import Baseline, Degree, FeatureSum
from .components import Components, Outputs
from .coverage import CredalCoverage
from .credal import CredalDual, CredalFinal, CredalLJ
from .credal_frozen import CredalFrozen
from .density import GEBM, JLDE
from .diagnostics import CredalWarning
from .ensembles import ClassicalEnsemble, CredalEnsemble
from .evidential import Evidential
from .feature_range import InputWarning
from .given import Given
from .grasp import GRASP
from .knn import KNN, KNNLJ
from .network import Network, Vanilla
from .posterior import GPN
from .posthoc import Energy, GNNSafe, Mahalanobis, Odin, PostHoc
from .prediction import MethodError, Prediction
from .random_set import RandomSet
from .registry import METHODS, check_declared, find_method, method_path
from .sampling import DropEdge, MCDropout
from .search_space import Uniform
from .storage import load_method
from .temperature import CaGCN, Temperature

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
    "Given",
    "InputWarning",
    "MCDropout",
    "Mahalanobis",
    "Method",
    "MethodError",
    "Network",
    "Odin",
    "Outputs",
    "PostHoc",
    "Prediction",
    "RandomSet",
    "Temperature",
    "Uniform",
    "Vanilla",
    "check_declared",
    "find_method",
    "load_method",
    "method_path",
]
