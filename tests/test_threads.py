"""What threads share: generators of torch, outputs of layers, and limits of the process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from threadpoolctl import threadpool_info, threadpool_limits

from credalgnn import Task, Vanilla
from credalgnn.graphs import csbm
from credalgnn.methods.coverage.descriptions import one_thread
from credalgnn.methods.neighbours import NeighbourBank
from credalgnn.nn import RngScope
from credalgnn.testing import check_method

X = torch.linspace(0.1, 0.9, 12).reshape(3, 4)
RANDOM: dict[str, Callable[[], Any]] = {
    "weights": lambda: torch.nn.Linear(4, 3).weight.detach(),
    "normal weights": lambda: torch.nn.init.orthogonal_(torch.empty(4, 4)),
    "dropout": lambda: torch.nn.functional.dropout(X, 0.5),
    "dropout of channels": lambda: torch.nn.functional.dropout2d(torch.ones(2, 4, 3, 3)),
    "uniform": lambda: torch.rand(5),
    "uniform like": lambda: torch.rand_like(X),
    "normal": lambda: torch.randn(5),
    "normal like": lambda: torch.randn_like(X),
    "whole numbers": lambda: torch.randint(2, 9, (7,)),
    "whole numbers like": lambda: torch.randint_like(X, 9),
    "order": lambda: torch.randperm(9),
    "coins": lambda: torch.bernoulli(X),
    "choice": lambda: torch.multinomial(X, 2),
    "gumbel": lambda: torch.nn.functional.gumbel_softmax(X),
    "poisson": lambda: torch.poisson(X),
    "leaky": lambda: torch.nn.functional.rrelu(-X, training=True),
    "attention": lambda: torch.nn.functional.scaled_dot_product_attention(X[None], X[None], X[None], dropout_p=0.5),
}


@pytest.mark.parametrize("name", list(RANDOM))
def test_draws_are_those_of_the_seed_and_of_nobody_else(name: str) -> None:
    """The bits that the global generator would give after its seed, which is not moved and may be moved by others."""
    with torch.random.fork_rng([]):
        torch.manual_seed(7)
        expected = [RANDOM[name]() for _ in range(2)]
        torch.manual_seed(1)
        state, found, draws = torch.get_rng_state(), [], RngScope(7)
        for _ in range(2):
            with draws:
                found.append(RANDOM[name]())
            assert torch.equal(torch.get_rng_state(), state)
            torch.rand(3)
            state = torch.get_rng_state()
    assert not torch.equal(expected[0], expected[1])
    assert all(map(torch.equal, found, expected))


def test_draws_are_of_one_thread_alone() -> None:
    inside, done, drawn = threading.Event(), threading.Event(), []

    def other() -> None:
        with RngScope(3):
            inside.set()
            done.wait(10)
            drawn.append(torch.rand(2))

    with torch.random.fork_rng([]):
        torch.manual_seed(5)
        expected = torch.rand(2)
        torch.manual_seed(5)
        thread = threading.Thread(target=other)
        thread.start()
        assert inside.wait(10)
        assert torch.equal(torch.rand(2), expected)
        done.set()
        thread.join()
    with RngScope(3):
        assert torch.equal(torch.rand(2), drawn[0])


@pytest.mark.parametrize("options", [{"backbone": "gat", "dropout": 0.5}, {"backbone": "edgecnn"}, {"batch_size": 16}])
def test_the_contract_with_foreign_layers_and_batches(options: dict[str, Any]) -> None:
    """Dropout of weights of edges, the weights of PyG's layers, and the drawing of neighbours."""
    check_method(Vanilla(hidden=8, epochs=3, **options))


def test_layers_outputs_do_not_get_mixed_up() -> None:
    """Two threads in the middle of one PyG backbone: each has the latents of its own graph."""
    task = Task.leave_out(csbm(nodes=60, classes=3, features=4), [0])
    method = Vanilla(backbone="edgecnn", hidden=4, epochs=1).fit(task)
    graphs = [task.graph, task.graph.replace(features=task.graph.features.to_dense().flip(0))]
    alone = [method.outputs(graph).latents for graph in graphs]
    meet = threading.Barrier(2)

    def wait(*_: object) -> None:
        meet.wait(10)

    method.module_.backbone.layers[0].register_forward_hook(wait)
    with ThreadPoolExecutor(2) as pool:
        together = list(pool.map(lambda graph: method.outputs(graph).latents, graphs))
    for found, expected in zip(together, alone, strict=True):
        assert len(found) == 3
        assert all(map(torch.equal, found, expected))


def test_approximate_neighbours_are_searched_by_one_thread_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("credalgnn.methods.neighbours.EXACT_UP_TO", 100)
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(4000, 8, generator=generator)
    queries = [torch.randn(50, 8, generator=generator) + shift for shift in (0.0, 3.0)]
    alone = [NeighbourBank(rows).distance(each, 5) for each in queries]
    shared = NeighbourBank(rows)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda each: shared.distance(each, 5), 6 * queries))
    assert all(map(torch.equal, found, 6 * alone))


def test_the_limit_of_threads_holds_for_all_who_are_inside() -> None:
    """Nobody lifts it for another, and the last one leaves it as it was."""

    def blas() -> set[int]:
        """Of the libraries with one limit for the process; others have one for each thread."""
        return {pool["num_threads"] for pool in threadpool_info() if pool.get("threading_layer") == "pthreads"}

    def inside(_: int) -> set[int]:
        with one_thread():
            time.sleep(0.01)  # so that others come meanwhile
            return blas()

    def limit(threads: int) -> None:
        """From a thread that is gone afterwards: as long as it lives, nobody else may."""
        thread = threading.Thread(target=threadpool_limits, args=(threads,))
        thread.start()
        thread.join()

    if not blas():
        pytest.skip("no such library is loaded")
    limit(2)
    try:
        assert blas() == {2}
        with ThreadPoolExecutor(4) as pool:
            seen = list(pool.map(inside, range(12)))
        assert blas() == {2}
    finally:
        limit(torch.get_num_threads())
    assert seen == [{1}] * 12
