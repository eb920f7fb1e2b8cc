"""Graphs on disk: the same bits, and no code that is run."""

from __future__ import annotations

import gc
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from credalgnn.graphs import GraphError, load_graph
from small_graphs import EDGES, complains, make, same


@pytest.mark.parametrize(
    "extra",
    [
        {},
        {"labels": None},
        {"node_ids": ["a", "ü", "日本", ""], "class_names": ["Katze", "犬", ""]},
        {"node_ids": np.array([2**62, -1, 0, 7])},
        {"features": sp.random(4, 400, density=0.01, random_state=0, format="csr", dtype=np.float32)},
    ],
)
def test_save_and_load_give_the_same_bits(tmp_path: Path, extra: dict[str, Any]) -> None:
    graph, path = make(**extra), tmp_path / "graph.npz"
    graph.save(path)
    loaded = load_graph(path)
    same(graph, loaded)
    if graph.node_ids is not None and loaded.node_ids is not None:
        assert loaded.node_ids.dtype.kind == graph.node_ids.dtype.kind
    assert [file.name for file in tmp_path.iterdir()] == ["graph.npz"]
    np.load(path, allow_pickle=False).close()


def test_saving_over_a_file_into_a_new_folder_and_where_it_cannot_be(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "graph.npz"
    make().save(path)
    make(labels=None).save(path)
    same(load_graph(path), make(labels=None))
    with pytest.raises(GraphError, match=r"graph\.npz.*cannot be written.*another place"):
        make().save(path / "graph.npz")  # a file is no folder
    with pytest.raises(GraphError, match=r"cannot be written \(Is a directory\)"):
        make().save(path.parent)
    assert [file.name for file in path.parent.iterdir()] == ["graph.npz"]


class Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (Path("exploded"),))


def test_load_runs_no_pickle_and_refuses_foreign_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "graph.npz"
    make().save(path)
    good = path.read_bytes()
    with np.load(path) as arrays:
        content = dict(arrays)
    bomb = np.empty((), dtype=object)
    bomb[()] = Bomb()
    for name in content:
        np.savez(path, **content | {name: bomb})  # type: ignore[arg-type]
        complains(lambda: load_graph(path), "graph.npz")
    path.write_bytes(pickle.dumps(Bomb()))
    complains(lambda: load_graph(path), "graph.npz")
    torch.save({"x": 1}, path)
    complains(lambda: load_graph(path), "graph.npz")
    np.savez(path, a=np.zeros(3))
    complains(lambda: load_graph(path), "graph.npz")
    for cut in (0, 10, len(good) // 2, len(good) - 30):
        path.write_bytes(good[:cut])
        complains(lambda: load_graph(path), "graph.npz")
    complains(lambda: load_graph(tmp_path / "none.npz"), "none.npz")
    assert not (tmp_path / "exploded").exists()
    gc.collect()  # a file left open would warn here


def test_a_loaded_file_is_checked_again(tmp_path: Path) -> None:
    path = tmp_path / "graph.npz"
    make().save(path)
    with np.load(path) as arrays:
        content = dict(arrays)
    edges = next(name for name, array in content.items() if array.shape == EDGES.shape and array.dtype == np.int64)
    content[edges] = content[edges] + 10
    np.savez(path, **content)  # type: ignore[arg-type]
    with pytest.raises(GraphError):
        load_graph(path)
