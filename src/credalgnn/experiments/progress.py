"""What a person who waits is shown."""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

from tqdm import tqdm

from .runner import Progress
from .searches import Progress as TrialProgress


class Bar:
    """Progress: on a terminal a bar with the time left and what is being done, elsewhere a line for what is finished.

    Args:
        total: How many runs or trials there are.
        silent: Show nothing at all.
    """

    def __init__(self, total: int, silent: bool = False) -> None:
        self._silent = silent
        bar = _BAR.replace("WIDTH", "30" if shutil.get_terminal_size().columns >= 100 else "10")
        self._bar = tqdm(total=total, disable=True if silent else None, leave=False, dynamic_ncols=True, bar_format=bar)
        self._begin, self._total = time.monotonic(), total
        self._before: int | None = None  # finished by an earlier command
        self._running: list[str] = []
        self._closed = threading.Event()
        if not self._bar.disable:
            threading.Thread(target=self._tick, daemon=True).start()

    def _tick(self) -> None:
        """Let the clock go on while nothing is finished."""
        while not self._closed.wait(1.0):
            self._bar.refresh()

    def tell(self, progress: Progress) -> None:
        """Show that a run begins or is finished.

        Args:
            progress: Which run, and its record if it is finished.
        """
        run, record, done, _ = progress
        if record is None:
            self._running.append(run.label)
        else:
            self._running = [label for label in self._running if label != run.label]
            failed = record["status"] == "failed"
            self._finished(f"{run.label}: {record['error'] if failed else _summary(record)}", done, failed)
        self._bar.set_description_str(", ".join(self._running))

    def trial(self, progress: TrialProgress) -> None:
        """Show that a trial of a search is finished.

        Args:
            progress: Which search, and the trial's result.
        """
        search, result, done, _ = progress
        value = "no value" if result.get("value") is None else f"{result['value']:.4f}"
        message = f"{search}: {'pruned' if 'pruned' in result else result.get('error') or value}"
        self._finished(message, done, False)
        self._bar.set_description_str(message)

    def note(self, message: str) -> None:
        """Show a line that nothing else would tell.

        Args:
            message: The line.
        """
        if not self._silent:
            self._bar.write(message, file=sys.stderr)

    def _finished(self, message: str, done: int, important: bool) -> None:
        if self._before is None:
            self._before = done - 1
            self._bar.n = self._bar.initial = done - 1
        if not self._silent and (important or self._bar.disable):
            rate = (time.monotonic() - self._begin) / max(done - self._before, 1)
            left = f", {_clock(rate * (self._total - done))} left" if done < self._total else ""
            self._bar.write(f"[{done}/{self._total}] {message}{left}", file=sys.stderr)
        self._bar.update(max(done - self._bar.n, 0))

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self._bar.close()


_BAR = "{n_fmt}/{total_fmt} {bar:WIDTH} {elapsed}, {remaining} left  {desc}"


def _summary(record: Mapping[str, Any]) -> str:
    """The figures of a finished run that are worth a line."""
    headline = record["headline"]
    shown = {headline: record["scores"][headline]["auroc"], "accuracy": record["metrics"]["accuracy"]}
    return ", ".join(f"{name} {100 * value:.1f}" for name, value in shown.items() if value is not None) or "done"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
