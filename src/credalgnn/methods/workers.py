"""One model, trained by several processes of a Ray cluster; what a lost one has done since the last epoch is redone."""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from .._version import __version__
from ..graphs import GraphError, Part, TrainingView
from ..graphs.sharing import GraphHandle, parcel_of
from ..nn import Classifier, TrainingError
from ..nn.distributed import Processes, ProcessLost
from ..nn.training import Epoch, show_epoch
from ..runtime.context import Context, WorkerContext
from ..runtime.names import install_hint
from ..runtime.progress import Progress
from ..runtime.ray import NoCluster, check_head, connect, ray_module
from ..runtime.warn import warn_caller
from .base import Method, trains_by_batches
from .checkpoints import Checkpoint, packed, unpacked
from .prediction import MethodError
from .tasks import (
    LOOK,
    PATIENCE,
    Tasks,
    WorkersWarning,
    check_room,
    check_version,
    desk_for,
    desk_lost,
    graph_here,
    modules_path,
    room_of,
)
from .training_data import TrainingData

if TYPE_CHECKING:
    from .network import Network

LOSSES = 3  # of workers without an epoch in between, after which a fit gives up
POLL = 0.2  # seconds between two looks at what workers tell
SETTLE = 20.0  # seconds after a loss in which Ray may find out that a whole machine is gone
ERRORS: dict[str, type[Exception]] = {each.__name__: each for each in (MethodError, GraphError, TrainingError)}
TRAIN = {  # of Ray Train, whose defaults are for trainings of days
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.5",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "RAY_TRAIN_METRICS_ENABLED": "0",
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",  # a process more; a lost machine is noticed anyway
}


def check_workers(method: Method, workers: object) -> None:
    """Refuse workers that cannot be, or that would have nothing to do.

    Args:
        method: What is to be fitted.
        workers: How many.
    """
    check_count(workers)
    if not trains_by_batches(type(method)):
        raise MethodError(
            f"{method.name} trains no network on mini-batches: workers have nothing to do, leave them out"
        )


def check_count(workers: object) -> None:
    """Refuse a number of workers that cannot be.

    Args:
        workers: How many.
    """
    if workers is None:
        raise MethodError("address= is of a Ray cluster: say how many of its processes work, workers=")
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
        raise MethodError(f"workers must be a whole number of 1 or more, not {workers!r:.60}")
    for package in ("ray", "pydantic", "pyarrow"):
        if find_spec(package) is None:
            raise MethodError(f"workers need {package}: {install_hint(package, 'ray')}")


@contextmanager
def connected(address: str | None, workers: int | None) -> Iterator[Tasks]:
    """Tasks of a cluster; connects to it, unless there is a connection already.

    Args:
        address: ``HOST:PORT``; None: the one that Ray finds.
        workers: How many tasks at a time; ``check_count`` has not refused it.
    """
    ray = ray_module()
    assert workers is not None
    ours = not ray.is_initialized()
    try:
        if ours:
            connect(address)
        yield Tasks(workers)
    except (NoCluster, ray.exceptions.RayError) as error:
        raise _refusal(error) from None
    finally:
        if ours:
            ray.shutdown()


def _refusal(error: Exception) -> MethodError:
    """What a person is told when Ray itself fails; much of that is a head that is gone."""
    try:
        if not isinstance(error, NoCluster):
            check_head()
    except NoCluster as gone:
        error = gone
    if isinstance(error, NoCluster):
        return MethodError(str(error))
    if isinstance(error, ray_module().exceptions.RayActorError):
        return desk_lost()
    return MethodError(f"the Ray cluster failed: {type(error).__name__}: {_line(error)}")


class _Work(NamedTuple):
    """What a worker is told; the method last, as its class may be found only when ``path`` is known."""

    desk: Any
    graphs: Any
    parts: dict[str, Any]
    method: bytes
    path: list[str]
    version: str


def train_by_workers(
    method: Network, module: Classifier, training: TrainingData, context: Context, keeper: Checkpoint | None
) -> list[Epoch]:
    """Train a network with the processes of a cluster; gives the curve, as one process would.

    Args:
        method: Has the hyper-parameters.
        module: The network, which gets the weights.
        training: What to learn from.
        context: Of the call, with the workers.
        keeper: Where the state is kept on this machine, and gone on from; None: nowhere.
    """
    ray = ray_module()
    assert context.workers is not None
    kept = None if keeper is None else keeper.load()
    if kept is not None and kept["ended"]:
        return _taken_over(module, kept)
    view = training.view
    graphs = {"graph": parcel_of(view.graph)}
    if view.val_graph is not view.graph:
        graphs["val_graph"] = parcel_of(view.val_graph)
    desk = desk_for(graphs.values())
    parts = {
        "train": view.train, "val": view.val, "num_classes": view.num_classes, "class_names": view.class_names,
        "fingerprint": view.fingerprint, "memory": context.memory, "train_nodes": training.train_nodes,
        "validation": None if training.validation is None else tuple(vars(training.validation).values()),
    }  # fmt: skip
    work = _Work(desk, ray.put(graphs), parts, ray.cloudpickle.dumps(method.clone()), modules_path(), __version__)
    on_gpu = torch.device(method.device).type == "cuda"
    done = 0 if kept is None else len(kept["curve"]) - 1
    with Progress(method.epochs, f"{method.name} seed {method.seed}", "epochs", context.progress, done) as shown:
        told = _Told(desk, shown, context.on_epoch, keeper, done)
        try:
            if kept is not None:
                ray.get(desk.save.remote(packed(kept)))
            _until_done(work, told, context.workers, "GPU" if on_gpu else "CPU", method.name)
            told.keep(ended=True)
            state = unpacked(ray.get(desk.state.remote()))
        finally:
            ray.kill(desk)
    return _taken_over(module, state)


def _taken_over(module: Classifier, state: dict[str, Any]) -> list[Epoch]:
    """Give a network the best weights of a training that has ended; returns its curve."""
    module.load_state_dict(state["best_state"])
    module.eval()
    return [Epoch(*line) for line in state["curve"]]


class _Told:
    """What workers tell, as it comes: to whoever shows how far it is, and whoever wants to see the curve.

    Now and then the state that the desk has is kept on the disk, too.
    """

    def __init__(
        self,
        desk: Any,
        shown: Progress,
        on_epoch: Callable[[Epoch], None] | None,
        keeper: Checkpoint | None = None,
        done: int = 0,
    ) -> None:
        self.desk, self.shown, self.on_epoch, self.keeper = desk, shown, on_epoch, keeper
        self.lines, self.last = 0, done

    def look(self) -> None:
        """Show what is new; raise what a worker has refused."""
        self.keep()
        lines, refusal = ray_module().get(self.desk.news.remote(self.lines))
        self.lines += len(lines)
        for line in lines:
            epoch = Epoch(*line)
            self.last = epoch.epoch
            show_epoch(self.shown, epoch)
            if self.on_epoch is not None:
                self.on_epoch(epoch)
        if refusal is not None:
            kind, message = refusal
            raise ERRORS.get(kind, MethodError)(message if kind in ERRORS else f"a worker failed: {kind}: {message}")

    def keep(self, ended: bool = False) -> None:
        """Keep the state on the disk, if it is time.

        Args:
            ended: Whether the training has ended with it.
        """
        if self.keeper is not None and self.keeper.is_due(ended):
            state: bytes | None = ray_module().get(self.desk.state.remote())
            if state is not None:
                self.keeper.write(state)


def _until_done(work: _Work, told: _Told, count: int, resource: str, name: str) -> None:
    """Train with so many workers, and where some are lost with as many as there still is room for."""
    from ray.train import ControllerError

    check_room(count, resource)
    wanted, lost, waited = count, 0, 0
    while True:
        before, room = told.lines, room_of(resource)
        error = _attempt(work, told, count, resource)
        if error is None:
            return
        if isinstance(error, ControllerError):  # it has not begun
            waited += 1
            if waited >= PATIENCE:
                raise MethodError(f"{name}: no {count} {resource}s were free in {PATIENCE} minutes: {_line(error)}")
        else:
            lost = 1 if told.lines > before else lost + 1
            if lost > LOSSES:
                raise MethodError(f"{name}: workers were lost {lost} times in one epoch, at last so: {_line(error)}")
            _settle(resource, room)
        left = max(1, min(count, room_of(resource)))
        if not isinstance(error, ControllerError) or left < count:
            warn_caller(
                f"{name}: a worker was lost in epoch {told.last}: training goes on from the last epoch "
                f"with {left} of {wanted} workers",
                WorkersWarning,
            )
        count = left


def _attempt(work: _Work, told: _Told, count: int, resource: str) -> Exception | None:
    """One run of Ray Train; gives what ended it, if it was not the end of the training."""
    ray = ray_module()
    from ray.train import FailureConfig, RunConfig, ScalingConfig, TrainingFailedError
    from ray.train.torch import TorchTrainer

    with tempfile.TemporaryDirectory(prefix="credalgnn-", ignore_cleanup_errors=True) as folder, _environment(TRAIN):
        never: dict[str, Any] = {"max_failures": 0, "controller_failure_limit": 0, "max_preemption_failures": 0}
        trainer = TorchTrainer(
            _do_share,
            train_loop_config={"work": work},
            scaling_config=ScalingConfig(num_workers=count, use_gpu=resource == "GPU"),
            run_config=RunConfig(
                name="fit",
                storage_path=folder,
                failure_config=FailureConfig(**never),
            ),
        )
        ended: list[Exception | None] = []

        def run() -> None:
            try:
                trainer.fit()
                ended.append(None)
            except Exception as error:
                ended.append(error)

        thread = threading.Thread(target=run, daemon=True)  # Ray would keep Ctrl-C for itself in the main one
        thread.start()
        try:
            while thread.is_alive():
                check_head()
                end = time.monotonic() + LOOK
                while thread.is_alive() and time.monotonic() < end:
                    told.look()
                    thread.join(POLL)
            told.look()
            ray.get(work.desk.workers.remote())  # are gone, and forgotten
        except NoCluster:
            raise  # nobody is left who could end the workers
        except BaseException:
            with suppress(ray.exceptions.RayError):
                for worker in ray.get(work.desk.workers.remote()):
                    ray.kill(worker)
            thread.join(30)
            raise
    (error,) = ended
    if error is not None and not isinstance(error, TrainingFailedError):
        raise error
    return error


def _settle(resource: str, room: int) -> None:
    """Wait until Ray knows that a machine is gone; perhaps none is."""
    end = time.monotonic() + SETTLE
    while room_of(resource) >= room and time.monotonic() < end:
        time.sleep(POLL)


def _line(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return f"{lines[-1].strip():.200}" if lines else type(error).__name__


@contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    """Variables that are not set otherwise."""
    new = {name: value for name, value in values.items() if name not in os.environ}
    os.environ.update(new)
    try:
        yield
    finally:
        for name in new:
            os.environ.pop(name, None)


class _AtDesk:
    """Keeps the state of a training where it was asked for: the first process sends it, all go on from it."""

    def __init__(self, desk: Any, state: bytes | None, rank: int) -> None:
        self.desk, self.state, self.rank = desk, state, rank

    def load(self) -> dict[str, Any] | None:
        return None if self.state is None else unpacked(self.state)

    def save(self, state: Callable[[], dict[str, Any]], ended: bool) -> None:
        if self.rank == 0:
            ray_module().get(self.desk.save.remote(packed(state())))


def _do_share(config: dict[str, Any]) -> None:
    """What each worker does: the same as one process without others would, on its share of each batch."""
    ray = ray_module()

    work: _Work = config["work"]
    desk = work.desk
    state = ray.get(desk.hello.remote(ray.get_runtime_context().current_actor))
    try:
        check_version(work.version)
        sys.path += [entry for entry in work.path if entry not in sys.path]
        torch.set_num_threads(1)  # results then do not depend on the machine, and none waits for another
        group = Processes()
        method = ray.cloudpickle.loads(work.method)
        keeper = _AtDesk(desk, state, group.rank)
        tell = (lambda line: ray.get(desk.tell.remote(tuple(line)))) if group.rank == 0 else None
        worker = WorkerContext(group, keeper)
        context = Context(work.parts["memory"], progress=False, on_epoch=tell, worker=worker)
        method._fit(_training_data(work), context)
    except (ProcessLost, ray.exceptions.RayError):
        raise
    except Exception as error:
        with suppress(ray.exceptions.RayError):
            ray.get(desk.refuse.remote(type(error).__name__, " ".join(str(error).split())))
        raise


def _training_data(work: _Work) -> TrainingData:
    parcels: dict[str, GraphHandle] = ray_module().get(work.graphs)
    graph = graph_here(parcels["graph"], work.desk)
    val_graph = graph_here(parcels["val_graph"], work.desk) if "val_graph" in parcels else graph
    parts = work.parts
    names = ("train", "val", "num_classes", "class_names", "fingerprint")
    view = TrainingView(graph, val_graph, *(parts[name] for name in names))
    validation = None if parts["validation"] is None else Part(*parts["validation"])
    return TrainingData(view, graph, validation, parts["train_nodes"])
