"""``credalgnn bench`` and ``credalgnn report``: methods side by side, and tables and a page from records."""

from __future__ import annotations

import argparse
import ast
import os
import re
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import UserError

if TYPE_CHECKING:
    from ..bench.benchmark import Progress
    from ..bench.engines import Engine, Source
    from ..bench.reproduce import Ended
    from ..bench.runs import Run
    from ..graphs import Task

TRIVIAL = ("feature-sum", "degree")  # they stand in every table


def add_commands(commands: Any) -> None:
    bench = commands.add_parser(
        "bench",
        help="methods side by side on named graphs: records, tables and a page",
        description="Fit methods on leave-out-class tasks and judge them on the test nodes, with several seeds. One "
        "record per run, tables and report.html go to --out. The same command goes on where it was stopped; runs that "
        "failed are tried again.",
    )
    bench.add_argument("-m", "--methods", nargs="+", default=["all"], metavar="METHOD", help="names, or all (default)")
    add_work_options(bench)
    bench.add_argument("--seeds", type=count, default=10, metavar="N", help="seeds 0..N-1 (default: %(default)s)")
    bench.add_argument("--vary-split", action="store_true", help="seed k takes split k, too; else all share one split")
    bench.add_argument("--tuned", type=Path, metavar="DIR", help="use what credalgnn tune found there")
    bench.add_argument(
        "--predictions", choices=("none", "first", "all"), default="first",
        help="keep what is predicted for each node, of the first seed or of all (default: %(default)s)",
    )  # fmt: skip
    bench.set_defaults(run=_bench)
    report = commands.add_parser(
        "report",
        help="tables and page again from records, without any training; several folders merge",
        description="Print the table of one or more folders of benchmarks, and write table.md, table.csv, table.tex "
        "and report.html into --out.",
    )
    report.add_argument("folders", nargs="+", type=Path, metavar="DIR")
    report.add_argument("--out", type=Path, metavar="DIR", help="default: the folder, if there is one only")
    report.add_argument(
        "--score", nargs="+", metavar="NAME", help="only these scores in the tables (EU, AU, TU, energy ...)"
    )
    report.set_defaults(run=_report)


def add_work_options(parser: argparse.ArgumentParser) -> None:
    """What all commands that train have in common."""
    parser.add_argument(
        "-d", "--datasets", nargs="+", required=True, metavar="NAME", help="credalgnn datasets lists them"
    )
    parser.add_argument("--protocol", choices=("sealed", "paper"), default="sealed",
                        help="sealed: nothing but ID validation nodes decides anything (default)")  # fmt: skip
    parser.add_argument("--split-seed", type=int, default=0, metavar="K", help="public split, or seed (default: 0)")
    parser.add_argument("--set", nargs="+", action="extend", default=[], metavar="NAME=VALUE", dest="overrides",
                        help="hyper-parameters: lr=0.01, or credal-lj.delta=0.5 for one method")  # fmt: skip
    add_place_options(parser)


def add_place_options(parser: argparse.ArgumentParser) -> None:
    """Where to work, how long, and with whose help."""
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--jobs", type=count, metavar="N", help="processes on this machine (default: one a core)")
    parser.add_argument("--engine", choices=("local", "ray"), default="local", help="ray: an existing cluster")
    parser.add_argument("--address", metavar="HOST:PORT", help="of the Ray cluster (default: the one Ray finds)")
    parser.add_argument("--time-limit", type=_duration, metavar="TIME", help="stop after 90s, 30m, 1h30m; resumable")
    parser.add_argument("--mirror", type=Path, metavar="DIR", help="raw files in PyG's layout, looked at first")
    parser.add_argument("--data-root", type=Path, metavar="DIR", help="where graphs are kept once read")


def count(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 1 or more")
    return int(text)


def _duration(text: str) -> float:
    parts = re.fullmatch(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s?)?", text)
    if not text or parts is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time: say 90s, 30m or 1h30m")
    hours, minutes, seconds = (int(part or 0) for part in parts.groups())
    return float(3600 * hours + 60 * minutes + seconds)


def _bench(args: argparse.Namespace) -> int:
    methods = chosen_methods(args.methods)
    methods += [name for name in TRIVIAL if name not in methods]
    if args.vary_split and args.split_seed:
        raise UserError("--vary-split gives every seed a split of its own: leave out --split-seed")
    if args.vary_split and args.tuned is not None:
        raise UserError("--tuned is for the split that was tuned on: leave out --vary-split")
    if args.predictions != "none":
        need("pyarrow", "--predictions", ", or give --predictions none")
    with user_errors():
        from ..bench.benchmark import benchmark
        from ..bench.records import Folder

        source = source_of(args)
        tasks = load_tasks(source, args.datasets, range(args.seeds) if args.vary_split else [args.split_seed])
        runs = _runs(args, methods, tasks)
        identity = {
            "kind": "bench", "protocol": args.protocol, "split": "seed" if args.vary_split else args.split_seed,
            "set": sorted(args.overrides), "tuned": args.tuned is not None,
        }  # fmt: skip
        folder = Folder.open(args.out, identity)
        kept = {"none": 0, "first": 1, "all": args.seeds}[args.predictions]  # seeds whose predictions are kept
        with folder.occupied() as tidy, engine_of(args, source, folder.models) as engine, Bar(len(runs)) as bar:
            outcome = benchmark(folder, runs, tasks, engine, lambda run: run.seed < kept, deadline_of(args), bar.tell)
            if not outcome.left:
                tidy()
        if outcome.done:
            print(write_report([args.out], args.out, f"credalgnn bench: {', '.join(dict.fromkeys(args.datasets))}"))
    if outcome.left:
        print(f"{outcome.left} of {len(runs)} runs are left: the same command goes on", file=sys.stderr)
    if outcome.failed:
        print(f"{outcome.failed} of {len(runs)} runs failed: the same command tries again", file=sys.stderr)
    return 1 if outcome.left or outcome.failed else 0


def _runs(args: argparse.Namespace, methods: Sequence[str], tasks: Mapping[tuple[str, int], Task]) -> list[Run]:
    """Everything to do, seed by seed, so that a benchmark that is stopped has compared what it has done."""
    from ..bench.runs import plan

    settings = {name: overrides_for(name, args.overrides, methods) for name in methods}
    datasets = list(dict.fromkeys(args.datasets))
    found = {dataset: _tuned(args, methods, tasks[dataset, args.split_seed]) for dataset in datasets}
    runs = []
    for seed in range(args.seeds):
        split = seed if args.vary_split else args.split_seed
        for dataset in datasets:
            for name in methods:
                (own, below), best = settings[name], found[dataset].get(name, {})
                config, vanilla = {**best.get("config", {}), **own}, {**best.get("vanilla", {}), **below}
                runs.append(plan(dataset, name, seed, args.protocol, split, config, [vanilla]))
    return runs


def _tuned(args: argparse.Namespace, methods: Sequence[str], task: Task) -> dict[str, dict[str, Any]]:
    """What ``--tuned`` holds for a task; methods that could have been tuned and were not are refused."""
    from ..bench.spaces import SPACES
    from ..bench.tuning import tuned

    if args.tuned is None:
        return {}
    found = tuned(args.tuned, task, args.protocol)
    missing = [name for name in methods if name in SPACES and name not in found]
    if missing:
        raise UserError(
            f"{args.tuned}: {', '.join(missing)} not tuned on {task.name}, and a table compares methods of one budget: "
            "tune them too, or leave them out"
        )
    return found


def chosen_methods(names: Sequence[str]) -> list[str]:
    from ..methods import METHODS

    found = dict.fromkeys(METHODS if "all" in names else names)
    unknown = [name for name in names if name not in (*METHODS, "all")]
    if unknown:
        raise UserError(f"unknown method {unknown[0]!r}: choose from {', '.join(METHODS)}, or all")
    return list(found)


def load_tasks(source: Source, datasets: Sequence[str], splits: Sequence[int]) -> dict[tuple[str, int], Task]:
    """Every task, before any work is done; the splits of a data set share its graph."""
    from dataclasses import replace

    from ..graphs import load_task

    tasks: dict[tuple[str, int], Task] = {}
    for dataset in dict.fromkeys(datasets):
        for split in splits:
            task = load_task(dataset, split, mirror=source.mirror, data_root=source.data_root)
            graph = next((one.graph for (name, _), one in tasks.items() if name == dataset), task.graph)
            tasks[dataset, split] = replace(task, graph=graph)
    return tasks


def overrides_for(
    method: str, overrides: Sequence[str], methods: Sequence[str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What ``--set`` says of a method, and of the vanilla GNNs it stands on; refused if no method knows a name."""
    from ..bench.runs import options, stands_on_vanillas
    from ..methods import METHODS, Vanilla

    own: dict[str, Any] = {}
    below: dict[str, Any] = {}
    for text in overrides:
        left, equals, value = text.partition("=")
        if not equals or not left:
            raise UserError(f"--set {text}: NAME=VALUE is wanted, as in lr=0.01")
        of, _, name = left.rpartition(".")
        if of and of not in methods:
            raise UserError(f"--set {text}: {of!r} is not among the methods ({', '.join(methods)})")
        known = [one for one in ([of] if of else methods) if name in _reach(METHODS[one])]
        if not known:
            names = sorted({name for one in ([of] if of else methods) for name in _reach(METHODS[one])})
            raise UserError(f"--set {text}: no chosen method has {name!r}; there are {', '.join(names) or 'none'}")
        if of and of != method:
            continue
        kind = METHODS[method]
        if name in options(kind):
            own[name] = _value(value)
        elif stands_on_vanillas(kind) and name in options(Vanilla):
            below[name] = _value(value)
    return own, below


def _reach(kind: Any) -> set[str]:
    """The hyper-parameters of a method and of what it stands on."""
    from ..bench.runs import options, stands_on_vanillas
    from ..methods import Vanilla

    return {*options(kind), *(options(Vanilla) if stands_on_vanillas(kind) else ())}


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def deadline_of(args: argparse.Namespace) -> float | None:
    return None if args.time_limit is None else time.monotonic() + args.time_limit


def source_of(args: argparse.Namespace) -> Source:
    """Where graphs come from; options that contradict each other are refused before anything is done."""
    from ..bench.engines import Source

    if args.engine == "ray" and args.jobs is not None:
        raise UserError("--jobs is for this machine; a Ray cluster has its own number of processors")
    if args.engine == "local" and args.address is not None:
        raise UserError("--address is of a Ray cluster: add --engine ray")
    return Source(args.mirror, args.data_root)


def engine_of(args: argparse.Namespace, source: Source, models: Path) -> Engine:
    from ..bench.engines import Processes, Ray

    if args.engine == "ray":
        return Ray(args.address, source, models)
    return Processes(args.jobs or len(os.sched_getaffinity(0)), source, models)


def need(package: str, what: str, otherwise: str = "") -> None:
    """Refuse to begin without an optional package."""
    from importlib.util import find_spec

    if find_spec(package) is None:
        raise UserError(f"{what} needs {package}: pip install 'credalgnn[bench]'{otherwise}")


@contextmanager
def user_errors() -> Iterator[None]:
    """Errors that a person can mend, as one line; what was finished is on the disk already."""
    from ..bench.engines import EngineError
    from ..bench.records import RecordError
    from ..graphs import GraphError
    from ..methods import MethodError

    try:
        yield
    except (GraphError, MethodError, RecordError, EngineError) as error:
        raise UserError(" ".join(str(error).split())) from None
    except BrokenPipeError:
        raise
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        hint = "finished runs are kept, and the same command goes on"
        raise UserError(f"{place}{error.strerror or error}; {hint}") from None


class Bar:
    """Progress: a bar with the time left and what is being done on a terminal, a line for what has ended elsewhere."""

    def __init__(self, total: int) -> None:
        from tqdm import tqdm

        self._bar = tqdm(total=total, disable=None, leave=False, dynamic_ncols=True, bar_format=_BAR)
        self._begin, self._total = time.monotonic(), total
        self._before: int | None = None  # what an earlier command has done
        self._running: list[str] = []
        self._closed = threading.Event()
        if not self._bar.disable:
            threading.Thread(target=self._tick, daemon=True).start()

    def _tick(self) -> None:
        """Let the clock go on while nothing ends."""
        while not self._closed.wait(1.0):
            self._bar.refresh()

    def tell(self, progress: Progress) -> None:
        """A run begins, or has ended."""
        run, record, done, _ = progress
        if record is None:
            self._running.append(run.words)
        else:
            self._running = [words for words in self._running if words != run.words]
            failed = record["status"] == "failed"
            self._ended(f"{run.words}: {record['error'] if failed else _found(record)}", done, failed)
        self._bar.set_description_str(", ".join(self._running))

    def trial(self, ended: Ended) -> None:
        """A trial of a search has ended."""
        search, found, done, _ = ended
        value = "no value" if found.get("value") is None else f"{found['value']:.4f}"
        words = "given up early" if "hopeless" in found else found.get("error") or value
        self._ended(f"{search}: {words}", done, False)
        self._bar.set_description_str(f"{search}: {words}")

    def _ended(self, words: str, done: int, important: bool) -> None:
        if self._before is None:
            self._before = done - 1
            self._bar.n = self._bar.initial = done - 1
        if important or self._bar.disable:
            rate = (time.monotonic() - self._begin) / max(done - self._before, 1)
            left = f", {_clock(rate * (self._total - done))} left" if done < self._total else ""
            self._bar.write(f"[{done}/{self._total}] {words}{left}", file=sys.stderr)
        self._bar.update(max(done - self._bar.n, 0))

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self._bar.close()


_BAR = "{n_fmt}/{total_fmt} {bar:30} {elapsed}, {remaining} left  {desc}"


def _found(record: Mapping[str, Any]) -> str:
    headline = record["headline"]
    words = f"{headline} {100 * record['scores'][headline]['auroc']:.1f}"
    accuracy = record["metrics"]["accuracy"]
    return words if accuracy is None else f"{words}, accuracy {100 * accuracy:.1f}"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def _report(args: argparse.Namespace) -> int:
    if args.out is None and len(args.folders) > 1:
        raise UserError("several folders: say with --out where the tables and the page shall go")
    with user_errors():
        print(write_report(args.folders, args.out or args.folders[0], "credalgnn report", args.score))
    return 0


def write_report(folders: Sequence[Path], out: Path, title: str, scores: Sequence[str] | None = None) -> str:
    """Tables and page from records; what to print of it."""
    from ..report.page import write_page
    from ..report.summary import make_rows, read_runs
    from ..report.tables import terminal, write_tables

    records = read_runs(folders)
    rows = make_rows(records)
    known = dict.fromkeys(row.score for row in rows)
    unknown = [name for name in scores or () if name not in known]
    if unknown:
        raise UserError(f"no run has the score {unknown[0]!r}: there are {', '.join(known)}")
    rows = [row for row in rows if scores is None or row.trivial or row.score in scores]
    write_tables(rows, out)
    write_page(records, folders, out / "report.html", title)
    return f"{terminal(rows)}\n\ntables and page: {out / 'report.html'}"
