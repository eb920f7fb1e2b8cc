"""Roman-Empire, Amazon-Ratings, and Chameleon and Squirrel without duplicates (Platonov et al., 2023)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..graph import Graph
from .base import Dataset, Loaded, Summary
from .files import File
from .public import distinct_edges, read_npz, splits_from_masks

HETEROPHILOUS = "https://github.com/yandex-research/heterophilous-graphs/raw/main/data"
MASKS = ("train_masks", "val_masks", "test_masks")


def _read(path: Path) -> Loaded:
    """The files hold each pair of nodes once; here, as in PyG, edges go in both directions."""
    features, labels, pairs, *masks = read_npz(path, "node_features", "node_labels", "edges", *MASKS)
    graph = Graph(features, distinct_edges(pairs.T, both_directions=True), labels.astype(np.int64))
    return Loaded(graph, splits_from_masks(*masks, nodes=graph.num_nodes))


def _dataset(name: str, ood_classes: tuple[int, ...], description: str, size: Summary) -> Dataset:
    stem = name.replace("-", "_")
    file = f"{stem}/raw/{stem}.npz"
    return Dataset(
        name,
        lambda root: _read(root / file),
        ood_classes=ood_classes,
        description=description,
        files={file: File(f"{HETEROPHILOUS}/{stem}.npz")},
        published=size,
    )


ROMAN_EMPIRE = _dataset(
    "roman-empire",
    tuple(range(5)),
    "words of an article, joined by order and by syntax; syntactic role",
    Summary(22662, 65854, 18, 0.05),
)

AMAZON_RATINGS = _dataset(
    "amazon-ratings",
    (0, 1),
    "goods that Amazon sells, often bought together; rating in five classes",
    Summary(24492, 186100, 5, 0.38),
)

CHAMELEON_FILTERED = _dataset(
    "chameleon-filtered", (0, 1), "chameleon without pages that repeat others", Summary(890, 17708, 5, "low")
)

SQUIRREL_FILTERED = _dataset(
    "squirrel-filtered", (0, 1), "squirrel without pages that repeat others", Summary(2223, 93996, 5, "low")
)
