"""A hundred kills at random moments of the commands that write: nothing that was finished is lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

KILLS = {"fit": 25, "watch": 25, "bench": 30, "tune": 20}


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills are signals of POSIX")
def test_a_hundred_kills(tmp_path: Path) -> None:
    here = Path(__file__).parent
    path = os.pathsep.join([str(here), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-W", "ignore", here / "random_kills.py", tmp_path / "here", "0", json.dumps(KILLS)],
        capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    print("\n| command | kills | finished | finished work lost | done again | files damaged | results that differ |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for row in rows:
        cells = (row[name] for name in ("command", "kills", "finished", "lost", "repeated", "damaged", "wrong"))
        print("| " + " | ".join(map(str, cells)) + " |")
    assert {row["command"]: row["kills"] for row in rows} == KILLS
    for row in rows:
        assert row["lost"] == row["damaged"] == row["wrong"] == 0, row
        assert row["repeated"] <= row["kills"], row  # a run whose record was being written
