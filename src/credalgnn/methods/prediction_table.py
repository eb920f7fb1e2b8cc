"""Predictions as a table: one row a node, for people and other programs (docs/predictions.md)."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ..runtime.files import atomic
from .prediction import MethodError, Prediction

if TYPE_CHECKING:
    import pyarrow

SCHEMA = "1"
EXPLAINED = 20_000  # flagged nodes at the most that are explained, those with the smallest p-values
SEPARATOR = "|"
CHUNK = 1 << 16  # rows whose texts are made at a time


def table_of(
    prediction: Prediction,
    false_alarms: float | None,
    coverage: float | None,
    reasons: bool,
    explained: int = EXPLAINED,
) -> pyarrow.Table:
    """See ``Prediction.to_table``.

    Args:
        prediction: Of a method that classifies, or of one that scores only.
        false_alarms: The rate at which nodes are flagged; None: there are no flags.
        coverage: Of the classes that stay in question; None: these are left out.
        reasons: Explain flagged nodes.
        explained: So many of them at the most.
    """
    import pyarrow as pa

    names = prediction.class_names
    check_class_names(names, prediction.credal is not None)
    ids = prediction.nodes.numpy() if prediction.node_ids is None else prediction.node_ids
    columns: dict[str, Any] = {"id": ids}
    if prediction.probabilities is not None:
        classes = prediction.classes
        columns["class"] = pa.array(np.array(names, dtype=object)[classes.numpy()], pa.string())
        columns["probability"] = prediction.probabilities.gather(1, classes[:, None]).squeeze(1).double().numpy()
        bounds = {"p": prediction.probabilities}
        if prediction.credal is not None:
            bounds = {"lower": prediction.credal.lower, "upper": prediction.credal.upper}
        for side, values in bounds.items():
            columns.update({f"{side}_{name}": values[:, k].double().numpy() for k, name in enumerate(names)})
    for name, values in prediction.scores.items():
        shown = (-values).exp().clamp_max(1.0) if name == "coverage" else values
        columns[name] = shown.double().numpy()
    metadata = {"credalgnn.schema": SCHEMA, "credalgnn.class_names": json.dumps(names)}
    flagged = torch.zeros(len(prediction.nodes), dtype=torch.bool)
    if prediction.calibration is not None:
        columns["p_value"] = prediction.p_values.numpy()
        if false_alarms is not None:
            flagged = prediction.flag_unfamiliar(false_alarms)
            columns["unfamiliar"] = flagged.numpy()
            metadata["credalgnn.false_alarms"] = f"{false_alarms:g}"
        if prediction.probabilities is not None and coverage is not None:
            columns["classes"] = pa.array(_classes(prediction, prediction.sets(coverage)), pa.string())
            metadata["credalgnn.coverage"] = f"{coverage:g}"
    if reasons:
        columns["reasons"] = pa.array(_reasons(prediction, flagged, explained), pa.string())
    return pa.table(columns).replace_schema_metadata(metadata)


def check_class_names(names: Sequence[str], credal: bool) -> None:
    """Refuse names of classes that would make the table ambiguous.

    Args:
        names: The names.
        credal: Whether the method is credal.
    """
    for name in names:
        if SEPARATOR in name:
            raise MethodError(f"the class name {name!r} has a {SEPARATOR} in it, which separates classes: rename it")
        if name == "value" and not credal:
            raise MethodError("a class called 'value' has the column of p-values, p_value: rename it")


def _classes(prediction: Prediction, kept: Tensor) -> list[str]:
    """The classes that stay, the most probable first."""
    assert prediction.probabilities is not None
    names = prediction.class_names
    order = prediction.probabilities.argsort(dim=-1, descending=True, stable=True)
    rows = []
    for start in range(0, len(kept), CHUNK):
        ranked, stays = order[start : start + CHUNK], kept[start : start + CHUNK]
        stays = stays.gather(1, ranked)
        for numbers, which in zip(ranked.tolist(), stays.tolist(), strict=True):
            rows.append(SEPARATOR.join(names[k] for k, yes in zip(numbers, which, strict=True) if yes))
    return rows


def _reasons(prediction: Prediction, flagged: Tensor, explained: int) -> list[str]:
    """Of flagged nodes in a few words why; nothing of others."""
    texts = [""] * len(prediction.nodes)
    rows = flagged.nonzero().squeeze(-1)
    if not len(rows) or prediction.reasons is None:
        return texts
    rows = rows[prediction.score[rows].argsort(descending=True, stable=True)[:explained]]
    reasons = prediction.reasons(prediction.nodes[rows])
    for row, text in zip(rows.tolist(), reasons or (), strict=False):
        texts[row] = f"unlike labelled nodes: {text}" if text else "fewer labels near it than known nodes have"
    return texts


def write_table(table: pyarrow.Table, path: str | os.PathLike[str]) -> None:
    """Write a Parquet file, or a CSV file where the name ends so; whole or not at all.

    Args:
        table: The table.
        path: Where to.
    """
    write_tables([table], path)


def write_chunks(
    chunks: Iterable[Prediction],
    path: str | os.PathLike[str],
    false_alarms: float | None = 0.05,
    coverage: float | None = 0.95,
    reasons: bool = True,
    total: int | None = None,
) -> None:
    """As ``Prediction.to_parquet``, for predictions that come in chunks: no more than one is held at a time.

    Args:
        chunks: What ``Method.predict_chunks`` gives.
        path: Where to.
        false_alarms: See ``Prediction.to_table``.
        coverage: See ``Prediction.to_table``.
        reasons: See ``Prediction.to_table``; of flagged nodes that are too many, each chunk has its share explained.
        total: Nodes of all chunks together; None: each chunk may have as many explained as a whole prediction.
    """
    tables = (table_of(chunk, false_alarms, coverage, reasons, share_explained(chunk, total)) for chunk in chunks)
    write_tables(tables, path)


def share_explained(chunk: Prediction, total: int | None) -> int:
    """How many flagged nodes of a chunk are explained at the most.

    Args:
        chunk: A part of a prediction.
        total: Nodes of the whole; None: not known.
    """
    return EXPLAINED if total is None else -(-EXPLAINED * len(chunk.nodes) // max(1, total))


def write_tables(tables: Iterable[pyarrow.Table], path: str | os.PathLike[str]) -> None:
    """Write tables of the same columns one below the other, as one file; whole or not at all.

    Args:
        tables: At least one; each is written before the next one is asked for.
        path: A .parquet or .csv file.
    """
    from pyarrow.csv import CSVWriter
    from pyarrow.parquet import ParquetWriter

    place = Path(path)
    check_ending(place)
    rest = iter(tables)
    first = next(rest)
    try:
        with atomic(place) as file:
            if place.suffix.lower() == ".csv":
                writer = CSVWriter(file, first.schema)
            else:
                writer = ParquetWriter(file, first.schema, write_page_checksum=True)
            with writer:
                writer.write_table(first)
                for table in rest:
                    writer.write_table(table)
    except OSError as error:
        raise MethodError(f"{place}: cannot be written ({error.strerror}); choose another place") from None


def check_ending(path: Path) -> None:
    """Refuse a file that is neither of the two kinds.

    Args:
        path: Its name.
    """
    if path.suffix.lower() not in (".csv", ".parquet"):
        raise MethodError(f"{path}: a .csv or .parquet file is wanted")
