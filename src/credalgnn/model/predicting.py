"""``predict`` from tables to a file, with what a person should know about it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..methods import MethodError
from ..methods.prediction_table import write_table
from .model import Model
from .stages import Stages


def predict_to(
    model: Model,
    out: Path,
    data: Any,
    edges: Any = None,
    context: Any = None,
    ids: Sequence[Any] | None = None,
    false_alarms: float | None = None,
    coverage: float | None = None,
    progress: bool = True,
) -> str:
    """Predict nodes and write the table; returns what was found, in words.

    Args:
        model: The model.
        out: A .csv or .parquet file.
        data: See ``Model.predict``.
        edges: See ``Model.predict``.
        context: See ``Model.predict``.
        ids: Only these nodes; texts, which are numbers where the ids of the graph are.
        false_alarms: The rate at which nodes are flagged; None: see ``Model.rates``.
        coverage: Of the classes that stay in question; None: see ``Model.rates``.
        progress: Show how far it is, on stderr.
    """
    stages = Stages(silent=not progress)
    with stages("read") as said:
        loaded = model.read(data, edges, context)
        said.append(f"{len(loaded.nodes):,} nodes")
        if len(loaded.nodes) < loaded.graph.num_nodes:
            said.append(f"and {loaded.graph.num_nodes - len(loaded.nodes):,} of the context")
        said.append(f"with {loaded.graph.num_edges:,} edges")
    if ids is not None and loaded.graph.node_ids is not None and loaded.graph.node_ids.dtype.kind == "i":
        ids = [_number(str(text)) for text in ids]
    with stages("predict"):
        prediction = model.method.predict(loaded.graph, None if ids is not None else loaded.nodes, ids=ids)
        false_alarms, coverage = model.rates(prediction, false_alarms, coverage)
        table = prediction.to_table(false_alarms, coverage)
    with stages("write"):
        write_table(table, out)
    seen = model.seen(loaded.graph)[prediction.nodes].numpy()
    learnt = f", {seen.sum():,} of which the model was fitted with" if seen.any() else ""
    lines = [f"{table.num_rows:,} nodes predicted{learnt}: {out}"]
    calibration = prediction.calibration
    assert calibration is not None
    if false_alarms is None:
        lines.append(
            f"No node is flagged as a stranger: a rate of false alarms of 5 % needs 19 calibration nodes, and there "
            f"are {len(calibration.scores)}.\nThe column p_value says how strange nodes are (small: stranger)."
        )
    elif not seen.all():
        flagged = np.asarray(table["stranger"])[~seen]
        others = "of the others" if seen.any() else "of them"
        lines.append(
            f"{flagged.sum():,} {others} ({100 * flagged.mean():.1f} %) look like nothing that was labelled: strangers."
            f"\nIf all were of known classes, it would be at most {100 * false_alarms:g} % on average."
        )
        if not calibration.alike:
            lines.append(
                "That is promised for nodes as they were in the fitted graph; its calibration nodes are not in this "
                "one.\nTo bring them in, give the tables of fit: --context nodes.csv edges.csv"
            )
    return "\n".join(lines)


def _number(text: str) -> int:
    """An id of a graph whose ids are whole numbers."""
    if not re.fullmatch(r"-?[0-9]{1,18}", text):
        raise MethodError(f"there is no node {text}: the ids of this graph are whole numbers")
    return int(text)
