"""Ids of nodes in tables: whether they are text that spells numbers, stand twice, and where the ends of edges are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._table_files import pyarrow_modules

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
        offsets = _offsets(array)
        if int(offsets[-1]) - int(offsets[0]) == _digits(numbers.to_numpy()):
            return numbers
    return numbers if pc.all(pc.equal(numbers.cast(pa.string()), array)).as_py() else None


def stand_twice(array: Any) -> bool:
    """Whether an id stands in an array twice.

    Args:
        array: A pyarrow array, int64 or strings.
    """
    pa, pc = pyarrow_modules()
    if not pa.types.is_integer(array.type):
        return bool(pc.count_distinct(array).as_py() < len(array))
    ids = array.to_numpy()
    if len(ids) < 2 or (ids[1:] > ids[:-1]).all():
        return False
    low, span = _range(ids)
    if span > 8 * ROOM * len(ids):  # a byte an entry
        ids = np.sort(ids)
        return bool((ids[1:] == ids[:-1]).any())
    seen = np.zeros(span, np.bool_)
    seen[ids - low] = True
    return bool(np.count_nonzero(seen) < len(ids))


def positions(ids: Sequence[Any], ends: Sequence[Any]) -> list[NDArray[np.int64]]:
    """For each array of ends, where in ``ids``, one array after the other, each end stands; -1 where it does not.

    Args:
        ids: Pyarrow arrays of ids, of one type, none of which stands there twice.
        ends: Pyarrow arrays of the same type.
    """
    pa, pc = pyarrow_modules()
    if pa.types.is_integer(ids[0].type):
        found = _in_table(np.concatenate([array.to_numpy() for array in ids]), [array.to_numpy() for array in ends])
        if found is not None:
            return found
    # all ends at once, as the index of millions of ids takes longer than asking it
    position = pc.index_in(pa.concat_arrays(ends), value_set=pa.concat_arrays(ids))
    numbers = pc.fill_null(position, -1).to_numpy(zero_copy_only=False)
    return [part.astype(np.int64) for part in np.split(numbers, np.cumsum([len(array) for array in ends])[:-1])]


def _in_table(ids: NDArray[np.int64], ends: list[NDArray[np.int64]]) -> list[NDArray[np.int64]] | None:
    """Positions of whole numbers, from a table of all numbers between them; None if that would be too large."""
    if not len(ids):
        return None
    low, span = _range(ids)
    if span > ROOM * (len(ids) + sum(map(len, ends))):
        return None
    table = None
    if span > len(ids) or not (ids[1:] > ids[:-1]).all():  # else they are all numbers from low on, in order
        table = np.full(span, -1, np.int32 if len(ids) < 2**31 else np.int64)
        table[ids - low] = np.arange(len(ids), dtype=table.dtype)
    found = []
    for numbers in ends:
        inside = not len(numbers) or (low <= int(numbers.min()) and int(numbers.max()) < low + span)
        known = None if inside else (numbers >= low) & (numbers <= low + (span - 1))
        at = (numbers if known is None else np.where(known, numbers, low)) - low
        if table is not None:
            at = table[at].astype(np.int64)
        found.append(at if known is None else np.where(known, at, -1))
    return found


def _range(ids: NDArray[np.int64]) -> tuple[int, int]:
    """The smallest of some numbers, and how many there are from it to the largest."""
    low = int(ids.min())
    return low, int(ids.max()) - low + 1


def _offsets(array: Any) -> NDArray[np.int32]:
    """Where each text of an array of strings begins, and the last one ends."""
    return np.frombuffer(array.buffers()[1], np.int32, len(array) + 1, 4 * array.offset)


def _plain_digits(array: Any) -> bool:
    """Whether the texts of an array have no byte behind the digits, such as the x of 0x10."""
    if not len(array):
        return False
    offsets = _offsets(array)
    text = array.buffers()[2]
    data = np.frombuffer(text, np.uint8)[offsets[0] : offsets[-1]] if text is not None else np.empty(0, np.uint8)
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
