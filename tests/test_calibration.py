"""Calibration nodes: dealt fairly, never learnt from, known again, and counted as a naive reference counts."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import ParameterGrid
from torch import Tensor

import credalgnn as cg
from credalgnn.graphs import GraphError, stratified_split
from credalgnn.methods import Method, MethodError, Prediction, load_method
from credalgnn.methods.calibration import KnownNodes, calibration_nodes_for, numbers_of
from own_graphs import CLASSES, graph_of

EPOCHS = 15
pytestmark = pytest.mark.filterwarnings("ignore::credalgnn.CredalWarning")  # sets of so short a training say little


def make(name: str) -> Method:
    """A method, not fitted, that trains for a moment."""
    return {
        "vanilla": cg.Vanilla(epochs=EPOCHS),
        "credal-lj": cg.CredalLJ(epochs=EPOCHS),
        "credal-coverage": cg.CredalCoverage(model=cg.Vanilla(epochs=EPOCHS)),
        "energy": cg.Energy(model=cg.Vanilla(epochs=EPOCHS)),
        "degree": cg.Degree(),
    }[name]


@pytest.fixture(scope="module")
def vanilla() -> Prediction:
    return make("vanilla").fit(graph_of()).predict()


@pytest.fixture(scope="module")
def covered(tmp_path_factory: pytest.TempPathFactory) -> tuple[cg.CredalCoverage, Path]:
    """Fitted on a graph with ids, and saved."""
    graph = graph_of(ids=[f"n{node}" for node in range(300)])
    method = make("credal-coverage").fit(graph)
    folder = tmp_path_factory.mktemp("covered")
    method.save(folder)
    return method, folder


# ---- who is dealt to which part


def test_a_deal_is_stratified_and_takes_every_labelled_node_once() -> None:
    labels = torch.tensor([0] * 500 + [1] * 100 + [2] * 20 + [-1] * 50)
    parts = stratified_split(labels, {}, seed=3)
    every = torch.cat(list(parts.values()))
    assert sorted(every.tolist()) == list(range(620))
    for name, share in (("train", 0.6), ("val", 0.2), ("calibration", 0.2)):
        counts = torch.bincount(labels[parts[name]], minlength=3)
        assert (counts - share * torch.tensor([500, 100, 20])).abs().max() <= 3, (name, counts)


def test_every_node_has_the_same_chance_to_calibrate() -> None:
    labels = torch.tensor([0] * 7 + [1] * 5 + [-1] * 2 + [2] * 11)
    rounds = 4000
    hits = torch.zeros(len(labels))
    for seed in range(rounds):
        hits[stratified_split(labels, {}, seed)["calibration"]] += 1
    error = (0.2 * 0.8 / rounds) ** 0.5
    known = labels >= 0
    assert (hits[known] / rounds - 0.2).abs().max() < 5 * error
    assert not hits[~known].any()


def test_given_parts_stay_and_the_rest_is_shared_in_proportion() -> None:
    labels = torch.arange(400) % 4
    given = {"val": torch.arange(0, 40), "test": torch.arange(40, 80)}
    parts = stratified_split(labels, given, 0)
    assert parts["val"] is given["val"]
    assert parts["test"] is given["test"]
    assert sorted(torch.cat([parts["train"], parts["calibration"]]).tolist()) == list(range(80, 400))
    assert abs(len(parts["train"]) - 240) <= 2  # 0.6 of 0.8
    whole = {**parts, "val": given["val"]}
    assert stratified_split(labels, whole, 5) == whole  # nothing left to deal


def test_a_class_of_one_node_is_trained_on() -> None:
    labels = torch.tensor([0] * 30 + [1])
    for seed in range(40):
        assert 30 in stratified_split(labels, {}, seed)["train"]


def test_fit_without_masks_deals_and_says_of_whom() -> None:
    graph = graph_of()
    method = make("vanilla").fit(graph)
    assert method.calibration_ is not None
    held, expected = method.calibration_.known.nodes, stratified_split(graph.labels, {}, 0)
    assert torch.equal(held, expected["calibration"])
    assert torch.equal(method.predict().train_nodes, expected["train"])
    with_two = make("vanilla").fit(graph, train=expected["train"], val=expected["val"])
    assert with_two.calibration_ is None  # the other labels may be meant for something else


def test_what_breaks_the_promise_is_refused() -> None:
    graph = graph_of()
    parts = stratified_split(graph.labels, {}, 0)
    masks = {name: torch.zeros(300, dtype=torch.bool).index_fill(0, nodes, True) for name, nodes in parts.items()}
    make("vanilla").fit(graph, **masks)  # masks and numbers do alike
    for name in ("train", "val"):
        both = {**parts, "calibration": torch.cat([parts["calibration"], parts[name][:1]])}
        with pytest.raises(MethodError, match=f"node {int(parts[name][0])} is in both calibration and {name}"):
            make("vanilla").fit(graph, **both)
    unlabelled = (graph.labels < 0).nonzero().squeeze(-1)[:1]
    with pytest.raises(MethodError, match=f"node {int(unlabelled)} is in calibration but has no label"):
        make("vanilla").fit(graph, **{**parts, "calibration": unlabelled})
    task = cg.Task.leave_out(graph_of(share=1.0), [2])
    with pytest.raises(MethodError, match="a task has its own split"):
        make("vanilla").fit(task, calibration=parts["calibration"])
    with pytest.raises(MethodError, match="no labels"):
        make("vanilla").fit(graph.replace(labels=torch.full((300,), -1)))


# ---- p-values, flags, sets


def naive_p(calibration: Tensor, scores: Tensor) -> list[float]:
    return [(1 + sum(c >= s for c in calibration.tolist())) / (1 + len(calibration)) for s in scores.tolist()]


@pytest.mark.parametrize("name", ["vanilla", "credal-lj", "degree"])
def test_p_values_count_calibration_nodes_that_are_as_strange(name: str) -> None:
    method = make(name).fit(graph_of(seed=4))
    prediction = method.predict()
    assert method.calibration_ is not None
    assert prediction.calibration is not None
    scores = prediction.score[method.calibration_.known.nodes]
    assert torch.equal(prediction.calibration.scores, scores)
    assert prediction.calibration.alike
    assert prediction.p_values.tolist() == naive_p(scores, prediction.score)
    for rate in (0.05, 0.1, 0.2):
        expected = [p <= rate for p in naive_p(scores, prediction.score)]
        assert prediction.flag_unfamiliar(false_alarms=rate).tolist() == expected


def test_flags_by_class_compare_nodes_of_one_predicted_class(vanilla: Prediction) -> None:
    calibration = vanilla.calibration
    assert calibration is not None
    assert calibration.classes is not None
    flagged = vanilla.flag_unfamiliar(0.2, by_class=True)
    for row, (score, predicted) in enumerate(zip(vanilla.score, vanilla.classes, strict=True)):
        (p,) = naive_p(calibration.scores[calibration.classes == predicted], score[None])
        assert bool(flagged[row]) == (p <= 0.2)


def test_fdr_is_benjamini_and_hochberg(covered: tuple[cg.CredalCoverage, Path]) -> None:
    prediction = covered[0].predict()
    p = prediction.p_values.tolist()
    ordered = sorted(p)
    passing = [k for k in range(1, len(p) + 1) if ordered[k - 1] <= 0.3 * k / len(p) * (1 + 1e-12)]
    expected = [value <= ordered[passing[-1] - 1] for value in p] if passing else [False] * len(p)
    assert prediction.flag_unfamiliar(fdr=0.3).tolist() == expected
    assert any(expected)


def test_sets_keep_what_fits_as_well_as_calibration_nodes_true_classes(vanilla: Prediction) -> None:
    graph = graph_of()
    calibration = vanilla.calibration
    assert calibration is not None
    held = stratified_split(graph.labels, {}, 0)["calibration"]
    misfit = vanilla.nonconformity()
    true = sorted(misfit[held].gather(1, graph.labels[held][:, None]).squeeze(1).tolist())
    assert sorted(calibration.nonconformity.tolist()) == true
    for coverage in (0.5, 0.8, 0.9):
        rank = int(np.ceil((len(true) + 1) * coverage - 1e-9))
        kept = misfit <= true[rank - 1]
        kept[torch.arange(300), vanilla.classes] = True
        assert torch.equal(vanilla.sets(coverage), kept)
    hits = vanilla.sets(0.9)[held].gather(1, graph.labels[held][:, None])
    assert hits.double().mean() >= 0.9  # at least as many of these nodes themselves


def test_wider_credal_sets_keep_more_classes(covered: tuple[cg.CredalCoverage, Path]) -> None:
    prediction = covered[0].predict()
    sizes, widths = prediction.sets(0.9).sum(-1), (prediction.credal.upper - prediction.credal.lower).max(-1).values
    assert sizes[widths > 0.9].double().mean() > sizes[widths < 0.2].double().mean() + 1


def test_what_cannot_be_promised_is_refused_in_a_line(vanilla: Prediction) -> None:
    count = len(vanilla.calibration.scores)
    for call, words in (
        (lambda: vanilla.flag_unfamiliar(), "give one rate"),
        (lambda: vanilla.flag_unfamiliar(0.05, fdr=0.1), "give one rate"),
        (lambda: vanilla.flag_unfamiliar(fdr=0.1, by_class=True), "by_class goes with false_alarms"),
        (lambda: vanilla.flag_unfamiliar(0.0), "between 0 and 1, not 0.0"),
        (lambda: vanilla.flag_unfamiliar(1.0), "between 0 and 1"),
        (lambda: vanilla.flag_unfamiliar(-0.1), "between 0 and 1"),
        (lambda: vanilla.flag_unfamiliar(float("nan")), "between 0 and 1, not nan"),
        (lambda: vanilla.flag_unfamiliar(0.001), f"needs 999 calibration nodes; {count} are available"),
        (lambda: vanilla.flag_unfamiliar(fdr=0.001), f"needs 999 calibration nodes; {count} are available"),
        (lambda: vanilla.sets(0.999), f"coverage=0.999 needs 999 calibration nodes; {count} are available"),
        (lambda: vanilla.sets(1.0), "coverage must be between 0 and 1"),
        (lambda: make("degree").fit(graph_of()).predict().sets(0.5), "predicts no classes"),
        (lambda: make("degree").fit(graph_of()).predict().flag_unfamiliar(0.2, by_class=True), "predicts no classes"),
        (lambda: replace(vanilla, calibration=None).flag_unfamiliar(0.1), "needs calibration nodes"),
        (lambda: replace(vanilla, calibration=None).p_values, "needs calibration nodes"),
        (lambda: replace(vanilla, calibration=None).sets(), "needs calibration nodes"),
    ):
        with pytest.raises(MethodError) as caught:
            call()
        assert words in str(caught.value)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("count", [1, 7, 8, 9, 19, 41, 99, 1234])
def test_the_rate_that_a_refusal_names_is_one_that_can_be_promised(vanilla: Prediction, count: int) -> None:
    calibration = replace(vanilla.calibration, scores=torch.rand(count), nonconformity=torch.rand(count))
    small = replace(vanilla, calibration=calibration)
    for ask, name in ((small.flag_unfamiliar, "least"), (small.sets, "most")):
        with pytest.raises(MethodError) as caught:
            ask(1e-6 if name == "least" else 1.0 - 1e-6)
        rate = float(str(caught.value).rpartition(f"at {name} ")[2])
        ask(rate)
        with pytest.raises(MethodError):
            ask(rate * 0.8 if name == "least" else 1.0 - 0.8 * (1.0 - rate))


def test_how_many_calibration_nodes_a_promise_needs() -> None:
    for coverage, wanted in ((0.8, 4), (0.9, 9), (0.95, 19), (0.99, 99)):
        assert calibration_nodes_for(coverage=coverage) == wanted
    for rate, wanted in ((0.2, 4), (0.1, 9), (0.05, 19), (0.01, 99)):
        assert calibration_nodes_for(false_alarms=rate) == wanted
        assert calibration_nodes_for(false_alarms=rate, coverage=0.9) == max(wanted, 9)


# ---- nothing is learnt from calibration nodes


@pytest.mark.parametrize("name", ["vanilla", "credal-lj", "energy", "credal-coverage"])
def test_labels_of_calibration_nodes_change_no_score(name: str) -> None:
    graph = graph_of(seed=2)
    parts = stratified_split(graph.labels, {}, 0)
    held = parts["calibration"]
    labels = graph.labels.clone()
    labels[held] = (labels[held] + 1) % 3
    first = make(name).fit(graph, **parts)
    second = make(name).fit(graph.replace(labels=labels), **parts)
    for one, other in ((first.predict(), second.predict()), (first.predict(graph), second.predict(graph))):
        for score in one.scores:
            assert torch.equal(one.scores[score], other.scores[score])
        assert torch.equal(one.probabilities, other.probabilities)
        assert torch.equal(one.p_values, other.p_values)
        assert not torch.equal(one.calibration.nonconformity, other.calibration.nonconformity)  # labels do count here
    assert torch.equal(first.calibration_.fitted.scores, second.calibration_.fitted.scores)


# ---- the same nodes, in other graphs


def grown(graph: cg.Graph, count: int, seed: int) -> cg.Graph:
    """The graph with new nodes behind its own, each with two edges to old ones."""
    random = np.random.default_rng(seed)
    new = torch.from_numpy(random.normal(size=(count, 4)) + 2.0 * np.eye(4)[random.integers(0, 3, count)]).float()
    numbers = torch.arange(graph.num_nodes, graph.num_nodes + count)
    ends = torch.from_numpy(random.integers(0, graph.num_nodes, 2 * count))
    edges = torch.cat([graph.edge_index, torch.stack([numbers.repeat(2), ends])], 1)
    ids = None if graph.node_ids is None else [*graph.node_ids.tolist(), *(f"new{k}" for k in range(count))]
    labels = torch.cat([graph.labels, torch.full((count,), -1)])
    return cg.Graph(torch.cat([graph.features, new]), edges, labels, None if ids is None else np.array(ids), CLASSES)


def test_a_grown_graph_judges_its_calibration_nodes_anew(covered: tuple[cg.CredalCoverage, Path]) -> None:
    method, folder = covered
    graph = grown(method.graph_, 40, 5)
    order = torch.randperm(340, generator=torch.Generator().manual_seed(0))
    back = order.argsort()
    shuffled = cg.Graph(
        graph.features[order], back[graph.edge_index], graph.labels[order], graph.node_ids[order.numpy()], CLASSES
    )
    for other, place in ((graph, torch.arange(340)), (shuffled, back)):
        prediction = load_method(folder).predict(other)
        assert prediction.calibration.alike
        rows = place[method.calibration_.known.nodes]
        assert torch.equal(prediction.calibration.scores, prediction.score[rows])
        assert not torch.equal(prediction.calibration.scores, method.calibration_.fitted.scores)


def test_a_graph_without_them_is_compared_with_what_fit_stored(covered: tuple[cg.CredalCoverage, Path]) -> None:
    method, _ = covered
    others = graph_of(seed=9, ids=[f"other{node}" for node in range(300)])
    for graph in (others, graph_of(seed=9), cg.Graph(others.features, others.edge_index, others.labels)):
        prediction = method.predict(graph)
        assert not prediction.calibration.alike
        assert torch.equal(prediction.calibration.scores, method.calibration_.fitted.scores)
        assert prediction.p_values.tolist() == naive_p(method.calibration_.fitted.scores, prediction.score)


def test_a_graph_that_lacks_one_of_them_does_not_judge_the_others() -> None:
    graph = graph_of(ids=range(300))
    method = make("vanilla").fit(graph)
    gone = int(method.calibration_.known.nodes[0])
    ids = graph.node_ids.copy()
    ids[gone] = 9999
    features = graph.features.clone()
    features[gone, 0] += 0.1  # another node, and so another graph
    renamed = cg.Graph(features, graph.edge_index, graph.labels, ids, CLASSES)
    assert not method.predict(renamed).calibration.alike


def test_nodes_are_known_again_by_id_whatever_their_type() -> None:
    for ids in (np.arange(300) * 7 - 50, np.array([f"ä{k}" for k in range(300)])):
        graph = graph_of(ids=ids)
        known = KnownNodes.of(graph, torch.tensor([3, 200, 7]))
        rows = np.array([200, 7, 12])
        part = cg.Graph(graph.features[rows], torch.tensor([[0, 1], [1, 2]]), None, ids[rows])
        assert known.numbers_in(part).tolist() == [-1, 0, 1]
        assert known.numbers_in(graph).tolist() == [3, 200, 7]


def test_numbers_are_known_again_where_they_are_texts() -> None:
    """As ids of a table become where one of them is none, or is spelled otherwise than numbers are."""
    numbers = [0, -5, 2**63 - 1, -(2**63), 7, 10**17]
    texts = ["7", "0", f"{2**63 - 1}", f"{-(2**63)}", "-5", f"{10**17}", "007", "+7", "-0", f"{2**63}", "\u0667", "n7"]

    def graph(ids: list[Any]) -> cg.Graph:
        return cg.Graph(torch.eye(len(ids)), torch.tensor([[0], [1]]), None, ids)

    known = KnownNodes.of(graph(numbers), torch.arange(6))
    assert known.numbers_in(graph(texts)).tolist() == [1, 4, 2, 3, 0, 5]
    named = KnownNodes.of(graph(texts), torch.arange(12))
    assert named.numbers_in(graph(numbers)).tolist() == [4, 0, 2, 3, 1, 5, *[-1] * 6]
    assert len(named.codes.unique()) == 12


def test_ids_of_a_packed_graph_are_looked_up_without_being_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python's memory while nodes are known again, and while they are asked for, is that of a few of the ids."""
    monkeypatch.setattr("credalgnn.methods.calibration.CHUNK", 500)
    count, few = 60_000, torch.tensor([59_999, 3, 40_000])
    ids = np.array([f"a rather long name, number {k}" for k in range(count)])
    packed = cg.Graph(torch.arange(count)[:, None], torch.tensor([[0], [1]]), None, ids).pack(tmp_path / "graph.cg")
    turned = cg.Graph(torch.ones(count, 1), torch.tensor([[0], [1]]), None, ids[::-1]).pack(tmp_path / "turned.cg")
    packed.content, turned.content  # noqa: B018
    tracemalloc.start()
    known = KnownNodes.of(packed, few)
    found = known.numbers_in(turned)
    named = numbers_of(turned, ids[few.numpy()])
    digests = packed.ids_digest, turned.ids_digest
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found.tolist() == named.tolist() == [0, 59_996, 19_999]
    assert digests[0] != digests[1]
    assert peak < 400_000 < ids.nbytes / 10


def test_a_hash_of_ids_tells_them_apart_and_is_made_once() -> None:
    ids = np.arange(300)
    graph = graph_of(ids=ids)
    assert graph.ids_digest == graph_of(ids=ids, seed=1).ids_digest
    others = (graph_of(), graph.replace(node_ids=ids[::-1]), graph.replace(node_ids=[f"n{k}" for k in range(300)]))
    assert len({graph.ids_digest, *(other.ids_digest for other in others)}) == 4
    ids_read = graph.node_ids
    graph._set(node_ids=None)  # it is not looked at again
    assert graph.ids_digest == graph_of(ids=ids_read).ids_digest


# ---- predict(ids=)


def test_nodes_are_asked_for_by_id() -> None:
    texts, numbers = [f"n{node}" for node in range(300)], [node * 3 for node in range(300)]
    for ids in (texts, numbers):
        graph = graph_of(ids=ids)
        method = make("vanilla").fit(graph)
        whole, asked = method.predict(), method.predict(ids=[ids[7], ids[2], ids[7]])
        assert asked.nodes.tolist() == [7, 2, 7]
        assert asked.node_ids.tolist() == [ids[7], ids[2], ids[7]]
        assert torch.equal(asked.score, whole.score[[7, 2, 7]])
        assert asked.to_table()["id"].to_pylist() == [ids[7], ids[2], ids[7]]


def test_ids_that_are_none_are_refused() -> None:
    named, numbered = graph_of(ids=[f"n{node}" for node in range(300)]), graph_of(ids=range(300))
    method = make("vanilla").fit(named)
    for graph, ids, words in (
        (named, ["zzz"], "there is no node zzz"),
        (named, [7], "those of the graph text"),
        (named, [], "at least one"),
        (named, [["n1"]], "must be a list"),
        (numbered, ["7"], "those of the graph whole numbers"),
        (numbered, [1.0], "those of the graph whole numbers"),
        (numbered, [True], "those of the graph whole numbers"),
        (numbered, [300], "there is no node 300"),
        (numbered, [-1], "there is no node -1"),
        (graph_of(), [1], "have no ids"),
    ):
        with pytest.raises(MethodError, match=words):
            method.predict(graph, ids=ids)
    with pytest.raises(MethodError, match="not by both"):
        method.predict(named, torch.tensor([1]), ids=["n1"])
    assert numbers_of(numbered, np.array([5, 3], dtype=np.uint8)).tolist() == [5, 3]


def test_large_ids_are_compared_as_whole_numbers() -> None:
    """As floats 2^60 and the numbers behind it are the same."""
    large = graph_of(ids=[2**60 + node for node in range(300)])
    assert numbers_of(large, np.array([2**60 + 7, 2**60 + 2], dtype=np.uint64)).tolist() == [7, 2]
    with pytest.raises(GraphError, match=f"there is no node {2**63 + 5}"):
        numbers_of(large, np.array([2**60, 2**63 + 5], dtype=np.uint64))


# ---- kept, and copied


@pytest.mark.parametrize("name", ["vanilla", "energy", "degree"])
def test_saving_keeps_calibration_to_the_bit(name: str, tmp_path: Path) -> None:
    method = make(name).fit(graph_of(ids=[f"n{node}" for node in range(300)]))
    method.save(tmp_path)
    first, second = method.calibration_.state(), load_method(tmp_path).calibration_.state()
    assert first.keys() == second.keys()
    for key, tensor in first.items():
        assert tensor.dtype == second[key].dtype, key
        assert torch.equal(tensor, second[key]), key


def test_scikit_learn_clones_parameters_and_nothing_fitted(covered: tuple[cg.CredalCoverage, Path]) -> None:
    method = covered[0]
    copy = clone(method)
    assert {**copy.get_params(deep=False), "model": 0} == {**method.get_params(deep=False), "model": 0}
    assert copy.get_params()["model__epochs"] == EPOCHS
    assert not copy.is_fitted
    assert copy.calibration_ is None
    assert method.calibration_ is not None
    assert method.predict().calibration.alike
    vanilla = make("vanilla").fit(graph_of())
    again = clone(vanilla).fit(graph_of())
    assert torch.equal(again.calibration_.fitted.scores, vanilla.calibration_.fitted.scores)


def test_a_search_by_id_nodes_leaves_calibration_alone() -> None:
    graph = graph_of()
    parts = stratified_split(graph.labels, {}, 0)
    truth = graph.labels[parts["val"]]
    losses = {}
    for point in ParameterGrid({"hidden": [8, 32], "lr": [0.001, 0.05]}):
        method = clone(cg.Vanilla(epochs=EPOCHS)).set_params(**point).fit(graph, train=parts["train"], val=parts["val"])
        probabilities = method.predict(nodes=parts["val"]).probabilities
        losses[tuple(point.values())] = float(-probabilities.gather(1, truth[:, None]).log().mean())
    best = dict(zip(("hidden", "lr"), min(losses, key=losses.__getitem__), strict=True))
    assert best["lr"] == 0.05  # 15 epochs of 0.001 learn next to nothing
    final = cg.Vanilla(epochs=EPOCHS, **best).fit(graph, **parts)
    assert final.predict().flag_unfamiliar(0.1).any()


# ---- tables of predictions


def test_the_table_of_a_credal_method(covered: tuple[cg.CredalCoverage, Path]) -> None:
    prediction = covered[0].predict()
    table = prediction.to_table(0.1, 0.8)
    names = [f"{side}_{name}" for side in ("lower", "upper") for name in CLASSES]
    assert table.column_names == ["id", "class", "probability", *names, "EU", "AU", "TU", "coverage", "p_value",
                                  "unfamiliar", "classes", "reasons"]  # fmt: skip
    kinds = Counter(str(kind) for kind in table.schema.types)
    assert kinds == {"string": 4, "double": 12, "bool": 1}
    assert table.schema.metadata == {
        b"credalgnn.schema": b"1",
        b"credalgnn.class_names": b'["a", "b", "c"]',
        b"credalgnn.false_alarms": b"0.1",
        b"credalgnn.coverage": b"0.8",
    }
    kept = prediction.sets(0.8)
    for row in table.slice(0, 40).to_pylist():
        node = int(row["id"][1:])
        probabilities = dict(zip(CLASSES, prediction.probabilities[node].tolist(), strict=True))
        assert row["class"] == max(probabilities, key=probabilities.__getitem__)
        assert row["probability"] == max(probabilities.values())
        assert 0.0 <= row["coverage"] <= 1.0
        assert row["lower_b"] <= probabilities["b"] + 1e-9
        assert probabilities["b"] <= row["upper_b"] + 1e-9
        chosen = row["classes"].split("|")
        assert {CLASSES.index(name) for name in chosen} == set(kept[node].nonzero().squeeze(-1).tolist())
        assert chosen == sorted(chosen, key=lambda name: -probabilities[name])
    flagged = [row for row in table.to_pylist() if row["unfamiliar"]]
    assert flagged
    assert all(row["reasons"] and row["p_value"] <= 0.1 for row in flagged)
    assert all(row["reasons"] == "" for row in table.to_pylist() if not row["unfamiliar"])
    assert set(prediction.to_table(reasons=False).column_names) == set(table.column_names) - {"reasons"}


def test_tables_of_other_methods() -> None:
    graph = graph_of()
    columns = {
        "degree": ["id", "score", "p_value", "unfamiliar", "reasons"],
        "vanilla": ["id", "class", "probability", "p_a", "p_b", "p_c", "msp", "entropy", "p_value", "unfamiliar",
                    "classes", "reasons"],
    }  # fmt: skip
    for name, expected in columns.items():
        method = make(name).fit(graph)
        table = method.predict().to_table()
        assert table.column_names == expected
        assert table["id"].to_pylist() == list(range(300))  # the graph has no ids
        assert set(table["reasons"].to_pylist()) == {""}  # neither says why
        bare = method.predict().to_table(None, None, reasons=False)
        assert bare.column_names == [
            column for column in expected if column not in ("unfamiliar", "classes", "reasons")
        ]
        assert b"credalgnn.false_alarms" not in bare.schema.metadata
        parts = stratified_split(graph.labels, {}, 0)
        alone = make(name).fit(graph, train=parts["train"], val=parts["val"]).predict().to_table()
        assert not {"p_value", "unfamiliar", "classes"} & set(alone.column_names)


def test_class_names_that_a_table_cannot_hold_are_refused() -> None:
    graph = graph_of()
    for names, credal, words in (
        (("a|b", "b", "c"), False, "separator of classes"),
        (("value", "b", "c"), False, "p_value"),
        (("a|b", "b", "c"), True, "separator of classes"),
    ):
        method = make("credal-lj" if credal else "vanilla").fit(graph.replace(class_names=names))
        with pytest.raises(MethodError, match=words):
            method.predict().to_table()
    odd = ("value", 'a,"b"', "c\nd")
    table = make("credal-lj").fit(graph.replace(class_names=odd)).predict().to_table()
    assert len(set(table.column_names)) == len(table.column_names)
    with pytest.raises(GraphError):
        graph.replace(class_names=("a", "a", "b"))


def test_a_table_is_written_whole_or_not_at_all(vanilla: Prediction, tmp_path: Path) -> None:
    place = tmp_path / "new" / "table.parquet"
    vanilla.to_parquet(place)
    before = place.read_bytes()
    with pytest.raises(MethodError, match="needs 999"):
        vanilla.to_parquet(place, false_alarms=0.001)
    assert place.read_bytes() == before
    with pytest.raises(MethodError, match=r"must end with \.csv or \.parquet"):
        vanilla.to_parquet(tmp_path / "table.xlsx")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(MethodError, match="cannot be written"):
        vanilla.to_parquet(tmp_path / "folder.csv")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder.csv", "new"]
    frame = vanilla.to_pandas()
    assert list(frame["p_value"]) == vanilla.p_values.tolist()
