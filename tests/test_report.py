"""Figures: what is drawn is the set, the numbers under it are its uncertainties, and the docs show the same."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import matplotlib
import numpy as np
import pytest
import torch

from credalgnn import HullSet, IntervalSet, uncertainty
from credalgnn.report import plot_ternary
from credalgnn.report.drawing import _corners
from oracles import interval_vertices

matplotlib.use("Agg")
ROOT = Path(__file__).parent.parent


def test_polygon_has_the_vertices_of_the_set() -> None:
    lower, upper = torch.tensor([0.1, 0.2, 0.05]).double(), torch.tensor([0.5, 0.6, 0.7]).double()
    drawn = _corners(IntervalSet(lower, upper))
    true = np.unique(interval_vertices(lower, upper).round(12), axis=0)
    assert {tuple(p) for p in drawn.round(12)} == {tuple(p) for p in true}
    assert len(_corners(HullSet(torch.eye(3).double()[:2]))) == 2
    inner = torch.cat([torch.eye(3), torch.full((1, 3), 1 / 3)]).double()
    assert len(_corners(HullSet(inner))) == 3  # the middle is no corner
    points = torch.randn(200, 3, generator=torch.Generator().manual_seed(0)).softmax(-1)
    assert all(len(_corners(IntervalSet(p, p))) >= 1 for p in points)  # float32 points whose sums miss 1


def test_plot_marks_the_optima() -> None:
    import mpltern  # noqa: F401
    from matplotlib import pyplot as plt

    credal = IntervalSet(torch.tensor([0.1, 0.2, 0.1]).double(), torch.tensor([0.5, 0.6, 0.7]).double())
    figure = plt.figure()
    ax = figure.add_subplot(projection="ternary")
    plot_ternary(credal, ax, ("cat", "dog", "owl"))
    marks = {line.get_marker() for line in ax.get_lines()}
    assert {"D", "o"} <= marks
    figure.canvas.draw()
    plt.close(figure)
    with pytest.raises(TypeError, match="not ternary"):
        plot_ternary(credal, plt.figure().add_subplot())
    plt.close("all")
    with pytest.raises(ValueError, match="three classes"):
        plot_ternary(IntervalSet(torch.zeros(2), torch.ones(2)), ax)


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[float]]:
    """The table that drawing the figures prints, by case letter; drawn from a copy so that docs/ stays as it is."""
    copy = tmp_path_factory.mktemp("docs") / "figures.py"
    copy.write_text((ROOT / "docs" / "figures.py").read_text())
    answer = subprocess.run([sys.executable, copy], capture_output=True, text=True, check=True)
    assert (copy.parent / "images" / "uncertainty.png").stat().st_size > 20_000
    rows = [re.match(r"(\([a-d]\)).*?((?:\s+\d\.\d{3}){3})$", line) for line in answer.stdout.splitlines()]
    return {row[1]: [float(x) for x in row[2].split()] for row in rows if row}


def test_four_cases_are_what_their_titles_say(printed: dict[str, list[float]]) -> None:
    assert set(printed) == {"(a)", "(b)", "(c)", "(d)"}
    for high_au, low_au in (("(b)", "(a)"), ("(b)", "(d)"), ("(c)", "(a)"), ("(c)", "(d)")):
        assert printed[high_au][1] > printed[low_au][1] + 0.5
    for high_eu, low_eu in (("(c)", "(a)"), ("(c)", "(b)"), ("(d)", "(a)"), ("(d)", "(b)")):
        assert printed[high_eu][2] > printed[low_eu][2] + 0.3


def test_docs_show_the_printed_numbers(printed: dict[str, list[float]]) -> None:
    page = (ROOT / "docs" / "uncertainty.md").read_text()
    for case, numbers in printed.items():
        row = next(line for line in page.splitlines() if line.startswith(f"| {case}"))
        assert [float(x) for x in re.findall(r"\d\.\d{3}", row)] == numbers


def test_docs_example_of_the_decomposition() -> None:
    """The worked example of docs/uncertainty.md: a coin that is either fair or unknown."""
    fair = IntervalSet(torch.tensor([0.5, 0.5]).double(), torch.tensor([0.5, 0.5]).double())
    unknown = IntervalSet(torch.zeros(2).double(), torch.ones(2).double())
    assert [round(float(x), 9) for x in uncertainty(fair)] == [1.0, 1.0, 0.0]
    assert [round(float(x), 9) for x in uncertainty(unknown)] == [1.0, 0.0, 1.0]
