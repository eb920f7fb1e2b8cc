"""Averages of weights: against a loop in NumPy, and what they are for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch

from credalgnn.graphs import csbm
from credalgnn.graphs.edges import Edges
from credalgnn.methods.inputs import inputs_by_rows
from credalgnn.nn import SAGE, Adjacency, Classifier, Monitor, RngScope, Schedule, Supervision, train
from credalgnn.nn.sampling import ALL
from credalgnn.nn.training import Averages, MiniBatch


def test_averages_are_those_of_the_definition() -> None:
    rng = np.random.default_rng(0)
    model = torch.nn.Linear(3, 2)
    averages = Averages(model)
    expected = np.zeros((2, 3))
    for step in range(1, 1500):
        drawn = rng.normal(size=(2, 3))
        model.weight.data = torch.from_numpy(drawn).float()
        averages.add(step)
        share = 9.0 / (8 + step)
        expected = (1 - share) * expected + share * drawn
        if step == 1:
            np.testing.assert_allclose(averages.values[0].numpy(), drawn, rtol=1e-6)
    np.testing.assert_allclose(averages.values[0].numpy(), expected, atol=1e-5)


def test_a_model_has_averages_for_a_while_and_then_its_own_weights() -> None:
    model = torch.nn.Linear(3, 2)
    averages = Averages(model)
    own = model.weight.detach().clone()
    with averages.in_place():
        assert torch.equal(model.weight, own)  # there are none yet
    averages.add(1)
    with torch.no_grad():
        model.weight.fill_(7.0)
    inside: list[torch.Tensor] = []

    def fail() -> None:
        with averages.in_place():
            inside.append(model.weight.detach().clone())
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert torch.equal(inside[0], own)
    assert bool((model.weight == 7.0).all())


def reached(epochs: int, lr: float = 0.05) -> float:
    """The exact training loss that small batches reach at last."""
    graph = csbm(nodes=600, classes=3, features=8, homophily=0.6)
    nodes, labels = torch.arange(600), graph.labels
    x, edges = inputs_by_rows(graph)
    loss = torch.nn.functional.cross_entropy
    draws = RngScope(0)
    with draws:
        model = Classifier(SAGE(8, 8, 1), torch.nn.Linear(8, 3), 1)
    found: list[float] = []
    monitor = Monitor(nodes, lambda output: found.append(loss(output, labels).item()) or found[-1])
    schedule = Schedule(lr, 0.0, epochs, epochs, 20, (ALL,))
    train(model, Supervision(x, edges, nodes, labels), loss, monitor, schedule, draws)
    return float(np.mean(found[-5:]))


def test_batches_come_nearer_to_the_best_loss_with_averages(monkeypatch: pytest.MonkeyPatch) -> None:
    averaged = reached(20)
    monkeypatch.setattr(Averages, "add", lambda self, step: None)
    assert averaged < 0.9 * reached(20)  # 0.137 and 0.168


def test_batches_come_nearer_to_the_best_loss_where_the_learning_rate_falls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("credalgnn.nn.training.PLATEAU", 100)
    falling = reached(40, lr=0.2)
    monkeypatch.setattr("credalgnn.nn.training.PLATEAU", 10**9)
    monkeypatch.setattr("credalgnn.nn.training.PATIENCE_SHARE", 1)
    assert falling < 0.8 * reached(40, lr=0.2)  # 0.151 and 0.233


def test_a_training_that_has_gone_astray_goes_on_from_the_best_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """From where they were judged best, and not from where they are when the learning rate falls."""
    monkeypatch.setattr("credalgnn.nn.training.PLATEAU", 90)
    graph = csbm(nodes=600, classes=3, features=8, homophily=0.6)
    nodes, labels = torch.arange(600), graph.labels
    x, edges = inputs_by_rows(graph)
    loss = torch.nn.functional.cross_entropy
    with RngScope(0) as draws:
        model = Classifier(SAGE(8, 8, 1), torch.nn.Linear(8, 3), 1)
    exact: list[float] = []

    def watched(output: torch.Tensor) -> float:
        exact.append(loss(output, labels).item())
        return exact[-1]

    put = Averages._assign

    def astray(self: Averages, weights: Sequence[torch.Tensor]) -> None:
        if weights is not self.values and len(exact) == 5:  # its own, with which training goes on
            for weight in weights:
                weight.fill_(3.0)
        put(self, weights)

    monkeypatch.setattr(Averages, "_assign", astray)
    schedule = Schedule(0.05, 0.0, 12, 12, 20, (ALL,))
    train(model, Supervision(x, edges, nodes, labels), loss, Monitor(nodes, watched), schedule, draws)
    assert min(exact[5:7]) > 1.5 * min(exact[:5])  # it is far away, for three epochs of thirty batches
    assert exact[8] < 1.1 * min(exact[:5])


@pytest.mark.parametrize(
    ("nodes", "epochs"), [(3, 134), (200, 2), (201, 4), (250, 4), (600, 2), (1000, 2), (100_000, 2)]
)
def test_the_learning_rate_falls_after_400_steps_or_a_few_more(nodes: int, epochs: int) -> None:
    """Batches of one node, counted by hand: passes over the nodes end an epoch, too, so that some are short."""
    x, edges = torch.zeros(nodes, 1), Adjacency(Edges(torch.zeros(nodes + 1, dtype=torch.long), torch.zeros(0).long()))
    model = Classifier(SAGE(1, 1, 1), torch.nn.Linear(1, 2), 1)
    data = Supervision(x, edges, torch.arange(nodes), torch.zeros(nodes, dtype=torch.long))
    monitor = Monitor(torch.arange(1), lambda output: 0.0)
    loss = torch.nn.functional.cross_entropy
    strategy = MiniBatch(model, data, loss, monitor, Schedule(0.01, 0.0, 1, 1000, 1), RngScope(0))
    assert strategy.plateau == epochs


def test_the_learning_rate_falls_before_training_stops() -> None:
    """Eight batches are all training nodes: 400 steps would be as many epochs as the patience has."""
    x, edges = torch.zeros(8, 1), Adjacency(Edges(torch.zeros(9, dtype=torch.long), torch.zeros(0).long()))
    with RngScope(0) as draws:
        model = Classifier(SAGE(1, 1, 1), torch.nn.Linear(1, 2), 1)
    rates: list[float] = []
    optimiser: list[torch.optim.Optimizer] = []
    made = torch.optim.Adam.__init__

    def kept(self: torch.optim.Adam, *args: object, **options: object) -> None:
        made(self, *args, **options)  # type: ignore[arg-type]
        optimiser.append(self)

    data = Supervision(x, edges, torch.arange(8), torch.zeros(8, dtype=torch.long))
    monitor = Monitor(torch.arange(1), lambda output: 0.0)  # never better than in the first epoch
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.optim.Adam, "__init__", kept)
        train(
            model, data, torch.nn.functional.cross_entropy, monitor, Schedule(0.01, 0.0, 300, 50, 1), draws,
            on_epoch=lambda line: rates.append(optimiser[0].param_groups[0]["lr"]),
        )  # fmt: skip
    assert len(rates) == 52  # the untrained weights, the first epoch, and the patience
    assert rates[-1] == pytest.approx(0.01 * 0.3**4)
