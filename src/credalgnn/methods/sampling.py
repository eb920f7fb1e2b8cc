"""Networks that are asked several times, each time with other noise: an ensemble for the price of one training."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from ..graphs import Graph
from ..nn import Classifier
from ..nn.backbones import BackboneError, message_layers
from ..nn.noise import EdgeDropping, dropped_units, thinned
from ..runtime.context import Context
from ..runtime.memory import let_go
from .ensembles import decomposed
from .inputs import inputs
from .network import NETWORK_SPACE, Vanilla
from .parameters import Interval
from .prediction import MethodError, Prediction, Predictor
from .scratch import rows_at, scratch

RATES = (0.1, 0.2, 0.3, 0.5, 0.7)


@dataclass(kw_only=True, eq=False)
class Sampling(Vanilla):
    """A vanilla GNN whose noise of training goes on at prediction: TU = H(mean), AU = mean H, EU = TU - AU.

    As of a classical ensemble, whose members are passes with noise drawn by ``seed``: the same each time, for any part
    of the nodes. Outputs (``outputs``), and what ``monitor`` looks at, are those of the pass without noise.

    Args:
        samples: Passes at prediction.
        seed: Of weights, of batches, and of the noise in training and at prediction.
    """

    samples: int = 20

    score_names = ("EU", "AU", "TU")
    is_shared = False
    works_by_chunks = False
    constraints = {"samples": Interval(2)}

    def _predictor(self, graph: Graph, context: Context) -> Predictor:
        logits = scratch((self.samples, graph.num_nodes, len(self.class_names)), memory=context.memory)
        try:
            for number, each in enumerate(self._draws(graph)):
                logits[number] = each.cpu()
                let_go(logits)
        except BackboneError as error:
            raise MethodError(str(error)) from None

        def predict(nodes: Tensor) -> Prediction:
            drawn = (torch.from_numpy(rows_at(each, nodes.numpy())) for each in logits)
            return decomposed(nodes, torch.stack([self._probabilities(each) for each in drawn]), self.class_names)

        return predict

    def _generator(self, number: int) -> torch.Generator:
        """For one of the passes."""
        return torch.Generator().manual_seed(self.seed * self.samples + number)

    @abstractmethod
    def _draws(self, graph: Graph) -> Iterator[Tensor]:
        """The logits of all nodes, once for each pass."""


@dataclass(kw_only=True, eq=False)
class MCDropout(Sampling):
    """Monte Carlo dropout (Gal and Ghahramani 2016): a GNN trained with dropout, and asked with dropout.

    A pass draws one mask of the units behind each message-passing layer, for all nodes: one draw of the weights, as the
    original derives it (``W_i = M_i diag(z_i)`` there). TU, AU and EU are those of a classical ensemble (``Sampling``).

    Differences from the original: training drops units node by node, as everybody does. With masks that all nodes
    share, a prediction depends neither on the numbering of nodes nor on nodes far away; with masks for each node, as
    most code has them, the noise of neighbours averages out. Input features are not dropped. A GAT's dropout of
    attention is for training only.

    Args:
        dropout: Probability of dropping a unit, in training and at prediction.
    """

    dropout: float = 0.5

    name = "mc-dropout"
    search_space = {**NETWORK_SPACE, "dropout": RATES}

    def _check(self) -> None:
        super()._check()
        if self.dropout == 0.0:
            raise MethodError("dropout must be above 0: without it all passes are the same")

    def _draws(self, graph: Graph) -> Iterator[Tensor]:
        module = deepcopy(self.module_)  # whose units are dropped here, and not where other threads ask as well
        layers = message_layers(module.backbone)
        for number in range(self.samples):
            with dropped_units(layers, self.dropout, self._generator(number)):
                yield cast(Tensor, module(*inputs(graph, self.device)))


@dataclass(kw_only=True, eq=False)
class DropEdge(Sampling):
    """DropEdge (Rong et al. 2020) as a sampler: a GNN trained on graphs without some edges, and asked on such graphs.

    A step of training, and a pass at prediction, leaves out each edge with the same probability, both directions by
    themselves; means are over the edges that are left, and in sums each counts for the others, too. TU, AU and EU are
    those of a classical ensemble (``Sampling``).

    Differences from the original: it is for training only there, and prediction sees all edges. Edges are left out
    independently; the original leaves out an exact number of them. All layers see the same edges, as in the original
    by default.

    Args:
        edge_dropout: Probability of leaving out an edge, in training and at prediction.
    """

    edge_dropout: float = 0.5

    name = "drop-edge"
    search_space = {**NETWORK_SPACE, "edge_dropout": RATES}
    constraints = {"edge_dropout": Interval(0, 1, above=True, below=True)}

    def _build(self, num_features: int, num_classes: int) -> Classifier:
        module = super()._build(num_features, num_classes)
        module.backbone = EdgeDropping(module.backbone, self.edge_dropout)
        return module

    def _draws(self, graph: Graph) -> Iterator[Tensor]:
        x, edges = inputs(graph, self.device)
        for number in range(self.samples):
            yield cast(Tensor, self.module_(x, thinned(edges, self.edge_dropout, self._generator(number))))
