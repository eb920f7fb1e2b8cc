"""Noise for networks that are asked several times: hidden units and edges that are left out, as drawn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from .adjacency import Adjacency
from .backbones import Features


@contextmanager
def dropped_units(layers: Sequence[nn.Module], probability: float, generator: torch.Generator) -> Iterator[None]:
    """Inside, units of the layers' outputs are dropped, the same ones for all nodes, and the others scaled up.

    Before a ReLU that is the same as behind it. A mask is drawn each time that a layer is called.

    Args:
        layers: Modules that return ``[N, units]``, and that no other thread calls meanwhile.
        probability: Of dropping a unit, below 1.
        generator: On the CPU, so that all devices draw the same.
    """

    def mask(layer: nn.Module, inputs: object, output: Tensor) -> Tensor:
        kept = torch.rand(output.shape[-1], generator=generator) >= probability
        return output * (kept.to(output) / (1.0 - probability))

    handles = [layer.register_forward_hook(mask, prepend=True) for layer in layers]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def thinned(edges: Adjacency, probability: float, generator: torch.Generator | None = None) -> Adjacency:
    """The edges without some of them, each direction by itself; means and sums are over those that are left.

    Sums count each of them for the others, too, so that they are as large as with all edges.

    The first edges of a graph are drawn alike whatever edges come after them.

    Args:
        edges: All edges; where they were drawn from a larger graph, those that are left count for the others.
        probability: Of leaving out an edge, below 1.
        generator: On the CPU; None: torch's global one.
    """
    kept = torch.rand(edges.edge_index.shape[1], generator=generator) >= probability
    kept = kept.to(edges.edge_index.device)
    weight = None if edges.edge_weight is None else edges.edge_weight[kept]
    left = edges.edge_index[:, kept]
    if edges.sample is None:
        return Adjacency(left, edges.num_nodes, weight, kept=edges.kept * (1.0 - probability))
    counts = edges.sample.counts[kept.to(edges.sample.counts.device)]
    sample = edges.sample._replace(counts=counts / (1.0 - probability))
    return Adjacency(left, edges.num_nodes, weight, sample)


class EdgeDropping(nn.Module):
    """A backbone that leaves out other edges each time it is called in training (DropEdge), and none otherwise.

    Args:
        backbone: Gives the latents z1 .. zL.
        probability: Of leaving out an edge, below 1.
    """

    def __init__(self, backbone: nn.Module, probability: float) -> None:
        super().__init__()
        self.backbone, self.probability = backbone, probability

    def forward(self, x: Features, edges: Adjacency) -> list[Tensor]:
        """The latents z1 .. zL of all nodes.

        Args:
            x: Features ``[N, F]``, dense or sparse.
            edges: All edges.
        """
        latents: list[Tensor] = self.backbone(x, thinned(edges, self.probability) if self.training else edges)
        return latents
