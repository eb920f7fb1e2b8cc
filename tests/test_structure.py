"""Size, prose, names and imports of the package stay within the limits of benchmarks/structure.py."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).resolve().parents[1] / "benchmarks" / "structure.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("structure", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["structure"] = module  # dataclasses look for their module
    spec.loader.exec_module(module)
    return module


def above(script: ModuleType, values: dict[str, tuple[float, list[str]]]) -> list[str]:
    return [
        f"{name}: {value:g}, limit {script.LIMITS[name]:g} (python benchmarks/structure.py --list {name!r})"
        for name, (value, _) in values.items()
        if value > script.LIMITS[name]
    ]


def test_sources_stay_within_limits(script: ModuleType) -> None:
    values = script.measure(trace=False)
    assert not (lines := above(script, values)), "\n".join(lines)


def test_the_path_of_fit_stays_within_limits(script: ModuleType) -> None:
    values = script.measure_paths()
    assert set(values) | set(script.measure(trace=False)) == set(script.LIMITS)
    assert not (lines := above(script, values)), "\n".join(lines)


SMALL = '''\
"""What this is."""
import typing
from typing import TYPE_CHECKING
from . import other
if TYPE_CHECKING:
    from .third import x


class Large:
    """A class.

    With two paragraphs.
    """

    text = """
    not a docstring
    """

    def stranger(self, given):
        # a comment
        try:
            found = 1

        except ValueError:
            raise
        return found
'''


def test_what_is_counted(script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "small"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "one.py").write_text(SMALL)
    (package / "other.py").write_text("def f():\n    from .one import Large\n    return Large\n")
    (package / "third.py").write_text("from .one import Large\nx = Large\n")
    monkeypatch.setattr(script, "MANY_METHODS", 0)
    values = script.measure(package, trace=False)
    numbers = {name: value for name, (value, _) in values.items()}
    assert numbers["modules"] == 4
    assert numbers["code lines"] == 5 + 1 + 3 + 6 + 3 + 2
    assert numbers["except per 1,000 code lines"] == numbers["raise per 1,000 code lines"] == 50.0
    assert numbers["question docstrings, %"] == 50.0
    assert values["mutual imports"][1] == ["small.one <-> small.other"]
    assert [line.split()[1] for line in values["glossary names"][1]] == ["stranger", "given"]
    assert [line.split()[1] for line in values["vague variables"][1]] == ["found"]
    assert len(values["large classes"][1]) == 1
