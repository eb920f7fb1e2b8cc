"""What a prediction is worth: metrics, curves, and marks of what does not work. Knows nothing of files."""

from .evaluation import Evaluation, evaluate, evaluate_known
from .marks import MARKS, Mark
from .registry import METRICS, Metric

__all__ = ["MARKS", "METRICS", "Evaluation", "Mark", "Metric", "evaluate", "evaluate_known"]
