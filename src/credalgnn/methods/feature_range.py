"""Whether the features of a graph lie where those of training lay."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..graphs import Graph
from .chunks import feature_chunks
from .warn import warn_caller

FAR = 10.0  # times a feature's range in training: further outside is far
LARGE = 1000.0  # a value that no feature of mean 0 and standard deviation 1 has
NARROWEST = 0.01  # of the widest range: what every feature may vary by at least


class InputWarning(UserWarning):
    """Features of a graph lie far outside what a method has seen in training, or which nodes it has seen is unknown."""


@dataclass(frozen=True, eq=False)
class FeatureRange:
    """The smallest and largest value of each feature ``[F]``."""

    low: Tensor
    high: Tensor

    @classmethod
    def of(cls, graph: Graph) -> FeatureRange:
        """The range over all nodes of a graph; computed once for its features.

        Args:
            graph: What was seen in training.
        """
        return graph.cached(_feature_range)

    def complaint_about(self, graph: Graph) -> str:
        """One line about features that lie far outside the range; nothing where there are none.

        Args:
            graph: What is to be predicted.
        """
        found = FeatureRange.of(graph)
        low, high = found.low, found.high
        width = self.high - self.low
        width = width.clamp_min(max(NARROWEST * float(width.max()), torch.finfo(width.dtype).tiny))
        beyond = torch.maximum(self.low - low, high - self.high) / width
        far = (beyond > FAR).nonzero().squeeze(1)
        if not len(far):
            return ""
        worst = int(beyond.argmax())
        seen = f"{self.low[worst]:g} to {self.high[worst]:g}"
        return (
            f"{len(far)} of {len(width)} features lie far outside what was seen in training; feature {worst} has "
            f"values from {low[worst]:g} to {high[worst]:g}, in training from {seen}: scale them as they were "
            "scaled in training, or do not trust what is predicted"
        )


def warn_of_large_features(graph: Graph) -> None:
    """Warn of features with values that networks hardly learn from.

    Args:
        graph: What is to be learnt from.
    """
    found = FeatureRange.of(graph)
    largest = torch.maximum(found.low.abs(), found.high.abs())
    large = int((largest > LARGE).sum())
    if large:
        worst = int(largest.argmax())
        name = worst if graph.feature_names is None else graph.feature_names[worst]
        warn_caller(
            f"{large} of {len(largest)} features have large values; feature {name} goes from {found.low[worst]:g} to "
            f"{found.high[worst]:g}. Networks learn badly from such: bring features to mean 0 and standard deviation 1 "
            "before, as fit does with tables and pack does not",
            InputWarning,
        )


def _feature_range(graph: Graph) -> FeatureRange:
    return FeatureRange(*_extremes(graph))


def _extremes(graph: Graph) -> tuple[Tensor, Tensor]:
    """The smallest and largest value of each feature, float32; read in chunks."""
    x = graph.features
    if x.layout != torch.sparse_csr:
        ends = [(part.amin(0), part.amax(0)) for _, part in feature_chunks(graph) if isinstance(part, Tensor)]
        return torch.stack([low for low, _ in ends]).amin(0), torch.stack([high for _, high in ends]).amax(0)
    counts = torch.zeros(x.shape[1], dtype=torch.int64)
    low, high = torch.full((2, x.shape[1]), torch.inf) * torch.tensor([[1.0], [-1.0]])
    for _, part in feature_chunks(graph):
        assert not isinstance(part, Tensor)
        columns = part.columns.long()
        counts += torch.bincount(columns, minlength=x.shape[1])
        low.scatter_reduce_(0, columns, part.values, "amin")
        high.scatter_reduce_(0, columns, part.values, "amax")
    full = counts == x.shape[0]  # where no zero is left out
    return torch.where(full, low, low.clamp_max(0.0)), torch.where(full, high, high.clamp_min(0.0))
