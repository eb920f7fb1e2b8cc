"""The benchmark: what to run, where, and one record per run that outlives any crash. Knows nothing of plotting."""

from ..metrics import Evaluation, evaluate

__all__ = ["Evaluation", "evaluate"]
