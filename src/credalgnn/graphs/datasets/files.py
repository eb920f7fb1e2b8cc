"""Raw files of data sets: found in a mirror or downloaded once, and checked in either case."""

from __future__ import annotations

import hashlib
import http.client
import sys
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ...runtime.files import atomic, write
from ...runtime.progress import Progress
from ...runtime.reading import most_unpacked, open_file
from ...runtime.texts import without_credentials
from ..errors import GraphError

DRIVE = "https://drive.usercontent.google.com/download?confirm=t&id="
BLOCK = 1 << 20
TIMEOUT = 60.0  # seconds without a byte


class DownloadError(GraphError):
    """A file could not be downloaded; the message says why, and where to put it by hand."""


@dataclass(frozen=True)
class File:
    """Address of a raw file, and what is known of its content.

    Args:
        url: Address of the file, or of a zip archive that contains it as ``raw/NAME``.
        size: Size in bytes, if known.
        sha256: SHA-256 sum, if known.

    Example:
        >>> from credalgnn.graphs import File
        >>> File("https://example.org/pets.npz", size=1234).size
        1234
    """

    url: str
    size: int | None = None
    sha256: str | None = None

    def check(self, path: Path) -> None:
        """Raise ``GraphError`` if an existing file has another size or sum.

        Args:
            path: The file.
        """
        if self.size is not None and path.stat().st_size != self.size:
            raise GraphError(f"{path} has {path.stat().st_size:,} bytes instead of {self.size:,}; replace it")
        if self.sha256 is not None and _sha256(path) != self.sha256:
            raise GraphError(f"{path} is not the expected file (its SHA-256 differs); replace it")


def _sha256(path: Path) -> str:
    with open_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def locate(files: Mapping[str, File], mirror: Path | None, root: Path, work: Path) -> None:
    """Link all files below ``work``, from a read-only mirror or from ``root``, where missing ones are downloaded to."""
    for name, file in files.items():
        place = work / name
        place.parent.mkdir(parents=True, exist_ok=True)
        mirrored = mirror / name if mirror else None
        if mirrored and mirrored.is_file():
            file.check(mirrored)
            place.symlink_to(mirrored.resolve())
            continue
        try:
            _provide(name, file, files, root)
        except DownloadError as error:
            names = ", ".join(Path(file_name).name for file_name in files)
            raise DownloadError(
                f"{error}; the graph needs {names} in {(root / name).parent}, or in {Path(name).parent} below a "
                "folder given as `mirror` or CREDALGNN_MIRROR"
            ) from None
        place.symlink_to((root / name).resolve())


def _provide(name: str, file: File, files: Mapping[str, File], root: Path) -> None:
    """Download a file unless it exists; an archive holds all of them."""
    local = root / name
    if local.is_file():
        file.check(local)
        return
    if not file.url.endswith(".zip"):
        download(file.url, local, file.size, file.sha256)
        return
    archive = local.parent / Path(file.url).name
    if not archive.is_file():
        download(file.url, archive, file.size, file.sha256)
    try:
        with zipfile.ZipFile(archive) as content:
            inside = next((entry for entry in content.namelist() if entry.endswith(f"raw/{local.name}")), None)
            if inside is None:
                raise zipfile.BadZipFile(f"it has no raw/{local.name}")
            if content.getinfo(inside).file_size > most_unpacked(archive.stat().st_size):
                raise zipfile.BadZipFile("it unpacks to far more than its size")
            write(local, content.read(inside))
        if all((root / other).is_file() for other in files):
            archive.unlink(missing_ok=True)
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        archive.unlink(missing_ok=True)
        raise DownloadError(
            f"{without_credentials(file.url)}: the archive was broken ({error}) and has been removed; try again"
        ) from None


def download(url: str, path: Path, size: int | None = None, sha256: str | None = None) -> None:
    """Download a file atomically; a reply that is cut off or not the expected file is removed."""
    digest, received = hashlib.sha256(), 0
    print(f"downloading {without_credentials(url)}", file=sys.stderr, flush=True)
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT) as reply, atomic(path) as file:
            if reply.headers.get_content_type() == "text/html":
                raise _failed(url, path, "a web page came instead of the file (a quota, perhaps)")
            promised = reply.headers.get("Content-Length")
            expected = size if size is not None else int(promised) if promised else None
            with Progress(None if expected is None else expected / 2**20, path.name, "MB") as progress:
                while block := reply.read(BLOCK):
                    file.write(block)
                    digest.update(block)
                    received += len(block)
                    progress.update(received / 2**20)
            if expected is not None and received != expected:
                raise _failed(url, path, f"{received:,} of {expected:,} bytes arrived; the rest is missing")
            if sha256 is not None and digest.hexdigest() != sha256:
                raise _failed(url, path, "the file is not the expected one (its SHA-256 differs)")
    except DownloadError:
        raise
    except (OSError, http.client.HTTPException, ValueError) as error:
        if isinstance(error, urllib.error.HTTPError):
            error.close()
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        raise _failed(url, path, str(reason)) from None


def _failed(url: str, path: Path, reason: str) -> DownloadError:
    shown, reason = without_credentials(url), without_credentials(reason, url)
    return DownloadError(f"{shown} could not be downloaded: {reason}. Try again, or put the file at {path} by hand")
