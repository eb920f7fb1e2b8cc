"""What is being done, and how long it took: a line a stage, and warnings as they come, on stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Timer

from ..runtime.texts import one_line

SOON = 5.0  # seconds after which a stage is announced where no terminal would show it at once


class Stages:
    """The stages of a long call, each with its seconds.

    Args:
        silent: Show nothing.
    """

    def __init__(self, silent: bool = False) -> None:
        self.seconds: dict[str, float] = {}
        self._silent = silent

    @contextmanager
    def __call__(self, name: str) -> Iterator[list[str]]:
        """One stage; what is appended to the list it gives is said behind its time.

        Args:
            name: What is done.
        """
        begin, said = time.perf_counter(), list[str]()
        terminal = sys.stderr.isatty()
        sign = Timer(0.0 if terminal else SOON, self._say, [f"{name} ...", "\r" if terminal else "\n"])
        sign.daemon = True
        sign.start()
        try:
            yield said
        finally:
            sign.cancel()
        self.seconds[name] = round(time.perf_counter() - begin, 3)
        self._say(f"{name:12s} {self.seconds[name]:7.1f} s  {' '.join(said)}".rstrip())

    def warn(self, text: str) -> None:
        """Say a warning at once, in a line of its own.

        Args:
            text: The warning.
        """
        self._say(f"! {one_line(text)}")

    def _say(self, text: str, end: str = "\n") -> None:
        if not self._silent:
            print(text, end=end, file=sys.stderr, flush=True)
