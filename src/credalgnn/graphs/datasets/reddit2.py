"""Reddit2 (Zeng et al., 2020), with its own split."""

from __future__ import annotations

from pathlib import Path

from ..graph import Graph
from .base import Dataset, Loaded, Summary
from .cache import splits_of
from .files import DRIVE, File

KEYS = {
    "adj_full.npz": "1sncK996BM5lpuDf75lDFqCiDZyErc1c2",
    "feats.npy": "1ZsHaJ0ussP1W722krmEIp_8pwKAoi5b3",
    "class_map.json": "1JF3Pjv9OboMNYs2aXRQGbJbc4t_nDd5u",
    "role.json": "1nJIKd77lcAGU4j-kVNx_AIGEkveIKz3A",
}


def _read(root: Path) -> Loaded:
    from torch_geometric.datasets import Reddit2

    data = Reddit2(str(root / "Reddit2"))[0]
    return Loaded(Graph.from_pyg(data), splits_of(data))


REDDIT2 = Dataset(
    "reddit2",
    _read,
    ood_classes=tuple(range(11)),
    description="Reddit posts joined by a common commenter; subreddit",
    files={f"Reddit2/raw/{name}": File(DRIVE + key) for name, key in KEYS.items()},
    published=Summary(232965, 23213838, 41, "high"),
    paper=(109517, 17343, 6356, 40601, 14733),
)
