"""One run: a method, a task and a seed, fitted and judged. What several runs need is trained once."""

from __future__ import annotations

import hashlib
import json
import platform
import resource
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray

from .._version import __version__
from ..graphs import Task
from ..methods import (
    METHODS,
    ClassicalEnsemble,
    Method,
    MethodError,
    Prediction,
    Vanilla,
    load_method,
)
from ..methods.base import Protocol
from ..methods.detectors import PostHoc
from ..methods.neural import CredalFinal, Neural
from ..nn.training import Epoch
from ..sets import HullSet, IntervalSet, uncertainty
from .files import locked, write
from .metrics import Evaluation, evaluate, evaluate_known, rows_of_part

FORMAT = 2  # of records
SETTINGS = ("transductive", "inductive")


@dataclass(frozen=True)
class Run:
    """What to fit, as plain values: the same in every process and on every machine.

    ``config`` are the method's hyper-parameters without its seed; ``vanillas`` those, with their seeds, of the vanilla
    GNNs that a post-hoc method or an ensemble stands on, or that vanilla itself is. ``inductive`` is the task's.
    """

    dataset: str
    method: str
    seed: int
    protocol: Protocol
    split_seed: int = 0
    config: dict[str, Any] = field(default_factory=dict)
    vanillas: tuple[dict[str, Any], ...] = ()
    inductive: bool = False

    @property
    def setting(self) -> str:
        return SETTINGS[self.inductive]

    @property
    def words(self) -> str:
        return f"{self.dataset} {self.method} seed {self.seed}"

    @property
    def described(self) -> dict[str, Any]:
        """The configuration as a record keeps it; vanilla GNNs that differ in their seeds only are written once."""
        plain = [{name: value for name, value in one.items() if name != "seed"} for one in self.vanillas]
        if not plain or self.method == Vanilla.name:
            return self.config
        same = all(one == plain[0] for one in plain)
        return {**self.config, **({"vanilla": plain[0]} if same else {"members": plain})}


def plan(
    dataset: str,
    method: str,
    seed: int,
    protocol: Protocol = "sealed",
    split_seed: int = 0,
    settings: Mapping[str, Any] | None = None,
    vanillas: Sequence[Mapping[str, Any]] = ({},),
    inductive: bool = False,
) -> Run:
    """A run with every hyper-parameter spelled out: ``settings`` of the method, ``vanillas`` of what it stands on.

    What is not set is the default, and early stopping follows the protocol. One set of hyper-parameters serves all
    members of an ensemble; with several of them each is a member.
    """
    if inductive and protocol == "paper":
        raise MethodError("the paper's protocol is transductive: choose the sealed one for the inductive setting")
    kind = METHODS[method]
    config = _complete(kind, settings or {}, protocol)
    below: tuple[dict[str, Any], ...] = ()
    if kind is Vanilla:
        below = ({**config, "seed": seed},)
    elif stands_on_vanillas(kind):
        whole = [_complete(Vanilla, one, protocol) for one in vanillas]
        if len(whole) > 1:
            config["size"] = len(whole)
        size = config.get("size", 1)
        members = whole if len(whole) > 1 else whole * size
        below = tuple({**one, "seed": seed * size + number} for number, one in enumerate(members))
    return Run(dataset, method, seed, protocol, split_seed, config, below, inductive)


def stands_on_vanillas(kind: type[Method]) -> bool:
    """Whether a method scores vanilla GNNs instead of training a network of its own."""
    return issubclass(kind, PostHoc | ClassicalEnsemble)


def options(kind: type[Method]) -> dict[str, Any]:
    """A method's hyper-parameters with their defaults."""
    return {one.name: one.default for one in fields(kind) if one.name not in ("seed", "vanilla", "members")}


def _complete(kind: type[Method], settings: Mapping[str, Any], protocol: Protocol) -> dict[str, Any]:
    config = options(kind)
    if issubclass(kind, Neural) and protocol == "paper":
        config["monitor"] = "ood_auroc" if issubclass(kind, CredalFinal) else "id_f1"
        if issubclass(kind, CredalFinal):
            config["half_length_decay"] = 0.0  # which the paper does not have
    unknown = [name for name in settings if name not in config]
    if unknown:
        raise MethodError(f"{kind.name} has no hyper-parameter {unknown[0]!r}; it has {', '.join(config) or 'none'}")
    config.update(settings)
    if config.get("monitor") == "ood_auroc" and protocol == "sealed":
        raise MethodError("monitor 'ood_auroc' looks at OOD validation nodes, which the sealed protocol forbids")
    checked = kind(**config)  # refuses what cannot work, before anything is run
    return {name: getattr(checked, name) for name in config}


class Fitted(NamedTuple):
    """A fitted method, and the seconds it took with all that it stands on."""

    method: Method
    seconds: float


@dataclass(frozen=True)
class Models:
    """Fitted vanilla GNNs on disk: methods, processes and resumed benchmarks share them, and each is trained once."""

    folder: Path

    def of(self, run: Run, task: Task) -> list[Fitted]:
        """The vanilla GNNs of a run. While another process trains one of them, this one turns to the next."""
        found: dict[int, Fitted] = {}
        for wait in (False, True):
            for number, config in enumerate(run.vanillas):
                if number not in found and (one := self._one(config, run.protocol, task, wait)) is not None:
                    found[number] = one
        return [found[number] for number in range(len(run.vanillas))]

    def _one(self, config: Mapping[str, Any], protocol: Protocol, task: Task, wait: bool) -> Fitted | None:
        what = json.dumps([config, protocol, task.fingerprint, __version__], sort_keys=True)
        path = self.folder / hashlib.blake2b(what.encode(), digest_size=12).hexdigest()
        with locked(path / "lock", wait) as held:
            if not held:
                return None
            try:
                kept = load_method(path, task, device=config["device"])
                return Fitted(kept, float((path / "seconds").read_text()))
            except (MethodError, OSError, ValueError):  # not there yet, or not whole
                begin = time.perf_counter()
                made = Vanilla(**config).fit(task, protocol=protocol, progress=False)
                seconds = time.perf_counter() - begin
                made.save(path)
                write(path / "seconds", str(seconds).encode())
                return Fitted(made, seconds)


def fit(run: Run, task: Task, models: Models, on_epoch: Callable[[Epoch], None] | None = None) -> Fitted:
    """Fit what a run describes."""
    kind = METHODS[run.method]
    below = models.of(run, task)
    shared = sum(one.seconds for one in below)
    if kind is Vanilla:
        return Fitted(below[0].method, shared)
    if issubclass(kind, PostHoc):
        method: Method = kind(**run.config, vanilla=cast(Vanilla, below[0].method), seed=run.seed)
    elif issubclass(kind, ClassicalEnsemble):
        method = kind(**run.config, members=[cast(Vanilla, one.method) for one in below], seed=run.seed)
    else:
        method = kind(**run.config, seed=run.seed) if issubclass(kind, Neural) else kind(**run.config)
    begin = time.perf_counter()
    method.fit(task, protocol=run.protocol, progress=False, on_epoch=on_epoch)
    return Fitted(method, shared + time.perf_counter() - begin)


def execute(run: Run, task: Task, models: Models, keep_nodes: bool = False) -> tuple[dict[str, Any], Columns | None]:
    """Fit, predict, judge on the test nodes: the record, and if wanted what was predicted for each node."""
    measure_peak = _peak_memory()
    if METHODS[run.method].is_credal:
        _compile()
    method, seconds = fit(run, task, models)
    nodes = torch.cat([task.validation.nodes, task.test.nodes]) if keep_nodes else task.test.nodes
    begin = time.perf_counter()
    prediction = method.predict(nodes=nodes)
    predicted = time.perf_counter() - begin
    judged = evaluate(prediction, task)
    curve = method.history_ if isinstance(method, Neural) else []
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
        "curves": {**judged.curves, "training": [[e, _digits(loss), _digits(seen)] for e, loss, seen in curve]},
        "marks": list(judged.marks),
        "diagnosis": None if method.diagnosis is None else dict(method.diagnosis),
        "seconds": {"fit": round(seconds, 3), "predict": round(predicted, 3)},
        "peak_mib": round(measure_peak(), 1),
    }
    return record, columns(prediction, task, method) if keep_nodes else None


@cache
def _compile() -> None:
    """Use the kernels of the entropies once: a machine's first time compiles them, which is no method's own time."""
    p = torch.full((1, 2), 0.5, dtype=torch.float64)
    for credal in (IntervalSet(p - 0.1, p + 0.1), HullSet(p[None])):
        uncertainty(credal, certify=True)


def about(run: Run, task: Task) -> dict[str, Any]:
    """What a record says of a run however it ended."""
    versions = {"credalgnn": __version__, "python": platform.python_version(), "torch": torch.__version__}
    return {
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


def judge(run: Run, task: Task, models: Models, on_epoch: Callable[[Epoch], None] | None = None) -> Evaluation:
    """Fit, and judge on what tuning may look at: the validation nodes, under the sealed protocol the ID ones alone.

    Of an inductive task these are predicted as early stopping sees them, where no other nodes have come yet.
    """
    method, _ = fit(run, task, models, on_epoch)
    if task.inductive:
        view, part = task.training, task.validation
        found = method.predict(view.val_graph, view.val)
        return evaluate_known(replace(found, nodes=part.nodes[~part.is_ood]), task)
    prediction = method.predict(nodes=task.validation.nodes)
    return evaluate_known(prediction, task) if run.protocol == "sealed" else evaluate(prediction, task, "validation")


Columns = dict[str, NDArray[Any] | list[Any]]


REASONS = 20_000  # nodes of which a table says why they are uncertain, at the most: words take time and room


def columns(prediction: Prediction, task: Task, method: Method | None = None) -> Columns:
    """A prediction as a table, one row per node, with the truth beside it, and what the method says of its reasons."""
    parts = {"val": task.validation, "test": task.test}
    rows = torch.cat([rows_of_part(prediction, part, name) for name, part in parts.items()])
    nodes, labels = (torch.cat([getattr(part, name) for part in parts.values()]) for name in ("nodes", "labels"))
    table: Columns = {
        "node": nodes.numpy(),
        "split": np.repeat(list(parts), [len(part.nodes) for part in parts.values()]),
        "label": labels.numpy(),
        "class": np.array(task.graph.class_names, dtype=object)[task.graph.labels[nodes].numpy()],
        "ood": (labels < 0).numpy(),
        "prediction": [None] * len(nodes),
    }
    table.update({f"score_{name}": values[rows].numpy() for name, values in prediction.scores.items()})
    if prediction.probabilities is not None:
        table["prediction"] = prediction.classes[rows].numpy()
        table.update({f"p_{k}": p.numpy() for k, p in enumerate(prediction.probabilities[rows].unbind(-1))})
    if prediction.credal is not None:
        for side in ("lower", "upper"):
            each = getattr(prediction.credal, side)[rows].double().unbind(-1)
            table.update({f"{side}_{k}": bound.numpy() for k, bound in enumerate(each)})
    if method is not None and len(nodes) <= REASONS and (reasons := method.why(nodes)) is not None:
        table["why"] = list(reasons)
    return table


NEIGHBOURS = 30  # of a node that are kept for the page


def graph_columns(tasks: Sequence[Task]) -> Columns:
    """Facts of a graph about validation and test nodes of its splits: degree, homophily, neighbours, their classes."""
    graph = tasks[0].graph
    nodes = torch.cat([part.nodes for task in tasks for part in (task.validation, task.test)])
    nodes = torch.from_numpy(np.unique(nodes.numpy()))
    source, target = graph.edge_index
    order = (target * graph.num_nodes + source).argsort()
    source, target = source[order], target[order]
    degree = torch.bincount(target, minlength=graph.num_nodes)
    starts = degree.cumsum(0) - degree
    alike = (graph.labels[source] == graph.labels[target]).double()
    share = torch.zeros(graph.num_nodes, dtype=torch.float64).index_add_(0, target, alike) / degree
    near = [source[starts[v] : starts[v] + min(int(degree[v]), NEIGHBOURS)].tolist() for v in nodes.tolist()]
    names = [*graph.class_names, "unknown"]  # the last serves label -1
    labels = graph.labels.tolist()
    return {
        "node": nodes.numpy(),
        "degree": degree[nodes].numpy(),
        "homophily": [None if value != value else value for value in share[nodes].tolist()],
        "neighbours": near,
        "neighbour_classes": [[names[labels[v]] for v in row] for row in near],
    }


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
        return lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return lambda: int(status.read_text().split("VmHWM:")[1].split()[0]) / 1024
