"""Processes that train one model together, connected by torch's collectives (gloo, nccl)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from .layers import Output


class ProcessLost(ConnectionError):
    """Another process of the group has ended or cannot be reached."""


@contextmanager
def _collective() -> Iterator[None]:
    """Translate torch's RuntimeError for a process that does not answer."""
    try:
        yield
    except RuntimeError as error:
        raise ProcessLost(" ".join(str(error).split())) from None


class Processes:
    """The processes of ``torch.distributed``, which must be connected already.

    Sums over processes are made in one fixed order, so that the same number of processes gives the same bits.

    Attributes:
        rank: Number of this process.
        size: Number of processes.
    """

    def __init__(self) -> None:
        from torch import distributed

        self.rank, self.size = distributed.get_rank(), distributed.get_world_size()

    def average(self, gradients: Sequence[Tensor], share: float, meanwhile: Callable[[], None]) -> None:
        """Replace each gradient by the mean over all processes, weighted by their shares of the batch.

        Args:
            gradients: Gradients of this process; changed in place.
            share: This process's share of the batch.
            meanwhile: Called while the gradients of the other processes are on their way.
        """
        from torch import distributed

        if self.size == 1:
            return
        flat = torch.cat([gradient.reshape(-1) for gradient in gradients]).mul_(share)
        received = [torch.empty_like(flat) for _ in range(self.size)]
        with _collective():
            pending = distributed.all_gather(received, flat, async_op=True)
        meanwhile()
        with _collective():
            pending.wait()
        total = torch.stack(received).sum(0)
        parts = torch.split(total, [gradient.numel() for gradient in gradients])
        for gradient, part in zip(gradients, parts, strict=True):
            gradient.copy_(part.view_as(gradient))

    def gather(self, parts: list[Output]) -> list[list[Output]]:
        """Return the parts of each process, in their order."""
        from torch import distributed

        if self.size == 1:
            return [parts]
        received: list[Any] = [None] * self.size
        with _collective():
            distributed.all_gather_object(received, parts)
        return received
