"""The benchmark: an honest protocol, metrics, records on disk, tuning, resuming. Knows nothing of plotting."""

from .metrics import Evaluation, evaluate

__all__ = ["Evaluation", "evaluate"]
