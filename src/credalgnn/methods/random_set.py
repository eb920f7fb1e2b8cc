"""The random-set network: beliefs in sets of classes, and the credal set between belief and plausibility."""

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

    An output for each of a family of sets of classes is the belief that the class is among them::

        Bel(A) = sigmoid(w_A z + b_A)                           trained by BCE to be 1 if the label is in A, else 0
        m(A)   = Bel(A) - sum over B inside A of m(B)           masses, which should be positive, and of sum 1:
        loss   = BCE + mass_weight (mean over nodes and sets of max(0, -m(A)) + mean of |sum_A m(A) - 1|)
        p_c    = sum over A with c of m(A) / |A|                the pignistic probability, by which it classifies

    In prediction negative masses count as 0, what is missing to 1 goes to the set of all classes, and what is too much
    is divided away. The credal set lies between belief m({c}) and plausibility, the mass of all sets with c. Scores:
    EU, AU and TU from the exact entropies of these intervals, and ``width``, plausibility less belief of the predicted
    class.

    The family are all single classes, ``budget`` larger sets, and the set of all classes, in which belief is to be 1.
    The authors' code takes all sets of fewer than ten classes, and else those that overlap most in a t-SNE picture of
    an untrained network's latents; here a set comes the earlier, the nearer its two most distant classes are, by the
    class means of features and of in-neighbours' features. That code reports the entropy of p, not EU. The intervals
    hold all distributions that the belief function allows, and more, so that its EU is at most the EU here.

    Args:
        budget: Sets of two classes or more at the most, that of all classes aside.
        mass_weight: Of the penalty of masses that are no masses.
        backbone: ``"sage"``, ``"gcn"``, or another, see ``Network``.
        hidden: Units of a hidden layer.
        layers: Message-passing layers.
        dropout: Probability of dropping a unit between layers, in training.
        lr: Learning rate of Adam.
        weight_decay: L2 penalty of all weights.
        epochs: Epochs at the most.
        patience: Epochs without a better monitor after which training stops.
        monitor: What early stopping looks at, see ``Network``.
        batch_size: Training nodes of a mini-batch with its sampled neighbourhood; None: all nodes at once.
        seed: Of weights, dropout and batches.
        device: Where to train and predict, as torch names it.
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
        wanted = self.family_.t().to(output)[labels]
        masses = output.sigmoid() @ self._to_masses.to(output.dtype).t()
        broken = (-masses).clamp_min(0.0).mean() + (masses.sum(1) - 1.0).abs().mean()
        fit = nn.functional.binary_cross_entropy_with_logits(output, wanted)
        return fit + self.mass_weight * broken

    def _masses(self, output: Output) -> tuple[Tensor, Tensor]:
        """Masses of the family ``[N, B]``, and what more the set of all classes has ``[N, 1]``."""
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
        found = Prediction.of_credal(nodes, credal, self.class_names)
        width = (credal.upper - credal.lower).gather(1, p.argmax(1, keepdim=True)).squeeze(1)
        return replace(found, probabilities=p, scores={**found.scores, "width": width})

    def _state(self) -> dict[str, Tensor]:
        return {"family": self.family_, **super()._state()}

    def _load_state(self, state: Mapping[str, Tensor]) -> None:
        weights = dict(state)
        self._use(weights.pop("family").bool())
        super()._load_state(weights)


def class_distances(x: Features, edges: Adjacency, nodes: Tensor, labels: Tensor, num_classes: int) -> Tensor:
    """Distances between the class means of ``[features | mean features of in-neighbours]``, of labelled nodes.

    Args:
        x: Features ``[N, F]``; sparse ones stay so.
        edges: The edges.
        nodes: Labelled nodes.
        labels: Their classes.
        num_classes: C.
    """
    share = torch.zeros(len(x), num_classes)
    share[nodes, labels] = 1.0 / torch.bincount(labels, minlength=num_classes)[labels]
    columns = x.t()
    means = torch.cat([columns @ share, columns @ (edges.mean.t() @ share)]).t().double()
    return torch.cdist(means, means, compute_mode="donot_use_mm_for_euclid_dist")


def budgeted(distances: Tensor, budget: int) -> Tensor:
    """All single classes, then the sets whose two most distant classes are nearest, boolean ``[C + budget, C]``.

    The set of all classes is left out. Of sets with the same two most distant classes the smaller ones come first, so
    that each subset of a set stands before it.

    Args:
        distances: Between classes ``[C, C]``.
        budget: How many sets of two classes or more, at the most.
    """
    count = len(distances)
    family: list[frozenset[int]] = [frozenset([c]) for c in range(count)]
    known: set[frozenset[int]] = {*family, frozenset()}
    pairs = sorted(combinations(range(count), 2), key=lambda pair: (float(distances[pair]), pair))
    for one, other in pairs:
        new = [s | {one, other} for s in known if not s & {one, other} and s | {one} in known and s | {other} in known]
        for found in sorted(new, key=lambda s: (len(s), sorted(s))):
            if len(family) < count + budget and len(found) < count:
                family.append(found)
                known.add(found)
    rows = torch.zeros(len(family), count, dtype=torch.bool)
    for row, members in zip(rows, family, strict=True):
        row[list(members)] = True
    return rows


def moebius(family: Tensor) -> Tensor:
    """The matrix that makes masses of beliefs, float64 ``[B, B]``: the belief in a set is the mass of all inside it.

    Args:
        family: Sets as boolean rows ``[B, C]``.
    """
    sets = family.double()
    inside = sets @ sets.t() == sets.sum(1)  # [A, B]: B is in A
    found: Tensor = torch.linalg.inv(inside.double())
    return found.round()  # whole numbers, since the matrix is triangular with ones
