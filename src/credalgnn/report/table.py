"""Tables with renderers for the terminal, Markdown, CSV, LaTeX and HTML."""

from __future__ import annotations

import csv
import html
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Literal, NamedTuple, TypeAlias

from ..runtime.texts import markdown, one_line

Target: TypeAlias = Literal["terminal", "markdown", "latex", "html"]

# How the best cell, those not significantly worse and all other ranked cells look, and how notes call the first two.
_LOOKS: dict[Target, tuple[str, str, str]] = {
    "terminal": ("{}*", "{}+", "{} "),  # a sign or a blank, so that numbers stay aligned
    "markdown": ("**{}**", "{}†", "{}"),
    "latex": (r"\textbf{{{}}}", r"\underline{{{}}}", "{}"),
    "html": ("<strong>{}</strong>", "{}†", "{}"),
}
_SIGNS: dict[Target, tuple[str, str]] = {
    "terminal": ("*", "+"),
    "markdown": ("Bold", "†"),
    "latex": ("Bold", "Underlined"),
    "html": ("Bold", "†"),
}
BEST, TIED = "{best}", "{tied}"  # placeholders in notes for the signs of the renderer


class Column(NamedTuple):
    """Column of a table.

    Args:
        name: Its head.
        group: Head above several columns; where heads have one line it precedes the name.
        format: Format of numbers, such as ``".1f"``.
        is_text: Aligned to the left.
    """

    name: str
    group: str = ""
    format: str = ""
    is_text: bool = False

    @property
    def head(self) -> str:
        return f"{self.group} {self.name}".strip()


class Cell(NamedTuple):
    """Cell with a rank, a remark or a colour.

    Args:
        text: The number as text.
        rank: ``"best"``, ``"tied"`` (not significantly worse), or nothing.
        note: Remark after the number, such as the letters of marks.
        style: CSS class.
    """

    text: str
    rank: str = ""
    note: str = ""
    style: str = ""


Value: TypeAlias = str | float | Cell | None


def columns(texts: str, numbers: Sequence[str] = (), format: str = "") -> list[Column]:
    """Columns without groups.

    Args:
        texts: Names of text columns, separated by blanks.
        numbers: Names of the number columns after them.
        format: Format of all numbers.
    """
    return [Column(name, is_text=True) for name in texts.split()] + [Column(name, format=format) for name in numbers]


@dataclass(frozen=True)
class Table:
    """Table that can be shown anywhere; names of others are made harmless by the renderer.

    Args:
        columns: The columns.
        rows: Their cells: text, numbers, ``Cell``; None where there is no value.
        notes: Footnotes; ``{best}`` and ``{tied}`` stand for the signs of the renderer.
        missing: Text for None.

    Example:
        >>> table = Table(columns("method", ["AUROC"], ".1f"), [["credal-lj", 91.25], ["energy", None]])
        >>> print(table.markdown())
        | method | AUROC |
        |---|---:|
        | credal-lj | 91.2 |
        | energy | - |
    """

    columns: Sequence[Column]
    rows: Sequence[Sequence[Value]]
    notes: Sequence[str] = ()
    missing: str = "-"

    def terminal(self, indent: int = 0) -> str:
        """Aligned columns; without a head where no column has a name.

        Args:
            indent: Number of blanks before each line.
        """
        lines = self._texts("terminal", one_line)
        has_head = any(lines[0])
        lines = lines if has_head else lines[1:]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        shown = [
            "  ".join(
                text.ljust(width) if column.is_text else text.rjust(width)
                for text, width, column in zip(line, widths, self.columns, strict=True)
            ).rstrip()
            for line in lines
        ]
        rule = ["-" * max(map(len, shown))] if has_head else []
        return "\n".join(" " * indent + line for line in [*shown[: len(rule)], *rule, *shown[len(rule) :]])

    def markdown(self) -> str:
        head, *body = (f"| {' | '.join(line)} |" for line in self._texts("markdown", markdown))
        rule = "|" + "".join("---|" if column.is_text else "---:|" for column in self.columns)
        return "\n".join([head, rule, *body])

    def csv(self) -> str:
        """Comma-separated values: numbers with six digits, nothing for None."""
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(column.head for column in self.columns)
        exact = replace(self, columns=[column._replace(format=".6g") for column in self.columns], missing="")
        writer.writerows([exact._text(*pair) for pair in zip(row, exact.columns, strict=True)] for row in self.rows)
        return file.getvalue()

    def latex(self) -> str:
        """Tabular with booktabs rules; the notes follow as comments."""
        head, *body = (" & ".join(line) + r" \\" for line in self._texts("latex", tex))
        alignment = "".join("l" if column.is_text else "r" for column in self.columns)
        lines = [rf"\begin{{tabular}}{{{alignment}}}", r"\toprule", head, r"\midrule", *body]
        lines += [r"\bottomrule", r"\end{tabular}", *(f"% {one_line(note)}" for note in self.footnotes("latex"))]
        return "\n".join(lines)

    def html(self) -> str:
        """Table element; groups of columns get a line of heads of their own."""

        def head(column: Column, name: str, more: str = "") -> str:
            return f'<th scope="col"{"" if column.is_text else " class=number"}{more}>{html.escape(name)}</th>'

        upper, lower = [], []
        grouped = any(column.group for column in self.columns)
        for group, members in groupby(self.columns, lambda column: column.group):
            listed = list(members)
            if group:
                upper.append(f'<th scope="colgroup" class="group" colspan={len(listed)}>{html.escape(group)}</th>')
                lower += [head(column, column.name) for column in listed]
            else:
                upper += [head(column, column.name, " rowspan=2" if grouped else "") for column in listed]
        body = []
        for row, line in zip(self.rows, self._texts("html", html.escape)[1:], strict=True):
            first, *rest = line
            cells = [f'<th scope="row">{first}</th>']
            for value, text, column in zip(row[1:], rest, self.columns[1:], strict=True):
                style = value.style if isinstance(value, Cell) else ""
                names = " ".join(filter(None, ("" if column.is_text else "number", style)))
                cells.append(f'<td class="{names}">{text}</td>' if names else f"<td>{text}</td>")
            body.append(f"<tr>{''.join(cells)}</tr>")
        heads = "".join(f"<tr>{''.join(line)}</tr>" for line in (upper, lower) if line)
        return f"<table><thead>{heads}</thead><tbody>{''.join(body)}</tbody></table>"

    def html_notes(self) -> str:
        """The notes as paragraphs below the table."""
        return f'<div class="legend">{"".join(f"<p>{html.escape(note)}</p>" for note in self.footnotes("html"))}</div>'

    def footnotes(self, target: Target) -> list[str]:
        """The notes with the signs of a renderer.

        Args:
            target: The renderer.
        """
        best, tied = _SIGNS[target]
        return [note.replace(BEST, best).replace(TIED, tied) for note in self.notes]

    def by_group(self) -> list[Table]:
        """One table for each group of columns, without the rows that are empty there."""
        tables = []
        for group in dict.fromkeys(column.group for column in self.columns if column.group):
            places = [k for k, column in enumerate(self.columns) if column.group in ("", group)]
            inside = [k for k in places if self.columns[k].group]
            rows = [[row[k] for k in places] for row in self.rows if any(row[k] != "" for k in inside)]
            tables.append(replace(self, columns=[self.columns[k] for k in places], rows=rows))
        return tables

    def _texts(self, target: Target, escape: Callable[[str], str]) -> list[list[str]]:
        """Head and body as escaped and decorated texts."""
        looks = dict(zip(("best", "tied", ""), _LOOKS[target], strict=True))
        lines = [[escape(column.head) for column in self.columns]]
        for row in self.rows:
            line = []
            for value, column in zip(row, self.columns, strict=True):
                text = escape(self._text(value, column))
                if isinstance(value, Cell):
                    text = looks[value.rank].format(text) + (f" {escape(value.note)}" if value.note else "")
                line.append(text)
            lines.append(line)
        return lines

    def _text(self, value: Value, column: Column) -> Any:
        if isinstance(value, Cell):
            return value.text
        if value is None:
            return self.missing
        return f"{value:{column.format}}" if isinstance(value, float) else str(value)


def tex(text: str) -> str:
    """Escape what is special in LaTeX.

    Args:
        text: Any text; ``±`` becomes ``$\\pm$`` between thin spaces.
    """
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    shown = (special.get(sign) or (f"\\{sign}" if sign in "_%&#${}" else sign) for sign in one_line(text))
    return "".join(shown).replace(" ± ", r"\,$\pm$\,")
