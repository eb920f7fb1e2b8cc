"""Dirichlet distributions from densities in latent space: radial flows, their evidence, and its way along edges."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from .backbones import Adjacency, Features
from .rounds import Classifier

LARGEST = 30.0  # the logarithm of evidence stays between minus this and this, as in the original
TINY = 1e-12  # keeps the gradient of a distance finite at a flow's centre


class RadialFlows(nn.Module):
    """One density for each class: a standard normal seen through radial flows (Rezende and Mohamed 2015).

    A layer moves points away from its centre, or towards it: ``x + beta h (x - centre)`` with ``h = 1 / (alpha + r)``
    and r the distance from the centre. alpha is above 0 and beta above -alpha, so that it can be undone.

    Only distances matter, and a moved point ``l x + (1 - l) y`` has the squared distance
    ``l |x - c|^2 + (1 - l) |y - c|^2 - l (1 - l) |x - y|^2`` from c. So it is squared distances to the centres of later
    layers, and to the origin, that are followed, and not points.

    Args:
        num_classes: C.
        dimensions: Of the space.
        length: Layers.
    """

    def __init__(self, num_classes: int, dimensions: int, length: int) -> None:
        super().__init__()
        self.centres = nn.Parameter(torch.empty(length, num_classes, dimensions))
        self.alphas = nn.Parameter(torch.empty(length, num_classes))
        self.betas = nn.Parameter(torch.empty(length, num_classes))
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -(dimensions**-0.5), dimensions**-0.5)

    def forward(self, z: Tensor) -> Tensor:
        """Logarithms of the densities ``[N, C]``.

        Args:
            z: Points ``[N, D]``.
        """
        _, classes, dimensions = self.centres.shape
        places = torch.cat([self.centres, self.centres.new_zeros(1, classes, dimensions)]).transpose(0, 1)
        between = (places[:, :, None] - places[:, None]).square().sum(-1)  # [C, layers + 1, layers + 1]
        squares = self._squares(z, places)  # of the distances to all centres, and to the origin [layers + 1, N, C]
        log_volume = z.new_zeros(())
        alphas = nn.functional.softplus(self.alphas)
        betas = nn.functional.softplus(self.betas) - alphas
        for layer, (alpha, beta) in enumerate(zip(alphas, betas, strict=True)):
            own, others = squares[0], squares[1:]
            r = own.clamp_min(TINY).sqrt()
            h = 1.0 / (alpha + r)
            stretch = beta * h
            log_volume = log_volume + (dimensions - 1) * stretch.log1p() + (stretch * (1.0 - r * h)).log1p()
            factor = 1.0 + stretch
            squares = torch.addcmul(
                factor * others, stretch, factor * own - between[:, layer, layer + 1 :].t()[:, None]
            )
        return log_volume - 0.5 * (squares[0] + dimensions * math.log(2.0 * math.pi))

    @staticmethod
    def _squares(z: Tensor, places: Tensor) -> Tensor:
        """Squared distances of points to the places of each class ``[layers + 1, N, C]``."""
        flat = places.transpose(0, 1).reshape(-1, places.shape[-1])
        squares = z.square().sum(1)[:, None] - 2.0 * z @ flat.t() + flat.square().sum(1)
        return squares.reshape(len(z), places.shape[1], places.shape[0]).transpose(0, 1).contiguous()


class PosteriorHead(nn.Module):
    """Logarithms of the evidence that a node's own latent gives for each class: ``log p(z | c) + log p(c) + scale``.

    Args:
        in_channels: The width of the last latent.
        num_classes: C.
        dimensions: Of the space of densities.
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
        """Log evidence ``[N, C]``.

        Args:
            latent: The last latent ``[N, D]``.
        """
        log_joint: Tensor = self.flows(self.lin(latent)) + self.log_prior
        return (log_joint + self.scale).clamp(-LARGEST, LARGEST)


class PosteriorClassifier(Classifier):
    """A backbone, a ``PosteriorHead``, and personalised PageRank of the evidence.

    Args:
        backbone: Gives the latents z1 .. zL.
        head: A ``PosteriorHead``.
        hops: Message-passing layers of the backbone.
        teleport: The share of its own evidence that a node keeps in a step.
        steps: Of the power iteration.
    """

    head: PosteriorHead

    def __init__(self, backbone: nn.Module, head: nn.Module, hops: int, teleport: float, steps: int) -> None:
        super().__init__(backbone, head, hops)
        self.teleport, self.steps = teleport, steps

    def forward(self, x: Features, edges: Adjacency) -> Tensor:
        """The evidence ``[N, C]``.

        Args:
            x: Features ``[N, F]``.
            edges: The edges.
        """
        return self.diffused(self.head(self.backbone(x, edges)[-1]).exp(), edges)

    def diffused(self, evidence: Tensor, edges: Adjacency) -> Tensor:
        """``b <- teleport b0 + (1 - teleport) D^-1/2 (A + I) D^-1/2 b``.

        Args:
            evidence: b0 ``[N, C]``.
            edges: The edges.
        """
        own = self.teleport * evidence
        for _ in range(self.steps):
            evidence = own + (1.0 - self.teleport) * (edges.normalized @ evidence)
        return evidence

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Weight decay is for the encoder; flows have none."""
        encoder = [*self.backbone.parameters(), *self.head.lin.parameters()]
        return [{"params": encoder}, {"params": list(self.head.flows.parameters()), "weight_decay": 0.0}]


def expected_cross_entropy(alpha: Tensor, target: Tensor) -> Tensor:
    """The cross entropy that a distribution drawn from Dir(alpha) has on average: ``psi(alpha_0) - psi(alpha_y)``.

    Args:
        alpha: Concentrations ``[N, C]``.
        target: Classes ``[N]``.
    """
    own = alpha.gather(1, target[:, None]).squeeze(1)
    return torch.digamma(alpha.sum(-1)) - torch.digamma(own)


def dirichlet_entropy(alpha: Tensor) -> Tensor:
    """The differential entropy of Dir(alpha), for each node, in nats.

    Args:
        alpha: Concentrations ``[N, C]``, better in float64: large ones cancel.
    """
    total = alpha.sum(-1)
    log_beta = torch.lgamma(alpha).sum(-1) - torch.lgamma(total)
    spread = (total - alpha.shape[1]) * torch.digamma(total)
    return log_beta + spread - ((alpha - 1.0) * torch.digamma(alpha)).sum(-1)
