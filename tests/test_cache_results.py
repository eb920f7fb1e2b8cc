"""The bounded cache of results."""

import pickle
from concurrent.futures import ThreadPoolExecutor

import torch

from credalgnn.graphs import csbm
from credalgnn.runtime.cache import Cache


def test_the_least_recently_used_result_goes() -> None:
    cache, made = Cache(2), []

    def get(key: str) -> str:
        return cache.get(lambda: made.append(key) or key, key)

    for key in ("a", "b", "a", "c", "a", "b"):
        assert get(key) == key
    assert made == ["a", "b", "c", "b"]
    assert len(cache) == 2
    assert ("b",) in cache
    cache.clear()
    assert not len(cache)


def test_threads_get_one_result() -> None:
    cache = Cache()
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: cache.get(object, "key"), range(64)))
    assert len(set(map(id, results))) == 1


def test_a_failure_is_not_cached_and_pickles_are_empty() -> None:
    cache = Cache(3)
    for _ in range(2):
        try:
            cache.get(lambda: 1 // 0, "key")
        except ZeroDivisionError:
            assert not len(cache)
    cache.get(lambda: 1, "key")
    copy = pickle.loads(pickle.dumps(cache))
    assert (copy.size, len(copy)) == (3, 0)


def _edges(graph: object, factor: int) -> torch.Tensor:
    return factor * graph.edge_index


def test_graphs_with_the_same_features_and_edges_share_results() -> None:
    graph = csbm(60, 3, seed=0)
    relabelled = graph.replace(labels=torch.zeros_like(graph.labels))
    assert graph.cached(_edges, 2) is relabelled.cached(_edges, 2)
    assert graph.cached(_edges, 3) is not graph.cached(_edges, 2)
    assert graph.replace(edge_index=graph.edge_index).cached(_edges, 2) is not graph.cached(_edges, 2)
