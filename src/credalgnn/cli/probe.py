"""``credalgnn probe``: whether AU answers to noise and EU to missing knowledge."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from ..runtime.texts import printable
from .common import KEPT, add_data_options, add_place_options, classes_of, count, settings_of, user_errors, work_options


def add_commands(commands: Any) -> None:
    """Add ``probe``.

    Args:
        commands: The subparsers of the command line.
    """
    probe = commands.add_parser(
        "probe",
        help="do AU and EU deserve their names? graphs are changed in known ways, and each must answer to its own",
        description="Take labels away, make labels wrong, remove or blur features, rewire edges, leave classes out, "
        "and see whether epistemic uncertainty (EU) answers to missing knowledge and aleatoric uncertainty (AU) to "
        "noise; on csbm, beside the true posterior. One number a method and test: 1 is right, 0 no answer, below 0 the "
        "wrong direction. Records, tables, plots and probe.html go to --out. The same command goes on where it was "
        "stopped.",
    )
    probe.add_argument("-m", "--methods", nargs="+", default=["all"], metavar="METHOD",
                       help="names, or all (default); or package.module:Class")  # fmt: skip
    add_data_options(probe)
    probe.add_argument("--seeds", type=count, metavar="N",
                       help="seeds 0..N-1, each with a split of its own (default: 3; of a quick probe 1)")  # fmt: skip
    probe.add_argument("--quick", action="store_true", help="only the strongest level of each change, in minutes")
    add_place_options(probe)
    probe.set_defaults(run=_probe)


def _probe(args: argparse.Namespace) -> int:
    work = work_options(args)
    with user_errors(KEPT):
        from ..experiments.probing import probe

        results = probe(
            args.datasets,
            args.methods,
            out=args.out,
            seeds=args.seeds,
            quick=args.quick,
            ood_classes=classes_of(args),
            settings=settings_of(args.overrides),
            **work,
        )
        if results.done:
            print(printable(str(results)))
            print(f"\npage, tables and plots: {args.out / 'probe.html'}")
    if results.left:
        print(f"{results.left} of {results.total} runs are left: the same command goes on", file=sys.stderr)
    if results.failed:
        print(f"{results.failed} of {results.total} runs failed: the same command tries again", file=sys.stderr)
    return 1 if results.left or results.failed else 0
