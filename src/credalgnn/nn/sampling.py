"""Neighbour sampling: mini-batches for graphs, or machines, that do not take a whole graph at once."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .adjacency import Adjacency, Sample
from .backbones import Features

FANOUT = 10  # neighbours drawn for a node, at each hop


class Batch(NamedTuple):
    """A piece of a graph; ``seeds`` are the places in it of the nodes it was made around."""

    x: Features
    edges: Adjacency
    seeds: Tensor


class Sampler:
    """Draws the neighbourhood of some nodes: up to ``FANOUT`` in-edges a node, hop by hop, from torch's generator.

    A node with more in-edges has ``FANOUT`` of them drawn with replacement, each standing for its share, so that sums
    and means, weighted or not, are unbiased (PyG models see the drawn edges as they are, as with PyG's own loader).
    With none to draw, a batch gives what the whole graph gives.

    Args:
        x: The features of all nodes.
        edges: All edges, with their weights if they have any.
        batch_size: How many nodes a batch is made around.
        hops: How far messages travel: the number of layers.
    """

    def __init__(self, x: Features, edges: Adjacency, batch_size: int, hops: int) -> None:
        self.x, self.edges, self.batch_size, self.hops = x, edges, batch_size, hops
        self.num_nodes = edges.num_nodes
        source, target = edges.edge_index
        self.order = torch.argsort(target, stable=True)  # edges by their target
        self.sources = source[self.order]
        self.in_edges = torch.bincount(target, minlength=self.num_nodes)
        self.starts = self.in_edges.cumsum(0) - self.in_edges

    def around(self, seeds: Tensor) -> Batch:
        """The batch around ``seeds``, big enough for their latents (approximate ones, where neighbours were drawn)."""
        edges, seen, frontier = [], seeds, seeds
        for _ in range(self.hops):
            edges.append(self._draw(frontier))
            reached = torch.unique(self.sources[edges[-1][0]])
            frontier = reached[~torch.isin(reached, seen)]
            if not len(frontier):
                break
            seen = torch.cat([seen, frontier])
        number = torch.empty(self.num_nodes, dtype=torch.int64, device=seeds.device)
        number[seen] = torch.arange(len(seen), device=seeds.device)
        x = self.x[seen] if isinstance(self.x, Tensor) else self.x.rows(seen)
        places, targets = torch.cat(edges, 1)
        counts = (self.in_edges / self.in_edges.clamp_max(FANOUT))[targets]
        weights = None if self.edges.edge_weight is None else self.edges.edge_weight[self.order[places]]
        drawn = number[torch.stack([self.sources[places], targets])]
        inner = Adjacency(drawn, len(seen), weights, Sample(self.edges, seen, counts))
        return Batch(x, inner, torch.arange(len(seeds), device=seeds.device))

    def _draw(self, targets: Tensor) -> Tensor:
        """In-edges of the targets, all of them or ``FANOUT`` drawn ``[2, E]``: their places in ``sources``, targets."""
        degree = self.in_edges[targets]
        count = degree.clamp_max(FANOUT)
        ends = count.cumsum(0)
        rank = torch.arange(int(ends[-1]), device=targets.device) - torch.repeat_interleave(ends - count, count)
        own_degree = torch.repeat_interleave(degree, count)
        drawn = (torch.rand(len(rank), device=targets.device) * own_degree).long().clamp_max(own_degree - 1)
        offset = torch.where(own_degree > FANOUT, drawn, rank)
        places = torch.repeat_interleave(self.starts[targets], count) + offset
        return torch.stack([places, torch.repeat_interleave(targets, count)])
