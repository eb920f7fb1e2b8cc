"""Mini-batches minimise what full batches do: their gradients add up to that of the whole graph."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from credalgnn.graphs import Task, csbm
from credalgnn.methods import CredalDual, CredalFinal, Evidential, RandomSet, Vanilla
from credalgnn.methods.inputs import inputs, inputs_by_rows
from credalgnn.methods.network import Network
from credalgnn.methods.training_data import training_data
from credalgnn.nn import Monitor, RngScope, Schedule
from credalgnn.nn.sampling import ALL
from credalgnn.nn.training import MiniBatch, at


class Processes:
    """Two processes that work one after the other: of each gradient, its share in the mean."""

    size = 2

    def __init__(self, rank: int) -> None:
        self.rank = rank

    def average(self, gradients: Any, share: float, meanwhile: Any) -> None:
        for gradient in gradients:
            gradient *= share

    def gather(self, parts: Any) -> Any:
        return [parts, parts]


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    "method",
    [
        Vanilla(hidden=12),
        CredalFinal(hidden=12, delta=1.0),  # the hardest nodes of a batch are not those of all
        CredalDual(hidden=12, delta=1.0),
        Evidential(hidden=12, kernel_weight=0.3),
        RandomSet(hidden=12, mass_weight=0.3),
    ],
    ids=lambda method: str(method.name),
)
def test_mini_batches_train_what_full_batches_train(method: Network, workers: int) -> None:
    """With all neighbours, the gradients of a pass, each weighted by its share of the nodes, are that of the whole."""
    task = Task.leave_out(csbm(nodes=400, classes=4, degree=9, features=14, seed=1), [0], name="batches")
    if isinstance(method, RandomSet):  # which has a family of sets by then
        method.fit(task)
    training = training_data(task, None, None, None, "sealed")
    draws = RngScope(0)
    with draws:
        module = method._build(task.graph.num_features, 3)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, 0.0, 0.2, generator=torch.Generator().manual_seed(1))

    def gradient() -> list[torch.Tensor]:
        found = [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in module.parameters()]
        module.zero_grad()
        return found

    whole = method._supervision(training, *inputs(training.view.graph))
    method._training_loss(at(module(whole.x, whole.edges), whole.nodes), whole.labels).backward()
    expected = gradient()
    rows = method._supervision(training, *inputs_by_rows(training.view.graph))
    schedule = Schedule(0.01, 0.0, 1, 1, batch_size=33, fanouts=(ALL, ALL))
    count, total = len(rows.nodes), [torch.zeros_like(each) for each in expected]
    for rank in range(workers):
        group = None if workers == 1 else Processes(rank)
        monitor = Monitor(rows.nodes, lambda _: 0.0)
        strategy = MiniBatch(module, rows, method._training_loss, monitor, schedule, draws, group)
        for number, loss in enumerate(strategy.losses()):
            loss.backward()
            strategy.average_gradients()
            share = min(33, count - 33 * number) / count
            total = [one + share * other for one, other in zip(total, gradient(), strict=True)]
    largest = max(float(each.abs().max()) for each in expected)
    assert count % 33  # the last batch is smaller
    for ours, theirs in zip(total, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0.0, atol=1e-4 * largest)  # sums in another order
