"""Rows as tables: for the terminal, Markdown, CSV and LaTeX."""

from __future__ import annotations

import csv
import io
import textwrap
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ..metrics import METRICS
from ..metrics.registry import MARKS, disqualifies
from ..records.schema import is_published
from ..runtime.files import write
from ..runtime.texts import markdown as escaped
from ..runtime.texts import one_line
from .summary import Row, Summary, TaskKey

AS_PUBLISHED = (
    "As published: these runs repeat choices of the paper's published ones, which experiment.json names. They explain "
    "the paper's figures, are not the honest protocol, and are not ranked."
)


def write_tables(rows: Sequence[Row], folder: Path) -> None:
    """``table.md``, ``table.csv`` and ``table.tex`` in a folder."""
    write(folder / "table.md", markdown(rows).encode())
    write(folder / "table.csv", tidy(rows).encode())
    write(folder / "table.tex", latex(rows).encode())


def terminal(rows: Sequence[Row], width: int | None = None) -> str:
    """AUROC of every score and accuracy of every method: data sets side by side, or one by one if that is too wide."""
    message = [one_line(line) for line in legend(rows, "*", "+")]
    names = _named(rows)
    parts = [aligned(_overview(rows, lambda text, rank: text + _SIGNS[rank], names, one_line))]
    if width is not None:
        message = [line for text in message for line in textwrap.wrap(text, max(width, 20))]
        if max(map(len, parts[0])) > width:
            tables = [[row for row in rows if row.task == key] for key in _tables(rows)]
            parts = [
                aligned(_overview(table, lambda text, rank: text + _SIGNS[rank], names, one_line)) for table in tables
            ]
    lines = [one_line(conditions(rows)), "", *(line for part in parts for line in [*part, ""]), *message]
    return "\n".join(lines)


def in_words(rows: Sequence[Row], strangers: Mapping[TaskKey, Sequence[str]]) -> list[str]:
    """The headline result of the first data set in plain words: of the first method with credal sets, or of the best.

    ``strangers`` are the names of the classes that were left out.
    """
    first = [row for row in rows if row.task == rows[0].task and row.headline and row.values]
    best = next((row for row in first if row.rank == "best"), None)
    told = next((row for row in first if "widest_ood" in row.values), best)
    if told is None or "auroc" not in told.values:
        return []
    left_out = strangers.get(told.task, ())
    names = f" ({', '.join(left_out)})" if 0 < len(left_out) <= 8 else ""
    auroc = f"AUROC {100 * told.values['auroc'].mean:.1f} %"
    message = [
        f"{told.method} tells nodes of the classes it never saw{names} from the rest of {told.dataset} with {auroc}."
    ]
    wide, narrow = (told.values.get(name) for name in ("widest_ood", "widest_id"))
    if wide is not None and narrow is not None:
        message.append(
            f"A typical stranger's widest interval is {wide.mean:.2f}, a typical known node's {narrow.mean:.2f} "
            "(0: sure; 1: anything is possible)."
        )
    if best is not None and best is not told:
        message.append(f"The best without a mark is {best.method}, with AUROC {100 * best.values['auroc'].mean:.1f} %.")
    return message


def markdown(rows: Sequence[Row]) -> str:
    """The same, and below it every metric for each data set."""
    bold = {"best": "**{}**", "tied": "{}†", "": "{}"}
    overview = pipes(_overview(rows, lambda text, rank: bold[rank].format(text), _named(rows)))
    parts = [escaped(conditions(rows)), "", *overview, "", *map(escaped, legend(rows))]
    for task in _tables(rows):
        chosen = [row for row in rows if row.task == task]
        shown = [metric for metric in METRICS.values() if metric.shown]
        body = [["method", "score", *(metric.label for metric in shown), "seconds", "marks"]]
        for row in chosen:
            cells = [cell(row.values.get(metric.key), 100.0 if metric.percent else 1.0) for metric in shown]
            body.append([row.method, row.score, *cells, cell(row.values.get("seconds"), 1.0), letters(row)])
        title = f"{task.dataset}, {task.protocol} protocol, {task.setting} setting"
        parts += ["", f"## {escaped(title)}", "", *pipes(body)]
    return "\n".join(parts) + "\n"


def latex(rows: Sequence[Row]) -> str:
    """The overview for a paper: booktabs, the best in bold, those not significantly worse underlined."""
    looks = {"best": r"\textbf{{{}}}", "tied": r"\underline{{{}}}", "": "{}"}
    head, *body = _overview(rows, lambda text, rank: looks[rank].format(text), _named(rows), _tex)
    lines = [f"% {one_line(conditions(rows))}", r"\begin{tabular}{ll" + "r" * (len(head) - 2) + "}", r"\toprule"]
    lines += [" & ".join(head) + r" \\", r"\midrule"]
    for line in body:
        numbers = (cell.replace(" ± ", r"\,$\pm$\,") for cell in line[2:])
        lines.append(" & ".join([*line[:2], *numbers]) + r" \\")
    notes = [f"% {one_line(line)}" for line in legend(rows, "Bold", "Underlined")]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", *notes]) + "\n"


def tidy(rows: Sequence[Row]) -> str:
    """One line per data set, method, score and metric, in plain fractions."""
    file = io.StringIO()
    table = csv.writer(file, lineterminator="\n")
    head = "dataset protocol setting method score metric mean std low high seeds rank marks disqualified"
    table.writerow(head.split())
    for row in rows:
        marks = " ".join(f"{name}:{count}" for name, count in row.marks.items())
        for name, value in row.values.items():
            spread = (value.std, value.low, value.high) if value.n > 1 else ()
            numbers = [f"{number:.6g}" for number in (value.mean, *spread)] + [""] * (3 - len(spread))
            rank = row.rank if name == "auroc" else ""
            line = [*row.task, row.method, row.score, name, *numbers, value.n, rank, marks]
            table.writerow([*line, " ".join(row.disqualified)])
    return file.getvalue()


def conditions(rows: Sequence[Row]) -> str:
    """The line above a table: what methods were allowed to look at."""
    protocols, settings = (dict.fromkeys(getattr(row, name) for row in rows) for name in ("protocol", "setting"))
    line = f"Protocol: {' and '.join(protocols)}. Setting: {' and '.join(settings)}."
    return f"{AS_PUBLISHED} {line}" if any(is_published(row.method) for row in rows) else line


def legend(rows: Sequence[Row], best: str = "Bold", tied: str = "†", ranked: bool = True) -> list[str]:
    """What the signs of these rows mean."""
    seeds = sorted({row.runs for row in rows if row.runs})
    many = " to ".join(str(number) for number in dict.fromkeys((seeds[0], seeds[-1]))) if seeds else "no"
    many += " seed" if many == "1" else " seeds"
    message = [f"AUROC of OOD nodes and accuracy of ID nodes in per cent, mean ± standard deviation over {many}."]
    if any(row.setting == "inductive" for row in rows):
        message.append("Inductive: training saw the training nodes and the edges among them, and no others.")
    if ranked and not all(is_published(row.method) for row in rows):
        message.append(_ranking(rows, best, tied))
    if any(row.is_short for row in rows):
        message.append("Brackets tell how many runs there are where some are missing.")
        message[-1] += " Ranks compare common seeds, of rows with more than half of the runs." if ranked else ""
    seen = {(mark, _letter(mark, row.protocol)) for row in rows for mark in row.marks}
    for name, mark in MARKS.items():
        signs = " or ".join(sorted(letter for one, letter in seen if one == name))
        message += [f"{signs}: {mark.meaning}. {mark.advice[0].upper()}{mark.advice[1:]}."] if signs else []
    if seen:
        message.append("A number after a letter tells how many runs bear the mark, if not all.")
        capital = " Rows with a run that bears a capital letter are shown and not ranked; small letters only inform."
        message[-1] += capital if ranked else ""
    failed = sum({(row.task, row.method): row.failed for row in rows}.values())
    if failed:
        message.append(f"{failed} run{'s' if failed > 1 else ''} failed; the records say why.")
    return message


def _ranking(rows: Sequence[Row], best: str, tied: str) -> str:
    """What the ranks mean, and on which data sets differences could be tested."""
    message = f"{best}: the best headline score that no mark takes out of the ranking."
    rivals = Counter(row.task for row in rows if row.competes)
    tested = {row.task for row in rows if row.tested}
    if tested:
        message += f" {tied}: not significantly worse (Wilcoxon over seeds, Holm, 0.05)."
    names = _named(rows)
    untested = [names[key] for key in names if rivals[key] > 1 and key not in tested]
    if untested:
        where = f" on {', '.join(untested)}" if tested else ""
        message += f" There are too few seeds to test differences{where}."
    return message


_SIGNS = {"best": "*", "tied": "+", "": " "}


def _overview(
    rows: Sequence[Row],
    decorate: Callable[[str, str], str],
    names: Mapping[TaskKey, str],
    show: Callable[[str], str] = str,
) -> list[list[str]]:
    """Head and body: a line per method and score, two columns per data set, protocol and setting.

    ``decorate`` makes figures stand out by their rank, and ``show`` makes names of others fit to be shown.
    """
    tables = _tables(rows)
    body = [
        ["method", "score", *(f"{show(names[table])} {what}" for table in tables for what in ("AUROC", "accuracy"))]
    ]
    result = {(row.task, row.method, row.score): row for row in rows}
    for method, score in dict.fromkeys((row.method, row.score) for row in rows):
        line = [show(method), show(score)]
        for table in tables:
            row = result.get((table, method, score))
            if row is None:
                line += ["", ""]
                continue
            marks = show(letters(row))
            auroc = decorate(cell(row.values.get("auroc"), 100.0), row.rank)
            auroc += f" ({row.runs})" if row.is_short else ""
            accuracy = cell(row.values.get("accuracy"), 100.0) if row.headline else ""
            line += [f"{auroc} {marks}".rstrip() if marks else auroc, accuracy]
        body.append(line)
    return body


def _tables(rows: Sequence[Row]) -> list[TaskKey]:
    return list(dict.fromkeys(row.task for row in rows))


def _named(rows: Sequence[Row]) -> dict[TaskKey, str]:
    """A name for every data set, protocol and setting; the last two are in it if there are several."""
    several = [name for name in ("protocol", "setting") if len({getattr(row, name) for row in rows}) > 1]
    extra = {task: ", ".join(getattr(task, name) for name in several) for task in _tables(rows)}
    return {task: f"{task.dataset} ({message})" if message else task.dataset for task, message in extra.items()}


def cell(value: Summary | None, factor: float) -> str:
    if value is None:
        return "-"
    digits = 1 if factor > 1 or value.mean >= 10 else 3
    mean, std = f"{factor * value.mean:.{digits}f}", f"{factor * value.std:.{digits}f}"
    return f"{mean} ± {std}" if value.n > 1 else mean


def letters(row: Row) -> str:
    """Letters of the marks, with how many runs bear them if not all do."""
    return " ".join(
        _letter(mark, row.protocol) + (f"{count}" if count < row.runs else "") for mark, count in row.marks.items()
    )


def _letter(mark: str, protocol: str) -> str:
    """A capital takes a row out of the ranking. A mark of another version has no letter and is shown by its name."""
    letter = MARKS[mark].letter if mark in MARKS else mark
    return letter if disqualifies(mark, protocol) else letter.lower()


def aligned(table: Sequence[Sequence[str]], texts: int = 2) -> list[str]:
    """A table for a terminal.

    Args:
        table: Head and body.
        texts: How many columns hold texts; the others are numbers, which end below each other.
    """
    widths = [max(len(line[column]) for line in table) for column in range(len(table[0]))]
    lines = []
    for line in table:
        left = [text.ljust(width) for text, width in zip(line[:texts], widths[:texts], strict=True)]
        right = [text.rjust(width) for text, width in zip(line[texts:], widths[texts:], strict=True)]
        lines.append("  ".join([*left, *right]).rstrip())
    return [lines[0], "-" * max(map(len, lines)), *lines[1:]]


def pipes(table: Sequence[Sequence[str]], texts: int = 2) -> list[str]:
    """A table in Markdown; texts of others show as they are.

    Args:
        table: Head and body.
        texts: How many columns hold texts, and not numbers.
    """
    head, *body = (f"| {' | '.join(map(escaped, line))} |" for line in table)
    return [head, "|" + "---|" * texts + "---:|" * (len(table[0]) - texts), *body]


def _tex(text: str) -> str:
    message = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    return "".join(message.get(sign) or (f"\\{sign}" if sign in "_%&#${}" else sign) for sign in one_line(text))
