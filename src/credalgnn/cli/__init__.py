"""Command line: commands are functions whose options come from signatures and docstrings.

Heavy imports wait until a command needs them.
"""

from __future__ import annotations

import errno
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any, NoReturn

from .._version import __version__
from ..runtime.memory import address_space, in_units
from ..runtime.names import suggestion
from ..runtime.texts import one_line
from .common import UserError, settings_of
from .parser import Command, Parser, parser_of
from .streams import steady_streams

LEAST = 1400 << 20  # bytes of address space: with less, torch and LLVM end the process at some point or other
RESUMABLE = "what was finished is kept, and the same command goes on"
NOTHING = "nothing was written"
TABLES = "cli/model.py:tables"
COMMANDS = {
    "fit": Command(
        "model:fit", (TABLES, "model/fitting.py:fit"), ("data", "train", "val", "calibration", "context"),
        ("out",), {"out": "DIR"}, stopped="model:stopped_fit",
        example="credalgnn fit --nodes nodes.csv --edges edges.csv --label topic --out model/",
    ),
    "predict": Command(
        "model:predict", (TABLES, "model/predicting.py:predict_to"), ("data",), names={"out": "FILE"}, stopped=NOTHING,
        example="credalgnn predict model/ --nodes new.csv --edges new_edges.csv \\\n"
        "      --context nodes.csv edges.csv --out predictions.parquet --false-alarms 0.05",
    ),
    "evaluate": Command(
        "model:evaluate", (TABLES, "model/model.py:Model.evaluate"), ("data",), stopped=NOTHING, prints=True,
        example="credalgnn evaluate model/ --nodes labelled.csv --edges edges.csv",
    ),
    "watch": Command(
        "model:watch", (TABLES, "model/watching.py:watch"), ("data", "folder"), stopped=NOTHING,
        example="credalgnn watch model/ --nodes monday.csv --edges monday_edges.csv \\\n"
        "      --context nodes.csv edges.csv",
    ),
    "bench": Command(
        "experiments:bench", ("experiments/bench.py:benchmark",), required=("out",),
        example="credalgnn bench -d chameleon -m vanilla credal-lj --seeds 3 --out runs/first",
    ),
    "tune": Command("experiments:tune", ("experiments/tuning.py:tune",), names={"storage": "URL"}),
    "reproduce": Command("experiments:reproduce", ("experiments/reproduction.py:reproduce",)),
    "probe": Command("experiments:probe", ("experiments/probing.py:probe",)),
    "report": Command("experiments:report", (TABLES,)),
    "leaderboard": Command(
        "experiments:leaderboard",
        example="credalgnn leaderboard docs/results/leaderboard runs/mine --out runs/leaderboard",
    ),
    "check": Command("data:check", stopped="nothing was lost, and the same command goes on"),
    "datasets": Command("data:datasets", prints=True),
    "describe": Command("data:describe", prints=True),
    "pack": Command(
        "data:pack", ("graphs/packing.py:pack",), names={"nodes": "NODES", "edges": "EDGES"},
        example="credalgnn pack nodes/ edges/ --out graph.cg --memory 4GiB --dtype float16",
    ),
    "uncertainty": Command("sets:uncertainty", names={"file": "FILE", "out": "FILE"}, prints=True),
}  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: Arguments; None: those of the process.

    Returns:
        The exit code: 0 if all went well, 1 if something is left, failed or lost, 2 for an error of the user.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    with steady_streams() as out:
        name = words[0] if words and words[0] in COMMANDS else _without_command(words)
        command = COMMANDS[name]
        options = vars(parser_of(name, command).parse_args(words[1:]))
        with _terminable():
            code = _run(command, options)
        out.flush()
        if code == 0 and out.lost is not None and command.prints and "out" not in options:
            print(f"credalgnn: the result could not be written to stdout: {out.lost.strerror}", file=sys.stderr)
            return 1
    return code


def _without_command(words: list[str]) -> NoReturn:
    """Show the help or the version, or say what is wrong with words that begin with no command."""
    width = max(map(len, COMMANDS))
    lines = [f"  {name:{width}}  {command.summary}" for name, command in COMMANDS.items()]
    parser = Parser(
        prog="credalgnn", usage="credalgnn COMMAND ...", formatter_class=Parser.RAW,
        description="Graph neural networks that know what they do not know.",
        epilog="\n".join(["commands (credalgnn COMMAND --help):", *lines]),
    )  # fmt: skip
    parser.add_argument("--version", action="version", version=f"credalgnn {__version__}")
    if words and not words[0].startswith("-"):
        parser.error(f"unknown {words[0]!r}: {suggestion(words[0], COMMANDS)}")
    parser.parse_args(words)
    parser.error("the following arguments are required: COMMAND")


class _Terminated(KeyboardInterrupt):
    """SIGTERM, as from a queue of jobs whose time is over; handled as Ctrl-C."""


@contextmanager
def _terminable() -> Iterator[None]:
    """Let SIGTERM end the command as Ctrl-C does."""

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


def _run(command: Command, options: dict[str, Any]) -> int:
    try:
        if (limit := address_space()) is not None and limit < LEAST:
            raise UserError(
                f"the address space is limited to {in_units(limit)}, too little for torch and numba: allow 3 GiB "
                "or more (ulimit -v)"
            )
        if "settings" in options:
            options["settings"] = settings_of(options["settings"])
        return int(_function(command.handler)(**options) or 0)
    except UserError as error:
        print(f"credalgnn: {one_line(str(error))}", file=sys.stderr)
        return error.code
    except (OSError, MemoryError, ImportError, SystemError) as error:
        print(f"credalgnn: {one_line(_refusal(error))}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as stop:
        left = command.stopped or RESUMABLE
        text = _function(left)(**options) if left.startswith("model:") else left
        print(f"credalgnn: stopped; {text}", file=sys.stderr)
        return 128 + (signal.SIGTERM if isinstance(stop, _Terminated) else signal.SIGINT)


def _function(path: str) -> Any:
    module, _, name = path.partition(":")
    return getattr(import_module(f".{module}", __name__), name)


def _refusal(error: Exception) -> str:
    """Return what the system refused, with the limit of the address space (``ulimit -v``) if there is one."""
    place = f"{error.filename}: " if isinstance(error, OSError) and error.filename else ""
    text = f"{place}{getattr(error, 'strerror', None) or str(error) or 'out of memory'}"
    limit = address_space()
    if limit is None or (isinstance(error, OSError) and error.errno not in (None, errno.ENOMEM)):
        return text
    return f"{text}: the address space is limited to {in_units(limit)}; allow 3 GiB or more (ulimit -v)"
