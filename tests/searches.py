"""Small tasks, an engine that only pretends to train, and searches and commands as a process would make them."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import optuna
import torch
from optuna.trial import FrozenTrial

from credalgnn.experiments.best import write_best
from credalgnn.experiments.engines import Engine, Result, Unit
from credalgnn.experiments.plan import Run
from credalgnn.experiments.runner import Session
from credalgnn.experiments.search import Search, SearchPlan, Studies, run_searches, search_all
from credalgnn.experiments.storage import Owners, open_storage
from credalgnn.graphs import Split, Task, csbm
from credalgnn.methods import METHODS
from credalgnn.methods.parameters import Space, Uniform
from credalgnn.records.folder import Folder
from credalgnn.runtime.files import to_json

Point = dict[str, Any]
Answer = Callable[[Run], dict[str, Any]]

NETWORK = ["vanilla", "credal-lj", "credal-final"]
ENSEMBLES = ["classical-ensemble", "credal-ensemble"]
POST_HOC = ["energy", "odin", "mahalanobis", "knn", "gnnsafe", "knn-lj"]
SPACES = {name: kind.search_space for name, kind in METHODS.items() if kind.search_space}
PROTOCOLS = ["paper", "sealed"]
ENDLESS: Space = {"lr": Uniform(1e-5, 1e-1), "hidden": (64, 128, 256), "backbone": ("gcn", "sage")}
FINITE: Space = {"k": (1, 2, 3, 4), "alpha": (0.1, 0.2), "kind": ("a", "b")}
FEW: Space = {"k": (1, 2, 3, 4), "alpha": (0.1, 0.2)}
SET = ["--set", "epochs=4", "hidden=8"]


@cache
def small_task(ood_part: int = 0, test_labels: str = "true") -> Task:
    """Four classes of which one is left out, 200 nodes. ``ood_part`` changes which OOD nodes are in the validation part
    and nothing else of it; ``test_labels`` changes the labels of test nodes."""
    graph = csbm(nodes=200, classes=4, degree=6, features=8, signal=1.0, seed=0)
    drawn = Split.random(graph.num_nodes, 0)
    strange = graph.labels == 0
    known = [part[~strange[part]] for part in (drawn.train, drawn.val, drawn.test)]
    others = strange.nonzero().squeeze(-1)
    chosen = others[:12] if ood_part == 0 else others[12:26]
    rest = others[~torch.isin(others, chosen)]
    split = Split(known[0], torch.cat([known[1], chosen]), torch.cat([known[2], rest]))
    if test_labels != "true":
        labels = graph.labels.clone()
        labels[split.test] = torch.arange(len(split.test)) % 4
        graph = graph.replace(labels=labels, class_names=graph.class_names)
    return Task.leave_out(graph, [0], split=split, name="small")


def worth(run: Run) -> dict[str, Any]:
    """A value that depends on all that a run is, and on nothing else."""
    what = json.dumps([run.method, run.seed, run.config, run.components], sort_keys=True)
    number = int.from_bytes(hashlib.blake2b(what.encode(), digest_size=6).digest(), "big")
    return {"value": number / 2**48, "seen": {}, "seconds": 0.0}


class Instant(Engine):
    """Does units at once, and gives them back a few at a time in an order of its own."""

    def __init__(self, slots: int = 1, order: int = 0, answer: Answer = worth) -> None:
        self._slots, self._order, self._answer = slots, random.Random(order), answer
        self.busy: list[Unit] = []
        self.units: list[Unit] = []

    @property
    def slots(self) -> int:
        return self._slots

    def start(self, unit: Unit) -> None:
        assert len(self.busy) < self._slots, "more units at a time than there are slots"
        self.busy.append(unit)
        self.units.append(unit)

    def finished(self, timeout: float) -> list[Result]:
        self._order.shuffle(self.busy)
        count = self._order.randint(0, len(self.busy))
        ready, self.busy = self.busy[:count], self.busy[count:]
        return [Result(unit, self._answer(unit.run)) for unit in ready]

    def close(self) -> None:
        self.busy = []


class Owned(Owners):
    """The owners as one process sees them, which can be made to die."""

    def die(self) -> None:
        self._lock.free()


def a_run(point: Point, seed: int) -> Run:
    return Run("small", "vanilla", seed, "paper", 0, dict(point))


def search(
    folder: Path, space: Space = ENDLESS, trials: int = 15, name: str = "small vanilla", prune: bool = False
) -> Search:
    """A search as a process of its own would make it."""
    return Search(name, "0", space, trials, a_run, open_storage(folder), Owned(folder / ".owners"), prune)


def die(one: Search) -> None:
    assert isinstance(one.owners, Owned)
    one.owners.die()


def finish(searches: Sequence[Search], engine: Engine) -> bool:
    """Whether searches come to an end; they never take long, and one that waits for nothing shall not wait forever."""
    return run_searches(searches, engine, time.monotonic() + 100)


def finish_all(parts: Sequence[SearchPlan], studies: Studies, engine: Engine) -> bool:
    """Whether the searches of several data sets come to an end."""
    return search_all(parts, studies, Session(Folder(studies.folder), engine, time.monotonic() + 100))


def kept(folder: Path, name: str = "small vanilla", url: str | None = None) -> list[FrozenTrial]:
    """All trials of a study as they are on the disk."""
    storage = open_storage(folder, url)
    (study,) = (one for one in optuna.get_all_study_names(storage) if one.rpartition(" ")[0] == name)
    return optuna.load_study(study_name=study, storage=storage).get_trials()


def finished_trials(trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
    return [one for one in trials if one.state.is_finished() and not one.user_attrs.get("lost")]


def tried(folder: Path, name: str = "small vanilla") -> list[tuple[str, int]]:
    """Points and seeds of all trials that came to an end, in an order that does not depend on theirs."""
    ended = finished_trials(kept(folder, name))
    return sorted((json.dumps(one.params, sort_keys=True), int(one.user_attrs["seed"])) for one in ended)


def with_curve(run: Run) -> dict[str, Any]:
    """Every fourth trial stops before epoch 100; none is pruned by itself."""
    found = worth(run)
    found["seen"] = {50: found["value"]} | ({} if run.seed % 4 == 0 else {100: found["value"] / 2})
    return found


def until(condition: Callable[[], Any], what: str, timeout: float = 300) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"waited {timeout} s in vain for {what}"
        time.sleep(0.01)


def as_found(**configs: Point) -> dict[str, dict[str, Any]]:
    return {name: {"config": config, "components": {}, "value": 0.5} for name, config in configs.items()}


def tuned_by_hand(folder: Path, task: Task, **configs: Point) -> Path:
    """A folder as ``tune`` leaves it behind, under the sealed protocol."""
    folder.mkdir(exist_ok=True)
    (folder / "experiment.json").write_bytes(to_json({"kind": "tune"}))
    write_best(folder, "sealed", task, as_found(**configs))
    return folder


def command(*words: str | Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "credalgnn", *map(str, words)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip


def outcome(*words: str | Path, timeout: float = 600) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command; nothing of it is left when this returns."""
    process = command(*words)
    try:
        out, err = process.communicate(timeout=timeout)
    finally:
        kill(process)
    return process.returncode, out, err


def kill(process: subprocess.Popen[str]) -> None:
    """With all that it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def one_line(code: int, out: str, err: str, words: str) -> None:
    assert code == 2, err
    assert out == ""
    assert err.startswith("credalgnn: ")
    assert err.count("\n") == 1
    assert words in err


def cells(text: str, title: str) -> list[dict[str, str]]:
    """A table of the Markdown below a title, each line by the names of its columns."""
    part = text.split(f"## {title}")[1].split("\n## ")[0]
    table = [line.strip("| ").split(" | ") for line in part.splitlines() if line.startswith("|") and "---" not in line]
    head = [name.strip() for name in table[0]]
    rows = [
        [cell.strip() for cell in f"{line.strip()[1:-1]} ".split(" | ")]
        for line in part.splitlines()
        if line.startswith("| ")
    ]
    return [dict(zip(head, row, strict=True)) for row in rows[1:]]
