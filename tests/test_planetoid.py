"""Cora, CiteSeer, PubMed and Computers: equal to PyG's on the real files, and pickles that can do no harm."""

from __future__ import annotations

import os
import pickle
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from credalgnn.cli import main
from credalgnn.graphs import DATASETS, GraphError, Task, load_graph, load_task
from credalgnn.graphs.datasets.planetoid import PARTS, read_planetoid
from pyg import Amazon, Planetoid
from raw_planetoid import CLASSES, FIRST_TEST, NODES, Name, python2, write_gnn_benchmark, write_planetoid

MIRROR = Path(os.environ.get("CREDALGNN_MIRROR") or Path(__file__).parents[2] / "shared" / "datasets")
needs_mirror = pytest.mark.skipif(not MIRROR.is_dir(), reason="needs the raw files: set CREDALGNN_MIRROR")
READ = ("tx", "allx", "ty", "ally", "graph", "test.index")


@pytest.fixture(autouse=True)
def _no_surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CREDALGNN_MIRROR", raising=False)
    monkeypatch.setenv("CREDALGNN_DATA", str(tmp_path / "default-cache"))


@pytest.fixture
def any_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    """Made files have other sums than the real ones."""
    for name in ("cora", "citeseer", "computers"):
        files = DATASETS[name].files
        for relative, file in list(files.items()):
            monkeypatch.setitem(files, relative, replace(file, size=None, sha256=None))


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    write_planetoid(tmp_path)
    return tmp_path / "Cora" / "raw"


# the real files


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


# nodes, edges, features, classes; then the nodes of each class
REAL = {
    "cora": ("Cora", (2708, 10_556, 1433, 7), [351, 217, 418, 818, 426, 298, 180]),
    "citeseer": ("CiteSeer", (3327, 9104, 3703, 6), [249, 590, 668, 701, 596, 508]),
    "pubmed": ("PubMed", (19_717, 88_648, 500, 3), [4103, 7739, 7875]),
    "computers": ("Computers", (13_752, 491_722, 767, 10), [436, 2142, 1414, 542, 5158, 308, 487, 818, 2156, 291]),
}


@needs_mirror
@pytest.mark.parametrize("name", REAL)
def test_real_graphs_are_what_pyg_reads(name: str, cache: Path, tmp_path: Path) -> None:
    folder, sizes, counts = REAL[name]
    graph = load_graph(name, mirror=MIRROR, data_root=cache)
    assert (graph.num_nodes, graph.num_edges, graph.num_features, graph.num_classes) == sizes
    assert graph.features.layout == torch.sparse_csr
    (tmp_path / folder).mkdir()
    (tmp_path / folder / "raw").symlink_to(MIRROR / folder / "raw")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = (Amazon if name == "computers" else Planetoid)(str(tmp_path), folder)[0]
    assert torch.equal(graph.features.to_dense(), data.x)
    assert torch.equal(graph.edge_index, data.edge_index)
    told = graph.describe()
    assert list(told.class_counts.values()) == counts
    assert (told.self_loops, told.duplicate_edges, told.directed) == (0, 0, False)
    known = graph.labels >= 0
    assert torch.equal(graph.labels[known], data.y[known])
    assert DATASETS[name].published == (graph.num_nodes, graph.num_edges, graph.num_classes, "high")
    assert told.homophily > 0.7
    if name != "citeseer":
        assert known.all()
        return
    # PyG calls them isolated and of class 0, but they have neighbours, and nobody has said which class.
    unknown = (~known).nonzero().squeeze(-1)
    assert len(unknown) == told.empty_features == 15
    assert data.y[unknown].tolist() == [0] * 15
    assert torch.isin(unknown, graph.edge_index[0]).all()


@needs_mirror
@pytest.mark.parametrize(
    ("name", "left_out", "parts"),
    [
        ("cora", (0, 1, 2), (541, 543)),
        ("citeseer", (0, 1), (664, 666)),  # 665 in validation, but one without a label
        ("pubmed", (0,), (3943, 3944)),
        ("computers", (0, 1, 2), (2750, 2751)),
    ],
)
def test_real_tasks(name: str, left_out: tuple[int, ...], parts: tuple[int, int], cache: Path) -> None:
    task = load_task(name, mirror=MIRROR, data_root=cache)
    assert task.ood_classes == left_out
    assert min(task.counts.values()) > 100
    assert (len(task.validation.nodes), len(task.test.nodes)) == parts
    assert task.fingerprint == Task.leave_out(task.graph, left_out).fingerprint  # a random split, not the public one
    assert load_task(name, 1, mirror=MIRROR, data_root=cache).fingerprint != task.fingerprint
    everyone = torch.cat([task.training.train, task.validation.nodes, task.test.nodes])
    assert (task.graph.labels[everyone] >= 0).all()


@needs_mirror
def test_computers_has_the_names_of_its_classes(cache: Path) -> None:
    task = load_task("computers", mirror=MIRROR, data_root=cache)
    assert task.graph.class_names[:3] == ("Desktops", "Data Storage", "Laptops")
    assert task.class_names[0] == "Monitors"


@needs_mirror
def test_describe_without_the_papers_counts(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["describe", "cora", "--mirror", str(MIRROR), "--data-root", str(cache)]) == 0
    text = capsys.readouterr().out
    assert "10,556" in text
    assert "left out        0, 1, 2" in text
    assert "paper" not in text


def test_the_listing_knows_their_sizes_without_any_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["datasets", "--data-root", str(tmp_path)]) == 0
    lines = {line.split()[0]: line.split()[1:6] for line in capsys.readouterr().out.splitlines() if line}
    for name, (_, (nodes, edges, _, classes), _) in REAL.items():
        assert lines[name] == [f"{nodes:,}", f"{edges:,}", str(classes), "high", "no"]


# made files


@pytest.mark.usefixtures("any_sums")
@pytest.mark.parametrize("protocol", [0, 2])
@pytest.mark.parametrize(("name", "folder", "skipped"), [("cora", "Cora", ()), ("citeseer", "CiteSeer", (44, 51, 52))])
def test_planetoids_files(name: str, folder: str, skipped: tuple[int, ...], protocol: int, tmp_path: Path) -> None:
    features, labels, edges = write_planetoid(tmp_path / "mirror", folder, skipped, protocol)
    where: dict[str, Any] = {"mirror": tmp_path / "mirror", "data_root": tmp_path / "data"}
    graph = load_graph(name, **where)
    assert (graph.num_nodes, graph.num_classes) == (NODES, CLASSES)
    assert np.array_equal(graph.features.to_dense(), features)
    assert graph.labels.tolist() == labels
    assert sorted(zip(*graph.edge_index.tolist(), strict=True)) == edges
    assert graph.describe().unlabelled == len(skipped)
    again = load_graph(name, **where)
    assert again.fingerprint == graph.fingerprint
    task = load_task(name, 3, **where)
    assert task.fingerprint == Task.leave_out(graph, DATASETS[name].ood_classes, split_seed=3).fingerprint


def test_arrays_by_columns_and_of_other_byte_orders(raw: Path) -> None:
    before = read_planetoid(raw, "cora")
    marks = np.eye(CLASSES)[before.labels[:FIRST_TEST]]
    for other in (np.asfortranarray(marks.astype("<i4")), marks.astype(">f8"), marks.astype("u1")):
        (raw / "ind.cora.ally").write_bytes(python2(other))
        assert read_planetoid(raw, "cora").fingerprint == before.fingerprint


@pytest.mark.usefixtures("any_sums")
def test_computers_from_gnn_benchmarks_file(tmp_path: Path) -> None:
    features, labels, edges = write_gnn_benchmark(tmp_path / "mirror")
    graph = load_graph("computers", mirror=tmp_path / "mirror", data_root=tmp_path / "data")
    assert np.array_equal(graph.features.to_dense(), features > 0)
    assert graph.labels.tolist() == labels.tolist()
    assert list(zip(*graph.edge_index.tolist(), strict=True)) == edges
    assert graph.class_names == tuple(f"goods {k}" for k in range(CLASSES))


# damaged and hostile files


@pytest.mark.parametrize("name", ["cora", "citeseer", "pubmed"])
def test_no_pickle_is_opened_whose_sum_is_not_the_expected(name: str, tmp_path: Path) -> None:
    folder = REAL[name][0]
    write_planetoid(tmp_path / "mirror", folder)
    with pytest.raises(GraphError, match=r"ind\.\w+\.x has .* bytes instead of"):
        load_graph(name, mirror=tmp_path / "mirror", data_root=tmp_path / "data")
    for part in PARTS:
        file = DATASETS[name].files[f"{folder}/raw/ind.{name}.{part}"]
        assert file.size is not None
        path = tmp_path / part
        path.write_bytes(bytes(file.size))
        with pytest.raises(GraphError, match="SHA-256 differs"):
            file.check(path)


@pytest.mark.usefixtures("any_sums")
@pytest.mark.parametrize("part", READ)
def test_a_damaged_file_is_named(part: str, tmp_path: Path) -> None:
    write_planetoid(tmp_path / "mirror")
    path = tmp_path / "mirror" / "Cora" / "raw" / f"ind.cora.{part}"
    whole = path.read_bytes()
    halves = [] if part == "test.index" else [whole[: len(whole) // 2], whole[:-1], b"", whole[::-1]]
    for broken in (*halves, b"no pickle\n", b"\xff\x00\xfe"):
        path.write_bytes(broken)
        with pytest.raises(GraphError, match=rf"\(ind\.cora\.{part} is not") as caught:
            load_graph("cora", mirror=tmp_path / "mirror", data_root=tmp_path / "data")
        assert str(path.parent) in str(caught.value)
        assert not list((tmp_path / "data").rglob("graph.npz*"))
    path.write_bytes(whole)
    load_graph("cora", mirror=tmp_path / "mirror", data_root=tmp_path / "data")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda lines: lines[:-1], "do not belong together"),
        (lambda lines: [], "do not belong together"),
        (lambda lines: [*lines[:-1], "0"], "do not belong together"),
        (lambda lines: [*lines[:-1], "-1"], "do not belong together"),
        (lambda lines: [*lines[:-1], str(NODES)], "do not belong together"),
        (lambda lines: [*lines[:-1], "1000000000000"], "do not belong together"),
        (lambda lines: [*lines[:-1], "9" * 30], "not a list of node numbers"),
        (lambda lines: [*lines[:-1], lines[0]], "names a node twice"),
    ],
)
def test_test_indices_that_cannot_be(change: Any, words: str, raw: Path) -> None:
    path = raw / "ind.cora.test.index"
    path.write_text("\n".join(change(path.read_text().split())))
    with pytest.raises(GraphError, match=words):
        read_planetoid(raw, "cora")


def matrix(**changes: Any) -> bytes:
    """A pickled matrix with parts that do not fit."""
    broken = sp.csr_matrix(np.eye(FIRST_TEST, 12, dtype=np.float32))
    for name, value in changes.items():
        setattr(broken, name, value)
    return python2(broken)


@pytest.mark.parametrize(
    ("part", "content"),
    [
        ("allx", matrix(indices=np.full(12, 10**6, np.int32))),  # scipy alone would read memory that is not its own
        ("allx", matrix(indices=np.full(12, -1, np.int32))),
        ("allx", matrix(indptr=np.full(FIRST_TEST + 1, 10**6, np.int32))),
        ("allx", matrix(data=np.ones(3, np.float32))),
        ("allx", matrix(_shape=(10**12, 12))),
        ("allx", python2(np.eye(FIRST_TEST))),
        ("ally", python2([[1, 0], [0, 1]])),
        ("ally", python2(sp.csr_matrix(np.eye(3)))),
        ("ally", python2(Name("numpy", "ndarray"))),
        ("ally", python2(np.zeros(3, "V8"))),
        ("graph", python2({0: 5})),
        ("graph", python2({0: ["one"]})),
        ("graph", python2({0: [2**70]})),
        ("graph", python2([0, 1])),
    ],
)
def test_content_that_does_not_fit_is_refused(part: str, content: bytes, raw: Path) -> None:
    (raw / f"ind.cora.{part}").write_bytes(content)
    with pytest.raises(GraphError, match=rf"ind\.cora\.{part} is not"):
        read_planetoid(raw, "cora")


def test_an_array_that_points_into_memory_is_refused(raw: Path) -> None:
    eye = python2(np.eye(FIRST_TEST, dtype=np.int64))
    assert b"i8" in eye
    (raw / "ind.cora.ally").write_bytes(eye.replace(b"U\x02i8", b"U\x02O8"))
    with pytest.raises(GraphError, match=r"ind\.cora\.ally is not .* type <O8"):
        read_planetoid(raw, "cora")


CALL = "__import__('pathlib').Path('{}').touch()"
HOSTILE = {  # each touches the file when a plain pickle.load reads it
    "global and reduce": "cos\nsystem\n(S'touch {file}'\ntR.",
    "instance": "(S'touch {file}'\nios\nsystem\n.",
    "object": "(cos\nsystem\nS'touch {file}'\no.",
    "Python 2's builtins": 'c__builtin__\neval\n(S"{call}"\ntR.',
    "names on the stack": '\x80\x04S"builtins"\nS"eval"\n\x93(S"{call}"\ntR.',
    "after something harmless": "ccollections\ndefaultdict\n(c__builtin__\nlist\ntR0cos\nsystem\n(S'touch {file}'\ntR.",
}


@pytest.mark.usefixtures("any_sums")
@pytest.mark.parametrize("way", HOSTILE)
@pytest.mark.parametrize("part", READ[:-1])
def test_a_hostile_pickle_runs_nothing(part: str, way: str, tmp_path: Path) -> None:
    touched = tmp_path / "touched"
    content = HOSTILE[way].format(file=touched, call=CALL.format(touched)).encode("latin1")
    pickle.loads(content, encoding="latin1")
    assert touched.exists()  # it would do harm
    touched.unlink()
    write_planetoid(tmp_path / "mirror")
    (tmp_path / "mirror" / "Cora" / "raw" / f"ind.cora.{part}").write_bytes(content)
    with pytest.raises(GraphError, match=rf"ind\.cora\.{part} is not a file of Planetoid: it asks for [\w.]+, which"):
        load_graph("cora", mirror=tmp_path / "mirror", data_root=tmp_path / "data")
    assert not touched.exists()
    assert not list((tmp_path / "data").rglob("graph.npz*"))


@pytest.mark.parametrize(
    "asked", ["numpy load", "numpy dtype.__base__", "numpy.core.multiarray scalar", "copy_reg _reconstructor"]
)
def test_only_the_names_of_the_real_files_are_known(asked: str, raw: Path) -> None:
    module, name = asked.split()
    (raw / "ind.cora.graph").write_bytes(python2(Name(module, name)))
    with pytest.raises(GraphError, match=f"asks for {module}.{name}"):
        read_planetoid(raw, "cora")


def test_a_pickle_that_writes_to_a_class_changes_nothing_for_the_next(raw: Path) -> None:
    before = read_planetoid(raw, "cora").fingerprint
    whole = (raw / "ind.cora.tx").read_bytes()
    for module, name in (("numpy", "dtype"), ("scipy.sparse.csr", "csr_matrix")):
        spoilt = b"\x80\x02" + Name(module, name).line + b"N}U\x0c__setstate__" + b"c__builtin__\nlist\ns\x86b."
        (raw / "ind.cora.tx").write_bytes(spoilt)
        with pytest.raises(GraphError, match=r"ind\.cora\.tx"):
            read_planetoid(raw, "cora")
    (raw / "ind.cora.tx").write_bytes(whole)
    assert read_planetoid(raw, "cora").fingerprint == before
