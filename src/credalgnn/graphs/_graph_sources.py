"""What graphs are made of: graphs of other libraries, tables and files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyarrow import Table
    from torch_geometric.data import Data

    from .graph import Graph


class GraphSources:
    """What a graph can be made of, besides its tensors: what ``Graph`` inherits."""

    @classmethod
    def from_pyg(cls, data: Data) -> Graph:
        """A ``torch_geometric`` graph: ``x``, ``edge_index`` and, if there, ``y`` and ``edge_weight``.

        Other attributes of edges have no place in a graph; a ``GraphWarning`` names them. A ``HeteroData`` has to be
        made homogeneous first, as models here know one type of nodes.

        Args:
            data: ``x`` is ``[N, F]``, ``y`` ``[N]`` or ``[N, 1]`` with numbers below 0 for unknown, ``edge_weight``
                ``[E]`` or ``[E, 1]``.
        """
        from .convert import from_pyg

        return from_pyg(data)

    @classmethod
    def from_networkx(
        cls,
        graph: Any,
        features: Sequence[str] | None = None,
        label: str | None = None,
        weight: str | None = "weight",
    ) -> Graph:
        """A ``networkx`` graph; the names of its nodes are their ids. Undirected edges go both ways.

        Args:
            graph: The graph, directed or not; parallel edges are kept.
            features: Attributes that all nodes have: numbers, or lists of numbers. Default: all but the label.
            label: The attribute with the classes, text or whole numbers; unknown for nodes without. Default: no labels.
            weight: The attribute with weights of edges, 1 for edges without it. None: all edges count the same.
        """
        from .convert import from_networkx

        return from_networkx(graph, features, label, weight)

    @classmethod
    def from_dgl(
        cls, graph: Any, features: str = "feat", label: str | None = "label", weight: str | None = "weight"
    ) -> Graph:
        """A homogeneous DGL graph.

        Args:
            graph: The graph.
            features: The name of the features in ``graph.ndata``.
            label: That of the labels; there are none if nothing is called ``label``.
            weight: The name of the weights in ``graph.edata``; there are none if nothing is called ``weight``.
        """
        from .convert import from_dgl

        return from_dgl(graph, features, label, weight)

    @classmethod
    def from_scipy(cls, adjacency: Any, features: Any, labels: Any = None, **options: Any) -> Graph:
        """A scipy sparse adjacency matrix and features.

        Args:
            adjacency: ``[N, N]``; an entry [i, j] that is not zero is an edge i to j, and its weight unless all are 1.
            features: See ``Graph``.
            labels: See ``Graph``.
            **options: ``node_ids``, ``class_names`` and ``feature_names`` of ``Graph``.
        """
        from .convert import from_scipy

        return from_scipy(adjacency, features, labels, **options)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Graph:
        """Read what ``save`` wrote; runs no code from the file.

        Args:
            path: The file.
        """
        from .storage import from_arrays, read_arrays

        return from_arrays(read_arrays(Path(path)), Path(path))

    @classmethod
    def open(cls, path: str | os.PathLike[str], verify: bool = False) -> Graph:
        """Open a packed graph (``pack``, or ``credalgnn pack``): memory holds only what is looked at.

        Whether all files are there and as large as they should be is always checked.

        Args:
            path: The folder.
            verify: Read all of it, to know that nothing has changed since it was packed.
        """
        from .packed import open_graph

        return open_graph(Path(path), verify)

    @classmethod
    def from_tables(
        cls,
        nodes: str | os.PathLike[str] | Table | Any,
        edges: str | os.PathLike[str] | Table | Any,
        id: str = "id",
        label: str | None = "label",
        features: Sequence[str] | None = None,
        source: str = "source",
        target: str = "target",
        weight: str | None = None,
        delimiter: str | None = None,
    ) -> Graph:
        """A graph from two tables, as people export them: CSV or Parquet files, pyarrow tables or data frames.

        Text files (``.csv``, ``.tsv``, also with ``.gz``) have a header and are UTF-8. Features are numbers, and taken
        as they are.

        Args:
            nodes: A file or a table with a row for each node.
            edges: A file or a table with a row for each edge.
            id: The column of ``nodes`` that says what a node is called: whole numbers or text.
            label: The column of ``nodes`` with the classes: text, whole numbers or true and false. Empty, ``NA``,
                ``N/A``, ``nan``, ``None``, ``null`` (whatever their case) and negative numbers mean that the label is
                not known; blanks around a label are dropped. None: there are no labels.
            features: The columns of ``nodes`` that are features, numbers all of them. Default: all others.
            source: The column of ``edges`` with the id of the node that an edge comes from. If there is neither
                ``source`` nor ``target``, ``src`` and ``dst``, or ``from`` and ``to``, will do.
            target: The column of ``edges`` with the id of the node that it goes to.
            weight: The column of ``edges`` with weights. Default: ``weight``, if there is one. A ``GraphWarning`` names
                columns that are not used.
            delimiter: What stands between the fields of a text file. Default: found in the header, one of ``,``, ``;``,
                ``|`` and a tab.
        """
        from .tables import Columns, read_graph

        return read_graph(nodes, edges, Columns(id, label, features, source, target, weight), delimiter)
