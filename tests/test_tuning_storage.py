"""The storage of trials: damage, half lines, databases."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import optuna
import pytest

from credalgnn.experiments.engines import EngineError
from credalgnn.experiments.search import Search, run_searches
from credalgnn.experiments.storage import open_storage
from searches import ENDLESS, Instant, Owned, a_run, finish, finished_trials, kept, search, with_curve


@pytest.mark.parametrize("half", [b'{"op_code":4,"worker', b"{", b'{"op_code":4,"worker_id":"x"}'])
def test_half_a_line_at_the_end_of_a_journal_is_mended(half: bytes, tmp_path: Path) -> None:
    first = search(tmp_path, trials=4)
    assert finish([first], Instant())
    journal = tmp_path / "tuning.journal"
    whole = journal.read_bytes()
    with journal.open("ab") as file:
        file.write(half)
    second = search(tmp_path, trials=6)
    assert journal.read_bytes().startswith(whole)
    assert second.finished[:4] == first.finished
    assert finish([second], Instant())
    assert len(finished_trials(kept(tmp_path))) == 6
    assert all(json.loads(line) for line in journal.read_bytes().splitlines())


def test_half_a_line_is_mended_while_others_work(tmp_path: Path) -> None:
    """Somebody else dies in the middle of a write: the next one to write cuts the half line off."""
    one = search(tmp_path, trials=12)
    units = one.next_trials()
    with (tmp_path / "tuning.journal").open("ab") as journal:
        journal.write(b'{"op_code":4,"wor')
    for number, _ in units:
        one.report(number, {"value": 1.0})
    assert len(search(tmp_path, trials=12).finished) == len(units)


def test_a_journal_that_is_damaged_is_named(tmp_path: Path) -> None:
    """A whole line that cannot be read was not left by a kill; nothing is cut off in silence."""
    assert finish([search(tmp_path, trials=2)], Instant())
    journal = tmp_path / "tuning.journal"
    journal.write_bytes(journal.read_bytes() + b"garbage\n")
    with pytest.raises(EngineError, match=re.escape(str(journal))):
        search(tmp_path, trials=2)
    assert journal.read_bytes().endswith(b"garbage\n")


def test_half_a_first_line_is_mended(tmp_path: Path) -> None:
    (tmp_path / "tuning.journal").write_bytes(b'{"op_code":0,"stu')
    assert finish([search(tmp_path, trials=2)], Instant())
    assert len(kept(tmp_path)) == 2


def test_a_whole_journal_is_left_as_it_is(tmp_path: Path) -> None:
    assert finish([search(tmp_path, trials=2)], Instant())
    before = (tmp_path / "tuning.journal").read_bytes()
    open_storage(tmp_path)
    assert (tmp_path / "tuning.journal").read_bytes() == before


def test_a_database_does_as_well(tmp_path: Path, undisturbed: Path) -> None:
    url = f"sqlite:///{tmp_path / 'trials.db'}"
    storage = open_storage(tmp_path, url)
    one = Search("small vanilla", "0", ENDLESS, 15, a_run, storage, Owned(tmp_path / ".owners"), prune=True)
    assert finish([one], Instant(3, answer=with_curve))
    assert not (tmp_path / "tuning.journal").exists()
    other = open_storage(tmp_path, url)
    again = Search("small vanilla", "0", ENDLESS, 15, a_run, other, Owned(tmp_path / ".owners"))
    assert again.is_finished
    assert again.top(15) == one.top(15) == search(undisturbed).top(15)
    assert again.finished[0].user_attrs["seen"]
    for each in (storage, other):
        assert isinstance(each, optuna.storages.RDBStorage)
        each.remove_session()
        each.engine.dispose()


@pytest.mark.parametrize(
    "url", ["nonsense", "", "nosuchdb://host/trials", "sqlite:////no/such/folder/trials.db", "mysql://host:x/y"]
)
def test_a_storage_that_cannot_be_opened_is_an_engine_error(url: str, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="`storage`") as caught:
        open_storage(tmp_path, url)
    assert "\n" not in str(caught.value)
    assert url in str(caught.value)


OWNER = """
import sys, time
from pathlib import Path
from credalgnn.experiments import search as study
from searches import ENDLESS, Owners, Search, a_run, open_storage

place, mode = Path(sys.argv[1]), sys.argv[2]
study.BEAT = 0.1
one = Search("small vanilla", "0", ENDLESS, 6, a_run, open_storage(place, sys.argv[3]), Owners(place / "a"))
assert len(one.next_trials(2)) == 2
print("ready", flush=True)
while True:
    time.sleep(0.1)
    if mode == "beating":
        one.beat()
"""


@pytest.mark.parametrize("mode", ["killed", pytest.param("beating", marks=pytest.mark.slow)])
def test_an_owner_who_cannot_be_seen_is_told_by_its_heartbeats(
    mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Processes with folders of their own and one database: who waits says for whom, and not for long."""
    url = f"sqlite:///{tmp_path / 'trials.db'}"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])}
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path), mode, url], env=env, stdout=subprocess.PIPE, text=True
    )
    try:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "ready\n"
        if mode == "killed":
            owner.kill()
            owner.wait()
        monkeypatch.setattr("credalgnn.experiments.search.PATIENCE", 0.5)
        said: list[str] = []

        def told(line: str) -> None:
            said.append(line)
            monkeypatch.setattr("credalgnn.experiments.storage.SILENT", 5.0)

        other = Search("small vanilla", "0", ENDLESS, 6, a_run, open_storage(tmp_path, url), Owned(tmp_path / "b"))
        done = run_searches([other], Instant(2), time.monotonic() + (100 if mode == "killed" else 15), on_wait=told)
        assert done == (mode == "killed")
        assert len(other.finished) == (6 if mode == "killed" else 4)
    finally:
        owner.kill()
        owner.wait()
        owner.stdout.close()
    (line,) = said
    assert line.startswith(
        f"small vanilla: waiting for process {owner.pid} on {socket.gethostname()}, not heard of for"
    )
    assert line.endswith("after 90 s this command does its work")
