"""Ray cluster: predictions of a large graph as tasks, and training of one network by several processes.

Ray repeats a task whose machine is lost, and those whose results were lost with it; tasks give the same numbers
wherever they run. Workers of a training that lose another one continue from the last epoch.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .._version import __version__
from ..graphs import Graph, GraphError, Part, TrainingView
from ..graphs.sharing import GraphHandle, from_handle, handle_of
from ..nn import Classifier, TrainingError
from ..nn.backbones import Stack
from ..nn.chunks import LEAVE, Scratch, latent_of
from ..nn.distributed import Processes, ProcessLost
from ..nn.layers import MessageLayer, rows_of
from ..nn.training import Epoch, show_epoch
from ..runtime.context import Context, WorkerContext
from ..runtime.errors import translated
from ..runtime.names import install_hint
from ..runtime.progress import Progress
from ..runtime.ray import Coordinator, NoCluster, check_head, connect, ray_module
from ..runtime.warn import warn_caller
from .checkpoints import Checkpoint
from .checkpoints import packed as packed_state
from .checkpoints import unpacked as unpacked_state
from .inputs import inputs_by_rows
from .prediction import MethodError
from .training_data import TrainingData

if TYPE_CHECKING:
    from .network import Network

R = TypeVar("R")

RETRIES = 5  # of a task whose machine is lost
BLOCKS = 4  # ranges of nodes for each worker, so that none waits long for another
BYTES = 1 << 28  # of the latents of a range, at most
PATIENCE = 10  # minutes to wait for processors
LOOK = 2.0  # seconds between two checks whether the cluster still has processors
LOSSES = 3  # losses of workers without an epoch in between after which a fit gives up
POLL = 0.2  # seconds between two looks at what workers report
SETTLE = 20.0  # seconds after a loss in which Ray may find out that a whole machine is gone
ERRORS: dict[str, type[Exception]] = {each.__name__: each for each in (MethodError, GraphError, TrainingError)}
TRAIN = {  # of Ray Train, whose defaults are for trainings of days
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.5",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "RAY_TRAIN_METRICS_ENABLED": "0",
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",  # a process more; a lost machine is noticed anyway
}


class WorkersWarning(UserWarning):
    """Processes of a cluster were lost, and the work continues without them."""


def check_count(workers: object) -> None:
    """Refuse an impossible number of workers."""
    if workers is None:
        raise MethodError("address= names a Ray cluster: give the number of its processes, workers=, too")
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
        raise MethodError(f"workers must be a whole number of 1 or more, not {workers!r:.60}")
    for package in ("ray", "pydantic", "pyarrow"):
        if find_spec(package) is None:
            raise MethodError(f"workers need {package}: {install_hint(package, 'ray')}")


@contextmanager
def connected(address: str | None, workers: int | None) -> Iterator[Tasks]:
    """Connect to a cluster, unless there is a connection already, and yield its tasks.

    Args:
        address: ``HOST:PORT``; None: the cluster that Ray finds.
        workers: Number of tasks at a time, accepted by ``check_count``.
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
    """Return the error for a failure of Ray itself, often a head that is gone."""
    try:
        if not isinstance(error, NoCluster):
            check_head()
    except NoCluster as gone:
        error = gone
    if isinstance(error, NoCluster):
        return MethodError(str(error))
    if isinstance(error, ray_module().exceptions.RayActorError):
        return coordinator_lost()
    return MethodError(f"the Ray cluster failed: {type(error).__name__}: {_line(error)}")


class Remote(NamedTuple):
    """Common argument of all tasks on one graph.

    Attributes:
        content: Hash of the graph's features and edges.
        handle: The graph.
        coordinator: Actor that serves it to machines that do not see its folder.
        backbone: The network below the head, pickled: its class may be importable only with ``path``.
        path: Search path of modules.
        version: Version of this package.
    """

    content: str
    handle: Any
    coordinator: Any
    backbone: bytes
    path: list[str]
    version: str


class Tasks:
    """Tasks of a connected Ray cluster, `workers` at a time with one processor each; see ``runtime.threads.Jobs``."""

    def __init__(self, workers: int) -> None:
        self.workers = workers

    def map(self, function: Callable[..., R], arguments: Iterable[tuple[Any, ...]]) -> Iterator[R]:
        for reference in self.run(function, arguments):
            yield self.value(reference)

    def share(self, value: Any) -> Any:
        """Return a reference to a value, which machines fetch once."""
        return ray_module().put(value)

    def run(self, function: Callable[..., Any], arguments: Iterable[tuple[Any, ...]]) -> Iterator[Any]:
        """Yield references to the results of calls, in the order of the arguments.

        References among the arguments become what they refer to.
        """
        ray = ray_module()
        task = ray.remote(num_cpus=1, max_retries=RETRIES, scheduling_strategy="SPREAD")(_on_one_thread)
        running: list[Any] = []
        waiting: deque[Any] = deque()
        for each in arguments:
            while len(running) >= self.workers or len(waiting) > BLOCKS * self.workers:
                running = self._unfinished(running, fetch=False) if running else []
                while waiting and waiting[0] not in running:
                    yield waiting.popleft()
            reference = task.remote(function, *each)
            running.append(reference)
            waiting.append(reference)
        while waiting:
            self._unfinished([waiting[0]], fetch=False)
            yield waiting.popleft()

    def _unfinished(self, references: list[Any], fetch: bool) -> list[Any]:
        """Wait for one of some references while a processor could compute it, and return the others."""
        ray = ray_module()
        deserted: float | None = None  # since when
        while True:
            ready, others = ray.wait(references, fetch_local=fetch, timeout=LOOK)
            if ready:
                unfinished: list[Any] = others
                return unfinished
            if room_of("CPU"):
                deserted = None
            elif deserted is None:
                deserted = time.monotonic()
                warn_caller(
                    f"no machine of the Ray cluster has a processor any more: waiting {PATIENCE} minutes for one",
                    WorkersWarning,
                )
            elif time.monotonic() > deserted + 60 * PATIENCE:
                raise MethodError(
                    f"no machine of the Ray cluster has had a processor for {PATIENCE} minutes: start some, then try "
                    "again"
                )

    def value(self, reference: Any) -> Any:
        """Return the value of a reference, or raise what its task raised."""
        ray = ray_module()
        self._unfinished([reference], fetch=True)
        try:
            return ray.get(reference)
        except ray.exceptions.RayTaskError as error:
            cause = error.cause
            if isinstance(cause, ray.exceptions.RayActorError):
                raise coordinator_lost() from None
            if isinstance(cause, ValueError):  # MethodError and GraphError among them
                raise cause from None
            raise MethodError(f"a task failed: {type(cause).__name__}: {' '.join(str(cause).split()):.300}") from error
        except ray.exceptions.RayError as error:
            line = " ".join(str(error).split())
            raise MethodError(f"a task was lost {RETRIES + 1} times, last: {line:.300}") from None

    def latents(
        self, backbone: Stack, graph: Graph, scratch: Scratch, report: Callable[[str, float], None]
    ) -> list[Tensor]:
        """Return the latents z1 .. zL of all nodes, as ``latents_by_chunks``, from ranges of nodes on the cluster.

        What nodes send and receive goes from machine to machine; all latents come here, too.

        Args:
            backbone: Backbone in evaluation, accepted by ``check_chunks``.
            graph: In memory or packed.
            scratch: Storage of the latents here; its groups of columns are those of a task.
            report: Called with the name of a layer and the share of it that is done.
        """
        _, edges = inputs_by_rows(graph)
        count, depth = edges.num_nodes, len(backbone.convs)
        blocks = _ranges(edges.edges.starts, BLOCKS * self.workers, BYTES // (4 * max(backbone.widths)))
        latents: list[Tensor] = []
        with _shared(backbone, graph) as remote:
            before: list[Any] = [None] * len(blocks)
            for number, layer in enumerate(backbone.convs, 1):
                width = backbone.widths[number - 1]
                groups = scratch.groups(count, width)
                made = scratch.matrix(count, width, LEAVE)  # what is left, a task may use for the next layer
                sent: list[Any] = []
                if isinstance(layer, MessageLayer):
                    calls = ((remote, number, *each, z) for each, z in zip(blocks, before, strict=True))
                    sent = list(self.run(_send, calls))
                more = ((remote, number, *each, groups, sent, z) for each, z in zip(blocks, before, strict=True))
                after = []
                for (first, last), reference in zip(blocks, self.run(_latents, more), strict=True):
                    made[first:last] = torch.from_numpy(np.array(self.value(reference)))
                    after.append(reference)
                    report(f"layer {number} of {depth}", last / count)
                    scratch.release()
                before = after
                latents.append(made)
        return latents


def start_coordinator(handles: Iterable[GraphHandle]) -> Any:
    """Start an actor on this machine that serves the folders of packed graphs to machines that do not see them."""
    ray = ray_module()
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    folders = {str(each.path): each.path.resolve() for each in handles if each.path is not None}
    return ray.remote(num_cpus=0, scheduling_strategy=here)(Coordinator).remote(folders)


def coordinator_lost() -> MethodError:
    """Return the error for a lost coordinator."""
    return MethodError(
        f"a process of Ray on {os.uname().nodename} that coordinates the work is gone (was memory short?): try again"
    )


def room_of(resource: str) -> int:
    """Return the number of processors (``"CPU"``) or GPUs (``"GPU"``) of the cluster, in use or not."""
    check_head()
    nodes: list[dict[str, Any]] = ray_module().nodes()
    return sum(int(node["Resources"].get(resource, 0)) for node in nodes if node["Alive"])


def check_room(workers: int, resource: str = "CPU") -> None:
    """Refuse more workers than the cluster has processors or GPUs."""
    room = room_of(resource)
    if room < workers:
        raise MethodError(
            f"workers={workers}: the cluster has {room} {resource}s, and each worker takes one; start more machines, "
            "or take fewer workers"
        )


def modules_path() -> list[str]:
    """Return the search path of modules, for processes with another one."""
    return [os.path.abspath(entry) for entry in sys.path]  # an empty entry is the working folder


def check_version(version: str) -> None:
    """Refuse to work for a machine with another version of this package."""
    if version != __version__:
        raise MethodError(
            f"credalgnn {__version__} is on {os.uname().nodename}, and {version} on the machine that started the work"
        )


def graph_here(handle: GraphHandle, coordinator: Any) -> Graph:
    """Return the graph of a handle, whose folder this machine may have to fetch."""
    ray = ray_module()

    def fetch(folder: str, name: str, *place: int) -> bytes:
        with translated(
            ray.exceptions.RayTaskError,
            lambda error: GraphError(
                f"{folder}: {name} cannot be read any more on the machine that started the work ({error.cause}); open "
                "it again"
            ),
        ):
            content: bytes = ray.get(coordinator.read.remote(folder, name, *place))
        return content

    return from_handle(handle, fetch)


@contextmanager
def _shared(backbone: Stack, graph: Graph) -> Iterator[Any]:
    """Yield a reference to the ``Remote`` of a graph while its coordinator runs."""
    ray = ray_module()
    handle = handle_of(graph)
    coordinator = start_coordinator([handle])
    try:
        pickled = ray.cloudpickle.dumps(backbone)
        yield ray.put(Remote(graph.content, handle, coordinator, pickled, modules_path(), __version__))
    finally:
        ray.kill(coordinator)


def _ranges(starts: Tensor, count: int, rows: int) -> list[tuple[int, int]]:
    """Split the nodes into about `count` ranges of equal work and at most `rows` nodes: first and last + 1."""
    nodes = len(starts) - 1
    work = starts + 8 * torch.arange(nodes + 1)  # a node's own rows are as much work as some edges
    inner = torch.searchsorted(work, torch.arange(1, count) * (int(work[-1]) // count)).tolist()
    ends = sorted({0, nodes, *inner, *range(0, nodes, max(1, rows))})
    return list(pairwise(ends))


_opened: tuple[tuple[str, bytes], Graph, Stack] | None = None  # the last graph, in a process that runs tasks


def _on_one_thread(function: Callable[..., R], *arguments: Any) -> R:
    """Call a function on one thread, so that results do not depend on the machine."""
    from threadpoolctl import threadpool_limits

    torch.set_num_threads(1)
    with threadpool_limits(1), torch.no_grad():
        return function(*arguments)


def _open(remote: Remote) -> tuple[Graph, Stack]:
    """Return the graph and the backbone, opened once by each process."""
    global _opened
    check_version(remote.version)
    key = remote.content, remote.backbone
    if _opened is None or _opened[0] != key:
        sys.path += [entry for entry in remote.path if entry not in sys.path]
        backbone = ray_module().cloudpickle.loads(remote.backbone)
        _opened = key, graph_here(remote.handle, remote.coordinator), backbone
    return _opened[1], _opened[2]


def _rows(graph: Graph, first: int, last: int, before: NDArray[Any] | None) -> Any:
    """Return the features of some nodes, or their latents from another task."""
    if before is not None:
        return torch.from_numpy(np.array(before))
    x, _ = inputs_by_rows(graph)
    return rows_of(x, slice(first, last))


def _send(remote: Remote, number: int, first: int, last: int, before: NDArray[Any] | None) -> NDArray[Any]:
    """Return what some nodes send along their edges."""
    graph, backbone = _open(remote)
    layer = backbone.convs[number - 1]
    assert isinstance(layer, MessageLayer)
    sent: NDArray[Any] = layer.send(_rows(graph, first, last, before)).numpy()
    graph.release()
    return sent


def _latents(
    remote: Remote,
    number: int,
    first: int,
    last: int,
    groups: list[slice],
    sent: list[Any],
    before: NDArray[Any] | None,
) -> NDArray[Any]:
    """Return the latents of some nodes after a layer; memory holds a group of columns of what all nodes send."""
    ray = ray_module()
    graph, backbone = _open(remote)
    _, edges = inputs_by_rows(graph)
    layer = backbone.convs[number - 1]
    made = torch.empty(last - first, backbone.widths[number - 1])
    for columns in groups if isinstance(layer, MessageLayer) else ():
        assert isinstance(layer, MessageLayer)
        whole = np.empty((edges.num_nodes, columns.stop - columns.start), np.float32)
        begin = 0
        for reference in sent:
            block = ray.get(reference)
            whole[begin : begin + len(block)] = block[:, columns]
            begin += len(block)
        for low, high in edges.edges.chunks(first=first, end=last):
            made[low - first : high - first, columns] = edges.rows(layer.operator, low, high) @ torch.from_numpy(whole)
            graph.release()
        del whole
    latents: NDArray[Any] = latent_of(backbone, number, made, _rows(graph, first, last, before)).numpy()
    graph.release()
    return latents


class _Work(NamedTuple):
    """Argument of a worker; the method is pickled, as its class may be importable only with ``path``."""

    coordinator: Any
    graphs: Any
    parts: dict[str, Any]
    method: bytes
    path: list[str]
    version: str


def train_by_workers(
    method: Network, module: Classifier, training: TrainingData, context: Context, checkpoint: Checkpoint | None
) -> list[Epoch]:
    """Train a network by the processes of a cluster, and return the training curve.

    Args:
        method: Source of the hyper-parameters.
        module: Network that gets the weights.
        training: Training data.
        context: Context of the call, with the number of workers.
        checkpoint: Storage of the state on this machine; None: it is not kept.
    """
    ray = ray_module()
    assert context.workers is not None
    saved = None if checkpoint is None else checkpoint.load()
    if saved is not None and saved["ended"]:
        return _take_over(module, saved)
    view = training.view
    graphs = {"graph": handle_of(view.graph)}
    if view.val_graph is not view.graph:
        graphs["val_graph"] = handle_of(view.val_graph)
    coordinator = start_coordinator(graphs.values())
    parts = {
        "train": view.train, "val": view.val, "num_classes": view.num_classes, "class_names": view.class_names,
        "fingerprint": view.fingerprint, "memory": context.memory, "train_nodes": training.train_nodes,
        "validation": None if training.validation is None else tuple(vars(training.validation).values()),
    }  # fmt: skip
    work = _Work(
        coordinator, ray.put(graphs), parts, ray.cloudpickle.dumps(method.clone()), modules_path(), __version__
    )
    on_gpu = torch.device(method.device).type == "cuda"
    done = 0 if saved is None else len(saved["curve"]) - 1
    with Progress(method.epochs, f"{method.name} seed {method.seed}", "epochs", context.progress, done) as shown:
        reports = _Reports(coordinator, shown, context.on_epoch, checkpoint, done)
        try:
            if saved is not None:
                ray.get(coordinator.save.remote(packed_state(saved)))
            _train_until_done(work, reports, context.workers, "GPU" if on_gpu else "CPU", method.name)
            reports.save(ended=True)
            state = unpacked_state(ray.get(coordinator.state.remote()))
        finally:
            ray.kill(coordinator)
    return _take_over(module, state)


def _take_over(module: Classifier, state: dict[str, Any]) -> list[Epoch]:
    """Load the best weights of a finished training into a network, and return the curve."""
    module.load_state_dict(state["best_state"])
    module.eval()
    return [Epoch(*line) for line in state["curve"]]


class _Reports:
    """Reports of workers, passed on to the progress display, the callback and, now and then, the checkpoint."""

    def __init__(
        self,
        coordinator: Any,
        shown: Progress,
        on_epoch: Callable[[Epoch], None] | None,
        checkpoint: Checkpoint | None = None,
        done: int = 0,
    ) -> None:
        self.coordinator, self.shown, self.on_epoch, self.checkpoint = coordinator, shown, on_epoch, checkpoint
        self.lines, self.last = 0, done

    def update(self) -> None:
        """Pass on new lines of the curve, and raise what a worker has raised."""
        self.save()
        lines, refusal = ray_module().get(self.coordinator.updates.remote(self.lines))
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

    def save(self, ended: bool = False) -> None:
        """Write the coordinator's state to disk, if it is time."""
        if self.checkpoint is not None and self.checkpoint.is_due(ended):
            state: bytes | None = ray_module().get(self.coordinator.state.remote())
            if state is not None:
                self.checkpoint.write(state)


def _train_until_done(work: _Work, reports: _Reports, count: int, resource: str, name: str) -> None:
    """Train with `count` workers, and after losses with as many as there still is room for."""
    from ray.train import ControllerError

    check_room(count, resource)
    requested, lost, waited = count, 0, 0
    while True:
        before, room = reports.lines, room_of(resource)
        error = _attempt(work, reports, count, resource)
        if error is None:
            return
        if isinstance(error, ControllerError):  # it has not begun
            waited += 1
            if waited >= PATIENCE:
                raise MethodError(f"{name}: no {count} {resource}s were free in {PATIENCE} minutes: {_line(error)}")
        else:
            lost = 1 if reports.lines > before else lost + 1
            if lost > LOSSES:
                raise MethodError(f"{name}: workers were lost {lost} times in one epoch, last: {_line(error)}")
            _settle(resource, room)
        left = max(1, min(count, room_of(resource)))
        if not isinstance(error, ControllerError) or left < count:
            warn_caller(
                f"{name}: a worker was lost in epoch {reports.last}: training continues from the last epoch "
                f"with {left} of {requested} workers",
                WorkersWarning,
            )
        count = left


def _attempt(work: _Work, reports: _Reports, count: int, resource: str) -> Exception | None:
    """Run Ray Train once, and return the error that ended it, if any."""
    ray = ray_module()
    from ray.train import FailureConfig, RunConfig, ScalingConfig, TrainingFailedError
    from ray.train.torch import TorchTrainer

    with tempfile.TemporaryDirectory(prefix="credalgnn-", ignore_cleanup_errors=True) as folder, _environment(TRAIN):
        never: dict[str, Any] = {"max_failures": 0, "controller_failure_limit": 0, "max_preemption_failures": 0}
        trainer = TorchTrainer(
            _work_on_share,
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
                    reports.update()
                    thread.join(POLL)
            reports.update()
            ray.get(work.coordinator.workers.remote())  # are gone, and forgotten
        except NoCluster:
            raise  # nobody is left who could end the workers
        except BaseException:
            with suppress(ray.exceptions.RayError):
                for worker in ray.get(work.coordinator.workers.remote()):
                    ray.kill(worker)
            thread.join(30)
            raise
    (error,) = ended
    if error is not None and not isinstance(error, TrainingFailedError):
        raise error
    return error


def _settle(resource: str, room: int) -> None:
    """Wait until Ray has noticed a lost machine, if one was lost."""
    end = time.monotonic() + SETTLE
    while room_of(resource) >= room and time.monotonic() < end:
        time.sleep(POLL)


def _line(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return f"{lines[-1].strip():.200}" if lines else type(error).__name__


@contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    """Set environment variables that are not set otherwise."""
    new = {name: value for name, value in values.items() if name not in os.environ}
    os.environ.update(new)
    try:
        yield
    finally:
        for name in new:
            os.environ.pop(name, None)


class _RemoteStore:
    """Storage of training states at the coordinator: the first process sends them, all continue from them."""

    def __init__(self, coordinator: Any, state: bytes | None, rank: int) -> None:
        self.coordinator, self.state, self.rank = coordinator, state, rank

    def load(self) -> dict[str, Any] | None:
        return None if self.state is None else unpacked_state(self.state)

    def save(self, state: Callable[[], dict[str, Any]], ended: bool) -> None:
        if self.rank == 0:
            ray_module().get(self.coordinator.save.remote(packed_state(state())))


def _work_on_share(config: dict[str, Any]) -> None:
    """Train in a worker, as one process would, on its share of each batch."""
    ray = ray_module()
    work: _Work = config["work"]
    coordinator = work.coordinator
    state = ray.get(coordinator.register.remote(ray.get_runtime_context().current_actor))
    try:
        check_version(work.version)
        sys.path += [entry for entry in work.path if entry not in sys.path]
        torch.set_num_threads(1)  # results then do not depend on the machine, and none waits for another
        group = Processes()
        method = ray.cloudpickle.loads(work.method)
        checkpoint = _RemoteStore(coordinator, state, group.rank)
        report = (lambda line: ray.get(coordinator.report.remote(tuple(line)))) if group.rank == 0 else None
        worker = WorkerContext(group, checkpoint)
        context = Context(work.parts["memory"], progress=False, on_epoch=report, worker=worker)
        method._fit(_training_data(work), context)
    except (ProcessLost, ray.exceptions.RayError):
        raise
    except Exception as error:
        with suppress(ray.exceptions.RayError):
            ray.get(coordinator.refuse.remote(type(error).__name__, " ".join(str(error).split())))
        raise


def _training_data(work: _Work) -> TrainingData:
    handles: dict[str, GraphHandle] = ray_module().get(work.graphs)
    graph = graph_here(handles["graph"], work.coordinator)
    val_graph = graph_here(handles["val_graph"], work.coordinator) if "val_graph" in handles else graph
    parts = work.parts
    names = ("train", "val", "num_classes", "class_names", "fingerprint")
    view = TrainingView(graph, val_graph, *(parts[name] for name in names))
    validation = None if parts["validation"] is None else Part(*parts["validation"])
    return TrainingData(view, graph, validation, parts["train_nodes"])
