"""Methods of other papers against naive references, and which way they point."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import references
import references_field as naive
from credalgnn.graphs import Graph, Task, csbm
from credalgnn.methods import GEBM, GPN, GRASP, JLDE, Evidential, Method, MethodError, RandomSet, Vanilla, load_method
from credalgnn.methods.density import fit_projection
from credalgnn.methods.evidential import dissonance
from credalgnn.methods.inputs import inputs, undirected
from credalgnn.methods.large import held_bytes
from credalgnn.methods.random_set import budgeted, class_distances, moebius
from credalgnn.nn import SparseMatrix
from credalgnn.nn.posterior import RadialFlows, dirichlet_divergence, kernel_evidence, squared_risk
from credalgnn.runtime.context import Context
from credalgnn.runtime.threads import Threads

SHORT = {"hidden": 16, "epochs": 15}
WIDTH = {"hidden": 16}


@pytest.fixture(scope="module")
def task() -> Task:
    """A graph with directed edges, a node that nobody points to, and sparse features."""
    graph = csbm(nodes=150, classes=4, features=12, seed=2)
    keep = graph.edge_index[1] != 7
    features = graph.features.to_dense()
    features = torch.where(features.abs() > 1.5, features, 0.0).to_sparse_csr()
    changed = Graph(features, graph.edge_index[:, keep][:, 5:], graph.labels)
    return Task.leave_out(changed, [3], name="field")


@pytest.fixture(scope="module")
def vanilla(task: Task) -> Vanilla:
    return Vanilla(**SHORT).fit(task)


def latents_of(vanilla: Vanilla) -> list[np.ndarray]:
    result = vanilla.outputs().latents
    return [(z.to_dense() if isinstance(z, SparseMatrix) else z).double().numpy() for z in result]


def labels_of(task: Task) -> np.ndarray:
    return task.training.graph.labels[task.split.train].numpy()


# Joint latent density estimation


@pytest.mark.parametrize(("dimensions", "k"), [(3, 1), (8, 5), (40, 10)])
def test_jlde_equals_the_definition(task: Task, vanilla: Vanilla, dimensions: int, k: int) -> None:
    result = JLDE(model=vanilla, dimensions=dimensions, k=k).fit(task).predict().score
    expected = naive.jlde(latents_of(vanilla), task.split.train.numpy(), dimensions, k)
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("layout", ["dense", "sparse", "wide", "wide sparse"])
def test_principal_components_are_those_of_a_full_svd(layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the covariance, and by Lanczos for what is sparse or wide; distances do not depend on signs."""
    if "wide" in layout:
        monkeypatch.setattr("credalgnn.methods.density.EXACT", 10)
    x = torch.randn(60, 30, generator=torch.Generator().manual_seed(0)) * torch.linspace(3, 0.1, 30) + 1.0
    x = torch.where(x.abs() > 0.5, x, 0.0)
    data = SparseMatrix.from_torch(x.to_sparse_csr()) if "sparse" in layout else x
    if "sparse" in layout:
        monkeypatch.setattr(SparseMatrix, "to_dense", lambda self: pytest.fail("made dense"))
    result = fit_projection(data, 5)(data)
    expected = naive.principal_components(x.numpy(), x.numpy(), 5)
    np.testing.assert_allclose(torch.cdist(result, result).numpy(), _distances(expected), atol=1e-5)
    assert torch.equal(result, fit_projection(data, 5)(data))


def _distances(points: np.ndarray) -> np.ndarray:
    return np.array([[np.linalg.norm(a - b) for b in points] for a in points])


def test_jlde_of_latents_that_do_not_vary(task: Task) -> None:
    """Equal features have no principal components; the other layers speak alone."""
    same = fit_projection(torch.ones(10, 4), 3)
    assert same(torch.ones(2, 4)).shape == (2, 0)
    with pytest.raises(MethodError, match="dimensions must be at least 1"):
        JLDE(dimensions=0)


# Graph energy-based model


@pytest.mark.parametrize("aggregation", ["sum", "logsumexp"])
@pytest.mark.parametrize(("weight", "alpha", "steps"), [(1.0, 0.5, 10), (0.0, 0.2, 3), (0.5, 0.9, 0)])
def test_gebm_equals_the_definition(
    task: Task, vanilla: Vanilla, weight: float, alpha: float, steps: int, aggregation: str
) -> None:
    method = GEBM(model=vanilla, weight=weight, alpha=alpha, steps=steps, aggregation=aggregation)  # type: ignore[arg-type]
    result = method.fit(task).predict().score
    logits, edges = vanilla.outputs().logits.double().numpy(), task.graph.edge_index.numpy()
    z, train = latents_of(vanilla)[-1], task.split.train.numpy()
    loops = torch.arange(task.graph.num_nodes).expand(2, -1)
    values = vanilla.outputs(Graph(task.graph.features, loops))
    alone = values.logits.double().numpy(), values.latents[-1].double().numpy()  # type: ignore[union-attr]
    expected = naive.gebm(logits, z, alone, train, labels_of(task), edges, weight, alpha, steps, aggregation)
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-5, atol=1e-5)


def test_gebm_grows_without_bound_far_from_all_data(task: Task, vanilla: Vanilla) -> None:
    """The energy of the logits alone falls there, which is why the Gaussians are needed."""
    moved = task.graph.replace(features=(task.graph.features.to_dense() * 1000.0))
    with pytest.warns(match="outside"):
        strange = {w: GEBM(model=vanilla, weight=w).fit(task).predict(moved).score for w in (0.0, 1.0)}
    usual = {w: GEBM(model=vanilla, weight=w).fit(task).predict().score for w in (0.0, 1.0)}
    assert (strange[1.0] > usual[1.0]).double().mean() > 0.95
    assert (strange[0.0] < usual[0.0]).double().mean() > 0.95


def test_gebm_refuses_what_cannot_work() -> None:
    for wrong in ({"weight": -1.0}, {"alpha": 1.5}, {"steps": -1}, {"aggregation": "max"}, {"temperature": 0.0}):
        with pytest.raises(MethodError, match=next(iter(wrong))):
            GEBM(**wrong)  # type: ignore[arg-type]


# GRASP


@pytest.mark.parametrize(
    ("percentile", "share", "alpha", "steps"),
    [(5.0, 0.5, 0.0, 8), (30.0, 0.2, 0.3, 3), (50.0, 1.0, 0.0, 1), (10.0, 0.0, 0.5, 2)],
)
def test_grasp_equals_the_definition(
    task: Task, vanilla: Vanilla, percentile: float, share: float, alpha: float, steps: int
) -> None:
    method = GRASP(model=vanilla, percentile=percentile, share=share, alpha=alpha, steps=steps).fit(task)
    logits, edges = vanilla.outputs().logits.double().numpy(), task.graph.edge_index.numpy()
    expected = naive.grasp(logits, edges, task.split.train.numpy(), percentile, share, alpha, steps)
    np.testing.assert_allclose(method.predict().score.numpy(), expected, rtol=1e-9)


def test_grasp_knows_its_training_nodes_again_by_their_ids(task: Task, tmp_path: Path) -> None:
    """In another order they are still G; without ids nothing is added, as if there were no G."""
    n = task.graph.num_nodes
    order = torch.randperm(n, generator=torch.Generator().manual_seed(0))
    place = order.argsort()
    x, labels = task.graph.features.to_dense(), task.training.graph.labels
    named = Graph(x, task.graph.edge_index, labels, node_ids=np.arange(n))
    moved = Graph(x[order], place[task.graph.edge_index], labels[order], node_ids=order.numpy())
    parts = {"train": task.training.train, "val": task.training.val}
    method = GRASP(model=Vanilla(**SHORT)).fit(named, **parts)
    expected = method.predict().score
    torch.testing.assert_close(method.predict(moved).score[place], expected, rtol=1e-5, atol=1e-6)
    method.save(tmp_path)
    assert torch.equal(load_method(tmp_path).predict(named).score, expected)
    bare = Graph(moved.features, moved.edge_index, moved.labels)
    without = method.clone().set_params(share=0.0).fit(named, **parts)
    torch.testing.assert_close(method.predict(bare).score[place], without.predict().score, rtol=1e-5, atol=1e-6)


def test_grasp_refuses_what_cannot_work() -> None:
    for wrong in ({"percentile": 60.0}, {"share": 1.5}, {"alpha": -0.1}, {"steps": -1}):
        with pytest.raises(MethodError, match=next(iter(wrong))):
            GRASP(**wrong)  # type: ignore[arg-type]


# Graph posterior network


BRIEF = {"hidden": 16, "epochs": 10, "dimensions": 4, "flows": 3}


def test_gpn_equals_the_definition(task: Task) -> None:
    """Evidence from the trained weights, the score, the probabilities, and the loss."""
    method = GPN(teleport=0.2, steps=4, **BRIEF).fit(task)
    result, train = method.predict(), task.split.train
    weights = {name: tensor.numpy() for name, tensor in method.module_.state_dict().items()}
    labels = task.training.graph.labels[train].numpy()
    x, edges = task.graph.features.to_dense().numpy(), task.graph.edge_index.numpy()
    evidence = naive.gpn_evidence(x, edges, weights, np.bincount(labels), 0.2, 4)
    np.testing.assert_allclose(result.score.numpy(), -np.log(evidence.sum(1)), rtol=1e-4, atol=1e-4)
    alpha = 1 + evidence
    np.testing.assert_allclose(result.probabilities, alpha / alpha.sum(1, keepdims=True), rtol=1e-4)
    loss = method._loss(torch.from_numpy(evidence[train]), torch.from_numpy(labels)).item()
    assert loss == pytest.approx(naive.gpn_loss(alpha[train], labels, 1e-4), rel=1e-9)


def test_flows_are_densities() -> None:
    """They integrate to one, whatever their weights."""
    torch.manual_seed(3)
    flows = RadialFlows(3, 2, 6).double()
    for parameter in flows.parameters():
        torch.nn.init.normal_(parameter, std=1.5)
    line = torch.linspace(-15, 15, 1201, dtype=torch.float64)
    grid = torch.cartesian_prod(line, line)
    with torch.no_grad():
        mass = flows(grid).exp().sum(0) * (line[1] - line[0]) ** 2
    torch.testing.assert_close(mass, torch.ones(3, dtype=torch.float64), rtol=0, atol=5e-3)


def test_gpn_warms_up_its_flows_and_decays_only_its_encoder(task: Task) -> None:
    """A huge weight decay takes the encoder to zero and leaves flows; without warm-up the result is another."""
    method = GPN(weight_decay=1e6, **BRIEF).fit(task)
    state = method.module_.state_dict()
    assert state["head.lin.weight"].abs().max() < 0.3
    assert state["head.flows.centres"].abs().max() > 0.3
    warm, cold = (GPN(warmup=w, **BRIEF).fit(task).predict().score for w in (5, 0))
    assert not torch.equal(warm, cold)


def test_gpn_gives_outputs_that_others_can_stand_on(task: Task) -> None:
    method = GPN(**BRIEF).fit(task)
    outputs = method.outputs()
    torch.testing.assert_close(outputs.logits.softmax(-1), method.predict().probabilities)
    assert GRASP(model=method).fit(task).predict().score.isfinite().all()


def test_gpn_never_works_by_chunks_or_on_batches(task: Task) -> None:
    """A graph that fits, with less memory than all of its latents would take."""
    method = GPN(**BRIEF).fit(task)
    whole, held = method.predict(), held_bytes(task.graph)
    small = method.predict(memory=held)
    assert torch.equal(small.score, whole.score)
    with torch.no_grad():
        helped = method._predictor(task.graph, Context(cluster=Threads()))(whole.nodes)  # threads know no latents
    assert torch.equal(helped.score, whole.score)
    with pytest.raises(MethodError, match="gpn needs the whole graph in memory"):
        GPN(**BRIEF).fit(task, memory=held)


def test_gpn_refuses_what_cannot_work() -> None:
    for wrong in ({"dimensions": 0}, {"flows": -1}, {"teleport": 0.0}, {"warmup": -1}, {"batch_size": 8}):
        with pytest.raises(MethodError, match=next(iter(wrong))):
            GPN(**wrong)  # type: ignore[arg-type]


# Kernel-based Dirichlet evidence


@pytest.mark.parametrize(("bandwidth", "tolerance"), [(0.4, 2e-3), (1.0, 1e-4), (2.0, 1e-4)])
def test_kernel_evidence_equals_a_search_from_each_node(bandwidth: float, tolerance: float) -> None:
    """More labelled nodes of a class than a word has bits, a chain, a node on its own, directed and double edges."""
    graph = csbm(nodes=700, classes=3, features=2, seed=5)
    chain = torch.stack([torch.arange(680, 699), torch.arange(681, 700)])
    keep = (graph.edge_index < 680).all(0)
    edges = torch.cat([graph.edge_index[:, keep][:, ::2], chain[:, :-1]], 1)
    graph = Graph(graph.features, edges, graph.labels)
    train = torch.arange(0, 700, 2)
    labels = graph.labels[train]
    result = kernel_evidence(undirected(graph), train, labels, 3, bandwidth)
    expected = naive.kernel_evidence(edges.numpy(), 700, train.numpy(), labels.numpy(), 3, bandwidth)
    np.testing.assert_allclose(result.numpy(), expected, rtol=0, atol=tolerance)


def test_dirichlet_formulas_equal_their_definitions() -> None:
    draw = np.random.default_rng(0)
    alpha = 1 + np.exp(draw.normal(0, 3, (50, 4)))
    alpha[0], alpha[1, 1:] = 1.0, 1.0  # no evidence at all, and for one class alone
    prior, labels = 1 + np.exp(draw.normal(0, 1, (50, 4))), draw.integers(0, 4, 50)
    data = torch.from_numpy(alpha)
    np.testing.assert_allclose(squared_risk(data, torch.from_numpy(labels)), naive.squared_risk(alpha, labels))
    np.testing.assert_allclose(
        dirichlet_divergence(data, torch.from_numpy(prior)),
        naive.dirichlet_divergence(alpha, prior),
        rtol=1e-8,
        atol=1e-9,
    )
    np.testing.assert_allclose(dissonance(data), naive.dissonance(alpha), atol=1e-12)
    assert float(dissonance(data).min()) >= 0.0
    assert float(dissonance(data).max()) <= 1.0


def test_evidential_is_trained_by_the_sum_of_both_losses(task: Task) -> None:
    """The last line of the training curve is the loss of the weights that are kept."""
    lines: list[float] = []
    method = Evidential(epochs=1, kernel_weight=0.3, **WIDTH)
    method.fit(task, on_epoch=lambda epoch: lines.append(epoch.loss))
    trained = method._output_of(task.graph, Context())(torch.arange(task.graph.num_nodes))
    alpha = method._alpha(trained).detach().numpy()
    train, labels = task.split.train.numpy(), labels_of(task)
    edges, n = task.graph.edge_index.numpy(), task.graph.num_nodes
    prior = 1 + naive.kernel_evidence(edges, n, train, labels, 3, 1.0)
    both = naive.squared_risk(alpha[train], labels).sum() + 0.3 * naive.dirichlet_divergence(alpha, prior).sum()
    assert lines[-1] == pytest.approx(both / len(train), rel=1e-4)
    result = method.predict()
    np.testing.assert_allclose(result.score, 3 / alpha.sum(1), rtol=1e-6)
    np.testing.assert_allclose(result.scores["dissonance"], naive.dissonance(alpha), atol=1e-9)


def test_evidential_learns_what_is_near(task: Task) -> None:
    """With a heavy prior, evidence follows the kernel: nodes with more labels around them are less vacuous."""
    heavy = Evidential(epochs=60, kernel_weight=10.0, backbone="gcn", **WIDTH).fit(task).predict()
    edges, n = task.graph.edge_index.numpy(), task.graph.num_nodes
    near = naive.kernel_evidence(edges, n, task.split.train.numpy(), labels_of(task), 3, 1.0).sum(1)
    assert np.corrcoef(heavy.score.argsort().argsort(), near.argsort().argsort())[0, 1] < -0.3
    batches = Evidential(epochs=2, batch_size=40, **WIDTH).fit(task).predict()
    assert batches.score.isfinite().all()
    for wrong in ({"kernel_weight": -1.0}, {"bandwidth": 0.0}):
        with pytest.raises(MethodError, match=next(iter(wrong))):
            Evidential(**wrong)


# Random sets


def sets_of(family: torch.Tensor) -> list[frozenset[int]]:
    return [frozenset(row.nonzero().flatten().tolist()) for row in family]


@pytest.mark.parametrize("budget", [0, 3, 11, 40, 100])
def test_the_family_are_the_nearest_sets_with_their_subsets(budget: int) -> None:
    draw = torch.rand(6, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    distances = torch.cdist(draw, draw)
    family = sets_of(budgeted(distances, budget))
    assert family[:6] == [frozenset([c]) for c in range(6)]
    assert len(family) == len({*family}) == 6 + min(budget, 2**6 - 6 - 2)
    diameters = [(max(float(distances[a, b]) for a in s for b in s), len(s)) for s in family[6:]]
    assert diameters == naive.set_diameters(distances.numpy(), 6)[:budget]
    for members in family:
        assert all(members - {c} in family for c in members if len(members) > 1)


@pytest.mark.filterwarnings("ignore::credalgnn.CredalWarning")
@pytest.mark.parametrize("budget", [2, 20])
def test_random_set_equals_the_definition(task: Task, budget: int) -> None:
    """Masses by recursion, and all that follows from them; half of the outputs are no belief function."""
    method = RandomSet(budget=budget, **SHORT).fit(task)
    family = sets_of(method.family_)
    nodes = torch.arange(task.graph.num_nodes)
    output = method._output_of(task.graph, Context())(nodes).detach()
    output[::2] += torch.randn(output[::2].shape, generator=torch.Generator().manual_seed(1))
    credal, p = method._credal(output), method._probabilities(output)
    for n, beliefs in enumerate(output.double().sigmoid().tolist()):
        expected = naive.random_set(dict(zip(family, beliefs, strict=True)), 3)
        np.testing.assert_allclose(p[n], expected.pignistic, atol=1e-9)
        np.testing.assert_allclose(credal.lower[n], expected.belief, atol=1e-9)
        np.testing.assert_allclose(credal.upper[n], expected.plausibility, atol=1e-9)
    result = method.predict()
    width = [result.credal.upper[n, c] - result.credal.lower[n, c] for n, c in enumerate(result.classes)]
    torch.testing.assert_close(result.scores["width"], torch.stack(width))
    assert bool(result.credal.contains(result.probabilities).all())


@pytest.mark.filterwarnings("ignore::credalgnn.CredalWarning")
def test_random_set_loss_and_masses(task: Task) -> None:
    """BCE of every set, all classes among them, and a penalty of masses below 0 and of sums that are not 1."""
    method = RandomSet(budget=2, mass_weight=0.7, **SHORT).fit(task)
    family = sets_of(method.family_)
    output = 2.0 * torch.randn(20, len(family), generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    labels = torch.arange(20) % 3
    assert family[-1] == {0, 1, 2}
    bce, negative, off = 0.0, 0.0, 0.0
    for row, label in zip(output.sigmoid().tolist(), labels.tolist(), strict=True):
        bce -= sum(np.log(b if label in s else 1 - b) for s, b in zip(family, row, strict=True)) / len(family)
        mass = naive.masses(dict(zip(family, row, strict=True))).values()
        negative += sum(max(0.0, -m) for m in mass) / len(family)
        off += abs(sum(mass) - 1)
    expected = bce / 20 + 0.7 * (negative / 20 + off / 20)
    assert method._loss(output, labels).item() == pytest.approx(expected, rel=1e-9)
    beliefs = torch.linalg.inv(moebius(method.family_))  # sums of the masses of subsets
    assert torch.equal(beliefs, (method.family_[:, None] >= method.family_[None]).all(-1).double())


def test_class_distances_are_those_of_means(task: Task) -> None:
    x, edges = task.graph.features.to_dense().double().numpy(), task.graph.edge_index.numpy()
    train, labels = task.split.train, torch.from_numpy(labels_of(task))
    both = np.concatenate([x, references.mean_matrix(edges, len(x)) @ x], 1)[train]
    means = np.array([both[labels == c].mean(0) for c in range(3)])
    result = class_distances(*inputs(task.graph), train, labels, 3)
    np.testing.assert_allclose(result, _distances(means), atol=1e-5)


def test_random_set_refuses_what_cannot_work() -> None:
    for wrong in ({"budget": -1}, {"mass_weight": -1.0}):
        with pytest.raises(MethodError, match=next(iter(wrong))):
            RandomSet(**wrong)  # type: ignore[arg-type]


# Orientation


def task_with_ood_nodes(kind: str) -> Task:
    """A class that training never saw, far from all others, or with features that say nothing."""
    graph = csbm(nodes=300, classes=4, features=8, seed=1)
    strange = (graph.labels == 3)[:, None]
    x = graph.features.to_dense()
    x = torch.where(strange, x + 4.0 if kind == "far" else 0.02 * x, x)
    return Task.leave_out(Graph(x, graph.edge_index, graph.labels), [3], name=kind)


@pytest.mark.parametrize(
    ("method", "kind"),
    [
        (JLDE(model=Vanilla(**SHORT)), "far"),
        (GEBM(model=Vanilla(**SHORT)), "far"),
        (GRASP(model=Vanilla(**SHORT)), "faint"),
        (GPN(epochs=40), "far"),
        (Evidential(epochs=40), "faint"),
        (RandomSet(epochs=40), "faint"),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_ood_nodes_score_higher(method: Method, kind: str) -> None:
    task = task_with_ood_nodes(kind)
    result = method.clone().fit(task).predict(nodes=task.test.nodes)
    assert result.score[task.test.is_ood].median() > result.score[~task.test.is_ood].quantile(0.75)
