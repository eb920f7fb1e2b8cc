"""Graphs that do not fit in memory: sampled training, and predictions by chunks that equal the whole."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import pytest
import torch

import credalgnn as cg
from credalgnn.graphs import Graph, Task, csbm, load_graph
from credalgnn.graphs.edges import Edges
from credalgnn.methods import CredalFinal, CredalLJ, Energy, GNNSafe, Mahalanobis, MethodError, Vanilla, large
from credalgnn.methods.inputs import inputs, inputs_by_rows
from credalgnn.methods.large import MemoryWarning
from credalgnn.nn import (
    GCN,
    GIN,
    SAGE,
    Adjacency,
    Classifier,
    Monitor,
    RngScope,
    Schedule,
    Supervision,
    chunks,
    train,
)
from credalgnn.nn.chunks import Scratch, latents_by_chunks
from credalgnn.nn.sampling import ALL, Sampler
from credalgnn.records.node_tables import graph_columns

SHORT: dict[str, Any] = {"hidden": 12, "epochs": 8, "patience": 8}


@cache
def graph_of(sparse: bool = False, weighted: bool = False, loops: bool = False) -> Graph:
    graph = csbm(nodes=400, classes=4, degree=9, features=14, signal=1.0, seed=1)
    generator = torch.Generator().manual_seed(0)
    features = graph.features.clone()
    if sparse:
        features *= torch.rand(features.shape, generator=generator) < 0.2
    edges = graph.edge_index
    if loops:
        own = torch.arange(0, 400, 3)
        edges = torch.cat([edges, torch.stack([own, own]), edges[:, :40]], 1)  # some twice
    weights = torch.rand(edges.shape[1], generator=generator) if weighted else None
    return Graph(features, edges, graph.labels, edge_weight=weights)


@cache
def task_of(**options: bool) -> Task:
    return Task.leave_out(graph_of(**options), [0], name="large")


KINDS = [{}, {"sparse": True}, {"weighted": True}, {"loops": True}, {"weighted": True, "loops": True}]


@pytest.mark.parametrize("options", KINDS, ids=str)
@pytest.mark.parametrize("kind", [GCN, SAGE])
def test_gradients_of_a_batch_with_all_neighbours_are_exact(kind: type, options: dict[str, bool]) -> None:
    graph = graph_of(**options)
    torch.manual_seed(0)
    backbone = kind(14, 9, 2)
    x, rows = inputs_by_rows(graph)
    seeds = torch.tensor([3, 399, 20, 7])
    batch = Sampler(x, rows, [ALL] * 2).around(seeds)
    weights = torch.randn(4, 9)
    found = []
    for z in (backbone(batch.x, batch.edges)[-1], backbone(*inputs(graph))[-1][seeds]):
        found.append(torch.autograd.grad((z * weights).sum(), list(backbone.parameters())))
    for ours, expected in zip(*found, strict=True):
        assert float(expected.abs().max()) > 0.01
        torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("options", KINDS, ids=str)
@pytest.mark.parametrize("operator", ["mean", "normalized", "sum"])
def test_rows_of_operators_are_those_of_the_whole_graph(options: dict[str, bool], operator: str) -> None:
    graph = graph_of(**options)
    _, rows = inputs_by_rows(graph)
    whole = inputs(graph)[1].matrix(operator).to_dense()
    for first, last in ((0, 400), (0, 1), (17, 18), (100, 251)):
        part = rows.rows(operator, first, last)
        torch.testing.assert_close(part.to_dense(), whole[first:last], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("options", KINDS, ids=str)
@pytest.mark.parametrize("kind", [GCN, GIN, SAGE])
@pytest.mark.parametrize("memory", [0, 20_000, 10**9])
def test_latents_by_chunks_are_those_of_the_whole_graph(
    options: dict[str, bool], kind: type, memory: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "ROWS", 37)
    monkeypatch.setattr(Edges.chunks, "__defaults__", (211, None, 0, None))
    graph = graph_of(**options)
    torch.manual_seed(0)
    backbone = kind(14, 9, 3).eval()
    x, rows = inputs_by_rows(graph)
    found = latents_by_chunks(backbone, x, rows, Scratch(memory))
    with torch.no_grad():
        expected = backbone(*inputs(graph))
    for ours, whole in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, whole, rtol=1e-5, atol=1e-6)
    assert float(expected[-1].abs().max()) > 0.1


def test_blocks_cover_all_nodes_once() -> None:
    rows = inputs_by_rows(graph_of(loops=True))[1]
    for edges, most in ((1, None), (50, None), (50, 3), (10**9, None)):
        blocks = list(rows.edges.chunks(edges, most))
        assert [first for first, _ in blocks] == [0, *(last for _, last in blocks[:-1])]
        assert blocks[-1][1] == 400
        assert all(first < last for first, last in blocks)
        assert most is None or all(last - first <= most for first, last in blocks)


@pytest.mark.parametrize("kind", [GCN, SAGE])
@pytest.mark.parametrize("options", KINDS, ids=str)
def test_layers_of_a_batch_with_all_neighbours_are_exact(kind: type, options: dict[str, bool]) -> None:
    graph = graph_of(**options)
    torch.manual_seed(0)
    backbone = kind(14, 9, 3).eval()
    x, rows = inputs_by_rows(graph)
    seeds = torch.tensor([3, 399, 20, 7])
    batch = Sampler(x, rows, [ALL] * 3).around(seeds)
    with torch.no_grad():
        whole, ours = backbone(*inputs(graph)), backbone(batch.x, batch.edges)
    for z, expected in zip(ours, whole, strict=True):
        torch.testing.assert_close(z[:4], expected[seeds], rtol=1e-5, atol=1e-6)
    assert len(ours[-1]) == 4  # no row is computed that nobody asks for
    assert len(ours[0]) > len(ours[1]) > len(ours[2])


def test_fanouts_bound_what_is_drawn_and_draws_hang_on_the_number_alone() -> None:
    x, rows = inputs_by_rows(graph_of())
    sampler = Sampler(x, rows, [3, 2], seed=5)
    seeds = torch.arange(0, 60, 2)
    first, other = sampler.around(seeds, 0), sampler.around(seeds, 1)
    again = Sampler(x, rows, [3, 2], seed=5).around(seeds, 0)
    assert torch.equal(first.edges.edge_index, again.edges.edge_index)
    assert torch.equal(first.x, again.x)
    assert not torch.equal(first.edges.edge_index, other.edges.edge_index)
    drawn = torch.bincount(first.edges.edge_index[1])
    assert int(drawn[:30].max()) == 3
    assert int(drawn[30:].max()) == 2
    ahead = list(sampler.ahead([(seeds, 0), (seeds[:5], 7), (seeds, 1)]))
    assert torch.equal(ahead[0].edges.edge_index, first.edges.edge_index)
    assert torch.equal(ahead[2].edges.edge_index, other.edges.edge_index)


def test_rows_read_in_the_order_of_a_file_are_the_same_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("credalgnn.nn.sampling.READ", 7)
    x, rows = inputs_by_rows(csbm(300, 3, seed=2))
    assert isinstance(x, torch.Tensor)
    seeds, looks = torch.tensor([299, 5, 17, 4, 250]), []
    plain = Sampler(x, rows, [3, 2], seed=5).around(seeds)
    half = Sampler(x.half(), rows, [3, 2], seed=5, after_reading=lambda: looks.append(1)).around(seeds)
    assert torch.equal(half.x, plain.x.half().float())  # type: ignore[union-attr]
    assert len(looks) == -(-len(plain.x) // 7) > 2


def test_every_in_edge_is_drawn_as_often_as_any() -> None:
    """Chi-square over 30 in-edges and 30,000 draws; the bound is that of one in a million."""
    from scipy.stats import chi2

    starts = torch.tensor([0, 30] + [30] * 30)
    sampler = Sampler(
        torch.zeros(31, 1), Adjacency(Edges(starts, torch.arange(1, 31, dtype=torch.int32))), [10], seed=3
    )
    counts = np.zeros(31)
    for number in range(3000):
        batch = sampler.around(torch.tensor([0]), number)
        nodes = batch.edges.sample.nodes[batch.edges.edge_index[0]]
        np.add.at(counts, nodes.numpy(), 1)
    expected = 1000.0
    assert float(((counts[1:] - expected) ** 2 / expected).sum()) < chi2.ppf(1 - 1e-6, 29)


def test_an_edge_from_nowhere_is_refused() -> None:
    sampler = Sampler(torch.zeros(3, 1), Adjacency(Edges(torch.tensor([0, 1, 1, 1]), torch.tensor([77]))), [4])
    with pytest.raises(ValueError, match="the graph is damaged"):
        sampler.around(torch.tensor([0]))


@pytest.mark.parametrize(
    "made",
    [
        lambda **o: Vanilla(**o, **SHORT),
        lambda **o: CredalLJ(**o, **SHORT),
        lambda **o: CredalFinal(backbone="gcn", **o, **SHORT),
    ],
    ids=["vanilla", "credal-lj", "credal-final"],
)
@pytest.mark.filterwarnings("ignore::credalgnn.methods.diagnostics.CredalWarning")
def test_a_small_budget_trains_on_batches_and_predicts_by_chunks(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("credalgnn.methods.large.CHUNK", 64)
    task = task_of()
    with pytest.warns(MemoryWarning, match=r"whole graph at once takes about .*MiB.*mini-batches of 1,024 nodes"):
        small = made().fit(task, memory="100MiB")
    by_chunks = small.predict(memory="100MiB")
    outputs = small.outputs(memory="100MiB")
    whole = made(batch_size=1024).fit(task)
    expected = whole.predict()
    torch.testing.assert_close(by_chunks.probabilities, expected.probabilities, rtol=0, atol=1e-5)
    torch.testing.assert_close(by_chunks.score, expected.score, rtol=0, atol=1e-5)
    torch.testing.assert_close(outputs.logits, whole.outputs().logits, rtol=0, atol=1e-5)
    nodes = torch.tensor([5, 399, 0])
    torch.testing.assert_close(
        small.predict(nodes=nodes, memory="100MiB").score, by_chunks.score[nodes], rtol=0, atol=1e-6
    )


@pytest.mark.parametrize("made", [Energy, GNNSafe, Mahalanobis])
def test_post_hoc_methods_by_chunks(made: Any) -> None:
    task = task_of()
    whole = made(model=Vanilla(batch_size=64, **SHORT)).fit(task).predict()
    small = made(model=Vanilla(batch_size=64, **SHORT)).fit(task, memory="100MiB").predict()
    torch.testing.assert_close(small.score, whole.score, rtol=1e-4, atol=1e-4)


def test_answers_that_do_not_fit_are_refused_before_they_are_made() -> None:
    graph = csbm(nodes=8_000, classes=4, degree=3, features=5, seed=1)
    method = Vanilla(batch_size=1024, epochs=1, hidden=4).fit(graph)
    with pytest.raises(
        MethodError, match=r"8,000 nodes at once takes about 1\.5 MiB, and 1\.0 MiB may .*predict_chunks"
    ):
        method.predict(memory="1MiB")
    chunks = list(method.predict_chunks(memory="1MiB", size=3_000))
    assert [len(chunk.nodes) for chunk in chunks] == [2_730, 2_730, 2_540]  # half of what may be used
    assert len(method.predict(nodes=torch.arange(5_000)).nodes) == 5_000
    assert len(cg.Degree().fit(graph).predict(memory="1MiB").nodes) == 8_000  # which has no classes


def test_calibration_nodes_are_predicted_within_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    prediction = Vanilla._prediction

    def counted(method: Vanilla, nodes: torch.Tensor, output: Any) -> Any:
        asked.append(len(nodes))
        return prediction(method, nodes, output)

    monkeypatch.setattr(Vanilla, "_prediction", counted)
    graph = csbm(nodes=8_000, classes=4, degree=3, features=5, seed=1)
    parts = dict(zip(("train", "val", "calibration"), torch.arange(8_000).split([1_000, 1_000, 6_000]), strict=True))
    method = Vanilla(batch_size=1024, epochs=1, hidden=4).fit(graph, **parts, memory="1MiB")
    assert asked == [2_730, 2_730, 540]
    assert method.calibration_ is not None
    assert len(method.calibration_.fitted.scores) == 6_000


def test_a_backbone_that_needs_the_whole_graph_says_so() -> None:
    for backbone in ("gpr", "gat"):
        refusal = rf"{backbone.upper()} needs all of it at once: choose backbone='sage', 'gcn', 'gin' or 'mlp'"
        with pytest.raises(MethodError, match=refusal):
            Vanilla(backbone=backbone, **SHORT).fit(task_of(), memory="100MiB")
    with pytest.raises(MethodError, match=r"memory: .* is no size of memory: say 4GiB"):
        Vanilla(**SHORT).fit(task_of(), memory="much")


def never(line: Any) -> None:
    raise AssertionError("training has begun")


@pytest.mark.parametrize("backbone", ["gat", "gpr"])
def test_what_cannot_be_predicted_by_chunks_is_refused_before_it_is_trained(backbone: str) -> None:
    """Mini-batches could train it, and nothing could be done with it then."""
    with pytest.raises(MethodError, match="needs all of it at once: choose backbone='sage'"):
        Vanilla(backbone=backbone, batch_size=64, **SHORT).fit(task_of(), memory="100MiB", on_epoch=never)


def test_no_room_for_latents_is_said_before_training(monkeypatch: pytest.MonkeyPatch) -> None:
    free = 30_000  # 400 nodes with two latents of 12 numbers take 38,400
    monkeypatch.setattr("credalgnn.methods.large.shutil.disk_usage", lambda folder: SimpleNamespace(free=free))
    with pytest.raises(MethodError, match=r"outputs of 400 nodes need 37.5 KiB of temporary files.*set TMPDIR"):
        Vanilla(batch_size=64, **SHORT).fit(task_of(), memory="100MiB", on_epoch=never)


def test_room_is_asked_for_all_members_of_an_ensemble_and_for_logits(monkeypatch: pytest.MonkeyPatch) -> None:
    """400 nodes with two latents of 12 numbers, three classes; a member counts no more when it is trained."""
    asked: list[list[int]] = []
    files_for = Scratch.files_for

    def seen(scratch: Scratch, rows: int, widths: list[int], leave: float) -> int:
        asked.append(widths)
        return files_for(scratch, rows, widths, leave)

    monkeypatch.setattr(Scratch, "files_for", seen)
    member = Vanilla(batch_size=64, **SHORT)
    cg.ClassicalEnsemble(members=[member] * 3).fit(task_of(), memory="100MiB")
    Energy(model=member).fit(task_of(), memory="100MiB")
    assert asked == [[12, 12] * 3, [12, 12] * 2, [12, 12], [12, 12, 3]]
    free = 100_000  # three times 38,400 are needed
    monkeypatch.setattr("credalgnn.methods.large.shutil.disk_usage", lambda folder: SimpleNamespace(free=free))
    with pytest.raises(MethodError, match=r"need 112.5 KiB of temporary files"):
        cg.ClassicalEnsemble(members=[member] * 3).fit(task_of(), memory="100MiB", on_epoch=never)


def test_temporary_files_that_cannot_be_written_are_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    method = Vanilla(batch_size=64, **SHORT).fit(task_of(), memory="100MiB")
    other = method.clone().fit(task_of(), memory="100MiB")
    other.predict(memory="100MiB")  # its latents are there, its logits are not

    def full(*shape: Any) -> Any:
        raise OSError(28, "No space left on device: make room, or set TMPDIR to another folder")

    monkeypatch.setattr("credalgnn.nn.chunks.on_disk", full)
    with pytest.raises(MethodError, match="set TMPDIR to another folder"):
        method.predict(memory="100MiB")
    with pytest.raises(MethodError, match="set TMPDIR to another folder"):
        other.outputs(memory="100MiB")


def test_fanouts_of_a_backbone_that_looks_further_than_its_layers_are_refused() -> None:
    with pytest.raises(MethodError, match="'gpr' looks 10 hops far: leave fanouts out"):
        Vanilla(backbone="gpr", fanouts=[10, 5], batch_size=64, **SHORT).fit(task_of(), on_epoch=never)


def test_members_of_an_ensemble_have_one_budget_between_them() -> None:
    first = Scratch(10_000)
    first.matrix(1000, 2)
    assert Scratch(10_000).left == 2_000
    second = Scratch(10_000)
    assert isinstance(second.matrix(1000, 1), torch.Tensor)
    assert second.left == 2_000  # it has become a file
    del first
    assert Scratch(10_000).left == 10_000


def test_what_is_held_counts_once_in_what_is_available(monkeypatch: pytest.MonkeyPatch) -> None:
    budget = large.PROGRAM + 1_000_000
    first = Scratch(1_000_000)
    first.matrix(1000, 50)
    monkeypatch.setattr(large, "available_memory", lambda: budget - 200_000)
    assert large._scratch(large._budget(None)).left == large._scratch(large._budget(budget)).left == 400_000
    assert first.left == 800_000


def test_room_for_files_is_known_beforehand() -> None:
    scratch = Scratch(10_000)
    assert scratch.files_for(100, [10, 5, 5]) == 0
    assert scratch.files_for(100, [10, 20]) == 8_000
    assert scratch.files_for(100, [13, 10], leave=0.5) == 5_200  # which is more than half, and 4,000 are not
    assert scratch.left == 10_000


def test_a_smaller_budget_holds_for_latents_that_were_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Latents of 400 nodes and 12 units take 19,200 bytes each; of a budget of 1 MiB 24,000 bytes are for latents."""
    monkeypatch.setattr(Scratch, "_in_use", WeakKeyDictionary())
    monkeypatch.setattr(large, "PROGRAM", (1 << 20) - 40_000)
    monkeypatch.setattr("credalgnn.methods.network.prediction_bytes", lambda graph, widths: 1 << 40)
    method = Vanilla(batch_size=64, **SHORT).fit(graph_of(), memory=1 << 24)
    whole = method.predict(memory=1 << 24)
    assert Scratch.held() == 2 * 19_200
    assert method.predict(memory=1 << 24).score.equal(whole.score)
    assert method.predict(memory=1 << 25).score.equal(whole.score)
    assert Scratch.held() == 2 * 19_200
    small = method.predict(memory=1 << 20)
    assert Scratch.held() == 0
    torch.testing.assert_close(small.score, whole.score, rtol=0, atol=1e-6)


def test_logits_by_chunks_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    method = Vanilla(batch_size=64, **SHORT).fit(task_of(), memory="100MiB")
    first = method.outputs(memory="100MiB").logits
    assert method.outputs(memory="100MiB").logits.data_ptr() == first.data_ptr()


def test_sparse_rows_of_a_file_are_given_back_too() -> None:
    x, rows = inputs_by_rows(graph_of(sparse=True))
    looks: list[int] = []
    Sampler(x, rows, [3, 2], after_reading=lambda: looks.append(1)).around(torch.arange(9))
    assert looks == [1]


@pytest.mark.parametrize(
    ("name", "place", "value"), [("feature_columns", 5, 10**6), ("sources", 7, 10**6), ("starts", 3, 10**6)]
)
def test_a_packed_graph_that_has_changed_is_one_line_whole_and_by_chunks(
    tmp_path: Path, name: str, place: int, value: int
) -> None:
    graph_of(sparse=True).pack(tmp_path / "graph.cg")
    method = Vanilla(batch_size=64, **SHORT).fit(load_graph(tmp_path / "graph.cg"))
    array = np.load(tmp_path / "graph.cg" / f"{name}.npy", mmap_mode="r+")
    array[place] = value
    array.flush()
    for options in ({}, {"memory": "100MiB"}):
        with pytest.raises(ValueError, match=r"(?s)the graph is damaged: .*credalgnn check --repair"):
            method.predict(load_graph(tmp_path / "graph.cg"), **options)
        with pytest.raises(ValueError, match=r"(?s)the graph is damaged: .*credalgnn check --repair"):
            Vanilla(**SHORT, batch_size=64 if options else None).fit(load_graph(tmp_path / "graph.cg"), **options)


def test_edges_from_nowhere_are_refused_where_rows_are_read() -> None:
    rows = Adjacency(Edges(torch.tensor([0, 1, 2, 3]), torch.tensor([0, 3, 1])))
    assert rows.rows("mean", 0, 1).shape == (1, 3)
    for operator in ("mean", "normalized", "sum"):
        with pytest.raises(ValueError, match="the nodes 1 to 2 begin or end outside of the graph; credalgnn check"):
            rows.rows(operator, 1, 3)


@pytest.mark.parametrize("starts", [[0, 2, 1, 4], [0, 2, 3, 40], [-1, 2, 3, 4]])
@pytest.mark.parametrize("sums", ["in_weight", "degree", "loop_weight"])
def test_weights_of_edges_that_do_not_exist_are_refused(starts: list[int], sums: str) -> None:
    rows = Adjacency(Edges(torch.tensor(starts), torch.tensor([0, 1, 2, 0]), torch.ones(4)))
    with pytest.raises(ValueError, match="the nodes 0 to 2 begin or end outside of the graph; credalgnn check"):
        getattr(rows, sums)


def test_sampled_training_learns_what_full_batches_learn() -> None:
    task = task_of()
    options = {"hidden": 16, "epochs": 60, "patience": 20}
    known = ~task.test.is_ood
    accuracy = []
    for sizes in ({}, {"batch_size": 32}, {"batch_size": 32, "fanouts": [4, 3]}):
        classes = Vanilla(**sizes, **options).fit(task).predict(nodes=task.test.nodes).classes
        accuracy.append(float((classes == task.test.labels)[known].double().mean()))
    assert min(accuracy) > 0.85


@pytest.mark.parametrize("fanouts", ["10", [10], [10, -1], [10, 2.5]])
def test_fanouts_that_cannot_work(fanouts: Any) -> None:
    with pytest.raises((MethodError, TypeError), match="fanouts"):
        Vanilla(fanouts=fanouts)


class Memory:
    """A checkpoint whose user dies once."""

    def __init__(self, dies_after: int) -> None:
        self.state: Any = None
        self.left = dies_after

    def load(self) -> Any:
        return self.state

    def save(self, state: Any, ended: bool) -> None:
        import io

        buffer = io.BytesIO()
        torch.save(state(), buffer)
        self.state = torch.load(io.BytesIO(buffer.getvalue()), weights_only=True)
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


@pytest.mark.parametrize("sampled", [False, True])
def test_training_goes_on_where_it_was_stopped_with_the_same_bits(
    sampled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also after the learning rate has fallen, and while it is about to."""
    monkeypatch.setattr("credalgnn.nn.training.PLATEAU", 16)  # two epochs
    graph = graph_of()

    def fit(checkpoint: Any) -> tuple[Any, Any]:
        draws = RngScope(4)
        with draws:
            module = Classifier(SAGE(14, 8, 2, dropout=0.3), torch.nn.Linear(8, 4), 2)
        x, edges = inputs_by_rows(graph) if sampled else inputs(graph)
        nodes = torch.arange(0, 300)
        data = Supervision(x, edges, nodes, graph.labels[nodes])
        loss = torch.nn.functional.cross_entropy
        monitor = Monitor(torch.arange(300, 400), lambda out: loss(out, graph.labels[300:]).item())
        curve = train(
            module,
            data,
            loss,
            monitor,
            Schedule(0.05, 0.0, 25, 25, 40 if sampled else None),
            draws,
            checkpoint=checkpoint,
        )
        return curve, module.state_dict()

    whole_curve, whole = fit(None)
    checkpoint = Memory(18)
    with pytest.raises(KeyboardInterrupt):
        fit(checkpoint)
    curve, state = fit(checkpoint)
    assert curve == whole_curve
    assert all(torch.equal(state[name], whole[name]) for name in whole)
    assert (min(checkpoint.state["scheduler"].get("_last_lr", [0.05])) < 0.05) == sampled


def test_a_model_is_judged_on_a_packed_graph_within_its_memory_as_on_the_whole(tmp_path: Path) -> None:
    graph = graph_of()
    known = graph.replace(labels=graph.labels.where(torch.arange(400) % 2 == 0, -1), node_ids=np.arange(400))
    later = graph.replace(node_ids=np.arange(400))
    later.pack(tmp_path / "later.cg")
    model = cg.fit(known, method=cg.Vanilla(**SHORT))
    whole = model.evaluate(later)
    small = model.evaluate(load_graph(tmp_path / "later.cg"), memory="100MiB")
    assert (small.nodes, small.left_out) == (whole.nodes, whole.left_out) == (200, 200)
    for name, value in whole.evaluation.metrics.items():
        assert small.evaluation.metrics[name] == (None if value is None else pytest.approx(value, rel=1e-4)), name


def test_a_packed_graph_is_described_node_by_node_without_all_its_edges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neighbours by a loop over all edges; those listed are the first ones in the order of their numbers."""
    monkeypatch.setattr("credalgnn.records.node_tables.NEIGHBOURS", 6)
    graph = graph_of(loops=True)
    edges, labels = graph.edge_index.tolist(), graph.labels.tolist()
    packed = graph.pack(tmp_path / "graph.cg")
    unknown = packed.replace(labels=graph.labels.where(torch.arange(400) % 7 > 0, -1))
    monkeypatch.setattr(type(packed), "edge_index", property(lambda _: pytest.fail("all edges were read")))
    table = graph_columns([Task.leave_out(unknown, [0], split_seed=seed) for seed in (0, 1)])
    for row, node in enumerate(table["node"].tolist()):
        sources = sorted(source for source, target in zip(*edges, strict=True) if target == node)
        assert table["degree"][row] == len(sources)
        assert list(table["neighbours"][row]) == sources[:6]
        classes = ["unknown" if other % 7 == 0 else str(labels[other]) for other in sources[:6]]
        assert list(table["neighbour_classes"][row]) == classes
    assert max(table["degree"]) > 6


def test_batches_are_the_same_whoever_draws_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a thread that draws ahead, and in a process that has one processor, without one."""
    x, rows = inputs_by_rows(graph_of())
    wanted = [(torch.arange(first, first + 50), number) for number, first in enumerate(range(0, 300, 50))]

    def drawn(processors: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
        monkeypatch.setattr("credalgnn.nn.sampling.processors", lambda: processors)
        return [(batch.x, batch.edges.edge_index) for batch in Sampler(x, rows, [3, 3], seed=1).ahead(wanted)]

    for (x_ahead, edges_ahead), (x_alone, edges_alone) in zip(drawn(2), drawn(1), strict=True):
        assert torch.equal(x_ahead, x_alone)
        assert torch.equal(edges_ahead, edges_alone)


def test_training_on_batches_is_the_same_whoever_draws_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over several epochs, and where fewer neighbours are drawn than there are."""
    task = task_of()

    def fitted(processors: int) -> Vanilla:
        monkeypatch.setattr("credalgnn.nn.sampling.processors", lambda: processors)
        return Vanilla(hidden=8, epochs=4, patience=4, batch_size=16, fanouts=[2, 2]).fit(task)

    ahead, alone = fitted(2), fitted(1)
    assert ahead.history_ == alone.history_
    assert all(torch.equal(a, b) for a, b in zip(ahead.module_.parameters(), alone.module_.parameters(), strict=True))
