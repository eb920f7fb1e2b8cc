"""What it takes to add something to the package: a copy of the sources, changed in as many files as promised."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import credalgnn
from credalgnn.metrics import METRICS

ROOT = Path(__file__).parents[1]
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")


def block(document: str, word: str) -> str:
    """The Python block of a document that holds a word."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / document).read_text(), flags=re.S)
    return str(next(text for text in blocks if word in text))


METHOD = block("extend.md", "class Nearest(")
BACKBONE = block("extend.md", "class NoEdges(").partition("class NoEdgesLayer")
METRIC = block("extend.md", "Metric(\n").partition("Metric(\n")
DRAWING = """  const drawSeconds = (width, caption) => {
    const all = shown.map((name) => state.task.methods[name].seconds);
    const y = { lo: 0, hi: 60, title: "seconds" };
    const plot = chart(width, 200, { lo: 0, hi: 1, title: "run" }, y, "Seconds of each run");
    all.flat().forEach((value) => plot.node.append(mark("id", plot.X(0.5), plot.Y(value), {})));
    caption.append(`${all.flat().length} runs`);
    return plot.node;
  };
"""
NEW: str | None = None  # a file that was not there

# By what is added the changed files, each with texts that are replaced; registries of built-in names are counted apart.
CHANGES: dict[str, dict[str, list[tuple[str | None, str]]]] = {
    "a method": {
        "methods/nearest.py": [
            (NEW, METHOD.replace(
                "import credalgnn as cg", "from .base import Method\nfrom .prediction import Prediction")
             .replace("cg.", ""))
        ],
        "methods/registry.py": [
            ("from .network import Vanilla\n", "from .nearest import Nearest\nfrom .network import Vanilla\n"),
            ("        Degree,\n", "        Degree,\n        Nearest,\n"),
        ],
    },
    "a data set": {
        "graphs/datasets/ring.py": [
            (NEW, block("data.md", "RING = ").replace(
                "from credalgnn.graphs import Dataset, Graph", "from ..graph import Graph\nfrom .base import Dataset")
             .replace("print(RING", "# print(RING"))
        ],
        "graphs/datasets/registry.py": [
            ("from .synthetic import ", "from .ring import RING\nfrom .synthetic import "),
            (" DIGITS, CSBM,\n", " DIGITS, CSBM, RING,\n"),
        ],
    },
    "a metric": {
        "metrics/registry.py": [
            ('    Metric("macro_f1", ', "    Metric(\n" + METRIC[2].rstrip() + ',\n    Metric("macro_f1", ')
        ],
    },
    "a native backbone": {
        "nn/backbones.py": [
            ("NATIVE: dict", "class NoEdgesLayer" + BACKBONE[2].partition("NATIVE[")[0] + "NATIVE: dict"),
            ('"sage": SAGE,', '"sage": SAGE, "no-edges": NoEdges,'),
        ],
    },
    "a plot": {
        "report/results.py": [
            ('        "headline": headline,\n        "scores": scores,\n',
             '        "headline": headline,\n        "scores": scores,\n'
             '        "seconds": [run["seconds"]["fit"] for run in runs],\n')
        ],
        "report/web/benchmark_figures.js": [
            ('  figures($("curve-figures"), [[',
             DRAWING + '  figures($("curve-figures"), [["Seconds", drawSeconds], ['),
        ],
    },
}  # fmt: skip
PROMISED = {"a method": 1, "a data set": 1, "a metric": 1, "a native backbone": 1, "a plot": 2}
REGISTRIES = ("methods/registry.py", "graphs/datasets/registry.py")

USE = """
import credalgnn as cg

network = cg.Vanilla(backbone="no-edges", epochs=20)
results = cg.benchmark("ring", ["nearest", network], seeds=1, jobs=1, out="out", progress=False)
assert results.failed == 0
print(cg.__file__)
"""


def test_as_many_files_as_promised() -> None:
    changed = {what: len([file for file in files if file not in REGISTRIES]) for what, files in CHANGES.items()}
    assert changed == PROMISED
    assert sum(bool(line.strip()) for line in METHOD.splitlines()) < 30
    text = (ROOT / "docs" / "extend.md").read_text()
    for what, count in PROMISED.items():
        assert re.search(rf"\| {what}[^|]*\| {count}\b", text)


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A benchmark of all that was added, done by the changed copy."""
    place = tmp_path_factory.mktemp("extended")
    package = place / "copy" / "credalgnn"
    shutil.copytree(Path(credalgnn.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    for files in CHANGES.values():
        for name, replaced in files.items():
            for old, new in replaced:
                text = "" if old is NEW else (package / name).read_text()
                assert old is NEW or text.count(old) == 1, (name, old)
                (package / name).write_text(new if old is NEW else text.replace(old, new))
    environment = {**os.environ, "PYTHONPATH": str(place / "copy"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "ignore", "-c", USE]
    done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(package))
    return place / "out"


def record(folder: Path, method: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "runs" / "ring" / method / "seed-000.json").read_text())
    return found


def test_a_built_in_method_data_set_and_backbone(extended: Path) -> None:
    made = record(extended, "nearest")
    assert (made["status"], made["headline"], made["config"]) == ("done", "distance", {"temperature": 1.0})
    assert (made["ood_names"], "source" in made) == (["owl"], False)  # both are built in
    assert made["metrics"]["accuracy"] > 0.9  # kinds are hardly blurred
    trained = record(extended, "vanilla")
    assert trained["config"]["backbone"] == "no-edges"
    assert trained["metrics"]["accuracy"] > 0.9


def test_a_metric_is_in_records_tables_and_page(extended: Path) -> None:
    made = record(extended, "nearest")
    assert made["metrics"]["error"] == pytest.approx(1.0 - made["metrics"]["accuracy"], abs=1e-12)
    assert re.search(r"^ring,.*,nearest,distance,error,", (extended / "table.csv").read_text(), flags=re.M)
    assert re.search(r"\| error\b", (extended / "table.md").read_text())
    data = embedded(extended)
    (entry,) = [metric for metric in data["metrics"] if metric["key"] == "error"]
    assert (entry["better"], entry["percent"]) == (-1, True)
    assert "share of ID nodes whose class is wrong" in entry["meaning"]
    (row,) = [row for row in data["tasks"][0]["rows"] if row["method"] == "nearest"]
    assert row["values"]["error"][0] == pytest.approx(made["metrics"]["error"], abs=1e-8)


def embedded(folder: Path) -> Any:
    page = (folder / "report.html").read_text()
    (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, flags=re.S)
    return json.loads(found)


def test_a_plot_with_new_data(extended: Path, tmp_path: Path) -> None:
    methods = embedded(extended)["tasks"][0]["methods"]
    assert methods["nearest"]["seconds"] == [record(extended, "nearest")["seconds"]["fit"]]
    if CHROMIUM is None:
        pytest.skip("chromium is not installed")
    flags = ["--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}", "--dump-dom"]
    page = (extended / "report.html").as_uri()
    done = subprocess.run([CHROMIUM, *flags, page], capture_output=True, text=True, timeout=60, check=True)
    (figure,) = [text for text in re.findall(r"<figure>.*?</figure>", done.stdout, flags=re.S) if "Seconds of" in text]
    assert len(re.findall(r'class="dot id"', figure)) == int(re.findall(r"(\d) runs", figure)[0]) > 0


def test_the_documentation_names_every_metric_of_the_tables() -> None:
    text = (ROOT / "docs" / "benchmark.md").read_text()
    assert [key for key, metric in METRICS.items() if metric.shown and f"`{key}`" not in text] == []
