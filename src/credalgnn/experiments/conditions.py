"""Changes that a probe makes to graphs, and the response that a decomposition of uncertainty must show to each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeAlias

import numpy as np
import torch

from ..graphs import Graph, Task

Component: TypeAlias = Literal["EU", "AU"]
BASE = "none"  # the test of a condition in which nothing is changed
SHARE = 0.5  # of the test nodes that are changed, so that the others are there to be compared with
CSBM = "csbm"  # the data set whose true posterior is known
BINS = np.linspace(0.0, 1.0, 6)  # of local homophily
QUICK = {"labels": (0.05,), "label-noise": (0.4,), "homophily": (0.0, 0.4)}  # the levels of a quick probe


@dataclass(frozen=True)
class ProbeTest:
    """One test of a decomposition.

    Attributes:
        name: Name in records and tables.
        label: Name for people.
        meaning: The change, and the response expected.
        component: The uncertainty that must respond.
        levels: Strengths of the change, ascending; empty for tests of the unchanged graph.
        start: Level of the unchanged graph, where it is on the scale of the levels.
        shift: Suffix of a ``load_task`` name for a level, where models are fitted anew.
        change: Changes a task after the fit, by seed; gives None if its graph cannot be changed.
    """

    name: str
    label: str
    meaning: str
    component: Component
    levels: tuple[float, ...] = ()
    start: float | None = None
    shift: str = ""
    change: Callable[[Task, int], Task | None] | None = None


# Two tests fit models at every level: one component must rise while the other stays. Four let models fitted on the
# unchanged graph detect nodes that have changed since. The rest reads the unchanged graph.
RISES = (
    ProbeTest(
        "labels", "fewer labels", "a share of the training labels is kept: EU must rise, AU stay", "EU",
        (0.5, 0.2, 0.1, 0.05), 1.0, "fewer_labels={level:g}",
    ),
    ProbeTest(
        "label-noise", "noisy labels", "a share of the training labels is wrong: AU must rise, EU stay", "AU",
        (0.1, 0.2, 0.3, 0.4), 0.0, "label_noise={level:g}",
    ),
)  # fmt: skip


def _noise(deviations: float) -> Callable[[Task, int], Task | None]:
    """Feature noise of some standard deviations; undefined if all nodes have the same features."""

    def change(task: Task, seed: int) -> Task | None:
        std = deviations * feature_deviation(task.graph)
        return task.feature_noise(SHARE, std, seed) if std > 0.0 else None

    return change


DETECTIONS = (
    ProbeTest(
        "removed", "removed features", "half of the test nodes lose their features: EU must detect them", "EU",
        change=lambda task, seed: task.feature_removal(SHARE, seed),
    ),
    ProbeTest(
        "noise-1", "feature noise, 1 sd", "half of the test nodes get normal noise of one standard deviation of the "
        "features: EU must detect them", "EU", change=_noise(1.0),
    ),
    ProbeTest(
        "noise-8", "feature noise, 8 sd", "the same with eight standard deviations: EU must detect them", "EU",
        change=_noise(8.0),
    ),
    ProbeTest(
        "rewired", "rewired edges", "half of the test nodes get other neighbours, drawn at random: EU must detect them",
        "EU", change=lambda task, seed: task.rewired(SHARE, seed),
    ),
)  # fmt: skip
OOD_TEST = ProbeTest("ood", "OOD nodes", "nodes of classes that were left out: EU must detect them", "EU")
HOMOPHILY = ProbeTest(
    "homophily", "homophily", "the share of edges within a class, of graphs drawn by csbm", "EU",
    (0.0, 0.2, 0.4, 0.6, 1.0), 0.8, "homophily={level:g}",
)  # fmt: skip
TESTS = {test.name: test for test in (*RISES, *DETECTIONS, OOD_TEST, HOMOPHILY)}


@dataclass(frozen=True)
class Condition:
    """One graph with one change.

    Attributes:
        graph: Name of the data set without the change.
        test: Name of the test, `BASE` for the unchanged graph.
        level: Strength of the change; 0 for none.
        spec: What `load_task` finds the task by.
        homophily: Homophily of `csbm`, where the true posterior is used.
    """

    graph: str
    test: str
    level: float
    spec: str
    homophily: float | None = None


def conditions(spec: str, name: str, quick: bool = False) -> list[Condition]:
    """Return the conditions of a data set, the unchanged graph first; `quick`: only the strongest levels."""
    result = [Condition(name, BASE, 0.0, spec, HOMOPHILY.start if spec == CSBM else None)]
    for test in (*RISES, *([HOMOPHILY] if spec == CSBM else [])):
        for level in QUICK.get(test.name, test.levels) if quick else test.levels:
            drawn = level if test is HOMOPHILY else None
            result.append(Condition(name, test.name, level, f"{spec}+{test.shift.format(level=level)}", drawn))
    return result


@lru_cache(maxsize=1)
def changed_tasks(task: Task, seed: int) -> dict[str, Task]:
    """Return the task after each change of `DETECTIONS`, by name of the test; methods share them."""
    tasks = {test.name: test.change(task, seed) for test in DETECTIONS if test.change is not None}
    return {name: changed for name, changed in tasks.items() if changed is not None}


def feature_deviation(graph: Graph) -> float:
    """Return the root of the mean variance over all features."""
    matrix = graph.features
    if matrix.layout == torch.sparse_csr:
        columns, values = matrix.col_indices(), matrix.values().double()
        sums = torch.zeros(matrix.shape[1], dtype=torch.float64).index_add_(0, columns, values)
        squares = values.square().sum()
    else:
        sums, squares = matrix.double().sum(0), matrix.double().square().sum()
    variance = squares / matrix.shape[0] - (sums / matrix.shape[0]).square().sum()
    return float((variance.clamp_min(0.0) / matrix.shape[1]).sqrt())


def levels_of(test: ProbeTest, present: Sequence[float]) -> list[float]:
    """Return the measured levels of a test, from the unchanged graph to the strongest change."""
    order = [*([test.start] if test.start is not None else []), *test.levels]
    return sorted(set(present), key=lambda level: order.index(level) if level in order else len(order))
