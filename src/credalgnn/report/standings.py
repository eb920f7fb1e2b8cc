"""Many methods on many graphs in one table that hides nothing: mean ranks, wins and losses, the worst graph of each."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ..graphs import DATASETS
from ..methods import METHODS
from ..metrics.registry import METRICS, OF_SCORES, Metric, disqualifies
from ..records.folder import EXPERIMENT, read_records
from ..records.schema import RecordError, is_published
from .archive import ARCHIVE, read_archive
from .summary import SIGNIFICANT, Row, TaskKey, check_alike, holm, make_rows, p_value

REFERENCE = ("vanilla", "entropy")  # what every method is held against: the entropy of a plain GNN's softmax
FEWEST = 3  # graphs from which on a critical difference is worth a number
RANKED = tuple(key for key, metric in METRICS.items() if metric.shown and metric.better)
Runs: TypeAlias = dict[tuple[str, str, str], dict[tuple[int, int], float]]  # of a graph, method and score, by seed
_OF_SCORES = {metric.key for metric in OF_SCORES}


class Condition(NamedTuple):
    """Under which conditions runs can be compared.

    Attributes:
        protocol: What was allowed to be looked at.
        setting: Which nodes were there in training.
        splits: ``"one"`` if all seeds share a split, ``"each"`` if every seed has its own.
    """

    protocol: str
    setting: str
    splits: str

    def __str__(self) -> str:
        return f"{self.protocol}, {self.setting}, {'one split' if self.splits == 'one' else 'a split for each seed'}"


@dataclass(frozen=True)
class Standing:
    """How one method stands over all graphs, by one metric.

    Attributes:
        method: Its name.
        score: The headline score.
        trivial: Whether it needs no model.
        uses_unlabelled: Whether unlabelled nodes teach it more than messages do; None if nobody here knows the method.
        ranks: On each ranked graph, 1 for the best; methods that are equally good share a rank, marked ones the last.
        mean_rank: Over all ranked graphs; None if it is not on all of them.
        wins: Graphs on which it is significantly better than the reference.
        losses: Graphs on which it is significantly worse.
        ties: Graphs on which neither can be said, although there are seeds enough to say it.
        untested: Graphs without seeds enough.
        marked: Graphs on which a mark takes it out.
        worst: The graph with its worst value, and the value.
        behind: The graph on which it gains least on the reference or is furthest behind it, and its lead there.
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
        graphs: The data sets.
        ranked: Those on which more than half of the methods are: mean ranks are over these.
        methods: One entry a method, the best mean rank first; those without one last.
        critical_difference: Mean ranks that differ by less are not told apart (Nemenyi, 0.05); None for want of graphs.
        p_value: Of all methods being equally good (Friedman); None where that cannot be tested.
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
    """Runs of many methods on many graphs.

    Attributes:
        records: One per finished run.
        doubles: How many runs were in more than one folder; those of the first one count.
    """

    records: list[dict[str, Any]]
    doubles: int = 0

    @cached_property
    def conditions(self) -> dict[Condition, list[dict[str, Any]]]:
        """The runs that can be compared with each other, by condition."""
        return _conditions(self.records)

    @cached_property
    def rows(self) -> dict[Condition, list[Row]]:
        """By condition, one row per graph, method and score."""
        return {condition: make_rows(records) for condition, records in self.conditions.items()}

    def standings(self, condition: Condition, metric: str = "auroc") -> Standings:
        """How the methods stand under a condition.

        Args:
            condition: One of ``conditions``.
            metric: The key of a metric that has a better direction.
        """
        return _standings(condition, METRICS[metric], self.conditions[condition], self.rows[condition])

    def write(self, out: str | Path) -> Path:
        """Write ``leaderboard.html``, ``leaderboard.md`` and the runs themselves, ``runs.jsonl.gz``.

        Args:
            out: The folder to write to.

        Returns:
            The page.
        """
        from .leaderboard_page import write_leaderboard

        return write_leaderboard(self, Path(out))

    def __str__(self) -> str:
        from .leaderboard_page import as_text

        return as_text(self)


def leaderboard(folders: Sequence[str | Path], out: str | Path | None = None) -> Leaderboard:
    """Collect runs of one or more folders, such as those of a published leaderboard and one's own, into one.

    Args:
        folders: Of benchmarks, or of leaderboards.
        out: Where page, tables and runs go; None: nothing is written.
    """
    merged: dict[tuple[Any, ...], tuple[Path, dict[str, Any]]] = {}
    doubles = 0
    for folder in map(Path, folders):
        for record in read_folder(folder):
            if record["status"] != "done":
                continue
            key = (*TaskKey.of(record), record["method"], record["seed"], record["split_seed"])
            other, known = merged.setdefault(key, (folder, record))
            if known is record:
                continue
            doubles += 1
            for name, what in (("fingerprint", "data or splits"), ("config", "hyper-parameters")):
                if known[name] != record[name]:
                    run = f"{record['dataset']} {record['method']} seed {record['seed']}"
                    raise RecordError(
                        f"{other} and {folder} both hold {run}, with other {what}: leave one of them out, or give the "
                        "method another name"
                    )
    if not merged:
        raise RecordError(f"{', '.join(map(str, folders))}: no run has ended well, so there is nothing to compare")
    order = {name: number for number, name in enumerate(DATASETS)}
    records = sorted((record for _, record in merged.values()), key=lambda one: order.get(one["dataset"], len(order)))
    board = Leaderboard(records, doubles)
    for compared in board.conditions.values():
        check_alike(compared)
    if out is not None:
        board.write(out)
    return board


def read_folder(folder: Path) -> list[dict[str, Any]]:
    """The records of a benchmark's folder, or of a leaderboard's.

    Args:
        folder: The folder.
    """
    archived = not (folder / EXPERIMENT).is_file() and (folder / ARCHIVE).is_file()
    records = read_archive(folder / ARCHIVE) if archived else read_records(folder)
    if any(is_published(record["method"]) for record in records):
        raise RecordError(
            f"{folder}: repeats choices of the paper's published runs (as published), which explain its figures and "
            "compare no methods: leave it out"
        )
    return records


def _conditions(records: Iterable[dict[str, Any]]) -> dict[Condition, list[dict[str, Any]]]:
    """A data set's runs on one split, and those in which every seed has its own; the first run may belong to both."""
    tasks: dict[TaskKey, list[dict[str, Any]]] = {}
    for record in records:
        tasks.setdefault(TaskKey.of(record), []).append(record)
    result: dict[Condition, list[dict[str, Any]]] = {}
    for task, runs in tasks.items():
        of_split = Counter(record["split_seed"] for record in runs)
        own = [record for record in runs if record["seed"] == record["split_seed"]]
        split, _ = max(of_split.items(), key=lambda item: (item[1], -item[0]))
        one = [record for record in runs if record["split_seed"] == split]
        if len({record["split_seed"] for record in own}) < 2:
            own = []
        elif {record["seed"] for record in one} == {split}:
            one = []  # every seed has its own split
        kept = {id(record) for record in (*one, *own)}
        lost = {record["split_seed"] for record in runs if id(record) not in kept}
        if lost:
            numbers = ", ".join(map(str, sorted({split, *lost})))
            raise RecordError(f"{task.dataset}: runs on the splits {numbers}; collect them apart")
        for splits, chosen in (("one", one), ("each", own)):
            if chosen:
                result.setdefault(Condition(task.protocol, task.setting, splits), []).extend(chosen)
    first = ("sealed", "transductive", "one")  # the others follow
    return dict(
        sorted(result.items(), key=lambda item: [name != usual for name, usual in zip(item[0], first, strict=True)])
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
        against = _against(method, first.score, graphs, runs, marked, metric.better)
        fair = {graph: value for graph, value in values[method].items() if (graph, method) not in marked}
        leads = {graph: lead for graph, (lead, _) in against.items()}
        outcome = Counter(result for _, result in against.values())
        standings.append(
            Standing(
                method,
                first.score,
                first.trivial,
                kind.uses_unlabelled if kind else None,
                ranks.get(method, {}),
                float(np.mean(list(ranks[method].values()))) if method in ranks else None,
                outcome["win"],
                outcome["loss"],
                outcome["tie"],
                outcome["untested"],
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

    result: dict[str, dict[str, float]] = {method: {} for method in methods}
    for graph in graphs:
        # Means of the same numbers in another order differ in their last digits, which shall not decide a rank.
        means = [round(-better * values[method][graph], 10) for method in methods]
        costs = [math.inf if (graph, name) in marked else mean for name, mean in zip(methods, means, strict=True)]
        for method, rank in zip(methods, rankdata(costs), strict=True):
            result[method][graph] = float(rank)
    return result


def _runs(
    records: Iterable[Mapping[str, Any]], metric: str
) -> dict[tuple[str, str, str], dict[tuple[int, int], float]]:
    """Of every graph, method and score the value of each run that has one."""
    result: dict[tuple[str, str, str], dict[tuple[int, int], float]] = {}
    for record in records:
        for score, metrics in record["scores"].items():
            value = {**record["metrics"], **metrics}.get(metric)
            if value is not None:
                key = (record["dataset"], record["method"], score)
                result.setdefault(key, {})[record["seed"], record["split_seed"]] = value
    return result


def _against(
    method: str,
    score: str,
    graphs: Sequence[str],
    runs: Runs,
    marked: set[tuple[str, str]],
    better: int,
) -> dict[str, tuple[float, str]]:
    """On each graph the mean lead on the reference over common seeds, and what a paired test makes of it.

    Two-sided Wilcoxon signed-rank tests, corrected by Holm for the number of graphs that can be tested.
    """
    leads: dict[str, list[float]] = {}
    for graph in graphs:
        mine, other = runs.get((graph, method, score), {}), runs.get((graph, *REFERENCE), {})
        common = sorted(set(mine) & set(other))
        if common and (graph, method) not in marked:
            leads[graph] = [better * (mine[seed] - other[seed]) for seed in common]
    enough = {graph: values for graph, values in leads.items() if len(leads) * 2 * 0.5 ** len(values) < SIGNIFICANT}
    corrected = holm({graph: p_value(values, "two-sided") for graph, values in enough.items()})
    result = {}
    for graph, values in leads.items():
        lead = float(np.mean(values))
        certain = corrected.get(graph, 1.0) < SIGNIFICANT
        tested = "tie" if not certain else "win" if lead > 0 else "loss"
        result[graph] = lead, tested if graph in enough else "untested"
    return result


def critical_difference(methods: int, graphs: int) -> float | None:
    """The least difference of mean ranks that the Nemenyi test finds significant at 0.05 (Demsar 2006).

    Args:
        methods: How many are ranked.
        graphs: How many they are ranked on.
    """
    if methods < 2 or graphs < FEWEST:
        return None
    from scipy.stats import studentized_range

    quantile = float(studentized_range.ppf(1.0 - SIGNIFICANT, methods, np.inf)) / math.sqrt(2.0)
    return quantile * math.sqrt(methods * (methods + 1) / (6.0 * graphs))


def _friedman(ranks: Sequence[Sequence[float]]) -> float | None:
    """The chance of ranks this different if all methods were alike; a row a graph."""
    if len(ranks) < FEWEST or len(ranks[0]) < 3 or all(len(set(row)) == 1 for row in ranks):
        return None
    from scipy.stats import friedmanchisquare

    return float(friedmanchisquare(*zip(*ranks, strict=True)).pvalue)
