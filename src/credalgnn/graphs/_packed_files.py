"""The format of packed graphs: a folder of plain arrays, and a header that says what all of them must be.

The header is written last and sealed by a checksum: a folder without one is not, or not yet, a packed graph.
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
# What a folder may hold: the types of each array, and its shape by what the header counts.
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
PARTS = ("train", "val", "calibration", "test")  # of a split, by their numbers; -1 for none
SPARSE = ("feature_starts", "feature_columns", "feature_values")
CONTENT = ("features", *SPARSE, "starts", "sources", "weights")  # what the hash of features and edges is made of
TOO_MANY = (errno.EMFILE, errno.ENFILE)
MORE_FILES = "close other files, or allow more of them: ulimit -n"
_REPLACED = re.compile(r"\.(.+)\.[0-9]+\.old")  # what a folder is called while another one takes its place
CHUNK = 32 << 20  # bytes that are looked at at a time


class CannotOpenError(GraphError):
    """A file of a packed graph may be whole, but this process may not open it now."""


def is_packed(path: Path) -> bool:
    """Whether a folder is, or was to be, a packed graph.

    Args:
        path: The folder.
    """
    return (path.is_dir() and path.suffix == ".cg") or (path / HEADER).is_file()


def read_header(path: Path) -> dict[str, Any]:
    """The header of a packed graph, as far as it can be believed without looking at arrays.

    Args:
        path: The folder.
    """
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
    """The arrays that a header names, if they make a graph.

    Args:
        head: The header.
        path: The folder, for messages.
    """
    listed = head["arrays"]
    kind = ("features",) if "features" in listed else SPARSE
    wanted = {"labels", "starts", "sources", *kind}
    if not wanted <= set(listed) <= wanted | {"weights", "node_ids", "split"}:
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
    """The hash of features and edges, of the hashes of their files.

    Args:
        entries: All arrays.
    """
    lines = [f"{name} {' '.join(map(str, entries[name]))}" for name in CONTENT if name in entries]
    return hash_of(np.array(lines))


def hash_of(array: NDArray[Any]) -> str:
    """A hash of the numbers or texts of an array.

    Args:
        array: The array.
    """
    data = "\0".join(array.tolist()).encode() if array.dtype.kind == "U" else np.ascontiguousarray(array).tobytes()
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def open_array(path: Path, name: str, entry: Entry) -> Map:
    """One array of a packed graph.

    Args:
        path: The folder.
        name: The array.
        entry: What it must be.
    """
    try:
        return Map(path / f"{name}.npy", entry)
    except FileNotFoundError:
        raise GraphError(f"{path}: {name}.npy is missing; {REMEDY}") from None
    except OSError as error:
        raise _cannot_open(path, f"{name}.npy", error) from None
    except Unreadable as error:
        raise GraphError(f"{path}: {name}.npy is damaged ({error}); {REMEDY}") from None


def open_arrays(path: Path) -> tuple[dict[str, Any], dict[str, Entry], dict[str, Map]]:
    """A packed graph's header, what it says of each array, and the arrays, if they can be those of a graph.

    Args:
        path: The folder.
    """
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
    said = f"{path}: {name} cannot be opened ({error.strerror or error})"
    if error.errno in (errno.EACCES, errno.EPERM):
        return CannotOpenError(f"{said}; get the right to read it from who owns it")
    if error.errno in TOO_MANY:
        return CannotOpenError(f"{said}; {MORE_FILES}")
    return GraphError(f"{said}; it may be damaged, see credalgnn check")


def check_array(file: Path, name: str, entry: Entry, head: Mapping[str, Any]) -> None:
    """Read all of an array once: its hash, and that nothing in it points elsewhere.

    Args:
        file: Its file.
        name: The array.
        entry: What the header says of it.
        head: The header.
    """
    path = file.parent
    found = open_array(path, name, entry)
    if digest(file) != entry.digest:
        raise changed(path, name, "its content has changed")
    more = 1 if name.endswith("starts") else 0
    step = max(1, CHUNK // (found.array[:1].nbytes or 1))
    for first in range(0, len(found.array), step):
        reason = _reason(name, found.array[first : first + step + more], head)
        if reason:
            raise changed(path, name, reason)
        found.release()


def _reason(name: str, chunk: NDArray[Any], head: Mapping[str, Any]) -> str:
    """What is wrong with a chunk of an array."""
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
    """The error of an array that has its size and first bytes, by which ``credalgnn pack`` takes it for whole.

    Args:
        path: The folder.
        name: The array.
        reason: What is wrong with its numbers, in a few words.
    """
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
    """Seal a folder whose arrays are all there: from now on it is a packed graph.

    Args:
        folder: The folder.
        names: Its arrays.
        features: How many features nodes have.
        class_names: What the classes are called.
        feature_names: What the features are called.
        request: A hash of what it was packed from, if that is known.
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
    """Refuse to put a packed graph where something else is.

    Args:
        path: The folder that it is to be.
    """
    if path.name in ("", ".."):
        raise GraphError(f"{path}: the folder to make needs a name of its own, as in {path / 'graph.cg'}")
    if path.is_symlink() or (path.exists() and not path.is_dir()):
        raise GraphError(f"{path}: there is something else than a folder; choose another place")
    own = {HEADER, "damaged", *(f"{name}.npy" for name in ARRAYS)}  # what a repair puts aside is in "damaged"
    if path.is_dir() and not (path / HEADER).exists() and any(file.name not in own for file in path.iterdir()):
        raise GraphError(f"{path}: there is a folder with something else in it; choose another place")


def put_in_place(made: Path, path: Path) -> None:
    """Give a sealed folder its name; what was there goes when the new one is there.

    Args:
        made: The folder as it was made, on the same disk.
        path: What it is to be called.
    """
    check_place(path)
    old = path.with_name(f".{path.name}.{os.getpid()}.old")
    if path.exists():
        shutil.rmtree(old, ignore_errors=True)  # of a process of the same number that was killed
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
    """Folders that one was to replace, in processes that were killed.

    Args:
        path: The folder that is there now.
    """
    found = ((each, _REPLACED.fullmatch(each.name)) for each in path.parent.iterdir())
    return [each for each, named in found if named and named[1] == path.name]


def cannot_write(path: Path, error: OSError, resumable: bool = True) -> GraphError:
    """An error of the disk as one line.

    Args:
        path: The folder that was to be written.
        error: What the system said.
        resumable: Whether the same command goes on.
    """
    full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    remedy = "make room, or choose another place" if full else "choose another place"
    if error.errno in TOO_MANY:
        remedy = MORE_FILES
    kept = "; what is finished is kept, and the same command goes on" if resumable and full else ""
    return GraphError(f"{path}: cannot be written ({error.strerror or error}); {remedy}{kept}")


ARRAY_HEADER = (
    128  # bytes before the numbers, whatever they are, so that what is written last can say how many there are
)
BLOCK = 8 << 20  # bytes that are hashed at a time
KINDS = re.compile(r"\|i1|<i[248]|<f[24]|<U[1-9][0-9]{0,2}")
# Pages that are never written to need no promise of memory, without which a large file could not be opened.
NO_RESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000 if sys.platform == "linux" else 0)


class Entry(NamedTuple):
    """What a header says of one array.

    Args:
        dtype: Its type, as numpy writes it.
        shape: Its shape.
        digest: A hash of its file.
    """

    dtype: str
    shape: tuple[int, ...]
    digest: str

    @property
    def data_bytes(self) -> int:
        """The bytes of its numbers."""
        size = np.dtype(self.dtype).itemsize
        for length in self.shape:
            size *= length
        return size


def array_header(dtype: str, shape: tuple[int, ...]) -> bytes:
    """The first bytes of a file in numpy's format, the same ones for the same array always.

    Args:
        dtype: The type of its numbers.
        shape: Its shape.
    """
    text = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape!r}, }}"
    start = b"\x93NUMPY\x01\x00" + (ARRAY_HEADER - 10).to_bytes(2, "little")
    return start + text.ljust(ARRAY_HEADER - 11).encode() + b"\n"


class Writer:
    """An array that is written row by row; the file is whole once it is closed.

    Args:
        path: The file; what is there stays if ``rows`` is given, up to so many.
        dtype: The type of its numbers.
        width: How many numbers a row has; None for an array of one dimension.
        rows: Rows that are there already, of a writer that was interrupted.
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
        """Add rows.

        Args:
            values: The rows.
        """
        if len(values):
            rows = np.ascontiguousarray(values, self.dtype)
            self._file.write(rows.reshape(-1).view(np.uint8).data)
            self.rows += len(values)

    def flush(self) -> None:
        """Bring all rows so far to the disk."""
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Write how many rows there are, and bring all to the disk."""
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
        """Write no more: the file is not whole, but a later writer may go on with it."""
        with suppress(OSError):  # what failed may be the writing
            self._file.close()

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()


class Chunks:
    """An array of one dimension in a file that is read, and changed, chunk by chunk, and never mapped.

    Args:
        path: The file, of a ``Writer``.
        dtype: The type of its numbers.
        rows: How many there are.
        make: Make it, of zeros.
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
        """Some of its numbers, fewer at the end.

        Args:
            first: The first one.
            count: How many.
        """
        self._file.seek(ARRAY_HEADER + first * self.dtype.itemsize)
        return np.fromfile(self._file, self.dtype, min(count, self._rows - first))

    def write(self, first: int, values: NDArray[Any]) -> None:
        """Change some of its numbers.

        Args:
            first: The first one.
            values: What they become.
        """
        self._file.seek(ARRAY_HEADER + first * self.dtype.itemsize)
        self._file.write(np.ascontiguousarray(values, self.dtype).view(np.uint8).data)

    def flush(self) -> None:
        """Bring all changes to the disk."""
        self._file.flush()
        os.fsync(self._file.fileno())

    def __enter__(self) -> Chunks:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):  # what failed may be the writing
            self._file.close()


class Map:
    """One array, opened and not read.

    Args:
        path: The file.
        entry: What it must be.
    """

    def __init__(self, path: Path, entry: Entry) -> None:
        wanted = array_header(entry.dtype, entry.shape)
        with open_file(path) as file:
            found, size = file.read(ARRAY_HEADER), os.fstat(file.fileno()).st_size
            if size != ARRAY_HEADER + entry.data_bytes:
                raise Unreadable(f"it has {size:,} bytes and not {ARRAY_HEADER + entry.data_bytes:,}")
            if found != wanted:
                raise Unreadable("its first bytes are not those of its array")
            self._map = _mapped(file.fileno(), size)
        count = int(np.prod(entry.shape, dtype=np.int64))
        self.array: NDArray[Any] = np.frombuffer(self._map, entry.dtype, count, ARRAY_HEADER).reshape(entry.shape)

    def release(self) -> None:
        """Give its pages back to the system; they are read again when they are needed."""
        if hasattr(self._map, "madvise"):
            self._map.madvise(mmap.MADV_DONTNEED)


def _mapped(handle: int, size: int) -> mmap.mmap:
    """A file as memory; who writes there by mistake changes his copy of a page, and not the file."""
    if not hasattr(mmap, "MAP_PRIVATE"):
        return mmap.mmap(handle, size, access=mmap.ACCESS_COPY)
    return mmap.mmap(handle, size, mmap.MAP_PRIVATE | NO_RESERVE, mmap.PROT_READ | mmap.PROT_WRITE)


def digest(path: Path) -> str:
    """A hash of a file: that of the hashes of its blocks, which several threads compute.

    Args:
        path: The file.
    """
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
