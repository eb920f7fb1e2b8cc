"""Loops over edges and ids of large graphs: compiled by numba, one pass each, hardly any memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..runtime.compiling import INNER, kernel

BLOCK = 256  # texts that are put into a table or looked up there at a time
SHORT = 24  # edges into a node that are sorted by insertion


@kernel()
def by_target(source: Any, target: Any, places: Any, sources: Any, order: Any) -> None:
    """Sort edges by their target, those into one node in the order given.

    Args:
        source: The node that each edge comes from.
        target: The node that it goes to.
        places: Where the edges into each node begin; afterwards where they end.
        sources: Gets the sources in the new order.
        order: Gets the number of each edge in the new order; of length 0 if nobody wants it.
    """
    wanted = len(order) > 0
    for edge in range(len(target)):
        node = target[edge]
        at = places[node]
        places[node] = at + 1
        sources[at] = source[edge]
        if wanted:
            order[at] = edge


@kernel(**INNER)
def _mixed(first: Any, second: Any) -> Any:
    """64 bits that look random, of two numbers: multiplications and shifts."""
    value = np.uint64(first) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(0x2545F4914F6CDD1D)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = value ^ (value >> np.uint64(27)) ^ (np.uint64(second) * np.uint64(0xD6E8FEB86659FD93))
    value = (value ^ (value >> np.uint64(32))) * np.uint64(0x94D049BB133111EB)
    value = (value ^ (value >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    return value ^ (value >> np.uint64(31))


@kernel(**INNER)
def _sorted(row: Any) -> Any:
    """A row in order, in its own place if it is short."""
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
    """Count what there is to know of the edges into some nodes.

    Args:
        starts: Where the edges into each of these nodes begin in ``sources``, and where the last ones end.
        sources: The nodes that these edges come from; sorted for each node afterwards.
        first: The number of the first node.
        labels: Of all nodes.
        touched: Whether each of all nodes has an edge.
        counts: Adds up self-loops, edges that repeat another one, edges between labelled nodes, and those of one class.
        balance: A sum of hashes of pairs of nodes, added for an edge up and taken away for one down. After all edges it
            is 0 if each has its counterpart, and else another number, but for one chance in 2^64.
    """
    loops = twice = known = same = 0
    total = np.uint64(0)
    for row in range(len(starts) - 1):
        begin, end = starts[row], starts[row + 1]
        if begin == end:
            continue
        node = first + row
        touched[node] = True
        own = labels[node]
        before = np.int64(-1)
        for source in _sorted(sources[begin:end]):
            loops += source == node
            other = labels[source]
            if own >= 0 and other >= 0:
                known += 1
                same += own == other
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
    counts[2] += known
    counts[3] += same
    balance[0] += total


@kernel()
def count_filled(rows: Any, counts: Any) -> None:
    """Count the numbers that are not 0, and the rows that have one.

    Args:
        rows: A matrix.
        counts: Adds them up.
    """
    for row in rows:
        filled = 0
        for number in row:
            filled += number != 0
        counts[0] += filled
        counts[1] += filled > 0


@kernel()
def count_alike(starts: Any, sources: Any, first: Any, labels: Any, known: Any, alike: Any) -> None:
    """Of some nodes count the neighbours that have a label, and those that have the label of the node.

    Args:
        starts: Where the edges into each of these nodes begin in ``sources``, and where the last ones end.
        sources: The nodes that these edges come from.
        first: The number of the first node.
        labels: Of all nodes.
        known: Gets the number of labelled neighbours of each of all nodes, if it has a label itself.
        alike: Gets the number of those that have its label.
    """
    for row in range(len(starts) - 1):
        node = first + row
        if labels[node] < 0:
            continue
        for source in sources[starts[row] : starts[row + 1]]:
            if source != node and labels[source] >= 0:
                known[node] += 1
                alike[node] += labels[source] == labels[node]


@kernel(**INNER)
def _hashed(offsets: Any, data: Any, at: Any) -> Any:
    """64 bits that look random, of one text."""
    begin, end = np.uint64(offsets[at]), np.uint64(offsets[at + 1])  # without a sign, else -1 may be the last place
    value = np.uint64(0xCBF29CE484222325)
    for place in range(begin, end):
        value = (value ^ np.uint64(data[place])) * np.uint64(0x100000001B3)
    return _mixed(value, end - begin)


@kernel()
def hash_texts(offsets: Any, data: Any) -> Any:
    """A key of 64 bits for each text.

    Args:
        offsets: Where each text begins in ``data``, and where the last one ends.
        data: The bytes of all texts.
    """
    keys = np.empty(len(offsets) - 1, np.int64)
    for at in range(len(keys)):
        keys[at] = np.int64(_hashed(offsets, data, at))
    return keys


@kernel()
def index_texts(offsets: Any, data: Any, table: Any) -> None:
    """Put texts, all of them different, into a hash table.

    Args:
        offsets: Where each text begins in ``data``, and where the last one ends.
        data: The bytes of all texts.
        table: Zeros, as many as a power of two, more than there are texts. An entry gets the number of a text plus one
            in its lower half and 32 bits of its hash in the upper.
    """
    mask, upper = np.uint64(len(table) - 1), np.uint64(0xFFFFFFFF00000000)
    hashes, entries = np.empty(BLOCK, np.uint64), np.empty(BLOCK, np.uint64)
    for first in range(0, len(offsets) - 1, BLOCK):
        count = min(BLOCK, len(offsets) - 1 - first)
        for at in range(count):
            hashes[at] = _hashed(offsets, data, first + at)
        for at in range(count):
            entries[at] = table[hashes[at] & mask]  # brings what is around them, many at a time
        for at in range(count):
            place = hashes[at] & mask
            while table[place]:
                place = (place + np.uint64(1)) & mask
            table[place] = (hashes[at] & upper) | np.uint64(first + at + 1)


@kernel(**INNER)
def _candidate(table: Any, place: Any, hashed: Any) -> Any:
    """Next place of a hash table whose entry has these 32 bits of a hash, or an empty one."""
    mask = np.uint64(len(table) - 1)
    while table[place] and (table[place] ^ hashed) >> np.uint64(32):
        place = (place + np.uint64(1)) & mask
    return place


@kernel(**INNER)
def _extent(offsets: Any, entry: Any) -> Any:
    """Begin and end of the text of an entry; arbitrary for an empty entry."""
    number = entry & np.uint64(0xFFFFFFFF)
    if number:
        number -= np.uint64(1)
    return np.uint64(offsets[number]), np.uint64(offsets[number + np.uint64(1)])


@kernel(**INNER)
def _same(data: Any, begin: Any, known: Any, other: Any, size: Any) -> Any:
    """Return whether two ranges of bytes are equal."""
    byte = np.uint64(0)
    while byte < size and data[begin + byte] == known[other + byte]:
        byte += np.uint64(1)
    return byte == size


@kernel()
def find_texts(offsets: Any, data: Any, table: Any, known_offsets: Any, known: Any, found: Any) -> None:
    """Find texts among those of a hash table; bytes are compared, so that no two are taken for one.

    Args:
        offsets: Where each text begins in ``data``, and where the last one ends.
        data: The bytes of all texts.
        table: Of ``index_texts``.
        known_offsets: Where each text of the table begins in ``known``, and where the last one ends.
        known: The bytes of all texts of the table.
        found: Gets the number of each text, -1 for those that are not there.
    """
    mask = np.uint64(len(table) - 1)
    hashes, places, entries = np.empty(BLOCK, np.uint64), np.empty(BLOCK, np.uint64), np.empty(BLOCK, np.uint64)
    begins, ends, heads = np.empty(BLOCK, np.uint64), np.empty(BLOCK, np.uint64), np.empty(BLOCK, np.uint8)
    for first in range(0, len(found), BLOCK):  # step by step, so that the memory is asked for many texts at a time
        count = min(BLOCK, len(found) - first)
        for at in range(count):
            hashes[at] = _hashed(offsets, data, first + at)
        for at in range(count):
            entries[at] = table[hashes[at] & mask]  # brings those next to it, which may be the one that is wanted
        for at in range(count):
            places[at] = _candidate(table, hashes[at] & mask, hashes[at])
            entries[at] = table[places[at]]
        for at in range(count):
            begins[at], ends[at] = _extent(known_offsets, entries[at])
        for at in range(count):
            heads[at] = known[begins[at]] if begins[at] < len(known) else 0  # brings the others, which are next to it
        for at in range(count):
            begin, end = np.uint64(offsets[first + at]), np.uint64(offsets[first + at + 1])
            found[first + at] = -1
            while entries[at]:
                if ends[at] - begins[at] == end - begin and _same(data, begin, known, begins[at], end - begin):
                    found[first + at] = np.int64(entries[at] & np.uint64(0xFFFFFFFF)) - 1
                    break
                places[at] = _candidate(table, (places[at] + np.uint64(1)) & mask, hashes[at])
                entries[at] = table[places[at]]
                begins[at], ends[at] = _extent(known_offsets, entries[at])


@kernel()
def fill_table(keys: Any, first: Any, partition: Any, partitions: Any, table: Any, numbers: Any) -> Any:
    """Put keys into a hash table; stops at one that is there already, and returns the two numbers.

    Args:
        keys: Numbers.
        first: The number of the first one.
        partition: The partition that is wanted.
        partitions: How many there are.
        table: Keys, as many as a power of two.
        numbers: Of the keys, -1 for none.
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
def look_up(keys: Any, partition: Any, partitions: Any, table: Any, numbers: Any, found: Any) -> None:
    """Find keys of one partition in a hash table.

    Args:
        keys: Numbers.
        partition: The partition.
        partitions: How many there are.
        table: The keys of nodes.
        numbers: Their numbers, -1 for places without a key.
        found: Gets the number of each key of the partition, -1 for keys that are not there.
    """
    mask = np.uint64(len(table) - 1)
    for at in range(len(keys)):
        hashed = _mixed(keys[at], 7)
        if np.int32(hashed >> np.uint64(40)) % partitions != partition:
            continue
        place = hashed & mask
        found[at] = -1
        while numbers[place] >= 0:
            if table[place] == keys[at]:
                found[at] = numbers[place]
                break
            place = (place + np.uint64(1)) & mask
