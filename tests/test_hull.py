"""Entropies of the convex hull of M members, against an interior-point oracle."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from credalgnn.sets import HullSet, lower_entropy, uncertainty, upper_entropy
from oracles import (
    HullOptimum,
    brute_upper_entropy,
    entropy,
    hull_distance,
    hull_lower_entropy,
    hull_upper_entropy,
)

BACKENDS = ["numba", "torch"]
ROUNDING = 1e-12


def simplex(rng: np.random.Generator, m: int, n: int, c: int, spread: float = 1.0) -> np.ndarray:
    """Random members [M, N, C]; a small spread puts them near corners of the simplex."""
    return rng.dirichlet(np.full(c, spread), size=(m, n))


@cache
def solved(shape: tuple[int, int], data: bytes) -> HullOptimum:
    """The oracle's upper entropy of one row, solved once for all backends."""
    best = hull_upper_entropy(np.frombuffer(data).reshape(shape))
    assert best.gap < 1e-10, "the oracle is sure of itself"
    return best


def check(members: np.ndarray, backend: str | None = None) -> None:
    """Upper and lower entropy of members [M, N, C] and their certificates, against the oracle."""
    hull = HullSet(members)
    upper = upper_entropy(hull, certify=True, backend=backend)
    lower = lower_entropy(hull, certify=True, backend=backend)
    assert torch.equal(upper.entropy, upper_entropy(hull, backend=backend))
    assert torch.equal(lower.entropy, lower_entropy(hull, backend=backend))
    for optimum in (upper, lower):
        assert optimum.gap.dtype == torch.float64
        assert (optimum.gap >= 0).all()
        p = optimum.distribution.numpy()
        np.testing.assert_allclose(p.sum(axis=-1), 1, rtol=0, atol=ROUNDING)
        np.testing.assert_allclose(entropy(p), optimum.entropy.numpy(), rtol=0, atol=ROUNDING)
    for row in range(members.shape[1]):
        best = solved(members[:, row].shape, members[:, row].tobytes())
        got, gap = upper.entropy[row].item(), upper.gap[row].item()
        assert got <= best.value + best.gap + ROUNDING
        assert got + gap >= best.value - ROUNDING, "the gap bounds the true error"
        assert gap <= 1e-9
        assert hull_distance(members[:, row], upper.distribution[row].numpy()) < 1e-9
    np.testing.assert_allclose(lower.entropy.numpy(), hull_lower_entropy(members), atol=ROUNDING)
    assert (lower.gap <= 1e-9).all()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("classes", [3, 4, 5, 6])
def test_random_hulls(classes: int, backend: str) -> None:
    rng = np.random.default_rng(classes)
    for m in range(2, 9):
        check(simplex(rng, m, 9, classes), backend)
        check(simplex(rng, m, 9, classes, 0.2), backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_many_classes_and_members(backend: str) -> None:
    rng = np.random.default_rng(30)
    check(simplex(rng, 10, 100, 30), backend)
    logits = rng.normal(size=(1, 100, 30)) + 0.3 * rng.normal(size=(10, 100, 30))  # an ensemble
    check(np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True), backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_degenerate_hulls(backend: str) -> None:
    rng = np.random.default_rng(0)
    members = simplex(rng, 3, 5, 4)
    check(members[:1], backend)  # one member
    check(members[[0, 0, 1, 2, 2, 2]], backend)  # duplicates
    check(members[[0, 0, 0]], backend)
    check(simplex(rng, 20, 5, 3), backend)  # more members than classes
    check(simplex(rng, 4, 5, 2), backend)  # two classes
    check(np.ones((3, 2, 1)), backend)  # one class
    check(np.eye(4)[rng.integers(4, size=(3, 10))], backend)  # one-hot, some of them equal
    check(np.concatenate([np.eye(4)[:, None], simplex(rng, 2, 1, 4)]), backend)
    padded = np.concatenate([simplex(rng, 3, 5, 3), np.zeros((3, 5, 2))], axis=-1)
    check(padded, backend)  # two classes are zero in every member
    sparse = members * (rng.uniform(size=members.shape) < 0.5) + 1e-300 * np.eye(4)[0]
    check(sparse / sparse.sum(axis=-1, keepdims=True), backend)  # zeros in some members
    tiny = members * np.array([1.0, 1e-6, 1e-12, 1.0])
    check(tiny / tiny.sum(axis=-1, keepdims=True), backend)
    for noise in (1e-3, 1e-7, 1e-12, 1e-15):  # nearly identical members
        near = members[:1] * (1 + noise * rng.normal(size=(5, 5, 4)))
        check(near / near.sum(axis=-1, keepdims=True), backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_hulls_known_by_hand(backend: str) -> None:
    def bits(members: list[list[float]]) -> tuple[float, float]:
        hull = HullSet(torch.tensor(members, dtype=torch.float64))
        measures = uncertainty(hull, backend=backend)
        assert measures.epistemic == measures.total - measures.aleatoric
        return measures.total.item(), measures.aleatoric.item()

    assert bits([[1, 0, 0], [0, 1, 0], [0, 0, 1]]) == pytest.approx((math.log2(3), 0), abs=1e-12)
    assert bits([[1, 0], [0.75, 0.25]]) == pytest.approx((entropy([0.75, 0.25]), 0), abs=2e-11)
    # The third member is already the most even mixture of the other two.
    split = [[0.5, 0.25, 0.25, 0], [0, 0.25, 0.25, 0.5], [0.25, 0.25, 0.25, 0.25]]
    assert bits(split) == pytest.approx((2.0, 1.5), abs=1e-12)
    # conv{(1, 0, 0), (0, 1/2, 1/2)}: H = h2(w) + (1 - w) is largest at w = 1/3.
    assert bits([[1, 0, 0], [0, 0.5, 0.5]]) == pytest.approx((math.log2(3), 0), abs=1e-12)


@st.composite
def member_arrays(draw: st.DrawFn) -> np.ndarray:
    """Members [M, C] as small counts over their sum: zeros, ties and duplicates are common."""
    m, c = draw(st.integers(1, 6)), draw(st.integers(2, 6))
    counts = draw(arrays(np.int64, (m, c), elements=st.integers(0, 9)))
    counts[counts.sum(axis=1) == 0] = 1
    return counts / counts.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("backend", BACKENDS)
@settings(max_examples=60, deadline=None)
@given(member_arrays(), st.randoms(use_true_random=False))
def test_order_of_classes_and_members_does_not_matter(backend: str, members: np.ndarray, random) -> None:
    classes = random.sample(range(members.shape[1]), members.shape[1])
    rows = random.sample(range(members.shape[0]), members.shape[0])
    hull, shuffled = HullSet(members), HullSet(members[rows][:, classes])
    for measure in (upper_entropy, lower_entropy):
        assert measure(hull).item() == pytest.approx(measure(shuffled).item(), abs=1e-9)


@pytest.mark.parametrize("backend", BACKENDS)
@settings(max_examples=60, deadline=None)
@given(member_arrays())
def test_hull_lies_between_its_members_and_its_envelope(backend: str, members: np.ndarray) -> None:
    hull = HullSet(members)
    upper = upper_entropy(hull, backend=backend).item()
    assert upper >= entropy(members).max() - 2e-11  # the solvers stop at a gap of 1e-11
    assert upper >= entropy(members.mean(axis=0)) - 1e-9
    assert upper <= upper_entropy(hull.to_intervals()).item() + 1e-9
    envelope = brute_upper_entropy(members.min(axis=0)[None], members.max(axis=0)[None])
    assert upper <= envelope[0] + 1e-9
    assert lower_entropy(hull).item() == pytest.approx(entropy(members).min(), abs=ROUNDING)
    assert lower_entropy(hull.to_intervals()).item() <= lower_entropy(hull).item() + 1e-9


@pytest.mark.parametrize("backend", BACKENDS)
@settings(max_examples=60, deadline=None)
@given(member_arrays(), st.integers(0, 5))
def test_fewer_members_make_a_smaller_hull(backend: str, members: np.ndarray, dropped: int) -> None:
    part = np.delete(members, dropped % len(members), axis=0) if len(members) > 1 else members
    assert (
        upper_entropy(HullSet(part), backend=backend).item()
        <= upper_entropy(HullSet(members), backend=backend).item() + 1e-9
    )
    assert lower_entropy(HullSet(part)).item() >= lower_entropy(HullSet(members)).item() - ROUNDING


@pytest.mark.parametrize("backend", BACKENDS)
def test_batches_of_ties_and_duplicates(backend: str) -> None:
    """Rows that are solved early must not spoil those that are not."""
    rng = np.random.default_rng(5)
    counts = rng.integers(0, 3, (10, 2000, 5)) + np.eye(5)[rng.integers(0, 5, (10, 2000))]
    members = counts / counts.sum(-1, keepdims=True)
    members[3] = members[2]
    result = uncertainty(HullSet(members), certify=True, backend=backend)
    assert result.upper.gap.max() <= 1e-9
    other = uncertainty(HullSet(members), backend="torch" if backend == "numba" else "numba")
    assert torch.allclose(result.total, other.total, rtol=0, atol=1e-9)


def test_members_peaked_to_the_last_digits_are_proved() -> None:
    rng = np.random.default_rng(0)
    logits = torch.from_numpy(rng.normal(0, 30, (6, 20_000, 8)))
    assert upper_entropy(HullSet(logits.softmax(-1)), certify=True).gap.max() <= 1e-9


def test_envelope_mean_and_shapes() -> None:
    members = simplex(np.random.default_rng(0), 3, 6, 4)
    hull = HullSet(members)
    intervals = hull.to_intervals()
    np.testing.assert_allclose(intervals.lower.numpy(), members.min(axis=0), atol=1e-15)
    np.testing.assert_allclose(intervals.upper.numpy(), members.max(axis=0), atol=1e-15)
    np.testing.assert_allclose(hull.mean().numpy(), members.mean(axis=0), atol=1e-15)
    assert intervals.is_reachable().all()
    folded = HullSet(members.reshape(3, 2, 3, 4))
    for measure in (upper_entropy, lower_entropy):
        every = measure(hull)
        assert every.shape == (6,)
        assert torch.equal(measure(folded), every.reshape(2, 3))
        assert measure(HullSet(members[:, 2])).shape == ()
        assert measure(HullSet(members[:, 2])) == every[2]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("m", "classes"), [(1, 3), (2, 3), (4, 3), (3, 5), (6, 4)])
def test_gradient_matches_finite_differences(m: int, classes: int, backend: str) -> None:
    """Along directions that stay distributions: members are the softmax of free logits."""
    rng = np.random.default_rng(m)
    logits = torch.tensor(rng.normal(size=(m, 1, classes)), requires_grad=True)
    oracles = {
        upper_entropy: lambda p: hull_upper_entropy(p).value,
        lower_entropy: lambda p: float(hull_lower_entropy(p)),
    }
    for measure, oracle in oracles.items():
        value = measure(HullSet(torch.softmax(logits, dim=-1)), backend=backend)
        (gradient,) = torch.autograd.grad(value.sum(), logits)
        for _ in range(5):
            direction = torch.tensor(rng.normal(size=logits.shape))
            ahead, behind = (
                oracle(torch.softmax(logits.detach() + step * direction, dim=-1)[:, 0].numpy())
                for step in (1e-5, -1e-5)
            )
            numeric = (ahead - behind) / 2e-5
            assert (gradient * direction).sum().item() == pytest.approx(numeric, abs=1e-5)


def test_gradient_is_finite_with_zeros_and_duplicates() -> None:
    members = torch.tensor(
        [[[1.0, 0.0, 0.0], [0.5, 0.5, 0.0]], [[1.0, 0.0, 0.0], [0.5, 0.5, 0.0]]],
        dtype=torch.float64,
        requires_grad=True,
    )
    total, aleatoric, epistemic = uncertainty(HullSet(members))
    (gradient,) = torch.autograd.grad((total + aleatoric + epistemic).sum(), members)
    assert torch.isfinite(gradient).all()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 2e-6), (torch.float16, 5e-3)])
def test_small_dtypes_keep_the_proof(dtype: torch.dtype, error: float, backend: str) -> None:
    members = torch.tensor(simplex(np.random.default_rng(0), 5, 30, 6)).to(dtype)
    hull = HullSet(members)
    exact = members.double().numpy()
    exact /= exact.sum(axis=-1, keepdims=True)
    upper = upper_entropy(hull, certify=True, backend=backend)
    lower = lower_entropy(hull, certify=True, backend=backend)
    expected = [hull_upper_entropy(exact[:, row]).value for row in range(30)]
    for optimum in (upper, lower):
        assert optimum.entropy.dtype == dtype
        assert optimum.gap.dtype == torch.float64
        assert (optimum.gap <= 1e-9).all()
    np.testing.assert_allclose(upper.entropy.double().numpy(), expected, rtol=0, atol=error)
    np.testing.assert_allclose(lower.entropy.double().numpy(), hull_lower_entropy(exact), rtol=0, atol=error)


def test_float32_rounding_of_sums_is_forgiven() -> None:
    """Probabilities computed in float32 and widened miss 1 by about 1e-7."""
    logits = torch.tensor(np.random.default_rng(0).normal(size=(5, 50, 30))).float()
    members = torch.softmax(logits, dim=-1).double()
    assert (members.sum(dim=-1) - 1).abs().max() > 1e-9
    hull = HullSet(members)
    torch.testing.assert_close(hull.members.sum(dim=-1), torch.ones(5, 50, dtype=torch.float64), rtol=0, atol=1e-12)
    assert (upper_entropy(hull, certify=True).gap <= 1e-9).all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_empty_batch(backend: str) -> None:
    hull = HullSet(torch.zeros(3, 0, 4))
    for measure in (upper_entropy, lower_entropy):
        assert measure(hull, backend=backend).shape == (0,)
        optimum = measure(hull, certify=True, backend=backend)
        assert (optimum.entropy.shape, optimum.gap.shape) == ((0,), (0,))
        assert optimum.distribution.shape == (0, 4)
    assert [part.shape for part in uncertainty(hull, backend=backend)] == [(0,)] * 3


def spoiled(value: float) -> torch.Tensor:
    """Uniform members [2, 5, 4] with one entry of row 3, class 1 replaced."""
    members = torch.full((2, 5, 4), 0.25, dtype=torch.float64)
    members[1, 3, 1] = value
    return members


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -0.1, 1.5])
def test_a_bad_probability_is_named(value: float) -> None:
    with pytest.raises(ValueError, match="row 3, class 1"):
        HullSet(spoiled(value))


def test_a_bad_sum_is_named() -> None:
    with pytest.raises(ValueError, match="row 3"):
        HullSet(spoiled(0.35))


@pytest.mark.parametrize(
    ("shape", "error"),
    [((), ValueError), ((4,), ValueError), ((0, 5, 4), ValueError), ((2, 5, 0), ValueError)],
    ids=["scalar", "one axis", "no members", "no classes"],
)
def test_bad_shapes(shape: tuple[int, ...], error: type[Exception]) -> None:
    with pytest.raises(error):
        HullSet(torch.full(shape, 0.25))


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool])
def test_members_must_be_floating(dtype: torch.dtype) -> None:
    with pytest.raises(TypeError):
        HullSet(torch.eye(3).to(dtype)[:, None])


def test_unknown_backend() -> None:
    hull = HullSet(torch.full((2, 1, 4), 0.25))
    for measure in (upper_entropy, lower_entropy):
        with pytest.raises(ValueError, match="abacus"):
            measure(hull, backend="abacus")


def test_a_hull_contains_its_mixtures_and_nothing_else() -> None:
    """Membership against what was mixed, and against a corner that the bounds alone would let in."""
    generator = torch.Generator().manual_seed(0)
    members = torch.rand(4, 30, 3, generator=generator, dtype=torch.float64)
    members = members / members.sum(-1, keepdim=True)
    weights = torch.rand(4, 30, 1, generator=generator, dtype=torch.float64)
    mixed = (members * weights / weights.sum(0)).sum(0)
    hull = HullSet(members)
    assert bool(hull.contains(mixed).all())
    beyond = hull.mean() + 1.2 * (members - hull.mean())  # each member pushed away from the middle
    assert not bool(torch.stack([hull.contains(point) for point in beyond]).all(0).any())
    thin = HullSet(torch.tensor([[[0.8, 0.1, 0.1]], [[0.1, 0.8, 0.1]], [[0.1, 0.1, 0.8]]]))
    corner = torch.tensor([[0.5, 0.5, 0.0]])
    assert thin.contains(corner, 0.2).tolist() == [True]
    assert thin.contains(corner).tolist() == [False]
    middle = torch.tensor([[0.3, 0.3, 0.4]], dtype=torch.float64)
    two = HullSet(torch.tensor([[[0.2, 0.4, 0.4]], [[0.4, 0.2, 0.4]], [[0.3, 0.4, 0.3]]], dtype=torch.float64))
    outside = torch.tensor([[0.2, 0.5, 0.3]], dtype=torch.float64)
    assert (two.contains(middle).tolist(), two.contains(outside).tolist()) == ([True], [False])
    inside_box = torch.tensor([[0.4, 0.3, 0.3]], dtype=torch.float64)  # within all bounds, not within the triangle
    assert two.to_intervals().contains(inside_box).tolist() == [True]
    assert two.contains(inside_box).tolist() == [False]
