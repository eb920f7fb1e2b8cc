"""Layers and training: sparse operators, backbones that return every latent, the credal head and its loss, one loop."""

from .adjacency import Adjacency
from .backbones import GAT, GCN, GIN, GPR, SAGE, GATv2, PyGBackbone, make_backbone
from .credal import CredalHead, JointLinear, dro_loss
from .draws import RngScope
from .edge_rows import EdgeRows
from .mlp import MLP
from .rounds import Classifier, Monitor, Schedule, Supervision
from .sparse import DamagedGraph, SparseMatrix
from .training import TrainingError, train

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
    "DamagedGraph",
    "EdgeRows",
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
