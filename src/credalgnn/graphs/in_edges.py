"""The edges of a graph by their target, so that those into a node lie side by side, in memory or in a file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from .errors import GraphError

INT32 = 2**31 - 1
MANY = 1 << 18  # edges from which on they are sorted by counting
CHUNK = 1 << 21  # edges that are looked at at a time


class InEdges(NamedTuple):
    """Edges by their target, in compressed rows: those into node v are ``starts[v]`` to ``starts[v + 1]``.

    Attributes:
        starts: Where the edges into each node begin, and where the last ones end, int64 ``[N + 1]``.
        sources: The node that each edge comes from ``[E]``, int32 where node numbers fit.
        weights: A number for each edge, float32 ``[E]``; None: all count the same.
    """

    starts: Tensor
    sources: Tensor
    weights: Tensor | None

    @classmethod
    def of(cls, edge_index: Tensor, num_nodes: int, edge_weight: Tensor | None = None) -> InEdges:
        """Edges in any order; those into one node stay in theirs.

        Args:
            edge_index: Node numbers ``[2, E]``, source above target.
            num_nodes: How many nodes there are.
            edge_weight: A number ``[E]`` for each edge, if they have weights.
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
        """The target of each edge into the nodes ``first`` to ``last``, int64.

        Args:
            first: The first node.
            last: The node behind the last one.
        """
        return torch.repeat_interleave(torch.arange(first, last), self.starts[first : last + 1].diff())

    def chunks(self, most: int = CHUNK) -> Iterator[tuple[int, int]]:
        """Ranges of nodes, first and behind the last, that go through all of them; with so many edges into each.

        Each is checked before: compiled loops over its edges need not look where they go.

        Args:
            most: Edges, and nodes, of a range; a node with more edges is a range of its own.
        """
        first = 0
        while first < self.num_nodes:
            end = torch.searchsorted(self.starts, self.starts[first] + most, right=True)
            last = max(first + 1, min(int(end) - 1, first + most, self.num_nodes))
            self.check(first, last)
            yield first, last
            first = last

    def check(self, first: int, last: int) -> None:
        """Refuse edges that end nowhere, as those of a damaged file do, before somebody follows them there.

        Args:
            first: The first node whose in-edges are looked at.
            last: The node behind the last one.
        """
        starts = self.starts[first : last + 1]
        begin, end = int(starts[0]), int(starts[-1])
        whole = 0 <= begin <= end <= self.num_edges and not bool((starts.diff() < 0).any())
        if whole and begin < end:
            low, high = self.sources[begin:end].aminmax()
            whole = 0 <= int(low) <= int(high) < self.num_nodes
        if not whole:
            raise damaged(
                f"edges into the nodes {first:,} to {last - 1:,} are not where they should be or come from none"
            )


def damaged(problem: str) -> GraphError:
    """The error of numbers that lead nowhere, which only a file can have: what is in memory was checked.

    Args:
        problem: What is wrong, in a few words.
    """
    return GraphError(f"the graph is damaged: {problem}; credalgnn check --repair GRAPH, then pack it again")


def row_places(starts: Tensor, rows: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Where the entries of some compressed rows are: how many each row has, and their places, row after row.

    Args:
        starts: Where rows begin, and where the last one ends.
        rows: Numbers of rows.
        size: How many entries there are.
    """
    begin = starts[rows].long()
    counts = starts[rows + 1].long() - begin
    if bool(((begin < 0) | (counts < 0) | (begin + counts > size)).any()):
        raise damaged("rows begin or end where nothing is")
    before = counts.cumsum(0) - counts
    return counts, torch.repeat_interleave(begin - before, counts) + torch.arange(int(counts.sum()))
