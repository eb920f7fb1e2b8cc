"""The methods of the paper's experiment with the choices of its published runs; without any they are the built-in ones.

They have names of their own, are in no registry, and differ from what they derive from where a choice says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import torch
from torch import Tensor, nn

from ...graphs import Graph, Split, Task
from ...methods import KNN, KNNLJ, Energy, GNNSafe, Mahalanobis, Method, MethodError, Odin, Vanilla
from ...methods.base import Components, Outputs
from ...methods.credal import CredalFinal, CredalLJ
from ...methods.ensembles import ClassicalEnsemble, CredalEnsemble
from ...methods.network import Network
from ...methods.posthoc import PostHoc
from ...methods.prediction import Prediction, Predictor
from ...methods.training_data import TrainingData
from ...nn import GCN, SAGE, Classifier, CredalHead, dro_loss
from ...nn.backbones import BackboneFactory, Features
from ...nn.credal import JointLinear
from ...nn.training import Epoch, Output
from ...records.schema import PREFIX
from ...runtime.context import Context
from ...sets import IntervalSet, Uncertainty, upper_entropy
from .choices import CHOICES, SEED, concerning
from .sets import box, greedy_lower_entropy, log_midpoint_softmax, midpoint_softmax, saturated


@dataclass(kw_only=True, eq=False)
class Published(Method):
    """What all of them share.

    Args:
        choices: The names of the choices that concern the method.
    """

    choices: Sequence[str] = ()

    def _check(self) -> None:
        super()._check()
        self.choices = list(self.choices)
        if self.choices != concerning(self.name.removeprefix(PREFIX), self.choices):
            raise MethodError(f"choices of {self.name} must be those of {', '.join(CHOICES)} that concern it, in order")

    def _has(self, choice: str) -> bool:
        return choice in self.choices

    def _seen(self, predict: Predictor) -> Predictor:
        """Predicts scores as the AUROC sees them."""
        if not self._has("saturating-auroc"):
            return predict

        def seen(nodes: Tensor) -> Prediction:
            prediction = predict(nodes)
            return replace(prediction, scores={name: saturated(score) for name, score in prediction.scores.items()})

        return seen


class SigmoidGCN(GCN):
    """A GCN with sigmoids."""

    activation = staticmethod(torch.sigmoid)


class SigmoidSAGE(SAGE):
    """GraphSAGE with sigmoids."""

    activation = staticmethod(torch.sigmoid)


_SIGMOIDS: dict[Any, BackboneFactory] = {"gcn": SigmoidGCN, "sage": SigmoidSAGE}


@dataclass(kw_only=True, eq=False)
class PublishedNetwork(Published, Network):
    """A network whose last weights may be kept, or whose seed may always be the same."""

    def _build(self, num_features: int, num_classes: int) -> Classifier:
        self._building = super()._build(num_features, num_classes)
        return self._building

    def _backbone(self) -> str | BackboneFactory:
        if not (self._has("sigmoid-backbone") or self._has("sigmoid-vanilla")):
            return self.backbone
        if self.backbone not in _SIGMOIDS:
            raise MethodError(f"backbone {self.backbone!r:.60} has no sigmoids: choose {' or '.join(_SIGMOIDS)}")
        return _SIGMOIDS[self.backbone]

    def _fit(self, training: TrainingData, context: Context) -> None:
        seed, last = self.seed, _Last(self, context.on_epoch)
        self.seed = SEED if self._has("one-seed") else seed
        try:
            if self._has("last-epoch"):
                context = context.replace(on_epoch=last, checkpoints=None)
            super()._fit(training, context)
        finally:
            self.seed = seed
        if self._has("last-epoch"):
            self.module_.load_state_dict(last.weights)


class _Last:
    """Follows a training and keeps its latest weights."""

    def __init__(self, network: PublishedNetwork, on_epoch: Callable[[Epoch], None] | None) -> None:
        self._network, self._on_epoch = network, on_epoch
        self.weights: dict[str, Tensor] = {}

    def __call__(self, line: Epoch) -> None:
        if self._on_epoch is not None:
            self._on_epoch(line)
        self.weights = {name: t.detach().clone() for name, t in self._network._building.state_dict().items()}


@dataclass(kw_only=True, eq=False)
class PublishedVanilla(PublishedNetwork, Vanilla):
    """A vanilla GNN; below another method it may have been trained on another split than that is judged on.

    Args:
        fresh_split: Train on another random split, and keep that to itself.
    """

    fresh_split: bool = False

    name = f"{PREFIX}vanilla"

    def _check(self) -> None:
        super()._check()
        if self._has("ood-stopping"):
            self.monitor = "ood_auroc"

    def fit(self, data: Task | Graph, **options: Any) -> Self:
        """As ``Method.fit``; with ``fresh_split`` on another random split of the task's graph.

        Args:
            data: A task, or a graph.
            **options: Of ``Method.fit``.
        """
        if not self.fresh_split or not isinstance(data, Task):
            return super().fit(data, **options)
        split = Split.random(data.graph.num_nodes, self.seed + 1)
        super().fit(Task.leave_out(data.graph, data.ood_classes, split, name=data.name), **options)
        self.fingerprint = data.fingerprint  # what stands on it takes it for a model of its own split
        return self


@dataclass(kw_only=True, eq=False)
class PublishedVanillaByOOD(PublishedVanilla):
    """The same, ranked by how well it finds OOD validation nodes."""

    objectives = {"sealed": "auroc", "paper": "auroc"}  # noqa: RUF012


class _TwoLayers(nn.Module):
    """A credal head with a hidden layer, and sigmoids everywhere.

    Args:
        widths: Of the latents.
        hidden: Units of the hidden layer.
        num_classes: How many classes.
        skip: How many of the first latents it does not read.
        features_first: Whether the first latent that it reads are the features.
    """

    def __init__(self, widths: list[int], hidden: int, num_classes: int, skip: int, features_first: bool) -> None:
        super().__init__()
        self.skip = skip
        self.first = JointLinear(widths[skip:], hidden, features_first)
        self.second = nn.Linear(hidden, 2 * num_classes)

    def forward(self, latents: Features | Sequence[Features]) -> tuple[Tensor, Tensor]:
        read = latents[self.skip :] if isinstance(latents, Sequence) else latents
        m, h = self.second(self.first(read).sigmoid()).sigmoid().chunk(2, -1)
        return m - h, m + h


@dataclass(kw_only=True, eq=False)
class PublishedCredalFinal(PublishedNetwork, CredalFinal):
    """Credal Final."""

    name = f"{PREFIX}credal-final"

    def _head(self, widths: list[int], num_classes: int) -> nn.Module:
        skip = int(self._has("no-z0"))
        if self._has("sigmoid-head"):
            return _TwoLayers(widths, self.hidden, num_classes, skip, features_first=self.joint and not skip)
        if skip:
            shape = self.midpoint, self.half_length, self.half_length_decay
            return CredalHead(widths, num_classes, *shape, latents=range(1, len(widths)))
        return super()._head(widths, num_classes)

    def _credal_loss(self, bounds: Output, labels: Tensor) -> Tensor:
        if not self._has("midpoint-softmax"):
            return super()._credal_loss(bounds, labels)
        lower, upper = bounds
        return dro_loss(*log_midpoint_softmax(lower, upper), labels, self.delta)

    def _credal(self, output: Output) -> IntervalSet:
        if not self._has("midpoint-softmax"):
            return super()._credal(output)
        lower, upper = output
        return midpoint_softmax(lower.double(), upper.double())

    def _headline(self, output: Output) -> Tensor:
        score = poured(self._credal(output)).epistemic if self._has("greedy-pour") else super()._headline(output)
        return saturated(score) if self._has("saturating-auroc") else score

    def _predictor(self, graph: Graph, context: Context) -> Predictor:
        predict = super()._predictor(graph, context)
        return self._seen((lambda nodes: with_pour(predict(nodes))) if self._has("greedy-pour") else predict)


@dataclass(kw_only=True, eq=False)
class PublishedCredalLJ(PublishedCredalFinal, CredalLJ):
    """CredalLJ."""

    name = f"{PREFIX}credal-lj"


def poured(credal: IntervalSet) -> Uncertainty:
    """The three uncertainties, with the lower entropy by one greedy pour.

    Args:
        credal: The credal sets.
    """
    total, aleatoric = upper_entropy(credal), greedy_lower_entropy(credal)
    return Uncertainty(total, aleatoric, (total - aleatoric).clamp_min(0.0))


def with_pour(prediction: Prediction) -> Prediction:
    """A prediction of intervals, with the uncertainties of one greedy pour.

    Args:
        prediction: The prediction.
    """
    assert isinstance(prediction.credal, IntervalSet)
    found = poured(prediction.credal)
    scores = {"EU": found.epistemic, "AU": found.aleatoric, "TU": found.total}
    return replace(prediction, scores=scores, gap=None)


@dataclass(kw_only=True, eq=False)
class PublishedPostHoc(Published, PostHoc):
    """A score of a vanilla GNN with the choices of the published runs."""

    components = Components("model", PublishedVanilla)

    def _predictor(self, graph: Graph, context: Context) -> Predictor:
        return self._seen(super()._predictor(graph, context))


@dataclass(kw_only=True, eq=False)
class PublishedEnergy(PublishedPostHoc, Energy):
    """Energy."""

    name = f"{PREFIX}energy"


@dataclass(kw_only=True, eq=False)
class PublishedGNNSafe(PublishedPostHoc, GNNSafe):
    """GNNSafe."""

    name = f"{PREFIX}gnnsafe"


@dataclass(kw_only=True, eq=False)
class PublishedOdin(PublishedPostHoc, Odin):
    """ODIN."""

    name = f"{PREFIX}odin"


@dataclass(kw_only=True, eq=False)
class PublishedMahalanobis(PublishedPostHoc, Mahalanobis):
    """Mahalanobis, of latents or of logits."""

    name = f"{PREFIX}mahalanobis"

    def _latent(self, outputs: Outputs, nodes: Tensor) -> Tensor:
        return outputs.logits[nodes] if self._has("logit-mahalanobis") else super()._latent(outputs, nodes)


@dataclass(kw_only=True, eq=False)
class PublishedKNN(PublishedPostHoc, KNN):
    """KNN, by the mean distance or by the last."""

    name = f"{PREFIX}knn"

    def _check(self) -> None:
        super()._check()
        self.kth = self.kth or self._has("kth-neighbour")


@dataclass(kw_only=True, eq=False)
class PublishedKNNLJ(PublishedKNN, KNNLJ):
    """KNNLJ, in the joint latent with z0."""

    name = f"{PREFIX}knn-lj"


@dataclass(kw_only=True, eq=False)
class PublishedClassicalEnsemble(Published, ClassicalEnsemble):
    """The classical ensemble."""

    name = f"{PREFIX}classical-ensemble"
    components = Components("members", PublishedVanilla, size="size")

    def _predictor(self, graph: Graph, context: Context) -> Predictor:
        return self._seen(super()._predictor(graph, context))


@dataclass(kw_only=True, eq=False)
class PublishedCredalEnsemble(PublishedClassicalEnsemble, CredalEnsemble):
    """The credal ensemble, whose set is a hull or a box."""

    name = f"{PREFIX}credal-ensemble"

    def _judge(self) -> Callable[[Tensor, Tensor], Prediction]:
        if not self._has("box-hull"):
            return super()._judge()
        return partial(_boxed, class_names=self.class_names, pour=self._has("greedy-pour"))


def _boxed(nodes: Tensor, members: Tensor, class_names: tuple[str, ...], pour: bool) -> Prediction:
    """The prediction of the box around members."""
    found = Prediction.of_credal(nodes, box(members), class_names)
    return with_pour(found) if pour else found


_KINDS = (
    PublishedVanilla, PublishedCredalLJ, PublishedCredalFinal, PublishedClassicalEnsemble, PublishedCredalEnsemble,
    PublishedEnergy, PublishedOdin, PublishedMahalanobis, PublishedKNN, PublishedGNNSafe, PublishedKNNLJ,
)  # fmt: skip
PUBLISHED: dict[str, type[Method]] = {kind.name.removeprefix(PREFIX): kind for kind in _KINDS}
