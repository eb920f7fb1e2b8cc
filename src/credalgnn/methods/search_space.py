"""What a method declares that tuning may choose from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias


@dataclass(frozen=True)
class Uniform:
    """Any number between two.

    Args:
        low: The smallest.
        high: The largest.
        log: Drawn evenly in its logarithm, not in itself.
    """

    low: float
    high: float
    log: bool = False

    def __str__(self) -> str:
        return f"{'log ' if self.log else ''}U({self.low:g}, {self.high:g})"


Choices: TypeAlias = tuple[Any, ...]
Space: TypeAlias = Mapping[str, Uniform | Choices]
