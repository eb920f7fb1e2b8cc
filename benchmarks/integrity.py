"""What checksums cost: of a benchmark's time, and of loading a graph of the size of Reddit2.

    make bench-integrity    (or: python benchmarks/integrity.py --graph small)

The benchmark is done in one process, in which every call that makes or checks a checksum is timed: records, predictions
per node, shared models, tables and page. A saved graph is checked by the sums of its zip archive, which Python's
zipfile checks in any case; what is added is the check of all else in the file. Both are measured.
"""

from __future__ import annotations

import argparse
import functools
import sys
import tempfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import credalgnn as cg
from credalgnn.experiments import runner
from credalgnn.experiments.engines import Engine, Result, Unit
from credalgnn.experiments.execute import ModelCache
from credalgnn.runtime import files

SIZES = {"reddit2": (232_965, 23_213_838, 602), "small": (20_000, 200_000, 100)}
CHECKING = ("checksum", "seal", "sealed_with", "seal_zip", "is_sealed_zip")
METHODS = ["vanilla", "credal-lj", "energy", "knn", "classical-ensemble"]


class Clock:
    """Seconds spent in some functions, wherever in the package they are called."""

    def __init__(self) -> None:
        self.seconds, self._depth = 0.0, 0

    def timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **options: Any) -> Any:
            self._depth += 1
            begin = time.perf_counter()
            try:
                return function(*args, **options)
            finally:
                self._depth -= 1
                if not self._depth:  # one that calls another is counted once
                    self.seconds += time.perf_counter() - begin

        return call

    def watch(self) -> None:
        for name in CHECKING:
            plain = getattr(files, name)
            for module in [module for key, module in sys.modules.items() if key.startswith("credalgnn")]:
                if getattr(module, name, None) is plain:
                    setattr(module, name, self.timed(plain))


class Inline(Engine):
    """Does the work in this process."""

    slots = 1

    def __init__(self, source: Any, models: Path) -> None:
        self.source, self.models, self.waiting = source, models, list[Unit]()

    def start(self, unit: Unit) -> None:
        self.waiting.append(unit)

    def finished(self, timeout: float) -> list[Result]:
        unit = self.waiting.pop()
        return [Result(unit, unit.function(unit.run, self.source.task(unit.run), ModelCache(self.models), *unit.args))]

    def close(self) -> None:
        self.waiting = []


def bench(folder: Path, clock: Clock) -> float:
    """Seconds of a benchmark."""
    engine = lambda name, address, jobs, source, models: Inline(source, models)  # noqa: E731
    begin = time.perf_counter()
    with mock.patch.object(runner, "make_engine", engine):
        cg.benchmark("digits", METHODS, seeds=2, out=folder / "first", predictions="all", progress=False)
        clock.watch()  # whatever is imported late is imported now
        clock.seconds, begin = 0.0, time.perf_counter()
        cg.benchmark("digits", METHODS, seeds=2, out=folder / "again", predictions="all", progress=False)
    return time.perf_counter() - begin


def load(path: Path, name: str) -> tuple[float, float, float]:
    """Seconds of loading a graph, of what is checked besides the archive's own sums, and of these; least of three."""
    nodes, edges, features = SIZES[name]
    rng = np.random.default_rng(0)
    graph = cg.Graph(
        rng.random((nodes, features), dtype=np.float32),
        rng.integers(nodes, size=(2, edges)),
        rng.integers(41, size=nodes),
    )
    graph.save(path)
    del graph
    rows = []
    for _ in range(3):
        clock = Clock()
        check = clock.timed(files.is_sealed_zip)
        with mock.patch("credalgnn.graphs.storage.is_sealed_zip", check):
            begin = time.perf_counter()
            cg.load_graph(path)
            rows.append((time.perf_counter() - begin, clock.seconds))
    content = path.read_bytes()
    begin = time.perf_counter()
    zlib.crc32(content)
    crc = time.perf_counter() - begin
    return min(whole for whole, _ in rows), min(own for _, own in rows), crc


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graph", choices=SIZES, default="reddit2")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        clock = Clock()
        whole = bench(Path(folder), clock)
        share = 100 * clock.seconds / whole
        print(f"benchmark: {whole:.1f} s, checksums {1000 * clock.seconds:.1f} ms: {share:.3f} % (bar: 2 %)")
        whole, own, crc = load(Path(folder) / "graph.npz", args.graph)
        share = 100 * own / whole
        print(f"loading {args.graph}: {whole:.2f} s, checksum {1000 * own:.2f} ms: {share:.3f} % (bar: 5 %)")
        print(f"  besides, CRC-32 of the archive, which zipfile always checks: {crc:.2f} s, {100 * crc / whole:.1f} %")


if __name__ == "__main__":
    main()
