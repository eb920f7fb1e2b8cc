"""Answers of a probe as tables: for the terminal, Markdown and CSV."""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Iterable, Sequence

from ..report.summary import Summary
from ..report.tables import aligned, pipes
from ..runtime.texts import markdown as escaped
from ..runtime.texts import one_line
from .conditions import BINS, HOMOPHILY, RISES
from .probe_results import QUESTIONS, TRUTH, Answer, ProbeResults, beside_truth, by_neighbours, curve, every_value

SCALE = (
    "1: the right component answers, and only it; 0: no answer, or both answer alike; below 0: the wrong direction. "
    "-: the method has no AU or no credal set to ask, or not everything was measured. One seed is one draw: its small "
    "answers may be chance."
)


def as_text(results: ProbeResults) -> str:
    """What methods answer on average over graphs, for the terminal, and the first lines of what it says.

    Args:
        results: Of a probe.
    """
    graphs = one_line(", ".join(results.graphs))
    lines = [f"Do AU and EU deserve their names? Mean over {graphs}", ""]
    lines += aligned(overview(results, [*QUESTIONS]), 1)  # names are shorter than labels
    return "\n".join([*lines, "", SCALE, *map(one_line, in_words(results))])


def in_words(results: ProbeResults) -> list[str]:
    """Who answers both questions that take two components, and who mirrors one number; in plain words.

    Args:
        results: Of a probe.
    """
    overall = results.overall()
    both = {
        method: (values["labels"], values["label-noise"])
        for method, values in overall.items()
        if {"labels", "label-noise"} <= set(values)
    }
    if not both:
        return []
    best = max(both, key=lambda method: min(both[method]))
    right = [method for method, values in both.items() if min(values) > 0.0]
    rises = f"{both[best][0]:+.2f} for fewer labels, {both[best][1]:+.2f} for noisy labels"
    lines = [
        f"EU rises with missing labels and AU with wrong ones, each more than the other moves, in {len(right)} of "
        f"{len(both)} methods{': ' + ', '.join(right) if right else ''}."
    ]
    return [*lines, f"The best at both is {best} ({rises})."]


def overview(results: ProbeResults, heads: Sequence[str] | None = None) -> list[list[str]]:
    """Means over graphs, a row a method.

    Args:
        results: Of a probe.
        heads: Of the columns, in the order of ``QUESTIONS``; None: their labels.
    """
    named = dict(zip(QUESTIONS, heads or [question.label for question in QUESTIONS.values()], strict=True))
    overall = results.overall()
    asked = [name for name in QUESTIONS if any(name in values for values in overall.values())]
    table = [["method", *(named[name] for name in asked)]]
    for method in results.methods:
        values = overall.get(method, {})
        table.append([one_line(method), *(_number(name, values.get(name)) for name in asked)])
    return table


def _number(question: str, value: float | None) -> str:
    if value is None:
        return "-"
    return f"{100.0 * value:.0f} %" if question == "inside" else f"{value:+.2f}"


def _spread(question: str, value: Summary) -> str:
    scale, sign = (100.0, "") if question == "inside" else (1.0, "+")
    digits = 0 if question == "inside" else 2
    spread = f" ± {scale * value.std:.{digits}f}" if value.n > 1 else ""
    return f"{scale * value.mean:{sign}.{digits}f}{spread}"


def as_markdown(results: ProbeResults) -> str:
    """The same, what is asked, every graph by itself, and the curves behind the numbers.

    Args:
        results: Of a probe.
    """
    parts = ["# Do AU and EU deserve their names?", "", escaped(f"{', '.join(results.graphs)}: means over graphs."), ""]
    parts += [*pipes(overview(results), 1), "", SCALE, "", *map(escaped, in_words(results)), "", "## What is asked", ""]
    asked = dict.fromkeys(answer.question for answer in results.answers)
    parts += pipes([["test", "what"], *([QUESTIONS[name].label, escaped(QUESTIONS[name].meaning)] for name in asked)])
    for graph in results.graphs:
        mine = [answer for answer in results.answers if answer.graph == graph]
        seeds = max((answer.value.n for answer in mine), default=0)
        spread = f"Mean ± standard deviation over {seeds} seeds." if seeds > 1 else "One seed."
        parts += ["", f"## {escaped(graph)}", "", spread, ""]
        parts += pipes(by_method(mine, results.methods), 1)
        for test in RISES:
            parts += _levels(results, graph, test.name)
        parts += _neighbours(results, graph)
    for graph in results.graphs:
        found = {method: beside_truth(results.truths(graph, method)) for method in results.methods}
        rows = [[method, *_cells(row.values())] for method, row in found.items() if row]
        if rows:
            what = "Means over the homophilies that leave anything open; errors and distances over nodes."
            parts += ["", f"## {escaped(graph)} beside its true posterior", "", what, ""]
            parts += pipes([["method", *TRUTH.values()], *rows], 1)
    if any(curve(results, graph, method, HOMOPHILY) for graph in results.graphs for method in results.methods):
        what = "csbm: AUROC of EU for strangers / accuracy, by the share of edges within a class."
        parts += ["", "## Homophily", "", what, ""]
        parts += pipes(homophily_table(results), 1)
    return "\n".join(parts) + "\n"


def _cells(values: Iterable[float | None], scale: float = 1.0, digits: int = 3) -> list[str]:
    return ["-" if value is None else f"{scale * value:.{digits}f}" for value in values]


def by_method(answers: Sequence[Answer], methods: Sequence[str]) -> list[list[str]]:
    """Answers on one graph, a row a method.

    Args:
        answers: On this graph.
        methods: The order of rows.
    """
    asked = [name for name in QUESTIONS if any(answer.question == name for answer in answers)]
    cells = {(answer.method, answer.question): _spread(answer.question, answer.value) for answer in answers}
    table = [["method", *(QUESTIONS[name].label for name in asked)]]
    for method in methods:
        row = [cells.get((method, name), "-") for name in asked]
        if set(row) != {"-"}:
            table.append([method, *row])
    return table


def _levels(results: ProbeResults, graph: str, name: str) -> list[str]:
    """Mean EU and AU at every level of a test."""
    test = next(each for each in RISES if each.name == name)
    curves = {method: curve(results, graph, method, test) for method in results.methods}
    shown = {method: one for method, one in curves.items() if one is not None and any(one.aleatoric)}
    if not shown:
        return []
    table = [["method", *(f"{100 * level:g} %" for level in next(iter(shown.values())).levels)]]
    for method, one in shown.items():
        pairs = zip(_cells(one.epistemic), _cells(one.aleatoric), strict=True)
        table.append([method, *(f"{eu} / {au}" for eu, au in pairs)])
    what = "kept" if name == "labels" else "wrong"
    return ["", f"Mean EU / AU of known test nodes, by the share of labels {what}", "", *pipes(table, 1)]


def _neighbours(results: ProbeResults, graph: str) -> list[str]:
    """AUROC of EU for strangers, and accuracy, by the share of a node's neighbours that are of its class."""
    found = {method: by_neighbours(results, graph, method) for method in results.methods}
    heads = [f"{100 * low:.0f} to {100 * high:.0f} %" for low, high in itertools.pairwise(BINS)]
    rows = []
    for method, values in found.items():
        if values:
            pairs = zip(_cells(values["auroc"], 100.0, 1), _cells(values["accuracy"], 100.0, 1), strict=True)
            rows.append([method, *(f"{auroc} / {accuracy}" for auroc, accuracy in pairs)])
    title = "AUROC of EU for strangers / accuracy, by the share of a node's neighbours that are of its class"
    return ["", title, "", *pipes([["method", *heads], *rows], 1)] if rows else []


def homophily_table(results: ProbeResults) -> list[list[str]]:
    """AUROC of EU for strangers and accuracy on graphs of other homophily, a row a method.

    Args:
        results: Of a probe.
    """
    table: list[list[str]] = []
    for graph in results.graphs:
        for method in results.methods:
            one = curve(results, graph, method, HOMOPHILY)
            if one is not None:
                table = table or [["method", *(f"{level:g}" for level in one.levels)]]
                pairs = zip(_cells(one.auroc, 100.0, 1), _cells(one.accuracy, 100.0, 1), strict=True)
                table.append([method, *(f"{auroc} / {accuracy}" for auroc, accuracy in pairs)])
    return table


def levels_as_csv(results: ProbeResults) -> str:
    """Everything that was measured at levels, homophilies and beside the truth, one line a value.

    Args:
        results: Of a probe.
    """
    file = io.StringIO()
    table = csv.writer(file, lineterminator="\n")
    table.writerow(["graph", "method", "test", "level", "quantity", "mean"])
    for *key, value in every_value(results):
        if value is not None:
            table.writerow([*key, f"{value:.6g}"])
    return file.getvalue()


def as_csv(results: ProbeResults) -> str:
    """One line a graph, method and question.

    Args:
        results: Of a probe.
    """
    file = io.StringIO()
    table = csv.writer(file, lineterminator="\n")
    table.writerow(["graph", "method", "test", "answer", "std", "low", "high", "seeds", "epistemic", "aleatoric"])
    for one in results.answers:
        numbers = [f"{value:.6g}" for value in (one.value.mean, one.value.std, one.value.low, one.value.high)]
        parts = ["" if part is None else f"{part.mean:.6g}" for part in (one.epistemic, one.aleatoric)]
        table.writerow([one.graph, one.method, one.question, *numbers, one.value.n, *parts])
    return file.getvalue()
