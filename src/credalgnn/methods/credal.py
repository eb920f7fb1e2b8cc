"""The paper's models: CredalLJ, its ablation Credal Final, and its authors' later one, with a classifier beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn

from ..graphs import Graph
from ..nn import CredalHead, dro_loss
from ..nn.backbones import Features
from ..nn.credal import HALF_LENGTHS, MIDPOINTS, Activation
from ..nn.training import Output
from ..runtime.context import Context
from ..sets import IntervalSet, interval_softmax, log_interval_softmax, uncertainty
from .base import Method
from .network import NETWORK_SPACE, Network
from .parameters import AT_LEAST_0, Interval, Options, Uniform
from .prediction import MethodError, Prediction, Predictor, SplitPredictor


@dataclass(kw_only=True, eq=False)
class CredalLayer(Method):
    """What all methods with a credal layer share: its shape, and the loss that trains it.

    Args:
        delta: The share of the hardest training nodes on which lower probabilities are trained (Equation "loss"); on
            mini-batches, of those of each batch.
        half_length_decay: A weight decay of the half-lengths alone, without which intervals close on easy graphs; the
            paper has none.
        midpoint: Activation of the midpoints (Equation 2): ``"identity"`` or another of ``nn.credal.MIDPOINTS``.
        half_length: Activation of the half-lengths (Equation 2): ``"softplus"`` or another of
            ``nn.credal.HALF_LENGTHS``.
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
        """The credal layer on latents of these widths."""
        return CredalHead(widths, num_classes, self.midpoint, self.half_length, self.half_length_decay)

    def _credal_loss(self, bounds: Output, labels: Tensor) -> Tensor:
        """Of the logits' bounds at labelled nodes."""
        lower, upper = bounds
        return dro_loss(*log_interval_softmax(lower, upper), labels, self.delta)


@dataclass(kw_only=True, eq=False)
class JointLatents(CredalLayer):
    """A credal layer on the joint latent, or on a part of it.

    Args:
        latents: Which latents the credal layer reads, by their numbers: 0 the features, ``[0, -1]`` these and the last.
            None: all of them, ``[z0 | z1 | .. | zL]``.
    """

    latents: Sequence[int] | None = None

    def _check(self) -> None:
        super()._check()
        if self.latents is None:
            return
        given = list(self.latents) if isinstance(self.latents, Sequence) else []
        if not given or isinstance(self.latents, str) or any(type(number) is not int for number in given):
            raise MethodError(f"latents must be None or a list of their numbers, as [0, 1], not {self.latents!r}")
        self.latents = given

    def _credal_head(self, widths: list[int], num_classes: int) -> CredalHead:
        chosen = None
        if self.latents is not None:
            count = len(widths)
            wrong = [number for number in self.latents if not -count <= number < count]
            if wrong:
                raise MethodError(f"latent {wrong[0]} does not exist: they are 0 (features) to {count - 1} (the last)")
            chosen = sorted(number % count for number in self.latents)
            if len(set(chosen)) < len(chosen):
                raise MethodError(f"latents {list(self.latents)} name one of them twice: there are {count}")
        shape = self.midpoint, self.half_length, self.half_length_decay
        return CredalHead(widths, num_classes, *shape, latents=chosen)


@dataclass(kw_only=True, eq=False)
class CredalFinal(CredalLayer, Network):
    """The credal layer on the last latent alone: the paper's ablation without the joint latent."""

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
        return credal_sets(output)

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


def credal_sets(bounds: Output) -> IntervalSet:
    """The credal sets (Equation 3) of bounds of logits.

    Args:
        bounds: The lower and the upper ones ``[N, C]``.
    """
    lower, upper = bounds
    return interval_softmax(lower.double(), upper.double())


@dataclass(kw_only=True, eq=False)
class CredalLJ(JointLatents, CredalFinal):
    """The paper's model: the credal layer on the joint latent ``[z0 | z1 | .. | zL]``, z0 the input features."""

    name = "credal-lj"
    joint = True


@dataclass(kw_only=True, eq=False)
class CredalDual(CredalLJ):
    """The paper's authors' later model: a GNN with a classifier, and beside it a credal layer that it does not feel.

    The classifier, a linear layer and a softmax on zL, is trained with the cross-entropy, and the backbone with it; the
    credal layer (Equations 2 and 3) on the joint latent ``[z0 | z1 | .. | zL]`` with the DRO loss (Equation "loss"),
    whose gradient ends at the latents. Both learn in the same steps. Classes and probabilities are the classifier's
    and need not lie in the credal sets; TU, AU and EU are those of the sets. Early stopping by ``id_loss`` looks at the
    sum of both losses, ``id_f1`` at the classifier, ``ood_auroc`` at EU.

    Differences from the original: this follows its authors' text. In their code both heads have a hidden layer, all
    activations are sigmoids, those of the backbone among them, the joint latent leaves out z0 (``latents=[1, 2]``), and
    the other classes enter the interval softmax by their midpoints. Here the credal layer is that of ``credal-lj``
    (``midpoint`` and ``half_length`` have the sigmoids), with the decay of its half-lengths.
    """

    name = "credal-dual"
    classifies_beside = True

    def _head(self, widths: list[int], num_classes: int) -> nn.Module:
        classifier = nn.Linear(widths[-1], num_classes)  # first, so that a vanilla GNN of the seed starts alike
        return _DualHead(classifier, self._credal_head(widths, num_classes))

    def _loss(self, output: Output, labels: Tensor) -> Tensor:
        logits, *bounds = output
        return nn.functional.cross_entropy(logits, labels) + self._credal_loss(tuple(bounds), labels)

    def _credal(self, output: Output) -> IntervalSet:
        return credal_sets(tuple(output[1:]))

    def _probabilities(self, output: Output) -> Tensor:
        return output[0].double().softmax(-1)

    def _logits(self, output: Output) -> Tensor:
        return output[0]

    def _predictor(self, graph: Graph, context: Context) -> Predictor:
        output = self._output_of(graph, context)

        def read(nodes: Tensor) -> tuple[IntervalSet, Tensor]:
            found = output(nodes)
            return self._credal(found), self._probabilities(found)

        return SplitPredictor(read, partial(judged_beside, class_names=self.class_names))


def judged_beside(
    nodes: Tensor, credal: IntervalSet, probabilities: Tensor, class_names: tuple[str, ...]
) -> Prediction:
    """The prediction of credal sets, with the probabilities of the classifier beside them.

    Args:
        nodes: The nodes ``[N]``.
        credal: Their credal sets ``[N, C]``.
        probabilities: The classifier's ``[N, C]``.
        class_names: The names of the classes.
    """
    return replace(Prediction.of_credal(nodes, credal, class_names), probabilities=probabilities)


class _DualHead(nn.Module):
    """Logits of the classifier, and lower and upper logits of the credal layer, which sends back no gradient."""

    def __init__(self, classifier: nn.Linear, credal: CredalHead) -> None:
        super().__init__()
        self.classifier, self.credal = classifier, credal

    def forward(self, latents: Sequence[Features]) -> tuple[Tensor, Tensor, Tensor]:
        last = latents[-1]
        assert isinstance(last, torch.Tensor)
        lower, upper = self.credal([z.detach() if isinstance(z, torch.Tensor) else z for z in latents])
        return self.classifier(last), lower, upper
