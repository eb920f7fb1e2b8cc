"""Which nodes to train on, to stop by and to evaluate on."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ._checks import check_mask
from .errors import GraphError


@dataclass(frozen=True, eq=False)
class Split:
    """Three disjoint parts of a graph's nodes, as sorted indices.

    Args:
        train: Node numbers to train on.
        val: Node numbers to stop and tune by.
        test: Node numbers to evaluate on.
    """

    train: Tensor
    val: Tensor
    test: Tensor

    def __post_init__(self) -> None:
        for name in ("train", "val", "test"):
            part = getattr(self, name)
            if not isinstance(part, Tensor) or part.dim() != 1 or part.is_floating_point() or part.dtype == torch.bool:
                raise GraphError(f"split: {name} must be a tensor of node numbers; for masks use Split.from_masks")
            if not len(part):
                raise GraphError(f"split: {name} is empty")
            object.__setattr__(self, name, part.detach().to("cpu", torch.int64).sort().values)
            part = getattr(self, name)
            if int(part[0]) < 0:
                raise GraphError(f"split: {name} names node {int(part[0])}, which does not exist")
            twice = part[1:][part[1:] == part[:-1]]
            if len(twice):
                raise GraphError(f"split: node {int(twice[0])} stands twice in {name}")
        for first, second in (("train", "val"), ("train", "test"), ("val", "test")):
            shared = getattr(self, first)[torch.isin(getattr(self, first), getattr(self, second))]
            if len(shared):
                raise GraphError(
                    f"split: node {int(shared[0])} is in both {first} and {second}; parts must not overlap"
                )

    @classmethod
    def random(cls, num_nodes: int, seed: int = 0) -> Split:
        """60/20/20, rounded down but for the test part, from a generator of its own: nothing else changes it.

        Args:
            num_nodes: How many nodes there are.
            seed: Of the generator.
        """
        order = torch.randperm(num_nodes, generator=seeded(seed))
        first, second = int(0.6 * num_nodes), int(0.6 * num_nodes) + int(0.2 * num_nodes)
        return cls(order[:first], order[first:second], order[second:])

    @classmethod
    def from_masks(cls, train: Tensor, val: Tensor, test: Tensor) -> Split:
        """From boolean masks [N], as PyG data sets have them.

        Args:
            train: Nodes to train on.
            val: Nodes to stop and tune by.
            test: Nodes to evaluate on.
        """
        masks = [torch.as_tensor(mask) for mask in (train, val, test)]
        for name, mask in zip(("train", "val", "test"), masks, strict=True):
            check_mask(mask, name, len(masks[0]))
        return cls(*(mask.nonzero().squeeze(-1) for mask in masks))


def seeded(seed: int) -> torch.Generator:
    """A generator of one's own. torch takes 32 bits of a seed; a larger one would silently equal a smaller.

    Args:
        seed: Its seed.
    """
    if not 0 <= seed < 2**32:
        raise GraphError(f"a seed must be between 0 and {2**32 - 1}, not {seed}")
    return torch.Generator().manual_seed(seed)
