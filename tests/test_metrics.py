"""Metrics: every number against a slow reference from its definition, and the diagnostics at their borders."""

from __future__ import annotations

import itertools
import json
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import FrozenInstanceError, asdict
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from credalgnn import HullSet, IntervalSet, Prediction, Task
from credalgnn.graphs import Graph, Split
from credalgnn.metrics.evaluation import Evaluation, evaluate
from credalgnn.metrics.registry import MARKS, disqualifies
from oracles import Polytope, lp_e_admissibility, lp_interval_dominance, lp_maximality

Scores = Mapping[str, Sequence[float]]

# Tasks and predictions made by hand


def task_of(labels: Sequence[int], classes: int, train: Sequence[int] | None = None) -> Task:
    """Test nodes with these labels (-1: OOD) in their order, two validation nodes; the graph's class 0 is left out."""
    train = list(range(classes)) if train is None else train
    parts = {"train": [k + 1 for k in train], "val": [0, 1], "test": [k + 1 for k in labels]}
    order = np.random.default_rng(0).permutation(sum(map(len, parts.values())))
    graph_labels, chosen, begin = np.zeros(len(order), dtype=int), {}, 0
    for name, given_labels in parts.items():
        nodes = np.sort(order[begin : begin + len(given_labels)])
        graph_labels[nodes] = given_labels
        chosen[name] = torch.from_numpy(nodes)
        begin += len(given_labels)
    names = [f"c{k}" for k in range(classes + 1)]
    edges = [list(range(len(order))), np.roll(range(len(order)), 1)]
    graph = Graph(
        np.random.default_rng(1).normal(size=(len(order), 2)).astype(np.float32), edges, graph_labels, class_names=names
    )
    return Task.leave_out(graph, [0], Split(**chosen))


def predict(
    task: Task,
    scores: Scores,
    probabilities: Any = None,
    credal: IntervalSet | HullSet | None = None,
    headline: str = "",
) -> Prediction:
    """A prediction for the test nodes, given in their order."""
    tensors = {name: torch.tensor(values, dtype=torch.float64) for name, values in scores.items()}
    p = None if probabilities is None else torch.as_tensor(probabilities, dtype=torch.float64)
    return Prediction(task.test.nodes, tensors, headline or next(iter(scores)), task.class_names, p, credal)


def one_hot(classes: Sequence[int], count: int, sure: float = 1.0) -> torch.Tensor:
    """Distributions that say a class with a certain probability and share the rest evenly."""
    p = torch.full((len(classes), count), (1.0 - sure) / max(count - 1, 1), dtype=torch.float64)
    p[range(len(classes)), list(classes)] = sure
    return p


def drawn(rng: np.random.Generator, nodes: int, classes: int) -> tuple[list[int], np.ndarray]:
    """Labels with both kinds of nodes, and distributions that are right more often than not."""
    labels = [int(k) for k in rng.integers(-1, classes, size=nodes)]
    labels[0], labels[1] = -1, 0
    logits = rng.normal(size=(nodes, classes))
    for node, label in enumerate(labels):
        if label >= 0:
            logits[node, label] += 1.0
    p = np.exp(logits)
    return labels, p / p.sum(1, keepdims=True)


# References


def auroc_of_pairs(score: Sequence[float], positive: Sequence[bool]) -> float:
    """The chance that a positive has the higher score, ties counting half."""
    wins, pairs = 0.0, 0
    for one, is_one in zip(score, positive, strict=True):
        for other, is_other in zip(score, positive, strict=True):
            if is_one and not is_other:
                wins += 1.0 if one > other else 0.5 if one == other else 0.0
                pairs += 1
    return wins / pairs


def thresholds(score: Sequence[float], positive: Sequence[bool]) -> list[tuple[int, int]]:
    """Positives and negatives with a score of at least t, for t from the highest score to the lowest."""
    result = []
    for t in sorted(set(score), reverse=True):
        above = [is_one for value, is_one in zip(score, positive, strict=True) if value >= t]
        result.append((sum(above), len(above) - sum(above)))
    return result


def average_precision(score: Sequence[float], positive: Sequence[bool]) -> float:
    """Precision at each threshold, weighted by the recall gained there."""
    area, before = 0.0, 0
    for true, false in thresholds(score, positive):
        area += (true - before) / sum(positive) * true / (true + false)
        before = true
    return area


def least_fpr95(score: Sequence[float], positive: Sequence[bool]) -> float:
    negatives = len(positive) - sum(positive)
    return min(f / negatives for t, f in thresholds(score, positive) if 20 * t >= 19 * sum(positive))


def risks_of_orders(score: Sequence[float], wrong: Sequence[bool]) -> list[Fraction]:
    """Expected error rate of the i most certain nodes, i = 1..n, over all orders that sort the score."""
    total = [Fraction(0)] * len(score)
    count = 0
    for order in itertools.permutations(range(len(score))):
        if any(score[a] > score[b] for a, b in itertools.pairwise(order)):
            continue
        count += 1
        for retained in range(1, len(order) + 1):
            total[retained - 1] += Fraction(sum(wrong[node] for node in order[:retained]), retained)
    return [one / count for one in total]


def classification(p: np.ndarray, labels: Sequence[int]) -> dict[str, float]:
    """Accuracy, macro F1, NLL, Brier score and ECE by plain loops."""
    count, classes = len(labels), p.shape[1]
    predicted = [int(max(range(classes), key=lambda k: row[k])) for row in p]
    f1 = []
    for k in range(classes):
        hit = sum(a == k == b for a, b in zip(predicted, labels, strict=True))
        seen, there = predicted.count(k), list(labels).count(k)
        f1.append(2 * hit / (seen + there) if hit else 0.0)
    brier = sum(sum((row[k] - (k == label)) ** 2 for k in range(classes)) for row, label in zip(p, labels, strict=True))
    ece = 0.0
    for number in range(15):
        inside = [
            node for node in range(count)
            if number / 15 <= max(p[node]) < (number + 1) / 15 or (number == 14 and max(p[node]) == 1.0)
        ]  # fmt: skip
        if inside:
            right = sum(predicted[node] == labels[node] for node in inside) / len(inside)
            sure = sum(max(p[node]) for node in inside) / len(inside)
            ece += len(inside) / count * abs(right - sure)
    return {
        "accuracy": sum(a == b for a, b in zip(predicted, labels, strict=True)) / count,
        "macro_f1": sum(f1) / classes,
        "nll": -sum(math.log(row[label]) for row, label in zip(p, labels, strict=True)) / count,
        "brier": brier / count,
        "ece": ece,
    }


# OOD detection


tied_scores = st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=2, max_size=40).filter(
    lambda drawn: 0 < sum(is_ood for _, is_ood in drawn) < len(drawn)
)


@given(tied_scores)
@settings(deadline=None, max_examples=100)
@example([(1, True), (1, False)])
@example([(0, True), (1, False), (2, False)])
def test_detection_of_ood_nodes(values: list[tuple[int, bool]]) -> None:
    """With many ties; whatever scale the score has."""
    is_ood = [ood for _, ood in values]
    task = task_of([-1 if ood else 0 for ood in is_ood], 2)
    for scale in (1.0, -1e-9, 1e12):
        score = [scale * value for value, _ in values]
        result = evaluate(predict(task, {"s": score}), task)
        assert result.headline == "s"
        assert result.scores["s"]["auroc"] == pytest.approx(auroc_of_pairs(score, is_ood), abs=1e-12)
        assert result.scores["s"]["aupr"] == pytest.approx(average_precision(score, is_ood), abs=1e-12)
        assert result.scores["s"]["fpr95"] == pytest.approx(least_fpr95(score, is_ood), abs=1e-12)


@pytest.mark.parametrize(
    ("ood", "missed", "expected"), [(20, 1, 0.0), (20, 2, 1.0), (40, 2, 0.0), (40, 3, 1.0), (19, 1, 1.0), (100, 5, 0.0)]
)
def test_fpr95_at_its_border(ood: int, missed: int, expected: float) -> None:
    """Some OOD nodes are below all ID nodes, the others above: 95 % above are enough, less are not."""
    task = task_of([-1] * ood + [0] * 7, 2)
    score = [0.0] * missed + [5.0] * (ood - missed) + [1.0] * 7
    assert evaluate(predict(task, {"s": score}), task).scores["s"]["fpr95"] == expected


def test_a_perfect_a_wrong_and_a_constant_score() -> None:
    task = task_of([0, 0, 0, -1, -1], 2)
    scores = {"good": [0, 1, 2, 3, 4], "bad": [4, 3, 2, 1, 0], "flat": [7.0] * 5}
    result = evaluate(predict(task, scores, one_hot([0, 1, 0, 0, 0], 2, 0.8)), task)
    assert [result.scores["good"][name] for name in ("auroc", "aupr", "fpr95")] == [1.0, 1.0, 0.0]
    assert [result.scores["bad"][name] for name in ("auroc", "fpr95")] == [0.0, 1.0]
    flat = result.scores["flat"]
    assert (flat["auroc"], flat["fpr95"], flat["misclassification_auroc"]) == (0.5, 1.0, 0.5)
    assert flat["aupr"] == pytest.approx(0.4)
    assert flat["aurc"] == pytest.approx(1 / 3)  # at any coverage a third is wrong, on average
    assert result.curves["rejection"]["flat"] == pytest.approx([2 / 3] * 50, abs=1e-5)
    assert sum(result.curves["histogram"]["flat"]["id"]) == 3
    assert sum(result.curves["histogram"]["flat"]["ood"]) == 2
    assert np.all(np.diff(result.curves["histogram"]["flat"]["edges"]) > 0)


@pytest.mark.parametrize("level", [1.0, -3.0, 1000.0])
def test_a_score_that_differs_in_its_last_digit_only(level: float) -> None:
    """Nearly constant, yet a perfect score: it is judged, and every node stands in the histogram."""
    task = task_of([0, 0, 0, -1, -1], 2)
    high = float(np.nextafter(level, np.inf))
    result = evaluate(predict(task, {"s": [level] * 3 + [high] * 2}), task)
    assert result.scores["s"]["auroc"] == 1.0
    assert sum(result.curves["histogram"]["s"]["id"]) == 3
    assert sum(result.curves["histogram"]["s"]["ood"]) == 2


def test_roc_curve_passes_through_its_points() -> None:
    """20 ID nodes with scores of their own: at every multiple of 0.05 the highest TPR that this FPR allows."""
    rng = np.random.default_rng(0)
    score = rng.permutation(50).astype(float)
    is_ood = np.arange(50) >= 20
    task = task_of([-1 if ood else 0 for ood in is_ood], 2)
    curve = evaluate(predict(task, {"s": score}), task).curves["roc"]["s"]
    assert len(curve) == 101
    assert curve == sorted(curve)
    for share in range(21):
        allowed = max(t for t, f in [(0, 0), *thresholds(score.tolist(), is_ood.tolist())] if f <= share)
        assert curve[5 * share] == pytest.approx(allowed / 30, abs=1e-5)
    assert curve[100] == 1.0


@pytest.mark.parametrize("seed", range(3))
def test_histogram_counts_every_node_once(seed: int) -> None:
    rng = np.random.default_rng(seed)
    score = np.round(rng.normal(size=200), 1)
    task = task_of([-1 if k % 3 == 0 else 0 for k in range(200)], 2)
    result = evaluate(predict(task, {"s": score}), task).curves["histogram"]["s"]
    edges = result["edges"]
    assert (len(edges), len(result["id"]), len(result["ood"])) == (31, 30, 30)
    assert (edges[0], edges[-1]) == (pytest.approx(score.min()), pytest.approx(score.max()))
    for name, chosen in (("id", score[np.arange(200) % 3 != 0]), ("ood", score[::3])):
        assert sum(result[name]) == len(chosen)
        below = [sum(result[name][:k]) for k in range(31)]
        for k, edge in enumerate(edges[:-1]):
            near = np.abs(chosen - edge) < 1e-9  # a value on an edge may be either side of it by rounding
            assert (chosen[~near] < edge).sum() <= below[k] <= (chosen[~near] < edge).sum() + near.sum()


# Classes and probabilities


@pytest.mark.parametrize("classes", [2, 3, 7])
@pytest.mark.parametrize("seed", range(4))
def test_classification_of_id_nodes(seed: int, classes: int) -> None:
    labels, p = drawn(np.random.default_rng(seed), 60, classes)
    task = task_of(labels, classes)
    result = evaluate(predict(task, {"s": range(60)}, p), task).metrics
    known = [node for node, label in enumerate(labels) if label >= 0]
    expected = classification(p[known], [labels[node] for node in known])
    assert {name: result[name] for name in expected} == pytest.approx(expected, abs=1e-12)
    assert set(result) == set(expected)  # nothing of credal sets


def test_macro_f1_counts_classes_that_are_never_predicted_or_never_true() -> None:
    """Class 2 is never predicted, class 3 neither true nor predicted; both count as 0."""
    labels = [0, 0, 1, 2, -1]
    task = task_of(labels, 4)
    result = evaluate(predict(task, {"s": range(5)}, one_hot([0, 1, 1, 1, 0], 4, 0.7)), task).metrics
    assert result["macro_f1"] == pytest.approx((2 / 3 + 2 / 4 + 0 + 0) / 4)


def test_probabilities_of_one_and_zero() -> None:
    """A node that is sure and wrong has a finite NLL, and a confidence of 1 falls into the last bin."""
    task = task_of([0, 1, 0, -1], 2)
    result = evaluate(predict(task, {"s": range(4)}, one_hot([0, 1, 1, 0], 2)), task).metrics
    assert result["accuracy"] == pytest.approx(2 / 3)
    assert result["ece"] == pytest.approx(1 / 3)
    assert result["brier"] == pytest.approx(2 / 3)
    assert result["nll"] is not None
    assert 100 < result["nll"] < math.inf


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_probabilities_of_any_precision(dtype: torch.dtype) -> None:
    labels, p = drawn(np.random.default_rng(0), 300, 3)
    task = task_of(labels, 3)
    made = predict(task, {"s": range(300)})
    made = Prediction(made.nodes, made.scores, "s", task.class_names, torch.from_numpy(p).to(dtype))
    known = [node for node, label in enumerate(labels) if label >= 0]
    expected = classification(torch.from_numpy(p).to(dtype).double().numpy()[known], [labels[node] for node in known])
    result = evaluate(made, task).metrics
    assert {name: result[name] for name in expected} == pytest.approx(expected, abs=1e-9)


def test_methods_that_do_not_classify() -> None:
    task = task_of([0, 1, -1, -1], 2)
    result = evaluate(predict(task, {"score": [0.0, 3.0, 2.0, 4.0]}), task)
    assert result.metrics == dict.fromkeys(("accuracy", "macro_f1", "nll", "brier", "ece"))
    assert result.scores["score"]["auroc"] == 0.75
    assert result.scores["score"]["misclassification_auroc"] is None
    assert result.scores["score"]["aurc"] is None
    assert result.curves["rejection"] == {}
    assert set(result.curves) == {"roc", "rejection", "histogram"}
    assert result.marks == ()
    assert str(result)


# Wrong nodes


doubts = st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1, max_size=6)


@given(doubts)
@settings(deadline=None, max_examples=60)
@example([(0, True)])
@example([(1, True), (1, False), (1, False), (0, True)])
def test_rejection_averages_over_the_orders_of_tied_nodes(values: list[tuple[int, bool]]) -> None:
    score, wrong = [float(value) for value, _ in values], [bad for _, bad in values]
    task = task_of([-1, *([0] * len(values))], 2)
    p = one_hot([0, *(int(bad) for bad in wrong)], 2, 0.9)
    result = evaluate(predict(task, {"s": [9.0, *score]}, p), task)
    risks = risks_of_orders(score, wrong)
    assert result.scores["s"]["aurc"] == pytest.approx(float(sum(risks) / len(risks)), abs=1e-12)
    curve = result.curves["rejection"]["s"]
    assert len(curve) == 50
    for number, accuracy in enumerate(curve):
        retained = max(1, math.floor(Fraction(50 - number, 50) * len(score) + Fraction(1, 2)))
        assert accuracy == pytest.approx(1 - float(risks[retained - 1]), abs=1e-5)
    if 0 < sum(wrong) < len(wrong):
        assert result.scores["s"]["misclassification_auroc"] == pytest.approx(auroc_of_pairs(score, wrong), abs=1e-12)
    else:
        assert result.scores["s"]["misclassification_auroc"] is None


@pytest.mark.parametrize("nodes", [1, 3, 25, 75, 125, 284])
def test_how_many_nodes_a_rejection_keeps(nodes: int) -> None:
    """Half up, never none: all but the k most certain are wrong, so the accuracy tells how many were kept."""
    task = task_of([-1, *([0] * nodes)], 2)
    p = one_hot([0, 0, *([1] * (nodes - 1))], 2, 0.9)  # the most certain alone is right
    curve = evaluate(predict(task, {"s": range(-1, nodes)}, p), task).curves["rejection"]["s"]
    retained = [max(1, math.floor(Fraction(50 - number, 50) * nodes + Fraction(1, 2))) for number in range(50)]
    assert curve == pytest.approx([1 / count for count in retained], abs=1e-5)


def test_ood_nodes_do_not_count_as_wrong() -> None:
    """The OOD nodes are between the ID nodes; the ID nodes alone make the numbers."""
    task = task_of([0, -1, 0, -1, 0], 2)
    for strange in ([1.5, 2.5], [-9.0, 9.0]):
        score = [1.0, strange[0], 2.0, strange[1], 3.0]
        result = evaluate(predict(task, {"s": score}, one_hot([0, 1, 0, 1, 1], 2, 0.9)), task)
        assert result.scores["s"]["misclassification_auroc"] == 1.0
        assert result.scores["s"]["aurc"] == pytest.approx((0 + 0 + 1 / 3) / 3)
        assert result.metrics["accuracy"] == pytest.approx(2 / 3)


# Credal sets


RULES: dict[str, Callable[[Polytope], np.ndarray]] = {
    "interval_dominance": lp_interval_dominance,
    "maximality": lp_maximality,
    "e_admissibility": lp_e_admissibility,
}


def credal_of(
    kind: str, seed: int, nodes: int, classes: int
) -> tuple[IntervalSet | HullSet, list[Polytope], np.ndarray, np.ndarray]:
    """Sets around members; the same as polytopes, with their envelopes."""
    members = np.random.default_rng(seed).dirichlet(np.full(classes, 0.7), size=(3, nodes))
    members = 0.6 * members + 0.4 * members[:1]
    lower, upper = members.min(0), members.max(0)
    if kind == "hull":
        return HullSet(members), [Polytope.hull(members[:, node]) for node in range(nodes)], lower, upper
    boxes = [Polytope.intervals(lower[node], upper[node]) for node in range(nodes)]
    return IntervalSet(lower, upper), boxes, lower, upper


@pytest.mark.parametrize("kind", ["intervals", "hull"])
@pytest.mark.parametrize("seed", range(3))
def test_credal_sets(kind: str, seed: int) -> None:
    nodes, classes = 31, 4
    labels, _ = drawn(np.random.default_rng(seed), nodes, classes)
    task = task_of(labels, classes)
    credal, polytopes, lower, upper = credal_of(kind, seed, nodes, classes)
    made = Prediction.of_credal(task.test.nodes, credal, task.class_names)
    result = evaluate(made, task).metrics
    known = [node for node, label in enumerate(labels) if label >= 0]
    for name, bound in (("accuracy_lower", lower), ("accuracy_upper", upper)):
        right = [int(np.argmax(bound[node])) == labels[node] for node in known]
        assert result[name] == pytest.approx(sum(right) / len(known))
    width = upper - lower
    assert result["width"] == pytest.approx(sum(map(sum, width)) / (nodes * classes), abs=1e-12)
    assert result["widest"] == pytest.approx(sorted(max(row) for row in width)[nodes // 2], abs=1e-12)
    strange = [node for node in range(nodes) if node not in known]
    for name, chosen in (("widest_id", known), ("widest_ood", strange)):
        assert result[name] == pytest.approx(statistics.median(max(width[node]) for node in chosen), abs=1e-12)
    for name, margins in RULES.items():
        retained = [{k for k, margin in enumerate(margins(polytopes[node])) if margin >= -1e-9} for node in known]
        inside = [labels[node] in one for node, one in zip(known, retained, strict=True)]
        assert result[f"size_{name}"] == pytest.approx(sum(map(len, retained)) / len(known))
        assert result[f"coverage_{name}"] == pytest.approx(sum(inside) / len(known))
    sizes = [1 / len(one) if is_in else 0.0 for one, is_in in zip(retained, inside, strict=True)]
    assert result["u65"] == pytest.approx(sum(1.6 * x - 0.6 * x * x for x in sizes) / len(known))
    assert result["u80"] == pytest.approx(sum(2.2 * x - 1.2 * x * x for x in sizes) / len(known))
    expected = classification(made.probabilities.double().numpy()[known], [labels[node] for node in known])  # type: ignore[union-attr]
    assert {name: result[name] for name in expected} == pytest.approx(expected, abs=1e-12)


def test_the_median_of_an_even_number_of_nodes_lies_in_between() -> None:
    task = task_of([0, 1, -1, -1], 2)
    widths = np.array([0.1, 0.2, 0.4, 0.8])[:, None] * [1.0, 1.0]
    result = evaluate(
        Prediction.of_credal(task.test.nodes, IntervalSet(0.5 - widths / 2, 0.5 + widths / 2), task.class_names), task
    )
    assert result.metrics["widest"] == pytest.approx(0.3)
    assert (result.metrics["widest_id"], result.metrics["widest_ood"]) == pytest.approx((0.15, 0.6))
    assert result.metrics["width"] == pytest.approx(0.375)


def test_a_vacuous_and_a_precise_set() -> None:
    task = task_of([0, 1, 2, -1], 3)
    vacuous = IntervalSet(np.zeros((4, 3)), np.ones((4, 3)))
    result = evaluate(Prediction.of_credal(task.test.nodes, vacuous, task.class_names), task)
    for rule in RULES:
        assert (result.metrics[f"size_{rule}"], result.metrics[f"coverage_{rule}"]) == (3.0, 1.0)
    assert result.metrics["u65"] == pytest.approx(1.6 / 3 - 0.6 / 9)
    assert result.metrics["u80"] == pytest.approx(2.2 / 3 - 1.2 / 9)
    assert (result.metrics["width"], result.metrics["widest"]) == (1.0, 1.0)
    assert "saturated" in result.marks
    precise = one_hot([0, 1, 1, 0], 3, 0.6)
    result = evaluate(Prediction.of_credal(task.test.nodes, IntervalSet(precise, precise), task.class_names), task)
    for rule in RULES:
        assert (result.metrics[f"size_{rule}"], result.metrics[f"coverage_{rule}"]) == (1.0, pytest.approx(2 / 3))
    assert [result.metrics[name] for name in ("u65", "u80", "accuracy")] == pytest.approx([2 / 3] * 3)
    assert result.metrics["width"] == 0.0
    assert result.marks == ("narrow",)


# The diagnostics


@pytest.mark.parametrize(
    ("classes", "predicted", "marked"),
    [(4, 1, True), (4, 2, False), (5, 2, True), (5, 3, False), (2, 1, False), (3, 1, True), (3, 2, False)],
)
def test_few_classes(classes: int, predicted: int, marked: bool) -> None:
    labels = [*range(classes), *range(classes), -1]
    task = task_of(labels, classes)
    message = [label if 0 <= label < predicted else 0 for label in labels]
    result = evaluate(predict(task, {"s": range(len(labels))}, one_hot(message, classes, 0.7)), task)
    assert ("few-classes" in result.marks) == marked


def test_few_classes_are_counted_on_all_nodes_of_the_part_and_no_others() -> None:
    task = task_of([0, 1, 2, 3, -1], 4)
    on_ood = predict(task, {"s": range(5)}, one_hot([0, 0, 0, 0, 1], 4, 0.7))
    assert "few-classes" not in evaluate(on_ood, task).marks
    nodes = torch.cat([task.test.nodes, task.validation.nodes])
    p = one_hot([0, 0, 0, 0, 0, 1, 2], 4, 0.7)
    elsewhere = Prediction(nodes, {"s": torch.arange(7.0)}, "s", task.class_names, p)
    assert "few-classes" in evaluate(elsewhere, task).marks


@pytest.mark.parametrize(("right", "marked"), [(0, True), (2, True), (3, True), (4, False), (9, False)])
def test_majority(right: int, marked: bool) -> None:
    """Class 1 is the most frequent in training, and 3 of 9 ID test nodes are of it; class 0 is in the test part."""
    task = task_of([0, 0, 0, 0, 0, 1, 1, 1, 2, -1], 3, train=[0, 1, 1, 2])
    labels = [0, 0, 0, 0, 0, 1, 1, 1, 2]
    message = [label if k < right else (label + 1) % 3 for k, label in enumerate(labels)]
    result = evaluate(predict(task, {"s": range(10)}, one_hot([*message, 0], 3, 0.7)), task)
    assert result.metrics["accuracy"] == pytest.approx(right / 9)
    assert ("majority" in result.marks) == marked


def with_widths(task: Task, widths: Sequence[float], hull: bool = False) -> Prediction:
    """Sets {p_0 in [1/4, 1/4 + w]}; the widest interval of a node is w, up to rounding."""
    low = 0.25 + 0 * np.array(widths)
    first = np.stack([low, 1 - low], axis=1)
    second = np.stack([low + widths, 1 - low - widths], axis=1)
    members = np.stack([first, second])
    credal = HullSet(members) if hull else IntervalSet(members.min(0), members.max(0))
    return Prediction.of_credal(task.test.nodes, credal, task.class_names)


def mixed(count: int, open_ones: int, width: float) -> list[float]:
    return [width] * open_ones + [0.0] * (count - open_ones)


@pytest.mark.parametrize("hull", [False, True])
@pytest.mark.parametrize(
    ("widths", "marked"),
    [
        ([0.0] * 40, True),
        ([0.0499] * 40, True),
        ([0.0501] * 40, False),
        (mixed(40, 2, 0.0501), True),
        (mixed(40, 3, 0.0501), False),
        (mixed(100, 5, 0.5), True),
        (mixed(100, 6, 0.5), False),
    ],
)
def test_narrow(widths: list[float], marked: bool, hull: bool) -> None:
    """5 % of the nodes may have an interval wider than 0.05; AU is large, so that EU is next to nothing beside it."""
    task = task_of([0, -1] * (len(widths) // 2), 2)
    assert ("narrow" in evaluate(with_widths(task, widths, hull), task).marks) == marked


def test_narrow_is_of_the_nodes_of_the_part() -> None:
    task = task_of([0, -1] * 10, 2)
    nodes = torch.cat([task.test.nodes, task.validation.nodes])
    for width, more, marked in ((0.0, 0.5, True), (0.5, 0.0, False)):
        wide = np.array([width] * 20 + [more] * 2)[:, None] * [0.5, 0.5]
        made = Prediction.of_credal(nodes, IntervalSet(0.5 - wide, 0.5 + wide), task.class_names)
        assert ("narrow" in evaluate(made, task).marks) == marked


def sure_of(task: Task, ood_nodes: float, doubtful: int = 0) -> Prediction:
    """A model that knows the ID nodes for certain, but for the first few, and opens its intervals for OOD nodes."""
    known = torch.arange(len(task.test.nodes)) >= doubtful
    width = torch.where(task.test.is_ood | ~known, ood_nodes, 1e-6).double()[:, None]
    p = one_hot(task.test.labels.clamp_min(0).tolist(), task.num_classes, 1 - 1e-6)
    credal = IntervalSet(p * (1 - width), p * (1 - width) + width)
    return Prediction.of_credal(task.test.nodes, credal, task.class_names)


@pytest.mark.parametrize("ood_nodes", [1, 5, 40])
def test_a_model_that_is_sure_of_known_nodes_and_open_for_ood_nodes_works(ood_nodes: int) -> None:
    """However few they are: the median of the widest intervals is nothing, and so is their 95th percentile."""
    task = task_of([0, 1, 2, 3] * 50 + [-1] * ood_nodes, 4)
    result = evaluate(sure_of(task, 0.9), task)
    assert result.metrics["widest"] < 1e-3  # type: ignore[operator]
    assert result.scores["EU"]["auroc"] == 1.0
    assert "narrow" not in result.marks
    assert not any(disqualifies(mark, "sealed") for mark in result.marks)


def test_a_model_that_is_sure_of_ood_nodes_too_is_closed() -> None:
    task = task_of([0, 1, 2, 3] * 50 + [-1] * 40, 4)
    p = one_hot([0, 1, 2, 3] * 50 + [0] * 40, 4, 0.9) * (1 - 1e-6)
    p[200:] = 0.25 * (1 - 1e-6)  # it doubts the OOD nodes, and yet its intervals are as narrow as anywhere
    closed = Prediction.of_credal(task.test.nodes, IntervalSet(p, p + 1e-6), task.class_names)
    result = evaluate(closed, task)
    assert result.scores["TU"]["auroc"] == 1.0
    assert "narrow" in result.marks
    precise = IntervalSet(*[one_hot([0, 1, 2, 3] * 50 + [0] * 40, 4)] * 2)  # TU and EU are exactly 0
    assert "narrow" in evaluate(Prediction.of_credal(task.test.nodes, precise, task.class_names), task).marks


@pytest.mark.parametrize("classes", [2, 4, 5])
@pytest.mark.parametrize(
    ("high", "below", "marked"),
    [(20, 0.0, True), (19, 0.0, True), (18, 0.0, False), (19, 0.00099, True), (20, 0.00101, False), (19, -1e-9, True)],
)
def test_saturated(classes: int, high: int, below: float, marked: bool) -> None:
    """18 of 20 are 90 %, which is not over 90 %."""
    task = task_of([0] * 12 + [-1] * 8, classes)
    total = [math.log2(classes) - below] * high + [0.3] * (20 - high)
    result = evaluate(predict(task, {"TU": total}, one_hot([0, 1] * 10, classes, 0.7)), task)
    assert ("saturated" in result.marks) == marked


def test_saturation_is_of_total_uncertainty_alone() -> None:
    task = task_of([0] * 12 + [-1] * 8, 4)
    result = evaluate(predict(task, {"EU": [2.0] * 20, "AU": [2.0] * 20, "entropy": [2.0] * 20}), task)
    assert result.marks == ()


def swapped(*pairs: tuple[int, int]) -> list[float]:
    """0..12 with some places swapped: a swap over a distance d adds 2 d^2 to the sum S of squared rank differences."""
    values = [float(k) for k in range(13)]
    for a, b in pairs:
        values[a], values[b] = values[b], values[a]
    return values


MIXED = swapped((0, 12), (1, 11), (4, 7))


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize(
    ("pairs", "marked"), [([], True), ([(2, 5)], True), ([(2, 5), (7, 8)], False), ([(0, 12)], False)]
)
def test_mirror(pairs: list[tuple[int, int]], marked: bool, sign: float) -> None:
    """Spearman is 1 - 6 S / (13 * 168): 0.9505 for S = 18, and 0.9451 for S = 20."""
    task = task_of([0, 1, 0, 1, 0, -1, -1, 0, 1, 0, 0, 0, 1], 2)
    scores = {"EU": [sign * math.exp(k) for k in range(13)], "AU": swapped(*pairs)}
    assert ("mirror" in evaluate(predict(task, scores), task).marks) == marked


@pytest.mark.parametrize(("au", "more", "marked"), [(swapped(), [-1e6, -1e7], True), (MIXED, [1e6, 1e7], False)])
def test_mirror_is_of_the_nodes_of_the_part(au: list[float], more: list[float], marked: bool) -> None:
    """Two nodes of another part would break the likeness, or come near it."""
    task = task_of([0, 1, 0, 1, 0, -1, -1, 0, 1, 0, 0, 0, 1], 2)
    nodes = torch.cat([task.test.nodes, task.validation.nodes])
    scores = {"EU": torch.tensor([*swapped(), 1e6, 1e7]), "AU": torch.tensor([*au, *more])}
    assert ("mirror" in evaluate(Prediction(nodes, scores, "EU", task.class_names), task).marks) == marked


@pytest.mark.parametrize("flat", ["EU", "AU"])
def test_a_constant_score_mirrors_nothing(flat: str) -> None:
    task = task_of([0, 1, 0, -1], 2)
    scores = {"EU": [0.1, 0.2, 0.3, 0.4], "AU": [0.1, 0.2, 0.3, 0.4], flat: [0.7] * 4}
    assert evaluate(predict(task, scores), task).marks == ()


def test_mirror_with_ties_uses_mean_ranks() -> None:
    """AU tells two groups apart, EU all nodes: Spearman is 0.866, though the order agrees wherever AU has one."""
    task = task_of([0, 1, 0, 1, 0, 1, 0, 1, -1, -1], 2)
    scores = {"EU": list(map(float, range(10))), "AU": [0.0] * 5 + [1.0] * 5}
    assert "mirror" not in evaluate(predict(task, scores), task).marks
    assert "mirror" in evaluate(predict(task, {**scores, "EU": [3.0] * 5 + [4.0] * 5}), task).marks


def test_a_good_model_has_no_marks_and_every_mark_is_explained() -> None:
    rng = np.random.default_rng(0)
    labels, _ = drawn(rng, 100, 4)
    task = task_of(labels, 4)
    p = one_hot([max(label, 0) for label in labels], 4, 0.7).numpy()
    wide = rng.uniform(0.02, 0.2, size=(100, 1))
    credal = IntervalSet(np.clip(p - wide, 0, 1), np.clip(p + wide * rng.uniform(0.1, 1, size=(100, 4)), 0, 1))
    made = Prediction.of_credal(task.test.nodes, credal, task.class_names)
    scores = {**made.scores, "AU": torch.from_numpy(rng.normal(size=100))}
    made = Prediction(made.nodes, scores, "EU", made.class_names, made.probabilities, credal)
    assert evaluate(made, task).marks == ()
    assert set(MARKS) == {"few-classes", "majority", "narrow", "saturated", "mirror", "edited"}
    assert len({mark.letter for mark in MARKS.values()}) == len(MARKS)
    assert all(mark.meaning and mark.advice and mark.letter.isupper() for mark in MARKS.values())


def test_what_a_mark_takes_out_of_the_ranking() -> None:
    """What makes no classifier, or no score, always; what leaves one score of two where its sign may be chosen."""
    out = {protocol: {mark for mark in MARKS if disqualifies(mark, protocol)} for protocol in ("sealed", "paper")}
    assert out == {"sealed": {"few-classes", "majority", "narrow", "edited"}, "paper": set(MARKS)}
    assert disqualifies("brand-new", "sealed")


def test_an_evaluation_says_what_its_marks_ask_for() -> None:
    task = task_of([0, 1, 2, 3] * 5 + [-1] * 5, 4)
    p = one_hot([0] * 25, 4, 0.7)
    result = evaluate(Prediction.of_credal(task.test.nodes, IntervalSet(p, p), task.class_names), task)
    assert result.marks == ("few-classes", "majority", "narrow")
    for mark in result.marks:
        assert MARKS[mark].meaning in str(result)
        assert MARKS[mark].advice in str(result)


def test_a_saturated_model_is_its_own_mirror_image() -> None:
    """All sets hold the uniform distribution: EU is log2 C - AU."""
    rng = np.random.default_rng(0)
    task = task_of([0, 1, 2, 3] * 10 + [-1] * 10, 4)
    lower = np.full((50, 4), 0.02)
    lower[range(50), [0, 1, 2, 3] * 10 + [0] * 10] = rng.uniform(0.05, 0.25, 50)
    credal = IntervalSet(lower, np.minimum(lower + 0.7, 1.0))
    result = evaluate(Prediction.of_credal(task.test.nodes, credal, task.class_names), task)
    assert result.marks == ("saturated", "mirror")


# Which nodes


def shuffled(made: Prediction, order: torch.Tensor) -> Prediction:
    credal = made.credal
    if isinstance(credal, IntervalSet):
        credal = IntervalSet(credal.lower[order], credal.upper[order])
    elif isinstance(credal, HullSet):
        credal = HullSet(credal.members[:, order])
    p = None if made.probabilities is None else made.probabilities[order]
    return Prediction(
        made.nodes[order],
        {name: s[order] for name, s in made.scores.items()},
        made.headline,
        made.class_names,
        p,
        credal,
    )


def same(one: Evaluation, other: Evaluation) -> None:
    """Equal but for the order in which sums are taken."""
    for name in ("metrics", "scores", "curves"):
        flat_one, flat_other = (json.loads(json.dumps(getattr(result, name))) for result in (one, other))
        np.testing.assert_equal(*(_rounded(result) for result in (flat_one, flat_other)))
    assert (one.headline, one.marks) == (other.headline, other.marks)


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_rounded(one) for one in value]
    return round(value, 9) if isinstance(value, float) else value


@pytest.mark.parametrize("kind", ["intervals", "hull", "vanilla", "score"])
def test_nodes_in_any_order_and_more_of_them(kind: str) -> None:
    """All nodes of the graph, in another order: the same numbers as the part alone."""
    labels, _ = drawn(np.random.default_rng(5), 40, 3)
    task = task_of(labels, 3)
    n = task.graph.num_nodes
    rng = np.random.default_rng(0)
    everything = torch.arange(n)
    if kind in ("intervals", "hull"):
        whole = Prediction.of_credal(everything, credal_of(kind, 0, n, 3)[0], task.class_names)
    else:
        q = torch.from_numpy(rng.dirichlet(np.ones(3), size=n)) if kind == "vanilla" else None
        whole = Prediction(everything, {"s": torch.from_numpy(rng.normal(size=n))}, "s", task.class_names, q)
    part = shuffled(whole, task.test.nodes)
    assert torch.equal(part.nodes, task.test.nodes)
    expected = evaluate(part, task)
    for seed in range(3):
        order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
        same(evaluate(shuffled(whole, order), task), expected)
    same(evaluate(shuffled(part, torch.arange(40).flip(0)), task), expected)


def test_the_part_asked_for_is_the_part_judged() -> None:
    task = task_of([0, 1, -1, -1], 2)
    score = torch.zeros(task.graph.num_nodes, dtype=torch.float64)
    score[task.test.nodes[2:]] = 1.0
    is_ood = task.validation.is_ood
    score[task.validation.nodes[~is_ood]] = 5.0
    made = Prediction(torch.arange(task.graph.num_nodes), {"s": score}, "s", task.class_names)
    assert evaluate(made, task).scores["s"]["auroc"] == 1.0
    assert evaluate(made, task, "test").scores["s"]["auroc"] == 1.0
    assert evaluate(made, task, "validation").scores["s"]["auroc"] == 0.0
    with pytest.raises(ValueError, match="train"):
        evaluate(made, task, "train")  # type: ignore[arg-type]


def test_missing_nodes_are_refused() -> None:
    task = task_of([0, 1, 0, -1, -1], 2)
    made = predict(task, {"s": range(5)}, one_hot([0, 1, 0, 0, 0], 2))
    for left_out in range(5):
        retained = torch.tensor([k for k in range(5) if k != left_out])
        with pytest.raises(ValueError, match=rf"\b{int(task.test.nodes[left_out])}\b"):
            evaluate(shuffled(made, retained), task)
    with pytest.raises(ValueError, match="validation"):
        evaluate(made, task, "validation")
    with pytest.raises(ValueError, match="node"):
        evaluate(shuffled(made, torch.tensor([], dtype=torch.int64)), task)


@pytest.mark.parametrize("labels", [[0, 1, 0], [-1, -1]])
def test_a_part_of_one_kind_cannot_be_judged(labels: list[int]) -> None:
    task = task_of(labels, 2)
    with pytest.raises(ValueError, match="test"):
        evaluate(predict(task, {"s": range(len(labels))}), task)


def test_an_evaluation_is_plain_and_frozen() -> None:
    """Python's own numbers, so that JSON can hold them."""
    labels, _ = drawn(np.random.default_rng(0), 30, 3)
    task = task_of(labels, 3)
    result = evaluate(Prediction.of_credal(task.test.nodes, credal_of("hull", 0, 30, 3)[0], task.class_names), task)
    text = json.dumps(asdict(result), allow_nan=False)
    assert json.loads(text)["scores"]["EU"]["auroc"] == result.scores["EU"]["auroc"]
    assert list(result.scores) == ["EU", "AU", "TU"]
    assert result.headline == "EU"
    assert "EU" in str(result)
    with pytest.raises(FrozenInstanceError):
        result.marks = ()  # type: ignore[misc]


def test_evaluating_changes_nothing() -> None:
    labels, _ = drawn(np.random.default_rng(0), 30, 3)
    task = task_of(labels, 3)
    made = Prediction.of_credal(task.test.nodes.flip(0), credal_of("intervals", 0, 30, 3)[0], task.class_names)
    held = [made.nodes, made.probabilities, *made.scores.values(), made.credal.lower]  # type: ignore[union-attr]
    before = [tensor.clone() for tensor in held if tensor is not None]
    evaluate(made, task)
    assert all(torch.equal(one, other) for one, other in zip(held, before, strict=True))  # type: ignore[arg-type]
