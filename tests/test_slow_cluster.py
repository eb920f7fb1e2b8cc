"""A cluster on which everything dies while a model is trained or a graph predicted: nothing is lost, or one line."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ray_cluster import Machine

pytestmark = pytest.mark.slow

BEGIN = """
import json, sys, warnings
import torch
torch.set_num_threads(1)
from credalgnn.graphs import csbm
from credalgnn.methods import CredalLJ, MethodError, Vanilla, cluster
address = sys.argv[1]
caught = warnings.catch_warnings(record=True).__enter__()
warnings.simplefilter("always")
def texts():
    return [str(each.message) for each in caught if type(each.message).__name__ == "WorkersWarning"]
def now():
    print("now", flush=True)
def tell(**found):
    print(json.dumps({"texts": texts(), **found}))
"""
FIT = """
shown = []
def show(line):
    shown.append(line.epoch)
    if line.epoch == 3:
        now()
options = {"hidden": 16, "epochs": 300, "patience": 300, "batch_size": 64}
try:
    ours = Vanilla(**options).fit(csbm(600, 4), workers=2, address=address, on_epoch=show)
    tell(shown=shown, epochs=len(ours.history_))
except MethodError as error:
    tell(refused=str(error))
"""
PREDICT = """
import time
method, chunks = CredalLJ(hidden=64, layers=3, epochs=2).fit(csbm(6000, 4)), []
alone = torch.cat([chunk.probabilities for chunk in method.predict_chunks(size=200)])
once = cluster._on_one_thread
def slowly(*arguments):  # the tasks of this program: a worker that is to be killed is at work
    time.sleep(0.5)
    return once(*arguments)
slowly.__name__ = "slowly"
cluster._on_one_thread = slowly
try:
    for chunk in method.predict_chunks(size=200, workers=int(sys.argv[2]), address=address):
        chunks.append(chunk.probabilities)
        if len(chunks) == 3:
            now()
    tell(apart=float((torch.cat(chunks) - alone).abs().max()))
except MethodError as error:
    tell(refused=str(error))
"""
GONE = "the head of the Ray cluster, {address}, is gone (Connection refused)"


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    found = Machine(tmp_path)
    yield found
    found.stop()


def told(machine: Machine, program: str, death: Callable[[], None], workers: int = 2) -> dict[str, Any]:
    """What a program says in the end, in the middle of which there is a death."""
    process = machine.python("-c", BEGIN + program, machine.address, str(workers))
    assert process.stdout is not None
    assert process.stdout.readline() == "now\n", process.stderr and process.stderr.read()[-3000:]
    death()
    output, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors[-3000:]
    found: dict[str, Any] = json.loads(next(line for line in output.splitlines() if line.startswith("{")))
    return found


def test_a_training_outlives_a_worker(machine: Machine) -> None:
    found = told(machine, FIT, lambda: machine.kill_a_process("ray::RayTrainWorker"))
    assert found["shown"] == list(range(301))  # each once
    assert found["epochs"] == 301
    assert len(found["texts"]) == 1
    assert found["texts"][0].endswith("training continues from the last epoch with 2 of 2 workers")


def test_a_training_outlives_the_cluster_and_the_program_that_asks(tmp_path: Path) -> None:
    """Each is killed once, and what was trained until then is not trained again."""
    program = f"""
from credalgnn.methods import checkpoints
checkpoints.EVERY = 0.5
folder = {str(tmp_path / "kept")!r}
""" + FIT.replace("workers=2", "workers=2, checkpoints=folder").replace(
        "line.epoch == 3", "line.epoch == shown[0] + 20"
    )
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
    machine = Machine(first)
    try:
        refused = told(machine, program, machine.kill_the_head)["refused"]
        assert refused.startswith(GONE.format(address=machine.address))
    finally:
        machine.stop()
    machine = Machine(second)
    try:
        process = machine.python("-c", BEGIN + program, machine.address)
        assert process.stdout is not None
        assert process.stdout.readline() == "now\n"
        process.kill()
        process.communicate()
        found = told(machine, program, lambda: None)
    finally:
        machine.stop()
    assert found["shown"] == list(range(found["shown"][0], 301))
    assert found["shown"][0] > 20
    assert found["epochs"] == 301


@pytest.mark.parametrize("title", ["ray::Coordinator", "ray::TrainController"])
def test_a_training_ends_with_who_leads_it_or_keeps_its_state(title: str, machine: Machine) -> None:
    refused = told(machine, FIT, lambda: machine.kill_a_process(title))["refused"]
    assert refused.startswith(f"a process of Ray on {os.uname().nodename} that leads the work or keeps what was done")
    assert refused.endswith("try again")


def test_a_prediction_outlives_a_task(machine: Machine) -> None:
    found = told(machine, PREDICT, lambda: machine.kill_a_process("ray::slowly"))
    assert found["apart"] < 1e-4


@pytest.mark.parametrize("program", [FIT, PREDICT], ids=["fit", "predict"])
@pytest.mark.parametrize("who", ["all", "server"])
def test_without_a_head_there_is_one_line(who: str, program: str, machine: Machine) -> None:
    """The machine of the head is this one, or another one is and this one's processes live on, which may be enough."""
    death = machine.kill_the_head if who == "all" else machine.kill_the_server
    found = told(machine, program, death)
    if who == "server" and "apart" in found:
        assert found["apart"] < 1e-4
        return
    assert found["refused"].startswith(GONE.format(address=machine.address))
    assert found["refused"].endswith("start the cluster again, and then the same once more")


def test_a_prediction_does_not_wait_for_ever_for_a_processor(tmp_path: Path) -> None:
    """The head has none, as in Kubernetes, and the only other machine is lost."""
    machine = Machine(tmp_path, head=0)
    try:
        found = told(machine, "cluster.PATIENCE = 0.1" + PREDICT, machine.kill_second_node, workers=1)
    finally:
        machine.stop()
    assert found["refused"].startswith("no machine of the Ray cluster has had a processor for 0.1 minutes")
    assert found["texts"] == ["no machine of the Ray cluster has a processor any more: waiting 0.1 minutes for one"]
