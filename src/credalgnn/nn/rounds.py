"""What one epoch does: the whole graph at once, or mini-batches with sampled neighbourhoods."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from .adjacency import Adjacency
from .averaging import Averages
from .draws import Draws
from .edge_rows import EdgeRows
from .layers import Features, first_rows
from .sampling import FANOUT, Batch, Sampler

Output: TypeAlias = Tensor | tuple[Tensor, ...]

STEPS = 200  # steps after which an epoch of mini-batches ends, so that early stopping has something to look at
PLATEAU = 400  # steps without a better monitor after which the learning rate of mini-batches falls
WATCHED = 2**31  # the number of the first batch of the monitor's nodes: what is drawn for them never changes


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


class Rounds(Protocol):
    """What the training loop does in an epoch.

    Attributes:
        plateau: Epochs without a better monitor after which the learning rate falls; None: it never does.
    """

    plateau: int | None

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

    def state(self) -> dict[str, Any]:
        """What ``restore`` goes on from."""

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on where others were.

        Args:
            state: What their ``state`` gave.
        """


class Whole:
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
        draws: Draws,
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

    def share(self) -> None:
        pass

    def stepped(self) -> None:
        pass

    def judged(self) -> AbstractContextManager[None]:
        return nullcontext()

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


class Sampled:
    """Mini-batches with sampled neighbourhoods, in random order; of the graph only their rows are touched.

    An epoch ends after ``STEPS`` steps, or when all training nodes have been seen; the next one goes on with the
    others. The training loss is the mean over an epoch's steps. The monitor's nodes have neighbourhoods that are drawn
    once and never change, so that it moves with the weights alone.

    Weights that are judged and kept are averages over the last steps (``Averages``), unless all steps see the same:
    batches push weights around their best place, and the average lies much nearer to it. Where ``PLATEAU`` steps have
    brought no better monitor, the learning rate falls, and they are pushed less.

    Args:
        model: What is trained.
        data: What it is trained on; its edges by rows.
        loss: Of its output at the nodes and of their labels.
        monitor: What early stopping looks at.
        schedule: Has the sizes of batches and neighbourhoods.
        draws: Where dropout comes from; its seed is that of batches, too.
        group: Other processes that have a share of each batch.
        after_reading: See ``Sampler``.
    """

    def __init__(
        self,
        model: Classifier,
        data: Supervision,
        loss: Callable[[Output, Tensor], Tensor],
        monitor: Monitor,
        schedule: Schedule,
        draws: Draws,
        group: Group | None = None,
        after_reading: Callable[[], None] | None = None,
    ) -> None:
        assert isinstance(data.edges, EdgeRows)
        self.model, self.data, self.loss, self.monitor, self.draws = model, data, loss, monitor, draws
        self.group, self.size = group, schedule.batch_size
        self.steps_done = 0
        fanouts = schedule.fanouts or (FANOUT,) * model.hops
        self.sampler = self.watcher = Sampler(data.x, data.edges, fanouts, draws.seed, after_reading)
        if monitor.on is not None:
            x, edges = monitor.on
            assert isinstance(edges, EdgeRows)
            self.watcher = Sampler(x, edges, fanouts, draws.seed, after_reading)
        self.device = data.labels.device
        self._seen: list[Tensor] = []  # the losses of the epoch's steps
        self._share = 1.0
        self._coming: Iterator[Batch] = iter(())
        self._next: Batch | None = None  # of those that come, if it was drawn before it is needed
        self._averages = Averages(model)
        most = int(data.edges.starts.diff().max()) if data.edges.num_nodes else 0
        is_noisy = self.size < len(data.nodes) or not model.is_deterministic or most > min(fanouts, default=most)
        self._steps = -(-len(data.nodes) // self.size)  # that see all training nodes
        self.plateau: int | None = -(-PLATEAU // min(self._steps, STEPS)) if is_noisy else None

    def stepped(self) -> None:
        if self.plateau is not None:
            self._averages.add(self.steps_done)

    def judged(self) -> AbstractContextManager[None]:
        return self._averages.in_place()

    def look(self) -> tuple[Tensor, float]:
        self.model.eval()
        with torch.no_grad():
            if self._seen:
                value = torch.stack(self._seen).mean()
            else:
                nodes = self.data.nodes[: self.size].cpu()
                value = self._judged(self._output(self.sampler.around(nodes, WATCHED - 1)), torch.arange(len(nodes)))
            parts = list(torch.split(self.monitor.nodes.cpu(), max(self.size, 1)))
            own = [(nodes, WATCHED + number) for number, nodes in enumerate(parts)]
            rank, size = (0, 1) if self.group is None else (self.group.rank, self.group.size)
            outputs = [self._output(batch) for batch in self.watcher.ahead(own[rank::size])]
            if self.group is not None:
                gathered = self.group.gather(outputs)
                outputs = [gathered[number % size][number // size] for number in range(len(parts))]
            with self.draws:
                watched = self.monitor.value(_joined(outputs))
        self._seen = []
        return self._agreed(value, watched)

    def _agreed(self, value: Tensor, watched: float) -> tuple[Tensor, float]:
        """The mean of the losses of all processes, and the monitor's value as the first one has it.

        They may be machines that round differently, and must not stop at different epochs.
        """
        if self.group is None or self.group.size == 1:
            return value, watched
        told = self.group.gather([torch.tensor([value.item(), watched], dtype=torch.float64)])
        rows = torch.stack([part for (part,) in told if isinstance(part, Tensor)])
        return rows[:, 0].mean(), rows[0, 1].item()

    def losses(self) -> Iterator[Tensor]:
        self.model.train()
        rank, size = (0, 1) if self.group is None else (self.group.rank, self.group.size)
        begun = self.steps_done % self._steps
        order = self._order(self.steps_done // self._steps)
        numbers = range(begun, min(self._steps, begun + STEPS))
        chosen = [order[number * self.size : (number + 1) * self.size] for number in numbers]
        own = [part[rank::size] if len(part) >= size else part for part in chosen]
        nodes = self.data.nodes.cpu()
        first = self.steps_done
        batches = ((nodes[part], first + number) for number, part in enumerate(own))
        self._coming = self.sampler.ahead(batches)
        for number in range(len(numbers)):
            batch, self._next = self._next or next(self._coming), None
            self._share = 1 / size if len(chosen[number]) < size else len(own[number]) / len(chosen[number])
            value = self._judged(self._output(batch), own[number])
            self._seen.append(value.detach())
            self.steps_done = first + number + 1
            yield value

    def share(self) -> None:
        if self.group is None or self.group.size == 1:
            return
        gradients = []
        for parameter in self.model.parameters():
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            gradients.append(parameter.grad)
        self.group.average(gradients, self._share, self._draw)

    def _draw(self) -> None:
        """Draw the next batch of the epoch, if there is one."""
        self._next = next(self._coming, None)

    def state(self) -> dict[str, Any]:
        return {"steps_done": self.steps_done, "losses": list(self._seen), "averages": list(self._averages.values)}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.steps_done, self._seen = state["steps_done"], list(state["losses"])
        self._averages.restore(state["averages"])

    def _order(self, passes: int) -> Tensor:
        """The training nodes in the order of a pass over all of them."""
        generator = np.random.Generator(np.random.Philox(key=[self.draws.seed, passes]))
        return torch.from_numpy(generator.permutation(len(self.data.nodes)))

    def _output(self, batch: Batch) -> Output:
        batch = batch.to(self.device)
        with nullcontext() if self.model.is_deterministic or not self.model.training else self.draws:
            output: Output = self.model(batch.x, batch.edges)
        return output

    def _judged(self, output: Output, places: Tensor) -> Tensor:
        with self.draws:
            return self.loss(output, self.data.labels[places.to(self.device)])


def _joined(outputs: Sequence[Output]) -> Output:
    """Outputs of batches as one."""
    if isinstance(outputs[0], Tensor):
        return torch.cat([output for output in outputs if isinstance(output, Tensor)])
    return tuple(torch.cat(parts) for parts in zip(*outputs, strict=True))
