"""Records of runs as a person reads them from Python."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from ..records.folder import EXPERIMENT, PAGE
from ..records.schema import RecordError, is_published
from ..runtime.names import suggestion
from .page import write_page
from .summary import Row, make_rows, read_runs
from .tables import terminal, write_tables

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped]
    import pyarrow

Place: TypeAlias = str | os.PathLike[str]


@dataclass(frozen=True, eq=False)
class Results:
    """Records of runs, to be read as a table.

    Attributes:
        records: One per run; docs/benchmark.md says what is in them.
        folders: Where the records are; empty if they were kept nowhere.
        total: How many runs there are, with those that failed or are left.
        failed: How many runs failed.
        left: How many runs are still to be done: the same call does them.
    """

    records: list[dict[str, Any]]
    folders: tuple[Path, ...] = ()
    total: int = 0
    failed: int = 0
    left: int = 0

    @property
    def rows(self) -> list[Row]:
        """One row per task, method and score, over all seeds, with ranks."""
        return make_rows(self.records)

    def to_dicts(self) -> list[dict[str, Any]]:
        """One line per run and score, with all metrics as plain fractions."""
        about = ("dataset", "protocol", "setting", "method", "seed", "split_seed")
        return [
            {
                **{name: record[name] for name in about},
                "score": score,
                "headline": score == record["headline"],
                **metrics,
                **record["metrics"],
                "seconds": record["seconds"]["fit"],
            }
            for record in self.records
            if record["status"] == "done"
            for score, metrics in record["scores"].items()
        ]

    def to_pandas(self) -> pandas.DataFrame:
        """``to_dicts`` as a data frame; needs pandas."""
        import pandas

        return pandas.DataFrame(self.to_dicts())

    def to_arrow(self) -> pyarrow.Table:
        """``to_dicts`` as an Arrow table; needs pyarrow."""
        import pyarrow

        lines = self.to_dicts()
        columns = dict.fromkeys(name for line in lines for name in line)
        return pyarrow.table({name: [line.get(name) for line in lines] for name in columns})

    def report(self, out: Place, title: str = "credalgnn", scores: Sequence[str] | None = None) -> Path:
        """Write ``table.md``, ``table.csv``, ``table.tex`` and ``report.html``.

        Args:
            out: The folder to write to.
            title: Of the page.
            scores: Only these in the tables; None for all.

        Returns:
            The page.
        """
        page = Path(out) / PAGE
        if any(is_published(record["method"]) for record in self.records):
            title += ", as published: choices of the paper's runs, not the honest protocol"
        write_tables(self.chosen_rows(scores), Path(out))
        write_page(self.records, self.folders, page, title)
        return page

    def chosen_rows(self, scores: Sequence[str] | None) -> list[Row]:
        """The rows of some scores; baselines that need no model stand in every table.

        Args:
            scores: Names of scores; None for all.
        """
        rows = self.rows
        known = dict.fromkeys(row.score for row in rows)
        unknown = [name for name in scores or () if name not in known]
        if unknown:
            raise RecordError(f"no run has the score {unknown[0]!r}: {suggestion(unknown[0], known)}")
        return [row for row in rows if scores is None or row.trivial or row.score in scores]

    def __str__(self) -> str:
        return terminal(self.rows) if self.records else "no run has ended yet"


def report(
    folders: Place | Sequence[Place], out: Place | None = None, *, scores: Sequence[str] | None = None
) -> Results:
    """Tables and page again from records, without any training; several folders merge.

    Args:
        folders: Of benchmarks or reproductions.
        out: Where tables and page go; None: nothing is written.
        scores: Only these in the tables; None for all.
    """
    listed = [folders] if isinstance(folders, str | os.PathLike) else list(folders)
    places = tuple(Path(folder) for folder in listed)
    if out is not None:
        _check_place(Path(out), places)
    records = read_runs(places)
    results = Results(records, places, len(records))
    if out is not None:
        results.report(out, "credalgnn report", scores)
    return results


def _check_place(out: Path, folders: Sequence[Path]) -> None:
    """Refuse to write over another experiment's tables, or over a page that is not of this kind."""
    if out.resolve() in [folder.resolve() for folder in folders]:
        return
    if (out / EXPERIMENT).exists():
        raise RecordError(f"{out} holds another experiment: choose another --out")
    page = out / PAGE
    if page.exists() and b'name="generator" content="credalgnn"' not in page.read_bytes()[:4000]:
        raise RecordError(f"{page} is not a page of credalgnn: choose another --out")
