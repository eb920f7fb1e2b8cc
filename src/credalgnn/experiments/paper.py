"""The paper's tables with its figures and ours side by side, the difference coloured."""

from __future__ import annotations

import csv
import html
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
from ..report.summary import Row, Summary, make_rows, read_runs
from ..report.tables import legend, letters, pipes
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


def paper_results() -> list[dict[str, Any]]:
    """The paper's tables of results: table, method, score, data set, mean and standard deviation in per cent."""
    rows = csv.DictReader((files(__package__) / "paper_results.csv").read_text(encoding="utf-8").splitlines())
    return [{**row, "mean": float(row["mean"]), "std": float(row["std"]) if row["std"] else None} for row in rows]


@dataclass(frozen=True)
class Pair:
    """A figure of the paper and ours, in per cent."""

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
        """More than two standard deviations apart, by the larger of the two: the paper's are not always credible."""
        return abs(self.difference) > 2.0 * max(self.paper_std or 0.0, self.ours_std)

    @property
    def colour(self) -> str:
        return "" if not self.is_far else "🟢" if self.difference > 0 else "🔴"


def pairs(rows: Sequence[Row], table: str) -> list[Pair]:
    """Every figure of one of the paper's tables of which there is one of ours."""
    ours = {(_paper_name(row), row.score, row.dataset): row.values for row in rows}
    marks = {(_paper_name(row), row.dataset): _signs(row) for row in rows}
    full = {_key(one): one["std"] for one in paper_results() if one["table"] == "ood_auroc_full"}
    result = []
    for one in paper_results():
        if one["table"] != table:
            continue
        value = _ours(ours, one)
        if value is not None:
            std = one["std"] if one["std"] is not None else full.get(_key(one))
            mark = marks[one["method"], one["dataset"]]
            figures = one["mean"], std, 100.0 * value.mean, 100.0 * value.std, mark
            result.append(Pair(one["method"], one["score"], one["dataset"], *figures))
    return result


def _paper_name(row: Row) -> str:
    """What the paper's tables call the method of a row, however it was run."""
    return row.method.removeprefix(PREFIX)


def _signs(row: Row) -> str:
    """Letters of the marks, and how many runs there are if some are missing."""
    return f"{letters(row)} ({row.runs})".strip() if row.is_short else letters(row)


def _key(one: dict[str, Any]) -> tuple[str, str, str]:
    return one["method"], one["score"], one["dataset"]


def _ours(rows: dict[tuple[str, str, str], dict[str, Summary]], one: dict[str, Any]) -> Summary | None:
    """Our figure for one of the paper's; its F1 is the accuracy, by the class that its ``score`` names."""
    if one["table"] != "id_f1":
        return rows.get(_key(one), {}).get("auroc")
    methods = (
        values for (method, _, dataset), values in rows.items() if (method, dataset) == (one["method"], one["dataset"])
    )
    return next(methods, {}).get(ACCURACY[one["score"]])


def beside_paper(folders: Sequence[Path]) -> str:
    """The tables in Markdown, which also reads well on a terminal."""
    records = read_runs(folders)
    return _markdown(records, make_rows(records), _scale(folders[0]), as_published(folders[0]))


def write_beside(folders: Sequence[Path], out: Path) -> str:
    """``paper.md`` and the same as a page, ``paper.html``, with the differences as colours; what to print of it."""
    for name in ("protocol", "scale", "quick", "as_published"):
        if len({json.dumps(read_json(one / EXPERIMENT, "an experiment").get(name)) for one in folders}) > 1:
            raise RecordError(f"{', '.join(map(str, folders))}: reproductions with different {name}; report them apart")
    records = read_runs(folders)
    rows = make_rows(records)
    published = as_published(folders[0])
    text = _markdown(records, rows, _scale(folders[0]), published)
    write(out / "paper.md", text.encode())
    write(out / "paper.html", _page(rows, published).encode())
    return text


def is_reproduction(folder: Path) -> bool:
    """Whether a folder holds the paper's experiment."""
    return read_json(folder / EXPERIMENT, "an experiment").get("kind") == "reproduce"


def _scale(folder: Path) -> Scale:
    """How the reproduction in a folder drew learning rates."""
    return "log" if read_json(folder / EXPERIMENT, "an experiment").get("scale") == "log" else "uniform"


def as_published(folder: Path) -> list[str]:
    """The choices of the published runs that the reproduction in a folder repeats; none by default."""
    names = read_json(folder / EXPERIMENT, "an experiment").get("as_published")
    try:
        return list(choices_named(names)) if names else []
    except (MethodError, TypeError):
        raise RecordError(f"{folder / EXPERIMENT}: names published choices that are none") from None


def _names(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row.dataset for row in rows))


def _lines(result: Sequence[Pair], datasets: Sequence[str]) -> list[tuple[str, str, list[Pair | None]]]:
    """Pairs as lines of a table: method, score, and a pair or nothing for each data set."""
    known = {(one.method, one.score, one.dataset): one for one in result}
    names = dict.fromkeys((one.method, one.score) for one in result)
    return [(method, score, [known.get((method, score, dataset)) for dataset in datasets]) for method, score in names]


def _markdown(
    records: Sequence[dict[str, Any]], rows: Sequence[Row], scale: Scale, published: Sequence[str] = ()
) -> str:
    datasets = _names(rows)
    who = [f"{name} {who}" for name in datasets for who in ("paper", "ours", "difference")]
    parts = [note(published), ""] if published else []
    for table, title in TABLES.items():
        lines = [["method", "score", *who]]
        for method, score, result in _lines(pairs(rows, table), datasets):
            lines.append(
                [method, score, *(cell for pair in result for cell in _cells(pair, table != "ood_auroc_main"))]
            )
        parts += [f"## {title}", "", *pipes(lines), ""]
    parts += [
        "🟢 ours is above the paper's, 🔴 below it, by more than two standard deviations (the larger of both).",
        "",
    ]
    others = pipes(_others(rows, datasets))
    parts += [
        "## Scores and methods that the paper does not report",
        "",
        *others,
        "",
        *map(escaped, legend(rows, ranked=False)),
    ]
    parts += ["", "## Data sets", "", *pipes(_datasets(records, datasets))]
    parts += ["", "## Search spaces", "", *pipes(search_spaces(scale))]
    parts += ["", "## What was chosen", "", *pipes(_chosen(records, datasets))]
    parts += [
        "",
        "Post-hoc methods stand on this vanilla GNN, ensembles on the best points of its search."
        + (" The other runs have the next best points." if "one-seed" in published else ""),
    ]
    return "\n".join(parts) + "\n"


def _cells(pair: Pair | None, with_std: bool) -> list[str]:
    if pair is None:
        return ["", "", ""]
    paper, ours = f"{pair.paper:.1f}", f"{pair.ours:.1f}"
    if with_std:
        paper += f" ± {pair.paper_std:.1f}" if pair.paper_std is not None else ""
        ours += f" ± {pair.ours_std:.1f}"
    return [paper, f"{ours} {pair.marks}".rstrip(), f"{pair.difference:+.1f} {pair.colour}".rstrip()]


def _page(rows: Sequence[Row], published: Sequence[str] = ()) -> str:
    datasets, body = _names(rows), [f"<p><strong>{html.escape(note(published))}</strong></p>"] if published else []
    head = "".join(f"<th scope=col colspan=3>{html.escape(name)}" for name in datasets)
    sub = "<th scope=col>paper<th scope=col>ours<th scope=col>difference" * len(datasets)
    for table, title in TABLES.items():
        lines = [
            f"<tr><th scope=row>{html.escape(method)}<td>{html.escape(score)}{''.join(map(_coloured, result))}"
            for method, score, result in _lines(pairs(rows, table), datasets)
        ]
        body.append(
            f"<h2>{html.escape(title)}</h2><div class=box><table><thead><tr><th rowspan=2 scope=col>method"
            f"<th rowspan=2 scope=col>score{head}<tr>{sub}<tbody>{''.join(lines)}</table></div>"
        )
    body += [f"<p>{html.escape(line)}</p>" for line in legend(rows, ranked=False)]
    return _PAGE.replace("BODY", "".join(body))


def _coloured(pair: Pair | None) -> str:
    """Cells of a pair: blue above the paper, orange below, deeper the larger the difference (10 points and more)."""
    if pair is None:
        return "<td colspan=3>"
    strength = min(abs(pair.difference) / 10.0, 1.0)
    colour = f"rgb({'33 102 172' if pair.difference > 0 else '217 95 2'} / {0.55 * strength:.2f})"
    paper = f"{pair.paper:.1f}" + (f" ± {pair.paper_std:.1f}" if pair.paper_std is not None else "")
    return (
        f"<td>{paper}<td>{pair.ours:.1f} ± {pair.ours_std:.1f} {html.escape(pair.marks)}"
        f'<td style="background:{colour}">{pair.difference:+.1f}{" !" if pair.is_far else ""}'
    )


_PAGE = """<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content="width=device-width">
<title>The paper's tables and ours</title><style>
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif }
body { max-width: 75rem; margin: 2rem auto; padding: 0 1rem } .box { overflow-x: auto }
table { border-collapse: collapse; font-variant-numeric: tabular-nums } th { text-align: left; font-weight: 600 }
td, th { padding: .2rem .6rem; border-bottom: 1px solid #8885; white-space: nowrap } td + td { text-align: right }
</style><h1>The paper's tables and ours</h1>
<p>Per cent, mean ± standard deviation. Blue: ours is above the paper's; orange: below. The colour is full at ten
points; ! marks a difference of more than two standard deviations (the larger of both).</p>BODY</html>
"""


def _others(rows: Sequence[Row], datasets: Sequence[str]) -> list[list[str]]:
    known = {_key(one) for one in paper_results() if one["table"] == "ood_auroc_full"}
    table = [["method", "score", *(f"{name} {what}" for name in datasets for what in ("AUROC", "accuracy"))]]
    ours = {(row.method, row.score, row.dataset): row for row in rows}
    for method, score in dict.fromkeys((row.method, row.score) for row in rows):
        plain = method.removeprefix(PREFIX)
        if all((plain, score, dataset) in known for dataset in datasets):
            continue
        line = [method, score]
        for dataset in datasets:
            if (plain, score, dataset) in known:
                line += ["", ""]
                continue
            row = ours.get((method, score, dataset))
            values = row.values if row is not None else {}
            auroc, accuracy = (
                f"{100 * values[name].mean:.1f} ± {100 * values[name].std:.1f}" if name in values else "-"
                for name in ("auroc", "accuracy")
            )
            line += [f"{auroc} {_signs(row)}".rstrip() if row is not None else auroc, accuracy]
        table.append(line)
    return table


def _datasets(records: Sequence[dict[str, Any]], datasets: Sequence[str]) -> list[list[str]]:
    paper = {str(row["dataset"]): row for row in paper_table()}
    counts = {record["dataset"]: record["counts"] for record in records if record["status"] == "done"}
    names = list(next(iter(counts.values()), {}))
    table = [["data set", *(f"{name} {who}" for name in names for who in ("paper", "ours"))]]
    for dataset in datasets:
        numbers = [(paper.get(dataset, {}).get(name, "-"), counts.get(dataset, {}).get(name, "-")) for name in names]
        table.append([dataset, *(str(number) for pair in numbers for number in pair)])
    return table


def _chosen(records: Sequence[dict[str, Any]], datasets: Sequence[str]) -> list[list[str]]:
    """The hyper-parameters of the reported runs."""
    shown = ("backbone", "layers", "hidden", "lr", "weight_decay", "delta", "size", "k", "temperature", "epsilon",
             "steps", "alpha")  # fmt: skip
    table = [["data set", "method", "hyper-parameters"]]
    seen: dict[tuple[str, str], Mapping[str, Any]] = {}
    for record in records:  # runs of a method are alike, but for published choices of which the first run is shown
        seen.setdefault((record["dataset"], record["method"]), record["config"])
    for dataset in datasets:
        for (of, method), config in seen.items():
            if of == dataset:
                message = (f"{name} {config[name]:.4g}" if isinstance(config[name], float) else f"{name} {config[name]}"
                         for name in shown if name in config)  # fmt: skip
                table.append([dataset, method, ", ".join(message)])
    return table


def search_spaces(scale: Scale) -> list[list[str]]:
    """The search spaces as a table."""
    lines = [["method", "hyper-parameters"]]
    for name in (*TRAINED, *ENSEMBLES, *POST_HOC):
        message = (f"{key} {_words(one)}" for key, one in space_of(name, sys.maxsize, scale).items())
        lines.append([name, ", ".join(message)])
    return lines


def _words(one: Uniform | tuple[Any, ...]) -> str:
    if isinstance(one, Uniform):
        return str(one)
    texts = [f"{value:g}" if isinstance(value, float) else str(value) for value in one]
    return "{" + (", ".join(texts) if len(texts) <= 10 else f"{texts[0]}, {texts[1]} .. {texts[-1]}") + "}"
