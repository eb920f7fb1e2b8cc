"""A model of one's own graph: fit, predict, evaluate and watch."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ..runtime.texts import printable
from .common import AGAIN, KEPT, UserError, check_output, need, user_errors, warnings_as_lines

if TYPE_CHECKING:
    from ..model import Model

ALARM = 3  # exit code of `watch` after an alarm
Place = tuple[Path, Path | None, Any]  # of nodes (or a whole graph), edges and context


def fit(*, engine: Literal["local", "ray"] = "local", method: str = "credal-coverage", **options: Any) -> int:
    """Train a node classifier that flags unfamiliar nodes.

    The classes of labelled nodes are learnt from tables of nodes and edges, or from a whole graph. The model, its card
    and a page go to --out.

    Args:
        method: name of a method, or package.module:Class
        settings: hyper-parameters, as in lr=0.01
        tune: search hyper-parameters first, in N trials
        out: folder for the model
        workers: processes of the Ray cluster that train the network together; each may use --memory for itself
    """
    need("pyarrow", "credalgnn fit")
    if options.get("tune"):
        need("optuna", "--tune")
    _check_workers(engine, options)
    data, edges, _ = read_place(options, edges_needed=True)
    out = options["out"]
    with user_errors(KEPT if options.get("tune") else AGAIN), warnings_as_lines():
        from ..model import fit

        model = fit(data, edges, method=method, **options)
    again = ["--graph", data] if edges is None else ["--nodes", data, "--edges", edges]
    if ":" in method:
        again += ["-m", method]
    page = ", report.html its page: open it in a browser" if (out / "report.html").exists() else ""
    command = shlex.join(map(str, ["credalgnn", "predict", out, *again, "--out", "predictions.csv"]))
    print(f"\n{printable(str(model))}\n\nThe model is in {out}; README.md is its card{page}.\nNext: {command}")
    return 0


def stopped_fit(out: Path, tune: int = 0, **_: Any) -> str:
    """State of a fit that was stopped."""
    if is_model(out):
        return f"the model is in {out}, without its page: credalgnn report makes it"
    if tune:
        return "no model was written; finished trials are kept, and the same command goes on"
    resumable = any((out / "checkpoints").glob("*.safetensors"))
    return "no model was written" + ("; the same command goes on from the training that was kept" if resumable else "")


def predict(
    model: Path,
    *,
    method: str | None = None,
    out: Path,
    engine: Literal["local", "ray"] = "local",
    **options: Any,
) -> int:
    """Predict classes, intervals and unfamiliar nodes with a model of credalgnn fit.

    The table has a row per node: id, class, probability, intervals, uncertainties, p-value, whether the node is
    unfamiliar, the classes that stay in question, and the reasons.

    Args:
        out: .csv or .parquet file to write
        ids: only these nodes
        workers: tasks of the Ray cluster that predict chunks of the graph at a time; each may use --memory for itself
    """
    need("pyarrow", "credalgnn predict")
    _check_workers(engine, options)
    context = options.get("context", ())
    place = read_place(options)
    if out.suffix.lower() not in (".csv", ".parquet"):
        raise UserError(f"{out}: must be a .csv or .parquet file")
    check_output(out, *place[:2], *context)
    with user_errors(), warnings_as_lines():
        from ..model.predicting import predict_to

        print(printable(predict_to(load(model, method), out, *place, **options)))
    return 0


def evaluate(model: Path, *, method: str | None = None, **options: Any) -> int:
    """Evaluate a model of credalgnn fit on labelled nodes that it was not fitted with.

    Accuracy, calibration and false alarms. Nodes whose labels the model does not know count as unfamiliar.
    """
    need("pyarrow", "credalgnn evaluate")
    data, edges, context = read_place(options)
    with user_errors(), warnings_as_lines():
        print(printable(str(load(model, method).evaluate(data, edges, context=context, **options))))
    return 0


def watch(model: Path, *, method: str | None = None, **options: Any) -> int:
    """Monitor new batches for distribution shift.

    While nothing changes there is ever an alarm with at most the probability --false-alarms, however many batches come.
    The exit code is 3 after an alarm. Results are kept in the model's folder, with a picture over time (watch.svg).

    Args:
        nodes: table with a row per node of the batch: .csv, .tsv, .parquet; also .gz
        false_alarms: probability of an alarm, ever, while nothing changes (default: 0.01)
        reset: forget all batches so far
    """
    need("pyarrow", "credalgnn watch")
    data, edges, context = read_place(options)
    with user_errors(), warnings_as_lines():
        from ..model.watching import PICTURE, watch

        report = watch(load(model, method), model, data, edges, context=context, **options)
    print(report)
    if report.alarm:
        print(f"credalgnn: alarm: {report.reason} The picture: {model / PICTURE}", file=sys.stderr)
        return ALARM
    return 0


def load(folder: Path, method: str | None = None) -> Model:
    """Load the model of a folder."""
    from ..model import load_model

    return load_model(folder, method=method)


def is_model(folder: Path) -> bool:
    """Return whether a folder is that of a model, and not of an experiment."""
    return (folder / "model.json").is_file()


def tables(
    *,
    nodes: Path | None = None,
    edges: Path | None = None,
    graph: Path | None = None,
    context: Sequence[Path] | None = None,
) -> None:
    """Options of the commands that read a graph."""


def read_place(options: dict[str, Any], edges_needed: bool = False) -> Place:
    """Take the options of `tables` out of others, and return nodes (or a whole graph), edges and context.

    What cannot be read is refused before any work.
    """
    nodes, edges, graph, context = (options.pop(name, None) for name in ("nodes", "edges", "graph", "context"))
    if graph is not None:
        if nodes is not None or edges is not None:
            raise UserError("--graph is a whole graph: leave out --nodes and --edges")
        return graph, None, _context(context)
    if nodes is None:
        raise UserError("say what to read: --nodes FILE and --edges FILE, or --graph PATH")
    if edges is None and edges_needed:
        raise UserError("a table of nodes needs one of edges: --edges FILE")
    for path in (nodes, edges):
        if path is not None and path.is_dir():
            raise UserError(
                f"{path}: a folder, and not a table: credalgnn pack makes a graph of folders of shards, for --graph"
            )
        if path is not None and not path.is_file():
            raise UserError(f"{path}: no such file")
    return nodes, edges, _context(context)


def _context(paths: Sequence[Path] | None) -> Any:
    if paths is None:
        return None
    if len(paths) > 2:
        raise UserError("--context takes two files, nodes and edges, or a folder")
    for path in paths:
        if not path.exists():
            raise UserError(f"{path}: no such file")
    if len(paths) == 1:
        return paths[0] if paths[0].is_dir() else (paths[0], None)
    return tuple(paths)


def _check_workers(engine: str, options: dict[str, Any]) -> None:
    if engine == "ray" and "workers" not in options:
        raise UserError("--engine ray: say how many of the cluster's processes work, --workers N")
    if engine == "local" and options.keys() & {"workers", "address"}:
        option = "--workers" if "workers" in options else "--address"
        raise UserError(f"{option} is of a Ray cluster: add --engine ray")
