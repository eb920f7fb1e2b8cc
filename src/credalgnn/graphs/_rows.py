"""Rows of features, dense or sparse, in memory or in a file."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from .edges import damaged, row_places

CHUNK = 32 << 20  # bytes of features that are looked at at a time


def rows(matrix: Tensor, nodes: Tensor | slice) -> Tensor:
    """Some rows as float32, sparse if the matrix is.

    Args:
        matrix: Strided or sparse CSR.
        nodes: Numbers of rows, or a slice of them with step 1.
    """
    if matrix.layout != torch.sparse_csr:
        return (matrix[nodes] if isinstance(nodes, slice) else matrix.index_select(0, nodes)).float()
    starts, columns, values = matrix.crow_indices(), matrix.col_indices(), matrix.values()
    if isinstance(nodes, slice):
        first, last, _ = nodes.indices(matrix.shape[0])
        last = max(first, last)
        begin, end = int(starts[first]), int(starts[last])
        if not 0 <= begin <= end <= len(values):
            raise damaged("features begin or end where nothing is")
        own, columns, values = starts[first : last + 1] - begin, columns[begin:end], values[begin:end]
    else:
        counts, places = row_places(starts, nodes, len(values))
        own = torch.cat([counts.new_zeros(1), counts.cumsum(0)]).to(starts.dtype)
        columns, values = columns[places], values[places]
    shape = (len(own) - 1, matrix.shape[1])
    if bool((own.diff() < 0).any()) or (len(columns) and not 0 <= columns.min() <= columns.max() < shape[1]):
        raise damaged("features are not where they should be, or of no column")
    return torch.sparse_csr_tensor(own, columns, values.float(), shape, check_invariants=False)


def chunks(matrix: Tensor) -> Iterator[slice]:
    """Slices of rows that go through all of a matrix, each of a bounded size in memory.

    Args:
        matrix: Strided or sparse CSR.
    """
    count, width = matrix.shape
    step = max(1, CHUNK // (4 * max(1, width)))
    if matrix.layout == torch.sparse_csr:
        step = max(1, min(count, CHUNK * max(1, count) // (8 * max(1, matrix.values().numel()) + 8 * count)))
    for first in range(0, count, step):
        yield slice(first, min(first + step, count))
