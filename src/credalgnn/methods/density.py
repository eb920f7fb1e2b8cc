"""Densities of latents: joint latent density estimation, and the graph energy-based model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from ..graphs import Graph
from ..nn.backbones import Adjacency
from ..nn.layers import rows_of
from ..runtime.context import Context
from .base import Outputs
from .inputs import inputs
from .knn import KNN
from .neighbours import NeighbourBank
from .parameters import ABOVE_0, AT_LEAST_0, AT_LEAST_1, FRACTION, Options
from .posthoc import PostHoc
from .principal import Projection, fit_projection
from .training_data import TrainingData

FLOOR = 1e-3  # of the mean variance of all training latents: no class varies less in any direction
INTERVAL = 0.95  # the share of nodes whose logits and distances are brought to the same scale


@dataclass(kw_only=True, eq=False)
class JLDE(KNN):
    """Joint latent density estimation (Fuchsgruber et al. 2025): few training nodes are near a strange one.

    Each latent z_l, the features z0 among them, is projected onto the leading principal components of the training
    nodes, ``u_l = P_l^T (z_l - mean)``, and the score is the distance of ``[u_0 | u_1 | .. | u_L]`` to the nearest
    training nodes: the higher, the lower a kNN density. The joint space matters where neighbours are of other classes:
    no single layer then knows all that the others do.

    Latents keep their scale, and the mean distance to k neighbours counts, as in the authors' code. Differences from
    it: there, components are those of all nodes, as many as hold 95 % of the variance, and k is 5. Fewer components are
    kinder to the method where features are many (``benchmarks/published.py``).

    Args:
        dimensions: Principal components of each latent at the most.
        k: Neighbours.
        kth: Take the k-th distance, not the mean of k.
        normalize: Scale joint vectors to length 1 first.
        model: A fitted method that has outputs, or a template; by default a vanilla GNN with ``seed``.
        seed: Of the model, if none is given.
    """

    dimensions: int = 32

    name = "jlde"
    works_by_chunks = False
    search_space = {"dimensions": (8, 16, 32, 64), "k": (1, 5, 10, 20, 50, 100)}
    constraints = {"dimensions": AT_LEAST_1}

    def _prepare(self, training: TrainingData, context: Context) -> None:
        view = training.view
        known = [rows_of(z, view.train) for z in self.model_._outputs(view.graph, context).latents]
        self.projections_ = [fit_projection(z, self.dimensions) for z in known]
        projected = [project(z) for project, z in zip(self.projections_, known, strict=True)]
        self.bank_ = NeighbourBank(projected, self.normalize)

    def _scorer(self, graph: Graph, outputs: Outputs, context: Context) -> Callable[[Tensor], Tensor]:
        def score(nodes: Tensor) -> Tensor:
            latents = zip(self.projections_, outputs.latents, strict=True)
            return self.bank_.distance([project(rows_of(z, nodes)) for project, z in latents], self.k, self.kth)

        return score

    def _state(self) -> dict[str, Tensor]:
        tensors = super()._state()
        for number, projection in enumerate(self.projections_):
            tensors.update({f"projection.{number}.{name}": t for name, t in projection._asdict().items()})
        return tensors

    def _load_state(self, state: Mapping[str, Tensor]) -> None:
        super()._load_state({name: tensor for name, tensor in state.items() if not name.startswith("projection.")})
        count = len({name.split(".")[1] for name in state if name.startswith("projection.")})
        self.projections_ = [
            Projection(*(state[f"projection.{number}.{name}"] for name in Projection._fields))
            for number in range(count)
        ]


class Scale(NamedTuple):
    """Class-conditional Gaussians, and what brings their distances to the scale of logits.

    Args:
        means: Class means ``[C, D]``.
        variances: Their variances ``[C, D]``.
        distances: Ends of the interval of distances ``[2, C]``.
        logits: Ends of the interval of logits ``[2, C]``.
    """

    means: Tensor
    variances: Tensor
    distances: Tensor
    logits: Tensor


@dataclass(kw_only=True, eq=False)
class GEBM(PostHoc):
    """Graph energy-based model (Fuchsgruber et al. 2024): energies at three scales, held down far from training nodes.

    Each class has a Gaussian with a diagonal covariance in the last latent. Its squared Mahalanobis distance d_c is
    brought to the scale of the logits l_c, linearly, by the intervals that the middle 95 % of all nodes have, and is
    what the evidence loses. Gaussians and intervals are those of the network on the graph; l and d are those of the
    same network on nodes that have no neighbour but themselves, so that only diffusion mixes a node with others::

        e_c = l_c - weight * scaled(d_c)
        independent = -T logsumexp(e / T)                      a node by itself
        local       = diffused(independent)                    its neighbours' energies
        group       = -T logsumexp(diffused(e) / T)            its neighbours' evidence
        score       = independent + local + group              or their logsumexp, a soft maximum

    with ``x <- alpha x + (1 - alpha) mean of x over a node and its in-neighbours``, repeated, as diffusion. Without the
    Gaussians a ReLU network's energy falls without bound far away from all data.

    Differences from the authors' code: it removes all edges where a node has itself for a neighbour here, which is the
    same for GCN; SAGE would lose the half of each layer that reads neighbours. Latents behind a ReLU often do not vary
    at all within a class: variances are at least a thousandth of the mean variance of all. Where edges have a
    direction, it takes the mean over out-neighbours. It adds the three energies up; both ways are here.

    Args:
        weight: Of the Gaussians; 0: none.
        alpha: What a node keeps in a step of diffusion.
        steps: Of diffusion.
        temperature: T.
        aggregation: ``"sum"`` or ``"logsumexp"``.
        model: A fitted method that has outputs, or a template; by default a vanilla GNN with ``seed``.
        seed: Of the model, if none is given.
    """

    weight: float = 1.0
    alpha: float = 0.5
    steps: int = 10
    temperature: float = 1.0
    aggregation: Literal["sum", "logsumexp"] = "sum"

    name = "gebm"
    score_names = ("energy",)
    uses_unlabelled = True
    search_space = {
        "weight": (0.0, 0.5, 1.0, 2.0),
        "alpha": (0.2, 0.5, 0.8),
        "steps": (2, 5, 10),
        "aggregation": ("sum", "logsumexp"),
    }
    constraints = {
        "temperature": ABOVE_0,
        "weight": AT_LEAST_0,
        "alpha": FRACTION,
        "steps": AT_LEAST_0,
        "aggregation": Options("sum", "logsumexp"),
    }

    def _prepare(self, training: TrainingData, context: Context) -> None:
        view = training.view
        outputs = self.model_._outputs(view.graph, context)
        z, labels = _dense(outputs)[view.train].double(), view.graph.labels[view.train]
        means, variances = _moments(z, labels, view.num_classes)
        distances = _interval(_distances(_dense(outputs), means, variances))
        self.scale_ = Scale(means, variances, distances, _interval(outputs.logits.double()))

    def _scorer(self, graph: Graph, outputs: Outputs, context: Context) -> Callable[[Tensor], Tensor]:
        alone = self.model_._outputs(by_themselves(graph), context)
        means, variances, (near, far), (low, high) = self.scale_
        distance = _distances(_dense(alone), means, variances)
        scaled = (distance - near) / (far - near).clamp_min(torch.finfo(torch.float64).tiny) * (high - low) + low
        evidence = alone.logits.double() - self.weight * scaled
        edges = inputs(graph)[1]
        independent = self._energy(evidence)
        local = diffused(independent[:, None], edges, self.alpha, self.steps).squeeze(1)
        group = self._energy(diffused(evidence, edges, self.alpha, self.steps))
        scales = torch.stack([independent, local, group])
        energies = scales.sum(0) if self.aggregation == "sum" else scales.logsumexp(0)
        return lambda nodes: energies[nodes]

    def _energy(self, evidence: Tensor) -> Tensor:
        return -self.temperature * (evidence / self.temperature).logsumexp(-1)

    def _state(self) -> dict[str, Tensor]:
        return self.scale_._asdict()

    def _load_state(self, state: Mapping[str, Tensor]) -> None:
        self.scale_ = Scale(**state)


def by_themselves(graph: Graph) -> Graph:
    """The nodes of a graph, each with itself for its only neighbour; made once for it.

    Args:
        graph: The graph.
    """
    return graph.cached(_by_themselves)


def _by_themselves(graph: Graph) -> Graph:
    return graph.replace(edge_index=torch.arange(graph.num_nodes).expand(2, -1))


def diffused(values: Tensor, edges: Adjacency, alpha: float, steps: int) -> Tensor:
    """``x <- alpha x + (1 - alpha) mean of x over a node and its in-neighbours``.

    Args:
        values: One row a node ``[N, C]``.
        edges: The edges.
        alpha: What a node keeps in a step.
        steps: How many steps.
    """
    root = edges.degree.cpu().double().sqrt()[:, None]
    heard = root > 0  # not so where all of a node's edges have no weight
    for _ in range(steps):
        mean = (edges.normalized @ (root * values)) / root  # D^-1 (A + I) x
        values = torch.where(heard, alpha * values + (1.0 - alpha) * mean, values)
    return values


def _dense(outputs: Outputs) -> Tensor:
    """The last latent; of a model without layers it is the features, which may be sparse."""
    last = outputs.latents[-1]
    return last if isinstance(last, Tensor) else last.to_dense()


def _moments(z: Tensor, labels: Tensor, num_classes: int) -> tuple[Tensor, Tensor]:
    """Means and variances of each class ``[C, D]``."""
    counts = torch.bincount(labels, minlength=num_classes).double()[:, None]
    sums = z.new_zeros(num_classes, z.shape[1])
    means = sums.index_add(0, labels, z) / counts
    variances = sums.index_add(0, labels, (z - means[labels]).square()) / counts
    floor = FLOOR * z.var(0, correction=0).mean()
    return means, variances.clamp_min(float(floor.clamp_min(torch.finfo(torch.float64).tiny)))


def _distances(latent: Tensor, means: Tensor, variances: Tensor) -> Tensor:
    """Squared Mahalanobis distances to all classes ``[N, C]``."""
    z = latent.double()
    return torch.stack([((z - m).square() / v).sum(1) for m, v in zip(means, variances, strict=True)], 1)


def _interval(values: Tensor) -> Tensor:
    """The ends of the interval that the middle ``INTERVAL`` of each column's values lie in ``[2, C]``."""
    cut = (1.0 - INTERVAL) / 2
    inner = values.sort(0).values[int(cut * len(values)) : max(1, int((1.0 - cut) * len(values)))]
    return torch.stack([inner[0], inner[-1]])
