"""Graphs as models want them."""

from __future__ import annotations

import torch

from ..graphs import Graph
from ..nn import Adjacency, SparseMatrix
from ..nn.backbones import Features


def inputs(graph: Graph, device: str = "cpu") -> tuple[Features, Adjacency]:
    """A graph as models want it; made once for its features and edges, so that all methods on it share operators."""
    key = f"inputs on {device}"
    if key not in graph.derived:
        x: Features = graph.features
        if graph.features.layout == torch.sparse_csr:
            x = SparseMatrix.from_torch(graph.features)
        weights = None if graph.edge_weight is None else graph.edge_weight.to(device)
        graph.derived[key] = x.to(device), Adjacency(graph.edge_index.to(device), graph.num_nodes, weights)
    made: tuple[Features, Adjacency] = graph.derived[key]
    return made
