"""Files written whole or not at all, and locks between processes."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from credalgnn.runtime.files import Lock, Occupancy, atomic, check_writable, locked, to_json, write


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
assert Lock.take(lock := Lock(Path(sys.argv[1])))
print("held", flush=True)
time.sleep(60)
"""


def hold(path: Path, program: str = HOLDER) -> subprocess.Popen[str]:
    """Another process, which has the lock by now."""
    process = subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, text=True)
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


AT_WORK = """
import sys, time
from pathlib import Path
from credalgnn.runtime.files import Occupancy
occupancy = Occupancy(Path(sys.argv[1]))
occupancy.enter()
print("held", flush=True)
time.sleep(60)
"""


def test_the_last_process_at_work_in_a_folder_is_alone(tmp_path: Path) -> None:
    here, watcher = Occupancy(tmp_path), Occupancy(tmp_path)
    here.enter()
    with hold(tmp_path, AT_WORK) as other:
        with here.alone() as alone:
            assert not alone
        os.kill(other.pid, signal.SIGKILL)
    with here.alone() as alone:
        assert alone
    with watcher.alone() as alone:
        assert not alone
    here.leave()
    with watcher.alone() as alone:
        assert alone
    assert not (tmp_path / ".at-work").exists()


def test_places_that_cannot_be_written_are_told_before_any_work(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "file").write_text("whole")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "pipe")
    refused = ["loop", "loop/x.csv", "file/x.csv", ".", "pipe", "x" * 300, "y" * 300 + "/x.csv"]
    for name in refused:
        with pytest.raises(OSError, match=re.escape(str(tmp_path / name))) as raised:
            check_writable(tmp_path / name)
        assert raised.value.filename == str(tmp_path / name)
    for name in ("loop", "loop/x", "file", "file/x", "pipe"):
        with pytest.raises(OSError, match=name):
            check_writable(tmp_path / name, folder=True)
    for name in ("file", "new.csv", "a/b/c.csv", "link"):
        check_writable(tmp_path / name)
    for name in ("", "new", "a/b/c", "link"):
        check_writable(tmp_path / name, folder=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "link", "loop", "pipe"]
    assert (tmp_path / "file").read_text() == "whole"
