"""The edges of a graph, and the normalised operators that networks multiply by."""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from .sparse import SparseMatrix


class Degrees(Protocol):
    """What operators on drawn edges must know of all edges."""

    @property
    def in_weight(self) -> Tensor: ...

    @property
    def loop_weight(self) -> Tensor: ...

    @property
    def degree(self) -> Tensor: ...


class Sample(NamedTuple):
    """Where the edges of an ``Adjacency`` were drawn from, so that sums and means over them are unbiased.

    Args:
        larger: The edges that were drawn from.
        nodes: The numbers that the nodes have there ``[N]``; those that neighbours were drawn for come first, then
            their neighbours, hop by hop.
        counts: How many of its edges each drawn one stands for ``[E]``.
        sizes: How many of the nodes are at most 0, 1, 2 .. hops away from those that neighbours were drawn for.
    """

    larger: Degrees
    nodes: Tensor
    counts: Tensor
    sizes: tuple[int, ...]


class LayerEdges:
    """What one layer multiplies by, of drawn edges: the rows of those nodes whose latents the layers behind it need.

    Args:
        edges: The drawn edges.
        rows: How many of their nodes, the first ones, the layer computes.
        columns: How many of them it reads.
    """

    def __init__(self, edges: Adjacency, rows: int, columns: int) -> None:
        self.edges, self.rows, self.columns = edges, rows, columns

    @property
    def mean(self) -> SparseMatrix:
        """See ``Adjacency.mean``."""
        return self.edges.mean.top(self.rows, self.columns)

    @property
    def normalized(self) -> SparseMatrix:
        """See ``Adjacency.normalized``."""
        return self.edges.normalized.top(self.rows, self.columns)

    @property
    def sum(self) -> SparseMatrix:
        """See ``Adjacency.sum``."""
        return self.edges.sum.top(self.rows, self.columns)

    @property
    def looped(self) -> SparseMatrix:
        """See ``Adjacency.looped``."""
        return self.edges.looped.top(self.rows, self.columns)


class Adjacency:
    """The edges of a graph, and the normalised operators made of them, each once and only when asked for.

    Rows are targets: ``A[target, source]``. An edge that stands there twice counts twice.

    Args:
        edge_index: Node numbers ``[2, E]``, source above target.
        num_nodes: How many nodes there are.
        edge_weight: A number ``[E]`` for each edge, not negative; None: all count the same.
        sample: Given if the edges were drawn from those of a larger graph.
        kept: The share of the graph's edges that these are, of which each then counts for more in sums.
    """

    def __init__(
        self,
        edge_index: Tensor,
        num_nodes: int,
        edge_weight: Tensor | None = None,
        sample: Sample | None = None,
        kept: float = 1.0,
    ) -> None:
        self.edge_index, self.num_nodes, self.edge_weight = edge_index, num_nodes, edge_weight
        self.sample, self.kept = sample, kept

    def to(self, device: torch.device | str) -> Adjacency:
        """The edges on another device.

        Args:
            device: As torch names it.
        """
        weight = None if self.edge_weight is None else self.edge_weight.to(device)
        return Adjacency(self.edge_index.to(device), self.num_nodes, weight, self.sample, self.kept)

    def before(self, layers: int) -> Adjacency | LayerEdges:
        """What a layer multiplies by that some more layers follow: of drawn edges, those that it needs.

        Args:
            layers: How many layers follow.
        """
        if self.sample is None:
            return self
        sizes = self.sample.sizes
        rows, columns = (sizes[min(hops, len(sizes) - 1)] for hops in (layers, layers + 1))
        return LayerEdges(self, rows, columns)

    @cached_property
    def mean(self) -> SparseMatrix:
        """The average over in-neighbours, weighted where edges have weights.

        The row of a node without any, or whose in-edges have no weight, is empty or zero.
        """
        source, target = self.edge_index.cpu()
        if self.edge_weight is None:
            counts = torch.bincount(target, minlength=self.num_nodes)
            values = (1.0 / counts.float())[target]
            if self.sample is not None and bool((target.diff() >= 0).all()):  # as they were drawn, row by row
                ends = torch.cat([counts.new_zeros(1), counts.cumsum(0)]).int()
                matrix = SparseMatrix(ends, source.int(), values, (self.num_nodes, self.num_nodes), once=True)
                return matrix.to(self.edge_index.device)
            return self._operator(source, target, values)
        values = self._drawn(self.edge_weight) / self.in_weight.cpu().float()[target]
        return self._operator(source, target, values.nan_to_num(nan=0.0))  # 0 / 0

    @cached_property
    def in_weight(self) -> Tensor:
        """The sum of the weights of each node's in-edges, in float64; their number where they have none."""
        if self.sample is not None:
            return self.sample.larger.in_weight[self.sample.nodes]
        weights = None if self.edge_weight is None else self.edge_weight.double()
        return torch.bincount(self.edge_index[1], weights, self.num_nodes)

    @cached_property
    def loop_weight(self) -> Tensor:
        """The weight of each node's self-loop, 1 where it has none; of several loops the largest."""
        if self.sample is not None:
            return self.sample.larger.loop_weight[self.sample.nodes]
        ones = torch.ones(self.num_nodes, device=self.edge_index.device)
        if self.edge_weight is None:
            return ones
        source, target = self.edge_index
        loops = source == target
        return ones.scatter_reduce(0, target[loops], self.edge_weight[loops], "amax", include_self=False)

    @cached_property
    def degree(self) -> Tensor:
        """In-edges of each node, or the sum of their weights, with one self-loop whatever loops the graph has."""
        if self.sample is not None:
            return self.sample.larger.degree[self.sample.nodes]
        source, target = self.edge_index
        others = source != target
        if self.edge_weight is None:
            return torch.bincount(target[others], minlength=self.num_nodes) + 1
        return torch.bincount(target[others], self.edge_weight[others].double(), self.num_nodes) + self.loop_weight

    @cached_property
    def normalized(self) -> SparseMatrix:
        """``D^-1/2 (A + I) D^-1/2`` with one self-loop a node; D sums up in-edges.

        Without weights it is of weight 1 whatever loops the graph has; with weights, as PyG has it, that of the graph's
        loop, and 1 for a node without.
        """
        source, target = self.edge_index.cpu()
        others, loops = source != target, torch.arange(self.num_nodes)
        scale = self.degree.cpu().float().rsqrt()
        own = scale.square()
        if self.edge_weight is not None:
            scale = scale.masked_fill(scale.isinf(), 0.0)  # a node all of whose edges have no weight
            own = scale.square() * self.loop_weight.cpu()
        values = scale[source] * scale[target] * self._drawn(self.edge_weight)
        source, target = torch.cat([source[others], loops]), torch.cat([target[others], loops])
        return self._operator(source, target, torch.cat([values[others], own]))

    @cached_property
    def sum(self) -> SparseMatrix:
        """``A + I``: the sum over a node and its in-neighbours, weighted where edges have weights.

        A node that has a self-loop counts twice, as in PyG's GIN.
        """
        source, target = self.edge_index.cpu()
        values = torch.ones(len(source)) * self._drawn(self.edge_weight) / self.kept
        own = torch.arange(self.num_nodes)
        values = torch.cat([values.float(), torch.ones(self.num_nodes)])
        return self._operator(torch.cat([source, own]), torch.cat([target, own]), values)

    @cached_property
    def looped(self) -> SparseMatrix:
        """How often each in-neighbour counts, with one self-loop a node whatever loops the graph has; not its weight.

        A drawn edge counts for all those that it stands for.
        """
        source, target = self.edge_index.cpu()
        others, own = source != target, torch.arange(self.num_nodes)
        values = (torch.ones(len(source)) * self._drawn(None) / self.kept).float()
        source, target = torch.cat([source[others], own]), torch.cat([target[others], own])
        return self._operator(source, target, torch.cat([values[others], torch.ones(self.num_nodes)]))

    def _drawn(self, weights: Tensor | None) -> Tensor | float:
        """What each edge counts: its weight, for all those that it stands for."""
        values: Tensor | float = 1.0 if weights is None else weights.cpu()
        return values if self.sample is None else self.sample.counts.cpu() * values

    def _operator(self, source: Tensor, target: Tensor, values: Tensor) -> SparseMatrix:
        drawn = self.sample is not None
        matrix = SparseMatrix.from_coo(target, source, values, (self.num_nodes, self.num_nodes), once=drawn)
        return matrix.to(self.edge_index.device)
