"""One table for the terminal, Markdown, CSV, LaTeX and HTML."""

from __future__ import annotations

import csv
from html.parser import HTMLParser

import pytest

from credalgnn.report.table import Cell, Column, Table, columns

HEADS = [*columns("method"), Column("AUROC", "cora"), Column("n", "cora"), Column("AUROC", "csbm", ".3f")]
TABLE = Table(
    HEADS,
    [
        ["best|one", Cell("90.0 ± 1.0", "best", "M3", "high2"), 10, 0.1234567],
        ["tied_<i>", Cell("89.0", "tied"), 9, None],
        ["\x1b[2Jplain\n", Cell("8.0"), "", ""],
    ],
    ["{best}: best. {tied}: not worse."],
)


def test_terminal_aligns_numbers_and_obeys_no_escapes() -> None:
    assert TABLE.terminal().splitlines() == [
        "method            cora AUROC  cora n  csbm AUROC",
        "------------------------------------------------",
        "best|one      90.0 ± 1.0* M3      10       0.123",
        "tied_<i>               89.0+       9           -",
        "\\x1b[2Jplain            8.0",
    ]
    assert TABLE.footnotes("terminal") == ["*: best. +: not worse."]


def test_lines_without_heads_are_facts() -> None:
    rows = [["accuracy", "91.2 %", "of 77"], ["ECE", None, ""]]
    table = Table([Column("", is_text=True), Column(""), Column("", is_text=True)], rows)
    assert table.terminal(indent=2).splitlines() == ["  accuracy  91.2 %  of 77", "  ECE            -"]


def test_markdown_escapes_and_ranks() -> None:
    head, rule, *body = TABLE.markdown().splitlines()
    assert (head, rule) == ("| method | cora AUROC | cora n | csbm AUROC |", "|---|---:|---:|---:|")
    assert body[0] == "| best\\|one | **90.0 ± 1.0** M3 | 10 | 0.123 |"
    assert body[1] == "| tied_&lt;i&gt; | 89.0† | 9 | - |"


def test_csv_has_six_digits_and_nothing_for_none() -> None:
    lines = list(csv.reader(TABLE.csv().splitlines()[:3]))
    assert lines[1:] == [["best|one", "90.0 ± 1.0", "10", "0.123457"], ["tied_<i>", "89.0", "9", ""]]


def test_latex_escapes_and_ranks() -> None:
    text = TABLE.latex()
    assert "\\begin{tabular}{lrrr}" in text
    assert "\\textbf{90.0\\,$\\pm$\\,1.0} M3 & 10" in text
    assert "tied\\_<i> & \\underline{89.0} & 9" in text
    assert text.endswith("% Bold: best. Underlined: not worse.")


def test_html_groups_heads_and_escapes() -> None:
    seen: list[tuple[str, dict[str, str | None]]] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            seen.append((tag, dict(attrs)))

    text = TABLE.html()
    Reader().feed(text)
    groups = [attributes["colspan"] for tag, attributes in seen if tag == "th" and "colspan" in attributes]
    assert groups == ["2", "1"]
    assert {tag for tag, _ in seen} == {"table", "thead", "tbody", "tr", "th", "td", "strong"}
    assert '<td class="number high2"><strong>90.0 ± 1.0</strong> M3</td>' in text


def test_wide_tables_divide_by_group() -> None:
    cora, csbm = TABLE.by_group()
    assert [column.head for column in cora.columns] == ["method", "cora AUROC", "cora n"]
    assert len(cora.rows) == 3
    assert [row[0] for row in csbm.rows] == ["best|one", "tied_<i>"]  # the third has nothing there


@pytest.mark.parametrize(
    ("sign", "expected"),
    [
        ("_", r"\_"), ("%", r"\%"), ("&", r"\&"), ("#", r"\#"), ("$", r"\$"), ("{", r"\{"), ("}", r"\}"),
        ("~", r"\textasciitilde{}"), ("^", r"\textasciicircum{}"), ("\\", r"\textbackslash{}"), (" ± ", r"\,$\pm$\,"),
    ],
)  # fmt: skip
def test_latex_escapes_what_is_special(sign: str, expected: str) -> None:
    """In heads and in cells."""
    text = Table(columns(f"my{sign}data".replace(" ", "")), [[f"a{sign}b"]]).latex()
    assert f"a{expected}b" in text
    assert sign == " ± " or f"my{expected}data" in text
