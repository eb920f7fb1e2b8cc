"""The benchmark: runs that are not there yet are done, one record each; anything may stop it and it goes on."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..graphs import Task
from ..records.folder import EXPERIMENT, Folder
from ..records.node_tables import graph_columns
from ..runtime.files import Lock
from .engines import Engine, Unit
from .execute import about, execute
from .plan import Run
from .vanished import FolderVanished, guarded


class Progress(NamedTuple):
    """What to tell the person who waits: a run begins (there is no record yet) or has ended."""

    run: Run
    record: Mapping[str, Any] | None
    done: int
    total: int


@dataclass
class Outcome:
    """How a benchmark ended: the records of finished runs, those that failed, and how many are left."""

    done: int = 0
    failed: int = 0
    left: int = 0


def run_all(
    folder: Folder,
    runs: Sequence[Run],
    tasks: Mapping[tuple[str, int], Task],
    engine: Engine,
    keep_nodes: Callable[[Run], bool] = lambda run: False,
    deadline: float | None = None,
    tell: Callable[[Progress], None] = lambda progress: None,
    examine: Callable[[Run], Unit] | None = None,
) -> Outcome:
    """Do all runs of which the folder has no finished record (or no predictions, where they are to be kept).

    Those that failed before are tried again. Others may work in the same folder at the same time: a run is done by
    whoever holds its lock. An error if the folder or records in it vanish meanwhile.

    Args:
        folder: Of the experiment.
        runs: What to do.
        tasks: By data set and split.
        engine: Does the runs.
        keep_nodes: Whether the predictions of a run are kept.
        deadline: As ``time.monotonic`` counts; after it nothing is begun or waited for.
        tell: Hears of every run that begins or ends.
        examine: What is done for a run, if not ``execute``: it returns the same.
    """
    unit_of = examine or (lambda run: Unit(execute, run, (keep_nodes(run),)))
    records = {path for run in runs if (path := folder.record(run.dataset, run.method, run.seed)).exists()}
    with guarded(folder.path, EXPERIMENT) as check_folder:

        def tell_and_check(progress: Progress) -> None:
            check_folder()
            if progress.record is not None:
                records.add(folder.record(progress.run.dataset, progress.run.method, progress.run.seed))
            tell(progress)

        outcome = _run_all(folder, runs, tasks, engine, keep_nodes, deadline, tell_and_check, unit_of)
        missing = sum(not path.exists() for path in records)
        if missing:  # a table of what is left would look like a whole one
            raise FolderVanished(
                f"{folder.path}: {missing} of {len(records)} records vanished during the work: the same command makes "
                "them again"
            )
    return outcome


def _run_all(
    folder: Folder,
    runs: Sequence[Run],
    tasks: Mapping[tuple[str, int], Task],
    engine: Engine,
    keep_nodes: Callable[[Run], bool],
    deadline: float | None,
    tell: Callable[[Progress], None],
    unit_of: Callable[[Run], Unit],
) -> Outcome:
    outcome = Outcome()
    todo: deque[Run] = deque()

    def is_done(run: Run, record: Mapping[str, Any]) -> bool:
        return _is_done(record) and (not keep_nodes(run) or folder.has_predictions(run, record))

    for run in runs:  # a damaged record is found before any work is done
        record = folder.read(run, tasks[run.dataset, run.split_seed].fingerprint)
        if record is not None and is_done(run, record):
            outcome.done += 1
        else:
            todo.append(run)
    _describe_graphs(folder, [run for run in runs if keep_nodes(run)], tasks, {run.dataset for run in todo})
    elsewhere: deque[Run] = deque()  # what another benchmark is doing
    busy: dict[int, Lock] = {}

    def ended(run: Run, record: Mapping[str, Any]) -> None:
        if record["status"] == "done":
            outcome.done += 1
        else:
            outcome.failed += 1
        tell(Progress(run, record, outcome.done + outcome.failed, len(runs)))

    while todo or elsewhere or busy:
        if deadline is not None and time.monotonic() >= deadline:
            break
        while todo and len(busy) < engine.slots:
            run = todo.popleft()
            lock = folder.claim(run)
            if not lock.take():
                elsewhere.append(run)
                continue
            record = folder.read(run, tasks[run.dataset, run.split_seed].fingerprint)
            if record is not None and is_done(run, record):
                lock.free()  # somebody else has done it meanwhile
                ended(run, record)
                continue
            busy[id(run)] = lock
            tell(Progress(run, None, outcome.done + outcome.failed, len(runs)))
            engine.start(unit_of(run))
        if not busy:
            time.sleep(0.2)
            todo, elsewhere = elsewhere, deque()
            continue
        for unit, value, error in engine.finished(timeout=0.5):
            run = unit.run
            if error is None:
                record, nodes = value
            else:
                task = tasks[run.dataset, run.split_seed]
                record, nodes = {**about(run, task), "status": "failed", "error": error}, None
            if error is None or not _is_done(folder.read(run, record["fingerprint"])):
                folder.write(run, record, nodes)  # a failure never takes the place of what was finished
            busy.pop(id(run)).free()
            ended(run, record)
    for lock in busy.values():
        lock.free()
    outcome.left = len(runs) - outcome.done - outcome.failed
    return outcome


def _is_done(record: Mapping[str, Any] | None) -> bool:
    return record is not None and record["status"] == "done"


def _describe_graphs(
    folder: Folder, runs: Sequence[Run], tasks: Mapping[tuple[str, int], Task], begun: set[str]
) -> None:
    """Facts of the graphs about all nodes that something is predicted for, beside the predictions.

    They are made for what is ``begun`` now, which may have other splits, and where they are missing.
    """
    for dataset in dict.fromkeys(run.dataset for run in runs):
        if dataset in begun or not folder.graph(dataset).exists():
            splits = dict.fromkeys(run.split_seed for run in runs if run.dataset == dataset)
            folder.write_nodes(folder.graph(dataset), graph_columns([tasks[dataset, split] for split in splits]))
