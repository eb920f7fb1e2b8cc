"""How strange a node is, for where coverage has nothing to say: weighed by pretending that known classes are strangers.

Labels of training nodes are read, and no others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...runtime.memory import let_go
from ..chunks import slices
from ..jobs import Threads
from .descriptions import SIZES, STATISTICS, Array
from .learners import DECAY, stack
from .one_thread import one_thread

GROUPS = 5  # of classes, at the most, that are pretended to be strangers one after another
NEAREST = 10  # typical nodes whose distance counts
LEAST = 10  # nodes that it takes to say what is usual
PER_CLASS = 30  # labels of a class, on average, below which pretended strangers say too little
RIDGE = 0.01  # added to variances of about 1: the two statistics of binary features are equal
CHUNK = 1 << 12  # nodes that are compared at a time


@dataclass(frozen=True, eq=False)
class Strangeness:
    """How strange nodes are, between 0 and 1, by three kinds of evidence.

    The entropy of its prediction; minus the log density of its feature sum and active features among typical training
    nodes; and how far the features two steps away are, as a direction, from those of typical training nodes. Which of
    them tell strangers depends on the graph (on some the entropy misleads), so they are stacked. How many strangers
    will come nobody knows: known nodes are on average as strange as their entropy is large.
    """

    typical: Array  # descriptions of training nodes
    centre: Array  # of the evidence over known nodes, [3]
    scale: Array
    weights: Array
    bias: Array  # [1]

    FITTED: ClassVar[tuple[str, ...]] = ("centre", "scale", "weights", "bias")

    @classmethod
    def fit(cls, typical: Array, labels: Array, known: Array, entropy: Array, seed: int) -> Strangeness | None:
        """Weigh the evidence; None where the entropy alone explains pretended strangers as well.

        Args:
            typical: Descriptions of training nodes ``[T, D]``.
            labels: Their classes ``[T]``.
            known: Descriptions of nodes of the same classes that were not trained on ``[V, D]``.
            entropy: Of the predictions for these, 1 at most ``[V]``.
            seed: Of the groups and halves.
        """
        from scipy.optimize import brentq

        weights = _pretend(typical, labels, seed) if len(known) >= LEAST else None
        if weights is None:
            return None
        evidence = _evidence(typical, known, entropy)
        centre, scale = _usual(evidence)
        log_odds = weights @ _standardised(evidence, centre, scale)
        level = float(np.clip(entropy.mean(), 1e-6, 1.0 - 1e-6))
        far = float(np.abs(log_odds).max()) + 20.0  # beyond the log-odds of any such level
        bias = brentq(lambda shift: _sigmoid(log_odds + shift).mean() - level, -far, far)
        return cls(typical, centre, scale, weights, np.array([bias]))

    def __call__(self, rows: Array, entropy: Array) -> Array:
        """Of described nodes, with the entropies of their predictions."""
        evidence = _standardised(_evidence(self.typical, rows, entropy), self.centre, self.scale)
        return _sigmoid(self.weights @ evidence + self.bias)


def _pretend(rows: Array, labels: Array, seed: int) -> Array | None:
    """Weights with which the evidence tells classes that it was learnt without; None: the entropy will do.

    Half of the nodes teach and the others are judged, then the other way round: each is a stranger once, and once it is
    known while others are strangers. Akaike's criterion decides whether the entropy needs the other evidence.
    """
    generator = np.random.default_rng(seed)
    classes = int(labels.max()) + 1
    if classes < 3 or len(labels) < PER_CLASS * classes:  # without one of two classes there is nothing to classify
        return None
    groups = min(classes, GROUPS)
    group = generator.permutation(classes)[labels] % groups
    known_with = (group + generator.integers(1, groups, len(group))) % groups
    half = generator.permutation(len(labels)) % 2
    result, strangers = [], []
    for stranger in range(groups):
        for teaching in (0, 1):
            taught = (half == teaching) & (group != stranger)
            usual = (half != teaching) & (group != stranger)
            if len(np.unique(labels[taught])) < 2 or usual.sum() < LEAST:
                continue
            with one_thread():
                entropy = _proxy_entropy(rows[taught], labels[taught], rows)
            evidence = _evidence(rows[taught], rows, entropy)
            judged = (half != teaching) & ((group == stranger) | (known_with == stranger))
            result.append(_standardised(evidence, *_usual(evidence[:, usual]))[:, judged])
            strangers.append(group[judged] == stranger)
    y = np.concatenate(strangers).astype(np.int64) if result else np.zeros(0, np.int64)
    if not 0 < y.sum() < len(y):
        return None
    members = np.concatenate(result, 1)
    weights, bias = stack(members, y)
    needed = 2.0 * (len(members) - 1)
    if _deviance(members[:1], y, *stack(members[:1], y)) - _deviance(members, y, weights, bias) <= needed:
        return None
    return weights


def _sigmoid(log_odds: Array) -> Array:
    probability: Array = 1.0 / (1.0 + np.exp(-log_odds))
    return probability


def _deviance(members: Array, y: Array, weights: Array, bias: float) -> float:
    log_odds = weights @ members + bias
    return float(2.0 * np.sum(np.logaddexp(0.0, log_odds) - y * log_odds))


def _proxy_entropy(rows: Array, labels: Array, asked: Array) -> Array:
    """Of a logistic regression's predictions: a GNN for every pretence would take too long."""
    from sklearn.linear_model import LogisticRegression

    rows, asked = rows.astype(np.float64), asked.astype(np.float64)
    centre, scale = _usual(rows.T)
    model = LogisticRegression(C=DECAY, max_iter=300).fit((rows - centre) / scale, labels)
    p = model.predict_proba((asked - centre) / scale)
    entropy: Array = -(p * np.log(np.maximum(p, 1e-300))).sum(1) / np.log(p.shape[1])
    return entropy


def _evidence(typical: Array, rows: Array, entropy: Array) -> Array:
    """What may make nodes strange, ``[3, N]``; the larger the stranger."""
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
        own = (rows[part, :SIZES] - centre) @ whiten
        exponent = sum(np.square(own[:, [k]] - points[:, k]) for k in range(SIZES)) / (-2.0 * bandwidth**2)
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


def _usual(evidence: Array) -> tuple[Array, Array]:
    """Mean and standard deviation of each row; 1 for those that do not vary."""
    scale = evidence.std(1)
    return evidence.mean(1), np.where(scale > 1e-9, scale, 1.0)


def _standardised(evidence: Array, centre: Array, scale: Array) -> Array:
    """Outliers count by the logarithm of their distance: still in order, but no longer all that counts."""
    z: Array = np.arcsinh((evidence - centre[:, None]) / scale[:, None])
    return z
