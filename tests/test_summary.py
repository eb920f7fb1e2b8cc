"""Summaries: means and intervals, who is best and who is as good, folders merged, tables that say the same."""

from __future__ import annotations

import copy
import csv
import io
import itertools
import math
import random
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from credalgnn.methods import METHODS
from credalgnn.metrics.registry import MARKS, disqualifies
from credalgnn.records.schema import FORMAT, RecordError
from credalgnn.report.results import headline, latex, legend, markdown, terminal, tidy, write_tables
from credalgnn.report.summary import Row, Summary, TaskKey, make_rows, read_runs, summarise
from credalgnn.runtime.files import to_json

Record = dict[str, Any]
SCORES = {"vanilla": ["msp", "entropy"], "credal-lj": ["EU", "AU", "TU"], "degree": ["score"], "feature-sum": ["score"]}
METRICS = ["accuracy", "macro_f1", "nll", "brier", "ece"]
OF_SCORE = ["auroc", "aupr", "fpr95", "misclassification_auroc", "aurc"]


def record(method: str, seed: int, auroc: float | Mapping[str, float] = 0.5, **changes: Any) -> Record:
    """A finished run as the specification has it; other numbers are made up."""
    names = SCORES.get(method, ["energy"])
    found = dict.fromkeys(names, auroc) if isinstance(auroc, float) else dict(auroc)
    trivial = method in ("degree", "feature-sum")
    made: Record = {
        "format": FORMAT, "status": "done", "error": None, "dataset": "digits", "method": method, "seed": seed,
        "split_seed": 0, "protocol": "sealed", "setting": "transductive", "fingerprint": "ab12",
        "config": {"lr": 0.01},
        "versions": {"credalgnn": "0.1.0", "python": "3.11.7", "torch": "2.5", "numpy": "2.0"},
        "class_names": ["0", "1"], "ood_names": ["8"],
        "counts": {"train_id": 9, "val_id": 3, "val_ood": 2, "test_id": 3, "test_ood": 2},
        "headline": names[0],
        "metrics": {name: None if trivial else 0.1 * k + 0.01 * seed for k, name in enumerate(METRICS)},
        "scores": {
            name: {one: found[name] if one == "auroc" else None if trivial and k > 2 else 0.1 * k + 0.01 * seed
                   for k, one in enumerate(OF_SCORE)}
            for name in found
        },
        "curves": {
            "roc": {name: [k / 100 for k in range(101)] for name in found},
            "rejection": {} if trivial else {name: [0.9] * 50 for name in found},
            "histogram": {name: {"edges": list(range(31)), "id": [1] * 30, "ood": [2] * 30} for name in found},
            "training": [],
        },
        "marks": [], "seconds": {"fit": 1.0 + seed, "predict": 0.1}, "peak_mib": 512.0, "predictions": None,
        "finished": "2026-01-01T00:00:00+00:00",
    }  # fmt: skip
    return {**made, **changes}


def failed(method: str, seed: int, **changes: Any) -> Record:
    names = [
        "format",
        "dataset",
        "method",
        "seed",
        "split_seed",
        "protocol",
        "setting",
        "config",
        "versions",
        "fingerprint",
        "finished",
    ]
    whole = record(method, seed)
    return {**{name: whole[name] for name in names}, "status": "failed", "error": "TrainingError: no", **changes}


def rows_of(aurocs: Mapping[str, Sequence[float]]) -> dict[str, Row]:
    """Rows of methods that have one score each, by method."""
    records = [record(method, seed, value) for method, values in aurocs.items() for seed, value in enumerate(values)]
    return {row.method: row for row in make_rows(records)}


# ---------------------------------------------------------------- Values over seeds


def test_few_or_equal_values() -> None:
    """Of all resamples of two values a quarter repeat the lower and a quarter the higher: the whole range."""
    assert summarise([0.25]) == Summary(0.25, 0.0, 0.25, 0.25, 1)
    assert summarise([0.5] * 7) == Summary(0.5, 0.0, 0.5, 0.5, 7)
    two = summarise([0.2, 0.6])
    assert (two.mean, two.std, two.low, two.high, two.n) == (
        pytest.approx(0.4), pytest.approx(0.2 * 2**0.5), 0.2, 0.6, 2,
    )  # fmt: skip


@pytest.mark.parametrize("count", [3, 5, 10, 30])
@pytest.mark.parametrize("seed", range(3))
def test_interval_is_a_percentile_bootstrap_of_the_mean(count: int, seed: int) -> None:
    """The error of either quantile is 0.027 of the standard error for 10,000 resamples; 0.2 is more than 5 sigma."""
    values = np.random.default_rng(seed).beta(5, 2, size=count)
    found = summarise(values.tolist())
    interval = scipy.stats.bootstrap(
        (values,), np.mean, n_resamples=10_000, method="percentile", rng=np.random.default_rng(99)
    ).confidence_interval
    error = values.std(ddof=1) / count**0.5
    assert found.mean == pytest.approx(values.mean(), abs=1e-15)
    assert found.std == pytest.approx((((values - values.mean()) ** 2).sum() / (count - 1)) ** 0.5)
    assert found.low == pytest.approx(interval.low, abs=0.2 * error)
    assert found.high == pytest.approx(interval.high, abs=0.2 * error)
    assert found.n == count


def test_summaries_repeat_and_draw_from_their_own_generator() -> None:
    values = [0.1, 0.7, 0.3, 0.9]
    first = summarise(values)
    np.random.seed(3)  # noqa: NPY002
    random.seed(3)
    before = np.random.get_state()[1].tolist(), random.getstate()  # type: ignore[index]  # noqa: NPY002
    assert summarise(values) == first
    assert summarise(tuple(values)) == first
    assert (np.random.get_state()[1].tolist(), random.getstate()) == before  # type: ignore[index]  # noqa: NPY002


# ---------------------------------------------------------------- Rows


def test_a_row_has_the_numbers_of_its_score_and_of_its_method() -> None:
    records = [record("credal-lj", seed, {"EU": 0.8 + 0.1 * seed, "AU": 0.6, "TU": 0.7}) for seed in (0, 1)]
    eu, au, tu = make_rows(records)
    assert [row.score for row in (eu, au, tu)] == ["EU", "AU", "TU"]
    assert [row.headline for row in (eu, au, tu)] == [True, False, False]
    about = (eu.dataset, eu.protocol, eu.method, eu.trivial, eu.runs, eu.failed)
    assert about == ("digits", "sealed", "credal-lj", False, 2, 0)
    assert eu.values["auroc"] == summarise([0.8, 0.9])
    assert au.values["auroc"] == summarise([0.6, 0.6])
    for row in (eu, au, tu):
        assert set(METRICS) | set(OF_SCORE) <= set(row.values)
        for k, name in enumerate(METRICS):
            assert row.values[name] == summarise([0.1 * k, 0.1 * k + 0.01])
        assert row.values["aurc"] == summarise([0.1 * 4, 0.1 * 4 + 0.01])
        assert row.marks == {}


def test_what_is_undefined_is_left_out() -> None:
    """In every run: no entry. In some: the others count."""
    rows = make_rows([record("degree", seed) for seed in range(3)])
    assert rows[0].trivial
    assert not {*METRICS, "misclassification_auroc", "aurc"} & set(rows[0].values)
    records = [record("energy", seed, 0.5) for seed in range(3)]
    records[1]["scores"]["energy"]["misclassification_auroc"] = None
    values = make_rows(records)[0].values
    assert (values["misclassification_auroc"].n, values["auroc"].n) == (2, 3)
    assert values["misclassification_auroc"] == summarise([0.1 * 3, 0.1 * 3 + 0.02])


def test_rows_stand_in_the_order_of_data_sets_methods_and_scores() -> None:
    methods = ["degree", "knn", "credal-lj", "vanilla", "feature-sum"]
    records = [
        record(method, seed, dataset=name) for name in ("squirrel", "arxiv") for seed in (1, 0) for method in methods
    ]
    rows = make_rows(records)
    assert list(dict.fromkeys(row.dataset for row in rows)) == ["squirrel", "arxiv"]
    one = [(row.method, row.score) for row in rows if row.dataset == "arxiv"]
    ordered = [name for name in METHODS if name in methods]
    assert one == [(name, score) for name in ordered for score in SCORES.get(name, ["energy"])]
    assert one == [(row.method, row.score) for row in rows if row.dataset == "squirrel"]
    assert {row.method for row in rows if row.trivial} == {"degree", "feature-sum"}
    shuffled = random.Random(0).sample(records, len(records))
    assert {(row.dataset, row.method, row.score) for row in make_rows(shuffled)} == {
        (row.dataset, row.method, row.score) for row in rows
    }


def test_failed_runs_are_counted_and_not_averaged() -> None:
    records = [
        record("energy", 0, 0.6),
        failed("energy", 1),
        record("energy", 2, 0.8),
        failed("knn", 0),
        failed("knn", 1),
    ]
    rows = {row.method: row for row in make_rows(records)}
    assert (rows["energy"].runs, rows["energy"].failed) == (2, 1)
    assert rows["energy"].values["auroc"] == summarise([0.6, 0.8])
    assert (rows["knn"].runs, rows["knn"].failed, rows["knn"].rank, rows["knn"].values) == (0, 2, "", {})
    assert rows["energy"].rank == "best"


def test_protocols_and_data_sets_are_ranked_apart() -> None:
    records = [
        record("energy", 0, 0.9), record("knn", 0, 0.8),
        record("energy", 0, 0.7, protocol="paper"), record("knn", 0, 0.8, protocol="paper"),
        record("energy", 0, 0.3, dataset="csbm"), record("knn", 0, 0.2, dataset="csbm"),
    ]  # fmt: skip
    best = {(row.dataset, row.protocol): row.method for row in make_rows(records) if row.rank == "best"}
    assert best == {("digits", "sealed"): "energy", ("digits", "paper"): "knn", ("csbm", "sealed"): "energy"}


def test_settings_are_ranked_apart() -> None:
    """OOD nodes that took part in message passing are easier or harder to detect; nothing to compare."""
    records = [
        record(method, seed, found, setting=setting)
        for setting, both in (("transductive", (0.9, 0.8)), ("inductive", (0.6, 0.7)))
        for method, found in zip(("energy", "knn"), both, strict=True)
        for seed in range(2)
    ]
    rows = make_rows(records)
    assert [(row.setting, row.method, row.runs) for row in rows if row.rank == "best"] == [
        ("transductive", "energy", 2), ("inductive", "knn", 2),
    ]  # fmt: skip
    head = tables_of(markdown(rows))[0][0]
    assert head[2::2] == ["digits (transductive) AUROC", "digits (inductive) AUROC"]
    both = make_rows([*records, record("energy", 0, protocol="paper")])
    assert tables_of(markdown(both))[0][0][2::2] == [
        "digits (sealed, transductive) AUROC", "digits (sealed, inductive) AUROC", "digits (paper, transductive) AUROC",
    ]  # fmt: skip


@pytest.mark.parametrize("make", [terminal, markdown, latex])
def test_the_line_above_a_table_tells_protocol_and_setting(make: Callable[[Sequence[Row]], str]) -> None:
    first = make(make_rows([record("energy", 0)])).splitlines()[0]
    assert first.removeprefix("% ") == "Protocol: sealed. Setting: transductive."
    text = make(make_rows([record("energy", 0, setting="inductive")]))
    assert text.splitlines()[0].removeprefix("% ") == "Protocol: sealed. Setting: inductive."
    assert "Inductive: training saw" in text
    both = make_rows([record("energy", 0, setting=setting) for setting in ("inductive", "transductive")])
    assert "Setting: inductive and transductive." in make(both)
    assert "Inductive:" not in make(make_rows([record("energy", 0)]))


def test_every_table_of_markdown_tells_its_setting() -> None:
    text = markdown(make_rows([record("energy", 0, setting=one) for one in ("transductive", "inductive")]))
    assert [line for line in text.splitlines() if line.startswith("##")] == [
        "## digits, sealed protocol, transductive setting", "## digits, sealed protocol, inductive setting",
    ]  # fmt: skip


# ---------------------------------------------------------------- Ranks

GAPS = [0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.07, 0.08]
RIVALS = ["knn", "odin", "gnnsafe", "mahalanobis", "knn-lj"]


def always_worse(seeds: int, rivals: int) -> dict[str, list[float]]:
    """Energy is better with every seed, by another margin each: p = 2 ** -seeds for each of the others."""
    table = {"energy": [0.9] * seeds}
    return table | {name: [0.9 - gap for gap in GAPS[:seeds]] for name in RIVALS[:rivals]}


@pytest.mark.parametrize(
    ("seeds", "rivals", "tested"),
    [(6, 1, True), (6, 3, True), (6, 4, False), (6, 5, False), (7, 5, True), (8, 5, True)],
)
def test_what_could_not_be_significant_is_not_tested(seeds: int, rivals: int, tested: bool) -> None:
    """Six seeds: p = 1/64 at best, times three is 0.047, times four is 0.0625. Seven seeds: 5/128 is 0.039."""
    rows = rows_of(always_worse(seeds, rivals))
    assert rows["energy"].rank == "best"
    assert [rows[name].rank for name in RIVALS[:rivals]] == [""] * rivals
    assert [rows[name].tested for name in RIVALS[:rivals]] == [tested] * rivals
    assert ("too few seeds" in " ".join(legend(list(rows.values())))) != tested


def test_holm_goes_down_step_by_step() -> None:
    """p-values 1/128, 2/128 and 5/128: times 3, 2 and 1 all are below 0.05; Bonferroni would tie the last.

    Of 7 ranks, one negative difference of rank 1 makes 2/128. Negative ones of rank 3, or 1 and 2, are among 5/128.
    """
    gaps = np.array(GAPS[:7])
    table = {"energy": [0.9] * 7, "knn": list(0.9 - gaps)}
    table["odin"] = list(0.9 - gaps * [-1, 1, 1, 1, 1, 1, 1])
    table["gnnsafe"] = list(0.9 - gaps * [1, 1, -1, 1, 1, 1, 1])
    rows = rows_of(table)
    assert [rows[name].rank for name in table] == ["best", "", "", ""]
    table["gnnsafe"] = list(0.9 - gaps * [1, 1, 1, -1, 1, 1, 1])  # 7/128 is 0.055
    rows = rows_of(table)
    assert [rows[name].rank for name in table] == ["best", "", "", "tied"]
    table["odin"] = table["knn"] = table["gnnsafe"]
    assert [row.rank for row in rows_of(table).values()].count("tied") == 3


def test_corrected_p_values_rise_with_the_raw_ones() -> None:
    """Four times 2/128 ties the first, and so all that follow it, whatever their own factor."""
    gaps = np.array(GAPS[:7]) * [-1, 1, 1, 1, 1, 1, 1]  # 2/128 alone would be significant
    table = {"energy": [0.9] * 7} | {name: list(0.9 - gaps) for name in RIVALS[:4]}
    assert [row.rank for row in rows_of(table).values()].count("tied") == 4


@pytest.mark.parametrize("seeds", [1, 2, 5])
def test_with_few_seeds_nothing_is_tied(seeds: int) -> None:
    table = {"energy": [0.9] * seeds, "knn": [0.9 - 1e-12] * seeds, "odin": [0.5] * seeds}
    assert {name: row.rank for name, row in rows_of(table).items()} == {"energy": "best", "knn": "", "odin": ""}


def test_a_row_that_lacks_runs_is_not_ranked() -> None:
    """One lucky run is not better than ten."""
    records = [record("energy", seed, 0.89) for seed in range(10)] + [record("knn", 0, 0.95)]
    rows = {row.method: row for row in make_rows(records)}
    assert (rows["energy"].rank, rows["knn"].rank, rows["knn"].tested) == ("best", "", False)
    text = terminal(list(rows.values()))
    assert "95.0  (1)" in text
    assert "Numbers in brackets: finished runs" in text
    assert "too few seeds" not in text, "nobody else competes"
    full = [one for one in records if one["method"] == "energy"]
    assert "in brackets" not in terminal(make_rows(full))


def test_a_benchmark_that_was_stopped_compares_what_all_have() -> None:
    """Seed by seed, method by method: the first methods have a run more."""
    found = {"vanilla": (0.5, 10), "energy": (0.7, 9), "knn": (0.8, 9)}
    records = [record(name, seed, value) for name, (value, seeds) in found.items() for seed in range(seeds)]
    rows = {row.method: row for row in make_rows(records) if row.headline}
    assert {name: (row.rank, row.competes, row.is_short) for name, row in rows.items()} == {
        "vanilla": ("", True, False), "energy": ("", True, True), "knn": ("best", True, True),
    }  # fmt: skip
    apart = [record("energy", seed, 0.9) for seed in range(5)] + [record("knn", seed, 0.8) for seed in range(5, 10)]
    assert not any(row.rank or row.competes for row in make_rows(apart)), "no seed in common"


def test_two_protocols_are_told_apart_below_each_other() -> None:
    rows = make_rows([record("energy", 0, protocol=name) for name in ("sealed", "paper")])
    heads = [line for line in terminal(rows, 50).splitlines() if line.startswith("method")]
    assert ["sealed" in line for line in heads] == [True, False]
    assert ["paper" in line for line in heads] == [False, True]


def test_where_differences_could_be_tested_is_said() -> None:
    few = [record(name, seed, value) for name, value in (("energy", 0.9), ("knn", 0.8)) for seed in range(3)]
    many = [{**record(name, seed, value), "dataset": "squirrel"}
            for name, value in (("energy", 0.9), ("knn", 0.8)) for seed in range(8)]  # fmt: skip
    both = " ".join(legend(make_rows([*few, *many])))
    assert "not significantly worse" in both
    assert f"too few seeds to test differences on {few[0]['dataset']}." in both
    assert "too few" not in " ".join(legend(make_rows(many)))
    assert "too few seeds to test differences." in " ".join(legend(make_rows(few)))
    assert not any("best headline" in line for line in legend(make_rows(many), ranked=False))


def test_only_common_seeds_are_compared() -> None:
    """Eight seeds each, but five in common: no test is possible."""
    records = [record("energy", seed, 0.9) for seed in range(8)] + [
        record("knn", seed, 0.9 - 1e-9) for seed in range(3, 11)
    ]
    assert [row.rank for row in make_rows(records)] == ["best", ""]
    records += [record("energy", 8, 0.9), record("knn", 11, 0.9)]  # the sixth
    near = [{**one, "scores": record("knn", 0, 0.9 + GAPS[one["seed"] % 8] * (-1) ** one["seed"] / 1000)["scores"]}
            if one["method"] == "knn" else one for one in records]  # fmt: skip
    assert sorted(row.rank for row in make_rows(near)) == ["best", "tied"]


def test_seeds_of_other_splits_are_not_pairs() -> None:
    records = [record("energy", seed, 0.9) for seed in range(8)]
    records += [record("knn", seed, 0.89 + GAPS[seed] / 10, split_seed=seed + 1) for seed in range(8)]
    assert [row.rank for row in make_rows(records)] == ["", ""]


def test_equal_scores_are_tied() -> None:
    rows = rows_of({"energy": [0.9, 0.8, 0.7, 0.6, 0.5, 0.4], "knn": [0.9, 0.8, 0.7, 0.6, 0.5, 0.4]})
    assert sorted(row.rank for row in rows.values()) == ["best", "tied"]


def test_only_the_score_that_was_fixed_before_the_run_competes() -> None:
    records = [record("credal-lj", seed, {"EU": 0.5 + GAPS[seed], "AU": 0.9, "TU": 0.2}) for seed in range(8)]
    assert [(row.score, row.rank) for row in make_rows(records)] == [("EU", "best"), ("AU", ""), ("TU", "")]


@pytest.mark.parametrize("marked", [1, 8])
@pytest.mark.parametrize("protocol", ["sealed", "paper"])
@pytest.mark.parametrize("mark", [*MARKS, "brand-new"])
def test_rows_that_a_mark_disqualifies_are_never_ranked(mark: str, protocol: str, marked: int) -> None:
    """Neither best, nor tied, nor among those that the correction counts; other marks change no rank."""
    table = always_worse(6, 4)
    records = [
        record(method, seed, value, protocol=protocol)
        for method, values in table.items()
        for seed, value in enumerate(values)
    ]
    plain = {row.method: row.rank for row in make_rows(records)}
    for one in records:
        if one["method"] in ("energy", "knn") and one["seed"] < marked:
            one["marks"] = [mark]
    rows = {row.method: row for row in make_rows(records)}
    assert rows["energy"].marks == rows["knn"].marks == {mark: min(marked, 6)}
    if not disqualifies(mark, protocol):
        assert {name: row.rank for name, row in rows.items()} == plain
        assert rows["energy"].disqualified == ()
        return
    assert rows["energy"].disqualified == (mark,)
    assert rows["energy"].rank == rows["knn"].rank == ""
    assert [rows[name].rank for name in RIVALS[1:4]].count("best") == 1
    for one in records:
        one["marks"] = [mark, "mirror"] if one["method"] == "knn" and one["seed"] < marked else []
    rows = {row.method: row for row in make_rows(records)}
    assert [rows[name].rank for name in ("energy", *RIVALS[:4])] == ["best", "", "", "", ""]  # 3/64, not 4/64


def test_all_marked_or_all_failed_means_no_best() -> None:
    assert [row.rank for row in make_rows([record("energy", 0, 0.9, marks=["majority"]), failed("knn", 0)])] == ["", ""]


def p_value(differences: Sequence[float]) -> float:
    """One-sided Wilcoxon signed-rank test, by all assignments of signs to the ranks."""
    ranks = {value: rank for rank, value in enumerate(sorted(abs(d) for d in differences), 1)}
    seen = sum(ranks[abs(d)] for d in differences if d > 0)
    signs = list(itertools.product((0, 1), repeat=len(differences)))
    return sum(sum(r * s for r, s in zip(ranks.values(), one, strict=True)) >= seen for one in signs) / len(signs)


@given(st.integers(0, 2**32 - 1), st.integers(6, 9), st.integers(2, 6))
@settings(deadline=None, max_examples=40)
def test_ranks_by_enumeration(seed: int, seeds: int, methods: int) -> None:
    rng = np.random.default_rng(seed)
    names = ["energy", *RIVALS][:methods]
    table = {name: list(rng.normal(0.8 - 0.02 * k, 0.03, size=seeds)) for k, name in enumerate(names)}
    best = max(names, key=lambda name: np.mean(table[name]))
    chances = sorted((p_value(np.subtract(table[best], table[name])), name) for name in names if name != best)
    expected, largest = {best: "best"}, 0.0
    possible = len(chances) / 2**seeds < 0.05
    for number, (chance, name) in enumerate(chances):
        largest = max(largest, (len(chances) - number) * chance)
        expected[name] = "tied" if possible and largest >= 0.05 else ""
    assert {name: row.rank for name, row in rows_of(table).items()} == expected


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=6, max_size=9))
@settings(deadline=None, max_examples=40)
def test_ties_between_seeds_are_no_trouble(values: list[tuple[int, int]]) -> None:
    """Differences that are zero or equal: a rank for each all the same, and no warning."""
    rows = rows_of({"energy": [0.5 + a / 10 for a, _ in values], "knn": [0.5 + b / 10 for _, b in values]})
    assert sorted(row.rank for row in rows.values()) in (["best", "tied"], ["", "best"])
    if max(abs(sum(a - b for a, b in values)), 1) == 1:
        assert sorted(row.rank for row in rows.values()) == ["best", "tied"]


# ---------------------------------------------------------------- Folders


def folder_of(path: Path, records: Sequence[Record]) -> Path:
    for one in records:
        place = path / "runs" / one["dataset"] / one["method"] / f"seed-{one['seed']:03d}.json"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(to_json(one))
    path.mkdir(exist_ok=True)
    (path / "experiment.json").write_bytes(to_json({"format": FORMAT, "kind": "bench", "protocol": "sealed"}))
    return path


def keys(records: Sequence[Record]) -> list[tuple[Any, ...]]:
    return sorted((one["dataset"], one["protocol"], one["method"], one["seed"], one["status"]) for one in records)


def test_records_of_a_folder_come_back_whole(tmp_path: Path) -> None:
    records = [record("energy", 0, 0.9), record("credal-lj", 1), failed("knn", 0)]
    found = read_runs([folder_of(tmp_path / "a", records)])
    assert sorted(found, key=lambda one: one["method"]) == sorted(records, key=lambda one: one["method"])


def test_folders_merge(tmp_path: Path) -> None:
    first = folder_of(tmp_path / "a", [record("energy", 0, 0.6), record("energy", 1, 0.7)])
    second = folder_of(
        tmp_path / "b", [record("energy", 2, 0.8), record("knn", 0), record("energy", 0, dataset="csbm")]
    )
    found = read_runs([first, second])
    assert len(found) == 5
    rows = {(row.dataset, row.method): row for row in make_rows(found)}
    assert rows["digits", "energy"].values["auroc"] == summarise([0.6, 0.7, 0.8])
    assert keys(found) == keys(read_runs([second, first]))


def test_the_same_run_twice_counts_once(tmp_path: Path) -> None:
    first = folder_of(tmp_path / "a", [record("energy", seed, 0.6) for seed in range(3)])
    again = [record("energy", seed, 0.6, finished="2026-02-02T00:00:00+00:00", peak_mib=1.0) for seed in range(2, 5)]
    found = read_runs([first, folder_of(tmp_path / "b", again), first])
    assert keys(found) == [("digits", "sealed", "energy", seed, "done") for seed in range(5)]


@pytest.mark.parametrize("change", [{"config": {"lr": 0.02}}, {"fingerprint": "cd34"}])
def test_two_versions_of_a_run_are_refused(tmp_path: Path, change: Record) -> None:
    first = folder_of(tmp_path / "a", [record("energy", 0)])
    second = folder_of(tmp_path / "b", [record("energy", 0, **change), record("energy", 1, **change)])
    for folders in ([first, second], [second, first]):
        with pytest.raises(RecordError, match="energy seed 0") as error:
            read_runs(folders)
        assert str(first) in str(error.value)
        assert str(second) in str(error.value)


@pytest.mark.parametrize(
    "change",
    [{"config": {"lr": 7}}, {"fingerprint": "cd34"}, {"split_seed": 3}, {"split_seed": 3, "fingerprint": "cd34"}],
)
def test_runs_that_differ_in_more_than_their_seed_are_not_averaged(tmp_path: Path, change: Record) -> None:
    first = folder_of(tmp_path / "a", [record("energy", 0)])
    second = folder_of(tmp_path / "b", [record("energy", 1, **change)])
    with pytest.raises(RecordError, match="separately"):
        read_runs([first, second])


def test_every_seed_may_have_its_own_split(tmp_path: Path) -> None:
    records = [record("energy", seed, split_seed=seed, fingerprint=f"ab{seed}") for seed in range(3)]
    assert len(read_runs([folder_of(tmp_path / "a", records)])) == 3


@pytest.mark.parametrize("change", [{"protocol": "paper"}, {"dataset": "csbm"}, {"setting": "inductive"}])
def test_other_runs_are_not_mistaken_for_the_same(tmp_path: Path, change: Record) -> None:
    first = folder_of(tmp_path / "a", [record("energy", 0)])
    second = folder_of(tmp_path / "b", [record("energy", 0, config={"lr": 7}, fingerprint="cd34", **change)])
    found = read_runs([first, second])
    assert len(found) == 2
    assert [row.runs for row in make_rows(found)] == [1, 1]


def test_a_failed_run_gives_way_to_a_finished_one(tmp_path: Path) -> None:
    done = folder_of(tmp_path / "a", [record("energy", 0, 0.9), record("energy", 1, 0.9)])
    broken = folder_of(tmp_path / "b", [failed("energy", 0), failed("energy", 2)])
    for folders in ([done, broken], [broken, done], [broken, done, broken]):
        found = read_runs(folders)
        assert keys(found) == [
            ("digits", "sealed", "energy", seed, how) for seed, how in enumerate(("done", "done", "failed"))
        ]


def test_folders_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    whole = folder_of(tmp_path / "whole", [record("energy", 0)])
    with pytest.raises(RecordError, match="nowhere"):
        read_runs([whole, tmp_path / "nowhere"])
    with pytest.raises(RecordError, match="empty"):
        read_runs([folder_of(tmp_path / "empty", [])])
    assert len(read_runs([whole, tmp_path / "empty"])) == 1


def damage(change: Callable[[Record], object]) -> bytes:
    made = record("energy", 0)
    change(made)
    return to_json(made, allow_nan=True)


DAMAGED = {
    "empty": b"",
    "cut off": to_json(record("energy", 0))[:200],
    "not text": b"\xff\xfe\x00\x01",
    "a list": b"[1, 2]",
    "no score": damage(lambda made: made.pop("scores")),
    "no status": damage(lambda made: made.pop("status")),
    "unknown status": damage(lambda made: made.update(status="begun")),
    "no format": damage(lambda made: made.pop("format")),
    "other format": damage(lambda made: made.update(format=99)),
    "no marks": damage(lambda made: made.pop("marks")),
    "no seed": damage(lambda made: made.pop("seed")),
    "seed of text": damage(lambda made: made.update(seed="0")),
    "no setting": damage(lambda made: made.pop("setting")),
    "unknown setting": damage(lambda made: made.update(setting="reductive")),
    "no finger": damage(lambda made: made.pop("fingerprint")),
    "text for a number": damage(lambda made: made["scores"]["energy"].update(auroc="high")),
    "no auroc": damage(lambda made: made["scores"]["energy"].pop("auroc")),
    "empty auroc": damage(lambda made: made["scores"]["energy"].update(auroc=None)),
    "no scores at all": damage(lambda made: made.update(scores={})),
    "headline of no score": damage(lambda made: made.update(headline="EU")),
    "no seconds": damage(lambda made: made.update(seconds={})),
    "not a number": damage(lambda made: made["scores"]["energy"].update(auroc=math.nan)),
    "infinite": damage(lambda made: made["metrics"].update(nll=math.inf)),
    "curves of another kind": damage(lambda made: made["curves"].update(roc=[])),
    "no training": damage(lambda made: made["curves"].pop("training")),
    "a short curve": damage(lambda made: made["curves"]["roc"]["energy"].pop()),
    "no curve": damage(lambda made: made["curves"]["rejection"].update(energy=None)),
    "a histogram without edges": damage(lambda made: made["curves"]["histogram"]["energy"].pop("edges")),
    "a histogram with a hole": damage(lambda made: made["curves"]["histogram"]["energy"]["edges"].__setitem__(3, None)),
    "half a line of training": damage(lambda made: made["curves"].update(training=[[0, 1.0]])),
    "numbers for names": damage(lambda made: made.update(class_names=[0, 1])),
    "marks of another kind": damage(lambda made: made.update(marks=[None])),
    "counts of text": damage(lambda made: made["counts"].update(test_id="many")),
    "a diagnosis of words": damage(lambda made: made.update(diagnosis={"trust": "much"})),
    "a diagnosis with a hole": damage(lambda made: made.update(diagnosis={"trust": None})),
    "a diagnosis of another kind": damage(lambda made: made.update(diagnosis=[0.5])),
    "a diagnosis that is not finite": damage(lambda made: made.update(diagnosis={"trust": math.nan})),
    "of another method": damage(lambda made: made.update(method="knn")),
    "of another seed": damage(lambda made: made.update(seed=7)),
}


@pytest.mark.parametrize("kind", list(DAMAGED))
def test_damaged_records_are_refused(tmp_path: Path, kind: str) -> None:
    """Whatever is read can be made into rows; else the error names the file."""
    folder = folder_of(tmp_path / "a", [record("energy", 0), record("energy", 1)])
    place = folder / "runs" / "digits" / "energy" / "seed-000.json"
    place.write_bytes(DAMAGED[kind])
    with pytest.raises(RecordError, match=re.escape(str(place))):
        read_runs([folder])


@pytest.mark.parametrize("found", [None, {}, {"trust": 0.5, "auroc": 1}])
def test_a_diagnosis_is_read_and_may_be_missing(tmp_path: Path, found: dict[str, float] | None) -> None:
    folder = folder_of(tmp_path / "a", [record("energy", 0, diagnosis=found), record("energy", 1)])
    assert [one.get("diagnosis") for one in read_runs([folder])] == [found, None]


def test_a_record_of_another_format_is_not_called_damaged(tmp_path: Path) -> None:
    for number in (1, FORMAT + 1):
        folder = folder_of(tmp_path / str(number), [record("energy", 0, format=number)])
        with pytest.raises(RecordError, match=f"another version of credalgnn .format {number}, and {FORMAT}") as caught:
            read_runs([folder])
        assert "delete" not in str(caught.value)


def test_a_mark_that_is_not_known_is_shown_by_its_name() -> None:
    assert "brand-new" in terminal(make_rows([record("energy", 0, marks=["brand-new"])]))


def test_folders_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    """The same run with the same hyper-parameters, and another result."""
    first = folder_of(tmp_path / "a", [record("energy", 0, 0.9)])
    with pytest.raises(RecordError, match="results"):
        read_runs([first, folder_of(tmp_path / "b", [record("energy", 0, 0.8)])])


def test_runs_that_disagree_about_their_scores_are_refused_or_shown(tmp_path: Path) -> None:
    """Records of two versions of a method, with other scores: never a KeyError."""
    records = [record("energy", 0, {"energy": 0.5}), record("energy", 1, {"other": 0.6}, headline="other")]
    try:
        rows = make_rows(read_runs([folder_of(tmp_path / "a", records)]))
    except RecordError:
        return
    assert sum(row.values["auroc"].n for row in rows) == 2


# ---------------------------------------------------------------- Tables


def benchmark(seeds: int = 7, dataset: str = "digits", **changes: Any) -> list[Record]:
    rng = np.random.default_rng(len(dataset))
    records = []
    for seed in range(seeds):
        aurocs = {name: float(rng.uniform(0.4, 0.95)) for name in ("EU", "AU", "TU")}
        records += [record("credal-lj", seed, aurocs, dataset=dataset, **changes)]
        for method in ("vanilla", "energy", "degree"):
            records += [record(method, seed, float(rng.uniform(0.4, 0.9)), dataset=dataset, **changes)]
    for one in records:
        if one["method"] == "vanilla" and one["seed"] < 3:
            one["marks"] = ["majority"]
        if one["method"] == "energy" and one["dataset"] == "csbm":
            one["marks"] = ["few-classes"]
    return records


def test_a_narrow_terminal_shows_one_data_set_after_the_other() -> None:
    rows = make_rows([*benchmark(), *benchmark(dataset="csbm")])
    wide = terminal(rows).splitlines()
    assert terminal(rows, max(map(len, wide))).splitlines()[0] == wide[0]
    narrow = terminal(rows, 66).splitlines()
    assert max(map(len, narrow)) <= 66
    heads = [line for line in narrow if line.startswith("method")]
    assert [name in line for line in heads for name in ("digits AUROC", "csbm AUROC")] == [True, False, False, True]
    assert sum(line.startswith("credal-lj") for line in narrow) == 6


def test_one_run_has_no_spread_in_the_file() -> None:
    (line,) = (
        one
        for one in csv.DictReader(tidy(make_rows([record("energy", 0, 0.9)])).splitlines())
        if one["metric"] == "auroc"
    )
    assert (line["mean"], line["std"], line["low"], line["high"], line["seeds"]) == ("0.9", "", "", "", "1")


def cells_of(line: str) -> list[str]:
    """The cells of a Markdown line; an escaped pipe is part of one."""
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def tables_of(text: str) -> list[list[list[str]]]:
    """The Markdown tables of a text, with heads and without the lines below them."""
    found: list[list[list[str]]] = []
    inside = False
    for line in text.splitlines():
        if line.startswith("|"):
            if not inside:
                found.append([])
            found[-1].append(cells_of(line))
        inside = line.startswith("|")
    for table in found:
        assert all(re.fullmatch(r":?-+:?", cell) for cell in table[1])
        assert len({len(line) for line in table}) == 1
    return [[table[0], *table[2:]] for table in found]


def number(cell: str) -> float:
    match = re.search(r"-?\d+\.\d+", cell)
    assert match, cell
    return float(match[0])


def test_csv_holds_every_number() -> None:
    rows = make_rows(benchmark() + benchmark(3, "csbm", protocol="paper") + benchmark(2, setting="inductive"))
    lines = list(csv.DictReader(io.StringIO(tidy(rows))))
    assert len(lines) == sum(len(row.values) for row in rows)
    found = {(r["dataset"], r["protocol"], r["setting"], r["method"], r["score"], r["metric"]): r for r in lines}
    assert len(found) == len(lines)
    for row in rows:
        for name, value in row.values.items():
            line = found[row.dataset, row.protocol, row.setting, row.method, row.score, name]
            for key in ("mean", "std", "low", "high"):
                assert float(line[key]) == pytest.approx(getattr(value, key), rel=1e-5, abs=1e-12)
            assert int(line["seeds"]) == value.n
            if name == "auroc":
                assert line["rank"] == row.rank
            for mark in row.marks:
                assert mark in line["marks"]
            assert line["disqualified"].split() == list(row.disqualified)
            assert None not in line
            assert None not in line.values()


def test_markdown_has_the_overview_and_a_table_per_data_set() -> None:
    rows = make_rows(benchmark() + benchmark(7, "csbm"))
    overview, *details = tables_of(markdown(rows))
    assert len(details) == 2
    assert len(overview) == 1 + len({(row.method, row.score) for row in rows})
    by_name = {(line[0], line[1]): line for line in overview[1:]}
    for row in rows:
        cell = by_name[row.method, row.score][overview[0].index(f"{row.dataset} AUROC")]
        assert number(cell) == pytest.approx(100 * row.values["auroc"].mean, abs=0.051)
        assert ("**" in cell) == (row.rank == "best")
        assert ("†" in cell) == (row.rank == "tied")
        accuracy = by_name[row.method, row.score][overview[0].index(f"{row.dataset} accuracy")]
        if "accuracy" in row.values and row.headline:
            assert number(accuracy) == pytest.approx(100 * row.values["accuracy"].mean, abs=0.051)
        else:
            assert not re.search(r"\d", accuracy)
    for table, dataset in zip(details, ("digits", "csbm"), strict=True):
        chosen = [row for row in rows if row.dataset == dataset]
        assert [(line[0], line[1]) for line in table[1:]] == [(row.method, row.score) for row in chosen]
        for line, row in zip(table[1:], chosen, strict=True):
            assert number(line[table[0].index("AUROC")]) == pytest.approx(100 * row.values["auroc"].mean, abs=0.051)
            if "nll" in row.values:
                assert number(line[table[0].index("NLL")]) == pytest.approx(row.values["nll"].mean, abs=0.00051)


def body_of(text: str) -> list[str]:
    """The lines of a LaTeX table that hold cells."""
    return [line for line in text.splitlines() if line.endswith(r"\\")]


def test_latex_has_as_many_cells_as_columns() -> None:
    rows = make_rows(benchmark() + benchmark(7, "csbm") + benchmark(2, "arxiv", protocol="paper"))
    text = latex(rows)
    columns = re.search(r"\\begin\{tabular\}\{(\w+)\}", text)
    assert columns
    assert len(columns[1]) == 2 + 2 * 3
    lines = body_of(text)
    assert len(lines) == 1 + len({(row.method, row.score) for row in rows})
    for line in lines:
        assert len(re.split(r"(?<!\\)&", line)) == len(columns[1])
        assert line.count("{") == line.count("}")
    for rule in (r"\toprule", r"\midrule", r"\bottomrule", r"\end{tabular}"):
        assert text.count(rule) == 1
    assert text.count(r"\textbf{") == sum(row.rank == "best" for row in rows)
    assert text.count(r"\underline{") == sum(row.rank == "tied" for row in rows)


def test_latex_needs_no_characters_beyond_ascii() -> None:
    """Below the table are comments, where anything may stand."""
    rows = make_rows(benchmark())
    assert all(line.isascii() for line in latex(rows).splitlines() if not line.startswith("%"))
    for line in body_of(latex(rows))[1:]:
        assert "±" not in line


def test_terminal_table_is_aligned() -> None:
    rows = make_rows(benchmark() + benchmark(7, "csbm"))
    _, _, head, line, *rest = terminal(rows).splitlines()
    body = rest[: rest.index("")]
    assert set(line) == {"-"}
    assert len(line) >= max(map(len, [head, *body]))
    assert len(body) == len({(row.method, row.score) for row in rows})
    assert [tuple(one.split()[:2]) for one in body] == list(dict.fromkeys((row.method, row.score) for row in rows))
    assert sum(one.count("*") for one in body) == 2
    assert sum(one.count("+") for one in body) == sum(row.rank == "tied" for row in rows)
    where = head.index("score")
    assert {one[where - 1] for one in body} == {" "}
    assert all(one[where] != " " for one in body)
    for row in rows:
        text = next(one for one in body if one.split()[:2] == [row.method, row.score])
        assert f"{100 * row.values['auroc'].mean:.1f} ± {100 * row.values['auroc'].std:.1f}" in text


@pytest.mark.parametrize("make", [terminal, markdown, latex])
def test_legend_names_the_marks_that_are_there(make: Callable[[Sequence[Row]], str]) -> None:
    """Every table explains its marks, and says nothing of those that are not there."""
    rows = make_rows(benchmark() + benchmark(7, "csbm"))
    text = make(rows)
    for mark, one in MARKS.items():
        assert (one.meaning in text) == (mark in ("majority", "few-classes"))
    assert "7 seeds" in text
    assert "fail" not in text
    clean = [one for one in benchmark() if one["method"] != "vanilla"]
    assert not any(one.meaning in make(make_rows(clean)) for one in MARKS.values())


@pytest.mark.parametrize("protocol", ["sealed", "paper"])
def test_marks_tell_how_many_runs_bear_them(protocol: str) -> None:
    """Each mark has a letter of its own, small where it only informs; a number follows where not all runs bear it."""
    letters = []
    for name, mark in MARKS.items():
        some = [record("energy", seed, 0.5, marks=[name] if seed < 2 else [], protocol=protocol) for seed in range(4)]
        rows = make_rows(some)
        explained = next(line for line in legend(rows) if mark.meaning in line)
        assert mark.advice[1:] in explained
        letter = explained.split(":")[0]
        assert letter == (mark.letter if disqualifies(name, protocol) else mark.letter.lower())
        cell = tables_of(markdown(rows))[0][1][2]
        assert f"{letter}2" in cell
        every = tables_of(markdown(make_rows([{**one, "marks": [name]} for one in some])))[0][1][2]
        assert every.endswith(letter)
        letters.append(letter)
    assert len(set(letters)) == len(MARKS)


def test_a_mark_that_informs_here_and_disqualifies_there_is_explained_once() -> None:
    rows = make_rows([record("energy", 0, 0.9, marks=["mirror"], protocol=one) for one in ("sealed", "paper")])
    assert [row.rank for row in rows] == ["best", ""]
    (line,) = [line for line in legend(rows) if MARKS["mirror"].meaning in line]
    assert line.startswith("A or a: ")
    assert "small letters only inform" in " ".join(legend(rows))
    assert "small letters" not in " ".join(legend(rows, ranked=False))


def test_legend_tells_of_failures_and_seeds() -> None:
    records = [*benchmark(3), failed("credal-lj", 3), failed("knn", 0), failed("knn", 1)]
    words = " ".join(legend(make_rows(records)))
    assert "3 runs failed" in words
    assert "too few seeds to test" in words
    for make in (terminal, markdown, latex, tidy):
        make(make_rows(records))
    assert any(line[0] == "knn" for line in tables_of(markdown(make_rows(records)))[0])
    assert "1 run failed" in " ".join(legend(make_rows([*benchmark(3), failed("knn", 0)])))
    assert "3 to 5 seeds" in " ".join(legend(make_rows(benchmark(3) + benchmark(5, "csbm"))))


def test_one_seed_has_no_deviation() -> None:
    text = markdown(make_rows([record("energy", 0, 0.8765)]))
    assert "87.6" in text or "87.7" in text
    assert "±" not in "".join(line for line in text.splitlines() if line.startswith("|"))


def test_tables_of_failures_alone() -> None:
    rows = make_rows([failed("knn", 0), failed("energy", 0)])
    for make in (terminal, markdown, latex, tidy):
        assert make(rows)
    assert len(list(csv.reader(io.StringIO(tidy(rows))))) == 1


def test_tables_are_written_into_a_folder(tmp_path: Path) -> None:
    rows = make_rows(benchmark())
    write_tables(rows, tmp_path / "new" / "folder")
    folder = tmp_path / "new" / "folder"
    assert sorted(path.name for path in folder.iterdir()) == ["table.csv", "table.md", "table.tex"]
    for name, make in (("table.md", markdown), ("table.csv", tidy), ("table.tex", latex)):
        assert (folder / name).read_text() == make(rows)


def test_records_are_left_alone() -> None:
    records = benchmark()
    before = copy.deepcopy(records)
    make_rows(records)
    assert records == before


# ---------------------------------------------------------------- in words


def credal(method: str, auroc: float, wide: float, narrow: float, **changes: Any) -> list[Record]:
    """Two runs of a method with credal sets, whose widths differ a little."""
    made = [record(method, seed, auroc, **changes) for seed in range(2)]
    for seed, one in enumerate(made):
        one["metrics"] |= {"widest_ood": wide + 0.02 * seed, "widest_id": narrow + 0.02 * seed}
    return made


def test_the_headline_result_is_said_in_words() -> None:
    ood_names = {TaskKey("digits", "sealed", "transductive"): ["8", "9"]}
    records = [*credal("credal-lj", 0.5, 0.0, 0.0), *credal("credal-coverage", 0.996, 0.97, 0.08), record("energy", 0)]
    words = headline(make_rows(records), ood_names)
    assert words == [
        "credal-coverage tells nodes of left-out classes (8, 9) on digits from the others with AUROC 99.6 %.",
        "Median widest interval: 0.98 of OOD nodes, 0.09 of ID nodes (0: certain, 1: anything is possible).",
    ]


def test_words_hide_neither_a_better_method_nor_make_up_widths() -> None:
    better = [record("energy", seed, 0.99) for seed in range(2)]
    words = headline(make_rows([*credal("credal-coverage", 0.9, 0.9, 0.1), *better]), {})
    assert words[0].startswith("credal-coverage tells nodes of left-out classes on digits")
    assert words[-1] == "The best ranked method is energy, with AUROC 99.0 %."
    assert [line.split()[0] for line in headline(make_rows(better), {})] == ["energy"]  # nobody has credal sets
    marked = [record("energy", seed, marks=["majority"]) for seed in range(2)]
    assert headline(make_rows(marked), {}) == []  # nothing to boast of
