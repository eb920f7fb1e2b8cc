"""A Dirichlet network whose evidence is drawn to that of labelled nodes near by."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..nn import EdgeRows, Supervision
from ..nn.backbones import Adjacency, Features
from ..nn.evidence import dirichlet_divergence, kernel_evidence, squared_risk
from ..nn.training import Output
from ..runtime.context import Context
from . import scores
from .network import NETWORK_SPACE, Network
from .parameters import AT_LEAST_0, Interval
from .prediction import Prediction
from .training_data import TrainingData
from .undirected import undirected

LARGEST = 30.0  # evidence is at most e to this
ROWS = 1 << 14  # nodes whose dissonance is computed at a time


@dataclass(kw_only=True, eq=False)
class Evidential(Network):
    """Dirichlet GNN with kernel-based evidence (Zhao et al. 2020): S-GCN-K, a part of their S-BGCN-T-K.

    The network's outputs are the logarithms of evidence, and labelled nodes near by say how much there should be::

        alpha = 1 + exp(W z + b)                                                     concentrations, p = alpha / alpha_0
        prior_c(v) = 1 + sum over training nodes l of class c of  g(edges from v to l)          g a Gaussian kernel
        loss = sum over training nodes of  sum_c (y_c - p_c)^2 + p_c (1 - p_c) / (alpha_0 + 1)
             + kernel_weight * sum over all nodes of  KL(Dir(alpha) || Dir(prior))              both over training nodes

    Scores: ``vacuity``, C / alpha_0, for want of evidence; ``dissonance``, for evidence of several classes that
    contradict each other; ``entropy`` (bits) of p.

    Kernels reach five bandwidths far, along edges in both directions. Left out of the original are the teacher, another
    GCN whose probabilities are imitated, and the sampling of weights by dropout. ``id_loss`` is the squared error
    alone.

    Args:
        kernel_weight: Of the divergence from the kernel-based prior.
        bandwidth: Of the Gaussian kernel, in edges.
        backbone: ``"sage"``, ``"gcn"``, or another, see ``Network``.
        hidden: Units of a hidden layer.
        layers: Message-passing layers.
        dropout: Probability of dropping a unit between layers, in training.
        lr: Learning rate of Adam.
        weight_decay: L2 penalty of all weights.
        epochs: Epochs at the most.
        patience: Epochs without a better monitor after which training stops.
        monitor: What early stopping looks at, see ``Network``.
        batch_size: Nodes of a mini-batch with its sampled neighbourhood; None: all nodes at once.
        seed: Of weights, dropout and batches.
        device: Where to train and predict, as torch names it.
    """

    kernel_weight: float = 1e-3
    bandwidth: float = 1.0

    name = "evidential"
    score_names = ("vacuity", "dissonance", "entropy")
    uses_unlabelled = True
    search_space = {**NETWORK_SPACE, "kernel_weight": (0.0, 1e-4, 1e-3, 1e-2, 1e-1), "bandwidth": (0.5, 1.0, 2.0)}
    decomposition = ("vacuity", "dissonance")
    objectives = {"sealed": "nll", "paper": "auroc"}
    constraints = {"kernel_weight": AT_LEAST_0, "bandwidth": Interval(0, 10, above=True)}

    def _fit(self, training: TrainingData, context: Context) -> None:
        super()._fit(training, context)
        for name in ("_prior", "_targets"):  # of all nodes of the fitted graph, for training alone
            vars(self).pop(name, None)  # workers have their own

    def _supervision(self, training: TrainingData, x: Features, edges: Adjacency | EdgeRows) -> Supervision:
        """All nodes; in the place of a label stands the number of a node, by which the loss finds its prior."""
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
        known = targets >= 0
        risk = squared_risk(alpha[known], targets[known]).sum()
        divergence = dirichlet_divergence(alpha, self._prior[labels]).sum()
        loss = (risk + self.kernel_weight * divergence) / (self._targets >= 0).sum()
        return loss * (len(self._targets) / len(labels))  # of a mini-batch: what that of all nodes is on average

    def _probabilities(self, output: Output) -> Tensor:
        alpha = self._alpha(output)
        return alpha / alpha.sum(-1, keepdim=True)

    def _headline(self, output: Output) -> Tensor:
        alpha = self._alpha(output)
        return alpha.shape[1] / alpha.sum(-1)

    def _logits(self, output: Output) -> Tensor:
        return self._alpha(output).log()

    def _prediction(self, nodes: Tensor, output: Output) -> Prediction:
        own = {
            "vacuity": self._headline(output),
            "dissonance": dissonance(self._alpha(output)),
            "entropy": scores.entropy(self._logits(output)),
        }
        return Prediction(nodes, own, "vacuity", self.class_names, self._probabilities(output))


def dissonance(alpha: Tensor) -> Tensor:
    """How much evidence contradicts itself, from 0 to 1 (Jøsang et al. 2018).

    ``sum_c b_c (sum_{j != c} b_j Bal(b_j, b_c)) / (sum_{j != c} b_j)`` for ``b = (alpha - 1) / alpha_0``, where
    ``Bal(a, b) = 1 - |a - b| / (a + b)``, and 0 where either is 0.

    Args:
        alpha: Concentrations ``[N, C]``.
    """
    return torch.cat([_dissonance(rows) for rows in torch.split(alpha, ROWS)])


def _dissonance(alpha: Tensor) -> Tensor:
    b = (alpha - 1.0) / alpha.sum(-1, keepdim=True)
    one, other = b[:, :, None], b[:, None, :]
    smaller, both = torch.minimum(one, other), one + other
    balance = torch.where(smaller > 0, 2.0 * smaller / both, 0.0)  # 1 - |a - b| / (a + b)
    balance.diagonal(dim1=1, dim2=2).zero_()
    weighed = (balance * other).sum(-1)
    others = b.sum(-1, keepdim=True) - b
    return (b * torch.where(weighed > 0, weighed / others, 0.0)).sum(-1)
