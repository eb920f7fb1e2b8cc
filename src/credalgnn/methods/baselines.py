"""Scores that need no model: what a user would try first, and not always weak."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from ..graphs import Graph
from ..runtime.context import Context
from .base import Method
from .chunks import SUMMED, absolute_sums, feature_chunks
from .prediction import Prediction, Predictor
from .training_data import TrainingData


@dataclass(kw_only=True, eq=False)
class Baseline(Method):
    """A score of the graph alone; it learns nothing and predicts no classes."""

    score_names = ("score",)
    is_baseline = True
    learns = False

    def _fit(self, training: TrainingData, context: Context) -> None:
        """Nothing to learn."""

    def _predictor(self, graph: Graph, context: Context) -> Predictor:
        score = self._score(graph)
        return lambda nodes: Prediction(nodes, {"score": score[nodes]}, "score", self.class_names)

    @abstractmethod
    def _score(self, graph: Graph) -> Tensor:
        """The scores of all nodes of a graph."""


@dataclass(kw_only=True, eq=False)
class FeatureSum(Baseline):
    """Minus the sum of absolute features: the fewer are active, the less is known."""

    name = "feature-sum"
    works_by_chunks = True

    def _score(self, graph: Graph) -> Tensor:
        return -torch.cat([absolute_sums(x) for _, x in feature_chunks(graph, SUMMED)])


@dataclass(kw_only=True, eq=False)
class Degree(Baseline):
    """Minus the number of edges that end at a node."""

    name = "degree"
    works_by_chunks = True

    def _score(self, graph: Graph) -> Tensor:
        return -graph.in_edges.starts.diff().double()
