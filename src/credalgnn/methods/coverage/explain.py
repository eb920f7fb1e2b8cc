"""Explanations of a node's coverage in words and numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ...graphs import Graph
from ...runtime.memory import let_go
from ..inputs import VALUES, edge_blocks, moments, slices
from .descriptions import STATISTICS, Array, Describer
from .model import StoredModels

SIMILAR = 50  # most similar nodes, among which labelled ones are counted
NAMED = 3  # reasons and neighbours listed
NEAREST = 5  # nearest labelled nodes listed
COMPARED = 20_000  # labelled nodes, at most, that a node is compared with
CHUNK = 512  # nodes that are compared at a time
RELEVANT = 0.1  # least change of log coverage worth mentioning
_BLOCKS = ("its features", "features of its in-neighbours", "features two steps away")


@dataclass(frozen=True)
class Reason:
    """Property in which a node differs from labelled nodes.

    Attributes:
        name: Statistic or block of features.
        effect: Effect on the logarithm of the relative coverage, compared with a typical labelled node; below 0 it
            lowers the node's coverage.
        value: Value of the statistic in its units; None for blocks of features.
        low: 10 % quantile of labelled nodes.
        high: 90 % quantile of labelled nodes.

    Example:
        >>> str(Reason("in-degree", -0.8, 0.0, 2.0, 9.0))
        'in-degree 0 (labelled nodes: 2 to 9)'
    """

    name: str
    effect: float
    value: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def is_unusual(self) -> bool:
        """True if it lowers the node's coverage and lies outside the usual range of labelled nodes."""
        inside = self.value is not None and (self.low or 0.0) <= self.value <= (self.high or 0.0)
        return self.effect <= -RELEVANT and not inside

    def __str__(self) -> str:
        if self.value is None:
            return self.name
        usual = f"{_short(self.low or 0.0)} to {_short(self.high or 0.0)}"
        return f"{self.name} {_short(self.value)} (labelled nodes: {usual})"


@dataclass(frozen=True)
class Explanation:
    """Explanation of the width of a node's credal set; ``str()`` gives it in words.

    Attributes:
        node: Node number.
        predicted: Most probable class.
        width: Width of its widest interval.
        coverage: Relative coverage: 1 where labels are frequent, 0 where there were none.
        labels_near: Number n of a class's labels near the node that determines the width.
        trust: Share of the width that coverage decides; the OOD score decides the rest.
        reasons: Differences from labelled nodes, those that lower coverage most first.
        neighbours: Number of its neighbours.
        labelled_neighbours: Number of labelled neighbours; None where unknown, on another graph without ids.
        usual_share: Mean share of labelled neighbours among labelled nodes.
        least_covered: Neighbours with the lowest relative coverage, and that coverage.
        labelled_similar: Number of labelled nodes among the most similar nodes, or None.
        similar: Number of most similar nodes considered: 50, or all.

    Example:
        >>> print(method.explain(17))
        Node 17, predicted cat: its credal set is wide (widest interval 0.71). ...
    """

    node: int
    predicted: str
    width: float
    coverage: float
    labels_near: float
    trust: float
    reasons: tuple[Reason, ...]
    neighbours: int
    labelled_neighbours: int | None
    usual_share: float
    least_covered: tuple[tuple[int, float], ...]
    labelled_similar: int | None
    similar: int

    def __str__(self) -> str:
        size = "wide" if self.width >= 0.5 else "narrow" if self.width < 0.1 else "of medium width"
        width = f"{size} (widest interval {self.width:.2f})"
        lines = [f"Node {self.node}, predicted {self.predicted}: its credal set is {width}."]
        if self.trust > 0.0:
            where = (
                "nodes like it are hardly ever labelled" if self.coverage < 0.25
                else "nodes like it are labelled less often than others" if self.coverage < 0.75
                else "nodes like it are labelled as often as any"
            )  # fmt: skip
            lines.append(
                f"Coverage {self.coverage:.2f} of full: {where}; {self.labels_near:.1f} labels of a class near it."
            )
        if self.trust < 0.5:
            lines.append(f"Coverage decides only {self.trust:.0%} of the width: it has little skill on this graph.")
        unusual = [str(reason) for reason in self.reasons if reason.is_unusual][:NAMED]
        if unusual:
            lines.append(f"Unlike labelled nodes: {'; '.join(unusual)}.")
        if self.labelled_neighbours is not None and self.neighbours:
            usual = f"(labelled nodes: {self.usual_share:.0%} of theirs)"
            lines.append(f"{self.labelled_neighbours} of its {self.neighbours} neighbours are labelled {usual}.")
        if self.neighbours:
            weak = ", ".join(f"{node} ({q:.2f})" for node, q in self.least_covered)
            lines.append(f"Its least covered neighbours: {weak}.")
        if self.labelled_similar is not None:
            lines.append(f"Of the {self.similar} most similar nodes {self.labelled_similar} are labelled.")
        return "\n".join(lines)


def reasons_for(
    models: StoredModels | None, describer: Describer, rows: Array, typical: Array
) -> list[tuple[Reason, ...]]:
    """Reasons for the coverage of described nodes ``[N, D]``, those that lower it most first.

    Each statistic and each block of features in turn is replaced by its median over ``typical`` labelled nodes
    ``[T, D]``; its effect is the change of the log coverage.
    """
    if models is None:
        return [()] * len(rows)
    middle = np.median(typical, 0)
    low, high = (_raw(describer, np.quantile(typical[:, : len(STATISTICS)], q, axis=0)) for q in (0.1, 0.9))
    values = _raw(describer, rows[:, : len(STATISTICS)])
    width = (rows.shape[1] - len(STATISTICS)) // len(_BLOCKS)
    parts = [slice(number, number + 1) for number in range(len(STATISTICS))]
    parts += [slice(s, s + width) for s in range(len(STATISTICS), rows.shape[1], width)]
    now = models(rows).log_relative
    effects = np.zeros((len(parts), len(rows)))
    for number, part in enumerate(parts):
        changed = rows.copy()
        changed[:, part] = middle[part]
        effects[number] = now - models(changed).log_relative
    result = []
    for node in range(len(rows)):
        order = np.argsort(effects[:, node], kind="stable")
        reasons = []
        for number in order.tolist():
            effect = float(effects[number, node])
            if number < len(STATISTICS):
                numbers = (float(x[number]) for x in (values[node], low, high))
                reasons.append(Reason(STATISTICS[number], effect, *numbers))
            else:
                reasons.append(Reason(_BLOCKS[number - len(STATISTICS)], effect))
        result.append(tuple(reasons))
    return result


def neighbours_of(graph: Graph, node: int) -> Tensor:
    """Neighbours of a node along edges of either direction, each once."""
    starts, sources, _ = graph.in_edges
    ends = [sources[int(starts[node]) : int(starts[node + 1])].long()]
    for block in edge_blocks(graph):
        places = (block.sources == node).nonzero().squeeze(1)
        ends.append(block.nodes.start + torch.searchsorted(block.starts, places, right=True) - 1)
    others = torch.cat(ends)
    unique: Tensor = torch.unique(others[others != node])
    return unique


def most_similar(rows: Array, node: int, count: int) -> Array:
    """Nodes with the descriptions nearest to that of a node, without the node itself."""
    scale, query = _scale(rows), rows[node]
    distance = np.empty(len(rows), rows.dtype)
    for part in _chunks(rows):
        distance[part] = np.square((rows[part] - query) / scale).sum(1)
    distance[node] = np.inf
    nearest: Array = np.argsort(distance, kind="stable")[: min(count, len(rows) - 1)]
    return nearest


def nearest(rows: Array, nodes: Tensor, labelled: Tensor) -> Tensor:
    """Labelled nodes with the descriptions nearest to those of some nodes ``[n, 5]``, each node excluding itself.

    Very many labelled nodes are thinned out evenly.
    """
    labelled = labelled[:: len(labelled) // COMPARED + 1]
    scale = _scale(rows)
    references = torch.from_numpy(rows[labelled.numpy()] / scale).float()
    count = min(NEAREST, max(1, len(labelled) - 1))
    result = []
    for start in range(0, len(nodes), CHUNK):
        part = nodes[start : start + CHUNK]
        distance = torch.cdist(torch.from_numpy(rows[part.numpy()] / scale).float(), references)
        distance[part[:, None] == labelled] = torch.inf
        result.append(labelled[distance.topk(count, largest=False).indices])
    return torch.cat(result)


def usual_share(graph: Graph, labelled: Tensor) -> float:
    """Mean share of labelled nodes among the neighbours of labelled nodes that have any."""
    pairs_by_block = []
    for block in edge_blocks(graph):
        source = block.sources.long()
        target = block.spread(torch.arange(block.nodes.start, block.nodes.stop))
        for here, there in ((source, target), (target, source)):
            counted = labelled[here] & (here != there)
            pairs_by_block.append(torch.unique(here[counted] * graph.num_nodes + there[counted]))
    pairs = torch.unique(torch.cat(pairs_by_block))
    _, here = torch.unique(pairs // graph.num_nodes, return_inverse=True)
    hits = torch.bincount(here, labelled[pairs % graph.num_nodes].double())
    return float((hits / torch.bincount(here)).mean()) if len(pairs) else 0.0


def _chunks(rows: Array) -> Iterator[slice]:
    for part in slices(len(rows), VALUES // rows.shape[1]):
        yield part
        let_go(rows)


def _scale(rows: Array) -> Array:
    """Standard deviation of each column."""
    scale: Array = moments(torch.from_numpy(rows[part]) for part in _chunks(rows))[1].numpy()
    return np.maximum(scale, 1e-9)


def _raw(describer: Describer, statistics: Array) -> Array:
    """Statistics in their original units."""
    raw: Array = np.expm1(statistics * describer.scale.numpy() + describer.centre.numpy())
    return np.maximum(raw, 0.0)


def _short(value: float) -> str:
    return f"{value:.0f}" if value >= 10 or abs(value - round(value)) < 1e-3 else f"{value:.1f}"
