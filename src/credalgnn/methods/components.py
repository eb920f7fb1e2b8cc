"""What methods stand on: the fitted models below them, and the outputs of these."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import Tensor

from ..nn.backbones import Features

if TYPE_CHECKING:
    from .base import Method


class Outputs(NamedTuple):
    """The outputs of a fitted model.

    Attributes:
        logits: ``[N, C]``.
        latents: ``z0 .. zL``; z0 are the features, perhaps sparse.
    """

    logits: Tensor
    latents: list[Features]


@dataclass(frozen=True)
class Components:
    """The fitted models that a method stands on; whoever fits many methods trains each of them once and shares it.

    Attributes:
        parameter: The method's parameter that takes them: one method, or a list of them where ``size`` is given.
        kind: What is trained where none are given.
        size: The hyper-parameter that says how many there are; None: there is one.
    """

    parameter: str
    kind: type[Method]
    size: str | None = None

    def seeds(self, config: Mapping[str, Any], seed: int) -> list[int]:
        """The seeds of the models below a method with this seed; no two methods of one size share any.

        Args:
            config: The method's hyper-parameters.
            seed: Of the method.
        """
        count = config[self.size] if self.size else 1
        return [seed * count + number for number in range(count)]
