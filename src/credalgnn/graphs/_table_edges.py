"""Edges of tables: both ways, or one way, and each of them once."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from .errors import warn

Ends: TypeAlias = NDArray[np.signedinteger[Any]]  # of 32 bits or 64
Links: TypeAlias = tuple[Ends, NDArray[np.float32] | None]  # edge_index and weights
ENOUGH = 100  # edges, none of which would have its counterpart by chance


def both_ways(links: Links, count: int) -> Links:
    """Every edge in both directions, once each.

    Args:
        links: Edges.
        count: How many nodes there are.
    """
    (source, target), weights = links
    if not len(source):
        return links
    order, begins, turned, pair = _by_pair(source, target, count)
    there, back = np.zeros(len(source), np.bool_), np.zeros(len(source), np.bool_)  # which are kept, and kept turned
    first = order[begins]
    there[first] = True
    there[order[turned[np.diff(pair, prepend=-1) > 0]]] = True  # the first of a pair that goes the other way
    back[first] = source[first] != target[first]
    back[first[pair]] = False
    rows, turned_rows = np.flatnonzero(there), np.flatnonzero(back)
    both = np.empty((2, len(rows) + len(turned_rows)), source.dtype)
    for ends, one, other in zip(both, (source, target), (target, source), strict=True):
        np.take(one, rows, out=ends[: len(rows)])
        np.take(other, turned_rows, out=ends[len(rows) :])
    return both, None if weights is None else np.concatenate([weights[rows], weights[turned_rows]])


def _by_pair(
    source: Ends, target: Ends, count: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """The order of edges by unordered pairs of nodes, and where in it what stands.

    Returns:
        The order, stable; where each pair begins; which edges go against the first one of their pair, ascending; and
        the number of the pair of each of these.
    """
    codes = np.minimum(source, target).astype(np.int64, copy=False)
    codes *= count
    codes += np.maximum(source, target)
    values, order = (part.numpy() for part in torch.sort(torch.from_numpy(codes), stable=True))  # by radix
    again = np.flatnonzero(values[1:] == values[:-1]) + 1  # not the first of their pair
    begins = np.ones(len(values), np.bool_)
    begins[again] = False
    begin = np.flatnonzero(begins)
    pair = again - np.arange(1, len(again) + 1)  # as many begin up to there, less one
    here, first = order[again], order[begin[pair]]
    against = (source[here] > target[here]) != (source[first] > target[first])
    return order, begin, again[against], pair[against]


def warn_of_one_way(links: Links, count: int, name: str) -> None:
    """Edges that have no direction often stand in a table once: half of what a node could hear is lost then.

    Args:
        links: Edges; of a few nothing is said.
        count: How many nodes there are.
        name: The table.
    """
    (source, target), _ = links
    apart = int(np.count_nonzero(source != target))
    if apart >= ENOUGH and not len(_by_pair(source, target, count)[2]):
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
    codes = [source.astype(np.int64) * count + target for source, target in (old[0], new[0])]
    kept = ~np.isin(codes[0], codes[1])
    if not kept.all():
        warn(f"{name}: {int((~kept).sum()):,} edges stand in the new table of edges, too, and are taken from there")
    return old[0][:, kept], None if old[1] is None else old[1][kept]
