"""Uncertainty scores as functions of a model's outputs: float64, higher where the model is less certain.

Detectors consume outputs, not models, so that each can be held against a reference. Differences from an original
definition are said where they are.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..graphs import Graph
from ..sets import Uncertainty
from .chunks import edge_blocks
from .neighbours import Latents, NeighbourBank

ROWS = 1 << 16  # nodes whose distances are computed at a time


def msp(logits: Tensor) -> Tensor:
    """One minus the largest softmax probability (Hendrycks and Gimpel).

    Args:
        logits: Logits ``[N, C]``.
    """
    return -logits.double().log_softmax(-1).amax(-1).expm1()


def entropy(logits: Tensor) -> Tensor:
    """Entropy of the softmax, in bits.

    Args:
        logits: Logits ``[N, C]``.
    """
    return _bits(logits.double().softmax(-1))


def energy(logits: Tensor, temperature: float = 1.0) -> Tensor:
    """``-T logsumexp(logits / T)`` (Liu et al.): high where no class has evidence.

    Args:
        logits: Logits ``[N, C]``.
        temperature: T.
    """
    return -temperature * (logits.double() / temperature).logsumexp(-1)


def propagate(energies: Tensor, graph: Graph, alpha: float = 0.5, steps: int = 2) -> Tensor:
    """GNNSafe's belief propagation (Wu et al.): ``e <- alpha e + (1 - alpha) mean of e over in-neighbours``.

    A node without in-neighbours keeps its own; the original multiplies it by alpha, which would make it look less
    certain for having no edge.

    Args:
        energies: Energies of all nodes ``[N]``.
        graph: Whose edges; they are read in chunks.
        alpha: The share of a node's own energy.
        steps: How often energies are propagated.
    """
    values = energies.double()
    for _ in range(steps):
        spread = torch.empty_like(values)
        for block in edge_blocks(graph):
            own, degree = values[block.nodes], block.counts
            mean = block.sums(values.index_select(0, block.sources)) / degree.clamp_min(1)
            spread[block.nodes] = torch.where(degree > 0, alpha * own + (1.0 - alpha) * mean, own)
        values = spread
    return values


def odin(logits: Tensor, temperature: float = 1000.0) -> Tensor:
    """Minus the largest probability of the tempered softmax (Liang et al.); inputs are perturbed by the method.

    Args:
        logits: Logits ``[N, C]`` of perturbed inputs.
        temperature: What the logits are divided by.
    """
    return -(logits.double() / temperature).softmax(-1).amax(-1)


def ensemble_uncertainty(members: Tensor) -> Uncertainty:
    """TU = H(mean), AU = mean H, EU = TU - AU in bits (the paper's last appendix).

    Args:
        members: The members' class probabilities ``[M, N, C]``.
    """
    p = members.double()
    total, aleatoric = _bits(p.mean(0)), _bits(p).mean(0)
    return Uncertainty(total, aleatoric, (total - aleatoric).clamp_min(0.0))


def _bits(p: Tensor) -> Tensor:
    return -torch.xlogy(p, p).sum(-1) / torch.log(torch.tensor(2.0, dtype=torch.float64))


class Gaussians(NamedTuple):
    """Class-conditional Gaussians.

    Args:
        means: Class means ``[C, D]``.
        precision: The precision ``[D, D]`` that all classes share.
    """

    means: Tensor
    precision: Tensor


def fit_gaussians(latents: Tensor, labels: Tensor, num_classes: int) -> Gaussians:
    """Class-conditional Gaussians with one covariance (Lee et al.), by maximum likelihood.

    Latents behind a ReLU rarely span their space, so the covariance is usually singular: its pseudo-inverse is taken,
    as the original does, and directions in which training nodes do not vary (by float32's precision) count nothing.

    Args:
        latents: Latents of the training nodes ``[N, D]``.
        labels: Their classes ``[N]``.
        num_classes: The number of classes, each of which needs a training node.
    """
    width = latents.shape[1]
    counts = torch.bincount(labels, minlength=num_classes)
    if not bool((counts > 0).all()):
        raise ValueError(f"class {int((counts == 0).nonzero()[0])} has no training node, so it has no mean")
    means = torch.zeros(num_classes, width, dtype=torch.float64)
    covariance = torch.zeros(width, width, dtype=torch.float64)
    chunks = list(zip(torch.split(latents, ROWS), torch.split(labels, ROWS), strict=True))
    for z, own in chunks:
        means.index_add_(0, own, z.double())
    means /= counts[:, None]
    for z, own in chunks:
        centred = z.double() - means[own]
        covariance += centred.t() @ centred
    values, vectors = torch.linalg.eigh(covariance / len(latents))
    kept = values > width * torch.finfo(torch.float32).eps * values[-1]
    if not bool(kept.any()) or values[-1] <= 0:
        raise ValueError("the latents of each class are all the same: their covariance is zero, and so no distance")
    basis = vectors[:, kept]
    return Gaussians(means, basis / values[kept] @ basis.t())


def gaussian_distance(gaussians: Gaussians, latents: Tensor) -> Tensor:
    """The smallest squared Mahalanobis distance to a class mean.

    Args:
        gaussians: The fitted Gaussians.
        latents: Latents ``[N, D]``.
    """
    means, precision = (part.to(latents.device) for part in gaussians)
    return torch.cat([_nearest(means, precision, rows.double()) for rows in torch.split(latents, ROWS)])


def _nearest(means: Tensor, precision: Tensor, z: Tensor) -> Tensor:
    distances = [(((z - mean) @ precision) * (z - mean)).sum(-1) for mean in means]
    return torch.stack(distances, -1).amin(-1)


def knn(train: Latents, queries: Latents, k: int, kth: bool = False, normalize: bool = False) -> Tensor:
    """Mean Euclidean distance to the ``k`` nearest of ``train``, or with ``kth`` the distance to the k-th.

    Several latents count as one joint vector. The original (Sun et al.) takes the k-th distance between vectors of
    length 1: ``kth=True, normalize=True``. A node that is in ``train`` is its own nearest neighbour.

    Args:
        train: Latents of the training nodes.
        queries: Latents of the nodes to be scored.
        k: How many neighbours.
        kth: Whether the distance to the k-th counts alone, instead of the mean.
        normalize: Whether vectors are scaled to length 1 first.
    """
    return NeighbourBank(train, normalize).distance(queries, k, kth)
