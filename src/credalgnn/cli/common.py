"""What the commands that train have in common: options, checks before any work is done, progress, errors."""

from __future__ import annotations

import argparse
import ast
import errno
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..runtime.memory import parse_memory
from ..runtime.names import install_hint
from .errors import UserError, WorkLost

LONGEST = 1_000  # characters of a hyper-parameter: what is longer is no value, and parsers are slow at it
KEPT = "finished runs are kept, and the same command goes on"
AGAIN = "mend that, and give the same command again"
MOST = 10_000  # seeds, trials or processes: more is a slip of the finger, and takes long to plan


def add_work_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that commands that compare or tune methods have in common.

    Args:
        parser: Of the command.
    """
    add_data_options(parser)
    parser.add_argument("--protocol", choices=("sealed", "paper"), default="sealed",
                        help="sealed: nothing but ID validation nodes decides anything (default)")  # fmt: skip
    parser.add_argument("--setting", choices=("transductive", "inductive"), default="transductive",
                        help="inductive: training sees the training nodes alone; default: the whole graph")  # fmt: skip
    parser.add_argument("--split-seed", type=int, default=0, metavar="K", help="public split, or seed (default: 0)")
    add_place_options(parser)


def add_data_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say which data sets, and which hyper-parameters.

    Args:
        parser: Of the command.
    """
    parser.add_argument(
        "-d", "--datasets", nargs="+", required=True, metavar="NAME",
        help="credalgnn datasets lists them; or a packed graph, a file of Graph.save, a folder with tables, "
        "package.module:name. A change may follow: chameleon+label_noise=0.2, csbm+homophily=0.5",
    )  # fmt: skip
    parser.add_argument("--ood-classes", nargs="*", metavar="CLASS",
                        help="left out, by number or name; default: those that a data set names")  # fmt: skip
    parser.add_argument("--set", nargs="+", action="extend", default=[], metavar="NAME=VALUE", dest="overrides",
                        help="hyper-parameters: lr=0.01, or credal-lj.delta=0.5 for one method")  # fmt: skip


def add_place_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say where to work, how long, and on which machines.

    Args:
        parser: Of the command.
    """
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--jobs", type=count, metavar="N", help="processes on this machine (default: one a core)")
    add_engine_options(parser)
    parser.add_argument("--time-limit", type=_duration, metavar="TIME", help="stop after 90s, 30m, 1h30m; resumable")
    parser.add_argument("--mirror", type=Path, metavar="DIR", help="raw files in PyG's layout, looked at first")
    parser.add_argument("--data-root", type=Path, metavar="DIR", help="where graphs are kept once read")


def add_engine_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say whether to work on this machine or on a cluster.

    Args:
        parser: Of the command.
    """
    parser.add_argument("--engine", choices=("local", "ray"), default="local", help="ray: an existing cluster")
    parser.add_argument("--address", metavar="HOST:PORT", help="of the Ray cluster (default: the one Ray finds)")


def count(text: str) -> int:
    """A number of seeds, trials or processes.

    Args:
        text: As it was typed.
    """
    digits = text.lstrip("0")
    if not re.fullmatch(r"[0-9]+", text) or not digits:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 1 or more")
    if len(digits) > len(str(MOST)) or int(digits) > MOST:
        raise argparse.ArgumentTypeError(f"{text:.20} is too many: at most {MOST:,}")
    return int(digits)


def _duration(text: str) -> float:
    if re.fullmatch(r"[0-9]{1,9}", text):
        return float(text)
    parts = re.fullmatch(r"(?:([0-9]{1,9})h)?(?:([0-9]{1,9})m)?(?:([0-9]{1,9})s)?", text)
    if not text or parts is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time: say 90s, 30m or 1h30m")
    hours, minutes, seconds = (int(part or 0) for part in parts.groups())
    return float(3600 * hours + 60 * minutes + seconds)


def settings_of(overrides: Sequence[str]) -> dict[str, Any]:
    """What ``--set`` says, by name.

    Args:
        overrides: The arguments of ``--set``.
    """
    settings: dict[str, Any] = {}
    for text in overrides:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UserError(f"--set {text:.100}: NAME=VALUE is wanted, as in lr=0.01")
        if len(text) > LONGEST:
            raise UserError(f"--set {text:.40}...: at most {LONGEST:,} characters, not {len(text):,}")
        settings[name] = _value(value)
    return settings


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):  # the latter two: thousands of brackets
        return text


def classes_of(args: argparse.Namespace) -> list[int | str] | None:
    """The classes that ``--ood-classes`` names: numbers, or names.

    Args:
        args: Of the command.
    """
    if args.ood_classes is None:
        return None
    return [int(text) if text.lstrip("-").isdigit() else text for text in args.ood_classes]


def check_setting(args: argparse.Namespace) -> None:
    """Refuse a setting that the protocol does not have.

    Args:
        args: Of the command.
    """
    if args.setting == "inductive" and args.protocol == "paper":
        raise UserError("--setting inductive: the paper's protocol is transductive; leave out --protocol paper")


def work_options(args: argparse.Namespace) -> dict[str, Any]:
    """Where to work, how long and on which machines; options that contradict each other are refused.

    Args:
        args: Of the command.
    """
    if args.engine == "ray" and args.jobs is not None:
        raise UserError("--jobs is for this machine; a Ray cluster has its own number of processors")
    if args.engine == "local" and args.address is not None:
        raise UserError("--address is of a Ray cluster: add --engine ray")
    names = ("jobs", "engine", "address", "time_limit", "mirror", "data_root")
    return {name: getattr(args, name) for name in names}


def need(package: str, what: str, otherwise: str = "") -> None:
    """Refuse to begin without an optional package.

    Args:
        package: Its name.
        what: The command or option that needs it.
        otherwise: What else could be done.
    """
    from importlib.util import find_spec

    if find_spec(package) is None:
        raise UserError(f"{what} needs {package}: {install_hint(package)}{otherwise}")


def in_flags(message: str) -> str:
    """Return a message of a Python function with `name` of an argument, or name=value, as the flag of a command."""
    flags = {"settings": "--set"}
    message = re.sub(r"`([a-z_]+)`", lambda name: flags.get(name[1], "--" + name[1].replace("_", "-")), message)
    return re.sub(r"\b([a-z_]+)='([a-z]+)'", lambda pair: f"--{pair[1].replace('_', '-')} {pair[2]}", message)


@contextmanager
def user_errors(hint: str = AGAIN) -> Iterator[None]:
    """Errors that a person can mend, as one line.

    Args:
        hint: What is left and what to do, after an error of the system such as a full disk.
    """
    from ..experiments.engines import EngineError
    from ..graphs import GraphError
    from ..methods import MethodError
    from ..nn import TrainingError
    from ..records.folder import FolderVanished
    from ..records.schema import RecordError

    try:
        yield
    except (GraphError, MethodError, TrainingError, RecordError, EngineError) as error:
        raise UserError(in_flags(str(error))) from None
    except FolderVanished as error:
        raise WorkLost(str(error)) from None
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        closed = error.filename and error.errno in (errno.EROFS, errno.EACCES, errno.EPERM)
        raise UserError(f"{place}{error.strerror or error}; {'choose another place' if closed else hint}") from None


def add_memory(parser: argparse.ArgumentParser, default: str = "what is available") -> None:
    """Add the option that says how much memory may be used.

    Args:
        parser: Of the command.
        default: What it is, in words.
    """
    parser.add_argument("--memory", type=_memory, metavar="SIZE", help=f"4GiB, 500MB (default: {default})")


def _memory(text: str) -> int:
    try:
        return parse_memory(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
