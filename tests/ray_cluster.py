"""A real Ray cluster for tests: two nodes on 127.0.0.1, one of which can be killed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

CLUSTER = """
import sys
from ray.cluster_utils import Cluster
small = {"num_cpus": 1, "object_store_memory": 10**8}
head = {**small, "num_cpus": int(sys.argv[1]), "include_dashboard": False}
cluster = Cluster(initialize_head=True, head_node_args=head)
second = cluster.add_node(**small)
print(cluster.address, flush=True)
for line in sys.stdin:
    if line == "kill\\n":
        cluster.remove_node(second, allow_graceful=False)
        print("killed", flush=True)
cluster.shutdown()
"""
_NUMBER = count()


class Machine:
    """The cluster, and commands in the environment it needs: loopback only, nothing written outside a folder.

    Args:
        folder: For what commands write.
        head: Processors of the first node; the second one has one.
    """

    def __init__(self, folder: Path, head: int = 1) -> None:
        self.home = folder / "home"
        self.home.mkdir()
        temporary = Path(f"/tmp/cgr{os.getpid()}n{next(_NUMBER)}")  # paths of sockets must be short
        (temporary / "files").mkdir(parents=True)
        self.temporary = temporary
        # Ray takes the interface's address for 127.0.0.1, unless it believes that it cannot form a cluster of machines.
        self.environment = {
            **os.environ, "HOME": str(self.home), "RAY_TMPDIR": str(temporary), "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "OMP_NUM_THREADS": "1", "RAY_AUTH_MODE": "disabled",
            "GLOO_SOCKET_IFNAME": "lo", "TMPDIR": str(temporary / "files"),
        }  # fmt: skip
        self.cluster = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", CLUSTER, str(head)], env=self.environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        self.address = self._line()

    def _line(self) -> str:
        assert self.cluster.stdout is not None
        return self.cluster.stdout.readline().strip()

    def kill_second_node(self) -> None:
        assert self.cluster.stdin is not None
        self.cluster.stdin.write("kill\n")
        self.cluster.stdin.flush()
        assert self._line() == "killed"

    def kill_the_head(self) -> None:
        """With all processes of the cluster: its address is gone."""
        os.killpg(self.cluster.pid, signal.SIGKILL)
        self.cluster.wait()

    def kill_the_server(self) -> None:
        """The head's, without which its address does not answer, and nothing else."""
        os.kill(self._process(lambda words: words[0].endswith(b"/gcs_server")), signal.SIGKILL)

    def kill_a_process(self, title: str) -> None:
        """One of Ray's at work, as soon as there is one with a title that begins like this."""
        os.kill(self._process(lambda words: words[0].startswith(title.encode())), signal.SIGKILL)

    def _process(self, is_wanted: Callable[[list[bytes]], bool]) -> int:
        """The number of a process of this cluster, which it or its parent says, by its words."""
        end = time.monotonic() + 60
        while time.monotonic() < end:
            for process in Path("/proc").glob("[0-9]*"):
                try:
                    found = process.joinpath("cmdline").read_bytes()
                    parent = process.joinpath("stat").read_text().rpartition(")")[2].split()[1]
                    who = found + Path("/proc", parent, "cmdline").read_bytes()
                except OSError:
                    continue
                if is_wanted(found.split(b"\0")) and f"{self.temporary}/".encode() in who:
                    return int(process.name)
        raise AssertionError("there is no such process")

    def start(self, *words: str | Path, folder: Path | None = None) -> subprocess.Popen[str]:
        """A command in a folder, in which it does not look for modules by itself: no installed command does."""
        return self.python("-m", "credalgnn", *words, folder=folder)

    def python(self, *words: str | Path, folder: Path | None = None) -> subprocess.Popen[str]:
        """A Python program in a folder, likewise."""
        command = [sys.executable, *map(str, words)]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        environment = {**self.environment, "PYTHONSAFEPATH": "1"}
        return subprocess.Popen(command, env=environment, cwd=folder, text=True, **pipes)

    def stop(self) -> None:
        self.cluster.communicate("", timeout=60)
        shutil.rmtree(self.temporary, ignore_errors=True)
