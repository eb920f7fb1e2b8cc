"""The paper's experiment with choices of its published runs, by name.

The authors have told these choices since. None is part of a benchmark: `reproduce` alone knows them, and their records
are not ranked. Methods with choices derive from the built-in ones, are in no registry, and equal them without choices.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, NamedTuple, Self

import torch
from torch import Tensor, nn

from ..graphs import Graph, Split, Task
from ..methods import KNN, KNNLJ, Energy, GNNSafe, Mahalanobis, Method, MethodError, Odin, Vanilla, method_path
from ..methods.base import Components, Outputs
from ..methods.credal import CredalFinal, CredalLJ
from ..methods.ensembles import ClassicalEnsemble, CredalEnsemble
from ..methods.network import Network
from ..methods.posthoc import PostHoc
from ..methods.prediction import Prediction, Predictor
from ..methods.training_data import TrainingData
from ..nn import GCN, SAGE, Classifier, CredalHead, dro_loss
from ..nn.backbones import BackboneFactory, Features
from ..nn.credal import JointLinear
from ..nn.training import Epoch, Output
from ..records.schema import PREFIX
from ..runtime.context import Context
from ..runtime.names import suggestion
from ..sets import IntervalSet, Uncertainty, upper_entropy
from .paper_plan import ENSEMBLES, POST_HOC, TRAINED, Variant

SEED = 42  # of all training, with one-seed
_CREDAL = ("credal-lj", "credal-final")


class Choice(NamedTuple):
    """A choice of the authors' runs.

    Attributes:
        runs: The choice of the runs.
        paper: The paper's text.
        methods: Methods concerned.
        is_told: Whether the authors have told it; otherwise it is a guess.
    """

    runs: str
    paper: str
    methods: tuple[str, ...]
    is_told: bool = True


CHOICES = {
    "sigmoid-head": Choice(
        "the credal head has two layers with a sigmoid between them, and sigmoids for midpoints and half-lengths",
        "one affine map, with activations that are not named",
        _CREDAL,
    ),
    "sigmoid-backbone": Choice(
        "the backbones of credal models have sigmoids between their layers", "not said", _CREDAL
    ),
    "midpoint-softmax": Choice(
        "other classes enter the interval softmax by their midpoints, and bounds are tightened afterwards",
        "by their opposite bounds (Equation 3)",
        _CREDAL,
    ),
    "no-z0": Choice("the joint latent of credal-lj leaves out the features z0", "it begins with z0", ("credal-lj",)),
    "last-epoch": Choice(
        "the weights of the last epoch, which is the best one and the patience later, are used",
        "not said",
        (*TRAINED, *ENSEMBLES, *POST_HOC),
    ),
    "one-seed": Choice(
        "all training has one seed, 42, and the five runs are the five best trials of the search by validation",
        "five runs",
        (*TRAINED, *ENSEMBLES, *POST_HOC),
    ),
    "ood-stopping": Choice(
        "vanilla GNNs are stopped and ranked by the AUROC of OOD validation nodes",
        "by the F1 of ID validation nodes",
        ("vanilla", *ENSEMBLES, *POST_HOC),
    ),
    "fresh-split": Choice(
        "where splits are random, what stands on vanilla GNNs is judged on another split than they were trained on",
        "one split",
        (*ENSEMBLES, *POST_HOC),
    ),
    "kth-neighbour": Choice("the distance to the k-th neighbour", "the mean distance to k", ("knn", "knn-lj")),
    "logit-mahalanobis": Choice("Mahalanobis distances between logits", "between latents", ("mahalanobis",)),
    "box-hull": Choice(
        "the set of an ensemble is the box of the least and largest probability of each class",
        "the convex hull of its members",
        ("credal-ensemble",),
    ),
    "greedy-pour": Choice(
        "the lower entropy of intervals is found by one greedy pour",
        "the exact minimum",
        (*_CREDAL, "credal-ensemble"),
    ),
    "saturating-auroc": Choice(
        "scores outside of [0, 1] pass a float32 sigmoid before the AUROC is taken",
        "AUROC",
        (*_CREDAL, *ENSEMBLES, *POST_HOC),
    ),
    "row-normalised": Choice(
        "the features of every node are divided by their sum", "not said", (*TRAINED, *ENSEMBLES, *POST_HOC), False
    ),
    "sigmoid-vanilla": Choice(
        "the backbones of vanilla GNNs have sigmoids, too", "not said", ("vanilla", *ENSEMBLES, *POST_HOC), False
    ),
}
TOLD = tuple(name for name, choice in CHOICES.items() if choice.is_told)
NOTE = (
    "As published: {}. These are choices of the paper's published runs, not the honest protocol: the figures explain "
    "the paper's table and say nothing about how good a method is."
)


def choices_named(names: Sequence[str]) -> tuple[str, ...]:
    """Return choices in their order, each once; all that the authors have told if none is named."""
    for name in names:
        if name not in CHOICES:
            raise MethodError(f"unknown published choice {name!r:.60}: {suggestion(name, CHOICES)}")
    return tuple(name for name in CHOICES if name in names) if names else TOLD


def concerning(method: str, names: Sequence[str]) -> list[str]:
    """Return those of some choices that concern a method of the paper's experiment, in their order."""
    return [name for name in CHOICES if name in names and method in CHOICES[name].methods]


def note(names: Sequence[str]) -> str:
    """Return the note above tables of runs with such choices."""
    return NOTE.format(", ".join(names))


def has_random_split(task: Task) -> bool:
    """Return whether a task's split is random, and not published with its graph."""
    return Task.leave_out(task.graph, task.ood_classes).fingerprint == task.fingerprint


def with_rows_of_sum_one(task: Task) -> Task:
    """Return the task with the features of every node divided by their sum."""
    features = task.graph.features.to_dense()
    shares = features / features.abs().sum(1, keepdim=True).clamp_min(1e-12)
    graph = task.graph.replace(features=shares)
    return Task.leave_out(graph, task.ood_classes, task.split, name=task.name, source=task.source)


def log_midpoint_softmax(lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    """Return logarithms of lower and upper probabilities, with the other classes at their midpoints."""
    middle = (lower + upper) / 2
    diagonal = torch.eye(middle.shape[-1], dtype=torch.bool, device=middle.device)
    others = middle[..., None, :].masked_fill(diagonal, -torch.inf).logsumexp(-1)
    logs = [torch.nn.functional.logsigmoid(logits - others) for logits in (lower, upper)]
    return logs[0], logs[1]


def midpoint_softmax(lower: Tensor, upper: Tensor) -> IntervalSet:
    """Return the tightened credal sets of these bounds."""
    low, up = log_midpoint_softmax(lower, upper)
    return IntervalSet(low.exp(), up.exp()).reachable()


def greedy_lower_entropy(credal: IntervalSet) -> Tensor:
    """Return the entropy in bits after one pour: the remaining mass goes to the classes with the largest upper bounds.

    That is a distribution of the set, and so no smaller than the lower entropy.
    """
    upper, order = credal.upper.double().sort(-1, descending=True)
    lower = credal.lower.double().gather(-1, order)
    room = upper - lower
    left = 1.0 - lower.sum(-1, keepdim=True) - (room.cumsum(-1) - room)
    p = lower + left.clamp_min(0.0).minimum(room)
    return -torch.xlogy(p, p).sum(-1) / math.log(2.0)


def box(members: Tensor) -> IntervalSet:
    """Return all distributions between the members' smallest and largest probability of each class."""
    return IntervalSet(members.amin(0), members.amax(0))


def saturated(score: Tensor) -> Tensor:
    """Return scores as an AUROC sees them that takes values outside [0, 1] for logits, in float32."""
    single = score.float()
    if bool(((single >= 0.0) & (single <= 1.0)).all()):
        return score
    return single.sigmoid()


@dataclass(kw_only=True, eq=False)
class Published(Method):
    """Base of methods with choices of the published runs; `choices` are the names of those that concern it."""

    choices: Sequence[str] = ()

    is_ranked: ClassVar[bool] = False

    def _check(self) -> None:
        super()._check()
        self.choices = list(self.choices)
        if self.choices != concerning(self.name.removeprefix(PREFIX), self.choices):
            raise MethodError(f"choices of {self.name} must be those of {', '.join(CHOICES)} that concern it, in order")

    def _has(self, choice: str) -> bool:
        return choice in self.choices

    def _saturated(self, predict: Predictor) -> Predictor:
        """Return a predictor with scores as the AUROC of the published runs sees them."""
        if not self._has("saturating-auroc"):
            return predict

        def saturate(nodes: Tensor) -> Prediction:
            prediction = predict(nodes)
            return replace(prediction, scores={name: saturated(score) for name, score in prediction.scores.items()})

        return saturate


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
    """Keeps the latest weights of a training."""

    def __init__(self, network: PublishedNetwork, on_epoch: Callable[[Epoch], None] | None) -> None:
        self._network, self._on_epoch = network, on_epoch
        self.weights: dict[str, Tensor] = {}

    def __call__(self, line: Epoch) -> None:
        if self._on_epoch is not None:
            self._on_epoch(line)
        self.weights = {name: t.detach().clone() for name, t in self._network._building.state_dict().items()}


@dataclass(kw_only=True, eq=False)
class PublishedVanilla(PublishedNetwork, Vanilla):
    """A vanilla GNN; with `fresh_split` it is trained on another split than the method above it is evaluated on."""

    fresh_split: bool = False

    name = f"{PREFIX}vanilla"

    def _check(self) -> None:
        super()._check()
        if self._has("ood-stopping"):
            self.monitor = "ood_auroc"

    def fit(self, data: Task | Graph, **options: Any) -> Self:
        """Fit as `Method.fit` does; with `fresh_split` on another random split of the task's graph."""
        if not self.fresh_split or not isinstance(data, Task):
            return super().fit(data, **options)
        split = Split.random(data.graph.num_nodes, self.seed + 1)
        super().fit(Task.leave_out(data.graph, data.ood_classes, split, name=data.name), **options)
        self.fingerprint = data.fingerprint  # methods above then accept it
        return self


@dataclass(kw_only=True, eq=False)
class PublishedVanillaByOOD(PublishedVanilla):
    """A vanilla GNN ranked by the AUROC of OOD validation nodes."""

    objectives = {"sealed": "auroc", "paper": "auroc"}  # noqa: RUF012


class _TwoLayers(nn.Module):
    """A credal head with a hidden layer and sigmoids, which does not read the first `skip` latents."""

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
        return self._saturated((lambda nodes: with_pour(predict(nodes))) if self._has("greedy-pour") else predict)


def poured(credal: IntervalSet) -> Uncertainty:
    """Return the three uncertainties, with the lower entropy by one greedy pour."""
    total, aleatoric = upper_entropy(credal), greedy_lower_entropy(credal)
    return Uncertainty(total, aleatoric, (total - aleatoric).clamp_min(0.0))


def with_pour(prediction: Prediction) -> Prediction:
    """Return a prediction of intervals with the uncertainties of one greedy pour."""
    assert isinstance(prediction.credal, IntervalSet)
    bits = poured(prediction.credal)
    scores = {"EU": bits.epistemic, "AU": bits.aleatoric, "TU": bits.total}
    return replace(prediction, scores=scores, gap=None)


@dataclass(kw_only=True, eq=False)
class PublishedPostHoc(Published, PostHoc):
    """A score of a vanilla GNN with the choices of the published runs."""

    components = Components("model", PublishedVanilla)

    def _predictor(self, graph: Graph, context: Context) -> Predictor:
        return self._saturated(super()._predictor(graph, context))


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
class PublishedClassicalEnsemble(Published, ClassicalEnsemble):
    """The classical ensemble."""

    name = f"{PREFIX}classical-ensemble"
    components = Components("members", PublishedVanilla, size="size")

    def _predictor(self, graph: Graph, context: Context) -> Predictor:
        return self._saturated(super()._predictor(graph, context))


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
    prediction = Prediction.of_credal(nodes, box(members), class_names)
    return with_pour(prediction) if pour else prediction


def _derived(base: type[Any], kind: type[Method]) -> type[Method]:
    """The class of a method with choices that are all handled by a base."""
    name, namespace = f"Published{kind.__name__}", {"name": f"{PREFIX}{kind.name}", "__module__": __name__}
    return dataclass(kw_only=True, eq=False)(type(name, (base, kind), namespace))


PublishedCredalLJ = _derived(PublishedCredalFinal, CredalLJ)
PublishedEnergy = _derived(PublishedPostHoc, Energy)
PublishedGNNSafe = _derived(PublishedPostHoc, GNNSafe)
PublishedOdin = _derived(PublishedPostHoc, Odin)
PublishedKNNLJ = _derived(PublishedKNN, KNNLJ)
_KINDS = (
    PublishedVanilla, PublishedCredalLJ, PublishedCredalFinal, PublishedClassicalEnsemble, PublishedCredalEnsemble,
    PublishedEnergy, PublishedOdin, PublishedMahalanobis, PublishedKNN, PublishedGNNSafe, PublishedKNNLJ,
)  # fmt: skip
PUBLISHED: dict[str, type[Method]] = {kind.name.removeprefix(PREFIX): kind for kind in _KINDS}


class AsPublished(Variant):
    """The paper's experiment with choices of its published runs; those that do not apply change nothing.

    With ``one-seed`` run number k is the k-th best of the search: of trained networks the k-th best trial; a post-hoc
    method uses the k-th best vanilla GNN; an ensemble has the k-th best size.
    """

    methods = tuple(PUBLISHED)

    def __init__(self, task: Task, choices: Sequence[str]) -> None:
        random = has_random_split(task)
        self.choices = tuple(name for name in choices if name != "fresh-split" or random)
        self.one_seed = "one-seed" in self.choices

    def path(self, method: str) -> str:
        if method == "vanilla" and "ood-stopping" in self.choices:
            return method_path(PublishedVanillaByOOD)
        return method_path(PUBLISHED[method]) if method in PUBLISHED else method

    def fixed(self, method: str) -> dict[str, Any]:
        return {"choices": concerning(method, self.choices)} if method in PUBLISHED else {}

    def below(self) -> dict[str, Any]:
        return {**self.fixed("vanilla"), "fresh_split": "fresh-split" in self.choices}

    def identity(self, method: str, below: Sequence[Mapping[str, Any]]) -> list[Any]:
        return [self.fixed(method), list(below)]
