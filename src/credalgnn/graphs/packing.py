"""Graphs made into packed ones: from memory, or streamed from the shards of tables."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from ..runtime.files import make_folder
from ..runtime.memory import parse_memory
from ._mapped import Writer
from ._packed_files import cannot_write, check_place, put_in_place, read_header, write_header
from ._rows import chunks
from .errors import GraphError
from .graph import Graph
from .in_edges import INT32
from .packed import open_graph
from .tables import Columns

Progress = Callable[[str, int, int], None]

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
        names = [file.stem for file in part.iterdir()]
        write_header(part, names, graph.num_features, graph.class_names, graph.feature_names)
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
    name, width = ("feature_values", None) if sparse else ("features", graph.num_features)
    with Writer(folder / f"{name}.npy", dtype, width) as file:
        for chunk in chunks(graph.features):
            values = graph.rows(chunk)
            values = values.values() if width is None else values
            with np.errstate(over="ignore"):
                numbers = values.numpy().astype(dtype)
            if not np.isfinite(numbers).all():
                raise GraphError(f"features beyond what {dtype} can hold (65,504): dtype='float32'")
            file.add(numbers)
            graph.release()


def _write(folder: Path, name: str, array: Any) -> None:
    with Writer(folder / f"{name}.npy", array.dtype) as file:
        file.add(array)


class Packed(NamedTuple):
    """What ``pack`` did.

    Args:
        path: The folder of the packed graph.
        nodes: How many nodes.
        edges: How many directed edges.
        bytes: What it takes on the disk.
        seconds: What each stage took in this process; empty if it was packed already.
    """

    path: Path
    nodes: int
    edges: int
    bytes: int
    seconds: dict[str, float]


def pack(
    nodes: str | os.PathLike[str],
    edges: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    id: str = "id",
    label: str | None = "label",
    features: Sequence[str] | None = None,
    source: str = "source",
    target: str = "target",
    weight: str | None = None,
    split: str | None = None,
    delimiter: str | None = None,
    undirected: bool = False,
    dtype: str = "float32",
    memory: str | int | None = None,
    progress: Progress | None = None,
) -> Packed:
    """Make a packed graph of tables that need not fit into memory, as CSV or Parquet files or folders of such shards.

    What is finished stays in ``OUT.part`` until all is: after a kill or with a full disk the same call goes on.

    Args:
        nodes: A file with a row for each node, or a folder of them, which are taken in the order of their names.
        edges: A file with a row for each edge, or a folder of them.
        out: The folder to make, as in ``graph.cg``; a packed graph that is there is replaced when the new one is whole.
        id: See ``Graph.from_tables``.
        label: See ``Graph.from_tables``.
        features: The columns that are features: numbers, or lists of numbers, all as long (an embedding in one column
            of a Parquet file). Default: all others.
        source: See ``Graph.from_tables``.
        target: See ``Graph.from_tables``.
        weight: See ``Graph.from_tables``.
        split: The column of nodes that says train, val, calibration or test; empty: in no part. It is kept with the
            graph, and ``fit`` keeps to it.
        delimiter: See ``Graph.from_tables``.
        undirected: Edges have no direction: each is taken both ways, and once each way, however often it stands there.
        dtype: What features are kept as, ``float32`` or ``float16``.
        memory: What may be used, as in ``"4GiB"``; None: half of what is available.
        progress: Is called with a stage, and how many of how many steps of it are done.
    """
    from ._pack_stages import Packer

    check_dtype(dtype)
    path = Path(out)
    try:
        budget = parse_memory(memory) // (2 if memory is None else 1)
    except ValueError as error:
        raise GraphError(f"memory: {error}") from None
    columns = Columns(id, label, None if features is None else tuple(features), source, target, weight)
    packer = Packer(Path(nodes), Path(edges), path, columns, split, delimiter, undirected, dtype, budget, progress)
    try:
        seconds = packer.run()
    except OSError as error:
        raise cannot_write(path, error) from None
    head = read_header(path)
    size = sum(file.stat().st_size for file in path.iterdir())
    return Packed(path, head["nodes"], head["edges"], size, seconds)
