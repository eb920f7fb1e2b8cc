"""``predict`` from tables to a file, with what a person should know about it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

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
    false_alarms: float = 0.05,
    coverage: float = 0.9,
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
        false_alarms: The rate at which nodes are flagged.
        coverage: Of the classes that stay in question.
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
        ids = [int(text) if str(text).lstrip("-").isdigit() else text for text in ids]
    with stages("predict"):
        prediction = model.method.predict(loaded.graph, None if ids is not None else loaded.nodes, ids=ids)
        table = prediction.to_table(false_alarms, coverage)
    with stages("write"):
        write_table(table, out)
    strangers = int(np.asarray(table["stranger"]).sum())
    lines = [
        f"{table.num_rows:,} nodes predicted: {out}",
        f"{strangers:,} of them ({100 * strangers / max(table.num_rows, 1):.1f} %) look like nothing that was labelled "
        f"(stranger); of nodes of known classes it would be at most {100 * false_alarms:g} % on average.",
    ]
    calibration = prediction.calibration
    if calibration is not None and not calibration.alike:
        lines.append(
            "That promise is for nodes as they were in the fitted graph: the calibration nodes are not in this one. "
            "--context with the tables of fit brings them in."
        )
    return "\n".join(lines)
