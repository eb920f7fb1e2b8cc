"""The benchmark from outside: what it writes, that it survives whatever stops it, and what it says to bad input."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import multiprocessing
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from sklearn.metrics import roc_auc_score

import credalgnn.experiments.runner as runner
from credalgnn import Graph, Prediction, Task, __version__, benchmark, load_task
from credalgnn.cli import main
from credalgnn.experiments.engines import Processes, Result, Source, Unit
from credalgnn.experiments.execute import ModelCache
from credalgnn.experiments.plan import Run, plan
from credalgnn.methods import ClassicalEnsemble, CredalEnsemble, CredalLJ, Degree, Energy, FeatureSum, Method, Vanilla
from credalgnn.metrics.registry import MARKS
from credalgnn.records import node_tables
from credalgnn.records.folder import Folder
from credalgnn.records.node_tables import columns
from credalgnn.runtime.files import to_json
from inline import Inline

Record = dict[str, Any]

# Networks that are trained for a few epochs have credal sets that say nothing, and warn of it, as they should.
pytestmark = pytest.mark.filterwarnings("ignore::credalgnn.CredalWarning")
SET = ["--set", "epochs=5", "classical-ensemble.size=2", "credal-ensemble.size=2"]
NAMES = ["vanilla", "credal-lj", "classical-ensemble", "credal-ensemble", "energy"]
TRIVIAL = ["feature-sum", "degree"]
CREDAL = ["credal-lj", "credal-ensemble"]
SCORES = {
    "vanilla": ["msp", "entropy"], "credal-lj": ["EU", "AU", "TU"], "classical-ensemble": ["EU", "AU", "TU"],
    "credal-ensemble": ["EU", "AU", "TU"], "energy": ["energy"], "feature-sum": ["score"], "degree": ["score"],
}  # fmt: skip
KEYS = {
    "format", "status", "error", "dataset", "method", "seed", "split_seed", "protocol", "setting", "fingerprint",
    "config", "versions", "class_names", "ood_names", "counts", "headline", "metrics", "scores", "curves", "marks",
    "diagnosis", "seconds", "peak_mib", "finished", "predictions", "checksum",
}  # fmt: skip
OF_CLASSES = ["accuracy", "macro_f1", "nll", "brier", "ece"]
OF_SETS = [
    "accuracy_lower", "accuracy_upper", "width", "widest", "widest_id", "widest_ood", "size_interval_dominance",
    "coverage_interval_dominance", "size_maximality", "coverage_maximality", "size_e_admissibility",
    "coverage_e_admissibility", "u65", "u80",
]  # fmt: skip
MIRROR = Path(os.environ.get("CREDALGNN_MIRROR") or Path(__file__).parents[2] / "shared" / "datasets")


# ---------------------------------------------------------------------------------------------
# Commands and folders
# ---------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def bench(out: Path, *options: str, methods: Sequence[str] = NAMES, seeds: int = 2) -> list[str]:
    """The command of a short benchmark, without the program."""
    trained = [name for name in methods if name not in TRIVIAL]
    if trained and "--set" not in options:
        options = (*options, *(word for word in SET if "." not in word or word.split(".")[0] in trained))
    return ["bench", "-d", "digits", "-m", *methods, "--seeds", str(seeds), "--out", str(out), *options]


def begin(arguments: Sequence[str], **options: Any) -> subprocess.Popen[str]:
    """The command in a session of its own, so that all its processes can be found and stopped."""
    return subprocess.Popen(
        [sys.executable, "-m", "credalgnn", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"}, **{"preexec_fn": heed_ctrl_c, **options},
    )  # fmt: skip


def heed_ctrl_c() -> None:
    """A shell lets its background jobs ignore Ctrl-C, and so whatever they start."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def ended(process: subprocess.Popen[str], timeout: float = 300) -> tuple[int, str, str]:
    """Exit code, stdout and stderr, once all its processes have closed them; none is left if that takes too long."""
    try:
        out, err = process.communicate(timeout=timeout)
    finally:
        stop(process)
    return process.returncode, out, err


def stop(process: subprocess.Popen[str]) -> None:
    if session(process.pid):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def session(number: int) -> dict[int, str]:
    """The living processes of a session, with their command lines."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state, _, _, of = (entry / "stat").read_text().rsplit(")", 1)[1].split()[:4]
                if int(of) == number and state != "Z":
                    found[int(entry.name)] = (entry / "cmdline").read_text()
            except (OSError, ValueError):
                continue
    return found


def workers(number: int) -> list[int]:
    return [process for process, words in session(number).items() if "spawn_main" in words]


def until(condition: Callable[[], Any], what: str, timeout: float = 120) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"waited {timeout} s in vain for {what}"
        time.sleep(0.01)


def places(folder: Path) -> list[Path]:
    return sorted(folder.glob("runs/*/*/*.json"))


def records(folder: Path) -> dict[tuple[str, int], Record]:
    """All records of a folder by method and seed; every file must be whole."""
    found = [json.loads(path.read_text()) for path in places(folder)]
    return {(one["method"], one["seed"]): one for one in found}


def state(folder: Path, status: str = "done") -> dict[Path, tuple[int, int, bytes]]:
    """What must not change: content, time and inode of records with a status, and of predictions beside them."""
    chosen = [path for path in places(folder) if json.loads(path.read_text())["status"] == status]
    return {path: (path.stat().st_mtime_ns, path.stat().st_ino, path.read_bytes()) for path in chosen}


def plain(found: dict[tuple[str, int], Record]) -> dict[tuple[str, int], Record]:
    """Records without what differs from one machine and moment to another."""
    changing = ("seconds", "peak_mib", "finished", "checksum", "predictions")
    return {key: {name: value for name, value in one.items() if name not in changing} for key, one in found.items()}


def numbers(folder: Path) -> list[dict[str, str]]:
    """The lines of the final table that time does not change."""
    with (folder / "table.csv").open() as file:
        return [line for line in csv.DictReader(file) if line["metric"] != "seconds"]


def copied(folder: Path, to: Path, what: Sequence[str] = ("runs", "nodes", "experiment.json")) -> Path:
    to.mkdir()
    for name in what:
        (shutil.copytree if (folder / name).is_dir() else shutil.copy2)(folder / name, to / name)
    return to


@pytest.fixture
def inline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "make_engine", lambda name, address, jobs, source, models: Inline(source, models))


@pytest.fixture
def idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing may be trained."""

    def never(*_: object, **__: object) -> None:
        raise AssertionError("something was done that was done already")

    monkeypatch.setattr(Processes, "start", never)
    monkeypatch.setattr(Method, "fit", never)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole benchmark by two workers, with all predictions."""
    out = tmp_path_factory.mktemp("bench") / "out"
    code, printed, err = ended(begin(bench(out, "--jobs", "2", "--predictions", "all")))
    assert code == 0, err
    assert "Traceback" not in err
    assert len(err.splitlines()) == 14  # a line for every run
    assert all(line.startswith(f"[{number}/14] digits ") for number, line in enumerate(err.splitlines(), 1))
    assert all(name in printed for name in [*NAMES, *TRIVIAL])
    assert str(out / "report.html") in printed
    return out


@pytest.fixture(scope="module")
def task() -> Task:
    return load_task("digits")


@cache
def by_hand(name: str, seed: int) -> Prediction:
    """What the method says to somebody who fits it without any benchmark."""
    task = load_task("digits")
    members = [Vanilla(epochs=5, seed=2 * seed + number) for number in range(2)]
    made: dict[str, Callable[[], Method]] = {
        "vanilla": lambda: Vanilla(epochs=5, seed=seed),
        "credal-lj": lambda: CredalLJ(epochs=5, seed=seed),
        "classical-ensemble": lambda: ClassicalEnsemble(members=members),
        "credal-ensemble": lambda: CredalEnsemble(members=members),
        "energy": lambda: Energy(model=Vanilla(epochs=5, seed=seed)),
        "feature-sum": FeatureSum,
        "degree": Degree,
    }
    return made[name]().fit(task).predict()


# ---------------------------------------------------------------------------------------------
# What is written
# ---------------------------------------------------------------------------------------------


def test_a_finished_folder_holds_what_is_promised_and_nothing_else(finished: Path) -> None:
    top = {path.name for path in finished.iterdir() if not path.name.startswith(".")}
    assert top == {"experiment.json", "runs", "nodes", "table.md", "table.csv", "table.tex", "report.html"}
    assert [str(path.relative_to(finished)) for path in places(finished)] == sorted(
        f"runs/digits/{name}/seed-{seed:03d}.json" for name in [*NAMES, *TRIVIAL] for seed in range(2)
    )
    assert not [path for path in finished.rglob("*") if path.suffix in (".part", ".tmp")]
    experiment = json.loads((finished / "experiment.json").read_text())
    assert (experiment["protocol"], experiment["setting"]) == ("sealed", "transductive")
    page = (finished / "report.html").read_text()
    assert "<html" in page
    assert all(name in page for name in [*NAMES, *TRIVIAL])


def test_records_hold_what_is_promised(finished: Path, task: Task) -> None:
    for (name, seed), found in records(finished).items():
        assert set(found) == KEYS
        assert (found["format"], found["status"], found["error"]) == (3, "done", None)
        assert (found["dataset"], found["method"], found["seed"], found["split_seed"]) == ("digits", name, seed, 0)
        assert (found["protocol"], found["setting"]) == ("sealed", "transductive")
        assert found["fingerprint"] == task.fingerprint
        assert {"credalgnn", "python", "torch", "numpy"} <= set(found["versions"])
        assert found["class_names"] == [str(k) for k in range(8)]
        assert found["ood_names"] == ["8", "9"]
        assert found["counts"] == task.counts
        assert list(found["scores"]) == SCORES[name]
        assert found["headline"] == SCORES[name][0]
        assert set(found["marks"]) <= set(MARKS)
        assert datetime.fromisoformat(found["finished"]).utcoffset() is not None
        assert found["seconds"]["fit"] >= 0 <= found["seconds"]["predict"]
        assert 50 < found["peak_mib"] < 20_000
        wanted = OF_CLASSES + (OF_SETS if name in CREDAL else [])
        assert set(found["metrics"]) == set(wanted)
        assert all((found["metrics"][one] is None) == (name in TRIVIAL) for one in wanted)
        for values in found["scores"].values():
            assert set(values) == {"auroc", "aupr", "fpr95", "misclassification_auroc", "aurc", "shifted_auroc"}
            assert all(0 <= values[one] <= 1 for one in ("auroc", "aupr", "fpr95"))
            assert (values["aurc"] is None) == (name in TRIVIAL)
        curves = found["curves"]
        assert set(curves) == {"roc", "rejection", "histogram", "training"}
        assert set(curves["roc"]) == set(curves["histogram"]) == set(SCORES[name])
        assert set(curves["rejection"]) == (set() if name in TRIVIAL else set(SCORES[name]))
        assert {len(curve) for curve in curves["roc"].values()} == {101}
        assert {len(curve) for curve in curves["rejection"].values()} <= {50}
        for histogram in curves["histogram"].values():
            assert (len(histogram["edges"]), sum(histogram["id"]), sum(histogram["ood"])) == (
                31, task.counts["test_id"], task.counts["test_ood"],
            )  # fmt: skip
        trained = name in ("vanilla", "credal-lj")
        assert len(curves["training"]) >= (5 if trained else 0)
        assert all(len(line) == 3 for line in curves["training"])
        assert trained or curves["training"] == []


def test_records_hold_every_hyper_parameter(finished: Path) -> None:
    found = records(finished)
    for seed in range(2):
        assert found["vanilla", seed]["config"]["epochs"] == found["credal-lj", seed]["config"]["epochs"] == 5
        assert found["vanilla", seed]["config"]["lr"] == Vanilla().lr
        assert found["credal-lj", seed]["config"]["delta"] == CredalLJ().delta
        assert found["energy", seed]["config"] == {"temperature": 1.0, "vanilla": found["vanilla", seed]["config"]}
        for name in ("classical-ensemble", "credal-ensemble"):
            assert found[name, seed]["config"] == {"size": 2, "vanilla": found["vanilla", seed]["config"]}
        assert found["degree", seed]["config"] == {}


@pytest.mark.parametrize("name", [*NAMES, *TRIVIAL])
def test_numbers_are_those_of_fitting_by_hand(name: str, finished: Path, task: Task) -> None:
    """Exactly: the benchmark adds nothing to a method and takes nothing away."""
    test, known = task.test, ~task.test.is_ood
    for seed in range(2):
        found, record = by_hand(name, seed), records(finished)[name, seed]
        for score, values in found.scores.items():
            expected = roc_auc_score(test.is_ood.numpy(), values[test.nodes].numpy())
            assert record["scores"][score]["auroc"] == expected
        if found.probabilities is not None:
            right = found.classes[test.nodes[known]] == test.labels[known]
            assert record["metrics"]["accuracy"] == right.double().mean().item()


def test_the_table_is_the_mean_of_the_records(finished: Path) -> None:
    found = records(finished)
    for line in numbers(finished):
        values = []
        for seed in range(2):
            one = found[line["method"], seed]
            values.append({**one["metrics"], **one["scores"][line["score"]]}[line["metric"]])
        assert float(line["mean"]) == pytest.approx(np.mean(values), rel=1e-5, abs=1e-9)
        assert int(line["seeds"]) == 2
    assert {line["method"] for line in numbers(finished)} == {*NAMES, *TRIVIAL}


def test_one_worker_finds_the_same_as_two(finished: Path, tmp_path: Path) -> None:
    assert main(bench(tmp_path / "out", "--jobs", "1", "--predictions", "none")) == 0
    assert plain(records(tmp_path / "out")) == plain(records(finished))
    assert numbers(tmp_path / "out") == numbers(finished)
    assert not (tmp_path / "out" / "nodes").exists()


# ---------------------------------------------------------------------------------------------
# Predictions per node
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*NAMES, *TRIVIAL])
def test_predictions_per_node(name: str, finished: Path, task: Task) -> None:
    parts = {"val": task.validation, "test": task.test}
    nodes = torch.cat([part.nodes for part in parts.values()])
    labels = torch.cat([part.labels for part in parts.values()])
    for seed in range(2):
        table = pq.read_table(finished / "nodes" / "digits" / name / f"seed-{seed:03d}.parquet")
        found = by_hand(name, seed)
        columns = ["node", "split", "label", "class", "ood", "prediction", *(f"score_{one}" for one in SCORES[name])]
        columns += [] if name in TRIVIAL else [f"p_{k}" for k in range(8)]
        columns += [f"{side}_{k}" for side in ("lower", "upper") for k in range(8)] if name in CREDAL else []
        assert sorted(table.column_names) == sorted(columns)
        types = dict(zip(table.schema.names, table.schema.types, strict=True))
        for column in columns:
            if column in ("node", "label", "prediction"):
                assert types.pop(column) == pa.int64()
            elif column in ("split", "class"):
                assert pa.types.is_string(types.pop(column))
            elif column == "ood":
                assert pa.types.is_boolean(types.pop(column))
            else:
                assert types.pop(column) == pa.float64()
        rows = {row["node"]: row for row in table.to_pylist()}
        assert len(rows) == table.num_rows == len(nodes)
        assert set(rows) == set(nodes.tolist())
        for split, part in parts.items():
            assert {node for node, row in rows.items() if row["split"] == split} == set(part.nodes.tolist())
        for node, label in zip(nodes.tolist(), labels.tolist(), strict=True):
            row = rows[node]
            assert (row["label"], row["ood"]) == (label, label < 0)
            assert row["class"] == task.graph.class_names[int(task.graph.labels[node])]
            assert all(row[f"score_{one}"] == found.scores[one][node].item() for one in SCORES[name])
            if found.probabilities is None:
                assert row["prediction"] is None
                continue
            assert row["prediction"] == found.classes[node].item()
            assert [row[f"p_{k}"] for k in range(8)] == found.probabilities[node].tolist()
            if name in CREDAL:
                lower, upper = ([row[f"{side}_{k}"] for k in range(8)] for side in ("lower", "upper"))
                assert all(0 <= low <= high <= 1 for low, high in zip(lower, upper, strict=True))
                assert sum(lower) <= 1 + 1e-6 <= sum(upper) + 2e-6


def test_reasons_are_kept_with_the_predictions_of_a_method_that_gives_them(
    task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Telling(Degree):
        def reasons(self, nodes: torch.Tensor, graph: Graph | None = None) -> list[str]:
            return [f"it is {node}" if node % 2 else "" for node in nodes.tolist()]

    silent, telling = Degree().fit(task), Telling().fit(task)
    found = silent.predict()
    assert silent.reasons(found.nodes) is None
    assert "reasons" not in columns(found, task, silent)
    table = columns(found, task, telling)
    assert table["reasons"] == [f"it is {node}" if node % 2 else "" for node in table["node"]]
    folder = Folder(tmp_path)
    path = folder.predictions("digits", "degree", 0)
    folder.write_nodes(path, table)
    kept = pq.read_table(path)
    assert pa.types.is_string(kept.schema.field("reasons").type)
    assert kept["reasons"].to_pylist() == table["reasons"]
    monkeypatch.setattr(node_tables, "REASONS", len(table["node"]) - 1)
    assert "reasons" not in columns(found, task, telling)  # of large graphs they would take too long


def test_facts_of_the_graph(finished: Path, task: Task) -> None:
    table = pq.read_table(finished / "nodes" / "digits" / "graph.parquet")
    assert table.schema.field("node").type == table.schema.field("degree").type == pa.int64()
    assert table.schema.field("homophily").type == pa.float64()
    assert table.schema.field("neighbours").type.value_type == pa.int64()
    assert pa.types.is_string(table.schema.field("neighbour_classes").type.value_type)
    rows = {row["node"]: row for row in table.to_pylist()}
    assert set(rows) == {*task.validation.nodes.tolist(), *task.test.nodes.tolist()}
    source, target = task.graph.edge_index.tolist()
    labels = task.graph.labels.tolist()
    near: dict[int, list[int]] = {node: [] for node in rows}
    for one, other in zip(source, target, strict=True):
        if other in near:
            near[other].append(one)
    for node, row in rows.items():
        assert row["degree"] == len(near[node])
        alike = sum(labels[one] == labels[node] for one in near[node])
        assert row["homophily"] == (pytest.approx(alike / len(near[node])) if near[node] else None)
        assert len(row["neighbours"]) == min(len(near[node]), 30)
        assert set(row["neighbours"]) <= set(near[node])
        assert row["neighbour_classes"] == [task.graph.class_names[labels[one]] for one in row["neighbours"]]


@pytest.mark.usefixtures("inline")
def test_how_many_predictions_are_kept(tmp_path: Path) -> None:
    for kept, expected in (("none", []), ("first", [0]), (None, [0]), ("all", [0, 1])):
        out = tmp_path / str(kept)
        assert main(bench(out, *(["--predictions", kept] if kept else []), methods=["degree"])) == 0
        found = sorted(str(path.relative_to(out)) for path in out.rglob("*.parquet"))
        names = [
            f"nodes/digits/{name}/seed-{seed:03d}.parquet" for name in ("degree", "feature-sum") for seed in expected
        ]
        assert found == sorted([*names, *(["nodes/digits/graph.parquet"] if expected else [])])


@pytest.mark.usefixtures("inline")
def test_facts_of_the_graph_are_there_for_every_split(tmp_path: Path) -> None:
    """Each seed has other validation and test nodes, and the graph's table knows all of them."""
    assert main(bench(tmp_path / "out", "--vary-split", "--predictions", "all", methods=["degree"], seeds=3)) == 0
    folder = tmp_path / "out" / "nodes" / "digits"
    known = set(pq.read_table(folder / "graph.parquet")["node"].to_pylist())
    for seed in range(3):
        assert set(pq.read_table(folder / "degree" / f"seed-{seed:03d}.parquet")["node"].to_pylist()) <= known


# ---------------------------------------------------------------------------------------------
# Hyper-parameters, splits, protocols
# ---------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("inline")
def test_hyper_parameters_of_all_and_of_one(tmp_path: Path) -> None:
    options = ["--set", "epochs=3", "energy.lr=0.1", "energy.temperature=2.0", "credal-lj.delta=0.25"]
    assert main(bench(tmp_path / "out", *options, methods=["vanilla", "energy", "credal-lj"], seeds=1)) == 0
    found = records(tmp_path / "out")
    configs = {name: found[name, 0]["config"] for name in ("vanilla", "energy", "credal-lj")}
    assert configs["vanilla"] == {**configs["energy"]["vanilla"], "lr": Vanilla().lr}
    assert configs["energy"]["vanilla"]["lr"] == 0.1
    assert configs["energy"]["temperature"] == 2.0
    assert configs["credal-lj"]["delta"] == 0.25
    assert all(one["epochs"] == 3 for one in (configs["vanilla"], configs["credal-lj"], configs["energy"]["vanilla"]))


@pytest.mark.usefixtures("inline")
def test_set_may_be_given_more_than_once(tmp_path: Path) -> None:
    """Nothing that was asked for is dropped in silence."""
    assert main(bench(tmp_path / "out", "--set", "epochs=3", "--set", "lr=0.1", methods=["vanilla"], seeds=1)) == 0
    config = records(tmp_path / "out")["vanilla", 0]["config"]
    assert (config["epochs"], config["lr"]) == (3, 0.1)


@pytest.mark.usefixtures("inline")
def test_the_paper_s_protocol(tmp_path: Path) -> None:
    methods = ["vanilla", "credal-lj", "energy"]
    assert main(bench(tmp_path / "out", "--protocol", "paper", methods=methods, seeds=1)) == 0
    found = records(tmp_path / "out")
    assert {one["protocol"] for one in found.values()} == {"paper"}
    assert found["credal-lj", 0]["config"]["monitor"] == "ood_auroc"
    assert found["credal-lj", 0]["config"]["half_length_decay"] == 0.0
    assert found["vanilla", 0]["config"]["monitor"] == "id_f1"


@pytest.fixture(scope="module")
def inductive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A benchmark whose graphs grow after training."""
    out = tmp_path_factory.mktemp("inductive") / "out"
    arguments = bench(out, "--setting", "inductive", "--jobs", "1", methods=["vanilla", "credal-lj", "energy"], seeds=1)
    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(printed):
        patch.setattr(runner, "make_engine", lambda name, address, jobs, source, models: Inline(source, models))
        assert main(arguments) == 0
    assert printed.getvalue().startswith("Protocol: sealed. Setting: inductive.")
    return out


def test_the_inductive_setting(inductive: Path) -> None:
    """Exactly what somebody gets who fits and judges by hand."""
    task = load_task("digits", inductive=True)
    found = records(inductive)
    assert {name for name, _ in found} == {"vanilla", "credal-lj", "energy", *TRIVIAL}
    assert json.loads((inductive / "experiment.json").read_text())["setting"] == "inductive"
    for made in (Vanilla(epochs=5), CredalLJ(epochs=5), Energy(model=Vanilla(epochs=5)), Degree()):
        record, prediction = found[made.name, 0], made.fit(task).predict()
        assert (record["setting"], record["protocol"]) == ("inductive", "sealed")
        assert record["fingerprint"] == task.fingerprint
        assert record["counts"] == load_task("digits").counts
        for score, values in prediction.scores.items():
            expected = roc_auc_score(task.test.is_ood.numpy(), values[task.test.nodes].numpy())
            assert record["scores"][score]["auroc"] == expected
    table = pq.read_table(inductive / "nodes" / "digits" / "energy" / "seed-000.parquet").to_pydict()
    assert set(table["node"]) == {*task.validation.nodes.tolist(), *task.test.nodes.tolist()}


@pytest.mark.usefixtures("idle")
def test_folders_of_both_settings_are_reported_side_by_side(finished: Path, inductive: Path, tmp_path: Path) -> None:
    assert main(["report", str(finished), str(inductive), "--out", str(tmp_path / "both")]) == 0
    found = {(line["setting"], line["method"]): line["seeds"] for line in numbers(tmp_path / "both")}
    assert found["transductive", "energy"] == "2"
    assert found["inductive", "energy"] == "1"
    assert "digits (inductive) AUROC" in (tmp_path / "both" / "table.md").read_text()
    page = (tmp_path / "both" / "report.html").read_text()
    assert '"setting":"inductive"' in page
    assert '"setting":"transductive"' in page


@pytest.mark.usefixtures("inline")
def test_splits(tmp_path: Path) -> None:
    """One for all seeds, or one for each."""
    assert main(bench(tmp_path / "one", "--split-seed", "1", methods=["degree"])) == 0
    assert main(bench(tmp_path / "many", "--vary-split", methods=["degree"])) == 0
    one, many = records(tmp_path / "one"), records(tmp_path / "many")
    assert [one["degree", seed]["split_seed"] for seed in range(2)] == [1, 1]
    assert [many["degree", seed]["split_seed"] for seed in range(2)] == [0, 1]
    prints = [load_task("digits", seed).fingerprint for seed in range(2)]
    assert [many["degree", seed]["fingerprint"] for seed in range(2)] == prints
    assert one["degree", 0]["scores"] == one["degree", 1]["scores"] == many["degree", 1]["scores"]


@pytest.mark.usefixtures("inline")
@pytest.mark.skipif(not MIRROR.is_dir(), reason="needs the raw files: set CREDALGNN_MIRROR")
def test_public_splits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    places = ["--mirror", str(MIRROR), "--data-root", str(tmp_path / "cache"), "--vary-split", "--predictions", "none"]
    arguments = ["bench", "-d", "chameleon", "-m", "degree", *places]
    assert main([*arguments, "--seeds", "3", "--out", str(tmp_path / "out")]) == 0
    found = records(tmp_path / "out")
    assert [found["degree", seed]["split_seed"] for seed in range(3)] == [0, 1, 2]
    assert len({found["degree", seed]["fingerprint"] for seed in range(3)}) == 3
    capsys.readouterr()
    assert "10" in refused([*arguments, "--seeds", "11", "--out", str(tmp_path / "more")], capsys)
    assert not (tmp_path / "more").exists()


# ---------------------------------------------------------------------------------------------
# Going on
# ---------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("idle")
def test_a_finished_benchmark_does_nothing_again(finished: Path, tmp_path: Path) -> None:
    out = copied(finished, tmp_path / "out")
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in out.rglob("*") if path.is_file()}
    assert main(bench(out, "--jobs", "2", "--predictions", "all")) == 0
    assert {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in before} == before
    assert numbers(out) == numbers(finished)
    assert (out / "report.html").is_file()


@pytest.mark.usefixtures("inline")
def test_more_seeds_and_methods_add_to_a_folder(finished: Path, tmp_path: Path) -> None:
    """Only what is new is done. What the page and the tables show is all that is there."""
    out = copied(finished, tmp_path / "out")
    before = state(out)
    assert main(bench(out, *SET, methods=["vanilla", "classical-ensemble", "credal-ensemble", "knn"], seeds=3)) == 0
    found = records(out)
    assert len(found) == 14 + 6 + 2  # one seed more of three methods and two baselines, three of knn less its third
    assert {path: value for path, value in state(out).items() if path in before} == before
    assert {line["method"] for line in numbers(out)} == {*NAMES, *TRIVIAL, "knn"}


@pytest.mark.usefixtures("inline")
def test_a_deleted_record_is_made_again(finished: Path, tmp_path: Path) -> None:
    out = copied(finished, tmp_path / "out")
    lost = out / "runs" / "digits" / "energy" / "seed-001.json"
    lost.unlink()
    before = state(out)
    assert main(bench(out)) == 0
    assert {path: value for path, value in state(out).items() if path != lost} == before
    assert plain(records(out)) == plain(records(finished))


def test_a_failure_does_not_take_the_place_of_what_was_finished(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run is done again for its predictions alone, and its worker dies."""

    class Deadly(Inline):
        def finished(self, timeout: float) -> list[Result]:
            return [Result(one.unit, None, "signal 9") for one in super().finished(timeout)]

    out = copied(finished, tmp_path / "out")
    lost = out / "nodes" / "digits" / "energy" / "seed-000.parquet"
    lost.unlink()
    before = state(out)
    with monkeypatch.context() as patch:
        patch.setattr(runner, "make_engine", lambda name, address, jobs, source, models: Deadly(source, models))
        assert main(bench(out)) == 1
    assert state(out) == before
    monkeypatch.setattr(runner, "make_engine", lambda name, address, jobs, source, models: Inline(source, models))
    assert main(bench(out)) == 0
    assert lost.exists()


@pytest.mark.usefixtures("idle")
def test_facts_of_the_graph_that_were_deleted_are_made_again(finished: Path, tmp_path: Path) -> None:
    out = copied(finished, tmp_path / "out")
    facts = out / "nodes" / "digits" / "graph.parquet"
    whole = facts.read_bytes()
    facts.unlink()
    assert main(bench(out)) == 0
    assert facts.read_bytes() == whole


def test_leftovers_of_a_kill_are_no_trouble(finished: Path, tmp_path: Path, inline: None) -> None:
    """Killed while a file was being written: a part of it lies beside its place."""
    out = copied(finished, tmp_path / "out")
    (out / "runs" / "digits" / "energy" / ".seed-000.json.4711.part").write_text('{"format"')
    assert main(bench(out)) == 0
    early = tmp_path / "early"
    early.mkdir()
    (early / ".lock").touch()
    (early / ".experiment.json.4711.part").write_text('{"form')
    assert main(bench(early, methods=["degree"], seeds=1)) == 0


# ---------------------------------------------------------------------------------------------
# What goes wrong
# ---------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("inline")
def test_a_failing_run_is_recorded_and_tried_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = bench(tmp_path, "--set", "epochs=5", "credal-lj.lr=1e30", methods=["vanilla", "credal-lj"])
    assert main(arguments) == 1
    err = capsys.readouterr().err
    assert "2 of 8 runs failed" in err
    assert "Traceback" not in err
    found = records(tmp_path)
    assert {key for key, one in found.items() if one["status"] == "failed"} == {("credal-lj", 0), ("credal-lj", 1)}
    kept = {
        "status",
        "error",
        "dataset",
        "method",
        "seed",
        "split_seed",
        "protocol",
        "setting",
        "config",
        "versions",
        "fingerprint",
    }
    for seed in range(2):
        assert kept | {"finished"} <= set(found["credal-lj", seed])
        assert "TrainingError" in found["credal-lj", seed]["error"]
        assert found["credal-lj", seed]["config"]["lr"] == 1e30
    good, bad = state(tmp_path), state(tmp_path, "failed")
    assert len(good) == 6
    assert main(arguments) == 1
    assert state(tmp_path) == good
    assert not set(bad.values()) & set(state(tmp_path, "failed").values())
    assert "fail" in (tmp_path / "table.md").read_text()


def test_a_killed_worker_costs_only_its_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system may kill a process for its memory; another one goes on, and the next command mends the rest."""
    arguments = bench(
        tmp_path, "--jobs", "1", "--set", "epochs=5", "credal-lj.lr=1e30", methods=["energy", "credal-lj"]
    )
    process = begin(arguments)
    until(lambda: workers(process.pid), "a worker")
    os.kill(workers(process.pid)[0], signal.SIGKILL)
    code, _, err = ended(process)
    assert code == 1, err
    assert "Traceback" not in err
    found = records(tmp_path)
    assert len(found) == 8
    bad = {key: one["error"] for key, one in found.items() if one["status"] == "failed"}
    killed = [key for key, error in bad.items() if "SIGKILL" in error]
    assert len(killed) == 1
    assert {*bad} - {*killed} == {("credal-lj", 0), ("credal-lj", 1)} - {*killed}
    assert all("TrainingError" in error for key, error in bad.items() if key not in killed)
    monkeypatch.setattr(runner, "make_engine", lambda name, address, jobs, source, models: Inline(source, models))
    good = state(tmp_path)
    assert main(arguments) == 1
    assert {path: value for path, value in state(tmp_path).items() if path in good} == good
    assert {key for key, one in records(tmp_path).items() if one["status"] == "failed"} == {
        ("credal-lj", 0), ("credal-lj", 1),
    }  # fmt: skip


def _nothing(run: Run, task: Task, models: ModelCache) -> int:
    return os.getpid()


@pytest.mark.slow
def test_a_worker_that_dies_between_two_runs_is_replaced(tmp_path: Path) -> None:
    unit = Unit(_nothing, plan("digits", "degree", 0))
    with Processes(1, Source(), tmp_path / "models") as engine:
        engine.start(unit)
        results: list[Result] = []
        until(lambda: results.extend(engine.finished(0.1)) or results, "a result")
        os.kill(results[0].value, signal.SIGKILL)
        until(lambda: not any(child.is_alive() for child in multiprocessing.active_children()), "its death")
        engine.start(unit)
        again: list[Result] = []
        until(lambda: again.extend(engine.finished(0.1)) or again, "another result")
        if again[0].error is None:
            assert again[0].value != results[0].value
        else:
            assert "SIGKILL" in again[0].error


def test_a_time_limit_leaves_the_rest_for_later(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = bench(tmp_path, "--jobs", "1", methods=["credal-lj"])
    begun = time.monotonic()
    assert main([*arguments, "--time-limit", "1s"]) == 1
    assert time.monotonic() - begun < 20
    err = capsys.readouterr().err
    assert "of 6 runs are left" in err
    assert "Traceback" not in err
    assert not multiprocessing.active_children()
    assert not state(tmp_path, "failed")
    before = state(tmp_path)
    assert len(before) < 6
    monkeypatch.setattr(runner, "make_engine", lambda name, address, jobs, source, models: Inline(source, models))
    assert main([*arguments, "--time-limit", "1h30m"]) == 0
    assert len(state(tmp_path)) == 6
    assert {path: value for path, value in state(tmp_path).items() if path in before} == before


def interrupted(process: subprocess.Popen[str], others: Sequence[int] = ()) -> None:
    """Ctrl-C, as a terminal sends it to all at once: one line, exit code 130, nothing left running."""
    for number in others:
        os.kill(number, signal.SIGINT)
    time.sleep(0.5 if others else 0.0)  # they hear of it before the command does
    os.kill(process.pid, signal.SIGINT)
    code, out, err = ended(process, 60)
    assert code == 130, err
    *before, last = err.splitlines()
    assert last.startswith("credalgnn: stopped; what was finished is kept"), err
    assert all(line.startswith("[") for line in before), err
    assert out == ""


LONG = ["--jobs", "1", "--set", "epochs=20"]  # options of a benchmark that is to be interrupted


def test_ctrl_c(tmp_path: Path) -> None:
    process = begin(bench(tmp_path, *LONG, methods=["credal-lj", "vanilla"], seeds=50))
    until(lambda: len(places(tmp_path)) >= 2, "two records")
    interrupted(process, workers(process.pid))
    assert 2 <= len(state(tmp_path)) == len(places(tmp_path)) < 200
    assert not state(tmp_path, "failed")


@pytest.mark.slow
def test_ctrl_c_while_workers_start(tmp_path: Path) -> None:
    process = begin(bench(tmp_path, *LONG, methods=["credal-lj", "vanilla"], seeds=50))
    until(lambda: workers(process.pid), "a worker")
    time.sleep(1.0)  # to import torch takes longer
    interrupted(process, workers(process.pid))
    assert not state(tmp_path, "failed")


@pytest.mark.slow
def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No file may grow beyond 4 KiB: the record of credal-lj cannot be written."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

    arguments = bench(tmp_path, "--jobs", "1", "--predictions", "none", methods=["credal-lj"], seeds=1)
    code, _, err = ended(begin(arguments, preexec_fn=limit))
    assert code == 2, err
    *before, last = err.splitlines()
    assert last.startswith("credalgnn: ")
    assert str(tmp_path) in last  # where there is no room
    assert all(line.startswith("[") for line in before), err
    assert ("credal-lj", 0) not in records(tmp_path)
    assert not list(tmp_path.rglob("*.part"))
    monkeypatch.setattr(runner, "make_engine", lambda name, address, jobs, source, models: Inline(source, models))
    assert main(arguments) == 0
    assert len(state(tmp_path)) == 3


def torture(out: Path, arguments: Sequence[str], waits: Sequence[Callable[[Path], None]]) -> None:
    """Kill the command again and again; whatever was finished stays as it is, and no process outlives it."""
    done: dict[Path, tuple[int, int, bytes]] = {}
    for wait in waits:
        process = begin(arguments)
        try:
            wait(out)
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            until(lambda number=process.pid: not session(number), "the end of the workers", 30)  # type: ignore[misc]
        finally:
            stop(process)
            process.communicate()
        found = state(out)
        assert {path: value for path, value in found.items() if path in done} == done
        assert not state(out, "failed")
        done = found


def as_if_nothing_had_happened(out: Path, finished: Path) -> None:
    assert plain(records(out)) == plain(records(finished))
    assert numbers(out) == numbers(finished)
    for path in finished.glob("nodes/**/*.parquet"):
        assert pq.read_table(out / path.relative_to(finished)).equals(pq.read_table(path))


def test_kill_nine(finished: Path, tmp_path: Path, inline: None) -> None:
    """In the middle of the work; in the end all is as if nothing had happened. At any other moment: the next one."""

    def while_it_works(out: Path) -> None:
        until(lambda: len(places(out)) >= 4, "four records")
        time.sleep(random.Random(time.time_ns()).uniform(0, 0.5))

    arguments = bench(tmp_path, "--jobs", "2", "--predictions", "all")
    torture(tmp_path, arguments, [while_it_works])
    before = state(tmp_path)
    assert main(arguments) == 0
    assert {path: value for path, value in state(tmp_path).items() if path in before} == before
    as_if_nothing_had_happened(tmp_path, finished)


@pytest.mark.slow
def test_kill_nine_many_times(finished: Path, tmp_path: Path) -> None:
    """At any moment, from the first import to the last table."""
    rng = random.Random(time.time_ns())

    def at_any_time(out: Path) -> None:
        time.sleep(rng.uniform(0, 12))

    def after_one_more(out: Path) -> None:
        count = len(places(out))
        deadline = time.monotonic() + 30
        while len(places(out)) <= count < 14 and time.monotonic() < deadline:
            time.sleep(0.001)
        time.sleep(rng.uniform(0, 0.3))

    arguments = bench(tmp_path, "--jobs", "2", "--predictions", "all")
    torture(tmp_path, arguments, [rng.choice([at_any_time, after_one_more]) for _ in range(15)])
    before = state(tmp_path)
    code, _, err = ended(begin(arguments))
    assert code == 0, err
    assert {path: value for path, value in state(tmp_path).items() if path in before} == before
    as_if_nothing_had_happened(tmp_path, finished)


@pytest.mark.slow
def test_two_benchmarks_share_a_folder(tmp_path: Path) -> None:
    """Started at the same time: both work, each run is done once, and both end well."""
    methods = ["vanilla", "credal-lj", "energy"]
    arguments = bench(tmp_path, "--jobs", "1", "--predictions", "none", methods=methods, seeds=4)
    both = [begin(arguments) for _ in range(2)]
    seen: dict[Path, set[tuple[int, int]]] = {}
    together = False
    try:
        deadline = time.monotonic() + 200
        while any(process.poll() is None for process in both):
            assert time.monotonic() < deadline
            together |= all(workers(process.pid) for process in both)
            for path in places(tmp_path):
                seen.setdefault(path, set()).add((path.stat().st_ino, path.stat().st_mtime_ns))
            time.sleep(0.01)
    finally:
        results = [ended(process) for process in both]
    for code, _, err in results:
        assert code == 0, err
        assert "Traceback" not in err
    assert len(seen) == 20
    assert {len(versions) for versions in seen.values()} == {1}
    assert together, "one waited until the other had done everything"
    assert not (tmp_path / "models").exists()


# ---------------------------------------------------------------------------------------------
# Bad input
# ---------------------------------------------------------------------------------------------


def refused(arguments: Sequence[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The one line that says what is wrong."""
    try:
        code: Any = main(arguments)
    except SystemExit as left:
        code = left.code
    out, err = capsys.readouterr()
    assert code == 2, err
    assert err.startswith("credalgnn: ")
    assert len(err.splitlines()) == 1, err
    assert out == ""
    return err


BAD: dict[str, tuple[list[str], str]] = {
    "unknown method": (["-m", "nonsense"], "nonsense"),
    "unknown method beside all": (["-m", "all", "nonsense"], "nonsense"),
    "unknown data set": (["-d", "nonsense"], "nonsense"),
    "unknown hyper-parameter": (["--set", "nonsense=1"], "nonsense"),
    "of a method that has none": (["--set", "degree.lr=1"], "lr"),
    "of a method that is not chosen": (["--set", "knn.k=1"], "knn"),
    "of an unknown method": (["--set", "nonsense.lr=1"], "nonsense"),
    "bad value": (["--set", "lr=-1"], "lr"),
    "bad kind of value": (["--set", "hidden=many"], "hidden"),
    "value of another type": (["--set", "epochs=2.5"], "epochs"),
    "infinite value": (["--set", "lr=1e999"], "lr"),
    "no value": (["--set", "lr"], "lr"),
    "no name": (["--set", "=0.1"], "=0.1"),
    "empty value": (["--set", "lr="], "lr"),
    "peeking": (["--set", "monitor=ood_auroc"], "sealed"),
    "seed as hyper-parameter": (["--set", "seed=3"], "seed"),
    "no jobs": (["--jobs", "0"], "--jobs"),
    "jobs of text": (["--jobs", "two"], "--jobs"),
    "no seeds": (["--seeds", "0"], "--seeds"),
    "bad time": (["--time-limit", "soon"], "soon"),
    "no time": (["--time-limit", ""], "--time-limit"),
    "time without a unit": (["--time-limit", "1h30"], "1h30"),
    "bad engine": (["--engine", "cloud"], "cloud"),
    "address of nothing": (["--address", "localhost:1"], "--engine ray"),
    "bad protocol": (["--protocol", "open"], "open"),
    "bad setting": (["--setting", "seductive"], "seductive"),
    "inductive by the paper's protocol": (["--setting", "inductive", "--protocol", "paper"], "transductive"),
    "bad predictions": (["--predictions", "some"], "some"),
    "bad split": (["--split-seed", "-1"], "-1"),
    "mirror that is not there": (["--mirror", "/nonsense"], "/nonsense"),
}


@pytest.mark.parametrize("case", list(BAD))
def test_bad_input(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], idle: None) -> None:
    """One line that names the culprit; nothing is written, so that the next command finds no trace of it."""
    options, word = BAD[case]
    if case == "mirror that is not there":
        options = [*options, "-d", "chameleon", "--data-root", str(tmp_path / "cache")]
    given = ["bench", "-d", "digits", "-m", "vanilla", "--seeds", "1", "--out", str(tmp_path / "out"), *options]
    assert word in refused(given, capsys)
    assert not (tmp_path / "out").exists()


def test_bad_input_from_outside(tmp_path: Path) -> None:
    code, out, err = ended(begin(["bench", "-d", "digits", "--out", str(tmp_path / "out"), "--jobs", "0"]))
    assert (code, out) == (2, "")
    assert err.startswith("credalgnn: ")
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("arguments", [["bench"], ["bench", "-d", "digits"], ["bench", "--out", "x"], ["report"]])
def test_what_must_be_given(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    refused(arguments, capsys)


@pytest.mark.usefixtures("idle")
def test_places_that_cannot_be_worked_in(finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    assert str(file) in refused(bench(file), capsys)
    assert str(file) in refused(bench(file / "below"), capsys)
    assert file.read_text() == "mine"
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "thesis.tex").write_text("mine")
    assert str(foreign) in refused(bench(foreign), capsys)
    assert [path.name for path in foreign.iterdir() if not path.name.startswith(".")] == ["thesis.tex"]


def test_an_experiment_goes_on_after_an_upgrade(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the older version has finished is not done again, and its version stays recorded."""
    monkeypatch.setattr(runner, "make_engine", lambda name, address, jobs, source, models: Inline(source, models))
    options = {"out": tmp_path / "out", "predictions": "none", "progress": False}
    with monkeypatch.context() as older:
        for module in ("records.folder", "experiments.execute"):
            older.setattr(f"credalgnn.{module}.__version__", "0.0.1")
        first = benchmark("digits", "degree", seeds=1, **options)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("runs/*/*/*.json")}
    second = benchmark("digits", "degree", seeds=2, **options)
    assert len(before) == len(first.records) == 2
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert {record["seed"]: record["versions"]["credalgnn"] for record in second.records} == {
        0: "0.0.1",
        1: __version__,
    }
    assert json.loads((tmp_path / "out" / "experiment.json").read_text())["credalgnn"] == "0.0.1"


@pytest.mark.usefixtures("idle")
@pytest.mark.parametrize(
    "options",
    [
        ["--protocol", "paper", *SET],
        ["--setting", "inductive", *SET],
        ["--set", "epochs=6", *SET[2:]],
        ["--set", "epochs=5", *SET[2:], "credal-lj.delta=0.5"],
        ["--split-seed", "1", *SET],
        ["--vary-split", *SET],
    ],
)
def test_another_experiment_in_the_folder(
    options: list[str], finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Other settings would make a table of things that cannot be compared."""
    out = copied(finished, tmp_path / "out")
    before = state(out)
    assert str(out) in refused(bench(out, *options), capsys)
    assert state(out) == before


@pytest.mark.usefixtures("idle")
@pytest.mark.parametrize(
    "change",
    [
        {"fingerprint": "00"},
        {"config": {"lr": 7}},
        {"seed": 1},
        {"method": "energy"},
        {"dataset": "csbm"},
        {"split_seed": 1},
        {"setting": "inductive"},
    ],
)
def test_records_of_other_runs(
    change: Record, finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the place of a run's record is one of other data, other hyper-parameters, or another run."""
    out = copied(finished, tmp_path / "out")
    place = out / "runs" / "digits" / "vanilla" / "seed-000.json"
    place.write_bytes(to_json({**json.loads(place.read_text()), **change}))
    assert str(place) in refused(bench(out), capsys)


def damaged_files(folder: Path) -> Iterator[tuple[Path, bytes]]:
    """Files of a folder, with what could be left of them."""
    place = folder / "runs" / "digits" / "credal-lj" / "seed-001.json"
    whole = place.read_bytes()
    yield place, whole[: len(whole) // 2]
    yield place, b""
    yield place, b"\x00" * len(whole)
    yield place, b"[]"
    for key in sorted(KEYS - {"error", "diagnosis", "checksum"}):
        yield place, to_json({name: value for name, value in json.loads(whole).items() if name != key})
    yield folder / "experiment.json", (folder / "experiment.json").read_bytes()[:20]
    yield folder / "experiment.json", b"[]"


@pytest.mark.usefixtures("idle")
def test_damaged_files(finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Found before anything is done, by both commands; never repaired in silence, never a traceback."""
    out = copied(finished, tmp_path / "out")
    for number, (place, content) in enumerate(damaged_files(out)):
        whole = place.read_bytes()
        place.write_bytes(content)
        if number < 4 or place.name == "experiment.json":
            assert str(place) in refused(bench(out), capsys)
        if place.name != "experiment.json":
            assert str(place) in refused(["report", str(out)], capsys)
        assert place.read_bytes() == content
        place.write_bytes(whole)
    assert main(bench(out)) == 0


# ---------------------------------------------------------------------------------------------
# Reports
# ---------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("idle")
def test_a_report_needs_the_records_only(finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = copied(finished, tmp_path / "out", ["runs", "experiment.json"])
    before = state(out)
    assert main(["report", str(out)]) == 0
    assert "credal-lj" in capsys.readouterr().out
    assert state(out) == before
    for name in ("table.md", "table.csv", "table.tex"):
        assert (out / name).read_bytes() == (finished / name).read_bytes()
    assert "credal-lj" in (out / "report.html").read_text()


@pytest.mark.usefixtures("idle")
def test_a_report_of_two_folders(finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each has a part of the runs, and some are in both."""
    first, second = (copied(finished, tmp_path / name, ["runs", "experiment.json"]) for name in ("a", "b"))
    shutil.rmtree(first / "runs" / "digits" / "energy")
    (second / "runs" / "digits" / "vanilla" / "seed-000.json").unlink()
    out = tmp_path / "merged"
    assert main(["report", str(first), str(second), "--out", str(out)]) == 0
    assert numbers(out) == numbers(finished)
    assert {path.name for path in out.iterdir()} == {"table.md", "table.csv", "table.tex", "report.html"}
    capsys.readouterr()
    place = second / "runs" / "digits" / "credal-lj" / "seed-000.json"
    changed = json.loads(place.read_text())
    changed["config"]["lr"] = 0.5
    place.write_bytes(to_json(changed))
    assert "credal-lj" in refused(["report", str(first), str(second), "--out", str(out)], capsys)


@pytest.mark.usefixtures("idle")
def test_a_report_of_some_scores(finished: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert main(["report", str(finished), "--out", str(out), "--score", "EU", "energy"]) == 0
    assert {line["score"] for line in numbers(out)} == {"EU", "energy", "score"}  # the trivial baselines stay


@pytest.mark.usefixtures("idle")
def test_reports_that_cannot_be_made(finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy = copied(finished, tmp_path / "copy")
    assert str(tmp_path / "nowhere") in refused(["report", str(tmp_path / "nowhere")], capsys)
    (tmp_path / "empty").mkdir()
    assert str(tmp_path / "empty") in refused(["report", str(tmp_path / "empty")], capsys)
    assert "nonsense" in refused(["report", str(copy), "--score", "EU", "nonsense"], capsys)
    assert "--out" in refused(["report", str(copy), str(finished)], capsys)
    begun = copied(finished, tmp_path / "begun", ["experiment.json"])
    assert str(begun) in refused(["report", str(begun)], capsys)
    file = tmp_path / "file"
    file.write_text("mine")
    assert str(file) in refused(["report", str(copy), "--out", str(file)], capsys)
    assert "another experiment" in refused(["report", str(copy), "--out", str(begun)], capsys)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "report.html").write_text("<!doctype html><p>mine</p>")
    assert "not a page of credalgnn" in refused(["report", str(copy), "--out", str(tmp_path / "mine")], capsys)
    assert not (copy / "table.md").exists()
    nodes = copy / "nodes" / "digits"
    shutil.copy(nodes / "degree" / "seed-000.parquet", nodes / "energy" / "seed-000.parquet")
    assert str(nodes / "energy" / "seed-000.parquet") in refused(["report", str(copy)], capsys)


def test_a_terminal_without_the_signs_of_the_table(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    code, out, err = ended(begin(["report", str(finished), "--out", str(tmp_path / "out")]))
    assert (code, err) == (0, "")
    assert "credal-lj" in out
