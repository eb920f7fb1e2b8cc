"""Label coverage: cross-fitted probability that a node is labelled, given its description (docs/coverage.md).

A node's estimate comes from models that did not see whether it is labelled. They read which nodes are labelled, never
a label. Models are stored as plain arrays, without pickle.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from ...graphs import Graph
from ...runtime.memory import let_go
from ...runtime.progress import Progress
from ...runtime.threads import Jobs, Threads
from ..inputs import rows_at, scratch, slices
from .descriptions import SIZES, STATISTICS, Array, Describer, labelled_shares, one_thread

TREES = 100
LEAF = 5  # training nodes in a leaf, at least
ROWS_PER_TREE = 5_000  # so that the time does not grow with the graph
TREE_CHUNK = 1 << 16  # nodes that go through the trees at a time
DECAY = 0.1  # inverse strength of the logistic regression's L2 penalty
STACKED = 1 << 20  # nodes whose loss is summed at a time
LIMIT = 1e-4  # estimates are clipped to this distance from 0 and 1
FOLDS = 5
TRAINING_ROWS = 50_000  # labelled nodes, and as many others, that a fold's models are trained on, at most
CHUNK = 1 << 17  # nodes that are estimated at a time
STORED_TREES = 20  # trees of each fold's forests that are kept for nodes of other graphs
SIGNIFICANCE = 0.99  # a gain in likelihood that chance reaches with this probability earns no trust
SHARPNESS = 4.0  # sharpness of the corner at full coverage
REFERENCE = 0.5  # the quantile of labelled nodes' probabilities that counts as full coverage
MARGIN = 0.05  # of log(1 + x): tolerance of the size range
UNREACHED = np.log(1e-6)  # log of the relative coverage of nodes outside the size range, at most


def logit(p: Array) -> Array:
    """Log-odds of probabilities clipped to ``LIMIT``."""
    p = np.clip(p, LIMIT, 1.0 - LIMIT)
    return np.log(p) - np.log1p(-p)


@dataclass(frozen=True, eq=False)
class Forest:
    """Extremely randomised trees (Geurts et al. 2006) on bootstrap samples, as concatenated arrays of all trees.

    ``left`` and ``right`` index these arrays; a leaf is its own child. ``value`` is the share of labelled training
    nodes.
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
            TREES, min_samples_leaf=LEAF, bootstrap=True, max_samples=min(ROWS_PER_TREE, len(rows)), random_state=seed
        ).fit(rows, labelled)
        trees = [one.tree_ for one in forest.estimators_]
        sizes = [tree.node_count for tree in trees]
        roots = np.cumsum([0, *sizes[:-1]])
        arrays: dict[str, list[Array]] = {name: [] for name in cls.FIELDS[1:]}
        for root, tree in zip(roots, trees, strict=True):
            inner = tree.children_left >= 0
            arrays["feature"].append(np.where(inner, tree.feature, 0))
            arrays["threshold"].append(np.where(inner, tree.threshold, 0.0))
            for name, children in (("left", tree.children_left), ("right", tree.children_right)):
                arrays[name].append(np.where(inner, children, np.arange(tree.node_count)) + root)
            counts = tree.value[:, 0, :]
            arrays["value"].append(counts[:, -1] / counts.sum(1) if counts.shape[1] > 1 else np.zeros(len(counts)))
        types = (np.int32, np.float32, np.int32, np.int32, np.float32)
        joined = (np.concatenate(arrays[name]).astype(kind) for name, kind in zip(cls.FIELDS[1:], types, strict=True))
        return cls(roots.astype(np.int32), *joined)

    def first(self, trees: int) -> Forest:
        """Forest of the first trees alone."""
        if trees >= len(self.roots):
            return self
        end = int(self.roots[trees])
        return Forest(self.roots[:trees], *(getattr(self, name)[:end] for name in self.FIELDS[1:]))

    def logits(self, rows: Array) -> Array:
        """Log-odds of being labelled; trees are summed in order, so the bits do not depend on the process."""
        from ._trees import leaf_sums  # numba takes a moment to load

        total, arrays = np.zeros(len(rows)), [getattr(self, name) for name in self.FIELDS]
        for chunk in slices(len(rows), TREE_CHUNK):
            leaf_sums(np.ascontiguousarray(rows[chunk]), *arrays, total[chunk])
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
        """Log-odds of being labelled."""
        bound = float(logit(np.array(1.0 - LIMIT)))
        result: Array = np.clip(rows.astype(np.float64) @ self.weight + self.bias, -bound, bound)
        return result


Learner: TypeAlias = Forest | Logistic


def stack(members: Array, labelled: Array, ridge: float = 1.0) -> tuple[Array, float]:
    """Return weights >= 0 and a bias that combine the members' logits ``[M, N]`` into log-odds of being labelled.

    Logistic regression on out-of-fold logits (Wolpert's stacking): members without skill get weight zero, and the sum
    is calibrated.
    """
    from scipy.optimize import minimize

    centre = members.mean(1)
    y = labelled.astype(np.float64)

    def loss(parameters: Array) -> tuple[float, Array]:
        bias, weights = parameters[0], parameters[1:]
        value: Any = 0.0
        slope, gradient = 0.0, np.zeros(len(members))
        for part in slices(len(y), STACKED):
            centred, truth = members[:, part] - centre[:, None], y[part]
            z = bias + weights @ centred
            error = 1.0 / (1.0 + np.exp(-z)) - truth
            value += np.logaddexp(0.0, z).sum() - truth @ z
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
    """Inverse of ``arrays_of``."""
    kind = Forest if "roots" in arrays else Logistic
    return kind(**arrays)


class Member(NamedTuple):
    """Classifier of the stack: its kind, and the columns it reads besides the statistics."""

    kind: type[Forest] | type[Logistic]
    projections: bool
    shares: bool  # shares of labelled neighbours, which other graphs do not have


_KINDS = ((Forest, False), (Forest, True), (Logistic, True))
MEMBERS = tuple(Member(kind, projections, shares) for shares in (True, False) for kind, projections in _KINDS)
PLAIN = tuple(number for number, member in enumerate(MEMBERS) if not member.shares)


@dataclass(frozen=True)
class Diagnosis:
    """Skill of a coverage model, measured out of fold.

    Attributes:
        auroc: AUROC of labelled against other nodes; 0.5 if labels are everywhere or cannot be predicted.
        log_loss: Mean log-loss of "labelled or not", in nats.
        base_log_loss: Log-loss of always predicting the share of labelled nodes.
        trust: Share of a node's width that coverage decides; 0 where its skill may be chance.
        uncovered: Estimated share of the other nodes that labels never reached.
    """

    auroc: float
    log_loss: float
    base_log_loss: float
    trust: float
    uncovered: float

    @classmethod
    def of_nothing(cls, labelled: Tensor) -> Diagnosis:
        """Diagnosis where there are too few nodes to learn from."""
        base = _base_loss(float(labelled.double().mean()))
        return cls(0.5, base, base, 0.0, 0.0)

    def __str__(self) -> str:
        return (
            f"labelled or not: AUROC {self.auroc:.3f}, log-loss {self.log_loss:.3f} (base {self.base_log_loss:.3f}), "
            f"trust {self.trust:.2f}, {self.uncovered:.0%} of unlabelled nodes uncovered"
        )


@dataclass(frozen=True, eq=False)
class Coverage:
    """Relative coverage q of the nodes of a graph, and the diagnosis of its model.

    ``log_relative`` is log q: about 0 where labels are as frequent as for a typical labelled node, far below 0 where
    there were none.
    """

    log_relative: Array
    diagnosis: Diagnosis

    def covered(self, nodes: Array | slice = slice(None)) -> Array:
        """Probability that nodes like this one belong to the labelled population, ``min(q, 1)`` (Elkan and Noto 2008).

        Smoothed at the corner, so that no two nodes become equal.
        """
        covered: Array = np.exp(-np.logaddexp(0.0, -SHARPNESS * self.log_relative[nodes]) / SHARPNESS)
        return covered


class Scale(NamedTuple):
    """Map from the stack's summed logits to relative coverage."""

    bias: float
    base: float  # log-odds of being labelled for an average node
    trust: float
    reference: float  # log probability that counts as full coverage

    def log_probability(self, logits: Array) -> Array:
        """Log probability of being labelled, shrunk towards the base rate by the lack of trust."""
        log_odds = self.trust * (logits + self.bias) + (1.0 - self.trust) * self.base
        result: Array = -np.logaddexp(0.0, -log_odds)
        return result

    def relative(self, logits: Array) -> Array:
        """Logarithm of the probability relative to full coverage."""
        return self.log_probability(logits) - self.reference


@dataclass(frozen=True, eq=False)
class StoredModels:
    """Models of all folds that ignore neighbours' labels, for nodes of other graphs."""

    learners: tuple[tuple[Learner, ...], ...]  # by fold, in the order of PLAIN
    weights: Array
    scale: Scale
    diagnosis: Diagnosis

    def __call__(self, rows: Array, jobs: Jobs | None = None) -> Coverage:
        """Return the coverage of described nodes ``[N, D]`` by the mean log-odds of the folds' models."""
        jobs = jobs or Threads()
        total = np.zeros(len(rows))
        chunks = list(slices(len(rows), CHUNK))
        shared = jobs.share((self.learners, self.weights))
        for chunk, part in zip(chunks, jobs.map(_summed_logits, ((shared, rows[p]) for p in chunks)), strict=True):
            total[chunk] = part
            let_go(rows)
        return Coverage(self.scale.relative(total / len(self.learners)), self.diagnosis)

    def state(self) -> dict[str, Array]:
        """Arrays by name."""
        arrays = {"weights": self.weights, "scale": np.array(self.scale)}
        arrays["diagnosis"] = np.array(list(asdict(self.diagnosis).values()))
        for fold, learners in enumerate(self.learners):
            for number, learner in zip(PLAIN, learners, strict=True):
                arrays.update({f"{fold}.{number}.{name}": array for name, array in arrays_of(learner).items()})
        return arrays

    @classmethod
    def from_state(cls, arrays: Mapping[str, Array]) -> StoredModels:
        """Inverse of ``state``."""

        def learner(fold: int, number: int) -> Learner:
            prefix = f"{fold}.{number}."
            return learner_of({name.removeprefix(prefix): a for name, a in arrays.items() if name.startswith(prefix)})

        learners = tuple(tuple(learner(fold, number) for number in PLAIN) for fold in range(FOLDS))
        diagnosis = Diagnosis(*arrays["diagnosis"].tolist())
        return cls(learners, arrays["weights"], Scale(*arrays["scale"].tolist()), diagnosis)


class Estimate(NamedTuple):
    """Cross-fitted coverage of described nodes, models for other nodes, and their out-of-fold coverage of the nodes."""

    coverage: Coverage
    models: StoredModels
    held_out: Coverage


def estimate(
    rows: Array,
    labelled: Tensor,
    seed: int,
    graph: Graph | None = None,
    progress: bool | None = None,
    jobs: Jobs | None = None,
    memory: int | None = None,
) -> Estimate:
    """Cross-fit coverage of described nodes, and models for other nodes.

    Args:
        rows: Descriptions ``[N, D]``; read in chunks.
        labelled: Mask of labelled nodes ``[N]``.
        seed: Seed of the folds and of the trees.
        graph: Graph of these nodes; models then also use which neighbours are labelled.
        progress: Show a bar; None: on a terminal, when it takes more than a few seconds.
        jobs: Executor of fits and predictions; None: threads of this process.
        memory: Memory budget in bytes; None: what is available.
    """
    jobs = jobs or Threads()
    y = labelled.numpy().astype(np.int8)
    fold = _folds(y, seed)
    numbers = tuple(range(len(MEMBERS))) if graph is not None else PLAIN
    around: list[Array] = []
    for k in range(FOLDS if graph is not None else 0):
        assert graph is not None
        around.append(labelled_shares(graph, labelled, torch.from_numpy(fold != k), memory))
        let_go(around[k])

    def described(nodes: Array, k: int) -> tuple[Array, Array | None]:
        """Inputs of a fold's models for some nodes."""
        return rows_at(rows, nodes), rows_at(around[k], nodes) if around else None

    def training_jobs() -> Iterator[tuple[Any, ...]]:
        for k in range(FOLDS):
            chosen = _sample(y, fold != k, np.random.default_rng([seed, k]))
            data = jobs.share((*described(chosen, k), y[chosen].astype(np.int64)))
            for number in numbers:
                yield number, data, int(np.random.default_rng([seed, k, number]).integers(2**31))

    with one_thread():  # one model per core
        with Progress(FOLDS * len(numbers), "coverage", "models", progress) as bar:
            learners = list(bar.over(jobs.map(_fitted, training_jobs())))
        by_fold = [tuple(learners[k * len(numbers) : (k + 1) * len(numbers)]) for k in range(FOLDS)]
        models = [jobs.share((numbers, of_fold)) for of_fold in by_fold]
        parts = [
            (chunk.start + np.flatnonzero(fold[chunk] == k), k) for chunk in slices(len(y), CHUNK) for k in range(FOLDS)
        ]
        out_of_fold = scratch((len(MEMBERS), len(y)), np.float64, memory)
        out_of_fold[sorted(set(range(len(MEMBERS))) - set(numbers))] = 0.0
        results = jobs.map(_member_logits, ((models[k], *described(nodes, k)) for nodes, k in parts))
        with Progress(len(parts), "coverage", "parts", progress) as bar:
            for (nodes, _), logits in zip(parts, bar.over(results), strict=True):
                out_of_fold[np.array(numbers)[:, None], nodes] = logits
    around.clear()
    let_go(out_of_fold)
    plain = _combined(out_of_fold[PLAIN[0] :], y)  # the last ones
    whole = plain if graph is None else _combined(out_of_fold, y)
    learners_to_store = tuple(
        tuple(_to_store(of_fold[numbers.index(number)]) for number in PLAIN) for of_fold in by_fold
    )
    stored = StoredModels(learners_to_store, plain.weights, plain.scale, plain.coverage.diagnosis)
    return Estimate(whole.coverage, stored, plain.coverage)


def _fitted(number: int, data: tuple[Array, Array | None, Array], seed: int) -> Learner:
    """Fit a member on the nodes of other folds."""
    rows, shares, y = data
    member = MEMBERS[number]
    return member.kind.fit(_columns(rows, shares, member), y, seed)


def _member_logits(models: tuple[tuple[int, ...], tuple[Learner, ...]], rows: Array, shares: Array | None) -> Array:
    """Logits of a fold's members for held-out nodes, one row per member."""
    numbers, learners = models
    pairs = zip(numbers, learners, strict=True)
    return np.stack([learner.logits(_columns(rows, shares, MEMBERS[number])) for number, learner in pairs])


def _summed_logits(models: tuple[tuple[tuple[Learner, ...], ...], Array], rows: Array) -> Array:
    """Weighted logits, summed over the members of all folds."""
    by_fold, weights = models
    total = np.zeros(len(rows))
    for learners in by_fold:
        for number, weight, learner in zip(PLAIN, weights, learners, strict=True):
            if weight > 0:
                total += weight * learner.logits(_columns(rows, None, MEMBERS[number]))
    return total


def _to_store(learner: Learner) -> Learner:
    return learner.first(STORED_TREES) if isinstance(learner, Forest) else learner


class _Combined(NamedTuple):
    coverage: Coverage
    weights: Array
    scale: Scale


def _combined(members: Array, y: Array) -> _Combined:
    """Stack the members' out-of-fold logits, and measure the skill of the sum."""
    from scipy.stats import chi2
    from sklearn.metrics import roc_auc_score

    weights, bias = stack(members, y)
    logits = weights @ members
    log_odds = logits + bias
    loss = float(np.mean(np.logaddexp(0.0, log_odds) - y * log_odds))
    share = float(y.mean())
    base = _base_loss(share)
    evidence = 2.0 * len(y) * (base - loss)  # likelihood ratio of the stack against the base rate
    trust = max(0.0, 1.0 - float(chi2.ppf(SIGNIFICANCE, len(weights))) / evidence) if evidence > 0.0 else 0.0
    scale = Scale(bias, float(np.log(share) - np.log1p(-share)), trust, 0.0)
    scale = scale._replace(reference=float(np.quantile(scale.log_probability(logits)[y == 1], REFERENCE)))
    diagnosis = Diagnosis(float(roc_auc_score(y, log_odds)), loss, base, trust, 0.0)
    coverage = Coverage(scale.relative(logits), diagnosis)
    uncovered = float(1.0 - coverage.covered(y == 0).mean()) if trust > 0.0 else 0.0
    diagnosis = replace(diagnosis, uncovered=uncovered)
    return _Combined(Coverage(coverage.log_relative, diagnosis), weights, scale)


def _base_loss(share: float) -> float:
    """Log-loss of always predicting the share of labelled nodes, in nats."""
    return -sum(p * math.log(p) for p in (share, 1.0 - share) if p > 0.0)


def _columns(rows: Array, shares: Array | None, member: Member) -> Array:
    """Columns of described nodes that a member reads."""
    part = rows if member.projections else rows[:, : len(STATISTICS)]
    if not member.shares:
        return part
    assert shares is not None
    return np.concatenate([part, shares], 1)


def _folds(y: Array, seed: int) -> Array:
    """Fold of each node; labelled and other nodes are spread evenly."""
    fold = np.empty(len(y), np.int8)
    generator = np.random.default_rng(seed)
    for kind in (0, 1):
        nodes = np.flatnonzero(y == kind)
        fold[generator.permutation(nodes)] = np.arange(len(nodes)) % FOLDS
    return fold


def _sample(y: Array, among: Array, generator: np.random.Generator) -> Array:
    """Training nodes: all, or at most ``TRAINING_ROWS`` of each kind."""
    chosen = []
    for kind in (0, 1):
        nodes = np.flatnonzero(among & (y == kind))
        if len(nodes) > TRAINING_ROWS:
            nodes = generator.choice(nodes, TRAINING_ROWS, replace=False)
        chosen.append(nodes)
    return np.sort(np.concatenate(chosen))


@dataclass(frozen=True, eq=False)
class SizeRange:
    """Range of the feature sum and the number of active features over a graph's nodes, as log(1 + x).

    Tree models extrapolate as constants, so nodes beyond the training range would inherit the coverage of its edge.
    ``clip`` gives them almost none.
    """

    low: Array
    high: Array

    @classmethod
    def of(cls, describer: Describer, rows: Array) -> SizeRange:
        """Range over described nodes, read in chunks."""
        low, high = np.full(SIZES, np.inf), np.full(SIZES, -np.inf)
        for chunk in slices(len(rows), CHUNK):
            sizes = describer.sizes(rows[chunk])
            low, high = np.minimum(low, sizes.min(0)), np.maximum(high, sizes.max(0))
            let_go(rows)
        return cls(low, high)

    def clip(self, coverage: Coverage, describer: Describer, rows: Array) -> Coverage:
        """Lower the coverage of described nodes outside the range; further outside means lower."""
        relative = coverage.log_relative.copy()
        for chunk in slices(len(rows), CHUNK):
            sizes = describer.sizes(rows[chunk])
            beyond = np.maximum(self.low - sizes, sizes - self.high).max(1)
            outside = np.flatnonzero(beyond > MARGIN)
            relative[chunk.start + outside] = np.minimum(relative[chunk.start + outside], UNREACHED) - beyond[outside]
            let_go(rows)
        return replace(coverage, log_relative=relative)
