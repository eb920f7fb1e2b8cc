"""Slow, naive references for layers, losses and detectors, in NumPy float64, from the original definitions.

Nothing here shares code with the package or uses torch: graphs are dense matrices filled edge by edge, scores are loops
over nodes, gradients are written out by hand. Entropies are in bits; higher scores mean more uncertain.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Decimal
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from oracles import Bounds, naive_interval_softmax

Array = NDArray[np.float64]


def _array(value: ArrayLike) -> Array:
    return np.asarray(value, dtype=np.float64)


# Scores of logits and probabilities


def softmax(logits: ArrayLike) -> Array:
    """exp over the sum of exps, row by row."""
    rows = []
    for row in _array(logits):
        powers = np.array([math.exp(a - max(row)) for a in row])
        rows.append(powers / powers.sum())
    return np.array(rows)


def bits(p: ArrayLike) -> float:
    """Shannon entropy of one distribution."""
    return -sum(x * math.log2(x) for x in _array(p) if x > 0)


def msp(logits: ArrayLike) -> Array:
    """One minus the maximum softmax probability (Hendrycks and Gimpel 2017)."""
    return np.array([1.0 - max(p) for p in softmax(logits)])


def entropy(logits: ArrayLike) -> Array:
    """Entropy of the softmax."""
    return np.array([bits(p) for p in softmax(logits)])


def energy(logits: ArrayLike, temperature: float = 1.0) -> Array:
    """-T log sum_k exp(f_k / T) (Liu et al. 2020); in distribution it is low."""
    result = []
    for row in _array(logits):
        top = max(row)
        result.append(-(top + temperature * math.log(sum(math.exp((a - top) / temperature) for a in row))))
    return np.array(result)


def propagate(values: ArrayLike, edge_index: ArrayLike, alpha: float, steps: int) -> Array:
    """Belief propagation of GNNSafe (Wu et al. 2023): e <- alpha e + (1 - alpha) D^-1 A e, ``steps`` times.

    A node nobody points to has no neighbours to average and keeps what it has.
    """
    current = _array(values).copy()
    edges = np.asarray(edge_index).T
    for _ in range(steps):
        heard: list[list[float]] = [[] for _ in current]
        for source, target in edges:
            heard[target].append(float(current[source]))
        for node, values_around in enumerate(heard):
            if values_around:
                current[node] = alpha * current[node] + (1.0 - alpha) * sum(values_around) / len(values_around)
    return current


def odin(logits: ArrayLike, temperature: float) -> Array:
    """Minus the maximum softmax probability at a temperature (Liang et al. 2018)."""
    return np.array([-max(p) for p in softmax(_array(logits) / temperature)])


class Decomposition(NamedTuple):
    """Total, aleatoric and epistemic uncertainty of an ensemble."""

    total: Array
    aleatoric: Array
    epistemic: Array


def decompose(members: ArrayLike) -> Decomposition:
    """Members [M, N, C]: entropy of the mean, mean of the entropies, and the difference."""
    inputs = _array(members)
    total = np.array([bits(sum(member[n] for member in inputs) / len(inputs)) for n in range(inputs.shape[1])])
    aleatoric = np.array([sum(bits(member[n]) for member in inputs) / len(inputs) for n in range(inputs.shape[1])])
    return Decomposition(total, aleatoric, total - aleatoric)


# Scores of latents


class Gaussians(NamedTuple):
    """Class means [C, D] and the (pseudo-)inverse of the covariance that all classes share."""

    means: Array
    precision: Array


def fit_gaussians(latents: ArrayLike, labels: ArrayLike, classes: int) -> Gaussians:
    """Class-conditional Gaussians with a tied covariance (Lee et al. 2018), divided by the number of nodes.

    The inverse is that of Moore and Penrose: directions with (almost) no variance count for nothing.
    """
    points, inputs = _array(latents), np.asarray(labels)
    means = np.array([points[inputs == k].mean(axis=0) for k in range(classes)])
    covariance = np.zeros((points.shape[1], points.shape[1]))
    for point, label in zip(points, inputs, strict=True):
        covariance += np.outer(point - means[label], point - means[label])
    covariance /= len(points)
    u, s, vt = np.linalg.svd(covariance)
    retained = s > len(s) * np.finfo(np.float32).eps * s.max()
    return Gaussians(means, (vt[retained].T / s[retained]) @ u[:, retained].T)


def nearest_gaussian(gaussians: Gaussians, latents: ArrayLike) -> tuple[Array, NDArray[np.int64]]:
    """The smallest squared Mahalanobis distance of each point, and to which class."""
    distance, which = [], []
    for point in _array(latents):
        each = [float((point - mean) @ gaussians.precision @ (point - mean)) for mean in gaussians.means]
        distance.append(min(each))
        which.append(int(np.argmin(each)))
    return np.array(distance), np.array(which)


def knn(train: ArrayLike, queries: ArrayLike, k: int, kth: bool = False, normalize: bool = False) -> Array:
    """Mean Euclidean distance to the k nearest training points, or the distance to the k-th (Sun et al. 2022)."""
    base, query = _array(train), _array(queries)
    if normalize:
        base, query = _unit(base), _unit(query)
    result = []
    for point in query:
        near = sorted(math.dist(point, other) for other in base)[:k]
        result.append(near[-1] if kth else sum(near) / k)
    return np.array(result)


def _unit(points: Array) -> Array:
    """Each row scaled to length 1; a row of zeros has no direction and stays."""
    return np.array([p / math.hypot(*p) if any(p) else p for p in points])


# The credal head and its loss


def credal_logits(
    weight: ArrayLike, bias: ArrayLike, z: ArrayLike, midpoint: str = "identity", half_length: str = "softplus"
) -> Bounds:
    """Equation 2: [m - h, m + h] with m = g(W z + b) from the first half of the rows and h = g'(W' z + b')."""
    shapes = {
        "identity": lambda a: a,
        "softplus": lambda a: max(a, 0.0) + math.log1p(math.exp(-abs(a))),
        "sigmoid": lambda a: 1.0 / (1.0 + math.exp(-a)),
    }
    rows, offsets = _array(weight), _array(bias)
    classes = len(rows) // 2
    lower, upper = [], []
    for point in _array(z):
        m = [shapes[midpoint](rows[c] @ point + offsets[c]) for c in range(classes)]
        h = [shapes[half_length](rows[c] @ point + offsets[c]) for c in range(classes, 2 * classes)]
        lower.append([a - b for a, b in zip(m, h, strict=True)])
        upper.append([a + b for a, b in zip(m, h, strict=True)])
    return np.array(lower), np.array(upper)


def credal_bounds(
    weight: ArrayLike, bias: ArrayLike, z: ArrayLike, midpoint: str = "identity", half_length: str = "softplus"
) -> Bounds:
    """Equations 2 and 3: the lower and upper probabilities of each node."""
    return naive_interval_softmax(*credal_logits(weight, bias, z, midpoint, half_length))


def worst(delta: float, nodes: int) -> int:
    """How many nodes are the worst share ``delta``: counted in decimals, as a person reads 0.29 of 100; never none."""
    return max(1, int((Decimal(str(delta)) * nodes).to_integral_value(ROUND_FLOOR)))


class Loss(NamedTuple):
    """A loss and its gradients."""

    value: float
    lower: Array
    upper: Array


def dro_loss(log_lower: ArrayLike, log_upper: ArrayLike, target: ArrayLike, delta: float) -> Loss:
    """Equation "loss": mean CE of q_U over all nodes, plus mean CE of q_L over the worst share ``delta`` of them."""
    low, up, y = _array(log_lower), _array(log_upper), np.asarray(target)
    nodes = len(y)
    optimistic = [-up[n, y[n]] for n in range(nodes)]
    pessimistic = [-low[n, y[n]] for n in range(nodes)]
    k = worst(delta, nodes)
    hardest = sorted(range(nodes), key=lambda n: pessimistic[n], reverse=True)[:k]
    to_lower, to_upper = np.zeros_like(low), np.zeros_like(up)
    for n in range(nodes):
        to_upper[n, y[n]] = -1.0 / nodes
    for n in hardest:
        to_lower[n, y[n]] = -1.0 / k
    return Loss(sum(optimistic) / nodes + sum(pessimistic[n] for n in hardest) / k, to_lower, to_upper)


# Networks


def gcn_matrix(edge_index: ArrayLike, nodes: int) -> Array:
    """D^-1/2 (A + I) D^-1/2, A[target, source] (Kipf and Welling 2017): each node has one loop, of weight 1."""
    a = np.eye(nodes)
    for source, target in np.asarray(edge_index).T:
        if source != target:
            a[target, source] += 1.0
    degree = a.sum(axis=1)
    return np.array([[a[i, j] / math.sqrt(degree[i] * degree[j]) for j in range(nodes)] for i in range(nodes)])


def mean_matrix(edge_index: ArrayLike, nodes: int) -> Array:
    """The average over in-neighbours, edges counted as often as they stand there; zero for nodes without any."""
    a = np.zeros((nodes, nodes))
    for source, target in np.asarray(edge_index).T:
        a[target, source] += 1.0
    for row in a:
        if row.sum() > 0:
            row /= row.sum()
    return a


@dataclass(frozen=True)
class Layer:
    """relu(A x through_edges^T + x own^T + bias): a GCN layer has no own part, a SAGE layer both."""

    through_edges: Array
    own: Array
    bias: Array


@dataclass(frozen=True)
class Network:
    """A GCN or a SAGE with mean aggregation, with dense matrices, and a linear head on its last latent."""

    matrix: Array
    layers: tuple[Layer, ...]
    weight: Array
    bias: Array

    @classmethod
    def from_weights(
        cls, kind: str, weights: Mapping[str, ArrayLike], weight: ArrayLike, bias: ArrayLike, edges: ArrayLike, n: int
    ) -> Network:
        """From a state as PyG names it: ``convs.0.lin.weight`` and ``convs.0.bias``, or lin_l and lin_r."""
        inputs = {name: _array(value) for name, value in weights.items()}
        layers = []
        for number in range(sum(name.endswith(("lin.weight", "lin_r.weight")) for name in inputs)):
            conv = f"convs.{number}."
            if kind == "gcn":
                through = inputs[conv + "lin.weight"]
                layers.append(Layer(through, np.zeros_like(through), inputs[conv + "bias"]))
            else:
                through = inputs[conv + "lin_l.weight"]
                layers.append(Layer(through, inputs[conv + "lin_r.weight"], inputs[conv + "lin_l.bias"]))
        matrix = gcn_matrix(edges, n) if kind == "gcn" else mean_matrix(edges, n)
        return cls(matrix, tuple(layers), _array(weight), _array(bias))

    def latents(self, x: ArrayLike) -> list[Array]:
        """[z0, z1, .., zL]: the features and what comes out of each layer's ReLU."""
        result = [_array(x)]
        for layer in self.layers:
            z = result[-1]
            a = self.matrix @ z @ layer.through_edges.T + z @ layer.own.T + layer.bias
            result.append(np.where(a > 0, a, 0.0))
        return result

    def logits(self, x: ArrayLike) -> Array:
        return self.latents(x)[-1] @ self.weight.T + self.bias

    def gradient(self, x: ArrayLike, latent: int, arriving: Array) -> Array:
        """The gradient with respect to x of a function of one latent whose gradient there is ``arriving``."""
        z = self.latents(x)
        for number in range(latent, 0, -1):
            layer = self.layers[number - 1]
            through_relu = np.where(z[number] > 0, arriving, 0.0)
            arriving = self.matrix.T @ through_relu @ layer.through_edges + through_relu @ layer.own
        return arriving

    def odin(self, x: ArrayLike, temperature: float, epsilon: float) -> Array:
        """ODIN: features moved by epsilon towards a larger maximum probability, then the score at the temperature."""
        p = softmax(self.logits(x) / temperature)
        top = np.zeros_like(p)
        for row, best in enumerate(p.argmax(axis=1)):
            top[row, best] = 1.0
        at_logits = (top - p) / temperature  # of log p_max, row by row
        slope = self.gradient(x, len(self.layers), at_logits @ self.weight)
        return odin(self.logits(_array(x) + epsilon * np.sign(slope)), temperature)

    def mahalanobis(self, x: ArrayLike, train: ArrayLike, labels: ArrayLike, latent: int, epsilon: float) -> Array:
        """Mahalanobis: features moved by epsilon towards a smaller distance, then the distance."""
        z = self.latents(x)[latent]
        classes = int(np.max(labels)) + 1
        gaussians = fit_gaussians(z[np.asarray(train)], labels, classes)
        _, which = nearest_gaussian(gaussians, z)
        at_latent = np.array([-2.0 * gaussians.precision @ (z[n] - gaussians.means[c]) for n, c in enumerate(which)])
        slope = self.gradient(x, latent, at_latent)
        moved = self.latents(_array(x) + epsilon * np.sign(slope))[latent]
        return nearest_gaussian(gaussians, moved)[0]
