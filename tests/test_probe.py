"""The probe: hand-made methods with known answers, what is measured, a kill on the way, and its page in a browser."""

from __future__ import annotations

import csv
import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

import credalgnn as cg
import probe_methods
from credalgnn.cli import main
from credalgnn.experiments.conditions import (
    DETECTIONS,
    RISES,
    TESTS,
    Condition,
    changed_tasks,
    conditions,
    feature_deviation,
)
from credalgnn.experiments.execute import ModelCache
from credalgnn.experiments.plan import plan
from credalgnn.experiments.probe_results import QUESTIONS, ProbeResults, cliffs_delta, curve, rise
from credalgnn.experiments.probing import BINS, by_homophily, measure, true_distribution
from credalgnn.graphs import csbm
from credalgnn.methods import METHODS
from credalgnn.methods.base import decomposition_of
from credalgnn.records.schema import wrong_field
from inline import Inline

HAND_MADE = (probe_methods.Distance, probe_methods.Disagreement, probe_methods.Mirror, probe_methods.Constant)
NOT_COMPARED = ("seconds", "peak_mib", "finished", "checksum")


def work_inline(patch: pytest.MonkeyPatch) -> None:
    """Do the work in this process, which starts no others."""
    for place in ("credalgnn.experiments.runner.make_engine", "credalgnn.experiments.runner.make_engine"):
        patch.setattr(place, lambda *args: Inline(*args[-2:]))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A quick probe of digits."""
    path = tmp_path_factory.mktemp("probe") / "runs"
    with pytest.MonkeyPatch.context() as patch:
        work_inline(patch)
        results = cg.probe("digits", HAND_MADE, quick=True, out=path, progress=False)
    assert (results.left, results.failed) == (0, 0)
    return path


@pytest.fixture(scope="module")
def answers(folder: Path) -> dict[tuple[str, str], float]:
    table = csv.DictReader((folder / "probe.csv").read_text().splitlines())
    return {(row["method"], row["test"]): float(row["answer"]) for row in table}


def test_a_true_distance_is_epistemic(answers: Mapping[tuple[str, str], float]) -> None:
    """With a twentieth of the labels every node is further from them; wrong labels lie where the right ones did."""
    assert answers["distance-eu", "labels"] > 0.5
    assert answers["distance-eu", "label-noise"] == 0.0
    assert answers["distance-eu", "removed"] > 0.9
    assert answers["distance-eu", "noise-1"] > 0.9
    assert answers["distance-eu", "noise-8"] == 1.0
    assert answers["distance-eu", "ood"] > 0.3
    assert answers["distance-eu", "rewired"] == pytest.approx(0.0, abs=0.25), "features know nothing of edges"


def test_a_share_of_contradictions_is_aleatoric(answers: Mapping[tuple[str, str], float]) -> None:
    assert answers["disagreement-au", "label-noise"] > 0.5
    assert answers["disagreement-au", "labels"] < 0.0, "AU moves where EU should, and EU never does"
    for test in (*DETECTIONS, TESTS["ood"]):
        assert answers["disagreement-au", test.name] == 0.0, "a constant EU tells nobody"


def test_two_names_for_one_number_get_nothing(answers: Mapping[tuple[str, str], float]) -> None:
    assert answers["mirror", "labels"] == answers["mirror", "label-noise"] == 0.0
    assert answers["mirror", "removed"] == answers["distance-eu", "removed"]


def test_a_constant_answers_nothing(answers: Mapping[tuple[str, str], float]) -> None:
    values = [value for (method, _), value in answers.items() if method == "constant"]
    assert len(values) == len(RISES) + len(DETECTIONS) + 1
    assert set(values) == {0.0}


@pytest.mark.filterwarnings("ignore::credalgnn.CredalWarning")  # the truth is a point, and a set of it is closed
def test_the_truth_is_known_and_recognised(tmp_path: Path) -> None:
    """A method that says the true posterior: its order of doubt is perfect, and nothing is left to miss."""
    spec = "csbm+homophily=0.4"
    task = cg.load_task(spec)
    known_nodes = int((task.graph.labels > 0).sum())
    run = plan(task.name, "probe_methods:Truth", 0, settings={"homophily": 0.4, "known_nodes": known_nodes})
    record, _ = measure(run, task, ModelCache(tmp_path), Condition("csbm", "homophily", 0.4, spec, 0.4))
    truth = record["probe"]["truth"]
    assert truth["spearman"]["AU"] == pytest.approx(1.0, abs=1e-9)
    assert truth["bits"]["AU"] == pytest.approx(0.0, abs=1e-6)  # shares of unknown nodes are rounded to six digits
    assert (truth["inside"], truth["error"]) == (1.0, pytest.approx(0.0, abs=1e-6))
    assert truth["spearman"]["EU"] is None, "a constant has no order"
    answered = {answer.question: answer.value.mean for answer in ProbeResults([record]).answers}
    assert answered["true-entropy"] == pytest.approx(1.0, abs=1e-9)
    assert answered["true-error"] == 0.0
    vanilla, _ = measure(
        plan(task.name, "vanilla", 0), task, ModelCache(tmp_path), Condition("csbm", "homophily", 0.4, spec, 0.4)
    )
    assert 0.1 < vanilla["probe"]["truth"]["error"] < 0.6
    assert vanilla["probe"]["truth"]["bits"]["entropy"] > 0.05
    assert "inside" not in vanilla["probe"]["truth"]


def test_the_true_distribution_is_that_of_the_tasks_nodes() -> None:
    task = cg.load_task("csbm+homophily=0.4")
    p = true_distribution(0.4, task)
    labels = task.test.labels[~task.test.is_ood]
    assert p.shape == (len(labels), task.num_classes)
    assert torch.allclose(p.sum(-1), torch.ones(len(p), dtype=torch.float64), atol=1e-9)
    share, expected = (p.argmax(-1) == labels).double().mean().item(), p.amax(-1).mean().item()
    # Calibrated: the mean of the largest probability is the accuracy, within four standard deviations of the latter.
    assert abs(share - expected) < 4.0 * np.sqrt(0.25 / len(labels))


# ---------------------------------------------------------------- numbers


def test_cliffs_delta_is_that_of_counting() -> None:
    before, after = [1.0, 2.0, 3.0], [2.0, 3.0, 9.0]
    wins = sum(a > b for a in after for b in before) - sum(a < b for a in after for b in before)
    assert cliffs_delta(before, after) == pytest.approx(wins / 9)
    assert (cliffs_delta([1.0], [1.0]), cliffs_delta([0.0], [1e-9]), cliffs_delta([1.0], [0.0])) == (0.0, 1.0, -1.0)


@pytest.mark.parametrize(("wanted", "other", "number"), [
    (1.0, 0.0, 1.0), (0.4, 0.4, 0.0), (0.7, -0.7, 0.0), (0.0, 0.5, -0.5), (0.0, -0.5, -0.5), (-0.3, 0.0, -0.3),
    (-1.0, 1.0, -1.0), (0.0, 0.0, 0.0)])  # fmt: skip
def test_one_number_says_right_or_wrong(wanted: float, other: float, number: float) -> None:
    assert rise(wanted, other) == pytest.approx(number)


def test_numbers_come_from_the_nodes_they_speak_of(tmp_path: Path) -> None:
    """The record of a task against a count over its nodes, those that have changed after the fit among them."""
    task = cg.load_task("digits", 3)
    method = probe_methods.Distance().fit(task)
    run = plan(task.name, "probe_methods:Distance", 3, split_seed=3)
    record, _ = measure(run, task, ModelCache(tmp_path), Condition("digits", "none", 0.0, "digits"))
    assert record["fingerprint"] == task.fingerprint
    known = ~task.test.is_ood
    score = method.predict(nodes=task.test.nodes).scores["EU"]
    assert record["probe"]["mean"]["EU"] == pytest.approx(float(score[known].mean()))
    middle = record["probe"]["quantiles"]["EU"][25]
    assert middle == pytest.approx(float(score[known].median()), rel=0.02)
    std = float(np.sqrt(task.graph.features.to_dense().double().numpy().var(0).mean()))
    later = {
        "removed": task.feature_removal(0.5, seed=3),
        "noise-1": task.feature_noise(0.5, std, seed=3),
        "noise-8": task.feature_noise(0.5, 8.0 * std, seed=3),
        "rewired": task.rewired(0.5, seed=3),
    }
    assert set(record["probe"]["changed"]) == set(later)
    for name, after in later.items():
        changed = torch.isin(task.test.nodes, after.shifted_nodes)
        with pytest.warns(cg.InputWarning) if "noise" in name else nullcontext():
            score = method.predict(after.graph, task.test.nodes).scores["EU"]
        high, low = score[known & changed], score[known & ~changed]
        counted = (high[:, None] > low).double().mean() + 0.5 * (high[:, None] == low).double().mean()
        assert record["probe"]["changed"][name]["EU"] == pytest.approx(float(counted), abs=1e-4), name


@pytest.mark.parametrize("name", ["credal-coverage", "grasp", "knn"])
def test_models_are_fitted_before_the_graph_changes_and_know_its_labelled_nodes_again(
    tmp_path: Path, name: str
) -> None:
    """The same scores as those of somebody who fits on a graph whose nodes have ids, and predicts a later one."""
    task = cg.load_task("csbm")
    graph = task.graph.replace(node_ids=[f"n{number}" for number in range(task.graph.num_nodes)])
    own = dataclasses.replace(task, graph=graph)
    after = own.feature_removal(0.5)
    settings = {} if name == "credal-coverage" else {"model": cg.Vanilla(seed=0)}
    method = METHODS[name](seed=0, **settings).fit(own)
    expected = cg.evaluate(method.predict(after.prediction_graph, after.test.nodes), after)
    run = plan("csbm", name, 0)
    record, _ = measure(run, task, ModelCache(tmp_path), Condition("csbm", "none", 0.0, "csbm"))
    epistemic = record["probe"]["epistemic"]
    assert record["probe"]["changed"]["removed"][epistemic] == expected.scores[epistemic]["shifted_auroc"]


def test_bins_of_local_homophily_hold_all_nodes_with_neighbours() -> None:
    task = cg.load_task("csbm+homophily=0.4")
    prediction = cg.FeatureSum().fit(task).predict(nodes=task.test.nodes)
    result = by_homophily(prediction, task, torch.arange(len(task.test.nodes)))
    source, target = task.graph.edge_index
    counts = np.zeros((len(BINS) - 1, 2), dtype=int)
    for node, is_ood in zip(task.test.nodes.tolist(), task.test.is_ood.tolist(), strict=True):
        labels = task.graph.labels[source[target == node]]
        if len(labels):
            share = float((labels == task.graph.labels[node]).double().mean())
            counts[min(int(share * 5 + 1e-9), 4), int(is_ood)] += 1
    assert (result["known"], result["ood"]) == (counts[:, 0].tolist(), counts[:, 1].tolist())
    assert result["accuracy"] == [None] * 5


@pytest.mark.parametrize("sparse", [False, True])
def test_the_deviation_of_features_is_numpys(sparse: bool) -> None:
    rng = np.random.default_rng(0)
    matrix = rng.normal(3.0, 2.0, (60, 7)) * (rng.random((60, 7)) < 0.4)
    graph = cg.Graph(torch.tensor(matrix, dtype=torch.float32), torch.tensor([[0], [1]]), torch.zeros(60).long())
    if sparse:
        graph = graph.replace(features=graph.features.to_dense().to_sparse_csr())
    assert feature_deviation(graph) == pytest.approx(np.sqrt(matrix.var(0).mean()), rel=1e-6)


def test_conditions_are_those_that_were_asked_for() -> None:
    whole, quick = ([(c.test, c.level) for c in conditions("csbm", "csbm", q)] for q in (False, True))
    assert [level for test, level in whole if test == "labels"] == [0.5, 0.2, 0.1, 0.05]
    assert [level for test, level in whole if test == "label-noise"] == [0.1, 0.2, 0.3, 0.4]
    assert [level for test, level in whole if test == "homophily"] == [0.0, 0.2, 0.4, 0.6, 1.0]
    assert {test for test, _ in quick} == {test for test, _ in whole}
    assert len(quick) < len(whole)
    assert all(test != "homophily" for test, _ in ((c.test, c.level) for c in conditions("x", "x")))


def test_methods_say_which_scores_stand_for_what() -> None:
    found = {name: decomposition_of(kind) for name, kind in METHODS.items()}
    assert found["credal-lj"] == found["classical-ensemble"] == ("EU", "AU")
    assert found["evidential"] == ("vacuity", "dissonance")
    assert found["gpn"] == ("evidence", "entropy")
    assert found["energy"] == ("energy", None)
    for name, (epistemic, aleatoric) in found.items():
        assert {epistemic, aleatoric or epistemic} <= set(METHODS[name].score_names), name


# ---------------------------------------------------------------- the command


def credalgnn(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "credalgnn", *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    return subprocess.run(command, capture_output=True, text=True, timeout=180, check=False, env=environment)


def records(path: Path) -> dict[str, Any]:
    found = {}
    for file in sorted(path.glob("runs/*/*/*.json")):
        record = json.loads(file.read_text())
        found[str(file.relative_to(path))] = {k: v for k, v in record.items() if k not in NOT_COMPARED}
    return found


@pytest.mark.slow
def test_a_kill_loses_nothing_and_the_same_command_goes_on(folder: Path, tmp_path: Path) -> None:
    names = ["probe_methods:Mirror", "probe_methods:Constant"]
    words = ["probe", "-d", "digits", "-m", *names, "--quick", "--out", str(tmp_path / "p"), "--jobs", "1"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    command = [sys.executable, "-m", "credalgnn", *words]
    process = subprocess.Popen(
        command, env=environment, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True
    )
    deadline = time.monotonic() + 120
    while len(records(tmp_path / "p")) < 5 and time.monotonic() < deadline:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "p").glob("runs/*/*/*.json")}
    expected = {path: record for path, record in records(folder).items() if record["method"] in ("mirror", "constant")}
    assert 5 <= len(kept) < len(expected)
    result = credalgnn(*words)
    assert result.returncode == 0, result.stderr
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in kept.items())
    assert records(tmp_path / "p") == expected
    assert "What AU and EU respond to" in result.stdout
    (line,) = [line for line in result.stdout.splitlines() if line.startswith("mirror")]
    assert line.split()[1:3] == ["+0.00", "+0.00"]
    assert credalgnn("check", tmp_path / "p").returncode == 0


def test_report_makes_tables_and_page_again(folder: Path, tmp_path: Path) -> None:
    assert main(["report", str(folder), "--out", str(tmp_path)]) == 0
    for name in ("probe.md", "probe.csv", "probe.html"):
        assert (tmp_path / name).read_bytes() == (folder / name).read_bytes()
    assert ElementTree.parse(tmp_path / "probe.svg").getroot().tag.endswith("svg")
    text = (tmp_path / "probe.md").read_text()
    assert all(QUESTIONS[name].label in text for name in ("labels", "noise-8", "ood"))
    assert "| distance-eu |" in text


@pytest.mark.parametrize(("words", "message"), [
    (["-d", "digits", "digits+label_noise=0.4"], "is a change of digits, which is probed anyway"),
    (["-d", "nowhere"], "there is no data set 'nowhere'"),
    (["-d", "digits", "-m", "credal-jl"], "did you mean credal-lj"),
    (["-d", "digits+label_nois=0.1"], "did you mean label_noise"),
    (["-d", "digits", "--set", "lrr=1"], "no chosen method has 'lrr'"),
    (["-d", "digits", "--engine", "ray", "--jobs", "2"], "--jobs is for this machine"),
])  # fmt: skip
def test_what_cannot_be_probed_is_one_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    assert main(["probe", *words, "--out", str(tmp_path / "p")]) == 2
    said = capfd.readouterr().err
    assert said.count("\n") == 1, said
    assert message in said
    assert not (tmp_path / "p" / "runs").exists()


def test_a_folder_of_a_benchmark_is_no_probe(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    work_inline(monkeypatch)
    cg.benchmark("digits", ["feature-sum"], seeds=1, out=tmp_path / "b", predictions="none", progress=False)
    assert main(["report", str(folder), str(tmp_path / "b"), "--out", str(tmp_path / "both")]) == 2
    assert "is no run of a probe" in capfd.readouterr().err
    assert main(["probe", "-d", "digits", "-m", "degree", "--quick", "--out", str(tmp_path / "b")]) == 2
    assert "holds another experiment" in capfd.readouterr().err


def test_shifts_are_reachable_by_the_benchmark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work_inline(monkeypatch)
    names = ["digits", "digits+feature_removal=0.5", "csbm+homophily=0.3+label_noise=0.2"]
    results = cg.benchmark(names, ["feature-sum"], seeds=2, vary_split=True, out=tmp_path, progress=False)
    by_name = {record["dataset"]: record for record in results.records if record["method"] == "feature-sum"}
    assert set(by_name) == {"digits", "digits-feature_removal-0.5", "csbm-homophily-0.3-label_noise-0.2"}
    assert by_name["digits"]["scores"]["score"]["shifted_auroc"] is None
    assert by_name["digits-feature_removal-0.5"]["scores"]["score"]["shifted_auroc"] == 1.0
    again = cg.benchmark(names, ["feature-sum"], seeds=2, vary_split=True, out=tmp_path, progress=False)
    assert (again.failed, again.left) == (0, 0)


def test_names_with_changes_find_what_methods_would() -> None:
    plain = cg.load_task("digits", 3)
    assert cg.load_task("digits+label_noise=0.2", 3).fingerprint == plain.label_noise(0.2, seed=3).fingerprint
    both = cg.load_task("digits+fewer_labels=0.5+feature_noise=0.25,std=2", 3)
    assert both.fingerprint == plain.fewer_labels(0.5, seed=3).feature_noise(0.25, 2, seed=3).fingerprint
    assert cg.load_graph("csbm+homophily=0.2").fingerprint == csbm(homophily=0.2).fingerprint
    for name, message in (
        ("digits+label_noise=much", "is no number"), ("digits+feature_noise=0.5,sd=1", "no option 'sd'"),
        ("digits+label_noise=7", "share must be"), ("chameleon+homophily=0.2", "no such change"),
    ):  # fmt: skip
        with pytest.raises(cg.GraphError, match=message):
            cg.load_task(name)


# ---------------------------------------------------------------- the page


def test_the_page_shows_answers_curves_and_changes_graph(folder: Path, browser: Any) -> None:
    browser.open(folder / "probe.html")
    assert browser.complaints() == []
    assert "in 0 of 4 methods" in browser.one("#lead").text
    row = '#answers-box tr[data-method="distance-eu"] td'
    cells = browser.texts(row)
    assert cells[1] == "0.00"
    assert "high2" in browser.attributes(row, "class")[2]
    browser.choose(graph="digits")
    assert browser.texts(row)[1].startswith("0.00")
    lines = browser.attributes("#levels-figures polyline", "data-series")
    assert lines.count("epistemic") == lines.count("aleatoric") == 2 * len(HAND_MADE)
    points = browser.attributes('#levels-figures polyline[data-method="distance-eu"]', "points")[0].split()
    all_labels, few_labels = (float(point.split(",")[1]) for point in points)
    assert few_labels < all_labels, "EU rises from all labels to a twentieth: upwards on the screen"
    browser.click('#keys input[value="mirror"]')
    assert "mirror" not in browser.attributes("#levels-figures polyline", "data-method")
    browser.one("#find").send_keys("const")
    assert browser.attributes("#answers-box tbody tr", "data-method") == ["constant"]
    assert browser.run("return document.documentElement.scrollWidth <= window.innerWidth")
    browser.screen(390)
    assert browser.run("return document.documentElement.scrollWidth <= window.innerWidth")
    assert browser.complaints() == []


# ---------------------------------------------------------------- curves, from records that are made up


def made_up(level: float, test: str, seed: int, epistemic: float, aleatoric: float) -> dict[str, Any]:
    """A record with nothing but what the answers read."""
    quantiles = {"EU": [epistemic - 0.1, epistemic + 0.1], "AU": [aleatoric - 0.1, aleatoric + 0.1]}
    probed = {
        "graph": "cora", "test": test, "level": level, "epistemic": "EU", "aleatoric": "AU", "quantiles": quantiles,
        "mean": {"EU": epistemic, "AU": aleatoric},
    }  # fmt: skip
    scores = {"EU": {"auroc": 0.9, "shifted_auroc": None}, "AU": {"auroc": 0.4, "shifted_auroc": None}}
    return {"status": "done", "method": "mine", "seed": seed, "probe": probed, "scores": scores, "metrics": {}}


def test_answers_are_those_of_the_strongest_level_seed_by_seed() -> None:
    runs = [made_up(0.0, "none", seed, 1.0, 1.0) for seed in (0, 1)]
    runs += [made_up(level, "labels", seed, 1.0 + 1.0 / level, 1.0) for level in (0.5, 0.05) for seed in (0, 1)]
    runs += [made_up(0.4, "label-noise", 0, 1.0, 2.0), made_up(0.4, "label-noise", 1, 2.0, 1.0)]
    results = ProbeResults(runs)
    found = {answer.question: answer for answer in results.answers}
    assert (found["labels"].value.mean, found["labels"].value.n) == (1.0, 2)
    assert found["label-noise"].value.mean == 0.0, "right for one seed, wrong for the other"
    assert found["label-noise"].value.std == pytest.approx(np.sqrt(2.0))
    assert found["ood"].value.mean == pytest.approx(0.8)
    assert found["ood"].aleatoric is not None
    assert found["ood"].aleatoric.mean == pytest.approx(0.4)
    line = curve(results, "cora", "mine", TESTS["labels"])
    assert line is not None
    assert (line.levels, line.epistemic, line.aleatoric) == ([1.0, 0.5, 0.05], [1.0, 3.0, 21.0], [1.0] * 3)
    assert results.overall()["mine"]["labels"] == 1.0


def test_what_was_not_measured_is_a_gap_and_no_other_level() -> None:
    runs = [made_up(0.0, "none", 0, 1.0, 1.0)]
    runs += [made_up(level, "labels", 0, 1.0 + 1.0 / level, 1.0) for level in (0.5, 0.2, 0.05)]
    other = [{**run, "method": "other"} for run in runs if run["probe"]["level"] != 0.5]
    line = curve(ProbeResults([*runs, *other]), "cora", "other", TESTS["labels"])
    assert line is not None
    assert (line.levels, line.epistemic) == ([1.0, 0.5, 0.2, 0.05], [1.0, None, 6.0, 21.0])
    weaker = [run for run in runs if run["probe"]["level"] != 0.05]
    found = {answer.question for answer in ProbeResults(weaker).answers}
    assert "labels" not in found, "an answer is that of the strongest level, or none"


def test_names_of_others_break_neither_picture_nor_markdown(tmp_path: Path) -> None:
    evil = "$\\frac$<img src=x>|\n# mine"
    runs = [{**made_up(level, test, 0, 1.0, 1.0), "method": evil, "finished": "2026-01-01"}
            for level, test in ((0.0, "none"), (0.05, "labels"), (0.4, "label-noise"))]  # fmt: skip
    for run in runs:
        run["probe"] = {**run["probe"], "graph": evil}
    page = ProbeResults(runs).write(tmp_path)
    texts = [
        element.text for element in ElementTree.parse(tmp_path / "probe.svg").iter() if element.tag.endswith("text")
    ]
    assert "$\\frac$<img src=x>| # mine" in texts
    text = (tmp_path / "probe.md").read_text()
    assert "<img" not in text
    assert "\n# mine" not in text
    assert "<img" not in page.read_text().partition('id="data"')[2].partition("</script>")[0]


def test_a_file_of_the_same_name_is_not_held_against_the_truth() -> None:
    assert conditions("csbm", "csbm")[0].homophily == 0.8
    assert all(each.homophily is None for each in conditions("some/csbm.npz", "csbm"))
    assert all(each.homophily is None for each in conditions("csbm", "csbm") if each.test == "labels")


def test_noise_is_measured_in_deviations_of_the_features_and_constant_ones_have_none() -> None:
    task = cg.load_task("csbm")
    large = dataclasses.replace(task, graph=task.graph.replace(features=1e6 * task.graph.features))
    deviation = feature_deviation(large.graph)
    for name, factor in (("noise-1", 1.0), ("noise-8", 8.0)):
        after = changed_tasks(large, 0)[name]
        noise = (after.graph.features - large.graph.features)[after.shifted_nodes]
        assert float(noise.std()) == pytest.approx(factor * deviation, rel=0.05)
    flat = dataclasses.replace(task, graph=task.graph.replace(features=torch.ones(1000, 16)))
    assert set(changed_tasks(flat, 0)) == {"removed", "rewired"}


@pytest.mark.parametrize(("change", "value"), [
    ("epistemic", "nope"), ("quantiles", {"EU": [0.0], "AU": [0.0]}), ("mean", {}), ("level", "much"),
    ("changed", {"removed": {"EU": 1.5}}), ("changed", {"removed": 1}),
    ("truth", {"entropy": "x"}), ("truth", {"entropy": 0.1, "spearman": {}}), ("truth", [])])  # fmt: skip
def test_a_record_of_a_probe_is_checked(folder: Path, tmp_path: Path, change: str, value: Any) -> None:
    record = json.loads(next(folder.glob("runs/digits/mirror/*.json")).read_text())
    assert wrong_field(record) is None
    assert wrong_field({**record, "probe": {**record["probe"], change: value}}) == "probe"


def test_a_whole_probe_of_the_block_model_knows_the_truth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work_inline(monkeypatch)
    results = cg.probe(
        "csbm", ["feature-sum", "vanilla"], quick=True, out=tmp_path, settings={"epochs": 5}, progress=False
    )
    answers = {(answer.method, answer.question): answer.value.mean for answer in results.answers}
    assert -1.0 <= answers["vanilla", "true-entropy"] <= 1.0
    assert ("feature-sum", "true-entropy") not in answers, "it has neither AU nor an entropy"
    lines = list(csv.DictReader((tmp_path / "probe_levels.csv").read_text().splitlines()))
    bits = {float(line["level"]) for line in lines if line["quantity"] == "truth-entropy"}
    assert bits == {0.0, 0.4, 0.8}
    local = [line for line in lines if line["test"] == "local-homophily" and line["quantity"] == "known"]
    nodes = sum(float(line["mean"]) for line in local if line["method"] == "vanilla")
    assert nodes == pytest.approx(cg.load_task("csbm").counts["test_id"], abs=2), "all but those without neighbours"
