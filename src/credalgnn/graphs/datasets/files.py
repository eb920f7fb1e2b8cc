"""Raw files of data sets: found in a mirror, or downloaded once, and checked wherever they come from."""

from __future__ import annotations

import hashlib
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ...runtime.files import write
from ...runtime.reading import most_unpacked, open_file
from ...runtime.texts import without_credentials
from ..errors import GraphError
from .download import DownloadError, fetch

DRIVE = "https://drive.usercontent.google.com/download?confirm=t&id="


@dataclass(frozen=True)
class File:
    """A raw file: its address, and what is known of its content.

    Args:
        url: Where it is downloaded from: the file itself, or a zip archive that has it as ``raw/NAME``.
        size: Its bytes, if known.
        sha256: Its sum, if known.
    """

    url: str
    size: int | None = None
    sha256: str | None = None

    def check(self, path: Path) -> None:
        """Refuse a file that is there already but is not the right one.

        Args:
            path: Where it is.
        """
        if self.size is not None and path.stat().st_size != self.size:
            raise GraphError(f"{path} has {path.stat().st_size:,} bytes instead of {self.size:,}; replace it")
        if self.sha256 is not None and _sum(path) != self.sha256:
            raise GraphError(f"{path} is not the expected file (its SHA-256 differs); replace it")


def _sum(path: Path) -> str:
    with open_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def locate(files: Mapping[str, File], mirror: Path | None, root: Path, work: Path) -> None:
    """Bring all raw files below ``work``: linked from the mirror, or from ``root`` after a download there.

    Args:
        files: The files by their path below all three folders.
        mirror: A read-only folder, if there is one.
        root: Where downloads are kept.
        work: Where they are wanted.
    """
    for name, file in files.items():
        place = work / name
        place.parent.mkdir(parents=True, exist_ok=True)
        mirrored = mirror / name if mirror else None
        if mirrored and mirrored.is_file():
            file.check(mirrored)
            place.symlink_to(mirrored.resolve())
            continue
        try:
            _download(name, file, files, root)
        except DownloadError as error:
            names = ", ".join(Path(file_name).name for file_name in files)
            raise DownloadError(
                f"{error}; the graph needs {names} in {(root / name).parent}, or in {Path(name).parent} below a "
                "folder given with --mirror or CREDALGNN_MIRROR"
            ) from None
        place.symlink_to((root / name).resolve())


def _download(name: str, file: File, files: Mapping[str, File], root: Path) -> None:
    local = root / name
    if local.is_file():
        file.check(local)
        return
    if not file.url.endswith(".zip"):
        fetch(file.url, local, file.size, file.sha256)
        return
    archive = local.parent / Path(file.url).name  # one archive with all files, each somewhere inside
    if not archive.is_file():
        fetch(file.url, archive, file.size, file.sha256)
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
