"""What the pages share: one HTML file without a server or a network, and data that nothing in them can break out of."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray


def document(
    title: str, data: Mapping[str, Any], template: str, scripts: Sequence[str], styles: Sequence[str] = ("page.css",)
) -> bytes:
    """A template of ``web`` with everything in it. Its policy allows this very script and style, and nothing else.

    The last line is a comment with the checksum of the page.

    Args:
        title: The title of the page; any text.
        data: What the scripts find in the element ``data``.
        template: The HTML file.
        scripts: JavaScript files, which become one script in this order.
        styles: CSS files, likewise.
    """
    style, script = "\n".join(map(_read, styles)), "\n".join(['"use strict";', *map(_read, scripts)])
    parts = {
        "title": html.escape(title),
        "style": style,
        "script": script,
        "style-hash": _hash(style),
        "script-hash": _hash(script),
        "data": _json(data),
    }
    frame = _read(template).replace("{{head}}\n", _read("head.html"))  # the same for all pages
    page = re.sub(r"\{\{([a-z-]+)\}\}", lambda result: parts[result[1]], frame)
    return page.encode()


def _read(name: str) -> str:
    return (files(__package__) / "web" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _json(data: Mapping[str, Any]) -> str:
    """JSON that no text in it can end: what HTML or JavaScript would take for its own is escaped."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return re.sub("[<>&\u2028\u2029]", lambda result: f"\\u{ord(result[0]):04x}", text)


def numbers(values: Iterable[Any], digits: int = 4) -> list[float | int | None]:
    """Numbers with so many significant digits; None for what is not a finite number.

    Args:
        values: Numbers or None.
        digits: How many significant digits are kept.
    """
    kept = [None if value is None or not math.isfinite(value) else float(f"{value:.{digits}g}") for value in values]
    return [int(one) if one is not None and one.is_integer() and abs(one) < 1e15 else one for one in kept]


def distinct_numbers(values: Sequence[float] | NDArray[np.float64], digits: int = 4) -> list[float | int | None]:
    """Numbers with digits enough to tell them apart, however near to each other they are.

    Args:
        values: Numbers or None.
        digits: How many significant digits are kept where numbers are far from each other.
    """
    finite = np.asarray([value for value in values if value is not None and math.isfinite(value)])
    spread = float(np.ptp(finite)) if len(finite) else 0.0
    extra = math.ceil(math.log10(float(np.abs(finite).max()) / spread)) if spread > 0 else 0
    return numbers(values, min(digits + max(extra, 0), 17))
