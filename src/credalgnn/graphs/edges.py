"""Edges of a graph grouped by target, and rows of its features, in memory or mapped from a file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from .errors import GraphError

INT32 = 2**31 - 1
MANY = 1 << 18  # edges from which on they are sorted by counting
CHUNK = 1 << 21  # edges of a chunk
ROW_BYTES = 32 << 20  # of features in a chunk


class Edges(NamedTuple):
    """Edges of a graph in compressed rows: those into node v are ``starts[v]`` to ``starts[v + 1]``.

    Attributes:
        starts: Where the edges into each node begin, and where the last ones end, int64 ``[N + 1]``.
        sources: Source node of each edge ``[E]``, int32 where node numbers fit.
        weights: Weight of each edge, not negative, float32 ``[E]``; None: all count the same.
    """

    starts: Tensor
    sources: Tensor
    weights: Tensor | None = None

    @classmethod
    def of(cls, edge_index: Tensor, num_nodes: int, edge_weight: Tensor | None = None) -> Edges:
        """Return edges in any order grouped by target; those into one node keep their order.

        Args:
            edge_index: Node numbers ``[2, E]``, source above target.
            num_nodes: Number of nodes.
            edge_weight: Weight of each edge ``[E]``.
        """
        source, target = edge_index
        counts = torch.bincount(target, minlength=num_nodes)
        starts = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        kind = torch.int32 if num_nodes <= INT32 else torch.int64
        if len(target) < MANY:
            order = torch.argsort(target.to(kind), stable=True)
            return cls(starts, source[order].to(kind), None if edge_weight is None else edge_weight[order])
        from ._edge_kernels import by_target  # here, as numba takes longer to load than a small graph to sort

        sources = torch.empty(len(target), dtype=kind)
        order = torch.empty(0 if edge_weight is None else len(target), dtype=torch.int64)
        by_target(*(part.numpy() for part in (source, target, starts[:-1].clone(), sources, order)))
        return cls(starts, sources, None if edge_weight is None else edge_weight[order])

    @property
    def num_nodes(self) -> int:
        return len(self.starts) - 1

    @property
    def num_edges(self) -> int:
        return len(self.sources)

    def targets(self, first: int, last: int) -> Tensor:
        """Return the target, int64, of each edge into the nodes ``first`` to ``last - 1``."""
        return torch.repeat_interleave(torch.arange(first, last), self.starts[first : last + 1].diff())

    def chunks(
        self, max_edges: int = CHUNK, max_nodes: int | None = None, first: int = 0, end: int | None = None
    ) -> Iterator[tuple[int, int]]:
        """Yield consecutive ranges of nodes, ``first`` and ``last + 1``, whose in-edges have been checked.

        Args:
            max_edges: In-edges of a range; a node with more is a range of its own.
            max_nodes: Nodes of a range; None: as many as ``max_edges``.
            first: First node.
            end: The node after the last one; None: all nodes.
        """
        end = self.num_nodes if end is None else end
        while first < end:
            behind = int(torch.searchsorted(self.starts, self.starts[first] + max_edges, right=True)) - 1
            last = max(first + 1, min(behind, first + (max_nodes or max_edges), end))
            self.check(first, last)
            yield first, last
            first = last

    def check(self, first: int, last: int) -> None:
        """Refuse in-edges of a range of nodes that point nowhere, as in a damaged file: compiled loops follow them."""
        starts = self.starts[first : last + 1]
        begin, end = int(starts[0]), int(starts[-1])
        whole = 0 <= begin <= end <= self.num_edges and not bool((starts.diff() < 0).any())
        if whole and begin < end:
            low, high = self.sources[begin:end].aminmax()
            whole = 0 <= int(low) <= int(high) < self.num_nodes
        if not whole:
            raise damaged(f"edges into the nodes {first:,} to {last - 1:,} begin or end outside of the graph")


def damaged(problem: str) -> GraphError:
    """Return the error for indices that point nowhere, which only a file can have: graphs in memory were checked."""
    return GraphError(f"the graph is damaged: {problem}; credalgnn check --repair GRAPH, then pack it again")


def row_places(starts: Tensor, rows: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Return the lengths of some compressed rows, and the places of their entries, row after row.

    Args:
        starts: Where rows begin, and where the last one ends.
        rows: Numbers of rows.
        size: Number of entries of all rows.
    """
    begin = starts[rows].long()
    counts = starts[rows + 1].long() - begin
    if bool(((begin < 0) | (counts < 0) | (begin + counts > size)).any()):
        raise damaged("rows begin or end outside of the file")
    before = counts.cumsum(0) - counts
    return counts, torch.repeat_interleave(begin - before, counts) + torch.arange(int(counts.sum()))


def rows(matrix: Tensor, nodes: Tensor | slice) -> Tensor:
    """Return some rows of a strided or CSR matrix as float32, sparse if it is; slices have step 1."""
    if matrix.layout != torch.sparse_csr:
        return (matrix[nodes] if isinstance(nodes, slice) else matrix.index_select(0, nodes)).float()
    starts, columns, values = matrix.crow_indices(), matrix.col_indices(), matrix.values()
    if isinstance(nodes, slice):
        first, last, _ = nodes.indices(matrix.shape[0])
        last = max(first, last)
        begin, end = int(starts[first]), int(starts[last])
        if not 0 <= begin <= end <= len(values):
            raise damaged("features begin or end outside of the file")
        bounds, columns, values = starts[first : last + 1] - begin, columns[begin:end], values[begin:end]
    else:
        counts, places = row_places(starts, nodes, len(values))
        bounds = torch.cat([counts.new_zeros(1), counts.cumsum(0)]).to(starts.dtype)
        columns, values = columns[places], values[places]
    shape = (len(bounds) - 1, matrix.shape[1])
    if bool((bounds.diff() < 0).any()) or (len(columns) and not 0 <= columns.min() <= columns.max() < shape[1]):
        raise damaged("features are out of order, or of columns that do not exist")
    return torch.sparse_csr_tensor(bounds, columns, values.float(), shape, check_invariants=False)


def row_chunks(matrix: Tensor) -> Iterator[slice]:
    """Yield slices of all rows of a strided or CSR matrix, each of bounded size in memory."""
    count, width = matrix.shape
    step = max(1, ROW_BYTES // (4 * max(1, width)))
    if matrix.layout == torch.sparse_csr:
        step = max(1, min(count, ROW_BYTES * max(1, count) // (8 * max(1, matrix.values().numel()) + 8 * count)))
    for first in range(0, count, step):
        yield slice(first, min(first + step, count))
