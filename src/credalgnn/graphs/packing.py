"""Packing of graphs from memory, and of tables of any size, streamed shard by shard."""

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
from .edges import row_chunks
from .errors import GraphError

if TYPE_CHECKING:
    from .graph import Graph
import hashlib
import time
from contextlib import ExitStack
from functools import partial
from itertools import pairwise

from ..runtime.errors import translated
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
from ._pack_nodes import NodeState, NodeWriter, TableSpec, finish_nodes
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
    """See ``Graph.pack``."""
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
    """Refuse unknown types of stored features."""
    if dtype not in DTYPES:
        raise GraphError(f"dtype must be {' or '.join(DTYPES)}, not {dtype!r:.40}")


def label_type(classes: int) -> Any:
    """Return the smallest type for class numbers."""
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
        for chunk in row_chunks(graph.features):
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
    """Result of ``pack``.

    Args:
        path: Folder of the packed graph.
        nodes: Number of nodes.
        edges: Number of directed edges.
        bytes: Size on disk.
        seconds: Time of each stage in this process; empty if the graph was packed before.
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
    """Make a packed graph of tables of any size, as CSV or Parquet files or folders of them.

    Finished stages stay in ``OUT.part`` until the graph is complete: after a kill or on a full disk, the same call
    resumes.

    Args:
        nodes: File with a row for each node, or a folder of files, read in the order of their names.
        edges: File with a row for each edge, or a folder of files.
        out: Folder to make, as in ``graph.cg``; an existing packed graph is replaced once the new one is complete.
        id: See ``Graph.from_tables``.
        label: See ``Graph.from_tables``.
        features: Feature columns: numbers, or lists of numbers of one length (an embedding in a column of a Parquet
            file). Default: all other columns.
        source: See ``Graph.from_tables``.
        target: See ``Graph.from_tables``.
        weight: See ``Graph.from_tables``.
        split: Column of nodes with train, val, calibration or test; empty for no part. It is stored with the graph, and
            ``fit`` uses it.
        delimiter: See ``Graph.from_tables``.
        undirected: Add the reverse of each edge; repeated edges count once.
        dtype: Type of stored features, ``float32`` or ``float16``.
        memory: Memory budget, as in ``"4GiB"``. Default: half of what is available.
        progress: Called with the stage, the number of finished steps and their total.

    Example:
        >>> from credalgnn.graphs import pack
        >>> pack("nodes/", "edges/", "graph.cg", memory="4GiB")  # doctest: +SKIP
    """
    check_dtype(dtype)
    path = Path(out)
    with translated(ValueError, lambda error: GraphError(f"memory: {error}")):
        budget = parse_memory(memory) // (2 if memory is None else 1)
    columns = Columns(id, label, None if features is None else tuple(features), source, target, weight)
    packer = Packer(Path(nodes), Path(edges), path, columns, split, delimiter, undirected, dtype, budget, progress)
    with translated(OSError, lambda error: cannot_write(path, error)):
        seconds = packer.run()
    head = read_header(path)
    size = sum(file.stat().st_size for file in path.iterdir())
    return Packed(path, head["nodes"], head["edges"], size, seconds)


VERSION = 3  # of the journal and the temporary files
JOURNAL, LOCK = "journal.json", ".lock"
ROW_BYTES = 16  # of memory for a feature value while it is read


class Packer:
    """Packing of tables, resumable after an interruption.

    ``memory`` is in bytes; ``progress`` is called with stage, finished steps and total.
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
        self._out, self._undirected, self._memory, self._progress = out, undirected, memory, progress or _silent
        self._node_shards, self._edge_shards = find_shards(nodes, "nodes"), find_shards(edges, "edges")
        self._spec = TableSpec(columns, split, delimiter, dtype, 4096)
        self._part = out.with_name(out.name + ".part")
        self._folder, self._work = self._part / "graph", self._part / "work"
        self._request = _request([*self._node_shards, *self._edge_shards], undirected, columns, split, delimiter, dtype)
        self._seconds: dict[str, float] = {}

    def run(self) -> dict[str, float]:
        """Pack or resume; return the seconds of each stage."""
        if self._is_packed(self._out) and _read_journal(self._part).get("request") != self._request:
            return {}  # packed before, and nothing temporary is left
        make_folder(self._part)
        lock = Lock(self._part / LOCK)
        if not lock.take():
            raise GraphError(f"{self._out}: another command is packing it now; wait for it, or choose another place")
        try:
            if not self._is_packed(self._out):  # else another command has just finished it
                if is_packed(self._out) and any(self._out.iterdir()):
                    warn(f"{self._out}: is of other tables or options, or damaged, and will be replaced")
                self._make()
            self._clear()
        finally:
            lock.free()
        return self._seconds

    def _is_packed(self, folder: Path) -> bool:
        """Check that a folder holds the requested graph and can be opened."""
        try:
            head = open_arrays(folder)[0]
        except CannotOpenError:
            raise
        except GraphError:
            return False
        return bool(head.get("request") == self._request)

    def _make(self) -> None:
        journal = _read_journal(self._part)
        if journal.get("request") != self._request or not self._resume(journal):
            (self._part / JOURNAL).unlink(missing_ok=True)  # before the files it describes
            for folder in (self._folder, self._work):  # missing, damaged, or of other tables
                shutil.rmtree(folder, ignore_errors=True)
            self._run_stages({"request": self._request})
            open_arrays(self._folder)  # a graph that cannot be opened replaces none
        put_in_place(self._folder, self._out)

    def _clear(self) -> None:
        """Remove temporary files, and graphs that were replaced when a process was killed.

        The journal is removed after the files it describes, so that the same command clears again after a kill; the
        lock file last.
        """
        for folder in (self._folder, self._work, *replaced(self._out)):
            shutil.rmtree(folder, ignore_errors=True)
        (self._part / JOURNAL).unlink(missing_ok=True)
        shutil.rmtree(self._part, ignore_errors=True)
        sync_folder(self._out.parent)

    def _resume(self, journal: dict[str, Any]) -> bool:
        """Resume an earlier command; return False if what it left is damaged."""
        is_resumed = "nodes" in journal
        try:
            self._run_stages(journal)
        except GraphError as error:  # invalid or unreadable tables
            if not is_resumed:
                raise
            raise GraphError(
                f"{error}. If that is wrong, the temporary files are damaged: remove {self._part}"
            ) from None
        except (ValueError, LookupError, EOFError, FileNotFoundError):  # raised by damaged files
            return False
        return self._is_packed(self._folder)

    def _run_stages(self, journal: dict[str, Any]) -> None:
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
                    write(self._part / JOURNAL, to_json(journal))
                self._seconds[name] = time.perf_counter() - begin

    def _nodes(self, journal: dict[str, Any]) -> None:
        spec = self._spec._replace(rows=rows_at_once(self._node_shards, self._spec, self._memory))
        state = NodeState(journal.get("nodes", {}).get("state"))
        numbers = _ids_may_be_numbers(self._edge_shards[0], self._spec)
        writer = NodeWriter(self._folder, self._work, spec, state, numbers)
        self._read_all("nodes", writer, self._node_shards, journal)
        if not state.rows:
            raise GraphError(f"{self._node_shards[0].path}: there are no nodes in it")

    def _read_all(self, stage: str, writer: Any, shards: list[Shard], journal: dict[str, Any]) -> None:
        report = partial(self._progress, stage)
        try:
            for at, shard in enumerate(shards):
                if at >= len(writer.state.shards):
                    writer.add(shard)
                    journal[stage] = {"state": writer.state.values()}
                    write(self._part / JOURNAL, to_json(journal))
                report(at + 1, len(shards))
            writer.close()
        finally:
            writer.abandon()  # no effect on closed files
            pyarrow_modules()[0].default_memory_pool().release_unused()  # the next stage needs it
        journal[stage] = {"state": writer.state.values()}

    def _ids(self, journal: dict[str, Any]) -> None:
        state = NodeState(journal["nodes"]["state"])
        journal["ids"] = {"class_names": finish_nodes(self._folder, self._work, state)}

    def _edges(self, journal: dict[str, Any]) -> None:
        nodes, state = NodeState(journal["nodes"]["state"]), EdgeState(journal.get("edges", {}).get("state"))
        rows = max(1024, min(1 << 18, self._memory // (512 + 16 * nodes.longest)))
        writer = EdgeWriter(self._work, self._spec._replace(rows=rows), state, nodes)
        self._read_all("edges", writer, self._edge_shards, journal)
        if not state.rows:
            raise GraphError(f"{self._edge_shards[0].path}: there are no edges in it")

    def _numbers(self, journal: dict[str, Any]) -> None:
        nodes, edges = _states(journal)
        if not nodes.in_order:
            ids = self._folder / "node_ids.npy"
            report = partial(self._progress, "numbers")
            number_ends(self._work, nodes, edges.rows, self._node_shards, self._memory, ids, report)
        check_ends(self._work, nodes, edges, self._edge_shards, self._spec.delimiter)

    def _buckets(self, journal: dict[str, Any]) -> None:
        nodes, edges = _states(journal)
        report = partial(self._progress, "buckets")
        bounds, sizes = write_buckets(self._work, nodes, edges, self._undirected, self._memory // 2, report)
        journal["buckets"] = {"bounds": bounds, "sizes": sizes}

    def _sort(self, journal: dict[str, Any]) -> None:
        """Sort each bucket and append it to the arrays."""
        nodes, edges = _states(journal)
        bounds, sizes = journal["buckets"]["bounds"], journal["buckets"]["sizes"]
        done, written = journal.get("sort", {}).get("buckets", [0, 0])
        kind = record_type(nodes, edges)
        kinds = {"starts": np.dtype(np.int64), "sources": kind["source"], "weights": np.dtype(np.float32)}
        report = partial(self._progress, "sort")
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
                counts, sources, numbers = sort_bucket(path, sizes[at], first, last, kind, nodes.rows, self._undirected)
                files["starts"].add(written + np.cumsum(counts))
                files["sources"].add(sources)
                if numbers is not None:
                    files["weights"].add(numbers)
                written += len(sources)
                for file in files.values():
                    file.flush()
                journal["sort"] = {"buckets": [at + 1, written]}
                write(self._part / JOURNAL, to_json(journal))
                report(at + 1, len(bounds) - 1)

    def _seal(self, journal: dict[str, Any]) -> None:
        """Write the header."""
        nodes, edges = _states(journal)
        names = ["labels", "node_ids", "starts", "sources", *(("features",) if nodes.stored is None else SPARSE)]
        names += ["weights"] * bool(edges.weighted) + ["split"] * (self._spec.split is not None)
        write_header(self._folder, names, nodes.width, journal["ids"]["class_names"], nodes.features, self._request)


def _silent(stage: str, done: int, total: int) -> None:
    pass


def _states(journal: dict[str, Any]) -> tuple[NodeState, EdgeState]:
    return NodeState(journal["nodes"]["state"]), EdgeState(journal["edges"]["state"])


def _request(shards: Sequence[Shard], undirected: bool, *options: Any) -> str:
    """Return a hash of all options and of the names, sizes and times of the files."""
    lines = [f"{VERSION} {options} {undirected}"]
    for shard in shards:
        stat = shard.path.stat()
        lines.append(f"{shard.path.name} {stat.st_size} {stat.st_mtime_ns}")
    return hashlib.blake2b("\n".join(lines).encode(), digest_size=16).hexdigest()


def _read_journal(folder: Path) -> dict[str, Any]:
    try:
        content = read_bytes(folder / JOURNAL)
        journal = parse_json(content)
    except (OSError, Unreadable):
        return {}
    return journal if sealed_with(content) is not None and isinstance(journal, dict) else {}


def rows_at_once(shards: Sequence[Shard], spec: TableSpec, memory: int) -> int:
    """Return the number of node rows to read at a time, by the size of the first one."""
    return max(64, min(1 << 16, memory // (4 * ROW_BYTES * (4 + _row_width(shards, spec)))))


def _row_width(shards: Sequence[Shard], spec: TableSpec) -> int:
    """Return the number of values in the first row: list entries count each, text per 8 characters."""
    for shard in shards:
        types = column_types(shard, spec.text, spec.delimiter)
        long = {name: kind for name, kind in types.items() if is_list(kind) or name in spec.text}
        for batch in batches(shard, long, 1, spec.delimiter):
            if batch.table.num_rows:
                values = [column[0].as_py() for column in batch.table.columns]
                texts = sum(len(value) // 8 for value in values if isinstance(value, str))
                return len(types) + texts + sum(len(value) for value in values if isinstance(value, list))
    return 1


def _ids_may_be_numbers(shard: Shard, spec: TableSpec) -> bool:
    """Check that ids of text files may become numbers: not where those of edges are typed text."""
    if not shard.typed:
        return True
    types = column_types(shard, [], None)
    kind = types.get(ends_among(types, spec.columns)[0])
    return kind is None or bool(pyarrow_modules()[0].types.is_integer(kind))
