"""A search: rounds, results, failures, and what is best."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.trial import FrozenTrial, TrialState

from credalgnn.experiments import storage as storage_module
from credalgnn.experiments.best import Best
from credalgnn.experiments.engines import EngineError, Result
from credalgnn.experiments.plan import Run
from credalgnn.experiments.search import CHECKS, FEWEST, Search, Studies, points, size
from credalgnn.experiments.storage import open_storage
from searches import (
    ENDLESS,
    FINITE,
    PROTOCOLS,
    SPACES,
    Instant,
    Owned,
    a_run,
    die,
    finish,
    finished_trials,
    kept,
    search,
    small_task,
    tried,
    with_curve,
    worth,
)


def points_of(trials: Sequence[FrozenTrial]) -> list[str]:
    return [json.dumps(trial.params, sort_keys=True) for trial in trials]


def test_thresholds_need_enough_others(tmp_path: Path) -> None:
    """A threshold is what three of four trials of earlier rounds were below, and there is none by fewer than FEWEST."""
    one, engine = search(tmp_path, trials=24, prune=True), Instant(slots=3, answer=with_curve)
    before: list[tuple[dict[int, float], list[dict[str, float]]]] = []
    while not one.is_finished:
        seen = [trial.user_attrs["seen"] for trial in finished_trials(kept(tmp_path))]
        for number, unit in one.next_trials():
            before.append((unit.args[0], seen))
            one.report(number, with_curve(unit.run))
    assert len(before) == 24
    for thresholds, curves in before:
        for check in CHECKS:
            values = [curve[str(check)] for curve in curves if str(check) in curve]
            assert (check in thresholds) == (len(values) >= FEWEST)
            if check in thresholds:
                assert thresholds[check] == pytest.approx(np.quantile(values, 0.75))
    assert not before[6][0]
    assert {50, 100} == set(before[-1][0])
    assert engine.units == []


def test_pruned_trials_count_as_finished_and_are_never_the_best(tmp_path: Path) -> None:
    def answer(run: Run) -> dict[str, Any]:
        return worth(run) if run.seed % 3 else {"pruned": True, "seen": {50: 1.0}, "seconds": 0.0}

    one = search(tmp_path, trials=12, prune=True)
    assert finish([one], Instant(slots=2, answer=answer))
    states = [trial.state for trial in kept(tmp_path)]
    assert states.count(TrialState.PRUNED) == 4
    assert len(states) == 12
    assert len(one.top(50)) == 8
    assert all(best.seed % 3 for best in one.top(50))


def test_without_comparable_monitors_nothing_is_pruned(tmp_path: Path) -> None:
    one, engine = search(tmp_path, trials=20), Instant(answer=with_curve)
    assert finish([one], engine)
    assert all(unit.args == ({},) for unit in engine.units)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_which_monitors_can_be_compared(protocol: Any, tmp_path: Path) -> None:
    studies = Studies(tmp_path, protocol, "uniform")
    can = {name: studies.search(small_task(), name, ENDLESS, 3, a_run, []).prune for name in SPACES}
    wanted = {"credal-lj", "credal-final", "credal-dual"} if protocol == "paper" else set()
    assert {name for name in can if can[name]} == wanted


@pytest.mark.parametrize(("slots", "order"), [(1, 1), (2, 2), (5, 3), (9, 4)])
def test_what_is_tried_does_not_depend_on_the_slots(slots: int, order: int, tmp_path: Path, undisturbed: Path) -> None:
    one = search(tmp_path)
    assert finish([one], Instant(slots, order))
    assert tried(tmp_path) == tried(undisturbed)
    assert one.top(15) == search(undisturbed).top(15)
    seeds = [trial.user_attrs["seed"] for trial in kept(tmp_path)]
    assert sorted(seeds) == list(range(1000, 1015))
    assert len({json.dumps(trial.params) for trial in kept(tmp_path)}) == 15


def test_searches_side_by_side_do_not_change_each_other(tmp_path: Path, undisturbed: Path) -> None:
    both = [search(tmp_path), search(tmp_path, FINITE, 30, "other")]
    assert finish(both, Instant(4))
    assert tried(tmp_path) == tried(undisturbed)
    assert len(tried(tmp_path, "other")) == 16


def test_the_best_come_first_and_of_equals_the_earlier(tmp_path: Path) -> None:
    one = search(tmp_path, trials=10)
    assert finish([one], Instant(2, answer=lambda run: {"value": float(run.seed // 2 % 3)}))
    trials = sorted(kept(tmp_path), key=lambda trial: (-(trial.value or 0.0), trial.number))
    wanted = [Best(trial.params, float(trial.value or 0.0), trial.user_attrs["seed"]) for trial in trials]
    assert one.top(10) == wanted
    assert one.top(3) == wanted[:3]
    assert one.top(1)[0].value == 2.0
    early = [best for best in wanted if best.seed < 1004]
    assert one.top(10, among=4) == early
    assert len(early) == 4
    assert one.top(1, among=2) == early[-2:-1] or one.top(1, among=2)[0].seed == 1000


def test_a_finite_space_is_tried_point_by_point(tmp_path: Path) -> None:
    one = search(tmp_path, FINITE, 30)
    assert one.trials == 16
    assert finish([one], Instant(3))
    wanted = [json.dumps(point, sort_keys=True) for point in points(FINITE)]
    assert [json.dumps(trial.params, sort_keys=True) for trial in kept(tmp_path)] == wanted
    assert not search(tmp_path, FINITE, 30).next_trials()


@pytest.mark.parametrize("trials", [1, 4, 6, 10, 15])
@pytest.mark.parametrize("method", ["gnnsafe", "energy", "classical-ensemble"])
def test_no_point_of_a_finite_space_is_tried_twice(method: str, trials: int, tmp_path: Path) -> None:
    one = search(tmp_path, SPACES[method], trials)
    assert finish([one], Instant(2))
    assert len(kept(tmp_path)) == len(set(points_of(kept(tmp_path)))) == min(trials, size(SPACES[method]))


@pytest.mark.parametrize("steps", [(10, 30), (1, 7, 24, 25), (24, 30), (6, 12, 18, 26)])
def test_a_finite_search_that_is_extended_tries_every_point_once(steps: tuple[int, ...], tmp_path: Path) -> None:
    space = SPACES["gnnsafe"]
    assert size(space) == 25
    before: list[FrozenTrial] = []
    for trials in steps:
        one = search(tmp_path, space, trials)
        assert finish([one], Instant(2))
        assert kept(tmp_path)[: len(before)] == before, "what was tried stays as it is"
        before = kept(tmp_path)
        assert len(before) == len(one.finished) == min(trials, 25)
    assert sorted(points_of(before)) == sorted(json.dumps(point, sort_keys=True) for point in points(space))
    assert [one.user_attrs["seed"] for one in before] == list(range(1000, 1025))


@pytest.mark.parametrize("ticks", [2, 5, 9])
def test_a_finite_search_that_is_stopped_and_extended_tries_every_point_once(ticks: int, tmp_path: Path) -> None:
    """The first command dies with trials under way, the second asks for more, a third for fewer."""
    space = SPACES["gnnsafe"]
    first = search(tmp_path, space, 10)
    for _ in range(ticks):
        for number, unit in first.next_trials(1):
            first.report(number, worth(unit.run))
    assert first.next_trials(2)
    die(first)
    assert finish([search(tmp_path, space, 30)], Instant(2))
    assert finish([search(tmp_path, space, 7)], Instant(2))
    assert len(finished_trials(kept(tmp_path))) == 25
    assert len(set(points_of(finished_trials(kept(tmp_path))))) == 25


def test_a_finite_search_with_repeated_points_is_completed(tmp_path: Path) -> None:
    """As older versions left it: extended from 10 trials to 25, of which 6 repeat a point."""
    space, one = SPACES["gnnsafe"], search(tmp_path, SPACES["gnnsafe"], 10)
    grid = list(points(space))
    distributions = {
        name: optuna.distributions.CategoricalDistribution(values)  # type: ignore[arg-type]
        for name, values in space.items()
    }
    for seed, point in enumerate([*grid[:19], *grid[:6]], 1000):
        one.study.add_trial(
            optuna.trial.create_trial(params=point, distributions=distributions, value=0.5, user_attrs={"seed": seed})
        )
    engine = Instant(2)
    assert finish([search(tmp_path, space, 30)], engine)
    assert points_of(kept(tmp_path))[25:] == [json.dumps(point, sort_keys=True) for point in grid[19:]]
    assert [unit.run.seed for unit in engine.units] == list(range(1025, 1031))
    assert search(tmp_path, space, 30).is_finished


def test_failures_count_as_finished_and_do_not_stop_the_search(tmp_path: Path) -> None:
    def answer(run: Run) -> dict[str, Any]:
        return {"error": "the loss is nan", "seen": {}, "seconds": 0.0} if run.seed < 1003 else worth(run)

    one = search(tmp_path, trials=9)
    assert finish([one], Instant(2, answer=answer))
    assert len(kept(tmp_path)) == len(one.finished) == 9
    assert [trial.state for trial in kept(tmp_path)].count(TrialState.FAIL) == 3
    assert kept(tmp_path)[0].user_attrs["error"] == "the loss is nan"
    assert len(one.top(9)) == 6
    with pytest.raises(EngineError, match="none of 3 trials"):
        one.top(1, among=3)


def test_a_value_that_is_no_number_is_a_failure(tmp_path: Path) -> None:
    one = search(tmp_path, trials=4)
    assert finish([one], Instant(answer=lambda run: {"value": math.nan if run.seed % 2 else 1.0}))
    assert len(one.finished) == 4
    assert len(one.top(9)) == 2


def test_a_death_among_those_that_cannot_tell(tmp_path: Path) -> None:
    one = search(tmp_path, trials=4)
    assert finish([one], Instant(answer=lambda run: {"error": "oom"} if run.seed == 1002 else {"value": None}))
    assert one.top(1) == [Best({}, None, 1000)]


def test_one_trial_that_can_tell_is_enough(tmp_path: Path) -> None:
    one = search(tmp_path, trials=4)
    assert finish([one], Instant(answer=lambda run: {"value": 1.0 if run.seed == 1002 else None}))
    assert [best.seed for best in one.top(9)] == [1002]


def test_units_that_die_are_failures(tmp_path: Path) -> None:
    class Deadly(Instant):
        def finished(self, timeout: float) -> list[Result]:
            found = super().finished(timeout)
            return [Result(one.unit, None, "signal 9") if one.unit.run.seed == 1001 else one for one in found]

    one = search(tmp_path, trials=4)
    assert finish([one], Deadly(2))
    assert [trial.user_attrs.get("error") for trial in kept(tmp_path)] == [None, "signal 9", None, None]
    assert len(one.top(9)) == 3
    assert search(tmp_path, trials=4).is_finished, "what stands on a finished search does not change"
    engine = Instant()
    assert finish([again := search(tmp_path, trials=5)], engine), "what died is tried again while a search is open"
    assert [unit.run.seed for unit in engine.units] == [1001, 1004]
    assert engine.units[0].run.config == kept(tmp_path)[1].params
    assert sorted(best.seed for best in one.top(9)) == [1000, 1001, 1002, 1003, 1004]
    assert one.top(9) == again.top(9)


def test_if_all_workers_die_the_next_command_begins_again(tmp_path: Path, undisturbed: Path) -> None:
    class Doomed(Instant):
        def finished(self, timeout: float) -> list[Result]:
            return [Result(one.unit, None, "No space left on device") for one in super().finished(timeout)]

    one = search(tmp_path)
    assert finish([one], Doomed(2))
    with pytest.raises(EngineError, match=r"none of 15 trials.*No space left"):
        one.top(1)
    assert finish([search(tmp_path)], Instant(2))
    assert search(tmp_path).top(15, among=12) == search(undisturbed).top(15, among=12)


def test_a_trial_that_another_took_over_is_not_told_twice(tmp_path: Path) -> None:
    """Two machines with folders of their own share a database, and the slower one is taken for dead."""
    url = f"sqlite:///{tmp_path / 'trials.db'}"

    def at(folder: str) -> Search:
        owners = Owned(tmp_path / folder / ".owners")
        return Search("small vanilla", "0", ENDLESS, 6, a_run, open_storage(tmp_path, url), owners)

    slow, fast = at("slow"), at("fast")
    mine = slow.next_trials(2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(storage_module, "UNSEEN", 0.0)
        theirs = fast.next_trials()
    assert len(theirs) == 6
    slow.report(mine[0][0], {"value": 0.1, "seconds": 1.0})
    slow.report(mine[1][0], {"value": 0.1})
    for number, _ in theirs:
        fast.report(number, {"value": 0.9})
    assert [one.value for one in slow.finished] == [0.9] * 6


def test_processes_share_a_round(tmp_path: Path) -> None:
    """Nobody takes more than can be begun at once, so that others have something to do."""
    first, second = search(tmp_path), search(tmp_path)
    units = [*first.next_trials(2), *second.next_trials(3), *first.next_trials(2)]
    assert sorted(unit.run.seed for _, unit in units) == list(range(1000, 1006))
    assert not second.next_trials(2), "the next round begins when this one has ended"


def test_if_all_fail_the_error_says_so(tmp_path: Path) -> None:
    one = search(tmp_path, trials=7)
    assert finish([one], Instant(answer=lambda run: {"error": f"lower lr, seed {run.seed}"}))
    with pytest.raises(EngineError, match=r"small vanilla: none of 7 trials.*lower lr, seed 1006"):
        one.top(1)
