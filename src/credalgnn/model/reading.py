"""From whatever a person has, tables, a folder, a file or a graph, to a graph and the parts of its nodes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..graphs import (
    Columns,
    FeatureEncoder,
    Graph,
    GraphError,
    GraphParts,
    TableGraph,
    TablePaths,
    read_source,
    read_tables,
)
from ..graphs.packed import PackedGraph
from ..methods import InputWarning
from ..runtime.warn import warn_caller


class Loaded(NamedTuple):
    """A graph to learn from or to predict.

    Attributes:
        graph: The graph.
        nodes: The numbers of the nodes that are asked about: all, or those that are not of the context.
        parts: Numbers of nodes by part, where the tables or the file say so.
        reader: How its tables were read; None where it came as a graph.
    """

    graph: Graph
    nodes: Tensor
    parts: dict[str, Tensor]
    reader: TableReader | None


@dataclass(frozen=True)
class TableReader:
    """How tables become a graph: which columns are what, and how features are encoded.

    Args:
        columns: Which columns are what.
        encoder: How columns become features; None until it is learnt.
        split: The column with the parts of the nodes, if there is one.
        delimiter: Of text files; None: found in their headers.
        undirected: Whether edges have no direction.
    """

    columns: Columns
    encoder: FeatureEncoder | None = None
    split: str | None = None
    delimiter: str | None = None
    undirected: bool = False

    def learn(self, nodes: Any, edges: Any) -> Loaded:
        """Read tables to learn from; the encoder is learnt with them.

        Args:
            nodes: A row for each node.
            edges: A row for each edge.
        """
        read = read_tables(
            nodes, edges, self.columns, delimiter=self.delimiter, split=self.split, undirected=self.undirected
        )
        return _loaded(read, replace(self, encoder=read.encoder))

    def read(self, nodes: Any, edges: Any, context: Any, class_names: tuple[str, ...]) -> Loaded:
        """Read tables to predict.

        Args:
            nodes: A row for each node.
            edges: A row for each edge, or None.
            context: Two tables of nodes and edges that were there before, or None.
            class_names: The known classes.
        """
        read = read_tables(
            nodes,
            edges,
            self.columns,
            delimiter=self.delimiter,
            encoder=self.encoder,
            class_names=class_names,
            context=context,
            undirected=self.undirected,
        )
        return _loaded(read, self)

    def check_whole(self, what: str) -> None:
        """Refuse what is said of tables where a whole graph is given.

        Args:
            what: Which graph, for the message.
        """
        said, usual = {**self.columns._asdict(), **vars(self)}, {**Columns()._asdict(), **vars(TableReader(Columns()))}
        names = [name for name in said if name not in ("columns", "encoder") and said[name] != usual[name]]
        if not names:
            return
        are, them = ("are", "them") if len(names) > 1 else ("is", "it")
        parts = (
            "; its parts are those of pack --split, masks in a .pt or .safetensors file, or train=, val=, calibration="
        )
        raise GraphError(
            f"{what} is a whole graph, and {' and '.join(names)} {are} for tables: leave {them} out"
            f"{parts if 'split' in names else ''}"
        )

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        assert self.encoder is not None
        columns = self.columns._asdict()
        columns["features"] = None if columns["features"] is None else list(columns["features"])
        encoder = self.encoder.to_json()
        rest = {name: getattr(self, name) for name in ("split", "delimiter", "undirected")}
        return {"columns": columns, "encoder": encoder, **rest}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> TableReader:
        """The inverse of ``to_json``.

        Args:
            values: Plain values.
        """
        encoder = FeatureEncoder.from_json(values["encoder"])
        named = {**values["columns"], "split": values["split"], "delimiter": values["delimiter"]}
        features = named.pop("features") or []
        optional = {"label", "weight", "split", "delimiter"}
        wrong = [
            name for name, text in named.items() if type(text) is not str and not (text is None and name in optional)
        ]
        if wrong or type(values["undirected"]) is not bool or not all(type(name) is str for name in features):
            raise ValueError(f"{(wrong or ['undirected or features'])[0]} is not what names a column")
        return cls(Columns(**values["columns"]), encoder, values["split"], values["delimiter"], values["undirected"])


def to_learn(data: Any, edges: Any, reader: TableReader) -> Loaded:
    """What is given to learn from.

    Args:
        data: A graph, a table of nodes, or a folder or file that holds a whole graph.
        edges: A table of edges, where ``data`` is one of nodes.
        reader: Which columns are what.
    """
    if isinstance(data, Graph):
        if edges is not None:
            raise GraphError("a Graph has its edges: leave out edges=")
        reader.check_whole("what is given")
        parts = data.parts if isinstance(data, PackedGraph) else {}
        return Loaded(data, torch.arange(data.num_nodes), parts, None)
    if edges is not None:
        return reader.learn(data, edges)
    source = _whole(data)
    if isinstance(source, TablePaths):
        return reader.learn(*source)
    reader.check_whole(str(data))
    return Loaded(source.graph, torch.arange(source.graph.num_nodes), source.parts, None)


def to_predict(data: Any, edges: Any, context: Any, reader: TableReader | None, class_names: tuple[str, ...]) -> Loaded:
    """What is given to predict, read as it was to learn.

    Args:
        data: A graph, a table of nodes, or a folder or file that holds a whole graph.
        edges: A table of edges, or None.
        context: A pair of tables that were there before, a folder with them, or None.
        reader: How tables were read to learn; None if there were none.
        class_names: The known classes.
    """
    if isinstance(data, Graph):
        if edges is not None:
            raise GraphError("a Graph has its edges: leave out edges=")
        _check_alone("what is given", context)
        return Loaded(_renumbered(data, class_names), torch.arange(data.num_nodes), {}, None)
    if isinstance(context, str | os.PathLike):
        context = _whole(context)
        if not isinstance(context, TablePaths):
            raise GraphError("the context must be tables: a folder with nodes and edges, or two files")
    if edges is None and isinstance(data, str | os.PathLike) and not _is_table(Path(data)):
        source = _whole(data)
        if isinstance(source, GraphParts):
            _check_alone(str(data), context)
            if reader is not None:
                warn_caller(
                    f"{data}: features of a whole graph are taken as they are, and those of the tables that the model "
                    "was fitted on were encoded: give tables, or fit on such a graph",
                    InputWarning,
                )
            graph = _renumbered(source.graph, class_names)
            return Loaded(graph, torch.arange(graph.num_nodes), source.parts, None)
        data, edges = source
    if reader is None:
        raise GraphError("the model was fitted on a graph and not on tables: give one, a file or packed (--graph)")
    return reader.read(data, edges, context, class_names)


def _check_alone(what: str, context: Any) -> None:
    if context is not None:
        raise GraphError(
            f"{what} is a whole graph, and context is for tables: leave it out, and give a graph that has the nodes "
            "that were there before, too"
        )


def _whole(data: Any) -> TablePaths | GraphParts:
    if not isinstance(data, str | os.PathLike):
        raise GraphError(f"edges are missing: a table of nodes ({type(data).__name__}) needs one of edges, edges=...")
    if _is_table(Path(data)):
        raise GraphError(f"{data}: a table of nodes needs one of edges (--edges)")
    return read_source(Path(data))


def _is_table(path: Path) -> bool:
    name = path.name.lower().removesuffix(".gz")
    return name.endswith((".csv", ".tsv", ".txt", ".parquet"))


def _renumbered(graph: Graph, class_names: tuple[str, ...]) -> Graph:
    """The graph with the numbers that a model has for its classes; other classes come behind these."""
    others = [name for name in graph.class_names if name not in class_names]
    if graph.class_names == (*class_names, *others):
        return graph
    names = [*class_names, *others]
    number = torch.tensor([names.index(name) for name in graph.class_names] or [0])
    labels = torch.where(graph.labels >= 0, number[graph.labels.clamp_min(0)], -1)
    return graph.replace(labels=labels, class_names=names)


def _loaded(read: TableGraph, reader: TableReader) -> Loaded:
    return Loaded(read.graph, read.new, dict(read.parts), reader)
