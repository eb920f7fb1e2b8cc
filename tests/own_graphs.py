"""A practitioner's graph: two tables, some labels, a class that nobody has labelled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from credalgnn import Graph

CLASSES = ("a", "b", "c")
FAST = {"epochs": 20}


def blobs(
    count: int = 300, seed: int = 0, unfamiliar: bool = True
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
    """Features, edges and true classes; class 3, if there is one, is unfamiliar."""
    random = np.random.default_rng(seed)
    truth = random.integers(0, 4 if unfamiliar else 3, count)
    features = random.normal(size=(count, 4)) + 2.0 * np.eye(4)[truth]
    ends = []
    for node in range(count):
        alike = np.flatnonzero(truth == truth[node])
        ends += [(node, other) for other in random.choice(alike, 3)]
        ends.append((node, int(random.integers(count))))
    return features, np.array(ends).T, truth


def graph_of(count: int = 300, seed: int = 0, ids: Sequence[Any] | None = None, share: float = 0.7) -> Graph:
    """The blobs as a graph in which a share of the familiar nodes has a label."""
    features, edges, truth = blobs(count, seed)
    hidden = np.random.default_rng(seed + 1).random(count) >= share
    labels = np.where((truth == 3) | hidden, -1, truth)
    names = None if ids is None else np.array(ids)
    return Graph(torch.from_numpy(features).float(), torch.from_numpy(edges), torch.from_numpy(labels), names, CLASSES)


def write_tables(
    folder: Path,
    count: int = 300,
    seed: int = 0,
    name: Callable[[int], str] = "n{:04d}".format,
    share: float = 0.7,
    classes: Sequence[str] = CLASSES,
    unfamiliar: bool = True,
    unfamiliar_label: str = "",
) -> tuple[Path, Path]:
    """The blobs as two CSV files; `name` makes an id of a number."""
    features, edges, truth = blobs(count, seed, unfamiliar)
    random = np.random.default_rng(seed + 1)
    labelled = random.random(count) < share
    kinds = random.choice(["x", "y", "z"], count)
    lines = ["id,topic,w1,w2,w3,w4,kind"]
    for node in range(count):
        label = unfamiliar_label if truth[node] == 3 else classes[truth[node]] if labelled[node] else ""
        numbers = ",".join(f"{value:.4f}" for value in features[node])
        lines.append(f"{name(node)},{label},{numbers},{kinds[node]}")
    folder.mkdir(parents=True, exist_ok=True)
    nodes, links = folder / "nodes.csv", folder / "edges.csv"
    nodes.write_text("\n".join(lines) + "\n")
    pairs = (f"{name(source)},{name(target)}" for source, target in edges.T.tolist())
    links.write_text("source,target\n" + "\n".join(pairs) + "\n")
    return nodes, links
