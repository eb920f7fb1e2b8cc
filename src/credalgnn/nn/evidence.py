"""Dirichlet evidence: what labelled nodes near by say of a node, and the losses that train a network to say it."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from .sparse import SparseMatrix

WORDS = 8  # of 64 labelled nodes each, that are followed at a time: a line of the cache for each node
FAR = 5.0  # bandwidths after which a labelled node says nothing: less than 4e-6 of what one in the place would say


def kernel_evidence(
    edges: SparseMatrix, nodes: Tensor, labels: Tensor, num_classes: int, bandwidth: float = 1.0
) -> Tensor:
    """The sum, over the labelled nodes of each class, of a Gaussian kernel of the number of edges to them ``[N, C]``.

    ``exp(-d^2 / (2 s^2)) / (s sqrt(2 pi))`` for a shortest path of d edges, up to ``FAR`` bandwidths s.

    Args:
        edges: The graph, symmetric ``[N, N]``.
        nodes: Labelled nodes.
        labels: Their classes.
        num_classes: C.
        bandwidth: s.
    """
    from ._reach import reach

    distances = np.arange(int(FAR * bandwidth) + 1)
    weights = np.exp(-0.5 * (distances / bandwidth) ** 2) / (bandwidth * math.sqrt(2.0 * math.pi))
    found = np.zeros((len(edges), num_classes))
    words = [word for c in range(num_classes) for word in torch.split(nodes[labels == c], 64) if len(word)]
    classes = np.concatenate([np.full(-(-int((labels == c).sum()) // 64), c) for c in range(num_classes)])
    for first in range(0, len(words), WORDS):
        front = np.zeros((len(edges), len(words[first : first + WORDS])), dtype=np.uint64)
        for column, word in enumerate(words[first : first + WORDS]):
            front[word.numpy(), column] = np.uint64(1) << np.arange(len(word), dtype=np.uint64)
        chosen = classes[first : first + WORDS]
        reach(edges.starts.numpy(), edges.columns.numpy(), front, chosen, weights, found)
    return torch.from_numpy(found)


def squared_risk(alpha: Tensor, target: Tensor) -> Tensor:
    """The squared error that a distribution drawn from Dir(alpha) has on average, for each node.

    ``sum_c (y_c - p_c)^2 + p_c (1 - p_c) / (alpha_0 + 1)`` with ``p = alpha / alpha_0``.

    Args:
        alpha: Concentrations ``[N, C]``.
        target: Classes ``[N]``.
    """
    total = alpha.sum(-1, keepdim=True)
    p = alpha / total
    wanted = torch.nn.functional.one_hot(target, alpha.shape[1])
    return ((wanted - p).square() + p * (1.0 - p) / (total + 1.0)).sum(-1)


def dirichlet_divergence(alpha: Tensor, prior: Tensor) -> Tensor:
    """KL(Dir(alpha) || Dir(prior)), for each node, in nats.

    Args:
        alpha: Concentrations ``[N, C]``, better in float64: large ones cancel.
        prior: Those of the other distribution.
    """
    total, other = alpha.sum(-1), prior.sum(-1)
    log_beta = torch.lgamma(total) - torch.lgamma(alpha).sum(-1) - torch.lgamma(other) + torch.lgamma(prior).sum(-1)
    return log_beta + ((alpha - prior) * (torch.digamma(alpha) - torch.digamma(total)[:, None])).sum(-1)
