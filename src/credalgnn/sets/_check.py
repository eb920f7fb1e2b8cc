"""Checks of what sets are made of, and the messages of their errors."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

TensorLike: TypeAlias = Tensor | NDArray[np.floating]


def float_tensor(value: TensorLike, name: str) -> Tensor:
    """``value`` as a tensor of a floating dtype, without a copy where possible."""
    if isinstance(value, np.ndarray) and not (value.flags.writeable and min(value.strides, default=0) >= 0):
        value = value.copy()  # torch cannot share memory that is read-only or runs backwards
    tensor = value if isinstance(value, Tensor) else torch.as_tensor(value)
    if not tensor.is_floating_point():
        raise TypeError(f"{name} must hold floating-point numbers, not {tensor.dtype}: convert it, e.g. with .double()")
    if tensor.dim() == 0 or tensor.shape[-1] == 0:
        raise ValueError(f"{name} has shape {list(tensor.shape)}: the last dimension must be the classes, at least one")
    return tensor


def tolerance(tensor: Tensor) -> float:
    """The size of a violation that rounding explains.

    A distribution rounded to a dtype misses 1 by up to its epsilon; if it was computed in float32 over C classes and
    widened later, by a few epsilons of float32 a class.
    """
    single = torch.finfo(torch.float32).eps
    return max(8.0 * torch.finfo(tensor.dtype).eps, (8.0 + tensor.shape[-1]) * single)


def place(index: tuple[int, ...]) -> str:
    """A position in the batch as a person counts it: ``row 3`` for [N, C] bounds, nothing for a single set."""
    return "" if not index else f"row {index[0]}" if len(index) == 1 else f"row {index}"


def first(bad: Tensor) -> tuple[int, ...]:
    """The first index at which ``bad`` holds."""
    return tuple(int(i) for i in bad.nonzero()[0])


def located(bad: Tensor) -> tuple[tuple[int, ...], str]:
    """The first bad [..., class] entry: its index, and its place for a message."""
    index = first(bad)
    return index, ", ".join(part for part in (place(index[:-1]), f"class {index[-1]}") if part)


def check_finite(tensor: Tensor, name: str) -> None:
    """Refuse infinities and NaN; the message names the first."""
    bad = ~torch.isfinite(tensor)
    if bool(bad.any()):
        index, where = located(bad)
        raise ValueError(f"{where}: {name} is {tensor[index].item()}; probabilities must be finite numbers")
