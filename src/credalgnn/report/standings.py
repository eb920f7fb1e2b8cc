"""Leaderboards: many methods on many graphs, with mean ranks, wins and losses, and the worst graph of each."""

from __future__ import annotations

import gzip
import json
import math
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ..graphs import DATASETS
from ..methods import METHODS
from ..metrics.registry import METRICS, OF_SCORES, Metric, disqualifies
from ..records.folder import EXPERIMENT, read_records
from ..records.schema import FORMAT, RecordError, is_ranked, wrong_field
from ..runtime.files import checksum, write
from ..runtime.reading import check_gzip, parse_json, read_bytes
from .page import Page, numbers
from .results import glossary, letters
from .summary import SIGNIFICANT, Row, TaskKey, check_alike, holm, make_rows, p_value
from .table import Table, columns

ARCHIVE, PAGE, TABLES = "runs.jsonl.gz", "leaderboard.html", "leaderboard.md"
TITLE = "Leaderboard of OOD detection on graphs"
REFERENCE = ("vanilla", "entropy")  # method and score that all others are compared with
FEWEST = 3  # graphs needed for a critical difference
RANKED = tuple(key for key, metric in METRICS.items() if metric.shown and metric.better)
LEFT_OUT = ("curves", "diagnosis", "peak_mib", "predictions")  # fields of records that an archive does not need
DIGITS = 6  # of numbers in an archive
Runs: TypeAlias = dict[tuple[str, str, str], dict[tuple[int, int], float]]  # by graph, method and score, then by seed
_OF_SCORES = {metric.key for metric in OF_SCORES}


class Condition(NamedTuple):
    """Conditions under which runs can be compared.

    Attributes:
        protocol: ``"sealed"`` or ``"paper"``.
        setting: ``"transductive"`` or ``"inductive"``.
        splits: ``"one"`` if all seeds share a split, ``"each"`` if every seed has its own.
    """

    protocol: str
    setting: str
    splits: str

    def __str__(self) -> str:
        return f"{self.protocol}, {self.setting}, {'one split' if self.splits == 'one' else 'a split for each seed'}"


@dataclass(frozen=True)
class Standing:
    """Standing of one method over all graphs, by one metric.

    Attributes:
        method: Name of the method.
        score: Its headline score.
        trivial: Needs no model.
        uses_unlabelled: Learns from unlabelled nodes beyond message passing; None for methods not known here.
        ranks: Rank on each ranked graph, 1 for the best; equal methods share a rank, marked ones the last.
        mean_rank: Mean over all ranked graphs; None if the method is not on all of them.
        wins: Number of graphs where it is significantly better than the reference.
        losses: Number of graphs where it is significantly worse.
        ties: Number of graphs without a significant difference, although there are enough seeds.
        untested: Number of graphs without enough seeds.
        marked: Number of graphs where a mark takes it out of the ranking.
        worst: Graph with its worst value, and the value.
        behind: Graph with its smallest lead over the reference, and the lead.
    """

    method: str
    score: str
    trivial: bool
    uses_unlabelled: bool | None
    ranks: dict[str, float]
    mean_rank: float | None
    wins: int
    losses: int
    ties: int
    untested: int
    marked: int
    worst: tuple[str, float] | None
    behind: tuple[str, float] | None


@dataclass(frozen=True)
class Standings:
    """All methods under one condition, by one metric.

    Attributes:
        condition: The condition.
        metric: The metric.
        graphs: Names of the data sets.
        ranked: Data sets with more than half of the methods; mean ranks are over these.
        methods: Standings by mean rank, methods without one last.
        critical_difference: Mean ranks that differ by less are not significantly different (Nemenyi, 0.05); None with
            too few graphs.
        p_value: p-value of all methods being equally good (Friedman); None where that cannot be tested.
    """

    condition: Condition
    metric: Metric[Any]
    graphs: tuple[str, ...]
    ranked: tuple[str, ...]
    methods: tuple[Standing, ...]
    critical_difference: float | None
    p_value: float | None


@dataclass(frozen=True, eq=False)
class Leaderboard:
    """Runs of many methods on many graphs; ``leaderboard`` collects them.

    Attributes:
        records: One record per finished run.
        doubles: Number of runs in more than one folder; those of the first folder count.

    Example:
        >>> board = cg.leaderboard(["docs/results/leaderboard", "runs/mine"])
        >>> print(board)
        >>> board.write("runs/leaderboard")
    """

    records: list[dict[str, Any]]
    doubles: int = 0

    @cached_property
    def conditions(self) -> dict[Condition, list[dict[str, Any]]]:
        """Comparable runs by condition."""
        return _conditions(self.records)

    @cached_property
    def rows(self) -> dict[Condition, list[Row]]:
        """One row per graph, method and score, by condition."""
        return {condition: make_rows(records) for condition, records in self.conditions.items()}

    def standings(self, condition: Condition, metric: str = "auroc") -> Standings:
        """Compare the methods under a condition.

        Args:
            condition: One of ``conditions``.
            metric: Key of a metric that has a better direction.
        """
        return _standings(condition, METRICS[metric], self.conditions[condition], self.rows[condition])

    def write(self, out: str | Path) -> Path:
        """Write ``leaderboard.html``, ``leaderboard.md`` and the runs themselves, ``runs.jsonl.gz``.

        Args:
            out: Folder to write to.

        Returns:
            The path of the page.
        """
        write_archive(self.records, Path(out) / ARCHIVE)
        write(Path(out) / TABLES, _markdown(self).encode())
        page = Page("leaderboard", TITLE, _page_data(self), ("common.js", "charts.js", "leaderboard.js"), skip="board")
        write(Path(out) / PAGE, page.render().encode())
        return Path(out) / PAGE

    def __str__(self) -> str:
        parts = []
        for condition in self.conditions:
            standings = self.standings(condition)
            table = _summary(standings)
            parts += [*_head(standings), "", table.terminal(), "", *table.notes, ""]
        return "\n".join(parts).rstrip()


def leaderboard(folders: Sequence[str | Path], out: str | Path | None = None) -> Leaderboard:
    """Collect the runs of several folders, such as those of a published leaderboard and one's own.

    Args:
        folders: Folders of benchmarks or leaderboards.
        out: Folder for page, tables and runs; None: nothing is written.
    """
    merged: dict[tuple[Any, ...], tuple[Path, dict[str, Any]]] = {}
    doubles = 0
    for folder in map(Path, folders):
        for record in _read_folder(folder):
            if record["status"] != "done":
                continue
            key = (*TaskKey.of(record), record["method"], record["seed"], record["split_seed"])
            other, earlier = merged.setdefault(key, (folder, record))
            if earlier is record:
                continue
            doubles += 1
            for name, what in (("fingerprint", "data or splits"), ("config", "hyper-parameters")):
                if earlier[name] != record[name]:
                    run = f"{record['dataset']} {record['method']} seed {record['seed']}"
                    raise RecordError(
                        f"{other} and {folder} both hold {run}, with different {what}: leave one of them out, or give "
                        "the method another name"
                    )
    if not merged:
        raise RecordError(f"{', '.join(map(str, folders))}: no run was successful, so there is nothing to compare")
    order = {name: number for number, name in enumerate(DATASETS)}
    records = sorted((record for _, record in merged.values()), key=lambda one: order.get(one["dataset"], len(order)))
    board = Leaderboard(records, doubles)
    for compared in board.conditions.values():
        check_alike(compared)
    if out is not None:
        board.write(out)
    return board


# ---------------------------------------------------------------- archive of runs


def write_archive(records: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Write successful runs without their curves as lines of JSON; the same runs give the same bytes.

    The first line has the number of runs and a checksum. Numbers keep six digits, and only metrics of tables are kept.
    """
    lines = [json.dumps(_slim(record), sort_keys=True) + "\n" for record in records if record["status"] == "done"]
    content = "".join(lines).encode()
    head = {"format": FORMAT, "runs": len(lines), "checksum": checksum(content)}
    write(path, gzip.compress((json.dumps(head) + "\n").encode() + content, mtime=0))


def read_archive(path: Path) -> list[dict[str, Any]]:
    """Read and check the runs that ``write_archive`` wrote."""
    remedy = "get it again from its source"
    try:
        check_gzip(path)
        head, _, content = gzip.decompress(read_bytes(path)).partition(b"\n")
        about = parse_json(head)
        records = [parse_json(line) for line in content.splitlines()]
    except OSError as error:
        raise RecordError(f"{path}: cannot be read ({error.strerror or error}); {remedy}") from None
    except (EOFError, ValueError, zlib.error) as error:
        raise RecordError(f"{path}: damaged ({error}); {remedy}") from None
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        raise RecordError(f"{path}: made by another version of credalgnn (this one reads runs of format {FORMAT})")
    if about.get("checksum") != checksum(content):
        raise RecordError(f"{path}: damaged (the checksum of its first line does not match); {remedy}")
    for number, record in enumerate(records, 2):
        wrong = wrong_field(record, LEFT_OUT) if isinstance(record, dict) else "record"
        if wrong is not None:
            raise RecordError(f"{path}, line {number}: {wrong} is missing or wrong; {remedy}")
    return records


def _slim(record: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name not in LEFT_OUT} | {
        "metrics": _shown(record["metrics"]),
        "scores": {score: _shown(metrics) for score, metrics in record["scores"].items()},
        "seconds": _rounded(record["seconds"]),
    }


def _shown(metrics: Mapping[str, float | None]) -> dict[str, float | None]:
    return _rounded({key: value for key, value in metrics.items() if key not in METRICS or METRICS[key].shown})


def _rounded(values: Mapping[str, float | None]) -> dict[str, float | None]:
    return {name: None if value is None else float(f"{value:.{DIGITS}g}") for name, value in values.items()}


def _read_folder(folder: Path) -> list[dict[str, Any]]:
    """Records of a benchmark or of a leaderboard."""
    archived = not (folder / EXPERIMENT).is_file() and (folder / ARCHIVE).is_file()
    records = read_archive(folder / ARCHIVE) if archived else read_records(folder)
    if not all(map(is_ranked, records)):
        raise RecordError(
            f"{folder}: repeats choices of the paper's published runs (as published), which explain its figures and "
            "compare no methods: leave it out"
        )
    return records


# ---------------------------------------------------------------- standings


def _conditions(records: Iterable[dict[str, Any]]) -> dict[Condition, list[dict[str, Any]]]:
    """Runs of each data set on one split, and those where every seed has its own; the first run may be in both."""
    tasks: dict[TaskKey, list[dict[str, Any]]] = {}
    for record in records:
        tasks.setdefault(TaskKey.of(record), []).append(record)
    conditions: dict[Condition, list[dict[str, Any]]] = {}
    for task, runs in tasks.items():
        of_split = Counter(record["split_seed"] for record in runs)
        each = [record for record in runs if record["seed"] == record["split_seed"]]
        split, _ = max(of_split.items(), key=lambda item: (item[1], -item[0]))
        one = [record for record in runs if record["split_seed"] == split]
        if len({record["split_seed"] for record in each}) < 2:
            each = []
        elif {record["seed"] for record in one} == {split}:
            one = []  # every seed has its own split
        used = {id(record) for record in (*one, *each)}
        unused = {record["split_seed"] for record in runs if id(record) not in used}
        if unused:
            splits = ", ".join(map(str, sorted({split, *unused})))
            raise RecordError(f"{task.dataset}: runs on the splits {splits}; collect them separately")
        for name, chosen in (("one", one), ("each", each)):
            if chosen:
                conditions.setdefault(Condition(task.protocol, task.setting, name), []).extend(chosen)
    first = ("sealed", "transductive", "one")
    return dict(
        sorted(conditions.items(), key=lambda item: [name != usual for name, usual in zip(item[0], first, strict=True)])
    )


def _standings(
    condition: Condition, metric: Metric[Any], records: Sequence[Mapping[str, Any]], rows: Sequence[Row]
) -> Standings:
    graphs = tuple(dict.fromkeys(row.dataset for row in rows))
    headlines = {(row.dataset, row.method): row for row in rows if row.headline and metric.key in row.values}
    methods = dict.fromkeys(row.method for row in headlines.values())
    values = {
        method: {
            graph: headlines[graph, method].values[metric.key].mean for graph in graphs if (graph, method) in headlines
        }
        for method in methods
    }
    marked = {
        (graph, method)
        for (graph, method), row in headlines.items()
        if metric.key in _OF_SCORES and any(disqualifies(mark, condition.protocol) for mark in row.marks)
    }
    ranked = tuple(graph for graph in graphs if 2 * sum(graph in values[method] for method in methods) > len(methods))
    everywhere = [method for method in methods if set(ranked) <= set(values[method])] if ranked else []
    ranks = _ranks(everywhere, ranked, values, marked, metric.better)
    runs = _runs(records, metric.key)
    standings = []
    for method in methods:
        first = next(row for (_, name), row in headlines.items() if name == method)
        kind = METHODS.get(method)
        against = _against_reference(method, first.score, graphs, runs, marked, metric.better)
        fair = {graph: value for graph, value in values[method].items() if (graph, method) not in marked}
        leads = {graph: lead for graph, (lead, _) in against.items()}
        outcomes = Counter(outcome for _, outcome in against.values())
        standings.append(
            Standing(
                method,
                first.score,
                first.trivial,
                kind.uses_unlabelled if kind else None,
                ranks.get(method, {}),
                float(np.mean(list(ranks[method].values()))) if method in ranks else None,
                outcomes["win"],
                outcomes["loss"],
                outcomes["tie"],
                outcomes["untested"],
                sum((graph, method) in marked for graph in graphs),
                min(fair.items(), key=lambda item: metric.better * item[1], default=None),
                min(leads.items(), key=lambda item: item[1], default=None),
            )
        )
    standings.sort(key=lambda one: math.inf if one.mean_rank is None else one.mean_rank)
    table = [[ranks[method][graph] for method in everywhere] for graph in ranked]
    critical = critical_difference(len(everywhere), len(ranked))
    return Standings(condition, metric, graphs, ranked, tuple(standings), critical, _friedman(table))


def _ranks(
    methods: Sequence[str],
    graphs: Sequence[str],
    values: Mapping[str, Mapping[str, float]],
    marked: set[tuple[str, str]],
    better: int,
) -> dict[str, dict[str, float]]:
    from scipy.stats import rankdata

    ranks: dict[str, dict[str, float]] = {method: {} for method in methods}
    for graph in graphs:
        # Means of the same numbers in another order differ in their last digits, which must not decide a rank.
        means = [round(-better * values[method][graph], 10) for method in methods]
        costs = [math.inf if (graph, name) in marked else mean for name, mean in zip(methods, means, strict=True)]
        for method, rank in zip(methods, rankdata(costs), strict=True):
            ranks[method][graph] = float(rank)
    return ranks


def _runs(records: Iterable[Mapping[str, Any]], metric: str) -> Runs:
    """Values of a metric."""
    runs: Runs = {}
    for record in records:
        for score, metrics in record["scores"].items():
            value = {**record["metrics"], **metrics}.get(metric)
            if value is not None:
                key = (record["dataset"], record["method"], score)
                runs.setdefault(key, {})[record["seed"], record["split_seed"]] = value
    return runs


def _against_reference(
    method: str, score: str, graphs: Sequence[str], runs: Runs, marked: set[tuple[str, str]], better: int
) -> dict[str, tuple[float, str]]:
    """Mean lead over the reference on common seeds, and the outcome of a test, by graph.

    Two-sided Wilcoxon signed-rank tests, with Holm's correction for the graphs that can be tested.
    """
    leads: dict[str, list[float]] = {}
    for graph in graphs:
        of_method, of_reference = runs.get((graph, method, score), {}), runs.get((graph, *REFERENCE), {})
        common = sorted(set(of_method) & set(of_reference))
        if common and (graph, method) not in marked:
            leads[graph] = [better * (of_method[seed] - of_reference[seed]) for seed in common]
    enough = {graph: values for graph, values in leads.items() if len(leads) * 2 * 0.5 ** len(values) < SIGNIFICANT}
    corrected = holm({graph: p_value(values, "two-sided") for graph, values in enough.items()})
    outcomes = {}
    for graph, values in leads.items():
        lead = float(np.mean(values))
        certain = corrected.get(graph, 1.0) < SIGNIFICANT
        outcome = "tie" if not certain else "win" if lead > 0 else "loss"
        outcomes[graph] = lead, outcome if graph in enough else "untested"
    return outcomes


def critical_difference(methods: int, graphs: int) -> float | None:
    """Smallest difference of mean ranks that the Nemenyi test finds significant at 0.05 (Demsar 2006).

    Args:
        methods: Number of ranked methods.
        graphs: Number of graphs.
    """
    if methods < 2 or graphs < FEWEST:
        return None
    from scipy.stats import studentized_range

    quantile = float(studentized_range.ppf(1.0 - SIGNIFICANT, methods, np.inf)) / math.sqrt(2.0)
    return quantile * math.sqrt(methods * (methods + 1) / (6.0 * graphs))


def _friedman(ranks: Sequence[Sequence[float]]) -> float | None:
    """p-value of ranks this different if all methods were equal; one row per graph."""
    if len(ranks) < FEWEST or len(ranks[0]) < 3 or all(len(set(row)) == 1 for row in ranks):
        return None
    from scipy.stats import friedmanchisquare

    return float(friedmanchisquare(*zip(*ranks, strict=True)).pvalue)


# ---------------------------------------------------------------- tables and page


def _markdown(board: Leaderboard) -> str:
    methods, graphs = ({record[name] for record in board.records} for name in ("method", "dataset"))
    parts = [f"# {TITLE}", "", f"{len(methods)} methods, {len(graphs)} graphs, {len(board.records):,} runs."]
    for condition, rows in board.rows.items():
        standings = board.standings(condition)
        table = _summary(standings)
        parts += ["", f"## {condition}", "", *_head(standings)[1:], "", table.markdown(), ""]
        parts += [note + "  " for note in table.notes]
        for metric in ("auroc", "accuracy"):
            parts += ["", f"{METRICS[metric].label}, per cent", "", _by_graph(standings, rows, metric).markdown()]
    return "\n".join(parts) + "\n"


def _head(standings: Standings) -> list[str]:
    """The condition, and the result of the test of all methods at once."""
    lines = [f"{standings.condition} ({standings.metric.label}, {len(standings.graphs)} graphs)"]
    ranked = [one for one in standings.methods if one.mean_rank is not None]
    if standings.critical_difference is not None and standings.p_value is not None:
        lines.append(
            f"Mean ranks of {len(ranked)} methods over {len(standings.ranked)} graphs. Critical difference (Nemenyi, "
            f"0.05): {standings.critical_difference:.1f}; all methods equal (Friedman): p = {standings.p_value:.1g}."
        )
    else:
        lines.append("Too few graphs or methods to test differences of mean ranks.")
    return lines


def _summary(standings: Standings) -> Table:
    label, scale = standings.metric.label, 100.0 if standings.metric.percent else 1.0

    def named(value: tuple[str, float] | None, sign: str = "") -> str | None:
        return None if value is None else f"{scale * value[1]:{sign}.{1 if scale > 1 else 3}f} {value[0]}"

    body = []
    for one in standings.methods:
        tested = one.wins + one.losses + one.ties
        ranks = f"{min(one.ranks.values()):g} to {max(one.ranks.values()):g}" if one.ranks else None
        counts = [count if tested else None for count in (one.wins, one.ties, one.losses)]
        body.append([one.method, one.score, one.mean_rank, ranks, *counts, one.marked or "", named(one.worst),
                     named(one.behind, "+")])  # fmt: skip
    heads = ["mean rank", "ranks", "wins", "ties", "losses", "marked", f"worst {label}", "worst lead"]
    reference = " ".join(REFERENCE)
    notes = [
        f"wins, ties, losses: graphs where it is significantly better than {reference}, not different, or worse "
        "(two-sided Wilcoxon over seeds, Holm over graphs, 0.05).",
        "marked: graphs where a mark takes it out of the ranking: it shares the last rank there, and no other column "
        "counts these graphs.",
        f"worst lead: its smallest lead over {reference}.",
    ]
    return Table(columns("method score", heads, ".1f"), body, notes)


def _by_graph(standings: Standings, rows: Sequence[Row], metric: str) -> Table:
    headlines = {(row.dataset, row.method): row for row in rows if row.headline}
    body = []
    for one in standings.methods:
        line = [one.method, one.score]
        for graph in standings.graphs:
            row = headlines.get((graph, one.method))
            value = None if row is None else row.values.get(metric)
            text = "" if row is None else "-" if value is None else value.text(METRICS[metric].percent)
            line.append(f"{text} {letters(row)}".strip() if row is not None and metric == "auroc" else text)
        body.append(line)
    return Table(columns("method score", standings.graphs), body)


def _page_data(board: Leaderboard) -> dict[str, Any]:
    return {
        "conditions": [_condition_data(board, condition) for condition in board.conditions],
        **glossary(RANKED),
        "reference": " ".join(REFERENCE),
        "runs": len(board.records),
        "finished": max(record["finished"] for record in board.records),
    }


def _condition_data(board: Leaderboard, condition: Condition) -> dict[str, Any]:
    records = board.conditions[condition]
    about = {record["dataset"]: record for record in records}
    by_score: dict[tuple[str, str], list[Row]] = {}
    for row in board.rows[condition]:
        if row.values:
            by_score.setdefault((row.method, row.score), []).append(row)
    return {
        **condition._asdict(),
        "graphs": [
            {"name": graph, "classes": len(record["class_names"]), "ood": record["ood_names"],
             "counts": record["counts"], "seeds": len({one["seed"] for one in records if one["dataset"] == graph})}
            for graph, record in about.items()
        ],
        "rows": [
            {"method": method, "score": score, "headline": rows[0].headline, "trivial": rows[0].trivial,
             "values": {row.dataset: _values(row) for row in rows},
             "marks": {row.dataset: row.marks for row in rows if row.marks},
             "disqualified": {row.dataset: row.disqualified for row in rows if row.disqualified}}
            for (method, score), rows in by_score.items()
        ],
        "standings": {metric: _standings_data(board.standings(condition, metric)) for metric in RANKED},
    }  # fmt: skip


def _values(row: Row) -> dict[str, list[float | int | None]]:
    """Mean, standard deviation and number of runs of every ranked metric."""
    return {
        key: [*numbers((row.values[key].mean, row.values[key].std), 5), row.values[key].n]
        for key in RANKED
        if key in row.values
    }


def _standings_data(standings: Standings) -> Mapping[str, Any]:
    def named(value: tuple[str, float] | None) -> list[Any] | None:
        return value and [value[0], *numbers([value[1]], 5)]

    critical = standings.critical_difference
    return {
        "critical": None if critical is None else round(critical, 2),
        "p": standings.p_value,
        "ranked": standings.ranked,
        "methods": {
            one.method: {
                **asdict(one),
                "mean_rank": None if one.mean_rank is None else round(one.mean_rank, 3),
                "worst": named(one.worst),
                "behind": named(one.behind),
            }
            for one in standings.methods
        },
    }
