"""Large tables are read in other ways than small ones: the graphs are those that a plain loop over the rows makes."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from credalgnn.graphs import Columns, Graph, GraphError, GraphWarning, _checks, _edge_kernels, read_tables, tables

RNG = np.random.default_rng(3)
IDS: dict[str, list[Any]] = {
    "all numbers, in order": list(range(40)),
    "from a number on": list(range(-7, 33)),
    "all numbers, shuffled": RNG.permutation(40).tolist(),
    "with gaps": (RNG.permutation(40) * 3 + 1_000_003).tolist(),
    "negative, with gaps": (RNG.permutation(40) * 5 - 120).tolist(),
    "far apart": [*range(38), -(2**63), 2**63 - 1],
    "large": (RNG.permutation(40) + 2**60).tolist(),
    "text": [f"n{number}" for number in RNG.permutation(40)],
    "zeros in front": [f"{number:03}" for number in RNG.permutation(40)],
    "hexadecimal": [f"0xE8D4A50F{number:02X}" for number in RNG.permutation(40)],
    "one with a sign": ["+7", *map(str, range(8, 47))],
}


def naive(ids: list[Any], edges: list[tuple[Any, Any]], undirected: bool) -> list[tuple[int, int]]:
    number = {name: row for row, name in enumerate(ids)}
    links = [(number[source], number[target]) for source, target in edges]
    return list(dict.fromkeys(links + [(t, s) for s, t in links])) if undirected else links


def write(folder: Path, kind: str, ids: list[Any], edges: list[tuple[Any, Any]], chunks: int) -> tuple[Path, Path]:
    nodes = pa.table({"id": ids, "label": [row % 2 for row in range(len(ids))], "x": np.arange(len(ids)) / 3 + 1})
    links = pa.table({"source": [s for s, _ in edges], "target": [t for _, t in edges]})
    paths = folder / f"nodes.{kind}", folder / f"edges.{kind}"
    for table, path in zip((nodes, links), paths, strict=True):
        if kind == "csv":
            pyarrow.csv.write_csv(table, path)
        else:
            pyarrow.parquet.write_table(table, path, row_group_size=-(-len(table) // chunks))
    return paths


@pytest.mark.parametrize("undirected", [False, True])
@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("name", list(IDS))
def test_edges_are_those_of_a_plain_loop(name: str, kind: str, undirected: bool, tmp_path: Path) -> None:
    ids, rng = IDS[name], np.random.default_rng(5)
    ends = rng.integers(len(ids), size=(150, 2))  # with loops, edges twice, and edges both ways
    ends = np.concatenate([ends, ends[:20], ends[:30, ::-1]])
    edges = [(ids[s], ids[t]) for s, t in ends.tolist()]
    read = read_tables(*write(tmp_path, kind, ids, edges, chunks=3), Columns(), undirected=undirected).graph
    assert read.edge_index.T.tolist() == [list(edge) for edge in naive(ids, edges, undirected)]
    assert read.node_ids is not None
    assert read.node_ids.tolist() == ids
    plain = Graph.from_tables(*write(tmp_path, kind, ids, edges, chunks=1))
    assert plain.edge_index.T.tolist() == [list(edge) for edge in naive(ids, edges, False)]


@pytest.mark.parametrize("alike", [False, True])
def test_many_texts_are_found_in_an_index_of_bytes(alike: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts of all lengths, none among them, that share hashes if need be, and slices of arrays."""
    monkeypatch.setattr(tables, "MANY_TEXTS", 1)
    rng = np.random.default_rng(7)
    ids = ["", *{"".join(rng.choice(list("abö"), size)) for size in rng.integers(1, 9, 700)}]
    asked = [*rng.choice(ids, 1500).tolist(), "nobody", "", "ab" * 40, *ids]
    if alike:  # nothing but the bytes tells them apart
        monkeypatch.setattr(_edge_kernels, "_hashed", lambda offsets, data, at: np.uint64(5 << 32))
        for name in ("_candidate", "_extent", "_same", "index_texts", "find_texts"):
            monkeypatch.setattr(_edge_kernels, name, getattr(_edge_kernels, name).py_func)
        ids, asked = ids[:60], [name for name in asked[:200] if name in {*ids[:60]}] + ["nobody"]
    number = {name: row for row, name in enumerate(ids)}
    padded = pa.array(["out", *asked, "out"]).slice(1, len(asked))
    found = tables.positions([pa.array(["x", *ids]).slice(1)], [padded, pa.array([], pa.string()), padded])
    assert found.tolist() == [number.get(name, -1) for name in asked] * 2


def test_weights_go_with_their_edges() -> None:
    edges = pa.table({"source": [0, 1, 0, 2, 2], "target": [1, 0, 1, 2, 1], "weight": [1.0, 2.0, 3.0, 4.0, 5.0]})
    nodes = pa.table({"id": [0, 1, 2], "label": [0, 1, 0], "x": [1.0, 2.0, 3.0]})
    graph = read_tables(nodes, edges, Columns(), undirected=True).graph
    assert graph.edge_index.tolist() == [[0, 1, 2, 2, 1], [1, 0, 2, 1, 2]]
    assert graph.edge_weight is not None
    assert graph.edge_weight.tolist() == [1.0, 2.0, 4.0, 5.0, 5.0]


@pytest.mark.parametrize("unknown", [-1, 40, 1_000_002, 1_000_004, 2**62, -(2**63)])
def test_the_first_unknown_end_is_named(unknown: int, tmp_path: Path) -> None:
    ids = IDS["with gaps"]
    edges = [(ids[0], ids[1]), (ids[2], unknown), (ids[3], 5)]
    for kind, shown in (("csv", f"'{unknown}'"), ("parquet", unknown)):
        message = rf"edges.{kind}, row 1: target {shown} is not the id of a node in .*nodes.{kind}; nodes that were"
        with pytest.raises(GraphError, match=message):
            Graph.from_tables(*write(tmp_path, kind, ids, edges, chunks=1))


@pytest.mark.parametrize("name", list(IDS))
def test_ids_that_stand_twice_are_named(name: str, tmp_path: Path) -> None:
    ids = list(IDS[name])
    ids[31] = ids[4]
    with pytest.raises(GraphError, match=r"occurs twice, in rows 4 and 31: ids must be unique"):
        Graph.from_tables(*write(tmp_path, "parquet", ids, [(ids[0], ids[1])], chunks=1))


def test_large_features_whose_sum_overflows_are_finite() -> None:
    graph = Graph(np.full((8, 2), 3e38, np.float32), [[0], [1]])
    assert float(graph.features.max()) == pytest.approx(3e38)
    for wrong in (np.nan, np.inf, -np.inf):
        features = np.full((8, 2), 3e38, np.float32)
        features[5, 1] = wrong
        with pytest.raises(GraphError, match="row 5, column 1"):
            Graph(features, [[0], [1]])


ODD = [
    'say "hi"', "a,b", "two\nlines", "two\r\nlines", "n1", "n 1", " n1", "n1 ", "N1", "né", "ne\u0301", "日本", "😀",
    "007", "7", "+7", "long" * 200, "x" * 255, "x" * 256,
]  # fmt: skip


def write_odd(folder: Path, nodes: list[str], edges: list[tuple[str, str]]) -> tuple[Path, Path]:
    """Tables that Python's csv module writes: pyarrow reads them in several blocks, across whose ends fields lie."""
    tables: dict[str, list[tuple[str, ...]]] = {
        "nodes": [("id", "label", "x"), *((name, str(row % 2), str(row + 1)) for row, name in enumerate(nodes))],
        "edges": [("source", "target"), *edges],
    }
    for role, lines in tables.items():
        with (folder / f"{role}.csv").open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows(lines)
    assert (folder / "edges.csv").stat().st_size > 2 << 20
    return folder / "nodes.csv", folder / "edges.csv"


@pytest.fixture
def odd(monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], list[tuple[str, str]]]:
    """Ids with whatever a field may hold, and edges; many texts to those who count them, so that all ways are taken."""
    for module, name, few in ((tables, "MANY_TEXTS", 1), (tables, "TEXT_ROWS", 7), (_checks, "ROWS", 7)):
        monkeypatch.setattr(module, name, few)
    ids = [*ODD, *(f"{text}{number}" for number in range(60) for text in ODD[4:])]
    ends = np.random.default_rng(11).choice(np.array(ids, object), (40_000, 2))
    return ids, [(source, target) for source, target in ends.tolist()]


def test_odd_texts_are_those_that_the_csv_module_reads(
    odd: tuple[list[str], list[tuple[str, str]]], tmp_path: Path
) -> None:
    paths = write_odd(tmp_path, *odd)
    rows = []
    for path in paths:
        with path.open(newline="", encoding="utf-8") as file:
            rows.append(list(csv.reader(file))[1:])
    ids = [row[0] for row in rows[0]]
    graph = Graph.from_tables(*paths)
    assert graph.node_ids is not None
    assert graph.node_ids.tolist() == ids == odd[0]
    assert graph.node_ids.dtype == np.array(ids).dtype
    assert graph.edge_index.T.tolist() == [list(edge) for edge in naive(ids, [(s, t) for s, t in rows[1]], False)]


@pytest.mark.parametrize("row", [0, 1, 9_999, 39_999])
def test_rows_are_counted_over_all_blocks(
    row: int, odd: tuple[list[str], list[tuple[str, str]]], tmp_path: Path
) -> None:
    nodes, edges = odd
    for wrong, words in (("", "column target: row {} has no id"), ("n1  ", "row {}: target 'n1  ' is not the id of")):
        changed = [*edges[:row], (edges[row][0], wrong), *edges[row + 1 :]]
        with pytest.raises(GraphError, match=words.format(row)):
            Graph.from_tables(*write_odd(tmp_path, nodes, changed))


@pytest.mark.parametrize(("again", "rows"), [(-1, (5, 918)), (6, (5, 6))])
def test_odd_texts_that_stand_twice_are_named(
    again: int, rows: tuple[int, int], odd: tuple[list[str], list[tuple[str, str]]], tmp_path: Path
) -> None:
    nodes = list(odd[0])
    nodes[again] = nodes[5]
    with pytest.raises(
        GraphError, match=r"nodes.csv, column id: node id n 1 occurs twice, in rows {} and {}: ".format(*rows)
    ):
        Graph.from_tables(*write_odd(tmp_path, nodes, odd[1]))


def test_numbers_are_texts_if_the_last_of_all_blocks_is_none(tmp_path: Path) -> None:
    ids = [str(number) for number in range(10**17, 10**17 + 200)]
    edges = [(ids[row % 199], ids[row % 7]) for row in range(60_000)]
    for last in ("007", "8"):
        named = [*ids[:-1], last]
        graph = Graph.from_tables(*write_odd(tmp_path, named, [*edges, (last, ids[0])]))
        assert graph.node_ids is not None
        assert graph.node_ids.tolist() == (named if last == "007" else [int(name) for name in named])
        assert graph.edge_index[:, -1].tolist() == [199, 0]


def test_pairs_of_many_nodes_are_told_apart() -> None:
    """The square of their number is more than 32 bits hold."""
    count, rng = 70_000, np.random.default_rng(13)
    nodes = pa.table({"id": range(count), "label": [row % 2 for row in range(count)], "x": np.arange(count) + 1.0})
    ends = rng.integers(count, size=(5_000, 2))
    edges = [*map(tuple, ends.tolist()), *map(tuple, ends[:500, ::-1].tolist()), *map(tuple, ends[:500].tolist())]
    table = pa.table({"source": [s for s, _ in edges], "target": [t for _, t in edges]})
    read = read_tables(nodes, table, Columns(), undirected=True)
    assert read.graph.edge_index.T.tolist() == [list(edge) for edge in naive(list(range(count)), edges, True)]
    options: Any = {"encoder": read.encoder, "class_names": read.graph.class_names}
    with pytest.warns(GraphWarning):  # all nodes, and the edges of the first 1,000 rows, are given twice
        both = read_tables(nodes, table.slice(0, 1_000), Columns(), context=(nodes, table), **options).graph
    again = set(edges[:1_000])
    assert both.edge_index.T.tolist() == [
        list(edge) for edge in [*(e for e in edges if e not in again), *edges[:1_000]]
    ]
