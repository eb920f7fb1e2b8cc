"""Diagnostics of predictions (degenerate credal sets) and of graphs (features outside the range of training).

Methods warn of both; a benchmark marks degenerate credal sets on the nodes of its test part by the same rules.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ..graphs import Graph
from ..runtime.warn import warn_caller
from .inputs import feature_chunks
from .prediction import Prediction

OPEN = 0.05  # an interval wider than this is open
FEW = 0.05  # sets are closed if at most this share of the nodes has an open interval
LITTLE = 0.1  # and EU is at most this share of TU: narrow intervals are fine for a model without doubt
TOP = 1e-3  # bits: tolerance of TU = log2 C
NEARLY_ALL = 0.9  # sets are saturated if a larger share of the nodes has TU = log2 C
ENOUGH = 20  # least number of nodes for a warning
SAMPLE = 2_000  # nodes, at most, that a method checks after fitting
FAR = 10.0  # times a feature's range in training: further outside is far
LARGE = 1000.0  # larger than any value of a standardised feature
NARROWEST = 0.01  # least width of a feature's range, relative to the widest


class CredalWarning(UserWarning):
    """Degenerate credal sets; the message names the problem and the remedy."""


class InputWarning(UserWarning):
    """Features far outside the range of training, or training nodes that cannot be recognised."""


class Finding(NamedTuple):
    """A problem and its remedy."""

    meaning: str
    advice: str


FINDINGS = {
    "narrow": Finding(
        f"closed intervals: at most {100 * FEW:g} % of the nodes have one wider than {OPEN}, and EU is at most "
        f"{100 * LITTLE:g} % of TU",
        "intervals have collapsed, so EU ranks numerical noise: use credal-coverage, or rank by TU",
    ),
    "saturated": Finding(
        f"TU is within {TOP} bits of log2 C on over {100 * NEARLY_ALL:g} % of the nodes",
        "TU is constant and EU is log2 C - AU, one score: narrow the intervals by longer training, a larger delta or "
        "a lower half_length_decay",
    ),
}


def findings(prediction: Prediction, rows: Tensor | None = None) -> tuple[str, ...]:
    """Return the names of the ``FINDINGS`` that hold for a prediction, or for some of its rows."""
    chosen = slice(None) if rows is None else rows
    scores = {name: values[chosen] for name, values in prediction.scores.items()}
    names = []
    if prediction.credal is not None:
        widest = prediction.credal.width.amax(-1)[chosen]
        sure = not {"EU", "TU"} <= set(scores) or bool(scores["EU"].sum() <= LITTLE * scores["TU"].sum())
        if sure and _share(widest > OPEN) <= FEW:
            names.append("narrow")
    if "TU" in scores and _share((scores["TU"] - math.log2(len(prediction.class_names))).abs() <= TOP) > NEARLY_ALL:
        names.append("saturated")
    return tuple(names)


def complaint_about(prediction: Prediction) -> str:
    """Return a warning in one line, or "" for informative credal sets or too few nodes."""
    if prediction.credal is None or len(prediction.nodes) < ENOUGH:
        return ""
    return "; ".join(f"{FINDINGS[name].meaning}; {FINDINGS[name].advice}" for name in findings(prediction))


def sample(count: int, trained: Tensor) -> Tensor:
    """Return evenly spread node numbers below ``count``, without the trained ones unless the others are too few."""
    is_trained = torch.zeros(count, dtype=torch.bool)
    is_trained[trained] = True
    others = (~is_trained).nonzero().squeeze(1)
    nodes = others if len(others) >= ENOUGH else torch.arange(count)
    return nodes[:: max(1, -(-len(nodes) // SAMPLE))]


def _share(yes: Tensor) -> float:
    return yes.double().mean().item()


class FeatureRange(NamedTuple):
    """The smallest and largest value of each feature ``[F]``."""

    low: Tensor
    high: Tensor

    @classmethod
    def of(cls, graph: Graph) -> FeatureRange:
        """Return the range over all nodes of a graph; computed once for its features."""
        return graph.cached(_feature_range)

    def complaint_about(self, graph: Graph) -> str:
        """Return one line about features of a graph that lie far outside the range, or "" if there are none."""
        other = FeatureRange.of(graph)
        low, high = other.low, other.high
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
    """Warn of features with values that networks hardly learn from."""
    low, high = FeatureRange.of(graph)
    largest = torch.maximum(low.abs(), high.abs())
    large = int((largest > LARGE).sum())
    if large:
        worst = int(largest.argmax())
        name = worst if graph.feature_names is None else graph.feature_names[worst]
        warn_caller(
            f"{large} of {len(largest)} features have large values; feature {name} goes from {low[worst]:g} to "
            f"{high[worst]:g}. Networks learn badly from such: standardise features first, as fit does with tables and "
            "pack does not",
            InputWarning,
        )


def _feature_range(graph: Graph) -> FeatureRange:
    return FeatureRange(*_extremes(graph))


def _extremes(graph: Graph) -> tuple[Tensor, Tensor]:
    """Return the smallest and largest value of each feature, float32; read in chunks."""
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
