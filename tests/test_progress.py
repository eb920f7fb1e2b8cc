"""Progress display: lines in a log, a bar on a terminal, nothing where it is hidden."""

from __future__ import annotations

import os
import pty
import re
import select
import struct
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from credalgnn.runtime import progress
from credalgnn.runtime.progress import Progress, Stages, duration, stage_bars


@pytest.fixture
def pass_time(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])

    def later(seconds: float) -> None:
        now[0] += seconds

    return later


def test_a_log_has_a_line_each_half_minute(
    pass_time: Callable[[float], None], capsys: pytest.CaptureFixture[str]
) -> None:
    with Progress(300, "vanilla seed 0", "epochs") as bar:
        bar.update(0, "loss 1.500")
        for number in range(1, 9):
            pass_time(10.0)
            bar.update(number / 8)
        bar.update(1, "loss 1.000")
        pass_time(9.0)
        bar.update(2, "loss 0.500")
        pass_time(2.0)
        bar.update(3, "loss 0.250")
    assert capsys.readouterr().err.splitlines() == [
        "[0.4/300 epochs] vanilla seed 0: loss 1.500, 6 h 39 min left",
        "[0.8/300 epochs] vanilla seed 0: loss 1.500, 6 h 39 min left",
        "[3/300 epochs] vanilla seed 0: loss 0.250, 2 h 30 min left",
    ]


def test_steps_of_an_earlier_call_do_not_enter_the_time_left(
    pass_time: Callable[[float], None], capsys: pytest.CaptureFixture[str]
) -> None:
    with Progress(12) as bar:
        bar.skip(10)
        pass_time(30.0)
        bar.advance()
        bar.log("a run failed")
        bar.log("only in a log", always=False)
    assert capsys.readouterr().err.splitlines() == [
        "[11/12] 30 s left",
        "[11/12] a run failed, 30 s left",
        "[11/12] only in a log, 30 s left",
    ]


@pytest.mark.parametrize("show", [None, False])
def test_hidden_or_short_calls_show_nothing(
    show: bool | None, pass_time: Callable[[float], None], capsys: pytest.CaptureFixture[str]
) -> None:
    with Progress(3, "it", show=show) as bar:
        for step in range(3):
            pass_time(3600.0 if show is False else 5.0)
            bar.update(step)
        if show is False:
            bar.log("a line")
    assert capsys.readouterr().err == ""


def test_items_are_counted(pass_time: Callable[[float], None], capsys: pytest.CaptureFixture[str]) -> None:
    for _ in Progress(3, "chunks", "rows").over("abc"):
        pass_time(20.0)
    assert capsys.readouterr().err.splitlines() == ["[2/3 rows] chunks, 20 s left"]


def test_a_log_has_a_line_for_each_finished_stage(capsys: pytest.CaptureFixture[str]) -> None:
    with stage_bars() as report:
        for stage, total in (("nodes", 2000), ("edges", 1)):
            for done in range(total + 1):
                report(stage, done, total)
    assert capsys.readouterr().err.splitlines() == ["[2,000/2,000] nodes", "[1/1] edges"]


def test_stages_have_lines_with_their_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    for show in (None, False):
        stages = Stages(show)
        with stages("read") as details:
            details.append("3 nodes")
        stages.warn("one\nline \x1b[31m")
        assert list(stages.seconds) == ["read"]
        lines = capsys.readouterr().err.splitlines()
        if show is None:
            assert re.fullmatch(r"read +0\.\d s  3 nodes", lines[0])
            assert lines[1] == r"! one line \x1b[31m"
        else:
            assert lines == []


@pytest.mark.parametrize(("seconds", "text"), [(7.6, "8 s"), (150, "2 min 30 s"), (3900, "1 h 05 min")])
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


BAR = """
import time
from credalgnn.runtime import progress
progress.DELAY = 0.2
with progress.Progress(2, "it", "epochs") as bar:
    for epoch in range(2):
        bar.update(epoch, "loss 1.000")
        for number in range(1, 6):
            time.sleep(0.15)
            bar.update(epoch + number / 5)
    bar.log("a line between")
"""


def test_a_terminal_has_a_bar_that_moves_within_an_epoch() -> None:
    fcntl: Any = pytest.importorskip("fcntl")
    termios: Any = pytest.importorskip("termios")
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
    process = subprocess.Popen([sys.executable, "-c", BAR], stderr=slave, env={**os.environ, "OMP_NUM_THREADS": "1"})
    os.close(slave)
    output = b""
    while select.select([master], [], [], 60)[0]:
        try:
            output += os.read(master, 1 << 16)
        except OSError:  # the other end is closed
            break
    assert process.wait() == 0
    os.close(master)
    shown = [float(number) for number in re.findall(r"([0-9.]+)/2 epochs \[\d", output.decode())]
    assert shown == sorted(shown)
    assert any(0 < number < 1 for number in shown)
    assert any(1 < number < 2 for number in shown)
    assert "loss 1.000" in output.decode()
    assert "[2.0/2 epochs] a line between" in output.decode()
