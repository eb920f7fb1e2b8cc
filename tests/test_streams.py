"""Output that goes nowhere, and systems without what POSIX has: the work is done, or one line says that it is not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from own_graphs import write_tables

BOUNDS = "id,lower_a,lower_b,upper_a,upper_b\n" + "".join(f"{k},0.1,0.2,0.8,0.9\n" for k in range(2000))
LOST = ["2>&-", "2>/dev/full", "2>&1 | true", "2>&1 | head -1"]  # work goes on
NOWHERE = [">&-", ">/dev/full", ">&- 2>&-", ">/dev/full 2>/dev/full"]  # and where the result is the output, it is lost

pytestmark = pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")


def shell(words: str, redirection: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A command as a shell runs it; the exit code is its own, and not that of who reads from it."""
    line = f"{sys.executable} -W ignore -m credalgnn {words} {redirection}; exit ${{PIPESTATUS[0]}}"
    return subprocess.run(["bash", "-c", line], cwd=folder, capture_output=True, text=True, timeout=300, check=False)


def whole(path: Path) -> bool:
    return path.read_text().count("\n") == 2001


@pytest.mark.parametrize(
    "redirection", [*NOWHERE[1:3], *(pytest.param(each, marks=pytest.mark.slow) for each in (*LOST, *NOWHERE[::3]))]
)
def test_a_result_on_stdout_arrives_or_the_exit_code_says_so(redirection: str, tmp_path: Path) -> None:
    (tmp_path / "bounds.csv").write_text(BOUNDS)
    done = shell("uncertainty bounds.csv", redirection, tmp_path)
    assert done.returncode == (1 if redirection in NOWHERE else 0), done.stderr
    assert "Traceback" not in done.stderr
    if redirection in (">&-", ">/dev/full"):
        (line,) = done.stderr.splitlines()
        assert line.startswith("credalgnn: the result could not be written to stdout: ")
    if redirection in ("2>&-", "2>/dev/full"):
        assert done.stdout.count("\n") == 2001


@pytest.mark.slow
@pytest.mark.parametrize("redirection", [LOST[2], *NOWHERE[2:]])
def test_a_result_in_a_file_is_complete(redirection: str, tmp_path: Path) -> None:
    (tmp_path / "bounds.csv").write_text(BOUNDS)
    done = shell("uncertainty bounds.csv --out out.csv", redirection, tmp_path)
    assert done.returncode == 0, done.stderr
    assert whole(tmp_path / "out.csv")


@pytest.mark.slow
@pytest.mark.parametrize("redirection", [">&- 2>&-", ">/dev/full 2>/dev/full"])
@pytest.mark.parametrize(("words", "code"), [("datasets", 1), ("describe digits", 1), ("bench -d digits", 2)])
def test_quick_commands(words: str, code: int, redirection: str, tmp_path: Path) -> None:
    assert shell(words, redirection, tmp_path).returncode == code


@pytest.mark.slow
@pytest.mark.parametrize("redirection", [*LOST, *NOWHERE])
def test_all_commands_finish_their_work(redirection: str, tmp_path: Path) -> None:
    """Each leaves behind what it leaves behind with a terminal, and says by its exit code that it did."""
    write_tables(tmp_path, 200)
    write_tables(tmp_path / "new", 100, seed=5, name="m{:04d}".format, share=1.0)
    tables, new = "--nodes nodes.csv --edges edges.csv", "--nodes new/nodes.csv --edges new/edges.csv"
    lost = int(redirection in NOWHERE)
    commands = [
        ("bench -d digits -m vanilla --seeds 2 --set epochs=2 --jobs 2 --out bench", 0, "bench/report.html"),
        ("report bench --out again", 0, "again/report.html"),
        ("tune -d digits -m vanilla --trials 2 --set epochs=2 hidden=8 --jobs 1 --out tune", 0, "tune/best.json"),
        (f"fit {tables} --label topic --set epochs=5 -m vanilla --out model", 0, "model/model.json"),
        (f"predict model {tables} --out predictions.csv", 0, "predictions.csv"),
        (f"evaluate model {new}", lost, "model/model.json"),
        (f"watch model {new}", 0, "model/watch.safetensors"),
    ]
    for words, code, left in commands:
        done = shell(words, redirection, tmp_path)
        assert done.returncode == code, (words, redirection, done.stderr)
        assert (tmp_path / left).stat().st_size > 0
    assert len(list((tmp_path / "bench").rglob("seed-*.json"))) == 2 * 3  # with the two baselines


WITHOUT = """
import os, sys, warnings

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name in ("fcntl", "resource", "pwd", "grp"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Missing())
for name in ("fcntl", "resource", "pwd", "grp"):
    sys.modules.pop(name, None)
for name in ("getuid", "fork", "sched_getaffinity", "O_CLOEXEC"):
    delattr(os, name)
"""
LIBRARY = """
import torch, credalgnn as cg
warnings.simplefilter("ignore")
cg.uncertainty(cg.IntervalSet(torch.tensor([[0.1, 0.2]]), torch.tensor([[0.8, 0.9]])))
task = cg.load_task("digits")
labels = task.graph.labels.where(task.graph.labels < 8, -1)
model = cg.fit(cg.Graph(task.graph.features, task.graph.edge_index, labels), method=cg.Vanilla(epochs=2))
model.save(sys.argv[1])
print(len(cg.load_model(sys.argv[1]).predict(task.graph).nodes))
"""


def test_without_posix_the_library_works(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WITHOUT + LIBRARY, str(tmp_path / "model")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "1797"), done.stderr[-2000:]
