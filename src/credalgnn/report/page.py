"""Pages: one self-contained HTML file each, without a server, a network or other files."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

NOSCRIPT = (
    '<noscript><p class="wide note">This page draws its tables and figures with JavaScript, which is switched off.</p>'
    "</noscript>\n"
)


@dataclass(frozen=True)
class Page:
    """HTML page with embedded style, scripts and data.

    Its content security policy allows this very style and script and nothing else.

    Args:
        kind: Class of the body; also the file of ``web`` with its sections, unless ``sections`` are given.
        title: Title of the page; any text.
        data: Plain values; scripts find them in ``data``.
        scripts: JavaScript files of ``web``, joined in this order.
        sections: HTML of the sections; None for those of the file.
        lead: Text below the title; scripts may replace it.
        skip: Section that the first link of the page leads to.
    """

    kind: str
    title: str
    data: Mapping[str, Any] = field(default_factory=dict)
    scripts: Sequence[str] = ()
    sections: str | None = None
    lead: str = ""
    skip: str = "main"

    def render(self) -> str:
        style = web_file("page.css")
        script = "\n".join(['"use strict";', *map(web_file, self.scripts)])
        parts = {
            "kind": self.kind,
            "title": html.escape(self.title),
            "lead": html.escape(self.lead),
            "skip": self.skip,
            "noscript": NOSCRIPT if self.scripts else "",
            "sections": web_file(f"{self.kind}.html") if self.sections is None else self.sections,
            "style": style,
            "script": script,
            "style-hash": _hash(style),
            "script-hash": _hash(script),
            "data": _json(self.data),
        }
        return re.sub(r"\{\{([a-z-]+)\}\}", lambda match: parts[match[1]], web_file("page.html"))


def section(name: str, title: str, *content: str) -> str:
    """HTML of a section with a heading.

    Args:
        name: Its id.
        title: Text of the heading.
        content: HTML below the heading.
    """
    return (
        f'<section id="{name}" aria-labelledby="{name}-title"><h2 id="{name}-title">{html.escape(title)}</h2>'
        f"{''.join(content)}</section>"
    )


def scrollable(content: str, label: str) -> str:
    """HTML of a region that scrolls sideways where the window is narrow.

    Args:
        content: HTML of a table.
        label: Name for screen readers.
    """
    return f'<div class="scroll" role="region" tabindex="0" aria-label="{html.escape(label)}">{content}</div>'


def web_file(name: str) -> str:
    """Text of a file of ``web``.

    Args:
        name: Name of the file.
    """
    return (files(__package__) / "web" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _json(data: Mapping[str, Any]) -> str:
    """JSON that no text in it can end: what HTML or JavaScript would interpret is escaped."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return re.sub("[<>&\u2028\u2029]", lambda match: f"\\u{ord(match[0]):04x}", text)


def numbers(values: Iterable[Any], digits: int = 4) -> list[float | int | None]:
    """Round to significant digits; None for what is not a finite number.

    Args:
        values: Numbers or None.
        digits: Number of significant digits.
    """
    rounded = [None if value is None or not math.isfinite(value) else float(f"{value:.{digits}g}") for value in values]
    return [int(one) if one is not None and one.is_integer() and abs(one) < 1e15 else one for one in rounded]


def distinct_numbers(values: Sequence[float] | NDArray[np.float64], digits: int = 4) -> list[float | int | None]:
    """Round to as many significant digits as tell the values apart.

    Args:
        values: Numbers or None.
        digits: Number of significant digits where values are far from each other.
    """
    finite = np.asarray([value for value in values if value is not None and math.isfinite(value)])
    spread = float(np.ptp(finite)) if len(finite) else 0.0
    extra = math.ceil(math.log10(float(np.abs(finite).max()) / spread)) if spread > 0 else 0
    return numbers(values, min(digits + max(extra, 0), 17))


def example_nodes(
    score: NDArray[np.float64], groups: Mapping[str, NDArray[np.bool_]], percent: Mapping[str, int] | None = None
) -> dict[str, int]:
    """The node of each group at a quantile of a score: chosen by a rule, so that nobody picks it.

    Args:
        score: A score of each node; ties are in the order of the nodes.
        groups: Masks of nodes by the name of the group; empty groups have no example.
        percent: The quantile by group; 50, the lower median, where nothing is said.
    """
    order = np.argsort(score, kind="stable")
    members = {name: order[mask[order]] for name, mask in groups.items()}
    return {
        name: int(nodes[(len(nodes) - 1) * (percent or {}).get(name, 50) // 100])
        for name, nodes in members.items()
        if len(nodes)
    }
