"""The one training loop: Adam, early stopping by a named monitor, the best weights restored, seeded."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn
from tqdm import tqdm

from .adjacency import Adjacency
from .backbones import Features
from .draws import Draws
from .sampling import Sampler

Output: TypeAlias = Tensor | tuple[Tensor, ...]


class TrainingError(RuntimeError):
    """Training went wrong in a way that more epochs will not mend."""


class Classifier(nn.Module):
    """A backbone and a head.

    Args:
        backbone: Gives the latents z1 .. zL.
        head: Makes the output of them.
        hops: Message-passing layers, for the sampling of neighbourhoods.
        joint: Whether the head takes all latents and the features, ``[z0 | z1 | .. | zL]``, or zL alone.
    """

    def __init__(self, backbone: nn.Module, head: nn.Module, hops: int, joint: bool = False) -> None:
        super().__init__()
        self.backbone, self.head, self.hops, self.joint = backbone, head, hops, joint

    def forward(self, x: Features, edges: Adjacency) -> Output:
        """The head's output for all nodes.

        Args:
            x: Features ``[N, F]``.
            edges: The edges.
        """
        latents = self.backbone(x, edges)
        out: Output = self.head([x, *latents] if self.joint else latents[-1])
        return out

    def parameter_groups(self) -> list[dict[str, Any]]:
        """What the optimiser trains; a group may have a weight decay or a learning rate of its own."""
        return [{"params": list(self.parameters())}]

    @property
    def is_deterministic(self) -> bool:
        """Whether training and evaluation compute the same: one forward pass then serves both."""
        return bool(getattr(self.backbone, "is_deterministic", False))  # of what PyG brings nothing is known


class Epoch(NamedTuple):
    """One line of a training curve; ``monitor`` is what early stopping looks at, lower is better."""

    epoch: int
    loss: float
    monitor: float


class Supervision(NamedTuple):
    """What to train on.

    Attributes:
        x: The features of a graph.
        edges: Its edges.
        nodes: The nodes with a label.
        labels: Their labels.
    """

    x: Features
    edges: Adjacency
    nodes: Tensor
    labels: Tensor


@dataclass(frozen=True)
class Schedule:
    """How to train: hyper-parameters of the loop.

    Attributes:
        lr: Learning rate of Adam.
        weight_decay: L2 penalty of all weights.
        epochs: Epochs at the most.
        patience: Epochs without a better monitor after which training stops.
        batch_size: Training nodes of a mini-batch; None: all nodes at once.
    """

    lr: float
    weight_decay: float
    epochs: int
    patience: int
    batch_size: int | None = None


@dataclass(frozen=True)
class Monitor:
    """What early stopping looks at.

    Attributes:
        nodes: The nodes.
        value: A function of the output at these nodes; lower is better.
        on: Features and edges of the graph that the nodes are of, if it is not the one that is trained on.
    """

    nodes: Tensor
    value: Callable[[Output], float]
    on: tuple[Features, Adjacency] | None = None


def train(
    model: Classifier,
    data: Supervision,
    loss: Callable[[Output, Tensor], Tensor],
    monitor: Monitor,
    schedule: Schedule,
    draws: Draws,
    *,
    progress: bool | None = None,
    description: str = "training",
    on_epoch: Callable[[Epoch], None] | None = None,
) -> list[Epoch]:
    """Minimise a loss on labelled nodes; keep the weights with which the monitor was least.

    Weight decay is L2, as Adam has it. The curve has one line more than there were epochs: it begins with the untrained
    weights, which are never kept.

    Args:
        model: What to train, in place.
        data: What to train it on.
        loss: Of the model's output at the nodes and of their labels.
        monitor: What early stopping looks at.
        schedule: Hyper-parameters of the loop.
        draws: Where batches, dropout and whatever else is random come from.
        progress: Show a bar; None: on a terminal, once it has taken a few seconds.
        description: What the bar says.
        on_epoch: Is shown each line of the curve as it comes; what it raises ends the training.
    """
    x, edges, nodes, labels = data
    groups, decay = model.parameter_groups(), schedule.weight_decay
    optimiser = torch.optim.Adam(groups, lr=schedule.lr, weight_decay=decay, fused=True)
    sampler = Sampler(x, edges, schedule.batch_size, model.hops) if schedule.batch_size else None
    shared = model.is_deterministic and sampler is None

    def outputs(x: Features, edges: Adjacency) -> Output:
        with nullcontext() if model.is_deterministic else draws:
            output: Output = model(x, edges)
        return output

    def judged(output: Output, nodes: Tensor, labels: Tensor) -> Tensor:
        with draws:
            return loss(at(output, nodes), labels)

    def losses() -> Iterator[Tensor]:
        """The losses of one epoch, one a step: of all nodes at once, or of mini-batches in random order."""
        model.train()
        if sampler is None:
            yield judged(outputs(x, edges), nodes, labels)
            return
        with draws:
            order = torch.randperm(len(nodes))
        for chosen in torch.split(order, sampler.batch_size):
            with draws:
                batch = sampler.around(nodes[chosen])
            yield judged(outputs(batch.x, batch.edges), batch.seeds, labels[chosen])

    curve: list[Epoch] = []
    best, best_state, best_epoch = float("inf"), None, 0
    hidden = None if progress is None else not progress
    with tqdm(total=schedule.epochs, desc=description, unit="epoch", delay=3, disable=hidden, leave=False) as bar:
        for epoch in range(schedule.epochs + 1):
            with torch.set_grad_enabled(shared):
                model.train(shared)
                output = outputs(x, edges)
                value = judged(output, nodes, labels)
            with torch.no_grad(), draws:
                seen = output if monitor.on is None else model(*monitor.on)
                curve.append(Epoch(epoch, _finite(value, epoch, schedule), monitor.value(at(seen, monitor.nodes))))
            if epoch and curve[-1].monitor < best:  # the untrained weights are never kept
                best, best_epoch = curve[-1].monitor, epoch
                best_state = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
            if on_epoch is not None:
                on_epoch(curve[-1])
            if epoch == schedule.epochs or epoch - best_epoch >= schedule.patience:
                break
            for step in [value] if shared else losses():
                _finite(step, epoch, schedule)
                optimiser.zero_grad()
                step.backward()  # type: ignore[no-untyped-call]
                optimiser.step()
            bar.set_postfix(loss=f"{curve[-1].loss:.3f}", monitor=f"{curve[-1].monitor:.3f}", refresh=False)
            bar.update()
    if best_state is None:
        raise TrainingError(f"the monitor was never a number in {len(curve)} epochs: lower lr (now {schedule.lr})")
    model.load_state_dict(best_state)
    model.eval()
    return curve


def at(output: Output, nodes: Tensor) -> Output:
    """The rows ``nodes`` of a model's output."""
    return output[nodes] if isinstance(output, Tensor) else tuple(part[nodes] for part in output)


def _finite(value: Tensor, epoch: int, schedule: Schedule) -> float:
    number = value.item()
    if not math.isfinite(number):
        raise TrainingError(
            f"the loss is {number} in epoch {epoch}: lower lr (now {schedule.lr}), or scale the features"
        )
    return number
