"""Predictions of one large graph by many machines: chunks of it as tasks of a Ray cluster.

Ray does a task again whose machine is lost, and those whose results were lost with it; all of them give the same
numbers wherever they are done.
"""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .._version import __version__
from ..graphs import Graph, GraphError
from ..graphs.sharing import parcel_of, unpacked
from ..nn.backbones import Stack
from ..nn.chunks import LEAVE, Scratch, latent_of
from ..nn.layers import MessageLayer, rows_of
from ..runtime.ray import Coordinator, check_head, ray_module
from ..runtime.warn import warn_caller
from .inputs import inputs_by_rows
from .prediction import MethodError

R = TypeVar("R")

RETRIES = 5  # of a task whose machine is lost
BLOCKS = 4  # stretches of nodes for each worker, so that none waits long for another
BYTES = 1 << 28  # of the latents of a stretch, at the most
PATIENCE = 10  # minutes that processors are waited for
LOOK = 2.0  # seconds between two looks at whether anybody is there to be waited for


class WorkersWarning(UserWarning):
    """Processes of a cluster were lost, and the work goes on without them."""


class Remote(NamedTuple):
    """What all tasks on one graph are told.

    Attributes:
        content: The hash of the graph's features and edges.
        parcel: The graph.
        desk: Who gives it to machines that do not see its folder.
        backbone: The network below the head, pickled: its class may be found only when ``path`` is known.
        path: Where modules are looked for.
        version: Of this package.
    """

    content: str
    parcel: Any
    desk: Any
    backbone: bytes
    path: list[str]
    version: str


class Tasks:
    """So many tasks of a Ray cluster at a time, one processor each; there is a connection to it.

    Args:
        workers: How many.
    """

    def __init__(self, workers: int) -> None:
        self.workers = workers

    def map(self, function: Callable[..., R], arguments: Iterable[tuple[Any, ...]]) -> Iterator[R]:
        """What a function gives for some arguments, in their order; see ``Jobs``.

        Args:
            function: At the top of a module.
            arguments: Of each call.
        """
        for reference in self.run(function, arguments):
            yield self.value(reference)

    def share(self, value: Any) -> Any:
        """A reference to a value, which machines fetch once.

        Args:
            value: What is shared.
        """
        return ray_module().put(value)

    def run(self, function: Callable[..., Any], arguments: Iterable[tuple[Any, ...]]) -> Iterator[Any]:
        """References to what ``map`` gives, as they are finished, in the order of the arguments.

        Args:
            function: At the top of a module.
            arguments: Of each call; references among them become what they refer to.
        """
        ray = ray_module()
        task = ray.remote(num_cpus=1, max_retries=RETRIES, scheduling_strategy="SPREAD")(_alone)
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
        """Wait for one of some references, as long as there is a processor that could do it; gives the others."""
        ray = ray_module()
        deserted: float | None = None  # since when
        while True:
            ready, others = ray.wait(references, fetch_local=fetch, timeout=LOOK)
            if ready:
                left: list[Any] = others
                return left
            if room_of("CPU"):
                deserted = None
            elif deserted is None:
                deserted = time.monotonic()
                warn_caller(
                    f"no machine of the Ray cluster has a processor any more: one is waited for, {PATIENCE} minutes",
                    WorkersWarning,
                )
            elif time.monotonic() > deserted + 60 * PATIENCE:
                raise MethodError(
                    f"no machine of the Ray cluster has had a processor for {PATIENCE} minutes: start some, and then "
                    "the same once more"
                )

    def value(self, reference: Any) -> Any:
        """What a reference refers to; what a task refused is raised as if it had been refused here.

        Args:
            reference: Of ``run``.
        """
        ray = ray_module()
        self._unfinished([reference], fetch=True)
        try:
            return ray.get(reference)
        except ray.exceptions.RayTaskError as error:
            cause = error.cause
            if isinstance(cause, ray.exceptions.RayActorError):
                raise desk_lost() from None
            if isinstance(cause, ValueError):  # MethodError and GraphError among them
                raise cause from None
            raise MethodError(f"a task failed: {type(cause).__name__}: {' '.join(str(cause).split()):.300}") from error
        except ray.exceptions.RayError as error:
            line = " ".join(str(error).split())
            raise MethodError(f"a task was lost {RETRIES + 1} times, at last so: {line:.300}") from None

    def latents(
        self, backbone: Stack, graph: Graph, scratch: Scratch, tell: Callable[[str, float], None]
    ) -> list[Tensor]:
        """The latents z1 .. zL of all nodes: what ``latents_by_chunks`` gives, stretch by stretch on the cluster.

        What nodes send and receive goes from machine to machine; all latents come here, too.

        Args:
            backbone: Whose dropout is off; ``check_chunks`` has not refused it.
            graph: In memory, or opened.
            scratch: Where the latents find room here, and how much room a task has.
            tell: Hears how far each layer is.
        """
        _, edges = inputs_by_rows(graph)
        count, depth = edges.num_nodes, len(backbone.convs)
        blocks = _stretches(edges.edges.starts, BLOCKS * self.workers, BYTES // (4 * max(backbone.widths)))
        latents: list[Tensor] = []
        with _told(backbone, graph) as remote:
            before: list[Any] = [None] * len(blocks)
            for number, layer in enumerate(backbone.convs, 1):
                width = backbone.widths[number - 1]
                groups = scratch.groups(count, width)
                made = scratch.matrix(count, width, LEAVE)  # what is left, a task may use for the next layer
                sent: list[Any] = []
                if isinstance(layer, MessageLayer):
                    work = ((remote, number, *each, own) for each, own in zip(blocks, before, strict=True))
                    sent = list(self.run(_send, work))
                more = ((remote, number, *each, groups, sent, own) for each, own in zip(blocks, before, strict=True))
                behind = []
                for (first, last), reference in zip(blocks, self.run(_latents, more), strict=True):
                    made[first:last] = torch.from_numpy(np.array(self.value(reference)))
                    behind.append(reference)
                    tell(f"layer {number} of {depth}", last / count)
                    scratch.release()
                before = behind
                latents.append(made)
        return latents


def desk_for(parcels: Iterable[Any]) -> Any:
    """An actor on this machine that gives the folders of packed graphs to machines that do not see them.

    Args:
        parcels: What ``parcel_of`` made of the graphs.
    """
    ray = ray_module()
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    folders = {str(each.path): each.path.resolve() for each in parcels if each.path is not None}
    return ray.remote(num_cpus=0, scheduling_strategy=here)(Coordinator).remote(folders)


def desk_lost() -> MethodError:
    """What a person is told when an actor on the machine that asks is gone, as what ``desk_for`` made is one."""
    return MethodError(
        f"a process of Ray on {os.uname().nodename} that leads the work or keeps what was done so far is gone (was "
        "memory short?): start the same once more"
    )


def room_of(resource: str) -> int:
    """How many processors or GPUs the machines of the cluster have, whoever uses them now.

    Args:
        resource: ``"CPU"`` or ``"GPU"``.
    """
    check_head()
    nodes: list[dict[str, Any]] = ray_module().nodes()
    return sum(int(node["Resources"].get(resource, 0)) for node in nodes if node["Alive"])


def check_room(workers: int, resource: str = "CPU") -> None:
    """Refuse more workers than the cluster has room for.

    Args:
        workers: How many.
        resource: What each of them takes.
    """
    room = room_of(resource)
    if room < workers:
        raise MethodError(
            f"workers={workers}: the cluster has {room} {resource}s, and each worker takes one; start more machines, "
            "or take fewer workers"
        )


def modules_path() -> list[str]:
    """Where modules are looked for here, for processes that look elsewhere."""
    return [os.path.abspath(entry) for entry in sys.path]  # an empty entry is the working folder


def check_version(version: str) -> None:
    """Refuse to work for a machine that has another version of this package.

    Args:
        version: The version there.
    """
    if version != __version__:
        raise MethodError(
            f"credalgnn {__version__} is on {os.uname().nodename}, and {version} on the machine that asks"
        )


def graph_here(parcel: Any, desk: Any) -> Graph:
    """The graph of a parcel, of which this machine may have to fetch the folder.

    Args:
        parcel: What ``parcel_of`` made.
        desk: What ``desk_for`` made.
    """
    ray = ray_module()

    def fetch(folder: str, name: str, *place: int) -> bytes:
        try:
            found: bytes = ray.get(desk.read.remote(folder, name, *place))
        except ray.exceptions.RayTaskError as error:
            raise GraphError(
                f"{folder}: {name} cannot be read any more on the machine that asks ({error.cause}); open it again"
            ) from None
        return found

    return unpacked(parcel, fetch)


@contextmanager
def _told(backbone: Stack, graph: Graph) -> Iterator[Any]:
    """A reference to what tasks are told, and somebody at the desk."""
    ray = ray_module()
    parcel = parcel_of(graph)
    desk = desk_for([parcel])
    try:
        pickled = ray.cloudpickle.dumps(backbone)
        yield ray.put(Remote(graph.content, parcel, desk, pickled, modules_path(), __version__))
    finally:
        ray.kill(desk)


def _stretches(starts: Tensor, count: int, rows: int) -> list[tuple[int, int]]:
    """Consecutive nodes in about so many stretches of the same work, none with too many nodes: first and last + 1."""
    nodes = len(starts) - 1
    work = starts + 8 * torch.arange(nodes + 1)  # a node's own rows are as much work as some edges
    wanted = torch.arange(1, count) * (int(work[-1]) // count)
    inner = torch.searchsorted(work, wanted).tolist()
    ends = sorted({0, nodes, *inner, *range(0, nodes, max(1, rows))})
    return list(pairwise(ends))


_known: tuple[tuple[str, bytes], Graph, Stack] | None = None  # of the last graph, in a process that does tasks


def _alone(function: Callable[..., R], *arguments: Any) -> R:
    """A call on one thread: results then do not depend on the machine."""
    from threadpoolctl import threadpool_limits

    torch.set_num_threads(1)
    with threadpool_limits(1), torch.no_grad():
        return function(*arguments)


def _opened(remote: Remote) -> tuple[Graph, Stack]:
    """The graph and the backbone, opened once by each process."""
    global _known
    check_version(remote.version)
    key = remote.content, remote.backbone
    if _known is None or _known[0] != key:
        sys.path += [entry for entry in remote.path if entry not in sys.path]
        backbone = ray_module().cloudpickle.loads(remote.backbone)
        _known = key, graph_here(remote.parcel, remote.desk), backbone
    return _known[1], _known[2]


def _own(graph: Graph, first: int, last: int, before: NDArray[Any] | None) -> Any:
    """Features of some nodes, or the latents that another task has found."""
    if before is not None:
        return torch.from_numpy(np.array(before))
    x, _ = inputs_by_rows(graph)
    return rows_of(x, slice(first, last))


def _send(remote: Remote, number: int, first: int, last: int, before: NDArray[Any] | None) -> NDArray[Any]:
    """What some nodes send along their edges."""
    graph, backbone = _opened(remote)
    layer = backbone.convs[number - 1]
    assert isinstance(layer, MessageLayer)
    sent: NDArray[Any] = layer.send(_own(graph, first, last, before)).numpy()
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
    """The latents of some nodes behind a layer; of what all nodes send, memory holds a group of columns at a time."""
    ray = ray_module()
    graph, backbone = _opened(remote)
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
    found: NDArray[Any] = latent_of(backbone, number, made, _own(graph, first, last, before)).numpy()
    graph.release()
    return found
