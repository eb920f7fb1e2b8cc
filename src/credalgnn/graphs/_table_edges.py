"""Edges of tables: both ways, or one way, and each of them once."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
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
    weights = links[1]
    both = np.concatenate([links[0], links[0][::-1]], 1)
    _, first = np.unique(both[0] * count + both[1], return_index=True)
    first.sort()
    return both[:, first], None if weights is None else np.concatenate([weights, weights])[first]


def warn_of_one_way(links: Links, count: int, name: str) -> None:
    """Edges that have no direction often stand in a table once: half of what a node could hear is lost then.

    Args:
        links: Edges; of a few nothing is said.
        count: How many nodes there are.
        name: The table.
    """
    (source, target), _ = links
    apart = source != target
    there, back = (source * count + target)[apart], (target * count + source)[apart]
    if len(there) >= ENOUGH and not np.isin(there, back).any():
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
