"""Approximate neighbours, against all distances: the recall that is stated, the bits, memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from credalgnn.graphs import csbm
from credalgnn.methods import METHODS, Vanilla, load_method, neighbours
from credalgnn.methods.neighbours import NeighbourBank, Search


@pytest.fixture(autouse=True)
def approximate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbours, "EXACT_UP_TO", 100)


def latents(count: int, width: int, kind: str, seed: int) -> Tensor:
    """Of a network: ReLUs of few directions; without structure; or with lengths that no rough code can hold."""
    rng = torch.Generator().manual_seed(seed)
    if kind == "relu":
        weights = torch.randn(6, width, generator=torch.Generator().manual_seed(99))
        return (torch.randn(count, 6, generator=rng) @ weights).relu()
    points = torch.randn(count, width, generator=rng)
    return points if kind == "gauss" else points * 10.0 ** torch.linspace(-6, 6, count)[:, None]


def true(train: Tensor, queries: Tensor, k: int) -> Tensor:
    """The smallest distances, from differences."""
    rows = [(train.double() - query.double()).square().sum(1).sort().values[:k].sqrt() for query in queries]
    return torch.stack(rows)


@pytest.mark.parametrize(("kind", "width"), [("relu", 16), ("relu", 7), ("gauss", 8), ("lengths", 4), ("gauss", 1)])
def test_recall_is_what_is_stated(kind: str, width: int) -> None:
    """It is measured on rows that look for others, and holds for queries that are none, up to chance."""
    train, queries = latents(6000, width, kind, 0), latents(1000, width, kind, 1)
    exact = true(train, queries, 5)
    bank = NeighbourBank(train)
    kth = bank.distance(queries, 5, kth=True)
    assert bank.recall is not None
    assert bank.recall >= neighbours.RECALL
    slack = exact[:, -1] * 1e-4 + 1e-9
    assert bool((kth >= exact[:, -1] - slack).all())  # none is nearer than the nearest
    assert float((kth <= exact[:, -1] + slack).double().mean()) > 1 - 5 * (1 - bank.recall) - 0.02
    first = bank.distance(queries, 1)
    result = float((first <= exact[:, 0] * (1 + 1e-4) + 1e-9).double().mean())
    assert neighbours.RECALL <= bank.recall == pytest.approx(result, abs=0.025)  # another k, another search


def test_how_widely_is_searched_hangs_on_training_nodes_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A query's distance is the same whoever is asked for with it, in however many chunks; nothing is tuned again."""
    train, queries = latents(5000, 16, "relu", 0), latents(400, 16, "relu", 1)
    bank = NeighbourBank(train)
    bank.prepare(5)
    chosen = bank.search
    monkeypatch.setattr(neighbours._Index, "tune", None)
    alone = bank.distance(queries, 5)
    far = 100.0 * torch.randn(2000, 16, generator=torch.Generator().manual_seed(2))
    assert torch.equal(bank.distance(torch.cat([far, queries]), 5)[2000:], alone)
    for size in (1, 7, 100):
        assert torch.equal(torch.cat([bank.distance(part, 5) for part in torch.split(queries, size)]), alone)
    assert bank.distance(queries[:0], 5).shape == (0,)
    assert bank.search is chosen


@pytest.mark.parametrize("name", ["knn", "knn-lj", "jlde"])
def test_a_fitted_method_states_its_recall_and_is_saved_with_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = csbm(600, 3, features=8, seed=1)
    template = METHODS[name](model=Vanilla(epochs=3, hidden=8), k=3)
    method = template.fit(graph)
    recall = method.recall
    assert recall is not None
    assert recall >= neighbours.RECALL
    whole = method.predict()
    method.save(tmp_path)
    monkeypatch.setattr(neighbours._Index, "tune", None)
    loaded = load_method(tmp_path)
    for queries in (method, loaded):
        chunks = torch.cat([chunk.score for chunk in queries.predict_chunks(graph, size=70)])
        assert torch.equal(chunks, whole.score)
        assert queries.recall == recall
    monkeypatch.setattr(neighbours, "EXACT_UP_TO", 1000)
    assert template.clone().fit(graph).recall is None


@pytest.mark.parametrize("wrong", [[0, 32, 4, 1, 0.9], [5, 0, 4, 1, 0.9], [5, 32, 1e9, 1, 0.9], [5, 32, 4, 7, 0.9]])
def test_a_search_that_cannot_be_is_refused(wrong: list[float]) -> None:
    with pytest.raises(ValueError, match="invalid settings of the neighbour search"):
        Search.from_tensor(torch.tensor(wrong, dtype=torch.float64))
    assert Search.from_tensor(Search(5, 32, 4, True, 0.97).tensor()) == (5, 32, 4, True, 0.97)


def test_where_rough_distances_are_of_no_use_rows_are_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbours, "MOST", 4)
    monkeypatch.setattr(neighbours, "RECALL", 0.999)
    train, queries = latents(5000, 16, "gauss", 0), latents(100, 16, "gauss", 1)
    bank = NeighbourBank(train)
    result = bank.distance(queries, 3, kth=True)
    assert bank.search is not None
    assert bank.search.recall >= 0.999
    assert not bank.search.rough
    torch.testing.assert_close(result, true(train, queries, 3)[:, -1], rtol=1e-3, atol=0)


def test_threads_do_not_change_a_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbours, "SEARCHED", 256)
    train, queries = latents(8000, 16, "relu", 0), latents(3000, 16, "relu", 1)
    before, result = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 4, 2):
            torch.set_num_threads(threads)
            result.append(NeighbourBank(train).distance(queries, 5))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(each, result[0]) for each in result)


def test_latents_in_a_file_are_searched_where_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train, queries = latents(4000, 8, "relu", 0), latents(200, 8, "relu", 1)
    expected = NeighbourBank(train).distance(queries, 5)
    np.save(tmp_path / "train.npy", train.numpy())
    mapped = torch.from_numpy(np.load(tmp_path / "train.npy", mmap_mode="r+"))
    bank = NeighbourBank(mapped)
    assert torch.equal(bank.distance(queries, 5), expected)
    assert bank._index._rows.ctypes.data == mapped.data_ptr()
    halves = NeighbourBank([train[:, :3], train[:, 3:].double()])
    assert torch.equal(halves.distance([queries[:, :3], queries[:, 3:]], 5), expected)


def test_nodes_with_equal_latents_are_neighbours_at_no_distance() -> None:
    train = latents(3000, 8, "relu", 0)
    train[:2000] = 0.0
    bank = NeighbourBank(train)
    assert bank.distance(torch.zeros(50, 8), 20, kth=True).eq(0).all()
    assert bank.recall is not None
    assert bank.recall >= neighbours.RECALL
