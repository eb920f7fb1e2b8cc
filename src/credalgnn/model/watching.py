"""``watch``: monitor new batches for distribution shift."""

from __future__ import annotations

import copy
import hashlib
import json
import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save as save_tensors
from torch import Tensor

from ..conformal import ExchangeabilityTest, p_values
from ..graphs import Graph
from ..methods import Method, MethodError
from ..methods.calibration import ids_of
from ..report.drawing import evidence_chart
from ..runtime.errors import translated
from ..runtime.files import BLANK, Lock, seal, sealed_with, write
from ..runtime.reading import parse_json, parse_tensors, read_bytes, texts_about
from .model import Model, check_identified

STATE, PICTURE, LOCK = "watch.safetensors", "watch.svg", ".watch"
FALSE_ALARMS = 0.01  # over all time
NUMBERS = 1 << 22  # features hashed at a time


@dataclass(frozen=True)
class WatchReport:
    """Result of monitoring one batch; ``print`` shows it in a line.

    Attributes:
        batch: Number of the batch, from 1.
        nodes: Number of its nodes that the model was not fitted with.
        median_p: Median of their p-values against the calibration nodes; about 0.5 without a shift.
        small_p: Share of p-values of at most 0.05; about 0.05 without a shift.
        evidence: Factor by which a bet against "no shift" has multiplied its stake so far.
        highest: Largest value of ``evidence`` so far.
        alarm: Whether ``highest`` has reached 1 / ``false_alarms``.
        false_alarms: Probability that there is ever an alarm without a shift.
        made: Time of the report, in UTC.
        content: Hash of the batch, by which it is recognised.

    Example:
        >>> report = cg.watch(cg.load_model("model/"), "model/", "monday.csv", "monday_edges.csv")
        >>> if report.alarm:
        ...     print(report.reason)
    """

    batch: int
    nodes: int
    median_p: float
    small_p: float
    evidence: float
    highest: float
    alarm: bool
    false_alarms: float
    made: str
    content: str

    def __str__(self) -> str:
        state = "ALARM" if self.alarm else "ok"
        return (
            f"batch {self.batch:<4d} {self.nodes:>9,d} nodes   p-values: median {self.median_p:.2f}, "
            f"{100 * self.small_p:.1f} % up to 0.05   evidence {_times(self.highest)} of "
            f"{1.0 / self.false_alarms:,.0f}   {state}"
        )

    @property
    def reason(self) -> str:
        """Explanation of an alarm."""
        return (
            f"the batches are less familiar than the calibration nodes: the evidence has reached "
            f"{_times(self.highest)}, and without a shift it would ever reach {1.0 / self.false_alarms:,.0f} with a "
            f"probability of at most {self.false_alarms:g}. Look at the flagged nodes (credalgnn predict), label some "
            "of them and fit again."
        )


def watch(
    model: Model,
    folder: str | os.PathLike[str],
    data: Any,
    edges: Any = None,
    *,
    context: Any = None,
    false_alarms: float | None = None,
    reset: bool = False,
    memory: str | int | None = None,
) -> WatchReport:
    """Monitor new batches for distribution shift; the state is kept in the model's folder.

    If new nodes are exchangeable with the calibration nodes, the probability that there is ever an alarm is at most
    ``false_alarms``, however many batches there are. Each node belongs in one batch; nodes that the model was fitted
    with are left out, and if they cannot be identified, there is an ``InputWarning``.

    Args:
        model: Model.
        folder: Folder of the model.
        data: Batch: see ``Model.predict``.
        edges: See ``Model.predict``.
        context: See ``Model.predict``.
        false_alarms: Probability that there is ever an alarm without a shift; None: that of the first batch, or 0.01.
            It cannot be changed later.
        reset: Forget all batches so far.
        memory: Memory budget, as in ``"4GiB"``; None: what is available.

    Example:
        >>> model = cg.load_model("model/")
        >>> print(cg.watch(model, "model/", "monday.csv", "monday_edges.csv", context=("nodes.csv", "edges.csv")))
    """
    place = Path(folder)
    calibration = model.method.calibration_
    if calibration is None:
        raise MethodError("the model was fitted without calibration nodes, so there is nothing to compare with")
    with _locked(place):
        test, history = _read(place, calibration.fitted.scores, false_alarms, reset)
        loaded = model.read(data, edges, context)
        check_identified(model, loaded.graph)
        nodes = loaded.nodes[~model.fitted_mask(loaded.graph)[loaded.nodes]]
        if not len(nodes):
            raise MethodError("the model was fitted with all nodes of this batch: give nodes that came later")
        content = batch_content(loaded.graph, nodes)
        earlier = next((report.batch for report in history if report.content == content), None)
        if earlier is not None:
            raise MethodError(f"this is batch {earlier} again, which is counted: give another, or use `reset`")
        chunks = _as_stored(model.method).predict_chunks(loaded.graph, nodes, memory=memory)
        scores = torch.cat([chunk.score for chunk in chunks])
        p = p_values(calibration.fitted.scores, scores)
        result = test.update(scores)
        report = WatchReport(
            batch=result.batch,
            nodes=result.nodes,
            median_p=float(p.median()),
            small_p=float((p <= 0.05).double().mean()),
            evidence=_exp(result.log_evidence),
            highest=_exp(result.log_highest),
            alarm=result.alarm,
            false_alarms=test.false_alarms,
            made=datetime.now(UTC).isoformat(timespec="seconds"),
            content=content,
        )
        _write(place, test, [*history, report])
    return report


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder."""
    lock = Lock(folder / LOCK)
    with translated(
        OSError,
        lambda error: MethodError(f"{folder}: cannot be written ({error.strerror}), and watch keeps its state there"),
    ):
        lock.take(wait=True)
    try:
        yield
    finally:
        lock.free()


def _as_stored(method: Method) -> Method:
    """Return the method with the calibration scores of ``fit``, so that all batches are compared with the same."""
    if not hasattr(method, "reestimate"):
        return method
    stored = copy.copy(method)
    stored.reestimate = False
    return stored


def batch_content(graph: Graph, nodes: Tensor) -> str:
    """Return a hash of nodes, independent of their context: of ids, features and the edges between them."""
    rows = nodes.sort().values
    parts = torch.split(rows, max(1, NUMBERS // graph.num_features))
    digest = hashlib.blake2b(digest_size=16)
    for kind in range(3):  # all counts, then all columns, then all values
        for part in parts:
            digest.update(sparse_rows(graph.rows(part))[kind].contiguous().numpy().tobytes())
            graph.release()
    place = torch.full((graph.num_nodes,), -1)
    place[rows] = torch.arange(len(rows))
    for side in range(2):  # all sources, then all targets
        for edges in _edge_chunks(graph):
            ends = place[edges]
            digest.update(ends[side, (ends >= 0).all(0)].numpy().tobytes())
    if graph.node_ids is not None:
        for number, part in enumerate(parts):
            texts = map(str, ids_of(graph, part.numpy()).tolist())
            digest.update("\0".join(["", *texts] if number else texts).encode())
    return digest.hexdigest()


def sparse_rows(rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the number of nonzero features of each row, their columns and their values."""
    if rows.layout == torch.strided:
        rows = rows.to_sparse_csr()
    return rows.crow_indices().long().diff(), rows.col_indices().long(), rows.values()


def _edge_chunks(graph: Graph) -> Iterator[Tensor]:
    """Yield edges ``[2, n]`` in their order; those of a packed graph are read chunk by chunk."""
    if graph.path is None:
        yield graph.edge_index
        return
    edges = graph.in_edges
    for first, last in edges.chunks():
        sources = edges.sources[int(edges.starts[first]) : int(edges.starts[last])]
        yield torch.stack([sources.long(), edges.targets(first, last)])
        graph.release()


def _read(
    folder: Path, calibration: Tensor, false_alarms: float | None, reset: bool
) -> tuple[ExchangeabilityTest, list[WatchReport]]:
    place = folder / STATE
    if reset or not place.exists():
        rate = FALSE_ALARMS if false_alarms is None else false_alarms
        with translated(ValueError, lambda error: MethodError(str(error))):
            return ExchangeabilityTest(calibration, 0, rate), []
    with translated(
        (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, OSError),
        lambda error: MethodError(f"{place}: cannot be read ({error}); begin anew with `reset`"),
    ):
        content = read_bytes(place)
        if sealed_with(content) is None:
            raise ValueError("damaged or edited, its checksum does not fit")
        tensors, about = parse_tensors(content), texts_about(content)
        stored = parse_json(about["watch"].encode())
        arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
        test = ExchangeabilityTest.from_state(stored["test"], arrays)
        history = [_report(**report) for report in stored["batches"]]
    if false_alarms is not None and false_alarms != test.false_alarms:
        raise MethodError(
            f"the batches so far were watched with false_alarms={test.false_alarms:g}: give the same, or begin anew "
            "with `reset`"
        )
    return test, history


_TYPES = {"int": (int,), "float": (int, float), "bool": (bool,), "str": (str,)}


def _report(**values: Any) -> WatchReport:
    """Restore a report; values of other types are refused."""
    report = WatchReport(**values)
    for field in fields(WatchReport):
        if type(getattr(report, field.name)) not in _TYPES[str(field.type)]:
            raise ValueError(f"{field.name} of a batch is {getattr(report, field.name)!r:.40}")
    return report


def _write(folder: Path, test: ExchangeabilityTest, history: Sequence[WatchReport]) -> None:
    """Write state and history into one file, so that a kill leaves both or neither, then the picture."""
    values, arrays = test.state()
    stored = {"test": values, "batches": [asdict(report) for report in history]}
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    with translated(OSError, lambda error: MethodError(f"{folder}: cannot be written ({error.strerror})")):
        write(folder / STATE, seal(save_tensors(tensors, {"watch": json.dumps(stored), "checksum": BLANK})))
        write(folder / PICTURE, picture(history).encode())


def _exp(log: float) -> float:
    return math.exp(min(log, 700.0))


def _times(value: float) -> str:
    return f"{value:,.2f}" if value < 1000.0 else f"{value:,.0f}" if value < 1e6 else f"{value:.1e}"


def picture(history: Sequence[WatchReport]) -> str:
    """Return an SVG of the evidence over time, with the share of small p-values of each batch."""
    rate = history[-1].false_alarms
    evidence = [math.log10(max(report.evidence, 1e-300)) for report in history]
    return evidence_chart(evidence, [report.small_p for report in history], -math.log10(rate))
