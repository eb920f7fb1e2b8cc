"""Tables of a graph of the size of Patents: seconds to read them, and to describe the graph.

    python benchmarks/tables.py

Every measurement is a process of its own: CPU and wall seconds, and the most memory that it held. Ids are whole numbers
in any order, or texts; edges are given once and go one way. ``--source`` measures the package of another checkout.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

MEASURE = """
import json, resource, sys, time
from credalgnn.graphs import Graph
import torch
files = sys.argv[1:]
seconds = []
for step in (lambda: globals().update(graph=Graph.from_tables(*files, label="label")), lambda: graph.describe()):
    cpu, wall = time.process_time(), time.perf_counter()
    step()
    seconds.append((time.process_time() - cpu, time.perf_counter() - wall))
print(json.dumps({"seconds": seconds, "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20}))
"""


def write(folder: Path, nodes: int, edges: int) -> None:
    """Nodes and edges as Parquet and CSV, with ids of both kinds."""
    import pyarrow as pa
    from pyarrow import csv
    from pyarrow import parquet as pq

    rng = np.random.default_rng(0)
    numbers = rng.permutation(nodes) + 10**7
    features = {f"x{k}": rng.normal(size=nodes).astype(np.float32) for k in range(8)}
    labels = pa.array(rng.integers(0, 5, nodes)).cast(pa.string())
    ends = [pa.array(rng.integers(0, nodes, edges)) for _ in range(2)]
    for kind, ids in (("numbers", pa.array(numbers)), ("text", pa.array(np.char.add("n", numbers.astype(str))))):
        tables = {
            "nodes": pa.table({"id": ids, "label": labels, **features}),
            "edges": pa.table({"source": ids.take(ends[0]), "target": ids.take(ends[1])}),
        }
        for name, table in tables.items():
            pq.write_table(table, folder / f"{kind}-{name}.parquet")
            csv.write_csv(table, folder / f"{kind}-{name}.csv")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=2_900_000)
    parser.add_argument("--edges", type=int, default=14_000_000)
    parser.add_argument("--folder", type=Path, default=Path("runs/tables"))
    parser.add_argument("--source", help="folder `src` of another checkout")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    if not (args.folder / "text-edges.csv").exists():
        write(args.folder, args.nodes, args.edges)
    environment = {**os.environ, **({"PYTHONPATH": args.source} if args.source else {})}
    print("| ids | files | read, CPU s | wall s | describe, CPU s | wall s | peak GiB |")
    print("|---|---|---:|---:|---:|---:|---:|")
    for kind in ("numbers", "text"):
        for ending in ("parquet", "csv"):
            files = [str(args.folder / f"{kind}-{name}.{ending}") for name in ("nodes", "edges")]
            done = subprocess.run(
                [sys.executable, "-c", MEASURE, *files], env=environment, capture_output=True, text=True, check=True
            )
            found = json.loads(done.stdout.splitlines()[-1])
            cells = [f"{value:.1f}" for pair in found["seconds"] for value in pair]
            print(f"| {kind} | {ending} | {' | '.join(cells)} | {found['peak']:.2f} |", flush=True)


if __name__ == "__main__":
    main()
