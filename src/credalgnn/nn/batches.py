"""What one epoch does, if it is mini-batches with sampled neighbourhoods."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .averaging import Averages
from .draws import RngScope
from .edge_rows import EdgeRows
from .group import rng_of
from .rounds import Classifier, Group, Monitor, Output, Schedule, Supervision
from .sampling import FANOUT, Batch, Sampler

STEPS = 200  # steps after which an epoch of mini-batches ends, so that early stopping has something to look at
PLATEAU = 400  # steps without a better monitor after which the learning rate of mini-batches falls ...
PATIENT = 5  # ... or this part of the patience, if that is sooner: it is to fall before training stops
WATCHED = 2**31  # the number of the first batch of the monitor's nodes: what is drawn for them never changes


class MiniBatch:
    """Mini-batches with sampled neighbourhoods, in random order; of the graph only their rows are touched.

    An epoch ends after ``STEPS`` steps, or when all training nodes have been seen; the next one goes on with the
    others. The training loss is the mean over an epoch's steps. The monitor's nodes have neighbourhoods that are drawn
    once and never change, so that it moves with the weights alone.

    Weights that are judged and kept are averages over the last steps (``Averages``), unless all steps see the same:
    batches push weights around their best place, and the average lies much nearer to it. Where ``PLATEAU`` steps, or a
    part of the patience, have brought no better monitor, the learning rate falls, and they are pushed less: from the
    best weights on, as the last ones may lie far off, where a few steps that were too large have led.

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
        draws: RngScope,
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
        self._trained: Tensor | None = None  # the loss of the epoch's steps, of all processes
        self._share = 1.0
        self._coming: Iterator[Batch] = iter(())
        self._next: Batch | None = None  # of those that come, if it was drawn before it is needed
        self._averages = Averages(model)
        most = int(data.edges.starts.diff().max()) if data.edges.num_nodes else 0
        is_noisy = self.size < len(data.nodes) or not model.is_deterministic or most > min(fanouts, default=most)
        self._steps = -(-len(data.nodes) // self.size)  # that see all training nodes
        epochs = -(-self._steps // STEPS)  # in which they are made; the last one may be short
        plateau = min(-(-PLATEAU * epochs // self._steps), max(1, schedule.patience // PATIENT))
        self.plateau: int | None = plateau if is_noisy else None

    def stepped(self) -> None:
        if self.plateau is not None:
            self._averages.add(self.steps_done)

    def judged(self) -> AbstractContextManager[None]:
        return self._averages.in_place()

    def go_on_from(self, weights: Mapping[str, Tensor]) -> None:
        self.model.load_state_dict(weights)
        self._averages.restart()

    def look(self) -> tuple[Tensor, float]:
        self.model.eval()
        with torch.no_grad():
            value = self._trained
            if value is None:
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
        # As the first one has it: they may be machines that round differently, and must not stop at different epochs.
        return value, self._of_all(watched)[0].item()

    def _of_all(self, value: float) -> Tensor:
        """A number as each process has it, in their order."""
        own = torch.tensor([value], dtype=torch.float64)
        if self.group is None:
            return own
        return torch.cat([part for (part,) in self.group.gather([own]) if isinstance(part, Tensor)])

    @property
    def steps(self) -> int:
        return min(STEPS, self._steps - self.steps_done % self._steps)

    def losses(self) -> Iterator[Tensor]:
        self.model.train()
        rank, size = (0, 1) if self.group is None else (self.group.rank, self.group.size)
        begun = self.steps_done % self._steps
        order = self._order(self.steps_done // self._steps)
        numbers = range(begun, begun + self.steps)
        chosen = [order[number * self.size : (number + 1) * self.size] for number in numbers]
        own = [part[rank::size] if len(part) >= size else part for part in chosen]
        nodes = self.data.nodes.cpu()
        first = self.steps_done
        if rank:  # the same weights, but another dropout; which one does not hang on when others stopped and went on
            self.draws.restore(rng_of(str(self.device), self.draws.seed, rank, first))
        seen: list[Tensor] = []
        batches = ((nodes[part], first + number) for number, part in enumerate(own))
        self._coming = self.sampler.ahead(batches)
        for number in range(len(numbers)):
            batch, self._next = self._next or next(self._coming), None
            self._share = 1 / size if len(chosen[number]) < size else len(own[number]) / len(chosen[number])
            value = self._judged(self._output(batch), own[number])
            seen.append(value.detach())
            self.steps_done = first + number + 1
            yield value
        self._coming = iter(())  # nothing waits while others are looked at
        self._trained = self._of_all(torch.stack(seen).mean().item()).mean()

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
        return {"steps_done": self.steps_done, "trained": self._trained, "averages": list(self._averages.values)}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.steps_done, self._trained = state["steps_done"], state["trained"]
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
