"""Downloads that arrive whole, or not at all and say why."""

from __future__ import annotations

import gc
import hashlib
import re
from pathlib import Path
from typing import Any

import pytest

from credalgnn.graphs import (
    GraphError,
)
from credalgnn.graphs.datasets.files import DownloadError, download
from local_server import Handler

BODY = b"graph" * 5000


def test_a_good_download(server: tuple[str, type[Handler]], tmp_path: Path) -> None:
    path = tmp_path / "raw" / "good.bin"
    path.parent.mkdir()
    download(f"{server[0]}/good", path, size=len(BODY), sha256=hashlib.sha256(BODY).hexdigest())
    assert path.read_bytes() == BODY
    assert [file.name for file in path.parent.iterdir()] == ["good.bin"]


@pytest.mark.parametrize(
    ("where", "checks", "reason"),
    [
        ("/cut/good", {}, r"of 26,?000"),
        ("/cut/good", {"size": len(BODY) + 1000}, r"of 26,?000"),
        ("/good", {"size": len(BODY) + 1}, r"25,?001"),
        ("/good", {"sha256": "0" * 64}, r"sha-?256|checksum"),
        ("/nothing", {}, r"404|not found"),
        ("/garbage", {}, r"."),
        ("/chunks", {}, r"."),
        (None, {}, r"refused|reach|connect"),
    ],
)
def test_a_bad_download_leaves_nothing_and_says_what_to_do(
    server: tuple[str, type[Handler]], dead: str, tmp_path: Path, where: str | None, checks: Any, reason: str
) -> None:
    url = f"{dead}/good" if where is None else server[0] + where
    path = tmp_path / "file.bin"
    with pytest.raises(DownloadError) as caught:
        download(url, path, **checks)
    text = str(caught.value)
    assert isinstance(caught.value, GraphError)
    assert url in text
    assert str(path) in text
    assert re.search(reason, text, re.IGNORECASE), text
    assert list(tmp_path.iterdir()) == []
    del caught
    gc.collect()  # a connection left open would warn here


def test_a_failed_download_keeps_the_older_file(server: tuple[str, type[Handler]], tmp_path: Path) -> None:
    path = tmp_path / "file.bin"
    path.write_bytes(b"older")
    with pytest.raises(DownloadError):
        download(f"{server[0]}/cut/good", path)
    assert path.read_bytes() == b"older"
