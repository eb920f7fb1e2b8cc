"""Numba kernels, compiled once per machine and cached only where nobody else can write.

Numba's cache files are pickles, which run code when they are loaded.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from multiprocessing import parent_process
from pathlib import Path
from typing import Any

from numba import config, njit
from numba.core.caching import FunctionCache, NullCache
from numba.core.event import Event, Listener, register

from .memory import private_folder
from .progress import on_terminal

# Options of kernels that only other kernels call: without an entry from Python, which takes a sixth of the time to
# compile. A call from Python would end the process.
INNER: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}

_said = False


def kernel(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Decorate a function that numba compiles at its first call; it releases the GIL.

    Compiled code is kept where numba puts it (``NUMBA_CACHE_DIR``, beside the source, or the user's cache folder) if
    nobody but the user and root can write there, else in a private folder among temporary files. Where that fails, too,
    each process compiles, and says so once.

    Args:
        options: Options of ``numba.njit``.
    """

    def make(function: Callable[..., Any]) -> Any:
        compiled = njit(nogil=True, **options)(function)
        compiled._cache = _cache_for(function)
        return compiled

    return make


def announce(kernel: Any, message: str) -> None:
    """Show a message on a terminal when ``kernel`` is compiled."""
    register("numba:compile", _Note(kernel, message))


class _Note(Listener):
    """Listener for compilations; loading from the cache is none."""

    def __init__(self, kernel: Any, message: str) -> None:
        self._kernel, self._message = kernel, message

    def on_start(self, event: Event) -> None:
        if event.data["dispatcher"] is self._kernel and on_terminal() and parent_process() is None:
            from tqdm import tqdm

            folder = self._kernel.stats.cache_path
            note = f", this once; it is cached in {folder}" if folder else ""
            tqdm.write(f"compiling {self._message}{note}", file=sys.stderr)

    def on_end(self, event: Event) -> None:
        pass


def _cache_for(function: Callable[..., Any]) -> Any:
    """Return numba's cache of a function, in its folder or in ours, whichever is private."""
    settings: Any = config
    before = settings.CACHE_DIR
    for folder in (lambda: before, lambda: str(private_folder("kernels"))):
        try:
            settings.CACHE_DIR = folder()
            chosen = _Cache(function)
        except (RuntimeError, OSError):  # it cannot be written
            continue
        finally:
            settings.CACHE_DIR = before
        if is_private(Path(chosen.cache_path)):
            return chosen
    return _NoCache()


class _Cache(FunctionCache):
    """Numba's cache; a damaged file counts as missing, and a full disk is no error."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)
        except Exception:  # unpickling a damaged file may raise anything
            with suppress(OSError):
                self.flush()
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        with suppress(OSError):
            super().save_overload(sig, data)


class _NoCache(NullCache):
    def load_overload(self, sig: Any, target_context: Any) -> None:
        global _said
        if not _said and parent_process() is None and sys.stderr is not None:
            _said = True
            with suppress(OSError, ValueError):  # stderr is closed or full
                print(
                    "credalgnn: compiled kernels are not kept, as no folder for them can be written: set "
                    "NUMBA_CACHE_DIR to a folder that is yours alone",
                    file=sys.stderr, flush=True,
                )  # fmt: skip


@cache
def is_private(folder: Path) -> bool:
    """Return whether only the user and root can change a folder, its files and the folders above it."""
    if not hasattr(os, "getuid"):
        return True  # Windows
    folder = folder.resolve()
    return all(map(_is_ours, folder.iterdir())) and all(
        _is_ours(place, may_be_sticky=place != folder) for place in (folder, *folder.parents)
    )


def _is_ours(path: Path, may_be_sticky: bool = False) -> bool:
    """Return whether nobody else can write; in a sticky folder, such as /tmp, others rename only their own files."""
    status = path.stat()
    if status.st_uid not in (0, os.getuid()):
        return False
    open_to = status.st_mode & (stat.S_IWOTH if _is_alone(status.st_gid) else stat.S_IWOTH | stat.S_IWGRP)
    return not open_to or (may_be_sticky and bool(status.st_mode & stat.S_ISVTX))


@cache
def _is_alone(group: int) -> bool:
    """Return whether a group is root's, or the user's own without other members."""
    if group == 0:
        return True
    import grp
    import pwd

    try:
        user, members = pwd.getpwuid(os.getuid()), grp.getgrgid(group)
    except KeyError:
        return False
    return (members.gr_gid, members.gr_name) == (user.pw_gid, user.pw_name) and not set(members.gr_mem) - {user.pw_name}
