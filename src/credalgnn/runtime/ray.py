"""Ray: connecting to a cluster, and what the machine that asks for work keeps for those that do it."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from .names import install_hint

SILENCE = 20.0  # seconds without an answer after which the head is taken for gone; Ray would end the process after 60


class NoCluster(RuntimeError):
    """There is no Ray, or no cluster, or none any more; the message says what to do."""


def ray_module() -> Any:
    """The module ``ray``, whose types are not known: parts of it have none, and others wrong ones."""
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # the future default, which spares a warning
    import ray

    return ray


def connect(address: str | None) -> Any:
    """Connect to an existing cluster; gives the module ``ray``.

    Args:
        address: ``HOST:PORT`` of the cluster; None for that of ``RAY_ADDRESS``, or the one that Ray finds.
    """
    if find_spec("ray") is None:
        raise NoCluster(f"a Ray cluster needs ray: {install_hint('ray')}")
    ray = ray_module()
    address = address or os.environ.get("RAY_ADDRESS") or "auto"
    in_main = threading.current_thread() is threading.main_thread()
    try:
        _check_port(address)
        ended = signal.getsignal(signal.SIGTERM)
        ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
        if in_main and ended is not None:  # which Ray replaces
            signal.signal(signal.SIGTERM, ended)
    except (ConnectionError, OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        message = " ".join(str(error).split())
        raise NoCluster(
            f"no Ray cluster at {address} ({message:.200}): start one with ray start --head, or give --address"
        ) from None
    return ray


def _check_port(address: str) -> None:
    """Fail at once where no server listens: Ray itself goes on trying for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()  # as IPv6 is written: [::1]:6379


def check_head() -> None:
    """Wait until the head of the cluster answers: without one Ray waits in silence, and then ends the process."""
    ray = ray_module()
    if ray.util.client.ray.is_connected():  # by ray://, which need not see the head
        return
    address: str = ray.get_runtime_context().gcs_address
    end = time.monotonic() + SILENCE
    while True:
        try:
            return _check_port(address)
        except OSError as error:
            if time.monotonic() > end:
                raise NoCluster(
                    f"the head of the Ray cluster, {address}, is gone ({error.strerror or error}), and with it what "
                    "was under way: start the cluster again, and then the same once more"
                ) from None
        time.sleep(1.0)


class Coordinator:
    """An actor on the machine that asks for a training: all that workers tell and ask is told and asked here.

    What it keeps outlives the workers, and needs no file that all machines see.

    Args:
        folders: Folders that workers on machines without them may read, by the path that they ask for.
    """

    def __init__(self, folders: Mapping[str, Path]) -> None:
        self._folders = dict(folders)
        self._lines: list[tuple[int, float, float]] = []
        self._workers: list[Any] = []
        self._state: bytes | None = None
        self._refusal: tuple[str, str] | None = None

    def hello(self, worker: Any) -> bytes | None:
        """A worker begins; gives the state of the training to go on from, if there is one.

        Args:
            worker: The actor that it is.
        """
        self._workers.append(worker)
        return self._state

    def tell(self, line: tuple[int, float, float]) -> None:
        """The next line of the curve; one that was told before the loss of a worker is not told twice.

        Args:
            line: Epoch, loss and monitor.
        """
        if not self._lines or line[0] > self._lines[-1][0]:
            self._lines.append(line)

    def save(self, state: bytes) -> None:
        """The state of the training after an epoch.

        Args:
            state: What to go on from.
        """
        self._state = state

    def refuse(self, kind: str, message: str) -> None:
        """Something that no other worker would do better; the first one is kept.

        Args:
            kind: The error's class.
            message: Its message.
        """
        self._refusal = self._refusal or (kind, message)

    def news(self, seen: int) -> tuple[list[tuple[int, float, float]], tuple[str, str] | None]:
        """The lines of the curve behind the first ones, and what was refused.

        Args:
            seen: How many lines are known already.
        """
        return self._lines[seen:], self._refusal

    def workers(self) -> list[Any]:
        """The actors that have begun since the last call."""
        found, self._workers = self._workers, []
        return found

    def state(self) -> bytes | None:
        """What ``save`` was given last."""
        return self._state

    def read(self, folder: str, name: str, begin: int, size: int) -> bytes:
        """A chunk of a file of one of the folders.

        Args:
            folder: The folder, as the worker calls it.
            name: A file in it.
            begin: The first byte.
            size: Bytes at the most.
        """
        path = self._folders[folder] / name
        if path.parent != self._folders[folder]:
            raise ValueError(f"{name}: not a file of {folder}")
        with path.open("rb") as file:
            file.seek(begin)
            return file.read(size)
