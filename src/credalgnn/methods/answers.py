"""From what a method predicts to what ``predict`` answers: which nodes, checked, and with what belongs to them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor

from ..graphs import Graph, GraphError, node_numbers
from ..nn import DamagedGraph
from ..runtime.memory import available_memory
from .calibration import Calibration, CalibrationNodes
from .diagnostics import sample
from .feature_range import InputWarning
from .given import Given
from .jobs import Cluster
from .known_nodes import KnownNodes, ids_of, numbers_of
from .large import answer_bytes, refusal
from .prediction import MethodError, Prediction
from .warn import warn_caller

if TYPE_CHECKING:
    from .base import Method

Predictor: TypeAlias = Callable[[Tensor], Prediction]


@dataclass(frozen=True, eq=False)
class SplitPredictor:
    """A predictor whose costly step needs nothing but what the first one has read, so that others can do it.

    Attributes:
        read: What is known of some nodes: the arguments of ``judge`` behind the nodes.
        judge: Makes the prediction of it; something that can be pickled.
    """

    read: Callable[[Tensor], tuple[Any, ...]]
    judge: Callable[..., Prediction]

    def __call__(self, nodes: Tensor) -> Prediction:
        return self.judge(nodes, *self.read(nodes))


CHUNK = 100_000  # nodes that are predicted at a time
NOT_FINITE = "not all outputs are finite numbers; are the features scaled as they were in training?"


def graph_for(method: Method, graph: Graph | None) -> Graph:
    """What a method predicts on; a graph that does not fit what it has learnt is refused.

    Args:
        method: The method.
        graph: By default the fitted one.
    """
    if not method.is_fitted:
        raise MethodError(f"{type(method).__name__} is not fitted: call fit(task) first")
    for name, part in method._parts().items():
        if part.fingerprint != method.fingerprint:
            raise MethodError(f"{name} has since been fitted on another task or split: call fit(task) again")
    graph = method.graph_ if graph is None else graph
    if graph is None:
        raise MethodError("a loaded method has no graph of its own: predict(graph), or load it with task=")
    if not isinstance(graph, Graph):
        raise MethodError(f"a credalgnn Graph is wanted, not {type(graph).__name__}: Graph.from_pyg(data) makes one")
    try:
        graph.check_features(method.feature_names)
    except GraphError as error:
        raise MethodError(str(error)) from None
    if graph.num_features != method.num_features:
        raise MethodError(
            f"the graph has {graph.num_features} features, but {method.num_features} were there in training: "
            "give the same ones, in the same order"
        )
    return graph


def chosen_nodes(graph: Graph, nodes: Tensor | None, ids: Sequence[Any] | None) -> Tensor:
    """The numbers of the nodes that are asked for.

    Args:
        graph: Their graph.
        nodes: A mask or node numbers; None: all nodes.
        ids: Instead of ``nodes``, what the nodes are called.
    """
    try:
        if ids is not None and nodes is not None:
            raise GraphError("say which nodes by nodes= or by ids=, not by both")
        if ids is not None:
            return numbers_of(graph, ids)
        return torch.arange(graph.num_nodes) if nodes is None else node_numbers(nodes, "nodes", graph.num_nodes)
    except GraphError as error:
        raise MethodError(str(error)) from None


def chosen_at_once(method: Method, graph: Graph, nodes: Tensor | None, ids: Sequence[Any] | None) -> Tensor:
    """``chosen_nodes``, unless memory has no room for what is predicted of them all.

    Args:
        method: Which predicts.
        graph: Their graph.
        nodes: A mask or node numbers; None: all nodes.
        ids: Instead of ``nodes``, what the nodes are called.
    """
    chosen = chosen_nodes(graph, nodes, ids)
    needed, allowed = len(chosen) * _bytes_of_one(method), _allowed(method)
    if needed > allowed:
        taken = refusal(needed, allowed)
        raise MethodError(
            f"{method.name}: a prediction of {len(chosen):,} nodes at once {taken}: predict_chunks() gives them chunk "
            "by chunk, and nodes= some of them"
        )
    return chosen


def room_for(method: Method, memory: int | None = None) -> int:
    """Of how many nodes the answers take half of the memory that may be used; at least one.

    The other half is for what is held beside them: of chunks the last one, and of what is available, others may take.

    Args:
        method: Which predicts.
        memory: Bytes that may be used; None: what the method may use.
    """
    return max(1, (_allowed(method) if memory is None else memory) // (2 * _bytes_of_one(method)))


def _allowed(method: Method) -> int:
    return available_memory() if method._memory is None else method._memory


def _bytes_of_one(method: Method) -> int:
    """About the bytes that the answer for a node takes; baselines predict no classes."""
    return answer_bytes(1, 1 if method.is_baseline else len(method.class_names))


def predictor_of(method: Method, graph: Graph) -> Predictor:
    """What predicts nodes of a graph: ``_predictor``, unless a class that is derived from its own has ``_predict``.

    Args:
        method: The method, fitted.
        graph: Which it can predict on.
    """
    if last_of(method, "_predictor", "_predict") == "_predictor":
        with torch.no_grad():
            return method._predictor(graph)
    return partial(method._predict, graph)


def last_of(method: Method, *hooks: str) -> str:
    """Of some hooks, the one that the most derived class has that has any of them; the first one, if it has several.

    Args:
        method: The method.
        *hooks: Their names.
    """
    return next(hook for kind in type(method).__mro__ for hook in hooks if hook in vars(kind))


@contextmanager
def explained() -> Iterator[None]:
    """Predict without gradients, and say what may be the matter where a credal set refuses what is not one."""
    try:
        with torch.no_grad():
            yield
    except (MethodError, GraphError, DamagedGraph):
        raise
    except ValueError as error:  # it names the node
        raise MethodError(f"{error}: {NOT_FINITE}") from error


def finite(prediction: Prediction) -> Prediction:
    """The prediction, if all its scores are numbers.

    Args:
        prediction: The prediction.
    """
    if not all(bool(score.isfinite().all()) for score in prediction.scores.values()):
        raise MethodError(NOT_FINITE)
    return prediction


def completed(method: Method, graph: Graph) -> Callable[[Prediction], Prediction]:
    """Adds to predictions what belongs to them; features that are far off are warned of now, and not once a chunk.

    Args:
        method: Which predicts.
        graph: What it predicts on.
    """
    known: dict[str, Any] = {"calibration": method._calibration(graph), "reasons": partial(method.reasons, graph=graph)}
    if method.graph_ is not None and graph.content == method.graph_.content:  # it may have other labels or names
        known["train_nodes"] = method._train_nodes
    elif message := method.feature_range_.complaint_about(graph):
        warn_caller(f"{method.name}: {message}", InputWarning)

    def complete(prediction: Prediction) -> Prediction:
        ids = None if graph.node_ids is None else ids_of(graph, prediction.nodes.numpy())
        return replace(prediction, node_ids=ids, **known)

    return complete


def answers(
    predict: Predictor,
    chunks: Iterable[Tensor],
    complete: Callable[[Prediction], Prediction],
    cluster: Cluster | None = None,
) -> Iterator[Prediction]:
    """Predictions of nodes, chunk by chunk.

    Args:
        predict: Predicts nodes.
        chunks: The nodes of each chunk.
        complete: What ``completed`` gave.
        cluster: Whose machines take costly steps; None: this process.
    """
    if cluster is not None and isinstance(predict, SplitPredictor):
        found = cluster.map(predict.judge, ((nodes, *predict.read(nodes)) for nodes in chunks))
    else:
        found = map(predict, chunks)
    while True:
        with explained():
            prediction = next(found, None)
            if prediction is None:
                return
            finite(prediction)
        yield complete(prediction)


def chunks_of(
    method: Method,
    graph: Graph | None,
    nodes: Tensor | None,
    ids: Sequence[Any] | None,
    size: int,
    memory: str | int | None,
) -> Iterator[Prediction]:
    """What ``Method.predict_chunks`` gives, by this process and whatever cluster the method may use.

    What is refused is refused here, before the first chunk.

    Args:
        method: Which predicts.
        graph: See ``Method.predict_chunks``, and so the others.
        nodes: Which nodes.
        ids: The same by what they are called.
        size: Nodes of a chunk, at the most.
        memory: How much may be used.
    """
    graph = method._graph(graph, memory)
    if size < 1:
        raise MethodError(f"size must be at least 1, not {size}")
    chosen = chosen_nodes(graph, nodes, ids)
    with explained():
        predict = predictor_of(method, graph)
        if method.is_credal and graph is not method._examined:
            method._warn_of(predict(chosen[sample(len(chosen), chosen[:0])]))
    chunks = torch.split(chosen, min(size, room_for(method)))
    return answers(predict, chunks, completed(method, graph), method._cluster)


def chunks_by_tasks(method: Method, workers: int | None, address: str | None, *asked: Any) -> Iterator[Prediction]:
    """The same with tasks of a Ray cluster; the connection ends with the last chunk, or when this is closed.

    Args:
        method: Which predicts.
        workers: How many tasks at a time.
        address: Of the cluster.
        *asked: What ``chunks_of`` is asked for.
    """
    from .tasks import check_room
    from .workers import connected

    def given() -> Iterator[Any]:
        with connected(address, workers) as cluster:
            check_room(cluster.workers)
            method._let_help(cluster)
            try:
                chunks = chunks_of(method, *asked)
                yield None  # all is accepted
                yield from chunks
            finally:
                method._let_help(None)

    found = given()
    next(found)
    return found


def calibration_nodes(method: Method, given: Given) -> CalibrationNodes | None:
    """The calibration nodes that a method is given, and what it says of them; None where there are none.

    Args:
        method: The method, which has learnt.
        given: What from.
    """
    if given.calibration is None or given.calibration_labels is None:
        return None
    predict = partial(method._predict_held_out, given.graph)
    said = _said_of(given.calibration, given.calibration_labels, predict, room_for(method), alike=False)
    return CalibrationNodes(KnownNodes.of(given.graph, given.calibration), given.calibration_labels, said)


def calibration_in(method: Method, nodes: CalibrationNodes, graph: Graph) -> Calibration:
    """What a method says of its calibration nodes: in a graph, if they are in it, or in the fitted one.

    Args:
        method: The method.
        nodes: Its calibration nodes.
        graph: The graph.
    """
    key = f"{graph.content} {graph.ids_digest}"
    known = method._calibrated  # read once: other threads may ask for other graphs
    if known is None or known[0] != key:
        numbers = nodes.known.numbers_in(graph)
        result = nodes.fitted
        if bool((numbers >= 0).all()) and method._judges_alike(graph):
            result = _said_of(numbers, nodes.labels, predictor_of(method, graph), room_for(method), alike=True)
        method._calibrated = known = key, result
    return known[1]


def _said_of(nodes: Tensor, labels: Tensor, predict: Predictor, room: int, alike: bool) -> Calibration:
    """What a method says of calibration nodes, some at a time."""
    size = min(CHUNK, room)
    with torch.no_grad():
        parts = zip(torch.split(nodes, size), torch.split(labels, size), strict=True)
        said = [predict(part).as_calibration(known, alike) for part, known in parts]
    return said[0] if len(said) == 1 else Calibration.joined(said)
