"""Graphs from two tables, nodes and edges, as CSV or Parquet files, pyarrow tables or data frames."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ._checks import check_unique
from ._table_columns import id_chunks, ids_of, is_number, labels_of, merged_labels, numbers_of, parts_of
from ._table_edges import Links, both_ways, warn_of_one_way, without
from ._table_files import NamedTable, pyarrow_modules, read_table
from ._table_ids import as_array, as_numbers, positions
from .encoding import FeatureEncoder
from .errors import GraphError, warn
from .graph import Graph

INDEX = re.compile(r"|Unnamed: \d+|__index_level_\d+__")  # what pandas calls an index that was written, too
ROWS = 1 << 13  # of features written at a time: all columns of so many rows stay in the processor's cache
ENDS = ("source", "target")
OTHER_ENDS = (("src", "dst"), ("from", "to"))  # taken where nothing else is said and there is no source and target


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


@dataclass(frozen=True, eq=False)
class TableGraph:
    """What ``read_tables`` gives.

    Args:
        graph: The graph; its nodes are those of the context, if there is one, and then those of the table of nodes.
        encoder: What made its features of the columns.
        new: The numbers of the nodes of the table of nodes, in its order.
        parts: Numbers of nodes of the parts of a split that the table names: some of ``train``, ``val``,
            ``calibration`` and ``test``.
    """

    graph: Graph
    encoder: FeatureEncoder
    new: Tensor
    parts: dict[str, Tensor]


def read_graph(nodes: Any, edges: Any, columns: Columns, delimiter: str | None = None) -> Graph:
    """See ``Graph.from_tables``: features are the numbers of the table, unchanged.

    Args:
        nodes: A file or a table with a row for each node.
        edges: A file or a table with a row for each edge.
        columns: Which columns are what.
        delimiter: What stands between the fields of a text file; None: found in the header.
    """
    node_table = read_table(nodes, "nodes", [columns.id], delimiter)
    edge_table, columns = _read_edges(edges, "edges", columns, delimiter)
    _check_nodes(node_table, columns, [columns.label] if columns.label else [])
    _, (ids,), ((ends, weights),) = _joined([node_table], columns.id, [(edge_table, columns)])
    if not ends.shape[1]:
        raise GraphError(f"{edge_table.name}: there are no edges in it")
    matrix, names = _features(node_table, columns)
    labels, classes = None, None
    if columns.label is not None:
        labels, classes = labels_of(node_table.table[columns.label], f"{node_table.name}, column {columns.label}")
    return Graph(matrix, ends, labels, ids, classes, feature_names=names, edge_weight=weights)


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
    """A graph from two tables, its features encoded: to learn from, or to predict with what was learnt.

    Args:
        nodes: A row for each node: a path, a pyarrow table or a pandas data frame.
        edges: A row for each edge, likewise. None, where there is an encoder: there are no edges but the context's.
        columns: Which columns are what.
        delimiter: What stands between the fields of text files; None: found in the header of each.
        encoder: Makes features of the columns; ``columns.features`` is not looked at then. None: learnt from ``nodes``.
        class_names: The classes of a model, which get the first numbers; other labels get the numbers behind them.
            None: the labels of the tables, sorted. Where it is given, the column of labels may be missing.
        context: Tables of nodes and edges that were there before; the edges may be None. Edges of either table may
            join old nodes and new ones; a node or an edge that stands in both tables is as the new one has it.
        split: The column of ``nodes`` that says to which part of a split a node belongs: train, val (valid,
            validation), calibration (calib, cal), test, or empty for none. It is no feature.
        undirected: Edges have no direction: each is taken both ways, and once each way, however often it stands there.
    """
    learning = encoder is None
    _check_request(edges, columns, encoder, class_names, context)
    text = [columns.id, *([split] if split else []), *(encoder.text_columns if encoder is not None else [])]
    if class_names is not None and columns.label is not None:
        text.append(columns.label)  # as a model knows it, which may be 007
    tables = [read_table(nodes, "nodes", text, delimiter)]
    links = [] if edges is None else [_read_edges(edges, "edges", columns, delimiter)]
    if context is not None:
        tables.insert(0, read_table(context[0], "context nodes", text, delimiter))
        if context[1] is not None:
            links.insert(0, _read_edges(context[1], "context edges", columns, delimiter))
    needed = [columns.label] if class_names is None and columns.label else []
    for table in tables[:-1]:
        _check_nodes(table, columns, needed)
    _check_nodes(tables[-1], columns, [*needed, *([split] if split else [])])

    edge_name = links[0][0].name if links else ""
    tables, ids, joined = _joined(tables, columns.id, links)
    labels, classes = merged_labels([_labels(table, columns.label) for table in tables], class_names)
    count, old = len(labels), len(labels) - len(ids[-1])
    parts = {}
    if split is not None:
        rows = parts_of(tables[-1].table[split], _place(tables[-1], split))
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

    given = [table.table.drop_columns(_no_features(table, columns, split, encoder)) for table in tables]
    if encoder is None:
        encoder = FeatureEncoder.fit(given[0], columns.features, tables[0].name)
        others = set(tables[0].table.column_names) - set(given[0].column_names)  # a later split is no news, either
        encoder = replace(encoder, ignored=(*encoder.ignored, *sorted(others)))
    matrices = [encoder(table, named.name)[0] for table, named in zip(given, tables, strict=True)]
    del given, tables, links  # the graph is a copy, and there may be no room for all
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
    """Refuse what only makes sense with what a model has learnt."""
    if encoder is None and edges is None:
        raise GraphError("a table of edges is needed to learn from (--edges)")
    if encoder is None and context is not None:
        raise GraphError("a context is for nodes that come after fitting; to learn from all, put them into one table")
    if class_names is None and columns.label is None:
        raise GraphError("labels are needed to learn from: name their column, label=... (--label)")


def _check_nodes(named: NamedTable, columns: Columns, wanted: Sequence[str]) -> None:
    """All columns that a table of nodes must have, but for features."""
    _check_column(named, columns.id, "name the column of ids: id=... (--id)")
    for column in wanted:
        remedy = "name the column of labels: label=... (--label)" if column == columns.label else "name another column"
        _check_column(named, column, remedy)


def _check_column(named: NamedTable, column: str, remedy: str) -> None:
    names = named.table.column_names
    if column not in names:
        hint = "" if len(names) > 1 else "; if these are several, give delimiter= (--delimiter)"
        raise GraphError(
            f"{named.name}: there is no column {column!r}; the columns are {', '.join(names[:12])}{hint}; {remedy}"
        )


def _read_edges(edges: Any, role: str, columns: Columns, delimiter: str | None) -> tuple[NamedTable, Columns]:
    """The table of edges, and the columns with the names that their ends have in it."""
    others = [name for pair in OTHER_ENDS for name in pair] if (columns.source, columns.target) == ENDS else []
    named = read_table(edges, role, [columns.source, columns.target, *others], delimiter)
    there = named.table.column_names
    if others and not set(ENDS) & set(there):
        for source, target in OTHER_ENDS:
            if source in there and target in there:
                columns = columns._replace(source=source, target=target)
                break
    for end, option in ((columns.source, "source"), (columns.target, "target")):
        _check_column(named, end, f"name the column: {option}=... (--{option})")
    if columns.weight is not None:
        _check_column(named, columns.weight, "name the column of weights: weight=... (--weight)")
    return named, columns


def _joined(
    tables: list[NamedTable], id: str, links: list[tuple[NamedTable, Columns]]
) -> tuple[list[NamedTable], list[NDArray[Any]], list[Links]]:
    """The tables without old rows that a newer table replaces, their ids, and the edges between all of them."""
    pa, pc = pyarrow_modules()
    places = [(table, id) for table in tables]
    places += [(named, end) for named, columns in links for end in (columns.source, columns.target)]
    chunks = _narrowed(
        [(table, column, id_chunks(table.table[column], _place(table, column))) for table, column in places]
    )
    kind = chunks[len(tables) - 1][0].type
    for place, (chunk, *_) in zip(places, chunks, strict=True):
        if chunk.type != kind:
            kinds = f"{_place(*place)} holds {chunk.type}, {_place(tables[-1], id)} {kind}"
            raise GraphError(f"ids of two types: {kinds}; write them as one, so that 7 and 007 stay apart")
    known = [each[0] if len(each) == 1 else pa.concat_arrays(each) for each in chunks[: len(tables)]]
    ids = [as_array(array) for array in known]
    for table, array in zip(tables, ids, strict=True):
        try:
            check_unique(array)
        except GraphError as error:
            raise GraphError(f"{_place(table, id)}: {error}") from None
    if len(tables) == 2:
        replaced = pc.is_in(known[0], value_set=known[1])
        count = pc.sum(replaced).as_py() or 0
        if count:
            warn(f"{tables[0].name}: {count} nodes stand in {tables[1].name}, too, and are taken from there")
            kept = pc.invert(replaced)
            tables = [tables[0]._replace(table=tables[0].table.filter(kept)), tables[1]]
            known[0], ids[0] = known[0].filter(kept), ids[0][kept.to_numpy(zero_copy_only=False)]
    if not links:
        return tables, ids, []
    numbers = positions(known, [chunk for each in chunks[len(tables) :] for chunk in each])
    joined, start = [], 0
    for named, columns in links:
        rows = named.table.num_rows
        both = numbers[start : start + 2 * rows].reshape(2, rows)
        start += 2 * rows
        for column, found in zip((columns.source, columns.target), both, strict=True):
            if rows and found.min() < 0:
                row = int(found.argmin())
                given = ids_of(named.table[column].slice(row, 1), "")[0].as_py()
                where = " or ".join(table.name for table in tables)
                remedy = (
                    "" if len(tables) == 2 else "; nodes that were there before belong into the context (--context)"
                )
                raise GraphError(
                    f"{named.name}, row {row}: {column} {given!r:.60} is not the id of a node in {where}{remedy}"
                )
        joined.append((both, _weights(named, columns)))
    return tables, ids, joined


def _place(named: NamedTable, column: str) -> str:
    return f"{named.name}, column {column}"


def _narrowed(places: list[tuple[NamedTable, str, list[Any]]]) -> list[list[Any]]:
    """Ids of text files were read as text: they become numbers if that loses nothing and all other ids are numbers."""
    pa, _ = pyarrow_modules()
    given = [chunks for _, _, chunks in places]
    narrow = []
    for named, _, chunks in places:
        if pa.types.is_integer(chunks[0].type):
            narrow.append(chunks)
            continue
        if named.typed:
            return given
        numbers = []
        for chunk in chunks:
            numbers.append(as_numbers(chunk))
            if numbers[-1] is None:
                return given
        narrow.append(numbers)
    return narrow


def _no_features(named: NamedTable, columns: Columns, split: str | None, encoder: FeatureEncoder | None) -> list[str]:
    """The columns that are no features: id, label, split, and pandas' index if nobody asked for it."""
    roles = {columns.id, columns.label, split}
    wanted = columns.features if encoder is None else [column.name for column in encoder.columns]
    for column in wanted or ():
        if column in roles:
            raise GraphError(f"{named.name}: column {column} cannot be a feature, it is the id, the label or the split")
    return [
        column
        for column in named.table.column_names
        if column in roles or (INDEX.fullmatch(column) and column not in (wanted or ()))
    ]


def _labels(named: NamedTable, label: str | None) -> tuple[NDArray[np.int64], list[str]]:
    if label is None or label not in named.table.column_names:
        return np.full(named.table.num_rows, -1), []
    return labels_of(named.table[label], _place(named, label))


def _stacked(matrices: list[Any]) -> Any:
    """Matrices below each other, sparse if one of them is."""
    if all(isinstance(matrix, np.ndarray) for matrix in matrices):
        return np.concatenate(matrices)
    from scipy.sparse import csr_array, vstack

    return vstack([csr_array(matrix) for matrix in matrices], format="csr")


def _features(named: NamedTable, columns: Columns) -> tuple[NDArray[np.float32], list[str]]:
    """The feature columns ``[N, F]`` and their names; by default all that are neither id, label nor pandas' index."""
    table, name = named.table, named.name
    others = [column for column in table.column_names if column not in (columns.id, columns.label)]
    if columns.features is not None:
        chosen, there = list(columns.features), set(table.column_names)
        for column in chosen:
            if column in (columns.id, columns.label):
                raise GraphError(f"{name}: column {column} cannot be a feature, it is the id or the label")
            if column not in there:
                _check_column(named, column, "name the features: features=[...]")
    else:
        chosen = [column for column in others if not INDEX.fullmatch(column)]
        for column in others:
            if INDEX.fullmatch(column):
                warn(
                    f"{name}: the column {column!r} is left out as the index of a data frame; features=[...] takes it "
                    "in"
                )
            elif not is_number(table[column].type):
                kind = table[column].type
                raise GraphError(
                    f"{name}, column {column} holds {kind}, not numbers; name the features: features=[...]"
                )
    arrays = [numbers_of(table[column], f"{name}, column {column}") for column in chosen]
    if not arrays:
        raise GraphError(
            f"{name}: no numeric feature columns beside {columns.id!r} and {columns.label!r}; give at least one"
        )
    matrix = np.empty((len(arrays[0]), len(arrays)), np.float32)
    for start in range(0, len(matrix), ROWS):
        for number, array in enumerate(arrays):
            matrix[start : start + ROWS, number] = array[start : start + ROWS]
    return matrix, chosen


def _weights(named: NamedTable, columns: Columns) -> NDArray[np.float32] | None:
    """The column of weights, if there is one; columns that have no place in a graph are announced."""
    table, column = named.table, columns.weight or "weight"
    used = (columns.source, columns.target, column)
    unused = [other for other in table.column_names if other not in used and not INDEX.fullmatch(other)]
    if unused:
        warn(
            f"{named.name}: the columns {', '.join(unused[:12])} are not used; a graph has one weight for an edge, "
            "weight=..."
        )
    if column not in table.column_names:
        return None
    weights = numbers_of(table[column], _place(named, column), "weights")
    negative = np.flatnonzero(weights < 0)
    if len(negative):
        at = negative[0]
        raise GraphError(f"{_place(named, column)}: row {at} is {weights[at]}; weights are not negative")
    return weights
