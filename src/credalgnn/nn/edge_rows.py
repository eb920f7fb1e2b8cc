"""The edges of a graph by their target, in memory or in a file, and rows of operators made of them when asked for."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import torch
from torch import Tensor

from .sparse import SparseMatrix, damaged

NOWHERE = "an edge comes from a node that does not exist"
NO_EDGES = "edges of a node begin or end where there are none"
BLOCK = 1 << 21  # edges that are looked at together


class EdgeRows:
    """The edges of a graph by their target: those into node v are ``starts[v]`` to ``starts[v + 1]``.

    The counterpart of ``Adjacency`` for graphs that are not held in memory: no operator is kept, and what is kept is
    one number a node.

    Args:
        starts: Where the edges into each node begin, and where the last ones end, int64 ``[N + 1]``.
        sources: The node that each edge comes from ``[E]``; perhaps a file that is mapped into memory.
        weights: A number for each edge, not negative ``[E]``; None: all count the same.
    """

    def __init__(self, starts: Tensor, sources: Tensor, weights: Tensor | None = None) -> None:
        self.starts, self.sources, self.weights = starts, sources, weights

    @property
    def num_nodes(self) -> int:
        return len(self.starts) - 1

    @property
    def num_edges(self) -> int:
        return len(self.sources)

    def blocks(
        self, edges: int = BLOCK, rows: int | None = None, first: int = 0, last: int | None = None
    ) -> Iterator[tuple[int, int]]:
        """Nodes in stretches of about so many in-edges each: the first one, and the one behind the last.

        Args:
            edges: In-edges of a stretch, unless a single node has more.
            rows: Nodes of a stretch at the most.
            first: The first node.
            last: The node behind the last one; None: all nodes from the first on.
        """
        end = self.num_nodes if last is None else last
        while first < end:
            behind = int(torch.searchsorted(self.starts, self.starts[first] + edges, right=True)) - 1
            behind = min(max(behind, first + 1), end, first + (rows or self.num_nodes))
            yield first, behind
            first = behind

    @cached_property
    def in_weight(self) -> Tensor:
        """The sum of the weights of each node's in-edges, in float64; their number where they have none."""
        if self.weights is None:
            return self.starts.diff()
        return torch.cat([self._row_sums(first, last, self._weights(first, last)) for first, last in self.blocks()])

    @cached_property
    def loop_weight(self) -> Tensor:
        """The weight of each node's self-loop, 1 where it has none; of several loops the largest."""
        found = torch.ones(self.num_nodes)
        if self.weights is None:
            return found
        for first, last in self.blocks():
            source, target = self._ends(first, last)
            loops = source == target
            weights = self._weights(first, last)[loops].float()
            found.scatter_reduce_(0, target[loops], weights, "amax", include_self=False)
        return found

    @cached_property
    def degree(self) -> Tensor:
        """In-edges of each node, or the sum of their weights, with one self-loop whatever loops the graph has."""
        parts = []
        for first, last in self.blocks():
            source, target = self._ends(first, last)
            parts.append(self._row_sums(first, last, self._weights(first, last) * (source != target)))
        counts = torch.cat(parts) if parts else torch.zeros(0, dtype=torch.float64)
        return counts + self.loop_weight if self.weights is not None else counts.long() + 1

    @cached_property
    def _scale(self) -> Tensor:
        scale = self.degree.float().rsqrt()
        return scale if self.weights is None else scale.masked_fill(scale.isinf(), 0.0)

    def rows(self, operator: str, first: int, last: int) -> SparseMatrix:
        """Some rows of an operator of ``Adjacency``, all of whose columns are there ``[last - first, N]``.

        Args:
            operator: ``"mean"``, ``"normalized"`` or ``"sum"``.
            first: The first row.
            last: The row behind the last one.
        """
        source, target = self._ends(first, last)
        starts = self.starts[first : last + 1] - self.starts[first]
        weights = self._weights(first, last)
        if operator == "mean":
            values = (weights / self.in_weight[target]).nan_to_num(nan=0.0).float()  # 0 / 0
            return SparseMatrix(starts, source, values, (last - first, self.num_nodes))
        if operator == "sum":
            values, own = weights.float(), torch.ones(last - first)
        elif operator == "normalized":
            values = (self._scale[target] * self._scale[source.long()] * weights * (source != target)).float()
            own = self._scale[first:last].square() * self.loop_weight[first:last]
        else:
            raise ValueError(f"there is no operator {operator!r}: mean, normalized or sum")
        # What each node counts by itself stands behind its edges.
        count = last - first
        ends = starts[1:] + torch.arange(count)
        places = torch.arange(len(values)) + (target - first)
        columns = torch.empty(len(values) + count, dtype=source.dtype)
        all_values = torch.empty(len(columns))
        columns[places], all_values[places] = source, values
        columns[ends], all_values[ends] = torch.arange(first, last, dtype=source.dtype), own
        return SparseMatrix(starts + torch.arange(count + 1), columns, all_values, (count, self.num_nodes))

    def _places(self, first: int, last: int) -> tuple[slice, Tensor]:
        """Where the edges into some nodes are, and how many each node has; nobody goes there before this was asked."""
        begin, end = int(self.starts[first]), int(self.starts[last])
        counts = self.starts[first : last + 1].diff()
        if not 0 <= begin <= end <= self.num_edges or bool((counts < 0).any()):
            raise damaged(NO_EDGES)
        return slice(begin, end), counts

    def _ends(self, first: int, last: int) -> tuple[Tensor, Tensor]:
        places, counts = self._places(first, last)
        sources = self.sources[places]
        if len(sources) and not 0 <= sources.min() <= sources.max() < self.num_nodes:
            raise damaged(NOWHERE)
        return sources, torch.repeat_interleave(torch.arange(first, last), counts)

    def _weights(self, first: int, last: int) -> Tensor:
        places, _ = self._places(first, last)
        if self.weights is None:
            return torch.ones(places.stop - places.start, dtype=torch.float64)
        return self.weights[places].double()

    def _row_sums(self, first: int, last: int, values: Tensor) -> Tensor:
        _, counts = self._places(first, last)
        row = torch.repeat_interleave(torch.arange(last - first), counts)
        return torch.bincount(row, values, minlength=last - first)
