"""Planetoid's files (Cora, CiteSeer, PubMed): pickles of Python 2, read without letting them run anything.

A pickle calls whatever it names. Here numpy's and scipy's names lead to stand-ins that only keep what they are given,
and from which arrays are then made, with checks: the real classes would trust a file, down to their raw memory.
"""

from __future__ import annotations

import pickle
import re
from collections import defaultdict
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from .errors import GraphError
from .graph import Graph

T = TypeVar("T")

PARTS = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
STAND_INS = {
    ("numpy.core.multiarray", "_reconstruct"),  # makes an array
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("scipy.sparse.csr", "csr_matrix"),
}
GENUINE = {("collections", "defaultdict"): defaultdict, ("__builtin__", "list"): list}


class _Kept:
    """An object of a pickle: what it is made with, and the state that it is given then."""

    given: tuple[Any, ...]
    state: Any

    def __new__(cls, *given: Any) -> Self:
        kept = super().__new__(cls)
        kept.given, kept.state = given, None
        return kept

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in STAND_INS:
            return _Kept
        if (module, name) in GENUINE:
            return GENUINE[module, name]
        raise pickle.UnpicklingError(f"it asks for {module}.{name}, which has no place in such a file")


def read_planetoid(raw: Path, name: str) -> Graph:
    """The whole graph: row i of ``tx`` is the node in line i of ``test.index``, the others are those of ``allx``.

    As PyG has it, without self-loops and duplicate edges. Numbers that ``test.index`` skips (15 in CiteSeer) are nodes
    that have neighbours only: no features, and no label, where PyG takes class 0. The public split is not used, and so
    neither are ``x`` and ``y``, which hold the first rows of ``allx`` and ``ally`` once more.
    """
    import scipy.sparse as sp

    place = {part: raw / f"ind.{name}.{part}" for part in PARTS}
    features = [_unpickled(place[part], _matrix) for part in ("allx", "tx")]
    one_hot = [_unpickled(place[part], _array) for part in ("ally", "ty")]
    edges, nodes = _unpickled(place["graph"], _edges)
    tested = _numbers(place["test.index"])
    sizes = [(matrix.shape[0], marks.shape[0]) for matrix, marks in zip(features, one_hot, strict=True)]
    first = sizes[0][0]
    if sizes != [(first, first), (len(tested), len(tested))] or not ((first <= tested) & (tested < nodes)).all():
        raise GraphError("the files do not belong together: they speak of different nodes")
    if len(np.unique(tested)) < len(tested):
        raise GraphError(f"{place['test.index'].name} names a node twice")
    node = np.concatenate([np.arange(first), tested])
    entries = sp.vstack(features).tocoo()
    matrix = sp.csr_matrix((entries.data, (node[entries.row], entries.col)), shape=(nodes, entries.shape[1]))
    marks = np.concatenate(one_hot)
    labels = np.full(nodes, -1)
    labels[node] = np.where(marks.any(1), marks.argmax(1), -1)
    return Graph(matrix, edges, labels)


def _unpickled(path: Path, make: Callable[[Any], T]) -> T:
    try:
        with path.open("rb") as file:
            return make(_Unpickler(file, encoding="latin1").load())
    except Exception as error:  # whatever a damaged pickle leads to
        raise GraphError(f"{path.name} is not a file of Planetoid: {error}") from None


def _array(kept: Any) -> NDArray[Any]:
    _, shape, kind, by_columns, content = kept.state
    code = kind.state[1] + kind.given[0]  # byte order, then type and size
    if not re.fullmatch("[<>|][iuf][1248]", code):
        raise ValueError(f"it holds an array of type {code}")
    array = np.frombuffer(content.encode("latin1"), code).reshape(shape, order="F" if by_columns else "C")
    return array.astype(array.dtype.newbyteorder("="))


def _matrix(kept: Any) -> Any:
    import scipy.sparse as sp

    values, columns, starts = (_array(kept.state[part]) for part in ("data", "indices", "indptr"))
    matrix = sp.csr_matrix((values, columns, starts), shape=kept.state["_shape"])
    matrix.check_format(full_check=True)  # scipy reads where the indices point to, unseen
    return matrix


def _edges(neighbours: dict[int, list[int]]) -> tuple[NDArray[np.int64], int]:
    """Edges in PyG's order, by target and then by source, and the number of nodes: each has its list."""
    degrees = [len(others) for others in neighbours.values()]
    sources = np.repeat(np.fromiter(neighbours, np.int64), degrees)
    targets = np.fromiter(chain.from_iterable(neighbours.values()), np.int64)
    apart = sources != targets
    return np.unique(np.stack([targets[apart], sources[apart]]), axis=1)[::-1], len(neighbours)


def _numbers(path: Path) -> NDArray[np.int64]:
    try:
        return np.array([int(word) for word in path.read_text().split()], np.int64)
    except (ValueError, OverflowError) as error:
        raise GraphError(f"{path.name} is not a list of node numbers: {error}") from None
