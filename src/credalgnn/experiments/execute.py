"""One run: fit a method on a task with a seed, evaluate it, and make the record."""

from __future__ import annotations

import hashlib
import json
import math
import platform
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from .._version import __version__
from ..graphs import Task
from ..methods import Method, MethodError, Prediction, load_method
from ..methods.parameters import has_seed
from ..methods.training_data import EvalProtocol
from ..metrics import Evaluation, evaluate, evaluate_known
from ..nn.training import Epoch
from ..records.node_tables import Columns, columns
from ..records.schema import FORMAT, read_json
from ..runtime.files import locked, to_json, write
from ..sets import HullSet, IntervalSet, uncertainty
from .plan import Run

SECONDS = "seconds.json"  # in the folder of a shared model: the seconds that its fit took


class Fitted(NamedTuple):
    """A fitted method, and the seconds it took with its components."""

    method: Method
    seconds: float


@dataclass(frozen=True)
class ModelCache:
    """Folder of fitted models that several runs share; each is trained once, by whichever process needs it first."""

    folder: Path

    def components(self, run: Run, task: Task) -> list[Fitted]:
        """Load or fit the models below a run; while another process fits one, continue with the next."""
        kind = run.kind.components.kind if run.kind.components else run.kind
        ready: dict[int, Fitted] = {}
        for wait in (False, True):
            for number, config in enumerate(run.components):
                if number not in ready and (fitted := self._get(kind, config, run.protocol, task, wait)) is not None:
                    ready[number] = fitted
        return [ready[number] for number in range(len(run.components))]

    def _get(
        self, kind: type[Method], config: Mapping[str, Any], protocol: EvalProtocol, task: Task, wait: bool
    ) -> Fitted | None:
        identity = json.dumps([kind.name, config, protocol, task.fingerprint], sort_keys=True)
        path = self.folder / hashlib.blake2b(identity.encode(), digest_size=12).hexdigest()
        with locked(path / "lock", wait) as locked_here:
            if not locked_here:
                return None
            try:
                method = load_method(path, task, method=kind, device=config.get("device", "cpu"))
                return Fitted(method, float(read_json(path / SECONDS, "a time")["seconds"]))
            except (MethodError, OSError, ValueError, LookupError, TypeError):  # missing or incomplete
                begin = time.perf_counter()
                method = kind(**config).fit(task, protocol=protocol, progress=False)
                seconds = time.perf_counter() - begin
                method.save(path)
                write(path / SECONDS, to_json({"seconds": seconds}))
                return Fitted(method, seconds)


def fit(run: Run, task: Task, models: ModelCache, on_epoch: Callable[[Epoch], None] | None = None) -> Fitted:
    """Fit a run; `on_epoch` gets the training curve of what is not shared."""
    kind = run.kind
    components = models.components(run, task)
    config = dict(run.config)
    if kind.components is not None:
        fitted = [each.method for each in components]
        config[kind.components.parameter] = fitted if kind.components.size else fitted[0]
    elif components:
        return components[0]
    if has_seed(kind):
        config["seed"] = run.seed
    method = kind(**config)
    begin = time.perf_counter()
    method.fit(task, protocol=run.protocol, progress=False, on_epoch=on_epoch)
    return Fitted(method, sum(each.seconds for each in components) + time.perf_counter() - begin)


def execute(
    run: Run, task: Task, models: ModelCache, keep_nodes: bool = False
) -> tuple[dict[str, Any], Columns | None]:
    """Return the record of a run and, with `keep_nodes`, the table of its predictions."""
    nodes = torch.cat([task.validation.nodes, task.test.nodes]) if keep_nodes else task.test.nodes
    record, method, prediction = evaluated_run(run, task, models, nodes)
    return record, columns(prediction, task, method) if keep_nodes else None


def evaluated_run(run: Run, task: Task, models: ModelCache, nodes: Tensor) -> tuple[dict[str, Any], Method, Prediction]:
    """Fit, predict `nodes` (the test nodes among them) and evaluate: the record, the fitted method, its prediction."""
    measure_peak = _peak_memory()
    if run.kind.is_credal:
        _compile()
    method, seconds = fit(run, task, models)
    begin = time.perf_counter()
    prediction = method.predict(nodes=nodes)
    predicted = time.perf_counter() - begin
    evaluation = evaluate(prediction, task)
    record = {
        **about(run, task),
        "status": "done",
        "error": None,
        "class_names": list(task.class_names),
        "ood_names": [task.graph.class_names[k] for k in task.ood_classes],
        "counts": task.counts,
        "headline": evaluation.headline,
        "metrics": evaluation.metrics,
        "scores": evaluation.scores,
        "curves": {
            **evaluation.curves,
            "training": [[line.epoch, _digits(line.loss), _digits(line.monitor)] for line in method.history_],
        },
        "marks": list(evaluation.marks),
        "diagnosis": None if method.diagnosis is None else dict(method.diagnosis),
        "seconds": {"fit": round(seconds, 3), "predict": round(predicted, 3)},
        "peak_mib": round(measure_peak(), 1),
        "predictions": None,
    }
    return record, method, prediction


def evaluate_validation(
    run: Run, task: Task, models: ModelCache, on_epoch: Callable[[Epoch], None] | None = None
) -> Evaluation:
    """Fit, and evaluate on the validation nodes that tuning may read: under the sealed protocol the ID ones alone.

    Those of an inductive task are predicted in the graph of early stopping.
    """
    method, _ = fit(run, task, models, on_epoch)
    if task.inductive:
        view, part = task.training, task.validation
        prediction = method.predict(view.val_graph, view.val)
        return evaluate_known(replace(prediction, nodes=part.nodes[~part.is_ood]), task)
    prediction = method.predict(nodes=task.validation.nodes)
    return evaluate_known(prediction, task) if run.protocol == "sealed" else evaluate(prediction, task, "validation")


def about(run: Run, task: Task) -> dict[str, Any]:
    """The fields of a record that do not depend on how the run ended."""
    versions = {"credalgnn": __version__, "python": platform.python_version(), "torch": torch.__version__}
    record: dict[str, Any] = {
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
    if source:
        record["source"] = source
    return record if getattr(run.kind, "is_ranked", True) else {**record, "ranked": False}


@cache
def _compile() -> None:
    """Compile the entropy kernels before any time is measured."""
    p = torch.full((1, 2), 0.5, dtype=torch.float64)
    for credal in (IntervalSet(p - 0.1, p + 0.1), HullSet(p[None])):
        uncertainty(credal, certify=True)


def _digits(value: float) -> float | None:
    return float(f"{value:.6g}") if np.isfinite(value) else None


def _peak_memory() -> Callable[[], float]:
    """Start measuring this process's peak memory; the returned function gives the peak in MiB.

    Linux can forget an earlier peak; elsewhere it is the largest since the process began.
    """
    status = Path("/proc/self/status")
    try:
        Path("/proc/self/clear_refs").write_text("5")
        if "VmHWM" not in status.read_text():
            raise OSError
    except OSError:
        try:
            import resource  # Windows has none
        except ImportError:
            return lambda: math.nan
        unit = 2**20 if sys.platform == "darwin" else 2**10
        return lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
    return lambda: int(status.read_text().split("VmHWM:")[1].split()[0]) / 1024
