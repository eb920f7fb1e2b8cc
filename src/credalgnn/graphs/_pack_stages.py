"""The stages of packing tables, and the journal of those that are finished: a kill loses no more than one shard."""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Callable
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from ..runtime.files import Lock, make_folder, sealed_with, sync_folder, to_json, write
from ..runtime.reading import Unreadable, parse_json, read_bytes
from ._mapped import Writer
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
    check_place,
    is_packed,
    open_arrays,
    put_in_place,
    replaced,
    write_header,
)
from ._shards import Shard, batches, column_types, find_shards
from ._table_columns import is_list
from ._table_files import pyarrow_modules
from .errors import GraphError, warn
from .tables import Columns

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
