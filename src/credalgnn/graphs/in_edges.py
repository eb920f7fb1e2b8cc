"""The edges of a graph by their target, so that those into a node lie side by side, in memory or in a file."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

INT32 = 2**31 - 1


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
        order = torch.argsort(target.to(kind), stable=True)
        return cls(starts, source[order].to(kind), None if edge_weight is None else edge_weight[order])

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
