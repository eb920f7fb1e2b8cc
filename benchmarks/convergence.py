"""Seconds until the validation loss is within 1 % of the best of full-batch training: full-batch against mini-batches.

    python benchmarks/convergence.py --graphs patents --epochs 300
    python benchmarks/convergence.py --graphs patents --best 0.1409      # mini-batches alone

``full`` trains a vanilla GraphSAGE on the whole graph, ``sampled`` on mini-batches with sampled neighbours of the
packed graph that is opened, not loaded; both with two threads, each in a process of its own, whose peak memory is
printed, too. Validation losses are exact, over the whole graph, and the clock stands still while they are computed; the
memory of ``sampled`` includes what that takes (``ROOM``, at the most).
``arxiv`` is the real citation graph (``arxiv-structure``); the others are generated with the sizes of Reddit2 and
Patents, with labels that features and neighbours tell in part.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from scale import CLASSES, SIZES, peak

from credalgnn import Graph, Task, Vanilla, load_task
from credalgnn.methods.inputs import inputs, inputs_by_rows
from credalgnn.nn import Draws, Schedule, train
from credalgnn.nn.pieces import Scratch, latents_by_pieces
from credalgnn.nn.rounds import Classifier, Epoch, Monitor, Supervision

WITHIN = 0.01
ROOM = 1 << 30  # bytes for what is kept in memory while an exact validation loss is computed
SIGNAL = {"reddit2": 0.06, "patents": 0.25}  # share of features that follow the class
HOMOPHILY = 0.4


def learnable(name: str) -> Task:
    """A graph of a data set's size whose classes can be learnt, though not perfectly."""
    rng = np.random.default_rng(0)
    nodes, edges = SIZES[name]
    classes, left_out = CLASSES[name]
    label = rng.integers(classes, size=nodes)
    if name == "patents":
        columns = rng.integers(269, size=(nodes, 10), dtype=np.int32)
        typical = rng.integers(269, size=(classes, 20), dtype=np.int32)
        told = rng.random((nodes, 10)) < SIGNAL[name]
        columns = np.where(told, typical[label][:, :10], columns).reshape(-1)
        starts = np.arange(0, 10 * nodes + 1, 10)
        features = sp.csr_matrix((np.ones(10 * nodes, np.float32), columns, starts), (nodes, 269))
    else:
        features = rng.random((nodes, 602), dtype=np.float32)
        features += SIGNAL[name] * rng.standard_normal((classes, 602)).astype(np.float32)[label]
    order = np.argsort(label, kind="stable")
    first = np.searchsorted(label[order], np.arange(classes + 1))
    source = rng.integers(nodes, size=edges)
    own = label[source]
    alike = order[first[own] + (rng.random(edges) * (first[own + 1] - first[own])).astype(np.int64)]
    target = np.where(rng.random(edges) < HOMOPHILY, alike, rng.integers(nodes, size=edges))
    return Task.leave_out(Graph(features, np.stack([source, target]), label), range(left_out), name=name)


def make_task(name: str) -> Task:
    return load_task("arxiv-structure") if name == "arxiv" else learnable(name)


class Reached(Exception):
    """The loss is where it was to come."""


def curve(graph: Graph, parts: dict[str, np.ndarray], how: str, epochs: int, until: float) -> list[tuple[float, float]]:
    """Seconds and exact validation loss after each epoch; no more than are needed for a loss."""
    train_nodes, val_nodes = (torch.from_numpy(parts[name]) for name in ("train", "val"))
    labels = torch.from_numpy(parts["labels"])
    template, classes = Vanilla(), int(labels.max()) + 1
    draws = Draws(0)
    with draws:
        module: Classifier = template._build(graph.num_features, classes)
    loss = torch.nn.functional.cross_entropy
    sampled = how == "sampled"
    x, edges = inputs_by_rows(graph) if sampled else inputs(graph)
    watched = val_nodes[:: len(val_nodes) // 10_000 + 1] if sampled else val_nodes
    found: list[tuple[float, float]] = []
    clock = {"spent": 0.0, "since": time.perf_counter()}

    def look(line: Epoch) -> None:
        clock["spent"] += time.perf_counter() - clock["since"]
        value = line.monitor
        if sampled:
            module.eval()
            z = latents_by_pieces(module.backbone, x, edges, Scratch(ROOM), release=graph.release)[-1]
            with torch.no_grad():
                value = loss(module.head(z[val_nodes]), labels[val_nodes]).item()
        found.append((clock["spent"], value))
        print(f"  {name_of(how)} {line.epoch} {clock['spent']:.1f} s {value:.4f}", file=sys.stderr, flush=True)
        if value <= until:
            raise Reached
        clock["since"] = time.perf_counter()

    monitor = Monitor(watched, lambda output: loss(output, labels[watched]).item())
    schedule = Schedule(template.lr, template.weight_decay, epochs, epochs, 1024)
    data = Supervision(x, edges, train_nodes, labels[train_nodes])
    with suppress(Reached):
        train(module, data, loss, monitor, schedule, draws, on_epoch=look)
    return found


def name_of(how: str) -> str:
    return f"{how} epoch" if how == "full" else f"{how} stretch"


def measure(folder: Path, how: str, epochs: int, until: float) -> None:
    torch.set_num_threads(2)
    graph = Graph.open(folder / "graph.cg")
    if how == "full":
        graph = graph.in_memory()
    parts = dict(np.load(folder / "parts.npz"))
    print(json.dumps({"curve": curve(graph, parts, how, epochs, until), "peak": peak()}))


def in_a_process(folder: Path, how: str, epochs: int, until: float) -> dict[str, Any]:
    """What ``measure`` prints."""
    command = [sys.executable, "-W", "ignore", __file__, "--one", str(folder), how, "--epochs", str(epochs)]
    done = subprocess.run([*command, "--until", str(until)], stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--graphs", nargs="+", default=["arxiv", "reddit2", "patents"], choices=["arxiv", "reddit2", "patents"]
    )
    parser.add_argument("--epochs", type=int, default=300, help="of full-batch training (default: %(default)s)")
    parser.add_argument(
        "--stretches", type=int, default=30, help="of 200 mini-batches, at the most (default: %(default)s)"
    )
    parser.add_argument("--best", type=float, help="of full batches, from an earlier run: they are not trained again")
    parser.add_argument("--one", nargs=2, metavar=("FOLDER", "HOW"), help=argparse.SUPPRESS)
    parser.add_argument("--until", type=float, default=0.0, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.best is not None and len(args.graphs) > 1:
        parser.error("--best is of one graph: name it, as in --graphs patents")
    if args.one:
        measure(Path(args.one[0]), args.one[1], args.epochs, args.until)
        return
    print(
        "| graph | best loss, full | full: s, GiB | sampled: s, GiB | times faster |\n|---|---:|---:|---:|---:|",
        flush=True,
    )
    for name in args.graphs:
        with tempfile.TemporaryDirectory(dir=".") as place:
            folder = Path(place)
            task = make_task(name)
            task.graph.pack(folder / "graph.cg")
            view = task.training
            np.savez(folder / "parts.npz", train=view.train, val=view.val, labels=view.graph.labels)
            del task, view
            full, best = {}, args.best
            if best is None:
                full = in_a_process(folder, "full", args.epochs, 0.0)
                best = min(value for _, value in full["curve"])
            wanted = best * (1 + WITHIN)
            results = {"full": full, "sampled": in_a_process(folder, "sampled", args.stretches, wanted)}
        reached = {
            how: next((s for s, value in result.get("curve", []) if value <= wanted), float("nan"))
            for how, result in results.items()
        }
        cells = [f"{reached[how]:,.1f}, {result['peak']:.1f}" if result else "" for how, result in results.items()]
        times = f"{reached['full'] / reached['sampled']:.1f}" if full else ""
        print(f"| {name} | {best:.4f} | {' | '.join(cells)} | {times} |", flush=True)


if __name__ == "__main__":
    main()
