"""Run a command again and again, killed at each of its writes in turn; prints what it left behind as JSON lines.

A script of its own: it forks before anything has started threads.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import numba  # noqa: F401 (this and others: imported once, and not in every child)
import pandas  # noqa: F401
import sympy  # noqa: F401
import torch._dynamo  # noqa: F401

import credalgnn.cli
import credalgnn.model.watching


def run(argv: list[str], kill_at: int) -> int:
    """The command in a child, killed at one of its writes (numbered from 0), before the file gets its name."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    replace, seen = Path.replace, [0]

    def replaced(self: Path, target: Path) -> Path:
        if seen[0] == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        seen[0] += 1
        return replace(self, target)

    Path.replace = replaced  # type: ignore[method-assign, assignment]
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os._exit(credalgnn.cli.main(argv))


def main(place: Path, argv: list[str]) -> None:
    """All kills, until one comes too late; the command is given whatever the kill before it left behind."""
    code = -1
    for number in range(20):
        if code < 0:
            code = run(argv, number)
            left = sorted(str(path.relative_to(place)) for path in place.rglob("*") if path.is_file())
            print(json.dumps({"code": code, "left": left}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
