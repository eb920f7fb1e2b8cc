"""Tables, page and chart of a probe."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ..report.drawing import Svg
from ..report.page import Page, numbers
from ..report.summary import Summary
from ..report.table import Table, columns
from ..runtime.files import write
from ..runtime.texts import markdown as escaped
from ..runtime.texts import one_line
from .conditions import BINS, HOMOPHILY, RISES, ProbeTest
from .probe_results import (
    QUESTIONS,
    TRUTH,
    Answer,
    ProbeResults,
    beside_truth,
    by_neighbours,
    curve,
    every_value,
)

PAGE, TABLES, PICTURE, VALUES, LEVELS = "probe.html", "probe.md", "probe.svg", "probe.csv", "probe_levels.csv"
TITLE = "What AU and EU respond to"
SCALE = (
    "1: only the right component responds; 0: neither does, or both alike; below 0: the wrong direction. -: the method "
    "has no AU or no credal set, or not everything was measured. With one seed, small values may be chance."
)


def write_probe(results: ProbeResults, out: Path) -> Path:
    """Write page, tables and chart of a probe; returns the path of the page."""
    write(out / TABLES, as_markdown(results).encode())
    write(out / VALUES, as_csv(results).encode())
    write(out / LEVELS, levels_as_csv(results).encode())
    page = Page("probe", TITLE, page_data(results), ("common.js", "charts.js", "probe.js"), skip="answers")
    write(out / PAGE, page.render().encode())
    write(out / PICTURE, chart(results).encode())
    return out / PAGE


def as_text(results: ProbeResults) -> str:
    """Means over graphs and a summary, for the terminal."""
    head = one_line(f"{TITLE}: means over {', '.join(results.graphs)}")
    table = overview(results, [*QUESTIONS])  # names are shorter than labels
    return "\n".join([head, "", table.terminal(), "", SCALE, *map(one_line, in_words(results))])


def in_words(results: ProbeResults) -> list[str]:
    """Methods whose components both respond as they must, and the best of them, in sentences."""
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
    return [
        f"EU rises with missing labels and AU with wrong ones, each more than the other changes, in {len(right)} of "
        f"{len(both)} methods{': ' + ', '.join(right) if right else ''}.",
        f"The best at both is {best} ({both[best][0]:+.2f} for fewer labels, {both[best][1]:+.2f} for noisy labels).",
    ]


def overview(results: ProbeResults, heads: Sequence[str] | None = None) -> Table:
    """Means over graphs, one row per method.

    Args:
        results: The results.
        heads: Heads of the columns in the order of ``QUESTIONS``; None for their labels.
    """
    named = dict(zip(QUESTIONS, heads or [question.label for question in QUESTIONS.values()], strict=True))
    overall = results.overall()
    names = [name for name in QUESTIONS if any(name in values for values in overall.values())]
    rows = [[method, *(_mean(name, overall.get(method, {}).get(name)) for name in names)] for method in results.methods]
    return Table(columns("method", [named[name] for name in names]), rows)


def _mean(question: str, value: float | None) -> str | None:
    if value is None:
        return None
    return f"{100.0 * value:.0f} %" if question == "inside" else f"{value:+.2f}"


def _spread(question: str, value: Summary) -> str:
    scale, sign, digits = (100.0, "", 0) if question == "inside" else (1.0, "+", 2)
    spread = f" ± {scale * value.std:.{digits}f}" if value.n > 1 else ""
    return f"{scale * value.mean:{sign}.{digits}f}{spread}"


def as_markdown(results: ProbeResults) -> str:
    """Means over graphs, the questions, each graph alone, and the curves behind the numbers."""
    parts = [f"# {TITLE}", "", escaped(f"{', '.join(results.graphs)}: means over graphs."), ""]
    parts += [overview(results).markdown(), "", SCALE, "", *map(escaped, in_words(results)), "", "## Questions", ""]
    names = dict.fromkeys(answer.question for answer in results.answers)
    questions = [[QUESTIONS[name].label, QUESTIONS[name].meaning] for name in names]
    parts.append(Table(columns("test", ["meaning"]), questions).markdown())
    for graph in results.graphs:
        answers = [answer for answer in results.answers if answer.graph == graph]
        seeds = max((answer.value.n for answer in answers), default=0)
        spread = f"Mean ± standard deviation over {seeds} seeds." if seeds > 1 else "One seed."
        parts += ["", f"## {escaped(graph)}", "", spread, "", by_method(answers, results.methods).markdown()]
        for test in RISES:
            rows, levels = _curves(results, graph, test, ("epistemic", "aleatoric"), 1.0, 3)
            share = "kept" if test.name == "labels" else "wrong"
            title = f"Mean EU / AU of ID test nodes, by the share of labels {share}"
            parts += _table(title, [f"{100 * level:g} %" for level in levels], rows)
        neighbours = {method: by_neighbours(results, graph, method) for method in results.methods}
        bins = [f"{100 * low:.0f} to {100 * high:.0f} %" for low, high in itertools.pairwise(BINS)]
        title = "AUROC of EU for OOD nodes / accuracy, by the share of a node's neighbours that are of its class"
        parts += _table(title, bins, [[method, *_pairs(one["auroc"], one["accuracy"], 100.0, 1)]
                                      for method, one in neighbours.items() if one])  # fmt: skip
    for graph in results.graphs:
        truths = {method: beside_truth(results.truths(graph, method)) for method in results.methods}
        means = [[method, *row.values()] for method, row in truths.items() if row]
        if means:
            text = "Means over the homophilies with an uncertain posterior; errors and distances are means over nodes."
            table = Table(columns("method", [*TRUTH.values()], ".3f"), means)
            parts += ["", f"## {escaped(graph)}: comparison with the true posterior", "", text, "", table.markdown()]
    for graph in results.graphs:
        rows, levels = _curves(results, graph, HOMOPHILY, ("auroc", "accuracy"), 100.0, 1)
        title = f"{graph}: AUROC of EU for OOD nodes / accuracy, by the share of edges within a class"
        table_parts = _table(title, [f"{level:g}" for level in levels], rows)
        parts += ["", "## Homophily", *table_parts] if table_parts else []
    return "\n".join(parts) + "\n"


def _table(title: str, heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    """Lines of a table with a title; none where there are no rows."""
    return ["", escaped(title), "", Table(columns("method", heads), rows).markdown()] if rows else []


def _curves(
    results: ProbeResults, graph: str, test: ProbeTest, fields: tuple[str, str], scale: float, digits: int
) -> tuple[list[list[str]], list[float]]:
    """Two quantities at every level of a test: rows of methods, and the levels."""
    first, second = fields
    curves = {method: curve(results, graph, method, test) for method in results.methods}
    shown = {method: one for method, one in curves.items() if one is not None and any(getattr(one, second))}
    rows = [
        [method, *_pairs(getattr(one, first), getattr(one, second), scale, digits)] for method, one in shown.items()
    ]
    return rows, next(iter(shown.values())).levels if shown else []


def _pairs(first: Iterable[float | None], second: Iterable[float | None], scale: float, digits: int) -> list[str]:
    def texts(values: Iterable[float | None]) -> list[str]:
        return ["-" if value is None else f"{scale * value:.{digits}f}" for value in values]

    return [f"{one} / {other}" for one, other in zip(texts(first), texts(second), strict=True)]


def by_method(answers: Sequence[Answer], methods: Sequence[str]) -> Table:
    """Answers on one graph, one row per method.

    Args:
        answers: The answers on this graph.
        methods: Order of the rows.
    """
    names = [name for name in QUESTIONS if any(answer.question == name for answer in answers)]
    cells = {(answer.method, answer.question): _spread(answer.question, answer.value) for answer in answers}
    rows = [[method, *(cells.get((method, name)) for name in names)] for method in methods]
    heads = columns("method", [QUESTIONS[name].label for name in names])
    return Table(heads, [row for row in rows if any(row[1:])])


def levels_as_csv(results: ProbeResults) -> str:
    """All measurements by level, homophily and true posterior, one line per value."""
    heads = columns("graph method test level quantity mean")
    rows = [[*map(str, key), value] for *key, value in every_value(results) if value is not None]
    return Table(heads, rows).csv()


def as_csv(results: ProbeResults) -> str:
    """Answers, one line per graph, method and question."""
    rows = [
        [one.graph, one.method, one.question, one.value.mean, one.value.std, one.value.low, one.value.high, one.value.n,
         *(None if part is None else part.mean for part in (one.epistemic, one.aleatoric))]
        for one in results.answers
    ]  # fmt: skip
    return Table(columns("graph method test answer std low high seeds epistemic aleatoric"), rows).csv()


def page_data(results: ProbeResults) -> dict[str, Any]:
    """Data of the page as plain values."""
    answers: dict[str, dict[str, dict[str, Any]]] = {}
    for one in results.answers:
        parts = [None if part is None else part.mean for part in (one.epistemic, one.aleatoric)]
        values = numbers((one.value.mean, one.value.std, *parts))
        answers.setdefault(one.graph, {}).setdefault(one.method, {})[one.question] = [*values, one.value.n]
    local: dict[str, Any] = {}
    truth: dict[str, Any] = {}
    for graph in results.graphs:
        bins = {method: by_neighbours(results, graph, method) for method in results.methods}
        truths = {method: beside_truth(results.truths(graph, method)) for method in results.methods}
        local[graph] = {
            method: {name: numbers(values) for name, values in one.items()} for method, one in bins.items() if one
        }
        rows = {method: dict(zip(row, numbers(row.values()), strict=True)) for method, row in truths.items() if row}
        truth |= {graph: rows} if rows else {}
    return {
        "graphs": results.graphs,
        "methods": results.methods,
        "questions": [question._asdict() for question in QUESTIONS.values()],
        "overall": {
            method: dict(zip(values, numbers(values.values()), strict=True))
            for method, values in results.overall().items()
        },
        "answers": answers,
        "rises": [{"name": test.name, "label": test.label, "meaning": test.meaning} for test in RISES],
        "curves": {
            test.name: {graph: _curve_data(results, graph, test) for graph in results.graphs}
            for test in (*RISES, HOMOPHILY)
        },
        "bins": [float(edge) for edge in BINS],
        "local": local,
        "truth": truth,
        "scale": SCALE,
        "words": in_words(results),
        "runs": len(results.done),
        "failed": len(results.records) - len(results.done),
        "left": results.left,
        "finished": max((record["finished"] for record in results.done), default=None),
    }


def _curve_data(results: ProbeResults, graph: str, test: ProbeTest) -> dict[str, Any]:
    """Curves of all methods over the levels of a test."""
    curves = {method: curve(results, graph, method, test) for method in results.methods}
    return {
        method: {name: numbers(values) for name, values in one._asdict().items()}
        for method, one in curves.items()
        if one is not None
    }


def chart(results: ProbeResults) -> str:
    """Draw the means over graphs as a table of colours, as SVG: blue is right, orange the wrong direction."""
    overall = results.overall()
    names = [name for name in QUESTIONS if any(name in values for values in overall.values())]
    methods = [method for method in results.methods if method in overall]
    left, top, width, height = 20 + 7.5 * max(map(len, methods), default=0), 50, 92, 24
    label = one_line(f"{TITLE}: means over {', '.join(results.graphs)}")
    notes = (label, "+1: only the right component responds; 0: neither, or both alike; -1: the wrong direction")
    whole = max(left + width * len(names), 7.0 * max(map(len, notes))) + 10
    svg = Svg(whole, top + height * len(methods) + 60, label)
    for k, name in enumerate(names):
        middle = left + width * (k + 0.5)
        first, _, rest = QUESTIONS[name].label.replace(", ", " ").partition(" ")
        svg.add("text", x=middle, y=top - 26, text_anchor="middle", content=first)
        svg.add("text", x=middle, y=top - 10, text_anchor="middle", content=rest)
        for row, method in enumerate(methods):
            value, y = overall[method].get(name), top + height * row
            if value is not None and name != "inside":  # a share has no wrong direction
                side = "right" if value > 0 else "wrong"
                opacity = f"{0.65 * min(abs(value), 1.0):.3f}"
                svg.add(
                    "rect", side, x=left + width * k + 1, y=y + 1, width=width - 2, height=height - 2, opacity=opacity
                )
            svg.add("text", x=middle, y=y + 17, text_anchor="middle", content=_mean(name, value) or "-")
    for row, method in enumerate(methods):
        svg.add("text", x=left - 10, y=top + height * row + 17, text_anchor="end", content=one_line(method))
    base = top + height * len(methods)
    for k, note in enumerate(notes):
        svg.add("text", x=10, y=base + 24 + 20 * k, content=note)
    return svg.render()
