"""Graphs, named and one's own, and the leave-out-class tasks on them. Knows nothing of models."""

from ._checks import check_mask, node_numbers
from .datasets import (
    DATASETS,
    CSBMPosterior,
    Dataset,
    File,
    Loaded,
    Summary,
    among_classes,
    csbm,
    csbm_graph_posterior,
    csbm_posterior,
    dataset_name,
    dataset_names,
    digits,
    find_dataset,
    load_graph,
    load_task,
    paper_table,
)
from .description import Description, local_homophily
from .encoding import FeatureEncoder
from .errors import GraphError, GraphWarning, OwnTaskError
from .graph import Graph
from .packing import Packed, pack
from .sources import GraphParts, TableGraph, TablePaths, read_source, read_tables
from .split import Split, stratified_split
from .tables import Columns
from .task import Part, Task, TrainingView

__all__ = [
    "DATASETS",
    "CSBMPosterior",
    "Columns",
    "Dataset",
    "Description",
    "FeatureEncoder",
    "File",
    "Graph",
    "GraphError",
    "GraphParts",
    "GraphWarning",
    "Loaded",
    "OwnTaskError",
    "Packed",
    "Part",
    "Split",
    "Summary",
    "TableGraph",
    "TablePaths",
    "Task",
    "TrainingView",
    "among_classes",
    "check_mask",
    "csbm",
    "csbm_graph_posterior",
    "csbm_posterior",
    "dataset_name",
    "dataset_names",
    "digits",
    "find_dataset",
    "load_graph",
    "load_task",
    "local_homophily",
    "node_numbers",
    "pack",
    "paper_table",
    "read_source",
    "read_tables",
    "stratified_split",
]
