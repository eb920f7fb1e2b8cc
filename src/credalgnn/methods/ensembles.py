"""Ensembles of GNNs, trained (classical and credal) or sampled from one network (MC dropout, DropEdge)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import cast

import torch
from torch import Tensor

from ..graphs import Graph
from ..nn import Classifier
from ..nn.adjacency import drop_edges
from ..nn.backbones import BackboneError, EdgeDropping, dropped_units, message_layers
from ..runtime.context import Context
from ..runtime.errors import translated
from ..runtime.memory import let_go
from ..sets import HullSet
from . import scores
from .base import Components, Method, fitted_on
from .inputs import inputs, rows_at, scratch
from .network import NETWORK_SPACE, Vanilla
from .parameters import Interval
from .prediction import MethodError, Prediction, Predictor, SplitPredictor
from .training_data import TrainingData

RATES = (0.1, 0.2, 0.3, 0.5, 0.7)


def _mean_prediction(nodes: Tensor, members: Tensor, class_names: tuple[str, ...]) -> Prediction:
    """Prediction from members' probabilities ``[M, N, C]``: their mean, and TU, AU and EU in bits."""
    total, aleatoric, epistemic = scores.ensemble_uncertainty(members)
    measures = {"EU": epistemic, "AU": aleatoric, "TU": total}
    return Prediction(nodes, measures, "EU", class_names, members.mean(0))


def _hull_prediction(nodes: Tensor, members: Tensor, class_names: tuple[str, ...]) -> Prediction:
    """Prediction from the credal set that members' probabilities ``[M, N, C]`` span."""
    return Prediction.of_credal(nodes, HullSet(members), class_names)


@dataclass(kw_only=True, eq=False)
class ClassicalEnsemble(Method):
    """Ensemble of M GNNs: TU = H(mean), AU = mean H, EU = TU - AU (the paper's last appendix).

    Args:
        size: Number M of members, if ``members`` is None; default 10.
        members: Methods that classify: fitted ones are shared with their other holders, of unfitted ones ``fit`` fits
            clones (``members_``). Default None: ``size`` vanilla GNNs with different seeds.
        seed: Seed of the default members; no two ensembles of one size share a member. Default 0.

    Example:
        >>> ClassicalEnsemble(size=5).fit(task).predict().epistemic
    """

    size: int = 10
    members: Sequence[Method] | None = None
    seed: int = 0

    name = "classical-ensemble"
    works_by_chunks = True
    score_names = ("EU", "AU", "TU")
    components = Components("members", Vanilla, size="size")
    search_space = {"size": tuple(range(2, 16))}
    learns = False
    objectives = {"sealed": "nll", "paper": "accuracy"}

    def _check(self) -> None:
        if self.members is not None:
            if isinstance(self.members, Method):
                raise MethodError("members must be a list of methods, not a single method")
            self.members = list(self.members)
            if not all(isinstance(member, Method) and not member.is_baseline for member in self.members):
                raise MethodError("members must be methods that classify")
            self.size = len(self.members)
        if self.size < 2:
            raise MethodError(f"an ensemble needs at least 2 members, not {self.size}")
        if not 0 <= self.seed < 2**32 // self.size:
            raise MethodError(f"seed must be between 0 and {2**32 // self.size - 1}, not {self.seed}")

    def _fit(self, training: TrainingData, context: Context) -> None:
        assert self.components is not None
        seeds = self.components.seeds({"size": self.size}, self.seed)
        members = self.members or [Vanilla(seed=seed) for seed in seeds]
        remaining = range(context.networks * len(members), 0, -1)
        self.members_ = [
            fitted_on(member, training, context.replace(networks=networks))
            for networks, member in zip(remaining, members, strict=False)
        ]

    def _predictor(self, graph: Graph, context: Context) -> Predictor:
        members = [member._predictor(graph, context) for member in self.members_]

        def softmax(nodes: Tensor) -> tuple[Tensor]:
            return (torch.stack([cast(Tensor, member(nodes).probabilities) for member in members]),)

        return SplitPredictor(softmax, self._judge())

    def _judge(self) -> Callable[[Tensor, Tensor], Prediction]:
        """Picklable function from nodes and members' probabilities ``[M, N, C]`` to a prediction."""
        return partial(_mean_prediction, class_names=self.class_names)


@dataclass(kw_only=True, eq=False)
class CredalEnsemble(ClassicalEnsemble):
    """Convex hull of the members' softmax vectors, with exact entropies: the paper's post-hoc credal ablation.

    Example:
        >>> CredalEnsemble(size=5).fit(task).predict().credal
    """

    name = "credal-ensemble"
    is_credal = True

    def _judge(self) -> Callable[[Tensor, Tensor], Prediction]:
        return partial(_hull_prediction, class_names=self.class_names)


@dataclass(kw_only=True, eq=False)
class Sampling(Vanilla):
    """Vanilla GNN whose training noise stays on at prediction: TU = H(mean), AU = mean H, EU = TU - AU.

    The passes are the members of a classical ensemble. Their noise is drawn by ``seed``: the same each time, for any
    subset of the nodes. Outputs (``outputs``), and the values that ``monitor`` sees, are those of the noise-free pass.

    Args:
        samples: Passes at prediction, default 20.
        seed: Seed of weights, of batches, and of the noise in training and at prediction.
    """

    samples: int = 20

    score_names = ("EU", "AU", "TU")
    is_shared = False
    works_by_chunks = False
    constraints = {"samples": Interval(2)}

    def _predictor(self, graph: Graph, context: Context) -> Predictor:
        logits = scratch((self.samples, graph.num_nodes, len(self.class_names)), memory=context.memory)
        with translated(BackboneError, lambda error: MethodError(str(error))):
            for number, sample in enumerate(self._samples(graph)):
                logits[number] = sample.cpu()
                let_go(logits)

        def predict(nodes: Tensor) -> Prediction:
            samples = (torch.from_numpy(rows_at(sample, nodes.numpy())) for sample in logits)
            members = torch.stack([self._probabilities(sample) for sample in samples])
            return _mean_prediction(nodes, members, self.class_names)

        return predict

    def _generator(self, number: int) -> torch.Generator:
        """Random generator of one pass."""
        return torch.Generator().manual_seed(self.seed * self.samples + number)

    @abstractmethod
    def _samples(self, graph: Graph) -> Iterator[Tensor]:
        """Yield the logits of all nodes for each pass."""


@dataclass(kw_only=True, eq=False)
class MCDropout(Sampling):
    """Monte Carlo dropout (Gal and Ghahramani 2016): a GNN with dropout in training and at prediction.

    A pass draws one mask of the units after each message-passing layer, for all nodes: one draw of the weights, as the
    original derives it (``W_i = M_i diag(z_i)`` there). TU, AU and EU are those of a classical ensemble (``Sampling``).

    Differences from the original: training drops units node by node, as is usual. With masks that all nodes share, a
    prediction depends neither on the numbering of nodes nor on nodes far away; with masks for each node, as in most
    implementations, the noise of neighbours averages out. Input features are not dropped. A GAT's dropout of attention
    is used in training only.

    Args:
        dropout: Probability of dropping a unit, in training and at prediction; above 0, default 0.5.

    Example:
        >>> MCDropout(dropout=0.3).fit(task).predict().epistemic
    """

    dropout: float = 0.5

    name = "mc-dropout"
    search_space = {**NETWORK_SPACE, "dropout": RATES}

    def _check(self) -> None:
        super()._check()
        if self.dropout == 0.0:
            raise MethodError("dropout must be above 0: without it all passes are the same")

    def _samples(self, graph: Graph) -> Iterator[Tensor]:
        module = deepcopy(self.module_)  # other threads may predict with the original
        layers = message_layers(module.backbone)
        for number in range(self.samples):
            with dropped_units(layers, self.dropout, self._generator(number)):
                yield cast(Tensor, module(*inputs(graph, self.device)))


@dataclass(kw_only=True, eq=False)
class DropEdge(Sampling):
    """DropEdge (Rong et al. 2020) as a sampler: a GNN trained and evaluated on graphs with dropped edges.

    Each training step and each pass at prediction drops every edge with the same probability, both directions
    independently; means are over the remaining edges, and in sums these are scaled up. TU, AU and EU are those of a
    classical ensemble (``Sampling``).

    Differences from the original: there, prediction uses all edges, and an exact number of edges is dropped. All layers
    see the same edges, as in the original by default.

    Args:
        edge_dropout: Probability of dropping an edge, in training and at prediction; between 0 and 1, default 0.5.

    Example:
        >>> DropEdge(edge_dropout=0.2).fit(task).predict().epistemic
    """

    edge_dropout: float = 0.5

    name = "drop-edge"
    search_space = {**NETWORK_SPACE, "edge_dropout": RATES}
    constraints = {"edge_dropout": Interval(0, 1, above=True, below=True)}

    def _build(self, num_features: int, num_classes: int) -> Classifier:
        module = super()._build(num_features, num_classes)
        module.backbone = EdgeDropping(module.backbone, self.edge_dropout)
        return module

    def _samples(self, graph: Graph) -> Iterator[Tensor]:
        x, edges = inputs(graph, self.device)
        for number in range(self.samples):
            yield cast(Tensor, self.module_(x, drop_edges(edges, self.edge_dropout, self._generator(number))))
