"""Files written whole or not at all, and locks between processes."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from credalgnn.runtime.files import Lock, atomic, locked, to_json, write


def test_a_file_is_there_whole_and_alone(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "file"
    write(path, b"first")
    write(path, b"second")
    assert path.read_bytes() == b"second"
    assert list(path.parent.iterdir()) == [path]


def test_what_fails_halfway_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write(path, b"old")
    with atomic(path) as file:
        file.write(b"new")
        file.flush()
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    with pytest.raises(ValueError, match="closed file"), atomic(path) as file:
        file.close()
    assert (path.read_bytes(), list(tmp_path.iterdir())) == (b"new", [path])


def test_errors_name_the_file_and_not_its_part(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError) as raised:
        write(tmp_path / "folder", b"")
    assert str(raised.value).endswith(f"'{tmp_path / 'folder'}'")
    with pytest.raises(OSError, match="No space left") as raised, atomic(tmp_path / "file"):
        raise OSError(28, "No space left")  # as a write raises it, without a name
    assert raised.value.filename == str(tmp_path / "file")


def test_json_refuses_what_no_other_program_reads() -> None:
    assert set(json.loads(to_json({"a": 1}))) == {"a", "checksum"}
    with pytest.raises(ValueError, match="not JSON compliant"):
        to_json({"a": float("nan")})


HOLDER = """
import sys, time
from pathlib import Path
from credalgnn.runtime.files import Lock
assert Lock.take(lock := Lock(Path(sys.argv[1])), shared=len(sys.argv) > 2)
print("held", flush=True)
time.sleep(60)
"""


def hold(path: Path, *shared: str) -> subprocess.Popen[str]:
    """Another process, which has the lock by now."""
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(path), *shared], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_lock_dies_with_its_holder(tmp_path: Path) -> None:
    path = tmp_path / "new" / "lock"
    with hold(path) as other:
        with locked(path, wait=False) as held:
            assert not held
        os.kill(other.pid, signal.SIGKILL)
        with locked(path, wait=True) as held:
            assert held
            assert not Lock(path).take()
    with locked(path, wait=False) as held:
        assert held


@pytest.mark.parametrize("third", [False, True])
def test_a_lock_on_a_file_that_is_removed_is_none(third: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its holder removes it, with its folder, between the moments when another one opens it and locks it."""
    path = tmp_path / "new" / "lock"
    first, second, real = Lock(path), Lock(path), fcntl.flock
    assert first.take()

    def flock(handle: int, how: int) -> None:
        monkeypatch.setattr(fcntl, "flock", real)
        shutil.rmtree(path.parent)
        first.free()
        assert not third or second.take()
        real(handle, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    lock = Lock(path)
    assert lock.take() != third
    assert not Lock(path).take()
    lock.free()


def test_a_shared_lock_becomes_exclusive_when_the_others_are_gone(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    lock = Lock(path)
    assert lock.take(shared=True)
    with hold(path, "shared") as other:
        assert not lock.take()
        assert lock.take(shared=True)
        os.kill(other.pid, signal.SIGKILL)
    assert lock.take()
    assert not Lock(path).take(shared=True)
    lock.free()
    assert Lock(path).take(shared=True)
