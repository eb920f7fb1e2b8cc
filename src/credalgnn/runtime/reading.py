"""Bounded readers for files that may be damaged or hostile.

A packed file may unpack to ``RATIO`` times its size or to ``ALWAYS`` bytes, whichever is more; arrays that are stored
unpacked have no such bound. ``Unreadable`` says what is wrong; the caller adds the name of the file and the remedy.
"""

from __future__ import annotations

import gzip
import io
import json
import math
import os
import re
import stat
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import pyarrow
    from numpy.typing import NDArray
    from torch import Tensor

RATIO = 100  # of unpacked to packed size: tables and bags of words reach 30
ALWAYS = 256 << 20  # bytes that any file may unpack to: zeros are packed a thousandfold without any attack
DEEPEST = 64  # levels of JSON; what this package writes has 8
BLOCK = 16 << 20  # bytes unpacked at a time

_ESCAPED, _SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]"), re.compile("[\ud800-\udfff]")


class Unreadable(ValueError):
    """Invalid content of a file; the message says what is wrong, in a few words."""


@contextmanager
def _refused(kind: str) -> Iterator[None]:
    """Turn whatever a library raises on a damaged file into ``Unreadable``."""
    try:
        yield
    except Unreadable:
        raise
    except MemoryError:
        raise Unreadable("too large for the memory of this machine") from None
    except Exception as error:
        raise Unreadable(f"{kind}: {' '.join(str(error).split()) or type(error).__name__:.100}") from None


def most_unpacked(size: int) -> int:
    """Return the bytes that a packed file of so many bytes may unpack to."""
    return max(ALWAYS, RATIO * size)


def check_regular(path: Path) -> None:
    """Refuse pipes, devices and folders: reading these may never end."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise Unreadable("a pipe, a device or a folder, and not a file")


def open_file(path: Path) -> io.BufferedReader:
    """Open a regular file for reading; anything else is refused without waiting."""
    check_regular(path)
    file = os.fdopen(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):  # replaced since
        file.close()
        raise Unreadable("a pipe, a device or a folder, and not a file")
    return file


def check_gzip(path: Path) -> None:
    """Refuse a gzip file that unpacks to more than its size justifies; nothing of it is kept."""
    check_regular(path)
    left = most_unpacked(path.stat().st_size)
    with gzip.open(path) as stream:
        while left >= 0 and (block := stream.read(BLOCK)):
            left -= len(block)
    if left < 0:
        raise Unreadable("it unpacks to far more than its size; if that is right, unpack it first")


def read_bytes(path: Path) -> bytes:
    """Return the content of a file."""
    with open_file(path) as file:
        return file.read()


def parse_json(content: bytes) -> Any:
    """Parse UTF-8 JSON with valid characters, at most ``DEEPEST`` levels deep."""
    nested = f"nested more than {DEEPEST} levels deep"
    try:
        value = json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        reasons = {UnicodeDecodeError: "the text is not UTF-8", RecursionError: nested}
        raise Unreadable(reasons.get(type(error), f"no JSON: {error}")) from None
    if _is_deeper(value, DEEPEST):
        raise Unreadable(nested)
    if _ESCAPED.search(content) and _SURROGATE.search(json.dumps(value, ensure_ascii=False)):
        raise Unreadable("half a character (a lone surrogate) in a text")
    return value


def _is_deeper(value: Any, levels: int) -> bool:
    """Return whether lists and objects are nested more than ``levels`` deep."""
    within = [value]
    for _ in range(levels + 1):
        within = [each for each in within if isinstance(each, dict | list)]
        if not within:
            return False
        within = [inner for each in within for inner in (each.values() if isinstance(each, dict) else each)]
    return True


def read_npz(path: Path, names: Sequence[str] | None = None, optional: Sequence[str] = ()) -> dict[str, NDArray[Any]]:
    """Read arrays of numbers and texts from an npz file, in native byte order; never a pickle.

    Each array must be exactly as large as its header says before any of it is unpacked.

    Args:
        path: The file.
        names: Names of the arrays; None for all.
        optional: Names of more arrays, left out if they are missing, or neither numbers nor texts.
    """
    with open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        if file.peek(6)[:6] == b"\x93NUMPY":
            raise Unreadable("it holds a single array, and not an archive of them: numpy.savez")
        with _refused("no npz archive"), zipfile.ZipFile(file) as archive:
            return _arrays(archive, size, names, optional)


def _arrays(
    archive: zipfile.ZipFile, size: int, names: Sequence[str] | None, optional: Sequence[str]
) -> dict[str, NDArray[Any]]:
    entries = {entry.filename.removesuffix(".npy"): entry for entry in archive.infolist()}
    if len(entries) < len(archive.infolist()):
        raise Unreadable("a name stands twice in it")
    selected = list(entries) if names is None else list(names)
    missing = [name for name in selected if name not in entries]
    if missing:
        raise Unreadable(f"there is no array {missing[0]!r} in it")
    selected += [name for name in optional if name in entries and name not in selected]
    packed = sum(entries[name].compress_size for name in selected)
    unpacked = sum(entries[name].file_size for name in selected)
    if packed > size or unpacked > most_unpacked(size):
        raise Unreadable(
            f"its {size:,} bytes claim to unpack to {unpacked:,}; if that is right, store it without packing: "
            "numpy.savez"
        )
    arrays = {}
    for name in selected:
        try:
            with archive.open(entries[name]) as stream:
                arrays[name] = _array(stream, entries[name].file_size)
        except Unreadable as error:
            if name not in optional:
                raise Unreadable(f"array {name!r}: {error}") from None
    return arrays


def _array(stream: Any, size: int) -> NDArray[Any]:
    """Read an array in numpy's format from a stream of ``size`` bytes."""
    import numpy as np

    with _refused("no header of an array"):
        version = np.lib.format.read_magic(stream)
        read_header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
        shape, by_columns, kind = read_header[version](stream)
    if kind.kind not in "biufU" or (kind.kind != "U" and kind.itemsize > 8):
        raise Unreadable(f"it is of type {kind}, and only numbers and texts are read")
    if min(shape, default=0) < 0 or math.prod(shape) * kind.itemsize != size - stream.tell():
        raise Unreadable(f"{size:,} bytes are no array of shape {list(shape)}")
    flat = np.empty(math.prod(shape), kind)
    buffer, done = flat.view(np.uint8) if flat.size and kind.itemsize else np.empty(0, np.uint8), 0
    while done < len(buffer):
        block = stream.read(min(BLOCK, len(buffer) - done))
        if not block:
            raise Unreadable("it ends too early")
        buffer[done : done + len(block)] = np.frombuffer(block, np.uint8)
        done += len(block)
    if stream.read(1):  # at the end, where the sum is checked
        raise Unreadable("there are bytes after its end")
    flat = flat.astype(kind.newbyteorder("="), copy=False)
    if kind.kind == "U":
        check_characters(flat)
    elif kind.kind == "b" and flat.size and flat.view(np.uint8).max() > 1:
        raise Unreadable("a truth value that is neither 0 nor 1")
    return flat.reshape(shape, order="F" if by_columns else "C")


def check_characters(texts: NDArray[np.str_]) -> None:
    """Refuse numpy texts with invalid characters, of which Python makes strings that cannot be written."""
    import numpy as np

    codes = texts.view(np.uint32) if texts.size and texts.itemsize else np.empty(0, np.uint32)
    if ((codes > 0x10FFFF) | ((codes >= 0xD800) & (codes < 0xE000))).any():
        raise Unreadable("a text with what is no character")


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors and the metadata of a safetensors file."""
    content = read_bytes(path)
    return parse_tensors(content), texts_about(content)


def parse_tensors(content: bytes) -> dict[str, Tensor]:
    """Return the tensors in the content of a safetensors file."""
    from safetensors.torch import load

    with _refused("no safetensors"):
        return load(content)


def texts_about(content: bytes) -> dict[str, str]:
    """Return the metadata in the content of a valid safetensors file: JSON after its length in eight bytes."""
    header = parse_json(content[8 : 8 + int.from_bytes(content[:8], "little")])
    about = header.get("__metadata__", {})
    return about if isinstance(about, dict) else {}


def read_parquet(path: Path, columns: Sequence[str] | None = None) -> pyarrow.Table:
    """Read a Parquet table, or some columns of it, in batches whose unpacked size is bounded.

    Texts are decoded as dictionaries, because one long text may stand in every row: their size is known before they are
    written out.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    check_regular(path)
    size = path.stat().st_size
    left = most_unpacked(size)
    with _refused("no Parquet table"):
        with pq.ParquetFile(path) as file:
            schema = file.schema_arrow
            texts = [field.name for field in schema if pa.types.is_string(field.type)]
            # Not the metadata of single columns: pyarrow ends the process where a damaged file has wrong ones.
            leaves = [file.schema.column(number) for number in range(len(file.schema))]
            selected = [leaf for leaf in leaves if columns is None or leaf.path.split(".")[0] in columns]
            claimed = sum(_WIDTHS.get(leaf.physical_type, leaf.length) for leaf in selected) * file.metadata.num_rows
        if claimed > left:
            raise Unreadable(f"its {size:,} bytes claim to hold {claimed:,}")
        chunks = []
        rows = 8192 if any(leaf.max_repetition_level for leaf in selected) else 1 << 18  # lists may be of any length
        for batch in pq.ParquetFile(path, read_dictionary=texts).iter_batches(rows, columns=columns):
            left -= sum(map(_decoded_size, batch.columns))
            if left < 0:
                raise Unreadable("its lists or texts are far longer than its size justifies")
            fields = [field.with_type(pa.string()) if field.name in texts else field for field in batch.schema]
            chunks.append(pa.Table.from_batches([batch]).cast(pa.schema(fields)))
        empty = pa.schema([field for field in schema if columns is None or field.name in columns]).empty_table()
        table = pa.concat_tables(chunks) if chunks else empty
        table.validate(full=True)
    return table


_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8, "BYTE_ARRAY": 4}


def _decoded_size(column: Any) -> int:
    """Return the bytes of a column once its dictionary is written out."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_dictionary(column.type) or not pa.types.is_string(column.type.value_type):
        return int(column.nbytes)
    return pc.sum(pc.take(pc.binary_length(column.dictionary), column.indices)).as_py() or 0
