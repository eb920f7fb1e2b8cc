"""Atomic files, their checksums, and locks between processes.

A checksum is the text ``sha256:`` and 64 digits: the SHA-256 of the file with 64 zeros in its place. It is in the file
itself: the last field of a JSON object, the metadata of Parquet and safetensors, the comment of a zip archive. It
detects accidents; it is no signature.
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import stat
import struct
import tempfile
import uuid
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from .errors import translated

PREFIX = "sha256:"
BLANK = PREFIX + "0" * 64  # in place of a checksum until everything else is written
_LOCAL = struct.Struct("<26xHH")  # header of a zip member up to the lengths of its name and extra field


@contextmanager
def atomic(path: Path) -> Iterator[BinaryIO]:
    """Open a file for writing that appears at ``path`` only when it is complete and on the disk.

    Until then it is ``.{name}.{process}.part`` in the same folder, which is removed on failure. Missing folders are
    made.
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
    """Make a folder and its missing parents, and bring their names to the disk."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for folder in missing:
        sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Bring the names in a folder to the disk, where the file system can."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def write(path: Path, content: bytes) -> None:
    """Write a file atomically; it is on the disk when this returns."""
    with atomic(path) as file:
        file.write(content)


def check_writable(path: Path, folder: bool = False) -> None:
    """Raise an ``OSError`` that names ``path`` unless it can be written; nothing is left behind.

    Args:
        path: A file, or a folder of files, that a call writes later. It may be missing, and so may its parents.
        folder: It is a folder.
    """
    with translated(OSError, lambda error: OSError(error.errno, error.strerror, str(path))):
        mode = None
        with suppress(FileNotFoundError):
            mode = path.stat().st_mode
        place = path if folder and mode is not None else path.parent
        place = next(each for each in (place, *place.parents) if each.exists())
        if mode is not None and not (stat.S_ISDIR(mode) if folder else stat.S_ISREG(mode)):
            kind = "is no folder" if folder else "is a folder" if stat.S_ISDIR(mode) else "is no regular file"
            raise OSError(errno.EINVAL, f"what is there {kind}")
        tempfile.TemporaryFile(dir=place).close()


def find_link(folder: Path) -> Path | None:
    """Return a symbolic link below a folder, if there is one: writes would follow it elsewhere."""
    for place, folders, names in os.walk(folder):
        for name in (*folders, *names):
            if os.path.islink(path := os.path.join(place, name)):
                return Path(path)
    return None


def to_json(value: Mapping[str, Any], allow_nan: bool = False) -> bytes:
    """Return indented JSON with a ``checksum`` as its last field; NaN only on request, as only Python reads it."""
    fields = {name: entry for name, entry in value.items() if name != "checksum"}
    return seal((json.dumps({**fields, "checksum": BLANK}, indent=1, allow_nan=allow_nan) + "\n").encode())


def checksum(content: bytes) -> str:
    """Return ``sha256:`` and 64 digits."""
    return PREFIX + hashlib.sha256(content).hexdigest()


def seal(content: bytes) -> bytes:
    """Replace the last ``BLANK`` of a file's content by its checksum."""
    before, blank, after = content.rpartition(BLANK.encode())
    if not blank:
        raise ValueError("there is no place for a checksum")
    return before + checksum(content).encode() + after


def sealed_with(content: bytes) -> str | None:
    """Return the checksum in a file's content if it fits, else None."""
    place = content.rfind(PREFIX.encode())
    end = place + len(BLANK)
    stored = content[place:end].decode("latin-1") if place >= 0 else ""
    blank = b"".join((content[:place], BLANK.encode(), content[end:]))
    return stored if stored and checksum(blank) == stored else None


def seal_zip(file: BinaryIO) -> None:
    """Write the checksum into a zip archive, open for reading and writing, whose comment is a ``BLANK``."""
    sealed = seal(_outline(file))
    file.seek(-len(BLANK), io.SEEK_END)
    file.write(sealed[-len(BLANK) :])


def is_sealed_zip(file: BinaryIO) -> bool:
    """Return whether a zip archive fits its checksum, which covers everything but the data of its members.

    Those have CRC-32 sums in the directory, checked when a member is read; a second pass over all data would cost too
    much.
    """
    try:
        return sealed_with(_outline(file)) is not None
    except (zipfile.BadZipFile, struct.error, ValueError, LookupError, RuntimeError, OverflowError, OSError):
        return False  # errors of zipfile on a damaged directory


def _outline(file: BinaryIO) -> bytes:
    """Return all of a zip archive but the data of its members."""
    with zipfile.ZipFile(file) as archive:
        members = sorted(archive.infolist(), key=lambda member: member.header_offset)
        directory = archive.start_dir
    parts, position = [], 0
    for member in members:
        if member.header_offset != position:
            raise zipfile.BadZipFile("there is something between its members")
        file.seek(position)
        header = file.read(_LOCAL.size)
        header += file.read(sum(_LOCAL.unpack(header)))
        parts.append(header)
        position += len(header) + member.compress_size
    if position != directory:
        raise zipfile.BadZipFile("there is something between its members and their directory")
    file.seek(directory)
    return b"".join([*parts, file.read()])


class Lock:
    """An exclusive lock between processes; the system releases it when its holder dies.

    Args:
        path: File of the lock; made with its folders if missing, and left there.
    """

    def __init__(self, path: Path) -> None:
        from filelock import FileLock  # here: many commands take no lock

        self.path = path
        self._lock = FileLock(path, thread_local=False)

    def take(self, wait: bool = False) -> bool:
        """Take the lock, and return whether it is held now."""
        from filelock import SoftFileLock, Timeout

        while True:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            try:
                self._lock.acquire(timeout=-1 if wait else 0, poll_interval=0.02)
            except FileNotFoundError:  # its last holder has removed the folder
                continue
            except Timeout:
                if self.path.exists():
                    return False
                continue  # its last holder has removed it
            if isinstance(self._lock, SoftFileLock):  # filelock's way out, which a dead process would hold for ever
                self.free()
                raise OSError(errno.ENOLCK, "The file system has no locks", str(self.path))
            return True

    def free(self) -> None:
        """Release the lock, if it is held."""
        self._lock.release(force=True)


@contextmanager
def locked(path: Path, wait: bool) -> Iterator[bool]:
    """Hold a lock for a while; yields whether it is held."""
    lock = Lock(path)
    try:
        yield lock.take(wait)
    finally:
        lock.free()


class Occupancy:
    """Processes at work in a folder, each of which holds a lock of its own in ``.at-work``.

    Args:
        folder: The folder, shared by these processes.
    """

    def __init__(self, folder: Path) -> None:
        self._gate, self._locks = folder / ".lock", folder / ".at-work"
        self._own = Lock(self._locks / uuid.uuid4().hex)

    def enter(self) -> None:
        """Be one of those at work; waits while another process is alone."""
        with locked(self._gate, wait=True):
            self._own.take()

    def leave(self) -> None:
        """Be none of them any more."""
        self._own.free()
        self._own.path.unlink(missing_ok=True)
        with suppress(OSError):  # others are at work
            self._locks.rmdir()

    @contextmanager
    def alone(self) -> Iterator[bool]:
        """Yield whether no other process is at work; none can enter meanwhile."""
        if not self._gate.exists():
            yield True
            return
        with locked(self._gate, wait=True):
            others = [path for path in self._locks.glob("*") if path != self._own.path]
            yield not any(_is_held(path) for path in others)


def _is_held(path: Path) -> bool:
    with locked(path, wait=False) as held:
        if held:  # of a process that has died
            path.unlink(missing_ok=True)
        return not held
