"""Record of a run: its fields, checked whenever a record is read."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Any, get_args

from ..methods.training_data import EvalProtocol
from ..metrics import METRICS
from ..metrics.evaluation import BINS, REJECTION_STEPS, ROC_GRID
from ..metrics.registry import ROUNDING
from ..runtime.errors import CredalError
from ..runtime.files import sealed_with, to_json
from ..runtime.reading import parse_json, read_bytes

SETTINGS = ("transductive", "inductive")
FORMAT = 3
PROBED = 51  # quantiles of a score that a probe keeps
REMEDY = "delete it, and the command that made it makes it again"
EDITED = "edited"  # the field, and the mark, of a record that a person has changed on purpose
PREFIX = "published-"  # of the names of methods with choices of the paper's published runs


class RecordError(CredalError, ValueError):
    """A folder or a record is not as written; the message says which and what to do."""


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < 1e300


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 62


def _is_list(values: Any, length: int, low: float = -1e300, high: float = 1e300) -> bool:
    """A list of `length` numbers in a range, or None."""
    return (
        isinstance(values, list)
        and len(values) == length
        and all(value is None or (_is_number(value) and low <= value <= high) for value in values)
    )


def _is_table(values: Any, low: float = -1e300) -> bool:
    """Numbers by name, none of them missing or below `low`."""
    return (
        isinstance(values, dict) and _is_list(list(values.values()), len(values), low) and None not in values.values()
    )


def _are_metrics(values: Any) -> bool:
    return isinstance(values, dict) and all(
        value is None or (_is_number(value) and (name not in METRICS or METRICS[name].can_be(value)))
        for name, value in values.items()
    )


def _are_scores(scores: dict[str, Any]) -> bool:
    return all(_are_metrics(metrics) and "auroc" in metrics for metrics in scores.values())


def _are_texts(values: list[Any]) -> bool:
    return all(isinstance(value, str) for value in values)


def _is_probed(probe: dict[str, Any]) -> bool:
    """Graph, test and level of a probe, and the distribution of its scores."""
    quantiles, means, truth = probe.get("quantiles"), probe.get("mean"), probe.get("truth", {})
    changed = probe.get("changed", {})
    named = {probe.get("epistemic"), probe.get("aleatoric")} - {None}
    if not (isinstance(quantiles, dict) and isinstance(means, dict) and isinstance(truth, dict)):
        return False
    if not isinstance(changed, dict):
        return False
    correlations = [truth.get(name, {}) for name in ("spearman", "bits", "error_spearman")]
    return (
        all(isinstance(probe.get(name), str) for name in ("graph", "test", "epistemic"))
        and isinstance(probe.get("aleatoric"), str | NoneType)
        and named <= set(quantiles) & set(means)
        and _is_number(probe.get("level"))
        and _is_table(means)
        and all(_is_list(values, PROBED) and None not in values for values in quantiles.values())
        and all(isinstance(one, dict) and _is_list(list(one.values()), len(one)) for one in correlations)
        and (not truth or (_is_number(truth.get("entropy")) and named <= set(correlations[0])))
        and all(_is_number(value) for name, value in truth.items() if name in ("error", "inside", "width"))
        and all(isinstance(one, dict) and _is_list(list(one.values()), len(one), 0.0, 1.0) for one in changed.values())
    )


def _are_curves(curves: dict[str, Any]) -> bool:
    """Curves of `evaluate` and of the training; a task without OOD nodes has no ROC curve."""
    roc, rejection, histograms = kinds = tuple(curves.get(name, {}) for name in ("roc", "rejection", "histogram"))
    if not {"roc", "rejection", "histogram"} <= set(curves) or not all(isinstance(kind, dict) for kind in kinds):
        return False
    if not isinstance(curves.get("training"), list):
        return False
    return (
        all(_is_list(curve, len(ROC_GRID), 0.0, 1.0 + ROUNDING) or curve == [] for curve in roc.values())
        and all(_is_list(curve, REJECTION_STEPS, 0.0, 1.0 + ROUNDING) for curve in rejection.values())
        and all(
            isinstance(histogram, dict)
            and _is_list(histogram.get("edges"), BINS + 1)
            and None not in histogram["edges"]
            and _is_list(histogram.get("id"), BINS, 0)
            and _is_list(histogram.get("ood"), BINS, 0)
            for histogram in histograms.values()
        )
        and all(_is_list(line, 3) and _is_count(line[0]) for line in curves["training"])
    )


@dataclass(frozen=True)
class Field:
    """Field of a record.

    Attributes:
        type: Its type, as an annotation.
        meaning: What it holds.
        check: Check of a value of this type.
        status: `done` or `failed`: the only records that have it; empty: all have it.
        required: Whether it must be there.
    """

    type: str
    meaning: str
    check: Callable[[Any], bool] = lambda value: True
    status: str = ""
    required: bool = True

    def accepts(self, value: Any) -> bool:
        """Return whether a value has the type and passes the check."""
        names = re.sub(r"\[.*\]", "", self.type).split(" | ")
        return isinstance(value, tuple(kind for name in names for kind in _TYPES[name])) and self.check(value)


_TYPES: dict[str, tuple[type, ...]] = {
    "int": (int,), "float": (float, int), "str": (str,), "list": (list,), "dict": (dict,), "None": (NoneType,),
    "bool": (bool,),
}  # fmt: skip

FIELDS: dict[str, tuple[Field, ...]] = {
    "format": (Field("int", "version of this schema", lambda value: value == FORMAT),),
    "dataset": (Field("str", "name of the data set"),),
    "method": (Field("str", "name of the method"),),
    "seed": (Field("int", "seed of the run", _is_count),),
    "split_seed": (Field("int", "public split, or seed of a random one", _is_count),),
    "protocol": (Field("str", "`sealed` or `paper`", lambda value: value in get_args(EvalProtocol)),),
    "setting": (Field("str", "`transductive` or `inductive`", lambda value: value in SETTINGS),),
    "fingerprint": (Field("str", "hash of the task: graph, classes left out, split, labels, shifts"),),
    "config": (Field("dict[str, Any]", "every hyper-parameter, with those of the method's components"),),
    "versions": (Field("dict[str, Any]", "versions of credalgnn, Python, torch and NumPy"),),
    "finished": (Field("str", "time of the end, in UTC"),),
    "checksum": (Field("str", "checksum of all else in the file; `credalgnn check` verifies it", required=False),),
    "edited": (
        Field(
            "str", "reason why a person has changed the record, which then has no `checksum`",
            lambda text: bool(text.strip()), required=False,
        ),
    ),
    "source": (
        Field(
            "dict[str, str]", "import path, plug-in or file of `method` and `dataset`, if they are not built in",
            lambda value: _are_texts(list(value.values())), required=False,
        ),
    ),
    "ranked": (
        Field("bool", "`false`: the run is no benchmark, and no table ranks its method", required=False),
    ),
    "status": (Field("str", "`done` or `failed`"),),
    "error": (
        Field("None", "`null`", status="done"),
        Field("str", "error in one line", status="failed"),
    ),
    "class_names": (Field("list[str]", "names of the ID classes", _are_texts, "done"),),
    "ood_names": (Field("list[str]", "names of the classes left out", _are_texts, "done"),),
    "counts": (
        Field("dict[str, int]", "nodes of each part", lambda value: all(map(_is_count, value.values())), "done"),
    ),
    "headline": (Field("str", "score by which the method is evaluated, fixed beforehand", status="done"),),
    "metrics": (Field("dict[str, float | None]", "metrics of the prediction", _are_metrics, "done"),),
    "scores": (Field("dict[str, dict[str, float | None]]", "metrics of each score", _are_scores, "done"),),
    "curves": (
        Field("dict[str, Any]", "`roc`, `rejection`, `histogram` by score; `training`", _are_curves, "done"),
    ),
    "marks": (Field("list[str]", "warnings of the diagnostics", _are_texts, "done"),),
    "diagnosis": (
        Field(
            "dict[str, float] | None", "what `fit` measured about the method, or null",
            lambda value: value is None or _is_table(value), "done", required=False,
        ),
    ),
    "probe": (
        Field("dict[str, Any]", "condition and measurements of `credalgnn probe`", _is_probed, "done", required=False),
    ),
    "seconds": (
        Field(
            "dict[str, float]", "seconds of `fit`, components included, and of `predict`",
            lambda values: _is_table(values, low=0.0) and "fit" in values, "done",
        ),
    ),
    "peak_mib": (
        Field(
            "float", "largest resident memory of the process, MiB",
            lambda value: _is_number(value) and value >= 0, "done",
        ),
    ),
    "predictions": (Field("str | None", "checksum of the table of predictions, if it is kept", status="done"),),
}  # fmt: skip


def wrong_field(record: Mapping[str, Any], left_out: Collection[str] = ()) -> str | None:
    """Return the first field of a record that is missing or wrong, if any; those `left_out` may be missing."""
    if record.get("status") not in ("done", "failed"):
        return "status"
    for name, variants in FIELDS.items():
        for field in variants:
            if field.status not in ("", record["status"]):
                continue
            if name in record and not field.accepts(record[name]):
                return name
            if name not in record and field.required and name not in left_out:
                return name
    if record["status"] == "done":
        if record["headline"] not in record["scores"]:
            return "headline"
        if record["ood_names"] and any(metrics["auroc"] is None for metrics in record["scores"].values()):
            return "auroc"
    return None


def is_ranked(record: Mapping[str, Any]) -> bool:
    """Return whether tables rank the run's method; records older than the field are known by the method's name."""
    return bool(record.get("ranked", not record["method"].startswith(PREFIX)))


def read_record(path: Path) -> dict[str, Any]:
    """Read and check a record; one that a person has changed gets the mark `edited`."""
    record = read_json(path, "a record", may_be_edited=True)
    if (wrong := wrong_field(record)) is not None:
        raise RecordError(f"{path}: damaged record ({wrong} is missing or wrong); {REMEDY}")
    if EDITED in record and record["status"] == "done" and EDITED not in record["marks"]:
        record["marks"].append(EDITED)
    return record


def read_json(path: Path, what: str, remedy: str = REMEDY, may_be_edited: bool = False) -> dict[str, Any]:
    """Read a JSON object that `to_json` has written, and check its format and checksum.

    `what` and `remedy` are for the error; with `may_be_edited` a file with the field `edited` needs no checksum.
    """
    try:
        raw = read_bytes(path)
        content = parse_json(raw)
        to_json({"": content})  # finite numbers only: a page has no others
    except OSError as error:
        raise RecordError(f"{path}: cannot be read ({error.strerror})") from None
    except ValueError as error:
        raise RecordError(f"{path}: damaged, not {what} ({error}); {remedy}") from None
    if not isinstance(content, dict):
        raise RecordError(f"{path}: damaged, not {what}; {remedy}")
    if isinstance(content.get("format"), int) and content["format"] != FORMAT:
        raise RecordError(
            f"{path}: of another version of credalgnn (format {content['format']}, and {FORMAT} is read here): use "
            "that one, or choose another `out`"
        )
    if may_be_edited and EDITED in content and "checksum" not in content:
        return content
    if sealed_with(raw) is None:
        edited = f'; if you have changed it on purpose, replace its checksum by "{EDITED}": "why"' * may_be_edited
        raise RecordError(f"{path}: damaged or edited, its checksum does not fit; {remedy}{edited}")
    return {name: value for name, value in content.items() if name != "checksum"}
