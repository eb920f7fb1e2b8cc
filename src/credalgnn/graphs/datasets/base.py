"""Data sets: how a graph is made and split, and the cache of graphs made of raw files."""

from __future__ import annotations

import errno
import inspect
import os
import platform
import shutil
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from ...runtime.errors import translated
from ...runtime.files import is_sealed_zip
from ...runtime.reading import open_file, read_npz
from ...runtime.texts import one_line
from ..errors import GraphError, OwnTaskError
from ..graph import Graph
from ..split import Split
from ..storage import from_arrays, read_arrays, to_arrays, write_arrays
from ..task import Classes, Task
from .files import File, locate

Folder = str | os.PathLike[str] | None
TRAIN, VAL, TEST = 0, 1, 2  # roles [N, S] of nodes in S splits, stored with a cached graph; -1 is none

# Errors of readers of damaged npz, json, csv and mat files, besides OSError.
UNREADABLE = (
    ValueError, LookupError, OverflowError, EOFError, RuntimeError, AttributeError, TypeError, AssertionError,
    MemoryError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip


class Loaded(NamedTuple):
    """A graph and the splits published with it.

    Args:
        graph: The graph.
        splits: Splits that ``split_seed`` chooses from. None: it seeds a random one.
    """

    graph: Graph
    splits: Sequence[Split] | None = None


class Summary(NamedTuple):
    """Size of a graph.

    Args:
        nodes: Number of nodes.
        edges: Number of directed edges.
        classes: Number of classes.
        homophily: Edge homophily; ``low`` or ``high`` where no number is published.
    """

    nodes: int
    edges: int
    classes: int
    homophily: float | str


@dataclass(frozen=True)
class Dataset:
    """A named graph and the leave-out-class task on it.

    Args:
        name: Name in tables and folders.
        make: Function that returns the graph, the graph with its splits (``Loaded``), or a task of its own. It is
            called without arguments, or, if there are ``files``, with the folder below which they are. A function that
            returns a task may have parameters ``split_seed``, ``ood_classes`` and ``inductive``.
        ood_classes: Classes left out by default: numbers or names, ``()`` for none. None: tasks have to name them.
        description: Meaning of nodes, edges and classes, in one line.
        files: Raw files by their path below the folder; they are taken from a mirror or downloaded, and the graph is
            cached.
        published: Size of the graph, shown as long as the files are missing.
        paper: Sizes of the parts in the paper's table: ``train_id``, ``val_id``, ``val_ood``, ``test_id``,
            ``test_ood``.
        source: Origin of the data set, for records.

    Example:
        >>> from credalgnn.graphs import Dataset, csbm
        >>> Dataset("pets", lambda: csbm(60, classes=3), ood_classes=[2]).task().name
        'pets'
    """

    name: str
    make: Callable[..., Graph | Loaded | Task]
    ood_classes: Classes | None = None
    description: str = ""
    files: dict[str, File] = field(default_factory=dict)
    published: Summary | None = None
    paper: tuple[int, int, int, int, int] | None = None
    source: str = ""

    def load(self, *, mirror: Folder = None, data_root: Folder = None) -> Loaded:
        """Return the graph and its splits, from the cache if it was made of files before.

        Args:
            mirror: Folder with raw files, searched first. Default: ``CREDALGNN_MIRROR``.
            data_root: Folder of the cache and of downloads. Default: ``CREDALGNN_DATA``, or the user's cache folder.
        """
        made = self._made({}, mirror, data_root)
        return Loaded(made.graph, [made.split]) if isinstance(made, Task) else made

    def task(
        self,
        split_seed: int = 0,
        *,
        ood_classes: Classes | None = None,
        inductive: bool = False,
        mirror: Folder = None,
        data_root: Folder = None,
    ) -> Task:
        """Return the leave-out-class task on the graph; see ``load_task``.

        Args:
            split_seed: Number of the published split, or seed of a random one.
            ood_classes: Classes to leave out, by number or name. Default: those of the data set.
            inductive: Training sees the training nodes alone.
            mirror: See ``load``.
            data_root: See ``load``.
        """
        options = {"split_seed": split_seed, "ood_classes": ood_classes, "inductive": inductive}
        made = self._made(options, mirror, data_root)
        if isinstance(made, Task):
            return replace(made, name=self.name, source=self.source)
        left_out = self.ood_classes if ood_classes is None else ood_classes
        if left_out is None:
            raise GraphError(
                f"{self.name} does not say which classes are left out: name them, `ood_classes`, "
                f"none for a task without; the classes are {', '.join(made.graph.class_names[:12])}"
            )
        split = None
        if made.splits is not None:
            if not 0 <= split_seed < len(made.splits):
                last = len(made.splits) - 1
                raise GraphError(f"{self.name} has the public splits 0..{last}; there is no split {split_seed}")
            split = made.splits[split_seed]
        return Task.leave_out(made.graph, left_out, split, split_seed, self.name, inductive, source=self.source)

    def _made(self, options: dict[str, Any], mirror: Folder, data_root: Folder) -> Loaded | Task:
        if self.files:
            return load_files(self, mirror, data_root)
        parameters = inspect.signature(self.make).parameters
        passed = {name: value for name, value in options.items() if name in parameters}
        try:
            made = self.make(**passed)
        except GraphError:
            raise
        except Exception as error:  # from a function of somebody else
            raise GraphError(f"{self.source or self.name}: {type(error).__name__}: {error}") from error
        if isinstance(made, Task):
            defaults = {"split_seed": 0, "ood_classes": None, "inductive": made.inductive}
            ignored = [name for name, value in options.items() if name not in passed and value != defaults[name]]
            if ignored:
                raise OwnTaskError(
                    f"{self.name} is made as a task with a split and classes of its own: to choose {ignored[0]}, let "
                    f"the function that makes it take {ignored[0]}= or return a graph"
                )
            return made
        if isinstance(made, Graph):
            return Loaded(made)
        if not isinstance(made, Loaded):
            raise GraphError(f"{self.name}: must be a Graph, a Loaded or a Task, not {type(made).__name__}")
        return made

    def summary(self, data_root: Folder = None) -> Summary | None:
        """Return the size of the graph, as far as it is known without reading raw files.

        Args:
            data_root: See ``load``.
        """
        if self.files:
            return _cached_summary(self.name, data_root) or self.published
        if self.published is not None:
            return self.published
        graph = self.load().graph
        described = graph.describe()
        return Summary(described.nodes, described.edges, graph.num_classes, described.homophily)

    def place(self, mirror: Folder = None, data_root: Folder = None) -> str:
        """Return where the graph is, in a few words for a listing.

        Args:
            mirror: See ``load``.
            data_root: See ``load``.
        """
        if not self.files:
            return "embedded"
        if _cached_summary(self.name, data_root) is not None:
            return "yes"
        folder = _mirror(mirror)
        mirrored = folder is not None and all((folder / file).is_file() for file in self.files)
        return "raw files in the mirror" if mirrored else "no"


def load_files(dataset: Dataset, mirror: Folder, data_root: Folder) -> Loaded:
    """Return the graph of a data set with raw files and its splits, from the cache or from the files."""
    root = _data_root(data_root)
    folder = root / dataset.name
    path = folder / "graph.npz"
    if path.is_file():
        try:
            return _read_cache(path)
        except GraphError as error:
            print(f"{one_line(str(error))}; it is made anew from the raw files", file=sys.stderr)
    mirror_folder = _mirror(mirror)
    remedy = "choose another place with `data_root` or CREDALGNN_DATA"
    with translated(OSError, lambda error: GraphError(f"{folder} cannot be written ({error.strerror}); {remedy}")):
        folder.mkdir(parents=True, exist_ok=True)
        _sweep(folder)
        work = Path(tempfile.mkdtemp(prefix=f"work-{platform.node()}-{os.getpid()}-", dir=folder))
    try:
        locate(dataset.files, mirror_folder, root / "raw", work)
        loaded = _read_files(dataset, work)
        _write_cache(path, loaded)
    except OSError as error:
        raise GraphError(f"{folder} cannot be written ({error.strerror or error}); {remedy}") from None
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return loaded


def _read_cache(path: Path) -> Loaded:
    arrays = read_arrays(path, sealed=True)
    arrays.pop("summary", None)
    roles = arrays.pop("roles", None)
    graph = Graph(**from_arrays(arrays, path))
    if roles is None:
        return Loaded(graph)
    columns = (torch.from_numpy(column.copy()) for column in roles.T)
    return Loaded(graph, [Split.from_masks(column == TRAIN, column == VAL, column == TEST) for column in columns])


def _write_cache(path: Path, loaded: Loaded) -> None:
    arrays, described = to_arrays(loaded.graph), loaded.graph.describe()
    classes = loaded.graph.num_classes
    arrays["summary"] = np.array([described.nodes, described.edges, classes, described.homophily])
    if loaded.splits is not None:
        roles: NDArray[np.int8] = np.full((described.nodes, len(loaded.splits)), -1, np.int8)
        for number, split in enumerate(loaded.splits):
            for role, part in ((TRAIN, split.train), (VAL, split.val), (TEST, split.test)):
                roles[part.numpy(), number] = role
        arrays["roles"] = roles
    write_arrays(path, arrays)


def _read_files(dataset: Dataset, work: Path) -> Loaded:
    """Call ``dataset.make``; damaged files stay where they are, as they may have been put there by hand."""
    try:
        made = dataset.make(work)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT):
            raise
        reason: Exception = error
    except UNREADABLE as error:
        reason = error
    else:
        if isinstance(made, Task):
            raise GraphError(f"{dataset.name}: a task cannot be cached; a data set with files must make a graph")
        return Loaded(made) if isinstance(made, Graph) else made
    places = [(work / file).resolve() for file in dataset.files]
    names = ", ".join(place.name for place in places)
    raise GraphError(
        f"{dataset.name}: one of {names} in {places[0].parent} cannot be read ({one_line(str(reason)):.200}); replace "
        "it, or remove it to fetch it"
    )


def _cached_summary(name: str, data_root: Folder) -> Summary | None:
    """Return the size of a cached graph, reading four numbers only; None if it is not cached."""
    path = _data_root(data_root) / name / "graph.npz"
    if not path.is_file():
        return None
    try:
        with open_file(path) as stream:
            if not is_sealed_zip(stream):
                return None
        nodes, edges, classes, homophily = read_npz(path, ["summary"])["summary"]
    except (*UNREADABLE, OSError):
        return None
    return Summary(int(nodes), int(edges), int(classes), float(homophily))


def _mirror(folder: Folder) -> Path | None:
    chosen = folder if folder is not None else os.environ.get("CREDALGNN_MIRROR")
    if chosen and not Path(chosen).is_dir():
        raise GraphError(f"the mirror {chosen} is not a folder; check `mirror` and CREDALGNN_MIRROR")
    return Path(chosen) if chosen else None


def _data_root(folder: Folder) -> Path:
    if folder is not None:
        return Path(folder)
    if os.environ.get("CREDALGNN_DATA"):
        return Path(os.environ["CREDALGNN_DATA"])
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "credalgnn"


def _sweep(folder: Path) -> None:
    """Remove what killed processes of this machine have left."""
    for work in folder.glob(f"work-{platform.node()}-*"):
        number = work.name.removeprefix(f"work-{platform.node()}-").split("-")[0]
        if number.isdigit() and not _is_alive(int(number)):
            shutil.rmtree(work, ignore_errors=True)
            folder.joinpath(f".graph.npz.{number}.part").unlink(missing_ok=True)


def _is_alive(process: int) -> bool:
    if os.name != "posix":
        return True  # no harmless way to check
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # of another user
    return True
