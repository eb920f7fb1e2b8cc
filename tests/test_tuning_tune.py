"""Several methods on one data set, with an engine that only pretends to train."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from credalgnn.experiments.best import Best
from credalgnn.experiments.paper_plan import Budget, Reproduction
from credalgnn.experiments.plan import Run, plan
from credalgnn.experiments.search import Scale, Search, Studies
from credalgnn.experiments.tuning import Tuning
from credalgnn.graphs import Task
from credalgnn.methods import MethodError
from credalgnn.methods.registry import Choice
from credalgnn.runtime.files import to_json
from searches import Instant, Point, finish, finish_all, kept, small_task, worth


def choices(names: list[str], settings: Mapping[str, tuple[Point, Point]] | None = None) -> list[Choice]:
    return [Choice(name, *(settings or {}).get(name, ({}, {}))) for name in names]


def test_the_spaces_of_a_task_know_its_training_nodes(tmp_path: Path) -> None:
    task = small_task()
    nodes = len(task.training.train)
    assert 50 < nodes < 200
    studies = Studies(tmp_path, "sealed", "uniform")
    for name in ("knn", "knn-lj"):
        space = Tuning("small", task, studies, choices([name]), 3).spaces[name]
        assert max(space["k"]) <= nodes  # type: ignore[type-var, arg-type]
        assert 50 in space["k"]  # type: ignore[operator]
    part = Reproduction("small", task, studies, Budget(2, 3, 3, 1))
    assert finish_all([part], studies, Instant())
    assert all(one.params["k"] <= nodes for one in kept(tmp_path, "small knn"))


def test_where_the_validation_nodes_cannot_tell_the_defaults_stay(tmp_path: Path) -> None:
    """A post-hoc method on a vanilla GNN that is right everywhere: there is no wrong node to find."""

    def answer(run: Run) -> dict[str, Any]:
        return {"value": None, "seen": {}, "seconds": 0.0} if run.method == "energy" else worth(run)

    studies = Studies(tmp_path, "sealed", "log")
    part = Tuning("small", small_task(), studies, choices(["vanilla", "energy", "knn"]), 3)
    assert finish_all([part], studies, Instant(answer=answer))
    assert part.best()["energy"] == Best({}, None, 1000)
    methods = json.loads((tmp_path / "best.json").read_text())["best"]["small"]["methods"]
    assert methods["energy"] == {"config": {}, "components": methods["vanilla"]["config"], "value": None}
    assert methods["knn"]["config"]


@pytest.mark.parametrize("inductive", [False, True])
def test_trials_have_the_setting_of_their_task(inductive: bool, tmp_path: Path) -> None:
    studies, engine = Studies(tmp_path, "sealed", "uniform"), Instant()
    task = replace(small_task(), inductive=inductive)
    part = Tuning("small", task, studies, choices(["vanilla", "knn", "classical-ensemble"]), 2)
    assert finish_all([part], studies, engine)
    assert len(engine.units) == 6
    assert {(unit.run.inductive, unit.run.setting) for unit in engine.units} == {
        (inductive, "inductive" if inductive else "transductive")
    }
    again = Tuning("small", replace(task, inductive=not inductive), studies, choices(["vanilla"]), 2)
    assert not again.stage(0)[0].finished  # of the other setting nothing was tried


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
    part = Tuning("small", small_task(), studies, choices(names, settings), 7, 3)
    assert part.total == 7 + 7 + 4 + 7
    assert finish_all([part], studies, engine)
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
        assert len(run.components) == run.config.get("size", 1)
        assert [one["seed"] for one in run.components] == [1000 + k for k in range(len(run.components))]
        for one in run.components:
            assert {**best["vanilla"].config, "epochs": 9, "hidden": 8}.items() <= one.items()
    kept_best = json.loads((tmp_path / "best.json").read_text())
    assert kept_best["protocol"] == "sealed"
    assert kept_best["best"]["small"]["fingerprint"] == small_task().fingerprint
    methods = kept_best["best"]["small"]["methods"]
    assert sorted(methods) == sorted(names)
    whole = {**best["vanilla"].config, "epochs": 9, "hidden": 8}
    assert methods["vanilla"] == {"config": whole, "components": {}, "value": best["vanilla"].value}
    assert methods["energy"] == {"config": best["energy"].config, "components": whole, "value": best["energy"].value}
    assert methods["credal-lj"]["config"] == {**best["credal-lj"].config, "epochs": 9, "hidden": 8}


def test_methods_stand_on_the_vanilla_that_an_earlier_command_found(tmp_path: Path) -> None:
    (tmp_path / "experiment.json").write_bytes(to_json({"kind": "tune"}))
    studies = Studies(tmp_path, "sealed", "log")
    first = Tuning("small", small_task(), studies, choices(["vanilla"]), 3)
    assert finish_all([first], studies, Instant())
    engine = Instant()
    for task, wanted in ((small_task(), first.best()["vanilla"].config), (small_task(1), {})):
        later = Tuning("small", task, studies, choices(["energy"], {"energy": ({}, {"epochs": 5})}), 3)
        assert finish_all([later], studies, engine)
        assert later.results()["energy"]["components"] == {**wanted, "epochs": 5}
        assert {**wanted, "epochs": 5}.items() <= engine.units[-1].run.components[0].items()


def test_a_search_belongs_to_all_that_its_trials_depend_on(tmp_path: Path) -> None:
    """Other data, protocol, settings or networks below: another study, never the trials of the first."""

    def of(task: Task, protocol: Any = "sealed", scale: Scale = "uniform", **below: Any) -> Search:
        part = Tuning(
            "small", task, Studies(tmp_path, protocol, scale), choices(["energy"], {"energy": ({}, below)}), 3
        )
        part.stage(0)
        return part.stage(1)[0]

    assert finish([first := of(small_task(), epochs=5)], Instant())
    assert of(small_task(), epochs=5).is_finished
    assert of(small_task(), epochs=5).top(3) == first.top(3)
    others = [
        of(small_task(1), epochs=5), of(small_task(), "paper", epochs=5), of(small_task(), "sealed", "log", epochs=5),
        of(small_task(), epochs=6), of(small_task()),
    ]  # fmt: skip
    assert not any(one.finished for one in others)
