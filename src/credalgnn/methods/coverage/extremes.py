"""Nodes that are smaller or larger than any that were there before: no label was ever near them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ...runtime.memory import let_go
from ..chunks import slices
from .descriptions import SIZES, Array, Describer
from .model import CHUNK, Coverage

MARGIN = 0.05  # of log(1 + x), by which sizes may lie outside of those that were there
UNREACHED = np.log(1e-6)  # log of the relative coverage of nodes further outside, at the most


@dataclass(frozen=True, eq=False)
class Extremes:
    """The least and the largest of all nodes of a graph, as ``log(1 + x)`` of feature sum and active features.

    A model of coverage judges a node outside of these as it does the outermost ones that it saw, whatever they are, and
    a single odd node among thousands teaches a model that is fitted anew nothing. But no label was ever near it.
    """

    low: Array
    high: Array

    @classmethod
    def of(cls, describer: Describer, rows: Array) -> Extremes:
        """Those of described nodes.

        Args:
            describer: Of the rows.
            rows: Descriptions ``[N, D]``; read in chunks.
        """
        low, high = np.full(SIZES, np.inf), np.full(SIZES, -np.inf)
        for chunk in slices(len(rows), CHUNK):
            own = describer.sizes(rows[chunk])
            low, high = np.minimum(low, own.min(0)), np.maximum(high, own.max(0))
            let_go(rows)
        return cls(low, high)

    def limit(self, coverage: Coverage, describer: Describer, rows: Array) -> Coverage:
        """Coverage of which nodes outside have none, the less the further outside they are.

        Args:
            coverage: As a model sees it.
            describer: Of the rows, which may be another one.
            rows: Descriptions of its nodes ``[N, D]``; read in chunks.
        """
        relative = coverage.log_relative.copy()
        for chunk in slices(len(rows), CHUNK):
            own = describer.sizes(rows[chunk])
            beyond = np.maximum(self.low - own, own - self.high).max(1)
            odd = np.flatnonzero(beyond > MARGIN)
            relative[chunk.start + odd] = np.minimum(relative[chunk.start + odd], UNREACHED) - beyond[odd]
            let_go(rows)
        return replace(coverage, log_relative=relative)
