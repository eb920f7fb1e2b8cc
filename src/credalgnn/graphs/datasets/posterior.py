"""The true posterior of the contextual stochastic block model: what features, edges and some labels tell of the others.

The generator is known, and so is the probability of every graph given its labels. Their posterior is summed by a Gibbs
sampler, as there are too many labellings to add up. It knows the generator as it is, not an approximation: edge
probabilities depend on the sizes of the classes, which the labels decide; the direction in which an edge was drawn is
lost, and both are summed; edges that stand there twice count twice; a self-loop is drawn only where a class has one
node; and the first nodes, one of each class, are known, as the generator sets them so that no class is empty.
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

CLUSTER = 64  # nodes of a cluster, where it can also change in parts; larger ones are hardly ever accepted
COOLING = (0.1, 0.03, 0.01, 3e-3, 1e-3, 3e-4, 1e-4, 3e-5, 1e-5, 1e-6, 1e-8)  # homophilies on the way to 0
STAY = 100  # sweeps at each


@dataclass(frozen=True, eq=False)
class CSBMPosterior:
    """The posterior of all labels, and how far it can be trusted.

    Args:
        probabilities: ``[N, C]``, float64: the chain that starts at the true labels. These are themselves a draw from
            the posterior, so that the chain needs no burn-in.
        second: ``[N, C]``: the same from a second chain.
        known: ``[N]``: nodes whose class is certain; all others are summed over.
        independent: Whether the second chain started elsewhere. If not, their difference tells nothing of labellings
            that neither has reached.
    """

    probabilities: Tensor
    second: Tensor
    known: Tensor
    independent: bool

    @property
    def error(self) -> float:
        """The root mean square difference of the chains, over the classes of all nodes that are not known.

        One chain's standard error is this over the root of 2, if both have forgotten where they started.
        """
        apart = (self.probabilities - self.second)[~self.known]
        return float(apart.square().mean().sqrt()) if len(apart) else 0.0

    @property
    def largest_error(self) -> float:
        """The largest difference of the chains, over nodes and classes."""
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
    """The true probability [N, C] of each class given all features, all edges and the labels of the known nodes.

    For ``csbm`` with the same arguments: what the best classifier says that knows the model and sees what a graph
    neural network sees. The first ``classes`` nodes are always known. The same arguments give the same bits.

    The second chain starts at the classes that the features alone suggest, and has a burn-in. With homophily 0 these
    are no possible labelling, as no edge may join two nodes of a class: the homophily is lowered to 0 bit by bit. Where
    that ends at no possible labelling either, the second chain starts at the true labels, too.

    Args:
        nodes: How many nodes.
        classes: How many classes.
        homophily: The share of edges between nodes of one class.
        degree: The average number of undirected edges at a node.
        features: How many features.
        signal: How far apart the means of the classes are.
        seed: Of all that is drawn, by the generator and here.
        known: Nodes whose labels are given, a mask or node numbers. None: only the first ``classes`` nodes.
        unknown_share: For each class, the share of its nodes that are not known, or a multiple: which nodes are known
            tells of the others unless these are all the same. With training nodes that are 60 % of all classes but the
            first, it is ``(1, 0.4, 0.4, 0.4)``. None: the same for all classes.
        sweeps: How often each label is drawn; the error falls with the root of it.
    """
    graph = csbm(nodes, classes, homophily, degree, features, signal, seed)
    if isinstance(sweeps, bool) or not isinstance(sweeps, int) or sweeps < 1:
        raise GraphError(f"sweeps must be a whole number of at least 1, not {sweeps!r}")
    labels = graph.labels.numpy()
    given = np.arange(nodes) < classes
    if known is not None:
        given[node_numbers(known, "known", nodes).numpy()] = True
    fields = feature_scores(nodes, classes, features, signal, seed)
    fields += _log_shares(unknown_share, labels[~given], classes)
    source, target = graph.edge_index.numpy()
    fields[:, labels[source[source == target]]] = -np.inf  # a class with a self-loop has one node, which is known
    source, target = source[source != target], target[source != target]
    starting = fields
    if homophily == 1.0:  # a component has one class
        _, part = connected_components(csr_array((np.ones(len(source)), (source, target)), shape=(nodes, nodes)))
        given = np.isin(part, part[given])
        total = np.zeros((nodes, classes))
        np.add.at(total, part, fields)
        starting = total[part]
    chain = _Chain(np.searchsorted(source, np.arange(nodes + 1)), target.copy(), given, fields)
    probabilities = chain.run(labels.copy(), homophily, 0, sweeps, np.random.default_rng([seed, 2]))
    state, rng = np.where(given, labels, starting.argmax(1)), np.random.default_rng([seed, 3])
    independent = True
    if homophily == 0.0:
        for step in COOLING:
            chain.run(state, step, 0, STAY, rng)
            independent = not bool((state[source] == state[target]).any())
            if independent:
                break
        else:
            state = labels.copy()
    second = chain.run(state, homophily, sweeps // 4, sweeps, rng)
    return CSBMPosterior(probabilities, second, torch.from_numpy(given), independent)


def among_classes(probabilities: Tensor, classes: Sequence[int]) -> Tensor:
    """Probabilities [N, K] of some classes given that a node is of one of them: the others' are taken out.

    A row in which all of them are impossible is NaN: nothing can be said.

    Args:
        probabilities: Of all classes, [N, C].
        classes: Those that are kept, each once; the columns of the answer.
    """
    chosen = list(classes)
    count = probabilities.shape[-1]
    if not chosen or len(set(chosen)) < len(chosen) or not all(0 <= c < count for c in chosen):
        raise GraphError(f"classes must be some of 0..{count - 1}, each once, not {chosen}")
    kept = probabilities[:, chosen]
    return kept / kept.sum(1, keepdim=True)


def _log_shares(shares: Sequence[float] | None, unknown: NDArray[np.int64], classes: int) -> NDArray[np.float64]:
    """The logarithm of ``unknown_share``, checked against the nodes that are not known."""
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
    """A sampler of the labels of the nodes that are not known."""

    starts: NDArray[np.int64]  # the adjacency matrix by rows, without self-loops
    columns: NDArray[np.int64]
    known: NDArray[np.bool_]
    fields: NDArray[np.float64]

    def run(
        self, labels: NDArray[np.int64], homophily: float, burn_in: int, sweeps: int, rng: np.random.Generator
    ) -> Tensor:
        """Probabilities [N, C] from a chain that starts at ``labels``, which become those of its end."""
        from ._gibbs import sample

        nodes, classes = self.fields.shape
        found = np.zeros((nodes, classes))
        found[self.known, labels[self.known]] = sweeps
        free = np.flatnonzero(~self.known)
        with np.errstate(divide="ignore"):
            log_same, log_other = np.log([homophily, (1.0 - homophily) / 2.0])  # the half of both directions' mean
        # Clusters are grown as if all classes had the same size; their acceptance makes up for the difference.
        whole = homophily == 1.0 or (homophily == 0.0 and classes == 2)  # a component changes as a whole or not at all
        within, across = homophily / (nodes / classes - 1), (1.0 - homophily) / (nodes - nodes / classes)
        sample(
            self.starts,
            self.columns,
            free,
            labels,
            self.fields,
            np.log(np.maximum(np.arange(2 * nodes + 1), 1)),
            log_same,
            log_other,
            bool(within > across),
            1.0 - min(within, across) / max(within, across),
            nodes if whole else CLUSTER,
            4 + len(free) // 32 if len(free) else 0,
            burn_in,
            sweeps,
            rng,
            found,
        )
        return torch.from_numpy(found / sweeps)
