"""PyTorch Geometric, imported once without the deprecation warnings that its import gives on recent torch."""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from torch_geometric.data import Data
    from torch_geometric.datasets import Coauthor, WikipediaNetwork

__all__ = ["Coauthor", "Data", "WikipediaNetwork"]
