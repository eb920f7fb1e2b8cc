"""Descriptive statistics of graphs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .edges import row_chunks

if TYPE_CHECKING:
    from .graph import Graph


@dataclass(frozen=True)
class Description:
    """Descriptive statistics of a graph, returned by ``Graph.describe``; ``print`` shows them.

    Args:
        nodes: Number of nodes.
        edges: Number of directed edges.
        features: Number of features.
        density: Share of features that are not 0.
        class_counts: Number of nodes of each class, by name.
        unlabelled: Number of nodes without a label.
        homophily: Share of edges between nodes of the same class, among edges whose ends are both labelled.
        isolated: Number of nodes without edges.
        self_loops: Number of edges from a node to itself.
        duplicate_edges: Number of edges that repeat another one.
        empty_features: Number of nodes whose features are all 0.
        directed: Some edge has no counterpart in the other direction.
        weights: Smallest and largest edge weight; None if unweighted.
    """

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
    weights: tuple[float, float] | None = None

    def __str__(self) -> str:
        counts = ", ".join(f"{name}: {count:,}" for name, count in list(self.class_counts.items())[:45])
        weights = "" if self.weights is None else ", weights {:.4g} to {:.4g}".format(*self.weights)
        lines = {
            "nodes": f"{self.nodes:,} ({self.isolated:,} isolated, {self.unlabelled:,} without a label)",
            "edges": f"{self.edges:,} {'directed' if self.directed else 'in both directions'} "
            f"({self.self_loops:,} self-loops, {self.duplicate_edges:,} duplicates{weights})",
            "features": f"{self.features:,} (density {self.density:.2%}, {self.empty_features:,} nodes without any)",
            "classes": f"{len(self.class_counts)} ({counts})",
            "edge homophily": f"{self.homophily:.3f}",
        }
        return "\n".join(f"{name:15s} {text}" for name, text in lines.items())


def describe(graph: Graph) -> Description:
    """See ``Graph.describe``."""
    from ._edge_kernels import count_edges, count_filled  # here, as numba takes long to load

    count, edges = graph.num_nodes, graph.in_edges
    labels, touched = _narrow(graph), np.zeros(count, np.bool_)
    totals, balance = np.zeros(4, np.int64), np.zeros(1, np.uint64)
    smallest, largest = float("inf"), 0.0
    for first, last in edges.chunks():
        starts = edges.starts[first : last + 1]
        here = slice(int(starts[0]), int(starts[-1]))
        sources = edges.sources[here].clone()  # which is sorted
        count_edges((starts - starts[0]).numpy(), sources.numpy(), first, labels, touched, totals, balance)
        if edges.weights is not None and len(sources):
            smallest = min(smallest, float(edges.weights[here].min()))
            largest = max(largest, float(edges.weights[here].max()))
        graph.release()
    loops, duplicates, labelled, same = totals.tolist()
    filled = np.zeros(2, np.int64)
    for chunk in row_chunks(graph.features):
        rows = graph.rows(chunk)
        if rows.layout == torch.sparse_csr:
            filled += _filled(rows)
        else:
            count_filled(rows.numpy(), filled)
        graph.release()
    active, nonempty = filled.tolist()
    counts = torch.bincount(graph.labels[graph.labels >= 0], minlength=graph.num_classes).tolist()
    return Description(
        nodes=count,
        edges=graph.num_edges,
        features=graph.num_features,
        density=active / (count * graph.num_features),
        class_counts=dict(zip(graph.class_names, counts, strict=True)),
        unlabelled=int((graph.labels < 0).sum()),
        homophily=same / labelled if labelled else float("nan"),
        isolated=int(count - touched.sum()),
        self_loops=loops,
        duplicate_edges=duplicates,
        empty_features=count - nonempty,
        directed=bool(balance[0]),
        weights=None if edges.weights is None or not edges.num_edges else (smallest, largest),
    )


def local_homophily(graph: Graph) -> Tensor:
    """Return each node's share of labelled in-neighbours with the same label, float64 ``[N]``; NaN without any.

    Args:
        graph: The graph with its labels.
    """
    from ._edge_kernels import count_alike

    edges, labels = graph.in_edges, _narrow(graph)
    labelled, alike = np.zeros(graph.num_nodes, np.int32), np.zeros(graph.num_nodes, np.int32)
    for first, last in edges.chunks():
        starts = edges.starts[first : last + 1]
        sources = edges.sources[int(starts[0]) : int(starts[-1])]
        count_alike((starts - starts[0]).numpy(), sources.numpy(), first, labels, labelled, alike)
        graph.release()
    return torch.from_numpy(alike).double() / torch.from_numpy(labelled)


def num_pairs(graph: Graph, most: int = 1 << 24) -> int:
    """Count the distinct unordered pairs of nodes that edges join, holding at most about ``most`` edges in memory."""
    edges, count = graph.in_edges, graph.num_nodes
    parts = -(-edges.num_edges // most)  # of pairs, by their smaller node; each is a pass over all edges
    pairs = 0
    for part in range(parts):
        codes = []
        for first, last in edges.chunks():
            source, target = (
                edges.sources[int(edges.starts[first]) : int(edges.starts[last])],
                edges.targets(first, last),
            )
            low, high = torch.minimum(source, target), torch.maximum(source, target)
            code = low * count + high
            codes.append(code if parts == 1 else code[low % parts == part])
            graph.release()
        pairs += len(np.unique(torch.cat(codes).numpy()))
    return pairs


def _filled(rows: Tensor) -> tuple[int, int]:
    """Count the numbers of sparse rows that are not 0, and the rows that have one."""
    filled = rows.values() != 0
    through = torch.cat([torch.zeros(1, dtype=torch.int64), filled.cumsum(0)])[rows.crow_indices().long()]
    return int(filled.sum()), int((through.diff() > 0).sum())


def _narrow(graph: Graph) -> NDArray[Any]:
    """Return labels in few bytes: they are looked up in random order, and caches hold more of them."""
    return graph.labels.numpy().astype(np.int16 if graph.num_classes < 2**15 else np.int64)
