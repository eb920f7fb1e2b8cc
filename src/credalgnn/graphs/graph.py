"""Graphs with node features and labels, validated once when they are made."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import torch
from numpy.typing import NDArray
from torch import Tensor

from ..runtime.cache import Cache
from ..runtime.errors import translated
from . import convert, storage
from ._checks import (
    check_feature_order,
    checked_class_names,
    checked_edges,
    checked_feature_names,
    checked_features,
    checked_ids,
    checked_labels,
    checked_weights,
    named_labels,
    rows_or_columns,
)
from .description import Description, describe, num_pairs
from .edges import Edges, rows
from .errors import GraphError

if TYPE_CHECKING:
    from pyarrow import Table
    from torch_geometric.data import Data

T = TypeVar("T")

# Huge pages for large tensors, where the system allows them: torch reads this when it makes its first tensor.
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")

STRUCTURE = ("features", "edge_index", "edge_weight")
FIELDS = (*STRUCTURE, "labels", "node_ids", "class_names", "feature_names")


@dataclass(frozen=True, init=False, eq=False, repr=False)
class Graph:
    """Nodes with features and labels, and directed edges between them; immutable, validated when made.

    Features are stored as a sparse CSR matrix where that is smaller. Directions, self-loops, duplicate edges (which
    count as often as they occur) and the order of edges are preserved. Isolated nodes and nodes whose features are all
    zero are legal: a node without edges is classified by its own features only, one without features by its
    neighbours.

    Besides this constructor there are ``from_pyg``, ``from_networkx``, ``from_dgl``, ``from_scipy`` and
    ``from_tables``. ``load_graph`` reads what ``save`` and ``pack`` write.

    Args:
        features: Numbers ``[N, F]``: a tensor, an array or a scipy sparse matrix; stored as float32.
        edge_index: Node numbers ``[2, E]``, sources above targets.
        labels: Class numbers ``[N]``, below 0 for unknown, or text, None for unknown. Default: all unknown.
        node_ids: Unique ids of the nodes, whole numbers or text. Default: none.
        class_names: Names of the classes. Default: their numbers, or the sorted labels where these are text.
        feature_names: Unique names of the columns of ``features``, by which a model recognises the same features in
            another graph. Default: none.
        edge_weight: Numbers ``[E]``, finite and not negative; stored as float32. Default: unweighted.
        edgeless: Accept a graph without any edge, as nodes to predict may be; no model can be fitted on one.

    Example:
        >>> import credalgnn as cg
        >>> graph = cg.Graph([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], [[0, 1], [1, 2]], ["cat", "dog", None])
        >>> graph.class_names, graph.labels.tolist()
        (('cat', 'dog'), [0, 1, -1])
    """

    features: Tensor
    edge_index: Tensor
    labels: Tensor
    node_ids: NDArray[Any] | None
    class_names: tuple[str, ...]
    feature_names: tuple[str, ...] | None
    edge_weight: Tensor | None
    derived: Cache  # results of `cached`, shared by graphs with the same features and edges

    def __init__(
        self,
        features: Any,
        edge_index: Any,
        labels: Any = None,
        node_ids: Sequence[Any] | NDArray[Any] | None = None,
        class_names: Sequence[str] | None = None,
        *,
        feature_names: Sequence[str] | None = None,
        edge_weight: Any = None,
        edgeless: bool = False,
    ) -> None:
        matrix = checked_features(features)
        count = matrix.shape[0]
        edges = checked_edges(edge_index, count, edgeless)
        labels, class_names = named_labels(labels, class_names)
        classes = checked_labels(labels, count, class_names)
        self._set(
            features=matrix,
            edge_index=edges,
            labels=classes,
            node_ids=checked_ids(node_ids, count),
            class_names=checked_class_names(class_names, int(classes.max()) + 1 if count else 0),
            feature_names=checked_feature_names(feature_names, matrix.shape[1]),
            edge_weight=checked_weights(edge_weight, edges.shape[1]),
            derived=Cache(),
        )

    @classmethod
    def _trusted(cls, **fields: Any) -> Self:
        """Make a graph of fields that are known to be valid, without checks or copies; internal."""
        graph = object.__new__(cls)
        graph._set(**{"derived": Cache(), **fields})
        return graph

    def _set(self, **fields: Any) -> None:
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    @classmethod
    def from_pyg(cls, data: Data) -> Graph:
        """Convert a ``torch_geometric`` graph: ``x``, ``edge_index`` and, where present, ``y`` and ``edge_weight``.

        Other edge attributes are dropped with a ``GraphWarning``. A ``HeteroData`` has to be made homogeneous first.

        Args:
            data: ``x`` is ``[N, F]``, ``y`` ``[N]`` or ``[N, 1]`` with numbers below 0 for unknown, ``edge_weight``
                ``[E]`` or ``[E, 1]``.
        """
        return Graph(**convert.from_pyg(data))

    @classmethod
    def from_networkx(
        cls,
        graph: Any,
        features: Sequence[str] | None = None,
        label: str | None = None,
        weight: str | None = "weight",
    ) -> Graph:
        """Convert a ``networkx`` graph; its nodes become ``node_ids``, undirected edges go both ways.

        Args:
            graph: The graph, directed or not; parallel edges are preserved.
            features: Node attributes that are numbers or lists of numbers, on every node. Default: all but ``label``.
            label: Node attribute with the class, text or whole number; nodes without it are unlabelled. Default: no
                labels.
            weight: Edge attribute with the weight, 1 where missing. None: unweighted.
        """
        return Graph(**convert.from_networkx(graph, features, label, weight))

    @classmethod
    def from_dgl(
        cls, graph: Any, features: str = "feat", label: str | None = "label", weight: str | None = "weight"
    ) -> Graph:
        """Convert a homogeneous DGL graph.

        Args:
            graph: The graph.
            features: Name of the features in ``graph.ndata``.
            label: Name of the labels in ``graph.ndata``; no labels where there is no ``label``.
            weight: Name of the weights in ``graph.edata``; unweighted where there is no ``weight``.
        """
        return Graph(**convert.from_dgl(graph, features, label, weight))

    @classmethod
    def from_scipy(cls, adjacency: Any, features: Any, labels: Any = None, **options: Any) -> Graph:
        """Convert a scipy sparse adjacency matrix and features.

        Args:
            adjacency: ``[N, N]``; an entry [i, j] that is not zero is an edge i to j, and its weight unless all are 1.
            features: As in ``Graph``.
            labels: As in ``Graph``.
            **options: ``node_ids``, ``class_names`` and ``feature_names`` of ``Graph``.
        """
        return Graph(**convert.from_scipy(adjacency, features, labels), **options)

    @classmethod
    def from_tables(
        cls,
        nodes: str | os.PathLike[str] | Table | Any,
        edges: str | os.PathLike[str] | Table | Any,
        id: str = "id",
        label: str | None = "label",
        features: Sequence[str] | None = None,
        source: str = "source",
        target: str = "target",
        weight: str | None = None,
        delimiter: str | None = None,
    ) -> Graph:
        """Read a graph from two tables: CSV or Parquet files, pyarrow tables or pandas data frames.

        Text files (``.csv``, ``.tsv``, also with ``.gz``) have a header and are UTF-8. Features are numeric columns,
        used unchanged; ``read_tables`` encodes columns of all kinds.

        Args:
            nodes: A file or a table with a row for each node.
            edges: A file or a table with a row for each edge.
            id: Column of ``nodes`` with the id of each node: whole numbers or text.
            label: Column of ``nodes`` with the class: text, whole numbers or true and false. Empty fields, ``NA``,
                ``N/A``, ``nan``, ``None``, ``null`` (in any case) and negative numbers are unknown labels; blanks
                around a label are dropped. None: no labels.
            features: Numeric columns of ``nodes`` that are features. Default: all other columns.
            source: Column of ``edges`` with the id of the source node. Where neither ``source`` nor ``target`` exists,
                ``src`` and ``dst``, or ``from`` and ``to``, are used.
            target: Column of ``edges`` with the id of the target node.
            weight: Column of ``edges`` with weights. Default: ``weight``, if it exists. A ``GraphWarning`` names unused
                columns.
            delimiter: Field separator of text files. Default: detected in the header, one of ``,``, ``;``, ``|``, tab.
        """
        from .tables import Columns, graph_fields

        return Graph(**graph_fields(nodes, edges, Columns(id, label, features, source, target, weight), delimiter))

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return self.features.shape[0]

    @property
    def num_edges(self) -> int:
        """Number of directed edges."""
        return self.edge_index.shape[1]

    @property
    def num_pairs(self) -> int:
        """Number of distinct unordered pairs of nodes that edges join."""
        return num_pairs(self)

    @property
    def num_features(self) -> int:
        """Number of features."""
        return self.features.shape[1]

    @property
    def num_classes(self) -> int:
        """Number of classes, those without any node included."""
        return len(self.class_names)

    @property
    def path(self) -> Path | None:
        """Folder of a packed graph; None for a graph in memory."""
        return None

    @property
    def parts(self) -> dict[str, Tensor]:
        """Node numbers of the split stored with a packed graph: some of train, val, calibration and test."""
        return {}

    def rows(self, nodes: Tensor | slice) -> Tensor:
        """Return features of some nodes, float32; sparse CSR if ``features`` are. No other rows are read.

        Args:
            nodes: Node numbers, or a slice of them.
        """
        return rows(self.features, nodes)

    def release(self) -> None:
        """Free the memory that caches the files of a packed graph; does nothing for a graph in memory."""

    def in_memory(self, what: str = "the graph in memory") -> Graph:
        """Return the graph with all arrays in memory: itself, unless it is packed.

        Args:
            what: Subject of the error message where it does not fit.
        """
        return self

    @property
    def in_edges(self) -> Edges:
        """The edges grouped by target."""
        return self.cached(_in_edges)

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the content, the same on every machine."""
        return storage.fingerprint(self)

    @cached_property
    def ids_digest(self) -> str:
        """Hash of the node ids; "" without ids."""
        return storage.ids_digest(self)

    @property
    def content(self) -> str:
        """Hash of features, edges and weights: the same for graphs that differ in labels, names or ids only."""
        return self.cached(storage.content)

    def cached(self, function: Callable[..., T], *args: Hashable) -> T:
        """Return ``function(graph, *args)``, computed once for all graphs with the same features and edges.

        Args:
            function: A function of features, edges and edge weights alone, at the top of a module.
            *args: Its further arguments.
        """
        return self.derived.get(lambda: function(self, *args), function, args)

    def replace(
        self,
        *,
        features: Any = None,
        edge_index: Any = None,
        labels: Any = None,
        class_names: Sequence[str] | None = None,
        node_ids: Sequence[Any] | NDArray[Any] | None = None,
        feature_names: Sequence[str] | None = None,
        edge_weight: Any = None,
    ) -> Graph:
        """Return the graph with some fields replaced; the others are shared, neither copied nor validated again.

        None keeps a field, with two exceptions: feature names are dropped where the number of features changes, edge
        weights where the edges are replaced. The number of nodes cannot change. A packed graph whose features or edges
        are replaced is read into memory.

        Args:
            features: As in ``Graph``.
            edge_index: As in ``Graph``; new edges are unweighted unless ``edge_weight`` is given.
            labels: As in ``Graph``.
            class_names: As in ``Graph``.
            node_ids: As in ``Graph``.
            feature_names: As in ``Graph``.
            edge_weight: As in ``Graph``; ``unweighted()`` removes weights.
        """
        changes = {
            "features": features, "edge_index": edge_index, "labels": labels, "class_names": class_names,
            "node_ids": node_ids, "feature_names": feature_names, "edge_weight": edge_weight,
        }  # fmt: skip
        return self._replaced({name: value for name, value in changes.items() if value is not None})

    def _replaced(self, changes: dict[str, Any]) -> Graph:
        values = {name: getattr(self, name) for name in FIELDS}
        if "features" in changes:
            values["features"] = checked_features(changes["features"])
            if values["features"].shape[0] != self.num_nodes:
                raise GraphError(f"features of {values['features'].shape[0]} nodes for a graph of {self.num_nodes}")
            if values["features"].shape[1] != self.num_features:
                values["feature_names"] = None
        if "edge_index" in changes:
            values["edge_index"], values["edge_weight"] = checked_edges(changes["edge_index"], self.num_nodes), None
        if "edge_weight" in changes:
            values["edge_weight"] = checked_weights(changes["edge_weight"], values["edge_index"].shape[1])
        values |= self._checked_names(changes, values["features"].shape[1])
        is_same = changes.keys().isdisjoint(STRUCTURE)
        return Graph._trusted(**values, derived=self.derived if is_same else Cache())

    def _checked_names(self, changes: dict[str, Any], num_features: int) -> dict[str, Any]:
        """Return the labels and names of a changed graph, those that change validated."""
        class_names, labels = changes.get("class_names", self.class_names), self.labels
        if "labels" in changes:
            labels = checked_labels(named_labels(changes["labels"], class_names)[0], self.num_nodes, class_names)
        values = {"labels": labels, "class_names": checked_class_names(class_names, int(labels.max()) + 1)}
        if "feature_names" in changes:
            values["feature_names"] = checked_feature_names(changes["feature_names"], num_features)
        if "node_ids" in changes:
            values["node_ids"] = checked_ids(changes["node_ids"], self.num_nodes)
        return values

    def unweighted(self) -> Graph:
        """Return the graph without edge weights."""
        return self if self.edge_weight is None else self.replace(edge_index=self.edge_index)

    def subgraph(self, nodes: Any) -> Graph:
        """Return the graph induced by some nodes, numbered in their order; all class names are preserved.

        Args:
            nodes: A mask or node numbers, each once.
        """
        return Graph(**convert.subgraph(self, nodes))

    def with_nodes(
        self,
        features: Any,
        edge_index: Any,
        labels: Any = None,
        node_ids: Sequence[Any] | NDArray[Any] | None = None,
        edge_weight: Any = None,
        feature_names: Sequence[str] | None = None,
    ) -> Graph:
        """Return the graph extended by nodes N, N + 1, ... and edges.

        Args:
            features: Features of the new nodes.
            edge_index: The new edges, among old nodes 0..N-1 and new ones N, N + 1, ...
            labels: Class numbers, or text; unknown names become further classes.
            node_ids: Ids of the new nodes, needed if the graph has ids: unused ones of the same type.
            edge_weight: Weights of the new edges, needed if the graph has weights.
            feature_names: Names of the new nodes' features, to be compared with those of the graph.
        """
        whole = self.in_memory("a graph with further nodes")
        return Graph(**convert.with_nodes(whole, features, edge_index, labels, node_ids, edge_weight, feature_names))

    def check_features(self, names: Sequence[str] | None) -> None:
        """Raise ``GraphError`` unless the features have these names in this order; None on either side passes.

        Args:
            names: Feature names of the graph that a model was fitted on.
        """
        check_feature_order(names, self.feature_names)

    def select_features(self, names: Sequence[str]) -> Graph:
        """Return the graph with some of its features, in the order of ``names``.

        Args:
            names: Names of features, each once.
        """
        if self.feature_names is None:
            raise GraphError("the graph has no feature names: graph.replace(feature_names=[...]) gives it some")
        missing = [name for name in names if name not in self.feature_names]
        if missing:
            raise GraphError(
                f"there is no feature {missing[0]!r}; the features are {', '.join(self.feature_names[:12])}"
            )
        columns = torch.tensor([self.feature_names.index(name) for name in names], dtype=torch.int64)
        whole = self.in_memory("a graph with other features")
        return whole.replace(features=rows_or_columns(whole.features, columns=columns), feature_names=names)

    def describe(self) -> Description:
        """Return counts of nodes, edges, features and classes, homophily and the like; ``print`` shows them."""
        return describe(self)

    def to_pyg(self) -> Data:
        """Convert to a ``torch_geometric`` graph with ``x``, ``edge_index``, ``y`` and, if present, ``edge_weight``."""
        return convert.to_pyg(self.in_memory("a torch_geometric graph"))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write an ``.npz`` file, atomically; ``load_graph`` reads it.

        Args:
            path: Where to; missing folders are made, an existing file is replaced.
        """
        with translated(
            OSError, lambda error: GraphError(f"{path}: cannot be written ({error.strerror}); choose another place")
        ):
            storage.write_arrays(Path(path), storage.to_arrays(self.in_memory("an npz file")))

    def pack(self, path: str | os.PathLike[str], dtype: str = "float32") -> Graph:
        """Write the folder of a packed graph, atomically, and open it. Edges are reordered by target.

        Args:
            path: The folder, as in ``graph.cg``; an existing packed graph is replaced.
            dtype: Type in which features are stored, ``float32`` or ``float16``.
        """
        from .packing import pack_graph

        return pack_graph(self, Path(path), dtype)

    def __repr__(self) -> str:
        kind = "sparse" if self.features.layout == torch.sparse_csr else "dense"
        edges = f"{self.num_edges}{'' if self.edge_weight is None else ' weighted'}"
        size = f"nodes={self.num_nodes}, edges={edges}, features={self.num_features} {kind}"
        return f"Graph({size}, classes={self.num_classes})"


def _in_edges(graph: Graph) -> Edges:
    return Edges.of(graph.edge_index, graph.num_nodes, graph.edge_weight)
