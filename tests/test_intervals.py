"""Interval sets: what they accept, what they refuse, and the interval softmax that makes them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from credalgnn.sets import IntervalSet, interval_softmax, log_interval_softmax
from oracles import Polytope, interval_vertices, naive_interval_softmax, regimes

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]

LOWER = np.array([[0.1, 0.2, 0.3], [0.0, 0.0, 0.0], [0.5, 0.1, 0.0], [0.25, 0.25, 0.25]])
UPPER = np.array([[0.3, 0.4, 0.9], [1.0, 1.0, 1.0], [0.8, 0.8, 0.8], [0.5, 0.5, 0.5]])


def eps(dtype: torch.dtype) -> float:
    return torch.finfo(dtype).eps


def spoiled(**changes: float) -> tuple[np.ndarray, np.ndarray]:
    """Five good rows of four classes; lower or upper of rows 3 and 4, class 1, replaced."""
    lower, upper = np.full((5, 4), 0.2), np.full((5, 4), 0.4)
    if "lower" in changes:
        lower[3:, 1] = changes["lower"]
    if "upper" in changes:
        upper[3:, 1] = changes["upper"]
    return lower, upper


# What a set accepts


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_bounds_are_kept_as_given(dtype: torch.dtype) -> None:
    lower, upper = torch.tensor(LOWER).to(dtype), torch.tensor(UPPER).to(dtype)
    credal = IntervalSet(lower, upper)
    assert torch.equal(credal.lower, lower)
    assert torch.equal(credal.upper, upper)
    assert (credal.dtype, credal.device, credal.shape) == (dtype, torch.device("cpu"), (4, 3))
    torch.testing.assert_close(credal.width, upper - lower)
    torch.testing.assert_close(credal.midpoint, (lower + upper) / 2)
    assert "[4, 3]" in repr(credal)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("writeable", [True, False])
def test_numpy_is_accepted(dtype: type[np.floating], writeable: bool) -> None:
    lower, upper = LOWER.astype(dtype), UPPER.astype(dtype)
    lower.flags.writeable = upper.flags.writeable = writeable
    credal = IntervalSet(lower, upper)
    assert credal.lower.numpy().dtype == dtype
    np.testing.assert_array_equal(credal.lower.numpy(), lower)
    np.testing.assert_array_equal(credal.upper.numpy(), upper)


@pytest.mark.parametrize("view", [np.s_[::-1], np.s_[:, ::-1], np.s_[::2]])
def test_numpy_views_are_accepted(view: tuple[slice, ...]) -> None:
    credal = IntervalSet(LOWER[view], UPPER[view])
    np.testing.assert_array_equal(credal.lower.numpy(), LOWER[view])
    np.testing.assert_array_equal(credal.upper.numpy(), UPPER[view])


@pytest.mark.parametrize(
    ("lower", "upper", "expected"),
    [
        (torch.float32, torch.float64, torch.float64),
        (torch.float16, torch.float32, torch.float32),
        (torch.float16, torch.bfloat16, torch.float32),
    ],
)
def test_mixed_dtypes_promote(lower: torch.dtype, upper: torch.dtype, expected: torch.dtype) -> None:
    credal = IntervalSet(torch.tensor(LOWER).to(lower), torch.tensor(UPPER).to(upper))
    assert (credal.lower.dtype, credal.upper.dtype) == (expected, expected)


@pytest.mark.parametrize("batch", [(), (4,), (2, 2), (2, 1, 2)])
def test_any_batch_shape(batch: tuple[int, ...]) -> None:
    rows = math.prod(batch)
    lower, upper = LOWER[:rows].reshape(*batch, 3), UPPER[:rows].reshape(*batch, 3)
    credal, flat = IntervalSet(lower, upper), IntervalSet(LOWER[:rows], UPPER[:rows])
    assert credal.shape == (*batch, 3)
    assert torch.equal(credal.is_reachable(), flat.is_reachable().reshape(batch))
    assert torch.equal(credal.contains(torch.full((3,), 1 / 3)), flat.contains(torch.full((3,), 1 / 3)).reshape(batch))
    assert torch.equal(credal.reachable().lower.reshape(-1, 3), flat.reachable().lower)
    assert torch.equal(credal.intersection_probability().reshape(-1, 3), flat.intersection_probability())


def test_an_empty_batch_is_legal() -> None:
    credal = IntervalSet(torch.zeros(0, 4), torch.ones(0, 4))
    assert credal.shape == credal.width.shape == credal.reachable().shape == (0, 4)
    assert credal.intersection_probability().shape == credal.to(torch.float64).shape == (0, 4)
    assert credal.is_reachable().shape == credal.contains(torch.zeros(0, 4)).shape == (0,)
    assert interval_softmax(torch.zeros(0, 4), torch.zeros(0, 4)).shape == (0, 4)


def test_a_set_is_frozen() -> None:
    credal = IntervalSet(LOWER, UPPER)
    for name in ("lower", "upper"):
        with pytest.raises(FrozenInstanceError):
            setattr(credal, name, credal.midpoint)


# What a set refuses


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"lower": math.nan}, "lower is nan"),
        ({"upper": math.nan}, "upper is nan"),
        ({"lower": -math.inf}, "lower is -inf"),
        ({"upper": math.inf}, "upper is inf"),
        ({"lower": 0.7, "upper": 0.2}, "lower 0.7 > upper 0.2"),
        ({"lower": -0.25}, "lower -0.25 is below 0"),
        ({"upper": 1.25}, "upper 1.25 is above 1"),
    ],
)
def test_the_first_bad_bound_is_named(changes: dict[str, float], words: str) -> None:
    lower, upper = spoiled(**changes)
    with pytest.raises(ValueError, match=f"^row 3, class 1: {words}"):
        IntervalSet(lower, upper)
    with pytest.raises(ValueError, match=f"^class 1: {words}"):
        IntervalSet(lower[3], upper[3])
    fold = (2, 1, 4)
    with pytest.raises(ValueError, match=rf"^row \(1, 0\), class 1: {words}"):
        IntervalSet(lower[[0, 3]].reshape(fold), upper[[0, 3]].reshape(fold))


@pytest.mark.parametrize(
    ("lower", "upper", "words"),
    [
        ([0.2, 0.6, 0.4, 0.0], [1.0, 1.0, 1.0, 1.0], ["lower", "1.2", "class 1", "0.6"]),
        ([0.0, 0.0, 0.0, 0.0], [0.3, 0.3, 0.1, 0.2], ["upper", "0.9", "class 2", "0.1"]),
    ],
)
def test_a_row_without_a_distribution_is_named(lower: list[float], upper: list[float], words: list[str]) -> None:
    lowers, uppers = spoiled()
    lowers[2:4], uppers[2:4] = lower, upper
    with pytest.raises(ValueError, match=r"\brow 2\b") as raised:
        IntervalSet(lowers, uppers)
    with pytest.raises(ValueError, match="no distribution") as single:
        IntervalSet(np.array(lower), np.array(upper))
    for word in words:
        assert word in str(raised.value)
        assert word in str(single.value)


@pytest.mark.parametrize(
    ("lower", "upper", "words"),
    [
        ((4, 3), (4, 2), r"\[4, 3\].*\[4, 2\]"),
        ((4, 3), (3,), r"\[4, 3\].*\[3\]"),
        ((), (), "classes"),
        ((4, 0), (4, 0), "classes"),
        ((0,), (0,), "classes"),
    ],
)
def test_bad_shapes(lower: tuple[int, ...], upper: tuple[int, ...], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        IntervalSet(torch.zeros(lower), torch.ones(upper))


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.bool], ids=str)
def test_bounds_must_be_floating(dtype: torch.dtype) -> None:
    zeros, ones = torch.zeros(2, 3), torch.ones(2, 3)
    with pytest.raises(TypeError, match=f"lower.*{dtype}"):
        IntervalSet(zeros.to(dtype), ones)
    with pytest.raises(TypeError, match=f"upper.*{dtype}"):
        IntervalSet(zeros.numpy(), ones.to(dtype).numpy())


# Rounding is forgiven, real violations are not


@pytest.mark.parametrize("classes", [2, 3, 10, 100])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_collapsed_intervals_whose_sums_miss_one(dtype: torch.dtype, classes: int) -> None:
    logits = torch.tensor(np.random.default_rng(classes).normal(size=(200, classes)) * 2).to(dtype)
    p = torch.softmax(logits, dim=-1)
    for bounds in (p, p.double()) if dtype == torch.float32 else (p,):
        rounding = eps(bounds.dtype)
        missed = (bounds.double().sum(dim=-1) - 1).abs().max().item()
        credal = IntervalSet(bounds, bounds)
        lower, upper = credal.lower.double(), credal.upper.double()
        assert credal.dtype == bounds.dtype
        assert missed > 0, "there is something to project"
        assert ((lower >= 0) & (lower <= upper) & (upper <= 1)).all()
        assert (lower.sum(dim=-1) <= 1 + 2 * rounding).all()
        assert (upper.sum(dim=-1) >= 1 - 2 * rounding).all()
        assert (upper - lower).max() <= missed + 2 * rounding
        assert (lower - bounds.double()).abs().max() <= missed + 2 * rounding
        assert credal.contains(bounds).all()
        assert credal.is_reachable().all()


@pytest.mark.parametrize(
    ("dtype", "forgiven", "refused"),
    [
        (torch.float64, 3e-7, 3e-6),
        (torch.float32, 3e-7, 3e-6),
        (torch.float16, 3e-3, 2e-2),
        (torch.bfloat16, 2e-2, 2e-1),
    ],
)
@pytest.mark.parametrize(
    "violate",
    [
        lambda by: ([0.0, -by, 0.5], [1.0, 1.0, 1.0]),
        lambda by: ([0.0, 0.0, 0.5], [1.0, 1.0 + by, 1.0]),
        lambda by: ([0.2, 0.25 + by, 0.2], [0.5, 0.25, 0.5]),
        lambda by: ([0.25, 0.25 + by, 0.5], [0.5, 0.75, 0.5]),
        lambda by: ([0.0, 0.0, 0.0], [0.5, 0.25 - by, 0.25]),
    ],
    ids=["below 0", "above 1", "crossed", "lower sum", "upper sum"],
)
def test_tolerance(
    violate: Callable[[float], tuple[list[float], list[float]]], dtype: torch.dtype, forgiven: float, refused: float
) -> None:
    lower, upper = (torch.tensor(side, dtype=dtype) for side in violate(forgiven))
    credal = IntervalSet(lower, upper)
    assert credal.dtype == dtype
    low, up = credal.lower.double(), credal.upper.double()
    assert ((low >= 0) & (low <= up) & (up <= 1)).all()
    assert low.sum() <= 1 + eps(dtype)
    assert up.sum() >= 1 - eps(dtype)
    for new, old in ((low, lower), (up, upper)):
        assert (new - old.double()).abs().max() <= 2 * forgiven
    with pytest.raises(ValueError, match=r"class 1|sum to"):
        IntervalSet(*(torch.tensor(side, dtype=dtype) for side in violate(refused)))


# Reachable bounds, members, the point prediction, dtypes


@pytest.mark.parametrize("classes", [2, 3, 5])
def test_reachable_bounds_are_the_extremes_of_the_set(classes: int) -> None:
    """Each bound equals a linear program over the original set: the set is the same, every bound is attained."""
    for name, (lower, upper) in regimes(np.random.default_rng(classes), 4, classes).items():
        tight = IntervalSet(lower, upper).reachable()
        for row in range(4):
            box = Polytope.intervals(lower[row], upper[row])
            least = [box.minimum(unit) for unit in np.eye(classes)]
            most = [-box.minimum(-unit) for unit in np.eye(classes)]
            np.testing.assert_allclose(tight.lower[row].numpy(), least, rtol=0, atol=1e-9, err_msg=name)
            np.testing.assert_allclose(tight.upper[row].numpy(), most, rtol=0, atol=1e-9, err_msg=name)


@pytest.mark.parametrize("classes", [2, 3, 6])
def test_reachable_keeps_every_member(classes: int) -> None:
    rng = np.random.default_rng(classes)
    for name, (lower, upper) in regimes(rng, 6, classes).items():
        credal = IntervalSet(lower, upper)
        tight = credal.reachable()
        assert tight.is_reachable().all(), name
        for row in range(6):
            corners = interval_vertices(lower[row], upper[row])
            p = np.concatenate([corners, rng.dirichlet(np.full(len(corners), 0.2), size=20) @ corners])
            low, up = tight.lower[row].numpy(), tight.upper[row].numpy()
            assert ((low - 1e-14 <= p) & (p <= up + 1e-14)).all(), name
            assert IntervalSet(low, up).contains(p).all(), name
        again = tight.reachable()
        np.testing.assert_allclose(again.lower.numpy(), tight.lower.numpy(), rtol=0, atol=1e-15, err_msg=name)
        np.testing.assert_allclose(again.upper.numpy(), tight.upper.numpy(), rtol=0, atol=1e-15, err_msg=name)


def test_reachable_by_hand() -> None:
    credal = IntervalSet(LOWER, UPPER)
    assert credal.is_reachable().tolist() == [False, True, False, True]
    tight = credal.reachable()
    expected = [[0.1, 0.2, 0.3], [0, 0, 0], [0.5, 0.1, 0.0], [0.25, 0.25, 0.25]]
    np.testing.assert_allclose(tight.lower.numpy(), expected, rtol=0, atol=1e-15)
    expected = [[0.3, 0.4, 0.7], [1, 1, 1], [0.8, 0.5, 0.4], [0.5, 0.5, 0.5]]
    np.testing.assert_allclose(tight.upper.numpy(), expected, rtol=0, atol=1e-15)
    raised = IntervalSet(np.zeros(3), np.array([0.5, 0.25, 0.5])).reachable()
    assert raised.lower.tolist() == [0.25, 0.0, 0.25]


@pytest.mark.parametrize("classes", [3, 100])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_reachable_in_any_dtype(dtype: torch.dtype, classes: int) -> None:
    """Also where the sums miss 1 by the rounding of many classes."""
    logits = torch.tensor(np.random.default_rng(0).normal(size=(300, classes))).to(dtype)
    for credal in (
        IntervalSet(torch.softmax(logits, dim=-1), torch.softmax(logits, dim=-1)),
        interval_softmax(logits - 0.25, logits + 0.25),
    ):
        tight = credal.reachable()
        assert tight.dtype == dtype
        assert tight.is_reachable().all()
        assert (tight.lower - credal.lower).abs().max() <= 2 * eps(dtype)
        assert (tight.upper - credal.upper).abs().max() <= 2 * eps(dtype)


def test_contains() -> None:
    credal = IntervalSet(LOWER, UPPER)
    assert credal.contains(torch.tensor([0.25, 0.25, 0.5], dtype=torch.float64)).tolist() == [True, True, False, True]
    assert credal.contains(np.array([0.6, 0.3, 0.1], dtype=np.float32)).tolist() == [False, True, True, False]
    assert not credal.contains(credal.midpoint)[2], "does not sum to 1"
    for dtype in DTYPES:
        assert credal.contains(credal.intersection_probability().to(dtype)).all()
    for step in ([1e-4, -1e-4, 0.0], [-1e-4, 1e-4, 0.0]):
        vertices = np.array([[0.3, 0.2, 0.5], [0.1, 0.4, 0.5]])
        outside = IntervalSet(LOWER[0], UPPER[0]).contains(vertices + step)
        assert outside.tolist() == [step[0] < 0, step[0] > 0]
    assert not credal.contains(torch.tensor([0.25, math.nan, 0.5])).any()
    with pytest.raises(ValueError, match=r"2 classes.* 3"):
        credal.contains(torch.tensor([0.5, 0.5]))


@pytest.mark.parametrize("classes", [2, 3, 8, 50])
def test_intersection_probability(classes: int) -> None:
    for name, (lower, upper) in regimes(np.random.default_rng(classes), 50, classes).items():
        p = IntervalSet(lower, upper).intersection_probability().numpy()
        np.testing.assert_allclose(p.sum(axis=-1), 1, rtol=0, atol=1e-13, err_msg=name)
        assert ((p >= lower - 1e-14) & (p <= upper + 1e-14)).all(), name
        slack = (upper - lower).sum(axis=-1, keepdims=True)
        beta = np.divide(1 - lower.sum(axis=-1, keepdims=True), slack, out=np.zeros_like(slack), where=slack > 1e-9)
        np.testing.assert_allclose(p, lower + beta * (upper - lower), rtol=0, atol=1e-9, err_msg=name)


def test_intersection_probability_by_hand() -> None:
    p = IntervalSet(LOWER, UPPER).intersection_probability().numpy()
    third = 1 / 3
    expected = [[0.18, 0.28, 0.54], [third] * 3, [0.5 + 0.12 / 1.8, 0.1 + 0.28 / 1.8, 0.32 / 1.8], [third] * 3]
    np.testing.assert_allclose(p, expected, rtol=0, atol=1e-15)
    point = torch.tensor([0.7, 0.1, 0.2], dtype=torch.float64)
    torch.testing.assert_close(IntervalSet(point, point).intersection_probability(), point, rtol=0, atol=1e-15)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_intersection_probability_keeps_the_dtype(dtype: torch.dtype) -> None:
    logits = torch.tensor(np.random.default_rng(1).normal(size=(100, 20))).to(dtype)
    for credal in (interval_softmax(logits, logits), interval_softmax(logits, logits + 0.5)):
        p = credal.intersection_probability()
        assert p.dtype == dtype
        assert credal.contains(p).all()
        np.testing.assert_allclose(p.double().sum(dim=-1), 1, rtol=0, atol=2 * eps(dtype))


@pytest.mark.parametrize("target", DTYPES, ids=str)
@pytest.mark.parametrize("source", DTYPES, ids=str)
def test_to_another_dtype(source: torch.dtype, target: torch.dtype) -> None:
    """Rounding of the narrower dtype is not held against a set: collapsed ones move up and down."""
    logits = torch.tensor(np.random.default_rng(2).normal(size=(100, 6))).to(source)
    coarser = max(eps(source), eps(target))
    for half_width in (0.0, 0.5):
        credal = interval_softmax(logits - half_width, logits + half_width)
        moved = credal.to(target)
        assert (moved.lower.dtype, moved.upper.dtype) == (target, target)
        for new, old in ((moved.lower, credal.lower), (moved.upper, credal.upper)):
            assert (new.double() - old.double()).abs().max() <= 2 * coarser


def test_to_a_device() -> None:
    credal = IntervalSet(LOWER, UPPER)
    for device in ("cpu", torch.device("cpu")):
        assert torch.equal(credal.to(device).upper, credal.upper)


# The interval softmax


def logit_box(
    seed: int, n: int, classes: int, spread: float = 2.0, width: float = 2.0
) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    centre = rng.normal(size=(n, classes)) * spread
    return centre - rng.uniform(0, width, centre.shape), centre + rng.uniform(0, width, centre.shape)


def made(lower: np.ndarray, upper: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    credal = interval_softmax(torch.tensor(lower), torch.tensor(upper))
    return credal.lower.numpy(), credal.upper.numpy()


@pytest.mark.parametrize("classes", [2, 3, 10, 100])
def test_interval_softmax_is_equation_3(classes: int) -> None:
    for spread, width in ((0.0, 1.0), (2.0, 2.0), (30.0, 0.0), (100.0, 300.0)):
        lower, upper = logit_box(classes, 300, classes, spread, width)
        expected = naive_interval_softmax(lower, upper)
        for got, want in zip(made(lower, upper), expected, strict=True):
            np.testing.assert_allclose(got, want, rtol=0, atol=1e-12)
            np.testing.assert_allclose(got, want, rtol=1e-8, atol=1e-300, err_msg="small ones are right too")


def test_interval_softmax_is_the_exact_range_over_the_box() -> None:
    lower, upper = logit_box(0, 6, 4)
    low, up = made(lower, upper)
    inside = np.random.default_rng(0).uniform(lower, upper, (500, 6, 4))
    corners = np.where(np.array(list(itertools.product((False, True), repeat=4)))[:, None], upper, lower)
    for points, attained in ((inside, False), (corners, True)):
        p = torch.softmax(torch.tensor(points), dim=-1).numpy()
        assert ((p >= low - 1e-15) & (p <= up + 1e-15)).all()
        if attained:
            np.testing.assert_allclose(p.min(axis=0), low, rtol=1e-12)
            np.testing.assert_allclose(p.max(axis=0), up, rtol=1e-12)


def test_the_other_classes_enter_by_their_opposite_bounds() -> None:
    """With midpoints of the others the lower bound would be 1 / (1 + 2 sqrt 2), with their own 1 / 3."""
    low, up = made(np.zeros((1, 3)), np.full((1, 3), math.log(2)))
    np.testing.assert_allclose(low, np.full((1, 3), 1 / 5), rtol=1e-14)
    np.testing.assert_allclose(up, np.full((1, 3), 1 / 2), rtol=1e-14)
    low, up = made(np.array([[0.0, 0.0]]), np.log([[4.0, 1.0]]))
    np.testing.assert_allclose(low, [[1 / 2, 1 / 5]], rtol=1e-14)
    np.testing.assert_allclose(up, [[4 / 5, 1 / 2]], rtol=1e-14)


@st.composite
def logit_boxes(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Logits and half-widths on a coarse grid: ties and collapsed intervals are common."""
    c = draw(st.integers(2, 6))
    centre = draw(arrays(np.int64, c, elements=st.integers(-40, 40))) / 4
    half = draw(arrays(np.int64, c, elements=st.integers(0, 20))) / 4
    return centre - half, centre + half


@settings(max_examples=200, deadline=None)
@given(logit_boxes())
def test_interval_softmax_is_reachable(box: tuple[np.ndarray, np.ndarray]) -> None:
    credal = interval_softmax(*map(torch.tensor, box))
    low, up = credal.lower.numpy(), credal.upper.numpy()
    assert (low + (up.sum() - up) >= 1 - 1e-14).all(), "every lower bound leaves room for the others"
    assert (up + (low.sum() - low) <= 1 + 1e-14).all(), "every upper bound leaves enough for the others"
    assert credal.is_reachable()


@settings(max_examples=100, deadline=None)
@given(logit_boxes())
def test_log_version_is_the_logarithm(box: tuple[np.ndarray, np.ndarray]) -> None:
    lower, upper = map(torch.tensor, box)
    credal, logs = interval_softmax(lower, upper), log_interval_softmax(lower, upper)
    for bound, log in zip((credal.lower, credal.upper), logs, strict=True):
        np.testing.assert_allclose(log.numpy(), np.log(bound.numpy()), rtol=1e-12, atol=1e-14)


EXTREMES = {
    "two classes": [1e4, -1e4],
    "two equal": [1e4, 1e4],
    "two equal and small": [-1e4, -1e4],
    "one large": [1e4, -1e4, 0.0, 3.0],
    "one small": [0.0, -1e4, 0.5],
    "largest tied": [1e4, 1e4, -1e4],
    "all large": [1e4, 1e4, 1e4, 1e4],
    "all small": [-1e4, -1e4, -1e4],
    "all zero": [0.0, 0.0, 0.0],
}


@pytest.mark.parametrize("half_width", [0.0, 1.0, 2e4])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("logits", EXTREMES.values(), ids=EXTREMES)
def test_extreme_logits(logits: list[float], dtype: torch.dtype, half_width: float) -> None:
    """Finite, right, with finite gradients, in the space of probabilities and of their logarithms."""
    centre = torch.tensor([logits, logits[::-1]]).to(dtype)
    lower, upper = (centre - half_width).requires_grad_(), (centre + half_width).requires_grad_()
    credal, logs = interval_softmax(lower, upper), log_interval_softmax(lower, upper)
    wide_lower, wide_upper = lower.detach().double(), upper.detach().double()
    for i in range(len(logits)):  # class i at one bound, all others at the other
        alone = torch.arange(len(logits)) == i
        for got, log, values, other in (
            (credal.lower, logs[0], wide_lower, wide_upper),
            (credal.upper, logs[1], wide_upper, wide_lower),
        ):
            expected = torch.log_softmax(torch.where(alone, values, other), dim=-1)[:, i]
            np.testing.assert_allclose(log[:, i].detach().double(), expected, rtol=4 * eps(dtype), atol=4 * eps(dtype))
            np.testing.assert_allclose(got[:, i].detach().double(), expected.exp(), rtol=0, atol=4 * eps(dtype))
    for outputs in ((credal.lower, credal.upper), logs):
        weight = torch.linspace(1, 2, len(logits)).to(dtype)
        for output in outputs:
            for gradient in torch.autograd.grad((weight * output).sum(), (lower, upper), retain_graph=True):
                assert torch.isfinite(gradient).all()


@pytest.mark.parametrize(
    "logits",
    [[[0.3, -1.2]], [[0.5, 0.5]], [[2.0, 0.1, -0.7, 0.4, 1.9]], [[1.0, 1.0, 1.0, -2.0]], [[1e4, 1e4 - 1, -1e4]]],
    ids=["two classes", "two equal", "generic", "ties", "large"],
)
def test_gradients_of_interval_softmax(logits: list[list[float]]) -> None:
    centre = torch.tensor(logits, dtype=torch.float64)
    lower, upper = (centre - 0.25).requires_grad_(), (centre + 0.5).requires_grad_()

    def bounds(low: torch.Tensor, up: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        credal = interval_softmax(low, up)
        return credal.lower, credal.upper

    assert torch.autograd.gradcheck(bounds, (lower, upper))
    assert torch.autograd.gradcheck(log_interval_softmax, (lower, upper))


@pytest.mark.parametrize(
    ("lower", "upper", "words"),
    [
        ([0.0, 0.0, 3.5], [1.0, 1.0, 2.5], "row 1, class 2: lower.* 3.5 > upper.* 2.5"),
        ([0.0, math.nan, 0.0], [1.0, 1.0, 1.0], "row 1, class 1: lower"),
        ([0.0, -math.inf, 0.0], [1.0, 1.0, 1.0], "row 1, class 1: lower"),
        ([0.0, 0.0, 0.0], [math.inf, 1.0, 1.0], "row 1, class 0: upper"),
    ],
)
def test_bad_logits_are_named(lower: list[float], upper: list[float], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        interval_softmax(torch.tensor([[0.0] * 3, lower]), torch.tensor([[1.0] * 3, upper]))


@pytest.mark.parametrize("function", [interval_softmax, log_interval_softmax])
def test_bad_shapes_and_dtypes_of_logits(function: Callable[[torch.Tensor, torch.Tensor], object]) -> None:
    with pytest.raises(ValueError, match=r"\[2, 3\].*\[2, 4\]"):
        function(torch.zeros(2, 3), torch.zeros(2, 4))
    for shape, words in (((), "the last dimension must be the classes"), ((2, 1), "two classes")):
        with pytest.raises(ValueError, match=words):
            function(torch.zeros(shape), torch.zeros(shape))
    with pytest.raises(TypeError, match="int64"):
        function(torch.zeros(2, 3, dtype=torch.int64), torch.ones(2, 3, dtype=torch.int64))
