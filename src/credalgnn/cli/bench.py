"""``credalgnn bench``, ``report`` and ``leaderboard``: methods side by side, tables and pages from records."""

from __future__ import annotations

import argparse
import shutil
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..runtime.texts import printable
from .common import (
    KEPT,
    add_work_options,
    check_setting,
    classes_of,
    count,
    need,
    settings_of,
    user_errors,
    work_options,
)
from .errors import UserError
from .own import add_tables, is_model, report_model

if TYPE_CHECKING:
    from ..report.results import Results


def add_commands(commands: Any) -> None:
    """Add ``bench``, ``report`` and ``leaderboard``.

    Args:
        commands: The subparsers of the command line.
    """
    bench = commands.add_parser(
        "bench",
        help="methods side by side on named graphs: records, tables and a page",
        description="Fit methods on leave-out-class tasks and judge them on the test nodes, with several seeds. One "
        "record per run, tables and report.html go to --out. The same command goes on where it was stopped; runs that "
        "failed are tried again.",
    )
    bench.add_argument("-m", "--methods", nargs="+", default=["all"], metavar="METHOD",
                       help="names, or all (default); or package.module:Class")  # fmt: skip
    add_work_options(bench)
    bench.add_argument(
        "--seeds", type=count, default=10, metavar="N", help="seeds 0..N-1, at most 10,000 (default: %(default)s)"
    )
    bench.add_argument("--vary-split", action="store_true", help="seed k takes split k, too; else all share one split")
    bench.add_argument("--tuned", type=Path, metavar="DIR", help="use what credalgnn tune chose there")
    bench.add_argument(
        "--predictions", choices=("none", "first", "all"), default="first",
        help="keep what is predicted for each node, of the first seed or of all (default: %(default)s)",
    )  # fmt: skip
    bench.set_defaults(run=_bench)
    report = commands.add_parser(
        "report",
        help="tables and page again from records, or the page of a model and a graph; nothing is trained",
        description="Print the table of one or more folders of benchmarks, and write table.md, table.csv, table.tex "
        "and report.html into --out; for folders of credalgnn reproduce also paper.md and paper.html, for those of "
        "credalgnn probe probe.md, probe.csv, probe.svg and probe.html. For the folder "
        "of a model (credalgnn fit): predict a graph, given by --nodes and --edges or --graph, and write its page, "
        "report.html, into --out.",
    )
    report.add_argument("folders", nargs="+", type=Path, metavar="DIR")
    report.add_argument("--out", type=Path, metavar="DIR", help="default: the folder, if there is one only")
    report.add_argument(
        "--score", nargs="+", metavar="NAME", help="only these scores in the tables (EU, AU, TU, energy ...)"
    )
    add_tables(report)
    report.set_defaults(run=_report)
    board = commands.add_parser(
        "leaderboard",
        help="many methods on many graphs in one page that sorts: ranks, wins and losses; nothing is trained",
        description="Collect the runs of folders of benchmarks, and of other leaderboards, into one: leaderboard.html, "
        "leaderboard.md and the runs themselves (runs.jsonl.gz) go to --out, and later leaderboards can be made from "
        "these. Of a run that several folders hold, on the same data with the same hyper-parameters, the first counts. "
        "Example: credalgnn leaderboard docs/results/leaderboard runs/mine --out runs/leaderboard",
    )
    board.add_argument("folders", nargs="+", type=Path, metavar="DIR")
    board.add_argument("--out", type=Path, required=True, metavar="DIR")
    board.set_defaults(run=_leaderboard)


def _bench(args: argparse.Namespace) -> int:
    check_setting(args)
    if args.vary_split and args.split_seed:
        raise UserError("--vary-split gives every seed a split of its own: leave out --split-seed")
    if args.vary_split and args.tuned is not None:
        raise UserError("--tuned is for the split that was tuned on: leave out --vary-split")
    if args.predictions != "none":
        need("pyarrow", "--predictions", ", or give --predictions none")
    work = work_options(args)
    with user_errors(KEPT):
        from ..experiments import benchmark

        results = benchmark(
            args.datasets,
            args.methods,
            seeds=args.seeds,
            out=args.out,
            protocol=args.protocol,
            setting=args.setting,
            ood_classes=classes_of(args),
            split_seed=args.split_seed,
            vary_split=args.vary_split,
            settings=settings_of(args.overrides),
            tuned=args.tuned,
            predictions=args.predictions,
            **work,
        )
        if results.records:
            print(printable(summary_of(results, args.out)))
    if results.left:
        print(f"{results.left} of {results.total} runs are left: the same command goes on", file=sys.stderr)
    if results.failed:
        print(f"{results.failed} of {results.total} runs failed: the same command tries again", file=sys.stderr)
    return 1 if results.left or results.failed else 0


def _report(args: argparse.Namespace) -> int:
    if is_model(args.folders[0]):
        return report_model(args)
    if args.nodes is not None or args.edges is not None or args.graph is not None or args.context is not None:
        raise UserError(f"--nodes, --edges, --graph and --context are for models; {args.folders[0]} holds none")
    if args.out is None and len(args.folders) > 1:
        raise UserError("several folders: say with --out where the tables and the page shall go")
    with user_errors():
        from ..experiments.paper import is_reproduction, write_comparison
        from ..experiments.probe_results import is_probe, read_probes
        from ..report import write_report

        out = args.out or args.folders[0]
        if any(map(is_probe, args.folders)):  # read_probes refuses others among them
            results = read_probes(args.folders)
            page = results.write(out)
            print(printable(f"{results}\n\npage, tables and plots: {page}"))
            return 0
        beside = all(map(is_reproduction, args.folders))
        if beside:  # first: reproductions that differ are refused before anything is written
            write_comparison(args.folders, out)
        print(printable(summary_of(write_report(args.folders, out, scores=args.score), out, args.score)))
        if beside:
            print(f"comparison with the paper: {out / 'paper.md'}")
    return 0


def _leaderboard(args: argparse.Namespace) -> int:
    with user_errors():
        from ..report import leaderboard

        board = leaderboard(args.folders)
        page = board.write(args.out)
        print(printable(str(board)))
        if board.doubles:
            print(f"\n{board.doubles} runs are in more than one folder: those of the first one count")
        print(f"\npage, tables and runs: {page}")
    return 0


def summary_of(results: Results, out: Path, scores: Sequence[str] | None = None) -> str:
    """What to print of results whose tables and page are written.

    Args:
        results: Of runs.
        out: Where tables and page are.
        scores: Only these; None for all.
    """
    from ..records.folder import PAGE
    from ..report.results import headline, terminal
    from ..report.summary import TaskKey

    rows = results.select_rows(scores)
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    done = [record for record in results.records if record["status"] == "done"]
    lines = headline(rows, {TaskKey.of(record): record["ood_names"] for record in done})
    if width is not None:
        lines = [line for text in lines for line in textwrap.wrap(text, max(width, 20))]
    return "\n".join([terminal(rows, width), "", *lines, f"tables and page: {out / PAGE}"])
