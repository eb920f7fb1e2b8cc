"""Checksums: a file says what all its other bytes must be, so that nothing in it changes unnoticed.

A checksum is the text ``sha256:`` and 64 digits. It stands in the file itself, where the format has room for a text:
the last field of a JSON object, the metadata of Parquet and safetensors, the comment of a zip archive. It is that of
the file with 64 zeros in its place. Whoever changes a file on purpose can make it anew: it is no signature.
"""

from __future__ import annotations

import hashlib
import io
import struct
import zipfile
from typing import BinaryIO

PREFIX = "sha256:"
BLANK = PREFIX + "0" * 64  # what stands for a checksum until all else is known
_LOCAL = struct.Struct("<26xHH")  # a member's header in a zip archive, up to the lengths of its name and extra field


def checksum(content: bytes) -> str:
    """The checksum of some bytes.

    Args:
        content: The bytes.
    """
    return PREFIX + hashlib.sha256(content).hexdigest()


def seal(content: bytes) -> bytes:
    """Put the checksum where the last blank is.

    Args:
        content: A whole file with a ``BLANK`` in it.
    """
    before, blank, after = content.rpartition(BLANK.encode())
    if not blank:
        raise ValueError("there is no place for a checksum")
    return before + checksum(content).encode() + after


def seal_text(text: str, begin: str = "<!-- ", end: str = " -->") -> bytes:
    """A text, and as its last line a comment with its checksum.

    Args:
        text: The text: Markdown or HTML, unless comments are told to be others.
        begin: How a comment begins.
        end: How it ends.
    """
    return seal(f"{text}{begin}{BLANK}{end}\n".encode())


def sealed_with(content: bytes) -> str | None:
    """The checksum of a file, if it has one and no other byte has changed since it was sealed.

    Args:
        content: The whole file.
    """
    place = content.rfind(PREFIX.encode())
    end = place + len(BLANK)
    found = content[place:end].decode("latin-1") if place >= 0 else ""
    blank = b"".join((content[:place], BLANK.encode(), content[end:]))
    return found if found and checksum(blank) == found else None


def seal_zip(file: BinaryIO) -> None:
    """Put the checksum into a zip archive whose comment is a ``BLANK``.

    Args:
        file: The archive, open to read and write.
    """
    sealed = seal(_outline(file))
    file.seek(-len(BLANK), io.SEEK_END)
    file.write(sealed[-len(BLANK) :])


def is_sealed_zip(file: BinaryIO) -> bool:
    """Whether a zip archive has its checksum, and nothing but the data of its members can have changed since.

    For these the directory has CRC-32 sums, which are checked when a member is read to its end: a second pass over all
    data would cost too much.

    Args:
        file: The archive, open to read.
    """
    try:
        return sealed_with(_outline(file)) is not None
    except (zipfile.BadZipFile, struct.error, ValueError, LookupError, RuntimeError, OverflowError, OSError):
        return False  # whatever the reader of a damaged directory trips over


def _outline(file: BinaryIO) -> bytes:
    """All of a zip archive but the data of its members."""
    with zipfile.ZipFile(file) as archive:
        members = sorted(archive.infolist(), key=lambda member: member.header_offset)
        directory = archive.start_dir
    parts, position = [], 0
    for member in members:
        if member.header_offset != position:
            raise zipfile.BadZipFile("there is something between its members")
        file.seek(position)
        header = file.read(_LOCAL.size)
        header += file.read(sum(_LOCAL.unpack(header)))
        parts.append(header)
        position += len(header) + member.compress_size
    if position != directory:
        raise zipfile.BadZipFile("there is something between its members and their directory")
    file.seek(directory)
    return b"".join([*parts, file.read()])
