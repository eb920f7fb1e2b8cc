"""Temperature scaling and CaGCN: against references from their definitions, and what they are allowed to see."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq

import references as ref
from credalgnn.graphs import Graph, Task, csbm
from credalgnn.methods import CaGCN, MethodError, Temperature, Vanilla
from credalgnn.methods.temperature import RANGE, best_temperature, margin_loss

SHORT: dict[str, Any] = {"hidden": 12, "epochs": 8, "patience": 8}


@cache
def small_task(sparse: bool = False, inductive: bool = False) -> Task:
    """Four classes of which one is left out, 160 nodes; hard enough for some to be misclassified."""
    graph = csbm(nodes=160, classes=4, degree=6, features=10, signal=1.0, seed=0)
    features = graph.features.clone()
    if sparse:
        features *= torch.rand(features.shape, generator=torch.Generator().manual_seed(0)) < 0.2
    return Task.leave_out(Graph(features, graph.edge_index, graph.labels), [0], name="small", inductive=inductive)


@cache
def small_vanilla(sparse: bool = False) -> Vanilla:
    return Vanilla(**SHORT).fit(small_task(sparse))


def brief(kind: type) -> dict[str, Any]:
    return SHORT if kind is CaGCN else {}


def logits_of(model: Any, graph: Graph | None = None) -> np.ndarray:
    return np.asarray(model.outputs(graph).logits.double().numpy())


def known(task: Task) -> tuple[np.ndarray, np.ndarray]:
    """The ID validation nodes, and their classes."""
    view = task.training
    return view.val.numpy(), view.val_graph.labels[view.val].numpy()


def slope(beta: float, logits: np.ndarray, labels: np.ndarray) -> float:
    """The derivative of the NLL in beta = 1 / T: what is expected of the logits, minus what is there."""
    p = ref.softmax(beta * logits)
    return float(np.mean([p[n] @ logits[n] - logits[n, labels[n]] for n in range(len(labels))]))


@given(seed=st.integers(0, 10_000), scale=st.floats(0.3, 6.0))
@settings(max_examples=30, deadline=None)
def test_the_temperature_is_where_the_slope_is_zero(seed: int, scale: float) -> None:
    rng = np.random.default_rng(seed)
    logits = scale * rng.normal(size=(60, 4))
    labels = np.array([rng.choice(4, p=row) for row in ref.softmax(logits / rng.uniform(0.5, 3.0))])
    low, high = 1.0 / RANGE[1], 1.0 / RANGE[0]
    result = best_temperature(torch.from_numpy(logits), torch.from_numpy(labels))
    if slope(low, logits, labels) > 0:  # the labels are worse than drawn blindly
        assert result == pytest.approx(RANGE[1], rel=1e-4)
    else:
        assert result == pytest.approx(1.0 / brentq(slope, low, high, (logits, labels)), rel=1e-4)


def test_perfect_logits_have_the_least_temperature() -> None:
    """It would be 0 if it could: it stays a number, and so do the scores."""
    logits, labels = torch.eye(3).repeat(5, 1) / 2, torch.arange(3).repeat(5)
    assert best_temperature(logits, labels) == pytest.approx(RANGE[0], rel=1e-4)
    assert best_temperature(logits, (labels + 1) % 3) == pytest.approx(RANGE[1], rel=1e-4)


@pytest.mark.parametrize("sparse", [False, True])
def test_temperature_scaling_equals_the_reference(sparse: bool) -> None:
    task, vanilla = small_task(sparse), small_vanilla(sparse)
    fitted = Temperature(model=vanilla).fit(task)
    nodes, labels = known(task)
    logits = logits_of(vanilla)
    best = 1.0 / brentq(slope, 0.05, 20.0, (logits[nodes], labels))
    assert fitted.temperature_ == pytest.approx(best, rel=1e-4)
    assert abs(math.log(best)) > 0.05  # it changes something
    result = fitted.predict()
    np.testing.assert_allclose(result.scores["entropy"].numpy(), ref.entropy(logits / best), rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(result.probabilities.numpy(), ref.softmax(logits / best), rtol=1e-3, atol=1e-6)
    assert torch.equal(result.classes, vanilla.predict().classes)


@pytest.mark.parametrize("kind", [Temperature, CaGCN])
def test_a_node_without_evidence_is_more_uncertain(kind: type) -> None:
    """The head is made to say class 0, the louder the larger the latent."""
    task = small_task()
    vanilla = Vanilla(**SHORT).fit(task)
    fitted = kind(model=vanilla, **brief(kind)).fit(task)
    with torch.no_grad():
        vanilla.module_.head.weight.zero_()
        vanilla.module_.head.weight[0] = 1.0
        vanilla.module_.head.bias.zero_()
    loudness = logits_of(vanilla)[:, 0]
    score = fitted.predict().score
    assert loudness.max() > loudness.min() + 1.0
    assert float(score[int(loudness.argmin())]) > float(score[int(loudness.argmax())])


@pytest.mark.parametrize("kind", [Temperature, CaGCN])
@pytest.mark.parametrize("inductive", [False, True])
def test_only_validation_nodes_of_known_classes_calibrate(kind: type, inductive: bool) -> None:
    """Other labels of theirs change what is learnt; those of OOD nodes and test nodes do not."""
    task = small_task(inductive=inductive)
    vanilla = Vanilla(**SHORT).fit(task)
    labels, strange = task.graph.labels, task.graph.labels == 0
    val = torch.zeros(160, dtype=torch.bool)
    val[task.split.val] = True
    hidden = (torch.zeros(160).index_fill_(0, task.split.train, 1.0) == 0) & ~val

    def learnt(new: torch.Tensor) -> dict[str, torch.Tensor]:
        other = replace(task, graph=task.graph.replace(labels=new))
        made = kind(model=vanilla, **brief(kind))
        vanilla.fingerprint = other.fingerprint  # the same weights, which other validation labels might have stopped
        return dict(made.fit(other)._state())

    before = learnt(labels)
    flipped = torch.where(hidden & ~strange, 4 - labels, labels)
    assert not torch.equal(flipped, labels)
    after = learnt(flipped)
    assert all(torch.equal(before[name], after[name]) for name in before)
    other = learnt(torch.where(val & ~strange, 4 - labels, labels))
    assert any(not torch.equal(before[name], other[name]) for name in before)


# CaGCN


def naive_cagcn(weights: dict[str, np.ndarray], logits: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Logits times log(exp(t) + 1.1), t = A relu(A logits W1 + b1) W2 + b2 with the normalised adjacency A."""
    a = ref.gcn_matrix(edges, len(logits))
    hidden = a @ logits @ weights["convs.0.lin.weight"].T + weights["convs.0.bias"]
    t = a @ np.where(hidden > 0, hidden, 0.0) @ weights["convs.1.lin.weight"].T + weights["convs.1.bias"]
    return np.array([row * math.log(math.exp(values) + 1.1) for row, values in zip(logits, t[:, 0], strict=True)])


@pytest.mark.parametrize("sparse", [False, True])
def test_cagcn_equals_the_reference_from_weights(sparse: bool) -> None:
    task, vanilla = small_task(sparse), small_vanilla(sparse)
    fitted = CaGCN(model=vanilla, epochs=60).fit(task)
    weights = {name: value.double().numpy() for name, value in fitted.module_.backbone.state_dict().items()}
    logits = logits_of(vanilla)
    expected = naive_cagcn(weights, logits, task.graph.edge_index.numpy())
    assert np.ptp(expected / logits) > 0.05  # temperatures differ from node to node
    result = fitted.predict()
    np.testing.assert_allclose(result.score.numpy(), ref.entropy(expected), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(result.probabilities.numpy(), ref.softmax(expected), rtol=1e-4, atol=1e-5)
    assert torch.equal(result.classes, vanilla.predict().classes)


@given(seed=st.integers(0, 10_000), classes=st.integers(2, 6))
@settings(max_examples=30, deadline=None)
def test_the_margin_term_equals_the_reference(seed: int, classes: int) -> None:
    rng = np.random.default_rng(seed)
    logits, labels = 3 * rng.normal(size=(40, classes)), rng.integers(classes, size=40)
    total = 0.0
    for p, label in zip(ref.softmax(logits), labels, strict=True):
        second, first = sorted(p)[-2:]
        total += 1.0 - first + second if p[label] == first else first - second
    result = margin_loss(torch.from_numpy(logits), torch.from_numpy(labels)).item()
    assert result == pytest.approx(total / 40, abs=1e-12)


def test_cagcn_minimises_both_terms_on_validation_nodes() -> None:
    """The curve has the loss with its weight, and the weights with the least NLL are kept."""
    task, vanilla = small_task(), small_vanilla()
    nodes, labels = known(task)
    for weight in (0.0, 2.0):
        fitted = CaGCN(model=vanilla, epochs=40, dropout=0.0, margin_weight=weight).fit(task)
        best = min(fitted.history_[1:], key=lambda line: line.monitor)
        weights = {name: value.double().numpy() for name, value in fitted.module_.backbone.state_dict().items()}
        logits = naive_cagcn(weights, logits_of(vanilla), task.graph.edge_index.numpy())[nodes]
        p = ref.softmax(logits)
        nll = -np.mean([math.log(p[n, label]) for n, label in enumerate(labels)])
        margin = margin_loss(torch.from_numpy(logits), torch.from_numpy(labels)).item()
        assert best.monitor == pytest.approx(nll, abs=1e-5)
        assert best.loss == pytest.approx(nll + weight * margin, abs=1e-5)
        assert best.monitor < fitted.history_[0].monitor - 0.01  # it learns


@pytest.mark.parametrize(
    "wrong", [{"margin_weight": -1.0}, {"dropout": 1.0}, {"lr": 0.0}, {"hidden": 0}, {"patience": 0}], ids=str
)
def test_bad_hyper_parameters_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(MethodError, match=next(iter(wrong))):
        CaGCN(**wrong)
