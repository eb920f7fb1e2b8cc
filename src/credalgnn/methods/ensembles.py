"""Ensembles of vanilla GNNs: the classical decomposition, and the credal set that the members span."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast

import torch
from torch import Tensor

from ..graphs import Graph
from ..runtime.context import Context
from ..sets import HullSet
from . import scores
from .base import Components, Method, fitted_on
from .network import Vanilla
from .prediction import MethodError, Prediction, Predictor, SplitPredictor
from .training_data import TrainingData


def decomposed(nodes: Tensor, members: Tensor, class_names: tuple[str, ...]) -> Prediction:
    """The prediction of members: their mean, and TU, AU and EU in bits.

    Args:
        nodes: The nodes ``[N]``.
        members: The members' class probabilities ``[M, N, C]``.
        class_names: The names of the classes.
    """
    total, aleatoric, epistemic = scores.ensemble_uncertainty(members)
    measures = {"EU": epistemic, "AU": aleatoric, "TU": total}
    return Prediction(nodes, measures, "EU", class_names, members.mean(0))


def spanned(nodes: Tensor, members: Tensor, class_names: tuple[str, ...]) -> Prediction:
    """The prediction of the credal set that members span; see ``decomposed``.

    Args:
        nodes: The nodes ``[N]``.
        members: The members' class probabilities ``[M, N, C]``.
        class_names: The names of the classes.
    """
    return Prediction.of_credal(nodes, HullSet(members), class_names)


@dataclass(kw_only=True, eq=False)
class ClassicalEnsemble(Method):
    """M GNNs: TU = H(mean), AU = mean H, EU = TU - AU (the paper's last appendix).

    Args:
        size: M, where no members are given.
        members: Methods that classify: fitted on the task, and then shared with whoever else holds them, or templates,
            of which ``fit`` fits clones (``members_``). By default ``size`` vanilla GNNs with seeds of their own.
        seed: Of the members, if none are given; no two ensembles of one size share a member.
    """

    size: int = 10
    members: Sequence[Method] | None = None
    seed: int = 0

    name = "classical-ensemble"
    works_by_chunks = True
    score_names = ("EU", "AU", "TU")
    components = Components("members", Vanilla, size="size")
    search_space = {"size": tuple(range(2, 16))}
    learns = False
    objectives = {"sealed": "nll", "paper": "accuracy"}

    def _check(self) -> None:
        if self.members is not None:
            if isinstance(self.members, Method):
                raise MethodError("members must be a list of methods, not one of them")
            self.members = list(self.members)
            if not all(isinstance(member, Method) and not member.is_baseline for member in self.members):
                raise MethodError("the members of an ensemble must be methods that classify")
            self.size = len(self.members)
        if self.size < 2:
            raise MethodError(f"an ensemble needs 2 members or more, not {self.size}")
        if not 0 <= self.seed < 2**32 // self.size:
            raise MethodError(f"seed must be between 0 and {2**32 // self.size - 1}, not {self.seed}")

    def _fit(self, training: TrainingData, context: Context) -> None:
        assert self.components is not None
        seeds = self.components.seeds({"size": self.size}, self.seed)
        members = self.members or [Vanilla(seed=seed) for seed in seeds]
        left = range(context.networks * len(members), 0, -1)
        self.members_ = [
            fitted_on(each, training, context.replace(networks=n)) for n, each in zip(left, members, strict=False)
        ]

    def _predictor(self, graph: Graph, context: Context) -> Predictor:
        members = [member._predictor(graph, context) for member in self.members_]

        def softmax(nodes: Tensor) -> tuple[Tensor]:
            return (torch.stack([cast(Tensor, member(nodes).probabilities) for member in members]),)

        return SplitPredictor(softmax, self._judge())

    def _judge(self) -> Callable[[Tensor, Tensor], Prediction]:
        """Makes the prediction of nodes and the members' softmax vectors ``[M, N, C]``; it can be pickled."""
        return partial(decomposed, class_names=self.class_names)


@dataclass(kw_only=True, eq=False)
class CredalEnsemble(ClassicalEnsemble):
    """The convex hull of the members' softmax vectors, with exact entropies: the paper's post-hoc credal ablation."""

    name = "credal-ensemble"
    is_credal = True

    def _judge(self) -> Callable[[Tensor, Tensor], Prediction]:
        return partial(spanned, class_names=self.class_names)
