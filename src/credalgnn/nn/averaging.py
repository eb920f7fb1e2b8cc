"""Weights averaged over the steps of a training: nearer to the best place than batches let them come."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

STEPS = 100  # over which weights are averaged, once there are many


class Averages:
    """Exponential averages of a model's weights (Polyak and Juditsky 1992).

    Over ``STEPS`` steps; in the beginning over a ninth of those that were made, so that the first ones are soon
    forgotten.

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
        weights = [weight.detach() for weight in self.model.parameters()]
        if not self.values:
            self.values = [torch.zeros_like(weight) for weight in weights]
        torch._foreach_lerp_(self.values, weights, max(1 / STEPS, 9 / (8 + step)))  # of the first step 1

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """The model has the averages as its weights; afterwards its own again. Without any it keeps its own."""
        own = [weight.detach().clone() for weight in self.model.parameters()]
        self._put(self.values or own)
        try:
            yield
        finally:
            self._put(own)

    def _put(self, weights: Sequence[Tensor]) -> None:
        with torch.no_grad():
            for weight, value in zip(self.model.parameters(), weights, strict=True):
                weight.copy_(value)
