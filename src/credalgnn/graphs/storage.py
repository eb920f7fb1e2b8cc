"""Graphs as plain arrays in npz files: written whole or not at all, read without running code."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from .._files import atomic
from .._reading import Unreadable, read_npz
from .errors import GraphError
from .graph import Graph

FORMAT = 1  # of saved files


def to_arrays(graph: Graph) -> dict[str, NDArray[Any]]:
    """The graph as plain arrays; what is hashed and what is saved.

    Args:
        graph: The graph.
    """
    arrays: dict[str, NDArray[Any]] = {
        "edge_index": graph.edge_index.numpy(),
        "labels": graph.labels.numpy(),
        "class_names": np.array(graph.class_names, dtype=np.str_),
        "shape": np.array(graph.features.shape),
    }
    if graph.features.layout == torch.sparse_csr:
        arrays["starts"] = graph.features.crow_indices().numpy()
        arrays["columns"] = graph.features.col_indices().numpy()
        arrays["values"] = graph.features.values().numpy()
    else:
        arrays["features"] = graph.features.numpy()
    if graph.node_ids is not None:
        arrays["node_ids"] = graph.node_ids
    if graph.feature_names is not None:
        arrays["feature_names"] = np.array(graph.feature_names, dtype=np.str_)
    if graph.edge_weight is not None:
        arrays["edge_weight"] = graph.edge_weight.numpy()
    return arrays


def fingerprint(graph: Graph) -> str:
    """See ``Graph.fingerprint``.

    Args:
        graph: The graph.
    """
    digest = hashlib.blake2b(digest_size=16)
    for name, array in sorted(to_arrays(graph).items()):
        digest.update(f"{name} {array.dtype.kind} {array.shape};".encode())
        if array.dtype.kind == "U":  # as text: the width of the array says nothing about its content
            digest.update("\0".join(array.tolist()).encode())
        elif array.size:
            digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def content(graph: Graph) -> str:
    """See ``Graph.content``.

    Args:
        graph: The graph.
    """
    digest = hashlib.blake2b(digest_size=16)
    x = graph.features
    parts = [x] if x.layout == torch.strided else [x.crow_indices(), x.col_indices(), x.values()]
    weights = [] if graph.edge_weight is None else [graph.edge_weight]
    for part in (*parts, graph.edge_index, *weights):
        digest.update(f"{list(part.shape)} {part.dtype};".encode())
        if part.numel():
            digest.update(np.ascontiguousarray(part.numpy()).data)
    return digest.hexdigest()


def write_arrays(path: Path, arrays: dict[str, NDArray[Any]]) -> None:
    """Write an npz file, so that a reader sees all of it or nothing.

    Args:
        path: Where to.
        arrays: What ``to_arrays`` gave, and perhaps more.
    """
    with atomic(path) as file:
        np.savez(file, format=np.array(FORMAT), **arrays)  # type: ignore[arg-type]


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of a saved graph; never a pickle.

    Args:
        path: The file.
    """
    if not path.is_file():
        raise GraphError(f"{path}: no such file")
    try:
        arrays = read_npz(path)
    except (Unreadable, OSError) as error:
        raise GraphError(f"{path}: not a saved graph ({error})") from None
    if not np.array_equal(arrays.pop("format", np.array(0)), FORMAT) or "edge_index" not in arrays:
        raise GraphError(f"{path}: not a graph saved by this version; save it again")
    return arrays


def from_arrays(arrays: dict[str, NDArray[Any]], path: Path) -> Graph:
    """The graph that ``to_arrays`` took apart, checked like any other.

    Args:
        arrays: The arrays.
        path: Where they come from, for messages.
    """
    try:
        if "features" in arrays:
            features = torch.from_numpy(arrays["features"])
        else:
            starts, columns, values = (torch.from_numpy(arrays[name]) for name in ("starts", "columns", "values"))
            shape = [int(n) for n in arrays["shape"]]
            features = torch.sparse_csr_tensor(starts, columns, values, shape, check_invariants=True)
        names = arrays.get("feature_names")
        return Graph(
            features,
            arrays["edge_index"],
            arrays["labels"],
            arrays.get("node_ids"),
            arrays["class_names"].tolist(),
            feature_names=None if names is None else names.tolist(),
            edge_weight=arrays.get("edge_weight"),
            edgeless=True,
        )
    except (KeyError, RuntimeError) as error:
        raise GraphError(f"{path}: not a saved graph ({error})") from None
