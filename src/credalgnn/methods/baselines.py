"""Scores that need no model: what a user would try first, and not always weak."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from ..graphs import Graph
from ..nn import SparseMatrix
from .base import Method
from .given import Given
from .inputs import inputs
from .prediction import Prediction


@dataclass(kw_only=True, eq=False)
class Baseline(Method):
    """A score of the graph alone; it learns nothing and predicts no classes."""

    score_names = ("score",)
    is_baseline = True

    def _fit(self, given: Given) -> None:
        """Nothing to learn."""

    def _predict(self, graph: Graph, nodes: Tensor) -> Prediction:
        return Prediction(nodes, {"score": self._score(graph)[nodes]}, "score", self.class_names)

    @abstractmethod
    def _score(self, graph: Graph) -> Tensor:
        """The scores of all nodes of a graph."""


@dataclass(kw_only=True, eq=False)
class FeatureSum(Baseline):
    """Minus the sum of absolute features: the fewer are active, the less is known."""

    name = "feature-sum"

    def _score(self, graph: Graph) -> Tensor:
        x, _ = inputs(graph)
        if isinstance(x, SparseMatrix):
            return -x.map(lambda values: values.double().abs()).row_sums()
        return -x.double().abs().sum(1)


@dataclass(kw_only=True, eq=False)
class Degree(Baseline):
    """Minus the number of edges that end at a node."""

    name = "degree"

    def _score(self, graph: Graph) -> Tensor:
        return -torch.bincount(graph.edge_index[1], minlength=graph.num_nodes).double()
