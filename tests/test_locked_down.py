"""Compiled kernels where they cannot be kept, are damaged, or could have been put there by somebody else."""

from __future__ import annotations

import importlib.util
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numba
import pytest

from credalgnn.graphs import csbm
from credalgnn.runtime import compiling

SOURCE = """
from credalgnn.runtime.compiling import kernel

@kernel()
def twice(x):
    return 2 * x
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a kernel, in a process that has said nothing yet and whose user has no other cache."""
    (tmp_path / "twice.py").write_text(SOURCE)
    monkeypatch.setattr(compiling, "_said", False)
    for name in ("HOME", "XDG_CACHE_HOME", "TMPDIR"):
        monkeypatch.setenv(name, "/dev/null/nobody")
    monkeypatch.setattr(compiling, "private_folder", nowhere)
    compiling.is_private.cache_clear()
    return tmp_path


def nowhere(name: str) -> Path:
    raise PermissionError(name)


def made(place: Path) -> Any:
    """The kernel as a new process would make it."""
    spec = importlib.util.spec_from_file_location("twice", place / "twice.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.twice


def hits(kernel: Any) -> int:
    return sum(kernel.stats.cache_hits.values())


def files(place: Path, ending: str) -> list[Path]:
    return list((place / "__pycache__").glob(f"*.{ending}"))


def test_a_kernel_is_kept(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = made(place), made(place)
    assert (first(3), hits(first)) == (6, 0)
    assert (second(4), hits(second)) == (8, 1)
    assert capsys.readouterr().err == ""


def test_without_a_place_for_them_kernels_work_and_one_line_says_so(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(place / "__pycache__", ignore_errors=True)
    (place / "__pycache__").write_text("no folder")
    assert [made(place)(3), made(place)(4)] == [6, 8]
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("credalgnn: compiled kernels are not kept, as no folder for them can be written: ")
    assert "NUMBA_CACHE_DIR" in line


@pytest.mark.parametrize("ending", ["nbi", "nbc"])
@pytest.mark.parametrize("damage", ["cut", "empty", "garbled"])
def test_a_damaged_kernel_is_made_anew(
    ending: str, damage: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert made(place)(3) == 6
    (path,) = files(place, ending)
    whole = path.read_bytes()
    middle = len(whole) // 2
    path.write_bytes({"cut": whole[:middle], "empty": b"", "garbled": b"\x00garbled" * 9}[damage])
    again, after = made(place), made(place)
    assert (again(4), hits(again)) == (8, 0)
    assert (after(5), hits(after)) == (10, 1)
    assert capsys.readouterr().err == ""


class Bomb:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.mark,))


ROOT = hasattr(os, "getuid") and os.getuid() == 0
AS_ROOT = pytest.mark.skipif(not ROOT, reason="giving a file to somebody else takes root")


@pytest.mark.parametrize("who", ["group", "world", pytest.param("owner", marks=AS_ROOT)])
@pytest.mark.parametrize("what", ["folder", "file", "above"])
def test_what_others_may_write_is_not_read(
    who: str, what: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A pickle in it would be run."""
    inner = place / "inner"
    inner.mkdir()
    shutil.copy(place / "twice.py", inner)
    if who == "group" and ROOT:
        os.chown(inner, 0, 65534)
    assert made(inner)(3) == 6
    (index,) = files(inner, "nbi")
    index.write_bytes(pickle.dumps(Bomb(place / "exploded")))
    target = {"folder": index.parent, "file": index, "above": inner}[what]
    if who == "owner":
        os.chown(target, 65534, 65534)
    else:
        if ROOT:
            os.chown(target, 0, 65534)
        target.chmod(target.stat().st_mode | (0o020 if who == "group" else 0o002))
    compiling.is_private.cache_clear()
    if who == "group" and compiling.is_private(index.parent):
        pytest.skip("the group is this user alone")
    assert made(inner)(4) == 8
    assert not (place / "exploded").exists()
    (line,) = capsys.readouterr().err.splitlines()
    assert "NUMBA_CACHE_DIR" in line


def test_a_private_folder_serves_where_numba_s_is_open_to_others(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "__pycache__").mkdir(exist_ok=True)
    (place / "__pycache__").chmod(0o777)
    (place / "private").mkdir()
    monkeypatch.setattr(compiling, "private_folder", lambda name: place / "private")
    assert [made(place)(3), hits(made(place))] == [6, 0]
    again = made(place)
    assert (again(4), hits(again)) == (8, 1)
    assert list((place / "private").rglob("*.nbc"))
    assert numba.config.CACHE_DIR == ""
    assert capsys.readouterr().err == ""


COMMAND = """
import sys
from credalgnn.cli import main
from credalgnn.graphs import csbm
from credalgnn.runtime import compiling, memory
if sys.argv[2:]:
    memory.temporary_folder = lambda: memory.Path(sys.argv[2])
sys.exit(main(["uncertainty", sys.argv[1]]))
"""


@pytest.mark.slow
def test_a_read_only_installation_without_a_home(tmp_path: Path) -> None:
    """As another user, or by root without the right to pass over modes."""
    package = tmp_path / "site"
    shutil.copytree(
        Path(compiling.__file__).parents[1], package / "credalgnn", ignore=shutil.ignore_patterns("__pycache__")
    )
    table = tmp_path / "bounds.csv"
    table.write_text("id,lower_a,lower_b,upper_a,upper_b\n1,0.1,0.2,0.8,0.9\n")
    for path in (*package.rglob("*"), package):
        path.chmod(0o555 if path.is_dir() else 0o444)
    for path in (tmp_path, *tmp_path.parents):
        if path.owner() == Path.home().owner() and path.stat().st_mode & 0o700 == 0o700 and "pytest" in str(path):
            path.chmod(0o755)
    as_user: list[list[str]] = [[]] if not ROOT else [["setpriv", "--bounding-set=-dac_override,-dac_read_search"]]
    if ROOT and Path("/usr/bin/python3.11").exists():
        as_user.append(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"])
    for words in as_user:
        python = "/usr/bin/python3.11" if "--reuid=65534" in words else sys.executable
        site = [path for path in sys.path if path.endswith("site-packages")]
        env = {"HOME": "/proc/nobody", "PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join([str(package), *site])}
        temporary = tmp_path / f"temporary {len(words)}"
        temporary.mkdir()
        temporary.chmod(0o1777)
        env["TMPDIR"] = str(temporary)
        for more in ([], [], ["/proc"]):
            done = subprocess.run(
                [*words, python, "-c", COMMAND, str(table), *more],
                capture_output=True, text=True, env=env, cwd="/", timeout=300, check=False,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
            assert done.stdout.splitlines()[1].startswith("1,1,0.468995594")
            assert ("no folder for them can be written" in done.stderr) == bool(more)
            assert len(done.stderr.splitlines()) == len(more)
        assert list(temporary.rglob("*.nbc"))


LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[1]) << 20,) * 2)
from credalgnn.cli import main
sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems do not keep to the limit")
@pytest.mark.parametrize("mib", [250, 977, 1367, 1500])
@pytest.mark.parametrize(
    "words", ["uncertainty bounds.csv", "fit --graph graph.npz -m vanilla --set epochs=2 --out model"]
)
def test_little_address_space_is_no_traceback(mib: int, words: str, tmp_path: Path) -> None:
    (tmp_path / "bounds.csv").write_text("lower_a,lower_b,upper_a,upper_b\n0.1,0.2,0.8,0.9\n")
    csbm(nodes=200, classes=4, degree=6, features=8, seed=0).save(tmp_path / "graph.npz")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", LIMITED, str(mib), *words.split()],
        cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert "Traceback" not in done.stderr
    assert done.returncode in ((0, 2) if mib > 1400 else (2,))
    if done.returncode == 2:
        assert done.stderr.splitlines()[-1].startswith("credalgnn: ")
