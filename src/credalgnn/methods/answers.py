"""From what a method predicts to what ``predict`` answers: which nodes, checked, and with what belongs to them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor

from ..graphs import Graph, GraphError, node_numbers
from .calibration import Calibration
from .feature_range import InputWarning
from .known_nodes import numbers_of
from .prediction import MethodError, Prediction

if TYPE_CHECKING:
    from .base import Method

Predictor: TypeAlias = Callable[[Tensor], Prediction]

PIECE = 100_000  # nodes that are predicted at a time
NOT_FINITE = "not all outputs are finite numbers; are the features scaled as they were in training?"


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


@contextmanager
def explained() -> Iterator[None]:
    """Predict without gradients, and say what may be the matter where a credal set refuses what is not one."""
    try:
        with torch.no_grad():
            yield
    except MethodError:
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
    """Adds to predictions what belongs to them; features that are far off are warned of now, and not once a piece.

    Args:
        method: Which predicts.
        graph: What it predicts on.
    """
    known: dict[str, Any] = {"calibration": method._calibration(graph), "reasons": partial(method.why, graph=graph)}
    if method.graph_ is not None and graph.content == method.graph_.content:  # it may have other labels or names
        known["train_nodes"] = method._train_nodes
    elif message := method.feature_range_.complaint_about(graph):
        warnings.warn(f"{method.name}: {message}", InputWarning, stacklevel=3)  # where predict was called

    def complete(prediction: Prediction) -> Prediction:
        ids = None if graph.node_ids is None else graph.node_ids[prediction.nodes.numpy()]
        return replace(prediction, node_ids=ids, **known)

    return complete


def answers(
    predict: Predictor, pieces: Iterable[Tensor], complete: Callable[[Prediction], Prediction]
) -> Iterator[Prediction]:
    """Predictions of nodes, piece by piece.

    Args:
        predict: Predicts nodes.
        pieces: The nodes of each piece.
        complete: What ``completed`` gave.
    """
    for nodes in pieces:
        with explained():
            prediction = finite(predict(nodes))
        yield complete(prediction)


def said_of(nodes: Tensor, labels: Tensor, predict: Predictor, alike: bool) -> Calibration:
    """What a method says of calibration nodes, some at a time.

    Args:
        nodes: Their numbers.
        labels: Their classes.
        predict: Predicts nodes.
        alike: Whether other nodes of known classes are judged as they are.
    """
    parts = zip(nodes.split(PIECE), labels.split(PIECE), strict=True)
    said = [predict(part).as_calibration(known, alike) for part, known in parts]
    return said[0] if len(said) == 1 else Calibration.joined(said)
