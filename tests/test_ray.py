"""Runs and trials on a real Ray cluster: two nodes on 127.0.0.1, one of which is killed on the way."""

from __future__ import annotations

import json
import os
import shutil
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from credalgnn.experiments.engines import EngineError, Ray, Source, Unit
from credalgnn.experiments.plan import plan
from credalgnn.graphs import Task, csbm
from credalgnn.runtime.ray import _check_port
from ray_cluster import Machine

WORK = ["-d", "digits", "--set", "epochs=12", "hidden=16", "classical-ensemble.size=3"]
METHODS = ["-m", "vanilla", "credal-lj", "energy", "classical-ensemble"]
NOT_COMPARED = ("seconds", "peak_mib", "finished", "checksum")


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="no IPv6")
def test_the_port_of_an_ipv6_address_is_found() -> None:
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as server:
        port = server.getsockname()[1]
        _check_port(f"[::1]:{port}")
        _check_port(f"ray://[::1]:{port}")
    with pytest.raises(ConnectionRefusedError):
        _check_port(f"[::1]:{port}")


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    found = Machine(tmp_path_factory.mktemp("ray"))
    yield found
    found.stop()


def records(folder: Path) -> dict[str, Any]:
    found = {}
    for path in sorted(folder.glob("runs/*/*/*.json")):
        record = json.loads(path.read_text())
        assert record["status"] == "done", record["error"]
        found[str(path.relative_to(folder))] = {k: v for k, v in record.items() if k not in NOT_COMPARED}
    return found


def reachable(host: str, address: str) -> bool:
    with socket.socket() as door:
        return door.connect_ex((host, int(address.rpartition(":")[2]))) == 0


def own_address() -> str:
    """The address of this machine's interface; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as door:
        try:
            door.connect(("192.0.2.1", 9))
        except OSError:
            return "127.0.0.1"
        return str(door.getsockname()[0])


@pytest.mark.slow
def test_a_lost_node_costs_only_what_it_was_doing(machine: Machine, tmp_path: Path) -> None:
    command = ["bench", *WORK, *METHODS, "--seeds", "3", "--predictions", "none"]
    bench = machine.start(*command, "--out", tmp_path / "ray", "--engine", "ray", "--address", machine.address)
    assert bench.stderr is not None
    lines = [bench.stderr.readline() for _ in range(3)]
    assert all(line.startswith(f"[{number}/18] digits") for number, line in enumerate(lines, 1)), lines
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "ray").glob("runs/*/*/*.json")}
    assert len(before) >= 3
    machine.kill_second_node()
    _, errors = bench.communicate(timeout=120)
    assert bench.returncode == 0, errors
    assert "Traceback" not in errors
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in before.items())
    local = machine.start(*command, "--out", tmp_path / "local", "--jobs", "2")
    _, errors = local.communicate(timeout=120)
    assert local.returncode == 0, errors
    expected = records(tmp_path / "local")
    assert len(expected) == 18  # four methods and two trivial ones, three seeds
    assert records(tmp_path / "ray") == expected
    assert reachable("127.0.0.1", machine.address)
    assert own_address().startswith("127.") or not reachable(own_address(), machine.address)
    assert not list(machine.home.iterdir())  # no token, no cache


@pytest.mark.slow
def test_a_method_and_a_graph_from_the_working_folder(machine: Machine, tmp_path: Path) -> None:
    """Workers of the cluster were started elsewhere."""
    shutil.copy(Path(__file__).with_name("mymodels.py"), tmp_path)
    (tmp_path / "mygraphs.py").write_text("from credalgnn.graphs import csbm\ndef make():\n    return csbm(90, 3)\n")
    command = ["bench", "-d", "mygraphs:make", "--ood-classes", "0", "-m", "mymodels:Mine", "--seeds", "2"]
    engines = {"ray": ["--engine", "ray", "--address", machine.address], "local": ["--jobs", "1"]}
    found = {}
    for name, options in engines.items():
        process = machine.start(*command, *options, "--out", name, folder=tmp_path)
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
        found[name] = records(tmp_path / name)
    assert len(found["ray"]) == 6
    assert found["ray"] == found["local"]
    sources = {json.dumps(record["source"]) for record in found["ray"].values() if record["method"] == "mine"}
    assert sources == {'{"method": "mymodels:Mine", "dataset": "import: mygraphs:make"}'}


@pytest.mark.slow
def test_a_machine_that_does_not_see_a_packed_graph_says_which_and_what_to_do(machine: Machine, tmp_path: Path) -> None:
    """Below /proc/self each process sees its own folders, as machines without a shared file system do."""
    csbm(90, 3).pack(tmp_path / "graph.cg")
    found = []
    for place in ("graph.cg", "/proc/self/cwd/graph.cg"):
        out = tmp_path / f"out{len(found)}"
        command = ["bench", "-d", place, "--ood-classes", "0", "-m", "degree", "--seeds", "1", "--out", out]
        process = machine.start(*command, "--engine", "ray", "--address", machine.address, folder=tmp_path)
        process.communicate(timeout=120)
        found.append(process.returncode)
    assert found == [0, 1]
    (record, *_) = (json.loads(path.read_text()) for path in out.glob("runs/*/*/*.json"))
    assert record["error"].startswith(
        f"GraphError: {os.uname().nodename} cannot open the graph (/proc/self/cwd/graph.cg: no such folder"
    )
    assert "put a packed graph where all machines of the cluster see it, under the same path" in record["error"]


@pytest.mark.slow
@pytest.mark.parametrize("setting", ["transductive", "inductive"])
def test_trials_on_a_cluster_are_those_of_one_machine(machine: Machine, tmp_path: Path, setting: str) -> None:
    command = ["tune", "-d", "digits", "-m", "vanilla", "knn", "--trials", "7", "--set", "epochs=4"]
    command += ["--setting", setting]
    cluster = machine.start(*command, "--out", tmp_path / "ray", "--engine", "ray", "--address", machine.address)
    local = machine.start(*command, "--out", tmp_path / "local", "--jobs", "1")
    for process in (cluster, local):
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
    found, expected = (json.loads((tmp_path / name / "best.json").read_text()) for name in ("ray", "local"))
    assert found == expected


@pytest.mark.slow
def test_a_probe_on_a_cluster_is_that_of_one_machine(machine: Machine, tmp_path: Path) -> None:
    command = ["probe", "-d", "csbm", "-m", "vanilla", "feature-sum", "--quick", "--set", "epochs=5"]
    cluster = machine.start(*command, "--out", tmp_path / "ray", "--engine", "ray", "--address", machine.address)
    local = machine.start(*command, "--out", tmp_path / "local", "--jobs", "1")
    for process in (cluster, local):
        _, errors = process.communicate(timeout=240)
        assert process.returncode == 0, errors
    expected = records(tmp_path / "local")
    assert len(expected) == 10  # two methods under five conditions
    assert records(tmp_path / "ray") == expected
    assert (tmp_path / "ray" / "probe.csv").read_text() == (tmp_path / "local" / "probe.csv").read_text()


def test_a_cluster_that_is_not_there_is_one_line(machine: Machine, tmp_path: Path) -> None:
    begin = time.monotonic()
    bench = machine.start("bench", *WORK, "--out", tmp_path, "--engine", "ray", "--address", "127.0.0.1:1")
    _, errors = bench.communicate(timeout=120)
    assert bench.returncode == 2
    assert time.monotonic() - begin < 60
    assert errors.startswith("credalgnn: no Ray cluster at 127.0.0.1:1"), errors
    assert errors.count("\n") == 1


def test_runs_of_both_settings_get_their_own_task(tmp_path: Path) -> None:
    """What is sent, with a cluster that only takes it."""
    engine = object.__new__(Ray)
    sent: list[Task] = []

    def take(unit: Unit, task: Task, *_: object) -> int:
        sent.append(task)
        return len(sent)

    engine._ray = SimpleNamespace(put=lambda task: task, cloudpickle=SimpleNamespace(dumps=lambda task: task))
    engine._remote = SimpleNamespace(remote=take)
    engine._source, engine._models, engine._tasks, engine._busy = Source(), tmp_path, {}, {}
    for inductive in (False, True, False):
        engine.start(Unit(print, plan("digits", "degree", 0, inductive=inductive)))
    assert [task.inductive for task in sent] == [False, True, False]
    assert sent[0] is sent[2]


def test_without_ray_the_message_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("credalgnn.runtime.ray.find_spec", lambda name: None)
    with pytest.raises(EngineError, match=r"pip install -e '\.\[ray\]'"):
        Ray(None, Source(), tmp_path)
