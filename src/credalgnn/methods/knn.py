"""Distances to the nearest training nodes in a latent space, as scores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..graphs import Graph
from ..nn import SparseMatrix
from ..nn.backbones import Features
from ..nn.layers import rows_of
from .components import Outputs
from .given import Given
from .neighbours import NeighbourBank, Search, check_search
from .posthoc import PostHoc
from .prediction import MethodError
from .search_space import Space


@dataclass(kw_only=True, eq=False)
class KNN(PostHoc):
    """Mean distance to the ``k`` nearest training nodes in the last latent.

    Above ``neighbours.EXACT_UP_TO`` training nodes neighbours are approximate, and ``recall`` says how many are found;
    ``fit`` chooses how widely is searched, by training nodes alone.

    Args:
        k: Neighbours.
        kth: Take the k-th distance, as the original (Sun et al. 2022) does, not the mean of k.
        normalize: Scale vectors to length 1 first, as the original does.
    """

    k: int = 10
    kth: bool = False
    normalize: bool = False

    name = "knn"
    works_by_chunks = True
    score_names = ("distance",)
    search_space = {"k": (1, 10, 20, 50, 100, 200, 500, 1000, 3000, 5000)}
    joint: ClassVar[bool] = False

    @classmethod
    def space(cls, num_train: int) -> Space:
        """Without more neighbours than there are training nodes.

        Args:
            num_train: The task's number of training nodes.
        """
        neighbours = cls.search_space["k"]
        assert isinstance(neighbours, tuple)
        return {**cls.search_space, "k": tuple(k for k in neighbours if k <= num_train)}

    def _check(self) -> None:
        super()._check()
        if self.k < 1:
            raise MethodError(f"k must be at least 1, not {self.k}")

    @property
    def recall(self) -> float | None:
        """The share of the true neighbours that is found for training nodes, as ``fit`` measured it; None: all are."""
        return self.bank_.recall if self.is_fitted else None

    @property
    def notes(self) -> tuple[str, ...]:
        if self.recall is None:
            return super().notes
        found = f"about {100 * self.recall:.0f} % of the true ones are found"
        return *super().notes, f"Neighbours are approximate: {found}."

    def _fit(self, given: Given) -> None:
        if self.k > len(given.view.train):
            raise MethodError(f"k = {self.k} neighbours, but there are {len(given.view.train)} training nodes: lower k")
        check_search(len(given.view.train))
        super()._fit(given)
        self.bank_.prepare(self.k)

    def _prepare(self, given: Given) -> None:
        latents = self._space(self.model_.outputs(given.view.graph).latents)
        self.bank_ = NeighbourBank([rows_of(z, given.view.train) for z in latents], self.normalize)

    def _space(self, latents: list[Features]) -> list[Features]:
        return latents if self.joint else latents[-1:]

    def _score(self, graph: Graph, outputs: Outputs, nodes: Tensor) -> Tensor:
        return self.bank_.distance([rows_of(z, nodes) for z in self._space(outputs.latents)], self.k, self.kth)

    def _tensors(self) -> dict[str, Tensor]:
        tensors = {} if self.bank_.search is None else {"search": self.bank_.search.tensor()}
        for number, part in enumerate(self.bank_.parts):
            if isinstance(part, Tensor):
                tensors[f"bank.{number}"] = part
            else:
                stored = part.starts, part.columns, part.values, torch.tensor(part.shape)
                tensors.update({f"bank.{number}.{name}": t for name, t in zip(_CSR, stored, strict=True)})
        return tensors

    def _restore(self, tensors: Mapping[str, Tensor]) -> None:
        parts: list[Features] = []
        for number in range(len({name.split(".")[1] for name in tensors if name.startswith("bank.")})):
            if f"bank.{number}" in tensors:
                parts.append(tensors[f"bank.{number}"])
                continue
            starts, columns, values, shape = (tensors[f"bank.{number}.{name}"] for name in _CSR)
            rows, width = shape.tolist()
            parts.append(SparseMatrix(starts, columns, values, (rows, width)).checked())
        if any(len(part.shape) != 2 or len(part) != len(parts[0]) for part in parts):
            raise ValueError("the latents of training nodes are not one row a node")
        self.bank_ = NeighbourBank(parts, self.normalize)
        if "search" in tensors:
            self.bank_.search = Search.from_tensor(tensors["search"])


@dataclass(kw_only=True, eq=False)
class KNNLJ(KNN):
    """As ``KNN``, in the joint latent ``[z0 | z1 | .. | zL]``: the paper's ablation without a credal layer."""

    name = "knn-lj"
    search_space = {"k": (5, 10, 20, 50, 100, 200)}
    joint = True


_CSR = ("starts", "columns", "values", "shape")
