"""One validated graph: features, edges, labels. Everything is checked here, at the door, and nowhere else."""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

if TYPE_CHECKING:
    from pyarrow import Table
    from torch_geometric.data import Data

FIELDS = ("features", "edge_index", "labels", "node_ids", "class_names")

with warnings.catch_warnings():  # torch says once per process that CSR is in beta; it is all that is used of it here
    warnings.simplefilter("ignore")
    torch.sparse_csr_tensor(torch.tensor([0, 0]), torch.empty(0, dtype=torch.int64), torch.empty(0), (1, 1))


class GraphError(ValueError):
    """Something is wrong with a graph, a split or a task; the message says what, where and what to do."""


@dataclass(frozen=True)
class Description:
    """What a graph looks like, in numbers."""

    nodes: int
    edges: int
    features: int
    density: float
    class_counts: dict[str, int]
    unlabelled: int
    homophily: float
    isolated: int
    self_loops: int
    duplicate_edges: int
    empty_features: int
    directed: bool

    def __str__(self) -> str:
        counts = ", ".join(f"{name}: {count:,}" for name, count in list(self.class_counts.items())[:45])
        lines = {
            "nodes": f"{self.nodes:,} ({self.isolated:,} isolated, {self.unlabelled:,} without a label)",
            "edges": f"{self.edges:,} {'directed' if self.directed else 'in both directions'} "
            f"({self.self_loops:,} self-loops, {self.duplicate_edges:,} duplicates)",
            "features": f"{self.features:,} (density {self.density:.2%}, {self.empty_features:,} nodes without any)",
            "classes": f"{len(self.class_counts)} ({counts})",
            "edge homophily": f"{self.homophily:.3f}",
        }
        return "\n".join(f"{name:15s} {text}" for name, text in lines.items())


@dataclass(frozen=True, init=False, eq=False, repr=False)
class Graph:
    """Nodes with features and labels, and edges between them; immutable, checked when made.

    ``features`` are float32 ``[N, F]``, kept as a sparse CSR matrix when that is smaller. ``edge_index`` is ``[2, E]``,
    source above target, as given: directions, self-loops, duplicates (which count as often as they stand there) and
    order are kept. ``labels`` are ``[N]`` with -1 for unknown. Isolated nodes and nodes whose features are all zero are
    legal: a node without edges is seen through its own features only, one without features through its neighbours.
    """

    features: Tensor
    edge_index: Tensor
    labels: Tensor
    node_ids: NDArray[Any] | None
    class_names: tuple[str, ...]
    derived: dict[str, Any]  # what others have made of features and edges; shared by graphs that share these

    def __init__(
        self,
        features: Any,
        edge_index: Any,
        labels: Any = None,
        node_ids: Sequence[Any] | NDArray[Any] | None = None,
        class_names: Sequence[str] | None = None,
    ) -> None:
        matrix = _checked_features(features)
        count = matrix.shape[0]
        edges = _checked_edges(edge_index, count)
        classes = _checked_labels(labels, count, class_names)
        names = _checked_names(class_names, int(classes.max()) + 1 if count else 0)
        for field, value in (
            ("features", matrix),
            ("edge_index", edges),
            ("labels", classes),
            ("node_ids", checked_ids(node_ids, count)),
            ("class_names", names),
        ):
            object.__setattr__(self, field, value)
        object.__setattr__(self, "derived", {})

    @property
    def num_nodes(self) -> int:
        return self.features.shape[0]

    @property
    def num_edges(self) -> int:
        return self.edge_index.shape[1]

    @property
    def num_pairs(self) -> int:
        """Edges counted as unordered pairs of nodes, each once."""
        low, high = self.edge_index.min(0).values, self.edge_index.max(0).values
        return len(torch.unique(low * self.num_nodes + high))

    @property
    def num_features(self) -> int:
        return self.features.shape[1]

    @property
    def num_classes(self) -> int:
        return len(self.class_names)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the content: the same graph has it on every machine, another one another."""
        from .storage import to_arrays

        digest = hashlib.blake2b(digest_size=16)
        for name, array in sorted(to_arrays(self).items()):
            digest.update(f"{name} {array.dtype.kind} {array.shape};".encode())
            if array.dtype.kind == "U":  # as text: the width of the array says nothing about its content
                digest.update("\0".join(array.tolist()).encode())
            elif array.size:
                digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        return digest.hexdigest()

    @property
    def content(self) -> str:
        """A hash of features and edges alone: graphs that differ in labels, names or ids only have the same."""
        if "content" not in self.derived:
            digest = hashlib.blake2b(digest_size=16)
            x = self.features
            parts = [x] if x.layout == torch.strided else [x.crow_indices(), x.col_indices(), x.values()]
            for part in (*parts, self.edge_index):
                digest.update(f"{list(part.shape)} {part.dtype};".encode())
                digest.update(np.ascontiguousarray(part.numpy()).data)
            self.derived["content"] = digest.hexdigest()
        content: str = self.derived["content"]
        return content

    def replace(
        self,
        *,
        features: Any = None,
        edge_index: Any = None,
        labels: Any = None,
        class_names: Sequence[str] | None = None,
        node_ids: Sequence[Any] | NDArray[Any] | None = None,
    ) -> Graph:
        """The graph with some of its fields replaced; the others are shared, not copied and checked again.

        The number of nodes stays as it is.
        """
        new = object.__new__(Graph)
        values = {name: getattr(self, name) for name in FIELDS}
        if features is not None:
            values["features"] = _checked_features(features)
            if values["features"].shape[0] != self.num_nodes:
                raise GraphError(f"features of {values['features'].shape[0]} nodes for a graph of {self.num_nodes}")
        if node_ids is not None:
            values["node_ids"] = checked_ids(node_ids, self.num_nodes)
        if edge_index is not None:
            values["edge_index"] = _checked_edges(edge_index, self.num_nodes)
        names = self.class_names if class_names is None else class_names
        if labels is not None:
            values["labels"] = _checked_labels(labels, self.num_nodes, names)
        values["class_names"] = _checked_names(names, int(values["labels"].max()) + 1)
        for name, value in values.items():
            object.__setattr__(new, name, value)
        object.__setattr__(new, "derived", self.derived if features is None and edge_index is None else {})
        return new

    def subgraph(self, nodes: Any) -> Graph:
        """The graph that some nodes (a mask or node numbers) and the edges among them make, numbered as they are given.

        All classes stay, whether one of the nodes is of them or not. The tensors are its own.
        """
        from .task import node_numbers

        chosen = node_numbers(nodes, "nodes", self.num_nodes)
        number = torch.full((self.num_nodes,), -1)
        number[chosen] = torch.arange(len(chosen))
        twice = chosen[number[chosen] != torch.arange(len(chosen))]
        if len(twice):
            raise GraphError(f"node {int(twice[0])} stands twice among the nodes of the subgraph")
        edges = number[self.edge_index]
        edges = edges[:, (edges >= 0).all(0)]
        ids = None if self.node_ids is None else self.node_ids[chosen.numpy()]
        return Graph(_rows(self.features, chosen), edges, self.labels[chosen], ids, self.class_names)

    def describe(self) -> Description:
        """Counts that tell at a glance whether this is the graph one meant."""
        source, target = self.edge_index
        count = self.num_nodes
        code = source * count + target
        unique = torch.unique(code)
        touched = torch.zeros(count, dtype=torch.bool)
        touched[source] = True
        touched[target] = True
        reverse = torch.unique(target * count + source)
        known = (self.labels[source] >= 0) & (self.labels[target] >= 0)
        same = self.labels[source][known] == self.labels[target][known]
        if self.features.layout == torch.sparse_csr:
            filled = self.features.values() != 0
            rows = torch.repeat_interleave(torch.arange(count), self.features.crow_indices().diff())[filled]
            active, nonempty = int(filled.sum()), len(torch.unique(rows))
        else:
            filled = self.features != 0
            active, nonempty = int(filled.sum()), int(filled.any(1).sum())
        counts = torch.bincount(self.labels[self.labels >= 0], minlength=self.num_classes).tolist()
        return Description(
            nodes=count,
            edges=self.num_edges,
            features=self.num_features,
            density=active / (count * self.num_features),
            class_counts=dict(zip(self.class_names, counts, strict=True)),
            unlabelled=int((self.labels < 0).sum()),
            homophily=float(same.double().mean()) if len(same) else float("nan"),
            isolated=int((~touched).sum()),
            self_loops=int((source == target).sum()),
            duplicate_edges=self.num_edges - len(unique),
            empty_features=count - nonempty,
            directed=not torch.equal(unique, reverse),
        )

    @classmethod
    def from_pyg(cls, data: Data) -> Graph:
        """A ``torch_geometric`` graph: ``x``, ``edge_index`` and, if there, ``y`` ([N] or [N, 1]; below 0: unknown)."""
        if not hasattr(data, "x") or not hasattr(data, "edge_index"):
            raise GraphError(f"a torch_geometric Data object is wanted, not {type(data).__name__}")
        if data.x is None:
            raise GraphError("data.x is missing: node features are needed (for a graph without, a column of ones)")
        if data.edge_index is None:
            raise GraphError("data.edge_index is missing (from an adj_t: torch.stack(adj_t.coo()[1::-1]))")
        labels = data.y
        if labels is not None and labels.dim() == 2 and labels.shape[1] == 1:
            labels = labels.squeeze(1)
        return cls(data.x, data.edge_index, labels)

    def to_pyg(self) -> Data:
        """As a ``torch_geometric`` graph with ``x``, ``edge_index`` and ``y``."""
        from torch_geometric.data import Data

        return Data(x=self.features.clone(), edge_index=self.edge_index.clone(), y=self.labels.clone())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write an npz file, whole or not at all; its folder is made if need be.

        Args:
            path: Where to; a file that is there is replaced.
        """
        from .storage import to_arrays, write_arrays

        try:
            write_arrays(Path(path), to_arrays(self))
        except OSError as error:
            raise GraphError(f"{path}: cannot be written ({error.strerror}); choose another place") from None

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Graph:
        """Read what ``save`` wrote; runs no code from the file."""
        from .storage import from_arrays, read_arrays

        return from_arrays(read_arrays(Path(path)), Path(path))

    @classmethod
    def from_tables(
        cls,
        nodes: str | os.PathLike[str] | Table,
        edges: str | os.PathLike[str] | Table,
        id: str = "id",
        label: str | None = "label",
        features: Sequence[str] | None = None,
        source: str = "source",
        target: str = "target",
    ) -> Graph:
        """A graph from two tables, as people export them: CSV or Parquet files, or pyarrow tables.

        Nodes have an id, perhaps a label (null is unknown), and numeric feature columns (default: all others). Edges
        name their ends by id.
        """
        from .tables import read_graph

        return read_graph(nodes, edges, id, label, features, source, target)

    def __repr__(self) -> str:
        kind = "sparse" if self.features.layout == torch.sparse_csr else "dense"
        size = f"nodes={self.num_nodes}, edges={self.num_edges}, features={self.num_features} {kind}"
        return f"Graph({size}, classes={self.num_classes})"


def _checked_features(value: Any) -> Tensor:
    """Float32 [N, F], dense or sparse CSR, whichever is smaller; finite."""
    matrix = csr_from_scipy(value) if hasattr(value, "tocsr") else _tensor(value, "features")
    if matrix.dim() != 2:
        raise GraphError(f"features have shape {list(matrix.shape)}: they must be [nodes, features]")
    if matrix.shape[0] == 0:
        raise GraphError("the graph has no nodes")
    if matrix.shape[1] == 0:
        raise GraphError("the graph has no features: give at least one column, e.g. of ones")
    if matrix.is_complex():
        raise GraphError("features must be real numbers, not complex ones")
    matrix = matrix.detach().to("cpu", torch.float32)
    if matrix.layout != torch.strided:
        matrix = matrix.to_sparse(layout=torch.sparse_coo).coalesce().to_sparse_csr()  # columns sorted, none twice
        _check_finite_sparse(matrix)
        matrix = _canonical(matrix)
        return matrix if _sparse_is_smaller(matrix.values().numel(), matrix.shape) else matrix.to_dense()
    bad = ~torch.isfinite(matrix)
    if bool(bad.any()):
        row, column = (int(i) for i in bad.nonzero()[0])
        raise GraphError(f"features: row {row}, column {column} is {matrix[row, column].item()}; fill or drop it first")
    if _sparse_is_smaller(int(torch.count_nonzero(matrix)), matrix.shape):
        return _canonical(matrix.to_sparse_csr())
    return matrix.contiguous() + 0.0  # a copy, in which -0.0 is 0.0


def _rows(matrix: Tensor, nodes: Tensor) -> Any:
    """Some rows of features, dense or sparse."""
    if matrix.layout != torch.sparse_csr:
        return matrix[nodes]
    from scipy.sparse import csr_array

    parts = (part.numpy() for part in (matrix.values(), matrix.col_indices(), matrix.crow_indices()))
    return csr_array(tuple(parts), shape=tuple(matrix.shape))[nodes.numpy()]


def _sparse_is_smaller(active: int, shape: torch.Size) -> bool:
    """A stored entry takes 8 bytes (value and column), a row 4; a dense number 4."""
    return active * 8 + shape[0] * 4 < shape[0] * shape[1] * 4


def _tensor(value: Any, name: str) -> Tensor:
    """Numbers as a tensor, whatever array they come in."""
    if isinstance(value, Tensor):
        return value
    array = np.asarray(value)
    if array.dtype.kind not in "biufc":
        raise GraphError(f"{name} must be numbers, not {array.dtype}: encode them first")
    return torch.as_tensor(array if array.flags.writeable and min(array.strides, default=0) >= 0 else array.copy())


def csr_from_scipy(matrix: Any) -> Tensor:
    """A scipy sparse matrix as a torch CSR matrix, columns sorted in each row."""
    csr = matrix.tocsr(copy=True)
    csr.sum_duplicates()
    return torch.sparse_csr_tensor(
        torch.from_numpy(csr.indptr.astype(np.int64)),
        torch.from_numpy(csr.indices.astype(np.int64)),
        torch.from_numpy(csr.data.astype(np.float32)),
        csr.shape,
        check_invariants=False,
    )


def _canonical(matrix: Tensor) -> Tensor:
    """CSR with int32 indices and no stored zeros, so that equal features are equal bytes; int32 halves the indices."""
    values, columns, starts = matrix.values(), matrix.col_indices(), matrix.crow_indices()
    kept = values != 0
    if not bool(kept.all()):
        rows = torch.repeat_interleave(torch.arange(matrix.shape[0]), starts.diff())[kept]
        starts = torch.cat(
            [torch.zeros(1, dtype=torch.int64), torch.bincount(rows, minlength=matrix.shape[0]).cumsum(0)]
        )
        values, columns = values[kept], columns[kept]
    return torch.sparse_csr_tensor(
        starts.to(torch.int32), columns.to(torch.int32), values.clone(), matrix.shape, check_invariants=False
    )


def _check_finite_sparse(matrix: Tensor) -> None:
    bad = ~torch.isfinite(matrix.values())
    if bool(bad.any()):
        at = int(bad.nonzero()[0])
        row = int(torch.searchsorted(matrix.crow_indices(), at, right=True)) - 1
        column = int(matrix.col_indices()[at])
        raise GraphError(f"features: row {row}, column {column} is {matrix.values()[at].item()}; fill or drop it first")


def _checked_edges(value: Any, nodes: int) -> Tensor:
    edges = _tensor(value, "edge_index")
    if edges.dim() != 2 or edges.shape[0] != 2:
        hint = ": transpose it" if edges.dim() == 2 and edges.shape[1] == 2 else ""
        raise GraphError(f"edge_index has shape {list(edges.shape)}, but [2, edges] is wanted{hint}")
    if edges.is_floating_point() or edges.dtype == torch.bool:
        raise GraphError(f"edge_index must hold node numbers (integers), not {edges.dtype}")
    if edges.shape[1] == 0:
        raise GraphError(
            "the graph has no edges: for data without relations, use self-loops or a nearest-neighbour graph"
        )
    edges = edges.detach().to("cpu", torch.int64)
    bad = (edges < 0) | (edges >= nodes)
    if bool(bad.any()):
        number = int(bad.any(0).nonzero()[0])
        end = int(edges[:, number][bad[:, number]][0])
        raise GraphError(f"edge {number} ends at node {end}, but nodes are numbered 0..{nodes - 1}")
    return edges.contiguous().clone()


def _checked_labels(value: Any, nodes: int, names: Sequence[str] | None) -> Tensor:
    if value is None:
        return torch.full((nodes,), -1)
    labels = _tensor(value, "labels")
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise GraphError(
            f"labels must be integers (class numbers, -1 for unknown), not {labels.dtype}: convert them first"
        )
    if labels.dim() != 1 or labels.shape[0] != nodes:
        raise GraphError(f"labels have shape {list(labels.shape)}, but there are {nodes} nodes: one label a node")
    labels = labels.detach().to("cpu", torch.int64)
    if int(labels.max()) >= max(nodes, 0 if names is None else len(names)):  # named classes may outnumber the nodes
        row = int(labels.argmax())
        raise GraphError(f"labels: row {row} is {int(labels[row])} in a graph of {nodes} nodes; number classes 0..C-1")
    return labels.clamp_min(-1).clone()


def _checked_names(value: Sequence[str] | None, classes: int) -> tuple[str, ...]:
    if value is None:
        return tuple(str(k) for k in range(classes))
    names = tuple(str(name) for name in value)
    if len(names) < classes:
        raise GraphError(f"{len(names)} class names for labels up to {classes - 1}: name every class")
    if len(set(names)) < len(names):
        raise GraphError("class names must differ from each other")
    return names


def checked_ids(value: Sequence[Any] | NDArray[Any] | None, nodes: int) -> NDArray[Any] | None:
    if value is None:
        return None
    ids = np.asarray(value)
    if ids.shape != (nodes,):
        raise GraphError(f"{ids.shape[0] if ids.ndim else 1} node ids for {nodes} nodes: one id a node")
    ids = ids.astype(np.int64) if ids.dtype.kind in "iu" else ids.astype(np.str_)
    order = np.argsort(ids, kind="stable")
    twice = np.flatnonzero(ids[order][1:] == ids[order][:-1])
    if len(twice):
        first, second = sorted((int(order[twice[0]]), int(order[twice[0] + 1])))
        raise GraphError(f"node id {ids[first]!s} stands twice, in rows {first} and {second}: ids must be unique")
    ids.flags.writeable = False
    return ids
