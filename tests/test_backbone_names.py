"""Backbones by name: GPR-GNN against NumPy and PyG's APPNP, native ones, and PyG's own models."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

import references as ref
from credalgnn.cli.common import settings_of
from credalgnn.experiments.plan import plan
from credalgnn.graphs import Graph, Task, csbm
from credalgnn.methods import CredalLJ, MCDropout, MethodError, Vanilla, load_method
from credalgnn.methods.registry import choose
from credalgnn.nn import GAT, GPR, SAGE, Adjacency, GATv2, SparseMatrix, make_backbone
from pyg import GraphSAGE

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from torch_geometric.nn import APPNP
    from torch_geometric.nn.models import EdgeCNN

pytestmark = pytest.mark.filterwarnings("ignore::credalgnn.CredalWarning")
NODES, FEATURES, HIDDEN = 40, 6, 8


def drawn(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Features with zeros, and edges with loops, duplicates and two nodes without any."""
    rng = np.random.default_rng(seed)
    edges = rng.integers(NODES - 2, size=(2, 120))
    edges = np.concatenate([edges, edges[:, :9], np.array([[3, 3, 5], [3, 3, 5]])], axis=1)
    x = rng.normal(size=(NODES, FEATURES)) * (rng.random((NODES, FEATURES)) < 0.4)
    return torch.from_numpy(x).float(), torch.from_numpy(edges)


def sparse(x: torch.Tensor) -> SparseMatrix:
    rows, columns = x.nonzero().unbind(1)
    return SparseMatrix.from_coo(rows, columns, x[rows, columns], (x.shape[0], x.shape[1]))


def naive_gpr(module: GPR, x: np.ndarray, edges: np.ndarray) -> list[np.ndarray]:
    """The perceptron's hidden layers, and sum_k g_k A^k H by powers of a dense matrix."""
    latents = []
    z = x
    for conv in module.convs:
        a = z @ conv.lin.weight.detach().double().numpy().T + conv.lin.bias.detach().double().numpy()
        z = np.where(a > 0, a, 0.0)
        latents.append(z)
    a = ref.gcn_matrix(edges, len(x))
    weights = module.weights.detach().double().numpy()
    latents[-1] = sum(g * np.linalg.matrix_power(a, k) @ z for k, g in enumerate(weights))
    return latents


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_gpr_equals_the_reference(layers: int) -> None:
    torch.manual_seed(0)
    module = GPR(FEATURES, HIDDEN, layers, steps=4)
    with torch.no_grad():
        module.weights.copy_(torch.tensor([0.3, -0.7, 0.5, -0.2, 0.4]))
    x, edges = drawn()
    expected = naive_gpr(module, x.double().numpy(), edges.numpy())
    for given in (x, sparse(x)):
        found = module(given, Adjacency.from_index(edges, NODES))
        assert [z.shape for z in found] == [(NODES, HIDDEN)] * layers
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one.detach().numpy(), other, rtol=1e-4, atol=1e-5)
    assert bool((found[-1] < 0).any())  # no ReLU behind the spreading
    torch.testing.assert_close(module(x, edges)[-1], found[-1])


def test_gpr_begins_as_personalised_pagerank() -> None:
    """PyG's APPNP has these weights for good, and nothing to learn."""
    torch.manual_seed(0)
    module = GPR(FEATURES, HIDDEN, 2)
    x, edges = drawn()
    edges = torch.unique(edges[:, edges[0] != edges[1]], dim=1)
    hidden = module.convs[1](module.convs[0](x, edges).relu(), edges).relu()
    torch.testing.assert_close(module(x, edges)[-1], APPNP(K=10, alpha=0.1)(hidden, edges), rtol=1e-4, atol=1e-5)
    assert module.weights.sum().item() == pytest.approx(1.0, abs=1e-6)
    with torch.no_grad():
        module.weights.zero_()
    module.reset_parameters()
    assert module.weights[0].item() == pytest.approx(0.1)


def test_gpr_gradients() -> None:
    """By differences, in double precision; the weights of the steps have theirs."""
    torch.manual_seed(0)
    module = GPR(FEATURES, 3, 2, steps=3).double()
    x, edges = drawn()
    operators = Adjacency.from_index(edges, NODES)
    pull = torch.randn(NODES, 3, dtype=torch.float64)

    def loss(weights: torch.Tensor) -> torch.Tensor:
        return (torch.func.functional_call(module, {"weights": weights}, (x.double(), operators))[-1] * pull).sum()

    torch.autograd.gradcheck(loss, module.weights.detach().clone().requires_grad_())


def test_names_give_native_backbones_and_the_models_of_pyg() -> None:
    for name, kind in (("gat", GAT), ("GATv2", GATv2), ("sage", SAGE)):
        assert type(make_backbone(name, FEATURES, HIDDEN, 2, 0.0)) is kind
    x, edges = drawn()
    for name, model in (("edgecnn", EdgeCNN), ("graphsage", GraphSAGE)):
        torch.manual_seed(0)
        ours = make_backbone(name, FEATURES, HIDDEN, 2, 0.0).eval()
        torch.manual_seed(0)
        theirs = model(FEATURES, HIDDEN, 2).eval()
        torch.testing.assert_close(ours(x, edges)[-1], theirs(x, edges).relu())


def graph_of_rivals() -> Graph:
    """Neighbours are mostly of the other class, and features say little: the sign of what is spread matters."""
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=300)
    edges = rng.integers(300, size=(2, 6000))
    edges = edges[:, (labels[edges[0]] != labels[edges[1]]) | (rng.random(6000) < 0.05)]
    features = np.eye(3)[labels] * 0.7 + rng.normal(size=(300, 3))
    return Graph(features.astype(np.float32), np.concatenate([edges, edges[::-1]], axis=1), labels)


def test_gpr_learns_that_neighbours_differ() -> None:
    graph = graph_of_rivals()
    train, val = torch.arange(100), torch.arange(100, 160)
    accuracy = []
    for backbone in ("gcn", "gpr"):
        fitted = Vanilla(backbone=backbone, hidden=16, epochs=100).fit(graph, train=train, val=val)
        accuracy.append((fitted.predict().classes[160:] == graph.labels[160:]).double().mean().item())
    assert accuracy[1] > accuracy[0]
    assert bool((fitted.module_.backbone.weights < 0).any())


@pytest.mark.parametrize("backbone", ["gpr", "GPR", "edgecnn", "gatv2", "gin"])
def test_methods_take_the_names(backbone: str, tmp_path: Path) -> None:
    task = Task.leave_out(csbm(nodes=120, classes=4, features=8), [0], name="small")
    for kind in (CredalLJ, MCDropout):
        fitted = kind(backbone=backbone, hidden=8, epochs=4).fit(task)
        found = fitted.predict()
        fitted.save(tmp_path / kind.name)
        assert torch.equal(load_method(tmp_path / kind.name, task).predict().score, found.score)
    assert [z.shape[1] for z in fitted.outputs().latents] == [8, 8, 8]
    batches = Vanilla(backbone=backbone, hidden=8, epochs=4, batch_size=16).fit(task)
    assert bool(batches.predict().score.isfinite().all())
    with pytest.raises(MethodError, match=r"gat, gatv2, gcn, gin, gpr, mlp, sage, .*edgecnn"):
        Vanilla(backbone="nonsense")


def test_the_shell_takes_the_names() -> None:
    """What ``bench --set backbone=gpr latents=[0,-1]`` runs."""
    settings = settings_of(["backbone=gpr", "latents=[0,-1]", "hidden=8", "epochs=3"])
    (choice,) = choose(["credal-lj"], settings, with_baselines=False)
    run = plan("small", choice.path, 0, settings=choice.config)
    assert json.loads(json.dumps(run.config))["backbone"] == "gpr"
    task = Task.leave_out(csbm(nodes=120, classes=4, features=8), [0], name="small")
    fitted = run.kind(**run.config).fit(task)
    assert isinstance(fitted.module_.backbone, GPR)
    assert fitted.module_.head.weight.shape == (6, 8 + 8)
