"""The interface of credal sets: kinds defined outside the package, and what all kinds have in common."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import credalgnn as cg
from credalgnn.cli import main
from credalgnn.records.node_tables import columns
from credalgnn.sets import Optimum, SolverOptions

RULES = (cg.interval_dominance, cg.maximality, cg.e_admissibility)


def documented() -> dict[str, Any]:
    """What the code of docs/uncertainty.md defines: two kinds of credal set."""
    text = (Path(__file__).parents[1] / "docs" / "uncertainty.md").read_text()
    names: dict[str, Any] = {}
    exec("\n".join(re.findall(r"```python\n(.*?)```", text, flags=re.S)), names)
    return names


Contaminated, TotalVariationBall = (documented()[name] for name in ("Contaminated", "TotalVariationBall"))
Pair = tuple[cg.CredalSet, cg.HullSet]


def contaminated(rng: np.random.Generator, rows: int, classes: int) -> Pair:
    """Contaminated distributions, and the hull of their vertices (1 - epsilon) c + epsilon e_k."""
    center, epsilon = torch.from_numpy(rng.dirichlet(np.ones(classes), rows)), float(rng.uniform(0.01, 0.5))
    vertices = (1.0 - epsilon) * center + epsilon * torch.eye(classes, dtype=torch.float64)[:, None]
    return Contaminated(center, epsilon), cg.HullSet(vertices)


def ball(rng: np.random.Generator, rows: int, classes: int) -> Pair:
    """Balls that stay inside the simplex, and the hull of their vertices c + r (e_i - e_j)."""
    center = torch.from_numpy(rng.dirichlet(np.full(classes, 3.0), rows))
    radius = center.amin(-1, keepdim=True) * torch.from_numpy(rng.uniform(0.1, 1.0, (rows, 1)))
    unit = torch.eye(classes, dtype=torch.float64)
    moves = torch.stack([unit[i] - unit[j] for i in range(classes) for j in range(classes) if i != j])
    return TotalVariationBall(center, radius), cg.HullSet(center + radius * moves[:, None])


@pytest.mark.parametrize("kind", [contaminated, ball])
@pytest.mark.parametrize("classes", [2, 3, 6])
def test_a_kind_from_outside_equals_the_hull_of_its_vertices(
    kind: Callable[[np.random.Generator, int, int], Pair], classes: int
) -> None:
    values, hull = kind(np.random.default_rng(classes), 50, classes)
    assert values.shape == hull.shape == (50, classes)
    for name in ("lower", "upper", "width"):
        torch.testing.assert_close(getattr(values, name), getattr(hull, name), rtol=0, atol=1e-12)
    torch.testing.assert_close(values.intersection_probability(), hull.intersection_probability(), rtol=0, atol=1e-10)
    result, expected = (cg.uncertainty(credal, certify=True) for credal in (values, hull))
    for name in ("total", "aleatoric", "epistemic"):
        torch.testing.assert_close(getattr(result, name), getattr(expected, name), rtol=0, atol=1e-9)
    assert result.gap.max() < 1e-9
    torch.testing.assert_close(cg.upper_entropy(values), result.total, rtol=0, atol=1e-12)
    torch.testing.assert_close(cg.lower_entropy(values), result.aleatoric, rtol=0, atol=1e-12)
    for rule in RULES:
        assert torch.equal(rule(values), rule(hull)), rule.__name__
    rows = torch.tensor([7, 3, 3])
    torch.testing.assert_close(cg.uncertainty(values.take(rows)).total, result.total[rows], rtol=0, atol=1e-12)
    for rule in RULES:
        assert torch.equal(rule(values.take(rows)), rule(values)[rows])


def test_a_ball_that_reaches_the_border_of_the_simplex() -> None:
    """Optima belong to the ball, and no distribution in it has a larger or a smaller entropy."""
    rng = np.random.default_rng(0)
    center = torch.from_numpy(rng.dirichlet(np.ones(4), 30))
    radius = torch.from_numpy(rng.uniform(0.0, 1.0, (30, 1)))
    result = cg.uncertainty(TotalVariationBall(center, radius), certify=True)
    for optimum in (result.upper, result.lower):
        p = optimum.distribution
        assert bool((p >= 0).all())
        torch.testing.assert_close(p.sum(-1), torch.ones(30, dtype=torch.float64), rtol=0, atol=1e-12)
        assert bool(((p - center).abs().sum(-1) / 2 <= radius.squeeze(-1) + 1e-12).all())
    others = torch.from_numpy(rng.dirichlet(np.full(4, 0.3), (2000, 30)))
    distance = (others - center).abs().sum(-1, keepdim=True) / 2
    inside = center + (others - center) * (radius / distance).clamp_max(1.0)
    entropy = -torch.xlogy(inside, inside).sum(-1) / np.log(2)
    assert bool((entropy <= result.total + 1e-12).all())
    assert bool((entropy >= result.aleatoric - 1e-12).all())


def test_a_kind_from_outside_is_predicted_and_evaluated_as_any_other() -> None:
    task = cg.load_task("digits")
    values, hull = ball(np.random.default_rng(1), task.graph.num_nodes, len(task.class_names))
    nodes = torch.arange(task.graph.num_nodes)
    first, second = (cg.Prediction.of_credal(nodes, credal, task.class_names) for credal in (values, hull))
    assert torch.equal(first.classes, second.classes)
    for by in ("lower", "upper"):
        assert torch.equal(first.classify(by), second.classify(by))
    result, expected = (cg.evaluate(prediction, task) for prediction in (first, second))
    assert result.marks == expected.marks
    assert result.metrics == pytest.approx(expected.metrics, abs=1e-6)
    table, same = (columns(prediction, task) for prediction in (first, second))
    assert table.keys() == same.keys()
    np.testing.assert_allclose(table["lower_0"], same["lower_0"], atol=1e-12)


def test_bounds_of_every_kind_are_checked_and_frozen() -> None:
    center = torch.tensor([[0.5, 0.5], [0.6, 0.6]])
    with pytest.raises(ValueError, match=r"row 1: the lower bounds sum to 1\.18, more than 1"):
        TotalVariationBall(center, torch.full((2, 1), 0.01))
    credal = TotalVariationBall(center[:1], torch.full((1, 1), 0.01))
    with pytest.raises(AttributeError, match="lower"):
        credal.lower = center
    assert repr(credal) == "TotalVariationBall(shape=[1, 2], dtype=torch.float32, device=cpu)"
    assert cg.uncertainty(credal).total.dtype == torch.float32


def test_an_unfinished_kind_and_what_is_no_set_are_refused() -> None:
    class Unfinished(cg.CredalSet):
        def solve_upper(self, options: SolverOptions) -> Optimum:
            raise AssertionError

    with pytest.raises(TypeError, match=r"e_admissible.*maximal.*solve_lower.*take"):
        Unfinished(torch.zeros(1, 2), torch.ones(1, 2))  # type: ignore[abstract]
    for function in (cg.uncertainty, cg.upper_entropy, cg.lower_entropy, *RULES):
        with pytest.raises(TypeError, match="expected a credal set, such as an IntervalSet or a HullSet, not Tensor"):
            function(torch.ones(1, 2))  # type: ignore[operator]


def test_the_command_predicts_and_certifies_as_the_library(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    members = torch.from_numpy(np.random.default_rng(0).dirichlet(np.ones(5), (4, 200)))
    np.savez(tmp_path / "hulls.npz", members=members.numpy())
    assert main(["uncertainty", str(tmp_path / "hulls.npz")]) == 0
    table = np.array([line.split(",") for line in capsys.readouterr().out.splitlines()[1:]])
    hull = cg.HullSet(members)
    prediction = cg.Prediction.of_credal(torch.arange(200), hull, tuple("01234"))
    assert bool((prediction.classes != hull.mean().argmax(-1)).any()), "the mean would be another answer"
    assert table[:, 4].astype(int).tolist() == prediction.classes.tolist()
    assert prediction.gap is not None
    assert table[:, 3].tolist() == [f"{gap:.1e}" for gap in prediction.gap.tolist()]


def test_the_gap_bounds_either_entropy() -> None:
    """Searches cut short have large gaps: the true entropies lie within them, and EU within their sum."""
    rng = np.random.default_rng(0)
    logits, half = torch.from_numpy(rng.normal(0, 0.05, (40, 12))), torch.from_numpy(rng.uniform(0.1, 1.0, (40, 12)))
    credal = cg.interval_softmax(logits - half, logits + half)
    exact, rough = cg.uncertainty(credal, certify=True), cg.uncertainty(credal, certify=True, budget=1)
    assert torch.equal(rough.gap, torch.maximum(rough.upper.gap, rough.lower.gap))
    for name in ("total", "aleatoric"):
        assert bool(((getattr(rough, name) - getattr(exact, name)).abs() <= rough.gap + exact.gap).all())
    error = (rough.epistemic - exact.epistemic).abs()
    assert bool((error <= rough.upper.gap + rough.lower.gap + 2 * exact.gap).all())
