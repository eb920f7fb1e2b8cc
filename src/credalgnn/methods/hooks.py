"""What a method of one's own may override, and what a method does that does not."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from torch import Tensor

from ..graphs import Graph
from ..nn.backbones import Features
from .answers import Predictor
from .components import Outputs
from .declarations import Declarations
from .given import Given
from .prediction import MethodError, Prediction

if TYPE_CHECKING:
    from .base import Method


class Hooks(Declarations, ABC):
    """What a method may override: ``_fit``, and ``_predict`` or ``_predictor``, and of the rest what it needs."""

    def _check(self) -> None:
        """Refuse hyper-parameters that cannot work; at construction, and again before training."""

    @abstractmethod
    def _fit(self, given: Given) -> None:
        """Learn from what is given; what is learnt goes into attributes that end with an underscore."""

    def _predict(self, graph: Graph, nodes: Tensor) -> Prediction:
        """Predict ``nodes`` (their numbers) of a graph, which has the features of training."""
        return self._predictor(graph)(nodes)

    def _predictor(self, graph: Graph) -> Predictor:
        """Predicts nodes of a graph, some at a time; what has to be computed for all of it is computed here, once.

        A method overrides this, or ``_predict``, if nothing is computed for the whole graph.
        """
        return partial(self._predict, graph)

    def _predict_held_out(self, graph: Graph, nodes: Tensor) -> Prediction:
        """Predict calibration nodes of the fitted graph as if they were nodes of another graph.

        A method whose models for other graphs have been told anything about these nodes overrides it.
        """
        return self._predict(graph, nodes)

    def _judges_alike(self, graph: Graph) -> bool:
        """Whether calibration nodes in a graph are judged as its other nodes of known classes are."""
        return True

    def _is_trained(self) -> bool:
        """Whether ``fit`` has nothing left to train: it then costs nothing, and looks at nothing either."""
        return False

    def _tensors(self) -> dict[str, Tensor]:
        """What ``fit`` has learnt, by name, to be saved; that of the methods this one is made of is saved by itself."""
        return {}

    def _restore(self, tensors: Mapping[str, Tensor]) -> None:
        """The inverse of ``_tensors``; ``class_names`` and ``num_features`` are known by then."""
        if tensors:
            raise KeyError(next(iter(tensors)))

    def _parts(self) -> dict[str, Method]:
        """The fitted methods this one is made of."""
        return {}

    def _adopt(self, parts: Mapping[str, Method]) -> None:
        """The inverse of ``_parts``."""

    @classmethod
    def not_overridden(cls) -> list[str]:
        """What it has to override and does not."""
        predicts = cls._predict is not Hooks._predict or cls._predictor is not Hooks._predictor
        return sorted({*cls.__abstractmethods__, *([] if predicts else ["_predict"])})

    def outputs(self, graph: Graph | None = None) -> Outputs:
        """Logits and latents of all nodes, on the CPU; of methods that have them (``has_outputs``).

        Args:
            graph: By default the fitted one.
        """
        raise MethodError(f"{type(self).__name__} has no logits and latents that others could stand on")

    def run(self, x: Features, graph: Graph) -> Outputs:
        """Logits and latents for other features, differentiable; of methods that are networks.

        Args:
            x: Features ``[N, F]``.
            graph: Whose edges to use.
        """
        raise MethodError(f"{type(self).__name__} has no gradients in the features: choose epsilon=0")

    @property
    def notes(self) -> tuple[str, ...]:
        """What is to be known of the last prediction, in sentences; of most methods nothing."""
        return tuple(note for part in self._parts().values() for note in part.notes)

    @property
    def diagnosis(self) -> Mapping[str, float] | None:
        """What ``fit`` found out about how far the method is to be trusted, by name; None for most methods."""
        return None

    def reasons(self, nodes: Tensor, graph: Graph | None = None) -> list[str] | None:
        """For each of some nodes, in a few words, why it is uncertain; None for most methods.

        Args:
            nodes: A mask or node numbers.
            graph: Their graph; by default the fitted one.
        """
        return None

    def nearest_labelled(self, nodes: Tensor, graph: Graph | None = None) -> Tensor | None:
        """The training nodes that are most like some nodes ``[n, 5]``, the nearest first; None for most methods.

        Args:
            nodes: A mask or node numbers.
            graph: Their graph; by default the fitted one.
        """
        return None
