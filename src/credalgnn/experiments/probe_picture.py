"""A probe as one picture: the answers of all methods, from the wrong direction by none to the right one."""

from __future__ import annotations

import io
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from ..runtime.files import write
from ..runtime.texts import one_line
from .conditions import RISES
from .probe_results import QUESTIONS, ProbeResults


def write_picture(results: ProbeResults, path: Path) -> bool:
    """Draw the answers as a table of colours, over all graphs; without matplotlib nothing is drawn.

    Args:
        results: Of a probe.
        path: The PNG file.

    Returns:
        Whether there is one.
    """
    overall = results.overall()
    asked = [name for name in QUESTIONS if any(name in values for values in overall.values())]
    methods = [method for method in results.methods if method in overall]
    if find_spec("matplotlib") is None or not asked:
        return False
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    table = np.array([[overall[method].get(name, np.nan) for name in asked] for method in methods])
    figure = Figure(figsize=(2.6 + 0.86 * len(asked), 1.5 + 0.28 * len(methods)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    coloured = np.where(np.array(asked) == "inside", np.nan, table)  # a share has no wrong direction
    shown = axes.imshow(coloured, cmap="RdBu", vmin=-1.0, vmax=1.0, aspect="auto")
    axes.set_yticks(range(len(methods)), [one_line(method) for method in methods], parse_math=False)
    heads = [QUESTIONS[name].label.replace(", ", "\n").replace(" ", "\n", 1) for name in asked]
    axes.set_xticks(range(len(asked)), heads, fontsize=8)
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    for row, column in np.ndindex(table.shape):
        value = table[row, column]
        text = "-" if np.isnan(value) else f"{value:+.2f}"
        if not np.isnan(value) and asked[column] == "inside":
            text = f"{100 * value:.0f} %"
        dark = abs(coloured[row, column]) > 0.6
        axes.text(column, row, text, ha="center", va="center", fontsize=8, color="white" if dark else "black")
    two = sum(name in {test.name for test in RISES} for name in asked)
    axes.axvline(two - 0.5, color="black", lw=0.8)
    for side in axes.spines.values():
        side.set_visible(False)
    bar = figure.colorbar(shown, ax=axes, fraction=0.03, pad=0.01, ticks=[-1, 0, 1])
    bar.ax.set_yticklabels(["-1  wrong", "0  no answer", "+1  right"], fontsize=8)
    bar.outline.set_visible(False)
    axes.set_xlabel(one_line(f"means over {', '.join(results.graphs)}"), fontsize=8, parse_math=False)
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=130, format="png")
    write(path, buffer.getvalue())
    return True
