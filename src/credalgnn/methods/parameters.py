"""Constructor parameters as in scikit-learn: constraints, `get_params`, `set_params`, `clone`, search spaces."""

from __future__ import annotations

import math
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, fields
from functools import cache
from inspect import cleandoc
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Any, ClassVar, Self, TypeAlias, Union, cast, get_args, get_origin, get_type_hints

from .prediction import MethodError

IF_SET = "recorded if set"  # in the metadata of a field: while it is None, records of benchmarks leave it out
LARGEST = 1_000_000  # layers, units, epochs, neighbours: more is a slip, or meant to take all memory
_PLAIN: dict[Any, tuple[type, str]] = {
    int: (Integral, "a whole number"),
    float: (Real, "a number"),
    bool: (bool, "True or False"),
}


@dataclass(frozen=True)
class Uniform:
    """Any number between two, in a search space.

    Args:
        low: The smallest.
        high: The largest.
        log: Drawn evenly in its logarithm, not in itself.
    """

    low: float
    high: float
    log: bool = False

    def __str__(self) -> str:
        return f"{'log ' if self.log else ''}U({self.low:g}, {self.high:g})"


Choices: TypeAlias = tuple[Any, ...]
Space: TypeAlias = Mapping[str, Uniform | Choices]


@dataclass(frozen=True)
class Interval:
    """Constraint: a finite number within bounds.

    Args:
        low: Lower bound.
        high: Upper bound; None: any finite number.
        above: Exclude the lower bound.
        below: Exclude the upper bound.
    """

    low: float
    high: float | None = None
    above: bool = False
    below: bool = False

    def _check(self, name: str, value: Any) -> None:
        """Refuse a value outside."""
        high = math.inf if self.high is None else self.high
        low_fits = value > self.low if self.above else value >= self.low
        high_fits = value < high if self.below or high == math.inf else value <= high
        if not (low_fits and high_fits):
            raise MethodError(f"{name} must be {self}, not {value}")

    def __str__(self) -> str:
        if self.high is not None and not (self.above or self.below):
            return f"between {self.low} and {self.high}"
        text = f"above {self.low}" if self.above else f"at least {self.low}"
        if self.high is None:
            return text
        return f"{text} and {'below' if self.below else 'at most'} {self.high}"


class Options:
    """Constraint: one of some values.

    Args:
        *values: The values.
    """

    def __init__(self, *values: str) -> None:
        self.values = values

    def _check(self, name: str, value: Any) -> None:
        """Refuse any other value."""
        if value not in self.values:
            raise MethodError(f"unknown {name} {value!r:.60}: choose {', '.join(self.values)}")


Constraint: TypeAlias = Interval | Options
AT_LEAST_0, AT_LEAST_1, ABOVE_0 = Interval(0), Interval(1), Interval(0, above=True)
FRACTION = Interval(0, 1)
SEED = Interval(0, 2**32 - 1)


class Parameters:
    """Dataclass whose fields are hyper-parameters; methods among them have parameters, too.

    A parameter is documented where its field is: docstrings of subclasses are completed with what they inherit.

    Attributes:
        constraints: Constraints of fields by name; subclasses inherit those of their bases.
    """

    constraints: ClassVar[Mapping[str, Constraint]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        text, entries = _documented(cls.__dict__.get("__doc__"))
        inherited: dict[str, str] = {}
        constraints: dict[str, Constraint] = {}
        for base in reversed(cls.__mro__):
            constraints.update(base.__dict__.get("constraints", {}))
            if base is not cls and issubclass(base, Parameters):
                inherited.update(_documented(base.__dict__.get("__doc__"))[1])
        cls.constraints = constraints
        entries = {**inherited, **entries}
        if text and entries:
            cls.__doc__ = "\n".join([text, "", "Args:", *(f"    {name}: {entries[name]}" for name in entries)])

    def __post_init__(self) -> None:
        self._check_all()

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return all hyper-parameters by name.

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
        """Change hyper-parameters, all of them or, where one is refused, none; they take effect with the next ``fit``.

        Args:
            **params: New values by name, or as ``model__lr`` for a method that is a parameter.
        """
        values, nested = self._accepted(params)
        for name, inner in nested.items():
            values[name].set_params(**inner)
        self.__dict__.update(values)
        return self

    def _accepted(self, params: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
        """Return new values of all fields, and those of methods among them by field; nothing is changed."""
        trial, nested = copy(self), dict[str, dict[str, Any]]()
        names = {field.name for field in fields(self)}  # type: ignore[arg-type]
        for key, value in params.items():
            name, is_nested, inner = key.partition("__")
            if name not in names or (is_nested and not isinstance(params.get(name, getattr(self, name)), Parameters)):
                raise MethodError(f"{type(self).__name__} has no parameter {key!r}; it has {', '.join(sorted(names))}")
            if is_nested:
                nested.setdefault(name, {})[inner] = value
            else:
                setattr(trial, name, value)
        for name, values in nested.items():
            getattr(trial, name)._accepted(values)
        trial._check_all()
        accepted = {name: getattr(trial, name) for name in names}
        for key, value in params.items():
            if isinstance(value, Real) and key in names and accepted[key] != value:
                raise MethodError(f"{key}={value!r} has no effect: other parameters make it {accepted[key]!r}")
        return accepted, nested

    def clone(self) -> Self:
        """Return a new, unfitted one with the same hyper-parameters; methods among them are cloned as well."""
        return type(self)(**{name: _cloned(value) for name, value in self.get_params(deep=False).items()})

    def __sklearn_clone__(self) -> Self:
        return self.clone()

    def _check_all(self) -> None:
        """Check types and constraints, then what the class itself checks."""
        self._check_types()
        for name, constraint in self.constraints.items():
            if (value := getattr(self, name)) is not None:
                constraint._check(name, value)
        self._check()

    def _check(self) -> None:
        """Refuse hyper-parameters that cannot work, where `constraints` cannot say it."""

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


def has_seed(kind: type[Parameters]) -> bool:
    """Return whether runs with several seeds differ: whether there is a hyper-parameter ``seed``."""
    return any(field.name == "seed" for field in fields(kind))  # type: ignore[arg-type]


def _documented(doc: str | None) -> tuple[str, dict[str, str]]:
    """Split a docstring into its text without the section "Args", and the entries of that by name."""
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
    """Return the fields that hold whole numbers, numbers or truth values, and whether None is allowed, too."""
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
