"""From Parquet tables of a large graph to a model and to predictions, by the shell commands: seconds and peak memory.

Prints what the commands print, and a table in Markdown. 2 million nodes and 4 million edges unless told otherwise.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

CLASSES = 8
OOD_SHARE = 0.05  # share of nodes of a class that nobody labels


def write_tables(folder: Path, nodes: int, edges: int) -> None:
    """Nodes of CLASSES classes with six numbers, three categories and a date; edges mostly within a class."""
    rng = np.random.default_rng(0)
    label = rng.integers(CLASSES, size=nodes)
    label[rng.random(nodes) < OOD_SHARE] = CLASSES
    numbers = {f"amount_{k}": rng.normal(label == k, 1.0).astype(np.float32) for k in range(5)}
    numbers["spent"] = rng.lognormal(0.2 * label, 1.5).astype(np.float32)
    kinds = {
        "country": _drawn(["de", "fr", "it", "es", "pl", "nl", "se", "at", "pt"], label + rng.integers(3, size=nodes)),
        "device": _drawn(["phone", "desk", "tablet"], rng.integers(3, size=nodes)),
        "plan": _drawn(["free", "plus", "team", None], label // 2 + rng.integers(2, size=nodes)),
    }
    known = (label < CLASSES) & (rng.random(nodes) < 0.1)
    columns = {
        "id": np.arange(nodes) + 10_000_000,
        "topic": pa.array(
            [f"class {k}" if yes else None for k, yes in zip(label.tolist(), known.tolist(), strict=True)]
        ),
        **numbers,
        **kinds,
        "since": pa.array(rng.integers(15_000, 20_000, size=nodes).astype("int32")).cast(pa.date32()),
    }
    pq.write_table(pa.table(columns), folder / "nodes.parquet")
    order = np.argsort(label, kind="stable")
    start = np.searchsorted(label[order], np.arange(CLASSES + 2))
    source = rng.integers(nodes, size=edges)
    own = label[source]
    inside = order[start[own] + (rng.random(edges) * (start[own + 1] - start[own])).astype(np.int64)]
    target = np.where(rng.random(edges) < 0.7, inside, rng.integers(nodes, size=edges))
    pq.write_table(pa.table({"source": source + 10_000_000, "target": target + 10_000_000}), folder / "edges.parquet")


def _drawn(values: list[str | None], numbers: np.ndarray) -> pa.Array:
    return pa.array(np.array(values, dtype=object)[numbers % len(values)])


def run(command: list[str]) -> tuple[float, float]:
    """Seconds and peak GiB of a command."""
    print(f"\n$ {' '.join(command)}", flush=True)
    begin = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", *command])
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"failed: {' '.join(command)}")
    return time.perf_counter() - begin, usage.ru_maxrss / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=2_000_000)
    parser.add_argument("--edges", type=int, default=4_000_000)
    parser.add_argument("--epochs", type=int, default=5)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_tables(folder, args.nodes, args.edges)
        tables = ["--nodes", f"{folder}/nodes.parquet", "--edges", f"{folder}/edges.parquet"]
        model = f"{folder}/model"
        options = ["--label", "topic", "--out", model, "--set", f"epochs={args.epochs}"]
        rows = {
            "fit": run(["credalgnn", "fit", *tables, *options]),
            "predict": run(["credalgnn", "predict", model, *tables, "--out", f"{folder}/predictions.parquet"]),
        }
        size = (folder / "predictions.parquet").stat().st_size / 2**20
    print(f"\n{args.nodes:,} nodes, {args.edges:,} edges, {args.epochs} epochs; predictions {size:,.0f} MiB\n")
    print("| command | seconds | peak GiB | wanted |\n|---|---:|---:|---|")
    for name, (seconds, peak) in rows.items():
        print(f"| {name} | {seconds:,.0f} | {peak:.1f} | 8 GiB at the most |")


if __name__ == "__main__":
    main()
