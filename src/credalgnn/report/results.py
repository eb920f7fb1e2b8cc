"""Results of a benchmark: tables for the terminal, Markdown, CSV and LaTeX, and the HTML page.

The page is made of ``web/benchmark*``; Python picks and rounds the data that its scripts show.
"""

from __future__ import annotations

import os
import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..metrics import MARKS, METRICS
from ..metrics.registry import disqualifies
from ..records.folder import EXPERIMENT, PAGE, Folder, read_nodes
from ..records.node_tables import column_names, read_columns
from ..records.schema import RecordError, is_ranked, read_record
from ..runtime.files import write
from ..runtime.names import install_hint, suggestion
from ..runtime.texts import markdown as escaped
from ..runtime.texts import one_line
from .page import Page, distinct_numbers, example_nodes, numbers
from .summary import Row, TaskKey, make_rows, read_runs
from .table import BEST, TIED, Cell, Column, Table, columns

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped]
    import pyarrow

NODES = 600  # test nodes of one data set in the page
MANY = 20  # with more classes than this, fewer nodes
TOP = 15  # extreme nodes of each kind that are always among them
EPOCHS = 80  # points of a training curve
SCRIPTS = ("common.js", "charts.js", "benchmark_choice.js", "benchmark_results.js", "benchmark_figures.js",
           "benchmark_nodes.js", "benchmark_examples.js", "benchmark_start.js")  # fmt: skip
AS_PUBLISHED = (
    "As published: these runs repeat choices of the paper's published ones, which experiment.json names. They explain "
    "the paper's figures, are not the honest protocol, and are not ranked."
)
Place: TypeAlias = str | os.PathLike[str]
Record = Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Results:
    """Records of the runs of a benchmark; ``load_results`` and ``benchmark`` make it.

    Attributes:
        records: One record per run; docs/benchmark.md describes the fields.
        folders: Folders of the records; empty if they were not kept.
        total: Number of runs, including failed and remaining ones.
        failed: Number of failed runs.
        left: Number of runs still to do; the same call of ``benchmark`` continues.

    Example:
        >>> results = cg.load_results("runs/digits")
        >>> print(results)
        >>> results.to_pandas().groupby("method").auroc.mean()
    """

    records: list[dict[str, Any]]
    folders: tuple[Path, ...] = ()
    total: int = 0
    failed: int = 0
    left: int = 0

    @property
    def rows(self) -> list[Row]:
        """One row per task, method and score over all seeds, with ranks."""
        return make_rows(self.records)

    def to_dicts(self) -> list[dict[str, Any]]:
        """One dictionary per run and score, with all metrics as fractions."""
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
        names = dict.fromkeys(name for line in lines for name in line)
        return pyarrow.table({name: [line.get(name) for line in lines] for name in names})

    def write(self, out: Place, title: str = "credalgnn", scores: Sequence[str] | None = None) -> Path:
        """Write ``table.md``, ``table.csv``, ``table.tex`` and ``report.html``.

        Args:
            out: Folder to write to.
            title: Title of the page.
            scores: Scores in the tables; None for all.

        Returns:
            The path of the page.
        """
        page = Path(out) / PAGE
        if not all(map(is_ranked, self.records)):
            title += ", as published: choices of the paper's runs, not the honest protocol"
        write_tables(self.select_rows(scores), Path(out))
        write_page(self.records, self.folders, page, title)
        return page

    def select_rows(self, scores: Sequence[str] | None) -> list[Row]:
        """Rows of some scores, and of all baselines that need no model.

        Args:
            scores: Names of scores; None for all.
        """
        rows = self.rows
        names = dict.fromkeys(row.score for row in rows)
        unknown = [name for name in scores or () if name not in names]
        if unknown:
            raise RecordError(f"no run has the score {unknown[0]!r}: {suggestion(unknown[0], names)}")
        return [row for row in rows if scores is None or row.trivial or row.score in scores]

    def __str__(self) -> str:
        return terminal(self.rows) if self.records else "no run has finished yet"


def load_results(folders: Place | Sequence[Place]) -> Results:
    """Load the records of benchmarks or reproductions; several folders are merged.

    Args:
        folders: One or more folders.
    """
    listed = [folders] if isinstance(folders, str | os.PathLike) else list(folders)
    places = tuple(Path(folder) for folder in listed)
    records = read_runs(places)
    return Results(records, places, len(records))


def write_report(folders: Place | Sequence[Place], out: Place, *, scores: Sequence[str] | None = None) -> Results:
    """Write tables and page from records again; nothing is trained.

    Args:
        folders: Folders of benchmarks or reproductions; several are merged.
        out: Folder for ``table.md``, ``table.csv``, ``table.tex`` and ``report.html``.
        scores: Scores in the tables; None for all.

    Example:
        >>> cg.write_report(["runs/a", "runs/b"], "runs/both")
    """
    listed = [folders] if isinstance(folders, str | os.PathLike) else list(folders)
    _check_out(Path(out), [Path(folder) for folder in listed])
    results = load_results(listed)
    results.write(out, "credalgnn report", scores)
    return results


def _check_out(out: Path, folders: Sequence[Path]) -> None:
    """Refuse to overwrite the tables of another experiment, or a page of another kind."""
    if out.resolve() in [folder.resolve() for folder in folders]:
        return
    if (out / EXPERIMENT).exists():
        raise RecordError(f"{out} holds another experiment: write to another folder")
    page = out / PAGE
    if page.exists() and b'name="generator" content="credalgnn"' not in page.read_bytes()[:4000]:
        raise RecordError(f"{page} is not a page of credalgnn: write to another folder")


# ---------------------------------------------------------------- tables


def write_tables(rows: Sequence[Row], folder: Path) -> None:
    """Write ``table.md``, ``table.csv`` and ``table.tex``."""
    write(folder / "table.md", markdown(rows).encode())
    write(folder / "table.csv", tidy(rows).encode())
    write(folder / "table.tex", latex(rows).encode())


def terminal(rows: Sequence[Row], width: int | None = None) -> str:
    """AUROC and accuracy of all data sets; one table per data set where ``width`` is too narrow for all."""
    table = overview(rows)
    notes = [one_line(note) for note in table.footnotes("terminal")]
    parts = [table.terminal()]
    if width is not None:
        notes = [line for note in notes for line in textwrap.wrap(note, max(width, 20))]
        if max(map(len, parts[0].splitlines())) > width:
            parts = [one.terminal() for one in table.by_group()]
    return "\n".join([one_line(conditions(rows)), "", *(line for part in parts for line in (part, "")), *notes])


def markdown(rows: Sequence[Row]) -> str:
    """The overview, and below it all metrics for each data set."""
    table = overview(rows)
    parts = [escaped(conditions(rows)), "", table.markdown(), "", *map(escaped, table.footnotes("markdown"))]
    shown = [metric for metric in METRICS.values() if metric.shown]
    heads = columns("method score", [*(metric.label for metric in shown), "seconds", "marks"])
    for task in _tasks(rows):
        body = []
        for row in rows:
            if row.task == task:
                cells = [_text(row, metric.key, metric.percent) for metric in shown]
                body.append([row.method, row.score, *cells, _text(row, "seconds"), letters(row)])
        title = f"{task.dataset}, {task.protocol} protocol, {task.setting} setting"
        parts += ["", f"## {escaped(title)}", "", Table(heads, body).markdown()]
    return "\n".join(parts) + "\n"


def latex(rows: Sequence[Row]) -> str:
    """The overview for a paper."""
    return f"% {one_line(conditions(rows))}\n{overview(rows).latex()}\n"


def tidy(rows: Sequence[Row]) -> str:
    """CSV with one line per data set, method, score and metric, in fractions."""
    heads = "dataset protocol setting method score metric mean std low high seeds rank marks disqualified"
    body = []
    for row in rows:
        marks = " ".join(f"{name}:{count}" for name, count in row.marks.items())
        for name, value in row.values.items():
            spread = (value.std, value.low, value.high) if value.n > 1 else (None,) * 3
            rank = row.rank if name == "auroc" else ""
            line = (*row.task, row.method, row.score, name, value.mean, *spread, value.n, rank, marks)
            body.append([*line, " ".join(row.disqualified)])
    return Table(columns(heads), body).csv()


def overview(rows: Sequence[Row], ranked: bool = True) -> Table:
    """One row per method and score; AUROC and accuracy for each data set, protocol and setting.

    Args:
        rows: The rows.
        ranked: The notes explain ranks.
    """
    names = _task_names(rows)
    heads = columns("method score") + [Column(what, name) for name in names.values() for what in ("AUROC", "accuracy")]
    by_key = {(row.task, row.method, row.score): row for row in rows}
    body: list[list[str | Cell]] = []
    for method, score in dict.fromkeys((row.method, row.score) for row in rows):
        line: list[str | Cell] = [method, score]
        for task in names:
            row = by_key.get((task, method, score))
            if row is None:
                line += ["", ""]
                continue
            note = f"({row.runs}) {letters(row)}" if row.is_short else letters(row)
            accuracy = _text(row, "accuracy", True) if row.headline else ""
            line += [Cell(_text(row, "auroc", True), row.rank, note.strip()), accuracy]
        body.append(line)
    return Table(heads, body, legend(rows, ranked))


def conditions(rows: Sequence[Row]) -> str:
    """Protocol and setting, as one line above a table."""
    protocols, settings = (dict.fromkeys(getattr(row, name) for row in rows) for name in ("protocol", "setting"))
    line = f"Protocol: {' and '.join(protocols)}. Setting: {' and '.join(settings)}."
    return f"{AS_PUBLISHED} {line}" if not all(row.can_rank for row in rows) else line


def legend(rows: Sequence[Row], ranked: bool = True) -> list[str]:
    """Notes on the signs in a table of these rows; see ``Table.notes``."""
    counts = sorted({row.runs for row in rows if row.runs})
    seeds = " to ".join(str(number) for number in dict.fromkeys((counts[0], counts[-1]))) if counts else "no"
    seeds += " seed" if seeds == "1" else " seeds"
    notes = [f"AUROC of OOD nodes and accuracy of ID nodes in per cent, mean ± standard deviation over {seeds}."]
    if any(row.setting == "inductive" for row in rows):
        notes.append("Inductive: training saw the training nodes and the edges among them, and no others.")
    if ranked and any(row.can_rank for row in rows):
        notes.append(_ranking(rows))
    if any(row.is_short for row in rows):
        notes.append("Numbers in brackets: finished runs, where some are missing.")
        notes[-1] += " Ranks compare common seeds, of rows with more than half of the runs." if ranked else ""
    seen = {(mark, _letter(mark, row.protocol)) for row in rows for mark in row.marks}
    for name, mark in MARKS.items():
        signs = " or ".join(sorted(letter for one, letter in seen if one == name))
        notes += [f"{signs}: {mark.meaning}. {mark.advice[0].upper()}{mark.advice[1:]}."] if signs else []
    if seen:
        notes.append("The number after a letter counts the marked runs, if not all are.")
        notes[-1] += " Rows with a capital letter are not ranked; small letters only inform." if ranked else ""
    failed = sum({(row.task, row.method): row.failed for row in rows}.values())
    if failed:
        notes.append(f"{failed} run{'s' if failed > 1 else ''} failed; the records hold the errors.")
    return notes


def _ranking(rows: Sequence[Row]) -> str:
    """Note on ranks, and on the data sets where differences could be tested."""
    note = f"{BEST}: best headline score of the ranked rows."
    rivals = Counter(row.task for row in rows if row.competes)
    tested = {row.task for row in rows if row.tested}
    if tested:
        note += f" {TIED}: not significantly worse (Wilcoxon over seeds, Holm, 0.05)."
    names = _task_names(rows)
    untested = [names[task] for task in names if rivals[task] > 1 and task not in tested]
    if untested:
        where = f" on {', '.join(untested)}" if tested else ""
        note += f" There are too few seeds to test differences{where}."
    return note


def headline(rows: Sequence[Row], ood_names: Mapping[TaskKey, Sequence[str]]) -> list[str]:
    """Main result on the first data set in a few sentences: of the first method with credal sets, or of the best.

    Args:
        rows: The rows.
        ood_names: Names of the left-out classes by task.
    """
    first = [row for row in rows if row.task == rows[0].task and row.headline and row.values]
    best = next((row for row in first if row.rank == "best"), None)
    main = next((row for row in first if "widest_ood" in row.values), best)
    if main is None or "auroc" not in main.values:
        return []
    names = ood_names.get(main.task, ())
    listed = f" ({', '.join(names)})" if 0 < len(names) <= 8 else ""
    auroc = f"AUROC {100 * main.values['auroc'].mean:.1f} %"
    lines = [f"{main.method} tells nodes of left-out classes{listed} on {main.dataset} from the others with {auroc}."]
    wide, narrow = (main.values.get(name) for name in ("widest_ood", "widest_id"))
    if wide is not None and narrow is not None:
        lines.append(
            f"Median widest interval: {wide.mean:.2f} of OOD nodes, {narrow.mean:.2f} of ID nodes (0: certain, 1: "
            "anything is possible)."
        )
    if best is not None and best is not main:
        lines.append(f"The best ranked method is {best.method}, with AUROC {100 * best.values['auroc'].mean:.1f} %.")
    return lines


def letters(row: Row) -> str:
    """Letters of the marks, with the number of marked runs if not all are."""
    return " ".join(
        _letter(mark, row.protocol) + (f"{count}" if count < row.runs else "") for mark, count in row.marks.items()
    )


def _letter(mark: str, protocol: str) -> str:
    """A capital takes a row out of the ranking. Marks of other versions have no letter and are shown by name."""
    letter = MARKS[mark].letter if mark in MARKS else mark
    return letter if disqualifies(mark, protocol) else letter.lower()


def _text(row: Row, metric: str, percent: bool = False) -> str:
    return row.values[metric].text(percent) if metric in row.values else "-"


def _tasks(rows: Sequence[Row]) -> list[TaskKey]:
    return list(dict.fromkeys(row.task for row in rows))


def _task_names(rows: Sequence[Row]) -> dict[TaskKey, str]:
    """Names of tasks: the data set, with protocol and setting where there are several."""
    several = [name for name in ("protocol", "setting") if len({getattr(row, name) for row in rows}) > 1]
    extra = {task: ", ".join(getattr(task, name) for name in several) for task in _tasks(rows)}
    return {task: f"{task.dataset} ({text})" if text else task.dataset for task, text in extra.items()}


# ---------------------------------------------------------------- page


def glossary(keys: Iterable[str]) -> dict[str, Any]:
    """Metrics and marks with their meanings, as pages explain them.

    Args:
        keys: Keys of the metrics.
    """
    fields = ("key", "label", "better", "percent", "meaning")
    return {
        "metrics": [{name: getattr(METRICS[key], name) for name in fields} for key in keys],
        "marks": {
            name: {"letter": mark.letter, "meaning": mark.meaning, "advice": mark.advice}
            for name, mark in MARKS.items()
        },
    }


def write_page(
    records: Sequence[dict[str, Any]], folders: Sequence[Path], path: Path, title: str = "credalgnn benchmark"
) -> None:
    """Write the page of records, with the predictions per node that are in their folders."""
    rows = make_rows(records)
    keys = dict.fromkeys([row.task for row in rows] + [TaskKey.of(record) for record in records])
    tasks = [
        _task(key, [record for record in records if TaskKey.of(record) == key], rows, [Path(one) for one in folders])
        for key in keys
    ]
    data = {
        "title": title,
        "tasks": [task for task in tasks if task["methods"]],
        "failed": [
            {name: record.get(name) for name in ("dataset", "protocol", "setting", "method", "seed", "error")}
            for record in records
            if record["status"] != "done"
        ],
        "versions": _versions(records),
        "finished": max((str(record["finished"]) for record in records if record.get("finished")), default=None),
        **glossary(key for key, metric in METRICS.items() if metric.shown),
    }
    write(Path(path), Page("benchmark", title, data, SCRIPTS, skip="results").render().encode())


def _versions(records: Iterable[Record]) -> dict[str, list[str]]:
    """All versions of every package that made a record."""
    versions: dict[str, dict[str, None]] = {}
    for record in records:
        for name, version in (record.get("versions") or {}).items():
            versions.setdefault(name, {})[str(version)] = None
    return {name: sorted(ones) for name, ones in versions.items()}


def _task(key: TaskKey, records: Sequence[Record], rows: Iterable[Row], folders: Sequence[Path]) -> dict[str, Any]:
    """Data of one data set under one protocol and setting."""
    task_rows = [row for row in rows if row.task == key]
    done = sorted(
        (record for record in records if record["status"] == "done"), key=lambda r: (r["seed"], r["split_seed"])
    )
    methods = {}
    for method in dict.fromkeys(row.method for row in task_rows):
        runs = [record for record in done if record["method"] == method]
        if runs:
            trivial = any(row.trivial for row in task_rows if row.method == method)
            methods[method] = {"trivial": trivial, **_method(runs)}
    return {
        **key._asdict(),
        "classes": done[0]["class_names"] if done else [],
        "ood": done[0]["ood_names"] if done else [],
        "counts": done[0]["counts"] if done else {},
        "seeds": sorted({record["seed"] for record in done}),
        "rows": [_row(row) for row in task_rows],
        "methods": methods,
        "nodes": _nodes(key.dataset, done, folders),
    }


def _row(row: Row) -> dict[str, Any]:
    values = {  # not rounded further, because the page rounds what it shows
        key: numbers((value.mean, value.std, value.low, value.high), 9) for key, value in row.values.items()
    }
    names = ("method", "score", "headline", "trivial", "marks", "disqualified", "runs", "failed", "rank", "tested",
             "competes")  # fmt: skip
    return {**{name: getattr(row, name) for name in names}, "values": values}


def _method(runs: Sequence[Record]) -> dict[str, Any]:
    """Curves of one method over its runs."""
    headline, scores = runs[0]["headline"], list(runs[0]["scores"])
    return {
        "headline": headline,
        "scores": scores,
        "roc": _band(run["curves"]["roc"].get(headline) for run in runs),
        "rejection": _band(run["curves"]["rejection"].get(headline) for run in runs),
        "histograms": {name: _histogram(runs[0]["curves"]["histogram"].get(name)) for name in scores},
        "seed": runs[0]["seed"],
        "training": [_training(run) for run in runs if run["curves"]["training"]],
        "diagnosis": runs[0].get("diagnosis"),
        "config": runs[0]["config"],
    }


def _band(curves: Iterable[Sequence[float | None] | None]) -> dict[str, Any] | None:
    """Mean, smallest and largest values of curves on one grid."""
    whole = [curve for curve in curves if curve and None not in curve]
    if not whole:
        return None
    stack = np.array(whole, dtype=float)
    parts = {"mean": stack.mean(0), "low": stack.min(0), "high": stack.max(0)}
    return {name: numbers(values) for name, values in parts.items()} | {"runs": len(whole)}


def _histogram(histogram: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return {**histogram, "edges": distinct_numbers(histogram["edges"])} if histogram else None


def _training(run: Record) -> dict[str, Any]:
    """At most ``EPOCHS`` epochs of a training curve, evenly spaced, including the first and the last."""
    curve = run["curves"]["training"]
    points = [curve[i] for i in np.unique(np.linspace(0, len(curve) - 1, EPOCHS).round().astype(int))]
    epoch, loss, monitor = zip(*points, strict=True)
    return {"seed": run["seed"], "epoch": list(epoch), "loss": numbers(loss), "monitor": numbers(monitor)}


# ---------------------------------------------------------------- nodes of the page


class _Predictions(NamedTuple):
    """Test nodes of one Parquet file in the order of their numbers."""

    path: Path
    headline: str
    node: NDArray[np.int64]
    ood: NDArray[np.bool_]
    label: NDArray[np.int64]
    prediction: NDArray[np.int64] | None
    scores: dict[str, NDArray[np.float64]]
    credal: bool

    def typical(self) -> dict[str, int]:
        """Positions of the ID and the OOD node with the median headline score; only of methods with credal sets."""
        groups = {"id": ~self.ood, "ood": self.ood} if self.credal else {}
        return example_nodes(self.scores[self.headline], groups)

    def extremes(self, top: int) -> dict[str, NDArray[np.int64]]:
        """Positions of the extreme nodes of each kind, most extreme first; ties in the order of the numbers."""
        both = {"EU", "AU"} <= set(self.scores)
        kinds = {"epistemic": "EU", "aleatoric": "AU"} if both else {"uncertain": self.headline}
        extremes = {kind: np.argsort(-self.scores[score], kind="stable")[:top] for kind, score in kinds.items()}
        surest = np.argsort(self.scores.get("TU", self.scores[self.headline]), kind="stable")
        if self.prediction is not None:
            extremes["wrong"] = surest[(~self.ood & (self.prediction != self.label))[surest]][:top]
        return extremes | {"ood": surest[self.ood[surest]][:top]}


def _nodes(dataset: str, done: Sequence[Record], folders: Sequence[Path]) -> dict[str, Any]:
    """Test nodes in the page: of the first seed for which most methods have predictions."""
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        return {"missing": f"Predictions per node cannot be read without pyarrow: {install_hint('pyarrow')}."}
    by_split: dict[tuple[int, int, str], list[tuple[Path, Record]]] = {}
    for record in done:
        if (place := _folder_of(record, folders)) is not None:
            by_split.setdefault((record["seed"], record["split_seed"], record["fingerprint"]), []).append(place)
    if not by_split:
        return {"missing": "There are no predictions per node: run the benchmark with --predictions first."}
    runs = by_split[max(by_split, key=lambda split: (len(by_split[split]), -split[0], -split[1]))]
    run, classes = runs[0][1], len(runs[0][1]["class_names"])
    tables = {record["method"]: _read(_parquet(folder, record), record) for folder, record in runs}
    first = next(iter(tables.values()))
    tables = {name: table for name, table in tables.items() if np.array_equal(table.node, first.node)}
    top, picked, sample = _choose(list(tables.values()), max(NODES // 4, NODES * MANY // max(MANY, classes)))
    chosen = first.node[picked]
    names: dict[str, int] = {}
    shared: dict[bytes, str] = {}
    return {
        "seed": run["seed"],
        "total": len(first.node),
        "node": chosen.tolist(),
        "class": [names.setdefault(one, len(names)) for one in _columns(first.path, ["class"], chosen)["class"]],
        "ood": first.ood[picked].astype(int).tolist(),
        "label": first.label[picked].tolist(),
        "sample": sample[picked].astype(int).tolist(),
        "methods": {name: _predictions(name, table, top, picked, classes, shared) for name, table in tables.items()},
        "graph": _graph([folder for folder, _ in runs], dataset, chosen, names),
        "names": list(names),  # last, because the neighbours add theirs
    }


def _parquet(folder: Path, record: Record) -> Path:
    return Folder(folder).predictions(record["dataset"], record["method"], record["seed"])


def _folder_of(record: Record, folders: Iterable[Path]) -> tuple[Path, Record] | None:
    """The folder with predictions of this very run, and the run's record there, which has their checksum."""
    for folder in folders:
        run = Folder(folder).record(record["dataset"], record["method"], record["seed"])
        if _parquet(folder, record).is_file() and run.is_file():
            stored = read_record(run)
            same = ("protocol", "setting", "split_seed", "fingerprint", "config")
            if stored.get("predictions") and all(stored[name] == record[name] for name in same):
                return folder, stored
    return None


def _choose(tables: Sequence[_Predictions], limit: int) -> tuple[int, NDArray[np.int64], NDArray[np.bool_]]:
    """At most ``limit`` nodes: number of extremes of each kind, positions of all, and mask of the random sample."""
    total = len(tables[0].node)
    if total <= limit:
        return TOP, np.arange(total), np.ones(total, dtype=bool)
    kinds = [places for table in tables for places in table.extremes(TOP).values()]
    middle = np.array([place for table in tables for place in table.typical().values()], dtype=np.int64)
    for top in range(TOP, 0, -1):  # extremes take two thirds at most
        extreme = np.unique(np.concatenate([middle, *(places[:top] for places in kinds)]))
        if len(extreme) <= limit * 2 // 3:
            break
    chosen, sample = np.zeros(total, dtype=bool), np.zeros(total, dtype=bool)
    chosen[extreme] = True
    order = np.random.default_rng(0).permutation(total)
    counts = np.cumsum(~chosen[order]) + len(extreme)  # of chosen nodes, once a node of the sample is added
    sample[order[: int(np.searchsorted(counts, limit)) + 1]] = True
    chosen |= sample
    return top, np.flatnonzero(chosen), sample


def _predictions(
    name: str, table: _Predictions, top: int, picked: NDArray[np.int64], classes: int, shared: dict[bytes, str]
) -> dict[str, Any]:
    """Predictions of one method for the picked nodes; probabilities that methods share are stored once."""
    from scipy.stats import rankdata

    rank = (rankdata(table.scores[table.headline]) - 0.5) / len(table.node)
    place = {int(position): i for i, position in enumerate(picked)}
    data: dict[str, Any] = {
        "prediction": None if table.prediction is None else table.prediction[picked].tolist(),
        "scores": {score: distinct_numbers(values[picked]) for score, values in table.scores.items()},
        "rank": [round(float(share), 4) for share in rank[picked]],
        "picks": {kind: [place[int(one)] for one in places] for kind, places in table.extremes(top).items()},
        "typical": {kind: place[one] for kind, one in table.typical().items()},
    }
    kinds = () if table.prediction is None else ("p", "lower", "upper")
    names = ["reasons", *(f"{kind}_{k}" for kind in kinds for k in range(classes))]
    stored = _columns(table.path, names, table.node[picked])
    if "reasons" in stored:
        data["reasons"] = [str(one or "") for one in stored["reasons"]]
    for kind in kinds:
        values = [stored[f"{kind}_{k}"] for k in range(classes) if f"{kind}_{k}" in stored]
        if len(values) == classes:
            stack = np.array(values, dtype=float).T
            same = shared.setdefault(stack.tobytes(), name) if kind == "p" else name
            stack[stack < 1e-6] = 0.0
            data[kind] = {"as": same} if same != name else [numbers(row) for row in stack]
    return data


def _read(path: Path, record: Record) -> _Predictions:
    """Predictions that belong to a record."""
    import pyarrow.compute as pc

    read_nodes(path, record["predictions"])
    headline, there = record["headline"], column_names(path)
    lacking = {"node", "split", "ood", "label", "class", "prediction", f"score_{headline}"}.difference(there)
    if lacking:
        raise RecordError(
            f"{path}: column {min(lacking)} is missing; delete the file, and the benchmark makes it again"
        )
    names = [name for name in there if not re.fullmatch(r"(p|lower|upper)_\d+|class|reasons", name)]
    table = read_columns(path, names)
    table = table.filter(pc.equal(table["split"], "test")).drop_columns("split").sort_by("node")
    column = {name: table[name].to_numpy() for name in table.column_names if name != "prediction"}
    prediction = None if table["prediction"].null_count else table["prediction"].to_numpy().astype(np.int64)
    scores = {name.removeprefix("score_"): column[name].astype(float) for name in names if name.startswith("score_")}
    credal = "lower_0" in there and prediction is not None
    return _Predictions(path, headline, column["node"], column["ood"], column["label"], prediction, scores, credal)


def _columns(path: Path, names: Sequence[str], nodes: NDArray[np.int64]) -> dict[str, list[Any]]:
    """Those of the columns that a Parquet file has, for some nodes; None for nodes that are not in it."""
    import pyarrow as pa
    import pyarrow.compute as pc

    read_nodes(path)
    there = [name for name in names if name in column_names(path)]
    table = read_columns(path, ["node", *there])
    table = table.filter(pc.is_in(table["node"], pa.array(nodes, table["node"].type)))
    place = {node: i for i, node in enumerate(table["node"].to_pylist())}
    values = {name: table[name].to_pylist() for name in there}
    rows = [place.get(int(node)) for node in nodes]
    return {name: [None if row is None else column[row] for row in rows] for name, column in values.items()}


def _graph(
    folders: Iterable[Path], dataset: str, nodes: NDArray[np.int64], names: dict[str, int]
) -> dict[str, Any] | None:
    """Degree, homophily and neighbours of the nodes; adds class names to ``names``."""
    for folder in folders:
        path = Folder(folder).graph(dataset)
        if path.is_file():
            fields = ["degree", "homophily", "neighbours", "neighbour_classes"]
            if lacking := {"node", *fields}.difference(column_names(path)):
                raise RecordError(
                    f"{path}: column {min(lacking)} is missing; delete the file, and the benchmark makes it again"
                )
            facts = _columns(path, fields, nodes)
            classes = [[names.setdefault(one, len(names)) for one in row or []] for row in facts["neighbour_classes"]]
            return {
                "degree": facts["degree"],
                "homophily": numbers(facts["homophily"]),
                "neighbours": [row or [] for row in facts["neighbours"]],
                "neighbour_classes": classes,
            }
    return None
