"""Data sets published as one archive each, most of them read directly.

- Coauthor CS and Physics, Amazon Computers and Photo (Shchur et al., 2018), Cora-ML (Bojchevski et al., 2018). PyG
  makes their features dense, half a gigabyte for Coauthor's 60 active of 6,805.
- Roman-Empire, Amazon-Ratings, Chameleon and Squirrel without duplicates (Platonov et al., 2023).
- Wiki-CS (Mernyei and Cangea, 2020), Reddit2 (Zeng et al., 2020).
"""

from __future__ import annotations

from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ...runtime.reading import parse_json, read_bytes, read_npz
from ..errors import GraphError
from ..graph import Graph
from ..split import Split
from .base import Dataset, Loaded, Summary
from .files import DRIVE, File

GNN_BENCHMARK = "https://github.com/shchur/gnn-benchmark/raw/master/data/npz"
GRAPH2GAUSS = "https://github.com/abojchevski/graph2gauss/raw/master/data"
CS_SHA256 = "933c745734e78908c7eb77172a673fee0503f30e26e5a99b36814d88534c42e3"
COMPUTERS_SHA256 = "736ba1d9fd85eac2da83a5ad25c463f04b0031a6ca01563f90a7099d9e8ffb2c"
HETEROPHILOUS = "https://github.com/yandex-research/heterophilous-graphs/raw/main/data"
WIKI_CS_URL = "https://github.com/pmernyei/wiki-cs-dataset/raw/master/dataset/data.json"
REDDIT2_KEYS = {
    "adj_full.npz": "1sncK996BM5lpuDf75lDFqCiDZyErc1c2",
    "feats.npy": "1ZsHaJ0ussP1W722krmEIp_8pwKAoi5b3",
    "class_map.json": "1JF3Pjv9OboMNYs2aXRQGbJbc4t_nDd5u",
    "role.json": "1nJIKd77lcAGU4j-kVNx_AIGEkveIKz3A",
}


def distinct_edges(edges: NDArray[Any], both_directions: bool = False) -> NDArray[np.int64]:
    """Return every edge ``[2, E]`` once, by source and then target, as PyG orders them; self-loops stay."""
    ends = np.asarray(edges, np.int64)
    if both_directions:
        ends = np.concatenate([ends, ends[::-1]], axis=1)
    return np.unique(ends, axis=1)


def splits_from_masks(nodes: int, *masks: NDArray[Any]) -> list[Split]:
    """Return splits from boolean or 0/1 masks ``[S, N]`` of train, val and test, one row per split."""
    for mask in masks:
        if mask.shape != (len(masks[0]), nodes) or not np.isin(mask, (0, 1)).all():
            raise GraphError(f"the masks of the splits do not belong to a graph of {nodes} nodes")
    rows = zip(*(torch.from_numpy(mask.astype(bool)) for mask in masks), strict=True)
    return [Split.from_masks(*parts) for parts in rows]


def _read_benchmark(file: str, root: Path) -> Graph:
    """Read as PyG does, binary features, no self-loops, edges in both directions, but never dense."""
    import scipy.sparse as sp

    parts = [f"{part}_{name}" for part in ("attr", "adj") for name in ("data", "indices", "indptr", "shape")]
    content = read_npz(root / file, [*parts, "labels"], optional=["class_names"])  # Coauthor's are a pickle: skipped
    matrices = []
    for part in ("attr", "adj"):
        arrays = tuple(content[f"{part}_{name}"] for name in ("data", "indices", "indptr"))
        matrix = sp.csr_matrix(arrays, shape=tuple(content[f"{part}_shape"].tolist()))
        matrix.check_format(full_check=True)  # scipy reads at the indices unchecked
        matrices.append(matrix)
    features, edges = matrices
    features.sum_duplicates()
    features.data = (features.data > 0).astype(np.float32)
    edges = edges + edges.T
    edges.sort_indices()
    edges = edges.tocoo()
    apart = edges.row != edges.col
    ends = np.stack([edges.row[apart], edges.col[apart]]).astype(np.int64)
    names = content["class_names"].tolist() if "class_names" in content else None
    return Graph(features, ends, content["labels"].astype(np.int64), class_names=names)


def _read_heterophilous(file: str, root: Path) -> Loaded:
    """Read as PyG does, edges in both directions; the file has each pair of nodes once."""
    masks = ("train_masks", "val_masks", "test_masks")
    content = read_npz(root / file, ["node_features", "node_labels", "edges", *masks])
    edges = distinct_edges(content["edges"].T, both_directions=True)
    graph = Graph(content["node_features"], edges, content["node_labels"].astype(np.int64))
    return Loaded(graph, splits_from_masks(graph.num_nodes, *(content[mask] for mask in masks)))


def _read_wiki_cs(file: str, root: Path) -> Loaded:
    """Read as PyG does, edges in both directions; all splits have the same test nodes.

    Wiki-CS has separate nodes for early stopping and for tuning; here one part serves for both.
    """
    content = parse_json(read_bytes(root / file))
    links = content["links"]
    sources = np.repeat(np.arange(len(links)), [len(targets) for targets in links])
    targets = np.fromiter(chain.from_iterable(links), np.int64)
    edges = distinct_edges(np.stack([sources, targets]), both_directions=True)
    graph = Graph(np.array(content["features"], np.float32), edges, np.array(content["labels"], np.int64))
    train, val, stopping = (np.array(content[f"{part}_masks"], bool) for part in ("train", "val", "stopping"))
    test = np.tile(np.array(content["test_mask"], bool), (len(train), 1))
    return Loaded(graph, splits_from_masks(graph.num_nodes, train, val | stopping, test))


def _read_reddit2(root: Path) -> Loaded:
    from torch_geometric.datasets import Reddit2

    data = Reddit2(str(root / "Reddit2"))[0]
    masks = (mask.numpy()[None] for mask in (data.train_mask, data.val_mask, data.test_mask))
    return Loaded(Graph.from_pyg(data), splits_from_masks(data.num_nodes, *masks))


def _archive(read: Any, name: str, path: str, file: File, left_out: int, description: str, size: Summary,
             paper: tuple[int, int, int, int, int] | None = None) -> Dataset:  # fmt: skip
    """Return a data set with one file, whose first classes are left out."""
    return Dataset(name, partial(read, path), tuple(range(left_out)), description, {path: file}, size, paper)


_benchmark, _heterophilous = partial(_archive, _read_benchmark), partial(_archive, _read_heterophilous)

COAUTHOR, COMPUTERS, PHOTO, PHYSICS, CORA_ML = (
    _benchmark(name, f"{folder}/raw/{Path(file.url).name}", file, left_out, text, size, paper)
    for name, folder, file, left_out, text, size, paper in (
        ("coauthor", "CS", File(f"{GNN_BENCHMARK}/ms_academic_cs.npz", 12_835_626, CS_SHA256), 4,
         "co-authors in computer science; field of study", Summary(18333, 163788, 15, "high"),
         (8813, 2907, 759, 2964, 704)),
        ("computers", "Computers",
         File(f"{GNN_BENCHMARK}/amazon_electronics_computers.npz", 31_921_488, COMPUTERS_SHA256), 3,
         "computer goods that Amazon sells, joined if often bought together; category",
         Summary(13752, 491722, 10, "high"), None),
        ("photo", "Photo", File(f"{GNN_BENCHMARK}/amazon_electronics_photo.npz"), 3,
         "photo goods that Amazon sells, joined if often bought together; category",
         Summary(7650, 238162, 8, "high"), None),
        ("physics", "Physics", File(f"{GNN_BENCHMARK}/ms_academic_phy.npz"), 2,
         "co-authors in physics; field of study", Summary(34493, 495924, 5, "high"), None),
        ("cora-ml", "cora_ml", File(f"{GRAPH2GAUSS}/cora_ml.npz"), 3,
         "citations among papers on machine learning, more than in cora; topic",
         Summary(2995, 16316, 7, "high"), None),
    )
)  # fmt: skip
ROMAN_EMPIRE, AMAZON_RATINGS, CHAMELEON_FILTERED, SQUIRREL_FILTERED = (
    _heterophilous(
        stem.replace("_", "-"), f"{stem}/raw/{stem}.npz", File(f"{HETEROPHILOUS}/{stem}.npz"), left_out, text, size
    )
    for stem, left_out, text, size in (
        ("roman_empire", 5, "words of an article, joined by order and by syntax; syntactic role",
         Summary(22662, 65854, 18, 0.05)),
        ("amazon_ratings", 2, "goods that Amazon sells, often bought together; rating in five classes",
         Summary(24492, 186100, 5, 0.38)),
        ("chameleon_filtered", 2, "chameleon without pages that repeat others", Summary(890, 17708, 5, "low")),
        ("squirrel_filtered", 2, "squirrel without pages that repeat others", Summary(2223, 93996, 5, "low")),
    )
)  # fmt: skip
WIKI_CS = _archive(
    _read_wiki_cs,
    "wiki-cs",
    "WikiCS/raw/data.json",
    File(WIKI_CS_URL),
    3,
    "Wikipedia's articles on computer science, linked; branch of it",
    Summary(11701, 431726, 10, "high"),
)
REDDIT2 = Dataset(
    "reddit2",
    _read_reddit2,
    tuple(range(11)),
    "Reddit posts joined by a common commenter; subreddit",
    {f"Reddit2/raw/{name}": File(DRIVE + key) for name, key in REDDIT2_KEYS.items()},
    Summary(232965, 23213838, 41, "high"),
    (109517, 17343, 6356, 40601, 14733),
)
