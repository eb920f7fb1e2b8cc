"""A fitted method with all it takes to use it on other tables, in a folder that can be handed on."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..graphs import Graph, Part
from ..methods import InputWarning, Method, MethodError, Prediction
from ..methods.base import CHUNK, room_for
from ..methods.calibration import calibration_nodes_for
from ..methods.known_nodes import KnownNodes
from ..methods.large import budget_of, fits
from ..metrics import Evaluation
from ..metrics.evaluation import evaluate_nodes
from ..runtime.warn import warn_caller
from .reading import Loaded, TableReader, to_predict
from .summary import facts, percent, sample_nodes, summary_text

FALSE_ALARMS, COVERAGE = 0.05, 0.95  # where nothing else is said
NOT_TOLD = "Which nodes the model has learnt from cannot be told: that takes ids, in this graph and in the fitted one."


@dataclass(frozen=True, eq=False)
class ModelEvaluation:
    """What a model is worth on labelled nodes it has not learnt from.

    Attributes:
        evaluation: All metrics.
        nodes: How many nodes were judged.
        unfamiliar: How many of them are of no class that the model knows.
        left_out: How many labelled nodes were not judged, because the model has learnt from them.
        false_alarms: The rate that was allowed; None where none can be promised.
        flagged_known: The share of nodes of known classes that were flagged; None where there are none.
        flagged_ood: The share of strangers that were flagged; None where there are none.
        coverage: What was promised of the classes in question; None where nothing can be.
        covered: The share of nodes of known classes whose true class is in question; None where there are none.
        set_size: The mean number of classes in question of these nodes.
        alike: Whether calibration nodes were judged in the same graph (``Calibration.alike``).
        of: How many nodes there were to be judged. Of a graph that does not fit in memory no more than 100,000 are,
            drawn by chance.
        told: Whether nodes that the model has learnt from could be told from others: if not, they may be among them.
    """

    evaluation: Evaluation
    nodes: int
    unfamiliar: int
    left_out: int
    false_alarms: float | None
    flagged_known: float | None
    flagged_ood: float | None
    coverage: float | None
    covered: float | None
    set_size: float | None
    alike: bool
    of: int
    told: bool

    def __str__(self) -> str:
        known = self.nodes - self.unfamiliar
        seen = f", {self.left_out:,} others left out that the model has learnt from" if self.left_out else ""
        among = f"{self.nodes:,} of {self.of:,}" if self.nodes < self.of else f"{self.nodes:,}"
        lines = [f"{among} labelled nodes judged, {self.unfamiliar:,} of them of no known class{seen}."]
        if not self.told:
            lines.append(f"{NOT_TOLD} They may be among these.")
        metrics, headline = self.evaluation.metrics, self.evaluation.headline
        rows = []
        if known and metrics.get("accuracy") is not None:
            rows.append(["accuracy", percent(metrics["accuracy"]), f"of {known:,} nodes of known classes"])
            rows.append(["calibration error", percent(metrics["ece"]), ""])
        if self.covered is not None and self.set_size is not None and self.coverage is not None:
            promised = f"promised {100 * self.coverage:g} %, with {self.set_size:.2f} classes per node"
            rows.append(["true class in question", percent(self.covered), promised])
        if self.flagged_known is not None and self.false_alarms is not None:
            rows.append(["false alarms", percent(self.flagged_known), f"allowed {100 * self.false_alarms:g} %"])
        if self.flagged_ood is not None:
            rows.append(["unknown classes flagged", percent(self.flagged_ood), f"of {self.unfamiliar:,}"])
        auroc = self.evaluation.scores[headline].get("auroc")
        if auroc is not None:
            rows.append([f"AUROC of {headline}", percent(auroc), "unknown against known classes; 50 is chance"])
        lines += [facts(rows)] if rows else []
        if self.false_alarms is None:
            lines.append("No rate of false alarms as low as 5 % can be promised: too few calibration nodes.")
        elif not self.alike:
            lines.append("The rates are promised for nodes as they were in the fitted graph, whose nodes are not here.")
        return "\n".join(lines)


@dataclass(frozen=True, eq=False)
class Model:
    """A fitted method, how its tables are read, and which nodes it has learnt from; ``fit`` makes it.

    Attributes:
        method: The fitted method.
        parts: The nodes that it has learnt from (train, val), and those it calibrates with.
        reader: How tables are read; None where it was fitted on a graph.
        summary: What it is worth, as plain values; ``print(model)`` says it in words.
    """

    method: Method
    parts: Mapping[str, KnownNodes]
    reader: TableReader | None
    summary: Mapping[str, Any] = field(repr=False)

    @property
    def class_names(self) -> tuple[str, ...]:
        """The classes it knows."""
        return self.method.class_names

    def predict(
        self,
        data: Any = None,
        edges: Any = None,
        *,
        context: Any = None,
        ids: Sequence[Any] | None = None,
        memory: str | int | None = None,
    ) -> Prediction:
        """Predict nodes: of the fitted graph, of another one, or of tables.

        Args:
            data: A table of nodes (a file, a pyarrow table, a data frame), a ``Graph``, or a folder or file that holds
                one. None: the fitted graph, which a loaded model does not have.
            edges: A table of edges, where ``data`` is one of nodes.
            context: Tables ``(nodes, edges)`` of nodes that were there before, on which new ones may hang: those that
                the model was fitted on, say, so that it knows its calibration nodes again. They are not predicted.
            ids: Only these nodes.
            memory: Memory budget of this call, as in ``"4GiB"``; None: what is available.
        """
        return self.method.predict(**self._asked(data, edges, context, ids), memory=memory)

    def predict_chunks(
        self,
        data: Any = None,
        edges: Any = None,
        *,
        context: Any = None,
        ids: Sequence[Any] | None = None,
        size: int = CHUNK,
        memory: str | int | None = None,
        workers: int | None = None,
        address: str | None = None,
    ) -> Iterator[Prediction]:
        """As ``predict``, some nodes at a time, in their order.

        Args:
            data: See ``predict``.
            edges: See ``predict``.
            context: See ``predict``.
            ids: See ``predict``.
            size: Nodes of a chunk, at the most: fewer where the answers for so many take half of the memory.
            memory: See ``predict``.
            workers: Let so many tasks of a Ray cluster help; None: this process alone.
            address: ``HOST:PORT`` of the cluster; None: that of ``RAY_ADDRESS``, or the one that Ray finds.
        """
        asked = self._asked(data, edges, context, ids)
        return self.method.predict_chunks(**asked, size=size, memory=memory, workers=workers, address=address)

    def _asked(self, data: Any, edges: Any, context: Any, ids: Sequence[Any] | None) -> dict[str, Any]:
        """What the method is to predict: which graph, and which of its nodes."""
        if data is None:
            if self.method.graph_ is None:
                raise MethodError("a loaded model does not have the graph it was fitted on: say what to predict")
            return {"ids": ids}
        loaded = self.read(data, edges, context)
        return {"graph": loaded.graph, "nodes": None if ids is not None else loaded.nodes, "ids": ids}

    def read(self, data: Any, edges: Any = None, context: Any = None) -> Loaded:
        """Read what is to be predicted, as it was read to learn.

        Args:
            data: See ``predict``.
            edges: See ``predict``.
            context: See ``predict``.
        """
        return to_predict(data, edges, context, self.reader, self.class_names)

    def evaluate(
        self,
        data: Any,
        edges: Any = None,
        *,
        context: Any = None,
        false_alarms: float | None = None,
        coverage: float | None = None,
        memory: str | int | None = None,
    ) -> ModelEvaluation:
        """Judge the model on labelled nodes; labels of no known class are those of strangers.

        Nodes that the model has learnt from, known by their ids, are left out; if neither ids nor the graph tell which
        they are, that is warned of (``InputWarning``). Of a graph that does not fit in memory 100,000 are judged, or
        as many as it has room for the answers of.

        Args:
            data: See ``predict``; with labels.
            edges: See ``predict``.
            context: See ``predict``.
            false_alarms: The rate at which nodes are flagged; None: see ``rates``.
            coverage: Of the classes that stay in question; None: see ``rates``.
            memory: How much memory may be used, as in ``"4GiB"``; None: what is available.
        """
        loaded = self.read(data, edges, context)
        graph = loaded.graph
        labelled = torch.zeros(graph.num_nodes, dtype=torch.bool)
        labelled[loaded.nodes] = graph.labels[loaded.nodes] >= 0
        if not bool(labelled.any()):
            column = f" (column {self.reader.columns.label!r})" if self.reader is not None else ""
            raise MethodError(f"no node has a label{column}, so there is nothing to judge by")
        if not (told := self.can_tell(graph)):
            warn_caller(NOT_TOLD, InputWarning)
        others = (labelled & ~self.seen(graph)).nonzero().squeeze(-1)
        if not len(others):
            raise MethodError("the model has learnt from all labelled nodes that are given: give others")
        nodes = others
        budget = budget_of(memory)
        if not fits(graph, len(self.method.class_names), budget):
            nodes = sample_nodes(others, room_for(self.method, budget))
        prediction = self.method.predict(graph, nodes, memory=memory)
        false_alarms, coverage = self.rates(prediction, false_alarms, coverage)
        stranger = graph.labels[nodes] >= len(self.class_names)
        truth = Part(nodes, graph.labels[nodes].where(~stranger, -1), stranger)
        flagged = None if false_alarms is None else prediction.flag_unfamiliar(false_alarms)
        kept = None if coverage is None else prediction.sets(coverage)[~stranger]
        hits = None if kept is None else kept.gather(1, truth.labels[~stranger][:, None]).squeeze(1)
        assert prediction.calibration is not None
        return ModelEvaluation(
            evaluation=evaluate_nodes(prediction, truth),
            nodes=len(nodes),
            unfamiliar=int(stranger.sum()),
            left_out=int(labelled.sum()) - len(others),
            false_alarms=false_alarms,
            flagged_known=None if flagged is None else _share(flagged[~stranger]),
            flagged_ood=None if flagged is None else _share(flagged[stranger]),
            coverage=coverage,
            covered=None if hits is None else _share(hits),
            set_size=None if kept is None else _share(kept.sum(-1)),
            alike=prediction.calibration.alike,
            of=len(others),
            told=told,
        )

    @staticmethod
    def rates(
        prediction: Prediction, false_alarms: float | None, coverage: float | None
    ) -> tuple[float | None, float | None]:
        """Which false-alarm rate and coverage a prediction is asked for.

        Args:
            prediction: Of this model.
            false_alarms: What was said; None: 0.05 if there are calibration nodes enough to promise it, or else None.
            coverage: What was said; None: 0.95, or None likewise and where no classes are predicted.
        """
        count = 0 if prediction.calibration is None else len(prediction.calibration.scores)
        if false_alarms is None and count >= calibration_nodes_for(false_alarms=FALSE_ALARMS):
            false_alarms = FALSE_ALARMS
        if coverage is None and count >= calibration_nodes_for(coverage=COVERAGE):
            coverage = COVERAGE
        return false_alarms, None if prediction.probabilities is None else coverage

    def seen(self, graph: Graph) -> Tensor:
        """Which nodes of a graph the model has learnt from or calibrates with, as far as ids tell ``[N]``.

        Args:
            graph: The graph.
        """
        result = torch.zeros(graph.num_nodes, dtype=torch.bool)
        if self.parts:
            numbers = KnownNodes.joined(list(self.parts.values())).numbers_in(graph)
            result[numbers[numbers >= 0]] = True
        return result

    def can_tell(self, graph: Graph) -> bool:
        """Whether it can be known which nodes of a graph the model has learnt from: see ``seen``.

        Args:
            graph: The graph.
        """
        return all(known.can_be_told_in(graph) for known in self.parts.values())

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the model into a folder: safetensors, JSON and text only, with a model card.

        Args:
            folder: Where to; a folder that holds a model is refused.
        """
        from .folder import save

        save(self, Path(folder))

    def __str__(self) -> str:
        return summary_text(self.summary)


def load_model(folder: str | os.PathLike[str], *, method: type[Method] | str | None = None) -> Model:
    """Read what ``Model.save`` or ``credalgnn fit`` wrote; runs no code from the files.

    Args:
        folder: The folder.
        method: The class, or its import path, of a method that is neither built in nor an installed plug-in.
    """
    from .folder import load

    return load(Path(folder), method)


def _share(values: Tensor) -> float | None:
    return float(values.double().mean()) if len(values) else None
