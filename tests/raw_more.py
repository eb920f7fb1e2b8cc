"""Tiny raw files of the genuine formats of the graphs of Geom-GCN, Platonov et al., Wiki-CS and OGB's structure."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

NODES, CLASSES = 180, 10
PARTS = ("train", "val", "test")


class Expected(NamedTuple):
    """What is to be read: features and labels, sorted edges, masks [S, N] of the three parts."""

    features: np.ndarray
    labels: list[int]
    edges: list[tuple[int, int]]
    masks: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None


def pairs_of(seed: int) -> list[tuple[int, int]]:
    """Random ones, with a self-loop, one that stands there twice and one in both directions."""
    drawn = np.random.default_rng(seed).integers(NODES, size=(3 * NODES, 2)).tolist()
    return [(one, other) for one, other in [*drawn, [7, 7], drawn[0], drawn[1][::-1]]]


def labels_of(seed: int, classes: int) -> np.ndarray:
    return np.random.default_rng(seed).permutation(np.arange(NODES) % classes)


def stratified_split(seed: int, splits: int, parts: int = 3) -> list[np.ndarray]:
    """Disjoint masks of equal size."""
    rng = np.random.default_rng(seed)
    dealt = np.stack([rng.permutation(np.arange(NODES) % parts) for _ in range(splits)])
    return [dealt == part for part in range(parts)]


def both(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    return sorted({ends for one, other in pairs for ends in ((one, other), (other, one))})


def write_heterophilous(root: Path, stem: str, classes: int = 5) -> Expected:
    rng = np.random.default_rng(3)
    features, labels = rng.normal(size=(NODES, 6)).astype(np.float32), labels_of(4, classes)
    pairs, (train, val, test) = pairs_of(5), stratified_split(6, 10)
    path = root / stem / "raw" / f"{stem}.npz"
    path.parent.mkdir(parents=True)
    masks = {"train_masks": train, "val_masks": val, "test_masks": test}
    np.savez_compressed(path, node_features=features, node_labels=labels, edges=np.array(pairs), **masks)
    return Expected(features, labels.tolist(), both(pairs), (train, val, test))


def write_geom_gcn(root: Path, folder: str, stem: str, listed: bool = False, shuffled: bool = False) -> Expected:
    """``listed``: the file names the active features, as Actor's does. ``shuffled``: nodes in any order."""
    rng = np.random.default_rng(7)
    features = (rng.random((NODES, 9)) < 0.3).astype(np.float32)
    features[:, 0], features[3, 8] = 1, 1  # nobody is without any, and the last one is in use
    labels, pairs = labels_of(8, 5), pairs_of(9)
    masks = stratified_split(10, 10)
    raw = root / folder / "raw"
    raw.mkdir(parents=True)
    lines = ["node_id\tfeature\tlabel"]
    for node in rng.permutation(NODES) if shuffled else range(NODES):
        shown = np.flatnonzero(features[node]) if listed else features[node].astype(int)
        lines.append(f"{node}\t{','.join(map(str, shown.tolist()))}\t{labels[node]}")
    (raw / "out1_node_feature_label.txt").write_text("\n".join(lines) + "\n")
    ends = [f"{one}\t{other}" for one, other in pairs]
    (raw / "out1_graph_edges.txt").write_text("\n".join(["node_id\tnode_id", *ends]) + "\n")
    for number in range(10):
        parts = {f"{part}_mask": mask[number].astype(np.uint8) for part, mask in zip(PARTS, masks, strict=True)}
        np.savez_compressed(raw / f"{stem}_split_0.6_0.2_{number}.npz", **parts)
    return Expected(features, labels.tolist(), sorted(set(pairs)), tuple(masks))


def write_wiki_cs(root: Path) -> Expected:
    """Every third node is a test node, in all splits."""
    features = np.random.default_rng(11).normal(size=(NODES, 5)).round(6)
    labels, pairs = labels_of(12, CLASSES), pairs_of(13)
    links: list[list[int]] = [[] for _ in range(NODES)]
    for one, other in pairs:
        links[one].append(other)
    test = np.arange(NODES) % 3 == 0
    rng, dealt = np.random.default_rng(14), []
    for _ in range(20):
        part = np.full(NODES, -1)
        part[~test] = rng.permutation(np.arange((~test).sum()) % 3)
        dealt.append(part)
    train, val, stopping = (np.stack(dealt) == part for part in range(3))
    content: dict[str, Any] = {"features": features, "labels": labels, "train_masks": train, "val_masks": val}
    content |= {"stopping_masks": stopping, "test_mask": test}
    plain = {name: value.tolist() for name, value in content.items()} | {"links": links}
    path = root / "WikiCS" / "raw" / "data.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(plain))
    tested = np.tile(test, (20, 1))
    return Expected(features.astype(np.float32), labels.tolist(), both(pairs), (train, val | stopping, tested))


def write_structure(root: Path, folder: str = "arxiv_structure", seed: int | None = None) -> tuple[np.ndarray, ...]:
    """Edges [2, E] sorted, or in an order that ``seed`` draws; years and categories."""
    rng = np.random.default_rng(15)
    edges = np.unique(rng.integers(NODES, size=(3 * NODES, 2)), axis=0)
    years, categories = rng.integers(1971, 2021, size=NODES), rng.integers(40, size=NODES)
    order = np.arange(len(edges)) if seed is None else np.random.default_rng(seed).permutation(len(edges))
    raw = root / folder / "raw"
    raw.mkdir(parents=True)
    for name, rows in {
        "edge": edges[order],
        "node-label": categories[:, None],
        "node_year": years[:, None],
        "num-node-list": [[NODES]],
        "num-edge-list": [[len(edges)]],
    }.items():
        text = "".join(",".join(map(str, row)) + "\n" for row in np.asarray(rows).tolist())
        (raw / f"{name}.csv.gz").write_bytes(gzip.compress(text.encode()))
    return edges.T, years, categories
