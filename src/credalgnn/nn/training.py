"""Training loop: Adam with early stopping, on full batches or on mini-batches with sampled neighbourhoods."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import ReduceLROnPlateau

from ..runtime.errors import CredalError
from ..runtime.progress import Progress
from .adjacency import Adjacency
from .distributed import Processes
from .layers import Features, first_rows
from .layers import Output as Output
from .random import RngScope, rng_state
from .sampling import FANOUT, Batch, Sampler

LR_FACTOR = 0.3  # factor of the learning rate after a plateau ...
LR_REDUCTIONS = 4  # ... and how often it is applied at most
STEPS = 200  # steps after which an epoch of mini-batches ends, so that early stopping has something to look at
PLATEAU = 400  # steps without a better monitor after which the learning rate of mini-batches falls ...
PATIENCE_SHARE = 5  # ... or patience divided by this, if that is sooner: it must fall before training stops
MONITOR_BATCH = 2**31  # number of the first batch of monitored nodes: what is drawn for them never changes
ETA = 8  # weights are averaged over about the last 1 / (ETA + 1) of all steps


class TrainingError(CredalError, RuntimeError):
    """Training failed in a way that more epochs will not mend."""


class Classifier(nn.Module):
    """A backbone and a head.

    Args:
        backbone: Computes the latents z1 .. zL.
        head: Computes the output from them.
        hops: Number of message-passing layers, for the sampling of neighbourhoods.
        joint: Whether the head takes all latents and the features, ``[z0 | z1 | .. | zL]``, or zL alone.
    """

    def __init__(self, backbone: nn.Module, head: nn.Module, hops: int, joint: bool = False) -> None:
        super().__init__()
        self.backbone, self.head, self.hops, self.joint = backbone, head, hops, joint

    def forward(self, x: Features, edges: Adjacency) -> Output:
        """Return the head's output for all nodes; of a sampled batch, for its seeds.

        Args:
            x: Features ``[N, F]``.
            edges: Edges.
        """
        latents: list[Features] = [x, *self.backbone(x, edges)]
        if edges.sample is not None:
            latents = [first_rows(z, edges.sample.sizes[0]) for z in latents]
        out: Output = self.head(latents if self.joint else latents[-1])
        return out

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Parameter groups of the optimiser; a group may have its own weight decay or learning rate."""
        return [{"params": list(self.parameters())}]

    @property
    def is_deterministic(self) -> bool:
        """True if training and evaluation compute the same, so that one forward pass serves both."""
        return bool(getattr(self.backbone, "is_deterministic", False))  # PyG models do not say


class Epoch(NamedTuple):
    """One line of a training curve; ``monitor`` is the value that early stopping minimises."""

    epoch: int
    loss: float
    monitor: float


class Supervision(NamedTuple):
    """Training data.

    Attributes:
        x: Features of all nodes of a graph.
        edges: Its edges.
        nodes: Training nodes.
        labels: Their labels.
    """

    x: Features
    edges: Adjacency
    nodes: Tensor
    labels: Tensor


@dataclass(frozen=True)
class Schedule:
    """Hyper-parameters of the training loop.

    Attributes:
        lr: Learning rate of Adam.
        weight_decay: L2 penalty of all weights.
        epochs: Maximum number of epochs.
        patience: Epochs without a better monitor after which training stops.
        batch_size: Training nodes of a mini-batch with sampled neighbourhoods; None: full batches.
        fanouts: Neighbours drawn for a node of a mini-batch, hop by hop; None: ``FANOUT`` at each.
    """

    lr: float
    weight_decay: float
    epochs: int
    patience: int
    batch_size: int | None = None
    fanouts: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Monitor:
    """Criterion of early stopping.

    Attributes:
        nodes: Nodes whose outputs are looked at.
        value: Function of these outputs; lower is better.
        on: Features and edges of the nodes' graph, if it is not the training graph.
    """

    nodes: Tensor
    value: Callable[[Output], float]
    on: tuple[Features, Adjacency] | None = None


class CheckpointStore(Protocol):
    """Storage of training states, to continue after a crash."""

    def load(self) -> dict[str, Any] | None:
        """Return the last saved state (plain values, lists, dictionaries and tensors), if any."""

    def save(self, state: Callable[[], dict[str, Any]], ended: bool) -> None:
        """Save a state, which is made only if it is needed; `ended` says that the training is over."""


def at(output: Output, nodes: Tensor) -> Output:
    """Rows of a model's output."""
    return output[nodes] if isinstance(output, Tensor) else tuple(part[nodes] for part in output)


def train(
    model: Classifier,
    data: Supervision,
    loss: Callable[[Output, Tensor], Tensor],
    monitor: Monitor,
    schedule: Schedule,
    rng: RngScope,
    *,
    progress: bool | None = None,
    description: str = "training",
    on_epoch: Callable[[Epoch], None] | None = None,
    group: Processes | None = None,
    checkpoint: CheckpointStore | None = None,
    after_reading: Callable[[], None] | None = None,
) -> list[Epoch]:
    """Minimise a loss on labelled nodes, restore the weights with the best monitor, and return the training curve.

    The curve has one line more than there were epochs: it begins with the untrained weights, never the result.

    With a batch size, training uses mini-batches with sampled neighbourhoods, never touches the graph as a whole, and
    lowers the learning rate on plateaus of the monitor.

    Args:
        model: Model to train, in place.
        data: Training data.
        loss: Loss of the model's output at the training nodes and of their labels.
        monitor: Criterion of early stopping.
        schedule: Hyper-parameters of the loop; weight decay is L2, as in Adam.
        rng: Source of batches, dropout and all other randomness.
        progress: Show a bar; None: on a terminal, after a few seconds, and elsewhere a line every half minute.
        description: Label of the bar.
        on_epoch: Called with each line of the curve; what it raises ends the training.
        group: Processes that train the same model on their share of each batch.
        checkpoint: Storage of the state after every epoch and at the end; training continues from it.
        after_reading: Called after rows of features have been read for a mini-batch.
    """
    strategy: Strategy
    if schedule.batch_size is not None:
        strategy = MiniBatch(model, data, loss, monitor, schedule, rng, group, after_reading)
    else:
        strategy = FullBatch(model, data, loss, monitor, rng)
    loop = _Loop(model, strategy, schedule, rng)
    if checkpoint is not None and (saved := checkpoint.load()) is not None:
        loop.restore(saved)
    with Progress(schedule.epochs, description, "epochs", progress, max(0, len(loop.curve) - 1)) as shown:
        while not loop.ended:
            plateau = loop.evaluate(on_epoch)
            if loop.ended:
                break
            if plateau and loop.best_state is not None:
                strategy.load_weights(loop.best_state)
            show_epoch(shown, loop.curve[-1])
            loop.step(shown)
            if checkpoint is not None:
                checkpoint.save(loop.state, False)
    best = loop.best_state
    if best is None:
        raise TrainingError(f"the monitor was never a number in {len(loop.curve)} epochs: lower lr (now {schedule.lr})")
    if checkpoint is not None and not loop.was_saved:
        checkpoint.save(loop.state, True)
    model.load_state_dict(best)
    model.eval()
    return loop.curve


def show_epoch(shown: Progress, line: Epoch) -> None:
    """Show a line of the curve in a progress display that counts epochs."""
    shown.update(line.epoch, f"loss {line.loss:.3f}, monitor {line.monitor:.3f}")


class _Loop:
    """State of a training between epochs: curve, best weights, optimiser and learning-rate scheduler."""

    def __init__(self, model: Classifier, strategy: Strategy, schedule: Schedule, rng: RngScope) -> None:
        self.model, self.strategy, self.schedule, self.rng = model, strategy, schedule, rng
        self.optimiser = torch.optim.Adam(
            model.parameter_groups(), lr=schedule.lr, weight_decay=schedule.weight_decay, fused=True
        )
        self.scheduler: ReduceLROnPlateau | None = None
        if strategy.plateau is not None:
            least = [LR_FACTOR**LR_REDUCTIONS * group["lr"] for group in self.optimiser.param_groups]
            self.scheduler = ReduceLROnPlateau(
                self.optimiser, factor=LR_FACTOR, patience=strategy.plateau - 1, threshold=0.0, min_lr=least
            )
        self.curve: list[Epoch] = []
        self.best, self.best_epoch = float("inf"), 0
        self.best_state: dict[str, Tensor] | None = None
        self.ended = self.was_saved = False

    def evaluate(self, on_epoch: Callable[[Epoch], None] | None) -> bool:
        """Add a line to the curve, and return whether the learning rate was lowered after it."""
        epoch = len(self.curve)
        with self.strategy.evaluated_weights():
            loss, monitor = self.strategy.evaluate()
            self.curve.append(Epoch(epoch, self._finite(loss, epoch), monitor))
            if epoch and monitor < self.best:  # the untrained weights are never the result
                self.best, self.best_epoch = monitor, epoch
                self.best_state = {name: tensor.detach().clone() for name, tensor in self.model.state_dict().items()}
            lowered = self.scheduler is not None and epoch > 0 and self._lower_lr(self.scheduler, monitor)
            if on_epoch is not None:
                on_epoch(self.curve[-1])
        self.ended = epoch >= self.schedule.epochs or epoch - self.best_epoch >= self.schedule.patience
        return lowered

    def step(self, shown: Progress) -> None:
        """Make the steps of one epoch."""
        epoch, steps = len(self.curve) - 1, self.strategy.steps
        for number, loss in enumerate(self.strategy.losses(), 1):
            self._finite(loss, epoch)
            self.optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            self.strategy.average_gradients()
            self.optimiser.step()
            self.strategy.after_step()
            shown.update(epoch + number / steps)

    def state(self) -> dict[str, Any]:
        return {
            "curve": [tuple(line) for line in self.curve],
            "best": self.best,
            "best_epoch": self.best_epoch,
            "best_state": self.best_state,
            "model": self.model.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "rng": self.rng.state(),
            "strategy": self.strategy.state(),
            "scheduler": {} if self.scheduler is None else self.scheduler.state_dict(),
            "ended": self.ended,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        try:
            self.curve = [Epoch(*line) for line in state["curve"]]
            self.best, self.best_epoch, self.best_state = (state[name] for name in ("best", "best_epoch", "best_state"))
            self.model.load_state_dict(state["model"])
            self.optimiser.load_state_dict(state["optimiser"])
            self.rng.restore(state["rng"])
            self.strategy.restore(state["strategy"])
            if self.scheduler is not None:
                self.scheduler.load_state_dict(state["scheduler"])
            self.was_saved = state["ended"]
            self.ended = self.was_saved or len(self.curve) > self.schedule.epochs
        except (LookupError, RuntimeError, TypeError, ValueError, AttributeError) as error:
            reason = " ".join(str(error).split())
            raise TrainingError(
                f"the checkpoint is not of this training ({reason:.100}): remove the folder of its checkpoints "
                "(checkpoints, in that of the model), and fit again"
            ) from None

    def _finite(self, loss: Tensor, epoch: int) -> float:
        number = loss.item()
        if not math.isfinite(number):
            raise TrainingError(
                f"the loss is {number} in epoch {epoch}: lower lr (now {self.schedule.lr}), or scale the features"
            )
        return number

    def _lower_lr(self, scheduler: ReduceLROnPlateau, monitor: float) -> bool:
        before = [group["lr"] for group in self.optimiser.param_groups]
        scheduler.step(monitor)
        return [group["lr"] for group in self.optimiser.param_groups] != before


class Strategy:
    """Steps and evaluation of an epoch.

    Attributes:
        plateau: Epochs without a better monitor after which the learning rate falls; None: it never does.
    """

    plateau: int | None = None
    model: Classifier

    @property
    def steps(self) -> int:
        """Number of steps of the next epoch."""
        return 1

    def evaluate(self) -> tuple[Tensor, float]:
        """Return the training loss, and the monitor of the evaluated weights."""
        raise NotImplementedError

    def losses(self) -> Iterator[Tensor]:
        """Yield the losses of one epoch, one per step."""
        raise NotImplementedError

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Continue training from the best weights of an earlier epoch."""
        raise NotImplementedError

    def average_gradients(self) -> None:
        """Called before the optimiser uses the gradients of a step."""

    def after_step(self) -> None:
        """Called after a step has changed the weights."""

    @contextmanager
    def evaluated_weights(self) -> Iterator[None]:
        """Give the model the weights that are evaluated and stored."""
        yield

    def state(self) -> dict[str, Any]:
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        pass


class FullBatch(Strategy):
    """Training on the whole graph: an epoch is one step."""

    def __init__(
        self,
        model: Classifier,
        data: Supervision,
        loss: Callable[[Output, Tensor], Tensor],
        monitor: Monitor,
        rng: RngScope,
    ) -> None:
        self.model, self.data, self.loss, self.monitor, self.rng = model, data, loss, monitor, rng
        self._value: Tensor | None = None  # loss of a forward pass that serves evaluation and training

    def evaluate(self) -> tuple[Tensor, float]:
        shared = self.model.is_deterministic
        with torch.set_grad_enabled(shared):
            self.model.train(shared)
            output = self._output()
            value = self._loss(output)
        self._value = value if shared else None
        with torch.no_grad(), self.rng:
            monitored = output if self.monitor.on is None else self.model(*self.monitor.on)
            return value, self.monitor.value(at(monitored, self.monitor.nodes))

    def losses(self) -> Iterator[Tensor]:
        if self._value is not None:
            yield self._value
            return
        self.model.train()
        yield self._loss(self._output())

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        self.model.load_state_dict(weights)
        self._value = None  # of the other weights

    def _output(self) -> Output:
        with nullcontext() if self.model.is_deterministic else self.rng:
            output: Output = self.model(self.data.x, self.data.edges)
        return output

    def _loss(self, output: Output) -> Tensor:
        with self.rng:
            return self.loss(at(output, self.data.nodes), self.data.labels)


class MiniBatch(Strategy):
    """Training on mini-batches with sampled neighbourhoods, in random order; only their rows of the graph are read.

    An epoch ends after ``STEPS`` steps, or when all training nodes have been seen; the next one continues with the
    others. The training loss is the mean over an epoch's steps. The neighbourhoods of monitored nodes are drawn once
    and never change, so that the monitor moves with the weights alone.

    Evaluated weights are averages over the last steps (``Averages``), unless all steps see the same: batches push
    weights around their best place, and the average lies much nearer to it. After ``PLATEAU`` steps, or a part of the
    patience, without a better monitor the learning rate falls, and training continues from the best weights: the last
    ones may lie far off, where a few steps that were too large have led.

    Args:
        model: Model to train.
        data: Training data.
        loss: Loss of the output at nodes and of their labels.
        monitor: Criterion of early stopping.
        schedule: Sizes of batches and neighbourhoods.
        rng: Source of dropout; its seed is that of batches, too.
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
        rng: RngScope,
        group: Processes | None = None,
        after_reading: Callable[[], None] | None = None,
    ) -> None:
        assert schedule.batch_size is not None
        self.model, self.data, self.loss, self.monitor, self.rng = model, data, loss, monitor, rng
        self.group, self.size = group, schedule.batch_size
        self.steps_done = 0
        fanouts = schedule.fanouts or (FANOUT,) * model.hops
        self.sampler = self.monitor_sampler = Sampler(data.x, data.edges, fanouts, rng.seed, after_reading)
        if monitor.on is not None:
            self.monitor_sampler = Sampler(*monitor.on, fanouts, rng.seed, after_reading)
        self.device = data.labels.device
        self._epoch_loss: Tensor | None = None  # mean over the epoch's steps, of all processes
        self._share = 1.0
        self._coming: Iterator[Batch] = iter(())
        self._next: Batch | None = None  # drawn before it is needed
        self._averages = Averages(model)
        most = int(data.edges.edges.starts.diff().max()) if data.edges.num_nodes else 0
        is_noisy = self.size < len(data.nodes) or not model.is_deterministic or most > min(fanouts, default=most)
        self._pass_steps = -(-len(data.nodes) // self.size)  # of one pass over the training nodes
        pass_epochs = -(-self._pass_steps // STEPS)  # the last one may be short
        plateau = min(-(-PLATEAU * pass_epochs // self._pass_steps), max(1, schedule.patience // PATIENCE_SHARE))
        self.plateau = plateau if is_noisy else None

    @property
    def steps(self) -> int:
        return min(STEPS, self._pass_steps - self.steps_done % self._pass_steps)

    @property
    def _place(self) -> tuple[int, int]:
        """Number of this process, and number of processes."""
        return (0, 1) if self.group is None else (self.group.rank, self.group.size)

    def evaluate(self) -> tuple[Tensor, float]:
        self.model.eval()
        with torch.no_grad():
            value = self._epoch_loss
            if value is None:
                nodes = self.data.nodes[: self.size].cpu()
                output = self._output(self.sampler.around(nodes, MONITOR_BATCH - 1))
                value = self._loss(output, torch.arange(len(nodes)))
            parts = list(torch.split(self.monitor.nodes.cpu(), max(self.size, 1)))
            batches = [(nodes, MONITOR_BATCH + number) for number, nodes in enumerate(parts)]
            rank, size = self._place
            outputs = [self._output(batch) for batch in self.monitor_sampler.ahead(batches[rank::size])]
            if self.group is not None:
                gathered = self.group.gather(outputs)
                outputs = [gathered[number % size][number // size] for number in range(len(parts))]
            with self.rng:
                monitor = self.monitor.value(_concatenate(outputs))
        # The first process decides: machines may round differently, and must not stop at different epochs.
        return value, self._gather(monitor)[0].item()

    def losses(self) -> Iterator[Tensor]:
        self.model.train()
        rank, size = self._place
        begin = self.steps_done % self._pass_steps
        order = self._order(self.steps_done // self._pass_steps)
        numbers = range(begin, begin + self.steps)
        whole = [order[number * self.size : (number + 1) * self.size] for number in numbers]
        shares = [part[rank::size] if len(part) >= size else part for part in whole]
        nodes = self.data.nodes.cpu()
        first = self.steps_done
        if rank:  # the same weights, but another dropout, which does not depend on interruptions
            self.rng.restore(rng_state(str(self.device), self.rng.seed, rank, first))
        values: list[Tensor] = []
        self._coming = self.sampler.ahead((nodes[part], first + number) for number, part in enumerate(shares))
        for number in range(len(numbers)):
            batch, self._next = self._next or next(self._coming), None
            self._share = 1 / size if len(whole[number]) < size else len(shares[number]) / len(whole[number])
            value = self._loss(self._output(batch), shares[number])
            values.append(value.detach())
            self.steps_done = first + number + 1
            yield value
        self._coming = iter(())  # nothing waits during evaluation
        self._epoch_loss = self._gather(torch.stack(values).mean().item()).mean()

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        self.model.load_state_dict(weights)
        self._averages.restart()

    def average_gradients(self) -> None:
        if self.group is None or self.group.size == 1:
            return
        gradients = []
        for parameter in self.model.parameters():
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            gradients.append(parameter.grad)

        def draw_next() -> None:
            self._next = next(self._coming, None)

        self.group.average(gradients, self._share, draw_next)

    def after_step(self) -> None:
        if self.plateau is not None:
            self._averages.add(self.steps_done)

    @contextmanager
    def evaluated_weights(self) -> Iterator[None]:
        with self._averages.in_place():
            yield

    def state(self) -> dict[str, Any]:
        return {"steps_done": self.steps_done, "loss": self._epoch_loss, "averages": list(self._averages.values)}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.steps_done, self._epoch_loss = state["steps_done"], state["loss"]
        self._averages.restore(state["averages"])

    def _gather(self, value: float) -> Tensor:
        """Return the value of each process, in their order."""
        mine = torch.tensor([value], dtype=torch.float64)
        if self.group is None:
            return mine
        return torch.cat([part for (part,) in self.group.gather([mine]) if isinstance(part, Tensor)])

    def _order(self, number: int) -> Tensor:
        """Order of the training nodes in a pass over all of them."""
        generator = np.random.Generator(np.random.Philox(key=[self.rng.seed, number]))
        return torch.from_numpy(generator.permutation(len(self.data.nodes)))

    def _output(self, batch: Batch) -> Output:
        batch = batch.to(self.device)
        with nullcontext() if self.model.is_deterministic or not self.model.training else self.rng:
            output: Output = self.model(batch.x, batch.edges)
        return output

    def _loss(self, output: Output, places: Tensor) -> Tensor:
        with self.rng:
            return self.loss(output, self.data.labels[places.to(self.device)])


class Averages:
    """Averages of a model's weights with polynomial decay (Shamir and Zhang 2013).

    They are over about the last ninth of all steps, so that the noise of batches falls with the length of training.
    Running statistics of layers are averaged likewise.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.values: list[Tensor] = []

    def add(self, step: int) -> None:
        """Add the present weights, those after `step` steps."""
        weights = self._weights()
        if not self.values:
            self.values = [torch.zeros_like(weight) for weight in weights]
        torch._foreach_lerp_(self.values, weights, (ETA + 1) / (ETA + step))  # 1 at the first step

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Give the model the averages as its weights, and afterwards its own again."""
        if not self.values:
            yield
            return
        before = [weight.clone() for weight in self._weights()]
        self._assign(self.values)
        try:
            yield
        finally:
            self._assign(before)

    def restart(self) -> None:
        """Begin anew with the present weights."""
        self.values = [weight.clone() for weight in self._weights()]

    def restore(self, values: Sequence[Tensor]) -> None:
        """Continue with saved averages, perhaps from another device."""
        pairs = zip(values, self._weights(), strict=False)  # there may be none yet
        self.values = [value.to(weight.device, copy=True) for value, weight in pairs]

    def _weights(self) -> list[Tensor]:
        statistics = (buffer for buffer in self.model.buffers() if buffer.is_floating_point())
        return [*(weight.detach() for weight in self.model.parameters()), *statistics]

    def _assign(self, weights: Sequence[Tensor]) -> None:
        for weight, value in zip(self._weights(), weights, strict=True):
            weight.copy_(value)


def _concatenate(outputs: Sequence[Output]) -> Output:
    if isinstance(outputs[0], Tensor):
        return torch.cat([output for output in outputs if isinstance(output, Tensor)])
    return tuple(torch.cat(parts) for parts in zip(*outputs, strict=True))
