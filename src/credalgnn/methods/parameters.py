"""Hyper-parameters as scikit-learn's conventions have them: ``get_params``, ``set_params``, and ``clone`` works."""

from __future__ import annotations

from copy import copy
from dataclasses import fields
from functools import cache
from inspect import cleandoc
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Any, Self, Union, cast, get_args, get_origin, get_type_hints

from .prediction import MethodError

IF_SET = "recorded if set"  # in the metadata of a field: while it is None, records of benchmarks leave it out
LARGEST = 1_000_000  # layers, units, epochs, neighbours: more is a slip, or meant to take all memory
_PLAIN: dict[Any, tuple[type, str]] = {
    int: (Integral, "a whole number"),
    float: (Real, "a number"),
    bool: (bool, "True or False"),
}


class Parameters:
    """A dataclass whose fields are hyper-parameters; methods among them have parameters of their own.

    A parameter is documented where its field is: docstrings of subclasses are completed with what they inherit.
    """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        text, own = _documented(cls.__dict__.get("__doc__"))
        inherited: dict[str, str] = {}
        for base in reversed(cls.__mro__[1:]):
            if issubclass(base, Parameters):
                inherited.update(_documented(base.__dict__.get("__doc__"))[1])
        entries = {**inherited, **own}
        if text and entries:
            cls.__doc__ = "\n".join([text, "", "Args:", *(f"    {name}: {entries[name]}" for name in entries)])

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """All hyper-parameters by name.

        Args:
            deep: Those of methods among them, too, as ``model__lr``.
        """
        params = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        if deep:
            for name, value in list(params.items()):
                if isinstance(value, Parameters):
                    params.update({f"{name}__{key}": inner for key, inner in value.get_params().items()})
        return params

    def set_params(self, **params: Any) -> Self:
        """Change hyper-parameters; they take effect with the next ``fit``.

        Args:
            **params: New values by name, or as ``model__lr`` for a method that is a parameter.
        """
        known = {field.name for field in fields(self)}  # type: ignore[arg-type]
        for key in params:
            name, nested, _ = key.partition("__")
            if name not in known or (nested and not isinstance(getattr(self, name), Parameters)):
                raise MethodError(f"{type(self).__name__} has no parameter {key!r}; it has {', '.join(sorted(known))}")
        before = {name: getattr(self, name) for name in known}
        try:
            for key, value in params.items():
                name, nested, inner = key.partition("__")
                if nested:
                    getattr(self, name).set_params(**{inner: value})
                else:
                    setattr(self, name, value)
            self._check_types()
            self._check()
        except Exception:
            for name, value in before.items():
                setattr(self, name, value)
            raise
        return self

    def clone(self) -> Self:
        """A new one with the same hyper-parameters, not fitted; methods among them are cloned as well."""
        return type(self)(**{name: _cloned(value) for name, value in self.get_params(deep=False).items()})

    def __sklearn_clone__(self) -> Self:
        return self.clone()

    def _check(self) -> None:
        """Refuse hyper-parameters that cannot work."""

    def _check_types(self) -> None:
        """Refuse values of another type than a plain number's or truth value's field has; NumPy's become Python's."""
        for name, (plain, optional) in _plain_fields(type(self)).items():  # type: ignore[arg-type]
            value = getattr(self, name)
            if value is None and optional:
                continue
            accepted, description = _PLAIN[plain]
            if not isinstance(value, accepted) or (isinstance(value, bool) and plain is not bool):
                raise MethodError(f"{name} must be {description}, not {value!r:.60}")
            if plain is int and name != "seed" and cast(int, value) > LARGEST:
                raise MethodError(f"{name} must be at most {LARGEST:,}")
            try:
                setattr(self, name, plain(value))
            except OverflowError:
                raise MethodError(f"{name} is too large a number") from None


def _documented(doc: str | None) -> tuple[str, dict[str, str]]:
    """A docstring without its section "Args", and the entries of that by name."""
    text, _, section = cleandoc(doc or "").partition("\nArgs:\n")
    entries: dict[str, str] = {}
    name = ""
    for line in section.splitlines():
        begin, colon, rest = line.strip().partition(": ")
        if line.startswith("    ") and not line.startswith("     ") and colon:
            name, entries[begin] = begin, rest
        elif name:
            entries[name] += f"\n        {line.strip()}"
    return text.strip(), entries


def _cloned(value: Any) -> Any:
    if isinstance(value, Parameters):
        return value.clone()
    if isinstance(value, list | tuple):
        return type(value)(_cloned(item) for item in value)
    return copy(value)


@cache
def _plain_fields(kind: type) -> dict[str, tuple[type, bool]]:
    """The fields that hold whole numbers, numbers or truth values, and whether None is allowed, too."""
    try:
        hints = get_type_hints(kind)
    except (NameError, TypeError):  # an annotation that only a type checker can resolve
        hints = {}
    plain = {}
    for field in fields(kind):
        hint = hints.get(field.name, field.type)
        options = set(get_args(hint)) if get_origin(hint) in (Union, UnionType) else {hint}
        optional = NoneType in options or None in options
        (only, *others) = [*(options - {NoneType, None}), None]
        if only in _PLAIN and others == [None]:
            plain[field.name] = only, optional
    return plain
