"""Graphs from two tables: ids, numeric features, labels, splits and the numbering of edge ends."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..runtime.errors import translated
from ._checks import check_unique
from ._table_files import NamedTable, plain, pyarrow_modules, read_table
from .errors import GraphError, warn

Ends: TypeAlias = NDArray[np.signedinteger[Any]]  # of 32 bits or 64
Links: TypeAlias = tuple[Ends, NDArray[np.float32] | None]  # edge_index and weights

INDEX = re.compile(r"|Unnamed: \d+|__index_level_\d+__")  # names of an index written by pandas
ROWS = 1 << 13  # of features copied at a time, so that all columns fit into the processor's cache
ENDS = ("source", "target")
OTHER_ENDS = (("src", "dst"), ("from", "to"))  # used where columns are not named and ENDS do not exist


class Columns(NamedTuple):
    """Roles of the columns of two tables; see ``Graph.from_tables``.

    Args:
        id: Node ids.
        label: Classes; None for no labels.
        features: Features; None for all other columns.
        source: Ids of the source nodes of edges.
        target: Ids of the target nodes of edges.
        weight: Edge weights; None for ``weight``, if it exists.

    Example:
        >>> from credalgnn.graphs import Columns
        >>> Columns(label="topic").source
        'source'
    """

    id: str = "id"
    label: str | None = "label"
    features: Sequence[str] | None = None
    source: str = "source"
    target: str = "target"
    weight: str | None = None


def graph_fields(nodes: Any, edges: Any, columns: Columns, delimiter: str | None = None) -> dict[str, Any]:
    """See ``Graph.from_tables``; returns the arguments of ``Graph``."""
    node_table = read_table(nodes, "nodes", [columns.id], delimiter)
    edge_table, columns = read_edges(edges, "edges", columns, delimiter)
    check_nodes(node_table, columns, [columns.label] if columns.label else [])
    _, (ids,), ((ends, weights),) = join_tables([node_table], columns.id, [(edge_table, columns)])
    if not ends.shape[1]:
        raise GraphError(f"{edge_table.name}: there are no edges in it")
    matrix, names = _features(node_table, columns)
    labels, classes = None, None
    if columns.label is not None:
        labels, classes = labels_of(node_table.table[columns.label], f"{node_table.name}, column {columns.label}")
    return {
        "features": matrix, "edge_index": ends, "labels": labels, "node_ids": ids, "class_names": classes,
        "feature_names": names, "edge_weight": weights,
    }  # fmt: skip


def check_nodes(named: NamedTable, columns: Columns, required: Sequence[str]) -> None:
    """Refuse a table of nodes that lacks the id or another required column."""
    check_column(named, columns.id, "name the column of ids: `id`")
    for column in required:
        remedy = "name the column of labels: `label`" if column == columns.label else "name another column"
        check_column(named, column, remedy)


def check_column(named: NamedTable, column: str, remedy: str) -> None:
    names = named.table.column_names
    if column not in names:
        raise no_column(named.name, column, names, remedy)


def no_column(table: str, column: str, names: Collection[str], remedy: str) -> GraphError:
    """Return the error for a missing column."""
    hint = "" if len(names) > 1 else "; if these are several, give `delimiter`"
    return GraphError(
        f"{table}: there is no column {column!r}; the columns are {', '.join(list(names)[:12])}{hint}; {remedy}"
    )


def read_edges(edges: Any, role: str, columns: Columns, delimiter: str | None) -> tuple[NamedTable, Columns]:
    """Return the table of edges, and the columns with the names that the ends have in it."""
    others = [name for pair in OTHER_ENDS for name in pair] if (columns.source, columns.target) == ENDS else []
    named = read_table(edges, role, [columns.source, columns.target, *others], delimiter)
    present = named.table.column_names
    if others and not set(ENDS) & set(present):
        for source, target in OTHER_ENDS:
            if source in present and target in present:
                columns = columns._replace(source=source, target=target)
                break
    for end, option in ((columns.source, "source"), (columns.target, "target")):
        check_column(named, end, f"name it: `{option}`")
    if columns.weight is not None:
        check_column(named, columns.weight, "name the column of weights: `weight`")
    return named, columns


def join_tables(
    tables: list[NamedTable], id: str, links: list[tuple[NamedTable, Columns]]
) -> tuple[list[NamedTable], list[NDArray[Any]], list[Links]]:
    """Return tables without rows that a newer table replaces, their ids, and the edges between all of them."""
    pa, pc = pyarrow_modules()
    places = [(table, id) for table in tables]
    places += [(named, end) for named, columns in links for end in (columns.source, columns.target)]
    chunks = _narrowed(
        [(table, column, id_chunks(table.table[column], place_name(table, column))) for table, column in places]
    )
    kind = chunks[len(tables) - 1][0].type
    for place, (chunk, *_) in zip(places, chunks, strict=True):
        if chunk.type != kind:
            kinds = f"{place_name(*place)} holds {chunk.type}, {place_name(tables[-1], id)} {kind}"
            raise GraphError(f"ids of two types: {kinds}; write them as one, so that 7 and 007 stay apart")
    id_arrays = [each[0] if len(each) == 1 else pa.concat_arrays(each) for each in chunks[: len(tables)]]
    ids = [as_array(array) for array in id_arrays]
    for table, array in zip(tables, ids, strict=True):
        try:
            check_unique(array)
        except GraphError as error:
            raise GraphError(f"{place_name(table, id)}: {error}") from None
    if len(tables) == 2:
        replaced = pc.is_in(id_arrays[0], value_set=id_arrays[1])
        count = pc.sum(replaced).as_py() or 0
        if count:
            warn(f"{tables[0].name}: {count} nodes stand in {tables[1].name}, too, and are taken from there")
            stays = pc.invert(replaced)
            tables = [tables[0]._replace(table=tables[0].table.filter(stays)), tables[1]]
            id_arrays[0], ids[0] = id_arrays[0].filter(stays), ids[0][stays.to_numpy(zero_copy_only=False)]
    if not links:
        return tables, ids, []
    numbers = positions(id_arrays, [chunk for each in chunks[len(tables) :] for chunk in each])
    joined, start = [], 0
    for named, columns in links:
        rows = named.table.num_rows
        both = numbers[start : start + 2 * rows].reshape(2, rows)
        start += 2 * rows
        for column, positions_of_ends in zip((columns.source, columns.target), both, strict=True):
            if rows and positions_of_ends.min() < 0:
                row = int(positions_of_ends.argmin())
                value = ids_of(named.table[column].slice(row, 1), "")[0].as_py()
                where = " or ".join(table.name for table in tables)
                remedy = "" if len(tables) == 2 else "; nodes that were there before belong into `context`"
                raise GraphError(
                    f"{named.name}, row {row}: {column} {value!r:.60} is not the id of a node in {where}{remedy}"
                )
        joined.append((both, _weights(named, columns)))
    return tables, ids, joined


def place_name(named: NamedTable, column: str) -> str:
    return f"{named.name}, column {column}"


def _narrowed(places: list[tuple[NamedTable, str, list[Any]]]) -> list[list[Any]]:
    """Convert text ids of text files to numbers if that is lossless and all other ids are numbers."""
    pa, _ = pyarrow_modules()
    originals = [chunks for _, _, chunks in places]
    narrow = []
    for named, _, chunks in places:
        if pa.types.is_integer(chunks[0].type):
            narrow.append(chunks)
            continue
        if named.typed:
            return originals
        numbers = []
        for chunk in chunks:
            numbers.append(as_numbers(chunk))
            if numbers[-1] is None:
                return originals
        narrow.append(numbers)
    return narrow


def _features(named: NamedTable, columns: Columns) -> tuple[NDArray[np.float32], list[str]]:
    """Return the feature columns ``[N, F]`` and their names; a pandas index is no feature by default."""
    table, name = named.table, named.name
    others = [column for column in table.column_names if column not in (columns.id, columns.label)]
    if columns.features is not None:
        chosen, present = list(columns.features), set(table.column_names)
        for column in chosen:
            if column in (columns.id, columns.label):
                raise GraphError(f"{name}: column {column} cannot be a feature, it is the id or the label")
            if column not in present:
                check_column(named, column, "name the features: `features`")
    else:
        chosen = [column for column in others if not INDEX.fullmatch(column)]
        for column in others:
            if INDEX.fullmatch(column):
                warn(
                    f"{name}: the column {column!r} is left out as the index of a data frame; to use it, name all "
                    "features: `features`"
                )
            elif not is_number(table[column].type):
                kind = table[column].type
                raise GraphError(f"{name}, column {column} holds {kind}, not numbers; name the features: `features`")
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
    """Return the weights, if there are any; warn of unused columns."""
    table, column = named.table, columns.weight or "weight"
    used = (columns.source, columns.target, column)
    unused = [other for other in table.column_names if other not in used and not INDEX.fullmatch(other)]
    if unused:
        warn(
            f"{named.name}: the columns {', '.join(unused[:12])} are not used; a graph has one weight for an edge, "
            "`weight`"
        )
    if column not in table.column_names:
        return None
    weights = numbers_of(table[column], place_name(named, column), "weights")
    negative = np.flatnonzero(weights < 0)
    if len(negative):
        at = negative[0]
        raise GraphError(f"{place_name(named, column)}: row {at} is {weights[at]}; weights are not negative")
    return weights


NO_LABEL = ("", "na", "n/a", "nan", "none", "null")  # unknown labels, case-insensitive
WHOLE = r"^-?(0|[1-9][0-9]{0,14})(\.0*)?$"  # whole number as text; 007 and numbers beyond float precision are names
PARTS = {
    "train": "train", "val": "val", "valid": "val", "validation": "val", "calibration": "calibration",
    "calib": "calibration", "cal": "calibration", "test": "test",
}  # fmt: skip


def ids_of(column: Any, name: str, first: int = 0) -> Any:
    """Return ids as an int64 or a string array without nulls; messages count rows from ``first`` on."""
    pa, pc = pyarrow_modules()
    array = plain(column)
    if array.null_count:
        raise GraphError(f"{name}: row {first + int(pc.index(pc.is_null(array), True).as_py())} has no id")
    if pa.types.is_integer(array.type):
        with translated(
            pa.ArrowInvalid, lambda _: GraphError(f"{name}: an id is too large for 64 bits; write ids as text")
        ):
            return array.cast(pa.int64())
    if pa.types.is_string(array.type):
        return array
    raise GraphError(f"{name}: ids must be integers or text, not {array.type}")


def id_chunks(column: Any, name: str) -> list[Any]:
    """Return ids as ``ids_of``, text in the chunks of its column without copies."""
    pa, _ = pyarrow_modules()
    if not pa.types.is_string(column.type) or not column.num_chunks:
        return [ids_of(column, name)]
    firsts = np.cumsum([0, *map(len, column.chunks)]).tolist()
    return [ids_of(chunk, name, first) for chunk, first in zip(column.chunks, firsts, strict=False)]


def is_number(kind: Any) -> bool:
    """Check that a type is numeric or boolean."""
    types = pyarrow_modules()[0].types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind))


def is_list(kind: Any) -> bool:
    """Check that a type is a list of numbers."""
    types = pyarrow_modules()[0].types
    lists = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    return bool(lists) and is_number(kind.value_type)


def numbers_of(column: Any, name: str, what: str = "features", first: int = 0) -> NDArray[np.float32]:
    """Return a column as finite float32 numbers; messages count rows from ``first`` on."""
    pa, pc = pyarrow_modules()
    array = plain(column)
    if not is_number(array.type):
        raise GraphError(f"{name}: {what} must be numbers, not {array.type}; leave the column out or encode it")
    if array.null_count:
        row = first + int(pc.index(pc.is_null(array), True).as_py())
        raise GraphError(f"{name}: row {row} is empty; fill or drop it first")
    numbers = array.cast(pa.float32(), safe=False).to_numpy(zero_copy_only=False)
    bad = np.flatnonzero(~np.isfinite(numbers))
    if len(bad):
        raise GraphError(f"{name}: row {first + bad[0]} is {numbers[bad[0]]}; fill or drop it first")
    return np.asarray(numbers)


def list_matrix(column: Any, place: str, first: int) -> NDArray[np.float32]:
    """Return a column of lists of numbers of one length as a matrix; messages count rows from ``first`` on."""
    _, pc = pyarrow_modules()
    lengths = pc.fill_null(pc.list_value_length(column), -1).to_numpy(zero_copy_only=False)
    odd = np.flatnonzero((lengths != lengths[0]) | (lengths <= 0))
    if len(odd):
        row = int(odd[0])
        raise GraphError(
            f"{place}: row {first + row} has {max(0, lengths[row])} numbers, the row before {max(0, lengths[0])}; all "
            "lists must be as long"
        )
    flat = pc.list_flatten(column)
    if flat.null_count:
        row = int(pc.index(pc.is_null(flat), True).as_py()) // int(lengths[0])
        raise GraphError(f"{place}: row {first + row} has an empty number; fill or drop it first")
    numbers: NDArray[np.float32] = flat.to_numpy(zero_copy_only=False).astype(np.float32).reshape(-1, int(lengths[0]))
    bad = np.flatnonzero(~np.isfinite(numbers).all(1))
    if len(bad):
        raise GraphError(f"{place}: row {first + bad[0]} has a number that is not finite; fill or drop it first")
    return numbers


def labels_of(column: Any, name: str) -> tuple[NDArray[np.int64], list[str]]:
    """Return class numbers, -1 for unknown, and the sorted class names (numbers in numeric order)."""
    pa, pc = pyarrow_modules()
    array = plain(column)
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
    """Convert text to numbers or booleans if all of it is; one odd field makes a column of a CSV file text."""
    pa, pc = pyarrow_modules()
    if array.null_count == len(array):
        return array
    if pc.all(pc.match_substring_regex(array, WHOLE)).as_py():
        return array.cast(pa.float64()) if pc.any(pc.match_substring(array, ".")).as_py() else array.cast(pa.int64())
    if pc.all(pc.is_in(pc.utf8_lower(array), value_set=pa.array(["true", "false", None]))).as_py():
        return pc.utf8_lower(array)
    return array


def merged_labels(
    columns: Sequence[tuple[NDArray[np.int64], list[str]]], class_names: Sequence[str] | None
) -> tuple[NDArray[np.int64], list[str]]:
    """Return the labels of several tables, one after the other, in one numbering.

    ``known`` classes have the first numbers in this order; names of others follow, sorted. ``1.0`` and ``01`` are the
    known class ``1``, unless they are known themselves; negative numbers mean unknown.
    """
    first = list(class_names) if class_names is not None else []
    spelled = [[name if class_names is None else _spelled(name, set(first)) for name in names] for _, names in columns]
    others = {name for names in spelled for name in names if name is not None} - set(first)
    numeric = all(re.fullmatch(WHOLE, name) for name in others)
    classes = first + sorted(others, key=(lambda name: (int(float(name)), name)) if numeric else None)
    numbers = {name: number for number, name in enumerate(classes)} | {None: -1}
    parts = []
    for (codes, _), names in zip(columns, spelled, strict=True):
        table = np.array([*(numbers[name] for name in names), -1], np.int64)  # the last one for code -1, unknown
        parts.append(table[codes])
    return np.concatenate(parts), classes


def _spelled(name: str, class_names: set[str]) -> str | None:
    """Return a class name in the spelling of a model: the same CSV column may be read as text or as numbers."""
    if name in class_names:
        return name
    if re.fullmatch(r"-?[0-9]{1,15}(\.0*)?", name):
        number = int(float(name))
        return None if number < 0 else str(number) if str(number) in class_names else name
    return name.lower() if name.lower() in class_names and name.lower() in ("true", "false") else name


def parts_of(column: Any, name: str, first: int = 0) -> dict[str, NDArray[np.int64]]:
    """Return the rows of each part of a split that a column names, without empty parts."""
    pa, pc = pyarrow_modules()
    array = plain(column)
    with translated(
        pa.ArrowException,
        lambda _: GraphError(f"{name}: {array.type} is no text; train, val, calibration, test or nothing is wanted"),
    ):
        words = pc.utf8_lower(pc.utf8_trim_whitespace(array.cast(pa.string())))
    codes = pc.index_in(words, value_set=pa.array(list(PARTS)), skip_nulls=True)
    unknown = pc.and_(pc.is_null(codes), pc.not_equal(pc.fill_null(words, ""), ""))
    if pc.any(unknown).as_py():
        row = int(pc.index(unknown, True).as_py())
        place = f"row {first + row} is {array[row].as_py()!r:.60}"
        raise GraphError(f"{name}: {place}; train, val, calibration, test or nothing is wanted")
    role = np.array([*PARTS.values(), ""])[pc.fill_null(codes, len(PARTS)).to_numpy(zero_copy_only=False)]
    rows = {part: np.flatnonzero(role == part) for part in dict.fromkeys(PARTS.values())}
    return {part: at for part, at in rows.items() if len(at)}


MANY_TEXTS = 1 << 20  # texts from which on our own hash table is faster
TEXT_ROWS = 1 << 11  # of texts decoded at a time, to fit into the processor's cache
ROOM = 2  # entries of a table of all numbers in the range of ids, per id and edge end


def as_numbers(array: Any) -> Any:
    """Return ids as int64; None if one is text that is not a number in its shortest form: 7, not 007, +7 or 0x7."""
    pa, pc = pyarrow_modules()
    if pa.types.is_integer(array.type):
        return array
    try:
        numbers = array.cast(pa.int64())
    except pa.ArrowInvalid:
        return None
    if _plain_digits(array):
        # The canonical spelling of a number is its shortest: if the total lengths agree, all are canonical.
        offsets, _ = text_buffers(array)
        if int(offsets[-1]) - int(offsets[0]) == _digits(numbers.to_numpy()):
            return numbers
    return numbers if pc.all(pc.equal(numbers.cast(pa.string()), array)).as_py() else None


def as_array(array: Any) -> NDArray[Any]:
    """Return a pyarrow array of ids as a numpy array of whole numbers or texts."""
    pa, pc = pyarrow_modules()
    if pa.types.is_integer(array.type):
        return np.asarray(array.to_numpy())
    if len(array) < MANY_TEXTS:
        return np.asarray(array.to_numpy(zero_copy_only=False).astype(np.str_))
    offsets, data = text_buffers(array)
    lengths = pc.utf8_length(array).to_numpy()
    texts = np.zeros(len(array), f"U{max(1, lengths.max())}")
    codes = texts.view(np.uint32)
    for first in range(0, len(array), TEXT_ROWS):
        part = lengths[first : first + TEXT_ROWS]
        begin, end = offsets[first], offsets[first + len(part)]
        # Texts are padded to the longest one: characters move by the padding before them.
        moved = np.arange(first, first + len(part)) * (len(codes) // len(texts)) - (np.cumsum(part) - part)
        characters = np.frombuffer(data[begin:end].tobytes().decode().encode("utf-32-le"), np.dtype("<u4"))
        codes[np.repeat(moved, part) + np.arange(len(characters))] = characters
    return texts


def positions(ids: Sequence[Any], ends: Sequence[Any]) -> NDArray[np.signedinteger[Any]]:
    """Return the position of each of ``ends`` in ``ids``, -1 if absent; both are lists of arrays.

    32-bit numbers where possible, as there may be hundreds of millions.
    """
    pa, pc = pyarrow_modules()
    if pa.types.is_integer(ids[0].type):
        result = _in_table(np.concatenate([array.to_numpy() for array in ids]), [array.to_numpy() for array in ends])
        if result is not None:
            return result
    elif sum(map(len, ends)) >= MANY_TEXTS and len(ids) == 1 and 0 < len(ids[0]) < 2**31:
        return _in_index(ids[0], ends)
    # all ends at once: building the index takes longer than the look-up
    position = pc.index_in(pa.concat_arrays(ends), value_set=pa.concat_arrays(ids))
    numbers: NDArray[np.int32] = pc.fill_null(position, -1).to_numpy(zero_copy_only=False)
    return numbers


def _in_index(ids: Any, ends: Sequence[Any]) -> NDArray[np.int32]:
    """Return positions of texts, by a hash table of all ids."""
    from ._edge_kernels import find_texts, index_texts  # here, as numba takes long to load

    id_buffers = text_buffers(ids)
    table = np.zeros(1 << (2 * len(ids)).bit_length(), np.uint64)
    index_texts(*id_buffers, table)
    numbers, start = np.empty(sum(map(len, ends)), np.int32), 0
    for texts in ends:
        find_texts(*text_buffers(texts), table, *id_buffers, numbers[start : start + len(texts)])
        start += len(texts)
    return numbers


def _in_table(ids: NDArray[np.int64], ends: list[NDArray[np.int64]]) -> NDArray[np.signedinteger[Any]] | None:
    """Return positions of whole numbers, by a table of all numbers between them; None if that is too large."""
    count = sum(map(len, ends))
    if not len(ids):
        return None
    low, span = _range(ids)
    if span > ROOM * (len(ids) + count):
        return None
    kind = np.int32 if span < 2**31 else np.int64  # also holds positions in the table
    table = None
    if span > len(ids) or not (ids[1:] > ids[:-1]).all():  # else they are low, low + 1, ..., in order
        table = np.full(span, -1, kind)
        table[ids - low] = np.arange(len(ids), dtype=kind)
    result: NDArray[np.signedinteger[Any]] = np.empty(count, kind)
    start = 0
    for numbers in ends:
        part = result[start : start + len(numbers)]
        start += len(numbers)
        if not len(numbers) or (low <= int(numbers.min()) and int(numbers.max()) < low + span):
            unknown = None
        else:
            unknown = (numbers < low) | (numbers > low + (span - 1))
            numbers = np.where(unknown, low, numbers)
        np.subtract(numbers, low, out=part, casting="same_kind")
        if table is not None:
            part[:] = table[part]
        if unknown is not None:
            part[unknown] = -1
    return result


def _range(ids: NDArray[np.int64]) -> tuple[int, int]:
    """Return the smallest of some numbers, and the size of their range."""
    low = int(ids.min())
    return low, int(ids.max()) - low + 1


def text_buffers(array: Any) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
    """Return the offsets and the bytes of the texts of a string array without nulls."""
    _, offsets, data = array.buffers()
    begin = np.frombuffer(offsets, np.int32, len(array) + 1, 4 * array.offset) if offsets else np.zeros(1, np.int32)
    return begin, np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)


def _plain_digits(array: Any) -> bool:
    """Check that texts have no byte above the digits, such as the x of 0x10."""
    if not len(array):
        return False
    offsets, text = text_buffers(array)
    data = text[offsets[0] : offsets[-1]]
    return bool(len(data) and data.max() <= ord("9"))


def _digits(numbers: NDArray[np.int64]) -> int:
    """Count the characters of some numbers."""
    negative = int(np.count_nonzero(numbers < 0))
    sizes = np.abs(numbers.astype(np.float64)) if negative else numbers  # exact up to 2^53
    total, power, most = len(numbers) + negative, 10, int(sizes.max())
    if most >= 2**53:
        return -1
    while power <= most:
        total += int(np.count_nonzero(sizes >= power))
        power *= 10
    return total
