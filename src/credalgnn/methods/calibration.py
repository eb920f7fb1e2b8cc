"""Nodes of the fitted graph recognised in other graphs, and the calibration nodes among them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..conformal import needed
from ..graphs import Graph, GraphError
from ..graphs.edges import damaged
from ..runtime.errors import translated
from ..runtime.reading import Unreadable, check_characters


@dataclass(frozen=True, eq=False)
class Calibration:
    """Predictions of calibration nodes, a row each.

    Attributes:
        scores: The headline score ``[n]``.
        classes: The predicted class ``[n]``; None for methods that predict none.
        nonconformity: Nonconformity of the true class ``[n]``; None likewise.
        alike: Whether they were predicted in the graph of the prediction, as its other nodes were. If not, the scores
            are those of ``fit``, and the promise is for nodes as they were in that graph.
    """

    scores: Tensor
    classes: Tensor | None
    nonconformity: Tensor | None
    alike: bool = True

    @classmethod
    def joined(cls, parts: Sequence[Calibration]) -> Calibration:
        """Join one or more parts, of one method and graph."""
        if len(parts) == 1:
            return parts[0]
        rows: list[Tensor | None] = []
        for name in ("scores", "classes", "nonconformity"):
            values = [value for part in parts if (value := getattr(part, name)) is not None]
            rows.append(torch.cat(values) if values else None)
        scores, classes, nonconformity = rows
        assert scores is not None
        return cls(scores, classes, nonconformity, parts[0].alike)


def calibration_nodes_for(
    *, false_alarms: float | None = None, fdr: float | None = None, coverage: float | None = None
) -> int:
    """Return the least number of calibration nodes for some promises.

    Args:
        false_alarms: Rate of false alarms.
        fdr: Share of false alarms among flags: with fewer nodes there would never be a flag.
        coverage: Coverage of prediction sets.
    """
    rates = [rate for rate in (false_alarms, fdr) if rate is not None]
    if coverage is not None:
        rates.append(round(1.0 - coverage, 12))  # 1 - 0.9 is a little less than 0.1
    return max((needed(rate) for rate in rates), default=1)


class CalibrationNodes(NamedTuple):
    """The calibration nodes of a fitted method.

    Attributes:
        known: The nodes, to be recognised in other graphs.
        labels: Their classes.
        fitted: Their predictions in the fitted graph, by models that knew nothing about them: for graphs without them.
    """

    known: KnownNodes
    labels: Tensor
    fitted: Calibration

    def state(self) -> dict[str, Tensor]:
        """Return all of it as tensors by name."""
        fitted = {name: getattr(self.fitted, name) for name in ("scores", "classes", "nonconformity")}
        scored = {name: tensor for name, tensor in fitted.items() if tensor is not None}
        return {**self.known.state(), "labels": self.labels, **scored}

    @classmethod
    def from_state(cls, state: Mapping[str, Tensor]) -> CalibrationNodes:
        """Restore what ``state`` gave."""
        scored = (state["scores"], state.get("classes"), state.get("nonconformity"))
        return cls(KnownNodes.from_state(state), state["labels"], Calibration(*scored, alike=False))


CHUNK = 1 << 16  # ids of a graph that are looked at at a time
NUMBER = re.compile("0|-?[1-9][0-9]{0,18}")  # as numbers are spelled: neither 007 nor +7


@dataclass(frozen=True, eq=False)
class KnownNodes:
    """Some nodes of the graph a method was fitted on.

    Args:
        content: The hash of that graph's features and edges (``Graph.content``).
        nodes: Their numbers in it ``[n]``.
        codes: Their ids as whole numbers ``[n]``, the same for a number and a text that spells it, as ids that are
            numbers in one table are texts in another; empty where that graph has none.
    """

    content: str
    nodes: Tensor
    codes: Tensor

    @classmethod
    def of(cls, graph: Graph, nodes: Tensor) -> KnownNodes:
        """Nodes of a graph.

        Args:
            graph: The graph.
            nodes: Their numbers.
        """
        codes = torch.empty(0, dtype=torch.int64)
        if graph.node_ids is not None:
            codes = torch.cat([codes, *(_codes(ids_of(graph, part.numpy())) for part in torch.split(nodes, CHUNK))])
        return cls(graph.content, nodes, codes)

    @classmethod
    def joined(cls, parts: Sequence[KnownNodes]) -> KnownNodes:
        """Several together.

        Args:
            parts: One or more, of one graph.
        """
        return cls(parts[0].content, torch.cat([p.nodes for p in parts]), torch.cat([p.codes for p in parts]))

    def state(self) -> dict[str, Tensor]:
        """Return all of it as tensors by name."""
        content = torch.tensor(list(bytes.fromhex(self.content)), dtype=torch.uint8)
        return {"content": content, "nodes": self.nodes, "codes": self.codes}

    @classmethod
    def from_state(cls, state: Mapping[str, Tensor]) -> KnownNodes:
        """Restore what ``state`` gave; other names are left alone."""
        return cls(bytes(state["content"].tolist()).hex(), state["nodes"], state["codes"])

    def identifiable_in(self, graph: Graph) -> bool:
        """Return whether the nodes can be identified in a graph: by their ids, or because it is the fitted one.

        Args:
            graph: The fitted graph, or another one.
        """
        return graph.content == self.content or (graph.node_ids is not None and len(self.codes) == len(self.nodes))

    def numbers_in(self, graph: Graph) -> Tensor:
        """Their numbers in a graph, -1 for those that are not in it or cannot be told ``[n]``.

        Args:
            graph: The fitted graph, or another one.
        """
        if graph.content == self.content:
            return self.nodes
        if graph.node_ids is None or not len(self.codes):
            return torch.full_like(self.nodes, -1)
        return torch.from_numpy(_places(graph, self.codes.numpy(), lambda ids: _codes(ids).numpy()))


def ids_of(graph: Graph, nodes: NDArray[np.int64] | slice) -> NDArray[Any]:
    """The ids of some nodes, which are read here where the graph is opened and not loaded.

    Args:
        graph: A graph with ids.
        nodes: Their numbers.
    """
    assert graph.node_ids is not None
    ids = graph.node_ids[nodes]
    if ids.dtype.kind == "U":
        with translated(Unreadable, lambda _: damaged("an id has characters that do not exist")):
            check_characters(np.ascontiguousarray(ids))
    return ids


def numbers_of(graph: Graph, ids: Sequence[Any]) -> Tensor:
    """The numbers of nodes by what they are called.

    Args:
        graph: Their graph.
        ids: Whole numbers or text, as the graph has them.
    """
    if graph.node_ids is None:
        raise GraphError("the nodes of this graph have no ids: say which by their numbers, nodes=[...]")
    queried = np.asarray(ids)
    text = graph.node_ids.dtype.kind == "U"
    if queried.ndim != 1 or not len(queried):
        raise GraphError("ids must be a list of node ids, at least one")
    if (queried.dtype.kind == "U") != text or queried.dtype.kind not in "iuU":
        kind = "text" if queried.dtype.kind == "U" else "whole numbers" if queried.dtype.kind in "iu" else queried.dtype
        raise GraphError(f"ids are {kind}, and those of the graph {'text' if text else 'whole numbers'}")
    if queried.dtype.kind == "u":
        _refuse_unknown(graph, queried[queried > np.iinfo(np.int64).max])
        queried = queried.astype(np.int64)  # as the graph's are: numpy compares uint64 and int64 as floats
    numbers = _places(graph, queried, lambda ids: ids)
    _refuse_unknown(graph, queried[numbers < 0])
    return torch.from_numpy(numbers)


def _refuse_unknown(graph: Graph, unknown: NDArray[Any]) -> None:
    if len(unknown):
        assert graph.node_ids is not None
        raise GraphError(f"there is no node {unknown[0]!s}: the ids are {', '.join(map(str, graph.node_ids[:3]))}, ...")


def _places(graph: Graph, queried: NDArray[Any], convert: Callable[[NDArray[Any]], NDArray[Any]]) -> NDArray[np.int64]:
    """Return the numbers of nodes in a graph, -1 for those that are not in it; ids are read chunk by chunk."""
    ids = graph.node_ids
    assert ids is not None
    values, back = np.unique(queried, return_inverse=True)
    positions = np.full(len(values), -1)
    for first in range(0, len(ids), CHUNK):
        some = convert(ids_of(graph, slice(first, first + CHUNK)))
        place = np.searchsorted(values, some).clip(max=len(values) - 1)
        here = np.flatnonzero(values[place] == some)
        positions[place[here]] = first + here
        graph.release()
    return positions[back]


def _codes(ids: NDArray[Any]) -> Tensor:
    """Ids as whole numbers; texts by a hash of 63 bits, unless they spell a number."""
    if ids.dtype.kind == "i":
        return torch.from_numpy(ids.astype(np.int64))
    return torch.tensor(list(map(_code, ids.tolist())), dtype=torch.int64)


def _code(text: str) -> int:
    if NUMBER.fullmatch(text) and -(2**63) <= (number := int(text)) < 2**63:
        return number
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1
