"""Decision rules of credal sets under 0/1 loss, and utilities of set-valued answers.

Three rules, from the most to the least cautious. A class is kept unless

- ``interval_dominance``: another class is certainly more probable than this class can ever be,
- ``maximality``: another class is more probable under *every* distribution of the set,
- ``e_admissibility``: under *no* distribution of the set it is a most probable class.

Each keeps a non-empty subset of the classes kept by the rule above it; ties keep the class. Each kind of set implements
them (``CredalSet.undominated``, ``CredalSet.maximal``, ``CredalSet.e_admissible``).
"""

from __future__ import annotations

import torch
from torch import Tensor

from .base import CredalSet, check_credal, first, place


def interval_dominance(credal: CredalSet) -> Tensor:
    """Return the classes whose upper probability reaches every other class's lower probability; boolean ``[..., C]``.

    Args:
        credal: Credal sets.
    """
    check_credal(credal)
    return credal.undominated()


def maximality(credal: CredalSet) -> Tensor:
    """Return the classes that no other class beats under every distribution of the set; boolean ``[..., C]``.

    Args:
        credal: Credal sets.
    """
    check_credal(credal)
    return credal.maximal()


def e_admissibility(credal: CredalSet) -> Tensor:
    """Return the classes that are a most probable class under some distribution of the set; boolean ``[..., C]``.

    Args:
        credal: Credal sets.
    """
    check_credal(credal)
    return credal.e_admissible()


def u65(answers: Tensor, labels: Tensor) -> Tensor:
    """Return the u65 utility of set-valued answers: 1 for the true class alone, 0.65 for it and another, 0 without it.

    Discounts the accuracy x = 1/size by 1.6 x - 0.6 x^2 (Zaffalon, Corani and Maua, 2012).

    Args:
        answers: Classes that a decision rule keeps, boolean ``[..., C]``.
        labels: True classes ``[...]``.
    """
    x = _discounted_accuracy(answers, labels)
    return 1.6 * x - 0.6 * x**2


def u80(answers: Tensor, labels: Tensor) -> Tensor:
    """Return the u80 utility, more averse to risk than ``u65``: 2.2 x - 1.2 x^2, 0.8 for two classes.

    Args:
        answers: Classes that a decision rule keeps, boolean ``[..., C]``.
        labels: True classes ``[...]``.
    """
    x = _discounted_accuracy(answers, labels)
    return 2.2 * x - 1.2 * x**2


def _discounted_accuracy(answers: Tensor, labels: Tensor) -> Tensor:
    """1/size of each answer that has the true class, else 0."""
    answers, labels = torch.as_tensor(answers), torch.as_tensor(labels)
    if answers.dtype != torch.bool:
        raise TypeError(f"answers must be boolean [..., C], True for the classes not ruled out, not {answers.dtype}")
    if labels.is_floating_point() or labels.dtype == torch.bool:
        raise TypeError(f"labels must be integers, not {labels.dtype}")
    if answers.dim() == 0 or labels.shape != answers.shape[:-1]:
        raise ValueError(
            f"labels of shape {list(labels.shape)} do not fit answers of shape {list(answers.shape)}: pass one per row"
        )
    bad = (labels < 0) | (labels >= answers.shape[-1])
    if bool(bad.any()):
        index = first(bad)
        raise ValueError(
            f"{place(index) or 'labels'}: label {int(labels[index])} is not one of 0..{answers.shape[-1] - 1}"
        )
    hit = answers.gather(-1, labels.long()[..., None]).squeeze(-1)
    return hit / answers.sum(-1).clamp_min(1)
