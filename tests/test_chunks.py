"""Graphs read in chunks, and predictions that come in chunks: the same as of the whole, without its edges."""

from __future__ import annotations

import re
import resource
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from torch import Tensor
from torch.nn.modules.module import register_module_forward_hook

from credalgnn import Graph, Model
from credalgnn.graphs import csbm
from credalgnn.graphs.packed import PackedGraph
from credalgnn.methods import GRASP, METHODS, Method, MethodError, Vanilla, density, load_method, network, scores
from credalgnn.methods import inputs as reading
from credalgnn.methods.base import check_chunks
from credalgnn.methods.coverage import descriptions
from credalgnn.methods.coverage.descriptions import STATISTICS, Describer, labelled_shares
from credalgnn.methods.coverage.model import LIMIT, Forest
from credalgnn.methods.diagnostics import FeatureRange, InputWarning
from credalgnn.methods.inputs import inputs, inputs_by_rows
from credalgnn.methods.large import StoredOutputs
from credalgnn.methods.prediction import write_chunks
from credalgnn.model import predicting
from credalgnn.nn.chunks import latents_by_chunks
from credalgnn.runtime.threads import Threads

SMALL = 1 << 20  # bytes of memory: no graph fits
BY_CHUNKS = (
    "credal-lj", "credal-final", "credal-dual", "credal-coverage", "classical-ensemble", "credal-ensemble", "energy",
    "gnnsafe", "knn", "knn-lj", "mahalanobis", "degree", "feature-sum",
)  # fmt: skip


def refused(graph: Graph) -> Tensor:
    raise AssertionError("all edges were asked for at once")


@pytest.fixture(autouse=True, scope="module")
def no_edge_index() -> Iterator[None]:
    """Packed graphs whose edges may only be read by their target."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PackedGraph, "edge_index", property(refused))
        yield


def made(nodes: int = 300, weights: bool = False, sparse: bool = False, seed: int = 0) -> Graph:
    """Edges in no order, with loops, duplicates and nodes without any."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(nodes, 70)).astype(np.float32)
    x *= rng.random((nodes, 70)) < (0.05 if sparse else 0.9)
    edges = rng.integers(0, nodes - 5, (2, 6 * nodes))
    edges = np.concatenate([edges, edges[:, :9], [[4, 4], [4, 4]]], 1)
    return Graph(x, edges, edge_weight=rng.random(edges.shape[1]) if weights else None)


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks so small that every graph here has many, and files instead of memory."""
    monkeypatch.setattr(reading.edge_blocks, "__defaults__", (50,))
    monkeypatch.setattr(reading.feature_chunks, "__defaults__", (700,))
    for place, name, value in (
        (reading, "EDGES", 50), (descriptions, "VALUES", 120), (descriptions, "SUMMED", 700), (reading, "IN_MEMORY", 0),
        (descriptions, "GROUP", 300 * 4 * 5),
    ):  # fmt: skip
        monkeypatch.setattr(place, name, value)


def naive_rows(graph: Graph, describer: Describer) -> Any:
    """Descriptions by dense matrices, from their definition."""
    count = graph.num_nodes
    x = graph.features.to_dense().double().numpy()
    source, target = graph.edge_index.numpy()
    times = np.zeros((count, count))
    np.add.at(times, (target, source), 1.0)
    weight = np.zeros((count, count))
    np.add.at(weight, (target, source), 1.0 if graph.edge_weight is None else graph.edge_weight.double().numpy())

    def mean(matrix: Any, values: Any) -> Any:
        total = matrix.sum(1, keepdims=True)
        return matrix @ values / np.where(total > 0, total, 1.0)

    own = np.log1p(np.stack([np.abs(x).sum(1), (x != 0).sum(1), times.sum(1), times.sum(0)], 1))
    raw = np.concatenate([own, mean(times, own), mean(times.T, own)], 1)
    statistics = (raw - raw.mean(0)) / raw.std(0)
    if graph.features.layout == torch.sparse_csr:
        scaled = x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)
    else:
        scaled = (x - x.mean(0)) / x.std(0)
    projected = scaled @ describer.basis.double().numpy()
    near = mean(weight, projected)
    return np.concatenate([statistics, projected, near, mean(weight, near)], 1)


@pytest.mark.parametrize(("weights", "sparse"), [(False, False), (True, False), (False, True)])
def test_descriptions_made_in_chunks_are_those_of_the_definition(
    weights: bool, sparse: bool, small_chunks: None, tmp_path: Path
) -> None:
    graph = made(weights=weights, sparse=sparse)
    packed = graph.pack(tmp_path / "graph.cg")
    assert (graph.features.layout == torch.sparse_csr) == sparse
    describer = Describer.of(packed, 0)
    rows = describer(packed)
    assert isinstance(rows, np.memmap)
    assert rows.dtype == np.float32
    assert rows.shape == (300, len(STATISTICS) + 3 * 32)
    np.testing.assert_allclose(rows, naive_rows(graph, describer), rtol=2e-5, atol=2e-5)


def test_descriptions_do_not_depend_on_the_chunks(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    graph = made()
    whole = Describer.of(graph, 0)
    rows = whole(graph)
    assert not isinstance(rows, np.memmap)
    shares = labelled_shares(graph, torch.arange(300) % 3 == 0, torch.arange(300) % 5 > 0)
    span = FeatureRange.of(graph)
    request.getfixturevalue("small_chunks")
    again = graph.pack(tmp_path / "graph.cg")
    parts = Describer.of(again, 0)
    np.testing.assert_allclose(parts.feature_centre, whole.feature_centre, atol=1e-6)
    np.testing.assert_allclose(whole(again), rows, rtol=1e-5, atol=1e-5)
    assert np.array_equal(labelled_shares(again, torch.arange(300) % 3 == 0, torch.arange(300) % 5 > 0), shares)
    assert torch.equal(FeatureRange.of(again).low, span.low)
    assert torch.equal(FeatureRange.of(again).high, span.high)


def test_the_range_of_sparse_features_counts_zeros_that_are_left_out(small_chunks: None) -> None:
    x = torch.zeros(60, 4)
    x[:, 0] = torch.arange(60) + 1.0  # never zero
    x[7, 1], x[9, 2] = 3.0, -2.0
    graph = Graph(x.to_sparse_csr(), [[0, 1], [1, 2]])
    assert graph.features.layout == torch.sparse_csr
    found = FeatureRange.of(graph)
    assert found.low.tolist() == [1.0, 0.0, -2.0, 0.0]
    assert found.high.tolist() == [60.0, 3.0, 0.0, 0.0]


def test_compiled_trees_give_the_bits_of_numpy() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(700, 20)).astype(np.float32)
    forest = Forest.fit(rows[:, :6], (rows[:, 0] + rng.normal(size=700) > 0).astype(np.int64), 0)
    compiled = forest.logits(rows[:, :6])
    total = np.zeros(len(rows))
    for root in forest.roots:
        at = np.full(len(rows), root)
        while (forest.left[at] != at).any():
            goes_left = rows[np.arange(len(rows)), forest.feature[at]] <= forest.threshold[at]
            at = np.where(goes_left, forest.left[at], forest.right[at])
        total += forest.value[at]
    share = np.clip(total / len(forest.roots), LIMIT, 1.0 - LIMIT)
    assert np.array_equal(np.log(share) - np.log1p(-share), compiled)
    assert len(np.unique(compiled)) > 100


def test_a_scratch_file_leaves_no_trace_and_a_full_disk_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "IN_MEMORY", 100)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    array = reading.scratch((1000, 3))
    array[:] = 7.0
    reading.let_go(array)
    assert bool((array == 7.0).all())
    assert not list(tmp_path.iterdir())
    with pytest.raises(MethodError, match=r"[GT]iB of temporary files cannot be written .*TMPDIR"):
        reading.scratch((1 << 42, 1 << 10))


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Method]:
    """All methods that work by chunks, fitted on a packed graph that is too large for the memory they may use."""
    graph = csbm(360, 3, features=8, seed=1).pack(tmp_path_factory.mktemp("packed") / "graph.cg")
    few: dict[str, Any] = {"epochs": 5, "hidden": 8, "batch_size": 100}
    found: dict[str, Method] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        vanilla = found["vanilla"] = Vanilla(**few).fit(graph, memory=SMALL)
        for name in BY_CHUNKS:
            options: dict[str, Any] = {"model": vanilla}
            if "ensemble" in name:
                options = {"members": [vanilla, Vanilla(**few, seed=1)]}
            elif name in ("credal-lj", "credal-final", "credal-dual"):
                options = few
            elif name in ("degree", "feature-sum"):
                options = {}
            found[name] = METHODS[name](**options).fit(graph, memory=SMALL)
    return found


@pytest.mark.parametrize("name", ["vanilla", *BY_CHUNKS])
def test_chunks_are_the_whole_and_ask_for_no_edge_index(
    name: str, fitted: dict[str, Method], small_chunks: None
) -> None:
    method = fitted[name]
    whole = method.predict(memory=SMALL)
    nodes = torch.arange(whole.nodes.numel()).flip(0)
    chunks = list(method.predict_chunks(nodes=nodes, size=77, memory=SMALL))
    assert [len(chunk.nodes) for chunk in chunks] == [77, 77, 77, 77, 52]
    assert torch.equal(torch.cat([chunk.nodes for chunk in chunks]), nodes)
    for score, values in whole.scores.items():
        together = torch.cat([chunk.scores[score] for chunk in chunks])
        torch.testing.assert_close(together, values[nodes], rtol=1e-9, atol=1e-9)
    if whole.probabilities is not None:
        together = torch.cat([p.probabilities for p in chunks if p.probabilities is not None])
        torch.testing.assert_close(together, whole.probabilities[nodes], rtol=1e-9, atol=1e-12)
    assert all(chunk.calibration is not None and chunk.train_nodes is not None for chunk in chunks)


@pytest.mark.filterwarnings("ignore::credalgnn.CredalWarning")
@pytest.mark.parametrize("name", ["vanilla", *BY_CHUNKS])
def test_what_is_predicted_by_chunks_is_that_of_the_graph_in_memory(
    name: str, fitted: dict[str, Method], tmp_path: Path
) -> None:
    by_chunks = fitted[name].predict(memory=SMALL)
    fitted[name].save(tmp_path)
    whole = load_method(tmp_path).predict(csbm(360, 3, features=8, seed=1))
    for score, values in whole.scores.items():
        torch.testing.assert_close(by_chunks.scores[score], values, rtol=1e-4, atol=1e-5)
    if whole.probabilities is not None:
        torch.testing.assert_close(by_chunks.probabilities, whole.probabilities, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["vanilla", "credal-lj", "credal-coverage", "energy", "degree"])
@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_a_file_written_in_chunks_is_that_of_the_whole(
    name: str, ending: str, fitted: dict[str, Method], tmp_path: Path
) -> None:
    method, whole, parts = fitted[name], tmp_path / f"whole.{ending}", tmp_path / f"parts.{ending}"
    rates = {"false_alarms": 0.2, "coverage": 0.9}
    method.predict(memory=SMALL).to_parquet(whole, **rates)
    write_chunks(method.predict_chunks(size=100, memory=SMALL), parts, **rates, total=360)
    if ending == "csv":
        assert parts.read_bytes() == whole.read_bytes()
        return
    one, other = pq.read_table(whole), pq.read_table(parts)
    assert one.equals(other)
    assert one.schema.metadata == other.schema.metadata


def test_no_nodes_make_a_table_without_rows(fitted: dict[str, Method], tmp_path: Path) -> None:
    none = torch.zeros(360, dtype=torch.bool)
    write_chunks(fitted["energy"].predict_chunks(nodes=none, memory=SMALL), tmp_path / "none.parquet")
    assert pq.read_table(tmp_path / "none.parquet").num_rows == 0


def test_what_fails_in_a_later_chunk_leaves_the_old_file(fitted: dict[str, Method], tmp_path: Path) -> None:
    def broken() -> Iterator[Any]:
        yield from list(fitted["energy"].predict_chunks(size=100, memory=SMALL))[:2]
        raise MethodError("the third chunk")

    path = tmp_path / "kept.parquet"
    path.write_text("old")
    with pytest.raises(MethodError, match="the third chunk"):
        write_chunks(broken(), path)
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["kept.parquet"]


def test_chunks_are_checked_before_the_first_and_warned_of_once(fitted: dict[str, Method]) -> None:
    method = fitted["energy"]
    with pytest.raises(MethodError, match="size must be at least 1"):
        method.predict_chunks(size=0)
    with pytest.raises(MethodError, match=r"0\.\.359"):
        method.predict_chunks(nodes=torch.tensor([360]))
    far = csbm(360, 3, features=8, seed=1)
    far = far.replace(features=1e4 * far.features)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        list(method.predict_chunks(far, size=50))
    assert [warning.category for warning in said] == [InputWarning]
    assert said[0].filename == __file__


def test_classes_may_change_what_their_base_predicts() -> None:
    from dataclasses import dataclass, replace

    from credalgnn.methods import Energy, GNNSafe
    from credalgnn.methods.base import Outputs
    from credalgnn.methods.prediction import Prediction, Predictor
    from credalgnn.runtime.context import Context

    @dataclass(kw_only=True, eq=False)
    class Shifted(Energy):
        name = "shifted"

        def _predictor(self, graph: Graph, context: Context) -> Predictor:
            predict = super()._predictor(graph, context)

            def shifted(nodes: Tensor) -> Prediction:
                found = predict(nodes)
                return replace(found, scores={"energy": found.score + 100.0})

            return shifted

    graph = csbm(120, 3, features=8, seed=1)
    vanilla = Vanilla(epochs=5, hidden=8).fit(graph)
    base, shifted = Energy(model=vanilla).fit(graph), Shifted(model=vanilla).fit(graph)
    for prediction in (shifted.predict(), *shifted.predict_chunks(size=120)):
        torch.testing.assert_close(prediction.score, base.predict().score + 100.0)

    class Doubled(GNNSafe):
        name = "doubled"

        def _scorer(self, graph: Graph, outputs: Outputs, context: Context) -> Callable[[Tensor], Tensor]:
            score = super()._scorer(graph, outputs, context)
            return lambda nodes: 2.0 * score(nodes)

    base, doubled = GNNSafe(model=vanilla).fit(graph), Doubled(model=vanilla).fit(graph)
    for prediction in (doubled.predict(), *doubled.predict_chunks(size=120)):
        torch.testing.assert_close(prediction.score, 2.0 * base.predict().score)


class Passes:
    """How often networks are asked, and scores spread along edges."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        for where, name in ((GRASP, "_propagate"), (density, "diffused"), (scores, "propagate")):
            monkeypatch.setattr(where, name, self.counted(getattr(where, name)))
        self.hook = register_module_forward_hook(self.seen)

    def seen(self, *_: Any) -> None:
        self.count += 1

    def counted(self, function: Any) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            self.count += 1
            return function(*args, **options)

        return call

    def of(self, asked: Callable[[], Any]) -> tuple[int, Any]:
        self.count = 0
        found = asked()
        return self.count, found


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Passes]:
    found = Passes(monkeypatch)
    yield found
    found.hook.remove()


@pytest.fixture(scope="module")
def small() -> tuple[Graph, Vanilla]:
    graph = csbm(240, 3, features=8, seed=1)
    return graph, Vanilla(epochs=3, hidden=8).fit(graph)


def template(name: str, vanilla: Vanilla) -> Method:
    """A method with little to train, that stands on a fitted one if it stands on any."""
    kind = METHODS[name]
    options: dict[str, Any] = {"epochs": 3, "hidden": 8, "samples": 3, "model": vanilla}
    if name.endswith("ensemble"):
        options["members"] = [vanilla, METHODS["mc-dropout"](epochs=3, hidden=8, samples=3)]
    if name == "mahalanobis":
        options["epsilon"] = 0.01
    return kind(**{option: value for option, value in options.items() if option in kind().get_params(deep=False)})


@pytest.mark.filterwarnings("ignore::credalgnn.CredalWarning")
@pytest.mark.parametrize("name", METHODS)
def test_what_the_whole_graph_costs_is_paid_once_for_all_chunks(
    name: str, small: tuple[Graph, Vanilla], passes: Passes
) -> None:
    """In memory, for all methods; and the numbers are those of ``predict``."""
    graph, vanilla = small
    method = template(name, vanilla).fit(graph)
    method.predict()  # of calibration nodes it is known by now what they get
    once, whole = passes.of(method.predict)
    nodes = torch.arange(graph.num_nodes).flip(0)
    times, chunks = passes.of(lambda: list(method.predict_chunks(nodes=nodes, size=50)))
    assert len(chunks) == 5
    assert times == once
    assert once > 0 or METHODS[name].is_baseline
    for score, values in whole.scores.items():
        together = torch.cat([chunk.scores[score] for chunk in chunks])
        # Distances to nodes of its own graph are roots of squares that cancel: see tests/test_contract.py.
        rounding = 1e-7 if score == "distance" else 1e-12
        torch.testing.assert_close(together, values[nodes], rtol=1e-12, atol=rounding)
    if whole.probabilities is not None:
        together = torch.cat([chunk.probabilities for chunk in chunks if chunk.probabilities is not None])
        torch.testing.assert_close(together, whole.probabilities[nodes], rtol=1e-12, atol=1e-12)


STANDING: dict[str, Callable[[Method], Method]] = {
    "energy": lambda model: METHODS["energy"](model=model),
    "credal-coverage": lambda model: METHODS["credal-coverage"](model=model),
    "credal-ensemble": lambda model: METHODS["credal-ensemble"](members=[model, model.clone().set_params(seed=1)]),
}


@pytest.mark.filterwarnings("ignore::credalgnn.CredalWarning", "ignore::credalgnn.methods.large.MemoryWarning")
@pytest.mark.parametrize("name", STANDING)
def test_the_budget_of_a_call_is_that_of_components_too_and_of_no_other_call(
    name: str, small: tuple[Graph, Vanilla], monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, vanilla = small
    asked: list[int] = []

    class Spied(StoredOutputs):
        def __init__(self, module: Any, graph: Graph, memory: int, cluster: Any = None) -> None:
            asked.append(memory)
            super().__init__(module, graph, memory)

    monkeypatch.setattr(network, "StoredOutputs", Spied)
    model = vanilla.clone().fit(graph)
    STANDING[name](model).fit(graph, memory=SMALL)
    assert asked[0] == SMALL
    asked.clear()
    STANDING[name](model).fit(graph).predict()
    model.predict()
    assert not asked


@pytest.mark.filterwarnings("ignore::credalgnn.CredalWarning")
@pytest.mark.parametrize("fails", [False, True])
def test_a_cluster_helps_a_fitted_model_until_the_fit_ends(
    fails: bool, small: tuple[Graph, Vanilla], monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, vanilla = small
    helped: list[Any] = []

    class Here(Threads):
        def latents(self, backbone: Any, graph: Graph, scratch: Any, tell: Any) -> list[Tensor]:
            helped.append(self)
            return latents_by_chunks(backbone, *inputs_by_rows(graph), scratch, tell)

    @contextmanager
    def connected(address: str | None, workers: int | None) -> Iterator[Here]:
        yield Here()

    monkeypatch.setattr("credalgnn.methods.cluster.connected", connected)
    model = vanilla.clone().fit(graph)
    method = METHODS["mahalanobis"](model=model, layer=7 if fails else -1)
    with pytest.raises(MethodError, match="layer 7") if fails else nullcontext():
        method.fit(graph, workers=2)
    assert len(helped) == 1


def test_methods_that_need_the_whole_graph_say_so() -> None:
    known = {name for name, kind in METHODS.items() if kind.works_by_chunks}
    assert known == {"vanilla", *BY_CHUNKS}  # which are tested here
    guide = (Path(__file__).parents[1] / "docs" / "large.md").read_text(encoding="utf-8")
    listed = guide.partition("**Methods** that work on such graphs:")[2].partition(", with the backbones")[0]
    assert known == set(re.findall(r"`([a-z-]+)`", listed)) - {"recall"}
    check_chunks(METHODS["energy"]())
    for method in (METHODS["gpn"](), METHODS["odin"](), METHODS["energy"](model=METHODS["gpn"]())):
        with pytest.raises(MethodError, match="needs the whole graph in memory") as error:
            check_chunks(method)
        assert "\n" not in str(error.value)
    with pytest.raises(MethodError, match="choose epsilon=0"):
        check_chunks(METHODS["mahalanobis"](epsilon=0.1))


def test_the_command_writes_many_nodes_in_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import credalgnn as cg

    graph = csbm(360, 3, features=8, seed=1)
    model: Model = cg.fit(graph, method=Vanilla(epochs=5, hidden=8))
    one = predicting.predict_to(model, tmp_path / "a.parquet", graph, progress=False)
    monkeypatch.setattr(predicting, "MANY", 100)
    asked: list[int] = []
    chunks = type(model.method).predict_chunks

    def small(self: Method, *args: Any, **options: Any) -> Iterator[Any]:
        for chunk in chunks(self, *args, **options, size=64):
            asked.append(len(chunk.nodes))
            yield chunk

    monkeypatch.setattr(type(model.method), "predict_chunks", small)
    other = predicting.predict_to(model, tmp_path / "b.parquet", graph, progress=False)
    assert len(asked) == 6
    assert sum(asked) == 360
    assert one.replace("a.parquet", "b.parquet") == other
    assert pq.read_table(tmp_path / "a.parquet").equals(pq.read_table(tmp_path / "b.parquet"))


def mapped() -> int:
    """Bytes of files that are mapped into this process and in memory."""
    return int(Path("/proc/self/statm").read_text().split()[2]) * resource.getpagesize()


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="no /proc")
def test_latents_around_nodes_that_lie_apart_do_not_stay_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even where this process has taken little so far."""
    monkeypatch.setattr("credalgnn.methods.large.resident_memory", lambda: 0)
    count = 40_000
    x = torch.randn(count, 4, generator=torch.Generator().manual_seed(0))
    graph = Graph(x, torch.arange(count).expand(2, -1), torch.arange(count) % 3)
    method = Vanilla(hidden=64, epochs=1).fit(graph)
    stored = StoredOutputs(method.module_, graph, 401 << 20)  # hardly more than programs take: latents are files
    apart = torch.arange(0, count, 37)
    stored.at(apart[:5])
    stored._scratch.release()  # what was mapped as it was written
    before = mapped()
    found = stored.at(apart)
    assert mapped() - before < 2 << 20  # of 20 MB
    torch.testing.assert_close(found, method.module_.eval()(*inputs(graph, "cpu"))[apart], rtol=0, atol=1e-5)
