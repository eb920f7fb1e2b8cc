"""Records of runs made into rows of a table: means over seeds with their uncertainty, and who is really best."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..bench.records import RecordError, read_records
from ..graphs import DATASETS
from ..methods import METHODS
from ..methods.trivial import Trivial

RESAMPLES = 10_000
SIGNIFICANT = 0.05
FEWEST_PAIRS = 6  # with fewer, the Wilcoxon test cannot reach 0.05 once it is corrected for anything


@dataclass(frozen=True)
class Summary:
    """Values over seeds: mean, standard deviation, 95 % bootstrap interval of the mean."""

    mean: float
    std: float
    low: float
    high: float
    n: int


@dataclass(frozen=True)
class Row:
    """One score of one method on one data set, over all seeds.

    ``rank`` compares AUROC: ``best``, ``tied`` (not significantly worse than the best), or nothing. Rows whose runs
    bear a doctor's mark are shown and not ranked.
    """

    dataset: str
    protocol: str
    method: str
    score: str
    headline: bool
    trivial: bool
    values: dict[str, Summary]
    marks: dict[str, int]
    runs: int
    failed: int
    rank: str = ""


def read_runs(folders: Sequence[Path]) -> list[dict[str, Any]]:
    """The records of several folders as one benchmark; a run that two folders hold alike counts once."""
    merged: dict[tuple[Any, ...], tuple[Path, dict[str, Any]]] = {}
    for folder in folders:
        for record in read_records(folder):
            key = tuple(record[name] for name in ("dataset", "protocol", "method", "seed", "split_seed"))
            other, known = merged.get(key, (folder, None))
            if known is None or known["status"] == "failed":
                merged[key] = folder, record
            elif record["status"] == "done" and any(known[k] != record[k] for k in ("config", "fingerprint")):
                run = f"{record['dataset']} {record['method']} seed {record['seed']}"
                raise RecordError(
                    f"{other} and {folder} both hold {run}, but with other hyper-parameters or data: report them apart"
                )
    if not merged:
        raise RecordError(f"{', '.join(map(str, folders))}: no run has ended yet, so there is nothing to report")
    return [record for _, record in merged.values()]


def summarise(values: Sequence[float]) -> Summary:
    """Mean, standard deviation over seeds, and a percentile bootstrap of the mean from a generator of its own."""
    found = np.asarray(values, dtype=float)
    draws = np.random.default_rng(0).integers(len(found), size=(RESAMPLES, len(found)))
    low, high = np.quantile(found[draws].mean(1), [0.025, 0.975])
    std = float(found.std(ddof=1)) if len(found) > 1 else 0.0
    return Summary(float(found.mean()), std, float(low), float(high), len(found))


def make_rows(records: Iterable[Mapping[str, Any]]) -> list[Row]:
    """One row per data set, protocol, method and score, the best marked; in the order in which they are known."""
    order = {name: number for number, name in enumerate(METHODS)}
    groups: dict[tuple[str, str], dict[str, list[Mapping[str, Any]]]] = {}
    for record in records:
        table = groups.setdefault((record["dataset"], record["protocol"]), {})
        table.setdefault(record["method"], []).append(record)
    rows: list[Row] = []
    known = list(DATASETS)
    for dataset, protocol in sorted(groups, key=lambda key: known.index(key[0]) if key[0] in known else len(known)):
        methods = groups[dataset, protocol]
        made: list[tuple[Row, dict[Any, float]]] = []
        for method in sorted(methods, key=lambda name: order.get(name, len(order))):
            done = [record for record in methods[method] if record["status"] == "done"]
            failed = len(methods[method]) - len(done)
            if not done:
                made.append((_row(dataset, protocol, method, "-", True, [], failed), {}))
            if any(set(record["scores"]) != set(done[0]["scores"]) for record in done):
                raise RecordError(f"{dataset} {method}: its runs have different scores, so they cannot be averaged")
            for score in done[0]["scores"] if done else ():
                row = _row(dataset, protocol, method, score, score == done[0]["headline"], done, failed)
                made.append((row, {_seed(record): record["scores"][score]["auroc"] for record in done}))
        rows.extend(_ranked(made))
    return rows


def _seed(record: Mapping[str, Any]) -> tuple[int, int]:
    return record["seed"], record["split_seed"]


def _row(
    dataset: str, protocol: str, method: str, score: str, headline: bool, done: Sequence[Mapping[str, Any]], failed: int
) -> Row:
    columns: dict[str, list[float]] = {}
    for record in done:
        found = {**record["metrics"], **record["scores"][score], "seconds": record["seconds"]["fit"]}
        for name, value in found.items():
            if value is not None:
                columns.setdefault(name, []).append(value)
    values = {name: summarise(column) for name, column in columns.items()}
    marks = dict(Counter(itertools.chain.from_iterable(record["marks"] for record in done)))
    trivial = method in METHODS and issubclass(METHODS[method], Trivial)
    return Row(dataset, protocol, method, score, headline, trivial, values, marks, len(done), failed)


def _ranked(rows: Sequence[tuple[Row, dict[Any, float]]]) -> list[Row]:
    """Mark the best of the unmarked rows, and those that a paired test over seeds cannot tell from it."""
    contest = [(row, values) for row, values in rows if values and not row.marks]
    if not contest:
        return [row for row, _ in rows]
    best, best_values = max(contest, key=lambda one: one[0].values["auroc"].mean)
    chances = {}
    for row, values in contest:
        common = sorted(set(values) & set(best_values))
        if row is not best and len(common) >= FEWEST_PAIRS:
            chances[id(row)] = _chance([best_values[seed] - values[seed] for seed in common])
    corrected = holm(chances)
    ranked = []
    for row, _ in rows:
        tied = corrected.get(id(row), 0.0) >= SIGNIFICANT
        ranked.append(replace(row, rank="best" if row is best else "tied" if tied else ""))
    return ranked


def _chance(differences: Sequence[float]) -> float:
    """The p-value of the best being no better: one-sided Wilcoxon signed-rank test over seeds."""
    from scipy.stats import wilcoxon

    if not any(differences):
        return 1.0
    return float(wilcoxon(differences, alternative="greater", zero_method="zsplit").pvalue)


def holm(chances: Mapping[int, float]) -> dict[int, float]:
    """p-values corrected for there being several of them (Holm)."""
    corrected, largest = {}, 0.0
    for number, key in enumerate(sorted(chances, key=lambda one: chances[one])):
        largest = max(largest, min(1.0, (len(chances) - number) * chances[key]))
        corrected[key] = largest
    return corrected


def versions(records: Iterable[Mapping[str, Any]]) -> dict[str, list[str]]:
    """All versions of everything that made the records."""
    found: dict[str, set[str]] = {}
    for record in records:
        for name, version in json.loads(json.dumps(record["versions"])).items():
            found.setdefault(name, set()).add(str(version))
    return {name: sorted(seen) for name, seen in found.items()}
