"""``credalgnn datasets`` and ``credalgnn describe``: the graphs that have a name."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from .errors import UserError


def add_commands(commands: Any) -> None:
    """Add ``datasets`` and ``describe``.

    Args:
        commands: The subparsers of the command line.
    """
    listing = commands.add_parser("datasets", help="the graphs that have a name, and whether they are on this disk")
    listing.set_defaults(run=_datasets)
    describe = commands.add_parser("describe", help="a named graph and its task, next to the paper's counts")
    describe.add_argument("name", metavar="NAME")
    describe.add_argument("--split-seed", type=int, default=0, metavar="K", help="public split, or seed (default: 0)")
    describe.set_defaults(run=_describe)
    for command in (listing, describe):
        command.add_argument("--mirror", type=Path, metavar="DIR", help="raw files in PyG's layout, looked at first")
        command.add_argument("--data-root", type=Path, metavar="DIR", help="where graphs are kept once read")


def _datasets(args: argparse.Namespace) -> None:
    from ..graphs import GraphError
    from ..graphs.named import DATASETS, in_mirror, paper_table, summary

    try:
        mirrored = {name for name, dataset in DATASETS.items() if dataset.make is None and in_mirror(name, args.mirror)}
    except GraphError as error:
        raise UserError(error) from None
    paper = {row["dataset"]: row for row in paper_table()}
    print(f"{'name':10s} {'nodes':>10s} {'edges':>11s} {'classes':>7s} {'homophily':>9s}  on disk")
    for name, dataset in DATASETS.items():
        cached = summary(name, args.data_root)
        if cached is not None:
            numbers = f"{cached[0]:10,d} {cached[1]:11,d} {cached[2]:7d} {cached[3]:9.3f}"
            where = "yes" if dataset.make is None else "embedded"
        else:
            nodes, edges, classes, homophily = dataset.published or _of_paper(paper[name])
            numbers = f"{nodes:10,d} {edges:11,d} {classes:7d} {homophily:>9s}"
            where = "raw files in the mirror" if name in mirrored else "no"
        print(f"{name:10s} {numbers}  {where:24s} {dataset.about}")
    print("\nWhat is not on disk yet is shown with published numbers; credalgnn describe NAME fetches and reads it.")


def _of_paper(row: dict[str, str | int]) -> tuple[int, int, int, str]:
    """Nodes, edges, classes and homophily in the paper's table."""
    nodes, edges, classes = (int(row[key]) for key in ("nodes", "edges", "classes"))
    return nodes, edges, classes, {"He": "low", "Ho": "high"}[str(row["homophily"])]


def _describe(args: argparse.Namespace) -> None:
    from ..graphs import GraphError, load_task, paper_table

    try:
        task = load_task(args.name, args.split_seed, mirror=args.mirror, data_root=args.data_root)
    except GraphError as error:
        raise UserError(error) from None
    print(task.graph.describe())
    left_out = ", ".join(task.graph.class_names[k] for k in task.ood_classes)
    print(f"{'left out':15s} {left_out}\n{'fingerprint':15s} {task.fingerprint}\n")
    paper = next((row for row in paper_table() if row["dataset"] == args.name), None)
    ours = {
        "nodes": task.graph.num_nodes,
        "edges": task.graph.num_edges,
        "classes": task.graph.num_classes,
    } | task.counts
    print(f"{'':15s} {'here':>12s}" + (f"{'paper':>12s}" if paper else ""))
    for key, value in ours.items():
        print(f"{key:15s} {value:12,d}" + (f"{paper[key]:12,d}" if paper else ""))
    pairs = task.graph.num_pairs
    if paper and ours["edges"] != paper["edges"] == pairs:
        print(f"\nThe paper counts the edges of {args.name} as pairs of nodes, whatever their direction: {pairs:,}.")
