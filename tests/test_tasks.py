"""Predictions of one graph by tasks of a real Ray cluster: two nodes on 127.0.0.1, one of which is killed."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from pathlib import Path
from threading import Barrier
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from credalgnn.cli import main
from credalgnn.graphs import csbm
from credalgnn.methods import Energy, MethodError, Vanilla, cluster
from credalgnn.methods.cluster import Tasks, _ranges
from credalgnn.methods.coverage.descriptions import one_thread
from credalgnn.methods.inputs import inputs
from credalgnn.nn import SparseMatrix
from credalgnn.nn.backbones import Stack, make_backbone
from credalgnn.nn.chunks import Scratch
from credalgnn.runtime.threads import Threads
from ray_cluster import Machine

BEGIN = """
import json, sys
import torch
torch.set_num_threads(1)
from credalgnn.graphs import Graph, csbm, load_graph
from credalgnn.methods import ClassicalEnsemble, CredalCoverage, CredalDual, CredalEnsemble, CredalFrozen, CredalLJ
from credalgnn.methods import Energy, MethodError, Vanilla
address = sys.argv[1]
small = {"hidden": 16, "epochs": 5}
def joined(chunks):
    chunks = list(chunks)
    scores = {name: torch.cat([chunk.scores[name] for chunk in chunks]) for name in chunks[0].scores}
    return {"nodes": torch.cat([chunk.nodes for chunk in chunks]).double(),
            "probabilities": torch.cat([chunk.probabilities for chunk in chunks]), **scores}
def apart(ours, theirs):
    assert ours.keys() == theirs.keys()
    return max(float((ours[name] - theirs[name]).abs().max()) for name in ours)
"""


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    found = Machine(tmp_path_factory.mktemp("ray"))
    yield found
    found.stop()


def told(machine: Machine, program: str, folder: Path) -> dict[str, Any]:
    """What a program prints last, as JSON."""
    process = machine.python("-c", BEGIN + program, machine.address, folder=folder)
    output, errors = process.communicate(timeout=600)
    assert process.returncode == 0, errors[-3000:]
    found: dict[str, Any] = json.loads(output.splitlines()[-1])
    return found


@pytest.mark.parametrize(
    "methods",
    [
        pytest.param("CredalLJ(**small)", id="one"),
        pytest.param(
            "CredalCoverage(model=Vanilla(**small)), Energy(model=Vanilla(**small)),"
            "CredalEnsemble(members=[Vanilla(seed=seed, **small) for seed in (0, 1)]),"
            "Vanilla(backbone='gcn', layers=3, **small), CredalDual(**small), CredalFrozen(model=Vanilla(**small))",
            id="others",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_tasks_say_what_one_process_says(methods: str, machine: Machine, tmp_path: Path) -> None:
    """Of a packed graph that the tasks do not see where it lies, with methods whose costly steps differ."""
    csbm(900, 4).pack(tmp_path / "graph.cg")
    found = told(
        machine,
        f"""
graph = load_graph("/proc/self/cwd/graph.cg")
result = {{}}
for method in ({methods},):
    method.fit(graph)
    alone = joined(method.predict_chunks(size=250))
    result[method.name] = apart(joined(method.predict_chunks(size=250, workers=2, address=address)), alone)
print(json.dumps(result))
""",
        tmp_path,
    )
    assert found
    assert all(difference < 1e-4 for difference in found.values()), found
    copies = list((machine.temporary / "files").glob(f"credalgnn-{os.getuid()}-graphs/*.cg"))
    assert len(copies) == 1


def test_more_tasks_than_processors_are_refused_before_any_work(machine: Machine, tmp_path: Path) -> None:
    found = told(
        machine,
        """
method = CredalLJ(**small).fit(csbm(60, 3))
try:
    method.predict_chunks(workers=9, address=address)
except MethodError as error:
    print(json.dumps({"refused": str(error)}))
""",
        tmp_path,
    )
    assert found["refused"].startswith("workers=9: the cluster has 2 CPUs, and each worker takes one; start more")


@pytest.mark.slow
def test_coverage_is_fitted_and_estimated_anew_by_tasks(machine: Machine, tmp_path: Path) -> None:
    """One worker trains the bits of none, so that what tasks add can be compared."""
    found = told(
        machine,
        """
graph = csbm(900, 4)
import numpy as np
graph = graph.replace(node_ids=np.arange(900))
model = Vanilla(batch_size=128, **small)
ours = CredalCoverage(model=model).fit(graph, workers=1, address=address)
alone = CredalCoverage(model=model).fit(graph)
other = graph.replace(features=graph.features + 0.01)
print(json.dumps({
    "fitted": float((ours.coverage() - alone.coverage()).abs().max()),
    "anew": apart(joined(alone.predict_chunks(other, workers=2, address=address)), joined(ours.predict_chunks(other))),
}))
""",
        tmp_path,
    )
    assert found["fitted"] < 1e-9
    assert found["anew"] < 1e-4


@pytest.mark.slow
def test_tasks_help_a_model_that_was_fitted_before(machine: Machine, tmp_path: Path) -> None:
    found = told(
        machine,
        """
from credalgnn.methods import cluster
latents, asked = cluster.Tasks.latents, []
cluster.Tasks.latents = lambda self, *rest: asked.append(1) or latents(self, *rest)
graph = csbm(900, 4)
model = Vanilla(**small).fit(graph)
alone = joined([Energy(model=model).fit(graph).predict()])
ours = Energy(model=model).fit(graph, workers=2, address=address)
found = apart(joined([ours.predict()]), alone)
print(json.dumps({"asked": len(asked), "apart": found}))
""",
        tmp_path,
    )
    assert found["asked"] == 1
    assert found["apart"] < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["latents", "answers"])
def test_a_lost_node_costs_its_tasks_and_no_answer(moment: str, tmp_path: Path) -> None:
    """While latents are computed, with those that it held, or while entropies are."""
    mortal = Machine(tmp_path)
    program = (
        BEGIN
        + """
import threading, time
from credalgnn.methods import cluster
moment = sys.argv[2]
graph = csbm(6000, 4)
method = CredalLJ(hidden=64, layers=3, epochs=2).fit(graph)
alone = joined(method.predict_chunks(size=200))
def pause():
    print("now", flush=True)
    sys.stdin.readline()
if moment == "latents":
    value, seen = cluster.Tasks.value, []
    def slowly(self, reference):
        seen.append(reference)
        if len(seen) == 10:  # the second layer: half of the first one's latents are on the other node
            pause()
        return value(self, reference)
    cluster.Tasks.value = slowly
chunks = []
for chunk in method.predict_chunks(size=200, workers=2, address=address):
    chunks.append(chunk)
    if moment == "answers" and len(chunks) == 3:
        pause()
print(json.dumps({"apart": apart(joined(chunks), alone), "chunks": len(chunks)}))
"""
    )
    try:
        process = mortal.python("-c", program, mortal.address, moment)
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == "now\n", process.stderr and process.stderr.read()[-3000:]
        mortal.kill_second_node()
        output, errors = process.communicate("go\n", timeout=600)
        assert process.returncode == 0, errors[-3000:]
    finally:
        mortal.stop()
    found = json.loads(output.splitlines()[-1])
    assert found["chunks"] == 30
    assert found["apart"] < 1e-4


@pytest.mark.slow
def test_the_command_predicts_with_workers(machine: Machine, tmp_path: Path) -> None:
    csbm(400, 3).save(tmp_path / "graph.npz")
    graph = ["--graph", str(tmp_path / "graph.npz")]
    model = str(tmp_path / "model")
    assert main(["fit", *graph, "-m", "credal-lj", "--set", "epochs=5", "hidden=8", "--out", model]) == 0
    for name, words in (("alone", []), ("ours", ["--engine", "ray", "--workers", "2", "--address", machine.address])):
        process = machine.start("predict", model, *graph, "--out", tmp_path / f"{name}.csv", *words)
        _, errors = process.communicate(timeout=600)
        assert process.returncode == 0, errors
    first, second = ((tmp_path / f"{name}.csv").read_text().splitlines() for name in ("alone", "ours"))
    assert len(first) == len(second) == 401
    assert [line.split(",")[:2] for line in first] == [line.split(",")[:2] for line in second]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"workers": 0}, "workers must be a whole number of 1 or more, not 0"),
        ({"address": "127.0.0.1:1"}, "give the number of its processes, workers=, too"),
        ({"workers": 2, "address": "127.0.0.1:1"}, "no Ray cluster at 127.0.0.1:1"),
    ],
)
def test_what_cannot_be_is_refused_at_once(options: dict[str, Any], message: str) -> None:
    method = Energy(model=Vanilla(epochs=1)).fit(csbm(60, 3))
    with pytest.raises(MethodError, match=message):
        method.predict_chunks(**options)


def test_stretches_have_all_nodes_once_and_about_the_same_work() -> None:
    counts = torch.tensor([1, 0, 0, 500, 2, 3] + [7] * 200)
    starts = torch.cat([torch.zeros(1, dtype=torch.long), counts.cumsum(0)])
    for rows in (10, 1000):
        stretches = _ranges(starts, 8, rows)
        assert [first for first, _ in stretches] == [0, *(last for _, last in stretches[:-1])]
        assert stretches[-1][1] == 206
        assert max(last - first for first, last in stretches) <= rows
    work = [int(counts[first:last].sum()) + 8 * (last - first) for first, last in stretches]
    assert max(work) <= 500 + 2 * sum(work) / 8
    assert _ranges(torch.zeros(4, dtype=torch.long), 8, 10)[-1][1] == 3


@pytest.mark.parametrize(("room", "together"), [(30, 12), (22, 12), (13, 12), (11, 6)])
def test_latents_here_leave_tasks_the_room_for_a_layer(
    room: int, together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two layers of 12 columns of 300 nodes, and room for some columns, no more of which are sent together."""
    graph = csbm(300, 3, features=5, seed=1)
    backbone = make_backbone("sage", 5, 12, 2, 0.0).eval()
    assert isinstance(backbone, Stack)
    grouped: list[int] = []
    multiplied = SparseMatrix.__matmul__

    def counted(matrix: SparseMatrix, sent: Any) -> Any:
        grouped.append(sent.shape[1])
        return multiplied(matrix, sent)

    class Here(Tasks):
        def run(self, function: Callable[..., Any], arguments: Iterable[tuple[Any, ...]]) -> Iterator[Any]:
            with torch.no_grad():
                yield from [function(*each) for each in arguments]

        def value(self, reference: Any) -> Any:
            return reference

    monkeypatch.setattr(SparseMatrix, "__matmul__", counted)
    monkeypatch.setattr(cluster, "_shared", lambda backbone, graph: nullcontext())
    monkeypatch.setattr(cluster, "_open", lambda remote: (graph, backbone))
    monkeypatch.setattr(cluster, "ray_module", lambda: SimpleNamespace(get=lambda reference: reference))
    found = Here(1).latents(backbone, graph, Scratch(4 * 300 * room), lambda layer, share: None)
    assert set(grouped) == {together}
    whole = backbone(*inputs(graph, "cpu"))
    for ours, theirs in zip(found, whole, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6)


def _square(number: int) -> int:
    if number < 0:
        raise ValueError(f"{number} is below 0")
    return number * number


def _busy(barrier: Barrier) -> bool:
    barrier.wait(timeout=60)  # until as many have come as were asked for
    return True


def test_threads_work_side_by_side_where_libraries_may_use_one_only() -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        jobs = Threads()
        with one_thread():
            assert list(jobs.map(_busy, [(Barrier(2),)] * 2)) == [True, True]
    finally:
        torch.set_num_threads(threads)


def test_threads_answer_in_order_and_take_arguments_as_they_need_them() -> None:
    taken: list[int] = []

    def numbers() -> Iterator[tuple[int]]:
        for number in range(100):
            taken.append(number)
            yield (number,)

    answers = Threads().map(_square, numbers())
    assert next(answers) == 0
    assert len(taken) < 50
    assert list(answers) == [number * number for number in range(1, 100)]
    with pytest.raises(ValueError, match="-1 is below 0"):
        list(Threads().map(_square, [(-1,)]))
