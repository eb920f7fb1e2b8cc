"""The page of a graph that a model has predicted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..graphs import Graph
from ..methods import MethodError, Prediction
from ..methods.calibration import calibration_nodes_for
from ..methods.large import fits
from ..report.graph import GraphPage, write_graph_page
from ..runtime.files import check_writable
from ..runtime.progress import Stages
from .model import PAGE, Model
from .summary import alarms_of


def report(model: Model, out: Path, data: Any, edges: Any = None, context: Any = None) -> Path:
    """Predict a graph and write its page, ``report.html``; returns its path.

    Args:
        model: The model.
        out: The folder.
        data: See ``Model.predict``.
        edges: See ``Model.predict``.
        context: See ``Model.predict``; its nodes are in the page, too.
    """
    if not model.summary["metrics"]:
        raise MethodError(
            f"{model.method.name} predicts no classes, and a page shows these: credalgnn predict has the rest"
        )
    check_writable(out / PAGE)
    stages = Stages()
    with stages("read"):
        loaded = model.read(data, edges, context)
    if not fits(loaded.graph, len(model.method.class_names), None):
        raise MethodError(
            f"the page shows a graph of {loaded.graph.num_nodes:,} nodes as a whole, and this one does not fit in "
            "memory: credalgnn predict --out predictions.parquet has all nodes"
        )
    with stages("predict"):
        prediction = model.method.predict(loaded.graph)
    parts = {name: known.numbers_in(loaded.graph) for name, known in model.parts.items()}
    parts = {name: nodes[nodes >= 0] for name, nodes in parts.items()}
    with stages("write"):
        write_page_of(model, loaded.graph, prediction, out / PAGE, parts, title=title_of(out, loaded.graph))
    return out / PAGE


def title_of(folder: Path, graph: Graph) -> str:
    """What the page of a graph is called.

    Args:
        folder: Where it goes.
        graph: The graph.
    """
    return f"{folder.resolve().name}: a graph of {graph.num_nodes:,} nodes"


def write_page_of(
    model: Model,
    graph: Graph,
    prediction: Prediction,
    path: Path,
    parts: Mapping[str, Tensor],
    *,
    title: str,
    false_alarms: float = 0.05,
) -> None:
    """Write the page of a graph that a model has predicted.

    Args:
        model: The model.
        graph: The graph, with the labels that are known.
        prediction: For all its nodes.
        path: Where to.
        parts: Which nodes the model has learnt from and calibrates with.
        title: Of the page.
        false_alarms: The rate at which nodes are flagged.
    """
    calibration = prediction.calibration
    if calibration is not None and len(calibration.scores) < calibration_nodes_for(false_alarms=false_alarms):
        prediction = replace(prediction, calibration=None)
    summary, method = model.summary, model.method
    unlabelled = (graph.labels < 0).nonzero().squeeze(-1)
    some = method.nearest_labelled(torch.zeros(1, dtype=torch.int64), graph)
    page = GraphPage(
        title=title,
        graph=graph,
        table=prediction.to_table(false_alarms),
        class_names=model.class_names,
        parts=parts,
        nearest=None if some is None else partial(_nearest, model, graph),
        summary={
            "method": summary["method"],
            "judged": summary["judged"],
            **summary["metrics"],
            "set_sizes": {row["coverage"]: row["size"] for row in summary["sets"]},
            "false_alarms": false_alarms,
            "calibration": summary["parts"]["calibration"],
            "diagnosis": summary["diagnosis"] or {},
            "warnings": summary["warnings"],
        },
        alarms=alarms_of(prediction, unlabelled),
    )
    write_graph_page(page, path)


def _nearest(model: Model, graph: Graph, nodes: Tensor) -> Tensor:
    result = model.method.nearest_labelled(nodes, graph)
    assert result is not None
    return result
