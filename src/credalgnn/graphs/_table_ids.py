"""Ids of nodes in tables: whether they are text that spells numbers, as arrays, and where the ends of edges are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._table_files import pyarrow_modules

MANY = 1 << 20  # texts that are looked up, from which on a hash table of one's own is quicker
ROWS = 1 << 11  # of texts taken apart at a time: they stay in the processor's cache
ROOM = 2  # a table of all numbers between two ids may have so many entries for each id that is there or is asked for


def as_numbers(array: Any) -> Any:
    """Ids that are text as int64; None if one of them is not spelled as a number is: 7, but neither 007, +7 nor 0x7.

    Args:
        array: A pyarrow array of strings, none of them missing.
    """
    pa, pc = pyarrow_modules()
    try:
        numbers = array.cast(pa.int64())
    except pa.ArrowInvalid:
        return None
    if _plain_digits(array):
        # A number has no shorter spelling than its own, so that all are spelled that way if the lengths add up to it.
        offsets, _ = text_buffers(array)
        if int(offsets[-1]) - int(offsets[0]) == _digits(numbers.to_numpy()):
            return numbers
    return numbers if pc.all(pc.equal(numbers.cast(pa.string()), array)).as_py() else None


def as_array(array: Any) -> NDArray[Any]:
    """Ids as a numpy array of whole numbers or texts.

    Args:
        array: A pyarrow array, int64 or strings, none of them missing.
    """
    pa, pc = pyarrow_modules()
    if pa.types.is_integer(array.type):
        return np.asarray(array.to_numpy())
    if len(array) < MANY:
        return np.asarray(array.to_numpy(zero_copy_only=False).astype(np.str_))
    offsets, data = text_buffers(array)
    lengths = pc.utf8_length(array).to_numpy()
    texts = np.zeros(len(array), f"U{max(1, lengths.max())}")
    codes = texts.view(np.uint32)
    for first in range(0, len(array), ROWS):
        part = lengths[first : first + ROWS]
        begin, end = offsets[first], offsets[first + len(part)]
        # Behind each text is room for what the longest one has more: so far are its characters moved.
        moved = np.arange(first, first + len(part)) * (len(codes) // len(texts)) - (np.cumsum(part) - part)
        characters = np.frombuffer(data[begin:end].tobytes().decode().encode("utf-32-le"), np.dtype("<u4"))
        codes[np.repeat(moved, part) + np.arange(len(characters))] = characters
    return texts


def positions(ids: Sequence[Any], ends: Sequence[Any]) -> NDArray[np.signedinteger[Any]]:
    """Where in ``ids``, one array after the other, each of ``ends`` stands, likewise; -1 where it does not.

    Numbers of 32 bits if they hold all that is needed, as there may be hundreds of millions.

    Args:
        ids: Pyarrow arrays of ids, of one type, none of which stands there twice.
        ends: Pyarrow arrays of the same type.
    """
    pa, pc = pyarrow_modules()
    if pa.types.is_integer(ids[0].type):
        found = _in_table(np.concatenate([array.to_numpy() for array in ids]), [array.to_numpy() for array in ends])
        if found is not None:
            return found
    elif sum(map(len, ends)) >= MANY and len(ids) == 1 and 0 < len(ids[0]) < 2**31:
        return _in_index(ids[0], ends)
    # all ends at once, as the index of millions of ids takes longer than asking it
    position = pc.index_in(pa.concat_arrays(ends), value_set=pa.concat_arrays(ids))
    numbers: NDArray[np.int32] = pc.fill_null(position, -1).to_numpy(zero_copy_only=False)
    return numbers


def _in_index(ids: Any, ends: Sequence[Any]) -> NDArray[np.int32]:
    """Positions of texts, from a hash table of all ids."""
    from ._edge_kernels import find_texts, index_texts  # here, as numba takes long to load

    known = text_buffers(ids)
    table = np.zeros(1 << (2 * len(ids)).bit_length(), np.uint64)
    index_texts(*known, table)
    found, start = np.empty(sum(map(len, ends)), np.int32), 0
    for texts in ends:
        find_texts(*text_buffers(texts), table, *known, found[start : start + len(texts)])
        start += len(texts)
    return found


def _in_table(ids: NDArray[np.int64], ends: list[NDArray[np.int64]]) -> NDArray[np.signedinteger[Any]] | None:
    """Positions of whole numbers, from a table of all numbers between them; None if that would be too large."""
    count = sum(map(len, ends))
    if not len(ids):
        return None
    low, span = _range(ids)
    if span > ROOM * (len(ids) + count):
        return None
    kind = np.int32 if span < 2**31 else np.int64  # also holds where in the table to look
    table = None
    if span > len(ids) or not (ids[1:] > ids[:-1]).all():  # else they are all numbers from low on, in order
        table = np.full(span, -1, kind)
        table[ids - low] = np.arange(len(ids), dtype=kind)
    found: NDArray[np.signedinteger[Any]] = np.empty(count, kind)
    start = 0
    for numbers in ends:
        part = found[start : start + len(numbers)]
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
    return found


def _range(ids: NDArray[np.int64]) -> tuple[int, int]:
    """The smallest of some numbers, and how many there are from it to the largest."""
    low = int(ids.min())
    return low, int(ids.max()) - low + 1


def text_buffers(array: Any) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
    """Where each text of a string array begins and the last one ends, and the bytes of all.

    Args:
        array: A string array without nulls.
    """
    _, offsets, data = array.buffers()
    begin = np.frombuffer(offsets, np.int32, len(array) + 1, 4 * array.offset) if offsets else np.zeros(1, np.int32)
    return begin, np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)


def _plain_digits(array: Any) -> bool:
    """Whether the texts of an array have no byte behind the digits, such as the x of 0x10."""
    if not len(array):
        return False
    offsets, text = text_buffers(array)
    data = text[offsets[0] : offsets[-1]]
    return bool(len(data) and data.max() <= ord("9"))


def _digits(numbers: NDArray[np.int64]) -> int:
    """How many characters some numbers have together."""
    negative = int(np.count_nonzero(numbers < 0))
    sizes = np.abs(numbers.astype(np.float64)) if negative else numbers  # up to 2^53 exact
    total, power, most = len(numbers) + negative, 10, int(sizes.max())
    if most >= 2**53:
        return -1
    while power <= most:
        total += int(np.count_nonzero(sizes >= power))
        power *= 10
    return total
