"""Graphs that need no files: digits, and the block model whose truth is known."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch

from credalgnn.graphs import (
    GraphError,
    csbm,
    csbm_posterior,
    digits,
    load_graph,
    load_task,
)


def run(*arguments: str, seconds: float = 300) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=seconds, check=False)


def test_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = digits()
    assert (graph.num_nodes, graph.num_classes, graph.num_features) == (1797, 10, 64)
    told = graph.describe()
    assert told.homophily > 0.8
    assert (told.isolated, told.self_loops, told.unlabelled) == (0, 0, 0)
    assert digits().fingerprint == graph.fingerprint
    assert load_graph("digits").fingerprint == graph.fingerprint
    assert digits(neighbours=3).num_edges < graph.num_edges
    task = load_task("digits")
    assert 2 <= task.num_classes < 10
    assert min(task.counts.values()) > 0
    assert task.fingerprint == load_task("digits").fingerprint
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):  # threads must not decide between equal distances
        monkeypatch.setenv(variable, "1")
    answer = run("-c", "from credalgnn.graphs import digits; print(digits().fingerprint)")
    assert answer.stdout.strip() == graph.fingerprint
    with pytest.raises(GraphError, match="neighbours"):
        digits(neighbours=0)


@pytest.mark.parametrize("homophily", [0.1, 0.5, 0.9])
def test_csbm_has_the_asked_shape(homophily: float) -> None:
    graph = csbm(nodes=3000, classes=4, homophily=homophily, degree=8.0, features=5, seed=1)
    told = graph.describe()
    assert (graph.num_nodes, graph.num_classes, graph.num_features) == (3000, 4, 5)
    assert told.homophily == pytest.approx(homophily, abs=0.03)
    assert graph.num_edges / 3000 == pytest.approx(8, rel=0.1)
    assert not told.directed
    assert told.self_loops == 0
    assert min(told.class_counts.values()) > 600


def test_csbm_follows_its_seed_and_signal() -> None:
    assert csbm(seed=3).fingerprint == csbm(seed=3).fingerprint
    assert csbm(seed=3).fingerprint != csbm(seed=4).fingerprint
    torch.manual_seed(0)
    before = torch.rand(1)
    torch.manual_seed(0)
    csbm()
    assert torch.equal(torch.rand(1), before)
    task = load_task("csbm")
    assert min(task.counts.values()) > 0
    accuracies = []
    for signal_size in (0.0, 1.0, 4.0):
        graph = csbm(nodes=2000, signal=signal_size)
        posterior = torch.as_tensor(csbm_posterior(nodes=2000, classes=4, features=16, signal=signal_size, seed=0))
        accuracies.append((posterior.argmax(1) == graph.labels).double().mean().item())
    assert accuracies[0] == pytest.approx(0.25, abs=0.05)
    assert accuracies == sorted(accuracies)
    assert accuracies[-1] > 0.95


@pytest.mark.parametrize(
    ("name", "value"),
    [("homophily", 1.5), ("homophily", -0.1), ("classes", 1), ("nodes", 0), ("degree", 0.0), ("features", 0)],
)
def test_csbm_refuses_nonsense(name: str, value: Any) -> None:
    with pytest.raises(GraphError, match=name):
        csbm(**{name: value})


def test_the_posterior_is_the_true_one() -> None:
    """Calibrated in every bin, and better than any sharper or flatter reading of itself: only Bayes is both."""
    sizes: dict[str, Any] = {"nodes": 20_000, "classes": 3, "features": 4, "signal": 1.0, "seed": 5}
    graph = csbm(**sizes)
    posterior = torch.as_tensor(csbm_posterior(**sizes)).double()
    assert posterior.shape == (20_000, 3)
    assert torch.allclose(posterior.sum(1), torch.ones(20_000, dtype=torch.float64), atol=1e-6)
    assert (posterior >= 0).all()
    hit = torch.nn.functional.one_hot(graph.labels, 3).double()
    for low in np.arange(0, 1, 0.1):
        members = (posterior > low) & (posterior <= low + 0.1)
        if int(members.sum()) > 200:
            error = 4 * 0.5 / np.sqrt(int(members.sum()))
            assert hit[members].mean().item() == pytest.approx(posterior[members].mean().item(), abs=error)
    log = posterior.clamp_min(1e-300).log()

    def loss(temperature: float) -> float:
        return torch.nn.functional.cross_entropy(log / temperature, graph.labels).item()

    assert loss(1.0) < min(loss(0.8), loss(1.25))
    means = torch.stack([graph.features[graph.labels == label].double().mean(0) for label in range(3)])
    distance = torch.cdist(graph.features.double(), means)
    agree = (distance.argmin(1) == posterior.argmax(1)).double().mean().item()
    assert agree > 0.95  # with equal spread the nearest mean wins
