"""Graphs that need no files: handwritten digits, and the contextual stochastic block model."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import GraphError
from ..graph import Graph
from .base import Dataset


def digits(neighbours: int = 5) -> Graph:
    """Make a graph of scikit-learn's 1,797 handwritten digits, joined in both directions to their nearest neighbours.

    Distances are whole numbers, and ties go to the smaller index: the graph is the same on every machine.

    Args:
        neighbours: Number of nearest neighbours of each digit.

    Example:
        >>> from credalgnn.graphs import digits
        >>> digits().num_nodes
        1797
    """
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    if not 1 <= neighbours < len(pixels):
        raise GraphError(f"neighbours must be at least 1 and below {len(pixels)}, not {neighbours}")
    grey = pixels.astype(np.int64)
    square = (grey**2).sum(1)
    distance = square[:, None] + square - 2 * grey @ grey.T
    np.fill_diagonal(distance, distance.max() + 1)
    near = np.argsort(distance, axis=1, kind="stable")[:, :neighbours]
    joined = np.zeros(distance.shape, dtype=bool)
    np.put_along_axis(joined, near, True, axis=1)
    index = np.stack(np.nonzero(joined | joined.T)).astype(np.int64)
    return Graph((pixels / 16.0).astype(np.float32), index, labels.astype(np.int64))


def csbm(
    nodes: int = 1000,
    classes: int = 4,
    homophily: float = 0.8,
    degree: float = 10.0,
    features: int = 16,
    signal: float = 1.0,
    seed: int = 0,
) -> Graph:
    """Draw a graph from a contextual stochastic block model: edges and features given known classes.

    Classes are uniform. Features are normal with unit variance around the mean of the class, a random direction of
    length ``signal`` times sqrt(2). Of ``nodes * degree / 2`` undirected edges a share ``homophily`` joins nodes of one
    class, the others nodes of two, both ends uniform. ``csbm_posterior`` is the true posterior of the classes given a
    node's own features, ``csbm_graph_posterior`` that given all features, edges and known labels.

    Args:
        nodes: Number of nodes.
        classes: Number of classes.
        homophily: Share of edges between nodes of one class.
        degree: Average number of undirected edges at a node.
        features: Number of features.
        signal: Distance between the means of the classes.
        seed: Seed of all draws.

    Example:
        >>> from credalgnn.graphs import csbm
        >>> csbm(60, classes=3).num_classes
        3
    """
    for name, value, good in (
        ("nodes", nodes, nodes >= 2 * classes),
        ("classes", classes, classes >= 2),
        ("homophily", homophily, 0.0 <= homophily <= 1.0),
        ("degree", degree, nodes * degree / 2 >= 1),
        ("features", features, features >= 1),
        ("signal", signal, signal >= 0),
        ("seed", seed, seed >= 0),
    ):
        if not good:
            raise GraphError(f"csbm: {name} = {value} makes no graph")
    labels, matrix, _ = _contextual(nodes, classes, features, signal, seed)
    rng = np.random.default_rng([seed, 1])
    count = round(nodes * degree / 2)
    same = rng.random(count) < homophily
    source = rng.integers(0, nodes, count)
    order = np.argsort(labels, kind="stable")
    sizes = np.bincount(labels, minlength=classes)
    first = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    label = labels[source]
    # The other end as a position in `order`: some steps ahead within the class, so never the node itself, or outside of
    # the class, before or after it.
    draw = rng.random(count)
    rank = np.empty(nodes, np.int64)
    rank[order] = np.arange(nodes)
    step = 1 + (draw * np.maximum(sizes[label] - 1, 1)).astype(np.int64)
    alike = first[label] + (rank[source] - first[label] + step) % sizes[label]
    jump = (draw * (nodes - sizes[label])).astype(np.int64)
    other = np.where(jump < first[label], jump, jump + sizes[label])
    target = order[np.where(same, alike, other)]
    edges = np.stack([np.concatenate([source, target]), np.concatenate([target, source])])
    return Graph(matrix, edges[:, np.lexsort((edges[1], edges[0]))], labels)


def csbm_posterior(
    nodes: int = 1000,
    classes: int = 4,
    homophily: float = 0.8,
    degree: float = 10.0,
    features: int = 16,
    signal: float = 1.0,
    seed: int = 0,
) -> Tensor:
    """Return the true class probabilities [N, C] given a node's own features, for ``csbm`` with the same arguments.

    Edges, and so homophily and degree, have no influence on it; they do on ``csbm_graph_posterior``.

    Args:
        nodes: Number of nodes.
        classes: Number of classes.
        homophily: Share of edges between nodes of one class.
        degree: Average number of undirected edges at a node.
        features: Number of features.
        signal: Distance between the means of the classes.
        seed: Seed of all draws.
    """
    return torch.from_numpy(feature_scores(nodes, classes, features, signal, seed)).softmax(-1)


def feature_scores(nodes: int, classes: int, features: int, signal: float, seed: int) -> NDArray[np.float64]:
    """Return log-densities [N, C] of each node's features given each class, up to a constant, for ``csbm``."""
    _, matrix, means = _contextual(nodes, classes, features, signal, seed)
    scores: NDArray[np.float64] = -0.5 * ((matrix[:, None, :].astype(np.float64) - means) ** 2).sum(-1)
    return scores


def _contextual(
    nodes: int, classes: int, features: int, signal: float, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.float64]]:
    """Return labels, features and class means; the same for every homophily and degree."""
    rng = np.random.default_rng([seed, 0])
    labels = rng.integers(0, classes, nodes)
    labels[:classes] = np.arange(classes)  # no class is empty
    means = rng.normal(size=(classes, features))
    means *= signal * np.sqrt(2.0) / np.linalg.norm(means, axis=1, keepdims=True)
    matrix = means[labels] + rng.normal(size=(nodes, features))
    return labels, matrix.astype(np.float32), means


DIGITS = Dataset(
    "digits",
    digits,
    ood_classes=(8, 9),
    description="handwritten digits joined to their nearest neighbours (embedded)",
)
CSBM = Dataset(
    "csbm",
    partial(csbm, classes=4),
    ood_classes=(0,),
    description="contextual stochastic block model (generated)",
)
