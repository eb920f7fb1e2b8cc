"""A validated graph: features, edges, labels. Everything is checked when it is made, and nowhere else."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from numpy.typing import NDArray
from torch import Tensor

from ..runtime.cache import Cache
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
from ._graph_sources import GraphSources
from ._rows import rows
from .description import Description, describe, num_pairs
from .errors import GraphError
from .in_edges import InEdges

if TYPE_CHECKING:
    from torch_geometric.data import Data

T = TypeVar("T")

FIELDS = ("features", "edge_index", "labels", "node_ids", "class_names", "feature_names", "edge_weight")


@dataclass(frozen=True, init=False, eq=False, repr=False)
class Graph(GraphSources):
    """Nodes with features and labels, and edges between them; immutable, checked when made.

    Features are kept as a sparse CSR matrix when that is smaller. Directions, self-loops, duplicates (which count as
    often as they stand there) and the order of edges are kept as given. Isolated nodes and nodes whose features are all
    zero are legal: a node without edges is seen through its own features only, one without features through its
    neighbours.

    Args:
        features: Numbers ``[N, F]``: a tensor, an array or a scipy sparse matrix; kept as float32.
        edge_index: Node numbers ``[2, E]``, source above target.
        labels: Class numbers ``[N]``, below 0 for unknown, or text, None for unknown; None where nothing is known.
        node_ids: What the nodes are called, whole numbers or text, each once.
        class_names: What the classes are called; by default their numbers, or the labels that are text, sorted.
        feature_names: What the columns of ``features`` are called, so that a model can tell whether another graph has
            the same ones in the same order.
        edge_weight: A number ``[E]`` for each edge, finite and not negative; kept as float32. None: all edges count
            the same.
        edgeless: Whether a graph without any edge is legal, as nodes to predict may be; nothing is learnt from one.
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

    def _set(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def num_nodes(self) -> int:
        """How many nodes there are."""
        return self.features.shape[0]

    @property
    def num_edges(self) -> int:
        """How many directed edges there are."""
        return self.edge_index.shape[1]

    @property
    def num_pairs(self) -> int:
        """Edges counted as unordered pairs of nodes, each once."""
        return num_pairs(self)

    @property
    def num_features(self) -> int:
        """How many features a node has."""
        return self.features.shape[1]

    @property
    def num_classes(self) -> int:
        """How many classes there are, whether a node is of them or not."""
        return len(self.class_names)

    @property
    def path(self) -> Path | None:
        """The folder of a packed graph, so that others can open it, too; None for a graph in memory."""
        return None

    def rows(self, nodes: Tensor | slice) -> Tensor:
        """Features of some nodes, float32; sparse CSR if ``features`` are. Of a packed graph no others are read.

        Args:
            nodes: Node numbers, or a slice of them.
        """
        return rows(self.features, nodes)

    def release(self) -> None:
        """Give memory back that holds what a packed graph has in its files; of a graph in memory there is none."""

    def in_memory(self, what: str = "the graph in memory") -> Graph:
        """The same graph as one that holds all of itself: a packed one is read, if there is room for it.

        Args:
            what: What needs that, for the error where it does not fit.
        """
        return self

    @property
    def in_edges(self) -> InEdges:
        """The edges by their target, made once: what neighbours are drawn from and chunks of the graph are read by."""
        return self.cached(_in_edges)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the content: the same graph has it on every machine, another one another."""
        from .storage import fingerprint

        return fingerprint(self)

    @cached_property
    def ids_digest(self) -> str:
        """A hash of what the nodes are called; "" where they are called nothing."""
        from .storage import ids_digest

        return ids_digest(self)

    @property
    def content(self) -> str:
        """A hash of features, edges and weights: graphs that differ in labels, names or ids only have the same."""
        from .storage import content

        return self.cached(content)

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
        """The graph with some of its fields replaced; the others are shared, not copied and checked again.

        The number of nodes stays as it is. What is None stays, too, but for two things that would no longer fit: the
        names of features whose number changes, and the weights of edges that are replaced.

        Args:
            features: See ``Graph``.
            edge_index: See ``Graph``; new edges have no weights unless ``edge_weight`` gives them some.
            labels: See ``Graph``.
            class_names: See ``Graph``.
            node_ids: See ``Graph``.
            feature_names: See ``Graph``.
            edge_weight: See ``Graph``; ``unweighted`` removes them.
        """
        values = {name: getattr(self, name) for name in FIELDS}
        if features is not None:
            values["features"] = checked_features(features)
            if values["features"].shape[0] != self.num_nodes:
                raise GraphError(f"features of {values['features'].shape[0]} nodes for a graph of {self.num_nodes}")
            if values["features"].shape[1] != self.num_features:
                values["feature_names"] = None
        if feature_names is not None:
            values["feature_names"] = checked_feature_names(feature_names, values["features"].shape[1])
        if node_ids is not None:
            values["node_ids"] = checked_ids(node_ids, self.num_nodes)
        if edge_index is not None:
            values["edge_index"], values["edge_weight"] = checked_edges(edge_index, self.num_nodes), None
        if edge_weight is not None:
            values["edge_weight"] = checked_weights(edge_weight, values["edge_index"].shape[1])
        names: Sequence[str] = self.class_names if class_names is None else class_names
        if labels is not None:
            values["labels"] = checked_labels(named_labels(labels, names)[0], self.num_nodes, names)
        values["class_names"] = checked_class_names(names, int(values["labels"].max()) + 1)
        same = features is None and edge_index is None and edge_weight is None
        new = object.__new__(Graph)
        new._set(**values, derived=self.derived if same else Cache())
        return new

    def unweighted(self) -> Graph:
        """The graph without edge weights: all edges count the same."""
        return self if self.edge_weight is None else self.replace(edge_index=self.edge_index)

    def subgraph(self, nodes: Any) -> Graph:
        """The graph that some nodes and the edges among them make, numbered as they are given.

        All classes stay, whether one of the nodes is of them or not. The tensors are its own.

        Args:
            nodes: A mask or node numbers, each once.
        """
        from .convert import subgraph

        return subgraph(self, nodes)

    def with_nodes(
        self,
        features: Any,
        edge_index: Any,
        labels: Any = None,
        node_ids: Sequence[Any] | NDArray[Any] | None = None,
        edge_weight: Any = None,
        feature_names: Sequence[str] | None = None,
    ) -> Graph:
        """A larger graph: this one, and further nodes and edges behind its own.

        Args:
            features: Of the new nodes, as many as those here have.
            edge_index: The new edges, also among old nodes: those here are 0..N-1, the new ones N, N + 1, ...
            labels: Class numbers, or text; classes that are not here get numbers behind those that are.
            node_ids: What the new nodes are called, if those here have ids: others, and of the same type.
            edge_weight: A weight for each new edge, if those here have some.
            feature_names: What the new features are called, to have them compared with those here.
        """
        from .convert import with_nodes

        return with_nodes(self, features, edge_index, labels, node_ids, edge_weight, feature_names)

    def check_features(self, names: Sequence[str] | None) -> None:
        """Refuse a graph whose features are not those that a model has learnt from, or are in another order.

        Nothing can be said where the graph, or what the model has learnt from, has no feature names.

        Args:
            names: The feature names of the graph that the model has learnt from.
        """
        check_feature_order(names, self.feature_names)

    def select_features(self, names: Sequence[str]) -> Graph:
        """The graph with some of its features, in the order of their names.

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
        return self.replace(features=rows_or_columns(self.features, columns=columns), feature_names=names)

    def describe(self) -> Description:
        """Counts of nodes, edges, features and classes, to see at a glance whether it is the right graph."""
        return describe(self)

    def to_pyg(self) -> Data:
        """As a ``torch_geometric`` graph with ``x``, ``edge_index``, ``y`` and, if there, ``edge_weight``."""
        from .convert import to_pyg

        return to_pyg(self)

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

    def pack(self, path: str | os.PathLike[str], dtype: str = "float32") -> Graph:
        """Write the folder of a packed graph, whole or not at all, and open it. Edges get the order of their targets.

        Args:
            path: The folder, as in ``graph.cg``; a packed graph that is there is replaced.
            dtype: What features are kept as, ``float32`` or ``float16``.
        """
        from .packing import pack_graph

        return pack_graph(self, Path(path), dtype)

    def __repr__(self) -> str:
        kind = "sparse" if self.features.layout == torch.sparse_csr else "dense"
        edges = f"{self.num_edges}{'' if self.edge_weight is None else ' weighted'}"
        size = f"nodes={self.num_nodes}, edges={edges}, features={self.num_features} {kind}"
        return f"Graph({size}, classes={self.num_classes})"


def _in_edges(graph: Graph) -> InEdges:
    return InEdges.of(graph.edge_index, graph.num_nodes, graph.edge_weight)
