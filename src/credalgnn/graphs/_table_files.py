"""Tables from whatever holds them: CSV and Parquet files, pyarrow tables, data frames."""

from __future__ import annotations

import os
import re
import zlib
from codecs import getincrementaldecoder
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..runtime.names import install_hint
from ..runtime.reading import Unreadable, check_gzip, check_regular, read_parquet
from ..runtime.texts import one_line
from .errors import GraphError

DELIMITERS = ",;|\t"
TEXT, PARQUET = (".csv", ".tsv", ".csv.gz", ".tsv.gz"), (".parquet",)  # endings, whatever their case


def pyarrow_modules() -> tuple[Any, Any]:
    """``pyarrow`` and ``pyarrow.compute``, imported when first needed."""
    try:
        import pyarrow
        import pyarrow.compute
    except ImportError:
        raise GraphError(f"reading tables needs pyarrow: {install_hint('pyarrow')}") from None
    return pyarrow, pyarrow.compute


class NamedTable(NamedTuple):
    """A pyarrow table, with what messages call it.

    Args:
        table: The table.
        name: The file, or what the table is for.
        typed: Whether it came with types; the columns of a text file have only those that pyarrow guessed.
    """

    table: Any
    name: str
    typed: bool


def read_table(value: Any, role: str, text: Sequence[str], delimiter: str | None) -> NamedTable:
    """A table from whatever holds one.

    Args:
        value: A path, a pyarrow table or a pandas data frame, whose index is a column if it has a name.
        role: What messages call a table that has no path.
        text: Columns of a text file that are read as text, as they stand there, if they are there.
        delimiter: What stands between the fields of a text file; None: found in the header.
    """
    pa, _ = pyarrow_modules()
    if isinstance(value, pa.Table):
        return _once(NamedTable(value, role, True))
    if type(value).__module__.split(".")[0] == "pandas" and hasattr(value, "columns"):
        return _once(NamedTable(_from_pandas(value, role), role, True))
    if not isinstance(value, str | os.PathLike):
        raise GraphError(f"{role}: a path, a pyarrow table or a data frame is wanted, not {type(value).__name__}")
    path = Path(value)
    if not path.is_file():
        raise GraphError(f"{path}: {'not a file' if path.exists() else 'no such file'}")
    try:
        if path.name.lower().endswith(PARQUET):
            return _once(NamedTable(read_parquet(path), str(path), True))
        if path.name.lower().endswith(TEXT):
            return _once(NamedTable(_text_table(path, text, delimiter), str(path), False))
    except (Unreadable, pa.ArrowException, OSError, EOFError, zlib.error) as error:
        if "UTF8" in str(error):
            raise not_utf8(path) from None
        raise GraphError(f"{path}: cannot be read ({one_line(str(error)):.200})") from None
    raise GraphError(f"{path}: a {', '.join(TEXT)} or {PARQUET[0]} file is wanted")


def find_tables(folder: Path) -> tuple[Path, Path]:
    """The files of the tables ``nodes`` and ``edges`` in a folder.

    Args:
        folder: The folder.
    """
    tables = []
    for role in ("nodes", "edges"):
        names = [f"{role}{ending}" for ending in (*TEXT, *PARQUET)]
        there = [path for path in sorted(folder.iterdir()) if path.name.lower() in names]
        if len(there) != 1:
            problem = f"{there[0].name} and {there[1].name}" if there else f"no {role} table"
            raise GraphError(f"{folder}: {problem} in this folder; one of {', '.join(names)} is wanted")
        tables.append(there[0])
    return tables[0], tables[1]


def _from_pandas(frame: Any, role: str) -> Any:
    pa, _ = pyarrow_modules()
    named = any(name is not None for name in frame.index.names)
    try:
        return pa.Table.from_pandas(frame, preserve_index=None if named else False)
    except (pa.ArrowException, ValueError) as error:  # one column with values of several types, two of one name
        raise GraphError(f"{role}: the data frame cannot be read ({error}); give such a column one type") from None


def _text_table(path: Path, text: Sequence[str], delimiter: str | None) -> Any:
    """A table from a text file, packed or not."""
    pa, _ = pyarrow_modules()
    import pyarrow.csv

    if path.name.lower().endswith(".gz"):
        check_gzip(path)
    packed, separator, quoted = text_format(path, delimiter)
    with pa.input_stream(path, compression=packed) as stream:
        table = pyarrow.csv.read_csv(
            stream,
            parse_options=pyarrow.csv.ParseOptions(delimiter=separator, newlines_in_values=quoted),
            convert_options=pyarrow.csv.ConvertOptions(column_types=dict.fromkeys(text, pa.string())),
        )
    if any(pa.types.is_binary(column.type) for column in table.columns):  # what is not UTF-8 is read as bytes
        raise not_utf8(path)
    return table


def text_format(path: Path, delimiter: str | None) -> tuple[str | None, str, bool]:
    """How a text file is packed, what stands between its fields, and whether there are quotes around some.

    Args:
        path: The file.
        delimiter: What stands between its fields; None: found in the header.
    """
    pa, _ = pyarrow_modules()
    check_regular(path)
    packed = "gzip" if path.name.lower().endswith(".gz") else None
    with pa.input_stream(path, compression=packed) as stream:
        start = stream.read(1 << 16)
    if start.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise not_utf8(path)
    if b"\0" in start:
        raise GraphError(f"{path}: not a text file, though its name says so; a table of fields in lines is wanted")
    try:
        header = getincrementaldecoder("utf-8-sig")().decode(start.split(b"\n")[0])  # which may be longer than that
    except UnicodeDecodeError:
        raise not_utf8(path) from None
    separator = delimiter if delimiter is not None else _delimiter(header)
    if len(separator) != 1:
        raise GraphError(f"delimiter must be a single character, not {separator!r}")
    return packed, separator, b'"' in start


def _delimiter(header: str) -> str:
    """What stands between the names of columns most often, outside of quotes."""
    bare = re.sub(r'"[^"]*"', "", header)
    return max(DELIMITERS, key=bare.count)


def not_utf8(path: Path) -> GraphError:
    """The error of a text in another encoding.

    Args:
        path: The file.
    """
    return GraphError(
        f"{path}: the text is not UTF-8 (Latin-1, or UTF-16, perhaps); save it as UTF-8, or convert it: iconv"
    )


def _once(named: NamedTable) -> NamedTable:
    counts = Counter(named.table.column_names)
    twice = [column for column, count in counts.items() if count > 1]
    if twice:
        raise GraphError(f"{named.name}: the column {twice[0]!r:.60} occurs twice")
    return named


def plain(column: Any) -> Any:
    """One array, dictionaries decoded, empty text as null (a CSV file cannot tell them apart)."""
    pa, pc = pyarrow_modules()
    array = column
    if isinstance(column, pa.ChunkedArray):
        array = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_large_string(array.type):
        array = array.cast(pa.string())
    if pa.types.is_string(array.type) and not _all_filled(array):
        array = pc.if_else(pc.equal(array, ""), pa.scalar(None, array.type), array)
    return array


def _all_filled(array: Any) -> bool:
    """Whether no text of an array of strings is missing or empty; quicker than to compare all of them."""
    if array.null_count or not len(array):
        return False
    offsets = np.frombuffer(array.buffers()[1], np.int32, len(array) + 1, 4 * array.offset)
    return bool((offsets[1:] > offsets[:-1]).all())


ENDINGS = (*TEXT, *PARQUET)
FIRST = 16  # lines of a text file that tell how long others may be
LONGEST = 1 << 24  # bytes that are looked at for them


class Batch(NamedTuple):
    """Some rows of a shard.

    Args:
        table: The rows, a pyarrow record batch.
        first: The number of the first one in its shard.
    """

    table: Any
    first: int


class Shard(NamedTuple):
    """One file of a table.

    Args:
        path: The file.
        typed: Whether it says what its columns are, as Parquet does.
    """

    path: Path
    typed: bool


def find_shards(path: Path, role: str) -> list[Shard]:
    """The files of a table: one, or all tables of a folder in the order of their names.

    Args:
        path: The file or folder.
        role: What it holds, for messages.
    """
    if not path.exists():
        raise GraphError(f"{path}: no such file or folder of {role}")
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    shards = [
        Shard(file, file.name.lower().endswith(PARQUET))
        for file in files
        if file.name.lower().endswith(ENDINGS) and not file.name.startswith(".")
    ]
    if not shards:
        raise GraphError(f"{path}: no table of {role} here; {', '.join(ENDINGS)} files are wanted")
    return shards


def column_types(shard: Shard, text: Sequence[str], delimiter: str | None) -> dict[str, Any]:
    """The columns of a shard and their types; of a text file as its beginning looks.

    Args:
        shard: The file.
        text: Columns of a text file that are read as text.
        delimiter: What stands between the fields of a text file; None: found in the header.
    """
    with _errors(shard.path):
        if shard.typed:
            with _parquet(shard.path) as file:
                schema = file.schema_arrow
        else:
            with _reader(shard, dict.fromkeys(text), delimiter, 1 << 12) as reader:
                schema = reader.schema
    names = schema.names
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise GraphError(f"{shard.path}: the column {twice[0]!r:.60} occurs twice")
    return dict(zip(names, schema.types, strict=True))


def batches(shard: Shard, types: dict[str, Any], rows: int, delimiter: str | None) -> Iterator[Batch]:
    """The rows of a shard.

    Args:
        shard: The file.
        types: The columns that are wanted; of a text file, what to read them as.
        rows: How many at a time, about.
        delimiter: What stands between the fields of a text file; None: found in the header.
    """
    first = 0
    with _errors(shard.path):
        if shard.typed:
            with _parquet(shard.path) as file:
                for table in file.iter_batches(rows, columns=list(types), use_threads=False):
                    yield Batch(table, first)
                    first += table.num_rows
        else:
            with _reader(shard, types, delimiter, rows) as reader:
                for table in reader:
                    yield Batch(table, first)
                    first += table.num_rows


@contextmanager
def _errors(path: Path) -> Iterator[None]:
    """What goes wrong with reading a file, as one line."""
    pa, _ = pyarrow_modules()
    try:
        yield
    except (Unreadable, pa.ArrowException, OSError) as error:
        if "UTF8" in str(error):
            raise not_utf8(path) from None
        if "straddl" in str(error):
            raise GraphError(
                f"{path}: a row is far longer than the first ones, or a quote in it is not closed; mend that row, or "
                "save the table as Parquet"
            ) from None
        raise GraphError(f"{path}: cannot be read ({one_line(str(error)):.200})") from None


def _parquet(path: Path) -> Any:
    """A Parquet file that is read page by page: else memory holds all of a row group, whatever its size."""
    import pyarrow.parquet as pq

    check_regular(path)
    return pq.ParquetFile(path, buffer_size=1 << 16, pre_buffer=False)


def _reader(shard: Shard, types: dict[str, Any], delimiter: str | None, rows: int) -> Any:
    """A reader of a text file; what it reads ahead, 32 blocks, is about twice so many rows."""
    pa, _ = pyarrow_modules()
    from pyarrow import csv

    packed, separator, _ = text_format(shard.path, delimiter)
    line = _longest_line(shard.path, packed)
    block = max(1 << 16, 4 * line, min(rows * line, 1 << 24) // 16)  # which no row may be longer than
    return csv.open_csv(
        pa.input_stream(shard.path, compression=packed),
        read_options=csv.ReadOptions(block_size=block, use_threads=False),
        parse_options=csv.ParseOptions(delimiter=separator, newlines_in_values=True),
        convert_options=csv.ConvertOptions(
            column_types={name: kind or pa.string() for name, kind in types.items()},
            include_columns=[] if None in types.values() else list(types),
        ),
    )


def _longest_line(path: Path, packed: str | None) -> int:
    """The bytes of the longest of the first lines of a text file."""
    pa, _ = pyarrow_modules()
    start = b""
    with pa.input_stream(path, compression=packed) as stream:
        while start.count(b"\n") < FIRST and len(start) < LONGEST and (more := stream.read(1 << 16)):
            start += more
    return max(map(len, start.split(b"\n")))
