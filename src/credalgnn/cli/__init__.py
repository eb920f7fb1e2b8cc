"""The command line: words to calls. Heavy imports wait until a command needs them."""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Sequence
from typing import NoReturn

from .._version import __version__
from . import bench, data, search, sets
from .errors import UserError


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"credalgnn: {message} (see {self.prog} --help)\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; 0 if all went well, 1 if something is left or failed, 2 for an error of the user's."""
    parser = _Parser(prog="credalgnn", description="Graph neural networks that know what they do not know.")
    parser.add_argument("--version", action="version", version=f"credalgnn {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for room in (bench, search, data, sets):
        room.add_commands(commands)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without ± shall not end hours of work
    args = parser.parse_args(argv)
    try:
        return int(args.run(args) or 0)
    except UserError as error:
        print(f"credalgnn: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("credalgnn: stopped; what was finished is kept, and the same command goes on", file=sys.stderr)
        return 130
    except BrokenPipeError:
        sys.stderr.close()
    return 0
