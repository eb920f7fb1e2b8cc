"""A model of one's own graph: from tables to predictions that say "I don't know", kept in a folder to be handed on."""

from .fitting import fit
from .model import Model, ModelEvaluation, load_model
from .watching import WatchReport, watch

__all__ = ["Model", "ModelEvaluation", "WatchReport", "fit", "load_model", "watch"]
