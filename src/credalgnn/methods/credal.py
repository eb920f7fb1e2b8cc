"""The paper's models: CredalLJ, and its ablation Credal Final."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from ..graphs import Graph
from ..nn import CredalHead, dro_loss
from ..nn.credal import HALF_LENGTHS, MIDPOINTS, Activation, check_delta
from ..nn.training import Output
from ..sets import IntervalSet, interval_softmax, log_interval_softmax, uncertainty
from .base import Objective
from .given import Protocol
from .network import NETWORK_SPACE, Network
from .prediction import MethodError, Prediction
from .search_space import Uniform


@dataclass(kw_only=True, eq=False)
class CredalFinal(Network):
    """The credal layer on the last latent alone: the paper's ablation without the joint latent.

    Args:
        delta: The share of the hardest training nodes on which lower probabilities are trained (Equation "loss").
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

    name = "credal-final"
    score_names = ("EU", "AU", "TU")
    is_credal = True
    search_space = {**NETWORK_SPACE, "delta": Uniform(0.5, 1.0)}

    @classmethod
    def protocol_defaults(cls, protocol: Protocol) -> dict[str, Any]:
        return {"monitor": "ood_auroc", "half_length_decay": 0.0} if protocol == "paper" else {}

    @classmethod
    def objective(cls, protocol: Protocol) -> Objective:
        return "nll" if protocol == "sealed" else "auroc"

    @classmethod
    def can_prune(cls, protocol: Protocol) -> bool:
        return protocol == "paper"  # sealed, the monitor is a loss that depends on delta

    def _check(self) -> None:
        super()._check()
        try:
            check_delta(self.delta)
        except ValueError as error:
            raise MethodError(str(error)) from None
        if not 0.0 <= self.half_length_decay < math.inf:
            raise MethodError(f"half_length_decay must be 0 or above, not {self.half_length_decay}")
        for field, choice, known in (
            ("midpoint", self.midpoint, MIDPOINTS),
            ("half_length", self.half_length, HALF_LENGTHS),
        ):
            if choice not in known:
                raise MethodError(f"unknown {field} {choice!r}: choose {' or '.join(known)}")

    def _head(self, widths: list[int], num_classes: int) -> nn.Module:
        return CredalHead(widths, num_classes, self.midpoint, self.half_length, self.half_length_decay)

    def _loss(self, output: Output, labels: Tensor) -> Tensor:
        lower, upper = output
        return dro_loss(*log_interval_softmax(lower, upper), labels, self.delta)

    def _credal(self, output: Output) -> IntervalSet:
        lower, upper = output
        return interval_softmax(lower.double(), upper.double())

    def _probabilities(self, output: Output) -> Tensor:
        return self._credal(output).intersection_probability()

    def _headline(self, output: Output) -> Tensor:
        return uncertainty(self._credal(output)).epistemic

    def _logits(self, output: Output) -> Tensor:
        lower, upper = output
        return (lower + upper) / 2

    def _predict(self, graph: Graph, nodes: Tensor) -> Prediction:
        return Prediction.of_credal(nodes, self._credal(self._output(graph, nodes)), self.class_names)


@dataclass(kw_only=True, eq=False)
class CredalLJ(CredalFinal):
    """The paper's model: the credal layer on the joint latent ``[z0 | z1 | .. | zL]``, z0 the input features."""

    name = "credal-lj"
    joint = True
