"""Uncertainty scores as functions of a model's outputs: float64, higher = less certain.

They take outputs, not models, so that each can be compared with a reference. Docstrings state differences from the
original definitions.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..graphs import Graph
from ..sets import Uncertainty
from .inputs import edge_blocks


def msp(logits: Tensor) -> Tensor:
    """Return one minus the largest softmax probability (Hendrycks and Gimpel).

    Args:
        logits: Logits ``[N, C]``.
    """
    return -logits.double().log_softmax(-1).amax(-1).expm1()


def entropy(logits: Tensor) -> Tensor:
    """Return the entropy of the softmax in bits.

    Args:
        logits: Logits ``[N, C]``.
    """
    return _bits(logits.double().softmax(-1))


def energy(logits: Tensor, temperature: float = 1.0) -> Tensor:
    """Return the energy ``-T logsumexp(logits / T)`` (Liu et al.), high where no class has evidence.

    Args:
        logits: Logits ``[N, C]``.
        temperature: T, default 1.
    """
    return -temperature * (logits.double() / temperature).logsumexp(-1)


def propagate(energies: Tensor, graph: Graph, alpha: float = 0.5, steps: int = 2) -> Tensor:
    """Propagate energies as GNNSafe (Wu et al.) does: ``e <- alpha e + (1 - alpha) mean of e over in-neighbours``.

    A node without in-neighbours keeps its energy; the original multiplies it by alpha, which would make it look less
    certain for having no edge.

    Args:
        energies: Energies of all nodes ``[N]``.
        graph: Graph with the edges, which are read in chunks.
        alpha: Share of its energy that a node keeps in a step, default 0.5.
        steps: Number of steps, default 2.
    """
    values = energies.double()
    for _ in range(steps):
        propagated = torch.empty_like(values)
        for block in edge_blocks(graph):
            energy, degree = values[block.nodes], block.counts
            mean = block.sums(values.index_select(0, block.sources)) / degree.clamp_min(1)
            propagated[block.nodes] = torch.where(degree > 0, alpha * energy + (1.0 - alpha) * mean, energy)
        values = propagated
    return values


def odin(logits: Tensor, temperature: float = 1000.0) -> Tensor:
    """Return minus the largest probability of the tempered softmax (Liang et al.); the method perturbs the inputs.

    Args:
        logits: Logits ``[N, C]`` of perturbed inputs.
        temperature: Divisor of the logits, default 1000.
    """
    return -(logits.double() / temperature).softmax(-1).amax(-1)


def ensemble_uncertainty(members: Tensor) -> Uncertainty:
    """Return TU = H(mean), AU = mean H and EU = TU - AU in bits (the paper's last appendix).

    Args:
        members: Members' class probabilities ``[M, N, C]``.
    """
    p = members.double()
    total, aleatoric = _bits(p.mean(0)), _bits(p).mean(0)
    return Uncertainty(total, aleatoric, (total - aleatoric).clamp_min(0.0))


def _bits(p: Tensor) -> Tensor:
    return -torch.xlogy(p, p).sum(-1) / torch.log(torch.tensor(2.0, dtype=torch.float64))
