"""Credal sets of three classes drawn inside the triangle of all distributions, as in Figure 1 of the paper."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..sets import HullSet, IntervalSet, uncertainty

SET_COLOUR, HIGH_COLOUR, LOW_COLOUR = "#2166ac", "#b2182b", "#1b7837"


def plot_ternary(credal: IntervalSet | HullSet, ax: Any, classes: Sequence[str] = ("A", "B", "C")) -> None:
    """Draw one credal set of three classes on a ternary axis (``projection="ternary"``, from mpltern).

    Grey bands are the entropy, darker where it is larger. The filled polygon is the set; the marks are the
    distributions of largest (diamond) and smallest (circle) entropy in it.

    Args:
        credal: A batch of one.
        ax: The axis.
        classes: Names of the classes: at the top, left, right.
    """
    if tuple(credal.shape) not in {(3,), (1, 3)}:
        raise ValueError(f"plot_ternary draws one set of three classes; this one has shape {list(credal.shape)}")
    if not hasattr(ax, "set_tlabel"):
        raise TypeError("ax is not ternary: import mpltern, and make it with add_subplot(projection='ternary')")
    top, left, right = _grid(120)
    weights = np.stack([top, left, right])
    entropy = -(weights * np.log2(np.maximum(weights, 1e-300))).sum(0)
    ax.tricontourf(top, left, right, entropy, levels=np.linspace(0.0, 1.6, 17), cmap="Greys", alpha=0.45)
    corners = _corners(credal)
    ax.fill(*corners.T, facecolor=SET_COLOUR, edgecolor=SET_COLOUR, alpha=0.45, linewidth=1.5)
    ax.plot(*corners[[*range(len(corners)), 0]].T, color=SET_COLOUR, linewidth=1.5)
    result = uncertainty(credal, certify=True)
    for optimum, marker, colour in ((result.upper, "D", HIGH_COLOUR), (result.lower, "o", LOW_COLOUR)):
        point = optimum.distribution.detach().double().reshape(3, 1).numpy()
        ax.plot(*point, marker=marker, color=colour, markersize=5, linestyle="none", clip_on=False, zorder=5)
    for name, place in zip(classes, ("set_tlabel", "set_llabel", "set_rlabel"), strict=True):
        getattr(ax, place)(name)
    for axis in ("taxis", "laxis", "raxis"):
        getattr(ax, axis).set_ticks([])


def _grid(steps: int) -> tuple[NDArray[np.float64], ...]:
    """An even grid over the triangle."""
    i, j = np.meshgrid(np.arange(steps + 1), np.arange(steps + 1), indexing="ij")
    inside = i + j <= steps
    top, left = i[inside] / steps, j[inside] / steps
    return top, left, np.maximum(1.0 - top - left, 0.0)


def _corners(credal: IntervalSet | HullSet) -> NDArray[np.float64]:
    """The corners of the set's polygon [V, 3], in order around their middle."""
    if isinstance(credal, HullSet):
        points: NDArray[np.float64] = credal.members.detach().double().reshape(-1, 3).numpy()
    else:
        exact = credal.to(torch.float64)
        low, up = (bound.detach().reshape(3).numpy() for bound in (exact.lower, exact.upper))
        result = []
        for free in range(3):
            a, b = (free + 1) % 3, (free + 2) % 3
            for x in (low[a], up[a]):
                for y in (low[b], up[b]):
                    rest = 1.0 - x - y
                    if low[free] - 1e-9 <= rest <= up[free] + 1e-9:
                        point = np.empty(3)
                        point[[free, a, b]] = rest, x, y
                        result.append(point)
        points = np.array(result)
    flat = points @ np.array([[0.5, np.sqrt(0.75)], [0.0, 0.0], [1.0, 0.0]])
    if len(points) > 2 and np.linalg.matrix_rank(flat - flat.mean(0), tol=1e-9) == 2:
        from scipy.spatial import ConvexHull

        points = points[ConvexHull(flat).vertices]
    return points
