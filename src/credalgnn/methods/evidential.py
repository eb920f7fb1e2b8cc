"""Dirichlet networks: kernel-based evidence (Evidential) and the graph posterior network (GPN)."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..graphs import Graph
from ..nn import Classifier, Supervision, TrainingError
from ..nn.backbones import Adjacency, BackboneFactory, Features
from ..nn.posterior import (
    PosteriorClassifier,
    PosteriorHead,
    dirichlet_divergence,
    dirichlet_entropy,
    expected_cross_entropy,
    kernel_evidence,
    squared_risk,
)
from ..nn.training import Output, at
from ..runtime.context import Context
from . import scores
from .base import Outputs, check_chunks
from .inputs import inputs, undirected
from .large import training_bytes
from .network import NETWORK_SPACE, Network
from .parameters import AT_LEAST_0, AT_LEAST_1, Interval, Uniform
from .prediction import MethodError, Prediction
from .training_data import TrainingData

LARGEST = 30.0  # evidence is at most exp(LARGEST)
ROWS = 1 << 14  # nodes whose dissonance is computed at a time


@dataclass(kw_only=True, eq=False)
class DirichletNetwork(Network):
    """Base of networks whose outputs are Dirichlet distributions with concentrations alpha."""

    objectives = {"sealed": "nll", "paper": "auroc"}

    @abstractmethod
    def _alpha(self, output: Output) -> Tensor:
        """Concentrations ``[N, C]``."""

    def _probabilities(self, output: Output) -> Tensor:
        alpha = self._alpha(output)
        return alpha / alpha.sum(-1, keepdim=True)

    def _logits(self, output: Output) -> Tensor:
        return self._alpha(output).log()


@dataclass(kw_only=True, eq=False)
class Evidential(DirichletNetwork):
    """Dirichlet GNN with kernel-based evidence (Zhao et al. 2020): S-GCN-K, a part of their S-BGCN-T-K.

    The network's outputs are the logarithms of evidence, with a prior from nearby labelled nodes::

        alpha = 1 + exp(W z + b)                                                     concentrations, p = alpha / alpha_0
        prior_c(v) = 1 + sum over training nodes l of class c of  g(edges from v to l)          g a Gaussian kernel
        loss = sum over training nodes of  sum_c (y_c - p_c)^2 + p_c (1 - p_c) / (alpha_0 + 1)
             + kernel_weight * sum over all nodes of  KL(Dir(alpha) || Dir(prior))              both over training nodes

    Scores: ``vacuity``, C / alpha_0, the lack of evidence; ``dissonance``, the conflict between evidence of several
    classes; ``entropy`` (bits) of p.

    Kernels reach five bandwidths, along edges in both directions. Left out of the original are the teacher, another GCN
    whose probabilities are imitated, and the sampling of weights by dropout. ``id_loss`` is the squared error alone.

    Args:
        kernel_weight: Weight of the divergence from the kernel-based prior, default 1e-3.
        bandwidth: Bandwidth of the Gaussian kernel in edges, above 0 and at most 10, default 1.
        batch_size: Nodes of a mini-batch with its sampled neighbourhood; None: all nodes at once.

    Example:
        >>> Evidential(bandwidth=2.0).fit(task).predict().scores["vacuity"]
    """

    kernel_weight: float = 1e-3
    bandwidth: float = 1.0

    name = "evidential"
    score_names = ("vacuity", "dissonance", "entropy")
    uses_unlabelled = True
    search_space = {**NETWORK_SPACE, "kernel_weight": (0.0, 1e-4, 1e-3, 1e-2, 1e-1), "bandwidth": (0.5, 1.0, 2.0)}
    decomposition = ("vacuity", "dissonance")
    constraints = {"kernel_weight": AT_LEAST_0, "bandwidth": Interval(0, 10, above=True)}

    def _fit(self, training: TrainingData, context: Context) -> None:
        super()._fit(training, context)
        for name in ("_prior", "_targets"):  # of all nodes of the fitted graph, used in training only
            vars(self).pop(name, None)  # workers set their own

    def _supervision(self, training: TrainingData, x: Features, edges: Adjacency) -> Supervision:
        """Supervise all nodes, with node numbers for labels, by which the loss looks up priors and classes."""
        view = training.view
        graph, labels = view.graph, view.graph.labels[view.train]
        evidence = kernel_evidence(undirected(graph), view.train, labels, view.num_classes, self.bandwidth)
        self._prior = (1.0 + evidence).to(self.device)
        self._targets = torch.full((graph.num_nodes,), -1).index_put((view.train,), labels).to(self.device)
        nodes = torch.arange(graph.num_nodes, device=self.device)
        return Supervision(x, edges, nodes, nodes)

    def _head(self, widths: list[int], num_classes: int) -> nn.Module:
        return nn.Linear(widths[-1], num_classes)

    def _alpha(self, output: Output) -> Tensor:
        assert isinstance(output, Tensor)
        return 1.0 + output.double().clamp_max(LARGEST).exp()

    def _loss(self, output: Output, labels: Tensor) -> Tensor:
        return squared_risk(self._alpha(output), labels).mean()

    def _training_loss(self, output: Output, labels: Tensor) -> Tensor:
        alpha, targets = self._alpha(output), self._targets[labels]
        labelled = targets >= 0
        risk = squared_risk(alpha[labelled], targets[labelled]).sum()
        divergence = dirichlet_divergence(alpha, self._prior[labels]).sum()
        loss = (risk + self.kernel_weight * divergence) / (self._targets >= 0).sum()
        return loss * (len(self._targets) / len(labels))  # mini-batches match all nodes on average

    def _headline(self, output: Output) -> Tensor:
        alpha = self._alpha(output)
        return alpha.shape[1] / alpha.sum(-1)

    def _prediction(self, nodes: Tensor, output: Output) -> Prediction:
        values = {
            "vacuity": self._headline(output),
            "dissonance": dissonance(self._alpha(output)),
            "entropy": scores.entropy(self._logits(output)),
        }
        return Prediction(nodes, values, "vacuity", self.class_names, self._probabilities(output))


def dissonance(alpha: Tensor) -> Tensor:
    """Return the conflict of evidence, from 0 to 1 (Jøsang et al. 2018), for concentrations ``[N, C]``.

    ``sum_c b_c (sum_{j != c} b_j Bal(b_j, b_c)) / (sum_{j != c} b_j)`` for ``b = (alpha - 1) / alpha_0``, where
    ``Bal(a, b) = 1 - |a - b| / (a + b)``, and 0 where either is 0.
    """
    return torch.cat([_dissonance(rows) for rows in torch.split(alpha, ROWS)])


def _dissonance(alpha: Tensor) -> Tensor:
    b = (alpha - 1.0) / alpha.sum(-1, keepdim=True)
    one, other = b[:, :, None], b[:, None, :]
    smaller, both = torch.minimum(one, other), one + other
    balance = torch.where(smaller > 0, 2.0 * smaller / both, 0.0)  # 1 - |a - b| / (a + b)
    balance.diagonal(dim1=1, dim2=2).zero_()
    weighted = (balance * other).sum(-1)
    others = b.sum(-1, keepdim=True) - b
    return (b * torch.where(weighted > 0, weighted / others, 0.0)).sum(-1)


@dataclass(kw_only=True, eq=False)
class GPN(DirichletNetwork):
    """Graph Posterior Network (Stadler et al. 2021): evidence from class densities of latents, diffused along edges.

    A node's features give a latent z, and each class has a density there, a normal transformed by radial flows::

        b0_c  = p(c) p(z | c) (4 pi)^(d / 2)                               evidence of the node alone
        b     <- teleport b0 + (1 - teleport) D^-1/2 (A + I) D^-1/2 b      personalised PageRank, ``steps`` times
        alpha = 1 + b                                                      concentrations of a Dirichlet distribution
        loss  = sum over nodes of  psi(alpha_0) - psi(alpha_y) - entropy_weight H(Dir(alpha))

    Probabilities are alpha / alpha_0. Scores: ``evidence``, minus the logarithm of the total evidence, which orders
    nodes as minus alpha_0 does; ``msp`` and ``entropy`` (bits) of the probabilities, for aleatoric uncertainty.

    Flows are trained alone for ``warmup`` epochs, and have no weight decay, as in the original. The original stops
    training by the cross entropy of validation nodes, after any number of epochs; here ``monitor`` and ``epochs`` are
    those of all methods, and ``id_loss`` is the loss above. It trains on the whole graph, because evidence
    diffuses far: there is no ``batch_size``.

    Args:
        dimensions: Dimensions d of the latent space of densities, default 16.
        flows: Radial layers of a density, default 10.
        teleport: Share of its own evidence that a node keeps in a step, default 0.1.
        steps: Steps of PageRank's power iteration, default 10.
        warmup: Epochs in which flows alone are trained, default 5.
        entropy_weight: Weight of the entropy of the Dirichlet distributions, default 1e-4.
        backbone: Encoder, default ``"mlp"``, which reads no neighbours.
        layers: Layers of the encoder, default 1.
        dropout: Probability of dropping a unit of the encoder, in training; default 0.5.
        weight_decay: L2 penalty of the encoder's weights, default 1e-3.
        batch_size: None.

    Example:
        >>> GPN(dimensions=6).fit(task).predict().scores["evidence"]
    """

    backbone: str | BackboneFactory = "mlp"
    layers: int = 1
    dropout: float = 0.5
    weight_decay: float = 1e-3
    dimensions: int = 16
    flows: int = 10
    teleport: float = 0.1
    steps: int = 10
    warmup: int = 5
    entropy_weight: float = 1e-4

    name = "gpn"
    score_names = ("evidence", "msp", "entropy")
    search_space = {
        "lr": Uniform(1e-3, 1e-1, log=True),
        "hidden": (64, 128, 256),
        "dimensions": (6, 10, 16, 32),
        "weight_decay": Uniform(1e-5, 1e-1, log=True),
        "teleport": (0.05, 0.1, 0.2, 0.5),
        "entropy_weight": (1e-5, 1e-4, 1e-3, 1e-2),
    }

    trains_by_batches = False
    decomposition = ("evidence", "entropy")
    constraints = {
        "dimensions": AT_LEAST_1,
        "flows": AT_LEAST_0,
        "teleport": Interval(0, 1, above=True),
        "steps": AT_LEAST_0,
        "warmup": AT_LEAST_0,
        "entropy_weight": AT_LEAST_0,
    }

    def _check(self) -> None:
        super()._check()
        if self.batch_size is not None:
            raise MethodError("gpn trains on the whole graph, since evidence diffuses far: leave batch_size out")

    def _batch_size(self, training: TrainingData, context: Context, module: Classifier) -> None:
        view = training.view
        if training_bytes(view.graph, self._widths(module, view.num_classes)) > context.allowed:
            check_chunks(self)

    def _stored_outputs(self, graph: Graph, context: Context) -> None:
        """None: after the head, evidence diffuses along all edges."""

    def _head(self, widths: list[int], num_classes: int) -> nn.Module:
        return PosteriorHead(widths[-1], num_classes, self.dimensions, self.flows)

    def _build(self, num_features: int, num_classes: int) -> Classifier:
        base = super()._build(num_features, num_classes)
        return PosteriorClassifier(base.backbone, base.head, base.hops, self.teleport, self.steps).to(self.device)

    def _begin(self, module: Classifier, data: Supervision) -> None:
        """Set class frequencies, and fit the flows to the latents of the untrained encoder."""
        assert isinstance(module, PosteriorClassifier)
        frequencies = torch.bincount(data.labels, minlength=len(module.head.log_prior)) / len(data.labels)
        module.head.log_prior.copy_(frequencies.log())
        if not self.warmup or not self.flows:
            return
        optimiser = torch.optim.Adam(module.head.flows.parameters(), lr=self.lr)
        module.train()
        for epoch in range(self.warmup):
            loss = self._loss(at(module(data.x, data.edges), data.nodes), data.labels)
            if not bool(loss.isfinite()):
                raise TrainingError(f"the loss is {loss.item()} in epoch {epoch} of the warm-up: lower lr ({self.lr})")
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()

    def _loss(self, output: Output, labels: Tensor) -> Tensor:
        alpha = self._alpha(output)
        return (expected_cross_entropy(alpha, labels) - self.entropy_weight * dirichlet_entropy(alpha)).sum()

    def _alpha(self, output: Output) -> Tensor:
        assert isinstance(output, Tensor)
        return 1.0 + output.double()

    def _headline(self, output: Output) -> Tensor:
        assert isinstance(output, Tensor)
        return -output.double().sum(-1).log()

    def forward_features(self, x: Features, graph: Graph) -> Outputs:
        """Return logarithms of the concentrations, and latents, for other features; differentiable.

        Args:
            x: Features ``[N, F]``.
            graph: Graph with the edges.
        """
        assert isinstance(self.module_, PosteriorClassifier)
        edges = inputs(graph, self.device)[1]
        latents = [x, *self.module_.backbone(x, edges)]
        evidence = self.module_.diffused(self.module_.head(latents[-1]).exp(), edges)
        return Outputs(self._logits(evidence), latents)

    def _prediction(self, nodes: Tensor, output: Output) -> Prediction:
        logits = self._logits(output)
        values = {
            "evidence": self._headline(output),
            "msp": scores.msp(logits),
            "entropy": scores.entropy(logits),
        }
        return Prediction(nodes, values, "evidence", self.class_names, self._probabilities(output))
