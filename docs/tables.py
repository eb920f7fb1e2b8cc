"""Write the tables of benchmark.md that the package itself defines: ``python docs/tables.py`` (``make docs`` runs it).

Each stands between ``<!-- NAME: made by docs/tables.py -->`` and ``<!-- end of NAME -->``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from types import NoneType
from typing import Any, get_args

from credalgnn.bench.records import About, FailedRecord, Record, fields_of
from credalgnn.metrics import MARKS, METRICS

DOCUMENT = Path(__file__).with_name("benchmark.md")
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
    common = fields_of(About)
    for schema, runs in ((About, "all runs"), (Record, "finished runs"), (FailedRecord, "failed runs")):
        for name, (kind, field, optional) in fields_of(schema).items():
            if schema is About or name not in common:
                yield f"`{name}`", f"`{_type(kind)}`", field.meaning, runs + ", where there is one" * optional


def _type(kind: Any) -> str:
    """A type as an annotation is written."""
    return "None" if kind is NoneType else str(kind).replace("typing.", "") if get_args(kind) else kind.__name__


TABLES = {"metrics": metrics, "marks": marks, "record": record}


def table(name: str) -> str:
    """One of ``TABLES`` in Markdown."""
    head, *rows = ([cell.replace("|", r"\|") for cell in row] for row in TABLES[name]())
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)).replace(" --- ", "---")


def updated(text: str) -> str:
    """A document with its tables as the package defines them."""
    for name in TABLES:
        begin, end = f"<!-- {name}: made by docs/tables.py -->", f"<!-- end of {name} -->"
        block = f"{begin}\n{table(name)}\n{end}"
        text, count = re.subn(f"{re.escape(begin)}.*?{re.escape(end)}", lambda _, block=block: block, text, flags=re.S)
        if count != 1:
            raise ValueError(f"{DOCUMENT.name}: {count} places for the table {name!r}, and one is wanted")
    return text


if __name__ == "__main__":
    DOCUMENT.write_text(updated(DOCUMENT.read_text()))
