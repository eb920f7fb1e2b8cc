"""The paper's tables beside the results of its reproduction: ``paper.md`` and ``paper.html``."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from ..graphs import paper_table
from ..methods import MethodError, Uniform
from ..records.folder import EXPERIMENT
from ..records.schema import PREFIX, RecordError, read_json
from ..report.page import Page, scrollable, section
from ..report.results import legend, letters
from ..report.summary import Row, Summary, make_rows, read_runs
from ..report.table import Cell, Column, Table, columns
from ..runtime.errors import translated
from ..runtime.files import write
from ..runtime.texts import markdown as escaped
from .paper_plan import ENSEMBLES, POST_HOC, TRAINED
from .published import choices_named, note
from .search import Scale, space_of

TABLES = {
    "ood_auroc_main": "OOD detection, AUROC (the paper's main table)",
    "ood_auroc_full": "OOD detection, AUROC with standard deviations (the paper's appendix)",
    "id_f1": "ID classification, F1 (micro, so it equals accuracy)",
}
ACCURACY = {"argmax": "accuracy", "lower": "accuracy_lower", "upper": "accuracy_upper"}
TITLE = "The paper's results and ours"
LEAD = (
    "Per cent, mean ± standard deviation. Blue: ours is above the paper's, orange: below, from 2.5 points on and "
    "deeper from 7.5 on. Differences with ! are larger than two standard deviations (the larger of both)."
)


def paper_results() -> list[dict[str, Any]]:
    """Results in the paper's tables: table, method, score, data set, mean and standard deviation in per cent."""
    rows = csv.DictReader((files(__package__) / "paper_results.csv").read_text(encoding="utf-8").splitlines())
    return [{**row, "mean": float(row["mean"]), "std": float(row["std"]) if row["std"] else None} for row in rows]


@dataclass(frozen=True)
class Pair:
    """A result of the paper and ours, in per cent."""

    method: str
    score: str
    dataset: str
    paper: float
    paper_std: float | None
    ours: float
    ours_std: float
    marks: str = ""

    @property
    def difference(self) -> float:
        return self.ours - self.paper

    @property
    def is_far(self) -> bool:
        """Differs by more than two standard deviations; the larger one, as the paper's are not always credible."""
        return abs(self.difference) > 2.0 * max(self.paper_std or 0.0, self.ours_std)

    @property
    def colour(self) -> str:
        return "" if not self.is_far else "🟢" if self.difference > 0 else "🔴"

    @property
    def shade(self) -> str:
        """CSS class: one of two shades on either side."""
        depth = round(min(abs(self.difference) / 5.0, 2.0))
        return f"{'high' if self.difference > 0 else 'low'}{depth}" if depth else ""


def pairs(rows: Sequence[Row], table: str) -> list[Pair]:
    """Results of one of the paper's tables that we have, too."""
    ours = {(_paper_name(row), row.score, row.dataset): row.values for row in rows}
    marks = {(_paper_name(row), row.dataset): _signs(row) for row in rows}
    full = {_key(one): one["std"] for one in paper_results() if one["table"] == "ood_auroc_full"}
    results = []
    for one in paper_results():
        value = _ours(ours, one) if one["table"] == table else None
        if value is not None:
            std = one["std"] if one["std"] is not None else full.get(_key(one))
            mark = marks[one["method"], one["dataset"]]
            results.append(Pair(*_key(one), one["mean"], std, 100.0 * value.mean, 100.0 * value.std, mark))
    return results


def _paper_name(row: Row) -> str:
    """Name of the method in the paper's tables."""
    return row.method.removeprefix(PREFIX)


def _signs(row: Row) -> str:
    """Letters of the marks, and the number of runs if some are missing."""
    return f"{letters(row)} ({row.runs})".strip() if row.is_short else letters(row)


def _key(one: dict[str, Any]) -> tuple[str, str, str]:
    return one["method"], one["score"], one["dataset"]


def _ours(rows: dict[tuple[str, str, str], dict[str, Summary]], one: dict[str, Any]) -> Summary | None:
    """Our value for one of the paper's; its F1 is the accuracy by the class that ``score`` names."""
    if one["table"] != "id_f1":
        return rows.get(_key(one), {}).get("auroc")
    methods = (
        values for (method, _, dataset), values in rows.items() if (method, dataset) == (one["method"], one["dataset"])
    )
    return next(methods, {}).get(ACCURACY[one["score"]])


def write_comparison(folders: Sequence[Path], out: Path) -> str:
    """Write ``paper.md`` and ``paper.html``; return the text of the first."""
    about = [read_json(folder / EXPERIMENT, "an experiment") for folder in folders]
    for name in ("protocol", "scale", "quick", "as_published"):
        if len({json.dumps(one.get(name)) for one in about}) > 1:
            raise RecordError(
                f"{', '.join(map(str, folders))}: reproductions with different {name}; report them separately"
            )
    records = read_runs(folders)
    rows = make_rows(records)
    published = as_published(folders[0])
    text = _markdown(records, rows, "log" if about[0].get("scale") == "log" else "uniform", published)
    write(out / "paper.md", text.encode())
    write(out / "paper.html", _page(rows, published).render().encode())
    return text


def is_reproduction(folder: Path) -> bool:
    """True for folders of the paper's experiment."""
    return read_json(folder / EXPERIMENT, "an experiment").get("kind") == "reproduce"


def as_published(folder: Path) -> list[str]:
    """Choices of the published runs that a reproduction repeats; none by default."""
    names = read_json(folder / EXPERIMENT, "an experiment").get("as_published")
    with translated(
        (MethodError, TypeError), lambda _: RecordError(f"{folder / EXPERIMENT}: as_published has unknown choices")
    ):
        return list(choices_named(names)) if names else []


def _comparison(rows: Sequence[Row], table: str, with_std: bool, colours: bool) -> Table:
    """One of the paper's tables with our results beside it.

    Args:
        rows: Our results.
        table: Key of ``TABLES``.
        with_std: Standard deviations are shown.
        colours: Differences have a CSS class and ``!`` instead of a coloured sign.
    """
    datasets = _datasets(rows)
    by_key = {(one.method, one.score, one.dataset): one for one in pairs(rows, table)}
    heads = columns("method score") + [
        Column(head, name) for name in datasets for head in ("paper", "ours", "difference")
    ]
    body = []
    for method, score in dict.fromkeys((method, score) for method, score, _ in by_key):
        line: list[str | Cell] = [method, score]
        for dataset in datasets:
            pair = by_key.get((method, score, dataset))
            if pair is None:
                line += ["", "", ""]
                continue
            paper, ours = f"{pair.paper:.1f}", f"{pair.ours:.1f}"
            if with_std:
                paper += f" ± {pair.paper_std:.1f}" if pair.paper_std is not None else ""
                ours += f" ± {pair.ours_std:.1f}"
            sign = ("!" if pair.is_far else "") if colours else pair.colour
            difference = Cell(f"{pair.difference:+.1f}", note=sign, style=pair.shade if colours else "")
            line += [paper, f"{ours} {pair.marks}".rstrip(), difference]
        body.append(line)
    return Table(heads, body)


def _page(rows: Sequence[Row], published: Sequence[str]) -> Page:
    parts = []
    for name, title in TABLES.items():
        table = _comparison(rows, name, with_std=True, colours=True)
        parts.append(section(name, title, scrollable(table.html(), title)))
    notes = Table([], [], legend(rows, ranked=False)).html_notes()
    lead = f"{note(published)} {LEAD}" if published else LEAD
    return Page("paper", TITLE, sections=f'<main class="wide" id="main">{"".join(parts)}{notes}</main>', lead=lead)


def _markdown(records: Sequence[dict[str, Any]], rows: Sequence[Row], scale: Scale, published: Sequence[str]) -> str:
    datasets = _datasets(rows)
    parts = [note(published), ""] if published else []
    for name, title in TABLES.items():
        table = _comparison(rows, name, with_std=name != "ood_auroc_main", colours=False)
        parts += [f"## {title}", "", table.markdown(), ""]
    parts += ["🟢 ours is above the paper's, 🔴 below, by more than two standard deviations (the larger of both).", ""]
    parts += ["## Scores and methods that the paper does not report", "", _others(rows, datasets).markdown(), ""]
    parts += map(escaped, legend(rows, ranked=False))
    parts += ["", "## Data sets", "", _counts(records, datasets).markdown()]
    parts += ["", "## Search spaces", "", search_spaces(scale).markdown()]
    parts += ["", "## Chosen hyper-parameters", "", _chosen(records, datasets).markdown(), ""]
    parts.append(
        "Post-hoc methods use this vanilla GNN, ensembles the best points of its search."
        + (" The other runs have the next best points." if "one-seed" in published else "")
    )
    return "\n".join(parts) + "\n"


def _datasets(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row.dataset for row in rows))


def _others(rows: Sequence[Row], datasets: Sequence[str]) -> Table:
    """AUROC and accuracy of what the paper's appendix does not have."""
    in_paper = {_key(one) for one in paper_results() if one["table"] == "ood_auroc_full"}
    heads = columns("method score") + [Column(what, name) for name in datasets for what in ("AUROC", "accuracy")]
    body = []
    ours = {(row.method, row.score, row.dataset): row for row in rows}
    for method, score in dict.fromkeys((row.method, row.score) for row in rows):
        plain = method.removeprefix(PREFIX)
        if all((plain, score, dataset) in in_paper for dataset in datasets):
            continue
        line: list[str | None] = [method, score]
        for dataset in datasets:
            row = ours.get((method, score, dataset))
            if (plain, score, dataset) in in_paper:
                line += ["", ""]
            elif row is None:
                line += [None, None]
            else:
                auroc, accuracy = (
                    f"{100 * row.values[name].mean:.1f} ± {100 * row.values[name].std:.1f}"
                    if name in row.values
                    else "-"
                    for name in ("auroc", "accuracy")
                )
                line += [f"{auroc} {_signs(row)}".rstrip(), accuracy]
        body.append(line)
    return Table(heads, body)


def _counts(records: Sequence[dict[str, Any]], datasets: Sequence[str]) -> Table:
    paper = {str(row["dataset"]): row for row in paper_table()}
    ours = {record["dataset"]: record["counts"] for record in records if record["status"] == "done"}
    names = list(next(iter(ours.values()), {}))
    body = [
        [dataset, *(table.get(dataset, {}).get(name, "-") for name in names for table in (paper, ours))]
        for dataset in datasets
    ]
    heads = [Column("data set", is_text=True), *(Column(head, name) for name in names for head in ("paper", "ours"))]
    return Table(heads, [[str(cell) for cell in line] for line in body])


def _chosen(records: Sequence[dict[str, Any]], datasets: Sequence[str]) -> Table:
    """Hyper-parameters of the reported runs."""
    shown = ("backbone", "layers", "hidden", "lr", "weight_decay", "delta", "size", "k", "temperature", "epsilon",
             "steps", "alpha")  # fmt: skip
    configs: dict[tuple[str, str], Mapping[str, Any]] = {}
    for record in records:  # runs of a method are alike, except for published choices, of which the first is shown
        configs.setdefault((record["dataset"], record["method"]), record["config"])
    body = []
    for dataset in datasets:
        for (of, method), config in configs.items():
            values = {name: config[name] for name in shown if name in config}
            texts = (f"{name} {v:.4g}" if isinstance(v, float) else f"{name} {v}" for name, v in values.items())
            body += [[dataset, method, ", ".join(texts)]] if of == dataset else []
    return Table([Column(name, is_text=True) for name in ("data set", "method", "hyper-parameters")], body)


def search_spaces(scale: Scale) -> Table:
    """Search spaces of all methods.

    Args:
        scale: Scale on which learning rates are drawn.
    """
    body = []
    for name in (*TRAINED, *ENSEMBLES, *POST_HOC):
        texts = (f"{key} {_range(one)}" for key, one in space_of(name, sys.maxsize, scale).items())
        body.append([name, ", ".join(texts)])
    return Table(columns("method hyper-parameters"), body)


def _range(one: Uniform | tuple[Any, ...]) -> str:
    if isinstance(one, Uniform):
        return str(one)
    texts = [f"{value:g}" if isinstance(value, float) else str(value) for value in one]
    return "{" + (", ".join(texts) if len(texts) <= 10 else f"{texts[0]}, {texts[1]} .. {texts[-1]}") + "}"
