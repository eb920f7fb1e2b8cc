"""Methods that train a network, and the vanilla GNN."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, cast

import torch
from torch import Tensor, nn

from ..graphs import Graph
from ..nn import Classifier, Monitor, RngScope, Schedule, Supervision, TrainingError, make_backbone, train
from ..nn.backbones import NATIVE, Adjacency, BackboneError, BackboneFactory, Features, Stack, pyg_model, widths_of
from ..nn.sampling import ALL
from ..nn.training import Output, at
from ..runtime.context import Context, WorkerContext
from ..runtime.errors import translated
from . import scores
from .base import Method, Outputs
from .checkpoints import checkpoint_of
from .diagnostics import warn_of_large_features
from .inputs import inputs, inputs_by_rows
from .large import (
    BATCH,
    VALIDATION,
    StoredOutputs,
    batch_size_for,
    check_prediction,
    keep_within,
    prediction_bytes,
)
from .parameters import ABOVE_0, AT_LEAST_0, AT_LEAST_1, IF_SET, SEED, Interval, Options, Space, Uniform
from .prediction import MethodError, Prediction, Predictor
from .training_data import TrainingData

MONITORS = ("id_loss", "id_f1", "ood_auroc")
NETWORK_SPACE: Space = {  # the paper's, appendix "Model selection"
    "lr": Uniform(1e-5, 1e-1),
    "hidden": (64, 128, 256),
    "layers": (2, 3),
    "weight_decay": Uniform(1e-7, 1e-1),
    "backbone": ("gcn", "sage"),
}


@dataclass(kw_only=True, eq=False)
class Network(Method):
    """Backbone and head, trained together.

    Subclasses implement ``_head``, ``_loss``, ``_probabilities``, ``_headline``, ``_logits``, and, if they have more
    scores than the headline, ``_prediction``.

    Args:
        backbone: ``"sage"``, ``"gcn"``, ``"gin"``, ``"gat"``, ``"gatv2"``, ``"gpr"`` (for heterophilic graphs), the
            name of a model in ``torch_geometric.nn.models`` (``"edgecnn"``, ...), or a function of ``in_channels``,
            ``hidden_channels``, ``num_layers`` and ``dropout`` that makes a module.
        hidden: Units of a hidden layer.
        layers: Message-passing layers.
        dropout: Probability of dropping a unit between layers, in training.
        lr: Learning rate of Adam.
        weight_decay: L2 penalty of all weights.
        epochs: Epochs at the most.
        patience: Epochs without a better monitor after which training stops.
        monitor: What early stopping looks at: the loss (``"id_loss"``) or accuracy (``"id_f1"``, the paper's micro F1)
            of ID validation nodes, or, under the paper's protocol only, the AUROC with which the headline score tells
            OOD from ID validation nodes (``"ood_auroc"``).
        batch_size: Training nodes of a mini-batch with its sampled neighbourhood; None: all nodes at once, or
            mini-batches of 1,024 where the memory that may be used is too little for that (a ``MemoryWarning`` says
            so). An epoch of mini-batches ends after 200 of them at the latest, and early stopping then looks at no more
            than 10,000 validation nodes, whose neighbourhoods are drawn once. Weights that it looks at, and that are
            kept, are averages over the last steps, and where 400 steps (or a fifth of the patience, if that is sooner)
            have brought nothing better, lr falls.
        fanouts: In-edges that are drawn for a node of a mini-batch, hop by hop, beginning at the training nodes: a
            number for each layer, 0 for all in-edges. None: 10 each.
        seed: Of weights, dropout and batches.
        device: Where to train and predict, as torch names it.
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
    fanouts: Sequence[int] | None = field(default=None, metadata={IF_SET: True})
    seed: int = 0
    device: str = "cpu"

    joint: ClassVar[bool] = False
    has_outputs = True
    search_space = NETWORK_SPACE

    trains_by_batches = True
    objectives = {"sealed": "nll", "paper": "accuracy"}
    protocol_defaults = {"paper": {"monitor": "id_f1"}}
    constraints = {
        "hidden": AT_LEAST_1,
        "layers": AT_LEAST_1,
        "dropout": Interval(0, 1, below=True),
        "lr": ABOVE_0,
        "weight_decay": AT_LEAST_0,
        "epochs": AT_LEAST_1,
        "patience": AT_LEAST_1,
        "batch_size": AT_LEAST_1,
        "seed": SEED,
        "monitor": Options(*MONITORS),
    }

    def _check(self) -> None:
        if self.fanouts is not None:
            self.fanouts = self._checked_fanouts()
        with translated(
            (RuntimeError, AssertionError),
            lambda error: MethodError(f"device {self.device!r} cannot be used: {str(error).splitlines()[0]}"),
        ):
            torch.empty(0, device=self.device)
        if not isinstance(self.backbone, str):
            if isinstance(self.backbone, nn.Module) or not callable(self.backbone):
                raise MethodError(f"backbone must be a name or a function that makes one, not {self.backbone!r:.60}")
        elif self.backbone.lower() in ("graphsage", *NATIVE):
            self.backbone = "sage" if self.backbone.lower() == "graphsage" else self.backbone.lower()
        else:
            with translated(ValueError, lambda error: MethodError(str(error))):
                pyg_model(self.backbone)

    def _checked_fanouts(self) -> list[int]:
        fanouts = self.fanouts
        if isinstance(fanouts, str) or not isinstance(fanouts, Sequence):
            raise MethodError(f"fanouts must be a list of numbers, one for each layer, not {fanouts!r:.60}")
        if len(fanouts) != self.layers or any(isinstance(n, bool) or not isinstance(n, int) or n < 0 for n in fanouts):
            raise MethodError(
                f"fanouts must be {self.layers} whole numbers, one a layer, 0 for all in-edges, not {fanouts!r:.60}"
            )
        return list(fanouts)

    def _fit(self, training: TrainingData, context: Context) -> None:
        view = training.view
        draws = RngScope(self.seed)
        with draws:
            module = self._build(view.graph.num_features, view.num_classes)
        if self.fanouts is not None and len(self.fanouts) != module.hops:
            raise MethodError(
                f"fanouts has {len(self.fanouts)} numbers, one a layer, and the backbone {self.backbone!r} looks "
                f"{module.hops} hops far: leave fanouts out (10 each)"
            )
        if context.worker is None:
            check_prediction(module, training.graph, context, self._widths(module, view.num_classes))
            warn_of_large_features(view.graph)
        if context.workers is not None:
            from .cluster import train_by_workers

            checkpoint = checkpoint_of(self, module, training, context, self.batch_size or BATCH)
            self.history_, self.module_ = train_by_workers(self, module, training, context, checkpoint), module
            return
        size = self._batch_size(training, context, module)
        x, edges = inputs(view.graph, self.device) if size is None else inputs_by_rows(view.graph)
        data = self._supervision(training, x, edges)
        monitor = self._monitor(training, sampled=size is not None)
        fanouts = None if self.fanouts is None else tuple(count or ALL for count in self.fanouts)
        schedule = Schedule(self.lr, self.weight_decay, self.epochs, self.patience, size, fanouts)
        worker = context.worker
        if worker is None:
            worker = WorkerContext(None, checkpoint_of(self, module, training, context, size))
        try:
            with draws:
                self._begin(module, data)
            self.history_ = train(
                module, data, self._training_loss, monitor, schedule, draws,
                progress=context.progress, description=f"{self.name} seed {self.seed}", on_epoch=context.on_epoch,
                group=worker.group, checkpoint=worker.checkpoint, after_reading=keep_within(context.memory, view.graph),
            )  # fmt: skip
        except TrainingError as error:
            raise TrainingError(f"{self.name}, seed {self.seed}: {error}") from None
        except BackboneError as error:
            raise MethodError(str(error)) from None
        self.module_ = module

    def _batch_size(self, training: TrainingData, context: Context, module: Classifier) -> int | None:
        """Return the number of training nodes of a mini-batch; None: all nodes at once, if memory allows."""
        if self.batch_size is not None or context.worker is not None:
            return self.batch_size or BATCH
        view = training.view
        return batch_size_for(self.name, module, view.graph, context, self._widths(module, view.num_classes))

    def _widths(self, module: Classifier, num_classes: int) -> list[int]:
        """Return the widths of the latents and of the head's output, for estimates of memory."""
        hidden = list(module.backbone.widths) if isinstance(module.backbone, Stack) else [self.hidden] * self.layers
        return [*hidden, num_classes]

    def _supervision(self, training: TrainingData, x: Features, edges: Adjacency) -> Supervision:
        """Return the training nodes and their labels."""
        view = training.view
        return Supervision(x, edges, view.train.to(self.device), view.graph.labels[view.train].to(self.device))

    def _begin(self, module: Classifier, data: Supervision) -> None:
        """Prepare the weights before training."""

    def _training_loss(self, output: Output, labels: Tensor) -> Tensor:
        """Return the training loss, if it differs from that of validation nodes."""
        return self._loss(output, labels)

    def _build(self, num_features: int, num_classes: int) -> Classifier:
        with translated(ValueError, lambda error: MethodError(str(error))):
            backbone = make_backbone(self._backbone(), num_features, self.hidden, self.layers, self.dropout)
        widths = widths_of(backbone, num_features)
        head = self._head([num_features, *widths] if self.joint else widths[-1:], num_classes)
        hops = getattr(backbone, "hops", len(widths))
        return Classifier(backbone, head, hops, self.joint).to(self.device)

    def _backbone(self) -> str | BackboneFactory:
        """Return the argument of ``make_backbone``."""
        return self.backbone

    def _monitor(self, training: TrainingData, sampled: bool = False) -> Monitor:
        """Return the monitor of early stopping; with sampled neighbourhoods, of at most ``VALIDATION`` nodes."""
        view = training.view
        nodes = view.val
        if sampled and len(nodes) > VALIDATION:
            generator = torch.Generator().manual_seed(self.seed)
            nodes = nodes[torch.randperm(len(nodes), generator=generator)[:VALIDATION].sort().values]
        labels, nodes = view.val_graph.labels[nodes].to(self.device), nodes.to(self.device)
        on: tuple[Features, Adjacency] | None = None
        if view.val_graph is not view.graph:
            on = inputs_by_rows(view.val_graph) if sampled else inputs(view.val_graph, self.device)
        if self.monitor == "id_loss":
            return Monitor(nodes, lambda output: self._loss(output, labels).item(), on)
        if self.monitor == "id_f1":
            return Monitor(
                nodes, lambda output: -(self._probabilities(output).argmax(-1) == labels).double().mean().item(), on
            )
        if training.validation is None:
            raise MethodError(
                "monitor 'ood_auroc' looks at OOD validation nodes, which the sealed protocol forbids: "
                "fit(task, protocol='paper'), or choose id_loss or id_f1"
            )
        from sklearn.metrics import roc_auc_score

        nodes, is_ood = training.validation.nodes.to(self.device), training.validation.is_ood.numpy()
        if is_ood.all() or not is_ood.any():
            raise MethodError("monitor 'ood_auroc' needs both ID and OOD nodes in the validation part")
        return Monitor(nodes, lambda output: -float(roc_auc_score(is_ood, self._headline(output).cpu().numpy())))

    def _stored_outputs(self, graph: Graph, context: Context) -> StoredOutputs | None:
        """Return outputs by chunks, for a graph that does not fit in memory or with a cluster; else None."""
        key = graph.content, context.path
        if (stored := self._cache.peek("outputs", key)) is not None:
            return cast(StoredOutputs, stored)
        cluster = context.cluster if type(self.module_.backbone).forward is Stack.forward else None
        widths = self._widths(self.module_, len(self.class_names))
        if cluster is None and prediction_bytes(graph, widths) <= context.allowed:
            return None
        with translated(BackboneError, lambda error: MethodError(str(error))):
            return self._cache.get(
                "outputs", key, lambda: StoredOutputs(self.module_, graph, context.memory, cluster=cluster)
            )

    def _output_of(self, graph: Graph, context: Context) -> Callable[[Tensor], Output]:
        """Return a function of node numbers that gives the head's output; the whole graph is computed here, once."""
        if (stored := self._stored_outputs(graph, context)) is not None:
            return stored.at
        with translated(BackboneError, lambda error: MethodError(str(error))):
            whole = self.module_(*inputs(graph, self.device))

        def output(nodes: Tensor) -> Output:
            part = at(whole, nodes.to(self.device))
            return part.cpu() if isinstance(part, Tensor) else tuple(each.cpu() for each in part)

        return output

    @torch.no_grad()
    def _outputs(self, graph: Graph, context: Context) -> Outputs:
        if (stored := self._stored_outputs(graph, context)) is not None:
            return Outputs(stored.logits(self._logits), list(stored.latents))
        outputs = self.forward_features(inputs(graph, self.device)[0], graph)
        return Outputs(outputs.logits.cpu(), [z.to("cpu") for z in outputs.latents])

    def forward_features(self, x: Features, graph: Graph) -> Outputs:
        """Return logits and latents for other features; differentiable, on the method's device.

        Args:
            x: Features ``[N, F]``.
            graph: The graph whose edges are used.
        """
        latents = [x, *self.module_.backbone(x, inputs(graph, self.device)[1])]
        return Outputs(self._logits(self.module_.head(latents if self.joint else latents[-1])), latents)

    @abstractmethod
    def _head(self, widths: list[int], num_classes: int) -> nn.Module:
        """Return the layer after the last latent, or after all of them if ``joint``, of these widths."""

    @abstractmethod
    def _loss(self, output: Output, labels: Tensor) -> Tensor:
        """Return the loss of the head's output at labelled nodes."""

    @abstractmethod
    def _probabilities(self, output: Output) -> Tensor:
        """Return the point prediction ``[N, C]``."""

    @abstractmethod
    def _headline(self, output: Output) -> Tensor:
        """Return the headline score ``[N]``, which ``monitor="ood_auroc"`` looks at."""

    @abstractmethod
    def _logits(self, output: Output) -> Tensor:
        """Return logits ``[N, C]`` that post-hoc methods can score."""

    def _prediction(self, nodes: Tensor, output: Output) -> Prediction:
        """Return the prediction of nodes by the head's output: by default the headline score and probabilities."""
        headline = self.score_names[0]
        result = {headline: self._headline(output)}
        return Prediction(nodes, result, headline, self.class_names, self._probabilities(output))

    def _predictor(self, graph: Graph, context: Context) -> Predictor:
        output = self._output_of(graph, context)
        return lambda nodes: self._prediction(nodes, output(nodes))

    def _state(self) -> dict[str, Tensor]:
        return dict(self.module_.state_dict())

    def _load_state(self, state: Mapping[str, Tensor]) -> None:
        with RngScope(self.seed):  # the weights are replaced
            self.module_ = self._build(self.num_features, len(self.class_names))
        self.module_.load_state_dict(dict(state))
        self.module_.eval()


@dataclass(kw_only=True, eq=False)
class Vanilla(Network):
    """GNN with a linear layer and a softmax, the usual model of post-hoc methods."""

    name = "vanilla"
    score_names: ClassVar[tuple[str, ...]] = ("msp", "entropy")
    is_shared = True
    works_by_chunks = True

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

    def _logits(self, output: Output) -> Tensor:
        assert isinstance(output, Tensor)
        return output

    def _prediction(self, nodes: Tensor, output: Output) -> Prediction:
        assert isinstance(output, Tensor)
        result = {"msp": scores.msp(output), "entropy": scores.entropy(output)}
        return Prediction(nodes, result, "msp", self.class_names, self._probabilities(output))
