"""``predict`` to a file, and its summary."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from torch import Tensor

from ..methods import MethodError, Prediction
from ..methods.base import room_for
from ..methods.large import budget_of
from ..methods.prediction import write_chunks
from ..report.graph import class_sign
from ..runtime.files import check_writable
from ..runtime.progress import Progress, Stages
from .model import NOT_IDENTIFIED, Model

MANY = 200_000  # nodes; more, or more than memory has room for, are predicted and written in chunks


def predict_to(
    model: Model,
    out: Path,
    data: Any,
    edges: Any = None,
    context: Any = None,
    ids: Sequence[Any] | None = None,
    false_alarms: float | None = None,
    coverage: float | None = None,
    memory: str | int | None = None,
    workers: int | None = None,
    address: str | None = None,
    progress: bool | None = None,
) -> str:
    """Predict nodes, write the table to a .csv or .parquet file, and return a summary for people.

    ``ids`` may be texts of numbers if the ids of the graph are numbers; see ``Model.predict_chunks`` and
    ``Model.promises`` for the other arguments.
    """
    check_writable(out)
    stages = Stages(progress)
    with stages("read") as details:
        loaded = model.read(data, edges, context)
        graph = loaded.graph
        details.append(f"{len(loaded.nodes):,} nodes")
        if len(loaded.nodes) < graph.num_nodes:
            details.append(f"and {graph.num_nodes - len(loaded.nodes):,} of the context")
        details.append(f"with {graph.num_edges:,} edges")
    if ids is not None and graph.node_ids is not None and graph.node_ids.dtype.kind == "i":
        ids = [_number(str(text)) for text in ids]
    count = len(loaded.nodes) if ids is None else len(ids)
    in_chunks = workers is not None or count > min(MANY, room_for(model.method, budget_of(memory)))
    selected: dict[str, Any] = {"graph": graph, "nodes": None if ids is not None else loaded.nodes, "ids": ids}
    with stages("predict"):
        if in_chunks:
            chunks = model.method.predict_chunks(**selected, memory=memory, workers=workers, address=address)
        else:
            chunks = iter([model.method.predict(**selected, memory=memory)])
        first = next(chunks)
        false_alarms, coverage = model.promises(first, false_alarms, coverage)
        tally = _Tally(model.fitted_mask(graph), false_alarms)
        chunks = tally.counted(chain([first], chunks), Progress(count, "predict", "nodes", progress))
        calibration = first.calibration
        del first
    with stages("predict, write" if in_chunks else "write"):
        write_chunks(chunks, out, false_alarms, coverage, total=count)
    assert calibration is not None
    lines = [tally.summary(out)]
    if false_alarms is None:
        lines.append(
            "No node is flagged as unfamiliar: a rate of false alarms of 5 % needs 19 calibration nodes, and there are "
            f"{len(calibration.scores)}.\nThe column p_value ranks nodes: small values are unfamiliar."
        )
    elif tally.seen < tally.rows and not calibration.alike:
        remedy = "give a graph that has the nodes of the fitted one, too, in both with ids"
        if model.reader is not None:
            remedy = "give the tables of fit: --context nodes.csv edges.csv"
        lines.append(
            "That is promised for nodes as they were in the fitted graph; its calibration nodes are not in this one.\n"
            f"To bring them in, {remedy}."
        )
    if not model.identifies_nodes(graph):
        lines.append(f"This is not the graph that the model was fitted with. {NOT_IDENTIFIED}")
    return "\n".join([*lines, *model.method.notes])


class _Tally:
    """Counts of the nodes written."""

    def __init__(self, fitted: Tensor, false_alarms: float | None) -> None:
        self.rows = self.seen = self.flagged = 0
        self._fitted, self._false_alarms = fitted, false_alarms

    def counted(self, chunks: Iterator[Prediction], progress: Progress) -> Iterator[Prediction]:
        """Yield chunks, and count them; flags of nodes that the model was fitted with say nothing and do not count."""
        with progress:
            for chunk in chunks:
                seen = self._fitted[chunk.nodes]
                self.rows += len(seen)
                self.seen += int(seen.sum())
                if self._false_alarms is not None:
                    self.flagged += int((chunk.flag_unfamiliar(self._false_alarms) & ~seen).sum())
                yield chunk
                progress.update(self.rows)

    def summary(self, out: Path) -> str:
        """Return how many nodes were predicted, and how many of them are flagged."""
        seen = f", {self.seen:,} of which the model was fitted with" if self.seen else ""
        text = f"{self.rows:,} nodes predicted{seen}: {out}"
        if self._false_alarms is None or self.seen == self.rows:
            return text
        new = self.rows - self.seen
        others = f"the {new:,} others" if self.seen else f"{new:,} nodes"
        return (
            f"{text}\n{self.flagged:,} of {others} ({100 * self.flagged / new:.1f} %) are flagged as unfamiliar; at "
            f"most {100 * self._false_alarms:g} % false alarms\nare expected: "
            f"{class_sign(self.flagged, self._false_alarms * new, new)}."
        )


def _number(text: str) -> int:
    """Return the id of a graph whose ids are whole numbers."""
    if not re.fullmatch(r"-?[0-9]{1,19}", text) or not -(2**63) <= int(text) < 2**63:
        raise MethodError(f"there is no node {text}: the ids of this graph are whole numbers")
    return int(text)
