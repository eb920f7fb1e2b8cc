"""What all methods share: hyper-parameters in the constructor, data in ``fit``, a ``Prediction`` from ``predict``."""

from __future__ import annotations

import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from numbers import Integral, Real
from typing import Any, ClassVar, Literal, NamedTuple, Self, TypeAlias

import torch
from torch import Tensor

from ..graphs import Graph, GraphError, Part, Task, TrainingView, node_numbers
from ..nn import Adjacency, SparseMatrix
from ..nn.backbones import Features
from ..nn.training import Epoch
from .diagnostics import CredalWarning, complaint_about, sample
from .prediction import MethodError, Prediction

Protocol: TypeAlias = Literal["sealed", "paper"]


class Given(NamedTuple):
    """What a method learns from; ``validation``, which knows the OOD nodes, only under the paper's protocol.

    ``graph`` is what it will predict on: nothing is learnt from that.
    """

    view: TrainingView
    graph: Graph
    validation: Part | None
    progress: bool | None = None
    on_epoch: Callable[[Epoch], None] | None = None


@dataclass(kw_only=True, eq=False)
class Method(ABC):
    """A way to classify the nodes of a graph and to say how uncertain each of them is."""

    name: ClassVar[str]
    score_names: ClassVar[tuple[str, ...]]  # the first is the headline
    is_credal: ClassVar[bool] = False  # predicts credal sets

    def fit(
        self,
        data: Task | Graph,
        *,
        train: Tensor | None = None,
        val: Tensor | None = None,
        protocol: Protocol = "sealed",
        progress: bool | None = None,
        on_epoch: Callable[[Epoch], None] | None = None,
    ) -> Self:
        """Learn from a task, or from one's own graph with nodes to train on and to stop by (masks or node numbers).

        The sealed protocol shows a method training and ID validation nodes only. The paper's protocol lets early
        stopping look at the task's OOD validation nodes too (``monitor="ood_auroc"``). ``progress`` None shows a bar on
        a terminal when training takes more than a few seconds. ``on_epoch`` is shown every line of the training curve
        as it comes; what it raises ends the training. A credal method warns (``CredalWarning``), once, if its sets say
        nothing: here, judged by some nodes it was not trained on, or else when it first predicts.
        """
        given = Given(*_given(data, train, val, protocol), progress, on_epoch)
        look = self.is_credal and not self._is_trained()
        self._learn(given)
        self._warned = False
        self._examined: Graph | None = given.view.graph if look else None  # what the credal sets were judged by
        if self._examined is not None:
            with torch.no_grad(), suppress(ValueError):  # what cannot be predicted is for predict to refuse
                found = self._predict(self._examined, sample(self._examined.num_nodes, given.view.train))
                self._warn_of(found)
        return self

    def _learn(self, given: Given) -> None:
        self._check()
        self._fit(given)
        view = given.view
        self.graph_: Graph | None = given.graph
        self.fingerprint, self.class_names = view.fingerprint, view.class_names
        self.num_features = view.graph.num_features
        self.protocol: Protocol = "sealed" if given.validation is None else "paper"

    def predict(self, graph: Graph | None = None, nodes: Tensor | None = None) -> Prediction:
        """Predict all nodes, or ``nodes`` (a mask or node numbers), of the graph it was fitted on or of another one.

        Fitted on an inductive task, it predicts on the whole graph, of which training saw a part. Another graph may
        have new nodes and edges; its features must be the same ones.
        """
        graph = self._graph(graph)
        try:
            chosen = torch.arange(graph.num_nodes) if nodes is None else node_numbers(nodes, "nodes", graph.num_nodes)
        except GraphError as error:
            raise MethodError(str(error)) from None
        hint = "not all outputs are finite numbers; are the features scaled as they were in training?"
        try:
            with torch.no_grad():
                found = self._predict(graph, chosen)
        except MethodError:
            raise
        except ValueError as error:  # a credal set refuses what is not one, and names the node
            raise MethodError(f"{error}: {hint}") from error
        if not all(bool(score.isfinite().all()) for score in found.scores.values()):
            raise MethodError(hint)
        if graph is not self._examined:
            self._warn_of(found)
        return found

    def _warn_of(self, found: Prediction) -> None:
        """Warn, once for a fitted method, of credal sets that say nothing."""
        complaint = complaint_about(found)
        if complaint and not self._warned:
            self._warned = True
            warnings.warn(f"{self.name}: {complaint}", CredalWarning, stacklevel=3)  # where fit or predict was called

    def _graph(self, graph: Graph | None) -> Graph:
        if not self.is_fitted:
            raise MethodError(f"{type(self).__name__} is not fitted: call fit(task) first")
        for name, part in self._parts().items():
            if part.fingerprint != self.fingerprint:
                raise MethodError(f"{name} has since been fitted on another task or split: call fit(task) again")
        graph = self.graph_ if graph is None else graph
        if graph is None:
            raise MethodError("a loaded method has no graph of its own: predict(graph), or load it with task=")
        if not isinstance(graph, Graph):
            raise MethodError(
                f"a credalgnn Graph is wanted, not {type(graph).__name__}: Graph.from_pyg(data) makes one"
            )
        if graph.num_features != self.num_features:
            raise MethodError(
                f"the graph has {graph.num_features} features, but {self.num_features} were there in training: "
                "give the same ones, in the same order"
            )
        return graph

    @property
    def diagnosis(self) -> Mapping[str, float] | None:
        """What ``fit`` found out about how far the method is to be trusted, by name; None for most methods."""
        return None

    def why(self, nodes: Tensor, graph: Graph | None = None) -> list[str] | None:
        """For each of some nodes (their numbers), in a few words, why it is uncertain; None for most methods."""
        return None

    @property
    def is_fitted(self) -> bool:
        return hasattr(self, "fingerprint")

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write ``model.safetensors`` and ``method.json`` into a folder, made if need be."""
        from .storage import save

        save(self, folder)

    @classmethod
    def load(cls, folder: str | os.PathLike[str], task: Task | None = None, *, any_task: bool = False) -> Self:
        """Read what ``save`` wrote; runs no code from the files. See ``load_method``."""
        from .storage import load_method

        method = load_method(folder, task, any_task=any_task)
        if not isinstance(method, cls):
            raise MethodError(f"{folder} holds a {type(method).__name__}, not a {cls.__name__}")
        return method

    def _check(self) -> None:  # noqa: B027 - most methods have something to check, not all
        """Refuse hyper-parameters that cannot work; at construction, and again before training."""

    def __post_init__(self) -> None:
        for field in fields(self):
            kind, words = _KINDS.get(str(field.type).removesuffix(" | None"), (None, ""))
            value = getattr(self, field.name)
            if kind is None or (value is None and str(field.type).endswith("None")):
                continue
            if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
                raise MethodError(f"{field.name} must be {words}, not {value!r}")
            plain = {Integral: int, Real: float, bool: bool}[kind](value)  # numpy's own become Python's
            setattr(self, field.name, plain)
        self._examined, self._warned = None, False
        self._check()

    @abstractmethod
    def _fit(self, given: Given) -> None: ...

    @abstractmethod
    def _predict(self, graph: Graph, nodes: Tensor) -> Prediction: ...

    def _is_trained(self) -> bool:
        """Whether ``fit`` has nothing left to train: it then costs nothing, and looks at nothing either."""
        return False

    def _tensors(self) -> dict[str, Tensor]:
        """What ``fit`` has found, besides that of the methods this one is made of."""
        return {}

    def _restore(self, tensors: Mapping[str, Tensor]) -> None:
        """The inverse of ``_tensors``; ``class_names`` and ``num_features`` are known by then."""
        if tensors:
            raise KeyError(next(iter(tensors)))

    def _parts(self) -> dict[str, Method]:
        """The fitted methods this one is made of."""
        return {}

    def _adopt(self, parts: Mapping[str, Method]) -> None:  # noqa: B027 - most are made of nothing else
        """The inverse of ``_parts``."""


_KINDS: dict[str, tuple[type, str]] = {
    "int": (Integral, "a whole number"),
    "float": (Real, "a number"),
    "bool": (bool, "True or False"),
}


def _given(
    data: Any, train: Tensor | None, val: Tensor | None, protocol: str
) -> tuple[TrainingView, Graph, Part | None]:
    if protocol not in ("sealed", "paper"):
        raise MethodError(f"unknown protocol {protocol!r}: choose 'sealed' or 'paper'")
    if isinstance(data, Task):
        if train is not None or val is not None:
            raise MethodError("a task has its own split: give train and val with a graph only")
        if data.inductive and protocol == "paper":
            raise MethodError(
                "the paper's protocol is transductive: it looks at OOD validation nodes, which the training of an "
                "inductive task does not see; choose protocol='sealed', or a task with inductive=False"
            )
        view, graph = data.training, data.prediction_graph
        validation = data.validation if protocol == "paper" else None
    elif isinstance(data, Graph):
        if train is None or val is None:
            raise MethodError("fit(graph) needs train= and val=: masks or node numbers; val decides when to stop")
        if protocol == "paper":
            raise MethodError("the paper's protocol looks at OOD validation nodes, which only a task has: fit(task)")
        try:
            view, validation = TrainingView.of_graph(data, train, val), None
        except GraphError as error:
            raise MethodError(str(error)) from None
        graph = view.graph
    else:
        hint = ": Graph.from_pyg(data) makes one" if hasattr(data, "edge_index") else ""
        raise MethodError(f"a Task or a Graph is wanted, not {type(data).__name__}{hint}")
    if view.num_classes < 2:
        raise MethodError(f"there is {view.num_classes} known class; a classifier needs 2 or more")
    counts = torch.bincount(view.graph.labels[view.train], minlength=view.num_classes)
    if not bool((counts > 0).all()):
        missing = view.class_names[int((counts == 0).nonzero()[0])]
        raise MethodError(
            f"class {missing!r} has no training node: add some, or make it an OOD class (Task.leave_out), or drop it"
        )
    if not len(view.val):
        raise MethodError(
            "the validation part has no node of a known class: early stopping needs some; change the split"
        )
    return view, graph, validation


def inputs(graph: Graph, device: str = "cpu") -> tuple[Features, Adjacency]:
    """A graph as models want it; made once for its features and edges, so that all methods on it share operators."""
    key = f"inputs on {device}"
    if key not in graph.derived:
        x: Features = graph.features
        if graph.features.layout == torch.sparse_csr:
            x = SparseMatrix.from_torch(graph.features)
        weights = None if graph.edge_weight is None else graph.edge_weight.to(device)
        graph.derived[key] = x.to(device), Adjacency(graph.edge_index.to(device), graph.num_nodes, weights)
    made: tuple[Features, Adjacency] = graph.derived[key]
    return made
