"""Benchmark, search, probe, the paper's experiment, and reports of their records."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..runtime.texts import printable
from .common import KEPT, UserError, check_output, need, user_errors, warnings_as_lines
from .model import is_model, load, read_place

if TYPE_CHECKING:
    from ..experiments.best import Best
    from ..report.results import Results


def bench(**options: Any) -> int:
    if options.get("predictions") != "none":
        need("pyarrow", "--predictions", ", or give --predictions none")
    with user_errors(KEPT):
        from ..experiments import benchmark

        results = benchmark(**options)
        if results.records:
            print(printable(_summary(results, options["out"])))
    return _code(results)


def probe(**options: Any) -> int:
    with user_errors(KEPT):
        from ..experiments import probe

        results = probe(**options)
        if results.done:
            print(printable(str(results)))
            print(f"\npage, tables and plots: {options['out'] / 'probe.html'}")
    return _code(results)


def tune(**options: Any) -> int:
    need("optuna", "credalgnn tune")
    with user_errors(KEPT):
        from ..experiments import tune

        results = tune(**options)
    if not results.finished:
        print("the time is over: the same command goes on", file=sys.stderr)
        return 1
    for dataset, table in results.best.items():
        for name, best in table.items():
            value = "-" if best.value is None else f"{best.value:.4f}"
            print(printable(f"{dataset:10s} {name:20s} {value:>8s}  {_point(best)}"))
    setting = " --setting inductive" if options.get("setting") == "inductive" else ""
    protocol = options.get("protocol", "sealed")
    print(f"credalgnn bench --tuned {options['out']} --protocol {protocol}{setting} uses these")
    return 0


def reproduce(**options: Any) -> int:
    need("optuna", "credalgnn reproduce")
    need("pyarrow", "credalgnn reproduce")
    with user_errors(KEPT):
        from ..experiments import reproduce
        from ..experiments.paper import write_comparison

        results = reproduce(**options)
        if results is None or results.left:
            print("the time is over: the same command goes on", file=sys.stderr)
            return 1
        print(printable(write_comparison([options["out"]], options["out"])))
    return _code(results)


def report(
    folders: Sequence[Path],
    *,
    out: Path | None = None,
    score: Sequence[str] | None = None,
    **options: Any,
) -> int:
    """Write tables and pages from records, without any training.

    Print the table of one or more folders of benchmarks, and write table.md, table.csv, table.tex and report.html; for
    folders of credalgnn reproduce also paper.md and paper.html, for those of credalgnn probe probe.md, probe.csv,
    probe.svg and probe.html. For the folder of a model (credalgnn fit): predict a graph and write its page.

    Args:
        folders: Folders of experiments, or of one model.
        out: Folder to write to; default: the folder of the records, if there is one only.
        score: Only these scores in the tables (EU, AU, TU, energy ...).
        nodes: With a model: table with a row per node.
        edges: With a model: table with a row per edge.
        graph: With a model, instead of tables: a whole graph.
        context: With a model: tables of earlier nodes and edges (two files or a folder).
    """
    if is_model(folders[0]):
        if len(folders) > 1 or score is not None:
            raise UserError("the page of a model is of one model: leave out other folders and --score")
        if out is None:
            raise UserError("--out is needed: the model's own page is of the graph it was fitted on")
        place = read_place(options)
        with user_errors(), warnings_as_lines():
            from ..model.summary import report_graph

            print(f"the page: {report_graph(load(folders[0]), out, *place)}")
        return 0
    if options:
        raise UserError(f"--nodes, --edges, --graph and --context are for models; {folders[0]} holds none")
    if out is None and len(folders) > 1:
        raise UserError("several folders: say with --out where the tables and the page go")
    with user_errors():
        check_output((out or folders[0]) / "report.html")
        _report(list(folders), out or folders[0], score)
    return 0


def _report(folders: list[Path], out: Path, scores: Sequence[str] | None) -> None:
    from ..experiments.paper import is_reproduction, write_comparison
    from ..experiments.probe_results import is_probe, read_probes
    from ..report import write_report

    if any(map(is_probe, folders)):  # read_probes refuses others among them
        results = read_probes(folders)
        page = results.write(out)
        print(printable(f"{results}\n\npage, tables and plots: {page}"))
        return
    beside = all(map(is_reproduction, folders))
    if beside:  # first: reproductions that differ are refused before anything is written
        write_comparison(folders, out)
    print(printable(_summary(write_report(folders, out, scores=scores), out, scores)))
    if beside:
        print(f"comparison with the paper: {out / 'paper.md'}")


def leaderboard(folders: Sequence[Path], *, out: Path) -> int:
    """Collect benchmarks in one sortable page: ranks, wins and losses.

    Runs of folders of benchmarks, and of other leaderboards, become leaderboard.html, leaderboard.md and runs.jsonl.gz,
    of which later leaderboards can be made. Of a run that several folders hold, on the same data with the same
    hyper-parameters, the first counts.

    Args:
        folders: Folders of benchmarks or leaderboards.
        out: Folder to write to.
    """
    with user_errors():
        from ..report import leaderboard

        board = leaderboard(folders)
        page = board.write(out)
        print(printable(str(board)))
        if board.doubles:
            print(f"\n{board.doubles} runs are in more than one folder: those of the first one count")
        print(f"\npage, tables and runs: {page}")
    return 0


def _code(results: Any) -> int:
    """Say what is left or failed; the exit code."""
    if results.left:
        print(f"{results.left} of {results.total} runs are left: the same command goes on", file=sys.stderr)
    if results.failed:
        print(f"{results.failed} of {results.total} runs failed: the same command tries again", file=sys.stderr)
    return 1 if results.left or results.failed else 0


def _point(best: Best) -> str:
    if best.value is None:
        return "its defaults: the ID validation nodes are all right, or all wrong, so nothing distinguishes points"
    return ", ".join(
        f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}" for key, value in best.config.items()
    )


def _summary(results: Results, out: Path, scores: Sequence[str] | None = None) -> str:
    """The table of results whose tables and page are written."""
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
