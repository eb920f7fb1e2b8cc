"""Chameleon and Squirrel: Wikipedia pages (Rozemberczki et al., 2021) as Geom-GCN has them, with its ten splits."""

from __future__ import annotations

from pathlib import Path

from ..graph import Graph
from .base import Dataset, Loaded, Summary
from .cache import splits_of
from .files import File

GEOM_GCN = "https://raw.githubusercontent.com/graphdml-uiuc-jlu/geom-gcn/f1fc0d14b3b019c562737240d06ec83b07d16a8f"


def _read(root: Path, name: str) -> Loaded:
    from torch_geometric.datasets import WikipediaNetwork

    data = WikipediaNetwork(str(root), name, geom_gcn_preprocess=True)[0]
    return Loaded(Graph.from_pyg(data), splits_of(data))


def _files(name: str, known: dict[str, tuple[int, str]]) -> dict[str, File]:
    files = {}
    for file, (size, sha256) in known.items():
        folder = "splits" if "split" in file else f"new_data/{name}"
        files[f"{name}/geom_gcn/raw/{file}"] = File(f"{GEOM_GCN}/{folder}/{file}", size, sha256)
    return files


CHAMELEON = Dataset(
    "chameleon",
    lambda root: _read(root, "chameleon"),
    ood_classes=(0, 1),
    description="Wikipedia pages on chameleons, linked; monthly traffic in five classes",
    files=_files(
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
    published=Summary(2277, 31421, 5, "low"),
    paper=(647, 438, 291, 276, 180),
)

SQUIRREL = Dataset(
    "squirrel",
    lambda root: _read(root, "squirrel"),
    ood_classes=(0, 1),
    description="Wikipedia pages on squirrels, linked; monthly traffic in five classes",
    files=_files(
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
    published=Summary(5201, 198493, 5, "low"),
    paper=(1515, 982, 682, 622, 419),
)
