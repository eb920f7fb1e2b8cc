"""Neighbour sampling: mini-batches of graphs that are too large to train on as a whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..graphs.edges import Edges, damaged
from ..runtime.memory import processors
from ..runtime.threads import map_in_threads
from .adjacency import Adjacency, Sample
from .layers import Features, rows_of

FANOUT = 10  # default number of neighbours drawn for a node, at each hop
ALL = 2**62  # fanout that draws all neighbours
READ = 1 << 10  # rows of features read between two looks at the memory: each may map half a MiB around it
AHEAD = 2  # batches drawn before they are needed


class Batch(NamedTuple):
    """A sampled neighbourhood, whose first nodes are the seeds.

    Attributes:
        x: Features of its nodes.
        edges: Sampled edges.
        seeds: Numbers, in the graph, of the nodes that it was drawn for.
    """

    x: Features
    edges: Adjacency
    seeds: Tensor

    def to(self, device: torch.device | str) -> Batch:
        if torch.device(device).type == "cpu":
            return self
        return Batch(self.x.to(device), self.edges.to(device), self.seeds)


class Sampler:
    """Sampler of neighbourhoods: some in-edges of each node, hop by hop; only the rows of sampled nodes are read.

    A node with more in-edges than the hop's fanout has so many of them drawn with replacement, each standing for its
    share, so that sums and means, weighted or not, are unbiased (PyG models use the drawn edges unweighted, as with
    PyG's own loader). If no node has more, a batch gives what the whole graph gives. What is drawn for a node depends
    on the seed, the batch's number and the node alone.

    Args:
        x: Features of all nodes, perhaps mapped from a file.
        edges: All edges.
        fanouts: Number of in-edges drawn for a node, hop by hop, beginning at the seeds.
        seed: Random seed.
        after_reading: Called when some rows have been read, by the thread that reads: to release mapped pages.
    """

    def __init__(
        self,
        x: Features,
        edges: Adjacency,
        fanouts: Sequence[int],
        seed: int = 0,
        after_reading: Callable[[], None] | None = None,
    ) -> None:
        self.x, self.edges, self.fanouts, self.seed = x, edges, tuple(fanouts), seed
        self.after_reading = after_reading
        self._number = np.full(edges.num_nodes, -1, np.int32)

    def around(self, seeds: Tensor, number: int = 0) -> Batch:
        """Return the batch with this number for distinct seeds; not for several threads at a time."""
        from .kernels import draw_in_edges

        key = np.random.SeedSequence([self.seed, number]).generate_state(1, np.uint64)[0]
        edges = self.edges.edges
        starts, sources = edges.starts.numpy(), edges.sources.numpy()
        nodes = seeds.numpy().astype(np.int64)
        self._number[nodes] = np.arange(len(nodes), dtype=np.int32)
        sizes, places, ends, drawn, degrees = [0, len(nodes)], [], [], [], []
        try:
            for fanout in self.fanouts:
                first, last = sizes[-2:]
                begins, behind = starts[nodes[first:last]], starts[nodes[first:last] + 1]
                if not bool(((begins >= 0) & (begins <= behind) & (behind <= len(sources))).all()):
                    raise damaged("edges of a node begin or end outside of the graph")
                degrees.append(behind - begins)
                total = int(np.minimum(degrees[-1], fanout).sum())
                room = np.empty(last + total, np.int64)
                room[:last] = nodes[:last]
                nodes = room
                places.append(np.empty(total, np.int64))
                ends.append(np.empty(total, np.int32))
                drawn.append(np.empty(last - first, np.int64))
                parts = places[-1], ends[-1], drawn[-1]
                count = draw_in_edges(starts, sources, fanout, key, self._number, nodes, first, last, *parts)
                if count < 0:
                    raise damaged("an edge comes from a node that does not exist")
                sizes.append(count)
        finally:
            self._number[nodes[: sizes[-1]]] = -1
        counts, chosen = np.concatenate(drawn), torch.from_numpy(nodes[: sizes[-1]])
        factors = torch.from_numpy(np.repeat(np.concatenate(degrees) / np.maximum(counts, 1), counts))
        weights = None if edges.weights is None else edges.weights[torch.from_numpy(np.concatenate(places))]
        row_starts = np.full(len(chosen) + 1, counts.sum(), np.int32)
        row_starts[0], row_starts[1 : len(counts) + 1] = 0, counts.cumsum()
        drawn_edges = Edges(torch.from_numpy(row_starts), torch.from_numpy(np.concatenate(ends)), weights)
        sample = Sample(self.edges, chosen, factors, tuple(sizes[1:]))
        return Batch(self._rows(chosen), Adjacency(drawn_edges, sample=sample), seeds)

    def _rows(self, nodes: Tensor) -> Features:
        """Return features of nodes; of a file read in the order of the file, so that no page is mapped twice."""
        if self.after_reading is None:
            return rows_of(self.x, nodes, once=True)
        if not isinstance(self.x, Tensor):
            rows = rows_of(self.x, nodes, once=True)
            self.after_reading()
            return rows
        features = torch.empty(len(nodes), self.x.shape[1])
        for part in torch.split(nodes.argsort(), READ):
            features[part] = self.x[nodes[part]].float()
            self.after_reading()
        return features

    def ahead(self, batches: Iterable[tuple[Tensor, int]]) -> Iterator[Batch]:
        """Yield batches of seeds and numbers; a thread draws the next ones while one is worked on.

        With one processor each is drawn when it is needed: processes that wait for each other at every step should
        take equally long for it.
        """
        if processors() == 1:
            yield from (self.around(*each) for each in batches)
            return
        yield from map_in_threads(self.around, batches, 1, AHEAD + 1)
