"""Chunks of work that know nothing of each other: for threads of this process, or for tasks of a Ray cluster."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from ..graphs import Graph
from ..nn.backbones import Stack
from ..nn.chunks import Scratch

R = TypeVar("R")


class Jobs(Protocol):
    """Does chunks of work, several at a time; ``Threads`` here, ``tasks.Tasks`` on a cluster."""

    def map(self, function: Callable[..., R], arguments: Iterable[tuple[Any, ...]]) -> Iterator[R]:
        """What a function gives for some arguments, in their order; these are made as they are needed.

        Args:
            function: At the top of a module: other processes import it.
            arguments: Of each call.
        """

    def share(self, value: Any) -> Any:
        """What to give in place of an argument that many calls have, so that it is not sent with each.

        Args:
            value: The argument.
        """


class Cluster(Jobs, Protocol):
    """Machines that do chunks of work, and that can all see one graph."""

    def latents(
        self, backbone: Stack, graph: Graph, scratch: Scratch, tell: Callable[[str, float], None]
    ) -> list[Tensor]:
        """The latents z1 .. zL of all nodes of a graph: what ``latents_by_chunks`` gives.

        Args:
            backbone: Whose dropout is off; ``check_chunks`` has not refused it.
            graph: In memory, or opened.
            scratch: Where the latents find room here, and how much room a chunk of work has.
            tell: Hears how far each layer is.
        """


class Threads:
    """Work for as many threads as torch may use when this is made; memory holds the arguments of two calls a thread."""

    def __init__(self) -> None:
        self.count = torch.get_num_threads()  # inside ``one_thread`` torch may use but one

    def map(self, function: Callable[..., R], arguments: Iterable[tuple[Any, ...]]) -> Iterator[R]:
        waiting: deque[Future[R]] = deque()
        with ThreadPoolExecutor(self.count) as pool:
            for each in arguments:
                if len(waiting) == 2 * self.count:
                    yield waiting.popleft().result()
                waiting.append(pool.submit(function, *each))
            while waiting:
                yield waiting.popleft().result()

    def share(self, value: Any) -> Any:
        return value
