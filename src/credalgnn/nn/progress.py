"""How far a training is: a bar on a terminal, and where there is none a line now and then, on stderr."""

from __future__ import annotations

import sys
import time
from types import TracebackType

from tqdm import tqdm

from .rounds import Epoch

DELAY = 3.0  # seconds before a bar is shown: most trainings are over by then
EVERY = 30.0  # seconds between two lines
FORMAT = "{desc}: {percentage:3.0f}%|{bar}| {n:.1f}/{total} epochs [{elapsed}<{remaining}{postfix}]"


class Progress:
    """Shows how far a training is.

    Args:
        epochs: How many it has at the most.
        done: How many are behind it already.
        description: What is trained.
        show: Show it; None: where it takes more than a few seconds.
    """

    def __init__(self, epochs: int, done: int, description: str, show: bool | None) -> None:
        self.epochs, self.description = epochs, description
        bar_is_seen = show is True or (sys.stderr is not None and sys.stderr.isatty())
        self._bar = tqdm(
            total=epochs, initial=done, desc=description, bar_format=FORMAT, delay=DELAY,
            disable=show is False or not bar_is_seen, leave=False,
        )  # fmt: skip
        self._has_lines, self._said = show is None and not bar_is_seen, time.monotonic()
        self._last: Epoch | None = None

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._bar.close()

    def epoch(self, line: Epoch) -> None:
        """An epoch begins behind which a line of the curve stands.

        Args:
            line: The line.
        """
        self._last = line
        self._bar.set_postfix(loss=f"{line.loss:.3f}", monitor=f"{line.monitor:.3f}", refresh=False)
        self._bar.update(line.epoch - self._bar.n)
        self._say("")

    def step(self, number: int, steps: int) -> None:
        """A step is done.

        Args:
            number: Which of its epoch, from one.
            steps: How many the epoch has.
        """
        begun = 0 if self._last is None else self._last.epoch
        self._bar.update(begun + number / steps - self._bar.n)
        if number < steps:
            self._say(f", {number} of {steps} steps of the next")

    def _say(self, more: str) -> None:
        if self._has_lines and self._last is not None and time.monotonic() >= self._said + EVERY:
            self._said = time.monotonic()
            epoch, loss, monitor = self._last
            print(
                f"{self.description}: epoch {epoch} of {self.epochs}, loss {loss:.3f}, monitor {monitor:.3f}{more}",
                file=sys.stderr,
                flush=True,
            )
