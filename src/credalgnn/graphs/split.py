"""Splits of a graph's nodes into training, validation and test parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from ._checks import check_mask
from .errors import GraphError


@dataclass(frozen=True, eq=False)
class Split:
    """Three disjoint parts of a graph's nodes, as sorted node numbers.

    Args:
        train: Nodes to train on.
        val: Nodes for early stopping and tuning.
        test: Nodes to evaluate on.

    Example:
        >>> import torch
        >>> import credalgnn as cg
        >>> cg.Split(torch.tensor([2, 0]), torch.tensor([1]), torch.tensor([3])).train
        tensor([0, 2])
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
                raise GraphError(f"split: node {int(twice[0])} occurs twice in {name}")
        for first, second in (("train", "val"), ("train", "test"), ("val", "test")):
            node = first_shared(getattr(self, first), getattr(self, second))
            if node is not None:
                raise GraphError(f"split: node {node} is in both {first} and {second}; parts must not overlap")

    @classmethod
    def random(cls, num_nodes: int, seed: int = 0) -> Split:
        """Return a random split, 60/20/20, rounded down but for the test part; it depends on nothing but the arguments.

        Args:
            num_nodes: Number of nodes.
            seed: Seed of the split.
        """
        order = torch.randperm(num_nodes, generator=seeded(seed))
        first, second = int(0.6 * num_nodes), int(0.6 * num_nodes) + int(0.2 * num_nodes)
        return cls(order[:first], order[first:second], order[second:])

    @classmethod
    def from_masks(cls, train: Tensor, val: Tensor, test: Tensor) -> Split:
        """Return the split of boolean masks ``[N]``, as PyG data sets have them.

        Args:
            train: Nodes to train on.
            val: Nodes for early stopping and tuning.
            test: Nodes to evaluate on.
        """
        masks = [torch.as_tensor(mask) for mask in (train, val, test)]
        for name, mask in zip(("train", "val", "test"), masks, strict=True):
            check_mask(mask, name, len(masks[0]))
        return cls(*(mask.nonzero().squeeze(-1) for mask in masks))


def first_shared(first: Tensor, second: Tensor) -> int | None:
    """Return the smallest number that is in both of two sorted tensors; None if there is none."""
    place = torch.searchsorted(second, first).clamp_max(len(second) - 1)
    shared = first[second[place] == first]
    return int(shared[0]) if len(shared) else None


def seeded(seed: int) -> torch.Generator:
    """Return a new generator; seeds above 32 bits are refused, as torch silently cuts them off."""
    if not 0 <= seed < 2**32:
        raise GraphError(f"a seed must be between 0 and {2**32 - 1}, not {seed}")
    return torch.Generator().manual_seed(seed)


SHARES = {"train": 0.6, "val": 0.2, "calibration": 0.2}


def stratified_split(labels: Tensor, parts: Mapping[str, Tensor], seed: int = 0) -> dict[str, Tensor]:
    """Split labelled nodes into those of the parts train, val and calibration that are not given.

    60, 20 and 20 % of the labelled nodes outside the given parts; fewer parts share in the same proportion. The split
    is stratified by class, and each node has the same chance of being in a part, so that calibration nodes are
    exchangeable with other labelled nodes; but a class without any training node gives its first one to training.

    Args:
        labels: Classes of all nodes ``[N]``, below 0 for unknown.
        parts: Node numbers of the given parts, others such as test included.
        seed: Seed of the split.
    """
    missing = [name for name in SHARES if name not in parts]
    if not missing:
        return dict(parts)
    free = labels >= 0
    for nodes in parts.values():
        free[nodes] = False
    nodes = free.nonzero().squeeze(-1)
    generator = seeded(seed)
    nodes = nodes[torch.randperm(len(nodes), generator=generator)]
    nodes = nodes[labels[nodes].argsort(stable=True)]  # by class, and in random order within each
    # A part of every stretch of the order, begun at a random place: shares of classes are kept, and nobody is favoured.
    start = torch.rand((), generator=generator, dtype=torch.float64)
    bounds = torch.tensor([SHARES[name] for name in missing], dtype=torch.float64).cumsum(0)
    # Multiples of the golden ratio fall evenly into any share of the unit interval, also over short stretches.
    place = (torch.arange(len(nodes), dtype=torch.float64) * 0.6180339887498949 + start) % 1.0
    number = torch.searchsorted(bounds / bounds[-1], place, right=True).clamp_max(len(missing) - 1)
    if "train" in missing:
        number = _with_training_nodes(labels[nodes], number)
    drawn = {name: nodes[number == k].sort().values for k, name in enumerate(missing)}
    return {**parts, **drawn}


def _with_training_nodes(labels: Tensor, number: Tensor) -> Tensor:
    """Return the parts of nodes ordered by class, with a node of every class in the first part."""
    first = torch.ones(len(labels), dtype=torch.bool)
    first[1:] = labels[1:] != labels[:-1]
    trained = torch.zeros(int(labels.max()) + 1 if len(labels) else 0, dtype=torch.bool)
    trained[labels[number == 0]] = True
    return torch.where(first & ~trained[labels], 0, number)
