"""Calls leave nothing behind: budgets, clusters and interrupts of one call change no other call and no other method."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor

import credalgnn as cg
from credalgnn import ClassicalEnsemble, CredalCoverage, Energy, MethodError, RandomSet, Task, Vanilla
from credalgnn.graphs import csbm
from credalgnn.methods import KNN, DropEdge, Method
from credalgnn.nn.training import Epoch
from credalgnn.runtime.threads import Threads

SHORT: dict[str, Any] = {"epochs": 6, "patience": 3, "hidden": 8}
pytestmark = pytest.mark.filterwarnings("ignore::credalgnn.CredalWarning", "ignore::credalgnn.MemoryWarning")


def task_of(classes: int = 4, seed: int = 1) -> Task:
    return Task.leave_out(csbm(nodes=160, classes=classes, features=8, seed=seed), [0], name=f"of {classes}")


def attributes(method: Method) -> dict[str, Any]:
    return {**vars(method), "vars": vars(method)}


def unchanged(method: Method, before: dict[str, Any]) -> bool:
    return attributes(method).keys() == before.keys() and all(attributes(method)[k] is v for k, v in before.items())


@pytest.mark.parametrize(
    "make", [lambda model: Energy(model=model), lambda model: ClassicalEnsemble(members=[model] * 2)]
)
def test_a_budget_changes_no_given_model(make: Any) -> None:
    task = task_of()
    vanilla = Vanilla(**SHORT).fit(task)
    score, before = vanilla.predict().score, attributes(vanilla)
    method = make(vanilla).fit(task, memory="1GiB")
    method.predict(memory="1MiB")
    assert unchanged(vanilla, before)
    assert torch.equal(vanilla.predict().score, score)


def test_a_refused_budget_is_that_of_its_call_alone() -> None:
    method = DropEdge(**SHORT).fit(task_of())
    before = attributes(method)
    with pytest.raises(MethodError, match="needs the whole graph"):
        method.predict(memory="1MiB")
    assert unchanged(method, before)
    method.predict()


def test_a_budget_of_fit_is_that_of_fit_alone() -> None:
    graph = csbm(nodes=160, classes=3, features=8, seed=1)
    method = Vanilla(batch_size=32, **SHORT).fit(graph, memory="1MiB")
    whole = Vanilla(batch_size=32, **SHORT).fit(graph)
    assert torch.equal(method.predict().score, whole.predict().score)


def test_threads_with_other_budgets_get_the_bits_and_p_values_of_one_thread() -> None:
    graph = csbm(nodes=200, classes=3, features=8, seed=1)
    method = Vanilla(**SHORT).fit(graph)
    budgets = ["1MiB", None, "2MiB"] * 8

    def predict(memory: str | None) -> tuple[Tensor, Tensor]:
        prediction = method.predict(memory=memory)
        return prediction.score, prediction.p_values

    alone = {memory: predict(memory) for memory in budgets}
    method = Vanilla(**SHORT).fit(graph)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(4) as pool:
            results = list(pool.map(predict, budgets))
    finally:
        sys.setswitchinterval(interval)
    for memory, result in zip(budgets, results, strict=True):
        assert all(map(torch.equal, result, alone[memory]))


def test_a_cluster_helps_one_call_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    class Here(Threads):
        workers = 1
        used = 0

        def map(self, *work: Any) -> Iterator[Any]:
            self.used += 1
            return super().map(*work)

    cluster = Here()

    @contextmanager
    def connected(address: str | None, workers: int | None) -> Iterator[Here]:
        yield cluster

    monkeypatch.setattr("credalgnn.methods.cluster.connected", connected)
    monkeypatch.setattr("credalgnn.methods.cluster.check_room", lambda workers: None)
    task = task_of()
    method = ClassicalEnsemble(members=[DropEdge(**SHORT), DropEdge(seed=1, **SHORT)]).fit(task)
    chunks = method.predict_chunks(size=50, workers=1)
    next(chunks)
    assert cluster.used == 1
    method.predict()
    next(method.predict_chunks(size=50))
    assert cluster.used == 1


@pytest.mark.parametrize("kind", [RandomSet, CredalCoverage, KNN])
@pytest.mark.parametrize("stop", [2, 5])
def test_a_fit_that_ends_on_another_task_leaves_the_old_model(kind: type[Method], stop: int) -> None:
    """The other task has other classes, so that parts of both would not go together."""

    def end(line: Epoch) -> None:
        if line.epoch == stop:
            raise KeyboardInterrupt

    template = Vanilla(**SHORT)
    method = kind(**(SHORT if kind is RandomSet else {"model": template})).fit(task_of())
    prediction, before = method.predict(), attributes(method)
    with pytest.raises(KeyboardInterrupt):
        method.fit(task_of(classes=6, seed=2), on_epoch=end)
    assert unchanged(method, before)
    assert not template.is_fitted
    assert torch.equal(method.predict().score, prediction.score)


def test_parameters_are_set_all_or_none() -> None:
    method = Energy(model=Vanilla())
    with pytest.raises(MethodError, match="temperature must be above 0"):
        method.set_params(model__lr=0.5, temperature=-1)
    with pytest.raises(MethodError, match="lr must be above 0"):
        method.set_params(temperature=2, model__hidden=5, model__lr=-1)
    with pytest.raises(MethodError, match="no parameter 'speed'"):
        method.set_params(temperature=2, model__speed=5)
    assert isinstance(method.model, Vanilla)
    assert (method.temperature, method.model.hidden, method.model.lr) == (1.0, 64, 0.01)
    method.set_params(model=Vanilla(hidden=8), model__lr=0.5)
    assert (method.model.hidden, method.model.lr) == (8, 0.5)


def test_a_parameter_without_effect_is_refused() -> None:
    ensemble = ClassicalEnsemble(members=[Vanilla(), Vanilla(seed=1)])
    with pytest.raises(MethodError, match="size=7 has no effect"):
        ensemble.set_params(size=7)
    assert ensemble.set_params(members=[Vanilla(seed=seed) for seed in range(3)]).size == 3


def test_what_fit_sets_is_said_to_be_missing_before() -> None:
    for name in ("class_names", "fingerprint", "module_", "graph_"):
        with pytest.raises(MethodError, match="Vanilla is not fitted: call fit"):
            getattr(Vanilla(), name)
        assert not hasattr(Vanilla(), name)
    with pytest.raises(AttributeError, match="no attribute 'clas_names'"):
        Vanilla().clas_names  # type: ignore[attr-defined] # noqa: B018


def test_names_can_be_reached_from_the_package() -> None:
    for name in ("TrainingError", "MemoryWarning", "Network", "PostHoc", "Split", "TrainingData"):
        assert isinstance(getattr(cg, name), type)


def test_importing_the_package_changes_no_environment() -> None:
    code = "import os; before = dict(os.environ); import credalgnn; print(dict(os.environ) == before)"
    environment = {name: value for name, value in os.environ.items() if name != "THP_MEM_ALLOC_ENABLE"}
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert result.stdout.strip() == "True"
