"""The graph posterior network: Dirichlet evidence from densities in latent space, diffused along edges."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..graphs import Graph
from ..nn import Classifier, Supervision, TrainingError
from ..nn.backbones import BackboneFactory, Features
from ..nn.posterior import PosteriorClassifier, PosteriorHead, dirichlet_entropy, expected_cross_entropy
from ..nn.training import Output, at
from ..runtime.context import Context
from . import scores
from .base import Outputs, check_chunks
from .inputs import inputs
from .large import training_bytes
from .network import Network
from .parameters import AT_LEAST_0, AT_LEAST_1, Interval, Uniform
from .prediction import MethodError, Prediction
from .training_data import TrainingData


@dataclass(kw_only=True, eq=False)
class GPN(Network):
    """Graph Posterior Network (Stadler et al. 2021): evidence is training nodes near by, in features and along edges.

    A node's own features give a latent z, and each class has a density there, a normal seen through radial flows::

        b0_c  = p(c) p(z | c) (4 pi)^(d / 2)                               evidence of the node alone
        b     <- teleport b0 + (1 - teleport) D^-1/2 (A + I) D^-1/2 b      personalised PageRank, ``steps`` times
        alpha = 1 + b                                                      concentrations of a Dirichlet distribution
        loss  = sum over nodes of  psi(alpha_0) - psi(alpha_y) - entropy_weight H(Dir(alpha))

    Probabilities are alpha / alpha_0. Scores: ``evidence``, minus the logarithm of the total evidence, which orders
    nodes as minus alpha_0 does; ``msp`` and ``entropy`` (bits) of the probabilities, which stand for aleatoric
    uncertainty.

    Flows are trained alone for ``warmup`` epochs, and have no weight decay, as in the original. The original stops
    training by the cross entropy of validation nodes, after any number of epochs; here ``monitor`` and ``epochs`` are
    those of all methods, and ``id_loss`` is the loss above. It trains on the whole graph, because evidence comes from
    far away: there is no ``batch_size``.

    Args:
        dimensions: Of the latent space of densities, d.
        flows: Radial layers of a density.
        teleport: The share of its own evidence that a node keeps in a step.
        steps: Of PageRank's power iteration.
        warmup: Epochs in which flows are trained and the encoder is not.
        entropy_weight: Of the entropy of the Dirichlet distributions.
        backbone: The encoder, by default one that looks at no neighbour.
        hidden: Units of a hidden layer.
        layers: Layers of the encoder.
        dropout: Probability of dropping a unit of the encoder, in training.
        lr: Learning rate of Adam.
        weight_decay: L2 penalty of the encoder's weights.
        epochs: Epochs at the most.
        patience: Epochs without a better monitor after which training stops.
        monitor: What early stopping looks at, see ``Network``.
        batch_size: None.
        seed: Of weights and dropout.
        device: Where to train and predict, as torch names it.
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
    objectives = {"sealed": "nll", "paper": "auroc"}
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
            raise MethodError("gpn trains on the whole graph, since evidence comes from far away: leave batch_size out")

    def _batch_size(self, training: TrainingData, context: Context, module: Classifier) -> None:
        view = training.view
        if training_bytes(view.graph, self._widths(module, view.num_classes)) > context.allowed:
            check_chunks(self)

    def _stored_outputs(self, graph: Graph, context: Context) -> None:
        """Never: behind the head, evidence goes along all edges."""

    def _head(self, widths: list[int], num_classes: int) -> nn.Module:
        return PosteriorHead(widths[-1], num_classes, self.dimensions, self.flows)

    def _build(self, num_features: int, num_classes: int) -> Classifier:
        made = super()._build(num_features, num_classes)
        return PosteriorClassifier(made.backbone, made.head, made.hops, self.teleport, self.steps).to(self.device)

    def _begin(self, module: Classifier, data: Supervision) -> None:
        """Class frequencies, and flows that fit the latents of an encoder that has not moved yet."""
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

    def _probabilities(self, output: Output) -> Tensor:
        alpha = self._alpha(output)
        return alpha / alpha.sum(-1, keepdim=True)

    def _headline(self, output: Output) -> Tensor:
        assert isinstance(output, Tensor)
        return -output.double().sum(-1).log()

    def _logits(self, output: Output) -> Tensor:
        return self._alpha(output).log()

    def forward_features(self, x: Features, graph: Graph) -> Outputs:
        """Logarithms of the concentrations, and latents, for other features; differentiable, on the method's device.

        Args:
            x: Features ``[N, F]``.
            graph: Whose edges to use.
        """
        assert isinstance(self.module_, PosteriorClassifier)
        edges = inputs(graph, self.device)[1]
        latents = [x, *self.module_.backbone(x, edges)]
        evidence = self.module_.diffused(self.module_.head(latents[-1]).exp(), edges)
        return Outputs(self._logits(evidence), latents)

    def _prediction(self, nodes: Tensor, output: Output) -> Prediction:
        logits = self._logits(output)
        own = {
            "evidence": self._headline(output),
            "msp": scores.msp(logits),
            "entropy": scores.entropy(logits),
        }
        return Prediction(nodes, own, "evidence", self.class_names, self._probabilities(output))
