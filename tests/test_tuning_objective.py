"""One trial: what decides, what may be looked at, and when it is pruned."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from credalgnn.experiments.execute import ModelCache
from credalgnn.experiments.plan import Run, plan
from credalgnn.experiments.search import Pruned, PruningCallback, objective, try_point
from credalgnn.graphs import Task
from credalgnn.methods import METHODS
from credalgnn.methods.registry import options
from credalgnn.metrics.evaluation import Evaluation
from credalgnn.nn.training import Epoch
from disturbing import disturbed
from searches import ENSEMBLES, PROTOCOLS, SPACES, small_task

# Networks that are trained for a few epochs have credal sets that say nothing, and warn of it, as they should.
pytestmark = pytest.mark.filterwarnings("ignore::credalgnn.CredalWarning")


def judged(**other: float | None) -> Evaluation:
    """An evaluation in which every number is another one."""
    numbers = {"accuracy": 0.11, "nll": 0.22, "auroc": 0.33, "misclassification_auroc": 0.44, "decoy": 0.55} | other
    metrics = {"accuracy": numbers["accuracy"], "macro_f1": 0.66, "nll": numbers["nll"], "accuracy_lower": 0.77}
    headline = {name: numbers[name] for name in ("auroc", "misclassification_auroc")}
    decoy = {name: numbers["decoy"] for name in headline}
    return Evaluation("EU", metrics, {"AU": decoy, "EU": headline, "TU": decoy}, {}, ())


POINT_PREDICTIONS = ["vanilla", "mc-dropout", "drop-edge", *ENSEMBLES]  # are chosen by their classes


def stands_on_a_model(method: str) -> bool:
    """Whether it leaves the classes of a fitted model as they are."""
    below = METHODS[method].components
    return below is not None and below.size is None


@pytest.mark.parametrize("method", list(SPACES))
def test_the_papers_objective(method: str) -> None:
    run = Run("small", method, 0, "paper")
    assert objective(run, judged()) == (0.11 if method in POINT_PREDICTIONS else 0.33)


@pytest.mark.parametrize("method", list(SPACES))
def test_the_sealed_objective(method: str) -> None:
    run = Run("small", method, 0, "sealed")
    assert objective(run, judged()) == (0.44 if stands_on_a_model(method) else -0.22)
    assert objective(run, judged(auroc=0.99, decoy=0.99)) == objective(run, judged())


def test_an_objective_that_cannot_tell_is_none() -> None:
    assert objective(Run("small", "energy", 0, "sealed"), judged(misclassification_auroc=None)) is None


SHORT: dict[str, Any] = {"hidden": 8, "epochs": 6, "patience": 6}


def short_run(method: str, protocol: Any, seed: int = 1000) -> Run:
    wanted = {**SHORT, "size": 2, "k": 10}
    own = {name: wanted[name] for name in options(METHODS[method]) if name in wanted}
    return plan("small", method, seed, protocol, 0, own, [SHORT])


class Blind(Task):
    """A task whose test nodes nobody may look at."""

    @property
    def test(self) -> Any:
        raise AssertionError("the test nodes were read")


def blind(task: Task) -> Task:
    return Blind(**{one.name: getattr(task, one.name) for one in fields(Task)})


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("method", list(SPACES))
def test_a_trial_never_reads_test_nodes(method: str, protocol: str, tmp_path: Path) -> None:
    run = short_run(method, protocol)
    found = try_point(run, blind(small_task()), ModelCache(tmp_path), {})
    assert math.isfinite(found["value"])
    assert found["seconds"] >= 0.0
    other = small_task(test_labels="other")
    assert (other.test.labels != small_task().test.labels).any()
    assert try_point(run, other, ModelCache(tmp_path), {})["value"] == found["value"]


@pytest.mark.parametrize("method", list(SPACES))
def test_a_sealed_trial_does_not_depend_on_ood_nodes(method: str, tmp_path: Path) -> None:
    """The same ID validation nodes beside other OOD nodes."""
    one, other = small_task(0), small_task(1)
    assert set(one.training.val.tolist()) == set(other.training.val.tolist())
    assert not set(one.validation.nodes[one.validation.is_ood].tolist()) & set(
        other.validation.nodes[other.validation.is_ood].tolist()
    )
    values = {
        protocol: [
            try_point(short_run(method, protocol), task, ModelCache(tmp_path), {})["value"] for task in (one, other)
        ]
        for protocol in PROTOCOLS
    }
    assert values["sealed"][0] == values["sealed"][1]
    by_accuracy = method in POINT_PREDICTIONS
    assert (values["paper"][0] == values["paper"][1]) == by_accuracy, "the paper's credal objective looks at OOD nodes"


@pytest.mark.parametrize("method", list(SPACES))
def test_an_inductive_trial_does_not_see_other_nodes(method: str, tmp_path: Path) -> None:
    """Neither its training nor its value: test nodes and OOD nodes have not come yet."""
    task, run = replace(small_task(), inductive=True), short_run(method, "sealed")
    one, other = (try_point(run, each, ModelCache(tmp_path), {})["value"] for each in (task, disturbed(task)))
    assert math.isfinite(one)
    assert one == other
    if method in ("vanilla", "knn"):  # else the test could not fail
        flat = replace(task, inductive=False)
        values = [try_point(run, each, ModelCache(tmp_path), {})["value"] for each in (flat, disturbed(flat))]
        assert values[0] != values[1]


def test_an_inductive_trial_is_worth_what_its_validation_nodes_say(tmp_path: Path) -> None:
    task = replace(small_task(), inductive=True)
    run, part = short_run("vanilla", "sealed"), task.validation
    known = part.nodes[~part.is_ood]
    grown = task.graph.subgraph(torch.cat([task.split.train, known]))
    fitted = METHODS["vanilla"](**run.config, seed=1000).fit(task)
    p = fitted.predict(grown, torch.arange(len(task.split.train), grown.num_nodes)).probabilities
    assert p is not None
    expected = p.gather(-1, part.labels[~part.is_ood][:, None]).log().mean().item()
    assert try_point(run, task, ModelCache(tmp_path), {})["value"] == pytest.approx(expected)
    whole = fitted.predict(nodes=known).probabilities
    assert whole is not None
    assert not torch.allclose(p, whole, atol=1e-3)


def test_a_trial_is_worth_what_its_validation_nodes_say(tmp_path: Path) -> None:
    """Against the method itself, fitted and judged by hand."""
    from sklearn.metrics import roc_auc_score

    task = small_task()
    part = task.validation
    known = ~part.is_ood
    run = short_run("credal-lj", "paper")
    method = METHODS["credal-lj"](**run.config, seed=1000).fit(task, protocol="paper")
    prediction = method.predict(nodes=part.nodes)
    found = try_point(run, task, ModelCache(tmp_path), {})
    assert found["value"] == pytest.approx(roc_auc_score(part.is_ood.numpy(), prediction.scores["EU"].numpy()))
    run = short_run("vanilla", "sealed")
    method = METHODS["vanilla"](**run.config, seed=1000).fit(task)
    p = method.predict(nodes=part.nodes[known]).probabilities
    assert p is not None
    found = try_point(run, task, ModelCache(tmp_path), {})
    assert found["value"] == pytest.approx(p.gather(-1, part.labels[known][:, None]).log().mean().item())


def test_a_training_that_fails_is_a_result(tmp_path: Path) -> None:
    for method in ("vanilla", "credal-lj"):
        run = plan("small", method, 0, "sealed", 0, {**SHORT, "lr": 1e30})
        found = try_point(run, small_task(), ModelCache(tmp_path), {})
        assert "value" not in found
        assert "lower lr" in found["error"]


def lines(monitor: Callable[[int], float], last: int) -> list[Epoch]:
    return [Epoch(epoch, 1.0, monitor(epoch)) for epoch in range(last + 1)]


def test_the_callback_follows_the_best_and_prunes_above_a_threshold() -> None:
    callback = PruningCallback({})
    for line in lines(lambda epoch: -100.0 if epoch == 0 else 200.0 - epoch if epoch < 80 else 500.0, 120):
        callback(line)
    assert callback.seen == {50: 150.0, 100: 121.0}  # neither the untrained weights nor the last ones
    callback = PruningCallback({50: 1.0, 100: 0.5})
    with pytest.raises(Pruned):
        list(map(callback, lines(lambda epoch: 0.8, 200)))
    assert callback.seen == {50: 0.8, 100: 0.8}
    callback = PruningCallback({50: 0.8, 100: 0.8})
    for line in lines(lambda epoch: 0.8, 130):  # as good as the threshold is good enough
        callback(line)


@pytest.mark.parametrize("method", ["credal-lj", "credal-final"])
def test_a_hopeless_trial_is_pruned(method: str, tmp_path: Path) -> None:
    run = plan("small", method, 1000, "paper", 0, {"hidden": 8, "epochs": 55, "patience": 55})
    found = try_point(run, small_task(), ModelCache(tmp_path), {50: -2.0})
    assert found.get("pruned") is True
    assert "value" not in found
    assert list(found["seen"]) == [50]
    found = try_point(run, small_task(), ModelCache(tmp_path), {50: 10.0})
    assert list(found["seen"]) == [50]
    assert math.isfinite(found["value"])
