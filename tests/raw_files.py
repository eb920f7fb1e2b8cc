"""Tiny raw files of the genuine formats of ArXiv, Patents and Reddit2."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io
import scipy.sparse as sp


def years_graph(nodes: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.integers(nodes, size=(2, 3 * nodes)), rng.integers(1971, 2021, size=nodes), rng.random((nodes, 4))


def by_hand(years: np.ndarray) -> list[int]:
    """The number of boundaries (the k/5 quantiles) that a year reaches or passes."""
    ordered, boundaries = np.sort(years), []
    for k in range(1, 5):
        place = (len(years) - 1) * k / 5
        low = int(place)
        high = min(low + 1, len(years) - 1)
        boundaries.append(ordered[low] + (place - low) * (ordered[high] - ordered[low]))
    return [sum(bool(year >= boundary - 1e-9) for boundary in boundaries) for year in years.tolist()]


def write_arxiv(root: Path, nodes: int = 60, years: np.ndarray | None = None) -> tuple[np.ndarray, ...]:
    edges, drawn, features = years_graph(nodes, 0)
    years = drawn if years is None else years
    raw = root / "arxiv" / "raw"
    raw.mkdir(parents=True)
    for name, rows in {
        "edge": edges.T,
        "node-feat": features.round(4),
        "node_year": years[:, None],
        "num-node-list": [[nodes]],
        "num-edge-list": [[edges.shape[1]]],
    }.items():
        text = "".join(",".join(str(value) for value in row) + "\n" for row in np.asarray(rows).tolist())
        (raw / f"{name}.csv.gz").write_bytes(gzip.compress(text.encode()))
    return edges, years, features.round(4)


def write_patents(root: Path, nodes: int = 80) -> tuple[np.ndarray, np.ndarray, sp.csc_matrix]:
    edges, years, _ = years_graph(nodes, 1)
    features = sp.random(nodes, 40, density=0.05, random_state=1, format="csc")
    path = root / "patents" / "raw" / "snap_patents.mat"
    path.parent.mkdir(parents=True)
    content = {"edge_index": edges, "node_feat": features, "years": years[None].astype(float), "num_nodes": nodes}
    scipy.io.savemat(path, content)
    return edges, years, features


def write_reddit(root: Path, nodes: int = 205) -> dict[str, Any]:
    rng = np.random.default_rng(2)
    adjacency = sp.random(nodes, nodes, density=0.03, random_state=2, format="csr")
    raw = root / "Reddit2" / "raw"
    raw.mkdir(parents=True)
    parts = {"data": np.ones(adjacency.nnz), "indices": adjacency.indices, "indptr": adjacency.indptr}
    np.savez(raw / "adj_full.npz", shape=adjacency.shape, **parts)
    features = rng.normal(size=(nodes, 6))
    np.save(raw / "feats.npy", features)
    labels = rng.permutation(np.arange(nodes) % 41)
    names = rng.permutation(nodes)  # the order in the file says nothing
    (raw / "class_map.json").write_text(json.dumps({str(node): int(labels[node]) for node in names}))
    roles = {"tr": names[:120].tolist(), "va": names[120:160].tolist(), "te": names[160:].tolist()}
    (raw / "role.json").write_text(json.dumps(roles))
    return {"adjacency": adjacency, "features": features, "labels": labels, "roles": roles}
