"""Errors that a user can act on, and their translation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class CredalError(Exception):
    """An error that a user can act on; the message says what is wrong, where, and what to do.

    Messages name Python arguments as `name` or name='value'; commands show flags instead.
    """

    exit_code = 2  # of a command


class ArgumentError(CredalError, ValueError):
    """An argument has a value that is not allowed."""


class translated:
    """Context that raises errors of some kinds as another one, without the first in the traceback.

    Args:
        kinds: The kinds of errors.
        make: Makes the error that is raised of the one that was caught.
    """

    def __init__(self, kinds: type[BaseException] | tuple[type[BaseException], ...], make: Callable[[Any], Exception]):
        self._kinds, self._make = kinds, make

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, self._kinds):
            raise self._make(error) from None
