"""Downloads that arrive whole or not at all."""

from __future__ import annotations

import hashlib
import http.client
import sys
import urllib.error
import urllib.request
from pathlib import Path

from ...runtime.files import atomic
from ...runtime.texts import without_credentials
from ..errors import GraphError

BLOCK = 1 << 20
TIMEOUT = 60.0  # seconds without a byte


class DownloadError(GraphError):
    """A file could not be fetched; the message says why and where to put it by hand."""


def fetch(url: str, path: Path, size: int | None = None, sha256: str | None = None) -> None:
    """Download a file; a reply that is cut short or not the expected one is removed and said.

    Args:
        url: Where from.
        path: Where to.
        size: The expected number of bytes, if known.
        sha256: The expected sum, if known.
    """
    digest = hashlib.sha256()
    received = 0
    print(f"downloading {without_credentials(url)}", file=sys.stderr, flush=True)
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT) as reply, atomic(path) as file:
            if reply.headers.get_content_type() == "text/html":
                raise DownloadError(_message(url, path, "a web page came instead of the file (a quota, perhaps)"))
            promised = reply.headers.get("Content-Length")
            while block := reply.read(BLOCK):
                file.write(block)
                digest.update(block)
                received += len(block)
                _progress(received, promised)
            wanted = size if size is not None else int(promised) if promised else None
            if wanted is not None and received != wanted:
                raise DownloadError(
                    _message(url, path, f"{received:,} of {wanted:,} bytes arrived; the rest is missing")
                )
            if sha256 is not None and digest.hexdigest() != sha256:
                raise DownloadError(_message(url, path, "the file is not the expected one (its SHA-256 differs)"))
    except (OSError, http.client.HTTPException, ValueError) as error:
        if isinstance(error, DownloadError):
            raise
        if isinstance(error, urllib.error.HTTPError):
            error.close()
        raise DownloadError(
            _message(url, path, str(getattr(error, "reason", None) or getattr(error, "strerror", None) or error))
        ) from None


def _message(url: str, path: Path, reason: str) -> str:
    shown, reason = without_credentials(url), without_credentials(reason, url)
    return f"{shown} could not be downloaded: {reason}. Try again, or put the file at {path} by hand"


def _progress(received: int, promised: str | None) -> None:
    if sys.stderr.isatty():
        total = f" of {int(promised) / 2**20:,.0f}" if promised else ""
        print(f"\r  {received / 2**20:,.0f}{total} MB", end="" if str(received) != promised else "\n", file=sys.stderr)
