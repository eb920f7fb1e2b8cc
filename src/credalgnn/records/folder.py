"""Folder of an experiment: one record per run, tables of predictions, locks of runs in progress."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._version import __version__
from ..runtime.errors import CredalError, translated
from ..runtime.files import BLANK, Lock, Occupancy, find_link, locked, seal, sealed_with, to_json, write
from ..runtime.reading import Unreadable, read_bytes
from .node_tables import Columns
from .schema import FORMAT, REMEDY, RecordError, read_json, read_record

EXPERIMENT, PAGE = "experiment.json", "report.html"
DAMAGED = "damaged"  # `credalgnn check --repair` moves damaged files there
VERSION = "credalgnn"  # field of the identity that is recorded and not compared


class FolderVanished(CredalError, RuntimeError):
    """The folder of an experiment, or a part of it, was deleted during the work."""

    exit_code = 1


@dataclass(frozen=True)
class Folder:
    """Paths in the folder of an experiment.

    `runs/` holds records, `nodes/` predictions, `models/` what several runs share while the experiment runs.
    """

    path: Path

    @property
    def page(self) -> Path:
        return self.path / PAGE

    @property
    def models(self) -> Path:
        return self.path / "models"

    def record(self, dataset: str, method: str, seed: int) -> Path:
        """Path of the record of a run."""
        return self.path / "runs" / dataset / method / f"seed-{seed:03d}.json"

    def predictions(self, dataset: str, method: str, seed: int) -> Path:
        """Path of a run's table of predictions, Parquet."""
        return self.path / "nodes" / dataset / method / f"seed-{seed:03d}.parquet"

    def graph(self, dataset: str) -> Path:
        """Path of the table of a graph's nodes, Parquet."""
        return self.path / "nodes" / dataset / "graph.parquet"

    def lock(self, dataset: str, method: str, seed: int) -> Lock:
        """Lock of the process that executes a run."""
        return Lock(self.path / ".locks" / dataset / method / f"seed-{seed:03d}")

    @classmethod
    def open(cls, path: Path, identity: Mapping[str, Any]) -> Folder:
        """Create the folder of an experiment or open it to go on; one with another experiment is refused.

        The identity is the configuration; the version that created the folder is recorded and not compared.
        """
        identity = json.loads(json.dumps({"format": FORMAT, VERSION: __version__, **identity}))
        with translated(
            (FileExistsError, NotADirectoryError), lambda _: RecordError(f"{path} is a file: choose another `out`")
        ):
            path.mkdir(parents=True, exist_ok=True)
            if (link := find_link(path)) is not None:
                raise RecordError(
                    f"{link} is a link, which would lead writes elsewhere: replace it by its target, or choose another "
                    "`out`"
                )
            others = [file for file in path.iterdir() if not file.name.startswith(".") and file.name != EXPERIMENT]
            if others and not (path / EXPERIMENT).exists() and not (path / DAMAGED / EXPERIMENT).exists():
                raise RecordError(f"{path} is not empty and holds no experiment: choose another `out`")
            with locked(path / ".experiment.lock", wait=True):
                if not (path / EXPERIMENT).exists():
                    write(path / EXPERIMENT, to_json(identity))
        present = read_json(path / EXPERIMENT, "an experiment's description", "choose another `out`")
        for name in sorted({*identity, *present} - {VERSION}):
            if identity.get(name) != present.get(name):
                raise RecordError(
                    f"{path} holds another experiment, with {name:.40} {json.dumps(present.get(name)):.80} and not "
                    f"{json.dumps(identity.get(name)):.80}: choose another `out`"
                )
        return cls(path)

    def write(self, record: Mapping[str, Any], nodes: Columns | None = None) -> None:
        """Write the record of a run, after its predictions: a record never promises more than there is."""
        key = record["dataset"], record["method"], record["seed"]
        if nodes is not None:
            record = {**record, "predictions": self.write_nodes(self.predictions(*key), nodes)}
        write(self.record(*key), to_json(record))

    def write_nodes(self, path: Path, nodes: Columns) -> str:
        """Write a table of nodes as Parquet; return its checksum."""
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
        """Share the folder with other processes; yields a function that tidies up unless others still work."""
        occupancy = Occupancy(self.path)
        occupancy.enter()

        def tidy() -> None:
            with occupancy.alone() as alone:
                if not alone:
                    return
                for name in ("models", ".locks", ".owners"):
                    shutil.rmtree(self.path / name, ignore_errors=True)
                for part in self.path.rglob(".*.part"):  # of processes killed while they wrote
                    part.unlink(missing_ok=True)

        try:
            yield tidy
        finally:
            occupancy.leave()


@contextmanager
def guarded(folder: Path, *names: str) -> Iterator[Callable[[], None]]:
    """Work in a folder some files of which must stay; yields a check that raises `FolderVanished`.

    The files may only grow. The check is also called at the end and for every error on the way: whatever a missing
    file leads to, the message names its cause.
    """

    def beginning(name: str) -> bytes | None:
        try:
            with (folder / name).open("rb") as file:
                return file.read(256)
        except FileNotFoundError:
            return None

    before = {name: beginning(name) or b"" for name in names}

    def check() -> None:
        now = {name: beginning(name) for name in names}
        missing = [name for name, text in now.items() if text is None or not text.startswith(before[name])]
        if missing:
            raise FolderVanished(
                f"{folder} vanished during the work, or a part of it did ({missing[0]} is gone): remove the rest; "
                "the same call begins again"
            )

    try:
        yield check
    except Exception:
        check()
        raise
    check()


def read_nodes(path: Path, checksum: str | None = None) -> bytes:
    """Read the Parquet file of a table of nodes; refuse a damaged one, or one with another checksum than given."""
    try:
        content = read_bytes(path)
    except OSError as error:
        raise RecordError(f"{path}: cannot be read ({error.strerror})") from None
    except Unreadable as error:
        raise RecordError(f"{path}: {error}; {REMEDY}") from None
    actual = sealed_with(content)
    if actual is None:
        raise RecordError(f"{path}: damaged, its checksum does not fit; {REMEDY}")
    if checksum not in (None, actual):
        raise RecordError(f"{path}: not the predictions that the record of this run names; {REMEDY}")
    return content


def read_records(path: Path) -> list[dict[str, Any]]:
    """Read all records of an experiment's folder, in the order of their paths."""
    if not (path / EXPERIMENT).is_file():
        raise RecordError(f"{path}: no experiment here ({EXPERIMENT} is missing); give the `out` of a benchmark")
    records = []
    for file in sorted(path.glob("runs/*/*/seed-*.json")):
        record = read_record(file)
        if file != Folder(path).record(record["dataset"], record["method"], record["seed"]):
            raise RecordError(
                f"{file}: misplaced, it is {record['dataset']} {record['method']} seed {record['seed']}; {REMEDY}"
            )
        records.append(record)
    return records
