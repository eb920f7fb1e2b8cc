"""One graph: what it accepts, what it refuses and how it says so, and that disk and other formats lose nothing."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from credalgnn.graphs import Graph, GraphError, GraphWarning, load_graph
from pyg import Data
from small_graphs import EDGES, FEATURES, LABELS, complains, dense, make, same


def test_a_graph_is_what_was_given() -> None:
    graph = make(node_ids=["a", "b", "c", "d"], class_names=["cat", "dog", "owl"])
    assert (graph.num_nodes, graph.num_edges, graph.num_features, graph.num_classes) == (4, 4, 2, 3)
    assert graph.features.dtype == torch.float32
    assert graph.edge_index.dtype == graph.labels.dtype == torch.int64
    assert graph.features.tolist() == FEATURES.tolist()
    assert graph.edge_index.tolist() == EDGES.tolist()  # duplicate and self-loop kept, in their order
    assert graph.labels.tolist() == LABELS.tolist()
    assert graph.node_ids is not None
    assert graph.node_ids.tolist() == ["a", "b", "c", "d"]
    assert graph.class_names == ("cat", "dog", "owl")
    assert make().class_names == ("0", "1")
    assert make(labels=None).labels.tolist() == [-1] * 4


def test_features_are_kept_in_the_smaller_form() -> None:
    thin = sp.random(50, 200, density=0.01, random_state=0, dtype=np.float32, format="csr")
    edges = np.array([[0], [1]])
    for given in (thin, thin.tocoo(), thin.toarray(), torch.from_numpy(thin.toarray()).to_sparse_coo()):
        graph = Graph(given, edges)
        assert graph.features.layout == torch.sparse_csr
        assert np.array_equal(dense(graph).numpy(), thin.toarray())
    full = np.random.default_rng(0).random((50, 20)).astype(np.float32)
    for given in (full, sp.csr_matrix(full), torch.from_numpy(full).to_sparse_coo()):
        graph = Graph(given, edges)
        assert graph.features.layout == torch.strided
        assert np.array_equal(graph.features.numpy(), full)


def test_a_graph_cannot_be_changed() -> None:
    features, edges, labels = FEATURES.copy(), torch.from_numpy(EDGES.copy()), LABELS.copy()
    ids = np.array([5, 6, 7, 8])
    graph = Graph(features, edges, labels, node_ids=ids)
    before = graph.fingerprint
    with pytest.raises(FrozenInstanceError):
        graph.labels = graph.labels  # type: ignore[misc]
    features[:], labels[:], ids[:] = 9, 1, 0
    edges.zero_()
    same(graph, make(node_ids=[5, 6, 7, 8]))
    assert graph.fingerprint == before


def test_the_fingerprint_is_of_the_content_however_given() -> None:
    base = make().fingerprint
    assert isinstance(base, str)
    int(base, 16)
    for features in (
        FEATURES.astype(np.float64),
        torch.from_numpy(FEATURES),
        torch.from_numpy(FEATURES).to_sparse_coo(),
        sp.csr_matrix(FEATURES),
        sp.coo_matrix(FEATURES),
        np.asfortranarray(FEATURES),
    ):
        assert make(features=features).fingerprint == base
    assert make(edge_index=torch.from_numpy(EDGES), labels=torch.from_numpy(LABELS)).fingerprint == base
    assert make(edge_index=EDGES.astype(np.int32), labels=LABELS.astype(np.int8)).fingerprint == base
    assert make(class_names=["0", "1"]).fingerprint == base


def test_sparse_fingerprints_ignore_order_and_stored_zeros() -> None:
    thin = sp.random(30, 100, density=0.02, random_state=1, dtype=np.float32, format="coo")
    order = np.random.default_rng(1).permutation(thin.nnz)
    shuffled = sp.coo_matrix((thin.data[order], (thin.row[order], thin.col[order])), thin.shape)
    row, col = np.argwhere(thin.toarray() == 0)[0]
    padded = sp.coo_matrix(
        (np.append(thin.data, np.float32(0)), (np.append(thin.row, row), np.append(thin.col, col))), thin.shape
    )
    edges = np.array([[0], [1]])
    prints = {Graph(given, edges).fingerprint for given in (thin, shuffled, padded, thin.toarray())}
    assert len(prints) == 1


def test_the_form_is_chosen_by_content_not_by_stored_zeros() -> None:
    """Near the size where sparse and dense cost the same, zeros that are stored must not tip the choice."""
    rng = np.random.default_rng(2)
    values = np.where(rng.random((40, 12)) < 0.2, rng.random((40, 12)), 0).astype(np.float32)
    rows, columns = np.indices(values.shape).reshape(2, -1)
    stored = sp.coo_matrix((values.reshape(-1), (rows, columns)), values.shape)
    graphs = [Graph(given, [[0], [1]]) for given in (values, stored, sp.csr_matrix(values))]
    assert {graph.features.layout for graph in graphs} == {torch.sparse_csr}
    assert len({graph.fingerprint for graph in graphs}) == 1


def test_ids_are_hashed_by_content_not_by_width() -> None:
    wide = make(node_ids=np.array(["a", "b", "c", "d"], dtype="U30"))
    assert wide.fingerprint == make(node_ids=["a", "b", "c", "d"]).fingerprint


def test_the_fingerprint_changes_with_any_content() -> None:
    changed = FEATURES.copy()
    changed[3, 1] = 1e-6
    graphs = [
        make(),
        make(features=changed),
        make(features=FEATURES[:, ::-1].copy()),
        make(features=np.hstack([FEATURES, np.zeros((4, 1), np.float32)])),
        make(edge_index=EDGES[::-1].copy()),
        make(edge_index=EDGES[:, ::-1].copy()),
        make(edge_index=EDGES[:, :3]),
        make(labels=[0, 1, 1, -1]),
        make(labels=None),
        make(node_ids=["a", "b", "c", "d"]),
        make(node_ids=["a", "b", "d", "c"]),
        make(node_ids=[1, 2, 3, 4]),
        make(node_ids=["1", "2", "3", "4"]),
        make(class_names=["a", "b"]),
        make(class_names=["ab", ""]),
    ]
    assert len({graph.fingerprint for graph in graphs}) == len(graphs)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"features": np.where(FEATURES == -1, np.nan, FEATURES)}, ["row 2", "column 1", "nan"]),
        ({"features": np.where(FEATURES == 0.25, np.inf, FEATURES)}, ["row 3", "column 0", "inf"]),
        ({"features": np.where(FEATURES == 0.25, -np.inf, FEATURES)}, ["row 3", "column 0", "inf"]),
        ({"features": sp.csr_matrix(np.where(FEATURES == -1, np.nan, FEATURES))}, ["row 2", "column 1"]),
        ({"features": np.where(FEATURES == -1, 1e39, FEATURES.astype(np.float64))}, ["row 2", "column 1"]),
        ({"features": np.array([["a", "b"]] * 4)}, ["feature"]),
        ({"features": FEATURES[0]}, ["features", "shape"]),
        ({"features": FEATURES[:, :0]}, ["feature"]),
        ({"features": FEATURES[:0], "labels": None}, ["node"]),
        ({"features": FEATURES.astype(complex)}, ["feature"]),
        ({"edge_index": np.array([[0, 1], [1, 7]])}, ["edge 1", "7"]),
        ({"edge_index": np.array([[0, 1, -3], [1, 2, 0]])}, ["edge 2", "-3"]),
        ({"edge_index": np.array([[0, 1, 4], [1, 2, 0]])}, ["edge 2", "4"]),
        ({"edge_index": np.zeros((2, 0), np.int64)}, ["edge"]),
        ({"edge_index": np.array([[0, 1], [1, 2], [2, 3]])}, ["edge_index", "[3, 2]"]),
        ({"edge_index": np.array([0, 1])}, ["edge_index"]),
        ({"edge_index": np.array([[0.0], [1.5]])}, ["edge_index", "integer"]),
        ({"edge_index": np.array([[False], [True]])}, ["edge_index", "bool"]),
        ({"labels": [0, 1, 0]}, ["labels", "[3]", "4 nodes"]),
        ({"labels": [["cat", "dog"], ["cat", "dog"]]}, ["labels", "<U3"]),
        ({"labels": [0.5, 1.0, 0.0, 1.0]}, ["labels", "integer"]),
        ({"labels": np.array([[0, 1], [1, 0], [0, 1], [1, 0]])}, ["labels"]),
        ({"labels": np.array([True, False, True, False])}, ["labels", "bool"]),
        ({"node_ids": ["a", "b", "a", "c"]}, ["id a ", "rows 0 and 2"]),
        ({"node_ids": [4, 9, 7, 9]}, ["id 9 ", "rows 1 and 3"]),
        ({"node_ids": ["a", "b"]}, ["node ids", "2", "4"]),
        ({"class_names": ["only"]}, ["class names", "1"]),
        ({"class_names": ["x", "x"]}, ["class names", "differ"]),
    ],
)
def test_bad_content_is_refused_with_place_and_remedy(changes: dict[str, Any], words: list[str]) -> None:
    complains(lambda: make(**changes), *words)


def test_graph_errors_are_value_errors() -> None:
    assert issubclass(GraphError, ValueError)


# parts of a graph


def zoo(sparse: bool, **changes: Any) -> Graph:
    """Five nodes whose only feature is their number from 1 on, in a wide matrix if sparse; loops, duplicates, ids."""
    features = np.arange(1.0, 6.0, dtype=np.float32)[:, None]
    if sparse:
        features = np.pad(features, ((0, 0), (2, 7)))
    edges = [[0, 3, 1, 3, 4, 0, 2, 0, 4], [3, 0, 3, 3, 0, 3, 4, 1, 2]]
    extra = {"labels": [2, 0, -1, 1, 2], "node_ids": list("abcde"), "class_names": ["cat", "dog", "owl", "yak"]}
    graph = Graph(**{"features": features, "edge_index": edges, **extra, **changes})
    assert (graph.features.layout == torch.sparse_csr) == sparse
    return graph


@pytest.mark.parametrize("sparse", [False, True])
def test_a_subgraph_by_hand(sparse: bool) -> None:
    """Nodes d, a and e in this order: d is 0, a is 1, e is 2. Edges keep their order, the duplicate and the loop."""
    part = zoo(sparse).subgraph(torch.tensor([3, 0, 4]))
    assert dense(part)[:, 2 if sparse else 0].tolist() == [4.0, 1.0, 5.0]
    assert dense(part).sum() == 10.0
    assert part.edge_index.tolist() == [[1, 0, 0, 2, 1], [0, 1, 0, 1, 0]]  # a-d, d-a, d-d, e-a, a-d
    assert part.labels.tolist() == [1, 2, 2]
    assert part.node_ids is not None
    assert part.node_ids.tolist() == ["d", "a", "e"]
    assert part.class_names == ("cat", "dog", "owl", "yak")
    assert zoo(sparse, node_ids=None).subgraph([3, 0, 4]).node_ids is None


@pytest.mark.parametrize("sparse", [False, True])
def test_a_subgraph_is_a_graph_like_any_other(sparse: bool, tmp_path: Path) -> None:
    """By numbers, by a mask, all of it, in another order and back, from disk; also with fewer nodes than classes."""
    graph = zoo(sparse)
    same(graph.subgraph(range(5)), graph)
    same(graph.subgraph([True, False, True, False, True]), graph.subgraph([0, 2, 4]))
    turned = graph.subgraph([4, 2, 0, 1, 3])
    assert turned.fingerprint != graph.fingerprint
    same(turned.subgraph([2, 3, 1, 4, 0]), graph)
    few = graph.subgraph([0, 3])
    assert few.labels.tolist() == [2, 1]
    few.save(tmp_path / "few.npz")
    same(load_graph(tmp_path / "few.npz"), few)
    same(few.replace(labels=few.labels), few)


def test_rows_of_sparse_features() -> None:
    """Some empty, in any order; the part is kept in the form that is smaller for it, whatever the whole was."""
    rng = np.random.default_rng(0)
    thin = rng.normal(size=(40, 30)) * (rng.random((40, 30)) < 0.1)
    thin[7] = 0.0
    thin[[3, 11]] = rng.normal(size=(2, 30))
    graph = Graph(sp.csr_matrix(thin.astype(np.float32)), rng.integers(40, size=(2, 400)))
    for nodes in ([7, 3, 20, 39, 0], rng.permutation(40), [3, 11, 7]):
        part = graph.subgraph(nodes)
        assert np.array_equal(dense(part).numpy(), thin.astype(np.float32)[nodes])
        same(part, Graph(thin[nodes], part.edge_index))
    assert graph.features.layout == torch.sparse_csr
    assert graph.subgraph([3, 11]).features.layout == torch.strided


def test_a_subgraph_has_tensors_of_its_own() -> None:
    for graph in (zoo(True), zoo(False)):
        before = graph.fingerprint
        part = graph.subgraph([3, 0, 4])
        assert part.derived is not graph.derived
        tensors = [part.edge_index, part.labels]
        tensors += [part.features.values()] if part.features.layout == torch.sparse_csr else [part.features]
        for tensor in tensors:
            assert tensor.untyped_storage().nbytes() == tensor.nbytes  # nor a window on the whole
            tensor.zero_()
        assert Graph(graph.features, graph.edge_index, graph.labels, graph.node_ids, graph.class_names).fingerprint == (
            before
        )


def test_bad_subgraphs_are_refused() -> None:
    graph = zoo(False)
    complains(lambda: graph.subgraph([3, 0, 3]), "node 3", "twice")
    complains(lambda: graph.subgraph([0, 5]), "nodes", "0..4")
    complains(lambda: graph.subgraph([-1, 0]), "nodes", "0..4")
    complains(lambda: graph.subgraph([]), "no nodes")
    complains(lambda: graph.subgraph([1, 2]), "no edges")
    complains(lambda: graph.subgraph([True, False]), "mask")
    complains(lambda: graph.subgraph([0.5, 1.0]), "node numbers")


def test_more_classes_than_nodes_need_names() -> None:
    complains(lambda: Graph(FEATURES, EDGES, [0, 1, 7, 1]), "row 2", "7")
    assert Graph(FEATURES, EDGES, [0, 1, 7, 1], class_names=list("abcdefgh")).num_classes == 8
    complains(lambda: Graph(FEATURES, EDGES, [0, 1, 7, 1], class_names=list("abcdefg")), "7")


def test_pyg_and_back() -> None:
    data = Data(x=torch.tensor(FEATURES), edge_index=torch.tensor(EDGES), y=torch.tensor(LABELS))
    graph = Graph.from_pyg(data)
    same(graph, make())
    back = graph.to_pyg()
    assert isinstance(back, Data)
    assert torch.equal(back.x, data.x)
    assert torch.equal(back.edge_index, data.edge_index)
    assert torch.equal(back.y, data.y)
    same(Graph.from_pyg(back), graph)
    assert data.y is not None
    data.y.zero_()
    same(graph, make())  # the graph does not share memory with what it came from
    column = Data(x=data.x, edge_index=data.edge_index, y=torch.from_numpy(LABELS)[:, None])
    same(Graph.from_pyg(column), make())  # OGB gives labels as one column
    same(Graph.from_pyg(Data(x=data.x, edge_index=data.edge_index)), make(labels=None))


def test_changing_the_pyg_data_leaves_the_graph_alone() -> None:
    graph = make()
    data = graph.to_pyg()
    for tensor in (data.x, data.edge_index, data.y):
        assert tensor is not None
        tensor.zero_()
    same(graph, make())


def test_sparse_features_survive_pyg() -> None:
    graph = Graph(sp.random(20, 100, density=0.02, random_state=0, format="csr"), EDGES)
    same(Graph.from_pyg(graph.to_pyg()), graph)


def test_pyg_data_without_parts_is_refused() -> None:
    complains(lambda: Graph.from_pyg(Data(edge_index=torch.from_numpy(EDGES), num_nodes=4)), "x")
    complains(lambda: Graph.from_pyg(Data(x=torch.from_numpy(FEATURES))), "edge_index")


# names of features, weights of edges

WEIGHTS = [0.5, 2.0, 0.0, 1.0]


@pytest.mark.parametrize("sparse", [False, True])
def test_names_and_weights_go_along(sparse: bool, tmp_path: Path) -> None:
    features = sp.csr_matrix(np.eye(4, 9)) if sparse else FEATURES
    names = [f"x{k}" for k in range(9)] if sparse else ["age", "size"]
    graph = make(features=features, feature_names=names, edge_weight=WEIGHTS)
    assert graph.feature_names == tuple(names)
    assert graph.edge_weight is not None
    assert (graph.edge_weight.dtype, graph.edge_weight.tolist()) == (torch.float32, WEIGHTS)
    graph.save(tmp_path / "graph.npz")
    same(load_graph(tmp_path / "graph.npz"), graph)
    part = graph.subgraph([2, 0])  # its edges: 2 -> 2 and 0 -> 2
    assert part.feature_names == graph.feature_names
    assert part.edge_weight is not None
    assert (part.edge_index.tolist(), part.edge_weight.tolist()) == ([[0, 1], [0, 0]], [0.0, 1.0])
    relabelled = graph.replace(labels=[0, 0, 1, 1])
    assert relabelled.edge_weight is graph.edge_weight
    assert relabelled.derived is graph.derived
    assert "weighted" in repr(graph)
    assert "weights 0 to 2" in str(graph.describe())
    chosen = graph.select_features([names[1], names[0]])
    assert chosen.feature_names == (names[1], names[0])
    assert torch.equal(dense(chosen), dense(graph)[:, [1, 0]])


def test_names_and_weights_that_no_longer_fit_go() -> None:
    graph = make(feature_names=["age", "size"], edge_weight=WEIGHTS)
    assert graph.replace(features=FEATURES + 1).feature_names == ("age", "size")
    assert graph.replace(features=FEATURES[:, :1]).feature_names is None
    assert graph.replace(features=FEATURES[:, :1], feature_names=["age"]).feature_names == ("age",)
    assert graph.replace(edge_index=EDGES[:, ::-1]).edge_weight is None
    heavier = graph.replace(edge_weight=[1.0, 1.0, 1.0, 9.0])
    assert heavier.derived is not graph.derived
    assert heavier.content != graph.content
    bare = graph.unweighted()
    assert (bare.edge_weight, bare.feature_names) == (None, ("age", "size"))
    assert bare.content == make().content


def test_names_and_weights_are_in_the_fingerprint_and_their_absence_is_not() -> None:
    assert make().fingerprint == "265dbf57b97900d346ae45fa21155fa1"  # as it was before there were any
    named, weighted = make(feature_names=["age", "size"]), make(edge_weight=WEIGHTS)
    others = [make(), named, weighted, make(feature_names=["size", "age"]), make(edge_weight=[1.0] * 4)]
    assert len({graph.fingerprint for graph in others}) == 5
    assert named.content == make().content  # of the numbers alone


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"feature_names": ["age"]}, ["1 feature names for 2 features"]),
        ({"feature_names": ["age", "age"]}, ["'age' occurs twice"]),
        ({"edge_weight": [1.0, 2.0]}, ["shape [2]", "4 edges"]),
        ({"edge_weight": np.ones((4, 2))}, ["shape [4, 2]", "4 edges"]),
        ({"edge_weight": [1.0, float("nan"), 1.0, 1.0]}, ["edge 1", "nan", "finite"]),
        ({"edge_weight": [1.0, 1.0, float("inf"), 1.0]}, ["edge 2", "inf"]),
        ({"edge_weight": [1.0, 1.0, 1.0, -0.5]}, ["edge 3", "-0.5", "not negative"]),
        ({"edge_weight": ["a", "b", "c", "d"]}, ["edge_weight must be numbers"]),
    ],
)
def test_bad_names_and_weights_are_refused(changes: dict[str, Any], words: list[str]) -> None:
    complains(lambda: make(**changes), *words)


def test_features_in_another_order_are_noticed() -> None:
    graph = make(feature_names=["age", "size"])
    for names in (None, ("age", "size"), ["age", "size"]):
        graph.check_features(names)
    make().check_features(["size", "age"])  # nothing can be said
    complains(lambda: graph.check_features(["size", "age"]), "feature 0, 'age'", "'size' was", "select_features")
    complains(lambda: graph.check_features(["age", "height"]), "no feature 'height'")
    complains(lambda: graph.check_features(["age"]), "feature 1, 'size'", "not expected", "select_features")
    graph.select_features(["size", "age"]).check_features(["size", "age"])
    complains(lambda: graph.select_features(["height"]), "no feature 'height'", "age, size")
    complains(lambda: make().select_features(["age"]), "no feature names")


def test_pyg_weights_are_kept_and_other_attributes_announced() -> None:
    data = Data(x=torch.from_numpy(FEATURES), edge_index=torch.from_numpy(EDGES), edge_weight=torch.tensor(WEIGHTS))
    graph = Graph.from_pyg(data)
    same(graph, make(labels=None, edge_weight=WEIGHTS))
    assert torch.equal(graph.to_pyg().edge_weight, data.edge_weight)
    data.edge_weight = data.edge_weight[:, None]
    same(Graph.from_pyg(data), graph)
    data.edge_attr, data.edge_time = torch.ones(4, 3), torch.ones(4)
    with pytest.warns(GraphWarning, match=r"edge_attr, edge_time of the edges cannot be used.*data\.edge_weight"):
        same(Graph.from_pyg(data), graph)
