"""File format of packed graphs: a folder of plain arrays and a header that describes all of them.

The header is written last and carries a checksum: a folder without one is not, or not yet, a packed graph.
"""

from __future__ import annotations

import errno
import hashlib
import mmap
import os
import re
import shutil
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..runtime.files import sealed_with, sync_folder, to_json, write
from ..runtime.reading import Unreadable, open_file, parse_json, read_bytes
from .errors import GraphError

FORMAT = 1
HEADER = "graph.json"
REMEDY = "pack it again: credalgnn pack"
# Arrays of a folder: permitted types, and shape in terms of the counts of the header.
ARRAYS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "labels": (("<i2", "<i4", "<i8"), ("nodes",)),
    "starts": (("<i8",), ("starts",)),
    "sources": (("<i4", "<i8"), ("edges",)),
    "weights": (("<f4",), ("edges",)),
    "features": (("<f2", "<f4"), ("nodes", "features")),
    "feature_starts": (("<i4", "<i8"), ("starts",)),
    "feature_columns": (("<i4", "<i8"), ("stored",)),
    "feature_values": (("<f2", "<f4"), ("stored",)),
    "node_ids": (("<i8", "<U"), ("nodes",)),
    "split": (("|i1",), ("nodes",)),
}
PARTS = ("train", "val", "calibration", "test")  # of a split, in the order of their numbers; -1 is none
SPARSE = ("feature_starts", "feature_columns", "feature_values")
CONTENT = ("features", *SPARSE, "starts", "sources", "weights")  # arrays in the hash of features and edges
TOO_MANY = (errno.EMFILE, errno.ENFILE)
MORE_FILES = "close other files, or allow more of them: ulimit -n"
_REPLACED = re.compile(r"\.(.+)\.[0-9]+\.old")  # a folder that is being replaced
CHUNK = 32 << 20  # bytes checked at a time


class CannotOpenError(GraphError):
    """A file that may be intact, but cannot be opened by this process at present."""


def is_packed(path: Path) -> bool:
    """Return True for the folder of a packed graph, complete or not."""
    return (path.is_dir() and path.suffix == ".cg") or (path / HEADER).is_file()


def read_header(path: Path) -> dict[str, Any]:
    """Return the header of a packed graph, as far as it can be checked without the arrays."""
    if not path.is_dir():
        problem = "no such folder" if not path.exists() else "a file, and not the folder of a packed graph"
        raise GraphError(f"{path}: {problem}; credalgnn pack makes one")
    try:
        text = read_bytes(path / HEADER)
        head = parse_json(text)
        if not isinstance(head, dict) or "format" not in head:
            raise Unreadable("not the header of a packed graph")
        if head["format"] != FORMAT:
            raise GraphError(f"{path}: packed by another version (format {head['format']!r:.20}); {REMEDY}")
        if sealed_with(text) is None:
            raise Unreadable("its checksum does not fit")
        if not _is_header(head):
            raise Unreadable("it does not say what it should")
    except FileNotFoundError:
        raise GraphError(
            f"{path}: not a packed graph, or only half of one (there is no {HEADER}); the same credalgnn pack goes on "
            "where it was stopped"
        ) from None
    except OSError as error:
        raise _cannot_open(path, HEADER, error) from None
    except Unreadable as error:
        raise GraphError(f"{path}: {HEADER} is damaged or changed ({error}); {REMEDY}") from None
    return head


def _is_header(head: dict[str, Any]) -> bool:
    def texts(value: Any) -> bool:
        return isinstance(value, list) and all(isinstance(each, str) for each in value) and len({*value}) == len(value)

    counts = all(type(head.get(name)) is int and head[name] >= least for name, least in
                 (("nodes", 1), ("edges", 0), ("features", 1)))  # fmt: skip
    names = head.get("feature_names")
    return (
        counts
        and isinstance(head.get("arrays"), dict)
        and isinstance(head.get("content"), str)
        and texts(head.get("class_names"))
        and (names is None or (texts(names) and len(names) == head["features"]))
    )


def read_entries(head: dict[str, Any], path: Path) -> dict[str, Entry]:
    """Return the arrays that a header lists, if they make up a graph."""
    listed = head["arrays"]
    kind = ("features",) if "features" in listed else SPARSE
    required = {"labels", "starts", "sources", *kind}
    if not required <= set(listed) <= required | {"weights", "node_ids", "split"}:
        raise GraphError(f"{path}: {HEADER} names other arrays than those of a graph; {REMEDY}")
    stored = listed.get("feature_values")
    sizes = {"nodes": head["nodes"], "edges": head["edges"], "features": head["features"], "starts": head["nodes"] + 1,
             "stored": stored["shape"][0] if stored and stored.get("shape") else 0}  # fmt: skip
    entries = {}
    for name, each in listed.items():
        types, shape = ARRAYS[name]
        dtype = str(each.get("dtype"))
        ok = KINDS.fullmatch(dtype) and (dtype in types or dtype.rstrip("0123456789") in types)
        if not ok or each.get("shape") != [sizes[each] for each in shape]:
            raise GraphError(f"{path}: {HEADER} says that {name} is {dtype} {each.get('shape')}; {REMEDY}")
        entries[name] = Entry(dtype, tuple(each["shape"]), str(each.get("blake2b")))
    if content_of(entries) != head["content"]:
        raise GraphError(f"{path}: {HEADER} contradicts itself; {REMEDY}")
    return entries


def content_of(entries: dict[str, Entry]) -> str:
    """Return the hash of features and edges: a hash of the hashes of their files."""
    lines = [f"{name} {' '.join(map(str, entries[name]))}" for name in CONTENT if name in entries]
    return hash_of(np.array(lines))


def hash_of(array: NDArray[Any]) -> str:
    """Return a hash of the numbers or texts of an array."""
    data = "\0".join(array.tolist()).encode() if array.dtype.kind == "U" else np.ascontiguousarray(array).tobytes()
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def open_array(path: Path, name: str, entry: Entry) -> Map:
    """Map an array of a packed graph."""
    try:
        return Map(path / f"{name}.npy", entry)
    except FileNotFoundError:
        raise GraphError(f"{path}: {name}.npy is missing; {REMEDY}") from None
    except OSError as error:
        raise _cannot_open(path, f"{name}.npy", error) from None
    except Unreadable as error:
        raise GraphError(f"{path}: {name}.npy is damaged ({error}); {REMEDY}") from None


def open_arrays(path: Path) -> tuple[dict[str, Any], dict[str, Entry], dict[str, Map]]:
    """Return a packed graph's header, the entries of its arrays, and the mapped arrays."""
    head = read_header(path)
    entries = read_entries(head, path)
    maps = {name: open_array(path, name, entry) for name, entry in entries.items()}
    stored = entries["feature_values"].shape[0] if "feature_values" in entries else 0
    for name, last in (("starts", head["edges"]), ("feature_starts", stored)):
        if name in maps and (int(maps[name].array[0]), int(maps[name].array[-1])) != (0, last):
            raise changed(path, name, f"it does not go from 0 to {last:,}")
    labels = maps["labels"].array
    if not -1 <= int(labels.min()) <= int(labels.max()) < len(head["class_names"]):
        raise changed(path, "labels", "a class that has no name")
    maps["labels"].release()
    return head, entries, maps


def _cannot_open(path: Path, name: str, error: OSError) -> GraphError:
    problem = f"{path}: {name} cannot be opened ({error.strerror or error})"
    if error.errno in (errno.EACCES, errno.EPERM):
        return CannotOpenError(f"{problem}; get the right to read it from who owns it")
    if error.errno in TOO_MANY:
        return CannotOpenError(f"{problem}; {MORE_FILES}")
    return GraphError(f"{problem}; it may be damaged, see credalgnn check")


def check_array(file: Path, name: str, entry: Entry, head: Mapping[str, Any]) -> None:
    """Read all of an array: compare its hash, and check that its numbers point to nodes and columns that exist."""
    path = file.parent
    mapped = open_array(path, name, entry)
    if digest(file) != entry.digest:
        raise changed(path, name, "its content has changed")
    more = 1 if name.endswith("starts") else 0
    step = max(1, CHUNK // (mapped.array[:1].nbytes or 1))
    for first in range(0, len(mapped.array), step):
        reason = _reason(name, mapped.array[first : first + step + more], head)
        if reason:
            raise changed(path, name, reason)
        mapped.release()


def _reason(name: str, chunk: NDArray[Any], head: Mapping[str, Any]) -> str:
    """Return what is wrong with a chunk of an array, "" if nothing is."""
    if chunk.dtype.kind == "f" and not np.isfinite(chunk).all():
        return "a number that is not finite"
    if name.endswith("starts") and (np.diff(chunk) < 0).any():
        return "it goes backwards"
    if name == "split" and not -1 <= chunk.min() <= chunk.max() < len(PARTS):
        return "a part that does not exist"
    if name == "sources" and not 0 <= chunk.min() <= chunk.max() < head["nodes"]:
        return "an edge comes from a node that does not exist"
    if name == "feature_columns" and not 0 <= chunk.min() <= chunk.max() < head["features"]:
        return "a column that does not exist"
    return "a negative weight" if name == "weights" and chunk.min() < 0 else ""


def changed(path: Path, name: str, reason: str) -> GraphError:
    """Return the error for an array with the right size but wrong numbers; ``credalgnn pack`` takes it for complete."""
    remedy = f"pack it again: credalgnn check --repair {path}, then credalgnn pack"
    return GraphError(f"{path}: {name}.npy is damaged ({reason}); {remedy}")


def write_header(
    folder: Path,
    names: Collection[str],
    features: int,
    class_names: Sequence[str],
    feature_names: Sequence[str] | None,
    request: str = "",
) -> None:
    """Write the header, which makes a folder of complete arrays a packed graph.

    ``request`` is a hash of the tables and options it was packed from, if there are any.
    """
    entries: dict[str, Entry] = {}
    for name in (each for each in ARRAYS if each in names):
        path = folder / f"{name}.npy"
        array = np.load(path, mmap_mode="r")
        entries[name] = Entry(array.dtype.str, array.shape, digest(path))
    head = {
        "format": FORMAT,
        "nodes": entries["labels"].shape[0],
        "edges": entries["sources"].shape[0],
        "features": features,
        "class_names": list(class_names),
        "feature_names": None if feature_names is None else list(feature_names),
        "content": content_of(entries),
        "request": request,
        "arrays": {
            name: {"dtype": entry.dtype, "shape": list(entry.shape), "blake2b": entry.digest}
            for name, entry in entries.items()
        },
    }
    sync_folder(folder)
    write(folder / HEADER, to_json(head))


def check_place(path: Path) -> None:
    """Refuse to put a packed graph where something else is."""
    if path.name in ("", ".."):
        raise GraphError(f"{path}: the folder to make needs a name of its own, as in {path / 'graph.cg'}")
    if path.is_symlink() or (path.exists() and not path.is_dir()):
        raise GraphError(f"{path}: there is something else than a folder; choose another place")
    expected = {HEADER, "damaged", *(f"{name}.npy" for name in ARRAYS)}  # a repair moves files to "damaged"
    if path.is_dir() and not (path / HEADER).exists() and any(file.name not in expected for file in path.iterdir()):
        raise GraphError(f"{path}: there is a folder with something else in it; choose another place")


def put_in_place(made: Path, path: Path) -> None:
    """Rename a complete folder to its final name; the previous graph is removed afterwards."""
    check_place(path)
    old = path.with_name(f".{path.name}.{os.getpid()}.old")
    if path.exists():
        shutil.rmtree(old, ignore_errors=True)  # of a killed process with the same number
        path.rename(old)
    try:
        made.rename(path)
    except OSError:
        if old.exists():
            old.rename(path)
        raise
    sync_folder(path.parent)
    shutil.rmtree(old, ignore_errors=True)


def replaced(path: Path) -> list[Path]:
    """Return folders that were to be replaced by processes that were killed."""
    folders = ((each, _REPLACED.fullmatch(each.name)) for each in path.parent.iterdir())
    return [each for each, named in folders if named and named[1] == path.name]


def cannot_write(path: Path, error: OSError, resumable: bool = True) -> GraphError:
    """Return an ``OSError`` of writing as a ``GraphError`` of one line."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    remedy = "make room, or choose another place" if full else "choose another place"
    if error.errno in TOO_MANY:
        remedy = MORE_FILES
    resume = "; what is finished is kept, and the same command goes on" if resumable and full else ""
    return GraphError(f"{path}: cannot be written ({error.strerror or error}); {remedy}{resume}")


ARRAY_HEADER = 128  # bytes before the numbers, a constant, so that their count can be written last
BLOCK = 8 << 20  # bytes hashed at a time
KINDS = re.compile(r"\|i1|<i[248]|<f[24]|<U[1-9][0-9]{0,2}")
# Reserve no memory for pages that are never written, or large files could not be mapped.
NO_RESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000 if sys.platform == "linux" else 0)


class Entry(NamedTuple):
    """Description of an array in a header: type in numpy's notation, shape, and hash of its file."""

    dtype: str
    shape: tuple[int, ...]
    digest: str

    @property
    def data_bytes(self) -> int:
        """Size of its numbers."""
        size = np.dtype(self.dtype).itemsize
        for length in self.shape:
            size *= length
        return size


def array_header(dtype: str, shape: tuple[int, ...]) -> bytes:
    """Return the first bytes of a file in numpy's format, always the same ones for the same array."""
    text = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape!r}, }}"
    start = b"\x93NUMPY\x01\x00" + (ARRAY_HEADER - 10).to_bytes(2, "little")
    return start + text.ljust(ARRAY_HEADER - 11).encode() + b"\n"


class Writer:
    """Array file that is written row by row; it is complete once it is closed.

    ``width`` is None for an array of one dimension. With ``rows``, a file of an interrupted writer is continued there.
    """

    def __init__(self, path: Path, dtype: Any, width: int | None = None, rows: int = 0) -> None:
        self.path, self.dtype, self.width, self.rows = path, np.dtype(dtype), width, rows
        size = ARRAY_HEADER + rows * self.dtype.itemsize * (1 if width is None else width)
        if rows and path.stat().st_size < size:
            raise Unreadable("it is shorter than it was")
        self._file: BinaryIO = path.open("r+b" if rows else "w+b")
        try:
            self._file.truncate(size)
            self._file.seek(size)
        except OSError:
            self._file.close()
            raise

    def add(self, values: NDArray[Any]) -> None:
        """Append rows."""
        if len(values):
            rows = np.ascontiguousarray(values, self.dtype)
            self._file.write(rows.reshape(-1).view(np.uint8).data)
            self.rows += len(values)

    def flush(self) -> None:
        """Sync all rows so far to the disk."""
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Write the number of rows and sync everything to the disk."""
        if self._file.closed:
            return
        try:
            self._file.seek(0)
            shape = (self.rows,) if self.width is None else (self.rows, self.width)
            self._file.write(array_header(self.dtype.str, shape))
            self.flush()
        finally:
            self.abandon()

    def __enter__(self) -> Writer:
        return self

    def abandon(self) -> None:
        """Close the incomplete file; a later writer may continue it."""
        with suppress(OSError):  # the failed operation may be a write
            self._file.close()

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()


class Chunks:
    """One-dimensional array in the file of a ``Writer``, read and changed chunk by chunk without mapping it.

    With ``make``, the file is created, filled with zeros.
    """

    def __init__(self, path: Path, dtype: Any, rows: int, make: bool = False) -> None:
        self.dtype, self._rows = np.dtype(dtype), rows
        size = ARRAY_HEADER + rows * self.dtype.itemsize
        if not make and path.stat().st_size < size:
            raise Unreadable("it is shorter than it was")
        self._file: BinaryIO = path.open("w+b" if make else "r+b")
        if make:
            try:
                self._file.truncate(size)
            except OSError:
                self._file.close()
                raise

    def read(self, first: int, count: int) -> NDArray[Any]:
        """Return ``count`` numbers from ``first`` on, fewer at the end."""
        self._file.seek(ARRAY_HEADER + first * self.dtype.itemsize)
        return np.fromfile(self._file, self.dtype, min(count, self._rows - first))

    def write(self, first: int, values: NDArray[Any]) -> None:
        """Overwrite numbers from ``first`` on."""
        self._file.seek(ARRAY_HEADER + first * self.dtype.itemsize)
        self._file.write(np.ascontiguousarray(values, self.dtype).view(np.uint8).data)

    def flush(self) -> None:
        """Sync all changes to the disk."""
        self._file.flush()
        os.fsync(self._file.fileno())

    def __enter__(self) -> Chunks:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):  # the failed operation may be a write
            self._file.close()


class Map:
    """Memory-mapped array."""

    def __init__(self, path: Path, entry: Entry) -> None:
        expected = array_header(entry.dtype, entry.shape)
        with open_file(path) as file:
            start, size = file.read(ARRAY_HEADER), os.fstat(file.fileno()).st_size
            if size != ARRAY_HEADER + entry.data_bytes:
                raise Unreadable(f"it has {size:,} bytes and not {ARRAY_HEADER + entry.data_bytes:,}")
            if start != expected:
                raise Unreadable("its first bytes are not those of its array")
            self._map = _mapped(file.fileno(), size)
        count = int(np.prod(entry.shape, dtype=np.int64))
        self.array: NDArray[Any] = np.frombuffer(self._map, entry.dtype, count, ARRAY_HEADER).reshape(entry.shape)

    def release(self) -> None:
        """Free the pages in memory; they are read again when needed."""
        if hasattr(self._map, "madvise"):
            self._map.madvise(mmap.MADV_DONTNEED)


def _mapped(handle: int, size: int) -> mmap.mmap:
    """Map a file copy-on-write: accidental writes change a copy of a page, not the file."""
    if not hasattr(mmap, "MAP_PRIVATE"):
        return mmap.mmap(handle, size, access=mmap.ACCESS_COPY)
    return mmap.mmap(handle, size, mmap.MAP_PRIVATE | NO_RESERVE, mmap.PROT_READ | mmap.PROT_WRITE)


def digest(path: Path) -> str:
    """Return the hash of a file: a hash of the hashes of its blocks, computed by several threads."""
    whole, threads = blake2b(digest_size=16), min(4, os.cpu_count() or 1)
    with open_file(path) as file, ThreadPoolExecutor(threads) as pool:
        blocks = _blocks(file)
        while batch := list(islice(blocks, threads)):
            for each in pool.map(lambda block: blake2b(block, digest_size=16).digest(), batch):
                whole.update(each)
    return whole.hexdigest()


def _blocks(file: BinaryIO) -> Iterator[bytes]:
    while block := file.read(BLOCK):
        yield block
