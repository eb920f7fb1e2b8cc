"""Kernels are compiled once on a machine, and kept where nobody else may write: they are code that will be run."""

from __future__ import annotations

import os
import pickle
import stat
import sys
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from multiprocessing import parent_process
from pathlib import Path
from typing import Any

from numba import njit
from numba.core.caching import (
    Cache,
    CompileResultCacheImpl,
    IndexDataCacheFile,
    InTreeCacheLocator,
    NullCache,
    UserProvidedCacheLocator,
    UserWideCacheLocator,
)
from numba.core.event import Event, Listener, register

# Options for what only other kernels call: no way in from Python, which is a sixth of the time to compile. A call from
# Python would end the process.
INNER: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}

_said = False
_refused: list[Path] = []  # folders that others may write to


def kernel(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Decorate a function that numba compiles when it is first called, and that releases the GIL.

    What is compiled is kept beside the source, or in numba's folder for the user (``NUMBA_CACHE_DIR``), if nobody but
    the user and root may write there: numba's files are pickles, which run whatever is in them. They carry checksums,
    and a damaged one is made anew. Without such a folder every process compiles, and one line on stderr says so.

    Args:
        options: Of numba's ``njit``.
    """

    def make(function: Callable[..., Any]) -> Any:
        made = njit(nogil=True, **options)(function)
        try:
            made._cache = _Cached(function)
        except RuntimeError:  # there is no place for it
            made._cache = _Uncached()
        return made

    return make


def announce(kernel: Any, message: str) -> None:
    """Show a message on a terminal when ``kernel`` has to be compiled.

    Args:
        kernel: The function that numba compiles.
        message: What is compiled.
    """
    register("numba:compile", _Note(kernel, message))


class _Note(Listener):
    """Is called at every compilation; a kernel loaded from the cache is none."""

    def __init__(self, kernel: Any, message: str) -> None:
        self._kernel, self._message = kernel, message

    def on_start(self, event: Event) -> None:
        # Where there is a parent process, it is the parent that shows progress.
        if event.data["dispatcher"] is self._kernel and _is_terminal() and parent_process() is None:
            from tqdm import tqdm

            cache = self._kernel.stats.cache_path
            kept = f", this once; it is kept in {cache}" if cache else ""
            tqdm.write(f"compiling {self._message}{kept}", file=sys.stderr)

    def on_end(self, event: Event) -> None:
        pass


def _is_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()


def is_private(path: Path) -> bool:
    """Whether nobody but the user and root may change a file, or what is in a folder.

    The folders above count, too: who may write there may put something else in its place, but for a folder like /tmp,
    where everyone may rename only what is theirs. A group that has no other members is the user.

    Args:
        path: A file or folder that exists.
    """
    if not hasattr(os, "getuid"):
        return True  # Windows, whose folders of a user are the user's
    path = path.resolve()
    found = [place.stat() for place in (path, *path.parents)]
    safe = (
        each.st_uid in (0, os.getuid())
        and (not _others_write(each) or (number > 0 and bool(each.st_mode & stat.S_ISVTX)))
        for number, each in enumerate(found)
    )
    return all(safe)


def _others_write(found: os.stat_result) -> bool:
    if found.st_mode & stat.S_IWOTH:
        return True
    if not found.st_mode & stat.S_IWGRP or found.st_gid == 0:
        return False
    import grp
    import pwd

    try:
        own, group = pwd.getpwuid(os.getuid()), grp.getgrgid(found.st_gid)
    except KeyError:
        return True
    return (group.gr_gid, group.gr_name) != (own.pw_gid, own.pw_name) or bool(set(group.gr_mem) - {own.pw_name})


class _Private:
    """Of a locator of numba: a folder that can be written, but by others as well, is none."""

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> Any:
        found = super().from_function(py_func, py_file)  # type: ignore[misc]
        if found is None:
            return None
        folder = Path(found.get_cache_path())
        if not is_private(folder):
            _refused.append(folder)
            return None
        return found


class _Given(_Private, UserProvidedCacheLocator):
    pass


class _InTree(_Private, InTreeCacheLocator):
    pass


class _UserWide(_Private, UserWideCacheLocator):
    pass


class _Place(CompileResultCacheImpl):
    _locator_classes = [_Given, _InTree, _UserWide]  # noqa: RUF012 (numba's)


class _Sealed(IndexDataCacheFile):
    """Numba's files with checksums; a damaged one counts as missing, and is written anew."""

    def _dump(self, obj: Any) -> bytes:
        data: bytes = super()._dump(obj)
        return sha256(data).digest() + data

    def _load_index(self) -> dict[Any, str]:
        try:
            with open(self._index_path, "rb") as file:
                version, data = pickle.load(file), file.read()
            if version != self._version:
                return {}
            stamp, names = pickle.loads(_opened(data))
        except Exception:  # whatever pickle makes of a damaged file
            return {}
        return names if stamp == self._source_stamp else {}

    def _load_data(self, name: str) -> Any:
        return pickle.loads(_opened(Path(self._data_path(name)).read_bytes()))


def _opened(data: bytes) -> bytes:
    if sha256(data[32:]).digest() != data[:32]:
        raise OSError("damaged")
    return data[32:]


class _Cached(Cache):
    """What is compiled, on the disk."""

    _impl_class = _Place  # type: ignore[assignment]

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self._cache_file = _Sealed(self._cache_path, self._impl.filename_base, self._impl.locator.get_source_stamp())

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        files = Path(self._cache_path).glob(f"{self._impl.filename_base}.*")
        if self._enabled and not all(map(is_private, files)):
            self.disable()
            _refused.append(Path(self._cache_path))
            _say_uncached()
        return super().load_overload(sig, target_context)

    def save_overload(self, sig: Any, data: Any) -> None:
        with suppress(OSError):  # the kernel is there, and a full disk costs the next process some seconds
            super().save_overload(sig, data)


class _Uncached(NullCache):
    def load_overload(self, sig: Any, target_context: Any) -> None:
        _say_uncached()


def _say_uncached() -> None:
    """Say once, where there is somebody to hear it, that kernels are not kept, why, and what to do."""
    global _said
    if _said or parent_process() is not None or sys.stderr is None:
        return
    _said = True
    why = f"{_refused[0]} can be written by others" if _refused else "no folder for them can be written"
    line = f"compiled kernels are not kept, as {why}: set NUMBA_CACHE_DIR to a folder that is yours alone"
    with suppress(OSError, ValueError):
        print(f"credalgnn: {line}", file=sys.stderr, flush=True)
