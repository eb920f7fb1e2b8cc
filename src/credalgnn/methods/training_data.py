"""Training data of a method, checked: of a task, or of a graph with training and validation nodes."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor

from ..graphs import Graph, GraphError, Part, Task, TrainingView, node_numbers, stratified_split
from ..runtime.errors import translated
from .prediction import MethodError

EvalProtocol: TypeAlias = Literal["sealed", "paper"]


class TrainingData(NamedTuple):
    """Data that a method learns from.

    Attributes:
        view: The graph to train on, with the labels of training and ID validation nodes and no others.
        graph: The graph that will be predicted; nothing is learnt from it.
        validation: The validation part with its OOD nodes, under the paper's protocol only.
        train_nodes: The training nodes as ``graph`` numbers them.
        calibration: The calibration nodes likewise; nothing is learnt from them. None: there are none.
        calibration_labels: Their classes.
    """

    view: TrainingView
    graph: Graph
    validation: Part | None
    train_nodes: Tensor
    calibration: Tensor | None = None
    calibration_labels: Tensor | None = None


def training_data(
    data: Any, train: Tensor | None, val: Tensor | None, calibration: Tensor | None, protocol: str
) -> TrainingData:
    """Check the arguments of ``Method.fit``, and return them as a method learns from them."""
    if protocol not in ("sealed", "paper"):
        raise MethodError(f"unknown protocol {protocol!r}: choose 'sealed' or 'paper'")
    labels = None
    if isinstance(data, Task):
        if train is not None or val is not None or calibration is not None:
            raise MethodError("a task has its own split: give train, val and calibration with a graph only")
        if data.inductive and protocol == "paper":
            raise MethodError(
                "the paper's protocol is transductive: it looks at OOD validation nodes, which the training of an "
                "inductive task does not see; choose protocol='sealed', or a task with inductive=False"
            )
        view, graph = data.training, data.prediction_graph
        validation = data.validation if protocol == "paper" else None
        train_nodes = data.split.train
    elif isinstance(data, Graph):
        if protocol == "paper":
            raise MethodError("the paper's protocol looks at OOD validation nodes, which only a task has: fit(task)")
        with translated(GraphError, lambda error: MethodError(str(error))):
            parts = _parts(data, train, val, calibration)
            view, validation = TrainingView.of_graph(data, parts["train"], parts["val"]), None
        calibration = parts.get("calibration")
        if calibration is not None:
            labels = data.labels[calibration]
        graph, train_nodes = view.graph, view.train
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
    return TrainingData(view, graph, validation, train_nodes, calibration, labels)


def _parts(graph: Graph, train: Tensor | None, val: Tensor | None, calibration: Tensor | None) -> dict[str, Tensor]:
    """Return node numbers of train, val and, where there are any, calibration; what is left out is split.

    Where train and val are given, the other labelled nodes are for something else: there is no calibration then.
    """
    masks = {"train": train, "val": val, "calibration": calibration}
    parts = {
        name: torch.unique(node_numbers(nodes, name, graph.num_nodes))
        for name, nodes in masks.items()
        if nodes is not None
    }
    if "train" not in parts or "val" not in parts:
        if not bool((graph.labels >= 0).any()):
            raise MethodError("the graph has no labels: a classifier learns from labelled nodes")
        parts = stratified_split(graph.labels, parts)
    held = parts.get("calibration")
    if held is None:
        return parts
    unknown = held[graph.labels[held] < 0]
    if len(unknown):
        raise MethodError(f"node {int(unknown[0])} is in calibration but has no label: leave it out of calibration")
    for name in ("train", "val"):
        shared = held[torch.isin(held, parts[name])]
        if len(shared):
            raise MethodError(
                f"node {int(shared[0])} is in both calibration and {name}: a promise about nodes that {name} has "
                "looked at would not hold; parts must not overlap"
            )
    if not len(held):
        del parts["calibration"]
    return parts
