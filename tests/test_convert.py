"""Graphs of other libraries, labels that are text, and graphs that grow."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch_geometric.data import HeteroData

from credalgnn.graphs import Graph
from small_graphs import EDGES, FEATURES, LABELS, complains, dense, make, same


def karate() -> nx.Graph:
    graph = nx.karate_club_graph()  # its edges have a weight, its nodes a club
    nx.set_node_attributes(graph, dict(graph.degree(weight=None)), "degree")
    nx.set_node_attributes(graph, {node: [node / 34, 1.0] for node in graph}, "place")
    return graph


class TestNetworkx:
    def test_an_undirected_graph(self) -> None:
        given = karate()
        graph = Graph.from_networkx(given, ["degree", "place"], "club")
        assert graph.feature_names == ("degree", "place[0]", "place[1]")
        assert dense(graph)[:, 0].tolist() == [given.degree(node, weight=None) for node in given]
        assert np.allclose(dense(graph)[:, 1:], [given.nodes[node]["place"] for node in given])
        assert [graph.class_names[label] for label in graph.labels.tolist()] == [given.nodes[n]["club"] for n in given]
        assert graph.node_ids is not None
        assert graph.node_ids.tolist() == list(given)
        assert graph.edge_weight is not None
        adjacency = np.zeros((34, 34))
        adjacency[tuple(graph.edge_index)] = graph.edge_weight
        assert np.array_equal(adjacency, nx.to_numpy_array(given))
        assert graph.num_edges == 2 * given.number_of_edges()
        assert Graph.from_networkx(given, ["degree"], weight=None).edge_weight is None

    @pytest.mark.parametrize("kind", [nx.DiGraph, nx.MultiDiGraph, nx.Graph, nx.MultiGraph])
    def test_directions_loops_and_parallel_edges(self, kind: Any) -> None:
        given = kind([("b", "a"), ("a", "c"), ("c", "c"), ("a", "c")])
        nx.set_node_attributes(given, 1.5, "x")
        graph = Graph.from_networkx(given)
        assert graph.edge_weight is None
        assert graph.node_ids is not None
        counts = np.zeros((3, 3))
        np.add.at(counts, tuple(graph.edge_index.numpy()), 1)
        assert np.array_equal(counts, nx.to_numpy_array(given, nodelist=graph.node_ids.tolist()))

    def test_names_labels_and_weights_that_are_partly_there(self) -> None:
        given = nx.DiGraph()
        given.add_node((0, 1), x=1, kind=3)
        given.add_node("b", x=True)
        given.add_edge((0, 1), "b", cost=2.5)
        given.add_edge("b", (0, 1))
        graph = Graph.from_networkx(given, ["x"], "kind", "cost")
        assert graph.node_ids is not None
        assert graph.node_ids.tolist() == ["(0, 1)", "b"]
        assert (graph.labels.tolist(), graph.class_names) == ([0, -1], ("3",))
        assert graph.edge_weight is not None
        assert graph.edge_weight.tolist() == [2.5, 1]

    def test_what_is_refused(self) -> None:
        given = nx.path_graph(3)
        complains(lambda: Graph.from_networkx(given), "no attributes", "set_node_attributes(g, dict(g.degree)")
        given.nodes[0]["x"] = 1.0
        complains(lambda: Graph.from_networkx(given), "node 1", "no attribute 'x'", "`features`")
        nx.set_node_attributes(given, "red", "colour")
        complains(lambda: Graph.from_networkx(given, ["colour"]), "'colour' of node 0", "`features`")
        nx.set_node_attributes(given, {0: [1, 2], 1: [1], 2: [1, 2]}, "v")
        complains(lambda: Graph.from_networkx(given, ["v"]), "'v' of node 1", "as many numbers")
        nx.set_node_attributes(given, 1.0, "x")
        complains(lambda: Graph.from_networkx(given, ["x"], "topic"), "'topic'", "label=")
        complains(lambda: Graph.from_networkx(given, ["x"], weight="cost"), "'cost'", "weight=")
        complains(lambda: Graph.from_networkx(nx.Graph()), "no nodes")
        complains(lambda: Graph.from_networkx(3), "networkx graph is wanted, not int")  # type: ignore[arg-type]


class FakeDGL:
    """What DGL's homogeneous graphs offer, as far as it is used: ``ndata``, ``edata``, ``edges()``."""

    is_homogeneous = True

    def __init__(self, ndata: dict[str, torch.Tensor], edata: dict[str, torch.Tensor]) -> None:
        self.ndata, self.edata = ndata, edata

    def edges(self) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.from_numpy(EDGES[0]), torch.from_numpy(EDGES[1])


def test_dgl() -> None:
    nodes = {"feat": torch.from_numpy(FEATURES), "label": torch.from_numpy(LABELS)}
    weights = torch.tensor([1.0, 2.0, 3.0, 4.0])
    same(Graph.from_dgl(FakeDGL(nodes, {})), make())
    same(Graph.from_dgl(FakeDGL(nodes, {"weight": weights}), label=None), make(labels=None, edge_weight=weights))
    renamed = FakeDGL({"x": nodes["feat"], "y": nodes["label"][:, None]}, {"w": weights})
    same(Graph.from_dgl(renamed, "x", "y", "w"), make(edge_weight=weights))
    complains(lambda: Graph.from_dgl(renamed), "no 'feat'", "x, y")
    complains(lambda: Graph.from_dgl(FakeDGL(nodes, {}), weight="w"), "no 'w'", "weight=")
    mixed = FakeDGL(nodes, {})
    mixed.is_homogeneous = False
    complains(lambda: Graph.from_dgl(mixed), "to_homogeneous")
    complains(lambda: Graph.from_dgl(3), "DGL graph is wanted")


class TestScipy:
    @pytest.mark.parametrize("form", ["csr", "csc", "coo", "lil"])
    def test_an_adjacency(self, form: str) -> None:
        matrix = sp.random_array((20, 20), density=0.1, rng=np.random.default_rng(0), format=form)
        graph = Graph.from_scipy(matrix, np.ones((20, 2)), ["a", "b"] * 10, feature_names=["p", "q"])
        assert graph.edge_weight is not None
        rebuilt = np.zeros((20, 20))
        rebuilt[tuple(graph.edge_index)] = graph.edge_weight
        assert np.allclose(rebuilt, matrix.toarray())
        assert (graph.class_names, graph.feature_names) == (("a", "b"), ("p", "q"))
        plain = Graph.from_scipy(matrix != 0, np.ones((20, 2)))
        assert plain.edge_weight is None
        assert torch.equal(plain.edge_index, graph.edge_index)

    def test_zeros_are_no_edges_and_duplicates_are_summed(self) -> None:
        matrix = sp.coo_array(([1.0, 0.0, 0.5, 0.5], ([0, 1, 2, 2], [1, 2, 0, 0])), (3, 3))
        graph = Graph.from_scipy(matrix, np.ones((3, 1)))
        assert graph.edge_index.tolist() == [[0, 2], [1, 0]]
        assert graph.edge_weight is None

    def test_what_is_refused(self) -> None:
        complains(lambda: Graph.from_scipy(sp.eye_array(3), np.ones((4, 1))), "[3, 3]", "4 nodes")
        complains(lambda: Graph.from_scipy(np.eye(3), np.ones((3, 1))), "scipy sparse", "coo_array")
        complains(lambda: Graph.from_scipy(-sp.eye_array(3), np.ones((3, 1))), "not negative")


def test_hetero_data_is_refused_with_the_remedy() -> None:
    data = HeteroData()
    data["paper"].x = torch.ones(2, 1)
    data["paper", "cites", "paper"].edge_index = torch.tensor([[0], [1]])
    complains(lambda: Graph.from_pyg(data), "HeteroData", "data.to_homogeneous()")
    assert Graph.from_pyg(data.to_homogeneous(add_node_type=False, add_edge_type=False)).num_nodes == 2


@pytest.mark.parametrize(
    "labels",
    [
        ["dog", "cat", "dog", None],
        ["dog", "cat", "dog", ""],
        np.array(["dog", "cat", "dog", float("nan")], dtype=object),
        np.array(["dog", "cat", "dog", ""]),
    ],
)
def test_labels_that_are_text(labels: Any) -> None:
    same(make(labels=labels), make(labels=[1, 0, 1, -1], class_names=["cat", "dog"]))
    same(
        make(labels=labels, class_names=["dog", "owl", "cat"]),
        make(labels=[0, 2, 0, -1], class_names=["dog", "owl", "cat"]),
    )
    same(
        make(class_names=["cat", "dog"]).replace(labels=labels), make(labels=[1, 0, 1, -1], class_names=["cat", "dog"])
    )


def test_labels_that_are_partly_text() -> None:
    same(make(labels=[1, None, 0, None]), make(labels=[1, -1, 0, -1]))
    complains(lambda: make(labels=np.array(["a", 1, "b", None], object)), "labels: row 1 is 1 of type int", "as text")
    complains(lambda: make(labels=["a", "b", "c", "a"], class_names=["a", "b"]), "row 2 is 'c'", "a, b")
    complains(lambda: make(labels=["a", "b", "c"]), "labels", "[3]", "4 nodes")


class TestGrowth:
    ALL = np.concatenate([FEATURES, [[3.0, 4.0], [0.0, 1.0]]]).astype(np.float32)
    NEW = np.array([[4, 5, 0], [0, 4, 1]])

    def test_new_nodes_stand_behind_the_old_ones(self) -> None:
        old = make(
            node_ids=list("abcd"), class_names=["cat", "dog"], feature_names=["p", "q"], edge_weight=[1, 2, 3, 4]
        )
        graph = old.with_nodes(self.ALL[4:], self.NEW, ["owl", "dog"], ["e", "f"], [5, 6, 7], feature_names=["p", "q"])
        wanted = Graph(
            self.ALL, np.concatenate([EDGES, self.NEW], 1), [*LABELS, 2, 1], list("abcdef"), ["cat", "dog", "owl"],
            feature_names=["p", "q"], edge_weight=[1, 2, 3, 4, 5, 6, 7],
        )  # fmt: skip
        same(graph, wanted)
        inside = make(labels=None, edge_index=np.concatenate([EDGES, [[0], [1]]], 1))
        assert torch.equal(graph.subgraph(torch.arange(4)).edge_index, inside.edge_index)

    def test_as_little_as_possible(self) -> None:
        graph = make().with_nodes(self.ALL[4:], np.zeros((2, 0), np.int64))
        same(graph, Graph(self.ALL, EDGES, [*LABELS, -1, -1]))
        same(
            make().with_nodes(self.ALL[4:], self.NEW, [3, -2]),
            Graph(self.ALL, np.concatenate([EDGES, self.NEW], 1), [*LABELS, 3, -1]),
        )

    def test_sparse_and_dense_features(self) -> None:
        thin = sp.random_array((60, 80), density=0.02, rng=np.random.default_rng(0), dtype=np.float32).toarray()
        thin[50:] = np.random.default_rng(1).random((10, 80))
        for cut in (50, 20):  # dense rows below sparse ones, sparse below sparse
            whole, part = Graph(thin[: cut + 10], EDGES), Graph(thin[:cut], EDGES)
            same(part.with_nodes(thin[cut : cut + 10], np.zeros((2, 0), np.int64)), whole)
        same(
            Graph(thin[50:], EDGES).with_nodes(thin[:5], [[0], [12]]),
            Graph(np.concatenate([thin[50:], thin[:5]]), np.concatenate([EDGES, [[0], [12]]], 1)),
        )

    @pytest.mark.parametrize(
        ("old", "options", "words"),
        [
            ({}, {"features": [[1.0]]}, ["1 features", "2"]),
            ({"feature_names": ["p", "q"]}, {"feature_names": ["q", "p"]}, ["feature 0, 'q'", "'p'"]),
            ({"feature_names": ["p", "q"]}, {"feature_names": ["p", "r"]}, ["no feature 'q'"]),
            ({"node_ids": list("abcd")}, {}, ["have ids", "node_ids="]),
            ({}, {"node_ids": ["e"]}, ["no ids"]),
            ({"node_ids": list("abcd")}, {"node_ids": ["b"]}, ["b", "already"]),
            ({"node_ids": list("abcd")}, {"node_ids": [4]}, ["text", "one type"]),
            ({"node_ids": [1, 2, 3, 4]}, {"node_ids": ["5"]}, ["numbers", "one type"]),
            ({"node_ids": [1, 2, 3, 4]}, {"node_ids": [5, 6]}, ["2 node ids", "1 new"]),
            ({}, {"edge_weight": [1.0]}, ["only the new edges", "unweighted()"]),
            ({"edge_weight": [1, 1, 1, 1]}, {}, ["new edges have none"]),
            ({}, {"edge_index": [[0], [5]]}, ["edge 0 ends at node 5", "0..4"]),
            ({}, {"labels": [0, 1]}, ["2 labels", "1 new"]),
        ],
    )
    def test_what_is_refused(self, old: dict[str, Any], options: dict[str, Any], words: list[str]) -> None:
        given = {"features": [[1.0, 2.0]], "edge_index": [[4], [0]]} | options
        complains(lambda: make(**old).with_nodes(**given), *words)
