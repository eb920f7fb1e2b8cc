"""What a graph looks like, in numbers counted by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from credalgnn.graphs import Graph, local_homophily
from small_graphs import make


def test_describe_counts_by_hand() -> None:
    features = np.array([[1, 0], [0, 0], [1, 1], [0, 1], [1, 0], [0, 0]], dtype=np.float32)
    edges = np.array([[0, 0, 2, 0, 3, 2], [1, 1, 2, 2, 1, 3]])  # 0->1 twice, loop at 2; nodes 4 and 5 stand alone
    graph = Graph(features, edges, [0, 0, 1, 1, 0, -1], class_names=["cat", "dog", "owl"])
    told = graph.describe()
    assert (told.nodes, told.edges, told.features) == (6, 6, 2)
    assert told.density == pytest.approx(5 / 12)
    assert told.class_counts == {"cat": 3, "dog": 2, "owl": 0}
    assert told.unlabelled == 1
    assert (told.isolated, told.self_loops, told.duplicate_edges, told.empty_features) == (2, 1, 1, 2)
    assert told.directed
    text = str(told)
    for word in ("cat", "dog", "isolated", "homophily", "self-loop", "duplicate"):
        assert word in text.lower()


@pytest.mark.parametrize(
    ("edges", "labels", "homophily"),
    [
        ([[0, 1, 2, 0], [1, 2, 3, 3]], [0, 0, 1, 1], 0.5),
        ([[0, 1], [1, 0]], [0, 0, 1, 1], 1.0),
        ([[0, 1, 0], [2, 3, 1]], [0, 0, 1, 1], 1 / 3),
        ([[0, 1, 2], [1, 2, 3]], [0, 0, -1, 1], 1.0),  # an edge counts when both ends are labelled
    ],
)
def test_homophily_by_hand(edges: list[list[int]], labels: list[int], homophily: float) -> None:
    assert make(edge_index=edges, labels=labels).describe().homophily == pytest.approx(homophily)


def test_direction_is_told() -> None:
    assert not make(edge_index=[[0, 1, 1, 2, 3], [1, 0, 2, 1, 3]]).describe().directed
    assert make(edge_index=[[0, 1, 1], [1, 0, 2]]).describe().directed


def test_an_unlabelled_graph_is_described() -> None:
    told = make(labels=None).describe()
    assert told.unlabelled == 4
    assert told.class_counts == {}
    assert told.homophily is None or np.isnan(told.homophily)
    assert str(told)


def test_local_homophily_counts_labelled_neighbours_alone() -> None:
    edges = torch.tensor([[1, 2, 3, 0, 0], [0, 0, 0, 0, 4]])  # node 0 hears of 1, 2, 3 and itself, node 4 of 0
    graph = Graph(torch.ones(6, 1), edges, torch.tensor([0, 0, 1, -1, -1, 0]))
    share = local_homophily(graph)
    assert share[0] == 0.5
    assert bool(share[1:].isnan().all())
