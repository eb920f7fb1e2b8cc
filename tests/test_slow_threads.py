"""Every method in eight threads at a time, predictions and fits of one seed, against one thread alone."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import fields
from typing import Any

import pytest
import torch

from credalgnn import Prediction, Vanilla, load_task
from credalgnn.methods import METHODS, Method
from credalgnn.methods.network import Network

THREADS, PREDICTIONS, FITS = 8, 40, 24
SHORT: dict[str, Any] = {"hidden": 16, "epochs": 5, "patience": 5}
CASES: list[tuple[str, dict[str, Any]]] = [(name, {}) for name in METHODS]
CASES += [
    (name, {"backbone": backbone, "dropout": 0.5})
    for name, kind in METHODS.items()
    for backbone in ("gat", "gin", "gcn")
    if issubclass(kind, Network) and name in ("vanilla", "credal-lj", "mc-dropout", "drop-edge")
]
CASES += [("vanilla", {"batch_size": 128, "dropout": 0.5}), ("vanilla", {"backbone": "gat", "batch_size": 128})]

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::credalgnn.CredalWarning")]


def made(name: str, options: dict[str, Any]) -> Method:
    kind = METHODS[name]
    own = {field.name for field in fields(kind)}
    brief = {key: value for key, value in SHORT.items() if key in own}
    if kind.components is not None and kind.components.size is not None:
        return kind(members=[Vanilla(seed=seed, **SHORT) for seed in (0, 1)])
    if kind.components is not None:
        brief["model"] = Vanilla(**SHORT)
    return kind(**{**brief, **options})


def same(one: Prediction, other: Prediction) -> bool:
    """To the last bit."""
    pairs = [(one.scores[name], other.scores[name]) for name in one.scores]
    if one.probabilities is not None and other.probabilities is not None:
        pairs.append((one.probabilities, other.probabilities))
    if one.credal is not None and other.credal is not None:
        pairs += [(one.credal.lower, other.credal.lower), (one.credal.upper, other.credal.upper)]
    return all(torch.equal(*pair) for pair in pairs)


@contextmanager
def disturbed() -> Iterator[None]:
    """Inside, threads take turns often, and one of them does nothing but seed torch's global generator and draw."""
    over, interval = threading.Event(), sys.getswitchinterval()

    def draw() -> None:
        while not over.wait(1e-4):
            torch.manual_seed(1)
            torch.rand(2)

    thread = threading.Thread(target=draw)
    sys.setswitchinterval(1e-4)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        sys.setswitchinterval(interval)


def test_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("credalgnn.methods.coverage.model.TREES", 20)
    task = load_task("digits")
    flipped = task.graph.features.to_dense().flip(0)
    wrong: dict[str, tuple[int, int]] = {}
    with torch.random.fork_rng([]):
        for name, options in CASES:
            case = " ".join([name, *(str(value) for value in options.values())])
            method = made(name, options).fit(task)
            alone = [method.predict(), method.predict(task.graph.replace(features=flipped))]
            graphs = [task.graph, task.graph.replace(features=flipped.clone())]
            with disturbed(), ThreadPoolExecutor(THREADS) as pool:
                found = list(pool.map(method.predict, PREDICTIONS // 2 * graphs))
                jobs = [pool.submit(made(name, options).fit, task) for _ in range(FITS)]
                fits = [job.result().predict() for job in jobs]
            wrong[case] = (
                sum(not same(*pair) for pair in zip(found, PREDICTIONS // 2 * alone, strict=True)),
                sum(not same(each, alone[0]) for each in fits),
            )
            print(f"{case}: {wrong[case][0]} of {PREDICTIONS} predictions and {wrong[case][1]} of {FITS} fits differ")
    print(
        f"\n{len(CASES)} methods and backbones, {THREADS} threads: "
        f"{sum(first for first, _ in wrong.values())} of {len(CASES) * PREDICTIONS} predictions and "
        f"{sum(second for _, second in wrong.values())} of {len(CASES) * FITS} fits differ from those of one thread"
    )
    assert set(wrong.values()) == {(0, 0)}, wrong
