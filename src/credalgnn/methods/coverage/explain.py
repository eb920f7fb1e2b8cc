"""Why a node is covered or not, in words and numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ...graphs import Graph
from ...runtime.memory import let_go
from ..chunks import VALUES, edge_blocks, moments, slices
from .descriptions import STATISTICS, Array, Describer
from .model import StoredModels

SIMILAR = 50  # nodes most like a node, among which labelled ones are counted
NAMED = 3  # reasons and neighbours that are named
NEAREST = 5  # labelled nodes that are named
COMPARED = 20_000  # labelled nodes at the most that a node is compared with
CHUNK = 512  # nodes that are compared at a time
RELEVANT = 0.1  # a change of log coverage that is worth a word
_BLOCKS = ("its features", "features of its in-neighbours", "features two steps away")


@dataclass(frozen=True)
class Reason:
    """One way in which a node differs from labelled ones.

    Attributes:
        name: The statistic, or the block of features.
        effect: What it does to the logarithm of the relative coverage, compared with a typical labelled node; below 0:
            it makes the node less covered.
        value: The node's statistic, in its own units; None for blocks of features.
        low: Nine of ten labelled nodes have at least this.
        high: Nine of ten labelled nodes have at most this.
    """

    name: str
    effect: float
    value: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def is_unusual(self) -> bool:
        """Whether it makes the node less covered, and is not what most labelled nodes have, too."""
        inside = self.value is not None and (self.low or 0.0) <= self.value <= (self.high or 0.0)
        return self.effect <= -RELEVANT and not inside

    def __str__(self) -> str:
        if self.value is None:
            return self.name
        usual = f"{_short(self.low or 0.0)} to {_short(self.high or 0.0)}"
        return f"{self.name} {_short(self.value)} (labelled nodes: {usual})"


@dataclass(frozen=True)
class Explanation:
    """Why the credal set of a node is wide or narrow; ``str()`` says it in words.

    Attributes:
        node: The node's number.
        predicted: The most probable class.
        width: The widest of its intervals.
        coverage: Relative coverage: 1 where labels are as dense as where they are dense, 0 where they never were.
        labels_near: The number n of a class's labels near the node that the width was made from.
        trust: How far coverage was to be trusted; the rest of the width is how strange the node is otherwise.
        reasons: What makes the node unlike labelled ones, or like them; the strongest first.
        neighbours: The number of its neighbours.
        labelled_neighbours: How many of them are labelled; None where that is not known, on another graph without ids.
        usual_share: The share of labelled neighbours that labelled nodes have on average.
        least_covered: Neighbours with the lowest relative coverage, and that coverage.
        labelled_similar: How many of the 50 nodes most like it are labelled, or None.
        similar: How many nodes that were, 50 or all there are.
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
                "labels hardly ever reach nodes like it" if self.coverage < 0.25
                else "labels reach nodes like it less often than others" if self.coverage < 0.75
                else "nodes like it are labelled as often as any"
            )  # fmt: skip
            lines.append(
                f"Coverage {self.coverage:.2f} of full: {where}; {self.labels_near:.1f} labels of a class near it."
            )
        if self.trust < 0.5:
            lines.append(
                f"Coverage is trusted by {self.trust:.0%} only: the rest of the width is how strange it is otherwise."
            )
        against = [str(reason) for reason in self.reasons if reason.is_unusual][:NAMED]
        if against:
            lines.append(f"Unlike labelled nodes: {'; '.join(against)}.")
        if self.labelled_neighbours is not None and self.neighbours:
            usual = f"(labelled nodes: {self.usual_share:.0%} of theirs)"
            lines.append(f"{self.labelled_neighbours} of its {self.neighbours} neighbours are labelled {usual}.")
        if self.neighbours:
            weak = ", ".join(f"{node} ({q:.2f})" for node, q in self.least_covered)
            lines.append(f"Its least covered neighbours: {weak}.")
        if self.labelled_similar is not None:
            lines.append(f"Of the {self.similar} nodes most like it {self.labelled_similar} are labelled.")
        return "\n".join(lines)


def reasons_for(models: StoredModels, describer: Describer, rows: Array, typical: Array) -> list[tuple[Reason, ...]]:
    """What makes described nodes more or less covered, each the strongest first.

    Every statistic, and every block of features, is replaced by what labelled nodes have in the middle, one at a time;
    the effect is the change of the log coverage that this undoes.

    Args:
        models: Which say what coverage is.
        describer: That made the rows.
        rows: Descriptions of the nodes ``[N, D]``.
        typical: Descriptions of labelled nodes ``[T, D]``.
    """
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
    """The other ends of a node's edges, in either direction, each once."""
    starts, sources, _ = graph.in_edges
    ends = [sources[int(starts[node]) : int(starts[node + 1])].long()]
    for block in edge_blocks(graph):
        places = (block.sources == node).nonzero().squeeze(1)
        ends.append(block.nodes.start + torch.searchsorted(block.starts, places, right=True) - 1)
    found = torch.cat(ends)
    unique: Tensor = torch.unique(found[found != node])
    return unique


def most_similar(rows: Array, node: int, count: int) -> Array:
    """The nodes whose descriptions are nearest to that of a node, without the node itself."""
    scale, own = _scale(rows), rows[node]
    distance = np.empty(len(rows), rows.dtype)
    for part in _chunks(rows):
        distance[part] = np.square((rows[part] - own) / scale).sum(1)
    distance[node] = np.inf
    nearest: Array = np.argsort(distance, kind="stable")[: min(count, len(rows) - 1)]
    return nearest


def nearest(rows: Array, nodes: Tensor, labelled: Tensor) -> Tensor:
    """The labelled nodes whose descriptions are nearest to those of some nodes ``[n, 5]``, each node apart from itself.

    Args:
        rows: Descriptions of all nodes ``[N, D]``.
        nodes: Node numbers ``[n]``.
        labelled: Node numbers; of very many, some, evenly spread.
    """
    labelled = labelled[:: len(labelled) // COMPARED + 1]
    scale = _scale(rows)
    known = torch.from_numpy(rows[labelled.numpy()] / scale).float()
    count = min(NEAREST, max(1, len(labelled) - 1))
    result = []
    for start in range(0, len(nodes), CHUNK):
        part = nodes[start : start + CHUNK]
        distance = torch.cdist(torch.from_numpy(rows[part.numpy()] / scale).float(), known)
        distance[part[:, None] == labelled] = torch.inf
        result.append(labelled[distance.topk(count, largest=False).indices])
    return torch.cat(result)


def usual_share(graph: Graph, labelled: Tensor) -> float:
    """The mean share of labelled nodes among the neighbours of labelled nodes that have any."""
    found = []
    for block in edge_blocks(graph):
        source = block.sources.long()
        target = block.spread(torch.arange(block.nodes.start, block.nodes.stop))
        for here, there in ((source, target), (target, source)):
            counts = labelled[here] & (here != there)
            found.append(torch.unique(here[counts] * graph.num_nodes + there[counts]))
    pairs = torch.unique(torch.cat(found))
    _, here = torch.unique(pairs // graph.num_nodes, return_inverse=True)
    hits = torch.bincount(here, labelled[pairs % graph.num_nodes].double())
    return float((hits / torch.bincount(here)).mean()) if len(pairs) else 0.0


def _chunks(rows: Array) -> Iterator[slice]:
    for part in slices(len(rows), VALUES // rows.shape[1]):
        yield part
        let_go(rows)


def _scale(rows: Array) -> Array:
    """Of each column, what to divide by."""
    scale: Array = moments(torch.from_numpy(rows[part]) for part in _chunks(rows))[1].numpy()
    return np.maximum(scale, 1e-9)


def _raw(describer: Describer, statistics: Array) -> Array:
    """Statistics in their own units."""
    raw: Array = np.expm1(statistics * describer.scale.numpy() + describer.centre.numpy())
    return np.maximum(raw, 0.0)


def _short(value: float) -> str:
    return f"{value:.0f}" if value >= 10 or abs(value - round(value)) < 1e-3 else f"{value:.1f}"
