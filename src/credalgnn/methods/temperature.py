"""Calibration of a fitted model on validation nodes: temperature scaling and CaGCN."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from ..graphs import Graph
from ..nn import GCN, Classifier, Monitor, RngScope, Supervision
from ..nn.training import Output
from ..runtime.context import Context
from . import scores
from .base import Outputs
from .inputs import inputs
from .parameters import ABOVE_0, AT_LEAST_0, AT_LEAST_1, SEED, Interval, Uniform
from .posthoc import PostHoc, train_module
from .training_data import TrainingData

RANGE = (0.05, 20.0)  # bounds of the temperature, which goes to 0 if all validation nodes are classified correctly
CAUTION = 2.0  # penalty that keeps a cautious temperature near 1 where there are few nodes
OFFSET = 1.1  # in CaGCN's factor log(exp(t) + 1.1) of the logits


@dataclass(kw_only=True, eq=False)
class Calibrated(PostHoc):
    """Base of methods that score the entropy of a fitted model's calibrated softmax.

    Calibration is learnt from the ID validation nodes alone. They have also stopped the training of the model, so it
    looks slightly better calibrated on them than on new nodes.
    """

    score_names = ("entropy",)

    def _scored(self, graph: Graph, context: Context) -> Outputs:
        outputs = super()._scored(graph, context)
        return outputs._replace(logits=self._calibrated_logits(graph, outputs.logits))

    @abstractmethod
    def _calibrated_logits(self, graph: Graph, logits: Tensor) -> Tensor:
        """Return the logits of all nodes, each divided by its temperature."""

    def _scorer(self, graph: Graph, outputs: Outputs, context: Context) -> Callable[[Tensor], Tensor]:
        return lambda nodes: scores.entropy(outputs.logits[nodes])


@dataclass(kw_only=True, eq=False)
class Temperature(Calibrated):
    """Temperature scaling (Guo et al. 2017): logits divided by one temperature T (``temperature_``).

    T minimises the NLL of the ID validation nodes; the score is the entropy of ``softmax(logits / T)`` in bits.

    Differences from the original: T comes from a line search instead of L-BFGS, and stays between 0.05 and 20, since it
    would go to 0 where every validation node is classified correctly.

    Example:
        >>> Temperature(model=fitted).fit(task).predict().probabilities
    """

    name = "temperature"

    def _prepare(self, training: TrainingData, context: Context) -> None:
        view = training.view
        logits = self.model_._outputs(view.val_graph, context).logits[view.val]
        self.temperature_ = best_temperature(logits, view.val_graph.labels[view.val])

    def _calibrated_logits(self, graph: Graph, logits: Tensor) -> Tensor:
        return logits.double() / self.temperature_

    def _state(self) -> dict[str, Tensor]:
        return {"temperature": torch.tensor([self.temperature_], dtype=torch.float64)}

    def _load_state(self, state: Mapping[str, Tensor]) -> None:
        (self.temperature_,) = state["temperature"].tolist()


def best_temperature(logits: Tensor, labels: Tensor) -> float:
    """Return the temperature within ``RANGE`` with the least NLL of labels ``[N]`` under logits ``[N, C]``."""
    from scipy.optimize import minimize_scalar

    values = logits.double()

    def nll(log_temperature: float) -> float:  # unimodal: convex in 1 / T
        return nn.functional.cross_entropy(values / math.exp(log_temperature), labels).item()

    low, high = map(math.log, RANGE)
    return math.exp(float(minimize_scalar(nll, bounds=(low, high), method="bounded", options={"xatol": 1e-6}).x))


def cautious_temperature(logits: Tensor, labels: Tensor) -> float:
    """Return a temperature of at least 1 that fits labels ``[N]`` to logits ``[N, C]``; near 1 for few labels.

    It reduces confidence but never sharpens: doubt learnt from noisy training labels stays, even if the validation
    labels are clean.
    """
    from scipy.optimize import minimize_scalar

    def loss(log_temperature: float) -> float:
        fit = nn.functional.cross_entropy(logits / math.exp(log_temperature), labels, reduction="sum")
        return fit.item() + CAUTION * log_temperature**2

    return math.exp(max(0.0, float(minimize_scalar(loss, bounds=(-3.0, 3.0), method="bounded").x)))


@dataclass(kw_only=True, eq=False)
class CaGCN(Calibrated):
    """CaGCN (Wang et al. 2021): node-wise temperatures from a two-layer GCN on the logits.

    A node's logits are multiplied by ``log(exp(t) + 1.1)``, one over its temperature, for the GCN's output t. The GCN
    is trained on the ID validation nodes with ``NLL + margin_weight * L_cal``, where ``L_cal`` is the mean of
    ``1 - p1 + p2`` over correctly classified nodes and of ``p1 - p2`` over the others, p1 and p2 being the two largest
    probabilities (``margin_loss``). The weights with the least NLL on these same nodes are kept, as in the original's
    code.

    The factor, the margin term and the defaults are those of the original's code. Difference from it: its self-training
    (CaGCN-st), which adds pseudo-labels to the training nodes, is left out.

    Args:
        hidden: Units of the GCN's hidden layer, default 16.
        dropout: Probability of dropping one of these units, in training; default 0.5.
        lr: Learning rate of Adam, default 0.01.
        weight_decay: L2 penalty of the GCN's weights, default 5e-3.
        margin_weight: Weight of the margin term, the original's lambda; default 0.5.
        epochs: Epochs, at most; default 2000.
        patience: Epochs without a lower NLL after which training stops; default 100.
        seed: Seed of the GCN's weights and dropout, and of the default model; default 0.

    Example:
        >>> CaGCN(model=fitted).fit(task).predict().score
    """

    hidden: int = 16
    dropout: float = 0.5
    lr: float = 0.01
    weight_decay: float = 5e-3
    margin_weight: float = 0.5
    epochs: int = 2000
    patience: int = 100

    name = "cagcn"
    search_space = {"lr": Uniform(1e-3, 1e-1, log=True), "weight_decay": Uniform(1e-4, 1e-1, log=True),
                    "margin_weight": (0.0, 0.25, 0.5, 1.0)}  # fmt: skip
    constraints = {
        "hidden": AT_LEAST_1,
        "dropout": Interval(0, 1, below=True),
        "lr": ABOVE_0,
        "weight_decay": AT_LEAST_0,
        "margin_weight": AT_LEAST_0,
        "epochs": AT_LEAST_1,
        "patience": AT_LEAST_1,
        "seed": SEED,
    }

    def _prepare(self, training: TrainingData, context: Context) -> None:
        view = training.view
        nodes, labels = view.val, view.val_graph.labels[view.val]
        logits = self.model_._outputs(view.val_graph, context).logits.float()
        data = Supervision(logits, inputs(view.val_graph)[1], nodes, labels)
        monitor = Monitor(nodes, lambda output: nn.functional.cross_entropy(cast(Tensor, output), labels).item())
        draws = RngScope(self.seed)
        with draws:
            self.module_ = self._build(view.num_classes)
        self.history_ = train_module(self, self.module_, data, self._loss, monitor, draws, context)

    def _build(self, num_classes: int) -> Classifier:
        return Classifier(GCN(num_classes, self.hidden, 2, 1, self.dropout), _Scaling(), hops=2, joint=True)

    def _loss(self, output: Output, labels: Tensor) -> Tensor:
        logits = cast(Tensor, output)
        return nn.functional.cross_entropy(logits, labels) + self.margin_weight * margin_loss(logits, labels)

    def _calibrated_logits(self, graph: Graph, logits: Tensor) -> Tensor:
        return cast(Tensor, self.module_(logits.float(), inputs(graph)[1]))

    def _state(self) -> dict[str, Tensor]:
        return dict(self.module_.state_dict())

    def _load_state(self, state: Mapping[str, Tensor]) -> None:
        with RngScope(self.seed):  # the weights are replaced
            self.module_ = self._build(len(self.class_names))
        self.module_.load_state_dict(dict(state))
        self.module_.eval()


class _Scaling(nn.Module):
    """Logits times ``log(exp(t) + 1.1)``; reads logits, a hidden latent and t."""

    def forward(self, latents: Sequence[Tensor]) -> Tensor:
        logits, *_, t = latents
        offset = math.log(OFFSET)
        return logits * (offset + nn.functional.softplus(t - offset))


def margin_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Return CaGCN's calibration term: reward confidence where the prediction is right, penalise it elsewhere."""
    p = logits.softmax(-1)
    first, second = p.topk(2).values.unbind(-1)
    right = p.argmax(-1) == labels
    return torch.where(right, 1.0 - first + second, first - second).mean()
