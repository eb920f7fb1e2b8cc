"""Methods: every detector against a naive reference, every score's orientation, and what happens to bad input."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score, roc_auc_score
from torch import Tensor

import references as ref
from credalgnn.graphs import Graph, Split, Task, csbm
from credalgnn.methods import (
    KNN,
    KNNLJ,
    METHODS,
    ClassicalEnsemble,
    CredalEnsemble,
    CredalFinal,
    CredalLJ,
    Degree,
    Energy,
    FeatureSum,
    GNNSafe,
    Mahalanobis,
    MethodError,
    Odin,
    Vanilla,
    density,
    load_method,
    neighbours,
    scores,
)
from credalgnn.methods.inputs import inputs
from credalgnn.methods.neighbours import NeighbourBank
from credalgnn.methods.network import Network
from credalgnn.nn import SAGE, Adjacency, SparseMatrix, TrainingError
from credalgnn.nn.sampling import Sampler
from credalgnn.runtime.context import Context
from oracles import brute_lower_entropy, brute_upper_entropy, hull_upper_entropy
from pyg import GAT

# Networks that are trained for a few epochs have credal sets that say nothing, and warn of it, as they should.
pytestmark = pytest.mark.filterwarnings("ignore::credalgnn.CredalWarning")
SHORT: dict[str, Any] = {"hidden": 12, "epochs": 8, "patience": 8}
POST_HOC = [Energy, Odin, Mahalanobis, KNN, GNNSafe, KNNLJ]


# ---------------------------------------------------------------------------------------------
# Small tasks
# ---------------------------------------------------------------------------------------------


@cache
def small_task(seed: int = 0, sparse: bool = False) -> Task:
    """Four classes of which one is left out, 160 nodes, 10 features; loops, duplicates and two isolated nodes."""
    graph = csbm(nodes=160, classes=4, degree=6, features=10, signal=2.0, seed=seed)
    edges = graph.edge_index
    edges = edges[:, ((edges != 158) & (edges != 159)).all(0)]
    edges = torch.cat([edges, edges[:, :20], torch.tensor([[5, 5, 6], [5, 5, 6]])], dim=1)
    features = graph.features.clone()
    if sparse:
        features = features * (torch.rand(features.shape, generator=torch.Generator().manual_seed(seed)) < 0.2)
    graph = Graph(features, edges, graph.labels)
    assert (graph.features.layout == torch.sparse_csr) == sparse
    return Task.leave_out(graph, [0], split_seed=seed, name="small")


@cache
def small_vanilla(backbone: str = "sage", sparse: bool = False, layers: int = 2) -> Vanilla:
    return Vanilla(backbone=backbone, layers=layers, **SHORT).fit(small_task(sparse=sparse))


def dense_features(graph: Graph) -> np.ndarray:
    return graph.features.to_dense().double().numpy()


def network(vanilla: Vanilla, graph: Graph) -> ref.Network:
    """The naive twin of a fitted vanilla, on any graph."""
    module = vanilla.module_
    state = {name: value.detach().numpy() for name, value in module.backbone.state_dict().items()}
    head = module.head.weight.detach().numpy(), module.head.bias.detach().numpy()
    return ref.Network.from_weights(vanilla.backbone, state, *head, graph.edge_index.numpy(), graph.num_nodes)


def arrays(vanilla: Vanilla, graph: Graph | None = None) -> tuple[np.ndarray, list[np.ndarray]]:
    """Logits and latents [z0 .. zL] in float64."""
    outputs = vanilla.outputs() if graph is None else vanilla.outputs(graph)
    latents = [z.to_dense() if isinstance(z, SparseMatrix) else z for z in outputs.latents]
    return outputs.logits.detach().double().numpy(), [z.detach().double().numpy() for z in latents]


def training_part(task: Task) -> tuple[np.ndarray, np.ndarray]:
    view = task.training
    return view.train.numpy(), view.graph.labels[view.train].numpy()


def grown(graph: Graph, seed: int = 0) -> Graph:
    """The graph with six more nodes, three of them joined to old ones, one edge from new to old among them."""
    rng = np.random.default_rng(seed)
    n = graph.num_nodes
    extra = rng.normal(size=(6, graph.num_features)).astype(np.float32)
    features = torch.cat([graph.features.to_dense(), torch.from_numpy(extra)])
    edges = torch.tensor([[0, 1, 2, n, n + 1], [n, n, n + 1, n + 2, 7]])
    return Graph(features, torch.cat([graph.edge_index, edges], dim=1), torch.cat([graph.labels, torch.full((6,), -1)]))


# ---------------------------------------------------------------------------------------------
# Scores of outputs: references
# ---------------------------------------------------------------------------------------------

SHAPES = [(1, 2), (7, 3), (40, 5), (25, 30)]


def draw(shape: tuple[int, ...], seed: int, scale: float = 3.0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape) * scale)


def close(found: Tensor, expected: np.ndarray) -> None:
    """Equal to 1e-6, absolute and relative, in float64."""
    assert found.dtype == torch.float64
    assert found.shape == expected.shape
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", SHAPES)
def test_scores_of_logits_equal_the_reference(shape: tuple[int, int], dtype: torch.dtype) -> None:
    for seed in range(5):
        for scale in (0.01, 3.0, 200.0):
            logits = draw(shape, seed, scale).to(dtype)
            known = logits.double().numpy()
            close(scores.msp(logits), ref.msp(known))
            close(scores.entropy(logits), ref.entropy(known))
            close(scores.energy(logits), ref.energy(known))
            close(scores.odin(logits), ref.odin(known, 1000.0))
            for temperature in (0.5, 2.0, 100.0):
                close(scores.energy(logits, temperature), ref.energy(known, temperature))
                close(scores.odin(logits, temperature), ref.odin(known, temperature))


def test_scores_of_logits_are_calculated_in_double_precision() -> None:
    """At T = 1000 all of ODIN's scores are nearly equal: float32 would make ties of them."""
    logits = draw((200, 5), 0, 0.05).float()
    found = scores.odin(logits)
    assert len(torch.unique(found)) == 200
    np.testing.assert_allclose(found.numpy(), ref.odin(logits.double().numpy(), 1000.0), rtol=1e-13)
    sure = scores.msp(torch.tensor([[20.0, 0.0], [30.0, 0.0], [36.0, 0.0]]))
    assert sure[0] > sure[1] > sure[2] > 0
    np.testing.assert_allclose(sure.numpy(), [2.061153618190204e-9, 9.357622968839e-14, 2.319522830243e-16], rtol=0.2)


def bare(edges: Any, nodes: int) -> Graph:
    """Edges and nothing else."""
    return Graph(torch.ones(nodes, 1), edges)


@pytest.mark.parametrize(("alpha", "steps"), [(0.5, 2), (0.1, 1), (0.9, 8), (0.0, 3), (1.0, 2), (0.5, 0)])
def test_propagation_equals_the_reference(alpha: float, steps: int) -> None:
    """On directed edges with loops and duplicates; nodes 17..19 hear nobody."""
    for seed in range(5):
        rng = np.random.default_rng(seed)
        edges = np.stack([rng.integers(20, size=60), rng.integers(17, size=60)])
        edges = np.concatenate([edges, edges[:, :7], [[3], [3]]], axis=1)
        values = draw((20,), seed)
        found = scores.propagate(values, bare(edges, 20), alpha=alpha, steps=steps)
        close(found, ref.propagate(values.numpy(), edges, alpha, steps))
        if steps:
            assert torch.equal(found[17:], values[17:])
    close(scores.propagate(values, bare(edges, 20)), ref.propagate(values.numpy(), edges, 0.5, 2))


@pytest.mark.parametrize("shape", [(1, 4, 3), (2, 10, 2), (5, 20, 6), (12, 8, 30)])
def test_decomposition_of_ensembles_equals_the_reference(shape: tuple[int, int, int]) -> None:
    for seed in range(5):
        members = draw(shape, seed).softmax(-1)
        for given in (members, members.float()):
            found = scores.ensemble_uncertainty(given)
            expected = ref.decompose(given.double().numpy())
            close(found.total, expected.total)
            close(found.aleatoric, expected.aleatoric)
            close(found.epistemic, expected.epistemic.clip(0.0))
    sure = torch.eye(3, dtype=torch.float64)[:, None, :]  # zeros have a logarithm nobody wants
    close(scores.ensemble_uncertainty(sure).total, np.array([math.log2(3)]))
    close(scores.ensemble_uncertainty(sure).aleatoric, np.array([0.0]))
    assert float(scores.ensemble_uncertainty(draw((1, 50, 4), 0).softmax(-1)).epistemic.min()) >= 0.0


def knn(train: Any, queries: Any, k: int, kth: bool = False, normalize: bool = False) -> Tensor:
    return NeighbourBank(train, normalize).distance(queries, k, kth)


@pytest.mark.parametrize(("nodes", "width", "classes"), [(60, 3, 2), (200, 8, 4), (30, 16, 3)])
def test_mahalanobis_equals_the_reference(nodes: int, width: int, classes: int) -> None:
    for seed in range(5):
        rng = np.random.default_rng(seed)
        labels = rng.permutation(np.arange(nodes) % classes)
        points = rng.normal(size=(nodes, width)) @ rng.normal(size=(width, width)) + labels[:, None]
        queries = rng.normal(size=(25, width)) * 4
        for dtype in (torch.float32, torch.float64):
            z, q = torch.from_numpy(points).to(dtype), torch.from_numpy(queries).to(dtype)
            fitted = density.fit_gaussians(z, torch.from_numpy(labels), classes)
            expected = ref.fit_gaussians(z.double().numpy(), labels, classes)
            close(fitted.means, expected.means)
            np.testing.assert_allclose(fitted.precision.numpy(), expected.precision, rtol=1e-6, atol=1e-6)
            close(density.gaussian_distance(fitted, q), ref.nearest_gaussian(expected, q.double().numpy())[0])


def test_mahalanobis_with_a_singular_covariance_uses_the_pseudo_inverse() -> None:
    """A dead unit, a unit that is the sum of two others, and fewer nodes than dimensions."""
    rng = np.random.default_rng(0)
    labels = np.arange(40) % 3
    points = rng.normal(size=(40, 5)) + labels[:, None]
    points = np.column_stack([points, np.zeros(40), points[:, 0] + points[:, 1]])
    fitted = density.fit_gaussians(torch.from_numpy(points), torch.from_numpy(labels), 3)
    expected = ref.fit_gaussians(points, labels, 3)
    assert np.linalg.matrix_rank(fitted.precision.numpy()) == 5
    close(fitted.precision, expected.precision)
    close(density.gaussian_distance(fitted, torch.from_numpy(points)), ref.nearest_gaussian(expected, points)[0])
    moved = torch.from_numpy(points).clone()
    moved[:, 5] = 100.0  # the dead unit counts for nothing
    close(density.gaussian_distance(fitted, moved), ref.nearest_gaussian(expected, points)[0])
    few = rng.normal(size=(9, 20))
    fitted = density.fit_gaussians(torch.from_numpy(few), torch.from_numpy(labels[:9]), 3)
    expected = ref.fit_gaussians(few, labels[:9], 3)
    close(density.gaussian_distance(fitted, torch.from_numpy(few)), ref.nearest_gaussian(expected, few)[0])


def test_gaussians_need_nodes_and_variance() -> None:
    labels = torch.arange(12) % 3
    with pytest.raises(ValueError, match="class"):
        density.fit_gaussians(draw((12, 4), 0), labels, 4)
    with pytest.raises(ValueError, match=r"covariance|varia|constant|zero"):
        density.fit_gaussians(torch.ones(12, 4), labels, 3)


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("kth", [False, True])
def test_nearest_neighbours_equal_the_reference(kth: bool, normalize: bool) -> None:
    for seed, (nodes, width) in enumerate([(30, 1), (30, 2), (80, 7), (50, 40)]):
        train, queries = draw((nodes, width), seed), draw((20, width), seed + 100)
        queries[:3] = train[:3]  # a node that was trained on is not left out of its own neighbours
        queries[4] = 0.0
        train[5] = 0.0
        train[6] = train[7]
        for k in (1, 5, nodes):
            for dtype in (torch.float32, torch.float64):
                one, other = train.to(dtype), queries.to(dtype)
                expected = ref.knn(one.double().numpy(), other.double().numpy(), k, kth, normalize)
                close(knn(one.clone(), other.clone(), k, kth=kth, normalize=normalize), expected)
    options = {"kth": kth, "normalize": normalize}
    far = draw((30, 3), 0) + 1e4  # distances are small beside the coordinates
    expected = ref.knn(far.numpy(), far[:10].numpy() + 0.01, 3, **options)
    close(knn(far.clone(), far[:10] + 0.01, 3, **options), expected)


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
def test_nearest_neighbours_in_the_joint_space(sparse: bool, normalize: bool) -> None:
    """A list of latents is their concatenation; the vectors that are scaled to length 1 are the joint ones."""
    features = draw((50, 12), 0) * (draw((50, 12), 1) > 2.0)
    features[2] = 0.0
    latents = [features, draw((50, 4), 2).relu(), draw((50, 3), 3).relu()]
    joint = torch.cat(latents, dim=1).numpy()
    split = [(z[:35], z[35:]) for z in latents]
    train, queries = [a for a, _ in split], [b for _, b in split]
    if sparse:
        train[0], queries[0] = (SparseMatrix.from_torch(z[0].to_sparse_csr()) for z in (train, queries))
    for k, kth in ((1, False), (6, False), (6, True)):
        fresh = [z.clone() if isinstance(z, Tensor) else z for z in train]
        found = knn(fresh, queries, k, kth=kth, normalize=normalize)
        close(found, ref.knn(joint[:35], joint[35:], k, kth, normalize))


@pytest.mark.parametrize("normalize", [False, True])
def test_approximate_neighbours_say_how_many_they_find(normalize: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Above a stated size neighbours are approximate: never nearer than the true ones, and mostly the same."""
    train, queries = draw((4000, 6), 0).float(), draw((300, 6), 1).float()
    exact = knn(train, queries, 5, normalize=normalize)
    ref_nearest = knn(train, queries, 1, normalize=normalize)
    bank = neighbours.NeighbourBank(train, normalize)
    assert bank.recall is None
    assert torch.equal(bank.distance(queries, 5), exact)
    assert bank.recall is None  # exact up to the size
    monkeypatch.setattr(neighbours, "EXACT_UP_TO", 3999)
    bank = neighbours.NeighbourBank(train, normalize)
    found = bank.distance(queries, 5)
    assert found.dtype == torch.float64
    assert float((found - exact).min()) > -1e-4
    assert float(((found - exact) / exact).mean()) < 0.02
    assert bank.recall is not None
    assert 0.9 <= bank.recall <= 1.0
    nearest = neighbours.NeighbourBank(train, normalize)
    hit = (nearest.distance(queries, 1) - ref_nearest).abs() < 1e-4
    assert nearest.recall == pytest.approx(float(hit.double().mean()), abs=0.04)  # of training nodes, and of 300 others


def test_scores_leave_what_they_are_given_alone() -> None:
    labels = torch.arange(30) % 3
    for dtype in (torch.float32, torch.float64):
        train, queries, logits = draw((30, 4), 0).to(dtype), draw((9, 4), 1).to(dtype), draw((9, 3), 2).to(dtype)
        values, edges = draw((9,), 3).to(dtype), torch.tensor([[0, 1, 2], [1, 2, 3]])
        members = draw((2, 9, 3), 4).softmax(-1).to(dtype)
        given = [train, queries, logits, values, edges, members, labels]
        before = [tensor.clone() for tensor in given]
        for normalize in (False, True):
            knn(train, queries, 3, normalize=normalize)
            knn([train, train], [queries, queries], 3, normalize=normalize)
        density.gaussian_distance(density.fit_gaussians(train, labels, 3), queries)
        scores.propagate(values, bare(edges, 9))
        scores.ensemble_uncertainty(members)
        for score in (scores.msp, scores.entropy, scores.energy, scores.odin):
            score(logits)
        for number, (tensor, old) in enumerate(zip(given, before, strict=True)):
            assert torch.equal(tensor, old), (number, dtype)


@pytest.mark.parametrize("k", [0, -1, 31])
def test_nearest_neighbours_refuse_an_impossible_k(k: int) -> None:
    with pytest.raises(ValueError, match="k"):
        knn(draw((30, 2), 0), draw((5, 2), 1), k)


# ---------------------------------------------------------------------------------------------
# Scores of outputs: orientation, on outputs where there is no doubt
# ---------------------------------------------------------------------------------------------


def test_uniform_logits_are_more_uncertain_than_one_hot_ones() -> None:
    logits = torch.tensor([[0.0, 0.0, 0.0], [9.0, 0.0, 0.0]])
    for score in (scores.msp, scores.entropy, scores.odin):
        unsure, sure = score(logits).tolist()
        assert unsure > sure, score.__name__
    assert scores.msp(logits)[0].item() == pytest.approx(2 / 3)
    assert scores.entropy(logits)[0].item() == pytest.approx(math.log2(3))


def test_high_energy_is_more_uncertain_than_low_energy() -> None:
    """Energy is minus the logsumexp: large logits are low energy, which is what training nodes have."""
    logits = torch.tensor([[0.1, 0.0, -0.1], [12.0, 0.0, -2.0]])
    for temperature in (1.0, 3.0):
        unsure, sure = scores.energy(logits, temperature).tolist()
        assert unsure > sure
    assert scores.energy(logits)[1].item() == pytest.approx(-12.0, abs=1e-4)


def test_neighbours_of_ood_nodes_are_more_uncertain() -> None:
    """Nodes 2 and 3 are alike; 0, of high energy, points at 2, and 1, of low energy, at 3. 4 points at nobody's."""
    values = torch.tensor([5.0, -5.0, 0.0, 0.0, 0.0])
    spread = scores.propagate(values, bare([[0, 1, 2], [2, 3, 4]], 5), alpha=0.5, steps=1)
    assert spread.tolist() == [5.0, -5.0, 2.5, -2.5, 0.0]
    again = scores.propagate(values, bare([[0, 1, 2], [2, 3, 4]], 5), alpha=0.5, steps=2)
    assert again.tolist() == [5.0, -5.0, 3.75, -3.75, 1.25]


def test_disagreeing_members_are_more_uncertain_than_agreeing_ones() -> None:
    """Node 0: each member is sure of another class. Node 1: all are sure of one. Node 2: all know that nobody knows."""
    eye, uniform = torch.eye(3, dtype=torch.float64), torch.full((3,), 1 / 3, dtype=torch.float64)
    members = torch.stack([torch.stack([eye[m], eye[1], uniform]) for m in range(3)])
    total, aleatoric, epistemic = scores.ensemble_uncertainty(members)
    top = math.log2(3)
    torch.testing.assert_close(total, torch.tensor([top, 0.0, top], dtype=torch.float64))
    torch.testing.assert_close(aleatoric, torch.tensor([0.0, 0.0, top], dtype=torch.float64))
    torch.testing.assert_close(epistemic, torch.tensor([top, 0.0, 0.0], dtype=torch.float64))


def test_far_latents_are_more_uncertain_than_near_ones() -> None:
    labels = torch.arange(60) % 2
    train = draw((60, 3), 0, 0.1) + labels[:, None] * 4.0
    queries = torch.tensor([[4.0, 4.0, 4.0], [0.0, 0.0, 0.0], [2.0, 2.0, 2.0], [40.0, 40.0, 40.0]]).double()
    fitted = density.fit_gaussians(train, labels, 2)
    for found in (
        density.gaussian_distance(fitted, queries),
        knn(train, queries, 5),
        knn(train, queries, 5, kth=True),
        knn([train[:, :1], train[:, 1:]], [queries[:, :1], queries[:, 1:]], 5),
    ):
        near, also_near, between, far = found.tolist()
        assert max(near, also_near) < between < far
    turned = knn(train, torch.tensor([[9.0, 9.0, 9.0], [-9.0, 9.0, 0.0]]).double(), 5, normalize=True)
    assert turned[0] < turned[1]  # direction alone counts


# ---------------------------------------------------------------------------------------------
# Methods: references
# ---------------------------------------------------------------------------------------------

BACKBONES = [("sage", False, 2), ("gcn", False, 2), ("sage", True, 3), ("gcn", True, 2)]


@pytest.mark.parametrize(("backbone", "sparse", "layers"), BACKBONES)
def test_outputs_are_those_of_the_weights(backbone: str, sparse: bool, layers: int) -> None:
    vanilla, graph = small_vanilla(backbone, sparse, layers), small_task(sparse=sparse).graph
    logits, latents = arrays(vanilla)
    naive = network(vanilla, graph)
    expected = naive.latents(dense_features(graph))
    assert len(latents) == layers + 1
    assert [z.shape for z in latents] == [z.shape for z in expected]
    assert logits.shape == (graph.num_nodes, 3)
    for found, wanted in zip(latents, expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(logits, naive.logits(dense_features(graph)), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("backbone", "sparse", "layers"), BACKBONES)
def test_detectors_equal_the_reference(backbone: str, sparse: bool, layers: int) -> None:
    """Each from the logits and latents of one vanilla."""
    vanilla, task = small_vanilla(backbone, sparse, layers), small_task(sparse=sparse)
    logits, latents = arrays(vanilla)
    train, labels = training_part(task)
    edges = task.graph.edge_index.numpy()
    found = vanilla.predict()
    close(found.scores["msp"], ref.msp(logits))
    close(found.scores["entropy"], ref.entropy(logits))
    np.testing.assert_allclose(found.probabilities.numpy(), ref.softmax(logits), atol=1e-6)
    assert found.classes.tolist() == logits.argmax(1).tolist()

    def check(method: Any, name: str, expected: np.ndarray) -> None:
        prediction = method.fit(task).predict()
        assert list(prediction.scores) == [name]
        assert prediction.headline == name
        close(prediction.scores[name], expected)
        close(prediction.score, expected)
        np.testing.assert_allclose(prediction.probabilities.numpy(), ref.softmax(logits), atol=1e-6)

    check(Energy(model=vanilla), "energy", ref.energy(logits))
    check(Energy(model=vanilla, temperature=3.0), "energy", ref.energy(logits, 3.0))
    safe = {"alpha": 0.3, "steps": 3}
    check(GNNSafe(model=vanilla), "energy", ref.propagate(ref.energy(logits), edges, 0.5, 2))
    check(GNNSafe(model=vanilla, **safe), "energy", ref.propagate(ref.energy(logits), edges, 0.3, 3))
    warm = ref.propagate(ref.energy(logits, 2.0), edges, 0.5, 2)
    check(GNNSafe(model=vanilla, temperature=2.0), "energy", warm)
    check(Odin(model=vanilla, temperature=5.0, epsilon=0.0), "odin", ref.odin(logits, 5.0))
    last, joint = latents[-1], np.concatenate(latents, axis=1)
    check(KNN(model=vanilla), "distance", ref.knn(last[train], last, 10))
    check(KNN(model=vanilla, k=3, kth=True), "distance", ref.knn(last[train], last, 3, kth=True))
    check(KNN(model=vanilla, k=4, normalize=True), "distance", ref.knn(last[train], last, 4, normalize=True))
    check(KNNLJ(model=vanilla), "distance", ref.knn(joint[train], joint, 10))
    check(KNNLJ(model=vanilla, k=7, kth=True), "distance", ref.knn(joint[train], joint, 7, kth=True))
    check(KNNLJ(model=vanilla, k=7, normalize=True), "distance", ref.knn(joint[train], joint, 7, normalize=True))
    for layer in (-1, layers, 1):
        fitted = ref.fit_gaussians(latents[layer][train], labels, 3)
        expected = ref.nearest_gaussian(fitted, latents[layer])[0]
        check(Mahalanobis(model=vanilla, layer=layer), "distance", expected)


@pytest.mark.parametrize(("backbone", "sparse"), [("sage", False), ("gcn", False), ("sage", True)])
def test_odin_equals_the_reference_from_weights(backbone: str, sparse: bool) -> None:
    """Features are moved by the gradient, derived by hand; sparse ones where they are zero, too."""
    vanilla, task = small_vanilla(backbone, sparse), small_task(sparse=sparse)
    naive, features = network(vanilla, task.graph), dense_features(task.graph)
    for temperature, epsilon in ((1.0, 0.05), (20.0, 0.05), (1000.0, 0.0014)):
        expected = naive.odin(features, temperature, epsilon)
        still = naive.odin(features, temperature, 0.0)
        found = Odin(model=vanilla, temperature=temperature, epsilon=epsilon).fit(task).predict().score
        assert found.dtype == torch.float64
        effect = np.abs(expected - still).max()
        np.testing.assert_allclose(found.numpy(), expected, rtol=0, atol=min(5e-6, 0.01 * effect))
        assert (expected < still).mean() > 0.7  # moved towards more confidence
    assert Odin().temperature == 1000.0
    assert Odin().epsilon == 0.0014


@pytest.mark.parametrize(("backbone", "sparse"), [("sage", False), ("gcn", False), ("sage", True)])
def test_mahalanobis_with_input_noise_equals_the_reference_from_weights(backbone: str, sparse: bool) -> None:
    vanilla, task = small_vanilla(backbone, sparse), small_task(sparse=sparse)
    naive, features = network(vanilla, task.graph), dense_features(task.graph)
    train, labels = training_part(task)
    for layer in (1, 2):
        for epsilon in (0.01, 0.1):
            expected = naive.mahalanobis(features, train, labels, layer, epsilon)
            still = naive.mahalanobis(features, train, labels, layer, 0.0)
            found = Mahalanobis(model=vanilla, layer=layer, epsilon=epsilon).fit(task).predict().score
            np.testing.assert_allclose(found.numpy(), expected, rtol=1e-4, atol=1e-4)
            assert np.abs(expected - still).max() > 0.01


@pytest.mark.parametrize("sparse", [False, True])
def test_mahalanobis_on_the_features(sparse: bool) -> None:
    """Layer 0 is the input; here with a column twice, so that the covariance is singular."""
    task = small_task(sparse=sparse)
    features = task.graph.features.to_dense()
    graph = task.graph.replace(features=torch.cat([features, features[:, :1]], dim=1))
    task = Task.leave_out(graph, [0])
    train, labels = training_part(task)
    points = dense_features(graph)
    expected = ref.nearest_gaussian(ref.fit_gaussians(points[train], labels, 3), points)[0]
    close(Mahalanobis(model=Vanilla(**SHORT), layer=0).fit(task).predict().score, expected)


def test_trivial_baselines_equal_the_reference() -> None:
    for sparse in (False, True):
        graph = small_task(sparse=sparse).graph
        degree = np.zeros(graph.num_nodes)
        for target in graph.edge_index[1].tolist():
            degree[target] += 1
        assert degree.min() == 0
        for method, expected in (
            (Degree(), -degree),
            (FeatureSum(), -np.abs(dense_features(graph)).sum(1)),
        ):
            found = method.fit(small_task(sparse=sparse)).predict()
            close(found.scores["score"], expected)
            assert found.probabilities is None
            with pytest.raises(MethodError, match=r"probabilit|class"):
                _ = found.classes


@cache
def small_members() -> tuple[Vanilla, ...]:
    return tuple(Vanilla(seed=seed, **SHORT).fit(small_task()) for seed in range(3))


def test_classical_ensemble_equals_the_reference() -> None:
    probabilities = np.stack([ref.softmax(arrays(member)[0]) for member in small_members()])
    expected = ref.decompose(probabilities)
    found = ClassicalEnsemble(members=list(small_members())).fit(small_task()).predict()
    close(found.scores["TU"], expected.total)
    close(found.scores["AU"], expected.aleatoric)
    close(found.scores["EU"], expected.epistemic.clip(0.0))
    np.testing.assert_allclose(found.probabilities.numpy(), probabilities.mean(0), atol=1e-6)
    assert expected.epistemic.max() > 0.05
    assert found.credal is None
    assert found.gap is None


def test_credal_ensemble_equals_the_reference() -> None:
    """The hull of the members, not the box around it: its entropies from an interior-point method."""
    probabilities = np.stack([ref.softmax(arrays(member)[0]) for member in small_members()])
    found = CredalEnsemble(members=list(small_members())).fit(small_task()).predict()
    np.testing.assert_allclose(found.credal.members.double().numpy(), probabilities, atol=1e-6)
    lower = np.array([min(ref.bits(member[n]) for member in probabilities) for n in range(160)])
    close(found.scores["AU"], lower)
    for n in range(0, 160, 8):
        assert float(found.scores["TU"][n]) == pytest.approx(hull_upper_entropy(probabilities[:, n]).value, abs=1e-6)
    np.testing.assert_allclose(found.scores["EU"], found.scores["TU"] - found.scores["AU"], atol=1e-9)
    low, up = probabilities.min(0), probabilities.max(0)
    beta = (1.0 - low.sum(1)) / (up - low).sum(1)
    np.testing.assert_allclose(found.probabilities.numpy(), low + beta[:, None] * (up - low), atol=1e-6)
    box = brute_upper_entropy(low, up)
    assert (box - found.scores["TU"].numpy()).max() > 1e-3


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("shape", [{}, {"midpoint": "sigmoid", "half_length": "sigmoid"}], ids=["default", "sigmoid"])
@pytest.mark.parametrize("method", [CredalLJ, CredalFinal])
def test_credal_methods_equal_the_reference_from_weights(method: type, shape: dict[str, str], sparse: bool) -> None:
    """Bounds from the weights of backbone and head, on [z0 .. zL] or zL; entropies by enumeration."""
    task = small_task(sparse=sparse)
    fitted = method(**SHORT, **shape).fit(task)
    found = fitted.predict()
    state = {name: value.detach().numpy() for name, value in fitted.module_.backbone.state_dict().items()}
    nothing = np.zeros((1, SHORT["hidden"])), np.zeros(1)
    naive = ref.Network.from_weights("sage", state, *nothing, task.graph.edge_index.numpy(), task.graph.num_nodes)
    latents = naive.latents(dense_features(task.graph))
    z = np.concatenate(latents, axis=1) if method is CredalLJ else latents[-1]
    head = fitted.module_.head
    assert head.weight.shape == (6, z.shape[1])
    low, up = ref.credal_bounds(head.weight.detach().numpy(), head.bias.detach().numpy(), z, **shape)
    np.testing.assert_allclose(found.credal.lower.double().numpy(), low, atol=2e-6)
    np.testing.assert_allclose(found.credal.upper.double().numpy(), up, atol=2e-6)
    assert (up - low).min() > 1e-4
    exact = found.credal.lower.double().numpy(), found.credal.upper.double().numpy()
    np.testing.assert_allclose(found.scores["TU"].numpy(), brute_upper_entropy(*exact), atol=1e-6)
    np.testing.assert_allclose(found.scores["AU"].numpy(), brute_lower_entropy(*exact), atol=1e-6)
    np.testing.assert_allclose(found.scores["EU"], found.scores["TU"] - found.scores["AU"], atol=1e-9)
    beta = (1.0 - low.sum(1)) / (up - low).sum(1)
    expected = low + beta[:, None] * (up - low)
    np.testing.assert_allclose(found.probabilities.numpy(), expected, atol=5e-6)
    assert found.classify("intersection").tolist() == found.classes.tolist()
    assert found.classify("lower").tolist() == exact[0].argmax(1).tolist()
    assert found.classify("upper").tolist() == exact[1].argmax(1).tolist()


# ---------------------------------------------------------------------------------------------
# Methods: orientation
# ---------------------------------------------------------------------------------------------


def with_ood_nodes(graph: Graph) -> Graph:
    """The graph and four isolated nodes more: no features, and one node's features once, 30 and -30 times."""
    dense = graph.features.to_dense()
    extra = torch.stack([torch.zeros_like(dense[0]), dense[0], 30 * dense[0], -30 * dense[0]])
    labels = torch.cat([graph.labels, torch.full((4,), -1)])
    return Graph(torch.cat([dense, extra]), graph.edge_index, labels)


@pytest.mark.filterwarnings("ignore::credalgnn.InputWarning")
@pytest.mark.parametrize("method", [Mahalanobis, KNN, KNNLJ])
def test_a_far_node_is_more_uncertain(method: type) -> None:
    task, vanilla = small_task(), small_vanilla()
    fitted = method(model=vanilla).fit(task)
    found = fitted.predict(with_ood_nodes(task.graph)).score
    assert float(found[-2:].max()) > 3 * float(found[:-4].max())


@pytest.mark.filterwarnings("ignore::credalgnn.InputWarning")
@pytest.mark.parametrize("method", [CredalLJ, CredalFinal])
def test_a_wide_interval_is_more_uncertain(method: type) -> None:
    """All midpoints are made 0 and half-lengths to grow with the latent: the larger it is, the wider the intervals."""
    task = small_task()
    fitted = method(**SHORT).fit(task)
    head = fitted.module_.head
    with torch.no_grad():
        head.weight.zero_()
        head.weight[3:, -SHORT["hidden"] :] = 1.0
        head.bias.zero_()
        head.bias[3:] = -4.0
    graph = with_ood_nodes(task.graph)
    state = {name: value.detach().numpy() for name, value in fitted.module_.backbone.state_dict().items()}
    nothing = np.zeros((1, SHORT["hidden"])), np.zeros(1)
    naive = ref.Network.from_weights("sage", state, *nothing, graph.edge_index.numpy(), graph.num_nodes)
    size = naive.latents(dense_features(graph))[-1].sum(1)
    found = fitted.predict(graph)
    narrow, wide = int(size[:160].argmin()), int(size[:160].argmax())
    assert size[wide] > size[narrow] + 1.0
    assert float(found.credal.width[wide].min()) > float(found.credal.width[narrow].max())
    for score in (found.scores["EU"], found.epistemic, found.score):
        assert float(score[wide]) > float(score[narrow])
    assert float(found.scores["AU"][wide]) < float(found.scores["AU"][narrow])
    torch.testing.assert_close(found.scores["TU"], torch.full((164,), math.log2(3), dtype=torch.float64))
    assert found.headline == "EU"


@pytest.mark.parametrize("method", [ClassicalEnsemble, CredalEnsemble])
def test_members_that_disagree_are_more_uncertain(method: type) -> None:
    """Member m is made to say class m, the louder the larger the latent; at latent 0 all say that nobody knows."""
    task = small_task()
    members = [Vanilla(seed=seed, **SHORT).fit(task) for seed in range(3)]
    fitted = method(members=members).fit(task)
    for number, member in enumerate(members):
        with torch.no_grad():
            for parameter in member.module_.parameters():
                parameter.abs_()
            for name, parameter in member.module_.backbone.named_parameters():
                if name.endswith("bias"):
                    parameter.zero_()
            member.module_.head.weight.zero_()
            member.module_.head.weight[number] = 10.0
            member.module_.head.bias.zero_()
    loud = torch.ones(1, task.graph.num_features)
    dense = torch.cat([task.graph.features.to_dense().abs(), torch.zeros_like(loud), loud])
    graph = Graph(dense, task.graph.edge_index)
    found = fitted.predict(graph)
    agreeing, disagreeing = graph.num_nodes - 2, graph.num_nodes - 1
    top = math.log2(3)
    assert float(found.scores["EU"][disagreeing]) == pytest.approx(top, abs=1e-3)
    assert float(found.scores["EU"][agreeing]) == pytest.approx(0.0, abs=1e-6)
    assert float(found.scores["AU"][disagreeing]) == pytest.approx(0.0, abs=1e-3)
    assert float(found.scores["AU"][agreeing]) == pytest.approx(top, abs=1e-6)
    assert float(found.scores["TU"][disagreeing]) == pytest.approx(top, abs=1e-3)
    assert found.headline == "EU"
    assert torch.equal(found.score, found.scores["EU"])


@pytest.mark.filterwarnings("ignore::credalgnn.InputWarning")
@pytest.mark.parametrize("method", [Vanilla, Energy, Odin, GNNSafe])
def test_a_node_of_large_logits_is_less_uncertain(method: type) -> None:
    """The head is made to say class 0, the louder the larger the latent."""
    task = small_task()
    vanilla = Vanilla(**SHORT).fit(task)
    fitted = vanilla if method is Vanilla else method(model=vanilla).fit(task)
    with torch.no_grad():
        vanilla.module_.head.weight.zero_()
        vanilla.module_.head.weight[0] = 1.0
        vanilla.module_.head.bias.zero_()
    graph = with_ood_nodes(task.graph)
    logits = network(vanilla, graph).logits(dense_features(graph))[:, 0]
    loud = 162 + int(logits[162:].argmax())
    assert logits[loud] > logits[160] + 1.0
    found = fitted.predict(graph)
    for name, score in found.scores.items():
        assert float(score[160]) > float(score[loud]), name
    assert float(found.score[160]) > float(found.score[loud])


def test_few_features_and_few_neighbours_are_more_uncertain() -> None:
    features = torch.tensor([[0.0, 0.0, 0.1], [-5.0, 4.0, -3.0], [1.0, 1.0, 1.0], [1.0, 1.0, 0.0]])
    edges = torch.tensor([[0, 2, 3, 1, 1], [1, 1, 1, 2, 3]])  # node 1 is the hub, nobody points at node 0
    graph = Graph(features, edges, [0, 1, 0, 1])
    parts = {"train": torch.tensor([0, 1]), "val": torch.tensor([2, 3])}
    few = FeatureSum().fit(graph, **parts).predict().score
    np.testing.assert_allclose(few.numpy(), [-0.1, -12.0, -3.0, -2.0], rtol=1e-6)
    alone = Degree().fit(graph, **parts).predict().score
    assert alone.tolist() == [0.0, -3.0, -1.0, -1.0]


def test_the_neighbour_of_an_ood_node_is_more_uncertain() -> None:
    """Two nodes alike: one is joined to a node of high energy, the other to one of low energy."""
    task = small_task()
    fitted = GNNSafe(model=small_vanilla("sage")).fit(task)
    calm = Energy(model=small_vanilla("sage")).fit(task)
    alone = torch.tensor([[0, 1], [0, 1]])
    dense = task.graph.features.to_dense()
    energy = calm.predict(Graph(dense, alone)).score
    low, high = int(energy[2:].argmin()) + 2, int(energy[2:].argmax()) + 2
    twins = torch.cat([dense, dense[:1], dense[:1]])
    graph = Graph(twins, torch.tensor([[low, high], [160, 161]]))
    before, after = calm.predict(graph).score, fitted.predict(graph).score
    expected = ref.propagate(before.numpy(), graph.edge_index.numpy(), 0.5, 2)
    np.testing.assert_allclose(after.numpy(), expected, rtol=1e-6, atol=1e-6)
    pull = after - before
    assert float(pull[161]) > 0 > float(pull[160])


# ---------------------------------------------------------------------------------------------
# New graphs and parts of graphs
# ---------------------------------------------------------------------------------------------


def small_method(name: str, vanilla: Vanilla | None = None, **options: Any) -> Any:
    """Any method by name, trained briefly."""
    method = METHODS[name]
    vanilla = small_vanilla() if vanilla is None else vanilla
    if method.components is None:
        return method(**brief(method), **options)
    return method(members=list(small_members())) if method.components.size else method(model=vanilla, **brief(method))


def brief(method: type, **options: Any) -> dict[str, Any]:
    """Of what makes a training brief, the hyper-parameters that a method has."""
    return {
        key: value for key, value in {**SHORT, **options}.items() if key in {field.name for field in fields(method)}
    }


@cache
def fitted_small(name: str) -> Any:
    return small_method(name).fit(small_task())


@pytest.mark.parametrize("name", list(METHODS))
def test_prediction_of_some_nodes_is_that_of_all(name: str) -> None:
    fitted = fitted_small(name)
    whole = fitted.predict()
    nodes = torch.tensor([2, 9, 40, 159])
    mask = torch.zeros(160, dtype=torch.bool)
    mask[nodes] = True
    assert whole.nodes.tolist() == list(range(160))
    for given in (nodes, mask):
        part = fitted.predict(nodes=given)
        assert part.nodes.tolist() == nodes.tolist()
        assert part.headline == whole.headline
        assert list(part.scores) == list(whole.scores)
        for key, score in part.scores.items():
            torch.testing.assert_close(score, whole.scores[key][nodes], rtol=1e-9, atol=1e-9)
        if whole.probabilities is not None:
            torch.testing.assert_close(part.probabilities, whole.probabilities[nodes], rtol=1e-9, atol=1e-9)
            assert part.classes.tolist() == whole.classes[nodes].tolist()
        if name in ("credal-lj", "credal-final"):
            torch.testing.assert_close(part.credal.lower, whole.credal.lower[nodes])
    assert fitted.predict(nodes=torch.zeros(160, dtype=torch.bool)).score.shape == (0,)
    with pytest.raises(ValueError, match=r"node|160|mask"):
        fitted.predict(nodes=torch.tensor([0, 160]))
    with pytest.raises(ValueError, match=r"node|mask"):
        fitted.predict(nodes=torch.ones(159, dtype=torch.bool))


@pytest.mark.parametrize("nodes", [[9, 2, 159, 40], [7, 7, 3]], ids=["unsorted", "twice"])
def test_predictions_come_in_the_order_of_the_nodes_asked_for(nodes: list[int]) -> None:
    """Else whoever puts scores beside their own list of nodes mixes them up, and is not told."""
    for name in METHODS:
        whole, part = fitted_small(name).predict(), fitted_small(name).predict(nodes=torch.tensor(nodes))
        assert part.nodes.tolist() == nodes, name
        torch.testing.assert_close(part.score, whole.score[nodes], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", list(METHODS))
def test_prediction_on_new_nodes_and_edges(name: str) -> None:
    """What is added elsewhere changes nothing, and what touches does; the numbering of nodes does not matter."""
    fitted, graph = fitted_small(name), small_task().graph
    n = graph.num_nodes
    before = fitted.predict()
    apart = Graph(
        torch.cat([graph.features, draw((5, 10), 1).float()]),
        torch.cat([graph.edge_index, torch.tensor([[n, n + 1], [n + 1, n + 2]])], dim=1),
    )
    known = before
    if name == "credal-coverage":  # knows the nodes of fit better than others; those of other graphs all alike
        fitted = METHODS[name](model=fitted.model_, reestimate=False).fit(small_task())
        known = fitted.predict(apart.subgraph(torch.arange(n + 1)))
    if name == "grasp":  # does not know its training nodes again in a graph without ids
        known = fitted.predict(apart.subgraph(torch.arange(n + 1)))
    found = fitted.predict(apart)
    assert found.nodes.tolist() == list(range(n + 5))
    for key, score in found.scores.items():
        assert bool(torch.isfinite(score).all())
        torch.testing.assert_close(score[:n], known.scores[key][:n], rtol=1e-4, atol=1e-5)

    new = grown(graph)
    order = torch.randperm(new.num_nodes, generator=torch.Generator().manual_seed(0))
    place = torch.empty_like(order)
    place[order] = torch.arange(new.num_nodes)
    turned = Graph(new.features[order], place[new.edge_index])
    one, other = fitted.predict(new), fitted.predict(turned)
    changed = []
    for key, score in one.scores.items():
        torch.testing.assert_close(other.scores[key], score[order], rtol=1e-4, atol=1e-5)
        changed.append(float((score[:n] - known.scores[key][:n]).abs().max()) > 1e-6)
    assert any(changed) != (name == "feature-sum")  # node n + 1 points at node 7
    again = fitted.predict()
    for key, score in again.scores.items():
        assert torch.equal(score, before.scores[key])  # the graph of fit is still the default


@pytest.mark.parametrize("backbone", ["sage", "gcn"])
def test_inductive_predictions_equal_the_reference(backbone: str) -> None:
    vanilla, task = small_vanilla(backbone), small_task()
    new = grown(task.graph)
    logits = network(vanilla, new).logits(dense_features(new))
    found = vanilla.predict(new)
    np.testing.assert_allclose(found.probabilities.numpy(), ref.softmax(logits), atol=1e-6)
    expected = ref.propagate(ref.energy(logits), new.edge_index.numpy(), 0.5, 2)
    safe = GNNSafe(model=vanilla).fit(task).predict(new)
    np.testing.assert_allclose(safe.score.numpy(), expected, rtol=1e-5, atol=1e-5)
    train, _ = training_part(task)
    _, old_latents = arrays(vanilla)
    _, new_latents = arrays(vanilla, new)
    expected = ref.knn(old_latents[-1][train], new_latents[-1], 10)
    close(KNN(model=vanilla).fit(task).predict(new).score, expected)


# ---------------------------------------------------------------------------------------------
# Training
# ---------------------------------------------------------------------------------------------


def same(one: Any, other: Any) -> bool:
    """Whether two predictions are equal to the last bit."""
    keys = list(one.scores) == list(other.scores)
    equal = all(torch.equal(one.scores[key], other.scores[key]) for key in one.scores)
    if one.probabilities is not None:
        equal = equal and torch.equal(one.probabilities, other.probabilities)
    return keys and equal


LEARNERS: list[Callable[[int], Any]] = [
    lambda seed: Vanilla(dropout=0.3, seed=seed, **SHORT),
    lambda seed: Vanilla(backbone="gcn", batch_size=20, seed=seed, **SHORT),
    lambda seed: Vanilla(backbone="gat", dropout=0.2, seed=seed, **SHORT),
    lambda seed: CredalLJ(dropout=0.3, seed=seed, **SHORT),
    lambda seed: CredalFinal(batch_size=16, seed=seed, **SHORT),
    lambda seed: KNN(model=Vanilla(dropout=0.3, seed=seed, **SHORT)),
    lambda seed: ClassicalEnsemble(members=[Vanilla(seed=seed + k, **SHORT) for k in range(2)]),
]


@pytest.mark.parametrize("make", LEARNERS, ids=["vanilla", "batches", "gat", "lj", "final", "knn", "ensemble"])
def test_fit_is_reproducible_and_leaves_global_generators_alone(make: Callable[[int], Any]) -> None:
    task = small_task()
    found = []
    for world in (1, 2):
        torch.manual_seed(world)
        np.random.seed(world)  # noqa: NPY002
        random.seed(world)
        before = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()  # noqa: NPY002
        found.append(make(0).fit(task).predict())
        assert torch.equal(torch.get_rng_state(), before[0])
        assert (np.random.get_state()[1] == before[1]).all()  # noqa: NPY002
        assert random.getstate() == before[2]
    assert same(*found)
    assert not same(found[0], make(7).fit(task).predict())


def test_ensemble_seeds() -> None:
    """By default the members have the seeds seed, seed + 1, ...; their number is ``size``."""
    ensemble = ClassicalEnsemble(size=3, seed=5)
    assert ensemble.size == 3
    members = [Vanilla(seed=seed, **SHORT) for seed in (5, 6)]
    found = ClassicalEnsemble(members=members).fit(small_task()).predict()
    singles = [Vanilla(seed=seed, **SHORT).fit(small_task()).predict().probabilities for seed in (5, 6)]
    torch.testing.assert_close(found.probabilities, torch.stack(singles).mean(0), rtol=1e-9, atol=1e-9)
    assert float((singles[0] - singles[1]).abs().max()) > 1e-3


def test_training_learns() -> None:
    """Each way of training is far better than chance on nodes it has not seen."""
    task = small_task()
    part = task.test
    nodes, labels = part.nodes[~part.is_ood], part.labels[~part.is_ood]
    long = {"hidden": 16, "epochs": 60, "patience": 60}
    for method in (
        Vanilla(**long),
        Vanilla(backbone="gcn", dropout=0.2, layers=3, **long),
        Vanilla(backbone="gin", **long),
        Vanilla(batch_size=24, **{**long, "epochs": 15}),
        CredalLJ(**long),
        CredalFinal(**long),
        CredalLJ(batch_size=24, **{**long, "epochs": 15}),
        ClassicalEnsemble(members=[Vanilla(seed=k, **long) for k in range(2)]),
        CredalEnsemble(members=[Vanilla(seed=k, **long) for k in range(2)]),
    ):
        found = method.fit(task).predict(nodes=nodes).classes
        assert float((found == labels).float().mean()) > 0.7, method


def validation_loss(method: Any, task: Task) -> float:
    """The mean cross-entropy of the ID validation nodes."""
    view = task.training
    p = method.predict(nodes=view.val).probabilities
    return float(-p[torch.arange(len(view.val)), view.graph.labels[view.val]].log().mean())


def test_early_stopping_restores_the_best_weights() -> None:
    """Steps so large that the loss of validation nodes soon rises again."""
    task = small_task()
    options: dict[str, Any] = {"hidden": 12, "lr": 0.1, "weight_decay": 0.0, "monitor": "id_loss", "seed": 1}
    short = [validation_loss(Vanilla(epochs=n, patience=100, **options).fit(task), task) for n in range(1, 25)]
    assert all(later <= sooner + 1e-9 for sooner, later in pairwise(short))
    assert len(set(short)) < len(short)  # some epochs did not improve, so there was something to restore
    stopped = Vanilla(epochs=200, patience=5, **options).fit(task)
    history = [record.monitor for record in stopped.history_]
    best = int(np.argmin(history))
    assert len(history) < 200
    assert len(history) - 1 - best == 5  # it stops when five epochs have not been better
    assert validation_loss(stopped, task) == pytest.approx(min(history), abs=1e-5)
    assert history[-1] > history[best] + 1e-3


@pytest.mark.parametrize("method", [Vanilla, CredalLJ])
def test_ood_monitor_under_the_protocol_of_the_paper(method: type) -> None:
    """Weights are those of the epoch whose score separated best, recalculated here."""
    task = small_task()
    options: dict[str, Any] = {"hidden": 12, "lr": 0.1, "epochs": 25, "patience": 25, "seed": 3}
    fitted = method(monitor="ood_auroc", **options).fit(task, protocol="paper")
    history = [-record.monitor for record in fitted.history_]  # lower is better there
    part = task.validation
    score = fitted.predict(nodes=part.nodes).score
    assert roc_auc_score(part.is_ood.numpy(), score.numpy()) == pytest.approx(max(history), abs=1e-6)
    assert max(history) > history[-1] + 1e-3  # the last epoch was not the best
    sealed, paper = method(**options).fit(task), method(**options).fit(task, protocol="paper")
    assert same(sealed.predict(), paper.predict())  # the protocol allows a look; another monitor does not take it


def test_f1_monitor() -> None:
    """Micro F1, which is accuracy where each node has one class; the first of the best epochs is kept."""
    task = small_task()
    fitted = Vanilla(monitor="id_f1", hidden=12, lr=0.05, epochs=25, patience=25).fit(task)
    history = [-record.monitor for record in fitted.history_]
    view = task.training
    found = fitted.predict(nodes=view.val).classes
    truth = view.graph.labels[view.val]
    assert f1_score(truth, found, average="micro") == pytest.approx(max(history), abs=1e-6)
    assert max(history) > history[0]
    first = history.index(max(history))
    again = Vanilla(monitor="id_f1", hidden=12, lr=0.05, epochs=first, patience=25).fit(task)
    assert same(fitted.predict(), again.predict())


def test_batches_of_everything_are_full_batches() -> None:
    """One batch that holds all training nodes and, at so few edges a node, all their neighbours."""
    graph = csbm(nodes=160, classes=3, degree=3, features=8, signal=2.0)
    assert int(torch.bincount(graph.edge_index[1]).max()) <= 10
    for method, backbone in ((Vanilla, "sage"), (Vanilla, "gcn"), (CredalLJ, "sage"), (CredalLJ, "gcn")):
        options = {"backbone": backbone, **SHORT}
        whole = method(**options).fit(graph, **parts_of(graph)).predict()
        one = method(batch_size=1000, **options).fit(graph, **parts_of(graph)).predict()
        torch.testing.assert_close(one.probabilities, whole.probabilities, atol=1e-5, rtol=0)
        several = method(batch_size=10, **options).fit(graph, **parts_of(graph)).predict()
        assert float((several.probabilities - whole.probabilities).abs().max()) > 0.01  # so many more steps


def test_masks_indices_and_tasks_are_the_same_fit() -> None:
    task = small_task()
    view = task.training
    masks = {}
    for name in ("train", "val"):
        masks[name] = torch.zeros(160, dtype=torch.bool)
        masks[name][getattr(view, name)] = True
    for make in (lambda: Vanilla(**SHORT), lambda: CredalLJ(**SHORT), lambda: Mahalanobis(model=Vanilla(**SHORT))):
        by_task = make().fit(task).predict()
        assert same(by_task, make().fit(view.graph, train=view.train, val=view.val).predict())
        assert same(by_task, make().fit(view.graph, **masks).predict())


@pytest.mark.parametrize("name", list(METHODS))
def test_labels_of_test_nodes_do_not_change_the_fit(name: str) -> None:
    """They stand in the graph, permuted or unknown, and nothing moves."""
    view = small_task().training
    graph = small_task().graph
    known = torch.cat([view.train, view.val])
    others = torch.ones(160, dtype=torch.bool)
    others[known] = False
    labels = [view.graph.labels]
    for seed in (0, 1):
        drawn = torch.randint(3, (160,), generator=torch.Generator().manual_seed(seed))
        labels.append(torch.where(others, drawn, view.graph.labels))
    found = []
    for each in labels:
        method = METHODS[name]
        options = brief(method, epochs=4)
        if method.components is None:
            made = method(**options)
        elif method.components.size:
            made = method(members=[Vanilla(seed=k, **brief(Vanilla, epochs=4)) for k in range(2)])
        else:
            made = method(model=Vanilla(**brief(Vanilla, epochs=4)), **options)
        parts = {"train": view.train, "val": view.val}
        found.append(made.fit(Graph(graph.features, graph.edge_index, each), **parts).predict())
    assert same(found[0], found[1])
    assert same(found[0], found[2])
    assert (made.graph_.labels[others] == -1).all()  # nor can they be reached from what is fitted


def test_a_callable_makes_a_backbone() -> None:
    made: list[tuple[int, int, int, float]] = []

    def make(in_channels: int, hidden_channels: int, num_layers: int, dropout: float) -> torch.nn.Module:
        made.append((in_channels, hidden_channels, num_layers, dropout))
        return GAT(in_channels, hidden_channels, num_layers, dropout=dropout)

    fitted = Vanilla(backbone=make, dropout=0.1, **SHORT).fit(small_task())
    assert made == [(10, 12, 2, 0.1)]
    _, latents = arrays(fitted)
    assert [z.shape for z in latents] == [(160, 10), (160, 12), (160, 12)]
    assert same(fitted.predict(), Vanilla(backbone=make, dropout=0.1, **SHORT).fit(small_task()).predict())
    joint = CredalLJ(backbone=make, **SHORT).fit(small_task())
    assert joint.module_.head.weight.shape == (6, 10 + 12 + 12)


# ---------------------------------------------------------------------------------------------
# Bad input
# ---------------------------------------------------------------------------------------------


def parts_of(graph: Graph) -> dict[str, Tensor]:
    return {"train": torch.arange(0, 96), "val": torch.arange(96, 128)}


def relabelled(change: Callable[[Tensor], None]) -> Graph:
    labels = small_task().graph.labels.clone()
    change(labels)
    graph = small_task().graph
    return Graph(graph.features, graph.edge_index, labels)


@pytest.mark.parametrize("name", list(METHODS))
def test_predict_before_fit_says_to_fit(name: str) -> None:
    made = METHODS[name]()
    with pytest.raises(MethodError, match="fit"):
        made.predict()
    with pytest.raises(MethodError, match="fit"):
        made.predict(small_task().graph)
    assert issubclass(MethodError, ValueError)


@pytest.mark.parametrize("name", list(METHODS))
def test_save_before_fit_says_to_fit(name: str, tmp_path: Any) -> None:
    with pytest.raises(MethodError, match="fit"):
        METHODS[name]().save(tmp_path / "model")


def test_one_class_is_refused() -> None:
    graph = relabelled(lambda labels: labels.zero_())
    for method in (Vanilla(**SHORT), CredalLJ(**SHORT), KNN(model=Vanilla(**SHORT))):
        with pytest.raises(MethodError, match="class"):
            method.fit(graph, **parts_of(graph))


def test_a_class_without_training_node_is_refused() -> None:
    def move(labels: Tensor) -> None:
        labels[:96][labels[:96] == 2] = 1

    graph = relabelled(move)
    assert bool((graph.labels[96:] == 2).any())
    for method in (Vanilla(**SHORT), CredalFinal(**SHORT), Mahalanobis(model=Vanilla(**SHORT))):
        with pytest.raises(MethodError, match=r"class.*2|2.*class|no training node"):
            method.fit(graph, **parts_of(graph))


def test_an_empty_validation_part_is_refused() -> None:
    graph = small_task().graph
    nobody = torch.empty(0, dtype=torch.int64)
    with pytest.raises(MethodError, match="val"):
        Vanilla(**SHORT).fit(graph, train=torch.arange(96), val=nobody)
    with pytest.raises(MethodError, match="val"):
        CredalLJ(**SHORT).fit(graph, train=torch.arange(96), val=torch.zeros(160, dtype=torch.bool))
    with pytest.raises(MethodError, match="train"):
        Vanilla(**SHORT).fit(graph, train=nobody, val=torch.arange(96))
    ood_nodes = (graph.labels == 0).nonzero().squeeze(1)
    split = Split(torch.arange(2, 100), ood_nodes[ood_nodes >= 100][:3], torch.tensor([0, 1]))
    task = Task.leave_out(graph, [0], split=split)
    assert not len(task.training.val)
    with pytest.raises(MethodError, match="val"):
        Vanilla(**SHORT).fit(task)


def test_parts_that_make_no_sense_are_refused() -> None:
    graph = small_task().graph
    val = torch.arange(96, 128)
    for train, words in (
        (torch.tensor([0, 1, 2, 160]), r"160|node"),
        (torch.tensor([0, -3]), r"-3|node"),
        (torch.ones(50, dtype=torch.bool), r"mask|160|train"),
        (torch.rand(160), r"mask|index|train|integer"),
    ):
        with pytest.raises(ValueError, match=words):
            Vanilla(**SHORT).fit(graph, train=train, val=val)
    unlabelled = relabelled(lambda labels: labels[3:5].fill_(-1))
    with pytest.raises(MethodError, match="label"):
        Vanilla(**SHORT).fit(unlabelled, train=torch.arange(96), val=val)
    with pytest.raises(MethodError, match="has no labels"):
        Vanilla(**SHORT).fit(graph.replace(labels=torch.full((160,), -1)))


@pytest.mark.parametrize("name", list(METHODS))
def test_features_of_another_width_are_refused(name: str) -> None:
    graph = small_task().graph
    wider = graph.replace(features=torch.cat([graph.features, graph.features[:, :1]], dim=1))
    with pytest.raises(MethodError, match=r"feature.*1[01]|1[01].*feature"):
        fitted_small(name).predict(wider)


@pytest.mark.parametrize("method", [Vanilla, CredalLJ, CredalFinal])
@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"backbone": "nonsense"}, "nonsense"),
        ({"backbone": "Data"}, "Data"),
        ({"monitor": "nonsense"}, "nonsense"),
        ({"dropout": -0.1}, "dropout"),
        ({"dropout": 1.5}, "dropout"),
        ({"dropout": math.nan}, "dropout"),
        ({"hidden": 0}, "hidden"),
        ({"hidden": -4}, "hidden"),
        ({"layers": 0}, "layers"),
        ({"layers": -1}, "layers"),
        ({"lr": 0.0}, "lr"),
        ({"lr": -0.01}, "lr"),
        ({"lr": math.nan}, "lr"),
        ({"lr": math.inf}, "lr"),
        ({"weight_decay": -1.0}, "weight_decay"),
        ({"epochs": 0}, "epochs"),
        ({"patience": 0}, "patience"),
        ({"batch_size": 0}, "batch_size"),
        ({"seed": -1}, "seed"),
    ],
    ids=lambda value: "-".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else None,
)
def test_bad_hyper_parameters_are_refused(method: type, wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        method(**{**SHORT, **wrong}).fit(small_task())


@pytest.mark.parametrize("method", [CredalLJ, CredalFinal])
@pytest.mark.parametrize("delta", [0.0, -0.2, 1.01, 75, math.nan])
def test_delta_out_of_range_is_refused(method: type, delta: float) -> None:
    with pytest.raises(ValueError, match="delta"):
        method(delta=delta, **SHORT).fit(small_task())


@pytest.mark.parametrize("method", [CredalLJ, CredalFinal])
@pytest.mark.parametrize("decay", [-0.1, math.inf, math.nan, "much"])
def test_decays_out_of_range_are_refused(method: type, decay: Any) -> None:
    with pytest.raises(MethodError, match="half_length_decay"):
        method(half_length_decay=decay)


@pytest.mark.parametrize("wrong", [{"midpoint": "nonsense"}, {"half_length": "identity"}])
def test_unknown_shapes_of_the_head_are_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        CredalLJ(**SHORT, **wrong).fit(small_task())


@pytest.mark.parametrize(
    ("method", "wrong", "words"),
    [
        (KNN, {"k": 0}, "k"),
        (KNN, {"k": 10_000}, "k.*10,?000|10,?000.*k"),
        (KNNLJ, {"k": 10_000}, "k.*10,?000|10,?000.*k"),
        (Energy, {"temperature": 0.0}, "temperature"),
        (Energy, {"temperature": -1.0}, "temperature"),
        (Odin, {"temperature": 0.0}, "temperature"),
        (Odin, {"epsilon": -0.1}, "epsilon"),
        (GNNSafe, {"temperature": 0.0}, "temperature"),
        (GNNSafe, {"alpha": 1.5}, "alpha"),
        (GNNSafe, {"alpha": -0.5}, "alpha"),
        (GNNSafe, {"steps": -1}, "steps"),
        (Mahalanobis, {"epsilon": -0.1}, "epsilon"),
        (Mahalanobis, {"layer": 3}, "layer"),
        (Mahalanobis, {"layer": -4}, "layer"),
    ],
)
def test_bad_hyper_parameters_of_detectors_are_refused(method: type, wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        method(model=small_vanilla(), **wrong).fit(small_task())


@pytest.mark.parametrize("method", [ClassicalEnsemble, CredalEnsemble])
def test_an_ensemble_of_nobody_is_refused(method: type) -> None:
    with pytest.raises(ValueError, match=r"size|member"):
        method(size=0).fit(small_task())
    with pytest.raises(ValueError, match=r"size|member"):
        method(members=[]).fit(small_task())


def test_a_loss_that_is_no_number_stops_training() -> None:
    for method in (Vanilla, CredalLJ):
        with pytest.raises(TrainingError, match=r"(?s)epoch.*lr"):
            method(lr=1e20, **SHORT).fit(small_task())


def test_ood_monitor_needs_the_protocol_of_the_paper() -> None:
    task = small_task()
    for method in (Vanilla, CredalLJ):
        made = method(monitor="ood_auroc", **SHORT)
        with pytest.raises(MethodError, match=r"paper"):
            made.fit(task)
        with pytest.raises(MethodError, match=r"paper"):
            made.fit(task, protocol="sealed")
        graph = task.training.graph
        with pytest.raises(MethodError, match=r"(?i)task"):
            made.fit(graph, train=task.training.train, val=task.training.val, protocol="paper")
    with pytest.raises(MethodError, match="nonsense"):
        Vanilla(**SHORT).fit(task, protocol="nonsense")


@pytest.mark.parametrize("method", POST_HOC)
def test_a_vanilla_fitted_on_another_task_is_refused(method: type) -> None:
    """Else a detector would be judged on nodes that its backbone was trained on."""
    other = Task.leave_out(small_task().graph, [0], split_seed=5)
    with pytest.raises(MethodError, match=r"another|other|different|fingerprint"):
        method(model=small_vanilla()).fit(other)


@pytest.mark.parametrize("method", [ClassicalEnsemble, CredalEnsemble])
def test_a_member_fitted_on_another_task_is_refused(method: type) -> None:
    other = Task.leave_out(small_task().graph, [0], split_seed=5)
    with pytest.raises(MethodError, match=r"another|other|different|fingerprint"):
        method(members=[small_vanilla(), Vanilla(**SHORT)]).fit(other)


def test_a_model_without_what_is_needed_of_it_is_refused() -> None:
    with pytest.raises(MethodError, match="logits and latents; ClassicalEnsemble has none"):
        Energy(model=ClassicalEnsemble())
    with pytest.raises(MethodError, match="a method, fitted or not, not str"):
        Energy(model="vanilla")  # type: ignore[arg-type]
    with pytest.raises(MethodError, match="methods that classify"):
        ClassicalEnsemble(members=[FeatureSum(), FeatureSum()])


def test_detectors_score_any_model_with_logits_and_latents() -> None:
    """Of a credal network the midpoints are the logits, and the joint latent is the same backbone's."""
    task = small_task()
    credal = CredalLJ(**SHORT).fit(task)
    outputs = credal.outputs()
    lower, upper = credal._output_of(task.training.graph, Context())(torch.arange(task.graph.num_nodes))
    torch.testing.assert_close(outputs.logits, (lower + upper) / 2)
    close(Energy(model=credal).fit(task).predict().score, ref.energy(outputs.logits.double().numpy()))
    assert KNN(model=credal).fit(task).predict().score.shape == (task.graph.num_nodes,)


def test_a_failed_fit_leaves_no_fitted_method() -> None:
    made = Vanilla(lr=1e20, **SHORT)
    with pytest.raises(TrainingError):
        made.fit(small_task())
    with pytest.raises(MethodError, match="fit"):
        made.predict()


def test_predictions_refuse_what_they_cannot_answer() -> None:
    found = small_vanilla().predict()
    with pytest.raises(MethodError, match=r"credal|classify"):
        found.classify("lower")
    with pytest.raises(ValueError, match="nonsense"):
        fitted_small("credal-lj").predict().classify("nonsense")
    with pytest.raises(AttributeError):
        found.headline = "entropy"  # type: ignore[misc]


def test_a_part_fitted_elsewhere_since_is_noticed() -> None:
    first, second = small_task(), small_task(seed=1)
    vanilla = Vanilla(**SHORT).fit(first)
    method = Energy(model=vanilla).fit(first)
    vanilla.fit(second)
    with pytest.raises(MethodError, match="fit"):
        method.predict()
    method.fit(second).predict()


@pytest.mark.parametrize("backbone", ["gcn", "sage"])
@pytest.mark.parametrize("batch_size", [None, 32])
def test_edge_weights_are_used(backbone: str, batch_size: int | None) -> None:
    task = small_task()
    heavy = torch.linspace(0, 3, task.graph.num_edges)
    weighted = replace(task, graph=task.graph.replace(edge_weight=heavy))
    options = SHORT | {"backbone": backbone, "batch_size": batch_size}
    plain, other = (Vanilla(**options).fit(t).predict().probabilities for t in (task, weighted))
    assert not torch.allclose(plain, other, atol=1e-3)


def test_edge_weights_that_a_backbone_cannot_use_are_refused() -> None:
    task = small_task()
    weighted = task.graph.replace(edge_weight=torch.ones(task.graph.num_edges))
    for name, kind in (("edgecnn", "EdgeCNN"), ("gat", "GAT"), ("gatv2", "GATv2")):
        refusal = rf"backbone {kind} takes no edge weights.*graph\.unweighted\(\)$"
        for batch_size in (None, 32):
            with pytest.raises(MethodError, match=refusal):
                Vanilla(**SHORT | {"backbone": name, "batch_size": batch_size}).fit(replace(task, graph=weighted))
        fitted = Vanilla(**SHORT | {"backbone": name}).fit(task)
        with pytest.raises(MethodError, match=refusal):
            fitted.predict(weighted)
        fitted.predict(weighted.unweighted())


@pytest.mark.parametrize("kind", ["mean", "normalized"])
def test_drawn_neighbours_are_unbiased(kind: str) -> None:
    """A hub with 40 in-edges, of which 10 are drawn: on average over many draws its row is that of the whole graph."""
    sources = torch.arange(1, 41)
    edges = Adjacency.from_index(torch.stack([sources, torch.zeros_like(sources)]), 41)
    x = torch.linspace(-1, 2, 41)[:, None]
    sampler = Sampler(x, edges, [10])
    drawn = [sampler.around(torch.tensor([0]), number) for number in range(2000)]
    found = torch.stack([(batch.edges.matrix(kind) @ batch.x)[0, 0] for batch in drawn])
    assert float(found.std()) > 0.01
    exact = (edges.matrix(kind) @ x)[0, 0]
    assert abs(float(found.mean() - exact)) < 4 * float(found.std()) / 2000**0.5


@pytest.mark.parametrize(
    ("method", "options"),
    [
        (Vanilla, {"hidden": 16.5}),
        (Vanilla, {"hidden": "64"}),
        (Vanilla, {"layers": 2.0}),
        (Vanilla, {"seed": 1.5}),
        (Vanilla, {"hidden": True}),
        (Vanilla, {"lr": "fast"}),
        (Vanilla, {"lr": float("nan")}),
        (CredalLJ, {"delta": "all"}),
        (KNN, {"k": 2.5}),
        (KNN, {"kth": 1}),
        (GNNSafe, {"steps": 1.5}),
        (ClassicalEnsemble, {"size": None}),
    ],
)
def test_hyper_parameters_of_another_type_are_refused(method: type, options: dict[str, Any]) -> None:
    with pytest.raises(MethodError, match=next(iter(options))):
        method(**options)


def test_numbers_of_numpy_are_numbers(tmp_path: Path) -> None:
    method = Vanilla(hidden=np.int64(12), epochs=np.int32(2), lr=np.float32(0.01), seed=np.int64(3)).fit(small_task())
    method.save(tmp_path)
    assert "hidden=12" in repr(load_method(tmp_path))


def test_a_backbone_that_needs_more_than_widths_is_refused() -> None:
    with pytest.raises(MethodError, match="pna"):
        Vanilla(backbone="pna").fit(small_task())


def test_parts_of_a_loaded_method_predict_too(tmp_path: Path) -> None:
    task = small_task()
    vanilla = Vanilla(**SHORT).fit(task)
    Energy(model=vanilla).fit(task).save(tmp_path)
    loaded = load_method(tmp_path, task)
    assert torch.equal(loaded.model_.predict().score, vanilla.predict().score)


# ---------------------------------------------------------------------------------------------
# What a review found
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make", [lambda v: Energy(model=v), lambda v: ClassicalEnsemble(members=[v, Vanilla(**SHORT)])]
)
def test_the_sealed_protocol_has_no_back_door(make: Callable[[Vanilla], Any]) -> None:
    task = small_task()
    peeked = Vanilla(monitor="ood_auroc", **SHORT).fit(task, protocol="paper")
    with pytest.raises(MethodError, match="sealed"):
        make(peeked).fit(task)
    assert make(peeked).fit(task, protocol="paper").protocol == "paper"


def test_ensembles_of_two_seeds_share_no_member(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds: list[int] = []
    monkeypatch.setattr(Vanilla, "_fit", lambda self, training, context: seeds.append(self.seed))
    for seed in range(3):
        ClassicalEnsemble(size=4, seed=seed).fit(small_task())
    assert seeds == list(range(12))


def test_approximate_neighbours_are_never_made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """More neighbours than the cells searched hold, and a recall that does not count a node for itself."""
    monkeypatch.setattr(neighbours, "EXACT_UP_TO", 100)
    monkeypatch.setattr(neighbours, "PROBES", 1)
    generator = torch.Generator().manual_seed(0)
    train, queries = (torch.randn(count, 8, generator=generator) for count in (3000, 200))
    bank = neighbours.NeighbourBank(train)
    monkeypatch.setattr(neighbours, "RECALL", 0.0)
    assert bank.distance(train[:200], 1).eq(0).all()  # every node is its own nearest
    assert bank.recall is not None
    assert bank.recall < 0.9
    monkeypatch.setattr(neighbours, "RECALL", 0.95)
    found = bank.distance(queries, 20, kth=True)
    assert bank.recall >= 0.95
    exact = torch.cdist(queries.double(), train.double()).sort(1).values
    assert float(((found - exact[:, 19]) / exact[:, 19]).abs().max()) < 0.2
    for k in (2500, 3000):
        torch.testing.assert_close(bank.distance(queries, k, kth=True), exact[:, k - 1], rtol=1e-4, atol=0)


def test_untrained_weights_are_never_kept() -> None:
    method = Vanilla(lr=0.5, patience=3, hidden=12, epochs=8).fit(small_task())
    kept = min(method.history_[1:], key=lambda epoch: epoch.monitor)
    assert validation_loss(method, small_task()) == pytest.approx(kept.monitor, rel=1e-4)


def test_a_network_of_ones_own_predicts_without_a_word_about_it() -> None:
    """Of its headline score and its probabilities alone; a vanilla GNN says more."""

    @dataclass(kw_only=True, eq=False)
    class Plain(Network):
        """A vanilla GNN, written anew."""

        name, score_names = "plain", ("msp",)

        def _head(self, widths: list[int], num_classes: int) -> torch.nn.Module:
            return torch.nn.Linear(widths[-1], num_classes)

        def _loss(self, output: Any, labels: Tensor) -> Tensor:
            return torch.nn.functional.cross_entropy(output, labels)

        def _probabilities(self, output: Any) -> Tensor:
            return torch.as_tensor(output.double().softmax(-1))

        def _headline(self, output: Any) -> Tensor:
            return scores.msp(output)

        def _logits(self, output: Any) -> Tensor:
            return torch.as_tensor(output)

    found, vanilla = (kind(**SHORT).fit(small_task()).predict() for kind in (Plain, Vanilla))
    assert torch.equal(found.score, vanilla.score)
    assert torch.equal(found.probabilities, vanilla.probabilities)


def test_classes_of_models_are_backbones() -> None:
    task = small_task()
    by_name = Vanilla(backbone="sage", **SHORT).fit(task).predict()
    assert same(by_name, Vanilla(backbone=SAGE, **SHORT).fit(task).predict())
    assert same(by_name, Vanilla(backbone="GraphSAGE", **SHORT).fit(task).predict())
    assert len(Vanilla(backbone=GAT, **SHORT).fit(task).outputs().latents) == 3
    for wrong in (None, 7, SAGE(10, 12, 2)):
        with pytest.raises(MethodError, match="backbone"):
            Vanilla(backbone=wrong)


@pytest.mark.parametrize("kind", [torch.uint8, torch.int64, torch.int32])
def test_masks_of_numbers_are_not_taken_for_node_numbers(kind: torch.dtype) -> None:
    task = small_task()
    mask = torch.zeros(task.graph.num_nodes, dtype=kind)
    mask[:40] = 1
    method = Degree().fit(task)
    with pytest.raises(MethodError, match="bool"):
        method.predict(nodes=mask)
    for wrong in ("all", [[1], [2, 3]], torch.tensor([0.5])):
        with pytest.raises(MethodError, match="nodes"):
            method.predict(nodes=wrong)
    assert len(method.predict(nodes=[]).score) == 0


def test_methods_on_one_graph_share_its_operators() -> None:
    task = small_task()
    graph, view = Graph(task.graph.features, task.graph.edge_index, task.graph.labels), task.training
    parts = {"train": view.train, "val": view.val}
    graph = graph.replace(labels=view.graph.labels, class_names=view.class_names)
    first, second = (Vanilla(seed=seed, **SHORT).fit(graph, **parts) for seed in (0, 1))
    assert inputs(first.graph_)[1] is inputs(second.graph_)[1] is inputs(graph)[1]
    changed = graph.replace(edge_index=graph.edge_index[:, 1:])
    assert inputs(changed)[1] is not inputs(graph)[1]


def test_what_cannot_be_said_is_said_clearly(tmp_path: Path) -> None:
    task = small_task()
    vanilla = Vanilla(**SHORT).fit(task)
    ClassicalEnsemble(members=[vanilla, vanilla]).fit(task).save(tmp_path)  # one member twice is two on disk
    assert len(load_method(tmp_path, task).members) == 2
    with pytest.raises(MethodError, match="Task"):
        load_method(tmp_path, task.graph)  # type: ignore[arg-type]
    with pytest.raises(MethodError, match="list"):
        ClassicalEnsemble(members=vanilla)
    with pytest.raises(MethodError, match="banana"):
        Vanilla(device="banana")
    for method in (vanilla, CredalLJ(**SHORT).fit(task)):
        with torch.no_grad():
            for parameter in method.module_.parameters():
                parameter.mul_(1e20)
        with pytest.raises(MethodError, match="finite"):
            method.predict()
