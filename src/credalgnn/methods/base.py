"""What all methods share: hyper-parameters in the constructor, data in ``fit``, a ``Prediction`` from ``predict``."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from ..graphs import Graph, Task
from ..nn.training import Epoch
from ..runtime.memory import available_memory
from .answers import (
    CHUNK,
    calibration_in,
    calibration_nodes,
    chosen_at_once,
    chunks_by_tasks,
    chunks_of,
    completed,
    explained,
    finite,
    graph_for,
    predictor_of,
)
from .calibration import Calibration, CalibrationNodes
from .declarations import Objective as Objective
from .diagnostics import CredalWarning, complaint_about, sample
from .feature_range import FeatureRange
from .given import EvalProtocol, Given, given_of
from .hooks import Hooks
from .jobs import Cluster
from .large import budget_of, fits, held_bytes
from .prediction import MethodError, Prediction
from .warn import warn_caller


@dataclass(kw_only=True, eq=False)
class Method(Hooks):
    """A way to classify the nodes of a graph and to say how uncertain each of them is.

    Hyper-parameters are the fields of a dataclass (``@dataclass(kw_only=True, eq=False)``); a field named ``seed`` is
    set by whoever repeats the method with several seeds. A method of one's own overrides what ``Hooks`` has: ``_fit``
    and ``_predict``, and ``_tensors`` and ``_restore`` if it is to be saved; class attributes (``Declarations``) say
    the rest, and nobody asks for its type. ``credalgnn.testing.check_method`` tries all of it.

    Attributes:
        history_: After ``fit``, its training curve; empty where nothing is trained in epochs.
    """

    def fit(
        self,
        data: Task | Graph,
        *,
        train: Tensor | None = None,
        val: Tensor | None = None,
        calibration: Tensor | None = None,
        protocol: EvalProtocol = "sealed",
        progress: bool | None = None,
        on_epoch: Callable[[Epoch], None] | None = None,
        memory: str | int | None = None,
        checkpoints: str | os.PathLike[str] | None = None,
        workers: int | None = None,
        address: str | None = None,
    ) -> Self:
        """Learn from a task, or from one's own graph.

        Of a graph, what is not given is dealt: 60, 20 and 20 % of the labelled nodes for training, early stopping and
        calibration, stratified by class. Where ``train`` and ``val`` are given, there is no calibration unless it is
        given, too.

        A credal method warns (``CredalWarning``), once, if its sets say nothing: here, judged by some nodes it was not
        trained on, or else when it first predicts.

        Args:
            data: A task, or a graph.
            train: With a graph, the nodes to train on: a mask or node numbers.
            val: With a graph, the nodes that decide when to stop: a mask or node numbers.
            calibration: With a graph, labelled nodes that nothing is learnt from, so that predictions can promise a
                rate of false alarms (``Prediction.strangers``) and coverage (``Prediction.sets``).
            protocol: ``"sealed"`` shows a method training and ID validation nodes only; ``"paper"`` lets early stopping
                look at the task's OOD validation nodes too (``monitor="ood_auroc"``).
            progress: Show a bar; None: on a terminal, when training takes more than a few seconds, and elsewhere a line
                each half minute.
            on_epoch: Is shown every line of the training curve as it comes; what it raises ends the training.
            memory: How much memory may be used, in bytes or as ``"4GiB"``, now and in predictions; None: what is
                available. Where a graph does not fit, mini-batches with sampled neighbours are trained on, and
                predictions are made chunk by chunk, with what does not fit in files.
            checkpoints: A folder in which the state of each network in training is kept, behind an epoch: called again
                with the same data and hyper-parameters, ``fit`` goes on from there, and gives what it would have given.
                States of other data and hyper-parameters are left alone; nothing is removed. None: nothing is kept.
            workers: Train each network with so many processes of a Ray cluster, one processor (or, with a ``device`` of
                CUDA, one GPU) each, on mini-batches (of 1,024 nodes where ``batch_size`` is None) that they share. One
                gives the numbers that one thread gives without workers and with the same ``batch_size``; several give
                the same numbers again for the same seed. Each may use ``memory`` for itself. A lost one costs the steps
                since the last epoch, and the others go on. None: this process alone.
            address: ``HOST:PORT`` of the cluster; None: that of ``RAY_ADDRESS``, or the one that Ray finds.
        """
        if workers is not None or address is not None:
            from .workers import check_workers

            check_workers(self, workers)
        given = given_of(data, train, val, calibration, protocol)
        folder = None if checkpoints is None else Path(checkpoints)
        given = given._replace(progress=progress, on_epoch=on_epoch, memory=budget_of(memory), checkpoints=folder)
        if workers is None:
            self._learn_and_look(given)
            return self
        from .workers import connected

        with connected(address, workers) as cluster:
            try:
                self._learn_and_look(given._replace(workers=workers, cluster=cluster))
            finally:
                self._let_help(None)
        return self

    def _learn_and_look(self, given: Given) -> None:
        """Learn, and see what has become of it: what calibration nodes get, and whether credal sets say anything."""
        look = self.is_credal and not self._is_trained()
        self._learn(given)
        self._calibrated: tuple[str, Calibration] | None = None
        self.calibration_: CalibrationNodes | None = calibration_nodes(self, given)
        self._warned = False
        self._examined: Graph | None = given.view.graph if look else None  # what the credal sets were judged by
        if self._examined is not None:
            with torch.no_grad(), suppress(ValueError):  # what cannot be predicted is for predict to refuse
                self._warn_of(self._predict(self._examined, sample(self._examined.num_nodes, given.view.train)))

    def _calibration(self, graph: Graph) -> Calibration | None:
        """What the method says of its calibration nodes: in this graph, if they are in it, or in the fitted one."""
        return None if self.calibration_ is None else calibration_in(self, self.calibration_, graph)

    def _learn(self, given: Given) -> None:
        self._check()
        self._memory: int | None = given.memory
        self._cluster: Cluster | None = given.cluster
        self._check_room(given.view.graph)
        self._fit(given)
        view = given.view
        self.graph_: Graph | None = given.graph
        self.fingerprint, self.class_names = view.fingerprint, view.class_names
        self.num_features, self.feature_range_ = view.graph.num_features, FeatureRange.of(view.graph)
        self.feature_names = view.graph.feature_names
        self._train_nodes: Tensor | None = given.train_nodes
        self.protocol: EvalProtocol = "sealed" if given.validation is None else "paper"

    def predict(
        self,
        graph: Graph | None = None,
        nodes: Tensor | None = None,
        *,
        ids: Sequence[Any] | None = None,
        memory: str | int | None = None,
    ) -> Prediction:
        """Predict the nodes of the graph it was fitted on, or of another one.

        Fitted on an inductive task, it predicts on the whole graph, of which training saw a part. Features far outside
        the range that they had in training are warned of (``InputWarning``).

        Args:
            graph: By default the fitted one. Another one may have new nodes and edges; its features must be the same,
                and in the same order if they have names.
            nodes: A mask or node numbers; by default all nodes.
            ids: Instead of ``nodes``, what the nodes are called.
            memory: How much memory may be used, from now on; None: as much as ``fit`` was told.
        """
        graph = self._graph(graph, memory)
        chosen = chosen_at_once(self, graph, nodes, ids)
        with explained():
            prediction = finite(predictor_of(self, graph)(chosen))
        if graph is not self._examined:
            self._warn_of(prediction)
        return completed(self, graph)(prediction)

    def predict_chunks(
        self,
        graph: Graph | None = None,
        nodes: Tensor | None = None,
        *,
        ids: Sequence[Any] | None = None,
        size: int = CHUNK,
        memory: str | int | None = None,
        workers: int | None = None,
        address: str | None = None,
    ) -> Iterator[Prediction]:
        """As ``predict``, some nodes at a time: what is computed for the whole graph is computed once.

        The chunks together are what ``predict`` gives, to rounding, in the order of the nodes. What is refused is
        refused before the first chunk, and warned of once; whether credal sets say anything is judged by some nodes, as
        in ``fit``.

        Args:
            graph: See ``predict``.
            nodes: See ``predict``.
            ids: See ``predict``.
            size: Nodes of a chunk, at the most: fewer where the answers for so many take half of the memory.
            memory: See ``predict``; of each task on a cluster, too.
            workers: Let so many tasks of a Ray cluster, one processor each, compute latents, coverage and entropies;
                they give the same numbers to rounding, whichever machines are lost. None: this process alone.
            address: ``HOST:PORT`` of the cluster; None: that of ``RAY_ADDRESS``, or the one that Ray finds.
        """
        if workers is None and address is None:
            return chunks_of(self, graph, nodes, ids, size, memory)
        from .workers import check_count

        check_count(workers)
        return chunks_by_tasks(self, workers, address, graph, nodes, ids, size, memory)

    def check_chunks(self) -> None:
        """Refuse a graph that does not fit in memory, if the method, or one that it is made of, needs all of it."""
        if not self.works_by_chunks:
            raise MethodError(
                f"{self.name} needs the whole graph in memory, and this one does not fit: choose a method that works "
                "by chunks, such as credal-lj, credal-coverage or energy, or allow more memory"
            )

    def _warn_of(self, prediction: Prediction) -> None:
        """Warn, once for a fitted method, of credal sets that say nothing."""
        complaint = complaint_about(prediction)
        if complaint and not self._warned:
            self._warned = True
            warn_caller(f"{self.name}: {complaint}", CredalWarning)

    def _graph(self, graph: Graph | None, memory: str | int | None = None) -> Graph:
        """What is predicted on: a graph, or the fitted one, that fits what was learnt and, if need be, in memory."""
        graph = graph_for(self, graph)
        if memory is not None:
            self._allow(budget_of(memory))
        self._check_room(graph)
        return graph

    def _allow(self, memory: int | None) -> None:
        """Use so much memory from now on, and so do the methods this one is made of."""
        self._memory = memory
        for part in self._parts().values():
            part._allow(memory)

    def _let_help(self, cluster: Cluster | None) -> None:
        """Let machines of a cluster do chunks of work from now on, also for the methods below this one."""
        self._cluster = cluster
        for part in (*(self._parts().values() if self.is_fitted else ()), *self._given_models()):
            part._let_help(cluster)

    def _given_models(self) -> Sequence[Method]:
        """The methods that it was given to stand on: fitted ones, which others may hold too, or templates."""
        given = getattr(self, self.components.parameter) if self.components else None
        return [given] if isinstance(given, Method) else given or []

    def _check_room(self, graph: Graph) -> None:
        if held_bytes(graph) > (available_memory() if self._memory is None else self._memory):
            self.check_chunks()

    def has_room(self, graph: Graph, memory: str | int | None = None) -> bool:
        """Whether a graph and a prediction of all its nodes fit in memory.

        Args:
            graph: What is to be predicted.
            memory: See ``predict``.
        """
        return fits(graph, len(self.class_names), self._memory if memory is None else budget_of(memory))

    @property
    def is_fitted(self) -> bool:
        return hasattr(self, "fingerprint")

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write ``model.safetensors`` and ``method.json``.

        Args:
            folder: Where to; made if need be.
        """
        from .storage import save

        save(self, folder)

    @classmethod
    def load(cls, folder: str | os.PathLike[str], task: Task | None = None, *, any_task: bool = False) -> Self:
        """Read what ``save`` wrote; runs no code from the files.

        Args:
            folder: Where ``save`` wrote.
            task: Whose graph is predicted on by default.
            any_task: Allow another task than the one it was fitted on.
        """
        from .storage import load_method

        method = load_method(folder, task, any_task=any_task, method=cls)
        if not isinstance(method, cls):
            raise MethodError(f"{folder} holds a {type(method).__name__}, not a {cls.__name__}")
        return method

    def __post_init__(self) -> None:
        if missing := self.not_overridden():
            raise TypeError(f"{type(self).__name__} does not override {', '.join(missing)}")
        self._check_types()
        self._examined, self._warned = None, False
        self._calibrated, self.calibration_ = None, None
        self._memory = None  # bytes that may be used; None: what is available
        self._cluster = None  # whose machines do chunks of work
        self.history_: list[Epoch] = []
        self._check()
