"""Streams for stdout and stderr whose failures do not end the work."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any


class Steady:
    """Stream whose writes do not fail; `lost` is the reason why text did not arrive, if any.

    A closed pipe (``| head``) loses nothing.
    """

    def __init__(self, stream: Any, lost: OSError | None = None) -> None:
        self._stream, self.lost = stream, lost

    def write(self, text: str) -> int:
        """Write, or remember why not."""
        try:
            self._stream.write(text)
        except OSError as error:
            self._give_up(error)
        return len(text)

    def flush(self) -> None:
        """Flush, or remember why not."""
        try:
            self._stream.flush()
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        if not isinstance(error, BrokenPipeError):
            self.lost = self.lost or error
        with suppress(OSError, ValueError):  # what follows, and what is left in buffers at the end, goes nowhere
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def steady_streams() -> Iterator[Steady]:
    """Inside, nothing that is written to stdout or stderr fails; yields stdout.

    Streams that are closed are opened, to nowhere: the next file that is opened would take their place, and get what
    libraries and other processes write there.
    """
    closed = []
    for number in range(3):
        try:
            os.fstat(number)
        except OSError as error:
            closed.append(error)
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
    before = sys.stdout, sys.stderr
    for stream in before:
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without ± shall not end hours of work
    nowhere = open(os.devnull, "w")  # noqa: SIM115 (as long as the process lives)
    out = Steady(sys.stdout or nowhere, closed[-1] if sys.stdout is None and closed else None)
    sys.stdout, sys.stderr = out, Steady(sys.stderr or nowhere)
    try:
        yield out
    finally:
        out.flush()
        sys.stderr.flush()
        sys.stdout, sys.stderr = before
        nowhere.close()
