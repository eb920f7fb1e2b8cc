"""Small files in Planetoid's format: pickles as Python 2 wrote them, with its strings and its names of modules."""

from __future__ import annotations

import io
import pickle
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

NODES, FIRST_TEST, FEATURES, CLASSES = 60, 40, 12, 7


class Name:
    """Something that a pickle names and does not hold."""

    def __init__(self, module: str, name: str) -> None:
        self.line = f"c{module}\n{name}\n".encode()

    def __call__(self, *_: Any) -> None:
        """The pickler wants what makes an object to be callable."""


class Python2Pickler(pickle._Pickler):
    def save(self, value: Any, save_persistent_id: bool = True) -> None:
        if isinstance(value, Name):
            self.write(value.line)
        elif isinstance(value, str | bytes):
            self._text(value if isinstance(value, bytes) else value.encode())
        elif isinstance(value, np.ndarray):
            by_columns = value.flags.f_contiguous and not value.flags.c_contiguous
            state = (1, value.shape, value.dtype, by_columns, value.tobytes("A"))
            made_with = (Name("numpy", "ndarray"), (0,), "b")
            self.save_reduce(Name("numpy.core.multiarray", "_reconstruct"), made_with, state)
        elif isinstance(value, np.dtype):
            state = (3, value.str[0], None, None, None, -1, -1, 0)
            self.save_reduce(Name("numpy", "dtype"), (value.str[1:], 0, 1), state)
        elif isinstance(value, sp.csr_matrix):
            self.write(Name("scipy.sparse.csr", "csr_matrix").line + pickle.EMPTY_TUPLE + pickle.NEWOBJ)
            parts = {"indptr": value.indptr, "indices": value.indices, "data": value.data}
            self.save({"format": "csr", "_shape": value.shape, "maxprint": 50} | parts)
            self.write(pickle.BUILD)
        else:
            super().save(value, save_persistent_id)

    def _text(self, content: bytes) -> None:
        if self.proto == 0:
            self.write(b"S" + repr(content)[1:].encode() + b"\n")
        elif len(content) < 256:
            self.write(b"U" + bytes([len(content)]) + content)
        else:
            self.write(b"T" + len(content).to_bytes(4, "little") + content)


def python2(value: Any, protocol: int = 2) -> bytes:
    stream = io.BytesIO()
    Python2Pickler(stream, protocol).dump(value)
    return stream.getvalue()


def write_planetoid(
    root: Path, folder: str = "Cora", skipped: tuple[int, ...] = (), protocol: int = 2
) -> tuple[np.ndarray, list[int], list[tuple[int, int]]]:
    """Files below ``root``; features, labels and edges that are to be read from them, the latter sorted."""
    rng = np.random.default_rng(0)
    features = (rng.random((NODES, FEATURES)) < 0.2) * rng.random((NODES, FEATURES)).astype(np.float32)
    labels = rng.permutation(np.arange(NODES) % CLASSES)
    tested = rng.permutation([node for node in range(FIRST_TEST, NODES) if node not in skipped])
    pairs = rng.integers(NODES, size=(2 * NODES, 2)).tolist()
    pairs += [(3, 3), pairs[0], *((node, 0) for node in skipped)]  # a self-loop, a duplicate
    neighbours: dict[int, list[int]] = defaultdict(list, {node: [] for node in rng.permutation(NODES).tolist()})
    for one, other in pairs:
        neighbours[one].append(other)
        neighbours[other].append(one)
    one_hot = np.eye(CLASSES, dtype=np.int32)[labels]
    rows = {"": np.arange(10), "all": np.arange(FIRST_TEST), "t": tested}
    content = {f"{part}x": python2(sp.csr_matrix(features[nodes])) for part, nodes in rows.items()}
    content |= {f"{part}y": python2(one_hot[nodes], protocol) for part, nodes in rows.items()}
    content["graph"] = python2(neighbours, protocol)
    content["test.index"] = "".join(f"{node}\n" for node in tested).encode()
    raw = root / folder / "raw"
    raw.mkdir(parents=True)
    for part, written in content.items():
        (raw / f"ind.{folder.lower()}.{part}").write_bytes(written)
    for node in skipped:
        features[node], labels[node] = 0, -1
    edges = sorted({(a, b) for one, other in pairs for a, b in ((one, other), (other, one)) if a != b})
    return features, labels.tolist(), edges


COMPUTERS = "Computers/raw/amazon_electronics_computers.npz"


def write_gnn_benchmark(
    root: Path, file: str = COMPUTERS, pickled: bool = False
) -> tuple[np.ndarray, np.ndarray, list[tuple[int, int]]]:
    """gnn-benchmark's format: indices in any order, some twice; features, labels and sorted edges.

    ``pickled``: the names of the classes are objects, as Coauthor's are.
    """
    rng = np.random.default_rng(1)
    labels = rng.permutation(np.arange(NODES) % CLASSES)
    names = np.array([f"goods {k}" for k in range(CLASSES)], dtype=object if pickled else None)
    content: dict[str, Any] = {"labels": labels, "class_names": names}
    dense = {}
    for part, columns in (("attr", FEATURES), ("adj", NODES)):
        indices = rng.integers(columns, size=(NODES, 3)).astype(np.int32)
        indices[0] = 0  # in the adjacency matrix a self-loop
        values = rng.integers(1, 4, size=3 * NODES).astype(np.float32)
        starts = np.arange(0, 3 * NODES + 1, 3, dtype=np.int32)
        content |= {f"{part}_data": values, f"{part}_indices": indices.reshape(-1), f"{part}_indptr": starts}
        content[f"{part}_shape"] = np.array([NODES, columns])
        dense[part] = sp.csr_matrix((values, indices.reshape(-1), starts), shape=(NODES, columns)).toarray()
    path = root / file
    path.parent.mkdir(parents=True)
    np.savez(path, **content)
    joined = np.argwhere((dense["adj"] + dense["adj"].T) > 0).tolist()
    return dense["attr"], labels, [(one, other) for one, other in joined if one != other]
