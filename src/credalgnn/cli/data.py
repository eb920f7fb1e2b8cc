"""``credalgnn datasets`` and ``credalgnn describe``: the graphs that have a name."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ..runtime.memory import in_units
from ..runtime.texts import one_line, printable
from .common import user_errors
from .errors import UserError


def add_commands(commands: Any) -> None:
    """Add ``datasets`` and ``describe``.

    Args:
        commands: The subparsers of the command line.
    """
    listing = commands.add_parser("datasets", help="the graphs that have a name, and whether they are on this disk")
    listing.set_defaults(run=_datasets, prints=True)
    telling = commands.add_parser("describe", help="a graph and its task, next to the paper's counts")
    telling.add_argument(
        "name",
        metavar="NAME",
        help="or a packed graph, a file of Graph.save, a folder with tables, package.module:name",
    )
    telling.add_argument("--ood-classes", nargs="*", metavar="CLASS", help="left out, by number or name")
    telling.add_argument("--split-seed", type=int, default=0, metavar="K", help="public split, or seed (default: 0)")
    telling.set_defaults(run=_describe, prints=True)
    for command in (listing, telling):
        command.add_argument("--mirror", type=Path, metavar="DIR", help="raw files in PyG's layout, looked at first")
        command.add_argument("--data-root", type=Path, metavar="DIR", help="where graphs are kept once read")


def _datasets(args: argparse.Namespace) -> None:
    from ..graphs import DATASETS, GraphError, dataset_names, find_dataset

    names = dataset_names()
    width = max(map(len, names))
    print(f"{'name':{width}s} {'nodes':>10s} {'edges':>11s} {'classes':>7s} {'homophily':>9s}  on disk")
    for name in names:
        try:
            dataset = find_dataset(name)
            size, place = dataset.summary(args.data_root), dataset.place(args.mirror, args.data_root)
        except GraphError as error:
            if name in DATASETS:  # the mirror is none; a plug-in that cannot be loaded must not hide the others
                raise UserError(error) from None
            print(f"{name:{width}s} cannot be loaded: {one_line(str(error))}")
            continue
        numbers = " " * 40
        if size is not None:
            share = size.homophily if isinstance(size.homophily, str) else f"{size.homophily:.2f}"
            numbers = f"{size.nodes:10,d} {size.edges:11,d} {size.classes:7d} {share:>9s}"
        print(f"{name:{width}s} {numbers}  {place:24s} {dataset.description}")
    print("\nWhat is not on disk yet is shown with published numbers; credalgnn describe NAME fetches and reads it.")


def _describe(args: argparse.Namespace) -> None:
    with user_errors():
        _describe_it(args)


def _describe_it(args: argparse.Namespace) -> None:
    from ..graphs import find_dataset, load_graph, load_task, paper_table

    packed = find_dataset(args.name).source == f"packed: {args.name}"
    if packed and args.ood_classes is None:  # which names no classes
        graph = load_graph(args.name)
        size = sum(file.stat().st_size for file in Path(args.name).iterdir())
        print(printable(str(graph.describe())))
        print(f"{'on disk':15s} {in_units(size)}\n{'fingerprint':15s} {graph.fingerprint}")
        return
    task = load_task(args.name, args.split_seed, args.ood_classes, mirror=args.mirror, data_root=args.data_root)
    print(printable(str(task.graph.describe())))
    left_out = ", ".join(task.graph.class_names[k] for k in task.ood_classes) or "none"
    print(f"{'left out':15s} {printable(left_out)}\n{'fingerprint':15s} {task.fingerprint}\n")
    paper = next((row for row in paper_table() if row["dataset"] == args.name), None)
    ours = {
        "nodes": task.graph.num_nodes,
        "edges": task.graph.num_edges,
        "classes": task.graph.num_classes,
    } | task.counts
    print(f"{'':15s} {'here':>12s}" + (f"{'paper':>12s}" if paper else ""))
    for key, value in ours.items():
        print(f"{key:15s} {value:12,d}" + (f"{paper[key]:12,d}" if paper else ""))
    if paper and ours["edges"] != paper["edges"] == (pairs := task.graph.num_pairs):
        print(f"\nThe paper counts the edges of {args.name} as pairs of nodes, whatever their direction: {pairs:,}.")
