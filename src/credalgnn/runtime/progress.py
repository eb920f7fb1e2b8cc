"""Progress display on stderr: a bar on a terminal, elsewhere a line now and then."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from tqdm import tqdm

from .texts import one_line

T = TypeVar("T")

DELAY = 3.0  # seconds before a bar is shown: most calls are over by then
EVERY = 30.0  # seconds between two lines where there is no bar
SOON = 5.0  # seconds after which a stage is announced where there is no terminal
FORMAT = "{desc}: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt}{unit} [{elapsed}<{remaining}{postfix}]"
WITHOUT_TOTAL = "{desc}: {n_fmt}{unit} [{elapsed}{postfix}]"


class _Bar(tqdm):  # type: ignore[misc]
    _lock = threading.RLock()  # tqdm's own is a semaphore of the system, which outlives a killed process


def on_terminal() -> bool:
    """Return whether stderr is a terminal."""
    return sys.stderr is not None and sys.stderr.isatty()


class Progress:
    """Progress of a call, as a context manager.

    On a terminal it is a bar that appears after ``DELAY`` seconds and disappears at the end; elsewhere a line each
    ``EVERY`` seconds, such as ``[3.4/300 epochs] vanilla seed 0: loss 0.250, 4 min 02 s left``.

    Args:
        total: Number of steps; None if unknown.
        label: What is being done; stands before the bar.
        unit: Name of the steps, in the plural.
        show: False hides everything; True shows a bar even where stderr is no terminal, as in a notebook.
        done: Steps done before, which do not enter the estimate of the time left.
    """

    def __init__(
        self, total: float | None, label: str = "", unit: str = "", show: bool | None = None, done: float = 0
    ) -> None:
        total = round(total, 1) if isinstance(total, float) else total
        self._total, self._label, self._unit, self._status = total, label, f" {unit}" if unit else "", ""
        self._hidden, self._has_bar = show is False, show is True or (show is None and on_terminal())
        self._done = self._skipped = done
        self._begin = self._last_line = time.monotonic()
        self._bar = _Bar(
            total=total, initial=done, desc=label, unit=self._unit, delay=DELAY, leave=False, dynamic_ncols=True,
            disable=not self._has_bar, unit_scale=(total or 0) > 100_000,
            bar_format=WITHOUT_TOTAL if total is None else FORMAT,
        )  # fmt: skip
        self._closed = threading.Event()
        if self._has_bar:
            threading.Thread(target=self._tick, daemon=True).start()

    def _tick(self) -> None:
        """Let the clock go on between two steps."""
        seconds = DELAY
        while not self._closed.wait(seconds):
            self._bar.refresh()
            seconds = 1.0

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove the bar."""
        self._closed.set()
        self._bar.close()

    def skip(self, done: float) -> None:
        """Set the number of steps that an earlier call has done."""
        self._done = self._skipped = self._bar.n = self._bar.initial = done

    def update(self, done: float, status: str | None = None, label: str | None = None) -> None:
        """Set the number of steps done, and optionally the text after the bar and the one before it."""
        self._done = done
        self._label = self._label if label is None else label
        self._status = self._status if status is None else status
        if self._has_bar:
            self._bar.set_description_str(self._label, refresh=False)
            self._bar.set_postfix_str(self._status, refresh=False)
            self._bar.update(round(done, 1) - self._bar.n)
        elif not self._hidden and time.monotonic() >= self._last_line + EVERY:
            self._line(": ".join(filter(None, (self._label, self._status))))

    def advance(self, steps: float = 1) -> None:
        """Add steps that have been done."""
        self.update(self._done + steps)

    def over(self, items: Iterable[T]) -> Iterator[T]:
        """Yield items, each of which is a step, and close at the end."""
        with self:
            for item in items:
                yield item
                self.advance()

    def log(self, message: str, always: bool = True, done: float | None = None) -> None:
        """Write a line; with ``always=False`` only where there is no bar. `done` sets the number of steps done."""
        self._done = self._done if done is None else done
        if not self._hidden and (always or not self._has_bar):
            self._line(message)

    def _line(self, message: str) -> None:
        self._last_line = time.monotonic()
        count = f"{_number(self._done)}/{_number(self._total)}" if self._total is not None else _number(self._done)
        text = ", ".join(filter(None, (message, self._time_left())))
        _Bar.write(f"[{count}{self._unit}] {text}", file=sys.stderr)

    def _time_left(self) -> str:
        recent = self._done - self._skipped
        if self._total is None or recent <= 0 or self._done >= self._total:
            return ""
        return f"{duration((time.monotonic() - self._begin) / recent * (self._total - self._done))} left"


@contextmanager
def stage_bars(show: bool | None = None) -> Iterator[Callable[[str, int, int], None]]:
    """Yield a callback for calls that report stage, steps done and steps in all: a bar each, or a line at its end."""
    bars: dict[str, Progress] = {}

    def report(stage: str, done: int, total: int) -> None:
        if stage not in bars:
            for bar in bars.values():
                bar.close()
            bars[stage] = Progress(total, stage, show=show)
        bars[stage].update(done)
        if done >= total:
            bars[stage].log(stage, always=False)

    try:
        yield report
    finally:
        for bar in bars.values():
            bar.close()


class Stages:
    """Stages of a call: a line with the seconds of each on stderr, announced while it runs.

    Args:
        show: False hides the lines.
    """

    def __init__(self, show: bool | None = None) -> None:
        self.seconds: dict[str, float] = {}
        self._show = show is not False and sys.stderr is not None

    @contextmanager
    def __call__(self, name: str) -> Iterator[list[str]]:
        """Run one stage; texts appended to the list it yields stand after its time."""
        begin, details, terminal = time.perf_counter(), list[str](), on_terminal()
        announcement = f"{name} ...", "\r" if terminal else "\n"
        timer = threading.Timer(0.0 if terminal else SOON, self._write, announcement)
        timer.daemon = True
        timer.start()
        try:
            yield details
        finally:
            timer.cancel()
        self.seconds[name] = round(time.perf_counter() - begin, 3)
        self._write(f"{name:12s} {self.seconds[name]:7.1f} s  {' '.join(details)}".rstrip())

    def warn(self, text: str) -> None:
        """Write a warning in a line of its own."""
        self._write(f"! {one_line(text)}")

    def _write(self, text: str, end: str = "\n") -> None:
        if self._show:
            _Bar.write(text, file=sys.stderr, end=end)
            sys.stderr.flush()


def duration(seconds: float) -> str:
    """Return seconds as ``1 h 05 min``, ``2 min 30 s`` or ``8 s``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def _number(value: float | None) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"
