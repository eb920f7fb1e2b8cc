"""What is trained, on what, and what one epoch does, if it is the whole graph at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

import torch
from torch import Tensor, nn

from .adjacency import Adjacency
from .draws import RngScope
from .edge_rows import EdgeRows
from .layers import Features, first_rows

Output: TypeAlias = Tensor | tuple[Tensor, ...]


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
        """The head's output for all nodes; where neighbours were drawn, for the nodes that they were drawn for.

        Args:
            x: Features ``[N, F]``.
            edges: The edges.
        """
        latents: list[Features] = [x, *self.backbone(x, edges)]
        if isinstance(edges, Adjacency) and edges.sample is not None:
            latents = [first_rows(z, edges.sample.sizes[0]) for z in latents]
        out: Output = self.head(latents if self.joint else latents[-1])
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
        edges: Its edges: all of them at once, or by rows that neighbours are drawn from.
        nodes: The nodes with a label.
        labels: Their labels.
    """

    x: Features
    edges: Adjacency | EdgeRows
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
        batch_size: Training nodes of a mini-batch, where neighbours are drawn.
        fanouts: Neighbours that are drawn for a node, hop by hop; None: ``FANOUT`` at each.
    """

    lr: float
    weight_decay: float
    epochs: int
    patience: int
    batch_size: int = 1024
    fanouts: tuple[int, ...] | None = None


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
    on: tuple[Features, Adjacency | EdgeRows] | None = None


def at(output: Output, nodes: Tensor) -> Output:
    """The rows ``nodes`` of a model's output."""
    return output[nodes] if isinstance(output, Tensor) else tuple(part[nodes] for part in output)


class Group(Protocol):
    """Processes that train one model together, each on its share of every batch.

    Attributes:
        rank: The number of this process.
        size: How many there are.
    """

    rank: int
    size: int

    def average(self, gradients: Sequence[Tensor], share: float, meanwhile: Callable[[], None]) -> None:
        """Replace each gradient by the mean over all processes, weighted by their shares of the batch.

        Args:
            gradients: Of this process, in place.
            share: Its share of the batch.
            meanwhile: What this process does while those of the others are on their way.
        """

    def gather(self, parts: list[Output]) -> list[list[Output]]:
        """What each process has, in their order.

        Args:
            parts: What this process has.
        """


class Strategy(Protocol):
    """What the training loop does in an epoch.

    Attributes:
        plateau: Epochs without a better monitor after which the learning rate falls; None: it never does.
        steps: How many steps the next epoch has.
    """

    plateau: int | None

    @property
    def steps(self) -> int: ...

    def look(self) -> tuple[Tensor, float]:
        """The training loss, and the monitor's value of the weights that are judged."""

    def losses(self) -> Iterator[Tensor]:
        """The losses of one epoch, one a step."""

    def share(self) -> None:
        """Called when gradients are there, and before they are used."""

    def stepped(self) -> None:
        """Called when a step has changed the weights."""

    def judged(self) -> AbstractContextManager[None]:
        """Around what looks at the model and keeps its weights; inside, it has those that shall be judged."""

    def go_on_from(self, weights: Mapping[str, Tensor]) -> None:
        """Train other weights from now on.

        Args:
            weights: Those that were judged in another epoch.
        """

    def state(self) -> dict[str, Any]:
        """What ``restore`` goes on from."""

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on where others were.

        Args:
            state: What their ``state`` gave.
        """


class FullBatch:
    """The whole graph at once: an epoch is one step.

    Args:
        model: What is trained.
        data: What it is trained on.
        loss: Of its output at the nodes and of their labels.
        monitor: What early stopping looks at.
        draws: Where dropout comes from.
    """

    def __init__(
        self,
        model: Classifier,
        data: Supervision,
        loss: Callable[[Output, Tensor], Tensor],
        monitor: Monitor,
        draws: RngScope,
    ) -> None:
        self.model, self.data, self.loss, self.monitor, self.draws = model, data, loss, monitor, draws
        self.plateau: int | None = None
        self._value: Tensor | None = None  # of a forward pass that serves looking and learning

    def look(self) -> tuple[Tensor, float]:
        shared = self.model.is_deterministic
        with torch.set_grad_enabled(shared):
            self.model.train(shared)
            output = self._output()
            value = self._judged(output)
        self._value = value if shared else None
        with torch.no_grad(), self.draws:
            seen = output if self.monitor.on is None else self.model(*self.monitor.on)
            return value, self.monitor.value(at(seen, self.monitor.nodes))

    def losses(self) -> Iterator[Tensor]:
        if self._value is not None:
            yield self._value
            return
        self.model.train()
        yield self._judged(self._output())

    @property
    def steps(self) -> int:
        return 1

    def share(self) -> None:
        pass

    def stepped(self) -> None:
        pass

    def judged(self) -> AbstractContextManager[None]:
        return nullcontext()

    def go_on_from(self, weights: Mapping[str, Tensor]) -> None:
        self.model.load_state_dict(weights)
        self._value = None  # which is of the others

    def state(self) -> dict[str, Any]:
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        pass

    def _output(self) -> Output:
        with nullcontext() if self.model.is_deterministic else self.draws:
            output: Output = self.model(self.data.x, self.data.edges)
        return output

    def _judged(self, output: Output) -> Tensor:
        with self.draws:
            return self.loss(at(output, self.data.nodes), self.data.labels)
