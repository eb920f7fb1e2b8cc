"""The choices of the paper's published runs: each against a naive reference, and none where it was not asked for."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist
from sklearn.metrics import roc_auc_score
from torch import Tensor

from credalgnn import MethodError, Task, Vanilla, evaluate, interval_softmax, lower_entropy, uncertainty
from credalgnn.cli import main
from credalgnn.experiments import reproduce
from credalgnn.experiments.execute import ModelCache, execute
from credalgnn.experiments.paper import paper_results, write_comparison
from credalgnn.experiments.paper_plan import Budget, Reproduction
from credalgnn.experiments.plan import plan
from credalgnn.experiments.published import (
    CHOICES,
    PREFIX,
    PUBLISHED,
    TOLD,
    AsPublished,
    PublishedVanilla,
    PublishedVanillaByOOD,
    box,
    choices_named,
    concerning,
    greedy_lower_entropy,
    has_random_split,
    midpoint_softmax,
    saturated,
    with_rows_of_sum_one,
)
from credalgnn.experiments.search import Studies
from credalgnn.graphs import csbm
from credalgnn.methods import KNN, METHODS, Energy, Method, find_method, method_path, scores
from credalgnn.methods.base import parts_of
from credalgnn.nn import RngScope
from credalgnn.records.folder import Folder, read_records
from credalgnn.records.schema import RecordError, is_ranked
from credalgnn.report import leaderboard, load_results, write_report
from credalgnn.sets import HullSet, IntervalSet
from searches import ENSEMBLES, NETWORK, POST_HOC, Instant, finish_all, one_line, small_task, worth

pytestmark = pytest.mark.filterwarnings("ignore::credalgnn.CredalWarning")


def fitted(name: str, *choices: str, task: Task | None = None, **options: Any) -> Method:
    kind = PUBLISHED[name]
    few = {"epochs": 4, "hidden": 8, **options} if name in NETWORK else options
    if kind.components is not None:
        member = PublishedVanilla(epochs=4, hidden=8, monitor="id_f1")
        few = {kind.components.parameter: [member, member.clone()] if kind.components.size else member, **few}
    return kind(choices=choices, **few).fit(task or small_task(), protocol="paper", progress=False)


def logits_of(classes: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    middle = 2 * torch.randn(300, classes, dtype=torch.float64, generator=generator)
    half = 2 * torch.rand(300, classes, dtype=torch.float64, generator=generator)
    return middle - half, middle + half


# What a reader is told


def test_all_of_them_are_named_and_said() -> None:
    assert len(TOLD) == 13
    assert set(CHOICES) - set(TOLD) == {"row-normalised", "sigmoid-vanilla"}
    for name, choice in CHOICES.items():
        assert choice.runs
        assert choice.paper
        assert set(choice.methods) <= set(PUBLISHED), name
    assert choices_named([]) == TOLD
    assert choices_named(["one-seed", "no-z0", "one-seed"]) == ("no-z0", "one-seed")


# Nothing changes where nothing is chosen


@pytest.mark.parametrize("name", PUBLISHED)
def test_without_choices_they_are_the_built_in_methods(name: str) -> None:
    published = fitted(name)
    below = Vanilla(epochs=4, hidden=8, monitor="id_f1")
    kind = METHODS[name]
    options: dict[str, Any] = {"epochs": 4, "hidden": 8} if name in NETWORK else {}
    if kind.components is not None:
        options[kind.components.parameter] = [below, below.clone()] if kind.components.size else below
    ours = kind(**options).fit(small_task(), protocol="paper", progress=False).predict()
    theirs = published.predict()
    assert list(ours.scores) == list(theirs.scores)
    for score in ours.scores:
        assert torch.equal(ours.scores[score], theirs.scores[score])
    assert torch.equal(ours.classes, theirs.classes)


def test_no_name_finds_them() -> None:
    assert not any(name.startswith(PREFIX) for name in METHODS)
    for kind in PUBLISHED.values():
        assert kind.name.startswith(PREFIX)
        assert kind not in METHODS.values()
        with pytest.raises(MethodError, match="unknown method"):
            find_method(kind.name)


def test_only_what_concerns_a_method_can_be_chosen_for_it() -> None:
    with pytest.raises(MethodError, match="that concern it"):
        PUBLISHED["energy"](choices=["no-z0"])
    for name, kind in PUBLISHED.items():
        assert kind(choices=concerning(name, TOLD)).get_params()["choices"] == concerning(name, TOLD)


# Sets


@pytest.mark.parametrize("classes", [2, 3, 11])
def test_midpoint_softmax(classes: int) -> None:
    """Against loops; narrower than Equation 3, and around the softmax of the midpoints."""
    lower, upper = logits_of(classes)
    low, up = np.empty(lower.shape), np.empty(lower.shape)
    for node in range(len(lower)):
        middle = ((lower + upper) / 2)[node].numpy()
        for k in range(classes):
            rest = sum(math.exp(middle[j]) for j in range(classes) if j != k)
            for logits, found in ((lower, low), (upper, up)):
                own = math.exp(logits[node, k])
                found[node, k] = own / (own + rest)
    for node in range(len(low)):  # tightened, one class after the other
        before = low[node].copy(), up[node].copy()
        for k in range(classes):
            low[node, k] = max(before[0][k], 1.0 - (before[1].sum() - before[1][k]))
            up[node, k] = min(before[1][k], 1.0 - (before[0].sum() - before[0][k]))
    found = midpoint_softmax(lower, upper)
    assert np.allclose(found.lower, low, atol=1e-12)
    assert np.allclose(found.upper, up, atol=1e-12)
    exact = interval_softmax(lower, upper)
    assert bool((found.lower >= exact.lower - 1e-12).all())
    assert bool((found.upper <= exact.upper + 1e-12).all())
    assert bool(found.contains(((lower + upper) / 2).softmax(-1)).all())
    assert bool(found.is_reachable().all())


@pytest.mark.parametrize(("classes", "cap"), [(3, 0.79), (11, 0.42), (30, 0.20)])
def test_sigmoids_cap_the_upper_probability(classes: int, cap: float) -> None:
    """e^2 / (e^2 + C - 1), whatever the weights are: far from 1 however sure a network could be."""
    network = PUBLISHED["credal-final"](choices=["sigmoid-head", "midpoint-softmax"], hidden=4)
    with RngScope(0):
        head = network._head([6], classes)  # type: ignore[attr-defined]
        for weight in head.parameters():
            torch.nn.init.normal_(weight, std=40.0)
        lower, upper = head(20 * torch.randn(2000, 6))
    assert float(lower.detach().min()) >= -1.0
    assert float(upper.detach().max()) <= 2.0
    most = midpoint_softmax(lower.detach().double(), upper.detach().double()).upper.max().item()
    limit = math.e**2 / (math.e**2 + classes - 1)
    assert round(limit, 2) == cap
    assert most <= limit + 1e-6
    one = torch.zeros(1, classes, dtype=torch.float64)
    one[0, 0] = 1.0  # a midpoint of 1 and a half-length of 1; the others' midpoints are 0
    half = one.clone()
    assert midpoint_softmax(one - half, one + half).upper[0, 0].item() <= limit + 1e-12


def test_greedy_pour() -> None:
    """Never below the exact minimum, the entropy of a member, and wrong on a good share of the nodes."""
    lower, upper = logits_of(5)
    credal = interval_softmax(lower, upper)
    found, exact = greedy_lower_entropy(credal), lower_entropy(credal)
    for node in range(0, 300, 7):
        low, up = credal.lower[node].tolist(), credal.upper[node].tolist()
        p, left = list(low), 1.0 - sum(low)
        for k in sorted(range(5), key=lambda k: -up[k]):
            more = min(left, up[k] - low[k])
            p[k], left = p[k] + more, left - more
        assert sum(p) == pytest.approx(1.0)
        assert found[node].item() == pytest.approx(-sum(q * math.log2(q) for q in p if q > 0), abs=1e-9)
    assert bool((found >= exact - 1e-9).all())
    assert 0.05 < float((found > exact + 1e-4).double().mean()) < 0.95


def test_box_of_an_ensemble_is_wider_than_its_hull() -> None:
    members = torch.randn(6, 200, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).softmax(-1)
    wide, hull = uncertainty(box(members)), uncertainty(HullSet(members))
    assert bool((wide.total >= hull.total - 1e-9).all())
    assert bool((wide.aleatoric <= hull.aleatoric + 1e-9).all())
    assert float((wide.epistemic - hull.epistemic).mean()) > 0.05
    assert all(bool(box(members).contains(member).all()) for member in members)
    prediction = fitted("credal-ensemble", "box-hull").predict()
    assert isinstance(prediction.credal, IntervalSet)


# Scores


def test_hot_energies_all_tie() -> None:
    """At a temperature of 100 and more exactly 50.0, whatever the network knows; at 1 nothing is lost."""
    logits = 3 * torch.randn(400, 3, generator=torch.Generator().manual_seed(0))
    is_ood = np.arange(400) % 2 == 0
    logits[is_ood] -= 2.0
    for temperature in (1.0, 100.0, 1000.0):
        energy = scores.energy(logits, temperature)
        assert roc_auc_score(is_ood, energy) > 0.7
        seen = roc_auc_score(is_ood, saturated(energy))
        assert seen == (0.5 if temperature > 1.0 else pytest.approx(roc_auc_score(is_ood, energy), abs=1e-3))
    shares = torch.rand(10, dtype=torch.float64)
    assert saturated(shares) is shares
    assert saturated(torch.tensor([30.0, 40.0, 1e9])).tolist() == [1.0, 1.0, 1.0]


def test_saturated_scores_are_what_is_judged() -> None:
    task = small_task()
    prediction = fitted("energy", "saturating-auroc", temperature=1000.0).predict(nodes=task.test.nodes)
    assert evaluate(prediction, task).scores["energy"]["auroc"] == 0.5


def test_kth_neighbour_is_that_of_knn() -> None:
    model = PublishedVanilla(epochs=4, hidden=8).fit(small_task(), progress=False)
    ours = KNN(model=model, k=5, kth=True).fit(small_task())
    theirs = PUBLISHED["knn"](model=model, k=5, choices=["kth-neighbour"]).fit(small_task())
    assert torch.equal(ours.predict().score, theirs.predict().score)


def test_mahalanobis_of_logits() -> None:
    task, found = small_task(), fitted("mahalanobis", "logit-mahalanobis")
    model = parts_of(found)["model"]
    logits = model.outputs().logits.double().numpy()
    train, labels = task.split.train, task.train_labels.numpy()
    means = np.stack([logits[train][labels == k].mean(0) for k in range(3)])
    centred = logits[train] - means[labels]
    precision = np.linalg.pinv(centred.T @ centred / len(train))
    expected = cdist(logits, means, "mahalanobis", VI=precision).min(1) ** 2
    assert np.allclose(found.predict().score, expected, rtol=1e-5)


# Training


def test_joint_latent_without_the_features() -> None:
    widths = {name: p.shape for name, p in fitted("credal-lj", "no-z0").module_.head.named_parameters()}  # type: ignore[attr-defined]
    assert widths["linear.weight"] == (6, 16)
    both = fitted("credal-lj", "sigmoid-head", "no-z0").module_.head  # type: ignore[attr-defined]
    assert both.first.weight.shape == (8, 16)
    assert both.second.weight.shape == (6, 8)
    whole = fitted("credal-lj", "sigmoid-head").module_.head  # type: ignore[attr-defined]
    assert whole.first.weight.shape == (8, 8 + 16)


def test_sigmoids_of_the_backbone() -> None:
    method = fitted("credal-final", "sigmoid-backbone", backbone="gcn")
    latents = method.outputs().latents
    assert all(0.0 < float(z.min()) < 0.5 < float(z.max()) < 1.0 for z in map(torch.as_tensor, latents[1:]))
    with pytest.raises(MethodError, match="no sigmoids"):
        fitted("credal-final", "sigmoid-backbone", backbone="gpr")


def test_last_epoch() -> None:
    """Against a loop of one's own: the weights after all epochs, not those of the best one."""
    task = small_task()
    method = fitted("vanilla", "last-epoch", epochs=7, patience=100, lr=0.1)
    view = task.training
    reference = Vanilla(hidden=8, lr=0.1)
    with RngScope(0):
        module = reference._build(view.graph.num_features, view.num_classes)
    from credalgnn.methods.inputs import inputs

    x, edges = inputs(view.graph, "cpu")
    adam = torch.optim.Adam(module.parameters(), lr=0.1, weight_decay=5e-4)
    for _ in range(7):
        adam.zero_grad()
        output = module(x, edges)
        assert isinstance(output, Tensor)
        torch.nn.functional.cross_entropy(output[view.train], view.graph.labels[view.train]).backward()  # type: ignore[no-untyped-call]
        adam.step()
    for name, weight in module.state_dict().items():
        assert torch.allclose(method.module_.state_dict()[name], weight, atol=1e-4), name  # type: ignore[attr-defined]


def test_one_seed_has_no_spread() -> None:
    ours = [fitted("credal-lj", seed=seed).predict().score for seed in (0, 1)]
    theirs = [fitted("credal-lj", "one-seed", seed=seed).predict().score for seed in (0, 1)]
    assert not torch.equal(*ours)
    assert torch.equal(*theirs)
    assert torch.equal(theirs[0], fitted("credal-lj", seed=42).predict().score)


def test_ood_nodes_stop_and_rank_vanilla_gnns() -> None:
    method = fitted("vanilla", "ood-stopping")
    assert method.get_params()["monitor"] == "ood_auroc"
    assert all(-1.0 <= line.monitor <= 0.0 for line in method.history_)
    assert PublishedVanillaByOOD.objectives["paper"] == "auroc"
    with pytest.raises(MethodError, match="sealed"):
        PUBLISHED["vanilla"](choices=["ood-stopping"], epochs=2).fit(small_task())


def test_most_test_nodes_of_a_fresh_split_were_trained_on() -> None:
    """Three of five ID test nodes; an honest detector refuses such a backbone, the published one does not notice."""
    task = Task.leave_out(csbm(nodes=2000, classes=4, seed=0), [0], name="random")
    assert has_random_split(task)
    assert not has_random_split(small_task())
    model = PublishedVanilla(fresh_split=True, epochs=2, hidden=4).fit(task, progress=False)
    seen = torch.isin(task.test.nodes[~task.test.is_ood], model.train_nodes_)  # type: ignore[arg-type]
    assert 0.54 < float(seen.double().mean()) < 0.66
    honest = Vanilla(epochs=2, hidden=4).fit(Task.leave_out(task.graph, [0], split_seed=1), progress=False)
    with pytest.raises(MethodError, match="another task or split"):
        Energy(model=honest).fit(task)
    leaking = PUBLISHED["energy"](model=model, choices=["fresh-split"]).fit(task)
    evaluate(leaking.predict(nodes=task.test.nodes), task)
    with pytest.raises(ValueError, match="train"):
        evaluate(model.predict(nodes=task.test.nodes), task)


def test_rows_of_sum_one() -> None:
    task = with_rows_of_sum_one(small_task())
    assert torch.allclose(task.graph.features.to_dense().abs().sum(1), torch.ones(200))
    assert torch.equal(task.split.test, small_task().split.test)
    assert task.fingerprint != small_task().fingerprint


# The experiment


def pretended(folder: Path, *choices: str) -> tuple[Reproduction, AsPublished, Instant]:
    studies, engine = Studies(folder, "paper", "uniform"), Instant(3)
    variant = AsPublished(small_task(), choices)
    part = Reproduction("small", small_task(), studies, Budget(6, 9, 3, 5, {"epochs": 7}), variant=variant)
    assert finish_all([part], studies, engine)
    return part, variant, engine


def test_the_experiment_as_published(tmp_path: Path) -> None:
    """All choices: each method has those that concern it, and the five runs are the best trials of the searches."""
    part, variant, engine = pretended(tmp_path, *TOLD)
    assert len(engine.units) == part.total
    assert "fresh-split" not in variant.choices, "its split is not random"
    runs = part.runs()
    assert sorted((run.method, run.seed) for run in runs) == sorted(
        (PREFIX + n, s) for n in PUBLISHED for s in range(5)
    )
    for run in runs:
        assert run.config["choices"] == concerning(run.method.removeprefix(PREFIX), variant.choices)
        for below in run.components:
            assert below["choices"] == concerning("vanilla", variant.choices)
            assert (below["monitor"], below["fresh_split"]) == ("ood_auroc", False)
    for name in ("credal-lj", "vanilla"):
        units = [unit.run for unit in engine.units if unit.run.method == PREFIX + name]
        first = [run for run in units if run.seed < 1006]
        best = sorted(first, key=lambda run: -worth(run)["value"])[:5]
        assert [run.config for run in runs if run.method == PREFIX + name] == [run.config for run in best]
    backbones = [{**run.components[0], "seed": 0} for run in runs if run.method == PREFIX + "energy"]
    assert len({json.dumps(one, sort_keys=True) for one in backbones}) == 5, "each on another one of the best"
    assert method_path(PublishedVanillaByOOD) in {unit.run.path for unit in engine.units}


def test_a_choice_leaves_alone_what_it_does_not_concern(tmp_path: Path) -> None:
    pretended(tmp_path, "no-z0")
    *_, engine = pretended(tmp_path, "no-z0", "kth-neighbour")
    assert {unit.run.method for unit in engine.units} == {PREFIX + "knn", PREFIX + "knn-lj"}, "the rest is kept"
    *_, engine = pretended(tmp_path, "no-z0", "kth-neighbour", "last-epoch")
    assert {unit.run.method for unit in engine.units} == {f"{PREFIX}{n}" for n in (*NETWORK, *POST_HOC, ENSEMBLES[0])}


def test_some_of_the_methods(tmp_path: Path) -> None:
    studies, engine = Studies(tmp_path, "paper", "uniform"), Instant()
    part = Reproduction("small", small_task(), studies, Budget(4, 5, 3, 2), ["credal-lj", "degree"])
    assert finish_all([part], studies, engine)
    assert {unit.run.method for unit in engine.units} == {"credal-lj"}
    assert len(engine.units) == part.total == 4
    assert [run.method for run in part.runs()] == ["credal-lj"] * 2 + ["degree"] * 2


# Folders and commands


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few runs as published, of a graph that the paper has."""
    place = tmp_path_factory.mktemp("published") / "out"
    task, names = replace(small_task(), name="chameleon"), ["one-seed", "no-z0", "greedy-pour", "saturating-auroc"]
    identity = {"kind": "reproduce", "protocol": "paper", "scale": "uniform", "quick": True}
    made = Folder.open(place, {**identity, "as_published": list(choices_named(names))})
    for name in ("credal-lj", "energy"):
        for seed in range(2):
            few = {"choices": concerning(name, names), **({"epochs": 2, "lr": 0.01 + seed} if name in NETWORK else {})}
            run = plan("chameleon", method_path(PUBLISHED[name]), seed, "paper", 0, few, [{"epochs": 2}])
            made.write(execute(run, task, ModelCache(made.models))[0])
    return place


def test_records_say_that_they_are_not_ranked(folder: Path) -> None:
    records = read_records(folder)
    assert [record["ranked"] for record in records] == [False] * 4
    older = [{name: value for name, value in record.items() if name != "ranked"} for record in records]
    assert not any(map(is_ranked, older))
    assert is_ranked({"method": "vanilla"})


def test_tables_say_that_they_are_published_choices(folder: Path, tmp_path: Path) -> None:
    text = write_comparison([folder], folder)
    assert text.startswith("As published: no-z0, one-seed, greedy-pour, saturating-auroc. ")
    assert "not the honest protocol" in text.splitlines()[0]
    assert "not the honest protocol" in (folder / "paper.html").read_text()
    figures = {(one["table"], one["method"], one["score"], one["dataset"]): one["mean"] for one in paper_results()}
    paper = figures["ood_auroc_full", "credal-lj", "EU", "chameleon"]
    assert f"| credal-lj | EU | {paper:.1f} ±" in text, "beside the paper's figure of the same method"
    results = write_report(folder, tmp_path / "out")
    assert str(results).startswith("As published: ")
    for name in ("table.md", "table.tex", "report.html"):
        assert "not the honest protocol" in (tmp_path / "out" / name).read_text(), name
    assert not any(row.rank or row.competes for row in results.rows)


def test_they_are_never_compared_with_others(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="as published") as caught:
        leaderboard([folder])
    assert "\n" not in str(caught.value)
    other = Folder.open(tmp_path / "honest", {"kind": "bench"})
    run = plan("chameleon", "feature-sum", 0, "paper")
    other.write(execute(run, replace(small_task(), name="chameleon"), ModelCache(other.models))[0])
    with pytest.raises(RecordError, match="report them separately"):
        load_results([folder, other.path])
    with pytest.raises(RecordError, match="another experiment, with as_published"):
        reproduce("csbm", out=folder, quick=True)
    with pytest.raises(RecordError, match="another experiment, with as_published"):
        reproduce("csbm", out=folder, quick=True, as_published=["no-z0"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--as-published", "no-zo"], "unknown published choice 'no-zo': did you mean no-z0?"),
        (["--as-published", "qqq"], "choose from sigmoid-head, "),
        (["--as-published", "--protocol", "sealed"], "--as-published needs --protocol paper"),
        (["--as-publish"], "did you mean --as-published?"),
    ],
)
def test_what_the_command_refuses(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main(["reproduce", "-d", "csbm", "--out", str(tmp_path / "out"), *words])
    except SystemExit as error:
        code = int(error.code or 0)
    out, err = capsys.readouterr()
    one_line(code, out, err, said)
    assert not (tmp_path / "out").exists()
