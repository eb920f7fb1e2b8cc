"""What a fitted model is worth, in plain numbers, and on one screen of text."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ..graphs import Graph
from ..methods import Method, Prediction
from ..methods.calibration import calibration_nodes_for
from ..metrics import METRICS
from ..metrics.registry import ClassifiedNodes

RATES = (0.01, 0.05, 0.1, 0.2)
COVERAGES = (0.8, 0.9, 0.95)
JUDGED = ("accuracy", "ece", "nll")
LOOKED_AT = 100_000  # of a graph that does not fit in memory, nodes of a kind that tell what a model is worth
WIDTH = 96  # columns of text


def summarise(method: Method, graph: Graph, parts: Mapping[str, Tensor], prediction: Prediction) -> dict[str, Any]:
    """All that is told of a fitted model, as plain values.

    Args:
        method: The fitted method.
        graph: The graph it was fitted on, with all labels.
        parts: The parts of its nodes.
        prediction: For all its nodes, or for some of a large graph, in ascending order: random shares of those that it
            is judged on, and of the unlabelled ones.
    """
    part = judged_part(parts)
    held = (
        torch.isin(prediction.nodes, parts[part]).nonzero().squeeze(-1)
    )  # rows of the prediction, as all that follows
    labels = graph.labels[prediction.nodes]
    unlabelled = (labels < 0).nonzero().squeeze(-1)
    count = len(parts["calibration"])
    summary: dict[str, Any] = {
        "method": method.name,
        "nodes": graph.num_nodes,
        "edges": graph.num_edges,
        "features": graph.num_features,
        "classes": list(method.class_names),
        "labelled": int((graph.labels >= 0).sum()),
        "unlabelled": int((graph.labels < 0).sum()),
        "parts": {name: len(nodes) for name, nodes in parts.items()},
        "judged_on": part,
        "judged": len(held),
        "metrics": {},
        "sets": [],
        "diagnosis": None if method.diagnosis is None else dict(method.diagnosis),
        "warnings": [],
        "notes": list(method.notes),
    }
    if prediction.probabilities is not None:
        nodes = ClassifiedNodes(prediction.probabilities[held].double(), labels[held])
        summary["metrics"] = {key: METRICS[key].compute(nodes) for key in JUDGED}
        for coverage in COVERAGES:
            if count >= calibration_nodes_for(coverage=coverage):
                kept = prediction.sets(coverage)
                hit = kept[held].gather(1, labels[held][:, None])
                summary["sets"].append(
                    {
                        "coverage": coverage,
                        "size": kept[held].sum(-1).double().mean().item(),
                        "covered": hit.double().mean().item(),
                        "size_unlabelled": kept[unlabelled].sum(-1).double().mean().item() if len(unlabelled) else None,
                    }
                )
    summary["alarms"] = alarms_of(prediction, unlabelled)
    return summary


def judged_part(parts: Mapping[str, Tensor]) -> str:
    """The name of the part that a model is judged on.

    Args:
        parts: The parts of the nodes of its graph.
    """
    return "test" if len(parts.get("test", ())) else "calibration"


def drawn(nodes: Tensor, room: int, seed: int = 0) -> Tensor:
    """Some of the nodes, ``LOOKED_AT`` at the most, drawn by chance, in their order; all if they are no more.

    Args:
        nodes: The nodes.
        room: For the answers of how many there is room; of one there always is.
        seed: Of chance.
    """
    count = max(1, min(LOOKED_AT, room))
    if len(nodes) <= count:
        return nodes
    order = torch.randperm(len(nodes), generator=torch.Generator().manual_seed(seed))
    return nodes[order[:count].sort().values]


def alarms_of(prediction: Prediction, rows: Tensor) -> list[dict[str, float]]:
    """How many nodes are flagged at each rate of false alarms that can be promised.

    Args:
        prediction: The prediction.
        rows: Those of its rows that count.
    """
    if prediction.calibration is None or not len(rows):
        return []
    count = len(prediction.calibration.scores)
    rates = [rate for rate in RATES if count >= calibration_nodes_for(false_alarms=rate)]
    flagged = [int(prediction.flag_unfamiliar(rate)[rows].sum()) for rate in rates]
    return [
        {"false_alarms": rate, "flagged": number, "of": len(rows), "expected": rate * len(rows)}
        for rate, number in zip(rates, flagged, strict=True)
    ]


def in_words(summary: Mapping[str, Any]) -> str:
    """One screen of text.

    Args:
        summary: What ``summarise`` gave.
    """
    parts = summary["parts"]
    size = f"{summary['nodes']:,} nodes, {summary['edges']:,} edges, {summary['features']:,} features"
    metrics, held, part = summary["metrics"], summary["judged"], summary["judged_on"]
    learnt = f"has learnt {len(summary['classes'])} classes from {parts['train']:,} labelled nodes"
    lines = [f"{summary['method']} {learnt if metrics else 'scores nodes and predicts no classes'} ({size}).", ""]
    if metrics:
        error = 100.0 * math.sqrt(metrics["accuracy"] * (1.0 - metrics["accuracy"]) / held)
        among = f"{held:,} of {parts[part]:,}" if held < parts[part] else f"{held:,}"
        lines += [
            f"On {among} labelled nodes that took no part in training ({part}):",
            f"  right class            {100 * metrics['accuracy']:5.1f} %  (standard error {error:.1f})",
            f"  calibration error      {100 * metrics['ece']:5.1f} %  (by how much probabilities are off)",
        ]
        for row in summary["sets"]:
            lines.append(
                f"  classes in question    {row['size']:5.2f}    a node, to have the true one among them in at least "
                f"{100 * row['coverage']:.0f} %"
            )
        lines.append("")
    lines += _alarms(summary)
    if text := diagnosis_in_words(summary["diagnosis"]):
        lines += [text, ""]
    lines += summary.get("notes", ())  # models of earlier versions have none
    lines += [f"! {message}" for message in summary["warnings"]]
    wrapped = [textwrap.wrap(line, WIDTH, subsequent_indent="  " if line.startswith("!") else "") for line in lines]
    return "\n".join("\n".join(chunks) for chunks in wrapped).rstrip()


def _alarms(summary: Mapping[str, Any]) -> list[str]:
    count = summary["parts"]["calibration"]
    if count < calibration_nodes_for(false_alarms=RATES[-1]):
        least = math.ceil(1000.0 / (count + 1)) / 10
        return [
            f"{count} calibration nodes are too few to promise anything useful: no rate of false alarms below "
            f"{least:g} %. A rate of 5 % needs {calibration_nodes_for(false_alarms=0.05)}: label more nodes.",
            "",
        ]
    if not summary["unlabelled"]:
        return ["Every node of this graph is labelled: there is none yet that could be a stranger.", ""]
    among = f"the {summary['unlabelled']:,}"
    if (looked_at := summary["alarms"][0]["of"]) < summary["unlabelled"]:
        among = f"{looked_at:,} of {among}"
    lines = [
        f"Strangers among {among} nodes without a label:",
        "  false alarms allowed    flagged            flagged if all were of known classes",
    ]
    for row in summary["alarms"]:
        share = f"({100 * row['flagged'] / row['of']:.1f} %)"
        lines.append(
            f"  {100 * row['false_alarms']:>8g} %        {row['flagged']:>11,d}  {share:9s}  "
            f"at most {row['expected']:,.0f} on average"
        )
    return [*lines, "Clearly more flags than that are nodes that look like nothing that was labelled.", ""]


def diagnosis_in_words(diagnosis: Mapping[str, float] | None) -> str:
    """What the diagnosis of a method says, in a sentence or two; nothing where there is none.

    Args:
        diagnosis: ``Method.diagnosis``.
    """
    if not diagnosis or "trust" not in diagnosis:
        return ""
    if diagnosis["trust"] == 0.0:
        return (
            "Labelled nodes cannot be told from the others by how they look: either labels are spread evenly, or there "
            "are too few. What is strange is then judged by the classifier's doubt and by the features."
        )
    return (
        "Labelled nodes look different from the others: a model that was not told which are labelled guesses it with "
        f"AUROC {diagnosis['auroc']:.2f} (0.5 is chance). Labels hardly reach about "
        f"{100 * diagnosis['uncovered']:.0f} % of the unlabelled nodes."
    )
