"""Texts of others, made fit to be shown: on a terminal, in Markdown, and without passwords."""

from __future__ import annotations

import html
import re

# What a terminal obeys instead of showing it: control characters, and those that turn the direction of writing.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_LOGIN = re.compile(r"(?<=://)(?:[^\s:/@]*:[^\s@]*|[^\s/@]+)@")
_SECRET = re.compile(r"(?<=[?&;])(\w*(?:pass|pwd|token|secret|key|sig|auth|cred)\w*)=[^\s&;#]*", re.IGNORECASE)


def printable(text: str) -> str:
    r"""A text that only shows itself: what a terminal would obey is spelled out, as ``\x1b``; lines and tabs stay.

    Args:
        text: Any text.
    """
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def one_line(text: str) -> str:
    """A text without what a terminal would obey, and without line breaks.

    Args:
        text: Any text.
    """
    return printable(" ".join(text.split()))


def markdown(text: str) -> str:
    """A line that Markdown shows as it is: no HTML, no links or pictures, no code, no further cells; bold may stay.

    Args:
        text: Any text.
    """
    escaped = html.escape(one_line(text), quote=False)
    return re.sub(r"[\\`|\[\]]", lambda found: f"\\{found[0]}", escaped)


def without_credentials(text: str, url: str = "") -> str:
    """A text in which addresses show neither user names nor passwords.

    Args:
        text: A text with addresses in it, or an address.
        url: An address whose password is taken out wherever it stands.
    """
    from urllib.parse import unquote_plus

    secrets = [login[:-1].partition(":")[2] for login in _LOGIN.findall(url)]
    secrets += [found[0].partition("=")[2] for found in _SECRET.finditer(url)]
    for secret in filter(None, secrets):
        text = text.replace(secret, "***").replace(unquote_plus(secret), "***")
    return _SECRET.sub(r"\1=***", _LOGIN.sub("***@", text))
