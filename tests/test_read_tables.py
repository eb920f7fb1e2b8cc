"""Tables with encoded features: to learn from, and to predict with, beside nodes that were there before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
import torch

from credalgnn.graphs import Columns, Graph, GraphWarning, TableGraph, load_graph, read_tables
from small_graphs import complains, dense, same

NODES = {
    "id": [f"n{k}" for k in range(6)],
    "topic": ["cat", "dog", None, "cat", "dog", "cat"],
    "size": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
    "colour": ["red", "red", "blue", "blue", "red", "red"],
    "use": ["train", "Train ", "", "val", "cal", "test"],
}
EDGES = {"source": ["n0", "n1", "n5"], "target": ["n1", "n2", "n0"]}
COLUMNS = Columns(label="topic")
NEW = {"colour": ["blue", "green"], "id": ["m0", "m1"], "size": [3.5, 4.5]}  # in another order, no labels, no split


def read(nodes: Any, edges: Any, columns: Columns = COLUMNS, **options: Any) -> TableGraph:
    tables = [pa.table(table) if isinstance(table, dict) else table for table in (nodes, edges)]
    return read_tables(*tables, columns, **options)


def names(graph: Graph) -> list[str | None]:
    return [None if label < 0 else graph.class_names[label] for label in graph.labels.tolist()]


@pytest.fixture(scope="module")
def fitted() -> TableGraph:
    return read(NODES, EDGES, split="use")


def test_a_graph_to_learn_from(fitted: TableGraph) -> None:
    graph = fitted.graph
    assert (
        graph.feature_names == fitted.encoder.feature_names == ("size", "colour=red", "colour=blue", "colour=(other)")
    )
    size = np.arange(1, 7)
    assert np.allclose(dense(graph)[:, 0], (size - size.mean()) / size.std())
    assert dense(graph)[:, 1].tolist() == [1, 1, 0, 0, 1, 1]
    assert graph.class_names == ("cat", "dog")
    assert names(graph) == NODES["topic"]
    assert graph.node_ids is not None
    assert graph.node_ids.tolist() == NODES["id"]
    assert graph.edge_index.tolist() == [[0, 1, 5], [1, 2, 0]]
    assert fitted.new.tolist() == list(range(6))
    parts = {part: at.tolist() for part, at in fitted.parts.items()}
    assert parts == {"train": [0, 1], "val": [3], "calibration": [4], "test": [5]}


@pytest.mark.parametrize("kind", ["csv", "parquet", "pandas"])
def test_files_and_data_frames_give_the_same(kind: str, fitted: TableGraph, tmp_path: Path) -> None:
    frames = [pd.DataFrame(NODES), pd.DataFrame(EDGES)]
    tables: list[Any] = list(frames)
    if kind != "pandas":
        tables = [tmp_path / f"{name}.{kind}" for name in ("nodes", "edges")]
        for frame, path in zip(frames, tables, strict=True):
            frame.to_csv(path, index=False) if kind == "csv" else frame.to_parquet(path)
    result = read_tables(*tables, COLUMNS, split="use")
    same(result.graph, fitted.graph)
    assert result.encoder == fitted.encoder
    assert {part: at.tolist() for part, at in result.parts.items()} == {
        part: at.tolist() for part, at in fitted.parts.items()
    }


def test_data_frames_for_plain_graphs() -> None:
    nodes = pd.DataFrame({"id": ["a", "b"], "label": ["x", None], "f": [1.5, 2.0], "g": [True, False]})
    edges = pd.DataFrame({"source": ["a"], "target": ["b"]})
    graph = Graph.from_tables(nodes, edges)
    assert dense(graph).tolist() == [[1.5, 1], [2, 0]]
    assert names(graph) == ["x", None]
    same(Graph.from_tables(nodes.set_index("id"), edges), graph)  # an index with a name is a column
    same(Graph.from_tables(nodes[::-1][::-1], edges.set_axis([7], axis=0)), graph)  # one without is none
    odd = pd.DataFrame({"id": ["a", 1], "label": ["x", "y"], "f": [1, 2]})
    complains(lambda: Graph.from_tables(odd, edges), "nodes: the data frame cannot be read", "one type")
    complains(lambda: Graph.from_tables([1], edges), "data frame is wanted, not list")


def test_new_nodes_alone(fitted: TableGraph) -> None:
    options: dict[str, Any] = {"encoder": fitted.encoder, "class_names": fitted.graph.class_names}
    with pytest.warns(GraphWarning, match="'colour=green'"):
        result = read(NEW, {"source": ["m0"], "target": ["m1"]}, **options)
    assert result.encoder is fitted.encoder
    assert result.new.tolist() == [0, 1]
    assert (result.graph.class_names, names(result.graph)) == (("cat", "dog"), [None, None])
    assert np.allclose(dense(result.graph), [[0, 0, 1, 0], [1 / np.std(np.arange(6)), 0, 0, 1]])
    with pytest.warns(GraphWarning, match="'colour=green'"):
        alone = read(NEW, None, **options)
    assert alone.graph.num_edges == 0
    assert torch.equal(dense(alone.graph), dense(result.graph))
    complains(lambda: read(NODES, None), "table of edges", "`edges`")
    complains(lambda: read(NODES, EDGES, context=(NODES, EDGES)), "context", "after fitting")


def test_a_graph_without_edges_is_whole(tmp_path: Path) -> None:
    graph = Graph([[1.0], [2.0]], np.zeros((2, 0), np.int64), ["a", None], edgeless=True)
    graph.save(tmp_path / "graph.npz")
    same(load_graph(tmp_path / "graph.npz"), graph)
    assert graph.subgraph([1]).num_edges == graph.num_pairs == 0
    assert graph.content != graph.replace(features=[[1.0], [3.0]]).content
    assert str(graph.describe())


def test_new_nodes_beside_old_ones(fitted: TableGraph) -> None:
    new = NEW | {"colour": ["blue", "red"], "id": ["m0", "n4"], "topic": ["owl", "dog"]}
    edges = {"source": ["m0", "n0"], "target": ["n4", "m0"]}
    context = (pa.table(NODES), pa.table(EDGES))
    with pytest.warns(GraphWarning, match="context nodes: 1 nodes stand in nodes, too") as caught:
        result = read(new, edges, encoder=fitted.encoder, class_names=fitted.graph.class_names, context=context)
    assert len(caught) == 1
    graph = result.graph
    assert graph.node_ids is not None
    assert graph.node_ids.tolist() == ["n0", "n1", "n2", "n3", "n5", "m0", "n4"]
    assert graph.node_ids[result.new.numpy()].tolist() == new["id"]
    ends = [tuple(pair) for pair in graph.node_ids[graph.edge_index.numpy()].T.tolist()]
    assert ends == [*zip(*EDGES.values(), strict=True), *zip(*edges.values(), strict=True)]
    assert names(graph) == ["cat", "dog", None, "cat", "cat", "owl", "dog"]
    assert graph.class_names == ("cat", "dog", "owl")
    old = dense(fitted.graph)[[0, 1, 2, 3, 5]]
    assert torch.equal(dense(graph)[:5], old)
    assert dense(graph)[6, 1] == 1
    assert dense(graph)[6, 0] == pytest.approx(1 / np.std(np.arange(6)))


def test_sparse_features_of_old_and_new_nodes() -> None:
    rng = np.random.default_rng(0)
    columns = {f"w{k}": np.where(rng.random(40) < 0.05, 1.0, 0.0) for k in range(30)}
    nodes = pa.table({"id": np.arange(40), "label": np.arange(40) % 3, **columns})
    edges = pa.table({"src": [0, 39], "dst": [1, 38]})
    whole = read_tables(nodes, edges, Columns())
    parts = read_tables(
        nodes.slice(25), None, Columns(), encoder=whole.encoder, class_names="012", context=(nodes.slice(0, 25), edges)
    )
    same(parts.graph, whole.graph)
    assert parts.new.tolist() == list(range(25, 40))


def test_edges_weights_and_ids_of_both_tables(fitted: TableGraph) -> None:
    options: dict[str, Any] = {"encoder": fitted.encoder, "class_names": ("cat", "dog")}
    new = NEW | {"colour": ["red", "red"]}
    weighted = pa.table(EDGES | {"weight": [1.0, 2.0, 3.0]})
    edges = {"from": ["m0"], "to": ["n0"]}
    options["context"] = (pa.table(NODES), weighted)
    complains(lambda: read(new, edges, **options), "weights in one of the tables")
    assert read(new, edges | {"weight": [0.5]}, **options).graph.edge_weight.tolist() == [1, 2, 3, 0.5]  # type: ignore[union-attr]
    assert read(new, None, **options).graph.num_edges == 3
    complains(lambda: read(new, {"source": ["m0"], "target": ["?"]}, **options), "edges, row 0", "target '?'", "node")
    complains(lambda: read(new | {"id": [1, 2]}, None, **options), "two types", "int64", "string", "context nodes")
    complains(lambda: read(new | {"id": ["m", "m"]}, None, **options), "nodes, column id", "m occurs twice")


def test_ids_of_text_files_meet_those_of_typed_ones(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text("id,label,x\n1,a,0.5\n2,b,1.5\n3,a,2\n")
    edges = pa.table({"source": [1, 2], "target": [2, 3]})
    graph = read_tables(tmp_path / "nodes.csv", edges, Columns()).graph
    assert graph.node_ids is not None
    assert graph.node_ids.dtype == np.int64
    text = read_tables(tmp_path / "nodes.csv", pa.table({"source": ["1"], "target": ["3"]}), Columns()).graph
    assert text.node_ids is not None
    assert text.node_ids.tolist() == ["1", "2", "3"]
    (tmp_path / "nodes.csv").write_text("id,label,x\n01,a,0.5\n2,b,1.5\n3,a,2\n")
    complains(lambda: read_tables(tmp_path / "nodes.csv", edges, Columns()), "two types", "007")


@pytest.mark.parametrize(
    ("known", "given", "classes", "wanted"),
    [
        (["dog", "cat"], ["cat", "owl", "ant", "dog"], ["dog", "cat", "ant", "owl"], [1, 3, 2, 0]),
        (["1", "2", "10"], ["10", "1.0", "x", ""], ["1", "2", "10", "x"], [2, 0, 3, -1]),
        (["7"], ["007", "7", "-1", "NA"], ["7"], [0, 0, -1, -1]),
        (["007", "7", "x"], ["007", "7", "7", "007"], ["007", "7", "x"], [0, 1, 1, 0]),
        (["false", "true"], ["True", "false", "maybe", "TRUE"], ["false", "true", "maybe"], [1, 0, 2, 1]),
        (["a"], ["10", "9", "", ""], ["a", "9", "10"], [2, 1, -1, -1]),
    ],
)
def test_labels_of_a_model_that_knows_its_classes(
    known: list[str], given: list[str], classes: list[str], wanted: list[int], tmp_path: Path
) -> None:
    rows = [f"n{k},{label},{k}" for k, label in enumerate(given)]
    (tmp_path / "nodes.csv").write_text("\n".join(["id,label,x", *rows]))
    encoder = read({"id": ["a", "b"], "topic": ["x", "y"], "x": [0, 5]}, {"source": ["a"], "target": ["b"]}).encoder
    graph = read_tables(tmp_path / "nodes.csv", None, Columns(), encoder=encoder, class_names=known).graph
    assert (list(graph.class_names), graph.labels.tolist()) == (classes, wanted)


def test_whole_numbers_as_labels_of_a_model() -> None:
    nodes = {"id": [1, 2, 3], "topic": pa.array([2, -1, 5]), "x": [1.0, 2.0, 4.0]}
    result = read(nodes, {"source": [1], "target": [2]})
    assert result.graph.class_names == ("2", "5")
    later = read(nodes | {"topic": [5.0, 3.0, None]}, None, encoder=result.encoder, class_names=("2", "5"))
    assert names(later.graph) == ["5", "3", None]
    assert later.graph.labels.tolist() == [1, 2, -1]


def test_what_is_no_feature(fitted: TableGraph) -> None:
    index = {"Unnamed: 0": list(range(6))}
    result = read(index | NODES, EDGES, split="use")
    assert result.graph.feature_names == fitted.graph.feature_names
    asked = read(index | NODES, EDGES, COLUMNS._replace(features=["Unnamed: 0", "size"]), split="use")
    assert asked.graph.feature_names == ("Unnamed: 0", "size")
    for column in ("id", "topic", "use"):
        chosen = COLUMNS._replace(features=["size", column])
        complains(lambda chosen=chosen: read(NODES, EDGES, chosen, split="use"), f"column {column} cannot be a feature")


def test_columns_that_are_not_there(fitted: TableGraph) -> None:
    first = {"key": NODES["id"], **{name: NODES[name] for name in ("topic", "size")}}
    complains(lambda: read(first, EDGES), "nodes: there is no column 'id'", "key, topic", "`id`")
    complains(lambda: read(NODES, {"a": ["n0"], "b": ["n1"]}), "edges: there is no column 'source'", "`source`")
    complains(lambda: read(NODES, {"source": ["n0"], "to": ["n1"]}), "no column 'target'", "`target`")
    renamed = COLUMNS._replace(source="begin")
    complains(lambda: read(NODES, {"src": ["n0"], "dst": ["n1"]}, renamed), "no column 'begin'")
    complains(lambda: read(NODES, EDGES, Columns()), "no column 'label'", "`label`")
    complains(lambda: read(NODES, EDGES, Columns(label=None)), "labels are needed", "`label`")
    complains(lambda: read(NODES, EDGES, split="part"), "no column 'part'")
    complains(
        lambda: read(NODES | {"use": ["train", "hold out", *[""] * 4]}, EDGES, split="use"), "row 1", "'hold out'"
    )
    complains(lambda: read(NODES | {"use": [1, 2, 3, 4, 5, 6]}, EDGES, split="use"), "column use: row 0 is 1")
    complains(
        lambda: read({"id": ["x"], "size": [1.0]}, None, encoder=fitted.encoder, class_names=("cat", "dog")),
        "no column 'colour'",
        "fitted",
    )


@pytest.mark.parametrize("pair", [("src", "dst"), ("from", "to")])
def test_other_names_of_ends(pair: tuple[str, str], fitted: TableGraph) -> None:
    same(read(NODES, dict(zip(pair, EDGES.values(), strict=True)), split="use").graph, fitted.graph)


def test_fields_with_line_breaks(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text('id,label,kind,x\na,p,"two\nlines",1\nb,q,"two\nlines",2\nc,q,one,4\n')
    (tmp_path / "edges.csv").write_text("source,target\na,b\n")
    graph = read_tables(tmp_path / "nodes.csv", tmp_path / "edges.csv", Columns()).graph
    assert graph.feature_names == ("kind=two\nlines", "kind=(other)", "x")


def test_edges_of_both_tables_are_there_once(fitted: TableGraph) -> None:
    edges = {"source": ["n0", "m0", "n5"], "target": ["n1", "n2", "n0"]}
    options: dict[str, Any] = {"encoder": fitted.encoder, "class_names": fitted.graph.class_names}
    context = (pa.table(NODES), pa.table(EDGES))
    with pytest.warns(GraphWarning, match="context edges: 2 edges stand in the new table") as caught:
        graph = read({"colour": ["blue"], "id": ["m0"], "size": [3.5]}, edges, **options, context=context).graph
    assert len([warning for warning in caught if "edges" in str(warning.message)]) == 1
    assert graph.node_ids is not None
    pairs = [tuple(graph.node_ids[edge]) for edge in graph.edge_index.T.numpy()]
    assert pairs == [("n1", "n2"), ("n0", "n1"), ("m0", "n2"), ("n5", "n0")]


def test_edges_without_a_direction() -> None:
    nodes = pa.table({"id": [1, 2, 3], "topic": ["a", "b", "a"], "size": [1.0, 2.0, 4.0]})
    edges = pa.table({"source": [1, 2, 2, 3], "target": [2, 1, 3, 3], "weight": [0.5, 9.0, 2.0, 1.0]})
    graph = read_tables(nodes, edges, COLUMNS, undirected=True).graph
    assert graph.edge_weight is not None
    weighted = dict(zip(map(tuple, graph.edge_index.T.tolist()), graph.edge_weight.tolist(), strict=True))
    assert weighted == {(0, 1): 0.5, (1, 0): 9.0, (1, 2): 2.0, (2, 1): 2.0, (2, 2): 1.0}
    with pytest.warns(GraphWarning, match="no edge has its counterpart.*undirected=True"):
        read_tables(nodes, pa.concat_tables([edges.slice(1)] * 50), COLUMNS)
    read_tables(nodes, pa.concat_tables([edges] * 50), COLUMNS)  # some do: nothing is said
    read_tables(nodes, edges.slice(1), COLUMNS)  # so few may be as they are by chance
