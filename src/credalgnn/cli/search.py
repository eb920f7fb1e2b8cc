"""``credalgnn tune`` and ``credalgnn reproduce``: hyper-parameters, and the paper's whole experiment."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from ..runtime.texts import printable
from .common import (
    KEPT,
    add_place_options,
    add_work_options,
    check_setting,
    classes_of,
    count,
    need,
    settings_of,
    user_errors,
    work_options,
)

if TYPE_CHECKING:
    from ..experiments.best import Best


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
    reproduce.add_argument(
        "--as-published",
        nargs="*",
        metavar="CHOICE",
        help="repeat choices of the published runs that the paper does not tell, by name, or without a name all that "
        "its authors have told since; explains the paper's figures, and is no benchmark",
    )
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
    check_setting(args)
    work = work_options(args)
    with user_errors(KEPT):
        from ..experiments import tune

        results = tune(
            args.datasets,
            args.methods,
            out=args.out,
            trials=args.trials,
            protocol=args.protocol,
            setting=args.setting,
            scale=args.scale,
            ood_classes=classes_of(args),
            split_seed=args.split_seed,
            settings=settings_of(args.overrides),
            storage=args.storage,
            **work,
        )
    if not results.finished:
        print("the time is over: the same command goes on", file=sys.stderr)
        return 1
    for dataset, table in results.best.items():
        for name, best in table.items():
            value = "-" if best.value is None else f"{best.value:.4f}"
            print(printable(f"{dataset:10s} {name:20s} {value:>8s}  {_point(best)}"))
    setting = f" --setting {args.setting}" if args.setting == "inductive" else ""
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
    work = work_options(args)
    with user_errors(KEPT):
        from ..experiments import reproduce
        from ..experiments.paper import write_comparison

        results = reproduce(
            args.datasets,
            out=args.out,
            protocol=args.protocol,
            scale=args.scale,
            quick=args.quick,
            as_published=args.as_published,
            **work,
        )
        if results is None or results.left:
            print("the time is over: the same command goes on", file=sys.stderr)
            return 1
        print(printable(write_comparison([args.out], args.out)))
    if results.failed:
        print(f"{results.failed} runs failed: the same command tries again", file=sys.stderr)
    return 1 if results.failed else 0
