"""Attention: compiled and in plain torch, dropped weights, threads, batches. PyG's layers are in test_nn.py."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from credalgnn.nn import GAT, Adjacency, GATv2, SparseMatrix, layers, sparse
from credalgnn.nn.layers import attend
from credalgnn.nn.sampling import Sampler
from pyg import GAT as PyGGAT

NODES, SCORED, WIDTH = 60, 5, 7


def edges_of(count: int = 400) -> Adjacency:
    """Edges with loops and duplicates; the last two nodes have none."""
    rng = np.random.default_rng(0)
    edges = rng.integers(NODES - 2, size=(2, count))
    return Adjacency.from_index(torch.from_numpy(np.concatenate([edges, edges[:, :20]], axis=1)), NODES)


def given(seed: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """What rows and columns say, the weights of it, and what is sent."""
    generator = torch.Generator().manual_seed(seed)
    shapes = ((NODES, SCORED), (NODES, SCORED), (SCORED,), (NODES, WIDTH))
    return tuple(torch.randn(shape, generator=generator).requires_grad_() for shape in shapes)  # type: ignore[return-value]


def with_gradients(matrix: SparseMatrix, dropout: float = 0.0) -> list[Tensor]:
    """What is received, and the gradients of everything."""
    torch.manual_seed(1)
    tensors = given()
    received = attend(matrix, *tensors, dropout)
    pull = torch.randn(received.shape, generator=torch.Generator().manual_seed(2))
    return [received.detach(), *torch.autograd.grad((received * pull).sum(), tensors)]


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where nothing is compiled."""
    for module in (layers, sparse):
        monkeypatch.setattr(module, "has_kernels", lambda device: False)


@pytest.mark.usefixtures("plain")
def test_weights_are_a_softmax() -> None:
    """Against the definition, node by node in double precision; an entry counts as often as it says."""
    matrix = edges_of().matrix("looped")
    own, others, att, sent = (x.detach().double() for x in given())
    expected = []
    for row in range(NODES):
        counts = matrix.to_dense()[row].double()
        near = counts.nonzero()[:, 0]
        z = own[row] + others[near]
        score = (torch.where(z > 0, z, 0.2 * z) * att).sum(1).exp() * counts[near]
        expected.append((score[:, None] * sent[near]).sum(0) / score.sum())
    torch.testing.assert_close(attend(matrix, *given()).double(), torch.stack(expected), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_kernels_compute_what_torch_computes(dropout: float, request: pytest.FixtureRequest) -> None:
    matrix = edges_of().matrix("looped")
    found = with_gradients(matrix, dropout)
    request.getfixturevalue("plain")
    for one, other in zip(found, with_gradients(matrix, dropout), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=2e-5)  # sums of hundreds of terms of size one


def test_tensors_may_lie_in_memory_as_they_like() -> None:
    matrix = edges_of().matrix("looped")
    expected = with_gradients(matrix)
    own, *others = (x.detach() for x in given())
    turned = own.t().contiguous().t().requires_grad_()
    received = attend(matrix, turned, *others)
    pull = torch.randn(received.shape, generator=torch.Generator().manual_seed(2))
    assert torch.equal(received, expected[0])
    torch.testing.assert_close(torch.autograd.grad((received * pull).sum(), turned)[0], expected[1])


def test_large_scores_do_not_overflow() -> None:
    own, others, att, sent = (x.detach() for x in given())
    received = attend(edges_of().matrix("looped"), own, others, 1e4 * att, sent)
    assert bool(received.isfinite().all())
    assert float(received.abs().max()) <= float(sent.abs().max()) * (1 + 1e-6)


def test_attention_does_not_depend_on_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sparse, "FEW", 0)
    before, found = torch.get_num_threads(), []
    try:
        for count in (1, 2, 2):
            torch.set_num_threads(count)
            found.append(with_gradients(edges_of().matrix("looped"), 0.4))
    finally:
        torch.set_num_threads(before)
    assert all(map(torch.equal, found[0], found[1]))
    assert all(map(torch.equal, found[1], found[2]))


@pytest.mark.parametrize("kind", [GAT, GATv2])
def test_weights_of_edges_are_dropped_as_by_pyg(kind: type[GAT], monkeypatch: pytest.MonkeyPatch) -> None:
    """In training: both are told which edges, of a graph where none stands twice, and which units to drop."""
    edges = torch.unique(edges_of().edge_index, dim=1)
    edges = edges[:, edges[0] != edges[1]]
    adjacency, loops = Adjacency.from_index(edges, NODES), torch.arange(NODES)
    by_row = adjacency.matrix("looped").row_numbers(), adjacency.matrix("looped").columns.long()
    by_edge = torch.cat([edges[1], loops]), torch.cat([edges[0], loops])
    of_edges, of_units = ((torch.rand(NODES, n) < 0.6).float() / 0.6 for n in (NODES, 6))
    assert not (of_edges == 0).all(1).any()

    def dropped(x: Tensor, p: float, training: bool = True, inplace: bool = False) -> Tensor:
        assert p == 0.4
        if not training:
            return x
        if x.shape == (NODES, 6):
            return x * of_units
        assert len(x) == edges.shape[1] + NODES
        return x * (of_edges[by_row] if x.dim() == 1 else of_edges[by_edge][:, None])

    theirs = PyGGAT(4, 6, 2, dropout=0.4, jk="last", v2=kind is GATv2)
    theirs.lin = torch.nn.Identity()
    ours, x = kind(4, 6, 2, dropout=0.4), torch.randn(NODES, 4)
    ours.load_state_dict(theirs.state_dict())
    without = ours.eval()(x, adjacency)[-1]
    torch.testing.assert_close(without, theirs.eval()(x, edges))
    monkeypatch.setattr(torch.nn.functional, "dropout", dropped)
    found = ours.train()(x, adjacency)[-1]
    torch.testing.assert_close(found, theirs.train()(x, edges), rtol=1e-4, atol=1e-5)
    assert not torch.allclose(found, without, atol=0.1)


@pytest.mark.parametrize("kind", [GAT, GATv2])
def test_a_seed_gives_the_weights_of_pyg(kind: type[GAT]) -> None:
    """When layers are made, and when they are drawn anew."""
    torch.manual_seed(0)
    ours = kind(9, 6, 2)
    torch.manual_seed(0)
    theirs = PyGGAT(9, 6, 2, v2=kind is GATv2)
    for _ in range(2):
        for (name, one), (also, other) in zip(ours.named_parameters(), theirs.named_parameters(), strict=True):
            assert name == also
            torch.testing.assert_close(one, other, rtol=1e-6, atol=0, msg=name)
        for module in (ours, theirs):
            torch.manual_seed(1)
            module.reset_parameters()


@pytest.mark.parametrize("kind", [GAT, GATv2])
def test_drawn_neighbours_count_for_those_they_stand_for(kind: type[GAT]) -> None:
    """Forty neighbours alike, of whom ten are drawn, weigh as much as all; with none to draw nothing differs."""
    torch.manual_seed(0)
    ours, hub = kind(3, 4, 1), torch.zeros(40, dtype=torch.int64)
    whole = Adjacency.from_index(torch.stack([torch.arange(1, 41), hub]), 41)
    x = torch.cat([torch.randn(1, 3), torch.randn(1, 3).expand(40, 3)])
    batch = Sampler(x, whole, [10]).around(torch.tensor([0]))
    assert batch.edges.edge_index.shape[1] == 10
    torch.testing.assert_close(ours(batch.x, batch.edges)[-1][0], ours(x, whole)[-1][0])
    deep, edges, x = kind(3, 4, 2), edges_of(), torch.randn(NODES, 3)
    batch = Sampler(x, edges, [50, 50]).around(torch.tensor([7, 3, NODES - 1]))
    torch.testing.assert_close(deep(batch.x, batch.edges)[-1], deep(x, edges)[-1][[7, 3, NODES - 1]])
