"""Tasks: who is in which part, that training cannot see what it is judged on, and shifts that touch only theirs."""

from __future__ import annotations

import gc
import types
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from credalgnn.graphs import Graph, Split, Task, TrainingView, load_task
from disturbing import disturbed
from small_tasks import CLASSES, NAMES, raises, task_of, toy, village


def hand_made() -> Task:
    graph = Graph(np.eye(8, dtype=np.float32) + 1, [[0, 1], [1, 2]], [0, 1, 2, 2, 1, 0, 2, 1], class_names=NAMES[:3])
    split = Split(torch.tensor([0, 1, 2]), torch.tensor([3, 5]), torch.tensor([4, 6, 7]))
    return Task.leave_out(graph, [0], split=split)


def test_leave_out_by_hand() -> None:
    task = hand_made()
    assert task.ood_classes == (0,)
    assert task.id_classes == (1, 2)
    assert task.num_classes == 2
    assert task.class_names == ("bee", "cat")
    assert task.counts == {"train_id": 2, "val_id": 1, "val_ood": 1, "test_id": 3, "test_ood": 0}
    assert task.graph.labels.tolist() == [0, 1, 2, 2, 1, 0, 2, 1]
    view = task.training
    assert view.train.tolist() == [1, 2]
    assert view.val.tolist() == [3]
    assert view.graph.labels.tolist() == [-1, 0, 1, 1, -1, -1, -1, -1]
    assert view.num_classes == 2
    assert view.class_names == view.graph.class_names == ("bee", "cat")
    assert view.fingerprint == task.fingerprint
    assert torch.equal(view.graph.features, task.graph.features)
    assert torch.equal(view.graph.edge_index, task.graph.edge_index)
    assert task.validation.nodes.tolist() == [3, 5]
    assert task.validation.labels.tolist() == [1, -1]
    assert task.validation.is_ood.tolist() == [False, True]
    assert task.test.nodes.tolist() == [4, 6, 7]
    assert task.test.labels.tolist() == [0, 1, 0]
    assert task.test.is_ood.tolist() == [False, False, False]
    assert task.test.is_ood.dtype == torch.bool
    assert task.shifts == ()


def test_unlabelled_nodes_are_in_no_part() -> None:
    """Nobody knows whether a node without a label is in distribution, so it can neither train nor be judged."""
    labels = np.random.default_rng(0).integers(CLASSES, size=200)
    labels[::4] = -1
    task = task_of(toy(labels=labels))
    unknown = set(range(0, 200, 4))
    for nodes in (task.training.train, task.training.val, task.validation.nodes, task.test.nodes):
        assert not unknown & set(nodes.tolist())


@settings(max_examples=60, deadline=None)
@given(
    nodes=st.integers(60, 400),
    seed=st.integers(0, 2**31 - 1),
    graph_seed=st.integers(0, 99),
    ood=st.sets(st.integers(0, CLASSES - 1), min_size=1, max_size=CLASSES - 2),
)
def test_parts_are_disjoint_and_train_has_no_ood_node(nodes: int, seed: int, graph_seed: int, ood: set[int]) -> None:
    graph = toy(nodes, graph_seed)
    split = Split.random(nodes, seed)
    sizes = (nodes * 6 // 10, nodes * 2 // 10)
    assert (len(split.train), len(split.val), len(split.test)) == (*sizes, nodes - sum(sizes))
    everything = torch.cat([split.train, split.val, split.test])
    assert torch.equal(everything.sort().values, torch.arange(nodes))  # no overlap, nobody lost
    for part in (split.train, split.val, split.test):
        assert part.dtype == torch.int64
        assert torch.equal(part, part.sort().values)
    task = Task.leave_out(graph, sorted(ood), split_seed=seed)
    parts = [set(nodes.tolist()) for nodes in (task.training.train, task.validation.nodes, task.test.nodes)]
    assert not parts[0] & parts[1]
    assert not parts[0] & parts[2]
    assert not parts[1] & parts[2]
    truth = graph.labels.numpy()
    assert not np.isin(truth[task.training.train], list(ood)).any()
    assert not np.isin(truth[task.training.val], list(ood)).any()
    assert parts == [parts[0], set(split.val.tolist()), set(split.test.tolist())]
    assert parts[0] == {node for node in split.train.tolist() if truth[node] not in ood}
    rank = {label: index for index, label in enumerate(sorted(set(range(CLASSES)) - ood))}
    for part in (task.validation, task.test):
        expected = [rank.get(label, -1) for label in truth[part.nodes].tolist()]
        assert part.labels.tolist() == expected
        assert part.is_ood.tolist() == [label == -1 for label in expected]
    seen = task.training.graph.labels.numpy()
    visible = torch.cat([task.training.train, task.training.val]).numpy()
    assert [rank[label] for label in truth[visible].tolist()] == seen[visible].tolist()
    assert (np.delete(seen, visible) == -1).all()
    counts = task.counts
    assert counts["train_id"] == len(task.training.train)
    assert counts["val_id"] == len(task.training.val) == int((~task.validation.is_ood).sum())
    assert counts["val_ood"] + counts["val_id"] == len(split.val)
    assert counts["test_ood"] + counts["test_id"] == len(split.test)


@pytest.mark.parametrize(
    ("ood", "words"),
    [
        ([7], ["7", "classes 0..4"]),
        ([-1], ["-1"]),
        ([0, 1, 2, 3, 4], ["all"]),
        ([0, 1, 2, 3], ["one", "2"]),
        (["cta"], ["'cta'", "did you mean cat?"]),
        ("zebra", ["'zebra'", "choose from ant, bee, cat, dog, owl"]),
        (["7"], ["'7'", "classes 0..4"]),
        ([1.0], ["1.0", "numbers or names"]),
        ([True], ["True", "classes 0..4"]),
        (None, ["None", "numbers or names"]),
        ([None], ["None", "numbers or names"]),
    ],
)
def test_bad_classes_are_refused(ood: Any, words: list[str]) -> None:
    raises(lambda: Task.leave_out(toy(), ood), *words)


@pytest.mark.parametrize(
    "ood",
    [[1, 3], ["dog", "bee"], ("bee", 3), ["1", "3"], np.array([3, 1]), torch.tensor([1, 3]), {1, 3}, range(1, 4, 2)],
)
def test_classes_by_number_or_name(ood: Any) -> None:
    task = Task.leave_out(toy(), ood)
    assert task.ood_classes == (1, 3)
    assert task.fingerprint == task_of().fingerprint


def test_a_single_class_and_names_that_are_numbers() -> None:
    assert {Task.leave_out(toy(), ood).ood_classes for ood in (1, "bee", "1", np.int64(1))} == {(1,)}
    years = toy().replace(class_names=["1", "2", "3", "4", "5"])
    assert Task.leave_out(years, "1").ood_classes == (0,)  # text is a name first
    assert Task.leave_out(years, 1).ood_classes == (1,)


@pytest.mark.parametrize("inductive", [False, True])
def test_a_task_without_left_out_classes(inductive: bool) -> None:
    task = Task.leave_out(toy(), (), inductive=inductive)
    assert task.ood_classes == ()
    assert task.class_names == tuple(NAMES)
    assert task.counts == {"train_id": 120, "val_id": 40, "val_ood": 0, "test_id": 40, "test_ood": 0}
    assert not task.test.is_ood.any()
    assert torch.equal(task.test.labels, task.graph.labels[task.test.nodes])
    assert task.training.num_classes == CLASSES
    assert len(task.training.train) == 120
    assert task.fingerprint != Task.leave_out(toy(), 0, inductive=inductive).fingerprint
    assert len(task.fewer_labels(0.5).split.train) == 60
    raises(lambda: task.fewer_ood(0.5), "no class is left out")


def test_the_source_is_told_and_not_part_of_the_task() -> None:
    task = Task.leave_out(toy(), 1, source="file: toy.npz")
    assert task.source == task.fewer_labels(0.5).source == "file: toy.npz"
    assert task.fingerprint == Task.leave_out(toy(), 1).fingerprint


def test_a_graph_without_labels_makes_no_task() -> None:
    raises(lambda: task_of(Graph(np.ones((9, 1)), [[0], [1]])), "no labels")


def test_task_fingerprints_tell_graph_classes_and_split_apart() -> None:
    tasks = [
        task_of(),
        task_of(toy(seed=1)),
        task_of(ood=(1, 2)),
        task_of(ood=(1,)),
        task_of(split_seed=1),
        task_of(split=Split.random(200, 2)),
    ]
    assert len({task.fingerprint for task in tasks}) == len(tasks)
    assert task_of(split=Split.random(200, 0)).fingerprint == task_of(split_seed=0).fingerprint
    assert task_of(ood=(3, 1)).fingerprint == task_of().fingerprint


# what training can reach


def reachable(root: object) -> list[np.ndarray]:
    """Every number held by anything `root` leads to, whole storages included; code and modules are not followed."""
    found: list[np.ndarray] = []
    queue, seen = [root], {}
    while queue:
        thing = queue.pop()
        if id(thing) in seen or isinstance(thing, type | types.ModuleType | types.BuiltinFunctionType):
            continue
        seen[id(thing)] = thing
        if isinstance(thing, types.FunctionType):
            queue.extend(cell.cell_contents for cell in thing.__closure__ or ())
            queue.extend(thing.__defaults__ or ())
            continue
        if isinstance(thing, torch.Tensor):
            if thing.layout == torch.sparse_csr:
                queue.extend([thing.crow_indices(), thing.col_indices(), thing.values()])
                continue
            found.append(thing.detach().numpy())
            storage = thing.untyped_storage()
            if storage.nbytes() != thing.nbytes:
                found.append(torch.empty(0, dtype=thing.dtype).set_(storage).numpy())
            if thing._base is not None:
                queue.append(thing._base)
        elif isinstance(thing, np.ndarray):
            found.append(thing)
            if thing.base is not None:
                queue.append(thing.base)
        elif isinstance(thing, list | tuple | set | frozenset) and thing and all(isinstance(i, int) for i in thing):
            found.append(np.array(sorted(thing) if isinstance(thing, set | frozenset) else thing))
        queue.extend(gc.get_referents(thing))
    return found


def leaks(root: object, task: Task) -> list[np.ndarray]:
    """Arrays that hold a label of, or single out, a node other than the ID training and validation nodes."""
    nodes = task.graph.num_nodes
    visible = torch.cat([task.training.train, task.training.val]).numpy()
    hidden = np.setdiff1d(np.arange(nodes), visible)
    edges = task.graph.in_edges
    public = [part.numpy() for part in (task.graph.features, task.graph.edge_index, edges.starts, edges.sources)]
    bad = []
    for array in reachable(root):
        if array.dtype.kind not in "biuf" or any(array.shape == p.shape and np.array_equal(array, p) for p in public):
            continue
        flat = array.reshape(-1)
        as_vector = flat.size == nodes and len(np.unique(flat[hidden])) > 1
        as_list = 1 < flat.size != nodes and np.isin(flat, hidden).any()
        if as_vector or as_list:
            bad.append(array)
    return bad


SHIFTS = {
    "fewer_labels": lambda task: task.fewer_labels(0.5),
    "label_noise": lambda task: task.label_noise(0.5),
}


def leaky_cases() -> Task:
    """Hidden nodes stand at the end and classes are many, so that no index is mistaken for a label."""
    return task_of(toy(400), ood=(1, 3))


def test_no_hidden_label_can_be_reached_from_training() -> None:
    task = leaky_cases()
    _ = task.fingerprint, task.counts, task.validation, task.test, task.graph.describe()  # whatever these may keep
    view = task.training
    assert leaks(view, task) == []
    for shift in SHIFTS.values():
        assert leaks(shift(task).training, shift(task)) == []
    assert not {"task", "test", "validation", "ood_classes", "split"} & set(dir(view))


def test_the_leak_test_sees_leaks() -> None:
    task = leaky_cases()
    view = task.training
    ood = task.test.nodes[task.test.is_ood]
    for secret in (task, task.graph, task.graph.labels, ood, ood.numpy(), task.test, {"x": [ood.tolist()]}):
        assert leaks([view, secret], task)
    padded = torch.cat([torch.zeros(3, dtype=torch.int64), task.graph.labels])
    assert leaks([view, padded[3:]], task)
    assert leaks([view, lambda: secret], task)


def test_training_is_blind_to_hidden_labels() -> None:
    """Other labels on test nodes, and other OOD labels elsewhere, leave every bit that training can reach as it was."""
    graph = toy(400)
    task = task_of(graph)
    rng = np.random.default_rng(5)
    labels = graph.labels.numpy().copy()
    visible = torch.cat([task.training.train, task.training.val]).numpy()
    test = task.test.nodes.numpy()
    others = np.setdiff1d(np.arange(400), np.concatenate([visible, test]))
    assert len(others)
    labels[others] = 4 - labels[others]  # 1 and 3 change places
    labels[test] = rng.permutation(labels[test])
    corrupt = task_of(Graph(graph.features, graph.edge_index, labels, class_names=NAMES))
    assert corrupt.fingerprint != task.fingerprint
    assert not torch.equal(corrupt.test.is_ood, task.test.is_ood)
    assert corrupt.training.graph.fingerprint == task.training.graph.fingerprint
    pairs = list(zip(reachable(task.training), reachable(corrupt.training), strict=True))
    assert len(pairs) >= 5
    for before, after in pairs:
        assert before.dtype == after.dtype
        assert np.array_equal(before, after)


# tasks in which the graph grows after training


def test_inductive_numbering_by_hand() -> None:
    task = village()
    view = task.training
    assert view.graph.node_ids.tolist() == ["n1", "n4", "n8"]
    assert view.graph.features.flatten().tolist() == [2.0, 5.0, 9.0]
    assert view.graph.edge_index.tolist() == [[2, 0, 1, 1, 2], [0, 2, 1, 0, 0]]  # 8-1, 1-8, 4-4, 4-1, 8-1 again
    assert view.graph.labels.tolist() == [1, 0, 2]
    assert view.train.tolist() == [0, 1, 2]
    grown = view.val_graph
    assert grown.node_ids.tolist() == ["n1", "n4", "n8", "n3", "n6"]
    assert grown.features.flatten().tolist() == [2.0, 5.0, 9.0, 4.0, 7.0]
    expected = [[2, 0, 1, 4, 3, 4, 0, 1, 2], [0, 2, 1, 2, 4, 3, 3, 0, 0]]  # 6-8, 3-6, 6-3, 1-3 more than there
    assert grown.edge_index.tolist() == expected
    assert grown.labels.tolist() == [1, 0, 2, 2, 1]
    assert view.val.tolist() == [3, 4]
    assert view.num_classes == 3
    assert view.class_names == view.graph.class_names == grown.class_names == ("bee", "cat", "dog")
    assert view.fingerprint == task.fingerprint
    assert task.validation.nodes.tolist() == [3, 6, 9]  # numbers of the whole graph
    assert task.validation.is_ood.tolist() == [False, False, True]
    assert task.test.nodes.tolist() == [0, 7]
    whole = task.prediction_graph
    assert whole.labels.tolist() == [-1] * 10
    assert whole.class_names == ("bee", "cat", "dog")
    assert torch.equal(whole.features, task.graph.features)
    assert torch.equal(whole.edge_index, task.graph.edge_index)
    assert task.graph.labels.tolist() == [1, 2, 0, 3, 1, -1, 2, 0, 3, 0]


def test_a_transductive_task_has_one_graph() -> None:
    task = task_of()
    assert not task.inductive
    assert task.training.val_graph is task.training.graph is task.prediction_graph
    own = TrainingView.of_graph(task.graph, task.training.train, task.training.val)
    assert own.val_graph is own.graph


@settings(max_examples=40, deadline=None)
@given(
    nodes=st.integers(60, 300),
    seed=st.integers(0, 2**31 - 1),
    graph_seed=st.integers(0, 99),
    ood=st.sets(st.integers(0, CLASSES - 1), min_size=1, max_size=CLASSES - 2),
)
def test_inductive_training_sees_its_own_nodes_only(nodes: int, seed: int, graph_seed: int, ood: set[int]) -> None:
    """Against lists made by hand, with names of nodes instead of numbers."""
    labels = np.random.default_rng(graph_seed + 100).integers(-1, CLASSES, size=nodes)
    drawn = toy(nodes, graph_seed, labels)
    graph = Graph(drawn.features, drawn.edge_index, labels, np.arange(nodes) + 1000, NAMES)
    task = Task.leave_out(graph, sorted(ood), split_seed=seed, inductive=True)
    flat = Task.leave_out(graph, sorted(ood), split_seed=seed)
    view, edges = task.training, (graph.edge_index + 1000).T.tolist()
    for part, known in (
        (view.graph, flat.training.train.tolist()),
        (view.val_graph, flat.training.train.tolist() + flat.training.val.tolist()),
    ):
        names = [node + 1000 for node in known]
        assert part.node_ids.tolist() == names
        assert [[names[a], names[b]] for a, b in part.edge_index.T.tolist()] == [
            [a, b] for a, b in edges if a in names and b in names
        ]
        assert torch.equal(part.features, graph.features[known])
        assert torch.equal(part.labels, flat.training.graph.labels[known])
    assert view.train.tolist() == list(range(len(flat.training.train)))
    assert (view.val - len(view.train)).tolist() == list(range(len(flat.training.val)))
    for part in ("validation", "test"):
        for field in ("nodes", "labels", "is_ood"):
            assert torch.equal(getattr(getattr(task, part), field), getattr(getattr(flat, part), field))
    assert task.counts == flat.counts


def test_inductive_training_is_blind_to_all_other_nodes() -> None:
    """Every bit that it can reach stays as it was; a transductive task would show the difference."""
    labels = np.random.default_rng(1).integers(-1, CLASSES, size=400)
    task = task_of(toy(400, labels=labels), inductive=True)
    other = disturbed(task)
    assert other.fingerprint != task.fingerprint
    for field in ("graph", "val_graph"):
        assert getattr(other.training, field).fingerprint == getattr(task.training, field).fingerprint
    pairs = list(zip(reachable(task.training), reachable(other.training), strict=True))
    assert len(pairs) >= 8
    for before, after in pairs:
        assert before.dtype == after.dtype
        assert np.array_equal(before, after)
    flat, flat_other = replace(task, inductive=False), replace(other, inductive=False)
    assert flat.training.graph.fingerprint != flat_other.training.graph.fingerprint


def test_the_whole_graph_cannot_be_reached_from_inductive_training() -> None:
    """Whatever was made of the task before; no array has as many rows, or a number as large, as the whole graph.

    But for the names of its own nodes, by which they are known again in the whole graph.
    """
    task = task_of(toy(400), inductive=True)
    _ = task.fingerprint, task.counts, task.validation, task.test, task.prediction_graph, task.graph.describe()
    view = task.training
    most = len(view.train) + len(view.val)
    assert most < 300

    def strange(root: object) -> list[np.ndarray]:
        found = [array for array in reachable(root) if array.dtype.kind in "biuf" and array.size]
        rows = [array for array in found if max(array.shape, default=0) >= 400 and array.shape[0] != 2]
        large = [array for array in found if array.dtype.kind in "iu" and int(array.max()) >= most]
        return rows + [array for array in large if not any(np.array_equal(array, name) for name in names)]

    names = [graph.node_ids for graph in (view.graph, view.val_graph)]
    assert [len(name) for name in names] == [len(view.train), most]
    assert strange(view) == []
    for secret in (task, task.prediction_graph, task.graph.features, task.split.val, task.test.nodes.numpy()):
        assert strange([view, secret])


def test_training_nodes_without_edges_among_themselves() -> None:
    """Said when the task is made, or changed, and not in the middle of a benchmark."""
    graph = Graph(np.eye(6, dtype=np.float32) + 1, [[0, 1, 2, 3], [1, 2, 3, 4]], [0, 1, 2, 1, 2, 0])
    apart = Split(torch.tensor([1, 4]), torch.tensor([2, 5]), torch.tensor([0, 3]))
    raises(lambda: Task.leave_out(graph, [0], apart, inductive=True), "training nodes have no edges", "inductive=False")
    assert Task.leave_out(graph, [0], apart).training.graph.num_edges == 4
    joined = Split(torch.tensor([1, 2, 3]), torch.tensor([4, 5]), torch.tensor([0]))
    task = Task.leave_out(graph, [0], joined, inductive=True)
    assert task.training.graph.num_edges == 2
    lone = Split(torch.tensor([1, 3]), torch.tensor([4, 5]), torch.tensor([0]))
    raises(lambda: replace(task, split=lone, train_labels=task.train_labels[:2]), "another split")


def test_fingerprints_tell_the_settings_apart() -> None:
    """That of a transductive task is the one it had before there were others."""
    assert hand_made().fingerprint == "c8ecb3a89624152eb77b1ad8d6fb2a85"
    tasks = [task_of(inductive=inductive).fewer_labels(share) for inductive in (False, True) for share in (0.5, 1.0)]
    tasks += [task_of(), task_of(inductive=True), task_of(inductive=True, split_seed=1)]
    assert len({task.fingerprint for task in tasks}) == len(tasks)
    assert task_of(inductive=True).fingerprint == task_of(inductive=True).fingerprint


def test_named_tasks_may_be_inductive() -> None:
    task, flat = load_task("digits", inductive=True), load_task("digits")
    assert task.inductive
    assert task.fingerprint != flat.fingerprint
    assert task.training.graph.num_nodes == flat.counts["train_id"]
    assert task.training.val_graph.num_nodes == flat.counts["train_id"] + flat.counts["val_id"]
    assert task.prediction_graph.num_nodes == flat.graph.num_nodes
