"""The recipes for clusters: they can be read, and what they start is a command that exists."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from credalgnn.cli import main

yaml = pytest.importorskip("yaml")
RECIPES = Path(__file__).parents[1] / "docs" / "recipes"


def options_of(command: str) -> set[str]:
    return {word for word in shlex.split(command) if word.startswith("--")}


def options_of_fit(capsys: pytest.CaptureFixture[str]) -> set[str]:
    with pytest.raises(SystemExit):
        main(["fit", "--help"])
    return set(re.findall(r"--[a-z][a-z-]+", capsys.readouterr().out))


def slurm_command() -> str:
    lines = (RECIPES / "slurm.sh").read_text().replace("\\\n", " ")
    (command,) = re.findall(r"credalgnn fit .*", lines)
    return command


def test_the_slurm_script_is_one_and_starts_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    subprocess.run(["bash", "-n", RECIPES / "slurm.sh"], check=True)
    named = options_of(slurm_command())
    assert {"--engine", "--workers", "--address", "--graph", "--out"} <= named
    assert named <= options_of_fit(capsys)


def test_the_kubernetes_job_starts_the_same_command_and_has_room_for_its_workers(
    capsys: pytest.CaptureFixture[str],
) -> None:
    job = yaml.safe_load((RECIPES / "kuberay.yaml").read_text())
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    command = shlex.split(job["spec"]["entrypoint"])
    assert command[:2] == ["credalgnn", "fit"]
    assert options_of(shlex.join(command)) == options_of(slurm_command())
    assert options_of(shlex.join(command)) <= options_of_fit(capsys)
    (group,) = job["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    workers = int(command[command.index("--workers") + 1])
    assert workers == group["replicas"] * int(group["rayStartParams"]["num-cpus"])
