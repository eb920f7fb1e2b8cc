"""Post-hoc methods: scores of a fitted model's outputs. Several of them with one seed share one model."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..graphs import Graph
from ..nn import Classifier, Monitor, RngScope, Schedule, SparseMatrix, Supervision, TrainingError, train
from ..nn.backbones import Features
from ..nn.training import Epoch, Output
from ..runtime.context import Context
from ..runtime.errors import translated
from . import scores
from .base import CHUNK, Components, Method, Outputs, fitted_on
from .calibration import KnownNodes
from .inputs import inputs, undirected
from .network import Vanilla
from .parameters import ABOVE_0, AT_LEAST_0, FRACTION, Interval
from .prediction import MethodError, Prediction, Predictor
from .training_data import TrainingData


@dataclass(kw_only=True, eq=False)
class OnModel(Method):
    """Base of methods made of one fitted model whose classes they leave unchanged.

    Args:
        model: A fitted method, shared with its other holders; or a template, of which ``fit`` fits a clone
            (``model_``). Default None: a vanilla GNN with ``seed``.
        seed: Seed of the default model, default 0.
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
    """Base of scores of the outputs (logits and latents) of a fitted model, which also gives the classes.

    Subclasses implement ``_scorer``, and ``_prepare`` if they learn anything from the training nodes.

    Args:
        model: A fitted method with outputs, shared with its other holders; or a template, of which ``fit`` fits a
            clone (``model_``). Default None: a vanilla GNN with ``seed``.

    Example:
        >>> class MaxLogit(PostHoc):
        ...     name, score_names = "max-logit", ("score",)
        ...     def _scorer(self, graph, outputs, context):
        ...         return lambda nodes: -outputs.logits[nodes].double().amax(-1)
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
        """Return the outputs to score; their logits also give the probabilities."""
        return self.model_._outputs(graph, context)

    @abstractmethod
    def _scorer(self, graph: Graph, outputs: Outputs, context: Context) -> Callable[[Tensor], Tensor]:
        """Return a function from node numbers to scores; compute here, once, what is needed of all nodes."""

    def _nudged(self, graph: Graph, epsilon: float, confidence: Callable[[Outputs], Tensor]) -> Outputs:
        """Outputs after a step of ``epsilon`` along the sign of the confidence's gradient in the features.

        The confidences of all nodes are summed and all features moved at once, since on a graph a node's features also
        influence its neighbours.
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
    """Refuse a model without outputs."""
    if model is not None and not model.has_outputs:
        raise MethodError(f"model must have logits and latents; {type(model).__name__} has none")


def train_module(
    method: Any,
    module: Classifier,
    data: Supervision,
    loss: Callable[[Output, Tensor], Tensor],
    monitor: Monitor,
    draws: RngScope,
    context: Context,
) -> list[Epoch]:
    """Train a module on a fitted model's outputs with the method's hyper-parameters."""
    schedule = Schedule(method.lr, method.weight_decay, method.epochs, method.patience)
    with translated(TrainingError, lambda error: TrainingError(f"{method.name}, seed {method.seed}: {error}")):
        return train(
            module, data, loss, monitor, schedule, draws,
            progress=context.progress, description=f"{method.name} seed {method.seed}", on_epoch=context.on_epoch,
        )  # fmt: skip


@dataclass(kw_only=True, eq=False)
class Energy(PostHoc):
    """Energy ``-T logsumexp(logits / T)`` (Liu et al. 2020).

    Args:
        temperature: T, above 0, default 1.

    Example:
        >>> Energy(model=fitted).fit(task).predict().score
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
    """Energy after belief propagation along edges (Wu et al. 2023).

    Args:
        alpha: Share of its own energy that a node keeps in a step, default 0.5.
        steps: Number of propagation steps, default 2.

    Example:
        >>> GNNSafe(steps=4).fit(task).predict().score
    """

    alpha: float = 0.5
    steps: int = 2

    name = "gnnsafe"
    search_space = {"steps": (1, 2, 4, 8, 16), "alpha": (0.1, 0.3, 0.5, 0.7, 0.9)}
    constraints = {"alpha": FRACTION, "steps": AT_LEAST_0}

    def _scorer(self, graph: Graph, outputs: Outputs, context: Context) -> Callable[[Tensor], Tensor]:
        energies = [scores.energy(chunk, self.temperature) for chunk in torch.split(outputs.logits, CHUNK)]
        propagated = scores.propagate(torch.cat(energies), graph, self.alpha, self.steps)
        return lambda nodes: propagated[nodes]


@dataclass(kw_only=True, eq=False)
class Odin(PostHoc):
    """Tempered softmax after a small step of the features towards the predicted class (Liang et al. 2018).

    Args:
        temperature: Temperature of the softmax, above 0, default 1000.
        epsilon: Size of the step, default 0.0014; 0 for none.

    Example:
        >>> Odin(epsilon=0.0).fit(task).predict().score
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
class GRASP(PostHoc):
    """Graph-augmented score propagation (Ma et al. 2024): scores propagated along edges and within a node set.

    Propagation helps where edges connect known nodes, or OOD nodes, among themselves. So edges are added between all
    pairs of a set G of training nodes, which are known. G is the ``share`` of them with the highest ratio of probably
    known to probably OOD neighbours, by the model's largest probability::

        S_id, S_ood = the nodes outside training whose largest probability is above, below the ``percentile``
        h(i) = |neighbours of i in S_id| / (|neighbours of i in S_ood| + 1)
        e <- alpha e + (1 - alpha) D'^-1 A' e,   A' = A + 1_G 1_G^T, D' its row sums,   ``steps`` times

    for e = 1 - the largest probability (``msp``). Edges count in both directions and once. ``1_G 1_G^T`` is never
    materialised: G adds one number, the sum of its scores.

    Differences from the original: it chooses the trained model's epoch by the score of test nodes, takes training and
    validation nodes for G, and multiplies the contribution of G by a number between 1 and 1.2 that depends on the
    graph; here the epoch is that of the model, G consists of training nodes alone, and the number is 1. A node without
    edges keeps its score, which the original sets to zero. Of nodes with equal h the first ones are taken. In a graph
    whose node ids do not identify the training nodes, no edges are added.

    Args:
        percentile: Percentile of the largest probabilities, from below for S_ood and from above for S_id; default 5.
        share: Share of the training nodes in G, default 0.5.
        alpha: Share of its own score that a node keeps in a step, default 0.
        steps: Number of propagation steps, default 8.

    Example:
        >>> GRASP(share=0.25).fit(task).predict().score
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
        propagated = self._propagate(scores.msp(outputs.logits), edges, group)
        return lambda nodes: propagated[nodes]

    def _training_nodes(self, graph: Graph) -> Tensor:
        """Training nodes of the graph: all of the fitted one, in another one those identified by ids."""
        if self.train_nodes_ is not None and self.graph_ is not None and graph.content == self.graph_.content:
            return self.train_nodes_
        numbers = self.known_.numbers_in(graph)
        return numbers[numbers >= 0]

    def _group(self, edges: SparseMatrix, train: Tensor, logits: Tensor) -> Tensor:
        """Nodes of G."""
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

    def _propagate(self, values: Tensor, edges: SparseMatrix, group: Tensor) -> Tensor:
        inside = torch.zeros_like(values)
        inside[group] = 1.0
        degree = edges.starts.diff().double() + len(group) * inside
        for _ in range(self.steps):
            sums = (edges @ values[:, None]).squeeze(1) + inside * (inside @ values)
            values = torch.where(degree > 0, self.alpha * values + (1.0 - self.alpha) * sums / degree, values)
        return values

    def _state(self) -> dict[str, Tensor]:
        return self.known_.state()

    def _load_state(self, state: Mapping[str, Tensor]) -> None:
        self.known_ = KnownNodes.from_state(state)
