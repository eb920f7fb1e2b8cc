"""credalgnn tune from outside."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from optuna.trial import TrialState

from credalgnn.cli import main
from credalgnn.experiments.best import read_tuned
from credalgnn.experiments.execute import ModelCache
from credalgnn.experiments.plan import Run
from credalgnn.experiments.search import try_point
from credalgnn.graphs import load_task
from credalgnn.records.schema import RecordError, read_record
from searches import (
    SET,
    Instant,
    command,
    finished_trials,
    kept,
    kill,
    one_line,
    outcome,
    small_task,
    tuned_by_hand,
    until,
)

# Networks that are trained for a few epochs have credal sets that say nothing, and warn of it, as they should.
pytestmark = pytest.mark.filterwarnings("ignore::credalgnn.CredalWarning")


BAD: dict[str, tuple[list[str], str]] = {
    "other protocol": (["bench", "-m", "vanilla", "--tuned", "TUNED", "--protocol", "paper"], "protocol=sealed"),
    "other setting": (
        ["bench", "-m", "vanilla", "--tuned", "TUNED", "--setting", "inductive"],
        "tuned with setting=transductive",
    ),
    "inductive paper": (["tune", "-m", "vanilla", "--setting", "inductive", "--protocol", "paper"], "transductive"),
    "nothing tuned": (["bench", "-m", "vanilla", "--tuned", "EMPTY"], "best.json is missing"),
    "data set not tuned": (["bench", "-m", "vanilla", "--tuned", "OTHER"], "nothing was tuned for digits"),
    "method not tuned": (["bench", "-m", "vanilla", "energy", "--tuned", "TUNED"], "energy not tuned on digits"),
    "other split": (["bench", "-m", "vanilla", "--tuned", "TUNED", "--split-seed", "1"], "another split"),
    "many splits": (["bench", "-m", "vanilla", "--tuned", "TUNED", "--vary-split"], "--vary-split"),
    "vanillas apart": (["bench", "-m", "vanilla", "energy", "--tuned", "APART"], "vanilla and energy were tuned with"),
    "unknown method": (["tune", "-m", "vanilla", "vanila"], "unknown method 'vanila'"),
    "unknown beside all": (["tune", "-m", "all", "vanila"], "unknown method 'vanila'"),
    "nothing to tune": (["tune", "-m", "vanilla", "degree"], "degree has nothing to tune"),
    "nothing left": (["tune", "-m", "energy", "--set", "temperature=2"], "leave nothing of energy to tune"),
}


@pytest.fixture(scope="module")
def refused(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], list[str]]:
    """The words of a command that is refused."""
    folder = tmp_path_factory.mktemp("refused")
    tuned_by_hand(folder / "TUNED", load_task("digits"), vanilla={"lr": 0.01})
    tuned_by_hand(folder / "APART", load_task("digits"), vanilla={"lr": 0.01}, energy={"temperature": 1.0})
    tuned_by_hand(folder / "OTHER", small_task(), vanilla={"lr": 0.01})
    (folder / "EMPTY").mkdir()

    def words(name: str) -> list[str]:
        found = [str(folder / word) if word.isupper() else word for word in BAD[name][0]]
        return [*found, "-d", "digits", "--out", str(folder / name.replace(" ", "-"))]

    return words


@pytest.mark.parametrize("name", list(BAD))
def test_what_cannot_be_is_refused_in_one_line(
    name: str, refused: Callable[[str], list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(refused(name))
    one_line(code, *capsys.readouterr(), BAD[name][1])


@pytest.mark.slow
@pytest.mark.parametrize("name", list(BAD))
def test_all_that_cannot_be_is_refused_from_outside(name: str, refused: Callable[[str], list[str]]) -> None:
    one_line(*outcome(*refused(name)), BAD[name][1])


def test_a_bad_storage_is_refused_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["tune", "-d", "digits", "-m", "energy", "--storage", "nonsense", "--out", str(tmp_path / "out")]
    assert main(words) == 2
    err = capsys.readouterr().err
    assert err.startswith("credalgnn: --storage nonsense")
    assert err.count("\n") == 1


def test_an_inductive_tune_is_for_an_inductive_bench(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both commands, with an engine that does the work here."""
    task, flat = load_task("digits", inductive=True), load_task("digits")

    def answer(run: Run) -> dict[str, Any]:
        assert run.inductive
        return try_point(run, task, ModelCache(tmp_path / "models"), {})

    monkeypatch.setattr("credalgnn.experiments.runner.make_engine", lambda *_: Instant(answer=answer))
    words = ["tune", "-d", "digits", "-m", "vanilla", "--trials", "2", "--set", "epochs=3", "hidden=8"]
    assert main([*words, "--setting", "inductive", "--out", str(tmp_path / "out")]) == 0
    assert f"bench --tuned {tmp_path / 'out'} --protocol sealed --setting inductive uses" in capsys.readouterr().out
    assert json.loads((tmp_path / "out" / "experiment.json").read_text())["setting"] == "inductive"
    assert read_tuned(tmp_path / "out", task, "sealed")["vanilla"]["config"]["hidden"] == 8
    with pytest.raises(RecordError, match="tuned with setting=inductive, not transductive"):
        read_tuned(tmp_path / "out", flat, "sealed")
    one_line(main([*words, "--out", str(tmp_path / "out")]), *capsys.readouterr(), "another experiment, with setting")


CHOSEN = ["-d", "digits", "-m", "vanilla", "energy", "knn-lj", "--protocol", "paper"]


@pytest.fixture(scope="module")
def tuned_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tuned") / "out"
    code, out, err = outcome("tune", *CHOSEN, *SET, "--trials", "2", "--jobs", "1", "--out", folder)
    assert code == 0, err
    assert "[6/6]" in err
    assert "Traceback" not in err
    assert [line.split()[1] for line in out.splitlines()[:3]] == CHOSEN[3:6]
    return folder


def test_tune_writes_what_was_best(tuned_folder: Path) -> None:
    found = json.loads((tuned_folder / "best.json").read_text())
    assert found["protocol"] == "paper"
    assert list(found["best"]) == ["digits"]
    methods = found["best"]["digits"]["methods"]
    assert list(methods) == CHOSEN[3:6]
    for name, best in methods.items():
        trials = kept(tuned_folder, f"digits {name}")
        assert [one.state for one in trials] == [TrialState.COMPLETE] * 2
        top = max(trials, key=lambda one: (one.value or 0.0, -one.number))
        assert best["value"] == top.value
        assert 0.0 <= best["value"] <= 1.0
        own = {"epochs": 4, "hidden": 8} if name == "vanilla" else {}
        assert best["config"] == {**top.params, **own}
        assert best["components"] == ({} if name == "vanilla" else methods["vanilla"]["config"])
    assert not (tuned_folder / "models").exists()


def test_bench_uses_what_was_tuned(tuned_folder: Path, tmp_path: Path) -> None:
    """With what was set while it was tuned, so that nobody has to say it again."""
    methods = json.loads((tuned_folder / "best.json").read_text())["best"]["digits"]["methods"]
    options = ["--seeds", "1", "--jobs", "1", "--predictions", "none"]
    assert main(["bench", *CHOSEN, *options, "--tuned", str(tuned_folder), "--out", str(tmp_path / "out")]) == 0
    for name in CHOSEN[3:6]:
        config = read_record(tmp_path / "out" / "runs" / "digits" / name / "seed-000.json")["config"]
        assert methods[name]["config"].items() <= config.items()
        below = config if name == "vanilla" else config["vanilla"]
        assert methods["vanilla"]["config"].items() <= below.items()
        assert (below["epochs"], below["hidden"]) == (4, 8)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_a_killed_tune_ends_as_an_undisturbed_one(seed: int, tmp_path: Path) -> None:
    words = ["tune", "-d", "digits", "-m", "vanilla", "energy", "--trials", "14", *SET, "--jobs", "2"]
    code, _, err = outcome(*words, "--out", tmp_path / "whole")
    assert code == 0, err
    journal = tmp_path / "killed" / "tuning.journal"
    lines_of = lambda path: path.read_bytes().count(b"\n") if path.exists() else 0  # noqa: E731
    total, order = lines_of(tmp_path / "whole" / "tuning.journal"), random.Random(seed)
    for at in sorted(order.sample(range(5, total - 5), 3)):
        process = command(*words, "--out", tmp_path / "killed")
        until(lambda process=process, at=at: lines_of(journal) >= at or process.poll() is not None, "a moment to kill")
        kill(process)
        process.communicate()
    code, _, err = outcome(*words, "--out", tmp_path / "killed")
    assert code == 0, err
    for name, count in (("digits vanilla", 14), ("digits energy", 4)):
        assert len(finished_trials(kept(tmp_path / "killed", name))) == count
    assert (tmp_path / "killed" / "best.json").read_text() == (tmp_path / "whole" / "best.json").read_text()


@pytest.mark.slow
def test_two_tunes_at_a_time_end_as_one(tmp_path: Path) -> None:
    words = ["tune", "-d", "digits", "-m", "vanilla", "energy", "--trials", "10", *SET, "--jobs", "1"]
    code, _, err = outcome(*words, "--out", tmp_path / "one")
    assert code == 0, err
    both = [command(*words, "--out", tmp_path / "two") for _ in range(2)]
    try:
        said = [process.communicate(timeout=300) for process in both]
    finally:
        for process in both:
            kill(process)
    assert [process.returncode for process in both] == [0, 0], said
    for name, count in (("digits vanilla", 10), ("digits energy", 4)):
        trials = kept(tmp_path / "two", name)
        assert [one.state for one in trials] == [TrialState.COMPLETE] * count
        assert len({json.dumps(one.params) for one in trials}) == count
        assert len({one.user_attrs["owner"][0] for one in trials}) <= 2
    assert (tmp_path / "two" / "best.json").read_text() == (tmp_path / "one" / "best.json").read_text()


@pytest.mark.slow
def test_a_tune_of_which_all_fails_says_so(tmp_path: Path) -> None:
    code, _, err = outcome(
        "tune", "-d", "digits", "-m", "vanilla", "--trials", "2", *SET, "lr=1e30", "--out", tmp_path / "out"
    )
    assert code == 2
    assert err.splitlines()[-1].startswith("credalgnn: digits vanilla: none of 2 trials")
    assert "lower lr" in err.splitlines()[-1]
    assert not (tmp_path / "out" / "best.json").exists()
