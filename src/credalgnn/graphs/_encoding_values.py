"""Columns of tables as plain values, whatever type they came in: one odd field changes that of a CSV file's column."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._table_columns import NO_LABEL
from ._table_files import plain, pyarrow_modules
from .errors import GraphError

NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}


def is_text(kind: Any) -> bool:
    """Whether a type is one of text, or of categories, whatever these are called by."""
    types = pyarrow_modules()[0].types
    return bool(types.is_dictionary(kind) or _is_string(kind))


def is_vector(kind: Any) -> bool:
    """Whether a type is one of lists of numbers."""
    types = pyarrow_modules()[0].types
    lists = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    return bool(lists and is_numeric(kind.value_type))


def is_date(kind: Any) -> bool:
    """Whether a type is one of dates, with or without a time."""
    types = pyarrow_modules()[0].types
    return bool(types.is_date(kind) or types.is_timestamp(kind))


def is_numeric(kind: Any) -> bool:
    """Whether a type is one of numbers; true and false, durations, times of a day and empty columns are."""
    types = pyarrow_modules()[0].types
    number = types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)
    return bool(number or types.is_boolean(kind) or types.is_null(kind) or types.is_time(kind) or _is_duration(kind))


def as_numbers(column: Any, where: str, date: bool) -> NDArray[Any]:
    """Numbers, float32 or float64, NaN where they are missing; dates, durations and times of a day in seconds.

    Args:
        column: The column.
        where: What it is called in messages.
        date: Whether dates are wanted.
    """
    pa, _ = pyarrow_modules()
    array = plain(column)
    if _is_string(array.type):
        array = _dates_of_text(array, where) if date else _numbers_of_text(array, where)
    kind = array.type
    if not (pa.types.is_null(kind) or (is_date(kind) if date else is_numeric(kind))):
        wanted = "dates" if date else "numbers"
        raise GraphError(f"{where} holds {kind}, and {wanted} when the model was fitted: give it the same type")
    numbers = _floats(array)
    infinite = np.flatnonzero(np.isinf(numbers))
    if len(infinite):
        raise GraphError(f"{where}: row {infinite[0]} is {numbers[infinite[0]]}; fill or drop it first")
    return numbers


def as_text(column: Any, where: str) -> Any:
    """Text without blanks around it, null where it is missing; whole numbers without a point.

    Args:
        column: The column.
        where: What it is called in messages.
    """
    pa, pc = pyarrow_modules()
    array = plain(column)
    if pa.types.is_floating(array.type):
        array = pc.if_else(pc.is_nan(array), pa.scalar(None, array.type), array)
        if pc.all(pc.equal(array, pc.round(array))).as_py():
            array = array.cast(pa.int64(), safe=False)
    if not _is_string(array.type):
        if is_vector(array.type) or pa.types.is_nested(array.type):
            raise GraphError(f"{where} holds {array.type}, and text when the model was fitted: give it the same type")
        array = array.cast(pa.string())
    return plain(pc.utf8_trim_whitespace(array))


def as_vectors(column: Any, where: str, length: int | None = None) -> NDArray[Any]:
    """Lists of numbers as a matrix, NaN where there is none.

    Args:
        column: The column.
        where: What it is called in messages.
        length: How long the lists have to be. None: as long as the first one.
    """
    pa, pc = pyarrow_modules()
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if not is_vector(array.type):
        raise GraphError(f"{where} holds {array.type}, and lists of numbers when the model was fitted")
    lengths = pc.list_value_length(array).to_numpy(zero_copy_only=False)
    there = ~pc.is_null(array).to_numpy(zero_copy_only=False)
    rows = np.flatnonzero(there)
    if length is None:
        length = int(lengths[rows[0]]) if len(rows) else 0
    other = rows[lengths[rows] != length]
    if len(other):
        raise GraphError(f"{where}: row {other[0]} is a list of {int(lengths[other[0]])} numbers, not of {length}")
    flat = _floats(array.flatten()).reshape(len(rows), length)
    infinite = np.argwhere(np.isinf(flat))
    if len(infinite):
        row, place = infinite[0]
        raise GraphError(f"{where}: row {rows[row]} holds {flat[row, place]} at place {place}; fill or drop it first")
    if len(rows) == len(array):
        return flat
    matrix = np.full((len(array), length), np.nan, flat.dtype)
    matrix[rows] = flat
    return matrix


def _floats(array: Any) -> NDArray[Any]:
    """Numbers and times, float32 or float64, NaN where they are missing; times in seconds."""
    pa, _ = pyarrow_modules()
    kind, factor = array.type, 1.0
    if pa.types.is_float32(kind):
        return np.asarray(array.to_numpy(zero_copy_only=False))
    if pa.types.is_date32(kind):
        array, factor = array.cast(pa.int32()), 86400.0
    elif pa.types.is_date64(kind):
        array, factor = array.cast(pa.int64()), 1e-3
    elif pa.types.is_timestamp(kind) or pa.types.is_time(kind) or _is_duration(kind):
        array, factor = array.cast(pa.int32() if pa.types.is_time32(kind) else pa.int64()), SECONDS[kind.unit]
    elif pa.types.is_boolean(kind):
        array = array.cast(pa.int8())
    numbers = array.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return np.asarray(numbers if factor == 1 else numbers * factor)


def _is_string(kind: Any) -> bool:
    types = pyarrow_modules()[0].types
    return bool(types.is_string(kind) or types.is_large_string(kind))


def _is_duration(kind: Any) -> bool:
    return bool(pyarrow_modules()[0].types.is_duration(kind))


def _numbers_of_text(array: Any, where: str) -> Any:
    """Numbers that were read as text, as one odd field of a CSV file is enough for."""
    pa, pc = pyarrow_modules()
    words = pc.utf8_lower(pc.utf8_trim_whitespace(array))
    words = pc.if_else(pc.is_in(words, value_set=pa.array(NO_LABEL)), pa.scalar(None, pa.string()), words)
    words = pc.if_else(pc.equal(words, "true"), "1", pc.if_else(pc.equal(words, "false"), "0", words))
    odd = pc.invert(pc.match_substring_regex(words, NUMBER))
    if pc.any(odd).as_py():
        row = int(pc.index(odd, True).as_py())
        raise GraphError(
            f"{where}: row {row} is {array[row].as_py()!r:.60}, and the column held numbers when the model was fitted; "
            "empty the field, or write a number"
        )
    return pc.utf8_ltrim(words, characters="+").cast(pa.float64())


def _dates_of_text(array: Any, where: str) -> Any:
    pa, _ = pyarrow_modules()
    try:
        return array.cast(pa.timestamp("us"))
    except pa.ArrowInvalid as error:
        raise GraphError(
            f"{where} held dates when the model was fitted ({error}); write dates as 2026-01-31 or 2026-01-31 12:00:00"
        ) from None
