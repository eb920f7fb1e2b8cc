"""The choices with which the paper's figures were made, by name: what each is, and which methods it concerns.

Its authors have since told them. None is part of a benchmark: ``reproduce`` alone knows them, when it is asked for them
by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...graphs import Task
from ...methods import MethodError
from ...runtime.names import suggestion
from ..reproduction import ENSEMBLES, POST_HOC, TRAINED

SEED = 42  # of all training, with one-seed
_CREDAL = ("credal-lj", "credal-final")


class Choice(NamedTuple):
    """A choice of the authors' runs.

    Attributes:
        runs: What was done.
        paper: What the paper says.
        methods: The methods that it concerns.
        is_told: Whether the authors have told it; if not, it is a guess of ours.
    """

    runs: str
    paper: str
    methods: tuple[str, ...]
    is_told: bool = True


CHOICES = {
    "sigmoid-head": Choice(
        "the credal head has two layers with a sigmoid between them, and sigmoids for midpoints and half-lengths",
        "one affine map, with activations that are not named",
        _CREDAL,
    ),
    "sigmoid-backbone": Choice(
        "the backbones of credal models have sigmoids between their layers", "not said", _CREDAL
    ),
    "midpoint-softmax": Choice(
        "other classes enter the interval softmax by their midpoints, and bounds are tightened afterwards",
        "by their opposite bounds (Equation 3)",
        _CREDAL,
    ),
    "no-z0": Choice("the joint latent of credal-lj leaves out the features z0", "it begins with z0", ("credal-lj",)),
    "last-epoch": Choice(
        "the weights of the last epoch, which is the best one and the patience later, are used",
        "not said",
        (*TRAINED, *ENSEMBLES, *POST_HOC),
    ),
    "one-seed": Choice(
        "all training has one seed, 42, and the five runs are the five best trials of the search by validation",
        "five runs",
        (*TRAINED, *ENSEMBLES, *POST_HOC),
    ),
    "ood-stopping": Choice(
        "vanilla GNNs are stopped and ranked by the AUROC of OOD validation nodes",
        "by the F1 of ID validation nodes",
        ("vanilla", *ENSEMBLES, *POST_HOC),
    ),
    "fresh-split": Choice(
        "where splits are random, what stands on vanilla GNNs is judged on another split than they were trained on",
        "one split",
        (*ENSEMBLES, *POST_HOC),
    ),
    "kth-neighbour": Choice("the distance to the k-th neighbour", "the mean distance to k", ("knn", "knn-lj")),
    "logit-mahalanobis": Choice("Mahalanobis distances between logits", "between latents", ("mahalanobis",)),
    "box-hull": Choice(
        "the set of an ensemble is the box of the least and largest probability of each class",
        "the convex hull of its members",
        ("credal-ensemble",),
    ),
    "greedy-pour": Choice(
        "the lower entropy of intervals is found by one greedy pour",
        "the exact minimum",
        (*_CREDAL, "credal-ensemble"),
    ),
    "saturating-auroc": Choice(
        "scores outside of [0, 1] pass a float32 sigmoid before the AUROC is taken",
        "AUROC",
        (*_CREDAL, *ENSEMBLES, *POST_HOC),
    ),
    "row-normalised": Choice(
        "the features of every node are divided by their sum", "not said", (*TRAINED, *ENSEMBLES, *POST_HOC), False
    ),
    "sigmoid-vanilla": Choice(
        "the backbones of vanilla GNNs have sigmoids, too", "not said", ("vanilla", *ENSEMBLES, *POST_HOC), False
    ),
}
TOLD = tuple(name for name, choice in CHOICES.items() if choice.is_told)
NOTE = (
    "As published: {}. These are choices of the paper's published runs, not the honest protocol: the figures explain "
    "the paper's table and say nothing about how good a method is."
)


def chosen(names: Sequence[str]) -> tuple[str, ...]:
    """Choices in their order, each once; all that the authors have told if none is named.

    Args:
        names: Their names.
    """
    for name in names:
        if name not in CHOICES:
            raise MethodError(f"unknown published choice {name!r:.60}: {suggestion(name, CHOICES)}")
    return tuple(name for name in CHOICES if name in names) if names else TOLD


def concerning(method: str, names: Sequence[str]) -> list[str]:
    """Those of some choices that concern a method, in their order.

    Args:
        method: The method's name, as the paper's experiment has it.
        names: The choices.
    """
    return [name for name in CHOICES if name in names and method in CHOICES[name].methods]


def note(names: Sequence[str]) -> str:
    """What stands above tables of runs with such choices.

    Args:
        names: The choices.
    """
    return NOTE.format(", ".join(names))


def has_random_split(task: Task) -> bool:
    """Whether a task's split is a random one, and not one that is published with its graph.

    Args:
        task: The task.
    """
    return Task.leave_out(task.graph, task.ood_classes).fingerprint == task.fingerprint


def with_rows_of_sum_one(task: Task) -> Task:
    """The same task with the features of every node divided by their sum.

    Args:
        task: The task.
    """
    features = task.graph.features.to_dense()
    shares = features / features.abs().sum(1, keepdim=True).clamp_min(1e-12)
    graph = task.graph.replace(features=shares)
    return Task.leave_out(graph, task.ood_classes, task.split, name=task.name, source=task.source)
