"""Ensembles of vanilla GNNs: the classical decomposition, and the credal set that the members span."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast

import torch
from torch import Tensor

from ..graphs import Graph
from ..sets import HullSet
from . import scores
from .answers import Predictor, SplitPredictor, predictor_of
from .base import Method, Objective
from .components import Components
from .given import EvalProtocol, Given
from .network import Vanilla
from .posthoc import fitted_on
from .prediction import MethodError, Prediction


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

    @classmethod
    def objective(cls, protocol: EvalProtocol) -> Objective:
        return "nll" if protocol == "sealed" else "accuracy"

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

    def _fit(self, given: Given) -> None:
        assert self.components is not None
        seeds = self.components.seeds({"size": self.size}, self.seed)
        members = self.members or [Vanilla(seed=seed) for seed in seeds]
        left = range(given.networks * len(members), 0, -1)
        self.members_ = [fitted_on(given._replace(networks=n), each) for n, each in zip(left, members, strict=False)]

    def _is_trained(self) -> bool:
        return self.members is not None and all(member.is_fitted for member in self.members)

    def _predictor(self, graph: Graph) -> Predictor:
        members = [predictor_of(member, member._graph(graph)) for member in self.members_]

        def softmax(nodes: Tensor) -> tuple[Tensor]:
            return (torch.stack([cast(Tensor, member(nodes).probabilities) for member in members]),)

        return SplitPredictor(softmax, self._judge())

    def _judge(self) -> Callable[[Tensor, Tensor], Prediction]:
        """Makes the prediction of nodes and the members' softmax vectors ``[M, N, C]``; it can be pickled."""
        return partial(decomposed, class_names=self.class_names)

    def check_chunks(self) -> None:
        super().check_chunks()
        for member in self.members or ():
            member.check_chunks()

    def _parts(self) -> dict[str, Method]:
        return {f"members.{number}": member for number, member in enumerate(self.members_)}

    def _adopt(self, parts: Mapping[str, Method]) -> None:
        self.members = self.members_ = list(parts.values())


@dataclass(kw_only=True, eq=False)
class CredalEnsemble(ClassicalEnsemble):
    """The convex hull of the members' softmax vectors, with exact entropies: the paper's post-hoc credal ablation."""

    name = "credal-ensemble"
    is_credal = True

    def _judge(self) -> Callable[[Tensor, Tensor], Prediction]:
        return partial(spanned, class_names=self.class_names)
