"""The recipes for clusters: they can be read, and what they start is a command that exists and does what it should."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from credalgnn.cli import main
from credalgnn.cli.common import settings_of
from credalgnn.methods.registry import choose

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


COMMANDS = {  # what a machine of Slurm has, as far as the script asks; what is started writes down how
    "scontrol": "printf 'node%s\\n' 1 2 3 4",
    "srun": 'while [[ $1 == --* ]]; do shift; done; exec "$@"',
    "hostname": '[ "$1" = --all-ip-addresses ] && echo "192.0.2.7 10.0.0.7 " || echo 127.0.1.1',
    "python": "echo 16",
    "ray": 'echo "ray $* cpus=$SRUN_CPUS_PER_TASK" >> "$TOLD"',
    "credalgnn": 'echo "credalgnn $*" >> "$TOLD"',
}


def test_the_slurm_script_gives_machines_what_they_need(tmp_path: Path) -> None:
    for name, line in COMMANDS.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{line}\n")
        (tmp_path / name).chmod(0o755)
    job = {"SLURM_JOB_NODELIST": "node[1-4]", "SLURM_JOB_NUM_NODES": "4", "SLURM_CPUS_PER_TASK": "8"}
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "TOLD": str(tmp_path / "told"), **job}
    script = ["bash", RECIPES / "slurm.sh", "graph.cg", "a model"]
    subprocess.run(script, env=environment, check=True, timeout=60, capture_output=True)  # until all of it has ended
    command, *servers = sorted((tmp_path / "told").read_text().splitlines())
    assert servers == [
        "ray start --address=192.0.2.7:6379 --num-cpus=4 --block cpus=8",
        "ray start --head --node-ip-address=192.0.2.7 --port=6379 --num-cpus=4 --include-dashboard=false --block "
        "cpus=8",
    ]
    assert command == (
        "credalgnn fit --graph graph.cg --out a model --method credal-coverage --set batch_size=32000 "
        "--engine ray --workers 16 --address 192.0.2.7:6379"
    )


def test_a_batch_of_the_kubernetes_job_is_worth_sharing() -> None:
    """And is that of the network that credal-coverage stands on."""
    command = shlex.split(yaml.safe_load((RECIPES / "kuberay.yaml").read_text())["spec"]["entrypoint"])
    given = {word: command[command.index(word) + 1] for word in ("--method", "--set", "--workers")}
    (choice,) = choose([given["--method"]], settings_of([given["--set"]]), with_baselines=False)
    assert choice.components == {"batch_size": 2000 * int(given["--workers"])}


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
