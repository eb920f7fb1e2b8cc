"""Columns of tables as what a graph is made of: ids, numbers, labels and parts of a split."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._table_files import plain, pyarrow_modules
from .errors import GraphError

NO_LABEL = ("", "na", "n/a", "nan", "none", "null")  # as labels, whatever their case
WHOLE = r"^-?(0|[1-9][0-9]{0,14})(\.0*)?$"  # a whole number as text; 007 and what no float can hold are names
PARTS = {
    "train": "train", "val": "val", "valid": "val", "validation": "val", "calibration": "calibration",
    "calib": "calibration", "cal": "calibration", "test": "test",
}  # fmt: skip


def ids_of(column: Any, name: str, first: int = 0) -> Any:
    """Ids as an int64 or a string array, none of them missing; messages count rows from ``first`` on."""
    pa, pc = pyarrow_modules()
    array = plain(column)
    if array.null_count:
        raise GraphError(f"{name}: row {first + int(pc.index(pc.is_null(array), True).as_py())} has no id")
    if pa.types.is_integer(array.type):
        try:
            return array.cast(pa.int64())
        except pa.ArrowInvalid:
            raise GraphError(f"{name}: an id is too large for 64 bits; write ids as text") from None
    if pa.types.is_string(array.type):
        return array
    raise GraphError(f"{name}: ids must be integers or text, not {array.type}")


def id_chunks(column: Any, name: str) -> list[Any]:
    """Ids as ``ids_of`` gives them, in one array or, where they are text, in as many as there are: none is copied.

    Args:
        column: A column of a table.
        name: What it is called in messages.
    """
    pa, _ = pyarrow_modules()
    if not pa.types.is_string(column.type) or not column.num_chunks:
        return [ids_of(column, name)]
    firsts = np.cumsum([0, *map(len, column.chunks)]).tolist()
    return [ids_of(chunk, name, first) for chunk, first in zip(column.chunks, firsts, strict=False)]


def as_numbers(array: Any, typed: bool) -> NDArray[np.int64] | None:
    """Ids as numbers: those that are, and texts of text files that lose nothing by it; else None.

    Args:
        array: From ``ids_of``.
        typed: Whether texts stay texts.
    """
    pa, pc = pyarrow_modules()
    if not pa.types.is_integer(array.type):
        if typed:
            return None
        try:
            numbers = array.cast(pa.int64())
        except pa.ArrowInvalid:
            return None
        if not pc.all(pc.equal(numbers.cast(pa.string()), array)).as_py():
            return None
        array = numbers
    return np.asarray(array.to_numpy(zero_copy_only=False))


def is_number(kind: Any) -> bool:
    """Whether a column of this type holds numbers, or true and false, which are 1 and 0."""
    types = pyarrow_modules()[0].types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind))


def is_list(kind: Any) -> bool:
    """Whether a column holds lists of numbers: an embedding.

    Args:
        kind: Its type.
    """
    types = pyarrow_modules()[0].types
    lists = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    return bool(lists) and is_number(kind.value_type)


def numbers_of(column: Any, name: str, what: str = "features", first: int = 0) -> NDArray[np.float32]:
    """Finite float32 numbers, exactly those of the column; messages count rows from ``first`` on."""
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
    """A column of lists of numbers, all of one length, as a matrix.

    Args:
        column: The column.
        place: What it is called in messages.
        first: The number of its first row.
    """
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
    """Class numbers with -1 where there is no label, and the names of the classes, sorted (numbers as numbers)."""
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
    """Text as numbers or as true and false, if all of it is that: one odd field makes a column of a CSV file text."""
    pa, pc = pyarrow_modules()
    if array.null_count == len(array):
        return array
    if pc.all(pc.match_substring_regex(array, WHOLE)).as_py():
        return array.cast(pa.float64()) if pc.any(pc.match_substring(array, ".")).as_py() else array.cast(pa.int64())
    if pc.all(pc.is_in(pc.utf8_lower(array), value_set=pa.array(["true", "false", None]))).as_py():
        return pc.utf8_lower(array)
    return array


def merged_labels(
    columns: Sequence[tuple[NDArray[np.int64], list[str]]], known: Sequence[str] | None
) -> tuple[NDArray[np.int64], list[str]]:
    """Labels of several tables, one after the other, with one numbering.

    Args:
        columns: Class numbers and names of each table, from ``labels_of``.
        known: Classes that have the first numbers, in this order. Names of others follow, sorted; ``1.0`` and ``01``
            are the known class ``1``, unless they are known themselves, and negative numbers mean unknown.
    """
    first = list(known) if known is not None else []
    spelled = [[name if known is None else _spelled(name, set(first)) for name in names] for _, names in columns]
    others = {name for names in spelled for name in names if name is not None} - set(first)
    numeric = all(re.fullmatch(WHOLE, name) for name in others)
    classes = first + sorted(others, key=(lambda name: (int(float(name)), name)) if numeric else None)
    numbers = {name: number for number, name in enumerate(classes)} | {None: -1}
    parts = []
    for (codes, _), names in zip(columns, spelled, strict=True):
        table = np.array([*(numbers[name] for name in names), -1], np.int64)  # the last one for unknown, code -1
        parts.append(table[codes])
    return np.concatenate(parts), classes


def _spelled(name: str, known: set[str]) -> str | None:
    """The name of a class as a model knows it: one column of a CSV file is read as text, another as numbers."""
    if name in known:
        return name
    if re.fullmatch(r"-?[0-9]{1,15}(\.0*)?", name):
        number = int(float(name))
        return None if number < 0 else str(number) if str(number) in known else name
    return name.lower() if name.lower() in known and name.lower() in ("true", "false") else name


def parts_of(column: Any, name: str, first: int = 0) -> dict[str, NDArray[np.int64]]:
    """The rows of each part of a split that a column names; parts without a row are not there.

    Args:
        column: Text: one of ``PARTS``, whatever its case, or empty for rows that are in no part.
        name: What it is called in messages.
        first: The number of its first row in messages.
    """
    pa, pc = pyarrow_modules()
    array = plain(column)
    try:
        words = pc.utf8_lower(pc.utf8_trim_whitespace(array.cast(pa.string())))
    except pa.ArrowException:
        raise GraphError(
            f"{name}: {array.type} is no text; train, val, calibration, test or nothing is wanted"
        ) from None
    codes = pc.index_in(words, value_set=pa.array(list(PARTS)), skip_nulls=True)
    unknown = pc.and_(pc.is_null(codes), pc.not_equal(pc.fill_null(words, ""), ""))
    if pc.any(unknown).as_py():
        row = int(pc.index(unknown, True).as_py())
        given = f"row {first + row} is {array[row].as_py()!r:.60}"
        raise GraphError(f"{name}: {given}; train, val, calibration, test or nothing is wanted")
    role = np.array([*PARTS.values(), ""])[pc.fill_null(codes, len(PARTS)).to_numpy(zero_copy_only=False)]
    rows = {part: np.flatnonzero(role == part) for part in dict.fromkeys(PARTS.values())}
    return {part: at for part, at in rows.items() if len(at)}
