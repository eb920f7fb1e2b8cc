"""ArXiv (Hu et al., 2020), with and without word vectors, and Patents (Lim et al., 2021), by year in five classes.

Neither needs the ``ogb`` package.
"""

from __future__ import annotations

import gzip
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...runtime.reading import check_gzip, check_regular, most_unpacked, read_npz
from ..errors import GraphError
from ..graph import Graph
from .base import Dataset, Summary
from .files import DRIVE, File

OGB = "http://snap.stanford.edu/ogb/data/nodeproppred/arxiv.zip"
COUNTS = ("num-node-list", "num-edge-list")
ARXIV_FILES = [f"arxiv/raw/{name}.csv.gz" for name in ("edge", "node-feat", "node_year", *COUNTS)]
STRUCTURE_FILES = [f"arxiv_structure/raw/{name}.csv.gz" for name in ("edge", "node-label", "node_year", *COUNTS)]
CATEGORIES = 40
PATENTS_FILE = "patents/raw/snap_patents.mat"


def _read_arxiv(root: Path) -> Graph:
    """Read ogbn-arxiv from OGB's CSV files; the label is the year of publication."""
    edges, features, labels = _read_ogb(root, ARXIV_FILES)
    return Graph(features.astype(np.float32), np.ascontiguousarray(edges.T), labels)


def _read_structure(root: Path) -> Graph:
    """Read ogbn-arxiv without its word vectors: a node's only feature is its subject category, one of 40.

    Copies without the vectors order edges differently from OGB; sorted, all make the same graph.
    """
    import scipy.sparse as sp

    edges, categories, labels = _read_ogb(root, STRUCTURE_FILES)
    count = len(labels)
    places = np.arange(count), categories.reshape(-1).astype(np.int64)
    features = sp.csr_matrix((np.ones(count, np.float32), places), shape=(count, CATEGORIES))
    return Graph(features, edges[np.lexsort((edges[:, 1], edges[:, 0]))].T, labels)


def _read_ogb(root: Path, files: list[str]) -> tuple[NDArray[np.int64], NDArray[Any], NDArray[np.int64]]:
    """Return edges ``[E, 2]``, node attributes, and the year of publication in five classes."""
    edges, attributes, years, nodes, edge_count = (_read_csv(root / name) for name in files)
    count = int(nodes.sum())
    if len(attributes) != count or len(years) != count or len(edges) != int(edge_count.sum()):
        raise GraphError("the raw files do not belong together; download them again")
    return edges.astype(np.int64), attributes, _even_quantiles(years.reshape(-1))


def _read_patents(root: Path) -> Graph:
    """Read snap-patents from LINKX's MATLAB file; the label is the year of the grant. Features stay sparse."""
    import scipy.sparse as sp

    path = root / PATENTS_FILE
    _check_packed(path)
    unpacked = path.with_suffix(".npz")
    # In a process of its own, as scipy's reader may crash on a damaged file.
    done = subprocess.run(
        [sys.executable, "-c", _UNPACK, str(path), str(unpacked)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        reason = (done.stderr.splitlines() or [f"the reader ended with {done.returncode}"])[-1]
        raise GraphError(f"{path}: not LINKX's snap_patents.mat ({reason:.200}); remove it")
    content = read_npz(unpacked, ["edges", "years", "values", "rows", "starts", "shape"])
    parts = content["values"], content["rows"], content["starts"]
    features = sp.csc_matrix(parts, shape=tuple(content["shape"].tolist()))
    return Graph(features, content["edges"].astype(np.int64), _even_quantiles(content["years"].reshape(-1)))


_UNPACK = """
import sys, numpy, scipy.io
content = scipy.io.loadmat(sys.argv[1], variable_names=["edge_index", "node_feat", "years"])
matrix = content["node_feat"].tocsc()
parts = dict(values=matrix.data, rows=matrix.indices, starts=matrix.indptr, shape=matrix.shape)
numpy.savez(sys.argv[2], edges=content["edge_index"], years=content["years"], **parts)
"""


def _even_quantiles(years: NDArray[Any], classes: int = 5) -> NDArray[np.int64]:
    """Return years as classes of equal size; a year equal to a boundary belongs above it."""
    boundaries = np.quantile(years, np.arange(1, classes) / classes)
    return np.searchsorted(boundaries, years, side="right").astype(np.int64)


def _check_packed(path: Path) -> None:
    """Refuse a MATLAB file whose compressed parts are too large for its size; scipy unpacks them at once."""
    check_regular(path)
    left = most_unpacked(path.stat().st_size)
    with path.open("rb") as file:
        file.seek(128)  # after the header
        while len(tag := file.read(8)) == 8:
            kind, size = (int.from_bytes(part, "little") for part in (tag[:4], tag[4:]))
            if kind != 15:  # not packed
                file.seek(size, 1)
                continue
            packed, unpacker = file.read(size), zlib.decompressobj()
            while packed and left >= 0 and not unpacker.eof:
                left -= len(unpacker.decompress(packed, 1 << 24))
                packed = unpacker.unconsumed_tail
            if left < 0:
                raise GraphError(f"{path}: it unpacks to far more than its size; replace it")


def _read_csv(path: Path) -> NDArray[Any]:
    """Read a gzipped CSV of numbers without a header, [rows, columns]."""
    try:
        check_gzip(path)
        import pyarrow.csv

        options = pyarrow.csv.ReadOptions(autogenerate_column_names=True)
        table = pyarrow.csv.read_csv(path, read_options=options)
        return np.stack([column.to_numpy() for column in table.columns], 1)
    except ImportError:
        with gzip.open(path, "rt") as file:
            return np.loadtxt(file, delimiter=",", ndmin=2)
    except (OSError, ValueError, EOFError, zlib.error) as error:
        raise GraphError(f"{path}: cannot be read ({error}); remove it and load again") from None


ARXIV = Dataset(
    "arxiv",
    _read_arxiv,
    ood_classes=(0, 1),
    description="citations of arXiv papers; year of publication in five classes",
    files={name: File(OGB) for name in ARXIV_FILES},
    published=Summary(169343, 1166243, 5, "low"),
    paper=(69523, 23415, 10453, 23245, 10625),
)

ARXIV_STRUCTURE = Dataset(
    "arxiv-structure",
    _read_structure,
    ood_classes=(0, 1),
    description="citations of arXiv papers without their words; year in five classes",
    files={name: File(OGB) for name in STRUCTURE_FILES},
    published=Summary(169343, 1166243, 5, "low"),
)

PATENTS = Dataset(
    "patents",
    _read_patents,
    ood_classes=(0, 1),
    description="citations of US patents; year of the grant in five classes",
    files={PATENTS_FILE: File(DRIVE + "1ldh23TSY1PwXia6dU0MYcpyEgX-w3Hia")},
    published=Summary(2923922, 13975788, 5, "low"),
    paper=(1053055, 351259, 233525, 350730, 234055),
)
