"""``widen``: the set has the epistemic uncertainty that was asked for, and stays where its midpoints are."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import credalgnn as cg
from credalgnn import IntervalSet, widen
from credalgnn.sets import uncertainty
from oracles import brute_lower_entropy, brute_upper_entropy, naive_interval_softmax

BITS = 1e-8  # to be met by every set
SHARES = [0.0, 1e-9, 1e-7, 1e-3, 0.25, 0.5, 0.9, 0.999, 1.0 - 1e-6]  # of log2 C


def doubles(values: object) -> Tensor:
    return torch.as_tensor(values, dtype=torch.float64)


def epistemic(credal: IntervalSet) -> np.ndarray:
    """Upper less lower entropy, by enumeration and bisection."""
    low, up = credal.lower.numpy(), credal.upper.numpy()
    return brute_upper_entropy(low, up) - brute_lower_entropy(low, up)


@st.composite
def requests(draw: st.DrawFn, most_classes: int = 6) -> tuple[Tensor, Tensor]:
    """A few rows of midpoints, some of them extreme, and what each is to be uncertain by."""
    classes = draw(st.integers(2, most_classes))
    rows = draw(st.integers(1, 4))
    value = st.one_of(st.floats(-3, 3), st.floats(-50, 50), st.sampled_from([-50.0, 50.0, 0.0]), st.floats(-1e-3, 1e-3))
    midpoints = draw(st.lists(st.lists(value, min_size=classes, max_size=classes), min_size=rows, max_size=rows))
    share = st.one_of(st.floats(0, 1 - 1e-6), st.sampled_from(SHARES))
    expected_ = draw(st.lists(share, min_size=rows, max_size=rows))
    return doubles(midpoints), doubles(expected_) * math.log2(classes)


@settings(max_examples=150, deadline=None)
@given(requests())
def test_a_set_is_as_uncertain_as_was_asked(request: tuple[Tensor, Tensor]) -> None:
    midpoints, expected_ = request
    np.testing.assert_allclose(epistemic(widen(midpoints, expected_)), expected_.numpy(), rtol=0, atol=BITS)


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("classes", [2, 3, 9])
def test_midpoints_of_every_size(classes: int, share: float) -> None:
    """From all alike to hundreds apart, as logarithms of tiny probabilities are; many rows at once."""
    generator = torch.Generator().manual_seed(classes)
    parts = []
    for scale in (0.0, 1e-6, 1.0, 10.0, 50.0, 350.0):
        drawn = torch.rand(12, classes, generator=generator, dtype=torch.float64) * 2 - 1
        parts += [scale * drawn, scale * drawn.sign()]
    midpoints = torch.cat(parts)
    expected_ = doubles([share * math.log2(classes)] * len(midpoints))
    np.testing.assert_allclose(epistemic(widen(midpoints, expected_)), expected_.numpy(), rtol=0, atol=BITS)


@pytest.mark.parametrize("spread", [1.0, 50.0])
@pytest.mark.parametrize("classes", [15, 30])
def test_many_classes(classes: int, spread: float) -> None:
    """Too many vertices to enumerate: the upper entropy is checked by bisection, the lower by the package's own."""
    generator = torch.Generator().manual_seed(classes)
    midpoints = spread * torch.randn(60, classes, generator=generator, dtype=torch.float64)
    expected_ = torch.rand(60, generator=generator, dtype=torch.float64) * math.log2(classes)
    credal = widen(midpoints, expected_)
    result = uncertainty(credal)
    torch.testing.assert_close(result.epistemic, expected_, rtol=0, atol=BITS)
    highest = brute_upper_entropy(credal.lower.numpy(), credal.upper.numpy())
    np.testing.assert_allclose(result.total.numpy(), highest, rtol=0, atol=BITS)


def test_it_is_an_interval_softmax_with_one_half_length_a_row() -> None:
    """Recovered from the two bounds of the first class, it gives all the others by Equation 3 as it is printed."""
    midpoints = doubles([[0.3, -1.2, 2.0, 0.1], [5.0, 4.0, -3.0, 0.0]])
    credal = widen(midpoints, doubles([0.7, 1.6]))
    low, high = torch.zeros(2, dtype=torch.float64), torch.full((2,), 50.0, dtype=torch.float64)
    for _ in range(80):
        half = (low + high) / 2
        first = naive_interval_softmax(midpoints - half[:, None], midpoints + half[:, None])[1][:, 0]
        short = torch.from_numpy(first) < credal.upper[:, 0]
        low, high = torch.where(short, half, low), torch.where(short, high, half)
    lower, upper = naive_interval_softmax(midpoints - low[:, None], midpoints + low[:, None])
    np.testing.assert_allclose(credal.lower.numpy(), lower, rtol=0, atol=1e-12)
    np.testing.assert_allclose(credal.upper.numpy(), upper, rtol=0, atol=1e-12)


@settings(max_examples=60, deadline=None)
@given(requests(), st.floats(0, 1))
def test_more_uncertainty_holds_less(request: tuple[Tensor, Tensor], share: float) -> None:
    midpoints, expected_ = request
    apart = expected_ * (1.0 - share) > BITS  # EU is met to a tenth of this
    outer, inner = widen(midpoints[apart], expected_[apart]), widen(midpoints[apart], expected_[apart] * share)
    assert bool((outer.lower <= inner.lower + 1e-15).all())
    assert bool((outer.upper >= inner.upper - 1e-15).all())


@settings(max_examples=100, deadline=None)
@given(requests(most_classes=8))
def test_the_most_probable_class_stays(request: tuple[Tensor, Tensor]) -> None:
    midpoints, expected_ = request
    top = midpoints.sort(-1).values
    clear = (top[:, -1] - top[:, -2] > 1e-4) & (top[:, -1] - top[:, 0] < 30.0)
    credal = widen(midpoints[clear], expected_[clear])
    expected = midpoints[clear].argmax(-1)
    assert torch.equal(credal.lower.argmax(-1), expected)
    assert torch.equal(credal.upper.argmax(-1), expected)
    assert torch.equal(credal.intersection_probability().argmax(-1), expected)
    assert bool(credal.contains(midpoints[clear].softmax(-1)).all())


def test_no_uncertainty_is_the_softmax() -> None:
    midpoints = doubles([[1.0, 2.0, -3.0], [0.0, 0.0, 0.0], [50.0, -50.0, 0.0]])
    credal = widen(midpoints, torch.zeros(3))
    for bound in (credal.lower, credal.upper):
        torch.testing.assert_close(bound, midpoints.softmax(-1), rtol=0, atol=1e-15)


@pytest.mark.parametrize("tiny", [5e-324, 1e-15, 1e-12, 1e-10, 1e-9, 1.1e-9])
def test_hardly_any_uncertainty_is_a_narrow_set(tiny: float) -> None:
    credal = widen(torch.zeros(1, 3), doubles([tiny]))
    assert float(credal.width.max()) < 1e-3
    assert epistemic(credal)[0] < 3e-9


def test_almost_all_uncertainty() -> None:
    """Up to the last number below log2 C."""
    for classes in (2, 3, 7):
        most = math.log2(classes)
        expected_ = doubles([most - 1e-6, most - 1e-9, most - 1e-12, np.nextafter(most, 0)])
        midpoints = doubles([[3.0] + [0.0] * (classes - 1)]).repeat(4, 1)
        credal = widen(midpoints, expected_)
        np.testing.assert_allclose(epistemic(credal), expected_.numpy(), rtol=0, atol=BITS)
        assert torch.equal(credal.upper.argmax(-1), torch.zeros(4, dtype=torch.int64))


def test_rows_do_not_know_of_each_other() -> None:
    generator = torch.Generator().manual_seed(3)
    midpoints = 5 * torch.randn(40, 5, generator=generator, dtype=torch.float64)
    expected_ = torch.rand(40, generator=generator, dtype=torch.float64) * math.log2(5)
    whole = widen(midpoints, expected_)
    order = torch.randperm(40, generator=generator)
    turned = widen(midpoints[order], expected_[order])
    assert torch.equal(turned.lower, whole.lower[order])
    assert torch.equal(turned.upper, whole.upper[order])
    for row in (0, 17):
        alone = widen(midpoints[row : row + 1], expected_[row : row + 1])
        assert torch.equal(alone.lower[0], whole.lower[row])
        assert torch.equal(alone.upper[0], whole.upper[row])


def test_the_order_of_classes_and_a_common_offset_do_not_matter() -> None:
    generator = torch.Generator().manual_seed(4)
    midpoints = 5 * torch.randn(40, 6, generator=generator, dtype=torch.float64)
    expected_ = torch.rand(40, generator=generator, dtype=torch.float64) * math.log2(6)
    whole = widen(midpoints, expected_)
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    for changed, expected in (
        (widen(midpoints[:, order], expected_), (whole.lower[:, order], whole.upper[:, order])),
        (widen(midpoints + 1000.0, expected_), (whole.lower, whole.upper)),
    ):
        torch.testing.assert_close(changed.lower, expected[0], rtol=0, atol=1e-8)
        torch.testing.assert_close(changed.upper, expected[1], rtol=0, atol=1e-8)


def test_single_precision_is_worked_out_in_double() -> None:
    midpoints = torch.tensor([[0.1, 0.7, -2.0], [20.0, 0.0, 3.0]])
    expected_ = torch.tensor([0.3, 1.1])
    credal = widen(midpoints, expected_)
    assert credal.dtype == torch.float64
    assert torch.equal(credal.lower, widen(midpoints.double(), expected_.double()).lower)
    np.testing.assert_allclose(epistemic(credal), expected_.double().numpy(), rtol=0, atol=BITS)
    assert torch.equal(midpoints, torch.tensor([[0.1, 0.7, -2.0], [20.0, 0.0, 3.0]]))


def test_no_rows() -> None:
    for classes in (2, 5):
        credal = widen(torch.zeros(0, classes), torch.zeros(0))
        assert tuple(credal.shape) == (0, classes)


@pytest.mark.parametrize(
    ("midpoints", "wanted", "words"),
    [
        ([[0.0, 0.0]], [1.0], "log2 C"),
        ([[0.0, 0.0]], [-1e-12], "at least 0"),
        ([[0.0, 0.0]], [math.nan], "epistemic"),
        ([[0.0, 0.0]], [math.inf], "epistemic"),
        ([[0.0, math.nan]], [0.5], "nan"),
        ([[0.0, math.inf]], [0.5], r"nan|inf"),
        ([[0.0, 0.0]], [0.5, 0.5], r"epistemic \[N\]"),
        ([[0.0, 0.0]], [[0.5]], r"epistemic \[N\]"),
        ([0.0, 0.0], [0.5, 0.5], "midpoints"),
        ([[0.0]], [0.0], "two classes"),
        ([[], []], [0.0, 0.0], "two classes"),
    ],
    ids=str,
)
def test_bad_requests(midpoints: object, wanted: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        widen(doubles(midpoints), doubles(wanted))


def test_it_is_exported() -> None:
    assert cg.widen is widen
    assert cg.sets.widen is widen
