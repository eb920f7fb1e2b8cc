"""Credal sets from label coverage: what nodes look like, how probable it is that such nodes are labelled, the method."""

from .method import CredalCoverage
from .model import Coverage, Diagnosis

__all__ = ["Coverage", "CredalCoverage", "Diagnosis"]
