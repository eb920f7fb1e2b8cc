"""Credal sets from label coverage: what nodes look like, whether such nodes are labelled, and the method."""

from .method import CredalCoverage
from .model import Coverage, Diagnosis

__all__ = ["Coverage", "CredalCoverage", "Diagnosis"]
