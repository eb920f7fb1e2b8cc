"""credal-coverage: what it may know, what its noise must not do, and what its numbers mean."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save
from scipy.stats import multivariate_normal
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import normalize
from torch import Tensor

import references as ref
from credalgnn.graphs import Graph, Split, Task, csbm, load_task
from credalgnn.methods import (
    ClassicalEnsemble,
    CredalCoverage,
    CredalLJ,
    Energy,
    FeatureSum,
    InputWarning,
    MethodError,
    Vanilla,
    load_method,
)
from credalgnn.methods.coverage import model, ood_score
from credalgnn.methods.coverage.descriptions import STATISTICS, Describer, labelled_shares
from credalgnn.methods.coverage.model import Forest, Logistic, arrays_of, estimate, learner_of, stack
from credalgnn.methods.coverage.ood_score import OODScore
from credalgnn.nn import SparseMatrix
from credalgnn.runtime.context import Context
from credalgnn.runtime.files import checksum, to_json

pytestmark = pytest.mark.filterwarnings("ignore::credalgnn.CredalWarning")

SHORT: dict[str, Any] = {"hidden": 12, "epochs": 8, "patience": 8}
FEWER = 20  # trees: enough for what is tested here


@pytest.fixture(autouse=True, scope="module")
def _small_forests() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model, "TREES", FEWER)
        yield


@cache
def small_task(seed: int = 0, nodes: int = 300) -> Task:
    """Four classes of which one is left out."""
    return Task.leave_out(csbm(nodes=nodes, classes=4, features=8, signal=2.0, seed=seed), [0], name="small")


def quick(**options: Any) -> CredalCoverage:
    return CredalCoverage(model=Vanilla(**SHORT), **options)


@cache
def fitted_small() -> CredalCoverage:
    return quick().fit(small_task())


@cache
def fitted_digits(inductive: bool = False) -> CredalCoverage:
    return CredalCoverage(model=Vanilla(hidden=32, epochs=40)).fit(load_task("digits", inductive=inductive))


def other_graph(nodes: int = 200, seed: int = 5) -> Graph:
    return csbm(nodes=nodes, classes=4, features=8, signal=2.0, seed=seed)


def auroc(score: Tensor, task: Task) -> float:
    return float(roc_auc_score(task.test.is_ood, score[task.test.nodes]))


# Classifiers of labelled against other nodes


def noisy_rows(count: int = 400, width: int = 6, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(count, width)).astype(np.float32)
    return rows, (rows[:, 0] + rows[:, 1] * rows[:, 2] + rng.normal(size=count) > 0).astype(np.int64)


def sklearn_forest(rows: np.ndarray, y: np.ndarray, seed: int) -> ExtraTreesClassifier:
    forest = ExtraTreesClassifier(FEWER, min_samples_leaf=5, bootstrap=True, max_samples=len(rows), random_state=seed)
    return forest.fit(rows, y)


def expected_logits(probabilities: np.ndarray) -> np.ndarray:
    p = np.clip(probabilities, 1e-4, 1 - 1e-4)
    return np.log(p / (1 - p))


def test_a_forest_is_that_of_scikit_learn() -> None:
    """Nodes that lie on a threshold but for rounding aside, of which there are hardly any."""
    rows, y = noisy_rows()
    new, _ = noisy_rows(3000, seed=1)
    expected = expected_logits(sklearn_forest(rows, y, 7).predict_proba(new)[:, 1])
    result = Forest.fit(rows, y, 7).logits(new)
    assert float(np.mean(np.abs(result - expected) < 1e-5)) > 0.99
    np.testing.assert_allclose(result, expected, rtol=0, atol=0.5)
    assert not np.allclose(Forest.fit(rows, y, 8).logits(new), result)


def test_a_forest_on_whole_numbers_is_exactly_that_of_scikit_learn() -> None:
    """Thresholds lie between whole numbers then, in single precision as well as in double."""
    rng = np.random.default_rng(2)
    rows = rng.integers(0, 30, (500, 4)).astype(np.float32)
    y = (rows[:, 0] > rows[:, 1] + rng.normal(size=500)).astype(np.int64)
    new = rng.integers(0, 30, (1000, 4)).astype(np.float32)
    expected = expected_logits(sklearn_forest(rows, y, 3).predict_proba(new)[:, 1])
    np.testing.assert_allclose(Forest.fit(rows, y, 3).logits(new), expected, rtol=0, atol=1e-5)


def test_the_first_trees_are_a_forest() -> None:
    rows, y = noisy_rows()
    whole, trees = Forest.fit(rows, y, 0), sklearn_forest(rows, y, 0).estimators_
    for count in (1, 7):
        mean = np.mean([tree.predict_proba(rows)[:, 1] for tree in trees[:count]], axis=0)
        close = np.abs(whole.first(count).logits(rows) - expected_logits(mean)) < 1e-5
        assert float(np.mean(close)) > 0.99
        assert len(whole.first(count).feature) < len(whole.feature)
    assert np.array_equal(whole.first(1000).logits(rows), whole.logits(rows))
    assert len(whole.logits(rows[:0])) == 0


def test_many_rows_go_through_the_trees_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, y = noisy_rows()
    forest = Forest.fit(rows, y, 0)
    whole = forest.logits(rows)
    monkeypatch.setattr(model, "TREE_CHUNK", 37)
    assert np.array_equal(forest.logits(rows), whole)


def test_rows_of_one_kind_alone() -> None:
    """A tree whose sample happens to hold one kind, or no two different rows, is a leaf."""
    rows = np.zeros((40, 3), np.float32)
    y = (np.arange(40) < 10).astype(np.int64)
    p = 1 / (1 + np.exp(-Forest.fit(rows, y, 0).logits(rows)))
    np.testing.assert_allclose(p, p[0], rtol=0, atol=0)
    assert 0.1 < p[0] < 0.4


def test_a_logistic_regression_is_that_of_scikit_learn() -> None:
    rows, y = noisy_rows()
    rows = rows * np.float32([1, 10, 100, 1, 1, 1]) + np.float32([0, 5, 0, 0, -3, 0])
    rows = np.concatenate([rows, np.full((len(rows), 1), 2.5, np.float32)], 1)  # one column that does not vary
    wide = rows.astype(np.float64)
    scaled = (wide - wide.mean(0)) / np.where(wide.std(0) > 1e-9, wide.std(0), 1.0)
    expected = LogisticRegression(C=0.1, max_iter=300).fit(scaled, y).decision_function(scaled)
    np.testing.assert_allclose(Logistic.fit(rows, y, 0).logits(rows), expected, rtol=0, atol=1e-3)


def test_a_logistic_regression_is_never_surer_than_the_trees() -> None:
    rows, y = noisy_rows()
    far = Logistic.fit(rows, y, 0).logits(rows * 1e6)
    assert float(np.abs(far).max()) == pytest.approx(np.log((1 - 1e-4) / 1e-4))


@pytest.mark.parametrize("kind", [Forest, Logistic])
def test_learners_are_arrays_and_back(kind: Any) -> None:
    rows, y = noisy_rows()
    made = kind.fit(rows, y, 0)
    arrays = {name: array.copy() for name, array in arrays_of(made).items()}
    assert all(isinstance(array, np.ndarray) and array.dtype != object for array in arrays.values())
    again = learner_of(arrays)
    assert type(again) is kind
    assert np.array_equal(again.logits(rows), made.logits(rows))


def test_stacking_finds_the_best_weights() -> None:
    """Against scikit-learn's logistic regression where no weight wants to be negative."""
    rng = np.random.default_rng(0)
    truth = rng.normal(size=1500)
    y = (rng.random(1500) < 1 / (1 + np.exp(-truth))).astype(np.int64)
    members = np.stack([truth + rng.normal(size=1500), 2 * truth + rng.normal(size=1500)])
    weights, bias = stack(members, y)
    expected = LogisticRegression(C=1.0, tol=1e-10, max_iter=1000).fit(members.T, y)
    np.testing.assert_allclose(weights, expected.coef_[0], rtol=0, atol=1e-3)
    assert bias == pytest.approx(float(expected.intercept_[0]), abs=1e-3)


def test_stacking_gives_nothing_to_members_that_know_nothing_and_is_calibrated() -> None:
    rng = np.random.default_rng(1)
    y = (rng.random(3000) < 0.2).astype(np.int64)
    good = 2.0 * y + rng.normal(size=3000) + 7.0  # its offset is the bias's business
    against = -1.0 * y + rng.normal(size=3000)
    members = np.stack([good, rng.normal(size=3000), against, np.full(3000, 3.0)])
    weights, bias = stack(members, y)
    assert bool((weights >= 0.0).all())
    assert weights[0] > 0.5
    assert weights[1] < 0.25
    assert weights[2] == 0.0
    p = 1 / (1 + np.exp(-(weights @ members + bias)))
    slope = members[:3] @ (p - y) + weights[:3]  # no step that is allowed would help
    assert bool((np.abs(slope[:2]) < 2.0).all())
    assert slope[2] > 10.0
    assert p.sum() == pytest.approx(y.sum(), rel=1e-3)
    assert p[y == 1].sum() < y.sum()  # calibrated, not overfitted
    shuffled, _ = stack(rng.normal(size=(6, 3000)), y)
    assert float(shuffled.max()) < 0.2


# What a node looks like


def hand_made() -> Graph:
    """A loop at 0 (twice), an edge 1 -> 2 that stands twice, and node 5 alone."""
    edges = torch.tensor([[0, 0, 1, 1, 0, 3, 4, 2], [0, 0, 2, 2, 2, 2, 3, 4]])
    features = torch.tensor([[1.0, -2.0], [0.0, 0.0], [3.0, 0.5], [0.0, 1.0], [2.0, 2.0], [4.0, 0.0]])
    return Graph(features, edges, torch.tensor([0, 1, 0, 1, 0, 1]))


def test_shares_of_labelled_neighbours_by_hand() -> None:
    labelled = torch.tensor([True, True, False, False, True, False])
    everybody = torch.ones(6, dtype=torch.bool)
    a = 3 / 6
    expected = [
        [a, (0 + a) / 2],  # nobody but itself points at 0; it points at 2
        [a, (0 + a) / 3],  # 1 -> 2, twice
        [(1 + 1 + 1 + 0 + a) / 5, (1 + a) / 2],  # 1, 1, 0 and 3 point at 2; 2 -> 4
        [(1 + a) / 2, (0 + a) / 2],
        [(0 + a) / 2, (0 + a) / 2],
        [a, a],
    ]
    np.testing.assert_allclose(labelled_shares(hand_made(), labelled, everybody), expected, rtol=1e-6)


def test_shares_know_nothing_of_hidden_neighbours() -> None:
    labelled = torch.tensor([True, True, False, False, True, False])
    known = torch.tensor([True, False, True, True, False, True])
    result = labelled_shares(hand_made(), labelled, known)
    a = 1 / 4
    np.testing.assert_allclose(result[2], [(1 + 0 + a) / 3, a], rtol=1e-6)  # 0 and 3 are seen, 1, 1 and 4 are not
    flipped = labelled_shares(hand_made(), labelled ^ ~known, known)
    assert np.array_equal(result, flipped)
    nobody = labelled_shares(hand_made(), labelled, torch.zeros(6, dtype=torch.bool))
    assert np.array_equal(nobody, np.zeros((6, 2), np.float32))


def test_statistics_by_hand() -> None:
    """Absolute sums, active features, degrees with loops and duplicates, and their means over neighbours."""
    graph = hand_made()
    values = np.log1p([[3, 2, 2, 3], [0, 0, 0, 2], [3.5, 2, 4, 1], [1, 1, 1, 1], [4, 2, 1, 1], [4, 1, 0, 0]])
    into = [
        values[0],
        0 * values[0],
        (values[1] + values[1] + values[0] + values[3]) / 4,
        values[4],
        values[2],
        0 * values[0],
    ]
    out = [(values[0] * 2 + values[2]) / 3, values[2], values[4], values[2], values[3], 0 * values[0]]
    raw = np.concatenate([values, into, out], 1)
    expected = (raw - raw.mean(0)) / raw.std(0)
    result = Describer.of(graph, 0)(graph)
    np.testing.assert_allclose(result[:, : len(STATISTICS)], expected, rtol=0, atol=1e-5)
    x = graph.features.numpy()
    np.testing.assert_allclose(result[:, 12:14], (x - x.mean(0)) / x.std(0), rtol=0, atol=1e-5)


def test_descriptions_of_a_graph_do_not_depend_on_other_parts_of_it() -> None:
    """A node far from all that was added is described as before: scales are those of the graph of ``fit``."""
    graph = other_graph()
    describer = Describer.of(graph, 0)
    larger = Graph(
        torch.cat([graph.features, 50 * torch.ones(3, 8)]),
        torch.cat([graph.edge_index, torch.tensor([[200, 201], [201, 202]])], 1),
    )
    np.testing.assert_allclose(describer(larger)[:200], describer(graph), rtol=0, atol=1e-5)


# No memory, no noise


def captured(monkeypatch: pytest.MonkeyPatch) -> list[np.ndarray]:
    """The members' out-of-fold logits of every estimate from now on, the plain ones and then all."""
    seen: list[np.ndarray] = []
    original = model._combined

    def combined(members: np.ndarray, y: np.ndarray) -> Any:
        seen.append(members.copy())
        return original(members, y)

    monkeypatch.setattr(model, "_combined", combined)
    return seen


def test_no_model_is_told_about_the_nodes_it_estimates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Folds kept fixed, the flags of a whole fold are turned over: not a bit of its own estimates changes."""
    graph = other_graph(150)
    rows = Describer.of(graph, 0)(graph)
    rng = np.random.default_rng(0)
    labelled = torch.from_numpy(rng.random(150) < 0.5)
    fold = rng.permutation(np.arange(150) % model.FOLDS)
    monkeypatch.setattr(model, "_folds", lambda y, seed: fold)
    seen = captured(monkeypatch)
    estimate(rows, labelled, 0, graph)
    estimate(rows, labelled ^ torch.from_numpy(fold == 2), 0, graph)
    (_, first), (_, second) = seen[:2], seen[2:]
    assert first.shape == (len(model.MEMBERS), 150)
    assert np.array_equal(first[:, fold == 2], second[:, fold == 2])
    changed = (first != second)[:, fold != 2]
    assert bool((changed.mean(1) > 0.5).all())  # so that the test could fail


def test_folds_hold_both_kinds_evenly_and_every_node_once() -> None:
    y = (np.arange(203) % 7 == 0).astype(np.int64)
    fold = model._folds(y, 4)
    for kind in (0, 1):
        counts = np.bincount(fold[y == kind], minlength=model.FOLDS)
        assert counts.max() - counts.min() <= 1
    assert not np.array_equal(fold, model._folds(y, 5))


def noise(seed: int, nodes: int = 200) -> tuple[Graph, Tensor]:
    """A graph with classes of its own, and nodes that were labelled at random."""
    graph = csbm(nodes=nodes, classes=3, features=8, signal=2.0, seed=seed)
    return graph, torch.from_numpy(np.random.default_rng([seed, 1]).random(nodes) < 0.4)


def test_labels_at_random_earn_no_trust(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what labelled nodes have in common with each other by chance is not remembered: AUROC is about a half."""
    monkeypatch.setattr(model, "TREES", 8)
    seen = captured(monkeypatch)
    trusts, aurocs = [], []
    for seed in range(20):
        graph, labelled = noise(seed)
        coverage, stored, _ = estimate(Describer.of(graph, 0)(graph), labelled, seed, graph)
        trusts += [coverage.diagnosis.trust, stored.diagnosis.trust]
        aurocs.append([roc_auc_score(labelled, member) for member in seen[-1]])
        if coverage.diagnosis.trust == 0.0:
            assert len(np.unique(coverage.log_relative)) == 1
            assert coverage.diagnosis.uncovered == 0.0
    assert float(np.mean(np.array(trusts) == 0.0)) >= 0.95
    assert max(trusts) < 0.3
    assert np.shape(aurocs) == (20, len(model.MEMBERS))
    assert float(np.abs(np.mean(aurocs, axis=0) - 0.5).max()) < 0.04


def test_without_trust_width_is_entropy_and_nothing_else() -> None:
    """Nodes of equal midpoints are equally wide, and wider ones have a higher entropy: with two classes there is no
    other evidence."""
    for seed in range(4):
        graph, labelled = noise(seed)
        graph = graph.replace(labels=graph.labels.clamp_max(1), class_names=("a", "b"))  # neither can be left out
        order = (~labelled).nonzero().squeeze(-1)
        fitted = quick().fit(graph, train=labelled.nonzero().squeeze(-1), val=order[:30])
        if fitted.diagnosis["trust"] == 0.0:
            break
    else:
        raise AssertionError("no graph of four without trust")
    result = fitted.predict()
    entropy = np.array([ref.bits(p) for p in result.probabilities.numpy()])
    by_entropy = result.score.numpy()[np.argsort(entropy)]
    assert bool((np.diff(by_entropy) > -1e-8).all())
    assert by_entropy.min() >= 10 / (10 + fitted.labels_) - 1e-6


def test_ood_nodes_are_wide_and_known_nodes_are_not() -> None:
    task, fitted = load_task("digits"), fitted_digits()
    result = fitted.predict()
    assert fitted.diagnosis is not None
    assert fitted.diagnosis["trust"] > 0.9
    assert auroc(result.score, task) > 0.97
    assert auroc(result.scores["coverage"], task) > 0.97
    width = result.credal.width.amax(-1)[task.test.nodes]  # type: ignore[union-attr]
    assert float(width[task.test.is_ood].median()) > 0.9
    assert float(width[~task.test.is_ood].median()) < 0.5
    share = float(task.test.is_ood.double().mean())
    assert abs(fitted.diagnosis["uncovered"] - share) < 0.3


def test_the_diagnosis_is_that_of_its_estimates() -> None:
    """AUROC, log-loss and base measured anew from the relative coverage, which is one-to-one with the probability."""
    task, fitted = load_task("digits"), fitted_digits()
    diagnosis = fitted.diagnosis
    assert diagnosis is not None
    labelled = torch.zeros(task.graph.num_nodes, dtype=torch.bool)
    labelled[task.split.train] = True
    assert diagnosis["auroc"] == pytest.approx(float(roc_auc_score(labelled, fitted.coverage())), abs=1e-9)
    share = float(labelled.double().mean())
    assert diagnosis["base_log_loss"] == pytest.approx(-share * np.log(share) - (1 - share) * np.log(1 - share))
    assert diagnosis["log_loss"] < diagnosis["base_log_loss"] - 0.05
    assert float(np.median(fitted.coverage()[labelled].log())) == pytest.approx(0.0, abs=1e-9)
    assert 0.0 <= diagnosis["width_10"] <= diagnosis["width_50"] <= diagnosis["width_90"] <= 1.0
    assert quick().diagnosis is None


# OOD score, where coverage has no skill


def described(classes: int, size: float, direction: float, count: int = 400, seed: int = 0) -> tuple[np.ndarray, ...]:
    """Descriptions in which classes differ in how much their features hold, or in what is two steps away."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, count)
    rows = rng.normal(size=(count, len(STATISTICS) + 3 * 8)).astype(np.float32)
    rows[:, :2] += size * labels[:, None]
    rows[np.arange(count), len(STATISTICS) + 16 + labels] += direction
    return rows, labels


def ood_score_of(rows: np.ndarray, labels: np.ndarray, seed: int = 0) -> OODScore | None:
    half = len(rows) // 2
    return OODScore.fit(rows[:half], labels[:half], rows[half:], np.linspace(0.0, 1.0, len(rows) - half), seed)


def test_the_evidence_is_that_of_scipy_and_scikit_learn() -> None:
    rows, _ = described(4, 2.0, 3.0)
    entropy = np.random.default_rng(1).random(50)
    typical, new = rows[:150].astype(float), rows[350:].astype(float)
    rows[0, :2] = 100.0  # far beyond all others: its density is zero in floating point
    far = rows[:1].astype(float)
    result = ood_score._evidence(typical, np.concatenate([new, far]), np.append(entropy, 0.0))
    assert np.array_equal(result[0], np.append(entropy, 0.0))
    kernel = (np.cov(typical[:, :2].T) + 0.01 * np.eye(2)) * 150 ** (-1 / 3)
    density = np.mean([multivariate_normal(centre, kernel).pdf(new[:, :2]) for centre in typical[:, :2]], 0)
    rare = -np.log(density)
    np.testing.assert_allclose(result[1][:-1] - rare, (result[1][:-1] - rare).mean(), rtol=0, atol=1e-9)
    assert result[1][:-1].max() < result[1][-1] < np.inf
    away, known = (normalize(part[:, len(STATISTICS) + 16 :]) for part in (new, typical))
    distance = NearestNeighbors(n_neighbors=10).fit(known).kneighbors(away)[0].mean(1)
    np.testing.assert_allclose(result[2][:-1], distance, rtol=0, atol=1e-7)


def test_left_out_classes_say_which_evidence_counts() -> None:
    by_size = ood_score_of(*described(4, 3.0, 0.0))
    by_direction = ood_score_of(*described(4, 0.0, 6.0))
    assert by_size is not None
    assert by_direction is not None
    assert by_size.weights[1] > 3.0 * by_size.weights[2]
    assert by_direction.weights[2] > 3.0 * by_direction.weights[1]
    rows, labels = described(5, 0.0, 6.0, seed=1)  # a class that neither has seen
    ood_node = by_direction(rows, np.full(len(rows), 0.5))
    assert float(roc_auc_score(labels == 4, ood_node)) > 0.9
    assert bool(((ood_node > 0.0) & (ood_node < 1.0)).all())


def test_classes_that_nothing_tells_leave_it_to_the_entropy() -> None:
    nothing = [ood_score_of(*described(4, 0.0, 0.0, seed=seed), seed=seed) for seed in range(20)]
    assert sum(one is None for one in nothing) >= 16
    assert ood_score_of(*described(2, 3.0, 6.0)) is None  # two classes: none can be left out
    assert ood_score_of(*described(4, 3.0, 6.0, count=18)) is None
    rows, labels = described(4, 3.0, 6.0)
    assert OODScore.fit(rows, labels, rows[:5], np.ones(5), 0) is None


def test_many_nodes_are_compared_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, labels = described(4, 3.0, 6.0)
    fitted = ood_score_of(rows, labels)
    assert fitted is not None
    whole = fitted(rows, np.linspace(0.0, 1.0, len(rows)))
    monkeypatch.setattr(ood_score, "CHUNK", 37)
    np.testing.assert_allclose(fitted(rows, np.linspace(0.0, 1.0, len(rows))), whole, rtol=0, atol=1e-12)


def test_nodes_that_come_after_training_are_as_strange_as_they_look() -> None:
    """Nodes with features of no known class, to which training has seen nothing alike; loaded, they are as strange."""
    task = Task.leave_out(csbm(nodes=600, classes=5, features=16, signal=2.0, seed=4), [0, 1], inductive=True)
    fitted = quick(reestimate=False).fit(task)
    assert fitted.diagnosis["trust"] == 0.0  # type: ignore[index]
    assert fitted.ood_score_ is not None
    result = fitted.predict()
    assert auroc(result.score, task) > auroc(fitted.model_.predict().scores["entropy"], task) - 0.02


# What it says


@pytest.mark.parametrize("strength", [0.5, 10.0, 200.0])
def test_epistemic_uncertainty_is_that_of_the_definition(strength: float) -> None:
    """s / (s + n) bits of log2 C, and how strange the node is as far as coverage is not trusted."""
    fitted = CredalCoverage(model=fitted_small().model_, strength=strength).fit(small_task())
    result, task = fitted.predict(), small_task()
    q = fitted.coverage().numpy()
    trust = fitted.diagnosis["trust"]  # type: ignore[index]
    assert 0.1 < trust < 1.0
    n = q**4 / (1 + q**4) * len(task.split.train) / 3
    share = strength / (strength + n)
    entropy = np.array([ref.bits(p) for p in result.probabilities.numpy()]) / np.log2(3)
    assert fitted.ood_score_ is not None
    doubt = (1 - trust) * fitted.ood_score_(fitted.describer_(task.training.graph), entropy)
    expected = np.minimum(1 - (1 - share) * (1 - doubt), 1 - 1e-6) * np.log2(3)
    np.testing.assert_allclose(result.score.numpy(), expected, rtol=0, atol=1e-7)
    np.testing.assert_allclose(result.scores["coverage"].numpy(), -np.log(q), rtol=0, atol=1e-9)


def test_classes_are_those_of_the_vanilla_and_the_probabilities_are_in_the_set() -> None:
    for fitted in (fitted_small(), fitted_digits()):
        result, vanilla = fitted.predict(), fitted.model_.predict()
        assert torch.equal(result.classes, vanilla.classes)
        for rule in ("intersection", "lower", "upper"):
            assert torch.equal(result.classify(rule), vanilla.classes)
        assert bool(result.credal.contains(result.probabilities).all())
        # calibrated by one temperature: log-ratios are all scaled alike
        logits = fitted.model_.outputs(fitted.graph_).logits.double()
        scaled = (logits / fitted.temperature_).softmax(-1)
        torch.testing.assert_close(result.probabilities, scaled, rtol=0, atol=1e-12)


@cache
def overlapping() -> Task:
    return Task.leave_out(csbm(nodes=600, classes=4, features=8, signal=0.5, seed=3), [0])


def test_the_temperature_takes_back_confidence() -> None:
    """A network that was trained for too long, on classes that overlap: no other temperature fits better."""
    task = overlapping()
    long = Vanilla(hidden=32, epochs=150, patience=150, weight_decay=0.0, monitor="id_f1")
    fitted = CredalCoverage(model=long).fit(task)
    val, labels = task.training.val, task.training.graph.labels
    logits = fitted.model_.outputs(fitted.graph_).logits.double()[val]
    losses = {
        t: float(torch.nn.functional.cross_entropy(logits / t, labels[val], reduction="sum")) + 2.0 * np.log(t) ** 2
        for t in (1.0, *(fitted.temperature_ * np.array([0.8, 0.95, 1.0, 1.05, 1.25])))
    }
    assert fitted.temperature_ > 1.2
    assert min(losses, key=losses.__getitem__) == fitted.temperature_


def test_the_temperature_never_sharpens_what_noise_has_flattened() -> None:
    """Validation labels are clean and would have it so: AU must rise with the noise of training labels all the same."""
    aleatoric = []
    for share in (0.0, 0.2, 0.4):
        task = load_task("digits")
        task = task.label_noise(share) if share else task
        fitted = CredalCoverage(model=Vanilla(hidden=32, epochs=40)).fit(task)
        aleatoric.append(float(fitted.predict(nodes=task.test.nodes).scores["AU"].mean()))
        assert fitted.temperature_ == 1.0 or not share
    assert aleatoric[0] + 0.1 < aleatoric[1] < aleatoric[2] - 0.1


@pytest.mark.parametrize("kind", ["credal-lj", "classical-ensemble", "energy"])
def test_midpoints_of_any_method_that_classifies(kind: str, tmp_path: Path) -> None:
    task = small_task()
    made: Any = {
        "credal-lj": lambda: CredalLJ(**SHORT),
        "classical-ensemble": lambda: ClassicalEnsemble(members=[Vanilla(seed=k, **SHORT) for k in range(2)]),
        "energy": lambda: Energy(model=Vanilla(**SHORT)),
    }[kind]()
    template = CredalCoverage(model=made).fit(task)
    assert not made.is_fitted
    fitted = CredalCoverage(model=made.fit(task)).fit(task)
    assert torch.equal(template.predict().score, fitted.predict().score)
    result = fitted.predict()
    assert torch.equal(result.classes, made.predict().classes)
    assert torch.equal(fitted.coverage(), fitted_small().coverage())  # knows nothing of the midpoints
    fitted.save(tmp_path / "model")
    loaded = load_method(tmp_path / "model", task)
    assert torch.equal(loaded.predict().score, result.score)
    new = other_graph()
    assert torch.equal(fitted.predict(new).classes, made.predict(new).classes)


# What it may know


def test_coverage_reads_which_nodes_are_labelled_and_no_label() -> None:
    task = small_task()
    names = ("a", "b", "c")
    view = task.training
    labels = view.graph.labels.clone()
    graphs = []
    generator = torch.Generator().manual_seed(0)
    for part in (view.train, view.val):
        turned = labels.clone()
        turned[part] = turned[part][torch.randperm(len(part), generator=generator)]
        assert not torch.equal(turned, labels)
        graphs.append(view.graph.replace(labels=turned, class_names=names))
    for graph in graphs:
        result = quick().fit(graph, train=view.train, val=view.val)
        assert torch.equal(result.coverage(), fitted_small().coverage())


def test_validation_nodes_are_unlabelled_for_coverage() -> None:
    """Some of them fewer to stop by, and more to test on: the same coverage."""
    task = small_task()
    view = task.training
    fewer = quick().fit(view.graph, train=view.train, val=view.val[: len(view.val) // 2])
    assert torch.equal(fewer.coverage(), fitted_small().coverage())
    assert torch.equal(fewer._labelled(view.graph).nonzero().squeeze(-1), view.train)


def test_midpoints_that_ood_nodes_stopped_are_refused_however_deep() -> None:
    task = small_task()
    stopped = Vanilla(monitor="ood_auroc", **SHORT).fit(task, protocol="paper")
    energy = Energy(model=stopped).fit(task, protocol="paper")
    for inputs in (stopped, energy, CredalCoverage(model=energy).fit(task, protocol="paper")):
        with pytest.raises(MethodError, match="sealed"):
            CredalCoverage(model=inputs).fit(task)
    with pytest.raises(MethodError, match="another task"):
        CredalCoverage(model=fitted_small().model_).fit(small_task(seed=1))


def test_the_same_seed_is_the_same_bits_and_another_seed_is_not() -> None:
    one, task = fitted_small(), small_task()
    again = CredalCoverage(model=one.model_).fit(task)
    other = CredalCoverage(model=one.model_, seed=1).fit(task)
    assert torch.equal(again.coverage(), one.coverage())
    assert again.diagnosis == one.diagnosis
    assert not torch.equal(other.coverage(), one.coverage())
    assert float(np.corrcoef(other.coverage().log(), one.coverage().log())[0, 1]) > 0.8


def test_threads_change_no_bit() -> None:
    """Dense features that are projected, so that there are products of matrices to share out."""
    graph = csbm(nodes=400, classes=4, features=100, signal=4.0, seed=2)
    labelled = graph.labels > 0
    result = []
    before = torch.get_num_threads()
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            fresh = Graph(graph.features, graph.edge_index, graph.labels)
            rows = Describer.of(fresh, 0)(fresh)
            result.append((rows, estimate(rows, labelled, 0, fresh)[0].log_relative))
    finally:
        torch.set_num_threads(before)
    assert np.array_equal(result[0][0], result[1][0])
    assert np.array_equal(result[0][1], result[1][1])


DESCRIBED = """
import hashlib
from credalgnn.graphs import csbm
from credalgnn.methods.coverage.descriptions import Describer

graph = csbm(nodes=2000, classes=4, features=300, seed=0)
print(hashlib.blake2b(Describer.of(graph, 0)(graph).tobytes()).hexdigest())
"""


@pytest.mark.slow
def test_cores_change_no_bit() -> None:
    """The libraries below count the cores for themselves, unless the environment tells them."""
    result = set()
    for threads in ("1", "2"):
        environment = {**os.environ, "OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads}
        command = [sys.executable, "-W", "ignore", "-c", DESCRIBED]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=300)
        result.add(done.stdout)
    assert len(result) == 1


def sparse_task() -> Task:
    rng = np.random.default_rng(0)
    features = torch.from_numpy(((rng.random((200, 300)) < 0.03) * rng.integers(1, 5, (200, 300))).astype(np.float32))
    graph = other_graph()
    made = Graph(features, graph.edge_index, graph.labels)
    assert made.features.layout == torch.sparse_csr
    return Task.leave_out(made, [0])


@pytest.mark.parametrize("backbone", ["sage", "gcn"])
def test_sparse_features_stay_sparse(backbone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    task = sparse_task()
    new = Graph(task.graph.features, task.graph.edge_index.flip(0), task.graph.labels)

    def refuse(*args: Any) -> None:
        raise AssertionError("features are made dense")

    for kind in (SparseMatrix, torch.Tensor):
        monkeypatch.setattr(kind, "to_dense", refuse)
    fitted = CredalCoverage(model=Vanilla(backbone=backbone, **SHORT)).fit(task)
    for result in (fitted.predict(), fitted.predict(new)):
        assert bool(result.score.isfinite().all())
    fitted.explain(3)


# Files


AGAIN = """
import sys
import numpy as np
from credalgnn.graphs import load_graph
from credalgnn.methods import load_method
from credalgnn.methods.coverage import model

model.TREES = int(sys.argv[2])
folder = sys.argv[1]
for name in ("anew", "stored"):
    for graph in ("fitted", "other"):
        found = load_method(f"{folder}/{name}").predict(load_graph(f"{folder}/{graph}.npz"))
        np.savez(f"{folder}/{name} {graph}", lower=found.credal.lower, upper=found.credal.upper,
                 probabilities=found.probabilities, **{k: v for k, v in found.scores.items()})
"""


def test_another_process_predicts_the_same_bits(tmp_path: Path) -> None:
    """On the graph of fit and on a new one, with coverage estimated anew or by the models that were stored."""
    view = small_task().training
    graph = with_ids(view.graph)
    graphs = {"fitted": graph, "other": grown(graph, ids=True)}
    anew = quick().fit(graph, train=view.train, val=view.val)
    stored = CredalCoverage(model=anew.model_, reestimate=False).fit(graph, train=view.train, val=view.val)
    methods = {"anew": anew, "stored": stored}
    for name, method in methods.items():
        method.save(tmp_path / name)
    for name, one in graphs.items():
        one.save(tmp_path / f"{name}.npz")
    command = [sys.executable, "-W", "ignore", "-c", AGAIN, str(tmp_path), str(FEWER)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    for name, method in methods.items():
        for at, one in graphs.items():
            result, again = method.predict(one), dict(np.load(tmp_path / f"{name} {at}.npz"))
            expected = {**result.scores, "probabilities": result.probabilities}
            expected |= {"lower": result.credal.lower, "upper": result.credal.upper}
            assert {*again} == {*expected}
            for key, array in expected.items():
                assert np.array_equal(again[key], array.numpy()), (name, at, key)
    scores = [method.predict(graphs["other"]).score for method in methods.values()]
    assert not torch.equal(*scores)
    loaded = load_method(tmp_path / "anew")
    assert isinstance(loaded, CredalCoverage)
    assert loaded.diagnosis == anew.diagnosis
    assert repr(loaded) == repr(anew)
    assert loaded.explain(7, graph) == anew.explain(7)
    assert loaded.coverage(graph).equal(anew.coverage())


def rewritten(source: Path, target: Path, change: Any) -> None:
    """Tensors changed, with a sum that vouches for them."""
    shutil.copytree(source, target)
    tensors = load_file(target / "model.safetensors")
    change(tensors)
    content = save({name: tensor.contiguous() for name, tensor in tensors.items()})
    (target / "model.safetensors").write_bytes(content)
    config = json.loads((target / "method.json").read_text())
    config["weights"] = checksum(content)
    (target / "method.json").write_bytes(to_json(config, allow_nan=True))


def test_tensors_that_are_missing_or_of_another_kind_are_refused(tmp_path: Path) -> None:
    fitted_small().save(tmp_path / "whole")
    names = list(load_file(tmp_path / "whole" / "model.safetensors"))
    assert not any(path.suffix in (".pkl", ".pt", ".pickle", ".joblib") for path in (tmp_path / "whole").iterdir())
    values = [name for name in names if not name.startswith(("model.", "models."))]
    values += ["models.weights", "models.scale", "models.diagnosis", "models.0.3.roots", "models.4.5.bias"]
    assert {*values} <= {*names}
    for number, name in enumerate(values):
        rewritten(tmp_path / "whole", tmp_path / f"{number}", lambda tensors, name=name: tensors.pop(name))
        with pytest.raises(MethodError):
            load_method(tmp_path / f"{number}")
    for name in ("numbers", "diagnosis", "models.scale"):
        cut = lambda tensors, name=name: tensors.update({name: tensors[name][:1]})  # noqa: E731
        rewritten(tmp_path / "whole", tmp_path / f"cut {name}", cut)
        with pytest.raises(MethodError):
            load_method(tmp_path / f"cut {name}")


# New graphs


def with_ids(graph: Graph, first: int = 0) -> Graph:
    ids = np.array([f"node {first + k}" for k in range(graph.num_nodes)])
    return Graph(graph.features, graph.edge_index, graph.labels, node_ids=ids, class_names=graph.class_names)


def grown(graph: Graph, ids: bool) -> Graph:
    """The graph and 60 nodes more, unlike all others, in another order."""
    n = graph.num_nodes
    generator = torch.Generator().manual_seed(0)
    features = torch.cat([graph.features, 6.0 + torch.randn(60, graph.num_features, generator=generator)])
    new = torch.stack([torch.arange(n, n + 59), torch.arange(n + 1, n + 60)])
    edges = torch.cat([graph.edge_index, new, new.flip(0)], 1)
    order = torch.randperm(n + 60, generator=generator)
    place = torch.empty_like(order)
    place[order] = torch.arange(n + 60)
    names = np.array([f"node {k}" for k in order.tolist()]) if ids else None
    return Graph(features[order], place[edges], node_ids=names)


def test_new_nodes_that_are_unlike_all_others_are_wide() -> None:
    """Nodes that ``fit`` knew nothing of; ids tell which nodes of the new graph were labelled."""
    graph, labelled = noise(0)
    graph = with_ids(graph)
    val = (~labelled).nonzero().squeeze(-1)[:30]
    fitted = quick().fit(graph, train=labelled.nonzero().squeeze(-1), val=val)
    new = grown(graph, ids=True)
    order = torch.randperm(260, generator=_after_normals())
    result = fitted.predict(new)
    is_new = order >= 200
    assert float(result.score[is_new].median()) > 1.2
    assert float(result.score[is_new].median()) > float(result.score[~is_new].median()) + 0.2
    assert float(roc_auc_score(is_new, result.score)) > 0.9
    assert torch.equal(fitted._labelled(new), (order < 200) & labelled[order.clamp_max(199)])
    nameless = grown(graph, ids=False)  # whose training nodes nobody knows: the models of fit serve, and know nothing
    assert not bool(fitted._labelled(nameless).any())
    assert fitted._coverage(nameless, Context())[0].diagnosis.trust == 0.0
    assert fitted.explain(3, nameless).labelled_neighbours is None
    assert "labelled (" not in str(fitted.explain(3, nameless))


def _after_normals() -> torch.Generator:
    """The generator of ``grown`` once its features are drawn."""
    generator = torch.Generator().manual_seed(0)
    torch.randn(60, 8, generator=generator)
    return generator


@pytest.mark.parametrize(
    "ids",
    [True, False],
)
def test_new_nodes_like_the_old_ones_earn_no_trust(ids: bool) -> None:
    """Many features that are nothing but chance, of nodes that ``fit`` saw and of as many that came later."""
    rng = np.random.default_rng(0)
    names = np.arange(400) if ids else None
    features = (rng.random((400, 500)) < 0.03).astype(np.float32)
    graph = Graph(features, torch.from_numpy(rng.integers(0, 400, (2, 2000))), node_ids=names)
    seen = torch.from_numpy(rng.permutation(400)[:200])
    part = graph.subgraph(seen).replace(labels=torch.from_numpy(rng.integers(0, 2, 200)), class_names=("a", "b"))
    fitted = quick().fit(part, train=torch.arange(160), val=torch.arange(160, 200))
    result, _ = fitted._coverage(graph, Context())
    assert result.diagnosis.trust < 0.3
    assert result.diagnosis.auroc < 0.65


def test_what_is_kept_of_a_graph_is_kept_for_its_ids_and_its_setting() -> None:
    """Two graphs that differ in ids only have different training nodes; and the setting may change after fit."""
    graph = with_ids(small_task().graph)
    task = Task.leave_out(graph, [0])
    fitted = quick().fit(task)
    edges = graph.edge_index.flip(0)
    same = Graph(graph.features, edges, node_ids=graph.node_ids)
    without = Graph(graph.features, edges)
    assert same.content == without.content
    fresh = [fitted.coverage(one) for one in (same, without)]
    assert not torch.equal(*fresh)
    assert torch.equal(fitted.coverage(same), fresh[0])
    fitted.reestimate = False
    assert not torch.equal(fitted.coverage(same), fresh[0])
    fitted.reestimate = True
    assert torch.equal(fitted.coverage(same), fresh[0])


@pytest.mark.parametrize("reestimate", [True, False])
@pytest.mark.parametrize("change", ["removed", "noisy", "tenfold"])
def test_one_odd_node_is_wide(change: str, reestimate: bool, tmp_path: Path) -> None:
    """A known node whose features become smaller or larger than any that were there; the others are as they were."""
    task = small_task()
    graph = with_ids(task.graph)
    fitted = quick(reestimate=reestimate).fit(replace(task, graph=graph))
    node = int(task.test.nodes[~task.test.is_ood][3])
    features = graph.features.to_dense().clone()
    noise = 8.0 * torch.randn(features.shape[1], generator=torch.Generator().manual_seed(0))
    features[node] = {"removed": 0.0 * noise, "noisy": features[node] + noise, "tenfold": 10.0 * features[node]}[change]
    later = graph.replace(features=features)
    fitted.save(tmp_path)
    for method in (fitted, load_method(tmp_path)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", InputWarning)
            result = method.predict(later)
        others = torch.arange(graph.num_nodes) != node
        assert float(result.epistemic[node]) > float(result.epistemic[others].max()) - 1e-6
        assert float(method.coverage(later)[node]) < 1e-6
        # Nobody else is out of reach: all were there.
        assert float((method.coverage(later)[others] < 1e-6).double().mean()) == 0.0


def test_sizes_within_those_that_were_there_are_judged_by_the_models_alone() -> None:
    """Rows whose sums are 1 but for rounding have no size that could be new, however the graph is cut."""
    rng = np.random.default_rng(0)
    features = rng.random((300, 20)).astype(np.float32) + 0.1
    features /= features.sum(1, keepdims=True)
    labels = rng.integers(0, 2, 300)
    graph = Graph(features, rng.integers(0, 300, (2, 900)), labels)
    part = graph.subgraph(torch.arange(200))
    fitted = quick().fit(part, train=torch.arange(100), val=torch.arange(100, 140))
    describer, rows = fitted.describer_, fitted.describer_(graph)
    sums = np.stack([np.log1p(np.abs(features).sum(1)), np.log1p((features != 0).sum(1))], 1)
    np.testing.assert_allclose(describer.sizes(rows), sums, atol=1e-5)
    assert fitted.models_ is not None
    np.testing.assert_array_equal(fitted._coverage(graph, Context())[0].log_relative, fitted.models_(rows).log_relative)


@pytest.mark.parametrize("nodes", [10, 49])
def test_few_new_nodes_are_left_to_the_stored_models(nodes: int) -> None:
    """So a graph of a few nodes gives each of them what a graph with others beside it would."""
    fitted = fitted_small()
    stored = CredalCoverage(model=fitted.model_, reestimate=False).fit(small_task())
    graph = other_graph(nodes)
    assert torch.equal(fitted.coverage(graph), stored.coverage(graph))


def test_digits_that_come_after_training() -> None:
    task = load_task("digits", inductive=True)
    fitted = fitted_digits(inductive=True)
    assert auroc(fitted.predict().score, task) > 0.95
    assert fitted.diagnosis["trust"] < 0.2  # type: ignore[index]  # training has seen no OOD node
    stored = CredalCoverage(model=fitted.model_, reestimate=False).fit(task)
    result = stored.predict()
    entropy = torch.tensor([ref.bits(p) for p in result.probabilities.numpy()])
    assert auroc(result.score, task) > auroc(entropy, task) + 0.02
    assert torch.equal(result.classes, fitted.predict().classes)


# Bad and meagre input


@pytest.mark.parametrize("count", [2, 3, 9])
def test_few_labels(count: int, tmp_path: Path) -> None:
    """Too few to learn from: no trust, wide sets, and everything else works."""
    graph = other_graph()
    graph = graph.replace(labels=graph.labels % 2, class_names=("a", "b"))
    one, two = ((graph.labels == k).nonzero().squeeze(-1) for k in (0, 1))
    train = torch.cat([one[:1], two[: count - 1]])
    fitted = quick().fit(graph, train=train, val=torch.cat([one[-5:], two[-5:]]))
    assert fitted.diagnosis["trust"] == 0.0  # type: ignore[index]
    assert fitted.diagnosis["auroc"] == 0.5  # type: ignore[index]
    result = fitted.predict()
    assert float(result.score.min()) > 10 / (10 + count / 2) - 1e-6
    assert bool(fitted.predict(small_task().graph).score.isfinite().all())
    assert fitted.reasons(torch.tensor([0, 5])) == ["", ""]
    assert "decides only 0% of the width" in str(fitted.explain(5))
    fitted.save(tmp_path / "few")
    assert torch.equal(load_method(tmp_path / "few").predict(graph).score, result.score)


@pytest.mark.parametrize("count", [1, 9, 10])
def test_hardly_any_unlabelled_node(count: int) -> None:
    """All nodes train but those to stop by: ten are enough for two in each fold, with nine nothing is estimated."""
    graph = other_graph()
    order = torch.randperm(200, generator=torch.Generator().manual_seed(0))
    fitted = quick().fit(graph, train=order[count:], val=order[:count])
    assert (fitted.models_ is None) == (count < 10)
    assert fitted.diagnosis["trust"] < 0.5  # type: ignore[index]
    assert bool(fitted.predict().score.isfinite().all())
    assert bool(fitted.predict(other_graph(seed=8)).score.isfinite().all())


def test_a_class_with_one_training_node() -> None:
    graph = other_graph()
    lone = (graph.labels == 3).nonzero().squeeze(-1)
    order = (graph.labels != 3).nonzero().squeeze(-1)
    fitted = quick().fit(graph, train=torch.cat([lone[:1], order[:60]]), val=order[60:80])
    assert bool(fitted.predict().score.isfinite().all())


@pytest.mark.parametrize("case", ["constant features", "zero features", "loops alone", "one edge"])
def test_graphs_that_say_little(case: str) -> None:
    graph = other_graph()
    features, edges = graph.features, graph.edge_index
    if case.endswith("features"):
        features = torch.full_like(features, 1.0 if case.startswith("constant") else 0.0)
    else:
        edges = torch.arange(200).repeat(2, 1) if case == "loops alone" else torch.tensor([[0], [1]])
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        fitted = quick().fit(Task.leave_out(Graph(features, edges, graph.labels), [0]))
        result = fitted.predict()
    assert bool(result.score.isfinite().all())
    words = fitted.explain(3)
    if case == "loops alone":
        assert words.neighbours == 0
        assert "neighbours are labelled" not in str(words)


def test_bad_settings() -> None:
    for strength in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(MethodError, match="strength"):
            CredalCoverage(strength=strength)
    for seed in (-1, 2**32):
        with pytest.raises(MethodError, match="seed"):
            CredalCoverage(seed=seed)
    with pytest.raises(MethodError, match="reestimate"):
        CredalCoverage(reestimate="yes")  # type: ignore[arg-type]
    with pytest.raises(MethodError, match="str"):
        CredalCoverage(model="vanilla")  # type: ignore[arg-type]
    with pytest.raises(MethodError, match=r"must predict classes .* FeatureSum predicts none"):
        CredalCoverage(model=FeatureSum().fit(small_task())).fit(small_task())  # type: ignore[arg-type]


def test_bad_nodes_and_graphs() -> None:
    fitted = fitted_small()
    for node in (-1, 300, 10**9):
        with pytest.raises(MethodError, match=r"node -?\d+ does not exist: the graph has the nodes 0\.\.299"):
            fitted.explain(node)
        with pytest.raises(MethodError, match="nodes"):
            fitted.reasons(torch.tensor([0, node]))
    with pytest.raises(MethodError, match=r"0\.\.199"):
        fitted.explain(250, other_graph())
    wider = csbm(nodes=60, features=9)
    for ask in (fitted.predict, fitted.coverage, lambda graph: fitted.explain(0, graph)):
        with pytest.raises(MethodError, match="9 features"):
            ask(wider)
    with pytest.raises(MethodError, match="not fitted"):
        quick().explain(0)
    with pytest.raises(MethodError, match="not fitted"):
        quick().coverage()


# Why


@cache
def heavy() -> tuple[CredalCoverage, Graph, Tensor]:
    """Sparse features of ones, of OOD nodes of fours: nothing else differs. Edges are drawn at random."""
    rng = np.random.default_rng(0)
    ood_node = np.arange(400) % 2 == 1
    features = np.zeros((400, 120), np.float32)
    for node in range(400):
        features[node, rng.choice(120, 5, replace=False)] = 4.0 if ood_node[node] else 1.0
    graph = Graph(
        features, torch.from_numpy(rng.integers(0, 400, (2, 1500))), torch.from_numpy(rng.integers(0, 2, 400))
    )
    assert graph.features.layout == torch.sparse_csr
    known = torch.from_numpy(np.flatnonzero(~ood_node))
    fitted = quick().fit(graph, train=known[:120], val=known[120:150])
    return fitted, graph, torch.from_numpy(ood_node)


def test_the_reason_is_what_ood_nodes_differ_in() -> None:
    fitted, _, ood_node = heavy()
    for node in ood_node.nonzero().squeeze(-1)[:5].tolist():
        result = fitted.explain(node)
        reason = result.reasons[0]
        assert reason.name == "feature sum"
        assert reason.effect < -1.0
        assert reason.value == pytest.approx(20.0, rel=1e-4)
        assert reason.low == pytest.approx(5.0, rel=1e-4)
        assert reason.high == pytest.approx(5.0, rel=1e-4)
        assert result.width > 0.9
        assert result.coverage < 0.25
        assert "feature sum 20 (labelled nodes: 5 to 5)" in str(result)
        assert fitted.reasons(torch.tensor([node]))[0].startswith("feature sum 20")
        effects = [one.effect for one in result.reasons]
        assert effects == sorted(effects)
    known = fitted.predict(nodes=fitted.train_.nodes).credal.width.amax(-1)  # type: ignore[union-attr]
    assert float(known.median()) < 0.9
    mask = torch.zeros(400, dtype=torch.bool)
    mask[[1, 3]] = True
    assert fitted.reasons(mask) == fitted.reasons(torch.tensor([1, 3]))


def test_the_numbers_of_an_explanation_by_hand() -> None:
    fitted, graph, _ = heavy()
    labelled = {*fitted.train_.nodes.tolist()}
    around: list[set[int]] = [set() for _ in range(400)]
    for a, b in graph.edge_index.T.tolist():
        if a != b:
            around[a].add(b)
            around[b].add(a)
    shares = [len(around[v] & labelled) / len(around[v]) for v in labelled if around[v]]
    q = fitted.coverage()
    for node in (0, 1, 17, 250):
        result = fitted.explain(node)
        assert result.node == node
        assert result.neighbours == len(around[node])
        assert result.labelled_neighbours == len(around[node] & labelled)
        assert result.usual_share == pytest.approx(sum(shares) / len(shares))
        weakest = sorted(float(q[v]) for v in around[node])[:3]
        assert [number for _, number in result.least_covered] == pytest.approx([min(1.0, x) for x in weakest])
        assert all(other in around[node] for other, _ in result.least_covered)
        assert result.coverage == pytest.approx(min(1.0, float(q[node])))
        assert result.similar == 50
        assert 0 <= result.labelled_similar <= 50
        assert result.width == pytest.approx(float(fitted.predict(nodes=torch.tensor([node])).credal.width.max()))  # type: ignore[union-attr]
        assert f"{result.labelled_neighbours} of its {result.neighbours} neighbours" in str(result)


def test_explanations_are_for_people() -> None:
    """On the graph of fit and on another one; no number has more digits than can be meant."""
    fitted = fitted_small()
    for graph in (None, other_graph(), other_graph(10)):
        for node in (0, 3, 9):
            result = fitted.explain(node, graph)
            words = str(result)
            assert words.startswith(f"Node {node}, predicted {result.predicted}: its credal set is ")
            assert not re.search(r"\d\.\d{4,}", words)
            assert "nan" not in words
            assert result.similar == (9 if graph is not None and graph.num_nodes == 10 else 50)
            assert 0.0 <= result.width <= 1.0
            assert set(asdict(result)) >= {"labels_near", "trust", "reasons"}


def test_splits_of_ones_own_with_ood_nodes_in_the_middle() -> None:
    """A task whose numbers are not sorted by part: coverage belongs to the nodes it is said of."""
    graph = other_graph()
    order = torch.randperm(200, generator=torch.Generator().manual_seed(1))
    task = Task.leave_out(graph, [1], Split(order[:120], order[120:150], order[150:]))
    q = quick().fit(task).coverage()
    assert float(np.median(q[task.split.train].log())) == pytest.approx(0.0, abs=1e-9)
    assert float(roc_auc_score(graph.labels == 1, -q)) > 0.7
