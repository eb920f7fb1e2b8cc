"""Neighbour sampling: mini-batches for graphs, or machines, that do not take a whole graph at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..runtime.memory import processors
from .adjacency import Adjacency, Sample
from .edge_rows import NO_EDGES, NOWHERE, EdgeRows
from .layers import Features, rows_of
from .sparse import damaged

FANOUT = 10  # neighbours drawn for a node, at each hop, if nothing else is said
ALL = 2**62  # the fanout that draws all neighbours
READ = 1 << 10  # rows of features that are read between two looks at the memory: each may map half a MiB around it
AHEAD = 2  # batches that are drawn before they are asked for


class Batch(NamedTuple):
    """A chunk of a graph: its first nodes are those that it was made around.

    Attributes:
        x: Features of its nodes.
        edges: The edges that were drawn.
        seeds: The numbers, in the graph, of the nodes that it was made around.
    """

    x: Features
    edges: Adjacency
    seeds: Tensor

    def to(self, device: torch.device | str) -> Batch:
        """The batch on another device.

        Args:
            device: As torch names it.
        """
        return (
            self if torch.device(device).type == "cpu" else Batch(self.x.to(device), self.edges.to(device), self.seeds)
        )


class Sampler:
    """RngScope the neighbourhoods of nodes: some in-edges of each, hop by hop; only the rows of what is drawn are read.

    A node with more in-edges than the hop's fanout has so many of them drawn with replacement, each standing for its
    share, so that sums and means, weighted or not, are unbiased (PyG models see the drawn edges as they are, as with
    PyG's own loader). With none to draw, a batch gives what the whole graph gives. What is drawn for a node hangs on
    the seed, the batch's number and the node alone.

    Args:
        x: The features of all nodes; perhaps a file that is mapped into memory.
        edges: All edges.
        fanouts: How many in-edges are drawn for a node, hop by hop, beginning at the nodes that a batch is made around.
        seed: Of what is drawn.
        after_reading: Is called when some rows have been read, by the thread that reads: to let go of mapped pages.
    """

    def __init__(
        self,
        x: Features,
        edges: EdgeRows,
        fanouts: Sequence[int],
        seed: int = 0,
        after_reading: Callable[[], None] | None = None,
    ) -> None:
        self.x, self.edges, self.fanouts, self.seed = x, edges, tuple(fanouts), seed
        self.after_reading = after_reading
        self._number = np.full(edges.num_nodes, -1, np.int32)

    def around(self, seeds: Tensor, number: int = 0) -> Batch:
        """The batch around some nodes, each once, big enough for their latents; not for several threads at a time.

        Args:
            seeds: Their numbers.
            number: Of the batch: what is drawn depends on it.
        """
        from ._drawing import draw_in_edges

        key = np.random.SeedSequence([self.seed, number]).generate_state(1, np.uint64)[0]
        starts, sources = self.edges.starts.numpy(), self.edges.sources.numpy()
        nodes = seeds.numpy().astype(np.int64)
        self._number[nodes] = np.arange(len(nodes), dtype=np.int32)
        sizes, places, ends, drawn, degrees = [0, len(nodes)], [], [], [], []
        try:
            for fanout in self.fanouts:
                first, last = sizes[-2:]
                begins, behind = starts[nodes[first:last]], starts[nodes[first:last] + 1]
                if not bool(((begins >= 0) & (begins <= behind) & (behind <= len(sources))).all()):
                    raise damaged(NO_EDGES)
                degrees.append(behind - begins)
                total = int(np.minimum(degrees[-1], fanout).sum())
                room = np.empty(last + total, np.int64)
                room[:last] = nodes[:last]
                nodes = room
                places.append(np.empty(total, np.int64))
                ends.append(np.empty(total, np.int64))
                drawn.append(np.empty(last - first, np.int64))
                parts = places[-1], ends[-1], drawn[-1]
                count = draw_in_edges(starts, sources, fanout, key, self._number, nodes, first, last, *parts)
                if count < 0:
                    raise damaged(NOWHERE)
                sizes.append(count)
        finally:
            self._number[nodes[: sizes[-1]]] = -1
        counts = np.concatenate(drawn)
        target = np.repeat(np.arange(len(counts)), counts)
        stands_for = torch.from_numpy(np.repeat(np.concatenate(degrees) / np.maximum(counts, 1), counts))
        chosen = torch.from_numpy(nodes[: sizes[-1]])
        weights = None if self.edges.weights is None else self.edges.weights[torch.from_numpy(np.concatenate(places))]
        sample = Sample(self.edges, chosen, stands_for, tuple(sizes[1:]))
        index = torch.from_numpy(np.stack([np.concatenate(ends), target]))
        return Batch(self._rows(chosen), Adjacency(index, len(chosen), weights, sample), seeds)

    def _rows(self, nodes: Tensor) -> Features:
        """Features of nodes; of a file in the order in which they lie there, so that no page is mapped twice."""
        if self.after_reading is None:
            return rows_of(self.x, nodes, once=True)
        if not isinstance(self.x, Tensor):
            rows = rows_of(self.x, nodes, once=True)
            self.after_reading()
            return rows
        found = torch.empty(len(nodes), self.x.shape[1])
        for part in torch.split(nodes.argsort(), READ):
            found[part] = self.x[nodes[part]].float()
            self.after_reading()
        return found

    def ahead(self, batches: Iterable[tuple[Tensor, int]]) -> Iterator[Batch]:
        """Batches one after another, the next ones drawn in a thread of their own while one is worked on.

        A process that has one processor only draws each when it is asked for: processes that wait for each other at
        every step should take equally long for it.

        Args:
            batches: The nodes, and the number, of each.
        """
        if processors() == 1:
            yield from (self.around(*each) for each in batches)
            return
        todo = iter(batches)
        with ThreadPoolExecutor(1) as thread:
            waiting = [thread.submit(self.around, *each) for _, each in zip(range(AHEAD), todo, strict=False)]
            while waiting:
                batch = waiting.pop(0).result()
                waiting.extend(thread.submit(self.around, *each) for _, each in zip(range(1), todo, strict=False))
                yield batch
