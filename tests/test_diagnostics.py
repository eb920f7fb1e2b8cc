"""Credal sets that say nothing: found by one rule, warned of once, and never where a model works."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from credalgnn import CredalEnsemble, CredalFinal, CredalLJ, CredalWarning, IntervalSet, Prediction, Vanilla, load_task
from credalgnn.experiments.engines import Source, Unit, _done
from credalgnn.experiments.plan import Run
from credalgnn.graphs import Graph
from credalgnn.methods import Method, load_method
from credalgnn.methods.diagnostics import ENOUGH, FINDINGS, SAMPLE, findings
from credalgnn.methods.prediction import Predictor
from credalgnn.methods.training_data import TrainingData
from credalgnn.metrics.evaluation import evaluate
from credalgnn.runtime.context import Context

CLASSES = ("a", "b", "c", "d")


@contextmanager
def quiet() -> Iterator[None]:
    """Any warning is an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def around(nodes: Tensor, sure: Tensor | float, width: Tensor | float) -> Prediction:
    """Sets around a distribution that says the first class with probability ``sure``; each interval is ``width``."""
    sure, width = (torch.as_tensor(one, dtype=torch.float64).expand(len(nodes)) for one in (sure, width))
    p = torch.stack([sure, *[(1 - sure) / 3] * 3], dim=1)
    lower = p * (1 - width[:, None])
    return Prediction.of_credal(nodes, IntervalSet(lower, lower + width[:, None]), CLASSES)


# ---------------------------------------------------------------------------------------------
# The rule
# ---------------------------------------------------------------------------------------------

NODES = torch.arange(200)
FEW = NODES < 10


@pytest.mark.parametrize(
    ("sure", "width", "found"),
    [
        (0.9, 0.0, ("narrow",)),
        (0.9, 0.005, ("narrow",)),
        (1.0, 0.0, ("narrow",)),  # no doubt anywhere, and no interval either
        (0.25, 1e-4, ("narrow", "saturated")),
        (0.9, 0.2, ()),
        (0.3, 0.9, ("saturated",)),
        (0.25, 1.0, ("saturated",)),
        (1 - 1e-9, torch.where(FEW, 0.9, 0.0), ()),  # sure of what it knows, open for the few it does not
        (0.5, torch.where(FEW, 0.9, 0.0), ("narrow",)),  # as few are open, but it doubts the others and does not open
        (0.5, torch.where(NODES < 60, 0.9, 0.0), ()),
    ],
)
def test_what_is_found(sure: float, width: Tensor | float, found: tuple[str, ...]) -> None:
    made = around(NODES, sure, width)
    assert findings(made) == found
    assert findings(made, NODES.flip(0)) == found


def test_only_the_rows_asked_for_are_judged() -> None:
    made = around(NODES, 0.9, torch.where(FEW, 0.3, 0.0))
    assert findings(made, NODES[FEW]) == ()
    assert findings(made, NODES[~FEW]) == ("narrow",)


def test_without_the_measures_the_widths_alone_decide() -> None:
    made = around(NODES, 1 - 1e-9, torch.where(FEW, 0.9, 0.0))
    bare = Prediction(NODES, {"EU": made.epistemic}, "EU", CLASSES, made.probabilities, made.credal)
    assert findings(bare) == ("narrow",)
    assert findings(Prediction(NODES, {"s": made.epistemic}, "s", CLASSES)) == ()


# ---------------------------------------------------------------------------------------------
# Warnings, of a method made by hand
# ---------------------------------------------------------------------------------------------


@dataclass(kw_only=True, eq=False)
class Stub(Method):
    """Predicts intervals of one width, and remembers which nodes it was asked for."""

    width: float = 0.0

    name = "stub"
    score_names = ("EU", "AU", "TU")
    is_credal = True

    def _fit(self, training: TrainingData, context: Context) -> None:
        self.asked: list[Tensor] = []

    def _predictor(self, graph: Graph, context: Context) -> Predictor:
        def predict(nodes: Tensor) -> Prediction:
            self.asked.append(nodes)
            return around(nodes, 0.9, self.width)

        return predict


@dataclass(kw_only=True, eq=False)
class Late(Stub):
    """One that does not say that it predicts credal sets, so that fit cannot know."""

    is_credal = False


def graph_of(nodes: int) -> Graph:
    edges = [list(range(nodes)), np.roll(range(nodes), 1)]
    return Graph(np.ones((nodes, 2), dtype=np.float32), edges, np.arange(nodes) % 4, class_names=list(CLASSES))


def parts(nodes: int, train: int) -> dict[str, Tensor]:
    return {"train": torch.arange(train), "val": torch.arange(train, nodes)}


def test_fit_warns_and_predict_does_not_repeat_it() -> None:
    graph = graph_of(60)
    method = Stub()
    with pytest.warns(CredalWarning, match=r"^stub: closed intervals.*credal-coverage") as told:
        method.fit(graph, **parts(60, 20))
    assert [Path(one.filename) for one in told] == [Path(__file__)]
    assert "\n" not in str(told[0].message)
    with quiet():
        for nodes in (None, torch.arange(30)):
            method.predict(nodes=nodes)
            method.predict(graph_of(80), nodes)
    with pytest.warns(CredalWarning, match="closed"):
        method.fit(graph, **parts(60, 20))  # another fitted method


def test_a_warning_that_is_an_error_comes_once_too() -> None:
    method = Stub()
    with quiet(), pytest.raises(CredalWarning):
        method.fit(graph_of(60), **parts(60, 20))
    with quiet():
        method.predict()


def test_predict_warns_where_fit_could_not() -> None:
    with quiet():
        method = Late().fit(graph_of(60), **parts(60, 20))
        method.predict(nodes=torch.arange(ENOUGH - 1))
    with pytest.warns(CredalWarning, match="^stub: closed") as told:
        method.predict(nodes=torch.arange(ENOUGH))
    assert [Path(one.filename) for one in told] == [Path(__file__)]
    with quiet():
        method.predict()


def test_sets_that_were_open_are_not_judged_by_a_few_known_nodes() -> None:
    """Intervals of known nodes may be closed. On another graph, which fit has not seen, they are judged again."""
    method = Stub(width=0.5)
    with quiet():
        method.fit(graph_of(60), **parts(60, 20))
        method.width = 0.0
        method.predict(nodes=torch.arange(20))
    with pytest.warns(CredalWarning, match="closed"):
        method.predict(graph_of(80))


def test_saturated_sets_are_warned_of() -> None:
    with pytest.warns(CredalWarning, match=r"TU is within 0.001 bits of log2 C.*delta") as told:
        Stub(width=1.0).fit(graph_of(60), **parts(60, 20)).predict()
    assert len(told) == 1


@pytest.mark.parametrize(("nodes", "train"), [(40, 36), (100, 30), (5 * SAMPLE, SAMPLE), (2 * SAMPLE + 21, SAMPLE)])
def test_fit_looks_at_a_bounded_number_of_nodes_it_was_not_trained_on(nodes: int, train: int) -> None:
    method = Stub(width=0.5).fit(graph_of(nodes), **parts(nodes, train))
    (asked,) = method.asked
    assert ENOUGH <= len(asked) <= SAMPLE
    if nodes - train >= ENOUGH:
        assert int(asked.min()) >= train
        assert int(asked.max()) > nodes - nodes // 20  # spread over all of them
    assert len(asked.unique()) == len(asked)


def test_what_cannot_be_predicted_is_refused_by_predict_alone() -> None:
    @dataclass(kw_only=True, eq=False)
    class Broken(Stub):
        def _predictor(self, graph: Graph, context: Context) -> Predictor:
            raise ValueError("node 3: not a credal set")

    method = Broken().fit(graph_of(60), **parts(60, 20))
    with pytest.raises(ValueError, match="node 3"):
        method.predict()


# ---------------------------------------------------------------------------------------------
# Warnings, of real methods
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [CredalLJ, CredalFinal])
def test_the_paper_s_model_closes_on_digits_and_says_so(kind: type[Method], tmp_path: Path) -> None:
    task = load_task("digits")
    with pytest.warns(CredalWarning, match="closed intervals"):
        method = kind(epochs=100, half_length_decay=0.0).fit(task)
    with quiet():
        method.predict()
        method.save(tmp_path)
        loaded = load_method(tmp_path, task)
    with pytest.warns(CredalWarning, match="closed intervals"):
        loaded.predict()
    with quiet():
        loaded.predict()


def test_a_graph_without_ood_nodes_is_warned_of_too() -> None:
    graph = load_task("digits").graph
    masks = torch.arange(graph.num_nodes) % 3
    with pytest.warns(CredalWarning, match="closed intervals"):
        CredalLJ(epochs=100, half_length_decay=0.0).fit(graph, train=masks == 0, val=masks == 1)


@pytest.mark.parametrize("seed", range(3))
def test_by_default_the_intervals_of_credal_lj_stay_open_on_digits(seed: int) -> None:
    task = load_task("digits")
    with quiet():
        method = CredalLJ(seed=seed).fit(task)
        assert findings(method.predict(nodes=task.training.val)) == ()  # by known nodes alone
    found = evaluate(method.predict(), task)
    assert "narrow" not in found.marks
    assert found.metrics["accuracy"] > 0.97  # type: ignore[operator]


def test_an_ensemble_that_works_is_not_warned_of() -> None:
    task = load_task("digits")
    with quiet():
        method = CredalEnsemble(size=3).fit(task)
        method.predict()
        method.predict(nodes=task.training.train)  # all of them known


def test_fitted_members_are_looked_at_when_they_predict() -> None:
    """Members that are all the same one span nothing. Fitting them together costs nothing, a look would."""
    task = load_task("digits")
    vanilla = Vanilla(epochs=20).fit(task)
    with quiet():
        method = CredalEnsemble(members=[vanilla, vanilla]).fit(task)
    with pytest.warns(CredalWarning, match="credal-ensemble: closed"):
        method.predict()
    with pytest.warns(CredalWarning, match="credal-ensemble: closed"):
        CredalEnsemble(members=[Vanilla(epochs=20), Vanilla(epochs=20)]).fit(task)  # of one seed, trained by this fit


# ---------------------------------------------------------------------------------------------
# The benchmark
# ---------------------------------------------------------------------------------------------


def complain(run: Run, task: object, models: object) -> str:
    warnings.warn("closed", CredalWarning, stacklevel=1)
    warnings.warn("something else", UserWarning, stacklevel=1)
    return "done"


def test_workers_leave_it_to_the_marks(tmp_path: Path) -> None:
    run = Run("digits", "credal-lj", 0, "sealed")
    with pytest.warns(UserWarning, match="something else") as told:
        assert _done(Unit(complain, run), lambda: Source().task(run), tmp_path) == ("done", None)
    assert len(told) == 1


def test_findings_are_one_line_each() -> None:
    for finding in FINDINGS.values():
        assert all(words and "\n" not in words for words in finding)
