"""One model trained by several processes of a real Ray cluster: two nodes on 127.0.0.1, one of which is killed."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from credalgnn.cli import main
from credalgnn.graphs import csbm
from credalgnn.graphs.edges import damaged
from credalgnn.methods import GPN, ClassicalEnsemble, Degree, Energy, Method, MethodError, Vanilla, cluster
from credalgnn.methods.base import trains_by_batches
from credalgnn.nn.random import rng_state
from ray_cluster import Machine

BEGIN = """
import contextlib, io, json, pathlib, sys, warnings
import torch
torch.set_num_threads(1)
from credalgnn.graphs import Graph, Task, csbm, load_graph
from credalgnn.methods import ClassicalEnsemble, Energy, MethodError, Vanilla
task = Task.leave_out(csbm(600, 4), [0])
options = {"hidden": 16, "epochs": 10, "dropout": 0.3, "batch_size": 64}
address = sys.argv[1]
def same(one, other):
    pairs = zip(one.module_.state_dict().values(), other.module_.state_dict().values(), strict=True)
    return one.history_ == other.history_ and all(torch.equal(a, b) for a, b in pairs)
def accuracy(method):
    known = ~task.test.is_ood
    return float((method.predict(nodes=task.test.nodes).classes == task.test.labels)[known].double().mean())
"""


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    found = Machine(tmp_path_factory.mktemp("ray"))
    yield found
    found.stop()


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[Machine]:
    found = Machine(tmp_path)
    yield found
    found.stop()


def told(machine: Machine, program: str, folder: Path | None = None) -> dict[str, Any]:
    """What a program prints last, as JSON."""
    process = machine.python("-c", BEGIN + program, machine.address, folder=folder)
    output, errors = process.communicate(timeout=600)
    assert process.returncode == 0, errors[-3000:]
    found: dict[str, Any] = json.loads(output.splitlines()[-1])
    return found


def test_one_worker_gives_the_bits_of_none(machine: Machine) -> None:
    found = told(
        machine,
        """
from credalgnn.runtime import progress
progress.EVERY = 0.0
alone, lines = Vanilla(**options).fit(task), []
with contextlib.redirect_stderr(io.StringIO()) as said:
    ours = Vanilla(**options).fit(task, workers=1, address=address, on_epoch=lines.append)
found = {"same": same(alone, ours), "lines": lines == ours.history_, "epochs": len(lines)}
print(json.dumps({**found, "last": list(ours.history_[-1]), "said": said.getvalue().splitlines()}))
""",
    )
    epoch, loss, monitor = found.pop("last")
    said = found.pop("said")  # as no terminal shows a bar
    assert len(said) == 11
    assert said[-1] == f"[{epoch}/10 epochs] vanilla seed 0: loss {loss:.3f}, monitor {monitor:.3f}"
    assert found == {"same": True, "lines": True, "epochs": 11}
    assert not list(machine.home.iterdir())  # no token, no results


def test_a_training_whose_asker_was_stopped_goes_on_with_the_same_bits(machine: Machine, tmp_path: Path) -> None:
    """From what is kept on the disk of the machine that asks: the cluster has forgotten it."""
    found = told(
        machine,
        f"folder = {str(tmp_path)!r}"
        """
from credalgnn.methods import checkpoints
checkpoints.EVERY = 0.0
class Enough(Exception):
    pass
def stop(line):
    if pathlib.Path(folder).joinpath("kept").exists():
        raise Enough
options |= {"epochs": 300, "patience": 300}
try:
    Vanilla(**options).fit(task, workers=1, address=address, checkpoints=f"{folder}/kept", on_epoch=stop)
except Enough:
    pass
alone, lines = Vanilla(**options).fit(task), []
with contextlib.redirect_stderr(io.StringIO()) as said:
    ours = Vanilla(**options).fit(task, workers=1, address=address, checkpoints=f"{folder}/kept", on_epoch=lines.append)
here = Vanilla(**options).fit(task, checkpoints=f"{folder}/kept", progress=False)
print(json.dumps({
    "same": same(alone, ours) and same(alone, here), "shown": [line.epoch for line in lines],
    "said": said.getvalue().splitlines(),
}))
""",
    )
    first = found["shown"][0]
    assert 1 <= first < 300
    assert found["shown"] == list(range(first, 301))
    assert found["said"][0] == f"vanilla seed 0: continues from epoch {first - 1}, where it was stopped"
    assert found["same"]


@pytest.mark.slow
def test_two_workers_are_as_good_as_one_and_always_the_same(machine: Machine) -> None:
    """Of what post-hoc methods stand on, too; a cluster that the program is connected to already is used."""
    found = told(
        machine,
        """
import ray
from credalgnn.runtime import progress
ray.init(address, log_to_driver=False, logging_level="ERROR")
one = Vanilla(**options).fit(task)
two = Vanilla(**options).fit(task, workers=2)
progress.EVERY = 0.0
with contextlib.redirect_stderr(io.StringIO()) as said:
    again = Vanilla(**options).fit(task, workers=2, progress=False)
energy = Energy(model=Vanilla(**options)).fit(task, workers=2)
print(json.dumps({
    "same": same(two, again) and same(two, energy.model_), "other": not same(one, two),
    "accuracy": [accuracy(one), accuracy(two)], "connected": ray.is_initialized(), "said": said.getvalue(),
}))
""",
    )
    assert found["same"]
    assert found["other"]
    assert found["connected"]
    assert not found["said"]
    assert abs(found["accuracy"][0] - found["accuracy"][1]) < 0.05
    assert min(found["accuracy"]) > 0.85


@pytest.mark.slow
def test_what_ends_a_training_here_or_there_ends_all_of_it(machine: Machine) -> None:
    """And leaves the cluster free for the next one."""
    found = told(
        machine,
        """
import ray, time
from credalgnn.nn import TrainingError
ray.init(address, log_to_driver=False, logging_level="ERROR")
class Enough(Exception):
    pass
def stop(line):
    if line.epoch == 2:
        raise Enough
begun = time.monotonic()
try:
    Vanilla(**{**options, "epochs": 100_000, "patience": 100_000}).fit(task, workers=2, on_epoch=stop)
except Enough:
    stopped = time.monotonic() - begun
try:
    Vanilla(**{**options, "lr": 1e30}).fit(task, workers=2)
    refused = ""
except TrainingError as error:
    refused = str(error)
end = time.monotonic() + 60
while ray.available_resources().get("CPU", 0) < 2 and time.monotonic() < end:
    time.sleep(0.5)
print(json.dumps({"refused": refused, "stopped": stopped, "free": ray.available_resources()["CPU"]}))
""",
    )
    assert found["refused"].startswith("vanilla, seed 0: the loss is ")
    assert found["stopped"] < 300
    assert found["free"] == 2


@pytest.mark.slow
def test_a_lost_node_costs_the_steps_since_the_last_epoch(mortal: Machine) -> None:
    program = (
        BEGIN
        + """
shown = []
def show(line):
    shown.append(line.epoch)
    print(line.epoch, flush=True)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    ours = Vanilla(**{**options, "epochs": 300, "patience": 300}).fit(task, workers=2, address=address, on_epoch=show)
texts = [str(each.message) for each in caught if type(each.message).__name__ == "WorkersWarning"]
found = {"shown": shown, "epochs": [line.epoch for line in ours.history_], "accuracy": accuracy(ours), "texts": texts}
print(json.dumps(found))
"""
    )
    process = mortal.python("-c", program, mortal.address)
    assert process.stdout is not None
    first = [process.stdout.readline().strip() for _ in range(5)]
    assert first == ["0", "1", "2", "3", "4"], process.stderr and process.stderr.read()[-3000:]
    mortal.kill_second_node()
    output, errors = process.communicate(timeout=600)
    assert process.returncode == 0, errors[-3000:]
    found = json.loads(next(line for line in output.splitlines() if line.startswith("{")))  # Ray says something, too
    assert found["shown"] == list(range(301))  # each once
    assert found["epochs"] == list(range(301))
    assert found["accuracy"] > 0.85
    assert found["texts"]
    assert all("a worker was lost in epoch" in text for text in found["texts"])
    assert found["texts"][-1].endswith("training continues from the last epoch with 1 of 2 workers")


@pytest.mark.slow
def test_workers_that_do_not_see_the_packed_graph_copy_it_once(machine: Machine, tmp_path: Path) -> None:
    """Below /proc/self each process sees its own folders, as machines without a shared file system do.

    Where the copy is, it does not matter what becomes of the folder.
    """
    csbm(600, 4).pack(tmp_path / "graph.cg")
    csbm(600, 4, seed=1).pack(tmp_path / "other.cg")
    found = told(
        machine,
        """
import os, shutil
from pathlib import Path
copies = Path(os.environ["TMPDIR"]) / f"credalgnn-{os.getuid()}-graphs"
graph = load_graph("/proc/self/cwd/graph.cg")
alone = Vanilla(**options).fit(graph)
ours = Vanilla(**options).fit(graph, workers=1, address=address)
seen = load_graph("graph.cg")
shutil.rmtree("graph.cg")
os.rename("other.cg", "graph.cg")
again = Vanilla(**options).fit(seen, workers=1, address=address)
nodes = [load_graph(each, verify=True).num_nodes for each in copies.glob("*.cg")]
found = {"same": same(alone, ours) and same(alone, again), "copies": nodes}
shutil.rmtree(copies)
try:
    Vanilla(**options).fit(seen, workers=2, address=address)
    refused = ""
except ValueError as error:
    refused = str(error)
print(json.dumps({**found, "refused": refused, "left": list(map(str, copies.glob("*.cg")))}))
""",
        tmp_path,
    )
    assert found["same"]
    assert found["refused"] == (
        f"{tmp_path / 'graph.cg'}: what came to {os.uname().nodename} is another graph, or a damaged one (was it "
        "packed anew since it was opened?); open it again"
    )
    assert found["copies"] == [600]
    assert found["left"] == []


@pytest.mark.slow
def test_the_command_trains_with_workers(machine: Machine, tmp_path: Path) -> None:
    csbm(400, 3).save(tmp_path / "graph.npz")
    words = [
        "fit",
        "--graph",
        tmp_path / "graph.npz",
        "-m",
        "vanilla",
        "--set",
        "epochs=5",
        "hidden=8",
        "batch_size=64",
    ]
    ray = ["--engine", "ray", "--workers", "2", "--address", machine.address]
    process = machine.start(*words, "--out", tmp_path / "model", *ray)
    _, errors = process.communicate(timeout=600)
    assert process.returncode == 0, errors
    assert "Traceback" not in errors
    assert (tmp_path / "model" / "model.json").is_file()
    process = machine.start(*words, "--out", tmp_path / "more", *ray[:3], "9", *ray[4:])
    _, errors = process.communicate(timeout=600)
    assert process.returncode == 2
    assert errors.splitlines()[-1].startswith("credalgnn: workers=9: the cluster has 2 CPUs, and each worker takes one")


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        (Vanilla(), {"workers": 0}, "workers must be a whole number of 1 or more, not 0"),
        (Vanilla(), {"workers": True}, "workers must be a whole number of 1 or more, not True"),
        (Vanilla(), {"address": "127.0.0.1:1"}, "give the number of its processes, workers=, too"),
        (Degree(), {"workers": 2}, "degree trains no network on mini-batches: workers have nothing to do"),
        (GPN(), {"workers": 2}, "gpn trains no network on mini-batches: workers have nothing to do"),
    ],
)
def test_workers_that_cannot_be(method: Method, options: dict[str, Any], message: str) -> None:
    with pytest.raises(MethodError, match=message):
        method.fit(csbm(60, 3), **options)


def test_methods_that_stand_on_a_network_have_work_for_workers() -> None:
    assert all(trains_by_batches(kind) for kind in (Vanilla, Energy, ClassicalEnsemble))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--engine", "ray"], "--engine ray: say how many of the cluster's processes work, --workers N"),
        (["--workers", "2"], "--workers is of a Ray cluster: add --engine ray"),
        (["--address", "h:1"], "--address is of a Ray cluster: add --engine ray"),
        (["--engine", "ray", "--workers", "2", "-m", "degree"], "degree trains no network on mini-batches"),
        (["--engine", "ray", "--workers", "0"], "'0' is not a whole number of 1 or more"),
    ],
)
def test_commands_that_cannot_work(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    csbm(60, 3).save(tmp_path / "graph.npz")
    command = ["fit", "--graph", str(tmp_path / "graph.npz"), "--out", str(tmp_path / "model"), *words]
    try:
        code = main(command)
    except SystemExit as end:
        code = end.code  # type: ignore[assignment]
    assert code == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "model").exists()


def test_without_ray_the_line_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("credalgnn.methods.cluster.find_spec", lambda name: None)
    with pytest.raises(MethodError, match=r"workers need ray: pip install -e '\.\[ray\]'"):
        Vanilla().fit(csbm(60, 3), workers=2)


@pytest.mark.parametrize("error", [damaged("x is y"), MethodError("no"), ValueError("no")])
def test_what_a_worker_refuses_is_refused_here_in_its_words(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """As tasks do by pickling, and workers by a name and a line."""
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    news = SimpleNamespace(remote=lambda lines: ([], (type(error).__name__, str(error))))
    monkeypatch.setattr(cluster, "ray_module", lambda: SimpleNamespace(get=lambda reference: reference))
    told = cluster._Reports(SimpleNamespace(updates=news), SimpleNamespace(), None)
    with pytest.raises(MethodError if type(error) is ValueError else type(error)) as found:
        told.update()
    assert str(found.value) == ("a worker failed: ValueError: no" if type(error) is ValueError else str(error))


def test_processes_draw_what_no_other_draws() -> None:
    states = [rng_state("cpu", seed, rank)["cpu"].numpy().tobytes() for seed in range(3) for rank in range(1, 4)]
    assert len(set(states)) == 9
    assert rng_state("cpu", 1, 2)["cpu"].equal(rng_state("cpu", 1, 2)["cpu"])
