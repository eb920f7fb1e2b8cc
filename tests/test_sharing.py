"""Graphs for other processes, and copies of packed ones on machines that do not see them, whatever becomes of these."""

from __future__ import annotations

import os
import pickle
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from credalgnn.graphs import Graph, GraphError, csbm, load_graph
from credalgnn.graphs._packed_files import HEADER
from credalgnn.graphs.sharing import Fetch, from_handle, handle_of


def graph_of(sparse: bool, weighted: bool) -> Graph:
    graph = csbm(80, 3)
    weights = torch.rand(graph.num_edges, generator=torch.Generator().manual_seed(0)) if weighted else None
    features = (graph.features * (graph.features > 0)).to_sparse_csr() if sparse else graph.features
    return graph.replace(features=features, edge_weight=weights)


def check_same(one: Graph, two: Graph) -> None:
    assert torch.equal(one.labels, two.labels)
    assert one.class_names == two.class_names
    assert torch.equal(one.rows(slice(None)).to_dense(), two.rows(slice(None)).to_dense())
    for ours, theirs in zip(one.in_edges, two.in_edges, strict=True):
        assert (ours is None and theirs is None) or torch.equal(ours, theirs)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("packed", [False, True])
def test_a_graph_is_the_same_in_another_process(packed: bool, sparse: bool, weighted: bool, tmp_path: Path) -> None:
    """Where arrays cannot be written to, as those that Ray shares."""
    graph = graph_of(sparse, weighted)
    if packed:
        graph = graph.pack(tmp_path / "graph.cg")
    graph = graph.replace(labels=graph.labels.index_fill(0, torch.arange(20), -1))
    handle = handle_of(graph)
    for array in handle.arrays.values():
        array.flags.writeable = False
    check_same(from_handle(handle), graph)


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of temporary files of a machine that does not see the packed graph."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("credalgnn.runtime.memory.temporary_folder", lambda: folder)
    return folder


def reader(folder: Path, asked: list[str] | None = None) -> Fetch:
    """Reads the files where they really are, and writes down which."""

    def fetch(_: str, name: str, begin: int, size: int) -> bytes:
        if asked is not None:
            asked.append(name)
        return (folder / name).read_bytes()[begin : begin + size]

    return fetch


def test_a_copy_that_cannot_be_made_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("credalgnn.runtime.memory.temporary_folder", lambda: tmp_path / "missing")
    csbm(60, 3).pack(tmp_path / "graph.cg")
    handle = handle_of(load_graph(tmp_path / "graph.cg"))._replace(path=Path("/nowhere/graph.cg"))
    with pytest.raises(GraphError, match=r"/nowhere/graph.cg is not on .*, and cannot be copied to .*: free"):
        from_handle(handle, lambda *chunk: b"")
    (tmp_path / "missing").mkdir()
    with pytest.raises(GraphError, match="has become shorter while it was copied"):
        from_handle(handle, lambda *chunk: b"")
    with pytest.raises(GraphError, match="no such folder"):
        from_handle(handle)


def shorten(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda copy: (copy / "features.npy").unlink(), id="an array was cleaned away"),
        pytest.param(lambda copy: shorten(copy / "sources.npy"), id="an array is cut off"),
        pytest.param(lambda copy: (copy / HEADER).unlink(), id="the header was cleaned away"),
        pytest.param(lambda copy: shorten(copy / HEADER), id="the header is cut off"),
    ],
)
def test_a_damaged_copy_is_fetched_anew(damage: Callable[[Path], None], tmp_path: Path, temporary: Path) -> None:
    graph = csbm(60, 3).pack(tmp_path / "graph.cg")
    handle, asked = handle_of(graph)._replace(path=Path("/nowhere/graph.cg")), list[str]()
    fetch = reader(tmp_path / "graph.cg", asked)
    check_same(from_handle(handle, fetch), graph)
    times = len(asked)
    check_same(from_handle(handle, fetch), graph)
    assert len(asked) == times  # there already
    (copy,) = temporary.glob("*/*.cg")
    damage(copy)
    check_same(from_handle(handle, fetch), graph)
    assert len(asked) == 2 * times
    load_graph(copy, verify=True)
    assert not list(temporary.glob("*/*.half"))


@pytest.mark.parametrize("link", [True, False])
def test_a_folder_that_others_may_use_holds_no_copies(link: bool, tmp_path: Path, temporary: Path) -> None:
    handle = handle_of(csbm(60, 3).pack(tmp_path / "graph.cg"))._replace(path=Path("/nowhere/graph.cg"))
    folder, other = temporary / f"credalgnn-{os.getuid()}-graphs", tmp_path / "other"
    (other if link else folder).mkdir()
    if link:
        folder.symlink_to(other)
    (other if link else folder).chmod(0o700 if link else 0o770)
    line = f"cannot be copied to {folder} (a link, or open to others: remove it)"
    with pytest.raises(GraphError, match=re.escape(line)):
        from_handle(handle, reader(tmp_path / "graph.cg"))
    folder.unlink() if link else folder.rmdir()
    from_handle(handle, reader(tmp_path / "graph.cg"))
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_copy_of_the_same_features_and_edges_has_the_names_of_each_graph(tmp_path: Path, temporary: Path) -> None:
    graph = csbm(60, 3)
    names = [f"f{at}" for at in range(graph.num_features)]
    for path, given in ((tmp_path / "named.cg", graph.replace(feature_names=names)), (tmp_path / "bare.cg", graph)):
        packed = given.pack(path)
        for handle in (handle_of(packed), handle_of(packed)._replace(path=Path("/nowhere/graph.cg"))):
            copy = from_handle(handle, reader(path))
            for each in (copy, pickle.loads(pickle.dumps(copy))):
                assert (each.feature_names, each.fingerprint) == (given.feature_names, packed.fingerprint)


@pytest.mark.parametrize("there", ["half", "other", "file"])
def test_what_else_lies_at_the_same_place_here_is_left_alone(there: str, tmp_path: Path, temporary: Path) -> None:
    graph = csbm(60, 3).pack(tmp_path / "graph.cg")
    here = tmp_path / "here" / "graph.cg"
    here.parent.mkdir()
    if there == "half":
        shutil.copytree(tmp_path / "graph.cg", here)
        (here / HEADER).unlink()
    elif there == "other":
        csbm(60, 3, seed=1).pack(here)
    else:
        here.write_text("mine")
    before = {path: path.read_bytes() for path in here.parent.rglob("*") if path.is_file()}
    check_same(from_handle(handle_of(graph)._replace(path=here), reader(tmp_path / "graph.cg")), graph)
    assert {path: path.read_bytes() for path in here.parent.rglob("*") if path.is_file()} == before


def test_a_graph_that_is_packed_anew_while_it_is_fetched_leaves_no_copy(tmp_path: Path, temporary: Path) -> None:
    """The new one's files have the same sizes, and the old one's header has come already."""
    graph = csbm(60, 3).pack(tmp_path / "graph.cg")
    graph.replace(features=graph.features + 1).pack(tmp_path / "new.cg")
    handle = handle_of(graph)._replace(path=Path("/nowhere/graph.cg"))
    old, new = reader(tmp_path / "graph.cg"), reader(tmp_path / "new.cg")

    def mixed(folder: str, name: str, begin: int, size: int) -> bytes:
        return (old if name == HEADER else new)(folder, name, begin, size)

    line = f"/nowhere/graph.cg: what came to {os.uname().nodename} is another graph, or a damaged one"
    for fetch in (mixed, new):
        with pytest.raises(GraphError, match=re.escape(line)):
            from_handle(handle, fetch)
        assert not [*temporary.glob("*/*.cg"), *temporary.glob("*/*.half")]
    check_same(from_handle(handle, old), graph)
