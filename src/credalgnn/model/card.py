"""The card of a model: what it is, what it learnt from, what it promises and how to use it, for people."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .summary import diagnosis_in_words

if TYPE_CHECKING:
    from .model import Model

_TAGS = ("graph-neural-network", "node-classification", "uncertainty", "credal-sets", "conformal-prediction")


def card(model: Model, config: Mapping[str, Any]) -> str:
    """The card in Markdown, with a header that model hubs read.

    Args:
        model: The model.
        config: What ``model.json`` will hold.
    """
    summary = model.summary
    metrics, parts = summary["metrics"], summary["parts"]
    accuracy = metrics.get("accuracy")
    header = ["---", "library_name: credalgnn", "tags:", *(f"- {tag}" for tag in _TAGS)]
    header += ["metrics:", "- accuracy", "---"]
    names = ", ".join(summary["classes"][:20]) + (" ..." if len(summary["classes"]) > 20 else "")
    lines = [
        "",
        f"# Node classifier ({summary['method']})",
        "",
        f"Tells {len(summary['classes'])} classes of nodes apart ({names}), and says of each node how far it is to be "
        "trusted: a lower and an upper probability of every class, and whether the node looks like anything that was "
        "labelled.",
        "",
        "## Data",
        "",
        f"A graph of {summary['nodes']:,} nodes and {summary['edges']:,} edges with {summary['features']:,} features; "
        f"{summary['labelled']:,} nodes have a label. Parts: "
        + ", ".join(f"{name} {count:,}" for name, count in parts.items())
        + ".",
    ]
    if model.reader is not None:
        columns = model.reader.columns
        lines.append(
            f"Read from two tables: nodes with the columns `{columns.id}` and `{columns.label}`, edges with "
            f"`{columns.source}` and `{columns.target}`; `model.json` says how columns become features."
        )
    lines += ["", "## What it is worth", ""]
    if accuracy is not None:
        count = parts[summary["judged_on"]]
        lines += [
            f"On {count:,} {summary['judged_on']} nodes, which took no part in training: accuracy "
            f"{100 * accuracy:.1f} %, calibration error {100 * metrics['ece']:.1f} %.",
            "",
        ]
    if summary["sets"]:
        lines += ["| coverage promised | reached | classes a node |", "|---:|---:|---:|"]
        lines += [
            f"| {100 * row['coverage']:g} % | {100 * row['covered']:.1f} % | {row['size']:.2f} |"
            for row in summary["sets"]
        ]
        lines.append("")
    if summary["alarms"]:
        lines += ["| false alarms allowed | unlabelled nodes flagged | of |", "|---:|---:|---:|"]
        lines += [
            f"| {100 * row['false_alarms']:g} % | {row['flagged']:,} | {row['of']:,} |" for row in summary["alarms"]
        ]
        lines.append("")
    if text := diagnosis_in_words(summary["diagnosis"]):
        lines += [text, ""]
    lines += [f"- Warning: {message}" for message in summary.get("warnings", ())]
    lines += [
        "",
        "## What it promises",
        "",
        f"{parts['calibration']:,} calibration nodes took no part in training, early stopping, temperature or tuning. "
        "A node that is exchangeable with them (of a known class, and come to the graph in the same way) is flagged "
        "as a stranger with at most the chosen probability, and has its true class among those in question with at "
        "least the chosen probability. Nothing is promised of nodes that come otherwise; `credalgnn watch` notices "
        "when they do.",
        "",
        "## How to use it",
        "",
        "```",
        "credalgnn predict . --nodes new.csv --edges new_edges.csv --out predictions.parquet --false-alarms 0.05",
        "```",
        "",
        "```python",
        "import credalgnn as cg",
        "",
        'model = cg.load_model(".")',
        'result = model.predict("new.csv", "new_edges.csv")',
        "result.strangers(false_alarms=0.05)",
        "```",
        "",
        "## Versions",
        "",
        "```json",
        json.dumps({"made": config["made"], **config["versions"]}, indent=1),
        "```",
        "",
    ]
    return "\n".join([*header, *lines])
