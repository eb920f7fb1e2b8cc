"""Distribution shifts of tasks beyond left-out classes; seeded, and part of the fingerprint."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Self

import numpy as np
import torch
from torch import Tensor

from ._checks import rows_or_columns
from .errors import GraphError
from .split import Split, seeded

if TYPE_CHECKING:
    from .graph import Graph


class Shifts:
    """Methods of ``Task`` that return a shifted copy, recorded in ``shifts``.

    Every method takes the share of the nodes it changes or keeps, above 0 and at most 1, and a seed.
    """

    graph: Graph
    split: Split
    ood_classes: tuple[int, ...]
    train_labels: Tensor
    shifts: tuple[str, ...]
    shifted_nodes: Tensor

    def fewer_labels(self, share: float, seed: int = 0) -> Self:
        """Keep a share of the training nodes, at least one of each class.

        Args:
            share: Share of training nodes that stay.
            seed: Seed of the choice.
        """
        order, _ = _order(len(self.split.train), share, seed)
        labels, place = self.train_labels[order], torch.arange(len(order))
        classes = self.graph.num_classes - len(self.ood_classes)
        first = torch.full((classes,), len(order)).scatter_reduce(0, labels, place, "amin")
        chosen = place < max(1, round(share * len(order)))
        chosen[first[first < len(order)]] = True  # at least one of each class that has any
        remaining = order[chosen].sort().values
        split = Split(self.split.train[remaining], self.split.val, self.split.test)
        shift = f"fewer_labels({share}, seed={seed})"
        return self._shifted(shift, split=split, train_labels=self.train_labels[remaining])

    def label_noise(self, share: float, seed: int = 0) -> Self:
        """Give a share of the training nodes another ID label.

        Args:
            share: Share of training nodes that are changed.
            seed: Seed of the choice and of the labels.
        """
        chosen, generator = _chosen(len(self.split.train), share, seed)
        labels, classes = self.train_labels.clone(), self.graph.num_classes - len(self.ood_classes)
        step = torch.randint(1, classes, (len(chosen),), generator=generator)
        labels[chosen] = (labels[chosen] + step) % classes
        return self._shifted(f"label_noise({share}, seed={seed})", train_labels=labels)

    def fewer_ood(self, share: float, seed: int = 0) -> Self:
        """Keep a share of the OOD nodes of the graph; test nodes are kept rather than others.

        Args:
            share: Share of OOD nodes that stay.
            seed: Seed of the choice.
        """
        if not self.ood_classes:
            raise GraphError("no class is left out of this task, so there are no OOD nodes to take out of its graph")
        is_ood = torch.isin(self.graph.labels, torch.tensor(self.ood_classes))
        nodes = is_ood.nonzero().squeeze(-1)
        order, _ = _order(len(nodes), share, seed)
        tested = torch.isin(nodes[order], self.split.test)
        order = torch.cat([order[tested], order[~tested]])
        stays = ~is_ood
        stays[nodes[order[: max(1, round(share * len(order)))]]] = True
        chosen = stays.nonzero().squeeze(-1)
        number = torch.full((self.graph.num_nodes,), -1)
        number[chosen] = torch.arange(len(chosen))
        parts = (number[part] for part in (self.split.train, self.split.val, self.split.test))
        split, shifted = Split(*(part[part >= 0] for part in parts)), number[self.shifted_nodes]
        graph, shift = self.graph.subgraph(chosen), f"fewer_ood({share}, seed={seed})"
        return self._shifted(shift, graph=graph, split=split, shifted_nodes=shifted[shifted >= 0])

    def feature_noise(self, share: float, std: float = 1.0, seed: int = 0) -> Self:
        """Add normal noise to the features of a share of the test nodes.

        Args:
            share: Share of test nodes that are changed.
            std: Standard deviation of the noise.
            seed: Seed of the choice and of the noise.
        """
        if not 0.0 < std < float("inf"):
            raise GraphError(f"std must be a positive number, not {std}")
        nodes, generator = self._test_nodes(share, seed)
        matrix = self.graph.in_memory("a graph with noisy features").features
        width = matrix.shape[1]
        noise = std * torch.randn(len(nodes), width, generator=generator)
        if matrix.layout != torch.sparse_csr:
            features = matrix.index_add(0, nodes, noise)
        else:
            from scipy.sparse import csr_array

            starts = np.zeros(matrix.shape[0] + 1, np.int64)
            starts[nodes.numpy() + 1] = width
            columns = np.tile(np.arange(width), len(nodes))
            noisy_rows = (noise.reshape(-1).numpy(), columns, starts.cumsum())
            features = rows_or_columns(matrix) + csr_array(noisy_rows, shape=tuple(matrix.shape))
        return self._with_features(features, nodes, f"feature_noise({share}, std={std}, seed={seed})")

    def feature_removal(self, share: float, seed: int = 0) -> Self:
        """Set the features of a share of the test nodes to zero.

        Args:
            share: Share of test nodes that are changed.
            seed: Seed of the choice.
        """
        nodes, _ = self._test_nodes(share, seed)
        matrix = self.graph.in_memory("a graph without some features").features
        if matrix.layout != torch.sparse_csr:
            features = matrix.index_fill(0, nodes, 0.0)
        else:
            features = rows_or_columns(matrix).copy()
            features.data[np.isin(np.repeat(np.arange(features.shape[0]), np.diff(features.indptr)), nodes)] = 0.0
        return self._with_features(features, nodes, f"feature_removal({share}, seed={seed})")

    def rewired(self, share: float, seed: int = 0) -> Self:
        """Draw the other end of every edge at a share of the test nodes at random.

        Args:
            share: Share of test nodes that are changed.
            seed: Seed of the choice and of the edges.
        """
        nodes, generator = self._test_nodes(share, seed)
        whole = self.graph.in_memory("a graph with other edges")
        chosen = torch.zeros(whole.num_nodes, dtype=torch.bool)
        chosen[nodes] = True
        edges = whole.edge_index.clone()
        low, high = edges.min(0).values, edges.max(0).values
        # One draw for a pair of nodes, whatever its direction: an edge in both directions stays one.
        pairs, pair = torch.unique(low * whole.num_nodes + high, return_inverse=True)
        drawn = torch.randint(0, whole.num_nodes, (len(pairs),), generator=generator)[pair]
        fixed = torch.where(chosen[low], low, high)  # the end at a chosen node
        moved = chosen[low] | chosen[high]
        for end, other in ((0, 1), (1, 0)):
            edges[end] = torch.where(moved & (whole.edge_index[other] == fixed), drawn, edges[end])
        loops = moved & (whole.edge_index[0] == whole.edge_index[1])
        edges[0] = torch.where(loops, fixed, edges[0])
        ends = whole.edge_index[:, whole.edge_index[0] != whole.edge_index[1]]
        nodes = nodes[torch.isin(nodes, ends)]  # a node without neighbours has not changed
        graph = whole.replace(edge_index=edges, edge_weight=whole.edge_weight)
        return self._shifted(f"rewired({share}, seed={seed})", graph=graph, shifted_nodes=self._changed(nodes))

    def _shifted(self, shift: str, **changes: object) -> Self:
        return replace(self, shifts=(*self.shifts, shift), **changes)  # type: ignore[type-var]

    def _with_features(self, features: object, nodes: Tensor, shift: str) -> Self:
        return self._shifted(shift, graph=self.graph.replace(features=features), shifted_nodes=self._changed(nodes))

    def _changed(self, nodes: Tensor) -> Tensor:
        """Return the nodes changed so far and by this shift."""
        changed: Tensor = torch.unique(torch.cat([self.shifted_nodes, nodes]))
        return changed

    def _test_nodes(self, share: float, seed: int) -> tuple[Tensor, torch.Generator]:
        chosen, generator = _chosen(len(self.split.test), share, seed)
        return self.split.test[chosen], generator


def _order(count: int, share: float, seed: int) -> tuple[Tensor, torch.Generator]:
    """Return a random order of 0..count-1, and the generator it came from."""
    if not 0.0 < share <= 1.0:
        raise GraphError(f"share must be above 0 and at most 1, not {share}")
    generator = seeded(seed)
    return torch.randperm(count, generator=generator), generator


def _chosen(count: int, share: float, seed: int) -> tuple[Tensor, torch.Generator]:
    order, generator = _order(count, share, seed)
    return order[: max(1, round(share * count))].sort().values, generator
