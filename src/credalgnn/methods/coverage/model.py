"""Label coverage: how probable it is that a node is labelled, given what it looks like (docs/coverage.md).

Cross-fitted: a node's estimate comes from models that were not told whether it is labelled. Sealed by construction:
which nodes are labelled is all that is read, never a label.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from ...graphs import Graph
from ...runtime.memory import let_go
from ..chunks import slices
from ..jobs import Jobs, Threads
from ..scratch import rows_at, scratch
from .descriptions import STATISTICS, Array, labelled_shares
from .learners import Forest, Learner, Logistic, arrays_of, learner_of, stack
from .one_thread import one_thread

FOLDS = 5
TRAINING_ROWS = 50_000  # labelled ones, and as many others, that a fold's models are trained on at the most
CHUNK = 1 << 17  # nodes that are estimated at a time
STORED_TREES = 20  # of each fold's forests that are kept for nodes of other graphs
SIGNIFICANCE = 0.99  # a gain in likelihood that chance reaches with this probability earns no trust
SHARPNESS = 4.0  # of the corner at full coverage
REFERENCE = 0.5  # the quantile of labelled nodes' probabilities that counts as full coverage


class Member(NamedTuple):
    """One of the classifiers: its kind, and which columns it reads besides the statistics."""

    kind: type[Forest] | type[Logistic]
    projections: bool
    shares: bool  # of labelled neighbours; unknown for nodes of another graph


_KINDS = ((Forest, False), (Forest, True), (Logistic, True))
MEMBERS = tuple(Member(kind, projections, shares) for shares in (True, False) for kind, projections in _KINDS)
PLAIN = tuple(number for number, member in enumerate(MEMBERS) if not member.shares)


@dataclass(frozen=True)
class Diagnosis:
    """What a coverage model knows, measured on nodes it was not told about.

    Attributes:
        auroc: How well labelled nodes are told from others; 0.5: labels are everywhere, or nowhere to be told.
        log_loss: Mean log-loss of "labelled or not", in nats.
        base_log_loss: The same for the share of labelled nodes as the only answer.
        trust: The share of a node's width that coverage decides; 0 where its skill may be chance.
        uncovered: Estimated share of the other nodes that labels never reached.
    """

    auroc: float
    log_loss: float
    base_log_loss: float
    trust: float
    uncovered: float

    @classmethod
    def of_nothing(cls, labelled: Tensor) -> Diagnosis:
        """Where there are too few nodes to learn anything."""
        base = _base_loss(float(labelled.double().mean()))
        return cls(0.5, base, base, 0.0, 0.0)

    def __str__(self) -> str:
        return (
            f"labelled or not: AUROC {self.auroc:.3f}, log-loss {self.log_loss:.3f} (base {self.base_log_loss:.3f}), "
            f"trust {self.trust:.2f}, {self.uncovered:.0%} of unlabelled nodes uncovered"
        )


@dataclass(frozen=True, eq=False)
class Coverage:
    """Relative coverage q of the nodes of a graph, and what is known of the model that says so.

    ``log_relative`` is log q: about 0 where labels are as dense as where they are dense, far below 0 where there never
    were any.
    """

    log_relative: Array
    diagnosis: Diagnosis

    def covered(self, nodes: Array | slice = slice(None)) -> Array:
        """The probability that nodes like this one belong to what was labelled: ``min(q, 1)`` (Elkan and Noto 2008).

        Rounded off at the corner, so that no two nodes become equal.

        Args:
            nodes: Their numbers; by default all.
        """
        covered: Array = np.exp(-np.logaddexp(0.0, -SHARPNESS * self.log_relative[nodes]) / SHARPNESS)
        return covered


class Scale(NamedTuple):
    """From the sum of a stack's logits to relative coverage."""

    bias: float
    base: float  # log-odds of being labelled, for a node of which nothing is known
    trust: float
    reference: float  # log probability that stands for full coverage

    def log_probability(self, logits: Array) -> Array:
        """Of being labelled, pulled towards the base rate as far as the stack is not to be trusted."""
        log_odds = self.trust * (logits + self.bias) + (1.0 - self.trust) * self.base
        result: Array = -np.logaddexp(0.0, -log_odds)
        return result

    def relative(self, logits: Array) -> Array:
        """The logarithm of the probability over that of full coverage."""
        return self.log_probability(logits) - self.reference


@dataclass(frozen=True, eq=False)
class StoredModels:
    """The models of all folds that know nothing of neighbours' labels, for nodes that were not there before."""

    learners: tuple[tuple[Learner, ...], ...]  # by fold, in the order of PLAIN
    weights: Array
    scale: Scale
    diagnosis: Diagnosis

    def __call__(self, rows: Array, jobs: Jobs | None = None) -> Coverage:
        """Coverage of nodes by their descriptions: the mean log-odds of the folds' models.

        Args:
            rows: Descriptions ``[N, D]``; read in chunks.
            jobs: Who judges chunks of them; None: threads of this process.
        """
        jobs = jobs or Threads()
        total = np.zeros(len(rows))
        chunks = list(slices(len(rows), CHUNK))
        shared = jobs.share((self.learners, self.weights))
        for chunk, part in zip(chunks, jobs.map(_judged_by_all, ((shared, rows[p]) for p in chunks)), strict=True):
            total[chunk] = part
            let_go(rows)
        return Coverage(self.scale.relative(total / len(self.learners)), self.diagnosis)

    def state(self) -> dict[str, Array]:
        """As arrays by name."""
        arrays = {"weights": self.weights, "scale": np.array(self.scale)}
        arrays["diagnosis"] = np.array(list(asdict(self.diagnosis).values()))
        for fold, learners in enumerate(self.learners):
            for number, learner in zip(PLAIN, learners, strict=True):
                arrays.update({f"{fold}.{number}.{name}": array for name, array in arrays_of(learner).items()})
        return arrays

    @classmethod
    def from_state(cls, arrays: Mapping[str, Array]) -> StoredModels:
        """The inverse of ``state``."""

        def learner(fold: int, number: int) -> Learner:
            prefix = f"{fold}.{number}."
            return learner_of({name.removeprefix(prefix): a for name, a in arrays.items() if name.startswith(prefix)})

        learners = tuple(tuple(learner(fold, number) for number in PLAIN) for fold in range(FOLDS))
        diagnosis = Diagnosis(*arrays["diagnosis"].tolist())
        return cls(learners, arrays["weights"], Scale(*arrays["scale"].tolist()), diagnosis)


class Estimate(NamedTuple):
    """Cross-fitted coverage of described nodes, and models for others.

    Attributes:
        coverage: Of the nodes.
        models: For other nodes.
        held_out: What these models say of the nodes, each judged by those that were not told about it.
    """

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
    """Cross-fitted coverage of described nodes, and models for others.

    Args:
        rows: Descriptions ``[N, D]``; read in chunks.
        labelled: Which nodes are labelled, ``[N]``.
        seed: Of the folds and of the trees.
        graph: Whose nodes these are, if they are all of one: models then see which neighbours are labelled, too.
        progress: Show a bar; None: on a terminal, when it takes more than a few seconds.
        jobs: Who fits the models and judges nodes by them; None: threads of this process.
        memory: Bytes that may be used; None: what is available.
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
        """What a fold's models see of some nodes."""
        return rows_at(rows, nodes), rows_at(around[k], nodes) if around else None

    def lessons() -> Iterator[tuple[Any, ...]]:
        for k in range(FOLDS):
            chosen = _sample(y, fold != k, np.random.default_rng([seed, k]))
            seen = jobs.share((*described(chosen, k), y[chosen].astype(np.int64)))
            for number in numbers:
                yield number, seen, int(np.random.default_rng([seed, k, number]).integers(2**31))

    hidden = None if progress is None else not progress
    shown: dict[str, Any] = {"desc": "coverage", "delay": 3, "disable": hidden, "leave": False}
    with one_thread():  # a model a core, not all on all
        taught = jobs.map(_taught, lessons())
        learners = list(tqdm(taught, total=FOLDS * len(numbers), unit="model", **shown))
        by_fold = [tuple(learners[k * len(numbers) : (k + 1) * len(numbers)]) for k in range(FOLDS)]
        models = [jobs.share((numbers, of_fold)) for of_fold in by_fold]
        parts = [
            (chunk.start + np.flatnonzero(fold[chunk] == k), k) for chunk in slices(len(y), CHUNK) for k in range(FOLDS)
        ]
        out_of_fold = scratch((len(MEMBERS), len(y)), np.float64, memory)
        out_of_fold[sorted(set(range(len(MEMBERS))) - set(numbers))] = 0.0
        said = jobs.map(_judged, ((models[k], *described(nodes, k)) for nodes, k in parts))
        for (nodes, _), logits in zip(parts, tqdm(said, total=len(parts), unit="part", **shown), strict=True):
            out_of_fold[np.array(numbers)[:, None], nodes] = logits
    around.clear()
    let_go(out_of_fold)
    plain = _combined(out_of_fold[PLAIN[0] :], y)  # they are the last ones
    whole = plain if graph is None else _combined(out_of_fold, y)
    kept = tuple(tuple(_to_store(of_fold[numbers.index(number)]) for number in PLAIN) for of_fold in by_fold)
    stored = StoredModels(kept, plain.weights, plain.scale, plain.coverage.diagnosis)
    return Estimate(whole.coverage, stored, plain.coverage)


def _taught(number: int, seen: tuple[Array, Array | None, Array], seed: int) -> Learner:
    """A member that has learnt from the nodes of other folds."""
    rows, shares, y = seen
    member = MEMBERS[number]
    return member.kind.fit(_columns(rows, shares, member), y, seed)


def _judged(models: tuple[tuple[int, ...], tuple[Learner, ...]], rows: Array, shares: Array | None) -> Array:
    """What the members of a fold say of nodes that they were not told about: a row for each."""
    numbers, learners = models
    pairs = zip(numbers, learners, strict=True)
    return np.stack([learner.logits(_columns(rows, shares, MEMBERS[number])) for number, learner in pairs])


def _judged_by_all(models: tuple[tuple[tuple[Learner, ...], ...], Array], rows: Array) -> Array:
    """What the members of all folds say of nodes, weighted and summed."""
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
    """Stack the members' out-of-fold logits, and find out what the sum is worth."""
    from scipy.stats import chi2
    from sklearn.metrics import roc_auc_score

    weights, bias = stack(members, y)
    logits = weights @ members
    log_odds = logits + bias
    loss = float(np.mean(np.logaddexp(0.0, log_odds) - y * log_odds))
    share = float(y.mean())
    base = _base_loss(share)
    evidence = 2.0 * len(y) * (base - loss)  # likelihood ratio of the stack and of knowing nothing
    trust = max(0.0, 1.0 - float(chi2.ppf(SIGNIFICANCE, len(weights))) / evidence) if evidence > 0.0 else 0.0
    scale = Scale(bias, float(np.log(share) - np.log1p(-share)), trust, 0.0)
    scale = scale._replace(reference=float(np.quantile(scale.log_probability(logits)[y == 1], REFERENCE)))
    diagnosis = Diagnosis(float(roc_auc_score(y, log_odds)), loss, base, trust, 0.0)
    coverage = Coverage(scale.relative(logits), diagnosis)
    uncovered = float(1.0 - coverage.covered(y == 0).mean()) if trust > 0.0 else 0.0
    diagnosis = replace(diagnosis, uncovered=uncovered)
    return _Combined(Coverage(coverage.log_relative, diagnosis), weights, scale)


def _base_loss(share: float) -> float:
    """The log-loss of answering with the share of labelled nodes, in nats."""
    return -sum(p * math.log(p) for p in (share, 1.0 - share) if p > 0.0)


def _columns(rows: Array, shares: Array | None, member: Member) -> Array:
    """Of described nodes, the columns that a member reads."""
    part = rows if member.projections else rows[:, : len(STATISTICS)]
    if not member.shares:
        return part
    assert shares is not None
    return np.concatenate([part, shares], 1)


def _folds(y: Array, seed: int) -> Array:
    """The fold of each node; both kinds are spread evenly over all."""
    fold = np.empty(len(y), np.int8)
    generator = np.random.default_rng(seed)
    for kind in (0, 1):
        nodes = np.flatnonzero(y == kind)
        fold[generator.permutation(nodes)] = np.arange(len(nodes)) % FOLDS
    return fold


def _sample(y: Array, among: Array, generator: np.random.Generator) -> Array:
    """Nodes to train on: all of them, or at most ``TRAINING_ROWS`` of each kind."""
    chosen = []
    for kind in (0, 1):
        nodes = np.flatnonzero(among & (y == kind))
        if len(nodes) > TRAINING_ROWS:
            nodes = generator.choice(nodes, TRAINING_ROWS, replace=False)
        chosen.append(nodes)
    return np.sort(np.concatenate(chosen))
