"""Graphs made into packed ones: from memory, or streamed from the shards of tables."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .._files import make_folder
from ._mapped import Writer
from ._packed_files import cannot_write, check_place, put_in_place, write_header
from ._rows import pieces
from .errors import GraphError
from .graph import Graph
from .in_edges import INT32
from .packed import open_graph

DTYPES = ("float32", "float16")


def pack_graph(graph: Graph, path: Path, dtype: str = "float32") -> Graph:
    """See ``Graph.pack``.

    Args:
        graph: The graph.
        path: The folder.
        dtype: What features are kept as.
    """
    check_dtype(dtype)
    check_place(path)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        make_folder(path.parent)
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir()
        _write_arrays(graph, part, dtype)
        write_header(part, graph.num_features, graph.class_names, graph.feature_names)
        put_in_place(part, path)
    except OSError as error:
        raise cannot_write(path, error, resumable=False) from None
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return open_graph(path)


def check_dtype(dtype: str) -> None:
    """Refuse what features are not kept as.

    Args:
        dtype: The name of the type.
    """
    if dtype not in DTYPES:
        raise GraphError(f"dtype must be {' or '.join(DTYPES)}, not {dtype!r:.40}")


def label_type(classes: int) -> Any:
    """The smallest type for the numbers of so many classes.

    Args:
        classes: How many there are.
    """
    return np.int16 if classes < 2**15 else np.int32 if classes < 2**31 else np.int64


def _write_arrays(graph: Graph, folder: Path, dtype: str) -> None:
    edges, sparse = graph.in_edges, graph.features.layout == torch.sparse_csr
    _write(folder, "labels", graph.labels.numpy().astype(label_type(graph.num_classes)))
    _write(folder, "starts", edges.starts.numpy())
    _write(folder, "sources", edges.sources.numpy())
    if edges.weights is not None:
        _write(folder, "weights", edges.weights.numpy())
    if graph.node_ids is not None:
        _write(folder, "node_ids", np.asarray(graph.node_ids))
    if sparse:
        index = np.int32 if graph.features.values().numel() <= INT32 else np.int64
        _write(folder, "feature_starts", graph.features.crow_indices().numpy().astype(index))
        _write(folder, "feature_columns", graph.features.col_indices().numpy().astype(index))
    name, width = (
        ("feature_values", None) if graph.features.layout == torch.sparse_csr else ("features", graph.num_features)
    )
    with Writer(folder / f"{name}.npy", dtype, width) as file:
        for piece in pieces(graph.features):
            values = graph.rows(piece)
            values = values.values() if width is None else values
            numbers = values.numpy().astype(dtype)
            if not np.isfinite(numbers).all():
                raise GraphError(f"features beyond what {dtype} can hold (65,504): dtype='float32'")
            file.add(numbers)
            graph.release()


def _write(folder: Path, name: str, array: Any) -> None:
    with Writer(folder / f"{name}.npy", array.dtype) as file:
        file.add(array)
