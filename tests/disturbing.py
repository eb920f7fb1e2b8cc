"""Tasks that differ in what an inductive training must not see, and in nothing else."""

from __future__ import annotations

from dataclasses import replace

import torch

from credalgnn.graphs import Graph, Task


def disturbed(task: Task, seed: int = 0) -> Task:
    """The task with other features, edges and labels of all nodes that neither train nor validate as known ones.

    The edges among the rest stay in their order, somewhere between the new ones; ids stay as they are.
    """
    generator = torch.Generator().manual_seed(seed)
    graph, count = task.graph, task.graph.num_nodes
    hidden = torch.ones(count, dtype=torch.bool)
    hidden[task.split.train] = False
    hidden[task.validation.nodes[~task.validation.is_ood]] = False
    unseen = hidden.nonzero().squeeze(-1)
    features = graph.features.to_dense().clone()
    features[unseen] = 100.0 * torch.randn(len(unseen), features.shape[1], generator=generator)
    kept = graph.edge_index[:, ~hidden[graph.edge_index].any(0)]
    ends = unseen[torch.randint(len(unseen), (4 * count,), generator=generator)]
    others = torch.randint(count, (4 * count,), generator=generator)
    new = torch.cat([torch.stack([ends, others]), torch.stack([others, ends])], 1)
    is_new = torch.ones(kept.shape[1] + new.shape[1], dtype=torch.bool)
    is_new[torch.randperm(len(is_new), generator=generator)[: kept.shape[1]]] = False
    edges = torch.empty(2, len(is_new), dtype=torch.int64)
    edges[:, ~is_new], edges[:, is_new] = kept, new
    labels = graph.labels.clone()
    labels[unseen] = task.ood_classes[-1]
    disturbed = Graph(features, edges, labels, node_ids=graph.node_ids, class_names=graph.class_names)
    return replace(task, graph=disturbed)
