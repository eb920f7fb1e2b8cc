"""Baseline scores that need no model."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from ..graphs import Graph
from ..runtime.context import Context
from .base import Method
from .inputs import SUMMED, absolute_sums, feature_chunks
from .prediction import Prediction, Predictor
from .training_data import TrainingData


@dataclass(kw_only=True, eq=False)
class Baseline(Method):
    """Base of scores of the graph alone, which learn nothing and predict no classes."""

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
        """Return the scores of all nodes of a graph."""


@dataclass(kw_only=True, eq=False)
class FeatureSum(Baseline):
    """Minus the sum of absolute features: nodes with few active features are uncertain.

    Example:
        >>> FeatureSum().fit(task).predict().score
    """

    name = "feature-sum"
    works_by_chunks = True

    def _score(self, graph: Graph) -> Tensor:
        return -torch.cat([absolute_sums(x) for _, x in feature_chunks(graph, SUMMED)])


@dataclass(kw_only=True, eq=False)
class Degree(Baseline):
    """Minus the in-degree: nodes with few in-edges are uncertain.

    Example:
        >>> Degree().fit(task).predict().score
    """

    name = "degree"
    works_by_chunks = True

    def _score(self, graph: Graph) -> Tensor:
        return -graph.in_edges.starts.diff().double()
