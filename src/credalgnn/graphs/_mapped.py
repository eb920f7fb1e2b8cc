"""Arrays in files of their own, in numpy's format: written chunk by chunk, opened without reading them."""

from __future__ import annotations

import mmap
import os
import re
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..runtime.reading import Unreadable, open_file

HEADER = 128  # bytes before the numbers, whatever they are, so that what is written last can say how many there are
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


def header(dtype: str, shape: tuple[int, ...]) -> bytes:
    """The first bytes of a file in numpy's format, the same ones for the same array always.

    Args:
        dtype: The type of its numbers.
        shape: Its shape.
    """
    text = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape!r}, }}"
    start = b"\x93NUMPY\x01\x00" + (HEADER - 10).to_bytes(2, "little")
    return start + text.ljust(HEADER - 11).encode() + b"\n"


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
        size = HEADER + rows * self.dtype.itemsize * (1 if width is None else width)
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
            self._file.write(header(self.dtype.str, shape))
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
        size = HEADER + rows * self.dtype.itemsize
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
        self._file.seek(HEADER + first * self.dtype.itemsize)
        return np.fromfile(self._file, self.dtype, min(count, self._rows - first))

    def write(self, first: int, values: NDArray[Any]) -> None:
        """Change some of its numbers.

        Args:
            first: The first one.
            values: What they become.
        """
        self._file.seek(HEADER + first * self.dtype.itemsize)
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
        wanted = header(entry.dtype, entry.shape)
        with open_file(path) as file:
            found, size = file.read(HEADER), os.fstat(file.fileno()).st_size
            if size != HEADER + entry.data_bytes:
                raise Unreadable(f"it has {size:,} bytes and not {HEADER + entry.data_bytes:,}")
            if found != wanted:
                raise Unreadable("its first bytes are not those of its array")
            self._map = _mapped(file.fileno(), size)
        count = int(np.prod(entry.shape, dtype=np.int64))
        self.array: NDArray[Any] = np.frombuffer(self._map, entry.dtype, count, HEADER).reshape(entry.shape)

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
