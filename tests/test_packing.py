"""Tables streamed into packed graphs: the graph that from_tables makes, whatever the memory, kills and full disks."""

from __future__ import annotations

import fcntl
import os
import pickle
import re
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import torch

from credalgnn.cli import main
from credalgnn.graphs import Columns, Graph, GraphError, GraphWarning, load_graph, pack, read_tables
from credalgnn.graphs.packed import PackedGraph
from credalgnn.model import fit
from credalgnn.runtime.files import Lock

NODES, EDGES = 200, 1500


def ids_of(kind: str) -> list[Any]:
    rng = np.random.default_rng(1)
    if kind == "text":
        return [f"nö-{k * 7}" for k in rng.permutation(NODES)]
    return list(range(NODES)) if kind == "in order" else (rng.permutation(NODES) * 10**15 - 7).tolist()


def tables(kind: str, weights: bool = False) -> tuple[pa.Table, pa.Table]:
    rng = np.random.default_rng(0)
    ids, columns = ids_of(kind), rng.normal(size=(3, NODES)).astype(np.float32)
    columns[0, 5] = 0.0
    labels = [["cat", "dog", None, " cat "][k] for k in rng.integers(0, 4, NODES)]
    nodes = {"id": ids, "label": labels, "size": columns[0], "age": columns[1], "odd": rng.random(NODES) < 0.5}
    ends = rng.integers(0, NODES, (2, EDGES))
    edges = {"source": [ids[k] for k in ends[0]], "target": [ids[k] for k in ends[1]]}
    if weights:
        edges["weight"] = rng.random(EDGES).astype(np.float32)
    return pa.table(nodes), pa.table(edges)


def write(table: pa.Table, path: Path) -> None:
    if path.suffix == ".parquet":
        pq.write_table(table, path)
    elif path.suffix == ".gz":
        with pa.output_stream(path, compression="gzip") as stream:
            pyarrow.csv.write_csv(table, stream)
    else:
        pyarrow.csv.write_csv(table, path)


def write_shards(folder: Path, ending: str, **given: pa.Table) -> None:
    """Each table whole, and as three shards of different length."""
    for name, table in given.items():
        (folder / name).mkdir(parents=True)
        write(table, folder / f"{name}.{ending}")
        cuts = [0, table.num_rows // 7, table.num_rows // 2, table.num_rows]
        for at in range(3):
            write(table.slice(cuts[at], cuts[at + 1] - cuts[at]), folder / name / f"part-{at}.{ending}")


def assert_same(packed: Graph, graph: Graph) -> None:
    assert torch.equal(packed.rows(slice(None)), graph.features)
    for ours, theirs in zip(packed.in_edges, graph.in_edges, strict=True):
        assert (ours is None and theirs is None) or torch.equal(ours, theirs)
    assert torch.equal(packed.labels, graph.labels)
    assert (packed.class_names, packed.feature_names) == (graph.class_names, graph.feature_names)
    assert packed.node_ids is not None
    assert graph.node_ids is not None
    assert packed.node_ids.tolist() == graph.node_ids.tolist()


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.mark.parametrize("kind", ["in order", "numbers", "text"])
@pytest.mark.parametrize("ending", ["parquet", "csv", "csv.gz"])
@pytest.mark.parametrize("weights", [False, True])
def test_shards_give_the_graph_of_the_whole_tables(kind: str, ending: str, weights: bool, tmp_path: Path) -> None:
    nodes, edges = tables(kind, weights)
    write_shards(tmp_path, ending, nodes=nodes, edges=edges)
    made = pack(tmp_path / "nodes", tmp_path / "edges", tmp_path / "graph.cg", memory="1MiB")
    packed = load_graph(tmp_path / "graph.cg", verify=True)
    assert_same(packed, Graph.from_tables(tmp_path / f"nodes.{ending}", tmp_path / f"edges.{ending}"))
    assert (made.nodes, made.edges) == (NODES, EDGES)
    assert made.bytes == sum(len(each) for each in content(made.path).values())
    assert sorted(os.listdir(tmp_path)) == sorted(["graph.cg", "nodes", "edges", f"nodes.{ending}", f"edges.{ending}"])


@pytest.mark.parametrize("weights", [False, True])
def test_edges_without_direction_go_both_ways_once(weights: bool, tmp_path: Path) -> None:
    nodes, edges = tables("text", weights)
    write_shards(tmp_path, "parquet", nodes=nodes, edges=edges)
    pack(tmp_path / "nodes", tmp_path / "edges", tmp_path / "graph.cg", undirected=True, memory="1MiB")
    read = read_tables(tmp_path / "nodes.parquet", tmp_path / "edges.parquet", Columns(), undirected=True).graph
    packed = load_graph(tmp_path / "graph.cg")
    assert not packed.describe().directed
    for ours, theirs in zip(packed.in_edges, read.in_edges, strict=True):
        assert (ours is None and theirs is None) or torch.equal(ours, theirs)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("fixed", [True, False])
def test_lists_of_numbers_are_features(fixed: bool, dtype: str, tmp_path: Path) -> None:
    nodes, edges = tables("numbers")
    matrix = np.random.default_rng(3).normal(size=(NODES, 5)).astype(np.float32)
    kind = pa.list_(pa.float32(), 5) if fixed else pa.list_(pa.float32())
    nodes = nodes.select(["id", "label"]).append_column("emb", pa.array(list(matrix), kind))
    write_shards(tmp_path, "parquet", nodes=nodes, edges=edges)
    pack(tmp_path / "nodes", tmp_path / "edges", tmp_path / "graph.cg", dtype=dtype)
    packed = load_graph(tmp_path / "graph.cg")
    assert packed.features.dtype == getattr(torch, dtype)
    assert torch.equal(packed.rows(slice(None)), torch.from_numpy(matrix).to(packed.features.dtype).float())
    assert packed.feature_names == tuple(f"emb[{k}]" for k in range(5))


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_a_split_is_kept_with_the_graph(ending: str, tmp_path: Path) -> None:
    """The parts that tables give which are read at once; and a model keeps to them."""
    nodes, edges = tables("text")
    words = np.array(["train", "Valid", " val ", "cal", "TEST", ""])[np.random.default_rng(5).integers(0, 6, NODES)]
    nodes = nodes.append_column("part", pa.array(words))
    write_shards(tmp_path, ending, nodes=nodes, edges=edges)
    arguments = (tmp_path / "nodes", tmp_path / "edges", tmp_path / "graph.cg")
    with pytest.raises(KeyboardInterrupt):
        pack(*arguments, split="part", progress=stopping(("nodes", 2)))
    nodes_in, edges_in, out = map(str, arguments)
    assert main(["pack", nodes_in, edges_in, "--out", out, "--split", "part"]) == 0
    read = read_tables(tmp_path / f"nodes.{ending}", tmp_path / f"edges.{ending}", Columns(), split="part")
    packed = load_graph(arguments[2], verify=True)
    assert isinstance(packed, PackedGraph)
    assert packed.feature_names == ("size", "age", "odd")
    wanted = {part: rows.tolist() for part, rows in read.parts.items()}
    for graph in (packed, packed.replace(labels=packed.labels), pickle.loads(pickle.dumps(packed))):
        assert {part: rows.tolist() for part, rows in graph.parts.items()} == wanted
    for data in (packed, arguments[2]):
        model = fit(data, settings={"epochs": 2}, progress=False)
        for part in ("train", "val", "calibration"):
            labelled = [node for node in wanted[part] if packed.labels[node] >= 0]
            assert model.parts[part].numbers_in(packed).tolist() == labelled


def test_a_part_that_does_not_exist_is_damage(tmp_path: Path) -> None:
    nodes, edges = tables("in order")
    write_shards(tmp_path, "csv", nodes=nodes.append_column("part", pa.array(["train"] * NODES)), edges=edges)
    pack(tmp_path / "nodes", tmp_path / "edges", tmp_path / "graph.cg", split="part")
    path = tmp_path / "graph.cg" / "split.npy"
    path.write_bytes(path.read_bytes()[:-1] + b"\x56")
    with pytest.raises(GraphError, match=r"split.npy is damaged .*check --repair"):
        _ = load_graph(tmp_path / "graph.cg").parts


def test_a_split_that_is_no_text_is_one_line(tmp_path: Path) -> None:
    nodes, edges = tables("in order")
    nodes = nodes.append_column("part", pa.array([[1.0, 2.0]] * NODES))
    write_shards(tmp_path, "parquet", nodes=nodes, edges=edges)
    with pytest.raises(GraphError, match=r"column part: list<.*> is no text; train, val, calibration, test or nothing"):
        pack(tmp_path / "nodes", tmp_path / "edges", tmp_path / "graph.cg", split="part")


def test_a_split_is_optional_and_checked(tmp_path: Path) -> None:
    nodes, edges = tables("in order")
    nodes = nodes.append_column("part", pa.array(["train"] * (NODES - 1) + ["tset"]))
    write_shards(tmp_path, "csv", nodes=nodes, edges=edges)
    arguments = (tmp_path / "nodes", tmp_path / "edges", tmp_path / "graph.cg")
    with pytest.raises(GraphError, match=r"part-2.csv, column part: row 99 is 'tset'; train, val, calibration, test"):
        pack(*arguments, split="part")
    with pytest.raises(GraphError, match=r"no column 'fold'.*; name it: `split`$"):
        pack(*arguments, split="fold")
    with pytest.raises(GraphError, match="cannot be a feature, it is the id, the label or the split"):
        pack(*arguments, split="part", features=["part"])
    pack(*arguments, features=["size"])
    packed = load_graph(arguments[2])
    assert isinstance(packed, PackedGraph)
    assert packed.parts == {}


def sparse_tables(first: float = 0.05) -> tuple[pa.Table, pa.Table]:
    """Forty features, one number of twenty not zero; of the first 64 nodes a share of one's own."""
    rng = np.random.default_rng(2)
    nodes, edges = tables("in order")
    active = rng.random((NODES, 40)) < np.where(np.arange(NODES) < 64, first, 0.05)[:, None]
    numbers = np.where(active, rng.normal(size=(NODES, 40)), 0.0).astype(np.float32)
    numbers[7] = 0.0  # a node without any
    columns = {f"w{k}": numbers[:, k] for k in range(40)}
    return pa.table({"id": nodes["id"], "label": nodes["label"], **columns}), edges


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_features_that_are_mostly_zero_stay_sparse(
    ending: str, dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The numbers of the tables, in a fraction of the room, done at once or stopped between two shards."""
    nodes, edges = sparse_tables()
    write_shards(tmp_path, ending, nodes=nodes, edges=edges)
    arguments = (tmp_path / "nodes", tmp_path / "edges")
    pack(*arguments, tmp_path / "graph.cg", dtype=dtype)
    packed = load_graph(tmp_path / "graph.cg", verify=True)
    expected = np.stack([nodes[f"w{k}"].to_numpy() for k in range(40)], 1).astype(dtype)
    assert packed.features.layout == torch.sparse_csr
    assert packed.features.values().numel() == np.count_nonzero(expected)
    np.testing.assert_array_equal(packed.rows(slice(None)).to_dense().numpy(), expected)
    with pytest.raises(KeyboardInterrupt):
        pack(*arguments, tmp_path / "again.cg", dtype=dtype, memory="1MiB", progress=stopping(("nodes", 2)))
    pack(*arguments, tmp_path / "again.cg", dtype=dtype, memory="1MiB")
    assert content(tmp_path / "again.cg") == content(tmp_path / "graph.cg")
    monkeypatch.setattr("credalgnn.graphs._pack_nodes.INT32", 100)  # as if there were billions of numbers
    pack(*arguments, tmp_path / "large.cg", dtype=dtype)
    large = load_graph(tmp_path / "large.cg", verify=True)
    assert large.features.col_indices().dtype == torch.int64
    np.testing.assert_array_equal(large.rows(slice(None)).to_dense().numpy(), expected)


def test_the_first_rows_decide_and_no_number_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dense first rows make a dense matrix of sparse features, however few rows are read at a time."""
    nodes, edges = sparse_tables(first=1.0)
    pq.write_table(nodes, tmp_path / "nodes.parquet")
    pq.write_table(edges, tmp_path / "edges.parquet")
    made = []
    for rows in (7, 1 << 16):
        monkeypatch.setattr("credalgnn.graphs.packing.rows_at_once", lambda *_, rows=rows: rows)
        place = tmp_path / f"by-{rows}.cg"
        pack(tmp_path / "nodes.parquet", tmp_path / "edges.parquet", place)
        made.append(content(place))
    assert made[0] == made[1]
    features = load_graph(place).features
    assert features.layout == torch.strided
    np.testing.assert_array_equal(features.numpy()[:, 3], nodes["w3"].to_numpy())


@pytest.mark.parametrize("ending", ["parquet", "csv", "csv.gz"])
@pytest.mark.parametrize("name", ["part-", "part-9"])  # before all others, behind them
def test_shards_without_rows_are_nothing(name: str, ending: str, tmp_path: Path) -> None:
    nodes, edges = tables("text", weights=True)
    write_shards(tmp_path, ending, nodes=nodes, edges=edges)
    arguments = (tmp_path / "nodes", tmp_path / "edges")
    for folder, table in zip(arguments, (nodes, edges), strict=True):
        write(table.slice(0, 0), folder / f"{name}.{ending}")
    pack(*arguments, tmp_path / "graph.cg")
    assert_same(
        load_graph(tmp_path / "graph.cg"),
        Graph.from_tables(tmp_path / f"nodes.{ending}", tmp_path / f"edges.{ending}"),
    )


def write_lines(path: Path, lines: list[str]) -> None:
    path.write_text("\n".join([*lines, ""]), encoding="utf-8")


def test_rows_of_any_length_are_read(tmp_path: Path) -> None:
    """A header and rows that are longer than the smallest block of bytes that is read."""
    numbers = np.random.default_rng(0).random((10, 6000)).astype(np.float32)
    rows = [f"{k},{k % 2}," + ",".join(map(repr, row.tolist())) for k, row in enumerate(numbers)]
    names = [f"größe_{k}" for k in range(6000)]
    write_lines(tmp_path / "nodes.csv", [f"id,label,{','.join(names)}", *rows])
    write_lines(tmp_path / "edges.csv", ["source,target", "0,1", "1,2"])
    assert len(rows[0]) > 1 << 16
    pack(tmp_path / "nodes.csv", tmp_path / "edges.csv", tmp_path / "graph.cg", memory="8MiB")
    graph = load_graph(tmp_path / "graph.cg")
    np.testing.assert_array_equal(graph.features.numpy(), numbers)
    assert graph.feature_names == tuple(names)


def test_a_line_break_in_quotes_is_part_of_a_field_wherever_it_stands(tmp_path: Path) -> None:
    """Behind more than is looked at to tell how a file is written, and read in several blocks."""
    quoted = [f'{k},a,{k + 0.5},"x\n{k},b,7,y\n\n\n"' for k in range(8000, 20_000)]
    rows = [f"{k},a,{k + 0.5},x" for k in range(8000)]
    write_lines(tmp_path / "nodes.csv", ["id,label,size,name", *rows, *quoted])
    write_lines(tmp_path / "edges.csv", ["source,target", "0,1"])
    given = (tmp_path / "nodes.csv", tmp_path / "edges.csv", tmp_path / "graph.cg")
    pack(*given, features=["size"], memory="1MiB")
    graph = load_graph(given[2])
    assert graph.node_ids is not None
    assert graph.node_ids.tolist() == list(range(20_000))
    assert graph.class_names == ("a",)


def test_a_quote_that_is_not_closed_is_one_line(tmp_path: Path) -> None:
    rows = [f"{k},a,1.5" for k in range(50_000)]
    rows[0], rows[2000] = '0,"a",1.5', '2000,"a,1.5'
    write_lines(tmp_path / "nodes.csv", ["id,label,size", *rows])
    write_lines(tmp_path / "edges.csv", ["source,target", "0,1"])
    with pytest.raises(GraphError, match=r"nodes\.csv: a row is far longer than the first ones.* as Parquet$") as said:
        pack(tmp_path / "nodes.csv", tmp_path / "edges.csv", tmp_path / "graph.cg", memory="1MiB")
    assert "\n" not in str(said.value)


@pytest.mark.parametrize("kind", ["in order", "text"])
def test_memory_changes_no_byte(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes, edges = tables(kind, weights=True)
    write_shards(tmp_path, "csv", nodes=nodes, edges=edges)
    pack(tmp_path / "nodes", tmp_path / "edges", tmp_path / "large.cg", undirected=True)
    steps = []
    monkeypatch.setattr("credalgnn.graphs._pack_edges.EDGE_BYTES", 1 << 13)  # a bucket holds 64 edges
    monkeypatch.setattr("credalgnn.graphs._pack_edges.CHUNK", 100)
    pack(
        tmp_path / "nodes", tmp_path / "edges", tmp_path / "small.cg", undirected=True, memory="1MiB",
        progress=lambda stage, done, total: steps.append((stage, total)),
    )  # fmt: skip
    assert dict(steps)["sort"] > 20
    assert content(tmp_path / "small.cg") == content(tmp_path / "large.cg")


def test_ids_are_numbered_by_several_tables_where_one_is_too_large(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    ids = rng.permutation(100_000) + 10**12
    nodes = pa.table({"id": ids, "label": np.arange(100_000) % 3, "x": rng.random(100_000)})
    ends = rng.integers(0, 100_000, (2, 1000))
    write_shards(tmp_path, "parquet", nodes=nodes, edges=pa.table({"source": ids[ends[0]], "target": ids[ends[1]]}))
    totals = {}
    pack(
        tmp_path / "nodes", tmp_path / "edges", tmp_path / "graph.cg", memory="1MiB",
        progress=lambda stage, done, total: totals.update({stage: total}),
    )  # fmt: skip
    assert totals["numbers"] > 5
    pairs = load_graph(tmp_path / "graph.cg").edge_index.numpy().T.tolist()
    assert sorted(pairs) == sorted(ends.T.tolist())


PEAK = """
import sys
from pathlib import Path
from credalgnn.graphs import pack
pack(*sys.argv[1:4], memory=sys.argv[4])
print(next(int(line.split()[1]) for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line))
"""


def write_random(folder: Path, ending: str, nodes: int, edges: int, columns: int, width: int, letters: int) -> None:
    """Features in columns of their own, or in one column of lists, all in one row group; ids as long as is said."""
    rng, ids = np.random.default_rng(0), np.random.default_rng(1).permutation(nodes) + 10**6
    features = {f"x{k}": rng.random(nodes, np.float32) for k in range(columns)}
    if width:
        flat = pa.array(rng.random(nodes * width, np.float32))
        features["x"] = pa.ListArray.from_arrays(np.arange(0, nodes * width + 1, width, np.int32), flat)
    folder.mkdir()
    labels = ids % 5
    if letters:
        ids = np.char.zfill(ids.astype(str), letters)
    write(pa.table({"id": ids, "label": labels, **features}), folder / f"nodes.{ending}")
    ends = ids[rng.integers(0, nodes, (2, edges))]
    write(pa.table({"source": ends[0], "target": ends[1]}), folder / f"edges.{ending}")


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no /proc")
@pytest.mark.parametrize(
    ("nodes", "edges", "columns", "width", "letters", "ending"),
    [
        (300_000, 2_000_000, 16, 0, 0, "parquet"),
        (100_000, 30_000, 1, 0, 200, "parquet"),
        pytest.param(12_000, 1000, 0, 2048, 0, "parquet", marks=pytest.mark.slow),
        pytest.param(300_000, 2_000_000, 16, 0, 0, "csv", marks=pytest.mark.slow),
    ],
    ids=["long", "long ids", "wide", "csv"],
)
def test_the_memory_allowed_is_enough(
    nodes: int, edges: int, columns: int, width: int, letters: int, ending: str, tmp_path: Path
) -> None:
    """Beside what a small graph takes, which is imports and compiled kernels; the tables have 50 to 100 MiB."""
    write_random(tmp_path / "small", ending, 100, 1000, columns, min(width, 8), letters)
    write_random(tmp_path / "large", ending, nodes, edges, columns, width, letters)
    peaks = []
    for size in ("small", "large"):
        names = (f"nodes.{ending}", f"edges.{ending}", "graph.cg")
        given = [*(str(tmp_path / size / name) for name in names), "48MiB"]
        answer = subprocess.run([sys.executable, "-c", PEAK, *given], capture_output=True, text=True, check=True)
        peaks.append(int(answer.stdout) << 10)
    assert peaks[1] - peaks[0] < 48 << 20


def test_a_hub_that_the_memory_cannot_hold_is_told(tmp_path: Path) -> None:
    """Its in-edges are sorted together."""
    write(pa.table({"id": range(3), "label": [0, 1, 0], "x": [0.5, 1.5, 2.5]}), tmp_path / "nodes.parquet")
    ends = {"source": [0, 2] * 3000, "target": [1] * 6000}
    write(pa.table(ends), tmp_path / "edges.parquet")
    arguments = (tmp_path / "nodes.parquet", tmp_path / "edges.parquet")
    with pytest.warns(GraphWarning, match=r"sorting 6,000 edges into the nodes \d to \d may take 562.5 KiB") as told:
        pack(*arguments, tmp_path / "graph.cg", memory="1MiB")
    enough = re.findall(r"memory='(\w+)'", str(told[0].message))
    pack(*arguments, tmp_path / "again.cg", memory=enough[0])  # a warning would be an error
    assert content(tmp_path / "again.cg") == content(tmp_path / "graph.cg")


@contextmanager
def few_files(count: int) -> Iterator[None]:
    """This process can open so many more."""
    free = [os.open(os.curdir, os.O_RDONLY) for _ in range(count)]
    for each in free:
        os.close(each)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(free) + 1, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def stopping(place: tuple[str, int]) -> Any:
    def progress(stage: str, done: int, total: int) -> None:
        if (stage, done) == place:
            raise KeyboardInterrupt

    return progress


def interrupted(*_: Any) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("place", [("nodes", 1), ("nodes", 3), ("edges", 2), ("numbers", 1), ("sort", 1), ("sort", 3)])
def test_what_is_finished_is_not_done_again(
    place: tuple[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("credalgnn.graphs._pack_edges.EDGE_BYTES", 1 << 11)
    nodes, edges = tables("text", weights=True)
    write_shards(tmp_path, "parquet", nodes=nodes, edges=edges)
    arguments = (tmp_path / "nodes", tmp_path / "edges")
    pack(*arguments, tmp_path / "whole.cg", memory="1MiB")
    with pytest.raises(KeyboardInterrupt):
        pack(*arguments, tmp_path / "graph.cg", memory="1MiB", progress=stopping(place))
    with pytest.raises(GraphError, match="no such folder"):
        load_graph(tmp_path / "graph.cg")
    read = []
    monkeypatch.setattr(
        "credalgnn.graphs._pack_nodes.batches",
        lambda shard, *rest, real=sys.modules["credalgnn.graphs._table_files"].batches: (
            read.append(shard.path.name) or real(shard, *rest)  # type: ignore[func-returns-value]
        ),
    )
    pack(*arguments, tmp_path / "graph.cg", memory="1MiB")
    assert read == ["part-1.parquet", "part-2.parquet"] * (place == ("nodes", 1))
    assert content(tmp_path / "graph.cg") == content(tmp_path / "whole.cg")
    assert not (tmp_path / "graph.cg.part").exists()


SCRIPT = """
import os, signal, sys
from credalgnn.graphs import pack
def progress(stage, done, total):
    if (stage, done) == ("edges", 2):
        os.kill(os.getpid(), signal.SIGKILL)
pack(*sys.argv[1:], progress=progress)
"""


def packed_before(folder: Path) -> tuple[tuple[Path, Path, Path], dict[str, bytes]]:
    """A packed graph whose tables look as if they had changed since."""
    nodes, edges = tables("text")
    write_shards(folder, "parquet", nodes=nodes, edges=edges)
    arguments = (folder / "nodes", folder / "edges", folder / "graph.cg")
    pack(*arguments)
    there = content(folder / "graph.cg")
    os.utime(folder / "edges" / "part-0.parquet", ns=(1, 1))
    return arguments, there


def assert_goes_on(arguments: tuple[Path, Path, Path], there: dict[str, bytes]) -> None:
    """The old graph is there until the new one is whole, and a second command finds nothing to do."""
    assert content(arguments[2]) == there
    with pytest.warns(GraphWarning, match=r"graph\.cg: is of other tables .* will be replaced"):
        assert pack(*arguments).seconds
    after = content(arguments[2])
    assert {**after, "graph.json": b""} == {**there, "graph.json": b""}
    assert after["graph.json"] != there["graph.json"]  # it knows of which tables it is
    assert pack(*arguments).seconds == {}


@pytest.mark.slow
def test_a_kill_loses_nothing(tmp_path: Path) -> None:
    arguments, there = packed_before(tmp_path)
    answer = subprocess.run([sys.executable, "-c", SCRIPT, *map(str, arguments)], capture_output=True, check=False)
    assert answer.returncode == -signal.SIGKILL
    assert (tmp_path / "graph.cg.part").is_dir()
    assert_goes_on(arguments, there)


@pytest.mark.filterwarnings("ignore:.*will be replaced:credalgnn.GraphWarning")
@pytest.mark.parametrize("most", [500, 2500, 4000, 12_000])  # bytes of a file: at different stages
def test_a_full_disk_loses_nothing(most: int, tmp_path: Path) -> None:
    arguments, there = packed_before(tmp_path)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
    try:
        with pytest.raises(
            GraphError, match=r"graph\.cg: cannot be written \(File too large\); make room.*goes on"
        ) as said:
            pack(*arguments)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "\n" not in str(said.value)
    assert_goes_on(arguments, there)


IN_THE_SECOND_SHARD = """
import os, signal, sys
from credalgnn.graphs import _pack_nodes, pack
def labels(self, batch, shard, real=_pack_nodes.NodeWriter._labels):
    if shard.path.name == "b.csv":  # whose first ids have been written
        os.kill(os.getpid(), signal.SIGKILL)
    real(self, batch, shard)
_pack_nodes.NodeWriter._labels = labels
pack(*sys.argv[1:])
"""


def tables_whose_ids_become_text(folder: Path) -> tuple[Path, Path, Path]:
    """Ids of the first shard are 0, 1, ..., those of the second are x0, x1, ...; each edge joins one to the other."""
    (folder / "nodes").mkdir()
    for name, before in (("a", ""), ("b", "x")):
        rows = [f"{before}{k},{k % 3},{k + 0.5}" for k in range(1000)]
        (folder / "nodes" / f"{name}.csv").write_text("\n".join(["id,label,size", *rows, ""]))
    (folder / "edges.csv").write_text("\n".join(["source,target", *(f"{k},x{999 - k}" for k in range(1000)), ""]))
    return folder / "nodes", folder / "edges.csv", folder / "graph.cg"


def assert_joined(path: Path) -> None:
    graph = load_graph(path, verify=True)
    assert graph.node_ids is not None
    assert graph.node_ids.tolist() == [f"{before}{k}" for before in ("", "x") for k in range(1000)]
    assert sorted(graph.edge_index.T.tolist()) == [[k, 1999 - k] for k in range(1000)]


@pytest.mark.slow
def test_a_kill_where_ids_become_text_loses_nothing(tmp_path: Path) -> None:
    arguments = tables_whose_ids_become_text(tmp_path)
    command = [sys.executable, "-c", IN_THE_SECOND_SHARD, *map(str, arguments)]
    assert subprocess.run(command, capture_output=True, check=False).returncode == -signal.SIGKILL
    pack(*arguments)
    assert_joined(arguments[2])


@pytest.mark.parametrize("most", [9_000, 14_000])  # bytes: 8,128 of the first shard's ids fit, 16,128 of all do not
def test_a_full_disk_where_ids_become_text_loses_nothing(most: int, tmp_path: Path) -> None:
    arguments = tables_whose_ids_become_text(tmp_path)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
    try:
        with pytest.raises(GraphError, match="the same command goes on"):
            pack(*arguments)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert '"shards": [\n' in (tmp_path / "graph.cg.part" / "journal.json").read_text()  # the first one is done
    pack(*arguments)
    assert_joined(arguments[2])


@pytest.mark.parametrize("damage", ["cut", "gone"])
def test_what_was_kept_and_is_damaged_is_made_anew(
    damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("credalgnn.graphs._pack_edges.EDGE_BYTES", 1 << 18)  # several buckets
    nodes, edges = tables("text")
    write_shards(tmp_path, "parquet", nodes=nodes, edges=edges)
    arguments = (tmp_path / "nodes", tmp_path / "edges")
    pack(*arguments, tmp_path / "whole.cg", memory="64MiB")
    for place in (("nodes", 2), ("edges", 2), ("numbers", 1), ("sort", 2)):
        with pytest.raises(KeyboardInterrupt):
            pack(*arguments, tmp_path / "graph.cg", memory="64MiB", progress=stopping(place))
        for kept in sorted((tmp_path / "graph.cg.part" / "work").iterdir()):
            if damage == "gone":
                kept.unlink()
            else:
                os.truncate(kept, 50)
        pack(*arguments, tmp_path / "graph.cg", memory="64MiB")
        assert content(tmp_path / "graph.cg") == content(tmp_path / "whole.cg")
        shutil.rmtree(tmp_path / "graph.cg")


@pytest.mark.filterwarnings("ignore:.*will be replaced:credalgnn.GraphWarning")
@pytest.mark.parametrize("damage", ["cut", "gone", "no header"])
@pytest.mark.parametrize("sealed", [False, True])
def test_a_graph_that_is_damaged_before_it_is_in_place_is_made_anew(
    sealed: bool, damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An older one stays until then."""
    nodes, edges = tables("text", weights=True)
    write_shards(tmp_path, "parquet", nodes=nodes, edges=edges)
    arguments = (tmp_path / "nodes", tmp_path / "edges")
    pack(*arguments, tmp_path / "whole.cg")
    whole = content(tmp_path / "whole.cg")
    for name in [each for each in whole if sealed or each in ("features.npy", "labels.npy", "node_ids.npy")]:
        Graph([[1.0], [2.0]], [[0], [1]]).pack(tmp_path / "graph.cg")
        with monkeypatch.context() as patch:
            if sealed:
                patch.setattr("credalgnn.graphs.packing.put_in_place", interrupted)
            with pytest.raises(KeyboardInterrupt):
                pack(*arguments, tmp_path / "graph.cg", progress=None if sealed else stopping(("sort", 1)))
        kept = tmp_path / "graph.cg.part" / "graph" / name
        if damage == "gone":
            kept.unlink()
        else:
            half = whole[name][: len(whole[name]) // 2]
            kept.write_bytes(half if damage == "cut" else bytes(128) + whole[name][128:])
        pack(*arguments, tmp_path / "graph.cg")
        assert content(tmp_path / "graph.cg") == whole
        shutil.rmtree(tmp_path / "graph.cg")


@pytest.mark.parametrize("node", [-5, NODES, 10**6])
@pytest.mark.parametrize("end", [0, 1])  # source, target
def test_edges_on_the_way_that_end_at_no_node_are_made_anew(
    end: int, node: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes, edges = tables("text")
    write_shards(tmp_path, "parquet", nodes=nodes, edges=edges)
    arguments = (tmp_path / "nodes", tmp_path / "edges")
    pack(*arguments, tmp_path / "whole.cg")
    with monkeypatch.context() as patch:
        patch.setattr("credalgnn.graphs.packing.sort_bucket", interrupted)
        with pytest.raises(KeyboardInterrupt):
            pack(*arguments, tmp_path / "graph.cg")
    bucket = tmp_path / "graph.cg.part" / "work" / "bucket-0"
    records = np.fromfile(bucket, "<i4").reshape(-1, 2)
    records[3, end] = node
    records.tofile(bucket)
    pack(*arguments, tmp_path / "graph.cg")
    assert content(tmp_path / "graph.cg") == content(tmp_path / "whole.cg")


@pytest.mark.parametrize("damage", ["cut", "gone", "flipped"])
def test_a_damaged_graph_is_mended_as_the_message_says(
    damage: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes, edges = tables("text", weights=True)
    write_shards(tmp_path, "parquet", nodes=nodes, edges=edges)
    out = tmp_path / "graph.cg"
    command = ["credalgnn pack", str(tmp_path / "nodes"), str(tmp_path / "edges"), "--out", str(out)]
    assert main([*command[0].split()[1:], *command[1:]]) == 0
    whole = content(out)
    for name in whole:
        array = out / name
        if damage == "gone":
            array.unlink()
        else:
            changed = bytearray(whole[name])
            changed[-9] ^= 8
            array.write_bytes(changed if damage == "flipped" else whole[name][:-1])
        with pytest.raises(GraphError) as said:
            load_graph(out, verify=True)
        steps = re.findall(r"credalgnn (?:pack|check --repair [^ ,;]*)", str(said.value))
        assert steps[-1] == command[0]
        for step in steps:
            main([*step.split()[1:], *(command[1:] if step == command[0] else [])])
        assert "nothing to do" not in capsys.readouterr().out
        load_graph(out, verify=True)
        assert content(out) == whole


def test_two_commands_do_not_pack_into_one_folder(tmp_path: Path) -> None:
    nodes, edges = tables("in order")
    write_shards(tmp_path, "csv", nodes=nodes, edges=edges)
    lock = Lock(tmp_path / "graph.cg.part" / ".lock")
    assert lock.take()
    with pytest.raises(GraphError, match=r"graph\.cg: another command is packing it now; wait for it"):
        pack(tmp_path / "nodes", tmp_path / "edges", tmp_path / "graph.cg")
    lock.free()
    pack(tmp_path / "nodes", tmp_path / "edges", tmp_path / "graph.cg")


def test_what_another_command_has_packed_meanwhile_is_not_packed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes, edges = tables("in order")
    write_shards(tmp_path, "csv", nodes=nodes, edges=edges)
    arguments, real = (tmp_path / "nodes", tmp_path / "edges", tmp_path / "graph.cg"), fcntl.flock

    def flock(handle: int, how: int) -> None:
        """Another command packs all while this one has opened the file of the lock, and holds no lock yet."""
        monkeypatch.setattr(fcntl, "flock", real)
        assert pack(*arguments).seconds
        real(handle, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    assert pack(*arguments).seconds == {}
    assert not (tmp_path / "graph.cg.part").exists()


def test_tables_that_have_changed_since_are_read_again(tmp_path: Path) -> None:
    nodes, edges = tables("numbers")
    write_shards(tmp_path, "csv", nodes=nodes, edges=edges)
    arguments = (tmp_path / "nodes", tmp_path / "edges", tmp_path / "graph.cg")
    with pytest.raises(KeyboardInterrupt):
        pack(*arguments, progress=stopping(("edges", 1)))
    column = nodes.column_names.index("size")
    changed = nodes.set_column(column, "size", pa.array(np.arange(NODES, dtype=np.float32)))
    cut = NODES // 7
    write(changed.slice(0, cut), tmp_path / "nodes" / "part-0.csv")
    pack(*arguments)
    assert load_graph(tmp_path / "graph.cg").rows(slice(0, cut))[:, 0].tolist() == list(range(cut))


def test_a_journal_never_tells_of_the_files_of_other_tables(tmp_path: Path) -> None:
    """Some tables, stopped behind a shard; others, stopped within one that is longer; the first ones again."""
    nodes, edges = tables("in order")
    write_shards(tmp_path, "parquet", nodes=nodes, edges=edges)
    first, out = (tmp_path / "nodes", tmp_path / "edges"), tmp_path / "graph.cg"
    pack(*first, tmp_path / "whole.cg")
    others = tmp_path / "others"
    column = nodes.column_names.index("size")
    other = nodes.set_column(column, "size", pa.array(np.full(NODES, 7.0, np.float32)))
    broken = other.set_column(column + 1, "age", pa.array([1.0] * (NODES - 1) + [float("inf")]))
    write_shards(others, "parquet", nodes=broken, edges=edges)
    with pytest.raises(KeyboardInterrupt):
        pack(*first, out, progress=stopping(("nodes", 1)))
    with pytest.raises(GraphError, match="row 199 is inf"):
        pack(others / "nodes.parquet", others / "edges.parquet", out)
    pack(*first, out)
    assert content(out) == content(tmp_path / "whole.cg")


def test_what_is_left_of_a_packing_goes_with_the_same_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is stopped while it clears; a graph that was replaced when a process was killed goes, too."""
    nodes, edges = tables("in order")
    write_shards(tmp_path, "parquet", nodes=nodes, edges=edges)
    arguments = (tmp_path / "nodes", tmp_path / "edges", tmp_path / "made" / "graph.cg")
    with monkeypatch.context() as patch:
        patch.setattr("credalgnn.graphs.packing.replaced", interrupted)
        with pytest.raises(KeyboardInterrupt):
            pack(*arguments)
    Graph([[1.0], [2.0]], [[0], [1]]).pack(tmp_path / "old.cg")
    (tmp_path / "old.cg").rename(tmp_path / "made" / ".graph.cg.4711.old")
    (tmp_path / "made" / ".other.cg.4711.old").mkdir()
    assert sorted(os.listdir(arguments[2].parent)) == [
        ".graph.cg.4711.old", ".other.cg.4711.old", "graph.cg", "graph.cg.part",
    ]  # fmt: skip
    assert pack(*arguments).seconds == {}
    assert sorted(os.listdir(arguments[2].parent)) == [".other.cg.4711.old", "graph.cg"]


def test_what_is_kept_for_other_tables_stays_while_there_is_nothing_to_do(tmp_path: Path) -> None:
    nodes, edges = tables("in order")
    write_shards(tmp_path, "parquet", nodes=nodes, edges=edges)
    out = tmp_path / "graph.cg"
    pack(tmp_path / "nodes", tmp_path / "edges", out)
    with pytest.warns(GraphWarning, match="will be replaced"), pytest.raises(KeyboardInterrupt):
        pack(tmp_path / "nodes.parquet", tmp_path / "edges", out, progress=stopping(("edges", 1)))
    assert pack(tmp_path / "nodes", tmp_path / "edges", out).seconds == {}
    assert (out.with_name("graph.cg.part") / "journal.json").exists()


def test_a_graph_that_cannot_be_opened_now_is_neither_damaged_nor_packed_again(tmp_path: Path) -> None:
    nodes, edges = tables("in order")
    write_shards(tmp_path, "parquet", nodes=nodes, edges=edges)
    arguments = (tmp_path / "nodes", tmp_path / "edges", tmp_path / "graph.cg")
    pack(*arguments)
    with (
        few_files(3),
        pytest.raises(GraphError, match=r"cannot be opened \(Too many open files\); close other files, or allow"),
    ):
        pack(*arguments)
    assert pack(*arguments).seconds == {}


def test_who_goes_on_over_wrong_tables_learns_that_what_was_kept_may_be_damaged(tmp_path: Path) -> None:
    nodes, edges = tables("text")
    write_shards(tmp_path, "parquet", nodes=nodes, edges=edges)
    arguments = (tmp_path / "nodes", tmp_path / "edges", tmp_path / "graph.cg")
    with pytest.raises(KeyboardInterrupt):
        pack(*arguments, progress=stopping(("edges", 3)))
    keys = tmp_path / "graph.cg.part" / "work" / "source_keys.npy"
    damaged = bytearray(keys.read_bytes())
    damaged[200] ^= 8
    keys.write_bytes(damaged)
    with pytest.raises(
        GraphError, match=r"is not the id of a node.* temporary files are damaged: remove (.*)$"
    ) as said:
        pack(*arguments)
    shutil.rmtree(str(said.value).rsplit("remove ", 1)[1])
    pack(*arguments)
    assert load_graph(arguments[2], verify=True).num_edges == EDGES


def with_cell(table: pa.Table, column: str, row: int, value: Any, kind: Any = None) -> pa.Table:
    values = table[column].to_pylist()
    values[row] = value
    return table.set_column(table.column_names.index(column), column, pa.array(values, kind))


WRONG = {
    "unknown node": (
        "edges",
        "target",
        1000,
        "nobody",
        r"edges/part-2.parquet, row 250: target 'nobody' is not the id",
    ),
    "doubled id": ("nodes", "id", 150, None, r"node id nö-\d+ occurs twice, in .*part-0.parquet, row 3 and .*, row 50"),
    "missing id": ("nodes", "id", 100, "", r"part-2.parquet, column id: row 0 has no id"),
    "not finite": ("nodes", "size", 30, float("inf"), r"part-1.parquet, column size: row 2 is inf; fill or drop"),
    "empty": ("nodes", "age", 199, None, r"part-2.parquet, column age: row 99 is empty; fill or drop"),
}


@pytest.mark.parametrize("case", list(WRONG))
def test_what_is_wrong_is_named_with_its_file_and_row(case: str, tmp_path: Path) -> None:
    role, column, row, value, message = WRONG[case]
    given = dict(zip(("nodes", "edges"), tables("text"), strict=True))
    if case == "doubled id":
        value = given["nodes"]["id"][3].as_py()
    given[role] = with_cell(given[role], column, row, value, given[role][column].type)
    write_shards(tmp_path, "parquet", **given)
    with pytest.raises(GraphError, match=message):
        pack(tmp_path / "nodes", tmp_path / "edges", tmp_path / "graph.cg")
    assert not (tmp_path / "graph.cg").exists()


def test_an_edge_that_ends_at_no_node_is_found_behind_long_numbers(tmp_path: Path) -> None:
    write_lines(tmp_path / "nodes.csv", ["id,label,size", "1234567890123456789,a,1", "5,b,2"])
    write_lines(tmp_path / "edges.csv", ["source,target", "1234567890123456789,5", "xyz,5", "5,5"])
    with pytest.raises(GraphError, match=r"edges.csv, row 1: source 'xyz' is not the id of a node"):
        pack(tmp_path / "nodes.csv", tmp_path / "edges.csv", tmp_path / "graph.cg")


@pytest.mark.parametrize("ends", [("source", "target"), ("src", "dst")])
def test_numbers_in_a_text_file_are_texts_where_those_of_edges_are(ends: tuple[str, str], tmp_path: Path) -> None:
    write_lines(tmp_path / "nodes.csv", ["id,label,size", "1,a,1", "2,b,2"])
    write(pa.table({ends[0]: ["1"], ends[1]: ["2"]}), tmp_path / "edges.parquet")
    pack(tmp_path / "nodes.csv", tmp_path / "edges.parquet", tmp_path / "graph.cg")
    graph = load_graph(tmp_path / "graph.cg")
    assert graph.node_ids is not None
    assert graph.node_ids.tolist() == ["1", "2"]
    assert graph.edge_index.tolist() == [[0], [1]]


def test_buckets_are_no_more_than_files_may_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each would hold one edge or two; and where a system allows fewer files, that is what is said."""
    nodes, edges = tables("in order")
    write_shards(tmp_path, "parquet", nodes=nodes, edges=edges)
    arguments = (tmp_path / "nodes", tmp_path / "edges", tmp_path / "graph.cg")
    monkeypatch.setattr("credalgnn.graphs._pack_edges.EDGE_BYTES", 1 << 19)
    monkeypatch.setattr("credalgnn.graphs._pack_edges.MOST_BUCKETS", 64)
    totals = {}
    with pytest.warns(GraphWarning, match="for which the memory allowed is too little"):
        pack(*arguments, memory="1MiB", progress=lambda stage, done, total: totals.update({stage: total}))
    assert 32 <= totals["sort"] < 64
    shutil.rmtree(arguments[2])
    with (
        few_files(16),
        pytest.warns(GraphWarning, match="too little"),
        pytest.raises(GraphError, match=r"\(Too many open files\); close other files, or allow more .*: ulimit -n$"),
    ):
        pack(*arguments, memory="1MiB")


def test_what_a_killed_process_of_the_same_number_has_left_is_in_nobodys_way(tmp_path: Path) -> None:
    graph = Graph([[1.0], [2.0]], [[0], [1]])
    graph.pack(tmp_path / "graph.cg")
    old = tmp_path / f".graph.cg.{os.getpid()}.old"
    old.mkdir()
    (old / "labels.npy").touch()
    graph.pack(tmp_path / "graph.cg")
    assert os.listdir(tmp_path) == ["graph.cg"]


def test_columns_that_cannot_be_used_are_refused(tmp_path: Path) -> None:
    nodes, edges = tables("in order", weights=True)
    write_shards(tmp_path, "parquet", nodes=nodes.append_column("name", pa.array(["x"] * NODES)), edges=edges)
    arguments = (tmp_path / "nodes", tmp_path / "edges", tmp_path / "graph.cg")
    for options, message in (
        ({}, "column name holds text, not numbers; name the features"),
        ({"id": "key"}, "there is no column 'key'; the columns are id, label"),
        ({"label": "size", "features": ["age"]}, r"column size: row 0 is .*; labels are classes"),
        ({"features": ["size"], "source": "from"}, "there is no column 'from'"),
        ({"features": ["size"], "dtype": "int8"}, "dtype must be float32 or float16"),
        ({"features": ["size"], "memory": "4 elephants"}, "is no size of memory: say 4GiB"),
        ({"features": ["size", "id"]}, "column id cannot be a feature"),
    ):
        with pytest.raises(GraphError, match=message):
            pack(*arguments, **options)
    with pytest.raises(GraphError, match=r"no column 'class'.*, or say that there are no .* label=None$"):
        pack(*arguments, label="class")
    (tmp_path / "other.cg").mkdir()
    (tmp_path / "other.cg" / "thesis.tex").touch()
    with pytest.raises(GraphError, match="a folder with something else in it"):
        pack(tmp_path / "nodes", tmp_path / "edges", tmp_path / "other.cg", features=["size"])


@pytest.mark.parametrize("place", [".", "..", "/", "nodes/.."])
def test_a_place_without_a_name_is_refused(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes, edges = tables("in order")
    write_shards(tmp_path / "tables", "csv", nodes=nodes, edges=edges)
    (tmp_path / "empty" / "nodes").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "empty")
    assert main(["pack", "../tables/nodes.csv", "../tables/edges.csv", "--out", place]) == 2
    line = f"{Path(place)}: the folder to make needs a name of its own, as in {Path(place) / 'graph.cg'}"
    assert capsys.readouterr().err == f"credalgnn: {line}\n"
    with pytest.raises(GraphError, match="needs a name of its own"):
        Graph([[1.0], [2.0]], [[0], [1]]).pack(place)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes, edges = tables("text")
    write_shards(tmp_path, "parquet", nodes=nodes, edges=edges)
    out = str(tmp_path / "graph.cg")
    command = ["pack", str(tmp_path / "nodes"), str(tmp_path / "edges"), "--out", out, "--memory", "64MiB"]
    assert main(command) == 0
    said = capsys.readouterr()
    assert "nodes      200\nedges      1,500\n" in said.out
    assert "[1/1] sort\n" in said.err
    assert main(["describe", out]) == 0
    assert "1,500 directed" in capsys.readouterr().out
    Path(out).rename(other := str(tmp_path / "graph"))  # a packed graph whatever its folder is called
    assert main(["describe", other]) == 0
    assert "1,500 directed" in capsys.readouterr().out
    Path(other).rename(out)
    assert main(["describe", out, "--ood-classes", "cat", "--split-seed", "1"]) == 2  # one class stays
    assert "a classifier needs 2 or more" in capsys.readouterr().err
    assert main(["check", out]) == 0
    assert main([*command[:1], str(tmp_path / "nowhere"), *command[2:]]) == 2
    assert capsys.readouterr().err == f"credalgnn: {tmp_path / 'nowhere'}: no such file or folder of nodes\n"
