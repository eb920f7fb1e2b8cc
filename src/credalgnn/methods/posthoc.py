"""Post-hoc methods: scores of a fitted model's outputs. Ten of them on one seed train one model."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from ..graphs import Graph
from ..nn import SparseMatrix
from ..nn.backbones import Features
from ..nn.layers import rows_of
from ..runtime.context import Context
from . import scores
from .base import CHUNK, Components, Method, Outputs, fitted_on
from .inputs import inputs
from .network import Vanilla
from .parameters import ABOVE_0, AT_LEAST_0, FRACTION
from .prediction import MethodError, Prediction, Predictor
from .training_data import TrainingData


@dataclass(kw_only=True, eq=False)
class OnModel(Method):
    """A method that is made of one fitted model and leaves its classes unchanged.

    Args:
        model: A fitted method, shared with its other holders; or a template, of which ``fit`` fits a clone
            (``model_``). By default a vanilla GNN with ``seed``.
        seed: Of the model, if none is given.
    """

    model: Method | None = None
    seed: int = 0

    components = Components("model", Vanilla)

    def _check(self) -> None:
        if self.model is not None and not isinstance(self.model, Method):
            raise MethodError(f"model must be a method, fitted or not, not {type(self.model).__name__}")

    def _fit(self, training: TrainingData, context: Context) -> None:
        self.model_ = fitted_on(self.model or Vanilla(seed=self.seed), training, context.replace(logits=True))
        self._prepare(training, context)

    @abstractmethod
    def _prepare(self, training: TrainingData, context: Context) -> None:
        """Learn what the method needs besides the fitted ``model_``."""


@dataclass(kw_only=True, eq=False)
class PostHoc(OnModel):
    """A score of the outputs (logits and latents) of a fitted model, which also gives the classes.

    Subclasses implement ``_scorer``, and ``_prepare`` if they learn anything from the training nodes.

    Args:
        model: A fitted method that has outputs, shared with its other holders; or a template, of which ``fit``
            fits a clone (``model_``). By default a vanilla GNN with ``seed``.
        seed: Of the model, if none is given.
    """

    def _check(self) -> None:
        super()._check()
        check_outputs(self.model)

    def _prepare(self, training: TrainingData, context: Context) -> None:
        """Learn from the training nodes what the score needs; most scores need nothing."""

    def _predictor(self, graph: Graph, context: Context) -> Predictor:
        outputs = self._scored(graph, context)
        score, headline = self._scorer(graph, outputs, context), self.score_names[0]

        def predict(nodes: Tensor) -> Prediction:
            probabilities = outputs.logits[nodes].double().softmax(-1)
            return Prediction(nodes, {headline: score(nodes)}, headline, self.class_names, probabilities)

        return predict

    def _scored(self, graph: Graph, context: Context) -> Outputs:
        """What is scored: the outputs of the model, whose logits give the probabilities."""
        return self.model_._outputs(graph, context)

    @abstractmethod
    def _scorer(self, graph: Graph, outputs: Outputs, context: Context) -> Callable[[Tensor], Tensor]:
        """Return a function of node numbers that scores them; what is needed of all nodes is computed here, once."""

    def _nudged(self, graph: Graph, epsilon: float, confidence: Callable[[Outputs], Tensor]) -> Outputs:
        """Outputs after a step of ``epsilon`` along the sign of the confidence's gradient in the features.

        The confidences of all nodes are summed and all features moved at once: on a graph a node's features speak for
        its neighbours too.
        """
        forward: Callable[[Features, Graph], Outputs] | None = getattr(self.model_, "forward_features", None)
        if forward is None:
            raise MethodError(f"{type(self.model_).__name__} has no gradients in the features: choose epsilon=0")
        x, _ = inputs(graph, getattr(self.model_, "device", "cpu"))
        with torch.enable_grad():
            dense = (x.to_dense() if isinstance(x, SparseMatrix) else x.clone()).requires_grad_()
            (gradient,) = torch.autograd.grad(confidence(forward(dense, graph)).sum(), dense)
        outputs = forward(dense.detach().add_(gradient.sign_(), alpha=epsilon), graph)
        return Outputs(outputs.logits.cpu(), [z.to("cpu") for z in outputs.latents])


def check_outputs(model: Method | None) -> None:
    if model is not None and not model.has_outputs:
        raise MethodError(f"model must have logits and latents, which {type(model).__name__} has not")


@dataclass(kw_only=True, eq=False)
class Energy(PostHoc):
    """``-T logsumexp(logits / T)`` (Liu et al. 2020).

    Args:
        temperature: T.
    """

    temperature: float = 1.0

    name = "energy"
    works_by_chunks = True
    score_names = ("energy",)
    search_space = {"temperature": (1.0, 10.0, 100.0, 1000.0)}
    constraints = {"temperature": ABOVE_0}

    def _scorer(self, graph: Graph, outputs: Outputs, context: Context) -> Callable[[Tensor], Tensor]:
        return lambda nodes: scores.energy(outputs.logits[nodes], self.temperature)


@dataclass(kw_only=True, eq=False)
class GNNSafe(Energy):
    """Energy after some steps of belief propagation (Wu et al. 2023).

    Args:
        alpha: The share of its own energy that a node keeps in a step.
        steps: How often energies are spread along edges.
    """

    alpha: float = 0.5
    steps: int = 2

    name = "gnnsafe"
    search_space = {"steps": (1, 2, 4, 8, 16), "alpha": (0.1, 0.3, 0.5, 0.7, 0.9)}
    constraints = {"alpha": FRACTION, "steps": AT_LEAST_0}

    def _scorer(self, graph: Graph, outputs: Outputs, context: Context) -> Callable[[Tensor], Tensor]:
        own = [scores.energy(part, self.temperature) for part in torch.split(outputs.logits, CHUNK)]
        spread = scores.propagate(torch.cat(own), graph, self.alpha, self.steps)
        return lambda nodes: spread[nodes]


@dataclass(kw_only=True, eq=False)
class Odin(PostHoc):
    """Tempered softmax after a small step of the features towards the predicted class (Liang et al. 2018).

    Args:
        temperature: Of the softmax.
        epsilon: Size of the step; 0: none.
    """

    temperature: float = 1000.0
    epsilon: float = 0.0014

    name = "odin"
    score_names = ("odin",)
    search_space = {
        "temperature": (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0),
        "epsilon": tuple(round(0.0002 * step, 4) for step in range(21)),
    }
    constraints = {"temperature": ABOVE_0, "epsilon": AT_LEAST_0}

    def _scorer(self, graph: Graph, outputs: Outputs, context: Context) -> Callable[[Tensor], Tensor]:
        if self.epsilon:
            outputs = self._nudged(graph, self.epsilon, self._log_confidence)
        return lambda nodes: scores.odin(outputs.logits[nodes], self.temperature)

    def _log_confidence(self, outputs: Outputs) -> Tensor:
        return (outputs.logits.double() / self.temperature).log_softmax(-1).amax(-1)


@dataclass(kw_only=True, eq=False)
class Mahalanobis(PostHoc):
    """Distance to the nearest class mean under one covariance for all classes (Lee et al. 2018).

    The original's ensemble over layers, which needs OOD nodes to be weighted, is left out.

    Args:
        layer: Which latent: 0 the features, -1 the last.
        epsilon: Size of the original's input step towards that class; 0: none.
    """

    layer: int = -1
    epsilon: float = 0.0

    name = "mahalanobis"
    works_by_chunks = True
    score_names = ("distance",)
    search_space = {"epsilon": (0.0, 0.0005, 0.001, 0.0014, 0.002, 0.005, 0.01)}
    constraints = {"epsilon": AT_LEAST_0}

    def _prepare(self, training: TrainingData, context: Context) -> None:
        view = training.view
        outputs = self.model_._outputs(view.graph, context)
        count = len(outputs.latents)
        if not -count <= self.layer < count:
            raise MethodError(f"layer {self.layer} does not exist: the latents are 0 (features) to {count - 1}")
        try:
            self.gaussians_ = scores.fit_gaussians(
                self._latent(outputs, view.train), view.graph.labels[view.train], view.num_classes
            )
        except ValueError as error:
            raise MethodError(f"mahalanobis: {error}") from None

    def _latent(self, outputs: Outputs, nodes: Tensor) -> Tensor:
        """What distances are measured in, at some nodes."""
        z = rows_of(outputs.latents[self.layer], nodes)
        return z.to_dense() if isinstance(z, SparseMatrix) else z

    def _scorer(self, graph: Graph, outputs: Outputs, context: Context) -> Callable[[Tensor], Tensor]:
        if self.epsilon:
            outputs = self._nudged(graph, self.epsilon, lambda outputs: -self._distance(outputs))

        def score(nodes: Tensor) -> Tensor:
            parts = (self._latent(outputs, part) for part in torch.split(nodes, scores.ROWS))
            return torch.cat([scores.gaussian_distance(self.gaussians_, part) for part in parts])

        return score

    def _distance(self, outputs: Outputs) -> Tensor:
        return scores.gaussian_distance(self.gaussians_, self._latent(outputs, torch.arange(len(outputs.logits))))

    def _state(self) -> dict[str, Tensor]:
        return self.gaussians_._asdict()

    def _load_state(self, state: Mapping[str, Tensor]) -> None:
        self.gaussians_ = scores.Gaussians(**state)
