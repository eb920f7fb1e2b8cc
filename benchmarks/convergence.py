"""Seconds until the validation loss is within 1 % of the best of full-batch training: full-batch against mini-batches.

    python benchmarks/convergence.py --graphs patents --epochs 300

``full`` trains a vanilla GraphSAGE on the whole graph; ``sampled`` on mini-batches with sampled neighbours of the
packed graph that is opened, not loaded; both with two threads. ``one worker`` and ``two workers`` do what ``sampled``
does as the processes of a cluster do it, with one processor each, on their share of every batch. Each is a process of
its own (two workers: two), whose peak memory is printed, too. Validation losses are exact, over the whole graph, and
the clock stands still while they are computed; the memory of mini-batches includes what that takes (``ROOM``, at the
most). ``arxiv`` is the real citation graph (``arxiv-structure``); the others are generated with the sizes of Reddit2
and Patents, with labels that features and neighbours tell in part. Features of ``reddit2`` lie between 0 and 1, and
those of ``reddit2-centred`` around 0, as this package brings those of tables; a fifth of its labels are drawn by
chance, without which it would be learnt to the last node.

Graphs and finished curves are kept in ``--folder``, and not made again for the same options: a run that was stopped
goes on. The tables name the hour in which each curve ended; after a change of code the folder has to be removed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from scale import CLASSES, SIZES, peak

from credalgnn import Graph, Task, Vanilla, load_graph, load_task
from credalgnn.methods.inputs import inputs, inputs_by_rows
from credalgnn.nn import RngScope, Schedule, train
from credalgnn.nn.chunks import Scratch, latents_by_chunks
from credalgnn.nn.distributed import Processes
from credalgnn.nn.training import Classifier, Epoch, Monitor, Supervision
from credalgnn.runtime.files import atomic, write

WITHIN = 0.01
ABOVE = (0.1, 0.05, 0.03, 0.02, 0.015, 0.01)  # losses of the second table, as shares above the best one
WORKERS = {"one worker": 1, "two workers": 2}  # processes with a processor each
ROOM = 1 << 30  # bytes for what is kept in memory while an exact validation loss is computed
SIGNAL = {"reddit2": 0.06, "patents": 0.25}  # share of features that follow the class
HOMOPHILY, WRONG = 0.4, 0.2


def learnable(name: str) -> Task:
    """A graph of a data set's size whose classes can be learnt, though not perfectly."""
    rng = np.random.default_rng(0)
    size = name.removesuffix("-centred")
    nodes, edges = SIZES[size]
    classes, left_out = CLASSES[size]
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
        if name == "reddit2-centred":
            features -= 0.5
        features += SIGNAL[size] * rng.standard_normal((classes, 602)).astype(np.float32)[label]
    order = np.argsort(label, kind="stable")
    first = np.searchsorted(label[order], np.arange(classes + 1))
    source = rng.integers(nodes, size=edges)
    own = label[source]
    alike = order[first[own] + (rng.random(edges) * (first[own + 1] - first[own])).astype(np.int64)]
    target = np.where(rng.random(edges) < HOMOPHILY, alike, rng.integers(nodes, size=edges))
    if name == "reddit2-centred":
        label = np.where(rng.random(nodes) < WRONG, rng.integers(classes, size=nodes), label)
    return Task.leave_out(Graph(features, np.stack([source, target]), label), range(left_out), name=name)


def make_task(name: str) -> Task:
    return load_task("arxiv-structure") if name == "arxiv" else learnable(name)


class Reached(Exception):
    """The loss is where it was to come."""


def curve(
    graph: Graph, parts: dict[str, np.ndarray], how: str, epochs: int, until: float, batch: int, group: Processes | None
) -> list[tuple[float, float]]:
    """Seconds and exact validation loss after each epoch; no more than are needed for a loss."""
    train_nodes, val_nodes = (torch.from_numpy(parts[name]) for name in ("train", "val"))
    labels = torch.from_numpy(parts["labels"])
    template, classes = Vanilla(), int(labels.max()) + 1
    draws = RngScope(0)
    with draws:
        module: Classifier = template._build(graph.num_features, classes)
    loss = torch.nn.functional.cross_entropy
    sampled = how != "full"
    x, edges = inputs_by_rows(graph) if sampled else inputs(graph)
    watched = val_nodes[:: len(val_nodes) // 10_000 + 1] if sampled else val_nodes
    found: list[tuple[float, float]] = []
    clock = {"spent": 0.0, "since": time.perf_counter()}

    def exact() -> float:
        with everything():
            module.eval()
            z = latents_by_chunks(module.backbone, x, edges, Scratch(ROOM), release=graph.release)[-1]
            with torch.no_grad():
                return loss(module.head(z[val_nodes]), labels[val_nodes]).item()

    def look(line: Epoch) -> None:
        clock["spent"] += time.perf_counter() - clock["since"]
        value = line.monitor
        if sampled:
            value = exact() if group is None or group.rank == 0 else 0.0
        if group is not None:
            (first,), *_ = group.gather([torch.tensor(value, dtype=torch.float64)])
            value = float(first)
        found.append((clock["spent"], value))
        if group is None or group.rank == 0:
            print(f"  {how} {line.epoch} {clock['spent']:.1f} s {value:.4f}", file=sys.stderr, flush=True)
        if value <= until:
            raise Reached
        clock["since"] = time.perf_counter()

    monitor = Monitor(watched, lambda output: loss(output, labels[watched]).item())
    schedule = Schedule(template.lr, template.weight_decay, epochs, epochs, batch)
    data = Supervision(x, edges, train_nodes, labels[train_nodes])
    with suppress(Reached):
        train(module, data, loss, monitor, schedule, draws, on_epoch=look, group=group, progress=False)
    return found


@contextmanager
def everything() -> Iterator[None]:
    """All processors and two threads for what the clock does not count."""
    own, threads = os.sched_getaffinity(0), torch.get_num_threads()
    os.sched_setaffinity(0, range(os.cpu_count() or 1))
    torch.set_num_threads(2)
    try:
        yield
    finally:
        os.sched_setaffinity(0, own)
        torch.set_num_threads(threads)


def measure(args: argparse.Namespace) -> None:
    """One curve, in this process; prints it."""
    folder, how = Path(args.one[0]), args.one[1]
    group = None
    torch.set_num_threads(2)
    if "worker" in how:
        from torch import distributed

        os.sched_setaffinity(0, {args.rank % (os.cpu_count() or 1)})
        torch.set_num_threads(1)
        store = f"file://{folder.resolve()}/meeting-{args.meeting}"
        size = WORKERS[how]
        distributed.init_process_group("gloo", init_method=store, rank=args.rank, world_size=size)
        group = Processes()
    graph = load_graph(folder / "graph.cg")
    if how == "full":
        graph = graph.in_memory()
    parts = dict(np.load(folder / "parts.npz"))
    found = curve(graph, parts, how, args.epochs, args.until, args.batch, group)
    if args.rank == 0:
        print(json.dumps({"curve": found, "peak": peak(), "ended": time.strftime("%Y-%m-%d %H:%M")}))


def kept(folder: Path, how: str, args: argparse.Namespace, until: float) -> dict[str, Any]:
    """A curve that is in the folder already, or what ``measure`` prints; where two processes make it, the first one."""
    file = folder / f"{how.replace(' ', '-')}{'' if how == 'full' else f'-{args.batch}'}.json"
    asked = {"epochs": args.epochs if how == "full" else args.stretches, "until": until}
    found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    if found.get("asked") != asked:
        command = [sys.executable, "-W", "ignore", __file__, "--one", str(folder), how, "--batch", str(args.batch)]
        command += ["--epochs", str(asked["epochs"]), "--until", str(until), "--meeting", str(os.getpid())]
        found = {**json.loads(printed(command, WORKERS.get(how, 1)).splitlines()[-1]), "asked": asked}
        (folder / f"meeting-{os.getpid()}").unlink(missing_ok=True)
        write(file, json.dumps(found).encode())
    return found


def printed(command: list[str], size: int) -> str:
    """What the first of some processes prints; if one of them fails, none of the others goes on."""
    processes = [
        subprocess.Popen([*command, "--rank", str(rank)], stdout=None if rank else subprocess.PIPE, text=True)
        for rank in range(size)
    ]
    try:
        text = processes[0].communicate()[0]
        for process in processes:
            if process.wait():
                raise subprocess.CalledProcessError(process.returncode, process.args)
    finally:
        for process in processes:
            process.kill()
    return text


def prepared(folder: Path, name: str) -> None:
    """The packed graph, and which of its nodes are for what."""
    if (folder / "parts.npz").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    task = make_task(name)
    task.graph.pack(folder / "graph.cg")
    view = task.training
    with atomic(folder / "parts.npz") as file:
        np.savez(file, train=view.train, val=view.val, labels=view.graph.labels)


def first(found: dict[str, Any], value: float) -> float:
    """Seconds until a loss was reached; NaN: it was not."""
    return next((seconds for seconds, loss in found["curve"] if loss <= value), float("nan"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = ["arxiv", "reddit2", "reddit2-centred", "patents"]
    parser.add_argument("--graphs", nargs="+", default=names, choices=names)
    parser.add_argument("--epochs", type=int, default=300, help="of full-batch training (default: %(default)s)")
    parser.add_argument(
        "--stretches", type=int, default=50, help="of 200 mini-batches, at the most (default: %(default)s)"
    )
    parser.add_argument("--batch", type=int, default=1024, help="training nodes of a batch (default: %(default)s)")
    parser.add_argument("--folder", type=Path, default=Path("runs/convergence"), help="default: %(default)s")
    parser.add_argument("--one", nargs=2, metavar=("FOLDER", "HOW"), help=argparse.SUPPRESS)
    parser.add_argument("--until", type=float, default=0.0, help=argparse.SUPPRESS)
    parser.add_argument("--rank", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--meeting", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        measure(args)
        return
    hows = ["full", "sampled", *WORKERS]
    rows = []
    for name in args.graphs:
        folder = args.folder / name
        prepared(folder, name)
        full = kept(folder, "full", args, 0.0)
        best = min(value for _, value in full["curve"])
        wanted = best * (1 + WITHIN)
        results = {how: full if how == "full" else kept(folder, how, args, wanted) for how in hows}
        rows.append((name, best, wanted, results))
    print(
        "| graph | best | within 1 % | "
        + " | ".join(f"{how}: s, GiB" for how in hows)
        + " | full / sampled | one / two |"
    )
    print("|---|---:|---:|" + "---:|" * (len(hows) + 2))
    for name, best, wanted, results in rows:
        seconds = {how: first(found, wanted) for how, found in results.items()}
        cells = [f"{seconds[how]:,.1f}, {results[how]['peak']:.1f}" for how in hows]
        ratios = [seconds["full"] / seconds["sampled"], seconds["one worker"] / seconds["two workers"]]
        cells += [f"{ratio:.2f}" for ratio in ratios]
        print(f"| {name} | {best:.4f} | {wanted:.4f} | {' | '.join(cells)} |", flush=True)
    print()
    for name, best, _, results in rows:
        print(f"{name}: seconds until a loss; curves ended {', '.join(each['ended'] for each in results.values())}\n")
        print("| loss | above the best | " + " | ".join(hows) + " | full / sampled |")
        print("|---:|---:|" + "---:|" * (len(hows) + 1))
        for above in ABOVE:
            seconds = {how: first(found, best * (1 + above)) for how, found in results.items()}
            cells = [f"{seconds[how]:,.1f}" for how in hows] + [f"{seconds['full'] / seconds['sampled']:.1f}"]
            print(f"| {best * (1 + above):.4f} | {above:.1%} | {' | '.join(cells)} |")
        print()


if __name__ == "__main__":
    main()
