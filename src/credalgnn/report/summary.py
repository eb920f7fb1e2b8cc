"""Records of runs made into rows of a table: means over seeds with their uncertainty, and who is really best."""

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
from ..records.schema import RecordError, is_published

Key = TypeVar("Key")
RESAMPLES = 10_000
SIGNIFICANT = 0.05
_SAME = ("config", "fingerprint", "metrics", "scores")  # of a run that two folders hold


@dataclass(frozen=True)
class Summary:
    """Values over seeds: mean, standard deviation, 95 % bootstrap interval of the mean."""

    mean: float
    std: float
    low: float
    high: float
    n: int


class TaskKey(NamedTuple):
    """What methods are compared on, and under which conditions."""

    dataset: str
    protocol: str
    setting: str

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> TaskKey:
        return cls(record["dataset"], record["protocol"], record["setting"])


@dataclass(frozen=True)
class Row:
    """One score of one method on one data set, over all seeds.

    ``rank`` compares AUROC: ``best``, ``tied`` (not significantly worse than the best), or nothing; ``tested`` says
    that there were seeds enough to compare it with the best. Only headline scores compete, which were fixed before
    the run, and only where no run bears a mark that disqualifies it and more than half of the runs are there
    (``is_short`` says that some are not).
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

    @property
    def task(self) -> TaskKey:
        return TaskKey(self.dataset, self.protocol, self.setting)

    @property
    def disqualified(self) -> tuple[str, ...]:
        """The marks that take this row out of the ranking; the others only inform."""
        return tuple(mark for mark in self.marks if disqualifies(mark, self.protocol))


def read_runs(folders: Sequence[Path]) -> list[dict[str, Any]]:
    """The records of several folders as one benchmark; a run that two folders hold alike counts once."""
    merged: dict[tuple[Any, ...], tuple[Path, dict[str, Any]]] = {}
    for folder in folders:
        for record in read_records(folder):
            key = (*TaskKey.of(record), *(record[name] for name in ("method", "seed", "split_seed")))
            other, known = merged.get(key, (folder, None))
            if known is None or known["status"] == "failed":
                merged[key] = folder, record
            elif record["status"] == "done" and any(known[name] != record[name] for name in _SAME):
                run = f"{record['dataset']} {record['method']} seed {record['seed']}"
                raise RecordError(
                    f"{other} and {folder} both hold {run}, but with other hyper-parameters, data or results: report "
                    "them apart"
                )
    if not merged:
        raise RecordError(f"{', '.join(map(str, folders))}: no run has ended yet, so there is nothing to report")
    if len({is_published(record["method"]) for _, record in merged.values()}) > 1:
        raise RecordError(
            f"{', '.join(map(str, folders))}: some runs repeat choices of the paper's published ones (as published), "
            "and some do not: report them apart"
        )
    check_alike([record for _, record in merged.values() if record["status"] == "done"])
    order = {name: number for number, name in enumerate(DATASETS)}
    return sorted((record for _, record in merged.values()), key=lambda one: order.get(one["dataset"], len(order)))


def check_alike(records: Sequence[Mapping[str, Any]]) -> None:
    """Runs that a table puts together must differ in their seeds only; all on one split, or each seed on its own.

    Args:
        records: Of finished runs.
    """
    configs: dict[tuple[TaskKey, str], Any] = {}
    data: dict[tuple[TaskKey, int], str] = {}
    splits: dict[TaskKey, set[int]] = {}
    for record in records:
        task, dataset, method, split = TaskKey.of(record), record["dataset"], record["method"], record["split_seed"]
        alike = configs.setdefault((task, method), record["config"]) == record["config"]
        if not alike and not is_published(method):  # whose runs may be the best trials of a search
            raise RecordError(f"{dataset} {method}: runs with different hyper-parameters; report the folders apart")
        if data.setdefault((task, split), record["fingerprint"]) != record["fingerprint"]:
            raise RecordError(f"{dataset}: runs on different data or splits; report the folders apart")
        splits.setdefault(task, set()).add(split)
    for task, result in splits.items():
        own = all(record["seed"] == record["split_seed"] for record in records if TaskKey.of(record) == task)
        if len(result) > 1 and not own:
            numbers = ", ".join(map(str, sorted(result)))
            raise RecordError(f"{task.dataset}: runs on the splits {numbers}; report them apart")


def summarise(values: Sequence[float]) -> Summary:
    """Mean, standard deviation over seeds, and a percentile bootstrap of the mean from a generator of its own."""
    result = np.asarray(values, dtype=float)
    low, high = np.quantile(_draws(len(result)) @ result / len(result), [0.025, 0.975])
    std = float(result.std(ddof=1)) if len(result) > 1 else 0.0
    return Summary(float(result.mean()), std, float(low), float(high), len(result))


@cache
def _draws(count: int) -> NDArray[np.float64]:
    """How often each of so many values is drawn in each resample."""
    drawn = np.random.default_rng(0).integers(count, size=(RESAMPLES, count))
    return np.stack([(drawn == k).sum(1).astype(float) for k in range(count)], axis=1)


def make_rows(records: Iterable[Mapping[str, Any]]) -> list[Row]:
    """One row per task, method and score, the best marked; in the order of the records' data sets."""
    order = {name: number for number, name in enumerate(METHODS)}
    groups: dict[TaskKey, dict[str, list[Mapping[str, Any]]]] = {}
    for record in records:
        table = groups.setdefault(TaskKey.of(record), {})
        table.setdefault(record["method"], []).append(record)
    rows: list[Row] = []
    for task, methods in groups.items():
        made: list[tuple[Row, dict[Any, float]]] = []
        for method in sorted(methods, key=lambda name: order.get(name, len(order))):
            done = [record for record in methods[method] if record["status"] == "done"]
            failed = len(methods[method]) - len(done)
            if not done:
                made.append((_row(task, method, "-", True, [], failed), {}))
            if any(set(record["scores"]) != set(done[0]["scores"]) for record in done):
                raise RecordError(
                    f"{task.dataset} {method}: its runs have different scores, so they cannot be averaged"
                )
            for score in done[0]["scores"] if done else ():
                row = _row(task, method, score, score == done[0]["headline"], done, failed)
                aurocs = {_seed(record): record["scores"][score]["auroc"] for record in done}
                made.append((row, {seed: value for seed, value in aurocs.items() if value is not None}))
        rows.extend(_ranked(made))
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
    result = Counter(itertools.chain.from_iterable(record["marks"] for record in done))
    marks = {name: result[name] for name in dict.fromkeys([*MARKS, *result]) if result[name]}
    trivial = method in METHODS and METHODS[method].is_baseline
    return Row(*task, method, score, headline, trivial, values, marks, len(done), failed)


def _ranked(rows: Sequence[tuple[Row, dict[Any, float]]]) -> list[Row]:
    """Mark the best of the headline scores that compete, and those that a paired test over seeds cannot tell from it.

    Compared are the seeds that all who compete have in common; one lucky run is not better than ten. Nothing is tested
    where even the clearest difference could not be significant, for want of seeds.
    """
    most = max(len(values) for _, values in rows)
    fair = [(row, values) for row, values in rows if row.headline and not is_published(row.method)]
    fit = [(row, values) for row, values in fair if not row.disqualified]
    contest = {id(row): values for row, values in fit if 2 * len(values) > most}
    common = sorted(set.intersection(*map(set, contest.values()))) if contest else []
    totals = {key: sum(values[seed] for seed in common) for key, values in contest.items()} if common else {}
    best = max(totals, key=lambda key: totals[key], default=0)
    pairs = {key: [contest[best][seed] - contest[key][seed] for seed in common] for key in totals if key != best}
    enough = len(pairs) * 0.5 ** len(common) < SIGNIFICANT
    corrected = holm({key: p_value(result, "greater") for key, result in pairs.items()}) if enough else {}
    ranked = []
    for row, values in rows:
        tied = corrected.get(id(row), 0.0) >= SIGNIFICANT
        rank = "best" if id(row) == best else "tied" if tied else ""
        short, competes = 0 < len(values) < most, id(row) in totals
        ranked.append(replace(row, rank=rank, tested=id(row) in corrected, competes=competes, is_short=short))
    return ranked


def p_value(differences: Sequence[float], alternative: Literal["greater", "two-sided"]) -> float:
    """Of differences being due to chance: Wilcoxon signed-rank test over seeds.

    Args:
        differences: One a seed.
        alternative: ``"greater"`` asks whether they are above zero, ``"two-sided"`` whether they are not zero.
    """
    from scipy.stats import wilcoxon

    if not any(differences):
        return 1.0
    return float(wilcoxon(differences, alternative=alternative, zero_method="zsplit").pvalue)


def holm(chances: Mapping[Key, float]) -> dict[Key, float]:
    """p-values corrected for there being several of them (Holm).

    Args:
        chances: p-values by whatever they are of.
    """
    corrected: dict[Key, float] = {}
    largest = 0.0
    for number, key in enumerate(sorted(chances, key=lambda one: chances[one])):
        largest = max(largest, min(1.0, (len(chances) - number) * chances[key]))
        corrected[key] = largest
    return corrected
