"""ArXiv and Patents with the year as label, as PyG data sets; neither needs the ``ogb`` package."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import torch
from torch_geometric.data import Data, InMemoryDataset

from ._checks import csr_from_scipy
from .errors import GraphError
from .sources import SOURCES, even_quantiles


class _YearDataset(InMemoryDataset):  # type: ignore[misc]
    """One graph below ``root``, in PyG's layout, whose labels are years in five classes by even quantiles."""

    name: str

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.load(self.processed_paths[0])

    @property
    def raw_dir(self) -> str:
        return str(Path(self.root) / self.name / "raw")

    @property
    def processed_dir(self) -> str:
        return str(Path(self.root) / self.name / "processed")

    @property
    def raw_file_names(self) -> list[str]:
        return [Path(file).name for file in SOURCES[self.name].files]

    @property
    def processed_file_names(self) -> str:
        return "data.pt"

    def download(self) -> None:
        SOURCES[self.name].download(Path(self.root))


class ArxivYear(_YearDataset):
    """ogbn-arxiv from OGB's raw CSV files; the label is the year of publication."""

    name = "arxiv"

    def process(self) -> None:
        edges, features, years, nodes, edge_count = (_read_csv(Path(path)) for path in self.raw_paths)
        count = int(nodes.sum())
        if len(features) != count or len(years) != count or len(edges) != int(edge_count.sum()):
            raise GraphError(f"{self.raw_dir}: the raw files do not belong together; download them again")
        data = Data(
            x=torch.from_numpy(features.astype(np.float32)),
            edge_index=torch.from_numpy(np.ascontiguousarray(edges.T).astype(np.int64)),
            y=even_quantiles(years.reshape(-1)),
        )
        self.save([data], self.processed_paths[0])


class SnapPatents(_YearDataset):
    """snap-patents from LINKX's MATLAB file; the label is the year of the grant. Features stay sparse."""

    name = "patents"

    def process(self) -> None:
        from scipy.io import loadmat
        from scipy.io.matlab import MatReadError

        try:
            content = loadmat(self.raw_paths[0], variable_names=["edge_index", "node_feat", "years"])
            features, years, edges = content["node_feat"], content["years"].reshape(-1), content["edge_index"]
        except (MatReadError, KeyError, ValueError, OSError) as error:
            raise GraphError(f"{self.raw_paths[0]}: not LINKX's snap_patents.mat ({error}); remove it") from None
        data = Data(
            x=csr_from_scipy(features), edge_index=torch.from_numpy(edges.astype(np.int64)), y=even_quantiles(years)
        )
        self.save([data], self.processed_paths[0])


def _read_csv(path: Path) -> np.ndarray:
    """A gzipped CSV of numbers without a header, [rows, columns]."""
    try:
        import pyarrow.csv

        options = pyarrow.csv.ReadOptions(autogenerate_column_names=True)
        table = pyarrow.csv.read_csv(path, read_options=options)
        return np.stack([column.to_numpy() for column in table.columns], 1)
    except ImportError:
        with gzip.open(path, "rt") as file:
            return np.loadtxt(file, delimiter=",", ndmin=2)
    except (OSError, ValueError) as error:
        raise GraphError(f"{path}: cannot be read ({error}); remove it and load again") from None
