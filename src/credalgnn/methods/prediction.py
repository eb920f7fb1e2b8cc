"""Predictions of nodes, and their table for people and other programs (docs/predictions.md)."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .. import conformal
from ..runtime.errors import CredalError
from ..runtime.files import atomic
from ..sets import CredalSet, uncertainty
from .calibration import Calibration, calibration_nodes_for

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped]
    import pyarrow


class MethodError(CredalError, ValueError):
    """Invalid use of a method; the message says why and what to do."""


class NotFittedError(MethodError, AttributeError):
    """Use of a method before `fit`."""


@dataclass(frozen=True, eq=False)
class Prediction:
    """Predictions for nodes, a row each. Every score is higher where the method is less certain.

    Args:
        nodes: The nodes ``[N]``.
        scores: The scores ``[N]`` by name.
        headline: The name of the score that the method is judged by.
        class_names: The names of the classes.
        probabilities: Class probabilities ``[N, C]``; None for methods that do not classify.
        credal: The credal sets ``[N, C]``, for credal methods only.
        gap: A bound in bits of the error of either entropy, total or aleatoric, for credal methods only.
        train_nodes: The nodes of the predicted graph that the method was trained on, where it knows them: ``evaluate``
            refuses to judge it on these.
        node_ids: The ids of the nodes, if their graph has some.
        calibration: The predictions of the calibration nodes; None where the method was fitted without any.
        reasons: A function of node numbers that says in a few words why they are uncertain.
    """

    nodes: Tensor
    scores: Mapping[str, Tensor]
    headline: str
    class_names: tuple[str, ...]
    probabilities: Tensor | None = None
    credal: CredalSet | None = None
    gap: Tensor | None = None
    train_nodes: Tensor | None = None
    node_ids: NDArray[Any] | None = None
    calibration: Calibration | None = None
    reasons: Callable[[Tensor], list[str] | None] | None = field(default=None, repr=False)

    @classmethod
    def of_credal(cls, nodes: Tensor, credal: CredalSet, class_names: tuple[str, ...]) -> Prediction:
        """Classes by the intersection probability, scores by the exact entropies (Equation 1).

        Args:
            nodes: The nodes ``[N]``.
            credal: Their credal sets ``[N, C]``, of any kind.
            class_names: The names of the classes.
        """
        result = uncertainty(credal, certify=True)
        scores = {"EU": result.epistemic, "AU": result.aleatoric, "TU": result.total}
        return cls(nodes, scores, "EU", class_names, credal.intersection_probability(), credal, result.gap)

    @property
    def score(self) -> Tensor:
        """The headline score."""
        return self.scores[self.headline]

    @property
    def classes(self) -> Tensor:
        """The most probable class of each node."""
        if self.probabilities is None:
            raise MethodError(f"this method predicts no classes; its scores are {', '.join(self.scores)}")
        return self.probabilities.argmax(-1)

    def classify(self, by: Literal["intersection", "lower", "upper"] = "intersection") -> Tensor:
        """The class of a credal prediction.

        Args:
            by: The intersection probability, or the largest lower or upper probability.
        """
        if self.credal is None:
            raise MethodError("this method predicts no credal sets: use .classes")
        if by not in ("intersection", "lower", "upper"):
            raise MethodError(f"unknown rule {by!r}: choose intersection, lower or upper")
        return self.classes if by == "intersection" else getattr(self.credal, by).argmax(-1)

    @property
    def total(self) -> Tensor:
        """Total uncertainty, bits."""
        return self._measure("TU")

    @property
    def aleatoric(self) -> Tensor:
        """Aleatoric uncertainty, bits."""
        return self._measure("AU")

    @property
    def epistemic(self) -> Tensor:
        """Epistemic uncertainty, bits."""
        return self._measure("EU")

    @property
    def p_values(self) -> Tensor:
        """Conformal p-value of each node, float64: small where its headline score is unusually high.

        For a node that is exchangeable with the calibration nodes it is at most alpha with probability at most alpha.
        For nodes that the method was trained on there is no such promise.
        """
        calibration = self._calibrated("p-values")
        return conformal.p_values(calibration.scores, self.score)

    def flag_unfamiliar(
        self, false_alarms: float | None = None, *, fdr: float | None = None, by_class: bool = False
    ) -> Tensor:
        """Flag unfamiliar nodes, boolean ``[N]``, with a bounded rate of false alarms.

        Args:
            false_alarms: A node of a known class is flagged with at most this probability, whatever unfamiliar nodes
                look like, if it is exchangeable with the calibration nodes.
            fdr: Instead of that, the expected share of false alarms among all flags (Benjamini and Hochberg).
            by_class: Hold ``false_alarms`` for each predicted class, and not on average over all. Of a class that too
                few calibration nodes are predicted as, no node is flagged.
        """
        rate = false_alarms if fdr is None else fdr
        if rate is None or (false_alarms is not None and fdr is not None):
            raise MethodError("give one rate: flag_unfamiliar(false_alarms=0.05), or flag_unfamiliar(fdr=0.1)")
        if not 0.0 < rate < 1.0:
            raise MethodError(f"{'false_alarms' if fdr is None else 'fdr'} must be between 0 and 1, not {rate}")
        if fdr is not None and by_class:
            raise MethodError("by_class goes with false_alarms: fdr is the rate of all flags together")
        calibration = self._calibrated("a flag with a promise")
        groups = None
        count = len(calibration.scores)
        if by_class:
            if calibration.classes is None:
                raise MethodError("this method predicts no classes, which by_class needs")
            groups = (calibration.classes, self.classes)
            count = int(torch.bincount(calibration.classes, minlength=len(self.class_names)).max())
        self._check_enough(count, rate, "false_alarms" if fdr is None else "fdr")
        p = conformal.p_values(calibration.scores, self.score, groups)
        return conformal.benjamini_hochberg(p, rate) if fdr is not None else conformal.flags(p, rate)

    def sets(self, coverage: float = 0.95) -> Tensor:
        """Conformal prediction sets, boolean ``[N, C]``; wider credal sets give larger ones.

        For nodes of known classes that are exchangeable with the calibration nodes, the true class is in the set with
        at least this probability.

        Args:
            coverage: The probability.
        """
        if not 0.0 < coverage < 1.0:
            raise MethodError(f"coverage must be between 0 and 1, not {coverage}")
        calibration = self._calibrated("prediction sets with a promise")
        if calibration.nonconformity is None or self.probabilities is None:
            raise MethodError(f"this method predicts no classes; its scores are {', '.join(self.scores)}")
        self._check_enough(len(calibration.scores), coverage, "coverage")
        threshold = conformal.threshold(calibration.nonconformity, coverage)
        return conformal.prediction_sets(self.nonconformity(), threshold, self.probabilities)

    def nonconformity(self) -> Tensor:
        """Return the nonconformity of each class, float64 ``[N, C]``, which prediction sets are made from."""
        if self.probabilities is None:
            raise MethodError(f"this method predicts no classes; its scores are {', '.join(self.scores)}")
        return conformal.nonconformity(self.probabilities if self.credal is None else self.credal.upper)

    def as_calibration(self, labels: Tensor, alike: bool) -> Calibration:
        """Return this prediction of calibration nodes as the calibration of others.

        Args:
            labels: Their classes.
            alike: Whether other nodes of known classes are predicted as they are.
        """
        if self.probabilities is None:
            return Calibration(self.score, None, None, alike)
        misfit = self.nonconformity().gather(1, labels[:, None]).squeeze(1)
        return Calibration(self.score, self.classes, misfit, alike)

    def _calibrated(self, what: str) -> Calibration:
        if self.calibration is None:
            raise MethodError(
                f"{what} needs calibration nodes, which took no part in training: fit(graph) sets some aside, "
                "fit(graph, train=, val=, calibration=) takes yours"
            )
        return self.calibration

    @staticmethod
    def _check_enough(count: int, value: float, name: str) -> None:
        needed = calibration_nodes_for(**{name: value})
        if count < needed:
            step = 10.0 ** -max(3, len(str(count)))  # the limit is rounded towards what can be promised
            least = math.ceil(1.0 / (count + 1) / step) * step
            limit = f"at most {1.0 - least:.10g}" if name == "coverage" else f"at least {least:.10g}"
            raise MethodError(
                f"{name}={value:g} needs {needed} calibration nodes; {count} are available: set more labelled nodes "
                f"aside, or choose {limit}"
            )

    def to_table(
        self, false_alarms: float | None = 0.05, coverage: float | None = 0.95, *, reasons: bool = True
    ) -> pyarrow.Table:
        """Return an Arrow table with one row a node: docs/predictions.md has the columns.

        Args:
            false_alarms: The rate of false alarms of the flag ``unfamiliar``; None: no flags.
            coverage: The coverage of the prediction sets ``classes``; None: no sets.
            reasons: Explain flagged nodes, which takes a while for many.
        """
        return table_of(self, false_alarms, coverage, reasons)

    def to_pandas(
        self, false_alarms: float | None = 0.05, coverage: float | None = 0.95, *, reasons: bool = True
    ) -> pandas.DataFrame:
        """Return ``to_table`` as a data frame; needs pandas.

        Args:
            false_alarms: See ``to_table``.
            coverage: See ``to_table``.
            reasons: See ``to_table``.
        """
        return self.to_table(false_alarms, coverage, reasons=reasons).to_pandas()

    def to_parquet(
        self,
        path: str | os.PathLike[str],
        false_alarms: float | None = 0.05,
        coverage: float | None = 0.95,
        *,
        reasons: bool = True,
    ) -> None:
        """Write ``to_table`` as a Parquet file, or a CSV file if the name ends with ``.csv``; whole or not at all.

        Args:
            path: Path of the file.
            false_alarms: See ``to_table``.
            coverage: See ``to_table``.
            reasons: See ``to_table``.
        """
        write_table(self.to_table(false_alarms, coverage, reasons=reasons), path)

    def _measure(self, name: str) -> Tensor:
        if name not in self.scores:
            raise MethodError(f"this method has no {name}; its scores are {', '.join(self.scores)}")
        return self.scores[name]

    def __repr__(self) -> str:
        return f"Prediction(nodes={len(self.nodes)}, classes={len(self.class_names)}, scores={list(self.scores)})"


Predictor: TypeAlias = Callable[[Tensor], Prediction]


@dataclass(frozen=True, eq=False)
class SplitPredictor:
    """A predictor in two steps, of which the costly second one can be done by other processes.

    Attributes:
        read: Gives the arguments of ``judge`` after the nodes.
        judge: Makes the prediction; it can be pickled.
        alike: Whether calibration nodes in this graph are judged as its other nodes of known classes are.
    """

    read: Callable[[Tensor], tuple[Any, ...]]
    judge: Callable[..., Prediction]
    alike: bool = True

    def __call__(self, nodes: Tensor) -> Prediction:
        return self.judge(nodes, *self.read(nodes))


def score_calibration(predict: Predictor, nodes: Tensor, labels: Tensor, size: int, alike: bool) -> Calibration:
    """Predict calibration nodes, ``size`` at a time; see ``Prediction.as_calibration``."""
    with torch.no_grad():
        parts = zip(torch.split(nodes, size), torch.split(labels, size), strict=True)
        return Calibration.joined([predict(part).as_calibration(classes, alike) for part, classes in parts])


SCHEMA = "1"
EXPLAINED = 20_000  # flagged nodes at the most that are explained, those with the smallest p-values
SEPARATOR = "|"
CHUNK = 1 << 16  # rows whose texts are made at a time


def table_of(
    prediction: Prediction,
    false_alarms: float | None,
    coverage: float | None,
    reasons: bool,
    explained: int = EXPLAINED,
) -> pyarrow.Table:
    """Return the table of `Prediction.to_table`; at most `explained` flagged nodes have reasons."""
    import pyarrow as pa

    names = prediction.class_names
    check_class_names(names, prediction.credal is not None)
    ids = prediction.nodes.numpy() if prediction.node_ids is None else prediction.node_ids
    columns: dict[str, Any] = {"id": ids}
    if prediction.probabilities is not None:
        classes = prediction.classes
        columns["class"] = pa.array(np.array(names, dtype=object)[classes.numpy()], pa.string())
        columns["probability"] = prediction.probabilities.gather(1, classes[:, None]).squeeze(1).double().numpy()
        bounds = {"p": prediction.probabilities}
        if prediction.credal is not None:
            bounds = {"lower": prediction.credal.lower, "upper": prediction.credal.upper}
        for side, values in bounds.items():
            columns.update({f"{side}_{name}": values[:, k].double().numpy() for k, name in enumerate(names)})
    for name, values in prediction.scores.items():
        shown = (-values).exp().clamp_max(1.0) if name == "coverage" else values
        columns[name] = shown.double().numpy()
    metadata = {"credalgnn.schema": SCHEMA, "credalgnn.class_names": json.dumps(names)}
    flagged = torch.zeros(len(prediction.nodes), dtype=torch.bool)
    if prediction.calibration is not None:
        columns["p_value"] = prediction.p_values.numpy()
        if false_alarms is not None:
            flagged = prediction.flag_unfamiliar(false_alarms)
            columns["unfamiliar"] = flagged.numpy()
            metadata["credalgnn.false_alarms"] = f"{false_alarms:g}"
        if prediction.probabilities is not None and coverage is not None:
            columns["classes"] = pa.array(_classes(prediction, prediction.sets(coverage)), pa.string())
            metadata["credalgnn.coverage"] = f"{coverage:g}"
    if reasons:
        columns["reasons"] = pa.array(_reasons(prediction, flagged, explained), pa.string())
    return pa.table(columns).replace_schema_metadata(metadata)


def check_class_names(names: Sequence[str], credal: bool) -> None:
    """Refuse class names that would make the table ambiguous."""
    for name in names:
        if SEPARATOR in name:
            raise MethodError(f"class name {name!r} contains {SEPARATOR}, the separator of classes: rename the class")
        if name == "value" and not credal:
            raise MethodError("class name 'value' collides with the column p_value: rename the class")


def _classes(prediction: Prediction, kept: Tensor) -> list[str]:
    """Return the classes in question, the most probable first."""
    assert prediction.probabilities is not None
    names = prediction.class_names
    order = prediction.probabilities.argsort(dim=-1, descending=True, stable=True)
    rows = []
    for start in range(0, len(kept), CHUNK):
        ranked, stays = order[start : start + CHUNK], kept[start : start + CHUNK]
        stays = stays.gather(1, ranked)
        for numbers, which in zip(ranked.tolist(), stays.tolist(), strict=True):
            rows.append(SEPARATOR.join(names[k] for k, yes in zip(numbers, which, strict=True) if yes))
    return rows


def _reasons(prediction: Prediction, flagged: Tensor, explained: int) -> list[str]:
    """Return the reasons of flagged nodes, empty for others."""
    texts = [""] * len(prediction.nodes)
    rows = flagged.nonzero().squeeze(-1)
    if not len(rows) or prediction.reasons is None:
        return texts
    rows = rows[prediction.score[rows].argsort(descending=True, stable=True)[:explained]]
    reasons = prediction.reasons(prediction.nodes[rows])
    for row, text in zip(rows.tolist(), reasons or (), strict=False):
        texts[row] = f"unlike labelled nodes: {text}" if text else "fewer labels near it than known nodes have"
    return texts


def write_table(table: pyarrow.Table, path: str | os.PathLike[str]) -> None:
    """Write a Parquet file, or a CSV file if the name ends so; whole or not at all."""
    write_tables([table], path)


def write_chunks(
    chunks: Iterable[Prediction],
    path: str | os.PathLike[str],
    false_alarms: float | None = 0.05,
    coverage: float | None = 0.95,
    reasons: bool = True,
    total: int | None = None,
) -> None:
    """Write predictions that come in chunks as ``Prediction.to_parquet`` does, holding one at a time.

    Args:
        chunks: Predictions, as from ``Method.predict_chunks``.
        path: A .parquet or .csv file.
        false_alarms: See ``Prediction.to_table``.
        coverage: See ``Prediction.to_table``.
        reasons: See ``Prediction.to_table``; if too many nodes are flagged, each chunk has its share explained.
        total: Number of nodes of all chunks; None: each chunk has as many reasons as a whole prediction.
    """
    tables = (table_of(chunk, false_alarms, coverage, reasons, share_explained(chunk, total)) for chunk in chunks)
    write_tables(tables, path)


def share_explained(chunk: Prediction, total: int | None) -> int:
    """Return how many flagged nodes of a chunk are explained at most; `total` is the number of nodes of all chunks."""
    return EXPLAINED if total is None else -(-EXPLAINED * len(chunk.nodes) // max(1, total))


def write_tables(tables: Iterable[pyarrow.Table], path: str | os.PathLike[str]) -> None:
    """Write tables of the same columns into one file, each before the next is made; whole or not at all."""
    from pyarrow.csv import CSVWriter
    from pyarrow.parquet import ParquetWriter

    place = Path(path)
    check_ending(place)
    rest = iter(tables)
    first = next(rest)
    try:
        with atomic(place) as file:
            if place.suffix.lower() == ".csv":
                writer = CSVWriter(file, first.schema)
            else:
                writer = ParquetWriter(file, first.schema, write_page_checksum=True)
            with writer:
                writer.write_table(first)
                for table in rest:
                    writer.write_table(table)
    except OSError as error:
        raise MethodError(f"{place}: cannot be written ({error.strerror}); choose another place") from None


def check_ending(path: Path) -> None:
    """Refuse a file name that ends neither with .csv nor with .parquet."""
    if path.suffix.lower() not in (".csv", ".parquet"):
        raise MethodError(f"{path}: the name must end with .csv or .parquet")
