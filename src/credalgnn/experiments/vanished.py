"""An experiment's folder that is deleted while somebody works in it: an error, and not a smaller result."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


class FolderVanished(RuntimeError):
    """The folder of an experiment, or a part of it, was deleted during the work."""


@contextmanager
def guarded(folder: Path, *names: str) -> Iterator[Callable[[], None]]:
    """Work in a folder of which some files must stay where they are.

    Yields a function that raises ``FolderVanished`` if one is missing, or was made again and begins otherwise. It is
    also called at the end, and for every error on the way: whatever a missing file leads to, the message is about its
    cause.

    Args:
        folder: The experiment's folder.
        names: Files below it that are there, and that nobody changes but by writing to their end.
    """

    def beginning(name: str) -> bytes | None:
        try:
            with (folder / name).open("rb") as file:
                return file.read(256)
        except FileNotFoundError:
            return None

    before = {name: beginning(name) or b"" for name in names}

    def check() -> None:
        now = {name: beginning(name) for name in names}
        missing = [name for name, text in now.items() if text is None or not text.startswith(before[name])]
        if missing:
            raise FolderVanished(
                f"{folder} vanished during the work, or a part of it did ({missing[0]} is gone): remove what is "
                "left of it, and the same command begins again"
            )

    try:
        yield check
    except Exception:
        check()
        raise
    check()
