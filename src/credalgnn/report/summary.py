"""Rows of tables from the records of runs: means over seeds, intervals, ranks and tests."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..graphs import DATASETS
from ..methods import METHODS
from ..metrics.registry import MARKS, disqualifies
from ..records.folder import read_records
from ..records.schema import RecordError, is_ranked

Key = TypeVar("Key")
RESAMPLES = 10_000
SIGNIFICANT = 0.05
_SAME = ("config", "fingerprint", "metrics", "scores")  # must agree where two folders hold the same run


@dataclass(frozen=True)
class Summary:
    """Mean of ``n`` values, standard deviation, and 95 % bootstrap interval of the mean."""

    mean: float
    std: float
    low: float
    high: float
    n: int

    def text(self, percent: bool = False) -> str:
        """Mean and standard deviation, as tables show them.

        Args:
            percent: The values are fractions and shown in per cent.
        """
        factor, digits = 100.0 if percent else 1.0, 1 if percent or self.mean >= 10 else 3
        std = f" ± {factor * self.std:.{digits}f}" if self.n > 1 else ""
        return f"{factor * self.mean:.{digits}f}{std}"


class TaskKey(NamedTuple):
    """Data set, protocol and setting: methods are compared within one of these."""

    dataset: str
    protocol: str
    setting: str

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> TaskKey:
        return cls(record["dataset"], record["protocol"], record["setting"])


@dataclass(frozen=True)
class Row:
    """One score of one method on one task, over all seeds.

    Attributes:
        dataset: Name of the data set.
        protocol: ``"sealed"`` or ``"paper"``.
        setting: ``"transductive"`` or ``"inductive"``.
        method: Name of the method.
        score: Name of the score.
        headline: Is the method's main score, which was fixed before the run.
        trivial: Needs no model.
        values: Summary over seeds by metric.
        marks: Number of runs with each mark.
        runs: Number of finished runs.
        failed: Number of failed runs.
        rank: By AUROC ``"best"``, ``"tied"`` (not significantly worse), or nothing.
        tested: There were enough seeds for the test against the best.
        competes: Is ranked: a headline score without disqualifying marks and with more than half of the runs.
        is_short: Some runs are missing.
        can_rank: False: the runs repeat choices of the paper's published runs and are not ranked.
    """

    dataset: str
    protocol: str
    setting: str
    method: str
    score: str
    headline: bool
    trivial: bool
    values: dict[str, Summary]
    marks: dict[str, int]
    runs: int
    failed: int
    rank: str = ""
    tested: bool = False
    competes: bool = False
    is_short: bool = False
    can_rank: bool = True

    @property
    def task(self) -> TaskKey:
        return TaskKey(self.dataset, self.protocol, self.setting)

    @property
    def disqualified(self) -> tuple[str, ...]:
        """Marks that take the row out of the ranking; the others only inform."""
        return tuple(mark for mark in self.marks if disqualifies(mark, self.protocol))


def read_runs(folders: Sequence[Path]) -> list[dict[str, Any]]:
    """Read the records of several folders as one benchmark; runs in more than one folder count once."""
    merged: dict[tuple[Any, ...], tuple[Path, dict[str, Any]]] = {}
    for folder in folders:
        for record in read_records(folder):
            key = (*TaskKey.of(record), *(record[name] for name in ("method", "seed", "split_seed")))
            other, earlier = merged.get(key, (folder, None))
            if earlier is None or earlier["status"] == "failed":
                merged[key] = folder, record
            elif record["status"] == "done" and any(earlier[name] != record[name] for name in _SAME):
                run = f"{record['dataset']} {record['method']} seed {record['seed']}"
                raise RecordError(
                    f"{other} and {folder} both hold {run}, but with different hyper-parameters, data or results: "
                    "report them separately"
                )
    if not merged:
        raise RecordError(f"{', '.join(map(str, folders))}: no run has finished yet, so there is nothing to report")
    if len({is_ranked(record) for _, record in merged.values()}) > 1:
        raise RecordError(
            f"{', '.join(map(str, folders))}: some runs repeat choices of the paper's published runs (as published), "
            "others do not: report them separately"
        )
    check_alike([record for _, record in merged.values() if record["status"] == "done"])
    order = {name: number for number, name in enumerate(DATASETS)}
    return sorted((record for _, record in merged.values()), key=lambda one: order.get(one["dataset"], len(order)))


def check_alike(records: Sequence[Mapping[str, Any]]) -> None:
    """Refuse runs that differ in more than their seeds, or that mix splits.

    Args:
        records: Records of finished runs.

    Raises:
        RecordError: The runs cannot stand in one table.
    """
    configs: dict[tuple[TaskKey, str], Any] = {}
    data: dict[tuple[TaskKey, int], str] = {}
    splits: dict[TaskKey, set[int]] = {}
    for record in records:
        task, dataset, method, split = TaskKey.of(record), record["dataset"], record["method"], record["split_seed"]
        alike = configs.setdefault((task, method), record["config"]) == record["config"]
        if not alike and is_ranked(record):  # published runs may be the best trials of a search
            raise RecordError(
                f"{dataset} {method}: runs with different hyper-parameters; report the folders separately"
            )
        if data.setdefault((task, split), record["fingerprint"]) != record["fingerprint"]:
            raise RecordError(f"{dataset}: runs on different data or splits; report the folders separately")
        splits.setdefault(task, set()).add(split)
    for task, seeds in splits.items():
        varied = all(record["seed"] == record["split_seed"] for record in records if TaskKey.of(record) == task)
        if len(seeds) > 1 and not varied:
            numbers = ", ".join(map(str, sorted(seeds)))
            raise RecordError(f"{task.dataset}: runs on the splits {numbers}; report them separately")


def summarise(values: Sequence[float]) -> Summary:
    """Mean, standard deviation and percentile bootstrap of the mean, with a fixed generator."""
    array = np.asarray(values, dtype=float)
    low, high = np.quantile(_draws(len(array)) @ array / len(array), [0.025, 0.975])
    std = float(array.std(ddof=1)) if len(array) > 1 else 0.0
    return Summary(float(array.mean()), std, float(low), float(high), len(array))


@cache
def _draws(count: int) -> NDArray[np.float64]:
    """Counts ``[RESAMPLES, count]`` of each value in each bootstrap resample."""
    drawn = np.random.default_rng(0).integers(count, size=(RESAMPLES, count))
    return np.stack([(drawn == k).sum(1).astype(float) for k in range(count)], axis=1)


def make_rows(records: Iterable[Mapping[str, Any]]) -> list[Row]:
    """Rows by task, method and score, with ranks, in the order of the records' data sets."""
    order = {name: number for number, name in enumerate(METHODS)}
    groups: dict[TaskKey, dict[str, list[Mapping[str, Any]]]] = {}
    for record in records:
        table = groups.setdefault(TaskKey.of(record), {})
        table.setdefault(record["method"], []).append(record)
    rows: list[Row] = []
    for task, methods in groups.items():
        unranked: list[tuple[Row, dict[Any, float]]] = []
        for method in sorted(methods, key=lambda name: order.get(name, len(order))):
            done = [record for record in methods[method] if record["status"] == "done"]
            failed, can_rank = len(methods[method]) - len(done), all(map(is_ranked, methods[method]))
            if not done:
                unranked.append((replace(_row(task, method, "-", True, [], failed), can_rank=can_rank), {}))
            if any(set(record["scores"]) != set(done[0]["scores"]) for record in done):
                raise RecordError(
                    f"{task.dataset} {method}: its runs have different scores, so they cannot be averaged"
                )
            for score in done[0]["scores"] if done else ():
                row = _row(task, method, score, score == done[0]["headline"], done, failed)
                row = replace(row, can_rank=can_rank)
                aurocs = {_seed(record): record["scores"][score]["auroc"] for record in done}
                unranked.append((row, {seed: value for seed, value in aurocs.items() if value is not None}))
        rows.extend(_ranked(unranked))
    return rows


def _seed(record: Mapping[str, Any]) -> tuple[int, int]:
    return record["seed"], record["split_seed"]


def _row(task: TaskKey, method: str, score: str, headline: bool, done: Sequence[Mapping[str, Any]], failed: int) -> Row:
    columns: dict[str, list[float]] = {}
    for record in done:
        numbers = {**record["metrics"], **record["scores"][score], "seconds": record["seconds"]["fit"]}
        for name, value in numbers.items():
            if value is not None:
                columns.setdefault(name, []).append(value)
    values = {name: summarise(column) for name, column in columns.items()}
    counts = Counter(itertools.chain.from_iterable(record["marks"] for record in done))
    marks = {name: counts[name] for name in dict.fromkeys([*MARKS, *counts]) if counts[name]}
    trivial = method in METHODS and METHODS[method].is_baseline
    return Row(*task, method, score, headline, trivial, values, marks, len(done), failed)


def _ranked(rows: Sequence[tuple[Row, dict[Any, float]]]) -> list[Row]:
    """Rank the best of the competing headline scores, and those that are not significantly worse.

    Only seeds that all competitors have are compared. Nothing is tested where even the clearest difference could not be
    significant for lack of seeds.
    """
    most = max(len(values) for _, values in rows)
    fair = [(row, values) for row, values in rows if row.headline and row.can_rank]
    fit = [(row, values) for row, values in fair if not row.disqualified]
    contest = {id(row): values for row, values in fit if 2 * len(values) > most}
    common = sorted(set.intersection(*map(set, contest.values()))) if contest else []
    totals = {key: sum(values[seed] for seed in common) for key, values in contest.items()} if common else {}
    best = max(totals, key=lambda key: totals[key], default=0)
    leads = {key: [contest[best][seed] - contest[key][seed] for seed in common] for key in totals if key != best}
    enough = len(leads) * 0.5 ** len(common) < SIGNIFICANT
    corrected = holm({key: p_value(lead, "greater") for key, lead in leads.items()}) if enough else {}
    ranked = []
    for row, values in rows:
        tied = corrected.get(id(row), 0.0) >= SIGNIFICANT
        rank = "best" if id(row) == best else "tied" if tied else ""
        short, competes = 0 < len(values) < most, id(row) in totals
        ranked.append(replace(row, rank=rank, tested=id(row) in corrected, competes=competes, is_short=short))
    return ranked


def p_value(differences: Sequence[float], alternative: Literal["greater", "two-sided"]) -> float:
    """p-value of the Wilcoxon signed-rank test.

    Args:
        differences: One per seed.
        alternative: ``"greater"`` than zero, or ``"two-sided"``.
    """
    from scipy.stats import wilcoxon

    if not any(differences):
        return 1.0
    return float(wilcoxon(differences, alternative=alternative, zero_method="zsplit").pvalue)


def holm(p_values: Mapping[Key, float]) -> dict[Key, float]:
    """Holm's correction for multiple tests.

    Args:
        p_values: The p-values by key.
    """
    corrected: dict[Key, float] = {}
    largest = 0.0
    for number, key in enumerate(sorted(p_values, key=lambda one: p_values[one])):
        largest = max(largest, min(1.0, (len(p_values) - number) * p_values[key]))
        corrected[key] = largest
    return corrected
