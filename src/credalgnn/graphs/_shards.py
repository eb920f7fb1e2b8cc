"""Tables in several files, read batch by batch: shards in the order of their names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from ..runtime.reading import Unreadable, check_regular
from ..runtime.texts import one_line
from ._table_files import PARQUET, TEXT, not_utf8, pyarrow_modules, text_format
from .errors import GraphError

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
        raise GraphError(f"{shard.path}: the column {twice[0]!r:.60} stands twice")
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
