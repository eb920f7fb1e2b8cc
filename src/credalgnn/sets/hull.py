"""Credal sets given by their members: the convex hull of several distributions, as an ensemble makes them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ._check import TensorLike, check_finite, first, float_tensor, located, place, tolerance
from .intervals import IntervalSet


@dataclass(frozen=True, init=False, eq=False, repr=False)
class HullSet:
    """The convex hull of M distributions for each node of a batch: members ``[M, ..., C]``, usually ``[M, N, C]``.

    Members that miss 1 by rounding are normalised; what is not a distribution raises a ``ValueError`` that names it.
    """

    members: Tensor

    def __init__(self, members: TensorLike) -> None:
        tensor = float_tensor(members, "members")
        if tensor.dim() < 2 or tensor.shape[0] == 0:
            raise ValueError(f"members has shape {list(tensor.shape)}: it must be [M, ..., C] with at least one member")
        object.__setattr__(self, "members", _checked(tensor))

    @property
    def shape(self) -> torch.Size:
        """``[..., C]``: the shape of one member."""
        return self.members.shape[1:]

    @property
    def dtype(self) -> torch.dtype:
        return self.members.dtype

    @property
    def device(self) -> torch.device:
        return self.members.device

    def to(self, target: torch.dtype | torch.device | str) -> HullSet:
        """The set in another dtype or on another device."""
        members = self.members.double()
        keep = self.dtype if not isinstance(target, torch.dtype) else target
        return HullSet((members / members.sum(-1, keepdim=True)).to(target).to(keep))

    def mean(self) -> Tensor:
        """The members' average, which is what a classical ensemble predicts."""
        return self.members.mean(0)

    def to_intervals(self) -> IntervalSet:
        """The smallest interval set around the hull: each class's range over the members."""
        return IntervalSet(self.members.amin(0), self.members.amax(0))

    def __repr__(self) -> str:
        size = f"members={self.members.shape[0]}, shape={list(self.shape)}"
        return f"HullSet({size}, dtype={self.dtype}, device={self.device})"


def _checked(members: Tensor) -> Tensor:
    """The members, if they are distributions; normalised where rounding alone keeps them from it."""
    for k, member in enumerate(members.detach()):
        try:
            check_finite(member, "probability")
        except ValueError as error:
            raise ValueError(f"member {k}, {error}") from None
    if members.numel() == 0:
        return members
    slack = tolerance(members)
    p = members.detach().double()
    bad = (p < -slack) | (p > 1.0 + slack)
    if bool(bad.any()):
        index = first(bad)
        _, where = located(bad[index[0]])
        raise ValueError(f"member {index[0]}, {where}: {p[index].item():.6g} is not a probability")
    off = (p.sum(-1) - 1.0).abs() > slack
    if bool(off.any()):
        index = first(off)
        where = ", ".join(part for part in (f"member {index[0]}", place(index[1:])) if part)
        raise ValueError(f"{where}: the probabilities sum to {p[index].sum().item():.6g}, not to 1")
    if bool((p < 0).any()):
        members = members.clamp_min(0.0)
    return members / members.sum(-1, keepdim=True)
