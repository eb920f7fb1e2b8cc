"""Post-hoc methods: scores of a fitted vanilla GNN's outputs. Ten of them on one seed train one backbone."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, cast

import torch
from torch import Tensor

from ..graphs import Graph
from ..nn import SparseMatrix
from ..nn.backbones import Features
from . import scores
from .base import Given, Method, inputs
from .neighbours import NeighbourBank, check_search, rows_of
from .neural import Outputs, Vanilla
from .prediction import MethodError, Prediction


def fitted_on(given: Given, vanilla: Vanilla) -> Vanilla:
    """The vanilla GNN, fitted on what is given: fitted now, in place, if it was not; refused if on something else."""
    if not vanilla.is_fitted:
        vanilla._learn(given)
    elif given.validation is None and _stopped_by_strangers(vanilla):
        raise MethodError(
            "OOD validation nodes decided when this vanilla GNN stopped ('ood_auroc'), against the sealed protocol: "
            "fit(task, protocol='paper'), or give one with another monitor"
        )
    elif vanilla.fingerprint != given.view.fingerprint:
        raise MethodError(
            "the vanilla GNN was fitted on another task or split: a post-hoc method would be scored on nodes that its "
            "backbone was trained on; fit it on this task, or give an unfitted one"
        )
    return vanilla


def _stopped_by_strangers(method: Method) -> bool:
    """Whether OOD validation nodes decided when the method, or one that it is made of, stopped."""
    return getattr(method, "monitor", None) == "ood_auroc" or any(map(_stopped_by_strangers, method._parts().values()))


@dataclass(kw_only=True, eq=False)
class PostHoc(Method):
    """A score of a vanilla GNN's outputs, which also gives the classes.

    ``vanilla`` may be fitted already, or is fitted in place, and then serves all who hold it; by default a new one is
    made with ``seed``.
    """

    vanilla: Vanilla | None = None
    seed: int = 0

    def _check(self) -> None:
        if self.vanilla is not None and not isinstance(self.vanilla, Vanilla):
            raise MethodError(f"vanilla must be a Vanilla method, fitted or not, not {type(self.vanilla).__name__}")

    def _fit(self, given: Given) -> None:
        self.vanilla_ = fitted_on(given, self.vanilla or Vanilla(seed=self.seed))
        self._prepare(given)

    def _prepare(self, given: Given) -> None:
        """Take from the training nodes what the score needs."""

    def _predict(self, graph: Graph, nodes: Tensor) -> Prediction:
        outputs = self.vanilla_.outputs(graph)
        found = self._score(graph, outputs, nodes)
        probabilities = outputs.logits[nodes].double().softmax(-1)
        headline = self.score_names[0]
        return Prediction(nodes, {headline: found}, headline, self.class_names, probabilities)

    @abstractmethod
    def _score(self, graph: Graph, outputs: Outputs, nodes: Tensor) -> Tensor:
        """The scores of ``nodes``, given the outputs for all nodes of the graph."""

    def _nudged(self, graph: Graph, epsilon: float, confidence: Callable[[Outputs], Tensor]) -> Outputs:
        """Outputs after a step of ``epsilon`` along the sign of the confidence's gradient in the features.

        The confidences of all nodes are summed and all features moved at once: on a graph a node's features speak for
        its neighbours too.
        """
        x, _ = inputs(graph, self.vanilla_.device)
        with torch.enable_grad():
            dense = (x.to_dense() if isinstance(x, SparseMatrix) else x.clone()).requires_grad_()
            (gradient,) = torch.autograd.grad(confidence(self.vanilla_.run(dense, graph)).sum(), dense)
        outputs = self.vanilla_.run(dense.detach().add_(gradient.sign_(), alpha=epsilon), graph)
        return Outputs(outputs.logits.cpu(), [z.to("cpu") for z in outputs.latents])

    def _parts(self) -> dict[str, Method]:
        return {"vanilla": self.vanilla_}

    def _adopt(self, parts: Mapping[str, Method]) -> None:
        self.vanilla = self.vanilla_ = cast(Vanilla, parts["vanilla"])


def check_positive(name: str, value: float) -> None:
    if not 0.0 < value < math.inf:
        raise MethodError(f"{name} must be above 0, not {value}")


def check_epsilon(epsilon: float) -> None:
    if not 0.0 <= epsilon < math.inf:
        raise MethodError(f"epsilon must be 0 (no perturbation) or above, not {epsilon}")


@dataclass(kw_only=True, eq=False)
class Energy(PostHoc):
    """``-T logsumexp(logits / T)`` (Liu et al. 2020)."""

    temperature: float = 1.0

    name = "energy"
    score_names = ("energy",)

    def _check(self) -> None:
        super()._check()
        check_positive("temperature", self.temperature)

    def _score(self, graph: Graph, outputs: Outputs, nodes: Tensor) -> Tensor:
        return scores.energy(outputs.logits[nodes], self.temperature)


@dataclass(kw_only=True, eq=False)
class GNNSafe(Energy):
    """Energy after ``steps`` of belief propagation that keep ``alpha`` of a node's own (Wu et al. 2023)."""

    alpha: float = 0.5
    steps: int = 2

    name = "gnnsafe"

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
    """Tempered softmax after a small step of the features towards the predicted class (Liang et al. 2018)."""

    temperature: float = 1000.0
    epsilon: float = 0.0014

    name = "odin"
    score_names = ("odin",)

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

    ``layer`` names the latent (0 the features, -1 the last). ``epsilon`` is the size of the original's input step
    towards that class; its ensemble over layers, which needs OOD nodes to be weighted, is left out.
    """

    layer: int = -1
    epsilon: float = 0.0

    name = "mahalanobis"
    score_names = ("distance",)

    def _check(self) -> None:
        super()._check()
        check_epsilon(self.epsilon)

    def _prepare(self, given: Given) -> None:
        view = given.view
        latents = self.vanilla_.outputs(view.graph).latents
        if not -len(latents) <= self.layer < len(latents):
            raise MethodError(f"layer {self.layer} does not exist: the latents are 0 (features) to {len(latents) - 1}")
        try:
            self.gaussians_ = scores.fit_gaussians(
                self._latent(latents)[view.train], view.graph.labels[view.train], view.num_classes
            )
        except ValueError as error:
            raise MethodError(f"mahalanobis: {error}") from None

    def _latent(self, latents: list[Features]) -> Tensor:
        z = latents[self.layer]
        return z.to_dense() if isinstance(z, SparseMatrix) else z

    def _score(self, graph: Graph, outputs: Outputs, nodes: Tensor) -> Tensor:
        if self.epsilon:
            outputs = self._nudged(graph, self.epsilon, lambda found: -self._distance(found))
        return scores.gaussian_distance(self.gaussians_, self._latent(outputs.latents)[nodes])

    def _distance(self, outputs: Outputs) -> Tensor:
        return scores.gaussian_distance(self.gaussians_, self._latent(outputs.latents))

    def _tensors(self) -> dict[str, Tensor]:
        return self.gaussians_._asdict()

    def _restore(self, tensors: Mapping[str, Tensor]) -> None:
        self.gaussians_ = scores.Gaussians(**tensors)


@dataclass(kw_only=True, eq=False)
class KNN(PostHoc):
    """Mean distance to the ``k`` nearest training nodes in the last latent.

    The original (Sun et al. 2022) takes the k-th distance (``kth``) between vectors of length 1 (``normalize``). Above
    ``neighbours.EXACT_UP_TO`` training nodes neighbours are approximate, and ``recall`` says how many are found.
    """

    k: int = 10
    kth: bool = False
    normalize: bool = False

    name = "knn"
    score_names = ("distance",)
    joint: ClassVar[bool] = False

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
        latents = self._space(self.vanilla_.outputs(given.view.graph).latents)
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
            parts.append(SparseMatrix(starts, columns, values, (rows, width)))
        self.bank_ = NeighbourBank(parts, self.normalize)


@dataclass(kw_only=True, eq=False)
class KNNLJ(KNN):
    """As ``KNN``, in the joint latent ``[z0 | z1 | .. | zL]``: the paper's ablation without a credal layer."""

    name = "knn-lj"
    joint = True


_CSR = ("starts", "columns", "values", "shape")
