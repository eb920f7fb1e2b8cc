"""Dirichlet distributions over classes: evidence from densities or labelled neighbours, and their losses."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .adjacency import Adjacency
from .layers import Features
from .sparse import SparseMatrix
from .training import Classifier

LARGEST = 30.0  # bound of the absolute logarithm of evidence, as in the original
TINY = 1e-12  # keeps the gradient of a distance finite at a flow's centre
WORDS = 8  # of 64 labelled nodes each, that are followed at a time: a cache line for each node
FAR = 5.0  # bandwidths after which a labelled node counts nothing: less than 4e-6 of one at distance 0


class RadialFlows(nn.Module):
    """One density per class: a standard normal seen through radial flows (Rezende and Mohamed 2015).

    A layer moves points away from its centre, or towards it: ``x + beta h (x - centre)`` with ``h = 1 / (alpha + r)``
    and r the distance from the centre. It is invertible, as alpha is above 0 and beta above -alpha.

    Only distances matter, and a moved point ``l x + (1 - l) y`` has the squared distance
    ``l |x - c|^2 + (1 - l) |y - c|^2 - l (1 - l) |x - y|^2`` from c. So squared distances to the centres of later
    layers and to the origin are computed, and not points.

    Args:
        num_classes: C.
        dimensions: Dimensions of the space.
        length: Number of layers.
    """

    def __init__(self, num_classes: int, dimensions: int, length: int) -> None:
        super().__init__()
        self.centres = nn.Parameter(torch.empty(length, num_classes, dimensions))
        self.alphas = nn.Parameter(torch.empty(length, num_classes))
        self.betas = nn.Parameter(torch.empty(length, num_classes))
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -(dimensions**-0.5), dimensions**-0.5)

    def forward(self, z: Tensor) -> Tensor:
        """Return log densities ``[N, C]`` of points ``[N, D]``."""
        _, classes, dimensions = self.centres.shape
        places = torch.cat([self.centres, self.centres.new_zeros(1, classes, dimensions)]).transpose(0, 1)
        between = (places[:, :, None] - places[:, None]).square().sum(-1)  # [C, layers + 1, layers + 1]
        squares = self._squares(z, places)  # of the distances to all centres, and to the origin [layers + 1, N, C]
        log_volume = z.new_zeros(())
        alphas = nn.functional.softplus(self.alphas)
        betas = nn.functional.softplus(self.betas) - alphas
        for layer, (alpha, beta) in enumerate(zip(alphas, betas, strict=True)):
            square, others = squares[0], squares[1:]
            r = square.clamp_min(TINY).sqrt()
            h = 1.0 / (alpha + r)
            stretch = beta * h
            log_volume = log_volume + (dimensions - 1) * stretch.log1p() + (stretch * (1.0 - r * h)).log1p()
            factor = 1.0 + stretch
            squares = torch.addcmul(
                factor * others, stretch, factor * square - between[:, layer, layer + 1 :].t()[:, None]
            )
        return log_volume - 0.5 * (squares[0] + dimensions * math.log(2.0 * math.pi))

    @staticmethod
    def _squares(z: Tensor, places: Tensor) -> Tensor:
        """Return squared distances of points to the places of each class ``[layers + 1, N, C]``."""
        flat = places.transpose(0, 1).reshape(-1, places.shape[-1])
        squares = z.square().sum(1)[:, None] - 2.0 * z @ flat.t() + flat.square().sum(1)
        return squares.reshape(len(z), places.shape[1], places.shape[0]).transpose(0, 1).contiguous()


class PosteriorHead(nn.Module):
    """Log evidence of a node's latent for each class: ``log p(z | c) + log p(c) + scale``.

    Args:
        in_channels: Width of the last latent.
        num_classes: C.
        dimensions: Dimensions of the space of densities.
        length: Layers of a flow.
    """

    log_prior: Tensor

    def __init__(self, in_channels: int, num_classes: int, dimensions: int, length: int) -> None:
        super().__init__()
        self.lin = nn.Linear(in_channels, dimensions)
        self.flows = RadialFlows(num_classes, dimensions, length)
        self.register_buffer("log_prior", torch.full((num_classes,), -math.log(num_classes)))
        self.scale = 0.5 * dimensions * math.log(4.0 * math.pi)  # so that evidence does not vanish with many dimensions

    def forward(self, latent: Tensor) -> Tensor:
        """Return log evidence ``[N, C]`` of the last latent ``[N, D]``."""
        log_joint: Tensor = self.flows(self.lin(latent)) + self.log_prior
        return (log_joint + self.scale).clamp(-LARGEST, LARGEST)


class PosteriorClassifier(Classifier):
    """A backbone, a ``PosteriorHead``, and personalised PageRank of the evidence.

    Args:
        backbone: Computes the latents z1 .. zL.
        head: A ``PosteriorHead``.
        hops: Message-passing layers of the backbone.
        teleport: Teleport probability: the share of its own evidence that a node keeps in a step.
        steps: Steps of the power iteration.
    """

    head: PosteriorHead

    def __init__(self, backbone: nn.Module, head: nn.Module, hops: int, teleport: float, steps: int) -> None:
        super().__init__(backbone, head, hops)
        self.teleport, self.steps = teleport, steps

    def forward(self, x: Features, edges: Adjacency) -> Tensor:
        """Return the evidence ``[N, C]``."""
        return self.diffused(self.head(self.backbone(x, edges)[-1]).exp(), edges)

    def diffused(self, evidence: Tensor, edges: Adjacency) -> Tensor:
        """Iterate ``b <- teleport b0 + (1 - teleport) D^-1/2 (A + I) D^-1/2 b`` from evidence b0 ``[N, C]``."""
        restart = self.teleport * evidence
        for _ in range(self.steps):
            evidence = restart + (1.0 - self.teleport) * (edges.matrix("normalized") @ evidence)
        return evidence

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Parameter groups: weight decay is for the encoder, flows have none."""
        encoder = [*self.backbone.parameters(), *self.head.lin.parameters()]
        return [{"params": encoder}, {"params": list(self.head.flows.parameters()), "weight_decay": 0.0}]


def expected_cross_entropy(alpha: Tensor, target: Tensor) -> Tensor:
    """Return the expected cross entropy of p ~ Dir(alpha): ``psi(alpha_0) - psi(alpha_y)``.

    Args:
        alpha: Concentrations ``[N, C]``.
        target: Classes ``[N]``.
    """
    of_target = alpha.gather(1, target[:, None]).squeeze(1)
    return torch.digamma(alpha.sum(-1)) - torch.digamma(of_target)


def dirichlet_entropy(alpha: Tensor) -> Tensor:
    """Return the differential entropy of Dir(alpha) for each node, in nats.

    Args:
        alpha: Concentrations ``[N, C]``, better in float64: large ones cancel.
    """
    total = alpha.sum(-1)
    log_beta = torch.lgamma(alpha).sum(-1) - torch.lgamma(total)
    spread = (total - alpha.shape[1]) * torch.digamma(total)
    return log_beta + spread - ((alpha - 1.0) * torch.digamma(alpha)).sum(-1)


def kernel_evidence(
    edges: SparseMatrix, nodes: Tensor, labels: Tensor, num_classes: int, bandwidth: float = 1.0
) -> Tensor:
    """Return the sum over each class's labelled nodes of a Gaussian kernel of the graph distance to them ``[N, C]``.

    ``exp(-d^2 / (2 s^2)) / (s sqrt(2 pi))`` for a shortest path of d edges, up to ``FAR`` bandwidths s.

    Args:
        edges: The graph, symmetric ``[N, N]``.
        nodes: Labelled nodes.
        labels: Their classes.
        num_classes: C.
        bandwidth: s.
    """
    from .kernels import reach

    distances = np.arange(int(FAR * bandwidth) + 1)
    weights = np.exp(-0.5 * (distances / bandwidth) ** 2) / (bandwidth * math.sqrt(2.0 * math.pi))
    evidence = np.zeros((len(edges), num_classes))
    words = [word for c in range(num_classes) for word in torch.split(nodes[labels == c], 64) if len(word)]
    classes = np.concatenate([np.full(-(-int((labels == c).sum()) // 64), c) for c in range(num_classes)])
    for first in range(0, len(words), WORDS):
        front = np.zeros((len(edges), len(words[first : first + WORDS])), dtype=np.uint64)
        for column, word in enumerate(words[first : first + WORDS]):
            front[word.numpy(), column] = np.uint64(1) << np.arange(len(word), dtype=np.uint64)
        chosen = classes[first : first + WORDS]
        reach(edges.starts.numpy(), edges.columns.numpy(), front, chosen, weights, evidence)
    return torch.from_numpy(evidence)


def squared_risk(alpha: Tensor, target: Tensor) -> Tensor:
    """Return the expected squared error of p ~ Dir(alpha) for each node.

    ``sum_c (y_c - p_c)^2 + p_c (1 - p_c) / (alpha_0 + 1)`` with ``p = alpha / alpha_0``.

    Args:
        alpha: Concentrations ``[N, C]``.
        target: Classes ``[N]``.
    """
    total = alpha.sum(-1, keepdim=True)
    p = alpha / total
    one_hot = torch.nn.functional.one_hot(target, alpha.shape[1])
    return ((one_hot - p).square() + p * (1.0 - p) / (total + 1.0)).sum(-1)


def dirichlet_divergence(alpha: Tensor, prior: Tensor) -> Tensor:
    """Return KL(Dir(alpha) || Dir(prior)) for each node, in nats.

    Args:
        alpha: Concentrations ``[N, C]``, better in float64: large ones cancel.
        prior: Concentrations of the other distribution.
    """
    total, other = alpha.sum(-1), prior.sum(-1)
    log_beta = torch.lgamma(total) - torch.lgamma(alpha).sum(-1) - torch.lgamma(other) + torch.lgamma(prior).sum(-1)
    return log_beta + ((alpha - prior) * (torch.digamma(alpha) - torch.digamma(total)[:, None])).sum(-1)
