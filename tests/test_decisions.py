"""Decisions with a credal set under 0/1 loss, against linear programs, and their utilities."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from credalgnn.sets import (
    HullSet,
    IntervalSet,
    e_admissibility,
    interval_dominance,
    maximality,
    u65,
    u80,
)
from oracles import (
    Polytope,
    lp_e_admissibility,
    lp_interval_dominance,
    lp_maximality,
    regimes,
)

RULES = {
    "interval dominance": (interval_dominance, lp_interval_dominance),
    "maximality": (maximality, lp_maximality),
    "e-admissibility": (e_admissibility, lp_e_admissibility),
}
CLOSE = 1e-9  # a decision whose margin is smaller is a tie to the linear programs
GRID = 16  # a power of two: multiples of 1/16 and their sums are exact in floating point


def kept(credal: IntervalSet | HullSet) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Undominated, maximal and E-admissible classes; the chain between them is asserted."""
    undominated, maximal, admissible = (rule(credal) for rule, _ in RULES.values())
    for mask in (undominated, maximal, admissible):
        assert mask.dtype == torch.bool
        assert mask.any(dim=-1).all(), "some class is always kept"
    assert not (admissible & ~maximal).any(), "E-admissible is a subset of maximal"
    assert not (maximal & ~undominated).any(), "maximal is a subset of undominated"
    return undominated, maximal, admissible


def grid_intervals(rng: np.random.Generator, n: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Random interval sets on a coarse grid: exact ties everywhere, bounds often unreachable."""
    p = rng.multinomial(GRID, rng.dirichlet(np.ones(classes)), size=n)
    lower = np.maximum(p - rng.integers(0, 6, p.shape), 0)
    upper = np.minimum(p + rng.integers(0, 6, p.shape), GRID)
    return lower / GRID, upper / GRID


def grid_members(rng: np.random.Generator, m: int, n: int, classes: int) -> np.ndarray:
    """Random members on the same grid [M, N, C], with ties and zeros."""
    return rng.multinomial(GRID, np.full(classes, 1 / classes), size=(m, n)) / GRID


def random_members(rng: np.random.Generator, m: int, n: int, classes: int) -> np.ndarray:
    """Members [M, N, C] around one distribution of the row, from nearly equal to unrelated."""
    centre = rng.dirichlet(np.full(classes, 5.0), size=(1, n))
    spread = rng.uniform(0, 1, (1, n, 1))
    return (1 - spread) * centre + spread * rng.dirichlet(np.ones(classes), size=(m, n))


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("classes", range(2, 7))
def test_rules_on_interval_sets_match_linear_programs(classes: int, name: str) -> None:
    rule, oracle = RULES[name]
    made = regimes(np.random.default_rng(classes), 4, classes).values()
    lower, upper = (np.concatenate(bounds) for bounds in zip(*made, strict=True))
    got = rule(IntervalSet(lower, upper)).numpy()
    margin = np.array([oracle(Polytope.intervals(*row)) for row in zip(lower, upper, strict=True)])
    decided = np.abs(margin) > CLOSE
    assert decided.mean() > 0.7
    assert (got == (margin > 0))[decided].all()


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("classes", range(2, 7))
def test_rules_on_hulls_match_linear_programs(classes: int, name: str) -> None:
    rule, oracle = RULES[name]
    rng = np.random.default_rng(classes)
    for m in (1, 2, 3, 8):
        members = random_members(rng, m, 10, classes)
        got = rule(HullSet(members)).numpy()
        margin = np.array([oracle(Polytope.hull(members[:, row])) for row in range(10)])
        decided = np.abs(margin) > CLOSE
        assert decided.mean() > 0.7
        assert (got == (margin > 0))[decided].all(), m


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("classes", [2, 3, 4])
def test_exact_ties_keep_the_class(classes: int, name: str) -> None:
    """On the grid a margin is 0 or far from it, so the linear programs can tell a tie."""
    rule, oracle = RULES[name]
    rng = np.random.default_rng(classes)
    lower, upper = grid_intervals(rng, 20, classes)
    members = grid_members(rng, 3, 20, classes)
    boxes = [Polytope.intervals(*row) for row in zip(lower, upper, strict=True)]
    hulls = [Polytope.hull(members[:, row]) for row in range(20)]
    for credal, polytopes in ((IntervalSet(lower, upper), boxes), (HullSet(members), hulls)):
        margin = np.array([oracle(p) for p in polytopes])
        assert (np.abs(margin) < CLOSE).any(), "the instances hold ties"
        np.testing.assert_array_equal(rule(credal).numpy(), margin > -CLOSE)


@pytest.mark.parametrize("classes", range(1, 9))
def test_chain_on_random_and_degenerate_intervals(classes: int) -> None:
    rng = np.random.default_rng(classes)
    if classes > 1:
        for lower, upper in regimes(rng, 200, classes).values():
            kept(IntervalSet(lower, upper))
    lower, upper = grid_intervals(rng, 1000, classes)
    kept(IntervalSet(lower, upper))
    # The same ties, broken by rounding-sized noise.
    lower = np.maximum(lower - rng.choice([0, 1e-16, 1e-14, 1e-12, 1e-10], lower.shape), 0)
    upper = np.minimum(upper + rng.choice([0, 1e-16, 1e-14, 1e-12, 1e-10], upper.shape), 1)
    kept(IntervalSet(lower, upper))


@pytest.mark.parametrize("m", [1, 2, 3, 20])
@pytest.mark.parametrize("classes", [1, 2, 3, 5, 8])
def test_chain_on_random_and_degenerate_hulls(classes: int, m: int) -> None:
    rng = np.random.default_rng(classes)
    kept(HullSet(random_members(rng, m, 100, classes)))
    members = grid_members(rng, m, 100, classes)
    kept(HullSet(members))
    kept(HullSet(np.concatenate([members, members[:1]])))  # a duplicated member
    kept(HullSet(np.eye(classes)[rng.integers(classes, size=(m, 100))]))  # one-hot members
    noisy = members + rng.choice([0, 1e-16, 1e-14, 1e-12, 1e-10], members.shape)
    kept(HullSet(noisy / noisy.sum(axis=-1, keepdims=True)))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 6), st.integers(1, 5))
def test_rules_follow_a_permutation_of_the_classes(seed: int, classes: int, m: int) -> None:
    rng = np.random.default_rng(seed)
    order = rng.permutation(classes)
    lower, upper = grid_intervals(rng, 5, classes)
    members = grid_members(rng, m, 5, classes)
    pairs = (
        (IntervalSet(lower, upper), IntervalSet(lower[:, order], upper[:, order])),
        (HullSet(members), HullSet(members[..., order])),
        (HullSet(members), HullSet(members[rng.permutation(m)][..., order])),
    )
    for credal, shuffled in pairs:
        for mask, again in zip(kept(credal), kept(shuffled), strict=True):
            assert torch.equal(mask[:, order], again)


def test_rules_differ_on_a_hull() -> None:
    """Undominated {0, 1, 2, 3}, maximal {0, 1, 2}, E-admissible {0, 1}.

    Class 3 is below class 2 in both members, so in every mixture: not maximal. Yet its range
    [0.05, 0.25] overlaps every other range, so no class dominates it by intervals.
    Class 2 beats class 1 in the first member and class 0 in the second, so no one class beats it
    throughout: maximal. But it needs a weight of the second member of at most 0.5 to reach class 1
    (0.2 + 0.15 w >= 0.15 + 0.25 w) and of at least 8/15 to reach class 0
    (0.2 + 0.15 w >= 0.6 - 0.6 w): no mixture makes it the best.
    """
    hull = HullSet(torch.tensor([[0.6, 0.15, 0.2, 0.05], [0.0, 0.4, 0.35, 0.25]]).double())
    undominated, maximal, admissible = kept(hull)
    assert undominated.tolist() == [True, True, True, True]
    assert maximal.tolist() == [True, True, True, False]
    assert admissible.tolist() == [True, True, False, False]


def test_rules_differ_on_an_interval_set() -> None:
    """Class 0 reaches 0.25, more than the least of either other class (0.2), so neither beats it
    throughout: maximal. But with every class at most 0.25 the sum is 0.75: never the best."""
    credal = IntervalSet(np.array([[0.0, 0.2, 0.2]]), np.array([[0.25, 0.6, 0.6]]))
    undominated, maximal, admissible = kept(credal)
    assert undominated.tolist() == [[True, True, True]]
    assert maximal.tolist() == [[True, True, True]]
    assert admissible.tolist() == [[False, True, True]]


@pytest.mark.parametrize(
    ("kind", "arrays", "expected"),
    [
        # Class 0 is above the others in every distribution of the set.
        (IntervalSet, ([0.5, 0.1, 0.1], [0.7, 0.3, 0.3]), [1, 0, 0]),
        (HullSet, ([[0.6, 0.3, 0.1], [0.5, 0.2, 0.3]],), [1, 0, 0]),
        # Ignorance rules nothing out.
        (IntervalSet, ([0.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0]), [1, 1, 1, 1]),
        (HullSet, ([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],), [1, 1, 1]),
        # One distribution: its modes.
        (IntervalSet, ([0.25, 0.5, 0.25], [0.25, 0.5, 0.25]), [0, 1, 0]),
        (IntervalSet, ([0.375, 0.25, 0.375], [0.375, 0.25, 0.375]), [1, 0, 1]),
        (HullSet, ([[0.375, 0.25, 0.375]],), [1, 0, 1]),
        # p_0 >= p_1 throughout, with equality at (0.5, 0.5): a tie rules nothing out.
        (IntervalSet, ([0.5, 0.25], [0.75, 0.5]), [1, 1]),
        (HullSet, ([[0.5, 0.5], [0.75, 0.25]],), [1, 1]),
        # Bounds that cannot be reached: p_1 and p_2 take 0.8, which leaves 0.2, not 0.9, for p_0.
        (IntervalSet, ([0.0, 0.4, 0.4], [0.9, 0.6, 0.6]), [0, 1, 1]),
        # A certain class, and a single class.
        (IntervalSet, ([0.0, 1.0], [1.0, 1.0]), [0, 1]),
        (IntervalSet, ([0.0], [1.0]), [1]),
    ],
)
def test_rules_agree_by_hand(
    kind: Callable[..., IntervalSet | HullSet], arrays: tuple[list, ...], expected: list[int]
) -> None:
    for mask in kept(kind(*map(np.array, arrays))):
        assert mask.int().tolist() == expected


def test_maximality_is_interval_dominance_on_interval_sets() -> None:
    """p_j = l_j and p_i = u_i hold together in some member once the bounds are reachable."""
    rng = np.random.default_rng(0)
    for classes in range(2, 7):
        undominated, maximal, _ = kept(IntervalSet(*grid_intervals(rng, 500, classes)))
        assert torch.equal(undominated, maximal)


def test_two_classes_make_all_rules_one() -> None:
    """With p_1 = 1 - p_0 each rule asks on which sides of 1/2 p_0 can be."""
    rng = np.random.default_rng(0)
    for credal in (
        IntervalSet(*grid_intervals(rng, 500, 2)),
        HullSet(grid_members(rng, 3, 500, 2)),
    ):
        undominated, maximal, admissible = kept(credal)
        assert torch.equal(undominated, maximal)
        assert torch.equal(maximal, admissible)


def test_a_hull_keeps_no_more_than_its_envelope() -> None:
    """A larger set rules out less; interval dominance sees the envelope alone."""
    rng = np.random.default_rng(0)
    for classes in range(2, 7):
        hull = HullSet(grid_members(rng, 3, 300, classes))
        inner, outer = kept(hull), kept(hull.to_intervals())
        assert torch.equal(inner[0], outer[0])
        for small, large in zip(inner, outer, strict=True):
            assert not (small & ~large).any()


@pytest.mark.parametrize("name", RULES)
def test_shapes_and_dtypes_of_rules(name: str) -> None:
    rule, _ = RULES[name]
    assert rule(IntervalSet(torch.zeros(0, 3), torch.ones(0, 3))).shape == (0, 3)
    assert rule(HullSet(torch.zeros(4, 0, 3))).shape == (0, 3)
    members = torch.softmax(torch.randn(3, 2, 5, 4, generator=torch.Generator().manual_seed(0)), -1)
    hull = HullSet(members)
    assert rule(hull).shape == (2, 5, 4)
    row = rule(HullSet(members[:, 1, 2]))
    assert torch.equal(row, rule(hull)[1, 2])
    assert torch.equal(rule(HullSet(members.double())), rule(hull))
    assert rule(hull.to_intervals()).shape == (2, 5, 4)


UTILITIES = {  # by size of the predicted set that holds the label: 1, 2, 3
    "u65": (u65, [1.0, 0.65, -0.6 / 9 + 1.6 / 3]),
    "u80": (u80, [1.0, 0.8, -1.2 / 9 + 2.2 / 3]),
}
Utility = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


@pytest.mark.parametrize(("utility", "values"), UTILITIES.values(), ids=UTILITIES)
def test_utility_by_set_size(utility: Utility, values: list[float]) -> None:
    sets = torch.tensor([[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0]]).bool()
    got = utility(sets, torch.tensor([0, 1, 2]))
    assert got.is_floating_point()
    assert got.tolist() == pytest.approx(values, abs=1e-6)
    assert utility(sets, torch.tensor([3, 3, 3])).tolist() == [0, 0, 0]  # the label is missed
    nothing = torch.zeros(2, 4, dtype=torch.bool)
    assert utility(nothing, torch.tensor([0, 3])).tolist() == [0, 0]
    batch = utility(sets.expand(2, 3, 4), torch.tensor([[0, 1, 2], [1, 3, 0]]))
    assert batch.flatten().tolist() == pytest.approx([*values, 0, 0, values[2]], abs=1e-6)


@pytest.mark.parametrize("utility", [u65, u80])
def test_utility_of_an_empty_batch_and_of_one_row(utility: Utility) -> None:
    none = utility(torch.zeros(0, 3, dtype=torch.bool), torch.zeros(0, dtype=torch.long))
    assert none.shape == (0,)
    assert utility(torch.tensor([True, False]), torch.tensor(0)).item() == 1.0


@pytest.mark.parametrize("utility", [u65, u80])
@pytest.mark.parametrize(
    ("sets", "labels", "error"),
    [
        (torch.ones(3, 4).bool(), torch.tensor([0, 1]), ValueError),
        (torch.ones(3, 4).bool(), torch.tensor([[0], [1], [2]]), ValueError),
        (torch.ones(3, 4).bool(), torch.tensor(0), ValueError),
        (torch.ones(3, 4).bool(), torch.tensor([0, 1, 4]), ValueError),
        (torch.ones(3, 4).bool(), torch.tensor([0, -1, 3]), ValueError),
        (torch.tensor(True), torch.tensor(0), ValueError),
        (torch.ones(3, 4), torch.tensor([0, 1, 2]), TypeError),
        (torch.ones(3, 4).long(), torch.tensor([0, 1, 2]), TypeError),
    ],
    ids=["too few", "extra axis", "no axis", "too large", "negative", "no class", "float", "int"],
)
def test_utility_refuses(utility: Utility, sets: torch.Tensor, labels: torch.Tensor, error: type[Exception]) -> None:
    with pytest.raises(error):
        utility(sets, labels)
