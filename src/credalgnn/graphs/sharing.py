"""Graphs for other processes: shared arrays, or the path of a packed graph."""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray
from torch import Tensor

from ..runtime.errors import translated
from ..runtime.files import locked, sync_folder
from ..runtime.memory import private_folder, temporary_folder
from ._packed_files import ARRAYS, HEADER
from .edges import Edges
from .errors import GraphError
from .graph import Graph, _in_edges
from .packed import PackedGraph, reopened, verify_packed

CHUNK = 64 << 20  # bytes fetched at a time

Fetch = Callable[[str, str, int, int], bytes]


class GraphHandle(NamedTuple):
    """Picklable handle of a graph: its arrays, those outside of its folder for a packed one.

    ``content`` is the hash that a packed graph must have, ``files`` are the sizes of its files by name.
    """

    arrays: dict[str, NDArray[Any]]
    class_names: tuple[str, ...]
    feature_names: tuple[str, ...] | None
    shape: tuple[int, ...] = ()
    path: Path | None = None
    content: str = ""
    files: dict[str, int] = {}  # noqa: RUF012


def handle_of(graph: Graph) -> GraphHandle:
    """Return the handle of a graph, without node ids."""
    if graph.path is not None:
        labelled = (graph.labels >= 0).nonzero().flatten()
        arrays = {"known": labelled, "labels": graph.labels[labelled]}
        if graph.edge_weight is not None:
            arrays["weighted"] = torch.ones(1)
        names = [HEADER, *(f"{name}.npy" for name in ARRAYS)]
        files = {name: (graph.path / name).stat().st_size for name in names if (graph.path / name).is_file()}
        return GraphHandle(
            _numpy(arrays), graph.class_names, graph.feature_names, path=graph.path, content=graph.content, files=files
        )
    x, edges = graph.features, graph.in_edges
    arrays = {"labels": graph.labels, "edge_index": graph.edge_index, "starts": edges.starts, "sources": edges.sources}
    if graph.edge_weight is not None and edges.weights is not None:
        arrays |= {"edge_weight": graph.edge_weight, "weights": edges.weights}
    if x.layout == torch.sparse_csr:
        arrays |= {"rows": x.crow_indices(), "columns": x.col_indices(), "values": x.values()}
    else:
        arrays["features"] = x
    return GraphHandle(_numpy(arrays), graph.class_names, graph.feature_names, tuple(x.shape))


def from_handle(handle: GraphHandle, fetch: Fetch | None = None) -> Graph:
    """Return the graph of a handle, not validated again; its arrays must not be written to.

    ``fetch`` returns a chunk of a file (folder, name, first byte, size) for machines that do not see the folder; they
    keep a copy among their temporary files.
    """
    arrays = _torch(handle.arrays)
    names: dict[str, Any] = {"class_names": handle.class_names, "feature_names": handle.feature_names}
    if handle.path is not None:
        try:
            packed = _opened(handle.path, handle)
        except (GraphError, OSError):
            if fetch is None:
                raise
            packed = _copied(handle, fetch)
        labels = torch.full((packed.num_nodes,), -1)
        labels[arrays["known"]] = arrays["labels"]
        return packed._with_fields(labels=labels, **names)  # also None, where features have no names
    features = arrays.get("features")
    if features is None:
        parts = arrays["rows"], arrays["columns"], arrays["values"]
        features = torch.sparse_csr_tensor(*parts, handle.shape, check_invariants=False)
    graph = Graph._trusted(
        features=features,
        edge_index=arrays["edge_index"],
        labels=arrays["labels"],
        node_ids=None,
        edge_weight=arrays.get("edge_weight"),
        **names,
    )
    edges = Edges(arrays["starts"], arrays["sources"], arrays.get("weights"))
    graph.derived.get(lambda: edges, _in_edges, ())
    return graph


def _opened(path: Path, handle: GraphHandle) -> PackedGraph:
    """Open the graph of a handle in a folder."""
    return reopened(path, handle.content, {}, None, "weighted" in handle.arrays)


def _copied(handle: GraphHandle, fetch: Fetch) -> PackedGraph:
    """Return the copy of a packed graph on this machine, fetched once, and again if it is damaged."""
    with translated(
        OSError,
        lambda error: GraphError(
            f"{handle.path} is not on {os.uname().nodename}, and cannot be copied to "
            f"{error.filename or temporary_folder()} ({error.strerror}): free some space there, or put the graph where "
            "all machines see it"
        ),
    ):
        folder = private_folder("graphs")
        copy = folder / f"{handle.content}.cg"
        with locked(folder / f"{handle.content}.lock", wait=True):
            with suppress(GraphError):
                return _opened(copy, handle)
            _fetch_all(handle, fetch, copy)
            return _opened(copy, handle)


def _fetch_all(handle: GraphHandle, fetch: Fetch, copy: Path) -> None:
    half = copy.with_suffix(".half")
    shutil.rmtree(half, ignore_errors=True)
    half.mkdir()
    try:
        for name, size in handle.files.items():
            with (half / name).open("wb") as file:
                while file.tell() < size:
                    chunk = fetch(str(handle.path), name, file.tell(), min(CHUNK, size - file.tell()))
                    if not chunk:
                        raise GraphError(f"{handle.path}: {name} has become shorter while it was copied")
                    file.write(chunk)
                file.flush()
                os.fsync(file.fileno())  # copies are not verified again, so they must survive a crash
        sync_folder(half)
        with translated(
            GraphError,
            lambda _: GraphError(
                f"{handle.path}: what came to {os.uname().nodename} is another graph, or a damaged one (was it packed "
                "anew since it was opened?); open it again"
            ),
        ):
            verify_packed(half)
            _opened(half, handle)
        shutil.rmtree(copy, ignore_errors=True)
        half.rename(copy)
        sync_folder(copy.parent)
    finally:
        shutil.rmtree(half, ignore_errors=True)


def _numpy(tensors: dict[str, Tensor]) -> dict[str, NDArray[Any]]:
    return {name: tensor.numpy() for name, tensor in tensors.items()}


def _torch(arrays: dict[str, NDArray[Any]]) -> dict[str, Tensor]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        return {name: torch.from_numpy(array) for name, array in arrays.items()}
