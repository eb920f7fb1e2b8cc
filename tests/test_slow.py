"""Long statistical checks of the solvers: ``make test-slow``."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from credalgnn.sets import HullSet, IntervalSet, interval_softmax, uncertainty
from oracles import brute_lower_entropy, brute_upper_entropy, regimes

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("classes", range(2, 9))
def test_a_million_rows_against_brute_force(classes: int) -> None:
    rng = np.random.default_rng(1000 + classes)
    rows = 0
    while rows < 150_000:
        for lower, upper in regimes(rng, 2_000, classes).values():
            found = uncertainty(IntervalSet(lower, upper), certify=True)
            for optimum, truth in (
                (found.upper, brute_upper_entropy(lower, upper)),
                (found.lower, brute_lower_entropy(lower, upper)),
            ):
                error = np.abs(optimum.entropy.numpy() - truth)
                assert error.max() <= 1e-9
                assert (error <= optimum.gap.numpy() + 1e-14).all()
            rows += len(lower)


@pytest.mark.parametrize("classes", [11, 30, 41, 100])
@pytest.mark.parametrize("half", [0.05, 0.2, 0.4, 0.7, 1.0, 2.0])
@pytest.mark.parametrize("spread", [0.0, 0.03, 0.1, 0.3, 1.0])
def test_every_row_of_std_a_tenth_is_proved(classes: int, half: float, spread: float) -> None:
    """Half-widths from equal to as unequal as can be; those in between are the hardest."""
    generator = torch.Generator().manual_seed(classes)
    logits = 0.1 * torch.randn(100, classes, dtype=torch.float64, generator=generator)
    halves = half * (1 + spread * (2 * torch.rand(100, classes, dtype=torch.float64, generator=generator) - 1))
    found = uncertainty(interval_softmax(logits - halves, logits + halves), certify=True)
    assert found.lower.gap.max() <= 1e-9
    assert found.upper.gap.max() <= 1e-9


@pytest.mark.parametrize("classes", [6, 11, 30])
@pytest.mark.parametrize("std", [0.01, 0.1, 1.0])
def test_both_backends_agree(classes: int, std: float) -> None:
    generator = torch.Generator().manual_seed(classes)
    logits = std * torch.randn(50, classes, dtype=torch.float64, generator=generator)
    halves = torch.rand(50, classes, dtype=torch.float64, generator=generator)
    credal = interval_softmax(logits - halves, logits + halves)
    one, two = (uncertainty(credal, certify=True, backend=backend) for backend in ("numba", "torch"))
    slack = one.lower.gap + two.lower.gap
    assert ((one.aleatoric - two.aleatoric).abs() <= slack).all()
    assert slack.max() <= 1e-9
    assert torch.allclose(one.total, two.total, rtol=0, atol=1e-11)


@pytest.mark.parametrize("members", [2, 10, 100])
@pytest.mark.parametrize("classes", [2, 5, 30])
@pytest.mark.parametrize("std", [0.1, 1.0, 5.0])
def test_every_hull_is_proved(members: int, classes: int, std: float) -> None:
    generator = torch.Generator().manual_seed(members)
    hull = HullSet((std * torch.randn(members, 500, classes, dtype=torch.float64, generator=generator)).softmax(-1))
    assert uncertainty(hull, certify=True).upper.gap.max() <= 1e-9
