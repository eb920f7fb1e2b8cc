"""``predict`` from tables to a file, with what a person should know about it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm

from ..methods import MethodError, Prediction
from ..methods.base import room_for
from ..methods.large import budget_of
from ..methods.prediction_table import share_explained, table_of, write_tables
from ..report.graph import class_sign
from ..runtime.progress import Stages
from .model import NOT_TOLD, Model

_REMEDY_OF_TABLES = "To bring them in, give the tables of fit: --context nodes.csv edges.csv"
_REMEDY = "To bring them in, give a graph that has the nodes of the fitted one, too, in both with ids."
MANY = 200_000  # nodes: more than these, or than memory has room for, are predicted and written in chunks


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
        memory: How much memory may be used; None: what is available.
        workers: Let so many tasks of a Ray cluster help; None: this process alone.
        address: ``HOST:PORT`` of the cluster; None: that of ``RAY_ADDRESS``, or the one that Ray finds.
        progress: Show how far it is, on stderr.
    """
    stages = Stages(progress)
    with stages("read") as said:
        loaded = model.read(data, edges, context)
        said.append(f"{len(loaded.nodes):,} nodes")
        if len(loaded.nodes) < loaded.graph.num_nodes:
            said.append(f"and {loaded.graph.num_nodes - len(loaded.nodes):,} of the context")
        said.append(f"with {loaded.graph.num_edges:,} edges")
    if ids is not None and loaded.graph.node_ids is not None and loaded.graph.node_ids.dtype.kind == "i":
        ids = [_number(str(text)) for text in ids]
    count = len(loaded.nodes) if ids is None else len(ids)
    many = min(MANY, room_for(model.method, budget_of(memory)))
    with stages("predict"):
        nodes = None if ids is not None else loaded.nodes
        asked: dict[str, Any] = {"graph": loaded.graph, "nodes": nodes, "ids": ids, "memory": memory}
        if count > many or workers is not None:
            chunks = model.method.predict_chunks(**asked, workers=workers, address=address)
        else:
            chunks = iter([model.method.predict(**asked)])
        first = next(chunks)
        false_alarms, coverage = model.rates(first, false_alarms, coverage)
        calibration = first.calibration
        tables: Iterator[Any] = _tables(chain([first], chunks), model.seen(loaded.graph), false_alarms, coverage, count)
        del first
        if count <= many:
            tables = iter(list(tables))
    tally = _Tally()
    with stages("write" if count <= many else "predict, write"):
        bar = tqdm(
            total=count, desc="predict", unit="node", unit_scale=True, delay=3, leave=False, disable=not progress
        )
        with bar:
            write_tables((tally.counted(table, seen, bar) for table, seen in tables), out)
    learnt = f", {tally.seen:,} of which the model was fitted with" if tally.seen else ""
    lines = [f"{tally.rows:,} nodes predicted{learnt}: {out}"]
    assert calibration is not None
    if false_alarms is None:
        lines.append(
            f"No node is flagged as unfamiliar: a rate of false alarms of 5 % needs 19 calibration nodes, and there "
            f"are {len(calibration.scores)}.\nThe column p_value ranks nodes: small values are unfamiliar."
        )
    elif tally.seen < tally.rows:
        new = tally.rows - tally.seen
        others = f"the {new:,} others" if tally.seen else f"{new:,} nodes"
        sign = class_sign(tally.flagged, false_alarms * new, new)
        lines.append(
            f"{tally.flagged:,} of {others} ({100 * tally.flagged / new:.1f} %) are flagged as unfamiliar; at most "
            f"{100 * false_alarms:g} % false alarms\nare expected: {sign}."
        )
        if not calibration.alike:
            lines.append(
                "That is promised for nodes as they were in the fitted graph; its calibration nodes are not in this "
                f"one.\n{_REMEDY if model.reader is None else _REMEDY_OF_TABLES}"
            )
    if not model.can_tell(loaded.graph):
        lines.append(f"This is not the graph that the model was fitted with. {NOT_TOLD}")
    lines += model.method.notes
    return "\n".join(lines)


def _tables(
    chunks: Iterable[Prediction], known: Tensor, false_alarms: float | None, coverage: float | None, total: int
) -> Iterator[tuple[Any, NDArray[Any]]]:
    """Of each chunk the table, and which of its nodes the model was fitted with."""
    for chunk in chunks:
        table = table_of(chunk, false_alarms, coverage, reasons=True, explained=share_explained(chunk, total))
        yield table, known[chunk.nodes].numpy()


@dataclass
class _Tally:
    """What the summary says of the rows that have been written."""

    rows: int = 0
    seen: int = 0
    flagged: int = 0  # of those that the model was not fitted with

    def counted(self, table: Any, seen: NDArray[Any], bar: Any) -> Any:
        self.rows += len(seen)
        self.seen += int(seen.sum())
        if "unfamiliar" in table.column_names:
            self.flagged += int(np.asarray(table["unfamiliar"])[~seen].sum())
        bar.update(len(seen))
        return table


def _number(text: str) -> int:
    """An id of a graph whose ids are whole numbers."""
    if not re.fullmatch(r"-?[0-9]{1,19}", text) or not -(2**63) <= int(text) < 2**63:
        raise MethodError(f"there is no node {text}: the ids of this graph are whole numbers")
    return int(text)
