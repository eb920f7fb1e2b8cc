"""Graphs in a folder of plain arrays that are opened, not loaded: memory holds what is looked at."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..runtime.cache import Cache
from ..runtime.memory import available_memory, in_units
from ._checks import (
    checked_class_names,
    checked_feature_names,
    checked_ids,
    checked_labels,
    named_labels,
    node_numbers,
)
from ._mapped import Map
from ._packed_files import PARTS, SPARSE, changed, check_array, hash_of, open_arrays
from ._rows import rows
from .errors import GraphError
from .graph import Graph
from .in_edges import CHUNK, INT32, InEdges, row_places


class PackedGraph(Graph):
    """A graph whose features and edges stay in the files of a folder; ``Graph.open`` makes it.

    It is used like any graph. Edges are in the order of their targets. What needs all edges or features as one tensor
    in memory makes it, or says in one line how much memory that would take.
    """

    _edges: InEdges
    _content: str
    _path: Path
    _maps: tuple[Map, ...]
    _ids_digest: str
    _split: NDArray[np.int8] | None

    @property
    def path(self) -> Path:
        """The folder, so that others can open it, too."""
        return self._path

    @property
    def parts(self) -> dict[str, Tensor]:
        """Numbers of nodes of the parts of its split, some of ``train``, ``val``, ``calibration`` and ``test``."""
        if self._split is None:
            return {}
        if len(self._split) and not -1 <= self._split.min() <= self._split.max() < len(PARTS):
            raise changed(self._path, "split", "a node is of a part that does not exist")
        numbers = {part: torch.from_numpy(np.flatnonzero(self._split == at)) for at, part in enumerate(PARTS)}
        return {part: nodes for part, nodes in numbers.items() if len(nodes)}

    @property
    def edge_index(self) -> Tensor:
        """The edges ``[2, E]`` as one tensor in memory, in the order of their targets; better use ``in_edges``."""
        return self.cached(_edge_index)

    @property
    def in_edges(self) -> InEdges:
        """The edges grouped by target, mapped into memory."""
        return self._edges

    @property
    def content(self) -> str:
        """See ``Graph.content``; computed when the graph was packed."""
        return self._content

    @property
    def edge_weight(self) -> Tensor | None:
        """A number ``[E]`` for each edge, in the order of their targets; None where all count the same."""
        return self.in_edges.weights

    @property
    def num_edges(self) -> int:
        """How many directed edges there are."""
        return self.in_edges.num_edges

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the content: the same packed graph has it on every machine, another one another."""
        digest = hashlib.blake2b(f"packed {self.content} {self._ids_digest};".encode(), digest_size=16)
        for names in (self.class_names, self.feature_names):
            digest.update(b"-;" if names is None else "\0".join((str(len(names)), *names)).encode())
        digest.update(self.labels.numpy().data)
        return digest.hexdigest()

    @cached_property
    def ids_digest(self) -> str:
        """See ``Graph.ids_digest``; that of the file, as it was packed."""
        return self._ids_digest

    def release(self) -> None:
        """Give memory back that holds pages of the files; they are read again when they are needed."""
        for each in self._maps:
            each.release()

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
        """The graph with some of its fields replaced; with other features or edges it is one in memory.

        Args:
            features: See ``Graph``.
            edge_index: See ``Graph``.
            labels: See ``Graph``.
            class_names: See ``Graph``.
            node_ids: See ``Graph``.
            feature_names: See ``Graph``.
            edge_weight: See ``Graph``.
        """
        if features is not None or edge_index is not None or edge_weight is not None:
            return self.in_memory("new features or edges").replace(
                features=features, edge_index=edge_index, labels=labels, class_names=class_names, node_ids=node_ids,
                feature_names=feature_names, edge_weight=edge_weight,
            )  # fmt: skip
        names = self.class_names if class_names is None else class_names
        values: dict[str, Any] = {"labels": self.labels}
        if labels is not None:
            values["labels"] = checked_labels(named_labels(labels, names)[0], self.num_nodes, names)
        values["class_names"] = checked_class_names(names, int(values["labels"].max()) + 1)
        if feature_names is not None:
            values["feature_names"] = checked_feature_names(feature_names, self.num_features)
        if node_ids is not None:
            values["node_ids"] = checked_ids(node_ids, self.num_nodes)
            values["_ids_digest"] = hash_of(values["node_ids"])
        return self._with(**values)

    def unweighted(self) -> PackedGraph:
        """The graph without edge weights: all edges count the same."""
        if self.edge_weight is None:
            return self
        bare = self.in_edges._replace(weights=None)
        digest = hash_of(np.array([f"{self.content} unweighted"]))
        return self._with(derived=Cache(), _edges=bare, _content=digest)

    def _with(self, **values: Any) -> PackedGraph:
        names = ("features", "labels", "node_ids", "class_names", "feature_names", "derived")
        own = ("_edges", "_content", "_path", "_maps", "_ids_digest", "_split")
        new = object.__new__(PackedGraph)
        new._set(**({name: getattr(self, name) for name in (*names, *own)} | values))
        return new

    def subgraph(self, nodes: Any) -> Graph:
        """The graph in memory that some nodes and the edges among them make, numbered as they are given.

        Args:
            nodes: A mask or node numbers, each once.
        """
        chosen = node_numbers(nodes, "nodes", self.num_nodes)
        number = torch.full((self.num_nodes,), -1, dtype=torch.int32 if len(chosen) <= INT32 else torch.int64)
        number[chosen] = torch.arange(len(chosen), dtype=number.dtype)
        twice = chosen[number[chosen] != torch.arange(len(chosen))]
        if len(twice):
            raise GraphError(f"node {int(twice[0])} stands twice among the nodes of the subgraph")
        what, remedy = f"a subgraph of {len(chosen):,} nodes", "take fewer nodes, or a machine with more memory"
        size = len(chosen) * self._row_bytes
        self._check_room(size, what, remedy)
        source, target, weights = self._edges_among(chosen.sort().values, number, available_memory() - size, what)
        self.release()
        return Graph(
            self.rows(chosen),
            torch.stack([source, target]),
            self.labels[chosen],
            None if self.node_ids is None else self.node_ids[chosen.numpy()],
            self.class_names,
            feature_names=self.feature_names,
            edge_weight=weights,
            edgeless=not self.num_edges,
        )

    def _edges_among(self, nodes: Tensor, number: Tensor, room: int, what: str) -> tuple[Tensor, Tensor, Tensor | None]:
        """The edges among sorted nodes, with their new numbers, and their weights."""
        edges = self.in_edges
        found: list[tuple[Tensor, ...]] = []
        counts = (edges.starts[nodes + 1] - edges.starts[nodes]).cumsum(0)
        first, used = 0, 0
        while first < len(nodes):
            done = int(counts[first - 1]) if first else 0
            last = max(first + 1, int(torch.searchsorted(counts, done + CHUNK, right=True)))
            degrees, places = row_places(edges.starts, nodes[first:last], edges.num_edges)
            source = edges.sources[places].long()
            if bool(((source < 0) | (source >= edges.num_nodes)).any()):
                raise changed(self._path, "sources", "an edge comes from a node that does not exist")
            source = number[source]
            kept = source >= 0
            target = torch.repeat_interleave(number[nodes[first:last]], degrees)[kept]
            weights = () if edges.weights is None else (edges.weights[places[kept]],)
            found.append((source[kept], target, *weights))
            first, used = last, used + 48 * len(target)
            if used > room:
                raise GraphError(f"{what}: its edges do not fit into the {in_units(room)} of memory that are left")
        empty = (number.new_empty(0),) * 2 + (() if edges.weights is None else (edges.weights[:0],))
        joined = [torch.cat(parts) for parts in zip(*found, strict=True)] if found else list(empty)
        return joined[0].long(), joined[1].long(), joined[2] if edges.weights is not None else None

    def in_memory(self, what: str = "the graph in memory") -> Graph:
        """The same graph as one that holds all of itself.

        Args:
            what: What needs that, for the error where it does not fit.
        """
        size = self.num_nodes * self._row_bytes + 28 * self.num_edges
        self._check_room(size, what, "take some of its nodes, graph.subgraph(nodes), or a machine with more memory")
        features = rows(self.features, slice(None))
        if features.layout == torch.sparse_csr:
            parts = [each.clone() for each in (features.crow_indices(), features.col_indices(), features.values())]
            features = torch.sparse_csr_tensor(parts[0], parts[1], parts[2], features.shape, check_invariants=False)
        elif features.data_ptr() == self.features.data_ptr():
            features = features.clone()
        weights = self.edge_weight
        new = object.__new__(Graph)
        new._set(
            features=features,
            edge_index=self.edge_index,
            labels=self.labels,
            node_ids=None if self.node_ids is None else np.array(self.node_ids),
            class_names=self.class_names,
            feature_names=self.feature_names,
            edge_weight=None if weights is None else weights.clone(),
            derived=Cache(),
        )
        self.release()
        return new

    def with_nodes(self, *args: Any, **options: Any) -> Graph:
        """See ``Graph.with_nodes``; the result is in memory.

        Args:
            *args: Of ``Graph.with_nodes``.
            **options: Of ``Graph.with_nodes``.
        """
        return self.in_memory("a graph with further nodes").with_nodes(*args, **options)

    def select_features(self, names: Sequence[str]) -> Graph:
        """See ``Graph.select_features``; the result is in memory.

        Args:
            names: Names of features, each once.
        """
        return self.in_memory("a graph with other features").select_features(names)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write an npz file, which is read as a whole; a packed graph itself is copied as a folder.

        Args:
            path: Where to.
        """
        self.in_memory("an npz file").save(path)

    def to_pyg(self) -> Any:
        """See ``Graph.to_pyg``."""
        return self.in_memory("a torch_geometric graph").to_pyg()

    def __reduce__(self) -> Any:
        """Another process opens the files again; it is given what else is in the graph."""
        changed = {name: getattr(self, name) for name in ("labels", "class_names", "feature_names")}
        ids = None if isinstance(self.node_ids, Mapped) else self.node_ids
        return _reopened, (self.path, self.content, changed, ids, self.edge_weight is not None)

    @property
    def _row_bytes(self) -> int:
        """What features, label and id of a node take in memory, on average."""
        ids = 0 if self.node_ids is None else self.node_ids.itemsize
        if self.features.layout == torch.sparse_csr:
            return 8 * self.features.values().numel() // self.num_nodes + 16 + ids
        return 4 * self.num_features + 8 + ids

    def _check_room(self, size: int, what: str, remedy: str) -> None:
        room = available_memory()
        if size > room:
            sizes = f"{what} would take {in_units(size)} of memory, and {in_units(room)} are left"
            raise GraphError(f"{self.path}: {sizes}; {remedy}")


def _edge_index(graph: PackedGraph) -> Tensor:
    edges = graph.in_edges
    graph._check_room(24 * edges.num_edges, "edge_index", "graph.in_edges has the edges without taking memory")
    edges.check(0, edges.num_nodes)
    return torch.stack([edges.sources.long(), edges.targets(0, edges.num_nodes)])


def open_graph(path: Path, verify: bool = False) -> PackedGraph:
    """See ``Graph.open``.

    Args:
        path: The folder.
        verify: Read all of it.
    """
    head, entries, maps = open_arrays(path)
    arrays = {name: each.array for name, each in maps.items()}
    labels = torch.from_numpy(arrays["labels"].astype(np.int64))
    maps["labels"].release()
    if verify:
        for name, entry in entries.items():
            check_array(path / f"{name}.npy", name, entry, head)
    weights = torch.from_numpy(arrays["weights"]) if "weights" in arrays else None
    edges = InEdges(torch.from_numpy(arrays["starts"]), torch.from_numpy(arrays["sources"]), weights)
    if "features" in arrays:
        features = torch.from_numpy(arrays["features"])
    else:
        begin, columns, values = (torch.from_numpy(arrays[name]) for name in SPARSE)
        shape = (head["nodes"], head["features"])
        features = torch.sparse_csr_tensor(begin, columns, values, shape, check_invariants=False)
    ids = arrays["node_ids"].view(Mapped) if "node_ids" in arrays else None
    if ids is not None:
        ids.flags.writeable = False
    names = head["feature_names"]
    graph = object.__new__(PackedGraph)
    graph._set(
        features=features,
        labels=labels,
        node_ids=ids,
        class_names=tuple(head["class_names"]),
        feature_names=None if names is None else tuple(names),
        derived=Cache(),
        _edges=edges,
        _content=head["content"],
        _path=path.absolute(),
        _maps=tuple(maps.values()),
        _ids_digest=entries["node_ids"].digest if "node_ids" in entries else "",
        _split=arrays.get("split"),
    )
    return graph


class Mapped(np.ndarray[Any, Any]):
    """An array in a file."""


def _reopened(
    path: Path, content: str, changed: dict[str, Any], ids: NDArray[Any] | None, weighted: bool
) -> PackedGraph:
    graph = open_graph(path)
    graph = graph if weighted else graph.unweighted()
    if graph.content != content:
        raise GraphError(f"{path}: another graph has been packed here since it was opened; open it again")
    if ids is not None:
        ids.flags.writeable = False
        changed = changed | {"node_ids": ids, "_ids_digest": hash_of(ids)}
    return graph._with(**changed)
