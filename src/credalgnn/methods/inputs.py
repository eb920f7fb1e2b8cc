"""Graphs as models want them."""

from __future__ import annotations

import torch

from ..graphs import Graph
from ..nn import Adjacency, EdgeRows, SparseMatrix
from ..nn.backbones import Features
from ..nn.sparse import damaged


def inputs(graph: Graph, device: str = "cpu") -> tuple[Features, Adjacency]:
    """A graph as models want it; made once for its features and edges, so that all methods on it share operators."""
    return graph.cached(_inputs, device)


def _inputs(graph: Graph, device: str) -> tuple[Features, Adjacency]:
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
    return x.to(device), Adjacency(graph.edge_index.to(device), graph.num_nodes, weights)


def inputs_by_rows(graph: Graph) -> tuple[Features, EdgeRows]:
    """A graph whose rows are read when they are wanted: nothing of it is copied, wherever it lies.

    Args:
        graph: In memory, or opened.
    """
    return graph.cached(_inputs_by_rows)


def _inputs_by_rows(graph: Graph) -> tuple[Features, EdgeRows]:
    return _features(graph), EdgeRows(*graph.in_edges)


def _features(graph: Graph) -> Features:
    """As they lie in memory or in a file."""
    x = graph.features
    return SparseMatrix.from_torch(x) if x.layout == torch.sparse_csr else x


def undirected(graph: Graph) -> SparseMatrix:
    """Matrix of ones, float64, of all edges in both directions, each once and without weights; cached."""
    return graph.cached(_undirected)


def _undirected(graph: Graph) -> SparseMatrix:
    source, target = graph.edge_index
    ends, starts = torch.cat([source, target]), torch.cat([target, source])
    ones = torch.ones(len(ends), dtype=torch.float64)
    matrix = SparseMatrix.from_coo(ends, starts, ones, (graph.num_nodes, graph.num_nodes))
    return matrix.map(torch.ones_like)
