"""Graphs made into packed ones: from memory, or streamed from the shards of tables."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from ..runtime.files import make_folder
from ..runtime.memory import parse_memory
from ._packed_files import Writer, cannot_write, check_place, put_in_place, read_header, write_header
from ._rows import chunks
from .errors import GraphError

if TYPE_CHECKING:
    from .graph import Graph
import hashlib
import time
from contextlib import ExitStack
from itertools import pairwise

from ..runtime.files import Lock, sealed_with, sync_folder, to_json, write
from ..runtime.reading import Unreadable, parse_json, read_bytes
from ._pack_edges import (
    EdgeState,
    EdgeWriter,
    check_ends,
    ends_among,
    number_ends,
    record_type,
    sort_bucket,
    write_buckets,
)
from ._pack_nodes import NodeState, NodeWriter, Wanted, finish_nodes
from ._packed_files import (
    SPARSE,
    CannotOpenError,
    is_packed,
    open_arrays,
    replaced,
)
from ._table_files import Shard, batches, column_types, find_shards, pyarrow_modules
from .edges import INT32
from .errors import warn
from .packed import open_packed
from .tables import Columns, is_list

Progress = Callable[[str, int, int], None]

DTYPES = ("float32", "float16")


def pack_graph(graph: Graph, path: Path, dtype: str = "float32") -> Graph:
    """See ``Graph.pack``.

    Args:
        graph: The graph.
        path: The folder.
        dtype: What features are kept as.
    """
    check_dtype(dtype)
    check_place(path)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        make_folder(path.parent)
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir()
        _write_arrays(graph, part, dtype)
        names = [file.stem for file in part.iterdir()]
        write_header(part, names, graph.num_features, graph.class_names, graph.feature_names)
        put_in_place(part, path)
    except OSError as error:
        raise cannot_write(path, error, resumable=False) from None
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return open_packed(path)


def check_dtype(dtype: str) -> None:
    """Refuse what features are not kept as.

    Args:
        dtype: The name of the type.
    """
    if dtype not in DTYPES:
        raise GraphError(f"dtype must be {' or '.join(DTYPES)}, not {dtype!r:.40}")


def label_type(classes: int) -> Any:
    """The smallest type for the numbers of so many classes.

    Args:
        classes: How many there are.
    """
    return np.int16 if classes < 2**15 else np.int32 if classes < 2**31 else np.int64


def _write_arrays(graph: Graph, folder: Path, dtype: str) -> None:
    edges, sparse = graph.in_edges, graph.features.layout == torch.sparse_csr
    _write(folder, "labels", graph.labels.numpy().astype(label_type(graph.num_classes)))
    _write(folder, "starts", edges.starts.numpy())
    _write(folder, "sources", edges.sources.numpy())
    if edges.weights is not None:
        _write(folder, "weights", edges.weights.numpy())
    if graph.node_ids is not None:
        _write(folder, "node_ids", np.asarray(graph.node_ids))
    if sparse:
        index = np.int32 if graph.features.values().numel() <= INT32 else np.int64
        _write(folder, "feature_starts", graph.features.crow_indices().numpy().astype(index))
        _write(folder, "feature_columns", graph.features.col_indices().numpy().astype(index))
    name, width = ("feature_values", None) if sparse else ("features", graph.num_features)
    with Writer(folder / f"{name}.npy", dtype, width) as file:
        for chunk in chunks(graph.features):
            values = graph.rows(chunk)
            values = values.values() if width is None else values
            with np.errstate(over="ignore"):
                numbers = values.numpy().astype(dtype)
            if not np.isfinite(numbers).all():
                raise GraphError(f"features beyond what {dtype} can hold (65,504): dtype='float32'")
            file.add(numbers)
            graph.release()


def _write(folder: Path, name: str, array: Any) -> None:
    with Writer(folder / f"{name}.npy", array.dtype) as file:
        file.add(array)


class Packed(NamedTuple):
    """What ``pack`` did.

    Args:
        path: The folder of the packed graph.
        nodes: How many nodes.
        edges: How many directed edges.
        bytes: What it takes on the disk.
        seconds: What each stage took in this process; empty if it was packed already.
    """

    path: Path
    nodes: int
    edges: int
    bytes: int
    seconds: dict[str, float]


def pack(
    nodes: str | os.PathLike[str],
    edges: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    id: str = "id",
    label: str | None = "label",
    features: Sequence[str] | None = None,
    source: str = "source",
    target: str = "target",
    weight: str | None = None,
    split: str | None = None,
    delimiter: str | None = None,
    undirected: bool = False,
    dtype: str = "float32",
    memory: str | int | None = None,
    progress: Progress | None = None,
) -> Packed:
    """Make a packed graph of tables that need not fit into memory, as CSV or Parquet files or folders of such shards.

    What is finished stays in ``OUT.part`` until all is: after a kill or with a full disk the same call goes on.

    Args:
        nodes: A file with a row for each node, or a folder of them, which are taken in the order of their names.
        edges: A file with a row for each edge, or a folder of them.
        out: The folder to make, as in ``graph.cg``; a packed graph that is there is replaced when the new one is whole.
        id: See ``Graph.from_tables``.
        label: See ``Graph.from_tables``.
        features: The columns that are features: numbers, or lists of numbers, all as long (an embedding in one column
            of a Parquet file). Default: all others.
        source: See ``Graph.from_tables``.
        target: See ``Graph.from_tables``.
        weight: See ``Graph.from_tables``.
        split: The column of nodes that says train, val, calibration or test; empty: in no part. It is kept with the
            graph, and ``fit`` keeps to it.
        delimiter: See ``Graph.from_tables``.
        undirected: Edges have no direction: each is taken both ways, and once each way, however often it stands there.
        dtype: What features are kept as, ``float32`` or ``float16``.
        memory: What may be used, as in ``"4GiB"``; None: half of what is available.
        progress: Is called with a stage, and how many of how many steps of it are done.
    """
    check_dtype(dtype)
    path = Path(out)
    try:
        budget = parse_memory(memory) // (2 if memory is None else 1)
    except ValueError as error:
        raise GraphError(f"memory: {error}") from None
    columns = Columns(id, label, None if features is None else tuple(features), source, target, weight)
    packer = Packer(Path(nodes), Path(edges), path, columns, split, delimiter, undirected, dtype, budget, progress)
    try:
        seconds = packer.run()
    except OSError as error:
        raise cannot_write(path, error) from None
    head = read_header(path)
    size = sum(file.stat().st_size for file in path.iterdir())
    return Packed(path, head["nodes"], head["edges"], size, seconds)


VERSION = 3  # of the journal and of all that is kept on the way
JOURNAL, LOCK = "journal.json", ".lock"
ROW_BYTES = 16  # of a number of a feature while it is read


class Packer:
    """Packs tables, or goes on where an earlier command was stopped.

    Args:
        nodes: The file or folder of nodes.
        edges: That of edges.
        out: The folder to make.
        columns: Which columns are what.
        split: That with the part of a split of each node.
        delimiter: Of text files.
        undirected: Whether edges go both ways.
        dtype: What features are kept as.
        memory: Bytes that may be used.
        progress: Is told of stages and steps.
    """

    def __init__(
        self,
        nodes: Path,
        edges: Path,
        out: Path,
        columns: Columns,
        split: str | None,
        delimiter: str | None,
        undirected: bool,
        dtype: str,
        memory: int,
        progress: Callable[[str, int, int], None] | None,
    ) -> None:
        pyarrow_modules()
        check_place(out)
        self._out, self._undirected, self._memory, self._progress = out, undirected, memory, progress
        self._node_shards, self._edge_shards = find_shards(nodes, "nodes"), find_shards(edges, "edges")
        self._wanted = Wanted(columns, split, delimiter, dtype, 4096)
        self._part = out.with_name(out.name + ".part")
        self._folder, self._work = self._part / "graph", self._part / "work"
        self._request = self._hash(columns, split, delimiter, dtype)
        self._seconds: dict[str, float] = {}

    def _hash(self, *options: Any) -> str:
        """A hash of all that is asked for, and of the files as they are now."""
        lines = [f"{VERSION} {options} {self._undirected}"]
        for shard in (*self._node_shards, *self._edge_shards):
            found = shard.path.stat()
            lines.append(f"{shard.path.name} {found.st_size} {found.st_mtime_ns}")
        return hashlib.blake2b("\n".join(lines).encode(), digest_size=16).hexdigest()

    def run(self) -> dict[str, float]:
        """Pack, or go on; returns the seconds of each stage."""
        if self._is_packed(self._out) and self._read_journal().get("request") != self._request:
            return {}  # and nothing is left of how it was made
        make_folder(self._part)
        lock = Lock(self._part / LOCK)
        if not lock.take():
            raise GraphError(f"{self._out}: another command is packing it now; wait for it, or choose another place")
        try:
            if not self._is_packed(self._out):  # as it is where another command has just ended
                if is_packed(self._out) and any(self._out.iterdir()):
                    warn(f"{self._out}: what is there is of other tables or options, or damaged, and will be replaced")
                self._stages()
            self._clear()
        finally:
            lock.free()
        return self._seconds

    def _is_packed(self, folder: Path) -> bool:
        """Whether what is there can be opened and is what is asked for."""
        try:
            head = open_arrays(folder)[0]
        except CannotOpenError:
            raise
        except GraphError:
            return False
        return bool(head.get("request") == self._request)

    def _stages(self) -> None:
        journal = self._read_journal()
        if journal.get("request") != self._request or not self._is_whole(journal):
            (self._part / JOURNAL).unlink(missing_ok=True)  # before what it tells of
            for folder in (self._folder, self._work):  # nothing is there, or of other tables, or it is damaged
                shutil.rmtree(folder, ignore_errors=True)
            self._go_on({"request": self._request})
            open_arrays(self._folder)  # the one that is there is not replaced by what cannot be opened
        put_in_place(self._folder, self._out)

    def _clear(self) -> None:
        """Remove what was needed on the way, and graphs that were replaced when a process was killed.

        The journal goes behind what it tells of: while it is there, the same command clears. The file of the lock is
        the last one: who makes another begins at once.
        """
        for folder in (self._folder, self._work, *replaced(self._out)):
            shutil.rmtree(folder, ignore_errors=True)
        (self._part / JOURNAL).unlink(missing_ok=True)
        shutil.rmtree(self._part, ignore_errors=True)
        sync_folder(self._out.parent)

    def _is_whole(self, journal: dict[str, Any]) -> bool:
        """Go on where an earlier command was stopped; returns whether what it has kept makes a graph."""
        goes_on = "nodes" in journal
        try:
            self._go_on(journal)
        except GraphError as error:  # the tables are wrong, or cannot be read now
            if not goes_on:
                raise
            text = f"{error}. If that is not so, what was kept on the way is damaged: remove {self._part}"
            raise GraphError(text) from None
        except (ValueError, LookupError, EOFError, FileNotFoundError):  # what damaged files lead to
            return False
        return self._is_packed(self._folder)

    def _go_on(self, journal: dict[str, Any]) -> None:
        for folder in (self._folder, self._work):
            folder.mkdir(exist_ok=True)
        if not (self._folder / "graph.json").exists():
            for name, stage in (
                ("nodes", self._nodes), ("ids", self._ids), ("edges", self._edges), ("numbers", self._numbers),
                ("buckets", self._buckets), ("sort", self._sort), ("seal", self._seal),
            ):  # fmt: skip
                begin = time.perf_counter()
                if not journal.get(name, {}).get("done"):
                    stage(journal)
                    journal.setdefault(name, {})["done"] = True
                    self._write_journal(journal)
                self._seconds[name] = time.perf_counter() - begin

    def _read_journal(self) -> dict[str, Any]:
        try:
            content = read_bytes(self._part / JOURNAL)
            journal = parse_json(content)
        except (OSError, Unreadable):
            return {}
        return journal if sealed_with(content) is not None and isinstance(journal, dict) else {}

    def _write_journal(self, journal: dict[str, Any]) -> None:
        write(self._part / JOURNAL, to_json(journal))

    def _tell(self, stage: str) -> Callable[[int, int], None]:
        def tell(done: int, total: int) -> None:
            if self._progress is not None:
                self._progress(stage, done, total)

        return tell

    def _nodes(self, journal: dict[str, Any]) -> None:
        wanted = self._wanted._replace(rows=self._rows_at_once())
        state = NodeState(journal.get("nodes", {}).get("state"))
        writer = NodeWriter(self._folder, self._work, wanted, state, self._ids_may_be_numbers())
        self._read_all("nodes", writer, self._node_shards, journal)
        if not state.rows:
            raise GraphError(f"{self._node_shards[0].path}: there are no nodes in it")

    def _read_all(self, stage: str, writer: Any, shards: list[Shard], journal: dict[str, Any]) -> None:
        tell = self._tell(stage)
        try:
            for at, shard in enumerate(shards):
                if at >= len(writer.state.shards):
                    writer.add(shard)
                    journal[stage] = {"state": writer.state.values()}
                    self._write_journal(journal)
                tell(at + 1, len(shards))
            writer.close()
        finally:
            writer.abandon()  # which does nothing to files that are closed
            pyarrow_modules()[0].default_memory_pool().release_unused()  # the next stage needs it
        journal[stage] = {"state": writer.state.values()}

    def _rows_at_once(self) -> int:
        """How many rows of nodes are read at a time, by what one takes."""
        return max(64, min(1 << 16, self._memory // (4 * ROW_BYTES * (4 + self._row_width()))))

    def _row_width(self) -> int:
        """How many values the first node has: those of its lists are counted, and texts by 8 characters."""
        text, delimiter = self._wanted.text, self._wanted.delimiter
        for shard in self._node_shards:
            types = column_types(shard, text, delimiter)
            long = {name: kind for name, kind in types.items() if is_list(kind) or name in text}
            for batch in batches(shard, long, 1, delimiter):
                if batch.table.num_rows:
                    values = [column[0].as_py() for column in batch.table.columns]
                    texts = sum(len(value) // 8 for value in values if isinstance(value, str))
                    return len(types) + texts + sum(len(value) for value in values if isinstance(value, list))
        return 1

    def _ids_may_be_numbers(self) -> bool:
        """Whether ids of text files may become numbers: not where the ids of edges are texts for certain."""
        pa, _ = pyarrow_modules()
        shard = self._edge_shards[0]
        if not shard.typed:
            return True
        found = column_types(shard, [], None)
        kind = found.get(ends_among(found, self._wanted.columns)[0])
        return kind is None or pa.types.is_integer(kind)

    def _ids(self, journal: dict[str, Any]) -> None:
        state = NodeState(journal["nodes"]["state"])
        journal["ids"] = {"class_names": finish_nodes(self._folder, self._work, state)}

    def _edges(self, journal: dict[str, Any]) -> None:
        nodes, state = NodeState(journal["nodes"]["state"]), EdgeState(journal.get("edges", {}).get("state"))
        rows = max(1024, min(1 << 18, self._memory // (512 + 16 * nodes.longest)))
        writer = EdgeWriter(self._work, self._wanted._replace(rows=rows), state, nodes)
        self._read_all("edges", writer, self._edge_shards, journal)
        if not state.rows:
            raise GraphError(f"{self._edge_shards[0].path}: there are no edges in it")

    def _numbers(self, journal: dict[str, Any]) -> None:
        nodes, edges = NodeState(journal["nodes"]["state"]), EdgeState(journal["edges"]["state"])
        if not nodes.in_order:
            ids = self._folder / "node_ids.npy"
            tell = self._tell("numbers")
            number_ends(self._work, nodes, edges.rows, self._node_shards, self._memory, ids, tell)
        check_ends(self._work, nodes, edges, self._edge_shards, self._wanted.delimiter)

    def _buckets(self, journal: dict[str, Any]) -> None:
        nodes, edges = NodeState(journal["nodes"]["state"]), EdgeState(journal["edges"]["state"])
        tell = self._tell("buckets")
        bounds, sizes = write_buckets(self._work, nodes, edges, self._undirected, self._memory // 2, tell)
        journal["buckets"] = {"bounds": bounds, "sizes": sizes}

    def _sort(self, journal: dict[str, Any]) -> None:
        """Each bucket by itself, behind those before."""
        nodes, edges = NodeState(journal["nodes"]["state"]), EdgeState(journal["edges"]["state"])
        bounds, sizes = journal["buckets"]["bounds"], journal["buckets"]["sizes"]
        done, written = journal.get("sort", {}).get("buckets", [0, 0])
        kind = record_type(nodes, edges)
        kinds = {"starts": np.dtype(np.int64), "sources": kind["source"], "weights": np.dtype(np.float32)}
        tell = self._tell("sort")
        with ExitStack() as stack:
            files = {}
            for name in ("starts", "sources", *(["weights"] if edges.weighted else [])):
                rows = written if name != "starts" else 1 + bounds[done] if done else 0
                path = self._folder / f"{name}.npy"
                files[name] = stack.enter_context(Writer(path, kinds[name], None, rows))
            if not done:
                files["starts"].add(np.zeros(1, np.int64))
            for at, (first, last) in list(enumerate(pairwise(bounds)))[done:]:
                path = self._work / f"bucket-{at}"
                counts, found, numbers = sort_bucket(path, sizes[at], first, last, kind, nodes.rows, self._undirected)
                files["starts"].add(written + np.cumsum(counts))
                files["sources"].add(found)
                if numbers is not None:
                    files["weights"].add(numbers)
                written += len(found)
                for file in files.values():
                    file.flush()
                journal["sort"] = {"buckets": [at + 1, written]}
                self._write_journal(journal)
                tell(at + 1, len(bounds) - 1)

    def _seal(self, journal: dict[str, Any]) -> None:
        """The graph has a header, which says what it is."""
        state, edges = NodeState(journal["nodes"]["state"]), EdgeState(journal["edges"]["state"])
        names = ["labels", "node_ids", "starts", "sources", *(("features",) if state.stored is None else SPARSE)]
        names += ["weights"] * bool(edges.weighted) + ["split"] * (self._wanted.split is not None)
        write_header(self._folder, names, state.width, journal["ids"]["class_names"], state.features, self._request)
