"""Model of one graph: a fitted method with all it takes to use it on other tables, and its folder."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save as save_tensors
from torch import Tensor

from .._version import __version__
from ..graphs import Graph, Part
from ..methods import InputWarning, Method, MethodError, Prediction, load_method
from ..methods.base import CHUNK, room_for
from ..methods.calibration import KnownNodes, calibration_nodes_for
from ..methods.checkpoints import holds_checkpoints
from ..methods.large import budget_of, fits
from ..methods.storage import CONFIG, WEIGHTS
from ..metrics import Evaluation
from ..metrics.evaluation import evaluate_nodes
from ..runtime.errors import translated
from ..runtime.files import check_writable, checksum, find_link, sealed_with, to_json, write
from ..runtime.reading import parse_json, read_bytes, read_tensors
from ..runtime.warn import warn_caller
from .reading import Loaded, TableReader, read_to_predict
from .summary import PAGE, card, facts, percent, sample_nodes, summary_text

FALSE_ALARMS, COVERAGE = 0.05, 0.95  # defaults
NOT_IDENTIFIED = (
    "Nodes that the model was fitted with cannot be identified: that takes ids, in this graph and in the fitted one."
)

FORMAT = 3
MODEL, PARTS, CARD, TUNING = "model.json", "parts.safetensors", "README.md", "tuning"
SUMMED = (WEIGHTS, CONFIG, PARTS)  # the checksums of these are in model.json
CHECKPOINTS = "checkpoints"  # training states of a fit that is not finished
DAMAGED = "damaged"  # for damaged records (`credalgnn check --repair`)
AGAIN = "copy the folder again, or fit again"
_PART = re.compile(rf"\.({'|'.join(map(re.escape, (*SUMMED, MODEL, CARD, PAGE)))})\.\d+\.part")  # of a killed process


@dataclass(frozen=True, eq=False)
class ModelEvaluation:
    """Quality of a model on labelled nodes that it was not fitted with; ``print`` shows it as a table.

    Attributes:
        evaluation: All metrics.
        nodes: Number of nodes judged.
        unfamiliar: Number of these of no class that the model knows.
        left_out: Number of labelled nodes left out, as the model was fitted with them.
        false_alarms: Promised rate of false alarms; None: too few calibration nodes for any.
        flagged_known: Share of nodes of known classes that are flagged; None: there are none.
        flagged_ood: Share of unfamiliar nodes that are flagged; None: there are none.
        coverage: Promised coverage of the sets of classes; None: too few calibration nodes for any.
        covered: Share of nodes of known classes with the true class in their set; None: there are none.
        set_size: Mean size of these sets.
        calibrated_here: Whether calibration nodes were scored in the graph of these nodes.
        eligible: Number of nodes that could be judged; 100,000 at most are if the graph does not fit in memory.
        identified: Whether nodes that the model was fitted with could be identified; else they may be judged.

    Example:
        >>> result = cg.load_model("model/").evaluate("checked.csv", "edges.csv")
        >>> result.evaluation.metrics["accuracy"], result.flagged_known
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
    calibrated_here: bool
    eligible: int
    identified: bool

    def __str__(self) -> str:
        familiar = self.nodes - self.unfamiliar
        others = f", {self.left_out:,} others left out that the model was fitted with" if self.left_out else ""
        count = f"{self.nodes:,} of {self.eligible:,}" if self.nodes < self.eligible else f"{self.nodes:,}"
        lines = [f"{count} labelled nodes judged, {self.unfamiliar:,} of them of no known class{others}."]
        if not self.identified:
            lines.append(f"{NOT_IDENTIFIED} They may be among these.")
        metrics, headline = self.evaluation.metrics, self.evaluation.headline
        rows = []
        if familiar and metrics.get("accuracy") is not None:
            rows.append(["accuracy", percent(metrics["accuracy"]), f"of {familiar:,} nodes of known classes"])
            rows.append(["calibration error", percent(metrics["ece"]), ""])
        if self.covered is not None and self.set_size is not None and self.coverage is not None:
            promised = f"promised {100 * self.coverage:g} %, with {self.set_size:.2f} classes per node"
            rows.append(["true class in question", percent(self.covered), promised])
        if self.flagged_known is not None and self.false_alarms is not None:
            rows.append(["false alarms", percent(self.flagged_known), f"allowed {100 * self.false_alarms:g} %"])
        if self.flagged_ood is not None:
            rows.append(["unknown classes flagged", percent(self.flagged_ood), f"of {self.unfamiliar:,}"])
        if (auroc := self.evaluation.scores[headline].get("auroc")) is not None:
            rows.append([f"AUROC of {headline}", percent(auroc), "unknown against known classes; 50 is chance"])
        lines += [facts(rows)] if rows else []
        if self.false_alarms is None:
            lines.append("No rate of false alarms as low as 5 % can be promised: too few calibration nodes.")
        elif not self.calibrated_here:
            lines.append("The rates are promised for nodes as they were in the fitted graph, whose nodes are not here.")
        return "\n".join(lines)


@dataclass(frozen=True, eq=False)
class Model:
    """Model of one graph, made by ``fit`` or ``load_model``; ``print`` shows its summary.

    Attributes:
        method: Fitted method.
        parts: Nodes that it was fitted with: train, val and calibration.
        reader: Reader of its tables; None: it was fitted on a graph.
        summary: Its quality, as plain values.

    Example:
        >>> model = cg.fit("nodes.csv", "edges.csv", label="topic")
        >>> prediction = model.predict("new.csv", "new_edges.csv", context=("nodes.csv", "edges.csv"))
        >>> prediction.flag_unfamiliar(false_alarms=0.05)
    """

    method: Method
    parts: Mapping[str, KnownNodes]
    reader: TableReader | None
    summary: Mapping[str, Any] = field(repr=False)

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the known classes."""
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
        """Predict nodes of the fitted graph, of another one, or of tables.

        Args:
            data: Table of nodes (file, pyarrow table or data frame), ``Graph``, or file or folder that holds one. None:
                the fitted graph, which a loaded model does not have.
            edges: Table of edges, if ``data`` is one of nodes.
            context: Tables ``(nodes, edges)``, or their folder, of earlier nodes to which new ones may be joined: those
                of ``fit``, for example, so that calibration nodes are scored in the same graph. They are not predicted.
            ids: Only these nodes.
            memory: Memory budget of this call, as in ``"4GiB"``; None: what is available.
        """
        return self.method.predict(**self._selected(data, edges, context, ids), memory=memory)

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
        """Predict some nodes at a time, in their order.

        Args:
            data: See ``predict``.
            edges: See ``predict``.
            context: See ``predict``.
            ids: See ``predict``.
            size: Nodes of a chunk at most; fewer if their predictions would take half of the memory.
            memory: See ``predict``.
            workers: Number of tasks of a Ray cluster that help; None: this process alone.
            address: ``HOST:PORT`` of the cluster; None: that of ``RAY_ADDRESS``, or the one that Ray finds.
        """
        selected = self._selected(data, edges, context, ids)
        return self.method.predict_chunks(**selected, size=size, memory=memory, workers=workers, address=address)

    def _selected(self, data: Any, edges: Any, context: Any, ids: Sequence[Any] | None) -> dict[str, Any]:
        """Return the arguments of the method's ``predict``: a graph and some of its nodes."""
        if data is None:
            if self.method.graph_ is None:
                raise MethodError("a loaded model does not have the graph it was fitted on: give data")
            return {"ids": ids}
        loaded = self.read(data, edges, context)
        return {"graph": loaded.graph, "nodes": None if ids is not None else loaded.nodes, "ids": ids}

    def read(self, data: Any, edges: Any = None, context: Any = None) -> Loaded:
        """Return the graph to predict, its features encoded as in ``fit``.

        Args:
            data: See ``predict``.
            edges: See ``predict``.
            context: See ``predict``.
        """
        return read_to_predict(data, edges, context, self.reader, self.class_names)

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
        """Judge the model on labelled nodes; labels of no known class are those of unfamiliar nodes.

        Nodes that the model was fitted with, identified by their ids, are left out; if they cannot be identified, there
        is an ``InputWarning``. Of a graph that does not fit in memory, 100,000 random nodes at most are judged.

        Args:
            data: See ``predict``; with labels.
            edges: See ``predict``.
            context: See ``predict``.
            false_alarms: Rate of false alarms of the flags; None: see ``promises``.
            coverage: Coverage of the sets of classes; None: see ``promises``.
            memory: Memory budget, as in ``"4GiB"``; None: what is available.
        """
        loaded = self.read(data, edges, context)
        graph = loaded.graph
        labelled = torch.zeros(graph.num_nodes, dtype=torch.bool)
        labelled[loaded.nodes] = graph.labels[loaded.nodes] >= 0
        if not bool(labelled.any()):
            column = f" (column {self.reader.columns.label!r})" if self.reader is not None else ""
            raise MethodError(f"no node has a label{column}, so there is nothing to judge by")
        identified = check_identified(self, graph)
        eligible = (labelled & ~self.fitted_mask(graph)).nonzero().squeeze(-1)
        if not len(eligible):
            raise MethodError("the model was fitted with all labelled nodes of data: give others")
        budget, nodes = budget_of(memory), eligible
        if not fits(graph, len(self.class_names), budget):
            nodes = sample_nodes(eligible, room_for(self.method, budget))
        prediction = self.method.predict(graph, nodes, memory=memory)
        false_alarms, coverage = self.promises(prediction, false_alarms, coverage)
        unfamiliar = graph.labels[nodes] >= len(self.class_names)
        truth = Part(nodes, graph.labels[nodes].where(~unfamiliar, -1), unfamiliar)
        flags = None if false_alarms is None else prediction.flag_unfamiliar(false_alarms)
        sets = None if coverage is None else prediction.sets(coverage)[~unfamiliar]
        hits = None if sets is None else sets.gather(1, truth.labels[~unfamiliar][:, None]).squeeze(1)
        assert prediction.calibration is not None
        return ModelEvaluation(
            evaluation=evaluate_nodes(prediction, truth),
            nodes=len(nodes),
            unfamiliar=int(unfamiliar.sum()),
            left_out=int(labelled.sum()) - len(eligible),
            false_alarms=false_alarms,
            flagged_known=None if flags is None else _mean(flags[~unfamiliar]),
            flagged_ood=None if flags is None else _mean(flags[unfamiliar]),
            coverage=coverage,
            covered=None if hits is None else _mean(hits),
            set_size=None if sets is None else _mean(sets.sum(-1)),
            calibrated_here=prediction.calibration.alike,
            eligible=len(eligible),
            identified=identified,
        )

    @staticmethod
    def promises(
        prediction: Prediction, false_alarms: float | None = None, coverage: float | None = None
    ) -> tuple[float | None, float | None]:
        """Return the rate of false alarms and the coverage to use, by default as far as they can be promised.

        Args:
            prediction: Prediction of this model.
            false_alarms: Rate to use; None: 0.05 if there are enough calibration nodes, else None.
            coverage: Coverage to use; None: 0.95 likewise, and None if no classes are predicted.
        """
        count = 0 if prediction.calibration is None else len(prediction.calibration.scores)
        if false_alarms is None and count >= calibration_nodes_for(false_alarms=FALSE_ALARMS):
            false_alarms = FALSE_ALARMS
        if coverage is None and count >= calibration_nodes_for(coverage=COVERAGE):
            coverage = COVERAGE
        return false_alarms, None if prediction.probabilities is None else coverage

    def fitted_mask(self, graph: Graph) -> Tensor:
        """Return a mask ``[N]`` of the nodes of a graph that the model was fitted with, as far as ids identify them.

        Args:
            graph: The fitted graph, or another one.
        """
        result = torch.zeros(graph.num_nodes, dtype=torch.bool)
        if self.parts:
            numbers = KnownNodes.joined(list(self.parts.values())).numbers_in(graph)
            result[numbers[numbers >= 0]] = True
        return result

    def identifies_nodes(self, graph: Graph) -> bool:
        """Return whether nodes that the model was fitted with can be identified in a graph.

        Args:
            graph: The fitted graph, or another one.
        """
        return all(nodes.identifiable_in(graph) for nodes in self.parts.values())

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the model into a folder: safetensors, JSON and text only, with a model card.

        Args:
            folder: Its path; a folder that holds a model or other files is refused.
        """
        place = Path(folder)
        check_free(place)
        tensors = {f"{name}.{key}": value.clone()
                   for name, nodes in self.parts.items() for key, value in nodes.state().items()}  # fmt: skip
        versions = {"credalgnn": __version__, "python": platform.python_version(), "torch": torch.__version__}
        config: dict[str, Any] = {
            "format": FORMAT,
            "made": datetime.now(UTC).isoformat(timespec="seconds"),
            "versions": {**versions, "numpy": np.__version__},
            "parts": list(self.parts),
            "tables": None if self.reader is None else self.reader.to_json(),
            "summary": dict(self.summary),
        }
        with translated(
            OSError, lambda error: MethodError(f"{place}: cannot be written ({error.strerror}); choose another place")
        ):
            for path in place.glob(".*.part"):
                if _PART.fullmatch(path.name):
                    path.unlink()
            self.method.save(place)
            write(place / PARTS, save_tensors(tensors))
            config["sums"] = {name: checksum((place / name).read_bytes()) for name in SUMMED}
            columns = None if self.reader is None else self.reader.columns
            write(place / CARD, card(self.summary, config, columns, self.method.is_credal).encode())
            write(place / MODEL, to_json(config))  # last: a folder without it is no model

    def __str__(self) -> str:
        return summary_text(self.summary)


def load_model(folder: str | os.PathLike[str], *, method: type[Method] | str | None = None) -> Model:
    """Load a model that ``fit`` or ``Model.save`` wrote; no code in its files is run.

    Args:
        folder: Folder of the model.
        method: Class, or its import path, of a method that is neither built in nor an installed plug-in.

    Example:
        >>> model = cg.load_model("model/")
        >>> model.predict("new.csv", "new_edges.csv").to_parquet("predictions.parquet")
    """
    place = Path(folder)
    config = read_config(place)
    try:
        tensors = read_tensors(place / PARTS)[0]
        parts = {
            name: KnownNodes.from_state({key: tensors[f"{name}.{key}"] for key in ("content", "nodes", "codes")})
            for name in config["parts"]
        }
        reader = None if config["tables"] is None else TableReader.from_json(config["tables"])
        summary_text(config["summary"])  # raises if anything is missing
    except OSError as error:
        raise MethodError(f"{error.filename}: cannot be read ({error.strerror}); copy the folder again") from None
    except MethodError:
        raise
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RuntimeError, MemoryError) as error:
        raise _damaged(place / MODEL, error) from None
    return Model(load_method(place, method=method), parts, reader, config["summary"])


def read_config(folder: Path) -> dict[str, Any]:
    """Return the content of ``model.json`` after checking it and the files whose checksums it has."""
    place = folder / MODEL
    if not folder.is_dir():
        raise MethodError(f"{folder}: no such folder; credalgnn fit makes a model")
    if not place.is_file():
        raise MethodError(f"{folder}: no model in it, or one whose fit was not finished; credalgnn fit makes one")
    try:
        text = read_bytes(place)
        config = parse_json(text)
        if not isinstance(config, dict) or config.get("format") != FORMAT:
            raise MethodError(f"{place}: not a model of format {FORMAT}, which this version reads: fit again")
        if sealed_with(text) is None:
            raise MethodError(f"{place}: damaged or edited, its checksum does not fit; {AGAIN}")
        for name in SUMMED:
            if checksum(read_bytes(folder / name)) != config["sums"][name]:
                raise MethodError(f"{folder / name}: damaged, or of another model; {AGAIN}")
    except OSError as error:
        raise MethodError(f"{error.filename}: cannot be read ({error.strerror}); {AGAIN}") from None
    except MethodError:
        raise
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise _damaged(place, error) from None
    return config


def _damaged(place: Path, error: Exception) -> MethodError:
    return MethodError(f"{place}: damaged ({type(error).__name__}: {' '.join(str(error).split())[:100]}); {AGAIN}")


def check_free(folder: Path) -> None:
    """Refuse a folder that cannot be written, or that holds anything but the rest of an unfinished ``fit``."""
    if (folder / MODEL).exists():
        raise MethodError(f"{folder} holds a model already: name another folder, or remove this one")
    place = next(place for place in (folder.absolute(), *folder.absolute().parents) if os.path.lexists(place))
    if not place.is_dir():
        kind = "a link to no folder" if place.is_symlink() else "a file"
        raise MethodError(f"{place} is {kind}, so {folder} cannot be made: name another folder")
    with translated(
        OSError,
        lambda error: MethodError(f"{folder}: nothing can be written there ({error.strerror}); name another folder"),
    ):
        check_writable(folder, folder=True)
    if (link := find_link(folder)) is not None:
        raise MethodError(f"{link}: a link, which would lead writes elsewhere; remove it, or name another folder")
    ours = {*SUMMED, PAGE, TUNING, DAMAGED}
    if holds_checkpoints(folder / CHECKPOINTS):
        ours.add(CHECKPOINTS)
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    if PARTS in names:
        ours.add(CARD)  # without the parts, a README.md is not of a model
    others = sorted(name for name in names - ours if not _PART.fullmatch(name))
    if others:
        raise MethodError(f"{folder} holds other files ({others[0]}): name a new or an empty folder for the model")


def check_identified(model: Model, graph: Graph) -> bool:
    """Return ``model.identifies_nodes(graph)``, and warn if it is False."""
    if not (identified := model.identifies_nodes(graph)):
        warn_caller(NOT_IDENTIFIED, InputWarning)
    return identified


def _mean(values: Tensor) -> float | None:
    return float(values.double().mean()) if len(values) else None
