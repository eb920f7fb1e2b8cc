"""Nearest neighbours in a latent space: exact up to ``EXACT_UP_TO`` nodes, above approximate with measured recall."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from ..nn import SparseMatrix
from ..nn.layers import rows_of
from ..runtime.names import install_hint
from ..runtime.progress import Progress
from .prediction import MethodError

Latent: TypeAlias = Tensor | SparseMatrix
Latents: TypeAlias = Latent | Sequence[Latent]

EXACT_UP_TO = 150_000  # training nodes; above, neighbours are approximate
CHUNK = 1 << 24  # distances held at a time
PROBES = 32  # least number of the index's cells searched per query
FACTOR, MOST = 4, 64  # least and largest number of candidates per neighbour, found by rough distances
RECALL = 0.95  # target: cells and candidates are increased until it is reached
MEASURED = 1_000  # training nodes, each excluding itself, on which recall is measured
SEARCHED = 1 << 12  # queries at a time; faiss is slow on fewer

_SEARCHING = threading.Lock()  # an index is built and tuned once
_PRODUCTS = threading.Lock()  # the BLAS bundled with faiss is not thread-safe


class Search(NamedTuple):
    """Settings of an index and the recall that they reach.

    Attributes:
        k: Number of neighbours.
        probes: Cells searched per query.
        factor: Candidates per neighbour.
        rough: Candidates come from rough distances (product quantisation).
        recall: Share of the true neighbours found for training nodes.
    """

    k: int
    probes: int
    factor: int
    rough: bool
    recall: float

    def tensor(self) -> Tensor:
        """Return the settings as a tensor, to be saved."""
        return torch.tensor(self, dtype=torch.float64)

    @classmethod
    def from_tensor(cls, tensor: Tensor) -> Search:
        """Inverse of ``tensor``."""
        k, probes, factor, rough, recall = tensor.tolist()
        if not (k >= 1 and probes >= 1 and 1 <= factor <= MOST and rough in (0.0, 1.0) and 0.0 <= recall <= 1.0):
            raise ValueError(f"invalid settings of the neighbour search: {tensor.tolist()}")
        return cls(int(k), int(probes), int(factor), bool(rough), recall)


class NeighbourBank:
    """Latents of training nodes, and distances of other nodes to the nearest of them.

    A list of latents is one joint space whose squared distances are the sums over its parts. Above ``EXACT_UP_TO``
    training nodes an inverted-file index of faiss finds candidates by rough distances; distances to candidates are
    exact. The search is tuned once, on training nodes that look for their neighbours among the others: all queries are
    then searched alike, independently of the batch, so conformal guarantees for exchangeable nodes hold. The result
    does not depend on the number of threads.

    Args:
        train: Latents ``[N, D]``, or a list of them.
        normalize: Scale joint vectors to length 1.

    Attributes:
        search: Settings of the index, once tuned; None where neighbours are exact.
    """

    def __init__(self, train: Latents, normalize: bool = False) -> None:
        self.normalize = normalize
        self.parts = _parts(train)
        self.count = len(self.parts[0])
        self.search: Search | None = None
        self._index: _Index | None = None
        self._prepared: tuple[list[Tensor], Tensor] | None = None

    @property
    def recall(self) -> float | None:
        """Share of the true neighbours found for training nodes; None where neighbours are exact."""
        return None if self.search is None else self.search.recall

    def prepare(self, k: int) -> None:
        """Build the index where neighbours are approximate, and tune it for the ``k`` nearest unless that is done."""
        if self.count > EXACT_UP_TO:
            with _SEARCHING, _threads() as pool:
                self._tuned(k, pool)

    def distance(self, queries: Latents, k: int, kth: bool = False) -> Tensor:
        """Return the mean distance of each query to its ``k`` nearest, or with ``kth`` the distance to the k-th."""
        if not 1 <= k <= self.count:
            raise MethodError(f"k={k}, but there are {self.count} training nodes: choose 1 <= k <= {self.count}")
        parts = _parts(queries)
        widths, train_widths = [p.shape[1] for p in parts], [p.shape[1] for p in self.parts]
        if widths != train_widths:
            raise MethodError(f"latents of widths {widths} do not match training latents of widths {train_widths}")
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
        chunks = torch.split(torch.arange(len(queries[0])), max(1, CHUNK // self.count))
        for chunk in Progress(len(chunks), "neighbours", "chunks").over(chunks):
            parts = [_double(rows_of(part, chunk)) for part in queries]
            scale = _scales(parts, self.normalize)
            lengths = (_squares(parts) * scale.square())[:, None]
            products = sum((part @ c for part, c in zip(parts, columns, strict=True)), torch.zeros(()))
            distances = squares - 2.0 * scale[:, None] * products
            nearest = distances.topk(k, largest=False).values
            result.append((nearest + lengths).clamp_min(0.0).sqrt())
        return torch.cat(result)

    def _approximate(self, queries: list[Latent], k: int) -> Tensor:
        with _threads() as pool:
            index = self._tuned(k, pool)

            def search(nodes: Tensor) -> Tensor:
                rows = _joined([rows_of(part, nodes) for part in queries], self.normalize)
                return torch.from_numpy(index.search(rows, k)).double().sqrt()

            chunks = torch.split(torch.arange(len(queries[0])), SEARCHED)
            return torch.cat(list(Progress(len(chunks), "neighbours", "chunks").over(pool.map(search, chunks))))

    def _tuned(self, k: int, pool: ThreadPoolExecutor) -> _Index:
        """Index tuned for the ``k`` nearest."""
        if self._index is None:
            self._index = pool.submit(_Index, _joined(self.parts, self.normalize), self.search).result()
        if self.search is None or self.search.k != k:
            self.search = pool.submit(self._index.tune, k).result()
        return self._index


class _Index:
    """Inverted file of the rows of a float32 matrix: cells around centres, with codes of 2 bits per number.

    Codes are those of pairs of numbers, which faiss compares 32 at a time. Where their rough distances are of no use,
    the cells store the rows instead. Without ``search`` the index needs ``tune``.
    """

    def __init__(self, rows: Any, search: Search | None = None) -> None:
        import faiss

        self._faiss: Any = faiss
        self._rows, self._factor = rows, FACTOR
        self._width = rows.shape[1] + rows.shape[1] % 2
        cells = 1 << round(np.log2(2.0 * len(rows) ** 0.5))
        clusters = faiss.ClusteringParameters()  # with faiss's fixed seed
        clusters.niter, clusters.max_points_per_centroid = 5, 40
        self._sample = self._even(rows[_spread(len(rows), 40 * cells)])
        self._centres = faiss.IndexFlatL2(self._width)
        faiss.Clustering(self._width, cells, clusters).train(self._sample, self._centres)
        self._fill(rough=search is None or search.rough)
        if search is not None:
            self._index.nprobe, self._factor = min(search.probes, cells), search.factor

    def _fill(self, rough: bool) -> None:
        """Build the index, of codes or of rows."""
        centres = self._centres
        if rough:
            index = self._faiss.IndexIVFPQFastScan(centres, self._width, centres.ntotal, self._width // 2, 4)
            index.by_residual = False  # one table of distances per query, not per cell
        else:
            index = self._faiss.IndexIVFFlat(centres, self._width, centres.ntotal)
            self._factor = 1
        index.train(self._sample)
        for start in range(0, len(self._rows), 1 << 18):
            index.add(self._even(self._rows[start : start + (1 << 18)]))
        self._index, self._rough = index, rough

    def tune(self, k: int) -> Search:
        """Increase cells and candidates until ``RECALL`` of the true k nearest of some rows are found.

        Each of these rows excludes itself, as for a query that is no row.
        """
        count, nearest = len(self._rows), min(k, len(self._rows) - 1)
        numbers = np.sort(np.random.default_rng(0).choice(count, min(MEASURED, count), replace=False))
        queries = np.ascontiguousarray(self._rows[numbers])
        limit = self._exact(queries, nearest + 1) * (1 + 1e-5) + 1e-12  # by distance, so that ties count

        def recall(probes: int, factor: int) -> float:
            self._index.nprobe, self._factor = min(probes, self._index.nlist), factor
            return float((self.search(queries, nearest, numbers) <= limit).mean())

        probes, factor = PROBES, FACTOR if self._rough else 1
        reached = recall(probes, factor)
        while reached < RECALL and (probes < self._index.nlist or self._rough):
            wider = recall(more := probes + (probes + 1) // 2, factor) if probes < self._index.nlist else reached
            longer = recall(probes, 2 * factor) if self._rough and factor < MOST else reached
            if longer - reached >= 0.5 * (wider - reached) and longer > reached:  # candidates cost less than cells
                reached, factor = longer, 2 * factor
            elif probes < self._index.nlist:
                reached, probes = wider, more
            else:  # all cells are searched, and more candidates do not help
                self._fill(rough=False)
                probes, factor = PROBES, 1
                reached = recall(probes, factor)
        reached = recall(probes, factor)
        return Search(k, self._index.nprobe, factor, self._rough, reached)

    def search(self, queries: Any, k: int, excluded: Any = None) -> Any:
        """Return squared distances ``[N, k]``, ascending, to all rows where the searched cells hold fewer than k.

        ``excluded`` gives one row number per query to leave out: its own, if queries are rows.
        """
        rows, more = self._even(queries), int(excluded is not None)
        with _PRODUCTS:
            squares, cells = self._centres.search(rows, self._index.nprobe)
        most = min(k * self._factor + more, len(self._rows))
        _, candidates = self._index.search_preassigned(rows, most, cells, squares)
        candidates = _without(candidates, excluded)
        squares = self._squares(queries, candidates, k)
        short = candidates[:, k - 1] < 0
        if short.any():
            nearest = self._nearest(queries[short], k + more)
            nearest = _without(nearest, None if excluded is None else excluded[short])
            squares[short] = self._squares(queries[short], nearest, k)
        return squares

    def _exact(self, queries: Any, k: int) -> Any:
        """k-th smallest squared distance ``[N, 1]`` of queries to all rows."""
        return self._squares(queries, self._nearest(queries, k), k)[:, -1:]

    def _nearest(self, queries: Any, k: int) -> Any:
        """Numbers of the k nearest of all rows, and of some more because matrix products round."""
        k = min(k + 8, len(self._rows))
        best, nearest = torch.empty(len(queries), 0), torch.empty(len(queries), 0, dtype=torch.int64)
        for start in range(0, len(self._rows), 1 << 13):
            rows = np.ascontiguousarray(self._rows[start : start + (1 << 13)])
            distances = queries @ rows.T  # NumPy's products are faster on some processors
            distances *= -2.0
            distances += np.einsum("nd,nd->n", rows, rows)
            numbers = torch.arange(start, start + len(rows)).expand(len(queries), -1)
            best, nearest = torch.cat([best, torch.from_numpy(distances)], 1), torch.cat([nearest, numbers], 1)
            best, at = best.topk(min(k, best.shape[1]), largest=False)
            nearest = nearest.gather(1, at)
        return nearest.numpy()

    def _squares(self, queries: Any, candidates: Any, k: int) -> Any:
        """k smallest squared distances ``[N, k]`` to candidates, ascending; -1 is no candidate."""
        result = np.empty((len(queries), k), np.float32)
        step = max(1, (1 << 20) // (candidates.shape[1] * queries.shape[1]))
        for start in range(0, len(queries), step):
            chosen = candidates[start : start + step]
            near = self._rows[chosen]
            near -= queries[start : start + step, None]
            squares = np.einsum("nkd,nkd->nk", near, near)
            squares[chosen < 0] = np.inf
            if k < squares.shape[1]:
                squares = np.partition(squares, k - 1, 1)[:, :k]
            result[start : start + step] = np.sort(squares, 1)
        return result

    def _even(self, rows: Any) -> Any:
        """Contiguous rows with an even number of columns, padded with zeros."""
        extra = self._width - rows.shape[1]
        return np.pad(rows, ((0, 0), (0, extra))) if extra else np.ascontiguousarray(rows)


def check_search(count: int) -> None:
    """Raise before training if the search among this many training nodes needs faiss and it is missing."""
    if count > EXACT_UP_TO and find_spec("faiss") is None:
        raise MethodError(f"neighbours among {count:,} training nodes need faiss: {install_hint('faiss')}")


def _without(candidates: Any, excluded: Any) -> Any:
    """Candidates ``[N, K]`` without the excluded row of each query, or without the last where it is not among them."""
    if excluded is None:
        return candidates
    drop = candidates == excluded[:, None]
    drop[~drop.any(1), -1] = True
    return candidates[~drop].reshape(len(candidates), -1)


def _threads() -> ThreadPoolExecutor:
    """Pool of torch's number of threads; faiss uses one thread per chunk, so their number changes no bit."""
    import faiss

    return ThreadPoolExecutor(torch.get_num_threads(), initializer=faiss.omp_set_num_threads, initargs=(1,))


def _spread(count: int, most: int) -> Any:
    """At most ``most`` of the numbers below ``count``, evenly spread."""
    return np.linspace(0, count - 1, min(most, count)).astype(np.int64)


def _parts(latents: Latents) -> list[Latent]:
    return list(latents) if isinstance(latents, Sequence) else [latents]


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
    """Factor of each joint vector: 1, or one over its length (1 for a zero vector)."""
    if not normalize:
        return torch.ones(len(parts[0]), dtype=torch.float64)
    length = _squares(parts).sqrt()
    return 1.0 / torch.where(length > 0, length, 1.0)


def _joined(parts: Sequence[Latent], normalize: bool) -> Any:
    """Joint vectors as a float32 array for faiss, without a copy where possible."""
    first = parts[0]
    if len(parts) == 1 and not normalize and isinstance(first, Tensor) and first.dtype == torch.float32:
        return first.detach().numpy()
    count, width = len(first), sum(part.shape[1] for part in parts)
    rows = np.empty((count, width), np.float32)
    for chunk in torch.split(torch.arange(count), 1 << 16):
        joint = [rows_of(part, chunk) for part in parts]
        dense = torch.cat([part.float() if isinstance(part, Tensor) else part.to_dense().float() for part in joint], 1)
        if normalize:
            dense = dense * _scales(joint, True)[:, None].float()
        rows[chunk.numpy()] = dense.detach().numpy()
    return rows
