"""Graphs as methods read them: whole for models, or in chunks that fit in memory; and arrays that may not fit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import DTypeLike, NDArray
from torch import Tensor

from ..graphs import Graph
from ..graphs.edges import damaged
from ..nn import Adjacency, SparseMatrix
from ..nn.layers import Features, rows_of
from ..nn.sparse import check_csr
from ..runtime.errors import translated
from ..runtime.memory import let_go, on_disk
from .prediction import MethodError

VALUES = 1 << 25  # values of a chunk of features
SUMMED = 1 << 22  # values of a chunk of features that is summed in float64
EDGES = 1 << 21  # edges of a block, unless one node has more
IN_MEMORY = 1 << 29  # bytes: larger arrays become files ...
SHARE = 16  # ... and so do those larger than this part of the memory budget
APART = 1 << 10  # rows of a file that are read before its pages are released


def inputs(graph: Graph, device: str = "cpu") -> tuple[Features, Adjacency]:
    """Return features and edges on a device; made once for all methods, which share the operators."""
    return graph.cached(_features, device), graph.cached(_adjacency, device)


def inputs_by_rows(graph: Graph) -> tuple[Features, Adjacency]:
    """Return features and edges whose rows are read when they are needed, without a copy."""
    return _stored_features(graph), graph.cached(_adjacency, "cpu")


def _adjacency(graph: Graph, device: str) -> Adjacency:
    return Adjacency(graph.in_edges, graph.edge_index if graph.path is None else None, device=device)


def _features(graph: Graph, device: str) -> Features:
    x = _stored_features(graph)
    if isinstance(x, SparseMatrix) and graph.path is not None:  # a file may have changed since it was opened
        with translated(ValueError, lambda error: damaged(f"features contradict themselves ({error})")):
            check_csr(x)
    if isinstance(x, Tensor):
        x = x.to(torch.float32)
    elif x.values.dtype != torch.float32:
        x = x.map(Tensor.float)
    return x.to(device)


def _stored_features(graph: Graph) -> Features:
    x = graph.features
    return SparseMatrix.from_torch(x) if x.layout == torch.sparse_csr else x


def undirected(graph: Graph) -> SparseMatrix:
    """Return the matrix of ones, float64, of all edges in both directions, each once and without weights; cached."""
    return graph.cached(_undirected)


def _undirected(graph: Graph) -> SparseMatrix:
    source, target = graph.edge_index
    ends, starts = torch.cat([source, target]), torch.cat([target, source])
    ones = torch.ones(len(ends), dtype=torch.float64)
    matrix = SparseMatrix.from_coo(ends, starts, ones, (graph.num_nodes, graph.num_nodes))
    return matrix.map(torch.ones_like)


def slices(count: int, size: int) -> Iterator[slice]:
    """Yield slices of at most `size` (at least 1) of the numbers below `count`."""
    for first in range(0, count, max(1, size)):
        yield slice(first, min(first + max(1, size), count))


def feature_rows(graph: Graph, chosen: slice | Tensor) -> Features:
    """Return rows of features, float32; sparse ones stay sparse."""
    x = _stored_features(graph)
    if not isinstance(chosen, Tensor) or not isinstance(x, Tensor) or graph.path is None:
        return rows_of(x, chosen)
    parts = []
    for part in torch.split(chosen, APART):
        parts.append(rows_of(x, part))
        graph.release()
    return torch.cat([part for part in parts if isinstance(part, Tensor)])


def feature_chunks(graph: Graph, values: int = VALUES) -> Iterator[tuple[slice, Features]]:
    """Yield all rows of features, float32, with their nodes; `values` are those stored in a chunk, on average."""
    x = graph.features
    width = x.shape[1] if x.layout != torch.sparse_csr else len(x.values()) // max(1, len(x)) + 1
    for chunk in slices(graph.num_nodes, values // max(1, width)):
        yield chunk, feature_rows(graph, chunk)
        graph.release()


def absolute_sums(x: Features) -> Tensor:
    """Return the sum of the absolute values of each row, float64."""
    if isinstance(x, SparseMatrix):
        return x.map(lambda values: values.double().abs()).row_sums()
    return x.double().abs().sum(1)


class EdgeBlock(NamedTuple):
    """All edges into some consecutive nodes.

    Attributes:
        nodes: The nodes.
        starts: Where the edges into each begin in ``sources``, and where the last end ``[n + 1]``.
        sources: Source node of each edge.
    """

    nodes: slice
    starts: Tensor
    sources: Tensor

    @property
    def counts(self) -> Tensor:
        """Number of edges into each node."""
        return self.starts.diff()

    def spread(self, values: Tensor) -> Tensor:
        """Repeat a value of each node for each of its edges."""
        return values.repeat_interleave(self.counts)

    def sums(self, values: Tensor) -> Tensor:
        """Return the sum over the edges into each node, float64 and in their order."""
        count = len(self.starts) - 1
        return torch.bincount(self.spread(torch.arange(count)), values.double(), count)


def edge_blocks(graph: Graph, edges: int = EDGES) -> Iterator[EdgeBlock]:
    """Yield all edges of a graph grouped by target, about `edges` at a time."""
    starts, sources, _ = graph.in_edges
    for first, last in graph.in_edges.chunks(edges):
        block = starts[first : last + 1]
        yield EdgeBlock(slice(first, last), block - block[0], sources[int(block[0]) : int(block[-1])])
        graph.release()


def in_means(graph: Graph, values: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Yield the weighted means of vectors ``[N, D]`` over in-neighbours, with the nodes they are of."""
    _, edges = inputs_by_rows(graph)
    for first, last in graph.in_edges.chunks(EDGES):
        yield slice(first, last), edges.rows("mean", first, last) @ values
        graph.release()


def moments(chunks: Iterable[Tensor]) -> tuple[Tensor, Tensor]:
    """Return mean and standard deviation of each column of a matrix that comes in at least one chunk of rows."""
    seen: list[tuple[int, Tensor, Tensor]] = []
    for chunk in chunks:
        seen.append((len(chunk), chunk.mean(0), chunk.std(0, unbiased=False)))
    if len(seen) == 1:
        return seen[0][1], seen[0][2]
    kind = seen[0][1].dtype
    counts = torch.tensor([count for count, _, _ in seen], dtype=torch.float64)[:, None]
    means, spreads = (torch.stack([part[k].double() for part in seen]) for k in (1, 2))  # type: ignore[union-attr]
    mean = (counts * means).sum(0) / counts.sum()
    variance = (counts * (spreads.square() + (means - mean).square())).sum(0) / counts.sum()
    return mean.to(kind), variance.sqrt().to(kind)


def scratch(shape: tuple[int, ...], dtype: DTypeLike = np.float32, memory: int | None = None) -> NDArray[Any]:
    """Return an empty array: in memory if it is small for the budget, else a temporary file that goes with it."""
    most = IN_MEMORY if memory is None else min(IN_MEMORY, memory // SHARE)
    if int(np.prod(shape)) * np.dtype(dtype).itemsize <= most:
        return np.empty(shape, dtype)
    with translated(OSError, lambda error: MethodError(error.strerror or str(error))):
        return on_disk(shape, dtype)


def rows_at(array: NDArray[Any], numbers: NDArray[Any]) -> NDArray[Any]:
    """Return rows of an array in memory; of a file few are read at a time, as each may map half a MiB around it."""
    if not isinstance(array, np.memmap):
        rows: NDArray[Any] = array[numbers]
        return rows
    result = np.empty((len(numbers), *array.shape[1:]), array.dtype)
    for first in range(0, len(numbers), APART):
        result[first : first + APART] = array[numbers[first : first + APART]]
        let_go(array)
    return result
