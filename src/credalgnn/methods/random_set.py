"""Random-set network: beliefs in sets of classes, and the credal set between belief and plausibility."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import combinations

import torch
from torch import Tensor, nn

from ..nn.backbones import Adjacency, Features
from ..nn.training import Output
from ..runtime.context import Context
from ..sets import IntervalSet, uncertainty
from .inputs import inputs
from .network import NETWORK_SPACE, Network
from .parameters import AT_LEAST_0
from .prediction import Prediction
from .training_data import TrainingData


@dataclass(kw_only=True, eq=False)
class RandomSet(Network):
    """Random-set GNN (Woodley et al. 2026, after the random-set networks of Manchingal et al. 2025).

    For each of a family of sets of classes, an output is the belief that the class is among them::

        Bel(A) = sigmoid(w_A z + b_A)                           trained by BCE to be 1 if the label is in A, else 0
        m(A)   = Bel(A) - sum over B inside A of m(B)           masses, which should be positive, and of sum 1:
        loss   = BCE + mass_weight (mean over nodes and sets of max(0, -m(A)) + mean of |sum_A m(A) - 1|)
        p_c    = sum over A with c of m(A) / |A|                the pignistic probability, by which it classifies

    In prediction negative masses count as 0, mass missing to 1 goes to the set of all classes, and excess mass is
    normalised. The credal set lies between belief m({c}) and plausibility, the mass of all sets with c. Scores:
    EU, AU and TU from the exact entropies of these intervals, and ``width``, plausibility less belief of the predicted
    class.

    The family consists of all single classes, ``budget`` larger sets, and the set of all classes, whose belief is to be
    1. The authors' code takes all sets for fewer than ten classes, and else those that overlap most in a t-SNE
    embedding of an untrained network's latents; here sets are ordered by the distance of their two most distant
    classes, nearest first, between class means of features and of in-neighbours' features. That code reports the
    entropy of p, not EU. The intervals hold all distributions that the belief function allows, and more, so that its EU
    is at most the EU here.

    Args:
        budget: Sets of two classes or more, at most, without that of all classes; default 20.
        mass_weight: Weight of the penalty of invalid masses, default 1e-3.

    Example:
        >>> RandomSet(budget=10).fit(task).predict().credal
    """

    budget: int = 20
    mass_weight: float = 1e-3

    name = "random-set"
    score_names = ("EU", "AU", "TU", "width")
    is_credal = True
    search_space = {**NETWORK_SPACE, "budget": (5, 10, 20, 50), "mass_weight": (0.0, 1e-3, 1e-2, 1e-1)}
    objectives = {"sealed": "nll", "paper": "auroc"}
    constraints = {"budget": AT_LEAST_0, "mass_weight": AT_LEAST_0}

    def _fit(self, training: TrainingData, context: Context) -> None:
        view = training.view
        labels = view.graph.labels[view.train]
        distances = class_distances(*inputs(view.graph), view.train, labels, view.num_classes)
        every = torch.ones(1, view.num_classes, dtype=torch.bool)
        self._use(torch.cat([budgeted(distances, self.budget), every]))
        super()._fit(training, context)

    def _use(self, family: Tensor) -> None:
        self.family_ = family
        self._to_masses = moebius(family).to(self.device)

    def _head(self, widths: list[int], num_classes: int) -> nn.Module:
        return nn.Linear(widths[-1], len(self.family_))

    def _loss(self, output: Output, labels: Tensor) -> Tensor:
        assert isinstance(output, Tensor)
        beliefs = self.family_.t().to(output)[labels]
        masses = output.sigmoid() @ self._to_masses.to(output.dtype).t()
        penalty = (-masses).clamp_min(0.0).mean() + (masses.sum(1) - 1.0).abs().mean()
        fit = nn.functional.binary_cross_entropy_with_logits(output, beliefs)
        return fit + self.mass_weight * penalty

    def _masses(self, output: Output) -> tuple[Tensor, Tensor]:
        """Masses of the family ``[N, B]``, and additional mass of the set of all classes ``[N, 1]``."""
        assert isinstance(output, Tensor)
        masses = (output.double().sigmoid() @ self._to_masses.to(output.device).t()).clamp_min(0.0)
        total = masses.sum(1, keepdim=True)
        return masses / total.clamp_min(1.0), (1.0 - total).clamp_min(0.0)

    def _credal(self, output: Output) -> IntervalSet:
        masses, rest = self._masses(output)
        family = self.family_.to(masses)
        plausibility = masses @ family + rest
        belief = masses @ (family * (family.sum(1, keepdim=True) == 1))
        return IntervalSet(belief, plausibility.clamp_max(1.0))

    def _probabilities(self, output: Output) -> Tensor:
        masses, rest = self._masses(output)
        family = self.family_.to(masses)
        return masses @ (family / family.sum(1, keepdim=True)) + rest / family.shape[1]

    def _headline(self, output: Output) -> Tensor:
        return uncertainty(self._credal(output)).epistemic

    def _logits(self, output: Output) -> Tensor:
        return self._probabilities(output).clamp_min(1e-12).log()

    def _prediction(self, nodes: Tensor, output: Output) -> Prediction:
        credal, p = self._credal(output), self._probabilities(output)
        prediction = Prediction.of_credal(nodes, credal, self.class_names)
        width = (credal.upper - credal.lower).gather(1, p.argmax(1, keepdim=True)).squeeze(1)
        return replace(prediction, probabilities=p, scores={**prediction.scores, "width": width})

    def _state(self) -> dict[str, Tensor]:
        return {"family": self.family_, **super()._state()}

    def _load_state(self, state: Mapping[str, Tensor]) -> None:
        weights = dict(state)
        self._use(weights.pop("family").bool())
        super()._load_state(weights)


def class_distances(x: Features, edges: Adjacency, nodes: Tensor, labels: Tensor, num_classes: int) -> Tensor:
    """Distances between class means of ``[features | mean features of in-neighbours]`` over labelled nodes."""
    share = torch.zeros(len(x), num_classes)
    share[nodes, labels] = 1.0 / torch.bincount(labels, minlength=num_classes)[labels]
    columns = x.t()
    means = torch.cat([columns @ share, columns @ (edges.matrix("mean").t() @ share)]).t().double()
    return torch.cdist(means, means, compute_mode="donot_use_mm_for_euclid_dist")


def budgeted(distances: Tensor, budget: int) -> Tensor:
    """All single classes, then ``budget`` sets ordered by their two most distant classes, boolean ``[C + budget, C]``.

    The set of all classes is left out. Of sets with the same two most distant classes smaller ones come first, so that
    each subset of a set precedes it.
    """
    count = len(distances)
    family: list[frozenset[int]] = [frozenset([c]) for c in range(count)]
    seen: set[frozenset[int]] = {*family, frozenset()}
    pairs = sorted(combinations(range(count), 2), key=lambda pair: (float(distances[pair]), pair))
    for one, other in pairs:
        new = [s | {one, other} for s in seen if not s & {one, other} and s | {one} in seen and s | {other} in seen]
        for candidate in sorted(new, key=lambda s: (len(s), sorted(s))):
            if len(family) < count + budget and len(candidate) < count:
                family.append(candidate)
                seen.add(candidate)
    rows = torch.zeros(len(family), count, dtype=torch.bool)
    for row, members in zip(rows, family, strict=True):
        row[list(members)] = True
    return rows


def moebius(family: Tensor) -> Tensor:
    """Moebius transform from beliefs to masses, float64 ``[B, B]``, for sets as boolean rows ``[B, C]``."""
    sets = family.double()
    inside = sets @ sets.t() == sets.sum(1)  # [A, B]: B is in A
    inverse: Tensor = torch.linalg.inv(inside.double())
    return inverse.round()  # integers, since the matrix is triangular with ones
