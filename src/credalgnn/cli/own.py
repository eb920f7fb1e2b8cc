"""``credalgnn fit``, ``predict``, ``evaluate`` and ``watch``: a model of one's own graph."""

from __future__ import annotations

import argparse
import shlex
import sys
import textwrap
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..runtime.texts import one_line, printable
from .common import AGAIN, KEPT, add_engine_options, add_memory, count, need, settings_of, user_errors
from .errors import UserError

if TYPE_CHECKING:
    from ..model import Model

NOTHING = "nothing was written"  # by a command that was stopped
WIDTH = 80  # columns of what --help says of a command
ALARM = 3  # the exit code of ``watch`` when what comes has changed


def add_commands(commands: Any) -> None:
    """Add ``fit``, ``predict``, ``evaluate`` and ``watch``.

    Args:
        commands: The subparsers of the command line.
    """
    _add_fit(commands)
    predict = _add(
        commands,
        "predict",
        "classes, intervals and strangers of new nodes, one row a node",
        "Predict nodes with a model of credalgnn fit. One row a node: id, class, probability, intervals, "
        "uncertainties, p-value, whether it is a stranger, the classes that stay in question, and why.",
        "credalgnn predict model/ --nodes new.csv --edges new_edges.csv \\\n"
        "      --context nodes.csv edges.csv --out predictions.parquet --false-alarms 0.05",
    )
    _add_model(predict)
    add_tables(predict)
    predict.add_argument("--out", type=Path, required=True, metavar="FILE", help="a .csv or .parquet file")
    _add_promises(predict)
    add_memory(predict)
    _add_workers(predict, "tasks of the Ray cluster that predict chunks of the graph at a time")
    predict.add_argument("--ids", nargs="+", metavar="ID", help="only these nodes")
    predict.set_defaults(run=_predict, stopped=NOTHING)
    evaluate = _add(
        commands,
        "evaluate",
        "what a model is worth on nodes whose labels are known",
        "Judge a model of credalgnn fit on labelled nodes that it has not learnt from: accuracy, calibration, false "
        "alarms. Labels that the model does not know are those of strangers.",
        "credalgnn evaluate model/ --nodes labelled.csv --edges edges.csv",
    )
    _add_model(evaluate)
    add_tables(evaluate)
    _add_promises(evaluate)
    add_memory(evaluate)
    evaluate.set_defaults(run=_evaluate, stopped=NOTHING, prints=True)
    watch = _add(
        commands,
        "watch",
        "is what comes, batch after batch, still what was learnt?",
        "Take in the next batch of nodes. While nothing changes there is ever an alarm with at most the probability "
        f"--false-alarms, however many batches come. Exit code {ALARM} after an alarm. What was found is kept in the "
        "model's folder, with a picture over time (watch.svg).",
        "credalgnn watch model/ --nodes monday.csv --edges monday_edges.csv \\\n      --context nodes.csv edges.csv",
    )
    _add_model(watch)
    add_tables(watch)
    watch.add_argument(
        "--false-alarms", type=_rate, metavar="P", help="probability of an alarm, ever, while nothing changes (0.01)"
    )
    watch.add_argument("--reset", action="store_true", help="forget all batches so far")
    add_memory(watch)
    watch.set_defaults(run=_watch, stopped=NOTHING)


def _add(commands: Any, name: str, help: str, description: str, example: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=help,
        description=textwrap.fill(description, WIDTH),
        epilog=f"example:\n  {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    return parser


def _add_fit(commands: Any) -> None:
    fit = _add(
        commands,
        "fit",
        "a model of your own graph, from a table of nodes and a table of edges",
        "Learn the classes of nodes from those that have a label, and what is like nothing that is labelled. The "
        "model, its card and a page go to --out.",
        "credalgnn fit --nodes nodes.csv --edges edges.csv --label topic --out model/",
    )
    add_tables(fit, context=False)
    fit.add_argument("--label", default="label", metavar="COLUMN", help="of nodes, with the classes (default: label)")
    fit.add_argument("--id", default="id", metavar="COLUMN", help="of nodes, with their ids (default: id)")
    fit.add_argument("--features", nargs="+", metavar="COLUMN", help="of nodes (default: all others)")
    fit.add_argument("--source", default="source", metavar="COLUMN", help="of edges (default: source)")
    fit.add_argument("--target", default="target", metavar="COLUMN", help="of edges (default: target)")
    fit.add_argument("--weight", metavar="COLUMN", help="of edges (default: weight, if there is one)")
    fit.add_argument("--undirected", action="store_true", help="edges have no direction: each is taken both ways")
    fit.add_argument("--split", metavar="COLUMN", help="of nodes, that says train, val, calibration or test")
    fit.add_argument("--delimiter", metavar="CHARACTER", help="of text files (default: found)")
    fit.add_argument("--out", type=Path, required=True, metavar="DIR", help="a folder for the model")
    fit.add_argument("-m", "--method", default="credal-coverage", help="a name, or package.module:Class")
    fit.add_argument("--set", nargs="+", action="extend", default=[], metavar="NAME=VALUE", dest="overrides",
                     help="hyper-parameters, as in lr=0.01")  # fmt: skip
    fit.add_argument("--tune", type=count, default=0, metavar="N", help="search hyper-parameters first, in N trials")
    fit.add_argument("--seed", type=int, default=0, help="of the deal of nodes and of the method (default: 0)")
    add_memory(fit)
    _add_workers(fit, "processes of the Ray cluster that train the network together")
    fit.set_defaults(run=_fit)


def _add_workers(parser: argparse.ArgumentParser, help: str) -> None:
    add_engine_options(parser)
    parser.add_argument("--workers", type=count, metavar="N", help=f"{help}; each may use --memory for itself")


def _check_workers(args: argparse.Namespace) -> None:
    if args.engine == "ray" and args.workers is None:
        raise UserError("--engine ray: say how many of the cluster's processes work, --workers N")
    if args.engine == "local" and (args.workers is not None or args.address is not None):
        option = "--address" if args.workers is None else "--workers"
        raise UserError(f"{option} is of a Ray cluster: add --engine ray")


def _add_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, metavar="MODEL", help="the folder that credalgnn fit made")
    parser.add_argument("-m", "--method", metavar="MODULE:CLASS", help="of a model whose method is your own class")


def add_tables(parser: argparse.ArgumentParser, context: bool = True) -> None:
    """Add the options that say which graph is read.

    Args:
        parser: Of the command.
        context: Whether nodes may hang on others that were there before.
    """
    parser.add_argument(
        "--nodes", type=Path, metavar="FILE", help="a row for each node: .csv, .tsv, .parquet; also .gz"
    )
    parser.add_argument("--edges", type=Path, metavar="FILE", help="a row for each edge, with the ids of its two nodes")
    parser.add_argument(
        "--graph", type=Path, metavar="PATH",
        help="instead: a packed graph (credalgnn pack), a folder with nodes and edges files, an .npz of Graph.save, or "
        "tensors of a PyG graph (.pt, .safetensors)",
    )  # fmt: skip
    if context:
        parser.add_argument(
            "--context", type=Path, nargs="+", metavar="FILE",
            help="nodes and edges that were there before, on which new nodes may hang: those of fit (two files, or a "
            "folder)",
        )  # fmt: skip


def _add_promises(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--false-alarms", type=_rate, metavar="RATE",
        help="flag a node of a known class as a stranger with at most this probability (default: 0.05)",
    )  # fmt: skip
    parser.add_argument(
        "--coverage", type=_rate, metavar="RATE",
        help="keep the true class among those in question with at least this probability (default: 0.95)",
    )  # fmt: skip


def _rate(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 < value < 1.0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a rate between 0 and 1: 0.05 is one in twenty")
    return value


def _data(args: argparse.Namespace, edges_needed: bool) -> tuple[Path, Path | None]:
    """The two files, or the one place, that were given; refused before any work is done."""
    if args.graph is not None:
        if args.nodes is not None or args.edges is not None:
            raise UserError("--graph is a whole graph: leave out --nodes and --edges")
        return args.graph, None
    if args.nodes is None:
        raise UserError("say what to read: --nodes FILE and --edges FILE, or --graph PATH")
    if args.edges is None and edges_needed:
        raise UserError("a table of nodes needs one of edges: --edges FILE")
    for path in (args.nodes, args.edges):
        if path is not None and path.is_dir():
            raise UserError(
                f"{path}: a folder, and not a table: credalgnn pack makes a graph of folders of shards, for --graph"
            )
        if path is not None and not path.is_file():
            raise UserError(f"{path}: no such file")
    return args.nodes, args.edges


def _context(args: argparse.Namespace) -> Any:
    if args.context is None:
        return None
    if len(args.context) > 2:
        raise UserError("--context takes two files, nodes and edges, or a folder")
    for path in args.context:
        if not path.exists():
            raise UserError(f"{path}: no such file")
    if len(args.context) == 1:
        (only,) = args.context
        return only if only.is_dir() else (only, None)
    return tuple(args.context)


@contextmanager
def _told() -> Iterator[None]:
    """Warnings as lines on stderr, each once, without the place in the code."""
    seen: set[str] = set()

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        text = " ".join(str(message).split())
        if text not in seen:
            seen.add(text)
            print(f"! {one_line(text)}", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = show
        yield


def _stopped(folder: Path, tune: bool) -> str:
    """What there is of a fit that was stopped."""
    if is_model(folder):
        return f"the model is in {folder}, without its page: credalgnn report makes it"
    if tune:
        return "no model was written; finished trials are kept, and the same command goes on"
    kept = any((folder / "checkpoints").glob("*.safetensors"))
    return "no model was written" + ("; the same command goes on from the training that was kept" if kept else "")


def _fit(args: argparse.Namespace) -> int:
    need("pyarrow", "credalgnn fit")
    args.stopped = partial(_stopped, args.out, bool(args.tune))
    if args.tune:
        need("optuna", "--tune")
    _check_workers(args)
    data, edges = _data(args, edges_needed=True)
    settings = settings_of(args.overrides)
    with user_errors(KEPT if args.tune else AGAIN), _told():
        from ..model import fit

        model = fit(
            data,
            edges,
            label=args.label,
            id=args.id,
            features=args.features,
            source=args.source,
            target=args.target,
            weight=args.weight,
            undirected=args.undirected,
            split=args.split,
            delimiter=args.delimiter,
            method=args.method,
            settings=settings,
            tune=args.tune,
            seed=args.seed,
            out=args.out,
            memory=args.memory,
            workers=args.workers,
            address=args.address,
        )
    given = ["--graph", data] if edges is None else ["--nodes", data, "--edges", edges]
    if ":" in args.method:
        given += ["-m", args.method]
    page = ", report.html its page: open it in a browser" if (args.out / "report.html").exists() else ""
    command = shlex.join(map(str, ["credalgnn", "predict", args.out, *given, "--out", "predictions.csv"]))
    print(f"\n{printable(str(model))}\n\nThe model is in {args.out}; README.md is its card{page}.\nNext: {command}")
    return 0


def _load(folder: Path, method: str | None = None) -> Model:
    from ..model import load_model

    return load_model(folder, method=method)


def _predict(args: argparse.Namespace) -> int:
    need("pyarrow", "credalgnn predict")
    _check_workers(args)
    data, edges = _data(args, edges_needed=False)
    context = _context(args)
    if args.out.suffix.lower() not in (".csv", ".parquet"):
        raise UserError(f"{args.out}: a .csv or .parquet file is wanted")
    if args.out.is_dir():
        raise UserError(f"{args.out}: is a folder; name a file in it")
    for path in (data, edges, *(args.context or ())):
        if path is not None and path.resolve() == args.out.resolve():
            raise UserError(f"{args.out}: the result would overwrite what is read; name another file")
    with user_errors(), _told():
        from ..model.predicting import predict_to

        model = _load(args.model, args.method)
        text = predict_to(
            model, args.out, data, edges, context, args.ids, args.false_alarms, args.coverage,
            memory=args.memory, workers=args.workers, address=args.address,
        )  # fmt: skip
        print(printable(text))
    return 0


def _evaluate(args: argparse.Namespace) -> int:
    need("pyarrow", "credalgnn evaluate")
    data, edges = _data(args, edges_needed=False)
    context = _context(args)
    with user_errors(), _told():
        model = _load(args.model, args.method)
        found = model.evaluate(
            data, edges, context=context, false_alarms=args.false_alarms, coverage=args.coverage, memory=args.memory
        )
        print(printable(str(found)))
    return 0


def is_model(folder: Path) -> bool:
    """Whether a folder is that of a model, and not of a benchmark.

    Args:
        folder: The folder.
    """
    return (folder / "model.json").is_file()


def report_model(args: argparse.Namespace) -> int:
    """``credalgnn report`` for a model: the page of a graph that it predicts.

    Args:
        args: Of the command.
    """
    if len(args.folders) > 1 or args.score is not None:
        raise UserError("the page of a model is of one model: leave out other folders and --score")
    if args.out is None:
        raise UserError("say with --out where the page shall go: the model's own is of the graph it was fitted on")
    data, edges = _data(args, edges_needed=False)
    context = _context(args)
    with user_errors(), _told():
        from ..model.page import report

        page = report(_load(args.folders[0]), args.out, data, edges, context)
    print(f"the page: {page}")
    return 0


def _watch(args: argparse.Namespace) -> int:
    need("pyarrow", "credalgnn watch")
    data, edges = _data(args, edges_needed=False)
    context = _context(args)
    with user_errors(), _told():
        from ..model.watching import PICTURE, watch

        report = watch(
            _load(args.model, args.method),
            args.model,
            data,
            edges,
            context=context,
            false_alarms=args.false_alarms,
            reset=args.reset,
            memory=args.memory,
        )
    print(report)
    if report.alarm:
        print(f"credalgnn: alarm: {report.reason} The picture: {args.model / PICTURE}", file=sys.stderr)
        return ALARM
    return 0
