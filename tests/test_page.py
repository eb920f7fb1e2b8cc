"""The HTML report in a real browser: what is shown is what was recorded; by mouse, by keyboard, on a small screen."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

from credalgnn import CredalLJ, IntervalSet, Task
from credalgnn import benchmark as benchmark_runs
from credalgnn.graphs import csbm
from credalgnn.metrics.registry import MARKS
from credalgnn.records.folder import Folder
from credalgnn.records.schema import FORMAT
from credalgnn.report.drawing import _corners
from credalgnn.report.results import write_page
from credalgnn.report.summary import make_rows
from credalgnn.runtime.files import to_json, write

pytest.importorskip("selenium.webdriver", reason="the page is tested in a browser by selenium")
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select

from browser import Page, contrast, embedded

SCORES = {
    "credal-coverage": ["EU", "AU", "TU", "coverage"],
    "vanilla": ["msp", "entropy"],
    "credal-lj": ["EU", "AU", "TU"],
    "credal-final": ["EU", "AU", "TU"],
    "classical-ensemble": ["EU", "AU", "TU"],
    "credal-ensemble": ["EU", "AU", "TU"],
    "energy": ["energy"],
    "odin": ["odin"],
    "mahalanobis": ["distance"],
    "knn": ["distance"],
    "gnnsafe": ["energy"],
    "knn-lj": ["distance"],
    "feature-sum": ["score"],
    "degree": ["score"],
}
CREDAL = {"credal-coverage", "credal-lj", "credal-final", "credal-ensemble"}
SILENT = {"feature-sum", "degree"}  # they do not classify
FEW = ("vanilla", "credal-lj", "energy", "feature-sum")
DIAGNOSIS = {"auroc": 0.704, "log_loss": 0.57, "base_log_loss": 0.69, "trust": 0.957, "uncovered": 0.438}
DIAGNOSIS |= {"width_10": 0.06, "width_50": 0.14, "width_90": 0.99}
HOSTILE = "<script>alert(1)</script>\u2028'\"&lt;</script><img src=x onerror=alert(2)>"


# ---------------------------------------------------------------- a benchmark that never was


def entropy(p: np.ndarray) -> np.ndarray:
    return -(p * np.log2(np.maximum(p, 1e-300))).sum(-1)


def predict(method: str, label: np.ndarray, classes: int, seed: int) -> dict[str, np.ndarray]:
    """Columns of a Parquet file: a classifier that is right where the signal is strong, and has none for OOD nodes."""
    number = list(SCORES).index(method)
    random = np.random.default_rng([seed, number if method in CREDAL or "ensemble" in method else 0])
    own = np.random.default_rng([seed, number, 1])
    ood = label < 0
    strength = np.where(ood, 0.8, 3.2) * random.gamma(4.0, 0.25, len(label))
    logits = random.normal(size=(len(label), classes)) * 0.9
    logits[np.arange(len(label)), np.where(ood, random.integers(classes, size=len(label)), label)] += strength
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    found: dict[str, np.ndarray] = {}
    if "EU" in SCORES[method]:
        half = np.exp(own.normal(-2.2, 0.4, len(label)) + 0.5 * ood)
        found["TU"] = np.minimum(entropy(p) + half, np.log2(classes))
        found["AU"] = np.maximum(entropy(p) - half, 0.0)
        found = {"EU": found["TU"] - found["AU"], **found, "coverage": half}
    elif method == "vanilla":
        found = {"msp": 1.0 - p.max(1), "entropy": entropy(p)}
    elif method in SILENT:
        found = {"score": -own.poisson(np.where(ood, 22, 26)).astype(float)}
    else:
        found = {SCORES[method][0]: -np.log(np.exp(logits).sum(1)) + own.normal(size=len(label)) * 0.4}
    columns = {f"score_{name}": found[name] for name in SCORES[method]}
    if method not in SILENT:
        columns |= {"prediction": p.argmax(1)} | {f"p_{k}": p[:, k] for k in range(classes)}
    if method in CREDAL:
        spread = np.minimum(half, 0.5)[:, None] * p * (1.0 - p) * 2.0
        columns |= {f"lower_{k}": (p - spread)[:, k] for k in range(classes)}
        columns |= {f"upper_{k}": (p + spread)[:, k] for k in range(classes)}
    if method == "credal-coverage":  # what the method says of its reasons; nothing for some
        columns["reasons"] = np.array([f"in-degree {k}" if k % 3 else "" for k in range(len(label))])
    return columns


def record_of(
    dataset: str, method: str, seed: int, names: Sequence[str], ood_names: Sequence[str], part: dict[str, Any]
) -> dict[str, Any]:
    """What a run would have recorded, from its test nodes."""
    ood, label = part["label"] < 0, part["label"]
    scores, roc, rejection, histogram = {}, {}, {}, {}
    grid = np.arange(101) / 100
    right = part["prediction"][~ood] == label[~ood] if method not in SILENT else None
    for name in SCORES[method]:
        score = part[f"score_{name}"]
        fpr, tpr, _ = roc_curve(ood, score)
        scores[name] = {"auroc": roc_auc_score(ood, score), "aupr": average_precision_score(ood, score)}
        scores[name] |= {"fpr95": float(fpr[tpr >= 0.95].min()), "misclassification_auroc": None, "aurc": None}
        roc[name] = np.interp(grid, fpr, tpr).tolist()
        edges = np.linspace(score.min(), score.max(), 31)
        sides = {"id": ~ood, "ood": ood}
        histogram[name] = {"edges": edges.tolist()} | {
            side: np.histogram(score[mask], edges)[0].tolist() for side, mask in sides.items()
        }
        if right is not None:
            kept = np.cumsum(right[np.argsort(score[~ood])]) / np.arange(1, len(right) + 1)
            rejection[name] = [float(kept[max(1, round((1 - r / 50) * len(kept))) - 1]) for r in range(50)]
            scores[name] |= {"misclassification_auroc": 0.8, "aurc": float(1 - kept.mean())}
    metrics: dict[str, float | None] = dict.fromkeys(("accuracy", "macro_f1", "nll", "brier", "ece"))
    if right is not None:
        true = np.stack([part[f"p_{k}"] for k in range(len(names))], 1)[~ood][np.arange((~ood).sum()), label[~ood]]
        accuracy = float(right.mean())
        metrics |= {"accuracy": accuracy, "macro_f1": accuracy - 0.01, "nll": float(-np.log(true).mean())}
        metrics |= {"brier": 0.2, "ece": 0.043}
    if method in CREDAL:
        widths = np.stack([part[f"upper_{k}"] - part[f"lower_{k}"] for k in range(len(names))], 1)
        metrics |= {"width": float(widths.mean()), "widest": float(np.median(widths.max(1))), "u65": 0.82, "u80": 0.85}
        metrics |= {f"widest_{kind}": float(np.median(widths.max(1)[m])) for kind, m in (("id", ~ood), ("ood", ood))}
    epochs = range(1, 90 + 9 * seed)
    training = [[e, 1.5 * 0.96**e + 0.3 + 0.02 * seed, 1.6 * 0.97**e + 0.4 + 0.002 * e] for e in epochs]
    test_id, test_ood = int((~ood).sum()), int(ood.sum())
    return {
        **about(dataset, method, seed),
        "status": "done",
        "error": None,
        "class_names": list(names),
        "ood_names": list(ood_names),
        "counts": {"train_id": 300, "val_id": 90, "val_ood": 40, "test_id": test_id, "test_ood": test_ood},
        "headline": SCORES[method][0],
        "metrics": metrics,
        "scores": scores,
        "curves": {
            "roc": roc,
            "rejection": rejection,
            "histogram": histogram,
            "training": training if len(SCORES[method]) > 1 and "ensemble" not in method else [],
        },
        "marks": {"credal-final": ["narrow", "mirror"], "credal-lj": ["mirror"]}.get(method, []),
        "diagnosis": DIAGNOSIS if method == "credal-coverage" else None,
        "seconds": {"fit": 1.25, "predict": 0.1},
        "peak_mib": 512.0,
        "predictions": None,
    }


def about(dataset: str, method: str, seed: int) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "dataset": dataset,
        "method": method,
        "seed": seed,
        "split_seed": 0,
        "protocol": "sealed",
        "setting": "transductive",
        "fingerprint": f"{dataset} {seed}",
        "config": {"hidden": 64, "monitor": "id_loss"},
        "versions": {"credalgnn": "0.1.0", "python": "3.11.9", "torch": "2.9.0", "numpy": "2.4.6"},
        "finished": "2026-01-01T00:00:00+00:00",
    }


def benchmark(
    folder: Path,
    dataset: str,
    names: Sequence[str],
    ood_names: Sequence[str],
    methods: Sequence[str] = FEW,
    seeds: int = 2,
    size: int = 240,
    predictions: bool = True,
) -> list[dict[str, Any]]:
    """Write a folder as the bench does; returns its records."""
    random = np.random.default_rng(5)
    label = random.integers(len(names), size=size)
    label[random.random(size) < 0.3] = -1
    ood_class = random.integers(len(ood_names), size=size)
    truth = [names[k] if k >= 0 else ood_names[ood_class[i]] for i, k in enumerate(label)]
    node = random.permutation(size * 3)[:size]
    split = np.where(np.arange(size) < size // 10, "val", "test")
    degree = random.geometric(0.15, size) - 1
    near = [node[random.integers(size, size=min(int(d), 30))].tolist() for d in degree]
    class_of = dict(zip(node.tolist(), truth, strict=True))
    near_classes = [[class_of[v] for v in row] for row in near]
    alike = [sum(c == truth[i] for c in row) / len(row) if row else None for i, row in enumerate(near_classes)]
    records = []
    for method in methods:
        for seed in range(seeds):
            columns = predict(method, label, len(names), seed)
            test = split == "test"
            part = {name: values[test] for name, values in ({"label": label} | columns).items()}
            record = record_of(dataset, method, seed, names, ood_names, part)
            records.append(record)
            if predictions and seed == 0:
                table = {"node": node, "split": split, "label": label, "class": truth, "ood": label < 0}
                table |= {"prediction": pa.nulls(size, pa.int64())} | columns
                place = Folder(folder).predictions(dataset, method, 0)
                record["predictions"] = Folder(folder).write_nodes(place, table)
                write(Folder(folder).record(dataset, method, 0), to_json(record))
    if predictions:
        graph = {"node": node, "degree": degree, "homophily": alike, "neighbours": near}
        Folder(folder).write_nodes(Folder(folder).graph(dataset), graph | {"neighbour_classes": near_classes})
    return records


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("benchmark")


@pytest.fixture(scope="module")
def records(folder: Path) -> list[dict[str, Any]]:
    """Two data sets, one with more test nodes than a page holds, and a run that failed."""
    found = benchmark(
        folder, "traffic", ["low", "middle", "high"], ["lower", "highest"], [*FEW, "credal-final"], 2, 900
    )
    found += benchmark(folder, "digits", list("01234567"), ["8", "9"], ["vanilla", "credal-lj", "degree"])
    return [*found, {**about("digits", "odin", 3), "status": "failed", "error": "MethodError: not a number"}]


@pytest.fixture(scope="module")
def written(folder: Path, records: list[dict[str, Any]]) -> Path:
    path = folder / "report.html"
    write_page(records, [folder], path, "Digits & traffic")
    return path


@pytest.fixture
def page(browser: Page, written: Path) -> Page:
    browser.open(written)
    return browser


def open_page(browser: Page, records: list[dict[str, Any]], folder: Path) -> None:
    """Write the page of records beside their predictions, and open it."""
    write_page(records, [folder], folder / "x.html")
    browser.open(folder / "x.html")


def table_of(folder: Path, dataset: str, method: str) -> list[dict[str, Any]]:
    """The test nodes of a Parquet file as dictionaries."""
    rows = pq.read_table(folder / "nodes" / dataset / method / "seed-000.parquet").to_pylist()
    return [row for row in rows if row["split"] == "test"]


# ---------------------------------------------------------------- tests


def test_opens_without_errors_and_without_network(page: Page, written: Path) -> None:
    for dataset, methods in {"traffic": [*FEW, "credal-final"], "digits": ["degree", "vanilla", "credal-lj"]}.items():
        page.choose(task=dataset)
        for method in methods:
            page.choose(method=method)
            assert page.run("return document.querySelectorAll('#depth-figures figure > svg').length") >= 3
    assert page.requests() == {written.as_uri()}
    assert page.complaints() == []
    page.run("fetch('https://example.org/').catch(() => {})")  # the policy forbids it, and the log would have shown it
    assert any("Content Security Policy" in text for text in page.complaints())


def test_header_says_what_was_compared(page: Page) -> None:
    assert page.one("h1").text == "Digits & traffic"
    assert page.driver.title == "Digits & traffic"
    facts = page.one("#compared").text
    for text in (
        "low, middle, high",
        "lower, highest",
        "nothing was chosen by an OOD node or by a test node",
        "credal-final",
        "0, 1",
    ):
        assert text in facts
    assert "torch 2.9.0" in facts
    assert "transductive: the whole graph takes part in training" in facts
    failed = page.one("#warnings").text
    assert "1 run failed" in failed
    assert "digits, odin, seed 3" in failed
    assert "MethodError: not a number" in failed


def test_settings_are_told_apart(browser: Page, tmp_path: Path) -> None:
    """On the same data set, beside another one; a failed run tells its own."""
    found = benchmark(tmp_path, "digits", list("0123"), ["8"], ["vanilla", "degree"], 1, 100, predictions=False)
    other = benchmark(tmp_path, "traffic", list("0123"), ["8"], ["vanilla"], 1, 100, predictions=False)
    grown = [{**one, "setting": "inductive", "fingerprint": "other"} for one in found]
    failed = {**about("digits", "odin", 3), "setting": "inductive", "status": "failed", "error": "no"}
    write_page([*found, *grown, *other, failed], [tmp_path], tmp_path / "x.html")
    assert [one["setting"] for one in embedded(tmp_path / "x.html")["tasks"]] == [
        "transductive", "inductive", "transductive",
    ]  # fmt: skip
    browser.open(tmp_path / "x.html")
    assert browser.texts("#task option") == ["digits (transductive)", "digits (inductive)", "traffic"]
    facts = browser.one("#compared").text
    assert "transductive: the whole graph" in facts
    assert "inductive: training saw the training nodes and the edges among them" in facts
    assert "digits, odin, seed 3 (sealed, inductive)" in browser.one("#warnings").text
    for task, failures in (("digits (inductive)", ["odin"]), ("digits (transductive)", [])):
        browser.choose(task=task)
        shown = browser.attributes("#results-box tbody tr", "data-method")
        assert shown == ["vanilla", "vanilla", *failures, "degree"]
    assert browser.complaints() == []


@pytest.mark.parametrize("way", ["mouse", "keyboard"])
def test_results_sort(page: Page, records: list[dict[str, Any]], way: str) -> None:
    rows = [row for row in make_rows(records) if row.dataset == "traffic"]
    means = {(row.method, row.score): row.values["auroc"].mean for row in rows}

    def shown() -> list[tuple[str, str]]:
        names = (page.attributes("#results-box tbody tr", f"data-{name}") for name in ("method", "score"))
        return list(zip(*names, strict=True))

    assert shown() == list(means)
    button, order = page.header("#results-box", "AUROC %")
    assert order() == "none"
    for expected, sign in (("descending", -1), ("ascending", 1)):
        if way == "mouse":
            page.click(button)
        else:
            page.run("arguments[0].focus()", button)
            page.press(Keys.ENTER if sign < 0 else Keys.SPACE)
        assert order() == expected
        assert shown() == sorted(means, key=lambda key: sign * means[key])
        assert page.driver.switch_to.active_element == button
    button, order = page.header("#results-box", "widest ID")
    page.click(button)
    assert order() == "ascending"
    assert page.header("#results-box", "AUROC %")[1]() == "none"
    assert {method for method, _ in shown()[:6]} == {"credal-lj", "credal-final"}  # rows without a width come last


def test_results_show_numbers_ranks_and_marks(page: Page, records: list[dict[str, Any]]) -> None:
    rows = [row for row in make_rows(records) if row.dataset == "traffic"]
    cells = page.texts("#results-box tbody tr td.auroc")
    for row, cell in zip(rows, cells, strict=True):
        value = row.values["auroc"]
        assert cell == f"{100 * value.mean:.1f} ± {100 * value.std:.1f}"  # rounded once
    assert [name for name in page.attributes("#results-box tbody tr.best", "data-score")] == [
        row.score for row in rows if row.rank == "best"
    ]
    assert set(page.attributes("#results-box tr.marked", "data-method")) == {"credal-final"}
    assert set(page.attributes("#results-box tr.trivial", "data-method")) == {"feature-sum"}
    assert page.texts("#results-box tr.marked .badge:not(.informs)") == ["narrow"] * 3
    assert page.texts("#results-box tr[data-method=credal-lj] .badge") == ["mirror"] * 3  # which only informs
    assert page.texts("#results-box tr[data-method=credal-lj] .badge:not(.informs)") == []
    for name, words in (("narrow", "not ranked: "), ("mirror", "only informs: ")):
        titles = page.attributes("#results-box .badge", "title")
        assert any(MARKS[name].meaning in title and MARKS[name].advice in title for title in titles)
        assert f"{MARKS[name].meaning}. " in page.one("#results-legend").text
        assert words + MARKS[name].advice in page.one("#results-legend").text
    page.click("#headline-only")
    assert page.attributes("#results-box tbody tr", "data-score") == ["msp", "EU", "EU", "energy", "score"]
    page.choose(task="digits")
    assert page.texts("#results-box tr[data-method=odin] td")[-1] == "1 failed"


def test_tied_rows_bear_a_dagger(browser: Page, tmp_path: Path) -> None:
    records = benchmark(tmp_path, "digits", list("0123"), ["8"], ["knn", "knn-lj", "degree"], 8, 200, predictions=False)
    for record in records:
        if record["method"] == "knn-lj":  # better in half of the seeds
            twin = next(r for r in records if (r["method"], r["seed"]) == ("knn", record["seed"]))
            shift = 0.02 if record["seed"] % 2 else -0.01
            record["scores"]["distance"]["auroc"] = twin["scores"]["distance"]["auroc"] + shift
    open_page(browser, records, tmp_path)
    assert browser.attributes("tr.best", "data-method") == ["knn-lj"]
    assert browser.attributes("tr.tied", "data-method") == ["knn"]
    assert browser.texts("tr.tied .dagger, tr.best .dagger") == ["†", ""]
    assert "Wilcoxon" in browser.one("#results-legend").text


FILTERS = {
    "epistemic": lambda rows: sorted(rows, key=lambda r: (-r["score_EU"], r["node"])),
    "aleatoric": lambda rows: sorted(rows, key=lambda r: (-r["score_AU"], r["node"])),
    "uncertain": lambda rows: sorted(rows, key=lambda r: (-r[headline(r)], r["node"])),
    "wrong": lambda rows: sorted(
        (r for r in rows if not r["ood"] and r["prediction"] != r["label"]), key=lambda r: (r[sure(r)], r["node"])
    ),
    "ood": lambda rows: sorted((r for r in rows if r["ood"]), key=lambda r: (r[sure(r)], r["node"])),
}


def headline(row: dict[str, Any]) -> str:
    return next(name for name in row if name.startswith("score_"))


def sure(row: dict[str, Any]) -> str:
    return "score_TU" if "score_TU" in row else headline(row)


@pytest.mark.parametrize(
    ("method", "kinds"),
    [
        ("credal-lj", ["epistemic", "aleatoric", "wrong", "ood"]),
        ("vanilla", ["uncertain", "wrong", "ood"]),
        ("feature-sum", ["uncertain", "ood"]),
    ],
)
def test_filters_show_the_extremes_of_all_test_nodes(page: Page, folder: Path, method: str, kinds: list[str]) -> None:
    rows = table_of(folder, "traffic", method)
    assert len(rows) > 600
    page.choose(method=method)
    assert page.attributes("#filters button", "data-filter") == ["all", *kinds]
    for kind in kinds:
        page.click(f"#filters [data-filter={kind}]")
        assert page.shown_nodes() == [row["node"] for row in FILTERS[kind](rows)][:15]
        assert page.attributes("#filters [aria-pressed=true]", "data-filter") == [kind]
    page.click("#filters [data-filter=all]")
    assert len(page.shown_nodes()) == 25


def test_node_table_pages_finds_and_sorts(page: Page, folder: Path) -> None:
    rows = {row["node"]: row for row in table_of(folder, "traffic", "credal-lj")}
    assert f"600 of {len(rows)} test nodes" in page.one("#nodes-note").text
    assert page.one("#where").text == "1\N{EN DASH}25 of 600"
    first = page.shown_nodes()
    page.click("#next")
    assert page.one("#where").text == "26\N{EN DASH}50 of 600"
    assert not set(first) & set(page.shown_nodes())
    button, order = page.header("#node-box", "EU")
    page.click(button)
    assert order() == "descending"
    assert page.one("#where").text == "1\N{EN DASH}25 of 600"
    values = [rows[node]["score_EU"] for node in page.shown_nodes()]
    assert values == sorted(values, reverse=True)
    assert values[0] == max(row["score_EU"] for row in rows.values())
    page.click("#filters [data-filter=ood]")  # brings its own order
    assert order() == "none"
    assert page.shown_nodes() == [row["node"] for row in FILTERS["ood"](rows.values())][:15]
    page.click("#filters [data-filter=all]")
    page.one("#find").send_keys("LOWER")
    assert {rows[node]["class"] for node in page.shown_nodes()} == {"lower"}
    page.one("#find").clear()
    page.one("#find").send_keys(str(first[-1]))
    assert first[-1] in page.shown_nodes()
    assert all(str(node).startswith(str(first[-1])) for node in page.shown_nodes())
    page.one("#find").clear()
    page.one("#find").send_keys("no such class")
    assert page.shown_nodes() == []
    assert page.one("#where").text == "no nodes"
    page.choose(method="credal-final")
    assert f"narrow 2 of 2 runs: {MARKS['narrow'].meaning}; " in page.one("#depth-note").text
    page.choose(task="digits")
    assert "All 216 test nodes" in page.one("#nodes-note").text


def test_a_node_opens_by_keyboard_and_gives_the_focus_back(page: Page, folder: Path) -> None:
    rows = {row["node"]: row for row in table_of(folder, "traffic", "credal-lj")}
    facts = {row["node"]: row for row in pq.read_table(folder / "nodes/traffic/graph.parquet").to_pylist()}
    held = set(embedded(folder / "report.html")["tasks"][0]["nodes"]["node"])
    node = next(n for n in page.shown_nodes() if set(facts[n]["neighbours"]) & held and not rows[n]["ood"])
    button = page.one(f"#node-box tr[data-node='{node}'] button")
    page.run("arguments[0].focus()", button)
    page.press(Keys.ENTER)
    assert page.run("return document.getElementById('panel').open")
    assert page.one("#panel h2").text == f"Node {node}"
    for k, name in enumerate(["low", "middle", "high"]):
        low, high, p = (rows[node][f"{side}_{k}"] for side in ("lower", "upper", "p"))
        line = page.one(f"#panel tr[data-class='{k}']")
        assert line.text.startswith(name)
        assert ("true" in line.text) == (rows[node]["label"] == k)
        texts = ["<0.1" if 0 < bound < 5e-4 else f"{100 * bound:.1f}" for bound in (low, high)]
        assert "\N{EN DASH}".join(dict.fromkeys(texts)) + " %" in line.text
        bar, stroke = (line.find_element(By.CSS_SELECTOR, f".{name}") for name in ("interval", "point"))
        assert float(bar.get_attribute("x").rstrip("%")) == pytest.approx(100 * low, abs=0.02)
        width = max(high - low, 0.002)
        assert float(bar.get_attribute("width").rstrip("%")) == pytest.approx(100 * width, abs=0.03)
        assert float(stroke.get_attribute("x1").rstrip("%")) == pytest.approx(100 * p, abs=0.02)
    said = zip(facts[node]["neighbours"], facts[node]["neighbour_classes"], strict=True)
    assert page.texts("#panel .neighbours li") == [f"{other}: {name}" for other, name in said]
    assert len(page.texts("#panel .neighbours button")) == sum(other in held for other in facts[node]["neighbours"])
    assert f"Degree\n{facts[node]['degree']}" in page.one("#panel").text
    for method in FEW:
        others = table_of(folder, "traffic", method)
        mine = next(row for row in others if row["node"] == node)
        name = headline(mine)
        below = [(row[name] < mine[name]) + 0.5 * (row[name] == mine[name]) for row in others]
        share = 100 * (sum(below)) / len(others)
        cells = page.texts(f"#panel tr[data-method='{method}'] > *")
        assert abs(float(cells[3].rstrip(" %")) - share) <= 0.51
    neighbour = page.one("#panel .neighbours button")
    number = neighbour.text.split(":")[0]
    neighbour.send_keys(Keys.ENTER)
    assert page.one("#panel h2").text == f"Node {number}"
    assert page.run("return document.activeElement.closest('#panel') !== null")
    page.press(Keys.ESCAPE)
    assert not page.run("return document.getElementById('panel').open")
    assert page.driver.switch_to.active_element == button


def test_a_node_opens_by_mouse_for_methods_of_every_kind(page: Page) -> None:
    for method, words in {"vanilla": "Probabilities of vanilla", "feature-sum": "does not classify"}.items():
        page.choose(method=method)
        page.click("#node-box tbody tr td:nth-child(2)")
        assert words in page.one("#panel").text
        page.click("#close")
        assert page.driver.switch_to.active_element == page.one("#node-box tbody tr button")


def replace_predictions(path: Path, columns: dict[str, Any]) -> None:
    """Other predictions of a run, for which its record vouches."""
    _, dataset, method, _ = path.parts[-4:]
    folder = Folder(path.parents[3])
    run = folder.record(dataset, method, 0)
    run.write_bytes(to_json({**json.loads(run.read_text()), "predictions": folder.write_nodes(path, columns)}))


def test_hostile_text_is_only_text(browser: Page, tmp_path: Path) -> None:
    names = [HOSTILE, "ok", "'; alert(3); //"]
    methods = ["credal-coverage", "vanilla"]
    records = benchmark(tmp_path, "<b onclick=alert(4)>bold", names, [f"8{HOSTILE}"], methods, 1, 60)
    reasons = tmp_path / "nodes" / "<b onclick=alert(4)>bold" / "credal-coverage" / "seed-000.parquet"
    replace_predictions(reasons, pq.read_table(reasons).to_pydict() | {"reasons": [HOSTILE] * 60})
    records[0]["diagnosis"] = {HOSTILE: 0.5}
    bare = benchmark(tmp_path, HOSTILE, names, ["x"], ["vanilla"], 1, 60, predictions=False)
    failed = {**about("d", "odin", 0), "status": "failed", "error": f"{HOSTILE}\u2029{{{{script}}}}"}
    path = tmp_path / "x.html"
    write_page([*records, *bare, failed], [tmp_path], path, f"Title {HOSTILE}")
    browser.open(path)
    assert browser.one("h1").get_property("textContent") == f"Title {HOSTILE}"
    assert browser.texts("#warnings pre") == [failed["error"]]
    assert browser.texts("#task option") == ["<b onclick=alert(4)>bold", HOSTILE]
    assert f"8{HOSTILE}" in browser.texts("#examples .card.ood h3")[0]
    assert f"{HOSTILE} 0.5" in browser.texts("#diagnosis")[0]
    browser.click("#node-box tbody button")
    assert browser.texts(".reasons") == [f"Unlike labelled nodes: {HOSTILE}."] * 3  # two cards and the panel
    assert browser.texts("#panel .intervals th")[0].startswith(HOSTILE)
    browser.press(Keys.ESCAPE)
    browser.choose(method="vanilla")
    browser.run("document.querySelector('#task').selectedIndex = 1")
    browser.run("document.querySelector('#task').dispatchEvent(new Event('change'))")
    assert HOSTILE in browser.one("#task-facts").get_property("textContent")
    assert browser.run("return document.querySelectorAll('main img, main b, header img, main script').length") == 0
    assert browser.run("return document.scripts.length") == 2
    assert browser.complaints() == []  # a script that tried to run would be named here: the policy forbids it
    browser.run("document.body.append(Object.assign(document.createElement('script'), {textContent: '1'}))")
    assert len(browser.complaints()) == 1


# ---------------------------------------------------------------- the flagship, first of all


@pytest.fixture(scope="module")
def flagship(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A benchmark with credal-coverage, and with more test nodes than a page holds."""
    folder = tmp_path_factory.mktemp("flagship")
    methods = ["vanilla", "credal-coverage", "credal-lj", "degree"]
    records = benchmark(folder, "traffic", ["low", "middle", "high"], ["lower", "highest"], methods, 2, 1200)
    write_page(records, [folder], folder / "report.html")
    return folder


def middle_of(rows: list[dict[str, Any]], ood: bool) -> dict[str, Any]:
    """The node that stands for its kind, by the rule that the page states."""
    mine = sorted((row for row in rows if row["ood"] == ood), key=lambda row: (row["score_EU"], row["node"]))
    return mine[(len(mine) - 1) // 2]


def test_an_ood_and_an_id_node_come_first(browser: Page, flagship: Path) -> None:
    browser.open(flagship / "report.html")
    assert Select(browser.one("#method")).first_selected_option.text == "credal-coverage"
    top = "return arguments[0].map(id => document.getElementById(id).getBoundingClientRect().top)"
    meet, results, compared = browser.run(top, ["examples", "results", "compared"])
    assert meet < results < compared
    for method in ("credal-coverage", "credal-lj"):
        browser.choose(method=method)
        rows = table_of(flagship, "traffic", method)
        assert browser.one("#examples p strong").text == method
        for kind in ("ood", "id"):
            row, card = middle_of(rows, kind == "ood"), browser.one(f"#examples .card.{kind}")
            assert card.get_attribute("data-node") == str(row["node"])
            assert row["class"] in card.text
            assert ("OOD: " in card.text, "ID: " in card.text) == (kind == "ood", kind == "id")
            for k, name in enumerate(["low", "middle", "high"]):
                line = card.find_element(By.CSS_SELECTOR, f"tr[data-class='{k}']")
                assert line.text.startswith(name)
                assert ("predicted" in line.text) == (row["prediction"] == k)
                assert ("true" in line.text) == (row["label"] == k)
                bar = line.find_element(By.CSS_SELECTOR, ".interval")
                assert float(bar.get_attribute("x").rstrip("%")) == pytest.approx(100 * row[f"lower_{k}"], abs=0.02)
            widest = max(row[f"upper_{k}"] - row[f"lower_{k}"] for k in range(3))
            assert f"widest interval {widest:.2f}" in card.text
            reasons = card.find_elements(By.CSS_SELECTOR, ".reasons")
            if method == "credal-lj":
                assert reasons == []
            else:
                assert reasons[0].text == (
                    f"Unlike labelled nodes: {row['reasons']}." if row["reasons"] else "Similar to labelled nodes."
                )
        rule = browser.one("#examples-rule").text
        for text in ("Chosen by a rule", "lower, highest", "the median EU (seed 0)", "AUROC"):
            assert text in rule
        assert "has no credal sets" not in rule
    assert browser.complaints() == []


def test_an_example_node_opens_with_its_reasons(browser: Page, flagship: Path) -> None:
    browser.open(flagship / "report.html")
    browser.choose(method="degree")  # has no credal sets: the first method that has some is met
    assert browser.one("#examples p strong").text == "credal-coverage"
    assert "The selected method, degree, has no credal sets" in browser.one("#examples-rule").text
    browser.click("#examples .card.ood button")
    assert Select(browser.one("#method")).first_selected_option.text == "credal-coverage"
    node = browser.attributes("#examples .card.ood", "data-node")[0]
    assert browser.one("#panel h2").text == f"Node {node}"
    row = next(row for row in table_of(flagship, "traffic", "credal-coverage") if row["node"] == int(node))
    expected = f"Unlike labelled nodes: {row['reasons']}." if row["reasons"] else "Similar to labelled nodes."
    assert browser.texts("#panel .reasons") == [expected]
    assert re.search(r"coverage -?[\d.]+", browser.one("#panel .facts").text)
    browser.press(Keys.ESCAPE)
    browser.choose(method="credal-lj")
    browser.click("#node-box tbody button")
    assert browser.texts("#panel .reasons") == []  # it gives no reasons
    assert browser.complaints() == []


def test_the_diagnosis_is_shown_in_words(browser: Page, flagship: Path) -> None:
    browser.open(flagship / "report.html")
    words = browser.one("#diagnosis").text
    for text in ("told apart with AUROC 0.70", "trust 0.96", "44 % of the unlabelled nodes", "0.06, 0.14 and 0.99"):
        assert text in words
    browser.choose(method="vanilla")
    assert not browser.one("#diagnosis").is_displayed()


def test_closed_intervals_look_closed(browser: Page, tmp_path: Path) -> None:
    """A model whose intervals are 1e-11 wide gets the axes of one whose intervals can be seen."""
    records = benchmark(tmp_path, "digits", list("012"), ["8"], ["credal-lj"], 1, 100)
    records[0]["curves"]["histogram"]["EU"]["edges"] = list(np.linspace(0.0, 3e-11, 31))
    path = tmp_path / "nodes" / "digits" / "credal-lj" / "seed-000.parquet"
    columns = pq.read_table(path).to_pydict()
    columns["score_EU"] = [1e-11 * value for value in columns["score_EU"]]
    for k in range(3):
        columns[f"lower_{k}"] = [p - 1e-12 for p in columns[f"p_{k}"]]
        columns[f"upper_{k}"] = [p + 1e-12 for p in columns[f"p_{k}"]]
    replace_predictions(path, columns)
    open_page(browser, records, tmp_path)
    assert "does not recognise the node" in browser.one("#examples .card.ood").text
    domains = [
        list(map(float, text.split()))
        for text in browser.attributes("#depth-figures figure > svg[data-domain]", "data-domain")
    ]
    assert domains[0][:2] == [0.0, 0.01]  # the histogram, across
    assert all(domain[2:] == [0.0, 0.01] for domain in domains[1:4])  # EU, and widths against degree and homophily
    assert browser.run("return document.querySelector('#depth-figures .bars-ood').getBBox().width") >= 3
    assert browser.complaints() == []


def test_records_without_widths_of_ood_nodes_show_the_mean_width(browser: Page, tmp_path: Path) -> None:
    records = benchmark(tmp_path, "digits", list("012"), ["8"], ["credal-lj", "degree"], 1, 100)
    for record in records:
        for name in ("widest_id", "widest_ood"):
            record["metrics"].pop(name, None)
        record.pop("diagnosis")
    open_page(browser, records, tmp_path)
    assert browser.header("#results-box", "width")[1]() == "none"
    assert "median widest interval" not in browser.one("#examples-rule").text
    assert browser.complaints() == []


def test_narrow_window_has_no_sideways_scroll(page: Page) -> None:
    page.screen(360, 740)
    for method in ("credal-lj", "feature-sum"):
        page.choose(method=method)
        page.run("document.querySelectorAll('details').forEach(one => { one.open = true; })")
        assert page.run("return document.documentElement.scrollWidth") == 360
        for box in ("#results-box", "#node-box"):
            inner, outer = page.run(
                "const box = document.querySelector(arguments[0]); return [box.scrollWidth, box.clientWidth]", box
            )
            assert inner > outer  # it is the table's own box that scrolls
        page.run("document.querySelector('#node-box tbody button').click()")
        assert page.run("const p = document.getElementById('panel'); return p.scrollWidth <= p.clientWidth")
        left, right = page.run(
            "const r = document.getElementById('panel').getBoundingClientRect(); return [r.left, r.right]"
        )
        assert left >= 0
        assert right <= 360
        page.press(Keys.ESCAPE)
    assert page.run("return document.querySelector('#curve-figures svg').clientWidth") <= 330


def test_dark_and_light_are_legible(page: Page) -> None:
    page.click("#filters [data-filter=wrong]")
    page.check_legible([
        "h1", "#lead", "#nodes-note", "#compared dt", "tr.trivial td", ".badge", "#node-box tbody button", "summary",
        "#examples-rule", "#examples p", ".card h3", ".card .note", ".card .std", ".card button", "#warnings h2",
        "#warnings pre", "#filters [aria-pressed=true]", "#filters [aria-pressed=false]",
    ])  # fmt: skip
    value = "return getComputedStyle(document.documentElement).getPropertyValue(arguments[0])"
    for scheme in ("light", "dark"):
        page.scheme(scheme)
        paper = page.run("return getComputedStyle(document.body).backgroundColor")
        for name in [*(f"--s{k}" for k in range(7)), "--id", "--ood", "--wrong"]:
            ink = " ".join(str(int(page.run(value, name).strip()[i : i + 2], 16)) for i in (1, 3, 5))
            assert contrast(ink, paper) >= 3.0, (scheme, name)


def test_without_predictions_the_sections_say_so(browser: Page, tmp_path: Path) -> None:
    records = benchmark(tmp_path, "digits", list("012"), ["8"], FEW, predictions=False)
    open_page(browser, records, tmp_path)
    assert "--predictions first" in browser.one("#nodes-note").text
    assert not browser.one("#nodes-body").is_displayed()
    assert len(browser.texts("#depth-figures .empty")) == 4  # two kinds of uncertainty, degree, homophily, triangle
    assert all("--predictions first" in text for text in browser.texts("#depth-figures .empty"))
    assert not browser.one("#examples").is_displayed()
    assert len(browser.texts("#curve-figures polyline")) == 5
    assert browser.complaints() == []


def test_a_method_without_predictions_says_so(browser: Page, tmp_path: Path) -> None:
    """Predictions count only if they are of the very run that is reported."""
    records = benchmark(tmp_path, "digits", list("0123"), ["8"], FEW)
    stale = tmp_path / "runs" / "digits" / "energy" / "seed-000.json"
    stale.write_bytes(to_json({**json.loads(stale.read_text()), "config": {"hidden": 8}}))
    (tmp_path / "nodes" / "digits" / "graph.parquet").unlink()
    open_page(browser, records, tmp_path)
    assert browser.one("#nodes-body").is_displayed()
    assert sum("graph.parquet" in text for text in browser.texts("#depth-figures .empty")) == 2
    browser.click("#node-box tbody button")
    assert "energy" not in browser.attributes("#panel tbody tr", "data-method")
    browser.press(Keys.ESCAPE)
    browser.choose(method="energy")
    assert "no predictions per node of energy" in browser.one("#nodes-note").text
    assert browser.complaints() == []


def test_a_benchmark_without_left_out_classes(browser: Page, tmp_path: Path) -> None:
    """A real one: nothing can be said of OOD nodes, and everything else is."""
    task = Task.leave_out(csbm(90, 3, features=8), (), name="known")
    benchmark_runs([task], CredalLJ(epochs=5), seeds=1, jobs=1, out=tmp_path, progress=False)
    browser.open(tmp_path / "report.html")
    assert set(browser.texts("#results-box tbody tr td.auroc")) == {"\u2013"}
    browser.choose(method="credal-lj")
    assert browser.one("#nodes-body").is_displayed()
    assert "left out" not in browser.one("#compared").text
    assert "NaN" not in browser.one("body").text
    assert "undefined" not in browser.one("body").text
    assert browser.complaints() == []


def test_only_failed_runs(browser: Page, tmp_path: Path) -> None:
    failed = {**about("digits", "odin", 0), "status": "failed", "error": "MemoryError"}
    write_page([failed], [tmp_path], tmp_path / "x.html")
    browser.open(tmp_path / "x.html")
    assert "nothing to compare" in browser.one("#lead").text
    assert "MemoryError" in browser.one("#warnings").text
    assert not browser.one("main").is_displayed()
    assert browser.complaints() == []


def test_three_classes_have_a_triangle(page: Page, folder: Path) -> None:
    rows = {row["node"]: row for row in table_of(folder, "traffic", "credal-lj")}
    triangle = np.array(
        [pair.split(",") for pair in page.attributes(".ternary polygon.axis", "points")[0].split()], float
    )

    def check(nodes: list[int]) -> None:
        drawn = page.attributes(".ternary .set[data-node]", "points")
        for node, points in zip(nodes, drawn, strict=True):
            flat = np.array([pair.split(",") for pair in points.split()], float)
            shares = np.linalg.solve(np.vstack([triangle.T, np.ones(3)]), np.vstack([flat.T, np.ones(len(flat))])).T
            bounds = ([rows[node][f"{side}_{k}"] for k in range(3)] for side in ("lower", "upper"))
            exact = _corners(IntervalSet(*(torch_row(bound) for bound in bounds)))
            apart = np.abs(shares[:, None] - exact[None]).max(-1)
            assert apart.min(0).max() < 0.005  # every corner is drawn
            assert apart.min(1).max() < 0.005  # and nothing else

    by_total = sorted(rows.values(), key=lambda row: row["score_TU"])
    held = set(embedded(folder / "report.html")["tasks"][0]["nodes"]["node"])
    expected = [next(row["node"] for row in by_total if row["node"] in held)]
    expected += [FILTERS[kind](rows.values())[0]["node"] for kind in ("aleatoric", "epistemic")]
    nodes = [int(text.removeprefix("node ")) for text in page.texts("#depth-figures li button")]
    assert nodes[:3] == expected
    assert rows[nodes[3]]["ood"]
    check(nodes)
    opened = page.shown_nodes()[0]
    page.click("#node-box tbody button")
    page.press(Keys.ESCAPE)
    check([*nodes, opened])
    page.choose(method="vanilla")
    assert page.texts(".ternary") == []
    page.choose(task="digits", method="credal-lj")
    assert page.texts(".ternary") == []


def torch_row(values: list[float]) -> Any:
    import torch

    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize(("kind", "figure"), [("roc", 1), ("rejection", 2)])
def test_curves_are_those_of_the_records(page: Page, records: list[dict[str, Any]], kind: str, figure: int) -> None:
    page.click("#choice input[value=vanilla]")
    place = f"#curve-figures figure:nth-child({figure}) svg"
    left, top, width, height = map(float, page.attributes(place, "data-frame")[0].split())
    x0, x1, y0, y1 = map(float, page.attributes(place, "data-domain")[0].split())

    def values(points: str) -> np.ndarray:
        flat = np.array([pair.split(",") for pair in points.split()], float)
        return np.stack([x0 + (flat[:, 0] - left) / width * (x1 - x0), y1 - (flat[:, 1] - top) / height * (y1 - y0)], 1)

    methods = page.attributes(f"{place} .series", "data-method")
    assert methods == [name for name in FEW if kind == "roc" or name not in SILENT]
    lines, bands = (page.attributes(f"{place} .series {tag}", "points") for tag in ("polyline", "polygon"))
    for method, line, band in zip(methods, lines, bands, strict=True):
        runs = [r for r in records if (r["dataset"], r["method"]) == ("traffic", method)]
        curves = np.array([run["curves"][kind][run["headline"]] for run in runs])
        grid = np.arange(101) / 100 if kind == "roc" else np.arange(50) / 50
        np.testing.assert_allclose(values(line), np.stack([grid, curves.mean(0)], 1), atol=3e-4)
        edge = np.concatenate([curves.min(0), curves.max(0)[::-1]])
        np.testing.assert_allclose(values(band)[:, 1], edge, atol=3e-4)
    (label,) = page.attributes(place, "aria-label")
    first = next(row for row in make_rows(records) if (row.dataset, row.method) == ("traffic", "credal-lj"))
    if kind == "roc":
        assert f"credal-lj EU {100 * first.values['auroc'].mean:.1f} %" in label


def test_figures_have_names_and_focus_is_seen(page: Page) -> None:
    labels = page.attributes("figure > svg", "aria-label")
    assert len(labels) == 9
    assert set(page.attributes("figure > svg", "role")) == {"img"}
    assert all(re.search(r"\d", label) for label in labels)
    page.run("document.querySelector('#find').focus()")
    page.press(Keys.TAB)
    outline = "return getComputedStyle(document.activeElement).outlineStyle"
    assert page.run("return document.activeElement.id") == "node-box"
    assert page.run(outline) == "solid"
    page.press(Keys.TAB)
    assert page.run("return document.activeElement.textContent") == "Node"
    assert page.run(outline) == "solid"


# ---------------------------------------------------------------- without a browser


def test_scatter_is_a_fair_sample_and_the_page_is_bounded(written: Path, folder: Path) -> None:
    nodes = embedded(written)["tasks"][0]["nodes"]
    total = nodes["total"]
    assert len(nodes["node"]) == len(set(nodes["node"])) == 600
    assert sum(nodes["sample"]) >= 200
    rows = {row["node"]: row for row in table_of(folder, "traffic", "credal-lj")}
    assert total == len(rows)
    sampled = [rows[node]["score_EU"] for node, kept in zip(nodes["node"], nodes["sample"], strict=True) if kept]
    everything = [row["score_EU"] for row in rows.values()]
    error = np.std(everything) / np.sqrt(len(sampled))
    assert abs(np.mean(sampled) - np.mean(everything)) < 3 * error  # the extremes would pull it far away
    assert nodes["methods"]["energy"]["p"] == {"as": "vanilla"}  # one backbone, kept once
    assert written.stat().st_size < 1_500_000


def test_many_classes_take_fewer_nodes(tmp_path: Path) -> None:
    names = [f"class {k}" for k in range(40)]
    records = benchmark(tmp_path, "wide", names, ["new"], ["vanilla"], 1, 800)
    write_page(records, [tmp_path], tmp_path / "x.html")
    assert len(embedded(tmp_path / "x.html")["tasks"][0]["nodes"]["node"]) == 300


def test_a_histogram_is_of_the_first_run_and_keeps_near_values_apart(tmp_path: Path) -> None:
    records = benchmark(tmp_path, "digits", list("0123"), ["8"], ["vanilla", "degree"], 2, 100, predictions=False)
    for record in records:
        if record["method"] == "vanilla":
            record["curves"]["histogram"]["msp"]["edges"] = list(np.linspace(-0.33345, -0.33344, 31))
    write_page(records, [tmp_path], tmp_path / "x.html")
    methods = embedded(tmp_path / "x.html")["tasks"][0]["methods"]
    for number, (method, score) in {0: ("vanilla", "msp"), 2: ("degree", "score")}.items():
        found, first = methods[method]["histograms"][score], records[number]["curves"]["histogram"][score]
        assert methods[method]["seed"] == 0
        assert (found["id"], found["ood"]) == (first["id"], first["ood"])
        edges = np.array(first["edges"])
        assert np.abs(np.array(found["edges"]) - edges).max() <= 1e-3 * np.ptp(edges)


def test_what_is_undefined_is_left_out(tmp_path: Path) -> None:
    """Nulls and numbers that are not finite make no page unreadable."""
    records = benchmark(tmp_path, "digits", list("0123"), ["8"], ["vanilla"], 2, 100, predictions=False)
    records[0]["curves"]["training"] = [[0, float("nan"), None], [1, 0.5, float("inf")]]
    records[0]["curves"]["roc"]["msp"] = [None] * 101
    write_page(records, [tmp_path], tmp_path / "x.html")
    method = embedded(tmp_path / "x.html")["tasks"][0]["methods"]["vanilla"]
    assert method["training"][0] == {"seed": 0, "epoch": [0, 1], "loss": [None, 0.5], "monitor": [None, None]}
    assert method["roc"]["runs"] == 1
    assert method["roc"]["mean"] == pytest.approx(records[1]["curves"]["roc"]["msp"], rel=1e-3)


def test_a_page_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = benchmark(tmp_path, "digits", list("0123"), ["8"], ["vanilla"], 1, 100, predictions=False)
    path = tmp_path / "x.html"
    path.write_text("before")

    def full(*_: object) -> None:
        raise OSError("no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", full)
        with pytest.raises(OSError, match="no space left"):
            write_page(records, [tmp_path], path)
    assert path.read_text() == "before"
    write_page(records, [tmp_path], path)
    assert path.read_text().startswith("<!doctype html>")
    assert [one.name for one in tmp_path.iterdir()] == ["x.html"]
