"""The exact entropies keep their record: 200,000 random sets of every dtype against enumeration."""

from __future__ import annotations

import numpy as np
import pytest

from exact import DTYPES, hull_violations, interval_violations
from oracles import regimes

INTERVALS, HULLS = 150_000, 50_000


@pytest.mark.slow
def test_200_000_random_sets_against_enumeration(capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(16)
    counts = {}
    for dtype in DTYPES:
        sets = wrong = 0
        while sets < INTERVALS // len(DTYPES):
            for lower, upper in regimes(rng, 200, int(rng.integers(2, 9))).values():
                wrong += interval_violations(lower, upper, dtype)
                sets += len(lower)
        counts[f"intervals {dtype}"] = sets, wrong
        sets = wrong = 0
        while sets < HULLS // len(DTYPES):
            size, classes = int(rng.integers(2, 9)), int(rng.integers(2, 9))
            concentration = rng.choice([0.1, 1.0, 10.0])
            wrong += hull_violations(rng.dirichlet(np.full(classes, concentration), (size, 500)), dtype)
            sets += 500
        counts[f"hulls {dtype}"] = sets, wrong
    with capsys.disabled():
        print()
        for name, (sets, wrong) in counts.items():
            print(f"{name}: {sets:,} sets, {wrong} violations")
    assert sum(sets for sets, _ in counts.values()) >= INTERVALS + HULLS
    assert not any(wrong for _, wrong in counts.values())
