"""The record of a run: what it holds, checked whenever one is read.

``Record`` and ``FailedRecord`` are the schema, in one place: each field has its type, what it means and, where a type
says too little, how it is checked. docs/benchmark.md shows the same table.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, NamedTuple, NotRequired, TypedDict, get_args, get_origin, get_type_hints

from ..methods.training_data import EvalProtocol
from ..metrics import METRICS
from ..metrics.evaluation import BINS, REJECTION_STEPS, ROC_GRID
from ..metrics.registry import ROUNDING
from ..runtime.files import sealed_with, to_json
from ..runtime.reading import parse_json, read_bytes

SETTINGS = ("transductive", "inductive")
FORMAT = 3
PROBED = 51  # quantiles of a score that a probe keeps
REMEDY = "delete it, and the command that made it makes it again"
EDITED = "edited"  # the field, and the mark, of a record that a person has changed on purpose

PREFIX = "published-"  # of the names of methods with choices of the paper's published runs


def is_published(method: str) -> bool:
    """Whether a method of this name has choices of the published runs, and is no rival of any other.

    Args:
        method: Its name in a record.
    """
    return method.startswith(PREFIX)


class RecordError(ValueError):
    """A folder or a record is not what it should be; the message says which and what to do."""


class Field(NamedTuple):
    """What a field of a record means, and whether a value of its type is one."""

    meaning: str
    is_valid: Callable[[Any], bool] = lambda value: True


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < 1e300


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 62


def _is_list(values: Any, length: int, low: float = -1e300, high: float = 1e300) -> bool:
    """Whether this is a list of so many finite numbers in a range; some may be missing."""
    return (
        isinstance(values, list)
        and len(values) == length
        and all(value is None or (_is_number(value) and low <= value <= high) for value in values)
    )


def _is_table(values: Any, low: float = -1e300) -> bool:
    """Whether this holds finite numbers that are not too low, and nothing is missing."""
    return (
        isinstance(values, dict) and _is_list(list(values.values()), len(values), low) and None not in values.values()
    )


def _are_metrics(values: Any) -> bool:
    """Whether this holds finite numbers, or nothing, under its names, each in the range of the metric of that name."""
    return isinstance(values, dict) and all(
        value is None or (_is_number(value) and (name not in METRICS or METRICS[name].can_be(value)))
        for name, value in values.items()
    )


def _are_scores(scores: dict[str, Any]) -> bool:
    return all(_are_metrics(metrics) and "auroc" in metrics for metrics in scores.values())


def _are_seconds(values: dict[str, Any]) -> bool:
    return _is_table(values, low=0.0) and "fit" in values


def _are_texts(values: list[Any]) -> bool:
    return all(isinstance(value, str) for value in values)


def _is_probed(probe: dict[str, Any]) -> bool:
    """Whether a probe says which graph, test and level it was, and how its scores are spread."""
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
    """Whether curves are as ``evaluate`` and the training make them; a task without OOD nodes has no ROC curve."""
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


class About(TypedDict):
    """What every record says, however its run ended."""

    format: Annotated[int, Field("version of this schema", lambda value: value == FORMAT)]
    dataset: Annotated[str, Field("name of the data set")]
    method: Annotated[str, Field("name of the method")]
    seed: Annotated[int, Field("of the run", _is_count)]
    split_seed: Annotated[int, Field("public split, or seed of a random one", _is_count)]
    protocol: Annotated[
        str,
        Field("what might be looked at: `sealed` or `paper`", lambda value: value in get_args(EvalProtocol)),
    ]
    setting: Annotated[str, Field("`transductive` or `inductive`", lambda value: value in SETTINGS)]
    fingerprint: Annotated[str, Field("hash of the task: graph, classes left out, split, labels, shifts")]
    config: Annotated[dict[str, Any], Field("every hyper-parameter, those of the models it stands on among them")]
    versions: Annotated[dict[str, Any], Field("of credalgnn, Python, torch and NumPy")]
    finished: Annotated[str, Field("when, in UTC")]
    checksum: NotRequired[Annotated[str, Field("of all else in the file, which `credalgnn check` verifies")]]
    edited: NotRequired[
        Annotated[
            str,
            Field(
                "why a person has changed the record, which then has no `checksum`",
                lambda text: bool(text.strip()),
            ),
        ]
    ]
    source: NotRequired[
        Annotated[
            dict[str, str],
            Field(
                "where `method` and `dataset` came from, if they are not built in: an import path, a plug-in or a file",
                lambda value: _are_texts(list(value.values())),
            ),
        ]
    ]


class FailedRecord(About):
    """The record of a run that failed."""

    status: Annotated[str, Field("`failed`")]
    error: Annotated[str, Field("what went wrong, in one line")]


class Record(About):
    """The record of a finished run."""

    status: Annotated[str, Field("`done`")]
    error: Annotated[None, Field("nothing")]
    class_names: Annotated[list[str], Field("of the ID classes", _are_texts)]
    ood_names: Annotated[list[str], Field("of the classes left out", _are_texts)]
    counts: Annotated[
        dict[str, int], Field("of the nodes of each part", lambda value: all(map(_is_count, value.values())))
    ]
    headline: Annotated[str, Field("the score that was fixed beforehand to be judged by")]
    metrics: Annotated[dict[str, float | None], Field("of the prediction", _are_metrics)]
    scores: Annotated[dict[str, dict[str, float | None]], Field("metrics of each score", _are_scores)]
    curves: Annotated[dict[str, Any], Field("`roc`, `rejection`, `histogram` by score; `training`", _are_curves)]
    marks: Annotated[list[str], Field("what the diagnostics say", _are_texts)]
    diagnosis: NotRequired[
        Annotated[
            dict[str, float] | None,
            Field("what `fit` found out about the method, or null", lambda value: value is None or _is_table(value)),
        ]
    ]
    probe: NotRequired[
        Annotated[
            dict[str, Any],
            Field("what `credalgnn probe` measured beside, and under which condition", _is_probed),
        ]
    ]
    seconds: Annotated[dict[str, float], Field("`fit` with all it stands on, `predict`", _are_seconds)]
    peak_mib: Annotated[
        float, Field("largest resident memory of the process, MiB", lambda value: _is_number(value) and value >= 0)
    ]
    predictions: Annotated[
        str | None, Field("checksum of the table of what was predicted for each node, if it is kept")
    ]


def fields_of(schema: type) -> dict[str, tuple[Any, Field, bool]]:
    """The type and the meaning of each field of ``Record`` or ``FailedRecord``, and whether it may be missing, by name.

    Args:
        schema: One of the two.
    """
    hints = get_type_hints(schema, include_extras=True)
    table = {}
    for name, hint in hints.items():
        optional = get_origin(hint) is NotRequired
        kind, field = get_args(get_args(hint)[0] if optional else hint)
        table[name] = kind, field, optional
    return table


def wrong_field(record: Mapping[str, Any], left_out: Collection[str] = ()) -> str | None:
    """The first field that is missing or wrong, if any.

    Args:
        record: What claims to be a record.
        left_out: Fields that need not be there.
    """
    if record.get("status") not in ("done", "failed"):
        return "status"
    schema = Record if record["status"] == "done" else FailedRecord
    for name, (kind, field, optional) in fields_of(schema).items():
        if name not in record and (optional or name in left_out):
            continue
        if name not in record or not isinstance(record[name], _plain(kind)) or not field.is_valid(record[name]):
            return name
    if record["status"] == "done":
        if record["headline"] not in record["scores"]:
            return "headline"
        if record["ood_names"] and any(metrics["auroc"] is None for metrics in record["scores"].values()):
            return "auroc"
    return None


def _plain(kind: Any) -> tuple[type, ...]:
    """What ``isinstance`` understands of a type; a number may be a whole one."""
    options = get_args(kind) if isinstance(kind, UnionType) else (kind,)
    plain = [get_origin(option) or option for option in options]
    return tuple(NoneType if option is None else option for option in [*plain, *([int] if float in plain else [])])


def read_record(path: Path) -> dict[str, Any]:
    """A record, checked; the message of the error names the file and the remedy.

    One that a person has changed bears the mark ``edited``.

    Args:
        path: The file.
    """
    record = read_json(path, "a record", may_be_edited=True)
    if (wrong := wrong_field(record)) is not None:
        raise RecordError(f"{path}: damaged record ({wrong} is missing or wrong); {REMEDY}")
    if EDITED in record and record["status"] == "done" and EDITED not in record["marks"]:
        record["marks"].append(EDITED)
    return record


def read_json(path: Path, what: str, remedy: str = REMEDY, may_be_edited: bool = False) -> dict[str, Any]:
    """A JSON object from a file that ``to_json`` made for this format, and whose checksum says that it is still that.

    Args:
        path: The file.
        what: What it should be, for the error.
        remedy: What to do about it, for the error.
        may_be_edited: Whether a person may have changed it, and has said so in its field ``edited``.
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
            "that one, or choose another --out"
        )
    if may_be_edited and EDITED in content and "checksum" not in content:
        return content
    if sealed_with(raw) is None:
        edited = f'; if you have changed it on purpose, replace its checksum by "{EDITED}": "why"' * may_be_edited
        raise RecordError(f"{path}: damaged or edited, its checksum does not fit; {remedy}{edited}")
    return {name: value for name, value in content.items() if name != "checksum"}
