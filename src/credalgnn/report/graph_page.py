"""A person's own graph as one HTML file: what was predicted, who looks like a stranger, and every node's reasons.

Python picks and counts what the page needs; the scripts in ``web`` show it (``graph*.js``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..graphs import Graph
from ..runtime.files import write
from .document import distinct_numbers, document, numbers
from .graph_nodes import DIGITS, Nearest, Neighbours, Numbers, Predictions

if TYPE_CHECKING:
    from pyarrow import Table

SCRIPTS = ("common.js", "charts.js", "graph.js", "graph_figures.js", "graph_nodes.js", "graph_panel.js",
           "graph_start.js")  # fmt: skip
BARS = 20  # of the histogram of p-values
QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)


@dataclass(frozen=True, eq=False)
class GraphPage:
    """What the page of a graph is made of.

    Args:
        title: The title of the page: the model's folder or the graph's name.
        graph: The graph; labels are those that were given, also of classes the model does not know.
        table: Predictions of all nodes in order, as ``Prediction.to_table`` makes them.
        class_names: The known classes, in the order of the table's columns.
        parts: Node numbers of ``train``, ``val``, ``calibration`` and perhaps ``test``; none of them need be there.
        nearest: Finds the training nodes nearest to some nodes: numbers ``[n]`` to numbers ``[n, 5]``. None: nothing is
            said of them.
        summary: What is said of the model as a whole; what is not there is not shown. ``method`` (its name),
            ``accuracy`` and ``judged`` (on how many nodes that took no part in training), ``ece`` (expected
            calibration error), ``set_sizes`` (mean number of classes in a prediction set by coverage, ``{0.9: 1.2}``),
            ``false_alarms`` (the rate at which nodes were flagged), ``calibration`` (how many nodes), ``diagnosis``
            (numbers by name, see ``CredalCoverage.diagnosis``), ``warnings`` (sentences), ``predictions`` (the name of
            the file with the whole table).
        alarms: The table of false-alarm rates: ``false_alarms`` (a rate), ``flagged`` (nodes at this rate), ``of`` (so
            many nodes), ``expected`` (flagged if all were of known classes).
    """

    title: str
    graph: Graph
    table: Table
    class_names: tuple[str, ...]
    parts: Mapping[str, Tensor]
    nearest: Nearest | None
    summary: Mapping[str, Any]
    alarms: Sequence[Mapping[str, float]]


def write_graph_page(page: GraphPage, path: Path, most: int = 3000) -> None:
    """Write the page of a graph, whole or not at all.

    Args:
        page: What it shows.
        path: Where to; a file that is there is replaced.
        most: How many nodes go into the page; the figures are of all.
    """
    if page.table.num_rows != page.graph.num_nodes:
        raise ValueError(
            f"the table has {page.table.num_rows} rows and the graph {page.graph.num_nodes} nodes: predict all nodes"
        )
    if most < 10:
        raise ValueError(f"most={most}: a page holds at least 10 nodes")
    found, beside = Predictions(page.table, page.class_names, page.parts), Neighbours(page.graph)
    names = (*page.class_names, *(name for name in page.graph.class_names if name not in page.class_names))
    chosen = found.choose(page.nearest, most)
    place = {int(node): i for i, node in enumerate(chosen)}
    data = {
        "title": page.title,
        "classes": list(page.class_names),
        "names": list(names),
        "credal": found.credal,
        "calibrated": found.calibrated,
        "total": page.graph.num_nodes,
        "new": {"total": int(found.new.sum()), "flagged": int((found.new & found.flagged).sum())},
        "flagged": int(found.flagged.sum()),
        "doubtful": int(found.doubtful.sum()),
        "facts": _plain(asdict(page.graph.describe())),
        "parts": {name: len(nodes) for name, nodes in page.parts.items()},
        "predicted": np.bincount(found.classes[found.new], minlength=len(page.class_names)).tolist(),
        "strange": np.bincount(found.classes[found.new & found.flagged], minlength=len(page.class_names)).tolist(),
        "summary": _plain(page.summary),
        "alarms": [_plain(row) for row in page.alarms],
        "figures": _figures(found, beside),
        "typical": {kind: place[node] for kind, node in found.typical().items() if node in place},
        "nodes": _nodes(page, found, beside, chosen, names),
    }
    write(Path(path), document(page.title, data, "graph.html", SCRIPTS, ("page.css", "graph.css")))


def _plain(value: Any) -> Any:
    """A value as JSON has it: keys are text, and None stands for numbers that are none."""
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else None
    return value.item() if isinstance(value, np.generic | Tensor) else value


def _nodes(
    page: GraphPage, found: Predictions, beside: Neighbours, chosen: Numbers, names: Sequence[str]
) -> dict[str, Any]:
    """The chosen nodes, and behind them those that are only mentioned: their neighbours and nearest labelled nodes."""
    held = np.zeros(page.graph.num_nodes, dtype=bool)
    held[chosen] = True
    neighbours = [beside.of(int(node), held) for node in chosen]
    close = page.nearest(torch.from_numpy(chosen)).tolist() if page.nearest is not None else []
    mentioned = {node for row in (*neighbours, *close) for node in row if not held[node]}
    every = np.concatenate([chosen, np.array(sorted(mentioned), dtype=np.int64)])
    place = {int(node): i for i, node in enumerate(every)}
    part = np.full(page.graph.num_nodes, -1)
    for k, numbers_of in enumerate(page.parts.values()):
        part[np.asarray(numbers_of, dtype=np.int64)] = k
    known = np.array([names.index(name) for name in page.graph.class_names] + [-1])  # the last serves label -1
    return {
        "held": len(chosen),
        "numeric": found.numeric,
        "id": found.ids(every),
        "class": found.classes[every].tolist(),
        "label": known[page.graph.labels.numpy()[every]].tolist(),
        "measure": numbers(found.measure[every], DIGITS),
        **found.columns(chosen),
        "part": part[chosen].tolist(),
        "degree": beside.degree[chosen].tolist(),
        "neighbours": [[place[node] for node in row] for row in neighbours],
        "nearest": [[place[node] for node in row] for row in close] if page.nearest is not None else None,
    }


def _figures(found: Predictions, beside: Neighbours) -> dict[str, Any]:
    """Medians and spreads of all nodes by degree and by coverage, and p-values of the nodes it has not learnt from."""
    values = {"measure": found.measure} | ({"EU": found.scores["EU"]} if "EU" in found.scores else {})
    doubled = np.where(beside.degree > 0, np.floor(np.log2(np.maximum(beside.degree, 1))) + 1, 0).astype(np.int64)
    result: dict[str, Any] = {"degree": _bins(beside.degree, doubled, values)}
    if "coverage" in found.scores:
        coverage = found.scores["coverage"]
        result["coverage"] = _bins(coverage, np.clip((coverage * 10).astype(np.int64), 0, 9), values)
    if found.p_value is not None:
        # Right-closed bars: who is flagged at 5 % has p <= 0.05.
        bar = np.clip(np.ceil(found.p_value * BARS - 1e-9).astype(np.int64) - 1, 0, BARS - 1)
        sides = {"flagged": found.new & found.flagged, "others": found.new & ~found.flagged}
        result["p_values"] = {kind: np.bincount(bar[mask], minlength=BARS).tolist() for kind, mask in sides.items()}
    return result


def _bins(x: NDArray[Any], group: NDArray[np.int64], values: Mapping[str, NDArray[np.float64]]) -> list[dict[str, Any]]:
    """For each group its size, the median of x, and quantiles of the values."""
    order = np.argsort(group, kind="stable")
    _, starts = np.unique(group[order], return_index=True)
    result = []
    for nodes in np.split(order, starts[1:]):
        spread = {name: numbers(np.quantile(one[nodes], QUANTILES)) for name, one in values.items()}
        at = distinct_numbers([float(np.median(x[nodes])), float(x[nodes].min()), float(x[nodes].max())])
        result.append({"nodes": len(nodes), "x": at[0], "from": at[1], "to": at[2], **spread})
    return result
