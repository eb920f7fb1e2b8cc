"""Methods on tasks in which the graph grows after training: what training sees, what stops it, what is predicted."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import references as ref
from credalgnn import evaluate
from credalgnn.graphs import Graph, Split, Task, csbm, load_task
from credalgnn.methods import (
    KNN,
    KNNLJ,
    METHODS,
    ClassicalEnsemble,
    CredalFinal,
    CredalLJ,
    Energy,
    Mahalanobis,
    Method,
    MethodError,
    Network,
    Vanilla,
    load_method,
)
from credalgnn.methods.base import parts_of
from disturbing import disturbed

pytestmark = pytest.mark.filterwarnings("ignore::credalgnn.CredalWarning")

SHORT: dict[str, Any] = {"hidden": 12, "epochs": 8, "patience": 8}
NETWORKS = [name for name, kind in METHODS.items() if issubclass(kind, Network)]


@cache
def small_task(inductive: bool = True, sparse: bool = False) -> Task:
    """Four classes of which one is left out, 200 nodes, some of them without a label."""
    graph = csbm(nodes=200, classes=4, degree=8, features=10, signal=2.0, seed=0)
    features = graph.features * (
        torch.rand(200, 10, generator=torch.Generator().manual_seed(0)) < (0.2 if sparse else 2)
    )
    labels = graph.labels.clone()
    labels[::17] = -1
    return Task.leave_out(Graph(features, graph.edge_index, labels), [0], name="small", inductive=inductive)


def make(name: str, **options: Any) -> Any:
    """A method, trained briefly, with all that it stands on."""
    settings = {**SHORT, **options}
    kind = METHODS[name]
    own = {key: value for key, value in settings.items() if key in {field.name for field in fields(kind)}}
    if kind.components is None:
        return kind(**own)
    if kind.components.size:
        return kind(members=[Vanilla(seed=seed, **settings) for seed in range(2)])
    return kind(model=Vanilla(**settings), **own)


def learnt(method: Method, folder: Path) -> tuple[bytes, Any]:
    """All that a fitted method keeps: weights, means and neighbours as bytes, and the training curves."""
    method.save(folder)
    config = json.loads((folder / "method.json").read_text())

    def curves(part: dict[str, Any]) -> list[Any]:
        return [part.get("history"), *(curves(one) for one in part.get("parts", {}).values())]

    return (folder / "model.safetensors").read_bytes(), curves(config)


# ---------------------------------------------------------------------------------------------
# What training sees
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("name", list(METHODS))
def test_training_does_not_see_other_nodes(name: str, sparse: bool, tmp_path: Path) -> None:
    """Test nodes, OOD nodes and nodes without a label are changed beyond recognition, and not a bit is learnt anew."""
    task = small_task(sparse=sparse)
    found = [learnt(make(name).fit(one), tmp_path / str(k)) for k, one in enumerate((task, disturbed(task)))]
    assert found[0] == found[1]


@pytest.mark.parametrize("name", ["vanilla", "credal-lj", "knn", "knn-lj", "mahalanobis", "classical-ensemble"])
def test_transductive_training_sees_them(name: str, tmp_path: Path) -> None:
    """So that the test above could fail."""
    task = small_task(inductive=False)
    found = [learnt(make(name).fit(one), tmp_path / str(k)) for k, one in enumerate((task, disturbed(task)))]
    assert found[0][0] != found[1][0]


@pytest.mark.parametrize(
    "options",
    [
        {"dropout": 0.5},
        {"batch_size": 32},
        {"backbone": "gcn"},
        {"backbone": "gat"},
        {"backbone": "edgecnn"},
        {"monitor": "id_f1"},
    ],
    ids=str,
)
def test_no_way_of_training_sees_them(options: dict[str, Any], tmp_path: Path) -> None:
    task = small_task()
    for name in ("vanilla", "credal-lj"):
        both = enumerate((task, disturbed(task)))
        found = [learnt(make(name, **options).fit(one), tmp_path / f"{name}{k}") for k, one in both]
        assert found[0] == found[1]


@pytest.mark.parametrize("name", ["vanilla", "credal-lj", "mahalanobis", "knn-lj"])
def test_training_on_digits_does_not_see_other_nodes(name: str, tmp_path: Path) -> None:
    task = load_task("digits", inductive=True)
    found = [learnt(make(name, epochs=4).fit(one), tmp_path / str(k)) for k, one in enumerate((task, disturbed(task)))]
    assert found[0] == found[1]


def test_validation_nodes_stop_training_and_teach_nothing() -> None:
    """With other features of theirs the losses of training stay as they are, and what the monitor sees does not."""
    task = small_task()
    val = task.validation.nodes
    features = task.graph.features.clone()
    features[val] = -features[val]
    other = replace(task, graph=task.graph.replace(features=features))
    for name in NETWORKS:
        one, two = (make(name).fit(each).history_ for each in (task, other))
        assert [line.loss for line in one] == [line.loss for line in two]
        assert all(line.monitor != also.monitor for line, also in zip(one, two, strict=True))


def test_a_post_hoc_method_takes_its_latents_from_the_training_graph() -> None:
    """Those of the same nodes within the whole graph are others."""
    task = small_task()
    view, train = task.training, task.split.train
    vanilla = Vanilla(**SHORT).fit(task)
    inside, whole = vanilla.outputs(view.graph).latents[-1], vanilla.outputs(task.graph).latents[-1][train]
    assert not torch.allclose(inside, whole, atol=1e-2)
    knn = KNN(model=vanilla, k=1).fit(task)
    assert torch.equal(knn.bank_.parts[0], inside)
    assert float(knn.predict(view.graph).score.max()) < 1e-3  # every training node is its own neighbour there,
    assert float(knn.predict(nodes=train).score.median()) > 1e-2  # and not once its neighbourhood has grown
    joint = KNNLJ(model=vanilla, k=1).fit(task).bank_.parts
    assert torch.equal(joint[0], task.graph.features[train])
    labels, expected = task.train_labels.numpy(), inside.double().numpy()
    means = np.stack([expected[labels == k].mean(0) for k in range(3)])
    np.testing.assert_allclose(Mahalanobis(model=vanilla).fit(task).gaussians_.means.numpy(), means, atol=1e-6)


# ---------------------------------------------------------------------------------------------
# What stops it
# ---------------------------------------------------------------------------------------------


def by_hand(task: Task, nodes: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Features of some nodes, and the edges among them in new numbers."""
    number = {node: k for k, node in enumerate(nodes)}
    edges = [(number[a], number[b]) for a, b in task.graph.edge_index.T.tolist() if a in number and b in number]
    return task.graph.features.to_dense().double().numpy()[nodes], np.array(edges).T


@pytest.mark.parametrize(
    "options", [{}, {"dropout": 0.3}, {"batch_size": 16, "fanouts": [0, 0]}, {"backbone": "gcn"}], ids=str
)
def test_the_monitor_looks_at_training_and_known_validation_nodes(options: dict[str, Any]) -> None:
    """A naive network with the fitted weights has the loss that early stopping saw, on a graph made by hand."""
    task = small_task()
    fitted = Vanilla(**{**SHORT, **options}).fit(task)
    part = task.validation
    known = part.nodes[~part.is_ood]
    features, edges = by_hand(task, task.split.train.tolist() + known.tolist())
    state = {name: value.detach().numpy() for name, value in fitted.module_.backbone.state_dict().items()}
    head = fitted.module_.head.weight.detach().numpy(), fitted.module_.head.bias.detach().numpy()
    twin = ref.Network.from_weights(fitted.backbone, state, *head, edges, len(features))
    logits = torch.from_numpy(twin.logits(features))[-len(known) :]
    expected = torch.nn.functional.cross_entropy(logits, part.labels[~part.is_ood]).item()
    assert min(line.monitor for line in fitted.history_[1:]) == pytest.approx(expected, rel=1e-4)


def test_the_monitor_counts_right_validation_nodes() -> None:
    task = small_task()
    part, view = task.validation, task.training
    for kind in (Vanilla, CredalLJ, CredalFinal):
        fitted = kind(monitor="id_f1", **SHORT).fit(task)
        found = fitted.predict(view.val_graph, view.val).classes
        right = float((found == part.labels[~part.is_ood]).double().mean())
        assert max(-line.monitor for line in fitted.history_[1:]) == pytest.approx(right)


# ---------------------------------------------------------------------------------------------
# What is predicted
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(METHODS))
def test_predictions_are_of_the_whole_graph(name: str, tmp_path: Path) -> None:
    """With its numbers, so that they can be judged; the same from disk."""
    task = small_task()
    fitted = make(name).fit(task)
    found = fitted.predict()
    assert torch.equal(found.nodes, torch.arange(200))
    assert torch.equal(found.score, fitted.predict(task.graph).score)
    assert fitted.graph_ is task.prediction_graph
    assert bool((fitted.graph_.labels == -1).all())
    judged = evaluate(found, task)
    assert judged.scores[judged.headline]["auroc"] is not None
    fitted.save(tmp_path)
    loaded = load_method(tmp_path, task)
    assert torch.equal(loaded.predict().score, found.score)
    for part in parts_of(loaded).values():
        assert part.graph_ is task.prediction_graph
    with pytest.raises(MethodError, match="another task"):
        load_method(tmp_path, small_task(inductive=False))


def test_what_was_learnt_on_a_part_holds_for_the_whole() -> None:
    """On digits, with nodes and edges that training has never seen."""
    task = load_task("digits", inductive=True)
    for method in (Vanilla(), CredalLJ(), Energy()):
        judged = evaluate(method.fit(task).predict(), task)
        assert judged.metrics["accuracy"] > 0.95
    assert judged.scores["energy"]["auroc"] > 0.8


@pytest.mark.parametrize("name", list(METHODS))
def test_the_papers_protocol_is_transductive(name: str) -> None:
    with pytest.raises(MethodError, match=r"transductive.*inductive=False"):
        make(name).fit(small_task(), protocol="paper")


@pytest.mark.parametrize(
    "stand", [lambda v: Energy(model=v), lambda v: ClassicalEnsemble(members=[v, Vanilla(**SHORT)])]
)
def test_a_network_of_the_other_setting_is_refused(stand: Callable[[Vanilla], Any]) -> None:
    """It has seen the nodes that are to be new."""
    seen = Vanilla(**SHORT).fit(small_task(inductive=False))
    with pytest.raises(MethodError, match="another task"):
        stand(seen).fit(small_task())


def test_a_class_without_training_nodes_is_told_as_ever() -> None:
    graph = Graph(np.eye(8, dtype=np.float32) + 1, [[0, 1, 2], [1, 2, 3]], [1, 1, 1, 2, 0, 1, 2, 0], class_names="abc")
    split = Split(torch.tensor([0, 1, 2]), torch.tensor([3, 4, 5]), torch.tensor([6, 7]))
    with pytest.raises(MethodError, match="'c' has no training node"):
        Vanilla(**SHORT).fit(Task.leave_out(graph, [0], split, inductive=True))
