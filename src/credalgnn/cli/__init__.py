"""The command line: arguments to calls. Heavy imports wait until a command needs them."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from .._version import __version__
from ..runtime.names import suggestion
from ..runtime.texts import one_line
from . import bench, check, data, own, pack, probe, search, sets
from .errors import UserError
from .streams import steady_streams

RESUMABLE = "what was finished is kept, and the same command goes on"  # unless a command says something else


class _Parser(argparse.ArgumentParser):
    """Options have one spelling (``--seed`` is not ``--seeds``), and an unknown one gets the nearest."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, allow_abbrev=False)

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        args = sys.argv[1:] if args is None else args
        self._check_options(args)  # before argparse complains of what is missing because of the typo
        result, rest = super().parse_known_args(args, namespace)
        if rest:
            self.error(f"unexpected argument {rest[0]!r}")
        return result, rest

    def _check_options(self, args: Sequence[str]) -> None:
        for argument in args:
            if argument == "--" or (self._subparsers is not None and not argument.startswith("-")):
                return  # what follows is not this parser's
            option = argument.partition("=")[0]
            if option.startswith("--") and option not in self._option_string_actions:
                options = [name for name in self._option_string_actions if name.startswith("--")]
                self.error(f"unknown option {option}: {suggestion(option, options)}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            raise argparse.ArgumentError(action, f"unknown {value!r}: {suggestion(str(value), action.choices)}")

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"credalgnn: {one_line(message)} (see {self.prog} --help)\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: Its arguments; None for those of the process.

    Returns:
        The exit code: 0 if all went well, 1 if something is left, failed or lost, 2 for an error of the user's.
    """
    parser = _Parser(prog="credalgnn", description="Graph neural networks that know what they do not know.")
    parser.add_argument("--version", action="version", version=f"credalgnn {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for module in (own, bench, search, probe, check, data, pack, sets):
        module.add_commands(commands)
    with steady_streams() as out:
        args = parser.parse_args(argv)
        with _terminable():
            code = _run(args)
        out.flush()
        if code == 0 and out.lost is not None and getattr(args, "prints", False) and getattr(args, "out", None) is None:
            print(f"credalgnn: the result could not be written to stdout: {out.lost.strerror}", file=sys.stderr)
            return 1
    return code


class _Terminated(KeyboardInterrupt):
    """The process is asked to end, as by a queue of jobs whose time is over: the same as Ctrl-C."""


@contextmanager
def _terminable() -> Iterator[None]:
    """Inside, SIGTERM ends the command as Ctrl-C does."""

    def end(*_: object) -> NoReturn:
        raise _Terminated

    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _run(args: argparse.Namespace) -> int:
    try:
        return int(args.run(args) or 0)
    except UserError as error:
        print(f"credalgnn: {one_line(str(error))}", file=sys.stderr)
        return error.code
    except KeyboardInterrupt as stop:
        left = getattr(args, "stopped", RESUMABLE)  # a text, or what makes it
        print(f"credalgnn: stopped; {left() if callable(left) else left}", file=sys.stderr)
        return 128 + (signal.SIGTERM if isinstance(stop, _Terminated) else signal.SIGINT)
