"""Runner of experiments: what is not in the folder yet is executed; a stopped experiment goes on where it was."""

from __future__ import annotations

import json
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

from ..graphs import Task
from ..methods import Method
from ..records.folder import EXPERIMENT, Folder, FolderVanished, guarded
from ..records.node_tables import graph_columns
from ..records.schema import REMEDY, RecordError, read_record
from ..runtime.errors import ArgumentError
from ..runtime.files import Lock
from ..runtime.memory import processors
from ..runtime.progress import Progress
from .engines import Engine, Processes, Ray, Unit
from .execute import about, execute
from .plan import Run, Source, load_tasks

Place: TypeAlias = str | os.PathLike[str]
TaskLike: TypeAlias = str | os.PathLike[str] | Task
Setting: TypeAlias = Literal["transductive", "inductive"]
EngineName: TypeAlias = Literal["local", "ray"]
Tasks: TypeAlias = Mapping[tuple[str, int], Task]  # by data set and split


def listed(values: Any) -> list[Any]:
    """Return a sequence as a list, and a single value as a list of one."""
    single = isinstance(values, str | os.PathLike | Task | Method | type)
    return [values] if single else list(values)


def as_texts(settings: Mapping[str, Any] | None) -> list[str]:
    """Return hyper-parameters as an experiment's identity has them."""
    return sorted(f"{name}={value}" for name, value in (settings or {}).items())


@dataclass
class Outcome:
    """Numbers of runs that are done, failed, and left."""

    done: int = 0
    failed: int = 0
    left: int = 0


@dataclass(frozen=True)
class Work:
    """Place and duration of an experiment: the arguments common to all experiments.

    Args:
        jobs: Processes on this machine; None: one per core.
        engine: ``"local"`` processes, or an existing ``"ray"`` cluster.
        address: Address of the Ray cluster; None: the one that Ray finds.
        time_limit: Seconds after which nothing is begun or waited for.
        mirror: Folder with raw files, searched first.
        data_root: Cache folder of graphs.
        progress: False hides progress.
    """

    jobs: int | None = None
    engine: EngineName = "local"
    address: str | None = None
    time_limit: float | None = None
    mirror: Place | None = None
    data_root: Place | None = None
    progress: bool | None = None
    deadline: float | None = field(init=False)

    def __post_init__(self) -> None:
        if self.engine not in ("local", "ray"):
            raise ArgumentError(f"unknown `engine` {self.engine!r}: choose 'local' or 'ray'")
        if self.engine == "ray" and self.jobs is not None:
            raise ArgumentError("`jobs` is for this machine; a Ray cluster has its own number of processors")
        if self.engine == "local" and self.address is not None:
            raise ArgumentError("`address` is for a Ray cluster: add engine='ray'")
        limit = self.time_limit
        object.__setattr__(self, "deadline", None if limit is None else time.monotonic() + limit)

    def load(
        self,
        tasks: TaskLike | Sequence[TaskLike],
        splits: Sequence[int],
        inductive: bool = False,
        ood_classes: Sequence[int | str] | None = None,
    ) -> tuple[Source, dict[tuple[str, int], Task]]:
        """Load tasks by data set and split, and return the source that engines take them from."""
        source = Source(
            None if self.mirror is None else Path(self.mirror),
            None if self.data_root is None else Path(self.data_root),
            None if ood_classes is None else tuple(ood_classes),
        )
        return load_tasks(source, listed(tasks), splits, inductive)

    @contextmanager
    def session(self, out: Place, identity: Mapping[str, Any], source: Source) -> Iterator[Session]:
        """Open or create an experiment's folder and work in it; tidy up at the end if nothing is left."""
        folder = Folder.open(Path(out), identity)
        with folder.occupied() as tidy:
            with make_engine(self.engine, self.address, self.jobs, source, folder.models) as engine:
                session = Session(folder, engine, self.deadline, self.progress)
                yield session
            if session.is_finished:
                tidy()  # last: no other process then tidies away what is being written


def make_engine(name: str, address: str | None, jobs: int | None, source: Source, models: Path) -> Engine:
    """Start the engine of an experiment."""
    return Ray(address, source, models) if name == "ray" else Processes(jobs or processors(), source, models)


@dataclass
class Session:
    """An experiment at work: its folder, engine and deadline."""

    folder: Folder
    engine: Engine
    deadline: float | None = None
    progress: bool | None = None
    is_finished: bool = False

    def run(
        self,
        runs: Sequence[Run],
        tasks: Tasks,
        unit: Callable[[Run], Unit] | None = None,
        keep_nodes: Callable[[Run], bool] = lambda run: False,
    ) -> Outcome:
        """Execute all runs that have no finished record; see `run_all`."""
        with Display(len(runs), self.progress) as display:
            outcome = run_all(self.folder, runs, tasks, self.engine, keep_nodes, self.deadline, display.run, unit)
        self.is_finished = not outcome.left
        return outcome


def run_all(
    folder: Folder,
    runs: Sequence[Run],
    tasks: Tasks,
    engine: Engine,
    keep_nodes: Callable[[Run], bool] = lambda run: False,
    deadline: float | None = None,
    report: Callable[[Run, Mapping[str, Any] | None, int], None] = lambda run, record, done: None,
    unit: Callable[[Run], Unit] | None = None,
) -> Outcome:
    """Execute all runs that have no finished record in the folder (or no predictions, where they are kept).

    Failed runs are tried again. Other processes may work in the folder at the same time: a run is executed by the one
    that holds its lock. Raises `FolderVanished` if the folder or records in it vanish meanwhile.

    Args:
        folder: Folder of the experiment.
        runs: Runs to execute.
        tasks: Tasks by data set and split.
        engine: Executes the runs.
        keep_nodes: Whether the predictions of a run are kept.
        deadline: Value of ``time.monotonic`` after which nothing is begun or waited for.
        report: Called with every run that begins (no record) or ends, and the number of ended runs.
        unit: Makes the work of a run; its function returns what ``execute`` returns.
    """
    make_unit = unit or (lambda run: Unit(execute, run, (keep_nodes(run),)))
    paths = {path for run in runs if (path := folder.record(*run.key)).exists()}
    outcome = Outcome()
    todo: deque[Run] = deque()
    elsewhere: deque[Run] = deque()  # locked by other processes
    busy: dict[int, Lock] = {}

    def is_finished(run: Run) -> bool:
        record = _read(folder, run, tasks)
        return _is_done(record) and (
            not keep_nodes(run) or (record["predictions"] is not None and folder.predictions(*run.key).exists())  # type: ignore[index]
        )

    with guarded(folder.path, EXPERIMENT) as check_folder:

        def note(run: Run, record: Mapping[str, Any] | None) -> None:
            check_folder()
            if record is not None:
                paths.add(folder.record(*run.key))
                outcome.done += record["status"] == "done"
                outcome.failed += record["status"] != "done"
            report(run, record, outcome.done + outcome.failed)

        for run in runs:  # a damaged record is found before any work
            if is_finished(run):
                outcome.done += 1
            else:
                todo.append(run)
        _describe_graphs(folder, [run for run in runs if keep_nodes(run)], tasks, {run.dataset for run in todo})
        while todo or elsewhere or busy:
            if deadline is not None and time.monotonic() >= deadline:
                break
            while todo and len(busy) < engine.slots:
                run = todo.popleft()
                lock = folder.lock(*run.key)
                if not lock.take():
                    elsewhere.append(run)
                elif is_finished(run):  # by another process meanwhile
                    lock.free()
                    note(run, _read(folder, run, tasks))
                else:
                    busy[id(run)] = lock
                    note(run, None)
                    engine.start(make_unit(run))
            if not busy:
                time.sleep(0.2)
                todo, elsewhere = elsewhere, deque()
                continue
            for result in engine.finished(timeout=0.5):
                run = result.unit.run
                if result.error is None:
                    record, nodes = result.value
                else:
                    task = tasks[run.dataset, run.split_seed]
                    record, nodes = {**about(run, task), "status": "failed", "error": result.error}, None
                if result.error is None or not _is_done(_read(folder, run, tasks)):
                    folder.write(record, nodes)  # a failure never replaces a finished run
                busy.pop(id(run)).free()
                note(run, record)
        for lock in busy.values():
            lock.free()
        outcome.left = len(runs) - outcome.done - outcome.failed
        missing = sum(not path.exists() for path in paths)
        if missing:  # a table of the rest would look complete
            raise FolderVanished(
                f"{folder.path}: {missing} of {len(paths)} records vanished during the work; the same call makes them "
                "again"
            )
    return outcome


def _is_done(record: Mapping[str, Any] | None) -> bool:
    return record is not None and record["status"] == "done"


def _read(folder: Folder, run: Run, tasks: Tasks) -> dict[str, Any] | None:
    """The record of a run, if there is one; refused if it was made from other data or hyper-parameters."""
    path = folder.record(*run.key)
    if not path.exists():
        return None
    record = read_record(path)
    for name in ("dataset", "method", "seed", "split_seed", "protocol", "setting"):
        if record[name] != getattr(run, name):
            raise RecordError(f"{path}: holds another run, with {name} {record[name]!r}; {REMEDY}")
    fingerprint = tasks[run.dataset, run.split_seed].fingerprint
    config = json.loads(json.dumps(run.described))
    for name, same in (
        ("data", record["fingerprint"] == fingerprint),
        ("hyper-parameters", record["config"] == config),
    ):
        if not same:
            raise RecordError(
                f"{path}: made with other {name} than this run; choose another `out`, or delete the record"
            )
    return record


def _describe_graphs(folder: Folder, runs: Sequence[Run], tasks: Tasks, begun: Iterable[str]) -> None:
    """Write facts of the graphs beside predictions: where missing, and for data sets `begun` now on other splits."""
    for dataset in dict.fromkeys(run.dataset for run in runs):
        if dataset in begun or not folder.graph(dataset).exists():
            splits = dict.fromkeys(run.split_seed for run in runs if run.dataset == dataset)
            folder.write_nodes(folder.graph(dataset), graph_columns([tasks[dataset, split] for split in splits]))


class Display:
    """Progress of runs or trials: the ones that run now, and a line for each that ends."""

    def __init__(self, total: int, show: bool | None = None) -> None:
        self._bar = Progress(total, show=show)
        self._running: list[str] = []
        self._begun = False

    def run(self, run: Run, record: Mapping[str, Any] | None, done: int) -> None:
        """Show that a run begins or has ended."""
        self._skip(done - (record is not None))
        if record is None:
            self._running.append(run.label)
            self._bar.update(done, label=", ".join(self._running))
            return
        self._running = [label for label in self._running if label != run.label]
        failed = record["status"] == "failed"
        message = record["error"] if failed else _figures(record)
        self._ended(f"{run.label}: {message}", done, failed, ", ".join(self._running))

    def trial(self, search: str, result: Mapping[str, Any], done: int) -> None:
        """Show that a trial of a search has ended."""
        value = "no value" if result.get("value") is None else f"{result['value']:.4f}"
        self._skip(done - 1)
        message = f"{search}: {'pruned' if 'pruned' in result else result.get('error') or value}"
        self._ended(message, done, False, message)

    def note(self, message: str) -> None:
        """Show a line."""
        self._bar.log(message)

    def _skip(self, done: int) -> None:
        """Leave out of the estimate what an earlier call has done."""
        if not self._begun:
            self._bar.skip(done)
            self._begun = True

    def _ended(self, message: str, done: int, important: bool, label: str) -> None:
        self._bar.log(message, always=important, done=done)
        self._bar.update(done, label=label)

    def __enter__(self) -> Display:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()


def _figures(record: Mapping[str, Any]) -> str:
    """The headline score's AUROC and the accuracy of a finished run."""
    headline = record["headline"]
    shown = {headline: record["scores"][headline]["auroc"], "accuracy": record["metrics"]["accuracy"]}
    return ", ".join(f"{name} {100 * value:.1f}" for name, value in shown.items() if value is not None) or "done"
