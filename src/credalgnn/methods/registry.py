"""Methods by name: those of this package, installed plug-ins, and classes anywhere by their import path."""

from __future__ import annotations

import re
import sys
from functools import cache
from importlib.metadata import entry_points

from ..runtime.names import import_object, suggestion
from .base import Method
from .baselines import Degree, FeatureSum
from .coverage import CredalCoverage
from .credal import CredalDual, CredalFinal, CredalFrozen, CredalLJ
from .density import GEBM, JLDE, KNN, KNNLJ, Mahalanobis
from .ensembles import ClassicalEnsemble, CredalEnsemble, DropEdge, MCDropout
from .evidential import GPN, Evidential
from .network import Vanilla
from .posthoc import GRASP, Energy, GNNSafe, Odin
from .prediction import MethodError
from .random_set import RandomSet
from .temperature import CaGCN, Temperature

ENTRY_POINTS = "credalgnn.methods"  # the group in which a package announces its methods

METHODS: dict[str, type[Method]] = {
    kind.name: kind
    for kind in (
        CredalCoverage,
        Vanilla,
        CredalLJ,
        CredalFinal,
        CredalDual,
        CredalFrozen,
        ClassicalEnsemble,
        CredalEnsemble,
        MCDropout,
        DropEdge,
        Energy,
        Odin,
        Mahalanobis,
        KNN,
        GNNSafe,
        KNNLJ,
        Temperature,
        CaGCN,
        JLDE,
        GEBM,
        GRASP,
        GPN,
        Evidential,
        RandomSet,
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
        return check_declared(_imported(name), name)
    plugins = _plugins()
    if name in plugins:
        return check_declared(_imported(plugins[name]), name)
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


LONGEST = 200  # letters of an import path


def known_method(path: str, expected: type[Method] | None = None) -> type[Method]:
    """The class that a file names, without importing anything that the file alone asks for.

    Args:
        path: What ``method_path`` gave.
        expected: The class that the caller expects, if any.
    """
    if not isinstance(path, str) or len(path) > LONGEST:
        raise MethodError(f"{path!r:.60} is not the name of a method")
    if path in METHODS:
        return METHODS[path]
    if expected is not None and method_path(expected) == path:
        return expected
    module = path.partition(":")[0]
    if module not in sys.modules:  # a plug-in may announce its class by a shorter path than the class itself has
        package = module.partition(".")[0]
        for plugin in _plugins().values():
            if re.match(rf"{re.escape(package)}[.:]", plugin):
                _imported(plugin)
    if module in sys.modules:
        return check_declared(_imported(path), path)
    raise MethodError(
        f"the method {path} is not built in: import {module} first, or say you want it, method={path!r} (-m {path})"
    )


@cache
def _plugins() -> dict[str, str]:
    """Import paths of installed plug-ins by their names; built-in names cannot be taken."""
    return {entry.name: entry.value for entry in entry_points(group=ENTRY_POINTS) if entry.name not in METHODS}


def _imported(path: str) -> object:
    try:
        return import_object(path)
    except ImportError as error:
        raise MethodError(f"{path}: {error}") from None


def check_declared(kind: object, path: str) -> type[Method]:
    """A class from outside, refused unless it is a method that declares what it has to.

    Args:
        kind: What should be a method's class.
        path: Where it was found, for the message.
    """
    if not isinstance(kind, type) or not issubclass(kind, Method):
        raise MethodError(f"{path} is no class derived from credalgnn.Method")
    if missing := sorted(kind.__abstractmethods__):
        raise MethodError(f"{path} does not override {', '.join(missing)}; docs/extend.md shows a whole method")
    name, scores = getattr(kind, "name", None), getattr(kind, "score_names", None)
    if not isinstance(name, str) or not re.fullmatch(r"\w[\w.-]*", name) or name == "all":
        raise MethodError(f"{path} needs a name of letters, digits, '.', '_' and '-', as in name = \"mine\"")
    if not isinstance(scores, tuple) or not scores or not all(isinstance(score, str) for score in scores):
        raise MethodError(f'{path} must declare its scores, the headline first, as in score_names = ("entropy",)')
    if METHODS.get(name, kind) is not kind:
        raise MethodError(f"{path}: the name {name!r} is that of a built-in method; give it another one")
    return kind
