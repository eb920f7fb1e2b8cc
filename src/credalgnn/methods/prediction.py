"""Predictions of nodes: classes, credal sets, and scores whose orientation is fixed here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from ..sets import CredalSet, uncertainty


class MethodError(ValueError):
    """A method cannot do what it is asked to; the message says why and what to do."""


@dataclass(frozen=True, eq=False)
class Prediction:
    """Predictions for nodes, a row each. Every score is higher where the method is less certain.

    Args:
        nodes: The nodes ``[N]``.
        scores: The scores ``[N]`` by name.
        headline: The name of the score that the method is judged by.
        class_names: The names of the classes.
        probabilities: Class probabilities ``[N, C]``; None for methods that do not classify.
        credal: The credal sets ``[N, C]``, for credal methods only.
        gap: A bound in bits of the error of either entropy, total or aleatoric, for credal methods only.
        train_nodes: The nodes of the predicted graph that the method was trained on, where it knows them: ``evaluate``
            refuses to judge it on these.
    """

    nodes: Tensor
    scores: Mapping[str, Tensor]
    headline: str
    class_names: tuple[str, ...]
    probabilities: Tensor | None = None
    credal: CredalSet | None = None
    gap: Tensor | None = None
    train_nodes: Tensor | None = None

    @classmethod
    def of_credal(cls, nodes: Tensor, credal: CredalSet, class_names: tuple[str, ...]) -> Prediction:
        """Classes by the intersection probability, scores by the exact entropies (Equation 1).

        Args:
            nodes: The nodes ``[N]``.
            credal: Their credal sets ``[N, C]``, of any kind.
            class_names: The names of the classes.
        """
        result = uncertainty(credal, certify=True)
        scores = {"EU": result.epistemic, "AU": result.aleatoric, "TU": result.total}
        return cls(nodes, scores, "EU", class_names, credal.intersection_probability(), credal, result.gap)

    @property
    def score(self) -> Tensor:
        """The headline score."""
        return self.scores[self.headline]

    @property
    def classes(self) -> Tensor:
        """The most probable class of each node."""
        if self.probabilities is None:
            raise MethodError(f"this method scores nodes ({', '.join(self.scores)}) and predicts no classes")
        return self.probabilities.argmax(-1)

    def classify(self, by: Literal["intersection", "lower", "upper"] = "intersection") -> Tensor:
        """The class of a credal prediction.

        Args:
            by: The intersection probability, or the largest lower or upper probability.
        """
        if self.credal is None:
            raise MethodError("this method predicts no credal sets: its classes are in .classes")
        if by not in ("intersection", "lower", "upper"):
            raise MethodError(f"unknown rule {by!r}: choose intersection, lower or upper")
        return self.classes if by == "intersection" else getattr(self.credal, by).argmax(-1)

    @property
    def total(self) -> Tensor:
        """Total uncertainty, bits."""
        return self._measure("TU")

    @property
    def aleatoric(self) -> Tensor:
        """Aleatoric uncertainty, bits: what the data leave open."""
        return self._measure("AU")

    @property
    def epistemic(self) -> Tensor:
        """Epistemic uncertainty, bits: what the model does not know."""
        return self._measure("EU")

    def _measure(self, name: str) -> Tensor:
        if name not in self.scores:
            raise MethodError(f"this method has no {name}; its scores are {', '.join(self.scores)}")
        return self.scores[name]

    def __repr__(self) -> str:
        return f"Prediction(nodes={len(self.nodes)}, classes={len(self.class_names)}, scores={list(self.scores)})"
