"""Numba kernel for the upper entropy of convex hulls: active-set Newton on the weights, row by row.

Maximise H(q), q = sum_m w_m p_m, over weights w >= 0 that sum to 1. The gradient with respect to w_m is the cross
entropy CE(p_m, q) less a constant, and for any q the upper entropy is at most max_m CE(p_m, q): the gap reported.
"""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np
from numba import njit
from numpy.typing import NDArray

from ..runtime.compiling import INNER, announce, kernel

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]

BITS = 1.0 / math.log(2.0)
TINY = 1e-300
ZERO: int = np.zeros(1, np.int64)[0]  # numba types a literal 0 separately, see _numba.py

FAST = {"reassoc", "contract"}  # sums may be taken in any order, which lets them use vector instructions

entry = kernel(error_model="numpy", fastmath=FAST)
jit = njit(error_model="numpy", fastmath=FAST, **INNER)

CLOSE = 1e-11  # bits: good enough to stop
FLAT = 1e-14  # bits: differences of entropies below this are rounding
LIGHT = 1e-15  # a smaller weight is none
SHY = 1e-3  # Newton's first weight for an entering member below which its model is not trusted
STEPS = 500
PATIENCE = 20  # steps without a smaller gap before giving up
RIDGE = 1e-13  # relative; makes the curvature of repeated members invertible


@jit
def _mix(members: Floats, r: int, weights: Floats, q: Floats, log_q: Floats) -> float:
    """Compute the mixture q, its logarithm in bits, and its entropy."""
    m, n = members.shape[1], members.shape[2]
    entropy = 0.0
    for c in range(n):
        q[c] = 0.0
    for k in range(m):
        if weights[k] > 0.0:
            for c in range(n):
                q[c] += weights[k] * members[r, k, c]
    for c in range(n):
        log_q[c] = math.log2(max(q[c], TINY))
        entropy -= q[c] * log_q[c]
    return entropy


@jit
def _direction(
    members: Floats,
    r: int,
    active: Ints,
    size: int,
    q: Floats,
    slope: Floats,
    ratio: Floats,
    matrix: Floats,
    move: Floats,
) -> None:
    """Newton direction on the active weights that keeps their sum, written to ``move``."""
    n = members.shape[2]
    for a in range(size):
        for c in range(n):
            ratio[c] = members[r, active[a], c] / max(q[c], TINY) * BITS
        for b in range(a + 1):
            total = 0.0
            for c in range(n):
                total += ratio[c] * members[r, active[b], c]
            matrix[a, b] = total
    for a in range(size):  # Cholesky in place
        ridge = RIDGE * matrix[a, a]
        matrix[a, a] += ridge
        for b in range(a + 1):
            total = matrix[a, b]
            for c in range(b):
                total -= matrix[a, c] * matrix[b, c]
            matrix[a, b] = math.sqrt(max(total, ridge)) if a == b else total / matrix[b, b]
    for column in range(2):  # K y = slope, K y = 1
        for a in range(size):
            total = slope[active[a]] if column == 0 else 1.0
            for c in range(a):
                total -= matrix[a, c] * move[column, c]
            move[column, a] = total / matrix[a, a]
        for a in range(size - 1, -1, -1):
            total = move[column, a]
            for c in range(a + 1, size):
                total -= matrix[c, a] * move[column, c]
            move[column, a] = total / matrix[a, a]
    level = 0.0
    for column in range(2):
        total = 0.0
        for a in range(size):
            total += move[column, a]
        level = total if column == 0 else level / total
    for a in range(size):
        move[0, a] -= level * move[1, a]


@jit
def _slopes(members: Floats, r: int, log_q: Floats, slope: Floats) -> int:
    """Cross entropy of every member with q, in bits; returns the member with the largest."""
    worst = 0
    for k in range(members.shape[1]):
        total = 0.0
        for c in range(members.shape[2]):
            total -= members[r, k, c] * log_q[c]
        slope[k] = total
        if total > slope[worst]:
            worst = k
    return worst


@jit
def _blocker(w: Floats, active: Ints, size: int, move: Floats) -> int:
    """Active weight that reaches zero first along ``move``, within a whole step; -1 if none does."""
    first = -1
    for a in range(size):
        falls = w[active[a]] + move[0, a] < 0.0
        if falls and (first < 0 or w[active[a]] * move[0, first] > w[active[first]] * move[0, a]):
            first = a
    return first


@jit
def _step(w: Floats, active: Ints, size: int, move: Floats, length: float, trial: Floats) -> None:
    """Weights after a step of the given length; those that end at zero or rounding above it are dropped."""
    total = 0.0
    for k in range(w.shape[0]):
        trial[k] = 0.0
    for a in range(size):
        k = active[a]
        weight = w[k] + length * move[0, a]
        trial[k] = weight if weight > LIGHT else 0.0
        total += trial[k]
    for a in range(size):
        trial[active[a]] /= total


@entry
def hull_entropies(members: Floats, value: Floats, gap: Floats, weights: Floats) -> None:
    """Upper entropy of each row of members [N, M, C], its certified gap, and the weights [N, M] that attain it."""
    rows, m, n = members.shape
    q, log_q, ratio = np.empty(n), np.empty(n), np.empty(n)
    slope, trial, w = np.empty(m), np.empty(m), np.empty(m)
    active, matrix, move = np.empty(m, np.int64), np.empty((m, m)), np.empty((2, m))
    for r in range(rows):
        for k in range(m):
            w[k] = 1.0 / m
        entropy = _mix(members, r, w, q, log_q)
        gap[r], value[r] = np.inf, entropy
        stalled = 0
        for _ in range(STEPS):
            worst = _slopes(members, r, log_q, slope)
            excess = max(slope[worst] - entropy, 0.0)
            stalled = stalled + 1 if excess >= gap[r] and entropy <= value[r] + FLAT else 0
            if excess < gap[r]:
                gap[r], value[r] = excess, entropy
                for k in range(m):
                    weights[r, k] = w[k]
            if excess <= CLOSE or stalled == PATIENCE:
                break
            size = entering = ZERO
            for k in range(m):
                if w[k] > 0.0 or k == worst:
                    if k == worst:
                        entering = size
                    active[size] = k
                    size += 1
            _direction(members, r, active, size, q, slope, ratio, matrix, move)
            blocker = _blocker(w, active, size, move)
            # Towards an entering member that Newton would send off again, or that brings classes hardly in q (where the
            # quadratic model is good for tiny steps only), go straight.
            if (blocker >= 0 and w[active[blocker]] == 0.0) or (w[worst] == 0.0 and move[0, entering] < SHY):
                for a in range(size):
                    move[0, a] = (1.0 if active[a] == worst else 0.0) - w[active[a]]
                blocker = -1
            climb = 0.0  # first-order gain of a whole step
            for a in range(size):
                climb += slope[active[a]] * move[0, a]
            # First the whole step, dropping every weight it would make negative; then only as far as the first of them.
            length = 1.0
            _step(w, active, size, move, length, trial)
            higher = _mix(members, r, trial, q, log_q)
            if higher < entropy + 0.25 * climb - FLAT:
                if blocker >= 0:
                    length = min(1.0, -w[active[blocker]] / move[0, blocker])
                    _step(w, active, size, move, length, trial)
                    higher = _mix(members, r, trial, q, log_q)
                while higher < entropy + 0.1 * length * climb - FLAT and length > 1e-15:
                    length *= 0.5
                    _step(w, active, size, move, length, trial)
                    higher = _mix(members, r, trial, q, log_q)
            entropy = higher
            for k in range(m):
                w[k] = trial[k]


announce(hull_entropies, "the solver for hulls (about 2 s)")
