"""Escaping of foreign texts for terminals and Markdown, and removal of passwords."""

from __future__ import annotations

import html
import re

# Control characters, and those that turn the direction of writing.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_LOGIN = re.compile(r"(?<=://)(?:[^\s:/@]*:[^\s@]*|[^\s/@]+)@")
_SECRET = re.compile(r"(?<=[?&;])(\w*(?:pass|pwd|token|secret|key|sig|auth|cred)\w*)=[^\s&;#]*", re.IGNORECASE)


def printable(text: str) -> str:
    r"""Return a text whose control characters are spelled out, as ``\x1b``; lines and tabs stay."""
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def one_line(text: str) -> str:
    """Return a text in one line, without control characters."""
    return printable(" ".join(text.split()))


def markdown(text: str) -> str:
    """Return a line that Markdown shows literally: no HTML, links, pictures, code or further cells; bold may stay."""
    escaped = html.escape(one_line(text), quote=False)
    return re.sub(r"[\\`|\[\]]", lambda match: f"\\{match[0]}", escaped)


def without_credentials(text: str, url: str = "") -> str:
    """Return a text whose addresses show neither user names nor passwords.

    Args:
        text: A text with addresses in it, or an address.
        url: An address whose password is removed wherever it stands.
    """
    from urllib.parse import unquote_plus

    secrets = [login[:-1].partition(":")[2] for login in _LOGIN.findall(url)]
    secrets += [match[0].partition("=")[2] for match in _SECRET.finditer(url)]
    for secret in filter(None, secrets):
        text = text.replace(secret, "***").replace(unquote_plus(secret), "***")
    return _SECRET.sub(r"\1=***", _LOGIN.sub("***@", text))
