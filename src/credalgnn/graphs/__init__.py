"""Graphs, named and one's own, and the leave-out-class tasks on them. Knows nothing of models."""

from ._checks import check_mask, node_numbers
from .description import Description
from .errors import GraphError, GraphWarning
from .graph import Graph
from .named import DATASETS, load_graph, load_task, paper_table
from .synthetic import csbm, csbm_posterior, digits
from .task import Part, Split, Task, TrainingView

__all__ = [
    "DATASETS",
    "Description",
    "Graph",
    "GraphError",
    "GraphWarning",
    "Part",
    "Split",
    "Task",
    "TrainingView",
    "check_mask",
    "csbm",
    "csbm_posterior",
    "digits",
    "load_graph",
    "load_task",
    "node_numbers",
    "paper_table",
]
