"""The site: guides and API reference, made by ``make docs`` without a network."""

from __future__ import annotations

import shutil
from pathlib import Path

from sphinx.application import Sphinx

import credalgnn
from credalgnn import experiments, graphs, methods, metrics, model, nn, report, sets

project = "credalgnn"
author = "The credalgnn developers"
copyright = author
release = version = credalgnn.__version__

# The checkout is the source folder, so that links between documents are the same here and on GitHub.
root_doc = "README"
include_patterns = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "docs/**"]
exclude_patterns = [".*", "runs", "src", "tests", "docs/_build", "docs/results/*/*.csv"]

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
]
myst_heading_anchors = 4  # anchors like GitHub's
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "show-inheritance": True}
napoleon_numpy_docstring = False
napoleon_use_ivar = True  # attributes once, with their meaning, not again as members
strip_signature_backslash = True  # or napoleon shows history_ as history
python_use_unqualified_type_names = True
suppress_warnings = ["myst.header"]  # tables that a report wrote begin with its second heading

html_theme = "furo"
html_title = f"credalgnn {release}"
html_copy_source = False

PACKAGES = (sets, graphs, methods, nn, metrics, model, report, experiments)
GUIDES = [
    "own-graph",
    "large",
    "predictions",
    "uncertainty",
    "data",
    "methods",
    "coverage",
    "guarantee",
    "benchmark",
    "probe",
    "reliability",
    "extend",
    "entropy",
    "architecture",
]


def add_contents(app: Sphinx, document: str, source: list[str]) -> None:
    """What only the site needs: the contents of the start page, and the public names, each with its home."""
    if document == root_doc:
        guides = [f"docs/{name}" for name in GUIDES if Path(app.srcdir, f"docs/{name}.md").exists()]
        entries = "\n".join([*guides, "docs/results/README", "docs/api/index", "CONTRIBUTING", "SECURITY", "CHANGELOG"])
        source[0] += f"\n```{{toctree}}\n:hidden:\n:maxdepth: 2\n\n{entries}\n```\n"
    if document == "docs/results/README":
        pages = sorted(path.stem for path in Path(app.srcdir, "docs/results").glob("*.md") if path.stem != "README")
        source[0] += "\n```{toctree}\n:hidden:\n:glob:\n\n" + "\n".join([*pages, "*/*"]) + "\n```\n"
    if document == "docs/api/index":
        source[0] = source[0].replace(".. PUBLIC NAMES", public_names())


def public_names() -> str:
    """The names of ``credalgnn`` by package, each with a link to its description."""
    homes = {name: package for package in reversed(PACKAGES) for name in package.__all__}
    lines = []
    for package in PACKAGES:
        names = [name for name in credalgnn.__all__ if homes.get(name) is package]
        links = ", ".join(f":py:obj:`~{package.__name__}.{name}`" for name in names)
        lines += [f"``{package.__name__}``", f"    {links}"]
    return "\n".join(lines)


def keep_colons(app: Sphinx, what: str, name: str, value: object, options: object, lines: list[str]) -> None:
    """Without an empty line napoleon takes what is before a colon in a property's first line for its type."""
    if what in ("attribute", "property"):
        lines.insert(0, "")


def make_index(app: Sphinx, error: Exception | None) -> None:
    """Servers look for index.html; the start page is the README."""
    if error is None and app.builder.format == "html":
        shutil.copyfile(Path(app.outdir, "README.html"), Path(app.outdir, "index.html"))


def setup(app: Sphinx) -> None:
    app.connect("source-read", add_contents)
    app.connect("autodoc-process-docstring", keep_colons, priority=400)  # before napoleon
    app.connect("build-finished", make_index)
