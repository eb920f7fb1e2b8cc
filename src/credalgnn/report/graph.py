"""The page of a person's own graph: predictions, unfamiliar nodes, and the reasons for every node.

Python picks and counts what the page needs; ``web/graph*`` shows it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..graphs import Graph
from ..runtime.files import write
from .page import Page, distinct_numbers, example_nodes, numbers

if TYPE_CHECKING:
    from pyarrow import Table

SCRIPTS = ("common.js", "charts.js", "graph.js", "graph_figures.js", "graph_nodes.js", "graph_panel.js",
           "graph_start.js")  # fmt: skip
BARS = 20  # of the histogram of p-values
QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)
LEARNT = ("train", "val", "calibration")  # parts whose labels the model has used
NEIGHBOURS = 20  # listed for a node
DIGITS = 5  # of numbers in the page; the file of predictions has all
Nearest = Callable[[Tensor], Tensor]
Numbers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class GraphPage:
    """Content of the page of a graph.

    Args:
        title: Title of the page: the model's folder or the graph's name.
        graph: The graph, with all known labels, also of classes that the model does not know.
        table: Predictions of all nodes in order, from ``Prediction.to_table``.
        class_names: The known classes, in the order of the table's columns.
        parts: Node numbers of ``train``, ``val``, ``calibration`` and perhaps ``test``; all are optional.
        nearest: Finds the training nodes nearest to some nodes: numbers ``[n]`` to numbers ``[n, 5]``; None: they are
            not shown.
        summary: Facts about the model, all optional: ``method`` (its name), ``accuracy`` and ``judged`` (on how many
            nodes that took no part in training), ``ece`` (expected calibration error), ``set_sizes`` (mean number of
            classes in a prediction set by coverage, ``{0.9: 1.2}``), ``false_alarms`` (the rate at which nodes were
            flagged), ``calibration`` (number of nodes), ``diagnosis`` (numbers by name, see
            ``CredalCoverage.diagnosis``), ``warnings`` (sentences), ``predictions`` (the file with the whole table).
        alarms: Rows of the table of false-alarm rates: ``false_alarms`` (the rate), ``flagged`` (nodes at this rate),
            ``of`` (number of unlabelled nodes), ``expected`` (flags if all were of known classes).
    """

    title: str
    graph: Graph
    table: Table
    class_names: tuple[str, ...]
    parts: Mapping[str, Tensor]
    nearest: Nearest | None
    summary: Mapping[str, Any]
    alarms: Sequence[Mapping[str, float]]


def class_sign(flagged: int, expected: float, total: int) -> str:
    """Interpret a number of flagged nodes: nodes of unknown classes beyond the expected false alarms.

    Args:
        flagged: Number of flagged nodes.
        expected: Expected number of false alarms if all nodes were of known classes.
        total: Number of nodes.
    """
    if flagged > expected + 2 * math.sqrt(max(expected, 1.0)):
        return f"at least about {flagged - expected:,.0f} of the {total:,} are of unknown classes"
    return "no sign of unknown classes"


def write_graph_page(page: GraphPage, path: Path, most: int = 3000) -> None:
    """Write the page of a graph, whole or not at all.

    Args:
        page: The content.
        path: The file; replaced if it exists.
        most: Largest number of nodes in the page; the figures show all.
    """
    if page.table.num_rows != page.graph.num_nodes:
        raise ValueError(
            f"the table has {page.table.num_rows} rows and the graph {page.graph.num_nodes} nodes: predict all nodes"
        )
    if most < 10:
        raise ValueError(f"most={most}: a page holds at least 10 nodes")
    predictions, neighbours = _Predictions(page.table, page.class_names, page.parts), _Neighbours(page.graph)
    names = (*page.class_names, *(name for name in page.graph.class_names if name not in page.class_names))
    chosen = predictions.choose(page.nearest, most)
    place = {int(node): i for i, node in enumerate(chosen)}
    new, flagged = predictions.new, predictions.flagged
    data = {
        "title": page.title,
        "classes": list(page.class_names),
        "names": list(names),
        "credal": predictions.credal,
        "calibrated": predictions.p_value is not None,
        "total": page.graph.num_nodes,
        "new": _flags(page, int(new.sum()), int((new & flagged).sum())),
        "flagged": int(flagged.sum()),
        "doubtful": int(predictions.doubtful.sum()),
        "facts": _plain(asdict(page.graph.describe())),
        "parts": {name: len(nodes) for name, nodes in page.parts.items()},
        "predicted": np.bincount(predictions.classes[new], minlength=len(page.class_names)).tolist(),
        "unfamiliar": np.bincount(predictions.classes[new & flagged], minlength=len(page.class_names)).tolist(),
        "summary": _plain(page.summary),
        "alarms": [
            {**_plain(row), "sign": class_sign(int(row["flagged"]), row["expected"], int(row["of"]))}
            for row in page.alarms
        ],
        "figures": _figures(predictions, neighbours),
        "typical": {kind: place[node] for kind, node in predictions.typical().items() if node in place},
        "nodes": _nodes(page, predictions, neighbours, chosen, names),
    }
    write(Path(path), Page("graph", page.title, data, SCRIPTS, skip="nodes").render().encode())


def _flags(page: GraphPage, total: int, flagged: int) -> dict[str, Any]:
    """Flagged nodes among those not learnt from, and their interpretation at the page's rate of false alarms."""
    expected = page.summary.get("false_alarms", math.nan) * total
    sign = class_sign(flagged, expected, total) if math.isfinite(expected) else None
    return _plain({"total": total, "flagged": flagged, "expected": expected, "sign": sign})  # type: ignore[no-any-return]


class _Predictions:
    """Columns of a table of predictions; tables of millions of nodes are never turned into rows."""

    def __init__(self, table: Table, class_names: Sequence[str], parts: Mapping[str, Tensor]) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        names, classes = table.column_names, list(class_names)
        if names[1:3] != ["class", "probability"]:
            raise ValueError("the table has no column class: a page needs a method that classifies")
        bounds = [f"{side}_{name}" for side in ("lower", "upper") for name in classes]
        self.credal = names[3 : 3 + len(bounds)] == bounds
        if not self.credal and names[3 : 3 + len(classes)] != [f"p_{name}" for name in classes]:
            raise ValueError(
                f"the table has {', '.join(names[3:6]) or 'nothing'} where lower_{classes[0]} or p_{classes[0]} is "
                "expected: class_names must be those of the predictions, in the same order"
            )
        width = len(bounds) if self.credal else len(classes)
        self.numeric = pa.types.is_integer(table.schema.field(0).type)
        self.table, self.bounds = table, [table.column(k) for k in range(3, 3 + width)]
        self.rest = dict(zip(names[3 + width :], table.columns[3 + width :], strict=True))
        places = pc.index_in(table.column(1).cast(pa.string()), pa.array(classes, pa.string()))
        if places.null_count:
            raise ValueError("the column class of the table has a class that is not among class_names")
        count = table.num_rows
        self.classes: Numbers = places.to_numpy()
        self.probability = table.column(2).to_numpy()
        calibrated = "p_value" in self.rest and "unfamiliar" in self.rest
        texts = ("p_value", "unfamiliar", "classes", "reasons")
        self.scores = {name: column.to_numpy() for name, column in self.rest.items() if name not in texts}
        self.flagged = self.rest["unfamiliar"].to_numpy() if calibrated else np.zeros(count, dtype=bool)
        self.p_value = self.rest["p_value"].to_numpy() if calibrated else None
        self.doubtful = np.zeros(count, dtype=bool)  # more than one class in question
        if "classes" in self.rest:
            several = (one.cast(pa.string()) for one in (self.rest["classes"], table.column(1)))
            self.doubtful = pc.not_equal(*several).to_numpy() & ~self.flagged
        self.measure = self._widest() if self.credal else self.probability
        scores = [self.scores["EU"]] if "EU" in self.scores else list(self.scores.values())
        self.headline = scores[0] if scores else -self.probability
        self.new = np.ones(count, dtype=bool)  # nodes that the model has not learnt from; all, if it has from all
        for part in LEARNT:
            self.new[np.asarray(parts.get(part, ()), dtype=np.int64)] = False
        if not self.new.any():
            self.new[:] = True

    def _widest(self) -> NDArray[np.float64]:
        half = len(self.bounds) // 2
        widest = np.zeros(self.table.num_rows)
        for lower, upper in zip(self.bounds[:half], self.bounds[half:], strict=True):
            np.maximum(widest, upper.to_numpy() - lower.to_numpy(), out=widest)
        return widest

    def typical(self) -> dict[str, int]:
        """A flagged and a known node, each the median of its kind; without calibration those at 95 and 50 %."""
        if self.p_value is None:
            return example_nodes(self.headline, {"uncertain": self.new, "known": self.new}, {"uncertain": 95})
        groups = {"flagged": self.new & self.flagged, "known": self.new & ~self.flagged & ~self.doubtful}
        return example_nodes(self.headline, groups)

    def choose(self, nearest: Nearest | None, most: int) -> Numbers:
        """The nodes in the page, in order.

        All if there are at most ``most``. Otherwise flagged nodes with the smallest p-values up to half (without
        calibration the least certain up to a quarter), the labelled nodes nearest to these up to a quarter, and a
        random sample.
        """
        total = len(self.classes)
        if total <= most:
            return np.arange(total)
        if self.p_value is not None:
            order = np.argsort(self.p_value, kind="stable")
            first = order[self.flagged[order]][: most // 2]
        else:
            first = np.argsort(-self.headline, kind="stable")[: most // 4]
        close = nearest(torch.from_numpy(first)).reshape(-1).numpy() if nearest is not None and len(first) else first
        close = np.array(list(dict.fromkeys(close.tolist()))[: most // 4], dtype=np.int64)
        sample = np.random.default_rng(0).permutation(total)
        candidates = np.concatenate([np.array(list(self.typical().values()), dtype=np.int64), first, close, sample])
        _, at = np.unique(candidates, return_index=True)
        return np.sort(candidates[np.sort(at)[:most]])

    def columns(self, nodes: Numbers) -> dict[str, Any]:
        """Rounded predictions of some nodes."""
        stack = np.stack([bound.take(nodes).to_numpy() for bound in self.bounds], 1).astype(float)
        stack[np.abs(stack) < 1e-6] = 0.0
        rows = [numbers(row, DIGITS) for row in stack]
        half = len(self.bounds) // 2
        shown = {"lower": [r[:half] for r in rows], "upper": [r[half:] for r in rows]} if self.credal else {"p": rows}
        data: dict[str, Any] = {
            **shown,
            "probability": numbers(self.probability[nodes], DIGITS),
            "scores": {name: distinct_numbers(values[nodes], DIGITS) for name, values in self.scores.items()},
        }
        for name in ("classes", "reasons"):
            if name in self.rest:
                data[name] = [str(text or "") for text in self.rest[name].take(nodes).to_pylist()]
        if self.p_value is not None:
            data["p_value"] = distinct_numbers(self.p_value[nodes], DIGITS)
            data["unfamiliar"] = self.flagged[nodes].astype(int).tolist()
        return data

    def ids(self, nodes: Numbers) -> list[str]:
        """Ids of some nodes as text: whole numbers may be larger than JavaScript can hold."""
        import pyarrow as pa

        texts: list[str] = self.table.column(0).take(nodes).cast(pa.string()).to_pylist()
        return texts


class _Neighbours:
    """Neighbours of all nodes, along edges in either direction, each once and without the node itself."""

    def __init__(self, graph: Graph) -> None:
        source, target = graph.edge_index
        apart = source != target
        source, target, total = source[apart], target[apart], graph.num_nodes
        pairs = torch.unique(torch.cat([source * total + target, target * total + source]))
        self.other: Numbers = (pairs % total).numpy()
        self.degree: Numbers = torch.bincount(pairs // total, minlength=total).numpy()
        self.start = self.degree.cumsum() - self.degree

    def of(self, node: int, held: NDArray[np.bool_]) -> list[int]:
        """The listed neighbours of a node, those that are in the page (``held``) first."""
        other = self.other[self.start[node] : self.start[node] + self.degree[node]]
        return [int(one) for one in other[np.argsort(~held[other], kind="stable")][:NEIGHBOURS]]


def _plain(value: Any) -> Any:
    """A value as JSON has it: keys are text, and None stands for numbers that are not finite."""
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else None
    return value.item() if isinstance(value, np.generic | Tensor) else value


def _nodes(
    page: GraphPage, predictions: _Predictions, neighbours: _Neighbours, chosen: Numbers, names: Sequence[str]
) -> dict[str, Any]:
    """The chosen nodes, followed by those that are only mentioned as neighbours or nearest labelled nodes."""
    held = np.zeros(page.graph.num_nodes, dtype=bool)
    held[chosen] = True
    beside = [neighbours.of(int(node), held) for node in chosen]
    close = page.nearest(torch.from_numpy(chosen)).tolist() if page.nearest is not None else []
    mentioned = {node for row in (*beside, *close) for node in row if not held[node]}
    every = np.concatenate([chosen, np.array(sorted(mentioned), dtype=np.int64)])
    place = {int(node): i for i, node in enumerate(every)}
    part = np.full(page.graph.num_nodes, -1)
    for k, members in enumerate(page.parts.values()):
        part[np.asarray(members, dtype=np.int64)] = k
    label_of = np.array([names.index(name) for name in page.graph.class_names] + [-1])  # the last one for label -1
    return {
        "held": len(chosen),
        "numeric": predictions.numeric,
        "id": predictions.ids(every),
        "class": predictions.classes[every].tolist(),
        "label": label_of[page.graph.labels.numpy()[every]].tolist(),
        "measure": numbers(predictions.measure[every], DIGITS),
        **predictions.columns(chosen),
        "part": part[chosen].tolist(),
        "degree": neighbours.degree[chosen].tolist(),
        "neighbours": [[place[node] for node in row] for row in beside],
        "nearest": [[place[node] for node in row] for row in close] if page.nearest is not None else None,
    }


def _figures(predictions: _Predictions, neighbours: _Neighbours) -> dict[str, Any]:
    """Medians and spreads of all nodes by degree and by coverage, and p-values of the nodes not learnt from."""
    scores, degree = predictions.scores, neighbours.degree
    values = {"measure": predictions.measure} | ({"EU": scores["EU"]} if "EU" in scores else {})
    doubled = np.where(degree > 0, np.floor(np.log2(np.maximum(degree, 1))) + 1, 0).astype(np.int64)
    figures: dict[str, Any] = {"degree": _bins(degree, doubled, values)}
    if "coverage" in scores:
        figures["coverage"] = _bins(
            scores["coverage"], np.clip((scores["coverage"] * 10).astype(np.int64), 0, 9), values
        )
    if predictions.p_value is not None:
        # Bars are closed on the right: nodes flagged at 5 % have p <= 0.05.
        bar = np.clip(np.ceil(predictions.p_value * BARS - 1e-9).astype(np.int64) - 1, 0, BARS - 1)
        new, flagged = predictions.new, predictions.flagged
        sides = {"flagged": new & flagged, "others": new & ~flagged}
        figures["p_values"] = {kind: np.bincount(bar[mask], minlength=BARS).tolist() for kind, mask in sides.items()}
    return figures


def _bins(x: NDArray[Any], group: NDArray[np.int64], values: Mapping[str, NDArray[np.float64]]) -> list[dict[str, Any]]:
    """For each group its size, the median and range of x, and quantiles of the values."""
    order = np.argsort(group, kind="stable")
    _, starts = np.unique(group[order], return_index=True)
    bins = []
    for nodes in np.split(order, starts[1:]):
        spread = {name: numbers(np.quantile(one[nodes], QUANTILES)) for name, one in values.items()}
        middle = distinct_numbers([float(np.median(x[nodes])), float(x[nodes].min()), float(x[nodes].max())])
        bins.append({"nodes": len(nodes), "x": middle[0], "from": middle[1], "to": middle[2], **spread})
    return bins
