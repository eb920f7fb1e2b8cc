"""Models of your own graph: fit, predict, evaluate, monitor."""

from .fitting import fit
from .model import Model, ModelEvaluation, load_model
from .watching import WatchReport, watch

__all__ = ["Model", "ModelEvaluation", "WatchReport", "fit", "load_model", "watch"]
