"""OOD score of nodes for graphs where coverage has no skill, weighted on left-out known classes.

Reads labels of training nodes only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...runtime.memory import let_go
from ...runtime.threads import Threads
from ..inputs import slices
from .descriptions import SIZES, STATISTICS, Array, one_thread
from .model import DECAY, stack

GROUPS = 5  # groups of classes, at most, that are left out one after another
NEAREST = 10  # nearest typical nodes
LEAST = 10  # nodes needed to estimate mean and scale
PER_CLASS = 30  # labels per class, on average, needed to weight the evidence
RIDGE = 0.01  # added to variances of about 1: the two statistics of binary features are equal
CHUNK = 1 << 12  # nodes that are compared at a time


@dataclass(frozen=True, eq=False)
class OODScore:
    """OOD score of nodes between 0 and 1, stacked from three kinds of evidence.

    The entropy of the prediction; minus the log density of feature sum and active features among typical training
    nodes; and the distance of the features two steps away, as a direction, from those of typical training nodes. Which
    of them detect OOD nodes depends on the graph (on some the entropy misleads). The share of OOD nodes is unknown, so
    the level is set such that known nodes score their mean entropy on average.
    """

    typical: Array  # descriptions of training nodes
    centre: Array  # of the evidence over known nodes, [3]
    scale: Array
    weights: Array
    bias: Array  # [1]

    FITTED: ClassVar[tuple[str, ...]] = ("centre", "scale", "weights", "bias")

    @classmethod
    def fit(cls, typical: Array, labels: Array, held_out: Array, entropy: Array, seed: int) -> OODScore | None:
        """Weight the evidence; return None where the entropy alone detects left-out classes as well.

        Args:
            typical: Descriptions of training nodes ``[T, D]``.
            labels: Classes of these nodes ``[T]``.
            held_out: Descriptions of nodes of the same classes that were not trained on ``[V, D]``.
            entropy: Entropy of the predictions for these, at most 1, ``[V]``.
            seed: Seed of the groups and halves.
        """
        from scipy.optimize import brentq

        weights = _weights(typical, labels, seed) if len(held_out) >= LEAST else None
        if weights is None:
            return None
        evidence = _evidence(typical, held_out, entropy)
        centre, scale = _moments(evidence)
        log_odds = weights @ _standardised(evidence, centre, scale)
        level = float(np.clip(entropy.mean(), 1e-6, 1.0 - 1e-6))
        far = float(np.abs(log_odds).max()) + 20.0  # beyond the log-odds of any such level
        bias = brentq(lambda shift: _sigmoid(log_odds + shift).mean() - level, -far, far)
        return cls(typical, centre, scale, weights, np.array([bias]))

    def __call__(self, rows: Array, entropy: Array) -> Array:
        """Return the score of described nodes from their descriptions and the entropies of their predictions."""
        evidence = _standardised(_evidence(self.typical, rows, entropy), self.centre, self.scale)
        return _sigmoid(self.weights @ evidence + self.bias)


def _weights(rows: Array, labels: Array, seed: int) -> Array | None:
    """Weights with which the evidence detects left-out classes; None if the entropy alone suffices.

    Half of the nodes train and the others are tested, then the other way round: each node is OOD once, and known once
    while others are OOD. Akaike's criterion decides whether the entropy needs the other evidence.
    """
    generator = np.random.default_rng(seed)
    classes = int(labels.max()) + 1
    if classes < 3 or len(labels) < PER_CLASS * classes:  # without one of two classes there is nothing to classify
        return None
    groups = min(classes, GROUPS)
    group = generator.permutation(classes)[labels] % groups
    known_with = (group + generator.integers(1, groups, len(group))) % groups
    half = generator.permutation(len(labels)) % 2
    result, is_ood = [], []
    for left_out in range(groups):
        for training in (0, 1):
            train = (half == training) & (group != left_out)
            usual = (half != training) & (group != left_out)
            if len(np.unique(labels[train])) < 2 or usual.sum() < LEAST:
                continue
            with one_thread():
                entropy = _proxy_entropy(rows[train], labels[train], rows)
            evidence = _evidence(rows[train], rows, entropy)
            tested = (half != training) & ((group == left_out) | (known_with == left_out))
            result.append(_standardised(evidence, *_moments(evidence[:, usual]))[:, tested])
            is_ood.append(group[tested] == left_out)
    y = np.concatenate(is_ood).astype(np.int64) if result else np.zeros(0, np.int64)
    if not 0 < y.sum() < len(y):
        return None
    members = np.concatenate(result, 1)
    weights, bias = stack(members, y)
    least_gain = 2.0 * (len(members) - 1)
    if _deviance(members[:1], y, *stack(members[:1], y)) - _deviance(members, y, weights, bias) <= least_gain:
        return None
    return weights


def _sigmoid(log_odds: Array) -> Array:
    probability: Array = 1.0 / (1.0 + np.exp(-log_odds))
    return probability


def _deviance(members: Array, y: Array, weights: Array, bias: float) -> float:
    log_odds = weights @ members + bias
    return float(2.0 * np.sum(np.logaddexp(0.0, log_odds) - y * log_odds))


def _proxy_entropy(rows: Array, labels: Array, queries: Array) -> Array:
    """Entropy of a logistic regression's predictions; a GNN for every left-out group would take too long."""
    from sklearn.linear_model import LogisticRegression

    rows, queries = rows.astype(np.float64), queries.astype(np.float64)
    centre, scale = _moments(rows.T)
    model = LogisticRegression(C=DECAY, max_iter=300).fit((rows - centre) / scale, labels)
    p = model.predict_proba((queries - centre) / scale)
    entropy: Array = -(p * np.log(np.maximum(p, 1e-300))).sum(1) / np.log(p.shape[1])
    return entropy


def _evidence(typical: Array, rows: Array, entropy: Array) -> Array:
    """Evidence that nodes are OOD, ``[3, N]``, higher = more likely."""
    sizes = typical[:, :SIZES].astype(np.float64)
    centre = sizes.mean(0)
    whiten = np.linalg.inv(np.linalg.cholesky(np.cov(sizes.T) + RIDGE * np.eye(SIZES))).T
    points = (sizes - centre) @ whiten
    bandwidth = len(points) ** (-1.0 / (SIZES + 4))  # Scott's rule
    width = (rows.shape[1] - len(STATISTICS)) // 3
    away = slice(len(STATISTICS) + 2 * width, None)
    directions = _directions(typical[:, away])
    nearest = min(NEAREST, len(directions))
    rare, far = np.empty(len(rows)), np.empty(len(rows))
    threads = Threads()

    def compare(part: slice) -> None:
        queries = (rows[part, :SIZES] - centre) @ whiten
        exponent = sum(np.square(queries[:, [k]] - points[:, k]) for k in range(SIZES)) / (-2.0 * bandwidth**2)
        most = exponent.max(1)
        rare[part] = -most - np.log(np.exp(exponent - most[:, None]).mean(1))
        cosine = _directions(rows[part, away]) @ directions.T
        closest = np.partition(cosine, len(directions) - nearest, 1)[:, len(directions) - nearest :]
        far[part] = np.sqrt(np.maximum(2.0 - 2.0 * closest, 0.0)).mean(1)
        let_go(rows)

    with one_thread():
        for _ in threads.map(compare, ((part,) for part in slices(len(rows), CHUNK))):
            pass
    return np.stack([entropy, rare, far])


def _directions(rows: Array) -> Array:
    rows = rows.astype(np.float64)
    directions: Array = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    return directions


def _moments(evidence: Array) -> tuple[Array, Array]:
    """Mean and standard deviation of each row, 1 for constant rows."""
    scale = evidence.std(1)
    return evidence.mean(1), np.where(scale > 1e-9, scale, 1.0)


def _standardised(evidence: Array, centre: Array, scale: Array) -> Array:
    """Standardise with a logarithmic tail: outliers keep their order but do not dominate."""
    z: Array = np.arcsinh((evidence - centre[:, None]) / scale[:, None])
    return z
