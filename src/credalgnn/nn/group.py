"""Processes that train one model together, over torch's own collectives (gloo, nccl)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .rounds import Output


class ProcessLost(ConnectionError):
    """Another process of the group is gone, or cannot be reached."""


@contextmanager
def _together() -> Iterator[None]:
    """Around what all processes do at once: torch has no error of its own for one that does not answer."""
    try:
        yield
    except RuntimeError as error:
        raise ProcessLost(" ".join(str(error).split())) from None


class Processes:
    """The processes of ``torch.distributed``, which whoever started them has connected.

    Sums over processes are made in one fixed order, so that the same number of them gives the same numbers.
    """

    def __init__(self) -> None:
        from torch import distributed

        self.rank, self.size = distributed.get_rank(), distributed.get_world_size()

    def average(self, gradients: Sequence[Tensor], share: float, meanwhile: Callable[[], None]) -> None:
        """Replace each gradient by the mean over all processes, weighted by their shares of the batch.

        Args:
            gradients: Of this process, in place.
            share: Its share of the batch.
            meanwhile: What this process does while those of the others are on their way.
        """
        from torch import distributed

        if self.size == 1:
            return
        flat = torch.cat([gradient.reshape(-1) for gradient in gradients]).mul_(share)
        everyone = [torch.empty_like(flat) for _ in range(self.size)]
        with _together():
            coming = distributed.all_gather(everyone, flat, async_op=True)
        meanwhile()
        with _together():
            coming.wait()
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
        with _together():
            distributed.all_gather_object(everyone, parts)
        return everyone


def rng_of(device: str, *key: int) -> dict[str, Tensor]:
    """A state of ``RngScope`` that only this key has: processes with the same weights drop other units.

    Args:
        device: Where the network is, as torch names it.
        *key: Seed, number of the process, and what else shall make a difference.
    """
    seed = int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0] >> np.uint64(1))
    own = torch.empty(0, device=device).device  # with its number, where there are several
    return {str(each): torch.Generator(each).manual_seed(seed).get_state() for each in {torch.device("cpu"), own}}
