"""What a method learns from, checked: a task, or one's own graph with nodes to train on and to stop by."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor

from ..graphs import Graph, GraphError, Part, Task, TrainingView
from ..nn.training import Epoch
from .prediction import MethodError

Protocol: TypeAlias = Literal["sealed", "paper"]


class Given(NamedTuple):
    """What a method learns from.

    Attributes:
        view: The graph to train on, with the labels of training and ID validation nodes and no others.
        graph: What it will predict on: nothing is learnt from that.
        validation: The validation part with its OOD nodes, under the paper's protocol only.
        train_nodes: The training nodes as ``graph`` numbers them.
        progress: Show a bar; None: on a terminal, when it takes more than a few seconds.
        on_epoch: To be shown every line of the training curve.
    """

    view: TrainingView
    graph: Graph
    validation: Part | None
    train_nodes: Tensor
    progress: bool | None = None
    on_epoch: Callable[[Epoch], None] | None = None


def given_of(data: Any, train: Tensor | None, val: Tensor | None, protocol: str) -> Given:
    """What ``Method.fit`` is called with, as a method learns from it; refuses what nothing can be learnt from.

    Args:
        data: A task, or a graph.
        train: With a graph, the nodes to train on.
        val: With a graph, the nodes that decide when to stop.
        protocol: ``"sealed"`` or ``"paper"``.
    """
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
        train_nodes = data.split.train
    elif isinstance(data, Graph):
        if train is None or val is None:
            raise MethodError("fit(graph) needs train= and val=: masks or node numbers; val decides when to stop")
        if protocol == "paper":
            raise MethodError("the paper's protocol looks at OOD validation nodes, which only a task has: fit(task)")
        try:
            view, validation = TrainingView.of_graph(data, train, val), None
        except GraphError as error:
            raise MethodError(str(error)) from None
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
    return Given(view, graph, validation, train_nodes)
