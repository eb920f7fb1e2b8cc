"""What a method declares of itself, checked without fitting it."""

from __future__ import annotations

import inspect
from dataclasses import InitVar, fields
from typing import Any, NoReturn, get_args

from ..bench.plan import complete, options
from ..graphs import Dataset, Task
from ..methods import (
    Components,
    Method,
    MethodError,
    Uniform,
    check_declared,
)
from ..methods.given import Protocol
from ..metrics import METRICS

DATACLASS = "decorate the class with @dataclass(kw_only=True, eq=False)"
PROTOCOLS: tuple[Protocol, ...] = get_args(Protocol)


def fail(what: type | Dataset, problem: str, remedy: str) -> NoReturn:
    name = what.__qualname__ if isinstance(what, type) else what.name
    raise AssertionError(f"{name}: {problem}: {remedy}")


def check_class(kind: type[Method]) -> None:
    """Whether hyper-parameters are the fields of a dataclass, and documented."""
    known = getattr(kind, "__dataclass_fields__", {})
    for base in kind.__mro__:
        if base is Method or not issubclass(base, Method):
            continue
        for name, hint in inspect.get_annotations(base).items():
            declared = "ClassVar" in str(hint) or isinstance(hint, InitVar)
            if name not in known and not declared:
                fail(kind, f"{name} is annotated, but is no hyper-parameter", DATACLASS)
    for name, parameter in inspect.signature(kind).parameters.items():
        if name not in known:
            fail(kind, f"its constructor takes {name!r}, which is no field", f"{DATACLASS} and write no __init__")
        if parameter.kind is not parameter.KEYWORD_ONLY:
            fail(kind, f"{name!r} can be given by its position", DATACLASS)
    if kind.__eq__ is not object.__eq__:
        fail(kind, "methods are compared by their values, so they cannot be hashed", DATACLASS)
    doc = kind.__dict__.get("__doc__") or ""
    if not doc or doc.startswith(f"{kind.__name__}("):  # what dataclass writes itself
        fail(
            kind, "has no docstring", "say what its scores mean, which are all higher where the method is less certain"
        )
    section = doc.partition("Args:")[2]
    for field in fields(kind):
        if f"\n    {field.name}: " not in section.replace("\n        ", "\n    "):
            fail(kind, f"hyper-parameter {field.name!r} is not documented", "add it to 'Args:' in the docstring")


def constructed(kind: type[Method]) -> Method:
    try:
        return kind()
    except (TypeError, MethodError) as error:
        fail(kind, f"cannot be constructed without arguments ({error})", "give every hyper-parameter a default")


def _same_value(one: Any, other: Any) -> bool:
    """Whether two hyper-parameters are equal; methods among them if theirs are."""
    if isinstance(one, Method):
        return type(one) is type(other) and _same_params(one.get_params(deep=False), other.get_params(deep=False))
    if isinstance(one, list | tuple):
        return type(one) is type(other) and len(one) == len(other) and all(map(_same_value, one, other))
    return one is other or bool(one == other)


def _same_params(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(_same_value(one[name], other[name]) for name in one)


def check_parameters(template: Method) -> None:
    from sklearn.base import clone

    kind, params = type(template), template.get_params(deep=False)
    for label, copy in (("clone()", template.clone()), ("sklearn.base.clone", clone(template))):
        if type(copy) is not kind or copy is template or copy.is_fitted:
            fail(kind, f"{label} does not make a new, unfitted one", "leave clone as it is")
        if not _same_params(copy.get_params(deep=False), params):
            fail(
                kind, f"{label} has other hyper-parameters", "keep them as they are given; what is derived is for _fit"
            )
    if not _same_params(template.clone().set_params(**params).get_params(deep=False), params):
        fail(kind, "set_params does not set what get_params gives", "leave both as they are")
    try:
        template.clone().set_params(no_such_parameter=1)
    except MethodError:
        return
    fail(kind, "set_params takes a hyper-parameter that does not exist", "leave it as it is")


def check_components(kind: type[Method]) -> None:
    declared = kind.components
    if declared is None:
        return
    names = {field.name: field for field in fields(kind)}
    if not isinstance(declared, Components):
        fail(kind, "components is of another type", 'declare them with Components("model", Vanilla)')
    if declared.parameter not in names or names[declared.parameter].default is not None:
        fail(kind, f"its components go to {declared.parameter!r}", "make that a field whose default is None")
    if declared.size is not None and not isinstance(options(kind).get(declared.size), int):
        fail(kind, f"the number of its components is {declared.size!r}", "make that a field, a whole number")
    check_declared(declared.kind, f"the components of {kind.__qualname__}")


def check_search(kind: type[Method], task: Task) -> None:
    defaults = options(kind)
    for protocol in PROTOCOLS:
        complete(kind, {}, protocol)
        if kind.objective(protocol) not in METRICS:
            fail(kind, f"objective {kind.objective(protocol)!r} is no metric", f"choose from {', '.join(METRICS)}")
    space = kind.space(len(task.split.train)) if kind.search_space else {}
    if set(space) - set(kind.search_space):
        fail(kind, "space() has names that search_space has not", "declare in search_space all that can be tuned")
    for name, values in space.items():
        if name not in defaults:
            fail(kind, f"search_space names {name!r}", f"choose from its hyper-parameters {', '.join(defaults)}")
        if isinstance(values, Uniform):
            tried: tuple[Any, ...] = (values.low, (values.low + values.high) / 2, values.high)
        elif isinstance(values, tuple) and values:
            tried = values
        else:
            fail(kind, f"search_space[{name!r}] is neither a Uniform nor a tuple", "write Uniform(0, 1) or (1, 2)")
        for value in tried:
            try:
                kind(**{**defaults, name: value})
            except (MethodError, TypeError, ValueError) as error:
                fail(kind, f"search_space has {name}={value!r}, which is refused ({error})", "leave it out")
