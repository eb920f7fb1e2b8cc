"""Tables of edges, streamed and sorted by target on disk, one bucket in memory at a time."""

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
from ._pack_nodes import NodeState, TableSpec, hashes, place_of
from ._packed_files import Chunks, Writer
from ._table_files import Batch, Shard, batches, column_types, pyarrow_modules
from .edges import INT32
from .errors import GraphError, warn
from .tables import ENDS, INDEX, OTHER_ENDS, Columns, as_numbers, ids_of, no_column, numbers_of

CHUNK = 1 << 18  # edges read at a time
MOST_BUCKETS = 256  # open files
BLOCKS = 1 << 16  # ranges of nodes whose edges are counted, to make buckets of equal size
EDGE_BYTES = 96  # of memory per edge while a bucket is sorted

Tell = Callable[[int, int], None]


class EdgeState:
    """Progress of reading edges, stored as JSON in the journal."""

    def __init__(self, values: dict[str, Any] | None = None) -> None:
        values = values or {}
        self.rows: int = values.get("rows", 0)
        self.shards: list[int] = values.get("shards", [])
        self.weighted: bool | None = values.get("weighted")
        self.ends: list[str] = values.get("ends", [])  # the columns of source and target

    def values(self) -> dict[str, Any]:
        """Return the state as JSON values."""
        return dict(vars(self))


class EdgeWriter:
    """Writer that streams shards of edges into files of the keys of their ends."""

    def __init__(self, work: Path, spec: TableSpec, state: EdgeState, nodes: NodeState) -> None:
        self._work, self._spec, self.state, self._nodes = work, spec, state, nodes
        self._ends = [Writer(work / f"{end}_keys.npy", np.int64, None, state.rows) for end in ENDS]
        self._weights = Writer(work / "edge_weights.npy", np.float32, None, state.rows if state.weighted else 0)

    def add(self, shard: Shard) -> int:
        """Read one shard; return its number of rows."""
        types, weight = self._types(shard)
        before = self.state.rows
        for batch in batches(shard, types, self._spec.rows, self._spec.delimiter):
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
        """Return the columns of a shard to read and their types, and the column of weights."""
        pa, _ = pyarrow_modules()
        columns = self._spec.columns
        others = [name for pair in OTHER_ENDS for name in pair]
        types = column_types(shard, [columns.source, columns.target, *others], self._spec.delimiter)
        if not self.state.ends:
            self.state.ends = list(ends_among(types, columns))
        for name, option in zip(self.state.ends, ENDS, strict=True):
            if name not in types:
                raise no_column(str(shard.path), name, types, f"name it: `{option}`")
        weight = columns.weight or "weight"
        if columns.weight is not None and weight not in types:
            raise no_column(str(shard.path), weight, types, "name the column of weights: `weight`")
        if self.state.weighted is None:
            self.state.weighted = weight in types
            unused = [name for name in types if name not in (*self.state.ends, weight) and not INDEX.fullmatch(name)]
            if unused:
                warn(f"{shard.path}: the columns {', '.join(unused[:12])} are not used; a graph has one weight an edge")
        if self.state.weighted != (weight in types):
            raise GraphError(f"{shard.path}: some shards of edges have a column {weight!r} and others not")
        used = [*self.state.ends, *([weight] if self.state.weighted else [])]
        if not shard.typed:
            types |= dict.fromkeys(self.state.ends, pa.string()) | {weight: pa.float64()}
        return {name: types[name] for name in used}, weight if self.state.weighted else None

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
        """Finish after the last shard."""
        for file in (*self._ends, self._weights):
            file.close()

    def abandon(self) -> None:
        """Close incomplete files; a later writer continues after the last complete shard."""
        for file in (*self._ends, self._weights):
            file.abandon()


def ends_among(names: Collection[str], columns: Columns) -> tuple[str, str]:
    """Return the columns of source and target: those named, or their usual other names."""
    named = columns.source, columns.target
    if named != ENDS or set(ENDS) & set(names):
        return named
    return next((pair for pair in OTHER_ENDS if set(pair) <= set(names)), ENDS)


def number_ends(
    work: Path, nodes: NodeState, edges: int, node_shards: Sequence[Shard], memory: int, ids: Path, report: Tell
) -> None:
    """Replace the keys of edge ends by node numbers, with hash tables of which one fits into memory at a time."""
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
                Chunks(work / f"{end}_keys.npy", np.int64, edges) as ends,
                Chunks(path, kind, edges, make=not partition) as file,
            ):
                for first in range(0, edges, CHUNK):
                    chunk = file.read(first, CHUNK)
                    look_up(ends.read(first, CHUNK), partition, partitions, table, numbers, chunk)
                    file.write(first, chunk)
                file.flush()
        report(partition + 1, partitions)


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
    """Yield sources, targets and weights of all edges, in table order."""
    name, kind = ("keys", np.int64) if nodes.in_order else ("numbers", np.int32 if nodes.rows <= INT32 else np.int64)
    with ExitStack() as stack:
        files = [stack.enter_context(Chunks(work / f"{end}_{name}.npy", kind, edges.rows)) for end in ENDS]
        files += [stack.enter_context(Chunks(work / "edge_weights.npy", np.float32, edges.rows))] if weighted else []
        for first in range(0, edges.rows, CHUNK):
            yield first, [file.read(first, CHUNK) for file in files]


def check_ends(work: Path, nodes: NodeState, edges: EdgeState, shards: Sequence[Shard], delimiter: str | None) -> None:
    """Refuse edges whose ends are no nodes."""
    for first, both in ends_in_chunks(work, nodes, edges, False):
        for column, numbers in zip(edges.ends, both, strict=True):
            bad = np.flatnonzero((numbers < 0) | (numbers >= nodes.rows))
            if len(bad):
                place = place_of(first + int(bad[0]), shards, edges.shards)
                value = _value(first + int(bad[0]), column, shards, edges, delimiter)
                raise GraphError(f"{place}: {column} {value!r:.60} is not the id of a node")


def _value(number: int, column: str, shards: Sequence[Shard], edges: EdgeState, delimiter: str | None) -> Any:
    """Return the original value of a column in the row of an edge."""
    for shard, rows in zip(shards, edges.shards, strict=True):
        if number < rows:
            kind = column_types(shard, [column], delimiter)[column]
            for batch in batches(shard, {column: kind}, 1 << 16, delimiter):
                if number < batch.first + batch.table.num_rows:
                    return batch.table[column][number - batch.first].as_py()
        number -= rows
    return None


def write_buckets(
    work: Path, nodes: NodeState, edges: EdgeState, undirected: bool, memory: int, report: Tell
) -> tuple[list[int], list[int]]:
    """Distribute edges to files by ranges of targets; return the bounds of the ranges and their numbers of edges."""
    ways = ((0, 1), (1, 0)) if undirected else ((0, 1),)
    block = -(-nodes.rows // BLOCKS)
    counts = np.zeros(-(-nodes.rows // block), np.int64)
    for _, ends in ends_in_chunks(work, nodes, edges, False):
        for _, target in ways:
            counts += np.bincount(ends[target] // block, minlength=len(counts))
    bounds, sizes = _cut(counts.tolist(), block, max(memory // EDGE_BYTES, 1))
    if len(sizes) > MOST_BUCKETS:  # two successive ones exceed `most`: at most half as many remain
        bounds, sizes = _cut(counts.tolist(), block, -(-2 * sum(sizes) // MOST_BUCKETS))
    bounds.append(nodes.rows)
    if EDGE_BYTES * max(sizes) > memory:
        at = int(np.argmax(sizes))
        warn(
            f"sorting {sizes[at]:,} edges into the nodes {bounds[at]:,} to {bounds[at + 1] - 1:,} may take "
            f"{in_units(EDGE_BYTES * sizes[at])}, for which the memory allowed is too little: "
            f"memory='{-(-2 * EDGE_BYTES * sizes[at] >> 20)}MiB' or more"
        )
    kind, total = record_type(nodes, edges), len(ways) * edges.rows
    with ExitStack() as stack:
        files = [stack.enter_context((work / f"bucket-{at}").open("wb")) for at in range(len(bounds) - 1)]
        for way, (source, target) in enumerate(ways):  # all edges, then all reversed
            for first, columns in ends_in_chunks(work, nodes, edges, bool(edges.weighted)):
                into = np.searchsorted(bounds, columns[target], side="right") - 1
                order = np.argsort(into, kind="stable")
                records = np.empty(len(order), kind)
                records["source"], records["target"] = columns[source][order], columns[target][order]
                if edges.weighted:
                    records["weight"] = columns[2][order]
                cuts = np.searchsorted(into[order], np.arange(len(bounds)))
                for bucket, (begin, end) in enumerate(pairwise(cuts.tolist())):
                    if end > begin:
                        files[bucket].write(records[begin:end].tobytes())
                report(way * edges.rows + first + len(order), total)
        for file in files:  # a command that resumes after a system crash relies on them
            file.flush()
            os.fsync(file.fileno())
    return bounds, sizes


def _cut(counts: Sequence[int], block: int, most: int) -> tuple[list[int], list[int]]:
    """Return the first nodes of ranges and their numbers of edges, at most ``most`` unless a single block has more."""
    bounds, sizes = [0], [0]
    for at, count in enumerate(counts):
        if sizes[-1] and sizes[-1] + count > most:
            bounds.append(at * block)
            sizes.append(0)
        sizes[-1] += count
    return bounds, sizes


def record_type(nodes: NodeState, edges: EdgeState) -> np.dtype[Any]:
    """Return the type of an edge in a bucket."""
    kind = "<i4" if nodes.rows <= INT32 else "<i8"
    return np.dtype([("source", kind), ("target", kind), *([("weight", "<f4")] if edges.weighted else [])])


def sort_bucket(
    path: Path, size: int, first: int, last: int, kind: np.dtype[Any], nodes: int, undirected: bool
) -> tuple[NDArray[np.int64], NDArray[Any], NDArray[np.float32] | None]:
    """Sort a bucket by target; return the in-degree of each node of the range, the sources, and the weights.

    With ``undirected``, the first of several equal edges is kept.
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
        _, unique = np.unique(code, return_index=True)
        del code
        unique.sort()
        records = records[unique]
    target = records["target"].astype(np.int64) - first
    counts = np.bincount(target, minlength=last - first)
    places = np.append(0, np.cumsum(counts)[:-1]) if len(counts) else counts
    sources = np.empty(len(records), kind["source"])
    order = np.empty(len(records) if "weight" in (kind.names or ()) else 0, np.int64)
    by_target(np.ascontiguousarray(records["source"]), target, places, sources, order)
    return counts, sources, records["weight"][order] if len(order) or "weight" in (kind.names or ()) else None
