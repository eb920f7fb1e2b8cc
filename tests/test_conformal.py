"""Conformal p-values, prediction sets and the test over time: brute force, enumeration, and promises that can fail."""

from __future__ import annotations

import itertools
import json
import math
import time
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from credalgnn.conformal import (
    ExchangeabilityTest,
    benjamini_hochberg,
    flags,
    needed,
    nonconformity,
    p_values,
    prediction_sets,
    threshold,
)
from credalgnn.sets import interval_softmax

few = st.lists(st.integers(0, 6), min_size=1, max_size=12)  # small integers: many ties


def naive_p(calibration: list[float], score: float) -> float:
    return (1 + sum(other >= score for other in calibration)) / (len(calibration) + 1)


@given(few, few)
def test_p_values_count_calibration_scores(calibration: list[int], scores: list[int]) -> None:
    results = p_values(torch.tensor(calibration), torch.tensor(scores))
    assert results.dtype == torch.float64
    assert results.tolist() == [naive_p(calibration, score) for score in scores]


@given(few, few, st.randoms(use_true_random=False))
def test_p_values_of_groups_are_those_of_each_group(calibration: list[int], scores: list[int], random) -> None:
    entries, other = ([random.randrange(3) for _ in values] for values in (calibration, scores))
    results = p_values(torch.tensor(calibration), torch.tensor(scores), (torch.tensor(entries), torch.tensor(other)))
    for p, score, group in zip(results.tolist(), scores, other, strict=True):
        assert p == naive_p([value for value, its in zip(calibration, entries, strict=True) if its == group], score)


@pytest.mark.parametrize("values", [(1, 2, 3, 4, 5, 6), (1, 1, 2, 2, 2, 3), (7, 7, 7, 7, 7, 7)])
def test_a_known_node_is_flagged_at_most_at_the_rate(values: tuple[int, ...]) -> None:
    """Over all orders of six values, the last of which is the node: exact, and exactly alpha without ties."""
    orders = list(itertools.permutations(values))
    ps = torch.cat([p_values(torch.tensor(order[:-1]), torch.tensor(order[-1:])) for order in orders])
    for k in range(1, 6):
        rate = Fraction(int(flags(ps, k / 6).sum()), len(orders))
        assert rate <= Fraction(k, 6)
        assert rate == Fraction(k, 6) or len(set(values)) < 6


def test_groups_are_right_each_by_itself() -> None:
    """Scores of one group are higher throughout: its nodes are flagged too often without groups, and not with them."""
    random = np.random.default_rng(0)
    rates = []
    for _ in range(400):
        groups = torch.from_numpy(random.integers(0, 2, 140))
        scores = torch.from_numpy(random.normal(size=140)) + groups
        cut = (slice(100), slice(100, None))
        marginal = p_values(*(scores[part] for part in cut))
        entries = p_values(*(scores[part] for part in cut), groups=tuple(groups[part] for part in cut))
        high = groups[100:] == 1
        rates.append([float(flags(p[high], 0.1).double().mean()) for p in (marginal, entries)])
    (marginal_rate, rate), error = np.mean(rates, 0), np.std(rates, 0)[1] / 20.0
    assert marginal_rate > 0.14
    assert rate <= 0.1 + 2.0 * error


@pytest.mark.parametrize("alpha", [0.5, 0.3, 0.2, 0.1, 0.07, 0.05, 0.03, 0.01, 0.001, 1 / 3, 1 / 49, 0.99])
def test_so_many_calibration_nodes_are_needed(alpha: float) -> None:
    count = needed(alpha)
    ood_node = torch.tensor([math.inf])
    assert flags(p_values(torch.zeros(count), ood_node), alpha).all()
    assert threshold(torch.zeros(count), 1.0 - alpha) < math.inf
    if count > 1:
        assert not flags(p_values(torch.zeros(count - 1), ood_node), alpha).any()
        assert threshold(torch.zeros(count - 1), 1.0 - alpha) == math.inf


def naive_bh(p: list[Fraction], fdr: Fraction) -> list[bool]:
    ks = [k for k in range(1, len(p) + 1) if sum(each <= fdr * k / len(p) for each in p) >= k]
    return [each <= fdr * max(ks) / len(p) if ks else False for each in p]


@given(st.lists(st.integers(1, 40), max_size=25), st.integers(1, 19))
def test_benjamini_hochberg_against_exact_fractions(ps: list[int], twentieths: int) -> None:
    exact = [Fraction(p, 40) for p in ps]
    results = benjamini_hochberg(torch.tensor(ps).double() / 40, twentieths / 20)
    assert results.tolist() == naive_bh(exact, Fraction(twentieths, 20))


def test_share_of_false_alarms_among_flags() -> None:
    """Mixtures with shared calibration scores: the mean share is at most fdr times the share of known nodes."""
    random = np.random.default_rng(1)
    shares, results = [], []
    for _ in range(600):
        calibration, known = random.normal(size=200), random.normal(size=80)
        ood_nodes = random.normal(size=20) + 3.0
        p = p_values(torch.from_numpy(calibration), torch.from_numpy(np.concatenate([known, ood_nodes])))
        chosen = benjamini_hochberg(p, 0.2)
        shares.append(int(chosen[:80].sum()) / max(1, int(chosen.sum())))
        results.append(float(chosen[80:].double().mean()))
    error = np.std(shares) / math.sqrt(len(shares))
    assert np.mean(shares) <= 0.2 * 0.8 + 2.0 * error
    assert np.mean(shares) >= 0.2 * 0.8 - 0.05  # not by never flagging
    assert np.mean(results) > 0.6


@pytest.mark.parametrize("values", [(1, 2, 3, 4, 5, 6), (1, 1, 2, 2, 2, 3)])
def test_the_threshold_keeps_the_true_class_as_often_as_promised(values: tuple[int, ...]) -> None:
    """Over all orders of six values, the last of which is the nonconformity of the node's true class."""
    orders = list(itertools.permutations(values))
    for k in range(1, 6):
        retained = sum(order[-1] <= threshold(torch.tensor(order[:-1]), k / 6) for order in orders)
        assert Fraction(retained, len(orders)) >= Fraction(k, 6)
        assert Fraction(retained, len(orders)) == Fraction(k, 6) or len(set(values)) < 6


def test_coverage_of_sets_with_a_model_that_is_wrong() -> None:
    """Probabilities that have nothing to do with the classes: coverage is as promised, and not much more."""
    random = np.random.default_rng(2)
    probabilities = torch.from_numpy(random.dirichlet(np.ones(10), 6000))
    labels = torch.from_numpy(random.integers(0, 10, 6000))
    scores = nonconformity(probabilities)
    hits = []
    for _ in range(300):
        order = torch.from_numpy(random.permutation(6000))[:260]
        calibration, node = order[:60], order[60:]
        cut = threshold(scores[calibration, labels[calibration]], 0.9)
        sets = prediction_sets(scores[node], cut, probabilities[node])
        hits.append(float(sets[torch.arange(200), labels[node]].double().mean()))
    error = np.std(hits) / math.sqrt(len(hits))
    assert 0.9 - 2.0 * error <= np.mean(hits) <= 0.9 + 1 / 61 + 2.0 * error


@settings(max_examples=60)
@given(st.integers(0, 10_000), st.floats(0.0, 5.0), st.floats(0.0, 5.0), st.floats(0.0, 1.0))
def test_wider_credal_sets_never_lose_a_class(seed: int, half: float, more: float, cut: float) -> None:
    midpoints = 3.0 * torch.randn(20, 6, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    point = midpoints.softmax(-1)
    narrow, wide = (
        prediction_sets(nonconformity(interval_softmax(midpoints - h, midpoints + h).upper), cut, point)
        for h in (half, half + more)
    )
    assert not (narrow & ~wide).any()
    assert narrow.any(-1).all()  # never empty
    assert narrow.gather(-1, point.argmax(-1, keepdim=True)).all()


def test_a_much_wider_credal_set_has_more_classes() -> None:
    midpoints = torch.tensor([[3.0, 0.0, -1.0]], dtype=torch.float64)
    sizes = [
        int(prediction_sets(nonconformity(interval_softmax(midpoints - h, midpoints + h).upper), 0.6, midpoints).sum())
        for h in (0.0, 1.5, 2.5)
    ]
    assert sizes == [1, 2, 3]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: p_values(torch.empty(0), torch.ones(1)), "calibration is empty"),
        (lambda: p_values(torch.ones(2), torch.tensor([1.0, math.nan])), "scores: number 1 is NaN"),
        (lambda: p_values(torch.ones(2, 2), torch.ones(1)), "one number per node"),
        (lambda: p_values(torch.ones(2), torch.ones(1), (torch.ones(3), torch.ones(1))), "do not fit calibration"),
        (lambda: needed(0.0), "above 0 and below 1, not 0"),
        (lambda: flags(torch.ones(1), 5), "above 0 and below 1, not 5"),
        (lambda: benjamini_hochberg(torch.ones(1), 1.0), "fdr must be above 0"),
        (lambda: threshold(torch.ones(3), 1.0), "coverage must be above 0"),
        (lambda: threshold(torch.tensor([math.nan]), 0.5), "no NaN"),
        (lambda: nonconformity(torch.tensor([[0.5, math.nan]])), "NaN at row 0, class 1"),
        (lambda: prediction_sets(torch.ones(2, 3), 0.5, torch.ones(2, 2)), "not the same"),
        (lambda: ExchangeabilityTest(np.empty(0)), "calibration is empty"),
        (lambda: ExchangeabilityTest(np.ones(3), false_alarms=0.0), "false_alarms must be above 0"),
        (lambda: ExchangeabilityTest(np.ones(3), seed=-1), "seed must be 0 or more"),
        (lambda: ExchangeabilityTest(np.ones(3)).update(np.ones((2, 2))), "one number per node"),
    ],
)
def test_errors_say_what_is_wrong(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


class NaiveTest:
    """The test over time as its definition has it: every start and every bet a product of its own."""

    bets = ((1, 0.6), (1, 0.8), (1, 0.92), (0.3, 0.4), (0.3, 0.2), (0.1, 0.2), (0.1, 0.1), (0.03, 0.1))

    def __init__(self, calibration: np.ndarray, seed: int) -> None:
        self.bag, self.seed, self.products, self.batches, self.highest = list(calibration), seed, {}, 0, 1.0

    def update(self, scores: np.ndarray) -> tuple[list[float], float]:
        random = np.random.default_rng([self.seed, self.batches])
        order = random.permutation(scores)
        shares = 1.0 - random.random(len(scores))
        self.batches += 1
        weight = 1.0 / (self.batches * (self.batches + 1)) / len(self.bets)
        self.products.update({(self.batches, bet): weight for bet in self.bets})
        ps = []
        for score, share in zip(order, shares, strict=True):
            self.bag.append(score)
            p = (sum(s > score for s in self.bag) + share * sum(s == score for s in self.bag)) / len(self.bag)
            ps.append(p)
            for (start, (w, e)), capital in self.products.items():
                self.products[start, (w, e)] = capital * (1.0 - w + w * e * p ** (e - 1.0))
            self.highest = max(self.highest, self.capital)
        return ps, math.log(self.capital)

    @property
    def capital(self) -> float:
        return sum(self.products.values()) + 1.0 / (self.batches + 1)


@pytest.mark.parametrize("ties", [False, True])
def test_the_test_over_time_against_its_definition(ties: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("credalgnn.conformal.martingale.CHUNK", 4)  # of a batch at a time
    random = np.random.default_rng(3)

    def draw(size: int) -> np.ndarray:
        return random.integers(0, 5, size).astype(float) if ties else random.normal(size=size)

    calibration = draw(17)
    fast, naive = ExchangeabilityTest(calibration, seed=5), NaiveTest(calibration, seed=5)
    for size in (1, 2, 3, 8, 0, 13, 16, 33):
        batch = draw(size) + 0.1 * size
        results = fast.update(batch)
        ps, log_evidence = naive.update(batch)
        assert results.nodes == size
        assert results.mean_p == pytest.approx(np.mean(ps)) if size else math.isnan(results.mean_p)
        assert results.log_evidence == pytest.approx(log_evidence, abs=1e-9)
        assert results.log_highest == pytest.approx(math.log(naive.highest), abs=1e-9)


def test_p_values_over_time_are_independent_and_uniform() -> None:
    """Smoothed, with ties throughout: ten steps of 2,000 sequences, each uniform, and neighbours uncorrelated."""
    random = np.random.default_rng(4)
    ps = np.empty((2000, 10))
    for row in range(len(ps)):
        scores = random.integers(0, 4, 15).astype(float)
        test = ExchangeabilityTest(scores[:5], seed=row)
        ps[row] = [test.update(scores[5 + step : 6 + step]).mean_p for step in range(10)]
    for step in range(10):
        ordered = np.sort(ps[:, step])
        distance = np.abs(ordered - (np.arange(2000) + 0.5) / 2000).max()
        assert distance < 1.95 / math.sqrt(2000)  # Kolmogorov and Smirnov, level 0.001
    correlation = np.corrcoef(ps.T)[np.triu_indices(10, 1)]
    assert np.abs(correlation).max() < 4.0 / math.sqrt(2000)


@pytest.mark.parametrize("false_alarms", [0.05, 0.2])
def test_there_is_seldom_ever_an_alarm_without_reason(false_alarms: float) -> None:
    alarms = []
    for number in range(2000):
        random = np.random.default_rng([6, number])
        level = random.normal()  # exchangeable, not independent
        test = ExchangeabilityTest(level + random.normal(size=30), number, false_alarms)
        for size in (1, 40, 5, 25, 1, 30):
            result = test.update(level + random.normal(size=size))
        alarms.append(result.alarm)
    rate = np.mean(alarms)
    error = math.sqrt(false_alarms * (1.0 - false_alarms) / 2000)
    assert rate <= false_alarms + 2.0 * error
    assert rate > false_alarms / 20.0  # it does bet


@pytest.mark.parametrize("quiet", [0, 100])
def test_ood_nodes_are_noticed_soon_after_a_quiet_time_as_well(quiet: int) -> None:
    """A fifth of the nodes become OOD: mostly noticed within a hundred nodes."""
    delays = []
    for number in range(20):
        random = np.random.default_rng([7, number])
        test = ExchangeabilityTest(random.normal(size=200), number, false_alarms=0.001)
        for _ in range(quiet):
            test.update(random.normal(size=50))
        assert not test.alarm
        delay = 0
        while not test.alarm and delay < 20:
            test.update(random.normal(size=50) + 3.0 * (random.random(50) < 0.2))
            delay += 1
        delays.append(delay)
    assert np.median(delays) <= 2
    assert max(delays) < 20


def test_an_alarm_within_a_large_batch_is_not_forgotten() -> None:
    """A new kind of node fills the bag and becomes the rule; what was found before that counts."""
    random = np.random.default_rng(8)
    test = ExchangeabilityTest(random.normal(size=100))
    result = test.update(random.normal(size=30_000) + 2.0)
    assert result.log_evidence < 1.0  # far from the 4.6 of an alarm
    assert result.alarm
    assert test.update(random.normal(size=10)).alarm


def test_a_state_goes_on_as_if_nothing_had_been() -> None:
    random = np.random.default_rng(9)
    batches = [random.normal(size=size) for size in (30, 7, 200, 11)]
    whole = ExchangeabilityTest(torch.from_numpy(random.normal(size=50)), seed=3, false_alarms=0.1)
    for batch in batches[:2]:
        whole.update(batch)
    values, arrays = whole.state()
    again = ExchangeabilityTest.from_state(json.loads(json.dumps(values)), arrays)
    assert [again.update(batch) for batch in batches[2:]] == [whole.update(batch) for batch in batches[2:]]
    assert len(arrays["bag"]) == 50 + 30 + 7  # a copy, which later batches do not change
    with pytest.raises(ValueError, match="another version"):
        ExchangeabilityTest.from_state({**values, "format": 99}, arrays)


def test_the_order_within_a_batch_means_nothing() -> None:
    """A file sorted by score is no drift."""
    alarms = 0
    for number in range(200):
        random = np.random.default_rng([10, number])
        test = ExchangeabilityTest(random.normal(size=40), number, false_alarms=0.05)
        alarms += test.update(np.sort(random.normal(size=60))[::-1]).alarm
    assert alarms <= 200 * (0.05 + 2.0 * math.sqrt(0.05 * 0.95 / 200))


def test_a_hundred_thousand_nodes_take_seconds() -> None:
    random = np.random.default_rng(11)
    test = ExchangeabilityTest(random.normal(size=1000))
    start = time.perf_counter()
    test.update(random.normal(size=100_000))
    assert time.perf_counter() - start < 10.0  # 0.2 s here; pairs would take minutes
