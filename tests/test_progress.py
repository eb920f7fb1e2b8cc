"""How far a training is, as people see it: in a log a line now and then, on a terminal a bar."""

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

from credalgnn.nn import progress
from credalgnn.nn.progress import Progress
from credalgnn.nn.rounds import Epoch


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
    with Progress(300, 0, "vanilla seed 0", None) as shown:
        shown.epoch(Epoch(0, 1.5, 2.0))
        for number in range(1, 9):
            pass_time(10.0)
            shown.step(number, 8)
        shown.epoch(Epoch(1, 1.0, 1.25))
        pass_time(9.0)
        shown.epoch(Epoch(2, 0.5, 0.125))
        pass_time(2.0)
        shown.epoch(Epoch(3, 0.25, 0.0625))
    assert capsys.readouterr().err.splitlines() == [
        "vanilla seed 0: epoch 0 of 300, loss 1.500, monitor 2.000, 3 of 8 steps of the next",
        "vanilla seed 0: epoch 0 of 300, loss 1.500, monitor 2.000, 6 of 8 steps of the next",
        "vanilla seed 0: epoch 3 of 300, loss 0.250, monitor 0.062",
    ]


@pytest.mark.parametrize("show", [None, False])
def test_who_wants_no_progress_or_is_soon_done_sees_nothing(
    show: bool | None, pass_time: Callable[[float], None], capsys: pytest.CaptureFixture[str]
) -> None:
    with Progress(3, 0, "it", show) as shown:
        for epoch in range(3):
            shown.epoch(Epoch(epoch, 1.0, 1.0))
            pass_time(3600.0 if show is False else 5.0)
            shown.step(1, 1)
    assert capsys.readouterr().err == ""


BAR = """
import time
from credalgnn.nn import progress
from credalgnn.nn.rounds import Epoch
progress.DELAY = 0.2
with progress.Progress(2, 0, "it", None) as shown:
    for epoch in range(2):
        shown.epoch(Epoch(epoch, 1.0, 2.0))
        for number in range(1, 6):
            time.sleep(0.15)
            shown.step(number, 5)
"""


def test_a_terminal_has_a_bar_that_moves_within_an_epoch() -> None:
    fcntl: Any = pytest.importorskip("fcntl")
    termios: Any = pytest.importorskip("termios")
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
    process = subprocess.Popen([sys.executable, "-c", BAR], stderr=slave, env={**os.environ, "OMP_NUM_THREADS": "1"})
    os.close(slave)
    seen = b""
    while select.select([master], [], [], 60)[0]:
        try:
            seen += os.read(master, 1 << 16)
        except OSError:  # the other end is closed
            break
    assert process.wait() == 0
    os.close(master)
    shown = [float(number) for number in re.findall(r"([0-9.]+)/2 epochs", seen.decode())]
    assert shown == sorted(shown)
    assert any(0 < number < 1 for number in shown)
    assert any(1 < number < 2 for number in shown)
    assert "loss=1.000, monitor=2.000" in seen.decode()
