"""Neighbours drawn at random: the same ones for a key and a node, whoever draws them and in whatever order."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..runtime.compiling import INNER, kernel

ODD = np.uint64(0x9E3779B97F4A7C15)  # of splitmix64: what its state grows by
FIRST = np.uint64(0xBF58476D1CE4E5B9)
SECOND = np.uint64(0x94D049BB133111EB)
UNIT = 2.0**-53


@kernel(**INNER)
def _mixed(state: Any) -> Any:
    """The output of splitmix64 (Steele et al. 2014) at a state."""
    z = (state ^ (state >> np.uint64(30))) * FIRST
    z = (z ^ (z >> np.uint64(27))) * SECOND
    return z ^ (z >> np.uint64(31))


@kernel()
def draw_in_edges(
    starts: NDArray[Any],
    sources: NDArray[Any],
    fanout: int,
    key: Any,
    number: NDArray[Any],
    nodes: NDArray[Any],
    first: int,
    last: int,
    places: NDArray[Any],
    ends: NDArray[Any],
    drawn: NDArray[Any],
) -> int:
    """Draw in-edges of ``nodes[first:last]`` and put the nodes they come from, where they are new, behind the others.

    All edges of a node with at most ``fanout`` of them, else ``fanout`` of them with replacement. ``number`` has the
    place in ``nodes`` of each node of the graph, -1 for those that are not there; ``places`` gets the place of each
    drawn edge in ``sources``, ``ends`` where the node that it comes from stands in ``nodes``, and ``drawn`` the number
    of edges of each node. Returns how many nodes there are now, -1 if
    an edge comes from a node that does not exist.
    """
    count, at = last, 0
    for row in range(first, last):
        node = nodes[row]
        begin = starts[node]
        degree = starts[node + 1] - begin
        taken = min(degree, fanout)
        state = _mixed(key + np.uint64(node) * ODD)
        for k in range(taken):
            place = begin + k
            if degree > fanout:
                state += ODD
                unit = np.float64(_mixed(state) >> np.uint64(11)) * UNIT
                place = begin + min(np.int64(unit * degree), degree - 1)
            source = sources[place]
            if source < 0 or source >= len(number):
                return -1
            if number[source] < 0:
                number[source] = count
                nodes[count] = source
                count += 1
            places[at], ends[at] = place, number[source]
            at += 1
        drawn[row - first] = taken
    return count
