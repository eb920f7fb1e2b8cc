"""Constant sparse matrices: normalised adjacencies and sparse features, multiplied fast and differentiated exactly."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..graphs.edges import damaged

FEW = 1 << 23  # multiplications that are not worth a second thread


class SparseMatrix:
    """A constant CSR matrix ``[R, C]``; ``matrix @ dense`` is differentiable in ``dense``.

    The backward pass multiplies by the transpose, which is made once and kept; that of a matrix used ``once`` goes
    through its rows instead, as a transpose would cost more than it saves. Indices are int32 when they fit. On the CPU
    compiled kernels sum in one fixed order: the result does not depend on the number of threads.

    Args:
        starts: Where the entries of each row begin, and where the last row ends ``[R + 1]``.
        columns: Column of each entry, row by row.
        values: The entries.
        shape: R and C.
        once: Whether gradients pass the matrix only once or twice, as with the edges of a mini-batch.
    """

    def __init__(
        self, starts: Tensor, columns: Tensor, values: Tensor, shape: tuple[int, int], once: bool = False
    ) -> None:
        self.starts, self.columns, self.values, self.shape, self.once = starts, columns, values, shape, once
        self.nnz, self.device = len(values), values.device
        self._cuts: dict[int, list[int]] = {}
        self._transposed: SparseMatrix | None = None
        self._numbered: SparseMatrix | None = None  # see `transposed_with`

    @classmethod
    def from_torch(cls, matrix: Tensor) -> SparseMatrix:
        """Return a matrix that shares the memory of a torch CSR matrix.

        Args:
            matrix: In the layout ``torch.sparse_csr``.
        """
        rows, columns = matrix.shape
        return cls(matrix.crow_indices(), matrix.col_indices(), matrix.values(), (rows, columns))

    @classmethod
    def from_coo(
        cls, rows: Tensor, columns: Tensor, values: Tensor, shape: tuple[int, int], once: bool = False
    ) -> SparseMatrix:
        """Return a matrix of entries in any order; those at the same place are summed.

        Args:
            rows: Row of each entry.
            columns: Column of each entry.
            values: The entries.
            shape: R and C.
            once: See ``SparseMatrix``.
        """
        from scipy.sparse import coo_matrix

        entries = values.numpy(), (rows.numpy(), columns.numpy())
        return _from_scipy(coo_matrix(entries, shape=shape).tocsr(), once)

    def t(self) -> SparseMatrix:
        """Return the transpose; made once."""
        if self._transposed is None:
            self._transposed = _from_scipy(_to_scipy(self).T.tocsr()).to(self.device)
        return self._transposed

    def to(self, device: torch.device | str) -> SparseMatrix:
        """Return the matrix on another device.

        Args:
            device: As in torch.
        """
        if torch.device(device) == self.device:
            return self
        starts, columns, values = (part.to(device) for part in (self.starts, self.columns, self.values))
        return SparseMatrix(starts, columns, values, self.shape, self.once)

    def rows(self, nodes: Tensor, once: bool = False) -> SparseMatrix:
        """Return some rows.

        Args:
            nodes: Their numbers, in any order.
            once: See ``SparseMatrix``.
        """
        if has_kernels(self.device):
            from .kernels import find_rows, gather_rows

            begins, starts = nodes.new_empty(len(nodes)), nodes.new_empty(len(nodes) + 1)
            if not find_rows(*(part.numpy() for part in (self.starts, nodes, begins, starts)), self.nnz):
                raise damaged("rows begin or end outside of the matrix")
            columns, values = (part.new_empty(int(starts[-1])) for part in (self.columns, self.values))
            kernel: Any = gather_rows
            kernel(begins.numpy(), *map(_bits, (self.columns, self.values, starts, columns, values)))
            if len(columns) and not 0 <= columns.min() <= columns.max() < self.shape[1]:
                raise damaged("an entry lies outside of the matrix")
        else:
            begins = self.starts[nodes].long()
            counts = self.starts[nodes + 1].long() - begins
            starts = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
            at = torch.arange(int(starts[-1]), device=self.device)
            at = at + torch.repeat_interleave(begins - starts[:-1], counts)
            columns, values = self.columns[at], self.values[at]
        return SparseMatrix(_narrow(starts, self.starts), columns, values, (len(nodes), self.shape[1]), once)

    def row_sums(self) -> Tensor:
        """Return the sum of each row ``[R]``."""
        return self.values.new_zeros(self.shape[0]).index_add_(0, self.row_numbers(), self.values)

    def map(self, change: Callable[[Tensor], Tensor]) -> SparseMatrix:
        """Return the matrix with its stored values changed; zeros that are not stored stay.

        Args:
            change: Function of all stored values, such as ``Tensor.float``.
        """
        return self.with_values(change(self.values))

    def with_values(self, values: Tensor) -> SparseMatrix:
        """Return a matrix with other values at the same places.

        Args:
            values: One for each stored entry.
        """
        matrix = SparseMatrix(self.starts, self.columns, values, self.shape, self.once)
        matrix._cuts = self._cuts  # depend on the places alone
        return matrix

    def to_dense(self) -> Tensor:
        places = self.row_numbers(), self.columns.long()
        return self.values.new_zeros(self.shape).index_put_(places, self.values, accumulate=True)

    def row_numbers(self) -> Tensor:
        """Return the row of each stored entry."""
        return torch.repeat_interleave(torch.arange(self.shape[0], device=self.device), self.starts.diff().long())

    def __matmul__(self, dense: Tensor) -> Tensor:
        if dense.dim() != 2 or dense.shape[0] != self.shape[1]:
            raise ValueError(f"a matrix {list(self.shape)} cannot multiply a tensor {list(dense.shape)}")
        product: Tensor = _Product.apply(dense, self)  # type: ignore[no-untyped-call]
        return product

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"SparseMatrix(shape={list(self.shape)}, nnz={self.nnz}, dtype={self.values.dtype})"


def sum_duplicates(matrix: SparseMatrix) -> SparseMatrix:
    """Return the matrix with sorted rows, whose entries at the same place are summed."""
    result = _to_scipy(matrix).copy()  # sorted in place
    result.sum_duplicates()
    return _from_scipy(result, matrix.once)


def check_csr(matrix: SparseMatrix) -> SparseMatrix:
    """Return the matrix, or raise ValueError if its indices do not fit each other: kernels follow them unchecked."""
    _to_scipy(matrix).check_format(full_check=True)
    return matrix


def top_rows(matrix: SparseMatrix, rows: int, columns: int) -> SparseMatrix:
    """Return the first rows, which have no entry after the first columns; the memory is shared."""
    if (rows, columns) == matrix.shape:
        return matrix
    end = int(matrix.starts[rows])
    parts = matrix.starts[: rows + 1], matrix.columns[:end], matrix.values[:end]
    return SparseMatrix(*parts, (rows, columns), matrix.once)


def transposed_with(matrix: SparseMatrix, values: Tensor) -> SparseMatrix:
    """Return the transpose of the matrix with other values; its places are computed once."""
    if matrix._numbered is None:
        matrix._numbered = matrix.with_values(
            torch.arange(matrix.nnz, dtype=matrix.starts.dtype, device=matrix.device)
        ).t()
    return matrix._numbered.with_values(values.index_select(0, matrix._numbered.values))


def product_entries(matrix: SparseMatrix, other: SparseMatrix) -> int:
    """Return the number of entries of ``sparse_product``."""
    return int(other.starts.diff()[matrix.columns.long()].sum())


def sparse_product(matrix: SparseMatrix, other: SparseMatrix) -> SparseMatrix:
    """Return the product of two sparse matrices on the CPU; entries at the same place are not summed."""
    from .kernels import scale_rows

    counts = other.starts.diff()[matrix.columns.long()]
    ends = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    starts = _narrow(ends[matrix.starts.long()], other.starts)
    columns, values = (part.new_empty(int(ends[-1])) for part in (other.columns, other.values))
    tensors = matrix.starts, matrix.columns, matrix.values, other.starts, other.columns, other.values, columns, values
    kernel: Any = scale_rows
    kernel(*(tensor.numpy() for tensor in tensors))
    return SparseMatrix(starts, columns, values, (matrix.shape[0], other.shape[1]), matrix.once)


def has_kernels(device: torch.device) -> bool:
    """Return whether kernels are compiled for a device; plain torch serves the others."""
    return device.type == "cpu"


def call_by_rows(kernel: Any, matrix: SparseMatrix, width: int, *tensors: Tensor) -> None:
    """Call a kernel for all rows of a matrix, in several threads where that pays.

    Args:
        kernel: Takes the matrix's starts and columns, the tensors as arrays, the first row and the one after the last.
        matrix: On the CPU.
        width: Numbers that the kernel reads for each entry.
        tensors: The other arguments; those to be filled must be contiguous.
    """
    arrays = [x.detach().contiguous().numpy() for x in (matrix.starts, matrix.columns, *tensors)]
    threads = torch.get_num_threads()
    if threads == 1 or matrix.nnz * width < FEW:
        kernel(*arrays, 0, matrix.shape[0])
    else:
        _in_threads(kernel, arrays, _balanced_cuts(matrix, 4 * threads), threads)


class _Product(torch.autograd.Function):
    """``matrix @ dense``, whose gradient is ``matrix^T @ gradient``."""

    @staticmethod
    def forward(ctx: Any, dense: Tensor, matrix: SparseMatrix) -> Tensor:
        ctx.matrix = matrix
        return _multiply(matrix, dense)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        matrix: SparseMatrix = ctx.matrix
        if matrix.once and has_kernels(gradient.device) and not torch.is_grad_enabled():  # no second derivatives
            return _multiply_transposed(matrix, gradient), None
        return matrix.t() @ gradient, None


def _multiply(matrix: SparseMatrix, dense: Tensor) -> Tensor:
    if not has_kernels(dense.device):
        parts = matrix.starts, matrix.columns, matrix.values, matrix.shape
        return torch.sparse_csr_tensor(*parts, check_invariants=False).to(dense.dtype) @ dense
    from .kernels import multiply_rows

    out = torch.empty(matrix.shape[0], dense.shape[1], dtype=dense.dtype)
    call_by_rows(multiply_rows, matrix, dense.shape[1], matrix.values.to(dense.dtype), dense, out)
    return out


def _multiply_transposed(matrix: SparseMatrix, dense: Tensor) -> Tensor:
    """Return ``matrix^T @ dense`` without the transpose; each thread has some of the columns."""
    from .kernels import add_rows

    width = dense.shape[1]
    out = torch.zeros(matrix.shape[1], width, dtype=dense.dtype)
    tensors = matrix.starts, matrix.columns, matrix.values.to(dense.dtype), dense, out
    arrays = [tensor.detach().contiguous().numpy() for tensor in tensors]
    threads = torch.get_num_threads()
    if threads == 1 or matrix.nnz * width < FEW:
        add_rows(*arrays, 0, width)
    else:
        _in_threads(add_rows, arrays, [width * number // threads for number in range(threads + 1)], threads)
    return out


def _balanced_cuts(matrix: SparseMatrix, parts: int) -> list[int]:
    """Return rows at which to cut into parts with about as many entries each (a row counts as one entry more)."""
    if parts not in matrix._cuts:
        work = matrix.starts.numpy() + np.arange(len(matrix) + 1)
        inner = np.searchsorted(work, work[-1] * np.arange(1, parts) / parts)
        matrix._cuts[parts] = sorted({0, *inner.tolist(), len(matrix)})
    return matrix._cuts[parts]


def _in_threads(kernel: Any, arrays: list[Any], cuts: list[int], threads: int) -> None:
    list(_pool(os.getpid(), threads).map(lambda first, last: kernel(*arrays, first, last), cuts, cuts[1:]))


@cache
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    """Threads of this process that stay: a forked child has none of its parent's."""
    return ThreadPoolExecutor(threads)


def _from_scipy(matrix: Any, once: bool = False) -> SparseMatrix:
    starts, columns, values = (torch.from_numpy(array) for array in (matrix.indptr, matrix.indices, matrix.data))
    return SparseMatrix(starts, columns, values, matrix.shape, once)


def _to_scipy(matrix: SparseMatrix) -> Any:
    from scipy.sparse import csr_matrix

    parts = tuple(part.cpu().numpy() for part in (matrix.values, matrix.columns, matrix.starts))
    return csr_matrix(parts, shape=matrix.shape)


def _narrow(starts: Tensor, like: Tensor) -> Tensor:
    """Return int64 row starts in the dtype of others if it holds them: kernels go wherever these point."""
    return starts.to(like.dtype) if int(starts[-1]) <= torch.iinfo(like.dtype).max else starts


def _bits(tensor: Tensor) -> Any:
    """Return the memory of a tensor as integers of its width: copying needs no kernel for each dtype."""
    array = tensor.numpy()
    return array.view(f"i{array.itemsize}")
