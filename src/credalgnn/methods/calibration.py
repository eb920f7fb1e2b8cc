"""Calibration nodes: nodes of known classes that took no part in training, and what a method says of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ..conformal import needed
from .known_nodes import KnownNodes


@dataclass(frozen=True, eq=False)
class Calibration:
    """What a method says of calibration nodes, a row each.

    Attributes:
        scores: The headline score ``[n]``.
        classes: The predicted class ``[n]``; None for methods that predict none.
        nonconformity: How little the true class fits the prediction ``[n]``; None likewise.
        alike: Whether they were judged in the graph of the prediction, as its other nodes were. If not, what was said
            of them when the method was fitted serves, and the promise is for nodes as they were in that graph.
    """

    scores: Tensor
    classes: Tensor | None
    nonconformity: Tensor | None
    alike: bool = True

    @classmethod
    def joined(cls, parts: Sequence[Calibration]) -> Calibration:
        """What was said of some nodes, and then of others.

        Args:
            parts: One or more, of one method and graph.
        """
        if len(parts) == 1:
            return parts[0]
        rows: list[Tensor | None] = []
        for name in ("scores", "classes", "nonconformity"):
            values = [value for part in parts if (value := getattr(part, name)) is not None]
            rows.append(torch.cat(values) if values else None)
        scores, classes, nonconformity = rows
        assert scores is not None
        return cls(scores, classes, nonconformity, parts[0].alike)


def calibration_nodes_for(
    *, false_alarms: float | None = None, fdr: float | None = None, coverage: float | None = None
) -> int:
    """How many calibration nodes it takes at least to promise what is given.

    Args:
        false_alarms: A rate of false alarms.
        fdr: A share of false alarms among flags: with fewer nodes there would never be a flag.
        coverage: Of prediction sets.
    """
    rates = [rate for rate in (false_alarms, fdr) if rate is not None]
    if coverage is not None:
        rates.append(round(1.0 - coverage, 12))  # 1 - 0.9 is a little less than 0.1
    return max((needed(rate) for rate in rates), default=1)


class CalibrationNodes(NamedTuple):
    """The calibration nodes of a fitted method.

    Attributes:
        known: The nodes, and how they are known again in other graphs.
        labels: Their classes.
        fitted: What the method says of them in the fitted graph, without having been told anything about them: for
            graphs that they are not in.
    """

    known: KnownNodes
    labels: Tensor
    fitted: Calibration

    def state(self) -> dict[str, Tensor]:
        """Return all of it as tensors by name."""
        fitted = {name: getattr(self.fitted, name) for name in ("scores", "classes", "nonconformity")}
        scored = {name: tensor for name, tensor in fitted.items() if tensor is not None}
        return {**self.known.state(), "labels": self.labels, **scored}

    @classmethod
    def from_state(cls, state: Mapping[str, Tensor]) -> CalibrationNodes:
        """Restore what ``state`` gave."""
        scored = (state["scores"], state.get("classes"), state.get("nonconformity"))
        return cls(KnownNodes.from_state(state), state["labels"], Calibration(*scored, alike=False))
