"""The references against code that others wrote: PyG, scikit-learn, SciPy, and autograd for what is derived by hand."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
import torch
from scipy.special import logsumexp
from sklearn.covariance import empirical_covariance
from sklearn.neighbors import NearestNeighbors
from torch.nn.functional import cross_entropy

import references as ref
from pyg import GCN, GraphSAGE

NODES, FEATURES, HIDDEN, CLASSES = 40, 6, 8, 3


def drawn(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Features and edges: with loops, duplicates, and two nodes without any edge."""
    rng = np.random.default_rng(seed)
    edges = rng.integers(NODES - 2, size=(2, 120))
    edges = np.concatenate([edges, edges[:, :9], np.array([[3, 3, 5], [3, 3, 5]])], axis=1)
    return rng.normal(size=(NODES, FEATURES)), edges


def network(kind: str, layers: int) -> tuple[ref.Network, torch.nn.Module, torch.nn.Linear]:
    torch.manual_seed(0)
    model = {"gcn": GCN, "sage": GraphSAGE}[kind](FEATURES, HIDDEN, layers).double()
    head = torch.nn.Linear(HIDDEN, CLASSES).double()
    state = {name: value.numpy() for name, value in model.state_dict().items()}
    weights = head.weight.detach().numpy(), head.bias.detach().numpy()
    return ref.Network.from_weights(kind, state, *weights, drawn()[1], NODES), model, head


def test_scores_of_logits() -> None:
    logits = np.random.default_rng(0).normal(size=(30, 5)) * 4
    np.testing.assert_allclose(ref.entropy(logits), scipy.stats.entropy(ref.softmax(logits), base=2, axis=1))
    np.testing.assert_allclose(ref.energy(logits, 2.0), -2.0 * logsumexp(logits / 2.0, axis=1))
    members = np.stack([ref.softmax(logits), ref.softmax(-logits)])
    total, aleatoric, epistemic = ref.decompose(members)
    divergence = scipy.stats.entropy(members, members.mean(0, keepdims=True), base=2, axis=2).mean(0)
    np.testing.assert_allclose(epistemic, divergence, atol=1e-12)  # EU is the mean divergence from the average
    np.testing.assert_allclose(total - aleatoric, divergence, atol=1e-12)


@pytest.mark.parametrize("kth", [False, True])
def test_nearest_neighbours(kth: bool) -> None:
    rng = np.random.default_rng(0)
    train, queries = rng.normal(size=(50, 4)), rng.normal(size=(20, 4))
    distance, _ = NearestNeighbors(n_neighbors=7).fit(train).kneighbors(queries)
    np.testing.assert_allclose(ref.knn(train, queries, 7, kth=kth), distance[:, -1] if kth else distance.mean(1))


def test_gaussians() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=90)
    points = rng.normal(size=(90, 4)) @ rng.normal(size=(4, 4)) + labels[:, None]
    fitted = ref.fit_gaussians(points, labels, 3)
    centred = points - fitted.means[labels]
    np.testing.assert_allclose(fitted.precision, np.linalg.inv(empirical_covariance(centred, assume_centered=True)))
    distance, which = ref.nearest_gaussian(fitted, points[:5])
    for n in range(5):
        whitened = np.linalg.cholesky(fitted.precision).T @ (points[n] - fitted.means[which[n]])
        assert distance[n] == pytest.approx(whitened @ whitened)


@pytest.mark.parametrize("layers", [2, 3])
@pytest.mark.parametrize("kind", ["gcn", "sage"])
def test_networks_are_those_of_pyg(kind: str, layers: int) -> None:
    naive, model, head = network(kind, layers)
    features, edges = drawn()
    last = torch.relu(model(torch.from_numpy(features), torch.from_numpy(edges)))
    np.testing.assert_allclose(naive.latents(features)[-1], last.detach().numpy(), atol=1e-12)
    np.testing.assert_allclose(naive.logits(features), head(last).detach().numpy(), atol=1e-12)


@pytest.mark.parametrize("kind", ["gcn", "sage"])
def test_gradients_by_hand_are_those_of_autograd(kind: str) -> None:
    naive, model, head = network(kind, 2)
    features, edges = drawn()
    x = torch.from_numpy(features).requires_grad_()
    last = torch.relu(model(x, torch.from_numpy(edges)))
    logits = head(last) / 10.0
    logits.log_softmax(-1).amax(-1).sum().backward()
    assert x.grad is not None
    moved = model(x.detach() + 0.1 * x.grad.sign(), torch.from_numpy(edges))
    expected = -(head(torch.relu(moved)) / 10.0).softmax(-1).amax(-1)
    np.testing.assert_allclose(naive.odin(features, 10.0, 0.1), expected.detach().numpy(), atol=1e-12)

    train, labels = np.arange(24), np.arange(24) % CLASSES
    gaussians = ref.fit_gaussians(last.detach().numpy()[train], labels, CLASSES)
    means, precision = torch.from_numpy(gaussians.means), torch.from_numpy(gaussians.precision)

    def distance(z: torch.Tensor) -> torch.Tensor:
        apart = z[:, None, :] - means
        return torch.einsum("ncd,de,nce->nc", apart, precision, apart).amin(-1)

    x.grad = None
    (-distance(torch.relu(model(x, torch.from_numpy(edges)))).sum()).backward()
    moved = model(x.detach() + 0.1 * x.grad.sign(), torch.from_numpy(edges))
    expected = distance(torch.relu(moved))
    np.testing.assert_allclose(naive.mahalanobis(features, train, labels, 2, 0.1), expected.detach().numpy(), atol=1e-8)


def test_loss_at_full_share_is_two_cross_entropies() -> None:
    """Whose gradients the hand-written ones must equal; at a smaller share the worst nodes alone count."""
    rng = np.random.default_rng(0)
    low = np.log(ref.softmax(rng.normal(size=(12, 4))))
    up = np.log(ref.softmax(rng.normal(size=(12, 4))))
    target = rng.integers(4, size=12)
    a, b, y = torch.from_numpy(low).requires_grad_(), torch.from_numpy(up).requires_grad_(), torch.from_numpy(target)
    loss = torch.nn.functional.nll_loss(b, y) + torch.nn.functional.nll_loss(a, y)
    assert loss.item() == pytest.approx((cross_entropy(b, y) + cross_entropy(a, y)).item())
    loss.backward()
    found = ref.dro_loss(low, up, target, 1.0)
    assert found.value == pytest.approx(loss.item())
    np.testing.assert_allclose(found.lower, a.grad)
    np.testing.assert_allclose(found.upper, b.grad)
    assert [ref.worst(0.29, 100), ref.worst(0.1, 30), ref.worst(0.7, 10), ref.worst(0.01, 5)] == [29, 3, 7, 1]
    half = ref.dro_loss(low, up, target, 0.5)
    assert np.count_nonzero(half.lower) == 6
    assert half.value > found.value
