"""Layers of graph neural networks, split into what nodes send along edges and what they compute from it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from .adjacency import Adjacency, AnyEdges
from .sparse import (
    SparseMatrix,
    call_by_rows,
    has_kernels,
    product_entries,
    sparse_product,
    top_rows,
    transposed_with,
)

Features: TypeAlias = Tensor | SparseMatrix
Output: TypeAlias = Tensor | tuple[Tensor, ...]  # of a head

SLOPE = 0.2  # of the leaky ReLU of attention, as in ``kernels``: that of PyG's layers


def linear(x: Features, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``x W^T + b`` for dense and sparse x."""
    if isinstance(x, Tensor):
        return nn.functional.linear(x, weight, bias)
    product = x @ weight.t()
    return product if bias is None else product.add_(bias)


def first_rows(x: Features, count: int) -> Features:
    """Return the first rows of features."""
    return x[:count] if isinstance(x, Tensor) else top_rows(x, count, x.shape[1])


def rows_of(x: Features, nodes: Tensor | slice, once: bool = False) -> Features:
    """Return features of some nodes, in float32 where they are stored with fewer bits; see ``SparseMatrix.once``."""
    if isinstance(x, Tensor):
        rows = x[nodes]
        return rows.float() if rows.dtype == torch.float16 else rows
    chosen = x.rows(torch.arange(*nodes.indices(len(x))) if isinstance(nodes, slice) else nodes, once)
    return chosen.map(Tensor.float) if chosen.values.dtype == torch.float16 else chosen


class MessageLayer(nn.Module, ABC):
    """A layer that computes ``receive(A send(x), x)``, where ``send`` is a product with a matrix.

    A subclass names its operator A, see ``Adjacency``. ``A (X W)`` in place of ``(A X) W`` is the same
    product, and far less work when features are wide; on sampled neighbourhoods it is the other way round. Large graphs
    are computed some rows at a time.
    """

    operator: str

    @abstractmethod
    def send(self, x: Features, columns: slice = slice(None)) -> Tensor:
        """Return what goes along the edges, ``x W^T`` ``[N, out_channels]``, or some columns of it."""

    @abstractmethod
    def receive(self, received: Tensor, x: Features) -> Tensor:
        """Return the latents of nodes from ``A send(x)`` and x at these nodes; may work in place."""

    def forward(self, x: Features, edges: AnyEdges) -> Tensor:
        operator: SparseMatrix = edges.matrix(self.operator)
        rows, columns = operator.shape
        # Sampled neighbours outnumber the nodes they are drawn for: there (A X) W is less work than A (X W).
        near: Features | None = None
        if 2 * rows <= columns:
            if isinstance(x, Tensor):
                near = operator @ x
            elif has_kernels(x.device) and product_entries(operator, x) <= x.nnz + operator.nnz:  # work
                near = sparse_product(operator, x)
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

    def receive(self, received: Tensor, x: Features) -> Tensor:
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

    def receive(self, received: Tensor, x: Features) -> Tensor:
        return received.add_(linear(x, self.lin_r.weight, self.lin_l.bias))


class GINLayer(MessageLayer):
    """Xu et al.'s layer with eps = 0: a perceptron of the sum over a node and its in-neighbours; equal to PyG's.

    The perceptron's first product is computed before nodes are summed, so that wide and sparse features are never
    carried along edges.
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

    def receive(self, received: Tensor, x: Features) -> Tensor:
        out: Tensor = self.second(received.add_(self.first.bias).relu_())
        return out


class GATLayer(nn.Module):
    """Velickovic et al.'s attention with one head; parameters named as in PyG's ``GATConv``.

    In training, weights of edges are dropped, too, as in PyG; duplicates of an edge are dropped together.
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

    def forward(self, x: Features, edges: AnyEdges) -> Tensor:
        looped, dropout = edges.matrix("looped"), self.dropout if self.training else 0.0
        sent = linear(x, self.lin.weight)
        targets, sources = linear(sent[: len(looped)], self.att_dst[0]), linear(sent, self.att_src[0])
        return attend(looped, targets, sources, sent.new_ones(1), sent, dropout).add_(self.bias)


class GATv2Layer(nn.Module):
    """Brody et al.'s attention with one head, whose scores are a perceptron's; named as in PyG's ``GATv2Conv``.

    In training, weights of edges are dropped, too, as in PyG; duplicates of an edge are dropped together.
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

    def forward(self, x: Features, edges: AnyEdges) -> Tensor:
        looped, dropout = edges.matrix("looped"), self.dropout if self.training else 0.0
        sent = linear(x, self.lin_l.weight, self.lin_l.bias)
        targets = linear(first_rows(x, len(looped)), self.lin_r.weight, self.lin_r.bias)
        return attend(looped, targets, sent, self.att[0, 0], sent, dropout).add_(self.bias)


class LinearLayer(nn.Module):
    """A linear layer without message passing."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.lin = nn.Linear(in_channels, out_channels)

    def reset_parameters(self) -> None:
        self.lin.reset_parameters()

    def forward(self, x: Features, edges: Adjacency) -> Tensor:
        return linear(x, self.lin.weight, self.lin.bias)


def attend(
    edges: SparseMatrix, targets: Tensor, sources: Tensor, att: Tensor, sent: Tensor, dropout: float = 0.0
) -> Tensor:
    """Return ``sum_j w_ij sent_j``, with w_i the softmax of ``att . leaky_relu(targets_i + sources_j)`` over in-edges.

    Differentiable in all four tensors. On the CPU it is compiled, and stores one number per edge, its weight.

    Args:
        edges: Row i has an entry for each j that it attends to: how often j counts ``[R, C]``.
        targets: Terms of the rows ``[R, S]``.
        sources: Terms of the columns ``[C, S]``.
        att: Weights of their sum ``[S]``.
        sent: Vectors of the columns ``[C, F]``.
        dropout: Probability of dropping a weight; the others are scaled up.
    """
    factors = None
    if dropout > 0.0:
        factors = torch.nn.functional.dropout(torch.ones(edges.nnz, dtype=sent.dtype, device=sent.device), dropout)
    if has_kernels(sent.device):
        received: Tensor = _Attention.apply(targets, sources, att, sent, edges, factors)  # type: ignore[no-untyped-call]
        return received
    return _attend_by_edges(edges, targets, sources, att, sent, factors)


def _attend_by_edges(
    edges: SparseMatrix, targets: Tensor, sources: Tensor, att: Tensor, sent: Tensor, factors: Tensor | None
) -> Tensor:
    """``attend`` in plain torch, with a row of numbers for each edge."""
    rows, columns = edges.row_numbers(), edges.columns.long()
    scores = torch.nn.functional.leaky_relu(targets[rows] + sources[columns], SLOPE) @ att
    most = scores.detach().new_zeros(len(edges)).scatter_reduce(0, rows, scores.detach(), "amax", include_self=False)
    weights = edges.values.to(scores.dtype) * (scores - most[rows]).exp()
    weights = weights / weights.new_zeros(len(edges)).index_add(0, rows, weights)[rows]
    if factors is not None:
        weights = weights * factors
    return sent.new_zeros(len(edges), sent.shape[1]).index_add(0, rows, weights[:, None] * sent[columns])


class _Attention(torch.autograd.Function):
    """``attend`` by compiled kernels.

    With P_ij the gradient of a score, that of ``targets_i`` is ``att * sum_j P_ij leaky'(targets_i + sources_j)``, and
    that of ``sources_j`` the same sum over i. As ``leaky(z) = leaky'(z) z``, both sums give the gradient of ``att``,
    too.
    """

    @staticmethod
    def forward(
        ctx: Any,
        targets: Tensor,
        sources: Tensor,
        att: Tensor,
        sent: Tensor,
        edges: SparseMatrix,
        factors: Tensor | None,
    ) -> Tensor:
        from .kernels import weigh_rows

        weights = sent.new_empty(edges.nnz)
        call_by_rows(weigh_rows, edges, len(att), edges.values.to(sent.dtype), targets, sources, att, weights)
        factored = weights if factors is None else weights * factors
        ctx.edges = edges
        ctx.save_for_backward(targets, sources, att, sent, weights, factored)
        return edges.with_values(factored) @ sent

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, None, None]:
        from .kernels import pull_rows

        edges: SparseMatrix = ctx.edges
        targets, sources, att, sent, weights, factored = ctx.saved_tensors
        pulls = torch.empty_like(weights)
        call_by_rows(pull_rows, edges, sent.shape[1], gradient, sent, weights, factored, pulls)
        for_targets = _slope_sums(edges.with_values(pulls), targets, sources)
        for_sources = _slope_sums(transposed_with(edges, pulls), sources, targets)
        for_att = (for_targets * targets).sum(0) + (for_sources * sources).sum(0)
        return for_targets * att, for_sources * att, for_att, transposed_with(edges, factored) @ gradient, None, None


def _slope_sums(pulls: SparseMatrix, targets: Tensor, sources: Tensor) -> Tensor:
    from .kernels import slope_rows

    out = targets.new_empty(targets.shape)
    call_by_rows(slope_rows, pulls, targets.shape[1], pulls.values, targets, sources, out)
    return out
