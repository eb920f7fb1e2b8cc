"""Mathematics of credal sets: intervals and hulls, their exact entropies, decisions. Knows nothing of graphs."""

from .base import CredalSet, Optimum, SolverOptions
from .decisions import e_admissibility, interval_dominance, maximality, u65, u80
from .entropy import CertifiedUncertainty, Uncertainty, lower_entropy, uncertainty, upper_entropy
from .hull import HullSet
from .intervals import IntervalSet, interval_softmax, log_interval_softmax
from .widening import widen

__all__ = [
    "CertifiedUncertainty",
    "CredalSet",
    "HullSet",
    "IntervalSet",
    "Optimum",
    "SolverOptions",
    "Uncertainty",
    "e_admissibility",
    "interval_dominance",
    "interval_softmax",
    "log_interval_softmax",
    "lower_entropy",
    "maximality",
    "u65",
    "u80",
    "uncertainty",
    "upper_entropy",
    "widen",
]
