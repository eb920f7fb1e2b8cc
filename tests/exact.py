"""Entropies of credal sets of any dtype against enumeration: how many are further off than rounding explains.

What a set of a narrow dtype is, is the float64 set of the same numbers, scaled where their sums miss 1 by rounding.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from credalgnn.sets import HullSet, IntervalSet, uncertainty, upper_entropy
from oracles import brute_lower_entropy, brute_upper_entropy, entropy, hull_lower_entropy

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
PROVED = 1e-9  # bits: what the solvers promise
Array = NDArray[np.float64]


def interval_violations(lower: Array, upper: Array, dtype: torch.dtype) -> int:
    """Interval sets [N, C] whose upper or lower entropy is not that of enumeration.

    Args:
        lower: Lower probabilities.
        upper: Upper probabilities.
        dtype: What they are rounded to before.
    """
    credal = IntervalSet(torch.from_numpy(lower).to(dtype), torch.from_numpy(upper).to(dtype))
    low, up = credal.lower.double().numpy(), credal.upper.double().numpy()
    low = low / np.maximum(low.sum(-1, keepdims=True), 1.0)
    up = up / np.minimum(up.sum(-1, keepdims=True), 1.0)
    result = uncertainty(credal, certify=True)
    wrong = _differ(result.upper.entropy, brute_upper_entropy(low, up), dtype)
    wrong |= _differ(result.lower.entropy, brute_lower_entropy(low, up), dtype)
    wrong |= (torch.maximum(result.upper.gap, result.lower.gap) > PROVED).numpy()
    return int((wrong | (result.epistemic < 0).numpy()).sum())


def hull_violations(members: Array, dtype: torch.dtype) -> int:
    """Hulls [M, N, C] whose entropies are not those of their members, or that another mixture exceeds.

    The upper entropy needs no solver to be checked: entropy is concave, so over a hull it is at most the largest
    cross-entropy of a member and any one distribution, and equal to it at the right one.

    Args:
        members: Distributions.
        dtype: What they are rounded to before.
    """
    hull = HullSet(torch.from_numpy(members).to(dtype))
    exact = hull.members.double()
    exact = exact / exact.sum(-1, keepdim=True)
    best = upper_entropy(HullSet(exact), certify=True)
    q = best.distribution.numpy()
    with np.errstate(divide="ignore", invalid="ignore"):
        costs = np.where(exact.numpy() > 0, -exact.numpy() * np.log2(np.maximum(q, 1e-300)), 0.0).sum(-1)
    at_most, value = costs.max(0), entropy(q)
    wrong = (np.abs(value - best.entropy.numpy()) > PROVED) | (at_most - value > 2 * PROVED)
    result = uncertainty(hull, certify=True)
    wrong |= _differ(result.upper.entropy, best.entropy.numpy(), dtype)
    wrong |= _differ(result.lower.entropy, hull_lower_entropy(exact.numpy()), dtype)
    return int((wrong | (result.epistemic < 0).numpy()).sum())


def _differ(got: torch.Tensor, truth: Array, dtype: torch.dtype) -> NDArray[np.bool_]:
    """Where an entropy is not the truth, rounded once; numbers next to 0 have fewer digits in half precision."""
    half_ulp = torch.finfo(dtype).eps / 2
    allowed = 1.01 * half_ulp * np.abs(truth) + (1e-7 if half_ulp > 1e-5 else PROVED)
    return np.abs(got.double().numpy() - truth) > allowed
