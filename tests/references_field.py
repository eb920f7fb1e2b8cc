"""Slow, naive references for methods of other papers, in NumPy float64, from the original definitions.

As ``references``: loops over nodes, dense matrices, nothing shared with the package. Higher scores mean more uncertain.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import digamma, gammaln

from references import energy, gcn_matrix, knn, softmax

Array = NDArray[np.float64]


def _array(value: ArrayLike) -> Array:
    return np.asarray(value, dtype=np.float64)


# Joint latent density estimation


def principal_components(train: ArrayLike, points: ArrayLike, dimensions: int) -> Array:
    """Coordinates of points along the directions in which the training points vary most, by a full SVD."""
    base = _array(train)
    mean = base.mean(axis=0)
    _, s, vt = np.linalg.svd(base - mean, full_matrices=False)
    retained = [row for row, value in zip(vt, s, strict=True) if value > 1e-6 * s[0]][:dimensions]
    return np.array([[row @ (point - mean) for row in retained] for point in _array(points)])


def jlde(latents: list[Array], train: ArrayLike, dimensions: int, k: int) -> Array:
    """Mean distance to the k nearest training nodes in the joint space of each layer's principal components."""
    known = np.asarray(train)
    joint = np.concatenate([principal_components(z[known], z, dimensions) for z in latents], axis=1)
    return knn(joint[known], joint, k)


# Graph energy-based model


def diffuse(values: ArrayLike, edge_index: ArrayLike, alpha: float, steps: int) -> Array:
    """x <- alpha x + (1 - alpha) mean over the node itself and its in-neighbours."""
    current = _array(values).copy()
    for _ in range(steps):
        heard: list[list[Array]] = [[row.copy()] for row in current]
        for source, target in np.asarray(edge_index).T:
            if source != target:
                heard[target].append(current[source].copy())
        for node, around in enumerate(heard):
            current[node] = alpha * around[0] + (1.0 - alpha) * sum(around) / len(around)
    return current


def middle(values: Array) -> tuple[float, float]:
    """The smallest and largest of the middle 95 % of some numbers."""
    inner = sorted(values)[int(0.025 * len(values)) : int(0.975 * len(values))]
    return inner[0], inner[-1]


def gebm(
    logits: ArrayLike,
    latents: ArrayLike,
    alone: tuple[ArrayLike, ArrayLike],
    train: ArrayLike,
    labels: ArrayLike,
    edge_index: ArrayLike,
    weight: float,
    alpha: float,
    steps: int,
    aggregation: str,
) -> Array:
    """Energies of a node alone, of its neighbours, and of its neighbours' evidence, with a Gaussian for each class.

    What is fitted are logits and latents on the graph, what is scored are those of nodes with no neighbour but
    themselves (``alone``).
    """
    scores, points, known, inputs = _array(logits), _array(latents), np.asarray(train), np.asarray(labels)
    own_scores, own_points = _array(alone[0]), _array(alone[1])
    floor = 1e-3 * points[known].var(axis=0).mean()
    evidence = np.zeros_like(scores)
    for c in range(scores.shape[1]):
        entries = points[known][inputs == c]
        mean, variance = entries.mean(axis=0), np.maximum(entries.var(axis=0), floor)
        distance, own_distance = (
            np.array([sum((point - mean) ** 2 / variance) for point in some]) for some in (points, own_points)
        )
        (near, far), (low, high) = middle(distance), middle(scores[:, c])
        evidence[:, c] = own_scores[:, c] - weight * ((own_distance - near) / (far - near) * (high - low) + low)
    independent = energy(evidence)
    local = diffuse(independent[:, None], edge_index, alpha, steps)[:, 0]
    group = energy(diffuse(evidence, edge_index, alpha, steps))
    scales = zip(independent, local, group, strict=True)
    if aggregation == "sum":
        return np.array([sum(each) for each in scales])
    return np.array([math.log(sum(math.exp(value) for value in each)) for each in scales])


# GRASP


def grasp(
    logits: ArrayLike,
    edge_index: ArrayLike,
    train: ArrayLike,
    percentile: float,
    share: float,
    alpha: float,
    steps: int,
) -> Array:
    """One less the largest probability, after random-walk steps on the graph with a clique of training nodes added."""
    confidence = softmax(logits).max(axis=1)
    known = np.asarray(train)
    nodes = len(confidence)
    a = np.zeros((nodes, nodes))
    for source, target in np.asarray(edge_index).T:
        a[source, target] = a[target, source] = 1.0
    others = [n for n in range(nodes) if n not in known]
    low, high = np.percentile(confidence[others], [percentile, 100 - percentile])
    ratio = []
    for i in known:
        near = [j for j in others if a[i, j]]
        ratio.append(sum(confidence[j] > high for j in near) / (sum(confidence[j] < low for j in near) + 1))
    order = sorted(range(len(known)), key=lambda place: -ratio[place])  # stable
    chosen = known[order[: int(share * len(known))]]
    for i in chosen:
        for j in chosen:
            a[i, j] += 1.0
    current = 1.0 - confidence
    for _ in range(steps):
        mean = np.array([a[n] @ current / a[n].sum() if a[n].any() else current[n] for n in range(nodes)])
        current = np.array(
            [alpha * current[n] + (1 - alpha) * mean[n] if a[n].any() else current[n] for n in range(nodes)]
        )
    return current


# Graph posterior network


def softplus(a: float) -> float:
    return max(a, 0.0) + math.log1p(math.exp(-abs(a)))


def radial_map(point: Array, centres: Array, alphas: Array, betas: Array) -> Array:
    """One class's flow: layer by layer away from a centre, or towards it (Rezende and Mohamed 2015)."""
    for centre, a, b in zip(centres, alphas, betas, strict=True):
        alpha = softplus(a)
        beta = -alpha + softplus(b)
        point = point + beta / (alpha + math.dist(point, centre)) * (point - centre)
    return point


def log_density(point: Array, to_normal: Callable[[Array], Array]) -> float:
    """Of a standard normal behind an invertible map, with the map's Jacobian by central differences."""
    step, size = 1e-5, len(point)
    columns = [(to_normal(point + step * e) - to_normal(point - step * e)) / (2 * step) for e in np.eye(size)]
    seen = to_normal(point)
    return float(-0.5 * seen @ seen - 0.5 * size * math.log(2 * math.pi) + np.linalg.slogdet(np.array(columns))[1])


def gpn_evidence(
    x: ArrayLike,
    edge_index: ArrayLike,
    weights: Mapping[str, ArrayLike],
    counts: ArrayLike,
    teleport: float,
    steps: int,
) -> Array:
    """Evidence of an encoder with one hidden layer, after PageRank by repeated multiplication with a dense matrix."""
    inputs = {name: _array(value) for name, value in weights.items()}
    hidden = np.maximum(_array(x) @ inputs["backbone.convs.0.lin.weight"].T + inputs["backbone.convs.0.lin.bias"], 0)
    z = hidden @ inputs["head.lin.weight"].T + inputs["head.lin.bias"]
    centres, alphas, betas = (inputs[f"head.flows.{name}"] for name in ("centres", "alphas", "betas"))
    prior = _array(counts) / np.sum(counts)
    entries = np.zeros((len(z), len(prior)))
    for n, point in enumerate(z):
        for c, p in enumerate(prior):
            log_p = log_density(point, lambda at, c=c: radial_map(at, centres[:, c], alphas[:, c], betas[:, c]))
            scaled = log_p + math.log(p) + 0.5 * z.shape[1] * math.log(4 * math.pi)
            entries[n, c] = math.exp(min(max(scaled, -30.0), 30.0))
    matrix = gcn_matrix(edge_index, len(z))
    current = entries
    for _ in range(steps):
        current = (1 - teleport) * matrix @ current + teleport * entries
    return current


def gpn_loss(alpha: ArrayLike, labels: ArrayLike, entropy_weight: float) -> float:
    """Expected cross entropy less the weighted entropy of the Dirichlet distributions, summed over nodes."""
    total = 0.0
    for a, y in zip(_array(alpha), np.asarray(labels), strict=True):
        a0 = a.sum()
        log_beta = gammaln(a).sum() - gammaln(a0)
        entropy = log_beta + (a0 - len(a)) * digamma(a0) - sum((v - 1) * digamma(v) for v in a)
        total += digamma(a0) - digamma(a[y]) - entropy_weight * entropy
    return float(total)


# Kernel-based Dirichlet evidence


def kernel_evidence(
    edge_index: ArrayLike, nodes: int, train: ArrayLike, labels: ArrayLike, classes: int, bandwidth: float
) -> Array:
    """A Gaussian kernel of shortest paths to the training nodes of each class, one search after the other."""
    near: list[set[int]] = [set() for _ in range(nodes)]
    for source, target in np.asarray(edge_index).T:
        near[source].add(int(target))
        near[target].add(int(source))
    result = np.zeros((nodes, classes))
    for start, label in zip(np.asarray(train), np.asarray(labels), strict=True):
        distance, layer, seen = 0, {int(start)}, {int(start)}
        while layer:
            for node in layer:
                scaled = distance / bandwidth
                result[node, label] += math.exp(-scaled * scaled / 2) / (bandwidth * math.sqrt(2 * math.pi))
            layer = {other for node in layer for other in near[node]} - seen
            seen |= layer
            distance += 1
    return result


def squared_risk(alpha: ArrayLike, labels: ArrayLike) -> Array:
    """The expected squared error under a Dirichlet distribution, by its mean and variance."""
    result = []
    for a, y in zip(_array(alpha), np.asarray(labels), strict=True):
        a0 = a.sum()
        mean, variance = a / a0, a * (a0 - a) / (a0 * a0 * (a0 + 1))
        result.append(sum((float(c == y) - mean[c]) ** 2 + variance[c] for c in range(len(a))))
    return np.array(result)


def dirichlet_divergence(alpha: ArrayLike, prior: ArrayLike) -> Array:
    """KL divergence as the difference of cross entropy and entropy, E[log p(x; alpha)] - E[log p(x; prior)]."""
    result = []
    for a, b in zip(_array(alpha), _array(prior), strict=True):
        mean_log = digamma(a) - digamma(a.sum())
        log_p = [gammaln(v.sum()) - gammaln(v).sum() + sum((v - 1) * mean_log) for v in (a, b)]
        result.append(log_p[0] - log_p[1])
    return np.array(result)


def dissonance(alpha: ArrayLike) -> Array:
    """Of belief masses (alpha - 1) / alpha_0, as Josang et al. 2018 define it."""
    result = []
    for a in _array(alpha):
        b = (a - 1) / a.sum()
        total = 0.0
        for c in range(len(b)):
            others = [j for j in range(len(b)) if j != c]
            if sum(b[j] for j in others) == 0:
                continue
            balance = [1 - abs(b[j] - b[c]) / (b[j] + b[c]) if b[j] * b[c] != 0 else 0.0 for j in others]
            weighed = sum(b[j] * bal for j, bal in zip(others, balance, strict=True))
            total += b[c] * weighed / sum(b[j] for j in others)
        result.append(total)
    return np.array(result)


# Random sets


def masses(beliefs: Mapping[frozenset[int], float]) -> dict[frozenset[int], float]:
    """What is believed of a set and of none of its subsets alone, by recursion from the smallest."""
    result: dict[frozenset[int], float] = {}
    for members in sorted(beliefs, key=len):
        result[members] = beliefs[members] - sum(mass for inner, mass in result.items() if inner < members)
    return result


class RandomSet(NamedTuple):
    """What a belief function says of each class."""

    pignistic: Array
    belief: Array
    plausibility: Array


def random_set(beliefs: Mapping[frozenset[int], float], classes: int) -> RandomSet:
    """Of masses that are cut at 0 and filled up to 1 with the set of all classes, or else scaled to the sum 1."""
    mass = {members: max(0.0, value) for members, value in masses(beliefs).items()}
    total = sum(mass.values())
    whole = frozenset(range(classes))
    if total < 1:
        mass[whole] = mass.get(whole, 0.0) + 1 - total
    else:
        mass = {members: value / total for members, value in mass.items()}
    by_class = [[(members, value) for members, value in mass.items() if c in members] for c in range(classes)]
    return RandomSet(
        np.array([sum(value / len(members) for members, value in sets) for sets in by_class]),
        np.array([mass.get(frozenset([c]), 0.0) for c in range(classes)]),
        np.array([sum(value for _, value in sets) for sets in by_class]),
    )


def set_diameters(distances: ArrayLike, classes: int) -> list[tuple[float, int]]:
    """Largest distance inside each set of two classes or more, but that of all, and its size; in rising order."""
    inputs = _array(distances)
    return sorted(
        (max(inputs[a, b] for a, b in combinations(members, 2)), size)
        for size in range(2, classes)
        for members in combinations(range(classes), size)
    )
