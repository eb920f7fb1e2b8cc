"""One thread for the small trainings of the tests: two would wait for each other whenever the machine is busy.

The files that take longest come first, so that no process of the tests is left alone with one of them at the end.
"""

from __future__ import annotations

import http.server
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from local_server import Handler

if TYPE_CHECKING:
    from browser import Page

LONGEST = [
    "test_workers",
    "test_characterisation",
    "test_package",
    "test_contract",
    "test_bench",
    "test_ray",
    "test_reproduce",
    "test_probe",
    "test_tuning_objective",
    "test_tuning_run",
    "test_datasets",
    "test_methods",
    "test_coverage",
    "test_structure",
    "test_own_commands",
    "test_tasks",
]

ONE_THREAD = (
    "test_nn", "test_methods", "test_contract", "test_inductive", "test_slow_methods", "test_tun", "test_reproduce",
)  # fmt: skip


# What a shell starts in the background ignores Ctrl-C, and so would all commands that tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)


# These ask how credal-coverage behaves, not how well it finds OOD nodes: a fifth of its trees will do.
FEW_TREES = (
    "test_contract", "test_calibration", "test_model", "test_inductive", "test_methods", "test_testing", "test_tun",
    "test_outside", "test_own", "test_probe", "test_storage",
)  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: LONGEST.index(item.path.stem) if item.path.stem in LONGEST else len(LONGEST))


@pytest.fixture(autouse=True, scope="module")
def _one_thread(request: pytest.FixtureRequest) -> Iterator[None]:
    if not request.module.__name__.startswith(ONE_THREAD):
        yield
        return
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(autouse=True)
def _no_torch_mode_left() -> Iterator[None]:
    """A mode of torch that a test leaves active would change the random numbers of later tests."""
    yield
    assert torch._C._len_torch_dispatch_stack() == 0


@pytest.fixture(autouse=True, scope="module")
def _few_trees(request: pytest.FixtureRequest) -> Iterator[None]:
    if not request.module.__name__.startswith(FEW_TREES):
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("credalgnn.methods.coverage.model.TREES", 20)
        yield


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of 15 trials of one process that nothing stopped."""
    from searches import Instant, finish, search

    folder = tmp_path_factory.mktemp("undisturbed")
    assert finish([search(folder)], Instant())
    return folder


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    from browser import running  # here, because it needs selenium

    with running(tmp_path_factory.mktemp("profile")) as page:
        yield page


@pytest.fixture
def server() -> Iterator[tuple[str, type[Handler]]]:
    handler = type("Local", (Handler,), {"files": {"/good": b"graph" * 5000}, "asked": []})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        thread = threading.Thread(target=running.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{running.server_address[1]}", handler
        running.shutdown()
        thread.join()


@pytest.fixture
def dead() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"
