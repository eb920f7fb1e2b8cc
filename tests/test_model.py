"""A model of one's own graph: fitted from whatever holds it, judged, handed on, and watching what comes."""

from __future__ import annotations

import hashlib
import json
import math
import multiprocessing
import re
import shutil
import subprocess
import sys
import threading
import time
import warnings
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet
import pytest
import scipy.sparse
import torch
from safetensors.torch import load as load_tensors

import credalgnn as cg
from credalgnn.graphs import Graph, GraphError, csbm
from credalgnn.methods import MethodError
from credalgnn.methods.base import parts_of
from credalgnn.model import Model, fit, load_model
from credalgnn.model.model import SUMMED
from credalgnn.model.predicting import predict_to
from credalgnn.model.summary import report_graph
from credalgnn.model.watching import PICTURE, STATE, batch_content, sparse_rows, watch
from credalgnn.report.drawing import evidence_chart
from credalgnn.runtime.files import to_json
from own_graphs import CLASSES, FAST, blobs, graph_of, write_tables

pytestmark = pytest.mark.filterwarnings("ignore::credalgnn.CredalWarning")


def quick(data: Any, edges: Any = None, **options: Any) -> Model:
    """Fitted in a moment, without a word."""
    options = {"method": "vanilla", "settings": FAST, "progress": False, **options}
    if edges is not None or (isinstance(data, Path) and data.is_dir()):
        options.setdefault("label", "topic")
    return fit(data, edges, **options)


def refuses(error: type[Exception], match: str, call: Callable[..., Any], *args: Any, **options: Any) -> None:
    with pytest.raises(error, match=match):
        call(*args, **options)


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return write_tables(tmp_path_factory.mktemp("tables"))


@pytest.fixture(scope="module")
def covered(tables: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[Model, Path]:
    """The recommended method, in its folder."""
    folder = tmp_path_factory.mktemp("covered") / "model"
    return quick(*tables, method="credal-coverage", out=folder), folder


@pytest.fixture(scope="module")
def vanilla(tables: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[Model, Path]:
    folder = tmp_path_factory.mktemp("vanilla") / "model"
    return quick(*tables, out=folder), folder


@pytest.fixture
def own(vanilla: tuple[Model, Path], tmp_path: Path) -> Path:
    """A copy of a model's folder, to be spoilt."""
    return Path(shutil.copytree(vanilla[1], tmp_path / "own"))


# ---- from whatever holds a graph


def test_files_tables_frames_and_folders_give_the_same_model(tables: tuple[Path, Path], tmp_path: Path) -> None:
    nodes, edges = tables
    expected = quick(nodes, edges).predict()
    arrow = [pa.csv.read_csv(path) for path in tables]
    shutil.copytree(nodes.parent, tmp_path / "folder")
    for data in (arrow, [table.to_pandas() for table in arrow], [str(nodes), str(edges)], [tmp_path / "folder"]):
        prediction = quick(*data).predict()
        assert torch.equal(prediction.probabilities, expected.probabilities)
        assert prediction.node_ids.tolist() == expected.node_ids.tolist()
        assert torch.equal(prediction.p_values, expected.p_values)


def test_a_graph_and_its_file_give_the_same_model(tmp_path: Path) -> None:
    graph = graph_of()
    graph.save(tmp_path / "graph.npz")
    first, second = quick(graph).predict(), quick(tmp_path / "graph.npz").predict()
    assert torch.equal(first.probabilities, second.probabilities)
    assert torch.equal(first.p_values, second.p_values)
    refuses(GraphError, "leave out `edges`", quick, graph, "edges.csv")
    refuses(GraphError, "needs one of edges", quick, "nodes.csv")
    refuses(GraphError, "needs one of edges", quick, pa.table({"id": [1]}))


def test_what_is_said_of_tables_is_refused_of_a_graph(tables: tuple[Path, Path]) -> None:
    graph = graph_of()
    with pytest.raises(GraphError, match="a whole graph, and split and undirected are for tables: leave them out"):
        quick(graph, split="part", undirected=True)
    refuses(GraphError, "a whole graph, and features is for tables", quick, graph, features=["w1"])
    model = quick(graph)
    for asked in (model.predict, model.evaluate, model.predict_chunks):
        refuses(GraphError, "a whole graph, and `context` is for tables", asked, graph, context=tables)
        refuses(GraphError, "leave out `edges`", asked, graph, tables[1])


def test_masks_of_a_tensor_file_are_the_parts(tmp_path: Path) -> None:
    graph = graph_of(share=1.0)
    number = torch.arange(300)
    masks = {"train_mask": number % 5 < 2, "val_mask": number % 5 == 2, "test_mask": number % 5 == 3}
    torch.save({"x": graph.features, "edge_index": graph.edge_index, "y": graph.labels, **masks}, tmp_path / "data.pt")
    model = quick(tmp_path / "data.pt")
    labelled = graph.labels >= 0
    for name, mask in masks.items():
        assert model.summary["parts"][name.removesuffix("_mask")] == int((mask & labelled).sum())
    assert model.summary["parts"]["calibration"] == int(((number % 5 == 4) & labelled).sum())
    assert model.summary["judged_on"] == "test"


def test_a_split_column_is_respected_and_no_feature(tables: tuple[Path, Path]) -> None:
    nodes, edges = pa.csv.read_csv(tables[0]), tables[1]
    words = ["train", "train", "val", "calibration", "test", None]
    part = [words[row % 6] for row in range(300)]
    model = quick(nodes.append_column("part", pa.array(part)), edges, split="part")
    label = nodes["topic"].to_pylist()
    counts = {name: sum(p == name and bool(c) for p, c in zip(part, label, strict=True)) for name in words[1:5]}
    assert model.summary["parts"] == counts  # all are given, so nothing is dealt
    assert model.summary["features"] == quick(nodes, edges).summary["features"]
    assert (model.summary["judged_on"], model.summary["judged"]) == ("test", counts["test"])
    ids = [f"n{row:04d}" for row in range(300) if part[row] == "calibration" and label[row]]
    held = model.method.calibration_.known.nodes.numpy()
    assert model.method.graph_.node_ids[held].tolist() == ids


def test_given_nodes_win_over_dealt_ones_and_must_not_overlap() -> None:
    graph = graph_of()
    labelled = (graph.labels >= 0).nonzero().squeeze(-1)
    train, val, held = labelled[:60], labelled[60:80], labelled[80:110]
    model = quick(graph, train=train, val=val, calibration=held)
    assert model.summary["parts"] == {"train": 60, "val": 20, "calibration": 30}
    with pytest.raises(GraphError, match=f"node {int(val[0])} is in both val and calibration"):
        quick(graph, train=train, val=val, calibration=labelled[60:100])
    rest = quick(graph, train=train, val=labelled[60:])
    assert rest.summary["parts"]["val"] + rest.summary["parts"]["calibration"] == len(labelled) - 60
    assert any("half of the validation nodes calibrate" in line for line in rest.summary["warnings"])
    refuses(GraphError, "no labelled node is left for calibration", quick, graph, train=labelled[1:], val=labelled[:1])
    refuses(GraphError, "no node has a label", quick, graph.replace(labels=torch.full((300,), -1)))


def test_fits_in_threads_collect_their_own_warnings_and_no_others() -> None:
    graph = graph_of()
    labelled = (graph.labels >= 0).nonzero().squeeze(-1)
    show, begun = warnings.showwarning, threading.Barrier(3)

    def fitted(val: torch.Tensor) -> list[str]:
        begun.wait()
        return quick(graph, train=labelled[:60], val=val).summary["warnings"]

    with ThreadPoolExecutor(2) as pool, warnings.catch_warnings(record=True) as others:
        warnings.simplefilter("always")
        recording = warnings.showwarning
        calls = [pool.submit(fitted, val) for val in (labelled[60:], labelled[60:80])]
        begun.wait()
        while not all(call.done() for call in calls):
            warnings.warn("of this thread", UserWarning, stacklevel=1)
            assert warnings.showwarning is recording
            time.sleep(0.01)
        first, second = (call.result() for call in calls)
    assert warnings.showwarning is show
    assert any("half of the validation nodes calibrate" in line for line in first)
    assert not any("half of the validation nodes calibrate" in line for line in second)
    assert {str(each.message) for each in others if each.category is UserWarning} == {"of this thread"}
    assert "of this thread" not in [*first, *second]


# ---- what is said of it


@pytest.mark.parametrize("method", ["credal-coverage", "vanilla", "credal-lj", "energy", "degree"])
def test_a_summary_counts_as_one_would_by_hand(method: str, tables: tuple[Path, Path]) -> None:
    model = quick(*tables, method=method, settings={} if method == "degree" else FAST)
    summary, prediction = model.summary, model.predict()
    rows = pa.csv.read_csv(tables[0], convert_options=pa.csv.ConvertOptions(strings_can_be_null=True))
    names = rows["topic"].to_pylist()
    assert (summary["nodes"], summary["classes"]) == (300, list(CLASSES))
    assert summary["labelled"] == sum(name is not None for name in names) == sum(summary["parts"].values())
    held = model.method.calibration_.known.nodes.tolist()
    assert (summary["judged_on"], summary["judged"]) == ("calibration", len(held))
    truth = [CLASSES.index(names[node]) for node in held]
    if method == "degree":
        assert (summary["metrics"], summary["sets"]) == ({}, [])
        assert "predicts no classes" in str(model)
        assert "has learnt" not in str(model)
    else:
        p = prediction.probabilities[held].double()
        right = [int(row.argmax()) == label for row, label in zip(p, truth, strict=True)]
        assert summary["metrics"]["accuracy"] == pytest.approx(np.mean(right))
        losses = [-math.log(max(float(row[label]), 1e-300)) for row, label in zip(p, truth, strict=True)]
        assert summary["metrics"]["nll"] == pytest.approx(np.mean(losses), rel=1e-5)
        for row in summary["sets"]:
            kept = prediction.sets(row["coverage"])[held]
            assert row["size"] == pytest.approx(float(kept.sum(-1).double().mean()))
            assert row["covered"] == np.mean([bool(k[label]) for k, label in zip(kept, truth, strict=True)])
            assert row["covered"] >= row["coverage"]  # of the calibration nodes themselves
    unlabelled = [node for node, name in enumerate(names) if name is None]
    calibration = prediction.score[held]
    for row in summary["alarms"]:
        p_values = [(1 + int((calibration >= prediction.score[node]).sum())) / (1 + len(held)) for node in unlabelled]
        assert row["flagged"] == sum(p <= row["false_alarms"] for p in p_values)
        assert row["of"] == len(unlabelled)
        assert row["expected"] == pytest.approx(row["false_alarms"] * row["of"])
    assert [row["false_alarms"] for row in summary["alarms"]] == [0.05, 0.1, 0.2]  # 0.01 needs 99 nodes
    lines = str(model).splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 100


def test_settings_reach_the_method_and_what_it_stands_on(tables: tuple[Path, Path]) -> None:
    model = quick(*tables, method="energy", settings={"epochs": 7, "temperature": 3.0}, seed=5)
    assert model.method.get_params()["temperature"] == 3.0
    assert parts_of(model.method)["model"].history_[-1].epoch == 7
    assert parts_of(model.method)["model"].seed == 5
    refuses(MethodError, "nonsense", quick, *tables, settings={"nonsense": 1})
    refuses(MethodError, "give `out`", quick, *tables, tune=2)
    first, second = quick(*tables, seed=1), quick(*tables, seed=2)
    assert first.method.calibration_.known.nodes.tolist() != second.method.calibration_.known.nodes.tolist()


@pytest.mark.slow
def test_tuning_sets_what_it_found(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    model = quick(graph_of(count=120), settings={"epochs": 5}, tune=2, out=tmp_path / "model")
    best = json.loads((tmp_path / "model" / "tuning" / "best.json").read_text())
    (found,) = (entry["config"] for entry in best["best"]["graph"]["methods"].values())
    assert found
    assert found.items() <= model.method.get_params().items()
    assert model.method.get_params()["epochs"] == 5
    assert load_model(tmp_path / "model").method.get_params() == model.method.get_params()


@pytest.mark.parametrize("count", [24, 40])
def test_with_too_few_calibration_nodes_it_works_and_promises_nothing(count: int, tmp_path: Path) -> None:
    nodes, edges = write_tables(tmp_path, count, seed=1)
    model = quick(nodes, edges, out=tmp_path / "model")
    held = model.summary["parts"]["calibration"]
    assert held < 19
    text, card = str(model), (tmp_path / "model" / "README.md").read_text()
    if held < 4:
        assert f"{held} calibration nodes are too few" in text
        assert "too few for a guarantee" in card
        assert "with at most the chosen probability" not in card
    assert (tmp_path / "model" / "report.html").stat().st_size > 10_000
    prediction = model.predict()
    refuses(MethodError, f"needs 19 calibration nodes; {held} are available", prediction.to_table)
    false_alarms, coverage = model.promises(prediction, None, None)
    assert false_alarms is None
    assert (coverage is None) == (held < 9)
    assert "p_value" in prediction.to_table(false_alarms, coverage).column_names
    assert model.promises(prediction, 0.3, 0.5) == (0.3, 0.5)  # what is asked for is not changed
    strange = write_tables(tmp_path / "new", 60, seed=2, name="z{}".format)
    assert "too few calibration nodes" in str(model.evaluate(*strange))


# ---- predict and evaluate


def test_new_nodes_may_hang_on_those_of_fit(covered: tuple[Model, Path], tables: tuple[Path, Path]) -> None:
    model, folder = covered
    rows = pa.csv.read_csv(tables[0]).to_pylist()
    new = pa.Table.from_pylist([{**rows[k], "id": f"new{k}", "topic": None} for k in range(20)])
    edges = pa.table({"source": [f"new{k}" for k in range(20)], "target": [f"n{k + 1:04d}" for k in range(20)]})
    prediction = load_model(folder).predict(new, edges, context=tables)
    assert prediction.node_ids.tolist() == [f"new{k}" for k in range(20)]
    assert prediction.calibration.alike
    again = load_model(folder).predict(new, edges, context=tables[0].parent)  # the folder
    assert torch.equal(prediction.score, again.score)
    alone = load_model(folder).predict(new.drop_columns(["topic"]))
    assert not alone.calibration.alike
    assert len(alone.nodes) == 20
    refuses(GraphError, "n0001", model.predict, new, edges)  # its edges lead to nodes that are nowhere
    one = model.predict(new, edges, context=tables, ids=["new3", "n0000"])
    assert (one.node_ids.tolist(), one.score[0]) == (["new3", "n0000"], prediction.score[3])


def test_what_does_not_fit_the_model_is_refused_by_name(
    vanilla: tuple[Model, Path], tables: tuple[Path, Path], tmp_path: Path
) -> None:
    model = vanilla[0]
    rows = pa.csv.read_csv(tables[0])
    refuses(GraphError, "w3", model.predict, rows.drop_columns(["w3"]), tables[1])
    shuffled = rows.select(["kind", "w4", "w3", "w2", "w1", "id"])
    assert torch.equal(model.predict(shuffled, tables[1]).probabilities, model.predict().probabilities)
    refuses(GraphError, "fitted on a graph and not on tables", quick(graph_of()).predict, *tables)
    refuses(MethodError, "a loaded model does not have the graph", load_model(vanilla[1]).predict)
    refuses(MethodError, "features", model.predict, graph_of())
    graph_of().save(tmp_path / "graph.npz")
    refuses(GraphError, "must be tables", model.predict, rows, tables[1], context=tmp_path / "graph.npz")


def test_features_of_a_whole_graph_are_not_those_of_tables(tables: tuple[Path, Path], tmp_path: Path) -> None:
    """A graph of the same columns, unscaled, is predicted from with a warning; one that the model has read without."""
    model = quick(*tables, features=["w1", "w2", "w3", "w4"])
    Graph.from_tables(*tables, label="topic", features=["w1", "w2", "w3", "w4"]).pack(tmp_path / "graph.cg")
    with pytest.warns(cg.InputWarning, match=r"graph\.cg: features of a whole graph are taken as they are"):
        raw = model.predict(tmp_path / "graph.cg")
    read = model.predict(model.read(*tables).graph)
    assert torch.equal(read.probabilities, model.predict().probabilities)
    assert not torch.allclose(raw.probabilities, read.probabilities)


def test_evaluation_leaves_out_what_was_learnt_and_flags_unknown_classes(
    covered: tuple[Model, Path], tables: tuple[Path, Path], tmp_path: Path
) -> None:
    model = covered[0]
    labelled = write_tables(tmp_path, share=1.0, unfamiliar_label="d")  # the same nodes, all labelled now
    result = model.evaluate(*labelled)
    rows = pa.csv.read_csv(labelled[0])["topic"].to_pylist()
    seen = {int(node) for known in model.parts.values() for node in known.nodes}
    judged = [node for node in range(300) if node not in seen]
    unfamiliar = np.array([rows[node] == "d" for node in judged])
    assert (result.nodes, result.unfamiliar, result.left_out) == (len(judged), unfamiliar.sum(), len(seen))
    prediction = model.predict()
    flagged = prediction.flag_unfamiliar(0.05)[judged].numpy()
    assert (result.flagged_known, result.flagged_ood) == (flagged[~unfamiliar].mean(), flagged[unfamiliar].mean())
    known = [node for node, other in zip(judged, unfamiliar, strict=True) if not other]
    kept = prediction.sets(0.95)
    hits = [bool(kept[node, CLASSES.index(rows[node])]) for node in known]
    assert result.covered == np.mean(hits)
    assert result.set_size == pytest.approx(float(kept[known].double().sum(-1).mean()))
    right = [CLASSES[int(prediction.classes[node])] == rows[node] for node in known]
    assert result.evaluation.metrics["accuracy"] == pytest.approx(np.mean(right))
    assert result.calibrated_here
    assert f"{unfamiliar.sum()} of them of no known class" in str(result)
    for tables_, words in (
        (tables, "fitted with all labelled nodes"),
        (write_tables(tmp_path / "b", share=0.0), "no node has"),
    ):
        with pytest.raises(MethodError, match=words):
            model.evaluate(*tables_)


@pytest.mark.filterwarnings("ignore::credalgnn.InputWarning")  # graphs without ids
def test_classes_of_a_graph_are_numbered_as_the_model_has_them() -> None:
    graph = graph_of(share=1.0)
    model = quick(graph, train=(graph.labels >= 0).nonzero().squeeze(-1)[:100])
    other = graph_of(seed=7, share=1.0)
    turned = other.replace(labels=torch.where(other.labels >= 0, 2 - other.labels, -1), class_names=CLASSES[::-1])
    first, second = model.evaluate(other), model.evaluate(turned)
    assert first.evaluation.metrics == second.evaluation.metrics
    assert first.evaluation.metrics["accuracy"] > 0.6


def test_nodes_that_cannot_be_told_from_those_learnt_from_are_no_secret(tmp_path: Path) -> None:
    """The same graph, packed, is another one without ids."""
    for ids in (None, range(300)):
        graph = graph_of(share=1.0, ids=ids)
        model = quick(graph, train=(graph.labels >= 0).nonzero().squeeze(-1)[:100])
        packed = graph.pack(tmp_path / "graph.cg")
        if ids is None:
            with pytest.warns(cg.InputWarning, match="that takes ids, in this graph and in the fitted one"):
                result = model.evaluate(packed)
            assert result.left_out == 0
            assert not result.identified
            assert "They may be among these." in str(result)
            refuses(MethodError, "fitted with all labelled nodes", model.evaluate, graph)
        else:
            refuses(MethodError, "fitted with all labelled nodes", model.evaluate, packed)
            later = packed.replace(labels=torch.zeros(300, dtype=torch.int64))  # unfamiliar nodes have one now
            result = model.evaluate(later)
            assert result.identified
            assert result.left_out == int((graph.labels >= 0).sum())
            assert "among these" not in str(result)


def test_nodes_learnt_from_are_known_where_one_more_makes_numbers_texts() -> None:
    graph = graph_of(share=1.0, ids=range(300))
    model = quick(graph, train=(graph.labels >= 0).nonzero().squeeze(-1)[:100])
    more = graph.with_nodes(graph.features[:1], torch.tensor([[300], [0]]), ["a"], [300])
    texts = more.replace(node_ids=[*map(str, range(300)), "new"])
    result = model.evaluate(texts)
    assert (result.nodes, result.left_out, result.identified) == (1, int((graph.labels >= 0).sum()), True)


def test_a_model_predicts_within_a_budget_and_in_chunks(tables: tuple[Path, Path], tmp_path: Path) -> None:
    graph = graph_of(ids=range(300))
    model = quick(graph)
    whole = model.predict()
    packed = graph.pack(tmp_path / "graph.cg")
    for asked in ({}, {"data": packed}):
        chunks = list(model.predict_chunks(**asked, size=70, memory="100MiB"))
        assert [len(chunk.nodes) for chunk in chunks] == [70, 70, 70, 70, 20]
        found = torch.cat([chunk.probabilities for chunk in chunks])
        torch.testing.assert_close(found, whole.probabilities, rtol=0, atol=1e-5)
        small = model.predict(**asked, memory="100MiB")
        torch.testing.assert_close(small.probabilities, whole.probabilities, rtol=0, atol=1e-5)
    (some,) = model.predict_chunks(packed, ids=[7, 3])
    assert some.node_ids.tolist() == [7, 3]
    refuses(MethodError, "memory: 'much'", model.predict, memory="much")
    of_tables = quick(*tables)
    (only,) = of_tables.predict_chunks(*tables)
    assert torch.equal(only.probabilities, of_tables.predict(*tables).probabilities)


def test_a_large_graph_is_judged_by_a_sample(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A graph that fits is judged whole; summary, card and evaluation say how many nodes are judged."""
    monkeypatch.setattr("credalgnn.model.summary.SAMPLE", 20)
    graph = graph_of(share=1.0, ids=range(300))
    train = (graph.labels >= 0).nonzero().squeeze(-1)[:150]
    partly = graph.replace(labels=graph.labels.where(torch.isin(torch.arange(300), train), -1))
    asked: list[int] = []
    predict = cg.Vanilla.predict

    def counted(method: Any, graph: Any = None, nodes: Any = None, **options: Any) -> Any:
        asked.append(-1 if nodes is None else len(nodes))
        return predict(method, graph, nodes, **options)

    monkeypatch.setattr(cg.Vanilla, "predict", counted)
    model = quick(partly, memory="100MiB", out=tmp_path / "model")
    summary = model.summary
    assert "On 20 of 30 calibration nodes" in (tmp_path / "model" / "README.md").read_text()
    assert not (tmp_path / "model" / "report.html").exists()
    assert asked == [40]  # 20 to judge by, and 20 without a label
    assert summary["judged"] == 20 < summary["parts"]["calibration"] == 30
    assert "On 20 of 30 calibration nodes that took no part in training" in str(model)
    assert {row["of"] for row in summary["alarms"]} == {20}
    assert "Unfamiliar nodes among 20 of the 150 nodes" in str(model)
    later = graph.replace(labels=graph.labels.where(graph.labels >= 0, 3), class_names=(*CLASSES, "d"))
    whole, some = model.evaluate(later, memory="8GiB"), model.evaluate(later, memory="100MiB")
    again = model.evaluate(later, memory="100MiB")
    assert asked[1:] == [150, 20, 20]
    assert (whole.nodes, whole.eligible, some.nodes, some.eligible) == (150, 150, 20, 150)
    assert str(whole).startswith("150 labelled nodes judged")
    assert str(some).startswith(f"20 of 150 labelled nodes judged, {some.unfamiliar} of them")
    assert some.left_out == whole.left_out == 150
    assert some.evaluation == again.evaluation
    assert 0 < some.unfamiliar < 20  # neither the first nor the last ones


def test_answers_for_many_classes_are_made_within_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """1,092 answers of 20 classes take 1 MiB: no more are looked at after training, nor when a model is used."""
    graph = csbm(nodes=3_000, classes=20, degree=3, features=5, seed=1)
    known = torch.arange(3_000) < 1_500
    asked: list[int] = []
    prediction = cg.Vanilla._prediction

    def counted(method: Any, nodes: Any, output: Any) -> Any:
        asked.append(len(nodes))
        return prediction(method, nodes, output)

    model = quick(graph.replace(labels=graph.labels.where(known, -1)), memory="1MiB")
    assert model.summary["alarms"][0]["of"] == 273  # half of what there is room for, and half of that for each kind
    monkeypatch.setattr(cg.Vanilla, "_prediction", counted)
    result = model.evaluate(graph, memory="1MiB")
    assert (result.nodes, result.eligible) == (546, 1_500)
    out = tmp_path / "predictions.csv"
    assert "3,000 nodes predicted" in predict_to(model, out, graph, memory="1MiB", progress=False)
    assert (len(out.read_text().splitlines()), max(asked)) == (3_001, 546)


def test_approximate_neighbours_are_said_to_be(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("faiss")
    assert not quick(graph_of(), method="knn").summary["notes"]
    monkeypatch.setattr("credalgnn.methods.neighbours.EXACT_UP_TO", 50)
    model = quick(graph_of(), method="knn", out=tmp_path / "model")
    found = f"Neighbours are approximate: recall about {100 * model.method.recall:.0f} %."
    assert model.summary["notes"] == [found]
    assert found in str(model)
    assert found in (tmp_path / "model" / "README.md").read_text()
    text = predict_to(load_model(tmp_path / "model"), tmp_path / "p.csv", graph_of(seed=1), progress=False)
    assert "\nNeighbours are approximate: " in text
    assert "This is not the graph that the model was fitted with." in text


# ---- handed on


def test_a_model_is_the_same_in_another_process_after_a_zip(
    covered: tuple[Model, Path], tables: tuple[Path, Path], tmp_path: Path
) -> None:
    packed = shutil.make_archive(str(tmp_path / "packed"), "zip", covered[1])
    shutil.unpack_archive(packed, tmp_path / "unpacked")
    code = (
        "import sys, torch, credalgnn.model as m\n"
        "p = m.load_model(sys.argv[1]).predict(sys.argv[2], sys.argv[3])\n"
        "p.to_parquet(sys.argv[4])"
    )
    place = tmp_path / "predictions.parquet"
    subprocess.run([sys.executable, "-c", code, tmp_path / "unpacked", *tables, place], check=True)
    expected = covered[0].predict().to_table()
    assert pa.parquet.read_table(place).equals(expected, check_metadata=True)


def test_a_folder_holds_plain_files_only(covered: tuple[Model, Path]) -> None:
    names = {path.name for path in covered[1].rglob("*")}
    assert names == {*SUMMED, "model.json", "README.md", "report.html"}
    for path in covered[1].iterdir():
        content = path.read_bytes()
        if path.suffix == ".safetensors":
            load_tensors(content)
        elif path.suffix == ".json":
            json.loads(content)
        else:
            content.decode()


def test_the_card_says_what_the_summary_has(covered: tuple[Model, Path]) -> None:
    yaml = pytest.importorskip("yaml")
    model, folder = covered
    card = (folder / "README.md").read_text()
    _, header, body = card.split("---\n", 2)
    fields = yaml.safe_load(header)
    assert fields["library_name"] == "credalgnn"
    assert "conformal-prediction" in fields["tags"]
    summary = model.summary
    assert f"accuracy {100 * summary['metrics']['accuracy']:.1f} %" in body
    for row in summary["sets"]:
        assert f"| {100 * row['coverage']:g} % | {100 * row['covered']:.1f} % | {row['size']:.2f} |" in body
    for row in summary["alarms"]:
        assert f"| {100 * row['false_alarms']:g} % | {row['flagged']:,} | {row['of']:,} |" in body
    assert f"{summary['parts']['calibration']} calibration nodes took no part" in body
    for heading in ("Data", "Quality", "Guarantee", "Usage", "Versions"):
        assert f"\n## {heading}\n" in body
    versions = json.loads(body.split("```json\n")[1].split("```")[0])
    assert (versions["torch"], versions["credalgnn"]) == (torch.__version__, cg.__version__)
    assert json.loads((folder / "model.json").read_text())["summary"] == dict(summary)


def test_a_model_of_an_earlier_version_has_no_notes(own: Path) -> None:
    text = str(load_model(own))
    config = json.loads((own / "model.json").read_text())
    config["summary"].pop("notes")
    config.pop("checksum")
    (own / "model.json").write_bytes(to_json(config))
    assert str(load_model(own)) == text
    load_model(own).save(own.with_name("again"))


def test_hostile_class_names_do_not_spoil_the_card(tmp_path: Path) -> None:
    graph = graph_of().replace(class_names=("a\n---\n# b", "c, d", "`e`"))
    quick(graph, out=tmp_path / "model")
    card = (tmp_path / "model" / "README.md").read_text()
    assert card.count("\n---\n") == 1
    assert "\n# b" not in card
    assert load_model(tmp_path / "model").class_names == graph.class_names
    for name in ("a|b", "value"):
        named = graph.replace(class_names=(name, "b", "c"))
        refuses(MethodError, "rename the class", quick, named, out=tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_damaged_files_are_refused_in_a_line(own: Path, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    for name in (*SUMMED, "model.json"):
        content = (own / name).read_bytes()
        place = random.integers(len(content) // 2, len(content) - 2)
        spoilt = [b"", content[: len(content) // 2], b"\x00" * 100, b"[" * 100_000, b"{}", b"[]", b"null"]
        spoilt.append(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])  # one bit
        for bad in spoilt:
            (own / name).write_bytes(bad)
            with pytest.raises(MethodError) as caught:
                load_model(own)
            assert "\n" not in str(caught.value)
            assert len(str(caught.value)) < 300 + len(str(own))
        (own / name).unlink()
        with pytest.raises(MethodError, match=name if name != "model.json" else "no model in it"):
            load_model(own)
        (own / name).write_bytes(content)
    config = json.loads((own / "model.json").read_text())
    for key in config.keys() - {"checksum"}:
        for value in (None, 7, [], {}):
            if config[key] == value or key in ("made", "versions") or (key, value) in (("parts", []), ("parts", {})):
                continue
            (own / "model.json").write_bytes(to_json({**config, key: value}))
            if key == "tables" and value is None:
                load_model(own)  # as if fitted on a graph
                continue
            with pytest.raises(MethodError) as caught:
                load_model(own)
            assert "\n" not in str(caught.value), key
    refuses(MethodError, "no such folder", load_model, tmp_path / "nowhere")


def test_a_place_that_holds_anything_else_is_left_alone(vanilla: tuple[Model, Path], tmp_path: Path) -> None:
    model = vanilla[0]
    for name in ("README.md", "notes.txt", "watch.svg"):
        place = tmp_path / name.replace(".", "-")
        place.mkdir()
        (place / name).write_text("mine")
        with pytest.raises(MethodError, match=re.escape(f"holds other files ({name})")):
            model.save(place)
        assert ((place / name).read_text(), len(list(place.iterdir()))) == ("mine", 1)
    (tmp_path / "file").write_text("")
    for place, words in (
        (tmp_path / "file", "is a file"),
        (tmp_path / "file" / "deep" / "er", "cannot be made"),
        (vanilla[1], "holds a model already"),
    ):
        with pytest.raises(MethodError, match=words):
            model.save(place)
        with pytest.raises(MethodError, match=words):  # before anything is read or trained
            fit("missing.csv", "missing.csv", out=place)


def test_what_a_kill_left_behind_is_replaced(vanilla: tuple[Model, Path], tmp_path: Path) -> None:
    for left in (["report.html"], ["report.html", "model.safetensors"], [*SUMMED, "README.md", "report.html"]):
        place = tmp_path / str(len(left))
        place.mkdir()
        for name in left:
            (place / name).write_text("half")
        (place / ".model.safetensors.123.part").write_text("half")
        vanilla[0].save(place)
        assert load_model(place).summary == vanilla[0].summary
        assert not list(place.glob(".*"))


def test_a_method_without_classes_has_no_page(tables: tuple[Path, Path], tmp_path: Path) -> None:
    model = quick(*tables, method="degree", settings={}, out=tmp_path / "model")
    assert not (tmp_path / "model" / "report.html").exists()
    card = (tmp_path / "model" / "README.md").read_text()
    assert "predicts no classes" in card
    assert "accuracy " not in card
    loaded = load_model(tmp_path / "model")
    assert torch.equal(loaded.predict(*tables).score, model.predict().score)
    refuses(MethodError, "predicts no classes", report_graph, loaded, tmp_path / "page", *tables)
    new = write_tables(tmp_path / "new", 60, 3, "z{}".format)
    result = loaded.evaluate(*new)
    assert result.covered is None
    assert result.flagged_known is not None
    assert watch(loaded, tmp_path / "model", *new).nodes == 60


def test_a_delimiter_that_was_given_is_kept(tables: tuple[Path, Path], tmp_path: Path) -> None:
    paths = []
    for path in tables:
        paths.append(tmp_path / path.name)
        paths[-1].write_text(path.read_text().replace(",", "^"))
    expected = quick(*paths, delimiter="^", out=tmp_path / "model").predict()
    assert torch.equal(load_model(tmp_path / "model").predict(*paths).probabilities, expected.probabilities)


# ---- watch


def batch(folder: Path, number: int, count: int = 60, shift: float = 0.0) -> tuple[Path, Path]:
    """Nodes of known classes, with edges among themselves; shifted ones look like nothing that was learnt."""
    nodes, edges = write_tables(folder / str(number), count, 100 + number, f"b{number}-{{}}".format, unfamiliar=False)
    if shift:
        header, *lines = nodes.read_text().splitlines()
        moved = []
        for line in lines:
            fields = line.split(",")
            moved.append(
                ",".join([*fields[:2], *(f"{float(text) * 0.1 + shift:.4f}" for text in fields[2:6]), fields[6]])
            )
        nodes.write_text("\n".join([header, *moved]) + "\n")
    return nodes, edges


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of a graph without unfamiliar nodes, of the same kind as the batches."""
    folder = tmp_path_factory.mktemp("watched")
    nodes, edges = write_tables(folder, unfamiliar=False)
    quick(nodes, edges, out=folder / "model")
    return folder / "model"


def test_nothing_happens_without_a_shift_and_a_shift_is_noticed(watched: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(watched, tmp_path / "model"))
    for number in range(1, 9):
        report = watch(load_model(folder), folder, *batch(tmp_path, number))
        assert (report.batch, report.nodes) == (number, 60)
        assert not report.alarm
        assert 0.2 < report.median_p < 0.8
    for number in range(9, 13):
        report = watch(load_model(folder), folder, *batch(tmp_path, number, shift=0.5))
        if report.alarm:
            break
    assert report.alarm
    assert report.highest >= 100.0
    assert "ALARM" in str(report)
    assert "\n" not in report.reason
    assert "0.01" in report.reason
    picture = ElementTree.fromstring((folder / PICTURE).read_text())
    assert picture.tag.endswith("svg")
    bars = [part for part in picture.iter() if part.tag.endswith("rect")]
    assert len(bars) == report.batch
    load_model(folder)  # the folder is still that of a model


def test_a_batch_counts_once_whatever_its_context(watched: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(watched, tmp_path / "model"))
    model, first = load_model(folder), batch(tmp_path, 1)
    watch(model, folder, *first)
    state = (folder / STATE).read_bytes()
    refuses(MethodError, "this is batch 1 again", watch, model, folder, *first)
    with pytest.raises(MethodError, match="this is batch 1 again"):
        watch(model, folder, *first, context=(watched.parent / "nodes.csv", watched.parent / "edges.csv"))
    rows = pa.csv.read_csv(watched.parent / "nodes.csv")
    with pytest.raises(MethodError, match="fitted with all nodes of this batch"):
        watch(model, folder, rows.filter(pa.compute.not_equal(rows["topic"], "")))
    with pytest.raises(MethodError, match=r"watched with false_alarms=0\.01"):
        watch(model, folder, *batch(tmp_path, 2), false_alarms=0.05)
    assert (folder / STATE).read_bytes() == state  # what was refused has left no trace
    again = watch(model, folder, *first, reset=True, false_alarms=0.05)
    assert (again.batch, again.false_alarms) == (1, 0.05)
    assert watch(model, folder, *batch(tmp_path, 2)).false_alarms == 0.05
    (folder / STATE).write_bytes(b"half")
    refuses(MethodError, "begin anew with `reset`", watch, model, folder, *batch(tmp_path, 3))
    assert watch(model, folder, *batch(tmp_path, 3), reset=True).batch == 1


def test_sparse_and_dense_features_are_watched_alike(tmp_path: Path) -> None:
    """A batch is known again, whether the graph it hangs on makes its features sparse or dense."""
    _, edges, truth = blobs(300)
    words = np.zeros((300, 60))
    words[np.arange(300), 15 * truth + np.random.default_rng(0).integers(15, size=300)] = 1.0
    graph = Graph(words, edges, np.where(truth < 3, truth, -1), np.arange(300))
    assert graph.features.layout == torch.sparse_csr
    folder = tmp_path / "model"
    model = fit(graph.subgraph(np.arange(240)), settings=FAST, out=folder, progress=False)
    later = graph.subgraph(np.arange(240, 300))
    first = watch(model, folder, later)
    assert first.nodes == 60
    refuses(MethodError, "this is batch 1 again", watch, model, folder, later)
    others = np.random.default_rng(1).normal(size=(300, 60))
    among = Graph(
        np.vstack([later.features.to_dense().numpy(), others]), later.edge_index, node_ids=np.arange(240, 600)
    )
    assert among.features.layout == torch.strided
    assert batch_content(among, torch.arange(60)) == batch_content(later, torch.arange(60))
    rows = torch.tensor([3, 0])
    dense = later.features.to_dense()
    for sparse, strided in zip(sparse_rows(later.rows(rows)), sparse_rows(dense[rows]), strict=True):
        assert torch.equal(sparse, strided)
    assert torch.equal(sparse_rows(dense[rows])[1], torch.cat([dense[3].nonzero(), dense[0].nonzero()]).squeeze(1))


@pytest.mark.parametrize("names", [None, "n{}".format, int])
def test_the_hash_of_a_batch_is_that_of_all_of_it_at_once(
    names: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What chunks are hashed to is what the arrays are, with indices of 64 bits."""
    monkeypatch.setattr("credalgnn.model.watching.NUMBERS", 100)  # 25 nodes a chunk
    monkeypatch.setattr("credalgnn.graphs.edges.Edges.chunks", lambda edges: ((k, k + 50) for k in range(0, 300, 50)))
    graph = graph_of(ids=None if names is None else [names(k) for k in range(300)])
    rows = np.arange(20, 290)
    matrix = scipy.sparse.csr_matrix(graph.features.numpy()[rows])
    for each in (graph, graph.pack(tmp_path / "graph.cg")):
        ends = each.edge_index.numpy() - 20
        ends = ends[:, ((ends >= 0) & (ends < 270)).all(0)]
        digest = hashlib.blake2b(digest_size=16)
        for part in (np.diff(matrix.indptr).astype(np.int64), matrix.indices.astype(np.int64), matrix.data, ends):
            digest.update(part.tobytes())
        if names is not None:
            digest.update("\0".join(str(names(k)) for k in rows).encode())
        assert batch_content(each, torch.from_numpy(rows).flip(0)) == digest.hexdigest()


def test_a_packed_graph_is_watched_and_reported_within_memory_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever asks for all edges or features of the packed graph fails."""
    graph = graph_of(ids=range(300))
    folder = tmp_path / "model"
    model = quick(graph.subgraph(np.arange(200)), out=folder)
    packed = graph.pack(tmp_path / "graph.cg")
    whole = watch(model, folder, graph, reset=True)
    for name in ("edge_index", "in_memory"):
        monkeypatch.setattr(type(packed), name, property(lambda _: pytest.fail("the graph was read as a whole")))
    small = watch(load_model(folder), folder, packed, reset=True, memory="100MiB")
    assert small.nodes == whole.nodes > 0
    assert small.median_p == pytest.approx(whole.median_p, abs=1e-3)
    refuses(MethodError, "this is batch 1 again", watch, model, folder, packed, memory="100MiB")
    monkeypatch.setattr("credalgnn.methods.large.available_memory", lambda: 100 << 20)
    with pytest.raises(MethodError, match=r"300 nodes does not fit in memory: use credalgnn predict"):
        report_graph(load_model(folder), tmp_path / "page", packed)
    assert not (tmp_path / "page").exists()


def test_nodes_of_fit_are_not_watched(watched: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(watched, tmp_path / "model"))
    model = load_model(folder)
    graph = model.read(watched.parent / "nodes.csv", watched.parent / "edges.csv").graph
    report = watch(model, folder, watched.parent / "nodes.csv", watched.parent / "edges.csv")
    assert report.nodes == 300 - int(model.fitted_mask(graph).sum()) < 300


def _watch_one(folder: Path, nodes: Path, edges: Path) -> None:
    torch.set_num_threads(1)
    watch(load_model(folder), folder, nodes, edges)


@pytest.mark.slow
def test_watchers_at_once_lose_no_batch(watched: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(watched, tmp_path / "model"))
    context = multiprocessing.get_context("spawn")
    jobs = [context.Process(target=_watch_one, args=(folder, *batch(tmp_path, number))) for number in range(2)]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join(120)
        assert job.exitcode == 0
    assert watch(load_model(folder), folder, *batch(tmp_path, 9)).batch == 3


def test_a_picture_of_any_history_is_valid() -> None:
    for evidence in ([0.0], [-300.0, 308.0], [0.1] * 500):
        text = evidence_chart(evidence, [0.5] * len(evidence), 2.0)
        root = ElementTree.fromstring(text)
        numbers = [float(n) for part in root.iter() for n in re.findall(r"-?[\d.]+", part.get("points") or "")]
        assert all(0.0 <= number <= 760.0 for number in numbers)
        assert "nan" not in text
