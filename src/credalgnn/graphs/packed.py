"""Graphs whose features and edges stay in the files of a folder, mapped into memory."""

from __future__ import annotations

import hashlib
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..runtime.cache import Cache
from ..runtime.memory import available_memory, in_units
from ._packed_files import PARTS, SPARSE, Map, changed, check_array, hash_of, open_arrays
from .convert import of_nodes, renumbered
from .edges import CHUNK, Edges, row_places, rows
from .errors import GraphError
from .graph import STRUCTURE, Graph

SHARED = ("features", "labels", "node_ids", "class_names", "feature_names", "derived", "_edges", "_content", "_path",
          "_maps", "ids_digest", "_split")  # fmt: skip


class PackedGraph(Graph):
    """Graph whose features and edges are memory-mapped files of a folder; ``load_graph`` opens one.

    It is used like any other graph. Edges are ordered by target. Whatever needs all edges or features as one tensor
    reads them, or raises ``GraphError`` with the memory that would take.
    """

    _edges: Edges
    _content: str
    _path: Path
    _maps: tuple[Map, ...]
    ids_digest: str  # computed when the graph was packed
    _split: NDArray[np.int8] | None

    @property
    def path(self) -> Path:
        """Folder of the graph."""
        return self._path

    @property
    def parts(self) -> dict[str, Tensor]:
        """Node numbers of the split stored with the graph: some of train, val, calibration and test."""
        if self._split is None:
            return {}
        if len(self._split) and not -1 <= self._split.min() <= self._split.max() < len(PARTS):
            raise changed(self._path, "split", "a node is in a part that does not exist")
        numbers = {part: torch.from_numpy(np.flatnonzero(self._split == at)) for at, part in enumerate(PARTS)}
        return {part: nodes for part, nodes in numbers.items() if len(nodes)}

    @property
    def edge_index(self) -> Tensor:
        """The edges ``[2, E]`` as one tensor in memory, ordered by target; ``in_edges`` takes no memory."""
        return self.cached(_edge_index)

    @property
    def in_edges(self) -> Edges:
        """The edges grouped by target, mapped into memory."""
        return self._edges

    @property
    def content(self) -> str:
        """See ``Graph.content``; computed when the graph was packed."""
        return self._content

    @property
    def edge_weight(self) -> Tensor | None:
        """Weights ``[E]`` of the edges, ordered by target; None if unweighted."""
        return self.in_edges.weights

    @property
    def num_edges(self) -> int:
        """Number of directed edges."""
        return self.in_edges.num_edges

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the content, the same on every machine, but not that of the same graph in memory."""
        digest = hashlib.blake2b(f"packed {self.content} {self.ids_digest};".encode(), digest_size=16)
        for names in (self.class_names, self.feature_names):
            digest.update(b"-;" if names is None else "\0".join((str(len(names)), *names)).encode())
        digest.update(self.labels.numpy().data)
        return digest.hexdigest()

    def release(self) -> None:
        """Free the memory that caches the files."""
        for each in self._maps:
            each.release()

    def unweighted(self) -> PackedGraph:
        """Return the graph without edge weights."""
        if self.edge_weight is None:
            return self
        edges, digest = self.in_edges._replace(weights=None), hash_of(np.array([f"{self.content} unweighted"]))
        return self._with_fields(derived=Cache(), _edges=edges, _content=digest)

    def _with_fields(self, **values: Any) -> PackedGraph:
        """Return a copy with some fields replaced, without checks; internal."""
        return PackedGraph._trusted(**{**{name: getattr(self, name) for name in SHARED}, **values})

    def _replaced(self, changes: dict[str, Any]) -> Graph:
        if not changes.keys().isdisjoint(STRUCTURE):
            return self.in_memory("new features or edges")._replaced(changes)
        values = self._checked_names(changes, self.num_features)
        if "node_ids" in changes:
            values["ids_digest"] = hash_of(values["node_ids"])
        return self._with_fields(**values)

    def subgraph(self, nodes: Any) -> Graph:
        """Return the graph induced by some nodes, in memory, numbered in their order.

        Args:
            nodes: A mask or node numbers, each once.
        """
        chosen, number = renumbered(self, nodes)
        what, size = f"a subgraph of {len(chosen):,} nodes", len(chosen) * _row_bytes(self)
        _check_room(self, size, what, "take fewer nodes, or a machine with more memory")
        source, target, weights = _edges_among(self, chosen.sort().values, number, available_memory() - size, what)
        self.release()
        edges = torch.stack([source, target])
        return Graph(self.rows(chosen), edges, edge_weight=weights, **of_nodes(self, chosen))

    def in_memory(self, what: str = "the graph in memory") -> Graph:
        """Return the graph with all arrays in memory, if there is room.

        Args:
            what: Subject of the error message where it does not fit.
        """
        size = self.num_nodes * _row_bytes(self) + 28 * self.num_edges
        _check_room(self, size, what, "take some of its nodes, graph.subgraph(nodes), or a machine with more memory")
        features = rows(self.features, slice(None))
        if features.layout == torch.sparse_csr:
            parts = [each.clone() for each in (features.crow_indices(), features.col_indices(), features.values())]
            features = torch.sparse_csr_tensor(parts[0], parts[1], parts[2], features.shape, check_invariants=False)
        elif features.data_ptr() == self.features.data_ptr():
            features = features.clone()
        graph = Graph._trusted(
            features=features,
            edge_index=self.edge_index,
            labels=self.labels,
            node_ids=None if self.node_ids is None else np.array(self.node_ids),
            class_names=self.class_names,
            feature_names=self.feature_names,
            edge_weight=None if self.edge_weight is None else self.edge_weight.clone(),
        )
        self.release()
        return graph

    def __reduce__(self) -> Any:
        """Pickle the path, the labels and the names; the other process opens the files again."""
        fields = {name: getattr(self, name) for name in ("labels", "class_names", "feature_names")}
        ids = None if isinstance(self.node_ids, Mapped) else self.node_ids
        return reopened, (self.path, self.content, fields, ids, self.edge_weight is not None)


def _edge_index(graph: PackedGraph) -> Tensor:
    edges = graph.in_edges
    _check_room(graph, 24 * edges.num_edges, "edge_index", "graph.in_edges has the edges without taking memory")
    edges.check(0, edges.num_nodes)
    return torch.stack([edges.sources.long(), edges.targets(0, edges.num_nodes)])


def _edges_among(
    graph: PackedGraph, nodes: Tensor, number: Tensor, room: int, what: str
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the edges among sorted nodes, with their new numbers, and their weights."""
    edges = graph.in_edges
    chunks: list[tuple[Tensor, ...]] = []
    counts = (edges.starts[nodes + 1] - edges.starts[nodes]).cumsum(0)
    first, used = 0, 0
    while first < len(nodes):
        done = int(counts[first - 1]) if first else 0
        last = max(first + 1, int(torch.searchsorted(counts, done + CHUNK, right=True)))
        degrees, places = row_places(edges.starts, nodes[first:last], edges.num_edges)
        source = edges.sources[places].long()
        if bool(((source < 0) | (source >= edges.num_nodes)).any()):
            raise changed(graph.path, "sources", "an edge comes from a node that does not exist")
        source = number[source]
        inside = source >= 0
        target = torch.repeat_interleave(number[nodes[first:last]], degrees)[inside]
        weights = () if edges.weights is None else (edges.weights[places[inside]],)
        chunks.append((source[inside], target, *weights))
        first, used = last, used + 48 * len(target)
        if used > room:
            raise GraphError(f"{what}: its edges do not fit into the {in_units(room)} of memory that are left")
    empty = (number.new_empty(0),) * 2 + (() if edges.weights is None else (edges.weights[:0],))
    joined = [torch.cat(parts) for parts in zip(*chunks, strict=True)] if chunks else list(empty)
    return joined[0].long(), joined[1].long(), joined[2] if edges.weights is not None else None


def _row_bytes(graph: Graph) -> int:
    """Return the memory that features, label and id of a node take, on average."""
    ids = 0 if graph.node_ids is None else graph.node_ids.itemsize
    if graph.features.layout == torch.sparse_csr:
        return 8 * graph.features.values().numel() // graph.num_nodes + 16 + ids
    return 4 * graph.num_features + 8 + ids


def _check_room(graph: PackedGraph, size: int, what: str, remedy: str) -> None:
    room = available_memory()
    if size > room:
        sizes = f"{what} would take {in_units(size)} of memory, and {in_units(room)} are left"
        raise GraphError(f"{graph.path}: {sizes}; {remedy}")


def verify_packed(path: Path) -> None:
    """Read all of a packed graph and compare checksums."""
    head, entries, _ = open_arrays(path)
    for name, entry in entries.items():
        check_array(path / f"{name}.npy", name, entry, head)


def open_packed(path: Path) -> PackedGraph:
    """Open a packed graph."""
    head, entries, maps = open_arrays(path)
    arrays = {name: each.array for name, each in maps.items()}
    labels = torch.from_numpy(arrays["labels"].astype(np.int64))
    maps["labels"].release()
    weights = torch.from_numpy(arrays["weights"]) if "weights" in arrays else None
    if "features" in arrays:
        features = torch.from_numpy(arrays["features"])
    else:
        starts, columns, values = (torch.from_numpy(arrays[name]) for name in SPARSE)
        shape = (head["nodes"], head["features"])
        features = torch.sparse_csr_tensor(starts, columns, values, shape, check_invariants=False)
    ids = arrays["node_ids"].view(Mapped) if "node_ids" in arrays else None
    if ids is not None:
        ids.flags.writeable = False
    names = head["feature_names"]
    return PackedGraph._trusted(
        features=features,
        labels=labels,
        node_ids=ids,
        class_names=tuple(head["class_names"]),
        feature_names=None if names is None else tuple(names),
        _edges=Edges(torch.from_numpy(arrays["starts"]), torch.from_numpy(arrays["sources"]), weights),
        _content=head["content"],
        _path=path.absolute(),
        _maps=tuple(maps.values()),
        ids_digest=entries["node_ids"].digest if "node_ids" in entries else "",
        _split=arrays.get("split"),
    )


class Mapped(np.ndarray[Any, Any]):
    """An array that is mapped from a file."""


def reopened(path: Path, content: str, fields: dict[str, Any], ids: NDArray[Any] | None, weighted: bool) -> PackedGraph:
    """Open a packed graph again, with these fields, if its content is still the same."""
    graph = open_packed(path)
    graph = graph if weighted else graph.unweighted()
    if graph.content != content:
        raise GraphError(f"{path}: another graph has been packed here since it was opened; open it again")
    if ids is not None:
        ids.flags.writeable = False
        fields = fields | {"node_ids": ids, "ids_digest": hash_of(ids)}
    return graph._with_fields(**fields)
