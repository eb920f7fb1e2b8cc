"""What the commands that train have in common: options, checks before any work is done, progress, errors."""

from __future__ import annotations

import argparse
import ast
import errno
import os
import re
import shutil
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._names import suggestion
from .errors import UserError, WorkLost

if TYPE_CHECKING:
    from ..bench.benchmark import Progress
    from ..bench.engines import Engine, Source
    from ..graphs import Task
    from ..tuning.run import Progress as TrialProgress

MOST = 10_000  # seeds, trials or processes: more is a slip of the finger, and takes long to plan


def add_work_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that all commands that train have in common.

    Args:
        parser: Of the command.
    """
    parser.add_argument(
        "-d", "--datasets", nargs="+", required=True, metavar="NAME", help="credalgnn datasets lists them"
    )
    parser.add_argument("--protocol", choices=("sealed", "paper"), default="sealed",
                        help="sealed: nothing but ID validation nodes decides anything (default)")  # fmt: skip
    parser.add_argument("--setting", choices=("transductive", "inductive"), default="transductive",
                        help="inductive: training sees the training nodes alone; default: the whole graph")  # fmt: skip
    parser.add_argument("--split-seed", type=int, default=0, metavar="K", help="public split, or seed (default: 0)")
    parser.add_argument("--set", nargs="+", action="extend", default=[], metavar="NAME=VALUE", dest="overrides",
                        help="hyper-parameters: lr=0.01, or credal-lj.delta=0.5 for one method")  # fmt: skip
    add_place_options(parser)


def add_place_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say where to work, how long, and on which machines.

    Args:
        parser: Of the command.
    """
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--jobs", type=count, metavar="N", help="processes on this machine (default: one a core)")
    parser.add_argument("--engine", choices=("local", "ray"), default="local", help="ray: an existing cluster")
    parser.add_argument("--address", metavar="HOST:PORT", help="of the Ray cluster (default: the one Ray finds)")
    parser.add_argument("--time-limit", type=_duration, metavar="TIME", help="stop after 90s, 30m, 1h30m; resumable")
    parser.add_argument("--mirror", type=Path, metavar="DIR", help="raw files in PyG's layout, looked at first")
    parser.add_argument("--data-root", type=Path, metavar="DIR", help="where graphs are kept once read")


def count(text: str) -> int:
    """A number of seeds, trials or processes.

    Args:
        text: As it was typed.
    """
    digits = text.lstrip("0")
    if not re.fullmatch(r"[0-9]+", text) or not digits:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 1 or more")
    if len(digits) > len(str(MOST)) or int(digits) > MOST:
        raise argparse.ArgumentTypeError(f"{text:.20} is too many: at most {MOST:,}")
    return int(digits)


def _duration(text: str) -> float:
    if re.fullmatch(r"[0-9]{1,9}", text):
        return float(text)
    parts = re.fullmatch(r"(?:([0-9]{1,9})h)?(?:([0-9]{1,9})m)?(?:([0-9]{1,9})s)?", text)
    if not text or parts is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time: say 90s, 30m or 1h30m")
    hours, minutes, seconds = (int(part or 0) for part in parts.groups())
    return float(3600 * hours + 60 * minutes + seconds)


def chosen_methods(names: Sequence[str]) -> list[str]:
    """The methods that ``-m`` names, each once; unknown ones are refused.

    Args:
        names: Of methods, or ``all``.
    """
    from ..methods import METHODS

    for name in names:
        if name not in (*METHODS, "all"):
            raise UserError(f"unknown method {name!r}: {suggestion(name, (*METHODS, 'all'))}")
    return list(dict.fromkeys(METHODS if "all" in names else names))


def is_inductive(args: argparse.Namespace) -> bool:
    """Whether the graphs grow after training; refused where the protocol has no such setting.

    Args:
        args: Of the command.
    """
    if args.setting == "inductive" and args.protocol == "paper":
        raise UserError("--setting inductive: the paper's protocol is transductive; leave out --protocol paper")
    return bool(args.setting == "inductive")


def load_tasks(
    source: Source, datasets: Sequence[str], splits: Sequence[int], inductive: bool = False
) -> dict[tuple[str, int], Task]:
    """Every task, before any work is done; the splits of a data set share its graph.

    Args:
        source: Where graphs come from.
        datasets: Their names.
        splits: The seeds of the splits.
        inductive: Whether the graphs grow after training.
    """
    from dataclasses import replace

    from ..graphs import load_task

    tasks: dict[tuple[str, int], Task] = {}
    for dataset in dict.fromkeys(datasets):
        for split in splits:
            task = load_task(dataset, split, inductive=inductive, mirror=source.mirror, data_root=source.data_root)
            graph = next((other.graph for (name, _), other in tasks.items() if name == dataset), task.graph)
            tasks[dataset, split] = replace(task, graph=graph)
    return tasks


def overrides_for(
    method: str, overrides: Sequence[str], methods: Sequence[str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What ``--set`` says of a method, and of the vanilla GNNs it stands on; refused if no method knows a name.

    Args:
        method: The name of the method.
        overrides: The arguments of ``--set``.
        methods: All methods of the command.
    """
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
            raise UserError(f"--set {text}: {of!r} is not among the methods; {suggestion(of, methods)}")
        known = sorted({name for each in ([of] if of else methods) for name in _reach(METHODS[each])})
        if name not in known:
            whose = of or "no chosen method"
            raise UserError(f"--set {text}: {whose} has {'no ' if of else ''}{name!r}; {suggestion(name, known)}")
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
    except (ValueError, SyntaxError, MemoryError, RecursionError):  # the latter two: thousands of brackets
        return text


def deadline_of(args: argparse.Namespace) -> float | None:
    """When to stop, as ``time.monotonic`` counts.

    Args:
        args: Of the command.
    """
    return None if args.time_limit is None else time.monotonic() + args.time_limit


def source_of(args: argparse.Namespace) -> Source:
    """Where graphs come from; options that contradict each other are refused before anything is done.

    Args:
        args: Of the command.
    """
    from ..bench.engines import Source

    if args.engine == "ray" and args.jobs is not None:
        raise UserError("--jobs is for this machine; a Ray cluster has its own number of processors")
    if args.engine == "local" and args.address is not None:
        raise UserError("--address is of a Ray cluster: add --engine ray")
    return Source(args.mirror, args.data_root)


def engine_of(args: argparse.Namespace, source: Source, models: Path) -> Engine:
    """The engine that ``--engine`` names.

    Args:
        args: Of the command.
        source: Where graphs come from.
        models: The folder of fitted models that runs share.
    """
    from ..bench.engines import Processes, Ray

    if args.engine == "ray":
        return Ray(args.address, source, models)
    return Processes(args.jobs or _cores(), source, models)


def _cores() -> int:
    """The cores that this process may use, where the system tells; macOS and Windows tell how many there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def need(package: str, what: str, otherwise: str = "") -> None:
    """Refuse to begin without an optional package.

    Args:
        package: Its name.
        what: The command or option that needs it.
        otherwise: What else could be done.
    """
    from importlib.util import find_spec

    if find_spec(package) is None:
        raise UserError(f"{what} needs {package}: pip install 'credalgnn[bench]'{otherwise}")


@contextmanager
def user_errors() -> Iterator[None]:
    """Errors that a person can mend, as one line; what was finished is on the disk already."""
    from ..bench.engines import EngineError
    from ..bench.records import RecordError
    from ..bench.vanished import FolderVanished
    from ..graphs import GraphError
    from ..methods import MethodError

    try:
        yield
    except (GraphError, MethodError, RecordError, EngineError) as error:
        raise UserError(" ".join(str(error).split())) from None
    except FolderVanished as error:
        raise WorkLost(str(error)) from None
    except BrokenPipeError:
        raise
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        closed = error.errno in (errno.EROFS, errno.EACCES, errno.EPERM)
        hint = "choose another --out" if closed else "finished runs are kept, and the same command goes on"
        raise UserError(f"{place}{error.strerror or error}; {hint}") from None


class Bar:
    """Progress: on a terminal a bar with the time left and what is being done, elsewhere a line for what is finished.

    Args:
        total: How many runs or trials there are.
    """

    def __init__(self, total: int) -> None:
        from tqdm import tqdm

        bar = _BAR.replace("WIDTH", "30" if shutil.get_terminal_size().columns >= 100 else "10")
        self._bar = tqdm(total=total, disable=None, leave=False, dynamic_ncols=True, bar_format=bar)
        self._begin, self._total = time.monotonic(), total
        self._before: int | None = None  # finished by an earlier command
        self._running: list[str] = []
        self._closed = threading.Event()
        if not self._bar.disable:
            threading.Thread(target=self._tick, daemon=True).start()

    def _tick(self) -> None:
        """Let the clock go on while nothing is finished."""
        while not self._closed.wait(1.0):
            self._bar.refresh()

    def tell(self, progress: Progress) -> None:
        """Show that a run begins or is finished.

        Args:
            progress: Which run, and its record if it is finished.
        """
        run, record, done, _ = progress
        if record is None:
            self._running.append(run.words)
        else:
            self._running = [label for label in self._running if label != run.words]
            failed = record["status"] == "failed"
            self._finished(f"{run.words}: {record['error'] if failed else _summary(record)}", done, failed)
        self._bar.set_description_str(", ".join(self._running))

    def trial(self, progress: TrialProgress) -> None:
        """Show that a trial of a search is finished.

        Args:
            progress: Which search, and the trial's result.
        """
        search, result, done, _ = progress
        value = "no value" if result.get("value") is None else f"{result['value']:.4f}"
        message = f"{search}: {'pruned' if 'pruned' in result else result.get('error') or value}"
        self._finished(message, done, False)
        self._bar.set_description_str(message)

    def _finished(self, message: str, done: int, important: bool) -> None:
        if self._before is None:
            self._before = done - 1
            self._bar.n = self._bar.initial = done - 1
        self._total = self._bar.total = max(self._total, done)  # an older search may have repeated some points
        if important or self._bar.disable:
            rate = (time.monotonic() - self._begin) / max(done - self._before, 1)
            left = f", {_clock(rate * (self._total - done))} left" if done < self._total else ""
            self._bar.write(f"[{done}/{self._total}] {message}{left}", file=sys.stderr)
        self._bar.update(max(done - self._bar.n, 0))

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self._bar.close()


_BAR = "{n_fmt}/{total_fmt} {bar:WIDTH} {elapsed}, {remaining} left  {desc}"


def _summary(record: Mapping[str, Any]) -> str:
    headline = record["headline"]
    auroc = f"{headline} {100 * record['scores'][headline]['auroc']:.1f}"
    accuracy = record["metrics"]["accuracy"]
    return auroc if accuracy is None else f"{auroc}, accuracy {100 * accuracy:.1f}"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
