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
from credalgnn.nn.distributed import Processes, ProcessLost

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


RESUMED = """
import json, sys
import torch
from torch import distributed
from credalgnn.graphs import csbm
from credalgnn.methods import Vanilla
from credalgnn.methods.checkpoints import packed, unpacked
from credalgnn.methods.training_data import training_data
from credalgnn.runtime.context import Context, WorkerContext
from credalgnn.nn.distributed import Processes

torch.set_num_threads(1)
distributed.init_process_group("gloo", init_method=f"file://{sys.argv[2]}", rank=int(sys.argv[1]), world_size=2)
group = Processes()

class CheckpointStore:
    def __init__(self, state):
        self.state, self.kept = state, []
    def load(self):
        return None if self.state is None else unpacked(self.state)
    def save(self, state, ended):
        self.kept.append(packed(state()))

def trained(state):
    method, checkpoint = Vanilla(hidden=8, epochs=6, patience=6, dropout=0.5, batch_size=32), CheckpointStore(state)
    training = training_data(csbm(200, 3, seed=2), None, None, None, "sealed")
    method._fit(training, Context(progress=False, worker=WorkerContext(group, checkpoint)))
    return [method.history_, [each.tolist() for each in method.module_.state_dict().values()]], checkpoint.kept

whole, kept = trained(None)
distributed.broadcast_object_list(kept, src=0)  # the others go on from what the first one has kept
print(json.dumps([trained(state)[0] == whole for state in kept]))
"""


def both(folder: Path, how: str, program: str = PROGRAM) -> list[Any]:
    """What each process prints, None of one that printed nothing."""
    command = [sys.executable, "-W", "ignore", "-c", program]
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


def test_processes_that_go_on_give_what_they_would_have_given(tmp_path: Path) -> None:
    """Weights and losses, wherever they were stopped, with dropout that each process draws for itself."""
    assert both(tmp_path, "", RESUMED) == [[True] * 7] * 2
