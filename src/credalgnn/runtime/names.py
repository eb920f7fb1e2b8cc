"""Names: suggestions for unknown ones, objects by import path, and install hints for optional packages."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any

LONGEST = 100  # characters of a name that are compared: anything longer is no typing error
EXTRAS = {
    "faiss": "large", "matplotlib": "plot", "mpltern": "plot", "optuna": "bench", "pyarrow": "tables",
    "pydantic": "ray", "ray": "ray",
}  # fmt: skip


def suggestion(name: str, choices: Iterable[str]) -> str:
    """Return a remedy for an unknown name: ``did you mean credal-lj?``, or all choices if none is close."""
    by_lower = {choice.lower(): choice for choice in choices}
    near = get_close_matches(name.lower()[:LONGEST], by_lower, n=1, cutoff=0.6)
    if near:
        return f"did you mean {by_lower[near[0]]}?"
    return f"choose from {', '.join(by_lower.values())}" if by_lower else "there are none"


def install_hint(package: str, extra: str | None = None) -> str:
    """Return how to install a missing optional package; credalgnn is on no package index.

    Args:
        package: Import name of the package.
        extra: Extra of ``pyproject.toml`` that has it, where it is in several.
    """
    return f"pip install -e '.[{extra or EXTRAS[package]}]' in the credalgnn checkout"


def import_object(path: str) -> Any:
    """Return the object at an import path ``package.module:name``; the working folder is searched last.

    Raises:
        ImportError: The module or the object is missing, or the module fails; the message is one line.
    """
    module, _, name = path.partition(":")
    here = str(Path.cwd())
    if "" not in sys.path and here not in sys.path:
        sys.path.append(here)  # last, so that nothing there hides an installed package
    try:
        value: Any = import_module(module)
    except ImportError as error:
        raise ImportError(f"{module} cannot be imported ({error}): is it installed, or in this folder?") from None
    except Exception as error:  # a module from outside may raise anything
        raise ImportError(f"{module} cannot be imported ({type(error).__name__}: {error})") from error
    for part in name.split("."):
        if not hasattr(value, part):
            public = [each for each in vars(value) if not each.startswith("_")]
            raise ImportError(f"{module} has no {name!r}: {suggestion(part, public)}")
        value = getattr(value, part)
    return value
