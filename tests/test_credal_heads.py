"""The credal layer beside a classifier, on a frozen model, and on some of the latents."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import references as ref
from credalgnn.graphs import Graph, Task, csbm
from credalgnn.methods import (
    CredalDual,
    CredalFinal,
    CredalFrozen,
    CredalLJ,
    Degree,
    MethodError,
    Vanilla,
    load_method,
)
from credalgnn.methods.inputs import inputs
from credalgnn.nn import CredalHead, SparseMatrix, dro_loss
from credalgnn.runtime.context import Context
from credalgnn.sets import log_interval_softmax
from oracles import brute_lower_entropy, brute_upper_entropy

pytestmark = pytest.mark.filterwarnings("ignore::credalgnn.CredalWarning")
SHORT: dict[str, Any] = {"hidden": 12, "epochs": 8, "patience": 8}
HEAD = {"epochs": 30, "patience": 30}


@cache
def small_task(sparse: bool = False, inductive: bool = False) -> Task:
    graph = csbm(nodes=160, classes=4, degree=6, features=10, signal=1.5, seed=0)
    features = graph.features.clone()
    if sparse:
        features *= torch.rand(features.shape, generator=torch.Generator().manual_seed(0)) < 0.2
    return Task.leave_out(Graph(features, graph.edge_index, graph.labels), [0], name="small", inductive=inductive)


@cache
def small_vanilla(sparse: bool = False, inductive: bool = False) -> Vanilla:
    return Vanilla(**SHORT).fit(small_task(sparse, inductive))


def latents_of(backbone: torch.nn.Module, graph: Graph) -> list[np.ndarray]:
    """[z0 .. zL] of a SAGE's weights, by dense matrices."""
    state = {name: value.detach().numpy() for name, value in backbone.state_dict().items()}
    nothing = np.zeros((1, SHORT["hidden"])), np.zeros(1)
    naive = ref.Network.from_weights("sage", state, *nothing, graph.edge_index.numpy(), graph.num_nodes)
    return naive.latents(graph.features.to_dense().double().numpy())


def check_sets(found: Any, head: CredalHead, z: np.ndarray) -> None:
    """Bounds of a head's weights on these latents, and their entropies by enumeration."""
    low, up = ref.credal_bounds(head.weight.detach().numpy(), head.bias.detach().numpy(), z)
    np.testing.assert_allclose(found.credal.lower.double().numpy(), low, atol=5e-6)
    np.testing.assert_allclose(found.credal.upper.double().numpy(), up, atol=5e-6)
    exact = found.credal.lower.double().numpy(), found.credal.upper.double().numpy()
    total, aleatoric = brute_upper_entropy(*exact), brute_lower_entropy(*exact)
    np.testing.assert_allclose(found.scores["TU"].numpy(), total, atol=1e-6)
    np.testing.assert_allclose(found.scores["AU"].numpy(), aleatoric, atol=1e-6)
    np.testing.assert_allclose(found.scores["EU"].numpy(), total - aleatoric, atol=1e-6)
    assert found.headline == "EU"
    assert (up - low).max() > 0.01


# A classifier and a credal layer


@pytest.mark.parametrize("sparse", [False, True])
def test_dual_equals_the_reference_from_weights(sparse: bool) -> None:
    task = small_task(sparse)
    fitted = CredalDual(**SHORT).fit(task)
    module, result = fitted.module_, fitted.predict()
    z = latents_of(module.backbone, task.graph)
    check_sets(result, module.head.credal, np.concatenate(z, axis=1))
    weight, bias = (value.detach().double().numpy() for value in module.head.classifier.parameters())
    logits = z[-1] @ weight.T + bias
    np.testing.assert_allclose(result.probabilities.numpy(), ref.softmax(logits), atol=1e-5)
    np.testing.assert_allclose(fitted.outputs().logits.numpy(), logits, atol=1e-4)


def test_the_credal_layer_sends_no_gradient_into_the_backbone() -> None:
    """That of the whole loss is the vanilla GNN's, to the bit, and the credal layer has one of its own."""
    task = small_task()
    view = task.training
    gradients = []
    for method in (CredalDual(**SHORT), Vanilla(**SHORT)):
        torch.manual_seed(0)
        module = method._build(view.graph.num_features, view.num_classes)
        output = module(*inputs(view.graph))
        rows = output[view.train] if isinstance(output, torch.Tensor) else tuple(part[view.train] for part in output)
        method._loss(rows, view.graph.labels[view.train]).backward()
        gradients.append({name: value.grad for name, value in module.named_parameters()})
    dual, plain = gradients
    for name, gradient in plain.items():
        assert torch.equal(dual[name.replace("head.", "head.classifier.")], gradient), name
    assert float(dual["head.credal.linear.weight"].abs().max()) > 0.0


def test_dual_classifies_as_a_vanilla_gnn_that_stops_with_it() -> None:
    task = small_task()
    once = {**SHORT, "epochs": 1}
    dual, plain = CredalDual(**once).fit(task), Vanilla(**once).fit(task)
    assert torch.equal(dual.predict().probabilities, plain.predict().probabilities)
    for dual_line, line in zip(
        CredalDual(**SHORT).fit(task).history_, Vanilla(**SHORT).fit(task).history_, strict=True
    ):
        assert dual_line.loss > line.loss  # the DRO loss is in it
        assert dual_line.monitor > line.monitor
    by_f1 = {**SHORT, "monitor": "id_f1"}
    dual, plain = CredalDual(**by_f1).fit(task), Vanilla(**by_f1).fit(task)
    assert [line.monitor for line in dual.history_] == [line.monitor for line in plain.history_]
    assert torch.equal(dual.predict().probabilities, plain.predict().probabilities)


def test_dual_learns_both_losses() -> None:
    """The curve has their sum, of the training nodes and of the validation nodes."""
    task = small_task()
    view = task.training
    fitted = CredalDual(hidden=12, epochs=20, delta=0.6).fit(task)
    best = min(fitted.history_[1:], key=lambda line: line.monitor)
    with torch.no_grad():
        logits, lower, upper = fitted._output_of(task.graph, Context())(torch.arange(160))
    for nodes, expected in ((view.train, best.loss), (view.val, best.monitor)):
        labels = view.graph.labels[nodes]
        p = ref.softmax(logits[nodes].numpy())
        ce = -np.log(p[np.arange(len(p)), labels.numpy()]).mean()
        bounds = [part.double().numpy() for part in log_interval_softmax(lower[nodes], upper[nodes])]
        assert ce + ref.dro_loss(*bounds, labels.numpy(), 0.6).value == pytest.approx(expected, abs=1e-4)
    assert best.loss < fitted.history_[0].loss


# A frozen model


@pytest.mark.parametrize("sparse", [False, True])
def test_frozen_equals_the_reference_from_weights(sparse: bool) -> None:
    task, vanilla = small_task(sparse), small_vanilla(sparse)
    before = {name: value.clone() for name, value in vanilla.module_.state_dict().items()}
    fitted = CredalFrozen(model=vanilla, **HEAD).fit(task)
    assert all(torch.equal(value, before[name]) for name, value in vanilla.module_.state_dict().items())
    result = fitted.predict()
    check_sets(result, fitted.head_, np.concatenate(latents_of(vanilla.module_.backbone, task.graph), axis=1))
    assert torch.equal(result.probabilities, vanilla.predict().probabilities)


@pytest.mark.parametrize("inductive", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
def test_frozen_is_trained_as_written(sparse: bool, inductive: bool) -> None:
    """A loop by hand: Adam on the training nodes' latents, in the graph of training; the best by validation nodes."""
    task = small_task(sparse, inductive)
    view, vanilla = task.training, small_vanilla(sparse, inductive)

    def rows(graph: Graph, nodes: torch.Tensor) -> torch.Tensor:
        latents = vanilla.outputs(graph).latents
        dense = [z.to_dense() if isinstance(z, SparseMatrix) else z for z in latents]
        return torch.cat(dense, dim=1)[nodes]

    train, val = rows(view.graph, view.train), rows(view.val_graph, view.val)
    y, y_val = view.graph.labels[view.train], view.val_graph.labels[view.val]
    fitted = CredalFrozen(model=vanilla, **HEAD).fit(task)
    torch.manual_seed(0)
    head = CredalHead([10, 12, 12], 3, half_length_decay=0.03)
    optimiser = torch.optim.Adam(head.parameters(), lr=0.01, weight_decay=5e-4)
    curve = []
    for epoch in range(31):
        loss = dro_loss(*log_interval_softmax(*head(train)), y, 0.75)
        with torch.no_grad():
            curve.append((epoch, loss.item(), dro_loss(*log_interval_softmax(*head(val)), y_val, 0.75).item()))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    np.testing.assert_allclose(np.array(fitted.history_), np.array(curve), rtol=1e-4, atol=1e-4)
    assert curve[-1][1] < curve[0][1] - 0.05


def test_frozen_stands_on_any_model_with_outputs() -> None:
    task = small_task()
    model = CredalLJ(**SHORT).fit(task)
    result = CredalFrozen(model=model, **HEAD).fit(task).predict()
    np.testing.assert_allclose(result.probabilities.numpy(), ref.softmax(model.outputs().logits.numpy()), atol=1e-6)
    with pytest.raises(MethodError, match="logits and latents"):
        CredalFrozen(model=Degree())


@pytest.mark.parametrize("kind", [CredalDual, CredalFrozen])
def test_a_wide_interval_is_more_uncertain(kind: type) -> None:
    """Midpoints are made 0 and half-lengths to grow with the last latent: the larger it is, the wider the intervals."""
    task = small_task()
    fitted = (kind(**SHORT) if kind is CredalDual else kind(model=small_vanilla(), **HEAD)).fit(task)
    head = fitted.module_.head.credal if kind is CredalDual else fitted.head_
    with torch.no_grad():
        head.weight.zero_()
        head.weight[3:, -SHORT["hidden"] :] = 1.0
        head.bias[:3], head.bias[3:] = 0.0, -4.0
    backbone = fitted.module_.backbone if kind is CredalDual else small_vanilla().module_.backbone
    size = latents_of(backbone, task.graph)[-1].sum(1)
    narrow, wide = int(size.argmin()), int(size.argmax())
    assert size[wide] > size[narrow] + 1.0
    result = fitted.predict()
    assert float(result.score[wide]) > float(result.score[narrow])
    assert float(result.scores["AU"][wide]) < float(result.scores["AU"][narrow])


# Some of the latents


@pytest.mark.parametrize("latents", [[0], [-1], [1, 2], [2, 0], [0, 1, 2]], ids=str)
@pytest.mark.parametrize("sparse", [False, True])
def test_the_layer_reads_the_chosen_latents(latents: list[int], sparse: bool) -> None:
    task = small_task(sparse)
    vanilla = small_vanilla(sparse)
    for fitted in (
        CredalLJ(latents=latents, **SHORT).fit(task),
        CredalDual(latents=latents, **SHORT).fit(task),
        CredalFrozen(latents=latents, model=vanilla, **HEAD).fit(task),
    ):
        backbone = vanilla.module_.backbone if isinstance(fitted, CredalFrozen) else fitted.module_.backbone
        head = fitted.head_ if isinstance(fitted, CredalFrozen) else fitted.module_.head
        z = latents_of(backbone, task.graph)
        check_sets(
            fitted.predict(), getattr(head, "credal", head), np.concatenate([z[k] for k in sorted(latents)], axis=1)
        )


def test_all_and_the_last_are_the_methods_that_have_these_names() -> None:
    task = small_task()
    whole = CredalLJ(**SHORT).fit(task).predict()
    assert torch.equal(CredalLJ(latents=[0, 1, 2], **SHORT).fit(task).predict().score, whole.score)
    last = CredalFinal(**SHORT).fit(task).predict()
    assert torch.equal(CredalLJ(latents=[2], **SHORT).fit(task).predict().score, last.score)
    assert not torch.equal(whole.score, last.score)


def test_only_features_begin_at_zero() -> None:
    """Their block beside others; latents without them, and features alone, begin as drawn."""

    def drawn(latents: list[int]) -> torch.Tensor:
        return CredalHead([4, 3, 2], 2, latents=latents).weight.detach() != 0

    assert drawn([0, 2]).all(0).tolist() == [False] * 4 + [True] * 2
    assert bool(drawn([1, 2]).all())
    assert bool(drawn([0]).all())


def test_chosen_latents_are_saved(tmp_path: Path) -> None:
    task = small_task()
    for number, fitted in enumerate(
        (CredalLJ(latents=(0, -1), **SHORT), CredalFrozen(latents=[1], model=small_vanilla(), **HEAD))
    ):
        fitted.fit(task).save(tmp_path / str(number))
        loaded = load_method(tmp_path / str(number), task)
        assert loaded.get_params(deep=False)["latents"] == list(fitted.latents)
        assert torch.equal(loaded.predict().score, fitted.predict().score)


@pytest.mark.parametrize("wrong", [[], 0, "0", [0.5], [True], ["0"]], ids=str)
@pytest.mark.parametrize("kind", [CredalLJ, CredalDual, CredalFrozen])
def test_latents_that_are_none_are_refused(kind: type, wrong: Any) -> None:
    with pytest.raises(MethodError, match="latents must be"):
        kind(latents=wrong)


@pytest.mark.parametrize(("wrong", "words"), [([3], "latent 3"), ([0, -4], "latent -4"), ([2, -1], "twice")])
def test_latents_that_do_not_exist_are_refused(wrong: list[int], words: str) -> None:
    for method in (CredalLJ(latents=wrong, **SHORT), CredalFrozen(latents=wrong, model=small_vanilla())):
        with pytest.raises(MethodError, match=words):
            method.fit(small_task())
