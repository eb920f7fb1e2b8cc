"""Nearest neighbours in a latent space: exact up to a stated size, approximate with a measured recall above it."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from ..nn import SparseMatrix
from ..nn.layers import rows_of
from ..runtime.names import install_hint
from .prediction import MethodError

Latent: TypeAlias = Tensor | SparseMatrix
Latents: TypeAlias = Latent | Sequence[Latent]

EXACT_UP_TO = 150_000  # training nodes; above, neighbours are approximate
CHUNK = 1 << 24  # distances held at a time
PROBES = 32  # of the index's cells, how many are searched for a query at least
FACTOR, MOST = 4, 64  # for a neighbour, so many candidates are found by rough distances at least, and at the most
RECALL = 0.95  # more cells and candidates are searched until this share of the true neighbours is found,
MEASURED = 1_000  # measured on so many training nodes, each of them left out for itself
SEARCHED = 1 << 12  # queries at a time; faiss is slow on fewer

_SEARCHING = threading.Lock()  # an index is made and tuned once
_PRODUCTS = threading.Lock()  # the matrix products that faiss brings along are not safe in threads


class Search(NamedTuple):
    """How an index is searched, and what that finds.

    Attributes:
        k: For so many neighbours.
        probes: Cells that are searched for a query.
        factor: Candidates for a neighbour.
        rough: Whether rough distances find them.
        recall: The share of the true neighbours that is found for training nodes.
    """

    k: int
    probes: int
    factor: int
    rough: bool
    recall: float

    def tensor(self) -> Tensor:
        """To be saved."""
        return torch.tensor(self, dtype=torch.float64)

    @classmethod
    def from_tensor(cls, tensor: Tensor) -> Search:
        """The inverse of ``tensor``.

        Args:
            tensor: What was saved.
        """
        k, probes, factor, rough, recall = tensor.tolist()
        if not (k >= 1 and probes >= 1 and 1 <= factor <= MOST and rough in (0.0, 1.0) and 0.0 <= recall <= 1.0):
            raise ValueError(f"neighbours cannot be searched as it says: {tensor.tolist()}")
        return cls(int(k), int(probes), int(factor), bool(rough), recall)


class NeighbourBank:
    """The latents of training nodes, to be asked for the distances of others to the nearest of them.

    A list of latents is one joint space, whose squared distances are the sums of each one's. Above ``EXACT_UP_TO``
    training nodes an inverted-file index of faiss serves, which finds candidates by rough distances; those of the
    candidates are exact. How widely it searches is chosen once, by some training nodes, each of which looks for its
    neighbours among the others: all queries are then searched alike, whoever asks for which of them together, and what
    is promised of calibration nodes and others that are exchangeable holds. Threads share the work, and the result does
    not depend on how many there are.

    Args:
        train: The latents.
        normalize: Whether to scale joint vectors to length 1.

    Attributes:
        search: How an index is searched, once that is chosen; None where neighbours are exact.
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
        """The share of the true neighbours that is found for training nodes; None where neighbours are exact."""
        return None if self.search is None else self.search.recall

    def prepare(self, k: int) -> None:
        """Make the index, if one serves, and choose how it is searched for the ``k`` nearest, unless that is known."""
        if self.count > EXACT_UP_TO:
            with _SEARCHING, _threads() as pool:
                self._ready(k, pool)

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
        with _threads() as pool:
            index = self._ready(k, pool)

            def search(nodes: Tensor) -> Tensor:
                rows = _joined([rows_of(part, nodes) for part in queries], self.normalize)
                return torch.from_numpy(index.search(rows, k)).double().sqrt()

            chunks = torch.split(torch.arange(len(queries[0])), SEARCHED)
            return torch.cat(list(_bar(pool.map(search, chunks), len(chunks))))

    def _ready(self, k: int, pool: ThreadPoolExecutor) -> _Index:
        """The index, which knows how to search for the ``k`` nearest."""
        if self._index is None:
            self._index = pool.submit(_Index, _joined(self.parts, self.normalize), self.search).result()
        if self.search is None or self.search.k != k:
            self.search = pool.submit(self._index.tune, k).result()
        return self._index


class _Index:
    """An inverted file of the rows of a matrix: cells around centres, and codes of 2 bits a number in them.

    Codes are those of pairs of numbers, which faiss compares 32 at a time. Where their rough distances are of no use,
    the cells get the rows themselves instead.

    Args:
        rows: The matrix, float32; it is not copied.
        search: How it is searched, if that is known; ``tune`` finds out.
    """

    def __init__(self, rows: Any, search: Search | None = None) -> None:
        import faiss

        self._faiss: Any = faiss
        self._rows, self._factor = rows, FACTOR
        self._width = rows.shape[1] + rows.shape[1] % 2
        cells = 1 << round(np.log2(2.0 * len(rows) ** 0.5))
        clusters = faiss.ClusteringParameters()  # whose seed is faiss's own and fixed
        clusters.niter, clusters.max_points_per_centroid = 5, 40
        self._sample = self._even(rows[_spread(len(rows), 40 * cells)])
        self._centres = faiss.IndexFlatL2(self._width)
        faiss.Clustering(self._width, cells, clusters).train(self._sample, self._centres)
        self._fill(rough=search is None or search.rough)
        if search is not None:
            self._index.nprobe, self._factor = min(search.probes, cells), search.factor

    def _fill(self, rough: bool) -> None:
        """Make the index, of codes or of the rows themselves."""
        centres = self._centres
        if rough:
            index = self._faiss.IndexIVFPQFastScan(centres, self._width, centres.ntotal, self._width // 2, 4)
            index.by_residual = False  # a table of distances for a query, and not for each of its cells
        else:
            index = self._faiss.IndexIVFFlat(centres, self._width, centres.ntotal)
            self._factor = 1
        index.train(self._sample)
        for start in range(0, len(self._rows), 1 << 18):
            index.add(self._even(self._rows[start : start + (1 << 18)]))
        self._index, self._rough = index, rough

    def tune(self, k: int) -> Search:
        """Search more cells and more candidates until ``RECALL`` of the true k nearest of some rows are found.

        Each of these rows looks for others, as a query that is no row would.
        """
        count, nearest = len(self._rows), min(k, len(self._rows) - 1)
        own = np.sort(np.random.default_rng(0).choice(count, min(MEASURED, count), replace=False))
        queries = np.ascontiguousarray(self._rows[own])
        limit = self._exact(queries, nearest + 1) * (1 + 1e-5) + 1e-12  # by distance: ties are as good

        def recall(probes: int, factor: int) -> float:
            self._index.nprobe, self._factor = min(probes, self._index.nlist), factor
            return float((self.search(queries, nearest, own) <= limit).mean())

        probes, factor = PROBES, FACTOR if self._rough else 1
        found = recall(probes, factor)
        while found < RECALL and (probes < self._index.nlist or self._rough):
            wider = recall(more := probes + (probes + 1) // 2, factor) if probes < self._index.nlist else found
            longer = recall(probes, 2 * factor) if self._rough and factor < MOST else found
            if longer - found >= 0.5 * (wider - found) and longer > found:  # candidates cost less than cells
                found, factor = longer, 2 * factor
            elif probes < self._index.nlist:
                found, probes = wider, more
            else:  # all cells are searched, and candidates are of no use
                self._fill(rough=False)
                probes, factor = PROBES, 1
                found = recall(probes, factor)
        found = recall(probes, factor)
        return Search(k, self._index.nprobe, factor, self._rough, found)

    def search(self, queries: Any, k: int, own: Any = None) -> Any:
        """Squared distances ``[N, k]``, ascending; where the cells searched hold fewer than k rows, all rows are.

        Args:
            queries: The queries, float32.
            k: How many of the nearest rows.
            own: The numbers of the queries, if they are rows, which are then left out for themselves.
        """
        rows, more = self._even(queries), int(own is not None)
        with _PRODUCTS:
            squares, cells = self._centres.search(rows, self._index.nprobe)
        most = min(k * self._factor + more, len(self._rows))
        _, found = self._index.search_preassigned(rows, most, cells, squares)
        found = _others(found, own)
        squares = self._squares(queries, found, k)
        short = found[:, k - 1] < 0
        if short.any():
            nearest = _others(self._nearest(queries[short], k + more), None if own is None else own[short])
            squares[short] = self._squares(queries[short], nearest, k)
        return squares

    def _exact(self, queries: Any, k: int) -> Any:
        """The k-th smallest squared distance ``[N, 1]`` of queries to all rows."""
        return self._squares(queries, self._nearest(queries, k), k)[:, -1:]

    def _nearest(self, queries: Any, k: int) -> Any:
        """The k nearest of all rows and some more, as products have rounded."""
        k = min(k + 8, len(self._rows))
        best, found = torch.empty(len(queries), 0), torch.empty(len(queries), 0, dtype=torch.int64)
        for start in range(0, len(self._rows), 1 << 13):
            rows = np.ascontiguousarray(self._rows[start : start + (1 << 13)])
            distances = queries @ rows.T  # by numpy, whose products are the quicker ones on some processors
            distances *= -2.0
            distances += np.einsum("nd,nd->n", rows, rows)
            numbers = torch.arange(start, start + len(rows)).expand(len(queries), -1)
            best, found = torch.cat([best, torch.from_numpy(distances)], 1), torch.cat([found, numbers], 1)
            best, at = best.topk(min(k, best.shape[1]), largest=False)
            found = found.gather(1, at)
        return found.numpy()

    def _squares(self, queries: Any, candidates: Any, k: int) -> Any:
        """The k smallest squared distances ``[N, k]`` to candidates, ascending; a candidate of -1 is none."""
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
        """Rows with an even number of columns, one of zeros added where need be, one after the other in memory."""
        extra = self._width - rows.shape[1]
        return np.pad(rows, ((0, 0), (0, extra))) if extra else np.ascontiguousarray(rows)


def check_search(count: int) -> None:
    """Say what is missing for a search among so many training nodes, before anything is trained."""
    if count > EXACT_UP_TO and find_spec("faiss") is None:
        raise MethodError(f"neighbours among {count:,} training nodes need faiss: {install_hint('faiss')}")


def _others(found: Any, own: Any) -> Any:
    """Candidates ``[N, K]`` without each query itself: of one that is not among them the last one goes."""
    if own is None:
        return found
    gone = found == own[:, None]
    gone[~gone.any(1), -1] = True
    return found[~gone].reshape(len(found), -1)


def _threads() -> ThreadPoolExecutor:
    """As many as torch may use; each chunk is searched by one of faiss, so that their number changes no bit."""
    import faiss

    return ThreadPoolExecutor(torch.get_num_threads(), initializer=faiss.omp_set_num_threads, initargs=(1,))


def _chunks(count: int, size: int) -> Iterator[Tensor]:
    """The numbers below ``count`` in chunks, with a bar."""
    chunks = torch.split(torch.arange(count), size)
    yield from _bar(chunks, len(chunks))


def _bar(chunks: Iterable[Tensor], count: int) -> Iterator[Tensor]:
    """Chunks with a bar on a terminal when they take more than a few seconds."""
    yield from tqdm(chunks, total=count, desc="neighbours", unit="part", delay=3, disable=None, leave=False)


def _spread(count: int, most: int) -> Any:
    """At most so many of the numbers below ``count``, evenly spread."""
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
    """What to multiply each joint vector with: 1, or one over its length (1 for a vector of zeros)."""
    if not normalize:
        return torch.ones(len(parts[0]), dtype=torch.float64)
    length = _squares(parts).sqrt()
    return 1.0 / torch.where(length > 0, length, 1.0)


def _joined(parts: Sequence[Latent], normalize: bool) -> Any:
    """The joint vectors as a float32 array, for faiss; latents that are one already are not copied."""
    first = parts[0]
    if len(parts) == 1 and not normalize and isinstance(first, Tensor) and first.dtype == torch.float32:
        return first.detach().numpy()
    count, width = len(first), sum(part.shape[1] for part in parts)
    rows = np.empty((count, width), np.float32)
    for chunk in torch.split(torch.arange(count), 1 << 16):
        some = [rows_of(part, chunk) for part in parts]
        dense = torch.cat([part.float() if isinstance(part, Tensor) else part.to_dense().float() for part in some], 1)
        if normalize:
            dense = dense * _scales(some, True)[:, None].float()
        rows[chunk.numpy()] = dense.detach().numpy()
    return rows
