"""Monte Carlo dropout and DropEdge: passes against naive networks with the same draws, orientation, reproducibility."""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

import references as ref
from credalgnn.graphs import Graph, Task, csbm
from credalgnn.methods import DropEdge, MCDropout, MethodError, Vanilla
from credalgnn.methods.inputs import scratch
from credalgnn.nn import Adjacency
from credalgnn.nn.adjacency import Sample
from credalgnn.nn.backbones import drop_edges

SHORT: dict[str, Any] = {"hidden": 12, "epochs": 8, "patience": 8, "samples": 5}
KINDS = [MCDropout, DropEdge]


@cache
def small_task(sparse: bool = False, weighted: bool = False) -> Task:
    graph = csbm(nodes=160, classes=4, degree=6, features=10, signal=1.0, seed=0)
    features = graph.features.clone()
    generator = torch.Generator().manual_seed(0)
    if sparse:
        features *= torch.rand(features.shape, generator=generator) < 0.2
    weights = torch.rand(graph.num_edges, generator=generator) if weighted else None
    return Task.leave_out(Graph(features, graph.edge_index, graph.labels, edge_weight=weights), [0], name="small")


def generator(fitted: Any, number: int) -> torch.Generator:
    """As the docstring of the package has it: pass m of seed s is drawn with s * samples + m."""
    return torch.Generator().manual_seed(fitted.seed * fitted.samples + number)


def naive(fitted: Any, edges: np.ndarray, nodes: int) -> ref.Network:
    module = fitted.module_
    backbone = module.backbone.backbone if isinstance(fitted, DropEdge) else module.backbone
    state = {name: value.detach().numpy() for name, value in backbone.state_dict().items()}
    head = module.head.weight.detach().numpy(), module.head.bias.detach().numpy()
    return ref.Network.from_weights(fitted.backbone, state, *head, edges, nodes)


def passes(fitted: Any, graph: Graph) -> np.ndarray:
    """Class probabilities of each pass, by dense matrices and loops over layers."""
    x, edges = graph.features.to_dense().double().numpy(), graph.edge_index.numpy()
    result = []
    for number in range(fitted.samples):
        draws = generator(fitted, number)
        if isinstance(fitted, DropEdge):
            retained = torch.rand(graph.num_edges, generator=draws).numpy() >= fitted.edge_dropout
            result.append(ref.softmax(naive(fitted, edges[:, retained], len(x)).logits(x)))
            continue
        network, z = naive(fitted, edges, len(x)), x
        for layer in network.layers:
            a = network.matrix @ z @ layer.through_edges.T + z @ layer.own.T + layer.bias
            retained = torch.rand(a.shape[1], generator=draws).numpy() >= fitted.dropout
            z = np.where(a > 0, a, 0.0) * retained / (1.0 - fitted.dropout)
        result.append(ref.softmax(z @ network.weight.T + network.bias))
    return np.stack(result)


@pytest.mark.parametrize(("backbone", "sparse"), [("sage", False), ("gcn", True)])
@pytest.mark.parametrize("kind", KINDS)
def test_passes_equal_the_reference(kind: type, backbone: str, sparse: bool) -> None:
    task = small_task(sparse)
    fitted = kind(backbone=backbone, seed=3, **SHORT).fit(task)
    members = passes(fitted, task.graph)
    expected, result = ref.decompose(members), fitted.predict()
    np.testing.assert_allclose(result.probabilities.numpy(), members.mean(0), atol=1e-5)
    np.testing.assert_allclose(result.scores["TU"].numpy(), expected.total, atol=1e-5)
    np.testing.assert_allclose(result.scores["AU"].numpy(), expected.aleatoric, atol=1e-5)
    np.testing.assert_allclose(result.scores["EU"].numpy(), expected.epistemic, atol=1e-5)
    assert expected.epistemic.max() > 0.002
    assert result.headline == "EU"
    assert result.credal is None


@pytest.mark.parametrize("kind", KINDS)
def test_training_has_the_noise_too(kind: type) -> None:
    """Its losses are those of no vanilla GNN of the same seed, but before the first step all are the same."""
    task = small_task()
    noisy = kind(**SHORT).fit(task).history_
    plain = Vanilla(hidden=12, epochs=8, patience=8).fit(task).history_
    assert noisy[0].monitor == plain[0].monitor
    assert noisy[1].loss != plain[1].loss


@pytest.mark.parametrize("kind", KINDS)
def test_draws_are_those_of_the_seed(kind: type) -> None:
    """Predicting twice, part of the nodes, and with torch's generator elsewhere: the same; it is not moved either."""
    task = small_task()
    fitted = kind(**SHORT).fit(task)
    whole = fitted.predict()
    torch.manual_seed(5)
    state = torch.random.get_rng_state()
    assert torch.equal(fitted.predict().score, whole.score)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("credalgnn.methods.inputs.IN_MEMORY", 0)  # passes are kept in files
        assert torch.equal(fitted.predict().score, whole.score)
    part = fitted.predict(nodes=torch.tensor([9, 2]))
    torch.testing.assert_close(part.score, whole.score[[9, 2]])
    assert torch.equal(torch.random.get_rng_state(), state)
    assert not torch.equal(kind(**{**SHORT, "samples": 6}).fit(task).predict().score, whole.score)


def loud(kind: type) -> Any:
    """A fitted network all of whose weights are positive: unit k of the last latent speaks for class k mod 3."""
    fitted = kind(**{**SHORT, "samples": 40}).fit(small_task())
    with torch.no_grad():
        for name, parameter in fitted.module_.named_parameters():
            parameter.zero_() if name.endswith("bias") else parameter.abs_()
        for unit in range(12):
            fitted.module_.head.weight[:, unit] = 3.0 * (torch.arange(3) == unit % 3)
    return fitted


@pytest.mark.filterwarnings("ignore::credalgnn.InputWarning")
@pytest.mark.parametrize("memory", ["500MiB", "8GiB"])
def test_passes_that_memory_has_no_room_for_lie_in_a_file(memory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("credalgnn.methods.inputs.SHARE", 1 << 17)  # 4,000 bytes of the smaller budget
    made: list[Any] = []

    def seen(*asked: Any, **options: Any) -> Any:
        made.append(scratch(*asked, **options))
        return made[-1]

    monkeypatch.setattr("credalgnn.methods.ensembles.scratch", seen)
    method = MCDropout(**SHORT).fit(small_task())
    method.predict(memory=memory)
    assert made[0].nbytes == 5 * 160 * 3 * 4
    assert isinstance(made[0], np.memmap) == (memory == "500MiB")


def test_units_that_disagree_make_a_node_uncertain() -> None:
    """A node without features is the same in all passes, whatever is dropped; one with many is not."""
    graph = Graph(torch.stack([torch.zeros(10), torch.ones(10)]), torch.tensor([[0, 1], [0, 1]]))
    result = loud(MCDropout).predict(graph)
    assert float(result.scores["EU"][0]) == pytest.approx(0.0, abs=1e-9)
    assert float(result.scores["AU"][0]) == pytest.approx(np.log2(3), abs=1e-6)
    assert float(result.score[1]) > 0.5


@pytest.mark.filterwarnings("ignore::credalgnn.InputWarning")
def test_neighbours_that_come_and_go_make_a_node_uncertain() -> None:
    """Node 0 is alone, node 1 has a loud neighbour that half of the passes do not see."""
    fitted = loud(DropEdge)
    with torch.no_grad():
        fitted.module_.head.weight[1:] = 0.0  # the louder, the more it says class 0
    graph = Graph(torch.tensor([[0.0] * 10, [0.0] * 10, [1.0] * 10]), torch.tensor([[2], [1]]))
    result = fitted.predict(graph)
    assert float(result.scores["EU"][0]) == pytest.approx(0.0, abs=1e-9)
    assert float(result.scores["AU"][0]) == pytest.approx(np.log2(3), abs=1e-6)
    assert float(result.score[1]) > 0.3


@pytest.mark.parametrize("weighted", [False, True])
def test_edges_that_are_left_are_normalised_anew(weighted: bool) -> None:
    graph = small_task(weighted=weighted).graph
    edges = Adjacency.from_index(graph.edge_index, graph.num_nodes, graph.edge_weight)
    selected = torch.rand(graph.num_edges, generator=torch.Generator().manual_seed(0)) >= 0.4
    results = drop_edges(edges, 0.4, torch.Generator().manual_seed(0))
    assert 0.5 < results.edge_index.shape[1] / graph.num_edges < 0.7
    weights = None if graph.edge_weight is None else graph.edge_weight[selected]
    expected_ = Adjacency.from_index(graph.edge_index[:, selected], graph.num_nodes, weights)
    for name in ("mean", "normalized"):
        assert torch.equal(results.matrix(name).to_dense(), expected_.matrix(name).to_dense())
    if not weighted:
        expected = ref.mean_matrix(graph.edge_index[:, selected].numpy(), graph.num_nodes)
        np.testing.assert_allclose(results.matrix("mean").to_dense().numpy(), expected, atol=1e-6)


def test_edges_of_a_batch_stand_for_those_that_are_left_out() -> None:
    """Over many draws the operator of a batch is what it is without noise."""
    graph = small_task(weighted=True).graph
    whole = Adjacency.from_index(graph.edge_index, graph.num_nodes, graph.edge_weight)
    sample = Sample(whole, torch.arange(graph.num_nodes), torch.ones(graph.num_edges), (graph.num_nodes,))
    batch = Adjacency(graph.in_edges, sample=sample)
    draws = torch.Generator().manual_seed(0)
    mean = sum(drop_edges(batch, 0.3, draws).matrix("mean").to_dense() for _ in range(400)) / 400
    torch.testing.assert_close(mean, whole.matrix("mean").to_dense(), atol=0.08, rtol=0)
    assert float((mean - whole.matrix("mean").to_dense()).mean().abs()) < 1e-4


@pytest.mark.parametrize("operator", ["sum", "looped"])
def test_sums_over_thinned_edges_are_those_of_all_edges_on_average(operator: str) -> None:
    """Whether or not edges were drawn before: the monitor sees the whole, of GIN's sums and of whom GAT attends to."""
    graph = small_task(weighted=True).graph
    whole = Adjacency.from_index(graph.edge_index, graph.num_nodes, graph.edge_weight)
    drawn = Sample(whole, torch.arange(graph.num_nodes), torch.ones(graph.num_edges), (graph.num_nodes,))
    for edges in (whole, Adjacency(graph.in_edges, sample=drawn)):
        draws = torch.Generator().manual_seed(0)
        total = sum(drop_edges(edges, 0.3, draws).matrix(operator).to_dense().sum() for _ in range(200)) / 200
        assert float(total) == pytest.approx(float(whole.matrix(operator).to_dense().sum()), rel=0.01)


@pytest.mark.parametrize("options", [{"batch_size": 32}, {"backbone": "gat"}, {"backbone": "edgecnn"}], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_batches_and_other_backbones(kind: type, options: dict[str, Any]) -> None:
    fitted = kind(**options, **SHORT).fit(small_task())
    result = fitted.predict()
    assert torch.equal(result.score, fitted.predict().score)
    assert float(result.scores["EU"].max()) > 1e-3
    plain = fitted.outputs().latents[-1]
    assert torch.equal(plain, fitted.outputs().latents[-1])  # without noise


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        (MCDropout, {"dropout": 0.0}),
        (MCDropout, {"samples": 1}),
        (DropEdge, {"edge_dropout": 0.0}),
        (DropEdge, {"edge_dropout": 1.0}),
        (DropEdge, {"samples": 0}),
    ],
    ids=str,
)
def test_noise_that_is_none_is_refused(kind: type, wrong: dict[str, Any]) -> None:
    assert next(iter(wrong)) in {field.name for field in fields(kind)}
    with pytest.raises(MethodError, match=next(iter(wrong))):
        kind(**wrong)
