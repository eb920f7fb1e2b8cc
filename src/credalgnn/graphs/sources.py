"""Graphs in one place on disk: tables in a folder, a packed or saved graph, or tensors that another program wrote."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..runtime.reading import Unreadable, check_regular, read_tensors
from ._checks import check_mask
from ._packed_files import PARTS, is_packed
from ._table_files import find_tables
from .convert import flat
from .errors import GraphError, warn
from .graph import Graph
from .packed import open_graph

TENSORS = ("x", "edge_index", "y", "edge_weight")
REMEDY = "save plain tensors: torch.save(data.to_dict(), path)"


class TablePaths(NamedTuple):
    """Tables of nodes and edges that have still to be read: ``read_tables`` encodes their columns.

    Args:
        nodes: The file with a row for each node.
        edges: The file with a row for each edge.
    """

    nodes: Path
    edges: Path


class GraphParts(NamedTuple):
    """A graph whose features are used as they are.

    Args:
        graph: The graph.
        parts: Numbers of nodes of the parts of a split that came with it: some of ``train``, ``val``, ``calibration``
            and ``test``.
    """

    graph: Graph
    parts: dict[str, Tensor]


def read_source(path: str | os.PathLike[str]) -> TablePaths | GraphParts:
    """What a path holds: a graph, with a split if there is one, or the files of tables to make it of.

    Args:
        path: A folder with tables ``nodes`` and ``edges``, a packed graph (``.cg``), a file of ``Graph.save``
            (``.npz``), or tensors, as in ``torch.save(data.to_dict(), path)`` (``.pt``, ``.pth``) or a ``.safetensors``
            file: ``x``, ``edge_index`` and, if there, ``y``, ``edge_weight``, ``train_mask``, ``val_mask``,
            ``calibration_mask`` and ``test_mask``. Nothing in a file is run.
    """
    place = Path(path)
    if is_packed(place):
        packed = open_graph(place)
        return GraphParts(packed, packed.parts)
    if place.is_dir():
        return TablePaths(*find_tables(place))
    if not place.exists():
        raise GraphError(f"{place}: no such file or folder")
    ending = place.suffix.lower()
    if ending == ".npz":
        return GraphParts(Graph.load(place), {})
    if ending in (".pt", ".pth"):
        return _from_tensors(_load_torch(place), place)
    if ending == ".safetensors":
        return _from_tensors(_load_safetensors(place), place)
    raise GraphError(
        f"{place}: a folder with nodes and edges tables, or an .npz, .pt or .safetensors file is wanted; for two "
        "tables of other names give both, --nodes and --edges"
    )


def _load_torch(path: Path) -> Any:
    try:
        check_regular(path)
        claimed = torch.load(path, map_location="meta", weights_only=True)  # takes no memory, whatever it claims
        _check_sizes(claimed, path)
        return torch.load(path, map_location="cpu", weights_only=True)
    except GraphError:
        raise
    except pickle.UnpicklingError:
        raise GraphError(f"{path}: holds objects, which could run anything when read; {REMEDY}") from None
    except Exception as error:  # torch raises almost anything where a file is not one of its own
        raise GraphError(f"{path}: cannot be read ({(str(error) or 'no reason').splitlines()[0]}); {REMEDY}") from None


def _check_sizes(values: Any, path: Path) -> None:
    """Refuse tensors that are larger than the file: its tensors are stored as they are."""
    size = path.stat().st_size
    for name, value in values.items() if isinstance(values, dict) else ():
        if isinstance(value, Tensor) and value.layout == torch.strided and value.numel() * value.element_size() > size:
            raise GraphError(
                f"{path}: {name} claims the shape {list(value.shape)}, more than the file's {size:,} bytes; {REMEDY}"
            )


def _load_safetensors(path: Path) -> Any:
    try:
        return read_tensors(path)[0]
    except (Unreadable, OSError) as error:
        raise GraphError(f"{path}: cannot be read ({error}); write it again with safetensors") from None


def _from_tensors(values: Any, path: Path) -> GraphParts:
    """The graph of named tensors, and the parts that its masks make."""
    if not isinstance(values, dict):
        raise GraphError(f"{path}: a dictionary of tensors is wanted, not {type(values).__name__}; {REMEDY}")
    if any(isinstance(value, dict) for value in values.values()):
        raise GraphError(f"{path}: has several types of nodes or edges; save data.to_homogeneous().to_dict()")
    for name in ("x", "edge_index"):
        if not isinstance(values.get(name), Tensor):
            there = ", ".join(str(key) for key in list(values)[:12]) or "nothing"
            raise GraphError(f"{path}: there is no tensor {name!r} in it, but {there}")
    masks = {part: values[f"{part}_mask"] for part in PARTS if values.get(f"{part}_mask") is not None}
    unused = [str(key) for key in values if key not in TENSORS and str(key).removesuffix("_mask") not in masks]
    if unused:
        warn(f"{path}: {', '.join(unused[:12])} are not used; a graph has {', '.join(TENSORS)} and masks")
    try:
        graph = Graph(values["x"], values["edge_index"], flat(values.get("y")), edge_weight=values.get("edge_weight"))
        taken = torch.zeros(graph.num_nodes, dtype=torch.int64)
        for part, mask in masks.items():
            check_mask(mask, part, graph.num_nodes)
            taken += mask
    except GraphError as error:
        raise GraphError(f"{path}: {error}") from None
    twice = (taken > 1).nonzero()
    if len(twice):
        raise GraphError(f"{path}: node {int(twice[0])} is in two of the masks; a node can be in one part only")
    return GraphParts(graph, {part: mask.nonzero().squeeze(-1) for part, mask in masks.items() if bool(mask.any())})
