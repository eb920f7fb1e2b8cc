"""GRASP: scores spread along edges, with edges added among training nodes that known classes are near to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..graphs import Graph
from ..nn import SparseMatrix
from ..runtime.context import Context
from . import scores
from .base import Outputs
from .known_nodes import KnownNodes
from .parameters import AT_LEAST_0, FRACTION, Interval
from .posthoc import PostHoc
from .training_data import TrainingData
from .undirected import undirected


@dataclass(kw_only=True, eq=False)
class GRASP(PostHoc):
    """Graph-augmented score propagation (Ma et al. 2024): doubts, spread along edges of which there are more.

    Spreading scores helps where edges stay inside the known, or inside the strange, nodes. So edges are added between
    all pairs of a set G of training nodes, which are known. G is the ``share`` of them that have, for their strange
    neighbours, most known ones, as the model's largest probability tells::

        S_id, S_ood = the nodes outside training whose largest probability is above, below the ``percentile``
        h(i) = |neighbours of i in S_id| / (|neighbours of i in S_ood| + 1)
        e <- alpha e + (1 - alpha) D'^-1 A' e,   A' = A + 1_G 1_G^T, D' its row sums,   ``steps`` times

    for e = 1 - the largest probability (``msp``). Edges count in both directions and once. ``1_G 1_G^T`` is never
    written down: G adds one number, the sum of its scores.

    The original chooses the trained model's epoch by the score of test nodes, takes training and validation nodes for
    G, and multiplies what G adds by a number between 1 and 1.2 that differs from graph to graph; here the epoch is that
    of the given model, G are training nodes alone, and the number is 1. A node without edges keeps its own score, which
    the original sets to zero. Of nodes with equal h the first ones are taken. In a graph in which training
    nodes are not known again, for want of node ids, no edges are added.

    Args:
        percentile: Of the largest probabilities, from below for S_ood and from above for S_id.
        share: Of the training nodes, how many G has.
        alpha: The share of its own score that a node keeps in a step.
        steps: How often scores are spread.
        model: A fitted method that has outputs, or a template; by default a vanilla GNN with ``seed``.
        seed: Of the model, if none is given.
    """

    percentile: float = 5.0
    share: float = 0.5
    alpha: float = 0.0
    steps: int = 8

    name = "grasp"
    score_names = ("msp",)
    uses_unlabelled = True
    search_space = {
        "percentile": (5.0, 10.0, 25.0, 50.0),
        "share": (0.1, 0.25, 0.5, 0.75, 1.0),
        "alpha": (0.0, 0.2, 0.5),
        "steps": (1, 2, 4, 8),
    }
    constraints = {"percentile": Interval(0, 50, above=True), "share": FRACTION, "alpha": FRACTION, "steps": AT_LEAST_0}

    def _prepare(self, training: TrainingData, context: Context) -> None:
        self.known_ = KnownNodes.of(training.view.graph, training.view.train)

    def _scorer(self, graph: Graph, outputs: Outputs, context: Context) -> Callable[[Tensor], Tensor]:
        edges = undirected(graph)
        group = self._group(edges, self._training_nodes(graph), outputs.logits)
        spread = self._spread(scores.msp(outputs.logits), edges, group)
        return lambda nodes: spread[nodes]

    def _training_nodes(self, graph: Graph) -> Tensor:
        """Those that are known again: in the graph that it was fitted to predict all, in another one by their ids."""
        if self.train_nodes_ is not None and self.graph_ is not None and graph.content == self.graph_.content:
            return self.train_nodes_
        numbers = self.known_.numbers_in(graph)
        return numbers[numbers >= 0]

    def _group(self, edges: SparseMatrix, train: Tensor, logits: Tensor) -> Tensor:
        """The nodes of G."""
        confidence = 1.0 - scores.msp(logits)
        others = torch.ones(len(logits), dtype=torch.bool)
        others[train] = False
        count = int(self.share * len(train))
        if not count or not bool(others.any()):
            return train[:count]
        low, high = np.percentile(confidence[others].numpy(), (self.percentile, 100.0 - self.percentile))
        pseudo = torch.stack([others & (confidence > high), others & (confidence < low)], 1).double()
        near = (edges @ pseudo)[train]
        return train[(near[:, 0] / (near[:, 1] + 1.0)).argsort(descending=True, stable=True)[:count]]

    def _spread(self, own: Tensor, edges: SparseMatrix, group: Tensor) -> Tensor:
        inside = torch.zeros_like(own)
        inside[group] = 1.0
        degree = edges.starts.diff().double() + len(group) * inside
        values = own
        for _ in range(self.steps):
            sums = (edges @ values[:, None]).squeeze(1) + inside * (inside @ values)
            values = torch.where(degree > 0, self.alpha * values + (1.0 - self.alpha) * sums / degree, values)
        return values

    def _state(self) -> dict[str, Tensor]:
        return self.known_.state()

    def _load_state(self, state: Mapping[str, Tensor]) -> None:
        self.known_ = KnownNodes.from_state(state)
