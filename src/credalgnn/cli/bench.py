"""``credalgnn bench`` and ``credalgnn report``: methods side by side, and tables and a page from records."""

from __future__ import annotations

import argparse
import shutil
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._names import suggestion
from .common import (
    Bar,
    add_work_options,
    chosen_methods,
    count,
    deadline_of,
    engine_of,
    is_inductive,
    load_tasks,
    need,
    overrides_for,
    source_of,
    user_errors,
)
from .errors import UserError

if TYPE_CHECKING:
    from ..bench.benchmark import Outcome
    from ..bench.engines import Engine
    from ..bench.folder import Folder
    from ..bench.plan import Run
    from ..graphs import Task


def add_commands(commands: Any) -> None:
    """Add ``bench`` and ``report``.

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
    bench.add_argument("-m", "--methods", nargs="+", default=["all"], metavar="METHOD", help="names, or all (default)")
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
        help="tables and page again from records, without any training; several folders merge",
        description="Print the table of one or more folders of benchmarks, and write table.md, table.csv, table.tex "
        "and report.html into --out; for folders of credalgnn reproduce also paper.md and paper.html.",
    )
    report.add_argument("folders", nargs="+", type=Path, metavar="DIR")
    report.add_argument("--out", type=Path, metavar="DIR", help="default: the folder, if there is one only")
    report.add_argument(
        "--score", nargs="+", metavar="NAME", help="only these scores in the tables (EU, AU, TU, energy ...)"
    )
    report.set_defaults(run=_report)


def _bench(args: argparse.Namespace) -> int:
    methods, inductive = _with_trivial(chosen_methods(args.methods)), is_inductive(args)
    if args.vary_split and args.split_seed:
        raise UserError("--vary-split gives every seed a split of its own: leave out --split-seed")
    if args.vary_split and args.tuned is not None:
        raise UserError("--tuned is for the split that was tuned on: leave out --vary-split")
    if args.predictions != "none":
        need("pyarrow", "--predictions", ", or give --predictions none")
    with user_errors():
        from ..bench.folder import Folder

        source = source_of(args)
        splits = range(args.seeds) if args.vary_split else [args.split_seed]
        tasks = load_tasks(source, args.datasets, splits, inductive)
        runs = _runs(args, methods, tasks)
        identity = {
            "kind": "bench", "protocol": args.protocol, "setting": args.setting,
            "split": "seed" if args.vary_split else args.split_seed, "set": sorted(args.overrides),
            "tuned": args.tuned is not None,
        }  # fmt: skip
        folder = Folder.open(args.out, identity)
        kept = {"none": 0, "first": 1, "all": args.seeds}[args.predictions]  # seeds whose predictions are kept
        with folder.occupied() as tidy, engine_of(args, source, folder.models) as engine:
            outcome = run_benchmark(folder, runs, tasks, engine, lambda run: run.seed < kept, deadline_of(args))
            if not outcome.left:
                tidy()
        if outcome.done:
            print(write_report([args.out], args.out, f"credalgnn bench: {', '.join(dict.fromkeys(args.datasets))}"))
    if outcome.left:
        print(f"{outcome.left} of {len(runs)} runs are left: the same command goes on", file=sys.stderr)
    if outcome.failed:
        print(f"{outcome.failed} of {len(runs)} runs failed: the same command tries again", file=sys.stderr)
    return 1 if outcome.left or outcome.failed else 0


def run_benchmark(
    folder: Folder,
    runs: Sequence[Run],
    tasks: Mapping[tuple[str, int], Task],
    engine: Engine,
    keep_nodes: Callable[[Run], bool],
    deadline: float | None,
) -> Outcome:
    """Do the runs and show their progress; an error if the folder or records in it vanish meanwhile.

    Args:
        folder: Of the experiment.
        runs: What to do.
        tasks: By data set and split.
        engine: Does the runs.
        keep_nodes: Whether the predictions of a run are kept.
        deadline: As ``time.monotonic`` counts.
    """
    from ..bench.benchmark import Progress, benchmark
    from ..bench.records import EXPERIMENT
    from ..bench.vanished import FolderVanished, guarded

    records = {path for run in runs if (path := folder.place(run)).exists()}
    with guarded(folder.path, EXPERIMENT) as check_folder, Bar(len(runs)) as bar:

        def tell(progress: Progress) -> None:
            check_folder()
            if progress.record is not None:
                records.add(folder.place(progress.run))
            bar.tell(progress)

        outcome = benchmark(folder, runs, tasks, engine, keep_nodes, deadline, tell)
        missing = sum(not path.exists() for path in records)
        if missing:  # a table of what is left would look like a whole one
            raise FolderVanished(
                f"{folder.path}: {missing} of {len(records)} records vanished during the work: the same command makes "
                "them again"
            )
    return outcome


def _with_trivial(methods: Sequence[str]) -> list[str]:
    """The baselines that need no model stand in every table."""
    from ..methods import METHODS

    return [*methods, *(name for name, kind in METHODS.items() if kind.is_baseline and name not in methods)]


def _runs(args: argparse.Namespace, methods: Sequence[str], tasks: Mapping[tuple[str, int], Task]) -> list[Run]:
    """Everything to do, seed by seed, so that a benchmark that is stopped has compared what it has done."""
    from ..bench.plan import plan

    settings = {name: overrides_for(name, args.overrides, methods) for name in methods}
    datasets = list(dict.fromkeys(args.datasets))
    tuned = {dataset: _tuned(args, methods, tasks[dataset, args.split_seed]) for dataset in datasets}
    runs = []
    for seed in range(args.seeds):
        split = seed if args.vary_split else args.split_seed
        for dataset in datasets:
            for name in methods:
                (own, below), best = settings[name], tuned[dataset].get(name, {})
                config, vanilla = {**best.get("config", {}), **own}, {**best.get("components", {}), **below}
                inductive = tasks[dataset, split].inductive
                runs.append(plan(dataset, name, seed, args.protocol, split, config, [vanilla], inductive))
    return runs


def _tuned(args: argparse.Namespace, methods: Sequence[str], task: Task) -> dict[str, dict[str, Any]]:
    """What ``--tuned`` holds for a task; refused are methods that could have been tuned and were not, or apart."""
    from ..methods import METHODS
    from ..tuning import tuned

    if args.tuned is None:
        return {}
    chosen = tuned(args.tuned, task, args.protocol)
    missing = [name for name in methods if METHODS[name].search_space and name not in chosen]
    if missing:
        raise UserError(
            f"{args.tuned}: {', '.join(missing)} not tuned on {task.name}, and a table compares methods of one budget: "
            "tune them too, or leave them out"
        )
    below = {
        name: chosen[name]["components"] for name in methods if METHODS[name].search_space and METHODS[name].components
    }
    below |= {"vanilla": chosen["vanilla"]["config"]} if "vanilla" in methods else {}
    for name, config in below.items():
        other = next(iter(below))
        if config != below[other]:
            raise UserError(
                f"{args.tuned}: {other} and {name} were tuned with different vanilla GNNs on {task.name}: tune both "
                "again, vanilla first or with them, or bench them apart"
            )
    return chosen


def _report(args: argparse.Namespace) -> int:
    if args.out is None and len(args.folders) > 1:
        raise UserError("several folders: say with --out where the tables and the page shall go")
    with user_errors():
        from ..report.paper import is_reproduction, write_beside

        out = args.out or args.folders[0]
        _check_place(out, args.folders)
        beside = all(map(is_reproduction, args.folders))
        if beside:  # first: reproductions that differ are refused before anything is written
            write_beside(args.folders, out)
        print(write_report(args.folders, out, "credalgnn report", args.score))
        if beside:
            print(f"beside the paper's: {out / 'paper.md'}")
    return 0


def _check_place(out: Path, folders: Sequence[Path]) -> None:
    """Refuse to write over another experiment's tables, or over a page that is not of this kind."""
    from ..bench.folder import EXPERIMENT

    if out.resolve() in [folder.resolve() for folder in folders]:
        return
    if (out / EXPERIMENT).exists():
        raise UserError(f"{out} holds another experiment: choose another --out")
    page = out / "report.html"
    if page.exists() and b'name="generator" content="credalgnn"' not in page.read_bytes()[:4000]:
        raise UserError(f"{page} is not a page of credalgnn: choose another --out")


def write_report(folders: Sequence[Path], out: Path, title: str, scores: Sequence[str] | None = None) -> str:
    """Tables and page from records.

    Args:
        folders: Of experiments.
        out: Where the tables and the page go.
        title: Of the page.
        scores: Only these in the tables; None for all.

    Returns:
        What to print of it.
    """
    from ..report.page import write_page
    from ..report.summary import TaskKey, make_rows, read_runs
    from ..report.tables import in_words, terminal, write_tables

    records = read_runs(folders)
    rows = make_rows(records)
    known = dict.fromkeys(row.score for row in rows)
    unknown = [name for name in scores or () if name not in known]
    if unknown:
        raise UserError(f"no run has the score {unknown[0]!r}: {suggestion(unknown[0], known)}")
    rows = [row for row in rows if scores is None or row.trivial or row.score in scores]
    write_tables(rows, out)
    write_page(records, folders, out / "report.html", title)
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    ood_names = {TaskKey.of(record): record["ood_names"] for record in records if record["status"] == "done"}
    lines = in_words(rows, ood_names)
    if width is not None:
        lines = [line for text in lines for line in textwrap.wrap(text, max(width, 20))]
    return "\n".join([terminal(rows, width), "", *lines, f"tables and page: {out / 'report.html'}"])
