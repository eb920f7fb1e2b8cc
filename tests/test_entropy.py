"""Entropies of interval sets: against brute force, their certificates, gradients, dtypes and odd inputs."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import cache
from random import Random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from credalgnn.sets import (
    IntervalSet,
    Optimum,
    Uncertainty,
    interval_softmax,
    lower_entropy,
    uncertainty,
    upper_entropy,
)
from oracles import (
    brute_lower_entropy,
    brute_upper_entropy,
    entropy,
    interval_vertices,
    naive_interval_softmax,
    regimes,
)

both = pytest.mark.parametrize("backend", ["numba", "torch"])
PROVED = 1e-9  # bits
ROUNDING = 1e-12
ORACLE = 1e-14  # bits: what the oracles' own rounding may cost


def check(credal: IntervalSet, backend: str, **options: int) -> tuple[Optimum, Optimum]:
    """Upper and lower optimum of a float64 set: inside it, with the entropy they claim; the lower one at a vertex."""
    results = uncertainty(credal, certify=True, backend=backend, **options)
    lower, upper = credal.lower.numpy(), credal.upper.numpy()
    for optimum in (results.upper, results.lower):
        p = optimum.distribution.numpy()
        assert ((p >= lower - ROUNDING) & (p <= upper + ROUNDING)).all()
        np.testing.assert_allclose(p.sum(axis=-1), 1, rtol=0, atol=ROUNDING)
        np.testing.assert_allclose(entropy(p), optimum.entropy.numpy(), rtol=0, atol=ROUNDING)
        assert optimum.gap.dtype == torch.float64
        assert (optimum.gap >= 0).all()
    p = results.lower.distribution.numpy()
    between = np.minimum(p - lower, upper - p) > ROUNDING
    assert (between.sum(axis=-1) <= 1).all(), "all classes of a vertex but one are at a bound"
    return results.upper, results.lower


def logit_set(seed: int, rows: int, classes: int, std: float, half: tuple[float, float]) -> IntervalSet:
    """Interval softmax of random logits, half-widths uniform between two numbers."""
    rng = np.random.default_rng(seed)
    centre, width = rng.normal(size=(rows, classes)) * std, rng.uniform(*half, (rows, classes))
    return interval_softmax(torch.tensor(centre - width), torch.tensor(centre + width))


def hard_set(rows: int, classes: int = 30) -> IntervalSet:
    """Nearly uniform, intervals of nearly equal widths: rows that need a long search."""
    return logit_set(classes, rows, classes, 0.03, (0.35, 0.65))


# Exactness and certificates


SIZES = dict.fromkeys(range(2, 9), 1800) | {10: 100, 12: 30}  # rows of each regime


@cache
def instances(classes: int) -> tuple[IntervalSet, np.ndarray, np.ndarray]:
    """Random sets of all regimes in a random order, and their true upper and lower entropies."""
    rng = np.random.default_rng(classes)
    made = regimes(rng, SIZES[classes], classes).values()
    order = rng.permutation(len(made) * SIZES[classes])
    credal = IntervalSet(*(np.concatenate(bounds)[order] for bounds in zip(*made, strict=True)))
    bounds = credal.lower.numpy(), credal.upper.numpy()
    return credal, brute_upper_entropy(*bounds), brute_lower_entropy(*bounds, chunk=512)


def test_there_are_enough_instances() -> None:
    rows = sum(count * (10 if classes == 2 else 9) for classes, count in SIZES.items() if classes <= 8)
    assert rows >= 100_000


@both
@pytest.mark.parametrize("classes", SIZES)
def test_agrees_with_brute_force(classes: int, backend: str) -> None:
    credal, highest, lowest = instances(classes)
    if backend == "torch" and classes <= 8:
        some = slice(2500)
        credal, highest, lowest = IntervalSet(credal.lower[some], credal.upper[some]), highest[some], lowest[some]
    upper, lower = check(credal, backend)
    for optimum, truth in ((upper, highest), (lower, lowest)):
        error = np.abs(optimum.entropy.numpy() - truth)
        assert error.max() <= PROVED
        assert (error <= optimum.gap.numpy() + ORACLE).all(), "the gap is never smaller than the true error"
        assert (optimum.gap <= PROVED).all()


WIDTHS = {"constant": (0.5, 0.5), "random": (0.0, 1.0), "similar": (0.35, 0.65)}
ROWS = {"numba": {11: 2000, 30: 1000, 41: 500, 100: 100}, "torch": {11: 200, 30: 60, 41: 30, 100: 4}}


@both
@pytest.mark.parametrize("classes", [11, 30, 41, 100])
@pytest.mark.parametrize("std", [0.1, 0.3, 1.0])
def test_many_classes_are_proved_within_the_default_budget(std: float, classes: int, backend: str) -> None:
    for half in WIDTHS.values():
        upper, lower = check(logit_set(classes, ROWS[backend][classes], classes, std, half), backend)
        assert (upper.gap <= PROVED).all()
        assert (lower.gap <= PROVED).all()


def test_backends_agree() -> None:
    for seed, classes in enumerate((6, 11, 30, 60)):
        for half in WIDTHS.values():
            credal = logit_set(seed, 20, classes, 0.2, half)
            for one, other in zip(*(uncertainty(credal, backend=b) for b in ("numba", "torch")), strict=True):
                np.testing.assert_allclose(one, other, rtol=0, atol=PROVED)


@both
def test_sets_whose_bounds_are_not_reachable(backend: str) -> None:
    """Bounds that no member attains are as good as the tight ones."""
    for classes in (3, 8, 20):
        rng = np.random.default_rng(classes)
        p = rng.dirichlet(np.ones(classes), size=200)
        loose = IntervalSet(p * rng.uniform(0, 1, p.shape), np.minimum(1, p + rng.uniform(0, 1, p.shape)))
        some = ~loose.is_reachable()
        assert some.sum() >= 100
        loose = IntervalSet(loose.lower[some], loose.upper[some])
        for got, expected in zip(check(loose, backend), check(loose.reachable(), backend), strict=True):
            np.testing.assert_allclose(got.entropy, expected.entropy, rtol=0, atol=PROVED)
            assert (got.gap <= PROVED).all()


@both
@pytest.mark.parametrize("classes", [2, 4, 6, 9, 30])
def test_one_bound_alone_leaves_a_single_point(classes: int, backend: str) -> None:
    """Upper bounds that sum to 1 leave nothing to choose, nor do lower bounds; some classes are 0 or tied."""
    counts = np.random.default_rng(classes).multinomial(16, np.full(classes, 1 / classes), size=50)
    p = np.concatenate([counts / 16, np.eye(classes)])
    for bounds in ((np.zeros_like(p), p), (p, np.ones_like(p))):
        for optimum in check(IntervalSet(*bounds), backend):
            np.testing.assert_allclose(optimum.entropy, entropy(p), rtol=0, atol=ROUNDING)
            np.testing.assert_allclose(optimum.distribution, p, rtol=0, atol=ROUNDING)
        with_gradient = IntervalSet(*(torch.tensor(bound, requires_grad=True) for bound in bounds))
        for part in uncertainty(with_gradient, backend=backend)[:2]:
            np.testing.assert_allclose(part.detach(), entropy(p), rtol=0, atol=ROUNDING)


@both
def test_entropies_known_by_hand(backend: str) -> None:
    lower = torch.tensor([[0.5, 0.1, 0.0], [0.0, 0.0, 0.0], [0.7, 0.2, 0.1]], dtype=torch.float64)
    upper = torch.tensor([[0.8, 0.8, 0.8], [1.0, 1.0, 1.0], [0.7, 0.2, 0.1]], dtype=torch.float64)
    total, aleatoric, _ = uncertainty(IntervalSet(lower, upper), backend=backend)
    point = entropy([0.7, 0.2, 0.1])
    np.testing.assert_allclose(total, [1.5, np.log2(3), point], rtol=0, atol=ROUNDING)
    np.testing.assert_allclose(aleatoric, [entropy([0.8, 0.2]), 0.0, point], rtol=0, atol=ROUNDING)


# The budget


@both
@pytest.mark.parametrize("budget", [1, 2, 5])
def test_a_small_budget_leaves_an_honest_gap(budget: int, backend: str) -> None:
    """Against brute force, and where that is out of reach against the answer of the default budget."""
    credal, _, lowest = instances(8)
    small = check(credal, backend, budget=budget)[1]
    assert (small.gap.numpy() + ORACLE >= small.entropy.numpy() - lowest).all()
    credal = hard_set(20)
    best = lower_entropy(credal, certify=True, backend=backend)
    small = check(credal, backend, budget=budget)[1]
    assert (best.gap <= PROVED).all()
    assert (small.gap > PROVED).sum() >= 10, "the budget is felt"
    assert (small.entropy >= best.entropy - best.gap).all()
    assert (small.entropy - small.gap <= best.entropy + ROUNDING).all()


@both
def test_a_bigger_budget_never_loosens(backend: str) -> None:
    credal = hard_set(10)
    results = [lower_entropy(credal, certify=True, budget=2**k, backend=backend) for k in range(11)]
    for small, big in itertools.pairwise(results):
        assert (big.entropy <= small.entropy + ROUNDING).all()
        assert (big.gap <= small.gap + ROUNDING).all()
    assert (results[-1].gap < results[0].gap).all()


@pytest.mark.parametrize("budget", [0, -1])
def test_budget_must_be_positive(budget: int) -> None:
    credal = IntervalSet(torch.zeros(1, 3), torch.ones(1, 3))
    for measure in (lower_entropy, uncertainty):
        with pytest.raises(ValueError, match=f"budget.*{budget}"):
            measure(credal, budget=budget)


# Properties


Made = tuple[np.ndarray, np.ndarray, np.ndarray]


@st.composite
def sets_with_a_member(draw: st.DrawFn) -> Made:
    """Bounds and a member, all multiples of a common fraction: zeros, ties and collapsed classes are common."""
    c = draw(st.integers(2, 8))
    counts = draw(arrays(np.int64, c, elements=st.integers(0, 9)))
    counts[draw(st.integers(0, c - 1))] += 1
    below, above = (draw(arrays(np.int64, c, elements=st.integers(0, 9))) for _ in range(2))
    total = counts.sum()
    return np.maximum(counts - below, 0) / total, np.minimum(counts + above, total) / total, counts / total


def pair(lower: np.ndarray, upper: np.ndarray, backend: str) -> tuple[float, float]:
    total, aleatoric, _ = uncertainty(IntervalSet(lower, upper), backend=backend)
    return total.item(), aleatoric.item()


@both
@settings(max_examples=100, deadline=None)
@given(made=sets_with_a_member(), random=st.randoms(use_true_random=False))
def test_order_of_classes_does_not_matter(made: Made, random: Random, backend: str) -> None:
    lower, upper, _ = made
    order = random.sample(range(len(lower)), len(lower))
    assert pair(lower[order], upper[order], backend) == pytest.approx(pair(lower, upper, backend), abs=PROVED)


@both
@settings(max_examples=100, deadline=None)
@given(made=sets_with_a_member(), random=st.randoms(use_true_random=False))
def test_a_subset_has_no_larger_upper_and_no_smaller_lower_entropy(made: Made, random: Random, backend: str) -> None:
    lower, upper, member = made
    shrink = np.array([random.choice([0.0, 0.3, 1.0]) for _ in lower])
    inner = lower + shrink * (member - lower), upper + shrink * (member - upper)
    high, low = pair(lower, upper, backend)
    inner_high, inner_low = pair(*inner, backend)
    assert inner_high <= high + PROVED
    assert inner_low >= low - PROVED
    bits = entropy(member)
    assert inner_low - PROVED <= bits <= inner_high + PROVED


@both
@settings(max_examples=100, deadline=None)
@given(made=sets_with_a_member())
def test_optimum_is_a_member_with_that_entropy(made: Made, backend: str) -> None:
    lower, upper, _ = made
    high, low = check(IntervalSet(lower, upper), backend)
    bits = entropy(interval_vertices(lower, upper))
    assert low.entropy.item() == pytest.approx(bits.min(), abs=PROVED)
    assert high.entropy.item() >= bits.max() - PROVED


@both
@settings(max_examples=100, deadline=None)
@given(made=sets_with_a_member())
def test_a_collapsed_set_has_the_entropy_of_its_point(made: Made, backend: str) -> None:
    point = made[2]
    assert pair(point, point, backend) == pytest.approx((entropy(point), entropy(point)), abs=ROUNDING)


@both
@pytest.mark.parametrize("classes", [2, 3, 7, 30, 300])
def test_a_vacuous_set_knows_nothing(classes: int, backend: str) -> None:
    assert pair(np.zeros(classes), np.ones(classes), backend) == pytest.approx((np.log2(classes), 0.0), abs=ROUNDING)


@both
def test_uncertainty_is_upper_lower_and_their_difference(backend: str) -> None:
    credal, _, _ = instances(7)
    results = uncertainty(credal, backend=backend)
    certified = uncertainty(credal, certify=True, backend=backend)
    assert isinstance(results, Uncertainty)
    assert torch.equal(results.total, upper_entropy(credal, backend=backend))
    assert torch.equal(results.aleatoric, lower_entropy(credal, backend=backend))
    assert torch.equal(results.epistemic, (results.total - results.aleatoric).clamp_min(0))
    assert (results.total - results.aleatoric >= -ROUNDING).all()
    for name in Uncertainty._fields:
        assert torch.equal(getattr(results, name), getattr(certified, name))
    for optimum, measure in ((certified.upper, upper_entropy), (certified.lower, lower_entropy)):
        for one, other in zip(optimum, measure(credal, certify=True, backend=backend), strict=True):
            assert torch.equal(one, other)
    assert torch.equal(certified.upper.entropy, results.total)
    assert torch.equal(certified.lower.entropy, results.aleatoric)


# Gradients


MEASURES = {"upper": (upper_entropy, brute_upper_entropy), "lower": (lower_entropy, brute_lower_entropy)}


def differences(
    function: Callable[..., np.ndarray], at: tuple[np.ndarray, ...], step: float = 1e-6
) -> list[np.ndarray]:
    """Central differences of function(*at) [N] in every entry of every [N, C] argument; NaN next to a kink."""
    slopes = []
    value = function(*at)
    for which, argument in enumerate(at):
        slope = np.empty_like(argument)
        for c in range(argument.shape[1]):
            ahead, behind = (
                function(*at[:which], argument + sign * step * np.eye(argument.shape[1])[c], *at[which + 1 :])
                for sign in (1, -1)
            )
            slope[:, c] = (ahead - behind) / (2 * step)
            slope[np.abs(ahead - 2 * value + behind) > 1e-3 * step, c] = np.nan
        slopes.append(slope)
    return slopes


@both
@pytest.mark.parametrize("classes", [2, 3, 6, 8])
@pytest.mark.parametrize("name", MEASURES)
def test_gradients_match_finite_differences(name: str, classes: int, backend: str) -> None:
    """With respect to the bounds, and to the logits of an interval softmax."""
    measure, brute = MEASURES[name]
    rng = np.random.default_rng(classes)
    centre, half = rng.normal(size=(40, classes)), rng.uniform(0.3, 1, (40, classes))

    def of_logits(low: np.ndarray, up: np.ndarray) -> np.ndarray:
        return brute(*naive_interval_softmax(low, up))

    logits = tuple(torch.tensor(centre + sign * half, requires_grad=True) for sign in (-1, 1))
    made = interval_softmax(*logits)
    bounds = tuple(bound.detach().requires_grad_() for bound in (made.lower, made.upper))
    for leaves, credal, reference in ((bounds, IntervalSet(*bounds), brute), (logits, made, of_logits)):
        if classes == 2 and reference is brute:
            continue  # of two classes only one bound of each pair counts, and both tie: the kink is everywhere
        gradients = torch.autograd.grad(measure(credal, backend=backend).sum(), leaves)
        numeric = differences(reference, tuple(leaf.detach().numpy() for leaf in leaves))
        for gradient, slope in zip(gradients, numeric, strict=True):
            smooth = ~np.isnan(slope)
            assert smooth.mean() > 0.9
            np.testing.assert_allclose(gradient.numpy()[smooth], slope[smooth], rtol=0, atol=1e-5)
        assert sum(gradient.abs().sum() for gradient in gradients) > 1


@both
@pytest.mark.parametrize("classes", [2, 3, 6, 8, 30])
def test_asking_for_gradients_changes_nothing(classes: int, backend: str) -> None:
    """Also for collapsed classes, where a bound and the optimum differ by rounding only; all gradients are finite."""
    for name, (low, up) in regimes(np.random.default_rng(classes), 200, classes).items():
        plain = uncertainty(IntervalSet(low, up), certify=True, backend=backend)
        lower, upper = (torch.tensor(side, requires_grad=True) for side in (low, up))
        results = uncertainty(IntervalSet(lower, upper), certify=True, backend=backend)
        for one, other in ((plain.upper, results.upper), (plain.lower, results.lower)):
            np.testing.assert_allclose(other.entropy.detach(), one.entropy, rtol=0, atol=PROVED, err_msg=name)
            np.testing.assert_allclose(other.distribution.detach(), one.distribution, rtol=0, atol=1e-9, err_msg=name)
            np.testing.assert_array_equal(other.gap, one.gap)
        loss = (results.total + 2 * results.aleatoric + 3 * results.epistemic).sum()
        for gradient in torch.autograd.grad(loss, (lower, upper)):
            assert torch.isfinite(gradient).all(), name


@both
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
def test_gradients_are_finite_with_zero_lower_bounds(dtype: torch.dtype, backend: str) -> None:
    lower = torch.tensor([[0.0, 0.0, 0.0], [0.0, 0.5, 0.0], [0.0, 1.0, 0.0]], dtype=dtype, requires_grad=True)
    upper = torch.tensor([[1.0, 1.0, 1.0], [0.0, 0.8, 0.5], [0.0, 1.0, 0.0]], dtype=dtype, requires_grad=True)
    results = uncertainty(IntervalSet(lower, upper), backend=backend)
    for gradient in torch.autograd.grad(sum(part.sum() for part in results), (lower, upper)):
        assert gradient.dtype == dtype
        assert torch.isfinite(gradient).all()


@both
def test_no_gradient_is_kept_when_none_is_wanted(backend: str) -> None:
    lower = torch.zeros(2, 3, requires_grad=True)
    credal = IntervalSet(lower, torch.ones(2, 3))
    with torch.no_grad():
        assert not any(part.requires_grad for part in uncertainty(credal, backend=backend))
    results = uncertainty(credal, certify=True, backend=backend)
    assert all(part.requires_grad for part in results[:3])
    assert not any(optimum.gap.requires_grad for optimum in (results.upper, results.lower))


# Dtypes, shapes, and what is refused


def widened(credal: IntervalSet) -> IntervalSet:
    """The same set in float64; rows whose sums miss 1 by the rounding of the narrow dtype are scaled onto it."""
    lower, upper = credal.lower.double(), credal.upper.double()
    floor, ceiling = lower.sum(dim=-1, keepdim=True), upper.sum(dim=-1, keepdim=True)
    return IntervalSet(lower / floor.clamp_min(1), upper / ceiling.clamp_max(1))


@both
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("classes", [2, 5, 11, 40])
def test_any_dtype_in_and_out_without_losing_the_proof(classes: int, dtype: torch.dtype, backend: str) -> None:
    rng = np.random.default_rng(classes)
    centre = torch.tensor(rng.normal(size=(60, classes))).to(dtype)
    half = torch.tensor(rng.uniform(0, 1, centre.shape) * rng.choice([0.0, 0.1, 1.0], size=(60, 1))).to(dtype)
    credal = interval_softmax(centre - half, centre + half)
    results = uncertainty(credal, certify=True, backend=backend)
    exact = uncertainty(widened(credal), certify=True, backend=backend)
    half_ulp = torch.finfo(dtype).eps / 2
    subnormal = 1e-7 if half_ulp > 1e-5 else PROVED  # values next to 0 have fewer digits
    for got, want in ((results.upper, exact.upper), (results.lower, exact.lower)):
        assert (got.entropy.dtype, got.distribution.dtype, got.gap.dtype) == (dtype, dtype, torch.float64)
        assert (got.gap <= PROVED).all()
        truth = want.entropy.numpy()
        np.testing.assert_allclose(got.entropy.double(), truth, rtol=1.01 * half_ulp, atol=subnormal)
        bits = entropy(got.distribution.double())
        np.testing.assert_allclose(bits, truth, rtol=0, atol=classes * half_ulp + PROVED)
    assert results.epistemic.dtype == dtype
    assert (results.epistemic >= 0).all()


@both
@pytest.mark.parametrize("batch", [(), (1,), (6,), (2, 3), (3, 1, 2)])
def test_batch_shapes(batch: tuple[int, ...], backend: str) -> None:
    rows = int(np.prod(batch))
    flat = logit_set(0, rows, 7, 0.5, (0.0, 1.0))
    credal = IntervalSet(flat.lower.reshape(*batch, 7), flat.upper.reshape(*batch, 7))
    results, expected = (uncertainty(one, certify=True, backend=backend) for one in (credal, flat))
    for name in Uncertainty._fields:
        assert torch.equal(getattr(results, name), getattr(expected, name).reshape(batch))
    for got, want in ((results.upper, expected.upper), (results.lower, expected.lower)):
        assert got.distribution.shape == (*batch, 7)
        assert torch.equal(got.distribution.reshape(-1, 7), want.distribution)
        assert torch.equal(got.gap, want.gap.reshape(batch))


@both
def test_strided_bounds(backend: str) -> None:
    credal = logit_set(1, 20, 8, 0.5, (0.0, 1.0))
    strided = IntervalSet(credal.lower.t().contiguous().t(), credal.upper.repeat(2, 1)[:20])
    for one, other in zip(uncertainty(strided, backend=backend), uncertainty(credal, backend=backend), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=ROUNDING)


@both
def test_one_class(backend: str) -> None:
    results = uncertainty(IntervalSet(torch.tensor([[0.3], [1.0]]), torch.ones(2, 1)), certify=True, backend=backend)
    for part in results[:3]:
        assert part.tolist() == [0.0, 0.0]
    for optimum in (results.upper, results.lower):
        assert optimum.distribution.tolist() == [[1.0], [1.0]]
        assert (optimum.gap <= PROVED).all()


@both
@pytest.mark.parametrize("batch", [(0,), (0, 3), (2, 0)])
@pytest.mark.parametrize("gradient", [False, True])
def test_empty_batch(gradient: bool, batch: tuple[int, ...], backend: str) -> None:
    lower = torch.zeros(*batch, 4, requires_grad=gradient)
    credal = IntervalSet(lower, torch.ones(*batch, 4))
    assert [part.shape for part in uncertainty(credal, backend=backend)] == [batch] * 3
    for measure in (upper_entropy, lower_entropy):
        optimum = measure(credal, certify=True, backend=backend)
        assert optimum.entropy.shape == optimum.gap.shape == batch
        assert optimum.distribution.shape == (*batch, 4)
        assert optimum.gap.dtype == torch.float64


@pytest.mark.parametrize("measure", [upper_entropy, lower_entropy, uncertainty])
def test_unknown_backend_and_wrong_type_of_set(measure: Callable[..., object]) -> None:
    with pytest.raises(ValueError, match="abacus"):
        measure(IntervalSet(torch.zeros(1, 3), torch.ones(1, 3)), backend="abacus")
    for wrong in (torch.full((2, 3), 1 / 3), (torch.zeros(3), torch.ones(3))):
        with pytest.raises(TypeError, match=type(wrong).__name__):
            measure(wrong)


# The same answer however it is computed


def assert_same(found: tuple[torch.Tensor, ...], expected: tuple[torch.Tensor, ...], backend: str) -> None:
    """The compiled kernel takes rows one by one, so nothing may differ; torch adds numbers up in its own order."""
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=0 if backend == "numba" else PROVED)


@both
def test_number_of_threads_does_not_matter(backend: str) -> None:
    credal, _, _ = instances(8)
    before = torch.get_num_threads()
    results = []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            results.append(uncertainty(credal, certify=True, backend=backend))
    finally:
        torch.set_num_threads(before)
    for which in ("upper", "lower"):
        one, other = (getattr(result, which) for result in results)
        assert_same((one.entropy, one.gap), (other.entropy, other.gap), backend)
        if backend == "numba":
            assert torch.equal(one.distribution, other.distribution)


@both
def test_batching_does_not_matter(backend: str) -> None:
    credal = logit_set(0, 3000, 15, 0.2, (0.0, 1.0))
    together = uncertainty(credal, backend=backend)
    picked = torch.arange(0, 3000, 97)
    alone = [uncertainty(IntervalSet(credal.lower[row], credal.upper[row]), backend=backend) for row in picked]
    assert_same(tuple(map(torch.stack, zip(*alone, strict=True))), tuple(part[picked] for part in together), backend)


def test_size_does_not_choose_the_path() -> None:
    """Where intervals have collapsed, what is left of the epistemic uncertainty is rounding, and paths differ in it."""
    credal = logit_set(1, 3000, 8, 1.0, (0.0, 1e-9))
    few = IntervalSet(credal.lower[:3], credal.upper[:3])
    for one, other in zip(uncertainty(few), uncertainty(credal, backend="numba"), strict=True):
        assert torch.equal(one, other[:3])


@pytest.mark.parametrize("size", [0, 1, 2, 63, 64, 65, 128, 129, 200, 641])
def test_classes_are_sorted_and_equals_keep_their_order(size: int) -> None:
    from credalgnn.sets._numba import _sort

    rng = np.random.default_rng(size)
    key, order = rng.integers(10, size=size).astype(float), rng.permutation(size)
    expected = order[np.argsort(-key[order], kind="stable")]
    _sort.py_func(order, key)
    np.testing.assert_array_equal(order, expected)


@both
def test_rows_left_open_share_a_reserve(backend: str) -> None:
    """A small budget is enough for rows that are easy, and hard rows among them are proved all the same."""
    rows = 40 if backend == "numba" else 6
    credal = logit_set(3, rows, 30, 0.1, (0.0, 1.0))
    thrifty = lower_entropy(credal, certify=True, budget=60, backend=backend)
    assert thrifty.gap.max() <= 1e-9
    assert torch.allclose(thrifty.entropy, lower_entropy(credal), rtol=0, atol=1e-9)


@both
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_epistemic_is_rounded_once(dtype: torch.dtype, backend: str) -> None:
    logits = torch.randn(500, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    narrow = interval_softmax(logits - 0.002, logits + 0.002).to(dtype)
    exact = uncertainty(narrow.to(torch.float64), backend=backend).epistemic
    results = uncertainty(narrow, backend=backend).epistemic
    assert results.dtype == dtype
    assert torch.allclose(results.double(), exact, rtol=torch.finfo(dtype).eps, atol=1e-7)


def test_bounds_below_zero_by_rounding_leave_a_valid_set() -> None:
    lower = torch.full((1, 50), -5e-6, dtype=torch.float64)
    upper = torch.full((1, 50), -1e-9, dtype=torch.float64)
    lower[0, 0], upper[0, 0] = 0.9, 1.0
    credal = IntervalSet(lower, upper)
    assert bool((credal.lower >= 0).all())
    assert bool((credal.lower <= credal.upper).all())
    for backend in ("numba", "torch"):
        results = uncertainty(credal, certify=True, backend=backend)
        assert float(results.total) == pytest.approx(0.0, abs=1e-12)
        assert bool((results.upper.distribution >= 0).all())


def test_gradient_of_a_row_does_not_depend_on_its_neighbours() -> None:
    row = torch.tensor([0.2, 0.3, 0.5, 0.2, 0.3, 0.6], dtype=torch.float64)
    crossed = torch.tensor([0.2, 0.3, 0.5, 0.2 - 1e-8, 0.3, 0.6], dtype=torch.float64)
    gradients = []
    for batch in (row[None], torch.stack([row, crossed])):
        leaf = batch.clone().requires_grad_()
        lower_entropy(IntervalSet(leaf[:, :3], leaf[:, 3:]))[0].backward()
        assert leaf.grad is not None
        gradients.append(leaf.grad[0])
    assert torch.equal(*gradients)
