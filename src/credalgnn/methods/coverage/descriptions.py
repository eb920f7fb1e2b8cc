"""What a node looks like, in numbers: statistics, projected features, and the share of labels around it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...graphs import Graph
from ...nn import SparseMatrix
from ...nn.backbones import Features
from ..inputs import inputs
from .one_thread import one_thread

Array = NDArray[Any]

DIMENSIONS = 32  # of the features' projection,
RAW_UP_TO = 64  # where there are more features than this
BASIS_ROWS = 50_000  # nodes from which the projection is learnt; more would not change it
OWN_STATISTICS = ("feature sum", "active features", "in-degree", "out-degree")
STATISTICS = (
    *OWN_STATISTICS,
    *(f"{name} of in-neighbours" for name in OWN_STATISTICS),
    *(f"{name} of out-neighbours" for name in OWN_STATISTICS),
)
SHARES = ("labelled in-neighbours", "labelled out-neighbours")


@dataclass(frozen=True, eq=False)
class Describer:
    """Turns the nodes of a graph into rows of numbers, always in the way learnt from the graph it was made for.

    A row has the twelve ``STATISTICS`` (log(1 + x), and their means over neighbours), standardised, and ``x V`` with
    its means over one and two steps of in-neighbours, where the columns of V are the leading right singular vectors of
    the features: of sparse ones with rows of length 1, of dense ones with standardised columns. Up to ``RAW_UP_TO``
    features are taken as they are: V is the identity.
    """

    centre: Tensor  # of the statistics, [12]
    scale: Tensor
    feature_centre: Tensor  # of dense features, [F]; zeros and ones for sparse ones
    feature_scale: Tensor
    basis: Tensor  # V, [F, D]

    FIELDS: ClassVar[tuple[str, ...]] = ("centre", "scale", "feature_centre", "feature_scale", "basis")

    @classmethod
    def of(cls, graph: Graph, seed: int) -> Describer:
        """Learn the scales and the projection from all nodes of a graph; no label is looked at."""
        raw = _statistics(graph)
        centre, scale = raw.mean(0), _safe(raw.std(0, unbiased=False))
        x, _ = inputs(graph)
        width = graph.num_features
        feature_centre, feature_scale = torch.zeros(width), torch.ones(width)
        if isinstance(x, Tensor):
            feature_centre, feature_scale = x.mean(0), _safe(x.std(0, unbiased=False))
        basis = torch.eye(width)
        if width > RAW_UP_TO:
            from sklearn.utils.extmath import randomized_svd

            rows = torch.arange(graph.num_nodes)
            if len(rows) > BASIS_ROWS:
                rows = torch.from_numpy(np.random.default_rng(seed).choice(len(rows), BASIS_ROWS, replace=False))
            sample = _scaled(x, feature_centre, feature_scale, rows.sort().values)
            matrix = _scipy(sample) if isinstance(sample, SparseMatrix) else sample.numpy()
            with one_thread():
                _, _, transposed = randomized_svd(matrix, min(DIMENSIONS, *matrix.shape), n_iter=3, random_state=seed)
            basis = torch.from_numpy(np.ascontiguousarray(transposed.T.astype(np.float32)))
        return cls(centre, scale, feature_centre, feature_scale, basis)

    def __call__(self, graph: Graph) -> Array:
        """The rows of all nodes, float32."""
        x, edges = inputs(graph)
        statistics = (_statistics(graph) - self.centre) / self.scale
        own = _scaled(x, self.feature_centre, self.feature_scale) @ self.basis
        near = edges.mean @ own
        return torch.cat([statistics.float(), own, near, edges.mean @ near], 1).numpy()


def _safe(scale: Tensor) -> Tensor:
    """Columns that do not vary are left as they are."""
    return torch.where(scale > 1e-12, scale, 1.0)


def _scaled(x: Features, centre: Tensor, scale: Tensor, rows: Tensor | None = None) -> Features:
    if isinstance(x, Tensor):
        return ((x if rows is None else x[rows]) - centre) / scale
    chosen = x if rows is None else x.rows(rows)
    length = chosen.map(Tensor.square).row_sums().sqrt().clamp_min(1e-12)
    return chosen.map(lambda values: values / length.repeat_interleave(chosen.starts.diff().long()))


def _scipy(matrix: SparseMatrix) -> Any:
    from scipy.sparse import csr_matrix

    arrays = tuple(tensor.numpy() for tensor in (matrix.values, matrix.columns, matrix.starts))
    return csr_matrix(arrays, shape=matrix.shape)


def _statistics(graph: Graph) -> Tensor:
    """``log(1 + x)`` of a node's own statistics, and their means over in- and out-neighbours, float64 ``[N, 12]``."""
    x, _ = inputs(graph)
    if isinstance(x, SparseMatrix):
        total = x.map(lambda values: values.double().abs()).row_sums()
        active = x.starts.diff().double()
    else:
        total, active = x.double().abs().sum(1), (x != 0).double().sum(1)
    source, target = graph.edge_index
    counts = [torch.bincount(end, minlength=graph.num_nodes).double() for end in (target, source)]
    own = torch.stack([total, active, *counts], 1).log1p()
    means = []
    for (here, there), count in zip(((target, source), (source, target)), counts, strict=True):
        sums = torch.stack(
            [torch.bincount(here, column[there], minlength=graph.num_nodes) for column in own.unbind(1)], 1
        )
        means.append(sums / count.clamp_min(1.0)[:, None])
    return torch.cat([own, *means], 1)


def labelled_shares(graph: Graph, labelled: Tensor, known: Tensor) -> Array:
    """The share of labelled nodes among in- and among out-neighbours, float32 ``[N, 2]``.

    Only neighbours in ``known`` count, those of which a model may know whether they are labelled. One neighbour more is
    added that is as labelled as the average, so that few neighbours say little. Self-loops do not count: a node must
    not be told about itself.
    """
    source, target = graph.edge_index
    apart = source != target
    source, target = source[apart], target[apart]
    known = known.double()
    marked = labelled.double() * known
    average = marked.sum() / known.sum().clamp_min(1.0)
    shares = []
    for here, there in ((target, source), (source, target)):
        hits, seen = (torch.bincount(here, x[there], minlength=graph.num_nodes) for x in (marked, known))
        shares.append((hits + average) / (seen + 1.0))
    return torch.stack(shares, 1).float().numpy()
