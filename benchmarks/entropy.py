"""Speed and correctness of upper and lower entropy, ours and what people use instead: ``make bench-entropy``.

One thread, float64, both entropies of every node. Credal sets are interval softmaxes of normal logits; half-widths are
0.5 for every class ("equal") or uniform in 0..1 for each class ("mixed", the harder kind: intervals nest).
"""

import os

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"

import resource
import time
from collections.abc import Callable

import numpy as np
import torch
from scipy.optimize import Bounds, minimize

from credalgnn.sets import HullSet, IntervalSet, interval_softmax, uncertainty

WRONG = 1e-4  # bits
BARS = {3: 4_000_000, 5: 1_500_000, 11: 400_000, 30: 150_000, 100: 30_000}
NODES = {3: 400_000, 5: 200_000, 11: 60_000, 30: 20_000, 100: 4_000}
SLOW_NODES = {3: 60, 5: 50, 11: 30, 30: 12, 100: 4}  # for SciPy, nodes per kind of half-width


def credal_sets(nodes: int, classes: int, std: float, kind: str, seed: int = 0) -> IntervalSet:
    generator = torch.Generator().manual_seed(seed)
    logits = std * torch.randn(nodes, classes, dtype=torch.float64, generator=generator)
    half = torch.full_like(logits, 0.5)
    if kind == "mixed":
        half = torch.rand(nodes, classes, dtype=torch.float64, generator=generator)
    return interval_softmax(logits - half, logits + half)


def best_time(work: Callable[[], object], repeats: int = 5) -> float:
    """The least of a few runs: the machine is shared, and interruptions only ever add."""
    work()
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return min(times)


def entropy(p: np.ndarray) -> float:
    return float(-(p * np.log2(np.maximum(p, 1e-12))).sum())


def entropy_gradient(p: np.ndarray) -> np.ndarray:
    return -np.log2(np.maximum(p, 1e-12)) - 1.0 / np.log(2.0)


def slsqp(lower: np.ndarray, upper: np.ndarray, gradient: bool) -> tuple[np.ndarray, np.ndarray]:
    """Upper and lower entropy by a local solver per sample, from the intersection probability, as people write it."""
    high, low = np.empty(len(lower)), np.empty(len(lower))
    for k, (l, u) in enumerate(zip(lower, upper, strict=True)):
        start = l + (u - l) * (1.0 - l.sum()) / max((u - l).sum(), 1e-12)
        for sign, out in ((-1.0, high), (1.0, low)):
            found = minimize(
                lambda p, sign=sign: sign * entropy(p),
                start,
                jac=(lambda p, sign=sign: sign * entropy_gradient(p)) if gradient else None,
                method="SLSQP",
                bounds=Bounds(l, u),
                constraints={"type": "eq", "fun": lambda p: p.sum() - 1.0}
                | ({"jac": np.ones_like} if gradient else {}),
            )
            out[k] = entropy(np.clip(found.x, l, u))
    return high, low


def greedy(lower: np.ndarray, upper: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The pour: start at the lower bounds and fill classes one after the other, the largest upper bound first for the
    lower entropy, the smallest lower bound first (and no further than the mean) for the upper one."""
    order = np.argsort(-upper, axis=1)
    l, u = np.take_along_axis(lower, order, 1), np.take_along_axis(upper, order, 1)
    low = entropies(_poured(l, u - l))
    order = np.argsort(lower, axis=1)
    l, u = np.take_along_axis(lower, order, 1), np.take_along_axis(upper, order, 1)
    p = _poured(l, np.minimum(u, np.maximum(l, 1.0 / l.shape[1])) - l)
    high = entropies(_poured(p, u - p))
    return high, low


def _poured(start: np.ndarray, room: np.ndarray) -> np.ndarray:
    left = 1.0 - start.sum(1, keepdims=True) - (np.cumsum(room, 1) - room)
    return start + np.clip(left, 0.0, room)


def entropies(p: np.ndarray) -> np.ndarray:
    return -(p * np.log2(np.maximum(p, 1e-300))).sum(1)


def share_wrong(found: tuple[np.ndarray, np.ndarray], truth: tuple[np.ndarray, np.ndarray]) -> float:
    off = [np.abs(a - b[: len(a)]) > WRONG for a, b in zip(found, truth, strict=True)]
    return float(np.mean(off[0] | off[1]))


def compare() -> None:
    print(
        "upper + lower entropy, half-width 0.5, logit std 1; nodes/s, and the share of nodes off by more than 1e-4 bits"
    )
    names = ("ours", "SLSQP", "SLSQP + gradient", "greedy pour")
    print(
        f"{'C':>4s} {'half-widths':12s}"
        + "".join(f"{name:>24s}" for name in names)
        + f"{'ours/SLSQP':>12s}{'bar':>12s}"
    )
    for classes, bar in BARS.items():
        for kind in ("equal", "mixed"):
            credal = credal_sets(NODES[classes], classes, 1.0, kind)
            seconds = best_time(lambda credal=credal: uncertainty(credal))
            exact = uncertainty(credal, certify=True)
            gaps = exact.upper.gap.maximum(exact.lower.gap)
            gap = float(gaps.max())
            truth = exact.total.numpy(), exact.aleatoric.numpy()
            lower, upper = credal.lower.numpy(), credal.upper.numpy()
            speeds, wrong = [NODES[classes] / seconds], [float((gaps > WRONG).double().mean())]
            few = SLOW_NODES[classes]
            for gradient in (False, True):
                begin = time.perf_counter()
                found = slsqp(lower[:few], upper[:few], gradient)
                speeds.append(few / (time.perf_counter() - begin))
                wrong.append(share_wrong(found, truth))
            speeds.append(NODES[classes] / best_time(lambda l=lower, u=upper: greedy(l, u), 3))
            wrong.append(share_wrong(greedy(lower, upper), truth))
            seconds = min(seconds, best_time(lambda credal=credal: uncertainty(credal)))  # noise comes in phases
            speeds[0] = NODES[classes] / seconds
            cells = "".join(f"{speed:>14,.0f} {share:>8.1%} " for speed, share in zip(speeds, wrong, strict=True))
            print(f"{classes:4d} {kind:12s}{cells}{speeds[0] / speeds[1]:12,.0f}{bar:12,d}", flush=True)
            assert gap <= 1e-9, gap


def special() -> None:
    print("\nharder and larger")
    for kind in ("equal", "mixed"):
        credal = credal_sets(2_000, 30, 0.1, kind)
        seconds = best_time(lambda credal=credal: uncertainty(credal), 3)
        gap = uncertainty(credal, certify=True).lower.gap
        print(
            f"near-uniform C=30 (std 0.1), {kind}: {2_000 / seconds:,.0f} nodes/s, proved within 1e-9: "
            f"{float((gap <= 1e-9).double().mean()):.1%}, largest gap {float(gap.max()):.1e}; bar 8,000"
        )
    generator = torch.Generator().manual_seed(0)
    for spread in (1.0, 0.3):
        logits = torch.randn(1, 10_000, 30, dtype=torch.float64, generator=generator)
        noise = torch.randn(10, 10_000, 30, dtype=torch.float64, generator=generator)
        hull = HullSet((logits + spread * noise).softmax(-1))
        seconds = best_time(lambda hull=hull: uncertainty(hull), 3)
        gap = uncertainty(hull, certify=True).upper.gap
        print(
            f"hull C=30, M=10 (spread {spread}): {10_000 / seconds:,.0f} nodes/s, largest gap {float(gap.max()):.1e}; "
            "bar 40,000 and 1e-9"
        )
    begin = time.perf_counter()
    many = credal_sets(3_000_000, 3, 1.0, "mixed")
    made = time.perf_counter()
    uncertainty(many)
    done = time.perf_counter()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"3,000,000 nodes of C=3: sets made and checked in {made - begin:.1f} s, entropies in {done - made:.1f} s, "
        f"peak memory of the process {peak:.1f} GiB"
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    compare()
    special()
