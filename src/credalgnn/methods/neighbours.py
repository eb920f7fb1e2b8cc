"""Nearest neighbours in a latent space: exact up to a stated size, approximate with a measured recall above it."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from ..nn import SparseMatrix
from .prediction import MethodError

Latent: TypeAlias = Tensor | SparseMatrix
Latents: TypeAlias = Latent | Sequence[Latent]

EXACT_UP_TO = 150_000  # training nodes; above, neighbours are approximate
CHUNK = 1 << 24  # distances held at a time
PROBES = 32  # of the index's cells, how many are searched for a query at least
RECALL = 0.95  # more cells are searched until this share of the true neighbours is found,
MEASURED = 1_000  # measured on so many queries

_SEARCHING = threading.Lock()  # an index is tuned for the queries that are searched with it


class NeighbourBank:
    """The latents of training nodes, to be asked for the distances of others to the nearest of them.

    A list of latents is one joint space, whose squared distances are the sums of each one's. Above ``EXACT_UP_TO``
    training nodes an inverted-file index of faiss serves; ``recall`` says which share of the true neighbours the last
    search has found, ``RECALL`` or more.
    """

    def __init__(self, train: Latents, normalize: bool = False) -> None:
        self.normalize = normalize
        self.parts = _parts(train)
        self.count = len(self.parts[0])
        self.recall: float | None = None
        self._index: Any = None
        self._prepared: tuple[list[Tensor], Tensor] | None = None

    def distance(self, queries: Latents, k: int, kth: bool = False) -> Tensor:
        """Mean distance to the ``k`` nearest, or that of the k-th, for each query."""
        if not 1 <= k <= self.count:
            raise MethodError(f"k = {k} neighbours, but there are {self.count} training nodes: choose 1 <= k <= that")
        parts = _parts(queries)
        widths, known = [p.shape[1] for p in parts], [p.shape[1] for p in self.parts]
        if widths != known:
            raise MethodError(f"latents of widths {widths} cannot be compared with training latents of {known}")
        if self.count <= EXACT_UP_TO:
            distances = self._exact(parts, k)
        else:
            with _SEARCHING:
                distances = self._approximate(parts, k)
        return distances[:, -1] if kth else distances.mean(1)

    def _exact(self, queries: list[Latent], k: int) -> Tensor:
        """Distances ``[N, k]``, ascending: ``|q|^2 + |t|^2 - 2 q t`` in float64, a chunk of queries at a time."""
        if self._prepared is None:
            scale = _scales(self.parts, self.normalize)
            columns = [(_double(part).to_dense() * scale[:, None]).t().contiguous() for part in self.parts]
            self._prepared = columns, torch.stack([c.square().sum(0) for c in columns]).sum(0)
        columns, squares = self._prepared
        result = []
        for chunk in _chunks(len(queries[0]), max(1, CHUNK // self.count)):
            parts = [_double(rows_of(part, chunk)) for part in queries]
            scale = _scales(parts, self.normalize)
            own = (_squares(parts) * scale.square())[:, None]
            products = sum((part @ c for part, c in zip(parts, columns, strict=True)), torch.zeros(()))
            distances = squares - 2.0 * scale[:, None] * products
            nearest = distances.topk(k, largest=False).values
            result.append((nearest + own).clamp_min(0.0).sqrt())
        return torch.cat(result)

    def _approximate(self, queries: list[Latent], k: int) -> Tensor:
        import faiss

        faiss.omp_set_num_threads(torch.get_num_threads())
        if self._index is None:
            self._index = self._build(faiss)
        if not len(queries[0]):
            return torch.empty(0, k, dtype=torch.float64)
        self._tune(faiss, queries, k)
        result = []
        for chunk in _chunks(len(queries[0]), 1 << 14):  # faiss is slow on fewer than 4,096 at a time
            squares = self._search(_joined([rows_of(part, chunk) for part in queries], self.normalize), k)
            result.append(torch.from_numpy(squares).double().clamp_min(0.0).sqrt())
        return torch.cat(result)

    def _search(self, rows: Any, k: int) -> Any:
        """Squared distances ``[N, k]``; where the cells searched hold fewer than k nodes, all cells are."""
        squares, result = self._index.search(rows, k)
        short = result[:, -1] < 0
        if short.any():
            probes, self._index.nprobe = self._index.nprobe, self._index.nlist
            squares[short], _ = self._index.search(rows[short], k)
            self._index.nprobe = probes
        return squares

    def _build(self, faiss: Any) -> Any:
        """An inverted file with about 4 sqrt(n) cells; the clustering's seed is faiss's own and fixed."""
        rows = _joined(self.parts, self.normalize)
        cells = 1 << round(np.log2(4.0 * self.count**0.5))
        index = faiss.IndexIVFFlat(faiss.IndexFlatL2(rows.shape[1]), rows.shape[1], cells)
        index.cp.niter = 10
        index.cp.max_points_per_centroid = 64
        index.train(rows)
        index.add(rows)
        return index

    def _tune(self, faiss: Any, queries: list[Latent], k: int) -> None:
        """Search twice as many cells until ``RECALL`` of the true k nearest are found, on some of the queries."""
        chosen = torch.linspace(0, len(queries[0]) - 1, min(MEASURED, len(queries[0]))).long()
        rows = _joined([rows_of(part, chosen) for part in queries], self.normalize)
        exact, _ = faiss.knn(rows, _joined(self.parts, self.normalize), k)
        self._index.nprobe = PROBES
        while True:
            near = self._search(rows, k) <= exact[:, -1:] * (1 + 1e-5) + 1e-12  # by distance: ties are as good
            self.recall = float(near.mean())
            if self.recall >= RECALL or self._index.nprobe >= self._index.nlist:
                return
            self._index.nprobe = min(2 * self._index.nprobe, self._index.nlist)


def check_search(count: int) -> None:
    """Say what is missing for a search among so many training nodes, before anything is trained."""
    if count > EXACT_UP_TO and find_spec("faiss") is None:
        raise MethodError(f"neighbours among {count:,} training nodes need faiss: pip install 'credalgnn[large]'")


def _chunks(count: int, size: int) -> Iterator[Tensor]:
    """The numbers below ``count`` in pieces, with a bar on a terminal when it takes more than a few seconds."""
    pieces = torch.split(torch.arange(count), size)
    yield from tqdm(pieces, desc="neighbours", unit="part", delay=3, disable=None, leave=False)


def _parts(latents: Latents) -> list[Latent]:
    return list(latents) if isinstance(latents, Sequence) else [latents]


def rows_of(part: Latent, nodes: Tensor) -> Latent:
    """The rows ``nodes`` of a latent, dense or sparse."""
    return part[nodes] if isinstance(part, Tensor) else part.rows(nodes)


def _double(part: Latent) -> Any:
    return part.double() if isinstance(part, Tensor) else part.map(Tensor.double)


def _squares(parts: Sequence[Latent]) -> Tensor:
    """Squared lengths of the joint vectors."""
    total = torch.zeros(len(parts[0]), dtype=torch.float64)
    for part in parts:
        if isinstance(part, Tensor):
            total += part.double().square().sum(1)
        else:
            total += part.map(lambda x: x.double().square()).row_sums()
    return total


def _scales(parts: Sequence[Latent], normalize: bool) -> Tensor:
    """What to multiply each joint vector with: 1, or one over its length (1 for a vector of zeros)."""
    if not normalize:
        return torch.ones(len(parts[0]), dtype=torch.float64)
    length = _squares(parts).sqrt()
    return 1.0 / torch.where(length > 0, length, 1.0)


def _joined(parts: Sequence[Latent], normalize: bool) -> Any:
    """The joint vectors as a float32 array, for faiss."""
    rows = torch.cat([part.float() if isinstance(part, Tensor) else part.to_dense().float() for part in parts], 1)
    if normalize:
        rows = rows * _scales(parts, True)[:, None].float()
    return rows.contiguous().numpy()
