"""``credalgnn tune`` and ``credalgnn reproduce``: hyper-parameters, and the paper's whole experiment."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from .bench import run_benchmark, write_report
from .common import (
    Bar,
    add_place_options,
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
    from ..tuning.best import Best


def add_commands(commands: Any) -> None:
    """Add ``tune`` and ``reproduce``.

    Args:
        commands: The subparsers of the command line.
    """
    tune = commands.add_parser(
        "tune",
        help="search hyper-parameters (Optuna), by what the protocol allows to look at",
        description="Search the paper's space (for baselines that of their original papers) with Optuna's TPE. Several "
        "processes and machines may work on the same --out; what is finished is kept, and the same command goes on. "
        "credalgnn bench --tuned uses what was chosen.",
    )
    tune.add_argument("-m", "--methods", nargs="+", required=True, metavar="METHOD", help="names, or all")
    add_work_options(tune)
    tune.add_argument(
        "--trials", type=count, default=30, metavar="N", help="trials per method, at most 10,000 (default: %(default)s)"
    )
    tune.add_argument("--storage", metavar="URL", help="an Optuna database instead of a journal file in --out")
    tune.set_defaults(run=_tune)
    _add_scale(tune, "log")
    reproduce = commands.add_parser(
        "reproduce",
        help="the paper's experiment, its tables and ours side by side",
        description="30 trials for vanilla and the credal models, a pool of 100 vanilla GNNs, ensembles of its best, "
        "post-hoc methods on the best vanilla GNN, five runs; then the paper's figures beside these. The same command "
        "goes on where it was stopped.",
    )
    reproduce.add_argument("-d", "--datasets", nargs="+", required=True, metavar="NAME")
    reproduce.add_argument("--protocol", choices=("paper", "sealed"), default="paper", help="default: the paper's")
    reproduce.add_argument("--quick", action="store_true", help="the same path with small budgets, in minutes")
    reproduce.set_defaults(run=_reproduce)
    _add_scale(reproduce, "uniform")
    add_place_options(reproduce)


def _add_scale(parser: argparse.ArgumentParser, default: str) -> None:
    meaning = "draw learning rate and weight decay evenly, as the paper does, or evenly in their logarithms"
    parser.add_argument(
        "--scale", choices=("uniform", "log"), default=default, help=f"{meaning} (default: %(default)s)"
    )


def _tune(args: argparse.Namespace) -> int:
    need("optuna", "credalgnn tune")
    inductive = is_inductive(args)
    with user_errors():
        from ..bench.folder import Folder
        from ..methods import METHODS
        from ..tuning import Studies, Tuning, search_all

        methods = chosen_methods(args.methods)
        methods = [name for name in methods if METHODS[name].search_space or "all" not in args.methods]
        settings = {name: overrides_for(name, args.overrides, methods) for name in methods}
        source = source_of(args)
        tasks = load_tasks(source, args.datasets, [args.split_seed], inductive)
        identity = {
            "kind": "tune", "protocol": args.protocol, "setting": args.setting, "scale": args.scale,
            "split": args.split_seed, "set": sorted(args.overrides),
        }  # fmt: skip
        folder = Folder.open(args.out, identity)
        with folder.occupied() as tidy:
            studies = Studies(folder.path, args.protocol, args.scale, args.storage)
            parts = [
                Tuning(dataset, task, studies, methods, args.trials, args.split_seed, settings)
                for (dataset, _), task in tasks.items()
            ]
            empty = [name for part in parts for name, space in part.spaces.items() if not space]
            if empty:
                raise UserError(f"--set leaves nothing of {empty[0]} to tune")
            total = sum(part.total for part in parts)
            with engine_of(args, source, folder.models) as engine, Bar(total) as bar:
                in_time = search_all(parts, studies, engine, deadline_of(args), bar.trial)
            if in_time:
                tidy()
    if not in_time:
        print("the time is over: the same command goes on", file=sys.stderr)
        return 1
    for part in parts:
        for name, best in part.best().items():
            value = "-" if best.value is None else f"{best.value:.4f}"
            print(f"{part.dataset:10s} {name:20s} {value:>8s}  {_point(best)}")
    setting = f" --setting {args.setting}" if inductive else ""
    print(f"credalgnn bench --tuned {args.out} --protocol {args.protocol}{setting} uses these")
    return 0


def _point(best: Best) -> str:
    if best.value is None:
        return "its defaults: the ID validation nodes are all right, or all wrong, so nothing tells points apart"
    return ", ".join(
        f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}" for key, value in best.config.items()
    )


def _reproduce(args: argparse.Namespace) -> int:
    need("optuna", "credalgnn reproduce")
    need("pyarrow", "credalgnn reproduce")
    with user_errors():
        from ..bench.folder import Folder
        from ..report.paper import write_beside
        from ..tuning import Budget, Reproduction, Studies, search_all

        source = source_of(args)
        tasks = load_tasks(source, args.datasets, [0])
        identity = {"kind": "reproduce", "protocol": args.protocol, "scale": args.scale, "quick": args.quick}
        folder = Folder.open(args.out, identity)
        budget = Budget.quick() if args.quick else Budget()
        deadline, outcome = deadline_of(args), None
        with folder.occupied() as tidy, engine_of(args, source, folder.models) as engine:
            studies = Studies(folder.path, args.protocol, args.scale)
            parts = [Reproduction(dataset, task, studies, budget) for (dataset, _), task in tasks.items()]
            with Bar(sum(part.total for part in parts)) as bar:
                in_time = search_all(parts, studies, engine, deadline, bar.trial)
            if in_time:
                runs = sorted((run for part in parts for run in part.runs()), key=lambda run: run.seed)
                outcome = run_benchmark(folder, runs, tasks, engine, lambda run: run.seed == 0, deadline)
                if not outcome.left:
                    tidy()
        if outcome is None or outcome.left:
            print("the time is over: the same command goes on", file=sys.stderr)
            return 1
        write_report([args.out], args.out, "credalgnn reproduce")
        print(write_beside([args.out], args.out))
    if outcome.failed:
        print(f"{outcome.failed} runs failed: the same command tries again", file=sys.stderr)
    return 1 if outcome.failed else 0
