"""The credal layer on a backbone that is fitted already, and stays as it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from ..graphs import Graph
from ..nn import Adjacency, Classifier, Monitor, RngScope, Schedule, Supervision, TrainingError, train
from ..nn.backbones import Features
from ..nn.layers import rows_of
from ..nn.training import at
from ..runtime.context import Context
from ..sets import IntervalSet
from .credal import JointLatents, credal_sets, judged_beside
from .parameters import ABOVE_0, AT_LEAST_0, AT_LEAST_1, SEED, Uniform
from .posthoc import OnModel, check_outputs
from .prediction import Predictor, SplitPredictor
from .training_data import TrainingData


@dataclass(kw_only=True, eq=False)
class CredalFrozen(JointLatents, OnModel):
    """The credal layer of ``credal-dual``, trained afterwards on the joint latent of a fitted model.

    The layer (Equations 2 and 3) reads ``[z0 | z1 | .. | zL]`` as the model gives them. It is trained with the DRO loss
    (Equation "loss") on the training nodes, until this loss no longer falls on the ID validation nodes, which have also
    stopped the training of the model. Classes and probabilities are the model's and need not lie in the credal sets;
    TU, AU and EU are those of the sets.

    Args:
        model: A fitted method that has outputs, shared with whoever else holds it; or a template, of which ``fit``
            fits a clone (``model_``). By default a vanilla GNN with ``seed``.
        lr: Learning rate of Adam, for the layer.
        weight_decay: L2 penalty of the layer's weights.
        epochs: Epochs of the layer at the most.
        patience: Epochs without a lower loss of the ID validation nodes after which training stops.
        seed: Of the layer's weights, and of the model if none is given.
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
        known = len(training.view.train)
        nodes, held_out = torch.arange(len(labels)).tensor_split([known])
        data = Supervision(
            latents[0], Adjacency(torch.empty(2, 0, dtype=torch.int64), len(labels)), nodes, labels[:known]
        )
        monitor = Monitor(held_out, lambda bounds: self._credal_loss(bounds, labels[known:]).item())
        schedule = Schedule(self.lr, self.weight_decay, self.epochs, self.patience)
        draws = RngScope(self.seed)
        with draws:
            self.head_ = self._credal_head([z.shape[1] for z in latents], training.view.num_classes)
        module = Classifier(_Known(latents[1:]), self.head_, hops=0, joint=True)
        try:
            self.history_ = train(
                module, data, self._credal_loss, monitor, schedule, draws,
                progress=context.progress, description=f"{self.name} seed {self.seed}", on_epoch=context.on_epoch,
            )  # fmt: skip
        except TrainingError as error:
            raise TrainingError(f"{self.name}, seed {self.seed}: {error}") from None

    def _labelled(self, training: TrainingData, context: Context) -> tuple[list[Features], Tensor]:
        """Latents and labels of the training nodes, and below them of the ID validation nodes."""
        view = training.view
        here = self.model_._outputs(view.graph, context).latents
        there = here if view.val_graph is view.graph else self.model_._outputs(view.val_graph, context).latents
        features = rows_of(there[0], torch.cat([view.train, view.val]))  # training nodes have the same numbers in both
        deeper = zip(here[1:], there[1:], strict=True)
        joined = [torch.cat([one[view.train], two[view.val]]) for one, two in deeper]  # type: ignore[index]
        labels = torch.cat([view.graph.labels[view.train], view.val_graph.labels[view.val]])
        return [features, *joined], labels

    def _predictor(self, graph: Graph, context: Context) -> Predictor:
        outputs = self.model_._outputs(graph, context)
        bounds = self.head_(outputs.latents)

        def read(nodes: Tensor) -> tuple[IntervalSet, Tensor]:
            return credal_sets(at(bounds, nodes)), outputs.logits[nodes].double().softmax(-1)

        return SplitPredictor(read, partial(judged_beside, class_names=self.class_names))

    def _state(self) -> dict[str, Tensor]:
        widths = {"widths": torch.tensor(self.head_.widths)}
        return {**widths, **{f"head.{name}": tensor for name, tensor in self.head_.state_dict().items()}}

    def _load_state(self, state: Mapping[str, Tensor]) -> None:
        with RngScope(self.seed):  # the weights are replaced
            self.head_ = self._credal_head(state["widths"].tolist(), len(self.class_names))
        weights = {name.removeprefix("head."): tensor for name, tensor in state.items() if name != "widths"}
        self.head_.load_state_dict(weights)


class _Known(nn.Module):
    """A backbone whose latents are known already."""

    is_deterministic = True

    def __init__(self, latents: list[Features]) -> None:
        super().__init__()
        self.latents = latents

    def forward(self, x: Features, edges: Adjacency) -> list[Features]:
        return self.latents
