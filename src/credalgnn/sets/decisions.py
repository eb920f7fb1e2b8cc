"""Which classes a credal set leaves in question under 0/1 loss, and what such a set-valued answer is worth.

Three rules, from the most to the least cautious. A class is kept unless

- ``interval_dominance``: another class is certainly more probable than this class can ever be,
- ``maximality``: another class is more probable under *every* distribution of the set,
- ``e_admissibility``: under *no* distribution of the set it is a most probable class.

Each keeps a part of what the rule above it keeps, and never nothing. Ties keep the class. How a rule is computed is a
matter of the kind of set (``CredalSet.undominated``, ``CredalSet.maximal``, ``CredalSet.e_admissible``).
"""

from __future__ import annotations

import torch
from torch import Tensor

from ._check import first, place
from .base import CredalSet, check_credal


def interval_dominance(credal: CredalSet) -> Tensor:
    """Classes whose upper probability reaches every other class's lower probability; boolean ``[..., C]``.

    Args:
        credal: The credal sets.
    """
    check_credal(credal)
    return credal.undominated()


def maximality(credal: CredalSet) -> Tensor:
    """Classes that no other class beats under every distribution of the set; boolean ``[..., C]``.

    Args:
        credal: The credal sets.
    """
    check_credal(credal)
    return credal.maximal()


def e_admissibility(credal: CredalSet) -> Tensor:
    """Classes that are a most probable class under some distribution of the set; boolean ``[..., C]``.

    Args:
        credal: The credal sets.
    """
    check_credal(credal)
    return credal.e_admissible()


def u65(kept: Tensor, labels: Tensor) -> Tensor:
    """Utility of each set-valued answer: 1 if it is the true class alone, 0 if that is missing, 0.65 for two classes.

    A discount of the accuracy x = 1/size that rewards honest doubt: 1.6 x - 0.6 x^2 (Zaffalon, Corani and Maua, 2012).

    Args:
        kept: The classes that a decision rule keeps, boolean ``[..., C]``.
        labels: The true classes ``[...]``.
    """
    x = _discounted_accuracy(kept, labels)
    return 1.6 * x - 0.6 * x**2


def u80(kept: Tensor, labels: Tensor) -> Tensor:
    """As ``u65`` with more aversion to risk, so that two classes are worth 0.8: 2.2 x - 1.2 x^2.

    Args:
        kept: The classes that a decision rule keeps, boolean ``[..., C]``.
        labels: The true classes ``[...]``.
    """
    x = _discounted_accuracy(kept, labels)
    return 2.2 * x - 1.2 * x**2


def _discounted_accuracy(kept: Tensor, labels: Tensor) -> Tensor:
    """1/size of each kept set that has the true class, else 0."""
    kept, labels = torch.as_tensor(kept), torch.as_tensor(labels)
    if kept.dtype != torch.bool:
        raise TypeError(f"kept must be boolean [..., C], the classes not ruled out; it is {kept.dtype}")
    if labels.is_floating_point() or labels.dtype == torch.bool:
        raise TypeError(f"labels must be integers, not {labels.dtype}")
    if kept.dim() == 0 or labels.shape != kept.shape[:-1]:
        raise ValueError(f"labels of shape {list(labels.shape)} do not fit kept of shape {list(kept.shape)}: one a row")
    bad = (labels < 0) | (labels >= kept.shape[-1])
    if bool(bad.any()):
        index = first(bad)
        raise ValueError(
            f"{place(index) or 'labels'}: label {int(labels[index])} is not one of 0..{kept.shape[-1] - 1}"
        )
    hit = kept.gather(-1, labels.long()[..., None]).squeeze(-1)
    return hit / kept.sum(-1).clamp_min(1)
