"""One trial: a point fitted and judged on the validation nodes, pruned where it is worse than most others."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from ..graphs import Task
from ..metrics import METRICS, Evaluation
from ..nn.training import Epoch, TrainingError
from .execute import judge
from .model_cache import ModelCache
from .plan import Run

CHECKS = range(50, 1001, 50)  # epochs at which a trial may be pruned


def objective(run: Run, judged: Evaluation) -> float | None:
    """What a trial is worth on the validation nodes; larger is better. None if they cannot tell.

    The method says by what it is tuned (``Method.objectives``): a metric of the prediction, or of its headline score.

    Args:
        run: The run of the trial, which names the method and the protocol.
        judged: Its evaluation on the validation nodes that the protocol allows to look at.
    """
    key = run.kind.objectives[run.protocol]
    value = judged.metrics[key] if key in judged.metrics else judged.scores[judged.headline][key]
    return -value if value is not None and METRICS[key].better < 0 else value


class Pruned(Exception):
    """A trial is worse than most others at the same epoch, and stopped."""


class PruningCallback:
    """Follows the best value of a trial's monitor (lower is better) and stops the trial above a threshold.

    Args:
        thresholds: For some epochs of ``CHECKS`` the largest value with which the training goes on.
    """

    def __init__(self, thresholds: Mapping[int, float]) -> None:
        self.thresholds = thresholds
        self.best = float("inf")
        self.seen: dict[int, float] = {}

    def __call__(self, line: Epoch) -> None:
        """Raise ``Pruned`` if the best value so far is above the epoch's threshold.

        Args:
            line: Of the training curve.
        """
        if line.epoch:  # the untrained weights are never kept
            self.best = min(self.best, line.monitor)
        if line.epoch in CHECKS:
            self.seen[line.epoch] = self.best
            if self.best > self.thresholds.get(line.epoch, float("inf")):
                raise Pruned


def try_point(run: Run, task: Task, models: ModelCache, thresholds: Mapping[int, float]) -> dict[str, Any]:
    """Fit and judge one point on the validation nodes; a training that fails is a result, too.

    Args:
        run: The point, as a run.
        task: What it is fitted on.
        models: Fitted models that trials share.
        thresholds: See ``PruningCallback``.

    Returns:
        ``value`` (None if the validation nodes cannot tell), or ``pruned``, or ``error``; and always ``seen``, the
        monitor's best value at each check, and ``seconds``.
    """
    callback, begin = PruningCallback(thresholds), time.perf_counter()
    result: dict[str, Any] = {}
    try:
        result["value"] = objective(run, judge(run, task, models, callback))
    except Pruned:
        result["pruned"] = True
    except TrainingError as error:
        result["error"] = str(error)
    return {**result, "seen": callback.seen, "seconds": round(time.perf_counter() - begin, 3)}
