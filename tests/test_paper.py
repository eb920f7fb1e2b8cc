"""The paper's figures beside ours."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from credalgnn.experiments.paper import Pair, pairs, paper_results, write_comparison
from credalgnn.methods import METHODS
from credalgnn.records.schema import FORMAT, read_record
from credalgnn.report.summary import make_rows, read_runs
from credalgnn.runtime.files import to_json
from searches import cells

PAPER = Path(__file__).parents[2] / "shared" / "paper"
DATASETS = ["chameleon", "squirrel", "arxiv", "patents", "coauthor", "reddit2"]
FIGURES = [
    ("ood_auroc_full", "energy", "energy", "chameleon", 58.25, 4.63),
    ("ood_auroc_full", "knn", "distance", "coauthor", 88.23, 2.39),
    ("ood_auroc_full", "knn-lj", "distance", "coauthor", 32.37, 1.07),
    ("ood_auroc_full", "mahalanobis", "distance", "reddit2", 68.98, 1.21),
    ("ood_auroc_full", "gnnsafe", "energy", "arxiv", 35.30, 0.34),
    ("ood_auroc_full", "classical-ensemble", "EU", "chameleon", 30.22, 1.23),
    ("ood_auroc_full", "credal-ensemble", "EU", "patents", 64.64, 1.09),
    ("ood_auroc_full", "credal-final", "AU", "squirrel", 75.02, 6.20),
    ("ood_auroc_full", "credal-lj", "EU", "chameleon", 77.67, 1.32),
    ("ood_auroc_full", "credal-lj", "EU", "squirrel", 77.04, 8.25),
    ("ood_auroc_full", "credal-lj", "AU", "patents", 70.78, 7.34),
    ("id_f1", "vanilla", "argmax", "chameleon", 57.61, 0.98),
    ("id_f1", "credal-lj", "lower", "coauthor", 75.44, 0.98),
    ("id_f1", "credal-lj", "upper", "coauthor", 43.76, 0.42),
    ("id_f1", "credal-final", "upper", "reddit2", 24.63, 0.36),
]


def test_the_papers_figures() -> None:
    rows = paper_results()
    assert len(rows) == 198
    found = {(one["table"], one["method"], one["score"], one["dataset"]): (one["mean"], one["std"]) for one in rows}
    assert len(found) == 198
    for *key, mean, std in FIGURES:
        assert found[tuple(key)] == (mean, std)  # type: ignore[index]
    assert {one["table"] for one in rows} == {"ood_auroc_main", "ood_auroc_full", "id_f1"}
    assert {one["dataset"] for one in rows} == set(DATASETS)
    assert {one["method"] for one in rows} <= set(METHODS)
    for one in rows:
        scores = METHODS[one["method"]].score_names
        assert one["score"] in (scores if one["table"] != "id_f1" else ("argmax", "lower", "upper"))
        assert (one["std"] is None) == (one["table"] == "ood_auroc_main")


@pytest.mark.skipif(not (PAPER / "results.csv").exists(), reason="the transcription is not here")
def test_the_papers_figures_are_those_of_the_transcription() -> None:
    with (PAPER / "results.csv").open() as file:
        rows = [
            {**row, "mean": float(row["mean"]), "std": float(row["std"]) if row["std"] else None}
            for row in csv.DictReader(file)
        ]
    assert paper_results() == rows


@pytest.mark.skipif(not (PAPER / "credal-gnn.tex").exists(), reason="the paper is not here")
def test_the_papers_figures_are_those_of_its_source() -> None:
    """Every figure of the two tables in the appendix, read anew from the source."""
    names = {
        "Energy": ("energy", "energy"), "KNN": ("knn", "distance"), "ODIN": ("odin", "odin"),
        "Mahalanobis": ("mahalanobis", "distance"), "GNNSafe": ("gnnsafe", "energy"), "KNNLJ": ("knn-lj", "distance"),
        "Classical ensemble (AU)": ("classical-ensemble", "AU"),
        "Classical ensemble (EU)": ("classical-ensemble", "EU"),
        "Credal ensemble (AU)": ("credal-ensemble", "AU"), "Credal ensemble (EU)": ("credal-ensemble", "EU"),
        "Credal final (AU)": ("credal-final", "AU"), "Credal final (EU)": ("credal-final", "EU"),
        "CredalLJ (AU)": ("credal-lj", "AU"), "CredalLJ (EU)": ("credal-lj", "EU"),
        "Vanilla GNN": ("vanilla", "argmax"),
        "Credal Final ($\\boldsymbol{q_L}$)": ("credal-final", "lower"),
        "Credal Final ($\\boldsymbol{q_U}$)": ("credal-final", "upper"),
        "CredalLJ ($\\boldsymbol{q_L}$)": ("credal-lj", "lower"),
        "CredalLJ ($\\boldsymbol{q_U}$)": ("credal-lj", "upper"),
    }  # fmt: skip
    source = (PAPER / "credal-gnn.tex").read_text().split("\\section{Additional results}")[1]
    wanted = {}
    for line in source.splitlines():
        figures = re.findall(r"(\d+\.\d+) ?\$\\pm\$ ?(\d+\.\d+)", line)
        if len(figures) == 6:
            method, score = names[line.split("&")[1].strip()]
            table = "id_f1" if score in ("argmax", "lower", "upper") else "ood_auroc_full"
            for dataset, (mean, std) in zip(DATASETS, figures, strict=True):
                wanted[table, method, score, dataset] = float(mean), float(std)
    rows = [one for one in paper_results() if one["table"] != "ood_auroc_main"]
    assert {
        (one["table"], one["method"], one["score"], one["dataset"]): (one["mean"], one["std"]) for one in rows
    } == wanted
    assert len(wanted) == 114


def put_record(
    folder: Path, method: str, seed: int, metrics: Mapping[str, float], aurocs: Mapping[str, float],
    dataset: str = "chameleon", error: str | None = None,
) -> None:  # fmt: skip
    """A record as a run leaves it behind, with nothing in it that no table needs."""
    record: dict[str, Any] = {
        "format": FORMAT, "status": "done" if error is None else "failed", "error": error, "dataset": dataset,
        "method": method, "seed": seed, "split_seed": 0, "protocol": "paper", "setting": "transductive",
        "fingerprint": "00",
        "config": {"lr": 0.012345678, "hidden": 64}, "versions": {"credalgnn": "0"},
        "finished": "2026-01-01T00:00:00+00:00",
    }  # fmt: skip
    if error is None:
        counts = {"train_id": 11, "val_id": 12, "val_ood": 13, "test_id": 14, "test_ood": 15}
        record |= {
            "headline": next(iter(aurocs)), "metrics": dict(metrics), "marks": [],
            "curves": {"roc": {}, "rejection": {}, "histogram": {}, "training": []},
            "scores": {name: {"auroc": value} for name, value in aurocs.items()},
            "seconds": {"fit": 1.0, "predict": 0.1}, "class_names": ["a"], "ood_names": ["b"], "counts": counts,
            "peak_mib": 1.0, "predictions": None,
        }  # fmt: skip
    path = folder / "runs" / dataset / method / f"seed-{seed:03d}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(to_json(record))
    (folder / "experiment.json").write_bytes(to_json({}))
    read_record(path)


@pytest.fixture
def chameleon(tmp_path: Path) -> Path:
    """Two seeds of three methods; credal-lj: EU 87.67 ± 1.41, AU 72.37 ± 14.14 per cent."""
    for seed, sign in ((0, 1), (1, -1)):
        of_sets = {"accuracy": 0.9, "accuracy_lower": 0.4275, "accuracy_upper": 0.2 + 0.01 * sign}
        scores = {"EU": 0.8767 + 0.01 * sign, "AU": 0.7237 + 0.1 * sign, "TU": 0.5}
        put_record(tmp_path, "credal-lj", seed, of_sets, scores)
        put_record(tmp_path, "vanilla", seed, {"accuracy": 0.5 + 0.001 * sign}, {"msp": 0.6, "entropy": 0.61})
        put_record(tmp_path, "energy", seed, {"accuracy": 0.5}, {"energy": 0.3 + 0.001 * sign})
    return tmp_path


def test_pairs(chameleon: Path) -> None:
    rows = make_rows(read_runs([chameleon]))
    found = {(one.method, one.score): one for one in pairs(rows, "ood_auroc_full")}
    assert set(found) == {("credal-lj", "EU"), ("credal-lj", "AU"), ("energy", "energy")}
    eu, au, energy = found["credal-lj", "EU"], found["credal-lj", "AU"], found["energy", "energy"]
    assert (eu.dataset, eu.paper, eu.paper_std) == ("chameleon", 77.67, 1.32)
    assert (eu.ours, eu.ours_std, eu.difference) == pytest.approx((87.67, math.sqrt(2), 10.0))
    assert (au.paper, au.ours, au.ours_std) == pytest.approx((72.37, 72.37, 10 * math.sqrt(2)))
    assert energy.difference == pytest.approx(30 - 58.25)
    assert [one.colour for one in (eu, au, energy)] == ["🟢", "", "🔴"]
    main_table = {(one.method, one.score): one for one in pairs(rows, "ood_auroc_main")}
    assert set(main_table) == set(found)
    assert main_table["credal-lj", "EU"].paper_std == 1.32, "the main table's deviations are in the appendix"
    classes = {(one.method, one.score): one for one in pairs(rows, "id_f1")}
    assert set(classes) == {("vanilla", "argmax"), ("credal-lj", "lower"), ("credal-lj", "upper")}
    assert classes["vanilla", "argmax"].ours == pytest.approx(50.0)
    assert classes["vanilla", "argmax"].paper == 57.61
    assert (classes["credal-lj", "lower"].ours, classes["credal-lj", "lower"].paper) == pytest.approx((42.75, 42.75))
    assert (classes["credal-lj", "upper"].ours, classes["credal-lj", "upper"].paper) == pytest.approx((20.0, 36.96))
    assert classes["credal-lj", "upper"].ours_std == pytest.approx(math.sqrt(2))


@pytest.mark.parametrize(
    ("ours", "paper_std", "ours_std", "colour"),
    [
        (52.0, 1.0, 0.5, ""), (52.25, 1.0, 0.5, "🟢"), (47.75, 1.0, 0.5, "🔴"), (52.25, 0.5, 1.25, ""),
        (47.25, 0.5, 1.25, "🔴"), (50.0, 0.0, 0.0, ""), (50.25, None, 0.0, "🟢"), (49.0, None, 0.5, ""),
        (48.75, None, 0.5, "🔴"),
    ],
)  # fmt: skip
def test_the_colour_means_more_than_two_of_the_larger_deviation(
    ours: float, paper_std: float | None, ours_std: float, colour: str
) -> None:
    assert Pair("m", "s", "d", 50.0, paper_std, ours, ours_std).colour == colour


def test_the_tables_side_by_side(chameleon: Path) -> None:
    text = write_comparison([chameleon], chameleon / "out")
    full = {(line["method"], line["score"]): line for line in cells(text, "OOD detection, AUROC with standard")}
    assert full["credal-lj", "EU"] == {
        "method": "credal-lj", "score": "EU", "chameleon paper": "77.7 ± 1.3", "chameleon ours": "87.7 ± 1.4",
        "chameleon difference": "+10.0 🟢",
    }  # fmt: skip
    assert full["credal-lj", "AU"]["chameleon difference"] in ("+0.0", "-0.0")
    assert full["energy", "energy"]["chameleon difference"] == "-28.2 🔴"
    assert ("credal-lj", "TU") not in full
    short = {(line["method"], line["score"]): line for line in cells(text, "OOD detection, AUROC (the paper's main")}
    assert short["credal-lj", "EU"]["chameleon paper"] == "77.7"
    assert short["credal-lj", "EU"]["chameleon ours"] == "87.7"
    f1 = {(line["method"], line["score"]): line for line in cells(text, "ID classification, F1")}
    assert f1["credal-lj", "lower"]["chameleon ours"] == "42.8 ± 0.0"
    assert f1["credal-lj", "upper"]["chameleon difference"] == "-17.0 🔴"
    assert f1["vanilla", "argmax"]["chameleon paper"] == "57.6 ± 1.0"
    others = {(line["method"], line["score"]) for line in cells(text, "Scores and methods that the paper does not")}
    assert others == {("credal-lj", "TU"), ("vanilla", "msp"), ("vanilla", "entropy")}
    counts = cells(text, "Data sets")[0]
    assert (counts["train_id paper"], counts["train_id ours"]) == ("647", "11")
    assert (counts["test_ood paper"], counts["test_ood ours"]) == ("180", "15")
    assert "lr 0.01235" in text
    assert "size {2, 3 .. 15}" in text
    assert "delta U(0.5, 1)" in text


def test_the_page_of_the_tables(chameleon: Path) -> None:
    text = write_comparison([chameleon], chameleon)
    assert (chameleon / "paper.md").read_bytes() == text.encode()
    page = (chameleon / "paper.html").read_text()
    rows = re.findall(r'<tr><th scope="row">(.*?)</th><td>(.*?)</td>(.*?)</tr>', page.split('id="ood_auroc_full"')[1])
    cells_of = {(method, score): re.findall(r"<td([^>]*)>([^<]*)", rest) for method, score, rest in rows}
    assert [text for _, text in cells_of["credal-lj", "EU"]] == ["77.7 ± 1.3", "87.7 ± 1.4", "+10.0 !"]
    assert "high2" in cells_of["credal-lj", "EU"][2][0]
    assert "low2" in cells_of["energy", "energy"][2][0]


def test_the_page_looks_like_the_others(chameleon: Path, browser: Any) -> None:
    write_comparison([chameleon], chameleon)
    browser.open(chameleon / "paper.html")
    browser.check_legible(["h1", "#lead", "h2", "thead th", "tbody th", "td.high2", "td.low2", ".legend p"])
    assert browser.texts("#id_f1 thead tr:first-child th") == ["method", "score", "chameleon"]
    browser.screen(400)
    assert browser.run("return document.documentElement.scrollWidth") == 400
    assert browser.complaints() == []


@pytest.mark.parametrize("dataset", ["bees", "digits"])
def test_every_figure_of_ours_is_in_some_table(dataset: str, chameleon: Path) -> None:
    """Beside a data set of the paper's, one that it lacks: before it or after it in the order of names."""
    put_record(chameleon, "credal-lj", 0, {"accuracy": 0.5}, {"EU": 0.1234, "TU": 0.2}, dataset)
    text = write_comparison([chameleon], chameleon / "out")
    assert "12.3" in text
    assert len(cells(text, "Data sets")) == 2
    others = cells(text, "Scores and methods that the paper does not report")
    assert not [line for line in others if line["method"] == "credal-lj" and line["chameleon AUROC"].startswith("87.7")]


def test_what_failed_does_not_stop_the_tables(chameleon: Path) -> None:
    put_record(chameleon, "odin", 0, {}, {}, error="out of memory")
    assert "87.7 ± 1.4" in write_comparison([chameleon], chameleon / "out")
    put_record(chameleon, "odin", 0, {}, {}, dataset="patents", error="out of memory")
    assert "87.7 ± 1.4" in write_comparison([chameleon], chameleon / "out")


def test_only_failures_make_tables_too(tmp_path: Path) -> None:
    put_record(tmp_path, "odin", 0, {}, {}, error="out of memory")
    write_comparison([tmp_path], tmp_path)
    assert (tmp_path / "paper.md").exists()
