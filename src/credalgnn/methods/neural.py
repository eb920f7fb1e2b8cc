"""Methods that are trained: the vanilla GNN, and the paper's CredalLJ and Credal Final."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from ..graphs import Graph
from ..nn import Classifier, CredalHead, Monitor, Schedule, TrainingError, dro_loss, make_backbone, train
from ..nn.backbones import BackboneError, BackboneFactory, Features, pyg_model, widths_of
from ..nn.credal import HALF_LENGTHS, MIDPOINTS, Activation, check_delta
from ..nn.training import Epoch, Output, at
from ..sets import IntervalSet, interval_softmax, log_interval_softmax, uncertainty
from . import scores
from .base import Given, Method, inputs
from .prediction import MethodError, Prediction

MONITORS = ("id_loss", "id_f1", "ood_auroc")


class Outputs(NamedTuple):
    """A fitted network's logits ``[N, C]`` and latents ``z0 .. zL``; z0 are the features, perhaps sparse."""

    logits: Tensor
    latents: list[Features]


@dataclass(kw_only=True, eq=False)
class Neural(Method):
    """A backbone and a head, trained together.

    ``monitor`` is what early stopping looks at: the loss (``id_loss``) or accuracy (``id_f1``, the paper's micro F1) of
    ID validation nodes, or, under the paper's protocol only, the AUROC with which the headline score tells OOD from ID
    validation nodes (``ood_auroc``).
    """

    backbone: str | BackboneFactory = "sage"
    hidden: int = 64
    layers: int = 2
    dropout: float = 0.0
    lr: float = 0.01
    weight_decay: float = 5e-4
    epochs: int = 300
    patience: int = 50
    monitor: str = "id_loss"
    batch_size: int | None = None
    seed: int = 0
    device: str = "cpu"

    joint: ClassVar[bool] = False

    def _check(self) -> None:
        for name, value, good, wanted in (
            ("hidden", self.hidden, self.hidden >= 1, "at least 1"),
            ("layers", self.layers, self.layers >= 1, "at least 1"),
            ("dropout", self.dropout, 0.0 <= self.dropout < 1.0, "at least 0 and below 1"),
            ("lr", self.lr, 0.0 < self.lr < math.inf, "above 0"),
            ("weight_decay", self.weight_decay, 0.0 <= self.weight_decay < math.inf, "0 or above"),
            ("epochs", self.epochs, self.epochs >= 1, "at least 1"),
            ("patience", self.patience, self.patience >= 1, "at least 1"),
            ("batch_size", self.batch_size, self.batch_size is None or self.batch_size >= 1, "None or at least 1"),
            ("seed", self.seed, 0 <= self.seed < 2**32, f"between 0 and {2**32 - 1}"),
        ):
            if not good:
                raise MethodError(f"{name} must be {wanted}, not {value}")
        if self.monitor not in MONITORS:
            raise MethodError(f"unknown monitor {self.monitor!r}: choose {', '.join(MONITORS)}")
        try:
            torch.empty(0, device=self.device)
        except (RuntimeError, AssertionError) as error:
            raise MethodError(f"device {self.device!r} cannot be used: {str(error).splitlines()[0]}") from None
        if not isinstance(self.backbone, str):
            if isinstance(self.backbone, nn.Module) or not callable(self.backbone):
                raise MethodError(f"backbone must be a name or a function that makes one, not {self.backbone!r:.60}")
        elif self.backbone.lower() in ("gcn", "sage", "graphsage"):
            self.backbone = self.backbone.lower().replace("graph", "")
        else:
            try:
                pyg_model(self.backbone)
            except ValueError as error:
                raise MethodError(str(error)) from None

    def _fit(self, given: Given) -> None:
        view = given.view
        x, edges = inputs(view.graph, self.device)
        labels = view.graph.labels[view.train].to(self.device)
        monitor = self._monitor(given)
        with self._own_draws():
            torch.manual_seed(self.seed)
            module = self._build(view.graph.num_features, view.num_classes)
            schedule = Schedule(self.lr, self.weight_decay, self.epochs, self.patience, self.batch_size)
            try:
                self.history_: list[Epoch] = train(
                    module, x, edges, view.train.to(self.device), labels, self._loss, monitor, schedule,
                    given.progress, f"{self.name} seed {self.seed}", given.on_epoch,
                )  # fmt: skip
            except TrainingError as error:
                raise TrainingError(f"{self.name}, seed {self.seed}: {error}") from None
            except BackboneError as error:
                raise MethodError(str(error)) from None
        self.module_ = module

    def _own_draws(self) -> AbstractContextManager[None]:
        """Draws inside neither depend on torch's global generators nor move them."""
        return torch.random.fork_rng([] if self.device == "cpu" else [torch.device(self.device)])

    def _build(self, num_features: int, num_classes: int) -> Classifier:
        try:
            backbone = make_backbone(self.backbone, num_features, self.hidden, self.layers, self.dropout)
        except ValueError as error:
            raise MethodError(str(error)) from None
        widths = widths_of(backbone, num_features)
        head = self._head([num_features, *widths] if self.joint else widths[-1:], num_classes)
        return Classifier(backbone, head, len(widths), self.joint).to(self.device)

    def _monitor(self, given: Given) -> Monitor:
        """What early stopping looks at, and on which graph."""
        view = given.view
        nodes, labels = view.val.to(self.device), view.val_graph.labels[view.val].to(self.device)
        on = None if view.val_graph is view.graph else inputs(view.val_graph, self.device)
        if self.monitor == "id_loss":
            return Monitor(nodes, lambda output: self._loss(output, labels).item(), on)
        if self.monitor == "id_f1":
            return Monitor(
                nodes, lambda output: -(self._probabilities(output).argmax(-1) == labels).double().mean().item(), on
            )
        if given.validation is None:
            raise MethodError(
                "monitor 'ood_auroc' looks at OOD validation nodes, which the sealed protocol forbids: "
                "fit(task, protocol='paper'), or choose id_loss or id_f1"
            )
        from sklearn.metrics import roc_auc_score

        nodes, is_ood = given.validation.nodes.to(self.device), given.validation.is_ood.numpy()
        if is_ood.all() or not is_ood.any():
            raise MethodError("monitor 'ood_auroc' needs both ID and OOD nodes in the validation part")
        return Monitor(nodes, lambda output: -float(roc_auc_score(is_ood, self._headline(output).cpu().numpy())))

    def _output(self, graph: Graph, nodes: Tensor) -> Output:
        x, edges = inputs(graph, self.device)
        try:
            output = at(self.module_(x, edges), nodes.to(self.device))
        except BackboneError as error:
            raise MethodError(str(error)) from None
        return output.cpu() if isinstance(output, Tensor) else tuple(part.cpu() for part in output)

    @abstractmethod
    def _head(self, widths: list[int], num_classes: int) -> nn.Module: ...

    @abstractmethod
    def _loss(self, output: Output, labels: Tensor) -> Tensor: ...

    @abstractmethod
    def _probabilities(self, output: Output) -> Tensor: ...

    @abstractmethod
    def _headline(self, output: Output) -> Tensor: ...

    def _tensors(self) -> dict[str, Tensor]:
        return dict(self.module_.state_dict())

    def _restore(self, tensors: Mapping[str, Tensor]) -> None:
        with self._own_draws():
            self.module_ = self._build(self.num_features, len(self.class_names))
        self.module_.load_state_dict(dict(tensors))
        self.module_.eval()


@dataclass(kw_only=True, eq=False)
class Vanilla(Neural):
    """A GNN with a linear layer and a softmax: what everybody uses, and what post-hoc methods stand on."""

    name = "vanilla"
    score_names = ("msp", "entropy")

    def outputs(self, graph: Graph | None = None) -> Outputs:
        """Logits and latents of all nodes, on the CPU."""
        graph = self._graph(graph)
        with torch.no_grad():
            outputs = self.run(inputs(graph, self.device)[0], graph)
        return Outputs(outputs.logits.cpu(), [z.to("cpu") for z in outputs.latents])

    def run(self, x: Features, graph: Graph) -> Outputs:
        """Logits and latents for features ``x`` on the edges of ``graph``; differentiable, on the method's device."""
        latents = self.module_.backbone(x, inputs(graph, self.device)[1])
        return Outputs(self.module_.head(latents[-1]), [x, *latents])

    def _head(self, widths: list[int], num_classes: int) -> nn.Module:
        return nn.Linear(widths[-1], num_classes)

    def _loss(self, output: Output, labels: Tensor) -> Tensor:
        assert isinstance(output, Tensor)
        return nn.functional.cross_entropy(output, labels)

    def _probabilities(self, output: Output) -> Tensor:
        assert isinstance(output, Tensor)
        return output.double().softmax(-1)

    def _headline(self, output: Output) -> Tensor:
        assert isinstance(output, Tensor)
        return scores.msp(output)

    def _predict(self, graph: Graph, nodes: Tensor) -> Prediction:
        logits = self._output(graph, nodes)
        assert isinstance(logits, Tensor)
        found = {"msp": scores.msp(logits), "entropy": scores.entropy(logits)}
        return Prediction(nodes, found, "msp", self.class_names, self._probabilities(logits))


@dataclass(kw_only=True, eq=False)
class CredalFinal(Neural):
    """The credal layer on the last latent alone: the paper's ablation without the joint latent.

    ``delta`` is the share of the hardest training nodes on which lower probabilities are trained. ``half_length_decay``
    is a weight decay of the half-lengths alone, without which intervals close on easy graphs; the paper has none.
    """

    delta: float = 0.75
    half_length_decay: float = 0.03
    midpoint: Activation = "identity"
    half_length: Activation = "softplus"

    name = "credal-final"
    score_names = ("EU", "AU", "TU")
    is_credal = True

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

    def _predict(self, graph: Graph, nodes: Tensor) -> Prediction:
        return Prediction.of_credal(nodes, self._credal(self._output(graph, nodes)), self.class_names)


@dataclass(kw_only=True, eq=False)
class CredalLJ(CredalFinal):
    """The paper's model: the credal layer on the joint latent ``[z0 | z1 | .. | zL]``, z0 the input features."""

    name = "credal-lj"
    joint = True
