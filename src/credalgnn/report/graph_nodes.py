"""The nodes of a graph's page: what is predicted of all of them, which go into the page, and who stands beside them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..graphs import Graph
from .document import distinct_numbers, numbers

if TYPE_CHECKING:
    from pyarrow import Table

LEARNT = ("train", "val", "calibration")  # parts of nodes that the model was told the labels of
NEIGHBOURS = 20  # of a node that are listed
DIGITS = 5  # of a number; the file beside the page has all of them
Nearest = Callable[[Tensor], Tensor]
Numbers = NDArray[np.int64]


class Predictions:
    """A table of predictions, column by column: tables of millions of nodes are never turned into rows.

    Args:
        table: Predictions of all nodes in order, as ``Prediction.to_table`` makes them.
        class_names: The known classes, as the columns of the table are called.
        parts: Node numbers by the name of their part.
    """

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
                "wanted: class_names must be those of the predictions, in the same order"
            )
        width = len(bounds) if self.credal else len(classes)
        self.numeric = pa.types.is_integer(table.schema.field(0).type)
        self.table, self.blocks = table, [table.column(k) for k in range(3, 3 + width)]
        self.rest = dict(zip(names[3 + width :], table.columns[3 + width :], strict=True))
        places = pc.index_in(table.column(1).cast(pa.string()), pa.array(classes, pa.string()))
        if places.null_count:
            raise ValueError("the column class of the table holds a class that is not among class_names")
        self.classes: Numbers = places.to_numpy()
        self.probability = table.column(2).to_numpy()
        self.calibrated = "p_value" in self.rest and "unfamiliar" in self.rest
        words = ("p_value", "unfamiliar", "classes", "reasons")
        self.scores = {name: column.to_numpy() for name, column in self.rest.items() if name not in words}
        self.flagged = (
            self.rest["unfamiliar"].to_numpy() if self.calibrated else np.zeros(len(self.classes), dtype=bool)
        )
        self.p_value = self.rest["p_value"].to_numpy() if self.calibrated else None
        self.doubtful = np.zeros(len(self.classes), dtype=bool)
        if "classes" in self.rest:
            self.doubtful = (
                pc.not_equal(*(one.cast(pa.string()) for one in (self.rest["classes"], table.column(1)))).to_numpy()
                & ~self.flagged
            )
        self.measure = self._widest() if self.credal else self.probability
        self.headline = (
            self.scores["EU"] if "EU" in self.scores else next(iter(self.scores.values()), -self.probability)
        )
        self.new = np.ones(len(self.classes), dtype=bool)
        for part in LEARNT:
            self.new[np.asarray(parts.get(part, ()), dtype=np.int64)] = False
        if not self.new.any():  # then it is about all of them
            self.new[:] = True

    def _widest(self) -> NDArray[np.float64]:
        half = len(self.blocks) // 2
        result = np.zeros(len(self.classes))
        for lower, upper in zip(self.blocks[:half], self.blocks[half:], strict=True):
            np.maximum(result, upper.to_numpy() - lower.to_numpy(), out=result)
        return result

    def typical(self) -> dict[str, int]:
        """A flagged node and a known one, each at the median of its kind; ties in the order of the numbers.

        Of a model that is not calibrated: the node at 95 % of all, and the one at the median.
        """
        order = np.argsort(self.headline, kind="stable")
        order = order[self.new[order]]
        if not self.calibrated:
            return {"uncertain": int(order[(len(order) - 1) * 95 // 100]), "known": int(order[(len(order) - 1) // 2])}
        sides = {"flagged": self.flagged, "known": ~self.flagged & ~self.doubtful}
        kinds = {kind: order[mask[order]] for kind, mask in sides.items()}
        return {kind: int(one[(len(one) - 1) // 2]) for kind, one in kinds.items() if len(one)}

    def choose(self, nearest: Nearest | None, most: int) -> Numbers:
        """The nodes that go into the page, in order: at most so many.

        All if they are few enough; otherwise flagged ones, the smallest p-value first, up to half (of a model that is
        not calibrated, the least certain up to a quarter), the labelled nodes nearest to these up to a quarter, and a
        random sample of the rest.

        Args:
            nearest: See ``GraphPage``.
            most: How many nodes there may be.
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
        drawn = np.random.default_rng(0).permutation(total)
        every = np.concatenate([np.array(list(self.typical().values()), dtype=np.int64), first, close, drawn])
        _, at = np.unique(every, return_index=True)
        return np.sort(every[np.sort(at)[:most]])

    def columns(self, nodes: Numbers) -> dict[str, Any]:
        """What is predicted of some nodes, rounded.

        Args:
            nodes: Their numbers.
        """
        stack = np.stack([block.take(nodes).to_numpy() for block in self.blocks], 1).astype(float)
        stack[np.abs(stack) < 1e-6] = 0.0
        rows = [numbers(row, DIGITS) for row in stack]
        half = len(self.blocks) // 2
        shown = {"lower": [r[:half] for r in rows], "upper": [r[half:] for r in rows]} if self.credal else {"p": rows}
        result: dict[str, Any] = {
            **shown,
            "probability": numbers(self.probability[nodes], DIGITS),
            "scores": {name: distinct_numbers(values[nodes], DIGITS) for name, values in self.scores.items()},
        }
        for name in ("classes", "reasons"):
            if name in self.rest:
                result[name] = [str(text or "") for text in self.rest[name].take(nodes).to_pylist()]
        if self.p_value is not None:
            result["p_value"] = distinct_numbers(self.p_value[nodes], DIGITS)
            result["unfamiliar"] = self.flagged[nodes].astype(int).tolist()
        return result

    def ids(self, nodes: Numbers) -> list[str]:
        """What some nodes are called, as text: whole numbers may be larger than JavaScript can hold.

        Args:
            nodes: Their numbers.
        """
        import pyarrow as pa

        texts: list[str] = self.table.column(0).take(nodes).cast(pa.string()).to_pylist()
        return texts


class Neighbours:
    """Who stands beside whom: nodes joined by an edge in either direction, each once, without itself.

    Args:
        graph: The graph.
    """

    def __init__(self, graph: Graph) -> None:
        source, target = graph.edge_index
        apart = source != target
        source, target, total = source[apart], target[apart], graph.num_nodes
        pairs = torch.unique(torch.cat([source * total + target, target * total + source]))
        self.other: Numbers = (pairs % total).numpy()
        self.degree: Numbers = torch.bincount(pairs // total, minlength=total).numpy()
        self.start = self.degree.cumsum() - self.degree

    def of(self, node: int, held: NDArray[np.bool_]) -> list[int]:
        """The neighbours of a node that are listed: first those that can be followed, then in the order of the numbers.

        Args:
            node: Its number.
            held: Which nodes are in the page.
        """
        other = self.other[self.start[node] : self.start[node] + self.degree[node]]
        return [int(one) for one in other[np.argsort(~held[other], kind="stable")][:NEIGHBOURS]]
