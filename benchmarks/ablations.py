"""Credal models with other latents and other backbones, on several graphs: two tables, resumable.

    make bench-ablations

Untuned and sealed: AUROC of EU (of the vanilla GNN that of its largest probability) and ID accuracy in per cent, mean
and standard deviation over seeds. N: in so many runs hardly any interval is open, so that EU is the order of tiny
numbers. Records are kept in a folder, and the same command goes on with what is left.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import credalgnn as cg

CREDAL = ["credal-lj", "credal-dual", "credal-frozen"]
LATENTS = ([0], [1], [-1], [1, 2], None)  # of two layers: the features, each layer, both layers, everything
BACKBONES = ("sage", "gcn", "gat", "gpr", "gin", "gatv2")


def cell(records: Iterable[dict[str, Any]], graph: str, method: str) -> str:
    """AUROC and accuracy of one method on one graph, with the number of runs whose intervals are closed."""
    found = [one for one in records if (one["dataset"], one["method"], one["status"]) == (graph, method, "done")]
    aurocs = [100 * one["scores"][one["headline"]]["auroc"] for one in found]
    accuracy = np.mean([100 * one["metrics"]["accuracy"] for one in found])
    narrow = sum("narrow" in one["marks"] for one in found)
    return f"{np.mean(aurocs):.1f} ± {np.std(aurocs, ddof=1):.1f}, {accuracy:.1f}" + (f" N{narrow}" if narrow else "")


def table(head: str, rows: Sequence[tuple[str, dict[str, Any]]], methods: list[str], args: argparse.Namespace) -> None:
    """One row a setting and graph, one column a method."""
    print(f"| {head} | graph | " + " | ".join(methods) + " |\n|---|---|" + "---:|" * len(methods))
    for name, settings in rows:
        place = Path(args.out) / f"{head}-{name}"
        runs = cg.benchmark(
            args.datasets, methods, seeds=args.seeds, settings=settings, out=place, predictions="none", jobs=args.jobs
        )
        for graph in args.datasets:
            print(f"| {name} | {graph} | " + " | ".join(cell(runs.records, graph, one) for one in methods) + " |")
    print(flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--datasets", nargs="+", default=["chameleon", "squirrel", "cora", "citeseer", "digits"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--out", default="runs/ablations")
    args = parser.parse_args()
    table("latents", [(str(one or "all"), {"latents": one} if one else {}) for one in LATENTS], CREDAL, args)
    table("backbone", [(one, {"backbone": one}) for one in BACKBONES], ["vanilla", *CREDAL], args)


if __name__ == "__main__":
    main()
