"""Drawings: SVG as text, which needs no other package, and ternary plots by matplotlib and mpltern."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..sets import HullSet, IntervalSet, uncertainty

_STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#1b1f24}.axis{stroke:#8a919c}.line{stroke:#0b62b8;fill:none;"
    "stroke-width:2}.alarm{stroke:#b3261e;stroke-dasharray:6 4}.bar{fill:#0b62b8}.over{fill:#b3261e}"
    ".right{fill:#0b62b8}.wrong{fill:#d55e00}"
    "@media(prefers-color-scheme:dark){svg{background:#14171b}text{fill:#e6e9ee}.line{stroke:#7db7ff}.bar{fill:#7db7ff}"
    ".alarm{stroke:#ff8a80}.over{fill:#ff8a80}}"
)
SET_COLOUR, HIGH_COLOUR, LOW_COLOUR = "#2166ac", "#b2182b", "#1b7837"


class Svg:
    """SVG drawing with a light and a dark scheme.

    Args:
        width: Width in pixels.
        height: Height in pixels.
        label: Description for screen readers.
    """

    def __init__(self, width: float, height: float, label: str) -> None:
        self._parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" role="img" '
            f'aria-label="{html.escape(label)}">',
            f"<style>{_STYLE}</style>",
        ]

    def add(self, tag: str, style: str = "", content: str = "", **attributes: float | str) -> None:
        """Add an element.

        Args:
            tag: Its tag.
            style: Its class.
            content: Its text.
            attributes: Its attributes, with ``_`` for ``-``.
        """
        named = {"class": style, **attributes} if style else attributes
        texts = (
            f' {name.replace("_", "-")}="{f"{value:.1f}" if isinstance(value, float) else html.escape(str(value))}"'
            for name, value in named.items()
        )
        self._parts.append(f"<{tag}{''.join(texts)}>{html.escape(content)}</{tag}>")

    def render(self) -> str:
        return "\n".join([*self._parts, "</svg>", ""])


def evidence_chart(evidence: Sequence[float], small: Sequence[float], alarm: float) -> str:
    """Draw the evidence for a shift by batch, and below it the share of small p-values, as SVG.

    Args:
        evidence: Logarithm to base 10 of the evidence after each batch.
        small: Share of p-values of at most 0.05 in each batch.
        alarm: Logarithm to base 10 of the evidence that raises the alarm.
    """
    low, high, most = min(-1.0, *evidence), max(alarm + 1.0, *evidence), max(0.2, *small)
    left, right, top, bottom, base, count = 70, 740, 40, 260, 410, len(evidence)
    step = (right - left) / count

    def x(batch: float) -> float:
        return left + step * (batch + 0.5)

    def y(value: float) -> float:
        return top + (bottom - top) * (high - value) / (high - low)

    def share(value: float) -> float:
        return base - 100.0 * value / most

    svg = Svg(760, 450, "Evidence for a distribution shift, batch by batch")
    svg.add("text", x=left, y=20, content="Evidence for a shift (alarm at the dashed line)")
    for power in range(int(low), int(high) + 1, max(1, round((high - low) / 6))):
        name = f"{10**power:,}" if 0 <= power <= 4 else f"1e{power}"
        svg.add("text", x=left - 8, y=y(power) + 4, text_anchor="end", content=name)
        svg.add("line", "axis", x1=left, x2=left + 4, y1=y(power), y2=y(power))
    svg.add("line", "alarm", x1=left, x2=right, y1=y(alarm), y2=y(alarm))
    svg.add("polyline", "line", points=" ".join(f"{x(k):.1f},{y(value):.1f}" for k, value in enumerate(evidence)))
    for k, value in enumerate(evidence if count <= 60 else ()):
        svg.add("circle", "bar", cx=x(k), cy=y(value), r=3)
    svg.add("text", x=left, y=298, content="Share of nodes with a p-value up to 0.05 (expected: 5 %)")
    width = max(1.0, 0.7 * step)
    for k, value in enumerate(small):
        bar = "over" if value > 0.1 else "bar"
        svg.add("rect", bar, x=x(k) - width / 2, y=share(value), width=width, height=base - share(value))
    svg.add("line", "alarm", x1=left, x2=right, y1=share(0.05), y2=share(0.05))
    svg.add("line", "axis", x1=left, x2=right, y1=base, y2=base)
    for k in range(0, count, max(1, count // 10)):
        svg.add("text", x=x(k), y=base + 18, text_anchor="middle", content=str(k + 1))
    svg.add("text", x=(left + right) / 2, y=base + 36, text_anchor="middle", content="batch")
    return svg.render()


def plot_ternary(credal: IntervalSet | HullSet, ax: Any, classes: Sequence[str] = ("A", "B", "C")) -> None:
    """Draw one credal set of three classes on a ternary axis (``projection="ternary"``, from mpltern).

    Grey bands show the entropy, darker where it is larger. The filled polygon is the set; the marks are the
    distributions of largest (diamond) and smallest (circle) entropy in it.

    Args:
        credal: A batch of one set.
        ax: The axis.
        classes: Names of the classes at the top, left and right corner.

    Example:
        >>> ax = plt.figure().add_subplot(projection="ternary")
        >>> plot_ternary(IntervalSet(torch.tensor([0.1, 0.2, 0.1]), torch.tensor([0.5, 0.6, 0.7])), ax)
    """
    if tuple(credal.shape) not in {(3,), (1, 3)}:
        raise ValueError(f"plot_ternary draws one set of three classes; this one has the shape {list(credal.shape)}")
    if not hasattr(ax, "set_tlabel"):
        raise TypeError("ax is not ternary: import mpltern, and make ax with add_subplot(projection='ternary')")
    top, left, right = _grid(120)
    weights = np.stack([top, left, right])
    entropy = -(weights * np.log2(np.maximum(weights, 1e-300))).sum(0)
    ax.tricontourf(top, left, right, entropy, levels=np.linspace(0.0, 1.6, 17), cmap="Greys", alpha=0.45)
    corners = _corners(credal)
    ax.fill(*corners.T, facecolor=SET_COLOUR, edgecolor=SET_COLOUR, alpha=0.45, linewidth=1.5)
    ax.plot(*corners[[*range(len(corners)), 0]].T, color=SET_COLOUR, linewidth=1.5)
    entropies = uncertainty(credal, certify=True)
    for optimum, marker, colour in ((entropies.upper, "D", HIGH_COLOUR), (entropies.lower, "o", LOW_COLOUR)):
        point = optimum.distribution.detach().double().reshape(3, 1).numpy()
        ax.plot(*point, marker=marker, color=colour, markersize=5, linestyle="none", clip_on=False, zorder=5)
    for name, place in zip(classes, ("set_tlabel", "set_llabel", "set_rlabel"), strict=True):
        getattr(ax, place)(name)
    for axis in ("taxis", "laxis", "raxis"):
        getattr(ax, axis).set_ticks([])


def _grid(steps: int) -> tuple[NDArray[np.float64], ...]:
    """Even grid over the triangle."""
    i, j = np.meshgrid(np.arange(steps + 1), np.arange(steps + 1), indexing="ij")
    inside = i + j <= steps
    top, left = i[inside] / steps, j[inside] / steps
    return top, left, np.maximum(1.0 - top - left, 0.0)


def _corners(credal: IntervalSet | HullSet) -> NDArray[np.float64]:
    """Corners ``[V, 3]`` of the polygon of a set, in order around their middle."""
    if isinstance(credal, HullSet):
        points: NDArray[np.float64] = credal.members.detach().double().reshape(-1, 3).numpy()
    else:
        exact = credal.to(torch.float64)
        low, up = (bound.detach().reshape(3).numpy() for bound in (exact.lower, exact.upper))
        listed = []
        for free in range(3):
            a, b = (free + 1) % 3, (free + 2) % 3
            for x in (low[a], up[a]):
                for y in (low[b], up[b]):
                    rest = 1.0 - x - y
                    if low[free] - 1e-9 <= rest <= up[free] + 1e-9:
                        point = np.empty(3)
                        point[[free, a, b]] = rest, x, y
                        listed.append(point)
        points = np.array(listed)
    flat = points @ np.array([[0.5, np.sqrt(0.75)], [0.0, 0.0], [1.0, 0.0]])
    if len(points) > 2 and np.linalg.matrix_rank(flat - flat.mean(0), tol=1e-9) == 2:
        from scipy.spatial import ConvexHull

        points = points[ConvexHull(flat).vertices]
    return points
