"""Available memory and processors, memory budgets, and arrays in temporary files."""

from __future__ import annotations

import errno
import mmap
import os
import re
import stat
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

UNITS = {"": 1, "b": 1}
UNITS |= {f"{letter}{end}": 1024 ** (at + 1) for at, letter in enumerate("kmgt") for end in ("", "ib")}
UNITS |= {f"{letter}b": 1000 ** (at + 1) for at, letter in enumerate("kmgt")}
LEAST = 1 << 20
CGROUPS = Path("/sys/fs/cgroup")


def parse_memory(memory: str | int | None) -> int:
    """Return a memory budget in bytes.

    Args:
        memory: Bytes, or a text such as ``"4GiB"``, ``"500MB"`` or ``"2G"`` (GiB); None: what is available.
    """
    if memory is None:
        return available_memory()
    if isinstance(memory, str):
        match = re.fullmatch(r"\s*([0-9]{1,15}(?:\.[0-9]{1,9})?)\s*([a-zA-Z]{0,3})\s*", memory)
        if match is None or match[2].lower() not in UNITS:
            raise ValueError(f"{memory!r:.40} is no size of memory: say 4GiB or 500MB")
        memory = int(float(match[1]) * UNITS[match[2].lower()])
    if isinstance(memory, bool) or not isinstance(memory, int) or memory < LEAST:
        raise ValueError(f"a budget of {memory!r:.40} bytes is too little: 1MiB or more, as in 4GiB")
    return memory


def available_memory() -> int:
    """Return the bytes available without swapping; a limit of the container counts."""
    return max(LEAST, min(_of_system(), *_of_containers()))


def processors() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def resident_memory() -> int:
    """Return the resident bytes of this process, pages of mapped files included; 0 if unknown."""
    with suppress(OSError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def address_space() -> int | None:
    """Return the limit of this process's address space in bytes, as set by ``ulimit -v``, if there is one."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return None if limit == resource.RLIM_INFINITY else limit


def in_units(size: float) -> str:
    """Return a number of bytes as text, such as ``1.5 GiB``."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def _of_system() -> int:
    with suppress(OSError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2  # what others hold is not known
    except (ValueError, OSError, AttributeError):
        return 4 << 30


def _of_containers() -> Iterator[int]:
    """Yield what the limits of the control groups leave; file pages that can be dropped count as free."""
    yield 1 << 62
    with suppress(OSError, ValueError):
        lines = Path("/proc/self/cgroup").read_text().splitlines()
        group = next((line.partition("::")[2] for line in lines if line.startswith("0::")), "/")
        place = CGROUPS / group.strip("/")
        for folder in (place, *place.parents):
            if CGROUPS not in (folder, *folder.parents):
                break
            yield from _left(folder, "memory.max", "memory.current", "inactive_file")
    yield from _left(CGROUPS / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def _left(folder: Path, limit: str, used: str, files: str) -> Iterator[int]:
    with suppress(OSError, ValueError):
        most = int((folder / limit).read_text())  # "max" where there is none
        lines = (line.split() for line in (folder / "memory.stat").read_text().splitlines())
        droppable = next((int(value) for name, value in lines if name == files), 0)
        yield most - int((folder / used).read_text()) + droppable


def temporary_folder(mounts: Path = Path("/proc/mounts")) -> Path:
    """Return the folder for temporary files; ``/var/tmp`` if the default is in memory and ``TMPDIR`` is not set."""
    folder, disk = Path(tempfile.gettempdir()), Path("/var/tmp")
    chosen = any(os.environ.get(name) for name in ("TMPDIR", "TEMP", "TMP"))
    if chosen or not os.access(disk, os.W_OK):
        return folder
    return disk if _is_memory(folder, mounts) and not _is_memory(disk, mounts) else folder


def private_folder(name: str) -> Path:
    """Return a folder among temporary files that is private to this user; made if missing, and kept.

    Raises:
        OSError: It cannot be made, or is a link or open to others.
    """
    folder = temporary_folder() / f"credalgnn-{os.getuid()}-{name}"
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise PermissionError(errno.EPERM, "a link, or open to others: remove it", str(folder))
    return folder


def _is_memory(folder: Path, mounts: Path) -> bool:
    """Return whether a folder is in a file system that is kept in memory, if ``mounts`` tells."""
    with suppress(OSError, UnicodeDecodeError):
        lines = (line.split() for line in mounts.read_text().splitlines())
        places = {Path(line[1]): line[2] for line in lines if len(line) > 2}  # of several at one place the last counts
        place = next((each for each in (folder, *folder.parents) if each in places), None)
        return place is not None and places[place] in ("tmpfs", "ramfs")
    return False


def on_disk(shape: tuple[int, ...], dtype: DTypeLike = "float32") -> NDArray[Any]:
    """Return a writable array mapped to an unnamed temporary file, which disappears with the process.

    Its space is allocated now: a full disk is an error here, and does not end the process later.
    """
    import numpy as np  # here, so that commands that only answer do not wait for it

    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    try:
        with tempfile.TemporaryFile(prefix="credalgnn-", dir=temporary_folder()) as file:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, size)
            else:
                os.ftruncate(file.fileno(), size)
            return np.memmap(file, dtype, "r+", shape=shape)
    except OSError as error:
        raise OSError(
            error.errno,
            f"{temporary_folder()}: {in_units(size)} of temporary files cannot be written ({error.strerror}); make "
            "room, or set TMPDIR to another folder",
        ) from None


def let_go(array: NDArray[Any]) -> None:
    """Give the pages of a mapped array back to the system; nothing happens to an array in memory."""
    mapped = getattr(array, "_mmap", None)
    if isinstance(mapped, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        mapped.madvise(mmap.MADV_DONTNEED)
