"""Normalised propagation operators of a graph's edges: all rows at once, some rows, or those of sampled edges."""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

from ..graphs.edges import Edges
from .sparse import SparseMatrix, sum_duplicates, top_rows

OPERATORS = ("mean", "sum", "normalized", "looped")


class Sample(NamedTuple):
    """Origin of sampled edges, which keeps sums and means over them unbiased.

    Attributes:
        graph: The edges that were sampled from.
        nodes: Node numbers in that graph ``[N]``: the seeds first, then their neighbours, hop by hop.
        counts: How many of its target's edges each sampled edge stands for ``[E]``.
        sizes: Number of nodes at most 0, 1, 2 .. hops away from the seeds.
    """

    graph: Adjacency
    nodes: Tensor
    counts: Tensor
    sizes: tuple[int, ...]


class Adjacency:
    """Propagation operators of the edges of a graph; rows are targets: ``A[target, source]``.

    An edge that occurs twice counts twice. ``matrix`` makes an operator for all nodes, ``rows`` for some of them; the
    edges of a graph that is larger than memory are read where they are needed. With d the in-degree, or sum of
    in-weights:

    - ``mean``: ``A / d``; the row of a node without in-edges, or whose in-edges have no weight, is empty or zero.
    - ``sum``: ``A + I``; a node with a self-loop counts twice, as in PyG's GIN.
    - ``normalized``: ``D^-1/2 (A + I) D^-1/2`` with one self-loop per node: without edge weights one of weight 1
      whatever loops the graph has, with weights that of the graph's loop, and 1 for a node without, as in PyG.
    - ``looped``: ``A + I`` with one self-loop per node and without weights, for attention.

    Args:
        edges: Edges by target.
        edge_index: The same edges ``[2, E]`` in their original order; None: the order of ``edges``.
        sample: Origin of the edges, if they were sampled.
        share: Share of the graph's edges that are left, each of which then counts for more in sums.
        device: Device of the matrices.
    """

    def __init__(
        self,
        edges: Edges,
        edge_index: Tensor | None = None,
        *,
        sample: Sample | None = None,
        share: float = 1.0,
        device: torch.device | str = "cpu",
    ) -> None:
        self.edges, self.sample, self.share, self.device = edges, sample, share, device
        self.num_nodes, self.is_weighted = edges.num_nodes, edges.weights is not None
        self._edge_index = edge_index
        self._matrices: dict[str, SparseMatrix] = {}

    @classmethod
    def from_index(cls, edge_index: Tensor, num_nodes: int, edge_weight: Tensor | None = None) -> Adjacency:
        """Return the operators of edges in any order.

        Args:
            edge_index: Node numbers ``[2, E]``, source above target.
            num_nodes: Number of nodes.
            edge_weight: Weight of each edge ``[E]``, not negative; None: all count the same.
        """
        weight = None if edge_weight is None else edge_weight.cpu()
        return cls(Edges.of(edge_index.cpu(), num_nodes, weight), edge_index, device=edge_index.device)

    def to(self, device: torch.device | str) -> Adjacency:
        """Return the same edges with operators on another device.

        Args:
            device: As in torch.
        """
        return Adjacency(self.edges, self._edge_index, sample=self.sample, share=self.share, device=device)

    def layer(self, following: int) -> Adjacency | LayerEdges:
        """Return the operators of one layer: of sampled edges, only the rows that are needed.

        Args:
            following: Number of layers after it.
        """
        if self.sample is None:
            return self
        sizes = self.sample.sizes
        rows, columns = (sizes[min(hops, len(sizes) - 1)] for hops in (following, following + 1))
        return LayerEdges(self, rows, columns)

    @cached_property
    def edge_index(self) -> Tensor:
        """Edges ``[2, E]`` on the device, for models of PyG."""
        if self._edge_index is not None:
            return self._edge_index.to(self.device)
        targets = self.edges.targets(0, self.num_nodes)
        return torch.stack([self.edges.sources.long(), targets]).to(self.device)

    @cached_property
    def edge_weight(self) -> Tensor | None:
        """Weights ``[E]`` in the order of ``edge_index``, on the device."""
        weights = self.edges.weights
        if weights is None or self._edge_index is None:
            return None if weights is None else weights.to(self.device)
        return torch.empty_like(weights).scatter_(0, self._order, weights).to(self.device)

    @cached_property
    def _order(self) -> Tensor:
        """Number in ``edge_index`` of each edge."""
        return self.edge_index[1].cpu().argsort(stable=True)

    @cached_property
    def in_weight(self) -> Tensor:
        """Sum of the weights of each node's in-edges, float64; their number where they have none."""
        if self.sample is not None:
            return self.sample.graph.in_weight[self.sample.nodes]
        if not self.is_weighted:
            return self.edges.starts.diff()
        return torch.cat([_row_sums(self.edges, *chunk, _weights(self.edges, *chunk)) for chunk in self.edges.chunks()])

    @cached_property
    def loop_weight(self) -> Tensor:
        """Weight of each node's self-loop, 1 where it has none; of several loops the largest."""
        if self.sample is not None:
            return self.sample.graph.loop_weight[self.sample.nodes]
        weight = torch.ones(self.num_nodes)
        for first, last in self.edges.chunks() if self.is_weighted else ():
            source, target = _ends(self.edges, first, last)
            loops = source == target
            values = _weights(self.edges, first, last)[loops].float()
            weight.scatter_reduce_(0, target[loops], values, "amax", include_self=False)
        return weight

    @cached_property
    def degree(self) -> Tensor:
        """In-edges of each node, or the sum of their weights, with one self-loop whatever loops the graph has."""
        if self.sample is not None:
            return self.sample.graph.degree[self.sample.nodes]
        parts = [torch.zeros(0, dtype=torch.int64)]
        for first, last in self.edges.chunks():
            source, target = _ends(self.edges, first, last)
            if self.is_weighted:
                values = _weights(self.edges, first, last) * (source != target)
                parts.append(_row_sums(self.edges, first, last, values))
            else:
                loops = torch.bincount(target[source == target] - first, minlength=last - first)
                parts.append(self.edges.starts[first : last + 1].diff() - loops)
        return torch.cat(parts) + (self.loop_weight if self.is_weighted else 1)

    @cached_property
    def _scale(self) -> Tensor:
        scale = self.degree.float().rsqrt()
        return scale.masked_fill(scale.isinf(), 0.0) if self.is_weighted else scale  # nodes whose edges have no weight

    def matrix(self, name: str) -> SparseMatrix:
        """Return an operator for all nodes ``[N, N]``, made once.

        Its rows are sorted and without duplicates, but for means over sampled edges, which are used only once.

        Args:
            name: ``"mean"``, ``"sum"``, ``"normalized"`` or ``"looped"``.
        """
        if name not in self._matrices:
            raw = self._assemble(name, 0, self.num_nodes, torch.float32)
            sampled, unweighted = self.sample is not None, not self.is_weighted
            matrix = raw if sampled and unweighted and name == "mean" else sum_duplicates(raw)
            self._matrices[name] = matrix.to(self.device)
        return self._matrices[name]

    def rows(self, name: str, first: int, last: int) -> SparseMatrix:
        """Return some rows of an operator with all columns ``[last - first, N]``; they are not cached.

        Args:
            name: See ``matrix``.
            first: The first row.
            last: The row after the last one.
        """
        matrix = self._assemble(name, first, last, torch.float64)
        return matrix.map(Tensor.float)

    def _assemble(self, name: str, first: int, last: int, precision: torch.dtype) -> SparseMatrix:
        """Return rows of an operator with their edges in order and the node itself at the end of its row.

        Weights of rows are divided in `precision`.
        """
        if name not in OPERATORS:
            raise ValueError(f"there is no operator {name!r}: choose {', '.join(OPERATORS)}")
        source, target = _ends(self.edges, first, last)
        starts = self.edges.starts[first : last + 1] - self.edges.starts[first]
        shape, once = (last - first, self.num_nodes), self.sample is not None
        if name == "mean":
            return SparseMatrix(starts, source, _means(self, first, last, target, precision), shape, once)
        if name == "normalized":
            values = self._scale[source.long()] * self._scale[target] * self._counted(first, last, precision)
            values = values * (source != target)
            loops = self._scale[first:last].square()
            loops = loops * self.loop_weight[first:last] if self.is_weighted else loops
        else:
            values = (self._counted(first, last, precision, name == "sum") / self.share).float()
            values = values if name == "sum" else values * (source != target)
            loops = torch.ones(last - first)
        count = last - first
        places = torch.arange(len(values)) + (target - first)
        ends = starts[1:] + torch.arange(count)
        columns = torch.empty(len(values) + count, dtype=source.dtype)
        all_values = torch.empty(len(columns), dtype=values.dtype)
        columns[places], all_values[places] = source, values
        columns[ends], all_values[ends] = torch.arange(first, last, dtype=source.dtype), loops.to(values.dtype)
        return SparseMatrix(starts + torch.arange(count + 1), columns, all_values, shape, once)

    def _counted(self, first: int, last: int, precision: torch.dtype, weighted: bool = True) -> Tensor:
        """Return how much each edge into some nodes counts: its weight, for all those that it stands for."""
        places = slice(int(self.edges.starts[first]), int(self.edges.starts[last]))
        weights = self.edges.weights if weighted else None
        values = torch.ones(places.stop - places.start) if weights is None else weights[places]
        return values.to(precision) if self.sample is None else self.sample.counts[places] * values


def _means(adjacency: Adjacency, first: int, last: int, target: Tensor, precision: torch.dtype) -> Tensor:
    if not adjacency.is_weighted:
        counts = adjacency.edges.starts[first : last + 1].diff()  # of the sampled edges, if they were sampled
        return torch.repeat_interleave(1.0 / counts.float(), counts)
    values = adjacency._counted(first, last, precision) / adjacency.in_weight.to(precision)[target]
    return values.nan_to_num(nan=0.0)  # 0 / 0


def _ends(edges: Edges, first: int, last: int) -> tuple[Tensor, Tensor]:
    """Return sources and targets of the edges into some nodes."""
    edges.check(first, last)
    return edges.sources[int(edges.starts[first]) : int(edges.starts[last])], edges.targets(first, last)


def _weights(edges: Edges, first: int, last: int) -> Tensor:
    """Return the weights of the edges into some nodes, float64."""
    assert edges.weights is not None
    return edges.weights[int(edges.starts[first]) : int(edges.starts[last])].double()


def _row_sums(edges: Edges, first: int, last: int, values: Tensor) -> Tensor:
    """Return the sums of values of the edges into some nodes."""
    row = torch.repeat_interleave(torch.arange(last - first), edges.starts[first : last + 1].diff())
    return torch.bincount(row, values, minlength=last - first)


class LayerEdges:
    """Operators of sampled edges for one layer: the rows whose latents the following layers need."""

    def __init__(self, adjacency: Adjacency, rows: int, columns: int) -> None:
        self.adjacency, self.num_rows, self.num_columns = adjacency, rows, columns

    def matrix(self, name: str) -> SparseMatrix:
        return top_rows(self.adjacency.matrix(name), self.num_rows, self.num_columns)


AnyEdges: TypeAlias = Adjacency | LayerEdges


def drop_edges(edges: Adjacency, probability: float, generator: torch.Generator | None = None) -> Adjacency:
    """Return the edges without a random part of them, each direction independently.

    Means and sums are over the edges that are left, which count for the others in sums. The first edges of a graph are
    drawn alike whatever edges come after them.

    Args:
        edges: All edges.
        probability: Probability of leaving out an edge, below 1.
        generator: On the CPU; None: torch's global one.
    """
    keep = torch.rand(edges.edges.num_edges, generator=generator) >= probability
    edge_index = None if edges._edge_index is None else edges._edge_index[:, keep.to(edges._edge_index.device)]
    by_target = keep if edges._edge_index is None else keep[edges._order]
    starts = torch.cat([keep.new_zeros(1, dtype=torch.int64), by_target.cumsum(0)])[edges.edges.starts.long()]
    weights = None if edges.edges.weights is None else edges.edges.weights[by_target]
    left = Edges(starts, edges.edges.sources[by_target], weights)
    sample, rest = edges.sample, 1.0 - probability
    if sample is None:
        return Adjacency(left, edge_index, share=edges.share * rest, device=edges.device)
    sample = sample._replace(counts=sample.counts[by_target] / rest)
    return Adjacency(left, edge_index, sample=sample, device=edges.device)
