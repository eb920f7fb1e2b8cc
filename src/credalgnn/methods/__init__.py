"""Every method of the paper, by the name a user types. Knows nothing of how results are stored or shown."""

from .base import Method
from .coverage import CredalCoverage
from .detectors import KNN, KNNLJ, Energy, GNNSafe, Mahalanobis, Odin
from .diagnostics import CredalWarning
from .ensembles import ClassicalEnsemble, CredalEnsemble
from .neural import CredalFinal, CredalLJ, Vanilla
from .prediction import MethodError, Prediction
from .storage import load_method
from .trivial import Degree, FeatureSum

METHODS: dict[str, type[Method]] = {
    "credal-coverage": CredalCoverage,
    "vanilla": Vanilla,
    "credal-lj": CredalLJ,
    "credal-final": CredalFinal,
    "classical-ensemble": ClassicalEnsemble,
    "credal-ensemble": CredalEnsemble,
    "energy": Energy,
    "odin": Odin,
    "mahalanobis": Mahalanobis,
    "knn": KNN,
    "gnnsafe": GNNSafe,
    "knn-lj": KNNLJ,
    "feature-sum": FeatureSum,
    "degree": Degree,
}

__all__ = [
    "KNN",
    "KNNLJ",
    "METHODS",
    "ClassicalEnsemble",
    "CredalCoverage",
    "CredalEnsemble",
    "CredalFinal",
    "CredalLJ",
    "CredalWarning",
    "Degree",
    "Energy",
    "FeatureSum",
    "GNNSafe",
    "Mahalanobis",
    "Method",
    "MethodError",
    "Odin",
    "Prediction",
    "Vanilla",
    "load_method",
]
