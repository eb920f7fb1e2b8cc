"""The named graphs: where their raw files come from, and how they are read.

Raw files lie in PyG's layout below a root: a read-only mirror, or the data folder, into which they are downloaded.
PyG's own classes read Chameleon, Squirrel and Reddit2; ArXiv and Patents have small classes of the same kind here.
Coauthor and Computers are read directly: PyG makes the features dense, which takes half a gigabyte for Coauthor's 60
active of 6,805. So are Planetoid's graphs: PyG lets their pickles run whatever they name.
"""

from __future__ import annotations

import hashlib
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

from .._files import write
from .download import DownloadError, fetch
from .errors import GraphError
from .graph import Graph
from .planetoid import read_planetoid

GEOM_GCN = "https://raw.githubusercontent.com/graphdml-uiuc-jlu/geom-gcn/f1fc0d14b3b019c562737240d06ec83b07d16a8f"
GNN_BENCHMARK = "https://github.com/shchur/gnn-benchmark/raw/master/data/npz"
PLANETOID = "https://github.com/kimiyoung/planetoid/raw/master/data"
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
                write(local, content.read(inside))
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


def _read_gnn_benchmark(file: str, with_names: bool = False) -> Callable[[Path], tuple[Graph, NDArray[np.int8] | None]]:
    """As PyG reads it: features made binary, self-loops dropped, edges in both directions; but never dense."""

    def read(root: Path) -> tuple[Graph, NDArray[np.int8] | None]:
        import scipy.sparse as sp

        with np.load(root / file, allow_pickle=False) as content:
            features, edges = (
                sp.csr_matrix(
                    tuple(content[f"{part}_{name}"] for name in ("data", "indices", "indptr")),
                    shape=tuple(content[f"{part}_shape"]),
                )
                for part in ("attr", "adj")
            )
            labels = content["labels"].astype(np.int64)
            names = content["class_names"].tolist() if with_names else None  # those of Coauthor are a pickle
        features.sum_duplicates()
        features.data = (features.data > 0).astype(np.float32)
        edges = edges + edges.T
        edges.sort_indices()
        edges = edges.tocoo()
        apart = edges.row != edges.col
        ends = np.stack([edges.row[apart], edges.col[apart]]).astype(np.int64)
        return Graph(features, ends, labels, class_names=names), None

    return read


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


def _gnn_benchmark(path: str, size: int, sha256: str, with_names: bool = False) -> Source:
    files = {path: File(f"{GNN_BENCHMARK}/{Path(path).name}", size, sha256)}
    return Source(files, _read_gnn_benchmark(path, with_names))


def _planetoid(folder: str, known: dict[str, tuple[int, str]]) -> Source:
    name, raw = folder.lower(), f"{folder}/raw"
    files = {}
    for part, (size, sha256) in known.items():
        files[f"{raw}/ind.{name}.{part}"] = File(f"{PLANETOID}/ind.{name}.{part}", size, sha256)
    return Source(files, lambda root: (read_planetoid(root / raw, name), None))


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
    "coauthor": _gnn_benchmark(
        "CS/raw/ms_academic_cs.npz", 12_835_626, "933c745734e78908c7eb77172a673fee0503f30e26e5a99b36814d88534c42e3"
    ),
    "reddit2": Source({f"Reddit2/raw/{name}": File(DRIVE + key) for name, key in REDDIT2.items()}, _read_reddit2),
    "arxiv": Source({f"arxiv/raw/{name}": File(OGB) for name in ARXIV}, _read_arxiv),
    "patents": Source(
        {"patents/raw/snap_patents.mat": File(DRIVE + "1ldh23TSY1PwXia6dU0MYcpyEgX-w3Hia")}, _read_patents
    ),
    "computers": _gnn_benchmark(
        "Computers/raw/amazon_electronics_computers.npz",
        31_921_488,
        "736ba1d9fd85eac2da83a5ad25c463f04b0031a6ca01563f90a7099d9e8ffb2c",
        with_names=True,
    ),
    "cora": _planetoid(
        "Cora",
        {
            "x": (22119, "23cfa55d91c6f624233f5eb7b6e3f141f1bd2b2ae39608a63cf5d084bb27baab"),
            "tx": (148025, "b9afbaa4a400df991f6f02ef677e1e44da55ffc04801fd02f9e673987829226a"),
            "allx": (257305, "9419ba2f26f5c35243db64aba110e0f35a04851609e0dc5433450676ca6b8543"),
            "y": (4054, "94465c14eb53e04ca262198dcbb2521ee8af60fb3f3d546cd6ca24a511b0e7d1"),
            "ty": (28135, "41f5ac76596a1699cc33f53084a2419e92961c42bb75f36fc38e616d348532ad"),
            "ally": (47959, "2b998f5cc7fedc86e7f97ca2498f47a1ffc1462c29e2d578b23bf3f62b6e7d71"),
            "graph": (59847, "58f13302f39dde8852dad6fe6d15b89b077b6d7f837626bce671ef80344b383d"),
            "test.index": (5000, "297ce89af2b51a6a194181c7dbe1796c6a1cf9cd9349a88383b1b1e227867875"),
        },
    ),
    "citeseer": _planetoid(
        "CiteSeer",
        {
            "x": (31087, "d20de19150741e555de0ed037195630fc194114ebc7fd72ced62810148aa22f6"),
            "tx": (260321, "539a8906a2da97628d212f2fdd668c109a8b3f0d36574b59e5d3fd5b5303da21"),
            "allx": (595021, "2ac30345d95c9ec933a817ee0bdd6a5f077f8c184a20e696910192d534414668"),
            "y": (3014, "8ba87e515d8e3ee3cf52f6d2c5b86aa73f11ecad825a808455209ec26cd54924"),
            "ty": (24135, "55e5bd1ba1e733a04598753ad1a8d57957f4b8f89e74519f41f4f4938767e4ce"),
            "ally": (55623, "f704b2d986dde6c2669934de1f3ae5696a6cf9455c0f6b2646a2d135ea0a1c95"),
            "graph": (61987, "d79a4ef9d3e7169aee8946145f6b7306e35bc79bffad26346cfb94e10e9912a7"),
            "test.index": (5000, "2af990671580b6b2df5d158d1038f8292e30c9cd821b5453f399659b25b723d4"),
        },
    ),
    "pubmed": _planetoid(
        "PubMed",
        {
            "x": (23172, "fbe9cb5c47200d1b7769a26e579be3b7130b556831f9d850e77c4c74f2599b33"),
            "tx": (405505, "4eb5f5d0f30f26497eb0ac6ac9719d09c67e284f1ed0385c93f3ef27a671da3d"),
            "allx": (7578385, "508e538e2abdccdd54c4d3e9f49d638b4af7107d85845f66ddea5a5152658b7e"),
            "y": (854, "e6c807633307a07ed659249006536a147c7999c797f11a2560752990181b41b3"),
            "ty": (12135, "ee2e0d4819d9fbcc403689c3bf2e49face401b605932f093bc58ab6461130fdd"),
            "ally": (224739, "0c37bbe3b5014ec365e9d393cf4791925e5ed94fb194305d74f064a8d7b50f0e"),
            "graph": (471808, "5b89f0036ca22909471f1e6558eb42fa06e0c730a577bde5b058b40638f81dc9"),
            "test.index": (6000, "b101d421688bbaecbd82e8a18f1e282378d6830f3a37666f28ebc47f844341b5"),
        },
    ),
}
