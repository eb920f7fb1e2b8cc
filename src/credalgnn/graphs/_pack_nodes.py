"""Tables of nodes streamed into arrays: features, classes, and a 64-bit key for each id."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ._checks import sparse_is_smaller
from ._packed_files import PARTS, Chunks, Writer
from ._table_files import Batch, Shard, batches, column_types, plain, pyarrow_modules
from .edges import INT32
from .errors import GraphError
from .tables import (
    INDEX,
    NO_LABEL,
    Columns,
    as_numbers,
    ids_of,
    is_list,
    is_number,
    labels_of,
    list_matrix,
    no_column,
    numbers_of,
    parts_of,
    text_buffers,
)

LONGEST = 255  # characters of an id
MOST_CLASSES = 1_000_000
CHUNK = 1 << 18  # ids or numbers copied at a time
TEXTS = 8 << 20  # bytes of ids in memory; a character takes four in the file and up to four before


class TableSpec(NamedTuple):
    """Description of what is read of node and edge tables.

    ``split`` is the column with the part of each node, ``dtype`` the type of stored features, ``rows`` the number of
    rows read at a time.
    """

    columns: Columns
    split: str | None
    delimiter: str | None
    dtype: str
    rows: int

    @property
    def text(self) -> list[str]:
        """Columns of nodes that are no features; in text files they are read as text."""
        return [name for name in (self.columns.id, self.columns.label, self.split) if name is not None]


class NodeState:
    """Progress of reading nodes, stored as JSON in the journal."""

    def __init__(self, values: dict[str, Any] | None = None) -> None:
        values = values or {}
        self.rows: int = values.get("rows", 0)
        self.shards: list[int] = values.get("shards", [])  # rows of each finished shard
        self.text: bool | None = values.get("text")  # ids are text; None: unknown so far
        self.bytes: int = values.get("bytes", 0)  # of text ids
        self.longest: int = values.get("longest", 1)  # characters of the longest id
        self.in_order: bool = values.get("in_order", True)  # ids are 0, 1, 2, ...
        self.labels: dict[str, int] = {name: number for number, name in enumerate(values.get("labels", []))}
        self.columns: list[str] = values.get("columns", [])  # of features
        self.features: list[str] = values.get("features", [])
        self.width: int = values.get("width", 0)
        self.stored: int | None = values.get("stored")  # values of sparse features; None: dense

    @property
    def keys(self) -> str:
        """File of the keys: ids that are numbers, or hashes of ids that are text."""
        return "hashes.npy" if self.text else "numbers.npy"

    def values(self) -> dict[str, Any]:
        """Return the state as JSON values."""
        return {**vars(self), "labels": list(self.labels)}


class NodeWriter:
    """Writer that streams shards of nodes into a folder.

    ``state`` says where an earlier command stopped; ``numbers``, that ids of text files may become numbers, as those of
    edges may.
    """

    def __init__(self, folder: Path, work: Path, spec: TableSpec, state: NodeState, numbers: bool) -> None:
        self._folder, self._work, self._spec, self.state, self._numbers = folder, work, spec, state, numbers
        self._keys = Writer(work / state.keys, np.int64, None, state.rows)
        self._codes = Writer(work / "codes.npy", np.int32, None, state.rows)
        self._split: Writer | None = None
        if spec.split is not None:
            self._split = Writer(folder / "split.npy", np.int8, None, state.rows)
        self._matrix: FeatureWriter | None = None
        if state.rows:
            self._matrix = FeatureWriter(folder, work, spec.dtype, state.width, state.rows, state.stored)
        self._texts, self._lengths = self._text_writers()

    def _text_writers(self) -> tuple[Writer, Writer]:
        rows, size = (self.state.rows, self.state.bytes) if self.state.text else (0, 0)
        return Writer(self._work / "texts.npy", np.uint8, None, size), Writer(
            self._work / "lengths.npy", np.int32, None, rows
        )

    def add(self, shard: Shard) -> int:
        """Read one shard; return its number of rows."""
        types = self._types(shard)
        before = self.state.rows
        for batch in batches(shard, types, self._spec.rows, self._spec.delimiter):
            if batch.table.num_rows:
                self._ids(batch, shard)
                self._labels(batch, shard)
                self._parts(batch, shard)
                self._features(batch, shard)
                self.state.rows += batch.table.num_rows
        if self._matrix is not None:
            self._matrix.decide()
            self.state.stored = self._matrix.stored
        self.state.shards.append(self.state.rows - before)
        for file in self._files():
            file.flush()
        return self.state.shards[-1]

    def _types(self, shard: Shard) -> dict[str, Any]:
        """Return the columns of a shard to read and their types; all shards have the same features."""
        pa, _ = pyarrow_modules()
        columns, text = self._spec.columns, self._spec.text
        types = column_types(shard, text, self._spec.delimiter)
        if not shard.typed:  # columns that begin empty, as in a shard without rows
            types = {name: pa.float64() if pa.types.is_null(kind) else kind for name, kind in types.items()}
        for name, option in ((columns.id, "id"), (columns.label, "label"), (self._spec.split, "split")):
            if name is not None and name not in types:
                none = ", or say that there are no labels: label=None" if option == "label" else ""
                raise no_column(str(shard.path), name, types, f"name it: `{option}`{none}")
        chosen = columns.features or [name for name in types if name not in text and not INDEX.fullmatch(name)]
        for name in chosen:
            if name in text:
                raise GraphError(
                    f"{shard.path}: column {name} cannot be a feature, it is the id, the label or the split"
                )
            if name not in types:
                raise GraphError(f"{shard.path}: there is no column {name!r}, which is a feature; add it")
            if not (is_number(types[name]) or is_list(types[name])):
                kind = (
                    "text" if pa.types.is_string(types[name]) or pa.types.is_large_string(types[name]) else types[name]
                )
                raise GraphError(
                    f"{shard.path}, column {name} holds {kind}, not numbers; name the features, "
                    "`features`, or this column, if it is the split, as `split`"
                )
        if not chosen:
            raise GraphError(f"{shard.path}: no numeric feature columns beside id and label; give at least one")
        if self.state.columns and list(chosen) != self.state.columns:
            raise GraphError(f"{shard.path}: its features are not those of the first shard; give all the same columns")
        if not shard.typed:  # later rows may have fractions or empty fields
            for name, kind in types.items():
                types[name] = pa.string() if name in text else kind if pa.types.is_boolean(kind) else pa.float64()
        self.state.columns = list(chosen)
        return {name: types[name] for name in (*text, *chosen)}

    def _ids(self, batch: Batch, shard: Shard) -> None:
        place = f"{shard.path}, column {self._spec.columns.id}"
        array = ids_of(batch.table[self._spec.columns.id], place, batch.first)
        is_integer = pyarrow_modules()[0].types.is_integer(array.type)
        numbers = as_numbers(array) if is_integer or (self._numbers and not shard.typed) else None
        if shard.typed and self.state.text is (numbers is not None):
            others = "text" if self.state.text else "numbers"
            raise GraphError(f"{place} holds {array.type}, other shards {others}; write ids as one type")
        if numbers is None and not self.state.text:
            self._to_text()
        if numbers is None or self.state.text:
            self._add_texts(array, place, batch.first)
            return
        self.state.text, first = False, self.state.rows
        numbers = numbers.to_numpy()
        self.state.in_order &= bool((numbers == np.arange(first, first + len(numbers))).all())
        self._keys.add(numbers)

    def _add_texts(self, array: Any, place: str = "", first: int = 0) -> None:
        _, pc = pyarrow_modules()
        lengths = pc.utf8_length(array).to_numpy(zero_copy_only=False)
        if lengths.max() > LONGEST:
            row = first + int(lengths.argmax())
            raise GraphError(f"{place}: row {row} has an id of {lengths.max()} characters; at most {LONGEST} are kept")
        self.state.in_order = False
        self.state.longest = max(self.state.longest, int(lengths.max()))
        offsets, data = text_buffers(array)
        self._keys.add(hashes(array))
        self._lengths.add(np.diff(offsets))
        self._texts.add(data[offsets[0] : offsets[-1]])
        self.state.bytes += int(offsets[-1] - offsets[0])

    def _to_text(self) -> None:
        """Switch to text ids, also for the numbers read so far.

        The file of numbers is left unchanged for a command that continues after the last complete shard.
        """
        pa, _ = pyarrow_modules()
        numbers = self._keys
        numbers.close()
        self.state.text = True
        self._keys = Writer(self._work / self.state.keys, np.int64)
        with Chunks(numbers.path, np.int64, numbers.rows) as earlier:
            for first in range(0, numbers.rows, CHUNK):
                self._add_texts(pa.array(earlier.read(first, CHUNK)).cast(pa.string()))

    def _labels(self, batch: Batch, shard: Shard) -> None:
        label, classes = self._spec.columns.label, self.state.labels
        if label is None:
            self._codes.add(np.full(batch.table.num_rows, -1, np.int32))
            return
        pa, pc = pyarrow_modules()
        place = f"{shard.path}, column {label}"
        array = plain(batch.table[label])
        if pa.types.is_floating(array.type):
            numbers = pc.fill_null(array, 0).to_numpy(zero_copy_only=False)
            broken = np.flatnonzero((numbers != np.round(numbers)) & ~np.isnan(numbers) | np.isinf(numbers))
            if len(broken):
                at, value = batch.first + broken[0], numbers[broken[0]]
                raise GraphError(f"{place}: row {at} is {value}; labels are classes, so make classes of it first")
        elif not (is_number(array.type) or pa.types.is_string(array.type) or pa.types.is_null(array.type)):
            labels_of(array, place)  # raises the error for the type
        entries = array.dictionary_encode()
        table = [self._class(value, classes) for value in entries.dictionary.to_pylist()]
        if len(classes) > MOST_CLASSES:
            raise GraphError(f"{place}: more than {MOST_CLASSES:,} classes; check `label`")
        codes = pc.fill_null(entries.indices, len(table)).to_numpy(zero_copy_only=False)
        self._codes.add(np.array([*table, -1], np.int32)[codes])

    def _parts(self, batch: Batch, shard: Shard) -> None:
        if self._split is None:
            return
        column = batch.table[self._spec.split]
        numbers = np.full(len(column), -1, np.int8)
        for part, rows in parts_of(column, f"{shard.path}, column {self._spec.split}", batch.first).items():
            numbers[rows] = PARTS.index(part)
        self._split.add(numbers)

    @staticmethod
    def _class(value: Any, classes: dict[str, int]) -> int:
        """Return the number of a label, a new one if need be."""
        if isinstance(value, bool):
            value = "true" if value else "false"
        if value is None or value != value:
            return -1
        text = str(int(value)) if isinstance(value, int | float) else value.strip()
        return -1 if text.lower() in NO_LABEL else classes.setdefault(text, len(classes))

    def _features(self, batch: Batch, shard: Shard) -> None:
        arrays, names = [], []
        for name in self.state.columns:
            place = f"{shard.path}, column {name}"
            if is_list(batch.table[name].type):
                matrix = list_matrix(batch.table[name], place, batch.first)
                arrays.append(matrix)
                names += [f"{name}[{at}]" for at in range(matrix.shape[1])]
            else:
                arrays.append(numbers_of(batch.table[name], place, first=batch.first)[:, None])
                names.append(name)
        if self._matrix is None:
            self.state.features, self.state.width = names, len(names)
            self._matrix = FeatureWriter(self._folder, self._work, self._spec.dtype, len(names))
        elif names != self.state.features:
            raise GraphError(
                f"{shard.path}, row {batch.first}: {len(names)} features from here on, and {self.state.width} before"
            )
        with np.errstate(over="ignore"):
            numbers = (np.concatenate(arrays, 1) + np.float32(0)).astype(self._spec.dtype)  # -0.0 becomes 0.0
        bad = np.flatnonzero(~np.isfinite(numbers).all(1))
        if len(bad):
            raise GraphError(
                f"{shard.path}: row {batch.first + bad[0]} has a feature beyond 65,504, the most that float16 holds: "
                "dtype='float32'"
            )
        self._matrix.add(numbers)

    def close(self) -> None:
        """Finish after the last shard."""
        for file in self._files():
            file.close()

    def abandon(self) -> None:
        """Close incomplete files; a later writer continues after the last complete shard."""
        for file in self._files():
            file.abandon()

    def _files(self) -> list[Writer]:
        files = [self._keys, self._codes, self._texts, self._lengths, *([self._split] if self._split else [])]
        return files if self._matrix is None else [*files, *self._matrix.files]


def hashes(texts: Any) -> NDArray[np.int64]:
    """Return a hash of 64 bits for each text."""
    from ._edge_kernels import hash_texts  # here, as numba takes long to load

    return np.asarray(hash_texts(*text_buffers(texts)))


def finish_nodes(folder: Path, work: Path, state: NodeState) -> list[str]:
    """Write labels, ids and features in their final form; return the class names."""
    pa, _ = pyarrow_modules()
    texts = list(state.labels)
    codes, names = labels_of(pa.array(texts, pa.string()), "labels") if texts else (np.zeros(0, np.int64), [])
    table = np.append(codes, -1)
    kind = np.int16 if len(names) < 2**15 else np.int32
    with Writer(folder / "labels.npy", kind) as file, Chunks(work / "codes.npy", np.int32, state.rows) as codes_file:
        for first in range(0, state.rows, CHUNK):
            file.add(table[codes_file.read(first, CHUNK)])
    if state.stored is not None:
        finish_features(folder, work, state.rows, state.stored)
    id_kind = f"<U{state.longest}" if state.text else "<i8"
    with ExitStack() as stack:
        file = stack.enter_context(Writer(folder / "node_ids.npy", id_kind))
        keys = stack.enter_context(Chunks(work / state.keys, np.int64, state.rows))
        data = stack.enter_context(Chunks(work / "texts.npy", np.uint8, state.bytes))
        lengths = stack.enter_context(Chunks(work / "lengths.npy", np.int32, state.rows if state.text else 0))
        at, step = 0, max(1, min(CHUNK, TEXTS // (8 * state.longest)))
        for first in range(0, state.rows, step):
            if not state.text:
                file.add(keys.read(first, step))
                continue
            ends = np.cumsum(lengths.read(first, step), dtype=np.int64)
            text = data.read(at, int(ends[-1])).tobytes()
            begins = np.append(0, ends[:-1])
            file.add(np.array([text[b:e].decode() for b, e in zip(begins, ends, strict=True)], id_kind))
            at += int(ends[-1])
    return names


def place_of(number: int, shards: Sequence[Shard], rows: Sequence[int]) -> str:
    """Return the file and row of the node or edge with this number."""
    for shard, count in zip(shards, rows, strict=True):
        if number < count:
            return f"{shard.path}, row {number}"
        number -= count
    raise IndexError(number)


SAMPLE = 64  # rows that decide between dense and sparse


class FeatureWriter:
    """Writer of feature rows, dense or sparse, decided by the first 64 rows.

    ``rows`` and ``stored`` are the numbers of rows and of stored values that an interrupted writer left; ``stored`` is
    None for a dense matrix.
    """

    def __init__(
        self, folder: Path, work: Path, dtype: str, width: int, rows: int = 0, stored: int | None = None
    ) -> None:
        self._folder, self._work, self._dtype, self._width = folder, work, dtype, width
        self._waiting: list[NDArray[Any]] = []  # first rows, until there are SAMPLE of them
        self.files: list[Writer] = []
        if rows:
            self._open(rows, stored)

    def _open(self, rows: int, stored: int | None) -> None:
        if stored is None:
            self.files = [Writer(self._folder / "features.npy", self._dtype, self._width, rows)]
            return
        self.files = [
            Writer(self._folder / "feature_values.npy", self._dtype, None, stored),
            Writer(self._folder / "feature_columns.npy", np.int32, None, stored),
            Writer(self._work / "feature_ends.npy", np.int64, None, rows),
        ]

    @property
    def stored(self) -> int | None:
        """Number of stored values of a sparse matrix; None if it is dense."""
        return self.files[0].rows if len(self.files) > 1 else None

    def add(self, numbers: NDArray[Any]) -> None:
        """Append rows."""
        if not self.files:
            self._waiting.append(numbers)
            if sum(map(len, self._waiting)) >= SAMPLE:
                self.decide()
        elif self.stored is None:
            self.files[0].add(numbers)
        else:
            values, columns, ends = self.files
            ends.add(self.stored + np.cumsum(np.count_nonzero(numbers, axis=1)))
            places = np.nonzero(numbers)
            values.add(numbers[places])
            columns.add(places[1])

    def decide(self) -> None:
        """Choose the layout and write the rows that wait for it; independent of how many are read at a time."""
        if self._waiting:
            numbers = np.concatenate(self._waiting)
            first = numbers[:SAMPLE]
            self._waiting = []
            self._open(0, 0 if sparse_is_smaller(int(np.count_nonzero(first)), first.shape) else None)
            self.add(numbers)


def finish_features(folder: Path, work: Path, rows: int, stored: int) -> None:
    """Write the indices of a sparse matrix in their final form, int32 if they fit."""
    kind = np.dtype(np.int32 if stored <= INT32 else np.int64)
    with Writer(folder / "feature_starts.npy", kind) as file, Chunks(work / "feature_ends.npy", np.int64, rows) as ends:
        file.add(np.zeros(1))
        for first in range(0, rows, CHUNK):
            file.add(ends.read(first, CHUNK))
    columns, wide = folder / "feature_columns.npy", work / "feature_columns.npy"
    if np.load(columns, mmap_mode="r").dtype != kind:
        with Writer(wide, kind) as file, Chunks(columns, np.int32, stored) as narrow:
            for first in range(0, stored, CHUNK):
                file.add(narrow.read(first, CHUNK))
        os.replace(wide, columns)
