"""Graphs from tables: what people export is read, or refused with the remedy."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from credalgnn.graphs import Graph, GraphWarning
from small_graphs import complains, dense, same

NODES = {
    "id": ["n3", "n1", "n2", "n9"],
    "label": ["dog", None, "cat", "dog"],
    "age": [1, 2, 3, 4],
    "weight": [0.5, 0.0, -1.0, 2.0],
    "tame": [True, False, False, True],
}
LINKS = {"source": ["n1", "n9", "n3"], "target": ["n2", "n3", "n3"]}


def table(kind: str, folder: Path, name: str, columns: dict[str, Any]) -> Any:
    content, path = pa.table(columns), folder / f"{name}.{kind}"
    if kind == "csv":
        pyarrow.csv.write_csv(content, path)
    elif kind == "parquet":
        pyarrow.parquet.write_table(content, path)
    return content if kind == "table" else path


def tables(kind: str, folder: Path, nodes: dict[str, Any], edges: dict[str, Any], **options: Any) -> Graph:
    return Graph.from_tables(table(kind, folder, "nodes", nodes), table(kind, folder, "edges", edges), **options)


@pytest.mark.parametrize("kind", ["csv", "parquet", "table"])
class TestTables:
    def test_string_ids(self, kind: str, tmp_path: Path) -> None:
        graph = tables(kind, tmp_path, NODES, LINKS)
        assert graph.node_ids is not None
        assert graph.node_ids.tolist() == NODES["id"]
        assert dense(graph).tolist() == [[1, 0.5, 1], [2, 0, 0], [3, -1, 0], [4, 2, 1]]
        assert graph.edge_index.tolist() == [[1, 3, 0], [2, 0, 0]]
        assert graph.class_names == ("cat", "dog")
        assert graph.labels.tolist() == [1, -1, 0, 1]

    def test_integer_ids_and_labels(self, kind: str, tmp_path: Path) -> None:
        nodes = {"id": [30, 10, 20], "label": [10, 9, 10], "x": [1.0, 2.0, 3.0]}
        graph = tables(kind, tmp_path, nodes, {"source": [10, 20], "target": [20, 30]})
        assert graph.node_ids is not None
        assert graph.node_ids.tolist() == [30, 10, 20]
        assert graph.node_ids.dtype == np.int64
        assert graph.edge_index.tolist() == [[1, 2], [2, 0]]
        assert [graph.class_names[label] for label in graph.labels.tolist()] == ["10", "9", "10"]

    def test_shuffled_rows_give_the_same_graph_by_id(self, kind: str, tmp_path: Path) -> None:
        order = [2, 0, 3, 1]
        one = tables(kind, tmp_path, NODES, LINKS)
        two = tables(kind, tmp_path, {key: [column[i] for i in order] for key, column in NODES.items()}, LINKS)
        assert one.node_ids is not None
        assert two.node_ids is not None
        assert one.node_ids[one.edge_index.numpy()].tolist() == two.node_ids[two.edge_index.numpy()].tolist()
        assert dense(two).tolist() == dense(one)[order].tolist()
        assert two.labels.tolist() == one.labels[order].tolist()

    def test_named_columns(self, kind: str, tmp_path: Path) -> None:
        nodes = {"key": [1, 2], "kind": ["a", "b"], "x": [1.0, 2.0], "y": [3.0, 4.0], "note": ["p", "q"]}
        edges = {"from": [1], "to": [2]}
        names = {"id": "key", "label": "kind", "source": "from", "target": "to"}
        assert tables(kind, tmp_path, nodes, edges, features=["y"], **names).features.tolist() == [[3.0], [4.0]]
        assert tables(kind, tmp_path, nodes, edges, features=["y", "x"], **names).features.tolist() == [[3, 1], [4, 2]]
        graph = tables(kind, tmp_path, nodes, edges, features=["x"], **names | {"label": None})
        assert graph.labels.tolist() == [-1, -1]
        assert graph.edge_index.tolist() == [[0], [1]]

    def test_text_columns_are_never_dropped_silently(self, kind: str, tmp_path: Path) -> None:
        noted = NODES | {"note": list("pqrs")}
        complains(lambda: tables(kind, tmp_path, noted, LINKS), "column note", "`features`")
        named = [name for name in NODES if name not in ("id", "label")]
        same(tables(kind, tmp_path, noted, LINKS, features=named), tables(kind, tmp_path, NODES, LINKS))
        complains(lambda: tables(kind, tmp_path, NODES, LINKS, features=["label"]), "cannot be a feature")

    def test_negative_labels_are_unknown(self, kind: str, tmp_path: Path) -> None:
        graph = tables(kind, tmp_path, NODES | {"label": [0, 7, -1, -2]}, LINKS)
        assert graph.labels.tolist() == [0, 1, -1, -1]
        assert graph.class_names == ("0", "7")

    def test_ids_that_look_like_numbers_stay_apart(self, kind: str, tmp_path: Path) -> None:
        graph = tables(kind, tmp_path, NODES | {"id": ["007", "7", "x", "y"]}, {"source": ["007"], "target": ["7"]})
        assert graph.edge_index.tolist() == [[0], [1]]

    @pytest.mark.parametrize(
        ("nodes", "edges", "options", "words"),
        [
            ({"id": ["n1", "n2", "n1", "n3"]}, {"source": ["n1", "n2", "n3"]}, {}, ["id n1 ", "rows 0 and 2"]),
            ({}, {"target": ["n2", "n8", "n3"]}, {}, ["row 1", "target", "n8"]),
            ({}, {"source": ["n1", "n3", "zz"]}, {}, ["row 2", "source", "zz"]),
            ({}, {}, {"id": "key"}, ["key", "age"]),
            ({}, {}, {"label": "kind"}, ["kind"]),
            ({}, {}, {"source": "from"}, ["from", "target"]),
            ({}, {}, {"target": "to"}, ["to"]),
            ({}, {}, {"features": ["age", "height"]}, ["height"]),
            ({}, {}, {"features": ["label"]}, ["label"]),
            ({}, {}, {"features": []}, ["feature"]),
            ({"note": list("abcd")}, {}, {"features": ["age", "note"]}, ["note"]),
            ({"age": [1, None, 3, 4]}, {}, {}, ["row 1", "age"]),
            ({"weight": [0.0, 1.0, float("nan"), 4.0]}, {}, {}, ["row 2", "weight"]),
            ({"weight": [0.0, 1.0, float("inf"), 4.0]}, {}, {}, ["row 2", "weight"]),
            ({"label": [0.5, 1.5, 2.5, 3.5]}, {}, {}, ["label"]),
            ({"id": ["n1", None, "n2", "n3"]}, {}, {}, ["row 1", "id"]),
            ({}, {"source": ["n1", None, "n3"]}, {}, ["row 1", "source"]),
        ],
    )
    def test_bad_tables(
        self, kind: str, tmp_path: Path, nodes: Any, edges: Any, options: dict[str, Any], words: list[str]
    ) -> None:
        complains(lambda: tables(kind, tmp_path, NODES | nodes, LINKS | edges, **options), *words)

    def test_tables_without_content(self, kind: str, tmp_path: Path) -> None:
        bare = {"id": NODES["id"], "label": NODES["label"]}
        complains(lambda: tables(kind, tmp_path, bare, LINKS), "feature")
        none = {"source": pa.array([], pa.string()), "target": pa.array([], pa.string())}
        complains(lambda: tables(kind, tmp_path, NODES, none), "edge")


def test_files_that_are_no_tables(tmp_path: Path) -> None:
    edges = table("csv", tmp_path, "edges", LINKS)
    complains(lambda: Graph.from_tables(tmp_path / "none.csv", edges), "none.csv")
    (tmp_path / "nodes.xlsx").write_text("x")
    complains(lambda: Graph.from_tables(tmp_path / "nodes.xlsx", edges), "nodes.xlsx", ".csv", ".parquet")
    (tmp_path / "nodes.parquet").write_text("id,label\n")
    complains(lambda: Graph.from_tables(tmp_path / "nodes.parquet", edges), "nodes.parquet")
    (tmp_path / "nodes.csv").write_text("id,label,x\na,b\n")
    complains(lambda: Graph.from_tables(tmp_path / "nodes.csv", edges), "nodes.csv")
    (tmp_path / "nodes.csv").write_text("")
    complains(lambda: Graph.from_tables(tmp_path / "nodes.csv", edges), "nodes.csv")


# files as other programs write them

NODE_LINES = ["id,label,x,y", "a,cat,1,0.5", "b,dog,2,-1", "c,,3,0"]
EDGE_LINES = ["source,target", "a,b", "b,c"]


def lines(path: Path, content: list[str], delimiter: str = ",", encoding: str = "utf-8") -> Path:
    data = ("\n".join(content).replace(",", delimiter) + "\n").encode(encoding)
    path.write_bytes(gzip.compress(data) if path.name.lower().endswith(".gz") else data)
    return path


@pytest.mark.parametrize("delimiter", [",", ";", "|", "\t"])
@pytest.mark.parametrize("ending", ["csv", "tsv", "CSV", "csv.gz", "TSV.GZ"])
def test_text_files_of_all_kinds(ending: str, delimiter: str, tmp_path: Path) -> None:
    nodes = lines(tmp_path / f"nodes.{ending}", NODE_LINES, delimiter, "utf-8-sig")
    edges = lines(tmp_path / f"edges.{ending}", EDGE_LINES, delimiter)
    graph = Graph.from_tables(nodes, edges)
    assert graph.feature_names == ("x", "y")
    assert dense(graph).tolist() == [[1, 0.5], [2, -1], [3, 0]]
    assert (graph.class_names, graph.labels.tolist()) == (("cat", "dog"), [0, 1, -1])
    assert graph.edge_index.tolist() == [[0, 1], [1, 2]]
    same(graph, Graph.from_tables(nodes, edges, delimiter=delimiter))


def test_a_delimiter_inside_quotes_is_none(tmp_path: Path) -> None:
    nodes = lines(tmp_path / "nodes.csv", ['id;label;"x, y, z"', "a;cat;1", "b;dog;2", "c;;3"])
    graph = Graph.from_tables(nodes, lines(tmp_path / "edges.csv", EDGE_LINES))
    assert graph.feature_names == ("x, y, z",)


def test_upper_case_parquet(tmp_path: Path) -> None:
    for name, columns in (("NODES", NODES), ("EDGES", LINKS)):
        pyarrow.parquet.write_table(pa.table(columns), tmp_path / f"{name}.PARQUET")
    graph = Graph.from_tables(tmp_path / "NODES.PARQUET", tmp_path / "EDGES.PARQUET")
    same(graph, tables("table", tmp_path, NODES, LINKS))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", ["nodes.csv", "not a text file"]),
        ("id,label,x\na,Käse,1\n".encode("latin-1"), ["nodes.csv", "not UTF-8", "save it as UTF-8"]),
        ("id,läbel,x\na,b,1\n".encode("latin-1"), ["nodes.csv", "not UTF-8"]),
        ("id,label,x\nä,b,1\n".encode("latin-1"), ["nodes.csv", "not UTF-8"]),
        ("id,label,x\na,b,1\n".encode("utf-16"), ["nodes.csv", "not UTF-8", "save it as UTF-8"]),
        (b"id label x\na b 1\n", ["no column 'id'", "id label x", "`delimiter`"]),
        (b"", ["nodes.csv", "cannot be read"]),
    ],
)
def test_files_that_are_no_such_table(content: bytes, words: list[str], tmp_path: Path) -> None:
    path = tmp_path / "nodes.csv"
    path.write_bytes(content)
    complains(lambda: Graph.from_tables(path, lines(tmp_path / "edges.csv", EDGE_LINES)), *words)


def test_a_broken_archive_and_a_bad_delimiter(tmp_path: Path) -> None:
    nodes, edges = lines(tmp_path / "nodes.csv.gz", NODE_LINES * 50), lines(tmp_path / "edges.csv", EDGE_LINES)
    nodes.write_bytes(nodes.read_bytes()[:-20])
    complains(lambda: Graph.from_tables(nodes, edges), "nodes.csv.gz", "cannot be read")
    complains(lambda: Graph.from_tables(edges, edges, delimiter=", "), "single character")


@pytest.mark.parametrize(
    ("labels", "names", "numbers"),
    [
        (["cat", " cat", "cat ", "dog"], ("cat", "dog"), [0, 0, 0, 1]),
        (["nan", "NA", "None", "cat"], ("cat",), [-1, -1, -1, 0]),
        (["null", "N/A", "", "cat"], ("cat",), [-1, -1, -1, 0]),
        (["1.0", " ", "2.0", "10.0"], ("1", "2", "10"), [0, -1, 1, 2]),
        (["1.0", "", "2.0", "10.0"], ("1", "2", "10"), [0, -1, 1, 2]),
        (["10", "9", " ", "-1"], ("9", "10"), [1, 0, -1, -1]),
        (["true", "false", "true", ""], ("false", "true"), [1, 0, 1, -1]),
        (["True", "False", " ", "NA"], ("false", "true"), [1, 0, -1, -1]),
        (["007", "7", "x", "7"], ("007", "7", "x"), [0, 1, 2, 1]),
        (["", "", "", ""], (), [-1, -1, -1, -1]),
        (["NA", "None", "nan", " "], (), [-1, -1, -1, -1]),
    ],
)
def test_labels_as_people_write_them(
    labels: list[str], names: tuple[str, ...], numbers: list[int], tmp_path: Path
) -> None:
    rows = [f"n{k},{label},{k}" for k, label in enumerate(labels)]
    nodes = lines(tmp_path / "nodes.csv", ["id,label,x", *rows])
    graph = Graph.from_tables(nodes, lines(tmp_path / "edges.csv", ["source,target", "n0,n1"]))
    assert (graph.class_names, graph.labels.tolist()) == (names, numbers)
    table = pa.table({"id": [f"n{k}" for k in range(4)], "label": labels, "x": [0, 1, 2, 3]})
    same(Graph.from_tables(table, pa.table({"source": ["n0"], "target": ["n1"]})), graph)


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ([0.0, 1.5, 2.0, 3.0], ["row 1", "1.5", "make classes"]),
        ([0.0, 1.0, float("inf"), 2.0], ["row 2", "inf"]),
        ([0.0, 1.0, 2.0, 1e20], ["row 3", "1e+20"]),
    ],
)
def test_labels_that_are_no_classes(labels: list[float], words: list[str], tmp_path: Path) -> None:
    complains(lambda: tables("table", tmp_path, NODES | {"label": labels}, LINKS), "column label", *words)


@pytest.mark.parametrize("name", ["", "Unnamed: 0", "__index_level_0__"])
def test_the_index_of_a_data_frame_is_no_feature(name: str, tmp_path: Path) -> None:
    nodes = [f"{k},{line}" for k, line in zip([name, 0, 1, 2], NODE_LINES, strict=True)]
    edges = [f"{k},{line}" for k, line in zip([name, 0, 1], EDGE_LINES, strict=True)]
    paths = lines(tmp_path / "nodes.csv", nodes), lines(tmp_path / "edges.csv", edges)
    with pytest.warns(GraphWarning, match=f"column '{name}' is left out as the index") as caught:
        graph = Graph.from_tables(*paths)
    assert graph.feature_names == ("x", "y")
    assert (len(caught), caught[0].filename) == (1, __file__)  # where it was called
    assert Graph.from_tables(*paths, features=["y", name]).feature_names == ("y", name)


def test_weights_of_edges(tmp_path: Path) -> None:
    nodes = lines(tmp_path / "nodes.csv", NODE_LINES)
    edges = lines(tmp_path / "edges.csv", ["source,target,weight,strength,since", "a,b,0.5,3,1999", "b,c,2,4,2001"])
    with pytest.warns(GraphWarning, match=r"columns strength, since are not used.*`weight`"):
        graph = Graph.from_tables(nodes, edges)
    assert graph.edge_weight is not None
    assert graph.edge_weight.tolist() == [0.5, 2.0]
    with pytest.warns(GraphWarning, match="columns weight, since are not used"):
        graph = Graph.from_tables(nodes, edges, weight="strength")
    assert graph.edge_weight is not None
    assert graph.edge_weight.tolist() == [3.0, 4.0]
    complains(lambda: Graph.from_tables(nodes, edges, weight="mass"), "no column 'mass'", "strength")
    for bad, words in (("-1", ["row 1", "-1", "not negative"]), ("", ["row 1", "empty"]), ("x", ["must be numbers"])):
        heavy = lines(tmp_path / "bad.csv", ["source,target,weight", "a,b,1", f"b,c,{bad}"])
        complains(lambda path=heavy: Graph.from_tables(nodes, path), "column weight", *words)
