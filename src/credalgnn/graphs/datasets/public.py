"""What readers of public files share: arrays of npz files, edges without repetition, and splits from masks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ...runtime import reading
from ..errors import GraphError
from ..split import Split


def read_npz(path: Path, *names: str) -> list[NDArray[Any]]:
    """Arrays of an npz file, in the order of their names. Pickles in it are refused.

    Args:
        path: The file.
        names: Those of the arrays.
    """
    content = reading.read_npz(path, names)
    return [content[name] for name in names]


def distinct_edges(edges: NDArray[Any], both_directions: bool = False) -> NDArray[np.int64]:
    """Every edge once, in PyG's order: by source and then by target. Self-loops stay.

    Args:
        edges: Sources and targets ``[2, E]``.
        both_directions: Whether each edge is wanted from target to source, too.
    """
    ends = np.asarray(edges, np.int64)
    if both_directions:
        ends = np.concatenate([ends, ends[::-1]], axis=1)
    return np.unique(ends, axis=1)


def splits_from_masks(train: NDArray[Any], val: NDArray[Any], test: NDArray[Any], nodes: int) -> list[Split]:
    """Splits from masks of zeros and ones, or of false and true, one row a split.

    Args:
        train: Nodes to train on ``[S, N]``.
        val: Nodes to stop and tune by ``[S, N]``.
        test: Nodes to evaluate on ``[S, N]``.
        nodes: How many nodes the graph has.
    """
    masks = [np.asarray(mask) for mask in (train, val, test)]
    for mask in masks:
        if mask.shape != (len(masks[0]), nodes) or not np.isin(mask, (0, 1)).all():
            raise GraphError(f"the masks of the splits do not belong to a graph of {nodes} nodes")
    rows = zip(*(torch.from_numpy(mask.astype(bool)) for mask in masks), strict=True)
    return [Split.from_masks(*parts) for parts in rows]
