"""Processes that average their gradients: two real ones, over gloo."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAM = """
import json, sys
from datetime import timedelta
import torch
from torch import distributed
from credalgnn.nn.group import Processes, ProcessLost

rank, store, dies = int(sys.argv[1]), sys.argv[2], sys.argv[3] == "dies"
distributed.init_process_group(
    "gloo", init_method=f"file://{store}", rank=rank, world_size=2, timeout=timedelta(seconds=20)
)
group, done = Processes(), []
gradients = [torch.full((2, 3), 1.0 + rank), torch.arange(4.0) * (1 - rank)]

def meanwhile():
    done.append([each.sum().item() for each in gradients])
    if dies and rank == 1:
        sys.exit(7)

try:
    group.average(gradients, (0.25, 0.75)[rank], meanwhile)
    if dies:
        group.average(gradients, 0.5, lambda: None)
    found = [each.tolist() for each in gradients]
except ProcessLost:
    found = "lost"
print(json.dumps([found, done]))
"""


def both(folder: Path, how: str) -> list[Any]:
    """What each process prints, None of one that printed nothing."""
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM]
    started = [
        subprocess.Popen([*command, str(rank), str(folder / "store"), how], stdout=subprocess.PIPE, text=True)
        for rank in (0, 1)
    ]
    printed = [process.communicate(timeout=120)[0].splitlines() for process in started]
    return [json.loads(lines[-1]) if lines else None for lines in printed]


def test_gradients_are_averaged_by_shares_while_something_else_is_done(tmp_path: Path) -> None:
    found = both(tmp_path, "stays")
    for rank, (gradients, meanwhile) in enumerate(found):
        assert gradients[0] == [[0.25 * 1.0 + 0.75 * 2.0] * 3] * 2
        assert gradients[1] == pytest.approx([0.0, 0.25, 0.5, 0.75])
        assert meanwhile == [[6.0 * (1 + rank), 6.0 * (1 - rank)]]  # once, and before they were replaced


def test_a_process_that_dies_meanwhile_is_told_to_the_other(tmp_path: Path) -> None:
    alive, dead = both(tmp_path, "dies")
    assert alive[0] == "lost"
    assert dead is None
