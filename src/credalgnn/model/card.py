"""The card of a model: what it is, what it learnt from, what it promises and how to use it, for people."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..methods.calibration import calibration_nodes_for
from .summary import RATES, diagnosis_in_words

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
    names = ", ".join(" ".join(name.split()) for name in summary["classes"][:20])
    names += " ..." if len(summary["classes"]) > 20 else ""
    lines = [
        "",
        f"# Node classifier ({summary['method']})",
        "",
        _what(model, names),
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
        count, part = summary["judged"], summary["judged_on"]
        among = f"{count:,} of {parts[part]:,}" if count < parts[part] else f"{count:,}"
        lines += [
            f"On {among} {part} nodes, which took no part in training: accuracy "
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
    remarks = [*summary.get("notes", ()), *(f"Warning: {message}" for message in summary["warnings"])]
    lines += [f"- {remark}" for remark in remarks]
    if remarks:
        lines.append("")
    lines += [
        "## What it promises",
        "",
        _promise(parts["calibration"]),
        "",
        "## How to use it",
        "",
        "```",
        "credalgnn predict . --nodes new.csv --edges new_edges.csv --context nodes.csv edges.csv --out predictions.csv",
        "```",
        "",
        "```python",
        "import credalgnn as cg",
        "",
        'model = cg.load_model(".")',
        'result = model.predict("new.csv", "new_edges.csv", context=("nodes.csv", "edges.csv"))',
        "result.flag_unfamiliar(false_alarms=0.05)",
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


def _what(model: Model, names: str) -> str:
    """What it does, in a sentence."""
    if model.summary["method"] and not model.summary["metrics"]:
        return "Scores nodes by how strange they are; it predicts no classes."
    said = "its probability of every class"
    if model.method.is_credal:
        said = "a lower and an upper probability of every class"
    return (
        f"Tells {len(model.summary['classes'])} classes of nodes apart ({names}), and says of each node how far it is "
        f"to be trusted: {said}, and whether the node looks like anything that was labelled."
    )


def _promise(count: int) -> str:
    """What is promised with so many calibration nodes."""
    least = f"{100 / (count + 1):.2g} %"
    lines = f"{count:,} calibration nodes took no part in training, early stopping, temperature or tuning. "
    if count < calibration_nodes_for(false_alarms=RATES[-1]):
        return lines + (
            f"They are too few for a promise: no rate of false alarms below {least} can be kept with them. Label more "
            "nodes and fit again."
        )
    return lines + (
        "A node that is exchangeable with them (of a known class, and come to the graph in the same way) is flagged as "
        "a stranger with at most the chosen probability, and has its true class among those in question with at least "
        f"the chosen probability. Rates of false alarms from {least} up can be chosen. Nothing is promised of nodes "
        "that come otherwise; `credalgnn watch` notices when they do."
    )
