"""Edges of tables: both ways, or one way, and each of them once."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from .errors import warn

Links: TypeAlias = tuple[NDArray[np.int64], NDArray[np.float32] | None]  # edge_index and weights
ENOUGH = 100  # edges, none of which would have its counterpart by chance


def both_ways(links: Links, count: int) -> Links:
    """Every edge in both directions, once each.

    Args:
        links: Edges.
        count: How many nodes there are.
    """
    (source, target), weights = links
    order, begins, turned = _by_pair(source, target, count)
    if not len(order):
        return links
    group = np.flatnonzero(begins)
    sizes = np.diff(group, append=len(order))
    before = np.cumsum(turned) - turned  # edges that are turned before this one; in its pair, less those of the others
    second = turned & (before == np.repeat(before[group], sizes))
    alone = np.add.reduceat(turned, group, dtype=np.int64) == 0
    kept = np.zeros((2, len(order)), np.bool_)  # edges as they stand there, and turned round
    kept[0, order[group]] = True
    kept[0, order[second]] = True
    first = order[group[alone]]
    kept[1, first] = source[first] != target[first]
    both = np.concatenate([links[0][:, kept[0]], links[0][::-1][:, kept[1]]], 1)
    return both, None if weights is None else np.concatenate([weights[kept[0]], weights[kept[1]]])


def _by_pair(
    source: NDArray[np.int64], target: NDArray[np.int64], count: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_], NDArray[np.bool_]]:
    """The order of edges by unordered pairs of nodes, where a pair begins, and which edges go against its first one."""
    codes = np.minimum(source, target) * count + np.maximum(source, target)
    values, order = (part.numpy() for part in torch.sort(torch.from_numpy(codes), stable=True))  # by radix
    begins = np.ones(len(values), np.bool_)
    np.not_equal(values[1:], values[:-1], out=begins[1:])
    falling = (source > target)[order]
    sizes = np.diff(np.flatnonzero(begins), append=len(values))
    return order, begins, falling != np.repeat(falling[begins], sizes)


def warn_of_one_way(links: Links, count: int, name: str) -> None:
    """Edges that have no direction often stand in a table once: half of what a node could hear is lost then.

    Args:
        links: Edges; of a few nothing is said.
        count: How many nodes there are.
        name: The table.
    """
    (source, target), _ = links
    apart = int(np.count_nonzero(source != target))
    if apart >= ENOUGH and not _by_pair(source, target, count)[2].any():
        warn(
            f"{name}: no edge has its counterpart in the other direction; if edges have no direction, say so: "
            "undirected=True (--undirected)"
        )


def without(old: Links, new: Links, count: int, name: str) -> Links:
    """The edges of the context that are not among the new ones: who gives a table twice has its edges once.

    Args:
        old: Edges of the context.
        new: New edges.
        count: How many nodes there are.
        name: The table of the context.
    """
    codes = [source * count + target for source, target in (old[0], new[0])]
    kept = ~np.isin(codes[0], codes[1])
    if not kept.all():
        warn(f"{name}: {int((~kept).sum()):,} edges stand in the new table of edges, too, and are taken from there")
    return old[0][:, kept], None if old[1] is None else old[1][kept]
