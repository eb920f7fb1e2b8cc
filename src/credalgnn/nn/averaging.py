"""Weights averaged over the steps of a training: nearer to the best place than batches let them come."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

ETA = 8  # weights are averaged over about one in ETA + 1 of all steps, the last ones


class Averages:
    """Averages of a model's weights with polynomial decay (Shamir and Zhang 2013).

    They are over about the last ninth of the steps that were made: the first ones are soon forgotten, and the longer a
    training goes on, the less of the noise of its batches is left. Running statistics of layers are averaged likewise.

    Args:
        model: Whose weights.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.values: list[Tensor] = []

    def add(self, step: int) -> None:
        """Take in the present weights.

        Args:
            step: How many steps were made, this one among them.
        """
        weights = self._weights()
        if not self.values:
            self.values = [torch.zeros_like(weight) for weight in weights]
        torch._foreach_lerp_(self.values, weights, (ETA + 1) / (ETA + step))  # of the first step 1

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """The model has the averages as its weights; afterwards its own again. Without any it keeps its own."""
        if not self.values:
            yield
            return
        own = [weight.clone() for weight in self._weights()]
        self._put(self.values)
        try:
            yield
        finally:
            self._put(own)

    def restart(self) -> None:
        """Forget all but the present weights."""
        self.values = [weight.clone() for weight in self._weights()]

    def restore(self, values: Sequence[Tensor]) -> None:
        """Go on with averages that were kept.

        Args:
            values: Those of another time, perhaps on another device.
        """
        pairs = zip(values, self._weights(), strict=False)  # there may be none yet
        self.values = [value.to(weight.device, copy=True) for value, weight in pairs]

    def _weights(self) -> list[Tensor]:
        statistics = (buffer for buffer in self.model.buffers() if buffer.is_floating_point())
        return [*(weight.detach() for weight in self.model.parameters()), *statistics]

    def _put(self, weights: Sequence[Tensor]) -> None:
        for weight, value in zip(self._weights(), weights, strict=True):
            weight.copy_(value)
