"""Layers of graph neural networks: what a node sends along its edges, and what becomes of what it receives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TypeAlias

import torch
from torch import Tensor, nn

from .adjacency import Adjacency, LayerEdges
from .attention import attend
from .sparse import SparseMatrix, has_kernels

Features: TypeAlias = Tensor | SparseMatrix


def linear(x: Features, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``x W^T + b`` for dense and sparse x."""
    if isinstance(x, Tensor):
        return nn.functional.linear(x, weight, bias)
    product = x @ weight.t()
    return product if bias is None else product.add_(bias)


def first_rows(x: Features, count: int) -> Features:
    """The first rows of features.

    Args:
        x: Dense or sparse.
        count: How many.
    """
    return x[:count] if isinstance(x, Tensor) else x.top(count, x.shape[1])


def rows_of(x: Features, nodes: Tensor | slice, once: bool = False) -> Features:
    """Features of some nodes, in float32 where they are kept with fewer bits.

    Args:
        x: Of all nodes.
        nodes: Their numbers, or a stretch of them.
        once: See ``SparseMatrix``.
    """
    if isinstance(x, Tensor):
        rows = x[nodes]
        return rows.float() if rows.dtype == torch.float16 else rows
    chosen = x.rows(torch.arange(*nodes.indices(len(x))) if isinstance(nodes, slice) else nodes, once)
    return chosen.map(Tensor.float) if chosen.values.dtype == torch.float16 else chosen


class MessageLayer(nn.Module, ABC):
    """A layer that sends something along edges: ``receive(A send(x), x)``, where ``send`` is a product with a matrix.

    A subclass names its operator A, an attribute of ``Adjacency``. ``A (X W)`` in place of ``(A X) W`` is the same
    product, and far less work when features are wide; where neighbours were drawn it is the other way round. Whoever
    has no room for all nodes at once computes some rows at a time.
    """

    operator: str

    @abstractmethod
    def send(self, x: Features, columns: slice = slice(None)) -> Tensor:
        """What goes along the edges ``[N, out_channels]``: ``x W^T``.

        Args:
            x: Features or a latent.
            columns: Which of its columns; by default all.
        """

    @abstractmethod
    def receive(self, received: Tensor, own: Features) -> Tensor:
        """A node's latent, of what it has received and of what it was; may work in place.

        Args:
            received: ``A send(x)`` at some nodes.
            own: x at these nodes.
        """

    def forward(self, x: Features, edges: Adjacency | LayerEdges) -> Tensor:
        operator: SparseMatrix = getattr(edges, self.operator)
        rows, columns = operator.shape
        # Neighbours that were drawn are far more than who draws them: there (A X) W is less work than A (X W).
        near: Features | None = None
        if 2 * rows <= columns:
            if isinstance(x, Tensor):
                near = operator @ x
            elif has_kernels(x.device) and operator.entries_of_rows(x) <= x.nnz + operator.nnz:  # work
                near = operator.of_rows(x)
        received = operator @ self.send(x) if near is None else self.send(near)
        return self.receive(received, first_rows(x, rows))


class GCNLayer(MessageLayer):
    """Kipf and Welling's convolution; parameters named as in PyG's ``GCNConv``."""

    operator = "normalized"

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.lin = nn.Linear(in_channels, out_channels, bias=False)
        self.bias = nn.Parameter(torch.empty(out_channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.xavier_uniform_(self.lin.weight)
        nn.init.zeros_(self.bias)

    def send(self, x: Features, columns: slice = slice(None)) -> Tensor:
        return linear(x, self.lin.weight[columns])

    def receive(self, received: Tensor, own: Features) -> Tensor:
        return received.add_(self.bias)


class SAGELayer(MessageLayer):
    """GraphSAGE with the mean of in-neighbours; parameters named as in PyG's ``SAGEConv``."""

    operator = "mean"

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.lin_l = nn.Linear(in_channels, out_channels)
        self.lin_r = nn.Linear(in_channels, out_channels, bias=False)

    def reset_parameters(self) -> None:
        self.lin_l.reset_parameters()
        self.lin_r.reset_parameters()

    def send(self, x: Features, columns: slice = slice(None)) -> Tensor:
        return linear(x, self.lin_l.weight[columns])

    def receive(self, received: Tensor, own: Features) -> Tensor:
        return received.add_(linear(own, self.lin_r.weight, self.lin_l.bias))


class GINLayer(MessageLayer):
    """Xu et al.'s layer with eps = 0: a perceptron of the sum over a node and its in-neighbours; equal to PyG's.

    The perceptron's first product is made before nodes are summed, as everywhere here, so that wide and sparse features
    are never carried along edges.
    """

    operator = "sum"

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(in_channels, out_channels), nn.Linear(out_channels, out_channels)

    def reset_parameters(self) -> None:
        self.first.reset_parameters()
        self.second.reset_parameters()

    def send(self, x: Features, columns: slice = slice(None)) -> Tensor:
        return linear(x, self.first.weight[columns])

    def receive(self, received: Tensor, own: Features) -> Tensor:
        out: Tensor = self.second(received.add_(self.first.bias).relu_())
        return out


class GATLayer(nn.Module):
    """Velickovic et al.'s attention with one head; parameters named as in PyG's ``GATConv``.

    In training, weights of edges are dropped, too, as PyG does; an edge that stands there twice is dropped as one.
    """

    def __init__(self, in_channels: int, out_channels: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = dropout
        self.lin = nn.Linear(in_channels, out_channels, bias=False)
        self.att_src = nn.Parameter(torch.empty(1, 1, out_channels))
        self.att_dst = nn.Parameter(torch.empty(1, 1, out_channels))
        self.bias = nn.Parameter(torch.empty(out_channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for weight in (self.lin.weight, self.att_src.data[0], self.att_dst.data[0]):
            nn.init.xavier_uniform_(weight)
        nn.init.zeros_(self.bias)

    def forward(self, x: Features, edges: Adjacency | LayerEdges) -> Tensor:
        looped, dropout = edges.looped, self.dropout if self.training else 0.0
        sent = linear(x, self.lin.weight)
        own, others = linear(sent[: len(looped)], self.att_dst[0]), linear(sent, self.att_src[0])
        return attend(looped, own, others, sent.new_ones(1), sent, dropout).add_(self.bias)


class GATv2Layer(nn.Module):
    """Brody et al.'s attention with one head, whose scores are a perceptron's; named as in PyG's ``GATv2Conv``.

    In training, weights of edges are dropped, too, as PyG does; an edge that stands there twice is dropped as one.
    """

    def __init__(self, in_channels: int, out_channels: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = dropout
        self.lin_l, self.lin_r = nn.Linear(in_channels, out_channels), nn.Linear(in_channels, out_channels)
        self.att = nn.Parameter(torch.empty(1, 1, out_channels))
        self.bias = nn.Parameter(torch.empty(out_channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        bound = self.lin_l.in_features**-0.5
        for lin in (self.lin_l, self.lin_r):
            nn.init.xavier_uniform_(lin.weight)
            nn.init.uniform_(lin.bias, -bound, bound)
        nn.init.xavier_uniform_(self.att.data[0])
        nn.init.zeros_(self.bias)

    def forward(self, x: Features, edges: Adjacency | LayerEdges) -> Tensor:
        looped, dropout = edges.looped, self.dropout if self.training else 0.0
        sent = linear(x, self.lin_l.weight, self.lin_l.bias)
        own = linear(first_rows(x, len(looped)), self.lin_r.weight, self.lin_r.bias)
        return attend(looped, own, sent, self.att[0, 0], sent, dropout).add_(self.bias)


class LinearLayer(nn.Module):
    """A linear layer that looks at no neighbour."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.lin = nn.Linear(in_channels, out_channels)

    def reset_parameters(self) -> None:
        self.lin.reset_parameters()

    def forward(self, x: Features, edges: Adjacency) -> Tensor:
        return linear(x, self.lin.weight, self.lin.bias)
