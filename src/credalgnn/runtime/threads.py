"""Independent calls in several threads, with results in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

import torch

R = TypeVar("R")


class Jobs(Protocol):
    """Independent calls, several at a time: ``Threads`` here, ``methods.cluster.Tasks`` on a cluster."""

    def map(self, function: Callable[..., R], arguments: Iterable[tuple[Any, ...]]) -> Iterator[R]:
        """Yield the results of calls in the order of their arguments, which are made as they are needed.

        The function is at the top of a module, because other processes import it.
        """

    def share(self, value: Any) -> Any:
        """Return a stand-in for an argument of many calls, so that it is not sent with each."""


class Threads:
    """Calls in as many threads as torch may use at construction; memory holds the arguments of two calls per thread."""

    def __init__(self) -> None:
        self.count = torch.get_num_threads()

    def map(self, function: Callable[..., R], arguments: Iterable[tuple[Any, ...]]) -> Iterator[R]:
        return map_in_threads(function, arguments, self.count, 2 * self.count)

    def share(self, value: Any) -> Any:
        return value


def map_in_threads(
    function: Callable[..., R], arguments: Iterable[tuple[Any, ...]], threads: int, window: int
) -> Iterator[R]:
    """Yield results in the order of the arguments, at most ``window`` of which are started and not yet yielded."""
    waiting: deque[Future[R]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        for each in arguments:
            if len(waiting) == window:
                yield waiting.popleft().result()
            waiting.append(pool.submit(function, *each))
        while waiting:
            yield waiting.popleft().result()
