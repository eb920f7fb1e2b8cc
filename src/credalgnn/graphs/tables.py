"""Graphs from two tables, nodes and edges, as CSV or Parquet files or pyarrow tables."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .graph import Graph, GraphError, checked_ids


def read_graph(
    nodes: Any,
    edges: Any,
    id: str,
    label: str | None,
    features: Sequence[str] | None,
    source: str,
    target: str,
) -> Graph:
    """See ``Graph.from_tables``."""
    _, pc = _pyarrow()
    node_table, node_name = _table(nodes, "nodes", [id])
    edge_table, edge_name = _table(edges, "edges", [source, target])
    if isinstance(nodes, str | os.PathLike) and isinstance(edges, str | os.PathLike):
        node_table, edge_table = _narrow_ids(node_table, edge_table, id, source, target)
    for table, name, wanted in (
        (node_table, node_name, [id, *([label] if label else []), *(features or [])]),
        (edge_table, edge_name, [source, target]),
    ):
        for column in wanted:
            if column not in table.column_names:
                there = ", ".join(table.column_names[:12])
                raise GraphError(f"{name}: there is no column {column!r}; the columns are {there}")
    if not len(edge_table):
        raise GraphError(f"{edge_name}: there are no edges in it")
    ids = _ids(node_table[id], f"{node_name}, column {id}")
    if len(pc.unique(ids)) < len(ids):
        checked_ids(ids.to_numpy(zero_copy_only=False), len(ids))  # says which stands twice
    ends = []
    for column in (source, target):
        found = _ids(edge_table[column], f"{edge_name}, column {column}")
        if found.type != ids.type:
            kinds = f"{column} in {edge_name} is {found.type}, {id} in {node_name} is {ids.type}"
            raise GraphError(f"ids of two types: {kinds}; write them as one, so that 7 and 007 stay apart")
        position = pc.index_in(found, value_set=ids)
        if position.null_count:
            row = int(pc.index(pc.is_null(position), True).as_py())
            raise GraphError(f"{edge_name}, row {row}: {column} {found[row].as_py()!r} is not the id of a node")
        ends.append(position.to_numpy(zero_copy_only=False).astype(np.int64))
    if features is None:
        features = [name for name in node_table.column_names if name not in (id, label)]
        for name in features:
            if not _is_number(node_table[name].type):
                kind = node_table[name].type
                raise GraphError(
                    f"{node_name}, column {name} holds {kind}, not numbers; name the features: features=[...]"
                )
    for name in features:
        if name in (id, label):
            raise GraphError(f"{node_name}: column {name} cannot be a feature, it is the id or the label")
    columns = [_numbers(node_table[name], f"{node_name}, column {name}") for name in features]
    if not columns:
        raise GraphError(f"{node_name}: no numeric feature columns beside {id!r} and {label!r}; give at least one")
    labels, names = (None, None) if label is None else _labels(node_table[label], f"{node_name}, column {label}")
    return Graph(np.stack(columns, 1), np.stack(ends), labels, ids.to_numpy(zero_copy_only=False), names)


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.compute
    except ImportError:
        raise GraphError("reading tables needs pyarrow: pip install 'credalgnn[tables]'") from None
    return pyarrow, pyarrow.compute


def _narrow_ids(nodes: Any, edges: Any, id: str, source: str, target: str) -> tuple[Any, Any]:
    """Ids of CSV files were read as text; make them numbers if that loses nothing in any of the three columns."""
    pa, pc = _pyarrow()
    places = [(nodes, id), (edges, source), (edges, target)]
    if any(name not in table.column_names or not pa.types.is_string(table[name].type) for table, name in places):
        return nodes, edges
    narrowed = []
    for table, name in places:
        try:
            numbers = pc.cast(table[name], pa.int64())
        except pa.ArrowInvalid:
            return nodes, edges
        if not pc.all(pc.equal(pc.cast(numbers, pa.string()), table[name])).as_py():
            return nodes, edges
        narrowed.append(numbers)
    nodes = nodes.set_column(nodes.column_names.index(id), id, narrowed[0])
    for name, numbers in ((source, narrowed[1]), (target, narrowed[2])):
        edges = edges.set_column(edges.column_names.index(name), name, numbers)
    return nodes, edges


def _table(value: Any, role: str, text: Sequence[str]) -> tuple[Any, str]:
    """The table, and its name for messages; the columns ``text`` of a CSV file are read as such."""
    pa, _ = _pyarrow()
    if isinstance(value, pa.Table):
        return _once(value.combine_chunks(), role)
    if not isinstance(value, str | os.PathLike):
        raise GraphError(f"{role}: a path or a pyarrow table is wanted, not {type(value).__name__}")
    path = Path(value)
    if not path.is_file():
        raise GraphError(f"{path}: no such file")
    try:
        if path.suffix == ".parquet":
            import pyarrow.parquet

            return _once(pyarrow.parquet.read_table(path).combine_chunks(), str(path))
        if path.suffix == ".csv":
            import pyarrow.csv

            options = pyarrow.csv.ConvertOptions(column_types=dict.fromkeys(text, pa.string()))
            return _once(pyarrow.csv.read_csv(path, convert_options=options).combine_chunks(), str(path))
    except (pa.ArrowException, OSError) as error:
        raise GraphError(f"{path}: cannot be read ({error})") from None
    raise GraphError(f"{path}: a .csv or .parquet file is wanted")


def _once(table: Any, name: str) -> tuple[Any, str]:
    twice = [column for column in table.column_names if table.column_names.count(column) > 1]
    if twice:
        raise GraphError(f"{name}: the column {twice[0]!r} stands twice")
    return table, name


def _plain(column: Any) -> Any:
    """One array, dictionaries decoded, empty text as null (a CSV file cannot tell them apart)."""
    pa, pc = _pyarrow()
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
        array = pc.if_else(pc.equal(array, ""), pa.scalar(None, array.type), array)
    return array


def _ids(column: Any, name: str) -> Any:
    pa, pc = _pyarrow()
    array = _plain(column)
    if array.null_count:
        raise GraphError(f"{name}: row {int(pc.index(pc.is_null(array), True).as_py())} has no id")
    if pa.types.is_integer(array.type):
        try:
            return array.cast(pa.int64())
        except pa.ArrowInvalid:
            raise GraphError(f"{name}: an id is too large for 64 bits; write ids as text") from None
    if pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
        return array.cast(pa.string())
    raise GraphError(f"{name}: ids must be integers or text, not {array.type}")


def _is_number(kind: Any) -> bool:
    types = _pyarrow()[0].types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind))


def _numbers(column: Any, name: str) -> np.ndarray:
    pa, pc = _pyarrow()
    array = _plain(column)
    if not _is_number(array.type):
        raise GraphError(f"{name}: features must be numbers, not {array.type}; leave the column out or encode it")
    if array.null_count:
        row = int(pc.index(pc.is_null(array), True).as_py())
        raise GraphError(f"{name}: row {row} is empty; fill or drop it first")
    numbers = array.cast(pa.float32(), safe=False).to_numpy(zero_copy_only=False)
    bad = np.flatnonzero(~np.isfinite(numbers))
    if len(bad):
        raise GraphError(f"{name}: row {bad[0]} is {numbers[bad[0]]}; fill or drop it first")
    return np.asarray(numbers)


def _labels(column: Any, name: str) -> tuple[np.ndarray, list[str]]:
    """Class numbers with -1 for null, and the names of the classes, sorted (numbers as numbers)."""
    pa, pc = _pyarrow()
    array = _plain(column)
    kind = array.type
    if not (pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise GraphError(f"{name}: labels must be integers or categories (text), not {kind}")
    if pa.types.is_integer(kind):
        array = pc.if_else(pc.less(array, 0), pa.scalar(None, kind), array)  # negative: unknown
    values = pc.unique(array).drop_null()
    values = values.take(pc.sort_indices(values))
    codes = pc.fill_null(pc.index_in(array, value_set=values, skip_nulls=True), -1)
    return codes.to_numpy(zero_copy_only=False).astype(np.int64), [str(value) for value in values.to_pylist()]
