"""Tables of edges, streamed and sorted by target on the disk: memory holds one bucket of them at a time."""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..runtime.memory import in_units
from ..runtime.reading import Unreadable
from ._pack_nodes import NodeState, Wanted, hashes, place_of
from ._packed_files import Chunks, Writer
from ._table_files import Batch, Shard, batches, column_types, pyarrow_modules
from .edges import INT32
from .errors import GraphError, warn
from .tables import ENDS, INDEX, OTHER_ENDS, Columns, as_numbers, ids_of, numbers_of

CHUNK = 1 << 18  # edges that are looked at at a time
MOST_BUCKETS = 256  # files that are open at once
BLOCKS = 1 << 16  # of nodes, whose edges are counted to make buckets of equal size
EDGE_BYTES = 96  # that an edge takes in memory while its bucket is sorted

Tell = Callable[[int, int], None]


class EdgeState:
    """What is known of the edges so far; as JSON it is part of the journal.

    Args:
        values: As ``json`` gave it back; None at the beginning.
    """

    def __init__(self, values: dict[str, Any] | None = None) -> None:
        values = values or {}
        self.rows: int = values.get("rows", 0)
        self.shards: list[int] = values.get("shards", [])
        self.weighted: bool | None = values.get("weighted")
        self.ends: list[str] = values.get("ends", [])  # the columns of source and target

    def values(self) -> dict[str, Any]:
        """As ``json`` can write it."""
        return dict(vars(self))


class EdgeWriter:
    """Streams shards of edges into files of the keys of their ends.

    Args:
        work: The folder of these files.
        wanted: What is read.
        state: How far an earlier command came.
        nodes: What is known of the nodes.
    """

    def __init__(self, work: Path, wanted: Wanted, state: EdgeState, nodes: NodeState) -> None:
        self._work, self._wanted, self.state, self._nodes = work, wanted, state, nodes
        self._ends = [Writer(work / f"{end}_keys.npy", np.int64, None, state.rows) for end in ENDS]
        self._weights = Writer(work / "edge_weights.npy", np.float32, None, state.rows if state.weighted else 0)

    def add(self, shard: Shard) -> int:
        """Read one shard; returns how many rows it has.

        Args:
            shard: The file.
        """
        types, weight = self._types(shard)
        before = self.state.rows
        for batch in batches(shard, types, self._wanted.rows, self._wanted.delimiter):
            if not batch.table.num_rows:
                continue
            for end, file in zip(self.state.ends, self._ends, strict=True):
                file.add(self._keys(batch, shard, end))
            if weight is not None:
                place = f"{shard.path}, column {weight}"
                numbers = numbers_of(batch.table[weight], place, "weights", batch.first) + np.float32(0)
                if numbers.min() < 0:
                    at = int(numbers.argmin())
                    raise GraphError(f"{place}: row {batch.first + at} is {numbers[at]}; weights are not negative")
                self._weights.add(numbers)
            self.state.rows += batch.table.num_rows
        self.state.shards.append(self.state.rows - before)
        for file in (*self._ends, self._weights):
            file.flush()
        return self.state.shards[-1]

    def _types(self, shard: Shard) -> tuple[dict[str, Any], str | None]:
        """The columns of a shard that are read, and as what; and which of them is the weight."""
        pa, _ = pyarrow_modules()
        columns = self._wanted.columns
        others = [name for pair in OTHER_ENDS for name in pair]
        found = column_types(shard, [columns.source, columns.target, *others], self._wanted.delimiter)
        if not self.state.ends:
            self.state.ends = list(ends_among(found, columns))
        for name, option in zip(self.state.ends, ENDS, strict=True):
            if name not in found:
                raise GraphError(
                    f"{shard.path}: there is no column {name!r}; the columns are {', '.join(list(found)[:12])}; name "
                    f"the column: {option}=... (--{option})"
                )
        weight = columns.weight or "weight"
        if columns.weight is not None and weight not in found:
            raise GraphError(f"{shard.path}: there is no column {weight!r} of weights; name it: weight=... (--weight)")
        if self.state.weighted is None:
            self.state.weighted = weight in found
            unused = [name for name in found if name not in (*self.state.ends, weight) and not INDEX.fullmatch(name)]
            if unused:
                warn(f"{shard.path}: the columns {', '.join(unused[:12])} are not used; a graph has one weight an edge")
        if self.state.weighted != (weight in found):
            raise GraphError(f"{shard.path}: some shards of edges have a column {weight!r} and others not")
        wanted = [*self.state.ends, *([weight] if self.state.weighted else [])]
        if not shard.typed:
            found |= dict.fromkeys(self.state.ends, pa.string()) | {weight: pa.float64()}
        return {name: found[name] for name in wanted}, weight if self.state.weighted else None

    def _keys(self, batch: Batch, shard: Shard, column: str) -> NDArray[np.int64]:
        pa, _ = pyarrow_modules()
        place = f"{shard.path}, column {column}"
        array = ids_of(batch.table[column], place, batch.first)
        is_text = not pa.types.is_integer(array.type)
        if shard.typed and is_text != self._nodes.text:
            kinds = ("text", "numbers") if is_text else ("numbers", "text")
            raise GraphError(
                f"ids of two types: {place} holds {kinds[0]}, the nodes have {kinds[1]}; write them as one"
            )
        if self._nodes.text:
            return hashes(array)
        numbers = as_numbers(array)
        if numbers is None:
            row = bisect_left(range(len(array)), True, key=lambda at: as_numbers(array[: at + 1]) is None)
            raise GraphError(
                f"{shard.path}, row {batch.first + row}: {column} {array[row].as_py()!r:.60} is not the id of a node"
            )
        return np.asarray(numbers.to_numpy())

    def close(self) -> None:
        """All shards are read."""
        for file in (*self._ends, self._weights):
            file.close()

    def abandon(self) -> None:
        """Write no more; a later writer goes on behind the last whole shard."""
        for file in (*self._ends, self._weights):
            file.abandon()


def ends_among(found: Collection[str], columns: Columns) -> tuple[str, str]:
    """The columns of source and target: those that are named, or others that are often called so.

    Args:
        found: The columns of the first shard.
        columns: Which columns are what.
    """
    named = columns.source, columns.target
    if named != ENDS or set(ENDS) & set(found):
        return named
    return next((pair for pair in OTHER_ENDS if set(pair) <= set(found)), ENDS)


def number_ends(
    work: Path, nodes: NodeState, edges: int, node_shards: Sequence[Shard], memory: int, ids: Path, tell: Tell
) -> None:
    """Make numbers of nodes of the keys of edges, by hash tables of which one fits into memory at a time.

    Args:
        work: The folder with the keys.
        nodes: What is known of the nodes.
        edges: How many edges there are.
        node_shards: The files of nodes, for messages.
        memory: Bytes that may be used.
        ids: The file of the ids, for messages.
        tell: Is told how many of how many steps are done.
    """
    from ._edge_kernels import fill_table, look_up  # here, as numba takes long to load

    kind = np.int32 if nodes.rows <= INT32 else np.int64
    partitions = max(1, -(-4 * nodes.rows * (8 + kind().itemsize) // max(1, memory // 2)))
    size = 1 << max(4, int(2 * nodes.rows / partitions * 1.2)).bit_length()
    for partition in range(partitions):
        table, numbers = np.empty(size, np.int64), np.full(size, -1, kind)
        with Chunks(work / nodes.keys, np.int64, nodes.rows) as keys:
            for first in range(0, nodes.rows, CHUNK):
                both = fill_table(keys.read(first, CHUNK), first, partition, partitions, table, numbers)
                if both[0] >= 0:
                    raise _doubled(both, ids, nodes, node_shards)
        for end in ENDS:
            path = work / f"{end}_numbers.npy"
            with (
                Chunks(work / f"{end}_keys.npy", np.int64, edges) as given,
                Chunks(path, kind, edges, make=not partition) as found,
            ):
                for first in range(0, edges, CHUNK):
                    chunk = found.read(first, CHUNK)
                    look_up(given.read(first, CHUNK), partition, partitions, table, numbers, chunk)
                    found.write(first, chunk)
                found.flush()
        tell(partition + 1, partitions)


def _doubled(both: tuple[int, int], ids: Path, nodes: NodeState, shards: Sequence[Shard]) -> GraphError:
    called = np.load(ids, mmap_mode="r")
    first, second = (place_of(number, shards, nodes.shards) for number in both)
    if called[both[0]] != called[both[1]]:
        return GraphError(
            f"the ids {called[both[0]]!s} and {called[both[1]]!s} have the same hash, by chance: write one of them "
            "otherwise"
        )
    return GraphError(f"node id {called[both[0]]!s} occurs twice, in {first} and {second}: ids must be unique")


def ends_in_chunks(
    work: Path, nodes: NodeState, edges: EdgeState, weighted: bool
) -> Iterator[tuple[int, list[NDArray[Any]]]]:
    """Sources, targets and weights of all edges, in the order of the tables.

    Args:
        work: The folder with their numbers.
        nodes: What is known of the nodes.
        edges: What is known of the edges.
        weighted: Whether there are weights.
    """
    name, kind = ("keys", np.int64) if nodes.in_order else ("numbers", np.int32 if nodes.rows <= INT32 else np.int64)
    with ExitStack() as stack:
        files = [stack.enter_context(Chunks(work / f"{end}_{name}.npy", kind, edges.rows)) for end in ENDS]
        files += [stack.enter_context(Chunks(work / "edge_weights.npy", np.float32, edges.rows))] if weighted else []
        for first in range(0, edges.rows, CHUNK):
            yield first, [file.read(first, CHUNK) for file in files]


def check_ends(work: Path, nodes: NodeState, edges: EdgeState, shards: Sequence[Shard], delimiter: str | None) -> None:
    """Refuse edges that end at no node.

    Args:
        work: The folder with the numbers.
        nodes: What is known of the nodes.
        edges: What is known of the edges.
        shards: The files of edges.
        delimiter: Of text files.
    """
    for first, both in ends_in_chunks(work, nodes, edges, False):
        for column, numbers in zip(edges.ends, both, strict=True):
            bad = np.flatnonzero((numbers < 0) | (numbers >= nodes.rows))
            if len(bad):
                place = place_of(first + int(bad[0]), shards, edges.shards)
                given = _value(first + int(bad[0]), column, shards, edges, delimiter)
                raise GraphError(f"{place}: {column} {given!r:.60} is not the id of a node")


def _value(number: int, column: str, shards: Sequence[Shard], edges: EdgeState, delimiter: str | None) -> Any:
    """What stands in a column of the row of an edge."""
    for shard, rows in zip(shards, edges.shards, strict=True):
        if number < rows:
            kind = column_types(shard, [column], delimiter)[column]
            for batch in batches(shard, {column: kind}, 1 << 16, delimiter):
                if number < batch.first + batch.table.num_rows:
                    return batch.table[column][number - batch.first].as_py()
        number -= rows
    return None


def write_buckets(
    work: Path, nodes: NodeState, edges: EdgeState, undirected: bool, memory: int, tell: Tell
) -> tuple[list[int], list[int]]:
    """Put edges into files by ranges of their targets; returns the bounds of the ranges, and how many edges each has.

    Args:
        work: The folder of the numbers and of the buckets.
        nodes: What is known of the nodes.
        edges: What is known of the edges.
        undirected: Whether each edge goes both ways.
        memory: Bytes that may be used to sort a bucket.
        tell: Is told how many of how many edges are done.
    """
    ways = ((0, 1), (1, 0)) if undirected else ((0, 1),)
    block = -(-nodes.rows // BLOCKS)
    counts = np.zeros(-(-nodes.rows // block), np.int64)
    for _, ends in ends_in_chunks(work, nodes, edges, False):
        for _, target in ways:
            counts += np.bincount(ends[target] // block, minlength=len(counts))
    bounds, sizes = _cut(counts.tolist(), block, max(memory // EDGE_BYTES, 1))
    if len(sizes) > MOST_BUCKETS:  # two that follow each other hold more than ``most``, so that half as many are left
        bounds, sizes = _cut(counts.tolist(), block, -(-2 * sum(sizes) // MOST_BUCKETS))
    bounds.append(nodes.rows)
    if EDGE_BYTES * max(sizes) > memory:
        at = int(np.argmax(sizes))
        warn(
            f"sorting {sizes[at]:,} edges into the nodes {bounds[at]:,} to {bounds[at + 1] - 1:,} may take "
            f"{in_units(EDGE_BYTES * sizes[at])}, for which the memory allowed is too little: "
            f"memory='{-(-2 * EDGE_BYTES * sizes[at] >> 20)}MiB' (--memory) or more"
        )
    kind, total = record_type(nodes, edges), len(ways) * edges.rows
    with ExitStack() as stack:
        files = [stack.enter_context((work / f"bucket-{at}").open("wb")) for at in range(len(bounds) - 1)]
        for way, (source, target) in enumerate(ways):  # all edges as they are, and then all of them turned round
            for first, given in ends_in_chunks(work, nodes, edges, bool(edges.weighted)):
                into = np.searchsorted(bounds, given[target], side="right") - 1
                order = np.argsort(into, kind="stable")
                records = np.empty(len(order), kind)
                records["source"], records["target"] = given[source][order], given[target][order]
                if edges.weighted:
                    records["weight"] = given[2][order]
                cuts = np.searchsorted(into[order], np.arange(len(bounds)))
                for bucket, (begin, end) in enumerate(pairwise(cuts.tolist())):
                    if end > begin:
                        files[bucket].write(records[begin:end].tobytes())
                tell(way * edges.rows + first + len(order), total)
        for file in files:  # who goes on after a crash of the machine relies on them
            file.flush()
            os.fsync(file.fileno())
    return bounds, sizes


def _cut(counts: Sequence[int], block: int, most: int) -> tuple[list[int], list[int]]:
    """Where ranges of nodes begin, and the edges of each: no more than ``most``, but for a block that has more."""
    bounds, sizes = [0], [0]
    for at, count in enumerate(counts):
        if sizes[-1] and sizes[-1] + count > most:
            bounds.append(at * block)
            sizes.append(0)
        sizes[-1] += count
    return bounds, sizes


def record_type(nodes: NodeState, edges: EdgeState) -> np.dtype[Any]:
    """How an edge is kept in a bucket.

    Args:
        nodes: What is known of the nodes.
        edges: What is known of the edges.
    """
    kind = "<i4" if nodes.rows <= INT32 else "<i8"
    return np.dtype([("source", kind), ("target", kind), *([("weight", "<f4")] if edges.weighted else [])])


def sort_bucket(
    path: Path, size: int, first: int, last: int, kind: np.dtype[Any], nodes: int, undirected: bool
) -> tuple[NDArray[np.int64], NDArray[Any], NDArray[np.float32] | None]:
    """The edges of a bucket by their target: how many each node has, their sources, and their weights.

    Args:
        path: The file.
        size: How many edges it has.
        first: The first node of its range.
        last: The node behind the last one.
        kind: How edges are kept in it.
        nodes: How many nodes there are.
        undirected: Keep the first of edges that repeat each other.
    """
    from ._edge_kernels import by_target

    records = np.fromfile(path, kind)
    if len(records) != size:
        raise Unreadable("it is shorter than it was")
    for column, low, high in (("source", 0, nodes), ("target", first, last)):
        if size and not low <= records[column].min() <= records[column].max() < high:
            raise Unreadable(f"it has a {column} that it had not")
    if undirected:
        code = (records["target"].astype(np.int64) - first) * nodes + records["source"]
        _, kept = np.unique(code, return_index=True)
        del code
        kept.sort()
        records = records[kept]
    target = records["target"].astype(np.int64) - first
    counts = np.bincount(target, minlength=last - first)
    places = np.append(0, np.cumsum(counts)[:-1]) if len(counts) else counts
    sources = np.empty(len(records), kind["source"])
    order = np.empty(len(records) if "weight" in (kind.names or ()) else 0, np.int64)
    by_target(np.ascontiguousarray(records["source"]), target, places, sources, order)
    return counts, sources, records["weight"][order] if len(order) or "weight" in (kind.names or ()) else None
