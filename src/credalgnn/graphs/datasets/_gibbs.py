"""Labels of a contextual stochastic block model drawn from their posterior: node by node, and by clusters of nodes.

The likelihood of the edges depends on the labels through counts alone: nodes of each class, and edges between each pair
of classes. With n nodes, n_a of class a, an edge of class a has probability h / (n_a - 1) and one between a and b
(1 - h) / 2 * (1 / (n - n_a) + 1 / (n - n_b)), each times 2 / n. All logarithms are those of whole numbers up to 2 n.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...runtime.compiling import INNER, announce, kernel


@kernel(error_model="numpy", **INNER)
def log_likelihood(
    sizes: NDArray[Any], between: NDArray[Any], logs: NDArray[Any], log_same: float, log_other: float
) -> float:
    """Of all edges given the counts, up to a constant; ``between[a, a]`` counts each edge once."""
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
    if same:  # where there are none their logarithm may be that of zero
        total += same * log_same
    if other:
        total += other * log_other
    return total


@kernel(error_model="numpy", **INNER)
def recount(
    node: int,
    sign: int,
    starts: NDArray[Any],
    columns: NDArray[Any],
    labels: NDArray[Any],
    sizes: NDArray[Any],
    between: NDArray[Any],
) -> None:
    """Put a node and its edges into the counts (``sign`` 1), or take them out (-1)."""
    own = labels[node]
    sizes[own] += sign
    for entry in range(starts[node], starts[node + 1]):
        other = labels[columns[entry]]
        between[own, other] += sign
        if other != own:
            between[other, own] += sign


@kernel(error_model="numpy", **INNER)
def update_node(
    node: int,
    starts: NDArray[Any],
    columns: NDArray[Any],
    labels: NDArray[Any],
    fields: NDArray[Any],
    logs: NDArray[Any],
    log_same: float,
    log_other: float,
    sizes: NDArray[Any],
    between: NDArray[Any],
    near: NDArray[Any],
    scores: NDArray[Any],
    draw: float,
) -> None:
    """Draw a node's class given all other labels; ``scores`` becomes the distribution that it is drawn from."""
    classes = len(sizes)
    nodes = len(labels)
    degree = starts[node + 1] - starts[node]
    near[:] = 0  # neighbours of each class
    for entry in range(starts[node], starts[node + 1]):
        near[labels[columns[entry]]] += 1
    own = labels[node]
    sizes[own] -= 1
    for b in range(classes):
        between[own, b] -= near[b]
        if b != own:
            between[b, own] -= near[b]
    # The change of the likelihood when the node is added to class a, which has at least one other node.
    for a in range(classes):
        score = fields[node, a]
        if score > -np.inf:
            size, inside, out = sizes[a], between[a, a], 0
            score += inside * logs[size - 1] - (inside + near[a]) * logs[size]
            for b in range(classes):
                if b != a:
                    edges, rest = between[a, b], 2 * nodes - size - sizes[b]
                    out += edges
                    score += (edges + near[b]) * logs[rest - 1] - edges * logs[rest]
                    score -= near[b] * logs[nodes - sizes[b]]
            score += out * logs[nodes - size] - (out + degree - near[a]) * logs[nodes - size - 1]
            if near[a]:
                score += near[a] * log_same
            if degree > near[a]:
                score += (degree - near[a]) * log_other
        scores[a] = score
    scores -= scores.max()
    total = 0.0
    for a in range(classes):
        scores[a] = np.exp(scores[a])
        total += scores[a]
    new, left = own, draw * total
    for a in range(classes):
        if scores[a] > 0.0:
            new = a
            left -= scores[a]
            if left < 0.0:
                break
    scores /= total
    labels[node] = new
    sizes[new] += 1
    for b in range(classes):
        between[new, b] += near[b]
        if b != new:
            between[b, new] += near[b]


@kernel(error_model="numpy", **INNER)
def swap_cluster(
    node: int,
    second: int,
    starts: NDArray[Any],
    columns: NDArray[Any],
    labels: NDArray[Any],
    fields: NDArray[Any],
    is_free: NDArray[Any],
    logs: NDArray[Any],
    log_same: float,
    log_other: float,
    attract: bool,
    grow: float,
    cap: int,
    sizes: NDArray[Any],
    between: NDArray[Any],
    members: NDArray[Any],
    inside: NDArray[Any],
    rng: np.random.Generator,
) -> None:
    """Propose to swap two classes, a node's own and ``second``, in a cluster that grows from it; accept as MH has it.

    As in Wolff's algorithm, a cluster grows through edges within a class (``attract``) or between the two, each with
    probability ``grow``. With ``grow`` 1 it is a component (homophily 1) or a Kempe chain (homophily 0): moves that no
    node can make alone. A cluster that has a known node or more than ``cap`` nodes is given up: so would its swap be.
    """
    first = labels[node]
    members[0], inside[node] = node, True
    count, at = 1, 0
    good = True
    while at < count and good:
        current = members[at]
        at += 1
        for entry in range(starts[current], starts[current + 1]):
            other = columns[entry]
            label = labels[other]
            if inside[other] or label not in (first, second) or (label == labels[current]) != attract:
                continue
            if rng.random() < grow:
                if not is_free[other] or count == cap:
                    good = False
                    break
                members[count], inside[other] = other, True
                count += 1
    change = 0.0
    if good:
        # Edges out of the cluster: those that it could have grown through do not let it now, the others do then.
        surplus = 0
        for at in range(count):
            current = members[at]
            new = first + second - labels[current]
            change += fields[current, new] - fields[current, labels[current]]
            for entry in range(starts[current], starts[current + 1]):
                other = columns[entry]
                label = labels[other]
                if not inside[other] and label in (first, second):
                    surplus += -1 if (label == labels[current]) == attract else 1
        if surplus:
            change += surplus * np.log(1.0 - grow)
        good = change > -np.inf
    if good:
        change -= log_likelihood(sizes, between, logs, log_same, log_other)
        for at in range(count):
            current = members[at]
            recount(current, -1, starts, columns, labels, sizes, between)
            labels[current] = first + second - labels[current]
            recount(current, 1, starts, columns, labels, sizes, between)
        change += log_likelihood(sizes, between, logs, log_same, log_other)
        if not rng.random() < np.exp(min(change, 0.0)):
            for at in range(count):
                current = members[at]
                recount(current, -1, starts, columns, labels, sizes, between)
                labels[current] = first + second - labels[current]
                recount(current, 1, starts, columns, labels, sizes, between)
    for at in range(count):
        inside[members[at]] = False


@kernel(error_model="numpy")
def sample(
    starts: NDArray[Any],
    columns: NDArray[Any],
    free: NDArray[Any],
    labels: NDArray[Any],
    fields: NDArray[Any],
    logs: NDArray[Any],
    log_same: float,
    log_other: float,
    attract: bool,
    grow: float,
    cap: int,
    clusters: int,
    burn_in: int,
    sweeps: int,
    rng: np.random.Generator,
    found: NDArray[Any],
) -> None:
    """Add the distributions that the free nodes' classes are drawn from, ``sweeps`` times each, to ``found``.

    Args:
        starts: Of the rows of the symmetric adjacency matrix, without self-loops.
        columns: Its columns, as often as there are edges.
        free: The nodes whose classes are drawn.
        labels: Where the chain starts; changed.
        fields: Log-probabilities [N, C] of the classes, up to a constant, without any edge; -inf where impossible.
        logs: Of 0 (as 0), 1, 2, ..., 2 N.
        log_same: The logarithm of the probability of an edge within a class.
        log_other: Of one between classes.
        attract: Whether clusters grow within a class, or between two.
        grow: With which probability, edge by edge.
        cap: How many nodes a cluster may have.
        clusters: How many are tried each sweep.
        burn_in: Sweeps before those that count.
        sweeps: Those that count.
        rng: Of all draws.
        found: Sums [N, C].
    """
    nodes, classes = fields.shape
    sizes = np.zeros(classes, np.int64)
    between = np.zeros((classes, classes), np.int64)
    for node in range(nodes):
        sizes[labels[node]] += 1
        for entry in range(starts[node], starts[node + 1]):
            a, b = labels[node], labels[columns[entry]]
            if a != b or node < columns[entry]:
                between[a, b] += 1
    is_free, inside = np.zeros(nodes, np.bool_), np.zeros(nodes, np.bool_)
    is_free[free] = True
    members = np.empty(nodes, np.int64)
    near, scores = np.empty(classes, np.int64), np.empty(classes)
    for sweep in range(burn_in + sweeps):
        for node in free:
            update_node(
                node,
                starts,
                columns,
                labels,
                fields,
                logs,
                log_same,
                log_other,
                sizes,
                between,
                near,
                scores,
                rng.random(),
            )
            if sweep >= burn_in:
                for a in range(classes):
                    found[node, a] += scores[a]
        for _ in range(clusters):
            node = free[int(rng.random() * len(free))]
            second = int(rng.random() * (classes - 1))
            if second >= labels[node]:
                second += 1
            swap_cluster(
                node,
                second,
                starts,
                columns,
                labels,
                fields,
                is_free,
                logs,
                log_same,
                log_other,
                attract,
                grow,
                cap,
                sizes,
                between,
                members,
                inside,
                rng,
            )


announce(sample, "the sampler of the block model (about 9 s)")
