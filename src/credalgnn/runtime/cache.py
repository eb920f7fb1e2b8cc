"""Bounded cache of results, typed by the functions that make them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Any, TypeVar

T = TypeVar("T")


class Cache:
    """Thread-safe cache; beyond `size` results the least recently used is dropped.

    A result is made outside of the lock: threads that ask for it at the same time may all make it, and all get the one
    that was stored first. Copies and pickles of a cache are empty.
    """

    def __init__(self, size: int = 16) -> None:
        self.size = size
        self._results: OrderedDict[Hashable, Any] = OrderedDict()
        self._lock = Lock()

    def get(self, make: Callable[[], T], *key: Hashable) -> T:
        """Return the result stored under `key`; make and store it if there is none."""
        with self._lock:
            if key in self._results:
                self._results.move_to_end(key)
                result: T = self._results[key]
                return result
            while len(self._results) >= self.size:
                self._results.popitem(last=False)  # before its room is needed
        made = make()
        with self._lock:
            result = self._results.setdefault(key, made)
            while len(self._results) > self.size:
                self._results.popitem(last=False)
            return result

    def peek(self, *key: Hashable) -> Any:
        """Return the result stored under `key`, or None."""
        with self._lock:
            return self._results.get(key)

    def clear(self) -> None:
        with self._lock:
            self._results.clear()

    def __contains__(self, key: tuple[Hashable, ...]) -> bool:
        return key in self._results

    def __len__(self) -> int:
        return len(self._results)

    def __reduce__(self) -> tuple[type[Cache], tuple[int]]:
        return Cache, (self.size,)


class Caches:
    """A small cache for each kind of result that a fitted method computes for graphs; copies and pickles are empty."""

    def __init__(self) -> None:
        self._caches: dict[str, Cache] = {}

    def get(self, kind: str, key: Hashable, make: Callable[[], T], size: int = 1) -> T:
        """Return the result of a kind; make and store it if there is none, beside the last `size` - 1 others."""
        return self._caches.setdefault(kind, Cache(size)).get(make, key)

    def peek(self, kind: str, key: Hashable) -> Any:
        """Return the result of a kind, or None."""
        return self._caches[kind].peek(key) if kind in self._caches else None

    def first(self, kind: str) -> bool:
        """Return whether this is the first call with this kind."""
        token = object()
        return self.get(kind, None, lambda: token) is token

    def __reduce__(self) -> tuple[type[Caches], tuple[()]]:
        return Caches, ()
