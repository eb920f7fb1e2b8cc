"""Attention: what nodes receive along their edges, weighted by a softmax of scores over the in-edges of each."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .sparse import SparseMatrix, by_rows, has_kernels

SLOPE = 0.2  # of the leaky ReLU: that of PyG's layers


def attend(edges: SparseMatrix, own: Tensor, others: Tensor, att: Tensor, sent: Tensor, dropout: float = 0.0) -> Tensor:
    """``sum_j w_ij sent_j`` for each row i: its weights are the softmax of ``att . leaky_relu(own_i + others_j)``.

    Differentiable in all four tensors. On the CPU it is compiled, and no number of an edge is kept but its weight.

    Args:
        edges: Row i has an entry for each j that it attends to, which is how often j counts ``[R, C]``.
        own: What a row says of itself ``[R, S]``.
        others: What a column says of itself ``[C, S]``.
        att: The weights of what they say together ``[S]``.
        sent: What a column sends ``[C, F]``.
        dropout: Probability of dropping a weight; those that are kept count for the others.
    """
    factors = None
    if dropout > 0.0:
        factors = torch.nn.functional.dropout(torch.ones(edges.nnz, dtype=sent.dtype, device=sent.device), dropout)
    if has_kernels(sent.device):
        received: Tensor = _Attention.apply(own, others, att, sent, edges, factors)  # type: ignore[no-untyped-call]
        return received
    return _attend_by_edges(edges, own, others, att, sent, factors)


def _attend_by_edges(
    edges: SparseMatrix, own: Tensor, others: Tensor, att: Tensor, sent: Tensor, factors: Tensor | None
) -> Tensor:
    """The same in plain torch, with a row of numbers for each edge."""
    rows, columns = edges.row_numbers(), edges.columns.long()
    scores = torch.nn.functional.leaky_relu(own[rows] + others[columns], SLOPE) @ att
    most = scores.detach().new_zeros(len(edges)).scatter_reduce(0, rows, scores.detach(), "amax", include_self=False)
    weights = edges.values.to(scores.dtype) * (scores - most[rows]).exp()
    weights = weights / weights.new_zeros(len(edges)).index_add(0, rows, weights)[rows]
    if factors is not None:
        weights = weights * factors
    return sent.new_zeros(len(edges), sent.shape[1]).index_add(0, rows, weights[:, None] * sent[columns])


class _Attention(torch.autograd.Function):
    """``attend`` by compiled kernels.

    With P_ij the gradient of a score, that of ``own_i`` is ``att * sum_j P_ij leaky'(own_i + others_j)``, and that of
    ``others_j`` the same sum over i. As ``leaky(z) = leaky'(z) z``, both sums give the gradient of ``att``, too.
    """

    @staticmethod
    def forward(
        ctx: Any, own: Tensor, others: Tensor, att: Tensor, sent: Tensor, edges: SparseMatrix, factors: Tensor | None
    ) -> Tensor:
        from ._attention import weigh_rows

        weights = sent.new_empty(edges.nnz)
        by_rows(weigh_rows, edges, len(att), edges.values.to(sent.dtype), own, others, att, weights)
        kept = weights if factors is None else weights * factors
        ctx.edges = edges
        ctx.save_for_backward(own, others, att, sent, weights, kept)
        return edges.with_values(kept) @ sent

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, None, None]:
        from ._attention import pull_rows

        edges: SparseMatrix = ctx.edges
        own, others, att, sent, weights, kept = ctx.saved_tensors
        pulls = torch.empty_like(weights)
        by_rows(pull_rows, edges, sent.shape[1], gradient, sent, weights, kept, pulls)
        mine = _slope_sums(edges.with_values(pulls), own, others)
        theirs = _slope_sums(edges.transposed_with(pulls), others, own)
        for_att = (mine * own).sum(0) + (theirs * others).sum(0)
        return mine * att, theirs * att, for_att, edges.transposed_with(kept) @ gradient, None, None


def _slope_sums(pulls: SparseMatrix, own: Tensor, others: Tensor) -> Tensor:
    from ._attention import slope_rows

    out = own.new_empty(own.shape)
    by_rows(slope_rows, pulls, own.shape[1], pulls.values, own, others, out)
    return out
