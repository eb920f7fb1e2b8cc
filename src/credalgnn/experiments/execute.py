"""One run carried out: a method fitted on a task with a seed, and judged."""

from __future__ import annotations

import math
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._version import __version__
from ..graphs import Task
from ..methods import Method, Prediction
from ..methods.parameters import has_seed
from ..metrics import Evaluation, evaluate, evaluate_known
from ..nn.training import Epoch
from ..records.node_tables import Columns, columns
from ..records.schema import FORMAT
from ..sets import HullSet, IntervalSet, uncertainty
from .model_cache import Fitted, ModelCache
from .plan import Run


def fit(run: Run, task: Task, models: ModelCache, on_epoch: Callable[[Epoch], None] | None = None) -> Fitted:
    """Fit what a run describes.

    Args:
        run: What to fit.
        task: On what.
        models: Where models that several runs stand on are kept.
        on_epoch: Is shown every line of the training curve of what is not shared.
    """
    kind = run.kind
    parts = models.components(run, task)
    shared = sum(part.seconds for part in parts)
    config = dict(run.config)
    if kind.components is not None:
        fitted = [part.method for part in parts]
        config[kind.components.parameter] = fitted if kind.components.size else fitted[0]
    elif parts:
        return parts[0]
    if has_seed(kind):
        config["seed"] = run.seed
    method = kind(**config)
    begin = time.perf_counter()
    method.fit(task, protocol=run.protocol, progress=False, on_epoch=on_epoch)
    return Fitted(method, shared + time.perf_counter() - begin)


def execute(
    run: Run, task: Task, models: ModelCache, keep_nodes: bool = False
) -> tuple[dict[str, Any], Columns | None]:
    """Fit, predict, judge on the test nodes: the record, and if wanted what was predicted for each node.

    Args:
        run: What to fit.
        task: On what.
        models: Where models that several runs stand on are kept.
        keep_nodes: Whether the table of nodes is wanted.
    """
    nodes = torch.cat([task.validation.nodes, task.test.nodes]) if keep_nodes else task.test.nodes
    record, method, prediction = judged_run(run, task, models, nodes)
    return record, columns(prediction, task, method) if keep_nodes else None


def judged_run(run: Run, task: Task, models: ModelCache, nodes: Tensor) -> tuple[dict[str, Any], Method, Prediction]:
    """Fit, predict, judge on the test nodes: the record, the fitted method and its prediction.

    Args:
        run: What to fit.
        task: On what.
        models: Where models that several runs stand on are kept.
        nodes: What to predict, the test nodes among them.
    """
    measure_peak = _peak_memory()
    if run.kind.is_credal:
        _compile()
    method, seconds = fit(run, task, models)
    begin = time.perf_counter()
    prediction = method.predict(nodes=nodes)
    predicted = time.perf_counter() - begin
    judged = evaluate(prediction, task)
    record = {
        **about(run, task),
        "status": "done",
        "error": None,
        "class_names": list(task.class_names),
        "ood_names": [task.graph.class_names[k] for k in task.ood_classes],
        "counts": task.counts,
        "headline": judged.headline,
        "metrics": judged.metrics,
        "scores": judged.scores,
        "curves": {
            **judged.curves,
            "training": [[line.epoch, _digits(line.loss), _digits(line.monitor)] for line in method.history_],
        },
        "marks": list(judged.marks),
        "diagnosis": None if method.diagnosis is None else dict(method.diagnosis),
        "seconds": {"fit": round(seconds, 3), "predict": round(predicted, 3)},
        "peak_mib": round(measure_peak(), 1),
        "predictions": None,
    }
    return record, method, prediction


@cache
def _compile() -> None:
    """Use the kernels of the entropies once: a machine's first time compiles them, which is no method's own time."""
    p = torch.full((1, 2), 0.5, dtype=torch.float64)
    for credal in (IntervalSet(p - 0.1, p + 0.1), HullSet(p[None])):
        uncertainty(credal, certify=True)


def about(run: Run, task: Task) -> dict[str, Any]:
    """What a record says of a run however it ended.

    Args:
        run: The run.
        task: Its task.
    """
    versions = {"credalgnn": __version__, "python": platform.python_version(), "torch": torch.__version__}
    described = {
        "format": FORMAT,
        "dataset": run.dataset,
        "method": run.method,
        "seed": run.seed,
        "split_seed": run.split_seed,
        "protocol": run.protocol,
        "setting": run.setting,
        "fingerprint": task.fingerprint,
        "config": run.described,
        "versions": {**versions, "numpy": np.__version__},
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    outside = {"method": run.path, "dataset": None if task.source.startswith("named: ") else task.source or "a Task"}
    source = {name: place for name, place in outside.items() if place}
    return {**described, "source": source} if source else described


def judge(run: Run, task: Task, models: ModelCache, on_epoch: Callable[[Epoch], None] | None = None) -> Evaluation:
    """Fit, and judge on what tuning may look at: the validation nodes, under the sealed protocol the ID ones alone.

    Of an inductive task these are predicted as early stopping sees them, where no other nodes have come yet.

    Args:
        run: What to fit.
        task: On what.
        models: Where models that several runs stand on are kept.
        on_epoch: Is shown every line of the training curve of what is not shared.
    """
    method, _ = fit(run, task, models, on_epoch)
    if task.inductive:
        view, part = task.training, task.validation
        prediction = method.predict(view.val_graph, view.val)
        return evaluate_known(replace(prediction, nodes=part.nodes[~part.is_ood]), task)
    prediction = method.predict(nodes=task.validation.nodes)
    return evaluate_known(prediction, task) if run.protocol == "sealed" else evaluate(prediction, task, "validation")


def _digits(value: float) -> float | None:
    return float(f"{value:.6g}") if np.isfinite(value) else None


def _peak_memory() -> Callable[[], float]:
    """Start measuring the peak of this process's memory; call what is returned for the peak in MiB.

    Linux can forget an earlier peak; elsewhere it is the largest since the process began.
    """
    status = Path("/proc/self/status")
    try:
        Path("/proc/self/clear_refs").write_text("5")
        if "VmHWM" not in status.read_text():
            raise OSError
    except OSError:
        try:
            import resource  # here, as Windows has none
        except ImportError:
            return lambda: math.nan
        unit = 2**20 if sys.platform == "darwin" else 2**10
        return lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
    return lambda: int(status.read_text().split("VmHWM:")[1].split()[0]) / 1024
