"""Methods with the paper's credal layer: CredalLJ, CredalFinal, CredalDual and CredalFrozen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn

from ..graphs import Graph
from ..nn import Adjacency, Classifier, CredalHead, Monitor, RngScope, Supervision, dro_loss
from ..nn.backbones import Features
from ..nn.credal import HALF_LENGTHS, MIDPOINTS, Activation
from ..nn.layers import rows_of
from ..nn.training import Output, at
from ..runtime.context import Context
from ..sets import IntervalSet, interval_softmax, log_interval_softmax, uncertainty
from .base import Method
from .network import NETWORK_SPACE, Network
from .parameters import ABOVE_0, AT_LEAST_0, AT_LEAST_1, SEED, Interval, Options, Uniform
from .posthoc import OnModel, check_outputs, train_module
from .prediction import MethodError, Prediction, Predictor, SplitPredictor
from .training_data import TrainingData


@dataclass(kw_only=True, eq=False)
class CredalLayer(Method):
    """Base of methods with a credal layer: shape and loss of the layer.

    Args:
        delta: Share of the hardest training nodes on which lower probabilities are trained (Equation "loss"), with
            mini-batches of those of each batch; default 0.75.
        half_length_decay: Weight decay of the half-lengths alone, without which intervals close on easy graphs; default
            0.03, in the paper none.
        midpoint: Activation of the midpoints (Equation 2), one of ``nn.credal.MIDPOINTS``; default ``"identity"``.
        half_length: Activation of the half-lengths (Equation 2), one of ``nn.credal.HALF_LENGTHS``; default
            ``"softplus"``.
    """

    delta: float = 0.75
    half_length_decay: float = 0.03
    midpoint: Activation = "identity"
    half_length: Activation = "softplus"

    score_names = ("EU", "AU", "TU")
    is_credal = True
    protocol_defaults = {"paper": {"half_length_decay": 0.0}}
    constraints = {
        "delta": Interval(0, 1, above=True),
        "half_length_decay": AT_LEAST_0,
        "midpoint": Options(*MIDPOINTS),
        "half_length": Options(*HALF_LENGTHS),
    }

    def _credal_head(self, widths: list[int], num_classes: int) -> CredalHead:
        """Credal layer on latents of these widths."""
        return CredalHead(widths, num_classes, self.midpoint, self.half_length, self.half_length_decay)

    def _credal_loss(self, bounds: Output, labels: Tensor) -> Tensor:
        """DRO loss of the logits' bounds at labelled nodes."""
        lower, upper = bounds
        return dro_loss(*log_interval_softmax(lower, upper), labels, self.delta)


@dataclass(kw_only=True, eq=False)
class JointLatents(CredalLayer):
    """Base of methods with a credal layer on the joint latent or some of its parts.

    Args:
        latents: Numbers of the latents that the credal layer reads: 0 the features, ``[0, -1]`` these and the last.
            Default None: all of them, ``[z0 | z1 | .. | zL]``.
    """

    latents: Sequence[int] | None = None

    def _check(self) -> None:
        super()._check()
        if self.latents is None:
            return
        numbers = list(self.latents) if isinstance(self.latents, Sequence) else []
        if not numbers or isinstance(self.latents, str) or any(type(number) is not int for number in numbers):
            raise MethodError(f"latents must be None or a list of whole numbers such as [0, 1], not {self.latents!r}")
        self.latents = numbers

    def _credal_head(self, widths: list[int], num_classes: int) -> CredalHead:
        chosen = None
        if self.latents is not None:
            count = len(widths)
            wrong = [number for number in self.latents if not -count <= number < count]
            if wrong:
                raise MethodError(f"latent {wrong[0]} does not exist: choose from 0 (features) to {count - 1} (last)")
            chosen = sorted(number % count for number in self.latents)
            if len(set(chosen)) < len(chosen):
                raise MethodError(f"latents {list(self.latents)} name one latent twice: there are {count}")
        shape = self.midpoint, self.half_length, self.half_length_decay
        return CredalHead(widths, num_classes, *shape, latents=chosen)


@dataclass(kw_only=True, eq=False)
class CredalFinal(CredalLayer, Network):
    """Credal layer on the last latent alone: the paper's ablation without the joint latent.

    Example:
        >>> CredalFinal().fit(task).predict().epistemic
    """

    name = "credal-final"
    works_by_chunks = True
    search_space = {**NETWORK_SPACE, "delta": Uniform(0.5, 1.0)}
    objectives = {"sealed": "nll", "paper": "auroc"}
    protocol_defaults = {"paper": {"half_length_decay": 0.0, "monitor": "ood_auroc"}}
    prunable = ("paper",)  # sealed, the monitor is a loss that depends on delta

    def _head(self, widths: list[int], num_classes: int) -> nn.Module:
        return self._credal_head(widths, num_classes)

    def _loss(self, output: Output, labels: Tensor) -> Tensor:
        return self._credal_loss(output, labels)

    def _credal(self, output: Output) -> IntervalSet:
        return _credal_sets(output)

    def _probabilities(self, output: Output) -> Tensor:
        return self._credal(output).intersection_probability()

    def _headline(self, output: Output) -> Tensor:
        return uncertainty(self._credal(output)).epistemic

    def _logits(self, output: Output) -> Tensor:
        lower, upper = output
        return (lower + upper) / 2

    def _predictor(self, graph: Graph, context: Context) -> Predictor:
        output = self._output_of(graph, context)
        judge = partial(Prediction.of_credal, class_names=self.class_names)
        return SplitPredictor(lambda nodes: (self._credal(output(nodes)),), judge)


@dataclass(kw_only=True, eq=False)
class CredalLJ(JointLatents, CredalFinal):
    """The paper's model: credal layer on the joint latent ``[z0 | z1 | .. | zL]``, z0 the input features.

    Example:
        >>> prediction = CredalLJ().fit(task).predict()
        >>> prediction.credal.width, prediction.epistemic
    """

    name = "credal-lj"
    joint = True


@dataclass(kw_only=True, eq=False)
class CredalDual(CredalLJ):
    """The paper's authors' later model: a GNN with a classifier and a credal layer that sends no gradient back.

    The classifier, a linear layer and a softmax on zL, is trained with the cross-entropy together with the backbone;
    the credal layer (Equations 2 and 3) on the joint latent ``[z0 | z1 | .. | zL]`` with the DRO loss (Equation
    "loss"), whose gradient ends at the latents. Both are trained in the same steps. Classes and probabilities are the
    classifier's and need not lie in the credal sets; TU, AU and EU are those of the sets. Early stopping by ``id_loss``
    uses the sum of both losses, ``id_f1`` the classifier, ``ood_auroc`` EU.

    Differences from the original: this follows its authors' text. In their code both heads have a hidden layer, all
    activations are sigmoids, those of the backbone among them, the joint latent leaves out z0 (``latents=[1, 2]``), and
    the other classes enter the interval softmax by their midpoints. Here the credal layer is that of ``credal-lj``
    (``midpoint`` and ``half_length`` have the sigmoids), with the decay of its half-lengths.

    Example:
        >>> CredalDual().fit(task).predict().probabilities
    """

    name = "credal-dual"
    classifies_beside = True

    def _head(self, widths: list[int], num_classes: int) -> nn.Module:
        classifier = nn.Linear(widths[-1], num_classes)  # first, so that weights match a vanilla GNN of the same seed
        return _DualHead(classifier, self._credal_head(widths, num_classes))

    def _loss(self, output: Output, labels: Tensor) -> Tensor:
        logits, *bounds = output
        return nn.functional.cross_entropy(logits, labels) + self._credal_loss(tuple(bounds), labels)

    def _credal(self, output: Output) -> IntervalSet:
        return _credal_sets(tuple(output[1:]))

    def _probabilities(self, output: Output) -> Tensor:
        return output[0].double().softmax(-1)

    def _logits(self, output: Output) -> Tensor:
        return output[0]

    def _predictor(self, graph: Graph, context: Context) -> Predictor:
        output = self._output_of(graph, context)

        def read(nodes: Tensor) -> tuple[IntervalSet, Tensor]:
            outputs = output(nodes)
            return self._credal(outputs), self._probabilities(outputs)

        return SplitPredictor(read, partial(_classified_beside, class_names=self.class_names))


@dataclass(kw_only=True, eq=False)
class CredalFrozen(JointLatents, OnModel):
    """Credal layer of ``credal-dual``, trained afterwards on the joint latent of a fitted model.

    The layer (Equations 2 and 3) reads the model's latents ``[z0 | z1 | .. | zL]``. It is trained with the DRO loss
    (Equation "loss") on the training nodes, until this loss no longer falls on the ID validation nodes, which have also
    stopped the training of the model. Classes and probabilities are the model's and need not lie in the credal sets;
    TU, AU and EU are those of the sets.

    Args:
        model: A fitted method with outputs, shared with its other holders; or a template, of which ``fit`` fits a
            clone (``model_``). Default None: a vanilla GNN with ``seed``.
        lr: Learning rate of Adam for the layer, default 0.01.
        weight_decay: L2 penalty of the layer's weights, default 5e-4.
        epochs: Epochs of the layer, at most; default 300.
        patience: Epochs without a lower loss of the ID validation nodes after which training stops; default 50.
        seed: Seed of the layer's weights, and of the default model; default 0.

    Example:
        >>> CredalFrozen(model=Vanilla().fit(task)).fit(task).predict().epistemic
    """

    lr: float = 0.01
    weight_decay: float = 5e-4
    epochs: int = 300
    patience: int = 50

    name = "credal-frozen"
    classifies_beside = True
    search_space = {
        "lr": Uniform(1e-4, 1e-1, log=True),
        "weight_decay": Uniform(1e-7, 1e-1, log=True),
        "delta": Uniform(0.5, 1.0),
    }
    constraints = {
        "lr": ABOVE_0,
        "weight_decay": AT_LEAST_0,
        "epochs": AT_LEAST_1,
        "patience": AT_LEAST_1,
        "seed": SEED,
    }

    def _check(self) -> None:
        super()._check()
        check_outputs(self.model)

    def _prepare(self, training: TrainingData, context: Context) -> None:
        latents, labels = self._labelled(training, context)
        count = len(training.view.train)
        train, val = torch.arange(len(labels)).tensor_split([count])
        edges = Adjacency.from_index(torch.empty(2, 0, dtype=torch.int64), len(labels))
        data = Supervision(latents[0], edges, train, labels[:count])
        monitor = Monitor(val, lambda bounds: self._credal_loss(bounds, labels[count:]).item())
        draws = RngScope(self.seed)
        with draws:
            self.head_ = self._credal_head([z.shape[1] for z in latents], training.view.num_classes)
        module = Classifier(_FixedLatents(latents[1:]), self.head_, hops=0, joint=True)
        self.history_ = train_module(self, module, data, self._credal_loss, monitor, draws, context)

    def _labelled(self, training: TrainingData, context: Context) -> tuple[list[Features], Tensor]:
        """Latents and labels of the training nodes, followed by those of the ID validation nodes."""
        view = training.view
        train = self.model_._outputs(view.graph, context).latents
        val = train if view.val_graph is view.graph else self.model_._outputs(view.val_graph, context).latents
        features = rows_of(val[0], torch.cat([view.train, view.val]))  # node numbers are the same in both graphs
        deeper = zip(train[1:], val[1:], strict=True)
        joined = [torch.cat([one[view.train], other[view.val]]) for one, other in deeper]  # type: ignore[index]
        labels = torch.cat([view.graph.labels[view.train], view.val_graph.labels[view.val]])
        return [features, *joined], labels

    def _predictor(self, graph: Graph, context: Context) -> Predictor:
        outputs = self.model_._outputs(graph, context)
        bounds = self.head_(outputs.latents)

        def read(nodes: Tensor) -> tuple[IntervalSet, Tensor]:
            return _credal_sets(at(bounds, nodes)), outputs.logits[nodes].double().softmax(-1)

        return SplitPredictor(read, partial(_classified_beside, class_names=self.class_names))

    def _state(self) -> dict[str, Tensor]:
        widths = {"widths": torch.tensor(self.head_.widths)}
        return {**widths, **{f"head.{name}": tensor for name, tensor in self.head_.state_dict().items()}}

    def _load_state(self, state: Mapping[str, Tensor]) -> None:
        with RngScope(self.seed):  # the weights are replaced
            self.head_ = self._credal_head(state["widths"].tolist(), len(self.class_names))
        weights = {name.removeprefix("head."): tensor for name, tensor in state.items() if name != "widths"}
        self.head_.load_state_dict(weights)


def _credal_sets(bounds: Output) -> IntervalSet:
    """Credal sets (Equation 3) from lower and upper logits ``[N, C]``."""
    lower, upper = bounds
    return interval_softmax(lower.double(), upper.double())


def _classified_beside(
    nodes: Tensor, credal: IntervalSet, probabilities: Tensor, class_names: tuple[str, ...]
) -> Prediction:
    """Prediction of credal sets with the probabilities of a separate classifier."""
    return replace(Prediction.of_credal(nodes, credal, class_names), probabilities=probabilities)


class _DualHead(nn.Module):
    """Logits of the classifier, and lower and upper logits of the credal layer, which sends no gradient back."""

    def __init__(self, classifier: nn.Linear, credal: CredalHead) -> None:
        super().__init__()
        self.classifier, self.credal = classifier, credal

    def forward(self, latents: Sequence[Features]) -> tuple[Tensor, Tensor, Tensor]:
        last = latents[-1]
        assert isinstance(last, torch.Tensor)
        lower, upper = self.credal([z.detach() if isinstance(z, torch.Tensor) else z for z in latents])
        return self.classifier(last), lower, upper


class _FixedLatents(nn.Module):
    """Backbone with precomputed latents."""

    is_deterministic = True

    def __init__(self, latents: list[Features]) -> None:
        super().__init__()
        self.latents = latents

    def forward(self, x: Features, edges: Adjacency) -> list[Features]:
        return self.latents
