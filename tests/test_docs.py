"""Documents that stay true: links, tables, layers, and a site that builds without a warning."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import credalgnn

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text()
REFERENCE = ("sets", "conformal", "graphs", "nn", "methods", "metrics", "model", "experiments", "report")


def prose(document: Path) -> str:
    """The text without code, in which brackets are no links and a # is no heading."""
    return re.sub(r"^```.*?^```|^    .*?$|`[^`\n]*`(?!\])", "", document.read_text(), flags=re.S | re.M)


def anchors(document: Path) -> set[str]:
    """The anchors of the headings, as GitHub and MyST make them."""
    text = re.sub(r"^```.*?^```", "", document.read_text(), flags=re.S | re.M)
    headings = re.findall(r"^#+ (.*)$", text, flags=re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(document)):
        if re.match(r"https?://", link):
            continue
        name, _, anchor = link.partition("#")
        target = (document.parent / name).resolve() if name else document
        assert target.exists(), f"{link}: no such file"
        assert not anchor or anchor in anchors(target), f"{link}: no such heading"


def load_tables() -> ModuleType:
    spec = importlib.util.spec_from_file_location("tables", ROOT / "docs" / "tables.py")
    assert spec is not None
    assert spec.loader is not None
    tables = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tables)
    return tables


def test_tables_are_those_of_the_code() -> None:
    document = "benchmark.md"
    there = (ROOT / "docs" / document).read_text()
    assert load_tables().updated(document) == there, "out of date: run python docs/tables.py"


def test_the_architecture_shows_the_layers_that_are_checked() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    checked = next(contract["layers"] for contract in contracts if contract["name"] == "layers")
    shown = re.findall(r"^    (.*)$", ARCHITECTURE, flags=re.M)
    assert shown == [layer.replace("credalgnn.", "") for layer in checked]


def test_the_architecture_names_every_package() -> None:
    there = {path.stem for path in (ROOT / "src" / "credalgnn").iterdir() if path.suffix == ".py" or path.is_dir()}
    without_a_layer = {"__init__", "__main__", "__pycache__", "_version"}
    named = set(re.findall(r"^\| `(\w+)` \|", ARCHITECTURE, flags=re.M))
    assert named == there - without_a_layer


def public_callables() -> Iterator[tuple[str, Any, str]]:
    """Functions and classes of the API reference and the methods of these classes, each with its docstring."""
    for package in (*REFERENCE, "testing"):
        module = importlib.import_module(f"credalgnn.{package}")
        own = [name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__]
        for name in getattr(module, "__all__", [name for name in own if not name.startswith("_")]):
            value = getattr(module, name)
            if inspect.isfunction(value):
                yield f"{package}.{name}", value, value.__doc__ or ""
            elif inspect.isclass(value) and not issubclass(value, Exception):
                yield f"{package}.{name}", value, value.__doc__ or ""
                for attribute in vars(value):
                    method = getattr(value, attribute)
                    if not attribute.startswith("_") and (inspect.isfunction(method) or inspect.ismethod(method)):
                        yield f"{package}.{name}.{attribute}", method, inspect.getdoc(method) or ""


def test_docstrings_name_every_parameter() -> None:
    """ruff's D417 does so where there is an ``Args:`` section; this test asks for one, or for ``Attributes:``."""
    missing = []
    for name, value, docstring in public_callables():
        for parameter in inspect.signature(value).parameters:
            if parameter not in ("self", "cls") and not re.search(rf"^ +\*{{0,2}}{parameter}: ", docstring, flags=re.M):
                missing.append(f"{name}({parameter})")
    assert not missing


def test_the_citation_is_of_this_version() -> None:
    assert f"\nversion: {credalgnn.__version__}\n" in (ROOT / "CITATION.cff").read_text()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for name in ("sphinx", "myst_parser", "furo"):
        pytest.importorskip(name, reason=f"{name} is not installed: make docs installs it")
    folder = tmp_path_factory.mktemp("site")
    command = [
        "sphinx",
        "-q",
        "-W",
        "--keep-going",
        "-c",
        "docs",
        "-d",
        str(folder / "trees"),
        ".",
        str(folder / "html"),
    ]
    answer = subprocess.run(
        [sys.executable, "-m", *command], capture_output=True, text=True, timeout=300, check=False, cwd=ROOT
    )
    assert answer.returncode == 0, answer.stderr
    return folder / "html"


def test_the_site_describes_every_public_name(site: Path) -> None:
    from sphinx.util.inventory import InventoryFile

    with (site / "objects.inv").open("rb") as file:
        inventory = InventoryFile.load(file, "", lambda base, path: path)
    described = {name for kind, names in inventory.items() if kind.startswith("py:") for name in names}
    public = {
        f"credalgnn.{module}.{name}"
        for module in REFERENCE
        for name in importlib.import_module(f"credalgnn.{module}").__all__
    }
    assert public <= described
    start = (site / "docs" / "api" / "index.html").read_text()
    for name in set(credalgnn.__all__) - {"__version__"}:
        assert re.search(rf'<a class="reference internal" href="[^"]*\.{name}"', start), f"{name} has no link"


def test_the_site_needs_no_network(site: Path) -> None:
    for page in site.rglob("*.html"):
        assert not re.search(r"<(?:script|link|img)[^>]+(?:src|href)=\"(?:https?:)?//", page.read_text()), page.name
