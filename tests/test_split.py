"""Splits: their sizes, their seed, and those that are refused."""

from __future__ import annotations

import random
import subprocess
import sys

import numpy as np
import torch

from credalgnn.graphs import Split
from small_tasks import raises, task_of


def test_paper_sizes_of_random_splits() -> None:
    for nodes, val, test in [(18_333, 3_666, 3_668), (169_343, 33_868, 33_870), (2_923_922, 584_784, 584_785)]:
        split = Split.random(nodes, 0)
        assert (len(split.val), len(split.test)) == (val, test)


def test_the_seed_and_nothing_else_makes_the_split() -> None:
    first = Split.random(500, 7)
    for disturb in (lambda: torch.rand(13), lambda: np.random.random(5), lambda: random.random()):  # noqa: NPY002
        disturb()
        again = Split.random(500, 7)
        assert torch.equal(first.train, again.train)
        assert torch.equal(first.val, again.val)
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    Split.random(500, 7)
    assert torch.equal(torch.rand(2), expected)  # nor does splitting disturb anybody else
    code = (
        "import torch, numpy; torch.manual_seed(99); torch.rand(5)\n"
        "from credalgnn.graphs import Split\n"
        "Split.random(50, 1); split = Split.random(500, 7); print(split.train.tolist(), split.test.tolist())"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert answer.stdout.strip() == f"{first.train.tolist()} {first.test.tolist()}"
    others = [Split.random(500, seed) for seed in (0, 1, 8, 2**32 - 1)]
    assert all(not torch.equal(first.train, other.train) for other in others)
    for seed in (-1, 2**32):  # torch would take these for 2**32 - 1 and 0
        raises(lambda seed=seed: Split.random(500, seed), "seed")
    assert len({task_of(split_seed=seed).fingerprint for seed in range(5)}) == 5
    assert task_of(split_seed=4).fingerprint == task_of(split_seed=4).fingerprint


def test_a_split_from_masks() -> None:
    masks = torch.zeros(3, 8, dtype=torch.bool)
    masks[0, [0, 1, 2]] = masks[1, [3, 5]] = masks[2, [7, 4]] = True
    split = Split.from_masks(*masks)
    assert [part.tolist() for part in (split.train, split.val, split.test)] == [[0, 1, 2], [3, 5], [4, 7]]


def test_bad_splits_are_refused() -> None:
    masks = torch.zeros(3, 8, dtype=torch.bool)
    masks[0, :4] = masks[1, 4:6] = masks[2, 6:] = True
    train, val, test = masks
    raises(lambda: Split.from_masks(train.long(), val, test), "mask", "bool", "train")
    raises(lambda: Split.from_masks(train, val.float(), test), "mask", "bool", "val")
    raises(lambda: Split.from_masks(train, val, test[None]), "test")
    raises(lambda: Split.from_masks(train, val[:5], test), "val")
    overlap = val.clone()
    overlap[2] = True
    raises(lambda: Split.from_masks(train, overlap, test), "2", "train", "val")
    raises(lambda: Split.from_masks(train, torch.zeros_like(val), test), "val")
    raises(lambda: Split(torch.tensor([0, 1]), torch.tensor([1, 2]), torch.tensor([3])), "1", "train", "val")
    raises(lambda: Split(torch.tensor([0]), torch.tensor([1]), torch.tensor([], dtype=torch.int64)), "test")
    raises(lambda: Split(torch.tensor([0.0]), torch.tensor([1]), torch.tensor([2])), "train")
    raises(lambda: task_of(split=Split(torch.tensor([0]), torch.tensor([1]), torch.tensor([200]))), "200")
    raises(lambda: Split(torch.tensor([-1]), torch.tensor([1]), torch.tensor([2])), "-1")
