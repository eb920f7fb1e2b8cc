"""Files that may be damaged or hostile, read: nothing is believed that their size on disk does not justify.

``Unreadable`` says what is wrong in a few words; who reads a file adds its name and the remedy. What a file unpacks to
is at most ``RATIO`` times its size, or ``ALWAYS`` bytes; arrays that are stored as they are need neither.
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
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import pyarrow
    from numpy.typing import NDArray
    from torch import Tensor

RATIO = 100  # times its size on disk that a packed file may take in memory: tables and words of texts reach 30
FEW = 128  # rows that a table is read by at the least; fewer take longer than to look at every text first
ALWAYS = 256 << 20  # bytes that any file may unpack to: zeros are packed a thousandfold, and are no attack
DEEPEST = 64  # levels of JSON; what this package writes has 8
BLOCK = 16 << 20  # bytes unpacked at a time

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


class Unreadable(ValueError):
    """A file is not what it should be; the message says why, in a few words."""


def most_unpacked(size: int) -> int:
    """How many bytes a packed file may unpack to.

    Args:
        size: Its bytes on disk.
    """
    return max(ALWAYS, RATIO * size)


def check_regular(path: Path) -> None:
    """Refuse what is not a file: one would wait for a pipe for ever, and read from a device without an end.

    Args:
        path: The file, or a link to one.
    """
    if not stat.S_ISREG(path.stat().st_mode):
        raise Unreadable("a pipe, a device or a folder, and not a file")


def open_file(path: Path) -> io.BufferedReader:
    """Open a file to read; what is no file is refused, without waiting.

    Args:
        path: The file, or a link to one.
    """
    check_regular(path)
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    file = os.fdopen(handle, "rb")
    if not stat.S_ISREG(os.fstat(handle).st_mode):  # it has become another since
        file.close()
        raise Unreadable("a pipe, a device or a folder, and not a file")
    return file


def check_gzip(path: Path) -> None:
    """Refuse a gzip file that unpacks to more than its size justifies; it is unpacked once for that, and not kept.

    Args:
        path: The file.
    """
    check_regular(path)
    left = most_unpacked(path.stat().st_size)
    with gzip.open(path) as stream:
        while left >= 0 and (block := stream.read(BLOCK)):
            left -= len(block)
    if left < 0:
        raise Unreadable("it unpacks to far more than its size; if that is right, unpack it first")


def read_bytes(path: Path) -> bytes:
    """All of a file.

    Args:
        path: The file.
    """
    with open_file(path) as file:
        return file.read()


def parse_json(content: bytes) -> Any:
    """A value of JSON in UTF-8, with whole characters, at most ``DEEPEST`` levels deep.

    Args:
        content: The text.
    """
    try:
        value = json.loads(content.decode("utf-8"))
    except UnicodeDecodeError:
        raise Unreadable("the text is not UTF-8") from None
    except RecursionError:
        raise Unreadable(f"nested more than {DEEPEST} levels deep") from None
    except ValueError as error:
        raise Unreadable(f"no JSON: {error}") from None
    if _is_deeper(value, DEEPEST):
        raise Unreadable(f"nested more than {DEEPEST} levels deep")
    if _SURROGATE.search(content):
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise Unreadable("half a character (a lone surrogate) in a text") from None
    return value


def _is_deeper(value: Any, levels: int) -> bool:
    """Whether lists and objects are nested in each other more than so many levels deep."""
    within = [value]
    for _ in range(levels + 1):
        within = [each for each in within if isinstance(each, dict | list)]
        if not within:
            return False
        within = [inner for each in within for inner in (each.values() if isinstance(each, dict) else each)]
    return True


def read_npz(path: Path, names: Sequence[str] | None = None, optional: Sequence[str] = ()) -> dict[str, NDArray[Any]]:
    """Arrays of numbers and texts of an npz file, in native byte order; never a pickle.

    Each array must be exactly as large as its header says, before any of it is unpacked.

    Args:
        path: The file.
        names: Those of the arrays that are wanted; None for all.
        optional: More of them, left out if they are missing or are neither numbers nor texts.
    """
    with open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        if file.peek(6)[:6] == b"\x93NUMPY":
            raise Unreadable("it holds a single array, and not an archive of them: numpy.savez")
        try:
            with zipfile.ZipFile(file) as archive:
                return _arrays(archive, size, names, optional)
        except Unreadable:
            raise
        except MemoryError:
            raise Unreadable("too large for the memory of this machine") from None
        except Exception as error:  # a damaged archive leads to almost any
            raise Unreadable(f"no npz archive: {error}") from None


def _arrays(
    archive: zipfile.ZipFile, size: int, names: Sequence[str] | None, optional: Sequence[str]
) -> dict[str, NDArray[Any]]:
    entries = {entry.filename.removesuffix(".npy"): entry for entry in archive.infolist()}
    if len(entries) < len(archive.infolist()):
        raise Unreadable("a name stands twice in it")
    wanted = list(entries) if names is None else list(names)
    missing = [name for name in wanted if name not in entries]
    if missing:
        raise Unreadable(f"there is no array {missing[0]!r} in it")
    wanted += [name for name in optional if name in entries and name not in wanted]
    packed = sum(entries[name].compress_size for name in wanted)
    unpacked = sum(entries[name].file_size for name in wanted)
    if packed > size or unpacked > most_unpacked(size):
        raise Unreadable(
            f"its {size:,} bytes claim to unpack to {unpacked:,}; if that is right, store it without packing: "
            "numpy.savez"
        )
    arrays = {}
    for name in wanted:
        try:
            with archive.open(entries[name]) as stream:
                arrays[name] = _array(stream, entries[name].file_size)
        except Unreadable as error:
            if name not in optional:
                raise Unreadable(f"array {name!r}: {error}") from None
    return arrays


def _array(stream: Any, size: int) -> NDArray[Any]:
    """An array in numpy's format, of which a stream has so many bytes."""
    import numpy as np

    try:
        version = np.lib.format.read_magic(stream)
        read_header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
        shape, by_columns, kind = read_header[version](stream)
    except Exception as error:
        raise Unreadable(f"no header of an array ({type(error).__name__})") from None
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
        raise Unreadable("it goes on behind its end")
    flat = flat.astype(kind.newbyteorder("="), copy=False)
    if kind.kind == "U":
        check_characters(flat)
    elif kind.kind == "b" and flat.size and flat.view(np.uint8).max() > 1:
        raise Unreadable("a truth value that is neither 0 nor 1")
    return flat.reshape(shape, order="F" if by_columns else "C")


def check_characters(texts: NDArray[np.str_]) -> None:
    """Refuse texts of numpy that are none: Python makes strings of them that cannot be written.

    Args:
        texts: Their array.
    """
    import numpy as np

    codes = texts.view(np.uint32) if texts.size and texts.itemsize else np.empty(0, np.uint32)
    if ((codes > 0x10FFFF) | ((codes >= 0xD800) & (codes < 0xE000))).any():
        raise Unreadable("a text with what is no character")


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors of a safetensors file by name, and the texts that it says about them.

    Args:
        path: The file.
    """
    content = read_bytes(path)
    return parse_tensors(content), texts_about(content)


def parse_tensors(content: bytes) -> dict[str, Tensor]:
    """The tensors of a safetensors file by name.

    Args:
        content: All of the file.
    """
    from safetensors.torch import load

    try:
        return load(content)
    except MemoryError:
        raise Unreadable("too large for the memory of this machine") from None
    except Exception as error:  # besides its own, what a strange type or shape leads to
        raise Unreadable(f"no safetensors: {' '.join(str(error).split()):.100}") from None


def texts_about(content: bytes) -> dict[str, str]:
    """The metadata of a safetensors file that has been read: JSON behind eight bytes that say how long it is.

    Args:
        content: All of the file.
    """
    header = parse_json(content[8 : 8 + int.from_bytes(content[:8], "little")])
    about = header.get("__metadata__", {})
    return about if isinstance(about, dict) else {}


def read_parquet(path: Path, columns: Sequence[str] | None = None) -> pyarrow.Table:
    """A Parquet table.

    A value that stands a billion times takes a few bytes in such a file: what it takes in memory is computed first.

    Args:
        path: The file.
        columns: Those that are wanted; None for all.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    check_regular(path)
    size = path.stat().st_size
    most = most_unpacked(size)
    try:
        with pq.ParquetFile(path) as file:
            # Not the metadata of single columns: pyarrow ends the process where a damaged file has wrong ones.
            leaves = [file.schema.column(number) for number in range(len(file.schema))]
            groups = [file.metadata.row_group(number) for number in range(file.num_row_groups)]
            wanted = [leaf for leaf in leaves if columns is None or leaf.path.split(".")[0] in columns]
            claimed = sum(_WIDTHS.get(leaf.physical_type, leaf.length) for leaf in wanted) * file.metadata.num_rows
            longest = max((group.num_rows * group.total_byte_size for group in groups), default=0)
            # so many rows hold no more than half of what is allowed, were each as long as all of its group
            rows = most // (2 * max((group.total_byte_size for group in groups), default=0) + 1)
            texts = [field.name for field in file.schema_arrow if pa.types.is_string(field.type)]
        if claimed > most:
            raise Unreadable(f"its {size:,} bytes claim to hold {claimed:,}")
        if longest > most and texts:  # one text may stand in every row
            shared = pq.ParquetFile(path, read_dictionary=texts)
            if most > ALWAYS and rows >= FEW and _mostly_different(shared, texts, columns):
                table = _in_batches(pq.ParquetFile(path), columns, most, min(rows, 1 << 16))
            else:
                table = _decoded(shared.read(columns), texts, most)
        elif any(leaf.max_repetition_level for leaf in wanted):  # lists, of any length
            table = _in_batches(pq.ParquetFile(path), columns, most, 8192)
        else:
            table = pq.ParquetFile(path).read(columns)
        table.validate(full=True)
    except (pa.ArrowException, OSError) as error:
        raise Unreadable(f"no Parquet table: {' '.join(str(error).split()):.100}") from None
    return table


_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8, "BYTE_ARRAY": 4}


def _in_batches(file: Any, columns: Sequence[str] | None, most: int, rows: int) -> pyarrow.Table:
    """A Parquet table, so many rows at a time, unless it takes more than so many bytes."""
    import pyarrow as pa

    batches = []
    for batch in file.iter_batches(rows, columns=columns, use_threads=False):
        batches.append(batch)
        most -= batch.nbytes
        if most < 0:
            raise Unreadable("its lists or texts are far longer than its size justifies")
    fields = [field for field in file.schema_arrow if columns is None or field.name in columns]
    return pa.Table.from_batches(batches, None if batches else pa.schema(fields))


def _decoded(table: pyarrow.Table, texts: Sequence[str], most: int) -> pyarrow.Table:
    """A table whose texts are kept as dictionaries, with them written out, unless they take more than so many bytes."""
    import pyarrow as pa

    if sum(_decoded_size(table[name]) for name in table.column_names) > most:
        raise Unreadable(f"it holds more than {most:,} bytes of text")
    types = {name: pa.string() for name in texts}
    return table.cast(pa.schema([pa.field(field.name, types.get(field.name, field.type)) for field in table.schema]))


def _mostly_different(file: Any, texts: Sequence[str], columns: Sequence[str] | None) -> bool:
    """Whether texts of a Parquet file differ from row to row, as ids do: as dictionaries these take long to read."""
    names = [name for name in texts if columns is None or name in columns]
    first = file.read_row_group(0, names) if names else None
    return first is not None and any(
        8 * len(chunk.dictionary) > len(chunk) for name in names for chunk in first[name].chunks
    )


def _decoded_size(column: Any) -> int:
    """The bytes of the texts of a column that is kept as a dictionary."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_dictionary(column.type):
        return 0
    sizes = (pc.sum(pc.take(pc.binary_length(chunk.dictionary), chunk.indices)).as_py() for chunk in column.chunks)
    return sum(size or 0 for size in sizes)
