"""Descriptions of nodes as rows of numbers: statistics, projected features, shares of labelled neighbours."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...graphs import Graph
from ...nn import SparseMatrix
from ...nn.backbones import Features
from ...runtime.memory import let_go
from ..inputs import (
    SUMMED,
    VALUES,
    absolute_sums,
    edge_blocks,
    feature_chunks,
    feature_rows,
    in_means,
    moments,
    scratch,
    slices,
)

Array = NDArray[Any]

DIMENSIONS = 32  # of the features' projection
RAW_UP_TO = 64  # features; more are projected
GROUP = 1 << 29  # bytes of projections propagated at a time, and of their means, at most
GROUP_SHARE = 8  # inverse share of the memory budget that they may take
BASIS_ROWS = 50_000  # nodes from which the projection is learnt; more would not change it
NODE_STATISTICS = ("feature sum", "active features", "in-degree", "out-degree")
SIZES = NODE_STATISTICS.index("in-degree")  # feature sum and active features: unchanged as a graph grows
STATISTICS = (
    *NODE_STATISTICS,
    *(f"{name} of in-neighbours" for name in NODE_STATISTICS),
    *(f"{name} of out-neighbours" for name in NODE_STATISTICS),
)
_BLAS = threading.RLock()


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit BLAS and OpenMP of NumPy, SciPy and scikit-learn to one thread: same bits on any number of cores.

    The limit is process-wide, so a second thread waits; otherwise the limit would be lifted too early.
    """
    from threadpoolctl import threadpool_limits

    with _BLAS, threadpool_limits(1):
        yield


@dataclass(frozen=True, eq=False)
class Describer:
    """Transformer from nodes to rows of numbers, with scales and projection learnt from one graph.

    A row has the twelve ``STATISTICS`` (log(1 + x), and their means over neighbours), standardised, and ``x V`` with
    its means over one and two steps of in-neighbours, where the columns of V are the leading right singular vectors of
    the features: of sparse ones with rows of length 1, of dense ones with standardised columns. Up to ``RAW_UP_TO``
    features V is the identity.
    """

    centre: Tensor  # of the statistics, [12]
    scale: Tensor
    feature_centre: Tensor  # of dense features, [F]; zeros (scale: ones) for sparse ones
    feature_scale: Tensor
    basis: Tensor  # V, [F, D]

    FIELDS: ClassVar[tuple[str, ...]] = ("centre", "scale", "feature_centre", "feature_scale", "basis")

    @classmethod
    def of(cls, graph: Graph, seed: int, statistics: Array | None = None) -> Describer:
        """Learn the scales and the projection from all nodes of a graph, without labels."""
        raw = _statistics(graph) if statistics is None else statistics
        parts = slices(len(raw), SUMMED // raw.shape[1])
        centre, scale = moments(torch.from_numpy(raw[part]) for part in parts)
        let_go(raw)
        width = graph.num_features
        feature_centre, feature_scale = torch.zeros(width), torch.ones(width)
        if graph.features.layout != torch.sparse_csr:
            feature_centre, feature_scale = moments(x for _, x in feature_chunks(graph) if isinstance(x, Tensor))
            feature_scale = _safe(feature_scale)
        basis = torch.eye(width)
        if width > RAW_UP_TO:
            from sklearn.utils.extmath import randomized_svd

            rows = torch.arange(graph.num_nodes)
            if len(rows) > BASIS_ROWS:
                rows = torch.from_numpy(np.random.default_rng(seed).choice(len(rows), BASIS_ROWS, replace=False))
            sample = _scaled(feature_rows(graph, rows.sort().values), feature_centre, feature_scale)
            matrix = _scipy(sample) if isinstance(sample, SparseMatrix) else sample.numpy()
            with one_thread():
                _, _, transposed = randomized_svd(matrix, min(DIMENSIONS, *matrix.shape), n_iter=3, random_state=seed)
            basis = torch.from_numpy(np.ascontiguousarray(transposed.T.astype(np.float32)))
        return cls(centre, _safe(scale), feature_centre, feature_scale, basis)

    def sizes(self, rows: Array) -> Array:
        """``log(1 + x)`` of the feature sum and the active features of described nodes ``[N, 2]``."""
        scale, centre = self.scale[:SIZES].double().numpy(), self.centre[:SIZES].double().numpy()
        result: Array = rows[:, :SIZES].astype(np.float64) * scale + centre
        return result

    def __call__(self, graph: Graph, statistics: Array | None = None, memory: int | None = None) -> Array:
        """Return the rows of all nodes, float32; those of a large graph are memory-mapped, to be read in chunks."""
        count, width = graph.num_nodes, self.basis.shape[1]
        rows = scratch((count, len(STATISTICS) + 3 * width), memory=memory)
        raw = _statistics(graph, memory) if statistics is None else statistics
        for part in slices(count, VALUES // rows.shape[1]):
            rows[part, : len(STATISTICS)] = (torch.from_numpy(raw[part]) - self.centre) / self.scale
            let_go(raw)
            let_go(rows)
        del raw
        most = GROUP if memory is None else max(1, min(GROUP, memory // GROUP_SHARE))
        group = -(-width // -(-4 * count * width // most))  # columns propagated at a time
        for first in range(0, width, group):
            basis = self.basis[:, first : first + group].contiguous()
            projected = torch.empty(count, basis.shape[1])
            for part, x in feature_chunks(graph):
                projected[part] = _scaled(x, self.feature_centre, self.feature_scale) @ basis
            near = torch.empty_like(projected)
            for part, mean in in_means(graph, projected):
                near[part] = mean
            for part, mean in in_means(graph, near):
                for number, block in enumerate((projected[part], near[part], mean)):
                    start = len(STATISTICS) + number * width + first
                    rows[part, start : start + block.shape[1]] = block
                let_go(rows)
        return rows


def described(graph: Graph, seed: int, memory: int | None = None) -> tuple[Describer, Array]:
    """Fit a describer to a graph, and return it with the rows of the graph's nodes."""
    statistics = _statistics(graph, memory)
    describer = Describer.of(graph, seed, statistics)
    return describer, describer(graph, statistics, memory)


def _safe(scale: Tensor) -> Tensor:
    """Scale with 1 for constant columns."""
    return torch.where(scale > 1e-12, scale, 1.0)


def _scaled(x: Features, centre: Tensor, scale: Tensor) -> Features:
    if isinstance(x, Tensor):
        return (x - centre).div_(scale)
    length = x.map(Tensor.square).row_sums().sqrt().clamp_min(1e-12)
    return x.map(lambda values: values / length.repeat_interleave(x.starts.diff().long()))


def _scipy(matrix: SparseMatrix) -> Any:
    from scipy.sparse import csr_matrix

    arrays = tuple(tensor.numpy() for tensor in (matrix.values, matrix.columns, matrix.starts))
    return csr_matrix(arrays, shape=matrix.shape)


def _statistics(graph: Graph, memory: int | None = None) -> Array:
    """``log(1 + x)`` of each node's statistics, and their means over in- and out-neighbours, float64 ``[N, 12]``."""
    count = graph.num_nodes
    total, active = torch.empty(2, count, dtype=torch.float64)
    for part, x in feature_chunks(graph, SUMMED):
        total[part] = absolute_sums(x)
        active[part] = x.starts.diff() if isinstance(x, SparseMatrix) else (x != 0).sum(1)
    out = torch.zeros(count, dtype=torch.int64)
    for block in edge_blocks(graph):
        out.index_add_(0, block.sources, out.new_ones(()).expand(len(block.sources)))
    counts = graph.in_edges.starts.diff().double(), out.double()
    columns = [column.log1p() for column in (total, active, *counts)]
    del total, active, out  # at millions of nodes each is a hundred megabytes
    statistics = scratch((count, len(STATISTICS)), np.float64, memory)
    sums = [torch.zeros(count, dtype=torch.float64) for _ in columns]
    width = len(columns)
    for block in edge_blocks(graph):
        part = block.nodes
        degree = counts[0][part].clamp_min(1.0)
        for number, column in enumerate(columns):
            statistics[part, number] = column[part]
            statistics[part, width + number] = block.sums(column.index_select(0, block.sources)) / degree
            sums[number].index_add_(0, block.sources, block.spread(column[part]))
        let_go(statistics)
    for part in slices(count, SUMMED // len(STATISTICS)):
        for number, column in enumerate(sums):
            statistics[part, 2 * width + number] = column[part] / counts[1][part].clamp_min(1.0)
        let_go(statistics)
    return statistics


def labelled_shares(graph: Graph, labelled: Tensor, visible: Tensor, memory: int | None = None) -> Array:
    """Shares of labelled nodes among in- and among out-neighbours, float32 ``[N, 2]``.

    Only neighbours in ``visible`` count: those whose state a fold's models may use. One neighbour of average state is
    added, so that few neighbours carry little weight. Self-loops do not count: a node must not reveal its own state.
    """
    marked = labelled & visible
    average = marked.sum().double() / visible.sum().clamp_min(1).double()
    counts = torch.zeros(4, graph.num_nodes, dtype=torch.int32)  # labelled and visible in- and out-neighbours
    for block in edge_blocks(graph):
        first, last = block.nodes.start, block.nodes.stop
        target = block.spread(torch.arange(first, last, dtype=block.sources.dtype))
        no_loop = block.sources != target
        for number, which in enumerate((marked, visible)):
            hits = (which.index_select(0, block.sources) & no_loop).int()
            counts[number, block.nodes].index_add_(0, target - first, hits)
            counts[2 + number].index_add_(0, block.sources, (block.spread(which[block.nodes]) & no_loop).int())
    shares = scratch((graph.num_nodes, 2), memory=None if memory is None else memory // 4)  # one array per fold
    for side, (labelled_count, total) in enumerate((counts[:2], counts[2:])):
        for part in slices(graph.num_nodes, VALUES):
            shares[part, side] = (labelled_count[part].double() + average) / (total[part].double() + 1.0)
    return shares
