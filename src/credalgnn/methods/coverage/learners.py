"""The classifiers of labelled against other nodes, kept as plain arrays: no pickle is written or read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..chunks import slices

Array: TypeAlias = NDArray[Any]

TREES = 100
LEAF = 5  # training nodes in a leaf at least
ROWS_A_TREE = 5_000  # so that the time does not grow with the graph
DECAY = 0.1  # inverse strength of the logistic regression's L2 penalty
STACKED = 1 << 20  # nodes whose loss is summed at a time
CHUNK = 1 << 16  # nodes that go through the trees at a time
LIMIT = 1e-4  # no estimate is surer than this


def logit(p: Array) -> Array:
    """The logarithm of the odds, of probabilities no closer to 0 and 1 than ``LIMIT``."""
    p = np.clip(p, LIMIT, 1.0 - LIMIT)
    return np.log(p) - np.log1p(-p)


@dataclass(frozen=True, eq=False)
class Forest:
    """Extremely randomised trees (Geurts et al. 2006) on bootstrap samples; the arrays of all trees one after another.

    ``left`` and ``right`` are numbers of nodes in these arrays; a leaf is its own child. ``value`` is the share of
    labelled training nodes.
    """

    roots: Array
    feature: Array
    threshold: Array
    left: Array
    right: Array
    value: Array

    FIELDS: ClassVar[tuple[str, ...]] = ("roots", "feature", "threshold", "left", "right", "value")

    @classmethod
    def fit(cls, rows: Array, labelled: Array, seed: int) -> Forest:
        from sklearn.ensemble import ExtraTreesClassifier

        forest = ExtraTreesClassifier(
            TREES, min_samples_leaf=LEAF, bootstrap=True, max_samples=min(ROWS_A_TREE, len(rows)), random_state=seed
        ).fit(rows, labelled)
        trees = [one.tree_ for one in forest.estimators_]
        sizes = [tree.node_count for tree in trees]
        roots = np.cumsum([0, *sizes[:-1]])
        arrays: dict[str, list[Array]] = {name: [] for name in cls.FIELDS[1:]}
        for root, tree in zip(roots, trees, strict=True):
            inner = tree.children_left >= 0
            own = np.arange(tree.node_count)
            arrays["feature"].append(np.where(inner, tree.feature, 0))
            arrays["threshold"].append(np.where(inner, tree.threshold, 0.0))
            for name, children in (("left", tree.children_left), ("right", tree.children_right)):
                arrays[name].append(np.where(inner, children, own) + root)
            counts = tree.value[:, 0, :]
            arrays["value"].append(counts[:, -1] / counts.sum(1) if counts.shape[1] > 1 else np.zeros(len(counts)))
        types = (np.int32, np.float32, np.int32, np.int32, np.float32)
        joined = (np.concatenate(arrays[name]).astype(kind) for name, kind in zip(cls.FIELDS[1:], types, strict=True))
        return cls(roots.astype(np.int32), *joined)

    def first(self, trees: int) -> Forest:
        """The forest of the first trees alone."""
        if trees >= len(self.roots):
            return self
        end = int(self.roots[trees])
        return Forest(self.roots[:trees], *(getattr(self, name)[:end] for name in self.FIELDS[1:]))

    def logits(self, rows: Array) -> Array:
        """The log-odds of being labelled; trees are summed in their order, whoever computes it."""
        return np.concatenate(
            [self._logits(rows[start : start + CHUNK]) for start in range(0, max(len(rows), 1), CHUNK)]
        )

    def _logits(self, rows: Array) -> Array:
        total = np.zeros(len(rows))
        if find_spec("numba") is not None:
            from ._trees import leaf_sums

            leaf_sums(np.ascontiguousarray(rows), *(getattr(self, name) for name in self.FIELDS), total)
            return logit(total / len(self.roots))
        for root in self.roots:
            place = np.full(len(rows), root, np.int32)
            moving = np.arange(len(rows))
            while len(moving):
                at = place[moving]
                goes_left = rows[moving, self.feature[at]] <= self.threshold[at]
                place[moving] = np.where(goes_left, self.left[at], self.right[at])
                moving = moving[place[moving] != at]
            total += self.value[place]
        return logit(total / len(self.roots))


@dataclass(frozen=True, eq=False)
class Logistic:
    """Logistic regression with an L2 penalty on standardised columns."""

    weight: Array
    bias: Array

    FIELDS: ClassVar[tuple[str, ...]] = ("weight", "bias")

    @classmethod
    def fit(cls, rows: Array, labelled: Array, seed: int) -> Logistic:
        from sklearn.linear_model import LogisticRegression

        centre, scale = rows.mean(0, dtype=np.float64), rows.std(0, dtype=np.float64)
        scale = np.where(scale > 1e-9, scale, 1.0)
        model = LogisticRegression(C=DECAY, max_iter=300).fit((rows - centre) / scale, labelled)
        weight = model.coef_[0] / scale
        return cls(weight, model.intercept_ - centre @ weight)

    def logits(self, rows: Array) -> Array:
        """The log-odds of being labelled."""
        bound = float(logit(np.array(1.0 - LIMIT)))
        result: Array = np.clip(rows.astype(np.float64) @ self.weight + self.bias, -bound, bound)
        return result


Learner: TypeAlias = Forest | Logistic


def stack(members: Array, labelled: Array, ridge: float = 1.0) -> tuple[Array, float]:
    """Weights >= 0 and a bias with which the members' logits ``[M, N]``, together, best tell labelled nodes.

    Logistic regression of out-of-fold logits (Wolpert's stacking): weights of members that know nothing are zero, and
    the sum is calibrated.
    """
    from scipy.optimize import minimize

    centre = members.mean(1)
    y = labelled.astype(np.float64)

    def loss(parameters: Array) -> tuple[float, Array]:
        bias, weights = parameters[0], parameters[1:]
        value: Any = 0.0
        slope, gradient = 0.0, np.zeros(len(members))
        for part in slices(len(y), STACKED):
            centred, known = members[:, part] - centre[:, None], y[part]
            z = bias + weights @ centred
            error = 1.0 / (1.0 + np.exp(-z)) - known
            value += np.logaddexp(0.0, z).sum() - known @ z
            slope, gradient = slope + error.sum(), gradient + centred @ error
        value += ridge * weights @ weights / 2.0
        return value, np.concatenate([[slope], gradient + ridge * weights])

    start = np.concatenate([[float(logit(y.mean()))], np.full(len(members), 1.0 / len(members))])
    bounds = [(None, None), *[(0.0, None)] * len(members)]
    result = minimize(loss, start, jac=True, bounds=bounds, method="L-BFGS-B", options={"maxiter": 500})
    weights = result.x[1:]
    return weights, float(result.x[0] - weights @ centre)


def arrays_of(learner: Learner) -> dict[str, Array]:
    return {name: getattr(learner, name) for name in learner.FIELDS}


def learner_of(arrays: Mapping[str, Array]) -> Learner:
    """The inverse of ``arrays_of``."""
    kind = Forest if "roots" in arrays else Logistic
    return kind(**arrays)
