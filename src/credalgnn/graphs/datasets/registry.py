"""Data sets by name: built-in ones, plug-ins, files, folders and import paths; and changes of them by name."""

from __future__ import annotations

import inspect
import math
import os
import re
from dataclasses import replace
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import NamedTuple

from ...runtime.names import import_object, suggestion
from ..errors import GraphError
from ..graph import Graph
from ..packed import verify_packed
from ..sources import open_graph, path_kind
from ..task import Classes, Task
from .base import Dataset, Folder
from .geom_gcn import ACTOR, CHAMELEON, CORNELL, SQUIRREL, TEXAS, WISCONSIN
from .planetoid import CITESEER, CORA, PUBMED
from .public import (
    AMAZON_RATINGS,
    CHAMELEON_FILTERED,
    COAUTHOR,
    COMPUTERS,
    CORA_ML,
    PHOTO,
    PHYSICS,
    REDDIT2,
    ROMAN_EMPIRE,
    SQUIRREL_FILTERED,
    WIKI_CS,
)
from .synthetic import CSBM, DIGITS
from .years import ARXIV, ARXIV_STRUCTURE, PATENTS

ENTRY_POINTS = "credalgnn.datasets"  # group in which packages announce data sets
PATHS = "a saved graph (.npz, .pt, .safetensors), a packed graph (.cg) or a folder with nodes and edges tables"
# Shifts of a task that a name may request, with their options besides the share.
SHIFTS: dict[str, tuple[str, ...]] = {
    "fewer_labels": (), "fewer_ood": (), "label_noise": (), "feature_noise": ("std",), "feature_removal": (),
    "rewired": (),
}  # fmt: skip

DATASETS: dict[str, Dataset] = {
    dataset.name: dataset
    for dataset in (
        CHAMELEON, SQUIRREL, ARXIV, PATENTS, COAUTHOR, REDDIT2, CORA, CITESEER, PUBMED, CORA_ML, COMPUTERS, PHOTO,
        PHYSICS, WIKI_CS, ROMAN_EMPIRE, AMAZON_RATINGS, ACTOR, CHAMELEON_FILTERED, SQUIRREL_FILTERED, CORNELL, TEXAS,
        WISCONSIN, ARXIV_STRUCTURE, DIGITS, CSBM,
    )
}  # fmt: skip


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
    """Load the leave-out-class task of a graph.

    Args:
        name: See ``find_dataset``. Shifts of the task may follow, as in ``"chameleon+label_noise=0.2"``.
        split_seed: Number of the public split where there are some (ten for Chameleon, Squirrel and other heterophilous
            graphs, twenty for Wiki-CS, one for Reddit2), else the seed of a random 60/20/20 split. Also seeds shifts.
        ood_classes: Classes to leave out, by number or name; ``()`` for none. Default: those of the data set; files and
            folders have none.
        inductive: Hide all nodes but the training nodes from training.
        mirror: See ``load_graph``.
        data_root: See ``load_graph``.

    Example:
        >>> import credalgnn as cg
        >>> cg.load_task("digits", ood_classes=[8, 9]).ood_classes
        (8, 9)
    """
    dataset = find_dataset(name)
    _, changes = split_changes(os.fspath(name))
    task = dataset.task(split_seed, ood_classes=ood_classes, inductive=inductive, mirror=mirror, data_root=data_root)
    for change in changes:
        if change.name in SHIFTS:
            task = getattr(task, change.name)(change.value, seed=split_seed, **change.options)
    return replace(task, name=dataset_name(name))


def find_dataset(name: str | os.PathLike[str]) -> Dataset:
    """Return the data set with a name, or of a file, folder or import path.

    Args:
        name: Name of a built-in data set or of an installed plug-in (entry points ``credalgnn.datasets``); path of a
            packed graph (``.cg``), of a saved graph (``.npz``), of tensors (``.pt``, ``.safetensors``) or of a folder
            with tables ``nodes`` and ``edges``; or an import path, ``package.module:name``, of a ``Dataset``, a
            ``Graph``, a ``Task`` or a function that returns a ``Graph`` or a ``Task``. Numeric parameters of a function
            can be set, as in ``"csbm+homophily=0.5"``.
    """
    text, changes = split_changes(os.fspath(name))
    return _with_parameters(_unchanged_dataset(text), changes)


def _unchanged_dataset(text: str) -> Dataset:
    if text in DATASETS:
        return replace(DATASETS[text], source=f"named: {text}")
    plugins = _plugins()
    if text in plugins:
        entry = plugins[text]
        package = f" ({entry.dist.name} {entry.dist.version})" if entry.dist is not None else ""
        return _imported(text, entry.value, f"plug-in: {text}{package}")
    kind = path_kind(text)
    if kind is not None:
        return Dataset(dataset_name(text), partial(open_graph, text), source=f"{kind}: {text}")
    if ":" in text:
        return _imported(text, text, f"import: {text}")
    if Path(text).is_file():
        raise GraphError(f"{text}: not a graph; give {PATHS}")
    hint = suggestion(text, dataset_names())
    raise GraphError(f"there is no data set {text!r}: {hint}; or give {PATHS}, or an import path, package.module:name")


def dataset_names() -> list[str]:
    """Return the names of built-in data sets, then those of installed plug-ins."""
    return [*DATASETS, *_plugins()]


def dataset_name(name: str | os.PathLike[str]) -> str:
    """Return the name of the task that ``load_task`` makes: short, and safe for folders.

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
    """Return the paper's table of data sets: counts as numbers, class ranges as text."""
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
    """Return installed plug-ins by name; they cannot take the names of built-in data sets."""
    return {entry.name: entry for entry in entry_points(group=ENTRY_POINTS) if entry.name not in DATASETS}


def _imported(name: str, path: str, source: str) -> Dataset:
    """Return the data set at an import path."""
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
            f"{source}: must be a Dataset, a Graph, a Task or a function that returns one, not {type(value).__name__}"
        )
    return Dataset(short, value, source=source)


class Change(NamedTuple):
    """A shift of a task with its share and options, or a parameter of a generated graph with its value."""

    name: str
    value: float
    options: dict[str, float]


def split_changes(text: str) -> tuple[str, list[Change]]:
    """Split ``name+shift=share,option=value+...`` into name and changes."""
    match = re.fullmatch(r"(.+?)((?:\+\w+=[^+]*)+)", text, re.DOTALL)
    if match is None or os.path.exists(text):  # a path may have such a name
        return text, []
    return match[1], [_change(part, text) for part in match[2].removeprefix("+").split("+")]


def _change(part: str, text: str) -> Change:
    pairs = [item.partition("=") for item in part.split(",")]
    values: dict[str, float] = {}
    for name, equals, text_value in pairs:
        if name in values:
            raise GraphError(f"{text:.100}: {name} occurs twice")
        try:
            values[name] = int(text_value) if re.fullmatch(r"-?\d{1,15}", text_value) else float(text_value)
        except ValueError:
            values[name] = math.nan
        if not equals or not math.isfinite(values[name]):
            raise GraphError(
                f"{text:.100}: {name}={text_value} is no number; write it as in +label_noise=0.2"
            ) from None
    (name, value), *options = values.items()
    return Change(name, value, dict(options))


def _with_parameters(dataset: Dataset, changes: list[Change]) -> Dataset:
    """Return the data set with the changes that are parameters of its graph; refuse unknown changes."""
    signature = {} if dataset.files else inspect.signature(dataset.make).parameters
    numbers = [name for name, each in signature.items() if type(each.default) in (int, float) and name != "split_seed"]
    parameters = {}
    for name, value, options in changes:
        allowed = SHIFTS.get(name, ())
        if name not in SHIFTS and name not in numbers:
            raise GraphError(f"{dataset.name}+{name}: no such change; {suggestion(name, [*SHIFTS, *numbers])}")
        for option in options:
            if option not in allowed:
                hint = f"it takes {', '.join(allowed)}" if allowed else "it takes none"
                raise GraphError(f"{dataset.name}+{name}: no option {option!r}; {hint}")
        if name not in SHIFTS:
            parameters[name] = value
    return replace(dataset, make=partial(dataset.make, **parameters)) if parameters else dataset
