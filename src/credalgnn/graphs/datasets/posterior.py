"""True posterior of the contextual stochastic block model given features, edges and some labels.

There are too many labellings to add up, so a Gibbs sampler averages over them. It uses the exact generator: edge
probabilities depend on class sizes, and so on the labels; the direction in which an edge was drawn is summed out;
repeated edges count as often as they occur; a self-loop is drawn only where a class has one node; and the first nodes,
one of each class, are known, as the generator sets them so that no class is empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from .._checks import node_numbers
from ..errors import GraphError
from .synthetic import csbm, feature_scores

CLUSTER = 64  # nodes of a cluster that can also change in parts; larger ones are hardly ever accepted
COOLING = (0.1, 0.03, 0.01, 3e-3, 1e-3, 3e-4, 1e-4, 3e-5, 1e-5, 1e-6, 1e-8)  # homophilies on the way to 0
STAY = 100  # sweeps at each


@dataclass(frozen=True, eq=False)
class CSBMPosterior:
    """Posterior of all labels, estimated by two chains.

    Args:
        probabilities: ``[N, C]``, float64: the chain from the true labels. These are a draw from the posterior, so it
            needs no burn-in.
        second: ``[N, C]``: the second chain.
        known: ``[N]``: nodes whose class is certain; all others are averaged over.
        independent: The second chain started elsewhere. If not, the difference of the chains says nothing of labellings
            that neither has reached.
    """

    probabilities: Tensor
    second: Tensor
    known: Tensor
    independent: bool

    @property
    def error(self) -> float:
        """Root mean square difference of the chains, over the classes of all unknown nodes.

        The standard error of one chain is this over sqrt(2), once both have forgotten where they started.
        """
        apart = (self.probabilities - self.second)[~self.known]
        return float(apart.square().mean().sqrt()) if len(apart) else 0.0

    @property
    def largest_error(self) -> float:
        """Largest difference of the chains, over nodes and classes."""
        return float((self.probabilities - self.second).abs().max())


def csbm_graph_posterior(
    nodes: int = 1000,
    classes: int = 4,
    homophily: float = 0.8,
    degree: float = 10.0,
    features: int = 16,
    signal: float = 1.0,
    seed: int = 0,
    *,
    known: Tensor | None = None,
    unknown_share: Sequence[float] | None = None,
    sweeps: int = 3000,
) -> CSBMPosterior:
    """Estimate the true class probabilities [N, C] given all features, all edges and the labels of known nodes.

    For ``csbm`` with the same arguments: the prediction of the best classifier that knows the generator and sees what a
    graph neural network sees. The first ``classes`` nodes are always known. The same arguments give the same bits.

    The second chain starts at the classes that the features alone suggest, with a burn-in. With homophily 0 that
    labelling is impossible, as no edge may join two nodes of a class: the homophily is lowered to 0 step by step. Where
    that reaches no possible labelling either, the second chain starts at the true labels, too.

    Args:
        nodes: Number of nodes.
        classes: Number of classes.
        homophily: Share of edges between nodes of one class.
        degree: Average number of undirected edges at a node.
        features: Number of features.
        signal: Distance between the means of the classes.
        seed: Seed of all draws, of the generator and of the chains.
        known: Nodes with known labels, a mask or node numbers. Default: the first ``classes`` nodes only.
        unknown_share: Share of unknown nodes of each class, or a multiple: unless it is the same for all classes, the
            choice of known nodes is informative. With training nodes that are 60 % of all classes but the first, it is
            ``(1, 0.4, 0.4, 0.4)``. Default: the same for all classes.
        sweeps: Number of draws of each label; the error falls with its square root.
    """
    graph = csbm(nodes, classes, homophily, degree, features, signal, seed)
    if isinstance(sweeps, bool) or not isinstance(sweeps, int) or sweeps < 1:
        raise GraphError(f"sweeps must be a whole number of at least 1, not {sweeps!r}")
    labels = graph.labels.numpy()
    fixed = np.arange(nodes) < classes
    if known is not None:
        fixed[node_numbers(known, "known", nodes).numpy()] = True
    fields = feature_scores(nodes, classes, features, signal, seed)
    fields += _log_shares(unknown_share, labels[~fixed], classes)
    source, target = graph.edge_index.numpy()
    fields[:, labels[source[source == target]]] = -np.inf  # a class with a self-loop has one node, which is known
    source, target = source[source != target], target[source != target]
    starting = fields
    if homophily == 1.0:  # a component has one class
        _, part = connected_components(csr_array((np.ones(len(source)), (source, target)), shape=(nodes, nodes)))
        fixed = np.isin(part, part[fixed])
        total = np.zeros((nodes, classes))
        np.add.at(total, part, fields)
        starting = total[part]
    chain = _Chain(np.searchsorted(source, np.arange(nodes + 1)), target.copy(), fixed, fields)
    probabilities = chain.run(labels.copy(), homophily, 0, sweeps, np.random.default_rng([seed, 2]))
    state, rng = np.where(fixed, labels, starting.argmax(1)), np.random.default_rng([seed, 3])
    independent = homophily > 0.0 or chain.cool(state, source, rng)
    if not independent:
        state = labels.copy()
    second = chain.run(state, homophily, sweeps // 4, sweeps, rng)
    return CSBMPosterior(probabilities, second, torch.from_numpy(fixed), independent)


def among_classes(probabilities: Tensor, classes: Sequence[int]) -> Tensor:
    """Return probabilities [N, K] of some classes given that a node is of one of them.

    A row in which all of them are impossible is NaN.

    Args:
        probabilities: Probabilities of all classes, [N, C].
        classes: The classes, each once; the columns of the result.
    """
    chosen = list(classes)
    count = probabilities.shape[-1]
    if not chosen or len(set(chosen)) < len(chosen) or not all(0 <= c < count for c in chosen):
        raise GraphError(f"classes must be some of 0..{count - 1}, each once, not {chosen}")
    remaining = probabilities[:, chosen]
    return remaining / remaining.sum(1, keepdim=True)


def _log_shares(shares: Sequence[float] | None, unknown: NDArray[np.int64], classes: int) -> NDArray[np.float64]:
    """Return the logarithm of ``unknown_share``, checked against the unknown nodes."""
    if shares is None:
        return np.zeros(classes)
    try:
        values = np.asarray(shares, dtype=np.float64)
    except (TypeError, ValueError):
        values = np.empty(0)
    if values.shape != (classes,) or not np.isfinite(values).all() or (values < 0).any():
        raise GraphError(f"unknown_share must have a number for each of the {classes} classes, not {shares!r}")
    wrong = unknown[values[unknown] == 0]
    if len(wrong):
        raise GraphError(f"unknown_share says that all nodes of class {wrong[0]} are known, but some are not")
    with np.errstate(divide="ignore"):
        return np.log(values)


@dataclass(frozen=True, eq=False)
class _Chain:
    """Sampler of the labels of the unknown nodes."""

    starts: NDArray[np.int64]  # the adjacency matrix by rows, without self-loops
    columns: NDArray[np.int64]
    known: NDArray[np.bool_]
    fields: NDArray[np.float64]

    def cool(self, labels: NDArray[np.int64], source: NDArray[np.int64], rng: np.random.Generator) -> bool:
        """Lower the homophily to 0 step by step; return True once no edge joins nodes of a class."""
        for homophily in COOLING:
            self.run(labels, homophily, 0, STAY, rng)
            if not (labels[source] == labels[self.columns]).any():
                return True
        return False

    def run(
        self, labels: NDArray[np.int64], homophily: float, burn_in: int, sweeps: int, rng: np.random.Generator
    ) -> Tensor:
        """Return probabilities [N, C] of a chain that starts at ``labels``, which become those of its end."""
        from ._gibbs import Clusters, Model, sample  # here, as numba takes long to load

        nodes, classes = self.fields.shape
        sums = np.zeros((nodes, classes))
        sums[self.known, labels[self.known]] = sweeps
        free = np.flatnonzero(~self.known)
        with np.errstate(divide="ignore"):
            log_same, log_other = np.log([homophily, (1.0 - homophily) / 2.0])  # half: the mean of both directions
        logs = np.log(np.maximum(np.arange(2 * nodes + 1), 1))
        model = Model(self.starts, self.columns, free, self.fields, logs, log_same, log_other)
        # Clusters are grown as if all classes had the same size; their acceptance corrects for the difference.
        whole = homophily == 1.0 or (homophily == 0.0 and classes == 2)  # a component changes as a whole or not at all
        within, across = homophily / (nodes / classes - 1), (1.0 - homophily) / (nodes - nodes / classes)
        grow = 1.0 - min(within, across) / max(within, across)
        count = 4 + len(free) // 32 if len(free) else 0
        clusters = Clusters(bool(within > across), grow, nodes if whole else CLUSTER, count)
        sample(model, clusters, labels, burn_in, sweeps, rng, sums)
        return torch.from_numpy(sums / sweeps)
