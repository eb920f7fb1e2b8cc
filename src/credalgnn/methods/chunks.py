"""Graphs that are read in chunks: rows of features, and edges by their target, so that they need not fit in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from ..graphs import Graph
from ..nn import SparseMatrix
from ..nn.backbones import Features
from .inputs import inputs_by_rows
from .scratch import APART

VALUES = 1 << 25  # of a chunk of features, at the most
SUMMED = 1 << 22  # of a chunk of features that is summed in float64
EDGES = 1 << 21  # of a block of edges, at the most, unless one node has more


def slices(count: int, size: int) -> Iterator[slice]:
    """The numbers below ``count`` in chunks.

    Args:
        count: How many there are.
        size: Of a chunk, at least 1.
    """
    for first in range(0, count, max(1, size)):
        yield slice(first, min(first + max(1, size), count))


def feature_rows(graph: Graph, chosen: slice | Tensor) -> Features:
    """Rows of features, float32; sparse ones stay so.

    Args:
        graph: Whose features.
        chosen: Which nodes: consecutive ones, or their numbers.
    """
    if isinstance(chosen, Tensor) and graph.path is not None and graph.features.layout != torch.sparse_csr:
        parts = []
        for part in torch.split(chosen, APART):
            parts.append(graph.rows(part))
            graph.release()
        return torch.cat(parts)
    x = graph.rows(chosen)
    return SparseMatrix.from_torch(x) if x.layout == torch.sparse_csr else x


def feature_chunks(graph: Graph, values: int = VALUES) -> Iterator[tuple[slice, Features]]:
    """All rows of features, float32, chunk by chunk, with which nodes they are of.

    Args:
        graph: Whose features.
        values: Of a chunk, at the most; of sparse features those that are not zero, on average.
    """
    x = graph.features
    width = x.shape[1] if x.layout != torch.sparse_csr else len(x.values()) // max(1, len(x)) + 1
    for chunk in slices(graph.num_nodes, values // max(1, width)):
        yield chunk, feature_rows(graph, chunk)
        graph.release()


def absolute_sums(x: Features) -> Tensor:
    """The sum of the absolute values of each row, float64.

    Args:
        x: Rows of features.
    """
    if isinstance(x, SparseMatrix):
        return x.map(lambda values: values.double().abs()).row_sums()
    return x.double().abs().sum(1)


class EdgeBlock(NamedTuple):
    """All edges into some consecutive nodes.

    Attributes:
        nodes: The nodes.
        starts: Where the edges into each begin in ``sources``, and where the last end ``[n + 1]``.
        sources: Where the edges come from.
    """

    nodes: slice
    starts: Tensor
    sources: Tensor

    @property
    def counts(self) -> Tensor:
        """How many edges end at each node."""
        return self.starts.diff()

    def spread(self, values: Tensor) -> Tensor:
        """A value a node, repeated for each of its edges.

        Args:
            values: Of the block's nodes ``[n]``.
        """
        return values.repeat_interleave(self.counts)

    def sums(self, values: Tensor) -> Tensor:
        """For each node, the sum of a value over the edges into it, float64 and in their order.

        Args:
            values: Of the block's edges.
        """
        count = len(self.starts) - 1
        return torch.bincount(self.spread(torch.arange(count)), values.double(), count)


def edge_blocks(graph: Graph, edges: int = EDGES) -> Iterator[EdgeBlock]:
    """All edges of a graph by their target, block by block.

    Args:
        graph: Whose edges.
        edges: Of a block, at the most, unless there are more into one node.
    """
    starts, sources, _ = graph.in_edges
    for first, last in graph.in_edges.chunks(edges):
        own = starts[first : last + 1]
        yield EdgeBlock(slice(first, last), own - own[0], sources[int(own[0]) : int(own[-1])])
        graph.release()


def in_means(graph: Graph, values: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """The means of vectors over in-neighbours, block by block, with which nodes they are of.

    Args:
        graph: Whose edges, and weights.
        values: A vector for each node, float32 ``[N, D]``.
    """
    _, edges = inputs_by_rows(graph)
    for first, last in graph.in_edges.chunks(EDGES):
        yield slice(first, last), edges.rows("mean", first, last) @ values
        graph.release()


def moments(chunks: Iterable[Tensor]) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each column of a matrix that comes in chunks of rows.

    Args:
        chunks: The rows, at least one.
    """
    seen: list[tuple[int, Tensor, Tensor]] = []
    for chunk in chunks:
        seen.append((len(chunk), chunk.mean(0), chunk.std(0, unbiased=False)))
    if len(seen) == 1:
        return seen[0][1], seen[0][2]
    kind = seen[0][1].dtype
    counts = torch.tensor([count for count, _, _ in seen], dtype=torch.float64)[:, None]
    means, spreads = (torch.stack([part[k].double() for part in seen]) for k in (1, 2))  # type: ignore[union-attr]
    mean = (counts * means).sum(0) / counts.sum()
    variance = (counts * (spreads.square() + (means - mean).square())).sum(0) / counts.sum()
    return mean.to(kind), variance.sqrt().to(kind)
