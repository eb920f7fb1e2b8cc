"""Graphs from two tables, nodes and edges, as CSV or Parquet files or pyarrow tables."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ._checks import checked_ids
from .errors import GraphError, GraphWarning
from .graph import Graph

DELIMITERS = ",;|\t"
TEXT, PARQUET = (".csv", ".tsv", ".csv.gz", ".tsv.gz"), (".parquet",)  # endings, whatever their case
NO_LABEL = ("", "na", "n/a", "nan", "none", "null")  # as labels, whatever their case
WHOLE = r"^-?(0|[1-9][0-9]{0,14})(\.0*)?$"  # a whole number as text; 007 and what no float can hold are names
INDEX = re.compile(r"|Unnamed: \d+|__index_level_\d+__")  # what pandas calls an index that was written, too


class Columns(NamedTuple):
    """Which columns are what; see ``Graph.from_tables``.

    Args:
        id: What a node is called.
        label: Its class.
        features: Its features.
        source: The id of the node that an edge comes from.
        target: The id of the node that it goes to.
        weight: Its weight.
    """

    id: str = "id"
    label: str | None = "label"
    features: Sequence[str] | None = None
    source: str = "source"
    target: str = "target"
    weight: str | None = None


def read_graph(nodes: Any, edges: Any, columns: Columns, delimiter: str | None = None) -> Graph:
    """See ``Graph.from_tables``.

    Args:
        nodes: A file or a table with a row for each node.
        edges: A file or a table with a row for each edge.
        columns: Which columns are what.
        delimiter: What stands between the fields of a text file; None: found in the header.
    """
    _, pc = _pyarrow()
    id, label, features, source, target, weight = columns
    node_table, node_name = _table(nodes, "nodes", [id], delimiter)
    edge_table, edge_name = _table(edges, "edges", [source, target], delimiter)
    if isinstance(nodes, str | os.PathLike) and isinstance(edges, str | os.PathLike):
        node_table, edge_table = _narrow_ids(node_table, edge_table, id, source, target)
    for table, name, wanted in (
        (node_table, node_name, [id, *([label] if label else []), *(features or [])]),
        (edge_table, edge_name, [source, target, *([weight] if weight else [])]),
    ):
        for column in wanted:
            if column not in table.column_names:
                there = ", ".join(table.column_names[:12])
                hint = "" if table.num_columns > 1 else "; if these are several, give delimiter="
                raise GraphError(f"{name}: there is no column {column!r}; the columns are {there}{hint}")
    if not len(edge_table):
        raise GraphError(f"{edge_name}: there are no edges in it")
    ids = _ids(node_table[id], f"{node_name}, column {id}")
    if len(pc.unique(ids)) < len(ids):
        checked_ids(ids.to_numpy(zero_copy_only=False), len(ids))  # says which stands twice
    ends = []
    for column in (source, target):
        named = _ids(edge_table[column], f"{edge_name}, column {column}")
        if named.type != ids.type:
            kinds = f"{column} in {edge_name} is {named.type}, {id} in {node_name} is {ids.type}"
            raise GraphError(f"ids of two types: {kinds}; write them as one, so that 7 and 007 stay apart")
        position = pc.index_in(named, value_set=ids)
        if position.null_count:
            row = int(pc.index(pc.is_null(position), True).as_py())
            raise GraphError(f"{edge_name}, row {row}: {column} {named[row].as_py()!r} is not the id of a node")
        ends.append(position.to_numpy(zero_copy_only=False).astype(np.int64))
    weights = _weights(edge_table, edge_name, columns)
    matrix, names = _features(node_table, node_name, columns)
    labels, classes = (None, None) if label is None else _labels(node_table[label], f"{node_name}, column {label}")
    ids = ids.to_numpy(zero_copy_only=False)
    return Graph(matrix, np.stack(ends), labels, ids, classes, feature_names=names, edge_weight=weights)


def _features(table: Any, name: str, columns: Columns) -> tuple[NDArray[np.float32], list[str]]:
    """The feature columns ``[N, F]`` and their names; by default all that are neither id, label nor pandas' index."""
    others = [column for column in table.column_names if column not in (columns.id, columns.label)]
    chosen = list(columns.features) if columns.features is not None else others
    if columns.features is None:
        for column in [column for column in others if INDEX.fullmatch(column)]:
            chosen.remove(column)
            _warn(f"{name}: the column {column!r} is left out as the index of a data frame; features=[...] takes it in")
        for column in chosen:
            if not _is_number(table[column].type):
                kind = table[column].type
                raise GraphError(
                    f"{name}, column {column} holds {kind}, not numbers; name the features: features=[...]"
                )
    for column in chosen:
        if column in (columns.id, columns.label):
            raise GraphError(f"{name}: column {column} cannot be a feature, it is the id or the label")
    arrays = [_numbers(table[column], f"{name}, column {column}") for column in chosen]
    if not arrays:
        raise GraphError(
            f"{name}: no numeric feature columns beside {columns.id!r} and {columns.label!r}; give at least one"
        )
    return np.stack(arrays, 1), chosen


def _weights(table: Any, name: str, columns: Columns) -> NDArray[np.float32] | None:
    """The column of weights, if there is one; columns that have no place in a graph are announced."""
    column = columns.weight or "weight"
    unused = [
        other
        for other in table.column_names
        if other not in (columns.source, columns.target, column) and not INDEX.fullmatch(other)
    ]
    if unused:
        _warn(
            f"{name}: the columns {', '.join(unused[:12])} are not used; a graph has one weight for an edge, weight=..."
        )
    if column not in table.column_names:
        return None
    weights = _numbers(table[column], f"{name}, column {column}", "weights")
    negative = np.flatnonzero(weights < 0)
    if len(negative):
        raise GraphError(
            f"{name}, column {column}: row {negative[0]} is {weights[negative[0]]}; weights are not negative"
        )
    return weights


def _warn(message: str) -> None:
    warnings.warn(message, GraphWarning, stacklevel=5)  # where Graph.from_tables was called


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


def _table(value: Any, role: str, text: Sequence[str], delimiter: str | None) -> tuple[Any, str]:
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
        if path.name.lower().endswith(PARQUET):
            import pyarrow.parquet

            return _once(pyarrow.parquet.read_table(path).combine_chunks(), str(path))
        if path.name.lower().endswith(TEXT):
            return _once(_text_table(path, text, delimiter), str(path))
    except (pa.ArrowException, OSError, EOFError) as error:
        if "UTF8" in str(error):
            raise _not_utf8(path) from None
        raise GraphError(f"{path}: cannot be read ({error})") from None
    raise GraphError(f"{path}: a {', '.join(TEXT)} or {PARQUET[0]} file is wanted")


def _text_table(path: Path, text: Sequence[str], delimiter: str | None) -> Any:
    """A table from a text file, packed or not."""
    pa, _ = _pyarrow()
    import pyarrow.csv

    packed = "gzip" if path.name.lower().endswith(".gz") else None
    with pa.input_stream(path, compression=packed) as stream:
        start = stream.read(1 << 16)
    if start.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise _not_utf8(path)
    if b"\0" in start:
        raise GraphError(f"{path}: not a text file, though its name says so; a table of fields in lines is wanted")
    try:
        header = start.split(b"\n")[0].decode("utf-8-sig")
    except UnicodeDecodeError:
        raise _not_utf8(path) from None
    separator = delimiter if delimiter is not None else _delimiter(header)
    if len(separator) != 1:
        raise GraphError(f"delimiter must be a single character, not {separator!r}")
    with pa.input_stream(path, compression=packed) as stream:
        table = pyarrow.csv.read_csv(
            stream,
            parse_options=pyarrow.csv.ParseOptions(delimiter=separator),
            convert_options=pyarrow.csv.ConvertOptions(column_types=dict.fromkeys(text, pa.string())),
        )
    if any(pa.types.is_binary(column.type) for column in table.columns):  # what is not UTF-8 is read as bytes
        raise _not_utf8(path)
    return table.combine_chunks()


def _delimiter(header: str) -> str:
    """What stands between the names of columns most often, outside of quotes."""
    bare = re.sub(r'"[^"]*"', "", header)
    return max(DELIMITERS, key=bare.count)


def _not_utf8(path: Path) -> GraphError:
    return GraphError(
        f"{path}: the text is not UTF-8 (Latin-1, or UTF-16, perhaps); save it as UTF-8, or convert it: iconv"
    )


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
    if pa.types.is_large_string(array.type):
        array = array.cast(pa.string())
    if pa.types.is_string(array.type):
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
    if pa.types.is_string(array.type):
        return array
    raise GraphError(f"{name}: ids must be integers or text, not {array.type}")


def _is_number(kind: Any) -> bool:
    types = _pyarrow()[0].types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind))


def _numbers(column: Any, name: str, what: str = "features") -> NDArray[np.float32]:
    pa, pc = _pyarrow()
    array = _plain(column)
    if not _is_number(array.type):
        raise GraphError(f"{name}: {what} must be numbers, not {array.type}; leave the column out or encode it")
    if array.null_count:
        row = int(pc.index(pc.is_null(array), True).as_py())
        raise GraphError(f"{name}: row {row} is empty; fill or drop it first")
    numbers = array.cast(pa.float32(), safe=False).to_numpy(zero_copy_only=False)
    bad = np.flatnonzero(~np.isfinite(numbers))
    if len(bad):
        raise GraphError(f"{name}: row {bad[0]} is {numbers[bad[0]]}; fill or drop it first")
    return np.asarray(numbers)


def _labels(column: Any, name: str) -> tuple[NDArray[np.int64], list[str]]:
    """Class numbers with -1 where there is no label, and the names of the classes, sorted (numbers as numbers)."""
    pa, pc = _pyarrow()
    array = _plain(column)
    if pa.types.is_string(array.type):
        array = pc.utf8_trim_whitespace(array)
        unknown = pc.is_in(pc.utf8_lower(array), value_set=pa.array(NO_LABEL))
        array = _narrow_labels(pc.if_else(unknown, pa.scalar(None, pa.string()), array))
    if pa.types.is_floating(array.type):
        array = pc.if_else(pc.is_nan(array), pa.scalar(None, array.type), array)
        whole = pc.and_(pc.equal(array, pc.round(array)), pc.less(pc.abs(array), 2.0**53))
        broken = pc.invert(whole)
        if pc.any(broken).as_py():
            row = int(pc.index(broken, True).as_py())
            raise GraphError(
                f"{name}: row {row} is {array[row].as_py()}; labels are classes, so make classes of it first"
            )
        array = array.cast(pa.int64())
    kind = array.type
    if pa.types.is_integer(kind):
        array = pc.if_else(pc.less(array, 0), pa.scalar(None, kind), array)  # negative: unknown
    elif pa.types.is_boolean(kind):
        array = array.cast(pa.string())  # false, true
    elif not (pa.types.is_string(kind) or pa.types.is_null(kind)):
        raise GraphError(
            f"{name}: labels must be text, whole numbers or true and false, not {kind}; convert them first"
        )
    values = pc.unique(array).drop_null()
    values = values.take(pc.sort_indices(values))
    codes = pc.fill_null(pc.index_in(array, value_set=values, skip_nulls=True), -1)
    return codes.to_numpy(zero_copy_only=False).astype(np.int64), [str(value) for value in values.to_pylist()]


def _narrow_labels(array: Any) -> Any:
    """Text as numbers or as true and false, if all of it is that: one odd field makes a column of a CSV file text."""
    pa, pc = _pyarrow()
    if array.null_count == len(array):
        return array
    if pc.all(pc.match_substring_regex(array, WHOLE)).as_py():
        return array.cast(pa.float64()) if pc.any(pc.match_substring(array, ".")).as_py() else array.cast(pa.int64())
    if pc.all(pc.is_in(pc.utf8_lower(array), value_set=pa.array(["true", "false", None]))).as_py():
        return pc.utf8_lower(array)
    return array
