"""Distances to the nearest training nodes in a latent space, as scores."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..graphs import Graph
from ..nn import SparseMatrix
from ..nn.backbones import Features
from ..nn.layers import rows_of
from ..runtime.context import Context
from .base import Outputs
from .neighbours import NeighbourBank, Search, check_search
from .parameters import AT_LEAST_1
from .posthoc import PostHoc
from .prediction import MethodError
from .training_data import TrainingData


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
    limited_by_training = ("k",)
    constraints = {"k": AT_LEAST_1}
    joint: ClassVar[bool] = False

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

    def _fit(self, training: TrainingData, context: Context) -> None:
        count = len(training.view.train)
        if self.k > count:
            raise MethodError(f"k = {self.k} neighbours, but there are {count} training nodes: lower k")
        check_search(count)
        super()._fit(training, context)
        self.bank_.prepare(self.k)

    def _prepare(self, training: TrainingData, context: Context) -> None:
        view = training.view
        latents = self._space(self.model_._outputs(view.graph, context).latents)
        self.bank_ = NeighbourBank([rows_of(z, view.train) for z in latents], self.normalize)

    def _space(self, latents: list[Features]) -> list[Features]:
        return latents if self.joint else latents[-1:]

    def _scorer(self, graph: Graph, outputs: Outputs, context: Context) -> Callable[[Tensor], Tensor]:
        latents = self._space(outputs.latents)
        return lambda nodes: self.bank_.distance([rows_of(z, nodes) for z in latents], self.k, self.kth)

    def _state(self) -> dict[str, Tensor]:
        tensors = {} if self.bank_.search is None else {"search": self.bank_.search.tensor()}
        for number, part in enumerate(self.bank_.parts):
            if isinstance(part, Tensor):
                tensors[f"bank.{number}"] = part
            else:
                stored = part.starts, part.columns, part.values, torch.tensor(part.shape)
                tensors.update({f"bank.{number}.{name}": t for name, t in zip(_CSR, stored, strict=True)})
        return tensors

    def _load_state(self, state: Mapping[str, Tensor]) -> None:
        parts: list[Features] = []
        for number in range(len({name.split(".")[1] for name in state if name.startswith("bank.")})):
            if f"bank.{number}" in state:
                parts.append(state[f"bank.{number}"])
                continue
            starts, columns, values, shape = (state[f"bank.{number}.{name}"] for name in _CSR)
            rows, width = shape.tolist()
            parts.append(SparseMatrix(starts, columns, values, (rows, width)).checked())
        if any(len(part.shape) != 2 or len(part) != len(parts[0]) for part in parts):
            raise ValueError("the latents of training nodes are not one row a node")
        self.bank_ = NeighbourBank(parts, self.normalize)
        if "search" in state:
            self.bank_.search = Search.from_tensor(state["search"])


@dataclass(kw_only=True, eq=False)
class KNNLJ(KNN):
    """As ``KNN``, in the joint latent ``[z0 | z1 | .. | zL]``: the paper's ablation without a credal layer."""

    name = "knn-lj"
    search_space = {"k": (5, 10, 20, 50, 100, 200)}
    joint = True


_CSR = ("starts", "columns", "values", "shape")
