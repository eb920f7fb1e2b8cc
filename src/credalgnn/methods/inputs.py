"""Graphs as models want them."""

from __future__ import annotations

import torch

from ..graphs import Graph
from ..nn import Adjacency, EdgeRows, SparseMatrix
from ..nn.backbones import Features
from ..nn.sparse import damaged


def inputs(graph: Graph, device: str = "cpu") -> tuple[Features, Adjacency]:
    """A graph as models want it; made once for its features and edges, so that all methods on it share operators."""
    key = f"inputs on {device}"
    if key not in graph.derived:
        x = _features(graph)
        if isinstance(x, SparseMatrix) and graph.path is not None:  # a file may have changed since it was opened
            try:
                x = x.checked()
            except ValueError as error:
                raise damaged(f"features contradict themselves ({error})") from None
        if isinstance(x, torch.Tensor):
            x = x.to(torch.float32)
        elif x.values.dtype != torch.float32:
            x = x.map(torch.Tensor.float)
        weights = None if graph.edge_weight is None else graph.edge_weight.to(device)
        graph.derived[key] = x.to(device), Adjacency(graph.edge_index.to(device), graph.num_nodes, weights)
    made: tuple[Features, Adjacency] = graph.derived[key]
    return made


def inputs_by_rows(graph: Graph) -> tuple[Features, EdgeRows]:
    """A graph whose rows are read when they are wanted: nothing of it is copied, wherever it lies.

    Args:
        graph: In memory, or opened.
    """
    if "inputs by rows" not in graph.derived:
        graph.derived["inputs by rows"] = _features(graph), EdgeRows(*graph.in_edges)
    made: tuple[Features, EdgeRows] = graph.derived["inputs by rows"]
    return made


def _features(graph: Graph) -> Features:
    """As they lie in memory or in a file."""
    x = graph.features
    return SparseMatrix.from_torch(x) if x.layout == torch.sparse_csr else x
