"""Graphs as models take them."""

from __future__ import annotations

import torch

from ..graphs import Graph
from ..graphs.edges import damaged
from ..nn import Adjacency, SparseMatrix
from ..nn.layers import Features
from ..nn.sparse import check_csr


def inputs(graph: Graph, device: str = "cpu") -> tuple[Features, Adjacency]:
    """Return features and edges on a device; made once for all methods, which share the operators."""
    return graph.cached(_features, device), graph.cached(_adjacency, device)


def inputs_by_rows(graph: Graph) -> tuple[Features, Adjacency]:
    """Return features and edges whose rows are read when they are needed: nothing is copied, wherever it lies."""
    return _stored_features(graph), graph.cached(_adjacency, "cpu")


def _adjacency(graph: Graph, device: str) -> Adjacency:
    return Adjacency(graph.in_edges, graph.edge_index if graph.path is None else None, device=device)


def _features(graph: Graph, device: str) -> Features:
    x = _stored_features(graph)
    if isinstance(x, SparseMatrix) and graph.path is not None:  # a file may have changed since it was opened
        try:
            check_csr(x)
        except ValueError as error:
            raise damaged(f"features contradict themselves ({error})") from None
    if isinstance(x, torch.Tensor):
        x = x.to(torch.float32)
    elif x.values.dtype != torch.float32:
        x = x.map(torch.Tensor.float)
    return x.to(device)


def _stored_features(graph: Graph) -> Features:
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
