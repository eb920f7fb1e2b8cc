"""Searches side by side: neither stops nor deaths nor company change what is tried."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from credalgnn.experiments import search as driver
from credalgnn.experiments import storage as storage_module
from credalgnn.experiments.engines import Unit
from credalgnn.experiments.search import Search, run_searches
from credalgnn.methods.parameters import Space
from searches import (
    ENDLESS,
    FEW,
    FINITE,
    Instant,
    die,
    finish,
    finished_trials,
    kept,
    search,
    tried,
    until,
    worth,
)


def test_progress_is_told(tmp_path: Path) -> None:
    told: list[tuple[int, str, float]] = []
    both = [search(tmp_path, trials=5), search(tmp_path, FINITE, 3, "other")]
    assert run_searches(both, Instant(3), None, lambda done, one, found: told.append((done, one.name, found["value"])))
    assert [done for done, _, _ in told] == list(range(1, 9))
    assert [name for _, name, _ in told].count("small vanilla") == 5


def ticking(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that goes on by one whenever somebody looks at it."""
    clock = SimpleNamespace(monotonic=itertools.count().__next__, sleep=time.sleep, time=time.time)
    monkeypatch.setattr(driver, "time", clock)


@pytest.mark.parametrize("space", [ENDLESS, FINITE], ids=["endless", "finite"])
@pytest.mark.parametrize("ticks", [0, 1, 4, 8])
def test_a_search_goes_on_after_a_deadline(
    ticks: int, space: Space, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = search(tmp_path, space, 20)
    with monkeypatch.context() as patch:
        ticking(patch)
        assert not run_searches([first], Instant(2), deadline=ticks)
    before = {one.number: (one.params, one.user_attrs.get("seed"), one.state) for one in kept(tmp_path)}
    open_ones = sorted((str(p), s) for p, s, state in before.values() if state == TrialState.RUNNING)
    assert len(finished_trials(kept(tmp_path))) < first.trials
    assert open_ones or not ticks
    die(first)
    second = search(tmp_path, space, 20)
    assert finish([second], Instant(2))
    assert len(second.finished) == first.trials == (16 if space is FINITE else 20)
    trials = kept(tmp_path)
    assert {one.state for one in trials} <= {TrialState.COMPLETE, TrialState.FAIL}
    lost = sorted((str(one.params), one.user_attrs["seed"]) for one in trials if one.user_attrs.get("lost"))
    assert lost == open_ones
    again = [(str(one.params), one.user_attrs["seed"]) for one in finished_trials(trials)]
    assert all(again.count(one) == 1 for one in lost), "with the same point and seed, once"
    assert len({point for point, _ in again}) == len(again), "no point is tried twice"


def test_a_finished_search_does_nothing(tmp_path: Path) -> None:
    assert finish([search(tmp_path, trials=4)], Instant())
    before = kept(tmp_path)
    engine = Instant()
    assert run_searches([search(tmp_path, trials=4)], engine, deadline=0.0)
    assert not engine.units
    assert kept(tmp_path) == before
    more = search(tmp_path, trials=6)  # more were asked for later
    assert finish([more], engine)
    assert len(engine.units) == 2


@pytest.mark.parametrize("ticks", [1, 4, 7, 10])
def test_a_stop_does_not_change_what_is_tried(
    ticks: int, tmp_path: Path, undisturbed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = search(tmp_path)
    with monkeypatch.context() as patch:
        ticking(patch)
        assert not run_searches([first], Instant(2), deadline=ticks)
    die(first)
    assert finish([second := search(tmp_path)], Instant(2))
    assert tried(tmp_path) == tried(undisturbed)
    assert second.top(15, among=8) == search(undisturbed).top(15, among=8)


class Killed(BaseException):
    """The end of a process, wherever it is."""


@pytest.mark.parametrize("space", [ENDLESS, FEW], ids=["endless", "finite"])
def test_a_death_at_any_write_costs_nothing(space: Space, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Die before the n-th write to the journal, for many n, and go on: what is tried is the same."""
    monkeypatch.setattr(
        storage_module, "timedelta", lambda **_: timedelta(0), raising=False
    )  # do not wait for the unsigned
    trials = 8 if space is FEW else 9
    append, left = JournalFileBackend.append_logs, [10**9]

    def mortal(self: JournalFileBackend, logs: list[dict[str, Any]]) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise Killed
        append(self, logs)

    monkeypatch.setattr(JournalFileBackend, "append_logs", mortal)
    assert finish([search(tmp_path / "whole", space, trials)], Instant(2))
    seeds = slice(1) if space is FEW else slice(2)  # trials of a finite space do not use theirs
    writes, wanted = 10**9 - left[0], [one[seeds] for one in tried(tmp_path / "whole")]
    bad: dict[int, str] = {}
    for number in [*range(1, writes // 2, 4), *range(writes // 2, writes, 10)]:
        folder = tmp_path / str(number)
        left[0] = number
        first = None
        with pytest.raises(Killed):
            run_searches([first := search(folder, space, trials)], Instant(2))
        left[0] = 10**9
        if first is not None:
            die(first)
        assert finish([search(folder, space, trials)], Instant(2))
        found = tried(folder)
        if len(found) != trials:
            bad[number] = f"{len(found)} trials"
        elif len({point for point, _ in found}) != trials:
            bad[number] = f"{trials - len({point for point, _ in found})} points twice"
        elif [one[seeds] for one in found] != wanted:
            bad[number] = "other points or seeds"
    assert not bad, f"of {writes} writes"


def test_trials_of_the_living_are_left_alone(tmp_path: Path) -> None:
    first, second = search(tmp_path, trials=9), search(tmp_path, trials=9)
    mine = dict(first.next_trials())
    second.next_trials()
    states = {one.number: one for one in kept(tmp_path)}
    assert mine
    assert all(
        states[number].state == TrialState.RUNNING and "lost" not in states[number].user_attrs for number in mine
    )
    assert not first.next_trials(), "while one's own are under way, none"


def test_two_that_take_turns_try_what_one_would(tmp_path: Path, undisturbed: Path) -> None:
    """Two searches on one storage, one of them always a step behind."""
    pair = [search(tmp_path), search(tmp_path)]
    waiting: list[tuple[Search, int, Unit]] = []
    for _ in range(1000):
        for one in pair:
            waiting.extend((one, number, unit) for number, unit in one.next_trials())
        if not waiting:
            break
        one, number, unit = waiting.pop()
        one.report(number, worth(unit.run))
    ended = finished_trials(kept(tmp_path))
    assert len(ended) == len(kept(tmp_path)) == 15
    assert len({json.dumps(trial.params) for trial in ended}) == 15, "points are tried twice"
    assert tried(tmp_path) == tried(undisturbed)


def child(role: str, folder: Path, gate: Path) -> None:
    """What another process does; see below."""
    if role == "ask":  # begins a round of each study, ends two trials of it, and never comes back
        both = [search(folder, space, 30, name) for name, space in (("endless", ENDLESS), ("finite", FINITE))]
        for one in both:  # which hold their locks as long as there is a reference
            for number, unit in one.next_trials()[:2]:
                one.report(number, worth(unit.run))
        (gate / f"{role}-{folder.name}").touch()
        time.sleep(600)
    (gate / str(os.getpid())).touch()
    while not (gate / "open").exists():
        time.sleep(0.001)
    for name, space, trials in (("finite", FINITE, 30), ("endless", ENDLESS, 20)):
        if not run_searches([search(folder, space, trials, name)], Instant(2, os.getpid()), time.monotonic() + 300):
            raise TimeoutError


def start_child(role: str, folder: Path, gate: Path) -> subprocess.Popen[str]:
    words = f"from test_tuning_run import Path, child; child({role!r}, Path({str(folder)!r}), Path({str(gate)!r}))"
    path = os.pathsep.join([str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    return subprocess.Popen([sys.executable, "-c", words], stderr=subprocess.PIPE, text=True, env=environment)


def waited(children: Sequence[subprocess.Popen[str]], signs: Sequence[Path]) -> None:
    """Wait until children are where they shall be."""
    until(lambda: all(sign.exists() for sign in signs) or any(one.poll() for one in children), "children")
    for one in children:
        assert one.poll() is None, one.communicate()[1]


def test_trials_of_a_killed_process_are_done_again(tmp_path: Path) -> None:
    """One process is killed, another in the same state lives on: the trials of the first only are done again."""
    dead, alive, gate = tmp_path / "dead", tmp_path / "alive", tmp_path
    both = [start_child("ask", folder, gate) for folder in (dead, alive) if not folder.mkdir()]
    try:
        waited(both, [gate / "ask-dead", gate / "ask-alive"])
        both[0].kill()
        both[0].wait()
        for name, space, total in (("endless", ENDLESS, 30), ("finite", FINITE, 16)):
            begun = [one for one in kept(dead, name) if one.state == TrialState.RUNNING]
            assert len(begun) == 4
            again = search(dead, space, 30, name)
            units = [unit for _, unit in again.next_trials()]
            found = [(unit.run.config, unit.run.seed) for unit in units]
            assert all((one.params, one.user_attrs["seed"]) in found for one in begun)
            assert [kept(dead, name)[one.number].state for one in begun] == [TrialState.FAIL] * 4
            die(again)
            assert finish([last := search(dead, space, 30, name)], Instant(2))
            assert len(last.finished) == total
            assert len({json.dumps(one.params) for one in last.finished}) == total
            before = [(one.number, one.params) for one in kept(alive, name) if one.state == TrialState.RUNNING]
            other = search(alive, space, 6, name)  # no more than the living one has begun
            assert not other.next_trials()
            after = [(one.number, one.params) for one in kept(alive, name) if one.state == TrialState.RUNNING]
            assert len(before) == 4
            assert after == before
            assert not any(one.user_attrs.get("lost") for one in kept(alive, name))
    finally:
        for process in both:
            process.kill()
            process.communicate()


def test_processes_share_a_search(tmp_path: Path) -> None:
    """Two at once, with trials that take no time: nothing is lost, doubled, or done beyond what was asked for."""
    folder = tmp_path / "shared"
    folder.mkdir()
    children = [start_child("work", folder, tmp_path) for _ in range(2)]
    try:
        waited(children, [tmp_path / str(one.pid) for one in children])
        (tmp_path / "open").touch()
        said = [one.communicate(timeout=400)[1] for one in children]
        assert [one.returncode for one in children] == [0, 0], said
    finally:
        for process in children:
            process.kill()
            process.communicate()
    for name, total in (("finite", 16), ("endless", 20)):
        trials = kept(folder, name)
        counts = {state.name: sum(one.state == state for one in trials) for state in TrialState}
        assert counts == {"RUNNING": 0, "COMPLETE": total, "PRUNED": 0, "FAIL": 0, "WAITING": 0}, name
        assert len({json.dumps(one.params, sort_keys=True) for one in trials}) == total, f"{name}: points tried twice"
        assert len({one.user_attrs["seed"] for one in trials}) == total
