"""Validation of features, edges, labels, ids, names and weights; each check returns a clean copy."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..runtime.errors import translated
from .errors import GraphError

with warnings.catch_warnings():  # the notice that CSR is in beta, once per process
    warnings.simplefilter("ignore")
    torch.sparse_csr_tensor(torch.tensor([0, 0]), torch.empty(0, dtype=torch.int64), torch.empty(0), (1, 1))


MOST_FEATURES = 2**31 - 1  # columns are numbered in 32 bits
ROWS = 1 << 13  # of texts hashed together, to fit into the processor's cache


def checked_features(value: Any) -> Tensor:
    """Return finite float32 features ``[N, F]``, dense or sparse CSR, whichever is smaller."""
    matrix = csr_from_scipy(value) if hasattr(value, "tocsr") else as_tensor(value, "features")
    if matrix.dim() != 2:
        raise GraphError(f"features have shape {list(matrix.shape)}: they must be [nodes, features]")
    if matrix.shape[0] == 0:
        raise GraphError("the graph has no nodes")
    if matrix.shape[1] == 0:
        raise GraphError("the graph has no features: give at least one column, e.g. of ones")
    if matrix.is_complex():
        raise GraphError("features must be real numbers, not complex ones")
    if matrix.shape[1] > MOST_FEATURES:
        raise GraphError(f"{matrix.shape[1]:,} features are too many: at most {MOST_FEATURES:,}")
    matrix = matrix.detach().to("cpu", torch.float32)
    if matrix.layout != torch.strided:
        if not hasattr(value, "tocsr"):  # scipy has sorted them already
            _check_indices(matrix)
            matrix = matrix.to_sparse(layout=torch.sparse_coo).coalesce().to_sparse_csr()  # columns sorted, none twice
        _check_finite_sparse(matrix)
        matrix = _canonical(matrix)
        return matrix if sparse_is_smaller(matrix.values().numel(), matrix.shape) else matrix.to_dense()
    if not _all_finite(matrix):
        row, column = (int(i) for i in (~torch.isfinite(matrix)).nonzero()[0])
        raise GraphError(f"features: row {row}, column {column} is {matrix[row, column].item()}; fill or drop it first")
    if sparse_is_smaller(int(torch.count_nonzero(matrix)), matrix.shape):
        return _canonical(matrix.to_sparse_csr())
    return matrix.contiguous() + 0.0  # a copy; -0.0 becomes 0.0


def _all_finite(numbers: Tensor) -> bool:
    """Check that all numbers are finite; a finite sum proves it faster than a look at each."""
    return math.isfinite(float(numbers.sum())) or bool(torch.isfinite(numbers).all())


def sparse_is_smaller(active: int, shape: Sequence[int]) -> bool:
    """Compare sizes: a stored entry takes 8 bytes (value and column), a row 4; a dense number 4."""
    return active * 8 + shape[0] * 4 < shape[0] * shape[1] * 4


def as_tensor(value: Any, name: str) -> Tensor:
    """Return numbers of any array type as a tensor."""
    if isinstance(value, Tensor):
        return value
    array = np.asarray(value)
    if array.dtype.kind not in "biufc":
        raise GraphError(f"{name} must be numbers, not {array.dtype}: encode them first")
    return torch.as_tensor(array if array.flags.writeable and min(array.strides, default=0) >= 0 else array.copy())


def csr_from_scipy(matrix: Any) -> Tensor:
    """Return a scipy sparse matrix as a torch CSR matrix with sorted columns."""
    if hasattr(matrix, "check_format"):  # scipy reads at the indices unchecked
        with translated(ValueError, lambda error: GraphError(f"features are no sparse matrix ({error})")):
            matrix.check_format(full_check=True)
    csr = matrix.tocsr(copy=True)
    csr.sum_duplicates()
    return torch.sparse_csr_tensor(
        torch.from_numpy(csr.indptr),
        torch.from_numpy(csr.indices),
        torch.from_numpy(csr.data.astype(np.float32, copy=False)),
        csr.shape,
        check_invariants=False,
    )


def rows_or_columns(matrix: Tensor, rows: Tensor | None = None, columns: Tensor | None = None) -> Any:
    """Return some rows or columns of features, or all; a scipy CSR matrix if they are sparse."""
    if matrix.layout == torch.sparse_csr:
        from scipy.sparse import csr_array

        parts = (part.numpy() for part in (matrix.values(), matrix.col_indices(), matrix.crow_indices()))
        sparse = csr_array(tuple(parts), shape=tuple(matrix.shape))
        return (
            sparse[rows.numpy()] if rows is not None else sparse[:, columns.numpy()] if columns is not None else sparse
        )
    return matrix[rows] if rows is not None else matrix[:, columns] if columns is not None else matrix


def _check_indices(matrix: Tensor) -> None:
    """Refuse a sparse tensor whose indices point outside of it; torch would read there unchecked."""
    with translated(
        RuntimeError, lambda error: GraphError(f"features are no sparse matrix ({str(error).splitlines()[0]})")
    ):
        if matrix.layout == torch.sparse_coo:
            torch.sparse_coo_tensor(matrix._indices(), matrix._values(), matrix.shape, check_invariants=True)
        else:
            by_rows = matrix.layout in (torch.sparse_csr, torch.sparse_bsr)
            starts = matrix.crow_indices() if by_rows else matrix.ccol_indices()
            others = matrix.col_indices() if by_rows else matrix.row_indices()
            torch.sparse_compressed_tensor(
                starts, others, matrix.values(), matrix.shape, layout=matrix.layout, check_invariants=True
            )


def _canonical(matrix: Tensor) -> Tensor:
    """Return CSR with int32 indices and no stored zeros, so that equal features are equal bytes."""
    values, columns, starts = matrix.values(), matrix.col_indices(), matrix.crow_indices()
    nonzero = values != 0
    if not bool(nonzero.all()):
        rows = torch.repeat_interleave(torch.arange(matrix.shape[0]), starts.diff())[nonzero]
        starts = torch.cat(
            [torch.zeros(1, dtype=torch.int64), torch.bincount(rows, minlength=matrix.shape[0]).cumsum(0)]
        )
        values, columns = values[nonzero], columns[nonzero]
    return torch.sparse_csr_tensor(
        starts.to(torch.int32), columns.to(torch.int32), values.clone(), matrix.shape, check_invariants=False
    )


def _check_finite_sparse(matrix: Tensor) -> None:
    bad = ~torch.isfinite(matrix.values())
    if bool(bad.any()):
        at = int(bad.nonzero()[0])
        row = int(torch.searchsorted(matrix.crow_indices(), at, right=True)) - 1
        column = int(matrix.col_indices()[at])
        raise GraphError(f"features: row {row}, column {column} is {matrix.values()[at].item()}; fill or drop it first")


def checked_edges(value: Any, nodes: int, edgeless: bool = False) -> Tensor:
    edges = original = as_tensor(value, "edge_index")
    if edges.dim() != 2 or edges.shape[0] != 2:
        hint = ": transpose it" if edges.dim() == 2 and edges.shape[1] == 2 else ""
        raise GraphError(f"edge_index has shape {list(edges.shape)}, but [2, edges] is wanted{hint}")
    if edges.is_floating_point() or edges.dtype == torch.bool:
        raise GraphError(f"edge_index must hold node numbers (integers), not {edges.dtype}")
    if edges.shape[1] == 0 and not edgeless:
        raise GraphError(
            "the graph has no edges: for data without relations, use self-loops or a nearest-neighbour graph"
        )
    edges = edges.detach().to("cpu", torch.int64)
    if edges.numel() and not 0 <= int(edges.min()) <= int(edges.max()) < nodes:
        bad = (edges < 0) | (edges >= nodes)
        number = int(bad.any(0).nonzero()[0])
        end = int(edges[:, number][bad[:, number]][0])
        raise GraphError(f"edge {number} ends at node {end}, but nodes are numbered 0..{nodes - 1}")
    edges = edges.contiguous()
    return edges.clone() if edges.data_ptr() == original.data_ptr() else edges  # never the caller's memory


def checked_labels(value: Any, nodes: int, names: Sequence[str] | None) -> Tensor:
    if value is None:
        return torch.full((nodes,), -1)
    labels = as_tensor(value, "labels")
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise GraphError(
            f"labels must be integers (class numbers, -1 for unknown), not {labels.dtype}: convert them first"
        )
    if labels.dim() != 1 or labels.shape[0] != nodes:
        raise GraphError(f"labels have shape {list(labels.shape)}, but there are {nodes} nodes: one label a node")
    labels = labels.detach().to("cpu", torch.int64)
    if int(labels.max()) >= max(nodes, 0 if names is None else len(names)):  # named classes may outnumber the nodes
        row = int(labels.argmax())
        raise GraphError(f"labels: row {row} is {int(labels[row])} in a graph of {nodes} nodes; number classes 0..C-1")
    return labels.clamp_min(-1).clone()


def named_labels(value: Any, names: Sequence[str] | None) -> tuple[Any, Sequence[str] | None]:
    """Return text labels as class numbers with the names of the classes; other labels unchanged.

    None, NaN and empty text are unknown. Without ``names``, the classes are the distinct texts, sorted.
    """
    if value is None or isinstance(value, Tensor):
        return value, names
    array = np.asarray(value)
    if array.dtype.kind not in "OUT" or array.ndim != 1:
        return value, names
    labels = [None if label is None or label != label or label == "" else label for label in array.tolist()]
    if all(label is None or isinstance(label, int | np.integer) for label in labels):
        return np.array([-1 if label is None else int(label) for label in labels], np.int64), names
    odd = [(row, label) for row, label in enumerate(labels) if not (label is None or isinstance(label, str))]
    if odd:
        row, label = odd[0]
        raise GraphError(f"labels: row {row} is {label!r} of type {type(label).__name__} among text: write all as text")
    classes = sorted({label for label in labels if label is not None}) if names is None else [str(n) for n in names]
    numbers = {name: number for number, name in enumerate(classes)}
    for row, label in enumerate(labels):
        if label is not None and label not in numbers:
            raise GraphError(f"labels: row {row} is {label!r}, which is none of the classes {', '.join(classes[:12])}")
    return np.array([-1 if label is None else numbers[label] for label in labels], np.int64), classes


def checked_class_names(value: Sequence[str] | None, classes: int) -> tuple[str, ...]:
    if value is None:
        return tuple(str(k) for k in range(classes))
    names = tuple(str(name) for name in value)
    if len(names) < classes:
        raise GraphError(f"{len(names)} class names for labels up to {classes - 1}: name every class")
    if len(set(names)) < len(names):
        raise GraphError("class names must differ from each other")
    return names


def checked_ids(value: Sequence[Any] | NDArray[Any] | None, nodes: int) -> NDArray[Any] | None:
    if value is None:
        return None
    ids = np.asarray(value)
    if ids.shape != (nodes,):
        raise GraphError(f"{ids.shape[0] if ids.ndim else 1} node ids for {nodes} nodes: one id a node")
    ids = ids.astype(np.int64) if ids.dtype.kind in "iu" else ids.astype(np.str_)
    ids.flags.writeable = False
    check_unique(ids)
    return ids


def check_unique(ids: NDArray[Any]) -> None:
    """Refuse duplicate ids."""
    if (ids[1:] > ids[:-1]).all() or (len(ids) >= ROWS and ids.dtype.kind == "U" and _keys_differ(ids)):
        return
    ordered = np.sort(ids)
    if (ordered[1:] == ordered[:-1]).any():
        order = np.argsort(ids, kind="stable")
        twice = np.flatnonzero(ids[order][1:] == ids[order][:-1])
        first, second = sorted((int(order[twice[0]]), int(order[twice[0] + 1])))
        raise GraphError(f"node id {ids[first]!s} occurs twice, in rows {first} and {second}: ids must be unique")


def _keys_differ(texts: NDArray[np.str_]) -> bool:
    """Check that 64-bit hashes of texts differ, which proves faster than sorting that the texts do."""
    keys, codes = np.zeros(len(texts), np.uint64), texts.view(np.uint32).reshape(len(texts), -1)
    for first in range(0, len(texts), ROWS):
        part = keys[first : first + ROWS]
        for characters in codes[first : first + ROWS].T:
            part ^= characters
            part *= np.uint64(0x9E3779B97F4A7C15)
            part ^= part >> np.uint64(29)
    keys.sort()
    return bool((keys[1:] != keys[:-1]).all())


def checked_feature_names(value: Sequence[str] | None, features: int) -> tuple[str, ...] | None:
    """Return one unique name per column; None without names."""
    if value is None:
        return None
    names = tuple(str(name) for name in value)
    if len(names) != features:
        raise GraphError(f"{len(names)} feature names for {features} features: name every column")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise GraphError(f"the feature name {twice!r} occurs twice: names must differ from each other")
    return names


def check_feature_order(names: Sequence[str] | None, others: Sequence[str] | None) -> None:
    """Refuse features other than those of training, or in another order; None on either side passes."""
    if names is None or others is None or tuple(names) == tuple(others):
        return
    present = set(others)
    missing = [name for name in names if name not in present]
    if missing:
        raise GraphError(f"the graph has no feature {missing[0]!r}, which was there in training: add this column")
    pairs = zip((*names, None), others, strict=False)
    at, expected, actual = next((at, a, b) for at, (a, b) in enumerate(pairs) if a != b)
    other = "is not expected" if expected is None else f"stands where {expected!r} was in training"
    raise GraphError(
        f"feature {at}, {actual!r}, {other}: graph.select_features(names) puts the columns in the order of training, "
        "and so does credalgnn pack --features"
    )


def checked_weights(value: Any, edges: int) -> Tensor | None:
    """Return finite, non-negative float32 weights ``[E]``; None if unweighted."""
    if value is None:
        return None
    weights = as_tensor(value, "edge_weight")
    if weights.dim() == 2 and weights.shape[1] == 1:
        weights = weights.squeeze(1)
    if weights.dim() != 1 or len(weights) != edges or weights.is_complex():
        raise GraphError(
            f"edge_weight has shape {list(weights.shape)} and type {weights.dtype}, but one number for each of the "
            f"{edges} edges is wanted; for more than one number an edge there is no place in a graph"
        )
    weights = weights.detach().to("cpu", torch.float32)
    bad = ~(torch.isfinite(weights) & (weights >= 0))
    if bool(bad.any()):
        at = int(bad.nonzero()[0])
        raise GraphError(
            f"edge_weight: edge {at} has weight {weights[at].item()}; weights must be finite and not negative"
        )
    return weights.contiguous() + 0.0  # a copy; -0.0 becomes 0.0


def check_mask(mask: Tensor, name: str, nodes: int | None = None) -> None:
    """Raise ``GraphError`` unless a mask is a boolean tensor ``[N]``.

    Args:
        mask: The mask.
        name: Its name in messages.
        nodes: Number of nodes; None accepts any length.
    """
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        kind = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
        raise GraphError(f"the {name} mask must be a boolean tensor, not {kind}: e.g. mask.bool()")
    if mask.dim() != 1 or (nodes is not None and len(mask) != nodes):
        shape = f"[{nodes}]" if nodes is not None else "[nodes]"
        raise GraphError(f"the {name} mask has shape {list(mask.shape)}, but {shape} is wanted (one split at a time)")


def node_numbers(nodes: Tensor, name: str, count: int) -> Tensor:
    """Return node numbers, in the given order, of a mask or a tensor of node numbers.

    Args:
        nodes: The mask or the numbers.
        name: Their name in messages.
        count: Number of nodes of the graph.
    """
    with translated(
        (TypeError, ValueError, RuntimeError),
        lambda _: GraphError(f"{name} must be a boolean mask or a tensor of node numbers"),
    ):
        nodes = torch.as_tensor(nodes).detach().cpu()
    if nodes.numel() == 0:
        return torch.empty(0, dtype=torch.int64)
    if nodes.dtype == torch.uint8 or (nodes.dim() == 1 and len(nodes) == count > 2 and int(nodes.max()) <= 1):
        check_mask(nodes, name, count)  # zeros and ones for every node are a mistyped mask
    if nodes.dtype == torch.bool:
        check_mask(nodes, name, count)
        return nodes.nonzero().squeeze(-1)
    if nodes.dim() != 1 or nodes.is_floating_point() or nodes.is_complex():
        raise GraphError(
            f"{name} must be a boolean mask or a tensor of node numbers, not {nodes.dtype} {list(nodes.shape)}"
        )
    if len(nodes) and not 0 <= int(nodes.min()) <= int(nodes.max()) < count:
        raise GraphError(f"{name} names a node that does not exist: the graph has the nodes 0..{count - 1}")
    return nodes.long()
