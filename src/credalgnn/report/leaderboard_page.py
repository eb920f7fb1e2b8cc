"""A leaderboard as a person sees it: on the terminal, as Markdown, and as one HTML file that sorts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..metrics import MARKS, METRICS
from ..runtime.files import write
from .archive import ARCHIVE, write_archive
from .document import document, numbers
from .standings import RANKED, REFERENCE, Condition, Leaderboard, Standing, Standings
from .summary import Row
from .tables import aligned, cell, letters, pipes

PAGE, TABLES = "leaderboard.html", "leaderboard.md"
TITLE = "Who knows what it does not know?"


def write_leaderboard(board: Leaderboard, out: Path) -> Path:
    """Write page, tables and runs of a leaderboard.

    Args:
        board: The leaderboard.
        out: The folder.

    Returns:
        The page.
    """
    write_archive(board.records, out / ARCHIVE)
    write(out / TABLES, as_markdown(board).encode())
    scripts, styles = ("common.js", "charts.js", "leaderboard.js"), ("page.css", "leaderboard.css")
    write(out / PAGE, document(TITLE, page_data(board), "leaderboard.html", scripts, styles))
    return out / PAGE


def as_text(board: Leaderboard) -> str:
    """How methods stand by AUROC, for the terminal: one table for each condition.

    Args:
        board: The leaderboard.
    """
    parts = []
    for condition in board.conditions:
        standings = board.standings(condition)
        parts += [*_head(standings), "", *aligned(_summary(standings)), "", *_legend(standings), ""]
    return "\n".join(parts).rstrip()


def as_markdown(board: Leaderboard) -> str:
    """The same as Markdown, with AUROC and accuracy on every graph.

    Args:
        board: The leaderboard.
    """
    parts = [f"# {TITLE}", "", *_counts(board)]
    for condition, rows in board.rows.items():
        standings = board.standings(condition)
        parts += ["", f"## {condition}", "", *_head(standings)[1:], "", *pipes(_summary(standings)), ""]
        parts += [line + "  " for line in _legend(standings)]
        for metric in ("auroc", "accuracy"):
            parts += ["", f"{METRICS[metric].label}, per cent", "", *pipes(_by_graph(standings, rows, metric))]
    return "\n".join(parts) + "\n"


def _counts(board: Leaderboard) -> list[str]:
    methods, graphs = ({record[name] for record in board.records} for name in ("method", "dataset"))
    return [f"{len(methods)} methods, {len(graphs)} graphs, {len(board.records):,} runs."]


def _head(standings: Standings) -> list[str]:
    """The condition, and what the test of all methods at once says."""
    lines = [f"{standings.condition} ({standings.metric.label}, {len(standings.graphs)} graphs)"]
    ranked = [one for one in standings.methods if one.mean_rank is not None]
    if standings.critical_difference is not None and standings.p_value is not None:
        lines.append(
            f"Mean ranks of {len(ranked)} methods over {len(standings.ranked)} graphs. Critical difference (Nemenyi, "
            f"0.05): {standings.critical_difference:.1f}; all methods alike (Friedman): p = {standings.p_value:.1g}."
        )
    else:
        lines.append("Too few graphs or methods to say whether mean ranks differ by more than chance.")
    return lines


def _summary(standings: Standings) -> list[list[str]]:
    label, scale = standings.metric.label, 100.0 if standings.metric.percent else 1.0
    table = [
        ["method", "score", "mean rank", "ranks", "wins", "ties", "losses", "marked", f"worst {label}", "worst lead"]
    ]
    table += [
        [
            one.method,
            one.score,
            "-" if one.mean_rank is None else f"{one.mean_rank:.1f}",
            f"{min(one.ranks.values()):g} to {max(one.ranks.values()):g}" if one.ranks else "-",
            *_outcomes(one),
            _named(one.worst, scale),
            _named(one.behind, scale, "+"),
        ]
        for one in standings.methods
    ]
    return table


def _outcomes(one: Standing) -> list[str]:
    tested = one.wins + one.losses + one.ties
    counts = [str(count) if tested else "-" for count in (one.wins, one.ties, one.losses)]
    return [*counts, str(one.marked or "")]


def _named(value: tuple[str, float] | None, scale: float, sign: str = "") -> str:
    return "-" if value is None else f"{scale * value[1]:{sign}.{1 if scale > 1 else 3}f} {value[0]}"


def _legend(standings: Standings) -> list[str]:
    return [
        f"wins, ties, losses: graphs on which it is better than {' '.join(REFERENCE)}, or not told from it, or worse "
        "(two-sided Wilcoxon over seeds, Holm over graphs, 0.05).",
        "marked: graphs on which a mark takes it out of the ranking: it shares the last rank there, and nothing else "
        "counts these graphs.",
        f"worst lead: its lead on {' '.join(REFERENCE)} where that is least.",
    ]


def _by_graph(standings: Standings, rows: Sequence[Row], metric: str) -> list[list[str]]:
    found = {(row.dataset, row.method): row for row in rows if row.headline}
    scale = 100.0 if METRICS[metric].percent else 1.0
    table = [["method", "score", *standings.graphs]]
    for one in standings.methods:
        line = [one.method, one.score]
        for graph in standings.graphs:
            row = found.get((graph, one.method))
            text = "" if row is None else cell(row.values.get(metric), scale)
            line.append(f"{text} {letters(row)}".strip() if row is not None and metric == "auroc" else text)
        table.append(line)
    return table


def page_data(board: Leaderboard) -> dict[str, Any]:
    """What the page needs, as plain values.

    Args:
        board: The leaderboard.
    """
    return {
        "conditions": [_condition(board, condition) for condition in board.conditions],
        "metrics": [
            {"key": key, "label": METRICS[key].label, "better": METRICS[key].better, "percent": METRICS[key].percent,
             "meaning": METRICS[key].meaning}
            for key in RANKED
        ],
        "marks": {name: {"letter": mark.letter, "meaning": mark.meaning} for name, mark in MARKS.items()},
        "reference": " ".join(REFERENCE),
        "runs": len(board.records),
        "finished": max(record["finished"] for record in board.records),
    }  # fmt: skip


def _condition(board: Leaderboard, condition: Condition) -> dict[str, Any]:
    rows, records = board.rows[condition], board.conditions[condition]
    about = {record["dataset"]: record for record in records}
    tables: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row.values:
            tables.setdefault((row.method, row.score), []).append(row)
    return {
        **condition._asdict(),
        "graphs": [
            {"name": graph, "classes": len(record["class_names"]), "ood": record["ood_names"],
             "counts": record["counts"], "seeds": len({one["seed"] for one in records if one["dataset"] == graph})}
            for graph, record in about.items()
        ],
        "rows": [
            {"method": method, "score": score, "headline": found[0].headline, "trivial": found[0].trivial,
             "values": {row.dataset: _values(row) for row in found},
             "marks": {row.dataset: row.marks for row in found if row.marks},
             "disqualified": {row.dataset: row.disqualified for row in found if row.disqualified}}
            for (method, score), found in tables.items()
        ],
        "standings": {metric: _standings_data(board.standings(condition, metric)) for metric in RANKED},
    }  # fmt: skip


def _values(row: Row) -> dict[str, list[float | int | None]]:
    """Mean, standard deviation and number of runs of every metric that can be ranked."""
    return {
        key: [*numbers((row.values[key].mean, row.values[key].std), 5), row.values[key].n]
        for key in RANKED
        if key in row.values
    }


def _standings_data(standings: Standings) -> Mapping[str, Any]:
    return {
        "critical": None if standings.critical_difference is None else round(standings.critical_difference, 2),
        "p": standings.p_value,
        "ranked": standings.ranked,
        "methods": {
            one.method: {
                "unlabelled": one.uses_unlabelled,
                "rank": None if one.mean_rank is None else round(one.mean_rank, 3),
                "ranks": one.ranks,
                "wins": one.wins, "ties": one.ties, "losses": one.losses, "untested": one.untested,
                "marked": one.marked,
                "worst": one.worst and [one.worst[0], *numbers([one.worst[1]], 5)],
                "behind": one.behind and [one.behind[0], *numbers([one.behind[1]], 5)],
            }
            for one in standings.methods
        },
    }  # fmt: skip
