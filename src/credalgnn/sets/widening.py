"""Interval softmax the other way round: how wide intervals must be for a given epistemic uncertainty."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .entropy import uncertainty
from .intervals import IntervalSet, interval_softmax

TOLERANCE = 1e-9  # bits
STEPS = 120  # every other step halves the bracket: 60 halvings leave nothing of any


def widen(midpoints: Tensor, epistemic: Tensor) -> IntervalSet:
    """The interval softmax (Equation 3) around midpoints whose half-length, the same for all classes, gives this EU.

    A set with a larger half-length contains that with a smaller one, so the epistemic uncertainty grows with it: from 0
    at half-length 0 to log2 C, which no finite half-length reaches. It is computed by bracketing (the Illinois variant
    of regula falsi), to 1e-9 bits.

    Args:
        midpoints: Logits ``[N, C]``.
        epistemic: Epistemic uncertainty in bits ``[N]``, at least 0 and below log2 C.
    """
    m, wanted = midpoints.double(), epistemic.double()
    if m.dim() != 2 or wanted.shape != m.shape[:1]:
        raise ValueError(f"midpoints must be [N, C] and epistemic [N], not {list(m.shape)}, {list(wanted.shape)}")
    if m.shape[1] < 2:
        raise ValueError(f"midpoints of shape {list(m.shape)}: it must have two classes or more")
    most = math.log2(m.shape[1])
    if len(m) and not bool(((wanted >= 0.0) & (wanted < most)).all()):
        raise ValueError(f"epistemic uncertainty must be at least 0 bits and below log2 C = {most:.4g}")
    low, low_error = torch.zeros_like(wanted), -wanted
    high = (m.amax(-1) - m.amin(-1)) / 2.0 + 1.0
    high_error = _error(m, high, wanted)
    while bool((high_error < 0.0).any()):  # a few times at most: the rest to log2 C halves with every step or faster
        short = high_error < 0.0
        high = torch.where(short, 2.0 * high, high)
        high_error[short] = _error(m[short], high[short], wanted[short])
    half = low.clone()  # good enough for what is within the tolerance of 0
    open_rows = (wanted > TOLERANCE).nonzero().squeeze(-1)
    weight = torch.zeros_like(wanted)  # which end stayed last time: -1 low, 1 high
    for step in range(STEPS):
        if not len(open_rows):
            break
        lo, hi, f_lo, f_hi = (x[open_rows] for x in (low, high, low_error, high_error))
        cut = (f_lo * hi - f_hi * lo) / (f_lo - f_hi)
        middle = (lo + hi) / 2.0
        at = torch.where((cut > lo) & (cut < hi) & (step % 2 == 0), cut, middle)
        error = _error(m[open_rows], at, wanted[open_rows])
        half[open_rows] = at
        below, stayed = error < 0.0, weight[open_rows]
        low[open_rows], high[open_rows] = torch.where(below, at, lo), torch.where(below, hi, at)
        low_error[open_rows] = torch.where(below, error, torch.where(stayed < 0, f_lo / 2.0, f_lo))
        high_error[open_rows] = torch.where(below, torch.where(stayed > 0, f_hi / 2.0, f_hi), error)
        weight[open_rows] = 2.0 * below.double() - 1.0
        open_rows = open_rows[error.abs() > TOLERANCE]
    return interval_softmax(m - half[:, None], m + half[:, None])


def _error(midpoints: Tensor, half: Tensor, wanted: Tensor) -> Tensor:
    credal = interval_softmax(midpoints - half[:, None], midpoints + half[:, None])
    return uncertainty(credal).epistemic - wanted
