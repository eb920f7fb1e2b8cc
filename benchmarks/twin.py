"""A twin of a tenth of papers100M, from Parquet shards to predictions: seconds, peak memory and bytes, stage by stage.

    python benchmarks/twin.py        # 11 million nodes, 160 million edges; needs 20 GB of disk
    python benchmarks/twin.py --nodes 500000 --edges 7000000 --memory 1GiB

Papers100M cannot be had without a network, so this is a graph of its shape: 128 float16 features, in-degrees that
follow a power law, labels on 1.4 % of the nodes; 10 classes (papers100M has 172), two of which nobody labels, features
that are a class's centre and noise, and three edges of five within a class. Every stage is a process of its own, and
its peak of resident memory, mapped files included, is that process's.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

CLASSES, OOD_CLASSES, WIDTH = 10, 2, 128
LABELLED, WITHIN, SHARD = 0.014, 0.6, 500_000
POWER = 2.5  # the larger, the more edges go to few nodes


def write_shards(folder: Path, nodes: int, edges: int) -> None:
    """Nodes and edges as Parquet shards, made shard by shard."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for name in ("nodes", "edges"):
        (folder / name).mkdir(parents=True)
    centres = np.random.default_rng(0).normal(size=(CLASSES, WIDTH)).astype(np.float32) * 0.25
    for number, first in enumerate(range(0, nodes, SHARD)):
        rng = np.random.default_rng([1, number])
        ids = np.arange(first, min(first + SHARD, nodes))
        label = ids % CLASSES
        x = (centres[label] + rng.standard_normal((len(ids), WIDTH), dtype=np.float32)).astype(np.float16)
        known = (rng.random(len(ids)) < LABELLED) & (label >= OOD_CLASSES)
        columns = {
            "id": ids,
            "label": pa.array(label.astype(np.int32), mask=~known),
            "x": pa.FixedSizeListArray.from_arrays(pa.array(x.reshape(-1)), WIDTH),
        }
        pq.write_table(pa.table(columns), folder / "nodes" / f"{number:04d}.parquet", compression="none")
    size = nodes // CLASSES  # nodes of a class
    stride = next(step for step in range(int(size * 0.618), size) if np.gcd(step, size) == 1)
    for number, first in enumerate(range(0, edges, 8 * SHARD)):
        rng = np.random.default_rng([2, number])
        count = min(8 * SHARD, edges - first)
        source = rng.integers(nodes, size=count)
        kind = np.where(rng.random(count) < WITHIN, source % CLASSES, rng.integers(CLASSES, size=count))
        rank = (size * rng.random(count) ** POWER).astype(np.int64)
        target = (rank * stride % size) * CLASSES + kind  # popular nodes lie anywhere
        table = pa.table({"source": source, "target": target})
        pq.write_table(table, folder / "edges" / f"{number:04d}.parquet", compression="none")


def stage(name: str, folder: Path, memory: str, out: Path) -> None:
    """One stage, in this process; prints what it has done."""
    import torch

    import credalgnn as cg
    from credalgnn.methods.prediction import write_chunks

    torch.set_num_threads(2)
    begin = time.perf_counter()
    graph = cg.load_graph(folder / "twin.cg")
    if name == "describe":
        print(str(graph.describe()).splitlines()[0])
        return
    method = {"credal-lj": cg.CredalLJ, "credal-coverage": cg.CredalCoverage}[name]
    template = method(epochs=1) if name == "credal-lj" else method(model=cg.Vanilla(epochs=1))
    epochs: list[float] = []
    fitted = template.fit(
        graph, memory=memory, progress=False, on_epoch=lambda line: epochs.append(time.perf_counter())
    )
    trained = time.perf_counter()
    write_chunks(fitted.predict_chunks(), out, total=graph.num_nodes)
    parts = {
        "an epoch": epochs[1] - epochs[0],
        "latents of all nodes" if name == "credal-lj" else "latents and coverage of all nodes": trained - epochs[-1],
        "exact entropies of all nodes, to Parquet": time.perf_counter() - trained,
        "the rest": epochs[0] - begin,
    }
    print("; ".join(f"{part} {seconds:,.0f} s" for part, seconds in parts.items()))


def run(command: list[str]) -> tuple[str, float, float]:
    """The last line that a command prints, its seconds and its peak GiB."""
    begin = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-W", "ignore", *command], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    lines = process.stdout.read().strip().splitlines()
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"failed: {' '.join(command)}")
    return lines[-1] if lines else "", time.perf_counter() - begin, usage.ru_maxrss / 2**20


def bytes_of(path: Path) -> int:
    return (
        sum(each.stat().st_size for each in path.rglob("*") if each.is_file()) if path.is_dir() else path.stat().st_size
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=11_000_000)
    parser.add_argument("--edges", type=int, default=160_000_000)
    parser.add_argument("--memory", default="3GiB", help="that pack, fit and predict may use (default: %(default)s)")
    parser.add_argument("--folder", type=Path, default=Path("runs/twin"), help="for shards and results")
    parser.add_argument("--keep", action="store_true", help="keep the folder, and use what is in it")
    parser.add_argument("--only", nargs="+", metavar="STAGE", help="describe, credal-lj, credal-coverage")
    parser.add_argument("--stage", help=argparse.SUPPRESS)
    args = parser.parse_args()
    folder: Path = args.folder
    if args.stage:
        stage(args.stage, folder, args.memory, folder / f"{args.stage}.parquet")
        return
    print(f"{args.nodes:,} nodes, {args.edges:,} edges, --memory {args.memory}\n")
    print("| stage | what | seconds | peak GiB | GiB on disk |\n|---|---|---:|---:|---:|", flush=True)

    def row(name: str, what: str, seconds: float, peak: float, path: Path) -> None:
        print(f"| {name} | {what} | {seconds:,.0f} | {peak:.2f} | {bytes_of(path) / 2**30:.2f} |", flush=True)

    if not (folder / "twin.cg").exists():
        if not (folder / "edges").exists():
            write_shards(folder, args.nodes, args.edges)
        size = bytes_of(folder / "nodes") + bytes_of(folder / "edges")
        command = ["-m", "credalgnn", "pack", f"{folder}/nodes", f"{folder}/edges", "--out", f"{folder}/twin.cg"]
        _, seconds, peak = run([*command, "--dtype", "float16", "--memory", args.memory])
        row("pack", f"of {size / 2**30:.1f} GiB of Parquet", seconds, peak, folder / "twin.cg")
    for name in args.only or ["describe", "credal-lj", "credal-coverage"]:
        options = ["--stage", name, "--folder", str(folder), "--memory", args.memory]
        what, seconds, peak = run([str(Path(__file__)), *options])
        made = folder / f"{name}.parquet"
        row(name, what, seconds, peak, made if made.exists() else folder / "twin.cg")
    if not args.keep:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
