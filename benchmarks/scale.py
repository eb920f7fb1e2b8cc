"""Generated graphs of the exact size of ArXiv, Reddit2 and Patents: seconds a step, and peak memory, one thread.

    make bench-scale        (or: python benchmarks/scale.py --graphs arxiv)

Every measurement has a process of its own, so that its peak memory is its own; the peak includes making the graph.
``sage`` and ``gcn`` are full-batch training steps of credal-lj, ``rest`` predicts all nodes, with exact entropies,
``coverage`` is all that credal-coverage does besides training the network of its midpoints, and
``knn`` scores the test nodes of the Patents-size graph by their distance to a million training nodes.
Features are uniform (ArXiv 128, Reddit2 602) or ten ones of 269 a node (Patents); edges and labels are uniform.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import scipy.sparse as sp
import torch

from credalgnn import KNN, CredalCoverage, CredalLJ, Graph, Task, Vanilla

SIZES = {"arxiv": (169_343, 1_166_243), "reddit2": (232_965, 23_213_838), "patents": (2_923_922, 13_975_788)}
CLASSES = {"arxiv": (5, 2), "reddit2": (41, 11), "patents": (5, 2)}  # all, left out
BARS = {"arxiv": "<= 2 GiB", "reddit2": "<= 14 s, <= 3 GiB", "patents": "<= 50 s, <= 9 GiB"}


def make_task(name: str) -> Task:
    rng = np.random.default_rng(0)
    nodes, edges = SIZES[name]
    classes, left_out = CLASSES[name]
    if name == "patents":
        columns = rng.integers(269, size=10 * nodes, dtype=np.int32)
        features = sp.csr_matrix(
            (np.ones(10 * nodes, np.float32), columns, np.arange(0, 10 * nodes + 1, 10)), (nodes, 269)
        )
        del columns
    else:
        features = rng.random((nodes, {"arxiv": 128, "reddit2": 602}[name]), dtype=np.float32)
    graph = Graph(features, rng.integers(nodes, size=(2, edges)), rng.integers(classes, size=nodes))
    del features
    return Task.leave_out(graph, range(left_out), name=name)


def peak() -> float:
    """GiB that this process has needed so far."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM")) / 2**20


def timed(step: Callable[[], object]) -> float:
    begin = time.perf_counter()
    step()
    return time.perf_counter() - begin


def measure(name: str, what: str) -> None:
    """One measurement, in this process; prints what it has found."""
    torch.set_num_threads(1)
    task = make_task(name)
    if what in ("gcn", "sage", "stock gcn", "stock sage"):
        from torch_geometric.nn.models import GCN, GraphSAGE
        from train import ours, stock

        kind = what.removeprefix("stock ")
        made = (
            stock(task, {"gcn": GCN, "sage": GraphSAGE}[kind])
            if "stock" in what
            else ours(task, CredalLJ(backbone=kind))
        )
        made()
        print(f"{min(timed(made) for _ in range(2)):.2f} s a step | {peak():.1f} GiB")
    elif what == "rest":
        method = CredalLJ(epochs=1).fit(task)
        found = []
        seconds = timed(lambda: found.append(method.predict()))
        gap = found[0].gap.max().item()
        print(f"{seconds:.1f} s to predict all nodes, largest gap {gap:.1e} bits | {peak():.1f} GiB")
    elif what == "coverage":
        vanilla = Vanilla(epochs=1).fit(task)
        model = CredalCoverage(model=vanilla)
        fitted, predicted = timed(lambda: model.fit(task)), timed(lambda: model.predict())
        print(f"{fitted:.0f} s to fit coverage, {predicted:.0f} s to predict all nodes | {peak():.1f} GiB")
    else:
        method = KNN(model=Vanilla(epochs=1)).fit(task)
        seconds = timed(lambda: method.predict(nodes=task.test.nodes))
        sizes = f"{len(task.split.train):,} training, {len(task.test.nodes):,} test nodes"
        print(f"{seconds:.0f} s, {sizes}, recall {method.recall:.3f} | {peak():.1f} GiB")


def _bar(name: str, what: str) -> str:
    return BARS[name] if what == "sage" else "<= 8 GiB" if (name, what) == ("patents", "coverage") else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graphs", nargs="+", default=list(SIZES), choices=list(SIZES))
    parser.add_argument("--only", nargs="+", metavar="WHAT", help="only these measurements, e.g. coverage")
    parser.add_argument("--one", nargs=2, metavar=("GRAPH", "WHAT"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        measure(*args.one)
        return
    print("| graph | what | measured | peak | wanted |\n|---|---|---|---|---|")
    for name in args.graphs:
        stocks = ["stock sage", "stock gcn"] if name == "arxiv" else []
        for what in args.only or ["sage", "gcn", *stocks, "rest", "coverage", *(["knn"] if name == "patents" else [])]:
            command = [sys.executable, "-W", "ignore", str(Path(__file__)), "--one", name, what]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            found = done.stdout.strip() or f"failed: {(done.stderr.strip().splitlines() or ['killed'])[-1]} | "
            print(f"| {name} | {what} | {found} | {_bar(name, what)} |", flush=True)


if __name__ == "__main__":
    main()
