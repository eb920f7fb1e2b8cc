"""Selection of methods by name, class or template, and the hyper-parameters set for each."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, TypeAlias

from ..runtime.names import suggestion
from .base import Method
from .prediction import MethodError
from .registry import METHODS, check_declared, find_method, method_path
from .training_data import EvalProtocol

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
