"""Graphs from the input of ``fit`` and ``predict``: tables, a file, a folder or a graph."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..graphs import Columns, FeatureEncoder, Graph, GraphError, GraphParts, read_source, read_tables
from ..graphs.packed import PackedGraph
from ..methods import InputWarning
from ..runtime.warn import warn_caller

TABLE_ENDINGS = (".csv", ".tsv", ".txt", ".parquet")


class Loaded(NamedTuple):
    """A graph to learn from or to predict.

    Attributes:
        graph: The graph.
        nodes: Numbers of the nodes to use: all, or those outside the context.
        parts: Numbers of the nodes of each part that the input names.
        reader: The reader of its tables; None for a graph.
    """

    graph: Graph
    nodes: Tensor
    parts: dict[str, Tensor]
    reader: TableReader | None


@dataclass(frozen=True)
class TableReader:
    """Columns of tables, and the encoder of their features.

    Attributes:
        columns: Roles of the columns.
        encoder: Encoder of the feature columns; None before ``fit``.
        split: Column with the parts of the nodes.
        delimiter: Delimiter of text files; None: detected from their headers.
        undirected: Take each edge both ways.
    """

    columns: Columns
    encoder: FeatureEncoder | None = None
    split: str | None = None
    delimiter: str | None = None
    undirected: bool = False

    def learn(self, nodes: Any, edges: Any) -> Loaded:
        """Read tables to learn from, and fit the encoder to them."""
        read = read_tables(
            nodes, edges, self.columns, delimiter=self.delimiter, split=self.split, undirected=self.undirected
        )
        return Loaded(read.graph, read.new, dict(read.parts), replace(self, encoder=read.encoder))

    def read(self, nodes: Any, edges: Any, context: Any, class_names: tuple[str, ...]) -> Loaded:
        """Read tables to predict; ``edges`` and ``context`` may be None."""
        read = read_tables(
            nodes, edges, self.columns, delimiter=self.delimiter, encoder=self.encoder, class_names=class_names,
            context=context, undirected=self.undirected,
        )  # fmt: skip
        return Loaded(read.graph, read.new, dict(read.parts), self)

    def check_unused(self, place: str) -> None:
        """Refuse options of tables for a whole graph."""
        values = {**self.columns._asdict(), **vars(self)}
        defaults = {**Columns()._asdict(), **vars(TableReader(Columns()))}
        names = [name for name in values if name not in ("columns", "encoder") and values[name] != defaults[name]]
        if not names:
            return
        are, them = ("are", "them") if len(names) > 1 else ("is", "it")
        remedy = "; its parts are train=, val= and calibration=, masks in its file, or the split of pack"
        raise GraphError(
            f"{place} is a whole graph, and {' and '.join(names)} {are} for tables: leave {them} out"
            f"{remedy if 'split' in names else ''}"
        )

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        assert self.encoder is not None
        columns = self.columns._asdict()
        columns["features"] = None if columns["features"] is None else list(columns["features"])
        rest = {name: getattr(self, name) for name in ("split", "delimiter", "undirected")}
        return {"columns": columns, "encoder": self.encoder.to_json(), **rest}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> TableReader:
        """Restore what ``to_json`` gave."""
        encoder = FeatureEncoder.from_json(values["encoder"])
        names = {**values["columns"], "split": values["split"], "delimiter": values["delimiter"]}
        features = names.pop("features") or []
        optional = {"label", "weight", "split", "delimiter"}
        wrong = [
            name for name, text in names.items() if type(text) is not str and not (text is None and name in optional)
        ]
        if wrong or type(values["undirected"]) is not bool or not all(type(name) is str for name in features):
            raise ValueError(f"{(wrong or ['undirected or features'])[0]} does not name a column")
        return cls(Columns(**values["columns"]), encoder, values["split"], values["delimiter"], values["undirected"])


def read_to_fit(data: Any, edges: Any, reader: TableReader) -> Loaded:
    """Return the graph to learn from; features of tables are encoded."""
    source = _source(data, edges)
    if isinstance(source, GraphParts):
        reader.check_unused(_name(data))
        return Loaded(source.graph, torch.arange(source.graph.num_nodes), source.parts, None)
    nodes, edges = source
    if edges is None:
        raise GraphError(f"{_name(data)}: a table of nodes needs one of edges, `edges`")
    return reader.learn(nodes, edges)


def read_to_predict(
    data: Any, edges: Any, context: Any, reader: TableReader | None, class_names: tuple[str, ...]
) -> Loaded:
    """Return the graph to predict, read as that of ``fit`` was; `reader` is None for a model of a graph."""
    source = _source(data, edges)
    if isinstance(source, GraphParts):
        if context is not None:
            raise GraphError(
                f"{_name(data)} is a whole graph, and `context` is for tables: leave it out, and give a graph that "
                "contains the earlier nodes, too"
            )
        if reader is not None and not isinstance(data, Graph):
            warn_caller(
                f"{data}: features of a whole graph are taken as they are, and those of the tables that the model "
                "was fitted on were encoded: give tables, or fit on such a graph",
                InputWarning,
            )
        graph = _renumbered(source.graph, class_names)
        return Loaded(graph, torch.arange(graph.num_nodes), source.parts, None)
    if reader is None:
        raise GraphError(
            "the model was fitted on a graph and not on tables: give a Graph, its file or a packed graph as data"
        )
    if isinstance(context, str | os.PathLike):
        context = _source(context, None)
        if isinstance(context, GraphParts):
            raise GraphError("the `context` must be tables: a folder with nodes and edges, or two files")
    nodes, edges = source
    return reader.read(nodes, edges, context, class_names)


def _source(data: Any, edges: Any) -> tuple[Any, Any] | GraphParts:
    """Return a graph with its parts, or two tables, the second of which may be None."""
    if isinstance(data, Graph):
        if edges is not None:
            raise GraphError("a Graph has its edges: leave out `edges`")
        return GraphParts(data, data.parts if isinstance(data, PackedGraph) else {})
    if edges is not None or not isinstance(data, str | os.PathLike):
        return data, edges
    is_table = Path(data).name.lower().removesuffix(".gz").endswith(TABLE_ENDINGS)
    return (data, None) if is_table else read_source(data)


def _name(data: Any) -> str:
    return str(data) if isinstance(data, str | os.PathLike) else "data"


def _renumbered(graph: Graph, class_names: tuple[str, ...]) -> Graph:
    """Return the graph with the class numbers of a model; other classes get the numbers after these."""
    others = [name for name in graph.class_names if name not in class_names]
    if graph.class_names == (*class_names, *others):
        return graph
    names = [*class_names, *others]
    number = torch.tensor([names.index(name) for name in graph.class_names] or [0])
    labels = torch.where(graph.labels >= 0, number[graph.labels.clamp_min(0)], -1)
    return graph.replace(labels=labels, class_names=names)
