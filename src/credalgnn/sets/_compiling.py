"""Kernels are compiled once on a machine: what makes that short, and a message while it lasts."""

from __future__ import annotations

import sys
from multiprocessing import parent_process
from typing import Any

from numba.core.event import Event, Listener, register

# Options for what only other kernels call: no way in from Python, which is a sixth of the time to compile. A call from
# Python would end the process.
INNER: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}


class _Note(Listener):
    """Is called at every compilation; a kernel loaded from the cache is none."""

    def __init__(self, kernel: Any, message: str) -> None:
        self._kernel, self._message = kernel, message

    def on_start(self, event: Event) -> None:
        # Where there is a parent process, it is the parent that shows progress.
        if event.data["dispatcher"] is self._kernel and sys.stderr.isatty() and parent_process() is None:
            from tqdm import tqdm

            cache = self._kernel.stats.cache_path
            tqdm.write(f"compiling {self._message}, this once; it is kept in {cache}", file=sys.stderr)

    def on_end(self, event: Event) -> None:
        pass


def announce(kernel: Any, message: str) -> None:
    """Show a message on a terminal when ``kernel`` has to be compiled.

    Args:
        kernel: The function that numba compiles.
        message: What is compiled.
    """
    register("numba:compile", _Note(kernel, message))
