"""Which methods are run, and what is set for each: names, classes and templates become plain values."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ..methods import METHODS, Method, MethodError, check_declared, find_method, method_path
from ..runtime.names import suggestion
from .plan import options

MethodLike: TypeAlias = str | type[Method] | Method


class SettingError(MethodError):
    """A hyper-parameter is set that no method has."""


@dataclass(frozen=True)
class Choice:
    """A method to run.

    Attributes:
        path: What ``find_method`` finds it by.
        config: Hyper-parameters that are set.
        components: Those that are set of the models it stands on.
    """

    path: str
    config: dict[str, Any] = field(default_factory=dict)
    components: dict[str, Any] = field(default_factory=dict)

    @property
    def kind(self) -> type[Method]:
        """The method's class."""
        return find_method(self.path)


def choose(methods: Sequence[MethodLike], settings: Mapping[str, Any], with_baselines: bool) -> list[Choice]:
    """What to run, each once, with what is set for it.

    Args:
        methods: Names, import paths, classes, or templates whose hyper-parameters are used; ``"all"`` for the built-in.
        settings: Hyper-parameters by name, or as ``credal-lj.delta`` for one method.
        with_baselines: Add the built-in baselines that need no model.
    """
    listed: list[MethodLike] = []
    for each in methods:
        listed += METHODS.values() if each == "all" else [each]
    if with_baselines:
        listed += [kind for kind in METHODS.values() if kind.is_baseline]
    chosen: dict[str, Choice] = {}
    for each in listed:
        made = _template(each)
        if chosen.setdefault(made.path, made) != made:
            raise MethodError(f"{made.path} stands twice among the methods, with different hyper-parameters")
    kinds = [find_method(path) for path in chosen]
    names = [kind.name for kind in kinds]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise MethodError(f"two methods are called {twice!r}: give one of them another name")
    for path, made in chosen.items():
        config, components = split_settings(settings, find_method(path), kinds)
        chosen[path] = Choice(path, {**made.config, **config}, {**made.components, **components})
    return list(chosen.values())


def _template(method: MethodLike) -> Choice:
    if isinstance(method, str):
        return Choice(method_path(find_method(method)))
    if isinstance(method, type):
        return Choice(_importable(method))
    if not isinstance(method, Method):
        raise MethodError(f"a method's name, class or template is wanted, not {type(method).__name__}")
    return Choice(_importable(type(method)), *parameters_of(method))


def parameters_of(method: Method) -> tuple[dict[str, Any], dict[str, Any]]:
    """The hyper-parameters of a template, and those of the models it stands on, without any seeds.

    Args:
        method: The template.
    """
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
            raise MethodError(
                f"{method.name}: its members differ in more than their seeds; a benchmark cannot repeat that"
            )
        components = configs[0]
    return config, components


def _importable(kind: type) -> str:
    """The path of a class, refused where the processes that do the work could not import it."""
    path = method_path(check_declared(kind, kind.__qualname__))
    interactive = kind.__module__ == "__main__" and not hasattr(sys.modules["__main__"], "__file__")
    if interactive or "<locals>" in path:
        raise MethodError(
            f"{kind.__name__} cannot be imported by the processes that do the work: define it at the top level of a "
            "file"
        )
    return path


def split_settings(
    settings: Mapping[str, Any], method: type[Method], methods: Sequence[type[Method]]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What is set for a method, and for the models it stands on; refused if no method knows a name.

    Args:
        settings: Hyper-parameters by name, or as ``credal-lj.delta`` for one method.
        method: The method.
        methods: All methods that are run.
    """
    own: dict[str, Any] = {}
    components: dict[str, Any] = {}
    by_name = {kind.name: kind for kind in methods}
    for key, value in settings.items():
        of, _, name = key.rpartition(".")
        if of and of not in by_name:
            raise SettingError(f"{key}={value}: {of!r} is not among the methods; {suggestion(of, by_name)}")
        known = sorted({each for kind in ([by_name[of]] if of else methods) for each in _reach(kind)})
        if name not in known:
            whose = of or "no chosen method"
            raise SettingError(f"{key}={value}: {whose} has {'no ' if of else ''}{name!r}; {suggestion(name, known)}")
        if of and of != method.name:
            continue
        if name in options(method):
            own[name] = value
        elif method.components is not None and name in options(method.components.kind):
            components[name] = value
    return own, components


def _reach(kind: type[Method]) -> set[str]:
    """The hyper-parameters of a method and of what it stands on."""
    return {*options(kind), *(options(kind.components.kind) if kind.components else ())}
