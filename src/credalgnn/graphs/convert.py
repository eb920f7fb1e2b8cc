"""Conversion of other libraries' graphs, subgraphs and extended graphs, as arguments of ``Graph``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ._checks import (
    as_tensor,
    check_feature_order,
    checked_edges,
    checked_features,
    named_labels,
    node_numbers,
    rows_or_columns,
)
from .edges import INT32
from .errors import GraphError, warn

if TYPE_CHECKING:
    from torch_geometric.data import Data

    from .graph import Graph

Fields: TypeAlias = dict[str, Any]  # arguments of Graph


def from_pyg(data: Any) -> Fields:
    """See ``Graph.from_pyg``."""
    if hasattr(data, "to_homogeneous"):
        raise GraphError(
            "a HeteroData graph has nodes of several types, and models here know one: Graph.from_pyg("
            "data.to_homogeneous()), once x of all types has the same columns"
        )
    if not hasattr(data, "x") or not hasattr(data, "edge_index"):
        raise GraphError(f"a torch_geometric Data object is wanted, not {type(data).__name__}")
    if data.x is None:
        raise GraphError("data.x is missing: node features are needed (for a graph without, a column of ones)")
    if data.edge_index is None:
        raise GraphError("data.edge_index is missing (from an adj_t: torch.stack(adj_t.coo()[1::-1]))")
    ignored = sorted(set(getattr(data, "edge_attrs", list)()) - {"edge_index", "edge_weight"})
    if ignored:
        warn(
            f"{', '.join(ignored)} of the edges cannot be used and will not be in the graph; a weight of each edge "
            "belongs into data.edge_weight"
        )
    weights = getattr(data, "edge_weight", None)
    return {"features": data.x, "edge_index": data.edge_index, "labels": flat(data.y), "edge_weight": weights}


def to_pyg(graph: Graph) -> Data:
    """See ``Graph.to_pyg``."""
    from torch_geometric.data import Data

    data = Data(x=graph.features.clone(), edge_index=graph.edge_index.clone(), y=graph.labels.clone())
    if graph.edge_weight is not None:
        data.edge_weight = graph.edge_weight.clone()
    return data


def flat(labels: Any) -> Any:
    """Return labels ``[N, 1]`` as ``[N]``, others unchanged."""
    return labels.squeeze(1) if labels is not None and labels.dim() == 2 and labels.shape[1] == 1 else labels


def from_networkx(graph: Any, features: Sequence[str] | None, label: str | None, weight: str | None) -> Fields:
    """See ``Graph.from_networkx``."""
    if not (hasattr(graph, "is_directed") and hasattr(graph, "edges") and hasattr(graph, "nodes")):
        raise GraphError(f"a networkx graph is wanted, not {type(graph).__name__}")
    nodes = list(graph.nodes(data=True))
    if not nodes:
        raise GraphError("the graph has no nodes")
    chosen = list(dict.fromkeys(name for _, values in nodes for name in values)) if features is None else list(features)
    chosen = [name for name in chosen if name != label] if features is None else chosen
    if not chosen:
        raise GraphError(
            "the nodes have no attributes to make features of; if their degree will do: "
            "networkx.set_node_attributes(g, dict(g.degree), 'degree')"
        )
    columns = [_attribute(nodes, name) for name in chosen]
    names = [
        str(name) if column.ndim == 1 else f"{name}[{at}]"
        for name, column in zip(chosen, columns, strict=True)
        for at in range(1 if column.ndim == 1 else column.shape[1])
    ]
    labels, classes = (None, None) if label is None else _classes([values.get(label) for _, values in nodes], label)
    number = {node: at for at, (node, _) in enumerate(nodes)}
    edges = list(graph.edges(data=True))
    ends = np.array([(number[a], number[b]) for a, b, _ in edges], np.int64).reshape(-1, 2).T
    weights = None
    if weight is not None and any(weight in values for _, _, values in edges):
        weights = np.array([values.get(weight, 1.0) for _, _, values in edges])  # 1, as networkx has it
    elif weight not in (None, "weight"):
        raise GraphError(f"no edge has the attribute {weight!r}, which weight= names")
    if not graph.is_directed():
        back = ends[0] != ends[1]
        ends = np.concatenate([ends, ends[::-1, back]], 1)
        weights = None if weights is None else np.concatenate([weights, weights[back]])
    called = [node for node, _ in nodes]
    whole = all(isinstance(name, int | np.integer) and not isinstance(name, bool) for name in called)
    ids = np.array(called, np.int64) if whole else np.array([str(name) for name in called])
    return {
        "features": np.column_stack(columns), "edge_index": ends, "labels": labels, "node_ids": ids,
        "class_names": classes, "feature_names": names, "edge_weight": weights,
    }  # fmt: skip


def _classes(labels: list[Any], label: str) -> tuple[Any, list[str] | None]:
    """Return labels with class names; whole numbers are named by themselves, as in tables."""
    values = {value for value in labels if value is not None}
    if not values:
        raise GraphError(f"no node has the attribute {label!r}, which label= names")
    if not all(isinstance(value, int | np.integer) for value in values):
        return labels, None  # text, or refused by Graph
    numbers = {value: number for number, value in enumerate(sorted(value for value in values if value >= 0))}
    return [numbers.get(value, -1) for value in labels], [str(value) for value in numbers]


def _attribute(nodes: Iterable[tuple[Any, dict[str, Any]]], name: str) -> NDArray[np.float64]:
    """Return an attribute of all nodes: numbers ``[N]``, or lists of them ``[N, F]``."""
    values: list[Any] = []
    for node, attributes in nodes:
        value: Any = attributes.get(name)
        if value is None:
            raise GraphError(f"node {node!r} has no attribute {name!r}: give it one, or name others as `features`")
        if not isinstance(value, Real):  # includes numpy numbers except booleans
            value = np.asarray(value)
            if value.dtype.kind not in "biuf" or value.ndim > 1:
                raise GraphError(
                    f"attribute {name!r} of node {node!r} is no number and no list of numbers; name the features: "
                    "`features`"
                )
        if values and np.shape(value) != np.shape(values[0]):
            raise GraphError(f"attribute {name!r} of node {node!r} has not as many numbers as that of the first node")
        values.append(value)
    return np.array(values, np.float64)


def from_dgl(graph: Any, features: str, label: str | None, weight: str | None) -> Fields:
    """See ``Graph.from_dgl``."""
    if not (hasattr(graph, "ndata") and hasattr(graph, "edata") and hasattr(graph, "edges")):
        raise GraphError(f"a DGL graph is wanted, not {type(graph).__name__}")
    if not graph.is_homogeneous:
        raise GraphError(
            "a DGL graph with several types of nodes or edges, and models here know one: dgl.to_homogeneous(g, "
            "ndata=['feat'])"
        )
    if features not in graph.ndata:
        raise GraphError(f"g.ndata has no {features!r}, but {', '.join(map(str, graph.ndata)) or 'nothing'}: features=")
    for name, where, data in ((label, "label", graph.ndata), (weight, "weight", graph.edata)):
        if name not in (None, where) and name not in data:
            raise GraphError(f"there is no {name!r} in the graph, which {where}= names")
    return {
        "features": graph.ndata[features], "edge_index": torch.stack(tuple(graph.edges())),
        "labels": flat(graph.ndata.get(label)), "edge_weight": graph.edata.get(weight),
    }  # fmt: skip


def from_scipy(adjacency: Any, features: Any, labels: Any) -> Fields:
    """See ``Graph.from_scipy``."""
    if not hasattr(adjacency, "tocoo"):
        raise GraphError(f"a scipy sparse matrix is wanted, not {type(adjacency).__name__}: scipy.sparse.coo_array(a)")
    count = features.shape[0] if hasattr(features, "shape") else len(features)
    if adjacency.shape != (count, count):
        raise GraphError(
            f"the adjacency has shape {list(adjacency.shape)}, but there are features of {count} nodes: "
            f"[{count}, {count}] is wanted"
        )
    matrix = adjacency.tocsr(copy=True)
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    matrix = matrix.tocoo()
    weights = None if (matrix.data == 1).all() else matrix.data
    edges = np.stack([matrix.row, matrix.col])
    return {"features": features, "edge_index": edges, "labels": labels, "edge_weight": weights}


def subgraph(graph: Graph, nodes: Any) -> Fields:
    """See ``Graph.subgraph``."""
    chosen, number = renumbered(graph, nodes)
    edges = number[graph.edge_index]
    inside = (edges >= 0).all(0)
    weights = None if graph.edge_weight is None else graph.edge_weight[inside]
    features = rows_or_columns(graph.features, rows=chosen)
    return {"features": features, "edge_index": edges[:, inside], "edge_weight": weights, **of_nodes(graph, chosen)}


def renumbered(graph: Graph, nodes: Any) -> tuple[Tensor, Tensor]:
    """Return the nodes of a subgraph, and the new number of every node, -1 for those outside."""
    chosen = node_numbers(nodes, "nodes", graph.num_nodes)
    number = torch.full((graph.num_nodes,), -1, dtype=torch.int32 if len(chosen) <= INT32 else torch.int64)
    number[chosen] = torch.arange(len(chosen), dtype=number.dtype)
    twice = chosen[number[chosen] != torch.arange(len(chosen))]
    if len(twice):
        raise GraphError(f"node {int(twice[0])} occurs twice among the nodes of the subgraph")
    return chosen, number


def of_nodes(graph: Graph, nodes: Tensor) -> Fields:
    """Return the fields of a subgraph besides features and edges."""
    return {
        "labels": graph.labels[nodes], "node_ids": None if graph.node_ids is None else graph.node_ids[nodes.numpy()],
        "class_names": graph.class_names, "feature_names": graph.feature_names, "edgeless": not graph.num_edges,
    }  # fmt: skip


def with_nodes(
    graph: Graph,
    features: Any,
    edge_index: Any,
    labels: Any,
    node_ids: Sequence[Any] | NDArray[Any] | None,
    edge_weight: Any,
    feature_names: Sequence[str] | None,
) -> Fields:
    """See ``Graph.with_nodes``."""
    matrix = checked_features(features)
    if matrix.shape[1] != graph.num_features:
        raise GraphError(f"new nodes with {matrix.shape[1]} features for a graph with {graph.num_features}")
    check_feature_order(graph.feature_names, feature_names)
    count = graph.num_nodes + matrix.shape[0]
    edges = checked_edges(edge_index, count, edgeless=True)
    if edges.shape[1] and (edge_weight is None) != (graph.edge_weight is None):
        which = "the new edges have none" if edge_weight is None else "only the new edges have some"
        raise GraphError(f"either all edges have a weight or none, and {which}: edge_weight=, or graph.unweighted()")
    weights = graph.edge_weight
    if weights is not None and edge_weight is not None:
        weights = torch.cat([weights, as_tensor(edge_weight, "edge_weight").reshape(-1).to("cpu", torch.float32)])
    classes = list(graph.class_names)
    numbers: Any = torch.full((matrix.shape[0],), -1)
    if labels is not None:
        numbers, names = named_labels(labels, None)
        numbers = as_tensor(numbers, "labels")
        if names is not None:  # text: existing classes keep their numbers
            classes += [name for name in names if name not in classes]
            order = torch.tensor([*(classes.index(name) for name in names), -1])
            numbers = order[numbers]
        if numbers.shape != (matrix.shape[0],):
            raise GraphError(f"{len(numbers)} labels for {matrix.shape[0]} new nodes: one label a node")
        further = range(len(classes), int(numbers.max()) + 1)
        classes += [str(number) for number in further]
    return {
        "features": _stacked(graph.features, matrix),
        "edge_index": torch.cat([graph.edge_index, edges], 1),
        "labels": torch.cat([graph.labels, numbers.to(graph.labels)]),
        "node_ids": _all_ids(graph, node_ids, matrix.shape[0]),
        "class_names": classes,
        "feature_names": graph.feature_names if graph.feature_names is not None else feature_names,
        "edge_weight": weights,
        "edgeless": True,
    }


def _all_ids(graph: Graph, ids: Sequence[Any] | NDArray[Any] | None, count: int) -> NDArray[Any] | None:
    """Return the ids of old and new nodes."""
    if (ids is None) != (graph.node_ids is None):
        which = "new ones need some, too" if ids is None else "new ones cannot have any"
        raise GraphError(f"the nodes of the graph have {'' if ids is None else 'no '}ids, so {which}: node_ids=")
    if ids is None or graph.node_ids is None:
        return None
    new = np.asarray(ids)
    if new.shape != (count,):
        raise GraphError(f"{len(ids)} node ids for {count} new nodes: one id a node")
    if (new.dtype.kind in "iu") != (graph.node_ids.dtype.kind in "iu"):
        kinds = "numbers" if graph.node_ids.dtype.kind in "iu" else "text"
        raise GraphError(f"the ids of the graph are {kinds}, those of the new nodes are not: write them as one type")
    taken = np.flatnonzero(np.isin(new, graph.node_ids))
    if len(taken):
        raise GraphError(f"node id {new[taken[0]]!s} of new node {taken[0]} is in the graph already: ids must be new")
    return np.concatenate([graph.node_ids, new])


def _stacked(first: Tensor, second: Tensor) -> Any:
    """Return the rows of both matrices, sparse if the first one is."""
    if first.layout == torch.strided:
        return torch.cat([first, second if second.layout == torch.strided else second.to_dense()])
    from scipy.sparse import csr_array, vstack

    last = rows_or_columns(second) if second.layout != torch.strided else csr_array(second.numpy())
    return vstack([rows_or_columns(first), last], format="csr")
