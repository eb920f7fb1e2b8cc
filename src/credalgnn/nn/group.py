"""Processes that train one model together, over torch's own collectives (gloo, nccl)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .rounds import Output


class Processes:
    """The processes of ``torch.distributed``, which whoever started them has connected.

    Sums over processes are made in one fixed order, so that the same number of them gives the same numbers.
    """

    def __init__(self) -> None:
        from torch import distributed

        self.rank, self.size = distributed.get_rank(), distributed.get_world_size()

    def average(self, gradients: Sequence[Tensor], share: float) -> None:
        """Replace each gradient by the mean over all processes, weighted by their shares of the batch.

        Args:
            gradients: Of this process, in place.
            share: Its share of the batch.
        """
        from torch import distributed

        if self.size == 1:
            return
        flat = torch.cat([gradient.reshape(-1) for gradient in gradients]).mul_(share)
        everyone = [torch.empty_like(flat) for _ in range(self.size)]
        distributed.all_gather(everyone, flat)
        total = torch.stack(everyone).sum(0)
        parts = torch.split(total, [gradient.numel() for gradient in gradients])
        for gradient, part in zip(gradients, parts, strict=True):
            gradient.copy_(part.view_as(gradient))

    def gather(self, parts: list[Output]) -> list[list[Output]]:
        """What each process has, in their order.

        Args:
            parts: What this process has.
        """
        from torch import distributed

        if self.size == 1:
            return [parts]
        everyone: list[Any] = [None] * self.size
        distributed.all_gather_object(everyone, parts)
        return everyone
