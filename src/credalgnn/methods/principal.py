"""Principal components of latents, dense or sparse; a sparse one is never made dense."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..nn import SparseMatrix
from ..nn.backbones import Features

EXACT = 1024  # columns up to which the scatter matrix is written down; wider latents are left to Lanczos


class Projection(NamedTuple):
    """The directions in which nodes vary most.

    Args:
        basis: Orthonormal directions in columns ``[D, q]``, float64.
        centre: The projected mean ``[q]``, float64.
    """

    basis: Tensor
    centre: Tensor

    def __call__(self, latent: Features) -> Tensor:
        """The components of nodes ``[N, q]``, float64, centred.

        Args:
            latent: Their latents ``[N, D]``.
        """
        return (latent @ self.basis if isinstance(latent, SparseMatrix) else latent.double() @ self.basis) - self.centre


def fit_projection(latent: Features, dimensions: int) -> Projection:
    """The leading principal components: as many as there are directions in which nodes vary, but no more than asked.

    Args:
        latent: Latents of training nodes ``[N, D]``.
        dimensions: How many components at the most.
    """
    count, width = latent.shape
    if isinstance(latent, SparseMatrix):
        mean = latent.t().map(Tensor.double).row_sums() / count
    else:
        mean = latent.double().mean(0)
    if width <= EXACT:
        values, vectors = torch.linalg.eigh(_scatter(latent, mean))
        values, vectors = values.flip(0)[:dimensions], vectors.flip(1)[:, :dimensions]
    else:
        values, vectors = _lanczos(latent, mean, min(dimensions, count - 1, width - 1))
    varying = values > values[:1] * width * torch.finfo(torch.float32).eps
    basis = vectors[:, varying].contiguous()
    return Projection(basis, mean @ basis)


def _scatter(latent: Features, mean: Tensor) -> Tensor:
    """The centred scatter matrix ``[D, D]``."""
    if isinstance(latent, Tensor):
        centred = latent.double() - mean
        return centred.t() @ centred
    from scipy.sparse import csr_matrix

    arrays = latent.values.double().numpy(), latent.columns.numpy(), latent.starts.numpy()
    rows = csr_matrix(arrays, shape=latent.shape)
    return torch.from_numpy((rows.T @ rows).toarray()) - len(latent) * torch.outer(mean, mean)


def _lanczos(latent: Features, mean: Tensor, dimensions: int) -> tuple[Tensor, Tensor]:
    """Eigenvalues, the largest first, and eigenvectors of the scatter matrix, which is never written down."""
    from scipy.sparse.linalg import LinearOperator, eigsh

    count, width = latent.shape
    if dimensions < 1:
        return torch.zeros(0, dtype=torch.float64), torch.zeros(width, 0, dtype=torch.float64)
    rows: Any = latent.map(Tensor.double) if isinstance(latent, SparseMatrix) else latent.double()
    columns = rows.t()

    def scatter(vector: Any) -> Any:
        x = torch.from_numpy(np.ascontiguousarray(vector, dtype=np.float64).reshape(-1, 1))
        return ((columns @ (rows @ x)).squeeze(1) - count * mean * (mean @ x)).numpy()

    operator = LinearOperator((width, width), matvec=scatter, dtype=np.float64)
    start = np.random.default_rng(0).standard_normal(width)  # so that the same latents give the same bits
    values, vectors = eigsh(operator, k=dimensions, v0=start)
    order = np.argsort(-values)
    return torch.from_numpy(values[order].copy()), torch.from_numpy(vectors[:, order].copy())
