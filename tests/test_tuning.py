"""Tuning and the reproduction of the paper: its search spaces, what may decide, and that neither stops nor company
change what is tried."""

from __future__ import annotations

import contextlib
import csv
import hashlib
import itertools
import json
import math
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import fields, replace
from datetime import timedelta
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import optuna
import pytest
import torch
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState

from credalgnn.bench import tuning
from credalgnn.bench.engines import Engine, EngineError, Result, Unit
from credalgnn.bench.metrics import Evaluation
from credalgnn.bench.records import RecordError, read_record
from credalgnn.bench.reproduce import Budget, Reproduction
from credalgnn.bench.runs import Models, Run, plan
from credalgnn.bench.spaces import SPACES, Scale, Space, Uniform, draw, points, size, space_of
from credalgnn.bench.studies import Ended, Studies, Tuning, search_all
from credalgnn.bench.tuning import (
    CHECKS,
    FEWEST,
    Best,
    Hopeless,
    Owners,
    Search,
    Watch,
    carry_out,
    objective,
    open_storage,
    try_point,
    tuned,
    write_best,
)
from credalgnn.cli import main
from credalgnn.graphs import Split, Task, csbm, load_task
from credalgnn.methods import METHODS, MethodError
from credalgnn.nn.training import Epoch
from credalgnn.report.paper import Pair, beside_paper, pairs, paper_results, write_beside
from credalgnn.report.summary import make_rows, read_runs
from strangers import disturbed

Point = dict[str, Any]
Answer = Callable[[Run], dict[str, Any]]

# Networks that are trained for a few epochs have credal sets that say nothing, and warn of it, as they should.
pytestmark = pytest.mark.filterwarnings("ignore::credalgnn.CredalWarning")
PAPER = Path(__file__).parents[2] / "shared" / "paper"
NETWORK = ["vanilla", "credal-lj", "credal-final"]
ENSEMBLES = ["classical-ensemble", "credal-ensemble"]
POST_HOC = ["energy", "odin", "mahalanobis", "knn", "gnnsafe", "knn-lj"]
PROTOCOLS = ["paper", "sealed"]
ENDLESS: Space = {"lr": Uniform(1e-5, 1e-1), "hidden": (64, 128, 256), "backbone": ("gcn", "sage")}
FINITE: Space = {"k": (1, 2, 3, 4), "alpha": (0.1, 0.2), "kind": ("a", "b")}
FEW: Space = {"k": (1, 2, 3, 4), "alpha": (0.1, 0.2)}


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(autouse=True, scope="module")
def background(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Future[Reproduced] | None]:
    """The longest command, on another core, while the other tests run; only if somebody asks for what it finds."""
    asked = any("reproduced" in getattr(item, "fixturenames", ()) for item in request.session.items)
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(reproduce, tmp_path_factory.mktemp("reproduced") / "out") if asked else None


# ---------------------------------------------------------------------------------------------
# Small tasks, and an engine that only pretends to train
# ---------------------------------------------------------------------------------------------


@cache
def small_task(ood_part: int = 0, test_labels: str = "true") -> Task:
    """Four classes of which one is left out, 200 nodes. ``ood_part`` changes which OOD nodes are in the validation part
    and nothing else of it; ``test_labels`` changes the labels of test nodes."""
    graph = csbm(nodes=200, classes=4, degree=6, features=8, signal=1.0, seed=0)
    drawn = Split.random(graph.num_nodes, 0)
    strange = graph.labels == 0
    known = [part[~strange[part]] for part in (drawn.train, drawn.val, drawn.test)]
    others = strange.nonzero().squeeze(-1)
    chosen = others[:12] if ood_part == 0 else others[12:26]
    rest = others[~torch.isin(others, chosen)]
    split = Split(known[0], torch.cat([known[1], chosen]), torch.cat([known[2], rest]))
    if test_labels != "true":
        labels = graph.labels.clone()
        labels[split.test] = torch.arange(len(split.test)) % 4
        graph = graph.replace(labels=labels, class_names=graph.class_names)
    return Task.leave_out(graph, [0], split=split, name="small")


def worth(run: Run) -> dict[str, Any]:
    """A value that depends on all that a run is, and on nothing else."""
    what = json.dumps([run.method, run.seed, run.config, run.vanillas], sort_keys=True)
    number = int.from_bytes(hashlib.blake2b(what.encode(), digest_size=6).digest(), "big")
    return {"value": number / 2**48, "seen": {}, "seconds": 0.0}


class Instant(Engine):
    """Does units at once, and gives them back a few at a time in an order of its own."""

    def __init__(self, slots: int = 1, order: int = 0, answer: Answer = worth) -> None:
        self._slots, self._order, self._answer = slots, random.Random(order), answer
        self.busy: list[Unit] = []
        self.units: list[Unit] = []

    @property
    def slots(self) -> int:
        return self._slots

    def start(self, unit: Unit) -> None:
        assert len(self.busy) < self._slots, "more units at a time than there are slots"
        self.busy.append(unit)
        self.units.append(unit)

    def finished(self, timeout: float) -> list[Result]:
        self._order.shuffle(self.busy)
        count = self._order.randint(0, len(self.busy))
        ready, self.busy = self.busy[:count], self.busy[count:]
        return [Result(unit, self._answer(unit.run)) for unit in ready]

    def close(self) -> None:
        self.busy = []


class Owned(Owners):
    """The owners as one process sees them, which can be made to die."""

    def die(self) -> None:
        self._lock.free()


def a_run(point: Point, seed: int) -> Run:
    return Run("small", "vanilla", seed, "paper", 0, dict(point))


def search(
    folder: Path, space: Space = ENDLESS, trials: int = 15, name: str = "small vanilla", prune: bool = False
) -> Search:
    """A search as a process of its own would make it."""
    return Search(name, "0", space, trials, a_run, open_storage(folder), Owned(folder / ".owners"), prune)


def die(one: Search) -> None:
    assert isinstance(one.owners, Owned)
    one.owners.die()


def finish(searches: Sequence[Search], engine: Engine) -> bool:
    """Whether searches come to an end; they never take long, and one that waits for nothing shall not wait forever."""
    return carry_out(searches, engine, time.monotonic() + 100)


def kept(folder: Path, name: str = "small vanilla", url: str | None = None) -> list[FrozenTrial]:
    """All trials of a study as they are on the disk."""
    storage = open_storage(folder, url)
    (study,) = (one for one in optuna.get_all_study_names(storage) if one.rpartition(" ")[0] == name)
    return optuna.load_study(study_name=study, storage=storage).get_trials()


def came_to_an_end(trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
    return [one for one in trials if one.state.is_finished() and not one.user_attrs.get("lost")]


def tried(folder: Path, name: str = "small vanilla") -> list[tuple[str, int]]:
    """Points and seeds of all trials that came to an end, in an order that does not depend on theirs."""
    ended = came_to_an_end(kept(folder, name))
    return sorted((json.dumps(one.params, sort_keys=True), int(one.user_attrs["seed"])) for one in ended)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of 15 trials of one process that nothing stopped."""
    folder = tmp_path_factory.mktemp("undisturbed")
    assert finish([search(folder)], Instant())
    return folder


# ---------------------------------------------------------------------------------------------
# Spaces
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", ["uniform", "log"])
@pytest.mark.parametrize("method", NETWORK)
def test_networks_have_the_papers_space(method: str, scale: Scale) -> None:
    """Its ranges and choices; what is drawn evenly there may be drawn evenly in its logarithm."""
    space, log = dict(space_of(method, 10_000, scale)), scale == "log"
    delta = space.pop("delta", None)
    assert space == {
        "lr": Uniform(1e-5, 1e-1, log=log),
        "hidden": (64, 128, 256),
        "layers": (2, 3),
        "weight_decay": Uniform(1e-7, 1e-1, log=log),
        "backbone": ("gcn", "sage"),
    }
    assert delta == (None if method == "vanilla" else Uniform(0.5, 1.0, log=False))


@pytest.mark.parametrize("method", ENSEMBLES)
def test_ensembles_have_two_to_fifteen_members(method: str) -> None:
    assert dict(space_of(method, 10_000, "uniform")) == {"size": (2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)}


def test_knn_lj_has_the_papers_k() -> None:
    assert dict(space_of("knn-lj", 10_000, "log")) == {"k": (5, 10, 20, 50, 100, 200)}


@pytest.mark.parametrize("nodes", [5, 96, 100, 871, 4999, 5000])
@pytest.mark.parametrize("method", ["knn", "knn-lj"])
def test_k_is_never_above_the_training_nodes(method: str, nodes: int) -> None:
    wanted = tuple(k for k in SPACES[method]["k"] if k <= nodes)  # type: ignore[union-attr]
    assert space_of(method, nodes, "uniform")["k"] == wanted
    assert wanted
    assert len(SPACES[method]["k"]) >= len(wanted)  # type: ignore[arg-type]


def test_the_spaces_of_a_task_know_its_training_nodes(tmp_path: Path) -> None:
    task = small_task()
    nodes = len(task.training.train)
    assert 50 < nodes < 200
    studies = Studies(tmp_path, "sealed", "uniform")
    for name in ("knn", "knn-lj"):
        space = Tuning("small", task, studies, [name], 3).spaces[name]
        assert max(space["k"]) <= nodes  # type: ignore[type-var, arg-type]
        assert 50 in space["k"]  # type: ignore[operator]
    part = Reproduction("small", task, studies, Budget(2, 3, 3, 1))
    assert search_all([part], studies, Instant(), None, lambda _: None)
    assert all(one.params["k"] <= nodes for one in kept(tmp_path, "small knn"))


def test_methods_without_a_space_are_refused() -> None:
    without = [name for name in METHODS if name not in SPACES]
    assert sorted(without) == ["credal-coverage", "degree", "feature-sum"]
    for name in without:
        with pytest.raises(MethodError, match=f"{name} has nothing to tune"):
            space_of(name, 1000, "log")


@pytest.mark.parametrize("method", [name for name in SPACES if math.isfinite(size(SPACES[name]))])
def test_points_are_all_of_a_finite_space_and_each_can_be_used(method: str) -> None:
    space = SPACES[method]
    found = list(points(space))
    assert len(found) == size(space) == math.prod(len(values) for values in space.values())  # type: ignore[arg-type]
    assert len({json.dumps(point, sort_keys=True) for point in found}) == len(found)
    for point in found:
        assert set(point) == set(space)
        assert all(point[name] in space[name] for name in space)  # type: ignore[operator]
        METHODS[method](**point)


def test_size() -> None:
    assert size(FINITE) == 16
    assert size({"k": (1, 2)}) == 2
    assert size(ENDLESS) == math.inf
    assert all(math.isinf(size(SPACES[name])) for name in NETWORK)


def test_draws_stay_within_the_space_and_reach_all_of_it() -> None:
    space = SPACES["credal-lj"]
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    found = [draw(space, study.ask()) for _ in range(200)]
    for name, one in space.items():
        values = [point[name] for point in found]
        if isinstance(one, Uniform):
            assert one.low <= min(values) <= max(values) <= one.high
            assert abs(np.mean(values) - (one.low + one.high) / 2) < 0.1 * (one.high - one.low)  # even, not in its log
        else:
            assert set(values) == set(one)
        assert all(list(point) == list(space) for point in found)
    METHODS["credal-lj"](**found[0])


# ---------------------------------------------------------------------------------------------
# What decides
# ---------------------------------------------------------------------------------------------


def judged(**other: float | None) -> Evaluation:
    """An evaluation in which every number is another one."""
    numbers = {"accuracy": 0.11, "nll": 0.22, "auroc": 0.33, "misclassification_auroc": 0.44, "decoy": 0.55} | other
    metrics = {"accuracy": numbers["accuracy"], "macro_f1": 0.66, "nll": numbers["nll"], "accuracy_lower": 0.77}
    headline = {name: numbers[name] for name in ("auroc", "misclassification_auroc")}
    decoy = {name: numbers["decoy"] for name in headline}
    return Evaluation("EU", metrics, {"AU": decoy, "EU": headline, "TU": decoy}, {}, ())


@pytest.mark.parametrize("method", list(SPACES))
def test_the_papers_objective(method: str) -> None:
    run = Run("small", method, 0, "paper")
    assert objective(run, judged()) == (0.11 if method in ["vanilla", *ENSEMBLES] else 0.33)


@pytest.mark.parametrize("method", list(SPACES))
def test_the_sealed_objective(method: str) -> None:
    run = Run("small", method, 0, "sealed")
    assert objective(run, judged()) == (0.44 if method in POST_HOC else -0.22)
    assert objective(run, judged(auroc=0.99, decoy=0.99)) == objective(run, judged())


def test_an_objective_that_cannot_tell_is_none() -> None:
    assert objective(Run("small", "energy", 0, "sealed"), judged(misclassification_auroc=None)) is None


SHORT: dict[str, Any] = {"hidden": 8, "epochs": 6, "patience": 6}


def short_run(method: str, protocol: Any, seed: int = 1000) -> Run:
    own = {"size": 2} if method in ENSEMBLES else SHORT if method in NETWORK else {"k": 10} if "knn" in method else {}
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
    found = try_point(run, blind(small_task()), Models(tmp_path), {})
    assert math.isfinite(found["value"])
    assert found["seconds"] >= 0.0
    other = small_task(test_labels="other")
    assert (other.test.labels != small_task().test.labels).any()
    assert try_point(run, other, Models(tmp_path), {})["value"] == found["value"]


@pytest.mark.parametrize("method", list(SPACES))
def test_a_sealed_trial_does_not_depend_on_ood_nodes(method: str, tmp_path: Path) -> None:
    """The same ID validation nodes beside other OOD nodes."""
    one, other = small_task(0), small_task(1)
    assert set(one.training.val.tolist()) == set(other.training.val.tolist())
    assert not set(one.validation.nodes[one.validation.is_ood].tolist()) & set(
        other.validation.nodes[other.validation.is_ood].tolist()
    )
    values = {
        protocol: [try_point(short_run(method, protocol), task, Models(tmp_path), {})["value"] for task in (one, other)]
        for protocol in PROTOCOLS
    }
    assert values["sealed"][0] == values["sealed"][1]
    by_accuracy = method in ["vanilla", *ENSEMBLES]
    assert (values["paper"][0] == values["paper"][1]) == by_accuracy, "the paper's credal objective looks at OOD nodes"


@pytest.mark.parametrize("method", list(SPACES))
def test_an_inductive_trial_does_not_see_other_nodes(method: str, tmp_path: Path) -> None:
    """Neither its training nor its value: test nodes and strangers have not come yet."""
    task, run = replace(small_task(), inductive=True), short_run(method, "sealed")
    one, other = (try_point(run, each, Models(tmp_path), {})["value"] for each in (task, disturbed(task)))
    assert math.isfinite(one)
    assert one == other
    if method in ("vanilla", "knn"):  # else the test could not fail
        flat = replace(task, inductive=False)
        values = [try_point(run, each, Models(tmp_path), {})["value"] for each in (flat, disturbed(flat))]
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
    assert try_point(run, task, Models(tmp_path), {})["value"] == pytest.approx(expected)
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
    found = try_point(run, task, Models(tmp_path), {})
    assert found["value"] == pytest.approx(roc_auc_score(part.is_ood.numpy(), prediction.scores["EU"].numpy()))
    run = short_run("vanilla", "sealed")
    method = METHODS["vanilla"](**run.config, seed=1000).fit(task)
    p = method.predict(nodes=part.nodes[known]).probabilities
    assert p is not None
    found = try_point(run, task, Models(tmp_path), {})
    assert found["value"] == pytest.approx(p.gather(-1, part.labels[known][:, None]).log().mean().item())


def test_a_training_that_fails_is_a_result(tmp_path: Path) -> None:
    for method in ("vanilla", "credal-lj"):
        run = plan("small", method, 0, "sealed", 0, {**SHORT, "lr": 1e30})
        found = try_point(run, small_task(), Models(tmp_path), {})
        assert "value" not in found
        assert "lower lr" in found["error"]


# ---------------------------------------------------------------------------------------------
# Hopeless trials
# ---------------------------------------------------------------------------------------------


def lines(monitor: Callable[[int], float], last: int) -> list[Epoch]:
    return [Epoch(epoch, 1.0, monitor(epoch)) for epoch in range(last + 1)]


def test_a_watch_follows_the_best_and_gives_up_above_a_hurdle() -> None:
    watch = Watch({})
    for line in lines(lambda epoch: -100.0 if epoch == 0 else 200.0 - epoch if epoch < 80 else 500.0, 120):
        watch(line)
    assert watch.seen == {50: 150.0, 100: 121.0}  # neither the untrained weights nor the last ones
    watch = Watch({50: 1.0, 100: 0.5})
    with pytest.raises(Hopeless):
        list(map(watch, lines(lambda epoch: 0.8, 200)))
    assert watch.seen == {50: 0.8, 100: 0.8}
    watch = Watch({50: 0.8, 100: 0.8})
    for line in lines(lambda epoch: 0.8, 130):  # as good as the hurdle is good enough
        watch(line)


@pytest.mark.parametrize("method", ["credal-lj", "credal-final"])
def test_a_hopeless_trial_is_given_up(method: str, tmp_path: Path) -> None:
    run = plan("small", method, 1000, "paper", 0, {"hidden": 8, "epochs": 55, "patience": 55})
    found = try_point(run, small_task(), Models(tmp_path), {50: -2.0})
    assert found.get("hopeless") is True
    assert "value" not in found
    assert list(found["seen"]) == [50]
    found = try_point(run, small_task(), Models(tmp_path), {50: 10.0})
    assert list(found["seen"]) == [50]
    assert math.isfinite(found["value"])


def with_curve(run: Run) -> dict[str, Any]:
    """Every fourth trial stops before epoch 100; none is given up by itself."""
    found = worth(run)
    found["seen"] = {50: found["value"]} | ({} if run.seed % 4 == 0 else {100: found["value"] / 2})
    return found


def test_hurdles_need_enough_others(tmp_path: Path) -> None:
    """A hurdle is what three of four trials of earlier rounds were below, and there is none by fewer than FEWEST."""
    one, engine = search(tmp_path, trials=24, prune=True), Instant(slots=3, answer=with_curve)
    before: list[tuple[dict[int, float], list[dict[str, float]]]] = []
    while not one.is_finished:
        seen = [trial.user_attrs["seen"] for trial in came_to_an_end(kept(tmp_path))]
        for number, unit in one.next_trials():
            before.append((unit.args[0], seen))
            one.tell(number, with_curve(unit.run))
    assert len(before) == 24
    for hurdles, curves in before:
        for check in CHECKS:
            values = [curve[str(check)] for curve in curves if str(check) in curve]
            assert (check in hurdles) == (len(values) >= FEWEST)
            if check in hurdles:
                assert hurdles[check] == pytest.approx(np.quantile(values, 0.75))
    assert not before[6][0]
    assert {50, 100} == set(before[-1][0])
    assert engine.units == []


def test_trials_given_up_count_as_ended_and_are_never_the_best(tmp_path: Path) -> None:
    def answer(run: Run) -> dict[str, Any]:
        return worth(run) if run.seed % 3 else {"hopeless": True, "seen": {50: 1.0}, "seconds": 0.0}

    one = search(tmp_path, trials=12, prune=True)
    assert finish([one], Instant(slots=2, answer=answer))
    states = [trial.state for trial in kept(tmp_path)]
    assert states.count(TrialState.PRUNED) == 4
    assert len(states) == 12
    assert len(one.top(50)) == 8
    assert all(best.seed % 3 for best in one.top(50))


def test_without_comparable_monitors_nothing_is_given_up(tmp_path: Path) -> None:
    one, engine = search(tmp_path, trials=20), Instant(answer=with_curve)
    assert finish([one], engine)
    assert all(unit.args == ({},) for unit in engine.units)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_which_monitors_can_be_compared(protocol: Any, tmp_path: Path) -> None:
    studies = Studies(tmp_path, protocol, "uniform")
    can = {name: studies.search(small_task(), name, ENDLESS, 3, a_run, []).prune for name in SPACES}
    wanted = {"credal-lj", "credal-final"} if protocol == "paper" else set()
    assert {name for name in can if can[name]} == wanted


# ---------------------------------------------------------------------------------------------
# Searches
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("slots", "order"), [(1, 1), (2, 2), (5, 3), (9, 4)])
def test_what_is_tried_does_not_depend_on_the_slots(slots: int, order: int, tmp_path: Path, undisturbed: Path) -> None:
    one = search(tmp_path)
    assert finish([one], Instant(slots, order))
    assert tried(tmp_path) == tried(undisturbed)
    assert one.top(15) == search(undisturbed).top(15)
    seeds = [trial.user_attrs["seed"] for trial in kept(tmp_path)]
    assert sorted(seeds) == list(range(1000, 1015))
    assert len({json.dumps(trial.params) for trial in kept(tmp_path)}) == 15


def test_searches_side_by_side_do_not_change_each_other(tmp_path: Path, undisturbed: Path) -> None:
    both = [search(tmp_path), search(tmp_path, FINITE, 30, "other")]
    assert finish(both, Instant(4))
    assert tried(tmp_path) == tried(undisturbed)
    assert len(tried(tmp_path, "other")) == 16


def test_the_best_come_first_and_of_equals_the_earlier(tmp_path: Path) -> None:
    one = search(tmp_path, trials=10)
    assert finish([one], Instant(2, answer=lambda run: {"value": float(run.seed // 2 % 3)}))
    trials = sorted(kept(tmp_path), key=lambda trial: (-(trial.value or 0.0), trial.number))
    wanted = [Best(trial.params, float(trial.value or 0.0), trial.user_attrs["seed"]) for trial in trials]
    assert one.top(10) == wanted
    assert one.top(3) == wanted[:3]
    assert one.top(1)[0].value == 2.0
    early = [best for best in wanted if best.seed < 1004]
    assert one.top(10, among=4) == early
    assert len(early) == 4
    assert one.top(1, among=2) == early[-2:-1] or one.top(1, among=2)[0].seed == 1000


def test_a_finite_space_is_tried_point_by_point(tmp_path: Path) -> None:
    one = search(tmp_path, FINITE, 30)
    assert one.trials == 16
    assert finish([one], Instant(3))
    wanted = [json.dumps(point, sort_keys=True) for point in points(FINITE)]
    assert [json.dumps(trial.params, sort_keys=True) for trial in kept(tmp_path)] == wanted
    assert not search(tmp_path, FINITE, 30).next_trials()


def test_a_finite_space_larger_than_the_trials_is_sampled(tmp_path: Path) -> None:
    one = search(tmp_path, FINITE, 10)
    assert finish([one], Instant(2))
    assert len(kept(tmp_path)) == 10


def test_failures_count_as_ended_and_do_not_stop_the_search(tmp_path: Path) -> None:
    def answer(run: Run) -> dict[str, Any]:
        return {"error": "the loss is nan", "seen": {}, "seconds": 0.0} if run.seed < 1003 else worth(run)

    one = search(tmp_path, trials=9)
    assert finish([one], Instant(2, answer=answer))
    assert len(kept(tmp_path)) == len(one.ended) == 9
    assert [trial.state for trial in kept(tmp_path)].count(TrialState.FAIL) == 3
    assert kept(tmp_path)[0].user_attrs["error"] == "the loss is nan"
    assert len(one.top(9)) == 6
    with pytest.raises(EngineError, match="none of 3 trials"):
        one.top(1, among=3)


def test_a_value_that_is_no_number_is_a_failure(tmp_path: Path) -> None:
    one = search(tmp_path, trials=4)
    assert finish([one], Instant(answer=lambda run: {"value": math.nan if run.seed % 2 else 1.0}))
    assert len(one.ended) == 4
    assert len(one.top(9)) == 2


def test_where_the_validation_nodes_cannot_tell_the_defaults_stay(tmp_path: Path) -> None:
    """A post-hoc method on a vanilla GNN that is right everywhere: there is no wrong node to find."""

    def answer(run: Run) -> dict[str, Any]:
        return {"value": None, "seen": {}, "seconds": 0.0} if run.method == "energy" else worth(run)

    studies = Studies(tmp_path, "sealed", "log")
    part = Tuning("small", small_task(), studies, ["vanilla", "energy", "knn"], 3)
    assert search_all([part], studies, Instant(answer=answer), None, lambda ended: None)
    assert part.best()["energy"] == Best({}, None, 1000)
    methods = json.loads((tmp_path / "best.json").read_text())["best"]["small"]["methods"]
    assert methods["energy"] == {"config": {}, "vanilla": methods["vanilla"]["config"], "value": None}
    assert methods["knn"]["config"]


def test_a_death_among_those_that_cannot_tell(tmp_path: Path) -> None:
    one = search(tmp_path, trials=4)
    assert finish([one], Instant(answer=lambda run: {"error": "oom"} if run.seed == 1002 else {"value": None}))
    assert one.top(1) == [Best({}, None, 1000)]


def test_one_trial_that_can_tell_is_enough(tmp_path: Path) -> None:
    one = search(tmp_path, trials=4)
    assert finish([one], Instant(answer=lambda run: {"value": 1.0 if run.seed == 1002 else None}))
    assert [best.seed for best in one.top(9)] == [1002]


def test_units_that_die_are_failures(tmp_path: Path) -> None:
    class Deadly(Instant):
        def finished(self, timeout: float) -> list[Result]:
            found = super().finished(timeout)
            return [Result(one.unit, None, "signal 9") if one.unit.run.seed == 1001 else one for one in found]

    one = search(tmp_path, trials=4)
    assert finish([one], Deadly(2))
    assert [trial.user_attrs.get("error") for trial in kept(tmp_path)] == [None, "signal 9", None, None]
    assert len(one.top(9)) == 3
    assert search(tmp_path, trials=4).is_finished, "what stands on a finished search does not change"
    engine = Instant()
    assert finish([again := search(tmp_path, trials=5)], engine), "what died is tried again while a search is open"
    assert [unit.run.seed for unit in engine.units] == [1001, 1004]
    assert engine.units[0].run.config == kept(tmp_path)[1].params
    assert sorted(best.seed for best in one.top(9)) == [1000, 1001, 1002, 1003, 1004]
    assert one.top(9) == again.top(9)


def test_if_all_workers_die_the_next_command_begins_again(tmp_path: Path, undisturbed: Path) -> None:
    class Doomed(Instant):
        def finished(self, timeout: float) -> list[Result]:
            return [Result(one.unit, None, "No space left on device") for one in super().finished(timeout)]

    one = search(tmp_path)
    assert finish([one], Doomed(2))
    with pytest.raises(EngineError, match=r"none of 15 trials.*No space left"):
        one.top(1)
    assert finish([search(tmp_path)], Instant(2))
    assert search(tmp_path).top(15, among=12) == search(undisturbed).top(15, among=12)


def test_a_trial_that_another_took_over_is_not_told_twice(tmp_path: Path) -> None:
    """Two machines with folders of their own share a database, and the slower one is taken for dead."""
    url = f"sqlite:///{tmp_path / 'trials.db'}"

    def at(folder: str) -> Search:
        owners = Owned(tmp_path / folder / ".owners")
        return Search("small vanilla", "0", ENDLESS, 6, a_run, open_storage(tmp_path, url), owners)

    slow, fast = at("slow"), at("fast")
    mine = slow.next_trials(2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuning, "UNSEEN", 0.0)
        theirs = fast.next_trials()
    assert len(theirs) == 6
    slow.tell(mine[0][0], {"value": 0.1, "seconds": 1.0})
    slow.tell(mine[1][0], {"value": 0.1})
    for number, _ in theirs:
        fast.tell(number, {"value": 0.9})
    assert [one.value for one in slow.ended] == [0.9] * 6


def test_processes_share_a_round(tmp_path: Path) -> None:
    """Nobody takes more than can be begun at once, so that others have something to do."""
    first, second = search(tmp_path), search(tmp_path)
    units = [*first.next_trials(2), *second.next_trials(3), *first.next_trials(2)]
    assert sorted(unit.run.seed for _, unit in units) == list(range(1000, 1006))
    assert not second.next_trials(2), "the next round begins when this one has ended"


def test_if_all_fail_the_error_says_so(tmp_path: Path) -> None:
    one = search(tmp_path, trials=7)
    assert finish([one], Instant(answer=lambda run: {"error": f"lower lr, seed {run.seed}"}))
    with pytest.raises(EngineError, match=r"small vanilla: none of 7 trials.*lower lr, seed 1006"):
        one.top(1)


def test_progress_is_told(tmp_path: Path) -> None:
    told: list[tuple[int, str, float]] = []
    both = [search(tmp_path, trials=5), search(tmp_path, FINITE, 3, "other")]
    assert carry_out(both, Instant(3), None, lambda done, one, found: told.append((done, one.name, found["value"])))
    assert [done for done, _, _ in told] == list(range(1, 9))
    assert [name for _, name, _ in told].count("small vanilla") == 5


# ---------------------------------------------------------------------------------------------
# Stops, deaths and company
# ---------------------------------------------------------------------------------------------


def ticking(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that goes on by one whenever somebody looks at it."""
    clock = SimpleNamespace(monotonic=itertools.count().__next__, sleep=time.sleep, time=time.time)
    monkeypatch.setattr(tuning, "time", clock)


@pytest.mark.parametrize("space", [ENDLESS, FINITE], ids=["endless", "finite"])
@pytest.mark.parametrize("ticks", [0, 1, 4, 8])
def test_a_search_goes_on_after_a_deadline(
    ticks: int, space: Space, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = search(tmp_path, space, 20)
    with monkeypatch.context() as patch:
        ticking(patch)
        assert not carry_out([first], Instant(2), deadline=ticks)
    before = {one.number: (one.params, one.user_attrs.get("seed"), one.state) for one in kept(tmp_path)}
    open_ones = sorted((str(p), s) for p, s, state in before.values() if state == TrialState.RUNNING)
    assert len(came_to_an_end(kept(tmp_path))) < first.trials
    assert open_ones or not ticks
    die(first)
    second = search(tmp_path, space, 20)
    assert finish([second], Instant(2))
    assert len(second.ended) == first.trials == (16 if space is FINITE else 20)
    trials = kept(tmp_path)
    assert {one.state for one in trials} <= {TrialState.COMPLETE, TrialState.FAIL}
    lost = sorted((str(one.params), one.user_attrs["seed"]) for one in trials if one.user_attrs.get("lost"))
    assert lost == open_ones
    again = [(str(one.params), one.user_attrs["seed"]) for one in came_to_an_end(trials)]
    assert all(again.count(one) == 1 for one in lost), "with the same point and seed, once"
    assert len({point for point, _ in again}) == len(again), "no point is tried twice"


def test_a_finished_search_does_nothing(tmp_path: Path) -> None:
    assert finish([search(tmp_path, trials=4)], Instant())
    before = kept(tmp_path)
    engine = Instant()
    assert carry_out([search(tmp_path, trials=4)], engine, deadline=0.0)
    assert not engine.units
    assert kept(tmp_path) == before
    more = search(tmp_path, trials=6)  # more were asked for later
    assert finish([more], engine)
    assert len(engine.units) == 2


@pytest.mark.parametrize("ticks", [1, 4, 7, 10])
def test_a_stop_does_not_change_what_is_tried(
    ticks: int, tmp_path: Path, undisturbed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = search(tmp_path)
    with monkeypatch.context() as patch:
        ticking(patch)
        assert not carry_out([first], Instant(2), deadline=ticks)
    die(first)
    assert finish([second := search(tmp_path)], Instant(2))
    assert tried(tmp_path) == tried(undisturbed)
    assert second.top(15, among=8) == search(undisturbed).top(15, among=8)


class Killed(BaseException):
    """The end of a process, wherever it is."""


@pytest.mark.parametrize("space", [ENDLESS, FEW], ids=["endless", "finite"])
def test_a_death_at_any_write_costs_nothing(space: Space, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Die before the n-th write to the journal, for many n, and go on: what is tried is the same."""
    monkeypatch.setattr(tuning, "timedelta", lambda **_: timedelta(0), raising=False)  # do not wait for the unsigned
    trials = 8 if space is FEW else 9
    append, left = JournalFileBackend.append_logs, [10**9]

    def mortal(self: JournalFileBackend, logs: list[dict[str, Any]]) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise Killed
        append(self, logs)

    monkeypatch.setattr(JournalFileBackend, "append_logs", mortal)
    assert finish([search(tmp_path / "whole", space, trials)], Instant(2))
    seeds = slice(1) if space is FEW else slice(2)  # trials of a finite space do not use theirs
    writes, wanted = 10**9 - left[0], [one[seeds] for one in tried(tmp_path / "whole")]
    bad: dict[int, str] = {}
    for number in [*range(1, writes // 2, 4), *range(writes // 2, writes, 10)]:
        folder = tmp_path / str(number)
        left[0] = number
        first = None
        with pytest.raises(Killed):
            carry_out([first := search(folder, space, trials)], Instant(2))
        left[0] = 10**9
        if first is not None:
            die(first)
        assert finish([search(folder, space, trials)], Instant(2))
        found = tried(folder)
        if len(found) != trials:
            bad[number] = f"{len(found)} trials"
        elif len({point for point, _ in found}) != trials:
            bad[number] = f"{trials - len({point for point, _ in found})} points twice"
        elif [one[seeds] for one in found] != wanted:
            bad[number] = "other points or seeds"
    assert not bad, f"of {writes} writes"


def test_trials_of_the_living_are_left_alone(tmp_path: Path) -> None:
    first, second = search(tmp_path, trials=9), search(tmp_path, trials=9)
    mine = dict(first.next_trials())
    second.next_trials()
    states = {one.number: one for one in kept(tmp_path)}
    assert mine
    assert all(
        states[number].state == TrialState.RUNNING and "lost" not in states[number].user_attrs for number in mine
    )
    assert not first.next_trials(), "while one's own are under way, none"


def test_two_that_take_turns_try_what_one_would(tmp_path: Path, undisturbed: Path) -> None:
    """Two searches on one storage, one of them always a step behind."""
    pair = [search(tmp_path), search(tmp_path)]
    waiting: list[tuple[Search, int, Unit]] = []
    for _ in range(1000):
        for one in pair:
            waiting.extend((one, number, unit) for number, unit in one.next_trials())
        if not waiting:
            break
        one, number, unit = waiting.pop()
        one.tell(number, worth(unit.run))
    ended = came_to_an_end(kept(tmp_path))
    assert len(ended) == len(kept(tmp_path)) == 15
    assert len({json.dumps(trial.params) for trial in ended}) == 15, "points are tried twice"
    assert tried(tmp_path) == tried(undisturbed)


def child(role: str, folder: Path, gate: Path) -> None:
    """What another process does; see below."""
    if role == "ask":  # begins a round of each study, ends two trials of it, and never comes back
        for name, space in (("endless", ENDLESS), ("finite", FINITE)):
            one = search(folder, space, 30, name)
            for number, unit in one.next_trials()[:2]:
                one.tell(number, worth(unit.run))
        (gate / f"{role}-{folder.name}").touch()
        time.sleep(600)
    (gate / str(os.getpid())).touch()
    while not (gate / "open").exists():
        time.sleep(0.001)
    for name, space, trials in (("finite", FINITE, 30), ("endless", ENDLESS, 20)):
        if not carry_out([search(folder, space, trials, name)], Instant(2, os.getpid()), time.monotonic() + 300):
            raise TimeoutError


def start_child(role: str, folder: Path, gate: Path) -> subprocess.Popen[str]:
    words = f"from test_tuning import Path, child; child({role!r}, Path({str(folder)!r}), Path({str(gate)!r}))"
    path = os.pathsep.join([str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    return subprocess.Popen([sys.executable, "-c", words], stderr=subprocess.PIPE, text=True, env=environment)


def until(condition: Callable[[], Any], what: str, timeout: float = 300) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"waited {timeout} s in vain for {what}"
        time.sleep(0.01)


def waited(children: Sequence[subprocess.Popen[str]], signs: Sequence[Path]) -> None:
    """Wait until children are where they shall be."""
    until(lambda: all(sign.exists() for sign in signs) or any(one.poll() for one in children), "children")
    for one in children:
        assert one.poll() is None, one.communicate()[1]


def test_trials_of_a_killed_process_are_done_again(tmp_path: Path) -> None:
    """One process is killed, another in the same state lives on: the trials of the first only are done again."""
    dead, alive, gate = tmp_path / "dead", tmp_path / "alive", tmp_path
    both = [start_child("ask", folder, gate) for folder in (dead, alive) if not folder.mkdir()]
    try:
        waited(both, [gate / "ask-dead", gate / "ask-alive"])
        both[0].kill()
        both[0].wait()
        for name, space, total in (("endless", ENDLESS, 30), ("finite", FINITE, 16)):
            begun = [one for one in kept(dead, name) if one.state == TrialState.RUNNING]
            assert len(begun) == 4
            again = search(dead, space, 30, name)
            units = [unit for _, unit in again.next_trials()]
            found = [(unit.run.config, unit.run.seed) for unit in units]
            assert all((one.params, one.user_attrs["seed"]) in found for one in begun)
            assert [kept(dead, name)[one.number].state for one in begun] == [TrialState.FAIL] * 4
            die(again)
            assert finish([last := search(dead, space, 30, name)], Instant(2))
            assert len(last.ended) == total
            assert len({json.dumps(one.params) for one in last.ended}) == total
            before = [(one.number, one.params) for one in kept(alive, name) if one.state == TrialState.RUNNING]
            other = search(alive, space, 6, name)  # no more than the living one has begun
            assert not other.next_trials()
            after = [(one.number, one.params) for one in kept(alive, name) if one.state == TrialState.RUNNING]
            assert len(before) == 4
            assert after == before
            assert not any(one.user_attrs.get("lost") for one in kept(alive, name))
    finally:
        for process in both:
            process.kill()
            process.communicate()


def test_processes_share_a_search(tmp_path: Path) -> None:
    """Two at once, with trials that take no time: nothing is lost, doubled, or done beyond what was asked for."""
    folder = tmp_path / "shared"
    folder.mkdir()
    children = [start_child("work", folder, tmp_path) for _ in range(2)]
    try:
        waited(children, [tmp_path / str(one.pid) for one in children])
        (tmp_path / "open").touch()
        said = [one.communicate(timeout=400)[1] for one in children]
        assert [one.returncode for one in children] == [0, 0], said
    finally:
        for process in children:
            process.kill()
            process.communicate()
    for name, total in (("finite", 16), ("endless", 20)):
        trials = kept(folder, name)
        counts = {state.name: sum(one.state == state for one in trials) for state in TrialState}
        assert counts == {"RUNNING": 0, "COMPLETE": total, "PRUNED": 0, "FAIL": 0, "WAITING": 0}, name
        assert len({json.dumps(one.params, sort_keys=True) for one in trials}) == total, f"{name}: points tried twice"
        assert len({one.user_attrs["seed"] for one in trials}) == total


# ---------------------------------------------------------------------------------------------
# Storage
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("half", [b'{"op_code":4,"worker', b"{", b'{"op_code":4,"worker_id":"x"}'])
def test_half_a_line_at_the_end_of_a_journal_is_mended(half: bytes, tmp_path: Path) -> None:
    first = search(tmp_path, trials=4)
    assert finish([first], Instant())
    journal = tmp_path / "tuning.journal"
    whole = journal.read_bytes()
    with journal.open("ab") as file:
        file.write(half)
    second = search(tmp_path, trials=6)
    assert journal.read_bytes().startswith(whole)
    assert second.ended[:4] == first.ended
    assert finish([second], Instant())
    assert len(came_to_an_end(kept(tmp_path))) == 6
    assert all(json.loads(line) for line in journal.read_bytes().splitlines())


def test_half_a_line_is_mended_while_others_work(tmp_path: Path) -> None:
    """Somebody else dies in the middle of a write: the next one to write cuts the half line off."""
    one = search(tmp_path, trials=12)
    units = one.next_trials()
    with (tmp_path / "tuning.journal").open("ab") as journal:
        journal.write(b'{"op_code":4,"wor')
    for number, _ in units:
        one.tell(number, {"value": 1.0})
    assert len(search(tmp_path, trials=12).ended) == len(units)


def test_a_journal_that_is_damaged_is_named(tmp_path: Path) -> None:
    """A whole line that cannot be read was not left by a kill; nothing is cut off in silence."""
    assert finish([search(tmp_path, trials=2)], Instant())
    journal = tmp_path / "tuning.journal"
    journal.write_bytes(journal.read_bytes() + b"garbage\n")
    with pytest.raises(EngineError, match=re.escape(str(journal))):
        search(tmp_path, trials=2)
    assert journal.read_bytes().endswith(b"garbage\n")


def test_half_a_first_line_is_mended(tmp_path: Path) -> None:
    (tmp_path / "tuning.journal").write_bytes(b'{"op_code":0,"stu')
    assert finish([search(tmp_path, trials=2)], Instant())
    assert len(kept(tmp_path)) == 2


def test_a_whole_journal_is_left_as_it_is(tmp_path: Path) -> None:
    assert finish([search(tmp_path, trials=2)], Instant())
    before = (tmp_path / "tuning.journal").read_bytes()
    open_storage(tmp_path)
    assert (tmp_path / "tuning.journal").read_bytes() == before


def test_a_database_does_as_well(tmp_path: Path, undisturbed: Path) -> None:
    url = f"sqlite:///{tmp_path / 'trials.db'}"
    storage = open_storage(tmp_path, url)
    one = Search("small vanilla", "0", ENDLESS, 15, a_run, storage, Owned(tmp_path / ".owners"), prune=True)
    assert finish([one], Instant(3, answer=with_curve))
    assert not (tmp_path / "tuning.journal").exists()
    other = open_storage(tmp_path, url)
    again = Search("small vanilla", "0", ENDLESS, 15, a_run, other, Owned(tmp_path / ".owners"))
    assert again.is_finished
    assert again.top(15) == one.top(15) == search(undisturbed).top(15)
    assert again.ended[0].user_attrs["seen"]
    for each in (storage, other):
        assert isinstance(each, optuna.storages.RDBStorage)
        each.remove_session()
        each.engine.dispose()


@pytest.mark.parametrize(
    "url", ["nonsense", "", "nosuchdb://host/trials", "sqlite:////no/such/folder/trials.db", "mysql://nobody@:x/y"]
)
def test_a_storage_that_cannot_be_opened_is_an_engine_error(url: str, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="--storage") as caught:
        open_storage(tmp_path, url)
    assert "\n" not in str(caught.value)
    assert url in str(caught.value)


# ---------------------------------------------------------------------------------------------
# What was found, for bench --tuned
# ---------------------------------------------------------------------------------------------


def as_found(**configs: Point) -> dict[str, dict[str, Any]]:
    return {name: {"config": config, "vanilla": {}, "value": 0.5} for name, config in configs.items()}


def tuned_by_hand(folder: Path, task: Task, **configs: Point) -> Path:
    """A folder as ``tune`` leaves it behind, under the sealed protocol."""
    folder.mkdir(exist_ok=True)
    (folder / "experiment.json").write_text('{"kind": "tune"}')
    write_best(folder, "sealed", task, as_found(**configs))
    return folder


def test_what_is_written_can_be_used(tmp_path: Path) -> None:
    folder = tuned_by_hand(tmp_path / "out", small_task(), vanilla={"lr": 0.1, "hidden": 64})
    write_best(folder, "sealed", small_task(), as_found(knn={"k": 5}))  # by another command, later
    assert tuned(folder, small_task(), "sealed") == as_found(vanilla={"lr": 0.1, "hidden": 64}, knn={"k": 5})
    write_best(folder, "sealed", small_task(), as_found(knn={"k": 10}))
    assert tuned(folder, small_task(), "sealed")["knn"]["config"] == {"k": 10}
    with pytest.raises(RecordError, match="tuned by the sealed protocol"):
        tuned(folder, small_task(), "paper")
    with pytest.raises(RecordError, match="only for small"):
        tuned(folder, replace(small_task(), name="other"), "sealed")
    with pytest.raises(RecordError, match="other data or another split"):
        tuned(folder, small_task(1), "sealed")
    with pytest.raises(RecordError, match=r"best\.json is missing"):
        tuned(tmp_path / "nowhere", small_task(), "sealed")
    with pytest.raises(RecordError, match="tuned in the transductive setting, and not in the inductive one"):
        tuned(folder, replace(small_task(), inductive=True), "sealed")
    (folder / "experiment.json").write_text('{"kind": "reproduce"}')
    with pytest.raises(RecordError, match="not of credalgnn tune"):
        tuned(folder, small_task(), "sealed")


def test_what_is_tuned_on_other_data_takes_the_place_of_what_was(tmp_path: Path) -> None:
    """Points found on a graph that has changed since are not mixed with those of the new one."""
    folder = tuned_by_hand(tmp_path / "out", small_task(0), vanilla={"lr": 0.1}, knn={"k": 5})
    write_best(folder, "sealed", small_task(1), as_found(vanilla={"lr": 0.2}))
    assert tuned(folder, small_task(1), "sealed") == as_found(vanilla={"lr": 0.2})
    with pytest.raises(RecordError, match="other data or another split"):
        tuned(folder, small_task(0), "sealed")


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{}", '{"protocol": "sealed"}', '{"protocol": "sealed", "best": 3}',
     '{"protocol": "sealed", "best": {"small": {}}}', '{"protocol": "sealed", "best": {"small": 3}}',
     '{"protocol": "sealed", "best": {"small": {"fingerprint": "FINGERPRINT"}}}'],
)  # fmt: skip
def test_a_damaged_best_is_refused(content: str, tmp_path: Path) -> None:
    folder = tuned_by_hand(tmp_path / "out", small_task())
    (folder / "best.json").write_text(content.replace("FINGERPRINT", small_task().fingerprint))
    with pytest.raises(RecordError):
        tuned(folder, small_task(), "sealed")


# ---------------------------------------------------------------------------------------------
# Several methods, and the paper's experiment, with an engine that only pretends
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("inductive", [False, True])
def test_trials_have_the_setting_of_their_task(inductive: bool, tmp_path: Path) -> None:
    studies, engine = Studies(tmp_path, "sealed", "uniform"), Instant()
    task = replace(small_task(), inductive=inductive)
    part = Tuning("small", task, studies, ["vanilla", "knn", "classical-ensemble"], 2)
    assert search_all([part], studies, engine, None, lambda _: None)
    assert len(engine.units) == 6
    assert {(unit.run.inductive, unit.run.setting) for unit in engine.units} == {
        (inductive, "inductive" if inductive else "transductive")
    }
    again = Tuning("small", replace(task, inductive=not inductive), studies, ["vanilla"], 2)
    assert not again.stage(0)[0].ended  # of the other setting nothing was tried


def test_the_papers_protocol_has_no_inductive_runs() -> None:
    assert plan("small", "vanilla", 0, inductive=True).setting == "inductive"
    with pytest.raises(MethodError, match="the paper's protocol is transductive"):
        plan("small", "vanilla", 0, "paper", inductive=True)


def test_methods_stand_on_the_vanilla_that_was_found(tmp_path: Path) -> None:
    """Tuning: vanilla first; what stands on it takes its best point, and trials share the networks."""
    studies, engine = Studies(tmp_path, "sealed", "uniform"), Instant(2)
    names = ["energy", "credal-lj", "classical-ensemble", "vanilla"]
    settings: dict[str, tuple[Point, Point]] = {
        "vanilla": ({"epochs": 9, "hidden": 8}, {}), "credal-lj": ({"epochs": 9, "hidden": 8}, {}),
        "energy": ({}, {"epochs": 9, "hidden": 8}), "classical-ensemble": ({}, {"epochs": 9, "hidden": 8}),
    }  # fmt: skip
    part = Tuning("small", small_task(), studies, names, 7, 3, settings)
    told: list[Ended] = []
    assert part.total == 7 + 7 + 4 + 7
    assert search_all([part], studies, engine, None, told.append)
    assert [one.done for one in told] == list(range(1, 26))
    assert {one.total for one in told} == {25}
    runs = {name: [unit.run for unit in engine.units if unit.run.method == name] for name in names}
    assert [len(runs[name]) for name in names] == [4, 7, 7, 7]
    assert [unit.run.method for unit in engine.units[:7]] == ["vanilla"] * 7
    best = part.best()
    assert best["vanilla"].value == max(worth(run)["value"] for run in runs["vanilla"])
    assert "hidden" not in best["vanilla"].config
    for run in (run for name in names for run in runs[name]):
        assert (run.protocol, run.split_seed, run.dataset) == ("sealed", 3, "small")
    for run in runs["vanilla"] + runs["credal-lj"]:
        assert (run.config["epochs"], run.config["hidden"]) == (9, 8)
    for run in runs["energy"] + runs["classical-ensemble"]:
        assert len(run.vanillas) == run.config.get("size", 1)
        assert [one["seed"] for one in run.vanillas] == [1000 + k for k in range(len(run.vanillas))]
        for one in run.vanillas:
            assert {**best["vanilla"].config, "epochs": 9, "hidden": 8}.items() <= one.items()
    kept_best = json.loads((tmp_path / "best.json").read_text())
    assert kept_best["protocol"] == "sealed"
    assert kept_best["best"]["small"]["fingerprint"] == small_task().fingerprint
    methods = kept_best["best"]["small"]["methods"]
    assert sorted(methods) == sorted(names)
    whole = {**best["vanilla"].config, "epochs": 9, "hidden": 8}
    assert methods["vanilla"] == {"config": whole, "vanilla": {}, "value": best["vanilla"].value}
    assert methods["energy"] == {"config": best["energy"].config, "vanilla": whole, "value": best["energy"].value}
    assert methods["credal-lj"]["config"] == {**best["credal-lj"].config, "epochs": 9, "hidden": 8}


def test_methods_stand_on_the_vanilla_that_an_earlier_command_found(tmp_path: Path) -> None:
    (tmp_path / "experiment.json").write_text('{"kind": "tune"}')
    studies = Studies(tmp_path, "sealed", "log")
    first = Tuning("small", small_task(), studies, ["vanilla"], 3)
    assert search_all([first], studies, Instant(), None, lambda ended: None)
    engine = Instant()
    for task, wanted in ((small_task(), first.best()["vanilla"].config), (small_task(1), {})):
        later = Tuning("small", task, studies, ["energy"], 3, settings={"energy": ({}, {"epochs": 5})})
        assert search_all([later], studies, engine, None, lambda ended: None)
        assert later.found()["energy"]["vanilla"] == {**wanted, "epochs": 5}
        assert {**wanted, "epochs": 5}.items() <= engine.units[-1].run.vanillas[0].items()


def test_a_search_belongs_to_all_that_its_trials_depend_on(tmp_path: Path) -> None:
    """Other data, protocol, settings or networks below: another study, never the trials of the first."""

    def of(task: Task, protocol: Any = "sealed", scale: Scale = "uniform", **below: Any) -> Search:
        part = Tuning("small", task, Studies(tmp_path, protocol, scale), ["energy"], 3, 0, {"energy": ({}, below)})
        part.stage(0)
        return part.stage(1)[0]

    assert finish([first := of(small_task(), epochs=5)], Instant())
    assert of(small_task(), epochs=5).is_finished
    assert of(small_task(), epochs=5).top(3) == first.top(3)
    others = [
        of(small_task(1), epochs=5), of(small_task(), "paper", epochs=5), of(small_task(), "sealed", "log", epochs=5),
        of(small_task(), epochs=6), of(small_task()),
    ]  # fmt: skip
    assert not any(one.ended for one in others)


def better_later(run: Run) -> dict[str, Any]:
    late = run.method == "vanilla" and run.seed >= 1010
    return {"value": worth(run)["value"] / 2 + (0.5 if late else 0.0)}


@pytest.fixture(scope="module")
def pretended(tmp_path_factory: pytest.TempPathFactory) -> tuple[Reproduction, Instant, Path]:
    """The paper's experiment with smaller budgets: 8 trials, a pool of 20, ensembles of up to 5, five runs.

    The best vanilla GNNs come late, after the first 8.
    """
    folder = tmp_path_factory.mktemp("pretended")
    studies, engine = Studies(folder, "paper", "uniform"), Instant(3, answer=better_later)
    part = Reproduction("small", small_task(), studies, Budget(8, 20, 5, 5, {"epochs": 7}))
    told: list[Ended] = []
    assert search_all([part], studies, engine, None, told.append)
    assert [one.done for one in told] == list(range(1, part.total + 1))
    assert {one.total for one in told} == {part.total}
    return part, engine, folder


def test_the_papers_budgets() -> None:
    assert Budget() == Budget(trials=30, pool=100, largest=15, runs=5, settings={})
    quick = Budget.quick()
    assert quick.runs == 2
    assert quick.trials < quick.pool < 30


def test_the_trials_of_the_experiment(pretended: tuple[Reproduction, Instant, Path]) -> None:
    _, engine, _ = pretended
    counts = {name: sum(unit.run.method == name for unit in engine.units) for name in METHODS}
    finite = {name: min(8, int(size(space_of(name, len(small_task().split.train), "uniform")))) for name in POST_HOC}
    assert counts == {
        "vanilla": 20, "credal-lj": 8, "credal-final": 8, "classical-ensemble": 4, "credal-ensemble": 0,
        **finite, "credal-coverage": 0, "degree": 0, "feature-sum": 0,
    }  # fmt: skip
    for unit in engine.units:
        networks = [unit.run.config] if unit.run.method in NETWORK else unit.run.vanillas
        assert all(one["epochs"] == 7 for one in networks)
        assert unit.run.protocol == "paper"


def pool_of(engine: Instant) -> list[Run]:
    """The vanilla GNNs by what they are worth, best first."""
    found = [unit.run for unit in engine.units if unit.run.method == "vanilla"]
    return sorted(found, key=lambda run: -better_later(run)["value"])


def test_post_hoc_methods_stand_on_the_best_of_the_first_trials(pretended: tuple[Reproduction, Instant, Path]) -> None:
    part, engine, _ = pretended
    pool = pool_of(engine)
    best = next(run for run in pool if run.seed < 1008)
    assert best != pool[0], "the pool has a better one, which is not for them"
    for unit in engine.units:
        if unit.run.method in POST_HOC:
            assert unit.run.vanillas == best.vanillas
    assert part.best()["vanilla"].seed == best.seed
    for run in part.runs():
        if run.method in (*POST_HOC, "credal-coverage"):  # which has nothing to tune of its own
            assert run.vanillas == ({**best.config, "seed": run.seed},)
        if run.method == "vanilla":
            assert run.config == best.config


def test_ensembles_are_made_of_the_best_of_the_pool(pretended: tuple[Reproduction, Instant, Path]) -> None:
    part, engine, _ = pretended
    pool = pool_of(engine)
    tried_sizes = {}
    for unit in engine.units:
        if unit.run.method == "classical-ensemble":
            members = unit.run.config["size"]
            assert unit.run.vanillas == tuple(run.vanillas[0] for run in pool[:members])
            tried_sizes[members] = better_later(unit.run)["value"]
    assert sorted(tried_sizes) == [2, 3, 4, 5]
    best = max(tried_sizes, key=lambda members: tried_sizes[members])
    for run in part.runs():
        if run.method in ENSEMBLES:
            assert run.config["size"] == best
            assert [{**one, "seed": 0} for one in run.vanillas] == [{**of.config, "seed": 0} for of in pool[:best]]


def test_the_runs_of_the_experiment(pretended: tuple[Reproduction, Instant, Path]) -> None:
    part, engine, folder = pretended
    runs = part.runs()
    assert sorted((run.method, run.seed) for run in runs) == sorted((name, s) for name in METHODS for s in range(5))
    used = {unit.run.seed for unit in engine.units} | {
        one["seed"] for unit in engine.units for one in unit.run.vanillas
    }
    seeds = {run.seed for run in runs} | {one["seed"] for run in runs for one in run.vanillas}
    assert not used & seeds, "seeds that no trial has had"
    for name in ENSEMBLES:
        members = [one["seed"] for run in runs if run.method == name for one in run.vanillas]
        assert len(set(members)) == len(members), "no member is in two runs"
    best = json.loads((folder / "best.json").read_text())
    assert best["protocol"] == "paper"
    for run in runs:
        if run.method in SPACES:
            config = best["best"]["small"]["methods"][run.method]["config"]
            assert config.items() <= run.config.items()
            if run.method in NETWORK:
                assert run.config["epochs"] == 7
    for name in ("credal-lj", "credal-final", *POST_HOC):
        found = [better_later(unit.run)["value"] for unit in engine.units if unit.run.method == name]
        assert best["best"]["small"]["methods"][name]["value"] == max(found)


def test_the_experiment_is_the_same_when_it_goes_on(pretended: tuple[Reproduction, Instant, Path]) -> None:
    part, _, folder = pretended
    studies, engine = Studies(folder, "paper", "uniform"), Instant(2)
    again = Reproduction("small", small_task(), studies, part.budget)
    assert search_all([again], studies, engine, time.monotonic() + 60, lambda _: None)
    assert not engine.units
    assert again.runs() == part.runs()


# ---------------------------------------------------------------------------------------------
# Commands, from outside
# ---------------------------------------------------------------------------------------------


def command(*words: str | Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "credalgnn", *map(str, words)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip


def outcome(*words: str | Path, timeout: float = 600) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command; nothing of it is left when this returns."""
    process = command(*words)
    try:
        out, err = process.communicate(timeout=timeout)
    finally:
        kill(process)
    return process.returncode, out, err


def kill(process: subprocess.Popen[str]) -> None:
    """With all that it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


BAD: dict[str, tuple[list[str], str]] = {
    "other protocol": (["bench", "-m", "vanilla", "--tuned", "TUNED", "--protocol", "paper"], "sealed protocol"),
    "other setting": (
        ["bench", "-m", "vanilla", "--tuned", "TUNED", "--setting", "inductive"],
        "tuned in the transductive setting",
    ),
    "inductive paper": (["tune", "-m", "vanilla", "--setting", "inductive", "--protocol", "paper"], "transductive"),
    "nothing tuned": (["bench", "-m", "vanilla", "--tuned", "EMPTY"], "best.json is missing"),
    "data set not tuned": (["bench", "-m", "vanilla", "--tuned", "OTHER"], "nothing was tuned for digits"),
    "method not tuned": (["bench", "-m", "vanilla", "energy", "--tuned", "TUNED"], "energy not tuned on digits"),
    "other split": (["bench", "-m", "vanilla", "--tuned", "TUNED", "--split-seed", "1"], "another split"),
    "many splits": (["bench", "-m", "vanilla", "--tuned", "TUNED", "--vary-split"], "--vary-split"),
    "vanillas apart": (["bench", "-m", "vanilla", "energy", "--tuned", "APART"], "energy and vanilla were tuned with"),
    "unknown method": (["tune", "-m", "vanilla", "vanila"], "unknown method 'vanila'"),
    "unknown beside all": (["tune", "-m", "all", "vanila"], "unknown method 'vanila'"),
    "nothing to tune": (["tune", "-m", "vanilla", "degree"], "degree has nothing to tune"),
    "nothing left": (["tune", "-m", "energy", "--set", "temperature=2"], "--set leaves nothing of energy to tune"),
}


@pytest.fixture(scope="module")
def refused(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], list[str]]:
    """The words of a command that is refused."""
    folder = tmp_path_factory.mktemp("refused")
    tuned_by_hand(folder / "TUNED", load_task("digits"), vanilla={"lr": 0.01})
    tuned_by_hand(folder / "APART", load_task("digits"), vanilla={"lr": 0.01}, energy={"temperature": 1.0})
    tuned_by_hand(folder / "OTHER", small_task(), vanilla={"lr": 0.01})
    (folder / "EMPTY").mkdir()

    def words(name: str) -> list[str]:
        found = [str(folder / word) if word.isupper() else word for word in BAD[name][0]]
        return [*found, "-d", "digits", "--out", str(folder / name.replace(" ", "-"))]

    return words


def one_line(code: int, out: str, err: str, words: str) -> None:
    assert code == 2, err
    assert out == ""
    assert err.startswith("credalgnn: ")
    assert err.count("\n") == 1
    assert words in err


@pytest.mark.parametrize("name", list(BAD))
def test_what_cannot_be_is_refused_in_one_line(
    name: str, refused: Callable[[str], list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(refused(name))
    one_line(code, *capsys.readouterr(), BAD[name][1])


@pytest.mark.slow
@pytest.mark.parametrize("name", list(BAD))
def test_all_that_cannot_be_is_refused_from_outside(name: str, refused: Callable[[str], list[str]]) -> None:
    one_line(*outcome(*refused(name)), BAD[name][1])


def test_a_bad_storage_is_refused_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["tune", "-d", "digits", "-m", "energy", "--storage", "nonsense", "--out", str(tmp_path / "out")]
    assert main(words) == 2
    err = capsys.readouterr().err
    assert err.startswith("credalgnn: --storage nonsense")
    assert err.count("\n") == 1


def test_an_inductive_tune_is_for_an_inductive_bench(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both commands, with an engine that does the work here."""
    task, flat = load_task("digits", inductive=True), load_task("digits")

    def answer(run: Run) -> dict[str, Any]:
        assert run.inductive
        return try_point(run, task, Models(tmp_path / "models"), {})

    monkeypatch.setattr("credalgnn.cli.search.engine_of", lambda *_: Instant(answer=answer))
    words = ["tune", "-d", "digits", "-m", "vanilla", "--trials", "2", "--set", "epochs=3", "hidden=8"]
    assert main([*words, "--setting", "inductive", "--out", str(tmp_path / "out")]) == 0
    assert f"bench --tuned {tmp_path / 'out'} --protocol sealed --setting inductive uses" in capsys.readouterr().out
    assert json.loads((tmp_path / "out" / "experiment.json").read_text())["setting"] == "inductive"
    assert tuned(tmp_path / "out", task, "sealed")["vanilla"]["config"]["hidden"] == 8
    with pytest.raises(RecordError, match="tuned in the inductive setting, and not in the transductive one"):
        tuned(tmp_path / "out", flat, "sealed")
    one_line(main([*words, "--out", str(tmp_path / "out")]), *capsys.readouterr(), "another experiment, with setting")


SET = ["--set", "epochs=4", "hidden=8"]
CHOSEN = ["-d", "digits", "-m", "vanilla", "energy", "knn-lj", "--protocol", "paper"]


@pytest.fixture(scope="module")
def tuned_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tuned") / "out"
    code, out, err = outcome("tune", *CHOSEN, *SET, "--trials", "2", "--jobs", "1", "--out", folder)
    assert code == 0, err
    assert "[6/6]" in err
    assert "Traceback" not in err
    assert [line.split()[1] for line in out.splitlines()[:3]] == CHOSEN[3:6]
    return folder


def test_tune_writes_what_was_best(tuned_folder: Path) -> None:
    found = json.loads((tuned_folder / "best.json").read_text())
    assert found["protocol"] == "paper"
    assert list(found["best"]) == ["digits"]
    methods = found["best"]["digits"]["methods"]
    assert list(methods) == CHOSEN[3:6]
    for name, best in methods.items():
        trials = kept(tuned_folder, f"digits {name}")
        assert [one.state for one in trials] == [TrialState.COMPLETE] * 2
        top = max(trials, key=lambda one: (one.value or 0.0, -one.number))
        assert best["value"] == top.value
        assert 0.0 <= best["value"] <= 1.0
        own = {"epochs": 4, "hidden": 8} if name == "vanilla" else {}
        assert best["config"] == {**top.params, **own}
        assert best["vanilla"] == ({} if name == "vanilla" else methods["vanilla"]["config"])
    assert not (tuned_folder / "models").exists()


def test_bench_uses_what_was_tuned(tuned_folder: Path, tmp_path: Path) -> None:
    """With what was set while it was tuned, so that nobody has to say it again."""
    methods = json.loads((tuned_folder / "best.json").read_text())["best"]["digits"]["methods"]
    options = ["--seeds", "1", "--jobs", "1", "--predictions", "none"]
    assert main(["bench", *CHOSEN, *options, "--tuned", str(tuned_folder), "--out", str(tmp_path / "out")]) == 0
    for name in CHOSEN[3:6]:
        config = read_record(tmp_path / "out" / "runs" / "digits" / name / "seed-000.json")["config"]
        assert methods[name]["config"].items() <= config.items()
        below = config if name == "vanilla" else config["vanilla"]
        assert methods["vanilla"]["config"].items() <= below.items()
        assert (below["epochs"], below["hidden"]) == (4, 8)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_a_killed_tune_ends_as_an_undisturbed_one(seed: int, tmp_path: Path) -> None:
    words = ["tune", "-d", "digits", "-m", "vanilla", "energy", "--trials", "14", *SET, "--jobs", "2"]
    code, _, err = outcome(*words, "--out", tmp_path / "whole")
    assert code == 0, err
    journal = tmp_path / "killed" / "tuning.journal"
    lines_of = lambda path: path.read_bytes().count(b"\n") if path.exists() else 0  # noqa: E731
    total, order = lines_of(tmp_path / "whole" / "tuning.journal"), random.Random(seed)
    for at in sorted(order.sample(range(5, total - 5), 3)):
        process = command(*words, "--out", tmp_path / "killed")
        until(lambda process=process, at=at: lines_of(journal) >= at or process.poll() is not None, "a moment to kill")
        kill(process)
        process.communicate()
    code, _, err = outcome(*words, "--out", tmp_path / "killed")
    assert code == 0, err
    for name, count in (("digits vanilla", 14), ("digits energy", 4)):
        assert len(came_to_an_end(kept(tmp_path / "killed", name))) == count
    assert (tmp_path / "killed" / "best.json").read_text() == (tmp_path / "whole" / "best.json").read_text()


@pytest.mark.slow
def test_two_tunes_at_a_time_end_as_one(tmp_path: Path) -> None:
    words = ["tune", "-d", "digits", "-m", "vanilla", "energy", "--trials", "10", *SET, "--jobs", "1"]
    code, _, err = outcome(*words, "--out", tmp_path / "one")
    assert code == 0, err
    both = [command(*words, "--out", tmp_path / "two") for _ in range(2)]
    try:
        said = [process.communicate(timeout=300) for process in both]
    finally:
        for process in both:
            kill(process)
    assert [process.returncode for process in both] == [0, 0], said
    for name, count in (("digits vanilla", 10), ("digits energy", 4)):
        trials = kept(tmp_path / "two", name)
        assert [one.state for one in trials] == [TrialState.COMPLETE] * count
        assert len({json.dumps(one.params) for one in trials}) == count
        assert len({one.user_attrs["owner"][0] for one in trials}) <= 2
    assert (tmp_path / "two" / "best.json").read_text() == (tmp_path / "one" / "best.json").read_text()


@pytest.mark.slow
def test_a_tune_of_which_all_fails_says_so(tmp_path: Path) -> None:
    code, _, err = outcome(
        "tune", "-d", "digits", "-m", "vanilla", "--trials", "2", *SET, "lr=1e30", "--out", tmp_path / "out"
    )
    assert code == 2
    assert err.splitlines()[-1].startswith("credalgnn: digits vanilla: none of 2 trials")
    assert "lower lr" in err.splitlines()[-1]
    assert not (tmp_path / "out" / "best.json").exists()


# ---------------------------------------------------------------------------------------------
# reproduce, from outside
# ---------------------------------------------------------------------------------------------


Reproduced = tuple[Path, list[tuple[int, str, str]], list[dict[str, Any]]]


def reproduce(folder: Path) -> Reproduced:
    """The quick reproduction: stopped after a second, then finished, then asked for again. What each command said, and
    the state of the folder after each."""
    said, states = [], []
    for more in (["--time-limit", "1s"], [], []):
        said.append(outcome("reproduce", "--quick", "-d", "digits", "--jobs", "1", "--out", folder, *more))
        names = NETWORK if more else [name for name in SPACES if name != "credal-ensemble"]
        state: dict[str, Any] = {"trials": [kept(folder, f"digits {name}") for name in names]}
        for path in folder.glob("runs/*/*/*.json"):
            state[str(path.relative_to(folder))] = path.read_bytes(), path.stat().st_mtime_ns
        states.append(state)
    return folder, said, states


@pytest.fixture(scope="module")
def reproduced(background: Future[Reproduced]) -> Reproduced:
    return background.result()


def configs(folder: Path) -> dict[tuple[str, int], Point]:
    found = [read_record(path) for path in folder.glob("runs/digits/*/*.json")]
    return {(one["method"], one["seed"]): one["config"] for one in found}


def test_reproduce_can_be_stopped_and_goes_on(reproduced: Reproduced) -> None:
    folder, said, states = reproduced
    assert [code for code, _, _ in said] == [1, 0, 0], said
    assert "the same command goes on" in said[0][2]
    assert len(states[0]) == 1, "no run before all is tuned"
    for code, out, err in said:
        assert "Traceback" not in err, code
        assert "Warning" not in out + err
    counts = {"vanilla": 6, "credal-lj": 4, "credal-final": 4, "classical-ensemble": 3, "energy": 4, "odin": 4}
    for name, count in counts.items():
        assert len(came_to_an_end(kept(folder, f"digits {name}"))) == count


def test_reproduce_again_redoes_nothing(reproduced: Reproduced) -> None:
    _, said, states = reproduced
    assert states[2] == states[1]
    assert said[2][1] == said[1][1]
    assert "[" not in said[2][2], "no trial and no run is told of"


def test_reproduce_runs_all_methods(reproduced: Reproduced) -> None:
    folder, _, _ = reproduced
    assert sorted(configs(folder)) == sorted((name, seed) for name in METHODS for seed in range(2))
    assert len(METHODS) == 14
    for path in folder.glob("runs/digits/*/*.json"):
        record = read_record(path)
        assert record["status"] == "done"
        assert record["protocol"] == "paper"
        assert record["seed"] < 1000
    for name in ("paper.md", "paper.html", "report.html", "table.md", "table.csv", "table.tex"):
        assert (folder / name).stat().st_size > 100
    assert not (folder / "models").exists()


def test_reproduce_chooses_as_the_paper_does(
    reproduced: Reproduced,
) -> None:
    """Against the trials on the disk: the pool by validation F1, post-hoc on the best of the first four."""
    folder, _, _ = reproduced
    found = configs(folder)
    ended = came_to_an_end(kept(folder, "digits vanilla"))
    assert len(ended) == 6
    ranked = sorted(ended, key=lambda one: (-(one.value or 0.0), one.number))
    first = min(ended[:4], key=lambda one: (-(one.value or 0.0), one.number))
    sizes = came_to_an_end(kept(folder, "digits classical-ensemble"))
    assert sorted(one.params["size"] for one in sizes) == [2, 3, 4]
    best_size = min(sizes, key=lambda one: (-(one.value or 0.0), one.number)).params["size"]
    for seed in range(2):
        assert {**first.params, "epochs": 20}.items() <= found["vanilla", seed].items()
        for name in POST_HOC:
            assert {**first.params, "epochs": 20, "monitor": "id_f1"}.items() <= found[name, seed]["vanilla"].items()
        for name in ENSEMBLES:
            assert found[name, seed]["size"] == best_size
            members = found[name, seed]["members"]
            assert len(members) == best_size
            for one, trial in zip(members, ranked, strict=False):
                assert {**trial.params, "epochs": 20}.items() <= one.items()
        for name in ("credal-lj", "credal-final"):
            trials = came_to_an_end(kept(folder, f"digits {name}"))
            top = min(trials, key=lambda one: (-(one.value or 0.0), one.number))
            assert {**top.params, "epochs": 20, "monitor": "ood_auroc"}.items() <= found[name, seed].items()


def test_what_reproduce_says_of_a_graph_that_the_paper_lacks(
    reproduced: Reproduced,
) -> None:
    folder, said, _ = reproduced
    text = (folder / "paper.md").read_text()
    assert said[1][1].strip() == text.strip()
    chosen = cells(text, "What was chosen")
    assert [line["method"] for line in chosen] == sorted(METHODS)
    others = cells(text, "Scores and methods that the paper does not report")
    assert {line["method"] for line in others} == set(METHODS)
    assert not cells(text, "OOD detection, AUROC (the paper's main table)")


# ---------------------------------------------------------------------------------------------
# The paper's figures beside ours
# ---------------------------------------------------------------------------------------------

DATASETS = ["chameleon", "squirrel", "arxiv", "patents", "coauthor", "reddit2"]
FIGURES = [
    ("ood_auroc_full", "energy", "energy", "chameleon", 58.25, 4.63),
    ("ood_auroc_full", "knn", "distance", "coauthor", 88.23, 2.39),
    ("ood_auroc_full", "knn-lj", "distance", "coauthor", 32.37, 1.07),
    ("ood_auroc_full", "mahalanobis", "distance", "reddit2", 68.98, 1.21),
    ("ood_auroc_full", "gnnsafe", "energy", "arxiv", 35.30, 0.34),
    ("ood_auroc_full", "classical-ensemble", "EU", "chameleon", 30.22, 1.23),
    ("ood_auroc_full", "credal-ensemble", "EU", "patents", 64.64, 1.09),
    ("ood_auroc_full", "credal-final", "AU", "squirrel", 75.02, 6.20),
    ("ood_auroc_full", "credal-lj", "EU", "chameleon", 77.67, 1.32),
    ("ood_auroc_full", "credal-lj", "EU", "squirrel", 77.04, 8.25),
    ("ood_auroc_full", "credal-lj", "AU", "patents", 70.78, 7.34),
    ("id_f1", "vanilla", "argmax", "chameleon", 57.61, 0.98),
    ("id_f1", "credal-lj", "lower", "coauthor", 75.44, 0.98),
    ("id_f1", "credal-lj", "upper", "coauthor", 43.76, 0.42),
    ("id_f1", "credal-final", "upper", "reddit2", 24.63, 0.36),
]


def test_the_papers_figures() -> None:
    rows = paper_results()
    assert len(rows) == 198
    found = {(one["table"], one["method"], one["score"], one["dataset"]): (one["mean"], one["std"]) for one in rows}
    assert len(found) == 198
    for *key, mean, std in FIGURES:
        assert found[tuple(key)] == (mean, std)  # type: ignore[index]
    assert {one["table"] for one in rows} == {"ood_auroc_main", "ood_auroc_full", "id_f1"}
    assert {one["dataset"] for one in rows} == set(DATASETS)
    assert {one["method"] for one in rows} <= set(METHODS)
    for one in rows:
        scores = METHODS[one["method"]].score_names
        assert one["score"] in (scores if one["table"] != "id_f1" else ("argmax", "lower", "upper"))
        assert (one["std"] is None) == (one["table"] == "ood_auroc_main")


@pytest.mark.skipif(not (PAPER / "results.csv").exists(), reason="the transcription is not here")
def test_the_papers_figures_are_those_of_the_transcription() -> None:
    with (PAPER / "results.csv").open() as file:
        rows = [
            {**row, "mean": float(row["mean"]), "std": float(row["std"]) if row["std"] else None}
            for row in csv.DictReader(file)
        ]
    assert paper_results() == rows


@pytest.mark.skipif(not (PAPER / "credal-gnn.tex").exists(), reason="the paper is not here")
def test_the_papers_figures_are_those_of_its_source() -> None:
    """Every figure of the two tables in the appendix, read anew from the source."""
    names = {
        "Energy": ("energy", "energy"), "KNN": ("knn", "distance"), "ODIN": ("odin", "odin"),
        "Mahalanobis": ("mahalanobis", "distance"), "GNNSafe": ("gnnsafe", "energy"), "KNNLJ": ("knn-lj", "distance"),
        "Classical ensemble (AU)": ("classical-ensemble", "AU"),
        "Classical ensemble (EU)": ("classical-ensemble", "EU"),
        "Credal ensemble (AU)": ("credal-ensemble", "AU"), "Credal ensemble (EU)": ("credal-ensemble", "EU"),
        "Credal final (AU)": ("credal-final", "AU"), "Credal final (EU)": ("credal-final", "EU"),
        "CredalLJ (AU)": ("credal-lj", "AU"), "CredalLJ (EU)": ("credal-lj", "EU"),
        "Vanilla GNN": ("vanilla", "argmax"),
        "Credal Final ($\\boldsymbol{q_L}$)": ("credal-final", "lower"),
        "Credal Final ($\\boldsymbol{q_U}$)": ("credal-final", "upper"),
        "CredalLJ ($\\boldsymbol{q_L}$)": ("credal-lj", "lower"),
        "CredalLJ ($\\boldsymbol{q_U}$)": ("credal-lj", "upper"),
    }  # fmt: skip
    source = (PAPER / "credal-gnn.tex").read_text().split("\\section{Additional results}")[1]
    wanted = {}
    for line in source.splitlines():
        figures = re.findall(r"(\d+\.\d+) ?\$\\pm\$ ?(\d+\.\d+)", line)
        if len(figures) == 6:
            method, score = names[line.split("&")[1].strip()]
            table = "id_f1" if score in ("argmax", "lower", "upper") else "ood_auroc_full"
            for dataset, (mean, std) in zip(DATASETS, figures, strict=True):
                wanted[table, method, score, dataset] = float(mean), float(std)
    rows = [one for one in paper_results() if one["table"] != "ood_auroc_main"]
    assert {
        (one["table"], one["method"], one["score"], one["dataset"]): (one["mean"], one["std"]) for one in rows
    } == wanted
    assert len(wanted) == 114


def put_record(
    folder: Path, method: str, seed: int, metrics: Mapping[str, float], aurocs: Mapping[str, float],
    dataset: str = "chameleon", error: str | None = None,
) -> None:  # fmt: skip
    """A record as a run leaves it behind, with nothing in it that no table needs."""
    record: dict[str, Any] = {
        "format": 2, "status": "done" if error is None else "failed", "error": error, "dataset": dataset,
        "method": method, "seed": seed, "split_seed": 0, "protocol": "paper", "setting": "transductive",
        "fingerprint": "00",
        "config": {"lr": 0.012345678, "hidden": 64}, "versions": {"credalgnn": "0"},
        "finished": "2026-01-01T00:00:00+00:00",
    }  # fmt: skip
    if error is None:
        counts = {"train_id": 11, "val_id": 12, "val_ood": 13, "test_id": 14, "test_ood": 15}
        record |= {
            "headline": next(iter(aurocs)), "metrics": dict(metrics), "marks": [],
            "curves": {"roc": {}, "rejection": {}, "histogram": {}, "training": []},
            "scores": {name: {"auroc": value} for name, value in aurocs.items()},
            "seconds": {"fit": 1.0, "predict": 0.1}, "class_names": ["a"], "ood_names": ["b"], "counts": counts,
            "peak_mib": 1.0,
        }  # fmt: skip
    path = folder / "runs" / dataset / method / f"seed-{seed:03d}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record))
    (folder / "experiment.json").write_text("{}")
    read_record(path)


def cells(text: str, title: str) -> list[dict[str, str]]:
    """A table of the Markdown below a title, each line by the names of its columns."""
    part = text.split(f"## {title}")[1].split("\n## ")[0]
    table = [line.strip("| ").split(" | ") for line in part.splitlines() if line.startswith("|") and "---" not in line]
    head = [name.strip() for name in table[0]]
    rows = [
        [cell.strip() for cell in f"{line.strip()[1:-1]} ".split(" | ")]
        for line in part.splitlines()
        if line.startswith("| ")
    ]
    return [dict(zip(head, row, strict=True)) for row in rows[1:]]


@pytest.fixture
def chameleon(tmp_path: Path) -> Path:
    """Two seeds of three methods; credal-lj: EU 87.67 ± 1.41, AU 72.37 ± 14.14 per cent."""
    for seed, sign in ((0, 1), (1, -1)):
        of_sets = {"accuracy": 0.9, "accuracy_lower": 0.4275, "accuracy_upper": 0.2 + 0.01 * sign}
        scores = {"EU": 0.8767 + 0.01 * sign, "AU": 0.7237 + 0.1 * sign, "TU": 0.5}
        put_record(tmp_path, "credal-lj", seed, of_sets, scores)
        put_record(tmp_path, "vanilla", seed, {"accuracy": 0.5 + 0.001 * sign}, {"msp": 0.6, "entropy": 0.61})
        put_record(tmp_path, "energy", seed, {"accuracy": 0.5}, {"energy": 0.3 + 0.001 * sign})
    return tmp_path


def test_pairs(chameleon: Path) -> None:
    rows = make_rows(read_runs([chameleon]))
    found = {(one.method, one.score): one for one in pairs(rows, "ood_auroc_full")}
    assert set(found) == {("credal-lj", "EU"), ("credal-lj", "AU"), ("energy", "energy")}
    eu, au, energy = found["credal-lj", "EU"], found["credal-lj", "AU"], found["energy", "energy"]
    assert (eu.dataset, eu.paper, eu.paper_std) == ("chameleon", 77.67, 1.32)
    assert (eu.ours, eu.ours_std, eu.difference) == pytest.approx((87.67, math.sqrt(2), 10.0))
    assert (au.paper, au.ours, au.ours_std) == pytest.approx((72.37, 72.37, 10 * math.sqrt(2)))
    assert energy.difference == pytest.approx(30 - 58.25)
    assert [one.colour for one in (eu, au, energy)] == ["🟢", "", "🔴"]
    main_table = {(one.method, one.score): one for one in pairs(rows, "ood_auroc_main")}
    assert set(main_table) == set(found)
    assert main_table["credal-lj", "EU"].paper_std == 1.32, "the main table's deviations are in the appendix"
    classes = {(one.method, one.score): one for one in pairs(rows, "id_f1")}
    assert set(classes) == {("vanilla", "argmax"), ("credal-lj", "lower"), ("credal-lj", "upper")}
    assert classes["vanilla", "argmax"].ours == pytest.approx(50.0)
    assert classes["vanilla", "argmax"].paper == 57.61
    assert (classes["credal-lj", "lower"].ours, classes["credal-lj", "lower"].paper) == pytest.approx((42.75, 42.75))
    assert (classes["credal-lj", "upper"].ours, classes["credal-lj", "upper"].paper) == pytest.approx((20.0, 36.96))
    assert classes["credal-lj", "upper"].ours_std == pytest.approx(math.sqrt(2))


@pytest.mark.parametrize(
    ("ours", "paper_std", "ours_std", "colour"),
    [
        (52.0, 1.0, 0.5, ""), (52.25, 1.0, 0.5, "🟢"), (47.75, 1.0, 0.5, "🔴"), (52.25, 0.5, 1.25, ""),
        (47.25, 0.5, 1.25, "🔴"), (50.0, 0.0, 0.0, ""), (50.25, None, 0.0, "🟢"), (49.0, None, 0.5, ""),
        (48.75, None, 0.5, "🔴"),
    ],
)  # fmt: skip
def test_the_colour_means_more_than_two_of_the_larger_deviation(
    ours: float, paper_std: float | None, ours_std: float, colour: str
) -> None:
    assert Pair("m", "s", "d", 50.0, paper_std, ours, ours_std).colour == colour


def test_the_tables_side_by_side(chameleon: Path) -> None:
    text = beside_paper([chameleon])
    full = {(line["method"], line["score"]): line for line in cells(text, "OOD detection, AUROC with standard")}
    assert full["credal-lj", "EU"] == {
        "method": "credal-lj", "score": "EU", "chameleon paper": "77.7 ± 1.3", "chameleon ours": "87.7 ± 1.4",
        "chameleon difference": "+10.0 🟢",
    }  # fmt: skip
    assert full["credal-lj", "AU"]["chameleon difference"] in ("+0.0", "-0.0")
    assert full["energy", "energy"]["chameleon difference"] == "-28.2 🔴"
    assert ("credal-lj", "TU") not in full
    short = {(line["method"], line["score"]): line for line in cells(text, "OOD detection, AUROC (the paper's main")}
    assert short["credal-lj", "EU"]["chameleon paper"] == "77.7"
    assert short["credal-lj", "EU"]["chameleon ours"] == "87.7"
    f1 = {(line["method"], line["score"]): line for line in cells(text, "ID classification, F1")}
    assert f1["credal-lj", "lower"]["chameleon ours"] == "42.8 ± 0.0"
    assert f1["credal-lj", "upper"]["chameleon difference"] == "-17.0 🔴"
    assert f1["vanilla", "argmax"]["chameleon paper"] == "57.6 ± 1.0"
    others = {(line["method"], line["score"]) for line in cells(text, "Scores and methods that the paper does not")}
    assert others == {("credal-lj", "TU"), ("vanilla", "msp"), ("vanilla", "entropy")}
    counts = cells(text, "Data sets")[0]
    assert (counts["train_id paper"], counts["train_id ours"]) == ("647", "11")
    assert (counts["test_ood paper"], counts["test_ood ours"]) == ("180", "15")
    assert "lr 0.01235" in text
    assert "size {2, 3 .. 15}" in text
    assert "delta U(0.5, 1)" in text


def test_the_page_of_the_tables(chameleon: Path) -> None:
    write_beside([chameleon], chameleon)
    assert (chameleon / "paper.md").read_text() == beside_paper([chameleon])
    page = (chameleon / "paper.html").read_text()
    row = page.split("appendix")[1].split("credal-lj<td>EU")[1].split("<tr>")[0]
    values = [cell.strip() for cell in re.findall(r"<td[^>]*>([^<]*)", row)]
    assert values[:3] == ["77.7 ± 1.3", "87.7 ± 1.4", "+10.0 !"]
    assert "33 102 172 / 0.55" in row
    energy = page.split("appendix")[1].split("energy<td>energy")[1].split("<tr>")[0]
    assert "217 95 2 / 0.55" in energy


@pytest.mark.parametrize("dataset", ["bees", "digits"])
def test_every_figure_of_ours_is_in_some_table(dataset: str, chameleon: Path) -> None:
    """Beside a data set of the paper's, one that it lacks: before it or after it in the order of names."""
    put_record(chameleon, "credal-lj", 0, {"accuracy": 0.5}, {"EU": 0.1234, "TU": 0.2}, dataset)
    text = beside_paper([chameleon])
    assert "12.3" in text
    assert len(cells(text, "Data sets")) == 2
    others = cells(text, "Scores and methods that the paper does not report")
    assert not [line for line in others if line["method"] == "credal-lj" and line["chameleon AUROC"].startswith("87.7")]


def test_what_failed_does_not_stop_the_tables(chameleon: Path) -> None:
    put_record(chameleon, "odin", 0, {}, {}, error="out of memory")
    assert "87.7 ± 1.4" in beside_paper([chameleon])
    put_record(chameleon, "odin", 0, {}, {}, dataset="patents", error="out of memory")
    assert "87.7 ± 1.4" in beside_paper([chameleon])


def test_only_failures_make_tables_too(tmp_path: Path) -> None:
    put_record(tmp_path, "odin", 0, {}, {}, error="out of memory")
    write_beside([tmp_path], tmp_path)
    assert (tmp_path / "paper.md").exists()
