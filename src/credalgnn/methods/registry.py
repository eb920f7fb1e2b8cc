"""Methods by name: those of this package, installed plug-ins, and classes anywhere by their import path."""

from __future__ import annotations

import sys
from functools import cache
from importlib.metadata import entry_points

from .._imports import import_object
from .._names import suggestion
from .base import Method
from .baselines import Degree, FeatureSum
from .coverage import CredalCoverage
from .credal import CredalFinal, CredalLJ
from .ensembles import ClassicalEnsemble, CredalEnsemble
from .network import Vanilla
from .posthoc import KNN, KNNLJ, Energy, GNNSafe, Mahalanobis, Odin
from .prediction import MethodError

ENTRY_POINTS = "credalgnn.methods"  # the group in which a package announces its methods

METHODS: dict[str, type[Method]] = {
    kind.name: kind
    for kind in (
        CredalCoverage,
        Vanilla,
        CredalLJ,
        CredalFinal,
        ClassicalEnsemble,
        CredalEnsemble,
        Energy,
        Odin,
        Mahalanobis,
        KNN,
        GNNSafe,
        KNNLJ,
        FeatureSum,
        Degree,
    )
}


def find_method(name: str) -> type[Method]:
    """The class of a method.

    Args:
        name: Of a built-in method or of an installed plug-in, or an import path, ``package.module:Class``.
    """
    if name in METHODS:
        return METHODS[name]
    if ":" in name:
        return _checked(_imported(name), name)
    plugins = _plugins()
    if name in plugins:
        return _checked(_imported(plugins[name]), name)
    hint = suggestion(name, [*METHODS, *plugins])
    raise MethodError(f"unknown method {name!r}: {hint}; or give an import path, package.module:Class")


def method_path(kind: type[Method]) -> str:
    """What ``find_method`` finds a class by: its name if it is built in, else its import path.

    Args:
        kind: A method's class.
    """
    if METHODS.get(kind.name) is kind:
        return kind.name
    return f"{kind.__module__}:{kind.__qualname__}"


def known_method(path: str, expected: type[Method] | None = None) -> type[Method]:
    """The class that a file names, without importing anything that the file alone asks for.

    Args:
        path: What ``method_path`` gave.
        expected: The class that the caller expects, if any.
    """
    if path in METHODS:
        return METHODS[path]
    if expected is not None and method_path(expected) == path:
        return expected
    module, _, name = path.partition(":")
    if module in sys.modules or path in _plugins().values():
        return _checked(_imported(path), path)
    raise MethodError(f"the method {path} is not built in: import {module} first, or load_method(.., method={name})")


@cache
def _plugins() -> dict[str, str]:
    """Import paths of installed plug-ins by their names; built-in names cannot be taken."""
    return {entry.name: entry.value for entry in entry_points(group=ENTRY_POINTS) if entry.name not in METHODS}


def _imported(path: str) -> object:
    try:
        return import_object(path)
    except ImportError as error:
        raise MethodError(f"{path}: {error}") from None


def _checked(found: object, path: str) -> type[Method]:
    if not isinstance(found, type) or not issubclass(found, Method):
        raise MethodError(f"{path} is no class derived from credalgnn.Method")
    if METHODS.get(getattr(found, "name", ""), found) is not found:
        raise MethodError(f"{path}: the name {found.name!r} is that of a built-in method; give it another one")
    return found
