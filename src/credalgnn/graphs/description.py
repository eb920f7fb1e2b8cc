"""What a graph looks like, in numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from .graph import Graph


@dataclass(frozen=True)
class Description:
    """What a graph looks like, in numbers.

    Args:
        nodes: How many nodes.
        edges: How many directed edges.
        features: How many feature columns.
        density: The share of features that are not 0.
        class_counts: How many nodes each class has, by its name.
        unlabelled: How many nodes have no label.
        homophily: The share of edges between nodes of one class, of those whose ends both have a label.
        isolated: How many nodes have no edge.
        self_loops: How many edges go from a node to itself.
        duplicate_edges: How many edges repeat another one.
        empty_features: How many nodes have no feature but 0.
        directed: Whether some edge has no counterpart in the other direction.
        weights: The smallest and the largest edge weight; None where edges have none.
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
    """See ``Graph.describe``.

    Args:
        graph: What to describe.
    """
    source, target = graph.edge_index
    count = graph.num_nodes
    code = source * count + target
    unique = torch.unique(code)
    touched = torch.zeros(count, dtype=torch.bool)
    touched[source] = True
    touched[target] = True
    reverse = torch.unique(target * count + source)
    known = (graph.labels[source] >= 0) & (graph.labels[target] >= 0)
    same = graph.labels[source][known] == graph.labels[target][known]
    if graph.features.layout == torch.sparse_csr:
        filled = graph.features.values() != 0
        rows = torch.repeat_interleave(torch.arange(count), graph.features.crow_indices().diff())[filled]
        active, nonempty = int(filled.sum()), len(torch.unique(rows))
    else:
        filled = graph.features != 0
        active, nonempty = int(filled.sum()), int(filled.any(1).sum())
    counts = torch.bincount(graph.labels[graph.labels >= 0], minlength=graph.num_classes).tolist()
    weights = graph.edge_weight
    return Description(
        nodes=count,
        edges=graph.num_edges,
        features=graph.num_features,
        density=active / (count * graph.num_features),
        class_counts=dict(zip(graph.class_names, counts, strict=True)),
        unlabelled=int((graph.labels < 0).sum()),
        homophily=float(same.double().mean()) if len(same) else float("nan"),
        isolated=int((~touched).sum()),
        self_loops=int((source == target).sum()),
        duplicate_edges=graph.num_edges - len(unique),
        empty_features=count - nonempty,
        directed=not torch.equal(unique, reverse),
        weights=None if weights is None else (float(weights.min()), float(weights.max())),
    )


def local_homophily(graph: Graph) -> Tensor:
    """Of each node the share of its labelled in-neighbours that have its label, float64 ``[N]``; NaN without any.

    Args:
        graph: The graph, with its labels.
    """
    source, target = graph.edge_index
    known = (graph.labels[source] >= 0) & (graph.labels[target] >= 0) & (source != target)
    source, target = source[known], target[known]
    degree = torch.bincount(target, minlength=graph.num_nodes)
    alike = (graph.labels[source] == graph.labels[target]).double()
    return torch.zeros(graph.num_nodes, dtype=torch.float64).index_add_(0, target, alike) / degree
