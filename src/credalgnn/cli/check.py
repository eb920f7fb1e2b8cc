"""``credalgnn check``: whether what lies in a folder is still what was written."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ..runtime.texts import printable
from .common import need, user_errors
from .errors import UserError


def add_commands(commands: Any) -> None:
    """Add ``check``.

    Args:
        commands: The subparsers of the command line.
    """
    check = commands.add_parser(
        "check",
        help="verify results, a model, a saved method or cached graphs, by the checksums of their files",
        description="Verify everything in a folder of results, of a model (credalgnn fit), of a saved method or of "
        "cached graphs (--data-root), a packed graph, or the file of Graph.save, and list what is damaged, missing or "
        "foreign. Exit code 1 if there is any of it.",
    )
    check.add_argument("folder", type=Path, metavar="DIR")
    check.add_argument(
        "--repair",
        action="store_true",
        help="move what is damaged into DIR/damaged, so that the command that made it makes it again",
    )
    check.set_defaults(run=_check, stopped="nothing was lost, and the same command goes on")


def _check(args: argparse.Namespace) -> int:
    folder: Path = args.folder
    if not folder.exists():
        raise UserError(f"{folder}: no such folder")
    if any(folder.glob("**/tuning.journal")):
        need("optuna", "credalgnn check")
    with user_errors():
        from ..integrity import Check, NothingToCheck

        try:
            result = Check(folder)
        except NothingToCheck as error:
            raise UserError(error) from None
        for finding in result.findings:
            reason = f": {finding.reason}" if finding.reason else ""
            print(f"{finding.kind:8s} {_line(finding.path)}{_line(reason)}")
        moved = result.repair() if args.repair else []
    counts = {kind: sum(each.kind == kind for each in result.wrong) for kind in ("damaged", "missing", "foreign")}
    said = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count) or "all as they were written"
    print(f"{result.checked} files checked: {said}")
    if moved:
        files = "1 file" if len(moved) == 1 else f"{len(moved)} files"
        print(f"{files} moved into {_line(folder / 'damaged')}: the command that made them makes them again")
    elif counts["damaged"] and not args.repair:
        print(f"credalgnn check --repair {_line(folder)} puts them aside; the command that made them makes them again")
    return 1 if result.wrong else 0


def _line(text: object) -> str:
    """Return a text out of files, or their names, that a terminal shows in one line and does not obey."""
    return printable(str(text)).replace("\n", "\\n")
