"""The paper's experiment: with an engine that only pretends, and from outside."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from credalgnn.experiments.paper_plan import Budget, Reproduction
from credalgnn.experiments.plan import Run
from credalgnn.experiments.search import Studies, size, space_of
from credalgnn.methods import METHODS
from credalgnn.records.schema import read_record
from searches import (
    ENSEMBLES,
    NETWORK,
    POST_HOC,
    SPACES,
    Instant,
    Point,
    cells,
    finish_all,
    finished_trials,
    kept,
    outcome,
    small_task,
    worth,
)

SHOWN = [*NETWORK, *ENSEMBLES, *POST_HOC, "credal-coverage", "feature-sum", "degree"]  # the paper's, and three beside

# Networks that are trained for a few epochs have credal sets that say nothing, and warn of it, as they should.
pytestmark = pytest.mark.filterwarnings("ignore::credalgnn.CredalWarning")


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
    assert finish_all([part], studies, engine)
    return part, engine, folder


def test_the_papers_budgets() -> None:
    assert Budget() == Budget(trials=30, pool=100, largest=15, runs=5, settings={})
    quick = Budget.quick()
    assert quick.runs == 2
    assert quick.trials < quick.pool < 30


def test_the_trials_of_the_experiment(pretended: tuple[Reproduction, Instant, Path]) -> None:
    _, engine, _ = pretended
    counts = {name: sum(unit.run.method == name for unit in engine.units) for name in SHOWN}
    assert sum(counts.values()) == len(engine.units)
    finite = {name: min(8, int(size(space_of(name, len(small_task().split.train), "uniform")))) for name in POST_HOC}
    assert counts == {
        "vanilla": 20, "credal-lj": 8, "credal-final": 8, "classical-ensemble": 4, "credal-ensemble": 0,
        **finite, "credal-coverage": 0, "degree": 0, "feature-sum": 0,
    }  # fmt: skip
    for unit in engine.units:
        networks = [unit.run.config] if unit.run.method in NETWORK else unit.run.components
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
            assert unit.run.components == best.components
    assert part.best()["vanilla"].seed == best.seed
    for run in part.runs():
        if run.method in (*POST_HOC, "credal-coverage"):  # which has nothing to tune of its own
            assert run.components == ({**best.config, "seed": run.seed},)
        if run.method == "vanilla":
            assert run.config == best.config


def test_ensembles_are_made_of_the_best_of_the_pool(pretended: tuple[Reproduction, Instant, Path]) -> None:
    part, engine, _ = pretended
    pool = pool_of(engine)
    tried_sizes = {}
    for unit in engine.units:
        if unit.run.method == "classical-ensemble":
            members = unit.run.config["size"]
            assert unit.run.components == tuple(run.components[0] for run in pool[:members])
            tried_sizes[members] = better_later(unit.run)["value"]
    assert sorted(tried_sizes) == [2, 3, 4, 5]
    best = max(tried_sizes, key=lambda members: tried_sizes[members])
    for run in part.runs():
        if run.method in ENSEMBLES:
            assert run.config["size"] == best
            assert [{**one, "seed": 0} for one in run.components] == [{**of.config, "seed": 0} for of in pool[:best]]


def test_the_runs_of_the_experiment(pretended: tuple[Reproduction, Instant, Path]) -> None:
    part, engine, folder = pretended
    runs = part.runs()
    assert sorted((run.method, run.seed) for run in runs) == sorted((name, s) for name in SHOWN for s in range(5))
    used = {unit.run.seed for unit in engine.units} | {
        one["seed"] for unit in engine.units for one in unit.run.components
    }
    seeds = {run.seed for run in runs} | {one["seed"] for run in runs for one in run.components}
    assert not used & seeds, "seeds that no trial has had"
    for name in ENSEMBLES:
        members = [one["seed"] for run in runs if run.method == name for one in run.components]
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
    assert finish_all([again], studies, engine)
    assert not engine.units
    assert again.runs() == part.runs()


Reproduced = tuple[Path, list[tuple[int, str, str]], list[dict[str, Any]]]


def reproduce(folder: Path) -> Reproduced:
    """The quick reproduction: stopped after a second, then finished, then asked for again. What each command said, and
    the state of the folder after each."""
    said, states = [], []
    for more in (["--time-limit", "1s"], [], []):
        said.append(outcome("reproduce", "--quick", "-d", "digits", "--jobs", "1", "--out", folder, *more))
        names = NETWORK if more else [*NETWORK, "classical-ensemble", *POST_HOC]
        state: dict[str, Any] = {"trials": [kept(folder, f"digits {name}") for name in names]}
        for path in folder.glob("runs/*/*/*.json"):
            state[str(path.relative_to(folder))] = path.read_bytes(), path.stat().st_mtime_ns
        states.append(state)
    return folder, said, states


@pytest.fixture(scope="module")
def reproduced(tmp_path_factory: pytest.TempPathFactory) -> Reproduced:
    return reproduce(tmp_path_factory.mktemp("reproduced") / "out")


def configs(folder: Path) -> dict[tuple[str, int], Point]:
    found = [read_record(path) for path in folder.glob("runs/digits/*/*.json")]
    return {(one["method"], one["seed"]): one["config"] for one in found}


@pytest.mark.slow
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
        assert len(finished_trials(kept(folder, f"digits {name}"))) == count


@pytest.mark.slow
def test_reproduce_again_redoes_nothing(reproduced: Reproduced) -> None:
    _, said, states = reproduced
    assert states[2] == states[1]
    assert said[2][1] == said[1][1]
    assert "[" not in said[2][2], "no trial and no run is told of"


@pytest.mark.slow
def test_reproduce_runs_all_methods(reproduced: Reproduced) -> None:
    folder, _, _ = reproduced
    assert sorted(configs(folder)) == sorted((name, seed) for name in SHOWN for seed in range(2))
    assert set(SHOWN) <= set(METHODS)
    for path in folder.glob("runs/digits/*/*.json"):
        record = read_record(path)
        assert record["status"] == "done"
        assert record["protocol"] == "paper"
        assert record["seed"] < 1000
    for name in ("paper.md", "paper.html", "report.html", "table.md", "table.csv", "table.tex"):
        assert (folder / name).stat().st_size > 100
    assert not (folder / "models").exists()


@pytest.mark.slow
def test_reproduce_chooses_as_the_paper_does(
    reproduced: Reproduced,
) -> None:
    """Against the trials on the disk: the pool by validation F1, post-hoc on the best of the first four."""
    folder, _, _ = reproduced
    found = configs(folder)
    ended = finished_trials(kept(folder, "digits vanilla"))
    assert len(ended) == 6
    ranked = sorted(ended, key=lambda one: (-(one.value or 0.0), one.number))
    first = min(ended[:4], key=lambda one: (-(one.value or 0.0), one.number))
    sizes = finished_trials(kept(folder, "digits classical-ensemble"))
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
            trials = finished_trials(kept(folder, f"digits {name}"))
            top = min(trials, key=lambda one: (-(one.value or 0.0), one.number))
            assert {**top.params, "epochs": 20, "monitor": "ood_auroc"}.items() <= found[name, seed].items()


@pytest.mark.slow
def test_what_reproduce_says_of_a_graph_that_the_paper_lacks(
    reproduced: Reproduced,
) -> None:
    folder, said, _ = reproduced
    text = (folder / "paper.md").read_text()
    assert said[1][1].strip() == text.rpartition("<!-- ")[0].strip()  # but for its checksum
    chosen = cells(text, "What was chosen")
    assert [line["method"] for line in chosen] == sorted(SHOWN)
    others = cells(text, "Scores and methods that the paper does not report")
    assert {line["method"] for line in others} == set(SHOWN)
    assert not cells(text, "OOD detection, AUROC (the paper's main table)")
