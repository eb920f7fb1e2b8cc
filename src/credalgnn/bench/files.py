"""Files that survive a kill: written whole or not at all, and locks that a dead process does not hold."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any


def write(path: Path, content: bytes) -> None:
    """Write a file whole or not at all, and on the disk when this returns; folders are made if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
        with suppress(OSError):  # the name, too, where the file system can
            folder = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
    except OSError as error:
        if error.errno is not None:
            error.filename = str(path)  # not that of the part; a full disk is told of without any
        raise
    finally:
        part.unlink(missing_ok=True)


def to_json(value: Mapping[str, Any]) -> bytes:
    """A value as people can read it, too; what is not a number is refused."""
    return (json.dumps(value, indent=1, allow_nan=False) + "\n").encode()


class Lock:
    """A lock on a file between processes; the system lets go of it when its holder dies, however that happens."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.handle: int | None = None

    def take(self, wait: bool = False) -> bool:
        """Whether the lock is held now."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            os.close(handle)
            return False
        self.handle = handle
        return True

    def free(self) -> None:
        if self.handle is not None:
            os.close(self.handle)
            self.handle = None


@contextmanager
def locked(path: Path, wait: bool) -> Iterator[bool]:
    """Hold a lock for a while; yields whether it was got."""
    lock = Lock(path)
    try:
        yield lock.take(wait)
    finally:
        lock.free()
