"""What credal-coverage reaches on real graphs, and how it answers to fewer and to wrong labels: ``make test-slow``."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from credalgnn import CredalCoverage, Prediction, Task, Vanilla, load_task
from credalgnn.graphs import csbm
from credalgnn.methods.coverage.descriptions import Describer
from credalgnn.methods.coverage.model import estimate

MIRROR = Path(os.environ.get("CREDALGNN_MIRROR") or Path(__file__).parents[2] / "shared" / "datasets")
pytestmark = pytest.mark.slow
needs_mirror = pytest.mark.skipif(not MIRROR.is_dir(), reason="needs the raw files: set CREDALGNN_MIRROR")


def real(name: str, folder: Path, inductive: bool = False) -> Task:
    return load_task(name, mirror=MIRROR, data_root=folder, inductive=inductive)


def percent(task: Task, found: Prediction) -> float:
    """AUROC of EU over test nodes."""
    return 100.0 * float(roc_auc_score(task.test.is_ood, found.score[task.test.nodes]))


@needs_mirror
@pytest.mark.parametrize(
    ("name", "inductive", "least"),
    [
        ("chameleon", False, 87.5),
        ("squirrel", False, 84.5),
        ("computers", False, 95.0),
        ("cora", False, 90.5),
        ("citeseer", False, 87.0),
        ("chameleon", True, 78.0),
        ("squirrel", True, 76.0),
    ],
)
def test_ood_nodes_in_real_graphs(name: str, inductive: bool, least: float, tmp_path: Path) -> None:
    task = real(name, tmp_path, inductive)
    result = [percent(task, CredalCoverage(seed=seed).fit(task).predict()) for seed in range(3)]
    print(name, "inductive" if inductive else "", np.round(result, 2))
    assert float(np.mean(result)) >= least
    assert float(np.std(result)) < 2.0


@needs_mirror
@pytest.mark.filterwarnings("ignore::credalgnn.CredalWarning")  # Squirrel's TU is at its maximum
@pytest.mark.parametrize(("name", "gain"), [("chameleon", 5.0), ("squirrel", 5.0), ("cora", -2.0), ("citeseer", -2.0)])
def test_ood_nodes_that_were_never_in_the_graph(name: str, gain: float, tmp_path: Path) -> None:
    """Above the vanilla GNN's entropy by so many points at least, though nothing but known classes was ever seen."""
    task = real(name, tmp_path, inductive=True)
    gains = []
    for seed in range(3):
        vanilla = Vanilla(seed=seed).fit(task)
        fitted = CredalCoverage(model=vanilla, seed=seed, reestimate=False).fit(task)
        entropy = vanilla.predict().scores["entropy"][task.test.nodes]
        gains.append(percent(task, fitted.predict()) - 100.0 * float(roc_auc_score(task.test.is_ood, entropy)))
    print(name, np.round(gains, 2))
    assert float(np.mean(gains)) >= gain


@pytest.mark.parametrize("name", ["digits", pytest.param("chameleon", marks=needs_mirror)])
def test_fewer_labels_are_more_epistemic_uncertainty(name: str, tmp_path: Path) -> None:
    task = load_task("digits") if name == "digits" else real(name, tmp_path)
    means = []
    for share in (1.0, 0.5, 0.2, 0.1, 0.05):
        fewer = task.fewer_labels(share) if share < 1.0 else task
        means.append(float(CredalCoverage().fit(fewer).predict(nodes=task.test.nodes).score.mean()))
    print(name, np.round(means, 3))
    assert bool((np.diff(means) > 0.0).all())


@pytest.mark.parametrize("name", ["digits", *(pytest.param(n, marks=needs_mirror) for n in ("cora", "chameleon"))])
def test_wrong_labels_are_aleatoric_uncertainty(name: str, tmp_path: Path) -> None:
    """Means of three seeds: one network more or less early stopped is worth more than a tenth of the labels."""
    task = load_task("digits") if name == "digits" else real(name, tmp_path)
    means = np.zeros((5, 2))
    for row, share in enumerate((0.0, 0.1, 0.2, 0.3, 0.4)):
        for seed in range(3):
            noisy = task.label_noise(share, seed) if share else task
            result = CredalCoverage(seed=seed).fit(noisy).predict(nodes=task.test.nodes)
            means[row] += [float(result.scores[score].mean()) / 3.0 for score in ("AU", "EU")]
    print(name, means.round(3).tolist())
    aleatoric, epistemic = means.T
    assert bool((np.diff(aleatoric) > 0.0).all())
    assert np.ptp(epistemic) < (aleatoric[-1] - aleatoric[0]) / 5.0


def test_labels_at_random_earn_no_trust() -> None:
    """Forty graphs with classes, and labels that know nothing of them."""
    trusts = []
    for seed in range(40):
        graph = csbm(nodes=250, classes=3, features=8, signal=2.0, seed=seed)
        labelled = csbm(nodes=250, classes=3, features=2, seed=1000 + seed).labels == 0
        coverage, stored, _ = estimate(Describer.of(graph, seed)(graph), labelled, seed, graph)
        trusts += [coverage.diagnosis.trust, stored.diagnosis.trust]
    assert float(np.mean(np.array(trusts) == 0.0)) >= 0.95
