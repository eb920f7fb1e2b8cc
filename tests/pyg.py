"""PyTorch Geometric, imported once without the deprecation warnings that its import gives on recent torch."""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from torch_geometric.data import Data
    from torch_geometric.datasets import (
        Actor,
        Amazon,
        CitationFull,
        Coauthor,
        HeterophilousGraphDataset,
        Planetoid,
        WebKB,
        WikiCS,
        WikipediaNetwork,
    )
    from torch_geometric.nn.conv.gcn_conv import gcn_norm
    from torch_geometric.nn.models import GAT, GCN, GIN, GraphSAGE

__all__ = [
    "GAT",
    "GCN",
    "GIN",
    "Actor",
    "Amazon",
    "CitationFull",
    "Coauthor",
    "Data",
    "GraphSAGE",
    "HeterophilousGraphDataset",
    "Planetoid",
    "WebKB",
    "WikiCS",
    "WikipediaNetwork",
    "gcn_norm",
]
