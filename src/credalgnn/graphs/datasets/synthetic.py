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
    """Scikit-learn's 1,797 handwritten digits, each joined in both directions to its nearest neighbours by pixels.

    Distances are whole numbers, and ties go to the smaller index: the graph is the same on every machine.

    Args:
        neighbours: How many nearest neighbours each is joined to.
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
    """Contextual stochastic block model: classes known, edges and features drawn given the classes.

    A node's class is uniform. Its features are normal with unit variance around the class's mean, a random direction of
    length ``signal`` times sqrt(2). Of ``nodes * degree / 2`` undirected edges a share ``homophily`` joins nodes of one
    class, the others nodes of two; both ends uniform. ``csbm_posterior`` has what a node's own features can tell of its
    class, ``csbm_graph_posterior`` what all features, edges and known labels can.

    Args:
        nodes: How many nodes.
        classes: How many classes.
        homophily: The share of edges between nodes of one class.
        degree: The average number of undirected edges at a node.
        features: How many features.
        signal: How far apart the means of the classes are.
        seed: Of all that is drawn.
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
    own = labels[source]
    # The other end, as a position in ``order``: some steps on among the nodes of the same class, so never oneself, or a
    # node of the others, whose positions lie before and after those of the own class.
    draw = rng.random(count)
    rank = np.empty(nodes, np.int64)
    rank[order] = np.arange(nodes)
    step = 1 + (draw * np.maximum(sizes[own] - 1, 1)).astype(np.int64)
    alike = first[own] + (rank[source] - first[own] + step) % sizes[own]
    jump = (draw * (nodes - sizes[own])).astype(np.int64)
    other = np.where(jump < first[own], jump, jump + sizes[own])
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
    """The true probability [N, C] of each class given a node's own features, for ``csbm`` with the same arguments.

    The edges, and so homophily and degree, play no part in it; in ``csbm_graph_posterior`` they do.

    Args:
        nodes: How many nodes.
        classes: How many classes.
        homophily: The share of edges between nodes of one class.
        degree: The average number of undirected edges at a node.
        features: How many features.
        signal: How far apart the means of the classes are.
        seed: Of all that is drawn.
    """
    return torch.from_numpy(feature_scores(nodes, classes, features, signal, seed)).softmax(-1)


def feature_scores(nodes: int, classes: int, features: int, signal: float, seed: int) -> NDArray[np.float64]:
    """Log-densities [N, C] of each node's features given each class, up to a constant, for ``csbm``.

    Args:
        nodes: How many nodes.
        classes: How many classes.
        features: How many features.
        signal: How far apart the means of the classes are.
        seed: Of all that is drawn.
    """
    _, matrix, means = _contextual(nodes, classes, features, signal, seed)
    scores: NDArray[np.float64] = -0.5 * ((matrix[:, None, :].astype(np.float64) - means) ** 2).sum(-1)
    return scores


def _contextual(
    nodes: int, classes: int, features: int, signal: float, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.float64]]:
    """Labels, features and class means; the same for every homophily and degree."""
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
