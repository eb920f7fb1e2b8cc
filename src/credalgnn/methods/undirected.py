"""The edges of a graph in both directions, for methods that ask who is near, and not who points where."""

from __future__ import annotations

import torch

from ..graphs import Graph
from ..nn import SparseMatrix


def undirected(graph: Graph) -> SparseMatrix:
    """All edges in both directions, each once, as a float64 matrix of ones; made once for a graph.

    Args:
        graph: The graph, whose edge weights do not count.
    """
    return graph.cached(_undirected)


def _undirected(graph: Graph) -> SparseMatrix:
    source, target = graph.edge_index
    ends, starts = torch.cat([source, target]), torch.cat([target, source])
    ones = torch.ones(len(ends), dtype=torch.float64)
    matrix = SparseMatrix.from_coo(ends, starts, ones, (graph.num_nodes, graph.num_nodes))
    return matrix.map(torch.ones_like)
