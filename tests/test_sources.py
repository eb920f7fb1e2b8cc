"""Graphs in one place on disk: what is read, and that nothing in a file is run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from credalgnn.graphs import GraphParts, GraphWarning, TablePaths, read_source
from pyg import Data
from small_graphs import EDGES, FEATURES, LABELS, complains, make, same

TENSORS = {
    "x": torch.from_numpy(FEATURES),
    "edge_index": torch.from_numpy(EDGES),
    "y": torch.from_numpy(LABELS),
    "train_mask": torch.tensor([True, False, False, False]),
    "val_mask": torch.tensor([False, True, False, False]),
    "calibration_mask": torch.tensor([False, False, True, False]),
    "test_mask": torch.tensor([False, False, False, True]),
}


def save(path: Path, values: Any) -> Path:
    save_file(values, path) if path.suffix == ".safetensors" else torch.save(values, path)
    return path


def test_a_folder_is_two_tables(tmp_path: Path) -> None:
    (tmp_path / "Nodes.csv").write_text("")
    (tmp_path / "edges.parquet").write_text("")
    assert read_source(tmp_path) == TablePaths(tmp_path / "Nodes.csv", tmp_path / "edges.parquet")
    (tmp_path / "nodes.tsv").write_text("")
    complains(lambda: read_source(tmp_path), "Nodes.csv and nodes.tsv")


def test_a_saved_graph(tmp_path: Path) -> None:
    make().save(tmp_path / "graph.npz")
    source = read_source(tmp_path / "graph.npz")
    assert isinstance(source, GraphParts)
    same(source.graph, make())
    assert source.parts == {}


@pytest.mark.parametrize("name", ["graph.pt", "graph.PTH", "graph.safetensors"])
def test_tensors_with_masks(name: str, tmp_path: Path) -> None:
    source = read_source(save(tmp_path / name, TENSORS | {"edge_weight": torch.tensor([1.0, 2.0, 0.5, 1.0])}))
    assert isinstance(source, GraphParts)
    same(source.graph, make(edge_weight=[1, 2, 0.5, 1]))
    parts = {part: nodes.tolist() for part, nodes in source.parts.items()}
    assert parts == {"train": [0], "val": [1], "calibration": [2], "test": [3]}


def test_a_graph_of_pyg(tmp_path: Path) -> None:
    data = Data(
        x=TENSORS["x"], edge_index=TENSORS["edge_index"], y=TENSORS["y"][:, None], train_mask=TENSORS["train_mask"]
    )
    source = read_source(save(tmp_path / "graph.pt", data.to_dict()))
    assert isinstance(source, GraphParts)
    same(source.graph, make())
    assert list(source.parts) == ["train"]
    complains(lambda: read_source(save(tmp_path / "data.pt", data)), "data.pt", "torch.save(data.to_dict(), path)")
    complains(lambda: read_source(save(tmp_path / "pair.pt", (TENSORS, None))), "not tuple", "to_dict()")
    with pytest.warns(GraphWarning, match="edge_attr, pos are not used"):
        read_source(save(tmp_path / "more.pt", TENSORS | {"edge_attr": torch.ones(4, 2), "pos": torch.ones(4)}))


class Trap:
    """Would write a file when unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.write_text, (self.path, "caught")


def test_nothing_is_run(tmp_path: Path) -> None:
    path = save(tmp_path / "trap.pt", {"x": Trap(tmp_path / "written")})
    complains(lambda: read_source(path), "trap.pt", "could run anything", "to_dict()")
    assert not (tmp_path / "written").exists()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"x": None}, ["no tensor 'x'", "edge_index"]),
        ({"x": {"author": 1}}, ["several types", "to_homogeneous"]),
        ({"train_mask": torch.ones(4, 10, dtype=torch.bool)}, ["train mask", "[4, 10]", "one split"]),
        ({"train_mask": torch.tensor([1, 0, 0, 0])}, ["train mask", "boolean"]),
        ({"test_mask": torch.tensor([False, True, False, True])}, ["node 1", "two of the masks"]),
        ({"edge_index": torch.tensor([[0], [9]])}, ["graph.pt: edge 0", "9"]),
    ],
)
def test_tensors_that_are_no_graph(changes: dict[str, Any], words: list[str], tmp_path: Path) -> None:
    complains(lambda: read_source(save(tmp_path / "graph.pt", TENSORS | changes)), "graph.pt", *words)


def test_other_files(tmp_path: Path) -> None:
    complains(lambda: read_source(tmp_path / "none.pt"), "none.pt: no such file or folder")
    for name in ("graph.pt", "graph.safetensors", "graph.txt"):
        (tmp_path / name).write_text("something else")
    complains(lambda: read_source(tmp_path / "graph.pt"), "graph.pt", "to_dict()")
    complains(lambda: read_source(tmp_path / "graph.safetensors"), "cannot be read")
    complains(lambda: read_source(tmp_path / "graph.txt"), "graph.txt", ".safetensors", "two tables")
