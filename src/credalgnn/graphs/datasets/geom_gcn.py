"""Geom-GCN's data sets with its ten splits: Chameleon, Squirrel, Actor, Cornell, Texas and Wisconsin.

Wikipedia pages are by Rozemberczki et al. (2021), actors by Tang et al. (2009), university pages by WebKB.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ...runtime.reading import read_npz
from ..errors import GraphError
from ..graph import Graph
from .base import Dataset, Loaded, Summary
from .files import File
from .public import distinct_edges, splits_from_masks

GEOM_GCN = "https://raw.githubusercontent.com/graphdml-uiuc-jlu/geom-gcn"
COMMIT = "f1fc0d14b3b019c562737240d06ec83b07d16a8f"
NODES, EDGES = "out1_node_feature_label.txt", "out1_graph_edges.txt"
MASKS = ("train_mask", "val_mask", "test_mask")


def _read(folder: str, splits: Sequence[str], listed: bool, root: Path) -> Loaded:
    """Read as PyG does: directions and self-loops stay, every edge occurs once.

    With ``listed``, the column of features lists the active ones, as Actor's does, else all values.
    """
    kind, raw = np.int64 if listed else np.float32, root / folder
    lines = list(_lines(raw / NODES, np.int64, lambda text: np.array(text.split(","), kind), np.int64))
    nodes, values, classes = zip(*lines, strict=True)
    count = len(nodes)
    if sorted(nodes) != list(range(count)):
        raise GraphError(f"{NODES} does not have the nodes 0 to {count - 1}, each in one line")
    labels = np.empty(count, np.int64)
    labels[list(nodes)] = classes
    features = _binary(nodes, values) if listed else np.stack(values)[np.argsort(nodes)]
    edges = np.array(list(_lines(raw / EDGES, np.int64, np.int64))).T
    graph = Graph(features, distinct_edges(edges), labels)
    contents = [read_npz(raw / file, MASKS) for file in splits]
    masks = (np.stack([content[mask] for content in contents]) for mask in MASKS)
    return Loaded(graph, splits_from_masks(count, *masks))


def _binary(nodes: Sequence[int], active: Sequence[Any]) -> Any:
    """Return binary features from the numbers of the active ones."""
    import scipy.sparse as sp

    columns = np.concatenate(active)
    places = np.repeat(nodes, [len(each) for each in active]), columns
    matrix = sp.csr_matrix((np.ones(len(columns), np.float32), places), shape=(len(nodes), columns.max() + 1))
    matrix.sum_duplicates()
    matrix.data[:] = 1
    return matrix


def _lines(path: Path, *kinds: Callable[[str], Any]) -> Iterator[tuple[Any, ...]]:
    """Yield the lines below the header, their tab-separated columns converted to ``kinds``."""
    for number, line in enumerate(path.read_text().splitlines()[1:], 2):
        try:
            yield tuple(kind(text) for kind, text in zip(kinds, line.split("\t"), strict=True))
        except (ValueError, OverflowError) as error:
            raise GraphError(f"line {number} of {path.name}: {error}") from None


def _dataset(
    name: str,
    description: str,
    size: Summary,
    folder: str,
    stem: str,
    *,
    paper: tuple[int, int, int, int, int] | None = None,
    listed: bool = False,
    commit: str = "master",
    sums: Mapping[str, tuple[int, str]] = {},
) -> Dataset:
    splits = [f"{stem}_split_0.6_0.2_{number}.npz" for number in range(10)]
    files = {}
    for file in (NODES, EDGES, *splits):
        place = "splits" if file in splits else f"new_data/{stem}"
        files[f"{folder}/{file}"] = File(f"{GEOM_GCN}/{commit}/{place}/{file}", *sums.get(file, ()))
    return Dataset(name, partial(_read, folder, splits, listed), (0, 1), description, files, size, paper)


def _sums(stem: str, nodes: tuple[int, str], edges: tuple[int, str], *splits: tuple[int, str]) -> Any:
    return {NODES: nodes, EDGES: edges, **{f"{stem}_split_0.6_0.2_{k}.npz": each for k, each in enumerate(splits)}}


CHAMELEON = _dataset(
    "chameleon",
    "Wikipedia pages on chameleons, linked; monthly traffic in five classes",
    Summary(2277, 31421, 5, "low"),
    "chameleon/geom_gcn/raw",
    "chameleon",
    paper=(647, 438, 291, 276, 180),
    commit=COMMIT,
    sums=_sums(
        "chameleon",
        (10602901, "5fd29736ff31b43a1bfcf305bc8b4cffc3103fb0957667976b2ea0f78aedcf5b"),
        (332448, "45ac593de9207470090230c8fd76beeb2f60b5371a9be088e8bf31e7f0619a4b"),
        (1775, "36605525b69be4e7df5b31fe6a1d044288c6ebf9f9f0514ca151f6a36afc5e8b"),
        (1779, "d0779d5a1bedf1967d394468a52c0175fb00595d361fba897faf73322386c952"),
        (1777, "86ad0d827bf4301dff830598fc0b70d0dd8689c5b4d72dab1d87a6c1970c4c6e"),
        (1755, "37b3e994adf3afc55e16b617ed05af4e3ce308800755839084d77eced0528e9d"),
        (1778, "f6b1d067b2b330132839d8b6120077bdc6cf759f7ce421f881a02e2953ec4596"),
        (1772, "e7661834275c826692510cea0457b18b2c1ee38771f178d06e701b97541a1f6d"),
        (1774, "16648d1197c1d3a2dec385346212c382030b0d5a8c997f4255aa2afa68a6b174"),
        (1764, "61adcc53846becefecd466a5364dda23b983d387d1ac5d58c6e24d080c0fcba7"),
        (1770, "7076ad5341a8218b1f5b6eccf9cfd15d28286ea11ef5c06eeee77af24ff2bf63"),
        (1773, "743c4f813bf6130398a6511eb9ff07d2366c73bd6c7fddaf226a3f9e2917e0e7"),
    ),
)
SQUIRREL = _dataset(
    "squirrel",
    "Wikipedia pages on squirrels, linked; monthly traffic in five classes",
    Summary(5201, 198493, 5, "low"),
    "squirrel/geom_gcn/raw",
    "squirrel",
    paper=(1515, 982, 682, 622, 419),
    commit=COMMIT,
    sums=_sums(
        "squirrel",
        (21765097, "ac15ab755983717a187992eef8ce2017aae33ea444fd655b07e4662690dcc03a"),
        (2115917, "453d8e96754d68e2ab0a7ebb56f93506b59531d95abaec7a2b46fe1eae7c39cd"),
        (3134, "f112b88d3354e86d164d4d915b6a1f695c10f0e01e3e6b9893fc7b09bb93191d"),
        (3130, "2486c687c8befb55930a6237f76f1d86ce2ba345782eda6157f4e752d05f304f"),
        (3121, "d62ff83862ad96022d3400dfc9b7ca405834ca62767319d97c36b3f02db978c0"),
        (3126, "af3d90e0b2718ac7417e10e8b5b382443667412e846cabc3cc4e4a592f4cedae"),
        (3124, "fbe848298bb72b88db0704050cf216e2a93c916540d577906f3e644b679a6a2c"),
        (3111, "cd04fab46a181151ddd97ce93c65fe79558fb79ffa230b62f488ebfaf5fdcd75"),
        (3118, "b9189f7903ca7556a025c54dd5be6c00ec5952d4299e71630bc9876157676412"),
        (3138, "ea7fb3ca5d5aa45b917b99fb7d64d4e87322b2b5303a0156c547aa3f1a6c8941"),
        (3132, "b43faa190ca6dd4885a39dfc2a93d59f56f5174f3567bdbc49b18dd9cd9b7fb4"),
        (3146, "529ade4b86fd191908a96011f25c454653083674b6d4f090b3fdd27af2d14f62"),
    ),
)
ACTOR = _dataset(
    "actor",
    "actors joined if on the same Wikipedia page; category by words of the page",
    Summary(7600, 30019, 5, "low"),
    "Actor/raw",
    "film",
    listed=True,
)
CORNELL, TEXAS, WISCONSIN = (
    _dataset(name, f"web pages of {university}, linked; kind of page", size, f"{name}/raw", name)
    for name, university, size in (
        ("cornell", "Cornell University", Summary(183, 298, 5, "low")),
        ("texas", "the University of Texas", Summary(183, 325, 5, "low")),
        ("wisconsin", "the University of Wisconsin", Summary(251, 515, 5, "low")),
    )
)
