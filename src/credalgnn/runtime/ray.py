"""Ray: connection to a cluster, and the coordinator of a distributed training."""

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

SILENCE = 20.0  # seconds without an answer after which the head counts as gone; Ray would end the process after 60


class NoCluster(RuntimeError):
    """Ray is missing, or no cluster answers; the message says what to do."""


def ray_module() -> Any:
    """Return the module ``ray``, as ``Any``: parts of it have no types, and others wrong ones."""
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # the future default, which spares a warning
    import ray

    return ray


def connect(address: str | None) -> Any:
    """Connect to an existing cluster, and return the module ``ray``.

    Args:
        address: ``HOST:PORT`` of the cluster; None: that of ``RAY_ADDRESS``, or the one that Ray finds.

    Raises:
        NoCluster: Ray is not installed, or no cluster answers.
    """
    if find_spec("ray") is None:
        raise NoCluster(f"a Ray cluster needs ray: {install_hint('ray')}")
    ray = ray_module()
    address = address or os.environ.get("RAY_ADDRESS") or "auto"
    in_main = threading.current_thread() is threading.main_thread()
    try:
        _check_port(address)
        handler = signal.getsignal(signal.SIGTERM)
        ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
        if in_main and handler is not None:  # Ray replaces it
            signal.signal(signal.SIGTERM, handler)
    except (ConnectionError, OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        message = " ".join(str(error).split())
        raise NoCluster(
            f"no Ray cluster at {address} ({message:.200}): start one with ray start --head, or give --address"
        ) from None
    return ray


def _check_port(address: str) -> None:
    """Fail at once if no server listens; Ray itself tries for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()  # as IPv6 is written: [::1]:6379


def check_head() -> None:
    """Wait until the head of the cluster answers; without one Ray waits in silence, and then ends the process."""
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
    """Actor on the driver that collects what the workers of a training report.

    Its state outlives the workers, and needs no file that all machines see.

    Args:
        folders: Folders that workers on other machines may read, by the path that they use.
    """

    def __init__(self, folders: Mapping[str, Path]) -> None:
        self._folders = dict(folders)
        self._lines: list[tuple[int, float, float]] = []
        self._workers: list[Any] = []
        self._state: bytes | None = None
        self._refusal: tuple[str, str] | None = None

    def register(self, worker: Any) -> bytes | None:
        """Add a worker, and return the state of the training to continue from, if there is one."""
        self._workers.append(worker)
        return self._state

    def report(self, line: tuple[int, float, float]) -> None:
        """Add a line of the curve (epoch, loss, monitor), unless it was reported before a worker was lost."""
        if not self._lines or line[0] > self._lines[-1][0]:
            self._lines.append(line)

    def save(self, state: bytes) -> None:
        """Keep the state of the training after an epoch."""
        self._state = state

    def refuse(self, kind: str, message: str) -> None:
        """Keep the class and message of the first error that another worker would raise as well."""
        self._refusal = self._refusal or (kind, message)

    def updates(self, seen: int) -> tuple[list[tuple[int, float, float]], tuple[str, str] | None]:
        """Return the lines of the curve after the first ``seen``, and the error, if any."""
        return self._lines[seen:], self._refusal

    def workers(self) -> list[Any]:
        """Return the workers added since the last call."""
        workers, self._workers = self._workers, []
        return workers

    def state(self) -> bytes | None:
        """Return the last saved state."""
        return self._state

    def read(self, folder: str, name: str, begin: int, size: int) -> bytes:
        """Return up to ``size`` bytes of a file in one of the folders, from ``begin``."""
        path = self._folders[folder] / name
        if path.parent != self._folders[folder]:
            raise ValueError(f"{name}: not a file of {folder}")
        with path.open("rb") as file:
            file.seek(begin)
            return file.read(size)
