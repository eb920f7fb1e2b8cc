"""Graphs as plain arrays in ``.npz`` files, written atomically and read without running code."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..runtime.errors import translated
from ..runtime.files import BLANK, atomic, is_sealed_zip, seal_zip
from ..runtime.reading import open_file, read_npz
from .errors import GraphError

if TYPE_CHECKING:
    from .graph import Graph

FORMAT = 2  # of saved files
CHUNK = 1 << 16  # ids hashed at a time
FOREIGN = 1  # of files that other programs make: the same arrays without a checksum


def to_arrays(graph: Graph) -> dict[str, NDArray[Any]]:
    """Return the graph as the plain arrays that are hashed and saved."""
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
    """See ``Graph.fingerprint``."""
    digest = hashlib.blake2b(digest_size=16)
    for name, array in sorted(to_arrays(graph).items()):
        digest.update(f"{name} {array.dtype.kind} {array.shape};".encode())
        if array.dtype.kind == "U":  # as text: the width of the array is not content
            digest.update("\0".join(array.tolist()).encode())
        elif array.size:
            digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def content(graph: Graph) -> str:
    """See ``Graph.content``."""
    digest = hashlib.blake2b(digest_size=16)
    x = graph.features
    parts = [x] if x.layout == torch.strided else [x.crow_indices(), x.col_indices(), x.values()]
    weights = [] if graph.edge_weight is None else [graph.edge_weight]
    for part in (*parts, graph.edge_index, *weights):
        digest.update(f"{list(part.shape)} {part.dtype};".encode())
        if part.numel():
            digest.update(np.ascontiguousarray(part.numpy()).data)
    return digest.hexdigest()


def ids_digest(graph: Graph) -> str:
    """See ``Graph.ids_digest``."""
    if graph.node_ids is None:
        return ""
    digest = hashlib.blake2b(graph.node_ids.dtype.str.encode(), digest_size=16)
    for first in range(0, graph.num_nodes, CHUNK):
        digest.update(np.ascontiguousarray(graph.node_ids[first : first + CHUNK]).view(np.uint8).data)
    return digest.hexdigest()


def write_arrays(path: Path, arrays: dict[str, NDArray[Any]]) -> None:
    """Write an npz file with a checksum, atomically."""
    with atomic(path) as file:
        with zipfile.ZipFile(file, "w") as archive:
            archive.comment = BLANK.encode()
            for name, array in {"format": np.array(FORMAT), **arrays}.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, array, allow_pickle=False)
        seal_zip(file)


def read_arrays(path: Path, sealed: bool = False) -> dict[str, NDArray[Any]]:
    """Return the arrays of a saved graph.

    With ``sealed``, files without a checksum, which other programs write, are refused as well.
    """
    if not path.is_file():
        raise GraphError(f"{path}: no such file")
    with translated(
        (ValueError, TypeError, OSError),
        lambda error: GraphError(f"{path}: not a saved graph, or damaged ({error}); save it again"),
    ):
        with open_file(path) as stream:
            is_sealed = is_sealed_zip(stream)
        arrays = read_npz(path)
        version = int(arrays.pop("format", np.array(0)))
    if version not in (FORMAT, FOREIGN) or "edge_index" not in arrays:
        raise GraphError(f"{path}: not a graph saved by this version; save it again")
    if not is_sealed and (sealed or version == FORMAT):
        remedy = "" if sealed else "; save the graph again"
        raise GraphError(f"{path}: damaged or changed, its checksum does not fit{remedy}")
    return arrays


def from_arrays(arrays: dict[str, NDArray[Any]], path: Path) -> dict[str, Any]:
    """Return the arguments of ``Graph`` that ``to_arrays`` took apart."""
    with translated(
        (KeyError, RuntimeError), lambda error: GraphError(f"{path}: not a saved graph ({error}); save it again")
    ):
        if "features" in arrays:
            features = torch.from_numpy(arrays["features"])
        else:
            starts, columns, values = (torch.from_numpy(arrays[name]) for name in ("starts", "columns", "values"))
            shape = [int(n) for n in arrays["shape"]]
            features = torch.sparse_csr_tensor(starts, columns, values, shape, check_invariants=True)
        names = arrays.get("feature_names")
        return {
            "features": features,
            "edge_index": arrays["edge_index"],
            "labels": arrays["labels"],
            "node_ids": arrays.get("node_ids"),
            "class_names": arrays["class_names"].tolist(),
            "feature_names": None if names is None else names.tolist(),
            "edge_weight": arrays.get("edge_weight"),
            "edgeless": True,
        }
