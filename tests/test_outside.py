"""Methods and data sets from outside the package, in real processes: import paths, files, folders and plug-ins."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

import credalgnn as cg
from credalgnn.cli import main
from credalgnn.graphs import csbm
from credalgnn.methods import MethodError, load_method
from credalgnn.runtime.files import to_json
from mymodels import Mine

GRAPHS = """
from credalgnn import Task
from credalgnn.graphs import csbm

def make_graph():
    return csbm(90, 3, features=8).replace(class_names=["cat", "dog", "owl"])

def make_task(split_seed=0):
    return Task.leave_out(make_graph(), "dog", split_seed=split_seed)
"""
ZOO = """
from dataclasses import dataclass
import torch
import credalgnn as cg
from mygraphs import make_graph

@dataclass(kw_only=True, eq=False)
class Size(cg.Method):
    \"\"\"The length of a node's features; it has no seed and predicts no classes.\"\"\"

    name, score_names = "size", ("size",)

    def _fit(self, training, context):
        pass

    def _predictor(self, graph, context):
        size = graph.features.to_dense().double().norm(dim=1)
        return lambda nodes: cg.Prediction(nodes, {"size": size[nodes]}, "size", self.class_names)

@dataclass(kw_only=True, eq=False)
class Taken(Size):
    \"\"\"Another's name.\"\"\"

    name = "energy"
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder to work in, with a method, graphs and tables; beside it an installed plug-in."""
    place = tmp_path_factory.mktemp("outside") / "work"
    (place / "tables").mkdir(parents=True)
    shutil.copy(Path(__file__).with_name("mymodels.py"), place)
    (place / "mygraphs.py").write_text(GRAPHS)
    graph = csbm(90, 3, features=8).replace(class_names=["cat", "dog", "owl"])
    graph.save(place / "pets.npz")
    lines = ["id,label,a,b"]
    lines += [f"n{k},{graph.class_names[graph.labels[k]]},{x[0]:.4f},{x[1]:.4f}" for k, x in enumerate(graph.features)]
    (place / "tables" / "nodes.csv").write_text("\n".join(lines))
    edges = [f"n{a},n{b}" for a, b in graph.edge_index.t().tolist()]
    (place / "tables" / "edges.csv").write_text("\n".join(["source,target", *edges]))
    installed = place.parent / "installed"
    (installed / "zoo-1.2.dist-info").mkdir(parents=True)
    (installed / "zoo" / "deep").mkdir(parents=True)
    (installed / "zoo" / "deep" / "__init__.py").write_text("")
    (installed / "zoo" / "deep" / "models.py").write_text(ZOO)
    (installed / "zoo" / "__init__.py").write_text("from .deep.models import Size, Taken, make_graph\n")
    (installed / "mygraphs.py").write_text(GRAPHS)
    (installed / "zoo-1.2.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: zoo\nVersion: 1.2\n")
    points = "[credalgnn.methods]\nsize = zoo:Size\n[credalgnn.datasets]\nzoo = zoo:make_graph\n"
    (installed / "zoo-1.2.dist-info" / "entry_points.txt").write_text(points)
    return place


def python(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A process in the folder that does not look for modules there by itself, as an installed command does not."""
    path = os.pathsep.join(filter(None, [str(place.parent / "installed"), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONSAFEPATH": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "ignore", *words]
    return subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, timeout=240, check=False)


def credalgnn(place: Path, *words: str) -> str:
    done = python(place, "-m", "credalgnn", *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def records(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(folder.glob("runs/*/*/*.json"))]


@pytest.fixture(scope="module")
def benched(place: Path) -> tuple[Path, str]:
    """Two methods from outside on four graphs from outside, three seeds, two processes."""
    datasets = ["mygraphs:make_task", "pets.npz", "tables", "zoo"]
    words = ["-d", *datasets, "-m", "mymodels:Mine", "size", "--ood-classes", "owl", "--seeds", "3", "--jobs", "2"]
    return place / "out", credalgnn(place, "bench", *words, "--out", "out")


def test_bench_takes_methods_and_graphs_from_outside(benched: tuple[Path, str]) -> None:
    folder, printed = benched
    found = records(folder)
    assert len(found) == 4 * 4 * 3  # with the two baselines
    assert {record["status"] for record in found} == {"done"}
    sources = {record["dataset"]: record["source"]["dataset"] for record in found}
    assert sources == {
        "mygraphs-make_task": "import: mygraphs:make_task",
        "pets": "file: pets.npz",
        "tables": "folder: tables",
        "zoo": "plug-in: zoo (zoo 1.2)",
    }
    methods = {record["method"]: record["source"].get("method") for record in found}
    assert methods == {"mine": "mymodels:Mine", "size": "zoo.deep.models:Size", "degree": None, "feature-sum": None}
    left_out = {record["dataset"]: record["ood_names"] for record in found}
    assert left_out.pop("mygraphs-make_task") == ["dog"]  # a task of its own
    assert set(map(tuple, left_out.values())) == {("owl",)}
    assert all(name in printed for name in ("mine", "size", "pets", "tables", "zoo"))
    assert (folder / "report.html").exists()


def test_a_seed_that_is_not_a_network_s_is_passed_on(benched: tuple[Path, str]) -> None:
    for dataset in ("mygraphs-make_task", "pets", "tables", "zoo"):
        values: dict[str, set[str]] = {}
        for record in records(benched[0]):
            if record["dataset"] == dataset:
                values.setdefault(record["method"], set()).add(json.dumps(record["scores"]))
        assert len(values["mine"]) == 3
        assert len(values["size"]) == len(values["degree"]) == 1  # without a seed


@pytest.mark.slow
def test_tune_and_bench_with_what_was_tuned(place: Path) -> None:
    words = ["-d", "pets.npz", "-m", "mymodels:Mine", "--ood-classes", "2", "--jobs", "2"]
    printed = credalgnn(place, "tune", *words, "--trials", "4", "--out", "tuned")
    best = json.loads((place / "tuned" / "best.json").read_text())
    chosen = best["best"]["pets"]["methods"]["mine"]["config"]["temperature"]
    assert 0.1 <= chosen <= 10.0
    assert f"temperature {chosen:.4g}" in printed
    credalgnn(place, "bench", *words, "--seeds", "1", "--tuned", "tuned", "--out", "with")
    configs = [record["config"] for record in records(place / "with") if record["method"] == "mine"]
    assert configs == [{"temperature": chosen}]


SAVE = """
import sys
import torch
import credalgnn as cg
from credalgnn.methods import find_method

task = cg.load_task("mygraphs:make_task")
for name in ("mymodels:Mine", "size"):
    method = find_method(name)().fit(task)
    method.save(name.partition(":")[0])
    torch.save(method.predict().score, name.partition(":")[0] + ".pt")
"""
LOAD = """
import torch
import credalgnn as cg

task = cg.load_task("mygraphs:make_task")
try:
    cg.load_method("mymodels", task)
except cg.MethodError as error:
    print(error)
for name, method in (("mymodels", "mymodels:Mine"), ("size", None)):
    print(torch.equal(cg.load_method(name, task, method=method).predict().score, torch.load(name + ".pt")))
"""


def test_save_and_load_in_another_process(place: Path) -> None:
    """What is installed is found; anything else is not imported because a file asks for it."""
    saved = python(place, "-c", SAVE)
    assert saved.returncode == 0, saved.stderr
    loaded = python(place, "-c", LOAD)
    assert loaded.returncode == 0, loaded.stderr
    refused, *same = loaded.stdout.splitlines()
    assert refused == (
        "the method mymodels:Mine is not built in: import mymodels first, or load it with "
        "method='mymodels:Mine' (-m mymodels:Mine)"
    )
    assert same == ["True", "True"]


def test_describe_graphs_from_outside(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(place)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    printed = []
    for words in (["pets.npz", "--ood-classes", "owl"], ["pets.npz", "--ood-classes", "2"], ["mygraphs:make_task"]):
        assert main(["describe", *words]) == 0
        printed.append(capsys.readouterr().out)
    by_name, by_number, made = printed
    assert by_name == by_number
    assert "left out        dog" in made
    fingerprint = next(line for line in by_name.splitlines() if line.startswith("fingerprint"))
    assert fingerprint in credalgnn(place, "describe", "zoo", "--ood-classes", "owl")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-m", "mymodels:Mien"], "mymodels:Mien: mymodels has no 'Mien': did you mean Mine?"),
        (["-m", "mymodles:Mine"], "mymodles cannot be imported"),
        (["-m", "mymodels:torch"], "mymodels:torch is no class derived from credalgnn.Method"),
        (["-m", "broken:Taken"], "the name 'energy' is that of a built-in method; give it another one"),
        (["-m", "broken:Twice", "mymodels:Mine"], "two methods are called 'mine': rename one of them"),
        (["-m", "broken:Nothing"], "broken:Nothing does not override _fit, _predictor"),
        (["-m", "crashes:Mine"], "crashes cannot be imported (ZeroDivisionError: division by zero)"),
        (["-m", "degre"], "unknown method 'degre': did you mean degree?"),
        (["-m", "mymodels:Mine", "--set", "temprature=2"], "temprature=2: no chosen method has 'temprature'; did you"),
        (["-m", "degree", "-d", "mygraphs:make_tsak"], "mygraphs has no 'make_tsak': did you mean make_task?"),
        (["-m", "degree", "-d", "pets.npz", "--ood-classes", "own"], "class 'own' cannot be left out"),
        (["-m", "degree", "-d", "pets.npz"], "pets does not say which classes are left out"),
    ],
)
def test_mistakes_are_one_line(
    words: Sequence[str],
    message: str,
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (place / "broken.py").write_text(
        "from mymodels import Mine\nfrom credalgnn import Method\n"
        "class Taken(Mine):\n    name = 'energy'\nclass Twice(Mine):\n    pass\n"
        "class Nothing(Method):\n    name = 'nothing'\n"
    )
    (place / "crashes.py").write_text("1 / 0\n")
    monkeypatch.chdir(place)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    data = [] if "-d" in words else ["-d", "mygraphs:make_task"]
    assert main(["bench", *words, *data, "--out", "never"]) == 2
    printed, error = capsys.readouterr()
    assert (printed, error.count("\n")) == ("", 1)
    assert message in error
    assert not (place / "never").exists()


def test_a_mistake_from_outside(place: Path) -> None:
    done = python(place, "-m", "credalgnn", "bench", "-d", "digits", "-m", "mymodels:Mien", "--out", "never")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)


def small_task(**options: Any) -> cg.Task:
    return cg.Task.leave_out(csbm(90, 3, features=8), options.pop("ood", [0]), **{"name": "own", **options})


def test_benchmark_from_python(tmp_path: Path) -> None:
    """A task that exists in this process only, and two templates, in two processes; then resumed."""
    task, own = small_task(), Mine(temperature=0.5)
    results = cg.benchmark([task], [own, cg.CredalLJ(epochs=5)], seeds=2, jobs=2, out=tmp_path, progress=False)
    assert (results.total, results.failed, results.left) == (8, 0, 0)
    lines = results.to_dicts()
    mine = [line for line in lines if line["method"] == "mine"]
    assert [(line["dataset"], line["seed"], line["score"], line["headline"]) for line in mine] == [
        ("own", 0, "distance", True),
        ("own", 1, "distance", True),
    ]
    judged = cg.evaluate(Mine(temperature=0.5, seed=1).fit(task).predict(), task)
    assert mine[1]["auroc"] == judged.scores["distance"]["auroc"]
    assert mine[1]["accuracy"] == judged.metrics["accuracy"]
    table = results.to_arrow()
    assert table.num_rows == len(lines) == 2 * (1 + 3 + 1 + 1)
    assert table.column("auroc").to_pylist() == [line["auroc"] for line in lines]
    assert "mine" in str(results)
    assert "credal-lj" in str(results)
    record = next(record for record in results.records if record["method"] == "mine")
    assert record["source"] == {"method": "mymodels:Mine", "dataset": "a Task"}
    assert record["config"] == {"temperature": 0.5}
    page = results.write(tmp_path / "again")
    assert page.read_bytes()[:15].lower() == b"<!doctype html>"
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("runs/*/*/*.json")}
    more = cg.benchmark([task], own, seeds=3, jobs=1, out=tmp_path, progress=False)
    assert (more.total, len(more.records)) == (9, 11)
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in before.items())


def test_what_python_s_benchmark_refuses() -> None:
    class Local(Mine):
        name = "local"

    task = small_task()
    for methods, message in (
        ([Local], "Local cannot be imported by worker processes: define it at the top level of a file"),
        ([dict], "dict is no class derived from credalgnn.Method"),
        ([3], "a method must be a name, a class or a template, not int"),
        ([Mine(temperature=0.5), Mine], "mymodels:Mine is twice among the `methods`, with different"),
    ):
        with pytest.raises(MethodError, match=message):
            cg.benchmark([task], methods, seeds=1)  # type: ignore[arg-type]


def test_tasks_without_left_out_classes(tmp_path: Path) -> None:
    """Everything says what can be said, and where nothing can be a dash."""
    csbm(90, 3, features=8).save(tmp_path / "all.npz")
    words = ["-d", str(tmp_path / "all.npz"), "-m", "energy", "credal-lj", "--seeds", "2", "--jobs", "1"]
    assert main(["bench", *words, "--set", "epochs=5", "--out", str(tmp_path / "out"), "--ood-classes"]) == 0
    found = records(tmp_path / "out")
    assert len(found) == 8
    for record in found:
        assert (record["status"], record["ood_names"]) == ("done", [])
        assert (record["counts"]["val_ood"], record["counts"]["test_ood"]) == (0, 0)
        for metrics in record["scores"].values():
            assert metrics["auroc"] is metrics["fpr95"] is metrics["aupr"] is None
    trained = [record for record in found if record["method"] in ("energy", "credal-lj")]
    assert all(0.0 <= record["metrics"]["accuracy"] <= 1.0 for record in trained)
    assert all(record["metrics"]["size_e_admissibility"] >= 1 for record in trained if record["method"] == "credal-lj")
    rows = (tmp_path / "out" / "table.md").read_text().splitlines()
    header = next(row for row in rows if "AUROC" in row).split("|")
    energy = next(row for row in rows if "energy" in row).split("|")
    auroc = next(number for number, cell in enumerate(header) if "AUROC" in cell)
    assert energy[auroc].strip() == "-"
    task = cg.load_task(tmp_path / "all.npz", ood_classes=())
    judged = cg.evaluate(cg.Vanilla(epochs=5).fit(task).predict(), task)
    assert judged.scores["msp"]["auroc"] is None
    assert "auroc" not in str(judged).replace("misclassification_auroc", "")
    assert (tmp_path / "out" / "report.html").exists()


def test_evaluate_refuses_a_prediction_of_another_task_or_split() -> None:
    task, resplit, others = small_task(), small_task(split_seed=1), small_task(ood=[1])
    method = Mine().fit(task)
    assert cg.evaluate(method.predict(), task).metrics["accuracy"] is not None
    for prediction in (method.predict(), method.predict(resplit.graph), method.predict(resplit.prediction_graph)):
        with pytest.raises(
            ValueError, match=r"belongs to another task or split: \d+ nodes of the test part, node \d+ first"
        ):
            cg.evaluate(prediction, resplit)
        with pytest.raises(ValueError, match="belongs to another task: its classes are 1, 2, those of this task 0, 2"):
            cg.evaluate(prediction, others)


def test_features_far_outside_those_of_training_are_warned_of(tmp_path: Path) -> None:
    task = small_task()
    method = Mine().fit(task)
    method.save(tmp_path)
    graph = task.graph
    for fitted in (method, load_method(tmp_path)):
        fitted.predict(graph.replace(features=2.0 * graph.features))  # no warning: errors here
        with pytest.warns(cg.InputWarning, match=r"mine: 8 of 8 features lie far outside.*scale them as they were"):
            fitted.predict(graph.replace(features=1000.0 * graph.features))


def test_another_order_of_features_is_refused(tmp_path: Path) -> None:
    """A method remembers the names of the columns that it has learnt from, saved or not."""
    names = [f"f{k}" for k in range(8)]
    task = cg.Task.leave_out(csbm(90, 3, features=8).replace(feature_names=names), [0])
    turned = task.graph.select_features(names[::-1])
    for number, method in enumerate((Mine(), cg.Energy(model=cg.Vanilla(epochs=3)))):
        expected = method.fit(task).predict().score
        method.save(tmp_path / str(number))
        for fitted in (method, load_method(tmp_path / str(number), method=type(method))):
            with pytest.raises(MethodError, match=r"feature 0, 'f7', stands where 'f0' was.*graph\.select_features"):
                fitted.predict(turned)
            assert torch.equal(fitted.predict(turned.select_features(names)).score, expected)
            with pytest.raises(MethodError, match="the graph has no feature 'f7'"):
                fitted.predict(task.graph.select_features(names[:7]))
            unnamed = cg.Graph(task.graph.features, task.graph.edge_index)
            assert torch.equal(fitted.predict(unnamed).score, expected)  # nothing can be said
    content = json.loads((tmp_path / "0" / "method.json").read_text())
    content["feature_names"] = names[:3]
    (tmp_path / "0" / "method.json").write_bytes(to_json(content, allow_nan=True))
    with pytest.raises(MethodError, match="feature_names are not 8 names"):
        load_method(tmp_path / "0", method=Mine)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"engine": "rey"}, "unknown `engine` 'rey'"),
        ({"engine": "ray", "jobs": 2}, "`jobs` is for this machine"),
        ({"address": "localhost:1"}, "add engine='ray'"),
        ({"seeds": 0}, "at least 1"),
        ({"predictions": "some"}, "'none', 'first' or 'all'"),
    ],
)
def test_what_contradicts_itself_is_refused_before_any_work(
    options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        cg.benchmark("digits", "vanilla", out=tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()
