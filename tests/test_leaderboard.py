"""The leaderboard: ranks, wins and losses against naive references, folders that merge, and its page in a browser."""

from __future__ import annotations

import contextlib
import gzip
import io
import itertools
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import scipy.stats

import credalgnn as cg
from credalgnn.cli import main
from credalgnn.metrics import METRICS
from credalgnn.records.schema import RecordError
from credalgnn.report.standings import (
    ARCHIVE,
    RANKED,
    Condition,
    Standing,
    critical_difference,
    read_archive,
    write_archive,
)
from test_summary import failed, folder_of, record

USUAL = Condition("sealed", "transductive", "one")
# Critical values of the two-tailed Nemenyi test at 0.05 for 2 to 10 methods (Demsar 2006, Table 5a).
NEMENYI = (1.960, 2.343, 2.569, 2.728, 2.850, 2.949, 3.031, 3.102, 3.164)
GRAPHS = ("chameleon", "cora", "digits", "pubmed")


def board_of(values: Mapping[str, Mapping[str, Sequence[float]]], **changes: Any) -> cg.Leaderboard:
    """Runs with the given AUROC of a method's every score, by graph and seed."""
    return cg.Leaderboard(
        [
            record(method, seed, auroc, dataset=graph, **changes)
            for method, graphs in values.items()
            for graph, aurocs in graphs.items()
            for seed, auroc in enumerate(aurocs)
        ]
    )


def by_method(board: cg.Leaderboard, metric: str = "auroc") -> dict[str, Standing]:
    return {one.method: one for one in board.standings(USUAL, metric).methods}


# ---------------------------------------------------------------- numbers


@pytest.mark.parametrize("methods", range(2, 11))
@pytest.mark.parametrize("graphs", [3, 14])
def test_critical_differences_are_the_published_ones(methods: int, graphs: int) -> None:
    expected = NEMENYI[methods - 2] * math.sqrt(methods * (methods + 1) / (6 * graphs))
    found = critical_difference(methods, graphs)
    assert found == pytest.approx(expected, rel=5e-4)  # the table has three decimals


def test_too_few_graphs_have_no_critical_difference() -> None:
    assert critical_difference(5, 2) is None
    assert critical_difference(1, 9) is None


@pytest.mark.parametrize("seed", range(3))
def test_mean_ranks_are_those_of_counting(seed: int) -> None:
    """The rank of a method is one more than the methods ahead of it, ties counting half."""
    random = np.random.default_rng(seed)
    methods = ["vanilla", "energy", "knn", "odin", "gnnsafe", "degree"]
    values = {m: {g: list(random.integers(3, 9, 4) / 10) for g in GRAPHS} for m in methods}
    found = by_method(board_of(values))
    means = {m: {g: np.mean(values[m][g]) for g in GRAPHS} for m in methods}
    for m in methods:
        ranks = []
        for g in GRAPHS:
            others = [means[o][g] - means[m][g] for o in methods if o != m]
            ranks.append(1 + sum(1.0 if d > 1e-12 else 0.5 if abs(d) <= 1e-12 else 0.0 for d in others))
        assert found[m].mean_rank == pytest.approx(np.mean(ranks))
        assert list(found[m].ranks.values()) == pytest.approx(ranks)
        worst = min(GRAPHS, key=lambda g: means[m][g])
        assert found[m].worst is not None
        assert found[m].worst[1] == pytest.approx(means[m][worst])
    order = [one.mean_rank for one in board_of(values).standings(USUAL).methods]
    assert order == sorted(order)


def test_smaller_is_better_where_it_is() -> None:
    runs = [record(m, s, 0.5, dataset=g) for m in ("vanilla", "energy") for g in GRAPHS for s in range(3)]
    for one in runs:
        one["metrics"]["nll"] = 0.2 if one["method"] == "energy" else 0.4
    found = by_method(cg.Leaderboard(runs), "nll")
    assert (found["energy"].mean_rank, found["vanilla"].mean_rank) == (1.0, 2.0)
    assert found["energy"].behind is not None
    assert found["energy"].behind[1] == pytest.approx(0.2)


def exact_p(differences: Sequence[float]) -> float:
    """Two-sided signed-rank test by enumerating all signs."""
    ranks = scipy.stats.rankdata(np.abs(differences))
    total = sum(rank for rank, value in zip(ranks, differences, strict=True) if value > 0)
    sums = [
        sum(r for r, s in zip(ranks, signs, strict=True) if s) for signs in itertools.product((0, 1), repeat=len(ranks))
    ]
    upper, lower = np.mean([one >= total for one in sums]), np.mean([one <= total for one in sums])
    return float(min(1.0, 2 * min(upper, lower)))


@pytest.mark.parametrize("seed", range(4))
def test_wins_and_losses_are_those_of_an_exact_test(seed: int) -> None:
    random = np.random.default_rng([7, seed])
    shifts = dict(zip(GRAPHS, (0.1, -0.1, 0.0, 0.02), strict=True))
    values = {
        "vanilla": {g: list(random.normal(0.6, 0.02, 10)) for g in GRAPHS},
        "energy": {g: list(random.normal(0.6 + shifts[g], 0.02, 10)) for g in GRAPHS},
    }
    found = by_method(board_of(values))["energy"]
    p = {g: exact_p(np.subtract(values["energy"][g], values["vanilla"][g])) for g in GRAPHS}
    corrected, largest = {}, 0.0
    for k, g in enumerate(sorted(p, key=lambda g: p[g])):
        largest = max(largest, (len(p) - k) * p[g])
        corrected[g] = largest
    sure = [g for g in GRAPHS if corrected[g] < 0.05]
    wins = sum(np.mean(values["energy"][g]) > np.mean(values["vanilla"][g]) for g in sure)
    assert (found.wins, found.losses, found.ties, found.untested) == (wins, len(sure) - wins, 4 - len(sure), 0)
    assert found.wins >= 1
    assert found.losses >= 1


def test_the_reference_is_the_entropy_and_not_the_headline_of_the_vanilla_network() -> None:
    runs = [record("vanilla", s, {"msp": 0.9, "entropy": 0.6}, dataset=g) for g in GRAPHS for s in range(10)]
    runs += [record("energy", s, 0.7, dataset=g) for g in GRAPHS for s in range(10)]
    found = by_method(cg.Leaderboard(runs))
    assert (found["energy"].wins, found["vanilla"].wins) == (4, 4)
    assert found["energy"].behind is not None
    assert found["energy"].behind[1] == pytest.approx(0.1)
    assert found["vanilla"].mean_rank == 1.0  # ranked is what was fixed before the run


def test_few_seeds_are_not_tested() -> None:
    values = {"vanilla": {g: [0.5] * 3 for g in GRAPHS}, "energy": {g: [0.9] * 3 for g in GRAPHS}}
    found = by_method(board_of(values))["energy"]
    assert (found.wins, found.ties, found.losses, found.untested) == (0, 0, 0, 4)


def test_a_marked_row_is_ranked_last_by_its_score_and_not_by_its_classes() -> None:
    runs = [record(m, s, 0.9 if m == "credal-lj" else 0.6, dataset=g) for m in ("vanilla", "energy", "credal-lj")
            for g in GRAPHS for s in range(10)]  # fmt: skip
    for one in runs:
        if one["method"] == "credal-lj" and one["dataset"] == "cora":
            one["marks"] = ["narrow"]
        one["metrics"]["accuracy"] = 0.9 if one["method"] == "credal-lj" else 0.8
    found = by_method(cg.Leaderboard(runs))["credal-lj"]
    assert found.ranks == {"chameleon": 1.0, "cora": 3.0, "digits": 1.0, "pubmed": 1.0}
    assert (found.wins, found.marked) == (3, 1)
    assert by_method(cg.Leaderboard(runs), "accuracy")["credal-lj"].mean_rank == 1.0


def test_a_graph_with_few_methods_takes_nobody_out_of_the_ranking() -> None:
    values = {m: {g: [0.5, 0.6] for g in GRAPHS} for m in ("vanilla", "energy", "knn", "odin")}
    values["vanilla"] = {**values["vanilla"], "mine": [0.5, 0.6]}
    values["newcomer"] = {"mine": [0.9, 0.9], "cora": [0.9, 0.9]}
    standings = board_of(values).standings(USUAL)
    assert standings.ranked == GRAPHS
    assert set(standings.graphs) == {*GRAPHS, "mine"}
    ranked = {one.method: one.mean_rank for one in standings.methods}
    assert ranked.pop("newcomer") is None
    assert None not in ranked.values()


def test_what_methods_may_see_is_declared() -> None:
    found = by_method(board_of({m: {"cora": [0.5]} for m in ("vanilla", "gebm", "newcomer")}))
    assert [found[m].uses_unlabelled for m in ("vanilla", "gebm", "newcomer")] == [False, True, None]
    declared = {name for name, kind in cg.METHODS.items() if kind.uses_unlabelled}
    assert declared == {"credal-coverage", "evidential", "gebm", "grasp"}


# ---------------------------------------------------------------- which runs are compared


def test_one_split_and_a_split_for_each_seed_are_told_apart() -> None:
    fixed = [record(m, s, 0.5) for m in ("vanilla", "energy") for s in range(3)]
    varied = [
        record(m, s, 0.8, split_seed=s, fingerprint=f"of {s}") for m in ("vanilla", "energy") for s in range(1, 3)
    ]
    board = cg.Leaderboard([*fixed, *varied])
    each = Condition("sealed", "transductive", "each")
    assert list(board.conditions) == [USUAL, each]
    assert len(board.conditions[USUAL]) == 6
    assert len(board.conditions[each]) == 6  # seed 0 on split 0 belongs to both
    assert list(cg.Leaderboard(varied).conditions) == [each]


def test_other_splits_are_refused() -> None:
    runs = [record("vanilla", s, 0.5, split_seed=k) for k in (0, 5) for s in range(3)]
    with pytest.raises(RecordError, match="digits: runs on the splits 0, 5; collect them separately"):
        _ = cg.Leaderboard(runs).conditions


def test_folders_and_leaderboards_merge(tmp_path: Path) -> None:
    theirs = folder_of(tmp_path / "theirs", [record(m, s, 0.6) for m in ("vanilla", "energy") for s in range(3)])
    cg.leaderboard([theirs], tmp_path / "published")
    assert sorted(one.name for one in (tmp_path / "published").iterdir()) == [
        "leaderboard.html", "leaderboard.md", "runs.jsonl.gz"]  # fmt: skip
    again = record("vanilla", 0, 0.61)  # the same run on another machine, rounded otherwise
    mine = folder_of(tmp_path / "mine", [again, *(record("newcomer", s, 0.9) for s in range(3)), failed("odin", 0)])
    board = cg.leaderboard([tmp_path / "published", mine], tmp_path / "both")
    assert (len(board.records), board.doubles) == (9, 1)
    found = by_method(board)
    assert found["newcomer"].mean_rank == 1.0
    assert found["vanilla"].worst == ("digits", pytest.approx(0.6))  # that of the first folder counts
    third = cg.leaderboard([tmp_path / "both"])
    assert [one.mean_rank for one in third.standings(USUAL).methods] == [
        one.mean_rank for one in board.standings(USUAL).methods
    ]


@pytest.mark.parametrize(("change", "what"), [
    ({"config": {"lr": 0.1}}, "different hyper-parameters"), ({"fingerprint": "cd34"}, "different data or splits"),
])  # fmt: skip
def test_runs_that_contradict_each_other_are_refused(tmp_path: Path, change: dict[str, Any], what: str) -> None:
    one, two = (folder_of(tmp_path / name, [record("vanilla", 0, 0.6, **c)]) for name, c in (("a", {}), ("b", change)))
    with pytest.raises(RecordError, match=f"both hold digits vanilla seed 0, with {what}"):
        cg.leaderboard([one, two])


def test_nothing_but_failures_is_nothing_to_compare(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="no run was successful"):
        cg.leaderboard([folder_of(tmp_path / "a", [failed("odin", 0)])])


# ---------------------------------------------------------------- the file of runs


def test_runs_come_back_with_what_tables_show(tmp_path: Path) -> None:
    runs = [record("vanilla", s, 0.123456789) for s in range(2)]
    write_archive([*runs, failed("odin", 0)], tmp_path / ARCHIVE)
    found = read_archive(tmp_path / ARCHIVE)
    assert [one["scores"]["msp"]["auroc"] for one in found] == [0.123457, 0.123457]
    assert all("curves" not in one for one in found)
    shown = {name for name, metric in METRICS.items() if metric.shown}
    assert set(found[0]["metrics"]) <= shown
    first = (tmp_path / ARCHIVE).read_bytes()
    write_archive(runs, tmp_path / ARCHIVE)
    assert (tmp_path / ARCHIVE).read_bytes() == first  # the same runs, the same bytes


def _with_a_digit_changed(content: bytes) -> bytes:
    text = gzip.decompress(content)
    return gzip.compress(text.replace(b"0.123457", b"0.923457", 1))


def _without_a_line(content: bytes) -> bytes:
    return gzip.compress(b"".join(gzip.decompress(content).splitlines(keepends=True)[:-1]))


def _of_another_version(content: bytes) -> bytes:
    head, _, rest = gzip.decompress(content).partition(b"\n")
    return gzip.compress(json.dumps({**json.loads(head), "format": 99}).encode() + b"\n" + rest)


@pytest.mark.parametrize(("change", "message"), [
    (_with_a_digit_changed, "damaged"), (_without_a_line, "damaged"), (lambda content: content[:-20], "damaged"),
    (lambda content: b"no gzip", "cannot be read"), (_of_another_version, "another version")])  # fmt: skip
def test_a_damaged_file_of_runs_is_refused(tmp_path: Path, change: Any, message: str) -> None:
    path = tmp_path / ARCHIVE
    write_archive([record("vanilla", s, 0.123456789) for s in range(2)], path)
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(RecordError, match=message):
        read_archive(path)


def test_a_file_of_runs_takes_no_more_than_its_size_justifies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("credalgnn.runtime.reading.ALWAYS", 1 << 20)
    path = tmp_path / ARCHIVE
    path.write_bytes(gzip.compress(bytes(64 << 20)))  # some 60 KB that hold a thousand times as much
    with pytest.raises(RecordError, match="unpacks to far more than its size"):
        read_archive(path)
    path.write_bytes(gzip.compress(b"[" * 100_000 + b"\n"))
    with pytest.raises(RecordError, match="nested more than 64 levels deep"):
        read_archive(path)


def test_names_of_others_give_the_terminal_no_orders(tmp_path: Path) -> None:
    evil = "\x1b[2J<img src=x>"
    folder = board_of({evil: {"cora": [0.5, 0.6]}, "vanilla": {"cora": [0.5, 0.6]}}).write(tmp_path / "theirs").parent
    result = credalgnn("leaderboard", folder, "--out", tmp_path / "board")
    assert result.returncode == 0
    assert "\x1b" not in result.stdout
    assert "<img" not in (tmp_path / "board" / "leaderboard.md").read_text()


def test_a_leaderboard_is_checked(tmp_path: Path) -> None:
    folder = board_of({"vanilla": {"cora": [0.5, 0.6]}}).write(tmp_path).parent
    assert credalgnn("check", folder).returncode == 0
    content = (folder / ARCHIVE).read_bytes()  # the only file that is read again
    (folder / ARCHIVE).write_bytes(content.replace(content[99:100], b"X", 1) if content[99:100] != b"X" else b"")
    result = credalgnn("check", folder)
    assert (result.returncode, ARCHIVE in result.stdout) == (1, True)


# ---------------------------------------------------------------- command and page


class Said(NamedTuple):
    """What a command has answered."""

    returncode: int
    stdout: str
    stderr: str


def credalgnn(*arguments: str | Path) -> Said:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([str(word) for word in arguments])
    return Said(code, out.getvalue(), err.getvalue())


def test_the_command(tmp_path: Path) -> None:
    runs = [record(m, s, a, dataset=g) for m, a in (("vanilla", 0.6), ("energy", 0.7), ("knn", 0.5))
            for g in GRAPHS for s in range(10)]  # fmt: skip
    folder = folder_of(tmp_path / "runs", runs)
    result = credalgnn("leaderboard", folder, "--out", tmp_path / "board")
    assert result.returncode == 0, result.stderr
    assert "Mean ranks of 3 methods over 4 graphs" in result.stdout
    (line,) = [one for one in result.stdout.splitlines() if one.startswith("energy")]
    assert line.split()[2] == "1.0"
    text = (tmp_path / "board" / "leaderboard.md").read_text()
    assert "| energy | energy | 1.0 | 1 to 1 | 4 | 0 | 0 |" in text
    refused = credalgnn("leaderboard", tmp_path / "nowhere", "--out", tmp_path / "board")
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert "no experiment here" in refused.stderr


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    hostile = "<img src=x onerror=alert(1)>"
    values = {"vanilla": 0.6, "energy": 0.7, "knn": 0.55, "gebm": 0.65, hostile: 0.4}
    runs = [record(m, s, a + 0.01 * k, dataset=g) for m, a in values.items()
            for k, g in enumerate(GRAPHS) for s in range(10)]  # fmt: skip
    runs += [record(m, s, 0.8, dataset="cora", setting="inductive") for m in ("vanilla", "energy") for s in range(2)]
    for one in runs:
        if one["method"] == "knn":
            one["marks"] = ["narrow"]
    return cg.Leaderboard(runs).write(tmp_path_factory.mktemp("board"))


def test_the_page_shows_the_table_and_sorts(page_file: Path, browser: Any) -> None:
    browser.open(page_file)
    assert browser.complaints() == []
    names = browser.attributes("#board-box tbody tr", "data-method")
    assert names[:3] == ["energy", "gebm", "vanilla"]
    assert "energy (mean rank 1.0 of 5)" in browser.one("#lead").text
    cells = browser.texts('#board-box tr[data-method="energy"] td')
    assert cells[2:4] == ["1.0", "4\u20130\u20130"]
    assert cells[5].startswith("70.0")
    button, order = browser.header("#board-box", "cora")
    browser.click(button)
    browser.click(browser.header("#board-box", "cora")[0])
    assert order() == "ascending"
    names = browser.attributes("#board-box tbody tr", "data-method")
    assert names[0].startswith("<img")  # the worst first, as text
    assert names[-1] == "knn"  # taken out by a mark: last, whatever the order
    assert browser.texts("#board-box tr[data-method=knn] td.out")[0].endswith("N")


def test_the_page_changes_condition_and_metric_and_its_address_remembers(page_file: Path, browser: Any) -> None:
    browser.open(page_file)
    browser.choose(condition="sealed, inductive, one split", metric="ECE (smaller is better)")
    assert browser.attributes("#board-box tbody tr", "data-method") == ["vanilla", "energy"]
    address = browser.run("return location.href")
    browser.driver.get("about:blank")
    browser.driver.get(address)
    assert browser.one("#condition option:checked").text == "sealed, inductive, one split"
    assert browser.one("#metric option:checked").text == "ECE (smaller is better)"
    browser.choose(condition="sealed, transductive, one split", metric="AUROC (larger is better)")
    browser.click("#labels-only")
    assert set(browser.attributes("#board-box tbody tr", "data-method")) == {"energy", "vanilla", "knn"}
    browser.click("#all-scores")
    assert browser.attributes("#board-box tr.second", "data-score") == ["entropy"]
    browser.one("#find").send_keys("ener")
    assert browser.attributes("#board-box tbody tr", "data-method") == ["energy"]
    assert browser.complaints() == []


def test_the_page_draws_every_rank(page_file: Path, browser: Any) -> None:
    browser.open(page_file)
    assert len(browser.texts("#ranks-figure circle.small")) == 5 * len(GRAPHS)
    titles = browser.texts("#ranks-figure circle.mean title")
    assert titles[0] == "energy: mean rank 1.0"
    assert browser.run("return document.documentElement.scrollWidth <= window.innerWidth")
    browser.screen(390)
    assert browser.run("return document.documentElement.scrollWidth <= window.innerWidth")


def test_the_page_is_legible(page_file: Path, browser: Any) -> None:
    browser.open(page_file)
    browser.check_legible(["h1", "#lead", "td.high2", "td.low2", "td.out", "#board-legend p", "select"])


def test_ranked_metrics_have_a_direction() -> None:
    assert RANKED[0] == "auroc"
    assert all(METRICS[key].better for key in RANKED)
