"""Credal sets of class distributions: intervals and hulls, exact entropies, decision rules. Independent of graphs."""

from .base import CredalSet, Optimum, SolverOptions
from .decisions import e_admissibility, interval_dominance, maximality, u65, u80
from .entropy import CertifiedUncertainty, Uncertainty, lower_entropy, uncertainty, upper_entropy, widen
from .hull import HullSet
from .intervals import IntervalSet, interval_softmax, log_interval_softmax

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
