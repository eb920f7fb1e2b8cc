"""Draw the paper's Figures 1 and 2 from sets and densities computed here: ``make figures``. Prints their numbers."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import mpltern  # noqa: F401  (registers the ternary projection)
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import to_rgb, to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Circle, FancyBboxPatch, Patch, Polygon, Rectangle, Wedge
from scipy.special import digamma
from scipy.stats import beta, dirichlet

from credalgnn import IntervalSet, interval_softmax, uncertainty
from credalgnn.nn import CredalHead
from credalgnn.report import plot_ternary
from credalgnn.report.drawing import HIGH_COLOUR, LOW_COLOUR, SET_COLOUR

CASES = {
    "(a) low AU, low EU": ("confident", (160.0, 3.0, 3.0)),
    "(b) high AU, low EU": ("noisy data", (40.0, 40.0, 40.0)),
    "(c) high AU, high EU": ("out of distribution", (1.5, 1.5, 1.5)),
    "(d) low AU, high EU": ("novel data", (0.1, 0.1, 0.1)),
}

POINTS = np.array([(0.08, 1.0), (0.0, 0.5), (0.5, 0.66), (0.96, 1.0), (1.0, 0.42), (0.56, 0.08), (0.06, 0.0)])
EDGES = [(0, 1), (0, 2), (1, 2), (2, 3), (2, 5), (3, 4), (4, 5), (5, 6), (1, 6)]
FEATURES = [  # evidence for A, B and C: node 3 has as much for each, node 7 next to none
    [0.82, 0.08, 0.05], [0.75, 0.12, 0.05], [0.33, 0.33, 0.34], [0.05, 0.15, 0.80],
    [0.06, 0.84, 0.06], [0.15, 0.75, 0.05], [0.12, 0.02, 0.12],
]  # fmt: skip
LAYERS, LIMIT = 3, 1.0  # LIMIT in bits: a set is green if neither AU nor EU exceeds it
CLASS_COLOURS = np.array([to_rgb(colour) for colour in ("#56b4e9", "#e69f00", "#44225a")])
RELIABLE, UNRELIABLE, GAIN, LOSS, INK = "#009e73", "#c8102e", "#0072b2", "#a65400", "0.25"
WIDTH, HEIGHT = 12.7, 5.0
CENTRED = {"ha": "center", "va": "center"}


def bayesian(alpha: np.ndarray) -> tuple[float, float]:
    """AU (expected entropy) and EU (mutual information) of a Dirichlet density, in bits, by their closed forms."""
    mean = alpha / alpha.sum()
    aleatoric = float((mean * (digamma(alpha.sum() + 1) - digamma(alpha + 1))).sum() / np.log(2))
    return aleatoric, float(-(mean * np.log2(mean)).sum()) - aleatoric


def central_intervals(alpha: np.ndarray, share: float = 0.95) -> IntervalSet:
    """The credal set of a Dirichlet density: the central interval of each class's probability."""
    lower, upper = beta.interval(share, alpha, alpha.sum() - alpha)
    return IntervalSet(torch.tensor(lower), torch.tensor(upper))


def two_representations(path: Path) -> None:
    """Figure 1: second-order densities, and below them the credal sets of their central 95 % intervals."""
    found = np.zeros((2, len(CASES), 2))  # row, column, AU and EU
    figure = plt.figure(figsize=(11.0, 6.8))
    print(f"{'case':24s}{'Bayesian AU':>12s}{'EU':>8s}{'credal AU':>12s}{'EU':>8s}")
    for k, (title, (meaning, concentration)) in enumerate(CASES.items()):
        alpha, left = np.array(concentration), 0.08 + 0.236 * k
        credal = central_intervals(alpha)
        found[0, k], found[1, k] = bayesian(alpha), [float(value) for value in uncertainty(credal)[1:]]
        for row, (aleatoric, epistemic) in enumerate(found[:, k]):
            ax = figure.add_axes((left, 0.575 - 0.405 * row, 0.19, 0.266), projection="ternary")
            views = [ax]
            if k == 0:  # too small to see: the corner a second time, four times larger
                zoom = figure.add_axes((left + 0.142, 0.735 - 0.405 * row, 0.076, 0.1064), projection="ternary")
                zoom.set_ternary_min(0.9, 0.0, 0.0)
                ax.plot([0.9, 0.9], [0.1, 0.0], [0.0, 0.1], color="black", linewidth=0.7, zorder=6)
                views.append(zoom)
            for view in views:
                if row == 0:
                    colours = _density(view, alpha, 0.9 if view is not ax else 0.0)
                else:
                    plot_ternary(credal, view)
                _corner_names(view, "ABC" if view is ax else ("$4\\times$", "", ""))
            numbers = f"AU {aleatoric:.3f}   EU {epistemic:.3f} bits"
            figure.text(left + 0.095, 0.525 - 0.405 * row, numbers, fontsize=11.5, **CENTRED)
        figure.text(left + 0.095, 0.965, title, fontsize=12.5, weight="bold", **CENTRED)
        figure.text(left + 0.095, 0.925, meaning, fontsize=11.5, **CENTRED)
        print(f"{title:24s}" + "".join(f"{x:{w}.3f}" for x, w in zip(found[:, k].flat, (12, 8, 12, 8), strict=True)))
    for kind, name in enumerate(("AU", "EU")):
        high = np.array([f"high {name}" in title for title in CASES])
        assert (found[:, ~high, kind].max(1) < found[:, high, kind].min(1)).all(), f"a title is wrong about {name}"
    for y, text in ((0.70, "Bayesian\nDirichlet density"), (0.295, "credal\n95 % intervals")):
        figure.text(0.03, y, text, rotation=90, fontsize=12.5, linespacing=1.4, **CENTRED)
    figure.text(0.08, 0.04, "density, uniform = 1", va="center", fontsize=10.5)
    bar = figure.colorbar(colours, cax=figure.add_axes((0.24, 0.0475, 0.20, 0.02)), orientation="horizontal")
    bar.set_ticks([-1, 0, 1, 2], labels=["0.1", "1", "10", "100"], fontsize=10)
    marks = [
        Patch(facecolor=to_rgba(SET_COLOUR, 0.6), edgecolor=SET_COLOUR, label="credal set"),
        Line2D([], [], color=HIGH_COLOUR, marker="D", linestyle="none", label="largest entropy, AU + EU"),
        Line2D([], [], color=LOW_COLOUR, marker="o", linestyle="none", label="smallest entropy, AU"),
    ]
    place = {"loc": "center right", "bbox_to_anchor": (0.99, 0.045)}
    figure.legend(handles=marks, ncols=3, frameon=False, fontsize=10.5, columnspacing=1.2, handletextpad=0.4, **place)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def _density(ax: Axes, alpha: np.ndarray, least: float) -> ScalarMappable:
    """Bands of the density of a Dirichlet distribution, relative to the uniform one, where p_A is ``least`` or more."""
    i, j = np.meshgrid(np.arange(301), np.arange(301), indexing="ij")
    weights = np.stack([i, j, 300 - i - j])[:, i + j <= 300] / 300 * (1 - least)
    weights[0] += least
    inside = (weights + 1e-4) / (1 + 3e-4)  # off the border, where it is 0 or infinite
    relative = (dirichlet.logpdf(inside, alpha) - np.log(2)) / np.log(10)
    bands = ax.tricontourf(*weights, relative, levels=np.linspace(-1, 2, 61), cmap="YlGnBu", extend="both")
    bands.set_edgecolor("face")
    return bands


def _corner_names(ax: Axes, names: Sequence[str]) -> None:
    """Upright names at the corners, and no ticks."""
    for name, axis in zip(names, (ax.taxis, ax.laxis, ax.raxis), strict=True):
        axis.set_ticks([])
        axis.set_label_text(name)
        axis.set_label_rotation_mode("horizontal")


def overview(path: Path) -> None:
    """Figure 2: a small graph, its latents layer by layer, their joint, and the credal sets a credal layer gives it."""
    adjacency = torch.zeros(len(POINTS), len(POINTS), dtype=torch.float64)
    for a, b in EDGES:
        adjacency[a, b] = adjacency[b, a] = 1.0
    latents = [torch.tensor(FEATURES, dtype=torch.float64)]
    for _ in range(LAYERS):  # a node keeps half of what it has and takes half from the mean of its neighbours
        latents.append((latents[-1] + adjacency / adjacency.sum(1, keepdim=True) @ latents[-1]) / 2)
    head = CredalHead([3] * (LAYERS + 1), 3).double()
    with torch.no_grad():  # m: evidence in all layers; h: shrinks with the evidence a node has itself
        each, total = torch.eye(3), torch.ones(3, 3)
        middle, half = (3.0, 1.0, 0.5, 0.5), (-2.8, 0.0, 0.0, 0.0)
        head.weight[:3] = torch.hstack([x * each for x in middle])
        head.weight[3:] = torch.hstack([x * total for x in half])
        head.bias[:3], head.bias[3:] = 0.0, 2.0
        credal = interval_softmax(*head(latents))
    figure = plt.figure(figsize=(WIDTH, HEIGHT))
    ax = figure.add_axes((0, 0, 1, 1), xlim=(0, WIDTH), ylim=(0, HEIGHT))  # one unit is one inch
    ax.axis("off")
    titles = ("input graph", "message passing", "joint latent", "credal layer", "credal sets")
    for x, text in zip((0.9, 3.98, 7.17, 8.78, 11.12), titles, strict=True):
        ax.text(x, 4.78, text, fontsize=13, weight="bold", **CENTRED)
    _graph(ax, (0.3, 1.75), np.diag([1.2, 1.9]))
    _arrow(ax, (1.68, 2.7), (1.93, 2.7))
    _latents(ax, [latent.numpy() for latent in latents])
    _credal_layer(ax)
    _sets(figure, ax, credal)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def _graph(ax: Axes, origin: tuple[float, float], basis: np.ndarray, evidence: np.ndarray | None = None) -> None:
    """The graph with numbered nodes, or with the evidence each node has for the classes as a pie."""
    places = POINTS @ basis + origin
    for a, b in EDGES:
        ax.plot(*places[[a, b]].T, color="0.6", linewidth=1.3, zorder=2)
    for v, place in enumerate(places):
        radius = 0.145 if evidence is None else 0.105
        ax.add_patch(Circle(place, radius, facecolor="0.9" if evidence is None else "white", edgecolor=INK, zorder=3))
        if evidence is None:
            ax.text(*place, str(v + 1), ha="center", va="center_baseline", fontsize=11, zorder=5)
        else:
            ends = 90.0 - 360.0 * np.append(0.0, evidence[v].cumsum())
            for colour, start, end in zip(CLASS_COLOURS, ends, ends[1:], strict=False):
                ax.add_patch(Wedge(place, radius, end, start, facecolor=colour, zorder=4))


def _arrow(ax: Axes, start: tuple[float, float], end: tuple[float, float], colour: str = INK) -> None:
    style = {"arrowstyle": "-|>", "color": colour, "linewidth": 1.7, "shrinkA": 0, "shrinkB": 0, "mutation_scale": 14}
    ax.annotate("", end, start, arrowprops=style, zorder=5)


def _latents(ax: Axes, latents: list[np.ndarray]) -> None:
    """One sheet a layer, what every step gains and loses, and all layers side by side in a table."""
    basis, bottom, rail = np.array([[0.62, 0.34], [0.0, 1.35]]), 1.85, 0.85
    last = len(latents) - 1
    for layer, name, x, column in ((0, "0", 2.1, 6.5), (1, "1", 3.55, 6.89), (last, "L", 5.25, 7.55)):
        sheet = np.array([(-0.2, -0.16), (1.2, -0.16), (1.2, 1.16), (-0.2, 1.16)]) @ basis + (x, bottom)
        ax.add_patch(Polygon(sheet, facecolor="0.97", edgecolor="0.55", zorder=1))
        _graph(ax, (x, bottom), basis, latents[layer])
        ax.text(x + 0.31, 1.42, f"$Z^{{{name}}}$", fontsize=15, **CENTRED)
        ax.plot([x + 0.31, x + 0.31], [1.22, rail], color=INK, linewidth=1.7)
        for v, row in enumerate(latents[layer]):
            for c, value in enumerate(row):
                colour = 1.0 - value * (1.0 - CLASS_COLOURS[c])
                ax.add_patch(Rectangle((column + 0.13 * c, 3.39 - 0.27 * v), 0.13, 0.27, facecolor=colour))
        ax.add_patch(Rectangle((column, 1.77), 0.39, 1.89, fill=False, edgecolor=INK, zorder=3))
        ax.text(column + 0.195, 3.85, f"$z^{{{name}}}$", fontsize=13, **CENTRED)
    for middle in (3.15, 4.84):
        _arrow(ax, (middle - 0.27, 2.75), (middle + 0.27, 2.75))
        _arrow(ax, (middle, 3.68), (middle, 2.85), GAIN)
        _arrow(ax, (middle, 2.65), (middle, 1.95), LOSS)
        ax.text(middle, 3.95, "gain\n$\\Delta_+$", fontsize=11.5, color=GAIN, **CENTRED)
        ax.text(middle, 1.68, "loss\n$\\Delta_-$", fontsize=11.5, color=LOSS, **CENTRED)
    for x, y in ((4.42, 2.75), (7.415, 2.715), (7.415, 3.85)):
        ax.text(x, y, "···", fontsize=14, weight="bold", **CENTRED)
    for v in range(len(POINTS)):
        ax.text(6.38, 3.52 - 0.27 * v, str(v + 1), fontsize=10.5, **CENTRED)
    ax.text(7.2, 1.42, "$Z^{joint}$", fontsize=15, **CENTRED)
    ax.plot([2.41, 7.2], [rail, rail], color=INK, linewidth=1.7)
    _arrow(ax, (7.2, rail), (7.2, 1.22))
    ax.text(4.8, 0.65, "all layers side by side: the whole trajectory of every node", fontsize=11.5, **CENTRED)
    for x, name, colour in zip((2.2, 2.7, 3.2), "ABC", CLASS_COLOURS, strict=True):
        ax.add_patch(Circle((x, 0.25), 0.09, facecolor=colour))
        ax.text(x + 0.15, 0.25, name, va="center", fontsize=11)
    ax.text(0.3, 0.25, "evidence for class", va="center", fontsize=11)


def _credal_layer(ax: Axes) -> None:
    ax.add_patch(FancyBboxPatch((8.28, 1.82), 1.0, 1.79, boxstyle="round,pad=0.05", facecolor="0.95", edgecolor=INK))
    lines = ("midpoint $m$\nhalf-length $h$", "interval\nsoftmax", "$[q^L, q^U]$")
    for y, text in zip((3.33, 2.65, 2.0), lines, strict=True):
        ax.text(8.78, y, text, fontsize=11, linespacing=1.3, **CENTRED)
    _arrow(ax, (8.78, 3.08), (8.78, 2.88))
    _arrow(ax, (8.78, 2.4), (8.78, 2.2))
    _arrow(ax, (7.98, 2.715), (8.22, 2.715))
    _arrow(ax, (9.34, 2.715), (9.62, 2.715))


def _sets(figure: Figure, ax: Axes, credal: IntervalSet) -> None:
    """The credal set of every node at the node's place; green is plain and red hatched."""
    places = POINTS @ np.diag([2.0, 2.55]) + (10.12, 1.4)
    for a, b in EDGES:
        ax.plot(*places[[a, b]].T, color="0.7", linewidth=1.3)
    _, aleatoric, epistemic = uncertainty(credal)
    print(f"{'node':24s}{'AU':>12s}{'EU':>8s}")
    for v, (x, y) in enumerate(places):
        reliable = max(aleatoric[v], epistemic[v]) <= LIMIT
        colour = RELIABLE if reliable else UNRELIABLE
        box = np.array([x - 0.38, y - 0.25, 0.76, 0.66])
        small = figure.add_axes(box / [WIDTH, HEIGHT, WIDTH, HEIGHT], projection="ternary")
        plot_ternary(IntervalSet(credal.lower[v], credal.upper[v]), small, classes=("", "", ""))
        for drawn in (*small.collections, *small.lines[1:]):  # all but the set: the bands and the marks
            drawn.remove()
        small.patch.set_facecolor(1.0 - 0.12 * (1.0 - np.array(to_rgb(colour))))
        small.lines[0].set(color=colour, linewidth=1.8)
        small.patches[-1].set(facecolor=colour, edgecolor=colour, alpha=0.5, hatch=None if reliable else "////")
        for corner, shade in zip(np.eye(3) * 1.18 - 0.06, CLASS_COLOURS, strict=True):
            small.plot(*corner[:, None], marker="o", markersize=5, color=shade, clip_on=False)
        numbers = f"AU {aleatoric[v]:.2f}\nEU {epistemic[v]:.2f}"
        behind = {"facecolor": "white", "edgecolor": "none", "pad": 1.0}
        ax.text(x, y - 0.49, numbers, fontsize=10, bbox=behind, **CENTRED)
        ax.text(x - 0.27, y + 0.24, str(v + 1), fontsize=11, bbox=behind, **CENTRED)
        print(f"{v + 1:<24d}{aleatoric[v]:12.3f}{epistemic[v]:8.3f}  {'green' if reliable else 'red'}")
    good, bad = f"reliable: AU and EU up to {LIMIT:g} bit", f"likely OOD: AU or EU above {LIMIT:g} bit"
    for x, text, colour, hatch in ((6.2, good, RELIABLE, None), (9.35, bad, UNRELIABLE, "////")):
        style = {"facecolor": to_rgba(colour, 0.5), "edgecolor": colour, "linewidth": 1.8, "hatch": hatch}
        ax.add_patch(Rectangle((x, 0.17), 0.26, 0.18, **style))
        ax.text(x + 0.36, 0.25, text, va="center_baseline", fontsize=11.5)


if __name__ == "__main__":
    folder = Path(__file__).parent / "images"
    folder.mkdir(exist_ok=True)
    two_representations(folder / "figure1.png")
    overview(folder / "figure2.png")
