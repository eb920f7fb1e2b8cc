"""The command line: one spelling for every option, the nearest name for a typo, limits, and folders that vanish."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from credalgnn.cli import main
from credalgnn.experiments.engines import Engine, Processes, Result, Source, Unit
from credalgnn.experiments.execute import ModelCache
from credalgnn.runtime.names import suggestion
from searches import SET, Instant, command, kill, until

# Networks that are trained for a few epochs have credal sets that say nothing, and warn of it, as they should.
pytestmark = pytest.mark.filterwarnings("ignore::credalgnn.CredalWarning")


@pytest.fixture
def idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing may be begun."""

    def never(*_: object) -> None:
        raise AssertionError("work was begun")

    monkeypatch.setattr(Processes, "start", never)


def said(arguments: Sequence[str], capsys: pytest.CaptureFixture[str], code: int = 2) -> str:
    """The one line that a command ends with; lines before it tell of progress."""
    try:
        found: Any = main(arguments)
    except SystemExit as stopped:
        found = stopped.code
    out, err = capsys.readouterr()
    assert found == code, err
    assert out == ""
    *progress, last = err.splitlines()
    assert all(line.startswith("[") for line in progress), err
    assert not progress or code != 2
    assert last.startswith("credalgnn: ")
    return last


BENCH = ["bench", "-d", "digits"]
TYPOS: dict[str, tuple[list[str], str]] = {
    "option that begins another": ([*BENCH, "--seed", "3"], "unknown option --seed: did you mean --seeds?"),
    "option with a value": ([*BENCH, "--seed=3"], "unknown option --seed: did you mean --seeds?"),
    "option that is needed": (["tune", "-d", "digits", "--method", "vanilla"], "did you mean --methods?"),
    "option of a small command": (["describe", "digits", "--splitseed", "1"], "did you mean --split-seed?"),
    "option of sets": (["uncertainty", "x.csv", "--ruel", "maximality"], "did you mean --rule?"),
    "option of the program": (["--vesion"], "unknown option --vesion: did you mean --version?"),
    "option that nothing is near": ([*BENCH, "--qqq"], "--seeds"),
    "command": (["bnech"], "unknown 'bnech': did you mean bench?"),
    "choice": ([*BENCH, "--protocol", "seeled"], "--protocol: unknown 'seeled': did you mean sealed?"),
    "method": ([*BENCH, "-m", "credal-jl"], "unknown method 'credal-jl': did you mean credal-lj?"),
    "method in other letters": ([*BENCH, "-m", "Credal_LJ"], "unknown method 'Credal_LJ': did you mean credal-lj?"),
    "method to tune": (["tune", "-d", "digits", "-m", "gnnsave"], "did you mean gnnsafe?"),
    "method that nothing is near": ([*BENCH, "-m", "xyz"], "choose from credal-coverage, vanilla, credal-lj"),
    "data set": (["bench", "-d", "digit"], "no data set 'digit': did you mean digits?"),
    "data set that is no name": (["describe", "a" * 300], "File name too long; mend that"),
    "data set to describe": (["describe", "corra"], "no data set 'corra': did you mean cora?"),
    "hyper-parameter": ([*BENCH, "-m", "credal-lj", "--set", "delat=0.5"], "'delat'; did you mean delta?"),
    "hyper-parameter of one": (
        [*BENCH, "-m", "credal-lj", "knn", "--set", "credal-lj.lrr=1"],
        "credal-lj has no 'lrr'; did you mean lr?",
    ),
    "method of a hyper-parameter": (
        [*BENCH, "-m", "credal-lj", "--set", "credal-jl.delta=0.5"],
        "'credal-jl' is not among the methods; did you mean credal-lj?",
    ),
    "value that cannot be parsed": ([*BENCH, "-m", "vanilla", "--set", f"lr={'(' * 5000}"], "lr"),
    "too much": ([*BENCH[:1], "surplus", *BENCH[1:]], "unexpected argument 'surplus'"),
}


@pytest.mark.usefixtures("idle")
@pytest.mark.parametrize("case", list(TYPOS))
def test_typos_get_the_nearest_name(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments, message = TYPOS[case]
    if arguments[0] in ("bench", "tune"):
        arguments = [*arguments, "--out", str(tmp_path / "out")]
    assert message in said(arguments, capsys)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["bench", "tune", "reproduce", "report", "datasets", "describe", "uncertainty"])
def test_no_command_takes_abbreviations(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "unknown option --hel: did you mean --help?" in said([name, "--hel"], capsys)


def test_suggestions() -> None:
    known = ["credal-lj", "credal-final", "knn", "knn-lj"]
    assert suggestion("KNN", known) == "did you mean knn?"
    assert suggestion("credal-finale", known) == "did you mean credal-final?"
    assert suggestion("odin", known) == "choose from credal-lj, credal-final, knn, knn-lj"
    assert suggestion("odin", []) == "there are none"


@pytest.mark.usefixtures("idle")
@pytest.mark.parametrize("number", ["10001", "100000000", "9" * 5000])
@pytest.mark.parametrize(
    ("option", "arguments"),
    [
        ("--seeds", ["bench", "-d", "digits"]),
        ("--jobs", ["bench", "-d", "digits"]),
        ("--trials", ["tune", "-d", "digits", "-m", "vanilla"]),
    ],
)
def test_absurd_numbers_are_refused_before_any_work(
    option: str, arguments: list[str], number: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    begin = time.monotonic()
    line = said([*arguments, option, number, "--out", str(tmp_path / "out")], capsys)
    assert f"{option}: " in line
    assert "at most 10,000" in line
    assert len(line) < 200
    assert time.monotonic() - begin < 10
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("idle")
@pytest.mark.parametrize("text", ["0", "00", "-1", "1.5", "1e3", "²", "", "x"])
def test_what_is_no_number_of_seeds(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "--seeds" in said(["bench", "-d", "digits", f"--seeds={text}", "--out", str(tmp_path / "out")], capsys)


# ---------------------------------------------------------------------------------------------
# Folders that vanish
# ---------------------------------------------------------------------------------------------


class Deleting(Engine):
    """Does the work in this process, and deletes something once some units are finished."""

    def __init__(self, source: Source, models: Path, after: int, delete: Callable[[], None]) -> None:
        self._source, self._models, self._after, self._delete = source, models, after, delete
        self._waiting: list[Unit] = []

    @property
    def slots(self) -> int:
        return 1

    def start(self, unit: Unit) -> None:
        self._waiting.append(unit)

    def finished(self, timeout: float) -> list[Result]:
        unit = self._waiting.pop()
        value = unit.function(unit.run, self._source.task(unit.run), ModelCache(self._models), *unit.args)
        self._after -= 1
        if self._after == 0:
            self._delete()
        return [Result(unit, value)]

    def close(self) -> None:
        self._waiting = []


WORK = ["-d", "digits", "-m", "vanilla", *SET]


@pytest.mark.parametrize(
    ("after", "part"),
    [(1, "."), (2, "."), (9, "."), (1, "experiment.json"), (9, "experiment.json"), (2, "runs"), (9, "runs")],
)
def test_a_benchmark_whose_folder_vanishes_is_an_error(
    after: int, part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of nine runs; if records that were there vanish with the last one, too."""
    out = tmp_path / "out"

    def engine(name: str, address: Any, jobs: Any, source: Source, models: Path) -> Engine:
        return Deleting(source, models, after, lambda: delete(out / part))

    monkeypatch.setattr("credalgnn.experiments.runner.make_engine", engine)
    line = said(["bench", *WORK, "--seeds", "3", "--predictions", "none", "--out", str(out)], capsys, code=1)
    assert str(out) in line
    assert "vanished" in line
    assert not (out / "report.html").exists()


@pytest.mark.parametrize("part", [".", "tuning.journal", ".owners"])
@pytest.mark.parametrize("after", [1, 3, 7])
def test_a_search_whose_folder_vanishes_is_an_error(
    after: int, part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"

    def engine(name: str, address: Any, jobs: Any, source: Source, models: Path) -> Engine:
        return Deleting(source, models, after, lambda: delete(out / part))

    monkeypatch.setattr("credalgnn.experiments.runner.make_engine", engine)
    line = said(["tune", *WORK, "--trials", "7", "--out", str(out)], capsys, code=1)
    assert str(out) in line
    assert "vanished" in line
    assert not (out / "best.json").exists()


def test_a_search_that_waits_for_others_notices_that_its_folder_vanishes(tmp_path: Path) -> None:
    from credalgnn.experiments.search import run_searches
    from credalgnn.records.folder import FolderVanished
    from searches import search

    other, one = search(tmp_path / "out", trials=2), search(tmp_path / "out", trials=2)
    assert len(other.next_trials()) == 2
    delay = iter([None, shutil.rmtree])

    class Waiting(Instant):
        @property
        def slots(self) -> int:
            act = next(delay, None)
            if act is not None:
                act(tmp_path / "out")
            return 2

    with pytest.raises(FolderVanished, match="vanished during the work"):
        run_searches([one], Waiting(), time.monotonic() + 60)


def delete(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


@pytest.mark.parametrize("name", ["bench", "tune"])
@pytest.mark.slow
def test_a_folder_that_vanishes_from_outside(name: str, tmp_path: Path) -> None:
    """The real command with a worker, whose folder is removed while it works."""
    out = tmp_path / "out"
    options = {"bench": ["--seeds", "200", "--predictions", "none"], "tune": ["--trials", "200"]}[name]
    process = command(name, *WORK, "--jobs", "1", *options, "--out", out)
    try:
        signs = {"bench": "runs/digits/vanilla/seed-001.json", "tune": "tuning.journal"}
        until(lambda: (out / signs[name]).exists() or process.poll() is not None, "some work")
        time.sleep(0.3)
        assert process.poll() is None
        shutil.rmtree(out, ignore_errors=True)
        text, err = process.communicate(timeout=100)
    finally:
        kill(process)
    assert process.returncode == 1, err
    assert text == ""
    assert "Traceback" not in err
    assert err.splitlines()[-1].startswith(f"credalgnn: {out}")
    assert "vanished" in err.splitlines()[-1]
