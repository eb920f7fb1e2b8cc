"""Encoding of table columns as features: fitted once, stored with a model, applied to later tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..runtime.errors import translated
from ._checks import sparse_is_smaller
from ._table_files import plain, pyarrow_modules
from .errors import GraphError, warn
from .tables import NO_LABEL

FORMAT = 1  # of to_json
MOST_VALUES = 100  # of a text column with a feature each
MOST_RARE = 1000  # stored values of a text column without a feature, to distinguish them from unseen ones
HEAVY_TAIL = 100.0  # standard deviations


@dataclass(frozen=True)
class NumberColumn:
    """Numbers, or dates in seconds, as ``(x - center) / scale``; ``log`` takes sign(x) log(1 + abs(x)) first."""

    name: str
    date: bool
    log: bool
    center: float
    scale: float
    fill: float
    missing: bool

    @classmethod
    def fit(cls, name: str, numbers: NDArray[Any], date: bool) -> NumberColumn:
        """Fit to numbers, NaN where they are missing; at least one is not."""
        absent = np.isnan(numbers)
        missing = bool(absent.any())
        values = (numbers[~absent] if missing else numbers).astype(np.float64, copy=False)
        active = np.count_nonzero(values)
        thin = 2 * active <= len(values)  # at least half of them are zero
        if active == np.count_nonzero(values == 1):
            return cls(name, date, False, 0.0, 1.0, 0.0 if thin else float(values.mean()), missing)
        spread = values[values != 0] if thin else values
        log = bool(values.min() >= 0 and spread.max() > spread.mean() + HEAVY_TAIL * spread.std() > spread.mean())
        if log:
            values = np.log1p(values)
        if thin:
            return cls(name, date, log, 0.0, float(np.abs(values).max()), 0.0, missing)
        constant = values.min() == values.max()
        center, scale = (values[0], 1.0) if constant else (values.mean(), values.std())
        return cls(name, date, log, float(center), float(scale) or 1.0, 0.0, missing)

    def features(self) -> list[str]:
        """Return the names of the features."""
        return [self.name, *([f"{self.name} is missing"] if self.missing else [])]

    def encode(self, numbers: NDArray[Any], blocks: Blocks, where: str) -> None:
        """Add the features of numbers, NaN where they are missing."""
        absent = np.isnan(numbers)
        scaled = np.sign(numbers) * np.log1p(np.abs(numbers)) if self.log else numbers.astype(np.float64, copy=False)
        if (self.center, self.scale) != (0.0, 1.0):
            scaled = (scaled - self.center) / self.scale
        if absent.any():
            scaled = np.where(absent, self.fill, scaled)
        huge = np.flatnonzero(np.abs(scaled) > np.finfo(np.float32).max)
        if len(huge):
            raise GraphError(f"{where}: row {huge[0]} is {numbers[huge[0]]}; fill or drop it first")
        blocks.add(scaled.astype(np.float32))
        if self.missing:
            blocks.add(absent.astype(np.float32))


@dataclass(frozen=True)
class CategoryColumn:
    """Text as a feature for each frequent value, one for all others, and one for missing values."""

    name: str
    values: tuple[str, ...]
    rare: tuple[str, ...] | None
    missing: bool

    @classmethod
    def fit(cls, name: str, array: Any) -> CategoryColumn:
        """Fit to an array of text, null where it is missing."""
        _, pc = pyarrow_modules()
        counted = pc.value_counts(array.drop_null())
        values, counts = counted.field("values"), counted.field("counts").to_numpy()
        often = np.flatnonzero(counts >= 2)
        often = often[np.argsort(-counts[often], kind="stable")]
        if len(often) > MOST_VALUES:  # ties are broken alphabetically
            often = often[counts[often] >= counts[often[MOST_VALUES - 1]]]
        ranked = sorted(zip(-counts[often], values.take(often).to_pylist(), strict=True))
        frequent = tuple(value for _, value in ranked[:MOST_VALUES])
        rest = len(values) - len(frequent)
        rare = None if rest > MOST_RARE else tuple(sorted(set(values.to_pylist()) - set(frequent)))
        return cls(name, frequent, rare, bool(array.null_count))

    def features(self) -> list[str]:
        """Return the names of the features."""
        names = [*self.values, "(other)", *(["(missing)"] if self.missing else [])]
        return [f"{self.name}={value}" for value in names]

    def encode(self, array: Any, blocks: Blocks) -> None:
        """Add the features of text; a missing value sets none if none was missing in fit."""
        pa, pc = pyarrow_modules()
        codes = pc.index_in(array, value_set=pa.array(self.values, pa.string()), skip_nulls=True)
        codes = pc.fill_null(codes, len(self.values)).to_numpy(zero_copy_only=False).astype(np.int16)
        if array.null_count:
            codes[pc.is_null(array).to_numpy(zero_copy_only=False)] = len(self.values) + 1 if self.missing else -1
        blocks.add_one_hot(codes, len(self.values) + 1 + self.missing)

    def unseen(self, array: Any) -> tuple[int, list[str]]:
        """Return the number of rows with values unseen in fit, and some of these values."""
        pa, pc = pyarrow_modules()
        if self.rare is None:
            return 0, []
        seen = pc.is_in(array, value_set=pa.array([*self.values, *self.rare, None], pa.string()))
        strange = array.filter(pc.invert(seen))
        return len(strange), pc.unique(strange)[:3].to_pylist()


@dataclass(frozen=True)
class VectorColumn:
    """Lists of numbers of one length, such as embeddings: each place is a column of numbers."""

    name: str
    places: tuple[NumberColumn, ...]
    missing: bool

    @classmethod
    def fit(cls, name: str, matrix: NDArray[Any]) -> VectorColumn:
        """Fit to a matrix with a row for each list, NaN where numbers are missing."""
        places = []
        for at in range(matrix.shape[1]):
            numbers = matrix[:, at]
            present = numbers[~np.isnan(numbers)]
            places.append(NumberColumn.fit(f"{name}[{at}]", present if len(present) else np.zeros(1), False))
        return cls(name, tuple(places), bool(np.isnan(matrix).any()))

    def features(self) -> list[str]:
        """Return the names of the features."""
        names = [feature for place in self.places for feature in place.features()]
        return [*names, *([f"{self.name} is missing"] if self.missing else [])]

    def encode(self, matrix: NDArray[Any], blocks: Blocks, where: str) -> None:
        """Add the features of a matrix, NaN where numbers are missing."""
        for at, place in enumerate(self.places):
            place.encode(matrix[:, at], blocks, where)
        if self.missing:
            blocks.add(np.isnan(matrix).any(1).astype(np.float32))


Column: TypeAlias = NumberColumn | CategoryColumn | VectorColumn
KINDS: dict[str, type[Column]] = {"number": NumberColumn, "category": CategoryColumn, "vector": VectorColumn}


@dataclass(frozen=True)
class FeatureEncoder:
    """Encoder of the columns of a node table as features; fitted to one table (``fit``), applied to any later one.

    - **Numbers** (true and false are 1 and 0). Columns of zeros and ones are unchanged. Columns that are at least half
      zero are divided by their largest absolute value, so that zero stays zero. All others are standardised to mean 0
      and standard deviation 1; a constant is only centred. If no number is negative and the largest is more than 100
      standard deviations above the mean (of the non-zero numbers, where half are zero), log(1 + x) is taken first.
    - **Missing numbers** become the mean, or zero where at least half of the column is zero. If some are missing in
      fit, a feature ``NAME is missing`` marks them. Infinite numbers are refused.
    - **Dates** are numbers: seconds, standardised.
    - **Text** has a feature ``NAME=value`` for each of the 100 most frequent values that occur in at least two rows.
      Others, and those first seen in a later table, share ``NAME=(other)``; missing ones have ``NAME=(missing)`` if
      some are missing in fit. A column that differs from row to row is left out unless it is named: one with more than
      100 values and more than half as many as rows, or without any repeated value.
    - **Lists of numbers** of one length have features ``NAME[0]``, ``NAME[1]``, ..., each treated like numbers.

    Args:
        columns: Encoding of each column, in the order of the features.
        ignored: Other columns of the table it was fitted to.

    Example:
        >>> import pyarrow as pa
        >>> from credalgnn.graphs import FeatureEncoder
        >>> encoder = FeatureEncoder.fit(pa.table({"town": ["Rome", "Oslo", "Rome"]}), None, "nodes")
        >>> encoder.feature_names
        ('town=Rome', 'town=(other)')
    """

    columns: tuple[Column, ...]
    ignored: tuple[str, ...]

    @classmethod
    def fit(cls, table: Any, columns: Sequence[str] | None, name: str) -> FeatureEncoder:
        """Fit an encoder to a table.

        Args:
            table: A pyarrow table with a row for each node.
            columns: Feature columns. None: all, except text that differs from row to row.
            name: Name of the table in messages.
        """
        chosen = list(table.column_names if columns is None else columns)
        _refuse_missing(table, chosen, name, "name others as features")
        learnt = []
        for column in chosen:
            code = _fit(table[column], column, f"{name}, column {column}", named=columns is not None)
            if isinstance(code, str):
                warn(f"{name}: the column {column!r} is left out: {code}")
            else:
                learnt.append(code)
        if not learnt:
            raise GraphError(f"{name}: no column is left to make features of; give at least one")
        used = {code.name for code in learnt}
        return cls(tuple(learnt), tuple(other for other in table.column_names if other not in used))

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features."""
        return tuple(feature for column in self.columns for feature in column.features())

    @property
    def text_columns(self) -> list[str]:
        """Columns to be read as text, even from a file in which they look like numbers."""
        return [column.name for column in self.columns if isinstance(column, CategoryColumn)]

    def __call__(self, table: Any, name: str) -> tuple[Any, tuple[str, ...]]:
        """Return the features ``[N, F]`` of a table, float32 (a scipy CSR matrix if that is smaller), and their names.

        The order of columns does not matter. Missing columns are refused; further ones, and text unseen in fit, cause a
        ``GraphWarning``.

        Args:
            table: A pyarrow table with a row for each node.
            name: Name of the table in messages.
        """
        _refuse_missing(table, [column.name for column in self.columns], name, "the model was fitted with it: add it")
        expected = {column.name for column in self.columns} | set(self.ignored)
        further = [column for column in table.column_names if column not in expected]
        if further:
            warn(f"{name}: {_quoted(further)} were not there when the model was fitted, and are not used")
        blocks, rows, strange = Blocks(table.num_rows), 0, []
        for column in self.columns:
            where, array = f"{name}, column {column.name}", table[column.name]
            if isinstance(column, NumberColumn):
                column.encode(as_numbers(array, where, column.date), blocks, where)
            elif isinstance(column, VectorColumn):
                column.encode(as_vectors(array, where, len(column.places)), blocks, where)
            else:
                text = as_text(array, where)
                column.encode(text, blocks)
                count, values = column.unseen(text)
                rows += count
                strange += [f"{column.name}={value}" for value in values]
        if strange:
            warn(
                f"{name}: {rows} fields hold values that were not there when the model was fitted, and count as other: "
                f"{_quoted(strange)}"
            )
        return blocks.matrix(), self.feature_names

    def to_json(self) -> dict[str, Any]:
        """Return the encoder as JSON values."""
        names = {kind: name for name, kind in KINDS.items()}
        columns = [{"kind": names[type(column)], **asdict(column)} for column in self.columns]
        return {"format": FORMAT, "columns": columns, "ignored": list(self.ignored)}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> FeatureEncoder:
        """Return the encoder that ``to_json`` stored.

        Args:
            values: Result of ``to_json``.
        """
        if not isinstance(values, dict) or values.get("format") != FORMAT:
            raise GraphError("not an encoder of features that this version knows: fit the model again")
        with translated(
            (KeyError, TypeError),
            lambda error: GraphError(f"not an encoder of features ({error}): fit the model again"),
        ):
            ignored = tuple(values["ignored"])
            if not all(isinstance(name, str) for name in ignored):
                raise TypeError("columns are called by texts")
            return cls(tuple(_column(column) for column in values["columns"]), ignored)


def _fit(column: Any, name: str, where: str, named: bool) -> Column | str:
    """Return the encoding of a column, or why it is left out; text that differs from row to row needs to be named."""
    _, pc = pyarrow_modules()
    kind = column.type
    if is_text(kind):
        text = as_text(column, where)
        if text.null_count == len(text):
            return "it is empty"
        code, distinct, rows = CategoryColumn.fit(name, text), pc.count_distinct(text).as_py(), len(text)
        if not named and (not code.values or (distinct > MOST_VALUES and 2 * distinct > rows - text.null_count)):
            return "its text differs from row to row; to use it, name all features: `features`"
        return code
    if is_vector(kind):
        matrix = as_vectors(column, where)
        return "it is empty" if np.isnan(matrix).all() else VectorColumn.fit(name, matrix)
    if is_numeric(kind) or is_date(kind):
        numbers = as_numbers(column, where, is_date(kind))
        return "it is empty" if np.isnan(numbers).all() else NumberColumn.fit(name, numbers, is_date(kind))
    raise GraphError(f"{where} holds {kind}, of which no features can be made; name the features: `features`")


def _column(values: dict[str, Any]) -> Column:
    fields: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in values.items()
    }
    kind = KINDS[fields.pop("kind")]
    if kind is VectorColumn:
        fields["places"] = tuple(NumberColumn(**place) for place in fields["places"])
    return kind(**fields)


def _refuse_missing(table: Any, columns: Sequence[str], name: str, remedy: str) -> None:
    present = set(table.column_names)
    missing = [column for column in columns if column not in present]
    if missing:
        among = ", ".join(table.column_names[:12])
        raise GraphError(f"{name}: there is no column {_quoted(missing)}; the columns are {among}; {remedy}")


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names[:12]) + (", ..." if len(names) > 12 else "")


NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}


def is_text(kind: Any) -> bool:
    """Check that a type is text, or categories of any type."""
    types = pyarrow_modules()[0].types
    return bool(types.is_dictionary(kind) or _is_string(kind))


def is_vector(kind: Any) -> bool:
    """Check that a type is a list of numbers."""
    types = pyarrow_modules()[0].types
    lists = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    return bool(lists and is_numeric(kind.value_type))


def is_date(kind: Any) -> bool:
    """Check that a type is a date, with or without a time."""
    types = pyarrow_modules()[0].types
    return bool(types.is_date(kind) or types.is_timestamp(kind))


def is_numeric(kind: Any) -> bool:
    """Check that a type is numeric; booleans, durations, times of day and empty columns are."""
    types = pyarrow_modules()[0].types
    number = types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)
    return bool(number or types.is_boolean(kind) or types.is_null(kind) or types.is_time(kind) or _is_duration(kind))


def as_numbers(column: Any, where: str, date: bool) -> NDArray[Any]:
    """Return float32 or float64 numbers, NaN where they are missing; dates, durations and times in seconds."""
    pa, _ = pyarrow_modules()
    array = plain(column)
    if _is_string(array.type):
        array = _dates_of_text(array, where) if date else _numbers_of_text(array, where)
    kind = array.type
    if not (pa.types.is_null(kind) or (is_date(kind) if date else is_numeric(kind))):
        expected = "dates" if date else "numbers"
        raise GraphError(f"{where} holds {kind}, and {expected} when the model was fitted: give it the same type")
    numbers = _floats(array)
    infinite = np.flatnonzero(np.isinf(numbers))
    if len(infinite):
        raise GraphError(f"{where}: row {infinite[0]} is {numbers[infinite[0]]}; fill or drop it first")
    return numbers


def as_text(column: Any, where: str) -> Any:
    """Return stripped text, null where it is missing; whole numbers without a decimal point."""
    pa, pc = pyarrow_modules()
    array = plain(column)
    if pa.types.is_floating(array.type):
        array = pc.if_else(pc.is_nan(array), pa.scalar(None, array.type), array)
        if pc.all(pc.equal(array, pc.round(array))).as_py():
            array = array.cast(pa.int64(), safe=False)
    if not _is_string(array.type):
        if is_vector(array.type) or pa.types.is_nested(array.type):
            raise GraphError(f"{where} holds {array.type}, and text when the model was fitted: give it the same type")
        array = array.cast(pa.string())
    return plain(pc.utf8_trim_whitespace(array))


def as_vectors(column: Any, where: str, length: int | None = None) -> NDArray[Any]:
    """Return lists of numbers as a matrix, NaN where there is none; all must have one ``length``."""
    pa, pc = pyarrow_modules()
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if not is_vector(array.type):
        raise GraphError(f"{where} holds {array.type}, and lists of numbers when the model was fitted")
    lengths = pc.list_value_length(array).to_numpy(zero_copy_only=False)
    present = ~pc.is_null(array).to_numpy(zero_copy_only=False)
    rows = np.flatnonzero(present)
    if length is None:
        length = int(lengths[rows[0]]) if len(rows) else 0
    other = rows[lengths[rows] != length]
    if len(other):
        raise GraphError(f"{where}: row {other[0]} is a list of {int(lengths[other[0]])} numbers, not of {length}")
    flat = _floats(array.flatten()).reshape(len(rows), length)
    infinite = np.argwhere(np.isinf(flat))
    if len(infinite):
        row, place = infinite[0]
        raise GraphError(f"{where}: row {rows[row]} holds {flat[row, place]} at place {place}; fill or drop it first")
    if len(rows) == len(array):
        return flat
    matrix = np.full((len(array), length), np.nan, flat.dtype)
    matrix[rows] = flat
    return matrix


def _floats(array: Any) -> NDArray[Any]:
    """Return numbers and times (in seconds), float32 or float64, NaN where they are missing."""
    pa, _ = pyarrow_modules()
    kind, factor = array.type, 1.0
    if pa.types.is_float32(kind):
        return np.asarray(array.to_numpy(zero_copy_only=False))
    if pa.types.is_date32(kind):
        array, factor = array.cast(pa.int32()), 86400.0
    elif pa.types.is_date64(kind):
        array, factor = array.cast(pa.int64()), 1e-3
    elif pa.types.is_timestamp(kind) or pa.types.is_time(kind) or _is_duration(kind):
        array, factor = array.cast(pa.int32() if pa.types.is_time32(kind) else pa.int64()), SECONDS[kind.unit]
    elif pa.types.is_boolean(kind):
        array = array.cast(pa.int8())
    numbers = array.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return np.asarray(numbers if factor == 1 else numbers * factor)


def _is_string(kind: Any) -> bool:
    types = pyarrow_modules()[0].types
    return bool(types.is_string(kind) or types.is_large_string(kind))


def _is_duration(kind: Any) -> bool:
    return bool(pyarrow_modules()[0].types.is_duration(kind))


def _numbers_of_text(array: Any, where: str) -> Any:
    """Return numbers that were read as text; a single odd field in a CSV file causes that."""
    pa, pc = pyarrow_modules()
    words = pc.utf8_lower(pc.utf8_trim_whitespace(array))
    words = pc.if_else(pc.is_in(words, value_set=pa.array(NO_LABEL)), pa.scalar(None, pa.string()), words)
    words = pc.if_else(pc.equal(words, "true"), "1", pc.if_else(pc.equal(words, "false"), "0", words))
    odd = pc.invert(pc.match_substring_regex(words, NUMBER))
    if pc.any(odd).as_py():
        row = int(pc.index(odd, True).as_py())
        raise GraphError(
            f"{where}: row {row} is {array[row].as_py()!r:.60}, and the column held numbers when the model was fitted; "
            "empty the field, or write a number"
        )
    return pc.utf8_ltrim(words, characters="+").cast(pa.float64())


def _dates_of_text(array: Any, where: str) -> Any:
    pa, _ = pyarrow_modules()
    with translated(
        pa.ArrowInvalid,
        lambda error: GraphError(
            f"{where} held dates when the model was fitted ({error}); write dates as 2026-01-31 or 2026-01-31 12:00:00"
        ),
    ):
        return array.cast(pa.timestamp("us"))


class Blocks:
    """Columns of a float32 matrix, each dense or as its non-zero numbers, whichever is smaller."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._active = 0
        self._columns: list[NDArray[np.float32] | tuple[NDArray[np.int32], NDArray[np.float32]]] = []

    def add(self, column: NDArray[np.float32]) -> None:
        """Append a column."""
        active = int(np.count_nonzero(column))
        self._active += active
        if 2 * active < self._rows:
            at = np.flatnonzero(column).astype(np.int32)
            self._columns.append((at, column[at]))
        else:
            self._columns.append(column)

    def add_one_hot(self, codes: NDArray[np.int16], count: int) -> None:
        """Append ``count`` columns; each row has a one in the column of its code, none below 0."""
        order = np.argsort(codes, kind="stable").astype(np.int32)  # a radix sort, as codes are short
        starts = np.searchsorted(codes[order], np.arange(count + 1))
        for start, end in pairwise(starts.tolist()):
            self._columns.append((order[start:end], np.ones(end - start, np.float32)))
        self._active += int(starts[-1] - starts[0])

    def matrix(self) -> Any:
        """Return all columns, dense or as a scipy CSR matrix, and free their memory; to be called once."""
        shape = (self._rows, len(self._columns))
        if sparse_is_smaller(self._active, shape):
            return self._sparse(shape)
        matrix = np.zeros(shape, np.float32)
        for at in reversed(range(shape[1])):
            column = self._columns.pop()
            if isinstance(column, tuple):
                matrix[column[0], at] = column[1]
            else:
                matrix[:, at] = column
        return matrix

    def _sparse(self, shape: tuple[int, int]) -> Any:
        from scipy.sparse import csc_array

        wide = np.int64 if self._active > np.iinfo(np.int32).max else np.int32
        starts, rows, values = np.zeros(shape[1] + 1, wide), np.empty(self._active, wide), np.empty(self._active, "f4")
        for at, column in enumerate(self._columns):
            here, numbers = column if isinstance(column, tuple) else (np.flatnonzero(column), column[column != 0])
            starts[at + 1] = starts[at] + len(here)
            rows[starts[at] : starts[at + 1]], values[starts[at] : starts[at + 1]] = here, numbers
        self._columns.clear()
        return csc_array((values, rows, starts), shape=shape).tocsr()
