"""Small tasks, and what tests of tasks ask of each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from credalgnn.graphs import Graph, GraphError, Split, Task

CLASSES = 5


NAMES = ["ant", "bee", "cat", "dog", "owl"]


def toy(nodes: int = 200, seed: int = 0, labels: np.ndarray | None = None) -> Graph:
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(nodes, 3)).astype(np.float32)
    edges = rng.integers(nodes, size=(2, 4 * nodes))
    drawn = rng.integers(CLASSES, size=nodes)
    return Graph(features, edges, drawn if labels is None else labels, class_names=NAMES)


def task_of(graph: Graph | None = None, ood: tuple[int, ...] = (1, 3), **options: Any) -> Task:
    return Task.leave_out(toy() if graph is None else graph, ood, **options)


def raises(call: Callable[[], object], *words: str) -> None:
    with pytest.raises(GraphError) as caught:
        call()
    missing = [word for word in words if word.lower() not in str(caught.value).lower()]
    assert not missing, f"{missing} not in: {caught.value}"


def village(**options: Any) -> Task:
    """Ten nodes of four classes, of which 0 is left out: 1 4 8 train, 3 and 6 validate, 9 validates as an OOD node.

    2 is OOD among the training nodes, 5 has no label, 0 and 7 are to be judged.
    """
    edges = [[8, 1, 2, 4, 6, 3, 6, 9, 1, 8, 4, 0, 5, 8, 4], [1, 8, 1, 4, 8, 6, 3, 3, 3, 2, 1, 7, 4, 1, 5]]
    labels = [1, 2, 0, 3, 1, -1, 2, 0, 3, 0]
    ids = [f"n{k}" for k in range(10)]
    features = np.arange(10, dtype=np.float32)[:, None] + 1
    graph = Graph(features, edges, labels, node_ids=ids, class_names=NAMES[:4])
    split = Split(torch.tensor([1, 2, 4, 5, 8]), torch.tensor([3, 6, 9]), torch.tensor([0, 7]))
    return Task.leave_out(graph, [0], split=split, inductive=True, **options)
