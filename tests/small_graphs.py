"""A graph of four nodes, and what tests of graphs ask of each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from credalgnn.graphs import Graph, GraphError

FEATURES = np.array([[1.0, 0.5], [0.0, 0.0], [2.0, -1.0], [0.25, 0.0]], dtype=np.float32)
EDGES = np.array([[0, 0, 2, 0], [1, 1, 2, 2]])
LABELS = np.array([0, 1, 0, -1])


def complains(call: Callable[[], object], *words: str) -> None:
    with pytest.raises(GraphError) as caught:
        call()
    text = str(caught.value)
    missing = [word for word in words if word.lower() not in text.lower()]
    assert not missing, f"{missing} not in: {text}"


def make(**changes: Any) -> Graph:
    return Graph(**{"features": FEATURES, "edge_index": EDGES, "labels": LABELS} | changes)


def dense(graph: Graph) -> torch.Tensor:
    return graph.features.to_dense() if graph.features.layout != torch.strided else graph.features


def same(first: Graph, second: Graph) -> None:
    assert first.feature_names == second.feature_names
    assert (first.edge_weight is None) == (second.edge_weight is None)
    if first.edge_weight is not None and second.edge_weight is not None:
        assert torch.equal(first.edge_weight, second.edge_weight)
    assert first.features.layout == second.features.layout
    assert torch.equal(dense(first), dense(second))
    assert torch.equal(first.edge_index, second.edge_index)
    assert torch.equal(first.labels, second.labels)
    assert first.class_names == second.class_names
    assert (first.node_ids is None) == (second.node_ids is None)
    if first.node_ids is not None and second.node_ids is not None:
        assert first.node_ids.tolist() == second.node_ids.tolist()
    assert first.fingerprint == second.fingerprint
