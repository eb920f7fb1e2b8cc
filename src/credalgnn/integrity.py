"""Verification and repair of folders: results, models, saved methods, trials, packed and cached graphs."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from .experiments.best import BEST, read_best
from .experiments.engines import EngineError
from .experiments.execute import SECONDS
from .experiments.probe_results import LEVELS as PROBE_LEVELS
from .experiments.probe_results import PAGE as PROBE_PAGE
from .experiments.probe_results import PICTURE as PROBE_PICTURE
from .experiments.probe_results import TABLES as PROBE_TABLES
from .experiments.probe_results import VALUES as PROBE_VALUES
from .experiments.storage import JOURNAL, OWNERS
from .graphs import DATASETS, Graph, GraphError
from .graphs._packed_files import ARRAYS, Entry, check_array, is_packed, read_entries, read_header
from .graphs._packed_files import HEADER as PACKED
from .graphs.storage import from_arrays, read_arrays
from .methods import MethodError
from .methods.storage import CONFIG, WEIGHTS, read_files
from .model.model import CARD, CHECKPOINTS, MODEL, PARTS, SUMMED, TUNING, read_config
from .model.summary import PAGE
from .model.watching import PICTURE, STATE
from .records.folder import DAMAGED, EXPERIMENT, Folder, read_nodes
from .records.folder import PAGE as RESULTS_PAGE
from .records.schema import EDITED, RecordError, read_json, read_record
from .report.standings import ARCHIVE, read_archive
from .report.standings import PAGE as BOARD_PAGE
from .report.standings import TABLES as BOARD_TABLES
from .runtime.errors import CredalError
from .runtime.files import Occupancy, make_folder, sealed_with, sync_folder, write

# Made of records for people, and never read again.
PAGES = (
    RESULTS_PAGE, "table.md", "table.tex", "table.csv", "paper.md", "paper.html",
    PROBE_PAGE, PROBE_TABLES, PROBE_VALUES, PROBE_LEVELS, PROBE_PICTURE,
)  # fmt: skip
GRAPH, RAW = "graph.npz", "raw"


class NothingToCheck(CredalError, ValueError):
    """A place without any file of this package."""


class Finding(NamedTuple):
    """Result of the check of one file.

    Args:
        kind: ``damaged``, ``missing`` or ``foreign``; or ``edited``, which is no error.
        path: The file.
        reason: A few words.
        aside: Files that a repair moves away.
    """

    kind: str
    path: Path
    reason: str = ""
    aside: tuple[Path, ...] = ()


@dataclass
class Check:
    """Check of a folder, or of a file of ``Graph.save``.

    Args:
        folder: The folder or file.
    """

    folder: Path
    findings: list[Finding] = field(default_factory=list)
    checked: int = 0
    _known: set[Path] = field(default_factory=set)

    def __post_init__(self) -> None:
        kinds: dict[str, Callable[[Path], None]] = {
            MODEL: self._model, PARTS: self._model, EXPERIMENT: self._results, "runs": self._results,
            CONFIG: self._method, WEIGHTS: self._method, GRAPH: self._cached, ARCHIVE: self._leaderboard,
            PACKED: self._packed,
        }  # fmt: skip
        if self.folder.is_file() and self.folder.suffix == ".npz":
            self._graph(self.folder)
            return
        check = next((kind for name, kind in kinds.items() if (self.folder / name).exists()), None)
        if check is None and is_packed(self.folder):
            check = self._packed
        if check is None and any(self.folder.glob(f"*/{GRAPH}")):
            check = self._cache
        if check is None:
            raise NothingToCheck(
                f"{self.folder}: no results, model, saved method or cache of graphs here; name a folder that holds one"
            )
        check(self.folder)
        for path in _files(self.folder):
            if path not in self._known:
                self.findings.append(Finding("foreign", path, "not written by credalgnn"))

    @property
    def wrong(self) -> list[Finding]:
        """Findings other than edited records."""
        return [finding for finding in self.findings if finding.kind != EDITED]

    def repair(self) -> list[Path]:
        """Move damaged files into the folder ``damaged``, and return their paths; intact lines of a journal stay.

        Raises:
            EngineError: Another process works in the folder.
        """
        moved = []
        root = self.folder if self.folder.is_dir() else self.folder.parent
        with _alone(root):
            for finding in self.findings:
                for path in dict.fromkeys(finding.aside):
                    if path.is_file():
                        whole = _whole_part(path) if path.name == JOURNAL else b""
                        _put_aside(path, root)
                        if whole:
                            _keep(path, whole)
                        moved.append(path)
        return moved

    def _look(self, path: Path, read: Callable[[Path], Any], aside: tuple[Path, ...] | None = None) -> Any:
        """Return what ``read`` makes of a file; None, and a finding, if it is missing or damaged."""
        self._known.add(path)
        self.checked += 1
        if not path.is_file():
            self.findings.append(Finding("missing", path, "", aside or ()))
            return None
        try:
            return read(path)
        except (RecordError, MethodError, GraphError, EngineError, OSError) as error:
            reason = " ".join(str(error).split()).removeprefix(f"{path}: ").partition(";")[0]  # without the remedy
            self.findings.append(Finding("damaged", path, reason, (path,) if aside is None else aside))
        return None

    def _results(self, folder: Path) -> None:
        """Check the folder of a benchmark, a search, a reproduction or a probe."""
        place = Folder(folder)
        self._look(folder / EXPERIMENT, lambda path: read_json(path, "an experiment's description"))
        records = {}
        for path in sorted(folder.glob("runs/*/*/seed-*.json")):
            nodes = folder / "nodes" / path.relative_to(folder / "runs").with_suffix(".parquet")
            record = self._look(path, lambda path: _placed(path, place), (path, nodes))
            records[nodes] = record
            if record is None:
                self._known.add(nodes)
            elif EDITED in record:
                self.findings.append(Finding(EDITED, path, record[EDITED]))
        self._nodes(folder, records)
        if (folder / JOURNAL).exists():
            self._look(folder / JOURNAL, _journal)
        if (folder / BEST).exists():
            self._look(folder / BEST, lambda path: read_best(path.parent))
        for path in folder.glob("models/*"):
            if (path / CONFIG).exists():  # else it is in training
                self._method(path)
                self._look(path / SECONDS, lambda path: read_json(path, "a time"))
            self._known.add(path / "lock")
        self._known |= {folder / name for name in PAGES}

    def _leaderboard(self, folder: Path) -> None:
        """Check the folder of a leaderboard."""
        self._look(folder / ARCHIVE, read_archive)
        self._known |= {folder / BOARD_PAGE, folder / BOARD_TABLES}

    def _nodes(self, folder: Path, records: Mapping[Path, Mapping[str, Any] | None]) -> None:
        """Check predictions per node that records name, and facts of the graphs."""
        for path, record in records.items():
            if record is not None and record.get("predictions"):
                self._look(path, lambda path, record=record: read_nodes(path, record["predictions"]))  # type: ignore[misc]
                graph = Folder(folder).graph(record["dataset"])
                if graph not in self._known:
                    self._look(graph, read_nodes)
        for path in folder.glob("nodes/*/*/seed-*.parquet"):
            if path not in self._known:
                self._known.add(path)
                self.findings.append(Finding("foreign", path, "predictions that no record names"))
        for path in folder.glob("nodes/*/graph.parquet"):
            if path not in self._known:
                self._look(path, read_nodes)

    def _method(self, folder: Path) -> None:
        """Check a saved method: two files with checksums of each other."""
        both = (folder / CONFIG, folder / WEIGHTS)
        for path in both:
            self._look(path, lambda path: None, both)
        if all(path.is_file() for path in both):
            self._look(folder / CONFIG, lambda path: read_files(path.parent), both)
            self.checked -= 1  # it was counted above

    def _model(self, folder: Path) -> None:
        """Check a model; a damaged one is moved away as a whole, because the rest would be no model."""
        names = (MODEL, *SUMMED, CARD, PAGE, STATE, PICTURE)
        whole = tuple(folder / name for name in names)
        for name in (MODEL, *SUMMED):
            self._look(folder / name, lambda path: None, whole)
        if all((folder / name).is_file() for name in (MODEL, *SUMMED)):
            self._look(folder / MODEL, lambda path: (read_config(path.parent), read_files(path.parent)), whole)
            self.checked -= 1  # it was counted above
        if (folder / STATE).exists():
            self._look(folder / STATE, _sealed)
        self._known |= {folder / CARD, folder / PAGE, folder / PICTURE, *(folder / CHECKPOINTS).glob("*")}
        if (folder / TUNING).is_dir():
            self._results(folder / TUNING)

    def _graph(self, path: Path) -> None:
        self._look(path, lambda path: Graph(**from_arrays(read_arrays(path), path)))

    def _packed(self, folder: Path) -> None:
        """Check a packed graph, all of it; a damaged one loses its header, because the rest is no graph."""
        header = (folder / PACKED,)
        head = self._look(folder / PACKED, lambda path: read_header(path.parent))
        entries: dict[str, Entry] = {}
        if head is not None:
            entries = self._look(folder / PACKED, lambda path: read_entries(head, path.parent)) or {}
            self.checked -= 1  # it was counted above
        for name, entry in entries.items():
            check = partial(check_array, name=name, entry=entry, head=head)
            self._look(folder / f"{name}.npy", check, header)
        if head is None or not entries:
            self._known |= {folder / f"{name}.npy" for name in ARRAYS}

    def _cached(self, folder: Path) -> None:
        """Check a cached graph, which must have a checksum."""
        self._look(folder / GRAPH, lambda path: Graph(**from_arrays(read_arrays(path, sealed=True), path)))

    def _cache(self, folder: Path) -> None:
        """Check cached graphs, and raw files whose checksums are known."""
        for path in sorted(folder.glob(f"*/{GRAPH}")):
            self._cached(path.parent)
        files = {name: file for dataset in DATASETS.values() for name, file in dataset.files.items()}
        for path in _files(folder / RAW):
            file = files.get(str(path.relative_to(folder / RAW)))
            self._known.add(path)
            if file is not None:
                self._look(path, file.check)
        for path in folder.glob("*/work-*/**/*"):  # of processes that read raw files, or were killed
            self._known.add(path)


def _placed(path: Path, folder: Folder) -> dict[str, Any]:
    """Read a record, which must be where its run belongs."""
    record = read_record(path)
    if folder.record(record["dataset"], record["method"], record["seed"]) != path:
        raise RecordError(f"misplaced, it is {record['dataset']} {record['method']} seed {record['seed']}")
    return record


def _sealed(path: Path) -> None:
    if sealed_with(path.read_bytes()) is None:
        raise RecordError("damaged or edited, its checksum does not fit")


def _journal(path: Path) -> None:
    whole = _whole_part(path)
    rest = path.read_bytes()[len(whole) :]
    if b"\n" in rest:  # and not half a line, which a kill leaves
        raise RecordError(f"damaged after {whole.count(10)} whole lines")


def _whole_part(path: Path) -> bytes:
    """Return the intact lines at the beginning of a journal."""
    from .experiments.journal import intact

    return path.read_bytes()[: intact(path)]


def _keep(journal: Path, content: bytes) -> None:
    """Write what is intact of a journal, and mark the owners of its trials as dead: nobody works in the folder."""
    for line in content.splitlines():
        owner = json.loads(line).get("user_attr", {}).get("owner")
        if owner:
            write(journal.parent / OWNERS / owner[0], b"")
    write(journal, content)


def _files(folder: Path) -> Iterator[Path]:
    """Yield all files below a folder but locks, half-written files and those moved away."""
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name != DAMAGED)
        for name in sorted(names):
            if not name.startswith("."):
                yield Path(place, name)


def _put_aside(path: Path, root: Path) -> None:
    target = root / DAMAGED / path.relative_to(root)
    number = 1
    while target.exists():  # put aside before, and damaged again
        number += 1
        target = root / DAMAGED / path.relative_to(root).with_name(f"{path.name}.{number}")
    make_folder(target.parent)
    path.replace(target)
    for folder in (target.parent, path.parent):
        sync_folder(folder)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold the folder of an experiment while no command works there."""
    with Occupancy(folder).alone() as alone:
        if not alone:
            raise EngineError(f"{folder}: another command works here; repair when it has ended")
        yield
