"""Data sets from outside: files, folders, import paths and plug-ins work wherever a name does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import credalgnn as cg
from credalgnn.cli import main
from credalgnn.graphs import DATASETS, Dataset, Graph, GraphError, Split, Task, csbm, dataset_name, find_dataset
from credalgnn.graphs.datasets.base import load_files

MODULE = """
from credalgnn.graphs import Dataset, File, Loaded, Split, Task, csbm, digits

DATASET = Dataset("other name", lambda: csbm(60, 3), ood_classes=["2"], description="three classes")
GRAPH = csbm(60, 3)
NOTHING = 7

def make_graph():
    return csbm(60, 3)

def make_loaded():
    return Loaded(csbm(60, 3), [Split.random(60, seed) for seed in (5, 6)])

def make_task():
    return Task.leave_out(csbm(60, 3), [1], name="its own")

def make_any_task(split_seed, ood_classes=None, inductive=False):
    return Task.leave_out(csbm(60, 3), ood_classes or [1], split_seed=split_seed, inductive=inductive)

def make_nothing():
    return "a graph"

def fail():
    raise KeyError("column")
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """A module in the working folder, of a name that no other test has."""
    name = f"mine_{abs(hash(request.node.name))}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])  # as an installed command has it
    return name


def same_task(first: Task, second: Task) -> None:
    assert first.fingerprint == second.fingerprint


def test_a_graph_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "some folder" / "my graph.NPZ"
    graph = csbm(60, 3).replace(class_names=["cat", "dog", "owl"])
    graph.save(path)
    assert cg.load_graph(path).fingerprint == graph.fingerprint
    task = cg.load_task(str(path), 4, ood_classes="dog", inductive=True)
    same_task(task, Task.leave_out(graph, 1, split_seed=4, inductive=True))
    assert (task.name, task.source) == ("my-graph", f"file: {path}")
    with pytest.raises(GraphError, match=r"my-graph does not say which classes.*`ood_classes`.*cat, dog, owl"):
        cg.load_task(path)
    assert cg.load_task(path, ood_classes=()).ood_classes == ()
    with pytest.raises(GraphError, match=r"none\.npz: no such file"):
        cg.load_graph(tmp_path / "none.npz")


@pytest.mark.parametrize("ending", [".pt", ".PTH", ".safetensors"])
def test_tensors_in_a_file(ending: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph, path = csbm(60, 3), tmp_path / f"my graph{ending}"
    tensors = {"x": graph.features, "edge_index": graph.edge_index.contiguous(), "y": graph.labels}
    save_file(tensors, path) if ending == ".safetensors" else torch.save(tensors, path)
    assert cg.load_graph(path).fingerprint == graph.fingerprint
    task = cg.load_task(path, 4, ood_classes=1)
    same_task(task, Task.leave_out(graph, 1, split_seed=4))
    assert (task.name, task.source) == ("my-graph", f"file: {path}")
    assert main(["describe", str(path), "--ood-classes", "1"]) == 0
    assert task.graph.fingerprint == graph.fingerprint
    assert "left out        1" in capsys.readouterr().out


def test_a_folder_with_tables(tmp_path: Path) -> None:
    folder = tmp_path / "pets"
    folder.mkdir()
    rows = [f"n{k},{('cat', 'dog', 'owl')[k % 3]},{k % 7}" for k in range(30)]
    (folder / "Nodes.csv").write_text("\n".join(["id,label,x", *rows]))
    (folder / "notes.txt").write_text("made by hand")
    with pytest.raises(GraphError, match=r"pets: no edges table in this folder; one of edges\.csv,.* is wanted"):
        cg.load_graph(folder)
    (folder / "edges.tsv").write_text("\n".join(["source\ttarget", *(f"n{k}\tn{(k + 1) % 30}" for k in range(30))]))
    task = cg.load_task(folder, ood_classes=["owl"])
    same_task(task, Task.leave_out(Graph.from_tables(folder / "Nodes.csv", folder / "edges.tsv"), 2))
    assert (task.name, task.source, task.class_names) == ("pets", f"folder: {folder}", ("cat", "dog"))
    (folder / "edges.csv").write_text("source,target")
    with pytest.raises(GraphError, match=r"edges\.csv and edges\.tsv"):
        cg.load_graph(folder)


def test_import_paths(module: str) -> None:
    expected = csbm(60, 3)
    for name in ("make_graph", "GRAPH", "DATASET", "make_task", "make_loaded"):
        assert cg.load_graph(f"{module}:{name}").fingerprint == expected.fingerprint
    task = cg.load_task(f"{module}:make_graph", 2, ood_classes=[0])
    same_task(task, Task.leave_out(expected, 0, split_seed=2))
    assert (task.name, task.source) == (f"{module}-make_graph", f"import: {module}:make_graph")
    same_task(cg.load_task(f"{module}:DATASET"), Task.leave_out(expected, 2))
    same_task(
        cg.load_task(f"{module}:DATASET", ood_classes=1, inductive=True), Task.leave_out(expected, 1, inductive=True)
    )
    assert cg.load_task(f"{module}:DATASET").name == f"{module}-DATASET"
    same_task(cg.load_task(f"{module}:make_loaded", 1, 0), Task.leave_out(expected, 0, Split.random(60, 6)))
    with pytest.raises(GraphError, match=r"public splits 0\.\.1; there is no split 2"):
        cg.load_task(f"{module}:make_loaded", 2, 0)


def test_functions_that_make_tasks(module: str) -> None:
    expected = csbm(60, 3)
    task = cg.load_task(f"{module}:make_task")
    same_task(task, Task.leave_out(expected, 1))
    assert (task.name, task.source) == (f"{module}-make_task", f"import: {module}:make_task")
    for options in ({"split_seed": 1}, {"ood_classes": [0]}, {"inductive": True}):
        name = next(iter(options))
        with pytest.raises(GraphError, match=rf"make_task.*to choose {name}.*take {name}="):
            cg.load_task(f"{module}:make_task", **options)  # type: ignore[arg-type]
    task = cg.load_task(f"{module}:make_any_task", 3, ood_classes=[2], inductive=True)
    same_task(task, Task.leave_out(expected, 2, split_seed=3, inductive=True))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_such_module:make", "no_such_module cannot be imported .*in this folder"),
        ("MODULE:make_grahp", "has no 'make_grahp'"),
        ("MODULE:NOTHING", "must be a Dataset, .* a function that returns one, not int"),
        ("MODULE:make_nothing", "must be a Graph, a Loaded or a Task, not str"),
        ("MODULE:fail", "KeyError: 'column'"),
        ("MODULE.py", r"not a graph; give a saved graph \(\.npz.*folder with nodes and edges tables"),
    ],
)
def test_bad_import_paths(name: str, message: str, module: str) -> None:
    with pytest.raises(GraphError, match=message):
        cg.load_task(name.replace("MODULE", module), ood_classes=[0])


@pytest.mark.slow
def test_plug_ins(tmp_path: Path) -> None:
    """A package that announces a data set is installed in all but name: its metadata lies on the path."""
    (tmp_path / "pets.py").write_text(MODULE)
    info = tmp_path / "pets-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: pets\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(
        "[credalgnn.datasets]\npets = pets:DATASET\ndigits = pets:DATASET\nbad = pets:gone\n"
    )
    code = """
import credalgnn as cg
task = cg.load_task("pets")
print(task.name, task.source, task.fingerprint, cg.load_graph("digits").num_nodes, sep=";")
try:
    cg.load_task("petz")
except ValueError as error:
    print(error)
"""
    answer = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    first, second = answer.stdout.splitlines()
    expected = Task.leave_out(csbm(60, 3), 2).fingerprint
    assert first == f"pets;plug-in: pets (pets 1.2);{expected};1797"  # no plug-in takes the name of a built-in one
    assert "did you mean pets?" in second
    answer = subprocess.run(
        [sys.executable, "-m", "credalgnn", "datasets"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    lines = {line.split(" ")[0]: line for line in answer.stdout.splitlines()}
    assert "60" in lines["pets"].split()
    assert lines["pets"].endswith("three classes")
    assert "cannot be loaded: plug-in: bad (pets 1.2): pets has no 'gone'" in lines["bad"]


def test_a_data_set_of_ones_own_with_files(tmp_path: Path) -> None:
    """What it needs is found in a mirror, read once and kept, its splits too."""
    reads = []

    def read(root: Path) -> cg.graphs.Loaded:
        reads.append(root)
        content = np.loadtxt(root / "pets/raw/labels.txt", dtype=int)
        graph = Graph(np.ones((len(content), 1)), [[0], [1]], content)
        return cg.graphs.Loaded(graph, [Split.random(len(content), seed) for seed in (3, 4)])

    mirror = tmp_path / "mirror"
    (mirror / "pets/raw").mkdir(parents=True)
    (mirror / "pets/raw/labels.txt").write_text(" ".join(str(k % 3) for k in range(50)))
    files = {"pets/raw/labels.txt": cg.graphs.File("https://example.org/labels.txt", size=99)}
    dataset = Dataset("pets", read, ood_classes=(1,), files=files)
    assert dataset.summary(tmp_path) is None
    assert dataset.place(mirror, tmp_path) == "raw files in the mirror"
    first, second = (dataset.task(1, mirror=mirror, data_root=tmp_path) for _ in range(2))
    same_task(first, second)
    same_task(first, Task.leave_out(first.graph, 1, Split.random(50, 4)))
    assert len(reads) == 1
    assert dataset.place(None, tmp_path) == "yes"
    assert dataset.summary(tmp_path) == (50, 1, 3, 0.0)
    tasks = Dataset("tasks", lambda root: first, files=files)
    with pytest.raises(GraphError, match="a task cannot be cached"):
        load_files(tasks, mirror, tmp_path)


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("cora", "cora"),
        ("path/to/my_graph.npz", "my_graph"),
        ("../a b/.hidden graph.npz", "hidden-graph"),
        ("mypackage.graphs:make_task", "mypackage.graphs-make_task"),
        ("mypackage.graphs:Class.make", "mypackage.graphs-Class.make"),
        ("..", None),
    ],
)
def test_names_are_safe_for_folders(given: str, name: str | None) -> None:
    short = dataset_name(given)
    assert name is None or short == name
    assert Path(short).name == short


def test_named_ones_say_so() -> None:
    assert cg.load_task("digits").source == "named: digits"
    assert cg.load_task("digits", ood_classes=["3"]).ood_classes == (3,)
    assert find_dataset("digits").description == DATASETS["digits"].description


def test_describe_takes_files_and_classes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "pets.npz"
    csbm(60, 3).replace(class_names=["cat", "dog", "owl"]).save(path)
    assert main(["describe", str(path), "--ood-classes", "owl"]) == 0
    out = capsys.readouterr().out
    assert "left out        owl" in out
    assert main(["describe", str(path), "--ood-classes"]) == 0
    assert "left out        none" in capsys.readouterr().out
    assert main(["describe", str(path)]) == 2
    assert "--ood-classes" in capsys.readouterr().err
    assert main(["describe", str(path), "--ood-classes", "olw"]) == 2
    assert "did you mean owl?" in capsys.readouterr().err
