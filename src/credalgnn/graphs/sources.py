"""The paper's six graphs: where their raw files come from, and how they are read.

Raw files lie in PyG's layout below a root: a read-only mirror, or the data folder, into which they are downloaded.
PyG's own classes read Chameleon, Squirrel and Reddit2; ArXiv and Patents have small classes of the same kind here.
Coauthor is read directly: PyG makes its features dense, which takes half a gigabyte for 60 active of 6,805.
"""

from __future__ import annotations

import hashlib
import os
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .download import DownloadError, fetch
from .graph import Graph, GraphError

GEOM_GCN = "https://raw.githubusercontent.com/graphdml-uiuc-jlu/geom-gcn/f1fc0d14b3b019c562737240d06ec83b07d16a8f"
COAUTHOR = "https://github.com/shchur/gnn-benchmark/raw/master/data/npz/ms_academic_cs.npz"
OGB = "http://snap.stanford.edu/ogb/data/nodeproppred/arxiv.zip"
DRIVE = "https://drive.usercontent.google.com/download?confirm=t&id="

TRAIN, VAL, TEST = 0, 1, 2  # in the roles [N, S] that come with a graph that has public splits


@dataclass(frozen=True)
class File:
    """A raw file: its address, and what is known of its content."""

    url: str
    size: int | None = None
    sha256: str | None = None

    def check(self, path: Path) -> None:
        """A file that is already there must be the right one, too."""
        if self.size is not None and path.stat().st_size != self.size:
            raise GraphError(f"{path} has {path.stat().st_size:,} bytes instead of {self.size:,}; replace it")
        if self.sha256 is not None and hashlib.sha256(path.read_bytes()).hexdigest() != self.sha256:
            raise GraphError(f"{path} is not the expected file (its SHA-256 differs); replace it")


@dataclass(frozen=True)
class Source:
    """Raw files by their path below the root, and the function that reads them from such a root."""

    files: dict[str, File]
    read: Callable[[Path], tuple[Graph, NDArray[np.int8] | None]]

    def locate(self, mirror: Path | None, root: Path, work: Path) -> None:
        """Bring all raw files below ``work``: linked from the mirror, or from ``root`` after a download there."""
        for name, file in self.files.items():
            place = work / name
            place.parent.mkdir(parents=True, exist_ok=True)
            mirrored = mirror / name if mirror else None
            if mirrored and mirrored.is_file():
                file.check(mirrored)
                place.symlink_to(mirrored.resolve())
                continue
            try:
                self._download(name, file, root)
            except DownloadError as error:
                names = ", ".join(Path(file_name).name for file_name in self.files)
                raise DownloadError(
                    f"{error}; the graph needs {names} in {(root / name).parent}, or in {Path(name).parent} below a "
                    "folder given with --mirror or CREDALGNN_MIRROR"
                ) from None
            place.symlink_to((root / name).resolve())

    def download(self, root: Path) -> None:
        """Fetch the raw files that are not below ``root`` yet."""
        for name, file in self.files.items():
            self._download(name, file, root)

    def _download(self, name: str, file: File, root: Path) -> None:
        local = root / name
        if local.is_file():
            file.check(local)
            return
        if not file.url.endswith(".zip"):
            fetch(file.url, local, file.size, file.sha256)
            return
        archive = local.parent / Path(file.url).name  # one archive with all files, each somewhere inside
        if not archive.is_file():
            fetch(file.url, archive, file.size, file.sha256)
        try:
            with zipfile.ZipFile(archive) as content:
                inside = next((entry for entry in content.namelist() if entry.endswith(f"raw/{local.name}")), None)
                if inside is None:
                    raise zipfile.BadZipFile(f"it has no raw/{local.name}")
                part = local.with_name(f"{local.name}.{os.getpid()}.part")
                part.write_bytes(content.read(inside))
                part.replace(local)
            if all((root / other).is_file() for other in self.files):
                archive.unlink(missing_ok=True)
        except (zipfile.BadZipFile, zlib.error, EOFError) as error:
            archive.unlink(missing_ok=True)
            raise DownloadError(
                f"{file.url}: the archive was broken ({error}) and has been removed; try again"
            ) from None


def even_quantiles(years: NDArray[Any], classes: int = 5) -> Tensor:
    """Years as classes: the k-th boundary is the k/classes quantile; a year equal to a boundary belongs above it."""
    boundaries = np.quantile(years, np.arange(1, classes) / classes)
    return torch.from_numpy(np.searchsorted(boundaries, years, side="right").astype(np.int64))


def _roles(data: Any) -> NDArray[np.int8]:
    """PyG's masks [N] or [N, S] as one array: 0 train, 1 validation, 2 test, -1 none of them."""
    masks = [mask.reshape(len(mask), -1).numpy() for mask in (data.train_mask, data.val_mask, data.test_mask)]
    roles = np.full(masks[0].shape, -1, np.int8)
    for role, mask in zip((TRAIN, VAL, TEST), masks, strict=True):
        roles[mask] = role
    return roles


def _read_wikipedia(name: str) -> Callable[[Path], tuple[Graph, NDArray[np.int8] | None]]:
    def read(root: Path) -> tuple[Graph, NDArray[np.int8] | None]:
        from torch_geometric.datasets import WikipediaNetwork

        data = WikipediaNetwork(str(root), name, geom_gcn_preprocess=True)[0]
        return Graph.from_pyg(data), _roles(data)

    return read


def _read_coauthor(root: Path) -> tuple[Graph, NDArray[np.int8] | None]:
    """As PyG reads it: features made binary, self-loops dropped, edges in both directions; but never dense."""
    import scipy.sparse as sp

    with np.load(root / "CS/raw/ms_academic_cs.npz", allow_pickle=False) as file:
        features = sp.csr_matrix(
            (file["attr_data"], file["attr_indices"], file["attr_indptr"]), shape=tuple(file["attr_shape"])
        )
        edges = sp.csr_matrix(
            (file["adj_data"], file["adj_indices"], file["adj_indptr"]), shape=tuple(file["adj_shape"])
        )
        labels = file["labels"].astype(np.int64)
    features.data = (features.data > 0).astype(np.float32)
    edges = (edges + edges.T).tocoo()
    apart = edges.row != edges.col
    return Graph(features, np.stack([edges.row[apart], edges.col[apart]]).astype(np.int64), labels), None


def _read_reddit2(root: Path) -> tuple[Graph, NDArray[np.int8] | None]:
    from torch_geometric.datasets import Reddit2

    data = Reddit2(str(root / "Reddit2"))[0]
    return Graph.from_pyg(data), _roles(data)


def _read_arxiv(root: Path) -> tuple[Graph, NDArray[np.int8] | None]:
    from ._datasets import ArxivYear

    return Graph.from_pyg(ArxivYear(str(root))[0]), None


def _read_patents(root: Path) -> tuple[Graph, NDArray[np.int8] | None]:
    from ._datasets import SnapPatents

    return Graph.from_pyg(SnapPatents(str(root))[0]), None


def _wikipedia(name: str, known: dict[str, tuple[int, str]]) -> Source:
    files = {}
    for file, (size, sha256) in known.items():
        folder = "splits" if "split" in file else f"new_data/{name}"
        files[f"{name}/geom_gcn/raw/{file}"] = File(f"{GEOM_GCN}/{folder}/{file}", size, sha256)
    return Source(files, _read_wikipedia(name))


REDDIT2 = {
    "adj_full.npz": "1sncK996BM5lpuDf75lDFqCiDZyErc1c2",
    "feats.npy": "1ZsHaJ0ussP1W722krmEIp_8pwKAoi5b3",
    "class_map.json": "1JF3Pjv9OboMNYs2aXRQGbJbc4t_nDd5u",
    "role.json": "1nJIKd77lcAGU4j-kVNx_AIGEkveIKz3A",
}
ARXIV = ("edge.csv.gz", "node-feat.csv.gz", "node_year.csv.gz", "num-node-list.csv.gz", "num-edge-list.csv.gz")

SOURCES: dict[str, Source] = {
    "chameleon": _wikipedia(
        "chameleon",
        {
            "out1_node_feature_label.txt": (
                10602901,
                "5fd29736ff31b43a1bfcf305bc8b4cffc3103fb0957667976b2ea0f78aedcf5b",
            ),
            "out1_graph_edges.txt": (332448, "45ac593de9207470090230c8fd76beeb2f60b5371a9be088e8bf31e7f0619a4b"),
            "chameleon_split_0.6_0.2_0.npz": (1775, "36605525b69be4e7df5b31fe6a1d044288c6ebf9f9f0514ca151f6a36afc5e8b"),
            "chameleon_split_0.6_0.2_1.npz": (1779, "d0779d5a1bedf1967d394468a52c0175fb00595d361fba897faf73322386c952"),
            "chameleon_split_0.6_0.2_2.npz": (1777, "86ad0d827bf4301dff830598fc0b70d0dd8689c5b4d72dab1d87a6c1970c4c6e"),
            "chameleon_split_0.6_0.2_3.npz": (1755, "37b3e994adf3afc55e16b617ed05af4e3ce308800755839084d77eced0528e9d"),
            "chameleon_split_0.6_0.2_4.npz": (1778, "f6b1d067b2b330132839d8b6120077bdc6cf759f7ce421f881a02e2953ec4596"),
            "chameleon_split_0.6_0.2_5.npz": (1772, "e7661834275c826692510cea0457b18b2c1ee38771f178d06e701b97541a1f6d"),
            "chameleon_split_0.6_0.2_6.npz": (1774, "16648d1197c1d3a2dec385346212c382030b0d5a8c997f4255aa2afa68a6b174"),
            "chameleon_split_0.6_0.2_7.npz": (1764, "61adcc53846becefecd466a5364dda23b983d387d1ac5d58c6e24d080c0fcba7"),
            "chameleon_split_0.6_0.2_8.npz": (1770, "7076ad5341a8218b1f5b6eccf9cfd15d28286ea11ef5c06eeee77af24ff2bf63"),
            "chameleon_split_0.6_0.2_9.npz": (1773, "743c4f813bf6130398a6511eb9ff07d2366c73bd6c7fddaf226a3f9e2917e0e7"),
        },
    ),
    "squirrel": _wikipedia(
        "squirrel",
        {
            "out1_node_feature_label.txt": (
                21765097,
                "ac15ab755983717a187992eef8ce2017aae33ea444fd655b07e4662690dcc03a",
            ),
            "out1_graph_edges.txt": (2115917, "453d8e96754d68e2ab0a7ebb56f93506b59531d95abaec7a2b46fe1eae7c39cd"),
            "squirrel_split_0.6_0.2_0.npz": (3134, "f112b88d3354e86d164d4d915b6a1f695c10f0e01e3e6b9893fc7b09bb93191d"),
            "squirrel_split_0.6_0.2_1.npz": (3130, "2486c687c8befb55930a6237f76f1d86ce2ba345782eda6157f4e752d05f304f"),
            "squirrel_split_0.6_0.2_2.npz": (3121, "d62ff83862ad96022d3400dfc9b7ca405834ca62767319d97c36b3f02db978c0"),
            "squirrel_split_0.6_0.2_3.npz": (3126, "af3d90e0b2718ac7417e10e8b5b382443667412e846cabc3cc4e4a592f4cedae"),
            "squirrel_split_0.6_0.2_4.npz": (3124, "fbe848298bb72b88db0704050cf216e2a93c916540d577906f3e644b679a6a2c"),
            "squirrel_split_0.6_0.2_5.npz": (3111, "cd04fab46a181151ddd97ce93c65fe79558fb79ffa230b62f488ebfaf5fdcd75"),
            "squirrel_split_0.6_0.2_6.npz": (3118, "b9189f7903ca7556a025c54dd5be6c00ec5952d4299e71630bc9876157676412"),
            "squirrel_split_0.6_0.2_7.npz": (3138, "ea7fb3ca5d5aa45b917b99fb7d64d4e87322b2b5303a0156c547aa3f1a6c8941"),
            "squirrel_split_0.6_0.2_8.npz": (3132, "b43faa190ca6dd4885a39dfc2a93d59f56f5174f3567bdbc49b18dd9cd9b7fb4"),
            "squirrel_split_0.6_0.2_9.npz": (3146, "529ade4b86fd191908a96011f25c454653083674b6d4f090b3fdd27af2d14f62"),
        },
    ),
    "coauthor": Source(
        {
            "CS/raw/ms_academic_cs.npz": File(
                COAUTHOR, 12_835_626, "933c745734e78908c7eb77172a673fee0503f30e26e5a99b36814d88534c42e3"
            )
        },
        _read_coauthor,
    ),
    "reddit2": Source({f"Reddit2/raw/{name}": File(DRIVE + key) for name, key in REDDIT2.items()}, _read_reddit2),
    "arxiv": Source({f"arxiv/raw/{name}": File(OGB) for name in ARXIV}, _read_arxiv),
    "patents": Source(
        {"patents/raw/snap_patents.mat": File(DRIVE + "1ldh23TSY1PwXia6dU0MYcpyEgX-w3Hia")}, _read_patents
    ),
}
