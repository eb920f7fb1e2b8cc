"""The oracles against each other: two independent routes to every number they give."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.optimize import minimize

from oracles import (
    Polytope,
    brute_lower_entropy,
    brute_upper_entropy,
    entropy,
    hull_distance,
    hull_lower_entropy,
    hull_upper_entropy,
    interval_vertices,
    lp_e_admissibility,
    lp_interval_dominance,
    lp_maximality,
    naive_interval_softmax,
    regimes,
    water_level,
)


@pytest.mark.parametrize("classes", [2, 3, 4, 5])
def test_entropies_of_an_interval_set_are_those_of_the_hull_of_its_vertices(classes: int) -> None:
    rng = np.random.default_rng(classes)
    for name, (lower, upper) in regimes(rng, 4, classes).items():
        low, high = brute_lower_entropy(lower, upper), brute_upper_entropy(lower, upper)
        for row in range(len(lower)):
            corners = interval_vertices(lower[row], upper[row])
            assert low[row] == pytest.approx(hull_lower_entropy(corners), abs=1e-10), name
            best = hull_upper_entropy(corners)
            assert best.gap < 1e-10, name
            assert high[row] == pytest.approx(best.value, abs=1e-10), name


def test_upper_entropy_agrees_with_a_general_solver() -> None:
    rng = np.random.default_rng(0)

    def slsqp(members: np.ndarray) -> float:
        m = len(members)
        found = minimize(
            lambda w: -entropy(w @ members),
            np.full(m, 1 / m),
            bounds=[(0, 1)] * m,
            constraints={"type": "eq", "fun": lambda w: w.sum() - 1},
            options={"ftol": 1e-14, "maxiter": 500},
        )
        return -float(found.fun)

    for m, c in [(2, 3), (4, 3), (5, 6)]:
        members = rng.dirichlet(np.ones(c), size=m)
        assert hull_upper_entropy(members).value == pytest.approx(slsqp(members), abs=1e-6)


def test_every_regime_holds_a_distribution_and_orders_its_entropies() -> None:
    for classes in range(2, 9):
        made = regimes(np.random.default_rng(classes), 50, classes)
        assert len(made) == (10 if classes == 2 else 9)
        for name, (lower, upper) in made.items():
            p = water_level(lower, upper)
            assert ((lower >= 0) & (lower <= p) & (p <= upper) & (upper <= 1)).all(), name
            assert np.allclose(p.sum(axis=1), 1, rtol=0, atol=1e-13), name
            low, high = brute_lower_entropy(lower, upper), brute_upper_entropy(lower, upper)
            assert (low <= entropy(p) + 1e-12).all(), name
            assert (high <= np.log2(classes) + 1e-12).all(), name


def test_entropies_known_by_hand() -> None:
    lower, upper = np.array([[0.0, 0.0, 0.0], [0.5, 0.1, 0.0]]), np.array([[1.0] * 3, [0.8] * 3])
    low = [0.0, entropy([0.8, 0.2, 0.0])]  # vacuous; the most uneven vertex of the second
    assert brute_lower_entropy(lower, upper) == pytest.approx(low, abs=1e-12)
    high = [np.log2(3), entropy([0.5, 0.25, 0.25])]
    assert brute_upper_entropy(lower, upper) == pytest.approx(high, abs=1e-12)
    assert hull_upper_entropy([[1.0, 0.0], [0.0, 1.0]]).value == pytest.approx(1.0, abs=1e-12)
    with pytest.raises(ValueError, match="row 1"):
        brute_lower_entropy([[0.5, 0.5], [0.6, 0.6]], [[0.5, 0.5], [0.7, 0.7]])


def test_decisions_of_an_interval_set_are_those_of_the_hull_of_its_vertices() -> None:
    rng = np.random.default_rng(1)
    for lower, upper in regimes(rng, 2, 4).values():
        for low, up in zip(lower, upper, strict=True):
            box, hull = Polytope.intervals(low, up), Polytope.hull(interval_vertices(low, up))
            for rule in (lp_interval_dominance, lp_maximality, lp_e_admissibility):
                assert rule(box) == pytest.approx(rule(hull), abs=1e-8)


def test_distance_to_a_hull() -> None:
    members = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    assert hull_distance(members, [0.3, 0.7, 0.0]) == pytest.approx(0.0, abs=1e-12)
    assert hull_distance(members, [0.2, 0.6, 0.2]) == pytest.approx(0.2, abs=1e-9)


def test_interval_softmax_is_the_range_of_softmax_over_the_box_of_logits() -> None:
    rng = np.random.default_rng(2)
    logits, half = rng.normal(size=(5, 4)), rng.uniform(0, 2, (5, 4))
    q_low, q_up = naive_interval_softmax(logits - half, logits + half)
    corners = np.array(list(itertools.product((-1, 1), repeat=4)))  # softmax is monotone per logit
    weights = np.exp(logits + corners[:, None] * half)
    reached = weights / weights.sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(reached.min(axis=0), q_low, rtol=1e-12)
    np.testing.assert_allclose(reached.max(axis=0), q_up, rtol=1e-12)
