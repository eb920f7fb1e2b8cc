"""Node classifiers with uncertainty scores: parameters in the constructor, data in `fit`, then `predict`."""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, NoReturn, Self, TypeAlias

import torch
from torch import Tensor

from ..graphs import Graph, GraphError, Task, node_numbers
from ..nn.backbones import Features
from ..nn.training import Epoch
from ..runtime.cache import Caches
from ..runtime.context import Context
from ..runtime.errors import translated
from ..runtime.warn import warn_caller
from .calibration import Calibration, CalibrationNodes, KnownNodes, ids_of, numbers_of
from .diagnostics import CredalWarning, FeatureRange, InputWarning, complaint_about, sample
from .large import answer_bytes, budget_of, held_bytes, refusal
from .parameters import Parameters, Space
from .prediction import MethodError, NotFittedError, Prediction, Predictor, SplitPredictor, score_calibration
from .training_data import EvalProtocol, TrainingData, training_data

Objective: TypeAlias = Literal["accuracy", "nll", "auroc", "misclassification_auroc"]
CHUNK = 100_000  # nodes that are predicted at a time
NOT_FINITE = "not all outputs are finite numbers; are the features scaled as they were in training?"
SUMMARY = ("fingerprint", "class_names", "num_features", "feature_names", "protocol")
_LEARNT = re.compile("[a-z][a-z0-9_]*_")  # attributes that are saved if nothing else is said: tensors


class Outputs(NamedTuple):
    """Outputs of a fitted model.

    Attributes:
        logits: ``[N, C]``.
        latents: ``z0 .. zL``; z0 are the features, perhaps sparse.
    """

    logits: Tensor
    latents: list[Features]


@dataclass(frozen=True)
class Components:
    """The fitted models that a method is made of; a benchmark trains each of them once and shares it.

    Attributes:
        parameter: The method's parameter that takes them: one method, or a list of them where ``size`` is given. The
            fitted ones are in the attribute of that name with an underscore.
        kind: The class that is trained where none are given.
        size: The hyper-parameter that says how many there are; None: there is one.
    """

    parameter: str
    kind: type[Method]
    size: str | None = None

    def seeds(self, config: Mapping[str, Any], seed: int) -> list[int]:
        """Return the seeds of the models of a method with this seed; no two methods of one size share any.

        Args:
            config: The method's hyper-parameters.
            seed: Of the method.
        """
        count = config[self.size] if self.size else 1
        return [seed * count + number for number in range(count)]

    def _fitted(self, method: Method) -> dict[str, Method]:
        """Return the fitted components of a method by name; none if it is not fitted."""
        if not method.is_fitted:
            return {}
        models = getattr(method, f"{self.parameter}_")
        if self.size is None:
            return {self.parameter: models}
        return {f"{self.parameter}.{number}": model for number, model in enumerate(models)}

    def _restore(self, method: Method, parts: Mapping[str, Method]) -> None:
        """Give a method the components that ``_fitted`` returned."""
        models = parts[self.parameter] if self.size is None else list(parts.values())
        setattr(method, self.parameter, models)
        setattr(method, f"{self.parameter}_", models)


class Fitted:
    """Attributes that ``fit`` sets.

    Attributes:
        fingerprint: Of the task or the split.
        class_names: Names of the known classes.
        num_features: Number of features.
        feature_names: Their names, if they have some.
        protocol: What early stopping could look at.
        graph_: The graph that is predicted by default; None for a loaded method.
        train_nodes_: The training nodes in it; None if they are not known.
        feature_range_: The range of each feature in training.
        calibration_: The calibration nodes, and their scores.
        history_: The training curve; empty where nothing is trained in epochs.
    """

    fingerprint: str
    class_names: tuple[str, ...]
    num_features: int
    feature_names: tuple[str, ...] | None
    protocol: EvalProtocol
    graph_: Graph | None
    train_nodes_: Tensor | None
    feature_range_: FeatureRange
    calibration_: CalibrationNodes | None
    history_: list[Epoch]

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            learnt = name in SUMMARY or (name.endswith("_") and not name.startswith("_"))
            if learnt and not self.is_fitted:
                raise not_fitted(self)
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)

    @property
    def is_fitted(self) -> bool:
        """True after ``fit``."""
        return "fingerprint" in vars(self)


@dataclass(kw_only=True, eq=False)
class Method(Parameters, Fitted, ABC):
    """Node classifier with uncertainty scores; subclasses implement ``_fit`` and ``_predictor``.

    Hyper-parameters are the fields of a dataclass (``@dataclass(kw_only=True, eq=False)``); a field named ``seed`` is
    set by what repeats the method with several seeds. ``credalgnn.testing.check_method`` tries the whole contract.

    Attributes:
        name: The name that a user types, and that tables show.
        score_names: The scores of its predictions; the first is the headline.
        is_credal: Whether it predicts credal sets.
        classifies_beside: Whether a classifier beside the credal sets gives the probabilities, which then need not lie
            in them.
        is_baseline: Whether it needs no model and learns nothing; such a one is in every table.
        learns: Whether ``fit`` learns anything besides its components.
        is_shared: Whether other methods are made of it by default, so that a benchmark keeps what it has fitted.
        uses_unlabelled: Whether unlabelled nodes teach it something else than messages along edges do, such as what is
            rare or what scale scores have. Leaderboards say so, since OOD nodes may be among these nodes.
        has_outputs: Whether it has logits and latents (``outputs``), which post-hoc methods can score.
        works_by_chunks: Whether it learns and predicts without ever holding the whole graph, so that it works on graphs
            that are larger than memory; it then reads rows of features and ``graph.in_edges``, never
            ``graph.edge_index``.
        trains_by_batches: Whether it is a network that mini-batches train: what several processes can share.
        components: The fitted models it is made of, if any.
        search_space: What ``tune`` chooses its hyper-parameters from; empty: nothing is tuned.
        limited_by_training: Hyper-parameters in it that cannot be larger than the number of training nodes.
        objectives: The metric of validation nodes that tuning maximises (``"nll"``: minimises), by protocol. Sealed,
            ID nodes alone decide: by default, how well the headline score finds misclassified ones.
        protocol_defaults: Hyper-parameters with another default under a protocol than in the constructor.
        prunable: Protocols under which tuning may give up a trial whose monitor is worse than that of most others.
        decomposition: The scores for epistemic and, if there is one, aleatoric uncertainty; None: EU, or the headline,
            and AU.
    """

    name: ClassVar[str]
    score_names: ClassVar[tuple[str, ...]]
    is_credal: ClassVar[bool] = False
    classifies_beside: ClassVar[bool] = False
    is_baseline: ClassVar[bool] = False
    learns: ClassVar[bool] = True
    is_shared: ClassVar[bool] = False
    uses_unlabelled: ClassVar[bool] = False
    has_outputs: ClassVar[bool] = False
    works_by_chunks: ClassVar[bool] = False
    trains_by_batches: ClassVar[bool] = False
    components: ClassVar[Components | None] = None
    search_space: ClassVar[Space] = {}
    limited_by_training: ClassVar[tuple[str, ...]] = ()
    objectives: ClassVar[Mapping[EvalProtocol, Objective]] = {"sealed": "misclassification_auroc", "paper": "auroc"}
    protocol_defaults: ClassVar[Mapping[EvalProtocol, Mapping[str, Any]]] = {}
    prunable: ClassVar[tuple[EvalProtocol, ...]] = ()
    decomposition: ClassVar[tuple[str, str | None] | None] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.calibration_, self.history_ = None, []
        self._cache = Caches()

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
        """Learn from a task, or from your own graph; interrupted or refused, the method stays as it was.

        Of a graph, what is not given is split: 60, 20 and 20 % of the labelled nodes for training, early stopping and
        calibration, stratified by class. Where ``train`` and ``val`` are given, there is no calibration unless it is
        given, too.

        A credal method warns (``CredalWarning``), once, if its sets say nothing: here, judged by some nodes it was not
        trained on, or else when it first predicts.

        Args:
            data: A task, or a graph.
            train: With a graph, the nodes to train on: a mask or node numbers.
            val: With a graph, the nodes that decide when to stop: a mask or node numbers.
            calibration: With a graph, labelled nodes that nothing is learnt from, so that predictions can promise a
                rate of false alarms (``Prediction.flag_unfamiliar``) and coverage (``Prediction.sets``).
            protocol: ``"sealed"`` shows a method training and ID validation nodes only; ``"paper"`` lets early stopping
                look at the task's OOD validation nodes too (``monitor="ood_auroc"``).
            progress: Show a bar; None: on a terminal, when training takes more than a few seconds, and elsewhere a line
                each half minute.
            on_epoch: Called with every line of the training curve; what it raises ends the training.
            memory: Memory budget of this call, in bytes or as ``"4GiB"``; None: what is available. Where a graph does
                not fit, mini-batches with sampled neighbours are trained on, and what does not fit is kept in files.
            checkpoints: A folder in which the state of each network in training is kept, after an epoch: called again
                with the same data and hyper-parameters, ``fit`` goes on from there, and gives what it would have given.
                States of other data and hyper-parameters are left alone; nothing is removed. None: nothing is kept.
            workers: Train each network with so many processes of a Ray cluster, one processor (or, with a ``device`` of
                CUDA, one GPU) each, on mini-batches (of 1,024 nodes where ``batch_size`` is None) that they share. One
                gives the numbers that one thread gives without workers and with the same ``batch_size``; several give
                the same numbers again for the same seed. Each may use ``memory``. A lost one costs the steps since the
                last epoch, and the others go on. None: this process alone.
            address: ``HOST:PORT`` of the cluster; None: that of ``RAY_ADDRESS``, or the one that Ray finds.
        """
        if workers is not None or address is not None:
            check_workers(self, workers)
        training = training_data(data, train, val, calibration, protocol)
        folder = None if checkpoints is None else Path(checkpoints)
        budget = budget_of(memory)
        with _cluster(address, workers) as cluster:
            context = Context(budget, cluster, workers, folder, progress, on_epoch)
            fitted = fitted_copy(self, training, context)
            fitted.calibration_ = _calibration_nodes(fitted, training, context)
            sampled = _predict_sample(fitted, training, context)
        self.__dict__ = fitted.__dict__  # the only assignment
        if sampled is not None:
            _warn_of(self, sampled)
        return self

    def predict(
        self,
        graph: Graph | None = None,
        nodes: Tensor | None = None,
        *,
        ids: Sequence[Any] | None = None,
        memory: str | int | None = None,
    ) -> Prediction:
        """Predict the nodes of the fitted graph, or of another one; the method is not changed.

        Fitted on an inductive task, it predicts on the whole graph, of which training saw a part. Features far outside
        the range that they had in training are warned of (``InputWarning``).

        Args:
            graph: By default the fitted one. Another one may have new nodes and edges; its features must be the same,
                and in the same order if they have names.
            nodes: A mask or node numbers; by default all nodes.
            ids: Instead of ``nodes``, the ids of nodes.
            memory: Memory budget of this call, in bytes or as ``"4GiB"``; None: what is available.
        """
        method = copy(self)  # another thread may fit this one
        graph, context = open_graph(method, graph, memory)
        chosen = _chosen_at_once(method, graph, nodes, ids, context)
        with explained():
            predict = method._predictor(graph, context)
            prediction = _finite(predict(chosen))
        if prediction.credal is not None and not _is_sampled(method, graph):
            _warn_of(method, prediction)
        return _completed(method, graph, predict, context)(prediction)

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
        """Predict some nodes at a time; what is computed for the whole graph is computed once.

        The chunks together are what ``predict`` gives, to rounding, in the order of the nodes. What is refused is
        refused before the first chunk, and warned of once; whether credal sets say anything is judged by some nodes, as
        in ``fit``.

        Args:
            graph: See ``predict``.
            nodes: See ``predict``.
            ids: See ``predict``.
            size: Nodes of a chunk at the most: fewer where the answers for so many take half of the memory.
            memory: See ``predict``; of each task on a cluster, too.
            workers: Let so many tasks of a Ray cluster, one processor each, compute latents, label reach and entropies;
                they give the same numbers to rounding, whichever machines are lost. None: this process alone.
            address: ``HOST:PORT`` of the cluster; None: that of ``RAY_ADDRESS``, or the one that Ray finds.
        """
        method = copy(self)
        if workers is not None or address is not None:
            from .cluster import check_count

            check_count(workers)
        graph, context = open_graph(method, graph, memory)
        if size < 1:
            raise MethodError(f"size must be at least 1, not {size}")
        chosen = chosen_nodes(graph, nodes, ids)
        chunks = _chunks(method, graph, chosen, size, context, workers, address)
        next(chunks)  # nothing is refused from here on
        return chunks

    def outputs(self, graph: Graph | None = None, *, memory: str | int | None = None) -> Outputs:
        """Return logits and latents of all nodes, on the CPU; of methods that have them (``has_outputs``).

        Args:
            graph: By default the fitted one.
            memory: See ``predict``.
        """
        method = copy(self)
        graph, context = open_graph(method, graph, memory)
        with torch.no_grad():
            return method._outputs(graph, context)

    def reasons(
        self, nodes: Tensor, graph: Graph | None = None, *, memory: str | int | None = None
    ) -> list[str] | None:
        """Return in a few words why each of some nodes is uncertain; None for most methods.

        Args:
            nodes: A mask or node numbers.
            graph: Their graph; by default the fitted one.
            memory: See ``predict``.
        """
        return None

    def nearest_labelled(
        self, nodes: Tensor, graph: Graph | None = None, *, memory: str | int | None = None
    ) -> Tensor | None:
        """Return the training nodes that are most like some nodes ``[n, 5]``, the nearest first; None for most methods.

        Args:
            nodes: A mask or node numbers.
            graph: Their graph; by default the fitted one.
            memory: See ``predict``.
        """
        return None

    @property
    def diagnosis(self) -> Mapping[str, float] | None:
        """Numbers by name that say how far the method can be trusted; None for most methods."""
        return None

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks about its predictions, in sentences; none for most methods."""
        return tuple(note for part in parts_of(self).values() for note in part.notes)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write ``model.safetensors`` and ``method.json``; ``load_method`` reads them.

        Args:
            folder: Path of the folder; it is made if need be.
        """
        from .storage import save

        save(self, folder)

    @abstractmethod
    def _fit(self, training: TrainingData, context: Context) -> None:
        """Learn; what is learnt goes into attributes that end with an underscore."""

    @abstractmethod
    def _predictor(self, graph: Graph, context: Context) -> Predictor:
        """Return a function of node numbers that predicts them; compute here, once, what the whole graph is needed for.

        A ``SplitPredictor`` lets other processes do the costly step.
        """

    def _outputs(self, graph: Graph, context: Context) -> Outputs:
        """Return logits and latents of all nodes, if the class ``has_outputs``."""
        raise MethodError(f"{type(self).__name__} has no logits and latents that others could be made of")

    def _state(self) -> dict[str, Tensor]:
        """Return what ``fit`` has learnt as tensors by name, to be saved; components are saved apart.

        By default all attributes that are tensors and end with an underscore.
        """
        learnt = {name: value for name, value in vars(self).items() if _is_learnt(name)}
        return {name: value for name, value in learnt.items() if isinstance(value, Tensor)}

    def _load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore what ``_state`` gave; ``class_names``, ``num_features`` and components are there already."""
        for name, tensor in state.items():
            if not _is_learnt(name):
                raise KeyError(name)
            setattr(self, name, tensor)


def not_fitted(method: object) -> NotFittedError:
    """Return the error of a method that is used before ``fit``."""
    return NotFittedError(f"{type(method).__name__} is not fitted: call fit(task) first")


def _is_learnt(name: str) -> bool:
    return _LEARNT.fullmatch(name) is not None and name not in Fitted.__annotations__


# Classes


def decomposition_of(kind: type[Method]) -> tuple[str, str | None]:
    """Return the scores for epistemic and, if there is one, aleatoric uncertainty."""
    if kind.decomposition is not None:
        return kind.decomposition
    return "EU" if "EU" in kind.score_names else kind.score_names[0], "AU" if "AU" in kind.score_names else None


def search_space_of(kind: type[Method], num_train: int) -> Space:
    """Return the search space on a task with so many training nodes."""
    return {
        name: tuple(value for value in values if value <= num_train)
        if name in kind.limited_by_training and isinstance(values, tuple)
        else values
        for name, values in kind.search_space.items()
    }


def check_workers(method: Method, workers: object) -> None:
    """Refuse an impossible number of workers, or workers for a method that has nothing for them to do."""
    from .cluster import check_count

    check_count(workers)
    if not trains_by_batches(type(method)):
        raise MethodError(
            f"{method.name} trains no network on mini-batches: workers have nothing to do, leave them out"
        )


def trains_by_batches(kind: type[Method]) -> bool:
    """Return whether it, or what it is made of, is a network that mini-batches train."""
    return kind.trains_by_batches or (kind.components is not None and trains_by_batches(kind.components.kind))


# Components


def given_models(method: Method) -> list[Method]:
    """Return the methods that a method was given to be made of, fitted ones or templates."""
    models = getattr(method, method.components.parameter) if method.components else None
    return [models] if isinstance(models, Method) else list(models or ())


def parts_of(method: Method) -> dict[str, Method]:
    """Return the fitted methods that a fitted method is made of, by name."""
    return {} if method.components is None else method.components._fitted(method)


def check_chunks(method: Method) -> None:
    """Refuse a graph that does not fit in memory, if the method, or one that it is made of, needs all of it."""
    if not method.works_by_chunks:
        raise MethodError(
            f"{method.name} needs the whole graph in memory, and this one does not fit: choose a method that works "
            "by chunks, such as credal-lj, credal-coverage or energy, or allow more memory"
        )
    if getattr(method, "epsilon", 0.0):
        raise MethodError(
            f"{method.name} with a step of the features needs the whole graph in memory, and this one does not fit: "
            "choose epsilon=0"
        )
    for model in given_models(method):
        check_chunks(model)


def fitted_on(model: Method, training: TrainingData, context: Context) -> Method:
    """Return a component: the model itself, if it is fitted on this data, or a fitted clone of a template."""
    if not model.is_fitted:
        return fitted_copy(model.clone(), training, context)
    if training.validation is None and _stopped_by_ood_nodes(model):
        raise MethodError(
            f"OOD validation nodes decided when this {model.name} stopped ('ood_auroc'), against the sealed protocol: "
            "fit(task, protocol='paper'), or give one with another monitor"
        )
    if model.fingerprint != training.view.fingerprint:
        raise MethodError(
            f"the {model.name} was fitted on another task or split: a post-hoc method would be scored on nodes that "
            "its model was trained on; fit it on this task, or give an unfitted one"
        )
    return model


def _stopped_by_ood_nodes(method: Method) -> bool:
    return getattr(method, "monitor", None) == "ood_auroc" or any(map(_stopped_by_ood_nodes, parts_of(method).values()))


# Fitting


def fitted_copy(template: Method, training: TrainingData, context: Context) -> Method:
    """Return a fitted method with the parameters of another one, which is not changed."""
    method = type(template)(**template.get_params(deep=False))
    view = training.view
    _check_room(method, view.graph, context)
    method.graph_, method.train_nodes_, method.class_names = training.graph, training.train_nodes, view.class_names
    method.num_features, method.feature_names = view.graph.num_features, view.graph.feature_names
    method.protocol = "sealed" if training.validation is None else "paper"
    method._fit(training, context)
    method.feature_range_ = FeatureRange.of(view.graph)
    method.fingerprint = view.fingerprint
    return method


@contextmanager
def _cluster(address: str | None, workers: int | None) -> Iterator[Any]:
    """Connect to the tasks of a cluster, if there are to be workers."""
    if workers is None:
        yield None
        return
    from .cluster import connected

    with connected(address, workers) as cluster:
        yield cluster


def _calibration_nodes(method: Method, training: TrainingData, context: Context) -> CalibrationNodes | None:
    """Score the calibration nodes as if they were nodes of another graph; None where there are none."""
    if training.calibration is None or training.calibration_labels is None:
        return None
    nodes, labels = training.calibration, training.calibration_labels
    with torch.no_grad():
        predict = method._predictor(training.graph, context.replace(held_out=True))
    scored = score_calibration(predict, nodes, labels, min(CHUNK, room_for(method, context.memory)), alike=False)
    return CalibrationNodes(KnownNodes.of(training.graph, nodes), labels, scored)


def _predict_sample(method: Method, training: TrainingData, context: Context) -> Prediction | None:
    """Predict some nodes, for a look at the credal sets; None where nothing was learnt, which then costs nothing."""
    models, graph = given_models(method), training.view.graph
    if not method.is_credal or not (method.learns or not models or not all(model.is_fitted for model in models)):
        return None
    method._cache.get("sampled by fit", graph.content, lambda: True)
    with torch.no_grad(), suppress(ValueError):  # what cannot be predicted is for predict to refuse
        return method._predictor(graph, context)(sample(graph.num_nodes, training.view.train))
    return None


def _is_sampled(method: Method, graph: Graph) -> bool:
    """Return whether `fit` has looked at the credal sets in this graph."""
    return method._cache.peek("sampled by fit", graph.content) is not None


def _warn_of(method: Method, prediction: Prediction) -> None:
    """Warn, once for a fitted method, of credal sets that say nothing."""
    complaint = complaint_about(prediction)
    if complaint and method._cache.first("credal warning"):
        warn_caller(f"{method.name}: {complaint}", CredalWarning)


# Predicting


def open_graph(method: Method, graph: Graph | None, memory: str | int | None) -> tuple[Graph, Context]:
    """Return the graph to predict, if it fits what was learnt and, if need be, in memory; and the call's context."""
    if not method.is_fitted:
        raise not_fitted(method)
    for name, part in parts_of(method).items():
        if part.fingerprint != method.fingerprint:
            raise MethodError(f"{name} has since been fitted on another task or split: call fit(task) again")
    graph = method.graph_ if graph is None else graph
    if graph is None:
        raise MethodError("a loaded method has no graph: predict(graph), or load_method(folder, task)")
    if not isinstance(graph, Graph):
        raise MethodError(f"a credalgnn Graph is wanted, not {type(graph).__name__}: Graph.from_pyg(data) makes one")
    with translated(GraphError, lambda error: MethodError(str(error))):
        graph.check_features(method.feature_names)
    if graph.num_features != method.num_features:
        raise MethodError(
            f"the graph has {graph.num_features} features, but {method.num_features} were there in training: "
            "give the same ones, in the same order"
        )
    context = Context(budget_of(memory))
    _check_room(method, graph, context)
    return graph, context


def _check_room(method: Method, graph: Graph, context: Context) -> None:
    if held_bytes(graph) > context.allowed:
        check_chunks(method)


def chosen_nodes(graph: Graph, nodes: Tensor | None, ids: Sequence[Any] | None = None) -> Tensor:
    """Return node numbers.

    Args:
        graph: The graph of the nodes.
        nodes: A mask or node numbers; None: all nodes.
        ids: Instead of ``nodes``, their ids.
    """
    with translated(GraphError, lambda error: MethodError(str(error))):
        if ids is not None and nodes is not None:
            raise GraphError("say which nodes by nodes= or by ids=, not by both")
        if ids is not None:
            return numbers_of(graph, ids)
        return torch.arange(graph.num_nodes) if nodes is None else node_numbers(nodes, "nodes", graph.num_nodes)


def _chosen_at_once(
    method: Method, graph: Graph, nodes: Tensor | None, ids: Sequence[Any] | None, context: Context
) -> Tensor:
    """``chosen_nodes``, unless memory has no room for the predictions of them all."""
    chosen = chosen_nodes(graph, nodes, ids)
    needed, allowed = len(chosen) * _bytes_of_one(method), context.allowed
    if needed > allowed:
        taken = refusal(needed, allowed)
        raise MethodError(
            f"{method.name}: a prediction of {len(chosen):,} nodes at once {taken}: predict_chunks() gives them chunk "
            "by chunk, and nodes= some of them"
        )
    return chosen


def room_for(method: Method, memory: int | None = None) -> int:
    """Return of how many nodes the answers take half of the memory; at least one.

    The other half is for what is held beside them: of chunks the last one, and of what is available, others may take.

    Args:
        method: The method that predicts.
        memory: Memory budget in bytes; None: what is available.
    """
    return max(1, Context(memory).allowed // (2 * _bytes_of_one(method)))


def _bytes_of_one(method: Method) -> int:
    """Return about the bytes that the answer for a node takes; baselines predict no classes."""
    return answer_bytes(1, 1 if method.is_baseline else len(method.class_names))


@contextmanager
def explained() -> Iterator[None]:
    """Predict without gradients, and say what may be the matter where a credal set refuses what is not one."""
    try:
        with torch.no_grad():
            yield
    except (MethodError, GraphError):
        raise
    except ValueError as error:  # it names the node
        raise MethodError(f"{error}: {NOT_FINITE}") from error


def _finite(prediction: Prediction) -> Prediction:
    if not all(bool(score.isfinite().all()) for score in prediction.scores.values()):
        raise MethodError(NOT_FINITE)
    return prediction


def _completed(
    method: Method, graph: Graph, predict: Predictor, context: Context
) -> Callable[[Prediction], Prediction]:
    """Return what adds to predictions all that belongs to them; features that are far off are warned of now."""
    reasons = partial(method.reasons, graph=graph, memory=context.memory)
    added: dict[str, Any] = {"calibration": _calibration(method, graph, predict, context), "reasons": reasons}
    if method.graph_ is not None and graph.content == method.graph_.content:  # it may have other labels or names
        added["train_nodes"] = method.train_nodes_
    elif message := method.feature_range_.complaint_about(graph):
        warn_caller(f"{method.name}: {message}", InputWarning)

    def complete(prediction: Prediction) -> Prediction:
        ids = None if graph.node_ids is None else ids_of(graph, prediction.nodes.numpy())
        return replace(prediction, node_ids=ids, **added)

    return complete


def _calibration(method: Method, graph: Graph, predict: Predictor, context: Context) -> Calibration | None:
    """Score the calibration nodes as the others: in this graph, if they are in it, or as in the fitted one."""
    nodes = method.calibration_
    if nodes is None:
        return None

    def score() -> Calibration:
        numbers = nodes.known.numbers_in(graph)
        if not bool((numbers >= 0).all()) or not getattr(predict, "alike", True):
            return nodes.fitted
        size = min(CHUNK, room_for(method, context.memory))
        return score_calibration(predict, numbers, nodes.labels, size, alike=True)

    return method._cache.get("calibration", (graph.content, graph.ids_digest, context.path), score, size=4)


def _chunks(
    method: Method, graph: Graph, chosen: Tensor, size: int, context: Context, workers: int | None, address: str | None
) -> Iterator[Any]:
    """Yield None once nothing can be refused any more, then predictions, chunk by chunk."""
    with _cluster(address, workers) as cluster:
        if cluster is not None:
            from .cluster import check_room

            check_room(cluster.workers)
            context = context.replace(cluster=cluster)
        with explained():
            predict = method._predictor(graph, context)
            if method.is_credal and not _is_sampled(method, graph):
                _warn_of(method, predict(chosen[sample(len(chosen), chosen[:0])]))
        complete = _completed(method, graph, predict, context)
        yield None
        chunks = torch.split(chosen, min(size, room_for(method, context.memory)))
        yield from map(complete, _answers(predict, chunks, cluster))


def _answers(predict: Predictor, chunks: Iterable[Tensor], cluster: Any) -> Iterator[Prediction]:
    """Yield predictions of nodes, chunk by chunk; the machines of a cluster take costly steps."""
    if cluster is not None and isinstance(predict, SplitPredictor):
        predictions = cluster.map(predict.judge, ((nodes, *predict.read(nodes)) for nodes in chunks))
    else:
        predictions = map(predict, chunks)
    while True:
        with explained():
            prediction = next(predictions, None)
            if prediction is None:
                return
            _finite(prediction)
        yield prediction
