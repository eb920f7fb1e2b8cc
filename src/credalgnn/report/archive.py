"""Finished runs in one small file: records without their curves, for whoever collects results of others."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..metrics import METRICS
from ..records.schema import FORMAT, RecordError, wrong_field
from ..runtime.files import checksum, write
from ..runtime.reading import check_gzip, parse_json, read_bytes

ARCHIVE = "runs.jsonl.gz"
LEFT_OUT = ("curves", "diagnosis", "peak_mib", "predictions")  # most of a record, and nothing that a table shows
DIGITS = 6


def write_archive(records: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Write finished runs as lines of JSON; the first line says how many there are and has their checksum.

    Numbers keep six digits, and of the metrics there are those that tables show. The same runs give the same bytes.

    Args:
        records: Of runs; failed ones are left out.
        path: The file.
    """
    lines = [json.dumps(_slim(record), sort_keys=True) + "\n" for record in records if record["status"] == "done"]
    content = "".join(lines).encode()
    head = {"format": FORMAT, "runs": len(lines), "checksum": checksum(content)}
    write(path, gzip.compress((json.dumps(head) + "\n").encode() + content, mtime=0))


def read_archive(path: Path) -> list[dict[str, Any]]:
    """The runs of a file that ``write_archive`` has made, checked.

    Args:
        path: The file.
    """
    remedy = "get it again from where it was made"
    try:
        check_gzip(path)
        head, _, content = gzip.decompress(read_bytes(path)).partition(b"\n")
        about = parse_json(head)
        records = [parse_json(line) for line in content.splitlines()]
    except OSError as error:
        reason = error.strerror or str(error)
        raise RecordError(f"{path}: cannot be read ({reason}); {remedy}") from None
    except (EOFError, ValueError, zlib.error) as error:
        raise RecordError(f"{path}: damaged ({error}); {remedy}") from None
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        raise RecordError(f"{path}: of another version of credalgnn (runs of format {FORMAT} are read here)")
    if about.get("checksum") != checksum(content):
        raise RecordError(f"{path}: damaged (its content is not what its first line says); {remedy}")
    for number, record in enumerate(records, 2):
        wrong = wrong_field(record, LEFT_OUT) if isinstance(record, dict) else "record"
        if wrong is not None:
            raise RecordError(f"{path}, line {number}: {wrong} is missing or wrong; {remedy}")
    return records


def _slim(record: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in record.items() if name not in LEFT_OUT}
    kept["metrics"] = _shown(record["metrics"])
    kept["scores"] = {score: _shown(metrics) for score, metrics in record["scores"].items()}
    kept["seconds"] = {name: _rounded(value) for name, value in record["seconds"].items()}
    return kept


def _shown(values: Mapping[str, float | None]) -> dict[str, float | None]:
    return {
        name: None if value is None else _rounded(value)
        for name, value in values.items()
        if name not in METRICS or METRICS[name].shown
    }


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
