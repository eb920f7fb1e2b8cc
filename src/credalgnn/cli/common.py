"""Values of options, and errors of functions as one line that names flags."""

from __future__ import annotations

import argparse
import ast
import errno
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from ..runtime.errors import CredalError, translated
from ..runtime.files import check_writable
from ..runtime.memory import parse_memory
from ..runtime.names import install_hint
from ..runtime.texts import one_line
from ..runtime.warn import collected_warnings

LONGEST = 1_000  # characters of a hyper-parameter: longer texts are no values, and slow to parse
MOST = 10_000  # seeds, trials or processes: more is a slip of the finger, and slow to plan
KEPT = "finished runs are kept, and the same command goes on"
AGAIN = "mend that, and give the same command again"
FLAGS = {"settings": "--set"}


class UserError(Exception):
    """An error that the user can mend: one line on stderr and an exit code."""

    def __init__(self, message: object, code: int = 2) -> None:
        super().__init__(str(message))
        self.code = code


def flag_of(name: str) -> str:
    """Return the flag of an argument."""
    return FLAGS.get(name, "--" + name.replace("_", "-"))


def in_flags(message: str) -> str:
    """Return a message of a Python function with flags for its arguments: `name`, name='value' and name=True."""
    message = re.sub(r"`([a-z_]+)`", lambda match: flag_of(match[1]), message)
    message = re.sub(r"\b([a-z_]+)='([\w.-]+)'", lambda match: f"{flag_of(match[1])} {match[2]}", message)
    message = re.sub(r"\b([a-z_]+)=True\b", lambda match: flag_of(match[1]), message).replace(
        "label=None", "--no-labels"
    )
    return message.replace("the same call", "the same command")


@contextmanager
def user_errors(hint: str = AGAIN) -> Iterator[None]:
    """Turn errors that the user can mend into one line; `hint` follows errors of the system such as a full disk."""
    try:
        yield
    except CredalError as error:
        raise UserError(in_flags(str(error)), error.exit_code) from None
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        closed = error.filename and error.errno in (errno.EROFS, errno.EACCES, errno.EPERM)
        raise UserError(f"{place}{error.strerror or error}; {'choose another place' if closed else hint}") from None


def warnings_as_lines() -> AbstractContextManager[list[str]]:
    """Show this package's warnings as lines on stderr, each once, without their place in the code."""
    return collected_warnings(lambda message: print(f"! {one_line(in_flags(message))}", file=sys.stderr))


def check_output(out: Path, *inputs: Path | None) -> None:
    """Refuse a file of results that cannot be written, or that is also read."""
    with translated(
        OSError, lambda error: UserError(f"--out {out}: cannot be written ({error.strerror}); name another file")
    ):
        check_writable(out)
    if any(path is not None and os.path.realpath(path) == os.path.realpath(out) for path in inputs):
        raise UserError(f"--out {out}: the result would overwrite the input; name another file")


def need(package: str, user: str, otherwise: str = "") -> None:
    """Refuse to begin without an optional package that a command or option uses."""
    from importlib.util import find_spec

    if find_spec(package) is None:
        raise UserError(f"{user} needs {package}: {install_hint(package)}{otherwise}")


def count(text: str) -> int:
    """A number of seeds, trials or processes."""
    digits = text.lstrip("0")
    if not re.fullmatch(r"[0-9]+", text) or not digits:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 1 or more")
    if len(digits) > len(str(MOST)) or int(digits) > MOST:
        raise argparse.ArgumentTypeError(f"{text:.20} is too many: at most {MOST:,}")
    return int(digits)


def duration(text: str) -> float:
    """Seconds of a time such as 90s, 30m or 1h30m."""
    if re.fullmatch(r"[0-9]{1,9}", text):
        return float(text)
    parts = re.fullmatch(r"(?:([0-9]{1,9})h)?(?:([0-9]{1,9})m)?(?:([0-9]{1,9})s)?", text)
    if not text or parts is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time: say 90s, 30m or 1h30m")
    hours, minutes, seconds = (int(part or 0) for part in parts.groups())
    return float(3600 * hours + 60 * minutes + seconds)


def rate(text: str) -> float:
    """A rate between 0 and 1."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 < value < 1.0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a rate between 0 and 1: 0.05 is one in twenty")
    return value


def memory_size(text: str) -> int:
    """Bytes of a size such as 4GiB or 500MB."""
    with translated(ValueError, lambda error: argparse.ArgumentTypeError(str(error))):
        return parse_memory(text)


def class_name(text: str) -> int | str:
    """A class by number or name."""
    return int(text) if text.lstrip("-").isdigit() else text


def settings_of(texts: Sequence[str]) -> dict[str, Any]:
    """Return the hyper-parameters of ``--set`` by name."""
    settings: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UserError(f"--set {text:.100}: expected NAME=VALUE, as in lr=0.01")
        if len(text) > LONGEST:
            raise UserError(f"--set {text:.40}...: at most {LONGEST:,} characters, not {len(text):,}")
        settings[name] = _value(value)
    return settings


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):  # the latter two: thousands of brackets
        return text
