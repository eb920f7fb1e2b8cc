"""Planetoid's data sets (Cora, CiteSeer, PubMed): pickles of Python 2, read without executing them.

A pickle calls whatever it names. Here the names of numpy and scipy lead to stubs that only store their arguments, from
which arrays are made with checks: the real classes would trust a file, down to their raw memory.
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

from ...runtime.errors import translated
from ..errors import GraphError
from ..graph import Graph
from .base import Dataset, Summary
from .files import File

T = TypeVar("T")

PLANETOID = "https://github.com/kimiyoung/planetoid/raw/master/data"
PARTS = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
STUBS = {
    ("numpy.core.multiarray", "_reconstruct"),  # makes an array
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("scipy.sparse.csr", "csr_matrix"),
}
GENUINE = {("collections", "defaultdict"): defaultdict, ("__builtin__", "list"): list}


class _Stub:
    """Object of a pickle: its constructor arguments and its state."""

    arguments: tuple[Any, ...]
    state: Any

    def __new__(cls, *arguments: Any) -> Self:
        stub = super().__new__(cls)
        stub.arguments, stub.state = arguments, None
        return stub

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in STUBS:
            return _Stub
        if (module, name) in GENUINE:
            return GENUINE[module, name]
        raise pickle.UnpicklingError(f"it asks for {module}.{name}, which has no place in such a file")


def read_planetoid(raw: Path, name: str) -> Graph:
    """Return the whole graph: row i of ``tx`` is the node in line i of ``test.index``; ``allx`` has the others.

    As PyG reads it, without self-loops and duplicate edges. Numbers that ``test.index`` skips (15 in CiteSeer) are
    nodes with neighbours only: no features, and no label, where PyG assigns class 0. The public split is not used, nor
    are ``x`` and ``y``, which repeat the first rows of ``allx`` and ``ally``.
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


def _array(stub: Any) -> NDArray[Any]:
    _, shape, kind, by_columns, content = stub.state
    code = kind.state[1] + kind.arguments[0]  # byte order, then type and size
    if not re.fullmatch("[<>|][iuf][1248]", code):
        raise ValueError(f"it holds an array of type {code}")
    array = np.frombuffer(content.encode("latin1"), code).reshape(shape, order="F" if by_columns else "C")
    return array.astype(array.dtype.newbyteorder("="))


def _matrix(stub: Any) -> Any:
    import scipy.sparse as sp

    values, columns, starts = (_array(stub.state[part]) for part in ("data", "indices", "indptr"))
    matrix = sp.csr_matrix((values, columns, starts), shape=stub.state["_shape"])
    matrix.check_format(full_check=True)  # scipy reads where the indices point to, unseen
    return matrix


def _edges(neighbours: dict[int, list[int]]) -> tuple[NDArray[np.int64], int]:
    """Return edges in PyG's order, by target and then source, and the number of nodes."""
    degrees = [len(others) for others in neighbours.values()]
    sources = np.repeat(np.fromiter(neighbours, np.int64), degrees)
    targets = np.fromiter(chain.from_iterable(neighbours.values()), np.int64)
    apart = sources != targets
    return np.unique(np.stack([targets[apart], sources[apart]]), axis=1)[::-1], len(neighbours)


def _numbers(path: Path) -> NDArray[np.int64]:
    with translated(
        (ValueError, OverflowError), lambda error: GraphError(f"{path.name} is not a list of node numbers: {error}")
    ):
        return np.array([int(word) for word in path.read_text().split()], np.int64)


def _dataset(
    folder: str, ood_classes: tuple[int, ...], description: str, sums: dict[str, tuple[int, str]], size: Summary
) -> Dataset:
    name, raw = folder.lower(), f"{folder}/raw"
    files = {
        f"{raw}/ind.{name}.{part}": File(f"{PLANETOID}/ind.{name}.{part}", bytes_, sha256)
        for part, (bytes_, sha256) in sums.items()
    }
    return Dataset(
        name,
        lambda root: read_planetoid(root / raw, name),
        ood_classes=ood_classes,
        description=description,
        files=files,
        published=size,
    )


CORA = _dataset(
    "Cora",
    tuple(range(3)),
    "citations among papers on machine learning; topic",
    {
        "x": (22119, "23cfa55d91c6f624233f5eb7b6e3f141f1bd2b2ae39608a63cf5d084bb27baab"),
        "tx": (148025, "b9afbaa4a400df991f6f02ef677e1e44da55ffc04801fd02f9e673987829226a"),
        "allx": (257305, "9419ba2f26f5c35243db64aba110e0f35a04851609e0dc5433450676ca6b8543"),
        "y": (4054, "94465c14eb53e04ca262198dcbb2521ee8af60fb3f3d546cd6ca24a511b0e7d1"),
        "ty": (28135, "41f5ac76596a1699cc33f53084a2419e92961c42bb75f36fc38e616d348532ad"),
        "ally": (47959, "2b998f5cc7fedc86e7f97ca2498f47a1ffc1462c29e2d578b23bf3f62b6e7d71"),
        "graph": (59847, "58f13302f39dde8852dad6fe6d15b89b077b6d7f837626bce671ef80344b383d"),
        "test.index": (5000, "297ce89af2b51a6a194181c7dbe1796c6a1cf9cd9349a88383b1b1e227867875"),
    },
    Summary(2708, 10556, 7, "high"),
)

CITESEER = _dataset(
    "CiteSeer",
    (0, 1),
    "citations among papers on computer science; area",
    {
        "x": (31087, "d20de19150741e555de0ed037195630fc194114ebc7fd72ced62810148aa22f6"),
        "tx": (260321, "539a8906a2da97628d212f2fdd668c109a8b3f0d36574b59e5d3fd5b5303da21"),
        "allx": (595021, "2ac30345d95c9ec933a817ee0bdd6a5f077f8c184a20e696910192d534414668"),
        "y": (3014, "8ba87e515d8e3ee3cf52f6d2c5b86aa73f11ecad825a808455209ec26cd54924"),
        "ty": (24135, "55e5bd1ba1e733a04598753ad1a8d57957f4b8f89e74519f41f4f4938767e4ce"),
        "ally": (55623, "f704b2d986dde6c2669934de1f3ae5696a6cf9455c0f6b2646a2d135ea0a1c95"),
        "graph": (61987, "d79a4ef9d3e7169aee8946145f6b7306e35bc79bffad26346cfb94e10e9912a7"),
        "test.index": (5000, "2af990671580b6b2df5d158d1038f8292e30c9cd821b5453f399659b25b723d4"),
    },
    Summary(3327, 9104, 6, "high"),
)

PUBMED = _dataset(
    "PubMed",
    (0,),
    "citations among papers on diabetes; type of the disease",
    {
        "x": (23172, "fbe9cb5c47200d1b7769a26e579be3b7130b556831f9d850e77c4c74f2599b33"),
        "tx": (405505, "4eb5f5d0f30f26497eb0ac6ac9719d09c67e284f1ed0385c93f3ef27a671da3d"),
        "allx": (7578385, "508e538e2abdccdd54c4d3e9f49d638b4af7107d85845f66ddea5a5152658b7e"),
        "y": (854, "e6c807633307a07ed659249006536a147c7999c797f11a2560752990181b41b3"),
        "ty": (12135, "ee2e0d4819d9fbcc403689c3bf2e49face401b605932f093bc58ab6461130fdd"),
        "ally": (224739, "0c37bbe3b5014ec365e9d393cf4791925e5ed94fb194305d74f064a8d7b50f0e"),
        "graph": (471808, "5b89f0036ca22909471f1e6558eb42fa06e0c730a577bde5b058b40638f81dc9"),
        "test.index": (6000, "b101d421688bbaecbd82e8a18f1e282378d6830f3a37666f28ebc47f844341b5"),
    },
    Summary(19717, 88648, 3, "high"),
)
