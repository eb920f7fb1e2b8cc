"""The guarantee on real predictions, as benchmarks/guarantee.py measures it, with fewer fits: ``make test-slow``."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from credalgnn import CredalCoverage, Prediction, Task, load_task

ROOT = Path(__file__).parents[1]
MIRROR = Path(os.environ.get("CREDALGNN_MIRROR") or ROOT.parent / "shared" / "datasets")
needs_mirror = pytest.mark.skipif(not MIRROR.is_dir(), reason="needs the raw files: set CREDALGNN_MIRROR")
pytestmark = pytest.mark.slow
DIVISIONS = 1000


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    spec = importlib.util.spec_from_file_location("guarantee", ROOT / "benchmarks" / "guarantee.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module", params=["csbm", "digits", pytest.param("chameleon", marks=needs_mirror)])
def predicted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Task, Prediction]:
    task = load_task(request.param, mirror=MIRROR, data_root=tmp_path_factory.mktemp("data"))
    return task, CredalCoverage(seed=0).fit(task).predict()


@pytest.mark.parametrize("score", ["EU", "coverage"])
def test_false_alarms(benchmark: ModuleType, predicted: tuple[Task, Prediction], score: str) -> None:
    """At most alpha and two standard errors; and not far below what so many calibration nodes allow."""
    task, prediction = predicted
    nodes = task.test.nodes[~task.test.is_ood]
    rates = benchmark.false_alarms(prediction.scores[score][nodes], DIVISIONS)
    mean, error = rates.mean(0), rates.std(0, ddof=1) / np.sqrt(DIVISIONS)
    alphas, count = np.array(benchmark.ALPHAS), len(nodes) // 2 + 1
    print(task.name, score, mean.round(4), error.round(4))
    assert bool((mean <= alphas + 2.0 * error).all())
    assert bool((mean >= np.floor(alphas * count) / count - 3.0 * error).all())  # scores have no ties


def test_coverage_and_size_of_sets(benchmark: ModuleType, predicted: tuple[Task, Prediction]) -> None:
    task, prediction = predicted
    known = ~task.test.is_ood
    nodes, labels = task.test.nodes[known], task.test.labels[known]
    sizes = {}
    for name, scores in benchmark.set_scores(prediction, task.graph).items():
        found = benchmark.coverage_and_size(scores[nodes], prediction.probabilities[nodes], labels, DIVISIONS)
        covered, error = found[..., 0].mean(0), found[..., 0].std(0, ddof=1) / np.sqrt(DIVISIONS)
        sizes[name] = found[..., 1].mean(0)
        print(task.name, name, covered.round(4), sizes[name].round(3))
        assert bool((covered >= np.array(benchmark.COVERAGES) - 2.0 * error).all())
    for other in ("APS", "RAPS", "DAPS"):
        assert sizes["credal"].mean() <= 1.01 * sizes[other].mean()


def test_false_alarms_and_ood_nodes_with_calibration_nodes_of_their_own(benchmark: ModuleType) -> None:
    """Five splits of digits; the standard error is that over splits."""
    rates = []
    for seed in range(5):
        parts = benchmark.sealed(load_task("digits", split_seed=seed), seed)
        scores = benchmark.fitted(parts, seed).predict().score
        rates.append([benchmark.rate(scores[parts.calibration], scores[each]) for each in parts[-2:]])
    known, ood_nodes = np.mean(rates, 0)
    error = np.std(rates, 0, ddof=1)[0] / np.sqrt(len(rates))
    print(np.round(rates, 3))
    assert known <= 0.05 + 2.0 * error
    assert ood_nodes >= 0.95
