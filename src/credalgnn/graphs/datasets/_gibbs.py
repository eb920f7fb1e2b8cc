"""Gibbs and cluster sampler of the labels of a contextual stochastic block model.

The likelihood of the edges depends on the labels through counts alone: nodes of each class, and edges between each pair
of classes. With n nodes, n_a of class a, an edge of class a has probability h / (n_a - 1) and one between a and b
(1 - h) / 2 * (1 / (n - n_a) + 1 / (n - n_b)), each times 2 / n. All logarithms are those of whole numbers up to 2 n.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...runtime.compiling import INNER, announce, kernel


class Model(NamedTuple):
    """Graph and generator: everything besides the labels."""

    starts: NDArray[Any]  # rows of the symmetric adjacency matrix, without self-loops
    columns: NDArray[Any]
    free: NDArray[Any]  # nodes whose classes are drawn
    fields: NDArray[Any]  # log-probabilities [N, C] of classes without edges, up to a constant; -inf if impossible
    logs: NDArray[Any]  # of 0 (as 0), 1, ..., 2 N
    log_same: float  # log-probability of an edge within a class
    log_other: float  # and between classes


class Clusters(NamedTuple):
    """Cluster moves of a sweep."""

    attract: bool  # clusters grow through edges within a class, else through those between the two classes
    grow: float  # probability per edge
    cap: int  # nodes of a cluster; larger ones are given up
    tries: int  # clusters per sweep


class State(NamedTuple):
    """A labelling and its counts."""

    labels: NDArray[Any]
    sizes: NDArray[Any]  # nodes of each class
    between: NDArray[Any]  # edges between each pair of classes; [a, a] counts each edge once


@kernel(error_model="numpy", **INNER)
def _log_likelihood(model: Model, state: State) -> float:
    """Log-likelihood of all edges given the counts, up to a constant."""
    sizes, between, logs = state.sizes, state.between, model.logs
    classes = len(sizes)
    nodes = sizes.sum()
    same, other = 0, 0
    total = 0.0
    for a in range(classes):
        same += between[a, a]
        total -= between[a, a] * logs[sizes[a] - 1]
        out = 0
        for b in range(classes):
            if b != a:
                out += between[a, b]
            if b > a:
                total += between[a, b] * logs[2 * nodes - sizes[a] - sizes[b]]
                other += between[a, b]
        total -= out * logs[nodes - sizes[a]]
    if same:  # otherwise the logarithm may be that of zero
        total += same * model.log_same
    if other:
        total += other * model.log_other
    return total


@kernel(error_model="numpy", **INNER)
def _recount(node: int, sign: int, model: Model, state: State) -> None:
    """Add a node and its edges to the counts (``sign`` 1), or remove them (-1)."""
    label = state.labels[node]
    state.sizes[label] += sign
    for entry in range(model.starts[node], model.starts[node + 1]):
        other = state.labels[model.columns[entry]]
        state.between[label, other] += sign
        if other != label:
            state.between[other, label] += sign


@kernel(error_model="numpy", **INNER)
def _move(label: int, sign: int, near: NDArray[Any], state: State) -> None:
    """Add a node with neighbours ``near`` per class to the counts of a class, or remove it."""
    state.sizes[label] += sign
    for b in range(len(near)):
        state.between[label, b] += sign * near[b]
        if b != label:
            state.between[b, label] += sign * near[b]


@kernel(error_model="numpy", **INNER)
def _score(a: int, node: int, degree: int, near: NDArray[Any], model: Model, state: State) -> float:
    """Change of the log-likelihood when a node joins class ``a``, which has at least one other node."""
    score: float = model.fields[node, a]
    if score > -np.inf:
        sizes, between, logs, nodes = state.sizes, state.between, model.logs, len(state.labels)
        size, inside, out = sizes[a], between[a, a], 0
        score += inside * logs[size - 1] - (inside + near[a]) * logs[size]
        for b in range(len(sizes)):
            if b != a:
                edges, rest = between[a, b], 2 * nodes - size - sizes[b]
                out += edges
                score += (edges + near[b]) * logs[rest - 1] - edges * logs[rest]
                score -= near[b] * logs[nodes - sizes[b]]
        score += out * logs[nodes - size] - (out + degree - near[a]) * logs[nodes - size - 1]
        if near[a]:
            score += near[a] * model.log_same
        if degree > near[a]:
            score += (degree - near[a]) * model.log_other
    return score


@kernel(error_model="numpy", **INNER)
def _update_node(node: int, model: Model, state: State, near: NDArray[Any], scores: NDArray[Any], draw: float) -> None:
    """Draw a node's class given all other labels; ``scores`` becomes the distribution it is drawn from."""
    classes = len(state.sizes)
    degree = model.starts[node + 1] - model.starts[node]
    near[:] = 0  # neighbours of each class
    for entry in range(model.starts[node], model.starts[node + 1]):
        near[state.labels[model.columns[entry]]] += 1
    new = state.labels[node]
    _move(new, -1, near, state)
    for a in range(classes):
        scores[a] = _score(a, node, degree, near, model, state)
    scores -= scores.max()
    total = 0.0
    for a in range(classes):
        scores[a] = np.exp(scores[a])
        total += scores[a]
    left = draw * total
    for a in range(classes):
        if scores[a] > 0.0:
            new = a
            left -= scores[a]
            if left < 0.0:
                break
    scores /= total
    state.labels[node] = new
    _move(new, 1, near, state)


@kernel(error_model="numpy", **INNER)
def _grow(
    second: int,
    model: Model,
    clusters: Clusters,
    labels: NDArray[Any],
    is_free: NDArray[Any],
    members: NDArray[Any],
    inside: NDArray[Any],
    rng: np.random.Generator,
) -> tuple[int, bool]:
    """Grow the cluster of ``members[0]``; return its size, and False if it was given up."""
    first = labels[members[0]]
    count, at = 1, 0
    while at < count:
        current = members[at]
        at += 1
        for entry in range(model.starts[current], model.starts[current + 1]):
            other = model.columns[entry]
            label = labels[other]
            if inside[other] or label not in (first, second) or (label == labels[current]) != clusters.attract:
                continue
            if rng.random() < clusters.grow:
                if not is_free[other] or count == clusters.cap:
                    return count, False
                members[count], inside[other] = other, True
                count += 1
    return count, True


@kernel(error_model="numpy", **INNER)
def _proposal_change(
    first: int,
    second: int,
    cluster: NDArray[Any],
    model: Model,
    clusters: Clusters,
    labels: NDArray[Any],
    inside: NDArray[Any],
) -> float:
    """Log-ratio of fields and proposals when a cluster swaps two classes."""
    change, surplus = 0.0, 0  # edges out of the cluster: those it could grow through before and after the swap
    for current in cluster:
        new = first + second - labels[current]
        change += model.fields[current, new] - model.fields[current, labels[current]]
        for entry in range(model.starts[current], model.starts[current + 1]):
            other = model.columns[entry]
            label = labels[other]
            if not inside[other] and label in (first, second):
                surplus += -1 if (label == labels[current]) == clusters.attract else 1
    if surplus:
        change += surplus * np.log(1.0 - clusters.grow)
    return change


@kernel(error_model="numpy", **INNER)
def _swap(both: int, cluster: NDArray[Any], model: Model, state: State) -> None:
    """Swap two classes, whose numbers add up to ``both``, in a cluster."""
    for current in cluster:
        _recount(current, -1, model, state)
        state.labels[current] = both - state.labels[current]
        _recount(current, 1, model, state)


@kernel(error_model="numpy", **INNER)
def _swap_cluster(
    node: int,
    second: int,
    model: Model,
    clusters: Clusters,
    state: State,
    is_free: NDArray[Any],
    members: NDArray[Any],
    inside: NDArray[Any],
    rng: np.random.Generator,
) -> None:
    """Propose to swap a node's class and ``second`` in a cluster that grows from it; accept by Metropolis-Hastings.

    As in Wolff's algorithm, a cluster grows through edges within a class or between the two, each with the same
    probability. With probability 1 it is a component (homophily 1) or a Kempe chain (homophily 0): moves that no node
    can make alone. A cluster with a known node or too many nodes is given up, as its reverse would be.
    """
    first = state.labels[node]
    members[0], inside[node] = node, True
    count, good = _grow(second, model, clusters, state.labels, is_free, members, inside, rng)
    cluster = members[:count]
    if good:
        change = _proposal_change(first, second, cluster, model, clusters, state.labels, inside)
        if change > -np.inf:
            change -= _log_likelihood(model, state)
            _swap(first + second, cluster, model, state)
            change += _log_likelihood(model, state)
            if not rng.random() < np.exp(min(change, 0.0)):
                _swap(first + second, cluster, model, state)
    for current in cluster:
        inside[current] = False


@kernel(error_model="numpy", **INNER)
def _count(model: Model, labels: NDArray[Any]) -> State:
    nodes, classes = model.fields.shape
    sizes, between = np.zeros(classes, np.int64), np.zeros((classes, classes), np.int64)
    for node in range(nodes):
        sizes[labels[node]] += 1
        for entry in range(model.starts[node], model.starts[node + 1]):
            a, b = labels[node], labels[model.columns[entry]]
            if a != b or node < model.columns[entry]:
                between[a, b] += 1
    return State(labels, sizes, between)


@kernel(error_model="numpy")
def sample(
    model: Model,
    clusters: Clusters,
    labels: NDArray[Any],
    burn_in: int,
    sweeps: int,
    rng: np.random.Generator,
    sums: NDArray[Any],
) -> None:
    """Run a chain from ``labels``, which change; add the distributions of the free nodes' classes to ``sums`` [N, C].

    The first ``burn_in`` sweeps do not count, the ``sweeps`` after them do.
    """
    nodes, classes = model.fields.shape
    state = _count(model, labels)
    is_free, inside = np.zeros(nodes, np.bool_), np.zeros(nodes, np.bool_)
    is_free[model.free] = True
    members = np.empty(nodes, np.int64)
    near, scores = np.empty(classes, np.int64), np.empty(classes)
    for sweep in range(burn_in + sweeps):
        for node in model.free:
            _update_node(node, model, state, near, scores, rng.random())
            if sweep >= burn_in:
                for a in range(classes):
                    sums[node, a] += scores[a]
        for _ in range(clusters.tries):
            node = model.free[int(rng.random() * len(model.free))]
            second = int(rng.random() * (classes - 1))
            if second >= labels[node]:
                second += 1
            _swap_cluster(node, second, model, clusters, state, is_free, members, inside, rng)


announce(sample, "the sampler of the block model (about 9 s)")
