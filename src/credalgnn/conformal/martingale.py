"""Conformal test martingale for distribution shift, valid at any stopping time.

Every new node is compared with all nodes before it, calibration nodes first: its smoothed p-value is the share of
scores above its score, with ties (its own score among them) broken at random. As long as all nodes are exchangeable
these p-values are independent and exactly uniform (Vovk, Gammerman and Shafer, 2005), so no bet on them has a positive
expected gain. The test bets that they are small: its capital is multiplied by 1 - w + w e p^(e - 1) at each p-value p.
The capital starts at 1, in equal parts for several stakes w and exponents e below 1, which suit a shift of all nodes
(w = 1) or a few OOD nodes among many unchanged ones (w small: little is lost on these). Of each part 1 / (b (b + 1)) is
put in at batch b, so that a drift after a long quiet time meets capital that was not lost before. The sum of all is a
martingale with mean 1: by Ville's inequality it ever reaches 1 / alpha with probability at most alpha. All bets
decrease in p, so p-values that are larger than uniform ones make alarms rarer and never more frequent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

Array: TypeAlias = NDArray[np.float64]
BETS = ((1.0, 0.6), (1.0, 0.8), (1.0, 0.92), (0.3, 0.4), (0.3, 0.2), (0.1, 0.2), (0.1, 0.1), (0.03, 0.1))  # (w, e)
STAKES, EXPONENTS = np.array(BETS).T
CHUNK = 100_000  # nodes of a batch whose gains are held at a time
FORMAT = 1  # of the stored state


@dataclass(frozen=True)
class BatchResult:
    """Result of one batch.

    Args:
        batch: Number of the batch, from 1.
        nodes: Number of its nodes.
        mean_p: Mean of its p-values: 0.5 where nothing changes, less where scores are higher than before; NaN if the
            batch is empty.
        log_evidence: Natural logarithm of the evidence against exchangeability after the batch.
        log_highest: Highest evidence so far, also within batches; it decides the alarm.
        alarm: True once the evidence has reached 1 / false_alarms; it stays raised.
    """

    batch: int
    nodes: int
    mean_p: float
    log_evidence: float
    log_highest: float
    alarm: bool


class ExchangeabilityTest:
    """Test for drift that raises an alarm when the scores of new batches are higher than chance allows.

    If all new nodes are exchangeable with the calibration nodes, the probability of *ever* raising an alarm is at most
    ``false_alarms``, however many batches are tested. Scores of calibration nodes and of later nodes must be computed
    in the same way. Nodes of a batch are processed in a random order.

    Args:
        calibration: Scores of the calibration nodes ``[n]``, higher where a node is less familiar.
        seed: Seed of the order of nodes in a batch and of the breaking of ties, default 0.
        false_alarms: Probability of a false alarm over all time, above 0 and below 1, default 0.01.

    Example:
        >>> test = ExchangeabilityTest(torch.rand(200))
        >>> test.update(torch.rand(50)).alarm
        False
    """

    def __init__(self, calibration: Tensor | Array, seed: int = 0, false_alarms: float = 0.01) -> None:
        if not 0.0 < false_alarms < 1.0:
            raise ValueError(f"false_alarms must be above 0 and below 1, not {false_alarms}")
        if seed < 0:
            raise ValueError(f"seed must be 0 or more, not {seed}")
        self._bag = np.sort(_numbers("calibration", calibration))
        if not len(self._bag):
            raise ValueError("calibration is empty: pass the scores of at least one calibration node")
        self.seed = seed
        self.false_alarms = false_alarms
        self.batches = 0
        self._log_capital = np.full(len(EXPONENTS), -np.inf)  # capital at stake, per bet
        self._log_highest = 0.0

    @property
    def alarm(self) -> bool:
        """True once an alarm has been raised."""
        return self._log_highest >= -math.log(self.false_alarms)

    @property
    def log_evidence(self) -> float:
        """Natural logarithm of the capital, including the reserve for later batches."""
        reserve = -math.log(self.batches + 1.0)
        return float(np.logaddexp(_log_mean(self._log_capital), reserve))

    def update(self, scores: Tensor | Array) -> BatchResult:
        """Process the next batch.

        Args:
            scores: Scores of its nodes ``[m]``, higher where a node is less familiar.
        """
        values = _numbers("scores", scores)
        random = np.random.default_rng([self.seed, self.batches])
        p = self._p_values(random.permutation(values), random)
        self.batches += 1
        entering = -math.log(self.batches * (self.batches + 1.0))
        self._log_capital = np.logaddexp(self._log_capital, entering)
        for first in range(0, max(1, len(p)), CHUNK):
            chunk = p[first : first + CHUNK, None]
            gains = np.log1p(STAKES * (EXPONENTS * chunk ** (EXPONENTS - 1.0) - 1.0))
            path = self._log_capital + np.vstack([np.zeros_like(self._log_capital), gains.cumsum(0)])
            self._log_capital = path[-1]
            along = np.logaddexp(_log_mean(path), -math.log(self.batches + 1.0))
            self._log_highest = max(self._log_highest, float(along.max()))
        self._bag = np.sort(np.concatenate([self._bag, values]), kind="stable")
        mean = float(p.mean()) if len(p) else math.nan
        return BatchResult(self.batches, len(p), mean, self.log_evidence, self._log_highest, self.alarm)

    def _p_values(self, values: Array, random: np.random.Generator) -> Array:
        """Smoothed p-values, each value compared with the bag and with the values before it."""
        above = len(self._bag) - np.searchsorted(self._bag, values, side="right")
        level = len(self._bag) - np.searchsorted(self._bag, values, side="left") - above
        higher, equal = _among_earlier(values)
        before = len(self._bag) + np.arange(1, len(values) + 1)
        share = 1.0 - random.random(len(values))  # in (0, 1]: no p-value is 0
        p: Array = (above + higher + share * (level + equal + 1)) / before
        return p

    def state(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Return the state of the test: values that JSON can hold, and arrays."""
        values = {
            "format": FORMAT,
            "seed": self.seed,
            "false_alarms": self.false_alarms,
            "batches": self.batches,
            "log_highest": self._log_highest,
        }
        return values, {"bag": self._bag.copy(), "log_capital": self._log_capital.copy()}

    @classmethod
    def from_state(cls, values: Mapping[str, Any], arrays: Mapping[str, Array]) -> Self:
        """Restore a test from the result of ``state``.

        Args:
            values: Plain values.
            arrays: Arrays.
        """
        if values.get("format") != FORMAT:
            raise ValueError(
                f"state has format {values.get('format')}, not {FORMAT}: another version wrote it; start a new test"
            )
        test = cls(np.asarray(arrays["bag"]), values["seed"], values["false_alarms"])
        test.batches, test._log_highest = int(values["batches"]), float(values["log_highest"])
        capital = np.array(arrays["log_capital"], dtype=np.float64)
        if capital.shape != EXPONENTS.shape:
            raise ValueError(
                f"state has {capital.size} capitals, not {EXPONENTS.size}: it is damaged; start a new test"
            )
        test._log_capital = capital
        return test


def _among_earlier(values: Array) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Count the values before each one that are higher, and those that are equal.

    Merges blocks of 1, 2, 4, ... values: each value of a right block looks itself up in the sorted left one, for all
    pairs of blocks at once.
    """
    count = len(values)
    higher, equal = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    rank = np.unique(values, return_inverse=True)[1].astype(np.int64)
    place = np.arange(count)
    size = 1
    while size < count:
        pair = place // (2 * size)
        key = pair * count + rank  # sorts by pair of blocks, then by value
        is_right = place // size % 2 == 1
        left = np.sort(key[~is_right])
        end = (pair[is_right] + 1) * size  # left blocks that have a right one are full
        first, last = (np.searchsorted(left, key[is_right], side=side) for side in ("left", "right"))
        higher[is_right] += end - last
        equal[is_right] += last - first
        size *= 2
    return higher, equal


def _log_mean(logs: Array) -> Array:
    """Logarithm of the mean over the last axis, of logarithms that may all be -inf."""
    top = logs.max(-1, keepdims=True)
    finite = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        result: Array = finite[..., 0] + np.log(np.exp(logs - finite).mean(-1))
    return result


def _numbers(name: str, values: Tensor | Array) -> Array:
    """Convert to float64 ``[n]`` without NaN."""
    on_cpu = values.detach().cpu().numpy() if isinstance(values, Tensor) else values
    numbers = np.asarray(on_cpu, dtype=np.float64)
    if numbers.ndim != 1:
        raise ValueError(f"{name} must hold one number per node, not shape {list(numbers.shape)}")
    bad = np.flatnonzero(np.isnan(numbers))
    if len(bad):
        raise ValueError(f"{name}: number {bad[0]} is NaN")
    return numbers
