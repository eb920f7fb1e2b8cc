"""Files that survive a kill: written whole or not at all, and locks that a dead process does not hold."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from .checksums import BLANK, seal


@contextmanager
def atomic(path: Path) -> Iterator[BinaryIO]:
    """Open a file to write that gets its name only when all of it is on the disk; folders are made if need be.

    Until then it is ``.{name}.{process}.part`` beside it, which is removed if anything fails.

    Args:
        path: Where the file is to be; what is there already stays until the new file is complete.
    """
    make_folder(path.parent)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        if error.errno is not None and error.filename in (None, str(part)):
            error.filename = str(path)  # not that of the part
            del error.filename2
        raise
    finally:
        part.unlink(missing_ok=True)


def make_folder(path: Path) -> None:
    """Make a folder, and those above it, so that they are on the disk when this returns.

    Args:
        path: The folder; it may be there already.
    """
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for folder in missing:
        sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Bring the names in a folder to the disk, where the file system can.

    Args:
        folder: The folder.
    """
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def write(path: Path, content: bytes) -> None:
    """Write a file whole or not at all, and on the disk when this returns; folders are made if need be.

    Args:
        path: Where the file is to be.
        content: All of it.
    """
    with atomic(path) as file:
        file.write(content)


def to_json(value: Mapping[str, Any], allow_nan: bool = False) -> bytes:
    """A value as people can read it, too, with a ``checksum`` as its last field.

    Args:
        value: What ``json`` can write.
        allow_nan: Whether what is not a number may be in it, as Python alone reads it.
    """
    fields = {name: entry for name, entry in value.items() if name != "checksum"}
    return seal((json.dumps({**fields, "checksum": BLANK}, indent=1, allow_nan=allow_nan) + "\n").encode())


def find_link(folder: Path) -> Path | None:
    """A link below a folder, if there is one: what is written there would be written elsewhere.

    Args:
        folder: The folder, which may be a link itself.
    """
    for place, folders, names in os.walk(folder):
        for name in (*folders, *names):
            if os.path.islink(path := os.path.join(place, name)):
                return Path(path)
    return None


def check_locks() -> None:
    """Refuse to begin where the system has no locks that a dead process does not hold.

    Raises:
        OSError: It has none.
    """
    try:
        import fcntl  # noqa: F401
    except ImportError:
        raise OSError(
            f"benchmarks, searches, watch and pack need POSIX file locks, which {sys.platform} has not: use Linux, "
            "macOS or WSL (fit, predict, evaluate and report work here)"
        ) from None


class Lock:
    """A lock on a file between processes; the system lets go of it when its holder dies, however that happens.

    These are ``flock``'s, and so POSIX only: the ``filelock`` package has no shared lock that can become an exclusive
    one, and where a system has no locks it falls back on files that outlive their maker.

    Args:
        path: The file; it is made if need be, and stays, unless who holds the lock alone removes it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._handle: int | None = None

    def take(self, wait: bool = False, shared: bool = False) -> bool:
        """Whether the lock is held now.

        Args:
            wait: Wait for those who hold it.
            shared: Hold it together with others who do so; taken again without, it becomes exclusive.
        """
        check_locks()
        import fcntl  # here, so that graphs and models work where there is none

        handle = self._handle
        if handle is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # Readable, as network file systems want it for a shared lock.
            try:
                handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
            except FileNotFoundError:  # who held the lock has removed its folder since
                return self.take(wait, shared)
        try:
            fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
        except OSError as error:
            if self._handle is None:
                os.close(handle)
            if isinstance(error, BlockingIOError):
                return False
            raise
        if self._handle is None and not self._is_file(handle):  # who held the lock has removed it since
            os.close(handle)
            return self.take(wait, shared)
        self._handle = handle
        return True

    def _is_file(self, handle: int) -> bool:
        """Whether what is open is the file that others find."""
        try:
            return os.path.samestat(os.fstat(handle), os.lstat(self.path))
        except FileNotFoundError:
            return False

    def free(self) -> None:
        """Let go of the lock, if it is held."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


@contextmanager
def locked(path: Path, wait: bool) -> Iterator[bool]:
    """Hold a lock for a while; yields whether it was got.

    Args:
        path: The lock's file.
        wait: Wait for who holds it.
    """
    lock = Lock(path)
    try:
        yield lock.take(wait)
    finally:
        lock.free()
