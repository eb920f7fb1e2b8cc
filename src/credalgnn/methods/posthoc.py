"""Post-hoc methods: scores of a fitted model's outputs. Ten of them on one seed train one model."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import InitVar, dataclass
from functools import partial

import torch
from torch import Tensor

from ..graphs import Graph
from ..nn import SparseMatrix
from ..nn.layers import rows_of
from . import scores
from .answers import CHUNK, Predictor, last_of
from .base import Method
from .components import Components, Outputs
from .given import Given
from .inputs import inputs
from .network import Vanilla
from .prediction import MethodError, Prediction
from .warn import warn_caller


def fitted_on(given: Given, model: Method) -> Method:
    """A model that is fitted on what is given: itself, if it is fitted, or a clone of it that is fitted now.

    The memory that is given, and the cluster, are from now on those of a fitted model, too.

    Args:
        given: What the method above it learns from; a model fitted on something else is refused.
        model: A fitted method, which is shared with whoever else holds it, or a template.
    """
    if not model.is_fitted:
        model = model.clone()
        model._learn(given)
    elif given.validation is None and _stopped_by_ood_nodes(model):
        raise MethodError(
            f"OOD validation nodes decided when this {model.name} stopped ('ood_auroc'), against the sealed protocol: "
            "fit(task, protocol='paper'), or give one with another monitor"
        )
    elif model.fingerprint != given.view.fingerprint:
        raise MethodError(
            f"the {model.name} was fitted on another task or split: a post-hoc method would be scored on nodes that "
            "its model was trained on; fit it on this task, or give an unfitted one"
        )
    else:
        if given.memory is not None:
            model._allow(given.memory)
        if given.cluster is not None:
            model._let_help(given.cluster)
    return model


def _stopped_by_ood_nodes(method: Method) -> bool:
    """Whether OOD validation nodes decided when the method, or one that it is made of, stopped."""
    return getattr(method, "monitor", None) == "ood_auroc" or any(map(_stopped_by_ood_nodes, method._parts().values()))


@dataclass(kw_only=True, eq=False)
class OnModel(Method):
    """A method that stands on one fitted model and leaves its classes as they are.

    Args:
        model: A fitted method, shared with whoever else holds it; or a template, of which ``fit`` fits a clone
            (``model_``). By default a vanilla GNN with ``seed``.
        seed: Of the model, if none is given.
        vanilla: Deprecated name of ``model``.
    """

    model: Method | None = None
    seed: int = 0
    vanilla: InitVar[Method | None] = None

    components = Components("model", Vanilla)

    def __post_init__(self, vanilla: Method | None) -> None:
        if isinstance(vanilla, Method):
            warn_caller(f"{type(self).__name__}: vanilla= is now model=", DeprecationWarning)
            self.model = vanilla
        super().__post_init__()

    def _check(self) -> None:
        if self.model is not None and not isinstance(self.model, Method):
            raise MethodError(f"model must be a method, fitted or not, not {type(self.model).__name__}")

    def _fit(self, given: Given) -> None:
        self.model_ = fitted_on(given._replace(logits=True), self.model or Vanilla(seed=self.seed))
        self._prepare(given)

    @abstractmethod
    def _prepare(self, given: Given) -> None:
        """Learn what the method needs besides the fitted ``model_``."""

    def check_chunks(self) -> None:
        super().check_chunks()
        if self.model is not None:
            self.model.check_chunks()

    def _parts(self) -> dict[str, Method]:
        return {"model": self.model_}

    def _adopt(self, parts: Mapping[str, Method]) -> None:
        self.model = self.model_ = parts["model"]


@dataclass(kw_only=True, eq=False)
class PostHoc(OnModel):
    """A score of the outputs (logits and latents) of a fitted model, which also gives the classes.

    One of one's own overrides ``_score``, and ``_prepare`` if it learns anything from the training nodes.

    Args:
        model: A fitted method that has outputs, shared with whoever else holds it; or a template, of which ``fit``
            fits a clone (``model_``). By default a vanilla GNN with ``seed``.
        seed: Of the model, if none is given.
    """

    def _check(self) -> None:
        super()._check()
        check_outputs(self.model)

    def _prepare(self, given: Given) -> None:
        """Learn from the training nodes what the score needs; most scores need nothing."""

    def _predictor(self, graph: Graph) -> Predictor:
        outputs = self._outputs(graph)
        whole = last_of(self, "_scorer", "_score") == "_scorer"
        score = self._scorer(graph, outputs) if whole else partial(self._score, graph, outputs)
        headline = self.score_names[0]

        def predict(nodes: Tensor) -> Prediction:
            probabilities = outputs.logits[nodes].double().softmax(-1)
            return Prediction(nodes, {headline: score(nodes)}, headline, self.class_names, probabilities)

        return predict

    def _outputs(self, graph: Graph) -> Outputs:
        """What is scored: the outputs of the model, whose logits give the probabilities."""
        return self.model_.outputs(graph)

    @abstractmethod
    def _score(self, graph: Graph, outputs: Outputs, nodes: Tensor) -> Tensor:
        """The scores of ``nodes``, given the outputs for all nodes of the graph."""

    def _scorer(self, graph: Graph, outputs: Outputs) -> Callable[[Tensor], Tensor]:
        """Gives the scores of some nodes at a time; what a score needs of all nodes is computed here, once."""
        return lambda nodes: self._score(graph, outputs, nodes)

    def _nudged(self, graph: Graph, epsilon: float, confidence: Callable[[Outputs], Tensor]) -> Outputs:
        """Outputs after a step of ``epsilon`` along the sign of the confidence's gradient in the features.

        The confidences of all nodes are summed and all features moved at once: on a graph a node's features speak for
        its neighbours too.
        """
        x, _ = inputs(graph, getattr(self.model_, "device", "cpu"))
        with torch.enable_grad():
            dense = (x.to_dense() if isinstance(x, SparseMatrix) else x.clone()).requires_grad_()
            (gradient,) = torch.autograd.grad(confidence(self.model_.run(dense, graph)).sum(), dense)
        outputs = self.model_.run(dense.detach().add_(gradient.sign_(), alpha=epsilon), graph)
        return Outputs(outputs.logits.cpu(), [z.to("cpu") for z in outputs.latents])


def check_outputs(model: Method | None) -> None:
    if model is not None and not model.has_outputs:
        raise MethodError(f"model must have logits and latents, which {type(model).__name__} has not")


def check_positive(name: str, value: float) -> None:
    if not 0.0 < value < math.inf:
        raise MethodError(f"{name} must be above 0, not {value}")


def check_epsilon(epsilon: float) -> None:
    if not 0.0 <= epsilon < math.inf:
        raise MethodError(f"epsilon must be 0 (no perturbation) or above, not {epsilon}")


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

    def _check(self) -> None:
        super()._check()
        check_positive("temperature", self.temperature)

    def _score(self, graph: Graph, outputs: Outputs, nodes: Tensor) -> Tensor:
        return scores.energy(outputs.logits[nodes], self.temperature)


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

    def _check(self) -> None:
        super()._check()
        if not 0.0 <= self.alpha <= 1.0:
            raise MethodError(f"alpha must be between 0 and 1, not {self.alpha}")
        if self.steps < 0:
            raise MethodError(f"steps must be 0 or more, not {self.steps}")

    def _score(self, graph: Graph, outputs: Outputs, nodes: Tensor) -> Tensor:
        return self._scorer(graph, outputs)(nodes)

    def _scorer(self, graph: Graph, outputs: Outputs) -> Callable[[Tensor], Tensor]:
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

    def _check(self) -> None:
        super()._check()
        check_positive("temperature", self.temperature)
        check_epsilon(self.epsilon)

    def _score(self, graph: Graph, outputs: Outputs, nodes: Tensor) -> Tensor:
        return self._scorer(graph, outputs)(nodes)

    def _scorer(self, graph: Graph, outputs: Outputs) -> Callable[[Tensor], Tensor]:
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

    def _check(self) -> None:
        super()._check()
        check_epsilon(self.epsilon)

    def _prepare(self, given: Given) -> None:
        view = given.view
        outputs = self.model_.outputs(view.graph)
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

    def _score(self, graph: Graph, outputs: Outputs, nodes: Tensor) -> Tensor:
        return self._scorer(graph, outputs)(nodes)

    def _scorer(self, graph: Graph, outputs: Outputs) -> Callable[[Tensor], Tensor]:
        if self.epsilon:
            outputs = self._nudged(graph, self.epsilon, lambda outputs: -self._distance(outputs))

        def score(nodes: Tensor) -> Tensor:
            parts = (self._latent(outputs, part) for part in torch.split(nodes, scores.ROWS))
            return torch.cat([scores.gaussian_distance(self.gaussians_, part) for part in parts])

        return score

    def _distance(self, outputs: Outputs) -> Tensor:
        return scores.gaussian_distance(self.gaussians_, self._latent(outputs, torch.arange(len(outputs.logits))))

    def check_chunks(self) -> None:
        super().check_chunks()
        if self.epsilon:
            raise MethodError(
                "mahalanobis with a step of the features needs the whole graph in memory, and this one does not fit: "
                "choose epsilon=0"
            )

    def _tensors(self) -> dict[str, Tensor]:
        return self.gaussians_._asdict()

    def _restore(self, tensors: Mapping[str, Tensor]) -> None:
        self.gaussians_ = scores.Gaussians(**tensors)
