"""Tasks: who is in which part, that training cannot see what it is judged on, and shifts that touch only theirs."""

from __future__ import annotations

import gc
import random
import subprocess
import sys
import types
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from credalgnn.graphs import Graph, GraphError, Split, Task, TrainingView, load_task
from strangers import disturbed

CLASSES = 5
NAMES = ["ant", "bee", "cat", "dog", "owl"]


def toy(nodes: int = 200, seed: int = 0, labels: np.ndarray | None = None) -> Graph:
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(nodes, 3)).astype(np.float32)
    edges = rng.integers(nodes, size=(2, 4 * nodes))
    drawn = rng.integers(CLASSES, size=nodes)
    return Graph(features, edges, drawn if labels is None else labels, class_names=NAMES)


def task_of(graph: Graph | None = None, ood: tuple[int, ...] = (1, 3), **options: Any) -> Task:
    return Task.leave_out(toy() if graph is None else graph, ood, **options)


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


def test_paper_sizes_of_random_splits() -> None:
    for nodes, val, test in [(18_333, 3_666, 3_668), (169_343, 33_868, 33_870), (2_923_922, 584_784, 584_785)]:
        split = Split.random(nodes, 0)
        assert (len(split.val), len(split.test)) == (val, test)


def test_the_seed_and_nothing_else_makes_the_split() -> None:
    first = Split.random(500, 7)
    for disturb in (lambda: torch.rand(13), lambda: np.random.random(5), lambda: random.random()):  # noqa: NPY002
        disturb()
        again = Split.random(500, 7)
        assert torch.equal(first.train, again.train)
        assert torch.equal(first.val, again.val)
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    Split.random(500, 7)
    assert torch.equal(torch.rand(2), expected)  # nor does splitting disturb anybody else
    code = (
        "import torch, numpy; torch.manual_seed(99); torch.rand(5)\n"
        "from credalgnn.graphs import Split\n"
        "Split.random(50, 1); split = Split.random(500, 7); print(split.train.tolist(), split.test.tolist())"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert answer.stdout.strip() == f"{first.train.tolist()} {first.test.tolist()}"
    others = [Split.random(500, seed) for seed in (0, 1, 8, 2**32 - 1)]
    assert all(not torch.equal(first.train, other.train) for other in others)
    for seed in (-1, 2**32):  # torch would take these for 2**32 - 1 and 0
        raises(lambda seed=seed: Split.random(500, seed), "seed")
    assert len({task_of(split_seed=seed).fingerprint for seed in range(5)}) == 5
    assert task_of(split_seed=4).fingerprint == task_of(split_seed=4).fingerprint


def test_a_split_from_masks() -> None:
    masks = torch.zeros(3, 8, dtype=torch.bool)
    masks[0, [0, 1, 2]] = masks[1, [3, 5]] = masks[2, [7, 4]] = True
    split = Split.from_masks(*masks)
    assert [part.tolist() for part in (split.train, split.val, split.test)] == [[0, 1, 2], [3, 5], [4, 7]]


def raises(call: Callable[[], object], *words: str) -> None:
    with pytest.raises(GraphError) as caught:
        call()
    missing = [word for word in words if word.lower() not in str(caught.value).lower()]
    assert not missing, f"{missing} not in: {caught.value}"


def test_bad_splits_are_refused() -> None:
    masks = torch.zeros(3, 8, dtype=torch.bool)
    masks[0, :4] = masks[1, 4:6] = masks[2, 6:] = True
    train, val, test = masks
    raises(lambda: Split.from_masks(train.long(), val, test), "mask", "bool", "train")
    raises(lambda: Split.from_masks(train, val.float(), test), "mask", "bool", "val")
    raises(lambda: Split.from_masks(train, val, test[None]), "test")
    raises(lambda: Split.from_masks(train, val[:5], test), "val")
    overlap = val.clone()
    overlap[2] = True
    raises(lambda: Split.from_masks(train, overlap, test), "2", "train", "val")
    raises(lambda: Split.from_masks(train, torch.zeros_like(val), test), "val")
    raises(lambda: Split(torch.tensor([0, 1]), torch.tensor([1, 2]), torch.tensor([3])), "1", "train", "val")
    raises(lambda: Split(torch.tensor([0]), torch.tensor([1]), torch.tensor([], dtype=torch.int64)), "test")
    raises(lambda: Split(torch.tensor([0.0]), torch.tensor([1]), torch.tensor([2])), "train")
    raises(lambda: task_of(split=Split(torch.tensor([0]), torch.tensor([1]), torch.tensor([200]))), "200")
    raises(lambda: Split(torch.tensor([-1]), torch.tensor([1]), torch.tensor([2])), "-1")


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
    raises(lambda: task.fewer_strangers(0.5), "no class is left out")


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
    public = [task.graph.features.numpy(), task.graph.edge_index.numpy()]
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


def village(**options: Any) -> Task:
    """Ten nodes of four classes, of which 0 is left out: 1 4 8 train, 3 and 6 validate, 9 validates as a stranger.

    2 is a stranger among the training nodes, 5 has no label, 0 and 7 are to be judged.
    """
    edges = [[8, 1, 2, 4, 6, 3, 6, 9, 1, 8, 4, 0, 5, 8, 4], [1, 8, 1, 4, 8, 6, 3, 3, 3, 2, 1, 7, 4, 1, 5]]
    labels = [1, 2, 0, 3, 1, -1, 2, 0, 3, 0]
    ids = [f"n{k}" for k in range(10)]
    features = np.arange(10, dtype=np.float32)[:, None] + 1
    graph = Graph(features, edges, labels, node_ids=ids, class_names=NAMES[:4])
    split = Split(torch.tensor([1, 2, 4, 5, 8]), torch.tensor([3, 6, 9]), torch.tensor([0, 7]))
    return Task.leave_out(graph, [0], split=split, inductive=True, **options)


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


# shifts

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


def test_fewer_strangers_leave_the_graph_those_of_the_test_part_last() -> None:
    """Known nodes keep features, labels, parts and the edges among them; the numbering closes the gaps."""
    graph = Graph(
        np.arange(10, dtype=np.float32)[:, None] + 1.0,
        [[0, 1, 2, 3, 8, 9], [1, 2, 3, 4, 9, 0]],
        [0, 1, 2, 1, 2, 0, 0, 0, 1, 2],
    )
    split = Split(torch.tensor([1, 2, 5]), torch.tensor([3, 4, 6]), torch.tensor([0, 7, 8, 9]))
    task = Task.leave_out(graph, [0], split)
    fewer = task.fewer_strangers(0.5)  # of 0, 5, 6 and 7; 0 and 7 are in the test part
    assert fewer.graph.features.squeeze(1).tolist() == [1.0, 2.0, 3.0, 4.0, 5.0, 8.0, 9.0, 10.0]
    assert fewer.split.train.tolist() == [1, 2]
    assert fewer.split.val.tolist() == [3, 4]
    assert fewer.test.nodes.tolist() == [0, 5, 6, 7]
    assert fewer.test.is_ood.tolist() == [True, True, False, False]
    assert fewer.graph.edge_index.tolist() == [[0, 1, 2, 3, 6, 7], [1, 2, 3, 4, 7, 0]]
    assert torch.equal(fewer.train_labels, task.train_labels)
    assert fewer.fingerprint != task.fingerprint
    one = task.fewer_strangers(0.25)
    assert int(one.test.is_ood.sum()) == 1
    assert one.graph.num_nodes == 7
    raises(lambda: task.fewer_strangers(0.0), "above 0")


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
