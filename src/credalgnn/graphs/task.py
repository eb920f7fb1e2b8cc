"""Leave-out-class tasks: the only place that knows which nodes are out of distribution (OOD).

Methods train on ``task.training``, which consists of masked copies: it reaches no test label, no OOD label and, in an
inductive task, no other node. ``task.validation`` and ``task.test`` hold the true labels for evaluation.
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from ..runtime.names import suggestion
from ._checks import node_numbers
from .errors import GraphError
from .graph import Graph
from .shifts import Shifts
from .split import Split, first_shared

Classes: TypeAlias = Iterable[int | str] | int | str  # class numbers or names; one of them, or several


@dataclass(frozen=True, eq=False)
class Part:
    """Nodes to evaluate on.

    Args:
        nodes: Node numbers.
        labels: ID classes of the nodes, -1 for OOD nodes.
        is_ood: Mask of the OOD nodes.
    """

    nodes: Tensor
    labels: Tensor
    is_ood: Tensor


@dataclass(frozen=True, eq=False)
class TrainingView:
    """Everything a method sees in training: the training graph, and the graph with the early-stopping nodes.

    In a transductive task both are the whole graph, labelled on training and ID validation nodes only. In an inductive
    task ``graph`` holds the training nodes alone and ``val_graph`` these followed by the ID validation nodes, with the
    edges among them; ``train`` has the same numbers in both.

    Args:
        graph: Graph to train on.
        val_graph: Graph for early stopping.
        train: Numbers of the training nodes, in both graphs.
        val: Numbers of the ID validation nodes in ``val_graph``.
        num_classes: Number of ID classes.
        class_names: Names of the ID classes.
        fingerprint: Fingerprint of the task.
    """

    graph: Graph
    val_graph: Graph
    train: Tensor
    val: Tensor
    num_classes: int
    class_names: tuple[str, ...]
    fingerprint: str

    @classmethod
    def of_graph(cls, graph: Graph, train: Tensor, val: Tensor) -> TrainingView:
        """Return the view of a graph whose classes are all known.

        Args:
            graph: The graph.
            train: Training nodes, a mask or node numbers.
            val: Nodes for early stopping, a mask or node numbers.
        """
        parts = {"train": train, "val": val}
        labels = torch.full((graph.num_nodes,), -1)
        digest = hashlib.blake2b(graph.fingerprint.encode(), digest_size=16)
        for name in parts:
            nodes = parts[name] = torch.unique(node_numbers(parts[name], name, graph.num_nodes))
            unknown = nodes[graph.labels[nodes] < 0]
            if len(unknown):
                raise GraphError(f"node {int(unknown[0])} is in {name} but has no label: leave it out of {name}")
            labels[nodes] = graph.labels[nodes]
            digest.update(nodes.numpy().tobytes() + b";")
        shared = first_shared(parts["train"], parts["val"]) if len(parts["val"]) else None
        if shared is not None:
            raise GraphError(f"node {shared} is in both train and val; parts must not overlap")
        masked = graph.replace(labels=labels, class_names=graph.class_names)
        fingerprint = digest.hexdigest()
        return cls(masked, masked, parts["train"], parts["val"], graph.num_classes, graph.class_names, fingerprint)


@dataclass(frozen=True, eq=False)
class Task(Shifts):
    """Graph, left-out classes and split; made by ``Task.leave_out`` or ``load_task``.

    In a transductive task the whole graph takes part in message passing, also in training. In an inductive task the
    graph grows after training, which sees the training nodes and the edges among them only; predictions are for the
    whole graph. ``fewer_labels``, ``label_noise``, ``fewer_ood``, ``feature_noise``, ``feature_removal`` and
    ``rewired`` return shifted copies.

    Args:
        name: Name in tables and folders.
        graph: The graph with all its labels.
        ood_classes: Numbers of the left-out classes; empty for a task without OOD nodes.
        split: Training, validation and test nodes; training nodes are of ID classes only.
        train_labels: ID classes of the training nodes, after any label noise.
        shifts: Descriptions of the shifts applied.
        shifted_nodes: Test nodes that shifts have changed.
        inductive: Training sees the training nodes alone.
        source: Origin of the graph, for records; not part of the fingerprint.

    Example:
        >>> import credalgnn as cg
        >>> task = cg.Task.leave_out(cg.load_graph("digits"), ood_classes=[8, 9])
        >>> task.num_classes, task.counts["test_ood"]
        (8, 70)
    """

    name: str
    graph: Graph
    ood_classes: tuple[int, ...]
    split: Split
    train_labels: Tensor = field(repr=False)
    shifts: tuple[str, ...] = ()
    shifted_nodes: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.int64), repr=False)
    inductive: bool = False
    source: str = ""

    def __post_init__(self) -> None:
        if not self.inductive:
            return
        trains = torch.zeros(self.graph.num_nodes, dtype=torch.bool)
        trains[self.split.train] = True
        edges = self.graph.in_edges
        joined = (
            trains[edges.sources[int(edges.starts[first]) : int(edges.starts[last])].long()]
            & trains[first:last].repeat_interleave(edges.starts[first : last + 1].diff())
            for first, last in edges.chunks()
        )
        if not any(bool(each.any()) for each in joined):
            raise GraphError(
                "the training nodes have no edges among themselves, so there is no graph to train on without the "
                "others: inductive=False, or another split"
            )

    @classmethod
    def leave_out(
        cls,
        graph: Graph,
        ood_classes: Classes,
        split: Split | None = None,
        split_seed: int = 0,
        name: str = "custom",
        inductive: bool = False,
        *,
        source: str = "",
    ) -> Task:
        """Make a task in which some classes are OOD: absent from training, to be detected in validation and test.

        ID classes are renumbered 0..C-1 in their order. Nodes without a label stay in the graph, but in no part.

        Args:
            graph: The graph with all its labels.
            ood_classes: Classes left out: a number or name, or several. Text is taken for a name first, then for a
                number. ``()`` leaves out none.
            split: The split. Default: a random one, 60/20/20.
            split_seed: Seed of a random split.
            name: Name of the task.
            inductive: Hide all nodes but the training nodes from training, not only their labels.
            source: Origin of the graph, for records.
        """
        split = split or Split.random(graph.num_nodes, split_seed)
        last = max(int(part[-1]) for part in (split.train, split.val, split.test))
        if last >= graph.num_nodes:
            raise GraphError(f"split: node {last} does not exist; the graph has {graph.num_nodes} nodes")
        if not graph.num_classes:
            raise GraphError("the graph has no labels, so no class can be left out")
        left_out = _class_numbers(graph, ood_classes)
        if graph.num_classes - len(left_out) < 2:
            left = "one class stays" if len(left_out) < graph.num_classes else "all classes are left out, none stays"
            raise GraphError(f"{left} in distribution; a classifier needs 2 or more")
        train_labels = _renumber(graph, left_out, split.train)
        train = split.train[train_labels >= 0]
        parts = {name: part[graph.labels[part] >= 0] for name, part in (("val", split.val), ("test", split.test))}
        if not len(train):
            raise GraphError("no training node belongs to an ID class; choose another split or other classes")
        for part_name, part in parts.items():
            if not len(part):
                raise GraphError(f"split: no node in {part_name} has a label")
        split = Split(train, parts["val"], parts["test"])
        if inductive and graph.node_ids is None:  # by which nodes of the smaller graph are identified in the larger
            graph = graph.replace(node_ids=np.arange(graph.num_nodes))
        return cls(name, graph, left_out, split, train_labels[train_labels >= 0], inductive=inductive, source=source)

    @property
    def id_classes(self) -> tuple[int, ...]:
        """Numbers of the ID classes in the graph."""
        return tuple(k for k in range(self.graph.num_classes) if k not in self.ood_classes)

    @property
    def num_classes(self) -> int:
        """Number of ID classes."""
        return len(self.id_classes)

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the ID classes."""
        return tuple(self.graph.class_names[k] for k in self.id_classes)

    @cached_property
    def training(self) -> TrainingView:
        """The masked data that methods train on, in tensors of its own."""
        validation = self.validation
        val = validation.nodes[~validation.is_ood]
        labels = torch.full((self.graph.num_nodes,), -1)
        labels[self.split.train] = self.train_labels
        labels[val] = validation.labels[~validation.is_ood]
        graph = val_graph = self.graph.replace(labels=labels, class_names=self.class_names)
        train = self.split.train.clone()
        if self.inductive:
            graph, val_graph = graph.subgraph(train), graph.subgraph(torch.cat([train, val]))
            train, val = torch.arange(len(train)), torch.arange(len(train), val_graph.num_nodes)
        return TrainingView(graph, val_graph, train, val, self.num_classes, self.class_names, self.fingerprint)

    @cached_property
    def prediction_graph(self) -> Graph:
        """The whole graph, numbered as in ``validation`` and ``test``.

        It has the labels that training sees; in an inductive task none.
        """
        if not self.inductive:
            return self.training.graph
        return self.graph.replace(labels=torch.full((self.graph.num_nodes,), -1), class_names=self.class_names)

    @property
    def validation(self) -> Part:
        """Validation nodes with their true labels, for evaluation and the paper's early stopping."""
        return self._part(self.split.val)

    @property
    def test(self) -> Part:
        """Test nodes with their true labels, for the final evaluation."""
        return self._part(self.split.test)

    def _part(self, nodes: Tensor) -> Part:
        labels = _renumber(self.graph, self.ood_classes, nodes)
        return Part(nodes.clone(), labels, labels < 0)

    @property
    def counts(self) -> dict[str, int]:
        """Sizes of the parts, named as in the paper's table."""
        validation, test = self.validation.is_ood, self.test.is_ood
        return {
            "train_id": len(self.split.train),
            "val_id": int((~validation).sum()),
            "val_ood": int(validation.sum()),
            "test_id": int((~test).sum()),
            "test_ood": int(test.sum()),
        }

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the whole task; whatever is derived from a task stores and compares it."""
        digest = hashlib.blake2b(self.graph.fingerprint.encode(), digest_size=16)
        digest.update(f"{self.ood_classes} {self.shifts}{' inductive' if self.inductive else ''}".encode())
        for part in (self.split.train, self.split.val, self.split.test, self.train_labels):
            digest.update(part.numpy().tobytes() + b";")
        return digest.hexdigest()


def _class_numbers(graph: Graph, classes: Classes) -> tuple[int, ...]:
    """Return class numbers, sorted, of numbers or names."""
    several: Iterable[Any] = (classes,) if isinstance(classes, str) or not isinstance(classes, Iterable) else classes
    numbers = set()
    for each in several:
        number = each
        if isinstance(each, str):
            if each not in graph.class_names and not each.isdecimal():
                raise GraphError(
                    f"class {each!r} cannot be left out, as there is none of this name: "
                    f"{suggestion(each, graph.class_names)}"
                )
            number = graph.class_names.index(each) if each in graph.class_names else int(each)
        try:
            number = operator.index(number)
        except TypeError:
            raise GraphError(f"ood_classes must be class numbers or names, not {each!r}") from None
        if isinstance(each, bool) or not 0 <= number < graph.num_classes:
            raise GraphError(f"class {each!r} cannot be left out: the graph has the classes 0..{graph.num_classes - 1}")
        numbers.add(number)
    return tuple(sorted(numbers))


def _renumber(graph: Graph, left_out: tuple[int, ...], nodes: Tensor) -> Tensor:
    """Return the labels of some nodes among the ID classes, -1 for left-out and unknown ones."""
    table = torch.full((graph.num_classes + 1,), -1)  # the last entry serves label -1
    id_classes = [k for k in range(graph.num_classes) if k not in left_out]
    table[id_classes] = torch.arange(len(id_classes))
    return table[graph.labels[nodes]]
