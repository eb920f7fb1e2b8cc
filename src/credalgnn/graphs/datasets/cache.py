"""Graphs of data sets with raw files: read once, kept as npz files, written whole or not at all."""

from __future__ import annotations

import errno
import os
import platform
import shutil
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from ...runtime.files import is_sealed_zip
from ...runtime.reading import open_file, read_npz
from ...runtime.texts import one_line
from ..errors import GraphError
from ..graph import Graph
from ..split import Split
from ..storage import from_arrays, read_arrays, to_arrays, write_arrays
from ..task import Task
from .base import Folder, Loaded, Summary
from .files import locate

if TYPE_CHECKING:
    from .base import Dataset

TRAIN, VAL, TEST = 0, 1, 2  # in the roles [N, S] of the nodes in S splits that are kept beside a graph; -1: none

# What readers of damaged npz, json, csv and mat files raise, besides OSError.
UNREADABLE = (
    ValueError,
    LookupError,
    OverflowError,
    EOFError,
    RuntimeError,
    AttributeError,
    TypeError,
    AssertionError,
    MemoryError,
    zipfile.BadZipFile,
    zlib.error,
)


def load_files(dataset: Dataset, mirror: Folder, data_root: Folder) -> Loaded:
    """The graph of a data set with raw files and its splits: from the cache, or from the files.

    Args:
        dataset: The data set.
        mirror: See ``Dataset.load``.
        data_root: See ``Dataset.load``.
    """
    name = dataset.name
    folder = _data_root(data_root) / name
    path = folder / "graph.npz"
    if path.is_file():
        try:
            arrays = read_arrays(path, sealed=True)
            arrays.pop("summary", None)
            roles = arrays.pop("roles", None)
            return Loaded(Graph(**from_arrays(arrays, path)), None if roles is None else _splits(roles))
        except GraphError as error:
            print(f"{one_line(str(error))}; it is made anew from the raw files", file=sys.stderr)
    given = mirror_of(mirror)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _sweep(folder)
        work = Path(tempfile.mkdtemp(prefix=f"work-{platform.node()}-{os.getpid()}-", dir=folder))
    except OSError as error:
        raise GraphError(f"{folder} cannot be written ({error.strerror}); choose another with --data-root") from None
    try:
        locate(dataset.files, given, _data_root(data_root) / "raw", work)
        loaded = _read(dataset, work)
        graph = loaded.graph
        arrays = to_arrays(graph)
        described = graph.describe()
        arrays["summary"] = np.array([described.nodes, described.edges, graph.num_classes, described.homophily])
        if loaded.splits is not None:
            arrays["roles"] = _roles(loaded.splits, graph.num_nodes)
        write_arrays(path, arrays)
    except OSError as error:
        reason = error.strerror or str(error)
        raise GraphError(f"{folder} cannot be written ({reason}); choose another place with --data-root") from None
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return loaded


def _read(dataset: Dataset, work: Path) -> Loaded:
    """What ``dataset.make`` makes of the files; they may have been put there by hand, so bad ones stay."""
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
            raise GraphError(f"{dataset.name}: a task cannot be kept; of a data set with files a graph is wanted")
        return Loaded(made) if isinstance(made, Graph) else made
    places = [(work / file).resolve() for file in dataset.files]
    names = ", ".join(place.name for place in places)
    said = f"{one_line(str(reason)):.200}"
    raise GraphError(
        f"{dataset.name}: one of {names} in {places[0].parent} cannot be read ({said}); replace it, or remove it to "
        "fetch it"
    )


def cached_summary(name: str, data_root: Folder) -> Summary | None:
    """The size of a graph in the cache, of which only these four numbers are read; None if it is not there.

    Args:
        name: Of the data set.
        data_root: See ``Dataset.load``.
    """
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


def mirror_of(given: Folder) -> Path | None:
    """The folder with raw files to look at first, if there is one.

    Args:
        given: One that was asked for; None: that of ``CREDALGNN_MIRROR``.
    """
    chosen = given if given is not None else os.environ.get("CREDALGNN_MIRROR")
    if chosen and not Path(chosen).is_dir():
        raise GraphError(f"the mirror {chosen} is not a folder; check --mirror and CREDALGNN_MIRROR")
    return Path(chosen) if chosen else None


def splits_of(data: Any) -> list[Split]:
    """The splits of a ``torch_geometric`` graph.

    Args:
        data: Has masks ``[N]`` or ``[N, S]``.
    """
    masks = (data.train_mask, data.val_mask, data.test_mask)
    columns = (mask.reshape(len(mask), -1).unbind(1) for mask in masks)
    return [Split.from_masks(*parts) for parts in zip(*columns, strict=True)]


def _splits(roles: NDArray[np.int8]) -> list[Split]:
    columns = (torch.from_numpy(column.copy()) for column in roles.T)
    return [Split.from_masks(column == TRAIN, column == VAL, column == TEST) for column in columns]


def _roles(splits: Sequence[Split], nodes: int) -> NDArray[np.int8]:
    """The inverse of ``_splits``."""
    roles = np.full((nodes, len(splits)), -1, np.int8)
    for number, split in enumerate(splits):
        for role, part in ((TRAIN, split.train), (VAL, split.val), (TEST, split.test)):
            roles[part.numpy(), number] = role
    return roles


def _data_root(given: Folder) -> Path:
    if given is not None:
        return Path(given)
    if os.environ.get("CREDALGNN_DATA"):
        return Path(os.environ["CREDALGNN_DATA"])
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "credalgnn"


def _sweep(folder: Path) -> None:
    """Remove what processes of this machine that were killed have left behind."""
    for work in folder.glob(f"work-{platform.node()}-*"):
        number = work.name.removeprefix(f"work-{platform.node()}-").split("-")[0]
        if number.isdigit() and not _alive(int(number)):
            shutil.rmtree(work, ignore_errors=True)
            folder.joinpath(f".graph.npz.{number}.part").unlink(missing_ok=True)


def _alive(process: int) -> bool:
    if os.name != "posix":
        return True  # no harmless way to ask
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # somebody else's, but there
    return True
