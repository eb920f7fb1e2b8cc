"""The folder of an experiment: one record per run, which says everything about it and outlives any crash."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from .._version import __version__
from ..runtime.files import BLANK, Lock, Occupancy, find_link, locked, seal, sealed_with, to_json, write
from ..runtime.reading import Unreadable, read_bytes
from .node_tables import Columns
from .schema import FORMAT, REMEDY, RecordError, read_json, read_record

Run: TypeAlias = Any
EXPERIMENT, PAGE = "experiment.json", "report.html"
DAMAGED = "damaged"  # where ``credalgnn check --repair`` puts what cannot be used


@dataclass(frozen=True)
class Folder:
    """Where an experiment lives, and where in it everything is.

    ``runs/`` holds records, ``nodes/`` predictions, ``models/`` what several runs share while it runs.
    """

    path: Path

    @property
    def experiment(self) -> Path:
        """What the experiment is: two with different ones do not share a folder."""
        return self.path / EXPERIMENT

    @property
    def page(self) -> Path:
        return self.path / PAGE

    @classmethod
    def open(cls, path: Path, identity: Mapping[str, Any]) -> Folder:
        """Make the folder of an experiment, or go on in it; one that holds another experiment is refused.

        Args:
            path: The folder.
            identity: What the experiment is.
        """
        wanted = json.loads(json.dumps({"format": FORMAT, "credalgnn": __version__, **identity}))
        try:
            path.mkdir(parents=True, exist_ok=True)
            if (link := find_link(path)) is not None:
                raise RecordError(
                    f"{link}: a link, which would lead writes elsewhere; put what it points to in its place, or choose "
                    "another --out"
                )
            others = [file for file in path.iterdir() if not file.name.startswith(".") and file.name != EXPERIMENT]
            if others and not (path / EXPERIMENT).exists() and not (path / DAMAGED / EXPERIMENT).exists():
                raise RecordError(f"{path} is not empty and holds no experiment: choose another --out")
            with locked(path / ".experiment.lock", wait=True):
                if not (path / EXPERIMENT).exists():
                    write(path / EXPERIMENT, to_json(wanted))
        except (FileExistsError, NotADirectoryError):
            raise RecordError(f"{path} is a file: choose another --out") from None
        there = read_json(path / EXPERIMENT, "an experiment's description", "choose another --out")
        for name in sorted({*wanted, *there}):
            if wanted.get(name) != there.get(name):
                raise RecordError(
                    f"{path} holds another experiment, with {name:.40} {json.dumps(there.get(name)):.80} and not "
                    f"{json.dumps(wanted.get(name)):.80}: choose another --out"
                )
        return cls(path)

    @property
    def models(self) -> Path:
        return self.path / "models"

    def record(self, dataset: str, method: str, seed: int) -> Path:
        """The record of a run."""
        return self.path / "runs" / dataset / method / f"seed-{seed:03d}.json"

    def predictions(self, dataset: str, method: str, seed: int) -> Path:
        """The table of what a run predicted for each node, Parquet."""
        return self.path / "nodes" / dataset / method / f"seed-{seed:03d}.parquet"

    def graph(self, dataset: str) -> Path:
        """The table of facts of a graph about the nodes that something is predicted for, Parquet."""
        return self.path / "nodes" / dataset / "graph.parquet"

    def has_predictions(self, run: Run, record: Mapping[str, Any]) -> bool:
        """Whether there are predictions per node of a run, which its record vouches for."""
        return record["predictions"] is not None and self.predictions(run.dataset, run.method, run.seed).exists()

    def claim(self, run: Run) -> Lock:
        """The lock that whoever executes a run holds."""
        return Lock(self.path / ".locks" / run.dataset / run.method / f"seed-{run.seed:03d}")

    def read(self, run: Run, fingerprint: str) -> dict[str, Any] | None:
        """The record of a run, if there is one; refused if it was made from other data or hyper-parameters."""
        path = self.record(run.dataset, run.method, run.seed)
        if not path.exists():
            return None
        record = read_record(path)
        wanted = json.loads(json.dumps(run.described))
        for name in ("dataset", "method", "seed", "split_seed", "protocol", "setting"):
            if record[name] != getattr(run, name):
                raise RecordError(f"{path}: holds another run, with {name} {record[name]!r}; {REMEDY}")
        for name, there, expected in (
            ("data", record["fingerprint"], fingerprint),
            ("hyper-parameters", record["config"], wanted),
        ):
            if there != expected:
                raise RecordError(
                    f"{path}: made with other {name} than this run; choose another --out, or delete the record"
                )
        return record

    def write(self, run: Run, record: Mapping[str, Any], nodes: Columns | None = None) -> None:
        """Keep the result of a run: predictions first, so that a record never promises more than there is."""
        if nodes is not None:
            kept = self.write_nodes(self.predictions(run.dataset, run.method, run.seed), nodes)
            record = {**record, "predictions": kept}
        write(self.record(run.dataset, run.method, run.seed), to_json(record))

    def write_nodes(self, path: Path, nodes: Columns) -> str:
        """Write a table of nodes as Parquet; returns its checksum."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        buffer = io.BytesIO()
        types = {"prediction": pa.int64(), "homophily": pa.float64(), "reasons": pa.string()}
        table = pa.table({key: pa.array(values, types.get(key)) for key, values in nodes.items()})
        table = table.replace_schema_metadata({"checksum": BLANK})
        pq.write_table(table, buffer, compression="zstd")
        sealed = seal(buffer.getvalue())
        write(path, sealed)
        return sealed_with(sealed) or ""

    @contextmanager
    def occupied(self) -> Iterator[Callable[[], None]]:
        """Be one of those who work here. What it yields tidies up, unless others are still at work."""
        occupancy = Occupancy(self.path)
        occupancy.enter()

        def tidy() -> None:
            with occupancy.alone() as alone:
                if not alone:
                    return
                for name in ("models", ".locks", ".owners"):
                    shutil.rmtree(self.path / name, ignore_errors=True)
                for part in self.path.rglob(".*.part"):  # of those who were killed while they wrote
                    part.unlink(missing_ok=True)

        try:
            yield tidy
        finally:
            occupancy.leave()


def read_nodes(path: Path, checksum: str | None = None) -> bytes:
    """The Parquet file of a table of nodes; one that is damaged, or not the one that is wanted, is refused.

    Args:
        path: The file.
        checksum: That of the table that a record names; None for any.
    """
    try:
        content = read_bytes(path)
    except OSError as error:
        raise RecordError(f"{path}: cannot be read ({error.strerror})") from None
    except Unreadable as error:
        raise RecordError(f"{path}: {error}; {REMEDY}") from None
    found = sealed_with(content)
    if found is None:
        raise RecordError(f"{path}: damaged, its checksum does not fit; {REMEDY}")
    if checksum not in (None, found):
        raise RecordError(f"{path}: not the predictions that the record of this run names; {REMEDY}")
    return content


def read_records(path: Path) -> list[dict[str, Any]]:
    """All records of an experiment's folder, in the order of their paths."""
    if not (path / EXPERIMENT).is_file():
        raise RecordError(f"{path}: no experiment here ({EXPERIMENT} is missing); give the --out of a benchmark")
    records = []
    for file in sorted(path.glob("runs/*/*/seed-*.json")):
        record = read_record(file)
        if file != Folder(path).record(record["dataset"], record["method"], record["seed"]):
            raise RecordError(
                f"{file}: misplaced, it is {record['dataset']} {record['method']} seed {record['seed']}; {REMEDY}"
            )
        records.append(record)
    return records
