"""Layers: sparse products, backbones equal to PyG's, the credal head and its loss against naive references."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import references as ref
from credalgnn import log_interval_softmax
from credalgnn.nn import (
    GAT,
    GCN,
    GIN,
    SAGE,
    Adjacency,
    Classifier,
    CredalHead,
    GATv2,
    Monitor,
    PyGBackbone,
    RngScope,
    Schedule,
    SparseMatrix,
    Supervision,
    dro_loss,
    layers,
    train,
)
from credalgnn.nn.backbones import BackboneError, Stack
from credalgnn.nn.layers import SAGELayer
from credalgnn.nn.sampling import FANOUT, Sampler
from credalgnn.nn.sparse import product_entries, sparse_product, top_rows
from credalgnn.nn.training import Epoch
from pyg import GAT as PyGGAT
from pyg import GCN as PyGGCN
from pyg import GIN as PyGGIN
from pyg import GraphSAGE as PyGSAGE
from pyg import gcn_norm

NODES, FEATURES, HIDDEN, CLASSES = 50, 9, 16, 4
PAIRS = {
    "gat": (GAT, PyGGAT),
    "gatv2": (GATv2, partial(PyGGAT, v2=True)),
    "gcn": (GCN, PyGGCN),
    "gin": (GIN, PyGGIN),
    "sage": (SAGE, PyGSAGE),
}


@contextmanager
def threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def edges_of(kind: str, seed: int = 0) -> Tensor:
    """Directed edges; nodes 46..49 have none. Plain, with loops (node 7 two), with duplicates, or with all of it."""
    rng = np.random.default_rng(seed)
    edges = rng.integers(46, size=(2, 150))
    edges = edges[:, edges[0] != edges[1]]
    edges = np.unique(edges, axis=1)
    loops = np.array([[1, 7, 7], [1, 7, 7]])
    parts = {
        "plain": [edges],
        "loops": [edges, loops],
        "duplicates": [edges, edges[:, :30], edges[:, :5]],
        "all": [edges, loops, edges[:, :30], edges[:, :5], np.array([[48], [48]])],
    }[kind]
    joined = np.concatenate(parts, axis=1)
    return torch.from_numpy(joined[:, rng.permutation(joined.shape[1])])


def features_of(
    sparse: bool, dtype: torch.dtype = torch.float64, seed: int = 0
) -> tuple[Tensor, Tensor | SparseMatrix]:
    """The features as a dense tensor, and as what the backbone is given; row 3 is empty."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(NODES, FEATURES))
    if sparse:
        values *= rng.random(values.shape) < 0.2
    values[3] = 0.0
    dense = torch.from_numpy(values).to(dtype)
    return dense, SparseMatrix.from_torch(dense.to_sparse_csr()) if sparse else dense


def random_coo(rows: int, columns: int, count: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    rng = np.random.default_rng(seed)
    row, column = rng.integers(rows, size=count), rng.integers(columns, size=count)
    return torch.from_numpy(row), torch.from_numpy(column), torch.from_numpy(rng.normal(size=count))


def dense_of(row: Tensor, column: Tensor, values: Tensor, shape: tuple[int, int]) -> np.ndarray:
    dense = np.zeros(shape)
    for i, j, value in zip(row.tolist(), column.tolist(), values.tolist(), strict=True):
        dense[i, j] += value
    return dense


# ---------------------------------------------------------------------------------------------
# Sparse matrices
# ---------------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(
    rows=st.integers(1, 12),
    columns=st.integers(1, 12),
    count=st.integers(0, 40),
    width=st.integers(1, 5),
    seed=st.integers(0, 1000),
)
def test_sparse_matrix_is_its_dense_twin(rows: int, columns: int, count: int, width: int, seed: int) -> None:
    """Duplicates are summed, empty rows and columns stay empty, however the matrix is turned."""
    row, column, values = random_coo(rows, columns, count, seed)
    expected = dense_of(row, column, values, (rows, columns))
    matrix = SparseMatrix.from_coo(row, column, values, (rows, columns))
    assert tuple(matrix.shape) == (rows, columns)
    assert matrix.nnz == len({*zip(row.tolist(), column.tolist(), strict=True)})
    np.testing.assert_allclose(matrix.to_dense().numpy(), expected, atol=1e-12)
    np.testing.assert_allclose(matrix.t().to_dense().numpy(), expected.T, atol=1e-12)
    other = torch.from_numpy(np.random.default_rng(seed).normal(size=(columns, width)))
    product = matrix @ other
    assert product.dtype == torch.float64
    np.testing.assert_allclose(product.numpy(), expected @ other.numpy(), atol=1e-12)
    other = torch.from_numpy(np.random.default_rng(seed).normal(size=(rows, width)))
    np.testing.assert_allclose((matrix.t() @ other).numpy(), expected.T @ other.numpy(), atol=1e-12)


def test_sparse_matrix_from_torch() -> None:
    dense = torch.from_numpy(dense_of(*random_coo(7, 5, 12), (7, 5)))
    matrix = SparseMatrix.from_torch(dense.to_sparse_csr())
    assert torch.equal(matrix.to_dense(), dense)
    assert matrix.nnz == int((dense != 0).sum())
    assert torch.equal(matrix.to("cpu").to_dense(), dense)
    single = SparseMatrix.from_torch(dense.float().to_sparse_csr())
    product = single @ torch.ones(5, 2)
    assert product.dtype == torch.float32
    torch.testing.assert_close(product, dense.float() @ torch.ones(5, 2))


@pytest.mark.parametrize("starts", [[0, 300, 1, 4], [0, 2, -1, 4], [3, 1, 2, 4], [-2, 1, 2, 4]])
def test_rows_of_a_damaged_matrix_are_refused_before_memory_is_read(starts: list[int]) -> None:
    matrix = SparseMatrix(torch.tensor(starts), torch.zeros(4, dtype=torch.long), torch.ones(4), (3, 5))
    with pytest.raises(ValueError, match="the graph is damaged: rows begin or end outside of the matrix"):
        matrix.rows(torch.arange(3))


def test_columns_of_a_damaged_matrix_are_refused_before_anything_is_written() -> None:
    for wrong in (5, -1, 2**40):
        matrix = SparseMatrix(torch.tensor([0, 2, 3]), torch.tensor([0, wrong, 4]), torch.ones(3), (2, 5))
        assert matrix.rows(torch.tensor([1])).nnz == 1
        with pytest.raises(ValueError, match="the graph is damaged: an entry lies outside of the matrix"):
            matrix.rows(torch.arange(2), once=True)


@settings(max_examples=40, deadline=None)
@given(
    rows=st.integers(1, 12), columns=st.integers(1, 12), count=st.integers(0, 40), width=st.integers(1, 9),
    seed=st.integers(0, 1000), threads=st.sampled_from([1, 2, 3]),
)  # fmt: skip
def test_a_matrix_that_is_needed_once_has_the_same_gradient(
    rows: int, columns: int, count: int, width: int, seed: int, threads: int
) -> None:
    """Without a transpose, and the same bits on any number of threads."""
    row, column, values = random_coo(rows, columns, count, seed)
    matrix = SparseMatrix.from_coo(row, column, values, (rows, columns), once=True)
    dense = torch.from_numpy(np.random.default_rng(seed).normal(size=(columns, width))).requires_grad_()
    upwards = torch.from_numpy(np.random.default_rng(seed + 1).normal(size=(rows, width)))
    (expected,) = torch.autograd.grad(matrix @ dense, dense, upwards)
    assert matrix._transposed is None
    np.testing.assert_allclose(
        expected.numpy(), dense_of(row, column, values, (rows, columns)).T @ upwards.numpy(), atol=1e-12
    )
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("credalgnn.nn.sparse.FEW", 0)
            assert torch.equal(torch.autograd.grad(matrix @ dense, dense, upwards)[0], expected)
    finally:
        torch.set_num_threads(before)


@settings(max_examples=40, deadline=None)
@given(
    rows=st.integers(1, 8), inner=st.integers(1, 8), columns=st.integers(1, 8), count=st.integers(0, 30),
    seed=st.integers(0, 1000),
)  # fmt: skip
def test_a_product_of_sparse_matrices(rows: int, inner: int, columns: int, count: int, seed: int) -> None:
    """Entries at the same place stand there one by one, and count together."""
    left, right = random_coo(rows, inner, count, seed), random_coo(inner, columns, count, seed + 1)
    product = sparse_product(
        SparseMatrix.from_coo(*left, (rows, inner)), SparseMatrix.from_coo(*right, (inner, columns))
    )
    assert product.shape == (rows, columns)
    expected = dense_of(*left, (rows, inner)) @ dense_of(*right, (inner, columns))
    np.testing.assert_allclose(product.to_dense().numpy(), expected, atol=1e-12)
    top = top_rows(SparseMatrix.from_coo(*left, (rows, inner)), 1, inner)
    np.testing.assert_allclose(
        sparse_product(top, SparseMatrix.from_coo(*right, (inner, columns))).to_dense().numpy(),
        expected[:1],
        atol=1e-12,
    )


def test_a_product_of_long_rows_has_starts_that_hold_its_length() -> None:
    """200 rows of 200 entries are more than the int16 counts that the matrix begins with can tell."""
    many = SparseMatrix(torch.tensor([0, 100, 200]), torch.zeros(200, dtype=torch.int32), torch.ones(200), (2, 3))
    counts = torch.tensor([0, 200, 200, 200], dtype=torch.int16)
    hub = SparseMatrix(counts, torch.arange(200, dtype=torch.int32), torch.ones(200), (3, 200))
    assert product_entries(many, hub) == 40_000
    for found in (sparse_product(many, hub), hub.rows(torch.zeros(200, dtype=torch.long))):
        assert found.starts.dtype == torch.int64
        assert int(found.starts[-1]) == found.nnz == 40_000
    assert torch.equal(sparse_product(many, hub).to_dense(), torch.full((2, 200), 100.0))
    assert hub.rows(torch.tensor([0, 1])).starts.dtype == torch.int16


def test_rows_of_hubs_are_not_carried_along_edges(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mean of 1,000 nodes, one of which has all features: whether it is drawn decides, not the average row."""
    asked: list[int] = []
    product = layers.sparse_product
    monkeypatch.setattr(layers, "sparse_product", lambda one, other: asked.append(one.nnz) or product(one, other))
    counts = torch.zeros(1_001, dtype=torch.int32)
    counts[1:] = 500
    x = SparseMatrix(counts, torch.arange(500, dtype=torch.int32), torch.ones(500), (1_000, 500))
    layer = SAGELayer(500, 2)
    for source, expected in ((0, 0), (1, 1)):
        asked.clear()
        mean = SparseMatrix(torch.arange(10), torch.full((9,), source), torch.ones(9), (9, 1_000))
        edges = SimpleNamespace(matrix={"mean": mean}.__getitem__)
        out = layer(x, edges)
        assert len(asked) == expected
        dense = layer(x.to_dense(), edges)
        torch.testing.assert_close(out, dense)


def test_sparse_matrix_from_csr_with_small_indices() -> None:
    """A graph's features are a CSR matrix with int32 indices."""
    matrix = torch.sparse_csr_tensor(
        torch.tensor([0, 2, 2, 3], dtype=torch.int32),
        torch.tensor([0, 3, 1], dtype=torch.int32),
        torch.tensor([1.0, 2.0, 3.0]),
        (3, 4),
        check_invariants=True,
    )
    sparse = SparseMatrix.from_torch(matrix)
    expected = torch.tensor([[1.0, 0, 0, 2], [0, 0, 0, 0], [0, 3, 0, 0]])
    assert torch.equal(sparse.to_dense(), expected)
    assert torch.equal(sparse @ torch.eye(4), expected)
    assert torch.equal(sparse.t() @ torch.eye(3), expected.t())


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("index", [torch.int32, torch.int64])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_some_rows_are_those_of_the_dense_matrix(
    dtype: torch.dtype, index: torch.dtype, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In any order, some twice, empty ones and none at all; indices and values keep their types."""
    if not compiled:
        monkeypatch.setattr("credalgnn.nn.sparse.has_kernels", lambda device: False)
    row, column, value = random_coo(9, 5, 14)
    made = SparseMatrix.from_coo(row, column, value, (9, 5))
    matrix = SparseMatrix(made.starts.to(index), made.columns.to(index), made.values.to(dtype), made.shape)
    assert (matrix.starts.diff() == 0).any()
    for nodes in ([8, 0, 3, 3, *range(9)], []):
        found = matrix.rows(torch.tensor(nodes, dtype=torch.long))
        assert torch.equal(found.to_dense(), matrix.to_dense()[nodes])
        assert (found.starts.dtype, found.columns.dtype, found.values.dtype) == (index, index, dtype)


def test_sparse_transpose_is_kept() -> None:
    matrix = SparseMatrix.from_coo(*random_coo(6, 4, 10), (6, 4))
    assert matrix.t() is matrix.t()
    assert tuple(matrix.t().shape) == (4, 6)
    assert torch.equal(matrix.t().t().to_dense(), matrix.to_dense())


def test_sparse_product_gradients() -> None:
    dense = torch.randn(6, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    for once in (False, True):
        matrix = SparseMatrix.from_coo(*random_coo(8, 6, 15), (8, 6), once)
        assert torch.autograd.gradcheck(matrix.__matmul__, (dense,))
        assert torch.autograd.gradgradcheck(matrix.__matmul__, (dense,))
    flipped = matrix.t()
    dense = torch.randn(8, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: flipped @ x, (dense,))
    assert torch.autograd.gradcheck(lambda x: matrix @ (flipped.t() @ (matrix.t() @ x)).tanh()[:6], (dense,))


def test_sparse_product_accepts_slices_and_turned_tensors() -> None:
    """What is given need not lie in memory row by row."""
    matrix = SparseMatrix.from_coo(*random_coo(8, 6, 15), (8, 6))
    wide = torch.arange(60.0, dtype=torch.float64).reshape(10, 6)
    expected = matrix.to_dense() @ wide.t()
    torch.testing.assert_close(matrix @ wide.t(), expected)
    torch.testing.assert_close(matrix @ wide.t()[:, 1::2], expected[:, 1::2])
    with pytest.raises((ValueError, RuntimeError)):
        matrix @ wide


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sparse_products_do_not_depend_on_threads(dtype: torch.dtype) -> None:
    row, column, values = random_coo(3000, 2500, 200_000)  # enough for the work to be shared
    row[row == 17] = 18  # an empty row
    matrix = SparseMatrix.from_coo(row, column, values.to(dtype), (3000, 2500))
    dense = torch.randn(2500, 65, dtype=dtype, generator=torch.Generator().manual_seed(0))
    results = []
    for count in (1, 2):
        with threads(count):
            x = dense.clone().requires_grad_()
            product = matrix @ x
            product.square().sum().backward()
            results.append((product.detach(), x.grad))
    assert torch.equal(results[0][0], results[1][0])
    assert torch.equal(results[0][1], results[1][1])
    assert torch.equal(results[0][0][17], torch.zeros(65, dtype=dtype))
    exact = torch.sparse_coo_tensor(torch.stack([row, column]), values, (3000, 2500)) @ dense.double()
    torch.testing.assert_close(results[0][0].double(), exact, atol=1e-4 if dtype == torch.float32 else 1e-10, rtol=0)


def test_sparse_matrices_give_no_warning() -> None:
    """Torch says once per process that its CSR matrices are in beta: a user of a layer need not know."""
    script = """
import torch
from credalgnn.nn import GCN, Adjacency, SparseMatrix
matrix = SparseMatrix.from_coo(torch.tensor([0, 1]), torch.tensor([1, 0]), torch.ones(2), (2, 2))
assert torch.equal(matrix.to_dense(), torch.eye(2).flip(0))
GCN(2, 3, 2)(matrix, Adjacency.from_index(torch.tensor([[0], [1]]), 2))
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize("kind", ["plain", "loops", "duplicates", "all"])
def test_adjacency_is_that_of_pyg_and_of_the_definition(kind: str) -> None:
    edges = edges_of(kind)
    adjacency = Adjacency.from_index(edges, NODES)
    normalized = adjacency.matrix("normalized").to_dense().double().numpy()
    np.testing.assert_allclose(normalized, ref.gcn_matrix(edges.numpy(), NODES), atol=1e-6)
    index, weight = gcn_norm(edges, None, NODES)
    np.testing.assert_allclose(normalized, dense_of(index[1], index[0], weight, (NODES, NODES)), atol=1e-6)
    mean = adjacency.matrix("mean").to_dense().double().numpy()
    np.testing.assert_allclose(mean, ref.mean_matrix(edges.numpy(), NODES), atol=1e-6)
    assert not mean[49].any()  # an isolated node has nobody to average
    assert normalized[49, 49] == pytest.approx(1.0)
    assert np.abs(normalized - normalized.T).max() > 0.1  # the edges are directed: a turned matrix would show
    expected = np.eye(NODES)
    np.add.at(expected, (edges[1].numpy(), edges[0].numpy()), 1.0)
    np.testing.assert_array_equal(adjacency.matrix("sum").to_dense().numpy(), expected)
    looped = expected * (1.0 - np.eye(NODES)) + np.eye(NODES)
    np.testing.assert_array_equal(adjacency.matrix("looped").to_dense().numpy(), looped)
    for name in ("looped", "mean", "normalized", "sum"):
        assert adjacency.matrix(name) is adjacency.matrix(name)


def weights_of(edges: Tensor, seed: int = 0) -> Tensor:
    """Weights between 0 and 2, some of them 0; all in-edges of node 5 have none."""
    rng = np.random.default_rng(seed)
    weights = rng.uniform(0, 2, edges.shape[1]) * (rng.random(edges.shape[1]) < 0.9)
    return torch.from_numpy(np.where(edges[1].numpy() == 5, 0.0, weights).astype(np.float32))


@pytest.mark.parametrize("kind", ["plain", "loops", "duplicates", "all"])
def test_weighted_adjacency_is_that_of_pyg_and_of_the_definition(kind: str) -> None:
    edges = edges_of(kind)
    weights = weights_of(edges)
    twin = (edges == 7).all(0).nonzero().squeeze(-1)
    weights[twin] = 0.7  # of two loops with different weights PyG takes whichever comes last
    adjacency = Adjacency.from_index(edges, NODES, weights)
    index, weight = gcn_norm(edges, weights, NODES)
    normalized = adjacency.matrix("normalized").to_dense().double().numpy()
    np.testing.assert_allclose(normalized, dense_of(index[1], index[0], weight, (NODES, NODES)), atol=1e-6)
    summed = np.zeros((NODES, NODES))
    np.add.at(summed, (edges[1].numpy(), edges[0].numpy()), weights.double().numpy())
    total = summed.sum(1, keepdims=True)
    expected = np.divide(summed, total, out=np.zeros_like(summed), where=total > 0)
    mean = adjacency.matrix("mean").to_dense().double().numpy()
    np.testing.assert_allclose(mean, expected, atol=1e-6)
    assert not mean[[5, 49]].any()
    np.testing.assert_allclose(adjacency.matrix("sum").to_dense().double().numpy(), summed + np.eye(NODES), atol=1e-6)
    plain = Adjacency.from_index(edges, NODES)
    for name in ("mean", "normalized", "sum"):
        ones = Adjacency.from_index(edges, NODES, torch.ones(edges.shape[1])).matrix(name)
        torch.testing.assert_close(ones.to_dense(), plain.matrix(name).to_dense())
        assert not torch.allclose(adjacency.matrix(name).to_dense(), plain.matrix(name).to_dense(), atol=0.1)


def test_a_node_all_of_whose_weights_are_zero() -> None:
    edges = torch.tensor([[0, 1, 1], [1, 1, 0]])
    adjacency = Adjacency.from_index(edges, 2, torch.tensor([0.0, 0.0, 1.0]))
    torch.testing.assert_close(adjacency.matrix("normalized").to_dense(), torch.tensor([[0.5, 0.0], [0.0, 0.0]]))
    assert adjacency.matrix("mean").to_dense().tolist() == [[0.0, 1.0], [0.0, 0.0]]


def test_weighted_gcn_equals_that_of_pyg() -> None:
    """Forward, and the gradients of every weight."""
    edges = edges_of("duplicates")
    weights, x = weights_of(edges), features_of(False, torch.float32)[0]
    ours, theirs = twins("gcn", 2, CLASSES)
    given, expected = ours(x, Adjacency.from_index(edges, NODES, weights))[-1], theirs(x, edges, weights)
    torch.testing.assert_close(given, expected, rtol=1e-4, atol=1e-5)
    given.square().sum().backward()
    expected.square().sum().backward()
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-4, atol=1e-4)
    assert not torch.allclose(given, ours(x, Adjacency.from_index(edges, NODES))[-1], atol=0.1)


def test_weighted_sage_equals_a_dense_oracle() -> None:
    edges = edges_of("all")
    weights, x = weights_of(edges), features_of(False, torch.float64)[0]
    ours, _ = twins("sage", 1, CLASSES, torch.float64)
    layer = ours.convs[0]
    expected = []
    for node in range(NODES):
        into = edges[1] == node
        near = (weights[into].double()[:, None] * x[edges[0][into]]).sum(0) / weights[into].double().sum()
        expected.append(layer.lin_l(near.nan_to_num(nan=0.0)) + layer.lin_r(x[node]))
    torch.testing.assert_close(
        ours(x, Adjacency.from_index(edges, NODES, weights))[-1], torch.stack(expected), atol=1e-6, rtol=1e-5
    )


class WithoutWeights(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convs = PyGGCN(FEATURES, HIDDEN, 1).convs

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.convs[0](x, edge_index)


class WithWeights(WithoutWeights):
    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        return self.convs[0](x, edge_index, edge_weight)


def test_pyg_models_get_weights_or_refuse_them() -> None:
    edges, x = edges_of("plain"), features_of(False, torch.float32)[0]
    weighted = Adjacency.from_index(edges, NODES, weights_of(edges))
    for module in (PyGGCN(FEATURES, HIDDEN, 2), WithWeights()):
        last = PyGBackbone(module)(x, weighted)[-1]
        torch.testing.assert_close(last, module(x, edges, edge_weight=weighted.edge_weight).relu())
        assert not torch.allclose(last, module(x, edges).relu())
    for module in (PyGGAT(FEATURES, HIDDEN, 2), PyGGIN(FEATURES, HIDDEN, 2), WithoutWeights()):
        PyGBackbone(module)(x, Adjacency.from_index(edges, NODES))
        name = type(module).__name__
        with pytest.raises(BackboneError, match=rf"backbone {name} takes no edge weights.*graph\.unweighted"):
            PyGBackbone(module)(x, weighted)


@pytest.mark.parametrize("name", ["mean", "normalized"])
@pytest.mark.parametrize("loop", [False, True])
def test_drawn_weighted_neighbours_are_unbiased(name: str, loop: bool) -> None:
    """A hub with 40 in-edges, of which 10 are drawn: on average over many draws its row is that of the whole graph."""
    sources = torch.arange(0 if loop else 1, 41)
    weights = torch.linspace(0.1, 3, len(sources))
    edges = Adjacency.from_index(torch.stack([sources, torch.zeros_like(sources)]), 41, weights)
    x = torch.linspace(-1, 2, 41)[:, None]
    sampler = Sampler(x, edges, [FANOUT])
    drawn = [sampler.around(torch.tensor([0]), number) for number in range(2000)]
    values = torch.stack([(batch.edges.matrix(name) @ batch.x)[0, 0] for batch in drawn])
    assert float(values.std()) > 0.01
    exact = (edges.matrix(name) @ x)[0, 0]
    assert abs(float(values.mean() - exact)) < 4 * float(values.std()) / 2000**0.5


@pytest.mark.parametrize("kind", ["gcn", "sage"])
def test_a_batch_with_all_neighbours_gives_what_the_whole_weighted_graph_gives(kind: str) -> None:
    edges = edges_of("all")
    weighted = Adjacency.from_index(edges, NODES, weights_of(edges))
    assert int(torch.bincount(edges[1]).max()) <= FANOUT
    x = features_of(False, torch.float32)[0]
    ours, _ = twins(kind, 2, CLASSES)
    seeds = torch.tensor([7, 3, 48, 5, 20])
    batch = Sampler(x, weighted, [FANOUT, FANOUT]).around(seeds)
    torch.testing.assert_close(ours(batch.x, batch.edges)[-1], ours(x, weighted)[-1][seeds])


def test_adjacency_without_edges() -> None:
    adjacency = Adjacency.from_index(torch.empty((2, 0), dtype=torch.int64), 4)
    assert torch.equal(adjacency.matrix("normalized").to_dense(), torch.eye(4))
    assert torch.equal(adjacency.matrix("mean").to_dense(), torch.zeros(4, 4))


# ---------------------------------------------------------------------------------------------
# Backbones
# ---------------------------------------------------------------------------------------------


def twins(kind: str, layers: int, out: int | None, dtype: torch.dtype = torch.float32) -> tuple[Stack, torch.nn.Module]:
    """Ours and PyG's, with the same weights, biases included."""
    ours_class, theirs_class = PAIRS[kind]
    theirs = theirs_class(FEATURES, HIDDEN, layers, out)
    ours = ours_class(FEATURES, HIDDEN, layers, out_channels=out)
    generator = torch.Generator().manual_seed(layers)
    for parameter in theirs.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator) / 2
    state = {own_name(name): value for name, value in theirs.state_dict().items() if not name.endswith(".eps")}
    ours.load_state_dict(state)
    return ours.to(dtype), theirs.to(dtype)


def own_name(name: str) -> str:
    """Of a parameter of PyG's, whose GIN layers keep theirs in a network of their own."""
    return name.replace(".nn.lins.0.", ".first.").replace(".nn.lins.1.", ".second.")


@pytest.mark.parametrize("out", [None, CLASSES])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("layers", [2, 3])
@pytest.mark.parametrize("kind", PAIRS)
def test_backbones_equal_those_of_pyg(kind: str, layers: int, sparse: bool, out: int | None) -> None:
    """Forward, and the gradients of every weight and (dense) of the features, on four kinds of edges."""
    for edge_kind in ("plain", "loops", "duplicates", "all"):
        edges = edges_of(edge_kind)
        dense, given_x = features_of(sparse, torch.float32)
        ours, theirs = twins(kind, layers, out)
        x, y = dense.clone().requires_grad_(), dense.clone().requires_grad_()
        latents = ours(given_x if sparse else x, Adjacency.from_index(edges, NODES))
        assert len(latents) == layers
        assert [z.shape[1] for z in latents[:-1]] == [HIDDEN] * (layers - 1)
        expected = theirs(y, edges)
        if out is None:
            expected = expected.relu()
        assert latents[-1].shape == expected.shape
        rounding = 1e-5 * max(1.0, float(expected.detach().abs().max()))  # sums of GIN are in the hundreds, and cancel
        torch.testing.assert_close(latents[-1], expected, rtol=1e-4, atol=rounding)
        assert out is None or bool((latents[-1] < 0).any())  # logits have no ReLU
        pull = torch.randn(expected.shape, generator=torch.Generator().manual_seed(1))
        (latents[-1] * pull).sum().backward()
        (expected * pull).sum().backward()
        for (name, one), (other_name, other) in zip(ours.named_parameters(), theirs.named_parameters(), strict=True):
            assert name == own_name(other_name)
            rounding = 1e-5 * max(10.0, float(other.grad.abs().max()))
            torch.testing.assert_close(one.grad, other.grad, rtol=1e-4, atol=rounding, msg=f"{edge_kind}: {name}")
            assert bool(other.grad.abs().sum() > 0.01)
        if not sparse:
            rounding = 1e-5 * max(10.0, float(y.grad.abs().max()))
            torch.testing.assert_close(x.grad, y.grad, rtol=1e-4, atol=rounding)


@pytest.mark.parametrize("layers", [2, 3])
@pytest.mark.parametrize("kind", ["gcn", "sage"])
def test_every_latent_equals_the_reference(kind: str, layers: int) -> None:
    ours, theirs = twins(kind, layers, None)
    edges = edges_of("all")
    dense, x = features_of(True, torch.float32)
    state = {name: value.numpy() for name, value in theirs.state_dict().items()}
    head = np.zeros((1, HIDDEN)), np.zeros(1)
    expected = ref.Network.from_weights(kind, state, *head, edges.numpy(), NODES).latents(dense.numpy())
    found = ours(x, Adjacency.from_index(edges, NODES))
    for number, z in enumerate(found, start=1):
        np.testing.assert_allclose(z.detach().numpy(), expected[number], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["gcn", "sage"])
def test_backbone_takes_an_edge_index(kind: str) -> None:
    ours, _ = twins(kind, 2, None)
    edges = edges_of("all")
    dense, x = features_of(True, torch.float32)
    from_index, from_adjacency = ours(dense, edges), ours(dense, Adjacency.from_index(edges, NODES))
    for one, other, third in zip(from_index, from_adjacency, ours(x, edges), strict=True):
        assert torch.equal(one, other)
        torch.testing.assert_close(one, third)


@pytest.mark.parametrize("kind", ["gcn", "sage"])
def test_backbone_in_double_precision(kind: str) -> None:
    ours, theirs = twins(kind, 2, None, torch.float64)
    edges = edges_of("all")
    for sparse in (False, True):
        dense, x = features_of(sparse, torch.float64)
        found = ours(x, Adjacency.from_index(edges, NODES))[-1]
        assert found.dtype == torch.float64
        torch.testing.assert_close(found, theirs(dense, edges).relu(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", ["gcn", "sage"])
def test_dropout_in_training_only(kind: str) -> None:
    """After the ReLU of every layer, scaled so that the mean stays; never when predicting, never on logits."""
    make = PAIRS[kind][0]
    edges, x = edges_of("all"), features_of(False, torch.float32)[0]
    torch.manual_seed(0)
    plain, dropping = make(FEATURES, 400, 2), make(FEATURES, 400, 2, dropout=0.5)
    dropping.load_state_dict(plain.state_dict())
    dropping.eval()
    for one, other in zip(plain(x, edges), dropping(x, edges), strict=True):
        assert torch.equal(one, other)
    dropping.train()
    first, kept = dropping(x, edges)[0], plain(x, edges)[0]
    alive = kept > 0
    assert float((first[alive] == 0).float().mean()) == pytest.approx(0.5, abs=0.05)
    survivors = alive & (first != 0)
    torch.testing.assert_close(first[survivors], 2 * kept[survivors])
    assert float((dropping(x, edges)[1] == 0).float().mean()) > float((plain(x, edges)[1] == 0).float().mean()) + 0.1
    logits = make(FEATURES, 400, 2, out_channels=CLASSES, dropout=0.5).train()(x, edges)[-1]
    assert int((logits == 0).sum()) == 0


@pytest.mark.parametrize("kind", ["gcn", "sage"])
def test_initial_weights_follow_the_seed(kind: str) -> None:
    make = PAIRS[kind][0]
    drawn = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        drawn.append(torch.cat([p.detach().flatten() for p in make(FEATURES, HIDDEN, 2).parameters()]))
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])
    assert bool(torch.isfinite(drawn[0]).all())


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("model", [PyGGAT, PyGGIN], ids=["gat", "gin"])
def test_any_pyg_model_is_a_backbone(model: type[torch.nn.Module], sparse: bool) -> None:
    """Latents are the ReLU of what each message-passing layer says, and gradients reach the model."""
    torch.manual_seed(0)
    module = model(FEATURES, HIDDEN, 3).eval()
    edges = edges_of("all")
    dense, x = features_of(sparse, torch.float32)
    backbone = PyGBackbone(module).eval()
    latents = backbone(x, Adjacency.from_index(edges, NODES))
    assert len(latents) == 3
    z = dense
    for conv, found in zip(module.convs, latents, strict=True):
        z = conv(z, edges).relu()
        torch.testing.assert_close(found, z, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(latents[-1], module(dense, edges).relu(), rtol=1e-5, atol=1e-6)
    for one, other in zip(latents, backbone(x, edges), strict=True):
        torch.testing.assert_close(one, other)
    sum(z.sum() for z in latents).backward()
    reached = [p.grad is not None and bool(p.grad.abs().sum() > 0) for p in module.parameters()]
    assert all(reached)


# ---------------------------------------------------------------------------------------------
# The loop
# ---------------------------------------------------------------------------------------------

SCHEDULE = Schedule(lr=0.05, weight_decay=1e-3, epochs=6, patience=6)


def trained(
    on: tuple[Tensor, Adjacency] | None, seen: list[Tensor], dropout: float = 0.0, schedule: Schedule = SCHEDULE
) -> tuple[Classifier, list[Epoch]]:
    """A classifier trained on 30 nodes and stopped by ten others, of the same graph or of another one."""
    x, edges = features_of(False, torch.float32)[0], Adjacency.from_index(edges_of("all"), NODES)
    target = torch.arange(NODES) % CLASSES
    torch.manual_seed(0)
    backbone = SAGE(FEATURES, HIDDEN, 2, dropout=dropout)
    model = Classifier(backbone, torch.nn.Linear(HIDDEN, CLASSES), 2)

    def value(output: Tensor) -> float:
        seen.append(output.detach().clone())
        return torch.nn.functional.cross_entropy(output, target[30:40]).item()

    monitor = Monitor(torch.arange(30, 40), value, on)
    loss = torch.nn.functional.cross_entropy
    data = Supervision(x, edges, torch.arange(30), target[:30])
    return model, train(model, data, loss, monitor, schedule, RngScope(0), progress=False)


@pytest.mark.parametrize("batch_size", [None, 7])
@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_watching_the_same_graph_as_another_one_changes_nothing(dropout: float, batch_size: int | None) -> None:
    """Not a bit: neither the curve nor the weights, whether one forward pass serves both or not."""
    x, edges = features_of(False, torch.float32)[0], Adjacency.from_index(edges_of("all"), NODES)
    options = {"dropout": dropout, "schedule": replace(SCHEDULE, batch_size=batch_size)}
    one, curve = trained(None, [], **options)
    other, again = trained((x.clone(), edges), [], **options)
    assert curve == again
    for name, weight in one.state_dict().items():
        assert torch.equal(weight, other.state_dict()[name])
    assert len({line.monitor for line in curve}) == len(curve) == 7


@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_the_monitor_watches_the_graph_it_is_given(dropout: float) -> None:
    """Without dropout there, and with the weights of the epoch; the losses are those of training as ever."""
    x = torch.randn(60, FEATURES, generator=torch.Generator().manual_seed(3))
    edges = Adjacency.from_index(torch.randint(60, (2, 200), generator=torch.Generator().manual_seed(4)), 60)
    seen: list[Tensor] = []
    model, curve = trained((x, edges), seen, dropout)
    best = min(range(1, 7), key=lambda k: curve[k].monitor)
    with torch.no_grad():
        assert torch.equal(model(x, edges)[30:40], seen[best])
    _, plain = trained(None, [], dropout)
    assert [line.loss for line in curve] == [line.loss for line in plain]
    assert all(line.monitor != other.monitor for line, other in zip(curve, plain, strict=True))


# ---------------------------------------------------------------------------------------------
# The credal head
# ---------------------------------------------------------------------------------------------


def head_of(widths: int | list[int], classes: int, seed: int = 0, **shape: str) -> CredalHead:
    head = CredalHead(widths, classes, **shape)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in (head.weight, head.bias):
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return head


@pytest.mark.parametrize("half_length", ["softplus", "sigmoid"])
@pytest.mark.parametrize("midpoint", ["identity", "sigmoid"])
@pytest.mark.parametrize("classes", [2, 3, 10])
def test_credal_head_equals_the_reference(classes: int, midpoint: str, half_length: str) -> None:
    head = head_of(6, classes, midpoint=midpoint, half_length=half_length)
    assert head.weight.shape == (2 * classes, 6)
    assert head.bias.shape == (2 * classes,)
    z = torch.randn(40, 6, generator=torch.Generator().manual_seed(1))
    lower, upper = head(z)
    given_head = head.weight.detach().numpy(), head.bias.detach().numpy()
    expected = ref.credal_logits(*given_head, z.numpy(), midpoint, half_length)
    np.testing.assert_allclose(lower.detach().numpy(), expected[0], atol=1e-5)
    np.testing.assert_allclose(upper.detach().numpy(), expected[1], atol=1e-5)
    assert bool((upper >= lower).all())
    bounds = ref.credal_bounds(*given_head, z.numpy(), midpoint, half_length)
    for found, wanted in zip(log_interval_softmax(lower, upper), bounds, strict=True):
        np.testing.assert_allclose(found.exp().detach().numpy(), wanted, atol=1e-5)


def test_credal_head_defaults_are_identity_and_softplus() -> None:
    head = head_of(6, 3)
    z = torch.randn(10, 6, generator=torch.Generator().manual_seed(1))
    expected = ref.credal_logits(head.weight.detach().numpy(), head.bias.detach().numpy(), z.numpy())
    for found, wanted in zip(head(z), expected, strict=True):
        np.testing.assert_allclose(found.detach().numpy(), wanted, atol=1e-5)


def test_credal_head_sizes_at_first() -> None:
    """Fresh heads have weights that differ, and intervals that are neither points nor everything."""
    torch.manual_seed(0)
    head = CredalHead(16, 5)
    lower, upper = head(torch.randn(100, 16, generator=torch.Generator().manual_seed(0)))
    low, up = log_interval_softmax(lower, upper)
    width = (up.exp() - low.exp()).detach()
    assert 0.01 < float(width.median()) < 0.99
    assert float(head.weight.detach().std()) > 0.01


def test_joint_head_is_the_head_on_the_concatenation() -> None:
    """Values and gradients, whether the features come dense or sparse."""
    widths = [FEATURES, 5, 7]
    for sparse in (False, True):
        dense, x = features_of(sparse, torch.float32)
        z1 = torch.randn(NODES, 5, generator=torch.Generator().manual_seed(1)).requires_grad_()
        z2 = torch.randn(NODES, 7, generator=torch.Generator().manual_seed(2)).requires_grad_()
        by_list, whole = head_of(widths, CLASSES), head_of(sum(widths), CLASSES)
        assert torch.equal(by_list.weight, whole.weight)
        found = by_list([x, z1, z2])
        expected = whole(torch.cat([dense, z1, z2], dim=1))
        again = whole([x, z1, z2])
        pull = torch.randn(NODES, CLASSES, generator=torch.Generator().manual_seed(3))
        gradients = []
        for head, (low, up) in ((by_list, found), (whole, expected), (whole, again)):
            loss = ((low - 2 * up) * pull).sum()
            gradients.append(torch.autograd.grad(loss, [head.weight, head.bias, z1, z2]))
            torch.testing.assert_close(low, expected[0], atol=1e-5, rtol=1e-5)
            torch.testing.assert_close(up, expected[1], atol=1e-5, rtol=1e-5)
        for one, other, third in zip(*gradients, strict=True):
            torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)
            torch.testing.assert_close(one, third, atol=1e-4, rtol=1e-4)


def test_joint_head_refuses_other_widths() -> None:
    head = head_of([4, 3], CLASSES)
    with pytest.raises((ValueError, RuntimeError)):
        head([torch.zeros(5, 4), torch.zeros(5, 2)])
    with pytest.raises((ValueError, RuntimeError)):
        head(torch.zeros(5, 8))


def test_half_lengths_decay_as_an_optimiser_of_their_own_would_have_it() -> None:
    """W' is pulled towards zero by L2, neither W nor the biases are; without a decay the gradient is left alone."""
    z = torch.randn(20, 6, generator=torch.Generator().manual_seed(1))
    gradients = []
    for decay in (0.0, 0.3):
        head = CredalHead(6, 3, half_length_decay=decay)
        head.load_state_dict(head_of(6, 3).state_dict())
        lower, upper = head(z)
        (lower.square().sum() + upper.sum()).backward()
        gradients.append((head.weight.grad, head.bias.grad))
        assert bool(head.weight._backward_hooks) == bool(decay)
    (plain, bias), (pulled, other) = gradients
    assert torch.equal(plain[:3], pulled[:3])
    torch.testing.assert_close(pulled[3:], plain[3:] + 0.3 * head.weight.detach()[3:])
    assert torch.equal(bias, other)


@pytest.mark.parametrize("wrong", [{"midpoint": "relu"}, {"half_length": "identity"}, {"half_length": "nonsense"}])
def test_credal_head_refuses_unknown_shapes(wrong: dict[str, str]) -> None:
    """A half-length that could be negative is no half-length."""
    with pytest.raises(ValueError, match=next(iter(wrong))):
        CredalHead(4, 3, **wrong)


@pytest.mark.parametrize("classes", [2, 5, 30])
def test_sigmoid_for_both_caps_the_upper_probability(classes: int) -> None:
    """Logit bounds lie in (-1, 1) and (0, 2): a class has at most 2 and the others at least -1, whatever the weights.

    Confidence is out of reach with many classes: q_U is below 0.41 with 30, and q_L below 0.09. With others that are
    points at 0 instead (h = 0, m = 0), q_U is at most 0.20.
    """
    others = classes - 1
    cap_upper = math.exp(2) / (math.exp(2) + others * math.exp(-1))
    cap_lower = math.e / (math.e + others)
    if classes == 30:
        assert round(cap_upper, 2) == 0.41
        assert round(math.exp(2) / (math.exp(2) + others), 2) == 0.20
        assert round(cap_lower, 2) == 0.09
    head = CredalHead(3, classes, midpoint="sigmoid", half_length="sigmoid").double()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        head.weight.copy_(torch.randn(head.weight.shape, generator=generator) * 50)
        head.bias.copy_(torch.randn(head.bias.shape, generator=generator) * 50)
        z = torch.randn(500, 3, dtype=torch.float64, generator=generator)
        low, up = log_interval_softmax(*head(z))
        assert float(up.exp().max()) <= cap_upper + 1e-12
        assert float(low.exp().max()) <= cap_lower + 1e-12
        head.weight.zero_()
        head.bias.fill_(-40.0)
        head.bias[0] = 40.0  # m of class 0 is 1, of all others 0
        head.bias[classes:] = 40.0  # every h is 1
        assert float(log_interval_softmax(*head(z))[1].exp()[0, 0]) == pytest.approx(cap_upper)
        head.bias[classes:] = -40.0  # every h is 0
        assert float(log_interval_softmax(*head(z))[0].exp()[0, 0]) == pytest.approx(cap_lower)
        head.bias[classes] = 40.0  # h of class 0 alone is 1
        at_most = math.exp(2) / (math.exp(2) + others)
        assert float(log_interval_softmax(*head(z))[1].exp()[0, 0]) == pytest.approx(at_most)


# ---------------------------------------------------------------------------------------------
# The loss
# ---------------------------------------------------------------------------------------------


def log_bounds(nodes: int, classes: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    middle = torch.randn(nodes, classes, generator=generator, dtype=torch.float64)
    half = torch.rand(nodes, classes, generator=generator, dtype=torch.float64)
    target = torch.randint(classes, (nodes,), generator=generator)
    return *log_interval_softmax(middle - half, middle + half), target


SHARES = [
    *((delta, 30) for delta in (0.1, 0.2, 0.3, 0.5, 0.6, 0.7, 0.75, 0.9, 1.0)),
    *((delta, 100) for delta in (0.07, 0.14, 0.28, 0.29, 0.55, 0.56, 0.57, 0.58, 0.99)),
    *((delta, 10) for delta in (0.1, 0.3, 0.7, 0.99)),
    *((delta, 7) for delta in (0.01, 0.14, 0.75, 1.0)),
    (0.75, 1),
    (1e-6, 1000),
    (0.35, 2000),
]


@pytest.mark.parametrize(("delta", "nodes"), SHARES)
def test_loss_equals_the_reference(delta: float, nodes: int) -> None:
    """Value and gradients: which nodes count is seen in which have a gradient."""
    low, up, target = log_bounds(nodes, 4, seed=nodes)
    expected = ref.dro_loss(low.numpy(), up.numpy(), target.numpy(), delta)
    low, up = low.requires_grad_(), up.requires_grad_()
    loss = dro_loss(low, up, target, delta)
    assert loss.shape == ()
    assert loss.item() == pytest.approx(expected.value, rel=1e-12)
    loss.backward()
    np.testing.assert_allclose(low.grad.numpy(), expected.lower, atol=1e-12)
    np.testing.assert_allclose(up.grad.numpy(), expected.upper, atol=1e-12)
    assert int((low.grad != 0).sum()) == ref.worst(delta, nodes)


def test_loss_by_hand() -> None:
    """Two of three nodes are the worst two thirds: -log q_L of the true class is 1, 2, 4, -log q_U 0.5 each."""
    low = torch.tensor([[-1.0, -9.0], [-9.0, -2.0], [-4.0, -9.0]])
    up = torch.tensor([[-0.5, -9.0], [-9.0, -0.5], [-0.5, -9.0]])
    target = torch.tensor([0, 1, 0])
    assert dro_loss(low, up, target, 0.7).item() == pytest.approx(0.5 + 3.0)
    assert dro_loss(low, up, target, 0.5).item() == pytest.approx(0.5 + 4.0)
    assert dro_loss(low, up, target, 0.01).item() == pytest.approx(0.5 + 4.0)
    assert dro_loss(low, up, target, 1.0).item() == pytest.approx(0.5 + 7.0 / 3.0)


def test_loss_gradients_through_the_interval_softmax() -> None:
    generator = torch.Generator().manual_seed(0)
    m = torch.randn(9, 3, generator=generator, dtype=torch.float64).requires_grad_()
    h = torch.rand(9, 3, generator=generator, dtype=torch.float64).requires_grad_()
    target = torch.randint(3, (9,), generator=generator)
    assert torch.autograd.gradcheck(lambda a, b: dro_loss(*log_interval_softmax(a - b, a + b), target, 0.5), (m, h))


def test_loss_is_finite_for_extreme_logits() -> None:
    a = torch.tensor([[2000.0, -2000.0], [0.0, 0.0]]).requires_grad_()
    loss = dro_loss(*log_interval_softmax(a - 100, a + 100), torch.tensor([1, 0]), 0.5)
    loss.backward()
    assert loss.item() > 1000
    assert bool(torch.isfinite(a.grad).all())


@pytest.mark.parametrize("delta", [0.0, -0.5, 1.0000001, 75.0, math.nan, math.inf])
def test_loss_refuses_a_share_that_is_none(delta: float) -> None:
    low, up, target = log_bounds(10, 3, seed=0)
    with pytest.raises(ValueError, match="delta"):
        dro_loss(low, up, target, delta)
