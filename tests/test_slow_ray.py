"""A cluster on which everything dies once: the driver, a worker, a node, and the head. Prints what each cost."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ray_cluster import Machine
from test_ray import METHODS, WORK, records

COMMAND = ["bench", *WORK, *METHODS, "--seeds", "4", "--predictions", "none"]
TOTAL = 24  # four methods and two trivial ones, four seeds

pytestmark = pytest.mark.slow


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    found = Machine(tmp_path)
    yield found
    found.stop()


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("local")
    done = subprocess.run(
        [sys.executable, "-m", "credalgnn", *COMMAND, "--out", folder / "out", "--jobs", "2"],
        capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return records(folder / "out")


def kill_a_worker(machine: Machine) -> None:
    """That does a unit."""
    machine.kill_a_process("ray::_do_remotely")


DEATHS: dict[str, Callable[[Machine], None] | None] = {
    "driver": None,
    "worker": kill_a_worker,
    "node": Machine.kill_second_node,
    "head": Machine.kill_the_head,
}


@pytest.mark.parametrize("who", list(DEATHS))
def test_a_death_costs_only_what_was_under_way(
    who: str, machine: Machine, expected: dict[str, Any], tmp_path: Path
) -> None:
    out, on_ray = tmp_path / "out", ["--engine", "ray", "--address", machine.address]
    bench = machine.start(*COMMAND, "--out", out, *on_ray)
    assert bench.stderr is not None
    lines = [bench.stderr.readline() for _ in range(3)]
    assert lines[-1].startswith(f"[3/{TOTAL}] digits"), lines
    before = {path: path.read_bytes() for path in out.glob("runs/*/*/*.json")}
    begin, death = time.monotonic(), DEATHS[who]
    if death is None:
        bench.kill()
    else:
        death(machine)
    _, errors = bench.communicate(timeout=300)
    seconds = time.monotonic() - begin
    code = bench.returncode
    assert "Traceback" not in errors, errors[-2000:]
    if who in ("worker", "node"):
        assert code == 0, errors[-2000:]
    else:
        engine = on_ray if who == "driver" else ["--jobs", "2"]
        again = machine.start(*COMMAND, "--out", out, *engine)
        _, errors = again.communicate(timeout=300)
        assert again.returncode == 0, errors[-2000:]
    if who == "head":
        assert code in (1, 2), errors[-2000:]
    lost = sum(path.read_bytes() != content for path, content in before.items())
    found = records(out)
    print(f"\n| {who} | {code} | {seconds:.0f} | {len(before)} | {lost} | {len(found)} | {int(found != expected)} |")
    assert (lost, len(found), found == expected) == (0, TOTAL, True)
