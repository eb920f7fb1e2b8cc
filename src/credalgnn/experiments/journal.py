"""Journal of trials: Optuna's log, a line each, with a checksum over the line and the checksum before it.

Optuna's own file backend reads the same file, but is less safe: it appends to half a line that a killed process has
left, which spoils the journal; a changed digit goes unnoticed; and a dead process holds its lock for 30 seconds. Here
only lines at the end can be lost unnoticed; their trials are done again.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from optuna.storages.journal import BaseJournalBackend

from ..runtime.files import PREFIX, Lock, checksum, make_folder, sync_folder
from ..runtime.reading import open_file, parse_json, read_bytes
from .engines import EngineError

_LINE = re.compile(rb'(\{.*),"checksum":"(' + PREFIX.encode() + rb'[0-9a-f]{64})"\}\n')
_TAIL = 1 << 16  # bytes at the end of a journal that are looked at first for its last line


class Journal(BaseJournalBackend):
    """Journal file shared by processes and machines.

    Args:
        path: The file; made if missing.
        lock: Lock that writers hold.
    """

    def __init__(self, path: Path, lock: Lock) -> None:
        self.path, self._lock = path, lock
        self._begins: list[tuple[int, str]] = [(0, "")]  # of each line, with the checksum of the line before it
        make_folder(self.path.parent)
        self.path.touch()
        sync_folder(self.path.parent)
        self._take()
        self._lock.free()

    def read_logs(self, log_number_from: int) -> Iterator[dict[str, Any]]:
        """Yield the entries from a number on; half a line at the end is being written, or was left by a kill."""
        number = min(log_number_from, len(self._begins) - 1)
        position, before = self._begins[number]
        with open_file(self.path) as file:
            file.seek(position)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                before = self._sum(line, before)
                position, number = position + len(line), number + 1
                if number == len(self._begins):
                    self._begins.append((position, before))
                if number > log_number_from:
                    yield parse_json(line)

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Write entries; they are on the disk when this returns."""
        self._take()
        try:
            before, lines = self._last(), []
            for log in logs:
                body = json.dumps(log, separators=(",", ":"))[:-1].encode()
                before = checksum(before.encode() + body)
                lines.append(body + f',"checksum":"{before}"}}\n'.encode())
            with self.path.open("ab") as file:
                file.write(b"".join(lines))
                file.flush()
                os.fsync(file.fileno())
        finally:
            self._lock.free()

    def _take(self) -> None:
        """Take the lock, and cut off half a line that a killed process has left."""
        self._lock.take(wait=True)
        if self.path.exists() and self.path.stat().st_size:
            with open_file(self.path) as file:
                file.seek(-1, os.SEEK_END)
                whole = file.read(1) == b"\n"
            if not whole:
                os.truncate(self.path, read_bytes(self.path).rfind(b"\n") + 1)

    def _last(self) -> str:
        """Return the checksum of the last line."""
        with open_file(self.path) as file:
            size = file.seek(0, os.SEEK_END)
            for length in (_TAIL, size):
                file.seek(max(size - length, 0))
                lines = file.read().splitlines(keepends=True)
                if len(lines) > 1:
                    break
        if not lines:
            return ""
        if (match := _LINE.fullmatch(lines[-1])) is None:
            raise self._damaged()
        return match[2].decode()

    def _sum(self, line: bytes, before: str) -> str:
        if (digits := _sum(line, before)) is None:
            raise self._damaged()
        return digits

    def _damaged(self) -> EngineError:
        return EngineError(
            f"{self.path}: damaged, and not by a kill; bring it back from a copy, choose another `out`, or keep what "
            f"is intact with credalgnn check --repair {self.path.parent}"
        )


def intact(path: Path) -> int:
    """Return the number of intact bytes at the beginning of a journal."""
    position, before = 0, ""
    with open_file(path) as file:
        for line in file:
            if (digits := _sum(line, before)) is None:
                break
            position, before = position + len(line), digits
    return position


def _sum(line: bytes, before: str) -> str | None:
    """Return the checksum of a line if it fits the line and the checksum before it."""
    match = _LINE.fullmatch(line)
    if match is None or checksum(before.encode() + match[1]) != match[2].decode():
        return None
    return match[2].decode()
