"""``credalgnn pack``: tables of any size as a graph that is opened, not loaded."""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path
from typing import Any

from ..runtime.memory import in_units
from ..runtime.texts import one_line
from .common import add_memory, need
from .errors import UserError


def add_commands(commands: Any) -> None:
    """Add ``pack``.

    Args:
        commands: The subparsers of the command line.
    """
    pack = commands.add_parser(
        "pack",
        help="make a graph of tables that need not fit into memory",
        description="Make a packed graph of tables of nodes and edges, in bounded memory: CSV or Parquet files, or "
        "folders of such shards, taken in the order of their names. It is opened, not loaded: wherever a graph goes, "
        "its folder goes. If it is stopped, the same command goes on.",
        epilog="example: credalgnn pack nodes/ edges/ --out graph.cg --memory 4GiB --dtype float16",
    )
    pack.add_argument("nodes", type=Path, metavar="NODES", help="a file with a row for each node, or a folder of them")
    pack.add_argument("edges", type=Path, metavar="EDGES", help="a file with a row for each edge, or a folder of them")
    pack.add_argument("--out", type=Path, required=True, metavar="DIR", help="the folder to make, as in graph.cg")
    add_memory(pack, "half of what is available")
    pack.add_argument("--id", default="id", metavar="COLUMN", help="what nodes are called (default: id)")
    pack.add_argument("--label", default="label", metavar="COLUMN", help="their classes (default: label)")
    pack.add_argument("--no-labels", action="store_true", help="there are no labels")
    pack.add_argument("--features", nargs="+", metavar="COLUMN",
                      help="numbers, or a Parquet column of lists of them (default: all other columns)")  # fmt: skip
    pack.add_argument("--source", default="source", metavar="COLUMN", help="where edges come from (default: source)")
    pack.add_argument("--target", default="target", metavar="COLUMN", help="where they go to (default: target)")
    pack.add_argument("--weight", metavar="COLUMN", help="their weights (default: weight, if there is one)")
    pack.add_argument("--split", metavar="COLUMN",
                      help="of nodes, that says train, val, calibration or test, for credalgnn fit")  # fmt: skip
    pack.add_argument("--delimiter", metavar="CHAR", help="of text files (default: found in the header)")
    pack.add_argument("--undirected", action="store_true", help="take each edge both ways, once each")
    pack.add_argument("--dtype", choices=("float32", "float16"), default="float32",
                      help="what features are kept as (default: float32)")  # fmt: skip
    pack.set_defaults(run=_pack)


def _pack(args: argparse.Namespace) -> None:
    need("pyarrow", "credalgnn pack")
    from ..graphs import GraphError, pack
    from ..runtime.progress import stage_bars

    with warnings.catch_warnings(), stage_bars() as progress:
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = lambda message, *_, **__: print(f"! {one_line(str(message))}", file=sys.stderr)
        try:
            made = pack(
                args.nodes,
                args.edges,
                args.out,
                id=args.id,
                label=None if args.no_labels else args.label,
                features=args.features,
                source=args.source,
                target=args.target,
                weight=args.weight,
                split=args.split,
                delimiter=args.delimiter,
                undirected=args.undirected,
                dtype=args.dtype,
                memory=args.memory,
                progress=progress,
            )
        except (GraphError, OSError) as error:
            raise UserError(str(error)) from None
    if not made.seconds:
        print(f"{made.path}: packed already from these tables; nothing to do")
    print(f"{'nodes':10s} {made.nodes:,}\n{'edges':10s} {made.edges:,}\n{'on disk':10s} {in_units(made.bytes)}")
    if made.seconds:
        each = ", ".join(f"{stage} {seconds:.1f}" for stage, seconds in made.seconds.items())
        print(f"{'seconds':10s} {sum(made.seconds.values()):.1f} ({each})")
