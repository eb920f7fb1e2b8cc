"""Sparse operators, layers, backbones that return every latent, the credal head and its loss, and the training loop."""

from .adjacency import Adjacency
from .backbones import GAT, GCN, GIN, GPR, MLP, SAGE, GATv2, PyGBackbone, make_backbone
from .credal import CredalHead, JointLinear, dro_loss
from .random import RngScope
from .sparse import SparseMatrix
from .training import Classifier, Monitor, Schedule, Supervision, TrainingError, train

__all__ = [
    "GAT",
    "GCN",
    "GIN",
    "GPR",
    "MLP",
    "SAGE",
    "Adjacency",
    "Classifier",
    "CredalHead",
    "GATv2",
    "JointLinear",
    "Monitor",
    "PyGBackbone",
    "RngScope",
    "Schedule",
    "SparseMatrix",
    "Supervision",
    "TrainingError",
    "dro_loss",
    "make_backbone",
    "train",
]
