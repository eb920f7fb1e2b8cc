"""A probe as a person sees it: one HTML file, tables as Markdown and CSV, and a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..report.document import document, numbers
from ..runtime.files import write
from .conditions import BINS, HOMOPHILY, RISES, ProbeTest
from .probe_picture import write_picture
from .probe_results import QUESTIONS, ProbeResults, beside_truth, by_neighbours, curve
from .probe_tables import SCALE, as_csv, as_markdown, in_words, levels_as_csv

PAGE, TABLES, PICTURE = "probe.html", "probe.md", "probe.png"
VALUES, LEVELS = "probe.csv", "probe_levels.csv"
TITLE = "Do AU and EU deserve their names?"


def write_probe(results: ProbeResults, out: Path) -> Path:
    """Write page, tables and, where matplotlib is there, the picture of a probe.

    Args:
        results: Of a probe.
        out: The folder.

    Returns:
        The page.
    """
    write(out / TABLES, as_markdown(results).encode())
    write(out / VALUES, as_csv(results).encode())
    write(out / LEVELS, levels_as_csv(results).encode())
    scripts, styles = ("common.js", "charts.js", "probe.js"), ("page.css", "leaderboard.css", "probe.css")
    write(out / PAGE, document(TITLE, page_data(results), "probe.html", scripts, styles))
    write_picture(results, out / PICTURE)
    return out / PAGE


def page_data(results: ProbeResults) -> dict[str, Any]:
    """What the page needs, as plain values.

    Args:
        results: Of a probe.
    """
    overall = results.overall()
    answers: dict[str, dict[str, dict[str, Any]]] = {}
    for one in results.answers:
        parts = [None if part is None else part.mean for part in (one.epistemic, one.aleatoric)]
        values = numbers((one.value.mean, one.value.std, *parts))
        answers.setdefault(one.graph, {}).setdefault(one.method, {})[one.question] = [*values, one.value.n]
    return {
        "graphs": results.graphs,
        "methods": results.methods,
        "questions": [question._asdict() for question in QUESTIONS.values()],
        "overall": {
            method: {name: numbers([value])[0] for name, value in values.items()} for method, values in overall.items()
        },
        "answers": answers,
        "rises": [{"name": test.name, "label": test.label, "meaning": test.meaning} for test in RISES],
        "curves": {
            test.name: {graph: _curves(results, graph, test) for graph in results.graphs}
            for test in (*RISES, HOMOPHILY)
        },
        "bins": [float(edge) for edge in BINS],
        "local": {
            graph: {
                method: {name: numbers(values) for name, values in bins.items()}
                for method in results.methods
                if (bins := by_neighbours(results, graph, method))
            }
            for graph in results.graphs
        },
        "truth": {
            graph: {
                method: dict(zip(row, numbers(row.values()), strict=True))
                for method in results.methods
                if (row := beside_truth(results.truths(graph, method)))
            }
            for graph in results.graphs
            if any(results.truths(graph, method) for method in results.methods)
        },
        "scale": SCALE,
        "words": in_words(results),
        "runs": len(results.done),
        "failed": len(results.records) - len(results.done),
        "left": results.left,
        "finished": max((record["finished"] for record in results.done), default=None),
    }


def _curves(results: ProbeResults, graph: str, test: ProbeTest) -> dict[str, Any]:
    """Every method's curve over the levels of a test."""
    found = {method: curve(results, graph, method, test) for method in results.methods}
    return {
        method: {name: numbers(values) for name, values in one._asdict().items()}
        for method, one in found.items()
        if one is not None
    }
