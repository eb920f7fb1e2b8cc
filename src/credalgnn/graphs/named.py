"""Graphs and tasks by name: the paper's six, four that are widely used, and two that need no files."""

from __future__ import annotations

import csv
import errno
import os
import platform
import shutil
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from .errors import GraphError
from .graph import Graph
from .sources import SOURCES, TEST, TRAIN, VAL
from .storage import from_arrays, read_arrays, to_arrays, write_arrays
from .synthetic import csbm, digits
from .task import Split, Task


@dataclass(frozen=True)
class Dataset:
    """A graph with a name: what it is, and which classes are left out, of the paper's graphs as it does."""

    name: str
    about: str
    ood_classes: tuple[int, ...]
    make: Callable[[], Graph] | None = None  # None: from files
    published: tuple[int, int, int, str] | None = None  # nodes, edges, classes, homophily; None: in the paper's table


DATASETS: dict[str, Dataset] = {
    one.name: one
    for one in (
        Dataset("chameleon", "Wikipedia pages on chameleons, linked; monthly traffic in five classes", (0, 1)),
        Dataset("squirrel", "Wikipedia pages on squirrels, linked; monthly traffic in five classes", (0, 1)),
        Dataset("arxiv", "citations of arXiv papers; year of publication in five classes", (0, 1)),
        Dataset("patents", "citations of US patents; year of the grant in five classes", (0, 1)),
        Dataset("coauthor", "co-authors in computer science; field of study", tuple(range(4))),
        Dataset("reddit2", "Reddit posts joined by a common commenter; subreddit", tuple(range(11))),
        Dataset(
            "cora",
            "citations among papers on machine learning; topic",
            tuple(range(3)),
            published=(2708, 10556, 7, "high"),
        ),
        Dataset(
            "citeseer",
            "citations among papers on computer science; area",
            (0, 1),
            published=(3327, 9104, 6, "high"),
        ),
        Dataset(
            "pubmed",
            "citations among papers on diabetes; type of the disease",
            (0,),
            published=(19717, 88648, 3, "high"),
        ),
        Dataset(
            "computers",
            "computer goods that Amazon sells, joined if often bought together; category",
            tuple(range(3)),
            published=(13752, 491722, 10, "high"),
        ),
        Dataset("digits", "handwritten digits joined to their nearest neighbours (embedded)", (8, 9), digits),
        Dataset("csbm", "contextual stochastic block model (generated)", (0,), partial(csbm, classes=4)),
    )
}


def paper_table() -> list[dict[str, str | int]]:
    """The paper's table of data sets: counts as numbers, class ranges as text."""
    with (files("credalgnn.graphs") / "paper_datasets.csv").open() as file:
        return [{key: int(v) if v.isdigit() else v for key, v in row.items()} for row in csv.DictReader(file)]


def load_graph(
    name: str, *, mirror: str | os.PathLike[str] | None = None, data_root: str | os.PathLike[str] | None = None
) -> Graph:
    """A graph by name; read from raw files the first time, from the cache afterwards."""
    return _load(name, mirror, data_root)[0]


def load_task(
    name: str,
    split_seed: int = 0,
    ood_classes: Sequence[int] | None = None,
    *,
    inductive: bool = False,
    mirror: str | os.PathLike[str] | None = None,
    data_root: str | os.PathLike[str] | None = None,
) -> Task:
    """The leave-out-class task of a named graph, by default with the classes left out that ``DATASETS`` names.

    ``split_seed`` chooses the public split where there are some (ten for Chameleon and Squirrel, one for Reddit2), and
    seeds a random 60/20/20 elsewhere. ``inductive`` hides all nodes but those of training from training.
    """
    graph, roles = _load(name, mirror, data_root)
    left_out = DATASETS[name].ood_classes if ood_classes is None else ood_classes
    split = None
    if roles is not None:
        if not 0 <= split_seed < roles.shape[1]:
            raise GraphError(f"{name} has the public splits 0..{roles.shape[1] - 1}; there is no split {split_seed}")
        role = torch.from_numpy(roles[:, split_seed].copy())
        split = Split.from_masks(role == TRAIN, role == VAL, role == TEST)
    return Task.leave_out(graph, left_out, split, split_seed, name, inductive)


def in_mirror(name: str, mirror: str | os.PathLike[str] | None = None) -> bool:
    """Whether the mirror has all raw files of a graph."""
    given = _mirror(mirror)
    return given is not None and all((given / file).is_file() for file in SOURCES[name].files)


def _mirror(given: str | os.PathLike[str] | None) -> Path | None:
    chosen = given if given is not None else os.environ.get("CREDALGNN_MIRROR")
    if chosen and not Path(chosen).is_dir():
        raise GraphError(f"the mirror {chosen} is not a folder; check --mirror and CREDALGNN_MIRROR")
    return Path(chosen) if chosen else None


def summary(name: str, data_root: str | os.PathLike[str] | None = None) -> tuple[int, int, int, float] | None:
    """Nodes, edges, classes and homophily of a graph that is embedded or in the cache; None if it is neither.

    Of a cached graph only these four numbers are read.
    """
    make = DATASETS[name].make
    if make is not None:
        seen = make().describe()
        return seen.nodes, seen.edges, len(seen.class_counts), seen.homophily
    path = _data_root(data_root) / name / "graph.npz"
    if not path.is_file():
        return None
    try:
        with path.open("rb") as stream:
            nodes, edges, classes, homophily = np.load(stream, allow_pickle=False)["summary"]
    except (*UNREADABLE, OSError):
        return None
    return int(nodes), int(edges), int(classes), float(homophily)


def _data_root(given: str | os.PathLike[str] | None) -> Path:
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


# What readers of damaged npz, json, csv and mat files raise, besides OSError.
UNREADABLE = (
    ValueError,
    LookupError,
    EOFError,
    RuntimeError,
    AttributeError,
    TypeError,
    zipfile.BadZipFile,
    zlib.error,
)


def _unreadable(name: str, work: Path, error: Exception) -> GraphError:
    """An error for raw files that cannot be read; they may have been put there by hand, so they stay."""
    places = [(work / file).resolve() for file in SOURCES[name].files]
    names = ", ".join(place.name for place in places)
    where = places[0].parent
    return GraphError(
        f"{name}: one of {names} in {where} cannot be read ({error}); replace it, or remove it to fetch it"
    )


def _load(
    name: str, mirror: str | os.PathLike[str] | None, data_root: str | os.PathLike[str] | None
) -> tuple[Graph, NDArray[np.int8] | None]:
    if name not in DATASETS:
        raise GraphError(f"there is no data set {name!r}; there are {', '.join(DATASETS)}")
    make = DATASETS[name].make
    if make is not None:
        return make(), None
    folder = _data_root(data_root) / name
    path = folder / "graph.npz"
    if path.is_file():
        try:
            arrays = read_arrays(path)
            arrays.pop("summary", None)
            roles = arrays.pop("roles", None)
            return from_arrays(arrays, path), roles
        except GraphError as error:
            print(f"{error}; it is made anew", file=sys.stderr)
    given = _mirror(mirror)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _sweep(folder)
        work = Path(tempfile.mkdtemp(prefix=f"work-{platform.node()}-{os.getpid()}-", dir=folder))
    except OSError as error:
        raise GraphError(f"{folder} cannot be written ({error.strerror}); choose another with --data-root") from None
    try:
        SOURCES[name].locate(given, _data_root(data_root) / "raw", work)
        try:
            graph, roles = SOURCES[name].read(work)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT):
                raise
            raise _unreadable(name, work, error) from None
        except UNREADABLE as error:
            raise _unreadable(name, work, error) from None
        arrays = to_arrays(graph)
        seen = graph.describe()
        arrays["summary"] = np.array([seen.nodes, seen.edges, graph.num_classes, seen.homophily])
        write_arrays(path, arrays if roles is None else arrays | {"roles": roles})
    except OSError as error:
        reason = error.strerror or str(error)
        raise GraphError(f"{folder} cannot be written ({reason}); choose another place with --data-root") from None
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return graph, roles
