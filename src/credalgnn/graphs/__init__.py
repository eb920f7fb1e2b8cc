"""Graphs, named and one's own, and the leave-out-class tasks on them. Knows nothing of models."""

from .graph import Description, Graph, GraphError
from .named import DATASETS, load_graph, load_task, paper_table
from .synthetic import csbm, csbm_posterior, digits
from .task import Part, Split, Task, TrainingView, check_mask, node_numbers

__all__ = [
    "DATASETS",
    "Description",
    "Graph",
    "GraphError",
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
