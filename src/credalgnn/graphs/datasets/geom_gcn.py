"""Actor (Tang et al., 2009) and WebKB's Cornell, Texas and Wisconsin as Geom-GCN has them, with its ten splits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import GraphError
from ..graph import Graph
from .base import Dataset, Loaded, Summary
from .files import File
from .public import distinct_edges, read_npz, splits_from_masks

GEOM_GCN = "https://raw.githubusercontent.com/graphdml-uiuc-jlu/geom-gcn/master"
NODES, EDGES = "out1_node_feature_label.txt", "out1_graph_edges.txt"
MASKS = ("train_mask", "val_mask", "test_mask")


def _read(raw: Path, name: str, listed: bool) -> Loaded:
    """As PyG reads it: directions and self-loops as given, every edge once.

    Args:
        raw: The folder with the files.
        name: What the files of the splits begin with.
        listed: Whether the column of features lists the active ones, as Actor's does, and not all of their values.
    """
    kind = np.int64 if listed else np.float32
    rows = list(_rows(raw / NODES, np.int64, lambda text: np.array(text.split(","), kind), np.int64))
    nodes, given, classes = zip(*rows, strict=True)
    count = len(nodes)
    if sorted(nodes) != list(range(count)):
        raise GraphError(f"{NODES} does not have the nodes 0 to {count - 1}, each in one line")
    labels = np.empty(count, np.int64)
    labels[list(nodes)] = classes
    features = _active(nodes, given) if listed else np.stack(given)[np.argsort(nodes)]
    edges = np.array(list(_rows(raw / EDGES, np.int64, np.int64))).T
    graph = Graph(features, distinct_edges(edges), labels)
    masks = zip(*(read_npz(raw / file, *MASKS) for file in _splits(name)), strict=True)
    return Loaded(graph, splits_from_masks(*map(np.stack, masks), nodes=count))


def _active(nodes: tuple[int, ...], listed: tuple[Any, ...]) -> Any:
    """Binary features from the numbers of the active ones."""
    import scipy.sparse as sp

    columns = np.concatenate(listed)
    places = np.repeat(nodes, [len(active) for active in listed]), columns
    matrix = sp.csr_matrix((np.ones(len(columns), np.float32), places), shape=(len(nodes), columns.max() + 1))
    matrix.sum_duplicates()
    matrix.data[:] = 1
    return matrix


def _rows(path: Path, *kinds: Callable[[str], Any]) -> Iterator[tuple[Any, ...]]:
    """The lines below the header, whose columns are separated by tabs and made into ``kinds``."""
    for number, line in enumerate(path.read_text().splitlines()[1:], 2):
        try:
            yield tuple(kind(text) for kind, text in zip(kinds, line.split("\t"), strict=True))
        except (ValueError, OverflowError) as error:
            raise GraphError(f"line {number} of {path.name}: {error}") from None


def _splits(name: str) -> list[str]:
    return [f"{name}_split_0.6_0.2_{number}.npz" for number in range(10)]


def _dataset(name: str, description: str, size: Summary, folder: str, stem: str, listed: bool = False) -> Dataset:
    raw = f"{folder}/raw"
    files = {f"{raw}/{file}": File(f"{GEOM_GCN}/new_data/{stem}/{file}") for file in (NODES, EDGES)}
    files |= {f"{raw}/{file}": File(f"{GEOM_GCN}/splits/{file}") for file in _splits(stem)}
    return Dataset(
        name,
        lambda root: _read(root / raw, stem, listed),
        ood_classes=(0, 1),
        description=description,
        files=files,
        published=size,
    )


ACTOR = _dataset(
    "actor",
    "actors joined if on the same Wikipedia page; category by words of the page",
    Summary(7600, 30019, 5, "low"),
    folder="Actor",
    stem="film",
    listed=True,
)

CORNELL, TEXAS, WISCONSIN = (
    _dataset(name, f"web pages of {university}, linked; kind of page", size, folder=name, stem=name)
    for name, university, size in (
        ("cornell", "Cornell University", Summary(183, 298, 5, "low")),
        ("texas", "the University of Texas", Summary(183, 325, 5, "low")),
        ("wisconsin", "the University of Wisconsin", Summary(251, 515, 5, "low")),
    )
)
