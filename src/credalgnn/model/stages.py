"""What is being done, and how long it took: a line a stage, on stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager


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
        if not self._silent:
            print(f"{name} ...", end="\r" if sys.stderr.isatty() else "\n", file=sys.stderr, flush=True)
        yield said
        self.seconds[name] = round(time.perf_counter() - begin, 3)
        if not self._silent:
            print(f"{name:12s} {self.seconds[name]:7.1f} s  {' '.join(said)}".rstrip(), file=sys.stderr, flush=True)
