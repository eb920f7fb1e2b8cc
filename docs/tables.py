"""Write the tables of these pages that the package itself defines: ``python docs/tables.py`` (``make docs`` runs it).

Each stands between ``<!-- NAME: made by docs/tables.py -->`` and ``<!-- end of NAME -->``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeAlias

from credalgnn.experiments.published import CHOICES
from credalgnn.metrics import MARKS, METRICS
from credalgnn.records.schema import FIELDS

Rows: TypeAlias = Iterable[tuple[str, ...]]

DOCS = Path(__file__).parent
BETTER = {1: "larger", -1: "smaller", 0: "neither"}


def metrics() -> Iterator[tuple[str, ...]]:
    yield "metric", "name", "meaning", "better"
    for key, metric in METRICS.items():
        yield f"`{key}`", metric.label, metric.meaning, BETTER[metric.better]


def marks() -> Iterator[tuple[str, ...]]:
    yield "mark", "the run", "what to do", "takes a row out of the ranking"
    for name, mark in MARKS.items():
        always = len(mark.disqualifies) == 2
        ranking = "always" if always else f"{mark.disqualifies[0]} protocol only"
        yield f"`{name}`, {mark.letter}", mark.meaning, mark.advice, ranking


def record() -> Iterator[tuple[str, ...]]:
    yield "field", "type", "meaning", "in records of"
    for name, variants in FIELDS.items():
        for field in variants:
            runs = {"": "all runs", "done": "finished runs", "failed": "failed runs"}[field.status]
            yield f"`{name}`", f"`{field.type}`", field.meaning, runs + ", where there is one" * (not field.required)


def choices() -> Iterator[tuple[str, ...]]:
    yield "`--as-published`", "in the published runs", "in the paper's text", "concerns"
    for name, choice in CHOICES.items():
        runs = choice.runs if choice.is_told else f"our guess, not told by the authors: {choice.runs}"
        yield f"`{name}`", runs, choice.paper, ", ".join(choice.methods)


TABLES: dict[str, dict[str, Callable[[], Rows]]] = {
    "benchmark.md": {"metrics": metrics, "marks": marks, "record": record},
    "results/forensics.md": {"choices": choices},
}


def in_markdown(rows: Rows) -> str:
    head, *others = ([cell.replace("|", r"\|") for cell in row] for row in rows)
    lines = (f"| {' | '.join(row)} |" for row in (head, *others))
    return "\n".join([next(lines), "|---" * len(head) + "|", *lines])


def updated(document: str) -> str:
    """The text of a document with its tables as the package defines them."""
    text = (DOCS / document).read_text()
    for name, make in TABLES[document].items():
        begin, end = f"<!-- {name}: made by docs/tables.py -->", f"<!-- end of {name} -->"
        before, found, rest = text.partition(begin)
        _, closed, after = rest.partition(end)
        if not (found and closed):
            raise ValueError(f"{document}: no place for the table {name!r}: add {begin!r} and {end!r}")
        text = f"{before}{begin}\n{in_markdown(make())}\n{end}{after}"
    return text


if __name__ == "__main__":
    for document in TABLES:
        (DOCS / document).write_text(updated(document))
