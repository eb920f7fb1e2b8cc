"""Graphs from files and folders, and from tables whose columns are encoded as features."""

from __future__ import annotations

import os
import pickle
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..runtime.errors import translated
from ..runtime.reading import Unreadable, check_regular, read_tensors
from ._checks import check_mask
from ._packed_files import PARTS, is_packed
from ._table_files import NamedTable, find_tables, read_table
from .convert import flat
from .encoding import FeatureEncoder
from .errors import GraphError, warn
from .graph import Graph
from .packed import open_packed
from .storage import from_arrays, read_arrays
from .tables import (
    INDEX,
    Columns,
    Ends,
    Links,
    check_nodes,
    join_tables,
    labels_of,
    merged_labels,
    parts_of,
    place_name,
    read_edges,
)

ENDINGS = (".npz", ".pt", ".pth", ".safetensors")
TENSORS = ("x", "edge_index", "y", "edge_weight")
REMEDY = "save plain tensors: torch.save(data.to_dict(), path)"


class TablePaths(NamedTuple):
    """Files of two tables that are still to be read, by ``read_tables`` or ``Graph.from_tables``.

    Args:
        nodes: File with a row for each node.
        edges: File with a row for each edge.
    """

    nodes: Path
    edges: Path


class GraphParts(NamedTuple):
    """A graph whose features are used unchanged, and its split.

    Args:
        graph: The graph.
        parts: Node numbers of the parts of its split: some of ``train``, ``val``, ``calibration`` and ``test``.
    """

    graph: Graph
    parts: dict[str, Tensor]


def path_kind(path: str | os.PathLike[str]) -> str | None:
    """Return ``file``, ``packed`` or ``folder`` for the path of a graph, None for any other text."""
    place = Path(path)
    if place.suffix.lower() in ENDINGS:
        return "file"
    if place.suffix.lower() == ".cg" or is_packed(place):
        return "packed"
    return "folder" if place.is_dir() else None


def open_graph(path: str | os.PathLike[str]) -> Graph:
    """Return the graph in a file or folder; features of tables are their numeric columns, unchanged."""
    source = read_source(path)
    return Graph.from_tables(*source) if isinstance(source, TablePaths) else source.graph


def read_source(path: str | os.PathLike[str]) -> TablePaths | GraphParts:
    """Return the graph at a path, with its split, or the paths of tables to make it of.

    Args:
        path: A folder with tables ``nodes`` and ``edges``, a packed graph (``.cg``), a file of ``Graph.save``
            (``.npz``), or tensors, as in ``torch.save(data.to_dict(), path)`` (``.pt``, ``.pth``) or a ``.safetensors``
            file: ``x``, ``edge_index`` and, if present, ``y``, ``edge_weight``, ``train_mask``, ``val_mask``,
            ``calibration_mask`` and ``test_mask``. No code in a file is run.
    """
    place, kind = Path(path), path_kind(path)
    if kind == "packed":
        packed = open_packed(place)
        return GraphParts(packed, packed.parts)
    if kind == "folder":
        return TablePaths(*find_tables(place))
    if not place.exists():
        raise GraphError(f"{place}: no such file or folder")
    ending = place.suffix.lower()
    if ending == ".npz":
        return GraphParts(Graph(**from_arrays(read_arrays(place), place)), {})
    if ending in (".pt", ".pth"):
        return _from_tensors(_load_torch(place), place)
    if ending == ".safetensors":
        return _from_tensors(_load_safetensors(place), place)
    raise GraphError(
        f"{place}: not a graph; give a folder with nodes and edges tables, a packed graph (.cg), an .npz, .pt or "
        ".safetensors file, or two tables of other names separately, as nodes and edges"
    )


def _load_torch(path: Path) -> Any:
    try:
        check_regular(path)
        claimed = torch.load(path, map_location="meta", weights_only=True)  # allocates nothing
        _check_sizes(claimed, path)
        return torch.load(path, map_location="cpu", weights_only=True)
    except GraphError:
        raise
    except pickle.UnpicklingError:
        raise GraphError(f"{path}: holds objects, which could run anything when read; {REMEDY}") from None
    except Exception as error:  # torch raises almost any error for files of other programs
        raise GraphError(f"{path}: cannot be read ({(str(error) or 'no reason').splitlines()[0]}); {REMEDY}") from None


def _check_sizes(values: Any, path: Path) -> None:
    """Refuse tensors larger than the file, which stores them uncompressed."""
    size = path.stat().st_size
    for name, value in values.items() if isinstance(values, dict) else ():
        if isinstance(value, Tensor) and value.layout == torch.strided and value.numel() * value.element_size() > size:
            raise GraphError(
                f"{path}: {name} claims the shape {list(value.shape)}, more than the file's {size:,} bytes; {REMEDY}"
            )


def _load_safetensors(path: Path) -> Any:
    with translated(
        (Unreadable, OSError),
        lambda error: GraphError(f"{path}: cannot be read ({error}); write it again with safetensors"),
    ):
        return read_tensors(path)[0]


def _from_tensors(values: Any, path: Path) -> GraphParts:
    """Return the graph of named tensors and the split of their masks."""
    if not isinstance(values, dict):
        raise GraphError(f"{path}: a dictionary of tensors is wanted, not {type(values).__name__}; {REMEDY}")
    if any(isinstance(value, dict) for value in values.values()):
        raise GraphError(f"{path}: has several types of nodes or edges; save data.to_homogeneous().to_dict()")
    for name in ("x", "edge_index"):
        if not isinstance(values.get(name), Tensor):
            present = ", ".join(str(key) for key in list(values)[:12]) or "nothing"
            raise GraphError(f"{path}: there is no tensor {name!r} in it, but {present}")
    masks = {part: values[f"{part}_mask"] for part in PARTS if values.get(f"{part}_mask") is not None}
    unused = [str(key) for key in values if key not in TENSORS and str(key).removesuffix("_mask") not in masks]
    if unused:
        warn(f"{path}: {', '.join(unused[:12])} are not used; a graph has {', '.join(TENSORS)} and masks")
    with translated(GraphError, lambda error: GraphError(f"{path}: {error}")):
        graph = Graph(values["x"], values["edge_index"], flat(values.get("y")), edge_weight=values.get("edge_weight"))
        taken = torch.zeros(graph.num_nodes, dtype=torch.int64)
        for part, mask in masks.items():
            check_mask(mask, part, graph.num_nodes)
            taken += mask
    twice = (taken > 1).nonzero()
    if len(twice):
        raise GraphError(f"{path}: node {int(twice[0])} is in two of the masks; a node can be in one part only")
    return GraphParts(graph, {part: mask.nonzero().squeeze(-1) for part, mask in masks.items() if bool(mask.any())})


@dataclass(frozen=True, eq=False)
class TableGraph:
    """Result of ``read_tables``.

    Args:
        graph: The graph; nodes of the context come first, then those of the table of nodes.
        encoder: Encoder that made its features of the columns.
        new: Numbers of the nodes of the table of nodes, in its order.
        parts: Node numbers of the parts of the split that the table names: some of ``train``, ``val``, ``calibration``
            and ``test``.
    """

    graph: Graph
    encoder: FeatureEncoder
    new: Tensor
    parts: dict[str, Tensor]


def read_tables(
    nodes: Any,
    edges: Any,
    columns: Columns,
    *,
    delimiter: str | None = None,
    encoder: FeatureEncoder | None = None,
    class_names: Sequence[str] | None = None,
    context: tuple[Any, Any] | None = None,
    split: str | None = None,
    undirected: bool = False,
) -> TableGraph:
    """Read a graph from two tables, encoding its features: to fit a model, or to predict with a fitted encoder.

    Args:
        nodes: Table with a row for each node: a path, a pyarrow table or a pandas data frame.
        edges: Table with a row for each edge, likewise. With an encoder, None means no edges but those of the context.
        columns: Roles of the columns.
        delimiter: Field separator of text files. Default: detected in the header of each.
        encoder: Fitted encoder; ``columns.features`` is ignored then. Default: fitted on ``nodes``.
        class_names: Classes of a model, which get the first numbers; other labels follow. The column of labels may be
            missing then. Default: the labels of the tables, sorted.
        context: Tables of earlier nodes and edges; the edges may be None. Edges of either table may join old and new
            nodes; the new tables take precedence for nodes and edges in both.
        split: Column of ``nodes`` with the part of each node: train, val (valid, validation), calibration (calib, cal),
            test, or empty. It is no feature.
        undirected: Add the reverse of each edge; repeated edges count once.
    """
    learning = encoder is None
    _check_request(edges, columns, encoder, class_names, context)
    text = [columns.id, *([split] if split else []), *(encoder.text_columns if encoder is not None else [])]
    if class_names is not None and columns.label is not None:
        text.append(columns.label)  # as the model stored it, e.g. 007
    tables = [read_table(nodes, "nodes", text, delimiter)]
    links = [] if edges is None else [read_edges(edges, "edges", columns, delimiter)]
    if context is not None:
        tables.insert(0, read_table(context[0], "context nodes", text, delimiter))
        if context[1] is not None:
            links.insert(0, read_edges(context[1], "context edges", columns, delimiter))
    needed = [columns.label] if class_names is None and columns.label else []
    for table in tables[:-1]:
        check_nodes(table, columns, needed)
    check_nodes(tables[-1], columns, [*needed, *([split] if split else [])])

    edge_name = links[0][0].name if links else ""
    tables, ids, joined = join_tables(tables, columns.id, links)
    labels, classes = merged_labels([_labels(table, columns.label) for table in tables], class_names)
    count, old = len(labels), len(labels) - len(ids[-1])
    parts = {}
    if split is not None:
        rows = parts_of(tables[-1].table[split], place_name(tables[-1], split))
        parts = {part: torch.from_numpy(at) + old for part, at in rows.items()}
    if undirected:
        joined = [both_ways(links, count) for links in joined]
    elif learning:
        warn_of_one_way(joined[0], count, edge_name)
    if len(joined) == 2:
        joined[0] = without(joined[0], joined[1], count, edge_name)
    weighted = [weights is not None for _, weights in joined]
    if any(weighted) and not all(weighted):
        raise GraphError("edges have weights in one of the tables of edges only; give both a column of them, or none")

    candidates = [table.table.drop_columns(_no_features(table, columns, split, encoder)) for table in tables]
    if encoder is None:
        encoder = FeatureEncoder.fit(candidates[0], columns.features, tables[0].name)
        others = set(tables[0].table.column_names) - set(candidates[0].column_names)  # a later split column is not new
        encoder = replace(encoder, ignored=(*encoder.ignored, *sorted(others)))
    matrices = [encoder(table, named.name)[0] for table, named in zip(candidates, tables, strict=True)]
    del candidates, tables, links  # the graph copies them
    graph = Graph(
        matrices[0] if len(matrices) == 1 else _stacked(matrices),
        np.concatenate([ends for ends, _ in joined], 1) if joined else np.zeros((2, 0), np.int64),
        labels,
        ids[0] if len(ids) == 1 else np.concatenate(ids),
        classes,
        feature_names=encoder.feature_names,
        edge_weight=np.concatenate([weights for _, weights in joined]) if any(weighted) else None,
        edgeless=not learning,
    )
    return TableGraph(graph, encoder, torch.arange(old, count), parts)


def _check_request(
    edges: Any, columns: Columns, encoder: Any, class_names: Sequence[str] | None, context: tuple[Any, Any] | None
) -> None:
    """Refuse options that need a fitted model."""
    if encoder is None and edges is None:
        raise GraphError("a table of edges is needed to learn from: `edges`")
    if encoder is None and context is not None:
        raise GraphError("a context is for nodes that come after fitting; to learn from all, put them into one table")
    if class_names is None and columns.label is None:
        raise GraphError("labels are needed to learn from: name their column, `label`")


def _no_features(named: NamedTable, columns: Columns, split: str | None, encoder: FeatureEncoder | None) -> list[str]:
    """Return the columns that are no features: id, label, split, and an index of pandas unless it is named."""
    roles = {columns.id, columns.label, split}
    chosen = columns.features if encoder is None else [column.name for column in encoder.columns]
    for column in chosen or ():
        if column in roles:
            raise GraphError(f"{named.name}: column {column} cannot be a feature, it is the id, the label or the split")
    return [
        column
        for column in named.table.column_names
        if column in roles or (INDEX.fullmatch(column) and column not in (chosen or ()))
    ]


def _labels(named: NamedTable, label: str | None) -> tuple[NDArray[np.int64], list[str]]:
    if label is None or label not in named.table.column_names:
        return np.full(named.table.num_rows, -1), []
    return labels_of(named.table[label], place_name(named, label))


def _stacked(matrices: list[Any]) -> Any:
    """Stack matrices, sparse if one of them is."""
    if all(isinstance(matrix, np.ndarray) for matrix in matrices):
        return np.concatenate(matrices)
    from scipy.sparse import csr_array, vstack

    return vstack([csr_array(matrix) for matrix in matrices], format="csr")


ENOUGH = 100  # edges; the absence of reverse ones is no coincidence then


def both_ways(links: Links, count: int) -> Links:
    """Return every edge in both directions, once each."""
    (source, target), weights = links
    if not len(source):
        return links
    order, begins, turned, pair = _by_pair(source, target, count)
    forth, back = (
        np.zeros(len(source), np.bool_),
        np.zeros(len(source), np.bool_),
    )  # edges that stay; reverses to add
    first = order[begins]
    forth[first] = True
    forth[order[turned[np.diff(pair, prepend=-1) > 0]]] = True  # the first edge of a pair in the other direction
    back[first] = source[first] != target[first]
    back[first[pair]] = False
    rows, turned_rows = np.flatnonzero(forth), np.flatnonzero(back)
    both = np.empty((2, len(rows) + len(turned_rows)), source.dtype)
    for ends, one, other in zip(both, (source, target), (target, source), strict=True):
        np.take(one, rows, out=ends[: len(rows)])
        np.take(other, turned_rows, out=ends[len(rows) :])
    return both, None if weights is None else np.concatenate([weights[rows], weights[turned_rows]])


def _by_pair(
    source: Ends, target: Ends, count: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Order edges by unordered pairs of nodes, stably.

    Returned are the order, the first position of each pair in it, the positions of edges opposite to the first one of
    their pair, ascending, and the number of the pair of each of these.
    """
    codes = np.minimum(source, target).astype(np.int64, copy=False)
    codes *= count
    codes += np.maximum(source, target)
    values, order = (part.numpy() for part in torch.sort(torch.from_numpy(codes), stable=True))  # radix sort
    again = np.flatnonzero(values[1:] == values[:-1]) + 1  # not the first of their pair
    begins = np.ones(len(values), np.bool_)
    begins[again] = False
    begin = np.flatnonzero(begins)
    pair = again - np.arange(1, len(again) + 1)  # number of pairs that begin before, less one
    here, first = order[again], order[begin[pair]]
    against = (source[here] > target[here]) != (source[first] > target[first])
    return order, begin, again[against], pair[against]


def warn_of_one_way(links: Links, count: int, name: str) -> None:
    """Warn if no edge has a reverse: tables often list undirected edges once."""
    (source, target), _ = links
    apart = int(np.count_nonzero(source != target))
    if apart >= ENOUGH and not len(_by_pair(source, target, count)[2]):
        warn(
            f"{name}: no edge has its counterpart in the other direction; if edges have no direction, say so: "
            "undirected=True"
        )


def without(old: Links, new: Links, count: int, name: str) -> Links:
    """Return the edges of the context that are not among the new ones."""
    codes = [source.astype(np.int64) * count + target for source, target in (old[0], new[0])]
    others = ~np.isin(codes[0], codes[1])
    if not others.all():
        warn(f"{name}: {int((~others).sum()):,} edges stand in the new table of edges, too, and are taken from there")
    return old[0][:, others], None if old[1] is None else old[1][others]
