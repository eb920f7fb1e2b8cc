"""Packed graphs: opened, not loaded, and used like any other; damage is found, and said in one line."""

from __future__ import annotations

import json
import os
import pickle
import resource
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from credalgnn.cli import main
from credalgnn.graphs import Graph, GraphError, Split, Task, TrainingView, load_graph, local_homophily, read_source
from credalgnn.graphs.edges import MANY, Edges
from credalgnn.graphs.packed import PackedGraph
from credalgnn.runtime.files import to_json
from credalgnn.runtime.memory import available_memory, in_units, parse_memory, temporary_folder

COUNT, LINKS = 300, 2000


def graph_of(sparse: bool = False, weights: bool = True, ids: str = "text") -> Graph:
    """Edges by their target, as a packed graph has them, so that both are the same graph."""
    torch.manual_seed(0)
    features = torch.bernoulli(torch.full((COUNT, 40), 0.05)) if sparse else torch.randn(COUNT, 6)
    edges = torch.randint(0, COUNT - 5, (2, LINKS))
    edges = edges[:, edges[1].argsort(stable=True)]
    names: Any = {"text": [f"n-{k}" for k in range(COUNT)], "numbers": np.arange(COUNT) * 3, "none": None}[ids]
    return Graph(
        features, edges, torch.randint(-1, 4, (COUNT,)), names, ["a", "b", "c", "d"],
        feature_names=[f"f{k}" for k in range(features.shape[1])], edge_weight=torch.rand(LINKS) if weights else None,
    )  # fmt: skip


@pytest.fixture(params=[False, True], ids=["dense", "sparse"])
def both(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Graph, Graph]:
    graph = graph_of(sparse=request.param)
    return graph, graph.pack(tmp_path / "graph.cg")


def test_a_packed_graph_is_the_graph(both: tuple[Graph, Graph]) -> None:
    graph, packed = both
    assert isinstance(packed, PackedGraph)
    assert (packed.path is not None, graph.path) == (True, None)
    assert packed.in_memory().fingerprint == graph.fingerprint  # of all fields, by the old hash
    assert packed.describe() == graph.describe()
    assert packed.num_pairs == graph.num_pairs
    np.testing.assert_array_equal(local_homophily(packed), local_homophily(graph))
    assert repr(packed) == repr(graph)
    nodes = torch.tensor([7, 299, 0, 7])
    for chosen in (nodes, slice(None), slice(13, 50), slice(10, 10)):
        ours, theirs = packed.rows(chosen), graph.rows(chosen)
        assert ours.dtype == torch.float32
        assert ours.layout == theirs.layout == graph.features.layout
        wanted = graph.features.to_dense()[chosen]
        assert torch.equal(ours.to_dense(), wanted)
        assert torch.equal(theirs.to_dense(), wanted)


def test_a_subgraph_is_that_of_the_graph(both: tuple[Graph, Graph]) -> None:
    graph, packed = both
    for nodes in (torch.arange(COUNT).flip(0)[:77], torch.arange(COUNT) % 2 == 0, list(range(150, 20, -1))):
        assert packed.subgraph(nodes).fingerprint == graph.subgraph(nodes).fingerprint
    with pytest.raises(GraphError, match="node 3 occurs twice"):
        packed.subgraph([3, 3])


def test_tasks_leave_features_and_edges_where_they_are(both: tuple[Graph, Graph]) -> None:
    graph, packed = both
    task, ours = Task.leave_out(graph, "a"), Task.leave_out(packed, "a")
    assert isinstance(ours.training.graph, PackedGraph)
    assert ours.training.graph.in_edges.sources.data_ptr() == packed.in_edges.sources.data_ptr()
    assert not len(packed.derived)
    assert ours.counts == task.counts
    assert torch.equal(ours.training.graph.labels, task.training.graph.labels)
    inside = Task.leave_out(packed, "a", inductive=True).training
    assert inside.graph.fingerprint == Task.leave_out(graph, "a", inductive=True).training.graph.fingerprint
    known = (packed.labels >= 0).nonzero().squeeze(-1)
    assert isinstance(TrainingView.of_graph(packed, known[:9], known[9:20]).graph, PackedGraph)
    noisy = ours.feature_noise(0.5).graph
    assert torch.equal(noisy.features.to_dense(), task.feature_noise(0.5).graph.features.to_dense())
    assert torch.equal(ours.rewired(0.5).graph.edge_index, task.rewired(0.5).graph.edge_index)


def test_what_changes_a_graph_works_where_it_fits(
    both: tuple[Graph, Graph], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, packed = both
    row = torch.zeros(1, graph.num_features)
    changes = {
        "with_nodes": lambda g: g.with_nodes(row, [[0], [COUNT]], node_ids=["new"], edge_weight=[1.0]),
        "select": lambda g: g.select_features(["f3", "f1"]),
        "edges": lambda g: g.replace(edge_index=[[0], [1]]),
    }
    for change in changes.values():
        assert change(packed).fingerprint == change(graph).fingerprint
    packed.save(tmp_path / "graph.npz")
    assert load_graph(tmp_path / "graph.npz").fingerprint == graph.fingerprint
    monkeypatch.setattr("credalgnn.graphs.packed.available_memory", lambda: 1000)
    packed = load_graph(packed.path)  # type: ignore[arg-type]
    for wants in (
        *changes.values(),
        lambda g: g.edge_index,
        lambda g: g.save("x.npz"),
        lambda g: g.subgraph(range(99)),
    ):
        message = r"graph\.cg: .* would take .*iB of memory, and 1000 bytes are left; \w+"
        with pytest.raises(GraphError, match=message) as said:
            wants(packed)
        assert "\n" not in str(said.value)


def test_labels_are_replaced_without_touching_the_files(both: tuple[Graph, Graph]) -> None:
    _, packed = both
    other = packed.replace(labels=torch.zeros(COUNT, dtype=torch.int64))
    assert isinstance(other, PackedGraph)
    assert other.content == packed.content
    assert other.fingerprint != packed.fingerprint
    assert other.replace(labels=packed.labels).fingerprint == packed.fingerprint
    assert packed.replace(class_names=["a", "b", "c", "x"]).fingerprint != packed.fingerprint
    assert packed.replace(node_ids=np.arange(COUNT)).fingerprint != packed.fingerprint
    bare = packed.unweighted()
    assert bare.edge_weight is None
    assert bare.content != packed.content


def test_another_process_opens_the_files_again(both: tuple[Graph, Graph]) -> None:
    _, packed = both
    assert packed.path is not None
    changed = packed.replace(labels=torch.zeros(COUNT, dtype=torch.int64)).unweighted()
    sent = pickle.dumps(changed)
    assert len(sent) < 8 * COUNT + 3000  # the labels, and no features or edges
    assert pickle.loads(sent).fingerprint == changed.fingerprint
    graph_of(sparse=packed.features.layout != torch.strided).replace(edge_index=[[0], [1]]).pack(packed.path)
    with pytest.raises(GraphError, match="another graph has been packed here since"):
        pickle.loads(sent)
    assert packed.describe().edges == LINKS  # who has it open keeps the old files


@pytest.mark.parametrize("ids", ["text", "numbers", "none"])
def test_paths_of_packed_graphs_are_graphs(ids: str, tmp_path: Path) -> None:
    graph = graph_of(ids=ids)
    packed = graph.pack(tmp_path / "my.cg", dtype="float16")
    assert packed.features.dtype == torch.float16
    assert torch.equal(packed.rows(slice(None)), graph.features.half().float())
    assert load_graph(tmp_path / "my.cg").fingerprint == packed.fingerprint
    assert read_source(tmp_path / "my.cg").graph.fingerprint == packed.fingerprint  # type: ignore[union-attr]
    ours, theirs = packed.node_ids, graph.node_ids
    assert (ours is None) == (theirs is None) == (ids == "none")
    if ours is not None and theirs is not None:
        assert ours.tolist() == theirs.tolist()


def test_numbers_that_float16_cannot_hold_are_refused(tmp_path: Path) -> None:
    graph = Graph([[1e6], [1.0]], [[0], [1]])
    with pytest.raises(GraphError, match="beyond what float16 can hold"):
        graph.pack(tmp_path / "graph.cg", dtype="float16")
    assert list(tmp_path.iterdir()) == []


FILES = ["graph.json", "labels.npy", "starts.npy", "sources.npy", "weights.npy", "node_ids.npy"]
DENSE, SPARSE = [*FILES, "features.npy"], [*FILES, "feature_starts.npy", "feature_columns.npy", "feature_values.npy"]


@pytest.mark.parametrize("place", ["begin", "middle", "end", "cut", "longer", "gone"])
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_damage_is_found_wherever_it_is(
    sparse: bool, place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "graph.cg"
    graph_of(sparse).pack(folder)
    assert sorted(path.name for path in folder.iterdir()) == sorted(SPARSE if sparse else DENSE)
    for path in sorted(folder.iterdir()):
        whole = path.read_bytes()
        damaged = bytearray(whole)
        if place in ("begin", "middle", "end"):
            damaged[{"begin": 40, "middle": len(whole) // 2, "end": len(whole) - 2}[place]] ^= 16
        path.write_bytes({"cut": whole[:-1], "longer": whole + b"\0"}.get(place, bytes(damaged)))
        if place == "gone":
            path.unlink()
        with pytest.raises(
            GraphError, match=r"graph\.cg: .*; (pack it again: credalgnn (pack|check)|the same credalgnn pack)"
        ) as said:
            load_graph(folder, verify=True)
        assert "\n" not in str(said.value)
        assert path.name.removesuffix(".npy") in str(said.value)
        if place not in ("middle", "end"):  # sizes and first bytes are looked at without reading all
            with pytest.raises(GraphError):
                load_graph(folder)
        assert main(["check", str(folder)]) == 1
        assert path.name in capsys.readouterr().out
        path.write_bytes(whole)
    assert main(["check", str(folder)]) == 0
    load_graph(folder, verify=True)


@pytest.mark.parametrize(
    ("name", "number"), [("sources", COUNT), ("sources", -1), ("starts", LINKS + 1), ("starts", -1), ("starts", 0)]
)
def test_numbers_that_lead_elsewhere_are_followed_by_nobody(name: str, number: int, tmp_path: Path) -> None:
    """They have the right size, so that only who reads them finds them."""
    graph_of().pack(tmp_path / "graph.cg")
    damaged = np.lib.format.open_memmap(tmp_path / "graph.cg" / f"{name}.npy", "r+")
    damaged[200] = number
    damaged.flush()
    packed = load_graph(tmp_path / "graph.cg")
    for follow in (
        lambda: packed.describe(),
        lambda: local_homophily(packed),
        lambda: packed.num_pairs,
        lambda: packed.edge_index,
        lambda: packed.subgraph(range(COUNT)),
    ):
        with pytest.raises(GraphError, match=r"damaged.*credalgnn check --repair") as said:
            follow()
        assert "\n" not in str(said.value)


@pytest.mark.parametrize(
    ("name", "number"), [("columns", 40), ("columns", -1), ("starts", 0), ("starts", -1), ("starts", 1 << 30)]
)
def test_sparse_numbers_that_lead_elsewhere_are_followed_by_nobody(name: str, number: int, tmp_path: Path) -> None:
    graph_of(sparse=True).pack(tmp_path / "graph.cg")
    damaged = np.lib.format.open_memmap(tmp_path / "graph.cg" / f"feature_{name}.npy", "r+")
    damaged[200] = number
    damaged.flush()
    packed = load_graph(tmp_path / "graph.cg")
    for nodes in (slice(None), slice(0, 200), torch.arange(COUNT)):
        with pytest.raises(GraphError, match=r"the graph is damaged: .*; credalgnn check --repair GRAPH, then pack it"):
            packed.rows(nodes)


def test_what_is_no_packed_graph_is_refused(tmp_path: Path) -> None:
    graph_of().pack(tmp_path / "graph.cg")
    header = tmp_path / "graph.cg" / "graph.json"
    head = json.loads(header.read_text())

    def arrays(**changes: Any) -> dict[str, Any]:
        return {**head, "arrays": {**head["arrays"], **changes}}

    lies = {
        "packed by another version": {**head, "format": 99},
        "it does not say what it should": {**head, "nodes": -1},
        "names other arrays": arrays(**{"../../etc/passwd": {"dtype": "<i8", "shape": [1]}}),
        "says that sources is": arrays(sources={**head["arrays"]["sources"], "dtype": "|O"}),
        "says that weights is": arrays(weights={**head["arrays"]["weights"], "shape": [1 << 60]}),
        "contradicts itself": {**head, "content": "0" * 32},
        "a class that has no name": {**head, "class_names": ["a"]},
    }
    for message, lie in lies.items():
        header.write_bytes(to_json(lie))
        with pytest.raises(GraphError, match=message):
            load_graph(header.parent)
    (tmp_path / "file.cg").touch()
    for name, message in (("nowhere.cg", "no such folder"), ("file.cg", "a file, and not the folder")):
        with pytest.raises(GraphError, match=f"{name}: {message}.*credalgnn pack makes one"):
            load_graph(tmp_path / name)


def test_what_may_not_be_read_is_not_called_damaged() -> None:
    with tempfile.TemporaryDirectory() as name:  # pytest's folders are closed to all but their owner
        folder = Path(name) / "graph.cg"
        graph_of().pack(folder)
        Path(name).chmod(0o755)
        user = os.geteuid()
        for file in ("sources.npy", "graph.json"):
            (folder / file).chmod(0)
            os.seteuid(user or 65534)  # root may read anything
            try:
                if not os.access(name, os.X_OK, effective_ids=True):
                    pytest.skip("TMPDIR lies in a folder that is closed to all but its owner")
                with pytest.raises(GraphError) as said:
                    load_graph(folder)
            finally:
                os.seteuid(user)
            line = f"{folder}: {file} cannot be opened (Permission denied); get the right to read it from who owns it"
            assert str(said.value) == line


def test_too_many_open_files_are_not_called_damage(tmp_path: Path) -> None:
    graph_of().pack(tmp_path / "graph.cg")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    os.close(free := os.open(tmp_path, os.O_RDONLY))
    resource.setrlimit(resource.RLIMIT_NOFILE, (free + 3, before[1]))
    try:
        with pytest.raises(GraphError, match=r"npy cannot be opened \(Too many open files\); .*: ulimit -n$"):
            load_graph(tmp_path / "graph.cg")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    load_graph(tmp_path / "graph.cg", verify=True)


def resident() -> int:
    return int(
        next(line for line in Path("/proc/self/status").read_text().splitlines() if "RssFile" in line).split()[1]
    )


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no /proc")
def test_release_gives_memory_back(tmp_path: Path) -> None:
    features = torch.randn(40_000, 256)  # 39 MiB
    packed = Graph(features, [[0], [1]]).pack(tmp_path / "graph.cg")
    packed.release()
    before = resident()
    assert float(packed.features.sum()) == pytest.approx(float(features.sum()), abs=1.0)
    assert resident() - before > 35_000
    packed.release()
    assert resident() - before < 4_000
    assert torch.equal(packed.rows(slice(5, 9)), features[5:9])  # read again


def test_many_edges_are_sorted_as_few_are() -> None:
    torch.manual_seed(0)
    edges, weights = torch.randint(0, 5000, (2, MANY + 5)), torch.rand(MANY + 5)
    by_counting = Edges.of(edges, 5000, weights)
    order = torch.argsort(edges[1], stable=True)
    assert torch.equal(by_counting.sources.long(), edges[0][order])
    assert by_counting.weights is not None
    assert torch.equal(by_counting.weights, weights[order])
    assert torch.equal(by_counting.targets(0, 5000), edges[1][order])
    assert torch.equal(Edges.of(edges, 5000).sources, by_counting.sources)
    ranges = list(by_counting.chunks(999))
    assert ranges[0][0] == 0
    assert ranges[-1][1] == 5000
    assert all(a[1] == b[0] for a, b in pairwise(ranges))


def test_directions_and_duplicates_are_told_by_one_pass() -> None:
    """Against sets of pairs; rows longer and shorter than those that are sorted in place."""
    rng = np.random.default_rng(0)
    for count, links, both_ways in ((30, 2000, True), (30, 2000, False), (400, 900, True), (400, 900, False)):
        edges = rng.integers(0, count, (2, links))
        edges = np.concatenate([edges, edges[::-1]], 1) if both_ways else edges
        pairs = {(int(a), int(b)) for a, b in edges.T}
        graph = Graph(np.ones((count, 1)), edges, rng.integers(-1, 3, count))
        found = graph.describe()
        assert found.directed == (pairs != {(b, a) for a, b in pairs})
        assert found.duplicate_edges == edges.shape[1] - len(pairs)
        assert found.self_loops == int((edges[0] == edges[1]).sum())
        assert graph.num_pairs == len({tuple(sorted(pair)) for pair in pairs})
        assert found.isolated == count - len({node for pair in pairs for node in pair})
    almost = np.concatenate([edges, edges[::-1]], 1)[:, :-1]
    assert Graph(np.ones((400, 1)), np.unique(almost, axis=1)[:, 1:], None).describe().directed


def test_parts_that_overlap_are_named() -> None:
    with pytest.raises(GraphError, match="split: node 7 is in both train and test"):
        Split(torch.tensor([1, 9, 7]), torch.tensor([2]), torch.tensor([10**12, 7]))


def test_sizes_of_memory() -> None:
    assert [parse_memory(text) for text in ("4GiB", "4 gib", "500MB", "2G", "1.5MiB", 1 << 21)] == [
        4 << 30, 4 << 30, 500_000_000, 2 << 30, 3 << 19, 1 << 21,
    ]  # fmt: skip
    for text in ("", "GiB", "4 elephants", "-1GiB", "1e9", "10", 0, True, "9" * 400):
        with pytest.raises(ValueError, match=r"memory|too little"):
            parse_memory(text)
    assert parse_memory(None) == pytest.approx(available_memory(), rel=0.5)
    assert [in_units(size) for size in (12, 1536, 4 << 30)] == ["12 bytes", "1.5 KiB", "4.0 GiB"]


def test_temporary_files_do_not_go_to_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text("disk / ext4 rw 0 0\ntmpfs /tmp tmpfs rw 0 0\nnone /tmp/deep ext4 rw 0 0\n")
    for name in ("TMPDIR", "TEMP", "TMP"):
        monkeypatch.delenv(name, raising=False)
    for folder, chosen in (("/tmp", "/var/tmp"), ("/tmp/some", "/var/tmp"), ("/tmp/deep", "/tmp/deep"), ("/a", "/a")):
        monkeypatch.setattr("tempfile.tempdir", folder)
        assert temporary_folder(mounts) == Path(chosen)
    monkeypatch.setattr("tempfile.tempdir", "/tmp")
    mounts.write_text("disk / ext4 rw 0 0\ntmpfs /tmp tmpfs rw 0 0\ntmpfs /var/tmp tmpfs rw 0 0\n")
    assert temporary_folder(mounts) == Path("/tmp")  # nothing would be won
    assert temporary_folder(tmp_path / "nowhere") == Path("/tmp")  # a system that does not tell
    mounts.write_text("tmpfs /tmp tmpfs rw 0 0\n")
    monkeypatch.setenv("TMPDIR", "/tmp")
    assert temporary_folder(mounts) == Path("/tmp")  # somebody wants it so
