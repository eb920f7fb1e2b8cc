"""Tables as pyarrow tables or record batches: CSV and Parquet files, pyarrow tables, data frames."""

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

from ..runtime.errors import translated
from ..runtime.names import install_hint
from ..runtime.reading import Unreadable, check_gzip, check_regular, read_parquet
from ..runtime.texts import one_line
from .errors import GraphError

DELIMITERS = ",;|\t"
TEXT, PARQUET = (".csv", ".tsv", ".csv.gz", ".tsv.gz"), (".parquet",)  # case-insensitive


def pyarrow_modules() -> tuple[Any, Any]:
    """Import ``pyarrow`` and ``pyarrow.compute`` when first needed."""
    try:
        import pyarrow
        import pyarrow.compute
    except ImportError:
        raise GraphError(f"reading tables needs pyarrow: {install_hint('pyarrow')}") from None
    return pyarrow, pyarrow.compute


class NamedTable(NamedTuple):
    """A pyarrow table and its name in messages.

    ``typed`` tables came with types; columns of a text file have those that pyarrow guessed.
    """

    table: Any
    name: str
    typed: bool


def read_table(value: Any, role: str, text: Sequence[str], delimiter: str | None) -> NamedTable:
    """Return a table from a path, a pyarrow table or a pandas data frame, whose index is a column if it has a name.

    ``role`` is the name in messages of a table without a path; the columns ``text`` of text files are read as text.
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
    """Return the files of the tables ``nodes`` and ``edges`` in a folder."""
    tables = []
    for role in ("nodes", "edges"):
        names = [f"{role}{ending}" for ending in (*TEXT, *PARQUET)]
        candidates = [path for path in sorted(folder.iterdir()) if path.name.lower() in names]
        if len(candidates) != 1:
            problem = f"{candidates[0].name} and {candidates[1].name}" if candidates else f"no {role} table"
            raise GraphError(f"{folder}: {problem} in this folder; one of {', '.join(names)} is wanted")
        tables.append(candidates[0])
    return tables[0], tables[1]


def _from_pandas(frame: Any, role: str) -> Any:
    pa, _ = pyarrow_modules()
    named = any(name is not None for name in frame.index.names)
    with translated(
        (pa.ArrowException, ValueError),
        lambda error: GraphError(f"{role}: the data frame cannot be read ({error}); give such a column one type"),
    ):  # mixed types in a column, duplicate names
        return pa.Table.from_pandas(frame, preserve_index=None if named else False)


def _text_table(path: Path, text: Sequence[str], delimiter: str | None) -> Any:
    """Read a text file, compressed or not."""
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
    if any(pa.types.is_binary(column.type) for column in table.columns):  # pyarrow reads other encodings as bytes
        raise not_utf8(path)
    return table


def text_format(path: Path, delimiter: str | None) -> tuple[str | None, str, bool]:
    """Return compression and delimiter of a text file, and True if it has quoted fields."""
    pa, _ = pyarrow_modules()
    check_regular(path)
    packed = "gzip" if path.name.lower().endswith(".gz") else None
    with pa.input_stream(path, compression=packed) as stream:
        start = stream.read(1 << 16)
    if start.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise not_utf8(path)
    if b"\0" in start:
        raise GraphError(f"{path}: not a text file, though its name says so; a table of fields in lines is wanted")
    with translated(UnicodeDecodeError, lambda _: not_utf8(path)):
        header = getincrementaldecoder("utf-8-sig")().decode(start.split(b"\n")[0])  # possibly cut off
    separator = delimiter if delimiter is not None else _delimiter(header)
    if len(separator) != 1:
        raise GraphError(f"delimiter must be a single character, not {separator!r}")
    return packed, separator, b'"' in start


def _delimiter(header: str) -> str:
    """Return the most frequent separator outside of quotes."""
    bare = re.sub(r'"[^"]*"', "", header)
    return max(DELIMITERS, key=bare.count)


def not_utf8(path: Path) -> GraphError:
    """Return the error for text in another encoding."""
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
    """Return one array with dictionaries decoded and empty text as null (CSV files cannot tell them apart)."""
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
    """Check that no text is missing or empty; faster than comparing all of them."""
    if array.null_count or not len(array):
        return False
    offsets = np.frombuffer(array.buffers()[1], np.int32, len(array) + 1, 4 * array.offset)
    return bool((offsets[1:] > offsets[:-1]).all())


ENDINGS = (*TEXT, *PARQUET)
FIRST = 16  # lines of a text file by which the length of others is estimated
LONGEST = 1 << 24  # bytes read for them


class Batch(NamedTuple):
    """Rows of a shard as a pyarrow record batch, and the number of the first one."""

    table: Any
    first: int


class Shard(NamedTuple):
    """One file of a table; ``typed`` if it stores column types, as Parquet does."""

    path: Path
    typed: bool


def find_shards(path: Path, role: str) -> list[Shard]:
    """Return the files of a table: one, or all tables of a folder in the order of their names."""
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
    """Return the columns of a shard and their types, for a text file as its beginning suggests.

    The columns ``text`` of a text file are read as text.
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
    """Yield the rows of a shard; ``types`` are the columns to read and, for a text file, their types."""
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
    """Convert errors of reading a file into one line."""
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
    """Open a Parquet file to be read page by page; otherwise memory holds a whole row group."""
    import pyarrow.parquet as pq

    check_regular(path)
    return pq.ParquetFile(path, buffer_size=1 << 16, pre_buffer=False)


def _reader(shard: Shard, types: dict[str, Any], delimiter: str | None, rows: int) -> Any:
    """Return a reader of a text file; it reads 32 blocks ahead, about twice as many rows."""
    pa, _ = pyarrow_modules()
    from pyarrow import csv

    packed, separator, _ = text_format(shard.path, delimiter)
    line = _longest_line(shard.path, packed)
    block = max(1 << 16, 4 * line, min(rows * line, 1 << 24) // 16)  # longer rows are refused
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
    """Return the length of the longest of the first lines of a text file."""
    pa, _ = pyarrow_modules()
    start = b""
    with pa.input_stream(path, compression=packed) as stream:
        while start.count(b"\n") < FIRST and len(start) < LONGEST and (more := stream.read(1 << 16)):
            start += more
    return max(map(len, start.split(b"\n")))
