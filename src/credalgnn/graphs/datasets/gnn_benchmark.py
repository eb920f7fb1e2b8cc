"""Coauthor CS and Physics, Amazon Computers and Photo (Shchur et al., 2018), and Cora-ML (Bojchevski et al., 2018).

They are read directly: PyG makes the features dense, which takes half a gigabyte for Coauthor's 60 active of 6,805.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ...runtime.reading import read_npz
from ..graph import Graph
from .base import Dataset, Summary
from .files import File

GNN_BENCHMARK = "https://github.com/shchur/gnn-benchmark/raw/master/data/npz"
GRAPH2GAUSS = "https://github.com/abojchevski/graph2gauss/raw/master/data"


def _read(path: Path) -> Graph:
    """As PyG reads it: features made binary, self-loops dropped, edges in both directions; but never dense."""
    import scipy.sparse as sp

    parts = [f"{part}_{name}" for part in ("attr", "adj") for name in ("data", "indices", "indptr", "shape")]
    content = read_npz(path, [*parts, "labels"], optional=["class_names"])  # Coauthor's are a pickle: not opened
    matrices = []
    for part in ("attr", "adj"):
        arrays = tuple(content[f"{part}_{name}"] for name in ("data", "indices", "indptr"))
        matrix = sp.csr_matrix(arrays, shape=tuple(content[f"{part}_shape"].tolist()))
        matrix.check_format(full_check=True)  # scipy reads where the indices point to, unseen
        matrices.append(matrix)
    features, edges = matrices
    labels = content["labels"].astype(np.int64)
    names = content["class_names"].tolist() if "class_names" in content else None
    features.sum_duplicates()
    features.data = (features.data > 0).astype(np.float32)
    edges = edges + edges.T
    edges.sort_indices()
    edges = edges.tocoo()
    apart = edges.row != edges.col
    ends = np.stack([edges.row[apart], edges.col[apart]]).astype(np.int64)
    return Graph(features, ends, labels, class_names=names)


COAUTHOR_FILE = "CS/raw/ms_academic_cs.npz"
COAUTHOR = Dataset(
    "coauthor",
    lambda root: _read(root / COAUTHOR_FILE),
    ood_classes=tuple(range(4)),
    description="co-authors in computer science; field of study",
    files={
        COAUTHOR_FILE: File(
            f"{GNN_BENCHMARK}/ms_academic_cs.npz",
            12_835_626,
            "933c745734e78908c7eb77172a673fee0503f30e26e5a99b36814d88534c42e3",
        )
    },
    published=Summary(18333, 163788, 15, "high"),
    paper=(8813, 2907, 759, 2964, 704),
)

COMPUTERS_FILE = "Computers/raw/amazon_electronics_computers.npz"
COMPUTERS = Dataset(
    "computers",
    lambda root: _read(root / COMPUTERS_FILE),
    ood_classes=tuple(range(3)),
    description="computer goods that Amazon sells, joined if often bought together; category",
    files={
        COMPUTERS_FILE: File(
            f"{GNN_BENCHMARK}/amazon_electronics_computers.npz",
            31_921_488,
            "736ba1d9fd85eac2da83a5ad25c463f04b0031a6ca01563f90a7099d9e8ffb2c",
        )
    },
    published=Summary(13752, 491722, 10, "high"),
)

PHOTO_FILE = "Photo/raw/amazon_electronics_photo.npz"
PHOTO = Dataset(
    "photo",
    lambda root: _read(root / PHOTO_FILE),
    ood_classes=tuple(range(3)),
    description="photo goods that Amazon sells, joined if often bought together; category",
    files={PHOTO_FILE: File(f"{GNN_BENCHMARK}/amazon_electronics_photo.npz")},
    published=Summary(7650, 238162, 8, "high"),
)

PHYSICS_FILE = "Physics/raw/ms_academic_phy.npz"
PHYSICS = Dataset(
    "physics",
    lambda root: _read(root / PHYSICS_FILE),
    ood_classes=(0, 1),
    description="co-authors in physics; field of study",
    files={PHYSICS_FILE: File(f"{GNN_BENCHMARK}/ms_academic_phy.npz")},
    published=Summary(34493, 495924, 5, "high"),
)

CORA_ML_FILE = "cora_ml/raw/cora_ml.npz"
CORA_ML = Dataset(
    "cora-ml",
    lambda root: _read(root / CORA_ML_FILE),
    ood_classes=tuple(range(3)),
    description="citations among papers on machine learning, more than in cora; topic",
    files={CORA_ML_FILE: File(f"{GRAPH2GAUSS}/cora_ml.npz")},
    published=Summary(2995, 16316, 7, "high"),
)
