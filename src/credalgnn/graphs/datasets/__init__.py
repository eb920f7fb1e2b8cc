"""Built-in data sets, and a registry that also finds plug-ins, files, folders and import paths."""

from .base import Dataset, Loaded, Summary
from .files import File
from .posterior import CSBMPosterior, among_classes, csbm_graph_posterior
from .registry import DATASETS, dataset_name, dataset_names, find_dataset, load_graph, load_task, paper_table
from .synthetic import csbm, csbm_posterior, digits

__all__ = [
    "DATASETS",
    "CSBMPosterior",
    "Dataset",
    "File",
    "Loaded",
    "Summary",
    "among_classes",
    "csbm",
    "csbm_graph_posterior",
    "csbm_posterior",
    "dataset_name",
    "dataset_names",
    "digits",
    "find_dataset",
    "load_graph",
    "load_task",
    "paper_table",
]
