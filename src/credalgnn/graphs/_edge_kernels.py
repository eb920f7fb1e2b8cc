"""Compiled loops over edges and ids of large graphs: one pass each, little memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..runtime.compiling import INNER, kernel

BLOCK = 256  # texts hashed at a time
SHORT = 24  # edges into a node sorted by insertion


@kernel()
def by_target(source: Any, target: Any, places: Any, sources: Any, order: Any) -> None:
    """Sort edges by target, stably.

    ``places`` holds where the edges into each node begin, and afterwards where they end; ``sources`` and ``order`` get
    the sources and the numbers of the edges in the new order. An ``order`` of length 0 is not filled.
    """
    ordered = len(order) > 0
    for edge in range(len(target)):
        node = target[edge]
        at = places[node]
        places[node] = at + 1
        sources[at] = source[edge]
        if ordered:
            order[at] = edge


@kernel(**INNER)
def _mixed(first: Any, second: Any) -> Any:
    """Return a 64-bit hash of two numbers by multiplications and shifts."""
    value = np.uint64(first) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(0x2545F4914F6CDD1D)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = value ^ (value >> np.uint64(27)) ^ (np.uint64(second) * np.uint64(0xD6E8FEB86659FD93))
    value = (value ^ (value >> np.uint64(32))) * np.uint64(0x94D049BB133111EB)
    value = (value ^ (value >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    return value ^ (value >> np.uint64(31))


@kernel(**INNER)
def _sorted(row: Any) -> Any:
    """Return a row sorted, in place if it is short."""
    if len(row) > SHORT:
        return np.sort(row)
    for at in range(1, len(row)):
        value, place = row[at], at
        while place > 0 and row[place - 1] > value:
            row[place] = row[place - 1]
            place -= 1
        row[place] = value
    return row


@kernel()
def count_edges(starts: Any, sources: Any, first: Any, labels: Any, touched: Any, counts: Any, balance: Any) -> None:
    """Count properties of the edges into consecutive nodes from ``first`` on; their ``sources`` are sorted per node.

    ``touched`` marks nodes with edges; ``counts`` adds up self-loops, repeated edges, edges between labelled nodes, and
    those of one class. ``balance`` sums hashes of pairs of nodes, added for an edge up and subtracted for one down:
    after all edges it is 0 if each has a reverse, and else, but for one chance in 2^64, another number.
    """
    loops = twice = labelled = same = 0
    total = np.uint64(0)
    for row in range(len(starts) - 1):
        begin, end = starts[row], starts[row + 1]
        if begin == end:
            continue
        node = first + row
        touched[node] = True
        label = labels[node]
        before = np.int64(-1)
        for source in _sorted(sources[begin:end]):
            loops += source == node
            other = labels[source]
            if label >= 0 and other >= 0:
                labelled += 1
                same += label == other
            if source == before:
                twice += 1
                continue
            before = np.int64(source)
            touched[source] = True
            if source < node:
                total += _mixed(source, node)
            elif source > node:
                total -= _mixed(node, source)
    counts[0] += loops
    counts[1] += twice
    counts[2] += labelled
    counts[3] += same
    balance[0] += total


@kernel()
def count_filled(rows: Any, counts: Any) -> None:
    """Count the numbers of a matrix that are not 0, and the rows that have one."""
    for row in rows:
        filled = 0
        for number in row:
            filled += number != 0
        counts[0] += filled
        counts[1] += filled > 0


@kernel()
def count_alike(starts: Any, sources: Any, first: Any, labels: Any, labelled: Any, alike: Any) -> None:
    """Count the labelled neighbours of consecutive nodes from ``first`` on, and those with the node's own label."""
    for row in range(len(starts) - 1):
        node = first + row
        if labels[node] < 0:
            continue
        for source in sources[starts[row] : starts[row + 1]]:
            if source != node and labels[source] >= 0:
                labelled[node] += 1
                alike[node] += labels[source] == labels[node]


@kernel(**INNER)
def _hashed(offsets: Any, data: Any, at: Any) -> Any:
    """Return a 64-bit hash of a text."""
    begin, end = np.uint64(offsets[at]), np.uint64(offsets[at + 1])  # unsigned, else -1 may be the last place
    value = np.uint64(0xCBF29CE484222325)
    for place in range(begin, end):
        value = (value ^ np.uint64(data[place])) * np.uint64(0x100000001B3)
    return _mixed(value, end - begin)


@kernel()
def hash_texts(offsets: Any, data: Any) -> Any:
    """Return a 64-bit key of each text, given the offsets and the bytes of all."""
    keys = np.empty(len(offsets) - 1, np.int64)
    for at in range(len(keys)):
        keys[at] = np.int64(_hashed(offsets, data, at))
    return keys


@kernel()
def index_texts(offsets: Any, data: Any, table: Any) -> None:
    """Fill a hash table with distinct texts, given their offsets and bytes.

    ``table`` is zero, its length a power of two above the number of texts. An entry gets the number of a text plus one
    in its lower half and 32 bits of its hash in the upper.
    """
    mask, upper = np.uint64(len(table) - 1), np.uint64(0xFFFFFFFF00000000)
    hashes, entries = np.empty(BLOCK, np.uint64), np.empty(BLOCK, np.uint64)
    for first in range(0, len(offsets) - 1, BLOCK):
        count = min(BLOCK, len(offsets) - 1 - first)
        for at in range(count):
            hashes[at] = _hashed(offsets, data, first + at)
        for at in range(count):
            entries[at] = table[hashes[at] & mask]  # prefetches their neighbourhoods, many at a time
        for at in range(count):
            place = hashes[at] & mask
            while table[place]:
                place = (place + np.uint64(1)) & mask
            table[place] = (hashes[at] & upper) | np.uint64(first + at + 1)


@kernel(**INNER)
def _candidate(table: Any, place: Any, hashed: Any) -> Any:
    """Return the next place of a hash table whose entry is empty or has the 32 bits of a hash."""
    mask = np.uint64(len(table) - 1)
    while table[place] and (table[place] ^ hashed) >> np.uint64(32):
        place = (place + np.uint64(1)) & mask
    return place


@kernel(**INNER)
def _extent(offsets: Any, entry: Any) -> Any:
    """Return the bounds of the text of an entry; those of any text for an empty entry."""
    number = entry & np.uint64(0xFFFFFFFF)
    if number:
        number -= np.uint64(1)
    return np.uint64(offsets[number]), np.uint64(offsets[number + np.uint64(1)])


@kernel(**INNER)
def _same(data: Any, begin: Any, texts: Any, other: Any, size: Any) -> Any:
    """Compare ``size`` bytes."""
    byte = np.uint64(0)
    while byte < size and data[begin + byte] == texts[other + byte]:
        byte += np.uint64(1)
    return byte == size


@kernel()
def find_texts(offsets: Any, data: Any, table: Any, text_offsets: Any, texts: Any, result: Any) -> None:
    """Find texts in a table of ``index_texts``; bytes are compared, so that equal hashes do not matter.

    ``result`` gets the number of each text, -1 for those that are not in the table.
    """
    mask = np.uint64(len(table) - 1)
    hashes, places, entries = np.empty(BLOCK, np.uint64), np.empty(BLOCK, np.uint64), np.empty(BLOCK, np.uint64)
    begins, ends, heads = np.empty(BLOCK, np.uint64), np.empty(BLOCK, np.uint64), np.empty(BLOCK, np.uint8)
    for first in range(0, len(result), BLOCK):  # step by step, to have many memory accesses in flight
        count = min(BLOCK, len(result) - first)
        for at in range(count):
            hashes[at] = _hashed(offsets, data, first + at)
        for at in range(count):
            entries[at] = table[hashes[at] & mask]  # prefetches the next ones as well
        for at in range(count):
            places[at] = _candidate(table, hashes[at] & mask, hashes[at])
            entries[at] = table[places[at]]
        for at in range(count):
            begins[at], ends[at] = _extent(text_offsets, entries[at])
        for at in range(count):
            heads[at] = texts[begins[at]] if begins[at] < len(texts) else 0  # prefetches the rest of the text
        for at in range(count):
            begin, end = np.uint64(offsets[first + at]), np.uint64(offsets[first + at + 1])
            result[first + at] = -1
            while entries[at]:
                if ends[at] - begins[at] == end - begin and _same(data, begin, texts, begins[at], end - begin):
                    result[first + at] = np.int64(entries[at] & np.uint64(0xFFFFFFFF)) - 1
                    break
                places[at] = _candidate(table, (places[at] + np.uint64(1)) & mask, hashes[at])
                entries[at] = table[places[at]]
                begins[at], ends[at] = _extent(text_offsets, entries[at])


@kernel()
def fill_table(keys: Any, first: Any, partition: Any, partitions: Any, table: Any, numbers: Any) -> Any:
    """Add the keys of one partition to a hash table; at a duplicate, stop and return both numbers, else -1 twice.

    ``table`` and ``numbers`` have a power of two entries, -1 in ``numbers`` where there is no key.
    """
    mask = np.uint64(len(table) - 1)
    for at in range(len(keys)):
        hashed = _mixed(keys[at], 7)
        if np.int32(hashed >> np.uint64(40)) % partitions != partition:
            continue
        place = hashed & mask
        while numbers[place] >= 0:
            if table[place] == keys[at]:
                return np.int64(numbers[place]), np.int64(first + at)
            place = (place + np.uint64(1)) & mask
        table[place] = keys[at]
        numbers[place] = first + at
    return np.int64(-1), np.int64(-1)


@kernel()
def look_up(keys: Any, partition: Any, partitions: Any, table: Any, numbers: Any, result: Any) -> None:
    """Find keys of one partition in a table of ``fill_table``; ``result`` gets their numbers, -1 where absent."""
    mask = np.uint64(len(table) - 1)
    for at in range(len(keys)):
        hashed = _mixed(keys[at], 7)
        if np.int32(hashed >> np.uint64(40)) % partitions != partition:
            continue
        place = hashed & mask
        result[at] = -1
        while numbers[place] >= 0:
            if table[place] == keys[at]:
                result[at] = numbers[place]
                break
            place = (place + np.uint64(1)) & mask
