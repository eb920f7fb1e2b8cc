"""Graphs that are read once and kept: whole, right, and none of a killed process."""

from __future__ import annotations

import gc
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import pytest

from credalgnn.cli import main
from credalgnn.graphs import (
    GraphError,
    load_graph,
)
from raw_files import write_arxiv, write_patents, write_reddit

MIRROR = Path(os.environ.get("CREDALGNN_MIRROR") or Path(__file__).parents[2] / "shared" / "datasets")


needs_mirror = pytest.mark.skipif(not MIRROR.is_dir(), reason="needs the raw files: set CREDALGNN_MIRROR")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def _no_surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CREDALGNN_MIRROR", raising=False)
    monkeypatch.setenv("CREDALGNN_DATA", str(tmp_path / "default-cache"))


@needs_mirror
def test_the_cache_alone_is_enough_and_a_broken_one_is_made_anew(tmp_path: Path, dead: str) -> None:
    graph = load_graph("chameleon", mirror=MIRROR, data_root=tmp_path)
    assert load_graph("chameleon", data_root=tmp_path).fingerprint == graph.fingerprint
    path = tmp_path / "chameleon" / "graph.npz"
    path.write_bytes(path.read_bytes()[:1000])
    assert load_graph("chameleon", mirror=MIRROR, data_root=tmp_path).fingerprint == graph.fingerprint
    assert load_graph(path).fingerprint == graph.fingerprint


@needs_mirror
def test_mirror_and_data_root_come_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CREDALGNN_MIRROR", str(MIRROR))
    monkeypatch.setenv("CREDALGNN_DATA", str(tmp_path / "here"))
    before = {path: path.stat().st_mtime_ns for path in MIRROR.rglob("*")}
    load_graph("chameleon")
    assert (tmp_path / "here" / "chameleon" / "graph.npz").is_file()
    assert {path: path.stat().st_mtime_ns for path in MIRROR.rglob("*")} == before  # nothing is written to the mirror


@pytest.mark.parametrize(
    ("name", "write", "damaged"),
    [
        ("patents", write_patents, "patents/raw/snap_patents.mat"),
        ("arxiv", write_arxiv, "arxiv/raw/edge.csv.gz"),
        ("reddit2", write_reddit, "Reddit2/raw/adj_full.npz"),
        ("reddit2", write_reddit, "Reddit2/raw/role.json"),
    ],
)
def test_a_damaged_raw_file_is_named(name: str, write: Any, damaged: str, tmp_path: Path) -> None:
    write(tmp_path / "mirror")
    path = tmp_path / "mirror" / damaged
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # numpy leaves a file open that is no archive
        with pytest.raises(GraphError, match=re.escape(path.name)):
            load_graph(name, mirror=tmp_path / "mirror", data_root=tmp_path / "data")
        gc.collect()
    assert not list((tmp_path / "data").rglob("graph.npz*"))


KILLED = """
import os, sys, time
from credalgnn.graphs import load_graph
if sys.argv[3] == "rename":
    def stop(source, target, **options):
        if str(target).endswith("graph.npz"):
            print("about to rename", flush=True)
            time.sleep(100)
        return real(source, target, **options)
    real, os.replace, os.rename = os.replace, stop, stop
print("ready", flush=True)
load_graph("coauthor", mirror=sys.argv[1], data_root=sys.argv[2])
print("done", flush=True)
"""


@needs_mirror
@pytest.mark.parametrize("moment", ["rename", "0", "0.1", "0.3"])
def test_a_killed_process_leaves_no_half_graph(moment: str, tmp_path: Path, cache: Path) -> None:
    words = [sys.executable, "-c", KILLED, str(MIRROR), str(tmp_path), moment]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "ready\n"
            if moment == "rename":
                assert process.stdout.readline() == "about to rename\n"
            else:
                deadline = time.monotonic() + 60
                while not any(tmp_path.iterdir()) and time.monotonic() < deadline:
                    time.sleep(0.001)
                time.sleep(float(moment))
        finally:
            process.send_signal(signal.SIGKILL)
    expected = load_graph("coauthor", mirror=MIRROR, data_root=cache).fingerprint
    half = tmp_path / "coauthor" / "graph.npz"
    assert any(tmp_path.iterdir())  # the work had begun
    if moment == "rename":
        assert not half.exists()
    if half.exists():
        assert load_graph(half).fingerprint == expected
    assert load_graph("coauthor", mirror=MIRROR, data_root=tmp_path).fingerprint == expected
    assert load_graph(half).fingerprint == expected


@needs_mirror
def test_a_wrong_file_in_the_mirror_is_refused_and_nothing_is_cached(tmp_path: Path) -> None:
    mirror, data = tmp_path / "mirror", tmp_path / "data"
    shutil.copytree(MIRROR / "chameleon", mirror / "chameleon")
    edges = mirror / "chameleon/geom_gcn/raw/out1_graph_edges.txt"
    whole = edges.read_bytes()
    for broken, words in ((whole[:1000], "1,000 bytes instead of"), (whole[:-2] + b"9\n", "SHA-256 differs")):
        edges.chmod(0o644)
        edges.write_bytes(broken)
        with pytest.raises(GraphError, match=words):
            load_graph("chameleon", mirror=mirror, data_root=data)
    edges.write_bytes(whole)
    assert load_graph("chameleon", mirror=mirror, data_root=data).num_edges == 36_101


def test_listing_survives_a_broken_cache_without_a_network(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "coauthor").mkdir()
    (tmp_path / "coauthor" / "graph.npz").write_bytes(b"PK broken")
    assert main(["datasets", "--data-root", str(tmp_path)]) == 0
    row = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("coauthor"))
    assert "18,333" in row
