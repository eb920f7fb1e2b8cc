"""Post-hoc methods: scores of a fitted model's outputs. Ten of them on one seed train one model."""

from __future__ import annotations

import math
import warnings
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import InitVar, dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..graphs import Graph
from ..nn import SparseMatrix
from ..nn.backbones import Features
from . import scores
from .base import Method
from .components import Components, Outputs
from .given import Given
from .inputs import inputs
from .neighbours import NeighbourBank, check_search, rows_of
from .network import Vanilla
from .prediction import MethodError, Prediction
from .search_space import Space


def fitted_on(given: Given, model: Method) -> Method:
    """A model that is fitted on what is given: itself, if it is fitted, or a clone of it that is fitted now.

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
            warnings.warn(f"{type(self).__name__}: vanilla= is now model=", DeprecationWarning, stacklevel=3)
            self.model = vanilla
        super().__post_init__()

    def _check(self) -> None:
        if self.model is not None and not isinstance(self.model, Method):
            raise MethodError(f"model must be a method, fitted or not, not {type(self.model).__name__}")

    def _fit(self, given: Given) -> None:
        self.model_ = fitted_on(given, self.model or Vanilla(seed=self.seed))
        self._prepare(given)

    @abstractmethod
    def _prepare(self, given: Given) -> None:
        """Learn what the method needs besides the fitted ``model_``."""

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

    def _predict(self, graph: Graph, nodes: Tensor) -> Prediction:
        outputs = self._outputs(graph)
        score = self._score(graph, outputs, nodes)
        probabilities = outputs.logits[nodes].double().softmax(-1)
        headline = self.score_names[0]
        return Prediction(nodes, {headline: score}, headline, self.class_names, probabilities)

    def _outputs(self, graph: Graph) -> Outputs:
        """What is scored: the outputs of the model, whose logits give the probabilities."""
        return self.model_.outputs(graph)

    @abstractmethod
    def _score(self, graph: Graph, outputs: Outputs, nodes: Tensor) -> Tensor:
        """The scores of ``nodes``, given the outputs for all nodes of the graph."""

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
        own = scores.energy(outputs.logits, self.temperature)
        return scores.propagate(own, graph.edge_index, self.alpha, self.steps)[nodes]


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
        if self.epsilon:
            outputs = self._nudged(graph, self.epsilon, self._log_confidence)
        return scores.odin(outputs.logits[nodes], self.temperature)

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
                self._latent(outputs)[view.train], view.graph.labels[view.train], view.num_classes
            )
        except ValueError as error:
            raise MethodError(f"mahalanobis: {error}") from None

    def _latent(self, outputs: Outputs) -> Tensor:
        """What distances are measured in."""
        z = outputs.latents[self.layer]
        return z.to_dense() if isinstance(z, SparseMatrix) else z

    def _score(self, graph: Graph, outputs: Outputs, nodes: Tensor) -> Tensor:
        if self.epsilon:
            outputs = self._nudged(graph, self.epsilon, lambda outputs: -self._distance(outputs))
        return scores.gaussian_distance(self.gaussians_, self._latent(outputs)[nodes])

    def _distance(self, outputs: Outputs) -> Tensor:
        return scores.gaussian_distance(self.gaussians_, self._latent(outputs))

    def _tensors(self) -> dict[str, Tensor]:
        return self.gaussians_._asdict()

    def _restore(self, tensors: Mapping[str, Tensor]) -> None:
        self.gaussians_ = scores.Gaussians(**tensors)


@dataclass(kw_only=True, eq=False)
class KNN(PostHoc):
    """Mean distance to the ``k`` nearest training nodes in the last latent.

    Above ``neighbours.EXACT_UP_TO`` training nodes neighbours are approximate, and ``recall`` says how many are found.

    Args:
        k: Neighbours.
        kth: Take the k-th distance, as the original (Sun et al. 2022) does, not the mean of k.
        normalize: Scale vectors to length 1 first, as the original does.
    """

    k: int = 10
    kth: bool = False
    normalize: bool = False

    name = "knn"
    score_names = ("distance",)
    search_space = {"k": (1, 10, 20, 50, 100, 200, 500, 1000, 3000, 5000)}
    joint: ClassVar[bool] = False

    @classmethod
    def space(cls, num_train: int) -> Space:
        """Without more neighbours than there are training nodes.

        Args:
            num_train: The task's number of training nodes.
        """
        neighbours = cls.search_space["k"]
        assert isinstance(neighbours, tuple)
        return {**cls.search_space, "k": tuple(k for k in neighbours if k <= num_train)}

    def _check(self) -> None:
        super()._check()
        if self.k < 1:
            raise MethodError(f"k must be at least 1, not {self.k}")

    @property
    def recall(self) -> float | None:
        """The share of true neighbours found in the last prediction; None where the search is exact."""
        return self.bank_.recall if self.is_fitted else None

    def _fit(self, given: Given) -> None:
        if self.k > len(given.view.train):
            raise MethodError(f"k = {self.k} neighbours, but there are {len(given.view.train)} training nodes: lower k")
        check_search(len(given.view.train))
        super()._fit(given)

    def _prepare(self, given: Given) -> None:
        latents = self._space(self.model_.outputs(given.view.graph).latents)
        self.bank_ = NeighbourBank([rows_of(z, given.view.train) for z in latents], self.normalize)

    def _space(self, latents: list[Features]) -> list[Features]:
        return latents if self.joint else latents[-1:]

    def _score(self, graph: Graph, outputs: Outputs, nodes: Tensor) -> Tensor:
        return self.bank_.distance([rows_of(z, nodes) for z in self._space(outputs.latents)], self.k, self.kth)

    def _tensors(self) -> dict[str, Tensor]:
        tensors = {}
        for number, part in enumerate(self.bank_.parts):
            if isinstance(part, Tensor):
                tensors[f"bank.{number}"] = part
            else:
                stored = part.starts, part.columns, part.values, torch.tensor(part.shape)
                tensors.update({f"bank.{number}.{name}": t for name, t in zip(_CSR, stored, strict=True)})
        return tensors

    def _restore(self, tensors: Mapping[str, Tensor]) -> None:
        parts: list[Features] = []
        for number in range(len({name.split(".")[1] for name in tensors})):
            if f"bank.{number}" in tensors:
                parts.append(tensors[f"bank.{number}"])
                continue
            starts, columns, values, shape = (tensors[f"bank.{number}.{name}"] for name in _CSR)
            rows, width = shape.tolist()
            parts.append(SparseMatrix(starts, columns, values, (rows, width)).checked())
        if any(len(part.shape) != 2 or len(part) != len(parts[0]) for part in parts):
            raise ValueError("the latents of training nodes are not one row a node")
        self.bank_ = NeighbourBank(parts, self.normalize)


@dataclass(kw_only=True, eq=False)
class KNNLJ(KNN):
    """As ``KNN``, in the joint latent ``[z0 | z1 | .. | zL]``: the paper's ablation without a credal layer."""

    name = "knn-lj"
    search_space = {"k": (5, 10, 20, 50, 100, 200)}
    joint = True


_CSR = ("starts", "columns", "values", "shape")
