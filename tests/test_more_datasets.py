"""Graphs that others use: small files of the genuine formats, as PyG reads them, and the real structure of ArXiv."""

from __future__ import annotations

import gzip
import io
import json
import math
import os
import re
import sys
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from credalgnn.cli import main
from credalgnn.graphs import DATASETS, GraphError, Task, load_graph, load_task
from credalgnn.testing import check_dataset
from local_server import Handler
from pyg import Actor, Amazon, CitationFull, Coauthor, HeterophilousGraphDataset, WebKB, WikiCS
from raw_files import by_hand
from raw_more import NODES, Expected, write_geom_gcn, write_heterophilous, write_structure, write_wiki_cs
from raw_planetoid import CLASSES as GOODS
from raw_planetoid import write_gnn_benchmark

MIRROR = Path(os.environ.get("CREDALGNN_MIRROR") or Path(__file__).parents[2] / "shared" / "datasets")
STRUCTURE = "arxiv_structure/raw"
needs_structure = pytest.mark.skipif(
    not (MIRROR / STRUCTURE).is_dir(), reason="needs the raw files: set CREDALGNN_MIRROR"
)


def benchmark(root: Path, file: str, pickled: bool = False) -> Expected:
    features, labels, edges = write_gnn_benchmark(root, file, pickled)
    return Expected((features > 0).astype(np.float32), labels.tolist(), edges)


# How the files of a graph are written below a folder, and PyG's class that reads them there.
WRITE: dict[str, Callable[[Path], Expected]] = {
    "cora-ml": lambda root: benchmark(root, "cora_ml/raw/cora_ml.npz", pickled=True),
    "photo": lambda root: benchmark(root, "Photo/raw/amazon_electronics_photo.npz"),
    "physics": lambda root: benchmark(root, "Physics/raw/ms_academic_phy.npz", pickled=True),
    "wiki-cs": write_wiki_cs,
    "roman-empire": lambda root: write_heterophilous(root, "roman_empire", 18),
    "amazon-ratings": lambda root: write_heterophilous(root, "amazon_ratings"),
    "actor": lambda root: write_geom_gcn(root, "Actor", "film", listed=True),
    "chameleon-filtered": lambda root: write_heterophilous(root, "chameleon_filtered"),
    "squirrel-filtered": lambda root: write_heterophilous(root, "squirrel_filtered"),
    "cornell": lambda root: write_geom_gcn(root, "cornell", "cornell"),
    "texas": lambda root: write_geom_gcn(root, "texas", "texas"),
    "wisconsin": lambda root: write_geom_gcn(root, "wisconsin", "wisconsin"),
}
PYG: dict[str, Callable[[Path], Any]] = {
    "cora-ml": lambda root: CitationFull(str(root), "Cora_ML"),
    "photo": lambda root: Amazon(str(root), "Photo"),
    "physics": lambda root: Coauthor(str(root), "Physics"),
    "wiki-cs": lambda root: WikiCS(str(root / "WikiCS"), is_undirected=True),
    "roman-empire": lambda root: HeterophilousGraphDataset(str(root), "Roman-empire"),
    "amazon-ratings": lambda root: HeterophilousGraphDataset(str(root), "Amazon-ratings"),
    "actor": lambda root: Actor(str(root / "Actor")),
    "cornell": lambda root: WebKB(str(root), "Cornell"),
    "texas": lambda root: WebKB(str(root), "Texas"),
    "wisconsin": lambda root: WebKB(str(root), "Wisconsin"),
}
SPLITS = {name: 20 if name == "wiki-cs" else 10 for name in WRITE if name not in ("cora-ml", "photo", "physics")}


@pytest.fixture(autouse=True)
def _no_surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CREDALGNN_MIRROR", raising=False)
    monkeypatch.setenv("CREDALGNN_DATA", str(tmp_path / "data"))


@pytest.fixture
def mirror(tmp_path: Path) -> Path:
    return tmp_path / "mirror"


def nodes(mask: np.ndarray) -> list[int]:
    return np.flatnonzero(mask).tolist()


# what is read


@pytest.mark.parametrize("name", WRITE)
def test_graphs_from_the_original_files(name: str, mirror: Path) -> None:
    expected = WRITE[name](mirror)
    graph = load_graph(name, mirror=mirror)
    assert graph.num_nodes == len(expected.labels)
    assert np.array_equal(graph.features.to_dense(), expected.features)
    assert graph.labels.tolist() == expected.labels
    assert list(zip(*graph.edge_index.tolist(), strict=True)) == expected.edges
    assert load_graph(name).fingerprint == graph.fingerprint  # from the cache: no mirror is named


@pytest.mark.parametrize("name", SPLITS)
def test_the_split_seed_chooses_the_public_split(name: str, mirror: Path) -> None:
    expected = WRITE[name](mirror)
    assert expected.masks is not None
    assert len(expected.masks[0]) == SPLITS[name]
    for seed, (train, val, test) in enumerate(zip(*expected.masks, strict=True)):
        task = load_task(name, seed, ood_classes=(), mirror=mirror)
        assert task.split.train.tolist() == nodes(train)
        assert task.split.val.tolist() == nodes(val)
        assert task.split.test.tolist() == nodes(test)
    with pytest.raises(GraphError, match=rf"{name} has the public splits 0\.\.{SPLITS[name] - 1}"):
        load_task(name, SPLITS[name], mirror=mirror)


@pytest.mark.parametrize("name", ["cora-ml", "photo", "physics"])
def test_without_public_splits_the_seed_draws_one(name: str, mirror: Path) -> None:
    WRITE[name](mirror)
    tasks = [load_task(name, seed, mirror=mirror) for seed in range(3)]
    for seed, task in enumerate(tasks):
        drawn = Task.leave_out(task.graph, DATASETS[name].ood_classes or (), split_seed=seed)
        assert task.fingerprint == drawn.fingerprint
    assert len({task.fingerprint for task in tasks}) == 3


def test_names_of_classes_are_read_where_they_are_no_pickle(mirror: Path) -> None:
    for name, names in (("photo", "goods "), ("cora-ml", ""), ("physics", "")):
        WRITE[name](mirror)
        assert load_graph(name, mirror=mirror).class_names == tuple(f"{names}{k}" for k in range(GOODS))


@pytest.mark.parametrize(("name", "listed"), [("actor", True), ("texas", False)])
def test_nodes_may_stand_in_any_order(name: str, listed: bool, mirror: Path, tmp_path: Path) -> None:
    folder, stem = ("Actor", "film") if listed else (name, name)
    write_geom_gcn(mirror, folder, stem, listed)
    expected = write_geom_gcn(tmp_path / "shuffled", folder, stem, listed, shuffled=True)
    texts = [
        (root / folder / "raw/out1_node_feature_label.txt").read_text() for root in (mirror, tmp_path / "shuffled")
    ]
    assert texts[0] != texts[1]
    graph = load_graph(name, mirror=tmp_path / "shuffled", data_root=tmp_path / "other")
    assert np.array_equal(graph.features.to_dense(), expected.features)
    assert graph.labels.tolist() == expected.labels


@pytest.mark.parametrize("name", PYG)
@pytest.mark.filterwarnings("ignore")
def test_pyg_reads_the_same_from_the_same_files(name: str, mirror: Path) -> None:
    WRITE[name](mirror)
    graph = load_graph(name, mirror=mirror)
    data = PYG[name](mirror)[0]
    assert torch.equal(graph.features.to_dense(), data.x)
    assert torch.equal(graph.edge_index, data.edge_index)
    assert torch.equal(graph.labels, data.y)
    for seed in range(SPLITS.get(name, 0)):
        split = load_task(name, seed, ood_classes=(), mirror=mirror).split
        val = data.val_mask | data.stopping_mask if name == "wiki-cs" else data.val_mask
        test = data.test_mask if name == "wiki-cs" else data.test_mask[:, seed]
        assert split.train.tolist() == nodes(data.train_mask[:, seed])
        assert split.val.tolist() == nodes(val[:, seed])
        assert split.test.tolist() == nodes(test)


@pytest.mark.parametrize("name", ["photo", "wiki-cs", "roman-empire", "actor", "cornell", "arxiv-structure"])
def test_they_keep_the_contract_of_data_sets(name: str, mirror: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (WRITE | {"arxiv-structure": write_structure})[name](mirror)
    monkeypatch.setenv("CREDALGNN_MIRROR", str(mirror))
    check_dataset(name, split_seed=1)


# what is declared


@pytest.mark.parametrize("name", PYG)
@pytest.mark.filterwarnings("ignore")
def test_files_are_those_that_pyg_downloads_and_lie_where_it_puts_them(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, str] = {}

    def note(url: str, folder: str) -> None:
        asked[str((Path(folder) / url.split("/")[-1]).relative_to(tmp_path))] = url

    for kind in (Actor, Amazon, CitationFull, Coauthor, HeterophilousGraphDataset, WebKB, WikiCS):
        monkeypatch.setattr(sys.modules[kind.__module__], "download_url", note)
    with pytest.raises(FileNotFoundError):
        PYG[name](tmp_path)
    assert asked == {place: file.url for place, file in DATASETS[name].files.items()}


def test_filtered_graphs_lie_beside_those_of_the_same_repository() -> None:
    (place,) = DATASETS["roman-empire"].files
    for name in ("chameleon-filtered", "squirrel-filtered"):
        stem = name.replace("-", "_")
        files = {path: file.url for path, file in DATASETS[name].files.items()}
        url = DATASETS["roman-empire"].files[place].url
        assert files == {place.replace("roman_empire", stem): url.replace("roman_empire", stem)}


def test_left_out_are_the_papers_the_authors_or_the_first_three_tenths() -> None:
    authors = {"roman-empire": 5, "amazon-ratings": 2}
    for name, dataset in DATASETS.items():
        if not dataset.files or dataset.paper:
            continue
        assert dataset.published is not None
        count = authors.get(name, math.ceil(3 * dataset.published.classes / 10))
        assert tuple(dataset.ood_classes or ()) == tuple(range(count)), name
        assert dataset.published.classes - count >= 2


@pytest.mark.parametrize("name", WRITE)
def test_left_out_classes_of_the_tasks(name: str, mirror: Path) -> None:
    expected = WRITE[name](mirror)
    task = load_task(name, mirror=mirror)
    assert task.ood_classes == tuple(DATASETS[name].ood_classes or ())
    assert all(expected.labels[node] not in task.ood_classes for node in task.training.train.tolist())


# nodes, edges in the files once duplicates are gone and directions added, classes; as PyG's and DGL's documents have
# them, and for the filtered graphs twice the pairs of Platonov et al.
SIZES = {
    "cora-ml": (2995, 16_316, 7),
    "photo": (7650, 238_162, 8),
    "physics": (34_493, 495_924, 5),
    "wiki-cs": (11_701, 431_726, 10),
    "roman-empire": (22_662, 2 * 32_927, 18),
    "amazon-ratings": (24_492, 2 * 93_050, 5),
    "actor": (7600, 30_019, 5),
    "chameleon-filtered": (890, 2 * 8854, 5),
    "squirrel-filtered": (2223, 2 * 46_998, 5),
    "cornell": (183, 298, 5),
    "texas": (183, 325, 5),
    "wisconsin": (251, 515, 5),
    "arxiv-structure": (169_343, 1_166_243, 5),
}


def test_the_listing_has_them_with_published_sizes_in_straight_columns(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["datasets"]) == 0
    header, *lines = capsys.readouterr().out.splitlines()
    rows = {line.split()[0]: line for line in lines[: len(DATASETS)]}
    assert list(rows) == list(DATASETS)
    for name, (nodes_, edges, classes) in SIZES.items():
        assert rows[name].split()[1:4] == [f"{nodes_:,}", f"{edges:,}", str(classes)]
    for word in ("nodes", "edges", "classes", "homophily"):
        end = header.index(word) + len(word)
        assert all(re.fullmatch(r"\S ", row[end - 1 : end + 1]) for row in rows.values()), word
    assert max(map(len, rows.values())) <= 165


def test_the_documents_say_the_same() -> None:
    text = (Path(__file__).parents[1] / "docs" / "data.md").read_text()
    table = text[text.index("### More graphs of the field") : text.index("## Add a data set")]
    rows = {row[0]: row[1:] for row in re.findall(r"^\| `([\w-]+)` \| `([^`]+)`(.*) \|$", table, flags=re.M)}
    assert set(rows) == set(SIZES)
    for name, (place, rest) in rows.items():
        folder = place[: place.index("/raw/") + len("/raw/")]
        assert all(file.startswith(folder) for file in DATASETS[name].files)
        *_, nodes_, edges, _, classes, left_out = (cell.strip() for cell in rest.split("|"))
        assert (nodes_, edges, classes) == tuple(f"{count:,}" for count in SIZES[name])
        left = tuple(DATASETS[name].ood_classes or ())
        assert left_out in (", ".join(map(str, left)), f"{left[0]} to {left[-1]}")


# downloads


def redirect(monkeypatch: pytest.MonkeyPatch, name: str, address: Callable[[str], str]) -> None:
    files = DATASETS[name].files
    for relative, file in list(files.items()):
        monkeypatch.setitem(files, relative, replace(file, url=address(relative)))


@pytest.mark.parametrize("name", WRITE)
def test_graphs_are_downloaded_once(
    name: str, server: tuple[str, type[Handler]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base, handler = server
    WRITE[name](tmp_path / "origin")
    for relative in DATASETS[name].files:
        handler.files[f"/{relative}"] = (tmp_path / "origin" / relative).read_bytes()
    redirect(monkeypatch, name, lambda relative: f"{base}/{relative}")
    graph = load_graph(name)
    assert sorted(handler.asked) == sorted(f"/{relative}" for relative in DATASETS[name].files)
    asked = len(handler.asked)
    assert load_graph(name).fingerprint == graph.fingerprint
    mirrored = load_graph(name, mirror=tmp_path / "origin", data_root=tmp_path / "other")
    assert mirrored.fingerprint == graph.fingerprint
    assert len(handler.asked) == asked


# ArXiv's structure


def test_structure_of_arxiv(mirror: Path) -> None:
    edges, years, categories = write_structure(mirror)
    task = load_task("arxiv-structure", 2, mirror=mirror)
    assert task.graph.edge_index.tolist() == edges.tolist()
    assert task.graph.features.to_dense().tolist() == np.eye(40)[categories].tolist()
    assert task.graph.labels.tolist() == by_hand(years)
    assert task.ood_classes == (0, 1)
    assert task.fingerprint == Task.leave_out(task.graph, [0, 1], split_seed=2).fingerprint


def test_structure_from_ogbs_archive_is_the_same_whatever_the_order_of_edges(
    server: tuple[str, type[Handler]], tmp_path: Path, mirror: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base, handler = server
    write_structure(tmp_path / "ogb", "arxiv", seed=1)
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as packed:
        for path in sorted((tmp_path / "ogb").rglob("*.gz")):
            packed.write(path, str(path.relative_to(tmp_path / "ogb")))
        packed.writestr("arxiv/raw/node-feat.csv.gz", b"not looked at")
    handler.files["/arxiv.zip"] = archive.getvalue()
    redirect(monkeypatch, "arxiv-structure", lambda _: f"{base}/arxiv.zip")
    graph = load_graph("arxiv-structure")
    assert handler.asked == ["/arxiv.zip"]
    write_structure(mirror)
    mirrored = load_graph("arxiv-structure", mirror=mirror, data_root=tmp_path / "other")
    assert mirrored.fingerprint == graph.fingerprint


@needs_structure
def test_the_real_structure_of_arxiv(tmp_path: Path) -> None:
    task = load_task("arxiv-structure", mirror=MIRROR, data_root=tmp_path)
    graph = task.graph
    assert (graph.num_nodes, graph.num_edges, graph.num_classes) == SIZES["arxiv-structure"]
    raw = {
        name: np.loadtxt(MIRROR / STRUCTURE / f"{name}.csv.gz", np.int64, delimiter=",")
        for name in ("edge", "node-label", "node_year")
    }
    assert np.array_equal(graph.edge_index, raw["edge"].T)  # that copy is sorted
    assert graph.features.layout == torch.sparse_csr
    assert np.array_equal(graph.features.col_indices(), raw["node-label"])
    assert graph.features.values().unique().tolist() == [1.0]
    assert graph.labels.tolist() == by_hand(raw["node_year"])
    told = graph.describe()
    assert told.homophily < 0.5
    assert (told.self_loops, told.duplicate_edges, told.directed) == (0, 0, True)
    paper = DATASETS["arxiv"].paper
    assert paper is not None
    for count, published in zip(task.counts.values(), paper, strict=True):  # the same years, another draw
        assert count == pytest.approx(published, abs=5 * np.sqrt(published))


# damaged files


def npz(path: Path, **changes: Any) -> None:
    with np.load(path) as content:
        kept = dict(content.items())
    np.savez(path, **{name: value for name, value in (kept | changes).items() if value is not None})


def line(path: Path, number: int, text: str) -> None:
    lines = path.read_text().splitlines()
    lines[number - 1] = text
    path.write_text("\n".join(lines) + "\n")


def json_of(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


ONES = np.ones((10, NODES), bool)
DAMAGE: list[tuple[str, str, Callable[[Path], None], str]] = [
    ("roman-empire", "roman_empire.npz", lambda p: p.write_bytes(p.read_bytes()[:900]), ""),
    ("roman-empire", "roman_empire.npz", lambda p: npz(p, node_labels=None), "node_labels"),
    ("roman-empire", "roman_empire.npz", lambda p: npz(p, edges=np.array([[0, NODES]])), str(NODES)),
    ("roman-empire", "roman_empire.npz", lambda p: npz(p, test_masks=ONES[:9]), "masks of the splits"),
    ("roman-empire", "roman_empire.npz", lambda p: npz(p, test_masks=np.ones((10, NODES + 1))), "masks of the splits"),
    ("roman-empire", "roman_empire.npz", lambda p: npz(p, test_masks=2 * ONES), "masks of the splits"),
    ("roman-empire", "roman_empire.npz", lambda p: npz(p, test_masks=ONES), "is in both train and test"),
    (
        "roman-empire",
        "roman_empire.npz",
        lambda p: npz(p, edges=np.array([[0, {}]], dtype=object)),
        "only numbers and texts",
    ),
    ("cornell", "out1_node_feature_label.txt", lambda p: line(p, 5, "3\t0,1"), "line 5 of out1_node_feature_label.txt"),
    ("cornell", "out1_node_feature_label.txt", lambda p: line(p, 5, "3\t0,x,1\t2"), "line 5 of .*'x'"),
    ("cornell", "out1_node_feature_label.txt", lambda p: line(p, 5, "3\t0,1\t2"), "same shape"),
    (
        "cornell",
        "out1_node_feature_label.txt",
        lambda p: line(p, 5, p.read_text().splitlines()[3]),
        f"nodes 0 to {NODES - 1}",
    ),
    ("cornell", "out1_node_feature_label.txt", lambda p: p.write_text(""), ""),
    ("cornell", "out1_graph_edges.txt", lambda p: line(p, 3, "1 2"), "line 3 of out1_graph_edges.txt"),
    ("cornell", "out1_graph_edges.txt", lambda p: line(p, 3, "1\t" + "9" * 30), "line 3 of out1_graph_edges.txt"),
    ("cornell", "out1_graph_edges.txt", lambda p: line(p, 3, f"1\t{NODES}"), str(NODES)),
    ("cornell", "cornell_split_0.6_0.2_4.npz", lambda p: npz(p, val_mask=np.ones(9)), ""),
    ("actor", "out1_node_feature_label.txt", lambda p: line(p, 5, "3\t\t2"), "line 5 of out1_node_feature_label.txt"),
    ("actor", "out1_node_feature_label.txt", lambda p: line(p, 5, "3\t-1\t2"), "negative"),
    ("wiki-cs", "data.json", lambda p: p.write_text("[1, 2"), ""),
    ("wiki-cs", "data.json", lambda p: p.write_text("[1, 2]"), ""),
    ("wiki-cs", "data.json", lambda p: json_of(p, links=[[2**70]] * NODES), ""),
    ("wiki-cs", "data.json", lambda p: json_of(p, test_mask=[True]), "masks of the splits"),
    ("wiki-cs", "data.json", lambda p: json_of(p, features=[[0.0, 1.0], [1.0]]), ""),
    ("photo", "amazon_electronics_photo.npz", lambda p: npz(p, attr_indptr=None), "attr_indptr"),
    ("arxiv-structure", "node-label.csv.gz", lambda p: p.write_bytes(b"no gzip"), "node-label"),
]


@pytest.mark.parametrize(("name", "file", "damage", "words"), DAMAGE)
def test_damaged_files_are_named_in_a_line(
    name: str, file: str, damage: Callable[[Path], None], words: str, mirror: Path, tmp_path: Path
) -> None:
    (WRITE | {"arxiv-structure": write_structure})[name](mirror)
    path = next(mirror.rglob(file))
    damage(path)
    with pytest.raises(GraphError, match=f"{name}: one of .*cannot be read .*{words}.*; replace it") as caught:
        load_graph(name, mirror=mirror)
    assert file in str(caught.value)
    assert str(path.parent) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not list((tmp_path / "data").rglob("graph.npz*"))


def test_categories_that_arxiv_does_not_have_are_refused(mirror: Path) -> None:
    write_structure(mirror)
    path = mirror / STRUCTURE / "node-label.csv.gz"
    path.write_bytes(gzip.compress(b"40\n" * NODES))
    with pytest.raises(GraphError, match=r"arxiv-structure: one of .* cannot be read"):
        load_graph("arxiv-structure", mirror=mirror)
