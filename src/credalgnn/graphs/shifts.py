"""Shifts beyond leave-out-class, for tests of what uncertainty responds to; seeded, and part of the fingerprint."""

from __future__ import annotations

import torch
from torch import Tensor

from .errors import GraphError
from .split import Split, seeded
from .task import Task


def fewer_labels(task: Task, share: float, seed: int) -> Task:
    """See ``Task.fewer_labels``.

    Args:
        task: What to change.
        share: The share of training nodes that stay.
        seed: Which of them.
    """
    order, _ = _order(len(task.split.train), share, seed)
    labels = task.train_labels[order]
    wanted = max(1, round(share * len(order)))
    place = torch.arange(len(order))
    first = torch.full((task.num_classes,), len(order)).scatter_reduce(0, labels, place, "amin")
    chosen = place < wanted
    chosen[first[first < len(order)]] = True  # at least one of each class that has any
    kept = order[chosen].sort().values
    split = Split(task.split.train[kept], task.split.val, task.split.test)
    return task.shifted(f"fewer_labels({share}, seed={seed})", split=split, train_labels=task.train_labels[kept])


def label_noise(task: Task, share: float, seed: int) -> Task:
    """See ``Task.label_noise``.

    Args:
        task: What to change.
        share: The share of training nodes that are changed.
        seed: Which of them.
    """
    chosen, generator = _chosen(len(task.split.train), share, seed)
    labels = task.train_labels.clone()
    step = torch.randint(1, task.num_classes, (len(chosen),), generator=generator)
    labels[chosen] = (labels[chosen] + step) % task.num_classes
    return task.shifted(f"label_noise({share}, seed={seed})", train_labels=labels)


def fewer_ood(task: Task, share: float, seed: int) -> Task:
    """See ``Task.fewer_ood``.

    Args:
        task: What to change.
        share: The share of OOD nodes that stay.
        seed: Which of them.
    """
    if not task.ood_classes:
        raise GraphError("no class is left out of this task, so there are no OOD nodes to take out of its graph")
    is_ood = torch.isin(task.graph.labels, torch.tensor(task.ood_classes))
    nodes = is_ood.nonzero().squeeze(-1)
    order, _ = _order(len(nodes), share, seed)
    tested = torch.isin(nodes[order], task.split.test)
    order = torch.cat([order[tested], order[~tested]])  # those that detection is judged by go last
    kept = ~is_ood
    kept[nodes[order[: max(1, round(share * len(order)))]]] = True
    chosen = kept.nonzero().squeeze(-1)
    number = torch.full((task.graph.num_nodes,), -1)
    number[chosen] = torch.arange(len(chosen))
    parts = (number[part] for part in (task.split.train, task.split.val, task.split.test))
    split = Split(*(part[part >= 0] for part in parts))
    shift = f"fewer_ood({share}, seed={seed})"
    shifted = number[task.shifted_nodes]
    return task.shifted(shift, graph=task.graph.subgraph(chosen), split=split, shifted_nodes=shifted[shifted >= 0])


def feature_noise(task: Task, share: float, std: float, seed: int) -> Task:
    """See ``Task.feature_noise``.

    Args:
        task: What to change.
        share: The share of test nodes that are changed.
        std: The standard deviation of the noise.
        seed: Which of them.
    """
    if not 0.0 < std < float("inf"):
        raise GraphError(f"std must be a positive number, not {std}")
    nodes, generator = _test_nodes(task, share, seed)
    matrix = task.graph.in_memory("a graph with noisy features").features
    noise = std * torch.randn(len(nodes), matrix.shape[1], generator=generator)
    shift = f"feature_noise({share}, std={std}, seed={seed})"
    if matrix.layout != torch.sparse_csr:
        features = matrix.clone()
        features[nodes] += noise
        return _with_features(task, features, nodes, shift)
    # Only the rows of chosen nodes become dense: the others stay as sparse as they are.
    sizes = matrix.crow_indices().diff()
    rows = torch.repeat_interleave(torch.arange(matrix.shape[0]), sizes)
    number = torch.full((matrix.shape[0],), -1)
    number[nodes] = torch.arange(len(nodes))
    chosen = number[rows] >= 0
    noise[number[rows[chosen]], matrix.col_indices()[chosen]] += matrix.values()[chosen]
    sizes = sizes.clone()
    sizes[nodes] = matrix.shape[1]
    starts = torch.cat([torch.zeros(1, dtype=sizes.dtype), sizes.cumsum(0)])
    columns, values = torch.empty(int(starts[-1]), dtype=torch.int64), torch.empty(int(starts[-1]))
    filled = torch.zeros(len(values), dtype=torch.bool)
    places = (starts[nodes][:, None] + torch.arange(matrix.shape[1])).reshape(-1)
    filled[places] = True
    columns[places], values[places] = torch.arange(matrix.shape[1]).repeat(len(nodes)), noise.reshape(-1)
    columns[~filled], values[~filled] = matrix.col_indices()[~chosen].long(), matrix.values()[~chosen]
    noisy = torch.sparse_csr_tensor(starts, columns, values, matrix.shape, check_invariants=False)
    return _with_features(task, noisy, nodes, shift)


def feature_removal(task: Task, share: float, seed: int) -> Task:
    """See ``Task.feature_removal``.

    Args:
        task: What to change.
        share: The share of test nodes that are changed.
        seed: Which of them.
    """
    nodes, _ = _test_nodes(task, share, seed)
    shift = f"feature_removal({share}, seed={seed})"
    matrix = task.graph.in_memory("a graph without some features").features
    if matrix.layout != torch.sparse_csr:
        features = matrix.clone()
        features[nodes] = 0.0
        return _with_features(task, features, nodes, shift)
    rows = torch.repeat_interleave(torch.arange(matrix.shape[0]), matrix.crow_indices().diff())
    gone = torch.zeros(matrix.shape[0], dtype=torch.bool)
    gone[nodes] = True
    values = matrix.values().masked_fill(gone[rows], 0.0)
    emptied = torch.sparse_csr_tensor(
        matrix.crow_indices(), matrix.col_indices(), values, matrix.shape, check_invariants=False
    )
    return _with_features(task, emptied, nodes, shift)


def rewired(task: Task, share: float, seed: int) -> Task:
    """See ``Task.rewired``.

    Args:
        task: What to change.
        share: The share of test nodes that are changed.
        seed: Which of them.
    """
    nodes, generator = _test_nodes(task, share, seed)
    whole = task.graph.in_memory("a graph with other edges")
    count = whole.num_nodes
    chosen = torch.zeros(count, dtype=torch.bool)
    chosen[nodes] = True
    edges = whole.edge_index.clone()
    low, high = edges.min(0).values, edges.max(0).values
    # One draw for a pair of nodes, whatever its direction: an edge in both directions stays one.
    pairs, pair = torch.unique(low * count + high, return_inverse=True)
    drawn = torch.randint(0, count, (len(pairs),), generator=generator)[pair]
    kept = torch.where(chosen[low], low, high)  # the end at a chosen node
    moved = chosen[low] | chosen[high]
    for end, other in ((0, 1), (1, 0)):
        edges[end] = torch.where(moved & (whole.edge_index[other] == kept), drawn, edges[end])
    loops = moved & (whole.edge_index[0] == whole.edge_index[1])
    edges[0] = torch.where(loops, kept, edges[0])
    graph = whole.replace(edge_index=edges, edge_weight=whole.edge_weight)
    ends = whole.edge_index[:, whole.edge_index[0] != whole.edge_index[1]]
    nodes = nodes[torch.isin(nodes, ends)]  # a node without neighbours has not changed
    return task.shifted(f"rewired({share}, seed={seed})", graph=graph, shifted_nodes=_union(task, nodes))


def _order(count: int, share: float, seed: int) -> tuple[Tensor, torch.Generator]:
    """A random order of 0..count-1, and the generator it came from, for what else is random."""
    if not 0.0 < share <= 1.0:
        raise GraphError(f"share must be above 0 and at most 1, not {share}")
    generator = seeded(seed)
    return torch.randperm(count, generator=generator), generator


def _chosen(count: int, share: float, seed: int) -> tuple[Tensor, torch.Generator]:
    order, generator = _order(count, share, seed)
    return order[: max(1, round(share * count))].sort().values, generator


def _test_nodes(task: Task, share: float, seed: int) -> tuple[Tensor, torch.Generator]:
    chosen, generator = _chosen(len(task.split.test), share, seed)
    return task.split.test[chosen], generator


def _with_features(task: Task, features: Tensor, nodes: Tensor, shift: str) -> Task:
    return task.shifted(shift, graph=task.graph.replace(features=features), shifted_nodes=_union(task, nodes))


def _union(task: Task, nodes: Tensor) -> Tensor:
    both: Tensor = torch.unique(torch.cat([task.shifted_nodes, nodes]))
    return both
