"""Resources and reporting of one call."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from .memory import available_memory


class WorkerContext(NamedTuple):
    """Training of one network by several processes, as one of them sees it.

    Attributes:
        group: All processes that train together (``nn.distributed.Processes``); None: this one alone.
        checkpoint: Store of training states (``nn.training.CheckpointStore``); None: they are not kept.
    """

    group: Any
    checkpoint: Any


@dataclass(frozen=True)
class Context:
    """Resources and reporting of one call of ``fit`` or ``predict``; passed down, never stored on an estimator.

    Attributes:
        memory: Memory budget in bytes; None: what is available.
        cluster: Ray cluster that takes chunks of work (``methods.cluster.Tasks``); None: this process.
        workers: Processes of the cluster that train each network; None: this process.
        checkpoints: Folder of training states; None: they are not kept.
        progress: Show a bar; None: on a terminal, when it takes more than a few seconds.
        on_epoch: Called with every line of the training curve.
        worker: In a process that trains with others, these.
        networks: Networks still to train whose outputs are held at the same time, this one included.
        logits: Logits of all nodes will be needed.
        held_out: Predict nodes of the fitted graph as if they were nodes of another graph.
    """

    memory: int | None = None
    cluster: Any = None
    workers: int | None = None
    checkpoints: Path | None = None
    progress: bool | None = None
    on_epoch: Callable[[Any], None] | None = None
    worker: WorkerContext | None = None
    networks: int = 1
    logits: bool = False
    held_out: bool = False

    @property
    def allowed(self) -> int:
        """Bytes that may be used now."""
        return available_memory() if self.memory is None else self.memory

    @property
    def path(self) -> Hashable:
        """Key of the computing path: calls with the same key give the same bits."""
        return self.memory, self.cluster is not None

    def replace(self, **changes: Any) -> Context:
        """Return a copy with other values."""
        return replace(self, **changes)
