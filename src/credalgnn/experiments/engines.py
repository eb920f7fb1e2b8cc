"""Engines that execute units of work: processes of this machine, or a Ray cluster. Results are the same.

Needs a POSIX system (Linux, macOS): signals are blocked while workers start, and folders have an owner.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
import traceback
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import torch

from .._version import __version__
from ..graphs import GraphError, Task
from ..methods import CredalWarning
from ..runtime.errors import CredalError, translated
from ..runtime.memory import private_folder
from ..runtime.ray import NoCluster, connect
from .execute import ModelCache
from .plan import Run, Source


class EngineError(CredalError, RuntimeError):
    """An engine or its storage cannot be used; the message says why and what to do."""


class Unit(NamedTuple):
    """A call `function(run, task, models, *args)`; the function is at the top level of a module."""

    function: Callable[..., Any]
    run: Run
    args: tuple[Any, ...] = ()


class Result(NamedTuple):
    """The value that a unit's function returned, or its error in one line."""

    unit: Unit
    value: Any
    error: str | None = None


class Engine(ABC):
    """Executor of up to `slots` units at a time."""

    @property
    @abstractmethod
    def slots(self) -> int:
        """Number of units that can run at the same time."""

    @abstractmethod
    def start(self, unit: Unit) -> None:
        """Begin a unit; there must be a free slot."""

    @abstractmethod
    def finished(self, timeout: float) -> list[Result]:
        """Return the results since the last call; wait for one up to `timeout` seconds."""

    @abstractmethod
    def close(self) -> None:
        """Stop all units."""

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def one_thread() -> None:
    """Use one thread, so that results do not depend on the number of processes, and none waits for another."""
    torch.set_num_threads(1)


def _done(unit: Unit, task: Callable[[], Task], models: Path) -> tuple[Any, str | None]:
    """Execute a unit; an error becomes one line with its place in the code.

    Records mark vacuous credal sets, so no run warns of them.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CredalWarning)
            return unit.function(unit.run, task(), ModelCache(models), *unit.args), None
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        message = " ".join(str(error).split()) or "no message"
        return None, f"{type(error).__name__}: {message} ({Path(place.filename).name}, line {place.lineno})"


class Processes(Engine):
    """Processes of this machine. If one dies, its unit fails, and another process takes its place."""

    def __init__(self, jobs: int, source: Source, models: Path) -> None:
        self._jobs, self._source, self._models = jobs, source, models
        self._context = multiprocessing.get_context("spawn")
        self._idle: list[_Worker] = []
        self._busy: dict[Connection, tuple[_Worker, Unit]] = {}

    @property
    def slots(self) -> int:
        return self._jobs

    def start(self, unit: Unit) -> None:
        while self._idle:
            worker = self._idle.pop()
            try:
                worker.pipe.send(unit)
                break
            except OSError:  # the worker has died since its last unit
                worker.kill()
        else:
            worker = _Worker(self._context, self._source, self._models)
            with suppress(OSError):  # a dead worker shows in `finished`
                worker.pipe.send(unit)
        self._busy[worker.pipe] = worker, unit

    def finished(self, timeout: float) -> list[Result]:
        results = []
        for pipe in wait(list(self._busy), timeout):
            assert isinstance(pipe, Connection)
            worker, unit = self._busy.pop(pipe)
            try:
                value, error = pipe.recv()
                self._idle.append(worker)
            except (EOFError, OSError):
                value, error = None, worker.exit_reason()
            results.append(Result(unit, value, error))
        return results

    def close(self) -> None:
        for worker in [*self._idle, *(worker for worker, _ in self._busy.values())]:
            worker.kill()
        self._idle, self._busy = [], {}


class _Worker:
    def __init__(self, context: multiprocessing.context.SpawnContext, source: Source, models: Path) -> None:
        self.pipe, child_end = context.Pipe()
        self.process = context.Process(target=_serve, args=(child_end, source, models), daemon=True)
        resource_tracker.ensure_running()  # its start would unblock the signal again
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # the parent handles Ctrl-C
        try:
            with _without_main():
                self.process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        child_end.close()

    def kill(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()

    def exit_reason(self) -> str:
        self.process.join()
        code = self.process.exitcode or 0
        reason = f"signal {-code} ({signal.Signals(-code).name})" if code < 0 else f"exit code {code}"
        return f"the worker process ended with {reason}" + ("; out of memory?" if code == -signal.SIGKILL else "")


@contextmanager
def _without_main() -> Iterator[None]:
    """Hide the main module: a spawned process would run it again, and a script without a guard its benchmark."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _serve(pipe: Connection, source: Source, models: Path) -> None:
    """Main loop of a worker: execute units until the other end of the pipe is closed."""
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    one_thread()
    while True:
        try:
            unit = pipe.recv()
        except EOFError:
            return
        pipe.send(_done(unit, lambda unit=unit: source.task(unit.run), models))  # type: ignore[misc]


def _exit_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)


class Ray(Engine):
    """An existing Ray cluster, which restarts the units of a lost machine on another one.

    Tasks are sent through Ray, so only this machine needs the raw files; the folder of a packed graph must be visible
    to all machines. credalgnn must be installed on all of them.
    """

    RETRIES = 3

    def __init__(self, address: str | None, source: Source, models: Path) -> None:
        with translated(NoCluster, lambda error: EngineError(str(error))):
            ray = connect(address)
        self._ray, self._source, self._models = ray, source, models.resolve()
        self._remote = ray.remote(num_cpus=1, max_retries=self.RETRIES)(_do_remotely)
        self._tasks: dict[tuple[str, int, bool], Any] = {}
        self._busy: dict[Any, Unit] = {}

    @property
    def slots(self) -> int:
        return max(int(self._ray.cluster_resources().get("CPU", 1)), 1)

    def start(self, unit: Unit) -> None:
        key = unit.run.dataset, unit.run.split_seed, unit.run.inductive
        if key not in self._tasks:
            pickled = self._ray.cloudpickle.dumps(self._source.task(unit.run))
            self._tasks[key] = self._ray.put(pickled)
        path = [os.path.abspath(entry) for entry in sys.path]  # an empty entry is the working folder
        self._busy[self._remote.remote(unit, self._tasks[key], self._models, __version__, path)] = unit

    def finished(self, timeout: float) -> list[Result]:
        if not self._busy:
            time.sleep(timeout)
            return []
        ready, _ = self._ray.wait(list(self._busy), num_returns=1, timeout=timeout)
        results = []
        for reference in ready:
            unit = self._busy.pop(reference)
            try:
                value, error = self._ray.get(reference)
            except self._ray.exceptions.RayError as lost:
                message = " ".join(str(lost).split())
                value, error = None, f"lost by Ray: {message:.300}"
            results.append(Result(unit, value, error))
        return results

    def close(self) -> None:
        for reference in self._busy:
            self._ray.cancel(reference, force=True)
        self._busy = {}
        self._ray.shutdown()


def _do_remotely(unit: Unit, pickled: bytes, models: Path, version: str, path: list[str]) -> tuple[Any, str | None]:
    """Execute a unit on a machine of the cluster; models are shared if the experiment's folder is visible there.

    `path` is the import path of the sender, whose working folder may hold the method.
    """
    if version != __version__:
        return None, f"credalgnn {__version__} is installed on this machine of the cluster, and {version} on the sender"
    sys.path += [entry for entry in path if entry not in sys.path]
    one_thread()
    return _done(unit, lambda: _unpickled(pickled), models if models.parent.is_dir() else _own_models(models))


def _unpickled(pickled: bytes) -> Task:
    """Unpickle a task; its packed graph is opened in place."""
    with translated(
        GraphError,
        lambda error: GraphError(
            f"{os.uname().nodename} cannot open the graph ({error}): put a packed graph where all machines of the "
            "cluster see it under the same path"
        ),
    ):
        task: Task = pickle.loads(pickled)
    return task


def _own_models(models: Path) -> Path:
    """A private folder for fitted models on a machine that does not see the experiment's."""
    name = hashlib.blake2b(str(models).encode(), digest_size=8).hexdigest()
    with translated(
        PermissionError, lambda error: EngineError(f"{error.filename} on {os.uname().nodename}: {error.strerror}")
    ):
        return private_folder(name)
