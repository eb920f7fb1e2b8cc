"""Constant sparse matrices: normalised adjacencies and sparse features, multiplied fast and differentiated exactly."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, cached_property
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from torch import Tensor

FEW = 1 << 23  # multiplications that are not worth a second thread


class DamagedGraph(ValueError):
    """Numbers of a graph point to what is not there: its file has changed since it was written."""


def damaged(what: str) -> DamagedGraph:
    """The error of a graph, with what to do.

    Args:
        what: What is wrong with it, in a few words.
    """
    return DamagedGraph(f"the graph is damaged: {what}; credalgnn check --repair GRAPH, then pack it again")


class SparseMatrix:
    """A constant CSR matrix ``[R, C]``; ``matrix @ dense`` is differentiable in ``dense``.

    The backward pass multiplies by the transpose, which is made once and kept; that of a matrix that is needed ``once``
    goes through its rows instead, as a transpose would cost more than it saves. Indices are int32 when they fit. On the
    CPU compiled kernels sum in one fixed order: the result does not depend on the number of threads.

    Args:
        starts: Where the entries of each row begin, and where the last row ends ``[R + 1]``.
        columns: The column of each entry, row by row.
        values: The entries.
        shape: R and C.
        once: Whether gradients go through the matrix only once or twice, as through what was drawn for a batch.
    """

    def __init__(
        self, starts: Tensor, columns: Tensor, values: Tensor, shape: tuple[int, int], once: bool = False
    ) -> None:
        self.starts, self.columns, self.values, self.shape, self.once = starts, columns, values, shape, once
        self._cuts: dict[int, list[int]] = {}

    def checked(self) -> SparseMatrix:
        """The same matrix, if its numbers fit each other; kernels read where its indices point to, unseen."""
        from scipy.sparse import csr_matrix

        parts = (part.numpy() for part in (self.values, self.columns, self.starts))
        csr_matrix(tuple(parts), shape=self.shape).check_format(full_check=True)
        return self

    @classmethod
    def from_torch(cls, matrix: Tensor) -> SparseMatrix:
        """From a torch CSR matrix, whose memory is shared.

        Args:
            matrix: In the layout ``torch.sparse_csr``.
        """
        rows, columns = matrix.shape
        return cls(matrix.crow_indices(), matrix.col_indices(), matrix.values(), (rows, columns))

    @classmethod
    def from_coo(
        cls, rows: Tensor, columns: Tensor, values: Tensor, shape: tuple[int, int], once: bool = False
    ) -> SparseMatrix:
        """From entries in any order; those at the same place are summed.

        Args:
            rows: The row of each entry.
            columns: The column of each entry.
            values: The entries.
            shape: R and C.
            once: Whether gradients go through the matrix only once or twice.
        """
        from scipy.sparse import coo_matrix

        entries = values.numpy(), (rows.numpy(), columns.numpy())
        return cls._from_scipy(coo_matrix(entries, shape=shape).tocsr(), once)

    @classmethod
    def _from_scipy(cls, matrix: Any, once: bool = False) -> SparseMatrix:
        starts, columns, values = (torch.from_numpy(array) for array in (matrix.indptr, matrix.indices, matrix.data))
        return cls(starts, columns, values, matrix.shape, once)

    @property
    def nnz(self) -> int:
        return len(self.values)

    @property
    def device(self) -> torch.device:
        return self.values.device

    @cached_property
    def _transposed(self) -> SparseMatrix:
        from scipy.sparse import csr_matrix

        arrays = tuple(tensor.cpu().numpy() for tensor in (self.values, self.columns, self.starts))
        transposed = SparseMatrix._from_scipy(csr_matrix(arrays, shape=self.shape).T.tocsr())
        return transposed.to(self.device)

    def t(self) -> SparseMatrix:
        """The transpose; made once."""
        return self._transposed

    @cached_property
    def _numbered(self) -> SparseMatrix:
        """The transpose, with the number that each entry has here in the place of its value."""
        return self.with_values(torch.arange(self.nnz, dtype=self.starts.dtype, device=self.device)).t()

    def transposed_with(self, values: Tensor) -> SparseMatrix:
        """The transpose of the matrix with other values; its places are found once, and kept.

        Args:
            values: An entry for each stored one of this matrix.
        """
        return self._numbered.with_values(values.index_select(0, self._numbered.values))

    def to(self, device: torch.device | str) -> SparseMatrix:
        """The matrix on another device.

        Args:
            device: As torch names it.
        """
        if torch.device(device) == self.device:
            return self
        starts, columns, values = (part.to(device) for part in (self.starts, self.columns, self.values))
        return SparseMatrix(starts, columns, values, self.shape, self.once)

    def rows(self, nodes: Tensor, once: bool = False) -> SparseMatrix:
        """Some rows, in a given order.

        Args:
            nodes: Their numbers.
            once: Whether gradients go through them only once or twice.
        """
        if has_kernels(self.device):
            from ._spmm import find_rows, gather_rows

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

    def top(self, rows: int, columns: int) -> SparseMatrix:
        """The first rows, which have no entry behind the first columns; the memory is shared.

        Args:
            rows: How many rows.
            columns: How many columns.
        """
        if (rows, columns) == self.shape:
            return self
        end = int(self.starts[rows])
        return SparseMatrix(self.starts[: rows + 1], self.columns[:end], self.values[:end], (rows, columns), self.once)

    def row_sums(self) -> Tensor:
        """The sum of each row ``[R]``."""
        return self.values.new_zeros(self.shape[0]).index_add_(0, self.row_numbers(), self.values)

    def map(self, change: Callable[[Tensor], Tensor]) -> SparseMatrix:
        """The matrix with its stored values changed, e.g. to another dtype, and zeros left as they are.

        Args:
            change: A function of all stored values.
        """
        return self.with_values(change(self.values))

    def with_values(self, values: Tensor) -> SparseMatrix:
        """A matrix with other values at the same places.

        Args:
            values: An entry for each stored one.
        """
        made = SparseMatrix(self.starts, self.columns, values, self.shape, self.once)
        made._cuts = self._cuts  # which are of the places alone
        return made

    def to_dense(self) -> Tensor:
        """The matrix as a dense tensor."""
        places = self.row_numbers(), self.columns.long()
        return self.values.new_zeros(self.shape).index_put_(places, self.values, accumulate=True)

    def row_numbers(self) -> Tensor:
        """The row of each stored entry."""
        return torch.repeat_interleave(torch.arange(self.shape[0], device=self.device), self.starts.diff().long())

    def _torch(self) -> Tensor:
        return torch.sparse_csr_tensor(self.starts, self.columns, self.values, self.shape, check_invariants=False)

    def cuts(self, parts: int) -> list[int]:
        """Rows at which to cut so that the parts have about as many entries each (a row counts as one entry more).

        Args:
            parts: How many.
        """
        if parts not in self._cuts:
            work = self.starts.numpy() + np.arange(len(self) + 1)
            inner = np.searchsorted(work, work[-1] * np.arange(1, parts) / parts)
            self._cuts[parts] = sorted({0, *inner.tolist(), len(self)})
        return self._cuts[parts]

    def entries_of_rows(self, other: SparseMatrix) -> int:
        """How many entries ``of_rows`` makes.

        Args:
            other: As many rows as this matrix has columns.
        """
        return int(self._lengths_in(other).sum())

    def _lengths_in(self, other: SparseMatrix) -> Tensor:
        """How many entries the row of another matrix has that each entry stands for."""
        return other.starts.diff()[self.columns.long()]

    def of_rows(self, other: SparseMatrix) -> SparseMatrix:
        """The product with a sparse matrix, on the CPU; entries at the same place stand there one by one.

        Args:
            other: As many rows as this matrix has columns.
        """
        from ._spmm import scale_rows

        counts = self._lengths_in(other)
        ends = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        starts = _narrow(ends[self.starts.long()], other.starts)
        columns, values = (part.new_empty(int(ends[-1])) for part in (other.columns, other.values))
        tensors = self.starts, self.columns, self.values, other.starts, other.columns, other.values, columns, values
        kernel: Any = scale_rows
        kernel(*(tensor.numpy() for tensor in tensors))
        return SparseMatrix(starts, columns, values, (self.shape[0], other.shape[1]), self.once)

    def __matmul__(self, dense: Tensor) -> Tensor:
        if dense.dim() != 2 or dense.shape[0] != self.shape[1]:
            raise ValueError(f"a matrix {list(self.shape)} cannot multiply a tensor {list(dense.shape)}")
        product: Tensor = _Product.apply(dense, self)  # type: ignore[no-untyped-call]
        return product

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"SparseMatrix(shape={list(self.shape)}, nnz={self.nnz}, dtype={self.values.dtype})"


class _Product(torch.autograd.Function):
    """``matrix @ dense``, whose gradient is ``matrix^T @ gradient``."""

    @staticmethod
    def forward(ctx: Any, dense: Tensor, matrix: SparseMatrix) -> Tensor:
        ctx.matrix = matrix
        return _multiply(matrix, dense)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        matrix: SparseMatrix = ctx.matrix
        if matrix.once and has_kernels(gradient.device) and not torch.is_grad_enabled():  # nobody differentiates twice
            return _multiply_transposed(matrix, gradient), None
        return matrix.t() @ gradient, None


def _narrow(starts: Tensor, like: Tensor) -> Tensor:
    """Where rows begin, int64, in the type of others if it holds them: kernels go wherever these say."""
    return starts.to(like.dtype) if int(starts[-1]) <= torch.iinfo(like.dtype).max else starts


def _bits(tensor: Tensor) -> Any:
    """The memory of a tensor as whole numbers of its width: whoever copies them needs no kernel for each dtype."""
    array = tensor.numpy()
    return array.view(f"i{array.itemsize}")


def _multiply(matrix: SparseMatrix, dense: Tensor) -> Tensor:
    if not has_kernels(dense.device):
        return matrix._torch().to(dense.dtype) @ dense
    from ._spmm import multiply_rows

    out = torch.empty(matrix.shape[0], dense.shape[1], dtype=dense.dtype)
    by_rows(multiply_rows, matrix, dense.shape[1], matrix.values.to(dense.dtype), dense, out)
    return out


def _multiply_transposed(matrix: SparseMatrix, dense: Tensor) -> Tensor:
    """``matrix^T @ dense`` without the transpose; threads have columns of their own."""
    from ._spmm import add_rows

    width = dense.shape[1]
    out = torch.zeros(matrix.shape[1], width, dtype=dense.dtype)
    tensors = matrix.starts, matrix.columns, matrix.values.to(dense.dtype), dense, out
    arrays = [tensor.detach().contiguous().numpy() for tensor in tensors]
    threads = torch.get_num_threads()
    if threads == 1 or matrix.nnz * width < FEW:
        add_rows(*arrays, 0, width)
    else:
        cuts = [width * number // threads for number in range(threads + 1)]
        list(_pool(os.getpid(), threads).map(lambda first, last: add_rows(*arrays, first, last), cuts, cuts[1:]))
    return out


def has_kernels(device: torch.device) -> bool:
    """Whether kernels are compiled for a device; where not, torch does their work.

    Args:
        device: Of the tensors.
    """
    return device.type == "cpu" and find_spec("numba") is not None


def by_rows(kernel: Any, matrix: SparseMatrix, width: int, *tensors: Tensor) -> None:
    """Call a kernel for all rows of a matrix: in one go, or in several threads where there is enough to do.

    Args:
        kernel: Takes the matrix's starts and columns, the tensors as arrays, the first row and the one behind the last.
        matrix: On the CPU.
        width: Numbers that the kernel looks at for each entry.
        tensors: The other arguments; those to be filled must be contiguous.
    """
    arrays = [x.detach().contiguous().numpy() for x in (matrix.starts, matrix.columns, *tensors)]
    threads = torch.get_num_threads()
    if threads == 1 or matrix.nnz * width < FEW:
        kernel(*arrays, 0, matrix.shape[0])
        return
    cuts = matrix.cuts(4 * threads)
    list(_pool(os.getpid(), threads).map(lambda first, last: kernel(*arrays, first, last), cuts, cuts[1:]))


@cache
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    """Threads that stay, for this process: a forked child has none of its parent's."""
    return ThreadPoolExecutor(threads)
