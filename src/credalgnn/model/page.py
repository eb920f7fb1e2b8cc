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
