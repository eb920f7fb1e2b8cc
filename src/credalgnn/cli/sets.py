"""``credalgnn uncertainty``: credal sets in a file, measured exactly."""

from __future__ import annotations

import csv
import io
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ..runtime.errors import translated
from ..runtime.files import write
from ..runtime.reading import Unreadable, read_npz
from .common import UserError, check_output

if TYPE_CHECKING:
    import numpy as np

    from ..sets import CredalSet


def uncertainty(
    file: Path,
    *,
    out: Path | None = None,
    rule: Literal["interval-dominance", "maximality", "e-admissibility"] = "e-admissibility",
) -> None:
    """Compute exact total, aleatoric and epistemic uncertainty of credal sets in a file.

    Each row of the result has the three uncertainties in bits, a bound of the error of total and aleatoric (gap;
    epistemic is off by at most twice that), the point prediction (intersection probability) and the classes that stay
    in question.

    Args:
        file: CSV with columns lower_NAME and upper_NAME for every class NAME (others are passed through), or npz with
            the arrays lower and upper [N, C], or members [M, N, C]
        out: write the CSV here instead of to the terminal
        rule: decision rule for the classes that stay in question
    """
    if not file.is_file():
        raise UserError(f"{file}: {'not a file' if file.exists() else 'no such file'}")
    if out is not None:
        check_output(out, file)
    arrays, classes, header, extra = _read(file)

    from .. import sets

    try:
        credal: CredalSet = sets.HullSet(*arrays) if len(arrays) == 1 else sets.IntervalSet(*arrays)
    except (ValueError, TypeError) as error:
        message = str(error)
        if file.suffix == ".csv":  # a person counts lines from 1, the header among them
            message = re.sub(r"\brow (\d+)", lambda row: f"line {int(row[1]) + 2}", message)
        raise UserError(f"{file}: {message}") from None
    measures = sets.uncertainty(credal, certify=True)
    point = credal.intersection_probability()
    candidates = getattr(sets, rule.replace("-", "_"))(credal)
    columns = measures.total, measures.aleatoric, measures.epistemic, measures.gap, point.argmax(-1), candidates
    rows: list[list[str]] = [[*header, "total", "aleatoric", "epistemic", "gap", "prediction", "kept"]]
    for k, (total, aleatoric, epistemic, gap, best, row_kept) in enumerate(zip(*columns, strict=True)):
        labels = "|".join(name for name, stays in zip(classes, row_kept, strict=True) if stays)
        bits = [f"{float(value):.9g}" for value in (total, aleatoric, epistemic)]
        rows.append([*(extra[k] if extra else []), *bits, f"{float(gap):.1e}", classes[int(best)], labels])
    _write(rows, out)


def _write(rows: list[list[str]], out: Path | None) -> None:
    """To the terminal, or whole or not at all to a file."""
    if out is None:
        csv.writer(sys.stdout, lineterminator="\n").writerows(rows)
        return
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    with translated(OSError, lambda error: UserError(f"{out}: {error.strerror}")):
        write(out, text.getvalue().encode())
    print(f"{len(rows) - 1} credal sets measured: {out}")


def _read(path: Path) -> tuple[list[np.ndarray], list[str], list[str], list[list[str]]]:
    """Arrays (lower and upper, or members), class names, and the columns to pass through: their names and values."""
    if path.suffix == ".npz":
        return _read_npz(path)
    if path.suffix == ".csv":
        return _read_csv(path)
    raise UserError(f"{path}: must be a .csv or .npz file")


def _read_npz(path: Path) -> tuple[list[np.ndarray], list[str], list[str], list[list[str]]]:
    try:
        content = read_npz(path, (), optional=["members"])
        names = list(content) or ["lower", "upper"]
        arrays = list((content or read_npz(path, names)).values())
    except (Unreadable, OSError) as error:
        needs = "it needs lower and upper [N, C], or members [M, N, C]"
        raise UserError(f"{path}: not a readable npz file ({error}); {needs}") from None
    dimensions = 3 if names == ["members"] else 2
    for name, array in zip(names, arrays, strict=True):
        if array.ndim != dimensions:
            raise UserError(f"{path}: {name} has shape {list(array.shape)}, not {dimensions} dimensions")
    return arrays, [str(k) for k in range(arrays[0].shape[-1])], [], []


def _read_csv(path: Path) -> tuple[list[np.ndarray], list[str], list[str], list[list[str]]]:
    import numpy as np

    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            header, *rows = (row for row in csv.reader(file) if row)
    except (ValueError, OSError, csv.Error) as error:  # no header, not text, not readable
        raise UserError(f"{path}: not a CSV file with a header ({error})") from None
    classes = [name.removeprefix("lower_") for name in header if name.startswith("lower_")]
    if not classes:
        raise UserError(f"{path}: no columns lower_NAME and upper_NAME in the header")
    if len(set(header)) < len(header):
        raise UserError(f"{path}: a column name stands twice in the header")
    columns = {name: k for k, name in enumerate(header)}
    for side, other in (("lower", "upper"), ("upper", "lower")):
        for column in header:
            name = column.removeprefix(f"{side}_")
            if column.startswith(f"{side}_") and f"{other}_{name}" not in columns:
                raise UserError(f"{path}: column {other}_{name} is missing beside {column}")
    if any("|" in name for name in classes):
        raise UserError(f"{path}: a class name has a | in it, which separates the classes kept; rename the columns")
    arrays = []
    for side in ("lower", "upper"):
        values = np.empty((len(rows), len(classes)))
        for k, row in enumerate(rows):
            if len(row) != len(header):
                raise UserError(f"{path}, line {k + 2}: {len(row)} fields where the header has {len(header)}")
            for c, name in enumerate(classes):
                text = row[columns[f"{side}_{name}"]]
                try:
                    values[k, c] = float(text)
                except ValueError:
                    raise UserError(f"{path}, line {k + 2}, column {side}_{name}: {text!r} is not a number") from None
        arrays.append(values)
    bounds = {f"{side}_{name}" for side in ("lower", "upper") for name in classes}
    others = [name for name in header if name not in bounds]
    return arrays, classes, others, [[row[columns[name]] for name in others] for row in rows]
