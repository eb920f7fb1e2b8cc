"""The folder of an experiment: one record per run, which says everything about it and outlives any crash."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._files import Lock, locked, to_json, write
from .._version import __version__
from .metrics import BINS, REJECTION_STEPS, ROC_GRID
from .runs import FORMAT, SETTINGS, Columns, Run

EXPERIMENT = "experiment.json"
_REMEDY = "delete it, and the command that made it makes it again"


class RecordError(ValueError):
    """A folder or a record is not what it should be; the message says which and what to do."""


@dataclass(frozen=True)
class Folder:
    """Where an experiment lives: ``runs/`` for records, ``nodes/`` for predictions, ``models/`` while it runs."""

    path: Path

    @classmethod
    def open(cls, path: Path, identity: Mapping[str, Any]) -> Folder:
        """Make the folder of an experiment, or go on in it; one that holds another experiment is refused."""
        wanted = json.loads(json.dumps({"format": FORMAT, "credalgnn": __version__, **identity}))
        try:
            path.mkdir(parents=True, exist_ok=True)
            strange = [one for one in path.iterdir() if not one.name.startswith(".") and one.name != EXPERIMENT]
            if strange and not (path / EXPERIMENT).exists():
                raise RecordError(f"{path} is not empty and holds no experiment: choose another --out")
            with locked(path / ".door", wait=True):
                if not (path / EXPERIMENT).exists():
                    write(path / EXPERIMENT, to_json(wanted))
        except (FileExistsError, NotADirectoryError):
            raise RecordError(f"{path} is a file: choose another --out") from None
        found = read_json(path / EXPERIMENT, "an experiment's description", "choose another --out")
        for name in sorted({*wanted, *found}):
            if wanted.get(name) != found.get(name):
                raise RecordError(
                    f"{path} holds another experiment, with {name} {json.dumps(found.get(name))} and not "
                    f"{json.dumps(wanted.get(name))}: choose another --out"
                )
        return cls(path)

    @property
    def models(self) -> Path:
        return self.path / "models"

    def place(self, run: Run) -> Path:
        return self.path / "runs" / run.dataset / run.method / f"seed-{run.seed:03d}.json"

    def has_nodes(self, run: Run) -> bool:
        """Whether there are predictions per node of a run."""
        return self.nodes(f"{run.dataset}/{run.method}/seed-{run.seed:03d}").exists()

    def nodes(self, name: str) -> Path:
        """The Parquet file of this name."""
        return self.path / "nodes" / f"{name}.parquet"

    def claim(self, run: Run) -> Lock:
        """The lock that whoever executes a run holds."""
        return Lock(self.path / ".locks" / run.dataset / run.method / f"seed-{run.seed:03d}")

    def read(self, run: Run, fingerprint: str) -> dict[str, Any] | None:
        """The record of a run, if there is one; refused if it was made from other data or hyper-parameters."""
        path = self.place(run)
        if not path.exists():
            return None
        record = read_record(path)
        wanted = json.loads(json.dumps(run.described))
        for name in ("dataset", "method", "seed", "split_seed", "protocol", "setting"):
            if record[name] != getattr(run, name):
                raise RecordError(f"{path}: holds another run, with {name} {record[name]!r}; {_REMEDY}")
        for name, found, expected in (
            ("data", record["fingerprint"], fingerprint),
            ("hyper-parameters", record["config"], wanted),
        ):
            if found != expected:
                raise RecordError(
                    f"{path}: made with other {name} than this run; choose another --out, or delete the record"
                )
        return record

    def write(self, run: Run, record: Mapping[str, Any], nodes: Columns | None = None) -> None:
        """Keep what a run has found: predictions first, so that a record never promises more than there is."""
        if nodes is not None:
            self.write_nodes(f"{run.dataset}/{run.method}/seed-{run.seed:03d}", nodes)
        write(self.place(run), to_json(record))

    def write_nodes(self, name: str, nodes: Columns) -> None:
        """A Parquet file below ``nodes/``."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        buffer = io.BytesIO()
        types = {"prediction": pa.int64(), "homophily": pa.float64(), "why": pa.string()}
        table = {key: pa.array(values, types.get(key)) for key, values in nodes.items()}
        pq.write_table(pa.table(table), buffer, compression="zstd")
        write(self.nodes(name), buffer.getvalue())

    @contextmanager
    def occupied(self) -> Iterator[Callable[[], None]]:
        """Be one of those who work here. What it yields tidies up, unless others are still at work."""
        lock = Lock(self.path / ".lock")
        lock.take(wait=True, shared=True)

        def tidy() -> None:
            if not lock.take():  # exclusively
                return
            for name in ("models", ".locks", ".owners"):
                shutil.rmtree(self.path / name, ignore_errors=True)
            for part in self.path.rglob(".*.part"):  # of those who were killed while they wrote
                part.unlink(missing_ok=True)

        try:
            yield tidy
        finally:
            lock.free()


def read_records(path: Path) -> list[dict[str, Any]]:
    """All records of an experiment's folder, in the order of their paths."""
    if not (path / EXPERIMENT).is_file():
        raise RecordError(f"{path}: no experiment here ({EXPERIMENT} is missing); give the --out of a benchmark")
    found = []
    for one in sorted(path.glob("runs/*/*/seed-*.json")):
        record = read_record(one)
        if one.parts[-3:] != (record["dataset"], record["method"], f"seed-{record['seed']:03d}.json"):
            raise RecordError(
                f"{one}: misplaced, it is {record['dataset']} {record['method']} seed {record['seed']}; {_REMEDY}"
            )
        found.append(record)
    return found


def read_record(path: Path) -> dict[str, Any]:
    """A record, checked; the message of the error names the file and the remedy."""
    record = read_json(path, "a record")
    if isinstance(record.get("format"), int) and record["format"] != FORMAT:
        raise RecordError(
            f"{path}: of another version of credalgnn (format {record['format']}, and {FORMAT} is read here): use that "
            "one, or choose another --out"
        )
    wanted: dict[str, type | tuple[type, ...]] = {
        "dataset": str, "method": str, "seed": int, "split_seed": int, "protocol": str, "setting": str,
        "fingerprint": str, "config": dict, "versions": dict, "finished": str,
    }  # fmt: skip
    if record.get("status") == "done":
        wanted |= {"headline": str, "metrics": dict, "scores": dict, "curves": dict, "marks": list, "seconds": dict,
                   "class_names": list, "ood_names": list, "counts": dict, "peak_mib": (int, float)}  # fmt: skip
    else:
        wanted |= {"error": str}
    wrong = [name for name, kind in wanted.items() if not isinstance(record.get(name), kind)]
    if record.get("format") != FORMAT or record.get("status") not in ("done", "failed"):
        wrong.insert(0, "format" if record.get("format") != FORMAT else "status")
    if not wrong and record["setting"] not in SETTINGS:
        wrong.append("setting")
    numbers = [record.get("metrics"), *(record["scores"].values() if isinstance(record.get("scores"), dict) else [])]
    if not wrong and record["status"] == "done":
        if not all(_numbers(one) for one in numbers):
            wrong.append("metrics")
        elif record["headline"] not in record["scores"]:
            wrong.append("headline")
        elif any(one.get("auroc") is None for one in record["scores"].values()):
            wrong.append("auroc")
        elif not _numbers(record["seconds"]) or record["seconds"].get("fit") is None:
            wrong.append("seconds")
        elif not _curves(record["curves"]):
            wrong.append("curves")
        elif not all(isinstance(one, str) for name in ("class_names", "ood_names", "marks") for one in record[name]):
            wrong.append("class_names, ood_names or marks")
        elif not _numbers(record["counts"]) or None in record["counts"].values():
            wrong.append("counts")
        elif not _diagnosis(record.get("diagnosis")):
            wrong.append("diagnosis")
    if wrong:
        raise RecordError(f"{path}: damaged record ({wrong[0]} is missing or wrong); {_REMEDY}")
    return record


def read_json(path: Path, what: str, remedy: str = _REMEDY) -> dict[str, Any]:
    """A JSON object from a file; ``what`` it should be and the ``remedy`` are for the error."""
    try:
        found = json.loads(path.read_bytes())
    except OSError as error:
        raise RecordError(f"{path}: cannot be read ({error.strerror})") from None
    except ValueError as error:
        raise RecordError(f"{path}: damaged, not {what} ({error}); {remedy}") from None
    if not isinstance(found, dict):
        raise RecordError(f"{path}: damaged, not {what}; {remedy}")
    return found


def _numbers(values: Any) -> bool:
    """Whether a table holds finite numbers, or nothing, under its names."""
    return isinstance(values, dict) and _list(list(values.values()), len(values))


def _diagnosis(found: Any) -> bool:
    """Whether this is what a method found out about itself, all of it finite numbers; most methods say nothing."""
    return found is None or (_numbers(found) and None not in found.values())


def _list(values: Any, length: int) -> bool:
    """Whether this is a list of so many finite numbers; some may be missing."""
    return (
        isinstance(values, list) and len(values) == length
        and all(one is None or (type(one) in (int, float) and abs(one) < 1e300) for one in values)
    )  # fmt: skip


def _curves(curves: Any) -> bool:
    """Whether curves are as ``evaluate`` and the training make them."""
    kinds = [curves.get(name) for name in ("roc", "rejection", "histogram")]
    if not all(isinstance(kind, dict) for kind in kinds) or not isinstance(curves.get("training"), list):
        return False
    roc, rejection, histograms = kinds
    return (
        all(_list(one, len(ROC_GRID)) for one in roc.values())
        and all(_list(one, REJECTION_STEPS) for one in rejection.values())
        and all(
            isinstance(one, dict) and _list(one.get("edges"), BINS + 1) and None not in one["edges"]
            and _list(one.get("id"), BINS) and _list(one.get("ood"), BINS)
            for one in histograms.values()
        )
        and all(_list(line, 3) and type(line[0]) is int for line in curves["training"])
    )  # fmt: skip
