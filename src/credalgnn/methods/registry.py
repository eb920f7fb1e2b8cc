"""Methods by name, and the hyper-parameters set for them."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from importlib.metadata import entry_points
from typing import Any, TypeAlias

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
from .training_data import EvalProtocol

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
    """Return the class of a method.

    Args:
        name: Name of a built-in method or of an installed plug-in, or an import path, ``package.module:Class``.
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
    """Return the path that ``find_method`` takes: the name of a built-in class, else the import path.

    Args:
        kind: A method's class.
    """
    if METHODS.get(kind.name) is kind:
        return kind.name
    return f"{kind.__module__}:{kind.__qualname__}"


LONGEST = 200  # characters of an import path


def known_method(path: str, expected: type[Method] | None = None) -> type[Method]:
    """Return the class that a file names by ``method_path``, without importing anything for the file alone.

    Args:
        path: Path in the file.
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
        f"the method {path} is not built in: import {module} first, or load it with method={path!r} (-m {path})"
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
    """Return a class from outside, if it is a method with all declarations.

    Args:
        kind: The class.
        path: Its path, for the message.
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


MethodLike: TypeAlias = str | type[Method] | Method


@dataclass(frozen=True)
class Choice:
    """A selected method: what `find_method` finds it by, and the hyper-parameters set for it and its components."""

    path: str
    config: dict[str, Any] = field(default_factory=dict)
    components: dict[str, Any] = field(default_factory=dict)

    @property
    def kind(self) -> type[Method]:
        """The method's class."""
        return find_method(self.path)


def choose(methods: Sequence[MethodLike], settings: Mapping[str, Any], with_baselines: bool) -> list[Choice]:
    """Resolve methods and settings, each method once.

    Args:
        methods: Names, import paths, classes, or templates whose hyper-parameters are used; ``"all"`` for the built-in.
        settings: Hyper-parameters by name, or as ``credal-lj.delta`` for one method.
        with_baselines: Add the built-in baselines that need no model.
    """
    everything: list[MethodLike] = []
    for each in methods:
        everything += METHODS.values() if each == "all" else [each]
    if with_baselines:
        everything += [kind for kind in METHODS.values() if kind.is_baseline]
    chosen: dict[str, Choice] = {}
    for each in everything:
        choice = _template(each)
        if chosen.setdefault(choice.path, choice) != choice:
            raise MethodError(f"{choice.path} is twice among the `methods`, with different hyper-parameters")
    kinds = [find_method(path) for path in chosen]
    names = [kind.name for kind in kinds]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise MethodError(f"two methods are called {twice!r}: rename one of them")
    for path, choice in chosen.items():
        config, components = split_settings(settings, find_method(path), kinds)
        chosen[path] = Choice(path, {**choice.config, **config}, {**choice.components, **components})
    return list(chosen.values())


def _template(method: MethodLike) -> Choice:
    if isinstance(method, str):
        return Choice(method_path(find_method(method)))
    if isinstance(method, type):
        return Choice(_importable(method))
    if not isinstance(method, Method):
        raise MethodError(f"a method must be a name, a class or a template, not {type(method).__name__}")
    return Choice(_importable(type(method)), *parameters_of(method))


def parameters_of(method: Method) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the hyper-parameters of a template and of its components, without seeds."""
    config, components = method.get_params(deep=False), {}
    config.pop("seed", None)
    declared = method.components
    if declared is not None and (below := config.pop(declared.parameter)) is not None:
        models = below if declared.size else [below]
        if any(type(model) is not declared.kind for model in models):
            raise MethodError(f"{method.name}: a benchmark can share {declared.kind.name} below it, and no other model")
        configs = [
            {name: value for name, value in model.get_params(deep=False).items() if name != "seed"} for model in models
        ]
        if any(each != configs[0] for each in configs):
            raise MethodError(f"{method.name}: its members differ in more than seeds, which a benchmark cannot repeat")
        components = configs[0]
    return config, components


def _importable(kind: type) -> str:
    """The import path of a class; worker processes must be able to import it."""
    path = method_path(check_declared(kind, kind.__qualname__))
    interactive = kind.__module__ == "__main__" and not hasattr(sys.modules["__main__"], "__file__")
    if interactive or "<locals>" in path:
        raise MethodError(
            f"{kind.__name__} cannot be imported by worker processes: define it at the top level of a file"
        )
    return path


def split_settings(
    settings: Mapping[str, Any], method: type[Method], methods: Sequence[type[Method]]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the settings of a method and of its components; a name that none of `methods` has is refused."""
    config: dict[str, Any] = {}
    components: dict[str, Any] = {}
    by_name = {kind.name: kind for kind in methods}
    for key, value in settings.items():
        prefix, _, name = key.rpartition(".")
        if prefix and prefix not in by_name:
            raise MethodError(
                f"`settings` {key}={value}: {prefix!r} is not among the methods; {suggestion(prefix, by_name)}"
            )
        names = sorted({each for kind in ([by_name[prefix]] if prefix else methods) for each in _all_options(kind)})
        if name not in names:
            subject = f"{prefix} has no" if prefix else "no chosen method has"
            raise MethodError(f"`settings` {key}={value}: {subject} {name!r}; {suggestion(name, names)}")
        if prefix and prefix != method.name:
            continue
        if name in options(method):
            config[name] = value
        elif method.components is not None and name in options(method.components.kind):
            components[name] = value
    return config, components


def _all_options(kind: type[Method]) -> set[str]:
    return {*options(kind), *(options(kind.components.kind) if kind.components else ())}


def options(kind: type[Method]) -> dict[str, Any]:
    """Return a method's hyper-parameters with their defaults, without its seed and components."""
    left_out = ("seed", kind.components.parameter if kind.components else None)
    defaults: dict[str, Any] = {}
    for each in fields(kind):
        if each.name in left_out:
            continue
        if each.default is MISSING and each.default_factory is MISSING:
            raise MethodError(f"{kind.name}: hyper-parameter {each.name!r} needs a default")
        defaults[each.name] = each.default if each.default_factory is MISSING else each.default_factory()
    return defaults


def complete(kind: type[Method], settings: Mapping[str, Any], protocol: EvalProtocol) -> dict[str, Any]:
    """Return all hyper-parameters of a method, checked: the settings, else the protocol's defaults."""
    config = {**options(kind), **kind.protocol_defaults.get(protocol, {})}
    unknown = [name for name in settings if name not in config]
    if unknown:
        raise MethodError(f"{kind.name} has no hyper-parameter {unknown[0]!r}; {suggestion(unknown[0], config)}")
    config.update(settings)
    if config.get("monitor") == "ood_auroc" and protocol == "sealed":
        raise MethodError("monitor='ood_auroc' reads OOD validation nodes, which protocol='sealed' forbids")
    checked = kind(**config)
    return {name: getattr(checked, name) for name in config}
