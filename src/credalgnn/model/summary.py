"""Summary of a fitted model: plain values, one screen of text, the model card, and the page of a graph."""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..graphs import Columns, Graph
from ..methods import Method, MethodError, Prediction
from ..methods.calibration import calibration_nodes_for
from ..methods.large import fits
from ..metrics import METRICS
from ..metrics.registry import ClassifiedNodes
from ..runtime.files import check_writable
from ..runtime.progress import Stages

if TYPE_CHECKING:
    from ..report.table import Value
    from .model import Model

PAGE = "report.html"
RATES = (0.01, 0.05, 0.1, 0.2)
COVERAGES = (0.8, 0.9, 0.95)
JUDGED = ("accuracy", "ece", "nll")
SAMPLE = 100_000  # nodes of a kind that are judged, of a graph that does not fit in memory
WIDTH = 96  # columns of text
_TAGS = ("graph-neural-network", "node-classification", "uncertainty", "credal-sets", "conformal-prediction")
_USE = """```
credalgnn predict . --nodes new.csv --edges new_edges.csv --context nodes.csv edges.csv --out predictions.csv
```

```python
import credalgnn as cg

model = cg.load_model(".")
result = model.predict("new.csv", "new_edges.csv", context=("nodes.csv", "edges.csv"))
result.flag_unfamiliar(false_alarms=0.05)
```"""


def summarise(method: Method, graph: Graph, parts: Mapping[str, Tensor], prediction: Prediction) -> dict[str, Any]:
    """Summarise a fitted model as plain values.

    Args:
        method: The fitted method.
        graph: The graph it was fitted on, with all labels.
        parts: The parts of its nodes.
        prediction: Prediction of all nodes, or of some nodes of a large graph in ascending order: random samples of the
            judged and of the unlabelled ones.
    """
    part = judged_part(parts)
    held = torch.isin(prediction.nodes, parts[part]).nonzero().squeeze(-1)  # rows of the prediction
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
                sets = prediction.sets(coverage)
                hits, sizes = sets[held].gather(1, labels[held][:, None]), sets.sum(-1).double()
                summary["sets"].append(
                    {
                        "coverage": coverage,
                        "size": sizes[held].mean().item(),
                        "covered": hits.double().mean().item(),
                        "size_unlabelled": sizes[unlabelled].mean().item() if len(unlabelled) else None,
                    }
                )
    summary["alarms"] = alarms_of(prediction, unlabelled)
    return summary


def judged_part(parts: Mapping[str, Tensor]) -> str:
    """Name of the part that a model is judged on."""
    return "test" if len(parts.get("test", ())) else "calibration"


def sample_nodes(nodes: Tensor, room: int, seed: int = 0) -> Tensor:
    """A random sample of at most ``SAMPLE`` nodes in ascending order.

    Args:
        nodes: The nodes.
        room: Number of predictions that memory has room for; one is always sampled.
        seed: Seed of the sample.
    """
    count = max(1, min(SAMPLE, room))
    if len(nodes) <= count:
        return nodes
    order = torch.randperm(len(nodes), generator=torch.Generator().manual_seed(seed))
    return nodes[order[:count].sort().values]


def alarms_of(prediction: Prediction, rows: Tensor) -> list[dict[str, float]]:
    """Count flagged nodes at each rate of false alarms that can be promised.

    Args:
        prediction: The prediction.
        rows: Rows of the prediction that are counted.
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


# ---------------------------------------------------------------- text


def facts(rows: Sequence[Sequence[Value]]) -> str:
    """Aligned lines of names, numbers and remarks, for summary and evaluation.

    Args:
        rows: Name, number and remark of each line.
    """
    from ..report.table import Column, Table

    return Table([Column("", is_text=True), Column(""), Column("", is_text=True)], rows).terminal(indent=2)


def percent(value: float | None) -> str | None:
    """A share in per cent; None stays None."""
    return None if value is None else f"{100 * value:.1f} %"


def summary_text(summary: Mapping[str, Any]) -> str:
    """One screen of text.

    Args:
        summary: Plain values of ``summarise``.
    """
    parts, metrics, judged = summary["parts"], summary["metrics"], summary["judged"]
    size = f"{summary['nodes']:,} nodes, {summary['edges']:,} edges, {summary['features']:,} features"
    learnt = f"has learnt {len(summary['classes'])} classes from {parts['train']:,} labelled nodes"
    lines = [f"{summary['method']} {learnt if metrics else 'scores nodes and predicts no classes'} ({size}).", ""]
    if metrics:
        error = 100.0 * math.sqrt(metrics["accuracy"] * (1.0 - metrics["accuracy"]) / judged)
        rows = [
            ["accuracy", percent(metrics["accuracy"]), f"standard error {error:.1f}"],
            ["calibration error", percent(metrics["ece"]), "mean error of the probabilities"],
        ]
        rows += [
            ["classes in question", f"{row['size']:.2f}  ", f"per node, for sets with the true class of at least "
             f"{100 * row['coverage']:.0f} %"]
            for row in summary["sets"]
        ]  # fmt: skip
        lines += [f"On {_judged(summary)} nodes that took no part in training:", facts(rows), ""]
    lines += _alarm_lines(summary)
    if text := diagnosis_text(summary["diagnosis"]):
        lines += [text, ""]
    lines += _remarks(summary, "! ")
    wrapped = (
        line
        if line.startswith("  ")
        else "\n".join(textwrap.wrap(line, WIDTH, subsequent_indent="  " if line.startswith("!") else ""))
        for line in lines
    )
    return "\n".join(wrapped).rstrip()


def _judged(summary: Mapping[str, Any]) -> str:
    """Number and part of the judged nodes."""
    judged, whole = summary["judged"], summary["parts"][summary["judged_on"]]
    return f"{f'{judged:,} of {whole:,}' if judged < whole else f'{judged:,}'} {summary['judged_on']}"


def _remarks(summary: Mapping[str, Any], mark: str) -> list[str]:
    notes = summary.get("notes", ())  # missing in models of earlier versions
    return [*notes, *(f"{mark}{message}" for message in summary["warnings"])]


def _alarm_lines(summary: Mapping[str, Any]) -> list[str]:
    count = summary["parts"]["calibration"]
    if count < calibration_nodes_for(false_alarms=RATES[-1]):
        least = math.ceil(1000.0 / (count + 1)) / 10
        return [
            f"{count} calibration nodes are too few to promise anything useful: no rate of false alarms below "
            f"{least:g} %. A rate of 5 % needs {calibration_nodes_for(false_alarms=0.05)}: label more nodes.",
            "",
        ]
    if not summary["unlabelled"]:
        return ["All nodes of this graph are labelled, so there are none to flag as unfamiliar.", ""]
    from ..report.graph import class_sign
    from ..report.table import Table, columns

    total = summary["alarms"][0]["of"]
    among = f"{total:,} of the {summary['unlabelled']:,}" if total < summary["unlabelled"] else f"the {total:,}"
    heads = columns("", ["false alarms allowed", "flagged", "share", "expected if all were of known classes"])
    rows = [
        [f"{100 * row['false_alarms']:g} %", f"{row['flagged']:,}", percent(row["flagged"] / row["of"]),
         f"at most {row['expected']:,.0f}"]
        for row in summary["alarms"]
    ]  # fmt: skip
    main = next((row for row in summary["alarms"] if row["false_alarms"] == 0.05), summary["alarms"][-1])
    sign = class_sign(int(main["flagged"]), main["expected"], int(main["of"]))
    return [
        f"Unfamiliar nodes among {among} nodes without a label:",
        Table(heads, rows).terminal(indent=2),
        f"At {100 * main['false_alarms']:g} %: {sign}.",
        "",
    ]


def diagnosis_text(diagnosis: Mapping[str, float] | None) -> str:
    """Diagnosis of a method in a sentence or two; empty without one.

    Args:
        diagnosis: ``Method.diagnosis``.
    """
    if not diagnosis or "trust" not in diagnosis:
        return ""
    if diagnosis["trust"] == 0.0:
        return (
            "Labelled nodes cannot be distinguished from the others: either labels are spread evenly, or there are too "
            "few. Unfamiliar nodes are then found by the classifier's uncertainty and by the features."
        )
    return (
        "Labelled nodes differ from the others: a model that does not know which are labelled predicts it with AUROC "
        f"{diagnosis['auroc']:.2f} (0.5 is chance). About {100 * diagnosis['uncovered']:.0f} % of the unlabelled nodes "
        "are hardly reached by labels."
    )


# ---------------------------------------------------------------- model card


def card(summary: Mapping[str, Any], config: Mapping[str, Any], tables: Columns | None, is_credal: bool) -> str:
    """Model card in Markdown, with a header that model hubs read.

    Args:
        summary: Plain values of ``summarise``.
        config: Content of ``model.json``.
        tables: Columns of the tables that the model reads; None if it was fitted on a graph.
        is_credal: The method predicts credal sets.
    """
    metrics, parts = summary["metrics"], summary["parts"]
    counts = ", ".join(f"{name} {count:,}" for name, count in parts.items())
    data = (
        f"A graph of {summary['nodes']:,} nodes and {summary['edges']:,} edges with {summary['features']:,} features; "
        f"{summary['labelled']:,} nodes have a label. Parts: {counts}."
    )
    if tables is not None:
        data += (
            f"\nRead from two tables: nodes with the columns `{tables.id}` and `{tables.label}`, edges with "
            f"`{tables.source}` and `{tables.target}`; `model.json` has the encoding of columns as features."
        )
    quality = []
    if metrics:
        quality.append(
            f"On {_judged(summary)} nodes, which took no part in training: accuracy {percent(metrics['accuracy'])}, "
            f"calibration error {percent(metrics['ece'])}."
        )
    if summary["sets"]:
        rows = [[f"{100 * one['coverage']:g} %", percent(one["covered"]), one["size"]] for one in summary["sets"]]
        quality.append(_numbers(["coverage promised", "reached", "classes per node"], rows))
    if summary["alarms"]:
        rows = [
            [f"{100 * one['false_alarms']:g} %", f"{one['flagged']:,}", f"{one['of']:,}"] for one in summary["alarms"]
        ]
        quality.append(_numbers(["false alarms allowed", "unlabelled nodes flagged", "of"], rows))
    quality.append(diagnosis_text(summary["diagnosis"]))
    quality.append("\n".join(f"- {remark}" for remark in _remarks(summary, "Warning: ")))
    header = [
        "---",
        "library_name: credalgnn",
        "tags:",
        *(f"- {tag}" for tag in _TAGS),
        "metrics:",
        "- accuracy",
        "---",
    ]
    versions = json.dumps({"made": config["made"], **config["versions"]}, indent=1)
    sections = {
        "Data": [data],
        "Quality": quality,
        "Guarantee": [_guarantee(parts["calibration"])],
        "Usage": [_USE],
        "Versions": [f"```json\n{versions}\n```"],
    }
    texts = ["\n".join(header), f"# Node classifier ({summary['method']})", _purpose(summary, is_credal)]
    for title, paragraphs in sections.items():
        texts += [f"## {title}", *filter(None, paragraphs)]
    return "\n\n".join(texts) + "\n"


def _numbers(heads: Sequence[str], rows: Sequence[Sequence[Value]]) -> str:
    from ..report.table import Table, columns

    return Table(columns("", heads, ".2f"), rows).markdown()


def _purpose(summary: Mapping[str, Any], is_credal: bool) -> str:
    if summary["method"] and not summary["metrics"]:
        return "Scores how unfamiliar nodes are; it predicts no classes."
    names = ", ".join(" ".join(name.split()) for name in summary["classes"][:20])
    names += " ..." if len(summary["classes"]) > 20 else ""
    bounds = "a lower and an upper probability" if is_credal else "the probability"
    return (
        f"Predicts {len(summary['classes'])} classes of nodes ({names}), with {bounds} of every class for each node, "
        "and flags nodes that are unlike all labelled ones."
    )


def _guarantee(count: int) -> str:
    """The guarantee with this number of calibration nodes."""
    least = f"{100 / (count + 1):.2g} %"
    text = f"{count:,} calibration nodes took no part in training, early stopping, temperature or tuning. "
    if count < calibration_nodes_for(false_alarms=RATES[-1]):
        return text + (
            f"They are too few for a guarantee: no rate of false alarms below {least} is possible. Label more nodes "
            "and fit again."
        )
    return text + (
        "A node that is exchangeable with them (of a known class, and added to the graph in the same way) is flagged "
        "as unfamiliar with at most the chosen probability, and has its true class in question with at least the "
        f"chosen probability. Rates of false alarms from {least} up are possible. For other nodes nothing is "
        "guaranteed; `credalgnn watch` detects such shifts."
    )


# ---------------------------------------------------------------- page of a graph


def report_graph(model: Model, out: Path, data: Any, edges: Any = None, context: Any = None) -> Path:
    """Predict a graph and write its page, ``report.html``.

    Args:
        model: The model.
        out: Folder to write to.
        data: See ``Model.predict``.
        edges: See ``Model.predict``.
        context: See ``Model.predict``; its nodes are in the page, too.

    Returns:
        The path of the page.
    """
    if not model.summary["metrics"]:
        raise MethodError(f"{model.method.name} predicts no classes, which a page shows: use credalgnn predict")
    check_writable(out / PAGE)
    stages = Stages()
    with stages("read"):
        loaded = model.read(data, edges, context)
    if not fits(loaded.graph, len(model.method.class_names), None):
        raise MethodError(
            f"a page shows a whole graph, and this one of {loaded.graph.num_nodes:,} nodes does not fit in memory: use "
            "credalgnn predict --out predictions.parquet"
        )
    with stages("predict"):
        prediction = model.method.predict(loaded.graph)
    numbers = {name: part.numbers_in(loaded.graph) for name, part in model.parts.items()}
    with stages("write"):
        parts = {name: nodes[nodes >= 0] for name, nodes in numbers.items()}
        write_page_of(model, loaded.graph, prediction, out, parts)
    return out / PAGE


def write_page_of(
    model: Model,
    graph: Graph,
    prediction: Prediction,
    folder: Path,
    parts: Mapping[str, Tensor],
    false_alarms: float = 0.05,
) -> None:
    """Write the page of a graph that a model has predicted.

    Args:
        model: The model.
        graph: The graph, with the known labels.
        prediction: Prediction of all nodes.
        folder: Folder to write to.
        parts: Nodes that the model has learnt from and calibrates with.
        false_alarms: Rate at which nodes are flagged.
    """
    calibration = prediction.calibration
    if calibration is not None and len(calibration.scores) < calibration_nodes_for(false_alarms=false_alarms):
        prediction = replace(prediction, calibration=None)
    summary, method = model.summary, model.method
    unlabelled = (graph.labels < 0).nonzero().squeeze(-1)
    has_nearest = method.nearest_labelled(torch.zeros(1, dtype=torch.int64), graph) is not None
    from ..report.graph import GraphPage, write_graph_page

    page = GraphPage(
        title=f"{folder.resolve().name}: a graph of {graph.num_nodes:,} nodes",
        graph=graph,
        table=prediction.to_table(false_alarms),
        class_names=model.class_names,
        parts=parts,
        nearest=partial(_nearest, model, graph) if has_nearest else None,
        summary={
            **{name: summary[name] for name in ("method", "judged", "warnings")},
            **summary["metrics"],
            "set_sizes": {row["coverage"]: row["size"] for row in summary["sets"]},
            "false_alarms": false_alarms,
            "calibration": summary["parts"]["calibration"],
            "diagnosis": summary["diagnosis"] or {},
        },
        alarms=alarms_of(prediction, unlabelled),
    )
    write_graph_page(page, folder / PAGE)


def _nearest(model: Model, graph: Graph, nodes: Tensor) -> Tensor:
    nearest = model.method.nearest_labelled(nodes, graph)
    assert nearest is not None
    return nearest
