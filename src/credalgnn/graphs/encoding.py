"""Columns of a node table as features: how is learnt once, stored with a model, and the same for every later table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ._encoding_values import as_numbers, as_text, as_vectors, is_date, is_numeric, is_text, is_vector
from ._feature_blocks import Blocks
from ._table_files import pyarrow_modules
from .errors import GraphError, warn

FORMAT = 1  # of what to_json gives
MOST_VALUES = 100  # of a text column that have a feature each
MOST_RARE = 1000  # values of a text column without a feature that are remembered, to tell them from unseen ones
HEAVY_TAIL = 100.0  # standard deviations


@dataclass(frozen=True)
class NumberColumn:
    """A column of numbers, or of dates as seconds: ``(x - center) / scale``, or of log(1 + x) where ``log``.

    Args:
        name: The column.
        date: Whether it holds dates.
        log: Whether its logarithm is taken: sign(x) log(1 + \\|x\\|).
        center: What is subtracted.
        scale: What it is divided by then.
        fill: The feature where the number is missing.
        missing: Whether a second feature says that it is.
    """

    name: str
    date: bool
    log: bool
    center: float
    scale: float
    fill: float
    missing: bool

    @classmethod
    def fit(cls, name: str, numbers: NDArray[Any], date: bool) -> NumberColumn:
        """Learn from numbers, NaN where they are missing; at least one is there.

        Args:
            name: The column.
            numbers: Its numbers.
            date: Whether these are dates, as seconds.
        """
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
        """What its features are called."""
        return [self.name, *([f"{self.name} is missing"] if self.missing else [])]

    def encode(self, numbers: NDArray[Any], blocks: Blocks, where: str) -> None:
        """Add its features.

        Args:
            numbers: Its numbers, NaN where they are missing.
            blocks: What they are added to.
            where: What the column is called in messages.
        """
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
    """A column of text: a feature for each frequent value, one for all others, and one for none.

    Args:
        name: The column.
        values: Those with a feature of their own, the most frequent first.
        rare: Other values that were there; None if these are too many to remember.
        missing: Whether a feature says that there is no value.
    """

    name: str
    values: tuple[str, ...]
    rare: tuple[str, ...] | None
    missing: bool

    @classmethod
    def fit(cls, name: str, array: Any) -> CategoryColumn:
        """Learn from text.

        Args:
            name: The column.
            array: Its values, null where they are missing.
        """
        _, pc = pyarrow_modules()
        counted = pc.value_counts(array.drop_null())
        values, counts = counted.field("values"), counted.field("counts").to_numpy()
        often = np.flatnonzero(counts >= 2)
        often = often[np.argsort(-counts[often], kind="stable")]
        if len(often) > MOST_VALUES:  # of those that are as frequent as the last one, the first in the alphabet
            often = often[counts[often] >= counts[often[MOST_VALUES - 1]]]
        ranked = sorted(zip(-counts[often], values.take(often).to_pylist(), strict=True))
        kept = tuple(value for _, value in ranked[:MOST_VALUES])
        rest = len(values) - len(kept)
        rare = None if rest > MOST_RARE else tuple(sorted(set(values.to_pylist()) - set(kept)))
        return cls(name, kept, rare, bool(array.null_count))

    def features(self) -> list[str]:
        """What its features are called."""
        names = [*self.values, "(other)", *(["(missing)"] if self.missing else [])]
        return [f"{self.name}={value}" for value in names]

    def encode(self, array: Any, blocks: Blocks) -> None:
        """Add its features; a missing value where none was missing is in no feature.

        Args:
            array: Its values, null where they are missing.
            blocks: What they are added to.
        """
        pa, pc = pyarrow_modules()
        codes = pc.index_in(array, value_set=pa.array(self.values, pa.string()), skip_nulls=True)
        codes = pc.fill_null(codes, len(self.values)).to_numpy(zero_copy_only=False).astype(np.int16)
        if array.null_count:
            codes[pc.is_null(array).to_numpy(zero_copy_only=False)] = len(self.values) + 1 if self.missing else -1
        blocks.add_one_hot(codes, len(self.values) + 1 + self.missing)

    def unseen(self, array: Any) -> tuple[int, list[str]]:
        """How many rows have a value that was not there, and some of these values.

        Args:
            array: The values of a table, null where they are missing.
        """
        pa, pc = pyarrow_modules()
        if self.rare is None:
            return 0, []
        seen = pc.is_in(array, value_set=pa.array([*self.values, *self.rare, None], pa.string()))
        strange = array.filter(pc.invert(seen))
        return len(strange), pc.unique(strange)[:3].to_pylist()


@dataclass(frozen=True)
class VectorColumn:
    """A column of lists of numbers, all of one length, such as embeddings: each place is a column of numbers.

    Args:
        name: The column.
        places: How the number at each place is encoded.
        missing: Whether a further feature says that a number of the list, or all of it, is missing.
    """

    name: str
    places: tuple[NumberColumn, ...]
    missing: bool

    @classmethod
    def fit(cls, name: str, matrix: NDArray[Any]) -> VectorColumn:
        """Learn from a matrix with a row for each list.

        Args:
            name: The column.
            matrix: The numbers, NaN where they are missing.
        """
        places = []
        for at in range(matrix.shape[1]):
            numbers = matrix[:, at]
            there = numbers[~np.isnan(numbers)]
            places.append(NumberColumn.fit(f"{name}[{at}]", there if len(there) else np.zeros(1), False))
        return cls(name, tuple(places), bool(np.isnan(matrix).any()))

    def features(self) -> list[str]:
        """What its features are called."""
        names = [feature for place in self.places for feature in place.features()]
        return [*names, *([f"{self.name} is missing"] if self.missing else [])]

    def encode(self, matrix: NDArray[Any], blocks: Blocks, where: str) -> None:
        """Add its features.

        Args:
            matrix: The numbers, NaN where they are missing.
            blocks: What they are added to.
            where: What the column is called in messages.
        """
        for at, place in enumerate(self.places):
            place.encode(matrix[:, at], blocks, where)
        if self.missing:
            blocks.add(np.isnan(matrix).any(1).astype(np.float32))


Column: TypeAlias = NumberColumn | CategoryColumn | VectorColumn
KINDS: dict[str, type[Column]] = {"number": NumberColumn, "category": CategoryColumn, "vector": VectorColumn}


@dataclass(frozen=True)
class FeatureEncoder:
    """Makes features of the columns of a node table; learnt from one table (``fit``), applied to any later one.

    - **Numbers** (true and false are 1 and 0). Columns of zeros and ones stay as they are. Columns of which at least
      half is zero are divided by their largest absolute value, so that zero stays zero. All others are standardised to
      mean 0 and standard deviation 1; a constant is only centred. If no number is negative and the largest is more than
      100 standard deviations above the mean (of the numbers that are not zero, where half is), log(1 + x) is taken
      first.
    - **Missing numbers** become the mean, or zero where at least half of the column is zero. Where some are missing
      when the encoder is learnt, a feature ``NAME is missing`` says so. Infinite ones are refused.
    - **Dates** are numbers: seconds, standardised.
    - **Text** gets a feature ``NAME=value`` for each of the 100 most frequent values that stand in at least two rows.
      Others, and those that only a later table has, share ``NAME=(other)``; missing ones have ``NAME=(missing)`` if
      some are missing when the encoder is learnt. A column whose text differs from row to row says nothing about other
      rows and is left out, unless it is asked for by name: if it has more than 100 values and more than half as many as
      rows, or no value stands in two rows.
    - **Lists of numbers** of one length have a feature ``NAME[0]``, ``NAME[1]``, ... each, treated like numbers.

    Args:
        columns: How each column is encoded, in the order of the features.
        ignored: Other columns of the table it was learnt from.
    """

    columns: tuple[Column, ...]
    ignored: tuple[str, ...]

    @classmethod
    def fit(cls, table: Any, columns: Sequence[str] | None, name: str) -> FeatureEncoder:
        """Learn how to encode the columns of a table.

        Args:
            table: A pyarrow table with a row for each node.
            columns: The columns that are features. None: all of them, but for text that differs from row to row.
            name: What the table is called in messages.
        """
        chosen = list(table.column_names if columns is None else columns)
        _refuse_missing(table, chosen, name, "name others as features")
        learnt = []
        for column in chosen:
            code = _fit(table[column], column, f"{name}, column {column}", asked=columns is not None)
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
        """What the features are called."""
        return tuple(feature for column in self.columns for feature in column.features())

    @property
    def text_columns(self) -> list[str]:
        """The columns of text: to be read as such, even from a file in which they look like numbers."""
        return [column.name for column in self.columns if isinstance(column, CategoryColumn)]

    def __call__(self, table: Any, name: str) -> tuple[Any, tuple[str, ...]]:
        """The features ``[N, F]`` of a table, float32 (a scipy CSR matrix if that is smaller), and their names.

        The order of columns does not matter. Columns that are missing are refused; further ones, and values of text
        that were not there when the encoder was learnt, are announced by a ``GraphWarning``.

        Args:
            table: A pyarrow table with a row for each node.
            name: What the table is called in messages.
        """
        _refuse_missing(table, [column.name for column in self.columns], name, "the model was fitted with it: add it")
        known = {column.name for column in self.columns} | set(self.ignored)
        further = [column for column in table.column_names if column not in known]
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
        """All of it as plain values that JSON can hold."""
        names = {kind: name for name, kind in KINDS.items()}
        columns = [{"kind": names[type(column)], **asdict(column)} for column in self.columns]
        return {"format": FORMAT, "columns": columns, "ignored": list(self.ignored)}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> FeatureEncoder:
        """The encoder that ``to_json`` took apart.

        Args:
            values: What ``to_json`` gave.
        """
        if not isinstance(values, dict) or values.get("format") != FORMAT:
            raise GraphError("not an encoder of features that this version knows: fit the model again")
        try:
            ignored = tuple(values["ignored"])
            if not all(isinstance(name, str) for name in ignored):
                raise TypeError("columns are called by texts")
            return cls(tuple(_column(column) for column in values["columns"]), ignored)
        except (KeyError, TypeError) as error:
            raise GraphError(f"not an encoder of features ({error}): fit the model again") from None


def _fit(column: Any, name: str, where: str, asked: bool) -> Column | str:
    """How a column is encoded, or why it is not; text that differs from row to row is if it was asked for."""
    _, pc = pyarrow_modules()
    kind = column.type
    if is_text(kind):
        text = as_text(column, where)
        if text.null_count == len(text):
            return "it is empty"
        code, distinct, rows = CategoryColumn.fit(name, text), pc.count_distinct(text).as_py(), len(text)
        if not asked and (not code.values or (distinct > MOST_VALUES and 2 * distinct > rows - text.null_count)):
            return "its text differs from row to row; features=[...] (--features), with all that are to be, takes it in"
        return code
    if is_vector(kind):
        matrix = as_vectors(column, where)
        return "it is empty" if np.isnan(matrix).all() else VectorColumn.fit(name, matrix)
    if is_numeric(kind) or is_date(kind):
        numbers = as_numbers(column, where, is_date(kind))
        return "it is empty" if np.isnan(numbers).all() else NumberColumn.fit(name, numbers, is_date(kind))
    raise GraphError(f"{where} holds {kind}, of which no features can be made; name the features: features=[...]")


def _column(values: dict[str, Any]) -> Column:
    fields: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in values.items()
    }
    kind = KINDS[fields.pop("kind")]
    if kind is VectorColumn:
        fields["places"] = tuple(NumberColumn(**place) for place in fields["places"])
    return kind(**fields)


def _refuse_missing(table: Any, columns: Sequence[str], name: str, remedy: str) -> None:
    there = set(table.column_names)
    missing = [column for column in columns if column not in there]
    if missing:
        among = ", ".join(table.column_names[:12])
        raise GraphError(f"{name}: there is no column {_quoted(missing)}; the columns are {among}; {remedy}")


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names[:12]) + (", ..." if len(names) > 12 else "")
