"""Conformal statistics: p-values, prediction sets, drift test. Independent of graphs and methods."""

from .martingale import BatchResult, ExchangeabilityTest
from .statistics import benjamini_hochberg, flags, needed, nonconformity, p_values, prediction_sets, threshold

__all__ = [
    "BatchResult",
    "ExchangeabilityTest",
    "benjamini_hochberg",
    "flags",
    "needed",
    "nonconformity",
    "p_values",
    "prediction_sets",
    "threshold",
]
