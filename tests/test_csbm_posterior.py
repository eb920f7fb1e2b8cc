"""The posterior of the block model, against the sum over all labellings and against what a posterior must be."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from credalgnn.graphs import GraphError, among_classes, csbm, csbm_graph_posterior, csbm_posterior

SWEEPS = 10_000


def drawn(labels: NDArray[Any], source: int, target: int, homophily: float) -> float:
    """The probability that the generator draws an edge from source to target, node lists and all."""
    everyone = range(len(labels))
    alike = [node for node in everyone if labels[node] == labels[source] and node != source] or [source]
    others = [node for node in everyone if labels[node] != labels[source]]
    within = alike.count(target) / len(alike)
    across = others.count(target) / len(others)
    return (homophily * within + (1 - homophily) * across) / len(labels)


def summed(options: dict[str, Any], known: list[int], shares: list[float]) -> NDArray[Any]:
    """The posterior [N, C] as the sum over all labellings."""
    graph = csbm(**options)
    nodes, classes, homophily = options["nodes"], options["classes"], options["homophily"]
    # The means, as the generator draws them.
    rng = np.random.default_rng([options["seed"], 0])
    rng.integers(0, classes, nodes)
    means = rng.normal(size=(classes, options["features"]))
    means *= options["signal"] * np.sqrt(2) / np.linalg.norm(means, axis=1, keepdims=True)
    truth, features = graph.labels.numpy(), graph.features.double().numpy()
    pairs = [(a, b) for a, b in graph.edge_index.T.tolist() if a <= b]
    loops = [pair for pair in pairs if pair[0] == pair[1]]
    edges = [pair for pair in pairs if pair[0] < pair[1]] + loops[::2]  # each stands there in both directions
    assert len(edges) == round(nodes * options["degree"] / 2)
    free = [node for node in range(classes, nodes) if node not in known]
    total = np.zeros((nodes, classes))
    for values in product(range(classes), repeat=len(free)):
        labels = truth.copy()
        labels[free] = values
        weight = np.exp(-0.5 * ((features - means[labels]) ** 2).sum()) * np.prod([shares[c] for c in values])
        for a, b in edges:
            weight *= drawn(labels, a, b, homophily) + drawn(labels, b, a, homophily)
        total[np.arange(nodes), labels] += weight
    return total / total.sum(1, keepdims=True)


def standard_error(p: NDArray[Any]) -> NDArray[Any]:
    """Of the share of a class in as many independent draws: 0.005 at most. Conditionals vary less than draws do."""
    return np.sqrt(p * (1 - p) / SWEEPS)


@pytest.mark.parametrize("homophily", [0.0, 0.3, 0.8, 1.0])
@pytest.mark.parametrize("classes", [2, 3])
def test_the_sum_over_all_labellings(homophily: float, classes: int) -> None:
    uncertain, loops, repeated = 0, 0, 0
    for seed in range(6):
        options: dict[str, Any] = {
            "nodes": 6 + seed % 3,
            "classes": classes,
            "homophily": homophily,
            "degree": (0.7, 1.5, 3.0)[seed // 2],
            "features": 2,
            "signal": 0.7,
            "seed": seed,
        }
        edges = csbm(**options).edge_index
        plain = edges[:, edges[0] != edges[1]]
        loops += edges.shape[1] - plain.shape[1]
        repeated += plain.shape[1] - torch.unique(plain, dim=1).shape[1]
        for known, shares in (([], None), ([3, 5], [1.0, 0.4, 0.7][:classes])):
            exact = summed(options, known, shares or [1.0] * classes)
            result = csbm_graph_posterior(
                **options, known=torch.tensor(known, dtype=torch.int64), unknown_share=shares, sweeps=SWEEPS
            )
            for chain in (result.probabilities, result.second):
                assert (np.abs(chain.numpy() - exact) <= 4 * standard_error(exact) + 1e-4).all()
            assert set(known) | set(range(classes)) <= set(result.known.nonzero().flatten().tolist())
            uncertain += int(((exact > 0.05) & (exact < 0.95)).any(1).sum())
    assert uncertain > 5  # there was something to find out
    assert repeated > 0
    assert loops > 0 or homophily < 0.5 or classes == 2  # a class of one node, which can only meet itself


@pytest.fixture(scope="module")
def found() -> dict[float, Any]:
    known = torch.arange(1000) % 5 == 0
    return {h: csbm_graph_posterior(homophily=h, known=known, seed=1, sweeps=600) for h in (0.0, 0.25, 0.5, 1.0)}


def nll(p: Tensor, labels: Tensor) -> float:
    return float(-p.gather(1, labels[:, None]).log().mean())


@pytest.mark.parametrize("homophily", [0.0, 0.25, 0.5, 1.0])
def test_calibrated_and_better_than_features_alone(found: dict[float, Any], homophily: float) -> None:
    answer, graph = found[homophily], csbm(homophily=homophily, seed=1)
    p = answer.probabilities
    assert p.shape == (1000, 4)
    assert p.dtype == torch.float64
    assert torch.allclose(p.sum(1), torch.ones(1000, dtype=torch.float64))
    assert torch.equal(p[answer.known], torch.nn.functional.one_hot(graph.labels, 4).double()[answer.known])
    open_nodes = torch.arange(1000) % 5 != 0
    p, labels = p[open_nodes], graph.labels[open_nodes]
    truth = torch.nn.functional.one_hot(labels, 4).double()
    # Four standard errors of the number of hits, were the nodes independent; half as much again, as they are not.
    for chosen in (
        p.max(1, keepdim=True).values == p,
        *(((low <= p) & (p < low + 0.2)) for low in (0.0, 0.2, 0.4, 0.6)),
    ):
        spread = float((p * (1 - p))[chosen].sum().sqrt())
        assert abs(float((truth - p)[chosen].sum())) <= 6 * spread + 1e-9
    # So is the probability of the true class: on average it is the sum of squares.
    expected, entries = p.square().sum(1), p.gather(1, labels[:, None])[:, 0]
    spread = float((p * (p - expected[:, None]).square()).sum().sqrt())
    assert abs(float((entries - expected).sum())) <= 6 * spread + 1e-9
    alone = csbm_posterior(homophily=homophily, seed=1)[open_nodes]
    if homophily == 0.25:  # with four classes edges then tell nothing but the sizes of the classes
        assert (p - alone).abs().mean() < 0.01
    else:
        assert nll(p, labels) < nll(alone, labels) - 0.2
        flatter, sharper = (torch.softmax(p.clamp_min(1e-12).log() * power, 1) for power in (0.6, 1.7))
        assert homophily == 1.0 or nll(p, labels) < min(nll(flatter, labels), nll(sharper, labels))


def test_chains_that_start_elsewhere_agree(found: dict[float, Any]) -> None:
    for answer in found.values():
        assert answer.independent
        assert answer.error < 0.03  # 600 sweeps, a fifth of the default
        assert answer.error <= answer.largest_error
    assert found[0.5].error > 0
    assert found[1.0].error == 0  # whoever has a neighbour is certain


def test_the_same_bits(found: dict[float, Any]) -> None:
    """For a seed, whatever else draws random numbers, and in several threads at once."""
    torch.manual_seed(3)

    def small(seed: int) -> Tensor:
        return csbm_graph_posterior(60, 3, 0.6, seed=seed, sweeps=50).probabilities

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(small, [5, 6, 5, 5]))
    assert torch.equal(answers[0], answers[2])
    assert torch.equal(answers[0], answers[3])
    assert torch.equal(answers[0], small(5))
    assert not torch.equal(answers[0], answers[1])
    mask = torch.zeros(60, dtype=torch.bool)
    mask[[7, 9]] = True
    by_mask = csbm_graph_posterior(60, 3, 0.6, seed=5, sweeps=50, known=mask)
    by_number = csbm_graph_posterior(60, 3, 0.6, seed=5, sweeps=50, known=torch.tensor([9, 7]))
    assert torch.equal(by_mask.probabilities, by_number.probabilities)


def test_known_nodes_chosen_by_class() -> None:
    """Where no node of class 0 is ever known, those that are not known are of it more often: the shares say so."""
    labels = csbm(homophily=0.4, seed=2).labels
    known = (torch.rand(1000, generator=torch.Generator().manual_seed(0)) < 0.6) & (labels > 0)
    shares = (1.0, 0.4, 0.4, 0.4)
    reported = csbm_graph_posterior(homophily=0.4, seed=2, known=known, unknown_share=shares, sweeps=300)
    deaf = csbm_graph_posterior(homophily=0.4, seed=2, known=known, sweeps=300)
    rest = ~reported.known
    count = int((labels[rest] == 0).sum())
    p = reported.probabilities[rest]
    assert abs(float(p[:, 0].sum()) - count) <= 6 * float((p[:, 0] * (1 - p[:, 0])).sum().sqrt())
    assert nll(p, labels[rest]) < nll(deaf.probabilities[rest], labels[rest]) - 0.02


def test_among_classes() -> None:
    p = torch.tensor([[0.5, 0.2, 0.3], [1.0, 0.0, 0.0]], dtype=torch.float64)
    retained = among_classes(p, [2, 1])
    assert torch.allclose(retained[0], torch.tensor([0.6, 0.4], dtype=torch.float64))
    assert retained[1].isnan().all()
    for bad in ([], [0, 0], [3], [-1]):
        with pytest.raises(GraphError, match="classes"):
            among_classes(p, bad)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("homophily", 1.5),
        ("classes", 1),
        ("nodes", 0),
        ("sweeps", 0),
        ("sweeps", 1.5),
        ("sweeps", True),
        ("known", torch.tensor([1000])),
        ("known", torch.ones(3, dtype=torch.bool)),
        ("known", torch.tensor([0.5])),
        ("unknown_share", [1.0, 1.0]),
        ("unknown_share", [1.0, 1.0, -1.0, 1.0]),
        ("unknown_share", [1.0, 1.0, float("nan"), 1.0]),
        ("unknown_share", ["a", "b", "c", "d"]),
        ("unknown_share", [0.0, 1.0, 1.0, 1.0]),
    ],
)
def test_bad_arguments(name: str, value: Any) -> None:
    with pytest.raises(GraphError, match=name):
        csbm_graph_posterior(**{name: value})


def test_all_nodes_known() -> None:
    answer = csbm_graph_posterior(20, 3, known=torch.ones(20, dtype=torch.bool), sweeps=2)
    assert answer.known.all()
    assert torch.equal(answer.probabilities.argmax(1), csbm(20, 3).labels)
    assert answer.error == 0
