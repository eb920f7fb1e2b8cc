"""Shifts: what each changes, and that nothing else does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from credalgnn.graphs import Graph, Split, Task
from small_tasks import NAMES, raises, task_of, toy

ALL: dict[str, Callable[..., Task]] = {
    "fewer_labels": lambda task, share=0.3, **o: task.fewer_labels(share, **o),
    "label_noise": lambda task, share=0.3, **o: task.label_noise(share, **o),
    "feature_noise": lambda task, share=0.3, **o: task.feature_noise(share, **o),
    "feature_removal": lambda task, share=0.3, **o: task.feature_removal(share, **o),
    "rewired": lambda task, share=0.3, **o: task.rewired(share, **o),
}


@pytest.mark.parametrize("name", ALL)
def test_shifts_are_seeded_recorded_and_checked(name: str) -> None:
    task, shift = task_of(), ALL[name]
    before = task.fingerprint
    one, again, other = shift(task), shift(task), shift(task, seed=1)
    assert one.fingerprint == again.fingerprint
    assert len({before, one.fingerprint, other.fingerprint, shift(task, 0.6).fingerprint}) == 4
    for field in ("features", "edge_index", "labels"):
        assert torch.equal(getattr(one.training.graph, field), getattr(again.training.graph, field))
    assert torch.equal(one.training.train, again.training.train)
    assert torch.equal(one.shifted_nodes, again.shifted_nodes)
    changed = [
        not torch.equal(one.training.train, other.training.train),
        *(
            not torch.equal(getattr(one.training.graph, field), getattr(other.training.graph, field))
            for field in ("features", "edge_index", "labels")
        ),
    ]
    assert any(changed)
    assert len(one.shifts) == 1
    assert name in one.shifts[0]
    twice = shift(one, seed=1)
    assert len(twice.shifts) == 2
    assert twice.fingerprint not in {one.fingerprint, other.fingerprint}
    assert task.fingerprint == before  # the task itself stays
    assert task.shifts == ()
    for part in ("validation", "test"):
        for field in ("nodes", "labels", "is_ood"):
            assert torch.equal(getattr(getattr(task, part), field), getattr(getattr(one, part), field))
    assert torch.equal(task.training.val, one.training.val)
    for share in (0.0, -0.1, 1.1, float("nan")):
        raises(lambda share=share: shift(task, share), "share", str(share))  # type: ignore[misc]
    torch.manual_seed(0)
    drawn = torch.rand(1)
    torch.manual_seed(0)
    shift(task)
    assert torch.equal(torch.rand(1), drawn)


def unchanged(task: Task, shifted: Task, *fields: str) -> None:
    for field in fields:
        assert torch.equal(getattr(task.training.graph, field), getattr(shifted.training.graph, field))


def test_fewer_ood_nodes_leave_the_graph_those_of_the_test_part_last() -> None:
    """Known nodes keep features, labels, parts and the edges among them; the numbering closes the gaps."""
    graph = Graph(
        np.arange(10, dtype=np.float32)[:, None] + 1.0,
        [[0, 1, 2, 3, 8, 9], [1, 2, 3, 4, 9, 0]],
        [0, 1, 2, 1, 2, 0, 0, 0, 1, 2],
    )
    split = Split(torch.tensor([1, 2, 5]), torch.tensor([3, 4, 6]), torch.tensor([0, 7, 8, 9]))
    task = Task.leave_out(graph, [0], split)
    fewer = task.fewer_ood(0.5)  # of 0, 5, 6 and 7; 0 and 7 are in the test part
    assert fewer.graph.features.squeeze(1).tolist() == [1.0, 2.0, 3.0, 4.0, 5.0, 8.0, 9.0, 10.0]
    assert fewer.split.train.tolist() == [1, 2]
    assert fewer.split.val.tolist() == [3, 4]
    assert fewer.test.nodes.tolist() == [0, 5, 6, 7]
    assert fewer.test.is_ood.tolist() == [True, True, False, False]
    assert fewer.graph.edge_index.tolist() == [[0, 1, 2, 3, 6, 7], [1, 2, 3, 4, 7, 0]]
    assert torch.equal(fewer.train_labels, task.train_labels)
    assert fewer.fingerprint != task.fingerprint
    one = task.fewer_ood(0.25)
    assert int(one.test.is_ood.sum()) == 1
    assert one.graph.num_nodes == 7
    raises(lambda: task.fewer_ood(0.0), "above 0")


def test_fewer_labels_keeps_a_share_and_every_class() -> None:
    task = task_of()
    fewer = task.fewer_labels(0.25)
    before, after = set(task.training.train.tolist()), set(fewer.training.train.tolist())
    assert after < before
    assert len(after) == pytest.approx(0.25 * len(before), abs=task.num_classes)
    assert fewer.counts["train_id"] == len(after)
    labels = fewer.training.graph.labels
    assert (labels[sorted(before - after)] == -1).all()  # a dropped label cannot be read either
    kept = torch.cat([fewer.training.train, fewer.training.val])
    assert torch.equal(labels[kept], task.training.graph.labels[kept])
    unchanged(task, fewer, "features", "edge_index")
    assert len(fewer.shifted_nodes) == 0
    few = task.fewer_labels(1e-6)
    assert sorted(few.training.graph.labels[few.training.train].tolist()) == [0, 1, 2]
    assert torch.equal(task.fewer_labels(1.0).training.train, task.training.train)


def test_label_noise_changes_a_share_of_training_labels_to_other_classes() -> None:
    task = task_of(toy(3000))
    noisy = task.label_noise(0.4)
    train = task.training.train
    assert torch.equal(noisy.training.train, train)
    before, after = task.training.graph.labels, noisy.training.graph.labels
    differs = before != after
    assert int(differs.sum()) == pytest.approx(0.4 * len(train), abs=1)
    assert torch.isin(differs.nonzero()[:, 0], train).all()
    assert set(after[train].tolist()) == {0, 1, 2}
    for label in range(3):  # the two other classes, about equally often
        new = after[differs & (before == label)].bincount(minlength=3)
        assert new[label] == 0
        assert new.max() < 1.5 * new[new > 0].min()
    assert torch.equal(after[task.training.val], before[task.training.val])
    unchanged(task, noisy, "features", "edge_index")
    assert torch.equal(noisy.graph.labels, task.graph.labels)  # the truth stays the truth
    assert len(noisy.shifted_nodes) == 0


@pytest.mark.parametrize("name", ["feature_noise", "feature_removal"])
@pytest.mark.parametrize("sparse", [False, True])
def test_feature_shifts_touch_the_features_of_test_nodes(name: str, sparse: bool) -> None:
    graph = toy()
    if sparse:
        thin = sp.random(200, 60, density=0.03, random_state=0, dtype=np.float32).toarray()
        thin[:, 0] = 1
        graph = Graph(sp.csr_matrix(thin), graph.edge_index, graph.labels, class_names=NAMES)
        assert graph.features.layout == torch.sparse_csr
    task = task_of(graph)
    shifted = ALL[name](task)
    before, after = task.graph.features.to_dense(), shifted.graph.features.to_dense()
    touched = (before != after).any(1).nonzero()[:, 0]
    assert torch.equal(touched, shifted.shifted_nodes)
    assert torch.isin(touched, task.test.nodes).all()
    assert len(touched) == pytest.approx(0.3 * len(task.test.nodes), abs=1)
    assert torch.equal(shifted.training.graph.features.to_dense(), after)
    if name == "feature_removal":
        assert (after[touched] == 0).all()
    unchanged(task, shifted, "edge_index", "labels")
    assert torch.equal(shifted.training.train, task.training.train)


def test_feature_noise_has_the_asked_size() -> None:
    graph = Graph(np.ones((2000, 50), np.float32), [[0], [1]], np.arange(2000) % 5)
    task = task_of(graph)
    for std in (0.1, 3.0):
        shifted = task.feature_noise(1.0, std=std)
        noise = (shifted.graph.features - task.graph.features)[task.test.nodes]
        assert noise.std().item() == pytest.approx(std, rel=0.05)
        assert noise.mean().item() == pytest.approx(0, abs=0.05 * std)
        assert torch.equal(shifted.shifted_nodes, task.test.nodes)
    assert task.feature_noise(0.5, std=1.0).fingerprint != task.feature_noise(0.5, std=2.0).fingerprint
    for std in (-1.0, float("nan"), float("inf")):
        raises(lambda std=std: task.feature_noise(0.5, std=std), "std")  # type: ignore[misc]


def test_rewiring_touches_edges_around_test_nodes() -> None:
    task = task_of(toy(1000))
    shifted = task.rewired(0.3)
    before, after = task.graph.edge_index, shifted.graph.edge_index
    assert before.shape == after.shape
    nodes = shifted.shifted_nodes
    assert torch.isin(nodes, task.test.nodes).all()
    assert len(nodes) == pytest.approx(0.3 * len(task.test.nodes), abs=1)
    assert torch.equal(nodes, nodes.unique())
    around = torch.isin(before, nodes)
    changed = (before != after).any(0)
    assert not changed[~around.any(0)].any()  # edges elsewhere stay
    assert changed[around.any(0)].float().mean() > 0.95
    one = around.sum(0) == 1
    assert torch.equal(before[:, one][around[:, one]], after[:, one][around[:, one]])  # the shifted node keeps its end
    ends = after[:, one][~around[:, one]]
    assert torch.histc(ends.float(), bins=4, min=0, max=1000).min() > 0.15 * len(ends)
    unchanged(task, shifted, "features", "labels")
    assert torch.equal(shifted.training.graph.edge_index, after)
    assert torch.equal(shifted.training.train, task.training.train)


@pytest.mark.parametrize("name", ALL)
def test_shifts_of_inductive_tasks_stay_inductive(name: str) -> None:
    """Those of test nodes cannot be seen in training at all; the others change what it sees as they should."""
    task = task_of(toy(300), inductive=True)
    shifted = ALL[name](task)
    assert shifted.inductive
    assert shifted.fingerprint != ALL[name](replace(task, inductive=False)).fingerprint
    before, after = task.training, shifted.training
    if name == "fewer_labels":  # a node whose label is dropped is in no part, and so not in the graph
        assert after.graph.num_nodes == len(shifted.split.train) < before.graph.num_nodes
        assert torch.equal(after.graph.features, task.graph.features[shifted.split.train])
    elif name == "label_noise":
        assert float((before.graph.labels != after.graph.labels).double().mean()) == pytest.approx(0.3, abs=0.01)
        assert torch.equal(after.val_graph.labels[after.train], after.graph.labels)
        assert torch.equal(after.val_graph.labels[after.val], before.val_graph.labels[before.val])
    else:
        assert after.graph.fingerprint == before.graph.fingerprint
        assert after.val_graph.fingerprint == before.val_graph.fingerprint
        assert shifted.prediction_graph.fingerprint != task.prediction_graph.fingerprint


def test_shifts_add_up() -> None:
    task = task_of()
    both = task.feature_removal(0.2, seed=1).rewired(0.2, seed=2).label_noise(0.1)
    one, two = task.feature_removal(0.2, seed=1), task.rewired(0.2, seed=2)
    assert torch.equal(both.shifted_nodes, torch.cat([one.shifted_nodes, two.shifted_nodes]).unique())
    assert torch.equal(both.graph.features.to_dense(), one.graph.features.to_dense())
    assert torch.equal(both.graph.edge_index, two.graph.edge_index)
    assert len(both.shifts) == 3


def test_a_node_without_neighbours_is_not_rewired() -> None:
    task = task_of()
    loops = torch.arange(task.graph.num_nodes).repeat(2, 1)
    alone = replace(task, graph=task.graph.replace(edge_index=loops))
    assert len(alone.rewired(1.0).shifted_nodes) == 0


def test_noise_on_sparse_features_is_that_on_dense_ones() -> None:
    task = task_of()
    matrix = task.graph.features
    dense = matrix.to_dense() if matrix.layout == torch.sparse_csr else matrix
    results = []
    for features in (dense, dense.to_sparse_csr()):
        graph = task.graph.replace(features=features)
        results.append(replace(task, graph=graph).feature_noise(0.5, 0.3, seed=2))
    one, other = (found.graph.features.to_dense() for found in results)
    assert torch.allclose(one, other, atol=1e-6)
    assert torch.equal(results[0].shifted_nodes, results[1].shifted_nodes)
    still = torch.ones(len(dense), dtype=torch.bool)
    still[results[1].shifted_nodes] = False
    assert torch.equal(other[still], dense[still])
