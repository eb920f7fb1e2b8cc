"""Data sets by name: the paper's six, others that are widely used, two that need no files, and those from outside."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from ...runtime.names import import_object, suggestion
from ..errors import GraphError
from ..graph import Graph
from ..packed import verify_packed
from ..sources import open_graph, path_kind
from ..task import Classes, Task
from .base import Dataset, Folder
from .changes import shifted, split_changes, with_parameters
from .geom_gcn import ACTOR, CORNELL, TEXAS, WISCONSIN
from .gnn_benchmark import COAUTHOR, COMPUTERS, CORA_ML, PHOTO, PHYSICS
from .heterophilous import AMAZON_RATINGS, CHAMELEON_FILTERED, ROMAN_EMPIRE, SQUIRREL_FILTERED
from .planetoid import CITESEER, CORA, PUBMED
from .reddit2 import REDDIT2
from .synthetic import CSBM, DIGITS
from .wiki_cs import WIKI_CS
from .wikipedia import CHAMELEON, SQUIRREL
from .years import ARXIV, ARXIV_STRUCTURE, PATENTS

ENTRY_POINTS = "credalgnn.datasets"  # the group in which a package announces its data sets

PATHS = "a saved graph (.npz, .pt, .safetensors), a packed graph (.cg) or a folder with nodes and edges tables"
DATASETS: dict[str, Dataset] = {
    dataset.name: dataset
    for dataset in (
        CHAMELEON,
        SQUIRREL,
        ARXIV,
        PATENTS,
        COAUTHOR,
        REDDIT2,
        CORA,
        CITESEER,
        PUBMED,
        CORA_ML,
        COMPUTERS,
        PHOTO,
        PHYSICS,
        WIKI_CS,
        ROMAN_EMPIRE,
        AMAZON_RATINGS,
        ACTOR,
        CHAMELEON_FILTERED,
        SQUIRREL_FILTERED,
        CORNELL,
        TEXAS,
        WISCONSIN,
        ARXIV_STRUCTURE,
        DIGITS,
        CSBM,
    )
}


def load_graph(
    name: str | os.PathLike[str], *, verify: bool = False, mirror: Folder = None, data_root: Folder = None
) -> Graph:
    """Load a graph by name or path.

    A data set with raw files is read from these the first time, and from a cache afterwards. A packed graph is opened,
    not read.

    Args:
        name: Name of a built-in data set (``"cora"``) or of a plug-in, or one of: the file of a saved graph (``.npz``),
            of tensors ``x``, ``edge_index``, ... (``.pt``, ``.safetensors``), a packed graph (``.cg``), a folder with
            the tables ``nodes`` and ``edges``, an import path ``package.module:name``. See ``find_dataset``.
        verify: Read all of a packed graph and compare its checksums; all other files are always checked.
        mirror: Folder with raw files of data sets, searched first. Default: ``CREDALGNN_MIRROR``.
        data_root: Folder of the cache and of downloads. Default: ``CREDALGNN_DATA``, or the user's cache folder.

    Example:
        >>> import credalgnn as cg
        >>> cg.load_graph("digits")
        Graph(nodes=1797, edges=11692, features=64 dense, classes=10)
    """
    graph = find_dataset(name).load(mirror=mirror, data_root=data_root).graph
    if verify and graph.path is not None:
        verify_packed(graph.path)
    return graph


def load_task(
    name: str | os.PathLike[str],
    split_seed: int = 0,
    ood_classes: Classes | None = None,
    *,
    inductive: bool = False,
    mirror: Folder = None,
    data_root: Folder = None,
) -> Task:
    """The leave-out-class task of a graph by name.

    Args:
        name: See ``find_dataset``. Shifts of the task may follow, as in ``"chameleon+label_noise=0.2"``.
        split_seed: Chooses the public split where there are some (ten for Chameleon, Squirrel and other heterophilous
            graphs, twenty for Wiki-CS, one for Reddit2), and seeds a random 60/20/20 elsewhere. It seeds shifts, too.
        ood_classes: The classes to leave out, by number or name; ``()`` for none. Default: those that the data set
            names; a file or a folder names none.
        inductive: Hide all nodes but those of training from training.
        mirror: See ``load_graph``.
        data_root: See ``load_graph``.
    """
    dataset = find_dataset(name)
    _, changes = split_changes(os.fspath(name))
    task = dataset.task(split_seed, ood_classes=ood_classes, inductive=inductive, mirror=mirror, data_root=data_root)
    return replace(shifted(task, changes, split_seed), name=dataset_name(name))


def find_dataset(name: str | os.PathLike[str]) -> Dataset:
    """A data set by whatever it can be asked for; its own ``name`` is short and safe for folders.

    Args:
        name: The name of a built-in data set or of an installed plug-in (entry points ``credalgnn.datasets``), the path
            of a packed graph (``.cg``), of a file of ``Graph.save`` (``.npz``) or of a folder with tables ``nodes`` and
            ``edges``, or an import path, ``package.module:name``, to a ``Dataset``, a ``Graph``, a ``Task`` or a
            function that returns a ``Graph`` or a ``Task``. Numbers that a function takes can be set, as in
            ``"csbm+homophily=0.5"``.
    """
    text, changes = split_changes(os.fspath(name))
    return with_parameters(_plain_dataset(text), changes)


def _plain_dataset(text: str) -> Dataset:
    """A data set by what it can be asked for, without changes."""
    if text in DATASETS:
        return replace(DATASETS[text], source=f"named: {text}")
    plugins = _plugins()
    if text in plugins:
        entry = plugins[text]
        package = f" ({entry.dist.name} {entry.dist.version})" if entry.dist is not None else ""
        return _outside(text, entry.value, f"plug-in: {text}{package}")
    kind = path_kind(text)
    if kind is not None:
        return Dataset(dataset_name(text), partial(open_graph, text), source=f"{kind}: {text}")
    if ":" in text:
        return _outside(text, text, f"import: {text}")
    if Path(text).is_file():
        raise GraphError(f"{text}: not a graph; give {PATHS}")
    hint = suggestion(text, dataset_names())
    raise GraphError(f"there is no data set {text!r}: {hint}; or give {PATHS}, or an import path, package.module:name")


def dataset_names() -> list[str]:
    """All names: those of built-in data sets, then those of installed plug-ins."""
    return [*DATASETS, *_plugins()]


def dataset_name(name: str | os.PathLike[str]) -> str:
    """The name of the task that ``load_task`` makes: short, and safe for folders.

    ``my_graph`` for ``path/my_graph.npz``, ``mypackage.graphs-make_task`` for ``mypackage.graphs:make_task``, and
    ``csbm-label_noise-0.2`` for ``csbm+label_noise=0.2``.

    Args:
        name: See ``find_dataset``.
    """
    text, _ = split_changes(os.fspath(name))
    suffix = os.fspath(name).removeprefix(text)
    kind = None if text in DATASETS or text in _plugins() else path_kind(text)
    if kind is not None:
        text = Path(text).resolve().name if kind == "folder" else Path(text).stem
    return re.sub(r"[^\w.-]+", "-", (text or "graph") + suffix).strip("-.") or "graph"


def paper_table() -> list[dict[str, str | int]]:
    """The paper's table of data sets: counts as numbers, class ranges as text."""
    table: list[dict[str, str | int]] = []
    for dataset in DATASETS.values():
        if dataset.paper is None or dataset.published is None:
            continue
        nodes, edges, classes, homophily = dataset.published
        left_out = len(tuple(dataset.ood_classes))  # type: ignore[arg-type]  # the first ones
        row: dict[str, str | int] = {"dataset": dataset.name, "nodes": nodes, "edges": edges, "classes": classes}
        row["homophily"] = {"low": "He", "high": "Ho"}[str(homophily)]
        row |= {"ood_classes": f"0-{left_out - 1}", "id_classes": f"{left_out}-{classes - 1}"}
        parts = ("train_id", "val_id", "val_ood", "test_id", "test_ood")
        table.append(row | dict(zip(parts, dataset.paper, strict=True)))
    return table


def _plugins() -> dict[str, EntryPoint]:
    """Installed plug-ins by name; those of the data sets here cannot be taken."""
    return {entry.name: entry for entry in entry_points(group=ENTRY_POINTS) if entry.name not in DATASETS}


def _outside(name: str, path: str, source: str) -> Dataset:
    """The data set that an import path leads to, under the name it was asked for."""
    try:
        value = import_object(path)
    except ImportError as error:
        raise GraphError(f"{source}: {error}") from None
    short = dataset_name(name)
    if isinstance(value, Dataset):
        return replace(value, name=short, source=source)
    if isinstance(value, Graph | Task):
        return Dataset(short, lambda: value, source=source)
    if not callable(value):
        raise GraphError(
            f"{source}: a Dataset, a Graph, a Task or a function that returns one is wanted, not {type(value).__name__}"
        )
    return Dataset(short, value, source=source)
