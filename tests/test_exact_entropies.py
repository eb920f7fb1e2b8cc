"""Entropies of sets of every dtype against enumeration, as hypothesis draws them; test_slow_entropy has 200,000."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from credalgnn.sets import HullSet, IntervalSet
from exact import DTYPES, hull_violations, interval_violations


@st.composite
def counts(draw: st.DrawFn, rows: int) -> np.ndarray:
    """Distributions [rows, C] as small counts over their sum: zeros, ties and repetitions are common."""
    classes = draw(st.integers(2, 6))
    drawn = draw(arrays(np.int64, (rows, classes), elements=st.integers(0, 9)))
    drawn[drawn.sum(1) == 0] = 1
    return drawn / drawn.sum(1, keepdims=True)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(counts(4), st.sampled_from(DTYPES))
def test_intervals_of_every_dtype(members: np.ndarray, dtype: torch.dtype) -> None:
    """Bounds of some distributions: two of them, three, all."""
    for count in (1, 2, 4):
        lower, upper = members[:count].min(0)[None], members[:count].max(0)[None]
        assert interval_violations(lower, upper, dtype) == 0


@settings(max_examples=60, deadline=None, derandomize=True)
@given(counts(5), st.sampled_from(DTYPES))
def test_hulls_of_every_dtype(members: np.ndarray, dtype: torch.dtype) -> None:
    assert hull_violations(members[:, None], dtype) == 0


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.uint8])
def test_whole_numbers_are_refused(dtype: torch.dtype) -> None:
    ones = torch.ones(1, 3, dtype=dtype)
    for make in (lambda: IntervalSet(ones, ones), lambda: HullSet(ones[None])):
        with pytest.raises(TypeError, match="floating-point"):
            make()
