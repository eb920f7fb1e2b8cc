"""Evaluation of predictions: metrics, curves and diagnostic marks."""

from .evaluation import Evaluation, evaluate, evaluate_known
from .registry import MARKS, METRICS, Mark, Metric

__all__ = ["MARKS", "METRICS", "Evaluation", "Mark", "Metric", "evaluate", "evaluate_known"]
