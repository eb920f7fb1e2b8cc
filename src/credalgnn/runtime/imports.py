"""Objects by their import path, ``package.module:name``, wherever they are."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from .names import suggestion

EXTRAS = {
    "faiss": "large", "matplotlib": "plot", "mpltern": "plot", "optuna": "bench", "pyarrow": "tables",
    "pydantic": "ray", "ray": "ray",
}  # fmt: skip


def install_hint(package: str, extra: str | None = None) -> str:
    """Return how to install a missing optional package; credalgnn is on no package index.

    Args:
        package: Import name of the package.
        extra: Extra of ``pyproject.toml`` that has it, where it is in several.
    """
    return f"pip install -e '.[{extra or EXTRAS[package]}]' in the credalgnn checkout"


def import_object(path: str) -> Any:
    """What an import path leads to; an ``ImportError`` says in one line what is missing.

    Modules in the working folder are found, too: a command that was installed does not look there by itself.

    Args:
        path: ``package.module:name``; the name may have dots.
    """
    module, _, name = path.partition(":")
    here = str(Path.cwd())
    if "" not in sys.path and here not in sys.path:
        sys.path.append(here)  # last, so that nothing there hides what is installed
    try:
        value: Any = import_module(module)
    except ImportError as error:
        raise ImportError(f"{module} cannot be imported ({error}): is it installed, or in this folder?") from None
    except Exception as error:  # whatever a module from outside does when it is imported
        raise ImportError(f"{module} cannot be imported ({type(error).__name__}: {error})") from error
    for part in name.split("."):
        if not hasattr(value, part):
            public = [each for each in vars(value) if not each.startswith("_")]
            raise ImportError(f"{module} has no {name!r}: {suggestion(part, public)}")
        value = getattr(value, part)
    return value
